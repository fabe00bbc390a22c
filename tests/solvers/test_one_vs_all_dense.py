"""The dense one-vs-all solver: other solvers' optimum, rule and bounds over all rows, for any number of threads."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from liblinear.liblinearutil import train

from one_vs_all_solvers import solve_large, solve_newton
from widemargin.solvers.one_vs_all.dense import block_width, newton_direction
from widemargin.solvers.result import Status

LOSSES = ["squared_hinge", "logistic"]
INTERCEPTS = [(True, False), (True, True), (False, False)]


def correlated_rows(rng, n_rows=700, n_features=24, n_labels=12):
    """Rows with correlated features so that gradient steps alone are slow; labels of all frequencies."""
    mixing = rng.normal(size=(n_features, n_features)) * np.geomspace(1.0, 0.03, n_features)
    X = 0.4 + rng.normal(size=(n_rows, n_features)) @ mixing
    scores = X @ rng.normal(size=(n_features, n_labels)) + 0.5 * rng.normal(size=(n_rows, n_labels))
    shares = np.geomspace(0.005, 0.8, n_labels)
    limits = np.array([np.quantile(scores[:, j], 1 - shares[j]) for j in range(n_labels)])
    return X, scores > limits


@pytest.fixture(scope="module")
def data():
    return correlated_rows(np.random.default_rng(5))


def value_and_slope(loss, m):
    if loss == "logistic":
        return np.logaddexp(0.0, -m), -1.0 / (1.0 + np.exp(m))
    return np.maximum(0.0, 1.0 - m) ** 2, -2.0 * np.maximum(0.0, 1.0 - m)


def rule_ratios(X, Y, result, tol, loss, intercept=(True, False), c=None):
    """‖∇L‖ over the bound of the rule (12)–(13), and the objective, by the formulas in float64; c is shaped like Y."""
    X = X.astype(np.float64)
    signs = np.where(Y, 1.0, -1.0)
    c = np.ones(Y.shape) if c is None else c
    bias, penalty_b = float(intercept[0]), float(intercept[1])

    def norms(W, b):
        value, slope = value_and_slope(loss, signs * (X @ W.T + bias * b))
        a = c * signs * slope
        g = np.vstack([W.T + X.T @ a, bias * a.sum(axis=0) + penalty_b * b])
        objective = 0.5 * np.square(W).sum(axis=1) + 0.5 * penalty_b * b**2 + (c * value).sum(axis=0)
        return np.linalg.norm(g, axis=0), objective

    W, b = result.coef.astype(np.float64), result.intercept.astype(np.float64)
    positive, total = (c * Y).sum(axis=0), c.sum(axis=0)
    share = np.maximum(1.0, np.minimum(positive, total - positive)) / total
    norm, objective = norms(W, b)
    return norm / (tol * share * norms(0 * W, 0 * b)[0]), objective


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_the_rule_holds_in_float64_over_all_rows_for_every_label(data, loss, dtype, tol):
    X, Y = data[0].astype(dtype), data[1]
    result = solve_large(X, Y, loss=loss, tol=tol)
    assert result.status is Status.CONVERGED
    assert result.coef.dtype == dtype
    assert result.history["cg_steps"].sum() == 0  # nothing was left to the Newton solver
    ratios, objectives = rule_ratios(X, Y, result, tol, loss)
    assert ratios.max() <= 1.0
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-10)
    gaps = (result.primal_by_label - result.dual_by_label) / result.primal_by_label
    assert gaps.max() <= 1e-3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_objectives_are_those_of_a_conic_solver(loss, intercept):
    rng = np.random.default_rng(1)
    X, Y = correlated_rows(rng, 60, 5, 3)
    result = solve_large(
        X, Y, loss=loss, C=2.0, fit_intercept=intercept[0], regularize_intercept=intercept[1], tol=1e-4, gap_tol=1e-6
    )
    for j in range(3):
        w, b = cp.Variable(5), cp.Variable()
        m = cp.multiply(np.where(Y[:, j], 1.0, -1.0), X @ w + float(intercept[0]) * b)
        losses = cp.sum_squares(cp.pos(1 - m)) if loss == "squared_hinge" else cp.sum(cp.logistic(-m))
        penalty = cp.sum_squares(w) + (float(intercept[1]) if intercept[0] else 1.0) * cp.square(b)
        best = cp.Problem(cp.Minimize(0.5 * penalty + 2.0 * losses)).solve(solver=cp.CLARABEL)
        assert result.dual_by_label[j] <= best * (1 + 1e-6)
        assert best * (1 - 1e-6) <= result.primal_by_label[j] <= best * (1 + 2e-6)


@pytest.mark.parametrize(("loss", "solver"), [("squared_hinge", 2), ("logistic", 0)])
@pytest.mark.parametrize("free", [True, False])
def test_weights_are_those_of_liblinear(data, loss, solver, free):
    X, Y = data[0], data[1][:, ::4]
    result = solve_large(X, Y, loss=loss, regularize_intercept=not free, tol=1e-5, gap_tol=1e-7)
    for j in range(Y.shape[1]):
        y = np.where(Y[:, j], 1, -1)
        model = train(y, X, f"-s {solver} -c 1 -B 1 {'-R' if free else ''} -e 1e-9 -q")
        turn = model.get_labels()[0]  # LIBLINEAR's weights belong to the label it saw first
        w, b = model.get_decfun(0)
        np.testing.assert_allclose(result.coef[j], turn * np.array(w), atol=5e-3)
        np.testing.assert_allclose(result.intercept[j], turn * b, atol=5e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_weights_of_rows_and_sides_enter_rule_and_objective(data, loss, intercept):
    X, Y = data
    rng = np.random.default_rng(2)
    row, positive, negative = rng.uniform(0.2, 3.0, len(X)), np.linspace(1, 5, 12), np.linspace(0.5, 1, 12)
    weights = {"sample_weight": row, "positive_weight": positive, "negative_weight": negative}
    options = {"loss": loss, "C": 0.7, "fit_intercept": intercept[0], "regularize_intercept": intercept[1], **weights}
    result = solve_large(X, Y, **options)
    assert result.status is Status.CONVERGED
    c = 0.7 * row[:, None] * np.where(Y, positive, negative)
    _, objectives = rule_ratios(X, Y, result, 0.01, loss, intercept, c)
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-10)
    best = solve_newton(X, Y, gap_tol=1e-9, **options)
    assert (result.dual_by_label <= best.primal_by_label * (1 + 1e-9)).all()
    np.testing.assert_allclose(result.primal_by_label, best.primal_by_label, rtol=1e-3)


def test_rows_of_weight_zero_take_no_part(data):
    X, Y = data
    keep = np.arange(len(X)) % 3 > 0
    weighted = solve_large(X, Y, sample_weight=keep.astype(float))
    dropped = solve_large(X[keep], Y[keep])
    np.testing.assert_array_equal(weighted.coef, dropped.coef)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_threads", [2, 3])
def test_models_do_not_depend_on_threads(data, loss, n_threads):
    X, Y = data
    one, many = (solve_large(X, Y, loss=loss, n_threads=n, width=4) for n in (1, n_threads))
    for name in ("coef", "intercept", "primal_by_label", "dual_by_label", "n_iter"):
        assert getattr(one, name).tobytes() == getattr(many, name).tobytes()


@pytest.mark.parametrize("prune", [0.01, 0.3])
def test_the_primal_bound_is_the_objective_of_the_pruned_weights(data, prune):
    X, Y = data
    full = solve_large(X, Y)
    result = solve_large(X, Y, prune=prune)
    assert sp.issparse(result.coef)
    kept = np.where(np.abs(full.coef) >= prune, full.coef, 0.0)
    np.testing.assert_array_equal(result.coef.toarray(), kept)
    signs = np.where(Y, 1.0, -1.0)
    losses = np.maximum(0.0, 1.0 - signs * (X @ kept.T + result.intercept)) ** 2
    np.testing.assert_allclose(
        result.primal_by_label, 0.5 * np.square(kept).sum(axis=1) + losses.sum(axis=0), rtol=1e-10
    )
    share = 1.0 - np.square(kept).sum(axis=1) / np.square(full.coef).sum(axis=1)
    np.testing.assert_allclose(result.pruned_share, share, atol=1e-12)
    np.testing.assert_allclose(result.certificate.primal_before_pruning, full.certificate.primal)


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_of_one_side_have_their_known_answer(data, loss):
    X, Y = data[0], data[1][:, :4].copy()
    Y[:, 0], Y[:, 1] = False, True
    result = solve_large(X, Y, loss=loss)
    expected = 1.0 if loss == "squared_hinge" else 30.0
    assert result.intercept[:2].tolist() == [-expected, expected]
    assert not result.coef[:2].any()
    ending = Status.CONVERGED if loss == "squared_hinge" else Status.NOT_ATTAINED
    assert result.status_by_label[:2].tolist() == [ending.value] * 2
    assert result.status_by_label[2:].tolist() == [Status.CONVERGED.value] * 2
    assert result.status is ending


@pytest.mark.parametrize("intercept", INTERCEPTS[1:])
def test_labels_of_one_side_are_solved_where_the_intercept_is_not_free(data, intercept):
    X, Y = data[0], data[1][:, :2].copy()
    Y[:, 0], Y[:, 1] = False, True
    result = solve_large(X, Y, fit_intercept=intercept[0], regularize_intercept=intercept[1])
    ratios, objectives = rule_ratios(X, Y, result, 0.01, "squared_hinge", intercept)
    assert ratios.max() <= 1.0
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-9)


@pytest.mark.parametrize("max_iter", [0, 1, 3])
def test_max_iter_limits_the_steps_and_bounds_stay_true(data, max_iter):
    X, Y = data
    result = solve_large(X, Y, max_iter=max_iter)
    best = solve_newton(X, Y, gap_tol=1e-9)
    assert result.status is Status.MAX_ITER
    assert result.n_iter.max() <= max_iter
    _, objectives = rule_ratios(X, Y, result, 0.01, "squared_hinge")
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-9)
    assert (result.dual_by_label <= best.primal_by_label * (1 + 1e-9)).all()


def test_hard_margins_are_finished_by_the_newton_solver():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 12)) * np.geomspace(1.0, 1e-4, 12)
    Y = (X @ rng.normal(size=(12, 3)) > 0) ^ (rng.random((300, 3)) < 0.01)
    result = solve_large(X, Y, C=1e6)
    plain = solve_newton(X, Y, C=1e6)
    assert result.status is plain.status is Status.CONVERGED
    np.testing.assert_allclose(result.primal_by_label, plain.primal_by_label, rtol=2e-3)


def test_values_that_float32_cannot_hold_are_left_to_the_newton_solver(data):
    X, Y = data[0] * 1e25, data[1][:, ::4]
    with np.errstate(all="ignore"):
        result = solve_large(X, Y, max_iter=20)
    assert np.isfinite(result.coef).all()
    assert (result.dual_by_label <= result.primal_by_label).all()


def test_the_callback_stops_between_rounds_with_honest_bounds(data):
    X, Y = data
    seen = []
    result = solve_large(X, Y, width=4, callback=lambda p: seen.append(p) or p.done >= 8)
    assert [p.done for p in seen] == [4, 8]
    assert result.status is Status.STOPPED
    assert not result.coef[8:].any()
    np.testing.assert_allclose(result.primal_by_label[8:], len(X))
    assert (result.dual_by_label[8:] == 0).all()
    assert solve_large(X, Y, time_limit_s=0.0).status is Status.TIME_LIMIT


def test_the_history_has_a_row_for_each_step_and_frequency(data):
    X, Y = data
    result = solve_large(X, Y)
    history = result.history
    first = history["iteration"] == 1
    assert history["n_labels"][first].sum() == Y.shape[1]
    assert history["frequency_bin"][first].tolist() == sorted({int(np.log2(n)) for n in Y.sum(axis=0)})
    assert history["n_labels"].sum() == result.n_iter.sum()


def test_blocks_shrink_with_the_memory_limit():
    assert block_width(1000, 60 * 10**6, 1024.0) < block_width(1000, 60 * 10**4, 1024.0) == 32
    assert block_width(1000, 60 * 10**9, 1.0) == 1


@pytest.mark.parametrize("bias", ["none", "free", "penalised"])
@pytest.mark.parametrize("n_rows", [4, 40])
def test_newton_directions_solve_the_full_system(bias, n_rows):
    rng = np.random.default_rng(3)
    rows, h, g, g_b = rng.normal(size=(n_rows, 9)), rng.uniform(0.5, 2, n_rows), rng.normal(size=9), 0.7
    full = np.column_stack([rows, np.full(n_rows, float(bias != "none"))])
    penalty = np.append(np.ones(9), {"none": 1.0, "free": 0.0, "penalised": 1.0}[bias])
    system = np.diag(penalty) + full.T @ (h[:, None] * full)
    expected = np.linalg.solve(system, -np.append(g, g_b if bias != "none" else 0.0))
    single = (rows.astype(np.float32), h.astype(np.float32), g.astype(np.float32))
    d, e = newton_direction(*single, g_b if bias != "none" else 0.0, bias)
    np.testing.assert_allclose(np.append(d, e), expected, rtol=2e-3, atol=1e-4)
