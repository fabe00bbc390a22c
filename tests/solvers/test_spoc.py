"""SPOC and the l2 codes against Clarabel, LIBLINEAR and the top-k solvers; limits, starts and errors."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from sklearn.svm import LinearSVC

from reference import spoc as reference
from widemargin.problems.kernels import PrecomputedKernel, make_kernel
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.solvers.codes.continuous import continuous_code, incremental_column, incremental_margins
from widemargin.solvers.codes.spoc import solve_spoc
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.top_k.kernel import solve_kernel_top_k
from widemargin.solvers.top_k.linear import solve_top_k

QP_ACCURACY = 1e-6  # relative, of Clarabel's optimum
RBF, POLY = make_kernel("rbf", 0.5), make_kernel("poly", 0.3, 2, 1.0)


def make(seed, n=24, k=4, n_columns=3, noise=0.7):
    """Rows around centres of their classes; one row is 0, one is repeated."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    h = rng.normal(size=(k, n_columns))[y] + rng.normal(scale=noise, size=(n, n_columns))
    h[5], h[6] = 0.0, h[7]
    return h, y, rng.integers(0, 4, n) + (np.arange(n) == 0) * 1.0


def by_clarabel(h, y, k, C, norm_bound=None, weights=None, b=None, kernel=None):
    """Optimum of the primal; with a kernel over rows of a root of its matrix."""
    n = len(y)
    if kernel is not None:
        values, vectors = np.linalg.eigh(kernel.block(h, h))
        h = vectors * np.sqrt(np.maximum(values, 0.0))
    weights = np.ones(n) if weights is None else weights
    b = 1.0 - np.eye(k)[y] if b is None else b
    M, xi = cp.Variable((k, h.shape[1])), cp.Variable((n, 1))
    scores = h @ M.T
    own = cp.reshape(cp.sum(cp.multiply(scores, np.eye(k)[y]), axis=1), (n, 1), order="C")
    limits = [(xi + own) @ np.ones((1, k)) - scores >= b]
    value = C * cp.sum(cp.multiply(weights[:, None], xi))
    if norm_bound is None:
        value = value + 0.5 * cp.sum_squares(M)
    else:
        limits.append(cp.norm(cp.vec(M, order="C")) <= norm_bound)
    return cp.Problem(cp.Minimize(value), limits).solve(solver=cp.CLARABEL)


def check_against(learned, optimum, tol):
    """The bounds enclose the optimum within the tolerance."""
    certificate = learned.certificate
    slack = QP_ACCURACY * max(1.0, abs(optimum))
    assert learned.status is Status.CONVERGED
    assert certificate.relative_gap <= tol
    assert certificate.dual <= optimum + slack
    assert certificate.primal >= optimum - slack


def naive_objective(h, y, scores, C, squared_norm, weights=None, b=None):
    """½‖M‖² + C Σ w ξ, row by row."""
    total = 0.5 * squared_norm
    for i, true in enumerate(y):
        asked = np.where(np.arange(scores.shape[1]) == true, 0.0, 1.0) if b is None else b[i]
        weight = 1.0 if weights is None else weights[i]
        total += C * weight * max(asked[r] + scores[i, r] - scores[i, true] for r in range(scores.shape[1]))
    return total


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(24, 4, 3), (30, 2, 1), (20, 7, 5)])
def test_linear_codes_reach_the_optimum(C, weighted, shape):
    n, k, n_columns = shape
    h, y, weights = make(1, n, k, n_columns)
    weights = weights if weighted else None
    learned = continuous_code(h, y, norm="l2", C=C, sample_weight=weights, tol=1e-7)
    check_against(learned, by_clarabel(h, y, k, C, weights=weights), 1e-7)
    norm = float((learned.code**2).sum())
    recount = naive_objective(h, y, h @ learned.code.T, C, norm, weights)
    assert learned.certificate.primal == pytest.approx(recount, rel=1e-10)
    costs = C * (np.ones(n) if weights is None else weights)
    assert (learned.dual >= 0.0).all()
    assert (learned.dual.sum(axis=1) <= costs * (1 + 1e-12)).all()
    tau = -learned.dual
    tau[np.arange(n), y] = learned.dual.sum(axis=1)
    np.testing.assert_allclose(tau.T @ h, learned.code, atol=1e-9 * max(1.0, np.abs(tau).max()))
    assert learned.certificate.dual == pytest.approx(learned.dual.sum() - 0.5 * norm, rel=1e-9)


