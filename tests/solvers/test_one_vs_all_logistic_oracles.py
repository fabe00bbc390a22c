"""The logistic loss of one-vs-all against independent solvers: an interior-point method and scikit-learn."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from one_vs_all_solvers import INTERCEPTS, draw_problem, solve_newton
from widemargin.solvers.result import Status

BACKENDS = ["core", "reference"]
SEEDS = range(12)


def small_problem(seed):
    """All intercepts, with and without weights of rows and of classes."""
    rng = np.random.default_rng(seed)
    X, y = draw_problem(rng, 40, 10, 0.3)
    weight = rng.choice([0.5, 1.0, 3.0], size=len(y)) if seed % 4 >= 2 else np.ones(len(y))
    factors = (2.5, 0.5) if seed % 2 else (1.0, 1.0)
    return X, y, weight, factors, sorted(INTERCEPTS)[seed % 3], float(rng.choice([0.1, 1.0, 10.0]))


def objective(X, y, weight, factors, intercept, C, w, b):
    """The objective, implemented independently."""
    c = C * weight * np.where(y, *factors)
    total = 0.5 * w @ w + c @ np.log1p(np.exp(-np.where(y, 1.0, -1.0) * (X @ w + b)))
    return total + (0.5 * b**2 if intercept == "regularised" else 0.0)


def optimum_by_interior_point(X, y, weight, factors, intercept, C):
    """The problem in exponential cones."""
    c = C * weight * np.where(y, *factors)
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    scores = X @ w + (0.0 if intercept == "none" else b)
    penalty = cp.sum_squares(w) + (cp.square(b) if intercept == "regularised" else 0.0)
    losses = cp.logistic(cp.multiply(np.where(y, -1.0, 1.0), scores))
    problem = cp.Problem(cp.Minimize(0.5 * penalty + c @ losses))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == cp.OPTIMAL
    return problem.value


def optimum_by_scikit_learn(X, y, weight, factors, intercept, C):
    """A regularised intercept is a constant feature."""
    rows = np.column_stack([X, np.ones(len(y))]) if intercept == "regularised" else X
    model = LogisticRegression(C=C, fit_intercept=intercept == "free", solver="newton-cg", tol=1e-12, max_iter=10_000)
    model.fit(rows, y, sample_weight=weight * np.where(y, *factors))
    w, b = model.coef_[0], float(model.intercept_[0])
    if intercept == "regularised":
        w, b = w[:-1], w[-1]
    return objective(X, y, weight, factors, intercept, C, w, b)


def solve(problem, **options):
    X, y, weight, factors, intercept, C = problem
    weights = {"sample_weight": weight, "positive_weight": [factors[0]], "negative_weight": [factors[1]]}
    return solve_newton(X, y[:, None], C=C, loss="logistic", **weights, **INTERCEPTS[intercept], **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_optimum_agrees_with_independent_solvers_and_lies_between_the_bounds(seed, backend):
    problem = small_problem(seed)
    result = solve(problem, tol=1e-10, backend=backend)
    assert result.status is Status.CONVERGED
    primal, dual = result.certificate.primal, result.certificate.dual
    assert primal == pytest.approx(objective(*problem, result.coef[0], result.intercept[0]), rel=1e-12)
    for optimum in (optimum_by_interior_point, optimum_by_scikit_learn):
        value = optimum(*problem)
        assert primal == pytest.approx(value, rel=1e-7)
        assert dual <= value * (1 + 1e-8)
    assert result.certificate.relative_gap <= 1e-10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tol", [0.3, 0.01])
def test_loose_solutions_are_bracketed_as_well(seed, tol):
    problem = small_problem(seed)
    result = solve(problem, tol=tol, gap_tol=None)
    optimum = optimum_by_interior_point(*problem)
    assert result.certificate.dual <= optimum * (1 + 1e-8)
    assert result.certificate.primal >= optimum * (1 - 1e-8)


@pytest.fixture
def rows():
    return np.random.default_rng(3).normal(size=(50, 6))


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_of_one_side_are_not_attained(rows, backend):
    Y = np.zeros((50, 3), dtype=int)
    Y[:, 1] = 1
    Y[:20, 2] = 1
    result = solve_newton(rows, Y, loss="logistic", init="subspace", backend=backend)
    assert result.status is Status.NOT_ATTAINED
    assert result.status_by_label.tolist() == ["not_attained", "not_attained", "converged"]
    assert not result.coef[:2].any()
    assert result.intercept[:2].tolist() == [-30.0, 30.0]
    assert result.dual_by_label[:2].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(result.primal_by_label[:2], 50 * np.exp(-30.0), rtol=1e-9)
    assert result.certificate.worst.index == 2
    assert result.certificate.primal_at_zero == pytest.approx(150 * np.log(2.0))


def test_only_labels_that_are_not_attained_still_have_a_certificate(rows):
    result = solve_newton(rows, np.zeros((50, 2)), loss="logistic")
    assert result.status is Status.NOT_ATTAINED
    assert result.certificate.worst.dual == 0.0


def test_max_iter_is_worse_than_not_attained(rows):
    Y = np.zeros((50, 2), dtype=int)
    Y[:20, 1] = 1
    result = solve_newton(rows, Y, loss="logistic", tol=1e-9, max_iter=1)
    assert result.status is Status.MAX_ITER


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("init", ["zero", "subspace"])
def test_one_sided_label_with_a_regularised_intercept_is_an_ordinary_problem(backend, init):
    # Rows are zero: ½b² + 5 log(1 + e^b) is least where b = −5 / (1 + e^−b).
    result = solve_newton(
        np.zeros((5, 2)),
        np.zeros((5, 1)),
        loss="logistic",
        regularize_intercept=True,
        init=init,
        tol=1e-12,
        backend=backend,
    )
    b = result.intercept[0]
    assert b == pytest.approx(-5 / (1 + np.exp(-b)), rel=1e-9)
    assert result.status is Status.CONVERGED
    assert result.certificate.relative_gap <= 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_core_follows_the_specification_step_by_step(dtype):
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array((120, 40), density=0.15, random_state=rng, format="csr").astype(dtype))
    Y = sp.csr_array(rng.random((120, 8)) < np.geomspace(0.03, 0.6, 8))
    core, reference = (solve_newton(X, Y, loss="logistic", tol=1e-5, backend=backend) for backend in BACKENDS)
    np.testing.assert_array_equal(core.n_iter, reference.n_iter)
    np.testing.assert_allclose(core.coef, reference.coef, atol=1e-6)
    np.testing.assert_allclose(core.dual_by_label, reference.dual_by_label, rtol=1e-6)
    assert (core.history["active_rows"] == 120 * core.history["n_labels"]).all()
    for name in set(core.history) - {"seconds", "seconds_std"}:
        np.testing.assert_allclose(core.history[name], reference.history[name], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("size", [30.0, 100.0, 300.0, 1000.0])
@pytest.mark.parametrize("backend", BACKENDS)
def test_huge_scores_are_harmless(rows, backend, size):
    Y = rows[:, [0]] > 0
    result = solve_newton(1e4 * rows, Y, loss="logistic", C=100.0, backend=backend)
    assert result.status is Status.CONVERGED
    start = (np.full((1, 6), -size), np.array([size]))  # scores with hardly any curvature in double precision, or none
    bad = solve_newton(rows, Y, loss="logistic", tol=1e-8, start=start, backend=backend)
    good = solve_newton(rows, Y, loss="logistic", tol=1e-8)
    assert bad.status is Status.CONVERGED
    np.testing.assert_allclose(bad.coef, good.coef, atol=1e-5)
