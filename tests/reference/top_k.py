"""Specification of the prediction kernels: scores in a fixed order of summation, and the top k of them.

    score[i, l] = (((intercept[l] + x_{i1} w_{l1}) + x_{i2} w_{l2}) + …)      every operation rounded to float64

`scores` adds one feature after another for all rows and labels at once; the compiled kernels give the same numbers
bit for bit. Memory: dense rows × labels, and dense copies of X and the weights; for tests and small data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["label_scores", "scores", "top_k"]

FloatArray = npt.NDArray[np.float64]


def _dense(matrix: Any) -> FloatArray:
    values: FloatArray = np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)
    return values


def scores(X: Any, coef: Any, intercept: npt.ArrayLike) -> FloatArray:
    """Scores of shape (n_samples, n_labels), summed in increasing order of the feature.

    Examples
    --------
    >>> scores(np.array([[2.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]), [0.0, -1.0])
    array([[2., 1.]])
    """
    x, w = _dense(X), _dense(coef)
    sums = np.zeros((len(x), len(w))) + np.asarray(intercept, dtype=np.float64)
    for f in range(x.shape[1]):
        sums += x[:, f, None] * w[None, :, f]
    return sums


def top_k(values: FloatArray, k: int) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """The k largest of each row of `values`, best first, equal ones by the lower index; −1 and −inf where missing.

    Examples
    --------
    >>> top_k(np.array([[1.0, 3.0, 3.0]]), 2)
    (array([[1, 2]]), array([[3., 3.]]))
    """
    n, n_labels = values.shape
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    indices = np.full((n, k), -1, dtype=np.int64)
    best = np.full((n, k), -np.inf)
    indices[:, : min(k, n_labels)] = order
    best[:, : min(k, n_labels)] = np.take_along_axis(values, order, axis=1)
    return indices, best


def label_scores(values: FloatArray, Y: Any) -> Any:
    """The entries of `values` (n_samples, n_labels) at the stored places of the CSR array Y, as a CSR array.

    Examples
    --------
    >>> label_scores(np.array([[1.5, 3.0]]), sp.csr_array(np.array([[1, 0]]))).toarray()
    array([[1.5, 0. ]])
    """
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return sp.csr_array((values[rows, Y.indices], Y.indices, Y.indptr), shape=Y.shape)
