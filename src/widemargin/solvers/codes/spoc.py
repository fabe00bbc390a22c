"""SPOC: the l2 code for outputs of given classifiers, linear or in the space of a kernel (Crammer and Singer 2002).

    minimise  ½‖M‖² + Σ_i C_i ξ_i,     ξ_i = max_r (b_ir + ⟨h_i, M_r − M_{y_i}⟩),   b_{i,y_i} = 0, b_ir = 1 unless given

Dual ascent, one row per step: the exact O(k log k) solution of its reduced problem (figure 3). With h(x) = x this is
the multiclass SVM. Without a kernel the code M is explicit and the loop is compiled, stop test included: passes over
rows that are not at rest (`cpp/codes/ascent.hpp`), and steps on the face of the dual (`cpp/codes/face_step.hpp` says
what was tried). With a kernel, M is Σ_i τ_i φ(h_i): the scores of all rows are kept, a visit moves them by one column
of the kernel matrix, and `cache_size_mb` limits the columns that are kept; that is the ascent of
`widemargin.solvers.top_k.kernel` with k = 1 and margins b. `order="worst-first"` is the paper's choice of the next row
instead, the one with the largest violation (`cpp/codes/worst_first.hpp`).

All stop when the relative gap, computed from the dual variables that are returned, is at most `tol`. Where rounding
could matter to it, the bounds are recomputed in extended precision; a gap that is then above `tol`, or that rounding
keeps from falling, has the status NOT_ATTAINED. Memory: a few arrays (n, k), and the cache.
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
from widemargin.solvers.limits import Limits, history_of
from widemargin.solvers.result import Callback, Progress, SolverResult, Status
from widemargin.solvers.top_k.kernel import LARGEST_COST, solve_kernel_top_k
from widemargin.solvers.top_k.linear import solve_top_k

__all__ = ["CAREFUL", "SoftProblem", "signed_duals", "solve_spoc"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[Any]  # float64 or long double

LARGEST_ROOT = 1e145  # of sums of C ‖h‖²: squares of scores must be finite, too
ROUGH_TOL = 1e-4
LARGE = 200_000
"""Size of the product h M' from which, for tolerances of at least `ROUGH_TOL`, the problem is left to `solve_top_k`,
whose weights are averages, in float32. Seconds of ours and its to 1e-3, then to 1e-6: digits .48 and .05, .46 and .65;
5,000 rows of letter .59 and .03, .89 and 1.3; 2,000 rows of 10 classes and 15 columns .13 and .06, .31 and .83."""
SLICE_S = 0.1  # seconds between looks at signals
ENDS = {0: Status.CONVERGED, 1: Status.MAX_ITER, 3: Status.NOT_ATTAINED}  # what the core's run() returns; 2: paused
CAREFUL = 1e-10
"""Share of the objective: where rounding of the scores may change the losses by more, or by more than a tenth of what
`tol` allows, bounds are recomputed in extended precision."""
UNSEEN = 100.0  # times rounding: changes of 1e-14 of C are not made with a kernel, and gaps of this size stay
BLOCK_ENTRIES = 1 << 22  # of kernel values held at once for that
COLUMNS = ("iteration", "seconds", "primal", "dual", "active_rows")


def solve_spoc(
    h: npt.NDArray[np.float64],
    y: npt.NDArray[np.integer[Any]],
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
) -> SolverResult:
    """Learn the code and certify it.

    Parameters
    ----------
    h : ndarray of shape (n_samples, n_columns)
        Outputs of the classifiers, float64; not read where `kernel` has its rows already.
    y : ndarray of int of shape (n_samples,)
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
        Largest number of passes over the rows.
    seed : int
        Seed of the order in which rows are visited; "worst-first" does not use it.
    n_threads : int
        Threads for kernel values and the certificate; the ascent is sequential. Results do not depend on it.
    start : ndarray or csr_array of shape (n_samples, n_classes) or None
        Dual variables to start from: of the wrong classes, at least 0, with sums of rows up to `costs`.
    callback : callable or None
        Called with a `Progress` after evaluations; stops the solver when it returns true.
    cache_size_mb : float
        Room for kernel values that are kept; not used without a kernel.
    order : {"random", "worst-first"}
        Passes over the rows in random order, or always the row with the largest violation of the optimality
        conditions, as in the paper: that often takes fewer visits but more time, because each choice looks at all rows.
        The whole kernel matrix must then fit in `cache_size_mb`.

    Returns
    -------
    SolverResult
        `coef` (n_classes, n_columns) is M, or None with a kernel; it follows from `dual` except for large problems that
        are solved roughly (`LARGE`, `ROUGH_TOL`), where it is an average over passes, and after a limit, where it is
        the best code seen, 0 included. `dual` (n_samples, n_classes) holds η of the wrong classes, 0 at the true ones:
        τ is −η at the wrong classes, and the sum of η at the true class.

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
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2; got {n_classes}")
    rows, true = np.ascontiguousarray(h, dtype=np.float64), np.ascontiguousarray(y, dtype=np.int64)
    costs, plain = np.ascontiguousarray(costs), np.arange(n_classes) != true[:, None]
    margins = None if margins is None or np.array_equal(margins, plain) else np.ascontiguousarray(margins)
    largest, size = float(costs.max(initial=0.0)), float(np.abs(rows).max(initial=0.0))
    if largest > LARGEST_COST / max(1, len(costs)):
        raise ValueError(
            f"C times the weight of a row is {largest:g}, so the sum of the losses may overflow; use a smaller C"
        )
    if not size * math.sqrt(max(1.0, largest) * rows.size) < LARGEST_ROOT:
        raise ValueError(
            f"outputs of size {size:g} are too large for this C, because their squares overflow; scale down the outputs"
        )
    matrix = TrainingKernel(h, kernel) if isinstance(kernel, Kernel) else kernel
    problem, limits = SoftProblem(rows, true, margins, costs, matrix), Limits(max_iter, callback)
    rough = margins is None and tol >= ROUGH_TOL and rows.size * n_classes >= LARGE and bool(costs.any())
    if order == "worst-first":
        K = None if matrix is None else _whole_matrix(matrix, cache_size_mb, seed)
        worst_first = _core.SpocWorstFirst(rows, true, n_classes, costs, margins, K)
        result = _ascend(worst_first, problem, n_classes, limits, tol, start)
    elif matrix is None and not rough:
        ascent = _core.SpocAscent(rows, true, n_classes, costs, margins, seed % 2**63)
        result = _ascend(ascent, problem, n_classes, limits, tol, start)
    else:  # a multiclass SVM with a kernel, or a large one to be solved roughly: the top-k solvers with k = 1
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "seed": seed, "n_threads": n_threads}
        options |= {"start": None if start is None else sp.csr_array(start), "callback": callback}
        if matrix is None:
            result = solve_top_k(rows, true, n_classes, TopKHinge(1), costs, **options)
        else:
            options |= {"margins": margins, "cache_size_mb": cache_size_mb, "rescale": False}
            result = solve_kernel_top_k(matrix, true, n_classes, TopKHinge(1), costs, **options)
        coef = result.coef.astype(np.float64) if matrix is None else None
        result = replace(result, coef=coef, dual=result.dual.toarray())
    return _settled(result, problem, tol)


