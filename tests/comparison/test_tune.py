"""Values chosen by cross-validation: the same quality and choice as scikit-learn's tools on the same folds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TextPipeline,
    TopKClassifier,
    Tuning,
    load,
    save,
    tune,
)
from widemargin.comparison.tune import grid_for
from widemargin.exceptions import ModelFormatError

TREE = Taxonomy.from_edges([("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("a", "root"), ("b", "root")])
NAMES = np.array(["a1", "a2", "b1", "b2"])
FOLDS = StratifiedKFold(3, shuffle=True, random_state=5)
UNMEASURED = {"values": {"C": 1.0}, "mean": None, "low": None, "high": None}


@pytest.fixture(scope="module")
def noisy():
    """Four overlapping classes, so C matters."""
    rng = np.random.default_rng(0)
    numbers = np.arange(160) % 4
    return np.eye(4, 12)[numbers] + 0.6 * rng.normal(size=(160, 12)), NAMES[numbers]


def means(found):
    return [quality.mean for quality in found.quality]


def test_quality_is_that_of_scikit_learns_own_solver_and_cross_validation(noisy):
    """The same problem in LIBLINEAR: squared hinge, intercept in the penalty, one-vs-rest."""
    Cs = [0.01, 0.1, 1.0]
    ours = OneVsAllClassifier(regularize_intercept=True, tol=1e-8, gap_tol=1e-10)
    found = tune(ours, *noisy, Cs=Cs, cv=FOLDS, refit=False)
    for C, quality in zip(Cs, found.quality, strict=True):
        rival = OneVsRestClassifier(LinearSVC(C=C, tol=1e-10, max_iter=100_000))
        scores = cross_val_score(rival, *noisy, cv=FOLDS)
        sizes = [len(test) for _, test in FOLDS.split(*noisy)]
        assert quality.mean == pytest.approx(np.average(scores, weights=sizes))


@pytest.mark.slow
def test_the_choice_is_that_of_grid_search(noisy):
    X, y = noisy[0][:156], noisy[1][:156]  # folds of equal size: both means are the same
    model = TopKClassifier(random_state=0, tol=1e-6)
    found = tune(model, X, y, Cs=[0.01, 0.1, 1.0], ks=[1, 3], cv=FOLDS)
    search = GridSearchCV(model, {"C": [0.01, 0.1, 1.0], "k": [1, 3]}, cv=FOLDS).fit(X, y)
    assert found.tried == tuple(search.cv_results_["params"])
    np.testing.assert_allclose(means(found), search.cv_results_["mean_test_score"])
    assert found.best == search.best_params_
    assert found.model.get_params() == clone(model).set_params(**search.best_params_).get_params()
    np.testing.assert_array_equal(found.model.predict(X), search.predict(X))


def test_intervals_are_those_of_a_mean_over_all_held_out_rows(noisy):
    found = tune(OneVsAllClassifier(), *noisy, Cs=[1.0, 4.0], cv=4, refit=False)
    for quality in found.quality:
        p = quality.mean
        half = 1.96 * np.sqrt(p * (1 - p) / 159)
        assert quality.high - p == pytest.approx(half, rel=1e-4)
        assert p - quality.low == pytest.approx(half, rel=1e-4)
    assert (found.n_rows, found.n_folds) == (160, 4)


def test_several_labels_a_row_are_measured_by_precision():
    rng = np.random.default_rng(1)
    Y = (rng.random((90, 5)) < 0.35).astype(int)
    X = Y @ rng.normal(size=(5, 8)) + 0.5 * rng.normal(size=(90, 8))
    folds = KFold(3)
    found = tune(OneVsAllClassifier(), X, Y, Cs=[0.1, 1.0], cv=folds, metric="precision@2")
    for C, quality in zip([0.1, 1.0], found.quality, strict=True):
        hits = []
        for train, test in folds.split(X):
            scores = OneVsAllClassifier(C=C).fit(X[train], Y[train]).decision_function(X[test])
            best = np.argsort(-scores, axis=1)[:, :2]
            hits += np.take_along_axis(Y[test], best, axis=1).mean(axis=1).tolist()
        assert quality.mean == pytest.approx(np.mean(hits))
    as_lists = [np.flatnonzero(row).tolist() for row in Y]
    assert means(tune(OneVsAllClassifier(), X, as_lists, Cs=[0.1, 1.0], cv=folds, metric="precision@2")) == means(found)


class Spy(TfidfVectorizer):
    """A vectoriser that records which texts it was fitted on."""

    seen: ClassVar[list[list[str]]] = []

    def fit_transform(self, raw_documents, y=None):
        Spy.seen.append(list(raw_documents))
        return super().fit_transform(raw_documents, y)


def test_a_vectoriser_learns_from_the_training_rows_of_a_fold_alone():
    rng = np.random.default_rng(2)
    words = {"food": ["bread", "cake", "cream"], "cars": ["engine", "tyre", "cream"]}
    y = np.array(["food", "cars"])[np.arange(60) % 2]
    texts = [" ".join(rng.choice([*words[label], "and", "the"], size=3)) + f" n{i}" for i, label in enumerate(y)]
    Spy.seen.clear()
    pipeline = TextPipeline([("tfidf", Spy()), ("classifier", OneVsAllClassifier(tol=1e-6))])
    found = tune(pipeline, texts, y, Cs=[0.1, 1.0], cv=FOLDS)
    splits = list(FOLDS.split(texts, y))
    assert [sorted(seen) for seen in Spy.seen] == [
        *(sorted(texts[i] for i in train) for train, _ in splits),
        sorted(texts),  # the fit with the best value
    ]
    search = GridSearchCV(pipeline, {"classifier__C": [0.1, 1.0]}, cv=FOLDS).fit(texts, y)
    np.testing.assert_allclose(means(found), search.cv_results_["mean_test_score"])
    assert search.best_params_["classifier__C"] == found.model[-1].C
    assert found.model[-1].tuning_ == found.to_dict()


def test_weights_of_rows_are_used_in_training(noisy):
    X, y = noisy
    weights = np.where(np.isin(y, ["a1", "b1"]), 5.0, 0.2)
    found = tune(OneVsAllClassifier(tol=1e-6), X, y, Cs=[0.1, 1.0], cv=FOLDS, sample_weight=weights)
    for C, quality in zip([0.1, 1.0], found.quality, strict=True):
        right = []
        for train, test in FOLDS.split(X, y):
            model = OneVsAllClassifier(C=C, tol=1e-6).fit(X[train], y[train], sample_weight=weights[train])
            right += (model.predict(X[test]) == y[test]).tolist()
        assert quality.mean == pytest.approx(np.mean(right))
    whole = OneVsAllClassifier(tol=1e-6, **found.best).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(found.model.coef_, whole.coef_)
    scaled = Pipeline([("scale", StandardScaler()), ("svm", OneVsAllClassifier())])
    assert tune(scaled, X, y, Cs=[1.0, 4.0], cv=2, sample_weight=weights).model[-1].tuning_["folds"] == 2


def test_values_are_added_where_the_best_is_at_the_edge():
    rng = np.random.default_rng(3)
    y = np.arange(120) % 3
    X = 0.005 * (np.eye(3, 6)[y] + 0.35 * rng.normal(size=(120, 6)))  # short rows need a large C
    found = tune(OneVsAllClassifier(), X, y, cv=3, refit=False)
    Cs = [values["C"] for values in found.tried]
    assert Cs[:5] == [0.0625, 0.25, 1.0, 4.0, 16.0]
    assert Cs[5:7] == [64.0, 256.0]
    assert found.best["C"] > 16.0
    assert "at the edge of the initial grid, 0.0625 to 16, so more values were tried: 64, 256" in found.notes[0]
    given = tune(OneVsAllClassifier(), X, y, cv=3, Cs=[0.25, 1.0, 16.0], refit=False)
    assert len(given.tried) == 3
    assert given.notes == ("The best C is at the edge of the values tried; a better value may lie beyond it.",)


def test_of_equal_values_the_smallest_C_wins_and_a_plateau_is_no_edge():
    y = np.arange(60) % 3
    found = tune(OneVsAllClassifier(), np.eye(3)[y], y, cv=3, refit=False)
    assert means(found) == [1.0] * 5
    assert found.best == {"C": 0.0625}
    assert found.notes == ()
    assert "the smallest C among ties was chosen" in found.reason


@pytest.mark.parametrize("metric", [None, "at_or_below@1"])
def test_trees_count_exactly_or_as_asked_and_tune_the_share_of_alpha(noisy, metric):
    X, y = noisy
    y = np.where(np.arange(160) % 5 == 0, "a", y)  # inner nodes are labels
    # A tight gap: fits along the path and from scratch then agree on every row, near ties included.
    model = HierarchicalClassifier(TREE, random_state=0, tol=1e-8)
    found = tune(model, X, y, Cs=[0.1, 1.0], alpha_shares=[0.3, 0.9], cv=FOLDS, metric=metric)
    assert found.params == ("C", "alpha_share")
    assert found.metric == (metric or "top_k_accuracy@1")
    below = ("a", "a1", "a2") if metric else ("a",)
    for values, quality in zip(found.tried, found.quality, strict=True):
        right = []
        for train, test in FOLDS.split(X, y):
            best = clone(model).set_params(**values).fit(X[train], y[train]).predict(X[test])
            right += [p == t or (t == "a" and p in below) for p, t in zip(best, y[test], strict=True)]
        assert quality.mean == pytest.approx(np.mean(right))
    assert found.model.alpha_share == found.best["alpha_share"]


def test_trees_take_lists_and_paths(noisy):
    X, y = noisy
    model = HierarchicalClassifier(TREE, method="per-node", random_state=0)
    lists = [[label, "b1"] if i % 4 == 0 else [label] for i, label in enumerate(y)]
    several = tune(model, X, lists, Cs=[0.1, 1.0], cv=3, refit=False)
    single = tune(model, X, y, Cs=[0.1, 1.0], cv=3, refit=False)
    assert several.metric == single.metric == "top_k_accuracy@1"
    paths = np.array([f"root/{label[0]}/{label}" for label in y])
    of_paths = tune(HierarchicalClassifier(method="per-node", random_state=0), X, paths, Cs=[0.1, 1.0], cv=3)
    assert means(of_paths) == means(single)
    assert of_paths.model.taxonomy is None


@pytest.mark.slow
def test_output_codes_tune_their_classifiers_unless_the_code_is_learned(noisy):
    found = tune(OutputCodeClassifier(random_state=0), *noisy, Cs=[0.1, 1.0], cv=FOLDS)
    assert found.params == ("estimator__C",)
    assert found.best["estimator__C"] == found.model.estimator.C
    search = GridSearchCV(
        OutputCodeClassifier(OneVsAllClassifier(), random_state=0), {"estimator__C": [0.1, 1.0]}, cv=FOLDS
    ).fit(*noisy)
    sizes = [len(test) for _, test in FOLDS.split(*noisy)]
    scores = [search.cv_results_[f"split{i}_test_score"] for i in range(3)]
    np.testing.assert_allclose(means(found), np.average(scores, axis=0, weights=sizes))
    assert grid_for(OutputCodeClassifier(learn="l2"), 9, "auto", "auto", "auto").C_name == "C"


def test_what_is_tried_goes_with_the_model_and_a_new_fit_forgets_it(noisy, tmp_path):
    found = tune(TopKClassifier(random_state=0), *noisy, Cs=[0.1, 1.0], ks=None, cv=2)
    save(found.model, tmp_path / "m")
    stored = load(tmp_path / "m").tuning_
    assert stored == found.to_dict()
    again = Tuning.from_dict(stored)
    assert (again.tried, again.quality, again.best, again.reason) == (
        found.tried, found.quality, found.best, found.reason,
    )  # fmt: skip
    assert not hasattr(found.model.fit(*noisy), "tuning_")


def test_the_table_of_the_rank_scale_is_inside_that_of_C_and_the_reason_is_honest():
    def table(param, values, means, best):
        tried = [
            {"values": {param: v}, "mean": m, "low": None, "high": None} for v, m in zip(values, means, strict=True)
        ]
        known = {"params": [param], "tried": tried, "metric": "m", "folds": 1, "rows": 1200, "best": best}
        return known | {"notes": []}

    scales = table("rank_scale", [0.0, 0.2], [0.5, 0.5], 0)
    stored = table("C", [0.25, 0.5, 1.0], [0.71, 0.712, 0.7], 0) | {"rank_scale": scales}
    found = Tuning.from_dict(stored)
    assert found.to_dict() == stored
    assert [part.params for part in found.tables] == [("C",), ("rank_scale",)]
    assert found.reason == "C = 0.25: m 0.7100 (the best is 0.7120), on 1,200 held-out rows of one fold."
    assert found.rank_scale.reason == "rank scale = 0: the best m, 0.5000, on 1,200 held-out rows of one fold."
    assert found.cells() == [["0.25", "0.7100"], ["0.5", "0.7120"], ["1", "0.7000"]]
    ties = Tuning.from_dict(table("C", [0.25, 0.5, 1.0], [0.7, 0.7, 0.7], 1))
    assert "ties" not in ties.reason  # the chosen one is not the smallest


@pytest.mark.parametrize(
    "damage",
    [
        {"best": 9},
        {"folds": 0},
        {"folds": 0, "rows": 0, "notes": ["why"]},
        {"folds": 0, "rows": 0, "tried": [UNMEASURED]},
        {"params": []},
        {"tried": [{"values": {"C": "large"}, "mean": 0.5, "low": 0.4, "high": 0.6}]},
        {"tried": [{"values": {"k": 1}, "mean": 0.5, "low": 0.4, "high": 0.6}]},
        {"tried": [UNMEASURED]},
        {"tried": 3},
        {"metric": 1},
    ],
)
def test_damaged_facts_are_refused(noisy, tmp_path, damage):
    model = OneVsAllClassifier().fit(*noisy)
    row = {"values": {"C": 1.0}, "mean": 0.5, "low": 0.4, "high": 0.6}
    whole = {"params": ["C"], "tried": [row], "metric": "m", "folds": 2, "rows": 9, "best": 0, "notes": []}
    model.tuning_ = whole | damage
    save(model, tmp_path / "m")
    with pytest.raises(ModelFormatError, match="the model is damaged"):
        load(tmp_path / "m")


def test_a_short_budget_uses_fewer_folds_and_says_so(noisy, monkeypatch):
    clock = iter(range(10**6))
    fake = SimpleNamespace(monotonic=lambda: float(next(clock)))  # each call advances the clock by one second
    monkeypatch.setitem(tune.__globals__, "time", fake)
    found = tune(OneVsAllClassifier(), *noisy, Cs=[0.1, 1.0], cv=5, budget=8.0, refit=False)
    assert 1 <= found.n_folds < 5
    assert found.notes[0] == f"The budget allowed {found.n_folds} of 5 folds."
    assert found.n_rows == 32 * found.n_folds


def test_a_budget_for_no_fit_at_all_is_an_error(noisy):
    with pytest.raises(ValueError, match="before the first fit finished; use a larger budget"):
        tune(TopKClassifier(), *noisy, budget=1e-9)


def test_progress_is_reported_fit_by_fit(noisy):
    reports = []
    tune(OneVsAllClassifier(), *noisy, Cs=[0.1, 1.0], cv=2, refit=False, report=lambda *what: reports.append(what))
    assert [what for what, _, _ in reports] == [f"fold {fold}, C = {C}" for fold in (1, 2) for C in ("0.1", "1")]
    assert all(elapsed <= total for _, elapsed, total in reports)


@pytest.mark.parametrize(
    ("estimator", "arguments", "message"),
    [
        (OneVsAllClassifier(), {"Cs": None}, "there are no values to choose from"),
        (OneVsAllClassifier(), {"ks": [1, 2]}, "ks applies only to TopKClassifier"),
        (OneVsAllClassifier(), {"alpha_shares": [0.5]}, "alpha_shares applies only to HierarchicalClassifier"),
        (OneVsAllClassifier(), {"Cs": "many"}, "Cs must be 'auto', None or a sequence"),
        (OneVsAllClassifier(), {"Cs": [1.0, -1.0]}, "C"),
        (OneVsAllClassifier(), {"cv": 1}, "cv must be a splitter or an integer between 2"),
        (OneVsAllClassifier(), {"metric": "precision@1"}, "metric must be top_k_accuracy@k"),
        (OneVsAllClassifier(), {"budget": 0.0}, "positive number of seconds"),
        (LinearSVC(), {}, "tune requires predict_topk"),
        (TopKClassifier(kernel="precomputed"), {}, "tune does not support a precomputed kernel"),
    ],
)
def test_wrong_arguments_are_an_error(noisy, estimator, arguments, message):
    with pytest.raises(ValueError, match=message):
        tune(estimator, *noisy, **arguments)
