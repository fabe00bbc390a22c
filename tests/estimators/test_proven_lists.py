"""Lists of compressed models: what is called proven is what the full model lists, and most lists are proven."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from widemargin import OneVsAllClassifier, TopKClassifier, datasets, load, save
from widemargin.estimators import proven
from widemargin.estimators.compression import _errors
from widemargin.estimators.proven import ErrorBounds, proven_lists
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.scores import LinearScorer

X, Y = datasets.make_zipf_multilabel(300, 400, 60, nnz_per_row=15, random_state=1)


def assert_sound(top, full):
    """No proven list differs from that of the full model."""
    same_order = (top.indices == full.indices).all(axis=1)
    same_set = (np.sort(top.indices, axis=1) == np.sort(full.indices, axis=1)).all(axis=1)
    assert (same_set | ~top.proven_set).all()
    assert (same_order | ~top.proven_order).all()
    assert (top.proven_set | ~top.proven_order).all()


@pytest.mark.parametrize(
    "parameters", [{}, {"rank_scale": 0.5}, {"normalize": True}, {"fit_intercept": False}], ids=str
)
@pytest.mark.parametrize("how", [{"bits": 16}, {"bits": 8}, {"max_size_mb": 0.04}], ids=str)
def test_proven_lists_are_those_of_the_full_model(parameters, how, tmp_path):
    model = OneVsAllClassifier(prune=0.01, **parameters).fit(X, Y)
    save(model.compress(**how, keep_exact_bounds=True, rows=(X, Y)), tmp_path)
    small = load(tmp_path)
    for k in (1, 5, 60, 70):
        for rows in (X, X[:40].toarray()):
            top, full = small.predict_topk(rows, k), model.predict_topk(rows, k)
            assert_sound(top, full)
            if k >= 60:
                assert top.proven_set.all()
            elif how == {"bits": 16}:
                assert top.proven_set.mean() > 0.95
                assert top.proven_order.mean() > 0.9
    assert model.predict_topk(X).proven_set is None
    assert model.compress(**how, rows=(X, Y)).predict_topk(X).proven_order is None


def test_two_classes():
    y = (X[:, [0, 1, 2, 3]].sum(axis=1) > 0).astype(int)
    model = OneVsAllClassifier(C=0.1).fit(X, y)
    small = model.compress(bits=8, keep_exact_bounds=True, rows=(X, y))
    for k in (1, 2, 3):
        top = small.predict_topk(X, k)
        assert_sound(top, model.predict_topk(X, k))
        assert top.proven_order.mean() > 0.5
        assert top.proven_set.all() or k == 1


def test_other_families():
    y = np.arange(300) % 7
    model = TopKClassifier(k=2, random_state=0).fit(X, y)
    small = model.compress(bits=16, keep_exact_bounds=True, rows=(X, y))
    top = small.predict_topk(X, 3)
    assert_sound(top, model.predict_topk(X, 3))
    assert top.proven_set.mean() > 0.5


def prove(coef, weights, X, k, intercept=None, scale=None, memory_limit_mb=64.0):
    """Lists of the compressed weights, with proofs, and those of the full weights."""
    intercept = np.zeros(coef.shape[0]) if intercept is None else intercept
    ours, theirs = LinearScorer(weights, intercept, scale=scale), LinearScorer(coef, intercept, scale=scale)
    places = min(k + proven.PLACES_TO_PROVE, coef.shape[0])
    indices, scores = ours.top_k(X, places)
    bounds = ErrorBounds.of(weights, _errors(coef, weights), intercept, scale)
    found = proven_lists(bounds, ours, X, k, indices, scores, memory_limit_mb=memory_limit_mb, n_threads=1)
    return indices[:, :k], theirs.top_k(X, min(k, coef.shape[0]))[0], *found


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_labels, n_features = draw(st.sampled_from([1, 3, 30, 200])), draw(st.sampled_from([1, 5, 40]))
    coef = rng.standard_normal((n_labels, n_features)) * (rng.random((n_labels, n_features)) < 0.4)
    if draw(st.booleans()):  # many ties and near ties
        coef = np.round(coef, draw(st.sampled_from([0, 1, 4])))
    coef = sp.csr_array((coef * 10.0 ** rng.integers(-2, 2, size=(n_labels, 1))).astype(np.float32))
    X = sp.random_array((12, n_features), density=0.5, rng=rng, format="csr", dtype=np.float32)
    X.data -= draw(st.sampled_from([0.0, 0.5]))
    intercept = np.round(rng.standard_normal(n_labels), 1).astype(np.float32)
    scale = rng.random(n_labels) + 0.5 if draw(st.booleans()) else None
    weights = CompressedWeights.of(coef, draw(st.sampled_from([8, 16])), draw(st.sampled_from([0.0, 0.05, 0.5])))
    return coef, weights, X, draw(st.sampled_from([1, 2, 5, 300])), intercept, scale


@examples(150)
@given(cases())
def test_no_proof_is_wrong(case):
    coef, weights, X, k, intercept, scale = case
    for rows in (X, X.toarray()):
        ours, theirs, as_set, in_order = prove(coef, weights, rows, k, intercept, scale)
        assert ((np.sort(ours, axis=1) == np.sort(theirs, axis=1)).all(axis=1) | ~as_set).all()
        assert ((ours == theirs).all(axis=1) | ~in_order).all()


@examples(60)
@given(cases())
def test_errors_are_within_their_bounds(case):
    """Against scores in extended precision, entry by entry."""
    coef, weights, X, _, intercept, scale = case
    bounds = ErrorBounds.of(weights, _errors(coef, weights), intercept, scale)
    norms, sums, m = proven._row_facts(X)
    ours, theirs = (LinearScorer(w, intercept, scale=scale).scores(X) for w in (weights, coef))
    for in_lists in (sums, proven._in_lists(weights, X)):
        assert (np.abs(ours - theirs) <= bounds.errors(in_lists, norms, sums, m=m)).all()
    exact = np.longdouble(X.toarray()) @ np.longdouble(weights.tocsr().toarray()).T
    full = np.longdouble(X.toarray()) @ np.longdouble(coef.toarray()).T
    a = np.ones(coef.shape[0]) if scale is None else scale
    assert (a * np.abs(exact - full) <= bounds.errors(proven._in_lists(weights, X), norms, sums, m=m)).all()


def test_equal_scores_prove_nothing():
    coef = sp.csr_array(np.array([[1.0, 0.5], [1.0, 0.25], [0.5, 0.125]], dtype=np.float32))
    weights = CompressedWeights.of(coef, 16)
    X = sp.csr_array(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], dtype=np.float32))
    _, _, as_set, in_order = prove(coef, weights, X, 1)
    assert as_set.tolist() == [False, True, False]
    _, _, as_set, in_order = prove(coef, weights, X, 2)
    assert as_set.tolist() == [True, True, False]
    assert in_order.tolist() == [False, True, False]


def test_values_outside_the_lists_of_a_label_do_not_count():
    """Rows with a large value of a feature that no compared label has: only sums over the lists prove them."""
    rng = np.random.default_rng(0)
    coef = np.zeros((40, 30), dtype=np.float32)
    coef[:, :10] = rng.standard_normal((40, 10)).round(1)
    coef[39, 10:] = 1e-3
    rows = np.zeros((20, 30), dtype=np.float32)
    rows[:, :10] = rng.random((20, 10))
    rows[:, 10:] = 400.0
    coef, rows = sp.csr_array(coef), sp.csr_array(rows)
    weights = CompressedWeights.of(coef, 16)
    ours, theirs, as_set, _ = prove(coef, weights, rows, 3)
    assert as_set.mean() > 0.5
    np.testing.assert_array_equal(np.sort(ours[as_set], axis=1), np.sort(theirs[as_set], axis=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proven, "_blocks", lambda *_: iter([]))
        assert prove(coef, weights, rows, 3)[2].mean() < as_set.mean()


def test_proofs_do_not_depend_on_blocks():
    rng = np.random.default_rng(2)
    coef = sp.random_array((500, 60), density=0.3, rng=rng, format="csr", dtype=np.float32)
    rows = sp.random_array((80, 60), density=0.3, rng=rng, format="csr", dtype=np.float32)
    weights = CompressedWeights.of(coef, 8)
    few, many = (prove(coef, weights, rows, 5, memory_limit_mb=limit) for limit in (0.05, 64.0))
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)