@dataclass(frozen=True)
class SoftProblem:
    """What is minimised; names as in `solve_spoc`.

    A code is M (n_classes, n_columns), or with a kernel τ (n_samples, n_classes), M = Σ_i τ_i φ(h_i).
    """

    h: Floats
    y: npt.NDArray[np.intp] | Ints
    margins: Floats | None
    costs: Floats
    kernel: TrainingKernel | PrecomputedKernel | None

    def scores(self, code: Reals) -> Reals:
        """⟨φ(h_i), M_r⟩ (n_samples, n_classes), in the precision of the code; kernel values in blocks of rows."""
        if self.kernel is None:
            linear: Reals = self.h.astype(code.dtype, copy=False) @ code.T
            return linear
        scores, step = np.empty_like(code), max(1, BLOCK_ENTRIES // len(code))
        for first in range(0, len(code), step):
            values = self.kernel.columns(slice(first, first + step))
            scores[first : first + step] = values.astype(code.dtype) @ code
        return scores

    def loss(self, scores: Reals, scale: float = 1.0) -> float:
        """Σ_i C_i max_r (b_ir + scale · (s_ir − s_{i,y_i}))."""
        rows, b = np.arange(len(self.y)), self.margins
        if b is None:
            b = np.ones(scores.shape)
            b[rows, self.y] = 0.0
        return float(self.costs @ (b + scale * (scores - scores[rows, self.y][:, None])).max(axis=1))

    def code_of(self, eta: Reals) -> Reals:
        """The code of dual variables η of the wrong classes, in their precision."""
        tau = signed_duals(eta, self.y)
        return tau if self.kernel is not None else tau.T @ self.h.astype(tau.dtype, copy=False)

    def squared_norm(self, code: Reals, scores: Reals | None = None) -> Any:
        """‖M‖²; with a kernel ⟨τ, K τ⟩, each class at least 0, as it is without rounding."""
        if self.kernel is None:
            return (code * code).sum()
        return np.maximum((code * (self.scores(code) if scores is None else scores)).sum(axis=0), 0.0).sum()

    def rounding_of_losses(self, coefficients: Floats) -> float:
        """How much rounding may change Σ C_i ξ_i: that of M, a sum of multiples of rows, in the scores."""
        squares = (self.h**2).sum(axis=1) if self.kernel is None else self.kernel.diagonal()
        norms = np.sqrt(np.maximum(squares, 0.0))
        return float(np.finfo(np.float64).eps * (self.costs @ norms) * np.linalg.norm(coefficients * norms))


def signed_duals(x: Reals, y: Ints | npt.NDArray[np.intp]) -> Reals:
    """τ of η of the wrong classes, both (n_samples, n_classes)."""
    tau = -x
    tau[np.arange(len(x)), y] = x.sum(axis=1)
    return tau


def _whole_matrix(kernel: TrainingKernel | PrecomputedKernel, cache_size_mb: float, seed: int) -> Floats:
    """K (n_samples, n_samples) for the core, after a look at its curvature."""
    megabytes = 8 * kernel.n_rows**2 / 2**20
    if megabytes > cache_size_mb:
        raise ValueError(
            f"order='worst-first' requires the whole kernel matrix ({megabytes:.0f} MB); raise cache_size_mb, or use "
            "order='random'"
        )
    check_positive_semidefinite(kernel, seed)
    return np.ascontiguousarray(kernel.columns(slice(None)), dtype=np.float64)


def _ascend(ascent: Any, problem: SoftProblem, n_classes: int, limits: Limits, tol: float, start: Any) -> SolverResult:
    """Run one of the core's ascents; a code that missed the tolerance is the best of those seen and 0."""
    if start is not None:
        ascent.set_duals(np.ascontiguousarray(start.toarray() if sp.issparse(start) else start, dtype=np.float64))
    status, seen, stopped, watched = None, 0, False, limits.callback is not None
    while status is None:
        slice_s = min(SLICE_S, max(limits.seconds_left, 0.0))
        status = ENDS.get(ascent.run(tol, limits.max_iter, ascent.elapsed + slice_s, watched))
        if limits.callback is not None and len(records := ascent.records()) > seen:
            seen = len(records)
            n_iter, elapsed, primal, dual, _ = records[-len(COLUMNS) :].tolist()
            stopped = limits.callback(Progress(int(n_iter), limits.max_iter, elapsed, primal, dual))
        if status is None and (stopped or limits.seconds_left <= 0.0):
            status = Status.TIME_LIMIT if limits.seconds_left <= 0.0 else Status.STOPPED
    primal, dual = ascent.certify()
    y, costs, margins = problem.y, problem.costs, problem.margins
    # The core has codes by columns, and none with a kernel or while it has seen none.
    code, best = ascent.code(), ascent.best_code()
    coef = np.ascontiguousarray(code.reshape(-1, n_classes).T) if len(code) else None
    if status is not Status.CONVERGED and coef is not None:
        others = [np.ascontiguousarray(best.reshape(-1, n_classes).T)] if len(best) else []
        for other in (*others, np.zeros(coef.shape)):
            value = problem.loss(problem.scores(other)) + 0.5 * float(problem.squared_norm(other))
            if value < primal:
                coef, primal = other, value
    rows = ascent.records().reshape(-1, len(COLUMNS)).tolist()
    rows.append([ascent.n_passes, ascent.elapsed, primal, dual, rows[-1][-1] if rows else len(y)])
    eta = ascent.eta().reshape(len(y), n_classes)
    eta[np.arange(len(y)), y] = 0.0
    at_zero = float(costs.sum() if margins is None else costs @ np.maximum(margins.max(axis=1), 0.0))
    return SolverResult(
        coef=coef,
        intercept=np.zeros(n_classes),
        dual=eta,
        certificate=Certificate(primal, dual, at_zero, primal),
        history=history_of(rows, COLUMNS, whole=("iteration", "active_rows")),
        n_iter=np.array([int(rows[-1][0])]),
        status=status,
    )


def _settled(result: SolverResult, problem: SoftProblem, tol: float) -> SolverResult:
    """The result with bounds that rounding has no part in, and CONVERGED only if these are within `tol`."""
    certificate, status = result.certificate, result.status
    size = max(abs(certificate.primal), abs(certificate.dual))
    noise = problem.rounding_of_losses(result.dual.sum(axis=1))
    if noise > min(CAREFUL, 0.1 * tol) * size:  # in extended precision, where NumPy has one: P of the code as stored
        stored = (problem.code_of(result.dual) if result.coef is None else result.coef).astype(np.longdouble)
        scores, code = problem.scores(stored), problem.code_of(result.dual.astype(np.longdouble))
        primal = problem.loss(scores) + 0.5 * float(problem.squared_norm(stored, scores))
        asked = result.dual if problem.margins is None else problem.margins * result.dual
        dual = float(asked.sum() - 0.5 * float(problem.squared_norm(code)))
        certificate = replace(certificate, primal=primal, dual=dual, primal_before_pruning=primal)
    missed = certificate.relative_gap > tol
    seen = noise if problem.kernel is None else UNSEEN * noise
    only_rounding = certificate.primal - certificate.dual <= seen or noise > size
    if missed and (status is Status.CONVERGED or (status is Status.MAX_ITER and only_rounding)):
        status = Status.NOT_ATTAINED
    elif status in (Status.MAX_ITER, Status.NOT_ATTAINED) and not missed:
        status = Status.CONVERGED  # by the best code seen
    return replace(result, certificate=certificate, status=status)
