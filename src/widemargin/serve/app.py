"""The application: predictions, facts about the model, health and meters, behind a gate with limits.

    POST /predict   rows or texts → the top labels with scores; probabilities if the model has them; explanations
    GET  /model     facts about the model       GET /health   for a load balancer       GET /metrics   for Prometheus

A request passes the gate (token, rate, size), is checked against bounds before any work, and waits for a batch:
requests that arrive together are predicted together. Memory: the model, and at most `waiting_rows` rows.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from widemargin import __version__
from widemargin.data.tables import TableSpec
from widemargin.estimators.text import TextPipeline
from widemargin.serve.batches import Batches, Overloaded
from widemargin.serve.gate import Gate, RateLimit
from widemargin.serve.try_page import add_try_page

__all__ = ["Limits", "Meters", "make_app"]

MOST_ROWS = 1000
MOST_LABELS = 1000
EXPLAINED_ROWS = 20
"""Largest number of rows in a request for explanations: each costs as much as many predictions."""
EXPLAINED_FEATURES = 10
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of request times, in seconds."""
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Column = Annotated[int, Field(ge=0, lt=2**31)]
Text = Annotated[str, Field(max_length=1_000_000)]


@dataclass(frozen=True)
class Limits:
    """Limits of the service.

    Parameters
    ----------
    body_mb : float
        Largest size of a request, in megabytes.
    body_seconds : float
        Seconds within which it must arrive.
    requests_per_second : float
        Rate limit per client; 0 for none.
    burst : int
        Requests that a client may send at once.
    batch_rows : int
        Largest number of rows predicted together.
    waiting_rows : int
        Largest number of waiting rows; more are refused with 503.

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


def make_app(model: Any, *, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """An ASGI application that serves a fitted model.

    Parameters
    ----------
    model : fitted classifier or TextPipeline
        What `widemargin.load` returns.
    limits : Limits or None
        Limits; the defaults if None.
    token : str or None
        Bearer token that requests must bring; None lets anyone ask.

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
        description="The top labels of rows or texts, with scores.",
        lifespan=service.lifespan,
    )
    _add_routes(app, service)
    add_try_page(app, model)
    rate = RateLimit(limits.requests_per_second, limits.burst)
    most_bytes = int(limits.body_mb * 1e6)
    app.add_middleware(Gate, token=token, most_bytes=most_bytes, body_seconds=limits.body_seconds, rate=rate)
    return app


def _add_routes(app: FastAPI, service: _Service) -> None:
    @app.post("/predict", responses=PROBLEMS)
    async def predict(question: Question, request: Request) -> Answer:
        """The top labels of every row or text."""
        return await service.answer(question, request)

    @app.get("/model", responses={k: PROBLEMS[k] for k in (401, 429)})
    async def model_facts() -> ModelFacts:
        """Facts about the model."""
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
        started = time.perf_counter()
        response: Response = await call_next(request)
        service.meters.count(response.status_code, getattr(request.state, "rows", 0), time.perf_counter() - started)
        return response

    @app.exception_handler(Overloaded)
    async def overloaded(_: Request, __: Overloaded) -> JSONResponse:
        headers = {"Retry-After": "1"}
        return JSONResponse({"detail": "too many rows are waiting; try again in a moment"}, 503, headers)

    @app.exception_handler(ValueError)
    async def wrong(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)


