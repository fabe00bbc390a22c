"""One run of the fast one-vs-all solver: labels taken over from the core as they are finished.

The core works in the background; in between, Python sees to signals, the clock and the callback. Memory: the weights so
far, as they are stored, and 70 bytes a label.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.reference.one_vs_all import BOUND_COLUMNS
from widemargin.solvers._one_vs_all_history import frequency_bin
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs
from widemargin.solvers._one_vs_all_run import ENDINGS, OneVsAllResult, outcome_of
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["FastRun", "frequency_history", "make_core_solver"]

POLL_S = 0.1  # how long Python is not asked for signals and the clock
REPORT_S = 0.5  # between two calls of the callback, and between two cleanings of the heaps
Begin = Callable[[Any, tuple[npt.NDArray[Any], ...]], None]
"""Hands the labels to the core's solver, and with them what it shall start from."""


def make_core_solver(inputs: OneVsAllInputs, options: dict[str, Any]) -> Any:
    """The core's solver for the rows of `inputs`: makes its own copy of them; labels come with `begin`."""
    X = inputs.X
    name = f"FastOneVsAllF{8 * X.dtype.itemsize}I{8 * X.indices.dtype.itemsize}"
    free = options["fit_intercept"] and not options["regularize_intercept"]
    return getattr(_core, name)(
        data=X.data,
        indices=X.indices,
        indptr=X.indptr,
        n_features=X.shape[1],
        row_weight=inputs.row_weight,
        C=float(options["C"]),
        bias_value=1.0 if options["fit_intercept"] else 0.0,
        bias_penalty=0.0 if free else 1.0,
        tol=float(options["tol"]),
        gap_tol=np.inf if options["gap_tol"] is None else float(options["gap_tol"]),
        prune=float(options["prune"]),
        max_iter=int(options["max_iter"]),
        n_threads=int(options["n_threads"]),
    )


