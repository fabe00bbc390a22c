"""Top-k hinge losses against enumeration, a QP solver, finite differences and the laws of conjugates."""

from __future__ import annotations

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes

VARIANTS = ("alpha", "beta")
SMOOTHINGS = (0.0, 0.1, 2.0)


def random_margins(n, d, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) * rng.choice([0.3, 1.0, 5.0], (n, 1)) + rng.choice([-1.0, 0.0, 1.0], (n, 1))
    z[::4] = np.round(z[::4])  # ties
    z[1::8] = -np.abs(z[1::8])
    return z


def constraints_of(variant, k, x, cost=1.0):
    cap = (cp.sum(x) if variant == "alpha" else cost) / k
    return [x >= 0, cp.sum(x) <= cost, x <= cap]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_values_agree_with_the_enumeration_of_subsets(variant, k):
    # α = max(0, largest mean of k values); β = largest Σ/k over subsets of at most k values
    z = random_margins(40, 5)
    sizes = [k] if variant == "alpha" else range(1, k + 1)
    subsets = [list(chosen) for size in sizes for chosen in combinations(range(5), size)]
    expected = np.maximum(0.0, np.max([z[:, chosen].sum(axis=1) / k for chosen in subsets], axis=0))
    np.testing.assert_allclose(TopKHinge(k, variant).value(z), expected, atol=1e-14)


