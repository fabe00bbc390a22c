"""Rows scaled to length one.

    x  ←  x / ‖x‖₂        and rows of zeros stay as they are

Norms are computed in float64, relative to each row's largest entry, so that neither tiny nor huge values are lost.
Memory: a copy of the values unless `copy=False`, and work arrays for a block of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["has_unit_rows", "l2_normalize_rows", "with_unit_rows"]

UNIT_TOLERANCE = 1e-6  # on ‖x‖²: the rounding of float32 values leaves about 1e-7

BLOCK_ENTRIES = 1 << 18  # values handled at a time: a few MB in float64


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
        X = X.tocsr()
        if not X.has_canonical_format:  # a repeated entry is one coordinate of the row
            X = X.copy() if copy else X
            X.sum_duplicates()
        # Only the values are copied: the index arrays, which may be memory maps, are shared.
        X = type(X)((X.data.astype(dtype, copy=copy), X.indices, X.indptr), shape=X.shape, copy=False)
        start, n_rows, indptr = 0, len(X.indptr) - 1, X.indptr
        while start < n_rows:
            stop = int(np.searchsorted(indptr, indptr[start] + BLOCK_ENTRIES, side="right")) - 1
            stop = max(start + 1, stop)
            data, lengths = X.data[indptr[start] : indptr[stop]], np.diff(indptr[start : stop + 1])
            start, lengths = stop, lengths[lengths > 0]
            if len(lengths) == 0:
                continue
            starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
            largest = np.maximum.reduceat(np.abs(data), starts).astype(np.float64)
            scaled = data / np.repeat(np.where(largest > 0, largest, 1.0), lengths)  # 1 leaves rows of zeros alone
            norms = np.sqrt(np.add.reduceat(scaled * scaled, starts))
            data[...] = scaled / np.repeat(np.where(norms > 0, norms, 1.0), lengths)
        return X
    X = np.array(X, dtype=dtype, copy=True if copy else None, ndmin=2)
    rows_per_block = max(1, BLOCK_ENTRIES // max(1, X.shape[1]))
    for start in range(0, len(X), rows_per_block):
        block = X[start : start + rows_per_block]
        largest = np.abs(block).max(axis=1, initial=0.0).astype(np.float64)
        scaled = block / np.where(largest > 0, largest, 1.0)[:, None]
        norms = np.sqrt((scaled * scaled).sum(axis=1))
        block[...] = scaled / np.where(norms > 0, norms, 1.0)[:, None]
    return X


def with_unit_rows(X: Any) -> Any:
    """X itself if its rows already have length one (or zero), up to rounding; otherwise a normalised copy.

    Training data that were normalised once, such as a mapped store, are used in place. Not for prediction, where the
    last bit of a row must not depend on the other rows.

    Parameters
    ----------
    X : CSR matrix or array, or ndarray, of shape (n_samples, n_features)
        Rows.

    Returns
    -------
    X : as the input, of shape (n_samples, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.data.normalize import with_unit_rows
    >>> X = np.array([[0.6, 0.8], [0.0, 0.0]])
    >>> with_unit_rows(X) is X, with_unit_rows(2 * X).round(6).tolist()
    (True, [[0.6, 0.8], [0.0, 0.0]])
    """
    return X if has_unit_rows(X) else l2_normalize_rows(X)


def has_unit_rows(X: Any) -> bool:
    """Whether all squared norms are 1 or 0 up to UNIT_TOLERANCE; checked a block of rows at a time."""
    if sp.issparse(X) and not X.has_canonical_format:
        return False
    n_values = X.nnz if sp.issparse(X) else X.size
    rows_per_block = max(1, BLOCK_ENTRIES * X.shape[0] // max(1, n_values))
    for start in range(0, X.shape[0], rows_per_block):
        block = X[start : start + rows_per_block]
        if sp.issparse(block):
            squares = np.asarray(block.astype(np.float64).power(2).sum(axis=1)).ravel()
        else:
            squares = np.square(block, dtype=np.float64).sum(axis=1)
        if not np.all((np.abs(squares - 1) <= UNIT_TOLERANCE) | (squares == 0)):
            return False
    return True
