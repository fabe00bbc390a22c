"""The table of a comparison, and what it recommends.

Recommended is the best method, unless one that is not worse beyond chance (95 %, on the same rows) is much cheaper to
train: it saves at least half of the CPU time, and a second of it. A method of which the budget stopped a fit is
recommended only if all of those were stopped: it was not measured, and one-vs-all lacks whole labels then.

The quality of every row of held-out data, so that methods can be compared row by row.

    one label per row:      1 if the true label is among the top k, else 0
    several labels per row: hits among the top k / k
    in a tree also          1 if a node at or below the true one is among the top k, else 0; tree-induced loss; and
                            hierarchical F1, as R + (2 s − R (p + t)) / mean(p + t), with R the F1 of all rows and s, p
                            and t the numbers of shared, predicted and true nodes: its mean is R, its spread that of R

Means over rows come with a normal interval, mean ± 1.96 s/√n; a difference of two methods with one of the rows' own
differences, which is narrower because both see the same rows. The intervals hold the chance in the held-out rows, not
that in the training rows. Memory: the k best labels of a row.

What a fit and its predictions cost: CPU time, growth of memory, size on disk, time of a prediction.

What `tune` found: the values tried, their quality with intervals, which were chosen and why.

As plain values it is part of the fitted model, `tuning_`, and of its folder.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from widemargin.estimators.persistence import save
from widemargin.estimators.scoring import class_numbers
from widemargin.estimators.tree.targets import label_nodes
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics.hierarchical import most_specific, set_sizes
from widemargin.metrics.lists import hits
from widemargin.model_io import folder_size
from widemargin.parallel.executors import forget_peak, peak_bytes
from widemargin.solvers.result import Callback, Progress

__all__ = [
    "Comparison",
    "Cost",
    "Interval",
    "MethodResult",
    "Metric",
    "Tuning",
    "fit_quietly",
    "interval_of",
    "measured_fit",
    "metrics_for",
    "row_outcomes",
    "stop_at",
]

NORMAL_95 = 1.959963984540054
AT_K = re.compile(r"(top_k_accuracy|precision|at_or_below)@([1-9]\d*)")
DEPTHS = (1, 3, 5, 10)
ACCURACY, AT_OR_BELOW, TREE_F1, TREE_LOSS = "top_k_accuracy", "at_or_below", "hierarchical_f1", "tree_loss"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Metric:
    """Top-k accuracy, precision at k, or a measure of the prediction in a tree, where k is 1."""

    kind: str
    k: int = 1

    @property
    def name(self) -> str:
        """As in `path`, such as top_k_accuracy@5; measures of a tree have no k."""
        return self.kind if self.kind in (TREE_F1, TREE_LOSS) else f"{self.kind}@{self.k}"


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.comparison.result import interval_of
    >>> mean = interval_of(np.array([0.0, 1.0, 1.0, 1.0]))
    >>> round(mean.mean, 3), round(mean.low, 3), round(mean.high, 3)
    (0.75, 0.26, 1.24)
    """

    mean: float
    low: float
    high: float


def interval_of(outcomes: Floats) -> Interval:
    """The mean of independent outcomes, and 1.96 standard errors on both sides."""
    mean = float(outcomes.mean())
    error = NORMAL_95 * float(outcomes.std(ddof=1)) / math.sqrt(len(outcomes)) if len(outcomes) > 1 else math.inf
    return Interval(mean, mean - error, mean + error)


def metrics_for(kind: str, n_classes: int, metric: str | None, *, on_tree: bool = False) -> list[Metric]:
    """What is measured, that which decides first; in a tree hierarchical F1 and tree loss, too."""
    word = "precision" if kind == "multilabel" else ACCURACY
    usual = [Metric(word, k) for k in DEPTHS if k <= n_classes][: 3 if kind == "multilabel" else 4]
    if on_tree:
        usual[1:1] = [Metric(TREE_F1), Metric(TREE_LOSS)]
    if metric is None:
        return usual
    first = _metric(metric, word, on_tree)
    if first is None or first.k > n_classes:
        more = f", or in a tree {TREE_F1} or {AT_OR_BELOW}@k" if on_tree else ""
        raise ValueError(f"metric must be {word}@k with k up to {n_classes}, such as {word}@5{more}; got {metric!r}")
    return [first, *(other for other in usual if other != first)]


