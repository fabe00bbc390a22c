"""The screened pass in plain NumPy: which rows are above a threshold, from bounds that an index by feature gives.

No value of X is below zero. Let u = max(w, 0), and divide it into v on some of the frequent features F, negligible
weights, and the rest. Then, by Cauchy–Schwarz,

    w·x ≤ u·x = rest·x + v·x + negligible·x ≤ rest·x + ‖v‖ ‖x_F‖ + ‖negligible‖ max‖x‖

With integers X = ⌈t x⌉ ≥ t x and U = ⌈s u⌉ ≥ s u, rest·x ≤ Σ X U / (t s), and ‖x_F‖ is rounded up to a multiple of its
largest value / 255. So a row with w·x + b > threshold has a bound above the room = threshold − b: it is a candidate. It
stays one with v·x in place of ‖v‖ ‖x_F‖, and is found when its score is computed. Nothing else is found.

The sums are those of 32-bit integers: t s u·x ≤ t s ‖u‖ max‖x‖ ≤ SUM_LIMIT, and rounding adds at most
s √m ‖u‖ + t ‖x‖₁ + m for a row of m entries. A row for which that is above ROUNDING_LIMIT is always a candidate.

Memory: dense (n_samples × n_features) integers. Twins: cpp/one_vs_all/screened_pass.hpp and isa_scan.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.problems.losses import Floats

__all__ = ["BLOCK", "ScreenedRows", "envelope", "screened_rows", "unbounded_rows", "value_bits"]

BLOCK = 1 << 13  # rows
FREQUENT_SHARE = 25
SUM_LIMIT = 1.0e9
ROUNDING_LIMIT = 1.1e9
LARGEST_WEIGHT = 65535
SLACK = 1 + 1e-6
NEGLIGIBLE_ROOM = 0.1
FREQUENT_ROOM = 0.3
UNPROVEN_SHARE = 0.45
SMALLEST_ROOM = 1e-3


@dataclass(frozen=True)
class ScreenedRows:
    """The rows that a screened pass finds, and why it finds no others.

    Examples
    --------
    >>> one = np.ones(1)
    >>> ScreenedRows(np.array([0]), 2 * one, 2 * one, 0.1, one > 0, one < 0).room
    0.1
    """

    rows: npt.NDArray[np.int64]  # found, ascending
    bounds: Floats  # the first bound on u·x, with ‖v‖ ‖x_F‖, shape (n_samples,)
    tighter: Floats  # the second, with v·x
    room: float  # threshold − b
    indexed: npt.NDArray[np.bool_]  # features of the rest, shape (n_features,)
    skipped: npt.NDArray[np.bool_]  # features of v


def value_bits(n_rows: int) -> int:
    """Bits of a value in the index: what the row leaves of 32, at most 16.

    Examples
    --------
    >>> value_bits(10), value_bits(2**16 - BLOCK), value_bits(2**16 - BLOCK + 1), value_bits(490_000)
    (16, 16, 15, 13)
    """
    return min(16, 32 - int(np.ceil(np.log2(n_rows + BLOCK))))


def envelope(coef: Floats, prune: float) -> Floats:
    """Return weights whose scores bound those of `coef` before and after pruning, where no x is below zero.

    Examples
    --------
    >>> envelope(np.array([0.2, 0.6, -0.2, -0.6]), 0.5).tolist()
    [0.2, 0.6, 0.0, -0.6]
    """
    coef = np.asarray(coef, dtype=np.float64)  # `prune` is not rounded to float32
    return np.where((coef < 0) & (np.abs(coef) < prune), 0.0, coef)


def unbounded_rows(X: Any) -> npt.NDArray[np.bool_]:
    """Say which rows of X are always candidates, because their sums may overflow.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> unbounded_rows(sp.csr_array(np.ones((1, 20_000)))).tolist(), unbounded_rows(sp.csr_array(np.eye(2))).tolist()
    ([True], [False, False])
    """
    x = X.toarray().astype(np.float64)
    m, t = np.diff(X.indptr), (2 ** value_bits(len(x)) - 1) / x.max()
    return SUM_LIMIT / (t * np.linalg.norm(x, axis=1).max()) * np.sqrt(m) + t * x.sum(axis=1) + m > ROUNDING_LIMIT


def _frequent(X: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many rows have each feature, stored zeros included, and the frequent features, most frequent first."""
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    order = np.argsort(-frequency, kind="stable")
    return frequency, order[frequency[order] > X.shape[0] // FREQUENT_SHARE]


def _divide(X: Any, u: Floats, room: float, proof: bool) -> tuple[Any, Any]:
    """Which features are in the rest, and which in v; those of other positive weights are negligible."""
    norms = np.linalg.norm(X.toarray().astype(np.float64), axis=1)
    frequency, frequent = _frequent(X)
    is_frequent = np.isin(np.arange(len(u)), frequent)
    least = NEGLIGIBLE_ROOM * room / norms.max() / np.sqrt((u > 0).sum())
    indexed = (u >= least) & (u > 0) & ~is_frequent & (frequency > 0)
    skipped = np.zeros(len(u), dtype=bool)
    frequent = frequent[u[frequent] > 0]
    gain = np.float32(u[frequent]) ** 2 / np.float32(frequency[frequent])
    parts = np.sort(np.linalg.norm(X.toarray().astype(np.float64)[:, is_frequent], axis=1))
    budget = FREQUENT_ROOM * room / (1 if proof else UNPROVEN_SHARE)
    for f in frequent[np.argsort(gain, kind="stable")]:
        with_f = skipped | (np.arange(len(u)) == f)
        if np.linalg.norm(u[with_f]) * parts[len(parts) // 2] > budget:
            indexed[f] = True
        else:
            skipped = with_f
    return indexed, skipped


def screened_rows(X: Any, coef: Floats, intercept: float, threshold: float, proof: bool = True) -> ScreenedRows | None:
    """Return the rows of X (CSR, no value below zero) with score > threshold; None if all rows have to be read.

    With `proof`, they are all found. Otherwise, v·x is taken to be at most UNPROVEN_SHARE of its bound.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> found = screened_rows(sp.csr_array(np.eye(3)), np.array([0.2, 2.0, -1.0]), -1.5, -1.1)
    >>> found.rows.tolist(), found.bounds.round(2).tolist(), found.indexed.tolist()
    ([1], [0.2, 2.0, 0.0], [True, True, False])
    """
    x, room, u = X.toarray().astype(np.float64), threshold - intercept, np.maximum(coef, 0.0).astype(np.float64)
    if not (room > SMALLEST_ROOM) or not x.any() or (x < 0).any() or not np.isfinite(coef).all() or not u.any():
        return None
    indexed, skipped = _divide(X, u, room, proof)
    negligible = (u > 0) & ~indexed & ~skipped & (np.bincount(X.indices, minlength=len(u)) > 0)
    norms, frequent = np.linalg.norm(x, axis=1), _frequent(X)[1]
    t = (2 ** value_bits(len(x)) - 1) / (x.max() * SLACK)
    s = SUM_LIMIT / (t * norms.max() * np.linalg.norm(u))
    if indexed.any():
        s = min(s, LARGEST_WEIGHT / (SLACK * u[indexed].max()))
    sums = np.ceil(t * x[:, indexed]).astype(np.int64) @ np.ceil(s * u[indexed]).astype(np.int64)
    part = np.linalg.norm(x[:, frequent], axis=1)
    part = np.ceil(255 * part / part.max()) * part.max() / 255 if part.any() else part
    spread = np.linalg.norm(u[skipped]) * part * (1 if proof else UNPROVEN_SHARE)
    rest = sums / (t * s) + np.linalg.norm(u[negligible]) * norms.max()
    bounds, tighter = rest + spread, rest + x[:, skipped] @ u[skipped]
    kept = unbounded_rows(X) | ((bounds > room) & (tighter > room))
    found = np.flatnonzero(kept & (x @ coef.astype(np.float64) + intercept > threshold))
    return ScreenedRows(found, bounds, tighter, room, indexed, skipped)
