"""One-vs-all with a truncated Newton method, every label certified; and the block loop that other algorithms share.

Newton with preconditioned conjugate gradients on the active set (eq. (19)–(20) of Schultheis & Babbar, 2022), until
‖∇L(w)‖ ≤ tol · max(1, min(P, N))/n · ‖∇L(0)‖, eq. (12)–(13), and the certified relative gap is at most `gap_tol`; P, N
and n are sums of weights. Weights are rounded to the type of X, pruned, and certified as they are stored: the upper
bound is their objective, the lower bound a dual point made from them before pruning. With a free intercept, a label
with one side only has the answer w = 0 and b = ∓1 for the squared hinge, and no minimiser for the logistic loss
(b = ∓30, status NOT_ATTAINED).

Labels are solved in blocks of about half a second; the callback is called and the deadline checked between them. The
history has one row for each iteration and log₂ bin of label frequency:

    n_labels           labels of the bin still running: with a state at this iteration, their last one included
    primal             sum of their objectives; `primal_finished` is the sum over the labels that finished before,
                       and primal + primal_finished never rises from one iteration to the next
    active_rows        sum of the rows with curvature
    step_size          mean line-search multiplier of the step that led here
    cg_steps, seconds  sums over the labels, of the step that led here; seconds are CPU time
    gradient_ratio     the largest ‖∇L‖/‖∇L(0)‖
    …_std              standard deviation over the labels of the row

Labels are added in their order, so the table depends neither on threads nor on the size of blocks (except seconds).
Memory: X, the model, the table (iterations × bins), and at most `memory_limit_mb` of work areas and of one block of
dense weights where the model is pruned (but at least one thread's vectors and one label's weights).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.losses import get_loss
from widemargin.solvers.limits import Limits
from widemargin.solvers.one_vs_all.duals import dual_matrix
from widemargin.solvers.one_vs_all.problem import (
    ENDINGS,
    RECORD_COLUMNS,
    BlockResult,
    BlockTask,
    OneVsAllResult,
    frequency_bin,
)
from widemargin.solvers.one_vs_all.starts import GivenStart, Start, make_start
from widemargin.solvers.result import History, Status

if TYPE_CHECKING:
    from widemargin.solvers.one_vs_all.plan import Plan

__all__ = ["BlockRun", "HistoryTable", "solve_newton"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST_LABELS_PER_THREAD = 4  # the size of the first block, before the time per label is known
BLOCK_S = 0.5  # a block should take about this long: short enough to interrupt, long enough to keep threads busy
MAX_GROWTH = 4.0  # of a block over the previous one
LABEL, SECONDS = RECORD_COLUMNS.index("label"), RECORD_COLUMNS.index("seconds")
N_BINS = 65  # labels without positives, and floor(log2) of 1 … 2⁶⁴
# Names of the quantities that are summed, and of the columns of the records that they come from.
QUANTITIES = {
    "primal": "value",
    "active_rows": "active_rows",
    "step_size": "step",
    "cg_steps": "cg_steps",
    "seconds": "seconds",
}


def solve_newton(plan: Plan, task: BlockTask, limits: Limits, keep_records: bool) -> OneVsAllResult:
    """Solve the labels of a task by truncated Newton from the plan's start."""
    X = plan.problem.X

    def usual_start() -> Start:
        assert plan.start_parameters is not None
        # The tree of OvAP++ orders all labels; among given starts, its root serves the labels without one.
        init = "ovap" if plan.start is not None and plan.init == "ovap++" else plan.init
        return make_start(init, plan.start_parameters, X, task)

    # A solver without steps certifies the weights that it is given, and zeros are weights.
    others = usual_start if plan.max_iter > 0 else None
    start = usual_start() if plan.start is None else GivenStart(*plan.start, others)
    return BlockRun(plan, task, start, keep_records).solve(lambda part, out: part.solve(X, out), limits)