def _metric(name: str, word: str, on_tree: bool) -> Metric | None:
    """The measure of a name; None if it does not fit."""
    if name == TREE_F1 and on_tree:
        return Metric(TREE_F1)
    if name == "accuracy" and word == ACCURACY:
        return Metric(ACCURACY)
    match = AT_K.fullmatch(name)
    fits = match is not None and (match[1] == word or (match[1] == AT_OR_BELOW and on_tree))
    return Metric(match[1], int(match[2])) if match is not None and fits else None


def row_outcomes(model: Any, X: Any, y: Any, metrics: list[Metric], taxonomy: Taxonomy | None = None) -> Floats:
    """Outcomes of each row at each metric, shape (n_samples, n_metrics)."""
    top = model.predict_topk(X, max(metric.k for metric in metrics))
    if getattr(model, "kind_", "multilabel") == "multilabel":
        right = hits(top.indices, model._encoding().indicator_with_unknown(y))
        return np.column_stack([right[:, : m.k].mean(axis=1) for m in metrics])
    listed = top.indices
    if hasattr(model, "taxonomy_"):  # a wide beam may begin with another label than the one that is predicted
        listed = np.column_stack([class_numbers(model.classes_, model.predict(X)), listed[:, 1:]])
    if taxonomy is None:
        right = (listed == class_numbers(model.classes_, y)[:, None]) & (listed >= 0)
        return np.column_stack([right[:, : m.k].any(axis=1) for m in metrics]).astype(np.float64)
    outcomes = _TreeOutcomes(model, listed, y, taxonomy)
    return np.column_stack([outcomes.of(metric) for metric in metrics]).astype(np.float64)


class _TreeOutcomes:
    """Listed and true labels as nodes.

    Labels that are not in the tree are numbered after its nodes, each as a child of the root that is nobody's ancestor.
    """

    def __init__(self, model: Any, listed: Ints, y: Any, taxonomy: Taxonomy) -> None:
        self.taxonomy, self.numbers = taxonomy, dict[Any, int]()
        self.separator = getattr(model, "separator", "/")
        self.nodes = np.append(self._numbered(model.classes_), -1)[listed]  # the last one: of missing places
        targets = encode_targets(y)
        several = targets.kind == "multilabel"
        row = np.repeat(np.arange(len(listed)), np.diff(targets.Y.indptr)) if several else np.arange(len(listed))
        true = self._numbered(targets.classes)[targets.Y.indices if several else targets.indices]
        inside = true < len(taxonomy)
        known = most_specific(row[inside], true[inside], taxonomy)
        self.row, self.true = (np.append(a, b[~inside]) for a, b in zip(known, (row, true), strict=True))

    def _numbered(self, labels: npt.NDArray[Any]) -> Ints:
        """Nodes of labels, and numbers beyond them for those that are none."""
        nodes, n_nodes = label_nodes(labels, self.taxonomy, self.separator, missing=-1), len(self.taxonomy)
        for place in np.flatnonzero(nodes < 0).tolist():
            nodes[place] = n_nodes + self.numbers.setdefault(labels[place], len(self.numbers))
        return nodes

    def of(self, metric: Metric) -> Floats:
        """Outcomes by one metric, shape (n_samples,)."""
        if metric.kind == TREE_F1:
            return self._f1()
        if metric.kind == TREE_LOSS:
            return self._loss()
        listed, true = self.nodes[self.row, : metric.k], self.true[:, None]
        right = listed == true
        if metric.kind == AT_OR_BELOW:
            inside = (listed >= 0) & (listed < len(self.taxonomy)) & (true < len(self.taxonomy))
            right |= inside & self.taxonomy.tree.covers(np.where(inside, true, 0), np.where(inside, listed, 0))
        found = np.zeros(len(self.nodes), dtype=bool)
        found[self.row[right.any(axis=1)]] = True
        return found.astype(np.float64)

    def _loss(self) -> Floats:
        """Tree-induced loss against the nearest label, as in `tree_induced_loss`; a row without labels has none."""
        tree, n_nodes = self.taxonomy.tree, len(self.taxonomy)
        guess = self.nodes[self.row, 0]
        ends = [np.where(side < n_nodes, side, 0) for side in (self.true, guess)]
        outside = sum((side >= n_nodes).astype(np.int64) for side in (self.true, guess))
        loss = 0.5 * (tree.distance(*ends) + outside)
        loss[(guess == self.true) | ((outside == 0) & tree.covers(*ends))] = 0.0
        least = np.full(len(self.nodes), np.inf)
        np.minimum.at(least, self.row, loss)
        return np.where(np.isinf(least), 0.0, least)

    def _f1(self) -> Floats:
        n_rows = len(self.nodes)
        guess, row = self.nodes[:, 0], np.arange(n_rows)
        shared, predicted, true = set_sizes(self._sets(self.row, self.true), self._sets(row, guess), self.taxonomy)
        outside = self.true >= len(self.taxonomy)
        true = true + np.bincount(self.row[outside], minlength=n_rows)
        predicted = predicted + (guess >= len(self.taxonomy))
        shared = shared + np.bincount(self.row[outside & (self.true == guess[self.row])], minlength=n_rows)
        total = predicted + true
        F1 = 2.0 * shared.sum() / max(1, total.sum())
        return np.asarray(F1 + (2.0 * shared - F1 * total) / max(total.mean(), 1.0 / n_rows))

    def _sets(self, row: Ints, node: Ints) -> Any:
        """Indicator of the nodes in the tree."""
        inside = node < len(self.taxonomy)
        ones = np.ones(int(inside.sum()), dtype=np.int8)
        return sp.csr_array((ones, (row[inside], node[inside])), shape=(len(self.nodes), len(self.taxonomy)))


