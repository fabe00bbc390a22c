"""`class_weight="propensity"`: positive rows weigh 1 / p, and the problem, its certificate and its storage follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TopKClassifier,
    load,
    path,
    save,
    train,
)
from widemargin.comparison.measure import Metric, metrics_for, row_outcomes
from widemargin.metrics import propensity_scored_precision_at_k

N_ROWS = 240


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = sp.random_array((N_ROWS, 40), density=0.3, random_state=rng, format="csr", dtype=np.float32)
    scores = X @ rng.normal(size=(40, 6))
    return X, sp.csr_array((scores > np.linspace(0.0, 2.5, 6)).astype(np.int8))


def inverse_propensity(count, n_rows, A=0.55, B=1.5):
    """1 / p by the formula of Jain, Prabhu and Varma (2016), section 4.2, in scalars."""
    C = (math.log(n_rows) - 1) * (B + 1) ** A
    return 1 + C * math.exp(-A * math.log(count + B))


@pytest.mark.parametrize("AB", [{}, {"propensity_A": 0.6, "propensity_B": 2.6}], ids=["usual", "Amazon"])
def test_each_label_is_liblinears_problem_with_weighted_positive_rows(problem, AB):
    X, Y = problem
    model = OneVsAllClassifier(class_weight="propensity", regularize_intercept=True, tol=1e-8, gap_tol=1e-9, **AB)
    model.fit(X, Y)
    shape = {name[-1]: value for name, value in AB.items()}
    for label in range(Y.shape[1]):
        y = Y[:, [label]].toarray()[:, 0]
        factor = inverse_propensity(int(y.sum()), N_ROWS, **shape)
        theirs = LinearSVC(dual=False, tol=1e-10, max_iter=10_000, class_weight={1: factor}).fit(X, y)
        np.testing.assert_allclose(model.coef_[label], theirs.coef_[0], atol=2e-4)


def test_the_certificate_is_that_of_the_weighted_problem(problem):
    X, Y = problem
    model = OneVsAllClassifier(C=0.5, class_weight="propensity").fit(X, Y)
    dense = Y.toarray()
    factors = np.array([inverse_propensity(int(count), N_ROWS) for count in dense.sum(axis=0)])
    margins = (2.0 * dense - 1) * (X.toarray().astype(float) @ model.coef_.T.astype(float) + model.intercept_)
    losses = np.where(dense == 1, factors, 1.0) * np.maximum(0.0, 1.0 - margins) ** 2
    objective = 0.5 * (model.coef_.astype(float) ** 2).sum() + 0.5 * losses.sum()
    assert model.certificate_.primal == pytest.approx(objective, rel=1e-6)
    assert model.certificate_.relative_gap < 1e-3


def test_counts_are_numbers_of_rows_whatever_their_weights(problem):
    X, Y = problem
    weights = np.random.default_rng(0).uniform(0.1, 3.0, N_ROWS)
    factors = {j: inverse_propensity(int(count), N_ROWS) for j, count in enumerate(Y.sum(axis=0))}
    ours = OneVsAllClassifier(class_weight="propensity").fit(X, Y, sample_weight=weights)
    by_hand = OneVsAllClassifier(class_weight=factors).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, by_hand.coef_, atol=1e-7)


def test_shards_and_folders_have_the_same_model(problem, tmp_path):
    X, Y = problem
    parameters = {"class_weight": "propensity", "propensity_A": 0.5, "propensity_B": 0.4, "prune": 0.01}
    whole = OneVsAllClassifier(**parameters).fit(X, Y)
    in_shards = train(OneVsAllClassifier(**parameters), (X, Y), tmp_path / "shards", shard_size=2)
    save(whole, tmp_path / "whole")
    for model in (in_shards, load(tmp_path / "whole")):
        np.testing.assert_array_equal(model.coef_.toarray(), whole.coef_.toarray())
        assert model.certificate_.primal == pytest.approx(whole.certificate_.primal, rel=1e-12)
        assert {name: getattr(model, name) for name in parameters} == parameters
    assert clone(whole).get_params() == whole.get_params()


def test_a_grid_search_can_choose_it(problem):
    X, Y = problem
    grid = {"class_weight": [None, "balanced", "propensity"]}
    search = GridSearchCV(OneVsAllClassifier(), grid, cv=KFold(2), scoring="f1_micro").fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (OneVsAllClassifier(class_weight="propensity"), [0, 1] * 3, "class_weight='propensity' is for several labels"),
        (OneVsAllClassifier(class_weight="propensity"), [0, 1, 2] * 2, "class_weight='propensity' is for several"),
        (TopKClassifier(class_weight="propensity"), [0, 1, 2] * 2, "'class_weight' parameter of TopKClassifier"),
        (
            HierarchicalClassifier({"a": "r", "b": "r"}, class_weight="propensity"),
            ["a", "b"] * 3,
            "'class_weight' parameter of HierarchicalClassifier",
        ),
        (
            OutputCodeClassifier(OneVsAllClassifier(class_weight="propensity")),
            [0, 1, 2] * 2,
            "class_weight='propensity' of the estimator",
        ),
        (OneVsAllClassifier(propensity_A=0.6), [[0], [1], [0, 1]] * 2, "apply only to class_weight='propensity'"),
        (
            OneVsAllClassifier(class_weight="propensity", propensity_B=0),
            [[0], [1], [0]] * 2,
            "'propensity_B' parameter",
        ),
    ],
)
def test_what_it_does_not_apply_to_is_an_error(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(np.eye(6), y)


def psp_by_loops(Y, lists, k, counts, n_rows):
    """PSP@k by the definition: two sums over rows of sorted Python lists."""
    gained = attainable = 0.0
    for row, ranked in enumerate(lists):
        worth = {label: inverse_propensity(counts[label], n_rows) for label in Y[[row]].indices.tolist()}
        gained += sum(worth.get(label, 0.0) for label in ranked[:k])
        attainable += sum(sorted(worth.values(), reverse=True)[:k])
    return gained / attainable


def test_psp_in_comparisons_and_paths_is_the_definitions(problem):
    X, Y = problem
    train_rows, test_rows = np.arange(160), np.arange(160, N_ROWS)
    model = OneVsAllClassifier().fit(X[train_rows], Y[train_rows])
    lists = model.predict_topk(X[test_rows], 3).indices.tolist()
    counts = Y[train_rows].sum(axis=0).tolist()
    expected = [psp_by_loops(Y[test_rows], lists, k, counts, 160) for k in (1, 3)]
    outcomes = row_outcomes(
        model, X[test_rows], Y[test_rows], [Metric("psp", 1), Metric("precision", 2), Metric("psp", 3)]
    )
    np.testing.assert_allclose(outcomes.mean(axis=0)[[0, 2]], expected, rtol=1e-12)
    found = path(
        OneVsAllClassifier(), X[train_rows], Y[train_rows], Cs=[1.0], X_test=X[test_rows], y_test=Y[test_rows],
        scoring=["psp@1", "psp@3"],
    )  # fmt: skip
    np.testing.assert_allclose([found.table["psp@1"][0], found.table["psp@3"][0]], expected, rtol=1e-12)


def test_the_interval_of_psp_is_that_of_the_bootstrap(problem):
    """The spread of outcomes linearises a ratio of sums; resampled rows recompute the ratio."""
    X, Y = problem
    model = OneVsAllClassifier().fit(X, Y)
    outcomes = row_outcomes(model, X, Y, [Metric("psp", 1)])[:, 0]
    top = model.predict_topk(X, 1)
    p = np.array([1 / inverse_propensity(int(count), N_ROWS) for count in Y.sum(axis=0)])
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, N_ROWS, N_ROWS) for _ in range(2000)]
    resampled = [propensity_scored_precision_at_k(Y[rows], top.indices[rows], 1, propensities=p) for rows in drawn]
    assert outcomes.std(ddof=1) / math.sqrt(N_ROWS) == pytest.approx(np.std(resampled), rel=0.1)


def test_rows_without_labels_have_no_psp(problem):
    X, Y = problem
    model = OneVsAllClassifier().fit(X, Y)
    nothing = sp.csr_array((5, Y.shape[1]), dtype=np.int8)
    np.testing.assert_array_equal(row_outcomes(model, X[:5], nothing, [Metric("psp", 1)]), 0.0)


def test_psp_is_shown_for_several_labels_and_can_decide():
    names = [metric.name for metric in metrics_for("multilabel", 10, "psp@3")]
    assert names == ["psp@3", "precision@1", "precision@3", "precision@5", "psp@1", "psp@5"]
    with pytest.raises(ValueError, match="top_k_accuracy@k"):
        metrics_for("multiclass", 10, "psp@3")
    with pytest.raises(ValueError, match="or psp@k"):
        metrics_for("multilabel", 10, "psp@30")
