"""One-vs-all for dense rows: blocks of labels, so that X is read by matrix products; every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

The same problems, the same stopping rule and the same result as `solve_one_vs_all`, for dense X and both losses. The
labels of a block take gradient or Newton steps together, see `widemargin.solvers._dense_block`, in float32. A label
counts as solved only when rule and certified gap hold over all rows in float64; what float32 steps do not reach is
finished by the truncated Newton solver. Sparse X, a given start and tolerances near rounding go there altogether.

BLAS runs on one thread; threads work on different blocks, whose bounds are fixed, so that results do not depend on
their number. Memory: X once more where it is float64; for each thread and label of its block 60 bytes a row and 56 a
feature, and at most 128 MB for a Newton direction. Blocks have at most 32 labels, fewer where `memory_limit_mb` asks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin.problems.losses import get_loss
from widemargin.reference.one_vs_all import BlockResult, BlockTask
from widemargin.solvers._backend import select_labels, solve_labels
from widemargin.solvers._dense_block import DenseRows, solve_dense_block
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs, prepare_inputs
from widemargin.solvers._one_vs_all_run import OneVsAllResult, Run
from widemargin.solvers.one_vs_all import solve_one_vs_all
from widemargin.solvers.result import Callback
from widemargin.solvers.starts import Start

__all__ = ["DenseRun", "block_width", "is_dense_problem", "solve_dense_one_vs_all"]

MAX_BLOCK = 32  # labels; 64 were 15 % faster in the products alone, but keep fewer threads busy
MIN_TOL = 1e-6  # tighter rules are below what float32 steps can steer to; the Newton solver works in float64
MIN_GAP_TOL = 1e-7
BYTES_PER_ROW = 60  # of a label: float32 arrays of the steps, and float64 ones while verifying
BYTES_PER_FEATURE = 56


def solve_dense_one_vs_all(
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
) -> OneVsAllResult:
    """Solve one binary problem a label, a block of labels at a time.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        float32 or float64; read-only memory maps of float32 are not copied. Sparse rows go to `solve_one_vs_all`.
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
        Largest certified relative gap of a label before pruning; None: not asked for.
    prune : float
        Weights smaller than this are dropped, and `coef` is CSR if positive; the intercept is never dropped.
    max_iter : int
        Steps a label at most, those of the Newton solver that may finish it included.
    n_threads : int
        Threads over blocks of labels; the result does not depend on them.
    callback : callable, optional
        Called with a `Progress` after each round of blocks, one for each thread; a true answer stops.
    time_limit_s : float, optional
        No round begins after this many seconds.
    initial : tuple of (coef, intercept), optional
        Where to start; given, it asks for the Newton solver.
    labels_per_block : int, optional
        Labels that are solved together; by default at most 32. Other sizes change results in their last digits.
    memory_limit_mb : float
        Bound on the work areas: blocks are smaller, and threads fewer, where it asks for that. The Newton solver is
        used where a float32 copy of X would not fit.

    Returns
    -------
    OneVsAllResult
        As from `solve_one_vs_all`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.dense_one_vs_all import solve_dense_one_vs_all
    >>> result = solve_dense_one_vs_all(np.eye(2), np.array([[1], [0]]), tol=1e-4)
    >>> result.coef.round(3).tolist(), result.status.value
    ([[0.667, -0.667]], 'converged')
    """
    options: dict[str, Any] = {
        "C": C,
        "loss": loss,
        "tol": tol,
        "prune": prune,
        "max_iter": max_iter,
        "n_threads": n_threads,
    }
    sensible = np.isfinite(C) and C > 0 and prune >= 0 and n_threads >= 1 and max_iter >= 0
    blocks_fit = labels_per_block is None or labels_per_block >= 1
    if not (is_dense_problem(X, tol, gap_tol, memory_limit_mb) and sensible and blocks_fit) or initial is not None:
        weights = {"positive_weight": positive_weight, "negative_weight": negative_weight}
        limits: dict[str, Any] = {
            "callback": callback,
            "time_limit_s": time_limit_s,
            "memory_limit_mb": memory_limit_mb,
        }
        rest: dict[str, Any] = {"initial": initial, "labels_per_block": labels_per_block, "gap_tol": gap_tol}
        rest |= {"fit_intercept": fit_intercept, "regularize_intercept": regularize_intercept}
        return solve_one_vs_all(X, Y, sample_weight=sample_weight, **weights, **limits, **rest, **options)
    get_loss(loss)
    inputs = prepare_inputs(X, Y, sample_weight, positive_weight, negative_weight)
    intercepts = {"fit_intercept": fit_intercept, "regularize_intercept": regularize_intercept}
    task = inputs.task(gap_tol=gap_tol, **intercepts, **options)
    with threadpool_limits(limits=1, user_api="blas"):
        run = DenseRun(inputs, task, labels_per_block, memory_limit_mb)
        return run.solve(callback, time_limit_s, run.width * run.task.n_threads, memory_limit_mb)


def is_dense_problem(X: Any, tol: float, gap_tol: float | None, memory_limit_mb: float) -> bool:
    """Whether `solve_dense_one_vs_all` has something to offer, or hands the problem to `solve_one_vs_all`.

    Parameters
    ----------
    X : ndarray or sparse array of shape (n_samples, n_features)
        Rows; they must be dense, and if float64, their float32 copy must fit in `memory_limit_mb`.
    tol, gap_tol, memory_limit_mb
        As in `solve_dense_one_vs_all`.

    Returns
    -------
    bool

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.dense_one_vs_all import is_dense_problem
    >>> is_dense_problem(np.eye(3), 0.01, 1e-3, 1024.0)
    True
    """
    if sp.issparse(X):
        return False
    X = np.asarray(X)
    copy_bytes = 4 * X.size if X.dtype == np.float64 else 0
    tolerances = tol >= MIN_TOL and (gap_tol is None or gap_tol >= MIN_GAP_TOL)
    return bool(tolerances and X.ndim == 2 and min(X.shape) > 0 and copy_bytes <= memory_limit_mb * 2**20)


def block_width(n_labels: int, n_rows: int, n_features: int, memory_limit_mb: float) -> int:
    """Labels of a block: at most 32 and what the memory holds, evenly many in all blocks.

    Examples
    --------
    >>> from widemargin.solvers.dense_one_vs_all import block_width
    >>> block_width(101, 1000, 10, 1024.0), block_width(10, 1000, 10, 1024.0)
    (26, 10)
    """
    label_bytes = BYTES_PER_ROW * n_rows + BYTES_PER_FEATURE * n_features
    largest = max(1, min(MAX_BLOCK, int(memory_limit_mb * 2**20 / label_bytes)))
    n_blocks = -(-n_labels // largest)
    return -(-n_labels // n_blocks)


class DenseRun(Run):
    """A run of the one-vs-all solver whose blocks of labels are solved by matrix products."""

    def __init__(
        self, inputs: OneVsAllInputs, task: BlockTask, labels_per_block: int | None, memory_limit_mb: float
    ) -> None:
        (n_rows, n_features), n_labels = inputs.X.shape, inputs.n_labels
        self.width = labels_per_block or block_width(n_labels, n_rows, n_features, memory_limit_mb)
        block_bytes = self.width * (BYTES_PER_ROW * n_rows + BYTES_PER_FEATURE * n_features)
        fitting = int(memory_limit_mb * 2**20 / block_bytes)
        n_threads = max(1, min(task.n_threads, fitting, -(-n_labels // self.width)))
        super().__init__(inputs, replace(task, n_threads=n_threads), Start(n_labels), "core")
        self.rows = DenseRows.of(inputs.X, inputs.row_weight)

    def _fit_memory(self, memory_limit_mb: float) -> tuple[BlockTask, int]:
        return self.task, self.inputs.n_labels  # done in __init__: the width of a block must not depend on threads

    def _solve_block(self, task: BlockTask, block: BlockResult) -> npt.NDArray[np.float64]:
        """Solve a round: one block for each thread. Bounds of blocks are multiples of `width`, whatever the threads."""
        parts = [
            np.arange(first, min(first + self.width, len(block.n_iter)))
            for first in range(0, len(block.n_iter), self.width)
        ]
        with ThreadPoolExecutor(self.task.n_threads) as executor:
            records = list(executor.map(lambda labels: self._solve_part(task, block, labels), parts))
        return np.concatenate(records)

    def _solve_part(
        self, task: BlockTask, block: BlockResult, labels: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Solve some labels of a round by matrix products, and those that need it by the Newton solver."""
        part = BlockResult(**{name: values[labels[0] : labels[-1] + 1] for name, values in vars(block).items()})
        part_task = select_labels(replace(task, n_threads=1), labels)
        records, rest = solve_dense_block(self.rows, part_task, part)
        tables = [records]
        for j in rest.tolist():
            tables.append(self._finish_label(part_task, part, j))
        table = np.concatenate(tables)
        table[:, 0] += labels[0]
        return table

    def _finish_label(self, task: BlockTask, part: BlockResult, j: int) -> npt.NDArray[np.float64]:
        """Go on from where label j is with truncated Newton in float64."""
        steps = int(part.n_iter[j])
        one = replace(select_labels(task, np.array([j])), max_iter=max(0, task.max_iter - steps))
        result = BlockResult(**{name: values[j : j + 1] for name, values in vars(part).items()})
        records = solve_labels(self.inputs.X, one, result, "core")
        records[:, 0] = j
        records[:, 1] += steps
        part.n_iter[j] += steps
        return records
