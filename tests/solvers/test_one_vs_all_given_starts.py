"""The fast solver reaches the same optimum from given weights as from its own start; pruned solutions are certified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import planned, solve_large, solve_newton
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS
from widemargin.solvers.one_vs_all.prune_sweep import prune_sweep
from widemargin.solvers.result import Status

SHARES = np.append(np.geomspace(0.002, 0.7, 30), [0.0, 1.0])


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def data(request):
    """Rows of nine features of very different frequency, unit length; rare, frequent, empty and full labels."""
    rng, n_rows, n_features = np.random.default_rng(3), 1500, 300
    popularity = 1.0 / np.arange(1, n_features + 1)
    columns = rng.choice(n_features, size=(n_rows, 9), p=popularity / popularity.sum())
    rows = np.repeat(np.arange(n_rows), 9)
    X = sp.csr_array((rng.uniform(0.5, 2.0, rows.size), (rows, columns.ravel())), shape=(n_rows, n_features + 5))
    X.sum_duplicates()
    X = sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X).astype(request.param)
    scores = X @ rng.normal(size=(X.shape[1], len(SHARES))) + 0.4 * rng.normal(size=(n_rows, len(SHARES)))
    limits = [np.quantile(scores[:, j], 1 - share) for j, share in enumerate(SHARES)]
    return X, sp.csr_array((scores > limits) | (SHARES == 1.0))


def losses(X, Y, coef, intercept):
    """Σ_i max(0, 1 − y (w·x + b))² of every label, from dense arrays."""
    signs = np.where(Y.toarray(), 1.0, -1.0)
    scores = X.astype(np.float64) @ coef.T.astype(np.float64) + intercept.astype(np.float64)
    return (np.maximum(0.0, 1.0 - signs * scores) ** 2).sum(axis=0)


def objectives(X, Y, coef, intercept, C):
    coef = coef.toarray() if sp.issparse(coef) else coef
    return 0.5 * (coef.astype(np.float64) ** 2).sum(axis=1) + C * losses(X, Y, coef, intercept)


def rule_ratios(X, Y, coef, intercept, C, tol):
    """‖∇L‖ over the bound of the rule (12)–(13), label by label, by the formulas."""
    signs, X = np.where(Y.toarray(), 1.0, -1.0), X.astype(np.float64)

    def gradients(coef, intercept):
        slopes = -2 * C * signs * np.maximum(0.0, 1.0 - signs * (X @ coef.T + intercept))
        return np.vstack([coef.T + X.T @ slopes, slopes.sum(axis=0)])

    rare = np.maximum(1, np.minimum((signs > 0).sum(axis=0), (signs < 0).sum(axis=0)))
    zero = np.linalg.norm(gradients(np.zeros(coef.shape), np.zeros(len(coef))), axis=0)
    found = np.linalg.norm(gradients(coef.astype(np.float64), intercept.astype(np.float64)), axis=0)
    return found / (tol * rare / X.shape[0] * zero)


@pytest.mark.parametrize("C", [0.1, 2.0, 30.0])
def test_another_c_is_reached_from_a_solution_with_rule_and_certificate(data, C):
    X, Y = data
    before = solve_large(X, Y, prune=0.01)
    cold = solve_large(X, Y, C=C)
    warm = solve_large(X, Y, C=C, start=(before.coef, before.intercept))
    assert warm.status is Status.CONVERGED
    assert rule_ratios(X, Y, warm.coef, warm.intercept, C, 0.01).max() <= 1.0
    np.testing.assert_allclose(warm.primal_by_label, objectives(X, Y, warm.coef, warm.intercept, C), rtol=1e-9)
    gaps = [result.primal_by_label - result.dual_by_label for result in (cold, warm)]
    assert (gaps[1] <= 1e-3 * warm.primal_by_label).all()
    distances = np.linalg.norm(cold.coef.astype(np.float64) - warm.coef, axis=1)
    assert (distances <= np.sqrt(2 * gaps[0]) + np.sqrt(2 * gaps[1]) + 1e-12).all()


def test_a_solution_needs_fewer_iterations_than_no_start(data):
    X, Y = data
    cold = solve_large(X, Y, C=2.0)
    near = solve_large(X, Y, C=1.0)
    warm = solve_large(X, Y, C=2.0, start=(near.coef, near.intercept))
    again = solve_large(X, Y, C=2.0, start=(cold.coef, cold.intercept))
    assert warm.n_iter.sum() < 0.8 * cold.n_iter.sum()
    assert again.n_iter.sum() < 0.5 * cold.n_iter.sum()


@pytest.mark.parametrize("scale", [-1.0, 1e3, 1e-6])
def test_any_start_leads_to_the_optimum(data, scale):
    X, Y = data
    rng = np.random.default_rng(5)
    start = (scale * rng.normal(size=(Y.shape[1], X.shape[1])), scale * rng.normal(size=Y.shape[1]))
    result = solve_large(X, Y, start=start)
    best = solve_newton(X.astype(np.float64), Y, tol=1e-7, gap_tol=1e-9)
    assert result.status is Status.CONVERGED
    assert rule_ratios(X, Y, result.coef, result.intercept, 1.0, 0.01).max() <= 1.0
    assert (result.primal_by_label >= best.dual_by_label * (1 - 1e-9)).all()
    assert (result.dual_by_label <= best.primal_by_label * (1 + 1e-9)).all()


@pytest.mark.parametrize("options", [{"fit_intercept": False}, {"regularize_intercept": True}])
def test_starts_serve_other_intercepts(data, options):
    X, Y = data
    near = solve_large(X, Y, C=0.5, **options)
    warm = solve_large(X, Y, **options, start=(near.coef, near.intercept))
    best = solve_newton(X.astype(np.float64), Y, **options, tol=1e-7, gap_tol=1e-9)
    assert warm.status is Status.CONVERGED
    np.testing.assert_allclose(warm.primal_by_label, best.primal_by_label, rtol=1.1e-3)


def test_starts_of_any_form_and_any_threads_give_the_same_bytes(data):
    X, Y = data
    near = solve_large(X, Y, C=0.5, prune=0.01)
    start = (near.coef, near.intercept)
    first = solve_large(X, Y, start=start)
    for other in (
        solve_large(X, Y, start=start, n_threads=3),
        solve_large(X, Y, start=(near.coef.toarray(), near.intercept.astype(np.float64))),
    ):
        assert other.coef.tobytes() == first.coef.tobytes()
        assert other.intercept.tobytes() == first.intercept.tobytes()


def test_starts_that_are_not_finite_are_refused(data):
    X, Y = data
    bad = np.full((Y.shape[1], X.shape[1]), np.nan)
    with pytest.raises(ValueError, match="NaN or infinity"):
        solve_large(X, Y, start=(bad, np.zeros(Y.shape[1])))


THRESHOLDS = [0.0, 0.003, 0.1, 5.0]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("C", [0.2, 10.0])
def test_a_sweep_equals_fits_at_each_threshold(data, C, n_threads):
    X, Y = data
    base = solve_large(X, Y, C=C)
    sweep = list(prune_sweep(planned(X, Y, C=C, n_threads=n_threads), base, THRESHOLDS))
    for threshold, pruned in zip(THRESHOLDS, sweep, strict=True):
        alone = solve_large(X, Y, C=C, prune=threshold)
        assert sp.issparse(pruned.coef) == sp.issparse(alone.coef)
        coefs = [sp.csr_array(result.coef) for result in (pruned, alone)]
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(*(getattr(coef, part) for coef in coefs))
        np.testing.assert_array_equal(pruned.intercept, alone.intercept)
        expected = objectives(X, Y, alone.coef, alone.intercept, C)
        np.testing.assert_allclose(pruned.primal_by_label, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(pruned.pruned_share, alone.pruned_share, atol=1e-6)
        assert pruned.certificate.dual == pytest.approx(alone.certificate.dual, rel=1e-12)
        assert pruned.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-9)
        before = alone.certificate.primal_before_pruning
        assert pruned.certificate.primal_before_pruning == pytest.approx(before, rel=1e-12)
        assert pruned.certificate.worst.index == alone.certificate.worst.index


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("dense", [False, True])
def test_a_sweep_serves_dense_rows_weights_and_the_logistic_loss(data, loss, dense):
    X, Y = data
    X, Y = (X.toarray() if dense else X)[:200], Y[:200, 5:12]
    rng = np.random.default_rng(1)
    problem = {
        "C": 2.0,
        "loss": loss,
        "sample_weight": rng.integers(0, 3, 200),
        "positive_weight": rng.uniform(0.5, 2, 7),
        "regularize_intercept": True,
    }
    base = solve_newton(X, Y, **problem)
    for threshold, pruned in zip([0.02, 0.3], prune_sweep(planned(X, Y, **problem), base, [0.02, 0.3]), strict=True):
        alone = solve_newton(X, Y, **problem, prune=threshold)
        np.testing.assert_array_equal(pruned.coef.toarray(), alone.coef.toarray())
        np.testing.assert_allclose(pruned.primal_by_label, alone.primal_by_label, rtol=1e-12)
        np.testing.assert_allclose(pruned.pruned_share, alone.pruned_share, atol=1e-6)


def test_a_sweep_names_a_label_that_rounding_stopped_as_the_worst(data):
    X, Y = data
    X, Y = X[:200], Y[:200, 5:12]
    base = solve_newton(X, Y, prune=0.3)
    stopped = base.status_by_label.copy()
    stopped[base.certificate.worst.index] = Status.NOT_ATTAINED.value  # with a gap that is no rounding
    (pruned,) = prune_sweep(planned(X, Y), replace(base, status_by_label=stopped), [0.3])
    assert pruned.certificate.worst.index == base.certificate.worst.index
    assert pruned.status is Status.NOT_ATTAINED
    primal = pruned.bounds_by_label[:, BOUND_COLUMNS.index("primal")]
    np.testing.assert_array_equal(primal, pruned.primal_by_label)
