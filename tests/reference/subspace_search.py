"""The minimiser of one label's objective over four directions and k that the labels share, in plain NumPy.

    min over θ of  ½‖w + θ₀ z + θ₁ p + θ₂ w + Σ_j θ₄₊ⱼ v_j‖² + ½ bias_penalty (b + θ₃)² + Σ_i c_i φ(y_i s_i(θ)),
    s_i(θ) = s_i + θ₀ sz_i + θ₁ sp_i + θ₂ (s_i − b) + θ₃ + Σ_j θ₄₊ⱼ v_j·x_i

by Newton steps that the secant rule shortens if the slope along the step turns positive, until the gradient,
scaled by the Hessian's diagonal, has fallen to a share of its start. With shared directions, the second
Hessian is kept while the gradient falls quickly. Memory: a few vectors of n_samples.
Twin: cpp/one_vs_all/subspace_search.hpp, and search_sums and logistic_search of the vector kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from widemargin.problems.losses import Floats, Loss

__all__ = ["SearchRows", "minimize_in_subspace", "newton_in_subspace", "search_sums"]

INTERCEPT = 3  # place of the intercept among the directions
# Values and reasons: cpp/one_vs_all/subspace_search.hpp.
SEARCH_REDUCTION = 0.07
MAX_SEARCH_PASSES = 8
SEARCH_RIDGE = 1e-5
OVERSHOOT_SHARE = 0.3
HESSIAN_PASSES = 2  # with shared directions, as the next one
SLOW_SHARE = 0.3


@dataclass(frozen=True)
class SearchRows:
    """The rows as a search sees them.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one = np.ones(1)
    >>> SearchRows(SquaredHinge(), one, one, 0.5 * one, 2 * one, 3 * one, 0.1).directions().tolist()
    [[2.0], [3.0], [0.4], [1.0]]
    """

    loss: Loss
    y: Floats  # signs
    c: Floats  # weights, C included
    s: Floats  # scores of the weights, intercept included
    sz: Floats  # scores of direction z
    sp: Floats  # scores of direction p
    bias: float  # the intercept
    shared: Floats | None = field(default=None)  # (k, n_samples) scores of the shared directions

    def directions(self) -> Floats:
        """Scores of all directions, shape (4 + k, n_samples)."""
        own = np.stack([self.sz, self.sp, self.s - self.bias, np.ones_like(self.s)])
        return own if self.shared is None else np.concatenate([own, self.shared])


def search_sums(rows: SearchRows, theta: Floats) -> tuple[Floats, Floats, float]:
    """Return at θ half the descent Σ −c φ' y v (n,), half the curvature Σ c φ'' v v' (n, n), and the loss; n = 4 + k.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one = np.ones(1)
    >>> rows = SearchRows(SquaredHinge(), one, one, 0.5 * one, 2 * one, 3 * one, 0.1)
    >>> descent, curvature, loss = search_sums(rows, np.zeros(4))
    >>> descent.tolist(), curvature[0].tolist(), loss
    ([1.0, 1.5, 0.2, 0.5], [4.0, 6.0, 0.8, 2.0], 0.25)
    """
    v = rows.directions()
    m = rows.y * (rows.s + theta @ v)
    alpha = -0.5 * rows.c * rows.loss.derivative(m)
    curvature = 0.5 * rows.c * rows.loss.second_derivative(m)
    return v @ (rows.y * alpha), (v * curvature) @ v.T, float(rows.c @ rows.loss.value(m))


def minimize_in_subspace(rows: SearchRows, products: Floats, bias_penalty: float, use: npt.NDArray[np.bool_]) -> Floats:
    """Return θ, shape (4 + k,).

    `products` (3 + k, 3 + k) holds the inner products of z, p, w and the shared directions; `bias_penalty` is 0 for a
    free intercept and 1 for a regularised one; `use` (4 + k,) says which directions take part.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one, none = np.ones(1), np.zeros(1)
    >>> rows = SearchRows(SquaredHinge(), one, one, none, one, none, 0.0)  # ½θ² + (1 − θ)² from zero along one row
    >>> use = np.array([True, False, False, False])
    >>> minimize_in_subspace(rows, np.diag([1.0, 0.0, 0.0]), 0.0, use).round(3).tolist()
    [0.667, 0.0, 0.0, 0.0]
    """
    quadratic, linear = _penalty(rows, products, bias_penalty)
    base, step, theta = np.zeros(len(use)), np.zeros(len(use)), np.zeros(len(use))
    descent = start_norm = last_norm = 0.0
    H, wants_hessian = quadratic, True
    for passes in range(1, MAX_SEARCH_PASSES + 1):
        gradient, newest = _derivatives(rows, theta, quadratic, linear, use)
        H = newest if wants_hessian else H
        norm = float(np.sqrt(np.sum(np.square(gradient) / np.diag(H))))
        if passes == 1:
            start_norm = norm
        else:
            slope = float(gradient @ step)
            if slope > OVERSHOOT_SHARE * descent and passes < MAX_SEARCH_PASSES:
                share = descent / (descent + slope)
                step, descent = share * step, share * descent
                theta, wants_hessian = base + step, True
                continue
            base = theta
        if norm <= (SEARCH_REDUCTION if passes > 1 else 0.0) * start_norm or passes == MAX_SEARCH_PASSES:
            break
        wants_hessian = rows.shared is None or passes < HESSIAN_PASSES or norm > SLOW_SHARE * last_norm
        last_norm = norm
        step = _newton_step(gradient, H)
        descent = float(-gradient @ step)
        theta = base + step
    return theta


def newton_in_subspace(rows: SearchRows, products: Floats, bias_penalty: float, use: npt.NDArray[np.bool_]) -> Floats:
    """Return the first Newton step of `minimize_in_subspace`, shape (4,).

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> one, none = np.ones(1), np.zeros(1)
    >>> rows = SearchRows(SquaredHinge(), one, one, none, one, none, 0.0)
    >>> use = np.array([True, False, False, False])
    >>> float(newton_in_subspace(rows, np.diag([1.0, 0.0, 0.0]), 0.0, use)[0].round(3))
    0.667
    """
    return _newton_step(*_derivatives(rows, np.zeros(len(use)), *_penalty(rows, products, bias_penalty), use))


def _penalty(rows: SearchRows, products: Floats, bias_penalty: float) -> tuple[Floats, Floats]:
    """The quadratic and the linear part of the penalty in θ."""
    n = len(products) + 1
    quadratic, linear = np.zeros((n, n)), np.zeros(n)
    features = np.delete(np.arange(n), INTERCEPT)
    quadratic[np.ix_(features, features)] = products
    quadratic[INTERCEPT, INTERCEPT] = bias_penalty
    linear[features] = products[2]
    linear[INTERCEPT] = bias_penalty * rows.bias
    return quadratic, linear


def _derivatives(
    rows: SearchRows, theta: Floats, quadratic: Floats, linear: Floats, use: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Gradient and Hessian at θ; directions that take no part get the identity."""
    sums, curvature, _ = search_sums(rows, theta)
    gradient = linear + quadratic @ theta - 2.0 * sums
    H = quadratic + 2.0 * curvature
    out = ~(use & (np.diag(H) > 0.0))
    gradient[out] = 0.0
    H[out, :] = 0.0
    H[:, out] = 0.0
    H[out, out] = 1.0
    return gradient, H


def _newton_step(gradient: Floats, H: Floats) -> Floats:
    """−H⁻¹ gradient, with the matrix scaled to a unit diagonal, and a small ridge."""
    scale = 1.0 / np.sqrt(np.diag(H))
    scaled = H * np.outer(scale, scale) + SEARCH_RIDGE * np.eye(len(H))
    step: Floats = -scale * np.linalg.solve(scaled, gradient * scale)
    return step
