"""One call of the one-vs-all solver: blocks of labels from their starts to stored, certified weights.

Blocks take about half a second; between them the callback and the time limit are looked at. Memory: the model, one
block of dense weights where the model is pruned, and the work areas of the threads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.losses import get_loss
from widemargin.reference.newton import ROUNDING_GAP
from widemargin.reference.one_vs_all import BOUND_COLUMNS, RECORD_COLUMNS, BlockResult, BlockTask
from widemargin.solvers._backend import select_labels, solve_labels
from widemargin.solvers._limits import worst_of
from widemargin.solvers._one_vs_all_history import HistoryTable, frequency_bin
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs
from widemargin.solvers.result import Callback, Progress, SolverResult, Status
from widemargin.solvers.starts import Start

__all__ = ["ENDINGS", "OneVsAllResult", "Run", "outcome_of"]

Ints = npt.NDArray[np.int64]

FIRST_LABELS_PER_THREAD = 4  # the size of the first block, before anything is known of the time a label takes
BLOCK_S = 0.5  # a block should take about as long: short enough to interrupt, long enough to keep threads busy
MAX_GROWTH = 4.0  # of a block over the one before
WORK_VECTORS_FEATURES = 8  # float64 vectors of n_features + 1 a thread, see cpp/one_vs_all.hpp
WORK_BYTES_PER_ROW = 33  # scores, direction's scores, active rows and their curvature, labels
LABEL, SECONDS = RECORD_COLUMNS.index("label"), RECORD_COLUMNS.index("seconds")
# Names of the values of `BlockResult.converged`, padded so that any status fits.
ENDINGS = np.array(
    [Status.MAX_ITER.value, Status.CONVERGED.value, Status.NOT_ATTAINED.value],
    dtype=f"<U{max(len(status.value) for status in Status)}",
)


@dataclass(frozen=True)
class OneVsAllResult(SolverResult):
    """A `SolverResult` with what is known of each label.

    Parameters
    ----------
    status_by_label : ndarray of str of shape (n_labels,)
        Values of `Status`; labels never reached have the reason.
    primal_by_label, dual_by_label : ndarray of shape (n_labels,)
        Bounds on each label's optimum.
    pruned_share : ndarray of shape (n_labels,)
        Share of ‖w‖² that pruning removed.
    seconds_by_label : ndarray of shape (n_labels,) or None
        CPU seconds of each label: its share of its block's starts, and its iterations, without the certificate; None
        where labels are not solved one at a time.
    bounds_by_label : ndarray of shape (n_labels, 5) or None
        All bounds of each label, see `widemargin.reference.one_vs_all.BOUND_COLUMNS`.
    records : ndarray of shape (n_records, 8) or None
        What the history is made of, where it was asked for.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all import OneVsAllResult
    >>> list(OneVsAllResult.__dataclass_fields__)[-7:-2]
    ['status_by_label', 'primal_by_label', 'dual_by_label', 'pruned_share', 'seconds_by_label']
    """

    status_by_label: npt.NDArray[np.str_]
    primal_by_label: npt.NDArray[np.float64]
    dual_by_label: npt.NDArray[np.float64]
    pruned_share: npt.NDArray[np.float64]
    seconds_by_label: npt.NDArray[np.float64] | None = None
    bounds_by_label: npt.NDArray[np.float64] | None = None
    records: npt.NDArray[np.float64] | None = None


def outcome_of(table: npt.NDArray[np.float64], status: npt.NDArray[np.str_], *, copy: bool = True) -> dict[str, Any]:
    """What a result says of bounds (n_labels, 5), the columns being `BOUND_COLUMNS`, and of how each label ended."""
    bounds = dict(zip(BOUND_COLUMNS, table.T, strict=True))
    objectives = {name: bounds[name] for name in ("primal", "dual", "primal_at_zero", "primal_before_pruning")}
    # A label without a minimiser is as close to its infimum as makes no difference; one that rounding stopped is not.
    left = bounds["primal"] - bounds["dual"] > ROUNDING_GAP * bounds["primal_at_zero"]
    columns = {"primal_by_label": "primal", "dual_by_label": "dual", "pruned_share": "pruned_share"}
    return {
        "certificate": Certificate.sum(**objectives, attained=(status != Status.NOT_ATTAINED.value) | left),
        "status": worst_of(Status(value) for value in np.unique(status)),
        "status_by_label": status,
        **{field: bounds[name].copy() if copy else bounds[name] for field, name in columns.items()},
        "bounds_by_label": table,
    }


class Run:
    """One call of the solver: the blocks done so far."""

    records: list[npt.NDArray[np.float64]] | None = None  # a list to keep what the history is made of

    def __init__(self, inputs: OneVsAllInputs, task: BlockTask, start: Start, backend: str) -> None:
        self.inputs, self.task, self.start, self.backend = inputs, task, start, backend
        n_labels, self.n_features = inputs.n_labels, inputs.X.shape[1]
        self.bins = frequency_bin(inputs.n_positives)
        self.result = BlockResult.zeros(n_labels, 0, inputs.X.dtype)
        self.history = HistoryTable()
        self.seconds = np.zeros(n_labels)
        self.pruned_parts: list[Any] = []
        self.dense_coef = None if task.prune > 0 else np.zeros((n_labels, self.n_features), dtype=inputs.X.dtype)
        self.solved: list[Ints] = []  # the labels of each block, in the order in which they were solved
        self.done = 0

    def solve(
        self,
        callback: Callback | None,
        time_limit_s: float | None,
        labels_per_block: int | None,
        memory_limit_mb: float,
    ) -> OneVsAllResult:
        """Solve block after block until all labels are done or something asks to stop."""
        self.task, largest = self._fit_memory(memory_limit_mb)
        size = min(largest, labels_per_block or FIRST_LABELS_PER_THREAD * self.task.n_threads)
        started, unsolved = time.perf_counter(), Status.CONVERGED
        while self.done < self.inputs.n_labels:
            block_started = time.perf_counter()
            if time_limit_s is not None and block_started - started >= time_limit_s:
                unsolved = Status.TIME_LIMIT
                break
            self._solve_labels(self.start.next_labels(size))
            now = time.perf_counter()
            if callback is not None and callback(self._progress(now - started)):
                unsolved = Status.STOPPED
                break
            if labels_per_block is None:
                growth = min(MAX_GROWTH, BLOCK_S / max(now - block_started, 1e-9))
                size = min(largest, max(self.task.n_threads, int(size * growth)))
        return self._finish(unsolved)

    def _fit_memory(self, memory_limit_mb: float) -> tuple[BlockTask, int]:
        """The task with as many threads as the work area allows, and the largest block it allows."""
        limit = memory_limit_mb * 2**20
        thread = 8 * WORK_VECTORS_FEATURES * (self.n_features + 1) + WORK_BYTES_PER_ROW * self.inputs.X.shape[0]
        n_threads = max(1, min(self.task.n_threads, int(limit / thread)))
        if self.dense_coef is not None and self.start.in_order:  # blocks are written into the model itself
            return replace(self.task, n_threads=n_threads), self.inputs.n_labels
        label = max(1, self.n_features) * self.inputs.X.dtype.itemsize
        return replace(self.task, n_threads=n_threads), max(1, int((limit - n_threads * thread) / label))

    def _solve_labels(self, labels: Ints) -> None:
        """Solve some labels and keep what they give. Sets: result, dense_coef, history, seconds, solved, done."""
        task = select_labels(self.task, labels)
        # Labels that follow each other are solved in the model itself; others are copied there.
        coef = None
        if self.dense_coef is not None and self.start.in_order:
            coef = self.dense_coef[labels[0] : labels[-1] + 1]
        block = BlockResult.zeros(len(labels), self.n_features, self.inputs.X.dtype, coef)
        began = time.process_time()
        self.start.fill(labels, task, block)
        self.seconds[labels] = (time.process_time() - began) / len(labels)
        records = self._solve_block(task, block)
        self.start.keep(labels, block)
        if self.dense_coef is None:
            self.pruned_parts.append(sp.csr_array(block.coef))
        elif coef is None:
            self.dense_coef[labels] = block.coef
        for name in ("intercept", "bounds", "n_iter", "converged"):
            getattr(self.result, name)[labels] = getattr(block, name)
        self.history.add(records, self.bins[labels])
        label_of = labels[records[:, LABEL].astype(np.int64)]
        np.add.at(self.seconds, label_of, records[:, SECONDS])
        if self.records is not None:
            self.records.append(np.column_stack([label_of, records[:, LABEL + 1 :]]))
        self.solved.append(labels)
        self.done += len(labels)

    def _solve_block(self, task: BlockTask, block: BlockResult) -> npt.NDArray[np.float64]:
        """Solve the labels of a task into `block`; returns the records. What another algorithm replaces."""
        return solve_labels(self.inputs.X, task, block, self.backend)

    def _progress(self, elapsed_s: float) -> Progress:
        """Sums over the finished labels."""
        primal, dual = self.result.bounds[:, :2].sum(axis=0)  # zeros for the others
        return Progress(self.done, self.inputs.n_labels, elapsed_s, float(primal), float(dual))

    def _finish(self, unsolved: Status) -> OneVsAllResult:
        """The result; labels that were not reached have zero weights and honest bounds."""
        bounds = dict(zip(BOUND_COLUMNS, self.result.bounds.T, strict=True))
        missing = self._missing()
        phi_at_zero = float(get_loss(self.task.loss).value(np.zeros(1))[0])
        at_zero = self.task.C * phi_at_zero * self.inputs.loss_weight()[missing]
        for name in ("primal", "primal_at_zero", "primal_before_pruning"):
            bounds[name][missing] = at_zero
        status = ENDINGS[self.result.converged]
        status[missing] = unsolved.value
        return OneVsAllResult(
            coef=self._coef(),
            intercept=self.result.intercept,
            dual=None,
            history=self.history.history(),
            n_iter=self.result.n_iter,
            **outcome_of(self.result.bounds, status),
            seconds_by_label=self.seconds,
            records=None if self.records is None else np.concatenate(self.records),
        )

    def _missing(self) -> Ints:
        """Labels that were not reached."""
        reached = np.zeros(self.inputs.n_labels, dtype=bool)
        for labels in self.solved:
            reached[labels] = True
        return np.flatnonzero(~reached)

    def _coef(self) -> Any:
        """The weights of all labels: dense, or CSR when pruned."""
        if self.dense_coef is not None:
            return self.dense_coef
        missing = self._missing()
        parts = [*self.pruned_parts, sp.csr_array((len(missing), self.n_features), dtype=self.inputs.X.dtype)]
        coef, order = sp.csr_array(sp.vstack(parts)), np.concatenate([*self.solved, missing])
        return coef if (np.diff(order) > 0).all() else sp.csr_array(coef[np.argsort(order)])