PREDICTED_ROWS = 2000
"""Rows of the prediction that is timed, at most."""


@dataclass(frozen=True)
class Cost:
    """What a model costs.

    Parameters
    ----------
    cpu_s : float
        CPU seconds of the fit.
    memory_bytes : float
        Growth of resident memory during the fit; NaN where the system does not tell.
    model_bytes : int
        Size of the saved model.
    prediction_s : float
        CPU seconds of the prediction of a row.
    """

    cpu_s: float
    memory_bytes: float
    model_bytes: int
    prediction_s: float


def stop_at(deadline: float) -> Callback:
    """A callback that stops a solver at a time of `time.monotonic`."""

    def is_over(_: Progress) -> bool:
        return time.monotonic() >= deadline

    return is_over


def fit_quietly(estimator: Any, X: Any, y: Any) -> Any:
    """Fit; a fit that stops early says so in its certificate, which is shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def measured_fit(estimator: Any, X: Any, y: Any, X_test: Any, k: int) -> tuple[Any, Cost]:
    """A fitted clone and what it costs."""
    model = clone(estimator)
    before = peak_bytes() if forget_peak() else float("nan")
    began = time.process_time()
    fit_quietly(model, X, y)
    cpu_s = time.process_time() - began
    memory = max(peak_bytes() - before, 0.0)  # in this order NaN stays NaN
    model.set_params(callback=None)
    rows = _safe_indexing(X_test, np.arange(min(PREDICTED_ROWS, X_test.shape[0])))
    began = time.process_time()
    model.predict_topk(rows, k)
    prediction_s = (time.process_time() - began) / rows.shape[0]
    return model, Cost(cpu_s, memory, _saved_bytes(model), prediction_s)


def _saved_bytes(model: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "model")
        return folder_size(Path(folder) / "model")


WORTH_SHARE = 0.5
"""Part of the best method's CPU time that another must save to be preferred to it."""
WORTH_SECONDS = 1.0
"""CPU seconds that it must save as well: a part of almost nothing is nothing."""


