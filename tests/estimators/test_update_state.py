"""What else an update keeps, drops and reports: calibration, decision rule, index, parameters, dry runs, a long row."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from reference.one_vs_all_optimum import label_objective, label_optimum
from widemargin import DecisionRule, OneVsAllClassifier, TopKClassifier, load, save, train, update
from widemargin.problems.scores import FeatureIndex

N = 80
rng = np.random.default_rng(4)
X = np.abs(rng.normal(size=(N + 40, 8))).astype(np.float32)
Y = (X[:, :4] + 0.3 * rng.normal(size=(N + 40, 4)) > 1.2).astype(np.int8)
OLD, HELD_OUT = slice(N), slice(N, N + 40)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def harmless(model, n=2):
    """Rows far outside the margins of all labels, with the labels that the model gives them."""
    scores = 40 * X @ np.asarray(sp.csr_array(model.coef_).toarray()).T + model.intercept_
    far = np.flatnonzero((np.abs(scores) > 1.5).all(axis=1))[:n]
    assert len(far) == n
    return 40 * X[far], (scores[far] > 0).astype(np.int8)


@pytest.fixture
def fitted():
    options = {"decision": "threshold", "per_label_thresholds": True, "precision_target": 0.6, "prune": 0.001}
    model = OneVsAllClassifier(**options, min_labels=1).fit(X[OLD], Y[OLD])
    model.fit_decision(X[HELD_OUT], Y[HELD_OUT])
    model.calibrate(X[HELD_OUT], Y[HELD_OUT])
    assert model.decision_.label_thresholds is not None
    assert model.decision_.acceptance is not None
    return model


def test_calibration_and_decision_rule_stay_if_all_weights_do(fitted, tmp_path):
    added = harmless(fitted)
    new = update(fitted, *added, rows=(X[OLD], Y[OLD]), out=tmp_path / "model")
    assert new.update_.counts["untouched"] == 4
    assert new.update_.stale == ()
    found = load(tmp_path / "model")
    for model in (new, found):
        np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
        np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
        assert (model.accept(X) != fitted.accept(X)).nnz == 0
        assert model.decision_.acceptance == fitted.decision_.acceptance


def test_what_was_fitted_to_single_labels_is_dropped_if_one_is_solved_again(fitted, tmp_path):
    rule = fitted.decision_
    new = update(fitted, rows=(X[OLD], Y[OLD]), remove=range(30), out=tmp_path / "model")
    assert new.update_.counts["solved"] > 0
    assert new.update_.stale == ("calibration", "label thresholds", "acceptance")
    found = load(tmp_path / "model")
    assert found.updates_[0]["stale"] == ["calibration", "label thresholds", "acceptance"]
    for model in (new, found):
        assert not hasattr(model, "calibration_")
        kept = model.decision_
        assert (kept.label_thresholds, kept.acceptance) == (None, None)
        assert (kept.threshold, kept.q, kept.min_labels) == (rule.threshold, rule.q, rule.min_labels)
        with pytest.raises(AttributeError, match="requires a calibrated model"):
            model.predict_proba(X)
    assert hasattr(fitted, "calibration_")
    assert fitted.decision_ is rule


def test_a_rule_with_one_threshold_is_kept_for_new_labels(tmp_path):
    sets = [set(np.flatnonzero(row).tolist()) for row in Y]
    model = OneVsAllClassifier(decision="threshold").fit(X[OLD], sets[OLD])
    model._set_decision(DecisionRule("micro-f1", q=0.0, threshold=-0.2, value=0.5, n_rows=40))
    new = update(model, X[:1] + 1, [{9}], rows=(X[OLD], sets[OLD]), out=tmp_path / "model")
    assert new.update_.stale == ()
    assert load(tmp_path / "model").decision_.threshold == -0.2
    assert load(tmp_path / "model").predict(X).shape == (N + 40, 5)


@pytest.mark.parametrize("remove", [None, range(30)], ids=["kept", "solved"])
def test_a_stored_index_is_stored_again(tmp_path, remove, monkeypatch):
    model = OneVsAllClassifier(prune=0.01, rank_scale=0.3).fit(sp.csr_array(X[OLD]), Y[OLD])
    for name in ("with", "without"):
        save(model, tmp_path / name, index=name == "with")
        update(tmp_path / name, X[:1], Y[:1], rows=(X[OLD], Y[OLD]), remove=remove)
    assert not any(name.startswith("index") for name in content(tmp_path / "without"))
    found = load(tmp_path / "with")
    expected = load(tmp_path / "without").predict_topk(X, 3)
    monkeypatch.setattr(FeatureIndex, "of", None)  # calling it would be an error
    np.testing.assert_array_equal(found.predict_topk(X, 3).scores, expected.scores)


def test_parameters_and_chosen_values_stay(tmp_path):
    model = OneVsAllClassifier(C="auto", rank_scale="auto", warm_start=True, n_jobs=1).fit(X[OLD], Y[OLD])
    new = update(model, rows=(X[OLD], Y[OLD]), remove=range(20), out=tmp_path / "model")
    assert new.get_params() == model.get_params()
    for updated in (new, load(tmp_path / "model")):
        assert (updated.C, updated.rank_scale, updated.C_) == ("auto", "auto", model.C_)
        assert updated.rank_scale_ == model.rank_scale_
        assert updated.tuning_ == model.tuning_


def test_names_of_features_stay(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(8)])
    model = OneVsAllClassifier().fit(frame[:N], Y[OLD])
    new = update(model, frame[N : N + 3], Y[N : N + 3], rows=(frame[:N], Y[OLD]), out=tmp_path / "model")
    assert new.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(frame), new.decision_function(frame))
    with pytest.raises(ValueError, match="feature names"):
        update(model, frame[frame.columns[::-1]][:3], Y[:3], rows=(frame[:N], Y[OLD]))


# Dry runs


CHANGES = {
    "added": {"X": X[HELD_OUT][:3], "y": Y[HELD_OUT][:3]},
    "removed": {"remove": [1, 2, 30]},
    "both": {"X": 9 * X[HELD_OUT][:3], "y": Y[HELD_OUT][:3], "remove": [1, 2, 30]},
    "nothing": {},
}


@pytest.mark.parametrize("keep_duals", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_dry_run_writes_nothing_and_tells_what_would_happen(tmp_path, name, keep_duals):
    folder = tmp_path / "model"
    estimator = OneVsAllClassifier(gap_tol=0.02)
    model = train(estimator, (X[OLD], Y[OLD]), folder, keep_rows=True, keep_duals=keep_duals)
    before, state = content(folder), dict(vars(model))
    shown = update(folder, **CHANGES[name], dry_run=True)
    in_memory = update(model, **CHANGES[name], dry_run=True)
    assert content(folder) == before
    assert os.listdir(tmp_path) == ["model"]
    assert vars(model) == state
    np.testing.assert_array_equal(shown.coef_, model.coef_)
    np.testing.assert_array_equal(shown.label_bounds_, model.label_bounds_)
    assert shown.n_samples_fit_ == N
    done = update(folder, **CHANGES[name])
    assert content(folder) != before
    for told in (shown, in_memory):
        assert told.update_.outcome.tolist() == done.update_.outcome.tolist()
        assert (told.update_.added, told.update_.removed) == (done.update_.added, done.update_.removed)
    if name == "nothing":
        assert done.update_.counts["untouched"] == 4


def test_a_dry_run_counts_new_labels(tmp_path):
    sets = [{f"c{number}" for number in np.flatnonzero(row)} for row in Y]
    train(OneVsAllClassifier(), (X[OLD], sets[OLD]), tmp_path / "model", keep_rows=True)
    shown = update(tmp_path / "model", X[:2], [{"new"}, {"newer", "c0"}], dry_run=True)
    assert shown.update_.counts["new"] == 2
    assert shown.classes_.tolist() == ["c0", "c1", "c2", "c3"]
    shown.predict(X)


def test_a_dry_run_of_a_joint_model_changes_nothing(tmp_path):
    classes = Y[:, 0] + 2 * Y[:, 1]
    train(TopKClassifier(), (X[OLD], classes[OLD]), tmp_path / "model", keep_rows=True)
    before = content(tmp_path / "model")
    shown = update(tmp_path / "model", remove=[3], dry_run=True)
    assert content(tmp_path / "model") == before
    assert shown.update_.outcome.tolist() == ["solved"]
    assert shown.n_samples_fit_ == N


# Many updates


@pytest.mark.parametrize("keep_duals", [False, True])
@pytest.mark.parametrize("n_updates", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_many_small_updates_end_near_a_refit(tmp_path, n_updates, keep_duals):
    """The bounds of updates and of a refit enclose the same optimum, however often the bounds were carried on."""
    folder, own = tmp_path / "model", np.random.default_rng(6)
    estimator = OneVsAllClassifier(C=0.3, gap_tol=0.01, prune=0.001)
    train(estimator, (sp.csr_array(X[OLD]), Y[OLD]), folder, keep_rows=True, keep_duals=keep_duals)
    rows, labels, numbers, last = X[OLD], Y[OLD], np.arange(N), N
    outcomes = set()
    for _ in range(n_updates):
        x = np.abs(own.normal(size=(2, 8))).astype(np.float32)
        y = (x[:, :4] + 0.3 * own.normal(size=(2, 4)) > 1.2).astype(np.int8)
        gone = own.choice(len(rows), 2, replace=False)
        new = update(folder, sp.csr_array(x), y, remove=numbers[gone])
        outcomes |= set(new.update_.outcome.tolist())
        rows, labels = np.vstack([np.delete(rows, gone, axis=0), x]), np.vstack([np.delete(labels, gone, axis=0), y])
        numbers, last = np.append(np.delete(numbers, gone), [last, last + 1]), last + 2
    found = load(folder)
    assert (found.version_, found.rows_.n_rows, len(found.rows_.segments)) == (n_updates + 1, N, n_updates + 1)
    assert "solved" in outcomes
    assert not keep_duals or "kept" in outcomes
    refitted = OneVsAllClassifier(**estimator.get_params()).fit(sp.csr_array(rows), labels)
    for label in range(4):
        how = rows.astype(np.float64), labels[:, label] > 0, np.full(N, 0.3), "squared_hinge", "free"
        optimum = label_optimum(*how)
        for model in (found, refitted):
            primal, dual, _, before, _ = model.label_bounds_[label]
            w = model.coef_[[label]].toarray()[0].astype(np.float64)
            assert primal == pytest.approx(label_objective(*how, w, float(model.intercept_[label])), rel=1e-9)
            assert dual * (1 - 1e-7) <= optimum <= primal * (1 + 1e-7)
            assert before - dual <= 0.01 * before
        assert found.label_bounds_[label, 0] == pytest.approx(refitted.label_bounds_[label, 0], rel=0.012)
