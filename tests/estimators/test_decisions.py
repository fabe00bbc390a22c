"""Decisions of multi-label models: rules against brute force and scikit-learn, and the validity of what is accepted."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, precision_recall_curve

from widemargin import DecisionRule, OneVsAllClassifier, load, save, train
from widemargin.estimators.decisions import EXPONENTS, PSEUDO_POSITIVES, HeldOut, fit_acceptance, fit_rule
from widemargin.exceptions import ModelFormatError

AVERAGES = {"micro-f1": "micro", "macro-f1": "macro", "f1-per-row": "samples"}


@pytest.fixture(scope="module")
def rows():
    """Training and held-out rows with 8 labels, some rare."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12)).astype(np.float32)
    scores = X @ rng.normal(size=(12, 8)) + 2.0 * rng.normal(size=(300, 8))
    Y = sp.csr_array((scores > np.linspace(1.0, 6.0, 8)).astype(np.int8))
    return (X[:240], Y[:240]), (X[240:], Y[240:])


@pytest.fixture(params=[0.0, 0.3], ids=["plain", "rank scale"])
def model(rows, request):
    return OneVsAllClassifier(C=0.02, rank_scale=request.param, decision="threshold").fit(*rows[0])


def scores_of(model, X):
    """Unscaled scores by NumPy."""
    return X.astype(np.float64) @ np.asarray(model.coef_, dtype=np.float64).T + model.intercept_


def brute_force(model, X, t, q, least=0, most=None):
    """The labels of a rule, row by row; t is a number or one per label."""
    s, norms = scores_of(model, X), np.linalg.norm(model.coef_.astype(np.float64), axis=1)
    ranking = (s + 1) * norms**-model.rank_scale
    chosen = np.zeros(s.shape, dtype=int)
    for row in range(len(s)):
        order = np.argsort(-ranking[row], kind="stable")
        allowed = order[:most]
        chosen[row, allowed] = ((s[row] + 1) * norms**-q - 1 > t)[allowed]
        if chosen[row].sum() < least:
            chosen[row, order[:least]] = 1
    return chosen


def sklearn_f1(objective, truth, chosen):
    average = AVERAGES[objective]
    if average == "macro":  # labels that occur
        kept = truth.sum(axis=0) > 0
        truth, chosen = truth[:, kept], chosen[:, kept]
    return f1_score(truth, chosen, average=average, zero_division=1.0)


@pytest.mark.parametrize("objective", list(AVERAGES))
@pytest.mark.parametrize("limits", [(0, None), (1, None), (2, 3), (0, 2), (8, None)], ids=str)
def test_no_threshold_and_exponent_beat_the_rule_and_predict_applies_it(model, rows, objective, limits):
    (X, Y), (least, most) = rows[1], limits
    model = clone(model).set_params(objective=objective, min_labels=least, max_labels=most).fit(*rows[0])
    rule = model.fit_decision(X, Y).decision_
    truth = Y.toarray()
    predicted = model.predict(X).toarray()
    assert_array_equal(predicted, brute_force(model, X, rule.threshold, rule.q, least, most))
    assert_allclose(rule.value, sklearn_f1(objective, truth, predicted), rtol=1e-12)
    s, norms = scores_of(model, X), np.linalg.norm(model.coef_.astype(np.float64), axis=1)
    best = 0.0
    for q in EXPONENTS[::3]:
        scaled = (s + 1) * norms**-q - 1
        for t in np.unique(scaled[truth > 0])[::2]:
            best = max(best, sklearn_f1(objective, truth, brute_force(model, X, t - 1e-9, q, least, most)))
    assert rule.value >= best - 1e-12


def test_one_label_has_the_threshold_of_scikit_learn_precision_recall_curve(rows):
    (X, Y), (X_new, Y_new) = ((X, Y[:, [1]]) for X, Y in rows)
    model = OneVsAllClassifier(C=0.02, decision="threshold").fit(X, Y).fit_decision(X_new, Y_new)
    precision, recall, thresholds = precision_recall_curve(Y_new.toarray().ravel(), scores_of(model, X_new).ravel())
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    assert_allclose(model.decision_.value, f1.max(), rtol=1e-12)
    expected = scores_of(model, X_new) >= thresholds[f1[:-1].argmax()]
    assert_array_equal(model.predict(X_new).toarray(), expected)


def test_label_thresholds_are_shrunk_to_the_common_one(rows, model):
    X, Y = rows[1]
    plain = model.fit_decision(X, Y).decision_
    rule = clone(model).set_params(per_label_thresholds=True).fit(*rows[0]).fit_decision(X, Y).decision_
    assert (rule.q, rule.threshold) == (plain.q, plain.threshold)
    norms = np.linalg.norm(model.coef_.astype(np.float64), axis=1)
    scaled, truth = (scores_of(model, X) + 1) * norms**-rule.q - 1, Y.toarray()
    for label, n in enumerate(truth.sum(axis=0)):
        own = rule.threshold + (rule.label_thresholds[label] - rule.threshold) * (n + PSEUDO_POSITIVES) / max(n, 1)
        reached = f1_score(truth[:, label], scaled[:, label] > own, zero_division=1.0)
        tried = [f1_score(truth[:, label], scaled[:, label] > t - 1e-9) for t in scaled[truth[:, label] > 0, label]]
        assert reached >= max(tried, default=0.0) - 1e-12
    model = clone(model).set_params(per_label_thresholds=True).fit(*rows[0])
    model._set_decision(rule)
    predicted = model.predict(X).toarray()
    assert_array_equal(predicted, brute_force(model, X, rule.label_thresholds, rule.q))
    assert_allclose(rule.value, f1_score(truth, predicted, average="micro"), rtol=1e-12)


