"""Pictures of predictions against plain counts and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import top_k_accuracy_score

from widemargin import OneVsAllClassifier, OutputCodeClassifier, TopKClassifier
from widemargin.displays import CodeMatrixDisplay, PrecisionByFrequencyDisplay, ReliabilityDisplay, TopKAccuracyDisplay


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 5
    return np.eye(5)[y] + 0.7 * rng.normal(size=(90, 5)), np.array(["ash", "elm", "fir", "oak", "yew"])[y]


def test_top_k_curve_is_that_of_scikit_learn(rows, ax):
    X, y = rows
    model = TopKClassifier(k=2, random_state=0).fit(X, y)
    scores = model.decision_function(X)
    expected = [top_k_accuracy_score(y, scores, k=k, labels=model.classes_) for k in range(1, 5)]
    display = TopKAccuracyDisplay.from_estimator(model, X, y, max_k=4, ax=ax)
    np.testing.assert_allclose(display.accuracy, expected)
    again = TopKAccuracyDisplay.from_predictions(y, model.predict_topk(X, 5), n_labels=5, max_k=4, ax=ax)
    np.testing.assert_allclose(again.accuracy, expected)


def test_top_k_curve_refuses_lists_of_labels(rows):
    X, y = rows
    model = OneVsAllClassifier().fit(X, np.eye(5, dtype=int)[np.unique(y, return_inverse=True)[1]])
    with pytest.raises(ValueError, match="PrecisionByFrequencyDisplay"):
        TopKAccuracyDisplay.from_estimator(model, X, y)


def test_precision_and_recall_by_frequency_are_counts(ax):
    rng = np.random.default_rng(1)
    Y = (rng.random((40, 9)) < 0.3).astype(int)
    indices = np.argsort(rng.random((40, 9)), axis=1)[:, :4]
    indices[0, 2:] = -1  # missing places are neither listed nor found
    counts = np.array([0, 1, 2, 3, 4, 5, 17, 17, 900])
    display = PrecisionByFrequencyDisplay.from_predictions(sp.csr_array(Y), indices, counts, ks=[1, 4], ax=ax)
    assert display.frequency_bin.tolist() == [-1, 0, 1, 2, 4, 9]
    assert display.n_labels.tolist() == [1, 1, 2, 2, 2, 1]
    groups = [[0], [1], [2, 3], [4, 5], [6, 7], [8]]
    for place, group in enumerate(groups):
        listed = [(i, j) for i in range(40) for j in indices[i, :4] if j in group]
        found = sum(Y[i, j] for i, j in listed)
        assert display.precision[1, place] == pytest.approx(found / len(listed))
        assert display.recall[1, place] == pytest.approx(found / Y[:, group].sum())


def test_unknown_labels_count_as_true_and_never_found(rows, ax):
    X, y = rows
    model = TopKClassifier(random_state=0).fit(X[y != "yew"], y[y != "yew"])
    display = PrecisionByFrequencyDisplay.from_estimator(model, X, y, measure="recall", ax=ax)
    assert display.frequency_bin[0] == -1
    assert display.true[0] == np.sum(y == "yew")
    assert display.recall[:, 0].tolist() == [0.0, 0.0]  # depths 1 and 3: there are 4 classes
    assert display.true.sum() == len(y)


def test_reliability_of_two_classes_is_that_of_scikit_learn(ax):
    rng = np.random.default_rng(2)
    prob = rng.random(300)
    true = (rng.random(300) < prob**2).astype(int)
    for strategy in ("uniform", "quantile"):
        display = ReliabilityDisplay.from_predictions(true, prob, n_bins=7, strategy=strategy, ax=ax)
        accuracy, confidence = calibration_curve(true, prob, n_bins=7, strategy=strategy)
        np.testing.assert_allclose(display.accuracy, accuracy)
        np.testing.assert_allclose(display.confidence, confidence)


def test_reliability_of_classes_is_that_of_the_best_one(rows, ax):
    X, y = rows
    model = LogisticRegression().fit(X, y)
    prob = model.predict_proba(X)
    right, best = model.predict(X) == y, prob.max(axis=1)
    error = 0.0
    for b in range(15):
        part = (best > b / 15) & (best <= (b + 1) / 15)
        if part.any():
            error += part.mean() * abs(right[part].mean() - best[part].mean())
    display = ReliabilityDisplay.from_estimator(model, X, y, ax=ax)
    assert display.expected_calibration_error == pytest.approx(error)
    assert display.counts.sum() == len(y)


def test_sparse_probabilities_of_labels_count_missed_ones(ax):
    Y = np.array([[1, 0, 1], [0, 1, 0]])
    prob = np.array([[0.9, 0.0, 0.0], [0.0, 0.4, 0.0]])
    sparse = ReliabilityDisplay.from_predictions(sp.csr_array(Y), sp.csr_array(prob), n_bins=2, ax=ax)
    # Stored: 0.9 (true) and 0.4 (true); missed: a true label without a probability.
    assert sparse.counts.tolist() == [2, 1]
    np.testing.assert_allclose(sparse.confidence, [0.2, 0.9])
    np.testing.assert_allclose(sparse.accuracy, [1.0, 1.0])
    dense = ReliabilityDisplay.from_predictions(Y, prob, n_bins=2, ax=ax)
    assert dense.counts.tolist() == [5, 1]


@pytest.mark.parametrize(
    ("true", "prob", "message"),
    [
        ([0, 1], [0.5, 1.5], "between 0 and 1"),
        ([0, 1], [0.5], "must have one label per row"),
        (np.eye(2), sp.csr_array(np.ones((2, 3))), "must have the same shape"),
    ],
)
def test_what_is_no_probability_is_refused(true, prob, message):
    with pytest.raises(ValueError, match=message):
        ReliabilityDisplay.from_predictions(true, prob)


def test_a_model_without_probabilities_says_so(rows):
    with pytest.raises(ValueError, match="object has no predict_proba"):
        ReliabilityDisplay.from_estimator(object(), *rows)


def test_code_matrices_are_drawn_with_the_names_of_classes(rows, ax):
    model = OutputCodeClassifier(learn="l1", random_state=0).fit(*rows)
    display = CodeMatrixDisplay.from_estimator(model, ax=ax)
    np.testing.assert_array_equal(display.code, model.code_matrix_)
    assert [text.get_text() for text in ax.get_yticklabels()] == model.classes_.tolist()
    trained = CodeMatrixDisplay.from_estimator(model, code="trained", ax=Figure().subplots())
    np.testing.assert_array_equal(trained.code, model.code_book_)
    with pytest.raises(ValueError, match="no code_matrix_"):
        CodeMatrixDisplay.from_estimator(TopKClassifier().fit(*rows))
