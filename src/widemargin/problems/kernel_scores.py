"""Scores of kernel models, all of them or the k best, in bounded memory.

    score[i, l] = intercept[l] + Σ_j K(x_i, x_j) · dual_coef[l, j]        over the support rows j

Work is done in blocks of rows whose kernel values and scores stay within `memory_limit_mb`. The blocks depend on
nothing but that limit, so that all methods give the same numbers. Rows for a precomputed kernel are kernel values
already, one column for each training row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

__all__ = ["KernelScorer"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_MEGABYTE = 2**20
BYTES_PER_KERNEL_VALUE = 24
"""The value itself, and the products and differences on the way to it."""
BYTES_PER_SCORE = 24
"""The score, its copy, and its place in the ranking."""


class KernelScorer:
    """A kernel model made ready for prediction.

    Parameters
    ----------
    kernel : object with `block(A, B)`, or None
        Kernel values of two sets of rows; None where rows are kernel values already.
    support : ndarray or csr_array of shape (n_support, n_features), or ndarray of int of shape (n_support,)
        The support rows; for a precomputed kernel their numbers among the training rows.
    dual_coef : sparse array of shape (n_labels, n_support)
        Coefficients.
    intercept : ndarray of shape (n_labels,)
        Intercepts.
    memory_limit_mb : float, default=256
        Bound on the kernel values and scores of a block; at least one row is done at a time.

    Attributes
    ----------
    rows_per_block : int
        Rows that are done at once; with 1 the last bits of a row's scores do not depend on the batch.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.kernel_scores import KernelScorer
    >>> coef = sp.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> scorer = KernelScorer(None, np.array([0, 2]), coef, np.array([0.0, 0.5]))
    >>> scorer.scores(np.array([[1.0, 9.0, 0.25]]))
    array([[1., 1.]])
    >>> scorer.top_k(np.array([[1.0, 9.0, 3.0]]), 3)
    (array([[ 1,  0, -1]]), array([[ 6.5,  1. , -inf]]))
    """

    def __init__(
        self, kernel: Any, support: Any, dual_coef: Any, intercept: FloatArray, *, memory_limit_mb: float = 256.0
    ) -> None:
        self.kernel, self.support = kernel, support
        self.n_labels, n_support = dual_coef.shape
        self._coef = sp.csr_array(dual_coef)
        _check_columns("dual_coef", self._coef)
        _check_columns("support", support)
        self._intercept = np.asarray(intercept, dtype=np.float64)
        row_bytes = BYTES_PER_KERNEL_VALUE * n_support + BYTES_PER_SCORE * self.n_labels
        self.rows_per_block = max(1, int(memory_limit_mb * _MEGABYTE / row_bytes))

    def scores(self, X: Any, *, n_threads: int = 1) -> FloatArray:
        """All scores, a dense array of shape (n_samples, n_labels)."""
        out = np.empty((X.shape[0], self.n_labels))
        for rows, scores in self._blocks(X, n_threads):
            out[rows] = scores
        return out

    def top_k(self, X: Any, k: int, *, n_threads: int = 1) -> tuple[IntArray, FloatArray]:
        """Indices and scores of the k best labels, best first, as `LinearScorer.top_k` has them."""
        indices = np.full((X.shape[0], k), -1, dtype=np.int64)
        ranked = np.full((X.shape[0], k), -np.inf)
        found = min(k, self.n_labels)
        for rows, scores in self._blocks(X, n_threads):
            best = np.argsort(-scores, axis=1, kind="stable")[:, :found]
            indices[rows, :found] = best
            ranked[rows, :found] = np.take_along_axis(scores, best, axis=1)
        return indices, ranked

    def label_scores(self, X: Any, y: npt.NDArray[Any], *, n_threads: int = 1) -> FloatArray:
        """The score of one given label a row, shape (n_samples,)."""
        out = np.empty(X.shape[0])
        for rows, scores in self._blocks(X, n_threads):
            out[rows] = scores[np.arange(len(scores)), y[rows]]
        return out

    def _blocks(self, X: Any, n_threads: int) -> Iterator[tuple[slice, FloatArray]]:
        """Ranges of rows and their scores."""
        with threadpool_limits(limits=n_threads, user_api="blas"):  # once: it looks through all loaded libraries
            for first in range(0, X.shape[0], self.rows_per_block):
                rows = slice(first, first + self.rows_per_block)
                values = self._kernel_values(X[rows])
                yield rows, np.ascontiguousarray((self._coef @ values.T).T) + self._intercept

    def _kernel_values(self, rows: Any) -> FloatArray:
        """Kernel values of some rows and all support rows."""
        if self.kernel is None:
            values = rows[:, self.support]
            return np.asarray(values.toarray() if sp.issparse(values) else values, dtype=np.float64)
        return np.asarray(self.kernel.block(rows, self.support), dtype=np.float64)


def _check_columns(name: str, matrix: Any) -> None:
    """Refuse a sparse matrix, of a file that was not verified, whose indices point outside of it."""
    if not sp.issparse(matrix) or len(matrix.indices) == 0:
        return
    if not (matrix.indices.min() >= 0 and matrix.indices.max() < matrix.shape[1]):
        raise ValueError(f"{name}: a column index is out of range")
