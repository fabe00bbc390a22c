"""One-vs-all at scale: batched verified passes over all rows, small local problems, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²

For sparse rows and the squared hinge. Rare labels are solved on working sets that passes over all rows, 32 labels at a
time, propose and check; frequent labels by a subspace search over all rows, 16 at a time. A label counts as solved only
when rule and certified gap hold over all rows in float64; what float32 cannot reach is finished by truncated Newton.
If the rows are indexed by feature, most labels need no passes over all rows: the index bounds their scores.
Labels with a given start skip the first proposal: a pass with their old weights finds the rows near the margin. Labels
without one among them take their usual intercept from the given ones of similar frequency.

The core works in the background; meanwhile Python handles signals, checks the deadline, calls the callback and takes
over finished labels. A label's weights depend on all labels of the fit only through `SharedChoices`, so any range of
labels, solved anywhere, gets the weights that it has in the whole fit.

Weights are stored in float32 and, when pruned, never dense. Memory: X once more as (column, value) pairs of 8 bytes,
4 bytes per value for the index, the model, 200 bytes per label, and a work area per thread of about 150 bytes per
feature, 16 bytes per row near a margin and 8 MB for copies of such rows; frequent labels add 460 bytes per
feature and 710 bytes per row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.solvers.limits import Limits
from widemargin.solvers.one_vs_all.duals import dual_matrix
from widemargin.solvers.one_vs_all.problem import (
    BOUND_COLUMNS,
    ENDINGS,
    BlockTask,
    OneVsAllResult,
    frequency_bin,
    frequency_history,
)
from widemargin.solvers.result import Status

if TYPE_CHECKING:
    from widemargin.solvers.one_vs_all.plan import Plan

__all__ = ["SharedChoices", "shared_choices", "solve_fast", "usual_intercepts", "weight_arrays"]

PRIOR_BINS = 64  # of label frequency
POLL_S = 0.1  # longest time between two checks of signals and the clock
REPORT_S = 0.5  # between two calls of the callback, and between two releases of free memory


@dataclass(frozen=True)
class SharedChoices:
    """Decisions about all labels of a fit that every range of them shares.

    Parameters
    ----------
    pilot : sequence of int
        Labels on which the usual intercept is learned.
    whole : bool
        Whether frequent labels are solved one by one, being too few for a batch.
    prior : sequence of float
        Sums and counts of the pilots' intercepts in 64 bins of label frequency.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.fast import SharedChoices
    >>> SharedChoices([3], False, [0.0] * 128).pilot
    [3]
    """

    pilot: list[int]
    whole: bool
    prior: list[float]


def solve_fast(plan: Plan, task: BlockTask, limits: Limits, first: int | None) -> OneVsAllResult:
    """Solve the labels of a task: all labels of the fit, or, with choices, a range that starts with label `first`."""
    X, n_labels = plan.problem.X, len(task.positive_factor)
    core = plan.spare_cores.pop() if plan.spare_cores else _make_core(plan, task)
    labels = (task.positive_rows, task.positive_indptr, task.positive_factor, task.negative_factor)
    run = _Run(core, X, task, limits, plan.keep_duals)
    unsolved: Status | None = Status.TIME_LIMIT
    if time.monotonic() < limits.deadline:
        try:
            if plan.start is not None:
                core.set_start(**weight_arrays(*plan.start))
            if first is not None:
                choices = plan.choices
                assert choices is not None
                pilot = [label - first for label in choices.pilot if first <= label < first + n_labels]
                core.begin_part(*labels, pilot, choices.whole, choices.prior)
            else:
                core.begin(*labels, plan.prior)
            unsolved = run.watch(0)
            if unsolved is None:
                core.start(0, n_labels)
                unsolved = run.watch(n_labels)
        finally:  # a KeyboardInterrupt, too, leaves no thread behind
            if unsolved is not None:  # a solver that was stopped solves no more
                core.stop()
        run.take(n_labels, everything=True)
    if unsolved is None and first is not None:
        plan.spare_cores.append(core)  # with its copy of the rows, for the next range
    del run.core, core  # a whole fit needs the copy of the rows no more
    return run.result(unsolved)


def _make_core(plan: Plan, task: BlockTask) -> Any:
    core = task.make_core("FastOneVsAll", plan.problem.X)
    if plan.row_index:
        core.index_rows()
    if plan.keep_duals:
        core.keep_duals()
    return core


def shared_choices(plan: Plan, stop: Callable[[], bool] | None = None) -> SharedChoices | None:
    """Decide about all labels of a fit and solve its pilots; None if `stop`, called meanwhile, ended the search."""
    n_labels = plan.problem.n_labels
    task = plan.task(0, n_labels)
    core = _make_core(plan, task)
    if plan.start is not None:
        core.set_start(**weight_arrays(*plan.start))
    core.begin(task.positive_rows, task.positive_indptr, task.positive_factor, task.negative_factor, plan.prior)
    finished = False
    try:
        while not (finished := core.wait(POLL_S)):
            if stop is not None and stop():
                return None
    finally:
        if not finished:
            core.stop()
    plan.spare_cores.append(core)
    pilot, whole, prior = core.choices()
    return SharedChoices(list(pilot), bool(whole), list(prior))


def usual_intercepts(n_positives: npt.NDArray[Any], n_rows: int, intercept: npt.NDArray[Any]) -> list[float]:
    """What solved labels of a problem tell about the intercepts of others, as `SharedChoices.prior`.

    Parameters
    ----------
    n_positives, intercept : ndarray of shape (n_labels,)
        The solved labels. Those of more than half of the rows count with the sides exchanged, as they are solved.
    n_rows : int
        Number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.fast import usual_intercepts
    >>> prior = usual_intercepts(np.array([2, 3, 97, 0]), 100, np.array([-1.5, -1.25, 1.0, -1.0]))
    >>> prior[1], prior[64 + 1], sum(prior[64:])
    (-3.75, 3.0, 3.0)
    """
    swapped = 2 * n_positives > n_rows
    n_rare = np.where(swapped, n_rows - n_positives, n_positives)
    two_sided = n_rare > 0
    bins, sign = frequency_bin(n_rare[two_sided]), np.where(swapped, -1.0, 1.0)
    sums = np.bincount(bins, weights=(sign * intercept)[two_sided], minlength=PRIOR_BINS)
    return [*sums.tolist(), *np.bincount(bins, minlength=PRIOR_BINS).astype(np.float64).tolist()]


def weight_arrays(coef: Any, intercept: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Weights of shape (n_labels, n_features), CSR or dense, as the core takes them: CSR in float32."""
    if not (sp.issparse(coef) and coef.format == "csr"):  # a CSR array of memory maps stays as it is
        coef = sp.csr_array(coef)
    return {
        "data": coef.data.astype(np.float32, copy=False),
        "indices": coef.indices.astype(np.int32, copy=False),
        "indptr": coef.indptr.astype(np.int64, copy=False),
        "intercept": intercept.astype(np.float32, copy=False),
    }


