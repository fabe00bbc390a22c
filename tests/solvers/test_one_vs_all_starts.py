"""Starts of one-vs-all: their formulas and degenerate cases; all lead to the same optimum."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from hypothesis_examples import examples
from one_vs_all_solvers import numpy_twins, solve_newton
from reference.starts import mean_separating, solve_three
from widemargin.datasets import make_zipf_multilabel
from widemargin.problems.losses import LOSSES, get_loss
from widemargin.solvers.one_vs_all import starts
from widemargin.solvers.one_vs_all.problem import BlockResult, BlockTask
from widemargin.solvers.one_vs_all.starts import INITS, TreeStart, make_start, start_parameters
from widemargin.solvers.result import Status

BACKENDS = ["core", "reference"]
INTERCEPTS = {"free": (1.0, 0.0), "regularised": (1.0, 1.0), "none": (0.0, 1.0)}


def task_of(Y, weight=None, loss="squared_hinge", intercept="free", **options):
    Y = sp.csc_array(Y)
    Y.sort_indices()
    bias_value, bias_penalty = INTERCEPTS[intercept]
    defaults = {
        "positive_rows": Y.indices.astype(np.int64),
        "positive_indptr": Y.indptr.astype(np.int64),
        "row_weight": np.ones(Y.shape[0]) if weight is None else weight,
        "positive_factor": np.ones(Y.shape[1]),
        "negative_factor": np.ones(Y.shape[1]),
        "loss": loss,
        "C": 1.0,
        "bias_value": bias_value,
        "bias_penalty": bias_penalty,
        "tol": 0.01,
        "gap_tol": np.inf,
        "prune": 0.0,
        "max_iter": 100,
        "n_threads": 2,
    }
    return BlockTask(**(defaults | options))


def weights_of(init, X, task, backend="core", **init_params):
    """Starting weights and intercepts of all labels."""
    with numpy_twins() if backend == "reference" else contextlib.nullcontext():
        start = make_start(init, start_parameters(init_params, task.loss), X, task)
        out = BlockResult.zeros(len(task.positive_factor), X.shape[1], X.dtype)
        start.fill(start.next_labels(10**6), task, out)
    return out.coef, out.intercept


@pytest.fixture
def data():
    rng = np.random.default_rng(11)
    X = sp.csr_array(sp.random_array((150, 30), density=0.2, random_state=rng, format="csr"))
    Y = rng.random((150, 6)) < np.geomspace(0.02, 0.6, 6)
    Y[0] = True
    return X, Y, rng.choice([0.5, 1.0, 4.0], size=150)


# Mean-separating


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("intercept", sorted(INTERCEPTS))
@pytest.mark.parametrize("form", ["sparse", "dense", "float32"])
def test_mean_separating_is_the_shortest_solution_of_its_two_equations(data, backend, intercept, form):
    X, Y, weight = data
    rows = {"sparse": X, "dense": X.toarray(), "float32": X.astype(np.float32)}[form]
    coef, bias = weights_of("msi", rows, task_of(Y, weight, intercept=intercept), backend, s=1.5, t=-2.5)
    features = np.column_stack([X.toarray(), np.full(150, INTERCEPTS[intercept][0])])
    for j in range(Y.shape[1]):
        p = np.average(features[Y[:, j]], axis=0, weights=weight[Y[:, j]])
        n = np.average(features[~Y[:, j]], axis=0, weights=weight[~Y[:, j]])
        shortest = np.linalg.lstsq(np.array([p, n]), np.array([1.5, -2.5]), rcond=None)[0]
        np.testing.assert_allclose(np.append(coef[j], bias[j]), shortest, atol=1e-4 if form == "float32" else 1e-9)


def test_default_scores_of_the_means_depend_on_the_loss():
    assert start_parameters(None, "squared_hinge").t == -2.0
    assert start_parameters({}, "logistic").t == -3.0
    assert start_parameters({"t": -1}, "logistic").t == -1.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_linearly_dependent_means_start_from_zero(backend):
    X = np.tile([[1.0, 2.0, 0.5]], (10, 1))  # every mean is the same row
    Y = np.zeros((10, 3), dtype=bool)
    Y[:4, 0] = Y[:, 1] = True  # label 1 has no negatives, label 2 no positives
    for rows in (X, X.astype(np.float32), sp.csr_array(X)):
        coef, bias = weights_of("msi", rows, task_of(Y), backend)
        assert not coef.any()
        assert not bias.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_zeros_have_no_mean_to_separate(backend):
    Y = np.arange(8)[:, None] < 3
    coef, _ = weights_of("msi", np.zeros((8, 2)), task_of(Y, intercept="none"), backend)
    assert not coef.any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_orthogonal_means_use_their_own_formula(backend):
    # Without intercept p̄ = (1, 0) and x̄ = (0, 1): the negatives cancel the positives in the mean.
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 2.0], [-1.0, 2.0]])
    Y = np.array([[1], [1], [0], [0]])
    coef, _ = weights_of("msi", X, task_of(Y, intercept="none"), backend)
    np.testing.assert_allclose(coef, [[1.0, (0.5 * 1.0 + 0.5 * -2.0) / 1.0]], atol=1e-12)
    assert coef[0] @ X[2:].mean(axis=0) == pytest.approx(-2.0)


@examples(50)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.01, 0.99))
def test_formula_equals_least_norm_for_any_two_vectors(seed, d, share):
    rng = np.random.default_rng(seed)
    p, n = rng.normal(size=(2, d))
    w = mean_separating(p, share * p + (1 - share) * n, share, 1.0, -2.0)
    expected = np.linalg.lstsq(np.array([p, n]), np.array([1.0, -2.0]), rcond=None)[0]
    np.testing.assert_allclose(w, expected, atol=1e-6 * np.linalg.norm(expected))


# Subspace


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("intercept", sorted(INTERCEPTS))
def test_subspace_start_is_the_optimum_in_its_span(data, backend, loss, intercept):
    X, Y, weight = data
    factors = {"positive_factor": np.linspace(0.5, 3.0, 6), "C": 2.0}
    task = task_of(Y, weight, loss, intercept, **factors)
    coef, bias = weights_of("subspace", X, task, backend)
    rows, (bias_value, bias_penalty), phi = X.toarray(), INTERCEPTS[intercept], get_loss(loss).value
    for j in range(Y.shape[1]):
        p = np.average(rows[Y[:, j]], axis=0, weights=weight[Y[:, j]])
        x = np.average(rows, axis=0, weights=weight)
        sign = np.where(Y[:, j], 1.0, -1.0)
        c = 2.0 * weight * np.where(Y[:, j], factors["positive_factor"][j], 1.0)

        def value(w, b, sign=sign, c=c):
            return 0.5 * w @ w + 0.5 * bias_penalty * b**2 + c @ phi(sign * (rows @ w + bias_value * b))

        best = minimize(
            lambda theta, p=p, x=x, value=value: value(theta[0] * p + theta[1] * x, theta[2] * bias_value), np.zeros(3)
        )
        assert best.fun * (1 - 1e-6) <= value(coef[j], bias[j]) <= best.fun * (1 + 1e-3)
        residual = np.linalg.lstsq(np.array([p, x]).T, coef[j], rcond=None)[1]
        assert residual.size == 0 or residual[0] < 1e-18 * (coef[j] @ coef[j]) + 1e-20


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("form", ["sparse", "dense", "float32"])
def test_compiled_starts_equal_their_specification(data, loss, form):
    X, Y, weight = data
    rows = {"sparse": X, "dense": X.toarray(), "float32": X.astype(np.float32)}[form]
    for init in ("msi", "subspace"):
        for intercept in INTERCEPTS:
            core, reference = (weights_of(init, rows, task_of(Y, weight, loss, intercept), b) for b in BACKENDS)
            np.testing.assert_allclose(core[0], reference[0], atol=1e-9 if form != "float32" else 1e-4)
            np.testing.assert_allclose(core[1], reference[1], atol=1e-9 if form != "float32" else 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("intercept", sorted(INTERCEPTS))
def test_subspace_of_dependent_and_empty_means_is_harmless(backend, loss, intercept):
    X = np.tile([[1.0, 2.0, 0.5]], (10, 1))
    Y = np.zeros((10, 3), dtype=bool)
    Y[:4, 0] = Y[:, 1] = True
    for rows in (X, 0.0 * X):
        coef, bias = weights_of("subspace", rows, task_of(Y, loss=loss, intercept=intercept), backend)
        assert np.isfinite(coef).all()
        assert np.abs(coef).max() < 10
        if intercept == "free":  # one-sided labels have their own answer
            assert not bias[1:].any()


def test_three_equations_with_dependent_ones_are_solved_in_the_rest():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 3))
    np.testing.assert_allclose(solve_three(A.T @ A, np.ones(3)), np.linalg.solve(A.T @ A, np.ones(3)))
    A[:, 1] = 2 * A[:, 0]
    A[:, 2] = 0.0
    d = solve_three(A.T @ A, A.T @ np.ones(5))
    np.testing.assert_allclose(A.T @ A @ d, A.T @ np.ones(5), atol=1e-10)
    assert d[1] == d[2] == 0.0


# OvAP and OvAP++


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("strict", [False, True])
def test_ovap_solves_the_problem_without_positives_to_its_rule(data, backend, loss, strict):
    X, Y, weight = data
    (coef, bias) = weights_of("ovap", X, task_of(Y, weight, loss), backend, strict=strict)
    assert (coef == coef[0]).all()
    assert (bias == bias[0]).all()
    derivative = get_loss(loss).derivative

    def norm(w, b):
        slopes = -weight * derivative(-(X @ w + b))
        return np.linalg.norm(np.append(w + X.T @ slopes, slopes.sum()))

    rule = 0.01 / (max(1.0, weight.sum()) if strict else 1.0)
    assert norm(coef[0], bias[0]) <= rule * norm(np.zeros(30), 0.0) * (1 + 1e-9)
    assert bias[0] < 0


def test_ovap_starts_the_next_labels_from_the_same_weights_and_stops_after_fifty_steps(data):
    X, Y, _ = data
    coef, _ = weights_of("ovap", X, task_of(Y, loss="logistic", tol=0.0))
    assert np.isfinite(coef).all()


def test_every_child_in_the_tree_starts_where_its_parent_ended(data, monkeypatch):
    X, Y, _ = data
    monkeypatch.setattr(starts, "TREE_BLOCK_LABELS", 4)
    Y = np.column_stack([Y, Y[:, 3], Y[:, 4] & (np.arange(150) % 9 > 0)])
    task = task_of(Y)
    start = make_start("ovap++", start_parameters(None, "squared_hinge"), X, task)
    assert isinstance(start, TreeStart)
    assert (start.parent >= 0).sum() >= 2
    root = weights_of("ovap", X, task)[0][0]
    final = np.random.default_rng(0).normal(size=(8, 30)) * (np.arange(8) % 2)[:, None]  # some sparse, some dense
    solved = []
    while len(labels := start.next_labels(3)):
        out = BlockResult.zeros(len(labels), 30, X.dtype)
        start.fill(labels, task, out)
        for label, w, b in zip(labels, out.coef, out.intercept, strict=True):
            parent = start.parent[label]
            np.testing.assert_array_equal(w, root if parent < 0 else final[parent])
            assert parent < 0 or b == parent
        out.coef[...], out.intercept[...] = final[labels], labels
        start.keep(labels, out)
        solved.extend(labels.tolist())
    assert sorted(solved) == list(range(8))
    assert not start.kept  # nothing is stored for children that do not exist


# All starts


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_all_starts_reach_the_same_optimum(data, loss, init, backend):
    X, Y, weight = data
    Y = np.column_stack([Y, np.zeros(150), np.ones(150)])
    options = {"loss": loss, "tol": 1e-9, "sample_weight": weight, "positive_weight": np.linspace(0.5, 2, 8)}
    zero = solve_newton(X, Y, **options)
    other = solve_newton(X, Y, init=init, backend=backend, **options)
    assert zero.status is other.status
    np.testing.assert_array_equal(zero.status_by_label, other.status_by_label)
    np.testing.assert_allclose(other.coef, zero.coef, atol=1e-6)
    np.testing.assert_allclose(other.intercept, zero.intercept, atol=1e-6)
    assert other.certificate.worst.relative_gap <= 1e-9


@pytest.mark.parametrize("intercept", [{"regularize_intercept": True}, {"fit_intercept": False}])
@pytest.mark.parametrize("init", [name for name in INITS if name != "bias"])
def test_all_starts_serve_other_intercepts_dense_rows_and_pruning(data, init, intercept):
    X, Y, _ = data
    zero = solve_newton(X, Y, tol=1e-9, prune=0.01, **intercept)
    other = solve_newton(X.toarray(), Y, tol=1e-9, prune=0.01, init=init, **intercept)
    assert other.status is Status.CONVERGED
    assert other.certificate.primal == pytest.approx(zero.certificate.primal, rel=1e-6)
    np.testing.assert_allclose(other.coef.toarray(), zero.coef.toarray(), atol=1e-5)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("prune", [0.0, 0.05])
def test_result_depends_neither_on_threads_nor_on_blocks(data, init, prune):
    X, Y, _ = data
    Y = np.column_stack([Y, Y[:, ::2] & (np.arange(150) % 7 > 0)[:, None]])
    one = solve_newton(X, Y, init=init, prune=prune)
    many = solve_newton(X, Y, init=init, prune=prune, n_threads=3)
    blocks = solve_newton(X, Y, init=init, prune=prune, n_threads=2, labels_per_block=2)
    for other in (many, blocks):
        assert one.intercept.tobytes() == other.intercept.tobytes()
        dense = (result.coef.toarray() if prune else result.coef for result in (one, other))
        np.testing.assert_array_equal(*dense)
        np.testing.assert_array_equal(one.n_iter, other.n_iter)
        assert one.certificate == other.certificate
    for name in set(one.history) - {"seconds", "seconds_std"}:
        assert one.history[name].tobytes() == many.history[name].tobytes()


def test_waves_of_the_tree_in_any_order_end_in_the_right_rows():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 5)), np.zeros((60, 6), dtype=bool)
    for label, first in ((0, 0), (1, 30)):  # labels 2 and 4 hang on 0, and 3 and 5 on 1: a wave 2, 4, 3, 5
        Y[first : first + 18, label::2] = True
        Y[first + 18, label + 2] = Y[first + 19, label + 4] = True
    tree = make_start("ovap++", start_parameters(None, "squared_hinge"), X, task_of(Y))
    assert tree.next_labels(9).tolist() == [0, 1]
    assert tree.next_labels(9).tolist() == [2, 4, 3, 5]
    zero, other = (solve_newton(X, Y, init=init, tol=1e-10, labels_per_block=9) for init in ("zero", "ovap++"))
    np.testing.assert_allclose(other.coef, zero.coef, atol=1e-8)


@pytest.mark.parametrize("prune", [0.0, 0.05])
def test_stopping_early_along_the_tree_leaves_the_other_labels_at_zero(data, prune):
    X, Y, _ = data
    Y = np.column_stack([Y, Y & (np.arange(150) % 7 > 0)[:, None]])
    options = {"init": "ovap++", "prune": prune, "labels_per_block": 2}
    full = solve_newton(X, Y, **options)
    part = solve_newton(X, Y, callback=lambda progress: progress.done >= 5, **options)
    assert part.status is Status.STOPPED
    solved = part.status_by_label == "converged"
    assert 5 <= solved.sum() < 12
    assert part.coef.shape == full.coef.shape
    dense = [result.coef.toarray() if prune else result.coef for result in (part, full)]
    np.testing.assert_array_equal(dense[0][solved], dense[1][solved])
    assert not dense[0][~solved].any()
    np.testing.assert_allclose(part.primal_by_label[~solved], 150.0)
    np.testing.assert_array_equal(part.dual_by_label[solved], full.dual_by_label[solved])


def test_given_weights_go_before_the_start(data):
    X, Y, _ = data
    solution = solve_newton(X, Y, tol=1e-6)
    again = solve_newton(X, Y, tol=1e-6, init="msi", start=(solution.coef, solution.intercept))
    assert not again.n_iter.any()


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.slow
def test_better_starts_take_fewer_steps_on_generated_text(loss):
    X, Y = make_zipf_multilabel(n_samples=1500, n_features=800, n_labels=60, random_state=0)
    steps = {
        init: solve_newton(X, Y, init=init, loss=loss, gap_tol=None).n_iter.mean()
        for init in ("zero", "msi", "subspace")
    }
    assert steps["subspace"] <= steps["msi"] < steps["zero"]


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"init_params": {"lambda": 1.0}},
            "unknown key 'lambda' in init_params; the valid keys are 'lam', 's', 't', 'strict'",
        ),
        ({"init_params": {"lam": np.nan}}, r"init_params\['lam'\] must be a finite number; got nan"),
        ({"init_params": {"s": "1"}}, r"init_params\['s'\] must be a finite number; got '1'"),
        ({"init_params": {"t": True}}, r"init_params\['t'\] must be a finite number; got True"),
        ({"init_params": {"strict": 1}}, r"init_params\['strict'\] must be True or False; got 1"),
        ({"init_params": [1.0]}, r"init_params must be a dictionary or None"),
        ({"init": "bias", "fit_intercept": False}, "init='bias' requires an intercept"),
    ],
)
def test_starts_without_meaning_are_refused(data, options, message):
    X, Y, _ = data
    with pytest.raises(ValueError, match=message):
        solve_newton(X, Y, **options)


def test_bias_start_has_the_given_intercept_and_the_solver_starts_there(data):
    X, Y, _ = data
    coef, bias = weights_of("bias", X, task_of(Y), lam=1.5)
    assert not coef.any()
    assert (bias == -1.5).all()
    history = solve_newton(X, Y[:, [3]], init="bias", init_params={"lam": 1.5}).history
    n_positives = Y[:, 3].sum()
    assert history["primal"][0] == pytest.approx(n_positives * 2.5**2 + 0.0 * (150 - n_positives))
