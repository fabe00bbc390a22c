"""Recall@k against Clarabel with every labelling written out, and its oracle against enumeration."""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from hypothesis_examples import examples
from widemargin import Status, TimeLimit
from widemargin.rivals import RecallAtK, recall_at_k
from widemargin.rivals.recall_at_k import recall_at_k_oracle

ACCURATE = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-10, "tol_feas": 1e-12}


def problem(seed, n, n_classes=3, n_features=3):
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes))
    return np.eye(n_classes, n_features)[y] + 0.7 * rng.normal(size=(n, n_features)), y, 10.0 ** rng.uniform(-2, 1)


def planes(features, truth, n_selected):
    """Δ and Σ (y − y') x of every labelling with at most `n_selected` positives."""
    labellings = np.array(list(product([-1.0, 1.0], repeat=len(truth))))
    labellings = labellings[np.sum(labellings > 0, axis=1) <= n_selected]
    deltas = 1 - np.sum(labellings[:, truth > 0] > 0, axis=1) / np.sum(truth > 0)
    return deltas, (truth - labellings) @ features


def optimum(features, truth, n_selected, C):
    deltas, vectors = planes(features, truth, n_selected)
    w, slack = cp.Variable(features.shape[1]), cp.Variable(nonneg=True)
    goal = cp.Minimize(cp.sum_squares(w) / 2 + C * slack)
    return cp.Problem(goal, [vectors @ w >= deltas - slack]).solve(**ACCURATE)