def test_without_a_rule_the_error_says_how_to_get_one_and_a_new_fit_deletes_it(rows, model):
    X, Y = rows[1]
    for call in (model.predict, model.accept):
        with pytest.raises(NotFittedError, match=r"fit_decision.*tune_decision=True"):
            call(X)
    model.fit_decision(X, Y)
    with pytest.raises(ValueError, match="has no precision target; set precision_target"):
        model.accept(X)
    assert not hasattr(model.fit(*rows[0]), "decision_")


def test_the_sign_is_unchanged_by_a_rule(rows, model):
    X, Y = rows[1]
    plain = clone(model).set_params(decision="sign").fit(*rows[0])
    before = plain.predict(X)
    assert_array_equal(before.toarray(), scores_of(plain, X) > 0)
    plain.fit_decision(X, Y)
    assert (plain.predict(X) != before).nnz == 0


def test_wrong_parameters_and_rows_are_refused(rows):
    (X, Y), (X_new, Y_new) = rows
    for wrong, message in [
        ({"min_labels": 3, "max_labels": 2}, "min_labels=3 is larger than max_labels=2"),
        ({"objective": "f1"}, "objective"),
        ({"precision_target": 1.0}, "precision_target"),
        ({"decision": "argmax"}, "decision"),
        ({"min_labels": -1}, "min_labels"),
        ({"max_labels": 0}, "max_labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            OneVsAllClassifier(**wrong).fit(X, Y)
    with pytest.raises(ValueError, match="decision='threshold' is for rows with several labels"):
        OneVsAllClassifier(decision="threshold").fit(X, np.arange(240) % 3)
    with pytest.raises(ValueError, match="fit_decision is for rows with several labels"):
        OneVsAllClassifier().fit(X, np.arange(240) % 3).fit_decision(X, np.arange(240) % 3)
    model = OneVsAllClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="no row of y has a label"):
        model.fit_decision(X_new, sp.csr_array(Y_new.shape, dtype=np.int8))
    with pytest.raises(ValueError, match="delta must be a number between 0 and 1"):
        model.fit_decision(X_new, Y_new, delta=0)
    other = OneVsAllClassifier(per_label_thresholds=True).fit(X, Y[:, :5]).fit_decision(X_new, Y_new[:, :5])
    with pytest.raises(ValueError, match="a model with other labels"):
        model._set_decision(other.decision_)


def test_logistic_scores_are_not_rescaled(rows):
    model = OneVsAllClassifier(loss="logistic", decision="threshold").fit(*rows[0]).fit_decision(*rows[1])
    assert model.decision_.q == 0.0


@pytest.mark.parametrize("own", [False, True], ids=["one threshold", "thresholds per label"])
def test_a_stored_model_decides_the_same(rows, own, tmp_path):
    (X, Y), (X_new, Y_new) = rows
    parameters = {"decision": "threshold", "prune": 0.001, "per_label_thresholds": own, "precision_target": 0.3}
    model = OneVsAllClassifier(C=0.02, min_labels=1, max_labels=4, **parameters).fit(X, Y).fit_decision(X_new, Y_new)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.decision_.to_dict() == model.decision_.to_dict()
    assert (again.predict(X_new) != model.predict(X_new)).nnz == 0
    assert (again.accept(X_new) != model.accept(X_new)).nnz == 0
    parts = train(clone(model), (X, Y), tmp_path / "parts", shard_size=2)
    parts._set_decision(model.decision_)
    assert (parts.predict(X_new) != model.predict(X_new)).nnz == 0


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": "x"}, {"threshold": True}, {"q": -1.0}, {"q": 1e9}, {"value": 2.0}, {"n_rows": 0},
        {"objective": "f2"}, {"objective": []}, {"min_labels": -1}, {"min_labels": 2.5}, {"max_labels": 0},
        {"min_labels": 5, "max_labels": 4}, {"surprise": 1}, {"acceptance": []}, {"acceptance": {"q": 0.0}}, None, 3,
    ],
    ids=str,
)  # fmt: skip
def test_a_hostile_rule_is_a_damaged_model(rows, change, tmp_path):
    model = OneVsAllClassifier(decision="threshold", precision_target=0.3).fit(*rows[0]).fit_decision(*rows[1])
    save(model, tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    stored = json.loads(file.read_text())
    rule = stored["attributes"]["decision"]
    stored["attributes"]["decision"] = {**rule, **change} if isinstance(change, dict) else change
    file.write_text(json.dumps(stored))
    with pytest.raises(ModelFormatError, match="damaged"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "array",
    [np.zeros(3), np.zeros((8, 1)), np.zeros(8, dtype=np.int64), np.full(8, np.nan), sp.csr_array((8, 8))],
    ids=["too short", "matrix", "integers", "NaN", "sparse"],
)
def test_hostile_label_thresholds_are_a_damaged_model(rows, array):
    model = OneVsAllClassifier(per_label_thresholds=True).fit(*rows[0]).fit_decision(*rows[1])
    state = model.to_state()
    arrays = {**state.arrays, "decision_thresholds": array}
    with pytest.raises(ModelFormatError, match="damaged"):
        OneVsAllClassifier.from_state(replace(state, arrays=arrays))


@pytest.mark.parametrize("change", [{"delta": 0.0}, {"limit": 0}, {"threshold": None}, {"precision": "high"}], ids=str)
def test_a_hostile_acceptance(change):
    stored = DecisionRule("micro-f1", 0.0, 0.0, 0.5, 10).to_dict()
    good = {"precision_target": 0.9, "delta": 0.05, "q": 0.0, "threshold": 0.1, "limit": 3}
    good |= {"labels_per_row": 0.4, "precision": 0.93}
    stored["acceptance"] = good | change
    if change == {"threshold": None}:
        assert "nothing can be accepted at precision 0.9" in DecisionRule.from_dict(stored).describe()
        return
    with pytest.raises(ValueError, match=f"{next(iter(change))} of a decision rule"):
        DecisionRule.from_dict(stored)


def planted(rng, n_rows, n_labels=6, effect=0.3):
    """Lists of labels whose chance of being right is known, given the score; labels of a row depend on each other.

    A row's labels share a number that shifts all their chances, so pairs of a row are strongly correlated.
    """
    scores = rng.normal(size=(n_rows, n_labels))
    shared = rng.normal(size=(n_rows, 1))
    chance = 1 / (1 + np.exp(-(2.0 * scores + 1.0 + effect * 3.0 * shared)))
    hits = rng.random((n_rows, n_labels)) < chance
    order = np.argsort(-scores, axis=1)
    take = np.take_along_axis
    return HeldOut.of(order, take(scores, order, axis=1) + 1.0, sp.csr_array(hits.astype(np.int8)))


def test_accepted_pairs_reach_the_target_in_at_least_95_of_100_draws():
    target, inverse_norms = 0.9, np.ones(6)
    many = planted(np.random.default_rng(1), 200_000)
    values = many.values(inverse_norms)
    missed = nothing = 0
    for draw in range(200):
        accepted = fit_acceptance(planted(np.random.default_rng([2, draw]), 1000), inverse_norms, target, (0.0,))
        if accepted.threshold is None:
            nothing += 1
            continue
        above = values[:, : accepted.limit] > accepted.threshold
        missed += many.hits[:, : accepted.limit][above].mean() < target
    assert missed <= 10  # δ = 0.05 of 200
    assert nothing <= 10  # the test has power here: half of the pairs are above the target


def test_nothing_is_accepted_where_no_threshold_reaches_the_target():
    rng, accepted = np.random.default_rng(3), 0
    for _ in range(200):
        lists = planted(rng, 400)
        hits = rng.random(lists.hits.shape) < 0.9  # independent of the score, exactly at the target
        truth = sp.csr_array(np.take_along_axis(hits, np.argsort(lists.indices, axis=1), axis=1).astype(np.int8))
        null = HeldOut.of(lists.indices, lists.margins, truth)
        accepted += fit_acceptance(null, np.ones(6), 0.9, (0.0,)).threshold is not None
    assert accepted <= 17  # 10 expected at most; 17 is exceeded with a probability of 0.01


def test_accept_returns_the_pairs_that_the_rule_accepted(rows):
    (X, Y), (X_new, Y_new) = rows
    for target in (0.3, 0.999):
        model = OneVsAllClassifier(C=0.02, precision_target=target).fit(X, Y).fit_decision(X_new, Y_new)
        found, accepted = model.decision_.acceptance, model.accept(X_new)
        assert accepted.shape == Y_new.shape
        if target > 0.9:
            assert found.threshold is None
            assert accepted.nnz == 0
            assert "nothing can be accepted" in model.decision_.describe()
            continue
        expected = brute_force(model, X_new, found.threshold, found.q, most=found.limit)
        assert_array_equal(accepted.toarray(), expected)
        tested = np.arange(60) % 4 > 0
        assert_allclose(found.precision, Y_new.toarray()[tested][expected[tested] > 0].mean())
        assert_allclose(found.labels_per_row, expected[tested].sum(axis=1).mean())


def test_short_lists_lose_only_labels_past_their_end(rows, model):
    X, Y = rows[1]
    lists = model._held_out(X, Y)
    rule = fit_rule(lists.first(3), model.coef_)
    assert_allclose(rule.value, fit_rule(lists, model.coef_, max_labels=3).value, rtol=1e-12)
