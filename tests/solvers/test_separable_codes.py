"""Codes without slack variables (C = inf, eq. 13 of the paper) against Clarabel: optima, infeasibility, and errors."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from widemargin import OutputCodeClassifier, load, save
from widemargin.problems.kernels import make_kernel
from widemargin.solvers.codes.continuous import continuous_code, incremental_column, incremental_margins
from widemargin.solvers.result import Status

NORMS = ["l1", "l2", "linf"]


def make(seed, noise, k=4, n=30, n_columns=4):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    return 3.0 * rng.normal(size=(k, n_columns))[y] + noise * rng.normal(size=(n, n_columns)), y


def by_clarabel(h, y, k, norm, used=None, b=None):
    """The optimum, or None if Clarabel proves that there is no code."""
    b = 1.0 - np.eye(k)[y] if b is None else b
    M = cp.Variable((k, h.shape[1]))
    rows = range(len(y)) if used is None else np.flatnonzero(used)
    limits = [h[i] @ (M[y[i]] - M[r]) >= b[i, r] for i in rows for r in range(k) if r != y[i]]
    sizes = {"l1": cp.sum(cp.abs(M)), "l2": 0.5 * cp.sum_squares(M), "linf": cp.max(cp.abs(M))}
    problem = cp.Problem(cp.Minimize(sizes[norm]), limits)
    value = problem.solve(solver=cp.CLARABEL)
    return None if problem.status == "infeasible" else value


def margins(h, y, code):
    scores = h @ code.T
    differences = scores[np.arange(len(y)), y][:, None] - scores
    return differences[np.arange(len(code)) != y[:, None]]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_separable_outputs_get_the_shortest_code_without_loss(norm, scale, seed):
    h, y = make(seed, 0.3)
    optimum = by_clarabel(h, y, 4, norm)
    assert optimum is not None
    learned = continuous_code(scale * h, y, norm=norm, C=np.inf, tol=1e-8)
    assert learned.status is Status.CONVERGED
    assert learned.certificate.relative_gap <= 1e-8
    power = 2 if norm == "l2" else 1
    assert learned.certificate.primal * scale**power == pytest.approx(optimum, rel=1e-6)
    assert learned.certificate.dual * scale**power == pytest.approx(optimum, rel=1e-6)
    assert margins(scale * h, y, learned.code).min() >= 1.0 - 1e-12
    sizes = {"l1": np.abs(learned.code).sum(), "l2": 0.5 * (learned.code**2).sum(), "linf": np.abs(learned.code).max()}
    assert learned.certificate.primal == pytest.approx(sizes[norm], rel=1e-12)


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_the_program_has_the_shortest_code(norm):
    h, y = make(1, 0.3)
    learned = continuous_code(h, y, norm=norm, C=np.inf, tol=1e-8)
    assert learned.certificate.primal == pytest.approx(by_clarabel(h, y, 4, norm), rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(4))
def test_outputs_that_no_code_separates_are_an_error(norm, seed):
    h, y = make(seed, 3.0)
    assert by_clarabel(h, y, 4, norm) is None
    with pytest.raises(ValueError, match="with every code, the margin of some row is too small by at least 1"):
        continuous_code(h, y, norm=norm, C=np.inf)


@pytest.mark.parametrize("norm", NORMS)
def test_rows_of_weight_zero_need_no_margin(norm):
    h, y = make(2, 0.3)
    h, y = np.vstack([h, h[:1]]), np.append(y, (y[0] + 1) % 4)  # a row of two classes
    weights = np.append(np.full(30, 0.25), 0.0)
    learned = continuous_code(h, y, norm=norm, C=np.inf, sample_weight=weights, tol=1e-8)
    assert learned.certificate.primal == pytest.approx(by_clarabel(h, y, 4, norm, weights > 0.0), rel=1e-6)
    with pytest.raises(ValueError, match="no code separates"):
        continuous_code(h, y, norm=norm, C=np.inf)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.slow
def test_many_classes_start_with_some_of_the_margins(norm):
    h, y = make(3, 0.2, k=20, n=160, n_columns=12)
    learned = continuous_code(h, y, norm=norm, C=np.inf, tol=1e-6)
    assert learned.status is Status.CONVERGED
    assert learned.certificate.primal == pytest.approx(by_clarabel(h, y, 20, norm), rel=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_a_column_may_complete_the_margins_of_a_code(norm):
    """The required margins differ, and some are below 0."""
    rng = np.random.default_rng(0)
    y = np.arange(12) % 3
    code = np.array([[1.0], [-1.0], [-1.0]])
    first, second = code[y, 0] * 1.5 + 0.1 * rng.normal(size=12), np.array([0.0, 2.0, -2.0])[y] + 0.1
    b = incremental_margins(first[:, None], y, code)
    column = incremental_column(first[:, None], y, code, second, norm=norm, C=np.inf, tol=1e-7)
    assert column.certificate.primal == pytest.approx(by_clarabel(second[:, None], y, 3, norm, b=b), rel=1e-5)
    lacks = b - second[:, None] * (column.code[y] - column.code.T)
    assert lacks[np.arange(3) != y[:, None]].max() <= 1e-9


def test_a_kernel_separates_what_rows_do_not():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(20, 2))
    y = np.arange(20) % 2
    with pytest.raises(ValueError, match="no code separates"):
        continuous_code(h, y, norm="l2", C=np.inf)
    kernel = make_kernel("rbf", 2.0)
    learned = continuous_code(h, y, norm="l2", C=np.inf, kernel=kernel, tol=1e-6, max_iter=100_000)
    values, vectors = np.linalg.eigh(kernel.block(h, h))
    optimum = by_clarabel(vectors * np.sqrt(np.maximum(values, 0.0)), y, 2, "l2")
    assert learned.status is Status.CONVERGED
    assert learned.certificate.primal == pytest.approx(optimum, rel=1e-4)
    scores = learned.scores(h)
    assert (scores[np.arange(20), y] - scores[np.arange(20), 1 - y]).min() >= 1.0 - 1e-9
    twice, classes = np.vstack([h, h[:1]]), np.append(y, 1 - y[0])
    with pytest.raises(ValueError, match="not separable, or only barely"):
        continuous_code(twice, classes, norm="l2", C=np.inf, kernel=kernel, max_iter=2000)


def test_a_bound_on_the_norm_may_exclude_every_such_code():
    h, y = make(0, 0.3)
    with pytest.raises(ValueError, match="C=inf requires a zero-loss code, which norm_bound may exclude"):
        continuous_code(h, y, C=np.inf, norm_bound=1.0)
    with pytest.raises(ValueError, match="norm_bound may exclude the zero-loss code that C=inf requires"):
        OutputCodeClassifier(learn="l1", C=np.inf, norm_bound=1.0).fit(h, y)


@pytest.mark.parametrize("norm", NORMS)
def test_the_classifier_takes_an_infinite_cost(norm, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.eye(3)[y] + 0.02 * rng.normal(size=(60, 3))
    model = OutputCodeClassifier(learn=norm, C=np.inf, random_state=0).fit(X, y)
    assert model.status_ is Status.CONVERGED
    assert model.certificate_.relative_gap <= model.tol
    assert model.score(X, y) == 1.0
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert np.isinf(loaded.C)
    assert loaded.certificate_ == model.certificate_
    with pytest.raises(ValueError, match="C=inf requires a zero-loss code"):
        OutputCodeClassifier(learn=norm, C=np.inf, random_state=0).fit(rng.normal(size=(60, 3)), y)
