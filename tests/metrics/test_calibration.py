"""Expected calibration error and reliability curves against values computed by hand and scikit-learn's curve."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.calibration import calibration_curve

from widemargin.metrics import calibration_error_at_k, expected_calibration_error, reliability_curve


def test_by_hand():
    # Bins below and above ½: means 0.2 and 0.8, shares 1/2 and 1, and half of the weight each.
    assert expected_calibration_error([0, 1, 1, 1], [0.1, 0.3, 0.7, 0.9], n_bins=2) == pytest.approx(
        0.5 * abs(0.5 - 0.2) + 0.5 * abs(1.0 - 0.8)
    )


def test_perfect_and_worst():
    assert expected_calibration_error([0, 1], [0.0, 1.0]) == 0.0
    assert expected_calibration_error([1, 0], [0.0, 1.0]) == 1.0
    assert expected_calibration_error([0, 1, 1, 0], [0.5] * 4) == 0.0


def test_weights_are_repetitions():
    truth, probability, weights = np.array([0, 1, 1, 0]), np.array([0.2, 0.25, 0.9, 0.6]), np.array([1, 3, 2, 4])
    repeated = expected_calibration_error(np.repeat(truth, weights), np.repeat(probability, weights))
    assert expected_calibration_error(truth, probability, sample_weight=weights) == pytest.approx(repeated)


def test_any_shape_is_a_list_of_pairs():
    rng = np.random.default_rng(0)
    truth, probability = rng.random((6, 5)) < 0.3, rng.random((6, 5))
    flat = expected_calibration_error(truth.ravel(), probability.ravel())
    assert expected_calibration_error(truth, probability) == flat


def test_curve_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    probability = rng.random(300)
    truth = rng.random(300) < probability
    share, mean = calibration_curve(truth, probability, n_bins=8)
    curve = reliability_curve(truth, probability, n_bins=8)
    np.testing.assert_allclose(curve.true_share, share)
    np.testing.assert_allclose(curve.mean_probability, mean)
    assert curve.weight.sum() == 300


def test_error_at_k_by_hand_and_without_missing_places():
    Y = sp.csr_array(np.array([[1, 0, 0], [0, 1, 1]]))
    indices, probability = np.array([[0, 1], [2, -1]]), np.array([[0.9, 0.2], [0.6, 0.0]])
    assert calibration_error_at_k(Y, indices, probability, 1, n_bins=1) == pytest.approx(1 - 0.75)
    both = calibration_error_at_k(Y, indices, probability, [1, 2], n_bins=1)
    assert both[1] == pytest.approx(2 / 3 - 1.7 / 3)


@pytest.mark.parametrize(
    ("truth", "probability", "options", "message"),
    [
        ([0, 1], [0.5], {}, "same shape"),
        ([0, 2], [0.5, 0.5], {}, "zeros and ones"),
        ([0, 1], [0.5, 1.5], {}, "between 0 and 1"),
        ([0, 1], [0.5, np.nan], {}, "between 0 and 1"),
        ([0, 1], [0.5, 0.5], {"n_bins": 0}, "n_bins"),
        ([0, 1], [0.5, 0.5], {"sample_weight": [1.0]}, "sample_weight"),
        ([], [], {}, "requires at least one"),
    ],
)
def test_wrong_input_is_named(truth, probability, options, message):
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(truth, probability, **options)


def test_probabilities_must_be_those_of_the_list():
    with pytest.raises(ValueError, match="shape as the ranked labels"):
        calibration_error_at_k([[1, 0]], [[0, 1]], [[0.5]], 1)
