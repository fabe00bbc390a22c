"""The kernel top-k solver against Clarabel and known optima; limits, threads, precision, and the bounded cache."""

from __future__ import annotations

import _thread
import threading
import types

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from reference.kernel_top_k import bounds
from reference.top_k_ascent import bounds as linear_bounds
from reference.top_k_ascent import signed_duals, weights_of
from widemargin import _core
from widemargin.exceptions import NotPositiveDefiniteError
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, make_kernel
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.top_k.kernel import solve_kernel_top_k

QP_ACCURACY = 1e-6  # relative, of Clarabel's optimum

RBF, POLY, LINEAR = make_kernel("rbf", 0.5), make_kernel("poly", 0.3, 2, 1.0), make_kernel("linear")

# kernel, loss, C, intercept_scaling; 24 rows, of which three repeat others, two are zero and three have cost zero
PROBLEMS = [
    (RBF, TopKHinge(1), 1.0, 0.0),
    (RBF, TopKHinge(1), 100.0, 0.0),
    (RBF, TopKHinge(1), 0.01, 1.0),
    (RBF, TopKHinge(2, "beta"), 1.0, 0.0),
    (RBF, TopKHinge(2, "alpha"), 1.0, 0.0),
    (RBF, TopKHinge(3, "beta"), 10.0, 0.5),
    (RBF, TopKHinge(3, "alpha"), 10.0, 0.5),
    (RBF, TopKHinge(4, "beta"), 1.0, 0.0),
    (RBF, TopKHinge(4, "alpha"), 1.0, 0.0),
    (RBF, TopKHinge(1, "beta", 0.5), 1.0, 0.0),
    (RBF, TopKHinge(2, "alpha", 0.5), 10.0, 1.0),
    (RBF, TopKHinge(2, "beta", 2.0), 10.0, 0.0),
    (POLY, TopKHinge(1), 1.0, 0.0),
    (POLY, TopKHinge(3, "alpha"), 0.1, 0.0),
    (POLY, TopKHinge(3, "beta", 0.1), 0.1, 2.0),
    (LINEAR, TopKHinge(1), 1.0, 0.0),
    (LINEAR, TopKHinge(2, "beta"), 1.0, 1.0),
    (LINEAR, TopKHinge(4, "alpha"), 5.0, 0.0),
    (LINEAR, TopKHinge(2, "alpha", 1.0), 5.0, 0.0),
]


def make_rows(n=24, n_classes=5, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n_classes, d))[y] + 0.7 * rng.normal(size=(n, d))
    weights = rng.choice([0.3, 1.0, 2.0], n)
    X[3:6] = X[0:3]
    X[6:8] = 0.0
    weights[8:11] = 0.0
    return X, y, weights


def qp_optimum(K, y, n_classes, loss, costs):
    """max Σ x − γ/(2C) ‖x‖² − ½⟨A, KA⟩ over the domain, by Clarabel."""
    n = len(y)
    true = np.eye(n_classes)[y]
    x = cp.Variable((n, n_classes), nonneg=True)
    sums = cp.sum(x, axis=1)
    A = cp.multiply(true, cp.reshape(sums, (n, 1), order="C") @ np.ones((1, n_classes))) - x
    values, vectors = np.linalg.eigh(K)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    cap = sums / loss.k if loss.variant == "alpha" else costs / loss.k
    caps = cp.reshape(cap, (n, 1), order="C") @ np.ones((1, n_classes))
    limits = [cp.multiply(true, x) == 0, sums <= costs, x <= caps]
    value = cp.sum(x) - 0.5 * cp.sum_squares(root @ A)
    if loss.smoothing > 0.0:
        scale = np.sqrt(0.5 * loss.smoothing / np.where(costs > 0.0, costs, 1.0))
        value -= cp.sum_squares(cp.multiply(scale[:, None] * np.ones((1, n_classes)), x))
    return cp.Problem(cp.Maximize(value), limits).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(("kernel", "loss", "C", "intercept_scaling"), PROBLEMS)
