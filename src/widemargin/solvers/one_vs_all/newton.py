"""One-vs-all with a truncated Newton method, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

Newton with preconditioned conjugate gradients on the active set (eq. (19)–(20) of Schultheis & Babbar, 2022), until
‖∇L(w)‖ ≤ tol · max(1, min(P, N))/n · ‖∇L(0)‖, eq. (12)–(13), and the certified relative gap is at most `gap_tol`; P, N
and n are sums of weights. Weights are rounded to the type of X, pruned, and certified as they are stored: the upper
bound is their objective, the lower bound a dual point made from them before pruning.

Labels are solved in blocks of about half a second, between which the callback and the time limit are looked at; where
they start is in `widemargin.solvers.one_vs_all.starts`. A label of one side only has, with a free intercept, the answer
w = 0 and b = ∓1 for the squared hinge and no minimiser for the logistic loss (b = ∓30, status NOT_ATTAINED). Memory: X,
the model, and at most `memory_limit_mb` of work (but at least one thread's vectors and one label's weights).

The history of many labels in a small table: one row for each Newton iteration and log₂ bin of label frequency.

    n_labels           labels of the bin still running: with a state at this iteration, their last one included
    primal             sum of their objectives; `primal_finished` is that of the labels which ended before, so that
                       primal + primal_finished never rises from one iteration to the next
    active_rows        sum of the rows with curvature
    step_size          mean line-search multiplier of the step that led here
    cg_steps, seconds  sums over the labels, of the step that led here; seconds are CPU time
    gradient_ratio     the largest ‖∇L‖/‖∇L(0)‖
    …_std              standard deviation over the labels of the row

Mean and band: the mean is sum / n_labels, its standard error std / √n_labels. Labels are added one after another in
their order, so the table depends neither on threads nor on the size of blocks (seconds apart).
Memory: iterations × bins, whatever the number of labels.

One call of the one-vs-all solver: blocks of labels from their starts to stored, certified weights.

Blocks take about half a second; between them the callback and the time limit are looked at. Memory: the model, one
block of dense weights where the model is pruned, and the work areas of the threads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.losses import get_loss
from widemargin.reference.newton import ROUNDING_GAP
from widemargin.reference.one_vs_all import BOUND_COLUMNS, RECORD_COLUMNS, BlockResult, BlockTask
from widemargin.solvers.limits import worst_of
from widemargin.solvers.one_vs_all.problem import (
    OneVsAllInputs,
    checked_initial,
    prepare_inputs,
    select_labels,
    solve_labels,
)
from widemargin.solvers.one_vs_all.starts import GivenStart, Start, make_start, start_parameters
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status

__all__ = ["ENDINGS", "HistoryTable", "OneVsAllResult", "Run", "frequency_bin", "outcome_of", "solve_one_vs_all"]

N_BINS = 65  # labels without positives, and floor(log2) of 1 … 2⁶⁴
# Names of the quantities that are summed, and of the columns of the records that they come from.
QUANTITIES = {
    "primal": "value",
    "active_rows": "active_rows",
    "step_size": "step",
    "cg_steps": "cg_steps",
    "seconds": "seconds",
}


def frequency_bin(n_positives: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """floor(log2(n_positives)), and −1 for labels without positives."""
    # frexp is exact: n = mantissa · 2^exponent with mantissa in [½, 1).
    return np.frexp(n_positives.astype(np.float64))[1].astype(np.int64) - 1


class _Moments:
    """Sum and standard deviation of one quantity in each cell (iteration, bin)."""

    def __init__(self) -> None:
        # The squares are of differences from a cell's first value: without that, equal objectives of 1e5 would seem to
        # have a deviation of 1e-3.
        self.total, self.first, self.difference, self.square = (np.zeros((0, N_BINS)) for _ in range(4))

    def grow(self, n_iterations: int) -> None:
        """Add empty iterations at the end."""
        pad = ((0, n_iterations), (0, 0))
        self.total, self.first = np.pad(self.total, pad), np.pad(self.first, pad)
        self.difference, self.square = np.pad(self.difference, pad), np.pad(self.square, pad)

    def add(self, cell: tuple[Any, ...], values: npt.NDArray[np.float64], new: npt.NDArray[np.int64]) -> None:
        """Add values to their cells; those at `new` are the first ones of theirs."""
        self.first[cell[0][new], cell[1][new]] = values[new]
        np.add.at(self.total, cell, values)
        np.add.at(self.difference, cell, values - self.first[cell])
        np.add.at(self.square, cell, (values - self.first[cell]) ** 2)

    def deviation(self, cell: tuple[Any, ...], n_labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The standard deviation in the cells, zero where there is one label."""
        variance = self.square[cell] / n_labels - (self.difference[cell] / n_labels) ** 2
        deviation: npt.NDArray[np.float64] = np.sqrt(np.maximum(variance, 0.0))
        return deviation


