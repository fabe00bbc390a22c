"""The embedded data sets match their docstrings, are small, and contain no sentences."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import resources

import networkx as nx
import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC

from widemargin.datasets import LabelledData, load_debian_tags, load_wordnet_animals

FILES = resources.files("widemargin.datasets") / "files"
MAX_BYTES = 1_000_000
LOADERS = {"debian_tags": load_debian_tags, "wordnet_animals": load_wordnet_animals}

both_sets = pytest.mark.parametrize("name", LOADERS)


@pytest.fixture(scope="module")
def sets():
    return {name: load() for name, load in LOADERS.items()}


def positives(y, label_names):
    """Number of rows per label."""
    if isinstance(y, np.ndarray):
        return np.array([np.sum(y == name) for name in label_names])
    return y.sum(axis=0)


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_features", "n_labels"),
    [("debian_tags", 5999, 2000, 7892, 276), ("wordnet_animals", 2918, 896, 2076, 160)],
)
def test_shapes_are_the_documented_ones(sets, name, n_train, n_test, n_features, n_labels):
    data = sets[name]
    assert isinstance(data, LabelledData)
    assert data.X_train.shape == (n_train, n_features)
    assert data.X_test.shape == (n_test, n_features)
    assert data.y_train.shape[0] == n_train
    assert data.y_test.shape[0] == n_test
    assert len(data.label_names) == n_labels
    assert len(data.feature_names) == n_features


@both_sets
def test_rows_are_canonical_float32_of_norm_one(sets, name):
    for X in (sets[name].X_train, sets[name].X_test):
        assert X.format == "csr"
        assert X.dtype == np.float32
        assert X.indices.dtype == X.indptr.dtype == np.int32
        assert X.has_canonical_format
        assert X.data.min() > 0
        np.testing.assert_allclose(X.power(2).sum(axis=1), 1.0, rtol=1e-6)


@both_sets
def test_tfidf_equals_scikit_learn_fitted_on_the_training_counts(sets, name):
    counts = LOADERS[name](weighting="counts")
    oracle = TfidfTransformer(sublinear_tf=True).fit(counts.X_train.astype(np.float64))
    for raw, X in [(counts.X_train, sets[name].X_train), (counts.X_test, sets[name].X_test)]:
        assert np.array_equal(raw.data, np.round(raw.data))
        assert raw.data.min() >= 1
        expected = oracle.transform(raw.astype(np.float64))
        np.testing.assert_array_equal(X.indices, expected.indices)
        np.testing.assert_array_equal(X.indptr, expected.indptr)
        np.testing.assert_allclose(X.data, expected.data, rtol=1e-6)


@both_sets
def test_loads_are_equal_and_independent(sets, name):
    again = LOADERS[name]()
    assert (again.X_train != sets[name].X_train).nnz == 0
    again.X_train.data[:] = 0.0
    assert LOADERS[name]().X_train.data.all()


@both_sets
def test_an_unknown_weighting_is_named(name):
    with pytest.raises(ValueError, match="weighting must be 'tfidf' or 'counts'; got 'bm25'"):
        LOADERS[name](weighting="bm25")


@both_sets
def test_features_are_single_lower_case_words(sets, name):
    features = sets[name].feature_names
    assert list(features) == sorted(set(features))
    assert all(re.fullmatch(r"[a-z0-9+#]{2,}", word) for word in features)
    assert not {"the", "of", "and"} & set(features)


@both_sets
def test_no_text_but_words_and_label_names_is_stored(sets, name):
    data = sets[name]
    with (FILES / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = dict(archive)
    text = {key for key, array in arrays.items() if array.dtype == np.uint8 and key != "X_counts"}
    assert text == {"features", "nodes"}
    assert all(array.dtype.kind in "iu" for array in arrays.values())
    known = set(data.label_names) | {parent for _, parent in data.edges}
    assert set(arrays["nodes"].tobytes().decode().split("\n")) == known
    assert not any(re.search(r"\s", node) for node in known)


@both_sets
def test_files_of_a_set_have_at_most_a_megabyte_and_a_licence(name):
    of_set = [path for path in FILES.iterdir() if path.name.startswith(name)]
    assert sorted(path.name for path in of_set) == [f"{name}.LICENSE", f"{name}.npz"]
    assert sum(len(path.read_bytes()) for path in of_set) <= MAX_BYTES


def test_licences_name_their_sources():
    wordnet = (FILES / "wordnet_animals.LICENSE").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in wordnet
    assert "Permission to use, copy, modify and distribute this software" in wordnet
    assert wordnet.rstrip().endswith("Princeton University and LICENSEE agrees to preserve same.")
    assert "Debian" in (FILES / "debian_tags.LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "min_train", "min_test"), [("debian_tags", 15, 3), ("wordnet_animals", 9, 1)])
def test_every_label_has_positives_in_both_parts(sets, name, min_train, min_test):
    data = sets[name]
    assert list(data.label_names) == sorted(set(data.label_names))
    assert positives(data.y_train, data.label_names).min() >= min_train
    assert positives(data.y_test, data.label_names).min() >= min_test


def test_debian_targets_are_indicators_with_several_labels_a_row(sets):
    data = sets["debian_tags"]
    for y in (data.y_train, data.y_test):
        assert y.has_canonical_format
        assert set(y.data) == {1}
        assert np.diff(y.indptr).min() >= 1
    assert data.y_train.nnz / data.y_train.shape[0] == pytest.approx(6.6, abs=0.05)


def test_debian_targets_pass_scikit_learn_unchanged(sets):
    y = sets["debian_tags"].y_train
    assert (LabelBinarizer(sparse_output=True).fit_transform(y) != y).nnz == 0


def test_debian_tree_is_facet_above_tag(sets):
    data = sets["debian_tags"]
    assert sorted(data.edges) == sorted((tag, tag.split("::")[0]) for tag in data.label_names)
    assert not {facet for _, facet in data.edges} & set(data.label_names)


def test_wordnet_tree_has_one_root_and_a_label_on_every_node(sets):
    data = sets["wordnet_animals"]
    tree = nx.DiGraph((parent, child) for child, parent in data.edges)
    assert nx.is_arborescence(tree)
    assert [node for node in tree if tree.in_degree(node) == 0] == ["animal"]
    assert set(tree) == set(data.label_names) == set(data.y_train) == set(data.y_test)
    inner = {node for node in tree if tree.out_degree(node)}
    assert len(inner) > 50
    assert np.mean([label in inner for label in data.y_train]) > 0.4


def test_wordnet_tree_agrees_with_zoology(sets):
    tree = nx.DiGraph((parent, child) for child, parent in sets["wordnet_animals"].edges)
    assert {"canine", "carnivore", "placental", "vertebrate", "animal"} <= nx.ancestors(tree, "dog")
    assert "invertebrate" in nx.ancestors(tree, "butterfly")
    assert "bird" in nx.ancestors(tree, "hawk")
    assert "fish" not in nx.ancestors(tree, "whale")


def near_copies(test, train, jaccard):
    """Number of test rows whose word set has at least this similarity to that of a training row."""
    test, train = (X.astype(bool).astype(np.int32) for X in (test, train))
    shared = (test @ train.T).tocoo()
    union = test.sum(axis=1)[shared.row] + train.sum(axis=1)[shared.col] - shared.data
    return len(set(shared.row[shared.data >= jaccard * union]))


def test_few_rows_have_a_copy_across_the_split(sets):
    # No two definitions, and no descriptions of two groups, are copies; a few become equal without their rare words.
    wordnet, debian = sets["wordnet_animals"], sets["debian_tags"]
    assert near_copies(wordnet.X_test, wordnet.X_train, 1.0) < 0.03 * wordnet.X_test.shape[0]
    assert near_copies(debian.X_test[:500], debian.X_train, 0.8) < 0.01 * 500


@pytest.mark.slow
def test_wordnet_is_learnable_by_a_linear_classifier(sets):
    data = sets["wordnet_animals"]
    accuracy = LinearSVC(C=1, random_state=0).fit(data.X_train, data.y_train).score(data.X_test, data.y_test)
    assert accuracy > 0.5


def test_debian_is_learnable_by_a_linear_classifier(sets):
    data = sets["debian_tags"]
    column = data.label_names.index("use::gameplaying")
    truth = data.y_test[:, [column]].toarray().ravel() == 1
    classifier = LinearSVC(C=1, random_state=0).fit(data.X_train, data.y_train[:, [column]].toarray().ravel())
    predicted = classifier.predict(data.X_test) == 1
    assert (truth & predicted).sum() / predicted.sum() > 0.8
    assert (truth & predicted).sum() / truth.sum() > 0.7


@pytest.mark.slow
def test_loading_needs_no_scikit_learn():
    program = (
        "import sys; from widemargin.datasets import load_debian_tags; load_debian_tags();"
        "raise SystemExit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
