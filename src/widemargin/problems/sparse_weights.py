"""Weights that are mostly zero: when they are kept as CSR, and how small ones are dropped.

    CSR if  2 · (bytes as CSR) ≤ bytes of the dense array,  and the dense array is above `PLAIN_BYTES`

The factor 2 is for the index by feature that scoring sparse weights needs, another copy of the values. Small models
stay plain arrays. Scores are the same bit for bit, see `linear_scores`. Memory: `BLOCK_BYTES` beside the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["compact", "csr_bytes", "csr_of", "drop_small", "saves_memory", "squared_norms"]

PLAIN_BYTES = 2**24
"""Dense weights up to this size are not worth another form."""
BLOCK_BYTES = 2**26
"""Work area where dense weights become sparse."""
INDEX_BYTES = 4

Floats = npt.NDArray[np.float64]


def csr_bytes(n_values: int, n_rows: int, itemsize: int) -> int:
    """Bytes of a CSR array whose indices are int32."""
    return n_values * (itemsize + INDEX_BYTES) + INDEX_BYTES * (n_rows + 1)


def saves_memory(sparse_bytes: int, dense_bytes: int) -> bool:
    """Whether weights of that size are better kept in a sparse form.

    Examples
    --------
    >>> from widemargin.problems.sparse_weights import saves_memory
    >>> saves_memory(21_000_000, 875_000_000), saves_memory(10, 1_000)
    (True, False)
    """
    return dense_bytes > PLAIN_BYTES and 2 * sparse_bytes <= dense_bytes


def compact(coef: Any) -> Any:
    """Dense weights as CSR if that saves memory; nothing but exact zeros is left out, and other forms stay as they are.

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
    >>> from widemargin.problems.sparse_weights import compact
    >>> compact(np.zeros((600, 4000))).nnz, type(compact(np.zeros((2, 3)))).__name__
    (0, 'ndarray')
    """
    if not isinstance(coef, np.ndarray):
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
    >>> from widemargin.problems.sparse_weights import drop_small
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


def squared_norms(coef: Any) -> Floats:
    """‖w_j‖² of every row of dense or CSR weights, shape (n_outputs,)."""
    if not sp.issparse(coef):
        return np.asarray(np.einsum("ij,ij->i", coef, coef, dtype=np.float64))
    running = np.append(0.0, np.cumsum(coef.data.astype(np.float64) ** 2))
    squares: Floats = running[coef.indptr[1:]] - running[coef.indptr[:-1]]
    return squares


def _csr_in_blocks(coef: npt.NDArray[Any], threshold: float) -> Any:
    """The weights of at least `threshold` that are not 0."""
    step = max(1, BLOCK_BYTES // (4 * 8 * max(1, coef.shape[1])))
    parts = []
    for first in range(0, coef.shape[0], step):
        block = np.asarray(coef[first : first + step])
        keep = np.abs(block.astype(np.float64, copy=False)) >= threshold
        parts.append(sp.csr_array(np.where(keep, block, block.dtype.type(0))))
    joined = sp.vstack(parts, format="csr")
    return csr_of(joined.data, joined.indices, joined.indptr, joined.shape)