def test_the_variants_are_ordered_and_meet_at_k_1():
    z = random_margins(50, 6)
    hinge = np.maximum(z.max(axis=1), 0.0)
    for k in range(1, 7):
        alpha, beta = TopKHinge(k, "alpha").value(z), TopKHinge(k, "beta").value(z)
        assert (alpha <= beta + 1e-14).all()
        assert (beta <= hinge + 1e-14).all()
    np.testing.assert_allclose(TopKHinge(1, "alpha").value(z), hinge)
    np.testing.assert_allclose(TopKHinge(1, "beta").value(z), hinge)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_values_are_maxima_over_the_domain(variant, smoothing):
    for k, row in zip((1, 2, 4, 6), random_margins(4, 6, seed=1), strict=True):
        x = cp.Variable(6)
        best = cp.Maximize(row @ x - smoothing / 2 * cp.sum_squares(x))
        problem = cp.Problem(best, constraints_of(variant, k, x))
        problem.solve(solver=cp.CLARABEL)
        assert TopKHinge(k, variant, smoothing).value(row[None])[0] == pytest.approx(problem.value, abs=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_conjugates_are_suprema_over_the_margins(variant, smoothing):
    # (Cφ)*(x) = sup_z ⟨x,z⟩ − Cφ(z), searched without gradients from many starts
    cost, rng = 1.7, np.random.default_rng(2)
    loss = TopKHinge(2, variant, smoothing)
    for target in 2.0 * rng.standard_normal((3, 3)):
        x = loss.project(target[None], cost)

        def objective(z, x=x):
            return float(cost * loss.value(z[None])[0] - x[0] @ z)

        starts = [np.zeros(3), *rng.standard_normal((3, 3)), target]
        found = [minimize(objective, z, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}) for z in starts]
        assert loss.conjugate(x, cost)[0] == pytest.approx(-min(f.fun for f in found), abs=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_outside_the_domain_the_conjugate_is_infinite_and_unbounded_along_a_ray(variant):
    loss = TopKHinge(2, variant, 0.5)
    outside = {
        "negative": ([-0.1, 0.3, 0.3], [-1.0, 0.0, 0.0]),
        "sum above 1": ([0.4, 0.4, 0.4], [1.0, 1.0, 1.0]),
        "above the cap": ([0.6, 0.2, 0.0], [1.0, 0.0, 0.0] if variant == "beta" else [2.0, -1.0, -2.0]),
    }
    for x, ray in outside.values():
        assert loss.conjugate(np.array([x]))[0] == np.inf
        climb = [np.dot(x, ray) * t - loss.value(t * np.array([ray]))[0] for t in (1e3, 1e6)]
        assert climb[1] > 100 * max(climb[0], 0.1)


def test_only_the_alpha_domain_ties_the_cap_to_the_sum():
    x = np.array([[0.5, 0.1, 0.0]])
    assert TopKHinge(2, "beta").is_feasible(x)[0]
    assert not TopKHinge(2, "alpha").is_feasible(x)[0]
    assert TopKHinge(2, "alpha").is_feasible(np.array([[0.3, 0.2, 0.1]]))[0]
    assert TopKHinge(2, "beta").is_feasible(x, cost=0.7).tolist() == [False]  # 0.5 > 0.35


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("smoothing", [0.1, 2.0])
def test_smoothed_gradients_agree_with_finite_differences(variant, smoothing):
    h, z = 1e-6, random_margins(30, 6, seed=3) + 0.0123  # ties of z are not kinks here; z is moved off the grid anyway
    for k in (1, 3, 6):
        loss = TopKHinge(k, variant, smoothing)
        slopes = [(loss.value(z + h * e) - loss.value(z - h * e)) / (2 * h) for e in np.eye(6)]
        np.testing.assert_allclose(loss.gradient(z), np.transpose(slopes), atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_smoothing_lowers_the_loss_by_at_most_its_half_over_k(variant):
    z = random_margins(40, 6, seed=4)
    for k in (1, 3, 6):
        plain = TopKHinge(k, variant).value(z)
        for smoothing in (1e-300, 1e-6, 0.1, 2.0, 1e6):
            drop = plain - TopKHinge(k, variant, smoothing).value(z)
            assert (drop >= -1e-12).all()
            assert (drop <= smoothing / (2 * k) + 1e-12).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_fenchel_young_holds_with_equality_at_the_gradient(variant, smoothing):
    z, others = random_margins(40, 6, seed=5), random_margins(40, 6, seed=6)
    cost = np.random.default_rng(7).uniform(0.0, 3.0, 40)
    cost[0] = 0.0
    for k in (1, 2, 6):
        loss = TopKHinge(k, variant, smoothing)
        best, other = cost[:, None] * loss.gradient(z), loss.project(others, cost)
        assert loss.is_feasible(best, cost).all()
        assert loss.is_feasible(other, cost).all()
        np.testing.assert_allclose(loss.duality_gap(z, best, cost), 0.0, atol=1e-13 * 6 * 30)
        gaps = cost * loss.value(z) + loss.conjugate(other, cost) - (other * z).sum(axis=1)
        assert (gaps >= -1e-12).all()
        np.testing.assert_allclose(loss.duality_gap(z, other, cost), gaps, atol=1e-12)


def test_the_true_class_is_left_out():
    # With its 0 among the margins, α at k = 2 would be (−1 + 0)/2 → 0 and (3 + 0)/2, not 0 and (3 − 1)/2.
    z = margins_of_wrong_classes([[0.0, 2.0, -2.0]], [0])
    np.testing.assert_array_equal(z, [[3.0, -1.0]])
    assert TopKHinge(2, "alpha").value(z)[0] == 1.0
    assert TopKHinge(2, "beta").value(z)[0] == 1.5


def test_bad_parameters_and_shapes_are_named():
    with pytest.raises(ValueError, match="variant must be 'alpha' or 'beta'"):
        TopKHinge(1, "gamma")
    with pytest.raises(ValueError, match="k must be at least 1"):
        TopKHinge(0)
    for smoothing in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="smoothing must be a nonnegative number"):
            TopKHinge(1, smoothing=smoothing)
    with pytest.raises(ValueError, match=r"k=3 is too large, because there are only 2 wrong class\(es\)"):
        TopKHinge(3).value(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="margins must have shape"):
        TopKHinge(1).gradient(np.zeros(2))