class BlockRun:
    """The labels of one call, solved block after block, and their results so far.

    Parameters
    ----------
    plan : Plan
        The rows, and the bound on memory.
    task : BlockTask
        All labels of the call.
    start : Start
        Hands out the labels and where they start.
    keep_records : bool
        Whether the result has the records that its history is made of.
    smallest : int, optional
        Smallest number of labels per block, except the last; by default one per thread, or fewer if memory requires it.
    largest : int, optional
        Largest number of labels per block; by default as many as fit in memory.
    """

    def __init__(
        self,
        plan: Plan,
        task: BlockTask,
        start: Start,
        keep_records: bool,
        smallest: int | None = None,
        largest: int | None = None,
    ) -> None:
        X, n_labels = plan.problem.X, len(task.positive_factor)
        self.X, self.task, self.start = X, task, start
        self.bins = frequency_bin(np.diff(task.positive_indptr))
        self.result = BlockResult.zeros(n_labels, 0, X.dtype, keep_duals=plan.keep_duals)
        self.history = HistoryTable()
        self.records: list[Floats] | None = [] if keep_records else None
        self.seconds = np.zeros(n_labels)
        self.pruned_parts: list[Any] = []
        self.dense_coef = None if task.prune > 0 else np.zeros((n_labels, X.shape[1]), dtype=X.dtype)
        self.solved: list[Ints] = []  # the labels of each block, in the order in which they were solved
        self.done = 0
        if largest is None:
            largest = n_labels
            if self.dense_coef is None or not start.in_order:  # otherwise blocks are written into the model itself
                room = plan.memory_limit_mb * 2**20 - task.n_threads * plan.thread_bytes
                largest = max(1, int(room / (max(1, X.shape[1]) * X.dtype.itemsize)))
        self.smallest, self.largest = smallest or task.n_threads, max(smallest or 1, largest)

    def solve(self, solve_block: Callable[[BlockTask, BlockResult], Floats], limits: Limits) -> OneVsAllResult:
        """Solve block after block until all labels are done or a limit is reached.

        `solve_block` solves the labels of a task into a `BlockResult` and returns the records of their iterations.
        """
        unsolved = Status.TIME_LIMIT if limits.is_out_of_time else None
        size = FIRST_LABELS_PER_THREAD * self.task.n_threads
        while self.done < len(self.seconds) and unsolved not in (Status.TIME_LIMIT, Status.STOPPED):
            started = time.perf_counter()
            size = min(self.largest, max(self.smallest, size))
            self._solve_labels(self.start.next_labels(size), solve_block)
            primal, dual = self.result.bounds[:, :2].sum(axis=0)  # zeros for the others
            unsolved = limits.reached(self.done, limits.elapsed_s, float(primal), float(dual))
            size = int(size * min(MAX_GROWTH, BLOCK_S / max(time.perf_counter() - started, 1e-9)))
        return self._finish(unsolved)

    def _solve_labels(self, labels: Ints, solve_block: Callable[[BlockTask, BlockResult], Floats]) -> None:
        """Solve some labels and keep the results. Sets: result, dense_coef, history, seconds, solved, done."""
        task = self.task.select(labels)
        # Labels that follow each other are solved in the model itself; others are copied there.
        coef = None
        if self.dense_coef is not None and self.start.in_order:
            coef = self.dense_coef[labels[0] : labels[-1] + 1]
        keep_duals = self.result.duals is not None
        block = BlockResult.zeros(len(labels), self.X.shape[1], self.X.dtype, coef, keep_duals=keep_duals)
        started = time.process_time()
        self.start.fill(labels, task, block)
        self.seconds[labels] = (time.process_time() - started) / len(labels)
        records = solve_block(task, block)
        self.start.keep(labels, block)
        if self.dense_coef is None:
            self.pruned_parts.append(sp.csr_array(block.coef))
        elif coef is None:
            self.dense_coef[labels] = block.coef
        for name in ("intercept", "bounds", "n_iter", "converged", *(["duals"] if keep_duals else [])):
            getattr(self.result, name)[labels] = getattr(block, name)
        self.history.add(records, self.bins[labels])
        label_of = labels[records[:, LABEL].astype(np.int64)]
        np.add.at(self.seconds, label_of, records[:, SECONDS])
        if self.records is not None:
            self.records.append(np.column_stack([label_of, records[:, LABEL + 1 :]]))
        self.solved.append(labels)
        self.done += len(labels)

    def _finish(self, unsolved: Status | None) -> OneVsAllResult:
        """The result; labels that were not reached have zero weights, and their objective there as upper bound."""
        reached = np.zeros(len(self.seconds), dtype=bool)
        for labels in self.solved:
            reached[labels] = True
        missing, bounds, status = np.flatnonzero(~reached), self.result.bounds, ENDINGS[self.result.converged]
        if len(missing):
            assert unsolved is not None
            at_zero = self.task.C * float(get_loss(self.task.loss).value(np.zeros(1))[0]) * self.task.loss_weight()
            bounds[missing] = at_zero[missing, None] * [1.0, 0.0, 1.0, 1.0, 0.0]  # see BOUND_COLUMNS
            status[missing] = unsolved.value
        return OneVsAllResult.of(
            self._coef(missing),
            self.result.intercept,
            status,
            bounds,
            history=self.history.history(),
            n_iter=self.result.n_iter,
            seconds_by_label=self.seconds,
            records=None
            if self.records is None
            else np.concatenate([np.empty((0, len(RECORD_COLUMNS))), *self.records]),
            duals=None if self.result.duals is None else self._duals(self.result.duals),
        )

    def _duals(self, found: npt.NDArray[Any]) -> sp.csr_array:
        """The dual variables of all labels; none of those that were not reached."""
        nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
        rows, values = zip(nothing, *(pair or nothing for pair in found), strict=True)
        lengths = np.array([len(part) for part in rows[1:]], dtype=np.int64)
        return dual_matrix(lengths, np.concatenate(rows), np.concatenate(values), self.X.shape[0])

    def _coef(self, missing: Ints) -> Any:
        """The weights of all labels: dense, or CSR when pruned."""
        if self.dense_coef is not None:
            return self.dense_coef
        parts = [*self.pruned_parts, sp.csr_array((len(missing), self.X.shape[1]), dtype=self.X.dtype)]
        coef, order = sp.csr_array(sp.vstack(parts)), np.concatenate([*self.solved, missing])
        return coef if (np.diff(order) > 0).all() else sp.csr_array(coef[np.argsort(order)])


