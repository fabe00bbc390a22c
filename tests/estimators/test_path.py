"""Paths share only work: every model equals that of a separate fit, up to the certified gaps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import widemargin.solvers.one_vs_all.plan as one_vs_all
from widemargin import OneVsAllClassifier, Status, TopKClassifier, path
from widemargin.datasets import make_zipf_multilabel

VALUES = [4.0, 0.25, 1.0]


@pytest.fixture(scope="module")
def data():
    X, Y = make_zipf_multilabel(900, 400, 24, nnz_per_row=12, random_state=0)
    return X, Y


@pytest.fixture(scope="module")
def classes():
    """Three classes with names, dense rows."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 6))
    return X, np.array(["ash", "birch", "cedar"])[np.argmax(X[:, :3] + rng.normal(size=(120, 3)), axis=1)]


@pytest.fixture(params=["fast", "newton"])
def solver(request, monkeypatch):
    """Both solvers on the same small data, which usually go to Newton."""
    for limit in ("SMALL_SPARSE_WORK", "SMALL_DENSE_WORK"):
        monkeypatch.setattr(one_vs_all, limit, 0 if request.param == "fast" else 10**9)
    return request.param


def objective(X, Y, model):
    """Σ over labels of the objective, from dense arrays."""
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    signs = np.where(Y.toarray() > 0, 1.0, -1.0)
    margins = signs * (X.astype(np.float64) @ coef.T.astype(np.float64) + model.intercept_)
    return 0.5 * (coef.astype(np.float64) ** 2).sum() + model.C * (np.maximum(0.0, 1.0 - margins) ** 2).sum()


def test_every_model_is_within_the_gaps_of_a_separate_fit(data, solver):
    X, Y = data
    result = path(OneVsAllClassifier(), X, Y, values=VALUES)
    assert result.table["C"].tolist() == [0.25, 1.0, 4.0]
    for row, C in enumerate(result.table["C"]):
        model, alone = result.model(row), OneVsAllClassifier(C=C).fit(X, Y)
        assert model.C == C
        assert model.status_ is Status.CONVERGED
        assert ("iteration" in model.history_) == (solver == "newton")
        assert model.certificate_.relative_gap <= 1e-3
        assert model.certificate_.primal == pytest.approx(objective(X, Y, model), rel=1e-9)
        # F(w) = min_b f is 1-strongly convex, and so is the sum over the labels.
        allowed = np.sqrt(2 * model.certificate_.gap) + np.sqrt(2 * alone.certificate_.gap)
        assert np.linalg.norm(model.coef_ - alone.coef_) <= allowed + 1e-6


def test_later_fits_take_fewer_iterations_than_separate_fits(data, solver):
    X, Y = data
    estimator = OneVsAllClassifier(prune=0.01)
    result = path(estimator, X, Y, values=[1.0, 2.0])
    alone = clone(estimator).set_params(C=2.0).fit(X, Y)
    assert result.table["n_iter"][1] < alone.n_iter_.sum()


def test_the_order_of_values_and_the_threads_do_not_matter(data, solver):
    X, Y = data
    first = path(OneVsAllClassifier(prune=0.01), X, Y, values=VALUES)
    for values, n_jobs in ((sorted(VALUES), None), (VALUES[::-1], 3), (np.array(VALUES), 1)):
        other = path(OneVsAllClassifier(prune=0.01), X, Y, values=values, n_jobs=n_jobs)
        for row in range(3):
            for part in ("data", "indices", "indptr"):
                a, b = (getattr(result.model(row).coef_, part) for result in (first, other))
                assert a.tobytes() == b.tobytes()
        for name in first.table:
            if name != "cpu_s":
                np.testing.assert_array_equal(first.table[name], other.table[name])


def test_thresholds_equal_fits_at_these_thresholds(data, solver):
    X, Y = data
    result = path(OneVsAllClassifier(prune=0.5), X, Y, values=[1.0], prune=[0.1, 0.0, 0.02])
    assert result.table["prune"].tolist() == [0.0, 0.02, 0.1]
    for row, threshold in enumerate([0.0, 0.02, 0.1]):
        model, alone = result.model(row), OneVsAllClassifier(prune=threshold).fit(X, Y)
        assert model.prune == threshold
        assert type(model.coef_) is type(alone.coef_)
        assert (sp.csr_array(model.coef_) != sp.csr_array(alone.coef_)).nnz == 0
        np.testing.assert_array_equal(model.intercept_, alone.intercept_)
        assert result.table["n_weights"][row] == np.count_nonzero(sp.csr_array(alone.coef_).data)
        assert result.table["primal"][row] == pytest.approx(objective(X, Y, model), rel=1e-9)
        assert model.certificate_.dual == pytest.approx(alone.certificate_.dual, rel=1e-12)
        assert model.certificate_.worst.index == alone.certificate_.worst.index
        assert not sp.csr_array(model.coef_).data.flags.writeable or threshold == 0.0
    assert (np.diff(result.table["n_weights"]) < 0).all()


