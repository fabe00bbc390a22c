"""Probabilities of calibrated models: their laws, the same numbers in any batch, and storage in a model folder."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TextPipeline,
    TopKClassifier,
    load,
    save,
)
from widemargin.metrics import expected_calibration_error

EDGES = [("0", "a"), ("1", "a"), ("a", "top"), ("2", "b"), ("3", "b"), ("b", "top"), ("4", "top")]
TREE = Taxonomy.from_edges(EDGES)
N = 120


def one_label(seed=0, n=N):
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 5
    X = np.hstack([np.eye(5)[classes] + 0.6 * rng.normal(size=(n, 5)), rng.normal(size=(n, 3))])
    return X, classes.astype(str)


def many_labels(seed=0, n=250, n_labels=90):
    rng = np.random.default_rng(seed)
    Y = sp.csr_array(rng.random((n, n_labels)) < 0.05, dtype=np.int64)
    X = Y @ np.random.default_rng(99).normal(size=(n_labels, 30)) + 1.0 * rng.normal(size=(n, 30))
    return sp.csr_array(X), Y


def tree_model(method="orthogonal", **options):
    return HierarchicalClassifier(TREE, method=method, random_state=0, **options)


MODELS = {
    "one-vs-all": OneVsAllClassifier(),
    "top-k": TopKClassifier(k=2, random_state=0),
    "top-k, kernel": TopKClassifier(kernel="rbf", random_state=0),
    "output code": OutputCodeClassifier(random_state=0),
    "code of unit rows": OutputCodeClassifier(OneVsAllClassifier(normalize=True), random_state=0),
    "learned code": OutputCodeClassifier(learn="l1", random_state=0),
    "kernel code": OutputCodeClassifier(learn="l2", kernel="rbf", random_state=0),
    "logistic decoding": OutputCodeClassifier(decoding="logistic", random_state=0),
    "other classifier": OutputCodeClassifier(LinearSVC(), random_state=0),
    "orthogonal": tree_model(),
    "tree, kernel": tree_model(kernel="rbf"),
    "tree-loss": tree_model("tree-loss"),
    "flat": tree_model("flat"),
}


def in_batches(function, X, size):
    return np.concatenate([function(X[i : i + size]) for i in range(0, X.shape[0], size)])


@pytest.fixture(scope="module", params=[(name, method) for name in MODELS for method in ("sigmoid", "isotonic")])
def calibrated(request):
    name, method = request.param
    X, y = one_label()
    new = X[:15] / np.where(np.arange(15) % 2, np.linalg.norm(X[:15], axis=1), 1.0)[:, None]  # every other of length 1
    return clone(MODELS[name]).fit(X, y).calibrate(*one_label(seed=1), method=method), new


def test_probabilities_of_classes_add_up_to_one(calibrated):
    model, X = calibrated
    found = model.predict_proba(X)
    assert found.shape == (len(X), 5)
    assert found.min() >= 0
    assert found.max() <= 1
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 7])
def test_a_row_gets_the_same_probability_in_any_batch(calibrated, size):
    model, X = calibrated
    np.testing.assert_array_equal(in_batches(model.predict_proba, X, size), model.predict_proba(X))


def test_blocks_by_memory_do_not_change_probabilities(calibrated):
    model, X = calibrated
    whole, limit = model.predict_proba(X), model.memory_limit_mb
    try:
        model.memory_limit_mb = 0.004
        np.testing.assert_array_equal(model.predict_proba(X), whole)
    finally:
        model.memory_limit_mb = limit


def test_label_proba_picks_from_predict_proba(calibrated):
    model, X = calibrated
    top = model.predict_topk(X, k=7)
    whole = np.take_along_axis(model.predict_proba(X), np.maximum(top.indices, 0), axis=1)
    np.testing.assert_array_equal(model.label_proba(X, top.indices), np.where(top.indices >= 0, whole, 0.0))


def test_saved_models_keep_their_probabilities(calibrated, tmp_path):
    model, X = calibrated
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))


def test_there_are_no_probabilities_before_calibration_nor_after_another_fit():
    X, y = one_label()
    model = OneVsAllClassifier().fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        model.predict_proba(X)
    assert hasattr(model.calibrate(X, y), "predict_proba")
    assert not hasattr(model.fit(X, y), "predict_proba")
    assert not hasattr(clone(model), "calibration_")


def test_two_classes_on_rows_kept_apart_are_calibrated_as_by_scikit_learn():
    X, y = one_label()
    two, X_new = np.where(y < "2", "no", "yes"), one_label(seed=1)[0]
    model = OneVsAllClassifier().fit(X, two)
    theirs = CalibratedClassifierCV(FrozenEstimator(model), method="sigmoid", cv=2, ensemble=False).fit(X_new, two)
    mine = model.calibrate(X_new, two).predict_proba(X)
    np.testing.assert_allclose(mine, theirs.predict_proba(X), atol=1e-6)


def test_folds_of_two_classes_are_calibrated_as_by_scikit_learn():
    X, y = one_label()
    two = np.where(y < "2", "no", "yes")
    splits = list(KFold(3).split(X))
    theirs = CalibratedClassifierCV(OneVsAllClassifier(), method="sigmoid", cv=splits, ensemble=False).fit(X, two)
    mine = OneVsAllClassifier().fit(X, two).calibrate(X, two, cv=splits).predict_proba(X)
    np.testing.assert_allclose(mine, theirs.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("name", ["one-vs-all", "top-k", "output code", "orthogonal", "flat"])
def test_calibration_by_folds_leaves_the_model_and_has_a_small_log_loss(name):
    X, y = one_label(n=400)
    model = clone(MODELS[name]).fit(X, y)
    before = model.decision_function(X)
    X_new, y_new = one_label(seed=2, n=400)
    found = model.calibrate(X, y, cv=3).predict_proba(X_new)
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert log_loss(y_new, found, labels=model.classes_) < 1.0  # without any knowledge it is log 5 = 1.61


def test_a_sigmoid_keeps_the_best_class():
    X, y = one_label()
    for name in ("one-vs-all", "top-k", "output code", "flat"):
        model = clone(MODELS[name]).fit(X, y).calibrate(X, y)
        np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("method", ["orthogonal", "per-node", "similarity", "tree-loss", "flat"])
@pytest.mark.parametrize("shape", ["sigmoid", "isotonic"])
def test_probabilities_of_children_add_up_to_their_parents(method, shape):
    X, y = one_label()
    model = tree_model(method).fit(X, y).calibrate(X, y, method=shape)
    nodes = model.predict_node_proba(X)
    probability = np.column_stack([np.ones(len(X)), nodes])
    tree = model.taxonomy_
    for node in np.flatnonzero(~tree.is_leaf):
        children = np.flatnonzero(tree.parent == node)
        np.testing.assert_allclose(probability[:, children].sum(axis=1), probability[:, node], atol=1e-12)
    np.testing.assert_array_equal(in_batches(model.predict_node_proba, X, 7), nodes)
    leaves = [tree.index(name) - 1 for name in model.classes_.tolist()]
    np.testing.assert_allclose(model.predict_proba(X), nodes[:, leaves], atol=1e-15)


def test_labels_on_inner_nodes_have_the_probability_of_all_below():
    X, y = one_label()
    y[::15] = "a"
    model = tree_model().fit(X, y).calibrate(X, y, cv=3)
    found = dict(zip(model.classes_.tolist(), model.predict_proba(X).T, strict=True))
    np.testing.assert_allclose(found["a"], found["0"] + found["1"], atol=1e-12)
    stopping = tree_model(stop=True).fit(X, y).calibrate(X, y, cv=3)
    np.testing.assert_allclose(stopping.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)


def test_several_labels_a_row_on_a_tree():
    X, y = one_label()
    sets = [[label] if i % 4 else [label, "4"] for i, label in enumerate(y)]
    model = tree_model().fit(X, sets).calibrate(X, sets, cv=2)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_many_labels(method, tmp_path):
    (X, Y), (X_new, Y_new) = many_labels(), many_labels(seed=1, n=400)
    model = OneVsAllClassifier(C=0.1).fit(X, Y)
    plain = expected_calibration_error(Y_new.toarray(), expit(model.decision_function(X_new)))
    found = model.calibrate(X, Y, method=method, cv=3).predict_proba(X_new)
    assert found.min() >= 0
    assert found.max() <= 1
    assert expected_calibration_error(Y_new.toarray(), found) < min(0.01, plain / 5)
    for size in (1, 7):
        np.testing.assert_array_equal(in_batches(model.predict_proba, X_new[:40], size), found[:40])
    np.testing.assert_array_equal(model.predict(X_new).toarray(), found > 0.5)
    top = model.predict_topk(X_new, 3)
    np.testing.assert_array_equal(model.label_proba(X_new, top.indices), np.take_along_axis(found, top.indices, axis=1))
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X_new), found)


@pytest.mark.slow
def test_a_sample_of_labels_gives_nearly_the_map_of_all_pairs():
    (X, Y), (X_new, Y_new) = many_labels(), many_labels(seed=1, n=2000)
    model = OneVsAllClassifier(C=0.1).fit(X, Y)
    scores, truth = model.decision_function(X_new).ravel(), Y_new.toarray().ravel() > 0
    everything = LinearMap.fit(scores, truth)
    shared = model.calibrator.evidence(model, X_new, Y_new, np.ones(2000))
    sampled = LinearMap.fit(shared.scores, shared.truth, shared.weights)
    assert shared.weights.sum() == pytest.approx(len(scores), rel=0.02)
    np.testing.assert_allclose(sampled, everything, rtol=0.05)


class LinearMap:
    """Slope and offset of scikit-learn's logistic regression with one feature and almost no penalty."""

    @staticmethod
    def fit(scores, truth, weights=None):
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=1e8, tol=1e-8).fit(scores[:, None], truth, weights)
        return model.coef_[0, 0], model.intercept_[0]


