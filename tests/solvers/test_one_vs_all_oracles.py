"""Small one-vs-all problems against independent solvers: an interior-point method and LIBLINEAR."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from liblinear import liblinear, liblinearutil

from one_vs_all_solvers import INTERCEPTS, draw_problem, solve_newton
from widemargin.solvers.result import Status


def small_problem(seed):
    """20 problems: all intercepts, with and without weights of rows (zeros too) and of classes, sparse and dense."""
    rng = np.random.default_rng(seed)
    X, y = draw_problem(rng, 60, 20, 0.2)
    weight = rng.integers(0, 4, size=len(y)).astype(float) if seed % 4 >= 2 else np.ones(len(y))
    weight[:2] = 1.0
    factors = (2.5, 0.5) if seed % 3 == 1 else (1.0, 1.0)
    intercept = sorted(INTERCEPTS)[seed % 3] if seed < 18 else "free"
    return X, y, weight, factors, intercept, float(rng.choice([0.1, 1.0, 10.0]))


def objective(X, y, weight, factors, intercept, C, w, b):
    """The objective, implemented independently."""
    sign = np.where(y, 1.0, -1.0)
    c = C * weight * np.where(y, *factors)
    total = 0.5 * w @ w + c @ np.maximum(0.0, 1.0 - sign * (X @ w + b)) ** 2
    return total + (0.5 * b**2 if intercept == "regularised" else 0.0)


def optimum_by_interior_point(X, y, weight, factors, intercept, C):
    """The problem as a quadratic program with slacks; rows without weight would leave their slacks undetermined."""
    X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
    sign = np.where(y, 1.0, -1.0)
    c = C * weight * np.where(y, *factors)
    w, b, slack = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable(len(y), nonneg=True)
    scores = X @ w + (0.0 if intercept == "none" else b)
    penalty = cp.sum_squares(w) + (cp.square(b) if intercept == "regularised" else 0.0)
    value = 0.5 * penalty + cp.sum(cp.multiply(c, cp.square(slack)))
    problem = cp.Problem(cp.Minimize(value), [slack >= 1 - cp.multiply(sign, scores)])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == cp.OPTIMAL
    return problem.value


def optimum_by_liblinear(X, y, weight, factors, intercept, C):
    """Rows are repeated by their weights; -R excludes the intercept from the regulariser."""
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    rows = rows[np.argsort(~y[rows], kind="stable")]  # LIBLINEAR's first class is the first label it meets
    bias = {"free": "-B 1 -R", "regularised": "-B 1", "none": "-B -1"}[intercept]
    options = f"-s 2 -c {C} -e 1e-13 {bias} -w1 {factors[0]} -w-1 {factors[1]} -q"
    target = np.where(y[rows], 1.0, -1.0)
    data = liblinear.problem(target, sp.csr_matrix(X[rows]), bias=-1 if intercept == "none" else 1)
    w, b = liblinearutil.train(data, liblinear.parameter(options)).get_decfun()
    return objective(X, y, weight, factors, intercept, C, np.array(w), b)


@pytest.mark.parametrize("backend", ["core", "reference"])
@pytest.mark.parametrize("seed", range(20))
def test_optimum_agrees_with_independent_solvers_and_lies_between_the_bounds(seed, backend):
    X, y, weight, factors, intercept, C = small_problem(seed)
    result = solve_newton(
        sp.csr_matrix(X) if seed % 2 else X,
        y[:, None],
        C=C,
        sample_weight=weight,
        positive_weight=[factors[0]],
        negative_weight=[factors[1]],
        tol=1e-10,
        backend=backend,
        **INTERCEPTS[intercept],
    )
    assert result.status is Status.CONVERGED
    primal, dual = result.certificate.primal, result.certificate.dual
    stated = objective(X, y, weight, factors, intercept, C, result.coef[0], result.intercept[0])
    assert primal == pytest.approx(stated, rel=1e-12)
    for optimum in (optimum_by_interior_point, optimum_by_liblinear):
        value = optimum(X, y, weight, factors, intercept, C)
        assert primal == pytest.approx(value, rel=1e-7)
        assert dual <= value * (1 + 1e-8)
    assert result.certificate.relative_gap <= 1e-10


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("tol", [0.3, 0.01])
def test_loose_solutions_are_bracketed_as_well(seed, tol):
    X, y, weight, factors, intercept, C = small_problem(seed)
    options = {"C": C, "sample_weight": weight, "positive_weight": [factors[0]], "negative_weight": [factors[1]]}
    result = solve_newton(X, y[:, None], tol=tol, gap_tol=None, **options, **INTERCEPTS[intercept])
    optimum = optimum_by_interior_point(X, y, weight, factors, intercept, C)
    assert result.certificate.dual <= optimum * (1 + 1e-8)
    assert result.certificate.primal >= optimum * (1 - 1e-8)
