"""Lower bounds of dual variables: the core against the formula on dense rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import _core

C = 0.5
KINDS = {"free": (1.0, 0.0), "regularised": (1.0, 1.0), "absent": (0.0, 1.0)}  # bias_value, bias_penalty


def compiled(X, positive_rows, positive_indptr, weights, bias, rows, indptr, duals):
    values = np.full(len(indptr) - 1, np.nan)
    of = positive_rows, positive_indptr, *weights, C, *bias, rows, indptr, duals, values
    if sp.issparse(X):
        _core.dual_values_csr(X.data, X.indices, X.indptr, X.shape[1], *of)
    else:
        _core.dual_values_dense(X, *of)
    return values


def value_of(X, y, weight, factors, alpha, intercept):
    """The twin for a label: D of the feasible point, or zero if that is larger."""
    cost = C * weight * np.where(y > 0.0, *factors)
    alpha = np.where(cost > 0.0, alpha, 0.0)
    if intercept == "free":
        sides = alpha[y > 0.0].sum(), alpha[y < 0.0].sum()
        shares = [min(sides) / side if side > 0.0 else 0.0 for side in sides]
        alpha = alpha * np.where(y > 0.0, *shares)
    used = alpha > 0.0
    v = (alpha * y) @ X
    bias = (alpha @ y) ** 2 if intercept == "regularised" else 0.0
    return max(0.0, alpha.sum() - 0.25 * (alpha[used] ** 2 / cost[used]).sum() - 0.5 * (v @ v + bias))


@pytest.mark.parametrize("intercept", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64, None], ids=["int32", "int64", "dense"])
def test_values_are_those_of_the_formula(dtype, index_dtype, intercept):
    rng = np.random.default_rng(0)
    dense = (0.2 * rng.normal(size=(30, 7)) * (rng.random((30, 7)) < 0.5)).astype(dtype)
    X = dense
    if index_dtype is not None:
        X = sp.csr_array(dense)
        X.indices, X.indptr = X.indices.astype(index_dtype), X.indptr.astype(index_dtype)
    lengths = np.array([5, 0, 1, 30, 0, 12, 30, 20])  # some labels have no dual variables
    indptr = np.append(0, np.cumsum(lengths))
    rows = np.concatenate([np.sort(rng.permutation(30)[:length]) for length in lengths])
    duals = 0.3 * rng.random(indptr[-1])
    Y = rng.random((30, len(lengths))) < 0.3
    Y[:, 6] = False
    positives = sp.csc_array(Y)
    positive_rows, positive_indptr = positives.indices.astype(np.int64), positives.indptr.astype(np.int64)
    weights = rng.uniform(0.5, 2.0, 30), rng.uniform(0.5, 3.0, len(lengths)), rng.uniform(0.2, 1.0, len(lengths))
    weights[1][5] = 0.0  # positives of no cost: their α is zero
    bias = KINDS[intercept]
    alpha = sp.csr_array((duals, rows, indptr), shape=(len(lengths), 30)).toarray()
    factors = np.transpose(weights[1:])
    signs, x = np.where(Y, 1.0, -1.0), dense.astype(np.float64)
    expected = [value_of(x, signs[:, j], weights[0], factors[j], alpha[j], intercept) for j in range(len(lengths))]
    assert sum(value > 0.0 for value in expected) >= 3
    values = compiled(X, positive_rows, positive_indptr, weights, bias, rows, indptr, duals)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "indptr", "message"),
    [
        ([0, 3], [0, 2], "dual_rows are out of range or order"),
        ([-1, 0], [0, 2], "dual_rows are out of range or order"),
        ([1, 0], [0, 2], "dual_rows are out of range or order"),
        ([1, 1], [0, 2], "dual_rows are out of range or order"),
        ([0, 1], [0, 3], "dual_indptr is out of range"),
        ([0, 1], [1, 0], "dual_indptr is out of range"),
        ([0, 1], [0, 1, 2], "dual_indptr and values do not fit the labels"),
    ],
)
def test_places_outside_the_arrays_are_refused(rows, indptr, message):
    weights, positives = (np.ones(3), np.ones(1), np.ones(1)), (np.array([0]), np.array([0, 1]))
    with pytest.raises(ValueError, match=message):
        compiled(np.eye(3), *positives, weights, (0.0, 1.0), np.array(rows), np.array(indptr), np.ones(2))
