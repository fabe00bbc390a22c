"""The batched logistic solver against Newton, LIBLINEAR, an interior-point method and its own guarantees."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train
from scipy.special import entr, expit
from sklearn.linear_model import LogisticRegression

from one_vs_all_solvers import solve_large, solve_newton
from widemargin.solvers.one_vs_all import logistic
from widemargin.solvers.result import Status

INTERCEPTS = {
    "free": {},
    "regularised": {"regularize_intercept": True},
    "none": {"fit_intercept": False},
}


def text_like(rng, n_rows=600, n_features=120, n_labels=24):
    """Rows of unit length whose labels depend on a few features; frequent and rare labels."""
    X = sp.random_array((n_rows, n_features), density=0.08, random_state=rng, format="csr")
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    scores = X @ (3 * rng.normal(size=(n_features, n_labels))) + 0.3 * rng.normal(size=(n_rows, n_labels))
    Y = scores > np.quantile(scores, np.linspace(0.4, 0.99, n_labels), axis=0).diagonal()
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


@pytest.fixture(scope="module")
def data():
    return text_like(np.random.default_rng(7))


def signs_of(Y):
    return 2.0 * Y.toarray() - 1.0


def objectives(X, Y, coef, intercept, C=1.0, weight=None, penalty_b=0.0):
    """The objective of every label, implemented independently in float64."""
    weight = np.ones(X.shape[0]) if weight is None else weight
    w, b = np.asarray(coef, dtype=np.float64), np.asarray(intercept, dtype=np.float64)
    losses = np.logaddexp(0.0, -signs_of(Y) * (X.astype(np.float64) @ w.T + b))
    return 0.5 * np.square(w).sum(axis=1) + 0.5 * penalty_b * b**2 + C * weight @ losses


def rule_ratios(X, Y, coef, intercept, tol):
    """‖∇L‖ of every label divided by the bound of the rule, with an unpenalised intercept."""
    y, w = signs_of(Y), np.asarray(coef, dtype=np.float64)
    X = X.astype(np.float64)
    alpha = y / (1 + np.exp(y * (X @ w.T + intercept.astype(np.float64))))
    norm = np.sqrt(np.square(w.T - X.T @ alpha).sum(axis=0) + alpha.sum(axis=0) ** 2)
    at_zero = 0.5 * np.sqrt(np.square(X.T @ y).sum(axis=0) + y.sum(axis=0) ** 2)
    positives = (y > 0).sum(axis=0)
    return norm / (tol * np.maximum(1, np.minimum(positives, len(y) - positives)) / len(y) * at_zero)


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4])
def test_the_rule_holds_in_float64_over_all_rows(data, tol):
    X, Y = data
    result = solve_large(X, Y, loss="logistic", tol=tol)
    assert result.status is Status.CONVERGED
    assert rule_ratios(X, Y, result.coef, result.intercept, tol).max() <= 1
    np.testing.assert_allclose(result.primal_by_label, objectives(X, Y, result.coef, result.intercept), rtol=1e-9)
    assert ((result.primal_by_label - result.dual_by_label) <= 1e-3 * result.primal_by_label).all()


@pytest.mark.parametrize("intercept", sorted(INTERCEPTS))
@pytest.mark.parametrize(("dtype", "index"), [(np.float32, np.int32), (np.float64, np.int64)])
def test_bounds_bracket_the_optimum_of_newton(data, intercept, dtype, index):
    X, Y = data
    X = sp.csr_array((X.data.astype(dtype), X.indices.astype(index), X.indptr.astype(index)), shape=X.shape)
    X.indptr, X.indices = X.indptr.astype(index), X.indices.astype(index)
    rng = np.random.default_rng(1)
    weight = rng.choice([0.5, 1.0, 3.0], size=X.shape[0])
    settings = {"loss": "logistic", "C": 2.0, "sample_weight": weight, **INTERCEPTS[intercept]}
    result = solve_large(X, Y, tol=1e-3, gap_tol=1e-4, **settings)
    exact = solve_newton(X, Y, tol=1e-9, gap_tol=1e-9, **settings)
    assert result.coef.dtype == dtype
    scale = exact.primal_by_label
    assert (result.dual_by_label <= exact.primal_by_label + 1e-9 * scale).all()
    assert (result.primal_by_label >= exact.dual_by_label - 1e-9 * scale).all()
    assert (result.primal_by_label - result.dual_by_label <= 1e-4 * scale).all()


def test_liblinear_reaches_no_better_objective(data):
    X, Y = data
    result = solve_large(X, Y, loss="logistic", tol=1e-3, gap_tol=1e-5, regularize_intercept=True)
    X64 = sp.csr_matrix(X.astype(np.float64))
    for j in (0, 12, 23):
        model = train(problem(signs_of(Y)[:, j], X64, bias=1), parameter("-s 0 -c 1 -B 1 -e 1e-6 -q"))
        v = np.array([model.w[k] for k in range(X.shape[1] + 1)]) * (1 if model.get_labels()[0] == 1 else -1)
        rival = objectives(X, Y[:, [j]], v[None, :-1], v[-1:], penalty_b=1.0)[0]
        assert result.dual_by_label[j] <= rival * (1 + 1e-9)
        assert result.primal_by_label[j] <= rival * (1 + 1.1e-5)


def test_an_interior_point_method_agrees():
    X, Y = text_like(np.random.default_rng(8), 40, 10, 3)
    result = solve_large(X, Y, loss="logistic", tol=1e-4, gap_tol=1e-6)
    for j in range(3):
        w, b = cp.Variable(10), cp.Variable()
        y = signs_of(Y)[:, j]
        losses = cp.sum(cp.logistic(cp.multiply(-y, X.astype(np.float64) @ w + b)))
        value = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + losses)).solve(solver=cp.CLARABEL)
        assert result.dual_by_label[j] - 1e-6 <= value <= result.primal_by_label[j] + 1e-6


def test_models_do_not_depend_on_threads_or_blocks(data, monkeypatch):
    X, Y = data
    one = solve_large(X, Y, loss="logistic", prune=0.01)
    for n_threads, labels_per_thread in ((2, 64), (5, 64), (1, 7), (2, 3)):
        monkeypatch.setattr(logistic, "LABELS_PER_THREAD", labels_per_thread)
        other = solve_large(X, Y, loss="logistic", prune=0.01, n_threads=n_threads)
        np.testing.assert_array_equal(one.coef.toarray(), other.coef.toarray())
        np.testing.assert_array_equal(one.intercept, other.intercept)
        np.testing.assert_array_equal(one.dual_by_label, other.dual_by_label)


def test_the_upper_bound_is_that_of_the_pruned_weights(data):
    X, Y = data
    result = solve_large(X, Y, loss="logistic", prune=0.3)
    weights = result.coef.toarray()
    assert (np.abs(weights[weights != 0]) >= 0.3).all()
    np.testing.assert_allclose(result.primal_by_label, objectives(X, Y, weights, result.intercept), rtol=1e-9)
    assert (result.pruned_share > 0).any()


def test_class_factors_and_turned_labels(data):
    X, Y = data
    factors = {"positive_weight": np.full(Y.shape[1], 3.0), "negative_weight": np.full(Y.shape[1], 0.5)}
    result = solve_large(X, Y, loss="logistic", tol=1e-4, gap_tol=1e-6, **factors)
    turned = sp.csr_array(~Y.toarray())
    swapped = {"positive_weight": factors["negative_weight"], "negative_weight": factors["positive_weight"]}
    other = solve_large(X, turned, loss="logistic", tol=1e-4, gap_tol=1e-6, **swapped)
    np.testing.assert_allclose(result.coef, -other.coef, atol=1e-6)
    exact = solve_newton(X, Y, loss="logistic", tol=1e-8, **factors)
    np.testing.assert_allclose(result.primal_by_label, exact.primal_by_label, rtol=1e-6)


def test_labels_of_one_side_have_no_minimiser(data):
    X, Y = data
    Y = sp.csr_array(np.column_stack([Y.toarray()[:, :2], np.zeros(X.shape[0]), np.ones(X.shape[0])]))
    result = solve_large(X, Y, loss="logistic")
    assert result.status_by_label.tolist() == ["converged", "converged", "not_attained", "not_attained"]
    assert (np.sign(result.intercept[2:]) == [-1, 1]).all()
    assert not result.coef[2:].any()


@pytest.mark.parametrize("C", [1e-4, 1e4])
def test_extreme_costs_end_certified(data, C):
    X, Y = data
    result = solve_large(X, Y, loss="logistic", C=C)
    assert result.status is Status.CONVERGED
    value = objectives(X, Y, result.coef, result.intercept, C)
    np.testing.assert_allclose(result.primal_by_label, value, rtol=1e-9)
    assert (result.primal_by_label - result.dual_by_label <= 1.001e-3 * value).all()


def hostile_rows(kind, rng):
    """Rows that are hard for sums in float32: one very long row, signs, norms far from 1, or all of this."""
    X = sp.random_array((400, 60), density=0.1, random_state=rng, format="lil")
    if kind in ("long row", "all"):
        X[3] = rng.random(60)
        X[4] = 0
    X = sp.csr_array(X)
    if kind in ("signed", "all"):
        X.data *= rng.choice([-1.0, 1.0], X.nnz)
    if kind in ("long norms", "all"):
        X.data *= np.repeat(rng.choice([0.01, 1.0, 50.0], 400), np.diff(X.indptr))
    return sp.csr_array(X.astype(np.float32))


def hostile_labels(X, rng):
    """One positive, nearly all positive, the extremes of a score, and labels that have nothing to do with the rows."""
    scores = X @ rng.normal(size=X.shape[1])
    Y = np.zeros((X.shape[0], 6), dtype=bool)
    Y[7, 0] = True
    Y[:, 1] = True
    Y[[5, 90], 1] = False
    Y[:, 2] = scores > np.quantile(scores, 0.97)
    Y[:, 3] = scores > np.median(scores)
    Y[:, 4] = rng.random(X.shape[0]) < 0.05
    Y[:, 5] = rng.random(X.shape[0]) < 0.5
    return sp.csr_array(Y)


def dual_of_the_weights(X, y, c, w, b):
    """The dual objective at α = c σ, of which the heavier side is shrunk: a lower bound on the optimum."""
    shares = expit(-y * (X @ w + b))
    sides = {sign: c[y == sign] @ shares[y == sign] for sign in (1.0, -1.0)}
    shares *= np.where(y > 0, min(sides.values()) / sides[1.0], min(sides.values()) / sides[-1.0])
    u = X.T @ (y * c * shares)
    return c @ (entr(shares) + entr(1 - shares)) - 0.5 * u @ u


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["long row", "signed", "long norms", "all"])
def test_hostile_rows_are_certified_and_no_worse_than_scikit_learn(kind, weighted, C):
    rng = np.random.default_rng(11)
    X = hostile_rows(kind, rng)
    Y = hostile_labels(X, rng)
    weight = rng.choice([0.0, 0.01, 1.0, 30.0], X.shape[0]) if weighted else np.ones(X.shape[0])
    weight[[5, 7, 90]] = 1.0  # so that both sides of every label count
    factors = rng.choice([0.2, 1.0, 5.0], (2, 6)) if weighted else np.ones((2, 6))
    gap_tol = 1e-3
    sides = {"positive_weight": factors[0], "negative_weight": factors[1]}
    result = solve_large(X, Y, loss="logistic", C=C, sample_weight=weight, gap_tol=gap_tol, **sides)
    assert result.status is Status.CONVERGED
    X64 = X.astype(np.float64)
    for j in range(6):
        positive = Y[:, [j]].toarray()[:, 0]
        y, c = np.where(positive, 1.0, -1.0), C * weight * np.where(positive, factors[0, j], factors[1, j])
        w, b = result.coef[j].astype(np.float64), float(result.intercept[j])

        def value(w, b, y=y, c=c):
            return 0.5 * w @ w + c @ np.logaddexp(0.0, -y * (X64 @ w + b))

        counts = c > 0
        theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
        theirs.fit(X64[counts].toarray(), positive[counts], sample_weight=c[counts])
        best = value(theirs.coef_[0], theirs.intercept_[0])
        assert result.primal_by_label[j] == pytest.approx(value(w, b), rel=1e-9)
        assert result.dual_by_label[j] <= best * (1 + 1e-9)
        assert result.primal_by_label[j] <= best * (1 + 1.01 * gap_tol)
        assert value(w, b) - dual_of_the_weights(X64, y, c, w, b) <= 1.001 * gap_tol * value(w, b)
        alpha = c * expit(-y * (X64 @ w + b))
        at_zero = 0.5 * np.linalg.norm(np.append(X64.T @ (c * y), c @ y))
        share = max(1.0, min(c[y > 0].sum(), c[y < 0].sum()) / C) / max(1.0, c.sum() / C)
        assert np.linalg.norm(np.append(w - X64.T @ (y * alpha), y @ alpha)) <= 0.01 * share * at_zero
