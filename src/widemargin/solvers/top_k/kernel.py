"""Top-k multiclass SVM with a kernel by dual coordinate ascent, one row per block, with cached scores.

    minimise  ½⟨A, KA⟩ + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   S = KA

with a top-k hinge φ of the margins; A (n × m) is −x for the wrong classes and Σ x for the true one, x the dual
variables. For k = 1 this is the kernel machine of Crammer and Singer. A visit of a row is the exact maximum of the dual
over its x, after which S changes by a column of K for every changed class. Rows that do not change sleep for some
passes. The solver stops when the relative gap, computed in float64 from the dual variables that are returned, is at
most `tol`.

S and K are float32; both are float64 for tolerances below 1e-5 and where float32 makes no more progress. Memory: 4 m n
bytes of scores, and K if its 4 n² bytes fit in `cache_size_mb`; otherwise as many of its columns as fit, and the others
are recomputed when they are needed. A kernel with negative curvature is refused with a NotPositiveDefiniteError (see
`widemargin.problems.kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin._docstrings import with_shared_passages
from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, check_positive_semidefinite
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers.kernel_matrix import KernelMatrix, signed, wrong_classes
from widemargin.solvers.limits import GROWTH_GAP, Limits, best_growth, best_multiple, history_of
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["solve_kernel_top_k"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SINGLE_TOL = 1e-5  # below, float32 scores are not enough
LARGEST_COST = 1e300  # of all rows together: sums of losses must be finite
SINGLE_LARGEST = 1e30  # largest kernel value kept as float32
SLEEP_SHARE = 0.5  # of the mean gap per row; 0.1 to 0.5 were alike, 2 was slower
FIRST_EVALUATION = 5  # passes
HASTE = 0.8  # share of the passes expected up to the tolerance before the next evaluation
PAST = 0.75  # of the passes so far: the fall of the gap, which goes up and down, is measured from that far back
GROWTH = 0.5  # largest number of passes until the next evaluation, relative to the passes so far
STALLED = 64  # passes after which the gap should halve while they double
NOISE = 100.0  # times the rounding of scores, weighted by costs: float32 does not limit a gap above this
REFRESH = 200  # passes after which float32 scores are recomputed; sooner where the gap stalls
SHARE = 0.99  # share of the tolerance that the gap by the running scores must reach before it is certified
WORK = 50_000_000  # multiplications between two looks at the clock: about 20 ms
EPOCH_DONE, COLUMNS_WANTED = 0, 1  # return values of the core's run()


@with_shared_passages
def solve_kernel_top_k(
    kernel: TrainingKernel | PrecomputedKernel,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    *,
    intercept_scaling: float = 0.0,
    cache_size_mb: float = 512.0,
    tol: float = 1e-3,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    callback: Callback | None = None,
    margins: npt.NDArray[np.float64] | None = None,
    rescale: bool = True,
) -> SolverResult:
    """Train, and certify the result.

    Parameters
    ----------
    kernel : TrainingKernel or PrecomputedKernel
        The kernel matrix of the training rows.
    <top_k_classes>
    intercept_scaling : float
        Value of a constant feature, which adds intercept_scaling² to the kernel; 0 for none.
    cache_size_mb : float
        Memory for kernel values that are kept.
    <top_k_passes>
    n_threads : int
        Threads of kernel values and certificate; the ascent is sequential. Results do not depend on it.
    <top_k_start>
    <top_k_callback>
    margins : ndarray of shape (n_samples, n_classes) or None
        Margins b_ij to ask for instead of 1, z_ij = b_ij + s_ij − s_{i,y_i}; those of the true classes are not read.
    rescale : bool
        Whether coefficients that are worse than zero, or that rounding left just short of their margins, are replaced
        by their best multiple; otherwise they follow from the dual variables.

    Returns
    -------
    SolverResult
        `coef` is a csr_array (n_samples, n_classes) of the coefficients a_ij of the kernel's columns, `intercept`
        (n_classes,) = intercept_scaling² Σ_i a_ij; `dual` is a csr_array of the same shape, the dual variables of the
        wrong classes. The history has one row per evaluation.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import TrainingKernel, make_kernel
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.kernel import solve_kernel_top_k
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 2])
    >>> K = TrainingKernel(X, make_kernel("rbf", gamma=2.0))
    >>> result = solve_kernel_top_k(K, y, 3, TopKHinge(k=1), np.full(4, 10.0), tol=1e-6)
    >>> scores = K.columns(slice(None)) @ result.coef.toarray()
    >>> scores.argmax(axis=1).tolist(), result.certificate.relative_gap <= 1e-6
    ([0, 1, 0, 2], True)
    """
    if len(y) != kernel.n_rows or len(costs) != kernel.n_rows:
        raise ValueError(
            f"the kernel has {kernel.n_rows} rows, y has {len(y)} and costs has {len(costs)}; they must be equal"
        )
    if not 1 <= loss.k <= n_classes - 1:
        raise ValueError(
            f"k={loss.k} is too large, because there are only {n_classes - 1} wrong class(es); use a smaller k"
        )
    if costs.max() > LARGEST_COST / len(costs):
        raise ValueError(
            f"C times the weight of a row is {costs.max():g}, so the sum of the losses may overflow; use a smaller C"
        )
    with threadpool_limits(limits=1, user_api="blas"):
        check_positive_semidefinite(kernel, seed)
        matrix = KernelMatrix(kernel, intercept_scaling, max(1, n_threads))
        run = _Run(matrix, y, n_classes, loss, costs, margins, tol, seed, cache_size_mb * 2**20)
        return run.solve(start, Limits(max_iter, callback), rescale)


class _Run:
    """One problem on the way to its solution."""

    def __init__(
        self,
        matrix: KernelMatrix,
        y: Ints,
        n_classes: int,
        loss: TopKHinge,
        costs: Floats,
        margins: Floats | None,
        tol: float,
        seed: int,
        cache_bytes: float,
    ) -> None:
        self.matrix, self.y, self.n_classes, self.loss = (
            matrix,
            np.ascontiguousarray(y, dtype=np.int64),
            n_classes,
            loss,
        )
        self.costs, self.tol = np.ascontiguousarray(costs, dtype=np.float64), tol
        self.margins = None if margins is None else np.ascontiguousarray(margins, dtype=np.float64)
        self.seed, self.cache_bytes = seed % 2**63, cache_bytes
        self.diagonal = matrix.diagonal()
        fits = self.diagonal.max(initial=0.0) <= SINGLE_LARGEST
        self.dtype: type[np.float32] | type[np.float64] = np.float32 if fits and tol >= SINGLE_TOL else np.float64
        self.n_epochs = self.refreshed = 0
        self.rows: list[tuple[float, ...]] = []  # of the history

    def solve(self, start: Any, limits: Limits, rescale: bool) -> SolverResult:
        """Ascend until the tolerance or a limit is reached."""
        self.limits, self.max_iter = limits, limits.max_iter
        n = len(self.y)
        x = sp.csr_array((n, self.n_classes)) if start is None else sp.csr_array(start, dtype=np.float64)
        x.sort_indices()
        self._begin(x, None if x.nnz == 0 else self._bounds(x)[2])
        certified = None
        while (status := self._ascend()) is Status.CONVERGED:
            x = self._duals()
            primal, dual, scores = certified = self._bounds(x)
            if primal - dual <= self.tol * max(abs(primal), abs(dual)):
                break
            certified = None
            if self.n_epochs >= self.max_iter:
                status = Status.MAX_ITER
                break
            self._go_on(x, scores)
        x = self._duals()
        primal, dual, scores = certified or self._bounds(x)
        A = signed(x, self.y)
        shrink, unfinished = primal > self._at_zero(), status in (Status.MAX_ITER, Status.NOT_ATTAINED)
        if rescale and (shrink or (unfinished and primal - dual <= GROWTH_GAP * self._at_zero())):
            A, primal = self._rescaled(A, scores, best_multiple if shrink else best_growth)
            if primal - dual <= self.tol * max(abs(primal), abs(dual)):
                status = Status.CONVERGED
        return self._result(A, x, primal, dual, status)

    def _rescaled(
        self, A: sp.csr_array, scores: Floats, best: Callable[[Callable[[float], float]], float]
    ) -> tuple[sp.csr_array, float]:
        """The multiple of coefficients that `best` finds for their objective, and its objective."""
        asked = np.ones((len(self.y), self.n_classes - 1))
        if self.margins is not None:
            asked = wrong_classes(self.margins, self.y)
        change = margins_of_wrong_classes(scores, self.y) - 1.0
        squares = self.matrix.squared_norm(A, scores)

        def objective(t: float) -> float:
            return 0.5 * t * t * squares + float(self.costs @ self.loss.value(asked + t * change))

        factor = best(objective)
        A = sp.csr_array(factor * A)
        A.eliminate_zeros()
        return A, objective(factor)

    def _begin(self, x: sp.csr_array, scores: Floats | None) -> None:
        """Set up the core in the present precision. Sets: core, threshold, switched, next_evaluation, gaps."""
        whole, n_slots = self.matrix.room(self.cache_bytes, self.dtype)
        make = _core.KernelAscentSingle if self.dtype is np.float32 else _core.KernelAscentDouble
        alpha, smoothing = self.loss.variant == "alpha", self.loss.smoothing
        self.core = make(
            self.y,
            self.n_classes,
            self.costs,
            self.diagonal,
            self.loss.k,
            alpha,
            smoothing,
            self.seed,
            n_slots,
            self.margins,
        )
        if whole:
            self.core.use_matrix(self.matrix.whole(self.dtype))
        if scores is not None:
            self._set_duals(x, scores)
        self.threshold, self.switched = 0.0, self.n_epochs
        self.next_evaluation = self.n_epochs + FIRST_EVALUATION
        self.gaps: list[tuple[int, float]] = []  # passes and gap of the evaluations in this precision

    def _set_duals(self, x: sp.csr_array, scores: Floats) -> None:
        arrays = x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data
        self.core.set_duals(*arrays, scores)
        self.refreshed = self.n_epochs

    def _go_on(self, x: sp.csr_array, scores: Floats) -> None:
        """After a certificate that missed: fresh scores, in float64 if float32 has stalled."""
        rounding = float(np.finfo(np.float32).eps * (self.costs @ np.abs(scores).max(axis=1)))
        if self.dtype is np.float32 and self._is_stalled() and self.gaps[-1][1] <= NOISE * rounding:
            self.dtype = np.float64
            self._begin(x, scores)
        else:
            self._set_duals(x, scores)
            self.next_evaluation = self.n_epochs + max(1, self.n_epochs // 10)

    def _is_at_rounding(self) -> bool:
        """Whether float64 can no longer tell the present weights from the optimum."""
        primal, dual, scores = self._bounds(self._duals())
        rounding = float(np.finfo(np.float64).eps * (self.costs @ np.abs(scores).max(axis=1)))
        return primal - dual <= NOISE * rounding

    def _is_stalled(self) -> bool:
        """Whether the gap did not halve in the second half of many passes."""
        now, gap = self.gaps[-1]
        past = [larger for passes, larger in self.gaps if 2 * (passes - self.switched) <= now - self.switched]
        return now - self.switched >= STALLED and bool(past) and gap > 0.5 * min(past)

    def _ascend(self) -> Status:
        """Passes until the gap by the running scores is small; CONVERGED must then be certified."""
        while self.n_epochs < self.max_iter:
            self.core.begin_epoch(self.threshold)
            self.n_epochs += 1
            if not self._finish_epoch():
                return Status.TIME_LIMIT
            if self.n_epochs < min(self.next_evaluation, self.max_iter):
                continue
            if (status := self._evaluate()) is not None:
                return status
            if self.dtype is np.float64 and self._is_stalled() and self._is_at_rounding():
                return Status.NOT_ATTAINED
            age = self.n_epochs - self.refreshed
            if self.dtype is np.float32 and age >= (STALLED if self._is_stalled() else REFRESH):
                return Status.CONVERGED if self.n_epochs < self.max_iter else Status.MAX_ITER
        return Status.MAX_ITER

    def _finish_epoch(self) -> bool:
        """False when the time is over."""
        while True:
            ended = self.core.run(WORK)
            if self.limits.is_out_of_time:
                return False
            if ended == EPOCH_DONE:
                return True
            if ended == COLUMNS_WANTED:
                self.core.lend_columns(self.matrix.columns(self.core.wanted(), self.dtype))

    def _evaluate(self) -> Status | None:
        """Gap by the running scores, a row of the history, the callback. Sets: threshold, gaps, next_evaluation."""
        gap, dual = self.core.evaluate()
        primal = dual + gap
        elapsed = self.limits.elapsed_s
        self.rows.append((self.n_epochs, elapsed, primal, dual, self.core.n_active))
        self.gaps.append((self.n_epochs, gap))
        reached = self.limits.reached(self.n_epochs, elapsed, primal, dual)
        if reached not in (None, Status.MAX_ITER):
            return reached
        target = SHARE * self.tol * max(abs(primal), abs(dual))
        if gap <= target:
            return Status.CONVERGED
        self.threshold = SLEEP_SHARE * gap / len(self.y)
        self.next_evaluation = self.n_epochs + self._passes_left(target)
        return None

    def _passes_left(self, target: float) -> int:
        """Passes until the next evaluation, if the gap keeps falling as it did lately."""
        at_most = max(1, int(GROWTH * self.n_epochs))
        now, gap = self.gaps[-1]
        past = [point for point in self.gaps if point[0] <= PAST * now and point[1] > gap]
        if not past:
            return at_most
        before, larger = past[-1]
        left = HASTE * (now - before) * math.log(gap / target) / math.log(larger / gap)
        return max(1, min(at_most, int(left)))

    def _duals(self) -> sp.csr_array:
        indptr, indices, data = self.core.duals()
        return sp.csr_array((data, indices, indptr), shape=(len(self.y), self.n_classes))

    def _bounds(self, x: sp.csr_array) -> tuple[float, float, Floats]:
        return self.matrix.bounds(x, self.y, self.costs, self.loss, self.margins)

    def _at_zero(self) -> float:
        """Objective at zero scores."""
        if self.margins is None:
            return float(self.costs.sum() * self.loss.value(np.ones((1, self.n_classes - 1)))[0])
        return float(self.costs @ self.loss.value(wrong_classes(self.margins, self.y)))

    def _result(self, A: sp.csr_array, x: sp.csr_array, primal: float, dual: float, status: Status) -> SolverResult:
        elapsed = self.limits.elapsed_s
        rows = [*self.rows, (self.n_epochs, elapsed, primal, dual, self.core.n_active)]
        names = ("iteration", "seconds", "primal", "dual", "active_rows")
        return SolverResult(
            coef=A,
            intercept=self.matrix.shift * np.asarray(A.sum(axis=0)).ravel(),
            dual=x,
            certificate=Certificate(primal, dual, self._at_zero(), primal),
            history=history_of(rows, names, whole=("iteration", "active_rows")),
            n_iter=np.array([self.n_epochs]),
            status=status,
        )
