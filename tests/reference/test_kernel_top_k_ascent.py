"""The compiled ascent of the kernel top-k SVM against its NumPy specification, visit by visit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.kernel_top_k import ascend, bounds, row_gaps, visit_rows
from reference.top_k_ascent import ascend as linear_ascend
from reference.top_k_ascent import bounds as linear_bounds
from reference.top_k_ascent import signed_duals, weights_of
from widemargin import _core
from widemargin.problems.top_k_losses import TopKHinge


def make_problem(seed, n=15, n_classes=5, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.choice([0.1, 1.0, 10.0], size=(n, 1))
    X[0] = 0.0
    X[2] = X[1]
    costs = rng.choice([0.0, 0.3, 1.0, 20.0], size=n, p=[0.1, 0.3, 0.3, 0.3])
    return X, rng.integers(0, n_classes, n), costs, rng


def make_core(kind, K, y, n_classes, costs, loss, n_slots=0):
    diagonal = np.ascontiguousarray(K.diagonal())
    alpha = loss.variant == "alpha"
    return kind(y, n_classes, costs, diagonal, loss.k, alpha, loss.smoothing, 0, n_slots)


def dense_duals(core, shape):
    indptr, indices, data = core.duals()
    x = np.zeros(shape)
    x[np.repeat(np.arange(shape[0]), np.diff(indptr)), indices] = data
    return x


@given(
    st.integers(0, 10**6),
    st.integers(2, 7),
    st.sampled_from(["alpha", "beta"]),
    st.sampled_from([0.0, 0.5]),
    st.data(),
)
@examples(60)
def test_visits_and_bounds_are_those_of_the_specification(hooks, seed, n_classes, variant, smoothing, data):
    loss = TopKHinge(data.draw(st.integers(1, n_classes - 1)), variant, smoothing)
    X, y, costs, rng = make_problem(seed, n_classes=n_classes)
    K = X @ X.T
    x, S = np.zeros((15, n_classes)), np.zeros((15, n_classes))
    core = make_core(_core.KernelAscentDouble, K, y, n_classes, costs, loss)
    core.use_matrix(K)
    rows = rng.integers(0, 15, 60)
    visit_rows(K, S, rows, y, x, costs, loss)
    hooks.visit_rows(core, rows)
    scale = max(1.0, costs.max())
    np.testing.assert_allclose(dense_duals(core, x.shape), x, atol=1e-9 * scale)
    gap, dual = core.evaluate()
    expected_primal, expected_dual = bounds(K, y, x, costs, loss)
    size = max(1.0, abs(expected_primal))
    np.testing.assert_allclose([dual, dual + gap], [expected_dual, expected_primal], atol=1e-9 * size)
    assert loss.is_feasible(_wrong(x, y), np.maximum(costs, 1e-300)).all()
    assert gap >= -1e-12 * size


def _wrong(x, y):
    return x[np.arange(x.shape[1]) != y[:, None]].reshape(len(y), -1)


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_with_inner_products_it_is_the_linear_specification(variant):
    X, y, costs, _ = make_problem(3)
    loss, K = TopKHinge(2, variant), X @ X.T
    by_kernel, by_weights = np.zeros((15, 5)), np.zeros((15, 5))
    options = {"tol": 1e-4, "max_iter": 30}
    ended = ascend(K, y, by_kernel, costs, loss, rng=np.random.default_rng(1), **options)
    assert ended == linear_ascend(X, y, by_weights, costs, loss, rng=np.random.default_rng(1), **options)
    np.testing.assert_allclose(by_kernel, by_weights, atol=1e-7)
    W = weights_of(X, y, by_weights)
    np.testing.assert_allclose(bounds(K, y, by_kernel, costs, loss), linear_bounds(W, X, y, by_weights, costs, loss))


def test_the_gap_is_a_sum_over_rows_that_are_not_negative():
    X, y, costs, _ = make_problem(4)
    K, loss, x = X @ X.T, TopKHinge(2, "beta", 0.3), np.zeros((15, 5))
    ascend(K, y, x, costs, loss, tol=1e-12, max_iter=2, rng=np.random.default_rng(0))
    A = signed_duals(x, y)
    gaps = row_gaps(K @ A, y, x, costs, loss)
    assert gaps.min() >= -1e-12
    primal = 0.5 * np.sum(A * (K @ A)) + costs @ loss.value(_wrong(1.0 + K @ A - (K @ A)[np.arange(15), y][:, None], y))
    dual = x.sum() - 0.5 * np.sum(A * (K @ A)) - (0.15 / costs[costs > 0]) @ (x[costs > 0] ** 2).sum(axis=1)
    np.testing.assert_allclose(bounds(K, y, x, costs, loss), [primal, dual])
    np.testing.assert_allclose(gaps.sum(), primal - dual)


def test_single_precision_follows_double_precision(hooks):
    X, y, costs, rng = make_problem(5)
    K, loss = X @ X.T, TopKHinge(1)
    rows = rng.integers(0, 15, 45)
    found = []
    for kind, dtype in ((_core.KernelAscentSingle, np.float32), (_core.KernelAscentDouble, np.float64)):
        core = make_core(kind, K, y, 5, costs, loss)
        core.use_matrix(K.astype(dtype))
        hooks.visit_rows(core, rows)
        found.append(core.evaluate())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


def run_epochs(core, K, n_epochs, thresholds, dtype):
    """Run epochs with columns on request; return the number of requests."""
    n_columns = 0
    for epoch in range(n_epochs):
        core.begin_epoch(thresholds[epoch])
        while (ended := core.run(10**6)) != 0:
            if ended == 1:
                columns = K[core.wanted()].astype(dtype)
                n_columns += len(columns)
                core.lend_columns(columns)
    return n_columns


@pytest.mark.parametrize("n_slots", [0, 1, 4, 14, 15, 100])
def test_columns_on_demand_reach_the_same_optimum(n_slots):
    X, y, costs, _ = make_problem(6)
    K, loss = X @ X.T + np.eye(15), TopKHinge(2)
    whole, some = (make_core(_core.KernelAscentDouble, K, y, 5, costs, loss, slots) for slots in (0, n_slots))
    whole.use_matrix(K)
    assert run_epochs(whole, K, 400, np.zeros(400), np.float64) == 0
    assert run_epochs(some, K, 400, np.zeros(400), np.float64) > 0
    (gap, dual), (other_gap, other_dual) = whole.evaluate(), some.evaluate()
    assert max(gap, other_gap) <= 1e-6 * dual
    np.testing.assert_allclose(dual, other_dual, rtol=1e-6)


def test_all_columns_are_asked_for_once_where_there_are_slots_for_all():
    X, y, costs, _ = make_problem(7)
    K = X @ X.T + np.eye(15)
    core = make_core(_core.KernelAscentDouble, K, y, 5, costs, TopKHinge(1), n_slots=15)
    assert run_epochs(core, K, 50, np.zeros(50), np.float64) <= 15


def test_rows_without_violation_sleep_up_to_64_epochs():
    K = np.eye(4)
    y, costs = np.arange(4) % 2, np.ones(4)
    core = make_core(_core.KernelAscentDouble, K, y, 2, costs, TopKHinge(1))
    core.use_matrix(K)
    active = []
    for _ in range(200):
        core.begin_epoch(0.0)
        active.append(core.n_active)
        assert core.run(10**6) == 0
    # One change, then 2, 4, … 64 epochs of sleep: each row is independent and solved by its first visit.
    awake = np.flatnonzero(active)
    assert awake.tolist() == [0, 1, 3, 7, 15, 31, 63, 127, 191]
    assert core.n_visits == 4 * len(awake)
    assert core.evaluate()[0] <= 1e-14


def test_a_run_stops_after_the_given_work_and_resumes():
    X, y, costs, _ = make_problem(8)
    K, loss = X @ X.T, TopKHinge(1)
    stepwise, at_once = (make_core(_core.KernelAscentDouble, K, y, 5, costs, loss) for _ in range(2))
    pauses = 0
    for core, work in ((stepwise, 1), (at_once, 10**9)):
        core.use_matrix(K)
        core.begin_epoch(0.0)
        while core.run(work) == 2:
            pauses += 1
    assert pauses > 5
    assert stepwise.evaluate() == at_once.evaluate()
