"""The one-vs-all solver: statuses, the course of the objective, laws, one-sided labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from one_vs_all_solvers import solve_newton
from widemargin.solvers.result import Status

BACKENDS = ["core", "reference"]


# Statuses


def test_converged_means_the_gradient_rule_and_the_gap_hold_for_every_label(labelled_rows):
    X, Y = labelled_rows
    result = solve_newton(X, Y)
    assert result.status is Status.CONVERGED
    assert (result.status_by_label == "converged").all()
    assert ((result.primal_by_label - result.dual_by_label) / result.primal_by_label <= 1e-3).all()
    n = X.shape[0]
    for y, w, b in zip(Y.toarray().astype(bool).T, result.coef, result.intercept, strict=True):
        sign = np.where(y, 1.0, -1.0)

        def gradient(w, b, sign=sign):
            slopes = -2 * sign * np.maximum(0.0, 1.0 - sign * (X @ w + b))
            return np.append(w + X.T @ slopes, slopes.sum())

        share = max(1, min(y.sum(), n - y.sum())) / n
        limit = 0.01 * share * np.linalg.norm(gradient(np.zeros_like(w), 0.0))
        assert np.linalg.norm(gradient(w, b)) <= limit * (1 + 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_max_iter_is_reported_with_honest_bounds(labelled_rows, backend):
    X, Y = labelled_rows
    best = solve_newton(X, Y, tol=1e-10, backend=backend)
    result = solve_newton(X, Y, max_iter=1, tol=1e-6, backend=backend)
    assert result.status is Status.MAX_ITER
    assert (result.n_iter == 1).all()
    assert result.n_iter.dtype == np.int64
    assert (result.dual_by_label <= best.primal_by_label * (1 + 1e-12)).all()
    assert (result.primal_by_label >= best.dual_by_label * (1 - 1e-12)).all()
    assert result.certificate.relative_gap > 1e-3


def test_time_limit_leaves_unsolved_labels_at_zero_with_their_objective_there(labelled_rows):
    X, Y = labelled_rows
    weight = np.linspace(0.0, 2.0, 120)
    factors = np.linspace(1.0, 3.0, 12)
    result = solve_newton(X, Y, C=2.0, sample_weight=weight, positive_weight=factors, time_limit_s=0.0)
    assert result.status is Status.TIME_LIMIT
    assert (result.status_by_label == "time_limit").all()
    assert not result.coef.any()
    assert not result.intercept.any()
    at_zero = 2.0 * (weight @ np.where(Y.toarray(), factors, 1.0))
    np.testing.assert_allclose(result.primal_by_label, at_zero, rtol=1e-12)
    assert not result.dual_by_label.any()
    assert result.certificate.primal == pytest.approx(result.certificate.primal_at_zero)


@pytest.mark.parametrize("prune", [0.0, 0.01])
def test_callback_stops_between_blocks_and_sees_progress(labelled_rows, prune):
    X, Y = labelled_rows
    seen = []

    def stop_at_six(progress):
        seen.append((progress.done, progress.total))
        return progress.done >= 6

    result = solve_newton(X, Y, callback=stop_at_six, labels_per_block=3, prune=prune)
    full = solve_newton(X, Y, prune=prune)
    assert seen == [(3, 12), (6, 12)]
    assert result.status is Status.STOPPED
    assert result.status_by_label.tolist() == ["converged"] * 6 + ["stopped"] * 6
    assert result.coef.shape == (12, 40)
    np.testing.assert_array_equal(result.dual_by_label[:6], full.dual_by_label[:6])
    np.testing.assert_allclose(result.primal_by_label[6:], 120.0)
    assert not result.dual_by_label[6:].any()
    assert result.certificate.worst.relative_gap == 1.0


def test_a_callback_that_stops_after_the_last_block_changes_nothing(labelled_rows):
    X, Y = labelled_rows
    assert solve_newton(X, Y, callback=lambda progress: progress.fraction == 1.0).status is Status.CONVERGED


def test_rounding_floor_counts_as_converged(labelled_rows):
    X, Y = labelled_rows
    for backend in BACKENDS:
        result = solve_newton(X, Y, tol=0.0, backend=backend)
        assert result.status is Status.CONVERGED
        assert result.certificate.worst.relative_gap <= 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_nearly_hard_margins_converge(seed):
    # C‖x‖² is 1e7 and the rows are separable: Hessians with condition 1e8, steps that stop at the next row's kink.
    rng = np.random.default_rng(seed)
    X, Y = 50.0 * rng.normal(size=(100, 50)), rng.random((100, 3)) < [0.03, 0.2, 0.9]
    for intercept in ({}, {"regularize_intercept": True}):
        result = solve_newton(X, Y, C=100.0, tol=1e-8, gap_tol=1e-6, **intercept)
        assert result.status is Status.CONVERGED
        assert result.certificate.worst.relative_gap <= 1e-6


def test_gap_tol_continues_where_the_gradient_rule_already_holds(labelled_rows):
    X, Y = labelled_rows
    loose = solve_newton(X, Y, tol=1.0, gap_tol=None)
    certified = solve_newton(X, Y, tol=1.0, gap_tol=1e-6)
    assert loose.certificate.worst.relative_gap > 1e-6
    assert certified.certificate.worst.relative_gap <= 1e-6
    assert certified.status is Status.CONVERGED


# The course of the objective


@pytest.mark.parametrize("backend", BACKENDS)
def test_objective_trace_never_rises(labelled_rows, backend):
    X, Y = labelled_rows
    for j in range(Y.shape[1]):
        history = solve_newton(X, Y[:, [j]], tol=1e-8, backend=backend).history
        assert history["iteration"].tolist() == list(range(history.n_rows))
        primal = history["primal"]
        assert (np.diff(primal) <= 1e-14 * primal[0]).all()
        assert primal[0] == pytest.approx(120.0)


def test_history_has_a_row_for_each_iteration_and_frequency_bin(labelled_rows):
    X, Y = labelled_rows
    result = solve_newton(X, Y)
    history = result.history
    bins = np.floor(np.log2(Y.sum(axis=0))).astype(int)
    for iteration, bin_, n_labels in zip(
        history["iteration"], history["frequency_bin"], history["n_labels"], strict=True
    ):
        assert n_labels == ((bins == bin_) & (result.n_iter >= iteration)).sum()
    assert history["n_labels"].sum() == (result.n_iter + 1).sum()
    np.testing.assert_array_equal(history["active_rows"][history["iteration"] == 0] % 120, 0)


def test_core_follows_the_specification_step_by_step(labelled_rows):
    X, Y = labelled_rows
    core, reference = (solve_newton(X, Y, tol=1e-6, prune=0.05, backend=backend) for backend in BACKENDS)
    np.testing.assert_array_equal(core.n_iter, reference.n_iter)
    np.testing.assert_allclose(core.coef.toarray(), reference.coef.toarray(), atol=1e-10)
    np.testing.assert_allclose(core.intercept, reference.intercept, atol=1e-10)
    np.testing.assert_allclose(core.primal_by_label, reference.primal_by_label, rtol=1e-10)
    np.testing.assert_allclose(core.dual_by_label, reference.dual_by_label, rtol=1e-10)
    np.testing.assert_allclose(core.pruned_share, reference.pruned_share, atol=1e-10)
    for name in set(core.history) - {"seconds", "seconds_std"}:
        np.testing.assert_allclose(core.history[name], reference.history[name], rtol=1e-6, atol=1e-9)


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 25), st.integers(1, 8)),
    intercept=st.sampled_from([{}, {"regularize_intercept": True}, {"fit_intercept": False}]),
    dtype=st.sampled_from([np.float32, np.float64]),
    prune=st.sampled_from([0.0, 0.1]),
)
@pytest.mark.slow
def test_core_and_specification_find_the_same_optimum(seed, shape, intercept, dtype, prune):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=shape) * (rng.random(shape) < 0.5)).astype(dtype)
    options = {"sample_weight": rng.choice([0.5, 1.0, 2.0], size=shape[0]), "positive_weight": [0.5, 1.0, 3.0]}
    Y = rng.random((shape[0], 3)) < 0.4
    core = solve_newton(sp.csr_array(X), Y, tol=1e-9, prune=prune, **intercept, **options)
    reference = solve_newton(X, Y, tol=1e-9, prune=prune, backend="reference", **intercept, **options)
    scale = 1e-9 if dtype is np.float64 else 1e-6
    assert core.status is reference.status is Status.CONVERGED
    np.testing.assert_allclose(core.dual_by_label, reference.dual_by_label, rtol=scale, atol=scale)
    np.testing.assert_allclose(
        core.certificate.primal_before_pruning, reference.certificate.primal_before_pruning, rtol=scale, atol=scale
    )
    np.testing.assert_allclose(core.intercept, reference.intercept, atol=1e-4 if dtype is np.float32 else 1e-6)
    assert core.certificate.gap >= 0
    assert (
        core.certificate.primal_before_pruning - core.certificate.dual <= 10 * scale * core.certificate.primal_at_zero
    )


# Laws


@pytest.mark.parametrize("threads", [2, 5])
def test_result_does_not_depend_on_threads_or_blocks(labelled_rows, threads):
    X, Y = labelled_rows
    one = solve_newton(X, Y, prune=0.01)
    many = solve_newton(X, Y, prune=0.01, n_threads=threads, labels_per_block=5)
    for name in ("data", "indices", "indptr"):
        assert getattr(one.coef, name).tobytes() == getattr(many.coef, name).tobytes()
    assert one.intercept.tobytes() == many.intercept.tobytes()
    assert one.certificate == many.certificate
    for name in set(one.history) - {"seconds", "seconds_std"}:
        assert one.history[name].tobytes() == many.history[name].tobytes()


@pytest.mark.parametrize("intercept", [{}, {"regularize_intercept": True}, {"fit_intercept": False}])
def test_weight_equals_repetition_and_zero_weight_equals_absence(labelled_rows, rng, intercept):
    X, Y = labelled_rows
    weight = rng.integers(0, 4, size=120)
    rows = np.repeat(np.arange(120), weight)
    weighted = solve_newton(X, Y, sample_weight=weight, tol=1e-10, **intercept)
    repeated = solve_newton(X[rows], Y[rows], tol=1e-10, **intercept)
    np.testing.assert_allclose(
        X @ weighted.coef.T + weighted.intercept, X @ repeated.coef.T + repeated.intercept, rtol=1e-7, atol=1e-9
    )
    kept = solve_newton(X[weight > 0], Y[weight > 0], sample_weight=weight[weight > 0], tol=1e-10, **intercept)
    assert kept.coef.tobytes() == weighted.coef.tobytes()


def test_negated_labels_give_negated_weights(labelled_rows):
    X, Y = labelled_rows
    flipped = sp.csr_array(~Y.toarray())
    one, other = (solve_newton(X, labels, tol=1e-10) for labels in (Y, flipped))
    np.testing.assert_allclose(one.coef, -other.coef, atol=1e-8)
    np.testing.assert_allclose(one.intercept, -other.intercept, atol=1e-8)


def test_scaling_weights_against_C_changes_nothing(labelled_rows):
    X, Y = labelled_rows
    one = solve_newton(X, Y, C=4.0, tol=1e-10)
    other = solve_newton(X, Y, C=1.0, sample_weight=np.full(120, 4.0), tol=1e-10)
    np.testing.assert_allclose(one.coef, other.coef, atol=1e-9)


def test_warm_start_from_the_solution_takes_no_step(labelled_rows):
    X, Y = labelled_rows
    cold = solve_newton(X, Y, tol=1e-6)
    for coef in (cold.coef, sp.csr_matrix(cold.coef)):
        warm = solve_newton(X, Y, tol=1e-6, start=(coef, cold.intercept), labels_per_block=5)
        assert not warm.n_iter.any()
        np.testing.assert_array_equal(warm.coef, cold.coef)
    near = solve_newton(X, Y, tol=1e-6, start=(1.01 * cold.coef, cold.intercept))
    assert near.n_iter.sum() < cold.n_iter.sum()


# One-sided labels


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_without_positives_or_negatives_are_exact(labelled_rows, backend):
    X, _ = labelled_rows
    Y = np.zeros((120, 2))
    Y[:, 1] = 1.0
    result = solve_newton(X, Y, backend=backend)
    assert not result.coef.any()
    assert result.intercept.tolist() == [-1.0, 1.0]
    assert result.certificate.primal == result.certificate.dual == result.certificate.relative_gap == 0.0
    assert result.certificate.primal_at_zero == pytest.approx(240.0)
    assert result.status is Status.CONVERGED
    assert result.n_iter.tolist() == [0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_side_without_weight_is_a_side_without_rows(labelled_rows, backend):
    X, Y = labelled_rows
    result = solve_newton(X, Y[:, [6]], positive_weight=[0.0], backend=backend)
    assert result.intercept.tolist() == [-1.0]
    assert result.certificate.primal == result.certificate.dual == 0.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_sided_label_with_a_regularised_intercept_is_an_ordinary_problem(backend):
    # Rows are zero, so only b counts: ½b² + n(1 + b)² is least at b = −2n/(1 + 2n).
    n = 5
    X, Y = np.zeros((n, 2)), np.zeros((n, 1))
    result = solve_newton(X, Y, regularize_intercept=True, tol=1e-12, backend=backend)
    b = -2 * n / (1 + 2 * n)
    assert result.intercept[0] == pytest.approx(b, rel=1e-9)
    assert result.certificate.primal == pytest.approx(0.5 * b**2 + n * (1 + b) ** 2, rel=1e-12)
    assert result.certificate.relative_gap <= 1e-12
