"""The fast one-vs-all solver: the Newton solver's optimum, rule and bounds over all rows, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import solve_large, solve_newton
from widemargin import OneVsAllClassifier, _core
from widemargin.solvers.result import Status


def text_like(rng, n_rows=1500, n_features=300, n_labels=40):
    """Rows of a few frequent and many rare features, unit length; labels that depend on features, most of them rare."""
    popularity = 1.0 / np.arange(1, n_features + 1)
    columns = rng.choice(n_features, size=(n_rows, 9), p=popularity / popularity.sum())
    rows = np.repeat(np.arange(n_rows), 9)
    X = sp.csr_array((rng.uniform(0.5, 2.0, rows.size), (rows, columns.ravel())), shape=(n_rows, n_features))
    X.sum_duplicates()
    X = sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X).astype(np.float32)
    scores = X @ rng.normal(size=(n_features, n_labels)) + 0.4 * rng.normal(size=(n_rows, n_labels))
    shares = np.geomspace(0.002, 0.7, n_labels)
    limits = np.array([np.quantile(scores[:, j], 1 - shares[j]) for j in range(n_labels)])
    return X, sp.csr_array(scores > limits)


@pytest.fixture(scope="module")
def data():
    return text_like(np.random.default_rng(11))


def rule_ratios(X, Y, coef, intercept, tol, C=1.0, penalty_b=0.0, bias=1.0):
    """‖∇L‖ over the bound of the rule (12)–(13), and the objective, by the formulas in float64."""
    X, coef = X.astype(np.float64), coef.toarray() if sp.issparse(coef) else coef
    ratios, objectives = [], []
    for y, w, b in zip(Y.toarray().astype(bool).T, coef.astype(np.float64), intercept.astype(np.float64), strict=True):
        sign = np.where(y, 1.0, -1.0)

        def gradient(w, b, sign=sign):
            slopes = -2 * C * sign * np.maximum(0.0, 1.0 - sign * (X @ w + bias * b))
            return np.append(w + X.T @ slopes, bias * slopes.sum() + penalty_b * b)

        n, rare = X.shape[0], max(1, min(y.sum(), (~y).sum()))
        allowed = tol * rare / n * np.linalg.norm(gradient(np.zeros(X.shape[1]), 0.0))
        ratios.append(np.linalg.norm(gradient(w, b)) / allowed)
        losses = C * np.sum(np.maximum(0.0, 1.0 - sign * (X @ w + bias * b)) ** 2)
        objectives.append(0.5 * w @ w + 0.5 * penalty_b * b * b + losses)
    return np.array(ratios), np.array(objectives)


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4])
def test_the_rule_holds_in_float64_over_all_rows_for_every_label(data, tol):
    X, Y = data
    result = solve_large(X, Y, tol=tol)
    assert result.status is Status.CONVERGED
    ratios, objectives = rule_ratios(X, Y, result.coef, result.intercept, tol)
    assert ratios.max() <= 1.0
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-9)


def test_bounds_bracket_the_optimum_and_gaps_are_within_gap_tol(data):
    X, Y = data
    best = solve_newton(X.astype(np.float64), Y, tol=1e-7, gap_tol=1e-9)
    result = solve_large(X, Y)
    assert (result.dual_by_label <= best.primal_by_label * (1 + 1e-9)).all()
    assert (result.primal_by_label >= best.dual_by_label * (1 - 1e-9)).all()
    assert ((result.primal_by_label - result.dual_by_label) / result.primal_by_label <= 1e-3).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_both_solvers_reach_the_same_optimum(data, dtype, index):
    X, Y = data
    X = X.astype(dtype)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    fast = solve_large(X, Y[:, ::4], tol=1e-4, gap_tol=1e-6)
    plain = solve_newton(X, Y[:, ::4], tol=1e-6, gap_tol=1e-8)
    assert fast.coef.dtype == dtype
    np.testing.assert_allclose(fast.primal_by_label, plain.primal_by_label, rtol=2e-6)
    # f is 1-strongly convex in w: two points within a gap of the optimum are at most √(2 gap) each away from it.
    distance = np.linalg.norm(fast.coef - plain.coef, axis=1)
    gaps = [np.maximum(r.primal_by_label - r.dual_by_label, 0) for r in (fast, plain)]
    assert (distance <= np.sqrt(2 * gaps[0]) + np.sqrt(2 * gaps[1]) + 1e-5).all()


def test_data_that_float32_cannot_hold_are_certified_as_they_are(data):
    X, Y = data
    X = X.astype(np.float64) * 1.1
    result = solve_large(X, Y[:, ::5])
    ratios, objectives = rule_ratios(X, Y[:, ::5], result.coef, result.intercept, 0.01)
    assert ratios.max() <= 1.0
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-12)


@pytest.mark.parametrize("prune", [0.01, 0.3])
def test_the_primal_bound_is_the_objective_of_the_pruned_weights(data, prune):
    X, Y = data
    full = solve_large(X, Y)
    result = solve_large(X, Y, prune=prune)
    assert sp.issparse(result.coef)
    assert np.abs(result.coef.data).min() >= prune
    _, objectives = rule_ratios(X, Y, result.coef, result.intercept, 0.01)
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-9)
    np.testing.assert_allclose(result.certificate.primal_before_pruning, full.certificate.primal, rtol=1e-3)
    dropped = 1 - np.asarray(result.coef.power(2).sum(axis=1)) / np.square(full.coef).sum(axis=1)
    np.testing.assert_allclose(result.pruned_share, dropped, atol=0.02)


@pytest.mark.parametrize("n_threads", [2, 5])
def test_models_do_not_depend_on_threads(data, n_threads):
    X, Y = data
    one = solve_large(X, Y, prune=0.01)
    many = solve_large(X, Y, prune=0.01, n_threads=n_threads)
    for name in ("data", "indices", "indptr"):
        assert getattr(one.coef, name).tobytes() == getattr(many.coef, name).tobytes()
    assert one.intercept.tobytes() == many.intercept.tobytes()
    assert one.primal_by_label.tobytes() == many.primal_by_label.tobytes()
    assert one.dual_by_label.tobytes() == many.dual_by_label.tobytes()


@pytest.mark.parametrize(
    "name", ["avx1024", "AVX2", "neon" if "neon" not in _core.available_instruction_sets() else "avx2"]
)
def test_an_unsupported_instruction_set_is_refused_by_name(data, name, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", name)
    sets = ", ".join(_core.available_instruction_sets())
    with pytest.raises(ValueError, match=f"WIDEMARGIN_ISA is '{name}', which .* it has {sets}"):
        solve_large(*data)
    with pytest.raises(ValueError, match="WIDEMARGIN_ISA"):
        OneVsAllClassifier().fit(data[0], data[1])


@pytest.mark.parametrize("isa", _core.available_instruction_sets())
def test_every_instruction_set_gives_a_certified_model(data, isa, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    X, Y = data
    result = solve_large(X, Y[:, ::3])
    assert rule_ratios(X, Y[:, ::3], result.coef, result.intercept, 0.01)[0].max() <= 1.0


@pytest.mark.parametrize(
    ("settings", "penalty_b", "bias"),
    [
        ({}, 0.0, 1.0),
        ({"regularize_intercept": True}, 1.0, 1.0),
        ({"fit_intercept": False}, 0.0, 0.0),
        ({"C": 5.0}, 0.0, 1.0),
        ({"C": 0.05}, 0.0, 1.0),
    ],
)
def test_intercepts_and_costs_of_all_kinds_meet_the_rule(data, settings, penalty_b, bias):
    X, Y = data
    result = solve_large(X, Y[:, ::3], **settings)
    assert result.status is Status.CONVERGED
    C = settings.get("C", 1.0)
    ratios, objectives = rule_ratios(X, Y[:, ::3], result.coef, result.intercept, 0.01, C, penalty_b, bias)
    assert ratios.max() <= 1.0
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [1.0, 1e4])
def test_problems_too_hard_for_float32_are_finished_by_the_newton_solver(data, dtype, C):
    X, Y = data
    X, Y = X.astype(dtype), Y[:, ::6]
    X.data *= np.exp(2 * np.random.default_rng(8).normal(size=X.nnz)).astype(dtype)
    fast = solve_large(X, Y, C=C)
    plain = solve_newton(X, Y, C=C)
    assert fast.status is Status.CONVERGED
    _, objectives = rule_ratios(X, Y, fast.coef, fast.intercept, 0.01, C)
    np.testing.assert_allclose(fast.primal_by_label, objectives, rtol=1e-9)
    np.testing.assert_allclose(fast.primal_by_label, plain.primal_by_label, rtol=2e-3)


def test_a_weight_of_two_equals_a_repeated_row(data):
    X, Y = data
    rng = np.random.default_rng(1)
    twice = rng.random(X.shape[0]) < 0.3
    weighted = solve_large(X, Y[:, ::6], sample_weight=1.0 + twice, tol=1e-4, gap_tol=1e-6)
    repeated = solve_large(sp.vstack([X, X[twice]]), sp.vstack([Y, Y[twice]])[:, ::6], tol=1e-4, gap_tol=1e-6)
    np.testing.assert_allclose(weighted.primal_by_label, repeated.primal_by_label, rtol=3e-6)
    np.testing.assert_allclose(weighted.coef, repeated.coef, atol=0.02)


def test_class_factors_agree_with_the_newton_solver(data):
    X, Y = data
    factors = {"positive_weight": np.linspace(1, 8, 10), "negative_weight": np.linspace(0.5, 1, 10)}
    fast = solve_large(X, Y[:, ::4], **factors, gap_tol=1e-5)
    plain = solve_newton(X, Y[:, ::4], **factors, gap_tol=1e-8, tol=1e-5)
    np.testing.assert_allclose(fast.primal_by_label, plain.primal_by_label, rtol=2e-5)


def edge_cases():
    """Empty rows, repeated rows with opposite labels, a feature in every row; labels with no, one, most, all rows."""
    rng = np.random.default_rng(2)
    X = sp.random_array((480, 60), density=0.1, random_state=rng, format="lil")
    X[:, 0] = 0.5
    X[:7] = 0
    X[10:20] = X[20:30]
    Y = np.zeros((480, 8), dtype=bool)
    Y[:, 1] = True
    Y[3, 2] = True
    Y[rng.random(480) < 0.8, 3] = True
    Y[rng.random(480) < 0.5, 4] = True
    Y[10:20, 5] = True
    Y[100, 6] = True
    Y[1:, 7] = True
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_edge_cases_meet_the_rule_or_are_solved_in_closed_form(tol):
    X, Y = edge_cases()
    result = solve_large(X, Y, tol=tol)
    assert result.status is Status.CONVERGED
    assert result.intercept[0] == -1.0
    assert result.intercept[1] == 1.0
    assert not result.coef[:2].any()
    rest = slice(2, None)
    ratios, objectives = rule_ratios(X, Y[:, rest], result.coef[rest], result.intercept[rest], tol)
    assert ratios.max() <= 1.0
    np.testing.assert_allclose(result.primal_by_label[rest], objectives, rtol=1e-8)


def test_turning_a_label_round_turns_the_weights_round(data):
    X, Y = data
    labels = Y[:, ::5].toarray()
    there = solve_large(X, labels, tol=1e-4, gap_tol=1e-6)
    back = solve_large(X, ~labels, tol=1e-4, gap_tol=1e-6)
    np.testing.assert_allclose(there.primal_by_label, back.primal_by_label, rtol=2e-6)
    np.testing.assert_allclose(there.coef, -back.coef, atol=0.02)


def test_duplicate_and_unsorted_entries_mean_their_sum():
    X = sp.csr_array(
        (np.array([1.0, 0.5, 0.5, 2.0], dtype=np.float32), np.array([1, 0, 0, 1]), np.array([0, 3, 4])), shape=(2, 2)
    )
    summed = sp.csr_array(np.array([[1.0, 1.0], [0.0, 2.0]], dtype=np.float32))
    Y = np.array([[1], [0]])
    one, other = (solve_large(matrix, Y, tol=1e-4, gap_tol=1e-6) for matrix in (X, summed))
    np.testing.assert_allclose(one.coef, other.coef, atol=1e-4)
    np.testing.assert_allclose(one.primal_by_label, other.primal_by_label, rtol=1e-5)


def test_no_time_means_no_label(data):
    X, Y = data
    result = solve_large(X, Y, time_limit_s=0.0)
    assert result.status is Status.TIME_LIMIT
    assert not result.coef.any()


def test_history_counts_labels_by_frequency(data):
    X, Y = data
    history = solve_large(X, Y).history
    counts = np.asarray(Y.sum(axis=0)).ravel()
    assert history["n_labels"].sum() == Y.shape[1]
    assert history["frequency_bin"].tolist() == sorted({int(np.log2(c)) for c in counts})
