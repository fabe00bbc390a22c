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

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.reference.top_k_ascent import ascend, bounds, weights_of
from widemargin.solvers._top_k_face import face_step, with_constant
from widemargin.solvers._top_k_progress import TopKProgress
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["solve_top_k"]

FLOAT32_TOL = 1e-5
"""Below this gap rounding of float32 weights is felt: on digits with C = 1 it stays above 1e-5."""
DENSE_FILL = 0.75
"""Dense rows with a smaller share of values that are not 0 are better off sparse."""
LATE_PASSES = 2000
"""Passes after which a step on the face is tried with float32 weights, too."""
FACE_ITERATIONS, LEAST_ITERATIONS = 200, 20
"""Conjugate gradients of a step on the face, at most and at least."""
FACE_COST = 4
"""Visits of a row that cost as much as its part in one of them: a step costs no more than all that came before."""
FACE_VALUES = 4_000_000
"""Dual variables of the rows that have any, up to which a step on the face is tried: 32 MB an array."""
SLICE_S = 0.1
"""The ascent comes back to Python after so many seconds, to see to signals and to the clock."""


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
    problem = _Problem(_rows(X), y.astype(np.int32), np.ascontiguousarray(costs), n_classes, loss, bias)
    progress = TopKProgress(tol, max_iter, callback, time_limit)
    ascent = _Ascent(problem, np.float32 if tol >= FLOAT32_TOL else np.float64, seed, n_threads, start)
    while progress.status is None:
        _advance(ascent.core, progress)
        progress.record(ascent.core.evaluate(), ascent.core.n_active, ascent.core.n_visits)
        if progress.looks_reached:
            progress.accept(ascent.certify())
        if progress.status is None and progress.stalls and ascent.dtype == np.float32:
            ascent = _Ascent(problem, np.float64, seed, n_threads, ascent.duals())
            progress.restart()
        elif progress.status is None and progress.wants_face_step:
            ascent.step_on_face(progress)
    return ascent.result(progress)


def _advance(core: Any, progress: TopKProgress) -> None:
    """Passes up to the next evaluation, a slice of time after another."""
    while progress.passes_to_go > 0 and not progress.is_out_of_time:
        progress.passes += core.run(progress.passes_to_go, min(SLICE_S, progress.seconds_left))


def _rows(X: Any) -> Any:
    """X as csr_array with int32 columns, or as dense rows in C order."""
    if not sp.issparse(X) and np.count_nonzero(X) >= DENSE_FILL * X.size:
        return np.ascontiguousarray(X)
    rows = sp.csr_array(X)
    if rows.indices.dtype != np.int32:
        parts = (rows.data, rows.indices.astype(np.int32), rows.indptr)
        rows = sp.csr_array(parts, shape=rows.shape)
        rows.indices = rows.indices.astype(np.int32, copy=False)
    return rows


@dataclass(frozen=True)
class _Problem:
    """What is solved; `rows` as `_rows` makes them, y int32, costs float64."""

    rows: Any
    y: npt.NDArray[np.int32]
    costs: npt.NDArray[np.float64]
    n_classes: int
    loss: TopKHinge
    bias: float

    @property
    def values(self) -> npt.NDArray[Any]:
        """The data of the rows in one dimension."""
        flat: npt.NDArray[Any] = self.rows.data if sp.issparse(self.rows) else self.rows.reshape(-1)
        return flat

    def objective_at_zero(self) -> float:
        """The objective of zero weights: every margin is 1."""
        return float(self.costs.sum() * self.loss.value(np.ones((1, self.n_classes - 1)))[0])


class _Ascent:
    """The compiled ascent in one precision."""

    def __init__(self, problem: _Problem, dtype: Any, seed: int, n_threads: int, start: Any) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        sparse = sp.issparse(problem.rows)
        columns = problem.rows.indices if sparse else np.empty(0, dtype=np.int32)
        starts = problem.rows.indptr.astype(np.int64) if sparse else np.empty(0, dtype=np.int64)
        kind = _core.TopKAscent32 if self.dtype == np.float32 else _core.TopKAscent64
        self.core = kind(
            values=problem.values.astype(self.dtype, copy=False),
            cols=columns,
            start=starts,
            n_features=problem.rows.shape[1],
            bias=problem.bias,
            y=problem.y,
            costs=problem.costs,
            n_classes=problem.n_classes,
            k=problem.loss.k,
            alpha=problem.loss.variant == "alpha",
            smoothing=problem.loss.smoothing,
            seed=seed,
            n_threads=n_threads,
            instruction_set=_core.choose_instruction_set(),
        )
        if start is not None:
            self.start_from(sp.csr_array(start))

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        certified: tuple[float, float] = self.core.certify(self.problem.values)
        return certified

    def step_on_face(self, progress: TopKProgress) -> None:
        """Go on from the best dual variables on the present face, if it is likely to be worth its cost."""
        dual, problem = self.duals(), self.problem
        support = np.flatnonzero(np.diff(dual.indptr))
        # Float32 weights are for loose tolerances, which seldom gain by it.
        late = self.dtype == np.float64 or progress.passes >= LATE_PASSES
        affordable = min(FACE_ITERATIONS, self.core.n_visits // (FACE_COST * max(len(support), 1)))
        if not late or affordable < LEAST_ITERATIONS or len(support) * problem.n_classes > FACE_VALUES:
            return
        rows = with_constant(problem.rows[support].astype(np.float64), problem.bias)
        y, x, costs = problem.y[support].astype(np.int64), dual[support].toarray(), problem.costs[support]
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            x, gain = face_step(rows, y, x, costs, problem.loss, affordable)
        progress.note_face_step(gain)
        if gain > 0.0:
            values = sp.coo_array(x)
            places = (support[values.row], values.col)
            self.start_from(sp.csr_array((values.data, places), shape=dual.shape))

    def start_from(self, dual: Any) -> None:
        """Take dual variables, csr_array (n_samples, n_classes)."""
        parts = (dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data.astype(np.float64))
        self.core.start_from(*parts)

    def duals(self) -> Any:
        """Dual variables of the wrong classes, csr_array (n_samples, n_classes)."""
        starts, classes, values = self.core.duals()
        return sp.csr_array((values, classes, starts), shape=(len(starts) - 1, self.problem.n_classes))

    def result(self, progress: TopKProgress) -> SolverResult:
        """Weights, dual variables and their certificate."""
        primal, dual = progress.certified or self.certify()
        n_classes, n_features = self.problem.n_classes, self.problem.rows.shape[1]
        coef = np.empty((n_classes, n_features), dtype=self.dtype)
        constant = np.empty(n_classes, dtype=self.dtype)
        self.core.read_weights(coef, constant)
        assert progress.status is not None
        return SolverResult(
            coef=coef,
            intercept=self.dtype.type(self.problem.bias) * constant,
            dual=self.duals(),
            certificate=Certificate(primal, dual, self.problem.objective_at_zero(), primal),
            history=progress.history(),
            n_iter=np.array([progress.passes]),
            status=progress.status,
        )


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
