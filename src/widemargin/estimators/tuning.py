"""Values chosen by `fit`: C="auto" of every family; rank_scale="auto" and the decision rule of one-vs-all.

A part of the rows is held out, with the share of every label and without dividing groups. One-vs-all is fitted to the
other rows for C = 1, ½, ¼ times 1 / mean ‖x‖², and further values while the choice is at the edge, each from the one
before, on all labels or on a random sample:

    AP(C) = average precision of all (held-out row, label) pairs in one ranking: lists compare scores across labels
    C_ = the smallest C with AP(C) ≥ 0.995 max AP           beyond 512 labels, AP(C) is that of the best q
    rank_scale_ = the q with the best lists at C_, on a parabola through all q    precision at 1, 3 and 5, or `metric`

If the lists of C = 1 / mean ‖x‖² without a rank scale are better, that C is taken.

The other families are fitted along a `path` of C and judged by what they are for; of values within 0.5 % of the best,
the one nearest to 1 / mean ‖x‖² is taken. The choice is deterministic. Where a hold-out means nothing, C is 1: few
rows, row weights that are not numbers of rows, no label that the held-out rows share with the others. `tuning_` says
what happened.

Tried and lost: leave-one-out estimates from the dual variables choose a C four times too small and cost up to 0.045 of
precision@1. A constant cannot win: C = ¼ gains 0.01 of precision@1 on debian-tags and loses 0.01 on a set of news.
The best q itself, without the parabola, is noise within 0.1: on debian-tags it was 0.05, and 0.0025 worse than 0.2.
"""

from __future__ import annotations

import math
import warnings
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
from widemargin.estimators.decisions import ACCEPTED_PER_ROW, LISTED, Acceptance, DecisionRule, HeldOut
from widemargin.estimators.training import Floats, TrainingData, progress_callback
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
EXTENSIONS, PATH_EXTENSIONS = 5, 2  # values beyond the edge, in the ratio of those before
SCALES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
PATH_SCALES = (0.0, 0.25)
RECALL, MANY_PAIRS = 0.9, 1_000_000  # of true pairs that count in the average precision of many pairs
NEAR_BEST = 0.995
PLACES = (1, 3, 5)
MIN_ROWS = 100  # a hold-out of fewer than 20 rows says nothing
HELD_OUT, MOST_HELD_OUT, FEW_HELD_OUT = 0.1, 0.2, 1000  # share of the rows; up to 20 % for 1,000 rows
ROWS_AT_MOST = 20_000
LABELS_AT_MOST = 512  # held-out scores are a dense array
PAIRS_AT_MOST = 4_000_000
LABELS_OF_PATH, LEAST_LABELS, LARGEST_SAMPLE = 400, 64, 0.4
SMALL_WORK = 100_000_000  # labels × (stored values + features): a second or two for the path on all labels
LOOSE_TOL, LOOSE_GAP = 0.1, 0.01  # a sixth less CPU; average precision changes by less than 0.001
SEED = 0
TINY = float(np.finfo(np.float64).tiny)

