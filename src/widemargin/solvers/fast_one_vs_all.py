"""One-vs-all at scale: batched verified passes over all rows, small local problems, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²

The same problems, the same stopping rule and the same result as `solve_one_vs_all`, for sparse X and the squared
hinge; the logistic loss has its own run, see `batched_logistic`. Rare labels are solved on working sets that passes
over all rows, 16 labels at a time, propose and check; frequent labels by a subspace search over all rows, 16 at a time.
A label counts as solved only when rule and certified gap hold over all rows in float64; what float32 cannot reach is
finished by the truncated Newton solver. Labels with a given start skip the first proposal: a pass with their old
weights finds the rows near the margin. Other problems (dense X, an iteration limit, tolerances near rounding, a given
start with the logistic loss) go to `solve_one_vs_all`.

Weights are stored in float32 and, when pruned, never dense. Memory: X once more as (column, value) pairs of 8 bytes,
the model, 200 bytes a label, and a work area a thread of about 150 bytes a feature, 16 bytes a row near a margin and
at most 6 MB for copies of such rows; frequent labels add 260 bytes a feature and 450 bytes a row.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.reference.one_vs_all import BOUND_COLUMNS
from widemargin.solvers._one_vs_all_history import frequency_bin
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs, checked_initial, prepare_inputs
from widemargin.solvers._one_vs_all_run import SEVERITY, OneVsAllResult
from widemargin.solvers.batched_logistic import BatchedLogisticRun
from widemargin.solvers.one_vs_all import solve_one_vs_all
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["is_fast_problem", "solve_fast_one_vs_all"]

POLL_S = 0.1  # how long Python is not asked for signals and the clock
REPORT_S = 0.5  # between two calls of the callback, and between two cleanings of the heaps
MIN_TOL = 1e-6  # tighter rules are below what float32 passes can steer to; the Newton solver works in float64
MIN_GAP_TOL = 1e-7
DEFAULT_MAX_ITER = 1000
FAST_LOSSES = ("squared_hinge", "logistic")
WORK_BYTES_PER_FEATURE = 410  # of a thread, at most: both paths, see the module's description
WORK_BYTES_PER_ROW = 460


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
    >>> from widemargin.solvers.fast_one_vs_all import solve_fast_one_vs_all
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
        run = BatchedLogisticRun(inputs, inputs.task(loss=loss, **options), memory_limit_mb)
        return run.solve(callback, time_limit_s, labels_per_block, memory_limit_mb)
    n_rows, n_features = inputs.X.shape
    thread_bytes = WORK_BYTES_PER_FEATURE * n_features + WORK_BYTES_PER_ROW * n_rows
    options["n_threads"] = max(1, min(n_threads, int(memory_limit_mb * 2**20 / max(1, thread_bytes))))
    return _Run(inputs, options, _start_arrays(initial, inputs)).solve(callback, time_limit_s, labels_per_block)


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
    >>> from widemargin.solvers.fast_one_vs_all import is_fast_problem
    >>> is_fast_problem(np.eye(3), "squared_hinge", 0.01, 1e-3, 1000, 1024.0)
    False
    """
    if not sp.issparse(X) or loss not in FAST_LOSSES or max_iter != DEFAULT_MAX_ITER:
        return False
    # (column, value) pairs of 8 bytes and, for float64, the exact values beside them.
    copy_bytes = X.nnz * (8 + (8 if X.dtype == np.float64 else 0))
    tolerances = tol >= MIN_TOL and (gap_tol is None or gap_tol >= MIN_GAP_TOL)
    return bool(tolerances and copy_bytes <= memory_limit_mb * 2**20)


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


class _Run:
    """One call of the solver: the labels done so far."""

    def __init__(self, inputs: OneVsAllInputs, options: dict[str, Any], start: dict[str, Any] | None) -> None:
        X, self.start = inputs.X, start
        self.started = time.perf_counter()
        self.inputs, self.n_features, self.prune = inputs, X.shape[1], float(options["prune"])
        self.C = float(options["C"])
        name = f"FastOneVsAllF{8 * X.dtype.itemsize}I{8 * X.indices.dtype.itemsize}"
        free = options["fit_intercept"] and not options["regularize_intercept"]
        self.solver: Any = getattr(_core, name)(
            data=X.data,
            indices=X.indices,
            indptr=X.indptr,
            n_features=X.shape[1],
            row_weight=inputs.row_weight,
            C=self.C,
            bias_value=1.0 if options["fit_intercept"] else 0.0,
            bias_penalty=0.0 if free else 1.0,
            tol=float(options["tol"]),
            gap_tol=np.inf if options["gap_tol"] is None else float(options["gap_tol"]),
            prune=self.prune,
            max_iter=int(options["max_iter"]),
            n_threads=int(options["n_threads"]),
        )
        n_labels = inputs.n_labels
        self.dtype = X.dtype
        self.dense_coef = None if self.prune > 0 else np.zeros((n_labels, self.n_features), dtype=X.dtype)
        self.lengths = np.zeros(n_labels, dtype=np.int64)
        self.weights: Any = _core.GrowingFloat64() if X.dtype == np.float64 else _core.GrowingFloat32()
        self.columns = _core.GrowingInt32()
        self.intercept = np.zeros(n_labels, dtype=X.dtype)
        self.bounds = np.zeros((n_labels, len(BOUND_COLUMNS)))
        self.n_iter = np.zeros(n_labels, dtype=np.int64)
        self.converged = np.zeros(n_labels, dtype=bool)
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
                self.solver.stop()
            self._take(self.inputs.n_labels, everything=True)
        self.solver = None  # the copy of the rows is not needed any more
        return self._finish(unsolved)

    def _solve_blocks(self, callback: Callback | None, labels_per_block: int | None) -> Status:
        """Block after block, by default all labels in one; the status of the labels that are not reached."""
        inputs, n_labels = self.inputs, self.inputs.n_labels
        labels = (inputs.positive_rows, inputs.positive_indptr, inputs.positive_factor, inputs.negative_factor)
        if self.start is None:
            self.solver.begin(*labels)
        else:
            self.solver.begin_from(*labels, **self.start)
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
        status[self.finished] = np.where(self.converged, Status.CONVERGED.value, Status.MAX_ITER.value)[self.finished]
        return OneVsAllResult(
            coef=self._coef(),
            intercept=self.intercept,
            dual=None,
            certificate=Certificate.sum(
                bounds["primal"], bounds["dual"], bounds["primal_at_zero"], bounds["primal_before_pruning"]
            ),
            history=self._history(),
            n_iter=self.n_iter,
            status=max((Status(value) for value in np.unique(status)), key=SEVERITY.index),
            status_by_label=status,
            primal_by_label=bounds["primal"].copy(),
            dual_by_label=bounds["dual"].copy(),
            pruned_share=bounds["pruned_share"].copy(),
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
        """One row for each log₂ bin of label frequency: its labels, their iterations and bounds."""
        finished = self.finished
        bins = frequency_bin(self.inputs.n_positives[finished])
        columns: dict[str, npt.NDArray[Any]] = {"frequency_bin": np.unique(bins)}
        which = np.searchsorted(columns["frequency_bin"], bins)
        for name, values in (
            ("n_labels", np.ones(len(bins))),
            ("iterations", self.n_iter[finished]),
            ("primal", self.bounds[finished, 0]),
            ("dual", self.bounds[finished, 1]),
        ):
            columns[name] = np.bincount(which, weights=values, minlength=len(columns["frequency_bin"]))
        return History(columns)