def test_the_bounds_enclose_the_optimum_of_the_quadratic_programme(kernel, loss, C, intercept_scaling):
    X, y, weights = make_rows()
    costs = C * weights
    result = solve_kernel_top_k(
        TrainingKernel(X, kernel), y, 5, loss, costs, intercept_scaling=intercept_scaling, tol=1e-6, max_iter=100_000
    )
    certificate = result.certificate
    K = kernel.block(X, X) + intercept_scaling**2
    optimum = qp_optimum(K, y, 5, loss, costs)
    assert result.status is Status.CONVERGED
    assert certificate.relative_gap <= 1e-6
    assert certificate.dual <= optimum * (1.0 + QP_ACCURACY)
    assert certificate.primal >= optimum * (1.0 - QP_ACCURACY)
    x = result.dual.toarray()
    np.testing.assert_allclose(bounds(K, y, x, costs, loss), [certificate.primal, certificate.dual], rtol=1e-9)
    assert (x[weights == 0.0] == 0.0).all()
    np.testing.assert_allclose(result.intercept, intercept_scaling**2 * signed_duals(x, y).sum(axis=0))
    np.testing.assert_allclose(result.coef.toarray(), signed_duals(x, y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept_scaling", [0.0, 1.0])
def test_a_precomputed_matrix_is_the_same_problem(dtype, intercept_scaling):
    X, y, weights = make_rows()
    K = (X @ X.T).astype(dtype)
    result = solve_kernel_top_k(
        PrecomputedKernel(K), y, 5, TopKHinge(2), weights, intercept_scaling=intercept_scaling, tol=1e-5
    )
    optimum = qp_optimum(X @ X.T + intercept_scaling**2, y, 5, TopKHinge(2), weights)
    np.testing.assert_allclose(result.certificate.primal, optimum, rtol=1.2e-5)
    np.testing.assert_array_equal(K, (X @ X.T).astype(dtype))  # the input is unchanged
    x = result.dual.toarray()
    rows = np.hstack([X, np.full((len(y), 1), intercept_scaling)])
    W = weights_of(rows, y, x)
    linear = linear_bounds(W, rows, y, x, weights, TopKHinge(2))
    np.testing.assert_allclose(linear, [result.certificate.primal, result.certificate.dual], rtol=1e-6)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    first = np.random.RandomState(0).permutation(1797)[:300]
    return TrainingKernel(X[first] / 16.0, LINEAR), y[first].astype(np.int64)


@pytest.mark.parametrize(("C", "optimum"), [(0.01, 2.556751879), (1.0, 22.52717085), (100.0, 23.91681902)])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_known_optima_of_digits(digits, C, optimum, tol):
    kernel, y = digits
    result = solve_kernel_top_k(kernel, y, 10, TopKHinge(1), np.full(300, C), tol=tol, max_iter=100_000)
    assert result.status is Status.CONVERGED
    assert result.certificate.relative_gap <= tol
    assert result.certificate.dual <= optimum + 1e-8 * optimum
    assert result.certificate.primal >= optimum - 1e-8 * optimum


@pytest.mark.slow
def test_cached_columns_reach_the_same_optimum_as_the_whole_matrix(digits):
    kernel, y = digits
    options = {"tol": 1e-4, "max_iter": 10_000}
    bytes_mb = 4 * 300 * 300 / 2**20
    # Room for all, for two thirds, and for none at all.
    found = [
        solve_kernel_top_k(kernel, y, 10, TopKHinge(2), np.ones(300), cache_size_mb=size * bytes_mb, **options)
        for size in (1.0, 0.66, 0.0)
    ]
    assert [result.status for result in found] == [Status.CONVERGED] * 3
    duals, primals = ([getattr(r.certificate, name) for r in found] for name in ("dual", "primal"))
    assert max(duals) <= min(primals)
    assert max(primals) - min(duals) <= 2e-4 * max(primals)


@pytest.mark.parametrize("cache_size_mb", [512.0, 0.2])
@pytest.mark.parametrize("kernel", [RBF, LINEAR])
def test_results_are_the_same_for_a_seed_with_any_number_of_threads(digits, kernel, cache_size_mb):
    training, y = TrainingKernel(digits[0].X, kernel), digits[1]
    options = {"tol": 1e-3, "cache_size_mb": cache_size_mb, "intercept_scaling": 0.5}
    one, two, other = (
        solve_kernel_top_k(training, y, 10, TopKHinge(1), np.ones(300), n_threads=threads, seed=seed, **options)
        for threads, seed in ((1, 3), (2, 3), (1, 4))
    )
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(one.dual, name), getattr(two.dual, name))
    assert one.certificate == two.certificate
    assert one.dual.data.tolist() != other.dual.data.tolist()


def test_sparse_rows_are_the_same_problem(digits):
    kernel, y = digits
    sparse = TrainingKernel(sp.csr_array(kernel.X), RBF)
    dense = TrainingKernel(kernel.X, RBF)
    duals = [
        solve_kernel_top_k(given, y, 10, TopKHinge(1), np.ones(300), tol=1e-6).certificate.dual
        for given in (sparse, dense)
    ]
    np.testing.assert_allclose(duals[0], duals[1], rtol=1e-6)


def test_weights_count_as_repeated_rows():
    X, y, _ = make_rows()
    weights = np.where(np.arange(24) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(24), weights.astype(int))
    weighted = solve_kernel_top_k(TrainingKernel(X, RBF), y, 5, TopKHinge(2), weights, tol=1e-7, max_iter=10_000)
    repeated = solve_kernel_top_k(
        TrainingKernel(X[twice], RBF), y[twice], 5, TopKHinge(2), np.ones(len(twice)), tol=1e-7, max_iter=10_000
    )
    np.testing.assert_allclose(weighted.certificate.dual, repeated.certificate.dual, rtol=2e-7)


def test_rows_of_zeros_cost_what_they_must():
    y = np.array([0, 1, 2])
    for k, variant in ((1, "beta"), (2, "alpha"), (2, "beta")):
        loss = TopKHinge(k, variant)
        result = solve_kernel_top_k(TrainingKernel(np.zeros((3, 2)), LINEAR), y, 3, loss, np.array([1.0, 2.0, 3.0]))
        assert result.status is Status.CONVERGED
        np.testing.assert_allclose([result.certificate.primal, result.certificate.dual], 6.0)


def test_tiny_and_huge_scales_converge():
    X, y, weights = make_rows()
    for scale in (1e-12, 1e-3, 1e3, 1e16):
        kernel = TrainingKernel(scale * X, LINEAR)
        result = solve_kernel_top_k(kernel, y, 5, TopKHinge(1), weights / scale**2, tol=1e-4, max_iter=10_000)
        expected = qp_optimum(X @ X.T, y, 5, TopKHinge(1), weights) / scale**2
        np.testing.assert_allclose(result.certificate.primal, expected, rtol=1.1e-4)


def test_nothing_to_learn_is_done_at_once():
    X, y, _ = make_rows()
    result = solve_kernel_top_k(TrainingKernel(X, RBF), y, 5, TopKHinge(1), np.zeros(24))
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == result.certificate.dual == 0.0
    assert result.dual.nnz == 0


def test_a_start_at_the_solution_needs_few_passes(digits):
    kernel, y = digits
    costs = np.ones(300)
    cold = solve_kernel_top_k(kernel, y, 10, TopKHinge(2), costs, tol=1e-4, max_iter=10_000)
    warm = solve_kernel_top_k(kernel, y, 10, TopKHinge(2), costs, tol=1e-4, start=cold.dual)
    assert warm.status is Status.CONVERGED
    assert warm.n_iter[0] < cold.n_iter[0] / 2
    # A solution for k = 2 is feasible for k = 1, and its dual value a lower bound there.
    other = solve_kernel_top_k(kernel, y, 10, TopKHinge(1), costs, start=cold.dual, max_iter=0)
    assert other.status is Status.MAX_ITER
    np.testing.assert_allclose(other.certificate.dual, cold.certificate.dual)


@pytest.mark.parametrize("max_iter", [0, 1, 7])
def test_max_iter_limits_the_passes(digits, max_iter):
    kernel, y = digits
    result = solve_kernel_top_k(kernel, y, 10, TopKHinge(1), np.ones(300), tol=1e-9, max_iter=max_iter)
    assert result.status is Status.MAX_ITER
    assert result.n_iter.tolist() == [max_iter]
    assert result.certificate.dual <= 22.52717086 <= result.certificate.primal
    if max_iter == 0:
        assert result.certificate.primal == result.certificate.primal_at_zero == 300.0


def test_the_time_limit_ends_the_ascent(digits):
    kernel, y = digits
    result = solve_kernel_top_k(kernel, y, 10, TopKHinge(1), np.ones(300), tol=1e-9, callback=TimeLimit(0.0))
    assert result.status is Status.TIME_LIMIT
    assert result.certificate.dual <= 22.52717086 <= result.certificate.primal


def test_a_callback_sees_every_evaluation_and_stops(digits):
    kernel, y = digits
    seen = []
    result = solve_kernel_top_k(
        kernel, y, 10, TopKHinge(1), np.ones(300), tol=1e-9, callback=lambda p: seen.append(p) or len(seen) == 3
    )
    assert result.status is Status.STOPPED
    assert len(seen) == 3
    assert [progress.done for progress in seen] == result.history["iteration"][:-1].tolist()
    assert list(result.history) == ["iteration", "seconds", "primal", "dual", "active_rows"]
    assert (result.history["primal"] >= result.history["dual"]).all()
    assert (np.diff(result.history["seconds"]) >= 0.0).all()
    assert result.history["dual"][-1] == result.certificate.dual
    with pytest.raises(KeyboardInterrupt):
        solve_kernel_top_k(kernel, y, 10, TopKHinge(1), np.ones(300), callback=_interrupt)


def _interrupt(progress):
    raise KeyboardInterrupt


class CountedAscent:
    """The core's solver; signals when it has started, and counts its pieces of work."""

    def __init__(self, begun, *given):
        self.core, self.begun, self.n_pieces = _core.KernelAscentDouble(*given), begun, 0

    def run(self, work):
        self.n_pieces += 1
        self.begun.set()
        return self.core.run(work)

    def __getattr__(self, name):
        return getattr(self.core, name)


@pytest.mark.parametrize("cache_size_mb", [512.0, 1.0])
def test_ctrl_c_ends_a_long_run_after_the_piece_in_hand(cache_size_mb, monkeypatch):
    rng = np.random.default_rng(0)
    kernel, y = TrainingKernel(rng.normal(size=(2500, 5)), RBF), rng.integers(0, 9, 2500)
    begun, made, n_then = threading.Event(), [], []
    core = types.SimpleNamespace(
        KernelAscentDouble=lambda *given: made.append(CountedAscent(begun, *given)) or made[-1]
    )
    monkeypatch.setattr("widemargin.solvers.top_k.kernel._core", core)

    def press():
        begun.wait()
        _thread.interrupt_main()
        n_then.append(made[0].n_pieces)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        solve_kernel_top_k(
            kernel, y, 9, TopKHinge(1), np.full(2500, 1e3), tol=1e-9, max_iter=10**6, cache_size_mb=cache_size_mb
        )
    thread.join()
    assert made[0].n_pieces - n_then[0] <= 1


def test_float32_that_stalls_continues_in_float64(digits, monkeypatch):
    """At C = 100 the rounding of float32 scores, weighted by the costs, is above a gap of 1e-5."""
    kernel, y = digits
    double, made = _core.KernelAscentDouble, []

    def make(*arguments):
        made.append(double(*arguments))
        return made[-1]

    monkeypatch.setattr(_core, "KernelAscentDouble", make)
    result = solve_kernel_top_k(kernel, y, 10, TopKHinge(1), np.full(300, 100.0), tol=1e-5, max_iter=50_000)
    assert len(made) == 1
    assert result.status is Status.CONVERGED
    assert result.certificate.dual <= 23.91681903 <= result.certificate.primal + 2e-8


def test_negative_curvature_is_refused():
    X, y, weights = make_rows()
    with pytest.raises(NotPositiveDefiniteError, match="use kernel='rbf'"):
        solve_kernel_top_k(TrainingKernel(X, make_kernel("sigmoid", 1.0, coef0=1.0)), y, 5, TopKHinge(1), weights)


def test_arguments_that_do_not_fit_are_refused():
    X, y, weights = make_rows()
    kernel = TrainingKernel(X, RBF)
    with pytest.raises(ValueError, match="the kernel has 24 rows, y has 23"):
        solve_kernel_top_k(kernel, y[1:], 5, TopKHinge(1), weights)
    with pytest.raises(ValueError, match="k=5 is too large, because there are only 4 wrong"):
        solve_kernel_top_k(kernel, y, 5, TopKHinge(5), weights)
