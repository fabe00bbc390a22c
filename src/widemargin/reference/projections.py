"""Specification of the projection kernels: one row at a time, by a full sort.

    x = argmin  ½‖x − a‖² + ½ρ⟨1,x⟩²   over a set of the form  0 ≤ x_j ≤ hi,  ⟨1,x⟩ ≤ r

with hi = r/k (capped simplex) or hi = ⟨1,x⟩/k (top-k simplex; top-k cone for r = ∞). The solution is
x = clip(a − top − t, 0, hi) with top = max a: thresholds are measured from the largest value, so that r is not lost in
the rounding of large a. Write b = a − top, sorted downwards.

Capped simplex: F(t) = Σ_j clip(b_j − t, 0, hi) falls with t, and t is the larger root of F(t) = r and of
ρ F(t) = t + top; `sweep_capped_simplex` walks over the breakpoints b_j and b_j − hi, `fix_capped_simplex` is Kiwiel's
variable fixing (Math. Program. 112, 2008). Top-k simplex: `sweep_top_k_simplex` grows s = ⟨1,x⟩ from 0; the capped
values only lose their smallest, the free ones only gain from below. Cost O(d log d), fixing O(d) in practice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Thresholds", "fix_capped_simplex", "sweep_capped_simplex", "sweep_top_k_simplex"]

Floats = npt.NDArray[np.float64]


class Thresholds(NamedTuple):
    """x = clip(a − top − t, 0, hi).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.reference.projections import Thresholds
    >>> Thresholds(top=3.0, t=-2.0, hi=1.0).apply(np.array([3.0, 1.5, 0.0]))
    array([1. , 0.5, 0. ])
    """

    top: float
    t: float
    hi: float

    def apply(self, a: Floats) -> Floats:
        """The projection of shape (d,)."""
        return np.clip(a - self.top - self.t, 0.0, self.hi)


def _balance(mass: float, free: int, top: float, r: float, rho: float, exactly: bool) -> float:
    """Threshold at which the sum fits if `free` values stay between the bounds; `mass` counts the capped ones, too."""
    full = (mass - r) / free if free else -np.inf
    return full if exactly else max(full, (rho * mass - top) / (1.0 + rho * free))


def sweep_capped_simplex(a: Floats, k: int, r: float, rho: float, exactly: bool = False) -> Thresholds:
    """Thresholds of the projection onto {0 ≤ x ≤ r/k, ⟨1,x⟩ ≤ r}, or ⟨1,x⟩ = r if `exactly`; a of shape (d,).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.reference.projections import sweep_capped_simplex
    >>> a = np.array([2.0, 0.5, 0.25])
    >>> sweep_capped_simplex(a, k=2, r=1.0, rho=0.0).apply(a)
    array([0.5  , 0.375, 0.125])
    """
    top, hi, d = float(a.max()), r / k, len(a)
    b = np.sort(a - top)[::-1]
    p = q = 0  # p values at hi, q − p between the bounds
    total = 0.0
    while True:
        if p == q and p >= k:  # the sum is r on a whole interval of t; this is its upper end
            return Thresholds(top, b[p - 1] - hi, hi)
        entering = b[q] if q < d else -np.inf
        leaving = b[p] - hi if p < q else -np.inf
        t = _balance(p * hi + total, q - p, top, r, rho, exactly)
        if t >= max(entering, leaving):
            return Thresholds(top, t, hi)
        if entering > leaving:
            total += b[q]
            q += 1
        else:
            total -= b[p]
            p += 1


def fix_capped_simplex(a: Floats, k: int, r: float, rho: float, exactly: bool = False) -> Thresholds:
    """As `sweep_capped_simplex`, without a sort: solve without bounds, then fix the side that clipping moves more.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.reference.projections import fix_capped_simplex
    >>> a = np.array([2.0, 0.5, 0.25])
    >>> fix_capped_simplex(a, k=2, r=1.0, rho=0.0).apply(a)
    array([0.5  , 0.375, 0.125])
    """
    top, hi = float(a.max()), r / k
    if rho == 0.0 and not exactly:
        if np.clip(a, 0.0, hi).sum() <= r:
            return Thresholds(top, -top, hi)
        exactly = True
    free, p = a - top, 0
    low, high = -top, np.inf
    while len(free):
        t = _balance(p * hi + float(free.sum()), len(free), top, r, rho, exactly)
        x = free - t
        short, excess = float(np.maximum(-x, 0.0).sum()), float(np.maximum(x - hi, 0.0).sum())
        if short == excess:
            return Thresholds(top, t, hi)
        if short > excess:
            low, free = t, free[x > 0.0]
        else:
            high, p, free = t, p + int(np.count_nonzero(x >= hi)), free[x < hi]
    return Thresholds(top, high if np.isfinite(high) else low, hi)


def sweep_top_k_simplex(a: Floats, k: int, r: float, rho: float) -> Thresholds:
    """Thresholds of the projection onto {0 ≤ x ≤ ⟨1,x⟩/k, ⟨1,x⟩ ≤ r}; r = inf is the top-k cone; a of shape (d,).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.reference.projections import sweep_top_k_simplex
    >>> a = np.array([2.0, 1.0, -3.0])
    >>> sweep_top_k_simplex(a, k=2, r=np.inf, rho=0.0).apply(a)
    array([1.5, 1.5, 0. ])
    """
    top, d = float(a.max()), len(a)
    b = np.sort(a - top)[::-1]
    largest = float(b[:k].sum()) + k * top
    if largest <= 0.0:  # then 0 is optimal, for every ρ: any direction has derivative −⟨direction, a⟩ ≥ 0 there
        return Thresholds(top, 0.0, 0.0)
    s = min(largest / (1.0 + rho * k), r)
    if k == d or s <= k * (b[k - 1] - b[k]):  # the k largest alone, all at the cap
        return Thresholds(top, b[k - 1] - s / k, s / k)
    p, q = k - 1, k + 1
    while True:
        upper, middle = float(b[:p].sum()), float(b[p:q].sum())
        free, below = q - p, k - p
        # The best s for this split into capped, free and zero values: eq. (6) of Lapin, Hein, Schiele (2015).
        curvature = below**2 + (p + rho * k**2) * free
        s = min(k * (free * upper + below * middle + k * free * top) / curvature, r)
        enter = k * (middle - free * b[q]) / below if q < d else np.inf  # the s at which the next value becomes free
        leave = k * (free * b[p - 1] - middle) / (q - k) if p else np.inf  # … and at which the last leaves the cap
        if s <= min(enter, leave):
            return Thresholds(top, (middle - s * below / k) / free, s / k)
        if enter <= leave:
            q += 1
        else:
            p -= 1
