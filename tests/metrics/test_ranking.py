"""Ranking metrics equal plain loops, scikit-learn and values computed by hand; nothing is made dense."""

from __future__ import annotations

import math
import tracemalloc
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import ndcg_score

from hypothesis_examples import examples
from widemargin.metrics import (
    jain_propensities,
    ndcg_at_k,
    precision_at_k,
    propensity_scored_precision_at_k,
    recall_at_k,
)

TopK = namedtuple("TopK", ["labels", "scores", "indices"])


@st.composite
def rankings(draw):
    """A dense indicator with empty rows, lists with missing places, weights, and some ks."""
    seed = draw(st.integers(0, 2**32 - 1))
    n_samples, n_labels = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    n_places = draw(st.integers(1, n_labels + 2))
    rng = np.random.default_rng(seed)
    Y = rng.random((n_samples, n_labels)) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    indices = np.full((n_samples, n_places), -1)
    for row in indices:
        listed = rng.permutation(n_labels)[: rng.integers(0, n_places + 1)]
        row[: len(listed)] = listed
    ks = draw(st.lists(st.integers(1, n_places), min_size=1, max_size=3))
    weights = rng.integers(0, 3, size=n_samples).astype(float)
    weights[rng.integers(n_samples)] = 1.0
    return Y, indices, ks, weights


def brute_mean(per_row, Y, weights, empty):
    rows = [i for i in range(len(Y)) if empty == "zero" or Y[i].any()]
    total = sum(weights[i] for i in rows)
    return sum(weights[i] * per_row(i) for i in rows) / total if total else None


def n_hits(Y, indices, i, k):
    return sum(1 for label in indices[i][:k] if label >= 0 and Y[i][label])


def brute_precision(Y, indices, k, weights, empty):
    return brute_mean(lambda i: n_hits(Y, indices, i, k) / k, Y, weights, empty)


def brute_recall(Y, indices, k, weights, empty):
    return brute_mean(lambda i: n_hits(Y, indices, i, k) / Y[i].sum() if Y[i].any() else 0.0, Y, weights, empty)


def brute_ndcg(Y, indices, k, weights, empty):
    def of_row(i):
        gained = sum(
            1 / math.log2(place + 1)
            for place, label in enumerate(indices[i][:k], start=1)
            if label >= 0 and Y[i][label]
        )
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, Y[i].sum()) + 1))
        return gained / ideal if ideal else 0.0

    return brute_mean(of_row, Y, weights, empty)


METRICS = [(precision_at_k, brute_precision), (recall_at_k, brute_recall), (ndcg_at_k, brute_ndcg)]
BY_NAME = pytest.mark.parametrize(("metric", "brute"), METRICS, ids=lambda f: f.__name__)


@BY_NAME
@pytest.mark.parametrize("empty", ["zero", "skip"])
@examples(60)
@given(case=rankings())
def test_ranking_metrics_equal_plain_loops(metric, brute, empty, case):
    Y, indices, ks, weights = case
    expected = [brute(Y, indices, k, weights, empty) for k in ks]
    if expected[0] is None:
        with pytest.raises(ValueError, match="leaves no rows"):
            metric(Y, indices, ks, empty=empty, sample_weight=weights)
        return
    got = metric(sparse.csr_array(Y), indices, ks, empty=empty, sample_weight=weights)
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
    assert metric(Y, indices, ks[0], empty=empty, sample_weight=weights) == got[0]


@examples(60)
@given(seed=st.integers(0, 2**32 - 1), n_samples=st.integers(1, 6), n_labels=st.integers(2, 8), k=st.integers(1, 8))
def test_ndcg_equals_scikit_learn_without_ties(seed, n_samples, n_labels, k):
    rng = np.random.default_rng(seed)
    Y = rng.random((n_samples, n_labels)) < 0.4
    scores = rng.permuted(np.tile(np.arange(float(n_labels)), (n_samples, 1)), axis=1)
    indices = np.argsort(-scores, axis=1)
    k = min(k, n_labels)
    np.testing.assert_allclose(ndcg_at_k(sparse.csr_array(Y), indices, k), ndcg_score(Y, scores, k=k), rtol=1e-12)


def brute_psp(Y, indices, k, p, weights, normalize):
    gained = best = 0.0
    for i, row in enumerate(Y):
        gained += weights[i] * sum(1 / p[label] for label in indices[i][:k] if label >= 0 and row[label])
        best += weights[i] * sum(sorted((1 / p[label] for label in np.flatnonzero(row)), reverse=True)[:k])
    if normalize:
        return gained / best if best else 0.0
    return gained / (k * weights.sum())


