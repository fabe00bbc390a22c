"""Kernels of the batched subspace search against their NumPy twins, and the twins against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from hypothesis_examples import examples
from reference.batch_subspace import (
    DIAGONAL_SHARE,
    BatchStep,
    batch_step,
    feature_spread,
    near_rows,
    shared_directions,
    solve_by_subspace,
)
from reference.binary_certificate import dual_bound
from reference.binary_objective import BinaryObjective, BinaryProblem
from reference.logistic_search import solve_by_logistic_search
from reference.subspace_search import SearchRows, minimize_in_subspace, search_sums
from reference.vector_exp import exp_negative, log1p_unit
from sparse_rows import arrays, random_rows
from widemargin import _core
from widemargin.problems.losses import Logistic, SquaredHinge

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
ISAS = _core.available_instruction_sets()
LANES = 16
LOSSES = {"squared_hinge": SquaredHinge(), "logistic": Logistic()}
UPPER = np.triu_indices(4)


@pytest.mark.parametrize("isa", ISAS)
def test_exponentials_are_right_to_three_units_in_the_seventh_digit(isa):
    x = np.concatenate([-np.logspace(-8, np.log10(87), 40_000), [0.0]]).astype(np.float32)
    e, log1p = np.empty_like(x), np.empty_like(x)
    _hooks.exp_log1p(x, e, log1p, isa)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(e / exact - 1).max() < 3e-7
    assert np.abs(log1p / np.log1p(e.astype(np.float64)) - 1).max() < 3e-7
    np.testing.assert_allclose(e, exp_negative(x), rtol=3e-7)
    np.testing.assert_allclose(log1p, log1p_unit(e), rtol=3e-7)


@pytest.mark.parametrize("isa", ISAS)
def test_exponents_far_below_stay_finite(isa):
    x = np.array([-1e4, -88.0, -np.inf], dtype=np.float32)
    e, log1p = np.empty_like(x), np.empty_like(x)
    _hooks.exp_log1p(x, e, log1p, isa)
    assert (e < 2e-38).all()
    np.testing.assert_array_equal(e, exp_negative(x))
    np.testing.assert_allclose(log1p, e, rtol=1e-6)


def random_search(rng, loss, n_rows=50, n_shared=0):
    """Rows of a search whose directions have the required products."""
    y = np.where(rng.random(n_rows) < 0.3, 1.0, -1.0)
    X, vectors, bias = rng.normal(size=(n_rows, 6)), rng.normal(size=(3, 6)), float(rng.normal())
    shared = np.linalg.qr(rng.normal(size=(6, 6)))[0][:n_shared]
    s = X @ vectors[2] + bias
    scores = (X @ vectors[0], X @ vectors[1])
    rows = SearchRows(loss, y, rng.uniform(0.5, 2.0, n_rows), s, *scores, bias, (X @ shared.T).T)
    return rows, np.concatenate([vectors, shared])


def moved_weights(vectors, theta):
    """w + θ₀ z + θ₁ p + θ₂ w + Σ θ₄₊ⱼ v_j."""
    return vectors[2] + np.delete(theta, 3) @ vectors


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("bias_penalty", [0.0, 1.0])
@pytest.mark.parametrize("n_shared", [0, 2])
def test_the_search_finds_the_minimum_of_the_subspace(name, bias_penalty, n_shared):
    rng = np.random.default_rng(1)
    rows, vectors = random_search(rng, LOSSES[name], 50, n_shared)

    def value(theta):
        moved = moved_weights(vectors, theta)
        m = rows.y * (rows.s + theta @ rows.directions())
        penalty = 0.5 * moved @ moved + 0.5 * bias_penalty * (rows.bias + theta[3]) ** 2
        return penalty + rows.c @ LOSSES[name].value(m)

    use = np.ones(4 + n_shared, dtype=bool)
    theta = minimize_in_subspace(rows, vectors @ vectors.T, bias_penalty, use)
    best = minimize(value, 0.0 * theta, method="BFGS", options={"gtol": 1e-10})
    assert value(theta) - best.fun < 0.01 * (value(0.0 * theta) - best.fun)


def test_half_the_sums_are_the_derivatives_of_the_loss():
    rng = np.random.default_rng(2)
    rows, _ = random_search(rng, Logistic())
    theta, h = 0.3 * rng.normal(size=4), 1e-5
    descent, curvature, _ = search_sums(rows, theta)
    for j, step in enumerate(h * np.eye(4)):
        ahead, behind = search_sums(rows, theta + step), search_sums(rows, theta - step)
        assert -2 * descent[j] == pytest.approx((ahead[2] - behind[2]) / (2 * h), rel=1e-6)
        np.testing.assert_allclose(-curvature[j], (ahead[0] - behind[0]) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_shared", [0, 2])
@examples(30)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(1, 70), use=st.tuples(*6 * [st.booleans()]))
def test_compiled_search_equals_its_twin(isa, n_shared, seed, n_rows, use):
    rng = np.random.default_rng(seed)
    rows, vectors = random_search(rng, SquaredHinge(), n_rows, n_shared)
    products, use = vectors @ vectors.T, np.array(use[: 4 + n_shared])
    expected = minimize_in_subspace(rows, products, 0.0, use)
    table = np.concatenate([np.stack([rows.s, rows.sz, rows.sp, rows.y * rows.c]), rows.shared]).astype(np.float32)
    shared = np.pad(products[:3, 3:], ((0, 0), (0, 2 - n_shared)))
    numbers = np.concatenate([products[np.triu_indices(3)], [rows.bias, 0.0], shared.ravel()])
    theta = np.array(_hooks.search_subspace(table, numbers, use, isa))
    assert (theta[~use] == 0).all()

    def value(theta):
        moved = moved_weights(vectors, theta)
        return 0.5 * moved @ moved + search_sums(rows, theta)[2]

    # Rounding may decide whether one more Newton iteration is taken: the values agree up to the gain of one iteration.
    start = value(0.0 * expected)
    assert value(theta) <= value(expected) + 0.01 * (start - value(expected)) + 1e-4 * start


@pytest.mark.parametrize("isa", ISAS)
@examples(15)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(1, 90))
def test_shared_directions_are_those_of_the_twin(isa, seed, n_rows):
    rng = np.random.default_rng(seed)
    X, weight = random_rows(rng, n_rows), rng.uniform(0.5, 2.0, n_rows)
    found, scores = (np.array(part).reshape(-1, 2) for part in _hooks.shared_directions(*arrays(X), 20, weight, isa))
    expected = shared_directions(X.astype(np.float64), weight)
    np.testing.assert_allclose(scores, X @ found, atol=1e-4)
    lengths = np.square(found).sum(axis=0)
    np.testing.assert_allclose(found.T @ found, np.diag(lengths), atol=1e-4)
    assert (np.isclose(lengths, 1.0, atol=1e-4) | (lengths == 0.0)).all()
    # Eigenvectors of close eigenvalues may mix, so what counts is how much of Σ c x x' they explain.
    explained = (np.square(np.asarray(X @ v)).T @ weight for v in (found, expected))
    np.testing.assert_allclose(*(part.sum() for part in explained), rtol=2e-3, atol=1e-6)


def test_shared_directions_are_close_to_the_leading_eigenvectors():
    rng = np.random.default_rng(9)
    X = sp.csr_array(rng.normal(size=(300, 2)) @ (8.0 * rng.normal(size=(2, 30))) + 0.1 * rng.normal(size=(300, 30)))
    eigenvectors = np.linalg.eigh((X.T @ X).toarray())[1][:, -2:]
    np.testing.assert_allclose(np.linalg.svd(eigenvectors.T @ shared_directions(X, np.ones(300)))[1], 1.0, atol=1e-3)


def random_batch(rng, loss, n_rows=60):
    """Tables of 16 lanes for the kernels, and each lane in the form of its twin."""
    X = random_rows(rng, n_rows, density=0.25)
    n_features = X.shape[1]
    cost = rng.uniform(0.5, 2.0, n_rows).astype(np.float32)
    positive = rng.random((n_rows, LANES)) < 0.3
    W, P, Z = (rng.normal(size=(n_features, LANES)).astype(np.float32) for _ in range(3))
    lanes = np.zeros((12, LANES), dtype=np.float32)
    lanes[0] = rng.normal(size=LANES)  # bias
    lanes[1:5] = 0.3 * rng.normal(size=(4, LANES))
    lanes[5:7] = rng.uniform(0.5, 2.0, (2, LANES))
    lanes[7:10] = 0.2 * rng.random((3, LANES))
    lanes[10:] = 0.3 * rng.normal(size=(2, LANES))
    shared = np.linalg.qr(rng.normal(size=(n_features, 2)))[0].astype(np.float32)
    S, SZ, SP = (X @ W + lanes[0]).astype(np.float32), (X @ Z).astype(np.float32), (X @ P).astype(np.float32)
    tables = (np.concatenate([W, P, Z]), np.concatenate([S, SZ, SP]))
    factor = np.where(positive, lanes[5], lanes[6]) * cost[:, None]
    problems = [
        BinaryProblem(X.astype(np.float64), np.where(y, 1.0, -1.0), c.astype(np.float64), LOSSES[loss], 1.0, 0.0)
        for y, c in zip(positive.T, factor.T, strict=True)
    ]
    batch = _hooks.BatchTables(*arrays(X), cost, positive, *tables, lanes, shared, (X @ shared).astype(np.float32))
    return batch, problems, (W, P, Z), (S, SZ, SP), lanes, shared


@pytest.mark.parametrize("isa", ISAS)
@examples(15)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(1, 600))
def test_dots_and_near_rows_are_those_of_each_lane(isa, seed, n_rows):
    rng = np.random.default_rng(seed)
    batch, problems, (_, _, Z), (S, _, SP), lanes, shared = random_batch(rng, "squared_hinge", n_rows)
    sz = np.empty_like(S)
    near = np.array(batch.dots(0, 1, sz, isa)).reshape(-1, 7)
    np.testing.assert_allclose(sz, problems[0].X @ Z, atol=1e-5)
    for lane, problem in enumerate(problems):
        mine, s, step_scores = near[near[:, 0] == lane], S[:, lane], SP[:, lane]
        reach = lanes[7:10, lane]
        expected = near_rows(problem.y, s, sz[:, lane], step_scores, reach)
        # Rounding may decide about rows at the boundary.
        edge = near_rows(problem.y, s, sz[:, lane], step_scores, reach + np.array([1e-5, 0, 0]))
        sure = near_rows(problem.y, s, sz[:, lane], step_scores, reach - np.array([1e-5, 0, 0]))
        assert sure.sum() <= len(mine) <= edge.sum()
        if len(mine) == expected.sum():
            np.testing.assert_array_equal(mine[:, 1], s[expected])
            np.testing.assert_array_equal(mine[:, 2], sz[expected, lane])
            np.testing.assert_array_equal(mine[:, 3], step_scores[expected])
            np.testing.assert_allclose(mine[:, 4], (problem.y * problem.c)[expected], rtol=1e-6)
            np.testing.assert_allclose(mine[:, 5:], (problem.X @ shared)[expected], atol=1e-5)


def test_a_sampled_lane_keeps_all_positives_and_every_fifth_row():
    rng = np.random.default_rng(3)
    batch, problems, _, (S, _, SP), lanes, _ = random_batch(rng, "squared_hinge", 1100)
    sz = np.empty_like(S)
    everything = np.array(batch.dots(0, 1, sz, ISAS[0])).reshape(-1, 7)
    near = np.array(batch.dots(1 << 4, 5, sz, ISAS[0])).reshape(-1, 7)
    for lane in (3, 5):
        np.testing.assert_array_equal(near[near[:, 0] == lane], everything[everything[:, 0] == lane])
    y = problems[4].y
    rows = np.flatnonzero(near_rows(y, S[:, 4], sz[:, 4], SP[:, 4], lanes[7:10, 4]))
    full = everything[everything[:, 0] == 4]
    assert len(rows) == len(full)
    np.testing.assert_array_equal(near[near[:, 0] == 4], full[(y[rows] > 0) | (rows % 5 == 0)])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_step_of_all_lanes_equals_a_step_of_each(isa, loss):
    rng = np.random.default_rng(4)
    batch, problems, (W, P, Z), (S, SZ, SP), lanes, shared = random_batch(rng, loss)
    spread, used = feature_spread(problems[0]), None if loss == "logistic" else shared.astype(np.float64)
    expected = []
    for k, problem in enumerate(problems):
        old = BatchStep(W[:, k], P[:, k], Z[:, k], S[:, k], SP[:, k], 0.0, 0.0, 0.0, 0.0)
        theta = np.concatenate([lanes[1:5, k], lanes[10:, k]])
        expected.append(batch_step(problem, old, SZ[:, k], float(lanes[0, k]), theta, spread, used))
    totals = np.array([problem.c.sum() for problem in problems])
    scaling = DIAGONAL_SHARE * np.array([lane.curvature for lane in expected]) / totals
    columns, rows = np.empty((3 * len(W), LANES), np.float32), np.empty((3 * len(S), LANES), np.float32)
    sums = np.empty((12, LANES))
    batch.step(loss, spread.astype(np.float32), scaling.astype(np.float32), columns, rows, sums, isa)
    for k, lane in enumerate(expected):
        np.testing.assert_allclose(columns[:, k], np.concatenate([lane.w, lane.p, lane.z]), atol=2e-4)
        np.testing.assert_allclose(rows[: len(S), k], lane.s, atol=2e-5)
        np.testing.assert_allclose(rows[2 * len(S) :, k], lane.sp, atol=2e-5)
        vectors = np.stack([lane.z, lane.p, lane.w])
        products = vectors @ vectors.T
        numbers = [lane.loss, lane.bias_sum, lane.curvature, *products[np.triu_indices(3)], lane.gg]
        np.testing.assert_allclose(sums[:10, k], numbers, rtol=1e-4, atol=1e-3)
        if used is not None:
            np.testing.assert_allclose(sums[10:, k], lane.z @ used, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("isa", ISAS)
def test_sums_of_the_logistic_search_are_those_of_each_lane(isa):
    rng = np.random.default_rng(5)
    batch, problems, _, (S, SZ, SP), lanes, _ = random_batch(rng, "logistic")
    sums = np.empty((15, LANES))
    batch.search(sums, isa)
    for k, problem in enumerate(problems):
        rows = SearchRows(problem.loss, problem.y, problem.c, S[:, k], SZ[:, k], SP[:, k], float(lanes[0, k]))
        descent, curvature, loss = search_sums(rows, lanes[1:5, k].astype(np.float64))
        np.testing.assert_allclose(sums[:, k], [*descent, *curvature[UPPER], loss], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fresh", [0, 0b0110_0000_0000_1001, 0xFFFF])
def test_logistic_dots_come_with_the_sums_of_each_lane(isa, fresh):
    rng = np.random.default_rng(9)
    batch, problems, (_, _, Z), (S, _, SP), lanes, *_ = random_batch(rng, "logistic", 700)
    mean_scores, sz, sums = rng.normal(size=700).astype(np.float32), np.empty_like(S), np.empty((15, LANES))
    scores = np.empty((2 * len(S), LANES), np.float32)
    batch.logistic_dots(fresh, mean_scores, sz, scores, sums, isa)
    np.testing.assert_allclose(sz, problems[0].X @ Z, atol=1e-5)
    for k, problem in enumerate(problems):
        starts = bool(fresh >> k & 1)
        s = np.full(len(S), lanes[0, k]) if starts else S[:, k]
        step_scores = mean_scores if starts else SP[:, k]
        np.testing.assert_array_equal(scores[: len(S), k], s)
        np.testing.assert_array_equal(scores[len(S) :, k], step_scores)
        now = s + lanes[1, k] * sz[:, k]
        rows = SearchRows(problem.loss, problem.y, problem.c, now, sz[:, k], step_scores, float(lanes[0, k]))
        descent, curvature, _ = search_sums(rows, np.zeros(4))
        np.testing.assert_allclose(sums[:, k], [*descent, *curvature[UPPER], 0.0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_rows", [16, 1040])
def test_logistic_sums_are_those_of_the_twin(isa, n_rows):
    rng = np.random.default_rng(10)
    rows, _ = random_search(rng, Logistic(), n_rows)
    theta, sums = (0.3 * rng.normal(size=4)).astype(np.float32), np.empty(15)
    table = np.stack([rows.s, rows.sz, rows.sp, rows.y * rows.c]).astype(np.float32)
    _hooks.logistic_sums(table, rows.bias, theta, sums, isa)
    descent, curvature, _ = search_sums(rows, theta.astype(np.float64))
    np.testing.assert_allclose(sums, [*descent, *curvature[UPPER], 0.0], rtol=1e-4, atol=1e-3)


def label_problems(rng, loss, bias_penalty, n_labels=20):
    X = random_rows(rng, 300, 40, 0.15)
    Y = np.stack([rng.random(300) < rng.uniform(0.02, 0.7) for _ in range(n_labels)], axis=1)
    Y[:2] = [[True] * n_labels, [False] * n_labels]
    weight = rng.uniform(0.5, 2.0, 300)
    problems = [
        BinaryProblem(X.astype(np.float64), np.where(y, 1.0, -1.0), weight, LOSSES[loss], 1.0, bias_penalty)
        for y in Y.T
    ]
    return X, sp.csc_array(Y), weight, problems


def allowed_gradient(problem, tol):
    at_zero = BinaryObjective(problem, np.zeros(problem.X.shape[1] + 1)).gradient()
    sides = problem.c[problem.y > 0].sum(), problem.c[problem.y < 0].sum()
    return tol * max(1.0, min(sides)) / max(1.0, sum(sides)) * np.linalg.norm(at_zero)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("bias_penalty", [0.0, 1.0])
def test_a_batch_takes_every_lane_where_its_twin_goes(isa, loss, bias_penalty):
    rng, tol, gap_tol = np.random.default_rng(6), 1e-3, 1e-4
    X, Y, weight, problems = label_problems(rng, loss, bias_penalty)
    twin = solve_by_logistic_search if loss == "logistic" else solve_by_subspace
    coef, intercept = np.zeros((20, 40), dtype=np.float32), np.zeros(20)
    n_iter = np.zeros(20, dtype=np.int64)
    positives = Y.indices.astype(np.int64), Y.indptr.astype(np.int64)
    numbers = (bias_penalty, tol, gap_tol)
    assert _hooks.solve_batch(*arrays(X), *positives, weight, loss, *numbers, coef, intercept, n_iter, isa) == 0
    for j, problem in enumerate(problems):
        rule = allowed_gradient(problem, tol)
        v, twin_iter = twin(problem, rule, gap_tol)
        assert abs(int(n_iter[j]) - twin_iter) <= 2
        mine = BinaryObjective(problem, np.append(coef[j].astype(np.float64), intercept[j]))
        assert np.linalg.norm(mine.gradient()) <= rule
        best = max(dual_bound(problem, mine.z), dual_bound(problem, BinaryObjective(problem, v).z))
        assert mine.value() - best <= gap_tol * mine.value() * 1.01
        assert BinaryObjective(problem, v).value() - best <= gap_tol * mine.value() * 1.01
