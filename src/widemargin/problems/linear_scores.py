"""Scores of linear models, all of them or the k best, exact and in bounded memory.

    score[i, l] = intercept[l] + Σ_f X[i, f] · coef[l, f]

The products are rounded to float64 and added in increasing order of f, starting from the intercept, zeros left out.
This fixes the number bit for bit: it is the same for sparse and dense storage, any batch of rows, any number of
threads, and for `scores`, `top_k` and `label_scores`.

Sparse weights are held by feature (one more copy of the non-zeros, built once), so that a row costs as much as the
weights it meets: labels that share no feature with it score their intercept, and the best of those are known
beforehand. Dense weights go through a blocked product; for the k best of dense rows a BLAS product first leaves a few
candidates, by a proven bound on its rounding, and these are scored in the order above. Nothing of size rows × labels is
ever made but by `scores`; the work arrays are bounded by `memory_limit_mb`, beside at most 1 MB a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems._candidates import CandidateFilter

__all__ = ["LinearScorer", "top_k"]

LABELS_PER_BLOCK = 32768
"""Sums (8 bytes) and stamps (4 bytes) of a block of labels stay in an L2 cache of 512 KB."""

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))
_MEGABYTE = 2**20

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class LinearScorer:
    """A linear model made ready for prediction; build it once and keep it.

    Parameters
    ----------
    coef : ndarray or sparse array of shape (n_labels, n_features)
        Weights, float32 or float64, used without a copy when dense and C-contiguous. Finite.
    intercept : array-like of shape (n_labels,), optional
        Intercepts; zeros by default.
    labels_per_block : int, default=32768
        How many labels sparse weights are summed for at a time.

    Attributes
    ----------
    n_labels, n_features : int
        The shape of `coef`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.linear_scores import LinearScorer
    >>> scorer = LinearScorer(np.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.5]]), intercept=[0.0, -1.0, 0.0])
    >>> scorer.scores(np.array([[2.0, 1.0]]))
    array([[2. , 1. , 1.5]])
    >>> scorer.top_k(np.array([[2.0, 1.0]]), k=2)
    (array([[0, 2]]), array([[2. , 1.5]]))
    """

    def __init__(
        self, coef: Any, intercept: npt.ArrayLike | None = None, *, labels_per_block: int = LABELS_PER_BLOCK
    ) -> None:
        coef = coef if sp.issparse(coef) else np.asarray(coef)
        if coef.ndim != 2:
            raise ValueError(f"coef must have shape (n_labels, n_features), got {coef.shape}")
        self.n_labels, self.n_features = (int(n) for n in coef.shape)
        self._intercept = _check_intercept(intercept, self.n_labels)
        if coef.dtype not in _FLOATS:
            coef = coef.astype(np.float64)
        self._filter: CandidateFilter | None = None
        if sp.issparse(coef):
            by_feature = _by_feature(coef)
            blocks = np.arange(self.n_labels) // labels_per_block
            order = np.lexsort((-self._intercept, blocks)).astype(np.int32)
            self._weights = _core.Weights(
                by_feature.data, by_feature.indices, by_feature.indptr, self._intercept, order, labels_per_block
            )
        else:
            coef = np.ascontiguousarray(coef)
            self._weights = _core.Weights(coef, self._intercept)
            self._filter = CandidateFilter(coef, self._intercept)

    def top_k(
        self, X: Any, k: int, *, n_threads: int = 1, memory_limit_mb: float = 256.0
    ) -> tuple[IntArray, FloatArray]:
        """The k best labels of every row, best first; of equal scores the lower label comes first.

        Parameters
        ----------
        X : ndarray or sparse array of shape (n_samples, n_features)
            Rows; CSR and C-contiguous arrays of float32 or float64 are used without a copy.
        k : int
            How many labels, at least 1.
        n_threads : int, default=1
            Threads; the result does not depend on them.
        memory_limit_mb : float, default=256
            Bound on the work arrays; the result does not depend on it.

        Returns
        -------
        indices : ndarray of shape (n_samples, k), int64
            Labels; −1 where there are fewer than k.
        scores : ndarray of shape (n_samples, k), float64
            Their scores; −inf where there are fewer than k.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        X, work_bytes = self._check(X, n_threads, memory_limit_mb)
        indices = np.empty((X.shape[0], k), dtype=np.int64)
        scores = np.empty((X.shape[0], k), dtype=np.float64)
        if self._filter is not None and _is_native(X) and not sp.issparse(X) and self._filter.pays(X.shape[0], k):
            with threadpool_limits(limits=n_threads, user_api="blas"):
                self._filtered_top_k(self._filter, X, n_threads, work_bytes, indices, scores)
            return indices, scores
        for first, last, rows in _batches(X, work_bytes):
            self._weights.top_k(rows, n_threads, work_bytes, indices[first:last], scores[first:last])
        return indices, scores

    def _filtered_top_k(
        self, filter: CandidateFilter, X: Any, n_threads: int, work_bytes: int, indices: IntArray, scores: FloatArray
    ) -> None:
        """The k best of dense rows: exact scores of the candidates that a matrix product leaves."""
        step, k = filter.rows_per_block(work_bytes), indices.shape[1]
        for first in range(0, X.shape[0], step):
            part, rows = slice(first, first + step), _rows(X[first : first + step])
            found = filter.find(X[part], k)
            if found is None:
                self._weights.top_k(rows, n_threads, work_bytes, indices[part], scores[part])
                continue
            labels, indptr = found
            exact = np.empty(len(labels))
            self._weights.label_scores(rows, labels, indptr, n_threads, work_bytes, exact)
            row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            order = np.lexsort((labels, -exact, row))
            best = order[(indptr[:-1, None] + np.arange(k)).ravel()]
            indices[part], scores[part] = labels[best].reshape(-1, k), exact[best].reshape(-1, k)

    def scores(
        self, X: Any, out: FloatArray | None = None, *, n_threads: int = 1, memory_limit_mb: float = 256.0
    ) -> FloatArray:
        """All scores, a dense array of shape (n_samples, n_labels); the limit does not count `out`."""
        X, work_bytes = self._check(X, n_threads, memory_limit_mb)
        shape = (X.shape[0], self.n_labels)
        if out is None:
            out = np.empty(shape, dtype=np.float64)
        elif out.shape != shape or out.dtype != np.float64 or not out.flags.c_contiguous:
            raise ValueError(f"out must be a C-contiguous float64 array of shape {shape}")
        for first, last, rows in _batches(X, work_bytes):
            self._weights.scores(rows, n_threads, work_bytes, out[first:last])
        return out

    def label_scores(self, X: Any, y: Any, *, n_threads: int = 1, memory_limit_mb: float = 256.0) -> Any:
        """The scores of given labels only.

        Parameters
        ----------
        X : ndarray or sparse array of shape (n_samples, n_features)
            Rows.
        y : array-like of int of shape (n_samples,), or sparse array of shape (n_samples, n_labels)
            One label a row, or a label indicator.
        n_threads, memory_limit_mb
            As in `top_k`.

        Returns
        -------
        scores : ndarray of shape (n_samples,), or csr_array of shape (n_samples, n_labels)
            One score a row; for an indicator its structure with the scores as data (entries stored as zero included).
        """
        X, work_bytes = self._check(X, n_threads, memory_limit_mb)
        Y = self._label_structure(y, X.shape[0])
        _check_csr("y", Y)
        out = np.empty(len(Y.indices), dtype=np.float64)
        for first, last, rows in _batches(X, work_bytes):
            self._weights.label_scores(rows, Y.indices, Y.indptr[first : last + 1], n_threads, work_bytes, out)
        return sp.csr_array((out, Y.indices, Y.indptr), shape=Y.shape) if sp.issparse(y) else out

    def _label_structure(self, y: Any, n_samples: int) -> Any:
        """A CSR array whose stored places are the labels asked for."""
        shape = (n_samples, self.n_labels)
        if sp.issparse(y):
            if y.shape != shape:
                raise ValueError(f"y must have shape {shape}, one column a label, got {y.shape}")
            return y.tocsr()
        labels = np.asarray(y)
        if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
            raise ValueError(f"y must be {n_samples} label indices or a sparse indicator of shape {shape}")
        if n_samples and not (labels.min() >= 0 and labels.max() < self.n_labels):
            raise ValueError(f"y has a label index outside 0 … {self.n_labels - 1}")
        indptr = np.arange(n_samples + 1, dtype=np.int64)
        return sp.csr_array((np.ones(n_samples, np.int8), labels.astype(np.int64), indptr), shape=shape)

    def _check(self, X: Any, n_threads: int, memory_limit_mb: float) -> tuple[Any, int]:
        """X as CSR or as a dense array of two dimensions, and the memory limit in bytes."""
        X = X.tocsr() if sp.issparse(X) else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n_samples, {self.n_features}), got {X.shape}")
        if n_threads < 1:
            raise ValueError(f"n_threads must be at least 1, got {n_threads}")
        if not memory_limit_mb > 0:
            raise ValueError(f"memory_limit_mb must be positive, got {memory_limit_mb}")
        return X, int(memory_limit_mb * _MEGABYTE)


