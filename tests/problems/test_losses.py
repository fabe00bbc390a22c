"""Losses against finite differences and the definition of the conjugate."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.problems.losses import LOSSES, get_loss

MARGINS = np.array([-3.0, -0.5, 0.0, 0.3, 0.999, 1.001, 2.0, 5.0])  # away from the kink at 1


@pytest.fixture(params=sorted(LOSSES))
def loss(request):
    return get_loss(request.param)


def test_derivatives_agree_with_finite_differences(loss):
    h = 1e-5
    slope = (loss.value(MARGINS + h) - loss.value(MARGINS - h)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(MARGINS), slope, atol=1e-8)
    curvature = (loss.derivative(MARGINS + h) - loss.derivative(MARGINS - h)) / (2 * h)
    np.testing.assert_allclose(loss.second_derivative(MARGINS), curvature, atol=1e-8)


def test_change_is_the_difference_of_values(loss):
    steps = np.linspace(-4, 4, 41)
    for m in MARGINS:
        difference = loss.value(m + steps) - loss.value(np.full(41, m))
        np.testing.assert_allclose(loss.change(np.full(41, m), steps), difference, atol=1e-13)


def test_change_keeps_steps_below_the_rounding_of_the_value(loss):
    m, step = np.array([-2.0]), np.array([1e-20])
    assert loss.value(m + step) == loss.value(m)
    np.testing.assert_allclose(loss.change(m, step), loss.derivative(m) * step, rtol=1e-12)


@pytest.mark.parametrize("c", [0.3, 1.0, 4.0])
def test_dual_value_is_minus_the_conjugate_by_brute_force(loss, c):
    # -(cφ)*(-α) = min over m of cφ(m) + αm
    grid = np.linspace(-60, 60, 1_200_001)
    for alpha in (0.0, 0.1 * c, 0.5 * c, 0.9 * c):
        brute = (c * loss.value(grid) + alpha * grid).min() if alpha else 0.0
        np.testing.assert_allclose(loss.dual_value(np.array([alpha]), np.array([c])), brute, atol=1e-8)


def test_rows_without_weight_add_nothing_to_the_dual(loss):
    assert loss.dual_value(np.zeros(1), np.zeros(1)) == 0.0


def test_unknown_loss_names_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown loss 'hinge'.*squared_hinge"):
        get_loss("hinge")
