"""Fixtures shared by several test files: rows and labels, and an independent solver for problems on trees."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from reference.tree_constraints import constraints_of
from widemargin.problems.tree_penalties import OrthogonalPenalty


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def labelled_rows():
    """Sparse rows of unit length, and twelve labels of very different frequency.

    Drawn by NumPy: `scipy.sparse.random_array` gives other rows in other releases. With this seed, no comparison of a
    solver's step is decided by rounding, so the core and its twin can be compared step by step.
    """
    rng = np.random.default_rng(8)
    X = sp.csr_array(np.where(rng.random((120, 40)) < 0.15, rng.random((120, 40)), 0.0))
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    Y = rng.random((120, 12)) < np.geomspace(0.02, 0.6, 12)
    Y[0] = True
    Y[1] = False
    return X, sp.csr_array(Y)


@pytest.fixture
def tree_optimum():
    """A function that computes the optimum for rows, losses and a penalty by Clarabel."""

    def solve(X, losses, penalty):
        learns = isinstance(penalty, OrthogonalPenalty)
        return (_optimum_of_dual if learns else _optimum_of_primal)(X, losses, penalty)

    return solve


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