def top_k(
    X: Any,
    coef: Any,
    intercept: npt.ArrayLike | None,
    k: int,
    *,
    n_threads: int = 1,
    memory_limit_mb: float = 256.0,
) -> tuple[IntArray, FloatArray]:
    """The k best labels of every row for weights that are used once; see `LinearScorer.top_k`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.linear_scores import top_k
    >>> top_k(np.array([[1.0]]), np.array([[3.0], [3.0], [4.0]]), None, k=4)
    (array([[ 2,  0,  1, -1]]), array([[  4.,   3.,   3., -inf]]))
    """
    return LinearScorer(coef, intercept).top_k(X, k, n_threads=n_threads, memory_limit_mb=memory_limit_mb)


def _check_intercept(intercept: npt.ArrayLike | None, n_labels: int) -> FloatArray:
    """The intercepts as float64; adding 0.0 turns −0.0 into 0.0, so that sums are equal bit for bit."""
    values: FloatArray = np.zeros(n_labels) if intercept is None else np.asarray(intercept, dtype=np.float64) + 0.0
    if values.shape != (n_labels,):
        raise ValueError(f"intercept must have shape ({n_labels},), one a row of coef, got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("intercept has a value that is not finite")
    return np.ascontiguousarray(values)


def _by_feature(coef: Any) -> Any:
    """The CSC form with labels in increasing order: what the transposition of CSR gives, its rows sorted or not."""
    if coef.format == "csr":
        _check_csr("coef", coef)
    by_feature = coef.tocsr().tocsc()
    if by_feature.indices.dtype not in _INTEGERS or by_feature.indptr.dtype != by_feature.indices.dtype:
        by_feature.indices = by_feature.indices.astype(np.int64)
        by_feature.indptr = by_feature.indptr.astype(np.int64)
    return by_feature


def _check_csr(name: str, matrix: Any) -> None:
    """Refuse a CSR triple that would make compiled code read outside its arrays."""
    indptr, indices = matrix.indptr, matrix.indices
    if len(indptr) != matrix.shape[0] + 1 or indptr[0] != 0 or indptr[-1] > len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(f"{name}: indptr does not describe {matrix.shape[0]} rows")
    if len(indices) and not (indices.min() >= 0 and indices.max() < matrix.shape[1]):
        raise ValueError(f"{name}: a column index is out of range")


def _batches(X: Any, work_bytes: int) -> Iterator[tuple[int, int, _core.Rows]]:
    """Row ranges of X as the kernels take them: all at once without a copy where possible, else converted in parts."""
    if sp.issparse(X) and len(X.indptr) != X.shape[0] + 1:
        raise ValueError(f"X: indptr does not describe {X.shape[0]} rows")
    if _is_native(X):
        yield 0, X.shape[0], _rows(X)
        return
    bytes_per_row = 8 * X.shape[1] if not sp.issparse(X) else 16 * (1 + X.nnz // max(1, X.shape[0]))
    step = max(1, work_bytes // max(1, bytes_per_row))
    for first in range(0, X.shape[0], step):
        last = min(first + step, X.shape[0])
        part = X[first:last]
        dtype = part.dtype if part.dtype in _FLOATS else np.float64
        yield first, last, _rows(part.astype(dtype) if sp.issparse(part) else np.ascontiguousarray(part, dtype=dtype))


def _is_native(X: Any) -> bool:
    if not sp.issparse(X):
        return X.dtype in _FLOATS and bool(X.flags.c_contiguous)
    same = X.indices.dtype == X.indptr.dtype and X.indices.dtype in _INTEGERS
    return X.dtype in _FLOATS and same and all(a.flags.c_contiguous for a in (X.data, X.indices, X.indptr))


def _rows(X: Any) -> _core.Rows:
    return _core.Rows(X.data, X.indices, X.indptr, X.shape[1]) if sp.issparse(X) else _core.Rows(X)
