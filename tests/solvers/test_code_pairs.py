"""Codes for l1 and l∞ from programs with a subset of the margins, against the program with all margins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from widemargin.solvers.codes import linear_programs
from widemargin.solvers.codes.continuous import continuous_code, incremental_column, incremental_margins, largest_zero_C

NORMS = ["l1", "linf"]
VERSIONS = [{"C": 0.3}, {"C": 5.0}, {"C": 2.0, "norm_bound": 0.8}]


def make(seed, n=40, k=8, n_columns=3, noise=0.6):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    h = rng.normal(size=(k, n_columns))[y] + rng.normal(scale=noise, size=(n, n_columns))
    return h, y, rng.integers(0, 4, n) + (np.arange(n) == 0) * 1.0


def optimum(h, y, k, norm, C, norm_bound=None, weights=None, b=None):
    """The whole problem by HiGHS's simplex method, written row by row: variables M⁺, M⁻, ξ and the norm."""
    n, size = len(y), k * h.shape[1]
    weights = np.ones(n) if weights is None else weights
    b = 1.0 - np.eye(k)[y] if b is None else b
    rows, limits = [], []
    for i, true in enumerate(y):
        for r in (r for r in range(k) if r != true):
            margin = np.zeros((k, h.shape[1]))
            margin[true] += h[i]
            margin[r] -= h[i]
            rows.append(np.concatenate([-margin.ravel(), margin.ravel(), -np.eye(n)[i], [0.0]]))
            limits.append(-b[i, r])
    if norm == "l1":
        rows.append(np.concatenate([np.ones(2 * size), np.zeros(n), [-1.0]]))
    else:
        rows.extend(np.concatenate([e, e, np.zeros(n), [-1.0]]) for e in np.eye(size))
    limits.extend([0.0] * (len(rows) - len(limits)))
    cost = np.concatenate([np.zeros(2 * size), C * weights, [1.0 if norm_bound is None else 0.0]])
    bounds = [(0, None)] * (len(cost) - 1) + [(0, norm_bound)]
    return linprog(cost, A_ub=np.array(rows), b_ub=limits, bounds=bounds, method="highs-ds").fun


def recount(h, y, code, norm, C, norm_bound=None, weights=None):
    """The objective of a code, its losses over all classes, row by row."""
    total = 0.0 if norm_bound is not None else (np.abs(code).sum() if norm == "l1" else np.abs(code).max())
    for i, true in enumerate(y):
        lack = max(float(r != true) - h[i] @ (code[true] - code[r]) for r in range(len(code)))
        total += C * (1.0 if weights is None else weights[i]) * lack
    return total


@pytest.fixture
def one_pair_at_a_time(monkeypatch):
    """Programs start with the worst margin of each row, and get at most one more per row and round."""
    monkeypatch.setattr(linear_programs, "FEW_PAIRS", 0)
    monkeypatch.setattr(linear_programs, "PAIRS", 1)


@pytest.mark.usefixtures("one_pair_at_a_time")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_few_margins_at_a_time_reach_the_optimum_of_all(norm, version, weighted):
    h, y, weights = make(1)
    weights = weights if weighted else None
    learned = continuous_code(h, y, norm=norm, sample_weight=weights, tol=1e-9, **version)
    expected = optimum(h, y, 8, norm, weights=weights, **version)
    assert learned.n_iter > 1
    assert learned.certificate.primal == pytest.approx(expected, rel=1e-7)
    assert learned.certificate.dual == pytest.approx(expected, rel=1e-7)
    assert learned.certificate.primal == pytest.approx(
        recount(h, y, learned.code, norm, weights=weights, **version), rel=1e-12
    )


@pytest.mark.usefixtures("one_pair_at_a_time")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", [{"C": 2.0}, {"C": 1.0, "norm_bound": 0.5}], ids=str)
def test_an_incremental_column_from_a_few_margins_is_the_optimum_of_all(norm, version):
    h, y, weights = make(3)
    code = continuous_code(h[:, :2], y, norm=norm, C=0.5).code
    column = incremental_column(h[:, :2], y, code, h[:, 2], norm=norm, sample_weight=weights, tol=1e-9, **version)
    b = incremental_margins(h[:, :2], y, code)
    expected = optimum(h[:, 2:], y, 8, norm, weights=weights, b=b, **version)
    assert column.certificate.primal == pytest.approx(expected, rel=1e-7)
    assert column.certificate.dual == pytest.approx(expected, rel=1e-7)


