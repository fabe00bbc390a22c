"""The top k of dense rows by candidates: the same numbers as exact sums over all labels, including ties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.problems.scores import CandidateFilter, LinearScorer


def brute_force(X, coef, intercept, k):
    """Sums in feature order, starting with the intercept; ties go to the lower label."""
    scores = np.tile(intercept, (len(X), 1))
    for f in range(X.shape[1]):
        scores = scores + X[:, [f]].astype(np.float64) * coef[:, f].astype(np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def make(rng, dtype, n_rows=600, n_features=20, n_labels=1000):
    coef = rng.normal(size=(n_labels, n_features)).astype(dtype)
    coef[500:] = coef[:500]  # every label has a twin: ties everywhere
    coef[::7] = 0.0
    return rng.normal(size=(n_rows, n_features)).astype(dtype), coef, rng.normal(size=n_labels).round(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("memory_limit_mb", [256.0, 0.02])
def test_candidates_give_the_brute_force_answer_bit_for_bit(dtype, k, memory_limit_mb):
    X, coef, intercept = make(np.random.default_rng(1), dtype)
    intercept[500:] = intercept[:500]
    scorer = LinearScorer(coef, intercept, memory_limit_mb=memory_limit_mb)
    assert scorer._filter.pays(len(X), k)
    indices, scores = scorer.top_k(X, k)
    expected_indices, expected_scores = brute_force(X, coef, intercept, k)
    np.testing.assert_array_equal(indices, expected_indices)
    assert scores.tobytes() == expected_scores.tobytes()


def test_results_depend_neither_on_threads_nor_on_batches():
    X, coef, intercept = make(np.random.default_rng(2), np.float32)
    scorer = LinearScorer(coef, intercept)
    whole = scorer.top_k(X, 5)
    for n_threads in (2, 3):
        for a, b in zip(whole, scorer.top_k(X, 5, n_threads=n_threads), strict=True):
            assert a.tobytes() == b.tobytes()
    rows = [scorer.top_k(X[i : i + 1], 5) for i in range(20)]  # too little work for candidates
    np.testing.assert_array_equal(np.vstack([scores for _, scores in rows]), whole[1][:20])
    sparse = LinearScorer(sp.csr_array(coef), intercept).top_k(X, 5)
    np.testing.assert_array_equal(sparse[0], whole[0])


def test_differences_below_the_rounding_of_float32_are_seen():
    rng = np.random.default_rng(3)
    X = np.ones((600, 40), dtype=np.float32)
    coef = np.full((1000, 40), 3.0, dtype=np.float32)
    coef[:990] = rng.normal(size=(990, 40))
    intercept = np.zeros(1000)
    intercept[990:] = rng.permutation(10) * 1e-9  # lost beside 120 in float32
    indices, _ = LinearScorer(coef, intercept).top_k(X, 5)
    assert (indices == 990 + np.argsort(-intercept[990:])[:5]).all()


def test_ties_of_all_labels_and_overflow_are_left_to_the_plain_kernel():
    weights = CandidateFilter(np.zeros((1000, 20), dtype=np.float32), np.zeros(1000))
    assert weights.find(np.ones((5, 20), dtype=np.float32), 1) is None
    large = CandidateFilter(np.full((1000, 20), 1e30, dtype=np.float32), np.zeros(1000))
    assert large.find(np.full((5, 20), 1e30), 1) is None
    X = np.ones((600, 20), dtype=np.float32)
    indices, scores = LinearScorer(np.zeros((1000, 20), dtype=np.float32)).top_k(X, 3)
    assert (indices == [0, 1, 2]).all()
    assert not scores.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_true_label_is_ever_left_out(dtype):
    rng = np.random.default_rng(4)
    for scale in (1e-20, 1.0, 1e8):
        coef = (scale * rng.normal(size=(300, 50))).astype(dtype)
        coef[1::2] = coef[::2] * dtype(1 + 1e-7)
        X = rng.normal(size=(40, 50)).astype(dtype)
        exact = X.astype(np.longdouble) @ coef.T.astype(np.longdouble)
        labels, indptr = CandidateFilter(coef, np.zeros(300)).find(X, 4)
        for i in range(40):
            assert set(np.argsort(-exact[i], kind="stable")[:4]) <= set(labels[indptr[i] : indptr[i + 1]])
