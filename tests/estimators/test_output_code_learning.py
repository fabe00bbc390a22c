"""Learned codes inside OutputCodeClassifier: their input, the objective, rounds, bounds, errors."""

from __future__ import annotations

import types

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier

from widemargin import OneVsAllClassifier, OutputCodeClassifier, Status, TimeLimit
from widemargin.estimators.codes.classifier import fold_of_rows, margins_of, retraining_task

NAMES = np.array(["ash", "beech", "cedar", "fir"])


@pytest.fixture(scope="module")
def data():
    """Four overlapping classes, and one row alone in its class."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 4
    X = np.eye(4, 5)[y] @ rng.normal(size=(5, 5)) + 0.6 * rng.normal(size=(80, 5))
    return X, NAMES[y]


def held_out_outputs(template, X, y, code, splits):
    """Outputs of classifiers that did not see the row, column by column."""
    h = np.empty((len(y), code.shape[1]))
    targets = code[np.searchsorted(NAMES, y)]
    for train, test in splits:
        for j, t in enumerate(targets.T):
            h[test, j] = clone(template).fit(X[train], t[train]).decision_function(X[test])
    return h


def objective(M, h, y, C, norm):
    """‖M‖ + C Σ ξ, from the definition."""
    scores, rows, true = h @ M.T, np.arange(len(y)), np.searchsorted(NAMES, y)
    margins = 1.0 + scores - scores[rows, true][:, None]
    margins[rows, true] = 0.0
    sizes = {"l1": np.abs(M).sum(), "linf": np.abs(M).max(), "l2": 0.5 * (M**2).sum()}
    return sizes[norm] + C * margins.max(axis=1).sum()


@pytest.mark.parametrize("learn", ["l1", "l2", "linf"])
def test_the_code_is_learned_on_outputs_for_rows_not_seen(data, learn):
    X, y = data
    folds = KFold(4)
    model = OutputCodeClassifier(learn=learn, C=0.7, cv=folds, tol=1e-7, random_state=0).fit(X, y)
    h = held_out_outputs(OneVsAllClassifier(), X, y, model.code_book_, folds.split(X))
    assert model.certificate_.primal == pytest.approx(objective(model.code_matrix_, h, y, 0.7, learn), rel=1e-5)
    assert model.certificate_.relative_gap <= 1e-7
    rng = np.random.default_rng(0)
    for _ in range(20):  # a minimum: no point near it is better
        near = model.code_matrix_ + 0.01 * rng.normal(size=model.code_matrix_.shape)
        assert objective(near, h, y, 0.7, learn) >= model.certificate_.dual * (1 - 1e-6)


def test_training_outputs_are_taken_when_asked_for(data):
    X, y = data
    model = OutputCodeClassifier(learn="l1", cv="training", random_state=0).fit(X, y)
    h = np.column_stack([column.decision_function(X) for column in model.estimators_])
    assert model.certificate_.primal == pytest.approx(objective(model.code_matrix_, h, y, 1.0, "l1"), rel=1e-7)
    np.testing.assert_allclose(model.decision_function(X), h @ model.code_matrix_.T, atol=1e-10)


@pytest.mark.slow
def test_other_classifiers_are_held_out_as_well(data):
    X, y = data
    inner = LogisticRegression(C=3.0)
    model = OutputCodeClassifier(inner, learn="linf", cv=KFold(3), random_state=0).fit(X, y)
    h = held_out_outputs(inner, X, y, model.code_book_, KFold(3).split(X))
    assert model.certificate_.primal == pytest.approx(objective(model.code_matrix_, h, y, 1.0, "linf"), rel=1e-6)


@pytest.mark.parametrize("learn", ["l1", "l2", "linf"])
def test_the_norm_stays_within_its_bound(data, learn):
    model = OutputCodeClassifier(learn=learn, norm_bound=0.5, random_state=0).fit(*data)
    M = model.code_matrix_
    size = {"l1": np.abs(M).sum(), "linf": np.abs(M).max(), "l2": np.linalg.norm(M)}[learn]
    assert size == pytest.approx(0.5, rel=1e-3)
    assert size <= 0.5 * (1 + 1e-9)


@pytest.mark.slow
def test_learning_the_code_lifts_digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:1000] / 16, y[:1000]
    drawn, learned = (
        OutputCodeClassifier(learn=learn, random_state=0).fit(X[:500], y[:500]).score(X[500:], y[500:])
        for learn in (None, "l2")
    )
    assert learned > drawn + 0.02


def test_folds_divide_every_class_and_leave_out_rows_without_weight():
    y = np.repeat([0, 1, 2], [20, 11, 1])
    weights = np.ones(32)
    weights[:3] = 0.0
    fold = fold_of_rows(4, None, y, weights, np.random.default_rng(0))
    assert (fold[:3] == -1).all()
    assert np.bincount(fold[3:]).tolist() in ([7, 7, 7, 8], [8, 7, 7, 7], [7, 8, 7, 7], [7, 7, 8, 7])
    for r in (0, 1):
        of_class = fold[(y == r) & (weights > 0)]
        assert np.ptp(np.bincount(of_class, minlength=4)) <= 1
    assert set(fold_of_rows(None, None, y, None, np.random.default_rng(0))) == set(range(5))


@pytest.mark.slow
def test_a_class_with_one_row_can_be_held_out(data):
    X, y = np.vstack([data[0], np.full((1, 5), 4.0)]), np.append(data[1], "yew")
    for code in ("one-vs-rest", "all-pairs", "random"):
        for inner in (None, LogisticRegression()):
            model = OutputCodeClassifier(inner, code=code, learn="l1", random_state=0).fit(X, y)
            assert len(model.classes_) == 5
            assert model.score(X, y) > 0.5


@pytest.mark.parametrize("cv", [ShuffleSplit(2, random_state=0), [(np.arange(40), np.arange(40, 80))]])
def test_splits_that_are_no_partition_are_refused(data, cv):
    with pytest.raises(ValueError, match=r"cv (holds a row out twice|never holds out)"):
        OutputCodeClassifier(learn="l1", cv=cv).fit(*data)


def test_rows_without_weight_count_as_absent(data):
    X, y = data
    weights = np.where(np.arange(80) % 5 == 0, 0.0, 1.0)
    model = OutputCodeClassifier(learn="l1", random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    absent = clone(model).fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(weighted.certificate_.primal, absent.certificate_.primal, rtol=0.3)
    training = clone(model).set_params(cv="training")
    weighted, absent = training.fit(X, y, sample_weight=weights), clone(training).fit(X[weights > 0], y[weights > 0])
    assert weighted.certificate_.primal == pytest.approx(absent.certificate_.primal, rel=1e-6)


def test_a_repeated_row_equals_its_weight_in_the_code(data):
    """Two fits of one 1-strongly convex problem differ by at most √(2·gap₁) + √(2·gap₂)."""
    X, y = data
    weights = np.random.default_rng(1).integers(1, 4, 80)
    options = {"learn": "l2", "cv": "training", "tol": 1e-6, "random_state": 0}
    weighted = OutputCodeClassifier(**options).fit(X, y, sample_weight=weights.astype(float))
    repeated = OutputCodeClassifier(**options).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    allowed = sum(np.sqrt(2 * model.certificate_.gap) for model in (weighted, repeated))
    np.testing.assert_allclose(weighted.code_book_, repeated.code_book_)
    assert np.linalg.norm(weighted.code_matrix_ - repeated.code_matrix_) <= allowed + 1e-3


# Kernels of outputs.


def product(A, B, scale=1.0):
    return scale * (A @ B.T)


def test_a_kernel_code_scores_by_its_support(data):
    X, y = data
    model = OutputCodeClassifier(learn="l2", kernel="rbf", gamma=0.3, C=2.0, random_state=0).fit(X, y)
    h = np.column_stack([column.decision_function(X) for column in model.estimators_])
    np.testing.assert_allclose(
        model.decision_function(X), rbf_kernel(h, model.support_vectors_, gamma=0.3) @ model.dual_coef_.T, atol=1e-8
    )
    assert model.dual_coef_.shape == (4, len(model.support_))
    assert model.gamma_ == 0.3
    np.testing.assert_allclose(model.dual_coef_.sum(axis=0), 0.0, atol=1e-9)
    with pytest.raises(AttributeError, match="its code has a kernel"):
        _ = model.code_matrix_


def test_the_objective_of_a_kernel_code_is_certified(data):
    X, y = data
    model = OutputCodeClassifier(learn="l2", kernel="rbf", C=2.0, cv="training", random_state=0).fit(X, y)
    h = np.column_stack([column.decision_function(X) for column in model.estimators_])
    A, rows, true = model.dual_coef_, np.arange(80), np.searchsorted(NAMES, y)
    assert model.gamma_ == pytest.approx(1 / (h.shape[1] * h.var()))
    np.testing.assert_allclose(model.support_vectors_, h[model.support_], atol=1e-12)
    scores = rbf_kernel(h, h[model.support_], gamma=model.gamma_) @ A.T
    margins = 1.0 + scores - scores[rows, true][:, None]
    margins[rows, true] = 0.0
    norm = np.sum((A @ rbf_kernel(h[model.support_], gamma=model.gamma_)) * A)
    assert model.certificate_.primal == pytest.approx(norm / 2 + 2.0 * margins.max(axis=1).sum(), rel=1e-6)
    assert model.certificate_.relative_gap <= model.tol


def test_the_kernel_that_is_the_inner_product_gives_the_matrix_code(data):
    X, y = data
    options = {"learn": "l2", "tol": 1e-6, "random_state": 0}
    matrix = OutputCodeClassifier(**options).fit(X, y)
    kernel = OutputCodeClassifier(kernel=product, **options).fit(X, y)
    assert kernel.certificate_.primal == pytest.approx(matrix.certificate_.primal, rel=1e-5)
    implied = kernel.dual_coef_ @ kernel.support_vectors_
    allowed = sum(np.sqrt(2 * model.certificate_.gap) for model in (matrix, kernel))
    assert np.linalg.norm(implied - matrix.code_matrix_) <= allowed + 1e-6
    half = OutputCodeClassifier(kernel=product, kernel_params={"scale": 0.25}, **options).fit(X, y)
    assert half.certificate_.primal > kernel.certificate_.primal


def test_the_bound_of_a_kernel_code_is_that_of_its_space(data):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.eye(3)[y] + 0.02 * rng.normal(size=(60, 3))
    options = {"learn": "l2", "C": 100.0, "cv": "training", "random_state": 0, "tol": 1e-6}
    values = [OutputCodeClassifier(kernel=k, **options).fit(X, y).generalization_bound() for k in ("linear", product)]
    assert values[1].value == pytest.approx(values[0].value, rel=0.02)
    assert values[1].radius == pytest.approx(values[0].radius, rel=1e-6)


# Greedy codes.


def test_a_greedy_code_is_one_of_signs_without_constant_columns(data):
    model = OutputCodeClassifier(learn="greedy", code_size=5, random_state=0).fit(*data)
    n_columns = len(model.estimators_)
    assert n_columns < 20
    assert model.code_book_.shape == model.code_matrix_.shape == (4, n_columns)
    assert set(np.unique(model.code_matrix_)) == {-1.0, 1.0}
    assert (np.abs(model.code_matrix_.sum(axis=0)) < 4).all()
    np.testing.assert_allclose(
        model.decision_function(data[0]) % 1, 0
    )  # counts of signs: Hamming decoding, for which the code is designed


@pytest.mark.parametrize("code", ["random", "all-pairs"])
def test_the_certificate_of_a_greedy_code_is_that_of_the_columns_it_keeps(data, code):
    """Objectives of the kept columns are recomputed; four classes leave some columns of these codes constant."""
    X, y = data
    extra = {"code_size": 3.0} if code == "random" else {}
    model = OutputCodeClassifier(learn="greedy", code=code, cv="training", random_state=1, **extra).fit(X, y)
    sides = model.code_book_[np.searchsorted(model.classes_, y)].astype(float)
    objective = 0.0
    for column, side in zip(model.estimators_, sides.T, strict=True):
        kept = side != 0
        margins = side[kept] * column.decision_function(X[kept])
        objective += 0.5 * (column.coef_**2).sum() + (np.maximum(0.0, 1.0 - margins) ** 2).sum()
    assert model.certificate_.primal == pytest.approx(objective, rel=1e-9)
    assert model.certificate_.primal_at_zero == np.count_nonzero(sides)
    assert model.certificate_.n_problems == model.code_book_.shape[1]


def test_the_history_has_the_error_of_the_greedy_code(data):
    X, y = data
    model = OutputCodeClassifier(learn="greedy", cv="training", random_state=0).fit(X, y)
    h = np.column_stack([column.decision_function(X) for column in model.estimators_])
    scores = np.sign(h) @ model.code_matrix_.T
    best = scores == scores.max(axis=1, keepdims=True)
    right = best[np.arange(80), np.searchsorted(NAMES, y)] / best.sum(axis=1)
    assert model.history_["expected_error"][0] == pytest.approx(1 - right.mean())


# Rounds.


def test_retraining_takes_sides_by_sign_and_weights_by_size():
    M = np.array([[3.0, 1.0, 0.5], [-1.0, 1.0, -0.5], [-2.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    book = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, 0], [-1, -1, 1]], dtype=np.int8)
    task = retraining_task(M, book)
    np.testing.assert_array_equal(task.book[:, 0], [1, -1, -1, 0])
    np.testing.assert_allclose(task.factors[:, 0], [1.5, 0.5, 1.0, 0.0])
    np.testing.assert_array_equal(task.book[:, 1], book[:, 1])  # a constant column carries no information
    np.testing.assert_array_equal(task.book[:, 2], [1, -1, 0, 0])
    assert retraining_task(book[:, :1].astype(float), book[:, :1]).factors is None


@pytest.mark.parametrize(
    ("learn", "inner"),
    [("l1", None), ("l2", None), ("linf", None), ("greedy", None), ("l2", LogisticRegression())],
)
def test_the_best_round_is_kept(data, learn, inner):
    X, y = data
    plain = OutputCodeClassifier(inner, learn=learn, random_state=0).fit(X, y)
    model = OutputCodeClassifier(inner, learn=learn, interleave=2, random_state=0).fit(X, y)
    history = model.history_
    assert history["round"].tolist() == [0, 1, 2]
    assert history["kept"].sum() == 1
    assert history["criterion"][history["kept"]] == history["criterion"].min()
    assert history["criterion"][0] == pytest.approx(plain.history_["criterion"][0], rel=1e-3)
    if learn != "greedy":
        assert model.certificate_.primal == history["primal"][history["kept"]]
    outputs = np.column_stack([column.decision_function(X) for column in model.estimators_])
    assert outputs.shape[1] == model.code_matrix_.shape[1] == model.code_book_.shape[1]


def test_rounds_need_a_classifier_with_weights(data):
    with pytest.raises(ValueError, match=r"KNeighborsClassifier\.fit does not accept sample_weight.*interleave=0"):
        OutputCodeClassifier(KNeighborsClassifier(), learn="l1", interleave=1).fit(*data)


# The bound.


def test_margins_by_hand():
    h = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8], [0.9, 0.1]])
    M = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    margins = margins_of(h @ M.T, np.array([0, 1, 2, 0]), M @ M.T, (h**2).sum(axis=1))
    assert margins.margin == pytest.approx(0.8)  # the last row: 0.9 − 0.1 against the second class
    assert margins.radius == pytest.approx(1.0)
    assert margins.n_samples == 4


def test_the_bound_is_that_of_the_corollaries():
    """Separable rows, with the numbers recomputed from the code and the outputs."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.eye(3)[y] + 0.02 * rng.normal(size=(60, 3))
    model = OutputCodeClassifier(learn="l2", C=100.0, cv="training", random_state=0).fit(X, y)
    h = np.column_stack([column.decision_function(X) for column in model.estimators_])
    M = model.code_matrix_ - model.code_matrix_.mean(axis=0)
    scores = h @ M.T
    margin = min(scores[i, y[i]] - np.delete(scores[i], y[i]).max() for i in range(60))
    assert margin > 0
    R2, N = (h**2).sum(axis=1).max(), (M**2).sum() / margin**2
    expected = 130 * R2 / 60 * (3 * N * np.log2(4 * np.e * 60) * np.log2(240) + np.log2(2 / 0.1 * 120.0**3))
    assert model.generalization_bound(0.1).value == pytest.approx(expected, rel=1e-6)
    N1 = (3 * (M[1] ** 2).sum() + (M**2).sum()) / margin**2
    expected = 130 * R2 / 60 * (N1 * np.log2(4 * np.e * 60) * np.log2(240) + np.log2(2 / 0.05 * 120.0**2))
    bound = model.generalization_bound(label=1)
    assert float(bound) == pytest.approx(expected, rel=1e-6)
    assert (bound.reason, bound.n_samples, bound.delta) == ("", 60, 0.05)


