"""Rows of length one.

    x  ←  x / ‖x‖₂        and rows of zeros stay as they are

Norms are computed in float64, relative to each row's largest entry, so that neither tiny nor huge values are lost.
Memory: a copy of the values unless `copy=False`, and work arrays for a block of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["l2_normalize_rows"]

BLOCK_ENTRIES = 1 << 18  # values that are worked on at a time: a few MB in float64


def l2_normalize_rows(X: Any, *, copy: bool = True) -> Any:
    """Divide each row by its Euclidean norm; rows of zeros stay zero.

    Parameters
    ----------
    X : sparse matrix or array, or ndarray, of shape (n_samples, n_features)
        float32 or float64; other types become float32. Sparse input is returned as CSR of its own kind.
    copy : bool, default=True
        False to write the result into X, if X is CSR or an array of float32 or float64; otherwise a copy is made.

    Returns
    -------
    X : as the input, of shape (n_samples, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.data.normalize import l2_normalize_rows
    >>> l2_normalize_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    dtype = X.dtype if getattr(X, "dtype", None) in (np.float32, np.float64) else np.float32
    if sp.issparse(X):
        X = X.tocsr().astype(dtype, copy=copy)
        if not X.has_canonical_format:  # a repeated entry is one coordinate of the row
            X.sum_duplicates()
        _normalize_csr(X.data, X.indptr)
        return X
    X = np.array(X, dtype=dtype, copy=True if copy else None, ndmin=2)
    rows_a_block = max(1, BLOCK_ENTRIES // max(1, X.shape[1]))
    for start in range(0, len(X), rows_a_block):
        block = X[start : start + rows_a_block]
        largest = np.abs(block).max(axis=1, initial=0.0).astype(np.float64)
        scaled = block / _one_for_zero(largest)[:, None]
        block[...] = scaled / _one_for_zero(np.sqrt((scaled * scaled).sum(axis=1)))[:, None]
    return X


def _normalize_csr(data: npt.NDArray[Any], indptr: npt.NDArray[Any]) -> None:
    """The same on CSR values, in place, a block of rows at a time."""
    start = 0
    while start < len(indptr) - 1:
        limit = indptr[start] + BLOCK_ENTRIES
        stop = max(start + 1, int(np.searchsorted(indptr, limit, side="right")) - 1)
        _normalize_rows(data[indptr[start] : indptr[stop]], np.diff(indptr[start : stop + 1]))
        start = stop


def _normalize_rows(data: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
    lengths = lengths[lengths > 0]
    if len(lengths) == 0:
        return
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    largest = np.maximum.reduceat(np.abs(data), starts).astype(np.float64)
    scaled = data / np.repeat(_one_for_zero(largest), lengths)
    norms = np.sqrt(np.add.reduceat(scaled * scaled, starts))
    data[...] = scaled / np.repeat(_one_for_zero(norms), lengths)


def _one_for_zero(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A divisor that leaves rows of zeros alone."""
    return np.where(values > 0, values, 1.0)