Metric = tuple[str, tuple[int, ...]]
Weights = tuple[Any, Any]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Choice:
    """Numbers in place of parameters that are "auto", and how they were found.

    Parameters
    ----------
    params : dict
        Values of parameters, for the fit.
    tuning : dict or None
        The attribute `tuning_`, if parameters were chosen.
    rule : DecisionRule or None
        The attribute `decision_`, if it was chosen.
    stopped : bool
        Whether the callback stopped the choice: more time could lead to another one.
    """

    params: dict[str, Any]
    tuning: dict[str, Any] | None
    rule: DecisionRule | None = None
    stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values of a choice that was not stopped, for JSON."""
        rule, own = None, None
        if self.rule is not None:
            rule, own = self.rule.to_dict(), self.rule.label_thresholds
        own_thresholds = None if own is None else own.tolist()
        return {"params": self.params, "tuning": self.tuning, "rule": rule, "label_thresholds": own_thresholds}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Choice:
        """Inverse of `to_dict`."""
        rule, own = stored["rule"], stored["label_thresholds"]
        if rule is not None:
            rule = DecisionRule.from_dict(rule, None if own is None else np.array(own))
        return cls(stored["params"], stored["tuning"], rule)


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
    if choice.tuning is not None:
        model.tuning_ = choice.tuning
    if choice.rule is not None:
        model._set_decision(choice.rule)


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
    """C, rank scale and decision rule of a one-vs-all classifier for checked data; None if none is to be chosen.

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
    if not wanted and not model.tune_decision:
        _refuse_groups(groups)
        return None
    params = {"C": 1.0, "rank_scale": 0.0}
    params |= {name: float(getattr(model, name)) for name in params if name not in wanted}
    rows, why = _hold_out(data.targets.Y, data.sample_weight, groups)
    most = None if model.max_labels is None else int(model.max_labels)
    signs = DecisionRule(model.objective, 0.0, 0.0, 0.0, 0, int(model.min_labels), most)
    if model.precision_target is not None:  # nothing qualifies
        nothing = Acceptance(float(model.precision_target), 0.05, 0.0, None, most or ACCEPTED_PER_ROW, 0.0, None)
        signs = replace(signs, acceptance=nothing)
    rule = signs if model.tune_decision else None
    if rows is None:
        tuning = _fallback(why) if "C" in wanted else _fallback(why, "rank_scale", 0.0)
        return Choice(params, tuning if wanted else None, rule)
    held = _HeldOut(model, data, *rows, normalize)
    tuning = _fallback("it has no effect here", "rank_scale", 0.0)
    tried: dict[float, _Tried] = {}
    if "C" in wanted:
        tried = held.path()
        if not tried:
            return Choice(params, _fallback("the callback or a time limit stopped the first fit"), rule, stopped=True)
        params["C"] = held.best_C(tried)
        tuning = held.table(tried, params["C"])
    if "rank_scale" in wanted and has_scale(model, data):
        labels = held.learnable if held.few else held.sample
        scales = held.best_scale(params["C"], labels, tried)
        if held.few and "C" in wanted and params["C"] != held.unit:
            plain = held.best_scale(held.unit, labels, tried)
            both = plain["folds"] > 0 and scales["folds"] > 0
            if both and plain["tried"][0]["mean"] > max(row["mean"] for row in scales["tried"]):
                scales, params["C"], tuning = plain, held.unit, held.table(tried, held.unit)
                tuning["notes"].append(f"C = {held.unit:.4g} has better lists than the smallest C that is nearly best.")
        (params["rank_scale"],) = scales["tried"][scales["best"]]["values"].values()
        tuning = tuning | {"rank_scale": scales} if "C" in wanted else scales
    if model.tune_decision:
        rule = held.rule(params["C"], params["rank_scale"], tried) or signs
    return Choice(params, tuning if wanted else None, rule, held.stopped)


def choose_C(
    model: Any,
    data: TrainingData,
    groups: Any,
    *,
    score: Callable[[Any, Any, Any], float] | str,
    metric: str,
    worker: Any = None,
    param: str = "C",
) -> Choice | None:
    """C of any other classifier, along a path on the rows that are not held out; None if it is a number.

    Parameters
    ----------
    model : estimator
        The classifier; its callback can stop the choice.
    data : TrainingData
        Rows as they are trained on.
    groups : array-like of shape (n_samples,), optional
        Rows of one group are held out together.
    score, metric : callable or str, and str
        What decides, in the form that `path` takes, and its name.
    worker : estimator, optional
        What is fitted, if it is not the model itself.
    param : str
        The parameter of `worker` that is varied.
    """
    from widemargin.estimators.path import path

    if model.C != AUTO:
        _refuse_groups(groups)
        return None
    rows, why = _hold_out(data.targets.Y, data.sample_weight, groups)
    if rows is None:
        return Choice({"C": 1.0}, _fallback(why))
    train, test = rows
    y = data.targets.labels
    known = {
        "X_test": _safe_indexing(data.X, test),
        "y_test": _safe_indexing(y, test),
        "scoring": score,
        "keep": "none",
    }
    known["sample_weight"] = None if data.sample_weight is None else data.sample_weight[train]
    worker = clone(model if worker is None else worker).set_params(C=1.0, callback=model.callback, warm_start=False)
    rows_of_path = _safe_indexing(data.X, train), _safe_indexing(y, train)
    found: dict[float, float] = {}

    def measure(values: Sequence[float]) -> None:
        with warnings.catch_warnings():  # of fits that are thrown away
            warnings.simplefilter("ignore")
            result = path(worker, *rows_of_path, values=values, param=param, **known)
        for place in range(len(result)):
            row = result.row(place)
            if row["status"] not in (Status.STOPPED.value, Status.TIME_LIMIT.value):
                found[row[param]] = row[result.score_names[0]]

    is_linear = getattr(model, "kernel", "linear") == "linear" and param == "C" and not hasattr(model, "learn")
    unit = _unit(data.X) if is_linear else 1.0
    measure([unit * multiple for multiple in PATH_MULTIPLES])
    for _ in range(PATH_EXTENSIONS):
        further = _beyond(found)
        if further is None:
            break
        measure([further])
    if not found:
        return Choice({"C": 1.0}, _fallback("the callback or a time limit stopped the first fit"))
    near = [C for C in sorted(found) if found[C] >= NEAR_BEST * max(found.values())]
    C = min(near, key=lambda C: abs(math.log(C / unit)))
    return Choice({"C": C}, _table("C", found, metric, len(test), C))


