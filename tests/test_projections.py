"""The projections satisfy their optimality conditions, agree with a QP solver, and reject invalid input."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hypothesis_examples import examples
from widemargin.projections import project_capped_simplex, project_top_k_cone, project_top_k_simplex

TOLERANCE = 1e-10  # of the optimality conditions, relative to the largest |a|
RHOS = (0.0, 0.37, 1.0, 5.0)
SIZES = (1, 2, 3, 5, 12, 50, 400, 2000)
SETS = {
    "capped simplex by fixing": lambda a, k, r, rho: project_capped_simplex(a, k, r, rho, method="fixing"),
    "capped simplex by sweep": lambda a, k, r, rho: project_capped_simplex(a, k, r, rho, method="sweep"),
    "top-k simplex": project_top_k_simplex,
    "top-k cone": lambda a, k, r, rho: project_top_k_cone(a, k, rho),
}


def random_row(rng, d):
    """Normal values, ties, a constant, all negative, far from 0, or of very different sizes."""
    a = rng.standard_normal(d) * 10 ** rng.uniform(-2, 2)
    shape = rng.integers(7)
    if shape == 1:
        return np.round(a * 2 / np.abs(a).max())
    if shape == 2:
        return np.full(d, a[0])
    if shape == 3:
        return -np.abs(a)
    if shape == 4:
        return a + 1000.0
    if shape == 5:
        return a * np.exp(rng.standard_normal(d))
    return a


def random_problem(rng, d):
    a = random_row(rng, d)
    k = int(rng.choice([1, min(2, d), min(5, d), d, rng.integers(1, d + 1)]))
    r = float(rng.choice([0.0, 1.0, 10 ** rng.uniform(-3, 1), d * np.abs(a).max()], p=[0.05, 0.35, 0.3, 0.3]))
    return a, k, r, float(rng.choice(RHOS))


def kkt_violation(name, a, x, k, r, rho):
    """Largest violation of the optimality conditions, from x alone.

    c is the multiplier shared by all values: x_j − a_j + c ∓ (multiplier of the bound that x_j meets) = 0.
    """
    scale = np.abs(a).max() or 1.0
    s, fixed_cap = x.sum(), name.startswith("capped")
    r = np.inf if name == "top-k cone" else r
    hi = r / k if fixed_cap else s / k
    infeasible = max(-x.min(), x.max() - hi, s - r, 0.0)
    if r == 0.0:
        return infeasible / scale
    if not fixed_cap and s <= TOLERANCE * min(scale, r):  # 0 is optimal iff no direction 1_T, |T| = k, gains
        return max(infeasible, np.sort(a)[::-1][:k].sum() / k) / scale
    slope = a - x
    near = 1e-11 * min(scale, hi)
    lower = slope[x < hi - near].max(initial=-np.inf)
    upper = slope[x > near].min(initial=np.inf)
    c = upper if np.isfinite(upper) else lower
    if fixed_cap:  # c = ρs + multiplier of the sum
        multiplier = (upper if s >= r - near else np.clip(rho * s, lower, upper)) - rho * s
    else:  # Σ_j of the multipliers of x_j ≤ s/k come back through s
        multiplier = c - rho * s + np.maximum(slope[x >= hi - near] - c, 0.0).sum() / k
    slack = max(-multiplier, 0.0) if s >= r - near else abs(multiplier)
    return max(infeasible, lower - upper, slack) / scale


@pytest.mark.parametrize("name", SETS)
def test_optimality_conditions_hold_for_500_random_rows(name):
    rng = np.random.default_rng(0)
    for i in range(500):
        a, k, r, rho = random_problem(rng, SIZES[i % len(SIZES)])
        x = SETS[name](a, k, r, rho)
        violation = kkt_violation(name, a, x, k, r, rho)
        assert violation <= TOLERANCE, (i, len(a), k, r, rho, violation)


@pytest.mark.parametrize("name", SETS)
def test_the_conditions_refuse_a_wrong_point(name):
    a, k, r, rho = np.array([3.0, 1.0, 0.5, -1.0]), 2, 1.5, 1.0
    x = SETS[name](a, k, r, rho)
    assert kkt_violation(name, a, 0.99 * x, k, r, rho) > 1e-3
    assert kkt_violation(name, a, x[::-1], k, r, rho) > 1e-3


def solve_by_clarabel(name, a, k, r, rho):
    """The rows of one matrix, |a| ≤ 1, as one QP; k, r, rho of shape (n_rows, 1)."""
    n, d = a.shape
    if name == "top-k cone":  # ‖x‖ ≤ 2‖a‖ ≤ 2√d, so this bound is no constraint; without one Clarabel stalls at 1e-12
        r = np.full((n, 1), 2.0 * d)
    x, s = cp.Variable((n, d)), cp.Variable((n, 1))
    cap = (r / k) @ np.ones((1, d)) if name.startswith("capped") else cp.multiply(1 / k, s) @ np.ones((1, d))
    constraints = [x >= 0, x <= cap, cp.sum(x, axis=1, keepdims=True) == s, s <= r]
    objective = cp.sum_squares(x - a) / 2 + cp.sum_squares(cp.multiply(np.sqrt(rho / 2), s))
    tight = {f"tol_{rule}": 1e-13 for rule in ("gap_abs", "gap_rel", "feas")}
    cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL, **tight)
    return x.value


@pytest.mark.parametrize("d", [1, 2, 5, 12, 50])
@pytest.mark.parametrize("name", SETS)
def test_agrees_with_clarabel_on_100_rows_of_each_size(name, d):
    rng = np.random.default_rng(d)
    problems = [random_problem(rng, d) for _ in range(100)]
    scale = [max(1.0, np.abs(a).max()) for a, *_ in problems]  # the problems are homogeneous in (a, r)
    a = np.array([a / c for (a, *_), c in zip(problems, scale, strict=True)])
    k, r, rho = (np.array(column, dtype=float)[:, None] for column in list(zip(*problems, strict=True))[1:])
    r = r / np.array(scale)[:, None]
    expected = solve_by_clarabel(name, a, k, r, rho)
    ours = np.array([SETS[name](a[i], int(k[i, 0]), r[i, 0], rho[i, 0]) for i in range(len(a))])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


VALUES = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3, width=32))


@pytest.mark.parametrize("name", SETS)
@examples(200)
@given(data=st.data())
@pytest.mark.slow
def test_hypothesis_finds_no_row_that_breaks_the_conditions(name, data):
    a = data.draw(arrays(np.float64, st.integers(1, 30), elements=VALUES))
    k = data.draw(st.integers(1, len(a)))
    r = data.draw(st.one_of(st.sampled_from([0.0, 1.0, 3.0]), st.floats(1e-6, 1e4)))
    rho = data.draw(st.one_of(st.sampled_from(RHOS), st.floats(0.0, 100.0)))
    x = SETS[name](a, k, r, rho)
    assert kkt_violation(name, a, x, k, r, rho) <= TOLERANCE


@pytest.mark.parametrize("method", ["fixing", "sweep"])
def test_an_exact_sum_gives_the_simplex_projection_by_sorting(method):
    # Held, Wolfe, Crowder (1974): t is the largest (Σ_{i≤j} a_[i] − r)/j
    rng = np.random.default_rng(1)
    for d in (1, 2, 7, 100, 5000):
        a, r = random_row(rng, d), 10 ** rng.uniform(-2, 2)
        t = ((np.cumsum(np.sort(a)[::-1]) - r) / np.arange(1, d + 1)).max()
        x = project_capped_simplex(a, 1, r, exactly=True, method=method)
        np.testing.assert_allclose(x, np.maximum(a - t, 0.0), rtol=0, atol=1e-12 * d * max(1.0, np.abs(a).max()))
        assert x.sum() == pytest.approx(r, rel=1e-9)


@pytest.mark.parametrize("method", ["fixing", "sweep"])
def test_an_exact_sum_with_a_cap_agrees_with_bisection(method):
    rng = np.random.default_rng(2)
    for d, k in ((3, 3), (3, 2), (40, 7), (1500, 100)):
        a = random_row(rng, d)
        low, high = a.min() - 1.0, a.max()
        for _ in range(200):
            t = (low + high) / 2
            low, high = (t, high) if np.clip(a - t, 0.0, 1.0 / k).sum() > 1.0 else (low, t)
        x = project_capped_simplex(a, k, exactly=True, method=method)
        np.testing.assert_allclose(x, np.clip(a - high, 0.0, 1.0 / k), rtol=0, atol=1e-10 * max(1.0, np.abs(a).max()))


def test_the_values_of_the_derivation_by_hand():
    # a = (2, 1, −3), k = 2: the two largest are averaged, 3/2 each; with ρ = 1, 3/(2 + 4) each.
    np.testing.assert_allclose(project_top_k_cone([2.0, 1.0, -3.0], 2, rho=1.0), [0.5, 0.5, 0.0])
    # The sum of the two largest is not positive: 0, whatever ρ.
    assert not project_top_k_cone([1.0, -1.0, -2.0], 2).any()
    assert not project_top_k_cone([1.0, -1.5, -2.0], 2, rho=5.0).any()
    # Output codes' figure 2: D = (1, .2, .6, .8, .6) has threshold .5.
    np.testing.assert_allclose(
        project_capped_simplex([1, 0.2, 0.6, 0.8, 0.6], 1, exactly=True), [0.5, 0, 0.1, 0.3, 0.1], atol=1e-15
    )


@pytest.mark.parametrize("offset", [0.0, 2.0**40, -(2.0**40)])
@pytest.mark.parametrize("r", [1.0, 2.0**-9])
def test_a_small_bound_survives_large_values(offset, r):
    # A shift of all values does not change a projection with a bounded sum: exact on this grid, even far from 0.
    near = r * np.array([0.75, 0.5, -1.0])
    a = np.append(2.0**42, offset + near)
    for method in ("fixing", "sweep"):
        x = project_capped_simplex(a, 2, r, exactly=True, method=method)
        np.testing.assert_allclose(x, r * np.array([0.5, 0.375, 0.125, 0.0]), rtol=1e-14)
        x = project_capped_simplex(a[1:], 1, r, exactly=True, method=method)
        np.testing.assert_allclose(x, r * np.array([0.625, 0.375, 0.0]), rtol=1e-14)
    if offset >= 0.0:
        np.testing.assert_allclose(project_top_k_simplex(a, 2, r), r * np.array([0.5, 0.375, 0.125, 0.0]), rtol=1e-14)


def test_values_that_cannot_matter_are_dropped_safely():
    # Sorted upwards, the sample at the head of the row is the worst one; sorted downwards, the best one.
    rng = np.random.default_rng(3)
    a = np.sort(rng.standard_normal(20_000))
    for name, project in SETS.items():
        for k in (1, 5, 3000):
            x = project(a, k, 1.0, 1.0)
            assert kkt_violation(name, a, x, k, 1.0, 1.0) <= TOLERANCE
            np.testing.assert_allclose(project(a[::-1], k, 1.0, 1.0)[::-1], x, rtol=0, atol=1e-13)


def test_rows_may_have_their_own_r_and_rho():
    rng = np.random.default_rng(4)
    a, r, rho = rng.standard_normal((6, 9)), rng.uniform(0, 2, 6), rng.uniform(0, 2, 6)
    for project in (project_capped_simplex, project_top_k_simplex):
        np.testing.assert_array_equal(project(a, 3, r, rho), [project(a[i], 3, r[i], rho[i]) for i in range(6)])
    np.testing.assert_array_equal(
        project_top_k_cone(a, 3, rho), [project_top_k_cone(row, 3, c) for row, c in zip(a, rho, strict=True)]
    )


def test_any_layout_and_real_dtype_is_taken_and_left_alone():
    a = np.arange(12.0).reshape(3, 4)
    expected = project_top_k_simplex(a, 2)
    frozen = a.copy()
    frozen.flags.writeable = False
    for same in (np.asfortranarray(a), a.astype(np.float32), a.astype(np.int16), a.tolist(), frozen):
        np.testing.assert_array_equal(project_top_k_simplex(same, 2), expected)
    assert project_top_k_simplex(np.empty((0, 4)), 2).shape == (0, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 0}, ValueError, "k must be between 1 and 3, the number of values"),
        ({"k": 4}, ValueError, "k must be between 1 and 3, the number of values"),
        ({"k": 1.0}, TypeError, "k must be an integer"),
        ({"k": True}, TypeError, "k must be an integer"),
        ({"r": -1.0}, ValueError, "r must be nonnegative; got -1"),
        ({"r": np.nan}, ValueError, "r must be nonnegative; got nan"),
        ({"r": np.inf}, ValueError, "r must be at most 1e"),
        ({"r": [1.0, 1.0]}, ValueError, r"r must be a number, or contain one number for each of the 1 row\(s\);"),
        ({"rho": -0.5}, ValueError, "rho must be nonnegative; got -0.5"),
        ({"rho": np.nan}, ValueError, "rho must be nonnegative; got nan"),
        ({"a": [1.0, np.nan, 0.0]}, ValueError, "a contains NaN or infinity"),
        ({"a": [1.0, -np.inf, 0.0]}, ValueError, "a contains NaN or infinity"),
        ({"a": [1.0, 1e200, 0.0]}, ValueError, "scale down a and r"),
        ({"a": 1.0}, ValueError, r"shape \(d,\)"),
        ({"a": np.zeros((1, 1, 3))}, ValueError, r"shape \(d,\)"),
        ({"a": []}, ValueError, "k must be between 1 and 0, the number of values"),
        ({"a": ["x", "y", "z"]}, TypeError, "a must contain real numbers"),
    ],
)
@pytest.mark.parametrize("project", [project_capped_simplex, project_top_k_simplex, project_top_k_cone])
def test_bad_input_is_named(project, arguments, error, message):
    if project is project_top_k_cone and "r" in arguments:
        return
    with pytest.raises(error, match=message):
        project(**{"a": [1.0, 2.0, 3.0], "k": 1, **arguments})


def test_choices_of_the_capped_simplex_are_checked():
    with pytest.raises(ValueError, match="method must be"):
        project_capped_simplex([1.0], 1, method="guess")
    with pytest.raises(ValueError, match="rho must be 0"):
        project_capped_simplex([1.0], 1, rho=1.0, exactly=True)
