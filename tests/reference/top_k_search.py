"""The search of the top-k paper (Lapin, Hein, Schiele, NIPS 2015, section 4) as printed, for comparison.

    x = argmin  ‖x − a‖² + ρ⟨1,x⟩²   over   0 ≤ x_j ≤ ⟨1,x⟩/k,   ⟨1,x⟩ ≤ r

Lemma 3 gives the thresholds (t, u) of x = min(max(0, a − t), u) for each split of the sorted values into those at the
cap, between and at zero; the search tries the splits until one is consistent (7). Lemma 4 states when x = 0, Lemma 5
when the bound r is active, in which case x solves a continuous quadratic knapsack.
Cost: O(d log d + kd) for a row; slow Python, an oracle for `widemargin.projections`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.projections import fix_capped_simplex

__all__ = ["search_top_k_cone", "search_top_k_simplex"]

Floats = npt.NDArray[np.float64]

SLACK = 64 * float(np.finfo(np.float64).eps)
"""Rounding allowed in the conditions (7), relative to the largest |a|: with ties, the exact split may miss them."""


def _top_k_alone(a: Floats, b: Floats, k: int, rho: float) -> Floats | None:
    """Case 2 of Lemma 3: the k largest are equal and at the cap; None if that is not consistent with (7)."""
    u = float(b[:k].sum()) / (k + rho * k**2)
    if k < len(b) and b[k] > b[k - 1] - u:
        return None
    x = np.zeros_like(a)
    x[np.argsort(-a, kind="stable")[:k]] = u
    return x


def _consistent_split(a: Floats, b: Floats, k: int, rho: float) -> Floats:
    """Case 3 of Lemma 3: the first split that satisfies (7); b holds the values of a downwards."""
    sums, d = np.append(0.0, np.cumsum(b)), len(b)
    slack = SLACK * float(np.abs(b).max())
    for p in range(k):
        q = np.arange(max(k, p + 1), d + 1)
        free, upper, middle = q - p, sums[p], sums[q] - sums[p]
        denominator = (k - p) ** 2 + (p + rho * k**2) * free
        u = (free * upper + (k - p) * middle) / denominator
        shifted = p * (1 + rho * k) * middle - (k - p + rho * k * free) * upper
        t = shifted / denominator + rho * u * k
        below = np.append(b, -np.inf)[q]
        fits = (below <= t + slack) & (t <= b[q - 1] + slack) & (b[p] <= t + u + slack)
        fits &= t + u <= (b[p - 1] if p else np.inf) + slack
        found = np.flatnonzero(fits)
        if len(found):
            i = found[0]
            x: Floats = np.clip(a - t[i], 0.0, u[i])
            return x
    return np.zeros_like(a)


def search_top_k_cone(a: Floats, k: int, rho: float) -> Floats:
    """The projection of a, shape (d,), onto the top-k cone.

    Examples
    --------
    >>> search_top_k_cone(np.array([2.0, 1.0, -3.0]), k=2, rho=0.0)
    array([1.5, 1.5, 0. ])
    """
    b = np.sort(a)[::-1]
    if b[:k].sum() <= 0.0:
        return np.zeros_like(a)
    alone = _top_k_alone(a, b, k, rho)
    return _consistent_split(a, b, k, rho) if alone is None else alone


def search_top_k_simplex(a: Floats, k: int, r: float, rho: float) -> Floats:
    """The projection of a, shape (d,), onto the top-k simplex of total at most r.

    Examples
    --------
    >>> search_top_k_simplex(np.array([2.0, 1.0, -3.0]), k=2, r=1.0, rho=0.0)
    array([0.5, 0.5, 0. ])
    """
    b = np.sort(a)[::-1]
    if b[:k].sum() <= 0.0:
        return np.zeros_like(a)
    alone = _top_k_alone(a, b, k, rho)
    if alone is not None and alone.sum() <= r:
        return alone
    knapsack = fix_capped_simplex(a, k, r, rho=0.0, exactly=True)
    excess = a - knapsack.pivot - knapsack.t - knapsack.hi
    multiplier = knapsack.pivot + knapsack.t + float(excess[excess > 0.0].sum()) / k - rho * r  # λ of Lemma 5
    if multiplier >= 0.0:
        return knapsack.apply(a)
    return _consistent_split(a, b, k, rho)