@pytest.mark.parametrize("normalize", [True, False])
@examples(80)
@given(case=rankings())
def test_propensity_scored_precision_equals_plain_loops(normalize, case):
    Y, indices, ks, weights = case
    p = np.random.default_rng(0).uniform(0.05, 1.0, size=Y.shape[1])
    got = propensity_scored_precision_at_k(
        sparse.csr_array(Y), indices, ks, propensities=p, normalize=normalize, sample_weight=weights
    )
    expected = [brute_psp(Y, indices, k, p, weights, normalize) for k in ks]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_propensity_scored_precision_of_an_example_worked_out_by_hand():
    # Row 0 has labels 0, 2 (worth 5/4 and 5), row 1 label 1 (worth 2), row 2 none.
    Y = sparse.csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
    p = np.array([0.8, 0.5, 0.2, 0.4])
    indices = np.array([[0, 3, 2], [3, 1, 0], [1, 2, -1]])
    # Found: k=1: 5/4; k=2: 5/4 + 2; k=3: 5/4 + 5 + 2. Attainable: k=1: 5 + 2; k=2 and 3: 5 + 5/4 + 2.
    got = propensity_scored_precision_at_k(Y, indices, [1, 2, 3], propensities=p)
    np.testing.assert_allclose(got, [5 / 28, 13 / 33, 1.0], rtol=1e-15)
    plain = propensity_scored_precision_at_k(Y, indices, [1, 2, 3], propensities=p, normalize=False)
    np.testing.assert_allclose(plain, [5 / 12, 13 / 24, 33 / 36], rtol=1e-15)


def test_equal_propensities_rank_labels_as_precision_does():
    rng = np.random.default_rng(3)
    Y = sparse.csr_array(rng.random((30, 10)) < 0.3)
    indices = np.argsort(rng.random((30, 10)), axis=1)
    plain = propensity_scored_precision_at_k(Y, indices, 3, propensities=np.ones(10), normalize=False)
    assert plain == pytest.approx(precision_at_k(Y, indices, 3), rel=1e-14)


@examples(50)
@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    n_samples=st.integers(50, 10**6),
    A=st.floats(0.1, 1.0),
    B=st.floats(0.1, 4.0),
)
def test_propensities_follow_the_formula_and_grow_with_the_count(counts, n_samples, A, B):
    p = jain_propensities(counts, n_samples, A, B)
    C = (math.log(n_samples) - 1) * math.pow(B + 1, A)
    np.testing.assert_allclose(p, [1 / (1 + C * math.pow(count + B, -A)) for count in counts], rtol=1e-12)
    assert ((p > 0) & (p < 1)).all()
    assert np.array_equal(np.argsort(p, kind="stable"), np.argsort(counts, kind="stable"))


def test_a_label_seen_once_has_propensity_one_over_log_n():
    # (N_l + B) = (B + 1) cancels: 1 + C (B + 1)^(−A) = log N, whatever A and B.
    for A, B in [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)]:
        np.testing.assert_allclose(jain_propensities([1], 20_000, A, B), [1 / math.log(20_000)], rtol=1e-14)


def test_the_named_tuple_of_predict_topk_is_understood():
    Y = sparse.csr_array(np.array([[1, 0, 0], [0, 0, 1]]))
    indices = np.array([[0, 1], [1, 2]])
    topk = TopK(np.array([["a", "b"], ["b", "c"]]), np.array([[2.0, 1.0], [2.0, 1.0]]), indices)
    for metric, _ in METRICS:
        assert metric(Y, topk, 2) == metric(Y, indices, 2)


def test_unsorted_and_duplicate_free_storage_does_not_matter_and_input_is_left_alone():
    Y = sparse.csr_array((np.array([1.0, 1.0, 0.0]), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    before = Y.indices.copy(), Y.data.copy()
    assert precision_at_k(Y, np.array([[2, 1]]), 2) == 0.5
    assert recall_at_k(Y, np.array([[2, 1]]), 2) == 0.5
    np.testing.assert_array_equal(Y.indices, before[0])
    np.testing.assert_array_equal(Y.data, before[1])


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, np.asarray, np.ndarray.tolist])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32])
def test_every_kind_of_indicator_gives_the_same(kind, dtype):
    Y = np.array([[1, 0, 1], [0, 1, 0]], dtype=dtype)
    assert recall_at_k(kind(Y), np.array([[0, 1], [0, 1]]), 2) == 0.75