class _Service:
    """The model with its meters and batches."""

    def __init__(self, model: Any, limits: Limits) -> None:
        self.takes_text = isinstance(model, TextPipeline)
        self.model, self.classifier = model, model[-1] if self.takes_text else model
        self.table: TableSpec | None = getattr(self.classifier, "table_", None)
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
            C=getattr(self.classifier, "C_", None),
            rank_scale=getattr(self.classifier, "rank_scale_", None),
            decision=self.classifier.decision_.describe() if hasattr(self.classifier, "decision_") else None,
        )

    async def answer(self, question: Question, request: Request) -> Answer:
        rows = await run_in_threadpool(self._rows, question)
        request.state.rows = rows.shape[0]
        k = min(question.k, len(self.classifier.classes_))
        found = await self.batches.ask(rows, rows.shape[0], k)
        whys = await run_in_threadpool(self._explain, rows, k) if question.explain else [None] * len(found)
        return Answer(predictions=[_prediction(row, why) for row, why in zip(found, whys, strict=True)])

    def _rows(self, question: Question) -> Any:
        """CSR rows of the classifier."""
        if question.texts is not None:
            if not self.takes_text:
                raise ValueError("this model was not trained on text; send numeric rows")
            rows = sp.csr_array(self.model.vectors(list(map(self._text, question.texts))))
        else:
            assert question.rows is not None
            rows = rows_of(question.rows, int(self.classifier.n_features_in_))
        if question.explain and rows.shape[0] > EXPLAINED_ROWS:
            raise ValueError(f"at most {EXPLAINED_ROWS} rows can be explained per request; send fewer rows")
        return rows

    def _text(self, text: str | dict[str, str]) -> str:
        """A text; for an object, its columns joined as the model's table joins them."""
        if isinstance(text, str):
            return text
        if self.table is None:
            raise ValueError("this model was not trained on a table; send texts as strings")
        return self.table.text_of(text)

    def _predict(self, rows: list[Any], k: int) -> list[list[Listed]]:
        """The top labels of every row; runs in the thread of the batches."""
        X = sp.vstack(rows, format="csr") if len(rows) > 1 else rows[0]
        top = self.classifier.predict_topk(X, k)
        calibrated = hasattr(self.classifier, "label_proba")
        known = self.classifier.label_proba(X, top.indices).tolist() if calibrated else [[None] * k] * X.shape[0]
        columns = (top.labels.tolist(), top.scores.tolist(), known, top.indices.tolist())
        return [
            [Listed(*listed) for *listed, index in zip(*row, strict=True) if index >= 0]
            for row in zip(*columns, strict=True)
        ]

    def _explain(self, rows: Any, k: int) -> list[list[dict[str, Any]]]:
        names = None
        if self.takes_text and not hasattr(self.classifier, "feature_names_"):
            names = self.model[0].get_feature_names_out()
        found = [self.classifier.explain(rows[[i]], k=k, feature_names=names) for i in range(rows.shape[0])]
        return [why.to_dict(EXPLAINED_FEATURES)["labels"] for why in found]


def _prediction(row: list[Listed], explanations: list[dict[str, Any]] | None) -> Prediction:
    known = [listed.probability for listed in row if listed.probability is not None]
    return Prediction(
        labels=[listed.label for listed in row],
        scores=[listed.score for listed in row],
        probabilities=known if len(known) == len(row) else None,
        explanations=explanations,
    )


