"""OutputCodeClassifier: scikit-learn's own checks and documented behaviour, codes, columns, and input of every form."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.multiclass
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from widemargin import OneVsAllClassifier, OutputCodeClassifier

# Replaced by `test_a_repeated_row_equals_its_weight` here and `…_in_the_code` in test_output_code_learning.
WEIGHT_CHECKS = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
SET_CV = dict.fromkeys(WEIGHT_CHECKS, "they set cv, which has no meaning without learn, and is refused")
AT_ROUNDING_ERROR = dict.fromkeys(WEIGHT_CHECKS, "codes are learned to the certified gap, not to rounding error")
NAMES = np.array(["ash", "beech", "cedar", "fir", "oak"])


@parametrize_with_checks(
    [
        OutputCodeClassifier(),
        OutputCodeClassifier(learn="l2"),
        OutputCodeClassifier(LogisticRegression()),
    ],
    expected_failed_checks=lambda estimator: SET_CV if estimator.learn is None else AT_ROUNDING_ERROR,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """Five classes with names, well apart, one of them rare."""
    rng = np.random.default_rng(0)
    y = np.append(np.arange(96) % 4, [4, 4, 4])
    X = 3.0 * np.eye(5, 6)[y] + 0.6 * rng.normal(size=(99, 6))
    return X, NAMES[y]


def signs_of(code, y):
    """Targets of the columns, from the code by hand."""
    return code[np.searchsorted(np.unique(y), y)]


# Behaviour that scikit-learn documents for its class.


def test_parameters_come_in_the_order_of_scikit_learn():
    ours = OutputCodeClassifier(GaussianNB(), code_size=2, random_state=3, n_jobs=2)
    theirs = sklearn.multiclass.OutputCodeClassifier(GaussianNB(), code_size=2, random_state=3, n_jobs=2)
    shared = theirs.get_params(deep=False)
    assert {name: getattr(ours, name) for name in shared if name != "estimator"} == {
        name: value for name, value in shared.items() if name != "estimator"
    }
    defaults = sklearn.multiclass.OutputCodeClassifier(None).get_params(deep=False)
    assert {name: OutputCodeClassifier().get_params(deep=False)[name] for name in defaults} == defaults


def test_unfitted_models_say_so(data):
    with pytest.raises(NotFittedError):
        OutputCodeClassifier().predict(data[0])
    with pytest.raises(NotFittedError):
        OutputCodeClassifier(LinearSVC()).predict(data[0])


@pytest.mark.parametrize("estimator", [None, LinearSVC(), MultinomialNB(), DecisionTreeClassifier(random_state=0)])
@pytest.mark.parametrize("code_size", [1.5, 2])
def test_there_are_code_size_times_as_many_columns_as_classes(data, estimator, code_size):
    X, y = np.abs(data[0]), data[1]
    model = OutputCodeClassifier(estimator, code_size=code_size, random_state=0).fit(X, y)
    n_columns = int(5 * code_size)
    assert len(model.estimators_) == n_columns
    assert model.code_book_.shape == model.code_matrix_.shape == (5, n_columns)
    assert set(np.unique(model.code_book_)) == {-1, 1}
    assert model.n_features_in_ == 6
    np.testing.assert_array_equal(model.classes_, NAMES)
    for column in model.estimators_:
        np.testing.assert_array_equal(column.classes_, [-1, 1])


@pytest.mark.slow
def test_grid_search_reaches_the_parameters_inside(data):
    grid = {"estimator__C": [0.1, 0.8], "code_size": [1, 2]}
    search = GridSearchCV(OutputCodeClassifier(LinearSVC(random_state=0), random_state=0), grid, cv=3).fit(*data)
    assert search.best_estimator_.estimators_[0].C in grid["estimator__C"]
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("estimator", [None, LinearSVC()])
def test_continuous_targets_are_refused(data, estimator):
    y = np.random.default_rng(0).normal(size=len(data[0]))
    with pytest.raises(ValueError, match=r"(?i)unknown label type"):
        OutputCodeClassifier(estimator).fit(data[0], y)


def test_sparse_rows_are_left_to_the_classifier_inside(data):
    X = sp.csr_array(data[0])
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        OutputCodeClassifier(GaussianNB()).fit(X, data[1])
    trained = OutputCodeClassifier(LinearSVC(), random_state=0).fit(X, data[1])
    assert trained.score(X, data[1]) > 0.9


@pytest.mark.slow
def test_it_predicts_as_scikit_learn_does_with_the_same_code(data):
    X, y = data
    theirs = sklearn.multiclass.OutputCodeClassifier(LogisticRegression(), code_size=2, random_state=5).fit(X, y)
    assert (np.abs(theirs.code_book_.sum(axis=0)) < 5).all()  # no constant column, which we reject
    ours = OutputCodeClassifier(LogisticRegression(), code=theirs.code_book_).fit(X, y)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))  # nearest row = largest inner product


# Columns.


@pytest.mark.parametrize("estimator", [None, LinearSVC()])
def test_the_classifiers_are_there_once_the_model_is_fitted(data, estimator):
    model = OutputCodeClassifier(estimator, random_state=0)
    assert not hasattr(model, "estimators_")
    model.fit(*data)
    assert hasattr(model, "estimators_")
    assert len(clone(model).fit(*data).estimators_) == len(model.estimators_) == 7
    if estimator is None:
        assert np.shares_memory(model.estimators_[0].coef_, model._columns.coef)
    assert not hasattr(clone(model), "estimators_")


@pytest.mark.parametrize("code", ["one-vs-rest", "all-pairs", "random", "random-sparse", "exhaustive", "bch"])
def test_a_column_is_the_classifier_of_its_rows_alone(data, code):
    X, y = data
    template = OneVsAllClassifier(C=0.5)
    model = OutputCodeClassifier(template, code=code, random_state=0).fit(X, y)
    targets = signs_of(model.code_book_, y)
    for j in range(targets.shape[1]):
        asked = targets[:, j] != 0
        alone = clone(template).fit(X[asked], targets[asked, j])
        np.testing.assert_allclose(model.estimators_[j].decision_function(X), alone.decision_function(X), atol=1e-6)


def test_the_default_inside_is_one_vs_all(data):
    X, y = data
    ours = OutputCodeClassifier(code="one-vs-rest").fit(X, y)
    theirs = OneVsAllClassifier().fit(X, y)
    outputs = theirs.decision_function(X)
    np.testing.assert_allclose(ours.decision_function(X), 2 * outputs - outputs.sum(axis=1, keepdims=True), atol=1e-8)
    assert ours.certificate_.primal == pytest.approx(theirs.certificate_.primal, rel=1e-9)
    assert ours.certificate_.n_problems == 5


def test_the_certificate_is_the_sum_over_columns(data):
    X, y = data
    model = OutputCodeClassifier(code="all-pairs").fit(X, y)
    targets = signs_of(model.code_book_, y)
    parts = [OneVsAllClassifier().fit(X[t != 0], t[t != 0]).certificate_ for t in targets.T]
    assert model.certificate_.primal == pytest.approx(sum(part.primal for part in parts), rel=1e-9)
    assert model.certificate_.relative_gap < 1e-6
    with pytest.raises(AttributeError, match="LinearSVC has none"):
        _ = OutputCodeClassifier(LinearSVC()).fit(X, y).certificate_


def test_probabilities_are_centred(data):
    X, y = data
    model = OutputCodeClassifier(DecisionTreeClassifier(max_depth=2, random_state=0), random_state=0).fit(X, y)
    p = np.column_stack([column.predict_proba(X)[:, 1] for column in model.estimators_])
    np.testing.assert_allclose(model.decision_function(X), (2 * p - 1) @ model.code_book_.T)


@pytest.mark.slow
def test_columns_fitted_at_the_same_time_are_the_same(data):
    X, y = data
    for inner in (None, LogisticRegression()):
        with joblib.parallel_config(backend="threading"):  # processes would take seconds to start
            one, two = (OutputCodeClassifier(inner, random_state=0, n_jobs=n).fit(X, y) for n in (1, 2))
        np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_a_dictionary_of_weights_inside_names_the_two_sides(data):
    X, y = data
    inner = OneVsAllClassifier(class_weight={1: 3.0})
    model = OutputCodeClassifier(inner, code="one-vs-rest").fit(X, y)
    alone = clone(inner).fit(X, np.where(y == "fir", 1, -1))
    np.testing.assert_allclose(model.estimators_[3].decision_function(X), alone.decision_function(X), atol=1e-6)


# Predictions.


@pytest.mark.parametrize("decoding", ["inner", "hamming", "exponential", "hinge", "logistic"])
def test_every_way_of_scoring_agrees(data, decoding):
    X, y = data
    model = OutputCodeClassifier(decoding=decoding, random_state=0, memory_limit_mb=0.05).fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (99, 5)
    top = model.predict_topk(X, 7)
    order = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(top.indices[:, :5], order)
    np.testing.assert_array_equal(top.indices[:, 5:], -1)
    np.testing.assert_array_equal(model.predict(X), NAMES[order[:, 0]])
    own = scores[np.arange(99), np.searchsorted(NAMES, y)]
    np.testing.assert_array_equal(model.label_scores(X, y), own)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("options", [{}, {"code": "one-vs-rest"}, {"learn": "l1"}, {"learn": "greedy"}])
def test_two_classes_have_one_score(data, options):
    X, y = data[0], np.where(np.isin(data[1], ["ash", "fir"]), "soft", "hard")
    model = OutputCodeClassifier(random_state=0, **options).fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (99,)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, "soft", "hard"))
    np.testing.assert_array_equal(model.label_scores(X, y), np.where(y == "soft", scores, -scores))
    assert model.predict_topk(X, 2).labels.shape == (99, 2)
    assert model.score(X, y) == pytest.approx(OneVsAllClassifier().fit(X, y).score(X, y), abs=0.03)


def test_dense_sparse_and_data_frames_give_the_same(data):
    X, y = data
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(6)])
    dense = OutputCodeClassifier(random_state=0).fit(X, y)
    for other in (sp.csr_array(X), sp.csc_matrix(X), frame):
        model = OutputCodeClassifier(random_state=0).fit(other, y)
        np.testing.assert_allclose(model.decision_function(other), dense.decision_function(X), atol=1e-9)
    assert model.feature_names_in_.tolist() == list(frame.columns)


def test_rows_of_any_kind_go_to_a_pipeline_inside():
    from sklearn.feature_extraction.text import CountVectorizer

    texts = ["red apple", "red cherry", "green pear", "green lime", "yellow lemon", "yellow banana"] * 3
    y = ["r", "r", "g", "g", "y", "y"] * 3
    model = OutputCodeClassifier(make_pipeline(CountVectorizer(), LinearSVC()), learn="l1", random_state=0)
    assert model.fit(texts, y).score(texts, y) == 1.0
    assert not hasattr(model, "n_features_in_")


def test_it_works_in_a_pipeline(data):
    model = make_pipeline(StandardScaler(), OutputCodeClassifier(learn="l1", random_state=0))
    assert cross_val_score(model, *data, cv=KFold(3, shuffle=True, random_state=0)).min() > 0.85


def test_normalisation_is_that_of_the_classifier_inside(data):
    X, y = data
    inside = OutputCodeClassifier(OneVsAllClassifier(normalize=True), random_state=0).fit(X, y)
    before = OutputCodeClassifier(random_state=0).fit(X / np.linalg.norm(X, axis=1, keepdims=True), y)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(inside.decision_function(X), before.decision_function(unit), atol=1e-8)


# Weights.


@pytest.mark.parametrize(
    "options", [{}, {"code": "all-pairs"}, {"estimator": LogisticRegression(tol=1e-10, max_iter=10_000)}]
)
def test_a_repeated_row_equals_its_weight(data, options):
    X, y = data
    weights = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    weights[np.unique(y, return_index=True)[1]] = 1.0
    model = OutputCodeClassifier(random_state=0, **options)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    repeated = clone(model).fit(np.repeat(X, weights.astype(int), axis=0), np.repeat(y, weights.astype(int)))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-4)


def test_weights_of_classes_are_weights_of_their_rows(data):
    X, y = data
    by_class = OutputCodeClassifier(class_weight={"ash": 5.0}, random_state=0).fit(X, y)
    by_row = OutputCodeClassifier(random_state=0).fit(X, y, sample_weight=np.where(y == "ash", 5.0, 1.0))
    np.testing.assert_allclose(by_class.decision_function(X), by_row.decision_function(X))


def test_weights_for_a_classifier_without_them_are_refused(data):
    X, y = data
    with pytest.raises(ValueError, match=r"KNeighborsClassifier\.fit does not accept sample_weight"):
        OutputCodeClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(99))
    with pytest.raises(ValueError, match="does not accept sample_weight"):
        OutputCodeClassifier(KNeighborsClassifier(), class_weight="balanced").fit(X, y)


@pytest.mark.slow
def test_weights_are_routed_to_those_who_ask(data):
    X, y = data
    weights = np.where(y == "ash", 5.0, 1.0)
    expected = OutputCodeClassifier(LogisticRegression(), random_state=0).fit(X, y, sample_weight=weights)
    plain = OutputCodeClassifier(LogisticRegression(), random_state=0).fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LogisticRegression().set_fit_request(sample_weight=True)
        routed = OutputCodeClassifier(asks, random_state=0).fit(X, y, sample_weight=weights)
        declines = LogisticRegression().set_fit_request(sample_weight=False)
        kept = OutputCodeClassifier(declines, random_state=0).set_fit_request(sample_weight=True)
        kept.fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(routed.decision_function(X), expected.decision_function(X))
    np.testing.assert_array_equal(kept.decision_function(X), plain.decision_function(X))
    with pytest.raises(ValueError, match=r"not supported|enable_metadata_routing"):
        OutputCodeClassifier(Perceptron()).fit(X, y, coef_init=np.zeros((1, 6)))