class FastRun:
    """One call of the solver: the labels done so far."""

    def __init__(self, inputs: OneVsAllInputs, options: dict[str, Any], solver: Any, begin: Begin) -> None:
        X, self.solver, self.begin = inputs.X, solver, begin
        self.started = time.perf_counter()  # the copy of the rows, made before, takes no time of a later part
        self.inputs, self.n_features, self.prune = inputs, X.shape[1], float(options["prune"])
        self.C = float(options["C"])
        n_labels = inputs.n_labels
        self.dtype = X.dtype
        self.dense_coef = None if self.prune > 0 else np.zeros((n_labels, self.n_features), dtype=X.dtype)
        self.lengths = np.zeros(n_labels, dtype=np.int64)
        self.weights: Any = _core.GrowingFloat64() if X.dtype == np.float64 else _core.GrowingFloat32()
        self.columns = _core.GrowingInt32()
        self.intercept = np.zeros(n_labels, dtype=X.dtype)
        self.bounds = np.zeros((n_labels, len(BOUND_COLUMNS)))
        self.n_iter = np.zeros(n_labels, dtype=np.int64)
        self.converged = np.zeros(n_labels, dtype=np.uint8)
        self.finished = np.zeros(n_labels, dtype=bool)
        self.done = 0  # labels taken over from the core
        self.deadline = np.inf

    def solve(
        self, callback: Callback | None, time_limit_s: float | None, labels_per_block: int | None
    ) -> OneVsAllResult:
        """Solve all labels, or as many as there are when something asks to stop."""
        unsolved = Status.TIME_LIMIT
        if time_limit_s is None or time_limit_s > 0:
            self.deadline = np.inf if time_limit_s is None else self.started + time_limit_s
            try:
                unsolved = self._solve_blocks(callback, labels_per_block)
            finally:  # a KeyboardInterrupt, too, leaves no thread behind
                if unsolved is not Status.CONVERGED:  # a solver that was stopped solves no more
                    self.solver.stop()
            self._take(self.inputs.n_labels, everything=True)
        self.solver = None  # the copy of the rows is not needed any more
        return self._finish(unsolved)

    def _solve_blocks(self, callback: Callback | None, labels_per_block: int | None) -> Status:
        """Block after block, by default all labels in one; the status of the labels that are not reached."""
        inputs, n_labels = self.inputs, self.inputs.n_labels
        self.begin(self.solver, inputs.label_arrays())
        status, last = self._watch(0, None), 0
        while status is Status.CONVERGED and last < n_labels:
            first, last = last, min(n_labels, last + (labels_per_block or n_labels))
            self.solver.start(first, last)
            status = self._watch(last, callback if labels_per_block is None else None)
            if status is Status.CONVERGED and callback is not None and callback(self._progress(last)):
                return Status.STOPPED
        return status

    def _watch(self, last: int, callback: Callback | None) -> Status:
        """Wait until the core is done with the labels before `last`, a moment at a time: in between Python sees to
        signals, finished labels are taken over, the clock is looked at and progress reported."""
        next_report = time.perf_counter() + REPORT_S
        while not self.solver.wait(POLL_S):
            self._take(last)
            now = time.perf_counter()
            if now >= self.deadline:
                return Status.TIME_LIMIT
            if now >= next_report:
                _core.release_free_memory()
                if callback is not None and callback(self._progress(last)):
                    return Status.STOPPED
                next_report = now + REPORT_S
        self._take(last)
        return Status.CONVERGED if time.perf_counter() < self.deadline else Status.TIME_LIMIT

    def _take(self, last: int, *, everything: bool = False) -> None:
        """Take over the labels before `last` up to the first unfinished one; everything: beyond it, too."""
        while self.done < last:
            data, indices, indptr, intercept, bounds, n_iter, converged, _ = self.solver.take(
                self.done, last, everything
            )
            if len(intercept) == 0:
                return
            block = slice(self.done, self.done + len(intercept))
            if self.dense_coef is None:
                self.lengths[block] = np.diff(indptr)
                self.weights.append(data.astype(self.dtype, copy=False))
                self.columns.append(indices)
            else:
                self.dense_coef[np.repeat(np.arange(block.start, block.stop), np.diff(indptr)), indices] = data
            self.intercept[block] = intercept
            self.bounds[block] = bounds.reshape(len(intercept), -1)
            self.n_iter[block] = n_iter
            self.converged[block] = converged
            self.finished[block] = self.solver.is_finished(block.start, block.stop)
            self.done = block.stop

    def _progress(self, last: int) -> Progress:
        """Sums over the finished labels before `last`."""
        done, primal, dual = self.solver.progress(last)
        return Progress(done, self.inputs.n_labels, time.perf_counter() - self.started, primal, dual)

    def _finish(self, unsolved: Status) -> OneVsAllResult:
        """The result; labels that are not finished have zero weights and honest bounds."""
        bounds = dict(zip(BOUND_COLUMNS, self.bounds.T, strict=True))
        if not self.finished.all():
            self.bounds[~self.finished] = 0.0
            for name in ("primal", "primal_at_zero", "primal_before_pruning"):
                bounds[name][~self.finished] = self.C * self.inputs.loss_weight()[~self.finished]
        status = np.full(self.inputs.n_labels, unsolved.value, dtype=f"<U{max(len(s.value) for s in Status)}")
        status[self.finished] = ENDINGS[self.converged[self.finished]]
        return OneVsAllResult(
            coef=self._coef(),
            intercept=self.intercept,
            dual=None,
            history=self._history(),
            n_iter=self.n_iter,
            **outcome_of(self.bounds, status),
        )

    def _coef(self) -> Any:
        """The weights of all labels: dense, or CSR when pruned."""
        if self.dense_coef is not None:
            return self.dense_coef
        coef = sp.csr_array((self.inputs.n_labels, self.n_features), dtype=self.dtype)
        index_dtype = np.int32 if self.lengths.sum() <= np.iinfo(np.int32).max else np.int64
        coef.indptr = np.append(0, np.cumsum(self.lengths)).astype(index_dtype)
        coef.data = self.weights.take()
        coef.indices = self.columns.take().astype(index_dtype, copy=False)
        return coef

    def _history(self) -> History:
        done = self.finished
        return frequency_history(self.inputs.n_positives[done], self.n_iter[done], self.bounds[done])


def frequency_history(
    n_positives: npt.NDArray[np.int64], n_iter: npt.NDArray[np.int64], bounds: npt.NDArray[np.float64]
) -> History:
    """One row for each log₂ bin of label frequency: its labels, their iterations and bounds."""
    bins = frequency_bin(n_positives)
    columns: dict[str, npt.NDArray[Any]] = {"frequency_bin": np.unique(bins)}
    which = np.searchsorted(columns["frequency_bin"], bins)
    for name, values in (
        ("n_labels", np.ones(len(bins))),
        ("iterations", n_iter),
        ("primal", bounds[:, 0]),
        ("dual", bounds[:, 1]),
    ):
        columns[name] = np.bincount(which, weights=values, minlength=len(columns["frequency_bin"]))
    return History(columns)