class Strict(BaseModel):
    """Unknown keys are errors: a misspelt one must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=False)


class SparseRow(Strict):
    """A row, given by its features that are not zero."""

    indices: list[Column] = Field(description="Feature numbers, from 0.")
    values: list[Number] = Field(description="Their values.")

    @model_validator(mode="after")
    def _same_length(self) -> SparseRow:
        if len(self.indices) != len(self.values):
            raise ValueError("indices and values must have the same length; send one value per index")
        return self


class Question(Strict):
    """Either rows, or texts for a model with a vectoriser."""

    rows: list[SparseRow | list[Number]] | None = Field(
        default=None, max_length=MOST_ROWS, description="Rows, each as a list of all values or as the nonzero features."
    )
    texts: list[Text | dict[str, Text]] | None = Field(
        default=None,
        max_length=MOST_ROWS,
        description="Texts, for a model that was trained on text; or objects with the text columns of its table.",
    )
    k: int = Field(default=5, ge=1, le=MOST_LABELS, description="Number of labels per row.")
    explain: bool = Field(default=False, description="Whether to show how much each feature contributes to the scores.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Question:
        if (self.rows is None) == (self.texts is None):
            raise ValueError("send either rows or texts")
        if not (self.rows or self.texts):
            raise ValueError("send at least one row or text")
        return self


class Prediction(BaseModel):
    """The top labels of a row, best first."""

    labels: list[str | int | float | bool]
    scores: list[float]
    probabilities: list[float] | None = None
    explanations: list[dict[str, Any]] | None = None


class Answer(BaseModel):
    """One prediction per row, in the same order."""

    predictions: list[Prediction]


class Problem(BaseModel):
    """The problem with a request."""

    detail: Any


class Health(BaseModel):
    """Whether the service answers."""

    status: str


class ModelFacts(BaseModel):
    """Facts about the model."""

    kind: str
    labels: int
    features: int
    takes_text: bool
    certified_gap: float
    C: float | None = Field(description="The C that the model was trained with, also if it was chosen by fit.")
    rank_scale: float | None = Field(description="The exponent q of the rank scale; null if the method has none.")
    decision: str | None = Field(
        description="The rule that decides which labels are predicted; null if none was chosen."
    )


PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "The body is not JSON.",
        401: "The token is missing or wrong.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        422: "The rows do not match the model.",
        429: "Too many requests.",
        503: "Too many rows are waiting; try again.",
    }.items()
}


class Listed(NamedTuple):
    """A label with its score."""

    label: Any
    score: float
    probability: float | None


def rows_of(rows: list[SparseRow | list[float]], n_features: int) -> Any:
    """The rows as one CSR array (n_rows, n_features); a ValueError that names the row that does not fit."""
    indptr: list[int] = [0]
    indices: list[int] = []
    values: list[float] = []
    for number, row in enumerate(rows):
        columns, entries = (row.indices, row.values) if isinstance(row, SparseRow) else (range(len(row)), row)
        if not isinstance(row, SparseRow) and len(row) != n_features:
            raise ValueError(
                f"row {number} has {len(row)} values; send one value for each of the {n_features} features"
            )
        if len(columns) and max(columns) >= n_features:
            raise ValueError(
                f"row {number} contains feature {max(columns)}, but the model has {n_features} features, numbered "
                "from 0"
            )
        if len(set(columns)) != len(columns):
            raise ValueError(f"row {number} contains a feature twice; send each feature once")
        indices.extend(columns)
        values.extend(entries)
        indptr.append(len(indices))
    parts = (np.array(values, dtype=np.float64), np.array(indices, dtype=np.int64), np.array(indptr, dtype=np.int64))
    found = sp.csr_array(parts, shape=(len(rows), n_features))
    found.sort_indices()
    return found


class Meters:
    """Counts and times of requests since the start, in the text format of Prometheus.

    Examples
    --------
    >>> from widemargin.serve.app import Meters
    >>> meters = Meters()
    >>> meters.count(200, rows=3, seconds=0.004)
    >>> print(meters.text(batches=1, waiting=0).splitlines()[2])
    widemargin_requests_total{status="200"} 1
    """

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.rows = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def count(self, status: int, rows: int, seconds: float) -> None:
        """Add a request."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.rows += rows
        self.seconds += seconds
        self.buckets[bisect.bisect_left(BOUNDS, seconds)] += 1

    def text(self, batches: int, waiting: int) -> str:
        """All counts and times."""
        lines = ["# HELP widemargin_requests_total Responses by status.", "# TYPE widemargin_requests_total counter"]
        lines += [f'widemargin_requests_total{{status="{s}"}} {n}' for s, n in sorted(self.requests.items())]
        for name, kind, help_text, value in (
            ("widemargin_rows_total", "counter", "Rows predicted.", self.rows),
            ("widemargin_batches_total", "counter", "Batches predicted.", batches),
            ("widemargin_waiting_rows", "gauge", "Rows waiting for a batch.", waiting),
        ):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        name, total = "widemargin_request_seconds", 0
        lines += [f"# HELP {name} Duration of a request.", f"# TYPE {name} histogram"]
        for bound, n in zip((*map(str, BOUNDS), "+Inf"), self.buckets, strict=True):
            total += n
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return "\n".join([*lines, f"{name}_sum {self.seconds:.6f}", f"{name}_count {total}"]) + "\n"
