"""Prediction: exact scores and the exact top k for any storage, blocks and threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference import top_k as reference
from widemargin.problems import scores as module
from widemargin.problems.scores import FeatureIndex, LinearScorer, csr_of_dense

FLOATS = [np.float32, np.float64]
# How sparse weights are scored: every feature with a weight gets a line, those with many weights do, or none does.
LINES = {"all": 10**6, "frequent": 0, "none": -(10**6)}


def in_blocks(labels_per_block, *weights, lines="all", **options):
    """A scorer that adds sparse weights up for that many labels at a time, with lines for these features."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LABELS_PER_BLOCK", labels_per_block)
        patch.setattr(module, "WEIGHTS_PER_LIST", LINES[lines])
        return LinearScorer(*weights, **options)


def brute_force_top_k(scores, k):
    """The top k by sorting pairs (−score, label), padded with −1 and −inf."""
    pairs = [sorted((-s, label) for label, s in enumerate(row)) for row in scores.tolist()]
    padded = [(row + [(np.inf, -1)] * k)[:k] for row in pairs]
    shape = (len(scores), k)
    indices = np.array([[label for _, label in row] for row in padded], dtype=np.int64).reshape(shape)
    return indices, np.array([[-s for s, _ in row] for row in padded], dtype=np.float64).reshape(shape)


def random_integers(rng, shape, density):
    """Small integers so that all sums are exact and many are equal."""
    return rng.integers(-2, 3, size=shape) * (rng.random(shape) < density)


def store(matrix, kind, dtype, rng):
    """The matrix dense, or as CSR with int32 or int64 indices, unsorted, and with some zeros stored."""
    matrix = matrix.astype(dtype)
    if kind == "dense":
        return matrix
    stored = (matrix != 0) | (rng.random(matrix.shape) < 0.1)
    rows, columns = np.nonzero(stored)
    shuffled = rng.permutation(len(rows))
    shuffled = shuffled[np.argsort(rows[shuffled], kind="stable")]
    columns = columns[shuffled]
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    csr = sp.csr_array((matrix[rows, columns], columns, indptr), shape=matrix.shape)
    index = np.int32 if kind == "csr32" else np.int64
    csr.indices, csr.indptr = csr.indices.astype(index), csr.indptr.astype(index)
    return csr


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, n_labels = draw(st.integers(0, 9)), draw(st.integers(0, 40))
    n_features, density = draw(st.integers(0, 7)), draw(st.sampled_from([0.0, 0.1, 0.4, 1.0]))
    X = random_integers(rng, (n, n_features), density)
    W = random_integers(rng, (n_labels, n_features), draw(st.sampled_from([0.0, 0.2, 1.0])))
    b = rng.integers(-1, 2, size=n_labels).astype(float)
    kinds, dtypes = st.sampled_from(["dense", "csr32", "csr64"]), st.sampled_from(FLOATS)
    return (
        (X, W, b),
        store(X, draw(kinds), draw(dtypes), rng),
        store(W, draw(kinds), draw(dtypes), rng),
        draw(st.integers(1, 45)),
        {"n_threads": draw(st.sampled_from([1, 2, 5]))},
        (
            draw(st.sampled_from([8, 16, 32768])),
            draw(st.sampled_from([1e-6, 1e-3, 256])),
            draw(st.sampled_from(list(LINES))),
        ),
    )


@given(problems())
@examples(300)
@pytest.mark.slow
def test_top_k_is_exact_with_ties_by_the_lower_label(problem):
    (X, W, b), stored_X, stored_W, k, options, limits = problem
    scorer = in_blocks(limits[0], stored_W, b, memory_limit_mb=limits[1], lines=limits[2])
    indices, scores = scorer.top_k(stored_X, k, **options)
    expected_indices, expected_scores = brute_force_top_k(X @ W.T + b, k)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_array_equal(scores, expected_scores)


