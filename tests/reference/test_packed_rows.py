"""The batch pass in integers against its NumPy twin, and against exact scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.packed_rows import COMPARISON_ALLOWANCE, emitted_rows, pack_rows, pack_weights
from sparse_rows import arrays
from widemargin import _core

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
ISAS = _core.available_instruction_sets()


def random_pass(seed, n_labels, n_rows, size):
    """Sparse rows (some empty, lengths odd and even), weights, intercepts, thresholds near the scores, slack."""
    rng = np.random.default_rng(seed)
    X = sp.csr_array(
        sp.random_array((n_rows, 20), density=0.2, random_state=rng, data_sampler=rng.normal), dtype=np.float32
    )
    X = sp.csr_array(X * np.float32(size))
    coef = np.where(rng.random((n_labels, 20)) < 0.5, rng.normal(size=(n_labels, 20)) / size, 0.0).astype(np.float32)
    intercept = rng.normal(size=n_labels).astype(np.float32)
    threshold = rng.normal(size=n_labels).astype(np.float32)
    return X, coef, intercept, threshold, (0.3 * rng.random(n_rows)).astype(np.float32)


def units(X, coef, intercept):
    """Allowances (n_samples, n_labels) in scores, and the unit of the sums."""
    rows = pack_rows(X.astype(np.float64))
    unit = np.array(
        [1 / (rows.scale * pack_weights(rows, w, b).scale) for w, b in zip(coef, intercept.tolist(), strict=True)]
    )
    return rows.allowance[:, None] * unit, unit


def scanned(isa, X, coef, intercept, threshold, slack):
    """Exact scores (n_samples, n_labels), and for each label the rows and scores that the core emits."""
    indptr, rows, scores = _hooks.scan_rows(*arrays(X), coef, intercept, threshold, slack, isa)
    exact = X.astype(np.float64) @ coef.T.astype(np.float64) + intercept
    return exact, list(zip(np.split(rows, indptr[1:-1]), np.split(scores, indptr[1:-1]), strict=True))


def over_passes(test):
    """Run a test on random passes with every instruction set."""
    passes = given(
        seed=st.integers(0, 2**32 - 1),
        n_labels=st.integers(1, 32),
        n_rows=st.integers(1, 90),
        size=st.sampled_from([1.0, 1e-3, 300.0]),
    )
    return pytest.mark.parametrize("isa", ISAS)(examples(30)(passes(test)))


@over_passes
def test_scan_emits_the_rows_of_its_twin(isa, seed, n_labels, n_rows, size):
    X, coef, intercept, threshold, slack = random_pass(seed, n_labels, n_rows, size)
    exact, emitted = scanned(isa, X, coef, intercept, threshold, slack)
    allowance, unit = units(X, coef, intercept)
    for j, (expected_rows, expected_scores) in enumerate(emitted_rows(X, coef, intercept, threshold, slack)):
        got, got_scores = emitted[j]
        _, here, there = np.intersect1d(got, expected_rows, return_indices=True)
        room = COMPARISON_ALLOWANCE * unit[j]
        np.testing.assert_allclose(got_scores[here], expected_scores[there], rtol=0, atol=room)
        # A row may differ only if the rounding of the comparison can decide it.
        for i in set(got) ^ set(expected_rows):
            assert abs(exact[i, j] + slack[i] + allowance[i, j] - threshold[j]) <= allowance[i, j] + room


@over_passes
def test_no_row_above_its_threshold_is_lost_and_scores_are_as_near_as_promised(isa, seed, n_labels, n_rows, size):
    X, coef, intercept, threshold, slack = random_pass(seed, n_labels, n_rows, size)
    exact, emitted = scanned(isa, X, coef, intercept, threshold, slack)
    allowance, _ = units(X, coef, intercept)
    assert len(emitted) == n_labels
    for j, (got, got_scores) in enumerate(emitted):
        assert set(np.flatnonzero(exact[:, j] + slack > threshold[j])) <= set(got)
        assert np.all(np.abs(got_scores - exact[got, j]) <= allowance[got, j])
        assert np.all(exact[got, j] + slack[got] + 2 * allowance[got, j] >= threshold[j])


def test_all_instruction_sets_emit_the_same():
    X, coef, intercept, threshold, slack = random_pass(5, 32, 90, 1.0)
    first = _hooks.scan_rows(*arrays(X), coef, intercept, threshold, slack, ISAS[0])
    for isa in ISAS[1:]:
        other = _hooks.scan_rows(*arrays(X), coef, intercept, threshold, slack, isa)
        for got, expected in zip(other, first, strict=True):
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_emit_nothing(bad):
    X, coef, intercept, threshold, slack = random_pass(6, 1, 40, 1.0)
    coef[0, 3] = bad
    indptr, _, _ = _hooks.scan_rows(*arrays(X), coef, intercept, threshold, slack, ISAS[0])
    assert indptr.tolist() == [0, 0]
