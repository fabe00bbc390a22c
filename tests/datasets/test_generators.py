"""Generated data has the promised shape, obeys Zipf's law, repeats with its seed, and can be learnt."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

from widemargin import open_store, write_store
from widemargin.datasets import generators as _bags
from widemargin.datasets.generators import make_hierarchical, make_zipf_multilabel


def fingerprint(*matrices):
    parts = [array for m in matrices for array in ((m.data, m.indices, m.indptr) if hasattr(m, "indptr") else (m,))]
    return [hashlib.sha256(np.ascontiguousarray(part)).hexdigest() for part in parts]


def row_norms(X):
    return np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())


@pytest.mark.parametrize("n_samples", [1, 100, _bags.BLOCK_ROWS + 1])
def test_multilabel_data_has_the_promised_form(n_samples):
    X, Y = make_zipf_multilabel(n_samples, 300, 50, labels_per_row=2.5, nnz_per_row=12, random_state=0)
    assert X.shape == (n_samples, 300)
    assert Y.shape == (n_samples, 50)
    assert X.dtype == np.float32
    assert X.has_canonical_format
    assert Y.has_canonical_format
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert set(Y.data.tolist()) == {1.0}
    assert np.diff(Y.indptr).min() >= 1
    np.testing.assert_allclose(row_norms(X), 1.0, rtol=1e-6)


@pytest.mark.parametrize(("labels_per_row", "nnz_per_row"), [(1, 10), (5, 75), (20, 30)])
def test_rows_have_as_many_labels_and_features_as_asked(labels_per_row, nnz_per_row):
    X, Y = make_zipf_multilabel(4000, 3000, 500, labels_per_row=labels_per_row, nnz_per_row=nnz_per_row, random_state=1)
    assert Y.nnz / 4000 == pytest.approx(labels_per_row, rel=0.03)
    assert X.nnz / 4000 == pytest.approx(nnz_per_row, rel=0.08)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_label_frequencies_follow_zipfs_law(exponent):
    # One label per row so that no repeated draw is lost: log count = const − exponent · log rank.
    _, Y = make_zipf_multilabel(50_000, 50, 100, labels_per_row=1, nnz_per_row=2, exponent=exponent, random_state=2)
    counts = np.sort(np.bincount(Y.indices, minlength=100))[::-1]
    slope = np.polyfit(np.log(np.arange(1, 101)), np.log(counts), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.06)


def test_background_words_follow_zipfs_law():
    X, _ = make_zipf_multilabel(50_000, 100, 5, labels_per_row=1, nnz_per_row=1, signal=0.0, random_state=3)
    counts = np.sort(np.bincount(X.indices, minlength=100))[::-1]
    assert np.polyfit(np.log(np.arange(1, 101)), np.log(counts), 1)[0] == pytest.approx(-1.0, abs=0.06)


def test_the_seed_decides():
    first = make_zipf_multilabel(500, 200, 50, nnz_per_row=10, random_state=7)
    again = make_zipf_multilabel(500, 200, 50, nnz_per_row=10, random_state=np.int64(7))
    other = make_zipf_multilabel(500, 200, 50, nnz_per_row=10, random_state=8)
    assert fingerprint(*first) == fingerprint(*again)
    assert fingerprint(*first) != fingerprint(*other)
    from_generator = [
        make_hierarchical(300, 100, nnz_per_row=10, random_state=np.random.default_rng(5))[:2] for _ in range(2)
    ]
    assert fingerprint(*from_generator[0]) == fingerprint(*from_generator[1])


def test_values_are_scikit_learns_tf_idf():
    builder = _bags.CsrBuilder((2, 4), 8)
    builder.append(2, np.array([0, 2, 5, 6, 7]), np.array([3, 1, 1, 2, 5]))
    counts = builder.finish()
    theirs = TfidfTransformer(sublinear_tf=True).fit_transform(counts.copy())
    np.testing.assert_allclose(
        _bags.weigh_and_normalise(counts, counts.shape[0]).toarray(), theirs.toarray(), rtol=1e-6
    )


def test_multilabel_data_can_be_learnt():
    X, Y = make_zipf_multilabel(3000, 500, 20, labels_per_row=2, nnz_per_row=25, random_state=4)
    scores = np.empty((1000, 20))
    for label in range(20):
        target = Y[:, [label]].toarray().ravel()
        scores[:, label] = LinearSVC().fit(X[:2000], target[:2000]).decision_function(X[2000:])
    best = scores.argmax(axis=1)
    truth = Y[2000:].toarray()
    found = truth[np.arange(1000), best].mean()
    chance = truth.mean(axis=0).max()  # always the most frequent label
    assert found > 0.9 > chance + 0.2


def test_background_alone_teaches_nothing():
    X, Y = make_zipf_multilabel(3000, 200, 4, labels_per_row=1, nnz_per_row=25, exponent=0, signal=0, random_state=4)
    model = LinearSVC().fit(X[:2000], Y.indices[:2000])
    assert model.score(X[2000:], Y.indices[2000:]) < 0.32  # chance is 1/4


def test_the_tree_is_as_promised():
    _, y, parents = make_hierarchical(5000, 300, n_nodes=60, depth=3, nnz_per_row=10, random_state=0)
    assert set(parents) == {f"n{node}" for node in range(1, 60)}

    def depth_of(node):
        return 0 if node == "n0" else 1 + depth_of(parents[node])

    assert max(map(depth_of, parents)) == 3
    inner = set(parents.values())
    assert set(y) <= set(parents)
    assert np.isin(y, list(inner)).mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(("n_nodes", "depth"), [(2, 1), (5, 4), (6, 4), (1000, 1), (1000, 9), (1000, 500), (10_000, 4)])
def test_trees_of_every_shape_reach_their_depth(n_nodes, depth):
    X, y, parents = make_hierarchical(
        50, 40, n_nodes=n_nodes, depth=depth, nnz_per_row=5, inner_label_share=0, random_state=1
    )
    assert len(parents) == n_nodes - 1
    depths = {"n0": 0}
    for node in range(1, n_nodes):  # parents come before children
        depths[f"n{node}"] = depths[parents[f"n{node}"]] + 1
    assert max(depths.values()) == depth
    assert not set(y) & set(parents.values())
    np.testing.assert_allclose(row_norms(X), 1.0, rtol=1e-6)


def test_hierarchical_data_can_be_learnt_and_siblings_are_confused_first():
    X, y, parents = make_hierarchical(
        4000, 400, n_nodes=40, depth=2, nnz_per_row=25, inner_label_share=0, exponent=0.5, random_state=5
    )
    model = LinearSVC().fit(X[:3000], y[:3000])
    predicted = model.predict(X[3000:])
    wrong = predicted != y[3000:]
    assert wrong.mean() < 0.3
    # Confusions stay within the branch far more often than its share of nodes would suggest.
    same_branch = [parents[p] == parents[t] for p, t in zip(predicted[wrong], y[3000:][wrong], strict=True)]
    assert np.mean(same_branch) > 0.5


@pytest.mark.slow
def test_memory_is_that_of_the_result_and_a_block():
    tracemalloc.start()
    X, Y = make_zipf_multilabel(60_000, 20_000, 50_000, nnz_per_row=75, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = sum(m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in (X, Y))
    words_in_a_block = _bags.BLOCK_ROWS * 100
    # Spare room for repeated words, tables over labels and features, and about ten arrays of 8 bytes per word.
    assert peak < 1.6 * result + 50_000 * 10 * 8 + 80 * words_in_a_block


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples must be a positive integer; got 0"),
        ({"n_labels": 2.5}, "n_labels must be a positive integer"),
        ({"labels_per_row": 0.5}, "labels_per_row must be between 1 and n_labels=10"),
        ({"labels_per_row": 11}, "labels_per_row"),
        ({"nnz_per_row": 30}, "nnz_per_row must be between 1 and n_features=20"),
        ({"exponent": -1.0}, "exponent"),
        ({"signal": 1.5}, "signal must be between 0 and 1"),
        ({"random_state": "seed"}, "random_state"),
        ({"word_offset": -1.0}, "word_offset must be finite and nonnegative"),
        ({"n_topics": 0}, "n_topics must be a positive integer; got 0"),
    ],
)
def test_impossible_multilabel_data_is_refused(options, message):
    sizes = {"n_samples": 5, "n_features": 20, "n_labels": 10, "labels_per_row": 2, "nnz_per_row": 5}
    with pytest.raises(ValueError, match=message):
        make_zipf_multilabel(**(sizes | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_nodes": 3, "depth": 3}, "n_nodes must be more than depth=3"),
        ({"depth": 0}, "depth must be a positive integer"),
        ({"depth": 1}, "no inner nodes to label"),
        ({"inner_label_share": 1.5}, "inner_label_share must be between 0 and 1"),
    ],
)
def test_impossible_trees_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_hierarchical(**({"n_samples": 5, "n_features": 20, "nnz_per_row": 5} | options))


TOPICAL = {"labels_per_row": 4, "nnz_per_row": 15, "exponent": 0.5, "signal": 0.6, "word_offset": 100.0, "n_topics": 20}


def shares_of_common_labels(Y):
    """How often two labels are together in a row, over how often they would be if rows drew them independently.

    The mean over the 20 most frequent pairs of labels.
    """
    together = (Y.T @ Y).toarray() / Y.shape[0]
    share = together.diagonal().copy()
    np.fill_diagonal(together, 0)
    pairs = np.argsort(together, axis=None)[-40:]  # each pair occurs twice
    return np.mean(together.ravel()[pairs] / np.outer(share, share).ravel()[pairs])


def test_labels_of_a_topic_occur_together():
    sizes = {"n_samples": 20_000, "n_features": 3000, "n_labels": 400}
    Y = make_zipf_multilabel(**sizes, **TOPICAL, random_state=0)[1]
    plain = make_zipf_multilabel(**sizes, **(TOPICAL | {"n_topics": None}), random_state=0)[1]
    assert shares_of_common_labels(plain) < 1.5
    assert shares_of_common_labels(Y) > 8


def test_labels_of_a_topic_share_words():
    X, Y = make_zipf_multilabel(20_000, 3000, 400, **TOPICAL, random_state=0)
    together = np.triu((Y.T @ Y).toarray(), 1)
    order = np.argsort(together, axis=None)

    def likeness(rank):
        """Cosine of the mean rows of two labels, over rows that have only one of the two."""
        pair = Y[:, list(np.unravel_index(order[rank], together.shape))]
        single = np.diff(pair.indptr) == 1
        means = pair[single].T @ X[single].toarray()
        return means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])

    assert likeness(-1) > likeness(-20_000) + 0.2  # of one topic, and of two


@pytest.mark.parametrize(("labels_per_row", "nnz_per_row"), [(1, 10), (5, 75), (20, 30)])
def test_topical_rows_have_as_many_labels_and_features_as_asked(labels_per_row, nnz_per_row):
    options = TOPICAL | {"labels_per_row": labels_per_row, "nnz_per_row": nnz_per_row}
    X, Y = make_zipf_multilabel(20_000, 3000, 500, **options, random_state=1)
    assert X.has_canonical_format
    assert Y.has_canonical_format
    assert Y.nnz / 20_000 == pytest.approx(labels_per_row, rel=0.03)
    assert X.nnz / 20_000 == pytest.approx(nnz_per_row, rel=0.05)
    assert np.diff(Y.indptr).min() >= 1
    np.testing.assert_allclose(row_norms(X), 1.0, rtol=1e-6)


def test_topics_do_not_change_the_laws_of_labels_and_words():
    # As without topics: one label per row, and one word, which is now a label's, a topic's or the background's.
    options = {"labels_per_row": 1, "nnz_per_row": 1, "n_topics": 500, "features_per_label": 20}
    X, Y = make_zipf_multilabel(50_000, 100, 2000, exponent=0.8, word_exponent=1.2, **options, random_state=2)
    for matrix, exponent, n in ((Y, 0.8, 100), (X, 1.2, 50)):
        counts = np.sort(np.bincount(matrix.indices, minlength=n))[::-1][:n]
        slope = np.polyfit(np.log(np.arange(1, n + 1)), np.log(counts), 1)[0]
        assert slope == pytest.approx(-exponent, abs=0.1)


def test_an_offset_flattens_the_head_of_the_law():
    options = {"labels_per_row": 1, "nnz_per_row": 1, "signal": 0.0, "random_state": 3}
    X, _ = make_zipf_multilabel(50_000, 100, 5, word_offset=30, **options)
    counts = np.sort(np.bincount(X.indices, minlength=100))[::-1]
    assert counts[0] / counts[99] == pytest.approx(130 / 31, rel=0.2)


def test_topical_data_repeats_with_its_seed():
    first, again, other = (
        make_zipf_multilabel(500, 200, 50, **TOPICAL, random_state=seed) for seed in (7, np.int64(7), 8)
    )
    assert fingerprint(*first) == fingerprint(*again)
    assert fingerprint(*first) != fingerprint(*other)


@pytest.mark.parametrize("n_topics", [None, 20])
def test_rows_written_block_by_block_are_the_same(tmp_path, n_topics):
    options = TOPICAL | {"n_topics": n_topics, "random_state": 0}
    sizes = (_bags.BLOCK_ROWS + 100, 400, 300)
    whole = make_zipf_multilabel(*sizes, **options)
    mapped = make_zipf_multilabel(*sizes, **options, folder=tmp_path / "blocks")
    assert fingerprint(*mapped) == fingerprint(*whole)
    write_store(tmp_path / "whole", *whole)
    for file in (tmp_path / "whole").iterdir():
        assert (tmp_path / "blocks" / file.name).read_bytes() == file.read_bytes()
    open_store(tmp_path / "blocks", verify=True)
    with pytest.raises(FileExistsError):
        make_zipf_multilabel(*sizes, **options, folder=tmp_path / "blocks")


@pytest.mark.slow
def test_memory_of_a_store_is_that_of_a_block(tmp_path):
    make_zipf_multilabel(10, 20, 10, **(TOPICAL | {"nnz_per_row": 5}), folder=tmp_path / "warm up")
    tracemalloc.start()
    X, Y = make_zipf_multilabel(60_000, 5000, 1000, **(TOPICAL | {"nnz_per_row": 60}), folder=tmp_path / "store")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    words_in_a_block = _bags.BLOCK_ROWS * 120
    assert X.nnz > 3 * words_in_a_block
    assert Y.shape == (60_000, 1000)
    # The lengths of all rows, topics, and about a dozen arrays of 8 bytes per word of a block; a seventh of what all
    # rows at once would take.
    assert peak < 4 * 8 * 60_000 + 8 * 20 * _bags.TOPIC_WORDS + 120 * words_in_a_block


def test_data_of_existing_calls_has_not_changed():
    """The benchmarks compare versions of the solvers on the same rows; these were drawn before there were topics."""
    X, Y = make_zipf_multilabel(500, 200, 50, nnz_per_row=10, random_state=7)
    integers = [hashlib.sha256(part.astype("<i4")).hexdigest()[:16] for m in (X, Y) for part in (m.indices, m.indptr)]
    assert integers == ["15d8bcb3c8bc8550", "8ad3bd733b67c842", "a70d73006b3c23a1", "59bc17ff94d2813f"]
    assert float(X.data[:100].astype(np.float64).sum()) == pytest.approx(30.060436487, rel=1e-6)
