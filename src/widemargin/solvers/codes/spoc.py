"""SPOC: the l2 code for outputs of given classifiers, linear or in the space of a kernel (Crammer and Singer 2002).

    minimise  ½‖M‖² + Σ_i C_i ξ_i,     ξ_i = max_r (b_ir + ⟨h_i, M_r − M_{y_i}⟩),   b_{i,y_i} = 0, b_ir = 1 unless given

Dual ascent, one example per step: the exact O(k log k) solution of its reduced problem (figure 3). Where h(x) = x this
is the multiclass SVM. Without a kernel the code M is explicit and the loop is compiled, stop test included: passes over
rows that are not at rest, and steps on the face of the dual (`cpp/spoc.hpp` says what was tried, and
`widemargin.reference.spoc` is the specification). With a kernel, M is Σ_i τ_i φ(h_i): the scores of all rows are kept,
a visit moves them by one column of the kernel matrix, and columns are kept as far as `cache_size_mb` goes; that is the
ascent of `widemargin.solvers.top_k.kernel` with k = 1 and margins b. `order="worst-first"` is the paper's choice of the
next example instead, the one with the largest violation (`cpp/spoc_worst_first.hpp`).

All stop when the relative gap, computed from the dual variables that are returned, is at most `tol`. Where rounding
could matter to it, the bounds are computed again in extended precision; a gap that is then above `tol`, or that
rounding keeps from falling, has the status NOT_ATTAINED. Memory: a few arrays (n, k), and the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import Kernel, PrecomputedKernel, TrainingKernel, check_positive_semidefinite
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.reference.spoc import bounds, signed, solve
from widemargin.solvers.limits import Limits, history_of
from widemargin.solvers.result import Callback, Progress, SolverResult, Status
from widemargin.solvers.top_k.kernel import LARGEST_COST, solve_kernel_top_k
from widemargin.solvers.top_k.linear import solve_top_k

__all__ = ["CAREFUL", "kernel_scores", "rounding_of_losses", "signed_duals", "solve_spoc"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LARGEST_ROOT = 1e145  # of sums of C ‖h‖²: squares of scores must be finite, too
ROUGH_TOL = 1e-4
LARGE = 200_000
"""Size of the product h M' from which, for tolerances of at least `ROUGH_TOL`, the problem is left to `solve_top_k`,
whose weights are averages, in float32. Seconds of ours and its to 1e-3, then to 1e-6: digits .48 and .05, .46 and .65;
5,000 rows of letter .59 and .03, .89 and 1.3; 2,000 rows of 10 classes and 15 columns .13 and .06, .31 and .83."""
SLICE_S = 0.1  # seconds between looks at signals
ENDS = {0: Status.CONVERGED, 1: Status.MAX_ITER, 3: Status.NOT_ATTAINED}  # what the core's run() ends with; 2: paused
CAREFUL = 1e-10
"""Share of the objective: where rounding of the scores may change the losses by more, or by more than a tenth of what
`tol` allows, bounds are computed again in extended precision."""
UNSEEN = 100.0  # times rounding: changes of 1e-14 of C are not made with a kernel, and gaps of this size stay
BLOCK_ENTRIES = 1 << 22  # of kernel values held at once for that
COLUMNS = ("iteration", "seconds", "primal", "dual", "active_rows")


def solve_spoc(
    h: npt.NDArray[np.float64],
    y: npt.NDArray[np.int64],
    n_classes: int,
    costs: npt.NDArray[np.float64],
    *,
    margins: npt.NDArray[np.float64] | None = None,
    kernel: Kernel | TrainingKernel | PrecomputedKernel | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    callback: Callback | None = None,
    cache_size_mb: float = 512.0,
    order: Literal["random", "worst-first"] = "random",
    backend: str = "core",
) -> SolverResult:
    """Learn the code, and certify what is returned.

    Parameters
    ----------
    h : ndarray of shape (n_samples, n_columns)
        Outputs of the classifiers, float64; not read where `kernel` has its rows already.
    y : ndarray of int64 of shape (n_samples,)
        Class of each row, 0 … n_classes − 1.
    n_classes : int
        Number of classes, at least 2; some may have no row.
    costs : ndarray of shape (n_samples,)
        C_i ≥ 0; rows of cost 0 count as absent.
    margins : ndarray of shape (n_samples, n_classes) or None
        b, any numbers, 0 for the true class; None for 1 at the wrong classes.
    kernel : Kernel, TrainingKernel, PrecomputedKernel or None
        A kernel of outputs, or a kernel matrix of the rows; None for the inner product.
    tol : float
        Relative gap to reach.
    max_iter : int
        Passes over the rows at most.
    seed : int
        Of the order in which rows are visited; "worst-first" has no chance in it.
    n_threads : int
        Threads of kernel values and certificate; the ascent is sequential. Results do not depend on it.
    start : ndarray or csr_array of shape (n_samples, n_classes) or None
        Dual variables to start from, of the wrong classes, at least 0, with sums of rows up to `costs`.
    callback : callable or None
        Called with a `Progress` after evaluations; stops the solver when true.
    cache_size_mb : float
        Room for kernel values that are kept; not used without a kernel.
    order : {"random", "worst-first"}
        Passes over the rows in random order, or always the row with the largest violation of the optimality
        conditions, as in the paper: fewer visits and more time, because each choice looks at all rows. The whole
        kernel matrix must then fit in `cache_size_mb`.
    backend : {"core", "reference"}
        The compiled solver, or its specification in NumPy, worst first (slow; without callback and limit of time).

    Returns
    -------
    SolverResult
        `coef` (n_classes, n_columns) is M, or None with a kernel; it follows from `dual` except for large problems that
        are solved roughly (`LARGE`, `ROUGH_TOL`), where it is an average over passes, and after a limit, where it is
        the best code seen, 0 included. `dual` (n_samples, n_classes) holds η of the wrong classes, 0 at the true ones,
        so that τ is −η there and the sum of η at the true class.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.codes.spoc import solve_spoc
    >>> h, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([0, 1, 2])
    >>> result = solve_spoc(h, y, 3, np.ones(3))
    >>> (h @ result.coef.T).argmax(axis=1).tolist(), result.certificate.relative_gap <= 1e-6
    ([0, 1, 2], True)
    """
    if order not in ("random", "worst-first"):
        raise ValueError(f"order must be 'random' or 'worst-first'; got {order!r}")
    rows, asked = np.ascontiguousarray(h, dtype=np.float64), None if margins is None else np.ascontiguousarray(margins)
    problem = _Problem(rows, np.ascontiguousarray(y), n_classes, np.ascontiguousarray(costs), asked)
    problem.check()
    matrix = TrainingKernel(h, kernel) if isinstance(kernel, Kernel) else kernel
    if backend == "reference":
        result = problem.solve_by_reference(matrix, tol, max_iter, start)
    elif order == "worst-first":
        K = None if matrix is None else problem.whole_matrix(matrix, cache_size_mb, seed)
        core = _core.SpocWorstFirst(problem.h, problem.y, n_classes, problem.costs, problem.margins, K)
        result = problem.solve(core, tol, max_iter, start, callback)
    elif matrix is None and problem.suits_top_k(tol):
        found = solve_top_k(
            problem.h, problem.y, n_classes, TopKHinge(1), problem.costs, tol=tol, max_iter=max_iter, seed=seed,
            n_threads=n_threads, start=None if start is None else sp.csr_array(start), callback=callback,
        )  # fmt: skip
        result = replace(found, coef=found.coef.astype(np.float64), dual=found.dual.toarray())
    elif matrix is None:
        ascent = _core.SpocAscent(problem.h, problem.y, n_classes, problem.costs, problem.margins, seed % 2**63)
        result = problem.solve(ascent, tol, max_iter, start, callback)
    else:
        found = solve_kernel_top_k(
            matrix, y, n_classes, TopKHinge(1), costs, margins=margins, tol=tol, max_iter=max_iter, seed=seed,
            n_threads=n_threads, start=None if start is None else sp.csr_array(start), callback=callback,
            cache_size_mb=cache_size_mb, rescale=False,
        )  # fmt: skip
        result = replace(found, coef=None, dual=found.dual.toarray())
    return problem.settled(result, matrix, tol)


@dataclass(frozen=True)
class _Problem:
    """What is minimised; names as in `solve_spoc`."""

    h: Floats
    y: Ints
    n_classes: int
    costs: Floats
    margins: Floats | None

    def check(self) -> None:
        """Refuse what would have no meaning, or end in numbers that are not finite."""
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be at least 2; got {self.n_classes}")
        largest = float(self.costs.max(initial=0.0))
        if largest > LARGEST_COST / max(1, len(self.costs)):
            raise ValueError(f"C times the weight of a row is {largest:g}, too large for sums of losses; use less")
        size = float(np.abs(self.h).max(initial=0.0))
        if not size * math.sqrt(max(1.0, largest) * self.h.size) < LARGEST_ROOT:
            raise ValueError(f"outputs of size {size:g} are too large for this C, their squares overflow; scale them")

    def suits_top_k(self, tol: float) -> bool:
        """Whether it is a large multiclass SVM to be solved roughly: the linear top-k solver with k = 1 is faster."""
        large = self.h.size * self.n_classes >= LARGE
        return self.margins is None and tol >= ROUGH_TOL and large and bool(self.costs.any())

    def asked(self) -> Floats:
        """b, shape (n_samples, n_classes)."""
        if self.margins is not None:
            return self.margins
        b = np.ones((len(self.y), self.n_classes))
        b[np.arange(len(self.y)), self.y] = 0.0
        return b

    def at_zero(self) -> float:
        """Objective of the code 0."""
        if self.margins is None:
            return float(self.costs.sum())
        return float(self.costs @ np.maximum(self.margins.max(axis=1), 0.0))

    def solve(self, ascent: Any, tol: float, max_iter: int, start: Any, callback: Callback | None) -> SolverResult:
        """By one of the core's ascents; a code that missed the tolerance is the best of those seen and 0."""
        if start is not None:
            ascent.set_duals(np.ascontiguousarray(start.toarray() if sp.issparse(start) else start, dtype=np.float64))
        status = _ascend(ascent, tol, max_iter, callback)
        primal, dual = ascent.certify()
        code, best = (self._rows_of(values) for values in (ascent.code(), ascent.best_code()))
        if status is not Status.CONVERGED and code is not None:
            others = [np.zeros(code.shape)] if best is None else [best, np.zeros(code.shape)]
            for other in others:
                if (value := self.objective(other)) < primal:
                    code, primal = other, value
        rows = ascent.records().reshape(-1, len(COLUMNS)).tolist()
        rows.append([ascent.n_passes, ascent.elapsed, primal, dual, rows[-1][-1] if rows else len(self.y)])
        eta = ascent.eta().reshape(len(self.y), self.n_classes)
        return self._result(code, eta, primal, dual, rows, status)

    def _rows_of(self, transposed: Floats) -> Floats | None:
        """A code (n_classes, n_columns) from what the core gives; None for an empty one."""
        return np.ascontiguousarray(transposed.reshape(-1, self.n_classes).T) if len(transposed) else None

    def objective(self, code: Floats, dtype: Any = np.float64) -> float:
        """P of an explicit code, computed from its entries alone."""
        matrix = code.astype(dtype)
        return self._loss(self.h.astype(dtype) @ matrix.T) + 0.5 * float((matrix * matrix).sum())

    def _loss(self, scores: npt.NDArray[Any]) -> float:
        """Σ C_i ξ_i of these scores."""
        own = scores[np.arange(len(self.y)), self.y][:, None]
        return float(self.costs @ (self.asked() + (scores - own)).max(axis=1))

    def whole_matrix(self, kernel: TrainingKernel | PrecomputedKernel, cache_size_mb: float, seed: int) -> Floats:
        """K (n_samples, n_samples) for the core, after a look at its curvature."""
        if 8 * len(self.y) ** 2 > cache_size_mb * 2**20:
            raise ValueError(
                f"order='worst-first' needs the whole kernel matrix, {8 * len(self.y) ** 2 / 2**20:.0f} MB; raise "
                "cache_size_mb, or use order='random'"
            )
        check_positive_semidefinite(kernel, seed)
        return np.ascontiguousarray(kernel.columns(slice(None)), dtype=np.float64)

    def settled(
        self, result: SolverResult, kernel: TrainingKernel | PrecomputedKernel | None, tol: float
    ) -> SolverResult:
        """The result with bounds that rounding has no part in, and CONVERGED only if these are within `tol`."""
        certificate, status = result.certificate, result.status
        size = max(abs(certificate.primal), abs(certificate.dual))
        squares = (self.h**2).sum(axis=1) if kernel is None else kernel.diagonal()
        noise = rounding_of_losses(squares, self.costs, result.dual.sum(axis=1))
        if noise > min(CAREFUL, 0.1 * tol) * size:
            primal, dual = self._extended(result, kernel)
            certificate = replace(certificate, primal=primal, dual=dual, primal_before_pruning=primal)
        missed = certificate.relative_gap > tol
        seen = noise if kernel is None else UNSEEN * noise
        only_rounding = certificate.gap <= seen or noise > size
        if missed and (status is Status.CONVERGED or (status is Status.MAX_ITER and only_rounding)):
            status = Status.NOT_ATTAINED
        elif status in (Status.MAX_ITER, Status.NOT_ATTAINED) and not missed:
            status = Status.CONVERGED  # by the best code seen
        return replace(result, certificate=certificate, status=status)

    def _extended(self, result: SolverResult, kernel: TrainingKernel | PrecomputedKernel | None) -> tuple[float, float]:
        """P of the code as stored and D of the dual variables in extended precision, where NumPy has one."""
        tau = signed_duals(result.dual.astype(np.longdouble), self.y)
        if kernel is None:
            matrix = tau.T @ self.h.astype(np.longdouble)
            primal, squares = self.objective(result.coef, np.longdouble), float((matrix * matrix).sum())
        else:
            stored = signed_duals(result.dual, self.y).astype(np.longdouble)  # with sums that are rounded
            scores = kernel_scores(kernel, stored)
            primal = self._loss(scores) + 0.5 * _squared_norm(stored, scores)
            squares = _squared_norm(tau, kernel_scores(kernel, tau))
        return primal, float((self.asked() * result.dual).sum() - 0.5 * squares)

    def solve_by_reference(
        self, kernel: TrainingKernel | PrecomputedKernel | None, tol: float, max_iter: int, start: Any
    ) -> SolverResult:
        """By the specification; an iteration is as many steps as there are rows."""
        n = len(self.y)
        eta = np.zeros((n, self.n_classes)) if start is None else np.array(start, dtype=np.float64)
        eta[np.arange(n), self.y] = 0.0
        eta[np.arange(n), self.y] = self.costs - eta.sum(axis=1)
        K, b = (self.h @ self.h.T if kernel is None else kernel.columns(slice(None))), self.asked()
        steps, reached = solve(K, self.y, b, self.costs, eta, tol=tol, max_iter=n * max_iter)
        primal, dual = bounds(K, self.y, b, self.costs, eta)
        code = None if kernel is not None else signed(eta, self.y, self.costs).T @ self.h
        rows = [[steps // n, 0.0, primal, dual, n]]
        return self._result(code, eta, primal, dual, rows, Status.CONVERGED if reached else Status.MAX_ITER)

    def _result(
        self, code: Floats | None, eta: Floats, primal: float, dual: float, rows: list[list[float]], status: Status
    ) -> SolverResult:
        eta[np.arange(len(self.y)), self.y] = 0.0
        return SolverResult(
            coef=code,
            intercept=np.zeros(self.n_classes),
            dual=eta,
            certificate=Certificate(primal, dual, self.at_zero(), primal),
            history=history_of(rows, COLUMNS, whole=("iteration", "active_rows")),
            n_iter=np.array([int(rows[-1][0])]),
            status=status,
        )


def signed_duals(x: npt.NDArray[Any], y: Ints) -> npt.NDArray[Any]:
    """τ of η of the wrong classes, both (n_samples, n_classes)."""
    tau = -x
    tau[np.arange(len(x)), y] = x.sum(axis=1)
    return tau


def rounding_of_losses(squares: Floats, costs: Floats, coefficients: Floats) -> float:
    """What rounding may change in Σ C_i ξ_i: that of M, a sum of multiples of rows of squared norms K_ii, in scores."""
    norms = np.sqrt(np.maximum(squares, 0.0))
    return float(np.finfo(np.float64).eps * (costs @ norms) * np.linalg.norm(coefficients * norms))


def _squared_norm(tau: npt.NDArray[Any], scores: npt.NDArray[Any]) -> float:
    """⟨τ, K τ⟩, each class at least 0, as it is without rounding."""
    return float(np.maximum((tau * scores).sum(axis=0), 0.0).sum())


def kernel_scores(kernel: TrainingKernel | PrecomputedKernel, tau: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """K τ (n_samples, n_classes) in the precision of τ, a block of rows at a time."""
    scores, step = np.empty_like(tau), max(1, BLOCK_ENTRIES // len(tau))
    for first in range(0, len(tau), step):
        scores[first : first + step] = kernel.columns(slice(first, first + step)).astype(tau.dtype) @ tau
    return scores


def _ascend(ascent: Any, tol: float, max_iter: int, callback: Callback | None) -> Status:
    """Run until the tolerance or a limit is reached."""
    seen, stopped, limits = 0, False, Limits(max_iter, callback)
    while True:
        slice_s = min(SLICE_S, max(limits.seconds_left, 0.0))
        ended = ascent.run(tol, max_iter, ascent.elapsed + slice_s, callback is not None)
        records = ascent.records() if callback is not None else np.empty(0)
        if callback is not None and len(records) > seen:
            seen = len(records)
            n_iter, elapsed, primal, dual, _ = records[-len(COLUMNS) :].tolist()
            stopped = callback(Progress(int(n_iter), max_iter, elapsed, primal, dual))
        if ended in ENDS:
            return ENDS[ended]
        if limits.is_out_of_time:
            return Status.TIME_LIMIT
        if stopped:
            return Status.STOPPED
