"""The rank scale of one-vs-all: scores a (s + 1) − 1 with a = ‖w‖^−q, everywhere but in the decisions of `predict`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from widemargin import OneVsAllClassifier, load, path, save, train
from widemargin.cli.predict import predict_in_parts
from widemargin.parallel.executors import PROCESS_MB

Q = 0.4


@pytest.fixture(scope="module", params=["several labels", "classes"])
def problem(request):
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 60), density=0.2, random_state=rng, format="csr", dtype=np.float32)
    scores = X @ rng.normal(size=(60, 9)) * np.linspace(0.3, 3.0, 9)
    if request.param == "classes":
        return X, scores.argmax(axis=1)
    return X, sp.csr_array((scores > 1.0).astype(np.int8))


@pytest.fixture(params=[0.0, 0.02], ids=["dense", "pruned"])
def models(problem, request):
    """The same weights without and with a rank scale, and by NumPy what the scale should be."""
    plain = OneVsAllClassifier(prune=request.param).fit(*problem)
    scaled = clone(plain).set_params(rank_scale=Q).fit(*problem)
    W = plain.coef_.toarray() if sp.issparse(plain.coef_) else plain.coef_
    return plain, scaled, np.linalg.norm(W.astype(np.float64), axis=1) ** -Q


def unscaled_scores(model, X):
    W = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    return X.toarray().astype(np.float64) @ W.T.astype(np.float64) + model.intercept_


def test_the_problem_its_solution_and_its_certificate_do_not_change(models):
    plain, scaled, _ = models
    for name in ("coef_", "intercept_"):
        one, other = getattr(plain, name), getattr(scaled, name)
        assert_array_equal(one.toarray() if sp.issparse(one) else one, other.toarray() if sp.issparse(other) else other)
    assert plain.certificate_ == scaled.certificate_
    assert (plain.rank_scale_, scaled.rank_scale_) == (0.0, Q)
    assert not hasattr(plain, "label_scale_")


def test_scores_of_lists_are_scaled_and_decisions_are_not(models, problem):
    plain, scaled, a = models
    X = problem[0]
    assert_allclose(scaled.label_scale_, a, rtol=1e-12)
    s = unscaled_scores(plain, X)
    r = a * (s + 1) - 1
    top = scaled.predict_topk(X, 3)
    assert_allclose(top.scores, np.take_along_axis(r, top.indices, axis=1), rtol=1e-5, atol=1e-6)
    assert_allclose(top.scores, -np.sort(-r, axis=1)[:, :3], rtol=1e-5, atol=1e-6)
    several = scaled.kind_ == "multilabel"
    assert_allclose(scaled.decision_function(X), r if several else s, rtol=1e-5, atol=1e-6)
    one, other = plain.predict(X), scaled.predict(X)
    assert_array_equal(one.toarray() if several else one, other.toarray() if several else other)
    if not several:
        assert_array_equal(scaled.predict(X), scaled.classes_[scaled.decision_function(X).argmax(axis=1)])
    known = scaled.label_scores(X, problem[1])
    expected = r[np.arange(300), problem[1]] if not several else r[problem[1].nonzero()]
    assert_allclose(known if not several else known.data, expected, rtol=1e-5, atol=1e-6)


def test_contributions_still_add_up_to_the_score_shown(models, problem):
    _, scaled, _ = models
    X = problem[0]
    for row in range(3):
        explained = scaled.explain(X[[row]], k=2)
        top = scaled.predict_topk(X[[row]], 2)
        for label, score in zip(explained.labels, top.scores[0], strict=True):
            parts = label.to_score
            assert_allclose(parts.total, score, rtol=1e-12)
            assert_allclose(sum(parts.contributions) + parts.intercept, score, rtol=1e-9, atol=1e-12)


def test_calibrated_probabilities_follow_the_scaled_scores(models, problem):
    _, scaled, _ = models
    X, y = problem
    model = clone(scaled).fit(X, y).calibrate(X, y)
    proba = model.predict_proba(X)
    if model.kind_ == "multilabel":
        order = np.argsort(model.decision_function(X)[:, 0])
        assert (np.diff(proba[order, 0]) >= 0).all()
    else:
        assert_allclose(proba.sum(axis=1), 1.0)


def test_a_stored_model_and_one_in_shards_have_the_same_scale(problem, tmp_path):
    X, y = problem
    model = OneVsAllClassifier(prune=0.02, rank_scale=Q).fit(X, y)
    save(model, tmp_path / "one")
    again = load(tmp_path / "one")
    assert again.rank_scale_ == Q
    assert_array_equal(again.predict_topk(X, 4).scores, model.predict_topk(X, 4).scores)
    parts = train(OneVsAllClassifier(prune=0.02, rank_scale=Q), (X, y), tmp_path / "two", shard_size=2)
    assert_array_equal(parts.label_scale_, model.label_scale_)


def test_prediction_in_ranges_of_labels_gives_the_same_lists(problem, tmp_path, monkeypatch):
    X, y = problem
    model = OneVsAllClassifier(prune=0.02, rank_scale=Q).fit(X, y)
    save(model, tmp_path / "model")
    monkeypatch.setattr("widemargin.cli.predict.BYTES_PER_WEIGHT", 10 * 2**20)
    limit = PROCESS_MB + 100.0
    parts = [top for top, _ in predict_in_parts(model, tmp_path / "model", X, 4, memory_limit_mb=limit)]
    expected = model.predict_topk(X, 4)
    assert_array_equal(np.vstack([part.indices for part in parts]), expected.indices)
    assert_array_equal(np.vstack([part.scores for part in parts]), expected.scores)


def test_a_sweep_of_thresholds_scales_by_the_pruned_weights(problem):
    X, y = problem
    swept = path(OneVsAllClassifier(rank_scale=Q), X, y, values=[1.0], prune=[0.0, 0.3], keep="all")
    for model in (swept.models[0], swept.models[1]):
        W = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
        assert_allclose(model.label_scale_, np.linalg.norm(W.astype(np.float64), axis=1) ** -Q, rtol=1e-12)


def test_a_label_without_weights_has_scale_one():
    X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 0], [0, 0]])
    model = OneVsAllClassifier(rank_scale=Q, prune=1e-6).fit(X, Y)
    assert model.coef_[[1]].nnz == 0
    assert model.label_scale_[1] == 1.0


def test_values_without_effect_are_refused(problem):
    X, y = problem
    with pytest.raises(ValueError, match="no effect with two classes"):
        OneVsAllClassifier(rank_scale=Q).fit(X, np.arange(300) % 2)
    with pytest.raises(ValueError, match="rank_scale is for loss='squared_hinge'"):
        OneVsAllClassifier(rank_scale=Q, loss="logistic").fit(X, y)
    with pytest.raises(ValueError, match="rank_scale"):
        OneVsAllClassifier(rank_scale=-1.0).fit(X, y)
