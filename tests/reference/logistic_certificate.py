"""Bounds on the optimum of one label's logistic problem, from any weights and any intercept, without a search.

    σ_i = 1 / (1 + e^{m_i}),   α_i = c_i σ_i,   u = Σ y_i α_i x_i,   D = Σ c_i H(σ_i) − ½‖u‖² (− ½ (Σ y_i α_i)²)

H(σ) = −σ log σ − (1 − σ) log(1 − σ). With a free intercept the α of the heavier side are multiplied by 1 − δ so that
Σ y_i α_i = 0. H is concave, H' = m and H'' = −1 / (σ (1 − σ)), and therefore

    Σ c H((1 − δ) σ) ≥ max( Σ c H(σ) − δ Σ α m − ½ δ² / (1 − δ) Σ c e^−m,  (1 − δ) Σ c H(σ) ).

Memory: a few vectors. Twin: LogisticCertificate in cpp/one_vs_all/batch_logistic.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.binary_objective import BinaryProblem
from widemargin.problems.losses import Floats

__all__ = ["LogisticBounds", "logistic_bounds"]


@dataclass(frozen=True)
class LogisticBounds:
    """The objective, a lower bound on the optimum, ‖∇L‖, and a Newton step of the intercept."""

    primal: float
    dual: float
    gradient_norm: float
    next_bias: float


def entropy_at(share: float, alpha: Floats, c: Floats, m: Floats) -> float:
    """A lower bound on the entropies of one side if its α are multiplied by `share`."""
    losses = c @ np.logaddexp(0.0, -m)
    entropy, delta = losses + alpha @ m, 1.0 - share
    if share <= 0.0:
        return 0.0
    with np.errstate(over="ignore"):
        tangent = entropy - delta * (alpha @ m) - 0.5 * delta**2 / share * (c @ np.exp(-m))
    return float(max(share * entropy, tangent))


def logistic_bounds(problem: BinaryProblem, v: Floats) -> LogisticBounds:
    """Return the bounds of weights and intercept v = (w, b).

    Examples
    --------
    >>> from widemargin.problems.losses import Logistic
    >>> y, c = np.array([1.0, -1.0, -1.0]), np.ones(3)
    >>> problem = BinaryProblem(np.zeros((3, 1)), y, c, Logistic(), 1.0, 0.0)
    >>> bounds = logistic_bounds(problem, np.array([0.0, -np.log(2.0)]))  # the optimum: a third of the rows is positive
    >>> round(bounds.primal, 6), round(bounds.dual, 6), round(bounds.gradient_norm, 12)
    (1.909543, 1.909543, 0.0)
    """
    y, c, m = problem.y, problem.c, problem.y * problem.scores(v)
    sigma = np.exp(-np.logaddexp(0.0, m))
    alpha, positive = c * sigma, y > 0
    gradient = problem.penalised(v) - problem.rows_sum(y * alpha)
    sides = np.array([alpha[~positive].sum(), alpha[positive].sum()])
    shares = np.ones(2)
    if problem.free_intercept and sides[0] != sides[1]:
        heavier = int(sides[1] > sides[0])
        shares[heavier] = sides.min() / sides.max()
    u = problem.rows_sum(y * alpha * np.where(positive, shares[1], shares[0]))
    if problem.free_intercept:
        u[-1] = 0.0
    entropies = sum(
        entropy_at(float(share), alpha[side], c[side], m[side])
        for share, side in zip(shares, (~positive, positive), strict=True)
    )
    penalty = 0.5 * v @ problem.penalised(v)
    curvature = c @ (sigma * (1.0 - sigma)) + problem.bias_penalty
    return LogisticBounds(
        primal=float(penalty + c @ np.logaddexp(0.0, -m)),
        dual=max(0.0, float(entropies - 0.5 * u @ u)),
        gradient_norm=float(np.linalg.norm(gradient)),
        next_bias=float(v[-1] - gradient[-1] / curvature),
    )
