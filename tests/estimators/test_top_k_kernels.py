"""TopKClassifier with kernels: scikit-learn's checks, the linear model as a special case, and bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel, sigmoid_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

from estimator_checks import scikit_learn_checks
from widemargin import Status, TopKClassifier
from widemargin.exceptions import NotPositiveDefiniteError


@scikit_learn_checks(
    TopKClassifier(kernel="rbf"), TopKClassifier(kernel="poly", loss="alpha", smoothing=0.1, max_iter=100)
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = np.eye(4)[y] @ rng.normal(size=(4, 3)) + 0.6 * rng.normal(size=(60, 3))
    X[3] = 0.0
    return X, y


def weight_distance_allowed(a, b):
    """‖W_a − W_b‖ of two fits of one 1-strongly convex problem is at most this."""
    return np.sqrt(2 * a.certificate_.gap) + np.sqrt(2 * b.certificate_.gap) + 1e-6


@pytest.mark.parametrize("options", [{"k": 1}, {"k": 2, "loss": "alpha"}, {"k": 3, "smoothing": 0.2}], ids=str)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_linear_function_as_kernel_gives_the_linear_model(data, options, form):
    X, y = form(data[0]), data[1]
    common = {"C": 0.1, "intercept_scaling": 2.0, "tol": 1e-5, "random_state": 0} | options
    linear = TopKClassifier(**common).fit(X, y)
    kernel = TopKClassifier(kernel=linear_kernel, **common).fit(X, y)
    lengths = np.sqrt((data[0] ** 2).sum(axis=1) + 2.0**2)
    differences = np.abs(linear.decision_function(X) - kernel.decision_function(X)).max(axis=1)
    assert (differences <= lengths * weight_distance_allowed(linear, kernel)).all()
    assert kernel.certificate_.dual <= linear.certificate_.primal
    assert linear.certificate_.dual <= kernel.certificate_.primal


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("rbf", lambda A, B: rbf_kernel(A, B, gamma=0.7)),
        ("poly", lambda A, B: polynomial_kernel(A, B, degree=2, gamma=0.7, coef0=1.0)),
        ("sigmoid", lambda A, B: sigmoid_kernel(A, B, gamma=0.7, coef0=1.0)),
    ],
)
def test_named_callable_and_precomputed_kernels_agree(data, name, function):
    X, y = data[0], data[1]
    if name == "sigmoid":
        X = 0.1 * X[:8]  # so little curvature that rounding hides its sign
        y = y[:8]
    common = {"k": 2, "tol": 1e-4, "random_state": 0}
    try:
        named = TopKClassifier(kernel=name, gamma=0.7, degree=2, coef0=1.0, **common).fit(X, y)
    except NotPositiveDefiniteError:
        assert np.linalg.eigvalsh(function(X, X))[0] < 0
        return
    called = TopKClassifier(kernel=function, **common).fit(X, y)
    given = TopKClassifier(kernel="precomputed", **common).fit(function(X, X), y)
    np.testing.assert_allclose(named.decision_function(X), called.decision_function(X), atol=1e-3)
    np.testing.assert_allclose(given.decision_function(function(X, X)), called.decision_function(X), atol=1e-3)
    assert given.support_vectors_.shape == (0, 0)
    np.testing.assert_allclose(named.support_vectors_, X[named.support_])


def test_the_rbf_problem_is_crammer_and_singers_on_any_features_of_the_kernel(data):
    X, y = data
    model = TopKClassifier(C=0.5, kernel="rbf", gamma=0.5, fit_intercept=False, tol=1e-6, random_state=0).fit(X, y)
    values, vectors = np.linalg.eigh(rbf_kernel(X, gamma=0.5))
    features = vectors * np.sqrt(np.maximum(values, 0.0))  # features @ features.T is the kernel matrix
    theirs = LinearSVC(C=0.5, multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=100_000)
    scores = theirs.fit(features, y).decision_function(features)
    wrong = np.where(np.eye(4)[y] > 0, -np.inf, scores).max(axis=1)
    losses = np.maximum(0.0, 1.0 + wrong - scores[np.arange(60), y])
    reached = 0.5 * (theirs.coef_**2).sum() + 0.5 * losses.sum()
    assert model.certificate_.dual <= reached <= model.certificate_.primal * (1 + 1e-4)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=0.05)


def test_only_rows_with_a_coefficient_are_kept(data):
    X, y = data
    model = TopKClassifier(k=2, kernel="rbf", random_state=0).fit(X, y)
    assert len(model.support_) < 60
    assert model.dual_coef_.shape == (4, len(model.support_))
    assert np.abs(model.dual_coef_).sum(axis=0).min() > 0
    assert not hasattr(model, "coef_")
    assert model.gamma_ == pytest.approx(1 / (3 * X.var()))
    expected = rbf_kernel(X, X[model.support_], gamma=model.gamma_) @ model.dual_coef_.T.toarray() + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-9)
    np.testing.assert_allclose(np.asarray(model.dual_coef_.sum(axis=0)).ravel(), 0.0, atol=1e-12)


def test_prediction_in_many_small_blocks_is_the_same(data):
    X, y = data
    model = TopKClassifier(k=2, kernel="rbf", random_state=0).fit(X, y)
    scores, top, of_labels = model.decision_function(X), model.predict_topk(X, 6), model.label_scores(X, y)
    np.testing.assert_array_equal(of_labels, scores[np.arange(60), y])
    np.testing.assert_array_equal(top.indices[:, :4], np.argsort(-scores, axis=1, kind="stable"))
    assert (top.indices[:, 4:] == -1).all()
    model.set_params(memory_limit_mb=0.003)
    np.testing.assert_allclose(model.predict_topk(X, 6).scores[:, :4], top.scores[:, :4], atol=1e-12)
    np.testing.assert_allclose(model.label_scores(X, y), of_labels, atol=1e-12)
    with pytest.raises(MemoryError, match="predict_topk"):
        model.set_params(memory_limit_mb=1e-4).decision_function(X)


def test_two_classes_have_one_row_of_coefficients(data):
    X, y = data[0], np.where(data[1] % 2, "odd", "even")
    model = TopKClassifier(kernel="rbf", random_state=0).fit(X, y)
    assert model.dual_coef_.shape[0] == 1
    assert model.decision_function(X).shape == (60,)
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, "odd", "even"))
    assert model.score(X, y) > 0.8


def test_sparse_rows_give_the_model_of_dense_ones(data):
    X, y = data
    dense = TopKClassifier(k=2, kernel="rbf", tol=1e-5, random_state=0).fit(X, y)
    sparse = TopKClassifier(k=2, kernel="rbf", tol=1e-5, random_state=0).fit(sp.csr_array(X), y)
    assert sp.issparse(sparse.support_vectors_)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(sp.csr_array(X)), atol=1e-3)


def test_precomputed_kernels_are_cut_by_searches_on_both_sides(data):
    X, y = data
    assert get_tags(TopKClassifier(kernel="precomputed")).input_tags.pairwise
    assert not get_tags(TopKClassifier(kernel="rbf")).input_tags.pairwise
    K = rbf_kernel(X, gamma=0.5)
    given = GridSearchCV(TopKClassifier(kernel="precomputed", random_state=0), {"C": [0.1, 1.0]}, cv=3).fit(K, y)
    named = GridSearchCV(TopKClassifier(kernel="rbf", gamma=0.5, random_state=0), {"C": [0.1, 1.0]}, cv=3).fit(X, y)
    np.testing.assert_allclose(given.cv_results_["mean_test_score"], named.cv_results_["mean_test_score"], atol=0.05)


def test_kernel_params_are_arguments_of_the_function(data):
    X, y = data
    given = TopKClassifier(kernel=rbf_kernel, kernel_params={"gamma": 0.3}, random_state=0).fit(X, y)
    named = TopKClassifier(kernel="rbf", gamma=0.3, random_state=0).fit(X, y)
    np.testing.assert_allclose(given.decision_function(X), named.decision_function(X), atol=0.1)


def test_a_new_fit_leaves_nothing_of_the_other_kind(data):
    X, y = data
    model = TopKClassifier(kernel="rbf", random_state=0).fit(X, y)
    model.set_params(kernel="linear", C=0.1).fit(X, y)
    assert model.coef_.shape == (4, 3)
    assert not {"dual_coef_", "support_", "support_vectors_", "gamma_"} & set(vars(model))
    model.set_params(kernel="rbf").fit(X, y)
    assert not hasattr(model, "coef_")


def test_the_callback_stops_training_with_honest_bounds_and_a_warm_start_resumes(data):
    X, y = data

    def near(progress):
        return progress.primal - progress.dual <= 0.01 * progress.primal

    model = TopKClassifier(C=1.0, kernel="rbf", tol=1e-4, random_state=0, callback=near)
    with pytest.warns(UserWarning, match="the callback requested it"):
        model.fit(X, y)
    assert model.status_ is Status.STOPPED
    stopped = model.certificate_
    model.set_params(callback=None, warm_start=True).fit(X, y)
    assert model.status_ is Status.CONVERGED
    assert stopped.dual <= model.certificate_.primal
    cold = TopKClassifier(C=1.0, kernel="rbf", tol=1e-4, random_state=0).fit(X, y)
    assert model.n_iter_ < cold.n_iter_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "gauss"}, "'kernel' parameter of"),
        ({"kernel": 3}, "'kernel' parameter of"),
        ({"gamma": "large"}, "'gamma' parameter of"),
        ({"gamma": -1.0}, "'gamma' parameter of"),
        ({"degree": -1}, r"'degree' parameter .* \[0, inf\)"),
        ({"coef0": np.inf}, "'coef0' parameter of"),
        ({"kernel": "rbf", "kernel_params": {"gamma": 1.0}}, "kernel_params applies only to a callable kernel"),
        ({"kernel": rbf_kernel, "kernel_params": 3}, "'kernel_params' parameter of"),
        ({"kernel": "precomputed", "normalize": True}, "normalize=True cannot be combined with kernel='precomputed'"),
        ({"kernel": "precomputed"}, "must be square"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",  # a function's own name has its address
)
def test_wrong_kernel_parameters_are_named(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        TopKClassifier(**parameters).fit(*data)


def test_rows_of_another_kernel_matrix_are_refused(data):
    X, y = data
    model = TopKClassifier(kernel="precomputed", random_state=0).fit(rbf_kernel(X), y)
    with pytest.raises(ValueError, match="expecting 60 features"):
        model.predict(rbf_kernel(X, X[:10]))
