"""TopKClassifier, linear: scikit-learn's own checks, the laws of the family, and input of every form."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_class_weight

from estimator_checks import scikit_learn_checks
from widemargin import Status, TopKClassifier

TIGHT = {"tol": 1e-6, "max_iter": 20_000, "random_state": 0}


@scikit_learn_checks(TopKClassifier(), TopKClassifier(loss="alpha"), TopKClassifier(smoothing=0.5, prune=1e-6))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """Five overlapping classes; a row of zeros, a repeated row, and a class with one sample."""
    rng = np.random.default_rng(0)
    y = np.append(np.arange(43) % 4, [1, 4])
    X = np.eye(5)[y] @ rng.normal(size=(5, 6)) + 0.7 * rng.normal(size=(45, 6))
    X[5] = 0.0
    X[7] = X[11]
    return X, y


def loss_of(scores, y, k, variant):
    """Σ of the top-k hinge, row by row."""
    losses = []
    for row, true in zip(scores, y, strict=True):
        margins = sorted((1 + s - row[true] for j, s in enumerate(row) if j != true), reverse=True)[:k]
        positive = [max(0.0, z) for z in margins] if variant == "beta" else margins
        losses.append(max(0.0, sum(positive) / k))
    return np.array(losses)


def objective(model, X, y, weights=None):
    """The objective of a fitted multiclass model, from its definition."""
    W, b = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
    penalty = 0.5 * (W**2).sum() + 0.5 * (b**2).sum() / model.intercept_scaling**2
    losses = loss_of(X @ W.T + b, y, model.k, model.loss)
    return penalty + model.C * (losses @ (np.ones(len(y)) if weights is None else weights))


def distance(a, b):
    """‖W_a − W_b‖, intercepts included as the penalty sees them."""
    of_intercepts = (a.intercept_ - b.intercept_) / a.intercept_scaling
    return np.hypot(np.linalg.norm(a.coef_ - b.coef_), np.linalg.norm(of_intercepts))


def allowed_distance(a, b):
    """Two points of one 1-strongly convex problem are each within √(2·gap) of its minimum."""
    return np.sqrt(2 * a.certificate_.gap) + np.sqrt(2 * b.certificate_.gap) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "loss", "scaling"), [(1, "beta", 1.0), (2, "beta", 3.0), (3, "alpha", 3.0), (4, "alpha", 1.0)]
)
def test_the_certificate_holds_the_optimum_of_an_independent_solver(data, k, loss, scaling):
    X, y = data
    C = 0.1
    model = TopKClassifier(k, C, loss=loss, intercept_scaling=scaling, **TIGHT).fit(X, y)
    assert model.certificate_.primal == pytest.approx(objective(model, X, y), rel=1e-9)
    rows = np.hstack([X, np.full((len(X), 1), scaling)])
    W = cp.Variable((5, 7))
    losses = []
    for x, true in zip(rows, y, strict=True):
        margins = 1 + cp.hstack([(W[j] - W[true]) @ x for j in range(5) if j != true])
        largest = cp.sum_largest(cp.pos(margins) if loss == "beta" else margins, k)
        losses.append(cp.pos(largest) / k)
    optimum = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2 + C * sum(losses))).solve(solver=cp.CLARABEL)
    assert model.certificate_.dual <= optimum * (1 + 1e-7)
    assert optimum <= model.certificate_.primal * (1 + 1e-7)
    assert model.certificate_.relative_gap <= 1e-6


def test_k_1_is_the_multiclass_svm_of_crammer_and_singer(data):
    X, y = data
    ours = TopKClassifier(C=0.5, fit_intercept=False, **TIGHT).fit(X, y)
    theirs = LinearSVC(C=0.5, multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=100_000).fit(X, y)
    reached = 0.5 * (theirs.coef_**2).sum() + 0.5 * loss_of(X @ theirs.coef_.T, y, 1, "beta").sum()
    assert ours.certificate_.dual <= reached <= ours.certificate_.primal * (1 + 1e-5)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_array_equal(ours.intercept_, 0.0)


@pytest.mark.parametrize("loss", ["alpha", "beta"])
def test_two_classes_are_the_binary_svm_with_twice_the_C(data, loss):
    X, y = data[0], np.where(data[1] % 2, "odd", "even")
    ours = TopKClassifier(C=0.05, loss=loss, intercept_scaling=2.0, **TIGHT).fit(X, y)
    theirs = LinearSVC(C=0.1, loss="hinge", intercept_scaling=2.0, tol=1e-10, max_iter=1_000_000).fit(X, y)
    assert ours.coef_.shape == (1, 6)
    assert ours.decision_function(X).shape == (45,)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=0.01)
    signs = np.where(y == "odd", 1, -1)
    hinges = np.maximum(0, 1 - signs * theirs.decision_function(X)).sum()
    binary = 0.5 * (theirs.coef_**2).sum() + 0.5 * (theirs.intercept_[0] / 2) ** 2 + 0.1 * hinges
    # ½‖W‖² = ¼‖w‖², so the objective is half of the binary one.
    assert ours.certificate_.dual <= binary / 2 <= ours.certificate_.primal * (1 + 1e-5)
    np.testing.assert_array_equal(ours.predict(X), ours.classes_[(ours.decision_function(X) > 0).astype(int)])


def test_a_repeated_row_equals_its_weight(data):
    X, y = data
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    weights[-1] = 1  # the only row of its class
    weighted = TopKClassifier(2, 0.3, tol=1e-5, random_state=0).fit(X, y, sample_weight=weights)
    rows = np.repeat(np.arange(len(y)), weights)
    repeated = TopKClassifier(2, 0.3, tol=1e-5, random_state=0).fit(X[rows], y[rows])
    assert distance(weighted, repeated) <= allowed_distance(weighted, repeated)
    assert weighted.certificate_.primal == pytest.approx(objective(weighted, X, y, weights), rel=1e-9)
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-4)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 2.0, 3: 0.5}])
def test_class_weights_are_weights_of_the_rows(data, class_weight):
    X, y = data
    by_class = TopKClassifier(2, 0.1, class_weight=class_weight, random_state=0).fit(X, y)
    factors = compute_class_weight("balanced", classes=np.arange(5), y=y) if class_weight == "balanced" else None
    of_rows = factors[y] if factors is not None else np.array([class_weight.get(label, 1.0) for label in y])
    by_row = TopKClassifier(2, 0.1, random_state=0).fit(X, y, sample_weight=of_rows)
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-9, atol=1e-12)


def test_balanced_weights_count_repeated_rows_as_weights(data):
    X, y = data
    weights = 1 + np.arange(len(y)) % 3
    weighted = TopKClassifier(2, 0.1, class_weight="balanced", random_state=0).fit(X, y, sample_weight=weights)
    rows = np.repeat(np.arange(len(y)), weights)
    repeated = TopKClassifier(2, 0.1, class_weight="balanced", random_state=0).fit(X[rows], y[rows])
    assert distance(weighted, repeated) <= allowed_distance(weighted, repeated)


def test_smoothing_stays_below_the_plain_loss_and_close_to_it(data):
    X, y = data
    plain = TopKClassifier(2, 0.3, **TIGHT).fit(X, y)
    smooth = TopKClassifier(2, 0.3, smoothing=0.1, **TIGHT).fit(X, y)
    most = 0.3 * len(y) * 0.1 / (2 * 2)  # C n γ/(2k)
    assert plain.certificate_.dual - most <= smooth.certificate_.primal <= plain.certificate_.primal
    assert smooth.certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize("form", ["csr", "csr_int64", "csc", "fortran", "float32", "pandas", "memory map", "list"])
def test_every_form_of_the_same_input_gives_the_same_model(data, form, tmp_path):
    X, y = data
    X = X.astype(np.float32).astype(np.float64)  # so that float32 is the same problem
    expected = TopKClassifier(2, 0.1, random_state=0).fit(X, y)
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    np.save(tmp_path / "X.npy", X)
    given = {
        "csr": sp.csr_matrix(X),
        "csr_int64": wide,
        "csc": sp.csc_array(X),
        "fortran": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "pandas": pd.DataFrame(X, columns=[f"f{i}" for i in range(6)]),
        "memory map": np.load(tmp_path / "X.npy", mmap_mode="r"),
        "list": X.tolist(),
    }[form]
    model = TopKClassifier(2, 0.1, random_state=0).fit(given, y)
    assert distance(model, expected) <= allowed_distance(model, expected)
    np.testing.assert_allclose(model.decision_function(given), X @ model.coef_.T + model.intercept_, atol=1e-5)
    assert hasattr(model, "feature_names_in_") == (form == "pandas")


@pytest.mark.parametrize("labels", [["ash", "beech", "cedar", "fir", "oak"], [3, 5, 8, 13, 21]], ids=str)
def test_labels_of_any_type_come_back(data, labels):
    X, y = data[0], np.array(labels)[data[1]]
    model = TopKClassifier(2, 0.1, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.classes_, labels)
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])
    top = model.predict_topk(X, k=7)
    order = np.argsort(-scores, axis=1, kind="stable")
    np.testing.assert_array_equal(top.indices[:, :5], order)
    np.testing.assert_array_equal(top.scores[:, :5], np.take_along_axis(scores, order, axis=1))
    assert (top.indices[:, 5:] == -1).all()
    np.testing.assert_array_equal(model.label_scores(X, y), scores[np.arange(len(y)), data[1]])
    assert model.score(X, y) == np.mean(model.predict(X) == y)


def test_it_works_in_pipelines_and_searches(data):
    X, y = data[0][:40], data[1][:40]
    pipeline = make_pipeline(StandardScaler(), TopKClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"topkclassifier__C": [0.01, 0.1], "topkclassifier__k": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["topkclassifier__k"] in (1, 2)
    assert len(cross_val_score(pipeline, X, y, cv=2)) == 2
    copy = clone(search.best_estimator_[-1])
    assert copy.get_params() == search.best_estimator_[-1].get_params()
    assert not hasattr(copy, "coef_")


def test_attributes_say_what_happened(data):
    X, y = data
    model = TopKClassifier(2, 0.1, random_state=0).fit(X, y)
    assert model.status_ is Status.CONVERGED
    assert model.certificate_.relative_gap <= 1e-3
    assert isinstance(model.n_iter_, int)
    assert model.n_iter_ >= 1
    assert model.history_["primal"][-1] == pytest.approx(model.certificate_.primal, rel=1e-3)
    assert (model.n_features_in_, model.n_samples_fit_, model.kind_) == (6, 45, "multiclass")
    np.testing.assert_array_equal(model.label_counts_, np.bincount(y))
    assert not model.coef_.flags.writeable


def test_random_state_is_scikit_learns(data):
    X, y = data

    def weights(random_state):
        return TopKClassifier(2, 0.1, random_state=random_state).fit(X, y).coef_

    np.testing.assert_array_equal(weights(3), weights(3))
    assert (weights(3) != weights(4)).any()
    state = np.random.RandomState(3)
    np.testing.assert_array_equal(weights(state), weights(3))
    assert (weights(state) != weights(3)).any()  # the state has changed
    np.random.seed(3)  # noqa: NPY002 - None draws from the global state, as everywhere in scikit-learn
    np.testing.assert_array_equal(weights(None), weights(3))


def test_normalize_scales_rows_in_training_and_prediction(data):
    X, y = np.delete(data[0], 5, axis=0), np.delete(data[1], 5)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    inside = TopKClassifier(2, 0.1, normalize=True, random_state=0).fit(X, y)
    outside = TopKClassifier(2, 0.1, random_state=0).fit(unit, y)
    np.testing.assert_allclose(inside.coef_, outside.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(inside.decision_function(3 * X), outside.decision_function(unit), atol=1e-9)


def test_threads_do_not_change_the_model(data):
    X, y = data
    one, two = (TopKClassifier(2, 0.1, random_state=0, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_rows_of_weight_0_and_zero_rows_do_no_harm(data):
    X, y = data
    weights = np.ones(len(y))
    weights[[0, 5, 9]] = 0.0
    model = TopKClassifier(2, 0.1, random_state=0).fit(X, y, sample_weight=weights)
    kept = weights > 0
    without = TopKClassifier(2, 0.1, random_state=0).fit(X[kept], y[kept])
    assert distance(model, without) <= allowed_distance(model, without)


def test_stopping_early_warns_with_the_gap(data):
    with pytest.warns(ConvergenceWarning, match=r"certified relative gap is 0\.\d+; raise max_iter"):
        model = TopKClassifier(C=10.0, max_iter=1, tol=1e-9, random_state=0).fit(*data)
    assert model.status_ is Status.MAX_ITER
    assert model.certificate_.dual <= model.certificate_.primal


def test_dense_scores_beyond_the_memory_limit_are_refused(data):
    X, y = data
    model = TopKClassifier(2, 0.1, random_state=0).fit(X, y).set_params(memory_limit_mb=1e-4)
    with pytest.raises(MemoryError, match="predict_topk"):
        model.decision_function(X)
    assert model.predict_topk(X, 2).indices.shape == (45, 2)


@pytest.mark.parametrize(("k", "n_classes"), [(2, 2), (5, 5), (9, 3)])
def test_k_that_is_too_large_is_refused_with_the_largest_allowed(data, k, n_classes):
    X, y = data[0], np.arange(45) % n_classes
    with pytest.raises(
        ValueError, match=f"k={k} is too large, because y has {n_classes} classes; k must be at most {n_classes - 1}"
    ):
        TopKClassifier(k).fit(X, y)


def test_one_class_and_label_lists_are_refused(data):
    X = data[0]
    with pytest.raises(ValueError, match="only one class, 'oak'"):
        TopKClassifier().fit(X, ["oak"] * 45)
    with pytest.raises(ValueError, match=r"several labels per row.*OneVsAllClassifier"):
        TopKClassifier().fit(X, sp.csr_array(np.eye(45, 3)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"k": 0}, r"'k' parameter .* \[1, inf\)"),
        ({"k": 1.5}, r"'k' parameter .* \[1, inf\)"),
        ({"C": -1.0}, r"'C' parameter .* \(0.0, inf\)"),
        ({"loss": "hinge"}, "'loss' parameter of"),
        ({"smoothing": -0.1}, r"'smoothing' parameter .* \[0.0, inf\)"),
        ({"tol": 0.0}, r"'tol' parameter .* \(0.0, inf\)"),
        ({"intercept_scaling": 0.0}, r"'intercept_scaling' parameter .* \(0.0, inf\)"),
        ({"class_weight": "equal"}, "'class_weight' parameter of"),
        ({"class_weight": {17: 1.0}}, "class_weight contains 17"),
        ({"max_iter": 0}, r"'max_iter' parameter .* \[1, inf\)"),
        ({"n_jobs": 0}, "'n_jobs' parameter of"),
        ({"random_state": "x"}, "'random_state' parameter of"),
        ({"cache_size_mb": 0}, "'cache_size_mb' parameter of"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named_and_change_nothing(data, parameters, message):
    model = TopKClassifier(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(*data)
    assert not hasattr(model, "classes_")


def test_progress_is_printed_and_given_to_the_callback(data, capsys):
    calls = []
    TopKClassifier(2, 0.1, verbose=1, callback=lambda progress: calls.append(progress) or False, random_state=0).fit(
        *data
    )
    assert calls
    assert calls[-1].dual <= calls[-1].primal
    assert "passes in" in capsys.readouterr().out
