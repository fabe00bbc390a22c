"""TopPush against Clarabel, in both reductions; statuses, and the subject of the certificate."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.rivals import top_push
from widemargin.rivals.top_push import solve_top_push
from widemargin.solvers.result import Status

ACCURATE = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def problem(seed, n=14, n_classes=3, n_features=4):
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes))
    X = np.eye(n_classes, n_features)[y] + 0.8 * rng.normal(size=(n, n_features))
    return X, y, 10.0 ** rng.uniform(-2, 2) * rng.uniform(0.5, 2.0, n)


def optimum_joint(rows, y, costs, n_classes):
    """The paper's problem on explicit features."""
    W, top = cp.Variable((n_classes, rows.shape[1])), cp.Variable()
    loss = sum(c * cp.square(cp.pos(1 + top - W[true] @ x)) for x, true, c in zip(rows, y, costs, strict=True))
    below = [W[r] @ x <= top for x, true in zip(rows, y, strict=True) for r in range(n_classes) if r != true]
    return cp.Problem(cp.Minimize(cp.sum_squares(W) / 2 + loss), below).solve(**ACCURATE)


def optimum_of_class(rows, positive, costs):
    w, top = cp.Variable(rows.shape[1]), cp.Variable()
    loss = cp.sum(cp.multiply(costs[positive], cp.square(cp.pos(1 + top - rows[positive] @ w))))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) / 2 + loss), [rows[~positive] @ w <= top]).solve(**ACCURATE)


def objective_joint(W, rows, y, costs):
    scores = rows @ W.T
    true = scores[np.arange(len(y)), y].copy()
    scores[np.arange(len(y)), y] = -np.inf
    return 0.5 * np.sum(W**2) + costs @ np.maximum(0, 1 + scores.max() - true) ** 2


@pytest.mark.parametrize("seed", range(20))
def test_the_joint_certificate_holds_the_optimum_of_an_independent_solver(seed, monkeypatch):
    if seed % 2:  # several rounds even on a small problem, and blocks by their rows
        monkeypatch.setattr(top_push, "NEGATIVES_A_ROUND", 1)
        monkeypatch.setattr(top_push, "FACTOR_RATIO", 0)
    X, y, costs = problem(seed)
    result = solve_top_push(X, y, 3, costs, bias=2.0, tol=1e-6)
    rows = np.hstack([X, np.full((len(X), 1), 2.0)])
    W = np.hstack([result.coef, result.intercept[:, None] / 2.0])
    optimum = optimum_joint(rows, y, costs, 3)
    assert result.status is Status.CONVERGED
    assert result.certificate.relative_gap <= 1e-6
    assert result.certificate.primal == pytest.approx(objective_joint(W, rows, y, costs), rel=1e-9)
    assert result.certificate.dual <= optimum * (1 + 1e-8)
    assert optimum <= result.certificate.primal * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_the_one_vs_all_certificate_holds_the_sum_of_the_optima(seed):
    X, y, costs = problem(seed)
    result = solve_top_push(X, y, 3, costs, reduction="one-vs-all", tol=1e-6)
    optima = [optimum_of_class(X, y == label, costs) for label in range(3)]
    certificate = result.certificate
    assert (certificate.n_problems, len(result.n_iter)) == (3, 3)
    assert certificate.dual <= sum(optima) * (1 + 1e-8)
    assert sum(optima) <= certificate.primal * (1 + 1e-8)
    assert certificate.worst.dual <= optima[certificate.worst.index] * (1 + 1e-8)
    assert certificate.primal_at_zero == pytest.approx(costs.sum())


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_dual_variables_are_feasible_and_give_the_weights_and_the_bound(reduction):
    X, y, costs = problem(3)
    result = solve_top_push(X, y, 3, costs, reduction=reduction, tol=1e-9)
    A = result.dual.toarray()
    alpha = A[np.arange(len(y)), y]
    assert (alpha >= 0).all()
    np.testing.assert_allclose(A.sum(axis=0 if reduction == "one-vs-all" else None), 0.0, atol=1e-9 * alpha.sum())
    wrong = A.copy()
    wrong[np.arange(len(y)), y] = 0.0
    assert (wrong <= 0).all()
    value = alpha.sum() - np.sum(alpha**2 / (4 * costs)) - 0.5 * np.sum((A.T @ X) ** 2)
    assert value == pytest.approx(result.certificate.dual, rel=1e-9)
    assert np.linalg.norm(A.T @ X - result.coef) <= np.sqrt(2 * result.certificate.gap) + 1e-9


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_sparse_and_float32_rows_are_the_same_problem(reduction):
    X, y, costs = problem(4)
    X[np.abs(X) < 0.3] = 0.0
    X = X.astype(np.float32)
    results = [
        solve_top_push(form, y, 3, costs, reduction=reduction, bias=1.0, tol=1e-8)
        for form in (X.astype(np.float64), X, sp.csr_array(X))
    ]
    for other in results[1:]:
        np.testing.assert_allclose(other.coef, results[0].coef, atol=1e-4)


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_rows_of_cost_0_count_as_absent(reduction):
    X, y, costs = problem(5)
    costs[[4, 9]] = 0.0
    kept = costs > 0
    with_zeros = solve_top_push(X, y, 3, costs, reduction=reduction, tol=1e-8)
    without = solve_top_push(X[kept], y[kept], 3, costs[kept], reduction=reduction, tol=1e-8)
    np.testing.assert_allclose(with_zeros.coef, without.coef)
    np.testing.assert_allclose(with_zeros.dual.toarray()[kept], without.dual.toarray())
    assert not with_zeros.dual.toarray()[~kept].any()
    with pytest.raises(ValueError, match="all rows have weight 0"):
        solve_top_push(X, y, 3, np.zeros(len(y)), reduction=reduction)


