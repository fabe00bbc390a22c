"""The top-k multiclass SVM with costs and rows of extreme size."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from widemargin.problems.kernels import TrainingKernel, make_kernel
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers.result import Status
from widemargin.solvers.top_k.kernel import solve_kernel_top_k
from widemargin.solvers.top_k.linear import solve_top_k

VARIANTS = pytest.mark.parametrize("variant", ["beta", "alpha"])


def _rows(n=120, d=8, m=6):
    rng = np.random.default_rng(0)
    y = np.arange(n) % m
    return rng.normal(size=(m, d))[y] + rng.normal(size=(n, d)), y


def _primal(result, X, y, loss, costs):
    z = margins_of_wrong_classes(X @ np.asarray(result.coef, dtype=np.float64).T, y)
    return 0.5 * float((np.asarray(result.coef, dtype=np.float64) ** 2).sum()) + float(costs @ loss.value(z))


@VARIANTS
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("cost", [1e-9, 1e-13, 1e-20, 1e-100, 1e-300])
def test_costs_too_small_to_move_margins_are_all_lost(variant, k, cost):
    X, y = _rows()
    result = solve_top_k(X, y, 6, TopKHinge(k, variant), np.full(120, cost))
    assert result.status is Status.CONVERGED
    assert result.certificate.dual == pytest.approx(120 * cost, rel=1e-3, abs=0.0)  # margins stay at 1
    sums = np.array(
        [X[y == j].sum(axis=0) for j in range(6)]
    )  # W is proportional to these if all classes share equally
    by_sums, by_weights = ((X @ W.T).argmax(axis=1) == y for W in (sums, result.coef))
    assert by_weights.mean() >= by_sums.mean() - 0.05


@VARIANTS
@pytest.mark.parametrize("scale", [1e-20, 1e-10, 1e10, 1e17])
def test_scale_of_the_rows_is_made_up_for_by_the_cost(variant, scale):
    X, y = _rows()
    loss = TopKHinge(2, variant)
    expected = solve_top_k(X, y, 6, loss, np.ones(120), tol=1e-6).certificate
    costs = np.full(120, scale**-2)
    result = solve_top_k(X * scale, y, 6, loss, costs)
    assert result.status is Status.CONVERGED
    assert result.certificate.dual * scale**2 <= expected.primal * (1 + 1e-9)
    assert result.certificate.primal * scale**2 >= expected.dual * (1 - 1e-9)
    assert result.certificate.primal == pytest.approx(_primal(result, X * scale, y, loss, costs), rel=1e-9, abs=0.0)


@VARIANTS
def test_rows_of_very_different_length(variant):
    X, y = _rows()
    X *= 10.0 ** np.random.default_rng(1).uniform(-14, 0, size=(120, 1))
    loss, costs = TopKHinge(2, variant), np.ones(120)
    result = solve_top_k(X, y, 6, loss, costs, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(_primal(result, X, y, loss, costs), rel=1e-9)


@VARIANTS
@pytest.mark.parametrize("k", [1, 2, 5])
def test_separable_classes_do_not_feel_a_large_cost(variant, k):
    y = np.arange(120) % 6
    X, loss = np.eye(6)[y], TopKHinge(k, variant)
    expected = solve_top_k(X, y, 6, loss, np.full(120, 100.0), tol=1e-6).certificate
    large = solve_top_k(X, y, 6, loss, np.full(120, 1e8)).certificate
    assert large.relative_gap <= 1e-3
    assert large.dual == pytest.approx(expected.dual, rel=2e-3)


@VARIANTS
def test_kernel_rows_move_however_large_the_cost(variant):
    y = np.arange(60) % 6
    kernel = TrainingKernel(np.eye(6)[y], make_kernel("rbf", gamma=1.0))
    expected = solve_kernel_top_k(kernel, y, 6, TopKHinge(2, variant), np.full(60, 100.0), tol=1e-6).certificate
    large = solve_kernel_top_k(kernel, y, 6, TopKHinge(2, variant), np.full(60, 1e20), max_iter=200).certificate
    assert large.dual == pytest.approx(expected.dual, rel=1e-2)


@VARIANTS
def test_dual_stays_below_the_primal_where_squares_of_costs_vanish(variant):
    X, y = _rows()
    loss, costs = TopKHinge(2, variant, smoothing=1.0), np.full(120, 1e-300)
    for result in (
        solve_top_k(X, y, 6, loss, costs),
        solve_kernel_top_k(TrainingKernel(X, make_kernel("rbf", gamma=1.0)), y, 6, loss, costs),
    ):
        assert -1e-12 <= result.certificate.relative_gap <= 1e-3


def test_sums_beyond_float64_are_an_error():
    X, y = _rows()
    with pytest.raises(ValueError, match="use a smaller C"):
        solve_top_k(X, y, 6, TopKHinge(1), np.full(120, 1e307))
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=1.0))
    with pytest.raises(ValueError, match="use a smaller C"):
        solve_kernel_top_k(kernel, y, 6, TopKHinge(1), np.full(120, 1e307))
    with pytest.raises(ValueError, match="scale down the features"):
        solve_top_k(X * 1e160, y, 6, TopKHinge(1), np.ones(120))


def _hinge(z, k, variant):
    """The loss, implemented independently: z of shape (n_samples, n_classes − 1)."""
    largest = -np.sort(-z, axis=1)[:, :k]
    if variant == "beta":
        return np.maximum(largest, 0.0).mean(axis=1)
    return np.maximum(largest.mean(axis=1), 0.0)


@VARIANTS
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("cost", [1e-7, 1e2, 1e5, 1e8])
def test_weights_after_few_passes_are_not_worse_than_zero(variant, k, cost):
    """The objective is recomputed here; at zero weights it is the sum of the costs."""
    X, y = _rows()
    result = solve_top_k(X, y, 6, TopKHinge(k, variant), np.full(120, cost), intercept_scaling=30.0, max_iter=1)
    W, b = np.asarray(result.coef, dtype=np.float64), np.asarray(result.intercept, dtype=np.float64)
    scores = X @ W.T + b
    z = np.delete((1.0 + scores - scores[np.arange(120), y][:, None]).ravel(), np.arange(120) * 6 + y).reshape(120, 5)
    primal = 0.5 * float((W**2).sum() + ((b / 30.0) ** 2).sum()) + cost * float(_hinge(z, k, variant).sum())
    assert primal <= 120 * cost * (1 + 1e-12)
    assert result.certificate.primal == pytest.approx(primal, rel=1e-12, abs=0.0)
    assert np.ptp(scores, axis=1).min() > 0.0  # and they rank the classes


@VARIANTS
@pytest.mark.parametrize("cost", [1e-7, 1e2, 1e5, 1e8])
def test_kernel_coefficients_after_few_passes_are_not_worse_than_zero(variant, cost):
    X, y = _rows()
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.01))
    result = solve_kernel_top_k(
        kernel, y, 6, TopKHinge(2, variant), np.full(120, cost), intercept_scaling=30.0, max_iter=1
    )
    distances = (X**2).sum(axis=1)[:, None] + (X**2).sum(axis=1) - 2.0 * X @ X.T
    K = np.exp(-0.01 * distances) + 30.0**2
    A = result.coef.toarray()
    scores = K @ A
    z = np.delete((1.0 + scores - scores[np.arange(120), y][:, None]).ravel(), np.arange(120) * 6 + y).reshape(120, 5)
    primal = 0.5 * float((A * scores).sum()) + cost * float(_hinge(z, 2, variant).sum())
    assert primal <= 120 * cost * (1 + 1e-12)
    assert result.certificate.primal == pytest.approx(primal, rel=1e-9, abs=0.0)
    assert result.coef.nnz > 0


def test_the_stored_intercept_is_the_one_that_was_certified():
    """A constant feature of 3.3 and float32 weights: their product is not rounded twice."""
    X, y = _rows()
    costs, loss = np.ones(120), TopKHinge(1)
    result = solve_top_k(X, y, 6, loss, costs, intercept_scaling=3.3, tol=0.05)
    W = np.column_stack([result.coef, result.intercept / 3.3]).astype(np.float64)
    z = margins_of_wrong_classes(X @ W[:, :-1].T + result.intercept.astype(np.float64), y)
    primal = 0.5 * float((W**2).sum()) + float(costs @ np.maximum(z.max(axis=1), 0.0))
    assert result.coef.dtype == np.float32
    assert result.certificate.primal == pytest.approx(primal, rel=1e-11, abs=0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_constant_of_float32_rows_is_certified_as_given(dtype):
    """133.8559449623113 is not a float32: the certificate had the nearest one."""
    X, y = _rows()
    X, costs, intercept_scaling = X.astype(dtype), np.ones(120), 133.8559449623113
    result = solve_top_k(X, y, 6, TopKHinge(1), costs, intercept_scaling=intercept_scaling, tol=1e-9, max_iter=20)
    W = np.column_stack([result.coef, result.intercept / intercept_scaling])
    z = margins_of_wrong_classes(X.astype(np.float64) @ W[:, :-1].T + result.intercept, y)
    primal = 0.5 * float((W**2).sum()) + float(costs @ np.maximum(z.max(axis=1), 0.0))
    assert result.certificate.primal == pytest.approx(primal, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("size", [1e8, 1e12, 1e17])
def test_rounding_of_margins_at_1_is_made_up_for_by_longer_weights(size):
    """Separable rows with a practically infinite cost, against the problem without slack by Clarabel."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X, costs = np.eye(4)[y] + 0.1 * rng.normal(size=(60, 4)), np.ones(60)
    W = cp.Variable((4, 4))
    scores = X @ W.T
    margins = [scores[i, y[i]] - scores[i, j] >= 1 for i in range(60) for j in range(4) if j != y[i]]
    optimum = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W)), margins).solve(solver=cp.CLARABEL)
    result = solve_top_k(size * X, y, 4, TopKHinge(1), costs, tol=1e-6, max_iter=50_000)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal * size**2 == pytest.approx(optimum, rel=1e-5)
    assert _primal(result, size * X, y, TopKHinge(1), costs) * size**2 == pytest.approx(optimum, rel=1e-5)
    kernel = TrainingKernel(size * X, make_kernel("linear"))
    by_kernel = solve_kernel_top_k(kernel, y, 4, TopKHinge(1), costs, tol=1e-6, max_iter=50_000)
    assert by_kernel.status is Status.CONVERGED
    assert by_kernel.certificate.primal * size**2 == pytest.approx(optimum, rel=1e-5)
