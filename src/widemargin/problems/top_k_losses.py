"""Top-k hinge losses α and β of the margins z of the wrong classes, plain and smoothed, with their conjugates.

    z_j = 1 + s_j − s_y,  j ≠ y       (the true class is left out: with it the dual of the paper is not the dual)
    α:  φ(z) = max(0, mean of the k largest z_j)      domain  { 0 ≤ x_j ≤ ⟨1,x⟩/k,  ⟨1,x⟩ ≤ 1 }   top-k simplex
    β:  φ(z) = mean of the k largest max(0, z_j)      domain  { 0 ≤ x_j ≤ 1/k,      ⟨1,x⟩ ≤ 1 }   capped simplex

Both are the largest ⟨x,z⟩ over their domain, α ≤ β ≤ the hinge of the top 1, and for k = 1 all three are the same.
Smoothed by γ > 0 they are the largest ⟨x,z⟩ − ½γ‖x‖²: the maximiser, a projection of z/γ, is their gradient, which has
Lipschitz constant 1/γ; the conjugate is ½γ‖x‖² on the domain. With a cost C of an example the domain grows to
⟨1,x⟩ ≤ C, x_j ≤ C/k, and the conjugate of Cφ is γ/(2C) ‖x‖². (Lapin, Hein, Schiele, NIPS 2015; eq. 3 and 5.)
Cost: a selection for each row, a projection if smoothed; memory of the size of z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin.projections import project_capped_simplex, project_top_k_simplex

__all__ = ["TopKHinge", "best_growth", "best_multiple", "margins_of_wrong_classes"]

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

FEASIBILITY_TOLERANCE = 1e-12
"""How far a constraint may be violated, relative to the cost of the example: rounding of sums of many values."""

HALVINGS = 200.0
"""Multiples are looked for down to 2^-200: weights after few passes with a very large C are that far off."""
NEGLIGIBLE = 1e-13
"""Relative difference of two objectives that is rounding."""
GROWTH_GAP = 1e-6
"""Gap, relative to the objective at zero, from which on it is likely that only margins just below 1 are left."""
GROWTHS = 26
"""4^-26 is the last place of float64."""
MULTIPLE_STEPS = 28
"""Evaluations of a search for the best multiple; they leave it within a factor of 1.001."""


def best_multiple(objective: Callable[[float], float]) -> float:
    """The t of [0, 1] with the smallest convex objective(t), found by golden section on the logarithm of t.

    Ascent on the dual may stop, or be within its tolerance, at weights W that are worse than zero weights. Then some
    t W is better; or zero is the best multiple, and t is the largest for which t W is as good but for rounding: it
    still ranks the classes.

    Examples
    --------
    >>> from widemargin.problems.top_k_losses import best_multiple
    >>> round(best_multiple(lambda t: (1e9 * t - 1.0) ** 2) * 1e9, 2)
    1.0
    >>> 0.0 < best_multiple(lambda t: 1.0 + t) < 1e-12
    True
    """
    at_zero, share = objective(0.0), 0.5 * (5.0**0.5 - 1.0)
    low, high = -HALVINGS, 0.0
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = objective(2.0**left), objective(2.0**right)
    for _ in range(MULTIPLE_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = objective(2.0**left)
        else:  # also where both are equal: so small multiples are as good as 0
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = objective(2.0**right)
    value, best = min((at_left, left), (at_right, right))
    if value < at_zero * (1.0 - NEGLIGIBLE):
        return math.exp2(best)
    low, high = -HALVINGS, 0.0
    while high - low > 1.0:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if objective(2.0**middle) <= at_zero * (1.0 + NEGLIGIBLE) else (low, middle)
    return math.exp2(low)


def best_growth(objective: Callable[[float], float]) -> float:
    """The t among 1 and 1 + 4^−j, j = 1 … 26, with the smallest objective(t).

    Of rows that can be told apart with a margin, the optimum is a corner at which many margins are exactly 1. Rounding
    leaves some just below, which costs C times as much; weights that are longer by a few units in the last place have
    no loss at all.

    Examples
    --------
    >>> from widemargin.problems.top_k_losses import best_growth
    >>> best_growth(lambda t: 1e-3 * t**2 + max(0.0, 1.0 - t * (1.0 - 2.0**-22))) == 1.0 + 4.0**-11
    True
    """
    return min((1.0, *(1.0 + 4.0**-j for j in range(1, GROWTHS + 1))), key=objective)


def margins_of_wrong_classes(scores: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j ≠ y_i, in their order.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_classes)
        Scores.
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.

    Returns
    -------
    ndarray of shape (n_samples, n_classes - 1)
        Margins; positive where a wrong class comes closer than 1 to the true one.

    Examples
    --------
    >>> from widemargin.problems.top_k_losses import margins_of_wrong_classes
    >>> margins_of_wrong_classes([[3.0, 1.0, 2.5], [0.0, 0.0, 1.0]], [0, 1])
    array([[-1. ,  0.5],
           [ 1. ,  2. ]])
    """
    s, true = np.asarray(scores, dtype=np.float64), np.asarray(y)
    n, n_classes = s.shape
    rows = np.arange(n)
    wrong = np.ones(s.shape, dtype=bool)
    wrong[rows, true] = False
    z: Floats = 1.0 + s[wrong].reshape(n, n_classes - 1) - s[rows, true][:, None]
    return z


