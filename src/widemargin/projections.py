"""Biased Euclidean projections onto the sets over which the top-k losses are maxima.

    x = argmin  ½‖x − a‖² + ½ρ⟨1,x⟩²   over
        capped simplex   { 0 ≤ x_j ≤ r/k,       ⟨1,x⟩ ≤ r }     domain of the top-k hinge β
        top-k simplex    { 0 ≤ x_j ≤ ⟨1,x⟩/k,   ⟨1,x⟩ ≤ r }     domain of the top-k hinge α
        top-k cone       { 0 ≤ x_j ≤ ⟨1,x⟩/k }

for each row a of a matrix. With ρ = 0 it is the nearest point; ρ = 1 is the exact update of a block of the dual of the
top-k SVM (Lapin, Hein, Schiele, NIPS 2015, Proposition 4). For k = 1 both simplices are {x ≥ 0, ⟨1,x⟩ ≤ r}.
Cost: a pass over a row to keep the few values that can matter, then a sort of as many of them as are needed (or
Kiwiel's variable fixing); O(d log d) at worst. Memory: the result, and one row of work area. Arithmetic is float64.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin import _core
from widemargin._docstrings import with_shared_passages

__all__ = ["project_capped_simplex", "project_top_k_cone", "project_top_k_simplex"]

Floats: TypeAlias = npt.NDArray[np.float64]

LARGEST = 1e150
"""Largest |a|, r and ρ that are accepted: sums of products of them stay finite in float64."""


@with_shared_passages
def project_capped_simplex(
    a: npt.ArrayLike,
    k: int,
    r: npt.ArrayLike = 1.0,
    rho: npt.ArrayLike = 0.0,
    *,
    exactly: bool = False,
    method: Literal["fixing", "sweep"] = "fixing",
) -> Floats:
    """Project rows onto the capped simplex {0 ≤ x_j ≤ r/k, ⟨1,x⟩ ≤ r}, a continuous quadratic knapsack.

    <projected>
    k : int
        No value is above r/k; 1 ≤ k ≤ d. With k = 1 the set is the simplex.
    r : float or array-like of shape (n_rows,)
        Bound on the sum of a row, at least 0; one for all rows or one each.
    rho : float or array-like of shape (n_rows,)
        Weight of ½⟨1,x⟩² in the objective, at least 0; 0 gives the nearest point.
    exactly : bool
        The sum is to be r, not at most r. Then `rho` must be 0: it would only add a constant.
    method : {"fixing", "sweep"}
        Kiwiel's variable fixing, or the sorted sweep over breakpoints: the same answer to rounding.

    Returns
    -------
    ndarray of float64, shape of `a`
        The projections.

    Examples
    --------
    >>> from widemargin.projections import project_capped_simplex
    >>> project_capped_simplex([2.0, 0.5, 0.25], k=2)
    array([0.5  , 0.375, 0.125])
    >>> project_capped_simplex([[0.5, 0.0], [-3.0, -4.0]], k=1, exactly=True)
    array([[0.75, 0.25],
           [1.  , 0.  ]])
    """
    if method not in ("fixing", "sweep"):
        raise ValueError(f"method must be 'fixing' or 'sweep'; got {method!r}")
    rows, k = _check_rows(a, k)
    sums, rhos = _check_numbers(r, "r", len(rows)), _check_numbers(rho, "rho", len(rows))
    if exactly and rhos.any():
        raise ValueError(
            "rho must be 0 if the sum must be exactly r, because it would only add a constant; leave it out"
        )
    out = np.empty_like(rows)
    _core.project_capped_simplex(rows, k, sums, rhos, bool(exactly), method == "fixing", out)
    return out.reshape(np.shape(a))


@with_shared_passages
def project_top_k_simplex(a: npt.ArrayLike, k: int, r: npt.ArrayLike = 1.0, rho: npt.ArrayLike = 0.0) -> Floats:
    """Project rows onto the top-k simplex {0 ≤ x_j ≤ ⟨1,x⟩/k, ⟨1,x⟩ ≤ r}.

    <projected>
    k : int
        No value is above a k-th of the sum; 1 ≤ k ≤ d. With k = 1 the set is {x ≥ 0, ⟨1,x⟩ ≤ r}.
    r : float or array-like of shape (n_rows,)
        Bound on the sum of a row, at least 0; one for all rows or one each.
    <projections>

    Examples
    --------
    >>> from widemargin.projections import project_top_k_simplex
    >>> project_top_k_simplex([2.0, 1.0, -3.0], k=2, r=2.0)
    array([1., 1., 0.])
    >>> project_top_k_simplex([[2.0, 1.0, -3.0]], k=2, r=2.0, rho=1.0)
    array([[0.5, 0.5, 0. ]])
    """
    rows, k = _check_rows(a, k)
    sums, rhos = _check_numbers(r, "r", len(rows)), _check_numbers(rho, "rho", len(rows))
    out = np.empty_like(rows)
    _core.project_top_k_simplex(rows, k, sums, rhos, out)
    return out.reshape(np.shape(a))


@with_shared_passages
def project_top_k_cone(a: npt.ArrayLike, k: int, rho: npt.ArrayLike = 0.0) -> Floats:
    """Project rows onto the top-k cone {0 ≤ x_j ≤ ⟨1,x⟩/k}.

    <projected>
    k : int
        No value is above a k-th of the sum; 1 ≤ k ≤ d. With k = 1 the cone is {x ≥ 0}.
    <projections>

    Examples
    --------
    >>> from widemargin.projections import project_top_k_cone
    >>> project_top_k_cone([2.0, 1.0, -3.0], k=2)
    array([1.5, 1.5, 0. ])
    """
    rows, k = _check_rows(a, k)
    rhos = _check_numbers(rho, "rho", len(rows))
    out = np.empty_like(rows)
    _core.project_top_k_simplex(rows, k, np.full(len(rows), np.inf), rhos, out)
    return out.reshape(np.shape(a))


def _check_rows(a: npt.ArrayLike, k: Any) -> tuple[Floats, int]:
    """`a` as a C-contiguous float64 matrix, and k as an int that fits it."""
    values = np.asarray(a)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"a must contain real numbers; got dtype {values.dtype}")
    if values.ndim not in (1, 2):
        raise ValueError(f"a must be a vector of shape (d,) or a matrix of shape (n_rows, d); got shape {values.shape}")
    rows = np.ascontiguousarray(np.atleast_2d(values), dtype=np.float64)
    if isinstance(k, bool) or not hasattr(k, "__index__"):
        raise TypeError(f"k must be an integer; got {k!r}")
    n_kept = operator.index(k)
    if not 1 <= n_kept <= rows.shape[1]:
        raise ValueError(f"k must be between 1 and {rows.shape[1]}, the number of values per row; got {k}")
    extremes = rows.min(initial=0.0), rows.max(initial=0.0)  # NaN if there is one
    if not np.isfinite(extremes).all():
        raise ValueError("a contains NaN or infinity; projections require finite values")
    if max(-extremes[0], extremes[1]) > LARGEST:
        raise ValueError(f"a contains values beyond ±{LARGEST:g}, whose sums may overflow; scale down a and r")
    return rows, n_kept


def _check_numbers(values: npt.ArrayLike, name: str, n_rows: int) -> Floats:
    """`values` as an array of n_rows non-negative numbers."""
    given = np.asarray(values, dtype=np.float64)
    if given.shape not in ((), (n_rows,)):
        raise ValueError(
            f"{name} must be a number, or contain one number for each of the {n_rows} row(s); got shape {given.shape}"
        )
    allowed = given >= 0.0  # not so for NaN
    if not allowed.all():
        raise ValueError(f"{name} must be nonnegative; got {given[~allowed].flat[0]}")
    if not (given <= LARGEST).all():
        raise ValueError(f"{name} must be at most {LARGEST:g}; got {given.max()}")
    return np.ascontiguousarray(np.broadcast_to(given, (n_rows,)))
