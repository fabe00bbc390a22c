"""One-vs-all with the logistic loss on sparse rows: 16 labels at once over all rows, every label certified.

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

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin import _core
from widemargin.reference.one_vs_all import RECORD_COLUMNS, BlockResult, BlockTask
from widemargin.solvers._one_vs_all_inputs import OneVsAllInputs
from widemargin.solvers._one_vs_all_run import Run
from widemargin.solvers.starts import Start

__all__ = ["BatchedLogisticRun"]

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
    >>> from widemargin.solvers.fast_one_vs_all import solve_fast_one_vs_all
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
