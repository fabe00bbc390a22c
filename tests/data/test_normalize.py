"""l2_normalize_rows against scikit-learn and against exact values at the ends of the number range."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from widemargin.data import normalize as module
from widemargin.data.normalize import l2_normalize_rows, with_unit_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_rows_are_those_of_scikit_learn(dtype, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ENTRIES", block)
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 20), density=0.2, format="csr", dtype=dtype, random_state=rng)
    X = sp.csr_array(sp.vstack([sp.csr_array((3, 20), dtype=dtype), X, sp.csr_array((2, 20), dtype=dtype)]))
    expected = normalize(X.toarray().astype(np.float64))
    for given in (X, sp.csr_matrix(X), X.toarray()):
        got = l2_normalize_rows(given)
        assert got.dtype == dtype
        assert type(got) is type(given)
        np.testing.assert_allclose(got.toarray() if sp.issparse(got) else got, expected, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("scale", [1e-320, 1e-160, 1e160, 1.7e308])
def test_tiny_and_huge_rows_have_length_one(scale):
    X = np.array([[scale, -scale, 0.0, scale, scale]])
    np.testing.assert_allclose(l2_normalize_rows(X), [[0.5, -0.5, 0, 0.5, 0.5]], rtol=1e-12)
    np.testing.assert_allclose(l2_normalize_rows(sp.csr_array(X)).toarray(), [[0.5, -0.5, 0, 0.5, 0.5]], rtol=1e-12)


def test_input_is_changed_only_on_demand():
    X = np.array([[3.0, 4.0]])
    S = sp.csr_array(X)
    l2_normalize_rows(X)
    l2_normalize_rows(S)
    assert X.tolist() == S.toarray().tolist() == [[3, 4]]
    assert l2_normalize_rows(X, copy=False) is X
    l2_normalize_rows(S, copy=False)
    assert X.tolist() == S.toarray().tolist() == [[0.6, 0.8]]


def test_explicit_zeros_and_integers_and_repeated_entries():
    S = sp.csr_array((np.array([0.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert l2_normalize_rows(S).toarray().tolist() == [[0, 0]]
    assert l2_normalize_rows(np.array([[3, 4]])).dtype == np.float32
    repeated = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_allclose(l2_normalize_rows(repeated).toarray(), [[0.6, 0.8]])


def test_unit_rows_are_used_where_they_are_and_others_share_their_indices():
    rng = np.random.default_rng(3)
    raw = sp.random_array((50, 20), density=0.3, random_state=rng, format="csr", dtype=np.float32)
    unit = l2_normalize_rows(raw)
    assert with_unit_rows(unit) is unit
    again = with_unit_rows(raw)
    assert again.indices is raw.indices or np.shares_memory(again.indices, raw.indices)
    np.testing.assert_array_equal(again.data, unit.data)
    nearly = unit.copy()
    nearly.data[0] *= 1.01
    assert with_unit_rows(nearly) is not nearly
    dense = unit.toarray()
    assert with_unit_rows(dense) is dense
    np.testing.assert_allclose(with_unit_rows(2 * dense), dense, rtol=1e-6)
