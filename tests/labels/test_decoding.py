"""Decoding against plain loops, and the expected error against random choices among the best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from widemargin.labels.codes import all_pairs_code, exhaustive_code, random_code
from widemargin.labels.decoding import decode, expected_error

NAIVE = {
    "inner": lambda m, h: m * h,
    "hamming": lambda m, h: -(1 - np.sign(m * h)) / 2,
    "exponential": lambda m, h: -math.exp(-m * h),
    "hinge": lambda m, h: -max(0.0, 1 - m * h),
    "logistic": lambda m, h: -math.log(1 + math.exp(-m * h)),
}


@pytest.mark.parametrize("decoding", NAIVE)
@pytest.mark.parametrize(
    "code", [exhaustive_code(4), all_pairs_code(5), random_code(6, 7, sparse=True, random_state=0)]
)
def test_decoding_is_the_sum_over_columns(decoding, code):
    rng = np.random.default_rng(0)
    h = rng.normal(scale=2.0, size=(9, code.shape[1]))
    h[0, 0] = 0.0
    expected = [[sum(NAIVE[decoding](m, v) for m, v in zip(row, x, strict=True)) for row in code] for x in h]
    assert np.allclose(decode(h, code, decoding), expected, rtol=1e-13, atol=1e-13)


def test_learned_codes_are_decoded_as_they_are():
    code = np.array([[0.5, -2.0], [1.5, 0.25]])
    assert np.allclose(decode([[2.0, 1.0]], code), [[-1.0, 3.25]])
    assert np.allclose(decode([[2.0, 1.0]], code, "hinge"), [[-3.0, -0.75]])


def test_large_outputs_keep_their_order():
    assert decode([[800.0]], [[1], [-1]], "exponential").tolist() == [[0.0, -np.inf]]
    assert np.allclose(decode([[800.0]], [[1], [-1]], "logistic"), [[0.0, -800.0]])


def test_expected_error_is_the_mean_over_the_tied():
    rng = np.random.default_rng(1)
    scores, y, weights = rng.integers(0, 3, (50, 4)).astype(float), rng.integers(0, 4, 50), rng.random(50)
    right = 0.0
    for row, true, weight in zip(scores, y, weights, strict=True):
        best = [r for r in range(4) if row[r] == max(row)]
        right += weight * sum(r == true for r in best) / len(best)
    assert expected_error(scores, y, weights) == pytest.approx(1 - right / weights.sum(), abs=1e-14)


def test_all_classes_tied_are_chance():
    assert expected_error(np.zeros((3, 5)), [0, 1, 4]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("h", "code", "decoding", "message"),
    [
        ([[1.0]], [[1, -1], [-1, 1]], "inner", "they must have the same number of columns"),
        ([[1.0]], [[1], [-1]], "l2", "decoding must be one of"),
        ([[np.nan]], [[1], [-1]], "inner", "NaN or infinity"),
        ([1.0], [[1], [-1]], "inner", "shape"),
        ([[1.0]], [[np.inf], [-1]], "inner", "finite"),
    ],
)
def test_bad_decoding_is_named(h, code, decoding, message):
    with pytest.raises(ValueError, match=message):
        decode(h, code, decoding)


@pytest.mark.parametrize(
    ("scores", "y", "weights", "message"),
    [
        ([[np.nan, 1.0]], [0], None, "NaN"),
        ([1.0, 2.0], [0], None, "shape"),
        ([[1.0, 2.0]], [2], None, "class 2"),
        ([[1.0, 2.0]], [0], [1.0, 2.0], "one weight for each"),
        (np.zeros((0, 2)), np.zeros(0, dtype=int), None, "no rows"),
    ],
)
def test_bad_scores_are_named(scores, y, weights, message):
    with pytest.raises(ValueError, match=message):
        expected_error(scores, y, weights)
