"""OneVsAllClassifier with the logistic loss and with every start."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from widemargin import OneVsAllClassifier, load, save
from widemargin.solvers.one_vs_all.starts import INITS
from widemargin.solvers.result import Status


@pytest.fixture(scope="module")
def multilabel():
    X, Y = make_multilabel_classification(n_samples=150, n_features=12, n_classes=6, random_state=3)
    return sp.csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True)), sp.csr_matrix(Y)


@parametrize_with_checks(
    [OneVsAllClassifier(loss="logistic"), OneVsAllClassifier(init="msi"), OneVsAllClassifier(init="ovap++")]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_logistic_loss_equals_scikit_learns_logistic_regression():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    ours = OneVsAllClassifier(C=0.5, loss="logistic").fit(X, y)
    for k in range(10):
        theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000, solver="newton-cg").fit(X, y == k)
        np.testing.assert_allclose(ours.coef_[k], theirs.coef_[0], atol=1e-5)
        assert ours.intercept_[k] == pytest.approx(theirs.intercept_[0], abs=1e-5)
    assert ours.status_ is Status.CONVERGED
    assert ours.certificate_.relative_gap < 1e-8


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("init", INITS)
def test_every_start_gives_the_same_model(multilabel, loss, init):
    X, Y = multilabel
    expected = OneVsAllClassifier(loss=loss, init="zero").fit(X, Y)
    model = OneVsAllClassifier(loss=loss, init=init).fit(X, Y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-6)


def test_numbers_of_the_starts_reach_the_solver(multilabel):
    X, Y = multilabel
    first = [
        OneVsAllClassifier(init="bias", init_params={"lam": lam}).fit(X, Y).history_["primal"][0] for lam in (0.5, 3.0)
    ]
    assert first[0] != first[1]


def test_labels_that_are_not_attained_do_not_warn_but_say_so(multilabel, tmp_path):
    X, Y = multilabel
    Y = sp.csr_matrix(sp.hstack([Y, sp.csr_matrix((150, 1), dtype=Y.dtype)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OneVsAllClassifier(loss="logistic").fit(X, Y)
    assert model.status_ is Status.NOT_ATTAINED
    assert model.intercept_[6] == -30.0
    assert not model.coef_[6].any()
    assert model.certificate_.worst.index != 6
    save(model, tmp_path / "m")
    assert load(tmp_path / "m").status_ is Status.NOT_ATTAINED


def test_loss_and_start_are_saved_with_the_model(multilabel, tmp_path):
    X, Y = multilabel
    model = OneVsAllClassifier(loss="logistic", init="msi", init_params={"s": 1.5, "strict": True}).fit(X, Y)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_warm_start_goes_before_the_start(multilabel):
    X, Y = multilabel
    model = OneVsAllClassifier(warm_start=True, init="bias").fit(X, Y)
    steps, optimum = model.n_iter_.sum(), model.certificate_.primal
    model.fit(X, Y)
    assert model.n_iter_.sum() < steps
    begin = model.history_["primal"][model.history_["iteration"] == 0].sum()
    assert begin == pytest.approx(optimum, rel=1e-9)


def test_losses_and_starts_can_be_searched(multilabel):
    X, Y = multilabel
    search = GridSearchCV(OneVsAllClassifier(), {"loss": ["squared_hinge", "logistic"], "init": ["auto", "msi"]}, cv=2)
    search.fit(X, Y.toarray())
    results = zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
    scores = {(params["loss"], params["init"]): score for params, score in results}
    for loss in ("squared_hinge", "logistic"):  # the same optimum, whatever the start
        assert scores[loss, "auto"] == pytest.approx(scores[loss, "msi"])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "hinge"}, "'loss' parameter of"),
        ({"init": "random"}, "'init' parameter of"),
        ({"init_params": {"lambda": 2}}, "unknown key 'lambda' in init_params"),
        ({"init": "bias", "fit_intercept": False}, "init='bias' requires an intercept"),
    ],
)
def test_bad_losses_and_starts_are_named(multilabel, parameters, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier(**parameters).fit(*multilabel)