def test_thresholds_go_with_every_value_and_share_its_fit(data, solver):
    X, Y = data
    result = path(OneVsAllClassifier(), X, Y, values=[0.5, 2.0], prune=[0.01, 0.05])
    pairs = list(zip(result.table["C"].tolist(), result.table["prune"].tolist(), strict=True))
    assert pairs == [(0.5, 0.01), (0.5, 0.05), (2.0, 0.01), (2.0, 0.05)]
    for row in (0, 2):
        pruned = result.model(row).coef_.copy()
        pruned.data = np.where(np.abs(pruned.data) >= 0.05, pruned.data, 0.0)
        np.testing.assert_array_equal(pruned.toarray(), result.model(row + 1).coef_.toarray())
        assert result.table["dual"][row] == result.table["dual"][row + 1]
    for row in range(4):
        assert result.table["primal"][row] == pytest.approx(objective(X, Y, result.model(row)), rel=1e-9)


def test_pruning_away_most_of_a_label_warns_in_a_sweep_too(data):
    X, Y = data
    with pytest.warns(UserWarning, match=r"prune=3 removed more than half"):
        path(OneVsAllClassifier(), X, Y, values=[1.0], prune=[0.01, 3.0])


def test_sample_weights_and_class_weights_are_those_of_fit(data, solver):
    X, Y = data
    weights = np.random.default_rng(4).integers(0, 3, X.shape[0])
    estimator = OneVsAllClassifier(class_weight="balanced", normalize=True, gap_tol=1e-5)
    result = path(estimator, X, Y, values=[0.5, 1.0], sample_weight=weights, prune=[0.001, 0.02])
    alone = clone(estimator).set_params(C=1.0, prune=0.02).fit(X, Y, sample_weight=weights)
    assert result.table["primal_before_pruning"][3] == pytest.approx(alone.certificate_.primal_before_pruning, rel=2e-5)
    assert result.table["primal"][3] == pytest.approx(alone.certificate_.primal, rel=1e-3)


def test_named_classes_are_scored_like_grid_search(classes):
    X, y = classes
    estimator = OneVsAllClassifier(fit_intercept=False)
    grid = GridSearchCV(estimator, {"C": sorted(VALUES)}, cv=3).fit(X, y)
    result = path(estimator, X, y, values=VALUES, cv=3)
    np.testing.assert_allclose(result.table["score"], grid.cv_results_["mean_test_score"], atol=1e-12)
    np.testing.assert_allclose(result.table["score_std"], grid.cv_results_["std_test_score"], atol=1e-12)
    assert result.best["C"] == grid.best_params_["C"]
    np.testing.assert_array_equal(result.best_model.predict(X), grid.predict(X))


def test_label_sets_are_scored_on_folds_and_on_held_out_rows(data):
    X, Y = data
    sets = [{f"label {j}" for j in row.indices} for row in Y]
    folds = list(KFold(3).split(X))
    result = path(OneVsAllClassifier(), X, sets, values=[1.0], cv=folds, scoring="precision@2")
    expected = []
    for train, test in folds:
        model = OneVsAllClassifier().fit(X[train], [sets[i] for i in train])
        best = model.predict_topk(X[test], 2).labels
        hits = [len(set(row) & sets[i]) for row, i in zip(best.tolist(), test, strict=True)]
        expected.append(np.mean(hits) / 2)
    assert result.table["precision@2"][0] == pytest.approx(np.mean(expected))
    held_out = path(
        OneVsAllClassifier(), X[:600], sets[:600], values=[1.0], X_test=X[600:], y_test=sets[600:],
        scoring={"mine": lambda model, X, y: float(len(y)), "own": None, "p1": "precision@1"},
    )  # fmt: skip
    assert held_out.score_names == ("mine", "own", "p1")
    alone = OneVsAllClassifier().fit(X[:600], sets[:600])
    assert held_out.row(0)["mine"] == 300.0
    assert held_out.row(0)["own"] == alone.score(X[600:], sets[600:])


def test_equal_scores_go_to_the_smallest_value_and_the_smallest_model(data):
    X, Y = data
    for keep in ("best", "all"):
        result = path(
            OneVsAllClassifier(), X, Y, values=VALUES, prune=[0.01, 0.02], X_test=X, y_test=Y, keep=keep,
            scoring=lambda model, X, y: float(model.C < 2),
        )  # fmt: skip
        assert result.best_index == 1
        assert (result.best_model.C, result.best_model.prune) == (0.25, 0.02)
        assert len(result.models) == (1 if keep == "best" else 6)
    with pytest.raises(ValueError, match="model of row 5 was not kept"):
        path(OneVsAllClassifier(), X, Y, values=VALUES, keep="none").model(5)


