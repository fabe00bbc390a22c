"""The top-k multiclass SVM against Clarabel, published optima and its NumPy specification."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

from reference.optima import top_k_optimum
from reference.top_k_ascent import ascend, bounds, signed_duals
from widemargin import _core
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.top_k.linear import solve_top_k

LOSSES = [
    TopKHinge(1),
    TopKHinge(2, "alpha"),
    TopKHinge(2, "beta"),
    TopKHinge(4, "alpha"),
    TopKHinge(4, "beta"),
    TopKHinge(3, "alpha", smoothing=0.5),
    TopKHinge(3, "beta", smoothing=0.5),
    TopKHinge(1, "beta", smoothing=2.0),
]


def _problem(rng, n=40, d=7, m=5, *, sparse=False, zero_rows=2):
    """Rows of which some are zero and some are repeated; all weights differ, one is 0."""
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    X[:zero_rows] = 0.0
    X[n // 2] = X[n // 2 + 1]
    y = rng.integers(0, m, n)
    costs = rng.uniform(0.1, 3.0, n)
    costs[-1] = 0.0
    return (sp.csr_array(X) if sparse else X), y, costs


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_bounds_enclose_the_optimum_of_a_qp_solver(loss, sparse):
    rng = np.random.default_rng(loss.k + 10 * sparse)
    X, y, costs = _problem(rng, sparse=sparse)
    intercept_scaling = 0.7 if sparse else 0.0
    result = solve_top_k(X, y, 5, loss, costs, intercept_scaling=intercept_scaling, tol=1e-7, max_iter=100_000)
    optimum = top_k_optimum(X, y, 5, loss, costs, intercept_scaling)
    certificate = result.certificate
    assert result.status is Status.CONVERGED
    assert certificate.relative_gap <= 1e-7
    assert certificate.dual <= optimum * (1 + 1e-8)
    assert optimum <= certificate.primal * (1 + 1e-8)


@pytest.mark.parametrize("isa", _core.available_instruction_sets())
@pytest.mark.parametrize("loss", LOSSES[:5], ids=str)
def test_rows_with_a_common_part_have_the_optimum_of_a_qp_solver(loss, isa, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    rng = np.random.default_rng(9)
    X = np.tile(np.array([1.0, 1.0, 2.5, 0.0, 1.0, -1.0, 0.3]), (40, 1))
    changed = rng.random(X.shape) < 0.25
    X[changed] = rng.choice([0.0, 1.0, 0.7], changed.sum())
    X[4] = 0.0
    y, costs = rng.integers(0, 5, 40), rng.uniform(0.1, 1.0, 40)
    result = solve_top_k(sp.csr_array(X), y, 5, loss, costs, intercept_scaling=0.7, tol=1e-7, max_iter=100_000)
    optimum = top_k_optimum(X, y, 5, loss, costs, 0.7)
    assert result.status is Status.CONVERGED
    assert result.certificate.dual <= optimum * (1 + 1e-8)
    assert optimum <= result.certificate.primal * (1 + 1e-8)
    W = np.hstack([result.coef, result.intercept[:, None] / 0.7])
    primal, _ = bounds(W, np.hstack([X, np.full((40, 1), 0.7)]), y, result.dual.toarray(), costs, loss)
    assert result.certificate.primal == pytest.approx(primal, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_certificate_is_that_of_the_weights_and_dual_variables_returned(loss, dtype):
    X, y, costs = _problem(np.random.default_rng(3), n=60, d=9, m=11, sparse=True)
    X = X.astype(dtype)
    result = solve_top_k(X, y, 11, loss, costs, intercept_scaling=1.0, tol=1e-3, max_iter=10_000)
    W = np.hstack([result.coef, result.intercept[:, None]]).astype(np.float64)
    rows = np.hstack([X.toarray(), np.ones((60, 1))]).astype(np.float64)
    x = result.dual.toarray()
    primal, dual = bounds(W, rows, y, x, costs, loss)
    assert result.certificate.primal == pytest.approx(primal, rel=1e-12)
    assert result.certificate.dual == pytest.approx(dual, rel=1e-12)
    wrong = margins_of_wrong_classes(x, y) - 1.0 + x[np.arange(60), y][:, None]
    assert loss.is_feasible(wrong, costs).all()
    assert not x[np.arange(60), y].any()


@pytest.mark.parametrize(
    ("loss", "C", "lower", "upper"),
    [
        (TopKHinge(1), 0.01, 9.378149681, 9.378149681),
        (TopKHinge(1), 1.0, 119.6729992, 119.6729992),
        (TopKHinge(1), 100.0, 236.0568576, 236.0568576),
        (TopKHinge(3, "alpha"), 1.0, 47.23225294, 47.23228571),
        (TopKHinge(3, "beta"), 1.0, 85.84801289, 85.84808593),
    ],
    ids=str,
)
def test_published_optima_of_digits_are_met(loss, C, lower, upper):
    X, y = load_digits(return_X_y=True)
    result = solve_top_k(X / 16, y, 10, loss, np.full(len(y), C), tol=1e-6, max_iter=1_000_000)
    certificate = result.certificate
    assert certificate.relative_gap <= 1e-6
    assert certificate.dual <= upper * (1 + 1e-9)
    assert certificate.primal >= lower * (1 - 1e-9)


@pytest.mark.parametrize("m", [2, 3, 8, 9, 17, 33, 70, 97, 300])
@pytest.mark.parametrize("isa", ["baseline", None])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_all_numbers_of_classes_fills_and_instruction_sets_reach_the_gap(m, zeros, isa, monkeypatch):
    if isa is not None:
        monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    rng = np.random.default_rng(m)
    X, y = rng.standard_normal((400, 20)).astype(np.float32), rng.integers(0, m, 400)
    X[np.arange(400), y % 20] += 1.0
    X[rng.random(X.shape) < zeros] = 0.0
    loss = TopKHinge(min(3, m - 1), "alpha")
    result = solve_top_k(X, y, m, loss, np.full(400, 0.3), tol=1e-4)
    W, x = result.coef.astype(np.float64), result.dual.toarray()
    primal, dual = bounds(W, X.astype(np.float64), y, x, np.full(400, 0.3), loss)
    assert primal - dual <= 1.0001e-4 * primal
    assert dual == pytest.approx(result.certificate.dual, rel=1e-12)


def test_result_is_the_same_for_any_number_of_threads_and_another_for_another_seed():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 8)), rng.integers(0, 12, 3000)
    solve = lambda threads, seed: solve_top_k(  # noqa: E731
        X, y, 12, TopKHinge(2), np.ones(3000), n_threads=threads, seed=seed
    )
    one, three, other = solve(1, 0), solve(3, 0), solve(1, 1)
    assert np.array_equal(one.coef, three.coef)
    assert one.certificate == three.certificate
    assert not np.array_equal(one.coef, other.coef)


def test_limits_stop_the_solver_with_bounds_that_hold():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((300, 5)), rng.integers(0, 4, 300)
    arguments = (X, y, 4, TopKHinge(1), np.full(300, 10.0))
    few = solve_top_k(*arguments, tol=1e-9, max_iter=3)
    assert few.status is Status.MAX_ITER
    assert few.n_iter.tolist() == [3]
    none = solve_top_k(*arguments, callback=TimeLimit(0.0))
    assert none.status is Status.TIME_LIMIT
    assert none.certificate.primal == pytest.approx(3000.0)
    seen = []
    stopped = solve_top_k(*arguments, tol=1e-9, callback=lambda progress: seen.append(progress) or len(seen) == 2)
    assert stopped.status is Status.STOPPED
    assert len(seen) == 2
    optimum = solve_top_k(*arguments, tol=1e-7, max_iter=100_000).certificate
    for result in (few, none, stopped):
        assert result.certificate.dual <= optimum.primal
        assert optimum.dual <= result.certificate.primal
    assert list(few.history["iteration"]) == [3]


def test_start_from_the_solution_needs_next_to_nothing():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((500, 10)), rng.integers(0, 6, 500)
    cold = solve_top_k(X, y, 6, TopKHinge(2, "alpha"), np.ones(500), tol=1e-5, max_iter=10_000)
    warm = solve_top_k(X, y, 6, TopKHinge(2, "alpha"), np.ones(500), tol=1e-5, start=cold.dual)
    assert warm.n_iter[0] <= 5 < cold.n_iter[0]


def test_two_classes_are_the_binary_svm_of_twice_the_cost():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((80, 4)), rng.integers(0, 2, 80)
    result = solve_top_k(X, y, 2, TopKHinge(1), np.full(80, 0.5), tol=1e-8, max_iter=100_000)
    w = cp.Variable(4)
    hinge = cp.sum(cp.pos(1 - cp.multiply(2 * y - 1, X @ w)))
    binary = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 1.0 * hinge))
    binary.solve(solver=cp.CLARABEL)
    assert np.allclose(result.coef[1] - result.coef[0], w.value, atol=1e-4)
    assert np.allclose(result.coef[0], -result.coef[1], atol=1e-12)
    assert result.certificate.primal == pytest.approx(binary.value / 2, rel=1e-6)


@pytest.mark.slow
def test_specification_reaches_the_sametop_k_optimum():
    X, y, costs = _problem(np.random.default_rng(5), m=4)
    loss = TopKHinge(2, "beta")
    x = np.zeros((len(y), 4))
    ascend(X, y, x, costs, loss, tol=1e-6, max_iter=2000, rng=np.random.default_rng(0))
    primal, dual = bounds(signed_duals(x, y).T @ X, X, y, x, costs, loss)
    fast = solve_top_k(X, y, 4, loss, costs, tol=1e-6, max_iter=100_000).certificate
    assert max(dual, fast.dual) <= min(primal, fast.primal) * (1 + 1e-9)


def test_weights_follow_from_dual_variables_up_to_the_average():
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((200, 6)), rng.integers(0, 5, 200)
    result = solve_top_k(X, y, 5, TopKHinge(1), np.ones(200), tol=1e-8, max_iter=100_000)
    W = signed_duals(result.dual.toarray(), y).T @ X
    distance = np.linalg.norm(result.coef - W)
    assert distance <= 2 * np.sqrt(2 * result.certificate.gap)


@pytest.mark.parametrize("k", [0, 3, 4])
def test_k_outside_the_wrong_classes_is_an_error(k):
    X, y = np.eye(3), np.arange(3)
    with pytest.raises(ValueError, match="k"):
        solve_top_k(X, y, 3, TopKHinge(k), np.ones(3))


def test_weights_of_zero_alone_are_an_error():
    with pytest.raises(ValueError, match="weight 0"):
        solve_top_k(np.eye(3), np.arange(3), 3, TopKHinge(1), np.zeros(3))


@pytest.mark.parametrize("isa", _core.available_instruction_sets())
def test_a_tight_gap_on_sparse_rows_is_that_of_liblinear(isa, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    rng = np.random.default_rng(8)
    X = sp.csr_array(sp.random(600, 300, 0.05, random_state=8, data_rvs=rng.standard_normal))
    y = np.asarray((X @ rng.standard_normal((300, 12)) + 0.5 * rng.standard_normal((600, 12))).argmax(axis=1))
    model = LinearSVC(multi_class="crammer_singer", C=1.0, tol=1e-8, fit_intercept=False, max_iter=1_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scikit-learn deprecates crammer_singer
        theirs = model.fit(X, y).coef_
    costs, loss = np.ones(600), TopKHinge(1)
    reached, _ = bounds(theirs, X.toarray(), y, np.zeros((600, 12)), costs, loss)
    one, three = (solve_top_k(X, y, 12, loss, costs, tol=1e-6, n_threads=n, max_iter=100_000) for n in (1, 3))
    assert one.status is Status.CONVERGED
    assert one.certificate.relative_gap <= 1e-6
    assert one.certificate.dual <= reached <= one.certificate.dual * (1 + 3e-6)
    assert one.certificate.primal <= reached * (1 + 1e-6)
    assert np.array_equal(one.coef, three.coef)
    assert one.certificate == three.certificate


@pytest.mark.parametrize("loss", [TopKHinge(1), TopKHinge(2, "beta")], ids=str)
def test_few_rows_that_move_slowly_take_few_visits_of_the_others(loss):
    # All rows are orthogonal except for three pairs of similar rows of different classes, whose steps undo each other.
    X, y, costs = np.eye(106), np.arange(106) % 5, np.full(106, 1000.0)
    for first in (100, 102, 104):
        X[first + 1, [first, first + 1]] = 1.0, 0.1
    result = solve_top_k(X, y, 5, loss, costs, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.history["visits"][-1] <= 700 * 106  # without sweeps over those that gain most, 1755 and 1557 · 106
    assert np.all(np.diff(result.history["dual"]) >= -1e-12 * result.certificate.dual)
    optimum = top_k_optimum(X, y, 5, loss, costs, 0.0)
    assert result.certificate.dual * (1 - 1e-8) <= optimum <= result.certificate.primal * (1 + 1e-8)
