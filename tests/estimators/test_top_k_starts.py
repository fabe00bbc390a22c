"""Warm starts of TopKClassifier and paths over C and k: fewer passes, the same answers, a certificate for each."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from widemargin import OneVsAllClassifier, TopKClassifier, metrics, path
from widemargin.problems.kernels import TrainingKernel


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(48) % 6
    return np.eye(6)[y] @ rng.normal(size=(6, 4)) + 0.5 * rng.normal(size=(48, 4)), y


def agree(a, b):
    """Two certified answers to one problem cannot be far apart."""
    bounds = [(model.certificate_.dual, model.certificate_.primal) for model in (a, b)]
    allowed = np.sqrt(2 * a.certificate_.gap) + np.sqrt(2 * b.certificate_.gap) + 1e-6
    near = not hasattr(a, "coef_") or np.linalg.norm(a.coef_ - b.coef_) <= allowed
    slack = 1e-9 * abs(bounds[0][1])
    return near and bounds[0][0] <= bounds[1][1] + slack and bounds[1][0] <= bounds[0][1] + slack


CHANGES = [
    {"C": 0.4},
    {"C": 0.01},
    {"k": 1},
    {"k": 5},
    {"k": 4, "loss": "alpha"},
    {"smoothing": 0.2},
    {"class_weight": {0: 3.0, 2: 0.0}},
    {"fit_intercept": False},
    {"kernel": "rbf"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_warm_start_leads_to_the_answer_of_a_cold_one(data, kernel, change):
    X, y = data
    warm = TopKClassifier(3, 0.1, kernel=kernel, warm_start=True, random_state=0).fit(X, y)
    warm.set_params(**change).fit(X, y)
    cold = TopKClassifier(3, 0.1, kernel=kernel, random_state=0).set_params(**change).fit(X, y)
    assert warm.certificate_.relative_gap <= warm.tol
    assert agree(warm, cold)


def test_the_same_problem_again_takes_fewer_passes(data):
    X, y = data
    model = TopKClassifier(2, 0.3, tol=1e-4, warm_start=True, random_state=0).fit(X, y)
    first = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < first


def test_other_rows_labels_or_classes_start_cold(data):
    X, y = data
    for rows, labels in ((X[:40], y[:40]), (X, (y + 1) % 6), (X, np.array(list("abcdef"))[y]), (X, y % 5)):
        warm = TopKClassifier(2, 0.1, warm_start=True, random_state=0).fit(X, y).fit(rows, labels)
        cold = TopKClassifier(2, 0.1, random_state=0).fit(rows, labels)
        np.testing.assert_array_equal(warm.coef_, cold.coef_)
    # Other features of the same rows may continue: dual variables belong to rows.
    warm = TopKClassifier(2, 0.1, warm_start=True, random_state=0).fit(X, y).fit(X[:, :3], y)
    assert agree(warm, TopKClassifier(2, 0.1, random_state=0).fit(X[:, :3], y))


def test_without_warm_start_the_previous_fit_does_not_matter(data):
    X, y = data
    again = TopKClassifier(2, 0.1, random_state=0).fit(X, y).fit(X, y)
    np.testing.assert_array_equal(again.coef_, TopKClassifier(2, 0.1, random_state=0).fit(X, y).coef_)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("loss", ["alpha", "beta"])
def test_every_model_of_a_path_equals_that_of_a_separate_fit(data, kernel, loss):
    X, y = data
    estimator = TopKClassifier(kernel=kernel, loss=loss, random_state=0)
    result = path(estimator, X, y, Cs=[0.2, 0.02], ks=[1, 5, 3])
    assert result.params == ("C", "k")
    assert result.table["C"].tolist() == [0.02] * 3 + [0.2] * 3
    assert result.table["k"].tolist() == [5, 3, 1] * 2
    for row in range(6):
        model = result.model(row)
        alone = TopKClassifier(model.k, model.C, kernel=kernel, loss=loss, random_state=0).fit(X, y)
        assert (model.k, model.C) == (result.table["k"][row], result.table["C"][row])
        assert result.table["relative_gap"][row] == model.certificate_.relative_gap <= 1e-3
        assert result.table["status"][row] == "converged"
        assert agree(model, alone)
        assert not model.warm_start


def test_a_path_takes_fewer_passes_than_cold_fits(data):
    X, y = data
    Cs = [0.05, 0.1, 0.2, 0.4]
    result = path(TopKClassifier(2, tol=1e-4, random_state=0), X, y, Cs=Cs)
    alone = [TopKClassifier(2, C, tol=1e-4, random_state=0).fit(X, y).n_iter_ for C in Cs]
    assert result.table["n_iter"].sum() < sum(alone)


def test_the_kernel_of_a_path_is_made_once_unless_it_changes(data, monkeypatch):
    X, y = data
    made = []
    original = TrainingKernel.__init__

    def record(self, *arguments):
        made.append(1)
        original(self, *arguments)

    monkeypatch.setattr(TrainingKernel, "__init__", record)
    path(TopKClassifier(kernel="rbf", random_state=0), X, y, Cs=[0.1, 1.0], ks=[1, 2])
    assert len(made) == 1
    result = path(TopKClassifier(kernel="rbf", random_state=0), X, y, param="gamma", values=[0.1, 1.0])
    assert len(made) == 3
    assert [result.model(row).gamma_ for row in range(2)] == [0.1, 1.0]


def test_precomputed_kernels_go_along_a_path(data):
    X, y = data
    result = path(TopKClassifier(kernel="precomputed", random_state=0), rbf_kernel(X), y, ks=[1, 2])
    assert result.table["k"].tolist() == [2, 1]
    assert (result.table["relative_gap"] <= 1e-3).all()


def test_scores_at_k_choose_the_model(data):
    X, y = data
    names = np.array(list("uvwxyz"))[y]
    result = path(
        make_pipeline(StandardScaler(), TopKClassifier(random_state=0)), X[:36], names[:36], Cs=[0.01, 0.1], ks=[1, 3],
        X_test=X[36:], y_test=names[36:], scoring=["top_k_accuracy@3", "top_k_accuracy@1", "accuracy"],
    )  # fmt: skip
    best = result.best_model
    scores = best.decision_function(X[36:])
    assert result.best["top_k_accuracy@3"] == result.table["top_k_accuracy@3"].max()
    expected = metrics.top_k_accuracy_from_scores(y[36:], scores, 3)
    assert result.best["top_k_accuracy@3"] == pytest.approx(expected)
    assert result.best["top_k_accuracy@1"] == pytest.approx(result.best["accuracy"])
    assert len(result.models) == 1


def test_labels_that_a_model_does_not_know_count_as_misses(data):
    X, y = data
    result = path(
        TopKClassifier(random_state=0), X, y, Cs=[0.1], X_test=X[:2], y_test=[y[0], 99], scoring="top_k_accuracy@5"
    )
    assert result.table["top_k_accuracy@5"][0] <= 0.5


def test_Cs_serve_other_estimators_and_values_keep_working(data):
    X, y = data
    by_name = path(OneVsAllClassifier(), X, y, Cs=[1.0, 0.1], prune=[0.0, 0.01])
    by_values = path(OneVsAllClassifier(), X, y, values=[1.0, 0.1], prune=[0.0, 0.01])
    assert by_name.params == by_values.params == ("C",)
    for column in ("C", "prune", "primal", "n_weights"):
        np.testing.assert_array_equal(by_name.table[column], by_values.table[column])
    assert path(LinearSVC(), X, y, Cs=[1.0, 0.1]).table["C"].tolist() == [0.1, 1.0]
    assert path(TopKClassifier(C=0.1, random_state=0), X, y, param="k", values=[1, 2]).table["k"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass Cs, ks, or param and values"),
        ({"param": "C"}, "param='C' has no values"),
        ({"values": [1.0], "ks": [1]}, "values cannot be combined with Cs or ks"),
        ({"Cs": []}, "values of C must be a nonempty sequence of finite numbers"),
        ({"ks": [1, 1]}, "values of k must be distinct"),
        ({"ks": [1.5]}, r"'k' parameter .* \[1, inf\)"),
        ({"Cs": [-1.0]}, r"'C' parameter .* \(0.0, inf\)"),
        ({"ks": [1, 6]}, "k must be at most 5"),
        ({"Cs": [1.0], "prune": [-0.1]}, "prune must be a nonempty sequence of finite, nonnegative numbers"),
    ],
    ids=str,
)
def test_wrong_values_are_named(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        path(TopKClassifier(random_state=0), *data, **arguments)


def test_ks_need_an_estimator_with_k(data):
    with pytest.raises(ValueError, match="OneVsAllClassifier has no parameter 'k'"):
        path(OneVsAllClassifier(), *data, ks=[1, 2])
    with pytest.raises(ValueError, match="requires a multi-label model"):
        path(TopKClassifier(), *data, ks=[1], X_test=data[0], y_test=data[1], scoring="precision@1")
