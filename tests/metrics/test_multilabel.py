"""Precision, recall and F1 of label sets equal scikit-learn's on the dense equivalents; nothing is made dense."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import f1_score, precision_recall_fscore_support

from hypothesis_examples import examples
from widemargin.metrics import macro_f1, micro_f1, precision_recall_f1


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples", None])
@pytest.mark.parametrize("zero_division", [0.0, 1.0, np.nan])
@examples(25)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_samples=st.integers(1, 6),
    n_labels=st.integers(2, 6),
    share=st.sampled_from([0.0, 0.2, 0.7]),
    weighted=st.booleans(),
)
def test_all_averages_equal_scikit_learn(average, zero_division, seed, n_samples, n_labels, share, weighted):
    rng = np.random.default_rng(seed)
    Y_true = (rng.random((n_samples, n_labels)) < share).astype(int)
    Y_pred = (rng.random((n_samples, n_labels)) < 0.4).astype(int)
    Y_pred[rng.random(n_samples) < 0.3] = 0
    weights = rng.integers(0, 3, size=n_samples).astype(float) + np.eye(n_samples)[0] if weighted else None
    got = precision_recall_f1(
        sparse.csr_array(Y_true),
        sparse.csr_array(Y_pred),
        average=average,
        zero_division=zero_division,
        sample_weight=weights,
    )
    expected = precision_recall_fscore_support(
        Y_true, Y_pred, average=average, zero_division=zero_division, sample_weight=weights
    )
    for ours, theirs in zip(got, expected[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


def test_short_forms_equal_scikit_learn():
    rng = np.random.default_rng(1)
    Y_true, Y_pred = (rng.random((2, 20, 7)) < 0.3).astype(int)
    assert micro_f1(Y_true, Y_pred) == pytest.approx(f1_score(Y_true, Y_pred, average="micro"), rel=1e-14)
    assert macro_f1(Y_true, Y_pred) == pytest.approx(f1_score(Y_true, Y_pred, average="macro"), rel=1e-14)


def test_a_wide_sparse_problem_stays_sparse():
    n_samples, n_labels = 100_000, 1_000_000
    rows = np.arange(n_samples)
    # Row i has label i; the prediction is correct in the even rows and one too high in the odd ones.
    Y_true = sparse.csr_array((np.ones(n_samples), (rows, rows)), shape=(n_samples, n_labels))
    Y_pred = sparse.csr_array((np.ones(n_samples), (rows, rows + rows % 2)), shape=(n_samples, n_labels))
    tracemalloc.start()
    micro = precision_recall_f1(Y_true, Y_pred, average="micro")
    by_row = precision_recall_f1(Y_true, Y_pred, average="samples")
    macro = precision_recall_f1(Y_true, Y_pred, average="macro")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert micro == by_row == (0.5, 0.5, 0.5)
    # Even labels 2, 4, … are predicted twice, once correctly; label 0 once, correctly; odd labels are never predicted.
    half = n_samples // 2
    assert macro.precision == pytest.approx((1 + (half - 1) / 2) / n_labels)
    assert macro.recall == pytest.approx(half / n_labels)
    assert macro.f1 == pytest.approx((1 + (half - 1) * 2 / 3) / n_labels)
    assert peak < 100e6  # a dense indicator with one byte per entry would be 100 GB


@pytest.mark.parametrize(
    ("Y_true", "Y_pred", "options", "message"),
    [
        (np.eye(2), np.eye(3), {}, r"same shape; got shapes \(2, 2\) and \(3, 3\)"),
        (np.eye(2), 2 * np.eye(2), {}, "Y_pred must be an indicator"),
        (3 * np.eye(2), np.eye(2), {}, "Y_true must be an indicator"),
        (np.eye(2), np.eye(2), {"average": "binary"}, "average must be one of"),
        (np.eye(2), np.eye(2), {"sample_weight": [1, 1, 1]}, r"shape \(2,\)"),
    ],
)
def test_bad_input_is_named(Y_true, Y_pred, options, message):
    with pytest.raises(ValueError, match=message):
        precision_recall_f1(Y_true, Y_pred, **options)