def test_a_class_without_rows_gets_zero_weights_of_its_own_problem():
    X, y, costs = problem(6)
    result = solve_top_push(X, y, 5, costs, reduction="one-vs-all")
    assert result.coef.shape == (5, 4)
    assert not result.coef[3:].any()
    assert solve_top_push(X, y, 5, costs).status is Status.CONVERGED


def test_the_round_limit_the_clock_and_the_callback_stop_it(monkeypatch):
    monkeypatch.setattr(top_push, "NEGATIVES_A_ROUND", 1)
    X, y, costs = problem(7, n=40)
    assert solve_top_push(X, y, 3, costs, max_iter=1, tol=1e-12).status is Status.MAX_ITER
    assert solve_top_push(X, y, 3, costs, time_limit=0.0, tol=1e-12).status is Status.TIME_LIMIT
    calls = []
    stopped = solve_top_push(X, y, 3, costs, tol=1e-12, callback=lambda progress: calls.append(progress) or True)
    assert (stopped.status, len(calls)) == (Status.STOPPED, 1)
    assert stopped.certificate.dual <= stopped.certificate.primal


@pytest.mark.parametrize(("limit", "status"), [("clock", Status.TIME_LIMIT), ("callback", Status.STOPPED)])
def test_classes_that_were_not_begun_are_certified_at_zero(limit, status):
    X, y, costs = problem(8)
    options = {"time_limit": 0.0} if limit == "clock" else {"callback": lambda progress: True}
    result = solve_top_push(X, y, 3, costs, reduction="one-vs-all", **options)
    assert result.status is status
    assert result.coef[0].any()
    assert not result.coef[1:].any()
    first = 0.5 * np.sum(result.coef[0] ** 2)
    assert result.certificate.primal >= first + costs[y > 0].sum()
    assert result.certificate.primal_at_zero == pytest.approx(costs.sum())


def test_an_unknown_reduction_is_refused():
    X, y, costs = problem(9)
    with pytest.raises(ValueError, match="reduction must be 'joint' or 'one-vs-all', got 'pairs'"):
        solve_top_push(X, y, 3, costs, reduction="pairs")
