"""The application: predictions, facts about the model, health and meters, behind a gate with limits.

    POST /predict   rows or texts → the top labels with scores; probabilities if the model has them; explanations
    POST /batch     the same for one JSON object per line, answered line by line while they arrive
    GET  /model     facts about the model       GET /health   for a load balancer       GET /metrics   for Prometheus

A request passes the gate (token, rate, size), is checked against bounds before any work, and waits for a batch:
requests that arrive together are predicted together. Memory: the model, and at most `waiting_rows` rows.
"""

from __future__ import annotations

import asyncio
import bisect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from widemargin import __version__
from widemargin.data.tables import TableSpec
from widemargin.estimators.text import TextPipeline
from widemargin.problems.scores import LinearScorer
from widemargin.serve.batches import Batches, Overloaded
from widemargin.serve.gate import Gate, RateLimit
from widemargin.serve.lines import NDJSON, LinesResponse
from widemargin.serve.try_page import add_try_page

try:
    import orjson
except ModuleNotFoundError:
    fast_json: Callable[[Any], bytes] = TypeAdapter(Any).dump_json
else:
    fast_json = orjson.dumps  # three times as fast for large answers

__all__ = ["Limits", "Meters", "make_app"]

MOST_ROWS = 1000
MOST_LABELS = 1000
MOST_CHOSEN_LABELS = 100_000
EXPLAINED_ROWS = 20
"""Largest number of rows in a request for explanations: each costs as much as many predictions."""
EXPLAINED_FEATURES = 10
SHOWN_ERRORS = 10
"""Errors that a response lists."""
MOST_ERRORS = 100
"""Errors of a body that are looked at; lists stop at their first one, but objects can have one per key."""
RANKED_PLACES = 2**21
"""Places of complete rankings in memory at a time, 16 bytes each."""
FULL_QUEUE_SECONDS = 0.02
"""Pause of a stream while the queue is full."""
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of request times, in seconds."""
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Column = Annotated[int, Field(ge=0, lt=2**31)]
Text = Annotated[str, Field(max_length=1_000_000)]
Label = str | int | float | bool
Ranking = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


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


def make_app(
    model: Any, *, limits: Limits | None = None, token: str | None = None, meters: Meters | None = None
) -> FastAPI:
    """An ASGI application that serves a fitted model.

    Parameters
    ----------
    model : fitted classifier or TextPipeline
        What `widemargin.load` returns.
    limits : Limits or None
        Limits; the defaults if None.
    token : str or None
        Bearer token that requests must bring; None lets anyone ask.
    meters : Meters or None
        Counts that several processes share; by default those of this process.

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
    service = _Service(model, limits, meters or Meters())
    app = FastAPI(
        title="widemargin",
        version=__version__,
        description="The top labels of rows or texts, with scores.",
        lifespan=service.lifespan,
    )
    app.state.batches = service.batches
    _add_routes(app, service)
    add_try_page(app, model)
    app.add_middleware(
        Gate,
        token=token,
        most_bytes=service.most_bytes,
        body_seconds=limits.body_seconds,
        rate=RateLimit(limits.requests_per_second, limits.burst),
        streams={"/batch"},
        count=service.meters.count,
    )
    return app


def _add_routes(app: FastAPI, service: _Service) -> None:
    async def predict(question: Question) -> dict[str, Any]:
        """The top labels of every row or text."""
        return await service.answer(question)

    app.router.add_api_route(
        "/predict", predict, methods=["POST"], response_model=Answer, responses=PROBLEMS, route_class_override=JsonRoute
    )

    @app.post(
        "/batch", status_code=200, responses=STREAMED, response_class=Response, openapi_extra={"requestBody": LINES}
    )
    async def batch() -> LinesResponse:
        """One question per line in, one answer or error per line out, in the same order, while the lines arrive."""
        return service.answered_lines()

    @app.get("/model", responses={k: PROBLEMS[k] for k in (401, 429)})
    async def model_facts() -> ModelFacts:
        """Facts about the model."""
        return service.facts()

    @app.get("/health", responses={503: {"model": Health, "description": "The service cannot answer any more."}})
    async def health(response: Response) -> Health:
        """Whether the service answers; needs no token."""
        if service.batches.has_ended:
            response.status_code = 503
            return Health(status="failed")
        return Health(status="ok")

    @app.get("/metrics", response_class=PlainTextResponse, responses={k: PROBLEMS[k] for k in (401, 429)})
    async def metrics() -> str:
        """Counts and times in the text format of Prometheus."""
        return service.meters.text()

    @app.exception_handler(Overloaded)
    async def overloaded(_: Request, __: Overloaded) -> JSONResponse:
        headers = {"Retry-After": "1"}
        return JSONResponse({"detail": "too many rows are waiting; try again in a moment"}, 503, headers)

    @app.exception_handler(ValueError)
    async def wrong(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)