def test_a_wide_sparse_problem_stays_sparse():
    n_samples, n_labels, n_places = 100_000, 1_000_000, 5
    rng = np.random.default_rng(0)
    rows = np.arange(n_samples)
    first = rng.integers(0, n_labels - 1, size=n_samples)
    # Two labels per row; int64 indices, as in a matrix with more than 2³¹ entries.
    columns = np.stack([first, first + 1], axis=1).ravel()
    Y = sparse.csr_array((np.ones(2 * n_samples), columns, np.arange(0, 2 * n_samples + 1, 2)), (n_samples, n_labels))
    indices = np.full((n_samples, n_places), -1)
    indices[:, 0] = first
    # In every second row the second label is found too, at place 3.
    indices[rows % 2 == 0, 1] = (first[::2] + 2) % n_labels
    indices[rows % 2 == 0, 2] = first[::2] + 1
    p = np.full(n_labels, 0.5)
    tracemalloc.start()
    precision = precision_at_k(Y, indices, [1, 3, 5])
    recall = recall_at_k(Y, indices, [1, 3, 5])
    ndcg = ndcg_at_k(Y, indices, 3)
    scored = propensity_scored_precision_at_k(Y, indices, [1, 3], propensities=p)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(precision, [1.0, 0.5, 0.3])
    np.testing.assert_allclose(recall, [0.5, 0.75, 0.75])
    ideal = 1 + 1 / math.log2(3)
    assert ndcg == pytest.approx((0.5 * 1 + 0.5 * (1 + 0.5)) / ideal)
    np.testing.assert_allclose(scored, [1.0, 0.75])
    assert peak < 100e6  # a dense indicator with one byte per entry would be 100 GB


GOOD_Y = np.array([[1, 0, 1], [0, 1, 0]])
GOOD_INDICES = np.array([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("Y", "indices", "options", "message"),
    [
        (GOOD_Y[:1], GOOD_INDICES, {}, r"got shapes \(1, 3\) and \(2, 2\)"),
        (GOOD_Y * 2, GOOD_INDICES, {}, "indicator matrix of zeros and ones, but contains 2"),
        (GOOD_Y * np.nan, GOOD_INDICES, {}, "indicator matrix of zeros and ones"),
        (GOOD_Y.astype(complex), GOOD_INDICES, {}, "dtype complex"),
        (GOOD_Y, GOOD_INDICES + 1, {}, "label index 3 in row 1, place 1 is out of range: Y_true has 3 labels"),
        (GOOD_Y, GOOD_INDICES - 2, {}, "label index -2 in row 0"),
        (GOOD_Y, np.array([[0, 0], [1, 2]]), {}, "label index 0 occurs twice in row 0"),
        (GOOD_Y, GOOD_INDICES.astype(float), {}, "integer array"),
        (GOOD_Y, GOOD_INDICES[0], {}, "integer array"),
        (GOOD_Y, GOOD_INDICES, {"k": 3}, "k=3 exceeds the length of the ranked lists, 2"),
        (GOOD_Y, GOOD_INDICES, {"k": 0}, "at least 1"),
        (GOOD_Y, GOOD_INDICES, {"k": 1.0}, "must be an integer"),
        (GOOD_Y, GOOD_INDICES, {"k": []}, "nonempty"),
        (GOOD_Y, GOOD_INDICES, {"empty": "nan"}, "empty must be one of 'zero', 'skip'"),
        (GOOD_Y, GOOD_INDICES, {"sample_weight": [1.0]}, r"shape \(2,\); got shape \(1,\)"),
        (GOOD_Y, GOOD_INDICES, {"sample_weight": [1.0, -1.0]}, "nonnegative"),
        (GOOD_Y, GOOD_INDICES, {"sample_weight": [0.0, 0.0]}, "zero for every row"),
        (GOOD_Y * 0, GOOD_INDICES, {"empty": "skip"}, "leaves no rows"),
        (sparse.csr_array((0, 3)), np.zeros((0, 2), dtype=int), {}, "requires at least one"),
    ],
)
def test_bad_input_is_named(Y, indices, options, message):
    with pytest.raises(ValueError, match=message):
        precision_at_k(Y, indices, **({"k": 2} | options))


@pytest.mark.parametrize(
    ("propensities", "message"),
    [
        ([0.5, 0.5], r"shape \(3,\).*got shape \(2,\)"),
        ([0.5, 0.5, 2.0], "inverse propensities"),
        ([0.5, 0.5, 0.0], "probabilities"),
        ([0.5, 0.5, np.nan], "probabilities"),
    ],
)
def test_bad_propensities_are_named(propensities, message):
    with pytest.raises(ValueError, match=message):
        propensity_scored_precision_at_k(GOOD_Y, GOOD_INDICES, 1, propensities=propensities)


@pytest.mark.parametrize(
    ("counts", "n_samples", "options", "message"),
    [
        ([[1, 2]], 10, {}, r"shape \(n_labels,\)"),
        ([1, 2], 2, {}, "at least 3"),
        ([1, 11], 10, {}, "between 0 and n_samples=10"),
        ([-1, 1], 10, {}, "between 0 and n_samples=10"),
        ([1, 1], 10, {"B": 0.0}, "B positive"),
        ([1, 1], 10, {"A": -1.0}, "A must be nonnegative"),
    ],
)
def test_bad_label_counts_are_named(counts, n_samples, options, message):
    with pytest.raises(ValueError, match=message):
        jain_propensities(counts, n_samples, **options)
