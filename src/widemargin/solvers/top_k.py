"""Top-k multiclass SVM by dual coordinate ascent, one row a block.

    minimise  ½‖W‖² + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   s_i = W x_i

with a top-k hinge φ; for k = 1 this is the multiclass SVM of Crammer and Singer. An intercept is the weight of a
constant feature of value `bias`, and part of the penalty. Rows are visited in random order, a pass after another; rows
whose visits change next to nothing are left out for a while; the weights returned are an average over the last passes.
Stops when the certified relative gap, primal at the weights returned and dual at the dual variables returned, is at
most `tol`. Weights are float32 while that is enough for `tol`, then float64. Memory: W twice, the dual variables that
are not 0 (all of them below 96 classes), and a copy of X where it is of another type than W.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.reference.top_k_ascent import ascend, bounds, weights_of
from widemargin.solvers._top_k_blocks import BlockedAscent, is_wide
from widemargin.solvers._top_k_core import Ascent, TopKProblem
from widemargin.solvers._top_k_progress import TopKProgress
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["solve_top_k"]

FLOAT32_TOL = 1e-5
"""Below this gap rounding of float32 weights is felt: on digits with C = 1 it stays above 1e-5."""


def solve_top_k(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    *,
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    foreseen_passes: int = 0,
    callback: Callback | None = None,
    time_limit: float | None = None,
    backend: str = "core",
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
    foreseen_passes : int
        Passes that a problem as hard took; the gap is not looked at before a good part of them. 0: at once.
    callback : callable or None
        Called with a `Progress` after evaluations; stops the solver when true.
    time_limit : float or None
        Seconds after which the solver stops.
    backend : {"core", "reference"}
        The compiled solver, or its specification in NumPy (slow, dense, float64, without limit of time and callback).

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
    if not 1 <= loss.k < n_classes:
        raise ValueError(f"k={loss.k} must be at least 1 and below the number of classes, {n_classes}")
    if not (costs > 0.0).any():
        raise ValueError("all rows have weight 0; at least one needs a positive weight")
    if backend == "reference":
        return _solve_by_reference(X, y, n_classes, loss, costs, bias, tol, max_iter, seed, start)
    problem = TopKProblem.of(X, y, n_classes, loss, costs, bias)
    progress = TopKProgress(tol, max_iter, callback, time_limit)
    kind = BlockedAscent if is_wide(problem) else Ascent
    single = tol >= FLOAT32_TOL and problem.fits_single()
    ascent = kind(problem, np.float32 if single else np.float64, seed, n_threads, start)
    if start is not None:  # evaluated at once, it may be enough, and tells which rows may sleep
        progress.begin_from_start(foreseen_passes)
    while progress.status is None:
        ascent.advance(progress)
        progress.record(ascent.evaluate(), ascent.core.n_active, ascent.core.n_visits)
        if progress.looks_reached:
            progress.accept(ascent.certify())
        if progress.status is None and progress.stalls and ascent.dtype == np.float32:
            ascent = kind(problem, np.float64, seed, n_threads, ascent.duals())
            progress.restart()
        elif progress.status in (None, Status.MAX_ITER) and progress.stalls and ascent.is_at_rounding():
            progress.status = Status.NOT_ATTAINED
        elif progress.status is None and progress.wants_face_step:
            ascent.step_on_face(progress)
    return ascent.result(progress)


def _solve_by_reference(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    bias: float,
    tol: float,
    max_iter: int,
    seed: int,
    start: Any,
) -> SolverResult:
    rows = np.asarray(X.todense() if sp.issparse(X) else X, dtype=np.float64)
    rows = np.hstack([rows, np.full((len(rows), 1), bias)])
    x = np.zeros((len(y), n_classes)) if start is None else np.asarray(start.todense(), dtype=np.float64)
    progress = TopKProgress(tol, max_iter, None, None)
    rng = np.random.default_rng(seed)
    progress.passes, reached = ascend(rows, y, x, costs, loss, tol=tol, max_iter=max_iter, rng=rng)
    W = weights_of(rows, y, x)
    primal, dual = bounds(W, rows, y, x, costs, loss)
    progress.record((primal, dual), len(y), progress.passes * len(y))
    at_zero = float(costs @ loss.value(np.ones((len(y), n_classes - 1))))
    return SolverResult(
        coef=W[:, :-1],
        intercept=bias * W[:, -1],
        dual=sp.csr_array(x),
        certificate=Certificate(primal, dual, at_zero, primal),
        history=progress.history(),
        n_iter=np.array([progress.passes]),
        status=Status.CONVERGED if reached else Status.MAX_ITER,
    )
