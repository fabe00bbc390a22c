"""Top-k hinge losses α and β of the margins z of the wrong classes, plain and smoothed, with their conjugates.

    z_j = 1 + s_j − s_y,  j ≠ y       (the true class is left out: with it, the paper's dual is not the dual)
    α:  φ(z) = max(0, mean of the k largest z_j)      domain  { 0 ≤ x_j ≤ ⟨1,x⟩/k,  ⟨1,x⟩ ≤ 1 }   top-k simplex
    β:  φ(z) = mean of the k largest max(0, z_j)      domain  { 0 ≤ x_j ≤ 1/k,      ⟨1,x⟩ ≤ 1 }   capped simplex

Both are the largest ⟨x,z⟩ over their domain; α ≤ β ≤ the hinge of the top 1, and for k = 1 all three are equal.
Smoothed by γ > 0 they are the largest ⟨x,z⟩ − ½γ‖x‖²: the maximiser, a projection of z/γ, is their gradient, which has
Lipschitz constant 1/γ; the conjugate is ½γ‖x‖² on the domain. With the cost C of an example the domain grows to
⟨1,x⟩ ≤ C, x_j ≤ C/k, and the conjugate of Cφ is γ/(2C) ‖x‖². (Lapin, Hein, Schiele, NIPS 2015; eq. 3 and 5.)
Time: one selection per row, one projection if smoothed; memory of the size of z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin.projections import project_capped_simplex, project_top_k_simplex

__all__ = ["TopKHinge", "margins_of_wrong_classes"]

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

FEASIBILITY_TOLERANCE = 1e-12
"""Allowed violation of a constraint, relative to the cost of the example: rounding of sums of many values."""


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
    """Top-k hinge loss; rows of margins in, one number per row out.

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
            raise ValueError(f"smoothing must be a nonnegative number; got {self.smoothing}")

    def value(self, z: Floats) -> Floats:
        """φ(z) of each row; z of shape (n_samples, n_wrong_classes)."""
        if z.ndim != 2 or self.k > z.shape[1]:
            self._refuse(z)
        if self.smoothing > 0.0:
            x = self.gradient(z)
            smoothed: Floats = np.einsum("ij,ij->i", x, z - 0.5 * self.smoothing * x)
            return smoothed
        largest = np.partition(z, z.shape[1] - self.k, axis=1)[:, -self.k :]
        positive = np.maximum(largest, 0.0) if self.variant == "beta" else largest
        mean: Floats = np.maximum(positive.mean(axis=1), 0.0)
        return mean

    def gradient(self, z: Floats) -> Floats:
        """∇φ(z), shape of z; without smoothing a subgradient, of equal margins the first ones count as larger."""
        if z.ndim != 2 or self.k > z.shape[1]:
            self._refuse(z)
        if self.smoothing > 0.0:  # the projection of z/γ, written so that a small γ does not overflow
            return self.project(z, self.smoothing) / self.smoothing
        best = np.argsort(-z, axis=1, kind="stable")[:, : self.k]
        largest = np.take_along_axis(z, best, axis=1)
        counts = largest > 0.0 if self.variant == "beta" else largest.sum(axis=1, keepdims=True) > 0.0
        x = np.zeros(z.shape)
        np.put_along_axis(x, best, np.where(counts, 1.0 / self.k, 0.0), axis=1)
        return x

    def project(self, a: Floats, cost: npt.ArrayLike = 1.0, rho: npt.ArrayLike = 0.0) -> Floats:
        """argmin ½‖x − a‖² + ½ρ⟨1,x⟩² over the domain of cost·φ, for each row; cost and rho numbers or one per row."""
        onto = project_top_k_simplex if self.variant == "alpha" else project_capped_simplex
        return onto(a, self.k, cost, rho)

    def is_feasible(self, x: Floats, cost: npt.ArrayLike = 1.0, tolerance: float = FEASIBILITY_TOLERANCE) -> Bools:
        """Whether each row of x is in the domain of the conjugate of cost·φ, up to tolerance·cost."""
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

    def _refuse(self, z: Floats) -> NoReturn:
        if z.ndim != 2:
            raise ValueError(f"margins must have shape (n_samples, n_wrong_classes); got shape {z.shape}")
        raise ValueError(
            f"k={self.k} is too large, because there are only {z.shape[1]} wrong class(es); use a smaller k"
        )