def test_the_bound_says_why_it_does_not_apply(data):
    X, y = data
    model = OutputCodeClassifier(learn="l2", random_state=0).fit(X, y)
    bound = model.generalization_bound()
    assert np.isnan(bound.value)
    assert "smallest margin" in bound.reason
    assert "no code was learned" in OutputCodeClassifier().fit(X, y).generalization_bound().reason
    assert "hamming" in OutputCodeClassifier(learn="greedy").fit(X, y).generalization_bound().reason
    with pytest.raises(ValueError, match="delta"):
        model.generalization_bound(1.5)
    with pytest.raises(ValueError, match="yew"):
        model.generalization_bound(label="yew")


# Stopping and resuming.


def test_the_callback_stops_between_stages(data):
    X, y = data
    seen = []

    def third(progress):
        seen.append(progress)
        return len(seen) >= 3

    with pytest.warns(ConvergenceWarning, match="stopped training while it still had its starting code"):
        model = OutputCodeClassifier(learn="l1", callback=third, random_state=0).fit(X, y)
    assert model.status_ is Status.STOPPED
    np.testing.assert_array_equal(model.code_matrix_, model.code_book_)
    assert all(p.done <= p.total for p in seen)
    assert model.score(X, y) > 0.4
    with pytest.warns(ConvergenceWarning, match="early"):
        model = OutputCodeClassifier(  # stages of 6 columns: training, five folds, the code; then the next round
            learn="l1", interleave=3, callback=lambda progress: progress.done >= 42, random_state=0
        ).fit(X, y)
    assert model.history_["round"].tolist() == [0]
    assert model.certificate_.relative_gap <= 1e-3


