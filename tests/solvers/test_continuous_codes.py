"""Continuous codes for l1 and l∞ against cvxpy; thresholds and errors."""

from __future__ import annotations

import numpy as np
import pytest

from reference.optima import code_optimum
from widemargin.solvers.codes.continuous import continuous_code, incremental_column, incremental_margins, largest_zero_C

NORMS = ["l1", "linf"]
VERSIONS = [{"C": 0.3}, {"C": 5.0}, {"C": 1.0, "norm_bound": 0.7}, {"C": 2.0, "norm_bound": 4.0}]


def make(seed, n=24, k=4, n_columns=3):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    h = rng.normal(size=(k, n_columns))[y] + rng.normal(scale=0.6, size=(n, n_columns))
    return h, y, rng.integers(0, 4, n) + (np.arange(n) == 0) * 1.0


def naive_objective(h, y, code, norm, C, norm_bound=None, weights=None, b=None):
    """The objective of a code, row by row."""
    total = 0.0 if norm_bound is not None else (np.abs(code).sum() if norm == "l1" else np.abs(code).max())
    for i, true in enumerate(y):
        asked = np.where(np.arange(len(code)) == true, 0.0, 1.0) if b is None else b[i]
        slack = max(asked[r] - h[i] @ (code[true] - code[r]) for r in range(len(code)))
        total += C * (1.0 if weights is None else weights[i]) * slack
    return total


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_program_reaches_the_optimum_of_cvxpy(norm, version, weighted):
    h, y, weights = make(1)
    weights = weights if weighted else None
    optimum = code_optimum(h, y, 4, norm, weights=weights, **version)
    learned = continuous_code(h, y, norm=norm, sample_weight=weights, **version)
    assert learned.certificate.primal == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    assert learned.certificate.dual == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    assert abs(learned.certificate.relative_gap) <= 1e-8
    recount = naive_objective(h, y, learned.code, norm, weights=weights, **version)
    assert learned.certificate.primal == pytest.approx(recount, rel=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_the_dual_point_is_feasible_and_has_the_value_of_the_certificate(norm, version):
    h, y, weights = make(2)
    learned = continuous_code(h, y, norm=norm, sample_weight=weights, **version)
    eta, costs = learned.dual, version["C"] * weights
    assert (eta >= 0).all()
    assert (eta.sum(axis=1) <= costs * (1 + 1e-12)).all()
    G = np.zeros((4, 3))
    for i, true in enumerate(y):
        for r in range(4):
            G[true] += eta[i, r] * h[i]
            G[r] -= eta[i, r] * h[i]
    size = np.abs(G).max() if norm == "l1" else np.abs(G).sum()
    value = eta.sum()  # b is 1 for wrong classes, and η is 0 for the true one
    if "norm_bound" in version:
        value -= version["norm_bound"] * size
        assert (np.abs(learned.code).sum() if norm == "l1" else np.abs(learned.code).max()) <= version["norm_bound"] * (
            1 + 1e-12
        )
    else:
        assert size <= 1 + 1e-12
    assert learned.certificate.dual == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("version", [{"C": 2.0}, {"C": 1.0, "norm_bound": 0.5}], ids=str)
def test_incremental_column_is_the_optimum_of_the_whole_objective(norm, version):
    h, y, weights = make(3)
    code = continuous_code(h[:, :2], y, norm=norm, C=0.5).code
    b = np.array([[0.0 if r == t else 1.0 - h[i, :2] @ (code[t] - code[r]) for r in range(4)] for i, t in enumerate(y)])
    assert np.allclose(incremental_margins(h[:, :2], y, code), b, atol=1e-12)
    optimum = code_optimum(h[:, 2:], y, 4, norm, weights=weights, b=b, **version)
    column = incremental_column(h[:, :2], y, code, h[:, 2], norm=norm, sample_weight=weights, **version)
    assert column.code.shape == (4, 1)
    assert column.certificate.primal == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    assert column.certificate.dual == pytest.approx(optimum, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(4))
def test_the_code_is_exactly_zero_up_to_the_threshold_and_not_above(norm, seed):
    h, y, weights = make(seed)
    threshold = largest_zero_C(h, y, norm=norm, sample_weight=weights)
    for factor in (1e-6, 0.5, 0.999):
        learned = continuous_code(h, y, norm=norm, C=factor * threshold, sample_weight=weights)
        assert not learned.code.any()
        assert abs(learned.certificate.relative_gap) <= 1e-8
    assert continuous_code(h, y, norm=norm, C=1.01 * threshold, sample_weight=weights).code.any()


@pytest.mark.parametrize("norm", NORMS)
def test_the_threshold_of_an_incremental_column(norm):
    h, y, _ = make(6)
    code = continuous_code(h[:, :2], y, norm=norm, C=0.2).code
    b = incremental_margins(h[:, :2], y, code)
    threshold = largest_zero_C(h[:, 2:], y, norm=norm, b=b)
    assert not continuous_code(h[:, 2:], y, norm=norm, C=0.999 * threshold, b=b).code.any()
    assert continuous_code(h[:, 2:], y, norm=norm, C=1.01 * threshold, b=b).code.any()


def test_the_threshold_is_at_least_that_of_the_uniform_point():
    h, y, _ = make(4)
    eta = (1.0 - np.eye(4)[y]) / 3  # uniform over the wrong classes: feasible, so its norm is at least the minimum
    G = (np.eye(4)[y] - eta).T @ h
    assert largest_zero_C(h, y, norm="l1") >= 1.0 / np.abs(G).max() * (1 - 1e-9)
    assert largest_zero_C(h, y, norm="linf") >= 1.0 / np.abs(G).sum() * (1 - 1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_outputs_of_zero_leave_nothing_to_learn(norm):
    learned = continuous_code(np.zeros((5, 2)), [0, 1, 2, 0, 1], norm=norm, C=3.0)
    assert not learned.code.any()
    assert (learned.certificate.primal, learned.certificate.dual) == pytest.approx((15.0, 15.0))
    assert largest_zero_C(np.zeros((5, 2)), [0, 1, 2, 0, 1], norm=norm) == np.inf


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("C", [1e-3, 1e4])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_scales_of_outputs_and_costs_do_not_spoil_the_certificate(norm, C, scale):
    h, y, _ = make(5)
    learned = continuous_code(scale * h, y, norm=norm, C=C / scale)
    reference = continuous_code(h, y, norm=norm, C=C)  # ‖M/s‖ + (C/s) Σξ: the same problem over s
    assert learned.certificate.relative_gap <= 1e-6
    assert learned.certificate.primal * scale == pytest.approx(reference.certificate.primal, rel=1e-6)


def test_weight_is_repetition():
    h, y, weights = make(7)
    times = weights.astype(int)
    weighted = continuous_code(h, y, C=0.7, sample_weight=weights)
    repeated = continuous_code(np.repeat(h, times, axis=0), np.repeat(y, times), C=0.7)
    assert weighted.certificate.primal == pytest.approx(repeated.certificate.primal, rel=1e-8)


@pytest.mark.parametrize("norm", NORMS)
def test_a_small_program_is_solved_once(norm):
    h, y, _ = make(8)
    assert continuous_code(h, y, norm=norm).n_iter == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "l3"}, "norm must be"),
        ({"C": 0.0}, "C must be"),
        ({"C": np.nan}, "C must be"),
        ({"norm_bound": -1.0}, "norm_bound"),
        ({"n_classes": 1}, "at least 2"),
        ({"b": np.ones((24, 4))}, "0 for the true class"),
        ({"b": np.zeros((24, 3)), "n_classes": 4}, "b must have shape"),
        ({"sample_weight": np.zeros(24)}, "0 for every row"),
    ],
)
def test_bad_input_is_named(options, message):
    h, y, _ = make(0)
    with pytest.raises(ValueError, match=message):
        continuous_code(h, y, **options)


def test_bad_outputs_are_named():
    with pytest.raises(ValueError, match="NaN or infinity"):
        continuous_code([[np.inf]], [0])
    with pytest.raises(ValueError, match="at least one column"):
        continuous_code([1.0, 2.0], [0, 1])
    with pytest.raises(ValueError, match="h_new must have shape"):
        incremental_column([[1.0]], [0], [[1.0], [0.0]], [[1.0]])
    with pytest.raises(ValueError, match="they must have the same number of columns"):
        incremental_margins([[1.0]], [0], [[1.0, 2.0]])
