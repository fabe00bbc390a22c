"""The structural SVM for recall@k against Clarabel with every labelling written out."""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from widemargin.rivals import recall_at_k
from widemargin.rivals.recall_at_k import solve_recall_at_k
from widemargin.solvers.result import Status

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
    result = solve_recall_at_k(X, y, 3, k, C, bias=0.5, tol=1e-6)
    features, truth = written_out(X, y, 3, 0.5)
    best = optimum(features, truth, 4 * k, C)
    certificate = result.certificate
    assert result.status is Status.CONVERGED
    assert certificate.relative_gap <= 1e-6
    assert certificate.dual <= best * (1 + 1e-6)
    assert best <= certificate.primal * (1 + 1e-6)
    w = np.hstack([result.coef, result.intercept[:, None] / 0.5]).ravel()
    deltas, vectors = planes(features, truth, 4 * k)
    objective = 0.5 * w @ w + C * max(0.0, np.max(deltas - vectors @ w))
    assert certificate.primal == pytest.approx(objective, rel=1e-9)
    assert certificate.primal_at_zero == pytest.approx(C)


@pytest.mark.parametrize("seed", range(20))
def test_the_one_vs_all_certificate_holds_the_sum_of_the_optima(seed):
    (X, y, C), k = problem(seed, n=9), 1 + seed % 2
    result = solve_recall_at_k(X, y, 3, k, C, bias=1.0, tol=1e-6, reduction="one-vs-all")
    rows = np.hstack([X, np.ones((9, 1))])
    best = 0.0
    for label in range(3):
        truth = np.where(y == label, 1.0, -1.0)
        best += optimum(rows, truth, min(9, k * np.sum(truth > 0)), C)
    assert result.certificate.dual <= best * (1 + 1e-6)
    assert best <= result.certificate.primal * (1 + 1e-6)
    assert result.certificate.n_problems == 3


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_sparse_and_float32_rows_are_the_same_problem(reduction):
    X, y, C = problem(1, n=30)
    X[np.abs(X) < 0.3] = 0.0
    X = X.astype(np.float32)
    results = [
        solve_recall_at_k(form, y, 3, 1, C, reduction=reduction, tol=1e-8)
        for form in (X.astype(np.float64), X, sp.csr_array(X))
    ]
    allowed = 2 * np.sqrt(2 * results[0].certificate.gap) + 1e-9
    for other in results[1:]:
        assert np.linalg.norm(other.coef - results[0].coef) <= allowed + np.sqrt(2 * other.certificate.gap)


def test_dropping_idle_planes_keeps_the_answer(monkeypatch):
    X, y, _ = problem(2, n=40)
    kept = solve_recall_at_k(X, y, 3, 1, 1e-3, tol=1e-6)
    monkeypatch.setattr(recall_at_k, "IDLE_ROUNDS", 3)
    dropped = solve_recall_at_k(X, y, 3, 1, 1e-3, tol=1e-6)
    assert dropped.certificate.primal == pytest.approx(kept.certificate.primal, rel=2e-6)
    assert dropped.history["working_set"].max() <= kept.history["working_set"].max()


def test_a_class_whose_K_is_beyond_all_rows_is_still_learnt():
    # K = 2 · 6 of 8 rows bounds nothing: every labelling has its constraint.
    X, y = np.random.default_rng(0).normal(size=(8, 2)), np.array([0] * 6 + [1, 1])
    result = solve_recall_at_k(X, y, 2, 2, 1.0, reduction="one-vs-all", tol=1e-6)
    best = [optimum(X, np.where(y == label, 1.0, -1.0), 8 if label == 0 else 4, 1.0) for label in (0, 1)]
    assert result.certificate.primal == pytest.approx(sum(best), rel=2e-6)
    assert result.coef.any(axis=1).all()


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
    result = solve_recall_at_k(X, y, 10, 5, C)
    found = np.mean((X_test @ result.coef.T).argmax(axis=1) == y_test)
    assert found == pytest.approx(accuracy, abs=0.01)


@pytest.mark.slow
def test_C_has_an_effect_for_k_above_1(binary_digits):
    X, y = binary_digits[:2]
    results = [solve_recall_at_k(X, y, 10, 5, C) for C in (1e-5, 1e-4, 1e-3)]
    slacks = [
        (r.certificate.primal - 0.5 * np.sum(r.coef**2)) / C for r, C in zip(results, (1e-5, 1e-4, 1e-3), strict=True)
    ]
    assert slacks[0] > 2 * slacks[1] > 4 * slacks[2] > 0
    directions = [r.coef / np.linalg.norm(r.coef) for r in results]
    assert np.sum(directions[0] * directions[2]) < 0.9


def test_the_round_limit_the_clock_and_the_callback_stop_it():
    X, y, _ = problem(3, n=40)
    assert solve_recall_at_k(X, y, 3, 1, 1.0, max_iter=2, tol=1e-9).status is Status.MAX_ITER
    assert solve_recall_at_k(X, y, 3, 1, 1.0, time_limit=0.0, tol=1e-9).status is Status.TIME_LIMIT
    stopped = solve_recall_at_k(X, y, 3, 1, 1.0, tol=1e-9, callback=lambda progress: progress.done >= 2)
    assert stopped.status is Status.STOPPED
    assert stopped.history.n_rows == 2
    assert stopped.certificate.dual <= stopped.certificate.primal
    with pytest.raises(ValueError, match="k must be at least 1"):
        solve_recall_at_k(X, y, 3, 0, 1.0)