@pytest.mark.parametrize("kernel", [RBF, POLY], ids=["rbf", "poly"])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_kernel_codes_reach_the_optimum(kernel, C, weighted):
    h, y, weights = make(2)
    weights = weights if weighted else None
    learned = continuous_code(h, y, norm="l2", C=C, sample_weight=weights, kernel=kernel, tol=1e-5, max_iter=100_000)
    check_against(learned, by_clarabel(h, y, 4, C, weights=weights, kernel=kernel), 1e-5)
    assert learned.code is None
    scores = kernel.block(h, h[learned.support]) @ learned.dual_coef
    np.testing.assert_allclose(learned.scores(h), scores, atol=1e-12)
    norm = float((learned.dual_coef * scores[learned.support]).sum())
    recount = naive_objective(h, y, scores, C, norm, weights)
    assert learned.certificate.primal == pytest.approx(recount, rel=1e-9)


@pytest.mark.parametrize("norm_bound", [0.1, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_hard_codes_reach_the_optimum(norm_bound, weighted):
    h, y, weights = make(3)
    weights = weights if weighted else None
    learned = continuous_code(h, y, norm="l2", C=2.0, norm_bound=norm_bound, sample_weight=weights, tol=1e-6)
    check_against(learned, by_clarabel(h, y, 4, 2.0, norm_bound, weights), 1e-6)
    assert np.linalg.norm(learned.code) <= norm_bound * (1 + 1e-12)
    recount = naive_objective(h, y, h @ learned.code.T, 2.0, 0.0, weights)
    assert learned.certificate.primal == pytest.approx(recount, rel=1e-10)
    costs = 2.0 * (np.ones(24) if weights is None else weights)
    assert (learned.dual >= 0.0).all()
    assert (learned.dual.sum(axis=1) <= costs * (1 + 1e-9)).all()
    tau = -learned.dual
    tau[np.arange(24), y] = learned.dual.sum(axis=1)
    value = learned.dual.sum() - norm_bound * np.linalg.norm(tau.T @ h)
    assert learned.certificate.dual == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("norm_bound", [0.5, 2.0])
def test_hard_codes_with_a_kernel_reach_the_optimum(norm_bound):
    h, y, weights = make(4)
    learned = continuous_code(h, y, norm="l2", norm_bound=norm_bound, sample_weight=weights, kernel=RBF, tol=1e-4)
    check_against(learned, by_clarabel(h, y, 4, 1.0, norm_bound, weights, kernel=RBF), 1e-4)
    scores = learned.scores(h)
    assert (learned.dual_coef * scores[learned.support]).sum() <= norm_bound**2 * (1 + 1e-9)
    assert learned.certificate.primal == pytest.approx(naive_objective(h, y, scores, 1.0, 0.0, weights), rel=1e-9)


@pytest.mark.parametrize("options", [{"C": 0.5}, {"C": 20.0}, {"norm_bound": 0.3}, {"norm_bound": 5.0}], ids=str)
@pytest.mark.parametrize("seed", [5, 6])
def test_incremental_columns_reach_the_optimum(options, seed):
    h, y, weights = make(seed)
    code = continuous_code(h[:, :2], y, norm="l2", C=3.0).code
    b = incremental_margins(h[:, :2], y, code)
    assert b.min() < 0.0
    assert b.max() > 1.0
    column = incremental_column(h[:, :2], y, code, h[:, 2], norm="l2", sample_weight=weights, **options)
    assert column.code.shape == (4, 1)
    optimum = by_clarabel(h[:, 2:], y, 4, options.get("C", 1.0), options.get("norm_bound"), weights, b)
    check_against(column, optimum, 1e-6)


def test_a_bound_that_all_margins_fit_in_leaves_no_loss():
    h, y, _ = make(0, noise=0.05)
    h[5], h[6] = h[y == y[5]][0], h[y == y[6]][0]
    learned = continuous_code(h, y, norm="l2", norm_bound=1e3)
    assert learned.certificate.primal == learned.certificate.dual == 0.0
    assert np.linalg.norm(learned.code) < 1e3
    zero = continuous_code(h, y, norm="l2", C=2.0, norm_bound=0.0)
    assert not zero.code.any()
    assert (zero.certificate.primal, zero.certificate.dual) == (48.0, 48.0)


@pytest.mark.parametrize("C", [0.1, 5.0])
def test_with_outputs_that_are_the_rows_it_is_the_multiclass_svm(C):
    """Crammer and Singer's SVM: the top-k solvers with k = 1, and LIBLINEAR -s 4."""
    X, y, _ = make(7, n=60, k=5, n_columns=4)
    result = solve_spoc(X, y, 5, np.full(60, C), tol=1e-9)
    linear = solve_top_k(X, y, 5, TopKHinge(1), np.full(60, C), tol=1e-8)
    by_kernel = solve_kernel_top_k(PrecomputedKernel(X @ X.T), y, 5, TopKHinge(1), np.full(60, C), tol=1e-7)
    liblinear = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y)
    for other in (linear, by_kernel):
        assert other.certificate.primal == pytest.approx(result.certificate.primal, rel=1e-6)
    np.testing.assert_allclose(result.coef, linear.coef, atol=1e-3)
    np.testing.assert_allclose(result.coef, liblinear.coef_, atol=1e-4)


def test_large_problems_that_are_solved_roughly_are_certified_alike():
    rng = np.random.default_rng(16)
    y = rng.integers(0, 10, 1500)
    h = rng.normal(size=(10, 15))[y] + rng.normal(size=(1500, 15))
    rough = continuous_code(h, y, norm="l2", tol=1e-3)
    exact = continuous_code(h, y, norm="l2", tol=1e-6)
    check_against(rough, exact.certificate.primal, 1e-3)
    recount = naive_objective(h, y, h @ rough.code.T, 1.0, float((rough.code**2).sum()))
    assert rough.certificate.primal == pytest.approx(recount, rel=1e-9)
    again = solve_spoc(h, y, 10, np.ones(1500), tol=1e-3, start=rough.dual)
    assert again.status is Status.CONVERGED
    hard = continuous_code(h, y, norm="l2", norm_bound=2.0, tol=1e-2)
    assert hard.certificate.relative_gap <= 1e-2
    assert np.linalg.norm(hard.code) <= 2.0 * (1 + 1e-12)
    tau = -hard.dual
    tau[np.arange(1500), y] = hard.dual.sum(axis=1)
    assert hard.certificate.dual == pytest.approx(hard.dual.sum() - 2.0 * np.linalg.norm(tau.T @ h), rel=1e-9)


@pytest.mark.parametrize("kernel", [None, RBF], ids=["linear", "rbf"])
def test_two_classes_are_the_binary_svm_with_twice_the_cost(kernel):
    h, y, _ = make(8, n=40, k=2)
    learned = continuous_code(h, y, norm="l2", C=0.7, kernel=kernel, tol=1e-8, max_iter=100_000)
    K = h @ h.T if kernel is None else kernel.block(h, h)
    # LIBLINEAR on a root of the kernel matrix: LIBSVM would add an intercept.
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    binary = LinearSVC(C=1.4, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6).fit(root, y)
    scores = learned.scores(h)
    np.testing.assert_allclose(scores[:, 1] - scores[:, 0], root @ binary.coef_[0], atol=1e-3)
    np.testing.assert_allclose(scores[:, 1], -scores[:, 0], atol=1e-6)


def test_the_rows_of_the_code_sum_to_zero():
    h, y, _ = make(9)
    np.testing.assert_allclose(continuous_code(h, y, norm="l2").code.sum(axis=0), 0.0, atol=1e-12)


def test_a_bound_that_is_not_active_gives_the_least_loss():
    h, y, _ = make(0, noise=0.05)  # two rows differ only in their classes
    learned = continuous_code(h, y, norm="l2", norm_bound=100.0)
    check_against(learned, by_clarabel(h, y, 4, 1.0, 100.0), 1e-6)
    assert np.linalg.norm(learned.code) < 100.0


@pytest.mark.parametrize("C", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_norm_is_bounded_by_the_costs(C, seed):
    h, y, weights = make(seed)
    code = continuous_code(h, y, norm="l2", C=C, sample_weight=weights).code
    assert 0.0 < np.linalg.norm(code) <= 2 * C * (weights * np.linalg.norm(h, axis=1)).sum()


def test_weight_is_repetition():
    h, y, weights = make(10)
    times = weights.astype(int)
    weighted = continuous_code(h, y, norm="l2", C=0.7, sample_weight=weights, tol=1e-10)
    repeated = continuous_code(np.repeat(h, times, axis=0), np.repeat(y, times), norm="l2", C=0.7, tol=1e-10)
    np.testing.assert_allclose(weighted.code, repeated.code, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scales_of_outputs_do_not_spoil_the_certificate(scale):
    h, y, _ = make(11)
    learned = continuous_code(scale * h, y, norm="l2", C=1.0 / scale**2)
    reference = continuous_code(h, y, norm="l2", C=1.0)  # ½‖M/s‖² + (C/s²) Σξ: the same problem over s²
    assert learned.status is Status.CONVERGED
    assert learned.certificate.primal * scale**2 == pytest.approx(reference.certificate.primal, rel=3e-6)


def test_rows_of_zeros_and_margins_below_zero_cost_what_they_must():
    y = np.array([0, 1, 2])
    b = np.array([[0.0, -1.0, -2.0], [0.5, 0.0, 2.0], [-1.0, -1.0, 0.0]])
    for kernel in (None, make_kernel("linear")):
        learned = continuous_code(np.zeros((3, 2)), y, norm="l2", C=3.0, b=b, kernel=kernel)
        assert (learned.certificate.primal, learned.certificate.dual) == (6.0, 6.0)  # 3 · 2, the second row's
        assert learned.status is Status.CONVERGED


@pytest.mark.parametrize("kernel", [None, RBF], ids=["linear", "rbf"])
def test_a_start_at_the_solution_needs_no_pass(kernel):
    h, y, weights = make(12)
    costs = 2.0 * weights
    first = solve_spoc(h, y, 4, costs, kernel=kernel, tol=1e-6)
    again = solve_spoc(h, y, 4, costs, kernel=kernel, tol=2e-6, start=first.dual)
    assert again.status is Status.CONVERGED
    assert again.n_iter[0] <= (0 if kernel is None else 5)
    assert again.certificate.primal == pytest.approx(first.certificate.primal, rel=4e-6)


def test_the_reference_is_the_same_problem():
    h, y, weights = make(13)
    for kernel in (None, RBF):
        core = solve_spoc(h, y, 4, weights, kernel=kernel, tol=1e-5)
        K, b = (h @ h.T if kernel is None else kernel.block(h, h)), (np.arange(4) != y[:, None]).astype(float)
        eta = np.zeros(b.shape)
        eta[np.arange(len(y)), y] = weights
        _, reached = reference.solve(K, y, b, weights, eta, tol=1e-5, max_iter=10_000 * len(y))
        assert reached
        assert core.status is Status.CONVERGED
        assert reference.bounds(K, y, b, weights, eta)[0] == pytest.approx(core.certificate.primal, rel=3e-5)
        assert (core.coef is None) == (kernel is not None)


def test_every_way_to_end_has_its_status_and_a_certificate():
    h, y, _ = make(14, n=200, noise=2.0)
    costs = np.full(200, 1e3)
    seen = []
    results = {
        Status.CONVERGED: solve_spoc(h, y, 4, costs, tol=1e-3),
        Status.MAX_ITER: solve_spoc(h, y, 4, costs, tol=1e-12, max_iter=3),
        Status.TIME_LIMIT: solve_spoc(h, y, 4, costs, tol=1e-12, max_iter=10**6, callback=TimeLimit(0.0)),
        Status.STOPPED: solve_spoc(h, y, 4, costs, tol=1e-12, callback=lambda p: seen.append(p) or len(seen) == 2),
    }
    for status, result in results.items():
        assert result.status is status
        assert result.certificate.dual <= results[Status.CONVERGED].certificate.primal
        assert result.certificate.primal >= results[Status.CONVERGED].certificate.dual
        np.testing.assert_allclose(
            naive_objective(h, y, h @ result.coef.T, 1e3, float((result.coef**2).sum())), result.certificate.primal
        )
        assert result.history["iteration"][-1] == result.n_iter[0]
    assert results[Status.MAX_ITER].n_iter[0] == 3
    assert len(seen) == 2
    assert seen[0].done < seen[1].done
    code = continuous_code(h, y, norm="l2", norm_bound=1.0, tol=1e-12, max_iter=3)
    assert code.status is Status.MAX_ITER
    assert code.certificate.dual <= code.certificate.primal


def test_the_same_seed_gives_the_same_code():
    h, y, _ = make(15, n=100)
    first, second, other = (solve_spoc(h, y, 4, np.ones(100), seed=seed).coef for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, other, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": 0.0}, "tol must be"),
        ({"C": 1e300}, "the losses may overflow"),
        ({"scale": 1e150}, "squares overflow"),
        ({"norm": "l1", "kernel": RBF}, "a kernel requires norm='l2';"),
    ],
)
def test_bad_input_is_named(options, message):
    h, y, _ = make(0)
    h = h * options.pop("scale", 1.0)
    with pytest.raises(ValueError, match=message):
        continuous_code(h, y, **{"norm": "l2", **options})


@pytest.mark.parametrize("kernel", [None, RBF], ids=["linear", "rbf"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_worst_example_first_reaches_the_optimum(kernel, weighted):
    h, y, weights = make(17)
    weights = weights if weighted else None
    for norm_bound in (None, 0.8):
        learned = continuous_code(
            h, y, norm="l2", C=2.0, norm_bound=norm_bound, sample_weight=weights, kernel=kernel, tol=1e-6,
            order="worst-first", max_iter=100_000,
        )  # fmt: skip
        check_against(learned, by_clarabel(h, y, 4, 2.0, norm_bound, weights, kernel=kernel), 1e-6)


@pytest.mark.parametrize("kernel", [None, RBF], ids=["linear", "rbf"])
def test_worst_first_has_a_start_limits_and_a_callback(kernel):
    h, y, _ = make(18, n=60, noise=2.0)
    costs, options = np.full(60, 10.0), {"kernel": kernel, "order": "worst-first"}
    first = solve_spoc(h, y, 4, costs, tol=1e-4, **options)
    again = solve_spoc(h, y, 4, costs, tol=2e-4, start=first.dual, **options)
    assert (first.status, again.status, int(again.n_iter[0])) == (Status.CONVERGED, Status.CONVERGED, 0)
    seen = []
    stopped = solve_spoc(h, y, 4, costs, tol=1e-9, callback=lambda p: seen.append(p) or len(seen) == 2, **options)
    assert (stopped.status, len(seen)) == (Status.STOPPED, 2)
    assert solve_spoc(h, y, 4, costs, tol=1e-9, max_iter=2, **options).status is Status.MAX_ITER
    late = solve_spoc(h, y, 4, costs, tol=1e-12, max_iter=10**6, callback=TimeLimit(0.0), **options)
    assert late.status is Status.TIME_LIMIT
    assert late.certificate.dual <= late.certificate.primal


def test_worst_first_says_what_it_cannot_do():
    h, y, _ = make(0)
    with pytest.raises(ValueError, match="order must be 'random' or 'worst-first'"):
        solve_spoc(h, y, 4, np.ones(24), order="best")
    with pytest.raises(ValueError, match=r"the whole kernel matrix \(0 MB\); raise cache_size_mb"):
        solve_spoc(h, y, 4, np.ones(24), kernel=RBF, order="worst-first", cache_size_mb=1e-3)
    with pytest.raises(ValueError, match="order='worst-first' applies only to norm='l2'"):
        continuous_code(h, y, norm="l1", order="worst-first")


@pytest.mark.parametrize("seed", [92, 1349, 3777, 3957])
def test_a_kernel_code_that_a_limit_ends_has_a_feasible_dual_and_a_true_bound(seed):
    """Scaling up the weights for margins just below 1 would give dual variables above their costs."""
    rng = np.random.default_rng(seed)
    n, k, n_columns = int(rng.integers(4, 12)), int(rng.integers(2, 4)), int(rng.integers(1, 6))
    h, y = rng.normal(size=(n, n_columns)) * 10 ** rng.uniform(-1, 2), rng.integers(0, k, n)
    costs = np.full(n, 10 ** rng.uniform(-2, 5))
    result = solve_spoc(h, y, k, costs, kernel=make_kernel("linear"), tol=1e-12, max_iter=1000)
    best = solve_spoc(h, y, k, costs, tol=1e-12, max_iter=100_000).certificate.primal
    assert (result.dual.sum(axis=1) <= costs * (1 + 1e-12)).all()
    assert result.certificate.dual <= best * (1 + 1e-12)
