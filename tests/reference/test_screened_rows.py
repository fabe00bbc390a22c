"""The screened pass against its NumPy twin, and against exact scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.screened_rows import BLOCK, envelope, screened_rows, unbounded_rows, value_bits
from sparse_rows import arrays
from widemargin import _core

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
ISAS = _core.available_instruction_sets()


def screened(X, coef, intercept, threshold, prune=0.0, proof=True, entries_share=0, isa=ISAS[0]):
    """None if the index is not used, else rows, ascending, with their scores and upper bounds."""
    X, coef = X.astype(np.float32), np.asarray(coef, dtype=np.float32)
    used, rows, scores, upper = _hooks.screen_rows(
        *arrays(X), coef, intercept, threshold, prune, proof, entries_share, isa
    )
    order = np.argsort(rows)
    assert used or not len(rows)
    return (rows[order], scores[order], upper[order]) if used else None


def random_label(seed, n_rows, n_features=40, density=0.15, size=1.0, positive=0.5):
    """Rows without negative values, some empty, and weights; intercept and threshold near the scores."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_rows, n_features), density=density, random_state=rng, data_sampler=rng.random)
    X = sp.csr_array(X * np.geomspace(3.0, 0.2, n_features) * size).astype(np.float32)
    coef = rng.normal(size=n_features) / size
    coef = np.where(rng.random(n_features) < positive, np.abs(coef), -np.abs(coef)) * np.geomspace(1e-3, 1, n_features)
    coef = np.where(rng.random(n_features) < 0.8, rng.permutation(coef), 0.0).astype(np.float32)
    return X, coef, float(-1 - rng.uniform(0.002, 2)), float(-1 - rng.uniform(0, 0.01))


def exact_scores(X, coef, intercept):
    return X.toarray().astype(np.float64) @ np.asarray(coef, dtype=np.float64) + intercept


def tolerance(X, coef, exact):
    """What the scores of found rows, in float32, may be off."""
    size = np.linalg.norm(X.toarray(), axis=1).max() * np.linalg.norm(coef.astype(np.float64))
    return 3e-6 * (1 + np.abs(exact)) + 1e-11 * size


def check_proof(X, coef, intercept, threshold, found):
    """No row above the threshold is lost, none far below it is found, and upper bounds are upper bounds."""
    rows, scores, upper = found
    exact, off = exact_scores(X, coef, intercept), tolerance(X, coef, exact_scores(X, coef, intercept))
    assert set(np.flatnonzero(exact > threshold)) <= set(rows)
    assert np.all(exact[rows] + off[rows] > threshold)
    assert np.all(np.abs(scores - exact[rows]) <= off[rows])
    assert np.all(upper >= exact[rows])
    assert np.all(upper <= exact[rows] + off[rows])


def over_labels(test):
    """Run a test on random labels with every instruction set."""
    labels = given(
        seed=st.integers(0, 2**32 - 1),
        n_rows=st.integers(1, 200) | st.sampled_from([1, 15, 16, 17]),
        size=st.sampled_from([1.0, 1e-6, 300.0, 1e6]),
        density=st.sampled_from([0.02, 0.15, 0.7]),
    )
    return pytest.mark.parametrize("isa", ISAS)(examples(40)(labels(test)))


@over_labels
def test_no_row_above_the_threshold_is_lost(isa, seed, n_rows, size, density):
    X, coef, intercept, threshold = random_label(seed, n_rows, density=density, size=size)
    found = screened(X, coef, intercept, threshold, isa=isa)
    assert (found is None) == (screened_rows(X, coef, intercept, threshold) is None)
    if found is not None:
        check_proof(X, coef, intercept, threshold, found)


@pytest.mark.parametrize("proof", [True, False])
@over_labels
def test_rows_are_those_of_the_twin(isa, seed, n_rows, size, density, proof):
    X, coef, intercept, threshold = random_label(seed, n_rows, density=density, size=size)
    expected = screened_rows(X, coef, intercept, threshold, proof)
    found = screened(X, coef, intercept, threshold, proof=proof, isa=isa)
    assert (found is None) == (expected is None)
    if found is None:
        return
    exact = exact_scores(X, coef, intercept)
    off, room = tolerance(X, coef, exact), expected.room
    # A row may differ only if rounding can decide: of its score, or of its bounds, by one in an integer.
    near = 1e-4 * np.linalg.norm(X.toarray(), axis=1).max() * np.linalg.norm(np.maximum(coef, 0)) + 1e-5 * room
    for i in set(found[0]) ^ set(expected.rows):
        decided_by = [abs(exact[i] - threshold) / off[i]]
        if not proof:
            decided_by += [abs(expected.bounds[i] - room) / near, abs(expected.tighter[i] - room) / near]
        assert min(decided_by) <= 1


