"""Pairs against written-out features, and the interior point method against Clarabel."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.rivals import ranking
from widemargin.rivals.ranking import FactorBlock, GramBlock, QuadraticProgram, RankingPairs


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_optimum_of_an_independent_solver(seed):
    rng = np.random.default_rng(seed)
    factors = [rng.normal(size=(6, 3)), rng.normal(size=(4, 9)), rng.normal(size=(7, 2))]
    blocks = [FactorBlock(factors[0]), GramBlock(factors[1] @ factors[1].T), FactorBlock(factors[2])]
    diagonal = np.where(rng.random(17) < 0.5, 0.0, rng.random(17))
    linear, normal, level = rng.normal(size=17), rng.random(17), 10.0 ** rng.uniform(-2, 2)
    v = QuadraticProgram(blocks, diagonal, linear, normal, level).solve([np.ones(17)], 1e-10)

    def objective(point):
        parts = np.split(point, [6, 10])
        squares = sum(np.sum((Z.T @ part) ** 2) for Z, part in zip(factors, parts, strict=True))
        return 0.5 * squares + 0.5 * diagonal @ point**2 - linear @ point

    u = cp.Variable(17, nonneg=True)
    squares = sum(cp.sum_squares(Z.T @ u[a:b]) for Z, a, b in zip(factors, [0, 6, 10], [6, 10, 17], strict=True))
    target = 0.5 * squares + 0.5 * cp.sum(cp.multiply(diagonal, cp.square(u))) - linear @ u
    optimum = cp.Problem(cp.Minimize(target), [normal @ u == level]).solve(solver=cp.CLARABEL)
    assert (v > 0).all()
    assert normal @ v == pytest.approx(level, rel=1e-9)
    assert objective(v) == pytest.approx(optimum, rel=1e-6, abs=1e-6)


def test_a_singular_program_ends_at_an_optimum():
    # Two equal columns: any split of their sum is optimal.
    program = QuadraticProgram([GramBlock(np.ones((2, 2)))], np.zeros(2), np.ones(2), np.ones(2), 0.5)
    v = program.solve([np.array([1.0, 3.0])], 1e-12)
    assert v.sum() == pytest.approx(0.5)


def test_another_start_is_tried_where_one_leads_nowhere():
    program = QuadraticProgram([GramBlock(np.eye(2))], np.zeros(2), np.array([1.0, 0.5]), np.ones(2), 1.0)
    nowhere = np.full(2, np.nan)
    v = program.solve([nowhere, np.full(2, 0.5)], 1e-10)
    np.testing.assert_allclose(v, [0.75, 0.25], atol=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("entries", [4, 2**20])
def test_pairs_score_as_features_that_are_written_out(monkeypatch, sparse, entries):
    monkeypatch.setattr(ranking, "BLOCK_ENTRIES", entries)
    rng = np.random.default_rng(1)
    X, y, W = rng.normal(size=(5, 2)), np.array([0, 2, 1, 1, 0]), rng.normal(size=(3, 3))
    rows = np.hstack([X, np.full((5, 1), 2.0)])
    features = np.array([np.kron(np.eye(3)[r], x) for x in rows for r in range(3)])
    pairs = RankingPairs(sp.csr_array(X) if sparse else X, y, 3, intercept_scaling=2.0)
    parts = list(pairs.scores(W))
    expected = (features @ W.ravel()).reshape(5, 3)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), expected[np.arange(5), y])
    expected[np.arange(5), y] = -np.inf
    np.testing.assert_allclose(np.concatenate([part[2] for part in parts]), expected)
    values = rng.normal(size=15)
    combined = pairs.combination(np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5), values)
    np.testing.assert_allclose(combined.ravel(), values @ features)


def test_rows_without_a_block_are_negatives_everywhere():
    pairs = RankingPairs(np.eye(4), np.array([-1, 0, 0, -1]), 1)
    assert (pairs.n_blocks, pairs.n_positives, pairs.n_negatives) == (1, 2, 2)
    np.testing.assert_array_equal(pairs.positive_rows, [1, 2])
