"""Wsabie's stochastic gradient: single steps by hand, and laws."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.rivals.wsabie import train_wsabie
from widemargin.solvers.result import Status


def start(n_features, n_classes, size, seed):
    """U (by feature) and V as drawn."""
    rng = np.random.default_rng(seed)
    U = rng.normal(scale=1 / np.sqrt(n_features), size=(n_features, size))
    return U, rng.normal(scale=1 / np.sqrt(size), size=(n_classes, size))


def test_the_first_step_of_ada_grad_is_the_sign_of_the_gradient():
    x, rate = np.array([[0.5, 0.0, -0.25]]), 0.01
    U, V = start(3, 2, 4, seed=0)
    found = train_wsabie(x, np.array([1]), 2, embedding_size=4, learning_rate=rate, max_iter=1, seed=0)
    # loss 1 + V_0 U x − V_1 U x, descended in every entry whose gradient is not 0
    of_U = x[0][:, None] * (V[0] - V[1])
    np.testing.assert_allclose(found.features.T, U - rate * np.sign(of_U), atol=1e-9)
    embedded = x[0] @ U
    np.testing.assert_allclose(found.labels[0], V[0] - rate * np.sign(embedded), atol=1e-9)
    np.testing.assert_allclose(found.labels[1], V[1] + rate * np.sign(embedded), atol=1e-9)
    assert found.history["loss"][0] == pytest.approx(1 + (V[0] - V[1]) @ embedded)


def test_the_hinge_is_weighted_by_the_harmonic_number_of_the_estimated_rank():
    x, n_classes = np.array([[0.01, 0.02]]), 6
    U, V = start(2, n_classes, 3, seed=1)
    found = train_wsabie(x, np.array([2]), n_classes, embedding_size=3, max_iter=1, seed=1)
    scores = V @ (x[0] @ U)
    # Scores are near 0, so the first class tried is a violator and the rank estimate is 5.
    hinges = np.delete(1 + scores - scores[2], 2)
    assert np.min(np.abs(hinges * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) - found.history["loss"][0])) < 1e-12


@pytest.mark.slow
def test_rows_that_are_far_enough_change_nothing():
    X, y = 3.0 * np.eye(3), np.arange(3)
    short = train_wsabie(X, y, 3, embedding_size=5, max_iter=60, seed=0)
    longer = train_wsabie(X, y, 3, embedding_size=5, max_iter=70, seed=0)
    assert short.history["violated"][-1] == 0.0
    np.testing.assert_array_equal(short.features, longer.features)
    np.testing.assert_array_equal(short.labels, longer.labels)


def test_memory_makes_no_difference_for_two_classes():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    plain, remembering = (train_wsabie(X, y, 2, embedding_size=4, n_remembered=Q, max_iter=4) for Q in (0, 2))
    np.testing.assert_array_equal(plain.labels, remembering.labels)


@pytest.mark.parametrize(("n_remembered", "repeats"), [(0, True), (1, False), (5, False)])
@pytest.mark.slow
def test_a_remembered_violator_is_skipped(n_remembered, repeats):
    # Scores stay near 0, so both wrong classes always violate. The one that moves is the one that was chosen.
    x, n_epochs = np.array([[1e-3, 2e-3]]), 30
    labels = [
        train_wsabie(
            x, np.array([0]), 3, embedding_size=3, n_remembered=n_remembered, learning_rate=1e-4, max_iter=n, seed=5
        ).labels
        for n in range(1, n_epochs)
    ]
    moved = [(b != a).any(axis=1)[1:] for a, b in pairwise(labels)]
    taken = [int(np.flatnonzero(m)[0]) for m in moved if m.any()]
    assert len(taken) > 10
    assert any(a == b for a, b in pairwise(taken)) == repeats


def test_memory_makes_a_difference_for_more():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 5
    plain, remembering = (train_wsabie(X, y, 5, embedding_size=4, n_remembered=Q, max_iter=4) for Q in (0, 2))
    assert (plain.labels != remembering.labels).any()


def test_sparse_and_dense_rows_are_the_same():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.4), np.arange(20) % 3
    dense, sparse = (train_wsabie(form, y, 3, embedding_size=4, max_iter=3) for form in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(dense.features, sparse.features)


def test_the_callback_stops_it():
    found = train_wsabie(np.eye(3), np.arange(3), 3, embedding_size=2, callback=lambda progress: progress.done == 2)
    assert (found.status, found.n_iter, found.history.n_rows) == (Status.STOPPED, 2, 2)