def test_label_sets_and_dense_indicators_are_taken():
    X, Y = many_labels(n=100, n_labels=6)
    sets = [set(row.nonzero()[0].tolist()) for row in Y.toarray()]
    by_sets = OneVsAllClassifier().fit(X, sets).calibrate(X, sets, cv=2)
    by_indicator = OneVsAllClassifier().fit(X, Y.toarray()).calibrate(X, Y.toarray(), cv=2)
    np.testing.assert_allclose(by_sets.predict_proba(X), by_indicator.predict_proba(X), atol=1e-9)


def test_weights_are_repetitions():
    X, y = one_label()
    weights = np.arange(N) % 3
    model = OneVsAllClassifier().fit(X, y)
    repeated = model.calibrate(np.repeat(X, weights, axis=0), np.repeat(y, weights)).predict_proba(X)
    np.testing.assert_allclose(model.calibrate(X, y, sample_weight=weights).predict_proba(X), repeated, atol=1e-9)


def test_classes_that_a_fold_lacks_are_left_out_there():
    X, y = one_label()
    y[:40][y[:40] == "4"] = "3"
    y = np.where((np.arange(N) >= 40) & (y == "4") & (np.arange(N) != 44), "3", y)
    for name in ("one-vs-all", "orthogonal"):
        model = clone(MODELS[name]).fit(X, y).calibrate(X, y, cv=KFold(3))
        assert model.predict_proba(X).shape == (N, 5)