class HistoryTable:
    """Sums of the records of labels by iteration and frequency bin."""

    def __init__(self) -> None:
        self._moments = {name: _Moments() for name in QUANTITIES}
        self._n_labels = np.zeros((0, N_BINS), dtype=np.int64)
        self._gradient_ratio = np.zeros((0, N_BINS))
        self._ended = np.zeros((0, N_BINS))  # sum of the objectives of the labels whose last iteration it is

    def add(self, records: npt.NDArray[np.float64], bins: npt.NDArray[np.int64]) -> None:
        """Add the records of a block, (n_records, 8), whose labels are in `bins`, (n_labels,)."""
        column = dict(zip(RECORD_COLUMNS, records.T, strict=True))
        iteration, bin_ = column["iteration"].astype(np.int64), bins[column["label"].astype(np.int64)] + 1
        self._grow(int(iteration.max(initial=-1)) + 1 - len(self._n_labels))
        cell = (iteration, bin_)
        cells, first = np.unique(iteration * N_BINS + bin_, return_index=True)
        new = first[self._n_labels.ravel()[cells] == 0]
        for name, source in QUANTITIES.items():
            self._moments[name].add(cell, column[source], new)
        np.add.at(self._n_labels, cell, 1)
        np.maximum.at(self._gradient_ratio, cell, column["gradient_ratio"])
        # The records of a label need not follow each other: solvers of many labels at once write them step by step.
        order = np.lexsort((iteration, column["label"]))
        last = order[np.flatnonzero(np.diff(column["label"][order], append=-1.0))]
        np.add.at(self._ended, (iteration[last], bin_[last]), column["value"][last])

    def _grow(self, n_iterations: int) -> None:
        """Make room for so many more iterations."""
        if n_iterations <= 0:
            return
        pad = ((0, n_iterations), (0, 0))
        self._n_labels, self._ended = np.pad(self._n_labels, pad), np.pad(self._ended, pad)
        self._gradient_ratio = np.pad(self._gradient_ratio, pad)
        for moments in self._moments.values():
            moments.grow(n_iterations)

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
        for name, moments in self._moments.items():
            columns[name] = moments.total[cell]
            columns[name + "_std"] = moments.deviation(cell, n_labels)
        columns["step_size"] = columns["step_size"] / n_labels
        for name in ("active_rows", "cg_steps"):
            columns[name] = columns[name].astype(np.int64)
        return History(columns)


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
    >>> from widemargin.solvers.one_vs_all.newton import OneVsAllResult
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
    polish: bool = False,
    tighten_cg: bool = True,
    max_iter: int = 1000,
    n_threads: int = 1,
    callback: Callback | None = None,
    time_limit_s: float | None = None,
    init: str = "zero",
    init_params: Mapping[str, Any] | None = None,
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
    loss : {"squared_hinge", "logistic"}
        Name of the loss.
    tol : float
        The gradient rule (12)–(13).
    gap_tol : float or None
        Largest certified relative gap of a label, before rounding to the type of X and pruning; None: not asked for.
    prune : float
        Weights smaller than this are dropped, and `coef` is CSR if positive; the intercept is never dropped.
    polish : bool
        Whether to go on to rounding error once the rule and the gap hold; for small problems, where it is cheap.
    tighten_cg : bool
        Whether conjugate gradients are solved more tightly for the rest of a label once a full step was refused; False
        is the published method, whose tolerance stays at 0.5 of the gradient's norm, or less near the solution.
    max_iter : int
        Newton steps a label at most; ordinary labels take 10 to 30, nearly hard margins hundreds.
    n_threads : int
        Threads of the core; the result does not depend on them.
    callback : callable, optional
        Called with a `Progress` after each block; a true answer stops.
    time_limit_s : float, optional
        No block begins after this many seconds.
    init : {"zero", "bias", "msi", "ovap", "ovap++", "subspace", "auto"}
        Where to start, see `widemargin.solvers.one_vs_all.starts`; "auto" is the one with the fewest steps.
    init_params : mapping, optional
        Numbers of the starts: lam, s, t, strict.
    initial : tuple of (coef, intercept), optional
        Weights to start from instead of `init`, shapes (n_labels, n_features) and (n_labels,).
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
    >>> from widemargin.solvers.one_vs_all.newton import solve_one_vs_all
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
    get_loss(loss)
    parameters = start_parameters(init, init_params, loss)
    inputs = prepare_inputs(X, Y, sample_weight, positive_weight, negative_weight)
    task = inputs.task(
        loss=loss,
        C=C,
        fit_intercept=fit_intercept,
        regularize_intercept=regularize_intercept,
        tol=tol,
        gap_tol=gap_tol,
        prune=prune,
        max_iter=max_iter,
        n_threads=n_threads,
        polish=bool(polish),
        tighten_cg=bool(tighten_cg),
    )
    given = checked_initial(initial, inputs)
    start: Start
    if given is not None:
        start = GivenStart(*given)
    else:
        start = make_start(init, parameters, inputs.X, task, backend, labels_per_block)
    return Run(inputs, task, start, backend).solve(callback, time_limit_s, labels_per_block, memory_limit_mb)


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
