"""Norms of sums of rows: the core against a dense product."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import _core


def norms_of(X, rows, indptr, duals):
    """The twin: one dense product for each label."""
    dense = X.toarray() if sp.issparse(X) else X
    parts = [slice(first, last) for first, last in pairwise(indptr)]
    return np.array([np.sum((duals[part] @ dense[rows[part]].astype(np.float64)) ** 2) for part in parts])


def compiled(X, rows, indptr, duals):
    norms = np.full(len(indptr) - 1, np.nan)
    if sp.issparse(X):
        _core.dual_norms_csr(X.data, X.indices, X.indptr, X.shape[1], rows, indptr, duals, norms)
    else:
        _core.dual_norms_dense(X, rows, indptr, duals, norms)
    return norms


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64, None], ids=["int32", "int64", "dense"])
def test_norms_are_those_of_the_sums_of_rows(dtype, index_dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 7)).astype(dtype) * (rng.random((30, 7)) < 0.5)
    if index_dtype is not None:
        X = sp.csr_array(X)
        X.indices, X.indptr = X.indices.astype(index_dtype), X.indptr.astype(index_dtype)
    lengths = np.array([5, 0, 1, 30, 0, 12])  # labels without dual variables, and rows that occur twice
    indptr = np.append(0, np.cumsum(lengths))
    rows, duals = rng.integers(0, 30, indptr[-1]), rng.normal(size=indptr[-1])
    np.testing.assert_allclose(compiled(X, rows, indptr, duals), norms_of(X, rows, indptr, duals), rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "indptr", "message"),
    [
        ([0, 3], [0, 2], "a row is out of range"),
        ([0, -1], [0, 2], "a row is out of range"),
        ([0, 1], [0, 3], "indptr is out of range"),
    ],
)
def test_places_outside_the_arrays_are_refused(rows, indptr, message):
    with pytest.raises(ValueError, match=message):
        compiled(np.eye(3), np.array(rows), np.array(indptr), np.ones(2))
