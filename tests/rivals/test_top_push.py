"""TopPush against Clarabel, in both reductions; its loss, statuses, and what the certificate bounds."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import Status, TimeLimit
from widemargin.rivals import TopPush, top_push
from widemargin.rivals.top_push import top_push_conjugate, top_push_loss

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ACCURATE = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def problem(seed, n=14, n_classes=3, n_features=4):
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes))
    X = np.eye(n_classes, n_features)[y] + 0.8 * rng.normal(size=(n, n_features))
    return X, y, 10.0 ** rng.uniform(-2, 2) * rng.uniform(0.5, 2.0, n)


def fit(X, y, costs, **options):
    return TopPush(**{"fit_intercept": False, **options}).fit(X, y, sample_weight=costs)


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
        monkeypatch.setattr(top_push, "NEGATIVES_PER_ROUND", 1)
        monkeypatch.setattr(top_push, "FACTOR_RATIO", 0)
    X, y, costs = problem(seed)
    model = fit(X, y, costs, fit_intercept=True, intercept_scaling=2.0, tol=1e-6)
    rows = np.hstack([X, np.full((len(X), 1), 2.0)])
    W = np.hstack([model.coef_, model.intercept_[:, None] / 2.0])
    optimum = optimum_joint(rows, y, costs, 3)
    assert model.status_ is Status.CONVERGED
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.primal == pytest.approx(objective_joint(W, rows, y, costs), rel=1e-9)
    assert model.certificate_.dual <= optimum * (1 + 1e-8)
    assert optimum <= model.certificate_.primal * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_the_one_vs_all_certificate_holds_the_sum_of_the_optima(seed):
    X, y, costs = problem(seed)
    model = fit(X, y, costs, reduction="one-vs-all", tol=1e-6)
    optima = [optimum_of_class(X, y == label, costs) for label in range(3)]
    certificate = model.certificate_
    assert (certificate.n_problems, set(model.history_["problem"])) == (3, {0, 1, 2})
    assert certificate.dual <= sum(optima) * (1 + 1e-8)
    assert sum(optima) <= certificate.primal * (1 + 1e-8)
    assert certificate.worst.dual <= optima[certificate.worst.index] * (1 + 1e-8)
    assert certificate.primal_at_zero == pytest.approx(costs.sum())


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_sparse_and_float32_rows_are_the_same_problem(reduction):
    X, y, costs = problem(4)
    X[np.abs(X) < 0.3] = 0.0
    X = X.astype(np.float32)
    models = [
        fit(form, y, costs, reduction=reduction, fit_intercept=True, tol=1e-8)
        for form in (X.astype(np.float64), X, sp.csr_array(X))
    ]
    for other in models[1:]:
        np.testing.assert_allclose(other.coef_, models[0].coef_, atol=1e-4)


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_rows_of_cost_0_count_as_absent(reduction):
    X, y, costs = problem(5)
    costs[[4, 9]] = 0.0
    kept = costs > 0
    with_zeros = fit(X, y, costs, reduction=reduction, tol=1e-8)
    without = fit(X[kept], y[kept], costs[kept], reduction=reduction, tol=1e-8)
    np.testing.assert_allclose(with_zeros.coef_, without.coef_)
    with pytest.raises(ValueError, match="all rows have weight 0"):
        fit(X, y, costs, reduction=reduction, class_weight=dict.fromkeys(range(3), 0.0))


def test_a_class_without_rows_gets_zero_weights_of_its_own_problem():
    X, y, costs = problem(6)
    costs[y == 2] = 0.0
    model = fit(X, y, costs, reduction="one-vs-all")
    assert model.coef_[:2].any(axis=1).all()
    assert not model.coef_[2].any()
    assert fit(X, y, costs).status_ is Status.CONVERGED


def test_the_round_limit_the_clock_and_the_callback_stop_it(monkeypatch):
    monkeypatch.setattr(top_push, "NEGATIVES_PER_ROUND", 1)
    X, y, costs = problem(7, n=40)
    assert fit(X, y, costs, max_iter=1, tol=1e-12).status_ is Status.MAX_ITER
    assert fit(X, y, costs, callback=TimeLimit(0.0), tol=1e-12).status_ is Status.TIME_LIMIT
    calls = []
    stopped = fit(X, y, costs, tol=1e-12, callback=lambda progress: calls.append(progress) or True)
    assert (stopped.status_, len(calls)) == (Status.STOPPED, 1)
    assert stopped.certificate_.dual <= stopped.certificate_.primal


@pytest.mark.parametrize(
    ("callback", "status"), [(TimeLimit(0.0), Status.TIME_LIMIT), (lambda progress: True, Status.STOPPED)]
)
def test_classes_that_were_not_started_are_certified_at_zero(callback, status):
    X, y, costs = problem(8)
    model = fit(X, y, costs, reduction="one-vs-all", callback=callback)
    assert model.status_ is status
    assert model.coef_[0].any()
    assert not model.coef_[1:].any()
    first = 0.5 * np.sum(model.coef_[0] ** 2)
    assert model.certificate_.primal >= first + costs[y > 0].sum()
    assert model.certificate_.primal_at_zero == pytest.approx(costs.sum())


def test_the_conjugate_of_top_push_is_the_largest_difference():
    grid = np.linspace(-3, 8, 100_001)
    for alpha, cost in [(0.0, 1.0), (1.5, 0.5), (3.0, 2.0)]:
        # u = 1 + t − s of a single positive, with t = 0
        losses = cost * np.maximum(grid, 0.0) ** 2
        assert top_push_conjugate(np.array([alpha]), np.array([cost])) == pytest.approx(
            np.max(alpha * grid - losses), abs=1e-6
        )
        assert top_push_loss(np.array([1 - grid[70_000]]), 0.0, np.array([cost])) == pytest.approx(losses[70_000])
