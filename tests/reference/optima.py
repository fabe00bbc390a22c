"""Optima of the joint problems by Clarabel, from their definitions; for small problems only."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from reference.tree_constraints import constraints_of
from widemargin.problems.tree_penalties import OrthogonalPenalty

__all__ = ["code_optimum", "top_k_optimum", "tree_optimum"]


def top_k_optimum(X, y, m, loss, costs, intercept_scaling):
    """The primal by Clarabel: a sum of the k largest margins, or its smoothed form as a dual with an explicit x."""
    X = np.hstack([X.toarray() if sp.issparse(X) else X, np.full((X.shape[0], 1), intercept_scaling)])
    W = cp.Variable((m, X.shape[1]))
    terms = [0.5 * cp.sum_squares(W)]
    for i, row in enumerate(X):
        wrong = [j for j in range(m) if j != y[i]]
        z = 1 + W[wrong] @ row - W[y[i]] @ row
        terms.append(costs[i] * _loss_expression(z, loss))
    problem = cp.Problem(cp.Minimize(sum(terms)))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value


def _loss_expression(z, loss):
    """φ as an infimum: φ_γ(z) = min over v of φ_0(v) + ‖z − v‖²/(2γ), a property of smoothing by the conjugate."""
    if loss.smoothing > 0.0:
        v = cp.Variable(z.shape)
        return _plain_loss(v, loss) + cp.sum_squares(z - v) / (2 * loss.smoothing)
    return _plain_loss(z, loss)


def _plain_loss(z, loss):
    if loss.variant == "alpha":
        return cp.pos(cp.sum_largest(z, loss.k)) / loss.k
    return cp.sum_largest(cp.pos(z), loss.k) / loss.k


def code_optimum(h, y, k, norm, C, norm_bound=None, weights=None, b=None):
    """Continuous codes as in the paper, eq. (15), every constraint written out; ½‖M‖² for l2."""
    n = len(y)
    weights = np.ones(n) if weights is None else weights
    b = 1.0 - np.eye(k)[y] if b is None else b
    M, xi = cp.Variable((k, h.shape[1])), cp.Variable(n)
    constraints = [h[i] @ (M[y[i]] - M[r]) >= b[i, r] - xi[i] for i in range(n) for r in range(k)]
    size = cp.sum(cp.abs(M)) if norm == "l1" else cp.max(cp.abs(M))
    size = 0.5 * cp.sum_squares(M) if norm == "l2" else size
    objective = C * weights @ xi
    if norm_bound is None:
        objective = objective + size
    else:
        constraints.append(size <= norm_bound)
    return cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL)


def tree_optimum(X, losses, penalty):
    """The optimum for rows, losses and a penalty on a tree."""
    learns = isinstance(penalty, OrthogonalPenalty)
    return (_optimum_of_dual if learns else _optimum_of_primal)(X, losses, penalty)


def _optimum_of_primal(X, losses, penalty):
    """Clarabel on the primal; the penalty must be quadratic."""
    W, xi = cp.Variable((losses.paths.m, X.shape[1])), cp.Variable(losses.n_blocks, nonneg=True)
    rows = []
    for g in range(losses.n_blocks):
        i, j, rho, kappa = constraints_of(losses, g)
        if len(i):
            scores = W @ X[losses.row[g]]
            rows.append(xi[g] >= rho - cp.multiply(kappa, scores[i] - scores[j]))
    root = np.linalg.cholesky(penalty.matrix.toarray()).T
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(root @ W) + losses.cost @ xi), rows)
    return problem.solve(solver=cp.CLARABEL)


def _optimum_of_dual(X, losses, penalty):
    """Clarabel on max D(a, S), for orthogonal transfer."""
    paths = losses.paths
    B, gain, rules = np.zeros((paths.m, X.shape[1])), 0.0, []
    for g in range(losses.n_blocks):
        i, j, rho, _ = constraints_of(losses, g)
        if not len(i):
            continue
        a = cp.Variable(len(i), nonneg=True)
        rules.append(cp.sum(a) <= 1)
        gain = gain + losses.cost[g] * (rho @ a)
        E = np.eye(paths.m)[:, i] - np.eye(paths.m)[:, j]
        B = B + losses.cost[g] * cp.reshape(E @ a, (paths.m, 1), order="C") @ X[losses.row[g]][None, :]
    S = cp.Variable((paths.m, paths.m), symmetric=True)
    rules += [cp.diag(S) == 1, S <= 1, S >= -1]
    M = cp.multiply(paths.symmetric(penalty.K).toarray(), S)
    return cp.Problem(cp.Maximize(gain - 0.5 * cp.matrix_frac(B, M)), rules).solve(solver=cp.CLARABEL)