def written_out(X, y, n_classes, bias):
    """Features and labels of all pairs of a row and a class."""
    rows = np.hstack([X, np.full((len(X), 1), bias)])
    features = np.array([np.kron(np.eye(n_classes)[r], x) for x in rows for r in range(n_classes)])
    return features, np.where(np.tile(np.arange(n_classes), len(y)) == np.repeat(y, n_classes), 1.0, -1.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_joint_certificate_holds_the_optimum_of_an_independent_solver(seed):
    (X, y, C), k = problem(seed, n=4), 1 + seed % 2
    model = RecallAtK(k, C, fit_intercept=True, intercept_scaling=0.5, tol=1e-6).fit(X, y)
    features, truth = written_out(X, y, 3, 0.5)
    best = optimum(features, truth, 4 * k, C)
    certificate = model.certificate_
    assert model.status_ is Status.CONVERGED
    assert certificate.relative_gap <= 1e-6
    assert certificate.dual <= best * (1 + 1e-6)
    assert best <= certificate.primal * (1 + 1e-6)
    w = np.hstack([model.coef_, model.intercept_[:, None] / 0.5]).ravel()
    deltas, vectors = planes(features, truth, 4 * k)
    objective = 0.5 * w @ w + C * max(0.0, np.max(deltas - vectors @ w))
    assert certificate.primal == pytest.approx(objective, rel=1e-9)
    assert certificate.primal_at_zero == pytest.approx(C)


@pytest.mark.parametrize("seed", range(20))
def test_the_one_vs_all_certificate_holds_the_sum_of_the_optima(seed):
    (X, y, C), k = problem(seed, n=9), 1 + seed % 2
    model = RecallAtK(k, C, fit_intercept=True, tol=1e-6, reduction="one-vs-all").fit(X, y)
    rows = np.hstack([X, np.ones((9, 1))])
    best = 0.0
    for label in range(3):
        truth = np.where(y == label, 1.0, -1.0)
        best += optimum(rows, truth, min(9, k * np.sum(truth > 0)), C)
    assert model.certificate_.dual <= best * (1 + 1e-6)
    assert best <= model.certificate_.primal * (1 + 1e-6)
    assert model.certificate_.n_problems == 3


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_sparse_and_float32_rows_are_the_same_problem(reduction):
    X, y, C = problem(1, n=30)
    X[np.abs(X) < 0.3] = 0.0
    X = X.astype(np.float32)
    models = [
        RecallAtK(1, C, reduction=reduction, tol=1e-8).fit(form, y)
        for form in (X.astype(np.float64), X, sp.csr_array(X))
    ]
    allowed = 2 * np.sqrt(2 * models[0].certificate_.gap) + 1e-9
    for other in models[1:]:
        assert np.linalg.norm(other.coef_ - models[0].coef_) <= allowed + np.sqrt(2 * other.certificate_.gap)


def test_dropping_idle_planes_keeps_the_answer(monkeypatch):
    X, y, _ = problem(2, n=40)
    kept = RecallAtK(1, 1e-3, tol=1e-6).fit(X, y)
    monkeypatch.setattr(recall_at_k, "IDLE_ROUNDS", 3)
    dropped = RecallAtK(1, 1e-3, tol=1e-6).fit(X, y)
    assert dropped.certificate_.primal == pytest.approx(kept.certificate_.primal, rel=2e-6)
    assert dropped.history_["working_set"].max() <= kept.history_["working_set"].max()


def test_a_class_whose_K_is_beyond_all_rows_is_still_learnt():
    # K = 2 · 6 of 9 rows bounds nothing: every labelling has its constraint.
    X, y = np.random.default_rng(0).normal(size=(9, 2)), np.array([0] * 6 + [1, 1, 2])
    model = RecallAtK(2, 1.0, reduction="one-vs-all", tol=1e-6).fit(X, y)
    best = [optimum(X, np.where(y == label, 1.0, -1.0), n, 1.0) for label, n in enumerate((9, 4, 2))]
    assert model.certificate_.primal == pytest.approx(sum(best), rel=2e-6)
    assert model.coef_[0].any()


@pytest.fixture(scope="module")
def binary_digits():
    """300 training digits and 1,000 others, with 0/1 pixels."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X = (X > 8).astype(np.float64)
    return X[order[:300]], y[order[:300]], X[order[300:1300]], y[order[300:1300]]


@pytest.mark.parametrize(("C", "accuracy"), [(1e-5, 0.827), (1e-4, 0.876), (1e-3, 0.837)])
def test_accuracies_on_digits_are_those_of_an_independent_implementation(binary_digits, C, accuracy):
    # k = 5 by another implementation of cutting planes on the same rows. With exactly K positives it had 0.774 for
    # every C.
    X, y, X_test, y_test = binary_digits
    model = RecallAtK(5, C).fit(X, y)
    found = np.mean((X_test @ model.coef_.T).argmax(axis=1) == y_test)
    assert found == pytest.approx(accuracy, abs=0.01)


@pytest.mark.slow
def test_C_has_an_effect_for_k_above_1(binary_digits):
    X, y = binary_digits[:2]
    models = [RecallAtK(5, C).fit(X, y) for C in (1e-5, 1e-4, 1e-3)]
    slacks = [
        (r.certificate_.primal - 0.5 * np.sum(r.coef_**2)) / C for r, C in zip(models, (1e-5, 1e-4, 1e-3), strict=True)
    ]
    assert slacks[0] > 2 * slacks[1] > 4 * slacks[2] > 0
    directions = [r.coef_ / np.linalg.norm(r.coef_) for r in models]
    assert np.sum(directions[0] * directions[2]) < 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_round_limit_the_clock_and_the_callback_stop_it():
    X, y, _ = problem(3, n=40)
    assert RecallAtK(max_iter=2, tol=1e-9).fit(X, y).status_ is Status.MAX_ITER
    assert RecallAtK(callback=TimeLimit(0.0), tol=1e-9).fit(X, y).status_ is Status.TIME_LIMIT
    stopped = RecallAtK(tol=1e-9, callback=lambda progress: progress.done >= 2).fit(X, y)
    assert stopped.status_ is Status.STOPPED
    assert stopped.history_.n_rows == 2
    assert stopped.certificate_.dual <= stopped.certificate_.primal


# Few different values so that ties are frequent.
SCORES = st.integers(-3, 3).map(lambda value: value / 4)


def value_of(labelling, scores, truth):
    """Δ + Σ (y' − y) s of one labelling with labels ±1."""
    true_positives = np.sum((labelling > 0) & (truth > 0))
    return 1 - true_positives / np.sum(truth > 0) + (labelling - truth) @ scores


def check_oracle(positives, negatives, n_selected):
    """The oracle against all labellings with at most `n_selected` positives."""
    scores = np.append(positives, negatives)
    truth = np.repeat([1.0, -1.0], [len(positives), len(negatives)])
    labellings = (np.array(signs) for signs in product([-1.0, 1.0], repeat=len(scores)))
    allowed = [labelling for labelling in labellings if np.sum(labelling > 0) <= n_selected]
    plane = recall_at_k_oracle(np.array(positives), np.array(negatives), n_selected)
    assert plane.value == pytest.approx(max(value_of(one, scores, truth) for one in allowed), abs=1e-12)
    labelling = truth.copy()
    labelling[plane.positives] = -1.0
    labelling[len(positives) + plane.negatives] = 1.0
    assert np.sum(labelling > 0) <= n_selected
    assert value_of(labelling, scores, truth) == pytest.approx(plane.value, abs=1e-12)
    assert plane.delta == 1 - np.sum(labelling[: len(positives)] > 0) / len(positives)


@examples(60)
@given(st.lists(SCORES, min_size=1, max_size=4), st.lists(SCORES, max_size=4), st.integers(0, 9))
def test_the_oracle_equals_enumeration_though_scores_are_tied(positives, negatives, n_selected):
    check_oracle(positives, negatives, n_selected)


@pytest.mark.parametrize("seed", range(50))
def test_the_oracle_equals_enumeration_over_at_most_K_positives(seed):
    rng = np.random.default_rng(seed)
    n_positives, n_negatives = rng.integers(1, 5), rng.integers(0, 8)
    shift = rng.choice([-1.0, 0.0, 1.0])
    positives, negatives = rng.normal(0.0, 0.5, n_positives), rng.normal(shift, 0.5, n_negatives)
    check_oracle(positives, negatives, int(rng.integers(0, n_positives + n_negatives + 2)))


def test_the_highest_negatives_are_enough_for_the_oracle():
    rng = np.random.default_rng(0)
    positives, negatives = rng.normal(size=3), rng.normal(size=9)
    full = recall_at_k_oracle(positives, negatives, 5)
    part = recall_at_k_oracle(positives, np.sort(negatives)[-5:], 5)
    assert (part.value, part.delta) == (pytest.approx(full.value), full.delta)


def test_low_scores_alone_do_not_lower_the_loss_of_recall():
    # Choosing negatives with a score below 0 gains nothing, so no labelling has to choose them.
    scores = np.linspace(-3.0, -1.0, 6)
    assert recall_at_k_oracle(scores[:2], scores[2:], 4).value == pytest.approx(1.0 - 2.0 * scores[:2].sum())
