"""Bounds on the error of a learned code: the formulas and their invariances."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.problems.code_bounds import CodeMargins, error_bound


def margins_of(M, h, y):
    margin = min(h[i] @ (M[true] - M[r]) for i, true in enumerate(y) for r in range(len(M)) if r != true)
    return CodeMargins(M @ M.T, max(np.linalg.norm(row) for row in h), margin, len(h))


@pytest.fixture
def separated():
    """Three classes, two outputs, a code that separates them by at least 0.5."""
    h = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8], [0.9, 0.1]])
    M = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    return M, h, np.array([0, 1, 2, 0])


def test_the_bound_by_hand(separated):
    """‖M‖² = 4 after centring (it is centred), divided by 0.8²; k = 3, n = 4. Binary logarithms: log₂ 16 = 4."""
    M, h, y = separated
    assert (M.sum(axis=0) == 0).all()
    capacity = 3 * 4.0 / 0.64
    expected = 130 / 4 * (capacity * (4 + 1 / np.log(2)) * 4 + (10 + np.log(20) / np.log(2)))  # 2 · 8³ = 2^10
    bound = error_bound(margins_of(M, h, y))
    assert bound.value == pytest.approx(expected)
    assert (bound.norm, bound.radius, bound.margin) == pytest.approx((2.0, 1.0, 0.8))
    capacity = (3 * 2.0 + 4.0) / 0.64  # the third class, whose row has norm √2
    expected = 130 / 4 * (capacity * (4 + 1 / np.log(2)) * 4 + (7 + np.log(20) / np.log(2)))
    assert error_bound(margins_of(M, h, y), label=2).value == pytest.approx(expected)


def test_neither_a_shift_nor_a_scale_of_the_code_changes_the_bound(separated):
    M, h, y = separated
    value = error_bound(margins_of(M, h, y)).value
    assert error_bound(margins_of(M + np.array([3.0, -1.0]), h, y)).value == pytest.approx(value)
    assert error_bound(margins_of(7.0 * M, h, y)).value == pytest.approx(value)


def test_a_smaller_chance_of_failure_costs_more(separated):
    margins = margins_of(*separated)
    assert error_bound(margins, 0.001).value > error_bound(margins, 0.1).value


@pytest.mark.parametrize("margin", [0.0, -1.0])
def test_rows_on_the_wrong_side_have_no_bound(margin):
    bound = error_bound(CodeMargins(np.eye(3), 1.0, margin, 10))
    assert np.isnan(float(bound))
    assert "smallest margin" in bound.reason


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, np.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(ValueError, match="delta"):
        error_bound(CodeMargins(np.eye(3), 1.0, 1.0, 10), delta)
