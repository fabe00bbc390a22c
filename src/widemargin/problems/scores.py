"""Scores of linear and kernel models, all of them or the top k, exact and in bounded memory; and how weights are kept.

    linear    score[i, l] = intercept[l] + Σ_f X[i, f] · coef[l, f]
    kernel    score[i, l] = intercept[l] + Σ_j K(x_i, x_j) · dual_coef[l, j]        over the support rows j

Linear: the products are rounded to float64 and added in increasing order of f, starting from the intercept, zeros left
out. This fixes the number bit for bit: it is the same for sparse and dense storage, any batch of rows, any number of
threads, and for `scores`, `top_k` and `label_scores`. Sparse weights are held by feature (`FeatureIndex`, one more copy
of the non-zeros, built once or read from the model folder): a row costs as much as the weights that it meets, and
labels that share no feature with it score their intercept, and the best of those are known beforehand. Dense weights go
through a blocked product; for the top k of dense rows a BLAS product first leaves a few candidates (`CandidateFilter`),
and sparse rows use a copy by feature if it is within `memory_limit_mb`. Nothing of size rows × labels is ever made but
by `scores`; work arrays are bounded by `memory_limit_mb`, plus at most 1.3 MB per thread.

Kernel: work is done in blocks of rows whose kernel values and scores stay within `memory_limit_mb`. The blocks depend
only on that limit; all methods give the same numbers.

Weights that are mostly zero are kept as CSR if that halves their bytes and the dense array is above `PLAIN_BYTES`; the
factor 2 is for the index by feature, another copy of the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.compressed import CompressedWeights

__all__ = [
    "BlockScorer",
    "CandidateFilter",
    "FeatureIndex",
    "KernelScorer",
    "LinearScorer",
    "compact",
    "csr_bytes",
    "csr_of",
    "csr_of_dense",
    "drop_small",
    "rank_scales",
    "saves_memory",
    "squared_norms",
]

LABELS_PER_BLOCK = 32768  # sums (8 bytes) and stamps (4 bytes) of a block of labels stay in an L2 cache of 512 KB
LINE_STEP = 8  # lines of an index are padded to a multiple of this many labels
LABELS_PER_WEIGHT = 4  # of a line, scored in the time of one weight in a list
WEIGHTS_PER_LIST = 10  # scored in the time that a list takes before its first weight
COUNTED_AT_ONCE = 2**22
BYTES_PER_KERNEL_VALUE = 24  # the value itself, and the products and differences on the way to it
BYTES_PER_SCORE = 24  # the score, its copy, and its place in the ranking
MEGABYTE = 2**20

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))


class LinearScorer:
    """A linear model made ready for prediction; build it once and keep it.

    Parameters
    ----------
    coef : ndarray, sparse array or CompressedWeights of shape (n_labels, n_features)
        Weights, float32 or float64, used without a copy when dense and C-contiguous, or when compressed. Finite.
    intercept : array-like of shape (n_labels,), optional
        Intercepts; zeros by default.
    scale : ndarray of shape (n_labels,), optional
        Positive factors a of a rank scale: the score of a label is a (s + 1) − 1 in place of s. The weights are
        multiplied by a and rounded to their type once, in the copy that is made anyway for sparse ones.
    memory_limit_mb : float, default=256
        Bound on the work arrays; the result does not depend on it.
    index : FeatureIndex, optional
        That of sparse weights with this scale; built by default.

    Attributes
    ----------
    n_labels, n_features : int
        The shape of `coef`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.scores import LinearScorer
    >>> scorer = LinearScorer(np.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.5]]), intercept=[0.0, -1.0, 0.0])
    >>> scorer.scores(np.array([[2.0, 1.0]]))
    array([[2. , 1. , 1.5]])
    >>> scorer.top_k(np.array([[2.0, 1.0]]), k=2)
    (array([[0, 2]]), array([[2. , 1.5]]))
    """

    def __init__(
        self,
        coef: Any,
        intercept: npt.ArrayLike | None = None,
        *,
        scale: FloatArray | None = None,
        memory_limit_mb: float = 256.0,
        index: FeatureIndex | None = None,
    ) -> None:
        coef = coef if sp.issparse(coef) or isinstance(coef, CompressedWeights) else np.asarray(coef)
        if coef.ndim != 2:
            raise ValueError(f"coef must have shape (n_labels, n_features); got shape {coef.shape}")
        self.n_labels, self.n_features = int(coef.shape[0]), int(coef.shape[1])
        self.memory_limit_mb = memory_limit_mb
        # Adding 0.0 turns −0.0 into 0.0: sums are then equal bit for bit.
        offsets = np.zeros(self.n_labels) if intercept is None else np.asarray(intercept, dtype=np.float64) + 0.0
        if offsets.shape != (self.n_labels,):
            raise ValueError(
                f"intercept must have shape ({self.n_labels},), one per row of coef; got shape {offsets.shape}"
            )
        if not np.isfinite(offsets).all():
            raise ValueError("intercept contains NaN or infinity")
        if scale is not None:
            offsets = scale * (offsets + 1.0) - 1.0
        self._offsets = offsets = np.ascontiguousarray(offsets)
        self._filter: CandidateFilter | None = None
        self._lines: _core.Weights | None = None
        self._n_values = 0  # of sparse rows that dense weights have scored
        if isinstance(coef, CompressedWeights):
            lists, per_block = coef if scale is None else coef.scaled(scale), coef.labels_per_block
            arrays = (lists.values, lists.places, lists.starts, lists.bases, lists.scale)
            self._weights = _core.Weights(*arrays, per_block, offsets, self._by_intercept(per_block))
            return
        if coef.dtype not in _FLOATS:
            coef = coef.astype(np.float64)
        if not sp.issparse(coef):
            coef = np.ascontiguousarray(coef if scale is None else (coef * scale[:, None]).astype(coef.dtype))
            self._weights = _core.Weights(coef, offsets)
            self._filter = CandidateFilter(coef, offsets)
            return
        self._weights = self._indexed(FeatureIndex.of(coef, scale) if index is None else index)

    def _indexed(self, index: FeatureIndex) -> _core.Weights:
        """The weights of an index as the kernels take them."""
        return _core.Weights(
            index.data,
            index.labels,
            index.starts,
            index.lines,
            index.line_of,
            index.largest,
            index.most_repeats,
            index.labels_per_block,
            self._offsets,
            self._by_intercept(index.labels_per_block),
        )

    def _by_intercept(self, labels_per_block: int) -> npt.NDArray[np.int32]:
        """The labels of each block, best intercept first."""
        return np.lexsort((-self._offsets, np.arange(self.n_labels) // labels_per_block)).astype(np.int32)

    def _weights_for(self, X: Any, work_bytes: int) -> _core.Weights:
        """The weights in the form for these rows.

        Dense weights get a copy by feature once sparse rows have had a value for every feature on average: then the
        copy is paid for.
        """
        if self._filter is None or not sp.issparse(X):
            return self._weights
        if self._lines is None:
            coef, self._n_values = self._filter.coef, self._n_values + X.nnz
            if (
                self._n_values < self.n_features
                or _padded(self.n_labels) * self.n_features * coef.itemsize > work_bytes
            ):
                return self._weights
            self._lines = self._indexed(FeatureIndex.of_dense(coef))
        return self._lines

    def top_k(self, X: Any, k: int, *, n_threads: int = 1) -> tuple[IntArray, FloatArray]:
        """The top k labels of every row, best first; of equal scores the lower label comes first.

        Parameters
        ----------
        X : ndarray or sparse array of shape (n_samples, n_features)
            Rows; CSR and C-contiguous arrays of float32 or float64 are used without a copy.
        k : int
            How many labels, at least 1.
        n_threads : int, default=1
            Threads; the result does not depend on them.

        Returns
        -------
        indices : ndarray of shape (n_samples, k), int64
            Labels; −1 where there are fewer than k.
        scores : ndarray of shape (n_samples, k), float64
            Their scores; −inf where there are fewer than k.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1; got {k}")
        X, work_bytes = self._check(X, n_threads)
        indices, scores = np.empty((X.shape[0], k), dtype=np.int64), np.empty((X.shape[0], k), dtype=np.float64)
        usable = not sp.issparse(X) and X.dtype in _FLOATS and X.flags.c_contiguous
        if self._filter is not None and usable and self._filter.pays(X.shape[0], k):
            with threadpool_limits(limits=n_threads, user_api="blas"):
                self._filtered_top_k(self._filter, X, n_threads, work_bytes, indices, scores)
            return indices, scores
        weights = self._weights_for(X, work_bytes)
        for first, last, rows in _batches(X, work_bytes):
            weights.top_k(rows, n_threads, work_bytes, indices[first:last], scores[first:last])
        return indices, scores

    def _filtered_top_k(
        self, filter: CandidateFilter, X: Any, n_threads: int, work_bytes: int, indices: IntArray, scores: FloatArray
    ) -> None:
        """The top k of dense rows: exact scores of the candidates that a matrix product leaves."""
        step, k = filter.rows_per_block(work_bytes), indices.shape[1]
        for first in range(0, X.shape[0], step):
            part, rows = slice(first, first + step), _core.Rows(X[first : first + step])
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

    def scores(self, X: Any, *, n_threads: int = 1) -> FloatArray:
        """All scores, a dense array of shape (n_samples, n_labels), which the memory limit does not count."""
        X, work_bytes = self._check(X, n_threads)
        out = np.empty((X.shape[0], self.n_labels), dtype=np.float64)
        weights = self._weights_for(X, work_bytes)
        for first, last, rows in _batches(X, work_bytes):
            weights.scores(rows, n_threads, work_bytes, out[first:last])
        return out

    def label_scores(self, X: Any, y: Any, *, n_threads: int = 1) -> Any:
        """The scores of given labels only.

        Parameters
        ----------
        X : ndarray or sparse array of shape (n_samples, n_features)
            Rows.
        y : array-like of int of shape (n_samples,), or sparse array of shape (n_samples, n_labels)
            One label per row, or a label indicator.
        n_threads : int, default=1
            As in `top_k`.

        Returns
        -------
        scores : ndarray of shape (n_samples,), or csr_array of shape (n_samples, n_labels)
            One score per row; for an indicator its structure with the scores as data, stored zeros included.
        """
        X, work_bytes = self._check(X, n_threads)
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
                raise ValueError(f"y must have shape {shape}, one column per label; got shape {y.shape}")
            return y.tocsr()
        labels = np.asarray(y)
        if labels.shape != (n_samples,) or labels.dtype.kind not in "iu":
            raise ValueError(
                f"y must contain {n_samples} label indices, or be a sparse indicator matrix of shape {shape}"
            )
        if n_samples and not (labels.min() >= 0 and labels.max() < self.n_labels):
            raise ValueError(f"the label indices in y must be between 0 and {self.n_labels - 1}")
        indptr = np.arange(n_samples + 1, dtype=np.int64)
        return sp.csr_array((np.ones(n_samples, np.int8), labels.astype(np.int64), indptr), shape=shape)

    def _check(self, X: Any, n_threads: int) -> tuple[Any, int]:
        """X as CSR or as a dense array of two dimensions, and the memory limit in bytes."""
        X = X.tocsr() if sp.issparse(X) else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n_samples, {self.n_features}); got shape {X.shape}")
        if n_threads < 1:
            raise ValueError(f"n_threads must be at least 1; got {n_threads}")
        if not self.memory_limit_mb > 0:
            raise ValueError(f"memory_limit_mb must be positive; got {self.memory_limit_mb}")
        return X, int(self.memory_limit_mb * MEGABYTE)