@pytest.mark.parametrize("prune", [0.01, 0.5])
@over_labels
def test_the_envelope_bounds_scores_before_and_after_pruning(isa, seed, n_rows, size, density, prune):
    X, coef, intercept, threshold = random_label(seed, n_rows, density=density, size=size)
    prune /= size
    coef[::7] = np.float32(-prune)  # exactly at the limit, where float32 rounds it to one side
    coef[1::7] = np.float32(prune)
    found = screened(X, coef, intercept, threshold, prune=prune, isa=isa)
    if found is None:
        return
    check_proof(X, envelope(coef, prune), intercept, threshold, found)
    rows, _, upper = found
    kept = np.where(np.abs(coef.astype(np.float64)) < prune, 0, coef)
    for weights in (coef, kept):
        exact = exact_scores(X, weights, intercept)
        assert set(np.flatnonzero(exact > threshold)) <= set(rows)
        assert np.all(upper >= exact[rows])


@pytest.mark.parametrize("n_rows", [1, 16, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 17])
def test_all_instruction_sets_find_the_same_in_any_number_of_blocks(n_rows):
    X, coef, intercept, threshold = random_label(3, n_rows, density=0.05)
    first = screened(X, coef, intercept, threshold)
    check_proof(X, coef, intercept, threshold, first)
    for isa in ISAS[1:]:
        for got, expected in zip(screened(X, coef, intercept, threshold, isa=isa), first, strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n_rows", [2**16 - BLOCK, 2**16 - BLOCK + 1, 2**17 - BLOCK + 1])
def test_values_have_as_many_bits_as_rows_leave(n_rows):
    bits = value_bits(n_rows)
    assert bits == {2**16 - BLOCK: 16, 2**16 - BLOCK + 1: 15, 2**17 - BLOCK + 1: 14}[n_rows]
    # One entry per row, values from the largest down to one unit of the index; the last row has the largest value.
    values = np.geomspace(1.0, 0.5**bits, n_rows, dtype=np.float32)[::-1]
    X = sp.csr_array((values, np.arange(n_rows) % 40, np.arange(n_rows + 1)), shape=(n_rows, 40))
    coef = np.linspace(0.3, 1, 40, dtype=np.float32)
    found = screened(X, coef, -1.3, -1.01)
    check_proof(X, coef, -1.3, -1.01, found)
    assert n_rows - 1 in found[0]


@pytest.mark.parametrize("n_rows", [15, 16, 17, 300])
def test_rows_without_values_are_not_found(n_rows):
    X, coef, intercept, threshold = random_label(5, n_rows)
    empty = sp.csr_array(X.shape, dtype=np.float32)
    assert screened(empty, coef, intercept, threshold) is None
    stored_zeros = X.copy()
    stored_zeros.data[:] = 0
    assert screened(stored_zeros, coef, intercept, threshold) is None
    some = X.copy()
    some.data[::2] = 0  # stays stored
    found = screened(some, coef, intercept, threshold)
    check_proof(some, coef, intercept, threshold, found)
    np.testing.assert_array_equal(found[0], screened_rows(some, coef, intercept, threshold).rows)


@pytest.mark.parametrize("size", [1.0, 1e-6, 300.0, 1e6])
def test_rows_of_very_different_norms(size):
    X, coef, intercept, threshold = random_label(6, 500)
    X = sp.csr_array(sp.diags_array(np.where(np.arange(500) % 10 == 0, size, 1.0)) @ X).astype(np.float32)
    found = screened(X, coef, intercept, threshold)
    assert len(found[0])
    check_proof(X, coef, intercept, threshold, found)


@pytest.mark.parametrize("norm", [1e-31, 1e31])
def test_rows_of_extreme_norms_are_not_indexed(norm):
    X, coef, _, _ = random_label(7, 60)
    X = X * np.float32(norm / np.linalg.norm(X.toarray(), axis=1).max())
    assert screened(X, coef, -1.5, -1.01) is None


def long_rows(length, n_rows=400):
    """Short rows, and a row of many entries, all of the largest value."""
    X, _, intercept, threshold = random_label(8, n_rows, n_features=length, density=12 / length)
    X = sp.csr_array(X * np.float32(1 / X.max()))
    return sp.csr_array(sp.vstack([X, np.ones((1, length), dtype=np.float32)])), intercept, threshold


@pytest.mark.parametrize(("length", "overflows"), [(5000, False), (20_000, True), (60_000, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_very_long_rows(length, overflows, sign):
    X, intercept, threshold = long_rows(length)
    assert unbounded_rows(X).tolist() == [False] * 400 + [overflows]
    coef = (sign * np.random.default_rng(9).uniform(0.5, 1.0, length)).astype(np.float32)
    coef[:: length // 50] = 1.0  # the long row is far below the threshold with sign −1, but a candidate
    found = screened(X, coef, intercept, threshold)
    check_proof(X, coef, intercept, threshold, found)
    assert (400 in found[0]) == (sign > 0)
    np.testing.assert_array_equal(found[0], screened_rows(X, coef, intercept, threshold).rows)


@pytest.mark.parametrize("n_rows", [12, 600])
def test_frequent_features_only_and_none(n_rows):
    rng = np.random.default_rng(10)
    dense = sp.csr_array(rng.random((n_rows, 30)).astype(np.float32))
    columns = np.arange(n_rows * 2) % (n_rows * 2 // 8 + 1)  # each in 8 rows or fewer
    rare = sp.csr_array((rng.random(2 * n_rows).astype(np.float32), columns, np.arange(0, 2 * n_rows + 1, 2)))
    for X, all_frequent in ((dense, True), (rare, n_rows < 25)):
        coef = rng.normal(size=X.shape[1]).astype(np.float32) / 10
        coef[:2] = 0.01  # skipped where frequent
        expected = screened_rows(X, coef, -1.4, -1.01)
        assert (expected.skipped.sum() > 0) == all_frequent
        found = screened(X, coef, -1.4, -1.01)
        check_proof(X, coef, -1.4, -1.01, found)
        np.testing.assert_array_equal(found[0], expected.rows)


def test_features_without_entries_do_not_matter():
    X, coef, intercept, threshold = random_label(11, 120)
    found = screened(X, coef, intercept, threshold)
    wider = sp.csr_array((X.data, X.indices, X.indptr), shape=(120, 50))
    more = screened(wider, np.append(coef, np.full(10, 5.0)), intercept, threshold)
    np.testing.assert_array_equal(more[0], found[0])


@pytest.mark.parametrize(
    ("intercept", "threshold"), [(-0.9, -1.01), (-1.01, -1.01), (-1.0109, -1.01), (np.nan, -1.01), (-np.inf, -1.01)]
)
def test_little_room_is_left_to_a_batch_pass(intercept, threshold):
    X, coef, _, _ = random_label(12, 60)
    assert screened(X, coef, intercept, threshold) is None
    assert screened(X, coef, -1.0111, -1.01) is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_left_to_a_batch_pass(bad):
    X, coef, intercept, threshold = random_label(13, 60)
    coef[3] = bad
    assert screened(X, coef, intercept, threshold) is None


def test_negative_weights_only_and_negative_values_are_left_to_a_batch_pass():
    X, coef, intercept, threshold = random_label(14, 60)
    assert screened(X, -np.abs(coef), intercept, threshold) is None
    X.data[5] = -1e-3
    assert screened(X, coef, intercept, threshold) is None


def test_labels_that_add_up_many_entries_are_left_to_a_batch_pass():
    # 100 features of 3 entries each in 300 rows: below a share of 1/25, none is frequent, and an index adds up all
    # entries of the positive weights.
    X = sp.csr_array((np.ones(300, dtype=np.float32), np.arange(300) % 100, np.arange(301)), shape=(300, 100))
    coef = np.zeros(100, dtype=np.float32)
    coef[:25] = 1.0
    assert screened(X, coef, -1.5, -1.01, entries_share=4) is not None
    coef[25] = 1.0
    assert screened(X, coef, -1.5, -1.01, entries_share=4) is None
    assert screened(X, coef, -1.5, -1.01, entries_share=3) is not None
