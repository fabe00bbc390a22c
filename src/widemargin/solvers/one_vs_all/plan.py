"""Which algorithm solves a one-vs-all problem, decided once, and `solve`, their only entry point.

plan = make_plan(Problem.of(X, Y, C=1.0), prune=0.01)
result = solve(plan)                    all labels
result = solve(plan, (100, 200))        the labels 100 … 199, with the weights that they have in the whole fit

newton     truncated Newton, label by label: named starts, iteration limits, tolerances near rounding, and small
           problems, which are polished: solved to rounding error whatever the tolerance
fast       sparse rows and the squared hinge: batched passes and local problems
logistic   sparse rows and the logistic loss: batches of labels over all rows
dense      dense rows: blocks of labels by matrix products
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from widemargin.solvers.limits import Limits
from widemargin.solvers.one_vs_all.dense import block_width, solve_dense
from widemargin.solvers.one_vs_all.fast import SharedChoices, solve_fast
from widemargin.solvers.one_vs_all.logistic import solve_logistic
from widemargin.solvers.one_vs_all.newton import solve_newton
from widemargin.solvers.one_vs_all.problem import BlockTask, OneVsAllResult, Problem
from widemargin.solvers.one_vs_all.starts import StartParameters, rows_of_start, start_parameters
from widemargin.solvers.result import Callback

__all__ = ["DEFAULT_MAX_ITER", "SMALL_DENSE_WORK", "SMALL_SPARSE_WORK", "Plan", "make_plan", "solve", "work_of"]

DEFAULT_MAX_ITER = 1000  # another value asks for the Newton solver, which counts its iterations
# Problems with at most this much work, see `work_of`, are solved to rounding error whatever `tol` says: equal problems
# (a repeated row, a weight of two) then give equal weights to many digits. That is what scikit-learn's checks of
# weights ask for; their problems are below 10,000. It takes about 0.1 µs per unit: at these sizes at most about three
# times the CPU of the other solvers, which have milliseconds of preparation, dense ones more than sparse. On sparse
# rows of larger problems it would take ten times their CPU.
SMALL_SPARSE_WORK = 20_000
SMALL_DENSE_WORK = 300_000
Algorithm = Literal["fast", "logistic", "dense", "newton"]
# The algorithm for sparse rows by the loss; dense rows have one for both. Other losses are left to Newton.
BATCHED: dict[str, Algorithm] = {"squared_hinge": "fast", "logistic": "logistic"}
MIN_TOL, MIN_GAP_TOL = 1e-6, 1e-7  # float32 steps cannot steer to less; the Newton solver works in float64
# Rows with fewer values have no index. On generated sets of 1.5, 3.6, 3.6, 9 and 9 million values, a fit with the index
# takes 1.18, 1.0, 1.14, 0.8 and 0.7 times as long.
INDEXED_VALUES = 6_000_000
INDEX_BYTES = 4  # of the index, per value
# Work area of a thread: bytes per feature and bytes per row; dense: of one label of its block.
WORK_BYTES = {"fast": (610, 720), "logistic": (600, 200), "dense": (56, 60), "newton": (64, 33)}


@dataclass(frozen=True)
class Plan:
    """How the labels of a problem are solved; use `make_plan`.

    Parameters
    ----------
    problem : Problem
        What is solved.
    algorithm : {"fast", "logistic", "dense", "newton"}
        See the module.
    tol, gap_tol, prune, max_iter, polish, tighten_cg
        As of `BlockTask`.
    init : str
        The start of the Newton solver.
    start_parameters : StartParameters or None
        Its numbers; None for other solvers.
    start : tuple of (coef, intercept) or None
        Weights to start from instead, CSR or dense; a label without weights starts as usual.
    width : int or None
        Labels of a block of the dense solver. Other widths change results in their last digits.
    n_threads : int
        Threads; fewer are used where their work areas do not fit in memory. Results do not depend on them.
    memory_limit_mb : float
        Bound on work areas beside X and the model.
    thread_bytes : int
        Work area of a thread.
    row_index : bool
        Whether the fast solver indexes the rows by feature.
    prior : list of float
        What the fast solver knows from labels that were solved before, see `usual_intercepts`; empty if nothing.
    choices : SharedChoices or None
        What the fast solver decided on all labels; needed to solve a range of them.
    keep_duals : bool
        Whether the result has the dual variables of the lower bounds.
    spare_cores : list
        Solvers of the core with their copy of the rows, kept from one range of labels to the next.
    """

    problem: Problem
    algorithm: Algorithm
    tol: float
    gap_tol: float
    prune: float
    max_iter: int
    polish: bool
    init: str
    start_parameters: StartParameters | None
    start: tuple[Any, Any] | None
    width: int | None
    n_threads: int
    memory_limit_mb: float
    thread_bytes: int
    row_index: bool
    prior: list[float] = field(default_factory=list)
    choices: SharedChoices | None = None
    tighten_cg: bool = True
    keep_duals: bool = False
    spare_cores: list[Any] = field(default_factory=list, compare=False, repr=False)

    def task(self, first: int, last: int) -> BlockTask:
        """Labels first … last − 1 for the core, on as many threads as fit in memory."""
        problem = self.problem
        indptr = np.asarray(problem.positive_indptr[first : last + 1], dtype=np.int64)
        return BlockTask(
            positive_rows=np.asarray(problem.positive_rows[indptr[0] : indptr[-1]], dtype=np.int64),
            positive_indptr=indptr - indptr[0],
            row_weight=problem.row_weight,
            positive_factor=problem.positive_factor[first:last],
            negative_factor=problem.negative_factor[first:last],
            loss=problem.loss,
            C=problem.C,
            bias_value=problem.bias_value,
            bias_penalty=problem.bias_penalty,
            tol=self.tol,
            gap_tol=self.gap_tol,
            prune=self.prune,
            max_iter=self.max_iter,
            n_threads=max(1, min(self.n_threads, int(self.memory_limit_mb * 2**20 / max(1, self.thread_bytes)))),
            polish=self.polish,
            tighten_cg=self.tighten_cg,
        )


def make_plan(
    problem: Problem,
    *,
    tol: float = 0.01,
    gap_tol: float | None = 1e-3,
    prune: float = 0.0,
    max_iter: int = DEFAULT_MAX_ITER,
    init: str = "auto",
    init_params: Mapping[str, Any] | None = None,
    start: tuple[Any, Any] | None = None,
    n_threads: int = 1,
    memory_limit_mb: float = 1024.0,
    row_index: bool | str = "auto",
    keep_duals: bool = False,
) -> Plan:
    """Decide how a problem is solved.

    Parameters
    ----------
    problem : Problem
        All labels of the fit.
    tol, gap_tol, prune, max_iter, init, init_params, memory_limit_mb, row_index
        As of `OneVsAllClassifier`.
    start : tuple of (coef, intercept), optional
        Finite weights to start from instead of `init`, shapes (n_labels, n_features), CSR or dense, and (n_labels,).
        A label whose weights are all zero has none and starts as usual.
    n_threads : int
        Threads of the core.
    keep_duals : bool, default=False
        Whether the result has the dual variables of the lower bounds; for the squared hinge, whose rows beyond the
        margin have none.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.plan import make_plan, solve
    >>> from widemargin.solvers.one_vs_all.problem import Problem
    >>> plan = make_plan(Problem.of(np.eye(2), np.array([[1], [0]])))
    >>> plan.algorithm, plan.polish, solve(plan).coef.round(6).tolist()
    ('newton', True, [[0.666667, -0.666667]])
    """
    X, sparse = problem.X, sp.issparse(problem.X)
    if keep_duals and problem.loss != "squared_hinge":
        raise ValueError(
            f"keep_duals=True requires loss='squared_hinge': with loss={problem.loss!r} every row has a dual variable"
        )
    if start is not None:
        shapes = (problem.n_labels, X.shape[1]), (problem.n_labels,)
        if (start[0].shape, start[1].shape) != shapes:
            raise ValueError(
                f"the starting weights must have the shapes {shapes}, not {start[0].shape, start[1].shape}"
            )
        weights = start[0].data if sp.issparse(start[0]) else start[0]
        if not (np.isfinite(weights).all() and np.isfinite(start[1]).all()):
            raise ValueError("the starting weights contain NaN or infinity; pass finite weights, or None")
    polish = work_of(X, problem.n_labels) <= (SMALL_SPARSE_WORK if sparse else SMALL_DENSE_WORK)
    algorithm: Algorithm = "newton"
    indexed = False
    loose = tol >= MIN_TOL and (gap_tol is None or gap_tol >= MIN_GAP_TOL)
    if not polish and init == "auto" and max_iter == DEFAULT_MAX_ITER and loose and problem.loss in BATCHED:
        double, batched = X.dtype == np.float64, BATCHED[problem.loss] if sparse else "dense"
        # The copy that the algorithm makes: (column, value) pairs of 8 bytes, with the exact values beside them for
        # float64; for dense rows float32 values, which may be there already.
        copy_bytes = X.nnz * (16 if double else 8) if sparse else 4 * X.size * double
        # The batched logistic solver has no starts, so a given one is left to Newton: a fit that was stopped keeps its
        # finished labels. That is not for speed. From the weights of 99 % of the rows, CPU seconds of Newton from the
        # start, of the batched solver from the start and from zero, both losses on dense rows:
        #     debian-tags, every 4th label, logistic        2.25   none          0.27
        #     letter                                        .09, .12   .11, .11   .20, .26
        #     usps                                          .08, .25   .07, .15   .15, .28
        if copy_bytes <= memory_limit_mb * 2**20 and (start is None or batched != "logistic"):
            algorithm = batched
            wanted = X.nnz >= INDEXED_VALUES if row_index == "auto" and sparse else row_index
            fits = sparse and copy_bytes + INDEX_BYTES * X.nnz <= memory_limit_mb * 2**20
            indexed = algorithm == "fast" and bool(wanted) and fits
    per_feature, per_row = WORK_BYTES[algorithm]
    work_bytes, width = per_feature * X.shape[1] + per_row * X.shape[0], None
    if algorithm == "dense":
        width = block_width(problem.n_labels, work_bytes, memory_limit_mb)
    return Plan(
        problem,
        algorithm,
        float(tol),
        np.inf if gap_tol is None else float(gap_tol),
        float(prune),
        int(max_iter),
        polish,
        init,
        start_parameters(init_params, problem.loss) if algorithm == "newton" else None,
        start,
        width,
        int(n_threads),
        float(memory_limit_mb),
        work_bytes * (width or 1),
        indexed,
        keep_duals=keep_duals,
    )


def work_of(X: Any, n_labels: int) -> int:
    """The size of a problem: labels × (stored values + features)."""
    return n_labels * (int(X.nnz if sp.issparse(X) else X.size) + int(X.shape[1]))


def solve(plan: Plan, label_range: tuple[int, int] | None = None, callback: Callback | None = None) -> OneVsAllResult:
    """Solve the labels of a plan, or a range of them.

    Parameters
    ----------
    plan : Plan
        What to solve, and how.
    label_range : tuple of int, optional
        The first label and the one after the last; then the result has the `records` of its history, too. The fast
        solver needs `plan.choices` for it.
    callback : callable, optional
        Called with a `Progress` between units of work; a true answer, or the deadline of a `TimeLimit`, stops.

    Returns
    -------
    OneVsAllResult
        Labels that were not reached have zero weights, the objective there as upper and zero as lower bound.
    """
    first, last = label_range or (0, plan.problem.n_labels)
    if plan.start is not None and label_range is not None:
        plan = replace(plan, start=rows_of_start(plan.start, first, last))
    task, limits = plan.task(first, last), Limits(last - first, callback)
    if plan.algorithm == "fast":
        return solve_fast(plan, task, limits, first if label_range else None)
    solver = {"logistic": solve_logistic, "dense": solve_dense, "newton": solve_newton}[plan.algorithm]
    return solver(plan, task, limits, label_range is not None)