class JsonRoute(APIRoute):
    """A route whose function takes a question and returns JSON values.

    FastAPI describes it by its annotations like any other route. Only the way through its dependencies and the
    validation of what the model has computed are left out: they take longer than a prediction.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            question = read_question(await request.body())
            return Response(to_json(await endpoint(question)), media_type="application/json")

        return handle


def read_question(body: bytes) -> Question:
    """The question in a body; an error that FastAPI turns into a response with status 422."""
    try:
        return Question.model_validate_json(body)
    except ValidationError as error:
        n_errors = error.error_count()
        if n_errors > MOST_ERRORS:  # a list of them would take longer than any prediction
            found: list[Any] = [{"type": "value_error", "loc": (), "msg": f"{n_errors:,} keys or values are wrong"}]
        else:
            found = error.errors(include_url=False, include_context=False, include_input=False)[:SHOWN_ERRORS]
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from None


def to_json(values: Any) -> bytes:
    """JSON values as bytes."""
    try:
        return fast_json(values)
    except (TypeError, ValueError):  # half a surrogate pair in a label: only the slow encoder writes it
        return json.dumps(values).encode()


class _Service:
    """The model with its meters and batches."""

    def __init__(self, model: Any, limits: Limits, meters: Meters) -> None:
        self.takes_text = isinstance(model, TextPipeline)
        self.model, self.classifier = model, model[-1] if self.takes_text else model
        self.n_features, self.classes = int(self.classifier.n_features_in_), self.classifier.classes_
        self.table: TableSpec | None = getattr(self.classifier, "table_", None)
        self.meters, self.batches = meters, Batches(self._predict, limits.batch_rows, limits.waiting_rows)
        self.most_bytes, self.body_seconds = int(limits.body_mb * 1e6), limits.body_seconds

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.batches.start()
        yield
        await self.batches.stop()

    def facts(self) -> ModelFacts:
        return ModelFacts(
            kind=type(self.classifier).__name__,
            labels=len(self.classes),
            features=self.n_features,
            takes_text=self.takes_text,
            certified_gap=float(self.classifier.certificate_.relative_gap),
            C=getattr(self.classifier, "C_", None),
            rank_scale=getattr(self.classifier, "rank_scale_", None),
            decision=self.classifier.decision_.describe() if hasattr(self.classifier, "decision_") else None,
        )

    async def answer(self, question: Question) -> dict[str, Any]:
        """An `Answer` as JSON values."""
        rows = self._rows(question)
        labels = None
        if question.labels is not None:  # in a thread: there may be many, and the first time all labels are numbered
            labels = await run_in_threadpool(self._label_numbers, question.labels)
        k = min(question.k, len(self.classes) if labels is None else len(labels))
        size = len(rows) + sum(map(len, rows))
        predictions = await self.batches.ask(rows, k, labels=labels, size=size)
        self.meters.note(len(rows), self.batches.n_batches, self.batches.n_waiting)
        if question.explain:
            await run_in_threadpool(self._explain, rows, predictions)
        return {"predictions": predictions}

    def answered_lines(self) -> LinesResponse:
        """A response to a stream of questions."""

        def error(number: int, detail: Any) -> bytes:
            return to_json({"line": number, "detail": detail}) + b"\n"

        def read(number: int, line: bytes | None) -> tuple[int, Callable[[], Awaitable[bytes]]]:
            if line is None:
                reason = f"the line is longer than {self.most_bytes:,} bytes; send fewer rows per line"
                return 0, partial(known, error(number, reason))
            if not line.strip():
                return 0, partial(known, b"")
            try:
                question = read_question(line)
            except RequestValidationError as wrong:
                return 0, partial(known, error(number, wrong.errors()))
            k = min(question.k, len(self.classes))
            places = len(question.rows or question.texts or []) * k * (EXPLAINED_FEATURES if question.explain else 1)
            return places, partial(answer, number, question)

        async def known(line: bytes) -> bytes:
            return line

        async def answer(number: int, question: Question) -> bytes:
            while True:
                try:
                    return to_json(await self.answer(question)) + b"\n"
                except Overloaded:  # the client is not sent away: it waits, and so does what it has not yet sent
                    await asyncio.sleep(FULL_QUEUE_SECONDS)
                except (ValueError, ArithmeticError, MemoryError) as wrong:
                    return error(number, str(wrong) or type(wrong).__name__)

        def stalled(number: int) -> bytes:
            return error(number, f"the line did not arrive within {self.body_seconds:g} s")

        return LinesResponse(read, stalled, most_bytes=self.most_bytes, seconds=self.body_seconds)

    def _rows(self, question: Question) -> list[Any]:
        """Texts or rows that fit the model; a ValueError that names the row that does not."""
        if question.rows is not None:
            check_rows(question.rows, self.n_features)
        elif not self.takes_text:
            raise ValueError("this model was not trained on text; send numeric rows")
        rows: list[Any] = question.rows or list(map(self._text, question.texts or []))
        if question.explain and len(rows) > EXPLAINED_ROWS:
            raise ValueError(f"at most {EXPLAINED_ROWS} rows can be explained per request; send fewer rows")
        return rows

    def _text(self, text: str | dict[str, str]) -> str:
        """A text; for an object, its columns joined as the model's table joins them."""
        if isinstance(text, str):
            return text
        if self.table is None:
            raise ValueError("this model was not trained on a table; send texts as strings")
        return self.table.text_of(text)

    @cached_property
    def numbers(self) -> dict[Any, int]:
        """The number of each label."""
        return {label: number for number, label in enumerate(self.classes.tolist())}

    def _label_numbers(self, labels: list[Label]) -> npt.NDArray[np.int64]:
        """Numbers of labels, each once and in ascending order."""
        found = []
        for label in labels:
            number = self.numbers.get(label)
            # For Python true is 1; in JSON it is not.
            if number is None or isinstance(label, bool) != isinstance(self.classes[number], (bool, np.bool_)):
                known = self.classes[:1].tolist()[0]
                raise ValueError(f"unknown label {label!r:.100}; send labels of this model, such as {known!r:.100}")
            found.append(number)
        return np.unique(np.array(found, dtype=np.int64))

    def _vectors(self, rows: list[Any]) -> Any:
        """CSR rows of the classifier, from texts and rows."""
        parts = []
        for are_texts, part in groupby(rows, lambda row: isinstance(row, str)):
            part_rows = list(part)
            parts.append(self.model.vectors(part_rows) if are_texts else rows_of(part_rows, self.n_features))
        return sp.csr_array(sp.vstack(parts, format="csr") if len(parts) > 1 else parts[0])

    def _predict(self, rows: list[Any], k: int, labels: npt.NDArray[np.int64] | None) -> list[dict[str, Any]]:
        """A `Prediction` as JSON values for every row of a batch."""
        X = self._vectors(rows)
        if labels is None:
            top = self.classifier.predict_topk(X, k)
            indices, scores = top.indices, top.scores
        else:
            indices, scores = self._ranked_among(X, k, labels)
        calibrated = hasattr(self.classifier, "label_proba")
        known = self.classifier.label_proba(X, indices).tolist() if calibrated else [None] * len(rows)
        lengths = (indices >= 0).sum(axis=1).tolist()  # places without a label are at the end
        listed = zip(self.classes[indices].tolist(), scores.tolist(), known, lengths, strict=True)
        return [
            {"labels": names[:n], "scores": values[:n], "probabilities": chances and chances[:n], "explanations": None}
            for names, values, chances, n in listed
        ]

    def _ranked_among(self, X: Any, k: int, labels: npt.NDArray[np.int64]) -> Ranking:
        """Numbers and scores of the top k of some labels, each of shape (n_rows, k); −1 where there are fewer."""
        n_labels = len(self.classes)
        # Only these have a score for each label that does not depend on the other labels.
        own_scores = isinstance(self.classifier.scorer, LinearScorer) and self.classifier.kind_ != "binary"
        own_scores &= not hasattr(self.classifier, "taxonomy_")
        rank = self._ranked_by_own_scores if own_scores else self._ranked_in_all
        step = max(1, RANKED_PLACES // (len(labels) if own_scores else n_labels))
        parts = [rank(X[first : first + step], k, labels) for first in range(0, X.shape[0], step)]
        indices, scores = zip(*parts, strict=True)
        return np.concatenate(indices), np.concatenate(scores)

    def _ranked_by_own_scores(self, X: Any, k: int, labels: npt.NDArray[np.int64]) -> Ranking:
        """The top k of some labels by their scores alone; equal scores in ascending order of labels."""
        shape = (X.shape[0], len(labels))
        indptr = len(labels) * np.arange(shape[0] + 1)
        pattern = sp.csr_array(
            (np.ones(shape[0] * shape[1], dtype=np.int8), np.tile(labels, shape[0]), indptr),
            shape=(shape[0], len(self.classes)),
        )
        rows, n_threads = self.classifier._check_rows(X), self.classifier._n_threads()
        scores = self.classifier.scorer.label_scores(rows, pattern, n_threads=n_threads).data.reshape(shape)
        places = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return labels[places], np.take_along_axis(scores, places, axis=1)

    def _ranked_in_all(self, X: Any, k: int, labels: npt.NDArray[np.int64]) -> Ranking:
        """The top k of some labels, picked from the ranking of all labels."""
        chosen = np.zeros(len(self.classes) + 1, dtype=bool)  # the last place is that of no label, −1
        chosen[labels] = True
        top = self.classifier.predict_topk(X, len(self.classes))
        is_listed = chosen[top.indices]
        places = np.argsort(~is_listed, axis=1, kind="stable")[:, :k]  # of the chosen labels, in their order
        listed = np.take_along_axis(is_listed, places, axis=1)
        indices = np.where(listed, np.take_along_axis(top.indices, places, axis=1), -1)
        return indices, np.take_along_axis(top.scores, places, axis=1)

    def _explain(self, rows: list[Any], predictions: list[dict[str, Any]]) -> None:
        """Add explanations to the predictions of some rows."""
        names = None
        if self.takes_text and not hasattr(self.classifier, "feature_names_"):
            names = self.model[0].get_feature_names_out()
        X = self._vectors(rows)
        for number, prediction in enumerate(predictions):
            why = self.classifier.explain(X[[number]], prediction["labels"], feature_names=names)
            prediction["explanations"] = why.to_dict(EXPLAINED_FEATURES)["labels"]


class Strict(BaseModel):
    """Unknown keys are errors: a misspelt one must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=False)


class SparseRow(Strict):
    """A row, given by its features that are not zero."""

    indices: list[Column] = Field(fail_fast=True, description="Feature numbers, from 0.")
    values: list[Number] = Field(fail_fast=True, description="Their values.")

    def __len__(self) -> int:
        return len(self.indices)

    @model_validator(mode="after")
    def _same_length(self) -> SparseRow:
        if len(self.indices) != len(self.values):
            raise ValueError("indices and values must have the same length; send one value per index")
        return self


class Question(Strict):
    """Either rows, or texts for a model with a vectoriser."""

    rows: list[SparseRow | Annotated[list[Number], Field(fail_fast=True)]] | None = Field(
        default=None,
        max_length=MOST_ROWS,
        fail_fast=True,
        description="Rows, each as a list of all values or as the nonzero features.",
    )
    texts: list[Text | dict[str, Text]] | None = Field(
        default=None,
        max_length=MOST_ROWS,
        fail_fast=True,
        description="Texts, for a model that was trained on text; or objects with the text columns of its table.",
    )
    k: int = Field(default=5, ge=1, le=MOST_LABELS, description="Number of labels per row.")
    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOSEN_LABELS,
        fail_fast=True,
        description="Labels to choose from; all labels of the model by default.",
    )
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

    labels: list[Label]
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


LINES: dict[str, Any] = {
    "required": True,
    "description": "One JSON object per line, each as in the body of /predict. Read the answers while you send.",
    "content": {NDJSON: {"schema": {"type": "string"}}},
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": 'For each line, an answer as that of /predict, or {"line": number, "detail": problem}.',
        "content": {NDJSON: {"schema": {"type": "string"}}},
    },
    **{code: PROBLEMS[code] for code in (401, 429)},
}


def check_rows(rows: list[SparseRow | list[float]], n_features: int) -> None:
    """A ValueError that names the row that does not fit a model with this number of features."""
    for number, row in enumerate(rows):
        if not isinstance(row, SparseRow):
            if len(row) != n_features:
                raise ValueError(
                    f"row {number} has {len(row)} values; send one value for each of the {n_features} features"
                )
            continue
        if row.indices and max(row.indices) >= n_features:
            raise ValueError(
                f"row {number} contains feature {max(row.indices)}, but the model has {n_features} features, numbered "
                "from 0"
            )
        if len(set(row.indices)) != len(row.indices):
            raise ValueError(f"row {number} contains a feature twice; send each feature once")


def rows_of(rows: list[SparseRow | list[float]], n_features: int) -> Any:
    """Checked rows as one CSR array (n_rows, n_features)."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = (row.indices if isinstance(row, SparseRow) else range(n_features) for row in rows)
    values = (row.values if isinstance(row, SparseRow) else row for row in rows)
    indices = np.fromiter(chain.from_iterable(columns), dtype=np.int64, count=indptr[-1])
    data = np.fromiter(chain.from_iterable(values), dtype=np.float64, count=indptr[-1])
    found = sp.csr_array((data, indices, indptr), shape=(len(rows), n_features))
    found.sort_indices()
    return found


class Meters:
    """Counts and times of requests since the start, in the text format of Prometheus.

    Parameters
    ----------
    table : ndarray of float64 of shape (n_processes, `Meters.WIDTH`) or None
        Where all processes of a service count, each in its own row; by default a table of one process.
    process : int
        The row of this process.

    Examples
    --------
    >>> from widemargin.serve.app import Meters
    >>> meters = Meters()
    >>> meters.count(200, seconds=0.004)
    >>> print(meters.text().splitlines()[2])
    widemargin_requests_total{status="200"} 1
    """

    STATUSES = (200, 307, 400, 401, 404, 405, 408, 413, 422, 429, 500, 503)
    """Those that are counted one by one; others count as 500."""
    OTHERS = ("rows", "batches", "waiting", "seconds")
    WIDTH = len(STATUSES) + len(OTHERS) + len(BOUNDS) + 1

    def __init__(self, table: npt.NDArray[np.float64] | None = None, process: int = 0) -> None:
        self.table = np.zeros((1, self.WIDTH)) if table is None else table
        parts = np.split(self.table, np.cumsum([len(self.STATUSES), len(self.OTHERS)]), axis=1)
        self._requests, self._others, self._buckets = (part[process] for part in parts)
        self._places = {status: place for place, status in enumerate(self.STATUSES)}
        self._n_batches = 0

    def count(self, status: int, seconds: float) -> None:
        """Add a response."""
        self._requests[self._places.get(status, self._places[500])] += 1
        self._others[3] += seconds
        self._buckets[bisect.bisect_left(BOUNDS, seconds)] += 1

    def note(self, rows: int, batches: int, waiting: int) -> None:
        """Add predicted rows; note the number of batches of this process so far, and of waiting rows."""
        # Added: a worker that is started again counts from 0, and the total must not fall.
        self._others[:2] += rows, batches - self._n_batches
        self._n_batches, self._others[2] = batches, waiting

    def text(self) -> str:
        """All counts and times, of all processes."""
        counts = self.table.sum(axis=0)
        requests, others, buckets = np.split(counts, np.cumsum([len(self.STATUSES), len(self.OTHERS)]))
        rows, batches, waiting, seconds = others.tolist()
        lines = ["# HELP widemargin_requests_total Responses by status.", "# TYPE widemargin_requests_total counter"]
        seen = zip(self.STATUSES, requests.tolist(), strict=True)
        lines += [f'widemargin_requests_total{{status="{status}"}} {n:.0f}' for status, n in seen if n]
        for name, kind, help_text, value in (
            ("widemargin_rows_total", "counter", "Rows predicted.", rows),
            ("widemargin_batches_total", "counter", "Batches predicted.", batches),
            ("widemargin_waiting_rows", "gauge", "Rows waiting for a batch.", waiting),
        ):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {value:.0f}"]
        name = "widemargin_worker_requests_total"
        lines += [f"# HELP {name} Responses by worker process.", f"# TYPE {name} counter"]
        by_worker = self.table[:, : len(self.STATUSES)].sum(axis=1).tolist()
        lines += [f'{name}{{worker="{number}"}} {n:.0f}' for number, n in enumerate(by_worker)]
        name, total = "widemargin_request_seconds", 0.0
        lines += [f"# HELP {name} Duration of a request.", f"# TYPE {name} histogram"]
        for bound, n in zip((*map(str, BOUNDS), "+Inf"), buckets.tolist(), strict=True):
            total += n
            lines.append(f'{name}_bucket{{le="{bound}"}} {total:.0f}')
        return "\n".join([*lines, f"{name}_sum {seconds:.6f}", f"{name}_count {total:.0f}"]) + "\n"
