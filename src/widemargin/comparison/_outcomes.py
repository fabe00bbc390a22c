"""The quality of every row of held-out data, so that methods can be compared row by row.

    one label a row:      1 if the true label is among the k best, else 0; in a tree, a label below the true one too
    several labels a row: hits among the k best / k

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

from widemargin.estimators._tree_targets import label_nodes
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics._checks import hits

__all__ = ["Interval", "Metric", "interval_of", "metrics_for", "row_outcomes"]

NORMAL_95 = 1.959963984540054
AT_K = re.compile(r"(top_k_accuracy|precision)@([1-9]\d*)")
DEPTHS = (1, 3, 5, 10)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """Top-k accuracy or precision at k."""

    kind: str
    k: int

    @property
    def name(self) -> str:
        """As in `path`, such as top_k_accuracy@5."""
        return f"{self.kind}@{self.k}"


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


def metrics_for(kind: str, n_classes: int, metric: str | None) -> list[Metric]:
    """What is measured, that which decides first."""
    word = "precision" if kind == "multilabel" else "top_k_accuracy"
    usual = [Metric(word, k) for k in DEPTHS if k <= n_classes][: 3 if kind == "multilabel" else 4]
    if metric is None:
        return usual
    match = AT_K.fullmatch(metric)
    if match is None or match[1] != word or int(match[2]) > n_classes:
        raise ValueError(f"metric must be {word}@k with k up to {n_classes}, such as {word}@5; got {metric!r}")
    first = Metric(word, int(match[2]))
    return [first, *(other for other in usual if other != first)]


def row_outcomes(model: Any, X: Any, y: Any, metrics: list[Metric], taxonomy: Taxonomy | None = None) -> Floats:
    """Outcomes of each row at each metric, shape (n_samples, n_metrics)."""
    depth = max(metric.k for metric in metrics)
    top = model.predict_topk(X, depth)
    right = _listed_and_right(model, top, y, taxonomy)
    outcomes = [right[:, : m.k].mean(axis=1) if m.kind == "precision" else right[:, : m.k].any(axis=1) for m in metrics]
    return np.column_stack(outcomes).astype(np.float64)


def _listed_and_right(model: Any, top: Any, y: Any, taxonomy: Taxonomy | None) -> npt.NDArray[np.bool_]:
    """Where the listed labels are the true ones, (n_samples, depth); labels the model does not know are misses."""
    if getattr(model, "kind_", "multilabel") != "multilabel":
        if taxonomy is not None:
            return _below_the_truth(model, top, y, taxonomy)
        place = {label: number for number, label in enumerate(model.classes_.tolist())}
        truth = np.array([place.get(label, -2) for label in np.asarray(y).tolist()])
        right: npt.NDArray[np.bool_] = top.indices == truth[:, None]
        return right
    return hits(top.indices, model._encoding().indicator_with_unknown(y))


def _below_the_truth(model: Any, top: Any, y: Any, taxonomy: Taxonomy) -> npt.NDArray[np.bool_]:
    """Where the listed labels are one of the true ones or below it: methods of paths give leaves only."""
    separator = getattr(model, "separator", None)
    targets = encode_targets(y)
    several = targets.kind == "multilabel"
    row = np.repeat(np.arange(len(top.indices)), np.diff(targets.Y.indptr)) if several else np.arange(len(top.indices))
    column = targets.Y.indices if several else targets.indices
    nodes = label_nodes(targets.classes, taxonomy, separator, missing=-1)
    true = nodes[column]
    listed = label_nodes(model.classes_, taxonomy, separator, missing=-1)[top.indices]
    listed[top.indices < 0] = -1
    known = (listed[row] >= 0) & (true >= 0)[:, None]
    below = taxonomy.tree.covers(np.maximum(true, 0)[:, None], np.maximum(listed[row], 0)) & known
    right = np.zeros(top.indices.shape, dtype=bool)
    np.logical_or.at(right, row, below)
    return right
