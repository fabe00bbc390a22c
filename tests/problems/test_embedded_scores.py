"""Scores of embeddings against the plain product."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.rivals.wsabie import EmbeddedScorer


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("limit", [1e-4, 256.0])  # 4 rows at a time, and all
def test_scores_are_those_of_the_product_in_blocks_of_any_size(sparse, limit):
    rng = np.random.default_rng(0)
    X, U, V = rng.normal(size=(11, 4)), rng.normal(size=(3, 4)), rng.normal(size=(5, 3))
    rows = sp.csr_array(X) if sparse else X
    scorer = EmbeddedScorer(U, V, memory_limit_mb=limit)
    expected = X @ U.T @ V.T
    np.testing.assert_allclose(scorer.scores(rows), expected)
    indices, scores = scorer.top_k(rows, 2)
    order = np.argsort(-expected, axis=1)[:, :2]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, order, axis=1))
    labels = rng.integers(0, 5, 11)
    np.testing.assert_allclose(scorer.label_scores(rows, labels), expected[np.arange(11), labels])
    assert scorer.scores(rows[:0]).shape == (0, 5)
