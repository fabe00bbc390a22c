"""One label's objective, as an optimiser sees it: value, gradient, hess_vec, diagonal, line search.

    L(v) = ½‖w‖² + ½ bias_penalty b² + Σ_i c_i φ(m_i),     m_i = y_i z_i,    z_i = x_i·w + bias_value b

v = (w, b) has n_features + 1 entries. The intercept is a feature of value 1 whose penalty is 0 (free) or 1
(regularised); no intercept is a feature of value 0. Scores X·w and X·d are kept so that a trial step of the line
search costs O(n_samples). Memory: X, and a few vectors. Twin: cpp/one_vs_all/objective.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from widemargin.problems.losses import Floats, Loss, SquaredHinge

__all__ = ["BinaryObjective", "BinaryProblem", "two_rows"]

ARMIJO_SLOPE = 0.01  # sufficient decrease, the paper's η; liblinear 2.50 newton.cpp
BACKTRACK_FACTOR = 0.5  # the same source
MAX_BACKTRACKS = 100  # liblinear has 20; hard margins need up to 60, flat stretches of the logistic loss 1e30 = 2^100


@dataclass(frozen=True)
class BinaryProblem:
    """The problem of one label.

    Examples
    --------
    >>> problem = two_rows()
    >>> problem.scores(np.array([3.0, 4.0, 0.5])).tolist(), problem.free_intercept
    ([3.5, 4.5], True)
    """

    X: Any  # dense or sparse, shape (n_samples, n_features)
    y: Floats  # +1 or −1
    c: Floats  # weight of each row's loss, C included; rows of weight zero take no part
    loss: Loss
    bias_value: float  # (bias_value, bias_penalty): (1, 0) for a free intercept, (1, 1) regularised, (0, 1) none
    bias_penalty: float

    @property
    def free_intercept(self) -> bool:
        """Whether there is an intercept without a penalty."""
        return self.bias_value != 0.0 and self.bias_penalty == 0.0

    def scores(self, v: Floats) -> Floats:
        """X w + bias_value b."""
        scores: Floats = self.X @ v[:-1] + self.bias_value * v[-1]
        return scores

    def rows_sum(self, weights: Floats) -> Floats:
        """Σ_i weights_i (x_i, bias_value), the transpose of `scores`."""
        return np.append(self.X.T @ weights, self.bias_value * weights.sum())

    def penalised(self, v: Floats) -> Floats:
        """The gradient of the penalty: v, its last entry times bias_penalty."""
        return np.append(v[:-1], self.bias_penalty * v[-1])


def two_rows() -> BinaryProblem:
    """The smallest problem with a free intercept, for examples: rows (1, 0) with label +1 and (0, 1) with label −1."""
    return BinaryProblem(np.eye(2), np.array([1.0, -1.0]), np.ones(2), SquaredHinge(), 1.0, 0.0)


class BinaryObjective:
    """L and its derivatives at a moving point that starts at `v`; the optimiser's only view of a problem.

    Examples
    --------
    >>> objective = BinaryObjective(two_rows(), np.zeros(3))
    >>> objective.value(), objective.gradient().tolist()
    (2.0, [-2.0, 2.0, 0.0])
    """

    def __init__(self, problem: BinaryProblem, v: Floats) -> None:
        self.problem = problem
        self.v = v.copy()
        self.z = problem.scores(v)

    @property
    def margins(self) -> Floats:
        """m_i = y_i z_i."""
        return self.problem.y * self.z

    @property
    def curvature(self) -> Floats:
        """c_i φ''(m_i); zero outside the active set."""
        return self.problem.c * self.problem.loss.second_derivative(self.margins)

    @property
    def n_active(self) -> int:
        """Number of rows in the active set, eq. (19)."""
        return int(np.count_nonzero(self.problem.loss.derivative(self.margins)))

    def value(self) -> float:
        """L(v)."""
        penalty = 0.5 * self.problem.penalised(self.v) @ self.v
        return float(penalty + self.problem.c @ self.problem.loss.value(self.margins))

    def gradient(self) -> Floats:
        """∇L = v (penalised part) + Σ_i c_i φ'(m_i) y_i (x_i, bias_value)."""
        slopes = self.problem.c * self.problem.y * self.problem.loss.derivative(self.margins)
        return self.problem.penalised(self.v) + self.problem.rows_sum(slopes)

    def hess_vec(self, d: Floats) -> Floats:
        """H d = d (penalised part) + Σ_i curvature_i (x_i·d) x_i, eq. (20)."""
        return self.problem.penalised(d) + self.problem.rows_sum(self.curvature * self.problem.scores(d))

    def diagonal(self) -> Floats:
        """The diagonal of H."""
        X, bias_value = self.problem.X, self.problem.bias_value
        squares = X.multiply(X) if hasattr(X, "multiply") else np.square(X)
        diagonal = np.append(squares.T @ self.curvature, bias_value**2 * self.curvature.sum())
        return diagonal + self.problem.penalised(np.ones(len(diagonal)))

    def line_search(self, d: Floats, slope: float) -> float:
        """Backtrack along d, where `slope` = ∇L·d < 0; returns the step, 0 if none decreases L enough.

        Sets: v, z.
        """
        problem, m = self.problem, self.margins
        Xd = problem.scores(d)
        linear, quadratic = problem.penalised(self.v) @ d, 0.5 * problem.penalised(d) @ d
        step = 1.0
        for _ in range(MAX_BACKTRACKS):
            losses = problem.c @ problem.loss.change(m, step * problem.y * Xd)
            if step * linear + step**2 * quadratic + losses <= ARMIJO_SLOPE * step * slope:
                self.v = self.v + step * d
                self.z = self.z + step * Xd
                return step
            step *= BACKTRACK_FACTOR
        return 0.0
