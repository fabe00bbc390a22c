"""The application: predictions, facts of the model, health and meters, behind a gate with limits.

    POST /predict   rows or texts → the best labels with scores, probabilities where the model has them, explanations
    GET  /model     what is served       GET /health   for a load balancer       GET /metrics   for Prometheus

Predictions of requests that come together are computed together. Memory: the model, and at most `waiting_rows` rows.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import scipy.sparse as sp
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from widemargin import __version__
from widemargin.estimators.text import TextPipeline
from widemargin.serve._batches import Batches, Overloaded
from widemargin.serve._gate import Gate, RateLimit
from widemargin.serve._messages import Answer, Health, ModelFacts, Prediction, Problem, Question, rows_of
from widemargin.serve._meters import Meters

__all__ = ["Limits", "make_app"]

EXPLAINED_ROWS = 20
"""Rows of a request that may ask for explanations: each costs as much as many predictions."""
EXPLAINED_FEATURES = 10
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "The body is not JSON.",
        401: "The token is missing or wrong.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        422: "The rows do not fit the model.",
        429: "Too many requests.",
        503: "Too many rows wait; try again.",
    }.items()
}


@dataclass(frozen=True)
class Limits:
    """Bounds of the service.

    Parameters
    ----------
    body_mb : float
        Megabytes of a request.
    body_seconds : float
        Seconds in which it must have arrived.
    requests_per_second : float
        Of one client; 0 for no limit.
    burst : int
        Requests of one client at once.
    batch_rows : int
        Rows that are predicted together.
    waiting_rows : int
        Rows that may wait; more are refused with 503.

    Examples
    --------
    >>> from widemargin.serve import Limits
    >>> Limits(body_mb=1.0).batch_rows
    1024
    """

    body_mb: float = 10.0
    body_seconds: float = 10.0
    requests_per_second: float = 0.0
    burst: int = 100
    batch_rows: int = 1024
    waiting_rows: int = 20_000


class Place(NamedTuple):
    """A label in a list."""

    label: Any
    score: float
    probability: float | None


def make_app(model: Any, *, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """An ASGI application that serves a fitted model.

    Parameters
    ----------
    model : fitted classifier or TextPipeline
        What `widemargin.load` returns.
    limits : Limits or None
        Bounds; the usual ones if None.
    token : str or None
        Bearer token that requests must bring; anyone may ask if None.

    Returns
    -------
    FastAPI
        Run it with any ASGI server; `widemargin serve` uses uvicorn.

    Examples
    --------
    >>> from fastapi.testclient import TestClient
    >>> from widemargin import OneVsAllClassifier
    >>> from widemargin.serve import make_app
    >>> model = OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"])
    >>> with TestClient(make_app(model)) as client:
    ...     client.post("/predict", json={"rows": [[2.0]], "k": 1}).json()["predictions"][0]["labels"]
    ['yes']
    """
    limits = limits or Limits()
    service = _Service(model, limits)
    app = FastAPI(
        title="widemargin",
        version=__version__,
        description="The best labels of rows or texts, with scores.",
        lifespan=service.lifespan,
    )
    _add_routes(app, service)
    rate = RateLimit(limits.requests_per_second, limits.burst)
    most_bytes = int(limits.body_mb * 1e6)
    app.add_middleware(Gate, token=token, most_bytes=most_bytes, body_seconds=limits.body_seconds, rate=rate)
    return app


def _add_routes(app: FastAPI, service: _Service) -> None:
    @app.post("/predict", responses=PROBLEMS)
    async def predict(question: Question, request: Request) -> Answer:
        """The best labels of every row or text."""
        return await service.answer(question, request)

    @app.get("/model", responses={k: PROBLEMS[k] for k in (401, 429)})
    async def model_facts() -> ModelFacts:
        """What is served."""
        return service.facts()

    @app.get("/health")
    async def health() -> Health:
        """Whether the service answers; needs no token."""
        return Health(status="ok")

    @app.get("/metrics", response_class=PlainTextResponse, responses={k: PROBLEMS[k] for k in (401, 429)})
    async def metrics() -> str:
        """Counts and times in the text format of Prometheus."""
        return service.meters.text(service.batches.n_batches, service.batches.n_waiting)

    @app.middleware("http")
    async def measure(request: Request, call_next: Any) -> Response:
        began = time.perf_counter()
        response: Response = await call_next(request)
        service.meters.count(response.status_code, getattr(request.state, "rows", 0), time.perf_counter() - began)
        return response

    @app.exception_handler(Overloaded)
    async def overloaded(_: Request, __: Overloaded) -> JSONResponse:
        headers = {"Retry-After": "1"}
        return JSONResponse({"detail": "too many rows wait; try again in a moment"}, 503, headers)

    @app.exception_handler(ValueError)
    async def wrong(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)


class _Service:
    """The model and what is around it."""

    def __init__(self, model: Any, limits: Limits) -> None:
        self.takes_text = isinstance(model, TextPipeline)
        self.model, self.classifier = model, model[-1] if self.takes_text else model
        self.meters, self.batches = Meters(), Batches(self._predict, limits.batch_rows, limits.waiting_rows)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.batches.start()
        yield
        await self.batches.stop()

    def facts(self) -> ModelFacts:
        return ModelFacts(
            kind=type(self.classifier).__name__,
            labels=len(self.classifier.classes_),
            features=int(self.classifier.n_features_in_),
            takes_text=self.takes_text,
            certified_gap=float(self.classifier.certificate_.relative_gap),
        )

    async def answer(self, question: Question, request: Request) -> Answer:
        rows = await run_in_threadpool(self._rows, question)
        request.state.rows = rows.shape[0]
        k = min(question.k, len(self.classifier.classes_))
        places = await self.batches.ask(rows, rows.shape[0], k)
        found = [_prediction(row) for row in places]
        if question.explain:
            explanations = await run_in_threadpool(self._explain, rows, k)
            found = [p.model_copy(update={"explanations": why}) for p, why in zip(found, explanations, strict=True)]
        return Answer(predictions=found)

    def _rows(self, question: Question) -> Any:
        """CSR rows of the classifier."""
        if question.texts is not None:
            if not self.takes_text:
                raise ValueError("this model was not trained on text; send rows")
            rows = sp.csr_array(self.model.vectors(question.texts))
        else:
            assert question.rows is not None
            rows = rows_of(question.rows, int(self.classifier.n_features_in_))
        if question.explain and rows.shape[0] > EXPLAINED_ROWS:
            raise ValueError(f"explanations are given for at most {EXPLAINED_ROWS} rows at once; send fewer")
        return rows

    def _predict(self, rows: list[Any], k: int) -> list[list[Place]]:
        """The places of every row; runs in the batches' thread."""
        X = sp.vstack(rows, format="csr") if len(rows) > 1 else rows[0]
        top = self.classifier.predict_topk(X, k)
        calibrated = hasattr(self.classifier, "label_proba")
        known = self.classifier.label_proba(X, top.indices).tolist() if calibrated else [[None] * k] * X.shape[0]
        columns = (top.labels.tolist(), top.scores.tolist(), known, top.indices.tolist())
        return [
            [Place(*place) for *place, index in zip(*row, strict=True) if index >= 0]
            for row in zip(*columns, strict=True)
        ]

    def _explain(self, rows: Any, k: int) -> list[list[dict[str, Any]]]:
        names = None
        if self.takes_text and not hasattr(self.classifier, "feature_names_"):
            names = self.model[0].get_feature_names_out()
        found = [self.classifier.explain(rows[[i]], k=k, feature_names=names) for i in range(rows.shape[0])]
        return [why.to_dict(EXPLAINED_FEATURES)["labels"] for why in found]


def _prediction(row: list[Place]) -> Prediction:
    known = [place.probability for place in row if place.probability is not None]
    return Prediction(
        labels=[place.label for place in row],
        scores=[place.score for place in row],
        probabilities=known if len(known) == len(row) else None,
    )