@dataclass(frozen=True)
class MethodResult:
    """A method on all held-out rows.

    Parameters
    ----------
    name : str
        The method.
    estimator : estimator
        Not fitted, with the values chosen in most folds.
    parameters : dict
        The values chosen in each fold, by name.
    quality : dict of str to Interval
        Mean and 95 % interval of each metric.
    cost : Cost
        Means over the folds: CPU seconds, memory, size and time of a prediction.
    relative_gap : float
        The largest certified relative gap of the models; for trees, of the decrease.
    stopped : bool
        Whether the budget stopped a fit before its tolerance.
    """

    name: str
    estimator: Any = field(repr=False)
    parameters: dict[str, list[Any]]
    quality: dict[str, Interval]
    cost: Cost
    relative_gap: float
    stopped: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which has no NaN."""
        quality = {name: asdict(interval) for name, interval in self.quality.items()}
        cost = asdict(self.cost)
        return {
            "method": self.name,
            "parameters": self.parameters,
            "quality": quality,
            **{name: None if value != value else value for name, value in cost.items()},
            "relative_gap": self.relative_gap,
            "stopped": self.stopped,
        }


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Parameters
    ----------
    methods : tuple of MethodResult
        Best first.
    outcomes : dict of str to ndarray of shape (n_held_out,)
        What each method achieved on each held-out row, by the metric that decides.
    metric : str
        That metric.
    about : dict
        Rows, labels, folds and how many were asked for, share of the rows used, seconds.
    not_tried : dict of str to str
        Methods that are not in the table, and why.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import compare
    >>> y = np.arange(90) % 3
    >>> X = np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
    >>> result = compare(X, y, methods=["one-vs-all", "top-k, k = 1"], cv=3)
    >>> len(result.methods), result.recommended.name in result.recommendation
    (2, True)
    """

    methods: tuple[MethodResult, ...]
    outcomes: dict[str, Floats] = field(repr=False)
    metric: str
    about: dict[str, Any]
    not_tried: dict[str, str]

    @property
    def best(self) -> MethodResult:
        """The method with the highest mean. What a stopped fit gave is a model, too."""
        return self.methods[0]

    def difference(self, name: str, other: str) -> Interval:
        """Mean difference of two methods on the same rows, with its 95 % interval."""
        return interval_of(self.outcomes[name] - self.outcomes[other])

    @property
    def as_good_as_the_best(self) -> list[MethodResult]:
        """The best, and those that are not worse beyond chance."""
        best = self.best
        return [best, *(m for m in self.methods[1:] if self.difference(best.name, m.name).low <= 0.0)]

    @property
    def recommended(self) -> MethodResult:
        """The best method, or one as good that is much cheaper to train; a stopped one only if all of them were."""
        good = self.as_good_as_the_best
        first, *others = [method for method in good if not method.stopped] or good
        worth = max(WORTH_SECONDS, WORTH_SHARE * first.cost.cpu_s)
        cheap = [method for method in others if first.cost.cpu_s - method.cost.cpu_s >= worth]
        return min(cheap, key=lambda method: method.cost.cpu_s, default=first)

    @property
    def recommendation(self) -> str:
        """What to use, in a sentence with its reason."""
        chosen, best = self.recommended, self.best
        value = f"{self.metric} {best.quality[self.metric].mean:.3f}"
        if chosen is best:
            more = "; the budget stopped its fits, so that more time may gain more" if chosen.stopped else ""
            return f"Use {chosen.name}: {self._lead(value)}{more}."
        gap = self.difference(best.name, chosen.name)
        times = f"takes {best.cost.cpu_s / max(chosen.cost.cpu_s, 1e-9):.1f} times the CPU time to train"
        if best.stopped and not chosen.stopped:
            times = "was stopped by the budget"
        return (
            f"Use {chosen.name}: {best.name} has the best {value}, but leads by only {100 * gap.mean:.1f} points "
            f"(95 %: {100 * gap.low:.1f} to {100 * gap.high:.1f}), and {times}."
        )

    def _lead(self, value: str) -> str:
        """Why the best one is recommended."""
        if len(self.methods) == 1:
            return f"{value}, the only method that was tried"
        second = self.methods[1]
        gap = self.difference(self.best.name, second.name)
        interval = f"(95 %: {100 * gap.low:.1f} to {100 * gap.high:.1f})"
        if len(self.as_good_as_the_best) > 1:
            return f"it has the best {value}, and no method as good within chance saves much CPU time"
        return f"it has the best {value}, {100 * gap.mean:.1f} points {interval} ahead of {second.name}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **self.about,
            "metric": self.metric,
            "methods": [method.to_dict() for method in self.methods],
            "not_tried": self.not_tried,
            "recommended": self.recommended.name,
            "recommendation": self.recommendation,
        }


