"""How a method is measured: on which rows, by what quality of each row, and at what cost.

Rows: folds, shares of the rows, and rows made by a transformer. A transformer, such as a vectoriser of text, is fitted
on the training rows of a fold only: what it learns of the held-out rows (their words, how frequent they are) would make
these look easier than new ones.

Quality of a held-out row, by which methods are compared row by row:

    one label per row:      1 if the true label is among the top k, else 0
    several labels per row: hits among the top k / k; and PSP@k, as R + (g − R b) / mean(b), with R the PSP@k of all
                            rows, g the gain of the row's list and b the attainable one: its mean is R, its spread that
                            of R
    in a tree also          1 if a node at or below the true one is among the top k, else 0; tree-induced loss; and
                            hierarchical F1, as R + (2 s − R (p + t)) / mean(p + t), with R the F1 of all rows and s, p
                            and t the numbers of shared, predicted and true nodes: its mean is R, its spread that of R

Means over rows have a normal interval, mean ± 1.96 s/√n; a difference of two methods has the interval of the rows' own
differences, which is narrower because both see the same rows. The intervals cover the chance in the held-out rows, not
that in the training rows. Memory: the top k labels of each row.

Cost: CPU time of a fit, growth of memory, size on disk, time of a prediction.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin.estimators.path import path
from widemargin.estimators.persistence import save
from widemargin.estimators.scoring import class_numbers, label_propensities
from widemargin.estimators.training import Estimator
from widemargin.estimators.tree.targets import label_nodes
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics.hierarchical import most_specific, set_sizes
from widemargin.metrics.lists import hits
from widemargin.metrics.propensity import gains_of_rows
from widemargin.model_io import folder_size
from widemargin.model_selection.stratification import make_folds
from widemargin.parallel.executors import forget_peak, peak_bytes

__all__ = [
    "Cost",
    "Fold",
    "Interval",
    "Metric",
    "Report",
    "as_targets",
    "check_rows_and_budget",
    "fit_quietly",
    "interval_of",
    "measured_fit",
    "metrics_for",
    "part_of",
    "row_outcomes",
    "scored_path",
    "splits",
]

NORMAL_95 = 1.959963984540054
AT_K = re.compile(r"(top_k_accuracy|precision|psp|at_or_below)@([1-9]\d*)")
DEPTHS = (1, 3, 5, 10)
ACCURACY, AT_OR_BELOW, TREE_F1, TREE_LOSS = "top_k_accuracy", "at_or_below", "hierarchical_f1", "tree_loss"
PRECISION, PSP = "precision", "psp"
PREDICTED_ROWS = 2000
"""Largest number of rows in the prediction that is timed."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Report = Callable[[str, float, float], None]
"""Called with the current step, the seconds elapsed, and the seconds expected in total."""


