"""The metrics accept the labels of `fit`, `predict` and `predict_topk`; ties beyond the end of lists count."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, precision_recall_fscore_support
from sklearn.preprocessing import MultiLabelBinarizer

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TopKClassifier,
    metrics,
    rivals,
)
from widemargin.displays import ReliabilityDisplay, TopKAccuracyDisplay
from widemargin.metrics import lists as _lists

NAMES = np.array(["ash", "beech", "cedar", "elm", "fir"])
SETS = [{"ash", "elm"}, {"fir"}, set(), {"beech", "ash", "larch"}, {"elm"}]
"""True labels; the model below does not know "larch"."""


@pytest.fixture(scope="module")
def rows():
    """Few different rows so that some labels get equal scores."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 5, 120)
    return np.eye(5)[classes] * (rng.random((120, 5)) < 0.6), NAMES[classes]


MODELS = {
    "one-vs-all": OneVsAllClassifier(fit_intercept=False),
    "zero": TopKClassifier(C=1e-12, fit_intercept=False, random_state=0),
    "top-k": TopKClassifier(k=2, fit_intercept=False, random_state=0),
    "kernel": TopKClassifier(kernel="rbf", random_state=0),
    "code": OutputCodeClassifier(random_state=0, decoding="hamming"),
    "code of others": OutputCodeClassifier(LogisticRegression(), random_state=0, decoding="hamming"),
    "tree": HierarchicalClassifier(random_state=0, method="per-node"),
    "top-push": rivals.TopPush(fit_intercept=False, C=1e-3),
    "wsabie": rivals.Wsabie(max_iter=2, random_state=0),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("k", [1, 2, 4, 5])
@pytest.mark.parametrize("name", MODELS)
def test_top_k_accuracy_takes_the_lists_of_k_places_whatever_is_tied(rows, name, k):
    X, y = rows
    model = MODELS[name].fit(X, y)
    top = model.predict_topk(X, k)
    truth = np.searchsorted(model.classes_, y)
    for ties in ("expected", "optimistic", "pessimistic"):
        expected = metrics.top_k_accuracy_from_scores(truth, model.decision_function(X), k, ties=ties)
        assert metrics.top_k_accuracy(y, top, k, ties=ties) == pytest.approx(expected, abs=1e-12)
        assert metrics.top_k_error(y, top, k, ties=ties) == pytest.approx(1 - expected, abs=1e-12)
    unknown = np.where(y == "ash", "larch", y)
    expected = metrics.top_k_accuracy_from_scores(truth[y != "ash"], model.decision_function(X)[y != "ash"], k)
    assert metrics.top_k_accuracy(unknown, top, k) == pytest.approx(expected * np.mean(y != "ash"), abs=1e-12)
    labels, scores, indices = top  # still a tuple of three
    assert labels is top.labels
    assert scores.shape == indices.shape == (120, k)
    again = pickle.loads(pickle.dumps(top))
    assert metrics.top_k_accuracy(y, again, k) == metrics.top_k_accuracy(y, top, k)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("decision", ["greedy", "beam", "flat"])
def test_ties_on_a_tree(decision):
    y = np.array(["a/x", "a/y", "b/x", "b/y", "c"])[np.arange(40) % 5]
    X = np.ones((40, 1))  # all rows equal
    model = HierarchicalClassifier(decision=decision, beam_width=5, C=1e-12, random_state=0).fit(X, y)
    everything = tuple(model.predict_topk(X, 5))  # a plain tuple knows only the labels it lists
    assert len(np.unique(everything[1][0])) < 5
    for k in range(1, 6):
        expected = metrics.top_k_accuracy(y, everything, k, n_labels=5)
        assert metrics.top_k_accuracy(y, model.predict_topk(X, k), k) == pytest.approx(expected)


def test_two_classes_with_the_score_zero_are_tied():
    model = OneVsAllClassifier(fit_intercept=False).fit([[1.0], [-1.0]], ["no", "yes"])
    top = model.predict_topk([[0.0], [2.0]], 1)
    assert metrics.top_k_accuracy(["yes", "no"], top, 1) == 0.75
    assert top.tied.labels.toarray().tolist() == [[0, 1], [0, 0]]


def test_ties_too_many_to_keep_are_an_error_with_a_remedy(rows, monkeypatch):
    monkeypatch.setattr(_lists, "MOST_TIED", -(10**9))
    X, y = rows
    top = MODELS["zero"].fit(X, y).predict_topk(X, 2)
    assert top.tied.left_out.all()
    assert top.tied.labels.nnz == 0
    with pytest.raises(ValueError, match="call predict_topk with k above"):
        metrics.top_k_accuracy(y, top, 2)


@pytest.fixture(scope="module")
def several():
    """A multi-label model that does not know all labels of SETS, and rows for them."""
    rng = np.random.default_rng(1)
    Y = rng.random((60, 5)) < 0.4
    sets = [set(NAMES[row].tolist()) for row in Y]
    X = Y @ rng.normal(size=(5, 6)) + 0.5 * rng.normal(size=(60, 6))
    return OneVsAllClassifier().fit(X, sets), rng.normal(size=(5, 6))


FORMS = {
    "sets": lambda: SETS,
    "lists": lambda: [sorted(labels) for labels in SETS],
    "tuples": lambda: [tuple(sorted(labels)) for labels in SETS],
    "array of lists": lambda: np.array([*[sorted(labels) for labels in SETS], None], dtype=object)[:-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_rankings_take_label_sets(several, form):
    model, X = several
    top = model.predict_topk(X, 3)
    # By hand: one more column for the label that the model does not know.
    columns = [*model.classes_, "larch"]
    Y = np.array([[label in labels for label in columns] for labels in SETS], dtype=int)
    for metric in (metrics.precision_at_k, metrics.recall_at_k, metrics.ndcg_at_k):
        np.testing.assert_allclose(metric(FORMS[form](), top, [1, 3]), metric(Y, top.indices, [1, 3]))
    propensities = np.linspace(0.2, 0.9, 6)
    weighted = metrics.propensity_scored_precision_at_k(FORMS[form](), top, 3, propensities=propensities)
    assert weighted == metrics.propensity_scored_precision_at_k(Y, top.indices, 3, propensities=propensities)
    probabilities = np.full((5, 3), 0.5)
    calibration = metrics.calibration_error_at_k(FORMS[form](), top, probabilities, 2)
    assert calibration == metrics.calibration_error_at_k(Y, top.indices, probabilities, 2)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples", None])
@pytest.mark.parametrize("form", FORMS)
def test_label_sets_equal_scikit_learn(several, form, average):
    model, X = several
    labels = [*model.classes_, "larch"]
    binarizer = MultiLabelBinarizer(classes=labels)
    truth = binarizer.fit_transform(SETS)
    predicted = model.predict(X)
    expected = precision_recall_fscore_support(
        truth, np.hstack([predicted.toarray(), np.zeros((5, 1), int)]), average=average, zero_division=0
    )
    for prediction in (predicted, predicted.toarray(), model.predict_sets(X)):
        got = metrics.precision_recall_f1(FORMS[form](), prediction, labels=model.classes_, average=average)
        for ours, theirs in zip(got, expected[:3], strict=True):
            np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize("kind", [list, np.array, tuple])
def test_one_label_per_row_equals_scikit_learn(kind):
    truth, predicted = ["cat", "dog", "emu", "cat", "owl"], ["cat", "cat", "dog", "dog", "owl"]
    for average, metric in (("macro", metrics.macro_f1), ("micro", metrics.micro_f1)):
        expected = f1_score(truth, predicted, average=average, zero_division=0)
        assert metric(kind(truth), kind(predicted)) == pytest.approx(expected)
        labels = ["cat", "dog", "owl", "yak"]
        every = [*labels, "emu"]
        expected = f1_score(truth, predicted, labels=every, average=average, zero_division=0)
        assert metric(kind(truth), kind(predicted), labels=labels) == pytest.approx(expected)
    numbers = metrics.macro_f1([3, 1, 2], [3.0, 2.0, 2.0])
    assert numbers == pytest.approx(f1_score([3, 1, 2], [3, 2, 2], average="macro", zero_division=0))


def test_one_label_per_row_is_a_ranking_too(rows):
    X, y = rows
    model = MODELS["top-k"].fit(X, y)
    top = model.predict_topk(X, 2)
    right = np.mean((top.labels == y[:, None]).any(axis=1))
    assert metrics.recall_at_k(y, top, 2) == pytest.approx(right)
    assert metrics.recall_at_k(y.tolist(), top, 2) == pytest.approx(right)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.precision_at_k(["a", "b"], np.array([[0], [1]]), 1), "must be the result of predict_topk"),
        (lambda: metrics.macro_f1(["a"], np.eye(1, 2)), "labels=model.classes_"),
        (lambda: metrics.macro_f1(["a"], np.eye(1, 2), labels=["a"]), "Y_pred has 2 columns, but labels has 1"),
        (lambda: metrics.macro_f1(["a", "b"], [0, 1]), "Y_true contains text, such as 'a'.*such as 0"),
        (lambda: metrics.macro_f1(["a", "b"], ["a"]), r"same shape; got shapes \(2, 2\) and \(1, 2\)"),
        (
            lambda: metrics.micro_f1([{"a"}], sparse.csr_array([[1, 0]]), labels=[0, 1]),
            "compared with labels such as 0",
        ),
    ],
)
def test_forms_that_do_not_fit_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_scores_take_names(rows):
    X, y = rows
    model = MODELS["one-vs-all"].fit(X, y)
    scores = model.decision_function(X)
    numbers = np.searchsorted(model.classes_, y)
    for ties in ("expected", "optimistic", "pessimistic"):
        expected = metrics.top_k_accuracy_from_scores(numbers, scores, [1, 2], ties=ties)
        got = metrics.top_k_accuracy_from_scores(y.tolist(), scores, [1, 2], labels=model.classes_, ties=ties)
        np.testing.assert_array_equal(got, expected)
    unknown = np.where(np.arange(120) % 2, y, "larch")
    half = metrics.top_k_error_from_scores(unknown, scores, 5, labels=model.classes_)
    assert half == pytest.approx(0.5)
    with pytest.raises(ValueError, match="labels has 2 names, but scores has 5"):
        metrics.top_k_error_from_scores(y, scores, 1, labels=["a", "b"])