def test_a_time_limit_has_its_own_status_and_advice(data):
    X, y = data
    for learn, how in ((None, "early"), ("l2", "while it still had its starting code")):
        with pytest.warns(
            ConvergenceWarning, match=f"the time limit stopped training {how}; allow more time"
        ) as caught:
            model = OutputCodeClassifier(learn=learn, callback=TimeLimit(0.0), random_state=0).fit(X, y)
        assert model.status_ is Status.TIME_LIMIT
        assert not any("callback" in str(warning.message) for warning in caught)
        np.testing.assert_array_equal(model.code_matrix_, model.code_book_)
        assert model.predict(X).shape == y.shape


@pytest.mark.parametrize(("last", "n_rounds"), [(20, 0), (37, 1)])
def test_time_may_be_up_between_stages_and_while_a_code_is_learned(data, monkeypatch, last, n_rounds):
    """Stages of 6 columns: training, five folds, the code; then the next round."""
    X, y = data
    now, reports = [0.0], []
    monkeypatch.setattr("widemargin.solvers.limits.time", types.SimpleNamespace(monotonic=lambda: now[0]))

    def tick(progress):
        reports.append(progress.done)
        now[0] = float(progress.done >= last)
        return False

    limit = TimeLimit(0.5, tick)
    options = {"learn": "l2", "interleave": 2, "tol": 1e-9, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="the time limit stopped training"):
        model = OutputCodeClassifier(callback=limit, **options).fit(X, y)
    assert model.status_ is Status.TIME_LIMIT
    assert reports == sorted(reports)
    assert len(model.history_["round"]) == max(1, n_rounds)
    assert np.isfinite(model.history_["criterion"]).sum() == n_rounds


