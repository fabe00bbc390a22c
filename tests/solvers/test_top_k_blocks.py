"""Blocks of rows by matrix products make the same visits as single rows."""

from __future__ import annotations

import numpy as np
import pytest

from reference.top_k_ascent import bounds
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.top_k import linear
from widemargin.solvers.top_k.linear import solve_top_k


def _wide_rows(n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, 500)
    X = rng.standard_normal((n_classes, 30))[y] + 2.0 * rng.standard_normal((500, 30))
    return X, y, rng.uniform(0.05, 0.2, 500)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [12, 130])
@pytest.mark.parametrize("loss", [TopKHinge(1), TopKHinge(3, "alpha"), TopKHinge(3, "beta", 0.2)], ids=str)
def test_blocks_reach_the_certified_gap(loss, n_classes, dtype, monkeypatch):
    X, y, costs = _wide_rows(n_classes)
    X = X.astype(dtype)
    tol = 1e-4 if dtype == np.float32 else 1e-7
    plain = solve_top_k(X, y, n_classes, loss, costs, intercept_scaling=0.5, tol=tol, max_iter=10_000)
    monkeypatch.setattr(linear, "WIDE_VALUES", 0)
    blocked = solve_top_k(X, y, n_classes, loss, costs, intercept_scaling=0.5, tol=tol, max_iter=10_000)
    W = np.hstack([blocked.coef, 2.0 * blocked.intercept[:, None]]).astype(np.float64)
    rows = np.hstack([X, np.full((500, 1), 0.5)]).astype(np.float64)
    primal, dual = bounds(W, rows, y, blocked.dual.toarray(), costs, loss)
    assert blocked.certificate.primal == pytest.approx(primal, rel=1e-12)
    assert blocked.certificate.dual == pytest.approx(dual, rel=1e-12)
    assert primal - dual <= tol * primal
    assert dual <= plain.certificate.primal
    assert plain.certificate.dual <= primal


@pytest.mark.parametrize("loss", [TopKHinge(1), TopKHinge(3, "alpha"), TopKHinge(3, "beta", 0.2)], ids=str)
def test_blocks_make_the_visits_of_single_rows(loss, monkeypatch):
    X, y, costs = _wide_rows(20)
    plain = solve_top_k(X, y, 20, loss, costs, intercept_scaling=0.5, tol=1e-9, max_iter=4)
    monkeypatch.setattr(linear, "WIDE_VALUES", 0)
    blocked = solve_top_k(X, y, 20, loss, costs, intercept_scaling=0.5, tol=1e-9, max_iter=4)
    assert plain.dual.nnz > 100  # averages of W are taken at other moments; the dual variables are the same
    assert np.allclose(blocked.dual.toarray(), plain.dual.toarray(), rtol=0.0, atol=1e-9)


@pytest.mark.slow
def test_blocks_stop_in_time_and_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(linear, "WIDE_VALUES", 0)
    X, y, costs = _wide_rows(20)
    none = solve_top_k(X, y, 20, TopKHinge(1), costs, callback=TimeLimit(0.0))
    assert not none.coef.any()
    one, two = (solve_top_k(X, y, 20, TopKHinge(1), costs, n_threads=n) for n in (1, 2))
    assert np.array_equal(one.coef, two.coef)
