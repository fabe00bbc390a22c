"""One-vs-all at scale: batched verified passes over all rows, small local problems, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²

The same problems, the same stopping rule and the same result as `solve_one_vs_all`, for sparse X and the squared
hinge; the logistic loss has its own run, see `batched_logistic`. Rare labels are solved on working sets that passes
over all rows, 32 labels at a time, propose and check; frequent labels by a subspace search over all rows, 16 at a time.
A label counts as solved only when rule and certified gap hold over all rows in float64; what float32 cannot reach is
finished by the truncated Newton solver. Labels with a given start skip the first proposal: a pass with their old
weights finds the rows near the margin. Other problems (dense X, an iteration limit, tolerances near rounding, a given
start with the logistic loss) go to `solve_one_vs_all`.

Weights are stored in float32 and, when pruned, never dense. Memory: X once more as (column, value) pairs of 8 bytes,
the model, 200 bytes a label, and a work area a thread of about 150 bytes a feature, 16 bytes a row near a margin and
at most 6 MB for copies of such rows; frequent labels add 260 bytes a feature and 450 bytes a row.

One run of the fast one-vs-all solver: labels taken over from the core as they are finished.

The core works in the background; in between, Python sees to signals, the clock and the callback. Memory: the weights so
far, as they are stored, and 70 bytes a label.

One-vs-all with the logistic loss on sparse rows: 16 labels at once over all rows, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i log(1 + exp(−y_i (w·x_i + b)))

The same problems, rule and certificate as `solve_one_vs_all(loss="logistic")`. With this loss every row counts, so
there are no working sets: each iteration minimises over the span of the scaled gradient, the last step, the weights and
the intercept, for 16 labels side by side in float32. A label counts as solved only when rule and certified gap hold
over all rows in float64; the others are finished by the truncated Newton solver. Measured at tol 0.01 and gap_tol 1e-3,
one thread, milliseconds a label, against Newton from the subspace start: debian-tags 5 against 34, rcv1v2-subsets 6
against 53. Memory: X once more as (column, value) pairs of 8 bytes, a block of dense weights, and a work area a thread
of 300 bytes a feature and 220 bytes a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.reference.one_vs_all import BOUND_COLUMNS, RECORD_COLUMNS, BlockResult, BlockTask
from widemargin.solvers.one_vs_all.newton import (
    ENDINGS,
    OneVsAllResult,
    Run,
    frequency_bin,
    outcome_of,
    solve_one_vs_all,
)
from widemargin.solvers.one_vs_all.problem import OneVsAllInputs, checked_initial, prepare_inputs
from widemargin.solvers.one_vs_all.starts import Start
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = [
    "BatchedLogisticRun",
    "FastRun",
    "frequency_history",
    "is_fast_problem",
    "make_core_solver",
    "solve_fast_one_vs_all",
]

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


LABELS_PER_THREAD = 64  # in a block at least: the lanes of a batch run empty at its end
WORK_BYTES_PER_FEATURE = 300
WORK_BYTES_PER_ROW = 220


class _ZeroStart(Start):
    """Zero weights, for blocks that fill the batches."""

    def __init__(self, n_labels: int, least: int) -> None:
        super().__init__(n_labels)
        self.least = least

    def next_labels(self, size: int) -> npt.NDArray[np.int64]:
        return super().next_labels(max(size, self.least))


class BatchedLogisticRun(Run):
    """A run of the one-vs-all solver whose blocks are solved in batches.

    Parameters
    ----------
    inputs : OneVsAllInputs
        Rows (CSR), labels and weights.
    task : BlockTask
        All labels and how to solve them; the loss is the logistic one.
    memory_limit_mb : float
        Bound on the work areas: fewer threads are used where it asks for that.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.solvers.one_vs_all.fast import solve_fast_one_vs_all
    >>> X = sp.csr_array(np.eye(2, dtype=np.float32))
    >>> result = solve_fast_one_vs_all(X, np.array([[1], [0]]), loss="logistic", tol=1e-4)
    >>> result.coef.astype(float).round(3).tolist(), result.status.value
    ([[0.401, -0.401]], 'converged')
    """

    def __init__(self, inputs: OneVsAllInputs, task: BlockTask, memory_limit_mb: float) -> None:
        X = inputs.X
        thread = WORK_BYTES_PER_FEATURE * X.shape[1] + WORK_BYTES_PER_ROW * X.shape[0]
        n_threads = max(1, min(task.n_threads, int(memory_limit_mb * 2**20 / max(1, thread))))
        task = replace(task, n_threads=n_threads)
        super().__init__(inputs, task, _ZeroStart(inputs.n_labels, LABELS_PER_THREAD * n_threads), "core")
        name = f"BatchLogisticF{8 * X.dtype.itemsize}I{8 * X.indices.dtype.itemsize}"
        options = ("C", "bias_value", "bias_penalty", "tol", "gap_tol", "prune", "max_iter", "n_threads")
        self.solver = getattr(_core, name)(
            data=X.data,
            indices=X.indices,
            indptr=X.indptr,
            n_features=X.shape[1],
            row_weight=task.row_weight,
            **{option: getattr(task, option) for option in options},
        )

    def _solve_block(self, task: BlockTask, block: BlockResult) -> npt.NDArray[np.float64]:
        """Solve the labels of a task into `block`; returns one record a label, of its last iterate."""
        labels = (task.positive_rows, task.positive_indptr, task.positive_factor, task.negative_factor)
        self.solver.solve(*labels, block.coef, block.intercept, block.bounds, block.n_iter, block.converged)
        return _records(block, self.inputs.X.shape[0])


def _records(block: BlockResult, n_rows: int) -> npt.NDArray[np.float64]:
    """One row a label, as the Newton solver has one for every step."""
    records = np.zeros((len(block.n_iter), len(RECORD_COLUMNS)))
    columns: dict[str, Any] = {
        "label": np.arange(len(block.n_iter)),
        "iteration": block.n_iter,
        "value": block.bounds[:, 0],
        "active_rows": n_rows,
        "step": 1.0,
    }
    for name, values in columns.items():
        records[:, RECORD_COLUMNS.index(name)] = values
    return records


MIN_TOL = 1e-6  # tighter rules are below what float32 passes can steer to; the Newton solver works in float64
MIN_GAP_TOL = 1e-7
DEFAULT_MAX_ITER = 1000
FAST_LOSSES = ("squared_hinge", "logistic")
WORK_BYTES_PER_FEATURE_FAST_ONE_VS_ALL = 410  # of a thread, at most: both paths, see the module's description
WORK_BYTES_PER_ROW_FAST_ONE_VS_ALL = 460


def solve_fast_one_vs_all(
    X: Any,
    Y: Any,
    *,
    C: float = 1.0,
    sample_weight: Any = None,
    positive_weight: Any = None,
    negative_weight: Any = None,
    fit_intercept: bool = True,
    regularize_intercept: bool = False,
    loss: str = "squared_hinge",
    tol: float = 0.01,
    gap_tol: float | None = 1e-3,
    prune: float = 0.0,
    max_iter: int = DEFAULT_MAX_ITER,
    n_threads: int = 1,
    callback: Callback | None = None,
    time_limit_s: float | None = None,
    initial: tuple[Any, Any] | None = None,
    labels_per_block: int | None = None,
    memory_limit_mb: float = 1024.0,
) -> OneVsAllResult:
    """Solve one binary problem a label, many labels at once.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        float32 or float64; indices of any order and of 32 or 64 bits; read-only memory maps are not copied.
    Y : sparse or dense indicator of shape (n_samples, n_labels)
        Which labels each row has.
    C : float
        Weight of the losses against the penalty.
    sample_weight : array of shape (n_samples,), optional
        Weights of the rows; rows of weight zero take no part.
    positive_weight, negative_weight : array of shape (n_labels,), optional
        Further factors for the rows with and without each label.
    fit_intercept, regularize_intercept : bool
        Whether there is an intercept, and whether it is penalised like a weight.
    loss : str
        Name of the loss.
    tol : float
        The gradient rule (12)–(13).
    gap_tol : float or None
        Largest certified relative gap of a label before pruning; None: not asked for.
    prune : float
        Weights smaller than this are dropped, and `coef` is CSR if positive; the intercept is never dropped.
    max_iter : int
        Newton steps of a label that is finished by the Newton solver; other values than the default ask for that
        solver altogether.
    n_threads : int
        Threads of the core; the result does not depend on them.
    callback : callable, optional
        Called with a `Progress` about twice a second and at the end, or after each block when `labels_per_block` is
        given; a true answer stops within a moment.
    time_limit_s : float, optional
        Labels that are not finished after this many seconds are left out.
    initial : tuple of (coef, intercept), optional
        Where to start, shapes (n_labels, n_features), CSR or dense, and (n_labels,): the solution for another C, or
        of an earlier fit. Labels whose weights are all zero start as without it.
    labels_per_block : int, optional
        Size of a block, to stop after a given number of labels; by default all are one. The result does not depend on
        it, but threads wait for each other at the end of a block.
    memory_limit_mb : float
        Bound on the copy of the rows, and on the threads' work areas: fewer threads are used where it asks for that,
        and the Newton solver, which copies nothing, where the rows do not fit.

    Returns
    -------
    OneVsAllResult
        `history` has one row for each log₂ bin of label frequency; otherwise as from `solve_one_vs_all`.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.solvers.one_vs_all.fast import solve_fast_one_vs_all
    >>> result = solve_fast_one_vs_all(sp.csr_array(np.eye(2, dtype=np.float32)), np.array([[1], [0]]), tol=1e-4)
    >>> result.coef.astype(float).round(3).tolist(), result.status.value
    ([[0.667, -0.667]], 'converged')
    """
    options: dict[str, Any] = {
        "C": C,
        "fit_intercept": fit_intercept,
        "regularize_intercept": regularize_intercept,
        "tol": tol,
        "gap_tol": gap_tol,
        "prune": prune,
        "max_iter": max_iter,
        "n_threads": n_threads,
    }
    fast = is_fast_problem(X, loss, tol, gap_tol, max_iter, memory_limit_mb)
    if not fast or (initial is not None and loss != "squared_hinge") or not _sensible(options):
        rest: dict[str, Any] = {"callback": callback, "time_limit_s": time_limit_s, "initial": initial, "loss": loss}
        weights = {"positive_weight": positive_weight, "negative_weight": negative_weight}
        rest |= weights | {"labels_per_block": labels_per_block, "memory_limit_mb": memory_limit_mb}
        return solve_one_vs_all(X, Y, sample_weight=sample_weight, **options, **rest)
    inputs = prepare_inputs(X, Y, sample_weight, positive_weight, negative_weight)
    if loss == "logistic":
        logistic = BatchedLogisticRun(inputs, inputs.task(loss=loss, **options), memory_limit_mb)
        return logistic.solve(callback, time_limit_s, labels_per_block, memory_limit_mb)
    options["n_threads"] = threads_that_fit(n_threads, inputs.X.shape, memory_limit_mb)
    start = _start_arrays(initial, inputs)

    def begin(solver: Any, labels: tuple[npt.NDArray[Any], ...]) -> None:
        if start is None:
            solver.begin(*labels)
        else:
            solver.begin_from(*labels, **start)

    started = time.perf_counter()
    run = FastRun(inputs, options, make_core_solver(inputs, options), begin)
    run.started = started
    return run.solve(callback, time_limit_s, labels_per_block)


def is_fast_problem(
    X: Any, loss: str, tol: float, gap_tol: float | None, max_iter: int, memory_limit_mb: float
) -> bool:
    """Whether `solve_fast_one_vs_all` has something to offer, or hands the problem to `solve_one_vs_all`.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Rows; they must be sparse, and their copy must fit in `memory_limit_mb`, so that a large store stays mapped.
    loss, tol, gap_tol, max_iter, memory_limit_mb
        As in `solve_fast_one_vs_all`.

    Returns
    -------
    bool

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.fast import is_fast_problem
    >>> is_fast_problem(np.eye(3), "squared_hinge", 0.01, 1e-3, 1000, 1024.0)
    False
    """
    if not sp.issparse(X) or loss not in FAST_LOSSES or max_iter != DEFAULT_MAX_ITER:
        return False
    # (column, value) pairs of 8 bytes and, for float64, the exact values beside them.
    copy_bytes = X.nnz * (8 + (8 if X.dtype == np.float64 else 0))
    tolerances = tol >= MIN_TOL and (gap_tol is None or gap_tol >= MIN_GAP_TOL)
    return bool(tolerances and copy_bytes <= memory_limit_mb * 2**20)


def threads_that_fit(n_threads: int, shape: tuple[int, ...], memory_limit_mb: float) -> int:
    """At most so many threads that their work areas stay within the limit, but one."""
    thread_bytes = WORK_BYTES_PER_FEATURE_FAST_ONE_VS_ALL * shape[1] + WORK_BYTES_PER_ROW_FAST_ONE_VS_ALL * shape[0]
    return max(1, min(n_threads, int(memory_limit_mb * 2**20 / max(1, thread_bytes))))


def _sensible(options: dict[str, Any]) -> bool:
    """Whether the numbers mean something; if not, the Newton solver says what is wrong."""
    return bool(np.isfinite(options["C"]) and options["C"] > 0 and options["prune"] >= 0 and options["n_threads"] >= 1)


def _start_arrays(initial: tuple[Any, Any] | None, inputs: OneVsAllInputs) -> dict[str, Any] | None:
    """The start as the core takes it; None where there is none."""
    checked = checked_initial(initial, inputs)
    return None if checked is None else weight_arrays(*checked)


def weight_arrays(coef: Any, intercept: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Weights of shape (n_labels, n_features), CSR or dense, as the core takes them: CSR in float32."""
    coef = sp.csr_array(coef)
    return {
        "data": coef.data.astype(np.float32, copy=False),
        "indices": coef.indices.astype(np.int32, copy=False),
        "indptr": coef.indptr.astype(np.int64, copy=False),
        "intercept": intercept.astype(np.float32, copy=False),
    }