def test_a_warm_start_keeps_the_code(data):
    X, y = data
    model = OutputCodeClassifier(warm_start=True).fit(X, y)  # no seed: a second code would differ
    code, cold = model.code_book_, model.n_iter_.sum()
    model.fit(X, y)
    np.testing.assert_array_equal(model.code_book_, code)
    assert model.n_iter_.sum() < cold
    model.set_params(code_size=3).fit(X, y)
    assert model.code_book_.shape == (4, 12)


def test_verbose_prints_progress(data, capsys):
    OutputCodeClassifier(learn="l1", verbose=1, random_state=0).fit(*data)
    assert "42 of 42 columns" in capsys.readouterr().out


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 2.0}, "C applies only to codes with.*OneVsAllClassifier"),
        ({"cv": 3}, "cv applies only to learned codes"),
        ({"interleave": 1}, "interleave applies only to"),
        ({"norm_bound": 1.0}, "norm_bound applies only to"),
        ({"learn": "greedy", "C": 2.0}, "C applies only to codes"),
        ({"learn": "l1", "kernel": "rbf"}, "kernel applies only to codes with learn='l2'"),
        ({"learn": "l2", "kernel": "rbf", "interleave": 1}, "applies only to code matrices"),
        ({"learn": "l2", "kernel": "rbf", "decoding": "hamming"}, "does not apply to a code with a kernel"),
        ({"learn": "l2", "kernel": "precomputed"}, "precomputed"),
        ({"code": "all-pairs", "code_size": 3}, "code_size applies only to random and bch codes"),
        ({"code": "greedy"}, "use learn='greedy'"),
        ({"code": None}, "'code' parameter of.*array-like"),
        ({"code": [[1], [1], [-1], [-1]]}, "rows 2 and 3 of the code are equal"),
        ({"code": [[1, 1], [1, -1], [-1, 1]]}, "3 row"),
        ({"learn": "l3"}, "'learn' parameter of"),
        ({"learn": "l1", "cv": 1}, "'cv' parameter of.*training"),
        ({"learn": "l1", "cv": "prefit"}, "'cv' parameter of.*training"),
        ({"decoding": "loss"}, "'decoding' parameter of"),
        ({"code_size": -1}, "'code_size' parameter of"),
        ({"code_size": 0.3}, "too few to distinguish 4 classes; use at least code_size=0.5"),
        ({"estimator": OneVsAllClassifier(C=-1)}, "'C' parameter of"),
        ({"estimator": LogisticRegression}, "estimator must be None or a classifier"),
        ({"estimator": LogisticRegression(), "warm_start": True}, "warm_start"),
        ({"estimator": KNeighborsClassifier(), "max_iter": 3}, "max_iter applies only to"),
    ],
)
def test_what_has_no_meaning_is_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        OutputCodeClassifier(**options).fit(*data)


