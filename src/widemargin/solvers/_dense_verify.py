"""Rule and certificate of finished labels over all rows, in float64, from their weights as stored.

    g = v + Σ_i y_i c_i φ'(m_i) (x_i, 1),   u = Σ_i y_i α_i (x_i, 1),   D = Σ_i ψ_i(α_i) − ½‖u‖²

with a free intercept first moved to its optimum, where α is feasible after shrinking its heavier side, see
`widemargin.reference.binary_certificate`. Products are float64 over blocks of labels; rows of float32 are converted a
piece at a time. Memory: three float64 values a row and label of the block, and the piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin import _core
from widemargin.problems.certificate import relative_gap
from widemargin.reference.one_vs_all import BlockTask

__all__ = ["Verified", "label_cost", "scores_of", "sums_of", "verify"]

Double = npt.NDArray[np.float64]

PIECE_BYTES = 4 * 2**20  # of rows converted to float64 at a time; fits a level-3 cache


@dataclass(frozen=True)
class Verified:
    """What holds for the weights of some labels over all rows."""

    intercept: Double
    gradient: Double  # (n_labels, n_features)
    bias_gradient: Double
    scores: Double  # (n_labels, n_samples)
    slopes: Double  # (n_labels, n_samples)
    primal: Double
    dual: Double

    @property
    def gradient_norm(self) -> Double:
        """‖∇L‖, the intercept included."""
        norm: Double = np.sqrt(np.square(self.gradient).sum(axis=1) + np.square(self.bias_gradient))
        return norm

    @property
    def relative_gap(self) -> Double:
        """(primal − dual) / max(|primal|, |dual|)."""
        return relative_gap(self.primal, self.dual)


def label_cost(task: BlockTask, j: int) -> Double:
    """y_i c_i of label j, shape (n_samples,): −0.0 for negative rows of no weight."""
    cost: Double = -(task.C * task.negative_factor[j]) * task.row_weight
    rows = task.positive_rows[task.positive_indptr[j] : task.positive_indptr[j + 1]]
    cost[rows] = task.C * task.positive_factor[j] * task.row_weight[rows]
    return cost


def _pieces(X: npt.NDArray[Any]) -> Iterator[tuple[slice, Double]]:
    """Ranges of rows, and these rows as float64."""
    step = max(1, PIECE_BYTES // (8 * max(1, X.shape[1])))
    for first in range(0, len(X), step):
        part = slice(first, first + step)
        yield part, X[part].astype(np.float64, copy=False)


def scores_of(X: npt.NDArray[Any], weights: Double) -> Double:
    """W Xᵀ in float64, shape (n_labels, n_samples)."""
    scores = np.empty((len(weights), len(X)))
    for part, rows in _pieces(X):
        scores[:, part] = weights @ rows.T
    return scores


def sums_of(X: npt.NDArray[Any], *factors: Double) -> list[Double]:
    """A X in float64 for each A of shape (n_labels, n_samples); one pass over the rows."""
    sums = [np.zeros((len(A), X.shape[1])) for A in factors]
    for part, rows in _pieces(X):
        for total, A in zip(sums, factors, strict=True):
            total += A[:, part] @ rows
    return sums


def verify(
    X: npt.NDArray[Any], task: BlockTask, labels: npt.NDArray[np.int64], weights: Double, bias: Double
) -> Verified:
    """Certify the weights of `labels` of a task; `bias` is moved if it is free."""
    cost = np.array([label_cost(task, j) for j in labels.tolist()])
    scores = scores_of(X, weights) + task.bias_value * bias[:, None]
    slopes, dual_slopes, rows = np.empty_like(scores), np.empty_like(scores), np.empty((len(labels), 5))
    single = X.dtype == np.float32
    _core.certify_dense(
        task.loss, task.bias_value, task.bias_penalty, single, scores, cost, bias, slopes, dual_slopes, rows
    )
    intercept, loss, conjugates, slope_sum, dual_sum = rows.T
    gradient, u = sums_of(X, slopes, dual_slopes)
    gradient += weights
    bias_gradient = task.bias_value * slope_sum + task.bias_penalty * task.bias_value * intercept
    u_bias = task.bias_penalty * task.bias_value * dual_sum
    primal = 0.5 * np.square(weights).sum(axis=1) + 0.5 * task.bias_penalty * np.square(intercept) + loss
    dual = np.maximum(0.0, conjugates - 0.5 * (np.square(u).sum(axis=1) + np.square(u_bias)))
    return Verified(intercept, gradient, bias_gradient, scores, slopes, primal, np.minimum(primal, dual))