@dataclass(frozen=True)
class TopKHinge:
    """Top-k hinge loss; rows of margins in, a number for each row out.

    Parameters
    ----------
    k : int
        How many of the largest margins count; at least 1, at most the number of wrong classes.
    variant : {"beta", "alpha"}
        Mean of the positive parts of the k largest margins (β), or positive part of their mean (α).
    smoothing : float
        γ ≥ 0; the smoothed loss is below the plain one by at most γ/(2k).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> z = np.array([[2.0, -1.0, 0.5], [-1.0, -2.0, -3.0]])
    >>> TopKHinge(k=3, variant="beta").value(z)
    array([0.83333333, 0.        ])
    >>> TopKHinge(k=3, variant="alpha").value(z)
    array([0.5, 0. ])
    >>> TopKHinge(k=2, variant="alpha").gradient(z)
    array([[0.5, 0. , 0.5],
           [0. , 0. , 0. ]])
    """

    k: int
    variant: Literal["alpha", "beta"] = "beta"
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.variant not in ("alpha", "beta"):
            raise ValueError(f"variant must be 'alpha' or 'beta'; got {self.variant!r}")
        if self.k < 1:
            raise ValueError(f"k must be at least 1; got {self.k}")
        if not 0.0 <= self.smoothing < np.inf:
            raise ValueError(f"smoothing must be a number of at least 0; got {self.smoothing}")

    def value(self, z: Floats) -> Floats:
        """φ(z) of each row; z of shape (n_samples, n_wrong_classes)."""
        self._check_width(z)
        if self.smoothing > 0.0:
            x = self.gradient(z)
            smoothed: Floats = np.einsum("ij,ij->i", x, z - 0.5 * self.smoothing * x)
            return smoothed
        largest = np.partition(z, z.shape[1] - self.k, axis=1)[:, -self.k :]
        positive = np.maximum(largest, 0.0) if self.variant == "beta" else largest
        mean: Floats = np.maximum(positive.mean(axis=1), 0.0)
        return mean

    def gradient(self, z: Floats) -> Floats:
        """∇φ(z), shape of z; without smoothing a subgradient, of equal margins the first ones counting as larger."""
        self._check_width(z)
        if self.smoothing > 0.0:  # the projection of z/γ, written so that a small γ does not overflow
            return self.project(z, self.smoothing) / self.smoothing
        best = np.argsort(-z, axis=1, kind="stable")[:, : self.k]
        largest = np.take_along_axis(z, best, axis=1)
        counts = largest > 0.0 if self.variant == "beta" else largest.sum(axis=1, keepdims=True) > 0.0
        x = np.zeros(z.shape)
        np.put_along_axis(x, best, np.where(counts, 1.0 / self.k, 0.0), axis=1)
        return x

    def project(self, a: Floats, cost: npt.ArrayLike = 1.0, rho: npt.ArrayLike = 0.0) -> Floats:
        """argmin ½‖x − a‖² + ½ρ⟨1,x⟩² over the domain of cost·φ, for each row; cost and rho numbers or one a row."""
        onto = project_top_k_simplex if self.variant == "alpha" else project_capped_simplex
        return onto(a, self.k, cost, rho)

    def is_feasible(self, x: Floats, cost: npt.ArrayLike = 1.0, tolerance: float = FEASIBILITY_TOLERANCE) -> Bools:
        """Whether each row of x is in the domain of the conjugate of cost·φ, up to tolerance·cost."""
        self._check_width(x)
        c = np.asarray(cost, dtype=np.float64)
        total, slack = x.sum(axis=1), tolerance * c
        cap = (total if self.variant == "alpha" else c) / self.k
        inside: Bools = (x.min(axis=1) >= -slack) & (total <= c + slack) & (x.max(axis=1) <= cap + slack)
        return inside

    def conjugate(self, x: Floats, cost: npt.ArrayLike = 1.0, tolerance: float = FEASIBILITY_TOLERANCE) -> Floats:
        """(cost·φ)*(x) of each row: γ/(2·cost) ‖x‖² on the domain, +inf outside."""
        return np.where(self.is_feasible(x, cost, tolerance), self._quadratic(x, cost), np.inf)

    def duality_gap(self, z: Floats, x: Floats, cost: npt.ArrayLike = 1.0) -> Floats:
        """cost·φ(z) + (cost·φ)*(x) − ⟨x,z⟩ of each row for x in the domain: ≥ 0, and 0 where x is optimal for z.

        The gap of the whole problem is the sum of these, without the cancellation of primal − dual.
        """
        costs = np.asarray(cost, dtype=np.float64)
        gaps: Floats = costs * self.value(z) - np.einsum("ij,ij->i", x, z) + self._quadratic(x, cost)
        return gaps

    def _quadratic(self, x: Floats, cost: npt.ArrayLike) -> Floats:
        """γ/(2·cost) ‖x‖², 0 where the cost is 0."""
        c = np.broadcast_to(np.asarray(cost, dtype=np.float64), len(x))[:, None]
        shares = np.divide(x, c, out=np.zeros(x.shape), where=c > 0.0)  # first: squares of small costs would be 0
        quadratic: Floats = 0.5 * self.smoothing * np.einsum("ij,ij->i", x, shares)
        return quadratic

    def _check_width(self, z: Floats) -> None:
        if z.ndim != 2:
            raise ValueError(f"margins must have shape (n_samples, n_wrong_classes); got shape {z.shape}")
        if self.k > z.shape[1]:
            raise ValueError(f"k={self.k}, but there are {z.shape[1]} wrong class(es) only; use a smaller k")
