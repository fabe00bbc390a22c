"""The best discrete column against all columns, and the greedy code against a plain recount."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from widemargin import optimal_first_column
from widemargin.problems.first_column import greedy_code


def naive_error(signs, code, y, weights):
    """Equation (1), row by row: ties are broken uniformly at random."""
    right = 0.0
    for h, true, weight in zip(signs, y, weights, strict=True):
        scores = [sum(int(a) * int(m) for a, m in zip(h, row, strict=True)) for row in code]
        best = [r for r, score in enumerate(scores) if score == max(scores)]
        right += weight * (true in best) / len(best)
    return 1.0 - right / sum(weights)


def best_of_all_columns(signs, y, weights, k):
    """Smallest error over the 2^k columns by eq. (5), including the constant ones."""
    plus, minus = np.zeros(k), np.zeros(k)
    for sign, true, weight in zip(signs, y, weights, strict=True):
        (plus if sign > 0 else minus)[true] += weight / sum(weights)
    columns = np.array(list(itertools.product([False, True], repeat=k)))
    n_plus = columns.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        right = np.where(n_plus > 0, columns @ plus / n_plus, 0.0) + np.where(
            n_plus < k, ~columns @ minus / (k - n_plus), 0.0
        )
    right[(n_plus == 0) | (n_plus == k)] = 1.0 / k  # every class is tied
    return 1.0 - right.max()


@pytest.mark.parametrize("seed", range(300))
def test_first_column_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(2, 11)), int(rng.integers(1, 60))
    y = rng.integers(0, k, n)
    # Whole numbers make ties between classes, and exact zeros of h; every third case has weights, some of them 0.
    h = rng.integers(-2, 3, n) if seed % 2 else np.where(rng.random(n) < 0.8, y % 2 * 2.0 - 1.0, rng.normal(size=n))
    weights = rng.integers(0, 3, n) + (np.arange(n) == 0) if seed % 3 == 0 else np.ones(n)
    signs = np.where(h >= 0, 1, -1)
    found = optimal_first_column(h, y, weights, n_classes=k)
    assert set(found.column.tolist()) == {-1, 1}
    assert found.expected_error == pytest.approx(best_of_all_columns(signs, y, weights, k), abs=1e-12)
    assert found.expected_error == pytest.approx(
        naive_error(signs[:, None], found.column[:, None], y, weights), abs=1e-12
    )


def test_weight_is_repetition():
    rng = np.random.default_rng(0)
    h, y, weights = rng.normal(size=40), rng.integers(0, 5, 40), rng.integers(0, 4, 40)
    weighted = optimal_first_column(h, y, weights, n_classes=5)
    repeated = optimal_first_column(np.repeat(h, weights), np.repeat(y, weights), n_classes=5)
    assert weighted.column.tolist() == repeated.column.tolist()
    assert weighted.expected_error == pytest.approx(repeated.expected_error)


def test_ties_take_the_first_classes_and_zero_counts_as_plus():
    found = optimal_first_column([0.0, 0.0, 0.0], [0, 1, 2])
    assert found.column.tolist() == [1, -1, -1]
    assert found.expected_error == pytest.approx(2 / 3)  # as good as chance: no column is better


@pytest.mark.parametrize("seed", range(8))
def test_greedy_errors_are_those_of_its_code_and_never_rise(seed):
    rng = np.random.default_rng(seed)
    n, k, n_columns = 60, int(rng.integers(2, 7)), 5
    y = rng.integers(0, k, n)
    truth = np.sign(rng.normal(size=(k, n_columns)))
    h = truth[y] + rng.normal(scale=1.2, size=(n, n_columns))
    weights = rng.random(n)
    greedy = greedy_code(h, y, weights, n_classes=k)
    signs = np.where(h >= 0, 1, -1)
    assert greedy.expected_errors[0] == pytest.approx(best_of_all_columns(signs[:, 0], y, weights, k))
    for j in range(n_columns):
        naive = naive_error(signs[:, : j + 1], greedy.code[:, : j + 1], y, weights)
        assert greedy.expected_errors[j] == pytest.approx(naive, abs=1e-12)
    assert (np.diff(greedy.expected_errors) <= 1e-12).all()


@pytest.mark.parametrize("seed", range(4))
def test_no_single_change_of_a_greedy_column_lowers_the_error(seed):
    rng = np.random.default_rng(100 + seed)
    k, y = 4, rng.integers(0, 4, 50)
    signs = np.where(rng.random((50, 3)) < 0.3, -1, 1) * np.sign(rng.normal(size=(k, 3)))[y].astype(int)
    code = greedy_code(signs, y, n_classes=k).code
    for j in range(1, 3):
        if abs(code[:, j].sum()) == k:  # a classifier that is not used
            continue
        here = naive_error(signs[:, : j + 1], code[:, : j + 1], y, np.ones(50))
        for r in range(k):
            changed = code[:, : j + 1].copy()
            changed[r, j] *= -1
            if abs(changed[:, j].sum()) < k:
                assert naive_error(signs[:, : j + 1], changed, y, np.ones(50)) >= here - 1e-12


def test_greedy_does_not_depend_on_the_size_of_its_blocks(monkeypatch):
    rng = np.random.default_rng(5)
    y, h = rng.integers(0, 5, 70), rng.normal(size=(70, 4))
    whole = greedy_code(h, y)
    monkeypatch.setattr("widemargin.problems.first_column.BLOCK_ENTRIES", 20)
    blocked = greedy_code(h, y)
    assert (whole.code == blocked.code).all()
    assert np.allclose(whole.expected_errors, blocked.expected_errors, atol=1e-12)


def test_a_useless_classifier_gets_a_column_that_changes_nothing():
    h = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    greedy = greedy_code(h, [0, 0, 1, 1])
    assert greedy.code.tolist() == [[1, 1], [-1, 1]]
    assert greedy.expected_errors.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("h", "y", "options", "message"),
    [
        ([1.0, np.nan], [0, 1], {}, "NaN"),
        ([[1.0], [2.0]], [0, 1], {}, "shape"),
        ([1.0, 2.0], [0], {}, "one class for each"),
        ([1.0, 2.0], [0, 3], {"n_classes": 3}, "class 3"),
        ([1.0, 2.0], [0, -1], {}, "class -1"),
        ([1.0, 2.0], [0, 1], {"n_classes": 1}, "at least 2"),
        ([1.0, 2.0], [0, 1], {"sample_weight": [0.0, 0.0]}, "0 for every row"),
        ([1.0, 2.0], [0, 1], {"sample_weight": [1.0, -1.0]}, "nonnegative"),
        ([], [], {}, "no rows"),
    ],
)
def test_bad_input_is_named(h, y, options, message):
    with pytest.raises(ValueError, match=message):
        optimal_first_column(h, y, **options)


def test_labels_that_are_no_indices_get_the_remedy():
    with pytest.raises(TypeError, match=r"np\.unique"):
        optimal_first_column([1.0, -1.0], ["a", "b"])
