"""Specification of the row kernels of the dense one-vs-all solver, in plain NumPy.

    s(θ) = s + θ₀ sz + θ₁ sp + θ₂ (s − b) + θ₃

    search        argmin over θ of  ½‖w + θ₀ z + θ₁ p + θ₂ w‖² + ½ bias_penalty (b + θ₃)² + Σ_i c_i φ(y_i s_i(θ))
    backtracking  the longest t of 1, ½, ¼ … with a decrease of at least a hundredth of t · slope
    certificate   a free intercept at its optimum; slopes y c φ'(m) there; and y α of a feasible dual point

The kernels search in float32 and stop near the minimum; here everything is float64 and exact. Memory: a few vectors.
Twin: cpp/one_vs_all/dense.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.binary_certificate import dual_point, optimal_shift
from reference.binary_objective import ARMIJO_SLOPE, BACKTRACK_FACTOR, BinaryProblem
from widemargin.problems.losses import Floats, Loss

__all__ = ["StepProblem", "backtracked_step", "certified_rows", "searched_step"]

MAX_HALVINGS = 30
MAX_NEWTON_STEPS = 200


@dataclass(frozen=True)
class StepProblem:
    """One label's objective along four directions.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one, none = np.ones(1), np.zeros((4, 4))
    >>> problem = StepProblem(np.ones((1, 4)), 0 * one, one, one, none, none[0], SquaredHinge())
    >>> problem.change(np.ones(4) / 4)
    -1.0
    """

    scores: Floats  # (n_samples, 4), of the directions: sz, sp, s − b, and ones (zeros without an intercept)
    s: Floats  # (n_samples,), scores of the rows
    y: Floats  # signs
    c: Floats  # weights
    gram: Floats  # (4, 4), inner products of the directions in the penalty
    linear: Floats  # (4,), their inner products with the weights in the penalty
    loss: Loss

    def change(self, theta: Floats) -> float:
        """The objective at θ minus the objective at zero."""
        losses = self.c @ self.loss.change(self.y * self.s, self.y * (self.scores @ theta))
        return float(self.linear @ theta + 0.5 * theta @ self.gram @ theta + losses)

    def gradient(self, theta: Floats) -> Floats:
        """Derivatives by θ."""
        m = self.y * (self.s + self.scores @ theta)
        return self.linear + self.gram @ theta + self.scores.T @ (self.c * self.y * self.loss.derivative(m))

    def hessian(self, theta: Floats) -> Floats:
        """Second derivatives by θ."""
        m = self.y * (self.s + self.scores @ theta)
        curvature = self.c * self.loss.second_derivative(m)
        return self.gram + self.scores.T @ (curvature[:, None] * self.scores)


def searched_step(problem: StepProblem) -> Floats:
    """Return the minimiser θ, by damped Newton steps.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one, axes = np.ones(1), np.eye(4)[:1]
    >>> problem = StepProblem(axes, 0 * one, one, one, np.eye(4), np.zeros(4), SquaredHinge())
    >>> searched_step(problem).round(6).tolist()  # ½t² + (1 − t)²
    [0.666667, 0.0, 0.0, 0.0]
    """
    theta = np.zeros(4)
    for _ in range(MAX_NEWTON_STEPS):
        gradient = problem.gradient(theta)
        step = -np.linalg.pinv(problem.hessian(theta), rcond=1e-12) @ gradient
        length = 1.0
        while problem.change(theta + length * step) > problem.change(theta) and length > 1e-12:
            length *= 0.5
        theta = theta + length * step
        if np.abs(length * step).max() <= 1e-12 * max(1.0, float(np.abs(theta).max())):
            break
    return theta


def backtracked_step(problem: StepProblem, bias_step: float, slope: float) -> float:
    """Return the step along (sz, bias_step), or 0 if none decreases the objective enough.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one, axes = np.ones(1), np.eye(4)[:1]
    >>> problem = StepProblem(3 * axes, 0 * one, one, one, 9 * np.eye(4), np.zeros(4), SquaredHinge())
    >>> backtracked_step(problem, 0.0, -6.0)  # 4.5t² + max(0, 1 − 3t)²: too long, too long, good
    0.25
    """
    t = 1.0
    for _ in range(MAX_HALVINGS):
        if problem.change(np.array([t, 0.0, 0.0, t * bias_step])) <= ARMIJO_SLOPE * t * slope:
            return t
        t *= BACKTRACK_FACTOR
    return 0.0


def certified_rows(problem: BinaryProblem, z: Floats, intercept: float) -> tuple[float, float, float, Floats, Floats]:
    """Return the moved intercept, Σ cφ, Σ of the dual's row parts, the slopes y c φ'(m), and y α.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> y, c = np.array([1.0, -1.0, -1.0]), np.ones(3)
    >>> problem = BinaryProblem(np.zeros((3, 1)), y, c, SquaredHinge(), 1.0, 0.0)
    >>> certified_rows(problem, np.zeros(3), 0.0)[4].round(6).tolist()
    [2.666667, -1.333333, -1.333333]
    """
    moved = intercept + (optimal_shift(problem, z) if problem.free_intercept else 0.0)
    z = z + problem.bias_value * (moved - intercept)
    m = problem.y * z
    alpha = dual_point(problem, z)
    losses = float(problem.c @ problem.loss.value(m))
    conjugates = float(problem.loss.dual_value(alpha, problem.c).sum())
    slopes = problem.y * problem.c * problem.loss.derivative(m)
    return moved, losses, conjugates, slopes, problem.y * alpha