def test_label_sets_are_refused(data):
    with pytest.raises(ValueError, match="exactly one label in every row"):
        OutputCodeClassifier().fit(data[0], [{"ash"}] * 80)
    with pytest.raises(ValueError, match="several labels per row"):
        OutputCodeClassifier().fit(data[0], [{"ash", "oak"}] * 80)


@pytest.mark.parametrize("learn", ["l1", "l2", "linf"])
def test_a_tolerance_beyond_double_precision_is_reported(learn):
    """C ‖h‖² is so large that sums of losses have no digits left; bounds are recomputed from the outputs."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = 1e12 * rng.normal(size=(60, 2))
    model = OutputCodeClassifier(learn=learn, C=1e8, tol=1e-12, cv="training", random_state=0)
    with pytest.warns(ConvergenceWarning, match="double precision limits the gap; loosen tol"):
        model.fit(X, y)
    assert model.status_ is Status.NOT_ATTAINED
    assert model.certificate_.relative_gap > 1e-12
    assert model.certificate_.primal <= 60 * 1e8 * (1 + 1e-12)


def test_bch_codes_have_as_many_columns_as_code_size_allows():
    y = np.arange(60) % 10
    X = np.random.default_rng(0).normal(size=(60, 5))
    model = OutputCodeClassifier(code="bch", code_size=3.2, random_state=0).fit(X, y)
    assert model.code_book_.shape == (10, 31)
    distances = (model.code_book_[:, None] != model.code_book_).sum(axis=2)
    assert distances[~np.eye(10, dtype=bool)].min() >= 15
    with pytest.raises(ValueError, match=r"use at least code_size=0\.7"):
        OutputCodeClassifier(code="bch", code_size=0.6).fit(X, y)
