"""Values that `fit` chooses on held-out rows: C="auto" of every family, rank_scale="auto" and tune_decision=True."""

from __future__ import annotations

import copy
import json
import math
import pickle
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TimeLimit,
    TopKClassifier,
    load,
    path,
    save,
    train,
)
from widemargin.estimators import tuning
from widemargin.estimators.one_vs_all import folder_training
from widemargin.exceptions import ModelFormatError, UnfinishedTrainingError, WidemarginError
from widemargin.metrics import jain_propensities
from widemargin.model_io import write_model
from widemargin.model_selection import stratified_split
from widemargin.solvers.result import Status

AUTO = "auto"
NAMES = np.array(["a/x", "a/y", "b/x", "b/y"])
DATA_FILES = Path(__file__).parents[1] / "data_files"


def make_rows(noise, n=200, n_features=8, n_labels=4, seed=0):
    """Rows, and scores of labels that are linear but for the noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    scores = X @ rng.normal(size=(n_features, n_labels)) / math.sqrt(n_features)
    return X, scores + noise * rng.normal(size=scores.shape)


X, SCORES = make_rows(1.0)
Y = sp.csr_array((SCORES > 1.0).astype(np.int8))
CLASSES = SCORES.argmax(axis=1)
SETS = [{NAMES[label] for label in np.flatnonzero(row)} or {NAMES[0]} for row in Y.toarray()]

# An estimator with "auto", the same with the chosen number, and targets.
FAMILIES = {
    "one-vs-all": (
        OneVsAllClassifier(C=AUTO, rank_scale=AUTO),
        lambda m: OneVsAllClassifier(C=m.C_, rank_scale=m.rank_scale_),
        Y,
    ),
    "one-vs-all of classes": (
        OneVsAllClassifier(C=AUTO, rank_scale=AUTO, prune=0.01, normalize=True),
        lambda m: OneVsAllClassifier(C=m.C_, rank_scale=m.rank_scale_, prune=0.01, normalize=True),
        CLASSES,
    ),
    "two classes": (OneVsAllClassifier(C=AUTO), lambda m: OneVsAllClassifier(C=m.C_), CLASSES > 1),
    "logistic": (
        OneVsAllClassifier(C=AUTO, loss="logistic"),
        lambda m: OneVsAllClassifier(C=m.C_, loss="logistic"),
        Y,
    ),
    "top-k": (
        TopKClassifier(C=AUTO, k=2, random_state=0),
        lambda m: TopKClassifier(C=m.C_, k=2, random_state=0),
        CLASSES,
    ),
    "rbf": (
        TopKClassifier(C=AUTO, kernel="rbf", random_state=0),
        lambda m: TopKClassifier(C=m.C_, kernel="rbf", random_state=0),
        CLASSES,
    ),
    "code": (
        OutputCodeClassifier(C=AUTO, random_state=0),
        lambda m: OutputCodeClassifier(OneVsAllClassifier(C=m.C_), random_state=0),
        CLASSES,
    ),
    "code of LinearSVC": (
        OutputCodeClassifier(LinearSVC(random_state=0), C=AUTO, random_state=0),
        lambda m: OutputCodeClassifier(LinearSVC(C=m.C_, random_state=0), random_state=0),
        CLASSES,
    ),
    "learned code": (
        OutputCodeClassifier(C=AUTO, learn="linf", random_state=0),
        lambda m: OutputCodeClassifier(C=m.C_, learn="linf", random_state=0),
        CLASSES,
    ),
    "tree": (
        HierarchicalClassifier(C=AUTO, tol=0.01, random_state=0),
        lambda m: HierarchicalClassifier(C=m.C_, tol=0.01, random_state=0),
        NAMES[CLASSES],
    ),
    "tree of levels": (
        HierarchicalClassifier(C=AUTO, tol=0.01, random_state=0),
        lambda m: HierarchicalClassifier(C=m.C_, tol=0.01, random_state=0),
        np.array([name.split("/") for name in NAMES])[CLASSES],
    ),
    "tree of sets": (
        HierarchicalClassifier(C=AUTO, tol=0.01, random_state=0),
        lambda m: HierarchicalClassifier(C=m.C_, tol=0.01, random_state=0),
        SETS,
    ),
}
# Rows that take one-vs-all several blocks, between which the callback is called.
LARGER_X, LARGER_SCORES = make_rows(1.0, n=300, n_features=20, n_labels=5)
LARGER_Y = sp.csr_array((LARGER_SCORES > 1.0).astype(np.int8))
ONE_OF_EACH = {
    "one-vs-all": (OneVsAllClassifier(), Y),
    "top-k": (TopKClassifier(random_state=0), CLASSES),
    "code": (OutputCodeClassifier(random_state=0), CLASSES),
    "tree": (HierarchicalClassifier(tol=0.01, random_state=0), NAMES[CLASSES]),
}


@pytest.fixture(scope="module")
def chosen():
    """Fitted models by family, made when they are first needed."""
    models = {}

    def fitted(family):
        if family not in models:
            estimator, _, y = FAMILIES[family]
            models[family] = clone(estimator).fit(X, y)
        return models[family]

    return fitted


@pytest.fixture
def splits(monkeypatch):
    """The splits that a choice makes."""
    made = []

    def record(*args, **options):
        made.append(stratified_split(*args, **options))
        return made[-1]

    monkeypatch.setattr(tuning, "stratified_split", record)
    return made


def held_out(targets, share=0.2):
    return stratified_split(targets, test_size=share, random_state=0)


def curve(table):
    """Qualities by value."""
    return {row["values"][table["params"][0]]: row["mean"] for row in table["tried"]}


def dense(matrix):
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)


def assert_fallback(model, why, C=1.0):
    assert model.C_ == C
    table = model.tuning_
    assert (table["folds"], table["rows"], table["best"]) == (0, 0, 0)
    assert curve(table) == {C: None}
    (note,) = table["notes"]
    assert note == f"C = {C:g} was not chosen on held-out rows: {why}."


# Average precision


def random_pairs(rng, shape, share=0.1, digits=None):
    scores = rng.normal(size=shape)
    truth = rng.random(shape) < share
    scores += truth
    return (scores if digits is None else scores.round(digits)).astype(np.float32), truth


@pytest.mark.parametrize("digits", [None, 1, 0], ids=["no ties", "some ties", "many ties"])
def test_average_precision_is_that_of_scikit_learn(digits):
    scores, truth = random_pairs(np.random.default_rng(0), (40, 30), digits=digits)
    found = tuning.average_precision(scores, sp.csr_array(truth))
    assert_allclose(found, average_precision_score(truth.ravel(), scores.ravel()), rtol=1e-12)
    assert tuning.average_precision(scores, sp.csr_array(scores.shape)) == 0.0
    assert tuning.average_precision(np.zeros_like(scores), sp.csr_array(truth)) == pytest.approx(truth.mean())


@pytest.mark.parametrize("digits", [None, 0])
def test_worth_counts_true_pairs_as_propensity_scored_precision_does(digits):
    rng = np.random.default_rng(1)
    scores, truth = random_pairs(rng, (15, 10), digits=digits)
    worth = rng.uniform(1.0, 9.0, size=10)
    total = expected = 0.0
    for row, label in zip(*np.nonzero(truth), strict=True):
        before = scores >= scores[row, label]
        expected += worth[label] * (before & truth).sum(axis=0) @ worth / before.sum()
        total += worth[label]
    assert_allclose(tuning.average_precision(scores, sp.csr_array(truth), worth), expected / total, rtol=1e-12)
    equal = tuning.average_precision(scores, sp.csr_array(truth), np.full(10, 3.0))
    assert_allclose(equal, 3.0 * average_precision_score(truth.ravel(), scores.ravel()), rtol=1e-12)


@pytest.mark.parametrize("digits", [None, 1], ids=["no ties", "ties"])
def test_of_many_pairs_only_those_up_to_a_recall_count(digits):
    scores, truth = random_pairs(np.random.default_rng(2), (1001, 1000), share=0.003, digits=digits)
    assert scores.size > tuning.MANY_PAIRS
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked, hits = scores.ravel()[order], truth.ravel()[order]
    n_true = int(hits.sum())
    cut = ranked[hits][math.ceil(0.9 * n_true) - 1]
    last = len(ranked) - 1 - np.searchsorted(ranked[::-1], ranked[hits])  # of those with the same score
    precision = np.cumsum(hits)[last] / (last + 1)
    expected = precision[ranked[hits] >= cut].sum() / n_true
    assert_allclose(tuning.average_precision(scores, sp.csr_array(truth)), expected, rtol=1e-12)
    assert expected < average_precision_score(truth.ravel(), scores.ravel())


# What a choice leaves behind


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_that_of_the_chosen_numbers_bit_for_bit(chosen, family):
    _, with_numbers, y = FAMILIES[family]
    model = chosen(family)
    other = with_numbers(model).fit(X, y)
    assert_array_equal(model.decision_function(X), other.decision_function(X))
    assert_array_equal(dense(model.predict(X)), dense(other.predict(X)))
    if hasattr(model, "coef_"):
        assert_array_equal(dense(model.coef_), dense(other.coef_))
        assert model.certificate_ == other.certificate_
    table = model.tuning_
    assert table["params"] == ["C"]
    assert (table["folds"], table["rows"]) == (1, len(held_out(encoded(y))[1]))
    values = list(curve(table))
    assert values == sorted(values)
    assert values[table["best"]] == model.C_
    assert not hasattr(other, "tuning_")


def encoded(y):
    """Targets in a form of which the split is that of `fit`."""
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return np.array(["/".join(row) for row in y])
    return y.astype(int)[:, None] if isinstance(y, np.ndarray) and y.dtype == bool else y


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_stay_as_given_and_another_fit_chooses_the_same(chosen, family):
    estimator, _, y = FAMILIES[family]
    model = chosen(family)
    assert model.C == AUTO
    given, after = estimator.get_params(), model.get_params()
    assert {name: repr(value) for name, value in after.items()} == {name: repr(value) for name, value in given.items()}
    again = clone(model)
    assert again.C == AUTO
    assert not hasattr(again, "C_")
    again.fit(X, y)
    assert again.tuning_ == model.tuning_
    assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_keep_the_choice(chosen, copied):
    model = chosen("one-vs-all")
    other = copied(model)
    assert (other.C_, other.rank_scale_, other.tuning_) == (model.C_, model.rank_scale_, model.tuning_)
    assert_array_equal(other.predict_topk(X, 3).indices, model.predict_topk(X, 3).indices)


def test_a_failed_fit_leaves_the_parameters_as_given():
    model = OneVsAllClassifier(C=AUTO, class_weight={"unknown": 2.0})
    with pytest.raises(ValueError, match="unknown"):
        model.fit(X, Y)
    assert model.C == AUTO


def test_numbers_in_the_next_fit_delete_the_table():
    model = OneVsAllClassifier(C=AUTO).fit(X, Y)
    assert hasattr(model, "tuning_")
    model.set_params(C=0.5).fit(X, Y)
    assert model.C_ == 0.5
    assert not hasattr(model, "tuning_")


def test_grid_search_over_another_parameter_chooses_C_in_every_fold():
    search = GridSearchCV(TopKClassifier(C=AUTO, random_state=0), {"prune": [0.0, 0.05]}, cv=2).fit(X, CLASSES)
    best = search.best_estimator_
    assert best.C == AUTO
    alone = TopKClassifier(C=AUTO, prune=best.prune, random_state=0).fit(X, CLASSES)
    assert (best.C_, best.tuning_) == (alone.C_, alone.tuning_)
    several = GridSearchCV(OneVsAllClassifier(C=AUTO), {"prune": [0.0, 0.1]}, cv=2).fit(X, Y.toarray())
    best = several.best_estimator_
    assert best.C_ == OneVsAllClassifier(C=AUTO, prune=best.prune).fit(X, Y).C_


# Which C


def linear_svc_curve(X, Y, Cs):
    """Average precision on the held-out rows by C, with scikit-learn alone."""
    train_rows, test_rows = held_out(Y)
    found = {}
    for C in Cs:
        svc = LinearSVC(C=C, dual=False, tol=1e-8, max_iter=10000)
        columns = [svc.fit(X[train_rows], truth).decision_function(X[test_rows]) for truth in Y.toarray()[train_rows].T]
        found[C] = average_precision_score(Y.toarray()[test_rows].ravel(), np.column_stack(columns).ravel())
    return found


PLANTED = {"noise": (1.5, 60, -1), "no noise": (0.0, 60, 1)}


@pytest.mark.parametrize("case", PLANTED)
def test_C_is_that_of_an_exhaustive_search_with_scikit_learn(case):
    noise, n_features, side = PLANTED[case]
    X, scores = make_rows(noise, n=300, n_features=n_features, n_labels=5)
    Y = sp.csr_array((scores > 1.0).astype(int))
    model = OneVsAllClassifier(C=AUTO, regularize_intercept=True).fit(X, Y)
    found = curve(model.tuning_)
    expected = linear_svc_curve(X, Y, found)
    assert_allclose(list(found.values()), list(expected.values()), rtol=2e-3)
    unit = 1.0 / np.mean(np.sum(X[held_out(Y)[0]] ** 2, axis=1))
    assert side * math.log2(model.C_ / unit) > 0.8
    # A grid that does not depend on the choice: nothing in it is much better than the value chosen.
    grid = linear_svc_curve(X, Y, [unit * 2.0**step for step in range(-8, 7)])
    reached = linear_svc_curve(X, Y, [model.C_])[model.C_]
    assert reached >= 0.985 * max(grid.values())
    nearly = [C for C in found if found[C] >= 0.995 * max(found.values())]
    assert min(nearly) == model.C_


@pytest.mark.parametrize("family", ["top-k", "rbf", "code", "code of LinearSVC", "learned code", "tree"])
def test_the_qualities_of_other_families_are_those_of_public_fits(chosen, family):
    model, (_, with_numbers, y) = chosen(family), FAMILIES[family]
    train_rows, test_rows = held_out(y)
    for C, quality in curve(model.tuning_).items():
        probe = copy.copy(model)
        probe.C_ = C
        fitted = with_numbers(probe).fit(X[train_rows], y[train_rows])
        if family == "tree":  # half of the nodes, all but the root, are right if only the parent is
            parts = [
                (a.split("/")[0] == b.split("/")[0], a == b)
                for a, b in zip(fitted.predict(X[test_rows]), y[test_rows], strict=True)
            ]
            expected = np.mean(parts)
        else:
            top = fitted.predict_topk(X[test_rows], model.k if family == "top-k" else 1).labels
            expected = np.mean([truth in row for truth, row in zip(y[test_rows], top, strict=True)])
        assert quality == pytest.approx(expected, abs=0.051)  # another start: two of 40 rows
    near = [C for C, quality in curve(model.tuning_).items() if quality >= 0.995 * max(curve(model.tuning_).values())]
    assert model.C_ in near


def test_rows_of_another_length_scale_C():
    one, other = (OneVsAllClassifier(C=AUTO, fit_intercept=False).fit(factor * X, Y) for factor in (1.0, 16.0))
    assert_allclose(other.C_, one.C_ / 256.0, rtol=0.05)  # to two digits
    assert_allclose(list(curve(other.tuning_).values()), list(curve(one.tuning_).values()), rtol=1e-2)


# Rank scale and decisions


def test_the_rank_scale_is_chosen_by_lists_of_all_labels(chosen):
    model = chosen("one-vs-all")
    train_rows, test_rows = held_out(Y)
    table = model.tuning_["rank_scale"]
    assert (table["params"], table["metric"], table["rows"]) == (["rank_scale"], "precision@1,3,5", len(test_rows))
    truth = Y.toarray()[test_rows]
    for q, quality in curve(table).items():
        fitted = OneVsAllClassifier(C=model.C_, rank_scale=q).fit(X[train_rows], Y[train_rows])
        top = np.argsort(-fitted.decision_function(X[test_rows]), axis=1)
        hits = np.take_along_axis(truth, top, axis=1)
        expected = np.mean([hits[:, : min(k, 4)].sum(axis=1).mean() / min(k, 4) for k in (1, 3, 5)])
        assert quality == pytest.approx(expected, abs=1e-9)
    q, quality = np.array(list(curve(table).items())).T
    parabola = np.linalg.lstsq(np.vander(q, 3), quality, rcond=None)[0]
    assert model.rank_scale_ == q[np.argmax(np.vander(q, 3) @ parabola)]
    assert_array_equal(model.label_scale_, np.linalg.norm(model.coef_, axis=1) ** -model.rank_scale_)


def test_the_first_C_is_taken_if_its_lists_are_better():
    X, scores = make_rows(0.3, seed=7)
    Y = sp.csr_array((scores > 0.8).astype(np.int8))
    model, plain = (OneVsAllClassifier(C=AUTO, rank_scale=scale).fit(X, Y) for scale in (AUTO, 0.0))
    train_rows, test_rows = held_out(Y)
    unit = 1.0 / np.mean(np.sum(X[train_rows] ** 2, axis=1))
    assert 0.9 * unit > plain.C_
    assert pytest.approx(unit, rel=0.05) == model.C_
    assert list(curve(model.tuning_))[model.tuning_["best"]] == model.C_
    assert model.tuning_["notes"] == [f"C = {model.C_:.4g} has better lists than the smallest C that is nearly best."]

    def quality(C, q):
        fitted = OneVsAllClassifier(C=C, rank_scale=q).fit(X[train_rows], Y[train_rows])
        top = np.argsort(-fitted.decision_function(X[test_rows]), axis=1)
        hits = np.take_along_axis(Y.toarray()[test_rows], top, axis=1)
        return np.mean([hits[:, :k].mean() for k in (1, 3, 4)])

    table = curve(model.tuning_["rank_scale"])
    assert table[0.0] == pytest.approx(quality(model.C_, 0.0), rel=1e-9)
    assert table[0.0] > max(quality(plain.C_, q) for q in table)


def test_the_rank_scale_alone_can_be_chosen():
    model = OneVsAllClassifier(C=0.05, rank_scale=AUTO).fit(X, Y)
    assert model.C_ == 0.05
    assert model.tuning_["params"] == ["rank_scale"]
    assert list(curve(model.tuning_))[model.tuning_["best"]] == model.rank_scale_


@pytest.mark.parametrize(
    ("metric", "named"),
    [("ndcg@3", "ndcg@3"), ("top_k_accuracy@1", "precision@1"), ("psp@2", "psp@2"), ("precision@99", "precision@99")],
)
def test_the_metric_decides_about_the_rank_scale(metric, named):
    model = OneVsAllClassifier(C=AUTO, rank_scale=AUTO, metric=metric).fit(X, Y)
    assert model.tuning_["rank_scale"]["metric"] == named
    if metric == "psp@2":
        train_rows, test_rows = held_out(Y)
        worth = 1.0 / jain_propensities(Y.toarray().sum(axis=0), Y.shape[0])
        plain = OneVsAllClassifier(C=model.C_).fit(X[train_rows], Y[train_rows])
        top = np.argsort(-plain.decision_function(X[test_rows]), axis=1)[:, :2]
        truth = Y.toarray()[test_rows]
        best = np.sort(truth * worth, axis=1)[:, ::-1][:, :2].sum()
        expected = np.take_along_axis(truth * worth, top, axis=1).sum() / best
        assert curve(model.tuning_["rank_scale"])[0.0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("metric", ["f1", "precision", "precision@0", "precision@-1", "precision@²", "psp@k", ""])
def test_an_unknown_metric_is_an_error_by_name(metric):
    with pytest.raises(ValueError, match=r"metric='.*' is not a metric of lists; use precision@k"):
        OneVsAllClassifier(C=AUTO, rank_scale=AUTO, metric=metric).fit(X, Y)


@pytest.mark.parametrize("case", ["two classes", "logistic"])
@pytest.mark.parametrize("C", [AUTO, 0.3])
def test_where_a_rank_scale_has_no_effect_it_is_0(case, C):
    estimator, _, y = FAMILIES[case]
    model = clone(estimator).set_params(C=C, rank_scale=AUTO).fit(X, y)
    assert model.rank_scale_ == 0.0
    assert not hasattr(model, "label_scale_")
    if C != AUTO:
        assert model.tuning_["notes"] == ["rank_scale = 0 was not chosen on held-out rows: it has no effect here."]
        assert model.C_ == C


RULES = [
    {"objective": "micro-f1"},
    {"objective": "macro-f1", "min_labels": 1},
    {"objective": "f1-per-row", "max_labels": 2},
    {"per_label_thresholds": True},
    {"precision_target": 0.6},
]


@pytest.mark.parametrize("options", RULES, ids=str)
def test_the_rule_is_that_of_a_model_without_the_held_out_rows(options):
    options = options | {"decision": "threshold", "C": 0.03}
    model = OneVsAllClassifier(tune_decision=True, **options).fit(X, Y)
    train_rows, test_rows = held_out(Y)
    other = OneVsAllClassifier(**options).fit(X[train_rows], Y[train_rows]).fit_decision(X[test_rows], Y[test_rows])
    assert_same_rule(model.decision_, other.decision_)
    assert not hasattr(model, "tuning_")
    plain = OneVsAllClassifier(**options).fit(X, Y)
    assert_array_equal(model.coef_, plain.coef_)
    plain._set_decision(other.decision_)
    assert_array_equal(model.predict(X).toarray(), plain.predict(X).toarray())


def assert_same_rule(one, other, rtol=1e-6):
    assert (one.objective, one.max_labels) == (other.objective, other.max_labels)
    assert flat(one.to_dict()) == pytest.approx(flat(other.to_dict()), rel=rtol)
    if other.label_thresholds is not None:
        assert_allclose(one.label_thresholds, other.label_thresholds, rtol=rtol)


def flat(values, prefix=""):
    """Numbers of nested dictionaries by name."""
    out = {}
    for name, value in values.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            out[prefix + name] = value
    return out


def test_limits_of_any_type_can_be_part_of_a_rule():
    options = {"min_labels": np.int64(1), "max_labels": np.int32(2), "decision": "threshold", "tune_decision": True}
    for n_rows in (50, 200):
        rule = OneVsAllClassifier(C=0.03, **options).fit(X[:n_rows], Y[:n_rows]).decision_
        assert (rule.min_labels, rule.max_labels) == (1, 2)


def test_rule_rank_scale_and_C_are_chosen_together():
    options = {"decision": "threshold", "objective": "macro-f1"}
    model = OneVsAllClassifier(C=AUTO, rank_scale=AUTO, tune_decision=True, **options).fit(X, Y)
    numbers = {"C": model.C_, "rank_scale": model.rank_scale_}
    train_rows, test_rows = held_out(Y)
    other = OneVsAllClassifier(**numbers, **options).fit(X[train_rows], Y[train_rows])
    assert_same_rule(model.decision_, other.fit_decision(X[test_rows], Y[test_rows]).decision_, rtol=1e-4)
    assert model.decision_.n_rows == model.tuning_["rows"] == len(test_rows)


def test_a_rule_is_for_several_labels_per_row_and_for_decisions_by_threshold():
    with pytest.raises(ValueError, match="tune_decision=True has no effect with decision='sign'"):
        OneVsAllClassifier(tune_decision=True).fit(X, Y)
    for n_rows in (50, 200):
        with pytest.raises(ValueError, match="decision='threshold' is for rows with several labels"):
            OneVsAllClassifier(tune_decision=True, decision="threshold").fit(X[:n_rows], CLASSES[:n_rows])


# Where nothing can be chosen


@pytest.mark.parametrize("family", ["one-vs-all", "one-vs-all of classes", "top-k", "code", "learned code", "tree"])
def test_few_rows_and_weights_that_are_not_numbers_of_rows_give_1(family):
    estimator, with_numbers, y = FAMILIES[family]
    few = clone(estimator).fit(X[:99], y[:99])
    assert_fallback(few, "there are 99 rows, too few to hold some out (at least 100 are needed)")
    assert_array_equal(few.decision_function(X), with_numbers(few).fit(X[:99], y[:99]).decision_function(X))
    weights = np.full(200, 0.5)
    assert_fallback(clone(estimator).fit(X, y, sample_weight=weights), "row weights are not numbers of rows")
    assert clone(estimator).fit(X[:100], y[:100]).tuning_["folds"] == 1


def test_the_rule_of_a_choice_that_is_not_made_is_the_sign():
    options = {"decision": "threshold", "tune_decision": True, "min_labels": 1}
    model = OneVsAllClassifier(C=AUTO, **options).fit(X[:80], Y[:80])
    assert_fallback(model, "there are 80 rows, too few to hold some out (at least 100 are needed)")
    rule = model.decision_
    assert (rule.threshold, rule.q, rule.n_rows, rule.min_labels) == (0.0, 0.0, 0, 1)
    scores = X @ model.coef_.T + model.intercept_
    expected = scores > 0.0
    expected[np.arange(200), scores.argmax(axis=1)] = True
    assert_array_equal(model.predict(X).toarray(), expected)


def test_a_choice_that_is_not_made_accepts_nothing():
    options = {"decision": "threshold", "tune_decision": True, "precision_target": 0.9}
    model = OneVsAllClassifier(**options).fit(X[:99], Y[:99])
    assert model.accept(X).nnz == 0
    assert "nothing can be accepted at precision 0.9" in model.decision_.describe()


NOTHING_SHARED = "the held-out rows and the others have no label in common"


def test_a_hold_out_without_a_label_gives_1():
    assert_fallback(OneVsAllClassifier(C=AUTO).fit(X, sp.csr_array((200, 3), dtype=np.int8)), NOTHING_SHARED)
    single = np.zeros((200, 3), dtype=int)
    single[0, 0] = 1
    assert_fallback(OneVsAllClassifier(C=AUTO, rank_scale=AUTO).fit(X, single), NOTHING_SHARED)
    weights = np.zeros(200)
    weights[held_out(CLASSES)[0]] = 1.0
    assert_fallback(TopKClassifier(C=AUTO).fit(X, CLASSES, sample_weight=weights), NOTHING_SHARED)


@pytest.mark.parametrize("family", ONE_OF_EACH)
def test_groups_that_divide_the_labels_give_1(family):
    estimator, _ = ONE_OF_EACH[family]
    y = NAMES[CLASSES]
    model = clone(estimator).set_params(C=AUTO).fit(X, y, groups=y)
    assert_fallback(model, NOTHING_SHARED)


@pytest.mark.parametrize("family", ONE_OF_EACH)
def test_other_rows_of_one_class_give_1(family):
    estimator, _ = ONE_OF_EACH[family]
    groups = np.repeat([0, 1], [160, 40])
    y = np.where(groups == 0, "a", NAMES[CLASSES])
    y[-10:] = "a"
    model = clone(estimator).set_params(C=AUTO).fit(X, y, groups=groups)
    assert_fallback(model, "the rows that are not held out all have the same label")


@pytest.mark.parametrize("family", ONE_OF_EACH)
@pytest.mark.parametrize("callback", [lambda progress: True, "time limit"], ids=["callback", "time limit"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stop_before_the_first_value_gives_1(family, callback):
    estimator, y = ONE_OF_EACH[family]
    callback = TimeLimit(0.0) if callback == "time limit" else callback
    rows = (LARGER_X, LARGER_Y) if family == "one-vs-all" else (X, y)
    model = clone(estimator).set_params(C=AUTO, callback=callback).fit(*rows)
    assert_fallback(model, "the callback or a time limit stopped the first fit")
    assert model.callback is callback


@pytest.fixture
def stop_after(monkeypatch):
    """A callback that stops the solver after a number of fits."""

    def make(n_fits):
        n_started, solve = [0], tuning.solve

        def counting(*args, **options):
            n_started[0] += 1
            return solve(*args, **options)

        monkeypatch.setattr(tuning, "solve", counting)
        return lambda progress: n_started[0] > n_fits

    return make


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_after_a_stop_the_values_tried_so_far_decide(stop_after):
    whole = curve(OneVsAllClassifier(C=AUTO).fit(LARGER_X, LARGER_Y).tuning_)
    model = OneVsAllClassifier(C=AUTO, callback=stop_after(2)).fit(LARGER_X, LARGER_Y)
    part = curve(model.tuning_)
    assert len(part) == 2
    assert part.items() <= whole.items()
    assert min(C for C in part if part[C] >= 0.995 * max(part.values())) == model.C_
    assert model.status_ is Status.STOPPED


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stop_while_the_rank_scale_or_the_rule_is_chosen_leaves_0_and_the_sign(stop_after):
    model = OneVsAllClassifier(rank_scale=AUTO, callback=stop_after(0)).fit(LARGER_X, LARGER_Y)
    assert model.rank_scale_ == 0.0
    assert model.tuning_["notes"] == [
        "rank_scale = 0 was not chosen on held-out rows: the callback or a time limit stopped the fit."
    ]
    options = {"decision": "threshold", "tune_decision": True}
    model = OneVsAllClassifier(callback=stop_after(0), **options).fit(LARGER_X, LARGER_Y)
    assert (model.decision_.threshold, model.decision_.n_rows) == (0.0, 0)


# Row weights


@pytest.mark.parametrize("family", ["one-vs-all", "one-vs-all of classes", "top-k"])
def test_weights_that_are_numbers_of_rows_repeat_them(monkeypatch, family):
    estimator, _, y = FAMILIES[family]
    estimator = clone(estimator).set_params(**({"tol": 1e-5} if family == "top-k" else {}))
    unit_rows = X / np.linalg.norm(X, axis=1, keepdims=True)  # of which the mean length does not depend on weights
    weights = np.random.default_rng(0).integers(0, 4, size=200)
    rows = np.repeat(np.arange(200), weights)
    train_rows, test_rows = held_out(y)
    model = clone(estimator).fit(unit_rows, y, sample_weight=weights.astype(float))
    in_train = np.isin(rows, train_rows)
    split = np.flatnonzero(in_train), np.flatnonzero(~in_train)
    monkeypatch.setattr(tuning, "stratified_split", lambda *args, **options: split)
    other = clone(estimator).fit(unit_rows[rows], y[rows])
    assert model.tuning_["rows"] == other.tuning_["rows"] == weights[test_rows].sum()
    assert model.C_ == other.C_
    assert curve(model.tuning_) == pytest.approx(curve(other.tuning_), rel=1e-3)


def test_weights_of_one_are_no_weights_and_large_ones_need_no_memory(chosen):
    model = clone(chosen("one-vs-all")).fit(X, Y, sample_weight=np.ones(200))
    assert model.tuning_ == chosen("one-vs-all").tuning_
    large = OneVsAllClassifier(C=AUTO).fit(X, Y, sample_weight=np.full(200, 1e9))
    assert large.tuning_["rows"] == tuning.ROWS_AT_MOST
    mixed = np.where(np.arange(200) % 2 == 0, 1e15, 1.0)
    assert OneVsAllClassifier(C=AUTO).fit(X, Y, sample_weight=mixed).tuning_["rows"] == tuning.ROWS_AT_MOST


def test_an_even_selection_of_repeated_rows_keeps_their_shares(monkeypatch):
    monkeypatch.setattr(tuning, "ROWS_AT_MOST", 1000)
    weights = np.arange(200.0) * 1000
    (_, test_rows), why = tuning._hold_out(Y, weights, None)
    assert why == ""
    kept, counts = np.unique(test_rows, return_counts=True)
    assert len(test_rows) == 1000
    assert_allclose(counts, 1000 * weights[kept] / weights[held_out(Y, 0.2)[1]].sum(), atol=1.0)


# Samples of labels


@pytest.fixture
def many_labels(monkeypatch):
    """Rows with 40 labels, of which a choice takes 10."""
    for name, value in {"SMALL_WORK": 0, "LABELS_AT_MOST": 20, "LEAST_LABELS": 10}.items():
        monkeypatch.setattr(tuning, name, value)
    X, scores = make_rows(0.5, n=300, n_labels=40)
    return X, sp.csr_array((scores > np.linspace(0.3, 1.2, 40)).astype(np.int8))


@pytest.mark.parametrize(
    "class_weight", [None, {0: 3.0, 7: 0.5, 11: 9.0, 39: 2.0}, "balanced", "propensity"], ids=["none", "dict", "b", "p"]
)
def test_a_sample_of_labels_has_the_problems_of_all_labels(monkeypatch, many_labels, class_weight):
    X, Y = many_labels
    seen, average_precision = [], tuning.average_precision

    def record(scores, truth, worth=None):
        seen.append((scores - 1.0, truth.toarray()))
        return average_precision(scores, truth, worth)

    monkeypatch.setattr(tuning, "average_precision", record)
    model = OneVsAllClassifier(C=AUTO, class_weight=class_weight).fit(X, Y)
    assert model.tuning_["notes"] == ["C was chosen on a sample of 10 of 40 labels."]
    assert_array_equal(model.coef_, OneVsAllClassifier(C=model.C_, class_weight=class_weight).fit(X, Y).coef_)
    train_rows, test_rows = held_out(Y)
    first = max(C for C in curve(model.tuning_) if 1.1 / np.mean(np.sum(X[train_rows] ** 2, axis=1)) >= C)
    whole = OneVsAllClassifier(C=first, class_weight=class_weight).fit(X[train_rows], Y[train_rows])
    expected, truth = whole.decision_function(X[test_rows]), Y.toarray()[test_rows]
    matched = set()
    for column, marks in zip(seen[0][0].T, seen[0][1].T, strict=True):
        distance = np.abs(expected - column[:, None]).max(axis=0)
        label = int(distance.argmin())
        assert distance[label] < 2e-3 * np.abs(column).max()
        assert_array_equal(truth[:, label], marks)
        matched.add(label)
    assert len(matched) == 10


def test_with_many_labels_average_precision_chooses_the_rank_scale(many_labels):
    X, Y = many_labels
    model = OneVsAllClassifier(C=AUTO, rank_scale=AUTO).fit(X, Y)
    table = model.tuning_["rank_scale"]
    assert table["metric"] == "average_precision"
    assert table["notes"] == ["rank_scale was chosen on a sample of 10 of 40 labels."]
    # C has the average precision of the better of two rank scales.
    assert curve(model.tuning_)[model.C_] == max(curve(table)[0.0], curve(table)[0.25])
    with_numbers = OneVsAllClassifier(C=model.C_, rank_scale=model.rank_scale_).fit(X, Y)
    assert_array_equal(model.decision_function(X), with_numbers.decision_function(X))
    assert clone(model).fit(X, Y).tuning_ == model.tuning_


@pytest.mark.parametrize("options", [*RULES[1:], {"min_labels": 2}], ids=str)
def test_a_rule_by_row_or_by_label_is_chosen_on_all_labels(many_labels, options):
    X, Y = many_labels
    options = options | {"decision": "threshold", "C": 0.05}
    model = OneVsAllClassifier(tune_decision=True, **options).fit(X, Y)
    train_rows, test_rows = held_out(Y)
    other = OneVsAllClassifier(**options).fit(X[train_rows], Y[train_rows])
    assert_same_rule(model.decision_, other.fit_decision(X[test_rows], Y[test_rows]).decision_, rtol=1e-3)


def test_a_rule_for_all_pairs_is_chosen_on_a_sample(many_labels):
    X, Y = many_labels
    model = OneVsAllClassifier(C=0.05, decision="threshold", tune_decision=True).fit(X, Y)
    train_rows, test_rows = held_out(Y)
    whole = OneVsAllClassifier(C=0.05).fit(X[train_rows], Y[train_rows])
    rule, truth = model.decision_, Y.toarray()[test_rows]
    predicted = whole.decision_function(X[test_rows]) > rule.score_thresholds(whole.coef_)
    assert f1_score(truth, predicted, average="micro") == pytest.approx(rule.value, abs=0.1)


def test_a_label_without_training_rows_has_the_common_threshold(monkeypatch):
    unknown = np.zeros((200, 1), dtype=int)
    unknown[held_out(Y)[1][0]] = 1
    more = sp.csr_array(np.hstack([Y.toarray()[:, :2], unknown, Y.toarray()[:, 2:]]))
    monkeypatch.setattr(tuning, "stratified_split", lambda *args, **options: held_out(Y))
    options = {"decision": "threshold", "tune_decision": True, "per_label_thresholds": True}
    rule = OneVsAllClassifier(C=0.03, **options).fit(X, more).decision_
    without = OneVsAllClassifier(C=0.03, **options).fit(X, Y).decision_
    assert_array_equal(np.delete(rule.label_thresholds, 2), without.label_thresholds)
    assert rule.label_thresholds[2] == rule.threshold


def test_memory_limits_the_rows_of_a_choice():
    model = OneVsAllClassifier(C=AUTO, memory_limit_mb=X.nbytes / 0.5e6 / 2.5).fit(X, Y)
    assert model.tuning_["notes"] == ["C was chosen on 54 rows, as memory_limit_mb requires."]


# Groups


@pytest.mark.parametrize("family", ONE_OF_EACH)
def test_groups_are_held_out_whole(splits, family):
    estimator, y = ONE_OF_EACH[family]
    groups = np.random.default_rng(0).integers(0, 60, size=200)
    model = clone(estimator).set_params(C=AUTO).fit(X, y, groups=groups)
    ((train_rows, test_rows),) = splits
    assert not set(groups[train_rows]) & set(groups[test_rows])
    assert sorted([*train_rows, *test_rows]) == list(range(200))
    assert model.tuning_["rows"] == len(test_rows)
    named = clone(estimator).set_params(C=AUTO).fit(X, y, groups=[f"source {group}" for group in groups])
    assert named.tuning_ == model.tuning_


def test_near_copies_in_groups_do_not_make_a_large_C_look_good():
    rng = np.random.default_rng(0)
    once = rng.normal(size=(60, 80))
    X = np.repeat(once, 4, axis=0) + 0.01 * rng.normal(size=(240, 80))
    Y = np.repeat((rng.random((60, 3)) < 0.3).astype(int), 4, axis=0)  # noise, but equal for copies
    fooled = OneVsAllClassifier(C=AUTO).fit(X, Y)
    honest = OneVsAllClassifier(C=AUTO).fit(X, Y, groups=np.repeat(np.arange(60), 4))
    assert max(curve(fooled.tuning_).values()) > 0.95
    assert max(curve(honest.tuning_).values()) < 0.6


@pytest.mark.parametrize("family", ONE_OF_EACH)
def test_wrong_groups_are_errors_by_name(family):
    estimator, y = ONE_OF_EACH[family]
    auto = clone(estimator).set_params(C=AUTO)
    with pytest.raises(ValueError, match=r"groups.*199.*200|groups.*200.*199"):
        auto.fit(X, y, groups=np.arange(199))
    with pytest.raises(ValueError, match=r"group"):
        auto.fit(X, y, groups=np.zeros(200))
    with pytest.raises(ValueError, match="groups has no effect, because no parameter is 'auto'; use C='auto'"):
        clone(estimator).fit(X, y, groups=np.arange(200))


def test_groups_serve_a_rule_and_a_rank_scale_as_well(splits):
    groups = np.arange(200) // 4
    OneVsAllClassifier(rank_scale=AUTO).fit(X, Y, groups=groups)
    OneVsAllClassifier(decision="threshold", tune_decision=True).fit(X, Y, groups=groups)
    assert len(splits) == 2
    for train_rows, test_rows in splits:
        assert not set(groups[train_rows]) & set(groups[test_rows])


# Model folders


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "code of LinearSVC"])
def test_a_stored_model_keeps_the_choice(chosen, tmp_path, family):
    model = chosen(family)
    save(model, tmp_path)
    stored = load(tmp_path)
    assert (stored.C, stored.C_, stored.tuning_) == (AUTO, model.C_, model.tuning_)
    assert getattr(stored, "rank_scale_", None) == getattr(model, "rank_scale_", None)
    assert_array_equal(stored.decision_function(X), model.decision_function(X))
    assert stored.fit(X, FAMILIES[family][2]).tuning_ == model.tuning_


@pytest.mark.parametrize("n_rows", [60, 200], ids=["not made", "made"])
def test_a_stored_model_keeps_the_rule_and_the_rank_scale(tmp_path, n_rows):
    options = {"decision": "threshold", "tune_decision": True, "per_label_thresholds": True}
    model = OneVsAllClassifier(C=AUTO, rank_scale=AUTO, **options).fit(X[:n_rows], Y[:n_rows])
    save(model, tmp_path)
    stored = load(tmp_path)
    assert (stored.C_, stored.rank_scale_, stored.tuning_) == (model.C_, model.rank_scale_, model.tuning_)
    assert ("rank_scale" in stored.tuning_) == (n_rows == 200)
    assert_same_rule(stored.decision_, model.decision_, rtol=0.0)
    assert_array_equal(stored.predict(X).toarray(), model.predict(X).toarray())


@pytest.mark.parametrize("name", ["tree", "factored", "top-k", "output-code"])
def test_models_of_the_first_format_have_the_C_they_were_given(name):
    folder = DATA_FILES / f"{name}-model-v1"
    stored = json.loads((folder / "model.json").read_text())
    model = load(folder)
    assert model.C_ == model.C == stored["params"]["C"]
    assert not hasattr(model, "tuning_")


TABLE = {"params": ["C"], "tried": [{"values": {"C": 1.0}, "mean": 0.5, "low": None, "high": None}], "metric": "m"}
TABLE |= {"folds": 1, "rows": 20, "best": 0, "notes": []}
INSIDE = TABLE | {"params": ["rank_scale"]}
INSIDE |= {"tried": [{"values": {"rank_scale": 0.1}, "mean": 0.5, "low": None, "high": None}]}
UNMADE = TABLE | {"folds": 0, "rows": 0, "notes": ["there are too few rows"]}
UNMADE |= {"tried": [{"values": {"C": 1.0}, "mean": None, "low": None, "high": None}]}
LIES = {
    "C missing": ({"C": None}, "C must be a positive number; got None"),
    "C text": ({"C": "1.0"}, "C must be a positive number; got '1.0'"),
    "C zero": ({"C": 0.0}, "C must be a positive number; got 0.0"),
    "C negative": ({"C": -1}, "C must be a positive number; got -1"),
    "C infinite": ({"C": math.inf}, "C must be a positive number; got inf|finite"),
    "C not a number": ({"C": math.nan}, "C must be a positive number; got nan|finite"),
    "C truth": ({"C": True}, "C must be a positive number; got True"),
    "C list": ({"C": [1.0]}, "C must be a positive number"),
    "C auto": ({"C": "auto"}, "C must be a positive number; got 'auto'"),
    "rank_scale text": ({"rank_scale": "auto"}, "rank_scale is 'auto', not a number"),
    "rank_scale negative": ({"rank_scale": -0.5}, "rank_scale is -0.5, not a number"),
    "table text": ({"tuning": "rank_scale"}, "damaged"),
    "table list": ({"tuning": []}, "damaged"),
    "table empty": ({"tuning": {}}, "damaged"),
    "no value": ({"tuning": TABLE | {"tried": []}}, "tuning record has an invalid structure"),
    "no name": ({"tuning": TABLE | {"params": []}}, "tuning record has an invalid structure"),
    "other name": ({"tuning": TABLE | {"params": ["q"]}}, "values without a parameter name"),
    "further key": ({"tuning": TABLE | {"more": 1}}, "tuning record has an invalid structure"),
    "best outside": ({"tuning": TABLE | {"best": 1}}, "is number 1, but 1 values were tried"),
    "best negative": ({"tuning": TABLE | {"best": -1}}, "index of the best value must be an integer"),
    "best truth": ({"tuning": TABLE | {"best": True}}, "index of the best value must be an integer"),
    "folds negative": ({"tuning": TABLE | {"folds": -1}}, "number of folds must be an integer"),
    "rows of no folds": ({"tuning": UNMADE | {"rows": 20}}, "has no folds, but rows or values that were measured"),
    "values of no folds": ({"tuning": TABLE | {"folds": 0, "rows": 0}}, "has no folds, but rows or values"),
    "rows of one fold": ({"tuning": TABLE | {"rows": -5}}, "number of held-out rows must be an integer"),
    "value text": (
        {"tuning": TABLE | {"tried": [{"values": {"C": "big"}, "mean": 0.5, "low": None, "high": None}]}},
        "values in the tuning record must be numbers",
    ),
    "not measured": (
        {"tuning": TABLE | {"tried": [{"values": {"C": 1.0}, "mean": None, "low": None, "high": None}]}},
        "best value in the tuning record was not measured",
    ),
    "inside text": ({"tuning": TABLE | {"rank_scale": "none"}}, "damaged"),
    "inside list": ({"tuning": TABLE | {"rank_scale": [1]}}, "damaged"),
    "inside best": ({"tuning": TABLE | {"rank_scale": INSIDE | {"best": 9}}}, "is number 9, but 1 values were tried"),
    "inside inside": (
        {"tuning": TABLE | {"rank_scale": INSIDE | {"rank_scale": INSIDE}}},
        "tuning record has an invalid structure",
    ),
    "decision text": ({"decision": "sign"}, "damaged"),
    "decision empty": ({"decision": {}}, "damaged"),
    "decision threshold": ("threshold", math.nan),
    "decision q": ("q", -1.0),
    "decision objective": ("objective", "accuracy"),
    "decision rows": ("n_rows", -1),
    "decision of no rows": ("n_rows", 0),
    "decision limits": ("max_labels", 0),
}


@pytest.fixture(scope="module")
def stored_state():
    options = {"decision": "threshold", "tune_decision": True}
    return OneVsAllClassifier(C=AUTO, rank_scale=AUTO, **options).fit(X, Y).to_state()


@pytest.mark.parametrize("lie", LIES)
def test_a_stored_choice_that_means_nothing_is_refused(stored_state, tmp_path, lie):
    changed, message = LIES[lie]
    if isinstance(changed, str):
        changed, message = {"decision": stored_state.attributes["decision"] | {changed: message}}, f"{changed}|finite"
    write_model(tmp_path, stored_state)
    manifest = json.loads((tmp_path / "model.json").read_text())
    manifest["attributes"] |= changed
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("table", [TABLE, UNMADE, TABLE | {"rank_scale": INSIDE}], ids=["C", "not made", "both"])
def test_a_table_in_the_right_form_is_accepted(stored_state, tmp_path, table):
    write_model(tmp_path, replace(stored_state, attributes=stored_state.attributes | {"tuning": table}))
    assert load(tmp_path).tuning_ == table


def test_the_number_for_auto_must_be_there_and_finite(stored_state, tmp_path):
    attributes = {name: value for name, value in stored_state.attributes.items() if name != "C"}
    write_model(tmp_path, replace(stored_state, attributes=attributes))
    with pytest.raises(ModelFormatError, match="'C' is missing"):
        load(tmp_path)
    write_model(tmp_path, replace(stored_state, attributes=attributes | {"C": math.inf}))
    with pytest.raises(ModelFormatError, match="C must be a positive number; got inf"):
        load(tmp_path)


# Training into a folder


def contents(folder):
    """The bytes of a model folder by file."""
    return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}


TRAINED = {
    "C": OneVsAllClassifier(C=AUTO),
    "everything": OneVsAllClassifier(
        C=AUTO, rank_scale=AUTO, decision="threshold", tune_decision=True, per_label_thresholds=True
    ),
    "unit rows": OneVsAllClassifier(C=AUTO, rank_scale=AUTO, normalize=True, prune=0.01),
}


@pytest.mark.parametrize("case", TRAINED)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_shards_make_the_same_choice_and_the_same_bytes(tmp_path, case, kind):
    rows = sp.csr_array(X * (np.abs(X) > 0.7)).astype(np.float32) if kind == "sparse" else X
    model = train(TRAINED[case], (rows, Y), tmp_path / "memory")
    parts = train(TRAINED[case], (rows, Y), tmp_path / "shards", shard_size=2)
    save(clone(TRAINED[case]).fit(rows, Y), tmp_path / "fit")
    assert parts.tuning_ == model.tuning_
    assert parts.C == AUTO
    assert contents(tmp_path / "shards") == contents(tmp_path / "memory") == contents(tmp_path / "fit")


def test_other_families_choose_in_train_as_well(tmp_path):
    groups = np.arange(200) // 3
    for name, (estimator, y) in ONE_OF_EACH.items():
        estimator = clone(estimator).set_params(C=AUTO)
        trained = train(estimator, (X, y), tmp_path / name, groups=groups)
        assert trained.tuning_ == clone(estimator).fit(X, y, groups=groups).tuning_
        assert load(tmp_path / name).C_ == trained.C_


class StopsInShards:
    """A callback that stops the first training in shards, after the choice."""

    def __init__(self):
        self.is_choosing = True

    def __call__(self, progress):
        return not self.is_choosing


def test_a_stopped_training_continues_with_the_values_of_the_first_run(tmp_path, monkeypatch):
    expected = train(TRAINED["everything"], (X, Y), tmp_path / "whole")
    callback, choose = StopsInShards(), folder_training.choose_for_lists

    def choose_then_stop(*args, **options):
        choice = choose(*args, **options)
        callback.is_choosing = False
        return choice

    monkeypatch.setattr(folder_training, "choose_for_lists", choose_then_stop)
    stopped = clone(TRAINED["everything"]).set_params(callback=callback)
    with pytest.raises(UnfinishedTrainingError, match="of 4 labels are done"):
        train(stopped, (X, Y), tmp_path / "parts", shard_size=1)
    (kept,) = (tmp_path / "parts").rglob("chosen.json")
    assert json.loads(kept.read_text())["params"] == {"C": expected.C_, "rank_scale": expected.rank_scale_}
    monkeypatch.setattr(folder_training, "choose_for_lists", lambda *args, **options: pytest.fail("chosen again"))
    train(TRAINED["everything"], (X, Y), tmp_path / "parts", shard_size=1)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert not list((tmp_path / "parts").rglob("chosen.json"))


@pytest.mark.parametrize("stop", ["time limit", "time limit of the callback", "callback"])
def test_a_stop_during_the_choice_keeps_nothing_of_it(tmp_path, stop):
    estimator, rows, limit = OneVsAllClassifier(C=AUTO), (LARGER_X, LARGER_Y), {}
    if stop == "time limit":
        limit = {"time_limit_s": 0.0}
    callbacks = {"time limit of the callback": TimeLimit(0.0), "callback": lambda progress: True}
    reason = "the callback stopped training" if stop == "callback" else "the time limit was reached"
    with pytest.raises(UnfinishedTrainingError, match=f"{reason} while parameters were being chosen; run it again"):
        train(clone(estimator).set_params(callback=callbacks.get(stop)), rows, tmp_path / "a", shard_size=1, **limit)
    assert not list((tmp_path / "a").rglob("chosen.json"))
    assert not list((tmp_path / "a").rglob("*.npz"))
    train(estimator, rows, tmp_path / "a", shard_size=1)
    train(estimator, rows, tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_choice_among_the_first_values_is_not_kept(tmp_path, stop_after):
    stopped = OneVsAllClassifier(C=AUTO, callback=stop_after(2))
    with pytest.raises(UnfinishedTrainingError, match="the callback stopped training while parameters were being"):
        train(stopped, (LARGER_X, LARGER_Y), tmp_path / "a", shard_size=1)
    assert not list((tmp_path / "a").rglob("chosen.json"))
    model = train(OneVsAllClassifier(C=AUTO), (LARGER_X, LARGER_Y), tmp_path / "a", shard_size=1)
    assert model.tuning_ == OneVsAllClassifier(C=AUTO).fit(LARGER_X, LARGER_Y).tuning_


def test_the_time_limit_covers_the_choice_and_the_shards(tmp_path, monkeypatch):
    now, choose = [1000.0], folder_training.choose_for_lists
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def take_long(*args, **options):
        choice = choose(*args, **options)
        now[0] += 60.0
        return choice

    monkeypatch.setattr(folder_training, "choose_for_lists", take_long)
    with pytest.raises(UnfinishedTrainingError, match="the time limit was reached; "):
        train(OneVsAllClassifier(C=AUTO), (X, Y), tmp_path, shard_size=1, time_limit_s=50.0)
    assert list(tmp_path.rglob("chosen.json"))  # it was finished


def test_groups_are_part_of_what_a_training_is(tmp_path):
    estimator, groups = OneVsAllClassifier(C=AUTO), np.arange(300) // 3
    stopped = clone(estimator).set_params(callback=lambda progress: True)
    with pytest.raises(UnfinishedTrainingError):
        train(stopped, (LARGER_X, LARGER_Y), tmp_path, shard_size=1, groups=groups)
    for others in (None, np.arange(300) // 2):
        with pytest.raises(WidemarginError, match="unfinished training run with different settings"):
            train(estimator, (LARGER_X, LARGER_Y), tmp_path, shard_size=1, groups=others)
    model = train(estimator, (LARGER_X, LARGER_Y), tmp_path, shard_size=1, groups=groups.tolist())
    assert model.tuning_ == clone(estimator).fit(LARGER_X, LARGER_Y, groups=groups).tuning_


@pytest.mark.parametrize("shard_size", [None, 2])
def test_wrong_groups_of_train_are_errors_and_leave_no_folder(tmp_path, shard_size):
    for groups, C, message in ((np.arange(9), AUTO, "groups"), (np.arange(200), 1.0, "groups has no effect")):
        with pytest.raises(ValueError, match=message):
            train(OneVsAllClassifier(C=C), (X, Y), tmp_path / "new", shard_size=shard_size, groups=groups)
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("number", [np.float32(0.25), np.int64(1), 1])
def test_numbers_of_any_type_can_be_beside_a_choice(tmp_path, number):
    estimator = OneVsAllClassifier(C=number, rank_scale=AUTO)
    model = train(estimator, (X, Y), tmp_path, shard_size=2)
    assert float(number) == model.C_
    assert model.tuning_ == clone(estimator).fit(X, Y).tuning_


@pytest.mark.parametrize("shard_size", [None, 2])
def test_the_table_of_an_earlier_fit_is_not_that_of_the_training(tmp_path, shard_size):
    for estimator in (OneVsAllClassifier(C=AUTO, rank_scale=AUTO), OneVsAllClassifier(rank_scale=AUTO)):
        estimator.fit(X[::2], Y[::2])
        model = train(estimator, (X, Y), tmp_path, shard_size=shard_size)
        assert model.tuning_ == clone(estimator).fit(X, Y).tuning_


# Paths, calibration, and what is refused


def test_a_path_over_something_else_requires_a_number_for_C():
    with pytest.raises(ValueError, match="path varies other parameters, but C is 'auto'; pass Cs, or give C a number"):
        path(TopKClassifier(C=AUTO), X, CLASSES, ks=[1, 2])
    with pytest.raises(ValueError, match="C is 'auto'; pass Cs"):
        path(OneVsAllClassifier(C=AUTO), X, Y, param="tol", values=[0.1, 0.01])


def test_a_path_of_C_replaces_auto_and_has_no_rank_scale():
    found = path(OneVsAllClassifier(C=AUTO, rank_scale=AUTO), X, Y, Cs=[0.1, 1.0])
    plain = path(OneVsAllClassifier(), X, Y, Cs=[0.1, 1.0])
    assert [model.C_ for model in found.models.values()] == [0.1, 1.0]
    for model, other in zip(found.models.values(), plain.models.values(), strict=True):
        assert model.rank_scale_ == 0.0
        assert not hasattr(model, "tuning_")
        assert_array_equal(model.coef_, other.coef_)


@pytest.mark.parametrize("family", ["one-vs-all", "top-k", "code", "learned code", "tree"])
def test_the_folds_of_a_calibration_take_the_chosen_numbers(chosen, monkeypatch, family):
    model, (_, with_numbers, y) = copy.deepcopy(chosen(family)), FAMILIES[family]
    monkeypatch.setattr(tuning, "stratified_split", lambda *args, **options: pytest.fail("chosen again"))
    model.calibrate(X, y, cv=3)
    other = with_numbers(model).fit(X, y).calibrate(X, y, cv=3)
    assert_array_equal(model.predict_proba(X), other.predict_proba(X))


def test_the_folds_of_a_calibration_choose_no_rule(monkeypatch):
    model = OneVsAllClassifier(C=AUTO, decision="threshold", tune_decision=True).fit(X, Y)
    rule = model.decision_
    monkeypatch.setattr(tuning, "stratified_split", lambda *args, **options: pytest.fail("chosen again"))
    assert model.calibrate(X, Y, cv=3).decision_ is rule


@pytest.mark.parametrize("inner", [OneVsAllClassifier(C=AUTO), OneVsAllClassifier(rank_scale=AUTO)])
def test_an_output_code_refuses_auto_inside(inner):
    for C in (1.0, AUTO):
        with pytest.raises(ValueError, match="C and rank_scale of the estimator must be numbers; use C='auto' of Out"):
            OutputCodeClassifier(inner, C=C).fit(X, CLASSES)


def test_an_output_code_of_classifiers_without_C_refuses_auto():
    with pytest.raises(ValueError, match="OutputCodeClassifier: C applies only to codes with"):
        OutputCodeClassifier(RidgeClassifier(), C=AUTO).fit(X, CLASSES)


def test_an_output_code_leaves_the_classifier_it_was_given():
    inner = OneVsAllClassifier(C=7.0, tol=0.1)
    model = OutputCodeClassifier(inner, C=AUTO, random_state=0).fit(X, CLASSES)
    assert model.estimator is inner
    assert (inner.C, inner.tol) == (7.0, 0.1)
    other = OutputCodeClassifier(OneVsAllClassifier(C=model.C_, tol=0.1), random_state=0).fit(X, CLASSES)
    assert_array_equal(model.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("kind", [TopKClassifier, HierarchicalClassifier])
def test_a_precomputed_kernel_refuses_auto(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: C='auto' cannot hold out rows of kernel='precomputed'"):
        kind(C=AUTO, kernel="precomputed").fit(X @ X.T, NAMES[CLASSES])


def test_a_tree_of_a_taxonomy_with_an_indicator_counts_rows_with_a_label_found():
    taxonomy = Taxonomy.from_nested({"all": {"first": [0, 1], "second": [2, 3]}})
    some = Y.toarray().any(axis=1)
    model = HierarchicalClassifier(C=AUTO, taxonomy=taxonomy, tol=0.01, random_state=0).fit(X[some], Y[some])
    assert model.tuning_["metric"] == "share of rows with one label found"
    train_rows, test_rows = held_out(Y[some])
    fitted = clone(model).set_params(C=model.C_).fit(X[some][train_rows], Y[some][train_rows])
    truth = Y[some].toarray()[test_rows]
    expected = truth[np.arange(len(truth)), fitted.predict(X[some][test_rows])].mean()
    assert curve(model.tuning_)[model.C_] == pytest.approx(expected, abs=0.06)
    assert model.taxonomy is taxonomy


def test_labels_of_inner_nodes_and_of_few_rows_can_be_chosen_with():
    y = NAMES[CLASSES].astype(object)
    y[:30], y[30] = "a", "c/z"
    model = HierarchicalClassifier(C=AUTO, tol=0.01, random_state=0).fit(X, y)
    assert model.tuning_["folds"] == 1
    assert "c/z" in model.classes_.tolist()