def test_wrong_arguments_are_named():
    X, y = one_label()
    model = OneVsAllClassifier().fit(X, y)
    with pytest.raises(ValueError, match="method must be one of 'sigmoid', 'isotonic'"):
        model.calibrate(X, y, method="platt")
    with pytest.raises(ValueError, match="nonsense"):
        model.calibrate(X, np.full(N, "nonsense"))
    model.calibrate(X, y)
    with pytest.raises(ValueError, match="one row per row of X"):
        model.label_proba(X, [[0]])
    with pytest.raises(ValueError, match="between −1 and 4"):
        model.label_proba(X[:1], [[5]])
    with pytest.raises(MemoryError, match="predict_proba would create"):
        model.set_params(memory_limit_mb=1e-3).predict_proba(X)


CALIBRATED = {"one-vs-all": OneVsAllClassifier(), "top-k": TopKClassifier(random_state=0), "tree": tree_model()}


@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize("name", CALIBRATED)
def test_labels_that_the_model_does_not_know_are_left_out(name, cv):
    X, y = one_label()
    model = clone(CALIBRATED[name]).fit(X, y)
    unknown = y.copy().astype(object)
    unknown[::5] = "unknown"
    assert model.score(X, unknown) <= 0.8  # no error either
    if cv is None:
        known = np.arange(N) % 5 != 0
        expected = model.calibrate(X[known], y[known]).predict_proba(X)
        np.testing.assert_allclose(model.calibrate(X, unknown).predict_proba(X), expected, atol=1e-12)
    else:
        assert model.calibrate(X, unknown, cv=cv).predict_proba(X).shape == (N, 5)


