"""The losses of rankings from their definitions: oracle against enumeration, pairs against written-out features."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from widemargin.rivals import ranking as ranking_pairs
from widemargin.rivals.ranking import RankingPairs, recall_at_k_oracle, top_push_conjugate, top_push_loss

# Few different values, so that ties are frequent.
SCORES = st.integers(-3, 3).map(lambda value: value / 4)


def value_of(labelling, scores, truth):
    """Δ + Σ (y' − y) s of one labelling with labels ±1."""
    true_positives = np.sum((labelling > 0) & (truth > 0))
    return 1 - true_positives / np.sum(truth > 0) + (labelling - truth) @ scores


def check_oracle(positives, negatives, n_selected):
    """The oracle against all labellings with at most `n_selected` positives."""
    scores = np.append(positives, negatives)
    truth = np.repeat([1.0, -1.0], [len(positives), len(negatives)])
    labellings = (np.array(signs) for signs in product([-1.0, 1.0], repeat=len(scores)))
    allowed = [labelling for labelling in labellings if np.sum(labelling > 0) <= n_selected]
    plane = recall_at_k_oracle(np.array(positives), np.array(negatives), n_selected)
    assert plane.value == pytest.approx(max(value_of(one, scores, truth) for one in allowed), abs=1e-12)
    labelling = truth.copy()
    labelling[plane.positives] = -1.0
    labelling[len(positives) + plane.negatives] = 1.0
    assert np.sum(labelling > 0) <= n_selected
    assert value_of(labelling, scores, truth) == pytest.approx(plane.value, abs=1e-12)
    assert plane.delta == 1 - np.sum(labelling[: len(positives)] > 0) / len(positives)


@settings(max_examples=60, deadline=None)
@given(st.lists(SCORES, min_size=1, max_size=4), st.lists(SCORES, max_size=4), st.integers(0, 9))
def test_the_oracle_equals_enumeration_though_scores_are_tied(positives, negatives, n_selected):
    check_oracle(positives, negatives, n_selected)


@pytest.mark.parametrize("seed", range(50))
def test_the_oracle_equals_enumeration_over_at_most_K_positives(seed):
    rng = np.random.default_rng(seed)
    n_positives, n_negatives = rng.integers(1, 5), rng.integers(0, 8)
    shift = rng.choice([-1.0, 0.0, 1.0])
    positives, negatives = rng.normal(0.0, 0.5, n_positives), rng.normal(shift, 0.5, n_negatives)
    check_oracle(positives, negatives, int(rng.integers(0, n_positives + n_negatives + 2)))


def test_the_highest_negatives_are_enough_for_the_oracle():
    rng = np.random.default_rng(0)
    positives, negatives = rng.normal(size=3), rng.normal(size=9)
    full = recall_at_k_oracle(positives, negatives, 5)
    part = recall_at_k_oracle(positives, np.sort(negatives)[-5:], 5)
    assert (part.value, part.delta) == (pytest.approx(full.value), full.delta)


def test_an_impossible_number_of_positives_is_refused():
    with pytest.raises(ValueError, match="n_selected=-1 must be 0 or more"):
        recall_at_k_oracle(np.ones(1), np.ones(2), -1)


def test_low_scores_alone_do_not_lower_the_loss_of_recall():
    # Choosing negatives with a score below 0 gains nothing, so no labelling has to choose them.
    scores = np.linspace(-3.0, -1.0, 6)
    assert recall_at_k_oracle(scores[:2], scores[2:], 4).value == pytest.approx(1.0 - 2.0 * scores[:2].sum())


def test_the_conjugate_of_top_push_is_the_largest_difference():
    grid = np.linspace(-3, 8, 100_001)
    for alpha, cost in [(0.0, 1.0), (1.5, 0.5), (3.0, 2.0)]:
        # u = 1 + t − s of a single positive, with t = 0
        losses = cost * np.maximum(grid, 0.0) ** 2
        assert top_push_conjugate(np.array([alpha]), np.array([cost])) == pytest.approx(
            np.max(alpha * grid - losses), abs=1e-6
        )
        assert top_push_loss(np.array([1 - grid[70_000]]), 0.0, np.array([cost])) == pytest.approx(losses[70_000])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("entries", [4, 2**20])
def test_pairs_score_as_features_that_are_written_out(monkeypatch, sparse, entries):
    monkeypatch.setattr(ranking_pairs, "BLOCK_ENTRIES", entries)
    rng = np.random.default_rng(1)
    X, y, W = rng.normal(size=(5, 2)), np.array([0, 2, 1, 1, 0]), rng.normal(size=(3, 3))
    rows = np.hstack([X, np.full((5, 1), 2.0)])
    features = np.array([np.kron(np.eye(3)[r], x) for x in rows for r in range(3)])
    pairs = RankingPairs.joint(sp.csr_array(X) if sparse else X, y, 3, bias=2.0)
    parts = list(pairs.scores(W))
    expected = (features @ W.ravel()).reshape(5, 3)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), expected[np.arange(5), y])
    expected[np.arange(5), y] = -np.inf
    np.testing.assert_allclose(np.concatenate([part[2] for part in parts]), expected)
    values = rng.normal(size=15)
    combined = pairs.combination(np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5), values)
    np.testing.assert_allclose(combined.ravel(), values @ features)


def test_one_class_against_the_others_has_one_block():
    pairs = RankingPairs.one_vs_all(np.eye(4), np.array([0, 2, 2, 1]), 2)
    assert (pairs.n_blocks, pairs.n_positives, pairs.n_negatives) == (1, 2, 2)
    np.testing.assert_array_equal(pairs.positive_rows, [1, 2])