@dataclass(frozen=True)
class FeatureIndex:
    """Weights by feature, the form in which sparse ones are scored.

    Labels are in blocks. The labels of block b with a weight for feature f are
    `b · labels_per_block + labels[starts[b, f] : starts[b, f + 1]]`, in increasing order, with the weights in `data` at
    the same places. A feature that many labels have, or any feature if there are few labels, is a line instead,
    `lines[line_of[f]]`, with a weight for every label, zeros included: vector instructions add it to all scores. Lines
    are chosen by the cost of a product, as long as they add no more than 16 MB, or the size of the lists, to the index.

    Parameters
    ----------
    data, labels : ndarray of shape (n_stored,)
        Weights, float32 or float64, and labels in their block, uint16.
    starts : ndarray of shape (n_blocks, n_features + 1), int64
        Where the lists of each block start.
    lines : ndarray of shape (n_lines, at least n_labels)
        Padded with zeros to a multiple of 8 labels.
    line_of : ndarray of shape (n_features,), int32
        The line of each feature; −1 if it has a list.
    largest : ndarray of shape (n_features,), float64
        Largest absolute weight of a label, repeated entries added up.
    most_repeats : int
        Most entries of one label and feature.
    labels_per_block : int
        A multiple of 8, at most 65,536.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.scores import FeatureIndex
    >>> index = FeatureIndex.of(sp.csr_array([[5.0, 2.0], [0.0, 3.0], [0.0, 0.0]]))
    >>> index.line_of.tolist(), index.lines[1].tolist()
    ([0, 1], [2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    """

    data: npt.NDArray[Any]
    labels: npt.NDArray[np.uint16]
    starts: IntArray
    lines: npt.NDArray[Any]
    line_of: npt.NDArray[np.int32]
    largest: FloatArray
    most_repeats: int
    labels_per_block: int

    ARRAYS: ClassVar = ("data", "labels", "starts", "lines", "line_of", "largest")
    NUMBERS: ClassVar = ("most_repeats", "labels_per_block")

    def check(self, coef: Any, *, labels: bool) -> None:
        """A ValueError if this cannot be the index of these weights; with `labels`, all of the lists are read."""
        (n_labels, n_features), floats = coef.shape, coef.dtype
        for name, least, most in (("labels_per_block", LINE_STEP, 2**16), ("most_repeats", 1, max(1, coef.nnz))):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} must be an integer from {least} to {most}; got {value!r:.50}")
        n_blocks, n_lines = -(-n_labels // self.labels_per_block), len(self.lines)
        for name, dtype, shape in (
            ("data", floats, (len(self.labels),)),
            ("labels", np.uint16, (len(self.labels),)),
            ("starts", np.int64, (n_blocks, n_features + 1)),
            ("lines", floats, (n_lines, _padded(n_labels))),
            ("line_of", np.int32, (n_features,)),
            ("largest", np.float64, (n_features,)),
        ):
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"{name} must be {np.dtype(dtype)} of shape {shape}; got {array.dtype}, {array.shape}")
        starts, lined = self.starts.ravel(), np.sort(self.line_of[self.line_of >= 0])
        if len(self.labels) > coef.nnz or (len(starts) and (starts[0] != 0 or starts[-1] != len(self.labels))):
            raise ValueError("the lists do not match the weights")
        if (np.diff(starts) < 0).any() or self.labels_per_block % LINE_STEP:
            raise ValueError("the lists overlap")
        if not np.array_equal(lined, np.arange(n_lines)) or (self.line_of < -1).any():
            raise ValueError("the lines do not match the features")
        if not (self.largest >= 0.0).all():
            raise ValueError("a largest weight is negative")
        if labels:
            self._check_labels(n_labels)

    def _check_labels(self, n_labels: int) -> None:
        """A ValueError unless the labels of each list are in its block and in increasing order."""
        for block, starts in enumerate(self.starts):
            width = min(self.labels_per_block, n_labels - block * self.labels_per_block)
            labels = self.labels[starts[0] : starts[-1]]
            first_of_list = np.zeros(len(labels) + 1, dtype=bool)
            first_of_list[starts - starts[0]] = True
            in_order = (labels[1:] >= labels[:-1]) | first_of_list[1:-1]
            if len(labels) and not (labels.max() < width and in_order.all()):
                raise ValueError("the labels of a list are out of range or not in order")

    @classmethod
    def of(cls, coef: Any, scale: FloatArray | None = None) -> Self:
        """The index of sparse weights (n_labels, n_features), times the factors of the labels."""
        coef = coef.tocsr()
        _check_csr("coef", coef)
        coef = coef if coef.has_canonical_format else coef.sorted_indices()
        repeated = not coef.has_canonical_format
        (n_labels, n_features), dtype, per_block = coef.shape, coef.dtype, LABELS_PER_BLOCK
        counts = np.zeros(n_features, dtype=np.int64)
        for first in range(0, coef.nnz, COUNTED_AT_ONCE):
            counts += np.bincount(coef.indices[first : first + COUNTED_AT_ONCE], minlength=n_features)
        # In a line, repeated entries would be added before they are multiplied, which rounds differently.
        chosen = np.empty(0, dtype=np.int64) if repeated else _line_features(counts, n_labels, dtype.itemsize)
        listed = np.ones(n_features, dtype=bool)
        listed[chosen] = False
        n_stored = int(counts[listed].sum())
        line_of = np.full(n_features, -1, dtype=np.int32)
        line_of[chosen] = np.arange(len(chosen))
        index = cls(
            np.empty(n_stored, dtype=dtype),
            np.empty(n_stored, dtype=np.uint16),
            np.zeros((-(-n_labels // per_block), n_features + 1), dtype=np.int64),
            np.zeros((len(chosen), _padded(n_labels)), dtype=dtype),
            line_of,
            np.zeros(n_features),
            _most_repeats(coef) if repeated else 1,
            per_block,
        )
        position = 0
        for block, first in enumerate(range(0, n_labels, per_block)):
            # The CSC form has labels in increasing order, whether the rows of the CSR form are sorted or not.
            columns = (coef if n_labels <= per_block else coef[first : first + per_block]).tocsc()
            if scale is not None:
                columns.data = (columns.data * scale[first + columns.indices]).astype(dtype)
            index._note_largest(columns, repeated)
            lengths = np.where(listed, np.diff(columns.indptr), 0)
            kept = np.repeat(listed, np.diff(columns.indptr)) if len(chosen) else slice(None)
            index.starts[block] = position + np.concatenate([[0], np.cumsum(lengths)])
            part = slice(position, int(index.starts[block, -1]))
            index.data[part], index.labels[part] = columns.data[kept], columns.indices[kept]
            position = part.stop
            if len(chosen):
                index.lines[:, first : first + columns.shape[0]] = columns[:, chosen].toarray().T
        return index

    @classmethod
    def of_dense(cls, coef: npt.NDArray[Any]) -> Self:
        """The index of dense weights (n_labels, n_features): every feature is a line."""
        n_labels, n_features = coef.shape
        lines = np.zeros((n_features, _padded(n_labels)), dtype=coef.dtype)
        lines[:, :n_labels] = coef.T
        return cls(
            np.empty(0, dtype=coef.dtype),
            np.empty(0, dtype=np.uint16),
            np.zeros((-(-n_labels // LABELS_PER_BLOCK), n_features + 1), dtype=np.int64),
            lines,
            np.arange(n_features, dtype=np.int32),
            np.abs(lines).max(axis=1, initial=0.0).astype(np.float64),
            1,
            LABELS_PER_BLOCK,
        )

    def _note_largest(self, columns: Any, repeated: bool) -> None:
        """Raise `largest` to the weights of a block."""
        if repeated:
            columns = abs(columns).astype(np.float64)
            columns.sum_duplicates()
        features = np.flatnonzero(np.diff(columns.indptr))
        if len(features):
            found = np.maximum.reduceat(np.abs(columns.data), columns.indptr[features])
            self.largest[features] = np.maximum(self.largest[features], found)


def _padded(n_labels: int) -> int:
    """Length of a line."""
    return -(-n_labels // LINE_STEP) * LINE_STEP


def _line_features(counts: IntArray, n_labels: int, itemsize: int) -> IntArray:
    """The features that get a line, in increasing order, by how many labels have a weight for them.

    With few labels, features without any weight get one, too: then the lines of a row are summed without a break, which
    saves 6 % on pruned weights of 20newsgroups, although only 0.2 % of the values of its rows have such a feature.
    """
    least = max(0, n_labels / LABELS_PER_WEIGHT - WEIGHTS_PER_LIST)
    features = np.flatnonzero(counts >= least)
    features = features[np.argsort(-counts[features], kind="stable")]
    list_bytes = counts * (itemsize + 2)
    added = np.cumsum(_padded(n_labels) * itemsize - list_bytes[features])
    return np.sort(features[added <= max(PLAIN_BYTES, int(list_bytes.sum()))])


def _most_repeats(coef: Any) -> int:
    """Most entries of a CSR array at the same place; at least 1."""
    entries = sp.csr_array((np.ones(coef.nnz, dtype=np.int32), coef.indices, coef.indptr), shape=coef.shape, copy=True)
    entries.sum_duplicates()
    return int(entries.data.max(initial=1))


def _check_csr(name: str, matrix: Any) -> None:
    """Refuse a CSR triple that would make compiled code read outside its arrays."""
    indptr, indices = matrix.indptr, matrix.indices
    if len(indptr) != matrix.shape[0] + 1 or indptr[0] != 0 or indptr[-1] > len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(f"indptr of {name} does not match its {matrix.shape[0]} rows")
    if len(indices) and not (indices.min() >= 0 and indices.max() < matrix.shape[1]):
        raise ValueError(f"{name} contains a column index that is out of range")


def _batches(X: Any, work_bytes: int) -> Iterator[tuple[int, int, _core.Rows]]:
    """Row ranges of X as the kernels take them: all at once without a copy where possible, else converted in parts."""
    sparse, n_rows = sp.issparse(X), X.shape[0]
    if sparse and len(X.indptr) != n_rows + 1:
        raise ValueError(f"indptr of X does not match its {n_rows} rows")
    if sparse:
        usable = X.indices.dtype == X.indptr.dtype and X.indices.dtype in _INTEGERS
        usable = usable and X.data.flags.c_contiguous and X.indices.flags.c_contiguous and X.indptr.flags.c_contiguous
    else:
        usable = X.flags.c_contiguous
    if usable and X.dtype in _FLOATS:
        yield 0, n_rows, _core.Rows(X.data, X.indices, X.indptr, X.shape[1]) if sparse else _core.Rows(X)
        return
    bytes_per_row = 16 * (1 + X.nnz // max(1, n_rows)) if sparse else 8 * X.shape[1]
    step = max(1, work_bytes // max(1, bytes_per_row))
    dtype = X.dtype if X.dtype in _FLOATS else np.float64
    for first in range(0, n_rows, step):
        last = min(first + step, n_rows)
        if sparse:
            part = X[first:last].astype(dtype)
            yield first, last, _core.Rows(part.data, part.indices, part.indptr, X.shape[1])
        else:
            yield first, last, _core.Rows(np.ascontiguousarray(X[first:last], dtype=dtype))


SAFETY = 2.0  # on the bound: covers the rounding of the norms, and of the exact scores in double precision
LABELS_PER_PLACE = 32  # with fewer labels for each of the k places the plain kernel was faster (101 labels, k = 5)
MIN_FLOPS = 1e7  # below this a product takes less time than what is needed around it
ROWS_PER_BLOCK = 512
MAX_CANDIDATES_PER_PLACE = 16  # mean of a block; with more (ties, weights of zero) the plain kernel is as fast


class CandidateFilter:
    """Finds few labels among which the top k of a dense row must be, by a matrix product and a bound on its rounding.

        |ŝ − s| ≤ γ (‖x‖ · max_l ‖w_l‖ + max_l |b_l|),   γ = (n_features + 4) u / (1 − (n_features + 4) u)

    for a product in any order of summation and unit roundoff u (Higham, Accuracy and Stability, section 3.1). If t is
    the k-th largest ŝ of a row, the top k labels by exact score, ties included, have ŝ ≥ t − 2 · bound. Their scores
    are then recomputed in the order that defines them, so BLAS decides nothing: neither its threads nor its blocks
    show.
    Memory: three scores per row and label of a block of rows, within the limit that is given.

    Parameters
    ----------
    coef : ndarray of shape (n_labels, n_features)
        Weights, float32 or float64; not copied.
    intercept : ndarray of shape (n_labels,)
        Intercepts.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.scores import CandidateFilter
    >>> filter = CandidateFilter(np.eye(3), np.zeros(3))
    >>> filter.find(np.array([[1.0, 5.0, 4.0]]), k=1)
    (array([1]), array([0, 1]))
    """

    def __init__(self, coef: npt.NDArray[Any], intercept: npt.NDArray[np.float64]) -> None:
        self.coef, self.intercept = coef, intercept.astype(coef.dtype)
        largest = np.sqrt(np.einsum("ij,ij->i", coef, coef, dtype=np.float64).max(initial=0.0))
        self.norm, self.offset = float(largest), float(np.abs(intercept).max(initial=0.0))
        unit = (coef.shape[1] + 4) * float(np.finfo(coef.dtype).eps) / 2
        self.gamma = SAFETY * unit / (1.0 - unit) if unit < 1.0 else np.inf
        self.smallest = coef.shape[1] * float(np.finfo(coef.dtype).tiny)  # what underflow can lose

    def pays(self, n_rows: int, k: int) -> bool:
        """Whether finding candidates is likely to be faster than scoring all labels in the exact order."""
        n_labels, n_features = self.coef.shape
        return bool(n_labels >= LABELS_PER_PLACE * k and float(n_rows) * n_labels * n_features >= MIN_FLOPS)

    def rows_per_block(self, work_bytes: int) -> int:
        """Rows whose scores fit in the memory that is allowed, at most 512."""
        n_labels, n_features = self.coef.shape
        bytes_per_row = int(self.coef.itemsize * (3 * n_labels + n_features))
        return max(1, min(ROWS_PER_BLOCK, work_bytes // bytes_per_row))

    def find(self, X: npt.NDArray[Any], k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Labels that may be among the top k of each row, as (labels, indptr); None where they are too many."""
        with np.errstate(over="ignore", invalid="ignore"):
            scores = X.astype(self.coef.dtype, copy=False) @ self.coef.T + self.intercept
            length = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
            bound = self.gamma * (length * self.norm + self.offset) + self.smallest
            kth = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k].astype(np.float64)
            least = kth - 2.0 * bound
        if not np.isfinite(least).all():
            return None
        # Rounded down: comparing in the type of the scores then loses nothing.
        limit = np.nextafter(least.astype(scores.dtype), scores.dtype.type(-np.inf))
        chosen = scores >= limit[:, None]
        counts = np.count_nonzero(chosen, axis=1)
        if counts.sum() > MAX_CANDIDATES_PER_PLACE * k * len(X):
            return None
        return np.nonzero(chosen)[1].astype(np.int64), np.append(0, np.cumsum(counts))


class BlockScorer:
    """Scores that are made for blocks of rows, and what is picked from them; a subclass makes the blocks.

    Attributes
    ----------
    n_labels : int
        Columns of the scores.
    rows_per_block : int
        Rows that are scored at once; with 1 the last bits of a row's scores do not depend on the batch.
    """

    n_labels: int
    rows_per_block: int

    def blocks(self, X: Any, n_threads: int) -> Iterator[tuple[slice, FloatArray]]:
        """Ranges of rows and their scores, of shape (rows in the range, n_labels)."""
        raise NotImplementedError

    def scores(self, X: Any, *, n_threads: int = 1) -> FloatArray:
        """All scores, a dense array of shape (n_samples, n_labels)."""
        found = [scores for _, scores in self.blocks(X, n_threads)]
        return np.concatenate(found) if found else np.empty((0, self.n_labels))

    def top_k(self, X: Any, k: int, *, n_threads: int = 1) -> tuple[IntArray, FloatArray]:
        """Indices and scores of the top k labels, best first, as `LinearScorer.top_k` has them."""
        indices, ranked = [np.empty((0, k), dtype=np.int64)], [np.empty((0, k))]
        for _, scores in self.blocks(X, n_threads):
            top = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            missing = ((0, 0), (0, k - top.shape[1]))
            indices.append(np.pad(top, missing, constant_values=-1))
            ranked.append(np.pad(np.take_along_axis(scores, top, axis=1), missing, constant_values=-np.inf))
        return np.concatenate(indices), np.concatenate(ranked)

    def label_scores(self, X: Any, y: npt.NDArray[Any], *, n_threads: int = 1) -> FloatArray:
        """The score of one given label per row, shape (n_samples,)."""
        out = np.empty(len(y))
        for rows, scores in self.blocks(X, n_threads):
            out[rows] = scores[np.arange(len(scores)), y[rows]]
        return out


class KernelScorer(BlockScorer):
    """A kernel model made ready for prediction.

    Parameters
    ----------
    kernel : object with `block(A, B)`, or None
        Kernel values of two sets of rows; None where rows are kernel values already, one column per training row.
    support : ndarray or csr_array of shape (n_support, n_features), or ndarray of int of shape (n_support,)
        The support rows; for a precomputed kernel their numbers among the training rows.
    dual_coef : sparse array of shape (n_labels, n_support)
        Coefficients.
    intercept : ndarray of shape (n_labels,)
        Intercepts.
    memory_limit_mb : float, default=256
        Bound on the kernel values and scores of a block; at least one row is scored at a time.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.scores import KernelScorer
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
        for name, matrix in (("dual_coef", self._coef), ("support", support)):  # of a file that was not verified
            columns = matrix.indices if sp.issparse(matrix) else np.empty(0)
            if len(columns) and not (columns.min() >= 0 and columns.max() < matrix.shape[1]):
                raise ValueError(f"{name} contains a column index that is out of range")
        self._intercept = np.asarray(intercept, dtype=np.float64)
        row_bytes = BYTES_PER_KERNEL_VALUE * n_support + BYTES_PER_SCORE * self.n_labels
        self.rows_per_block = max(1, int(memory_limit_mb * MEGABYTE / row_bytes))

    def blocks(self, X: Any, n_threads: int) -> Iterator[tuple[slice, FloatArray]]:
        """Ranges of rows and their scores."""
        with threadpool_limits(limits=n_threads, user_api="blas"):  # once: it looks through all loaded libraries
            for first in range(0, X.shape[0], self.rows_per_block):
                rows = slice(first, first + self.rows_per_block)
                values = X[rows][:, self.support] if self.kernel is None else self.kernel.block(X[rows], self.support)
                values = np.asarray(values.toarray() if sp.issparse(values) else values, dtype=np.float64)
                yield rows, np.ascontiguousarray((self._coef @ values.T).T) + self._intercept


PLAIN_BYTES = 2**24  # dense weights up to this size are not worth another form
BLOCK_BYTES = 2**26  # work area where dense weights become sparse
INDEX_BYTES = 4


def csr_bytes(n_values: int, n_rows: int, itemsize: int) -> int:
    """Bytes of a CSR array whose indices are int32."""
    return n_values * (itemsize + INDEX_BYTES) + INDEX_BYTES * (n_rows + 1)


def saves_memory(sparse_bytes: int, dense_bytes: int) -> bool:
    """Whether weights of that size are better kept in a sparse form.

    Examples
    --------
    >>> from widemargin.problems.scores import saves_memory
    >>> saves_memory(21_000_000, 875_000_000), saves_memory(10, 1_000)
    (True, False)
    """
    return dense_bytes > PLAIN_BYTES and 2 * sparse_bytes <= dense_bytes


def compact(coef: Any) -> Any:
    """Dense weights as CSR if that saves memory; only exact zeros are left out, and other forms stay as they are.

    Parameters
    ----------
    coef : ndarray of shape (n_outputs, n_features), or any other form
        Weights.

    Returns
    -------
    ndarray or csr_array of shape (n_outputs, n_features)
        The same weights.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.scores import compact
    >>> compact(np.zeros((600, 4000))).nnz, type(compact(np.zeros((2, 3)))).__name__
    (0, 'ndarray')
    """
    if not isinstance(coef, np.ndarray) or coef.nbytes <= PLAIN_BYTES:
        return coef
    n_values = int(np.count_nonzero(coef))
    if not saves_memory(csr_bytes(n_values, coef.shape[0], coef.itemsize), coef.nbytes):
        return coef
    return _csr_in_blocks(coef, 0.0)


def drop_small(coef: Any, threshold: float) -> Any:
    """Only weights of at least `threshold` in absolute value, as CSR; dense weights of which all are kept stay dense.

    Parameters
    ----------
    coef : ndarray or csr_array of shape (n_outputs, n_features)
        Weights.
    threshold : float
        At least 0.

    Returns
    -------
    ndarray or csr_array of shape (n_outputs, n_features)
        The weights that are left, of the type of `coef`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.scores import drop_small
    >>> drop_small(np.array([[0.5, -0.01], [0.02, -3.0]]), 0.02).toarray()
    array([[ 0.5 ,  0.  ],
           [ 0.02, -3.  ]])
    """
    if not sp.issparse(coef):
        return coef if threshold == 0 else _csr_in_blocks(coef, threshold)
    coef = sp.csr_array(coef)
    keep = np.abs(coef.data.astype(np.float64)) >= threshold
    starts = np.append(0, np.cumsum(keep))[coef.indptr]
    return csr_of(coef.data[keep], coef.indices[keep], starts, coef.shape)


def csr_of(data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, int]) -> Any:
    """A csr_array with indices of 4 bytes wherever they fit; scipy would take the larger of the two types given."""
    fits = max(len(data), *shape) <= np.iinfo(np.int32).max
    index = np.int32 if fits else np.int64
    return sp.csr_array((data, indices.astype(index, copy=False), indptr.astype(index, copy=False)), shape=shape)


def csr_of_dense(X: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> Any:
    """The csr_array of a dense array; scipy goes through triples, which takes two to three times as long.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.scores import csr_of_dense
    >>> rows = csr_of_dense(np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]]))
    >>> rows.data.tolist(), rows.indices.tolist(), rows.indptr.tolist()
    ([2.0, 3.0], [1, 0], [0, 1, 1, 2])
    """
    X = np.asarray(X)  # not a memory map, whose parts are slower
    present = X if X.dtype == np.bool_ else X != 0
    starts = np.append(0, np.cumsum(np.count_nonzero(present, axis=1)))
    places = np.flatnonzero(present)  # their remainders are columns, in a third of the time that np.nonzero takes
    data = X.take(places).astype(dtype or X.dtype, copy=False)
    return csr_of(data, places % max(1, X.shape[1]), starts, X.shape)


def squared_norms(coef: Any) -> FloatArray:
    """‖w_j‖² of every row of dense, CSR or compressed weights, shape (n_outputs,)."""
    if isinstance(coef, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", coef, coef, dtype=np.float64))
    return _sums_of_squares(coef)


def _sums_of_squares(coef: Any) -> FloatArray:
    """‖w_j‖² of every row, one block of rows after another."""
    if isinstance(coef, CompressedWeights):
        return coef.squared_norms
    squares, first = np.zeros(coef.shape[0]), 0
    for values, indptr in _row_blocks(coef):
        values = np.square(values, dtype=np.float64)
        if indptr is None:
            last = first + len(values)
            squares[first:last] = values.sum(axis=1)
        else:
            last = first + len(indptr) - 1
            kept = np.flatnonzero(np.diff(indptr))
            if len(kept):
                squares[first + kept] = np.add.reduceat(values, indptr[kept])
        first = last
    return squares


def rank_scales(coef: Any, q: float) -> FloatArray:
    """a_j = ‖w_j‖^−q of every row of dense or CSR weights, 1 for rows of zeros, shape (n_outputs,).

    The scale of a label depends on its own weights alone, bit for bit: labels that are trained in shards have the same.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.scores import rank_scales
    >>> rank_scales(np.array([[3.0, 4.0], [0.0, 0.0]]), 0.5).round(4)
    array([0.4472, 1.    ])
    """
    squares = _sums_of_squares(coef)
    return np.where(squares > 0.0, np.where(squares > 0.0, squares, 1.0) ** (-0.5 * q), 1.0)


def _row_blocks(coef: Any) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]]:
    """Blocks of rows: dense, or the values of CSR rows with their `indptr`; weights on disk come in their parts."""
    if hasattr(coef, "row_parts"):
        yield from coef.row_parts()
        return
    sparse = sp.issparse(coef)
    step = max(1, BLOCK_BYTES // 8 * coef.shape[0] // max(1, coef.nnz if sparse else coef.size))
    for first in range(0, coef.shape[0], step):
        if sparse:  # not coef[first:…], which copies values and indices
            indptr = coef.indptr[first : first + step + 1]
            yield coef.data[indptr[0] : indptr[-1]], indptr - indptr[0]
        else:
            yield coef[first : first + step], None


def _csr_in_blocks(coef: npt.NDArray[Any], threshold: float) -> Any:
    """The weights of at least `threshold` that are not 0."""
    step = max(1, BLOCK_BYTES // (4 * 8 * max(1, coef.shape[1])))
    parts = []
    for first in range(0, coef.shape[0], step):
        block = np.asarray(coef[first : first + step])
        keep = np.abs(block.astype(np.float64, copy=False)) >= threshold
        parts.append(csr_of_dense(np.where(keep, block, block.dtype.type(0))))
    joined = sp.vstack(parts, format="csr")
    return csr_of(joined.data, joined.indices, joined.indptr, joined.shape)
