"""OneVsAllClassifier: scikit-learn's own checks, targets of every kind, and the laws of the family."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from widemargin import OneVsAllClassifier
from widemargin.solvers.one_vs_all.plan import SMALL_DENSE_WORK, SMALL_SPARSE_WORK

# Regularised intercept: the problem that LinearSVC solves, so there is an independent answer.
REGULARIZED = {"regularize_intercept": True}


@pytest.fixture(scope="module")
def multilabel():
    X, Y = make_multilabel_classification(n_samples=120, n_features=12, n_classes=6, random_state=3)
    return sp.csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True)), sp.csr_matrix(Y)


@parametrize_with_checks([OneVsAllClassifier(), OneVsAllClassifier(prune=1e-12, regularize_intercept=True)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_check_estimator_expects_no_failure():
    check_estimator(OneVsAllClassifier())


def test_multiclass_equals_linear_svc_solved_tightly():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400] / 16, y[:400]
    ours = OneVsAllClassifier(C=0.5, **REGULARIZED).fit(X, y)
    theirs = LinearSVC(C=0.5, dual=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_multilabel_equals_one_vs_rest_of_linear_svc(multilabel):
    X, Y = multilabel
    ours = OneVsAllClassifier(**REGULARIZED).fit(X, Y)
    theirs = OneVsRestClassifier(LinearSVC(dual=False, tol=1e-10, max_iter=10_000)).fit(X, Y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-6)
    assert (ours.predict(X) != theirs.predict(X)).nnz == 0


@pytest.mark.parametrize("form", ["csr", "csr_int64", "csc", "dense", "float32", "pandas", "sets"])
def test_every_form_of_the_same_input_gives_the_same_model(multilabel, form):
    X, Y = multilabel
    expected = OneVsAllClassifier().fit(X, Y).decision_function(X)
    given = {
        "csr": (sp.csr_array(X), sp.csr_array(Y)),
        "csr_int64": (_with_int64_indices(X), Y),
        "csc": (X.tocsc(), Y.tocsc()),
        "dense": (X.toarray(), Y.toarray()),
        "float32": (X.astype(np.float32), Y),
        "pandas": (pd.DataFrame(X.toarray(), columns=[f"f{i}" for i in range(X.shape[1])]), Y),
        "sets": (X, [set(Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()) for i in range(Y.shape[0])]),
    }[form]
    model = OneVsAllClassifier().fit(*given)
    tolerance = 1e-3 if form == "float32" else 1e-6
    np.testing.assert_allclose(model.decision_function(given[0]), expected, atol=tolerance)


def _with_int64_indices(X):
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    return wide


def test_read_only_memory_maps_are_taken_as_they_are(multilabel, tmp_path):
    X, Y = multilabel
    parts = []
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / name, getattr(X, name))
        parts.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    mapped = sp.csr_array(tuple(parts), shape=X.shape)
    expected = OneVsAllClassifier().fit(X, Y)
    np.testing.assert_array_equal(OneVsAllClassifier().fit(mapped, Y).coef_, expected.coef_)


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], [-1, 1], [False, True]], ids=str)
def test_binary_labels_of_any_type_come_back(labels):
    X, truth = make_classification(n_samples=80, random_state=0)
    y = np.array(labels)[truth]
    model = OneVsAllClassifier().fit(X, y)
    assert model.coef_.shape == (1, X.shape[1])
    assert model.decision_function(X).shape == (80,)
    assert set(model.predict(X)) == set(labels)
    np.testing.assert_array_equal(model.predict(X), model.classes_[(model.decision_function(X) > 0).astype(int)])
    top = model.predict_topk(X, k=3)
    np.testing.assert_array_equal(top.labels[:, 0], model.predict(X))
    np.testing.assert_array_equal(top.scores[:, 0], np.abs(model.decision_function(X)))
    assert (top.indices[:, 2] == -1).all()


def test_string_labels_in_sets_come_back_by_name(multilabel):
    X, Y = multilabel
    names = np.array(["ash", "beech", "cedar", "fir", "oak", "yew"])
    sets = [set(names[row.indices]) for row in map(Y.getrow, range(Y.shape[0]))]
    model = OneVsAllClassifier().fit(X, sets)
    np.testing.assert_array_equal(model.classes_, names)
    numbered = OneVsAllClassifier().fit(X, Y)
    np.testing.assert_array_equal(model.predict_topk(X, 2).labels, names[numbered.predict_topk(X, 2).indices])
    assert model.score(X, sets) == numbered.score(X, Y)
    assert sp.issparse(model.predict(X))


def test_multilabel_output_follows_the_form_of_the_targets(multilabel):
    X, Y = multilabel
    assert sp.issparse(OneVsAllClassifier().fit(X, Y).predict(X))
    assert isinstance(OneVsAllClassifier().fit(X, Y.toarray()).predict(X), np.ndarray)


def test_topk_is_the_sorted_decision_function(multilabel):
    X, Y = multilabel
    model = OneVsAllClassifier(prune=0.05).fit(X, Y)
    scores = model.decision_function(X)
    order = np.argsort(-scores, axis=1, kind="stable")
    top = model.predict_topk(X, k=4)
    np.testing.assert_array_equal(top.indices, order[:, :4])
    np.testing.assert_array_equal(top.scores, np.take_along_axis(scores, order[:, :4], axis=1))


def test_label_scores_are_entries_of_the_decision_function(multilabel):
    X, Y = multilabel
    model = OneVsAllClassifier().fit(X, Y)
    found = model.label_scores(X, Y)
    scores = model.decision_function(X)
    rows, columns = Y.nonzero()
    np.testing.assert_array_equal(found.toarray()[rows, columns], scores[rows, columns])
    assert found.nnz == Y.nnz
    y = np.asarray(scores.argmax(axis=1))
    multiclass = OneVsAllClassifier().fit(X, y)
    np.testing.assert_array_equal(multiclass.label_scores(X, y), multiclass.decision_function(X)[np.arange(len(y)), y])


def test_label_without_positives_or_with_positives_only_is_solved_exactly():
    X = np.arange(12.0).reshape(6, 2)
    Y = np.array([[0, 1, i % 2] for i in range(6)])
    model = OneVsAllClassifier().fit(X, Y)
    np.testing.assert_array_equal(model.coef_[:2], 0)
    np.testing.assert_array_equal(model.intercept_[:2], [-1, 1])
    np.testing.assert_allclose(model.certificate_.primal, model.certificate_.dual, rtol=1e-9)


def test_repeated_rows_equal_their_weights(multilabel):
    X, Y = multilabel
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, X.shape[0])
    weighted = OneVsAllClassifier().fit(X, Y, sample_weight=weights)
    rows = np.repeat(np.arange(X.shape[0]), weights)
    repeated = OneVsAllClassifier().fit(X[rows], Y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-7)
    np.testing.assert_allclose(weighted.certificate_.primal, repeated.certificate_.primal, rtol=1e-9)


def test_class_weight_multiplies_the_weights_of_the_positive_rows(multilabel):
    X, Y = multilabel
    model = OneVsAllClassifier(class_weight={2: 3.0}).fit(X, Y)
    positives = Y[:, [2]].toarray()[:, 0]
    alone = OneVsAllClassifier().fit(X, positives, sample_weight=1 + 2.0 * positives)
    np.testing.assert_allclose(model.coef_[2], alone.coef_[0], atol=1e-6)
    np.testing.assert_allclose(model.coef_[1], OneVsAllClassifier().fit(X, Y).coef_[1], atol=1e-6)


def test_balanced_class_weight_is_scikit_learns_on_a_binary_problem():
    X, y = make_classification(n_samples=90, weights=[0.8], random_state=1)
    ours = OneVsAllClassifier(class_weight="balanced", **REGULARIZED).fit(X, y)
    theirs = LinearSVC(class_weight="balanced", dual=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


def test_pruning_keeps_large_weights_only_and_is_certified_as_stored(multilabel):
    X, Y = multilabel
    full = OneVsAllClassifier().fit(X, Y)
    pruned = OneVsAllClassifier(prune=0.3).fit(X, Y)
    kept = np.where(np.abs(full.coef_) >= 0.3, full.coef_, 0)
    np.testing.assert_allclose(pruned.coef_.toarray(), kept, atol=1e-7)
    np.testing.assert_allclose(pruned.intercept_, full.intercept_, atol=1e-7)
    margins = (2.0 * Y.toarray() - 1) * (X @ pruned.coef_.toarray().T + pruned.intercept_)
    objective = 0.5 * (kept**2).sum() + (np.maximum(0, 1 - margins) ** 2).sum()
    np.testing.assert_allclose(pruned.certificate_.primal, objective, rtol=1e-9)
    np.testing.assert_allclose(pruned.certificate_.primal_before_pruning, full.certificate_.primal, rtol=1e-9)


def test_pruning_most_of_a_label_warns(multilabel):
    X, Y = multilabel
    with pytest.warns(UserWarning, match="more than half"):
        OneVsAllClassifier(prune=100.0).fit(X, Y)


def test_stopping_early_warns_with_the_gap():
    X, y = make_classification(n_samples=200, random_state=0)
    with pytest.warns(ConvergenceWarning, match="certified relative gap"):
        OneVsAllClassifier(max_iter=1).fit(X, y)


def test_callback_stops_training_with_honest_bounds(multilabel):
    X, Y = multilabel
    calls = []

    def stop(progress):
        calls.append(progress)
        return True

    with pytest.warns(ConvergenceWarning, match="stopped"):
        model = OneVsAllClassifier(callback=stop).fit(X, Y)
    assert len(calls) == 1
    optimum = OneVsAllClassifier().fit(X, Y).certificate_
    assert model.certificate_.dual <= optimum.primal
    assert model.certificate_.primal >= optimum.dual


def test_warm_start_reaches_the_same_solution_in_fewer_steps():
    X, Y = make_multilabel_classification(n_samples=300, n_features=40, n_classes=5, random_state=0)
    model = OneVsAllClassifier(warm_start=True, C=1.0).fit(X, Y)
    cold = model.n_iter_.sum()
    coef = model.coef_.copy()
    model.fit(X, Y)
    assert model.n_iter_.sum() < cold
    np.testing.assert_allclose(model.coef_, coef, atol=1e-7)


def test_threads_do_not_change_the_model(multilabel):
    X, Y = multilabel
    one, five = (OneVsAllClassifier(n_jobs=n).fit(X, Y) for n in (1, 5))
    np.testing.assert_array_equal(one.coef_, five.coef_)
    np.testing.assert_array_equal(one.predict_topk(X, 3).scores, five.predict_topk(X, 3).scores)


def test_normalize_is_a_normalizer_in_front(multilabel):
    X = multilabel[0].multiply(np.arange(1, 121)[:, None]).tocsr()
    Y = multilabel[1]
    inside = OneVsAllClassifier(normalize=True).fit(X, Y)
    outside = make_pipeline(Normalizer(), OneVsAllClassifier()).fit(X, Y)
    np.testing.assert_allclose(inside.decision_function(X), outside.decision_function(X), atol=1e-6)


def test_decision_function_refuses_to_exceed_its_memory(multilabel):
    X, Y = multilabel
    model = OneVsAllClassifier(memory_limit_mb=0.001).fit(X, Y)
    with pytest.raises(MemoryError, match="predict_topk"):
        model.decision_function(X)
    roomy = OneVsAllClassifier().fit(X, Y)
    np.testing.assert_array_equal(model.predict_topk(X, 2).indices, roomy.predict_topk(X, 2).indices)
    assert (model.predict(X) != roomy.predict(X)).nnz == 0


def test_pipeline_grid_search_and_clone_with_sparse_multilabel_targets():
    words = ["red apple", "green apple", "red car", "green car", "fast car", "sweet apple"] * 6
    Y = sp.csr_array(np.array([["apple" in w, "car" in w, "red" in w] for w in words], dtype=int))
    pipeline = make_pipeline(TfidfVectorizer(), OneVsAllClassifier())
    search = GridSearchCV(pipeline, {"onevsallclassifier__C": [0.1, 10.0]}, cv=3).fit(words, Y)
    assert search.best_score_ == 1.0
    assert (
        clone(search.best_estimator_).get_params()["onevsallclassifier__C"]
        == search.best_params_["onevsallclassifier__C"]
    )


def test_grid_search_and_cross_validation_with_string_labels():
    X, y = load_digits(return_X_y=True)
    names = np.array(["even", "odd"])[y % 2]
    assert cross_val_score(OneVsAllClassifier(), X[:300] / 16, names[:300], cv=3).mean() > 0.8
    search = GridSearchCV(OneVsAllClassifier(), {"C": [1e-4, 1.0]}, cv=3).fit(X[:300] / 16, names[:300])
    assert search.best_params_ == {"C": 1.0}


def test_sample_weight_goes_through_metadata_routing():
    from sklearn import config_context

    X, y = make_classification(n_samples=60, random_state=0)
    weights = np.random.default_rng(0).random(60)
    with config_context(enable_metadata_routing=True):
        model = OneVsAllClassifier().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(Normalizer(), model).fit(X, y, sample_weight=weights)
    direct = OneVsAllClassifier(normalize=True).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(pipeline[-1].coef_, direct.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, r"'C' parameter .* \(0.0, inf\)"),
        ({"C": "1"}, "'C' parameter of"),
        ({"C": np.nan}, "'C' parameter of"),
        ({"loss": "hinge"}, "'loss' parameter of"),
        ({"init": "random"}, "'init' parameter of"),
        ({"n_jobs": 0}, "'n_jobs' parameter of"),
        ({"tol": -1.0}, "'tol' parameter of"),
        ({"gap_tol": 0.0}, "'gap_tol' parameter of"),
        ({"prune": -0.1}, "'prune' parameter of"),
        ({"prune": np.nan}, "'prune' parameter of"),
        ({"max_iter": 1.5}, "'max_iter' parameter of"),
        ({"class_weight": "even"}, "'class_weight' parameter of"),
        ({"class_weight": {7: 1.0}}, "7, which is not a label"),
        ({"class_weight": {0: -1.0}}, "class_weight of 0"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, y = make_classification(n_samples=20, random_state=0)
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("fit_arguments", "message"),
    [
        (([[1.0], [2.0]], ["a", "a"]), "only one class"),
        (([[1.0], [2.0]], ["a", "b"], [1.0, -1.0]), "[Nn]egative"),
        (([[1.0], [2.0]], ["a", "b"], [1.0]), "sample_weight"),
        (([[1.0], [2.0]], ["a", "b"], [1.0, np.inf]), "sample_weight contains infinity"),
        (([[1.0], [2.0]], ["a", "b"], [0.0, 0.0]), "[Ss]ample.weight"),
        (([[1.0], [2.0]], sp.csr_array((2, 0))), "no row of y has a label"),
        (([[1.0], [2.0], [3.0]], ["a", "b"]), "inconsistent numbers of samples"),
        (([[1.0], [2.0]], [0.3, 0.7]), "Unknown label type"),
        (([[1.0], [2.0]], np.array([[0, 2], [1, 0]])), "an indicator matrix must contain only 0 and 1"),
        (([[np.inf], [2.0]], ["a", "b"]), "infinity"),
    ],
)
def test_bad_input_is_named(fit_arguments, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier().fit(*fit_arguments)


def test_unfitted_model_says_so():
    for method in ("predict", "decision_function", "predict_topk"):
        with pytest.raises(NotFittedError):
            getattr(OneVsAllClassifier(), method)([[1.0]])


def test_label_names_replace_column_numbers(multilabel):
    X, Y = multilabel
    model = OneVsAllClassifier().fit(X, Y).set_label_names(list("abcdef"))
    indices = model.predict_topk(X, 2).indices
    np.testing.assert_array_equal(model.predict_topk(X, 2).labels, np.array(list("abcdef"), dtype=object)[indices])
    with pytest.raises(ValueError, match="one label name for each of the 6 labels; got 2"):
        model.set_label_names(["a", "b"])
    with pytest.raises(ValueError, match="distinct"):
        model.set_label_names(list("abcdee"))


def test_verbose_prints_progress(multilabel, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OneVsAllClassifier(verbose=1).fit(*multilabel)
    assert "6 of 6 labels" in capsys.readouterr().out


@pytest.mark.parametrize("dense", [True, False])
def test_only_very_small_problems_are_solved_to_rounding_error(dense):
    """The number of labels counts: it makes even a problem with few values slow."""
    limit = SMALL_DENSE_WORK if dense else SMALL_SPARSE_WORK
    rng = np.random.default_rng(0)
    n_labels, n_features = 25, 20
    n_rows = limit // n_labels // n_features - 1
    X = rng.normal(size=(n_rows + 1, n_features)).astype(np.float32)
    Y = (X @ rng.normal(size=(n_features, n_labels)) > 1).astype(int)
    gaps = []
    for n in (n_rows, n_rows + 1):
        rows = X[:n] if dense else sp.csr_array(X[:n])
        gaps.append(OneVsAllClassifier().fit(rows, sp.csr_array(Y[:n])).certificate_.relative_gap)
    assert n_labels * (n_rows + 1) * n_features == limit
    assert gaps[0] < 1e-10 < gaps[1] < 1e-3