def test_transformers_of_a_pipeline_are_fitted_once(data):
    X, Y = data
    counts = X.copy()
    counts.data = np.ceil(5 * counts.data)
    pipeline = make_pipeline(TfidfTransformer(), OneVsAllClassifier(tol=1e-8, gap_tol=1e-12))
    result = path(pipeline, counts, Y, values=[0.5, 1.0], X_test=counts, y_test=Y, keep="all")
    alone = clone(pipeline).set_params(onevsallclassifier__C=1.0).fit(counts, Y)
    model = result.model(1)
    assert list(model.named_steps) == list(alone.named_steps)
    assert model[0] is result.model(0)[0]
    np.testing.assert_allclose(model[-1].coef_, alone[-1].coef_, atol=1e-5)
    assert result.table["score"][1] == pytest.approx(alone.score(counts, Y), abs=1e-3)
    assert not hasattr(pipeline[-1], "coef_")
    folds = path(pipeline, counts, Y, values=[1.0], cv=2)
    assert folds.table["score"][0] <= 1.0


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(max_iter=1000, tol=1e-8), LinearSVC(tol=1e-8, random_state=0)]
)
def test_other_estimators_take_part(classes, estimator):
    X, y = classes
    result = path(estimator, X, y, values=VALUES, sample_weight=np.ones(len(y)))
    for row, C in enumerate(sorted(VALUES)):
        alone = clone(estimator).set_params(C=C).fit(X, y)
        assert result.model(row).get_params() == alone.get_params()
        np.testing.assert_allclose(result.model(row).coef_, alone.coef_, atol=1e-3)
    assert np.isnan(result.table["primal"]).all()


def test_another_parameter_of_one_vs_all_can_be_walked(data):
    X, Y = data
    result = path(OneVsAllClassifier(gap_tol=None), X, Y, values=[1e-4, 1e-2], param="tol")
    assert [result.model(row).tol for row in range(2)] == [1e-4, 1e-2]


def test_the_table_is_plain_values_and_read_only(data):
    X, Y = data
    result = path(OneVsAllClassifier(prune=0.01), X, Y, values=[1.0], X_test=X, y_test=Y)
    table = result.to_dict()
    expected = {"C", "prune", "score", "cpu_s", "primal", "dual", "relative_gap", "primal_before_pruning", "n_iter"}
    assert set(table) == expected | {"n_weights", "model_bytes", "status"}
    assert all(type(value) in (int, float, str) for column in table.values() for value in column)
    coef, intercept = result.best_model.coef_, result.best_model.intercept_
    sizes = [part.nbytes for part in (coef.data, coef.indices, coef.indptr, intercept)]
    assert (table["n_weights"], table["model_bytes"]) == ([coef.nnz], [sum(sizes)])
    assert table["status"] == ["converged"]
    with pytest.raises(ValueError, match="read-only"):
        result.table["C"][0] = 2.0


BAD = [
    ({"values": []}, "nonempty sequence of finite numbers"),
    ({"values": [1.0, np.nan]}, "finite numbers"),
    ({"values": ["1"]}, "finite numbers"),
    ({"values": [1.0, 1.0]}, "must be distinct"),
    ({"values": [1.0, 0.0]}, r"'C' parameter .* \(0.0, inf\)"),
    ({"values": [-1.0]}, r"'C' parameter .* \(0.0, inf\)"),
    ({"values": [1.0], "param": "alpha"}, "no parameter 'alpha'; it has C, "),
    ({"values": [0.1], "param": "prune"}, "pass the thresholds as prune="),
    ({"values": [1.0], "prune": []}, "prune must be a nonempty sequence of finite, nonnegative numbers"),
    ({"values": [1.0], "prune": [-0.1]}, "prune must be a nonempty sequence of finite, nonnegative numbers"),
    ({"values": [1.0], "prune": ["x"]}, "prune must be a nonempty sequence of finite, nonnegative numbers"),
    ({"values": [1.0], "X_test": [[1.0]]}, "must be passed together"),
    ({"values": [1.0], "X_test": [[1.0]], "y_test": [1], "cv": 2}, "cannot be combined"),
    ({"values": [1.0], "scoring": "accuracy"}, "scoring requires rows"),
    ({"values": [1.0], "keep": "best"}, "keep='best' requires scores"),
    ({"values": [1.0], "keep": "some"}, "keep must be one of"),
    ({"values": [1.0], "cv": 2, "scoring": []}, "scoring must be a name"),
    ({"values": [1.0], "cv": 2, "scoring": "recall_ratio@3"}, "unknown score"),
    ({"values": [1.0], "cv": 2, "scoring": "precision@3"}, "requires a multi-label model"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_named(classes, options, message):
    with pytest.raises(ValueError, match=message):
        path(OneVsAllClassifier(), *classes, **options)


def test_estimators_without_what_is_asked_for_are_named(classes):
    with pytest.raises(ValueError, match="LinearSVC has no parameter 'prune'"):
        path(LinearSVC(), *classes, values=[1.0], prune=[0.1])
    with pytest.raises(ValueError, match="LinearSVC has no parameter 'n_jobs'"):
        path(LinearSVC(), *classes, values=[1.0], n_jobs=2)
    with pytest.raises(ValueError, match="which a model with a kernel does not have"):
        path(TopKClassifier(kernel="rbf"), *classes, values=[1.0], prune=[0.0, 0.1])
    with pytest.raises(ValueError, match="last step of the pipeline must be a classifier"):
        path(make_pipeline(TfidfTransformer()), *classes, values=[1.0])
    with pytest.raises(ValueError, match="none was scored"):
        _ = path(OneVsAllClassifier(), *classes, values=[1.0]).best
