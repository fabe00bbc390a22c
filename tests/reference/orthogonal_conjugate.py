"""The conjugate of the penalty of orthogonal transfer, minimised over a box.

    Ω*(B) = max_W ⟨B, W⟩ − Ω(W) = min_S ½ tr(Bᵀ M(S)⁻¹ B),   M(S) = K ∘ S,   S_ii = 1, |S_ij| ≤ 1 on ancestor pairs

S ↦ tr(Bᵀ M(S)⁻¹ B) is convex, and M(S) is block diagonal over the subtrees of the top nodes. Each subtree is a separate
problem, solved by L-BFGS-B with values and gradients from the tree algebra. In subtrees of up to `COORDINATE_ROWS`
nodes exact steps in one S_ij at a time follow, on the dense inverse and G = W Wᵀ, until `tol` is reached. Any S gives
an upper bound u, and W = M(S)⁻¹B a lower one: the best multiple of W gives ⟨B, tW⟩ − Ω(tW) = u²/Ω(W).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import minimize

from widemargin.problems.tree_factor import TreeFactor
from widemargin.problems.tree_penalties import OrthogonalPenalty, pair_products, subtree_penalties

__all__ = ["ConjugateBounds", "conjugate"]

Floats = npt.NDArray[np.float64]

COORDINATE_ROWS = 150
"""Largest subtree for coordinate steps; in larger ones a sweep is slow, because each step changes a dense inverse."""
MAX_SWEEPS = 500
MAX_QUASI_NEWTON = 5000
VALUE_TOL = 1e-4
"""Relative change of the value at which L-BFGS-B stops, over `tol`: the error of W is the root of that of Ω*."""
SWEEPS_PER_CHECK = 2


class ConjugateBounds(NamedTuple):
    """Bounds lower ≤ Ω*(B) ≤ upper, and the S of the upper one on the layout.

    Examples
    --------
    >>> ConjugateBounds(lower=1.0, upper=1.0, S=np.ones(1)).upper
    1.0
    """

    lower: float
    upper: float
    S: Floats


def conjugate(penalty: OrthogonalPenalty, B: Any, *, tol: float = 1e-9) -> ConjugateBounds:
    """Ω*(B) between two bounds, for B of shape (m, n).

    `tol` is the relative distance of the bounds to reach. In subtrees of more than `COORDINATE_ROWS` nodes L-BFGS-B may
    stop before, at a distance of about 1e-6.

    Examples
    --------
    >>> from widemargin.labels.tree import Tree
    >>> penalty = OrthogonalPenalty.of_tree(Tree(np.array([-1, 0, 1])), alpha=1.0)
    >>> bounds = conjugate(penalty, np.array([[2.0, 0.0], [0.0, 1.0]]))  # orthogonal rows: as if K were diagonal
    >>> round(bounds.upper, 6), round(bounds.lower, 6)
    (1.5, 1.5)
    """
    B = sp.csr_array(B) if sp.issparse(B) else np.asarray(B, dtype=np.float64)
    S, lower, upper = np.where(penalty.paths.is_diagonal, 1.0, 0.0), 0.0, 0.0
    for rows, entries, part in subtree_penalties(penalty):
        found = _subtree_conjugate(part, B[rows], tol)
        S[entries] = found.S
        lower, upper = lower + found.lower, upper + found.upper
    return ConjugateBounds(lower, upper, S)


def _subtree_conjugate(penalty: OrthogonalPenalty, B: Any, tol: float) -> ConjugateBounds:
    """The conjugate below one top node: quasi-Newton steps, then exact ones if these are not enough."""
    S = np.where(penalty.paths.is_diagonal, 1.0, 0.0)
    found = _bounds(penalty, B, S)
    if found.upper - found.lower > tol * found.upper:
        found = _by_quasi_newton(penalty, B, S, tol)
    if found.upper - found.lower > tol * found.upper and penalty.paths.m <= COORDINATE_ROWS:
        found = _by_coordinates(penalty, B, S, tol)
    return found


def _bounds(penalty: OrthogonalPenalty, B: Any, S: Floats) -> ConjugateBounds:
    """Both bounds at S."""
    factor = penalty.factor(S)
    Z = factor.forward(B)
    upper, value = _half_trace(factor, Z), penalty.value(factor.backward(Z))
    return ConjugateBounds(upper * min(1.0, upper / value) if value > 0.0 else 0.0, upper, S)


def _half_trace(factor: TreeFactor, Z: Any) -> float:
    """½ tr(Bᵀ M⁻¹ B) = ½ Σ_a ‖z_a‖² / d_a, given Z = L⁻¹ B of shape (m, n)."""
    squares = Z.multiply(Z).sum(axis=1) if sp.issparse(Z) else (Z * Z).sum(axis=1)
    return float(0.5 * (np.asarray(squares).ravel() / factor.pivots).sum())


def _by_coordinates(penalty: OrthogonalPenalty, B: Any, S: Floats, tol: float) -> ConjugateBounds:
    """Sweeps of exact steps; P and G are recomputed every two sweeps to limit drift."""
    Q = B @ B.T
    Q = Q.toarray() if sp.issparse(Q) else Q
    found = _bounds(penalty, B, S)
    for _ in range(MAX_SWEEPS):
        P = penalty.factor(S).solve(np.eye(penalty.paths.m))
        G = P @ Q @ P
        for _ in range(SWEEPS_PER_CHECK):
            _sweep(penalty, S, P, G)
        found = _bounds(penalty, B, S)
        if found.upper - found.lower <= tol * found.upper:
            break
    return found


def _sweep(penalty: OrthogonalPenalty, S: Floats, P: Floats, G: Floats) -> None:
    """Minimise over each S_ij in turn, the others fixed; S, P = M⁻¹ and G = P Q P are updated in place."""
    paths = penalty.paths
    for entry in np.flatnonzero(~paths.is_diagonal & (penalty.K > 0.0)):
        pair = [paths.descendant[entry], paths.path_nodes[entry]]
        (p, q), (_, r) = P[np.ix_(pair, pair)].tolist()
        (g1, g12), (_, g2) = G[np.ix_(pair, pair)].tolist()
        h = r * g1 + p * g2
        if h <= 0.0:
            continue
        # The root of w_i(δ)ᵀ w_j(δ) = 0 for M_ij + δ, then clipped: the function is convex in one variable.
        z = 2.0 * g12 / (h + np.sqrt(max(h * h - 4.0 * p * r * g12 * g12, 0.0)))
        new = np.clip(S[entry] + z / (1.0 - z * q) / penalty.K[entry], -1.0, 1.0)
        delta, S[entry] = penalty.K[entry] * (new - S[entry]), new
        u = 1.0 + delta * q
        X = delta / (u * u - delta * delta * p * r) * np.array([[-delta * r, u], [u, -delta * p]])
        V = P[:, pair] @ X
        P -= V @ P[pair]
        G -= V @ G[pair]
        G -= G[:, pair] @ V.T


def _by_quasi_newton(penalty: OrthogonalPenalty, B: Any, S: Floats, tol: float) -> ConjugateBounds:
    """L-BFGS-B over the pairs; scaled by ‖B‖² so that its tolerances mean the same for every B."""
    free = np.flatnonzero(~penalty.paths.is_diagonal & (penalty.K > 0.0))
    scale = 1.0 / max(float((B * B).sum()), np.finfo(np.float64).tiny)

    def value_and_gradient(s: Floats) -> tuple[float, Floats]:
        S[free] = s
        factor = penalty.factor(S)
        Z = factor.forward(B)
        products = pair_products(penalty.paths, factor.backward(Z))
        return scale * _half_trace(factor, Z), -scale * penalty.K[free] * products[free]

    options = {"ftol": VALUE_TOL * tol, "gtol": 0.0, "maxiter": MAX_QUASI_NEWTON, "maxfun": 2 * MAX_QUASI_NEWTON}
    found = minimize(
        value_and_gradient, S[free], jac=True, method="L-BFGS-B", bounds=[(-1.0, 1.0)] * len(free), options=options
    )
    S[free] = np.clip(found.x, -1.0, 1.0)
    return _bounds(penalty, B, S)