def test_measures_of_a_tree_take_label_sets():
    tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": ["owl", "hen"]}})
    sets = [{"cat", "mammal"}, ["owl", "dog"], {"bird"}, ("hen", "cat")]
    predicted = ["dog", "owl", "hen", "bird"]
    # "mammal" adds nothing to "cat"; of two labels the nearer one counts.
    nearest = ["cat", "owl", "bird", "hen"]
    for metric in (metrics.hierarchical_zero_one_error, metrics.tree_induced_loss):
        assert metric(sets, predicted, tree) == metric(nearest, predicted, tree)
    by_depth = metrics.error_by_depth(sets, predicted, tree)
    np.testing.assert_array_equal(by_depth.error, metrics.error_by_depth(nearest, predicted, tree).error)
    with pytest.raises(ValueError, match="row 1 of y_true has no label"):
        metrics.tree_induced_loss([{"cat"}, set()], ["cat", "cat"], tree)


def test_displays_take_unknown_labels_and_lists_of_k_places(several, rows):
    model, X = several
    sets = [labels - {"larch"} for labels in SETS]
    calibrated = model.calibrate(np.vstack([X, X]), [*sets, *sets])
    figure = Figure()
    drawn = ReliabilityDisplay.from_estimator(calibrated, X, SETS, ax=figure.subplots())
    expected = ReliabilityDisplay.from_estimator(calibrated, X, sets, ax=Figure().subplots())
    assert drawn.expected_calibration_error == expected.expected_calibration_error
    X, y = rows
    model = MODELS["top-k"].fit(X, y)
    curve = TopKAccuracyDisplay.from_predictions(y, model.predict_topk(X, 3), ax=Figure().subplots())
    np.testing.assert_allclose(
        curve.accuracy,
        metrics.top_k_accuracy_from_scores(y, model.decision_function(X), [1, 2, 3], labels=model.classes_),
    )
