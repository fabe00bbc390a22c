"""The compiled steps of SPOC against their NumPy specification, and the specification against other solvers."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.spoc import bounds, face_step, reduced_threshold, row_gaps, signed, solve, violations, visit
from widemargin import _core
from widemargin.projections import project_capped_simplex


def make_problem(seed, n=15, k=4, n_columns=3):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, n_columns)) * rng.choice([0.1, 1.0, 10.0], size=(n, 1))
    h[0] = 0.0
    h[2] = h[1]
    y = rng.integers(0, k, n)
    b = rng.normal(size=(n, k)) + 1.0
    b[np.arange(n), y] = 0.0
    costs = rng.choice([0.0, 0.3, 1.0, 20.0], size=n, p=[0.1, 0.3, 0.3, 0.3])
    return h, y, b, costs, rng


def begin(y, costs, k):
    eta = np.zeros((len(y), k))
    eta[np.arange(len(y)), y] = costs
    return eta


def test_the_threshold_of_the_papers_figure_2(hooks):
    D = np.array([1.0, 0.2, 0.6, 0.8, 0.6])
    assert reduced_threshold(D) == pytest.approx(0.5, abs=1e-15)
    assert hooks.reduced_threshold(D, 1.0) == pytest.approx(0.5, abs=1e-15)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.floats(1e-3, 1e3))
@examples(200)
def test_the_threshold_solves_its_equation_and_is_the_projection_onto_the_simplex(hooks, values, total):
    D = np.array(values)
    theta = reduced_threshold(D, total)
    assert hooks.reduced_threshold(D, total) == pytest.approx(theta, rel=1e-12, abs=1e-12)
    assert np.maximum(D - theta, 0.0).sum() == pytest.approx(total, rel=1e-9)
    # With k = 1 the capped simplex has the sum as its only bound; a shift makes the bound active.
    shifted = D - D.min() + total + 1.0
    projected = project_capped_simplex(shifted[None, :], k=1, r=total)[0]
    np.testing.assert_allclose(np.maximum(D - theta, 0.0), projected, atol=1e-9 * max(1.0, total))


@pytest.mark.parametrize("seed", range(5))
def test_a_visit_is_the_optimum_of_the_reduced_problem(seed):
    rng = np.random.default_rng(seed)
    k, norm, cost = 5, 2.5, 0.7
    F, eta = rng.normal(size=k), rng.dirichlet(np.ones(k)) * cost
    x = cp.Variable(k, nonneg=True)
    # The dual as a function of η_i: its gradient at η is F, its curvature −norm.
    value = F @ (x - eta) - 0.5 * norm * cp.sum_squares(x - eta)
    cp.Problem(cp.Maximize(value), [cp.sum(x) == cost]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(visit(F, norm, eta, cost), x.value, atol=1e-5)


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 4), st.booleans())
@examples(60)
def test_visits_and_bounds_are_those_of_the_specification(hooks, seed, k, n_columns, given_margins):
    h, y, b, costs, rng = make_problem(seed, k=k, n_columns=n_columns)
    costs = np.minimum(costs, 0.01)  # no stages
    if not given_margins:
        b = 1.0 - np.eye(k)[y]
    core = _core.SpocAscent(h, y, k, costs, b if given_margins else None, 0)
    K, eta = h @ h.T, begin(y, costs, k)
    rows = rng.integers(0, len(y), 60)
    for i in rows:
        S = K @ signed(eta, y, costs)
        eta[i] = visit(b[i] + S[i], K[i, i], eta[i], costs[i])
    hooks.visit_rows(core, rows)
    np.testing.assert_allclose(core.eta().reshape(eta.shape), eta, atol=1e-9)
    np.testing.assert_allclose(core.code().reshape(n_columns, k).T, signed(eta, y, costs).T @ h, atol=1e-8)
    np.testing.assert_allclose(core.certify(), bounds(K, y, b, costs, eta), atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_steps_on_faces_are_those_of_the_specification(hooks, seed):
    h, y, b, costs, rng = make_problem(seed)
    h = np.where(np.abs(h).max(axis=1, keepdims=True) > 3.0, 0.1 * h, h)
    costs = np.minimum(costs, 0.2)
    core = _core.SpocAscent(h, y, 4, costs, b, 0)
    hooks.visit_rows(core, rng.integers(0, len(y), 45))
    eta = core.eta().reshape(len(y), 4)
    moved, gain = face_step(h, b, y, costs, eta)
    assert hooks.face_step(core) == pytest.approx(gain, rel=1e-6, abs=1e-10)
    np.testing.assert_allclose(core.eta().reshape(len(y), 4), moved, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_the_sum_of_the_rows_and_below_the_violations(seed):
    h, y, b, costs, rng = make_problem(seed)
    K, eta = h @ h.T, costs[:, None] * rng.dirichlet(np.ones(4), 15)
    primal, dual = bounds(K, y, b, costs, eta)
    M = signed(eta, y, costs).T @ h
    scores = h @ M.T
    losses = (b + scores - scores[np.arange(15), y][:, None]).max(axis=1)
    assert primal == pytest.approx(0.5 * (M * M).sum() + costs @ losses, rel=1e-9)
    F = b + scores
    gaps = row_gaps(F, eta)
    assert gaps.sum() == pytest.approx(primal - dual, rel=1e-9)
    assert (gaps >= -1e-9).all()
    assert (gaps <= costs * violations(F, eta) + 1e-9).all()


def test_the_papers_algorithm_reaches_the_optimum_of_the_core():
    h, y, b, costs, _ = make_problem(3)
    h /= 10.0
    K, eta = h @ h.T, begin(y, costs, 4)
    _, reached = solve(K, y, b, costs, eta, tol=1e-6, max_iter=100_000)
    assert reached
    core = _core.SpocAscent(h, y, 4, costs, b, 0)
    core.run(1e-9, 100_000, 60.0, False)
    primal, dual = bounds(K, y, b, costs, eta)
    certified = core.certify()
    assert dual <= certified[0]
    assert certified[1] <= primal
    assert certified[0] - certified[1] <= 1e-9 * certified[0]


@given(st.integers(0, 10**6), st.integers(2, 6))
@examples(40)
def test_the_kernel_ascent_with_margins_makes_the_same_visits(hooks, seed, k):
    h, y, b, costs, rng = make_problem(seed, k=k)
    K, eta = h @ h.T, begin(y, costs, k)
    core = _core.KernelAscentDouble(y, k, costs, np.ascontiguousarray(K.diagonal()), 1, False, 0.0, 0, 0, b)
    core.use_matrix(K)
    rows = rng.integers(0, len(y), 60)
    for i in rows:
        S = K @ signed(eta, y, costs)
        eta[i] = visit(b[i] + S[i], K[i, i], eta[i], costs[i])
    hooks.visit_rows(core, rows)
    x = np.zeros(eta.shape)
    indptr, indices, data = core.duals()
    x[np.repeat(np.arange(len(y)), np.diff(indptr)), indices] = data
    expected = np.where(np.arange(k) == y[:, None], 0.0, eta)
    np.testing.assert_allclose(x, expected, atol=1e-8 * max(1.0, costs.max()))
    gap, dual = core.evaluate()
    primal, lower = bounds(K, y, b, costs, eta)
    np.testing.assert_allclose([dual + gap, dual], [primal, lower], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", [False, True], ids=["rows", "kernel matrix"])
@pytest.mark.parametrize("seed", range(6))
def test_worst_first_is_the_papers_rule_step_by_step(hooks, kernel, seed):
    """Each step changes the row of the largest violation, to the optimum of its reduced problem, and no other."""
    h, y, b, costs, _ = make_problem(seed)
    K = h @ h.T
    core = _core.SpocWorstFirst(h, y, 4, costs, b, K if kernel else None)
    eta = begin(y, costs, 4)
    for _ in range(80):
        F = b + K @ signed(eta, y, costs)
        psi = np.array([max(f) - min(f[e > 0]) if e.any() else 0.0 for f, e in zip(F, eta, strict=True)])
        np.testing.assert_allclose(violations(F, eta), psi, atol=1e-12)
        p = int(psi.argmax())
        eta[p] = visit(F[p], float(K[p, p]), eta[p], float(costs[p]))
        hooks.worst_step(core)
        found = core.eta().reshape(eta.shape)
        np.testing.assert_allclose(found, eta, atol=1e-8 * max(1.0, costs.max()))
        eta = found  # so that rounding does not add up
    primal, dual = core.certify()
    np.testing.assert_allclose((primal, dual), bounds(K, y, b, costs, eta), rtol=1e-9)


@pytest.mark.parametrize("kernel", [False, True], ids=["rows", "kernel matrix"])
def test_worst_first_takes_the_steps_of_the_specification(kernel):
    """Passes with one step per row, up to the same gap; rounding may add or remove one pass."""
    h, y, b, costs, _ = make_problem(3)
    K, eta = h @ h.T, begin(y, costs, 4)
    steps, reached = solve(K, y, b, costs, eta, tol=1e-3, max_iter=20_000)
    core = _core.SpocWorstFirst(h, y, 4, costs, b, K if kernel else None)
    assert core.run(1e-3, 20_000, 1e9, False) == 0
    assert reached
    assert abs(core.n_passes - steps // len(y)) <= 1
    np.testing.assert_allclose(core.certify(), bounds(K, y, b, costs, eta), rtol=2e-3)