def has_scale(model: Any, data: TrainingData) -> bool:
    """Whether a rank scale has an effect."""
    return data.targets.kind != "binary" and model.loss != "logistic"


def _refuse_groups(groups: Any) -> None:
    if groups is not None:
        raise ValueError("groups has no effect, because no parameter is 'auto'; use C='auto', or leave out groups")


def _hold_out(Y: Any, sample_weight: Floats | None, groups: Any) -> tuple[tuple[IntArray, IntArray] | None, str]:
    """Rows to train on and held-out rows, each as often as its weight says; or None and the reason."""
    n_rows, unlabelled = Y.shape[0], "the held-out rows and the others have no label in common"
    if sample_weight is not None and (np.asarray(sample_weight) % 1.0 != 0.0).any():
        return None, "row weights are not numbers of rows"
    if n_rows < MIN_ROWS:
        return None, f"there are {n_rows} rows, too few to hold some out (at least {MIN_ROWS} are needed)"
    share = min(max(HELD_OUT, min(MOST_HELD_OUT, FEW_HELD_OUT / n_rows)), ROWS_AT_MOST / n_rows)
    train, test = stratified_split(Y, test_size=share, groups=groups, random_state=SEED)
    counted = train
    if sample_weight is not None:
        weights = np.asarray(sample_weight)
        counted, total = train[weights[train] > 0.0], float(np.sum(weights[test]))
        if total == 0.0:
            return None, unlabelled
        # Row i as often as its weight says; of very many, an even selection.
        n_test = int(min(total, max(len(test), ROWS_AT_MOST)))
        places = (np.arange(n_test) + 0.5) * (total / n_test)
        test = test[np.searchsorted(np.cumsum(weights[test]), places, side="right")]
    known = Y[counted].indices
    if not np.isin(Y[test].indices, known).any():
        return None, unlabelled
    if np.bincount(known).max() == len(known) == len(counted):
        return None, "the rows that are not held out all have the same label"
    return (train, test), ""


