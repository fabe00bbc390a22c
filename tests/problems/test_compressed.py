"""Compressed weights: the layout against a plain decoder, and scores that are those of the same weights in full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference import compressed as reference
from widemargin.problems import compressed as module
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.scores import LinearScorer


def random_weights(rng, n_labels, n_features, density, dtype=np.float32):
    """Sparse weights; some features have weights for few labels far apart, some for nearly all."""
    share = np.where(rng.random(n_features) < 0.3, 0.9, density)
    coef = rng.standard_normal((n_labels, n_features)) * (rng.random((n_labels, n_features)) < share)
    coef *= 10.0 ** rng.integers(-3, 3, size=(n_labels, 1))
    return sp.csr_array(coef.astype(dtype))


def compress(coef, bits, threshold=0.0, *, labels_per_block=32768, at_once=2**22):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LABELS_PER_BLOCK", labels_per_block)
        patch.setattr(module, "AT_ONCE", at_once)
        return CompressedWeights.of(coef, bits, threshold)


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_labels, n_features = draw(st.sampled_from([0, 1, 7, 40, 700, 2000])), draw(st.integers(0, 6))
    coef = random_weights(rng, n_labels, n_features, draw(st.sampled_from([0.0, 0.002, 0.02, 0.5])))
    threshold = draw(st.sampled_from([0.0, 0.01, 1.0]))
    blocks = {
        "labels_per_block": draw(st.sampled_from([8, 512, 32768])),
        "at_once": draw(st.sampled_from([1, 50, 2**22])),
    }
    return rng, coef, draw(st.sampled_from([8, 16])), threshold, blocks


@examples(60)
@given(cases())
def test_the_layout_is_the_one_that_is_documented(case):
    _, coef, bits, threshold, blocks = case
    weights = compress(coef, bits, threshold, **blocks)
    weights.check(coef.shape, labels=True)
    wanted = [reference.quantise(row, bits, np.float32(threshold), np.float32) for row in coef.toarray().tolist()]
    assert reference.decode(weights, *coef.shape) == {
        (label, feature): value for label, row in enumerate(wanted) for feature, value in enumerate(row) if value
    }
    np.testing.assert_array_equal(weights.tocsr().toarray(), np.array(wanted).reshape(coef.shape))
    assert weights.nnz == weights.tocsr().nnz
    some = np.arange(coef.shape[0])[::-3]
    np.testing.assert_array_equal(weights.rows(some).toarray(), np.array(wanted).reshape(coef.shape)[some])


@examples(60)
@given(cases())
def test_scores_are_those_of_the_same_weights_in_full(case):
    rng, coef, bits, threshold, blocks = case
    weights, (n_labels, n_features) = compress(coef, bits, threshold, **blocks), coef.shape
    intercept = rng.integers(-2, 2, size=n_labels) / 2.0
    X = sp.random_array((5, n_features), density=0.6, rng=rng, format="csr") if n_features else sp.csr_array((5, 0))
    scale = rng.random(n_labels).astype(np.float64) + 0.5 if rng.random() < 0.5 else None
    ours = LinearScorer(weights, intercept, scale=scale)
    full = (weights if scale is None else weights.scaled(scale)).tocsr()
    theirs = LinearScorer(full, intercept if scale is None else scale * (intercept + 1.0) - 1.0)
    for rows in (X, X.toarray()):
        np.testing.assert_array_equal(ours.scores(rows, n_threads=2), theirs.scores(rows))
        for k in (1, 5, n_labels + 1):
            for found, wanted in zip(ours.top_k(rows, k, n_threads=2), theirs.top_k(rows, k), strict=True):
                np.testing.assert_array_equal(found, wanted)
    if n_labels:
        y = rng.integers(n_labels, size=5)
        np.testing.assert_array_equal(ours.label_scores(X, y), theirs.label_scores(X, y))


def test_a_weight_moves_by_at_most_half_a_scale():
    coef = random_weights(np.random.default_rng(0), 300, 50, 0.2, np.float64)
    for bits in (8, 16):
        weights = CompressedWeights.of(coef, bits)
        error = np.abs(weights.tocsr().toarray() - coef.toarray())
        assert (error <= 0.5000001 * weights.scale[:, None]).all()
        assert weights.scale.max() > 0.0


def test_few_labels_far_apart_take_two_bytes_and_many_take_one():
    rare, frequent = np.zeros(30000), np.ones(30000)
    rare[[3, 9000, 29999]] = 1.0
    weights = CompressedWeights.of(sp.csr_array(np.stack([rare, frequent], axis=1)), bits=8)
    assert np.diff(weights.starts[0].astype(int), axis=0).tolist() == [[3, 6], [30000, 30000]]
    bridged = np.zeros(600)
    bridged[[0, 1, 2, 3, 4, 599]] = 1.0  # 595 labels further: two fillers, which are less than six bytes more
    weights = CompressedWeights.of(sp.csr_array(bridged[:, None]), bits=8)
    assert weights.places.tolist() == [0, 1, 1, 1, 1, 255, 255, 85]
    assert weights.values.tolist() == [127] * 5 + [0, 0, 127]


def test_entries_at_the_same_place_are_added_up():
    coef = sp.csr_array(([1.0, 2.0, 0.5], [1, 1, 0], [0, 3]), shape=(1, 2))
    assert CompressedWeights.of(coef, bits=16).tocsr().toarray().round(4).tolist() == [[0.5, 3.0]]


def damaged(weights, name, change):
    array = getattr(weights, name).copy()
    change(array)
    return replace(weights, **{name: array})


DAMAGES = {
    "a list that shrinks": ("starts", lambda a: a.__setitem__((0, 1, 0), a[0, 2, 0] + 1), "invalid length"),
    "neither narrow nor wide": ("starts", lambda a: a.__setitem__((0, 1, 1), a[0, 1, 1] + 1), "invalid length"),
    "a block that begins elsewhere": ("bases", lambda a: a.__setitem__((1, 0), 1), "do not match"),
    "a scale that is not finite": ("scale", lambda a: a.__setitem__(0, np.nan), "scale"),
    "a label out of range": ("places", lambda a: a.__setitem__(slice(None), 255), "out of range"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_lists_are_refused_and_never_crash(name):
    rng = np.random.default_rng(1)
    coef = random_weights(rng, 24, 5, 0.6)
    part, change, message = DAMAGES[name]
    weights = damaged(compress(coef, 8, labels_per_block=16), part, change)
    with pytest.raises(ValueError, match=message):
        weights.check(coef.shape, labels=True)
    X = rng.random((3, 5))
    try:
        LinearScorer(weights, np.zeros(24)).top_k(X, 3)
    except ValueError:
        assert part in ("starts", "bases")