def test_label_sets_with_unknown_labels_calibrate_as_without_them():
    X, Y = many_labels(n=100, n_labels=6)
    sets = [set(row.nonzero()[0].tolist()) for row in Y.toarray()]
    model = OneVsAllClassifier().fit(X, sets)
    expected = model.calibrate(X, sets).predict_proba(X)
    more = [labels | {99} if row % 3 else labels for row, labels in enumerate(sets)]
    np.testing.assert_array_equal(model.calibrate(X, more).predict_proba(X), expected)
    y = one_label()[1]
    sets = [[label] if i % 4 else [label, "4"] for i, label in enumerate(y)]
    X = one_label()[0]
    tree = tree_model().fit(X, sets)
    expected = tree.calibrate(X, sets).predict_proba(X)
    more = [[*labels, "unknown"] if row % 3 else labels for row, labels in enumerate(sets)]
    np.testing.assert_allclose(tree.calibrate(X, more).predict_proba(X), expected, atol=1e-12)


@pytest.mark.parametrize("name", CALIBRATED)
def test_one_row_is_not_enough_to_calibrate(name):
    X, y = one_label()
    model = clone(CALIBRATED[name]).fit(X, y)
    with pytest.raises(ValueError, match=r"at least 2 rows, preferably a few hundred; got 1;.*cv=3"):
        model.calibrate(X[:1], y[:1])
    with pytest.raises(ValueError, match="got 1 with a label known to the model, out of 3"):
        model.calibrate(X[:3], [y[0], "unknown", "unknown"])
    assert not hasattr(model, "predict_proba")


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_the_error_without_probabilities_starts_with_the_way_to_them(loss):
    X, y = one_label()
    model = OneVsAllClassifier(loss=loss).fit(X, y)
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(X)
    message = str(caught.value)
    assert message.startswith("predict_proba requires a calibrated model")
    assert "calibrate(X, y) with rows that were not used for training" in message
    assert "calibrate(X, y, cv=3) with the training rows" in message
    assert ("loss='logistic'" in message) == (loss == "logistic")
    assert caught.value.__cause__ is None
    with pytest.raises(AttributeError, match=r"^label_proba requires"):
        model.label_proba(X, [[0]])
    texts = ["a b", "a c", "d e", "d f"] * 3
    steps = [("tfidf", TfidfVectorizer(token_pattern="[a-z]")), ("classifier", OneVsAllClassifier(loss=loss))]
    pipeline = TextPipeline(steps).fit(texts, ["x", "x", "y", "y"] * 3)
    assert not hasattr(pipeline, "predict_proba")
    with pytest.raises(AttributeError, match=r"^predict_proba requires"):
        pipeline.predict_proba(texts)
    found = pipeline.calibrate(texts, ["x", "x", "y", "z"] * 3).predict_proba(texts)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
