"""The weight α of ancestor pairs in K of orthogonal transfer: how large it may be, and the choice of it.

    K = diag(d) + αN,   d_i = number of nodes below node i, itself included,   N_ij = 1 for ancestor pairs      (6)

Zhou, Xiao and Wu, "Hierarchical Classification via Orthogonal Transfer", ICML 2011. The problem is strongly convex if
and only if α < α* = 1/λ_max(d^(−½) N d^(−½)). With two levels α* = min √(1 + 1/children) over the top nodes, so that
α = 1 will do; with three or more levels α* < 1 always, and α = 1 is never allowed. α = 1/(levels − 1) always is, for
two or more levels. A matrix K given by the user is treated alike: d is its diagonal, N the rest, α = 1.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import NotPositiveDefiniteError
from widemargin.problems.positive_definite import (
    Bracket,
    comparison_matrix,
    is_positive_definite,
    smallest_eigenvalue,
)
from widemargin.reference.tree_factor import AncestorPaths

__all__ = [
    "Repair",
    "choose_alpha",
    "is_convex",
    "largest_alpha",
    "orthogonal_matrix",
    "repaired_matrix",
    "subtree_sizes",
]

Floats = npt.NDArray[np.float64]
Repair = Literal["error", "alpha", "diagonal"]

AUTO_SHARE = 0.9
"""Share of α* that "auto" takes: near it the transfer is strong, and strong convexity is not lost."""
REPAIRS = ("error", "alpha", "diagonal")
SINGULAR = 1e-12
"""Of the largest entry: a smallest eigenvalue between minus this and 0 is taken for 0."""


def subtree_sizes(paths: AncestorPaths) -> Floats:
    """d of eq. (6): number of descendants of each row, itself included, shape (m,)."""
    return np.bincount(paths.path_nodes, minlength=paths.m).astype(np.float64)


def orthogonal_matrix(paths: AncestorPaths, alpha: float) -> Floats:
    """K of eq. (6) on the layout, shape (n_entries,).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.alpha import orthogonal_matrix
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> orthogonal_matrix(AncestorPaths.of(np.array([-1, 0, 1, 1])), alpha=0.5)
    array([3. , 1. , 0.5, 1. , 0.5])
    """
    K = np.full(paths.n_entries, float(alpha))
    K[paths.is_diagonal] = subtree_sizes(paths)
    return K


def largest_alpha(paths: AncestorPaths, K: Floats | None = None) -> Bracket:
    """α*: the factor of the entries off the diagonal below which the comparison matrix is positive definite.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,), optional
        Diagonal and entries that are multiplied; by default those of eq. (6) with α = 1.

    Returns
    -------
    Bracket
        lower ≤ α* ≤ upper, by the bounds of Collatz and Wielandt and of Rayleigh; ∞ where K is diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.alpha import largest_alpha
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> two_levels = AncestorPaths.of(np.array([-1, 0, 1, 1, 1]))
    >>> round(largest_alpha(two_levels).lower, 9) == round((1 + 1 / 3) ** 0.5, 9)
    True
    """
    K = orthogonal_matrix(paths, 1.0) if K is None else K
    root = np.sqrt(K[paths.is_diagonal])
    coupling = -np.abs(K) / (root[paths.descendant] * root[paths.path_nodes])
    bounds = smallest_eigenvalue(paths, np.where(paths.is_diagonal, 0.0, coupling))
    return Bracket(*(float(np.divide(-1.0, bound)) if bound < 0.0 else np.inf for bound in bounds))


def is_convex(paths: AncestorPaths, K: Floats) -> bool:
    """Whether the comparison matrix is positive semidefinite, up to rounding: Theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.alpha import is_convex
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> is_convex(paths, np.array([1.0, 4.0, 2.0])), is_convex(paths, np.array([1.0, 4.0, 2.001]))
    (True, False)
    """
    comparison = comparison_matrix(paths, K)
    if is_positive_definite(paths, comparison):
        return True
    return smallest_eigenvalue(paths, comparison).lower >= -SINGULAR * float(np.abs(K).max())


def choose_alpha(
    paths: AncestorPaths,
    alpha: float | Literal["auto"] = "auto",
    *,
    share: float = AUTO_SHARE,
    repair: Repair = "error",
) -> float:
    """The α of eq. (6) to use.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    alpha : float or "auto"
        A value at least 0, or `share` · α*, at most 1.
    share : float
        Above 0 and below 1.
    repair : {"error", "alpha", "diagonal"}
        What happens to a value that is too large: an error; `share` · α* instead, with a warning; or nothing here,
        because the diagonal will be raised (`repaired_matrix`).

    Raises
    ------
    NotPositiveDefiniteError
        If the value is too large; the message names α*.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.alpha import choose_alpha
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1, 2]))  # three levels
    >>> round(choose_alpha(paths), 3)
    0.791
    >>> choose_alpha(paths, 1.0)
    Traceback (most recent call last):
    ...
    widemargin.exceptions.NotPositiveDefiniteError: alpha=1 is too large for this tree: the comparison matrix of K is
    positive definite only below α* = 0.879, and the problem not convex above; use alpha="auto" (here 0.791), a smaller
    alpha, or let it be repaired
    """
    if isinstance(alpha, str):
        if alpha != "auto":
            raise ValueError(f'alpha must be "auto" or a number at least 0, got {alpha!r}')
        return min(1.0, _check_share(share) * largest_alpha(paths).lower)
    if not (np.isfinite(alpha) and alpha >= 0.0):
        raise ValueError(f'alpha must be "auto" or a finite number at least 0, got {alpha!r}')
    _check_repair(repair)
    K = orthogonal_matrix(paths, alpha)
    if repair == "diagonal" or is_convex(paths, K):
        return float(alpha)
    largest, instead = largest_alpha(paths).lower, choose_alpha(paths, share=share)
    if repair == "alpha":
        _warn(f"alpha={alpha:g} is not below α* = {largest:.4g} of this tree; {instead:.4g} is used instead")
        return instead
    raise NotPositiveDefiniteError(
        f"alpha={alpha:g} is too large for this tree: the comparison matrix of K is positive definite only below "
        f'α* = {largest:.3g}, and the problem not convex above; use alpha="auto" (here {instead:.3g}), a smaller '
        "alpha, or let it be repaired"
    )


def repaired_matrix(paths: AncestorPaths, K: Floats, *, share: float = AUTO_SHARE, repair: Repair = "error") -> Floats:
    """K as it is if its comparison matrix is positive semidefinite, otherwise an error or a K near it, with a warning.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,)
        Nonnegative with a positive diagonal.
    share : float
        Above 0 and below 1.
    repair : {"error", "alpha", "diagonal"}
        "alpha" multiplies the entries off the diagonal by `share` · α*. "diagonal" adds one number to the diagonal,
        such that λ_min of the comparison matrix is (1 − share) · min K_ii, what the other repair leaves at least.

    Returns
    -------
    ndarray of float64 of shape (n_entries,)
        The matrix.

    Raises
    ------
    NotPositiveDefiniteError
        If the comparison matrix is not positive semidefinite; the message names α*.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.alpha import repaired_matrix
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> repaired_matrix(paths, np.array([1.0, 1.0, 0.5]))
    array([1. , 1. , 0.5])
    """
    _check_share(share)
    _check_repair(repair)
    comparison = comparison_matrix(paths, K)
    if is_convex(paths, K):
        return K
    largest = largest_alpha(paths, K).lower
    if repair == "alpha":
        factor = share * largest
        _warn(
            f"the comparison matrix of K is not positive definite; entries off the diagonal are scaled by {factor:.4g}"
        )
        return np.where(paths.is_diagonal, K, factor * K)
    if repair == "diagonal":
        more = (1.0 - share) * K[paths.is_diagonal].min() - smallest_eigenvalue(paths, comparison).lower
        _warn(f"the comparison matrix of K is not positive definite; {more:.4g} is added to the diagonal")
        return np.where(paths.is_diagonal, K + more, K)
    raise NotPositiveDefiniteError(
        "the comparison matrix of K (K_ii on the diagonal, −|K_ij| off it) is not positive semidefinite: with as many "
        "features as nodes the problem is not convex; scale the entries off the diagonal by a factor of at most "
        f"α* = {largest:.3g}, or raise the diagonal"
    )


def _check_share(share: float) -> float:
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be above 0 and below 1, got {share!r}")
    return share


def _check_repair(repair: str) -> None:
    if repair not in REPAIRS:
        raise ValueError(f"repair must be one of {REPAIRS}, got {repair!r}")


def _warn(message: str) -> None:
    """Warn where the penalty is made."""
    warnings.warn(message, UserWarning, stacklevel=4)
