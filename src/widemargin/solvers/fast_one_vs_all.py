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
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.solvers._fast_run import FastRun, make_core_solver
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs, checked_initial, prepare_inputs
from widemargin.solvers._one_vs_all_run import OneVsAllResult
from widemargin.solvers.batched_logistic import BatchedLogisticRun
from widemargin.solvers.one_vs_all import solve_one_vs_all
from widemargin.solvers.result import Callback

__all__ = ["is_fast_problem", "solve_fast_one_vs_all"]

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


def threads_that_fit(n_threads: int, shape: tuple[int, ...], memory_limit_mb: float) -> int:
    """At most so many threads that their work areas stay within the limit, but one."""
    thread_bytes = WORK_BYTES_PER_FEATURE * shape[1] + WORK_BYTES_PER_ROW * shape[0]
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
