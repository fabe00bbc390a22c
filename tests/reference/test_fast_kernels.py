"""Kernels of the fast one-vs-all solver against their NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.binary_objective import BinaryObjective, BinaryProblem
from reference.fast_one_vs_all import certify_weights, solve_local, store_order
from sparse_rows import arrays, random_rows
from widemargin import _core
from widemargin.problems.losses import SquaredHinge

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
ISAS = _core.available_instruction_sets()


def problem_of(X, positives, weight, bias_value=1.0, bias_penalty=0.0):
    y = np.full(X.shape[0], -1.0)
    y[positives] = 1.0
    return BinaryProblem(X.astype(np.float64), y, weight, SquaredHinge(), bias_value, bias_penalty)


def test_store_order_is_by_length_and_by_frequency():
    X = sp.csr_array(np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 0]], dtype=np.float32))
    rows, columns = store_order(X)
    assert rows.tolist() == [1, 4, 2, 3, 0]  # among the rows with one entry, the more frequent column comes first
    assert columns.tolist() == [1, 2, 0, 3]


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(1, 90))
def test_the_row_store_has_that_order(seed, n_rows):
    X = random_rows(np.random.default_rng(seed), n_rows)
    for got, expected in zip(_hooks.store_order(*arrays(X), 20), store_order(X), strict=True):
        assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bias_penalty", [0.0, 1.0])
def test_local_problem_reaches_the_newton_solution_on_its_rows(isa, bias_penalty):
    rng = np.random.default_rng(3)
    X, positives = random_rows(rng, 80), np.arange(0, 80, 9)
    weight = rng.uniform(0.5, 2.0, 80)
    rows = np.union1d(positives, np.arange(0, 80, 2))
    coef, intercept, n_iter, converged = _hooks.solve_local(
        *arrays(X), 20, positives, weight, rows, -0.5, bias_penalty, False, 1e-4, isa
    )
    assert converged
    assert 0 < n_iter < 100
    expected = solve_local(problem_of(X, positives, weight, 1.0, bias_penalty), rows, 1e-9)
    np.testing.assert_allclose(coef, expected[:-1], atol=1e-4)
    assert intercept == pytest.approx(expected[-1], abs=1e-4)


def test_a_fixed_bias_stays_and_the_gradient_of_the_weights_vanishes():
    rng = np.random.default_rng(4)
    X, positives, weight = random_rows(rng, 80), np.arange(0, 80, 9), np.ones(80)
    rows = np.arange(80)
    coef, intercept, _, converged = _hooks.solve_local(
        *arrays(X), 20, positives, weight, rows, -1.25, 0.0, True, 1e-4, ISAS[0]
    )
    assert converged
    assert intercept == -1.25
    gradient = BinaryObjective(problem_of(X, positives, weight), np.append(coef, intercept)).gradient()
    assert np.linalg.norm(gradient[:-1]) < 3e-4


@pytest.mark.parametrize(("bias_value", "bias_penalty"), [(1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
@examples(25)
@given(seed=st.integers(0, 2**32 - 1), prune=st.sampled_from([0.0, 0.01, 0.2]))
@example(seed=5741, prune=0.0)  # the last step of the intercept rounds to nothing, on the edge of its bracket
def test_sparse_certificate_equals_the_dense_one(bias_value, bias_penalty, seed, prune):
    rng = np.random.default_rng(seed)
    X, positives = random_rows(rng, 70), np.sort(rng.choice(70, size=rng.integers(1, 30), replace=False))
    weight = rng.uniform(0.5, 2.0, 70)
    coef = np.where(rng.random(20) < 0.7, 0.6 * rng.normal(size=20), 0.0).astype(np.float32)
    intercept = float(np.float32(-1.2)) * bias_value
    # The threshold lies so low that any shift of the intercept is allowed for.
    values = _hooks.certify_weights(
        *arrays(X), positives, weight, coef, intercept, bias_value, bias_penalty, prune, -9.0
    )
    moved, primal, dual, before, share, norm, valid, _ = values
    problem = problem_of(X, positives, weight, bias_value, bias_penalty)
    expected = certify_weights(problem, coef.astype(np.float64), intercept, prune)
    assert valid
    assert moved == pytest.approx(expected.intercept, abs=2e-7)
    assert before == pytest.approx(expected.primal_before_pruning, rel=1e-9)
    assert dual == pytest.approx(expected.dual, rel=1e-5, abs=1e-5)
    assert dual <= before
    assert primal == pytest.approx(expected.primal, rel=1e-9)
    dropped = np.where(np.abs(coef) < prune, coef, 0.0).astype(np.float64)
    assert share == pytest.approx(dropped @ dropped / max(1e-300, coef.astype(np.float64) @ coef.astype(np.float64)))
    assert expected.gradient_norm <= norm * (1 + 1e-9) + 1e-9
    assert norm <= expected.gradient_norm + 1e-4


def test_a_threshold_that_leaves_no_room_gives_no_certificate():
    rng = np.random.default_rng(5)
    X, positives = random_rows(rng, 70), np.arange(5)
    coef = rng.normal(size=20).astype(np.float32)
    # The optimal intercept is far above −3, so rows below the threshold would have become active.
    *_, valid, pruned_valid = _hooks.certify_weights(
        *arrays(X), positives, np.ones(70), coef, -3.0, 1.0, 0.0, 0.0, -1.01
    )
    assert not valid
    assert not pruned_valid


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("bias_value", "bias_penalty"), [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0)])
@examples(8)
@given(seed=st.integers(0, 2**32 - 1), n_labels=st.integers(1, 20), prune=st.sampled_from([0.0, 0.3]))
def test_certificates_of_a_batch_are_those_of_each_label(isa, bias_value, bias_penalty, seed, n_labels, prune):
    rng = np.random.default_rng(seed)
    X, weight = random_rows(rng, 60), rng.choice([0.0, 0.5, 2.0], 60, p=[0.1, 0.5, 0.4])
    Y = sp.csc_array(rng.random((60, n_labels)) < rng.uniform(0.05, 0.8, n_labels))
    coef = np.where(rng.random((n_labels, 20)) < 0.7, 0.6 * rng.normal(size=(n_labels, 20)), 0.0).astype(np.float32)
    coef[:, 0] = np.float32(prune)  # kept
    intercept = bias_value * rng.normal(size=n_labels).astype(np.float32).astype(np.float64)
    out = np.empty((n_labels, 6))
    labels = Y.indices.astype(np.int64), Y.indptr.astype(np.int64)
    numbers = (bias_value, bias_penalty, prune)
    _hooks.certify_batch(*arrays(X), *labels, weight, coef, intercept, *numbers, out, isa)
    for j, (moved, primal, dual, before, share, norm) in enumerate(out):
        problem = problem_of(X, Y.indices[Y.indptr[j] : Y.indptr[j + 1]], weight, bias_value, bias_penalty)
        expected = certify_weights(problem, coef[j].astype(np.float64), float(intercept[j]), prune)
        if min(problem.c[problem.y > 0].sum(), problem.c[problem.y < 0].sum()) > 0:
            assert moved == pytest.approx(expected.intercept, abs=2e-7)
            assert before == pytest.approx(expected.primal_before_pruning, rel=1e-9)
            assert primal == pytest.approx(expected.primal, rel=1e-9)
            assert expected.gradient_norm <= norm * (1 + 1e-9) + 1e-9
            assert norm <= expected.gradient_norm + 1e-4
        assert dual == pytest.approx(expected.dual, rel=1e-5, abs=1e-5)
        assert dual <= before
        kept = np.where(np.abs(coef[j]) < prune, 0.0, coef[j]).astype(np.float64)
        assert share == pytest.approx(
            1 - kept @ kept / max(1e-300, np.square(coef[j].astype(np.float64)).sum()), abs=1e-9
        )
