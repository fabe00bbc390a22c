"""Wsabie: single steps of its stochastic gradient by hand, laws, and scores against the plain product."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import Status, TimeLimit
from widemargin.rivals import Wsabie
from widemargin.rivals.wsabie import EmbeddedScorer, Embedding


def trained(X, y, n_classes, size, *, n_remembered=0, learning_rate=0.1, n_epochs=1, seed=0):
    """The embedding after some epochs, and the losses met in each."""
    rng = np.random.default_rng(seed)
    embedding = Embedding(X.shape[1], n_classes, size, n_remembered, learning_rate, rng)
    return embedding, [embedding.visit_all(X, y) for _ in range(n_epochs)]


def start(n_features, n_classes, size, seed):
    """U (by feature) and V as drawn."""
    rng = np.random.default_rng(seed)
    U = rng.normal(scale=1 / np.sqrt(n_features), size=(n_features, size))
    return U, rng.normal(scale=1 / np.sqrt(size), size=(n_classes, size))


def test_the_first_step_of_ada_grad_is_the_sign_of_the_gradient():
    x, rate = np.array([[0.5, 0.0, -0.25]]), 0.01
    U, V = start(3, 2, 4, seed=0)
    found, losses = trained(x, np.array([1]), 2, size=4, learning_rate=rate)
    # loss 1 + V_0 U x − V_1 U x, descended in every entry whose gradient is not 0
    of_U = x[0][:, None] * (V[0] - V[1])
    np.testing.assert_allclose(found.U, U - rate * np.sign(of_U), atol=1e-9)
    embedded = x[0] @ U
    np.testing.assert_allclose(found.V[0], V[0] - rate * np.sign(embedded), atol=1e-9)
    np.testing.assert_allclose(found.V[1], V[1] + rate * np.sign(embedded), atol=1e-9)
    assert losses[0][0] == pytest.approx(1 + (V[0] - V[1]) @ embedded)


def test_the_hinge_is_weighted_by_the_harmonic_number_of_the_estimated_rank():
    x, n_classes = np.array([[0.01, 0.02]]), 6
    U, V = start(2, n_classes, 3, seed=1)
    _, losses = trained(x, np.array([2]), n_classes, size=3, seed=1)
    scores = V @ (x[0] @ U)
    # Scores are near 0, so the first class tried is a violator and the rank estimate is 5.
    hinges = np.delete(1 + scores - scores[2], 2)
    assert np.min(np.abs(hinges * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) - losses[0][0])) < 1e-12


@pytest.mark.slow
def test_rows_that_are_far_enough_change_nothing():
    X, y = 3.0 * np.eye(3), np.arange(3)
    (short, losses), (longer, _) = (trained(X, y, 3, size=5, n_epochs=n) for n in (60, 70))
    assert not losses[-1].any()
    np.testing.assert_array_equal(short.U, longer.U)
    np.testing.assert_array_equal(short.V, longer.V)


def test_memory_makes_no_difference_for_two_classes():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    plain, remembering = (trained(X, y, 2, size=4, n_remembered=Q, n_epochs=4)[0] for Q in (0, 2))
    np.testing.assert_array_equal(plain.V, remembering.V)


@pytest.mark.parametrize(("n_remembered", "repeats"), [(0, True), (1, False), (5, False)])
@pytest.mark.slow
def test_a_remembered_violator_is_skipped(n_remembered, repeats):
    # Scores stay near 0, so both wrong classes always violate. The one that moves is the one that was chosen.
    x, n_epochs = np.array([[1e-3, 2e-3]]), 30
    options = {"n_remembered": n_remembered, "learning_rate": 1e-4, "seed": 5}
    labels = [trained(x, np.array([0]), 3, size=3, n_epochs=n, **options)[0].V for n in range(1, n_epochs)]
    moved = [(b != a).any(axis=1)[1:] for a, b in pairwise(labels)]
    taken = [int(np.flatnonzero(m)[0]) for m in moved if m.any()]
    assert len(taken) > 10
    assert any(a == b for a, b in pairwise(taken)) == repeats


def test_memory_makes_a_difference_for_more():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 5
    plain, remembering = (trained(X, y, 5, size=4, n_remembered=Q, n_epochs=4)[0] for Q in (0, 2))
    assert (plain.V != remembering.V).any()


def test_sparse_and_dense_rows_are_the_same():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.4), np.arange(20) % 3
    dense, sparse = (trained(form, y, 3, size=4, n_epochs=3)[0] for form in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(dense.U, sparse.U)


def test_the_callback_and_the_clock_stop_it():
    X, y = np.eye(3), np.arange(3)
    found = Wsabie(2, callback=lambda progress: progress.done == 2).fit(X, y)
    assert (found.status_, found.n_iter_, found.history_.n_rows) == (Status.STOPPED, 2, 2)
    for verbose in (0, 1):
        found = Wsabie(2, callback=TimeLimit(0.0), verbose=verbose).fit(X, y)
        assert (found.status_, found.n_iter_) == (Status.TIME_LIMIT, 1)


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
