"""The quality of every row of held-out data, so that methods can be compared row by row.

    one label per row:      1 if the true label is among the top k, else 0
    several labels per row: hits among the top k / k
    in a tree also          1 if a node at or below the true one is among the top k, else 0; tree-induced loss; and
                            hierarchical F1, as R + (2 s − R (p + t)) / mean(p + t), with R the F1 of all rows and s, p
                            and t the numbers of shared, predicted and true nodes: its mean is R, its spread that of R

Means over rows come with a normal interval, mean ± 1.96 s/√n; a difference of two methods with one of the rows' own
differences, which is narrower because both see the same rows. The intervals hold the chance in the held-out rows, not
that in the training rows. Memory: the k best labels of a row.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators._path_scoring import class_numbers
from widemargin.estimators._tree_targets import label_nodes, most_specific
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics._ancestor_sets import set_sizes
from widemargin.metrics._checks import hits

__all__ = ["Interval", "Metric", "interval_of", "metrics_for", "row_outcomes"]

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
    >>> from widemargin.comparison._outcomes import interval_of
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