NAMES = {"estimator__C": "binary C", "alpha_share": "α/α*"}
"""Names of parameters for people, where they have others."""


@dataclass(frozen=True)
class Tuning:
    """What `tune` returns: a row for each combination of values, and the model with the best ones.

    Parameters
    ----------
    params : tuple of str
        Names of the parameters.
    tried : tuple of dict
        Values by name, ascending.
    quality : tuple of Interval or None
        Mean over the held-out rows and 95 % interval of each; None where there was no time for it.
    metric : str
        What was measured.
    n_folds, n_rows : int
        Folds, and held-out rows in all of them.
    best_index : int
        The row that was chosen.
    notes : tuple of str
        Sentences about the search: values added at the edge, folds left out.
    model : estimator or None
        Fitted on all rows with the best values; None with refit=False.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import OneVsAllClassifier, tune
    >>> y = np.arange(90) % 3
    >>> X = np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
    >>> found = tune(OneVsAllClassifier(), X, y, Cs=[0.1, 1.0], cv=3)
    >>> [values["C"] for values in found.tried], found.best["C"] == found.model.C
    ([0.1, 1.0], True)
    >>> found.metric, found.n_folds, found.n_rows
    ('top_k_accuracy@1', 3, 90)
    """

    params: tuple[str, ...]
    tried: tuple[dict[str, Any], ...]
    quality: tuple[Interval | None, ...]
    metric: str
    n_folds: int
    n_rows: int
    best_index: int
    notes: tuple[str, ...] = ()
    model: Any = field(default=None, repr=False)

    @property
    def best(self) -> dict[str, Any]:
        """The values that were chosen, by name: arguments of `set_params`."""
        return self.tried[self.best_index]

    @property
    def reason(self) -> str:
        """What was chosen and why, in a sentence."""
        quality = self.quality[self.best_index]
        assert quality is not None
        how = f"{self.n_folds} folds" if self.n_folds > 1 else "one fold"
        ties = sum(q is not None and same(q.mean, quality.mean) for q in self.quality) > 1
        chosen = ", ".join(f"{NAMES.get(name, name)} = {value:.4g}" for name, value in self.best.items())
        why = f"the best mean {self.metric}, {quality.mean:.4f}, on {self.n_rows:,} held-out rows of {how}"
        return f"{chosen}: {why}{'; of equal ones the smallest C was taken' if ties else ''}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and the model folder."""
        return {
            "params": list(self.params),
            "tried": [
                {"values": dict(values), "mean": None, "low": None, "high": None}
                if q is None
                else {"values": dict(values), "mean": q.mean, "low": _finite(q.low), "high": _finite(q.high)}
                for values, q in zip(self.tried, self.quality, strict=True)
            ],
            "metric": self.metric,
            "folds": self.n_folds,
            "rows": self.n_rows,
            "best": self.best_index,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Tuning:
        """Inverse of `to_dict`, without the model.

        Parameters
        ----------
        stored : dict
            What `to_dict` gave, such as the attribute `tuning_` of a model.

        Returns
        -------
        Tuning
        """
        tried = stored["tried"]
        return cls(
            tuple(stored["params"]),
            tuple(dict(row["values"]) for row in tried),
            tuple(_interval(row) for row in tried),
            stored["metric"],
            stored["folds"],
            stored["rows"],
            stored["best"],
            tuple(stored["notes"]),
        )


def same(a: float, b: float) -> bool:
    """Whether two means are equal but for rounding."""
    return math.isclose(a, b, rel_tol=0.0, abs_tol=1e-12)


def _finite(bound: float) -> float | None:
    """A bound as JSON can hold it; the interval of one row has none."""
    return bound if math.isfinite(bound) else None


def _interval(row: dict[str, Any]) -> Interval | None:
    if row["mean"] is None:
        return None
    low, high = row["low"], row["high"]
    return Interval(row["mean"], -math.inf if low is None else low, math.inf if high is None else high)
