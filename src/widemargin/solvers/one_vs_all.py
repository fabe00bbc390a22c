"""One-vs-all with a truncated Newton method, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

Newton with preconditioned conjugate gradients on the active set (eq. (19)–(20) of Schultheis & Babbar, 2022), until
‖∇L(w)‖ ≤ tol · max(1, min(P, N))/n · ‖∇L(0)‖, eq. (12)–(13), and the certified relative gap is at most `gap_tol`; P, N
and n are sums of weights. Weights are rounded to the type of X, pruned, and certified as they are stored: the upper
bound is their objective, the lower bound a dual point made from them before pruning.

Labels are solved in blocks of about half a second, between which the callback and the time limit are looked at.
Memory: X, the model, and at most `memory_limit_mb` of work (but at least one thread's vectors and one label's weights).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.problems.losses import Loss, get_loss
from widemargin.reference.one_vs_all import BOUND_COLUMNS, BlockResult, BlockTask, solve_block
from widemargin.solvers._one_vs_all_history import HistoryTable, frequency_bin
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs, prepare_inputs
from widemargin.solvers.result import Callback, Progress, SolverResult, Status

__all__ = ["OneVsAllResult", "solve_one_vs_all"]

FIRST_LABELS_PER_THREAD = 4  # the size of the first block, before anything is known of the time a label takes
BLOCK_S = 0.5  # a block should take about as long: short enough to interrupt, long enough to keep threads busy
MAX_GROWTH = 4.0  # of a block over the one before
WORK_VECTORS_FEATURES = 7  # float64 vectors of n_features + 1 a thread, see cpp/one_vs_all.hpp
WORK_BYTES_PER_ROW = 33  # scores, direction's scores, active rows and their curvature, labels
SEVERITY = (Status.CONVERGED, Status.NOT_ATTAINED, Status.MAX_ITER, Status.TIME_LIMIT, Status.STOPPED)


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

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all import OneVsAllResult
    >>> list(OneVsAllResult.__dataclass_fields__)[-4:]
    ['status_by_label', 'primal_by_label', 'dual_by_label', 'pruned_share']
    """

    status_by_label: npt.NDArray[np.str_]
    primal_by_label: npt.NDArray[np.float64]
    dual_by_label: npt.NDArray[np.float64]
    pruned_share: npt.NDArray[np.float64]


def solve_one_vs_all(
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
    max_iter: int = 1000,
    n_threads: int = 1,
    callback: Callback | None = None,
    time_limit_s: float | None = None,
    initial: tuple[Any, Any] | None = None,
    labels_per_block: int | None = None,
    memory_limit_mb: float = 1024.0,
    backend: Literal["core", "reference"] = "core",
) -> OneVsAllResult:
    """Solve one binary problem a label.

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
        Largest certified relative gap of a label, before rounding to the type of X and pruning; None: not asked for.
    prune : float
        Weights smaller than this are dropped, and `coef` is CSR if positive; the intercept is never dropped.
    max_iter : int
        Newton steps a label at most; ordinary labels take 10 to 30, nearly hard margins hundreds.
    n_threads : int
        Threads of the core; the result does not depend on them.
    callback : callable, optional
        Called with a `Progress` after each block; a true answer stops.
    time_limit_s : float, optional
        No block begins after this many seconds.
    initial : tuple of (coef, intercept), optional
        Where to start, shapes (n_labels, n_features) and (n_labels,); zeros when None.
    labels_per_block : int, optional
        Size of a block; by default about half a second of work.
    memory_limit_mb : float
        Bound on the work area beside X and the model.
    backend : {"core", "reference"}
        The compiled core, or its NumPy specification.

    Returns
    -------
    OneVsAllResult
        Labels never reached have zero weights, the objective there as upper and zero as lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all import solve_one_vs_all
    >>> result = solve_one_vs_all(np.eye(2), np.array([[1], [0]]), tol=1e-9)
    >>> result.coef.round(6).tolist(), result.intercept.round(6).tolist()
    ([[0.666667, -0.666667]], [0.0])
    >>> result.status.value, bool(result.certificate.relative_gap < 1e-9)
    ('converged', True)
    """
    _check_numbers(C, {"tol": tol, "gap_tol": gap_tol, "prune": prune})
    _check_counts(max_iter, n_threads, labels_per_block)
    if backend not in ("core", "reference"):
        raise ValueError(f"backend must be 'core' or 'reference', got {backend!r}")
    inputs = prepare_inputs(X, Y, sample_weight, positive_weight, negative_weight)
    task = BlockTask(
        inputs.positive_rows,
        inputs.positive_indptr,
        inputs.row_weight,
        inputs.positive_factor,
        inputs.negative_factor,
        loss=loss,
        C=float(C),
        bias_value=1.0 if fit_intercept else 0.0,
        bias_penalty=0.0 if fit_intercept and not regularize_intercept else 1.0,
        tol=float(tol),
        gap_tol=np.inf if gap_tol is None else float(gap_tol),
        prune=float(prune),
        max_iter=int(max_iter),
        n_threads=int(n_threads),
    )
    run = _Run(inputs, task, get_loss(loss), _check_initial(initial, inputs), backend)
    return run.solve(callback, time_limit_s, labels_per_block, memory_limit_mb)


def _check_numbers(C: float, tolerances: dict[str, float | None]) -> None:
    """Refuse numbers that have no meaning, NaN included."""
    if not (np.isfinite(C) and C > 0):
        raise ValueError(f"C must be positive and finite, got {C}")
    for name, value in tolerances.items():
        if value is not None and not value >= 0:
            raise ValueError(f"{name} must not be negative, got {value}")


