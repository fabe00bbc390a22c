"""Arrays as the one-vs-all solver wants them: X as CSR or dense rows, positives of labels, weights of rows and sides.

Nothing is copied that already has the right form; memory-mapped matrices stay mapped. Rows of sample weight zero are
dropped here, so that a fit with them equals a fit without them.

The compiled core and its NumPy specification behind the same functions, for solving labels and for their starts.

Arrays are checked by the callers. Memory: X is not copied; the positives of the chosen labels are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.losses import get_loss
from widemargin.reference.one_vs_all import BlockResult, BlockTask, solve_block
from widemargin.reference.starts import separating_start, subspace_start

__all__ = [
    "MeanRow",
    "OneVsAllInputs",
    "as_rows",
    "checked_initial",
    "mean_starts",
    "prepare_inputs",
    "select_labels",
    "solve_labels",
]

FLOAT_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class OneVsAllInputs:
    """Checked inputs: rows of positive weight, and the labels' positives among them."""

    X: Any
    positive_rows: npt.NDArray[np.int64]
    positive_indptr: npt.NDArray[np.int64]
    row_weight: npt.NDArray[np.float64]
    positive_factor: npt.NDArray[np.float64]
    negative_factor: npt.NDArray[np.float64]

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.positive_indptr) - 1

    def task(
        self,
        *,
        C: float,
        fit_intercept: bool,
        regularize_intercept: bool,
        tol: float,
        gap_tol: float | None,
        prune: float,
        max_iter: int,
        n_threads: int,
        **options: Any,
    ) -> BlockTask:
        """These labels and the options of a solver in the words of the block solvers."""
        return BlockTask(
            self.positive_rows,
            self.positive_indptr,
            self.row_weight,
            self.positive_factor,
            self.negative_factor,
            C=float(C),
            bias_value=1.0 if fit_intercept else 0.0,
            bias_penalty=0.0 if fit_intercept and not regularize_intercept else 1.0,
            tol=float(tol),
            gap_tol=np.inf if gap_tol is None else float(gap_tol),
            prune=float(prune),
            max_iter=int(max_iter),
            n_threads=int(n_threads),
            **options,
        )

    def label_arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The labels as the core takes them: their positives and factors."""
        return self.positive_rows, self.positive_indptr, self.positive_factor, self.negative_factor

    @property
    def n_positives(self) -> npt.NDArray[np.int64]:
        """Number of positive rows of each label."""
        return np.diff(self.positive_indptr)

    def loss_weight(self) -> npt.NDArray[np.float64]:
        """Σ_i c_i / C of each label, shape (n_labels,): the objective at zero is C φ(0) times this."""
        # Summed per label from a running total: labels may have no positives, which np.add.reduceat mishandles.
        running = np.append(0.0, np.cumsum(self.row_weight[self.positive_rows]))
        positive = running[self.positive_indptr[1:]] - running[self.positive_indptr[:-1]]
        negative = self.row_weight.sum() - positive
        total: npt.NDArray[np.float64] = self.positive_factor * positive + self.negative_factor * negative
        return total


def as_rows(X: Any) -> Any:
    """X as a CSR array with one index type, or as a dense array in C order; float32 or float64."""
    X = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
    if X.dtype not in FLOAT_DTYPES or X.ndim != 2:
        shape = "×".join(map(str, X.shape))
        raise ValueError(f"X must be a float32 or float64 matrix, got {X.dtype} of shape {shape}; convert it first")
    if not sp.issparse(X) or X.indices.dtype == X.indptr.dtype:
        return X
    index_dtype = np.int32 if max(X.nnz, X.shape[1]) <= np.iinfo(np.int32).max else np.int64
    parts = (X.data, X.indices.astype(index_dtype, copy=False), X.indptr.astype(index_dtype, copy=False))
    rows = sp.csr_array(X.shape, dtype=X.dtype)
    rows.data, rows.indices, rows.indptr = parts
    return rows


def positives_of(Y: Any, n_rows: int) -> Any:
    """Y as a CSC pattern: label j's positive rows once each, in order."""
    Y = sp.csc_array(Y, copy=True)
    if Y.ndim != 2 or Y.shape[0] != n_rows:
        raise ValueError(f"Y must have one row for each of the {n_rows} rows of X, got shape {Y.shape}")
    if Y.shape[1] == 0:
        raise ValueError("Y has no label; give at least one column")
    if Y.nnz and Y.data.min() < 0:
        raise ValueError("Y must be an indicator matrix of zeros and ones, got a negative entry; encode −1 as 0")
    Y.eliminate_zeros()
    Y.data = np.ones(Y.nnz, dtype=np.int32)
    Y.sum_duplicates()
    return Y


def weights_of(values: Any, length: int, name: str) -> npt.NDArray[np.float64]:
    """Weights as float64 of the given length; None is all ones."""
    if values is None:
        return np.ones(length)
    weights = np.ascontiguousarray(values, dtype=np.float64)
    if weights.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0.0).any():
        raise ValueError(f"{name} must be finite and not negative")
    return weights


def prepare_inputs(
    X: Any, Y: Any, sample_weight: Any = None, positive_weight: Any = None, negative_weight: Any = None
) -> OneVsAllInputs:
    """Check the arrays of a fit, and drop the rows of weight zero."""
    X = as_rows(X)
    n_rows = X.shape[0]
    Y = positives_of(Y, n_rows)
    row_weight = weights_of(sample_weight, n_rows, "sample_weight")
    keep = row_weight > 0.0
    if not keep.any():
        raise ValueError("X has no row of positive sample_weight; there is nothing to learn from")
    if not keep.all():
        X, Y, row_weight = X[keep], sp.csc_array(Y[keep]), row_weight[keep]
    return OneVsAllInputs(
        X,
        Y.indices.astype(np.int64),
        Y.indptr.astype(np.int64),
        row_weight,
        weights_of(positive_weight, Y.shape[1], "positive_weight"),
        weights_of(negative_weight, Y.shape[1], "negative_weight"),
    )


def checked_initial(initial: tuple[Any, Any] | None, inputs: OneVsAllInputs) -> tuple[Any, npt.NDArray[Any]] | None:
    """Weights to start from, CSR or dense, and intercepts, of the right shapes and finite; None stays None."""
    if initial is None:
        return None
    coef = sp.csr_array(initial[0]) if sp.issparse(initial[0]) else np.asarray(initial[0])
    intercept = np.asarray(initial[1])
    expected = (inputs.n_labels, inputs.X.shape[1])
    if coef.shape != expected or intercept.shape != expected[:1]:
        raise ValueError(f"initial must have shapes {expected} and {expected[:1]}, got {coef.shape}, {intercept.shape}")
    if not (np.isfinite(coef.data if sp.issparse(coef) else coef).all() and np.isfinite(intercept).all()):
        raise ValueError("initial has weights that are NaN or infinite; start from finite ones, or from none")
    return coef, intercept


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