def _fallback(why: str, param: str = "C", value: float = 1.0) -> dict[str, Any]:
    """`tuning_` of a choice that was not made: no folds and no rows."""
    tried = [{"values": {param: value}, "mean": None, "low": None, "high": None}]
    note = f"{param} = {value:g} was not chosen on held-out rows: {why}."
    return {"params": [param], "tried": tried, "metric": "", "folds": 0, "rows": 0, "best": 0, "notes": [note]}


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
    """A fit at one value of C: its weights and intercepts, and the average precision of the held-out scores."""

    weights: Weights
    average_precision: float


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
        n_pairs = min(PAIRS_AT_MOST, limit / 8)  # they are sorted for every C
        self.test = test
        self.judged = slice(None, None, math.ceil(len(test) * min(LABELS_AT_MOST, data.targets.Y.shape[1]) / n_pairs))
        parts = data.X[self.train], data.X[self.test]
        self.X, self.X_test = map(with_unit_rows, parts) if normalize else parts
        self.Y, self.Y_test = data.targets.Y[self.train], data.targets.Y[self.test]
        self.learnable = np.unique(self.Y.indices)
        self.sample = self._sample()
        self.whole: dict[float, Weights | None] = {}  # fits of all labels by C
        self.stopped = False  # by the callback
        # Many labels: the lists of a sample say nothing, and q is chosen by average precision, together with C.
        self.few = len(self.learnable) <= LABELS_AT_MOST
        given = 0.0 if model.rank_scale == AUTO else float(model.rank_scale)
        self.path_scales = (
            (given,) if self.few or model.rank_scale != AUTO or not has_scale(model, data) else PATH_SCALES
        )
        self.unit = _unit(self.X)

    def _sample(self) -> IntArray:
        """Labels for the path of C: all if that is quick, otherwise at most a fourth, or 64.

        A sample costs up to two more fits of all labels, so it must be small to be worth it: on rcv1v2-subsets, 64 of
        102 labels take 2.1 s and all of them 1.9 s.
        """
        n_labels = min(LABELS_OF_PATH, max(LEAST_LABELS, len(self.learnable) // 4))
        if work_of(self.X, len(self.learnable)) <= SMALL_WORK or n_labels > LARGEST_SAMPLE * len(self.learnable):
            return self.learnable
        return np.sort(np.random.default_rng(SEED).choice(self.learnable, n_labels, replace=False))

    def fit(self, C: float, labels: IntArray, start: Weights | None = None) -> Weights | None:
        """Weights and intercepts of some labels, as they would be stored; None if the callback stopped the fit.

        Sets: stopped.
        """
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
        if result.status in (Status.STOPPED, Status.TIME_LIMIT):
            self.stopped = True
            return None
        return result.coef, result.intercept

    def weights(self, C: float, labels: IntArray, tried: dict[float, _Tried]) -> Weights | None:
        """Weights of the sampled or of all labels, from an earlier fit if there is one."""
        if C in tried and len(labels) == len(self.sample):
            return tried[C].weights
        if C not in self.whole:
            start = next((fit for fit in self.whole.values() if fit is not None), None)
            self.whole[C] = self.fit(C, labels, start)
        return self.whole[C]

    def rule(self, C: float, q: float, tried: dict[float, _Tried]) -> DecisionRule | None:
        """The decision rule for the held-out rows; None if the callback stopped the fit.

        Counts of true and false labels in a random sample of the labels are unbiased, up to a factor, and so are the
        F1 over all pairs and the mean F1 of labels. What is counted by row requires all labels.
        """
        model = self.model
        by_row = model.objective == "f1-per-row" or model.precision_target is not None
        needs_all = self.few or by_row or model.per_label_thresholds or max(model.min_labels, model.max_labels or 0) > 0
        labels = self.learnable if needs_all else self.sample
        weights = self.weights(C, labels, tried)
        if weights is None:
            return None
        scale = None if q == 0.0 else rank_scales(weights[0], q)
        k = min(len(labels), max(LISTED, model.min_labels, model.max_labels or 0))
        scorer, n_threads = LinearScorer(*weights, scale=scale), joblib.effective_n_jobs(model.n_jobs)
        indices, scores = scorer.top_k(self.X_test, k, n_threads=n_threads)
        margins = scores + 1.0 if scale is None else (scores + 1.0) / scale[indices]
        rule: DecisionRule = model._fitted_rule(HeldOut.of(indices, margins, self.Y_test[:, labels]), weights[0])
        if rule.label_thresholds is not None:
            own = np.full(self.Y.shape[1], rule.threshold)
            own[labels] = rule.label_thresholds
            rule = replace(rule, label_thresholds=own)
        return rule

    def path(self) -> dict[float, _Tried]:
        """Fits by C, for the sampled labels: the first values, then beyond the edge while the choice is there."""
        rest, tried = [self.unit * multiple for multiple in MULTIPLES], dict[float, _Tried]()
        for _ in range(len(MULTIPLES) + EXTENSIONS):
            C = rest.pop(0) if rest else _beyond({C: fit.average_precision for C, fit in tried.items()}, NEAR_BEST)
            if C is None:
                break
            nearest = min(tried, key=lambda other: abs(math.log(other / C)), default=None)
            weights = self.fit(C, self.sample, None if nearest is None else tried[nearest].weights)
            if weights is None:
                break
            found = self.by_scale(weights, self.path_scales, self.sample, self.precision_of_pairs)
            tried[C] = _Tried(weights, max(found.values()))
        return tried

    def by_scale(
        self, weights: Weights, scales: Sequence[float], labels: IntArray, measure: Callable[[Scores, IntArray], float]
    ) -> dict[float, float]:
        """What a measure says of these labels by rank scale."""
        scores = self.scores(weights)
        factors = {q: rank_scales(weights[0], q).astype(np.float32) for q in scales}
        return {q: measure((scores + 1.0) * factor, labels) for q, factor in factors.items()}

    def best_C(self, tried: dict[float, _Tried]) -> float:
        """The smallest C whose average precision is nearly the best."""
        enough = NEAR_BEST * max(fit.average_precision for fit in tried.values())
        return min(C for C, fit in tried.items() if fit.average_precision >= enough)

    def table(self, tried: dict[float, _Tried], C: float) -> dict[str, Any]:
        """The values of C that were tried, as a table for `tuning_` with this one as the choice."""
        found = {C: fit.average_precision for C, fit in tried.items()}
        return _table("C", found, "average_precision", len(self.test), C) | self.notes("C", self.sample)

    def best_scale(self, C: float, labels: IntArray, tried: dict[float, _Tried]) -> dict[str, Any]:
        """The rank scales tried at this C, as a table for `tuning_`.

        With all labels, the lists decide. Those of a sample say nothing, because a label has few others to compete
        with: on yso-finna-en, they prefer q = 0 and the smallest C. Average precision then decides.
        """
        sampled, weights = len(labels) < len(self.learnable), self.weights(C, labels, tried)
        kind, places = self.metric
        name = "average_precision" if sampled else f"{kind}@{','.join(map(str, places))}"
        if weights is None:
            return _fallback("the callback or a time limit stopped the fit", "rank_scale", 0.0)
        measure = self.precision_of_pairs if sampled else self.quality_of_lists
        found = self.by_scale(weights, SCALES, labels, measure)
        smooth = np.polyval(np.polyfit(list(found), list(found.values()), 2), list(found))
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

    def scores(self, weights: Weights) -> Scores:
        """Scores of the held-out rows, shape (n_test, n_labels)."""
        scorer = LinearScorer(*weights)
        found: Any = scorer.scores(self.X_test[self.judged], n_threads=joblib.effective_n_jobs(self.model.n_jobs))
        scores: Scores = found.astype(np.float32)
        return scores

    def worth(self, labels: IntArray) -> Floats:
        """1 / propensity of each label."""
        counts = np.bincount(self.data.targets.Y.indices, minlength=self.data.targets.Y.shape[1])
        worth: Floats = 1.0 / jain_propensities(
            counts, self.data.X.shape[0], self.model.propensity_A, self.model.propensity_B
        )
        return worth[labels]

    def precision_of_pairs(self, ranked: Scores, labels: IntArray) -> float:
        """Average precision of the pairs of row and label; for the metric psp, true ones have their worth."""
        worth = self.worth(labels) if self.metric[0] == "psp" else None
        return average_precision(ranked, self.Y_test[self.judged][:, labels], worth)

    def quality_of_lists(self, ranked: Scores, labels: IntArray) -> float:
        """The metric of the lists of these labels."""
        kind, places = self.metric
        depth = min(max(places), len(labels))
        top = np.argpartition(-ranked, depth - 1, axis=1)[:, :depth]
        order = np.argsort(-np.take_along_axis(ranked, top, axis=1), axis=1, kind="stable")
        top = np.take_along_axis(top, order, axis=1)
        measure: Any = {"precision": precision_at_k, "ndcg": ndcg_at_k, "psp": propensity_scored_precision_at_k}[kind]
        further = {"propensities": 1.0 / self.worth(labels)} if kind == "psp" else {}
        truth = self.Y_test[self.judged][:, labels]
        return float(np.mean([measure(truth, top, min(k, depth), **further) for k in places]))


def average_precision(scores: Scores, truth: Any, worth: Floats | None = None) -> float:
    """Average precision of all pairs of row and label in one ranking; equal scores count as ranked before.

    In more than a million pairs, true ones below a recall of 0.9 count 0, which saves most of the sorting.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_labels)
        Scores.
    truth : csr_array of shape (n_samples, n_labels)
        Indicator of the true labels.
    worth : ndarray of shape (n_labels,), optional
        Weight of the true pairs of each label.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.estimators.tuning import average_precision
    >>> average_precision(np.array([[3.0, 1.0], [0.0, 2.0]]), csr_array([[1, 1], [0, 0]]))
    0.8333333333333333
    """
    rows, labels = truth.nonzero()
    if len(rows) == 0:
        return 0.0
    positive = scores[rows, labels]
    order = np.argsort(-positive, kind="stable")
    positive, weights = positive[order], (np.ones(len(rows)) if worth is None else worth[labels])[order]
    total, recall = np.sum(weights), RECALL if scores.size > MANY_PAIRS else 1.0
    kept = positive >= positive[math.ceil(recall * len(positive)) - 1]
    positive, weights = positive[kept], weights[kept]
    ranked = np.sort(scores[scores >= positive[-1]])
    rank = len(ranked) - np.searchsorted(ranked, positive)
    found = np.cumsum(weights)[len(positive) - 1 - np.searchsorted(positive[::-1], positive)]
    return float(np.sum(weights * found / rank) / total)


def _unit(X: Any) -> float:
    """1 / mean ‖x‖² of the rows, to two digits."""
    values = X.data if sp.issparse(X) else X
    squares: float = np.sum(np.square(values, dtype=np.float64))
    return float(f"{X.shape[0] / max(float(squares), TINY):.2g}")