class _Run:
    """The labels of one call that are taken over from the core so far."""

    def __init__(self, core: Any, X: Any, task: BlockTask, limits: Limits, keep_duals: bool) -> None:
        n_labels, dtype = len(task.positive_factor), X.dtype
        self.core, self.task, self.limits, self.shape = core, task, limits, (n_labels, X.shape[1])
        self.dense_coef = None if task.prune > 0 else np.zeros(self.shape, dtype=dtype)
        self.lengths = np.zeros(n_labels, dtype=np.int64)
        self.weights: Any = _core.GrowingFloat64() if dtype == np.float64 else _core.GrowingFloat32()
        self.columns = _core.GrowingInt32()
        self.intercept = np.zeros(n_labels, dtype=dtype)
        self.bounds = np.zeros((n_labels, len(BOUND_COLUMNS)))
        self.n_iter = np.zeros(n_labels, dtype=np.int64)
        self.converged = np.zeros(n_labels, dtype=np.uint8)
        self.finished = np.zeros(n_labels, dtype=bool)
        self.n_duals = np.zeros(n_labels, dtype=np.int64)
        self.duals: tuple[Any, ...] = (_core.GrowingInt32(), _core.GrowingFloat32()) if keep_duals else ()
        self.done = 0  # labels taken over

    def watch(self, last: int) -> Status | None:
        """Wait until the core is done with the labels before `last`, or a limit is reached, which is returned."""
        limits, next_report = self.limits, time.monotonic() + REPORT_S
        while not self.core.wait(POLL_S):
            self.take(last)
            if time.monotonic() >= next_report or time.monotonic() >= limits.deadline:
                _core.release_free_memory()
                reached = self._report(last)
                if reached is not None:
                    return reached
                next_report = time.monotonic() + REPORT_S
        self.take(last)
        if last > 0 and limits.callback is not None:
            self._report(last)
        return None

    def _report(self, last: int) -> Status | None:
        """Call the callback with the finished labels before `last`, none while pilots are solved; the limit reached."""
        done, primal, dual = self.core.progress(last)
        reached = self.limits.reached(done, self.limits.elapsed_s, primal, dual)
        return None if reached is Status.MAX_ITER else reached

    def take(self, last: int, *, everything: bool = False) -> None:
        """Take over the labels before `last` up to the first unfinished one; everything: beyond it, too."""
        while self.done < last:
            taken = self.core.take(self.done, last, everything, self.weights, self.columns, *self.duals)
            lengths, intercept, bounds, n_iter, converged, _, n_duals = taken
            if len(intercept) == 0:
                return
            block = slice(self.done, self.done + len(intercept))
            self.lengths[block] = lengths
            if self.dense_coef is not None:
                rows = np.repeat(np.arange(block.start, block.stop), lengths)
                self.dense_coef[rows, self.columns.take()] = self.weights.take()
            self.intercept[block] = intercept
            self.bounds[block] = bounds.reshape(len(intercept), -1)
            self.n_iter[block] = n_iter
            if self.duals:  # zeros that are never written take no memory
                self.n_duals[block] = n_duals
            self.converged[block] = converged
            self.finished[block] = self.core.is_finished(block.start, block.stop)
            self.done = block.stop

    def result(self, unsolved: Status | None) -> OneVsAllResult:
        """The result; labels that are not finished have zero weights, and their objective there as upper bound."""
        done, status = self.finished, ENDINGS[self.converged]
        if not done.all():
            assert unsolved is not None
            at_zero = self.task.C * self.task.loss_weight()[~done, None]  # φ(0) = 1
            self.bounds[~done] = at_zero * [1.0, 0.0, 1.0, 1.0, 0.0]  # see BOUND_COLUMNS
            status[~done] = unsolved.value
        coef = self.dense_coef
        if coef is None:
            coef = sp.csr_array(self.shape, dtype=self.intercept.dtype)
            index_dtype = np.int32 if self.lengths.sum() <= np.iinfo(np.int32).max else np.int64
            coef.indptr = np.append(0, np.cumsum(self.lengths)).astype(index_dtype)
            coef.data = self.weights.take()
            coef.indices = self.columns.take().astype(index_dtype, copy=False)
        n_positives = np.diff(self.task.positive_indptr)
        rest: dict[str, Any] = {"history": frequency_history(n_positives[done], self.n_iter[done], self.bounds[done])}
        if self.duals:
            rows, values = (part.take() for part in self.duals)
            rest["duals"] = dual_matrix(self.n_duals, rows, values, len(self.task.row_weight))
        return OneVsAllResult.of(coef, self.intercept, status, self.bounds, n_iter=self.n_iter, **rest)
