"""The optimum of one label by Clarabel, from the definition of its problem; for small problems only."""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp

__all__ = ["label_objective", "label_optimum"]

ACCURACY = 1e-9


def label_objective(X, y, cost, loss, intercept, w, b):
    """½‖w‖² [+ ½b²] + Σ cost · loss at given weights; `intercept` is "free", "regularised" or "none"."""
    margins = np.where(y, 1.0, -1.0) * (X @ w + b)
    losses = np.maximum(0.0, 1.0 - margins) ** 2 if loss == "squared_hinge" else np.logaddexp(0.0, -margins)
    return 0.5 * w @ w + (0.5 * b**2 if intercept == "regularised" else 0.0) + cost @ losses


def label_optimum(X, y, cost, loss, intercept):
    """The smallest objective; rows without cost are left out, which would leave their slacks undetermined."""
    X, y, cost = X[cost > 0.0], y[cost > 0.0], cost[cost > 0.0]
    if intercept == "free" and y.all() | ~y.any():  # an intercept of ±1, or ever larger ones, and no weights
        return 0.0
    bias = np.full((len(y), 1), 0.0 if intercept == "none" else 1.0)
    margins = sp.csc_array(np.where(y, 1.0, -1.0)[:, None] * np.hstack([X, bias]))  # times (w, b)
    curvature = np.append(np.ones(X.shape[1]), 0.0 if intercept == "free" else 1.0)
    found = (_hinge if loss == "squared_hinge" else _logistic)(margins, curvature, cost)
    if loss == "squared_hinge":
        assert found.status == clarabel.SolverStatus.Solved, found.status
        return found.obj_val
    return _refined(margins.toarray(), curvature, cost, np.array(found.x[: len(curvature)]))


def _hinge(margins, curvature, cost):
    """ξ ≥ 1 − m and ξ ≥ 0, with the objective ½ Σ curvature (w, b)² + Σ cost ξ²."""
    n, d = margins.shape
    eye = sp.eye_array(n)
    P = sp.diags_array(np.concatenate([curvature, 2.0 * cost]))
    A = sp.vstack([sp.hstack([-margins, -eye]), sp.hstack([sp.csc_array((n, d)), -eye])])
    return _solved(P, np.zeros(d + n), A, np.append(-np.ones(n), np.zeros(n)), [clarabel.NonnegativeConeT(2 * n)])


def _logistic(margins, curvature, cost):
    """t ≥ log(1 + e^−m): u + v ≤ 1 with u ≥ e^−t and v ≥ e^(−m − t)."""
    n, d = margins.shape
    nothing, eye, zero = sp.csc_array((n, d)), sp.eye_array(n), sp.csc_array((n, n))
    P = sp.diags_array(np.concatenate([curvature, np.zeros(3 * n)]))
    one = sp.hstack([nothing, zero, zero, zero])
    first = [sp.hstack([nothing, eye, zero, zero]), one, sp.hstack([nothing, zero, -eye, zero])]
    second = [sp.hstack([margins, eye, zero, zero]), one, sp.hstack([nothing, zero, zero, -eye])]
    by_row = np.arange(3 * n).reshape(3, n).T.ravel()  # the three parts of a cone below each other
    cone_rows = [sp.csr_array(sp.vstack(parts))[by_row] for parts in (first, second)]
    A = sp.vstack([sp.hstack([nothing, zero, eye, eye]), *cone_rows])
    rhs = np.concatenate([np.ones(n), *[np.tile([0.0, 1.0, 0.0], n)] * 2])
    cones = [clarabel.NonnegativeConeT(n), *[clarabel.ExponentialConeT()] * (2 * n)]
    return _solved(P, np.concatenate([np.zeros(d), cost, np.zeros(2 * n)]), A, rhs, cones)


def _solved(P, q, A, rhs, cones):
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = ACCURACY
    return clarabel.DefaultSolver(sp.csc_matrix(P), q, sp.csc_matrix(A), rhs, cones, settings).solve()


def _refined(margins, curvature, cost, z):
    """Newton steps from the point of Clarabel, which finds exponential cones to about 1e-7 only."""
    for _ in range(10):
        m = margins @ z
        share = 1.0 / (1.0 + np.exp(m))  # −φ′
        gradient = curvature * z - margins.T @ (cost * share)
        hessian = np.diag(curvature) + margins.T @ ((cost * share * (1.0 - share))[:, None] * margins)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        z = z - step
        if gradient @ step < 1e-13:
            return 0.5 * curvature @ z**2 + cost @ np.logaddexp(0.0, -(margins @ z))
    raise AssertionError("Newton's method did not converge")
