"""The batch pass in integers of 16 bits, in plain NumPy: which rows it emits, and a bound that proves it loses none.

    X = round(t x),  W = round(s w):   w·x ≈ Σ X W / (t s),   off by at most
    allowance / (t s),  allowance = ROUNDING (t ‖x‖₁ + s √m ‖w‖ + m) for a row of m entries

t s (max‖x‖ ‖w‖ + |b| + 1) ≤ SUM_LIMIT bounds s ‖w‖ by SUM_LIMIT / (t max‖x‖), so the allowance depends on the
row alone; some room is added for comparisons in float32. A row is emitted if its score, with allowance and slack,
exceeds the threshold. Memory: dense (n_samples × n_features) integers. Twins:
cpp/one_vs_all/batch_pass.hpp and isa_scan.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.problems.losses import Floats

__all__ = ["PackedRows", "PackedWeights", "emitted_rows", "pack_rows", "pack_weights"]

Integers = npt.NDArray[np.int64]

LARGEST_PACKED = 32767
SUM_LIMIT = 1.9e9
ALLOWANCE_LIMIT = 1e8
COMPARISON_ALLOWANCE = 2048
NORM_SLACK = 1 + 1e-6  # covers the rounding of the norms
ROUNDING = 0.51  # half, and a little for products in float32


@dataclass(frozen=True)
class PackedRows:
    """Rows in integers.

    Examples
    --------
    >>> PackedRows(np.array([[32767]]), 32767.0, np.array([2100]), 1.0).scale
    32767.0
    """

    values: Integers  # X, shape (n_samples, n_features)
    scale: float  # t
    allowance: Integers  # bound on the error of a row's sums, shape (n_samples,)
    max_norm: float  # length of the longest row, and a little more


@dataclass(frozen=True)
class PackedWeights:
    """One label's weights in integers.

    Examples
    --------
    >>> PackedWeights(np.array([32767]), 32767.0).values.tolist()
    [32767]
    """

    values: Integers  # W, shape (n_features,)
    scale: float  # s


def _rounded(x: Floats) -> Integers:
    return np.floor(x + 0.5).astype(np.int64)


def pack_rows(X: Any) -> PackedRows:
    """Return the rows of X, dense or sparse, rounded to 16 bits, with the bound on the error of their sums.

    Examples
    --------
    >>> pack_rows(np.array([[1.0, -0.5]])).values.tolist()
    [[32767, -16383]]
    """
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    l1 = np.abs(dense).sum(axis=1)
    length = (dense != 0).sum(axis=1)
    max_norm = NORM_SLACK * float(np.sqrt((dense**2).sum(axis=1)).max(initial=0.0))
    if max_norm == 0:
        return PackedRows(np.zeros(dense.shape, np.int64), 1.0, np.full(len(dense), COMPARISON_ALLOWANCE), 0.0)
    largest = min(LARGEST_PACKED / float(np.abs(dense).max()), ALLOWANCE_LIMIT / float(l1.max())) / NORM_SLACK
    scale = np.float32(largest)
    bound = ROUNDING * (float(scale) * l1 + SUM_LIMIT / (float(scale) * max_norm) * np.sqrt(length) + length)
    allowance = np.ceil(NORM_SLACK * bound + COMPARISON_ALLOWANCE).astype(np.int64)
    values = np.rint(dense.astype(np.float32) * scale).astype(np.int64)
    return PackedRows(values, float(scale), allowance, max_norm)


def pack_weights(rows: PackedRows, coef: Floats, intercept: float) -> PackedWeights:
    """Return one label's weights, for these rows, rounded to 16 bits in the finest scale in which no sum overflows.

    Examples
    --------
    >>> rows = pack_rows(np.eye(2))
    >>> weights = pack_weights(rows, np.array([3.0, 4.0]), -2.0)
    >>> bool(abs(weights.scale - 1.9e9 / (32767 * 8)) < 0.01)
    True
    """
    coef = np.asarray(coef, dtype=np.float64)
    size = rows.max_norm * float(np.linalg.norm(coef)) + abs(intercept) + 1
    scale = SUM_LIMIT / (rows.scale * size)
    largest = float(np.abs(coef).max(initial=0.0))
    if largest > 0:
        scale = min(scale, LARGEST_PACKED / largest)
    return PackedWeights(_rounded(scale * coef), scale)


def emitted_rows(X: Any, coef: Floats, intercept: Floats, threshold: Floats, slack: Floats) -> list[tuple[Any, Any]]:
    """Return for each label the rows that a pass emits, ascending, and their scores to its precision.

    A row of X (n_samples, n_features) is emitted if its score, plus its `slack` (n_samples,) and the allowance for
    rounding, exceeds the label's `threshold` (n_labels,).

    Examples
    --------
    >>> [(rows, scores)] = emitted_rows(np.eye(2), np.array([[1.0, 3.0]]), np.zeros(1), np.full(1, 2.0), np.zeros(2))
    >>> rows.tolist(), scores.round(4).tolist()
    ([1], [3.0])
    """
    rows = pack_rows(X)
    emitted = []
    for w, b, limit in zip(coef, intercept, threshold, strict=True):
        weights = pack_weights(rows, w, float(b))
        unit = 1 / (rows.scale * weights.scale)
        scores = rows.values @ weights.values * unit + b
        chosen = np.flatnonzero(scores + rows.allowance * unit + slack > limit)
        emitted.append((chosen, scores[chosen]))
    return emitted