@given(problems())
@examples(150)
@pytest.mark.slow
def test_scores_and_label_scores_are_the_dense_product(problem):
    (X, W, b), stored_X, stored_W, _, options, limits = problem
    expected = X @ W.T + b
    scorer = in_blocks(limits[0], stored_W, b, memory_limit_mb=limits[1], lines=limits[2])
    np.testing.assert_array_equal(scorer.scores(stored_X, **options), expected)
    Y = sp.random_array(expected.shape, density=0.3, format="csr", random_state=np.random.default_rng(0))
    given_scores = scorer.label_scores(stored_X, Y, **options)
    np.testing.assert_array_equal(given_scores.indices, Y.indices)
    np.testing.assert_array_equal(given_scores.data, expected[Y.nonzero()])
    if len(W):
        y = np.arange(len(X)) % len(W)
        np.testing.assert_array_equal(scorer.label_scores(stored_X, y, **options), expected[np.arange(len(X)), y])


@pytest.fixture(scope="module")
def real_problem():
    """Reals, where the order of summation shows; sizes beyond every block of the kernels."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((300, 150)) * (rng.random((300, 150)) < 0.3)
    W = rng.standard_normal((530, 150)) * (rng.random((530, 150)) < 0.2)
    return X.astype(np.float32), W.astype(np.float32), rng.standard_normal(530)


def test_scores_are_the_same_bits_for_every_storage(real_problem):
    X, W, b = real_problem
    expected = reference.scores(X, W, b)
    stored = (W, W.astype(np.float64), sp.csr_array(W), sp.csr_matrix(W.astype(np.float64)))
    for weights, lines in [*((w, "all") for w in stored[:2]), *((w, name) for w in stored[2:] for name in LINES)]:
        scorer = in_blocks(104, weights, b, lines=lines)
        for rows in (X, X.astype(np.float64), sp.csr_array(X), np.asfortranarray(X), sp.coo_array(X)):
            np.testing.assert_array_equal(scorer.scores(rows), expected)


def test_float64_products_are_rounded_before_they_are_added(real_problem):
    X, W, b = (np.asarray(a, dtype=np.float64) / 3 for a in real_problem)
    expected = reference.scores(X, W, b)
    np.testing.assert_array_equal(LinearScorer(W, b).scores(X), expected)
    np.testing.assert_array_equal(LinearScorer(sp.csr_array(W), b).scores(X), expected)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, *LINES])
def test_top_k_does_not_depend_on_threads_batches_or_memory(real_problem, sparse):
    X, W, b = real_problem
    scorer = in_blocks(104, sp.csr_array(W), b, lines=sparse) if sparse else LinearScorer(W, b)
    expected = reference.top_k(reference.scores(X, W, b), 7)
    for n_threads in (1, 2, 5):
        for limit in (1e-6, 0.01, 256):
            scorer.memory_limit_mb = limit
            got = scorer.top_k(X, 7, n_threads=n_threads)
            np.testing.assert_array_equal(got[0], expected[0])
            np.testing.assert_array_equal(got[1], expected[1])
    one_by_one = np.vstack([scorer.top_k(X[i : i + 1], 7)[1] for i in range(len(X))])
    np.testing.assert_array_equal(one_by_one, expected[1])


@pytest.mark.parametrize("sparse", [False, *LINES])
def test_label_scores_are_the_same_bits_as_scores(real_problem, sparse):
    X, W, b = real_problem
    scorer = in_blocks(104, sp.csr_array(W), b, lines=sparse) if sparse else LinearScorer(W, b)
    Y = sp.random_array((len(X), len(W)), density=0.05, format="csr", random_state=np.random.default_rng(1))
    expected = reference.label_scores(reference.scores(X, W, b), Y)
    np.testing.assert_array_equal(scorer.label_scores(sp.csr_array(X), Y).data, expected.data)


def test_reference_scores_are_close_to_the_matrix_product(real_problem):
    X, W, b = (np.asarray(a, dtype=np.float64) for a in real_problem)
    np.testing.assert_allclose(reference.scores(X, W, b), X @ W.T + b, rtol=1e-12, atol=1e-12)


def test_read_only_memory_maps_are_used_as_they_are(tmp_path, real_problem):
    X, W, b = real_problem

    def mapped(array, name):
        np.save(tmp_path / name, array)
        return np.load(tmp_path / name, mmap_mode="r")

    def mapped_csr(matrix, name):
        parts = (mapped(getattr(matrix, part), f"{name}-{part}.npy") for part in ("data", "indices", "indptr"))
        return sp.csr_array(tuple(parts), shape=matrix.shape)

    expected = reference.top_k(reference.scores(X, W, b), 3)
    stored_X, stored_W = mapped_csr(sp.csr_array(X), "X"), mapped_csr(sp.csr_array(W), "W")
    for rows in (mapped(X, "X.npy"), stored_X):
        for weights in (mapped(W, "W.npy"), stored_W):
            np.testing.assert_array_equal(LinearScorer(weights, mapped(b, "b.npy")).top_k(rows, 3)[0], expected[0])


def test_integer_and_non_contiguous_input_is_converted():
    X, W = np.arange(12).reshape(4, 3), np.array([[1, 0, 2], [0, -1, 0]])
    expected = X @ W.T
    for rows in (
        X,
        X.astype(np.float32)[:, ::1],
        np.asfortranarray(X),
        sp.csr_array(X),
        np.repeat(X, 2, axis=1)[:, ::2],
    ):
        np.testing.assert_array_equal(LinearScorer(W, memory_limit_mb=1e-5).scores(rows), expected)
        np.testing.assert_array_equal(LinearScorer(sp.csc_array(W), memory_limit_mb=1e-5).scores(rows), expected)


def test_scores_that_are_not_a_number_rank_last():
    X = np.array([[1e308, 1e308]])
    W = np.array([[10.0, -10.0], [0.0, 0.0], [-1.0, 0.0]])
    for weights in (W, sp.csr_array(W)):
        indices, scores = LinearScorer(weights).top_k(X, 3)
        np.testing.assert_array_equal(indices, [[1, 2, 0]])
        np.testing.assert_array_equal(scores, [[0.0, -1e308, -np.inf]])


def broken_csr(**changes):
    """A valid 2 × 3 CSR array with some parts replaced, bypassing scipy's own checks."""
    matrix = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    for name, value in changes.items():
        setattr(matrix, name, np.array(value, dtype=np.int32))
    return matrix


