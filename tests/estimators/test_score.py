"""`score` is exactly `accuracy_score` of the predictions, for every estimator, including trees."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TextPipeline,
    TopKClassifier,
    datasets,
    load,
    metrics,
    rivals,
    save,
)

TREE = Taxonomy.from_nested({"all": {"a": ["a1", "a2"], "b": ["b1", "b2"], "c": None}})
NAMES = np.array(["a1", "a2", "b1", "b2", "c", "a"])
N = 120
FLAT = {
    "one-vs-all": OneVsAllClassifier(),
    "one-vs-all, logistic": OneVsAllClassifier(loss="logistic"),
    "top-k": TopKClassifier(k=2, random_state=0),
    "multiclass": TopKClassifier(random_state=0),
    "kernel": TopKClassifier(kernel="rbf", random_state=0),
    "code": OutputCodeClassifier(random_state=0),
    "learned code": OutputCodeClassifier(learn="l2", random_state=0),
    "hamming": OutputCodeClassifier(decoding="hamming", random_state=0),
    "code of others": OutputCodeClassifier(LogisticRegression(), random_state=0),
    "top-push": rivals.TopPush(),
    "recall": rivals.RecallAtK(k=2),
    "wsabie": rivals.Wsabie(max_iter=3, random_state=0),
    "paths": HierarchicalClassifier(random_state=0),
}
ON_TREE = {
    f"{method}, {decision}, stop={stop}": HierarchicalClassifier(
        TREE, method=method, decision=decision, stop=stop, random_state=0, **options
    )
    for method, options in (
        ("orthogonal", {}),
        ("similarity", {}),
        ("per-node", {"k": 2}),
        ("tree-loss", {"outputs": "all"}),
        ("flat", {"outputs": "all"}),
    )
    for decision in (("greedy", "beam", "flat") if method in ("orthogonal", "per-node") else ("auto",))
    for stop in ((False, True) if method not in ("tree-loss", "flat") else (False,))
}


@pytest.fixture(scope="module")
def data():
    """Rows of six labels, one of them an inner node of the tree."""
    rng = np.random.default_rng(0)
    classes = np.arange(N) % 6
    return np.eye(6)[classes] + 0.7 * rng.normal(size=(N, 6)), NAMES[classes]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [*FLAT, *ON_TREE])
def test_score_is_the_accuracy_of_the_predictions(data, name, tmp_path):
    X, y = data
    model = (FLAT | ON_TREE)[name].fit(X, y)
    predicted = model.predict(X)
    weights = np.arange(N) % 4
    assert model.score(X, y) == pytest.approx(accuracy_score(y, predicted), abs=1e-15)
    assert model.score(X, y, weights) == pytest.approx(accuracy_score(y, predicted, sample_weight=weights))
    unknown = np.where(np.arange(N) % 3, y, "other")
    assert model.score(X, unknown) == pytest.approx(accuracy_score(unknown, predicted), abs=1e-15)
    assert 0 < model.score(X, y) < 1
    if name not in ("code of others", "top-push", "recall", "wsabie"):  # these cannot be saved
        save(model, tmp_path / "model")
        assert load(tmp_path / "model").score(X, y) == model.score(X, y)


@pytest.mark.parametrize("name", [name for name in FLAT if name != "paths"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_classes(data, name):
    X, y = data
    y = np.isin(y, ["a1", "a2"]).astype(int)
    model = clone(FLAT[name])
    model = (model.set_params(k=1) if "k" in model.get_params() else model).fit(X, y)
    assert model.score(X, y) == pytest.approx(accuracy_score(y, model.predict(X)), abs=1e-15)


TEXTS = ["fresh bread", "a cake", "cake and bread", "an engine", "old engine and tyre", "tyre of bread"] * 3
FIRST = ["food", "food", "food", "cars", "cars", "food"] * 3


@pytest.mark.parametrize("pipeline", [Pipeline, TextPipeline])
@pytest.mark.parametrize(
    "classifier",
    [OneVsAllClassifier(), TopKClassifier(random_state=0), HierarchicalClassifier(stop=True, random_state=0)],
)
def test_models_of_text(pipeline, classifier):
    labels = FIRST
    if isinstance(classifier, HierarchicalClassifier):
        labels = [f"things/{label}" if i % 4 else "things" for i, label in enumerate(FIRST)]
    model = pipeline([("tfidf", TfidfVectorizer()), ("classifier", classifier)]).fit(TEXTS, labels)
    assert model.score(TEXTS, labels) == pytest.approx(accuracy_score(labels, model.predict(TEXTS)))


def test_several_labels_per_row_are_right_as_whole_sets():
    sets = [{"a", "b"}, {"b"}, set(), {"a"}] * 10
    rng = np.random.default_rng(0)
    binary = MultiLabelBinarizer().fit_transform(sets)
    X = binary + 0.4 * rng.normal(size=binary.shape)
    model = OneVsAllClassifier().fit(X, sets)
    assert model.score(X, sets) == pytest.approx(accuracy_score(binary, model.predict(X).toarray()))
    assert model.predict_sets(X) == [
        set(labels) for labels in MultiLabelBinarizer().fit(sets).inverse_transform(model.predict(X))
    ]
    assert model.score(X, model.predict_sets(X)) == 1.0


def test_predict_sets_of_one_label_per_row_and_of_numbered_columns(data):
    X, y = data
    model = OneVsAllClassifier().fit(X, y)
    assert model.predict_sets(X[:2]) == [{label} for label in model.predict(X[:2])]
    Y = np.eye(6, dtype=int)[np.arange(N) % 6]
    numbered = OneVsAllClassifier().fit(X, Y)
    expected = [set(np.flatnonzero(row).tolist()) for row in numbered.predict(X)]
    assert numbered.predict_sets(X) == expected
    named = numbered.set_label_names(NAMES.tolist())
    assert named.predict_sets(X) == [{NAMES[label] for label in labels} for labels in expected]


@pytest.mark.slow
def test_the_figures_of_the_animals():
    """Per-node and one-vs-all at C = 1, measured by independent code."""
    animals = datasets.load_wordnet_animals()
    held_out, tree = (animals.X_test, animals.y_test), animals.taxonomy
    per_node = HierarchicalClassifier(tree, method="per-node", normalize=True, random_state=0)
    for model, expected in (
        (per_node, (0.344, 0.7076, 0.758, 0.778)),
        (OneVsAllClassifier(normalize=True), (0.567, 0.6618, 0.819, 0.673)),
    ):
        predicted = model.fit(animals.X_train, animals.y_train).predict(animals.X_test)
        figures = [
            model.score(*held_out),
            1 - metrics.hierarchical_zero_one_error(animals.y_test, predicted, tree),
            metrics.hierarchical_f1(animals.y_test, predicted, tree),
            metrics.tree_induced_loss(animals.y_test, predicted, tree),
        ]
        np.testing.assert_allclose(figures, expected, atol=0.003)
    assert per_node.score(*held_out, at_or_below=True) == pytest.approx(0.7076, abs=0.003)