class Fold(NamedTuple):
    """Training and held-out rows, and the groups of the training rows if there are any."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    groups: Any = None

    @classmethod
    def split(cls, X: Any, y: Any, train: Ints, test: Ints, groups: Any = None) -> Fold:
        """These rows for training, and these held out."""
        parts = (_safe_indexing(part, rows) for rows in (train, test) for part in (X, y))
        return cls(*parts)._replace(groups=None if groups is None else groups[train])

    def transformed(self, transformer: Any) -> Fold:
        """The fold with rows made by a transformer that is fitted on its training rows; the fold itself without one."""
        if transformer is None:
            return self
        fitted = clone(transformer)
        X = fitted.fit_transform(self.X, self.y)
        return self._replace(X=X, X_test=fitted.transform(self.X_test))


def part_of(y: Any, n_rows: int, share: float, kind: str, seed: int) -> Ints:
    """This share of the rows at random, but at least one of each class where a row has one label."""
    order = np.random.default_rng(seed).permutation(n_rows)
    kept = order[: max(1, round(share * n_rows))]
    if kind != "multilabel":
        kept = np.union1d(kept, np.unique(np.asarray(y), return_index=True)[1])
    return np.asarray(np.sort(kept))


def splits(cv: Any, y: Any, n_rows: int, kind: str, seed: int, groups: Any = None) -> list[tuple[Ints, Ints]]:
    """Training and held-out rows of each fold, without a warning about labels with fewer rows than folds."""
    with warnings.catch_warnings():
        if isinstance(cv, int):
            warnings.simplefilter("ignore", UserWarning)
        return make_folds(cv, y, n_rows, kind, groups=groups, seed=seed)


def as_targets(y: Any) -> Any:
    """Labels in a form whose rows can be taken: arrays and lists of label sets as they are, other lists as arrays."""
    is_list_of_sets = isinstance(y, list) and bool(y) and isinstance(y[0], list | tuple | set | frozenset)
    return y if hasattr(y, "shape") or is_list_of_sets else np.asarray(y)


def check_rows_and_budget(X: Any, y: Any, budget: float | None) -> None:
    """Refuse rows without labels, and a budget that allows nothing."""
    if _num_samples(y) != _num_samples(X):
        raise ValueError(
            f"X has {_num_samples(X)} rows, but y has {_num_samples(y)}; pass one label or set of labels per row"
        )
    if budget is not None and not budget > 0.0:
        raise ValueError(f"budget must be a positive number of seconds or None; got {budget!r}")


@dataclass(frozen=True)
class Metric:
    """Top-k accuracy, precision or PSP at k, or a measure of the prediction in a tree, where k is 1."""

    kind: str
    k: int = 1

    @property
    def name(self) -> str:
        """As in `path`, such as top_k_accuracy@5; measures of a tree have no k."""
        return self.kind if self.kind in (TREE_F1, TREE_LOSS) else f"{self.kind}@{self.k}"


def metrics_for(kind: str, n_classes: int, metric: str | None, *, on_tree: bool = False) -> list[Metric]:
    """What is measured, the metric that decides first; in a tree also hierarchical F1 and tree loss."""
    several = kind == "multilabel"
    word = PRECISION if several else ACCURACY
    usual = [Metric(word, k) for k in DEPTHS if k <= n_classes][: 3 if several else 4]
    if several:
        usual += [Metric(PSP, metric.k) for metric in usual]
    if on_tree:
        usual[1:1] = [Metric(TREE_F1), Metric(TREE_LOSS)]
    if metric is None:
        return usual
    allowed = [word, *([PSP] if several else []), *([AT_OR_BELOW] if on_tree else [])]
    match = AT_K.fullmatch(f"{ACCURACY}@1" if metric == "accuracy" else metric)
    if metric == TREE_F1 and on_tree:
        first = Metric(TREE_F1)
    elif match and int(match[2]) <= n_classes and match[1] in allowed:
        first = Metric(match[1], int(match[2]))
    else:
        more = f", or, for labels in a tree, {TREE_F1} or {AT_OR_BELOW}@k" if on_tree else ""
        more = f", or {PSP}@k" if several else more
        raise ValueError(f"metric must be {word}@k with k up to {n_classes}, such as {word}@5{more}; got {metric!r}")
    return [first, *(other for other in usual if other != first)]


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def interval_of(outcomes: Floats) -> Interval:
    """The mean of independent outcomes, and 1.96 standard errors on both sides.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.comparison.measure import interval_of
    >>> mean = interval_of(np.array([0.0, 1.0, 1.0, 1.0]))
    >>> round(mean.mean, 3), round(mean.low, 3), round(mean.high, 3)
    (0.75, 0.26, 1.24)
    """
    mean = float(outcomes.mean())
    error = NORMAL_95 * float(outcomes.std(ddof=1)) / math.sqrt(len(outcomes)) if len(outcomes) > 1 else math.inf
    return Interval(mean, mean - error, mean + error)


def row_outcomes(model: Any, X: Any, y: Any, metrics: list[Metric], taxonomy: Taxonomy | None = None) -> Floats:
    """Outcomes of each row at each metric, shape (n_samples, n_metrics)."""
    top = model.predict_topk(X, max(metric.k for metric in metrics))
    if getattr(model, "kind_", "multilabel") == "multilabel":
        truth = model._encoding().indicator_with_unknown(y)
        right = hits(top.indices, truth)
        outcomes = {PRECISION: np.cumsum(right, axis=1) / np.arange(1, right.shape[1] + 1)}
        if any(m.kind == PSP for m in metrics):
            outcomes[PSP] = _psp(model, top.indices, right, truth)
        return np.column_stack([outcomes[m.kind][:, m.k - 1] for m in metrics])
    listed = top.indices
    if hasattr(model, "taxonomy_"):  # a wide beam may start with a label that is not the predicted one
        listed = np.column_stack([class_numbers(model.classes_, model.predict(X)), listed[:, 1:]])
    if taxonomy is None:
        right = (listed == class_numbers(model.classes_, y)[:, None]) & (listed >= 0)
        return np.column_stack([right[:, : m.k].any(axis=1) for m in metrics]).astype(np.float64)
    nodes = _TreeOutcomes(model, listed, y, taxonomy)
    return np.column_stack([nodes.of(metric) for metric in metrics]).astype(np.float64)


def _psp(model: Any, listed: Ints, right: Any, truth: Any) -> Floats:
    """Outcomes of each row by PSP@1, 2, …, shape (n_samples, n_places)."""
    gain, best = gains_of_rows(truth, listed, right, label_propensities(model, truth.shape[1]))
    mean = best.mean(axis=0)
    mean[mean == 0.0] = 1.0  # no row has a label: all gains are 0
    psp = gain.mean(axis=0) / mean
    return np.asarray(psp + (gain - psp * best) / mean)


class _TreeOutcomes:
    """Listed and true labels as nodes.

    Labels that are not in the tree are numbered after its nodes, each as a leaf directly below the root.
    """

    def __init__(self, model: Any, listed: Ints, y: Any, taxonomy: Taxonomy) -> None:
        self.taxonomy, self.numbers = taxonomy, dict[Any, int]()
        self.separator = getattr(model, "separator", "/")
        self.nodes = np.append(self._numbered(model.classes_), -1)[listed]  # −1 for missing places
        targets = encode_targets(y)
        several = targets.kind == "multilabel"
        row = np.repeat(np.arange(len(listed)), np.diff(targets.Y.indptr)) if several else np.arange(len(listed))
        true = self._numbered(targets.classes)[targets.Y.indices if several else targets.indices]
        inside = true < len(taxonomy)
        known = most_specific(row[inside], true[inside], taxonomy)
        self.row, self.true = (np.append(a, b[~inside]) for a, b in zip(known, (row, true), strict=True))

    def _numbered(self, labels: npt.NDArray[Any]) -> Ints:
        """The nodes of labels; labels that are not nodes get numbers beyond them."""
        nodes, n_nodes = label_nodes(labels, self.taxonomy, self.separator, missing=-1), len(self.taxonomy)
        for i in np.flatnonzero(nodes < 0).tolist():
            nodes[i] = n_nodes + self.numbers.setdefault(labels[i], len(self.numbers))
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
        """Tree-induced loss against the nearest label, as in `tree_induced_loss`; 0 for a row without labels."""
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


@dataclass(frozen=True)
class Cost:
    """What a model costs."""

    cpu_s: float  # of the fit
    memory_bytes: float  # growth of resident memory during the fit; NaN where the system does not report it
    model_bytes: int  # of the saved model
    prediction_s: float  # CPU seconds per row


def fit_quietly(estimator: Estimator, X: Any, y: Any) -> Any:
    """Fit without a warning: that a fit stopped early is shown by its certificate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def scored_path(estimator: Estimator, fold: Fold, score: Callable[[Any, Any, Any], float], **options: Any) -> Any:
    """A warm-started path on the training rows of a fold, scored on the held-out rows, without warnings."""
    held_out = {"X_test": fold.X_test, "y_test": fold.y_test, "scoring": score, "keep": "none"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return path(estimator, fold.X, fold.y, **options, **held_out)


def measured_fit(estimator: Estimator, X: Any, y: Any, X_test: Any, k: int) -> tuple[Any, Cost]:
    """A fitted clone and what it costs."""
    model = clone(estimator)
    before = peak_bytes() if forget_peak() else float("nan")
    started = time.process_time()
    fit_quietly(model, X, y)
    cpu_s = time.process_time() - started
    memory = max(peak_bytes() - before, 0.0)  # in this order NaN stays NaN
    model.set_params(callback=None)
    rows = _safe_indexing(X_test, np.arange(min(PREDICTED_ROWS, X_test.shape[0])))
    started = time.process_time()
    model.predict_topk(rows, k)
    prediction_s = (time.process_time() - started) / rows.shape[0]
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "model")
        return model, Cost(cpu_s, memory, folder_size(Path(folder) / "model"), prediction_s)