SCORER = LinearScorer(np.ones((4, 3)))
BAD_INPUT = {
    "X is a vector": (lambda: SCORER.scores(np.ones(3)), "X must have shape"),
    "X has other features": (lambda: SCORER.top_k(np.ones((2, 5)), 1), r"X must have shape \(n_samples, 3\)"),
    "k is 0": (lambda: SCORER.top_k(np.ones((2, 3)), 0), "k must be at least 1"),
    "no thread": (lambda: SCORER.top_k(np.ones((2, 3)), 1, n_threads=0), "n_threads"),
    "no memory": (lambda: LinearScorer(np.ones((4, 3)), memory_limit_mb=0).scores(np.ones((2, 3))), "memory_limit_mb"),
    "a label too high": (lambda: SCORER.label_scores(np.ones((1, 3)), [4]), "must be between 0 and 3"),
    "a label below 0": (lambda: SCORER.label_scores(np.ones((1, 3)), [-1]), "must be between 0 and 3"),
    "labels as floats": (lambda: SCORER.label_scores(np.ones((1, 3)), [0.5]), "label indices"),
    "too few labels": (lambda: SCORER.label_scores(np.ones((2, 3)), [0]), "2 label indices"),
    "indicator too narrow": (
        lambda: SCORER.label_scores(np.ones((1, 3)), sp.csr_array((1, 3))),
        "one column per label",
    ),
    "coef is a vector": (lambda: LinearScorer(np.ones(3)), "coef must have shape"),
    "coef has a bad index": (lambda: LinearScorer(broken_csr(indices=[0, 7, 1])), "coef contains a column index"),
    "coef has a bad indptr": (lambda: LinearScorer(broken_csr(indptr=[0, 9, 3])), "indptr of coef"),
    "X has a bad index": (lambda: SCORER.top_k(broken_csr(indices=[0, -1, 1]), 1), "X: a column index"),
    "X has a bad indptr": (lambda: SCORER.top_k(broken_csr(indptr=[0, 9, 3]), 1), "X: indptr"),
    "X has a short indptr": (lambda: SCORER.top_k(broken_csr(indptr=[0, 1]), 1), "indptr of X"),
    "intercept is short": (lambda: LinearScorer(np.ones((2, 3)), [1.0]), "intercept must have shape"),
    "intercept is NaN": (lambda: LinearScorer(np.ones((1, 3)), [np.nan]), "NaN or infinity"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_named(case):
    call, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bad_row_in_a_thread_is_an_error_in_the_caller():
    X = sp.csr_array(np.ones((500, 3)))
    X.indices[-1] = 99
    with pytest.raises(ValueError, match="X: a column index"):
        LinearScorer(np.ones((4, 3)), memory_limit_mb=1e-3).top_k(X, 1, n_threads=4)


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("labels_per_block", [8, 64, 32768])
@pytest.mark.parametrize("k", [1, 5, 10, 33])
def test_labels_that_float32_cannot_tell_apart_are_ranked_exactly(dtype, labels_per_block, k, lines):
    """Weights that differ in the last places, repeated labels, and rows of very different size: estimates tie."""
    rng = np.random.default_rng(k)
    weights = rng.choice([1.0, 1.0 + 2.0**-23, 1.0 - 2.0**-24, -1.0], size=(60, 40)) * rng.choice([1.0, 1e3], size=40)
    weights = np.tile(np.concatenate([weights, weights[::2], weights[::3]]), (3, 1)).astype(dtype)
    intercept = np.tile(rng.choice([0.0, 2.0**-26, -(2.0**-26)], size=10), 33)
    X = sp.csr_array(rng.choice([0.0, 1.0, 1.0 / 3.0, 1e-3], size=(30, 40)).astype(dtype))
    expected = brute_force_top_k(reference.scores(X, weights, intercept), k)
    scorer = in_blocks(labels_per_block, sp.csr_array(weights), intercept, lines=lines)
    found = scorer.top_k(X, k)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_weights_stored_in_several_parts_are_ranked_by_their_sum():
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((50, 8))
    parts = [sp.csr_array(dense * share) for share in (0.5, 3.0, -2.5)]
    indices = np.concatenate([part.indices.reshape(50, 8) for part in parts], axis=1).ravel()
    data = np.concatenate([part.data.reshape(50, 8) for part in parts], axis=1).ravel()
    coef = sp.csr_array((data, indices, 24 * np.arange(51)), shape=(50, 8))
    X = rng.standard_normal((20, 8))
    found = LinearScorer(coef).top_k(X, 5)[0]
    np.testing.assert_array_equal(found, brute_force_top_k(X @ dense.T, 5)[0])


@pytest.mark.parametrize("n_rows", [1, 40])  # few features among many are sorted, more are counted in a set of bits
def test_sparse_rows_and_dense_weights_with_many_features(n_rows):
    rng = np.random.default_rng(n_rows)
    W = random_integers(rng, (21, 4000), 0.5)
    X = random_integers(rng, (n_rows, 4000), 0.01)
    X[:, [0, 63, 64, 3999]] = 1  # the ends of words, and of all
    expected = brute_force_top_k((X @ W.T).astype(float), 4)
    found = LinearScorer(W.astype(np.float32)).top_k(sp.csr_array(X.astype(np.float64)), 4)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def weights_of_index(index, n_labels, n_features):
    """The dense weights of an index by feature, read entry by entry."""
    W = np.zeros((n_labels, n_features))
    for f in range(n_features):
        if index.line_of[f] >= 0:
            W[:, f] = index.lines[index.line_of[f], :n_labels]
        for block in range(len(index.starts)):
            for place in range(index.starts[block, f], index.starts[block, f + 1]):
                W[block * index.labels_per_block + index.labels[place], f] += index.data[place]
    return W


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("labels_per_block", [8, 104, 32768])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_index_by_feature_has_the_weights(real_problem, dtype, labels_per_block, lines, monkeypatch):
    W = sp.csr_array(real_problem[1].astype(dtype))
    monkeypatch.setattr(module, "LABELS_PER_BLOCK", labels_per_block)
    monkeypatch.setattr(module, "WEIGHTS_PER_LIST", LINES[lines])
    index = FeatureIndex.of(W)
    np.testing.assert_array_equal(weights_of_index(index, *W.shape), W.toarray())
    np.testing.assert_array_equal(index.largest, np.abs(W.toarray()).max(axis=0))
    n_lines = {"all": W.shape[1], "frequent": (np.bincount(W.indices) >= W.shape[0] / 4).sum(), "none": 0}[lines]
    assert len(index.lines) == n_lines
    index.check(W, labels=True)


def test_lines_may_add_no_more_than_the_lists_have(monkeypatch):
    counts = np.array([0] + 20 * [1] + [50])
    monkeypatch.setattr(module, "WEIGHTS_PER_LIST", 100)
    np.testing.assert_array_equal(module._line_features(counts, 100, 4), np.arange(22))  # the one without weights, too
    monkeypatch.setattr(module, "PLAIN_BYTES", 0)
    # A line of 104 labels has 416 bytes, the lists have 6 per weight, 420 in all: there is room for the largest.
    np.testing.assert_array_equal(module._line_features(counts, 100, 4), [21])


def test_weights_stored_in_several_parts_get_no_line():
    """Lines would add the parts before they are multiplied, which rounds differently."""
    data, indices = np.array([0.1, 0.2, 0.7]), np.array([0, 0, 1])
    coef = sp.csr_array((data, indices, np.array([0, 2, 3])), shape=(2, 2))
    index = FeatureIndex.of(coef)
    assert len(index.lines) == 0
    assert index.most_repeats == 2
    np.testing.assert_allclose(index.largest, [0.3, 0.7])
    expected = [[(0.0 + 3.0 * 0.1) + 3.0 * 0.2, 3.0 * 0.7]]
    np.testing.assert_array_equal(LinearScorer(coef).scores(np.array([[3.0, 3.0]])), expected)


def test_dense_weights_are_copied_by_feature_when_sparse_rows_have_paid_for_it(real_problem):
    X, W, b = real_problem
    rows, expected = sp.csr_array(X), reference.scores(X, W, b)
    scorer = LinearScorer(W, b)
    for first in range(len(X)):
        np.testing.assert_array_equal(scorer.scores(rows[first : first + 1]), expected[first : first + 1])
        assert (scorer._lines is not None) == (rows.indptr[first + 1] >= W.shape[1])
    small = LinearScorer(W, b, memory_limit_mb=0.1)  # 530 × 150 × 4 bytes are more
    np.testing.assert_array_equal(small.scores(rows), expected)
    assert small._lines is None


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_huge_value_of_a_feature_whose_weights_are_zero_changes_nothing(make):
    """In float32, 1e300 is infinite, and infinity times zero is not a number."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3000, 4))
    W[:, 1] = 0.0
    X = rng.standard_normal((5, 4))
    X[2, 1] = 1e300
    expected = reference.top_k(reference.scores(X, W, np.zeros(3000)), 2)
    stored = make(W)
    if make is sp.csr_array:  # zeros that are stored
        stored = sp.csr_array((W.ravel(), np.tile(np.arange(4), 3000), np.arange(0, 12001, 4)), shape=W.shape)
    found = LinearScorer(stored).top_k(sp.csr_array(X), 2)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("wanted", [None, np.int64])
def test_the_csr_array_of_a_dense_one_is_that_of_scipy(dtype, order, wanted):
    rng = np.random.default_rng(0)
    X = np.asarray(9 * rng.normal(size=(30, 7)) * (rng.random((30, 7)) < 0.4), dtype=dtype, order=order)
    X[[0, 11, 29]] = 0
    X[3, 2] = -0.0
    found, expected = csr_of_dense(X, wanted), sp.csr_array(X)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name).astype(getattr(found, name).dtype))
    assert (found.shape, found.dtype, found.indices.dtype) == (X.shape, wanted or dtype, np.int32)
    assert csr_of_dense(X[:0], wanted).shape == (0, 7)
