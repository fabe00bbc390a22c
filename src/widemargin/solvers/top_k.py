"""Top-k multiclass SVM by dual coordinate ascent, one row a block.

    minimise  ½‖W‖² + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   s_i = W x_i

with a top-k hinge φ; for k = 1 this is the multiclass SVM of Crammer and Singer. An intercept is the weight of a
constant feature of value `bias`, and part of the penalty. Stops when the certified relative gap, primal at the weights
returned and dual at the dual variables returned, is at most `tol`. Memory: W, twice in float32, and the dual variables
that are not 0.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.reference.top_k_ascent import ascend, bounds, weights_of
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status

__all__ = ["solve_top_k"]


def solve_top_k(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    *,
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    callback: Callback | None = None,
    time_limit: float | None = None,
) -> SolverResult:
    """Train, and certify what is returned.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    y : ndarray of int64 of shape (n_samples,)
        Class of each row, 0 … n_classes − 1.
    n_classes : int
        Number of classes; some may have no row.
    loss : TopKHinge
        The loss of a row's margins; its k is at most n_classes − 1.
    costs : ndarray of shape (n_samples,)
        C_i ≥ 0; rows of cost 0 count as absent.
    bias : float
        Value of the constant feature; 0 for none.
    tol : float
        Relative gap to reach.
    max_iter : int
        Passes over the rows at most.
    seed : int
        Of the order in which rows are visited.
    n_threads : int
        Threads of evaluations; the ascent is sequential. Results do not depend on it.
    start : csr_array of shape (n_samples, n_classes) or None
        Dual variables to start from, feasible for `loss` and `costs`; 0 at the true classes.
    callback : callable or None
        Called with a `Progress` after evaluations; stops the solver when true.
    time_limit : float or None
        Seconds after which the solver stops.

    Returns
    -------
    SolverResult
        `coef` (n_classes, n_features), `intercept` (n_classes,), and `dual`, a csr_array (n_samples, n_classes) of the
        dual variables of the wrong classes.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k import solve_top_k
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([0, 1, 2])
    >>> result = solve_top_k(X, y, 3, TopKHinge(k=1), np.ones(3), tol=1e-6)
    >>> (X @ result.coef.T).argmax(axis=1).tolist(), result.certificate.relative_gap <= 1e-6
    ([0, 1, 2], True)
    """
    began = time.monotonic()
    rows = np.asarray(X.todense() if sp.issparse(X) else X, dtype=np.float64)
    rows = np.hstack([rows, np.full((len(rows), 1), bias)])
    x = np.zeros((len(y), n_classes)) if start is None else np.asarray(start.todense(), dtype=np.float64)
    rng = np.random.default_rng(seed)
    n_iter, reached = ascend(rows, y, x, costs, loss, tol=tol, max_iter=max_iter, rng=rng)
    W = weights_of(rows, y, x)
    primal, dual = bounds(W, rows, y, x, costs, loss)
    at_zero = float(costs @ loss.value(np.ones((len(y), n_classes - 1))))
    if callback is not None:
        callback(Progress(n_iter, max_iter, time.monotonic() - began, primal, dual))
    return SolverResult(
        coef=W[:, :-1],
        intercept=bias * W[:, -1],
        dual=sp.csr_array(x),
        certificate=Certificate(primal, dual, at_zero, primal),
        history=History({"iteration": np.array([n_iter]), "primal": np.array([primal]), "dual": np.array([dual])}),
        n_iter=np.array([n_iter]),
        status=Status.CONVERGED if reached else Status.MAX_ITER,
    )
