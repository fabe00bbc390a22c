"""Values chosen by `fit`: C="auto" of every family, and rank_scale="auto" of one-vs-all.

A part of the rows is held out, with the share of every label and without dividing groups. One-vs-all is fitted to the
other rows for C = 1, ½, ¼ times 1 / mean ‖x‖², and further values while the choice is at the edge, each from the one
before, on all labels or on a random sample:

    AP(C) = average precision of all (held-out row, label) pairs in one ranking: lists compare scores across labels
    C_ = the smallest C with AP(C) ≥ 0.995 max AP, and with lists that are not worse than the best by more than 0.3 %
    rank_scale_ = the q with the best lists at C_, on a parabola through all q    precision at 1, 3 and 5, or `metric`

The other families are fitted along a `path` of C and judged by what they are for. The choice is deterministic. Where
a hold-out means nothing, C is 1: few rows, row weights that are not numbers of rows, no label in the held-out rows.
`tuning_` says what happened.

Tried and lost: leave-one-out estimates from the dual variables choose a C four times too small and cost up to 0.045 of
precision@1. A constant cannot win: C = ¼ gains 0.01 of precision@1 on debian-tags and loses 0.01 on a set of news.
The best q itself, without the parabola, is noise within 0.1: on debian-tags it was 0.05, and 0.0025 worse than 0.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import joblib
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from widemargin.data.normalize import with_unit_rows
from widemargin.estimators.training import Floats, TrainingData, progress_callback
from widemargin.labels.encoding import EncodedTargets
from widemargin.labels.tree import IntArray
from widemargin.metrics import jain_propensities, ndcg_at_k, precision_at_k, propensity_scored_precision_at_k
from widemargin.model_selection import stratified_split
from widemargin.problems.scores import LinearScorer, rank_scales
from widemargin.solvers.one_vs_all.plan import solve, work_of
from widemargin.solvers.result import Status

__all__ = ["AUTO", "Choice", "check_metric", "choose_C", "choose_for_lists", "using"]

AUTO = "auto"
MULTIPLES = (1.0, 0.5, 0.25)
"""The first values of C · mean ‖x‖² for one-vs-all, in the order of the fits."""
PATH_MULTIPLES = (0.125, 0.5, 2.0, 8.0)
"""The same for the other families."""
EXTENSIONS = 5  # values beyond the edge, in the ratio of those before
SCALES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
NEAR_BEST_AP = 0.995
NEAR_BEST_LISTS = 0.997
PLACES = (1, 3, 5)
MIN_ROWS = 100  # a hold-out of fewer than 20 rows says nothing
HELD_OUT, MOST_HELD_OUT, FEW_HELD_OUT = 0.1, 0.2, 1000  # share of the rows; up to 20 % for 1,000 rows
ROWS_AT_MOST = 20_000
LABELS_AT_MOST = 512  # held-out scores are a dense array
LABELS_OF_PATH, LEAST_LABELS = 500, 64
SMALL_WORK = 100_000_000  # labels × (stored values + features): a second or two for the path on all labels
LOOSE_TOL, LOOSE_GAP = 0.1, 0.01  # a sixth less CPU; average precision changes by less than 0.001
SEED = 0

Metric = tuple[str, tuple[int, ...]]
Weights = tuple[Any, Any]


@dataclass(frozen=True)
class Choice:
    """Numbers in place of parameters that are "auto", and how they were found."""

    params: dict[str, Any]
    tuning: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"params": self.params, "tuning": self.tuning}


@contextmanager
def using(model: Any, choice: Choice | None) -> Iterator[None]:
    """Fit with the chosen numbers; the parameters then are as given, and `tuning_` tells how they were chosen."""
    if choice is None:
        yield
        return
    given = {name: getattr(model, name) for name in choice.params}
    vars(model).update(choice.params)
    try:
        yield
    finally:
        vars(model).update(given)
    model.tuning_ = choice.tuning


def check_metric(name: str | None) -> Metric:
    """The measure of a list and its places: "precision@1", "ndcg@5" or "psp@3"; None for precision at 1, 3 and 5."""
    if name is None:
        return "precision", PLACES
    kind, _, place = name.partition("@")
    kind = "precision" if kind == "top_k_accuracy" else kind
    if kind not in ("precision", "ndcg", "psp") or not place.isdecimal() or int(place) < 1:
        raise ValueError(
            f"metric={name!r} is not a metric of lists; use precision@k, top_k_accuracy@k, ndcg@k or psp@k with a "
            "number for k, or None for the mean of precision at 1, 3 and 5"
        )
    return kind, (int(place),)


def choose_for_lists(model: Any, data: TrainingData, groups: Any = None, *, normalize: bool = False) -> Choice | None:
    """C and rank scale of a one-vs-all classifier for checked data; None if both are numbers.

    Parameters
    ----------
    model : OneVsAllClassifier
        Its callback can stop the choice; the values tried so far then decide.
    data : TrainingData
        Rows as they are trained on.
    groups : array-like of shape (n_samples,), optional
        Rows of one group are held out together.
    normalize : bool
        Whether the rows are still to be scaled to unit length.
    """
    wanted = [name for name in ("C", "rank_scale") if getattr(model, name) == AUTO]
    if not wanted:
        _refuse_groups(groups)
        return None
    params = {"C": 1.0, "rank_scale": 0.0}
    params |= {name: getattr(model, name) for name in params if name not in wanted}
    rows, why = _hold_out(data.targets.Y, data.sample_weight, groups)
    if rows is None:
        return Choice(params, _fallback(why))
    held = _HeldOut(model, data, *rows, normalize)
    labels, tuning, weights = held.sample, None, None
    if "C" in wanted:
        tried = held.path()
        if not tried:
            return Choice(params, _fallback("time was up before the first fit"))
        params["C"], tuning = held.best_C(tried)
        weights = tried[params["C"]].weights
    if "rank_scale" in wanted and data.targets.kind != "binary" and model.loss != "logistic":
        if len(held.learnable) <= LABELS_AT_MOST:
            labels, weights = held.learnable, weights if len(labels) == len(held.learnable) else None
        weights = weights or held.fit(params["C"], labels)
        scales = held.best_scale(weights, labels)
        params["rank_scale"] = scales["tried"][scales["best"]]["values"]["rank_scale"]
        tuning = scales if tuning is None else tuning | {"rank_scale": scales}
    return Choice(params, tuning or _fallback("rank_scale has no effect here", "rank_scale = 0"))


def choose_C(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    *,
    score: Callable[[Any, Any, Any], float] | str,
    metric: str,
    targets: EncodedTargets,
    param: str = "C",
    unit: float = 1.0,
) -> Choice | None:
    """C of any other classifier, along a path on the rows that are not held out; None if it is a number.

    Parameters
    ----------
    model : estimator
        The classifier.
    X, y, sample_weight, groups : array-like
        The arguments of `fit`, checked.
    score, metric : callable or str, and str
        What decides, in the form that `path` takes, and its name.
    targets : EncodedTargets
        The same as y, for the split.
    param : str
        The parameter to set, if it is not C.
    unit : float
        The middle of the values of C.
    """
    from widemargin.estimators.path import path

    if model.C != AUTO:
        _refuse_groups(groups)
        return None
    held, why = _hold_out(targets.Y, sample_weight, groups)
    if held is None:
        return Choice({"C": 1.0}, _fallback(why))
    train, test = held
    weights = None if sample_weight is None else np.asarray(sample_weight)[train]
    worker = clone(model).set_params(C=1.0, callback=model.callback, warm_start=False)
    known = {"X_test": _safe_indexing(X, test), "y_test": _safe_indexing(y, test), "scoring": score, "keep": "none"}
    rows = _safe_indexing(X, train), _safe_indexing(y, train)
    found: dict[float, float] = {}

    def measure(values: Sequence[float]) -> None:
        result = path(worker, *rows, values=values, param=param, sample_weight=weights, **known)
        for place, status in enumerate(result.table["status"]):
            if status not in (Status.STOPPED.value, Status.TIME_LIMIT.value):
                found[result.row(place)[param]] = result.row(place)[result.score_names[0]]

    measure([unit * multiple for multiple in PATH_MULTIPLES])
    for _ in range(EXTENSIONS):
        beyond = _beyond(found)
        if beyond is None:
            break
        measure([beyond])
    if not found:
        return Choice({"C": 1.0}, _fallback("time was up before the first fit"))
    best = max(found.values())
    C = next(C for C in sorted(found) if found[C] >= best - abs(best) * (1.0 - NEAR_BEST_LISTS))
    return Choice({"C": C}, _table("C", found, metric, len(test), C))


def _refuse_groups(groups: Any) -> None:
    if groups is not None:
        raise ValueError("groups has no effect, because no parameter is 'auto'; use C='auto', or leave out groups")


def _hold_out(Y: Any, sample_weight: Floats | None, groups: Any) -> tuple[tuple[IntArray, IntArray] | None, str]:
    """Rows to train on and held-out rows, each as often as its weight says; or None and the reason."""
    n_rows = Y.shape[0]
    if sample_weight is not None and (np.asarray(sample_weight) % 1.0 != 0.0).any():
        return None, "row weights are not numbers of rows"
    if n_rows < MIN_ROWS:
        return None, f"{n_rows} rows are too few to hold out some; {MIN_ROWS} are needed"
    share = min(max(HELD_OUT, min(MOST_HELD_OUT, FEW_HELD_OUT / n_rows)), ROWS_AT_MOST / n_rows)
    train, test = stratified_split(Y, test_size=share, groups=groups, random_state=SEED)
    counts = np.diff(Y.indptr)
    if counts[test].sum() == 0 or counts[train].sum() == 0:
        return None, "the held-out rows, or the others, have no label"
    if sample_weight is not None:
        weights = np.asarray(sample_weight)
        test = np.repeat(test, weights[test].astype(np.int64))
        if len(test) == 0 or weights[train].sum() == 0:
            return None, "the held-out rows, or the others, have no weight"
    return (train, test), ""


def _fallback(why: str, what: str = "C = 1") -> dict[str, Any]:
    """`tuning_` of a choice that was not made."""
    note = f"{what} was not chosen by quality: {why}."
    return {"params": ["C"], "tried": [], "metric": "", "folds": 0, "rows": 0, "best": None, "notes": [note]}


def _table(param: str, found: dict[float, float], metric: str, n_rows: int, best: float) -> dict[str, Any]:
    """`tuning_` in the form of `Tuning.to_dict`: one hold-out, and no intervals."""
    values = sorted(found)
    tried = [{"values": {param: value}, "mean": found[value], "low": None, "high": None} for value in values]
    return {
        "params": [param],
        "tried": tried,
        "metric": metric,
        "folds": 1,
        "rows": n_rows,
        "best": values.index(best),
        "notes": [],
    }


def _beyond(found: dict[float, float], near: float = 1.0) -> float | None:
    """A value below the smallest if that is nearly the best, or above the largest if that is the best; else None."""
    values = sorted(found)
    if len(values) < 2:
        return None
    best = max(found.values())
    for edge, inside in ((values[0], values[1]), (values[-1], values[-2])):
        is_good = found[edge] >= near * best if edge < inside else found[edge] == best
        if is_good and found[edge] != found[inside]:
            return edge * edge / inside
    return None


class _Tried(NamedTuple):
    """A fit at one value of C: its weights and intercepts, and the quality of the held-out scores."""

    weights: Weights
    average_precision: float
    lists: float


class _HeldOut:
    """One-vs-all on the rows that are not held out, and its scores of those that are.

    Parameters
    ----------
    model : OneVsAllClassifier
        The classifier.
    data : TrainingData
        All rows.
    train, test : ndarray of int
        Rows to train on and held-out rows.
    normalize : bool
        Whether the rows are still to be scaled to unit length.
    """

    def __init__(self, model: Any, data: TrainingData, train: IntArray, test: IntArray, normalize: bool) -> None:
        self.model, self.data = model, data
        self.metric = check_metric(model.metric)
        limit = 0.5e6 * float(model.memory_limit_mb)
        n_bytes = int(data.X.data.nbytes + data.X.indices.nbytes if sp.issparse(data.X) else data.X.nbytes)
        self.train = train[:: math.ceil(n_bytes / limit)]
        self.test = test[: max(1, int(limit / (8 * LABELS_AT_MOST)))]
        parts = data.X[self.train], data.X[self.test]
        self.X, self.X_test = map(with_unit_rows, parts) if normalize else parts
        self.Y, self.Y_test = data.targets.Y[self.train], data.targets.Y[self.test]
        self.learnable = np.unique(self.Y.indices)
        self.sample = self._sample()

    def _sample(self) -> IntArray:
        """Labels for the path of C: all if that is quick, otherwise at most a fourth."""
        n_labels = min(LABELS_OF_PATH, max(LEAST_LABELS, len(self.learnable) // 4))
        if work_of(self.X, len(self.learnable)) <= SMALL_WORK or n_labels >= len(self.learnable):
            return self.learnable
        return np.sort(np.random.default_rng(SEED).choice(self.learnable, n_labels, replace=False))

    def fit(self, C: float, labels: IntArray, start: Weights | None = None) -> Weights | None:
        """Weights and intercepts of some labels, as they would be stored; None if the callback stopped the fit."""
        classes, factors = self.data.targets.classes, self.model.class_weight
        if self.data.targets.kind != "binary":
            classes = classes[labels]
            if isinstance(factors, dict):
                factors = {label: factors[label] for label in classes.tolist() if label in factors}
        targets = replace(self.data.targets, classes=classes, Y=self.Y[:, labels])
        weights = None if self.data.sample_weight is None else self.data.sample_weight[self.train]
        worker = clone(self.model).set_params(C=C, rank_scale=0.0, class_weight=factors, callback=None)
        worker.tol = max(worker.tol, LOOSE_TOL)
        worker.gap_tol = None if worker.gap_tol is None else max(worker.gap_tol, LOOSE_GAP)
        plan = worker._plan(TrainingData(self.X, self.X, targets, weights), start)
        result = solve(plan, callback=progress_callback(self.model, "labels"))
        stopped = result.status in (Status.STOPPED, Status.TIME_LIMIT)
        return None if stopped else (result.coef, result.intercept)

    def path(self) -> dict[float, _Tried]:
        """Fits by C, for the sampled labels: the first values, then beyond the edge while the choice is there."""
        unit = 1.0 / max(_mean_square(self.X), np.finfo(np.float64).tiny)
        rest, tried = [unit * multiple for multiple in MULTIPLES], dict[float, _Tried]()
        for _ in range(len(MULTIPLES) + EXTENSIONS):
            precisions = {C: found.average_precision for C, found in tried.items()}
            C = rest.pop(0) if rest else _beyond(precisions, NEAR_BEST_AP)
            if C is None:
                break
            nearest = min(tried, key=lambda other: abs(math.log(other / C)), default=None)
            weights = self.fit(C, self.sample, None if nearest is None else tried[nearest].weights)
            if weights is None:
                break
            scores = self.scores(weights)
            precision = average_precision(scores, self.Y_test[:, self.sample])
            tried[C] = _Tried(weights, precision, self.quality(scores, self.sample))
        return tried

    def best_C(self, tried: dict[float, _Tried]) -> tuple[float, dict[str, Any]]:
        """The smallest C that is nearly the best in both respects, or the one with the best average precision."""
        precisions = {C: found.average_precision for C, found in tried.items()}
        enough = NEAR_BEST_AP * max(precisions.values())
        enough_lists = NEAR_BEST_LISTS * max(found.lists for found in tried.values())
        near = [C for C in sorted(tried) if precisions[C] >= enough and tried[C].lists >= enough_lists]
        best = near[0] if near else max(precisions, key=lambda C: precisions[C])
        return best, _table("C", precisions, "average_precision", len(self.test), best) | self.notes("C", self.sample)

    def best_scale(self, weights: Weights | None, labels: IntArray) -> dict[str, Any]:
        """The rank scales tried, as a table of `tuning_`; only 0 if the callback stopped the fit."""
        name = f"{self.metric[0]}@{','.join(map(str, self.metric[1]))}"
        found = {0.0: 0.0}
        if weights is not None:
            scores = self.scores(weights)
            found = {q: self.quality(scores, labels, rank_scales(weights[0], q)) for q in SCALES}
        smooth = np.polyval(np.polyfit(list(found), list(found.values()), 2), list(found)) if len(found) > 1 else [0.0]
        best = list(found)[int(np.argmax(smooth))]
        return _table("rank_scale", found, name, len(self.test), best) | self.notes("rank_scale", labels)

    def notes(self, param: str, labels: IntArray) -> dict[str, Any]:
        """What the choice was made on, if not on everything."""
        notes = []
        if len(labels) < len(self.learnable):
            notes.append(f"{param} was chosen on a sample of {len(labels):,} of {len(self.learnable):,} labels.")
        if len(self.train) < self.data.X.shape[0] // 2:
            notes.append(f"{param} was chosen on {len(self.train):,} rows, as memory_limit_mb requires.")
        return {"notes": notes}

    def scores(self, weights: Weights) -> npt.NDArray[np.float32]:
        """Scores of the held-out rows, shape (n_test, n_labels)."""
        scorer = LinearScorer(*weights)
        return scorer.scores(self.X_test, n_threads=joblib.effective_n_jobs(self.model.n_jobs)).astype(np.float32)

    def quality(self, scores: npt.NDArray[np.float32], labels: IntArray, scale: Floats | None = None) -> float:
        """The metric of the lists of these labels, ranked by their scaled scores."""
        kind, places = self.metric
        depth = min(max(places), len(labels))
        ranked = scores if scale is None else (scores + 1.0) * scale
        top = np.argpartition(-ranked, depth - 1, axis=1)[:, :depth]
        order = np.argsort(-np.take_along_axis(ranked, top, axis=1), axis=1, kind="stable")
        top = np.take_along_axis(top, order, axis=1)
        truth = self.Y_test[:, labels]
        if kind == "psp":
            counts = np.bincount(self.data.targets.Y.indices, minlength=self.data.targets.Y.shape[1])[labels]
            propensities = jain_propensities(counts, self.data.X.shape[0])
            values = [
                propensity_scored_precision_at_k(truth, top, min(k, depth), propensities=propensities) for k in places
            ]
        else:
            measure = ndcg_at_k if kind == "ndcg" else precision_at_k
            values = [measure(truth, top, min(k, depth)) for k in places]
        return float(np.mean(values))


def average_precision(scores: npt.NDArray[np.float32], truth: Any) -> float:
    """Average precision of all pairs of row and label in one ranking; equal scores count as ranked before.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.estimators.tuning import average_precision
    >>> average_precision(np.array([[3.0, 1.0], [0.0, 2.0]]), csr_array([[1, 1], [0, 0]]))
    0.8333333333333333
    """
    positive = np.sort(scores[truth.nonzero()])[::-1]
    if len(positive) == 0:
        return 0.0
    rank = scores.size - np.searchsorted(np.sort(scores, axis=None), positive)
    found = len(positive) - np.searchsorted(positive[::-1], positive)
    return float(np.mean(found / rank))


def _mean_square(X: Any) -> float:
    """Mean ‖x‖² of the rows."""
    values = X.data if sp.issparse(X) else X
    return float(np.sum(np.square(values, dtype=np.float64))) / X.shape[0]