@pytest.mark.usefixtures("one_pair_at_a_time")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("tol", [0.5, 0.1])
def test_a_rough_certificate_brackets_the_optimum(norm, version, tol):
    h, y, _ = make(4)
    learned = continuous_code(h, y, norm=norm, tol=tol, **version)
    expected, certificate = optimum(h, y, 8, norm, **version), learned.certificate
    assert certificate.dual <= expected * (1 + 1e-9)
    assert certificate.primal >= expected * (1 - 1e-9)
    assert certificate.relative_gap <= tol
    assert certificate.primal == pytest.approx(recount(h, y, learned.code, norm, **version), rel=1e-12)
    assert learned.n_iter <= continuous_code(h, y, norm=norm, tol=1e-9, **version).n_iter


@pytest.mark.usefixtures("one_pair_at_a_time")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_the_dual_point_of_a_few_margins_is_feasible_for_all(norm, version):
    h, y, weights = make(5)
    learned = continuous_code(h, y, norm=norm, sample_weight=weights, tol=0.2, **version)
    eta = learned.dual
    assert (eta >= 0).all()
    assert (eta.sum(axis=1) <= version["C"] * weights * (1 + 1e-12)).all()
    G = (np.eye(8)[y] * eta.sum(axis=1)[:, None] - eta).T @ h
    size = np.abs(G).max() if norm == "l1" else np.abs(G).sum()
    value = eta.sum() - version.get("norm_bound", 0.0) * size
    assert learned.certificate.dual == pytest.approx(value, rel=1e-12)
    assert "norm_bound" in version or size <= 1 + 1e-12


@pytest.mark.usefixtures("one_pair_at_a_time")
@pytest.mark.parametrize("norm", NORMS)
def test_a_few_margins_give_a_code_of_zero_up_to_its_threshold(norm):
    h, y, weights = make(6)
    threshold = largest_zero_C(h, y, norm=norm, sample_weight=weights)
    below = continuous_code(h, y, norm=norm, C=0.999 * threshold, sample_weight=weights)
    assert not below.code.any()
    assert below.certificate.relative_gap <= 1e-6
    assert continuous_code(h, y, norm=norm, C=1.01 * threshold, sample_weight=weights).code.any()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", [{"C": 0.1}, {"C": 1.0, "norm_bound": 1.0}], ids=str)
def test_a_problem_with_many_classes_agrees_with_the_whole_program(norm, version):
    h, y, _ = make(7, n=200, k=12)
    assert linear_programs.FEW_PAIRS < 200 * 11  # so this is solved with some of the margins
    learned = continuous_code(h, y, norm=norm, **version)
    assert learned.certificate.primal == pytest.approx(optimum(h, y, 12, norm, **version), rel=2e-6)
    assert learned.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("norm", NORMS)
def test_a_wide_bound_on_separable_classes_leaves_a_loss_of_exactly_zero(norm):
    h, y, _ = make(8, n=24, k=4, n_columns=6, noise=0.1)
    learned = continuous_code(h, y, norm=norm, norm_bound=1000.0)
    assert (learned.certificate.primal, learned.certificate.relative_gap) == (0.0, 0.0)
    scores = h @ learned.code.T
    scores[np.arange(24), y] -= 1.0
    assert (scores.argmax(axis=1) == y).all()


@pytest.mark.usefixtures("one_pair_at_a_time")
@pytest.mark.parametrize("norm", NORMS)
def test_examples_without_weight_change_nothing(norm):
    h, y, weights = make(9)
    kept = weights > 0
    learned = continuous_code(h, y, norm=norm, sample_weight=weights, n_classes=8, tol=1e-9)
    without = continuous_code(h[kept], y[kept], norm=norm, sample_weight=weights[kept], n_classes=8, tol=1e-9)
    assert learned.certificate.primal == pytest.approx(without.certificate.primal, rel=1e-8)
    assert not learned.dual[~kept].any()


def test_a_tolerance_that_is_none_is_named():
    h, y, _ = make(0)
    with pytest.raises(ValueError, match="tol must be"):
        continuous_code(h, y, norm="l1", tol=0.0)
