"""Starts of the top-k SVM from dual variables of another problem: always feasible, and the best point on their ray."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.top_k_ascent import bounds, weights_of
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.solvers.top_k.start import DualPoint

N, M = 9, 6


def a_point(rng, loss, costs):
    """Rows, classes, and feasible dual variables: projections of random numbers."""
    X, y = rng.normal(size=(N, 3)), rng.integers(0, M, N)
    x = np.zeros((N, M))
    wrong = np.ones((N, M), dtype=bool)
    wrong[np.arange(N), y] = False
    x[wrong] = loss.project(rng.normal(size=(N, M - 1)) * costs[:, None], costs).ravel()
    _, dual = bounds(weights_of(X, y, x), X, y, x, costs, loss)
    return X, y, x, DualPoint(sp.csr_array(x), y, loss, costs, dual)


def wrong_classes(x, y):
    """The dual variables without the true classes, which must be 0."""
    rows = np.arange(len(y))
    assert (x[rows, y] == 0).all()
    wrong = np.ones(x.shape, dtype=bool)
    wrong[rows, y] = False
    return x[wrong].reshape(len(y), -1)


losses = st.builds(TopKHinge, st.integers(1, M - 1), st.sampled_from(["alpha", "beta"]), st.sampled_from([0.0, 0.5]))


@examples(100)
@given(losses, losses, st.integers(0, 2**31), st.sampled_from(["same", "factor", "rows"]))
def test_starts_are_feasible_and_no_denser(old, new, seed, change):
    rng = np.random.default_rng(seed)
    costs = rng.choice([0.0, 0.5, 2.0], N)
    _, y, x, point = a_point(rng, old, costs)
    new_costs = {"same": costs, "factor": 3.7 * costs, "rows": rng.choice([0.0, 0.1, 5.0], N)}[change]
    start = point.start_for(new, new_costs)
    assert start.shape == (N, M)
    assert new.is_feasible(wrong_classes(start.toarray(), y), new_costs).all()
    assert start.nnz <= np.count_nonzero(x)
    np.testing.assert_array_equal(point.dual.toarray(), x)  # the point itself has not changed


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("factor", [0.1, 1.0, 2.0, 50.0])
def test_after_a_common_factor_the_start_is_the_best_of_the_feasible_multiples(factor, smoothing):
    rng = np.random.default_rng(1)
    loss, costs = TopKHinge(2, "beta", smoothing), np.full(N, 0.5)
    X, y, x, point = a_point(rng, loss, costs)

    def dual(z):
        return bounds(weights_of(X, y, z), X, y, z, factor * costs, loss)[1]

    reached = dual(point.start_for(loss, factor * costs).toarray())
    assert reached >= max(dual(t * factor * x) for t in np.linspace(0, 1, 101)) - 1e-9


def test_smaller_k_and_alpha_to_beta_change_nothing():
    rng = np.random.default_rng(2)
    costs = np.ones(N)
    _, _, x, point = a_point(rng, TopKHinge(3, "alpha"), costs)
    # Multiples aside: a start that has grown as far as it may can still be scaled down.
    start = point.start_for(TopKHinge(2, "beta"), costs).toarray()
    ratios = start[x > 0] / x[x > 0]
    np.testing.assert_allclose(ratios, ratios[0])


def test_points_of_other_rows_do_not_fit():
    rng = np.random.default_rng(3)
    _, y, _, point = a_point(rng, TopKHinge(1), np.ones(N))
    assert point.fits(y, M)
    assert not point.fits(y, M + 1)
    assert not point.fits(np.append(y, 0), M)
    assert not point.fits((y + 1) % M, M)


def test_passes_are_foreseen_for_a_smaller_k_and_nothing_else():
    rng = np.random.default_rng(2)
    loss, costs = TopKHinge(3, "alpha"), np.full(N, 0.5)
    _, y, _x, point = a_point(rng, loss, costs)
    point = DualPoint(point.dual, y, loss, costs, point.value, passes=40)
    assert point.passes_for(TopKHinge(2, "alpha"), costs) == 40
    assert point.passes_for(loss, costs) == 0  # the same problem: the start may be enough
    assert point.passes_for(TopKHinge(4, "alpha"), costs) == 0
    assert point.passes_for(TopKHinge(2, "beta"), costs) == 0
    assert point.passes_for(TopKHinge(2, "alpha"), 2.0 * costs) == 0
