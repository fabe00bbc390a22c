"""Specification of the projection kernels: one row at a time, by a full sort.

    x = argmin  ½‖x − a‖² + ½ρ⟨1,x⟩²   over a set of the form  0 ≤ x_j ≤ hi,  ⟨1,x⟩ ≤ r

with hi = r/k (capped simplex) or hi = ⟨1,x⟩/k (top-k simplex; top-k cone for r = ∞). The solution is
x = clip(a − pivot − t, 0, hi). If the sum is bounded, the pivot is the k-th largest value, and −hi ≤ t ≤ 0: measured
from there, a small r is not lost in the rounding of large a.

Capped simplex: F(t) = Σ_j clip(a_j − t, 0, hi) falls with t. If F(ρr) ≥ r then t solves F(t) = r, otherwise
t = ρF(t). `sweep_capped_simplex` walks over the breakpoints a_j and a_j − hi, `fix_capped_simplex` is Kiwiel's variable
fixing (Math. Program. 112, 2008). Top-k simplex: `sweep_top_k_simplex` grows s = ⟨1,x⟩ from 0; the capped values only
lose their smallest, the free ones only gain from below. Cost O(d log d), fixing O(d) in practice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Thresholds", "fix_capped_simplex", "sweep_capped_simplex", "sweep_top_k_simplex"]

Floats = npt.NDArray[np.float64]


class Thresholds(NamedTuple):
    """x = clip(a − pivot − t, 0, hi).

    Examples
    --------
    >>> Thresholds(pivot=1.5, t=-0.5, hi=1.0).apply(np.array([3.0, 1.5, 0.0]))
    array([1. , 0.5, 0. ])
    """

    pivot: float
    t: float
    hi: float

    def apply(self, a: Floats) -> Floats:
        """The projection of shape (d,)."""
        return np.clip(a - self.pivot - self.t, 0.0, self.hi)


class _Knapsack(NamedTuple):
    """The problem without values far from the threshold, whose side is known: `free` has the others, less the pivot."""

    hi: float
    r: float
    rho: float
    full: bool  # the sum is r; otherwise it is less, and t = ρ · sum
    pivot: float
    free: Floats
    n_capped: int

    def balance(self, capped: int, total: float, count: int) -> float:
        """The threshold if `count` values of sum `total` stay between the bounds and `capped` are at the upper one."""
        mass = capped * self.hi + total
        if not self.full:
            return self.rho * mass / (1.0 + self.rho * count)
        return (mass - self.r) / count if count else -np.inf


def _reduce(a: Floats, k: int, r: float, rho: float, exactly: bool) -> _Knapsack:
    hi, x = r / k, a - rho * r
    # k values at the cap suffice, although their rounded sum may not.
    full = exactly or int(np.count_nonzero(x >= hi)) >= k or float(np.clip(x, 0.0, hi).sum()) >= r
    pivot = float(np.sort(a)[-k]) if full else 0.0
    # For a full knapsack −hi ≤ t ≤ 0, otherwise 0 ≤ t ≤ ρr.
    low, high = (-hi, hi) if full else (0.0, rho * r + hi)
    b = a - pivot
    return _Knapsack(hi, r, rho, full, pivot, b[(b > low) & (b < high)], int(np.count_nonzero(b >= high)))


def _finish(sack: _Knapsack, a: Floats, t: float) -> Thresholds:
    """A Newton step for t = ρ · sum: the sums that led to t had large terms, the clipped values are small."""
    if not sack.full:
        x = a - t
        free = int(np.count_nonzero((x > 0.0) & (x < sack.hi)))
        t += (sack.rho * float(np.clip(x, 0.0, sack.hi).sum()) - t) / (1.0 + sack.rho * free)
    return Thresholds(sack.pivot, t, sack.hi)


def sweep_capped_simplex(a: Floats, k: int, r: float, rho: float, exactly: bool = False) -> Thresholds:
    """Thresholds of the projection onto {0 ≤ x ≤ r/k, ⟨1,x⟩ ≤ r}, or ⟨1,x⟩ = r if `exactly`; a of shape (d,).

    Examples
    --------
    >>> a = np.array([2.0, 0.5, 0.25])
    >>> sweep_capped_simplex(a, k=2, r=1.0, rho=0.0).apply(a)
    array([0.5  , 0.375, 0.125])
    """
    if r == 0.0:
        return Thresholds(0.0, 0.0, 0.0)
    sack = _reduce(a, k, r, rho, exactly)
    b, hi = np.sort(sack.free)[::-1], sack.hi
    p = q = 0  # p of the free values at hi, q − p between the bounds
    while True:
        if p == q and p > 0 and sack.n_capped + p >= k:  # the sum is r on an interval of t; this is its upper end
            return _finish(sack, a, b[p - 1] - hi)
        entering = b[q] if q < len(b) else -np.inf
        leaving = b[p] - hi if p < q else -np.inf
        t = sack.balance(sack.n_capped + p, float(b[p:q].sum()), q - p)
        if t >= max(entering, leaving):
            return _finish(sack, a, t)
        if entering > leaving:
            q += 1
        else:
            p += 1


def fix_capped_simplex(a: Floats, k: int, r: float, rho: float, exactly: bool = False) -> Thresholds:
    """Like `sweep_capped_simplex` without a sort: solve without bounds, then fix the side that clipping moves more.

    Examples
    --------
    >>> a = np.array([2.0, 0.5, 0.25])
    >>> fix_capped_simplex(a, k=2, r=1.0, rho=0.0).apply(a)
    array([0.5  , 0.375, 0.125])
    """
    if r == 0.0:
        return Thresholds(0.0, 0.0, 0.0)
    sack = _reduce(a, k, r, rho, exactly)
    if not sack.full and rho == 0.0:
        return Thresholds(0.0, 0.0, sack.hi)
    free, capped, hi = sack.free, sack.n_capped, sack.hi
    low, high = -hi if sack.full else 0.0, np.inf
    while len(free):
        t = sack.balance(capped, float(free.sum()), len(free))
        x = free - t
        gain = float(np.maximum(-x, 0.0).sum()) - float(np.maximum(x - hi, 0.0).sum())
        if gain == 0.0:
            return _finish(sack, a, t)
        if gain > 0.0:
            low, free = t, free[x > 0.0]
        else:
            high, capped, free = t, capped + int(np.count_nonzero(x >= hi)), free[x < hi]
    return _finish(sack, a, high if np.isfinite(high) else max(low, sack.balance(capped, 0.0, 0)))


def sweep_top_k_simplex(a: Floats, k: int, r: float, rho: float) -> Thresholds:
    """Thresholds of the projection onto {0 ≤ x ≤ ⟨1,x⟩/k, ⟨1,x⟩ ≤ r}; r = inf is the top-k cone; a of shape (d,).

    Examples
    --------
    >>> a = np.array([2.0, 1.0, -3.0])
    >>> sweep_top_k_simplex(a, k=2, r=np.inf, rho=0.0).apply(a)
    array([1.5, 1.5, 0. ])
    """
    d, pivot = len(a), float(np.sort(a)[-k])
    b = np.sort(a - pivot)[::-1]
    largest = float(b[:k].sum()) + k * pivot
    if largest <= 0.0:  # then 0 is optimal, for every ρ: any direction has derivative −⟨direction, a⟩ ≥ 0 there
        return Thresholds(pivot, 0.0, 0.0)
    s = min(largest / (1.0 + rho * k), r)
    if k == d or s <= -k * b[k]:  # the k largest alone, all at the cap
        return Thresholds(pivot, -s / k, s / k)
    p, q = k - 1, k + 1
    while True:
        upper, middle = float(b[:p].sum()), float(b[p:q].sum())
        free, below = q - p, k - p
        # The best s for this split into capped, free and zero values: eq. (6) of Lapin, Hein, Schiele (2015).
        curvature = below**2 + (p + rho * k**2) * free
        s = min(k * (free * upper + below * middle + k * free * pivot) / curvature, r)
        enter = k * (middle - free * b[q]) / below if q < d else np.inf  # the s at which the next value becomes free
        leave = k * (free * b[p - 1] - middle) / (q - k) if p else np.inf  # … and at which the last leaves the cap
        if s <= min(enter, leave):
            return Thresholds(pivot, (middle - s * below / k) / free, s / k)
        if enter <= leave:
            q += 1
        else:
            p -= 1
