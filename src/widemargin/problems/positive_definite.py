"""Positive definiteness on ancestor pairs: the test by elimination, and the smallest eigenvalue between two bounds.

    K̄_ii = K_ii,   K̄_ij = −|K_ij|        (comparison matrix)

K̄ positive definite makes K ∘ S positive definite for all symmetric S with S_ii = 1 and |S_ij| ≤ 1, and the penalty
½ Σ K_ij |w_iᵀ w_j| strongly convex with modulus λ_min(K̄).

For a matrix A without positive entries off the diagonal and any v > 0

    min_i (Av)_i / v_i  ≤  λ_min(A)  ≤  vᵀAv / vᵀv,

and the iteration of Noda (Numerische Mathematik 17, 1971), (A − σI) u = v with σ the lower bound, v ← u, raises the
lower bound to λ_min quadratically. A − σI is positive definite on the way, so that a step is one elimination without
fill. All components of A go at once, each with bounds of its own. The lower bound counts the rounding of Av in. Memory:
a few numbers an ancestor pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from widemargin.reference.tree_factor import AncestorPaths, factorize

__all__ = ["Bracket", "comparison_matrix", "is_positive_definite", "smallest_eigenvalue"]

Floats = npt.NDArray[np.float64]

MAX_STEPS = 60
"""Steps of the iteration at most; it is quadratic, and 5 to 10 are usual."""
BRACKET_TOL = 1e-12
"""Relative width at which the bounds are as good as the rounding of a product lets them be."""


class Bracket(NamedTuple):
    """A number between two bounds that hold for certain.

    Examples
    --------
    >>> from widemargin.problems.positive_definite import Bracket
    >>> Bracket(lower=0.5, upper=0.75).lower
    0.5
    """

    lower: float
    upper: float


def comparison_matrix(paths: AncestorPaths, K: Floats) -> Floats:
    """K̄ on the layout of K: the diagonal as it is, −|K_ij| off it."""
    return np.where(paths.is_diagonal, K, -np.abs(K))


def is_positive_definite(paths: AncestorPaths, M: Floats) -> bool:
    """Whether a symmetric matrix on ancestor pairs is positive definite, by elimination leaves first: O(Σ depth²).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.positive_definite import is_positive_definite
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> is_positive_definite(paths, np.array([2.0, 1.0, 1.0])), is_positive_definite(paths, np.array([1.0, 1.0, 1.0]))
    (True, False)
    """
    return factorize(paths, M).is_positive_definite


def smallest_eigenvalue(paths: AncestorPaths, A: Floats) -> Bracket:
    """Bounds on the smallest eigenvalue of a symmetric matrix without positive entries off the diagonal.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    A : ndarray of float64 of shape (n_entries,)
        The matrix; entries off the diagonal are at most 0, the diagonal is free.

    Returns
    -------
    Bracket
        lower ≤ λ_min(A) ≤ upper.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.positive_definite import smallest_eigenvalue
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> bounds = smallest_eigenvalue(paths, np.array([2.0, 2.0, -1.0]))  # [[2, −1], [−1, 2]]
    >>> round(bounds.lower, 9), round(bounds.upper, 9)
    (1.0, 1.0)
    """
    iteration = _NodaIteration(paths, A)
    for _ in range(MAX_STEPS):
        if not iteration.step():
            break
    return Bracket(float(iteration.lower.min()), float(iteration.upper.min()))


class _NodaIteration:
    """Vectors and bounds of all components of A, and the step that brings the bounds together.

    Sets: `v` (m,), and by component `lower`, `upper` and `active`.
    """

    def __init__(self, paths: AncestorPaths, A: Floats) -> None:
        self.paths, self.A, self.matrix = paths, A, paths.symmetric(A)
        self.matrix.eliminate_zeros()
        n_components, self.component = connected_components(self.matrix, directed=False)
        self.order = np.argsort(self.component, kind="stable")
        self.starts = np.searchsorted(self.component[self.order], np.arange(n_components))
        # A sum of k products is off by at most k units of rounding of the sum of their absolute values.
        self.rounding = abs(self.matrix) * np.finfo(np.float64).eps
        self.n_terms = np.diff(self.matrix.indptr) + 2.0
        self.scale = float(np.abs(A).max())
        self.lower, self.upper = np.full(n_components, -np.inf), np.full(n_components, np.inf)
        self.active = np.ones(n_components, dtype=bool)
        self.v = np.ones(paths.m)
        self._improve_bounds()

    def step(self) -> bool:
        """Solve with the lower bounds as shifts; false when no bound can be improved."""
        if not self.active.any():
            return False
        # A component that is done gets a shift far below, so that the elimination is sound there.
        shift = np.where(self.active, self.lower, self.lower - self.scale - 1.0)[self.component]
        shifted = np.where(self.paths.is_diagonal, self.A - shift[self.paths.descendant], self.A)
        with np.errstate(all="ignore"):
            u = factorize(self.paths, shifted).solve(self.v)
            u /= self._by_component(np.maximum, u)[self.component]
        # Not a positive vector: the shift is the eigenvalue, up to rounding.
        self.active[self.component[~(np.isfinite(u) & (u > 0.0))]] = False
        self.v = np.where(self.active[self.component], u, self.v)
        self._improve_bounds()
        return True

    def _improve_bounds(self) -> None:
        """Both bounds from v; components whose lower bound no longer rises, or whose bounds have met, are done."""
        image, v = self.matrix @ self.v, self.v
        quotient = (image - self.n_terms * (self.rounding @ v)) / v
        lower = self._by_component(np.minimum, quotient)
        upper = self._by_component(np.add, v * image) / self._by_component(np.add, v * v)
        rises = lower > self.lower
        self.lower, self.upper = np.maximum(self.lower, lower), np.minimum(self.upper, upper)
        self.upper = np.maximum(self.lower, self.upper)  # they may cross by rounding
        self.active &= rises & (self.upper - self.lower > BRACKET_TOL * np.abs(self.upper))

    def _by_component(self, ufunc: np.ufunc, values: Floats) -> Floats:
        reduced: Floats = ufunc.reduceat(values[self.order], self.starts)
        return reduced