class HistoryTable:
    """Sums of the records of labels by iteration and frequency bin."""

    def __init__(self) -> None:
        self._n_labels = np.zeros((0, N_BINS), dtype=np.int64)
        self._gradient_ratio = np.zeros((0, N_BINS))
        self._ended = np.zeros((0, N_BINS))  # sum of the objectives of the labels whose last iteration it is
        # The sum of each quantity, its first value in the cell, and sums of the differences from that and of their
        # squares: without the first value, equal objectives of 1e5 would seem to have a deviation of 1e-3.
        self._moments = np.zeros((4, len(QUANTITIES), 0, N_BINS))

    def add(self, records: Floats, bins: Ints) -> None:
        """Add the records of a block, (n_records, 8), whose labels are in `bins`, (n_labels,)."""
        column = dict(zip(RECORD_COLUMNS, records.T, strict=True))
        iteration, bin_ = column["iteration"].astype(np.int64), bins[column["label"].astype(np.int64)] + 1
        cell = (iteration, bin_)
        self._grow(int(iteration.max(initial=-1)) + 1 - len(self._n_labels))
        cells, first_record = np.unique(iteration * N_BINS + bin_, return_index=True)
        new = first_record[self._n_labels.ravel()[cells] == 0]
        for quantity, source in enumerate(QUANTITIES.values()):
            total, first, difference, square = self._moments[:, quantity]
            first[iteration[new], bin_[new]] = column[source][new]
            away = column[source] - first[cell]
            for table, values in ((total, column[source]), (difference, away), (square, away**2)):
                np.add.at(table, cell, values)
        np.add.at(self._n_labels, cell, 1)
        np.maximum.at(self._gradient_ratio, cell, column["gradient_ratio"])
        # The records of a label need not be adjacent: solvers of many labels at once write them step by step.
        order = np.lexsort((iteration, column["label"]))
        last = order[np.flatnonzero(np.diff(column["label"][order], append=-1.0))]
        np.add.at(self._ended, (iteration[last], bin_[last]), column["value"][last])

    def _grow(self, n_iterations: int) -> None:
        """Make room for more iterations."""
        if n_iterations > 0:
            pad = ((0, n_iterations), (0, 0))
            self._n_labels, self._ended = np.pad(self._n_labels, pad), np.pad(self._ended, pad)
            self._gradient_ratio = np.pad(self._gradient_ratio, pad)
            self._moments = np.pad(self._moments, ((0, 0), (0, 0), *pad))

    def history(self) -> History:
        """The table, as the module describes it."""
        cell = iteration, bin_ = np.nonzero(self._n_labels)
        n_labels = self._n_labels[cell]
        ended_before = np.cumsum(self._ended, axis=0) - self._ended
        columns: dict[str, npt.NDArray[Any]] = {
            "iteration": iteration,
            "frequency_bin": bin_ - 1,
            "n_labels": n_labels,
            "primal_finished": ended_before[cell],
            "gradient_ratio": self._gradient_ratio[cell],
        }
        for quantity, name in enumerate(QUANTITIES):
            total, _, difference, square = (table[cell] for table in self._moments[:, quantity])
            columns[name] = total
            columns[name + "_std"] = np.sqrt(np.maximum(square / n_labels - (difference / n_labels) ** 2, 0.0))
        columns["step_size"] = columns["step_size"] / n_labels
        for name in ("active_rows", "cg_steps"):
            columns[name] = columns[name].astype(np.int64)
        return History(columns)