def _check_counts(max_iter: int, n_threads: int, labels_per_block: int | None) -> None:
    """Refuse counts that are too small."""
    counts = {"max_iter": (max_iter, 0), "n_threads": (n_threads, 1), "labels_per_block": (labels_per_block, 1)}
    for name, (count, least) in counts.items():
        if count is not None and count < least:
            raise ValueError(f"{name} must be at least {least}, got {count}")


def _check_initial(initial: tuple[Any, Any] | None, inputs: OneVsAllInputs) -> tuple[Any, Any] | None:
    """The start's weights, CSR or dense, and intercepts, of the right shapes."""
    if initial is None:
        return None
    coef = sp.csr_array(initial[0]) if sp.issparse(initial[0]) else np.asarray(initial[0])
    intercept = np.asarray(initial[1])
    expected = (inputs.n_labels, inputs.X.shape[1])
    if coef.shape != expected or intercept.shape != expected[:1]:
        raise ValueError(f"initial must have shapes {expected} and {expected[:1]}, got {coef.shape}, {intercept.shape}")
    return coef, intercept


class _Run:
    """One call of the solver: the blocks done so far."""

    def __init__(
        self, inputs: OneVsAllInputs, task: BlockTask, loss: Loss, initial: tuple[Any, Any] | None, backend: str
    ) -> None:
        self.inputs, self.task, self.loss, self.initial, self.backend = inputs, task, loss, initial, backend
        n_labels, self.n_features = inputs.n_labels, inputs.X.shape[1]
        self.bins = frequency_bin(inputs.n_positives)
        self.result = BlockResult.zeros(n_labels, 0, inputs.X.dtype)
        self.history = HistoryTable()
        self.pruned_parts: list[Any] = []
        self.dense_coef = None if task.prune > 0 else np.zeros((n_labels, self.n_features), dtype=inputs.X.dtype)
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
            self._solve_labels(self.done, min(self.done + size, self.inputs.n_labels))
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
        if self.dense_coef is not None:  # blocks are written into the model itself
            return replace(self.task, n_threads=n_threads), self.inputs.n_labels
        label = max(1, self.n_features) * self.inputs.X.dtype.itemsize
        return replace(self.task, n_threads=n_threads), max(1, int((limit - n_threads * thread) / label))

    def _solve_labels(self, first: int, last: int) -> None:
        """Solve the labels first … last − 1 and keep what they give. Sets: result, history, done."""
        indptr = self.task.positive_indptr
        task = replace(
            self.task,
            positive_rows=self.task.positive_rows[indptr[first] : indptr[last]],
            positive_indptr=indptr[first : last + 1] - indptr[first],
            positive_factor=self.task.positive_factor[first:last],
            negative_factor=self.task.negative_factor[first:last],
        )
        coef = None if self.dense_coef is None else self.dense_coef[first:last]
        block = BlockResult.zeros(last - first, self.n_features, self.inputs.X.dtype, coef)
        if self.initial is not None:
            start = self.initial[0][first:last]
            block.coef[...] = start.toarray() if sp.issparse(start) else start
            block.intercept[...] = self.initial[1][first:last]
        records = self._solve_block(task, block)
        if self.dense_coef is None:
            self.pruned_parts.append(sp.csr_array(block.coef))
        for name in ("intercept", "bounds", "n_iter", "converged"):
            getattr(self.result, name)[first:last] = getattr(block, name)
        self.history.add(records, self.bins[first:last])
        self.done = last

    def _solve_block(self, task: BlockTask, block: BlockResult) -> npt.NDArray[np.float64]:
        """Call the backend; returns its records."""
        X = self.inputs.X
        if self.backend == "reference":
            return solve_block(X, task, self.loss, block)
        core_task = _core.OneVsAllTask(**vars(task))
        if sp.issparse(X):
            return _core.solve_one_vs_all_csr(X.data, X.indices, X.indptr, X.shape[1], core_task, **vars(block))
        return _core.solve_one_vs_all_dense(X, core_task, **vars(block))

    def _progress(self, elapsed_s: float) -> Progress:
        """Sums over the finished labels."""
        primal, dual = self.result.bounds[: self.done, :2].sum(axis=0)
        return Progress(self.done, self.inputs.n_labels, elapsed_s, float(primal), float(dual))

    def _finish(self, unsolved: Status) -> OneVsAllResult:
        """The result; labels from `done` on have zero weights and honest bounds."""
        bounds = dict(zip(BOUND_COLUMNS, self.result.bounds.T, strict=True))
        at_zero = self.task.C * float(self.loss.value(np.zeros(1))[0]) * self.inputs.loss_weight()[self.done :]
        for name in ("primal", "primal_at_zero", "primal_before_pruning"):
            bounds[name][self.done :] = at_zero
        status = np.full(self.inputs.n_labels, unsolved.value, dtype=f"<U{max(len(s.value) for s in Status)}")
        reached = self.result.converged[: self.done].astype(bool)
        status[: self.done] = np.where(reached, Status.CONVERGED.value, Status.MAX_ITER.value)
        return OneVsAllResult(
            coef=self._coef(),
            intercept=self.result.intercept,
            dual=None,
            certificate=Certificate.sum(*(bounds[name] for name in BOUND_COLUMNS[:4])),
            history=self.history.history(),
            n_iter=self.result.n_iter,
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
        missing = (self.inputs.n_labels - self.done, self.n_features)
        return sp.csr_array(sp.vstack([*self.pruned_parts, sp.csr_array(missing, dtype=self.inputs.X.dtype)]))
