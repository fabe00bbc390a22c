"""A lower bound on the optimum of one label's problem, from any weights.

    α_i = −c_i φ'(m_i),   u = Σ y_i α_i (x_i, bias_value),   D = Σ −(c_i φ)*(−α_i) − ½‖u‖²

With a free intercept, D is a bound only if Σ y_i α_i = 0. So the scores are first shifted by the exact minimiser over
the intercept, which nearly achieves this, and then the α of the heavier side are shrunk; any such α is feasible. Zero
is a bound too, because no term of the objective is negative. Memory: a few vectors. Twin:
cpp/one_vs_all/certificate.hpp.
"""

from __future__ import annotations

import numpy as np

from reference.binary_objective import BinaryObjective, BinaryProblem
from widemargin.problems.losses import Floats

__all__ = ["certified_gap", "dual_bound", "dual_point", "optimal_shift", "relative_gap"]

MAX_BIAS_STEPS = 200  # a bisection of doubles ends long before that


def optimal_shift(problem: BinaryProblem, z: Floats) -> float:
    """Return argmin over t of Σ_i c_i φ(y_i (z_i + t)) for scores z, exact to rounding.

    Newton on the monotone derivative, with bisection if Newton leaves the bracket, and growing steps while there is no
    bracket and no curvature (far out on the logistic loss).

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> y, c = np.array([1.0, -1.0, -1.0]), np.ones(3)
    >>> problem = BinaryProblem(np.zeros((3, 1)), y, c, SquaredHinge(), 1.0, 0.0)
    >>> round(optimal_shift(problem, np.zeros(3)), 12)
    -0.333333333333
    """
    low, high, t = -np.inf, np.inf, 0.0
    for _ in range(MAX_BIAS_STEPS):
        m = problem.y * (z + t)
        alpha = -problem.c * problem.loss.derivative(m)
        curvature = problem.c @ problem.loss.second_derivative(m)
        derivative = alpha[problem.y < 0].sum() - alpha[problem.y > 0].sum()
        if not abs(derivative) > np.finfo(np.float64).eps * alpha.sum():  # or NaN
            break
        low, high = (t, high) if derivative < 0.0 else (low, t)
        following = t - derivative / curvature if curvature > 0.0 else np.inf
        if not low < following < high:
            following = _bisection_point(low, high, t, derivative)
        if following == t or not np.isfinite(following):
            break
        t = float(following)
    return t


def _bisection_point(low: float, high: float, t: float, derivative: float) -> float:
    """The middle of the bracket, or further out while one of its ends is open."""
    if np.isfinite(low) and np.isfinite(high):
        return 0.5 * (low + high)
    step = max(1.0, abs(t))
    return t + step if derivative < 0.0 else t - step


def dual_point(problem: BinaryProblem, z: Floats) -> Floats:
    """Return the feasible α of scores z, shape (n_samples,).

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> y, c = np.array([1.0, -1.0, -1.0]), np.ones(3)
    >>> problem = BinaryProblem(np.zeros((3, 1)), y, c, SquaredHinge(), 1.0, 0.0)
    >>> dual_point(problem, np.zeros(3)).round(6).tolist()
    [2.666667, 1.333333, 1.333333]
    """
    shift = optimal_shift(problem, z) if problem.free_intercept else 0.0
    alpha = -problem.c * problem.loss.derivative(problem.y * (z + shift))
    if problem.free_intercept:
        positive, negative = alpha[problem.y > 0].sum(), alpha[problem.y < 0].sum()
        if positive > negative:
            alpha[problem.y > 0] *= negative / positive
        elif negative > positive:
            alpha[problem.y < 0] *= positive / negative
    return alpha


def dual_bound(problem: BinaryProblem, z: Floats) -> float:
    """Return D at the α of scores z, or zero if that is larger: a lower bound on the optimum.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> y, c = np.array([1.0, -1.0, -1.0]), np.ones(3)
    >>> problem = BinaryProblem(np.zeros((3, 1)), y, c, SquaredHinge(), 1.0, 0.0)
    >>> round(dual_bound(problem, np.zeros(3)), 6)  # all rows are alike: b = −1/3 is the optimum
    2.666667
    """
    alpha = dual_point(problem, z)
    u = problem.rows_sum(problem.y * alpha)
    if problem.free_intercept:
        u[-1] = 0.0
    return max(0.0, float(problem.loss.dual_value(alpha, problem.c).sum() - 0.5 * u @ u))


def certified_gap(objective: BinaryObjective) -> float:
    """Return the relative gap, (primal − dual) / max(|primal|, |dual|), at the current point of the objective.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> certified_gap(BinaryObjective(problem, np.array([2 / 3, -2 / 3, 0.0]))) < 1e-12
    True
    """
    return relative_gap(objective.value(), dual_bound(objective.problem, objective.z))


def relative_gap(primal: float, dual: float) -> float:
    """(primal − dual) / max(|primal|, |dual|), 0 when both are 0 and NaN when one is."""
    scale = max(abs(primal), abs(dual))
    return 0.0 if scale == 0.0 else (primal - dual) / scale
