"""Dual variables: those of the certificate, with its value, for all algorithms, intercepts and weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import INTERCEPTS, planned, solve_large, solve_newton
from reference.binary_certificate import dual_point
from reference.one_vs_all import binary_problem
from solvers.test_one_vs_all_oracles import optimum_by_interior_point, small_problem
from widemargin import OneVsAllClassifier, TimeLimit
from widemargin.problems.losses import get_loss
from widemargin.solvers.one_vs_all.duals import dual_values
from widemargin.solvers.one_vs_all.plan import make_plan, solve
from widemargin.solvers.one_vs_all.problem import Problem
from widemargin.solvers.one_vs_all.prune_sweep import prune_sweep

# Rare labels on working sets, frequent ones in batches, the majority of the rows, and one side alone.
SHARES = np.concatenate([[0.002, 0.004, 0.01, 0.02], np.linspace(0.1, 0.45, 8), [0.7, 0.98, 0.0, 1.0]])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    X = sp.random_array((1600, 200), density=0.04, random_state=rng, format="csr", dtype=np.float32)
    X.data = X.data + 0.2
    scores = X @ rng.normal(size=(200, len(SHARES))) + 0.3 * rng.normal(size=(1600, len(SHARES)))
    limits = [np.quantile(scores[:, j], 1 - share) for j, share in enumerate(SHARES)]
    return X, sp.csr_array((scores > limits) & (SHARES > 0.0) | (SHARES == 1.0))


def weights(weighted):
    rng = np.random.default_rng(8)
    n_labels = len(SHARES)
    return (
        {
            "sample_weight": rng.integers(0, 3, 1600),
            "positive_weight": rng.uniform(0.5, 3.0, n_labels),
            "negative_weight": rng.uniform(0.2, 1.0, n_labels),
        }
        if weighted
        else {}
    )


FORMS = {
    "fast": lambda X: X,
    "fast64": lambda X: X.astype(np.float64),
    "dense": lambda X: X.toarray(),
    "newton": lambda X: X,
}


def plan_of(data, form, **options):
    X, Y = data
    if form == "newton":
        options["init"] = "subspace"
    plan = planned(FORMS[form](X), Y, keep_duals=True, **options)
    assert plan.algorithm == form.removesuffix("64")
    return plan


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("form", FORMS)
def test_their_value_is_the_lower_bound_of_the_certificate(data, form, intercept, weighted):
    plan = plan_of(data, form, prune=0.02, **INTERCEPTS[intercept], **weights(weighted))
    result = solve(plan)
    assert (result.duals.dtype, result.duals.shape) == (np.float32, (len(SHARES), plan.problem.X.shape[0]))
    assert result.duals.has_canonical_format
    assert (result.duals.data > 0.0).all()
    values = dual_values(plan.problem, result.duals)
    np.testing.assert_allclose(values, result.dual_by_label, rtol=1e-5, atol=1e-9)
    assert (values <= result.primal_by_label * (1 + 1e-9)).all()
    alone = solve(replace(plan, keep_duals=False))
    assert alone.duals is None
    assert (sp.csr_array(alone.coef) != sp.csr_array(result.coef)).nnz == 0
    np.testing.assert_array_equal(alone.bounds_by_label, result.bounds_by_label)


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("form", ["fast", "dense"])
def test_they_are_the_slacks_of_the_weights(data, form, intercept):
    """The NumPy specification builds the same α from the stored weights."""
    plan = plan_of(data, form, **INTERCEPTS[intercept])
    result = solve(plan)
    task, rows = plan.task(0, len(SHARES)), data[0].astype(np.float64)
    for j in range(len(SHARES) - 2):
        problem = binary_problem(task, rows, j, get_loss("squared_hinge"))
        z = rows @ result.coef[j].astype(np.float64) + float(result.intercept[j])
        expected = dual_point(problem, z)
        np.testing.assert_allclose(result.duals[[j]].toarray()[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_the_core_has_those_of_the_numpy_twin(data, intercept):
    X, Y = data[0][:120].toarray().astype(np.float64), data[1][:120, 3:8]
    options = {"keep_duals": True, "tol": 1e-9, **INTERCEPTS[intercept]}
    core, twin = (solve_newton(X, Y, backend=backend, **options) for backend in ("core", "reference"))
    np.testing.assert_allclose(core.duals.toarray(), twin.duals.toarray(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_no_value_exceeds_the_optimum_of_an_independent_solver(seed):
    X, y, weight, factors, intercept, C = small_problem(seed)
    optimum = optimum_by_interior_point(X, y, weight, factors, intercept, C)
    options = {"C": C, "sample_weight": weight, "positive_weight": [factors[0]], "negative_weight": [factors[1]]}
    options |= INTERCEPTS[intercept] | {"keep_duals": True}
    for rows, solver in ((X, solve_large), (sp.csr_array(X), solve_large), (X, solve_newton)):
        result = solver(rows, y[:, None], **options)
        problem = planned(rows, y[:, None], **options).problem
        (value,) = dual_values(problem, result.duals)
        assert value == pytest.approx(result.certificate.dual, rel=1e-5)
        assert value <= optimum * (1 + 1e-8)
        assert value >= optimum * (1 - 2e-3)


def dense_values(X, Y, duals, intercept):
    """D by its formula, label by label, at C = 1."""
    values = []
    for j in range(Y.shape[1]):
        y = np.where(Y[:, [j]].toarray()[:, 0], 1.0, -1.0)
        alpha = duals[[j]].toarray()[0].astype(np.float64)
        if intercept == "free":
            positive, negative = alpha[y > 0].sum(), alpha[y < 0].sum()
            less = min(positive, negative)
            alpha *= np.where(y > 0, less / (positive or 1.0), less / (negative or 1.0))
        u = X.T.astype(np.float64) @ (alpha * y)
        bias = (alpha * y).sum() if intercept == "regularised" else 0.0
        values.append(max(0.0, alpha.sum() - 0.25 * alpha @ alpha - 0.5 * u @ u - 0.5 * bias**2))
    return np.array(values)


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_without_some_rows_they_bound_the_optimum_of_the_others(data, intercept):
    X, Y = data
    result = solve_large(X, Y, keep_duals=True, **INTERCEPTS[intercept])
    keep = np.random.default_rng(2).random(1600) > 0.02
    rest = planned(X[keep], Y[keep], tol=1e-7, gap_tol=1e-8, **INTERCEPTS[intercept])
    best = solve(rest)
    values = dual_values(rest.problem, result.duals[:, keep])
    assert (values <= best.primal_by_label * (1 + 1e-9)).all()
    np.testing.assert_allclose(values, dense_values(X[keep], Y[keep], result.duals[:, keep], intercept), rtol=1e-6)
    if intercept != "free":
        # Then α = 2 c ξ of the rows that are left, and P − D = ½‖(w, b) − Σ α y (x, 1)‖² exactly.
        signs, rows = np.where(Y[keep].toarray(), 1.0, -1.0), X[keep].toarray().astype(np.float64)
        rows = np.column_stack([rows, np.full(len(rows), float(intercept == "regularised"))])
        v = np.column_stack([result.coef, result.intercept]).astype(np.float64)
        primal = 0.5 * (v**2).sum(axis=1) + (np.maximum(0.0, 1.0 - signs * (rows @ v.T)) ** 2).sum(axis=0)
        u = (result.duals[:, keep].toarray() * signs.T) @ rows
        np.testing.assert_allclose(values, np.maximum(0.0, primal - 0.5 * ((v - u) ** 2).sum(axis=1)), rtol=1e-5)
    more = planned(sp.vstack([X, X[:50]], format="csr"), sp.vstack([Y, Y[:50]], format="csr"), **INTERCEPTS[intercept])
    wider = sp.hstack([result.duals, sp.csr_array((len(SHARES), 50))], format="csr")
    same = dual_values(planned(X, Y, **INTERCEPTS[intercept]).problem, result.duals)
    np.testing.assert_allclose(dual_values(more.problem, wider), same, rtol=1e-12)


def test_labels_that_were_not_reached_have_none(data):
    for form in FORMS:
        result = solve(plan_of(data, form), callback=TimeLimit(0.0))
        assert result.duals.nnz == 0
        assert result.duals.shape == (len(SHARES), 1600)


def test_pruning_keeps_them(data):
    plan = plan_of(data, "fast")
    result = solve(plan)
    (pruned,) = prune_sweep(plan, result, [0.1])
    assert (pruned.duals != result.duals).nnz == 0


def test_the_logistic_loss_and_other_shapes_are_refused(data):
    X, Y = data
    with pytest.raises(ValueError, match=r"keep_duals=True requires .*loss='logistic'"):
        make_plan(Problem.of(X, Y, loss="logistic"), keep_duals=True)
    with pytest.raises(ValueError, match="loss='logistic'"):
        dual_values(Problem.of(X, Y, loss="logistic"), sp.csr_array((len(SHARES), 1600)))
    with pytest.raises(ValueError, match="must have the shape"):
        dual_values(Problem.of(X, Y), sp.csr_array((len(SHARES), 1599)))


def test_a_model_has_them_only_when_asked(data):
    X, Y = data
    model = OneVsAllClassifier(prune=0.0)
    checked = model._training_data(X, Y, None)
    model._fit_checked(checked, keep_duals=True)
    assert model.duals_.shape == (len(SHARES), 1600)
    model._fit_checked(checked)
    assert not hasattr(model, "duals_")
