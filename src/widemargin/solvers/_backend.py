"""The compiled core and its NumPy specification behind the same functions, for solving labels and for their starts.

Arrays are checked by the callers. Memory: X is not copied; the positives of the chosen labels are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.losses import get_loss
from widemargin.reference.one_vs_all import BlockResult, BlockTask, solve_block
from widemargin.reference.starts import separating_start, subspace_start

__all__ = ["MeanRow", "mean_starts", "select_labels", "solve_labels"]

Ints = npt.NDArray[np.int64]


def select_labels(task: BlockTask, labels: Ints) -> BlockTask:
    """Return the task of some labels, in the given order."""
    first, last = task.positive_indptr[labels], task.positive_indptr[labels + 1]
    indptr = np.append(0, np.cumsum(last - first))
    # Entry k of the new list comes from the old one at k, moved by where its label began there and begins here.
    source = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], last - first)
    return replace(
        task,
        positive_rows=task.positive_rows[source],
        positive_indptr=indptr,
        positive_factor=task.positive_factor[labels],
        negative_factor=task.negative_factor[labels],
    )


def solve_labels(X: Any, task: BlockTask, out: BlockResult, backend: str) -> npt.NDArray[np.float64]:
    """Solve every label of a task into `out`, which holds the start; returns the records."""
    if backend == "reference":
        return solve_block(X, task, get_loss(task.loss), out)
    core_task = _core.OneVsAllTask(**vars(task))
    if sp.issparse(X):
        return _core.solve_one_vs_all_csr(X.data, X.indices, X.indptr, X.shape[1], core_task, **vars(out))
    return _core.solve_one_vs_all_dense(X, core_task, **vars(out))


class MeanRow:
    """The weighted mean x̄ of the rows and its scores X·x̄, the same for every label and computed once."""

    def __init__(self, X: Any, row_weight: npt.NDArray[np.float64]) -> None:
        self.x, self.scores = np.empty(X.shape[1]), np.empty(X.shape[0])
        if sp.issparse(X):
            _core.mean_row_csr(X.data, X.indices, X.indptr, row_weight, self.x, self.scores)
        else:
            _core.mean_row_dense(X, row_weight, self.x, self.scores)


def mean_starts(
    X: Any, task: BlockTask, mean: MeanRow, separate: tuple[float, float] | None, out: BlockResult, backend: str
) -> None:
    """Fill `out` with starts in the span of the means: separating with (s, t), or the objective's minimiser there."""
    if backend == "reference":
        rows = X.astype(np.float64)
        for j in range(len(task.positive_factor)):
            problem, weight = task.problem(rows, j, get_loss(task.loss)), task.row_weight
            v = subspace_start(problem, weight) if separate is None else separating_start(problem, weight, *separate)
            out.coef[j], out.intercept[j] = v[:-1], v[-1]
        return
    s, t = separate or (0.0, 0.0)
    core_task = _core.OneVsAllTask(**vars(task))
    rest = (core_task, separate is None, s, t, mean.x, mean.scores, out.coef, out.intercept)
    if sp.issparse(X):
        _core.fill_starts_csr(X.data, X.indices, X.indptr, X.shape[1], *rest)
    else:
        _core.fill_starts_dense(X, *rest)
