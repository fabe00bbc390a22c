"""Comparisons: all methods that fit the labels are tried, intervals come from the rows, the budget is kept."""

from __future__ import annotations

import itertools
import statistics
import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score

from widemargin import OneVsAllClassifier, Taxonomy, compare
from widemargin.comparison import Comparison, MethodResult
from widemargin.comparison.candidates import Candidate, candidates_for
from widemargin.comparison.compare import TRIAL_VALUES, Clock, make_plan, trial_rows
from widemargin.comparison.measure import Cost, interval_of, metrics_for, row_outcomes
from widemargin.metrics import hierarchical_f1, tree_induced_loss


@pytest.fixture(scope="module")
def four_classes():
    rng = np.random.default_rng(0)
    y = np.array(["a1", "a2", "b1", "b2"])[np.arange(160) % 4]
    X = np.eye(4)[np.arange(160) % 4] + 0.3 * rng.normal(size=(160, 4))
    return X, y


TREE = Taxonomy.from_edges([("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("a", "root"), ("b", "root")])


def test_the_methods_are_those_that_fit_the_labels():
    assert [c.name for c in candidates_for("multilabel", 9, None)] == [
        "one-vs-all, squared hinge",
        "one-vs-all, logistic",
    ]
    flat = [c.name for c in candidates_for("multiclass", 9, None)]
    on_tree = [c.name for c in candidates_for("multiclass", 9, TREE)]
    assert flat == ["one-vs-all", "top-k, k = 1", "top-k", "output-code"]
    assert set(on_tree) - set(flat) == {"orthogonal", "per-node", "similarity", "tree-loss"}
    inner = {c.name: c.estimator for c in candidates_for("multiclass", 9, TREE, has_inner_labels=True)}
    stopping = {f"{method}, stop" for method in ("orthogonal", "per-node", "similarity")}
    assert set(inner) - set(on_tree) == stopping
    assert all(inner[name].stop and inner[name].method == name.partition(",")[0] for name in stopping)
    assert inner["tree-loss"].outputs == "all"
    assert candidates_for("multiclass", 5, None)[2].ks == (3,)  # only k below the number of classes


def test_methods_are_chosen_by_name_and_unknown_ones_are_refused():
    assert [c.name for c in candidates_for("multiclass", 9, None, methods=["top-k"])] == ["top-k, k = 1", "top-k"]
    with pytest.raises(
        ValueError, match="'orthogonal' is not available for these labels; use one of: 'one-vs-all', 'top-k, k = 1'"
    ):
        candidates_for("multiclass", 9, None, methods=["one-vs-all", "orthogonal"])


@pytest.mark.slow
def test_every_method_of_a_tree_is_measured_on_the_same_rows(four_classes):
    X, y = four_classes
    result = compare(X, y, taxonomy=TREE, cv=2)
    assert {method.name for method in result.methods} >= {"orthogonal", "one-vs-all", "output-code", "top-k"}
    assert {len(rows) for rows in result.outcomes.values()} == {160}
    for method in result.methods:
        assert method.quality["top_k_accuracy@1"].mean == pytest.approx(result.outcomes[method.name].mean())
        assert method.quality["top_k_accuracy@1"].mean > 0.7
        assert -1e-12 <= method.relative_gap <= 2e-3  # rounding may leave the bounds slightly crossed
        assert method.cost.model_bytes > 0
        assert not method.stopped
    means = [method.quality[result.metric].mean for method in result.methods]
    assert means == sorted(means, reverse=True)


def test_several_labels_a_row_are_compared_by_precision():
    rng = np.random.default_rng(1)
    Y = sp.csr_array((rng.random((150, 6)) < 0.3).astype(np.float64))
    X = sp.csr_array(Y.toarray() @ rng.normal(size=(6, 12)) + 0.1 * rng.normal(size=(150, 12)))
    result = compare(X[:100], Y[:100], X_test=X[100:], y_test=Y[100:])
    assert result.metric == "precision@1"
    assert len(result.outcomes["one-vs-all, logistic"]) == 50
    assert result.about["folds"] == 1
    assert set(result.best.parameters) == {"C"}


class _Listed:
    """A model that predicts given lists of labels."""

    def __init__(self, kind, indices, classes):
        self.kind_, self.classes_, self.indices = kind, np.array(classes), np.array(indices)

    def predict_topk(self, X, k):
        class Top:
            indices = self.indices[:, :k]

        return Top


def test_outcomes_are_hits_within_the_first_places_and_unknown_labels_are_misses():
    model = _Listed("multiclass", [[0, 1], [1, 2], [2, 0]], ["x", "y", "z"])
    metrics = metrics_for("multiclass", 3, "top_k_accuracy@2")[:2]
    found = row_outcomes(model, np.zeros((3, 1)), np.array(["y", "y", "new"]), metrics)
    np.testing.assert_array_equal(found, [[1, 0], [1, 1], [0, 0]])


def test_in_a_tree_only_the_label_itself_is_right_unless_asked_otherwise():
    model = _Listed("multiclass", [[0, 1], [2, 0], [1, 2]], ["a1", "a", "b1"])
    y = np.array(["a", "a", "b"])
    exact = metrics_for("multiclass", 3, "top_k_accuracy@2")[:2]
    np.testing.assert_array_equal(row_outcomes(model, np.zeros((3, 1)), y, exact, TREE), [[1, 0], [0, 0], [0, 0]])
    below = [metrics_for("multiclass", 3, f"at_or_below@{k}", on_tree=True)[0] for k in (2, 1)]
    found = row_outcomes(model, np.zeros((3, 1)), y, below, TREE)
    np.testing.assert_array_equal(found, [[1, 1], [1, 0], [1, 0]])  # a1 is below a, b1 below b, a not below a1


@pytest.mark.parametrize("several", [False, True])
def test_outcomes_in_a_tree_have_the_means_of_the_metrics(several):
    rng = np.random.default_rng(0)
    tree = Taxonomy.from_parents({node: int(rng.integers(0, node)) for node in range(1, 20)}, root=0)
    names = rng.permutation(np.arange(1, 20))[:12]
    listed = np.array([rng.permutation(12)[:3] for _ in range(80)])
    model = _Listed("multiclass", listed.tolist(), sorted(names.tolist()))
    guess = [sorted(names.tolist())[place] for place in listed[:, 0]]
    y = rng.integers(1, 20, 80)
    sets = [{int(label), *rng.integers(1, 20, rng.integers(0, 3)).tolist()} for label in y]
    found = row_outcomes(
        model, np.zeros((80, 1)), sets if several else y, metrics_for("multiclass", 12, None, on_tree=True)[:3], tree
    )
    assert found.shape == (80, 3)
    if several:
        # Labels that are ancestors of another label of the row add nothing.
        specific = [{a for a in row if not any(a != b and a in tree.path(b) for b in row)} for row in sets]
        exact = np.mean([p in labels for p, labels in zip(guess, specific, strict=True)])
        loss = np.mean(
            [min(tree_induced_loss([a], [p], tree) for a in row) for p, row in zip(guess, specific, strict=True)]
        )
        f1 = hierarchical_f1(sets, [{p} for p in guess], tree)
    else:
        exact, loss, f1 = accuracy_score(y, guess), tree_induced_loss(y, guess, tree), hierarchical_f1(y, guess, tree)
    np.testing.assert_allclose(found.mean(axis=0), [exact, f1, loss], rtol=1e-12)


def test_the_spread_of_hierarchical_f1_is_that_of_resampled_rows():
    rng = np.random.default_rng(0)
    classes = ["a1", "a2", "b1", "b2", "a"]
    listed = rng.integers(0, 5, (400, 1))
    y = np.where(rng.random(400) < 0.6, np.array(classes)[listed[:, 0]], rng.choice(classes, 400))
    model = _Listed("multiclass", listed.tolist(), classes)
    (measured, *_) = metrics_for("multiclass", 5, "hierarchical_f1", on_tree=True)
    interval = interval_of(row_outcomes(model, np.zeros((400, 1)), y, [measured], TREE)[:, 0])
    guess = np.array(classes)[listed[:, 0]]
    drawn = [rng.integers(0, 400, 400) for _ in range(400)]
    spread = np.std([hierarchical_f1(y[rows], guess[rows], TREE) for rows in drawn])
    assert interval.mean == pytest.approx(hierarchical_f1(y, guess, TREE))
    assert (interval.high - interval.mean) / 1.96 == pytest.approx(spread, rel=0.15)


def test_labels_that_are_not_in_the_tree_are_misses():
    model = _Listed("multiclass", [[0], [1], [2]], ["a1", "b1", "elsewhere"])
    measured = metrics_for("multiclass", 3, None, on_tree=True)[:3]
    found = row_outcomes(model, np.zeros((3, 1)), np.array(["new", "a1", "elsewhere"]), measured, TREE)
    np.testing.assert_array_equal(found[:, 0], [0, 0, 1])
    np.testing.assert_array_equal(found[:, 2], [1.5, 2.0, 0.0])  # half the number of steps through the root


@pytest.mark.slow
def test_rows_on_inner_nodes_are_decided_exactly_and_tried_with_stop():
    """Half of the rows are labelled with an inner node; by the paper's rule, methods that predict leaves would win."""
    rng = np.random.default_rng(0)
    classes = np.array(["a1", "a2", "a", "b1", "b2", "b"])
    which = np.tile([0, 1, 2, 2, 3, 4, 5, 5], 40)
    centre = np.array([[2, 0, 0, 0], [0, 2, 0, 0], [1.2, 1.2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2], [0, 0, 1.2, 1.2]])
    X, y = centre[which] + 0.4 * rng.normal(size=(320, 4)), classes[which]
    held_out = {"X_test": X[200:], "y_test": y[200:]}
    methods = ["one-vs-all", "per-node", "orthogonal, stop"]
    result = compare(X[:200], y[:200], taxonomy=TREE, methods=methods, **held_out)
    assert result.metric == "top_k_accuracy@1"
    means = {method.name: {name: value.mean for name, value in method.quality.items()} for method in result.methods}
    assert set(means) == {"one-vs-all", "per-node", "per-node, stop", "orthogonal, stop"}
    for method in result.methods:
        predicted = method.estimator.fit(X[:200], y[:200]).predict(X[200:])
        found = means[method.name]
        assert found["top_k_accuracy@1"] == pytest.approx(accuracy_score(y[200:], predicted))
        assert found["hierarchical_f1"] == pytest.approx(hierarchical_f1(y[200:], predicted, TREE))
        assert found["tree_loss"] == pytest.approx(tree_induced_loss(y[200:], predicted, TREE))
    assert means["per-node"]["top_k_accuracy@1"] <= 0.5  # it cannot predict an inner node
    assert means["per-node, stop"]["top_k_accuracy@1"] > 0.6
    assert result.recommended.name != "per-node"
    by_f1 = compare(X[:200], y[:200], taxonomy=TREE, methods=methods, metric="hierarchical_f1", **held_out)
    assert by_f1.metric == "hierarchical_f1"
    assert by_f1.recommended.name != "per-node"
    below = compare(X[:200], y[:200], taxonomy=TREE, methods=["per-node"], metric="at_or_below@1", **held_out)
    best = below.best.estimator.fit(X[:200], y[:200]).score(X[200:], y[200:], at_or_below=True)
    assert below.best.quality["at_or_below@1"].mean == pytest.approx(best)


def test_a_metric_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"metric must be precision@k with k up to 4"):
        metrics_for("multilabel", 4, "top_k_accuracy@1")
    with pytest.raises(ValueError, match=r"k up to 4, such as top_k_accuracy@5; got 'top_k_accuracy@9'"):
        metrics_for("multiclass", 4, "top_k_accuracy@9")
    for name in ("hierarchical_f1", "at_or_below@1", "tree_loss"):
        with pytest.raises(ValueError, match="metric must be top_k_accuracy@k"):
            metrics_for("multiclass", 4, name)
    with pytest.raises(ValueError, match="for labels in a tree, hierarchical_f1 or at_or_below@k; got 'tree_loss'"):
        metrics_for("multiclass", 4, "tree_loss", on_tree=True)
    assert metrics_for("multiclass", 4, "accuracy")[0].name == "top_k_accuracy@1"


def test_the_interval_is_that_of_a_mean():
    outcomes = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    half = 1.96 * np.sqrt(0.75 * 0.25 * 8 / 7 / 8)  # p (1 − p), unbiased
    found = interval_of(outcomes)
    assert found.mean == 0.75
    assert found.high - found.mean == pytest.approx(half, rel=1e-4)
    assert found.mean - found.low == pytest.approx(half, rel=1e-4)


def _comparison(outcomes, cpu, stopped=()):
    methods = [
        MethodResult(name, None, {}, {"m": interval_of(rows)}, Cost(cpu[name], 0.0, 1, 0.0), 0.0, name in stopped)
        for name, rows in outcomes.items()
    ]
    methods.sort(key=lambda method: -method.quality["m"].mean)
    return Comparison(tuple(methods), outcomes, "m", {}, {})


def test_the_recommendation_is_the_best_or_one_as_good_that_is_much_cheaper():
    rng = np.random.default_rng(2)
    good = (rng.random(400) < 0.8).astype(float)
    twin = good.copy()
    twin[np.flatnonzero(good)[:2]] = 0.0  # half a point, within chance
    bad = good.copy()
    bad[np.flatnonzero(good)[:80]] = 0.0
    result = _comparison({"good": good, "twin": twin, "bad": bad}, {"good": 9.0, "twin": 3.0, "bad": 1.0})
    assert result.best.name == "good"
    assert [m.name for m in result.as_good_as_the_best] == ["good", "twin"]
    assert result.recommended.name == "twin"
    assert "0.5 points" in result.recommendation
    assert "3.0 times the CPU time" in result.recommendation
    for cpu in ({"good": 9.0, "twin": 8.9}, {"good": 9.0, "twin": 4.6}, {"good": 0.09, "twin": 0.01}):
        dear = _comparison({"good": good, "twin": twin, "bad": bad}, cpu | {"bad": 0.001})
        assert dear.recommended.name == "good"  # the other method does not save enough
        assert "no statistically equivalent method saves much CPU time" in dear.recommendation
    alone = _comparison({"good": good, "bad": bad}, {"good": 9.0, "bad": 1.0})
    assert alone.recommended.name == "good"
    assert "20.0 points" in alone.recommendation


def test_the_estimator_has_the_values_that_most_folds_chose():
    y = np.arange(90) % 3
    X = np.eye(3)[y] + 0.8 * np.random.default_rng(6).normal(size=(90, 3))
    method = compare(X, y, methods=["one-vs-all"], cv=5).methods[0]
    chosen = method.parameters["C"]
    assert len(set(chosen)) > 1
    assert chosen[-1] != statistics.mode(chosen)
    assert statistics.mode(chosen) == method.estimator.C


def test_a_method_that_was_stopped_is_recommended_only_if_no_finished_one_is_as_good():
    good, bad = np.repeat([1.0, 0.0], [90, 10]), np.repeat([1.0, 0.0], [50, 50])
    twin = np.repeat([1.0, 0.0], [89, 11])
    cpu = {"good": 1.0, "twin": 5.0, "bad": 9.0}
    result = _comparison({"good": good, "bad": bad}, cpu, stopped=["good"])
    assert result.recommended.name == "good"
    assert "its fits were stopped by the budget, so more time may improve it" in result.recommendation
    near = _comparison({"good": good, "twin": twin, "bad": bad}, cpu, stopped=["good"])
    assert near.recommended.name == "twin"
    assert "good has the best m (0.900), but leads by only 1.0 points" in near.recommendation
    assert "was stopped by the budget" in near.recommendation
    both = _comparison({"good": good, "twin": twin}, cpu, stopped=["good", "twin"])
    assert both.recommended.name == "good"


def test_a_method_dearer_than_all_others_is_left_out_before_rows_are():
    methods = [Candidate(name, OneVsAllClassifier(), (1.0,)) for name in ("cheap", "also cheap", "dear")]
    plan = make_plan(methods, [1.0, 2.0, 40.0], 5, 100_000, budget=30.0)
    assert [candidate.name for candidate in plan.candidates] == ["cheap", "also cheap"]
    assert (plan.seconds, plan.n_folds, plan.share) == ((1.0, 2.0), 5, 1.0)
    assert plan.dropped == {"dear": "it would take about 40 s per fold, which exceeds the budget"}
    two = make_plan(methods[1:], [2.0, 40.0], 5, 100_000, budget=30.0)
    assert (len(two.candidates), two.n_folds, two.dropped) == (2, 1, {})
    assert two.share == pytest.approx(0.7 * 30.0 / 42.0)
    assert make_plan(methods, [1.0, 2.0, 40.0], 5, 100_000, budget=None).dropped == {}


@pytest.mark.slow
def test_a_trial_has_rows_and_values_enough_to_tell_the_cost():
    rng = np.random.default_rng(0)
    X = sp.random_array((30_000, 500), density=0.04, random_state=rng, format="csr")  # 20 values per row
    y = np.arange(30_000) % 3
    (few, y_few), overhead = trial_rows(X, y, 24_000, "multiclass", 0, None)
    assert TRIAL_VALUES < few.nnz < 1.5 * TRIAL_VALUES
    assert (few.shape[0], overhead) == (len(y_few), 0.0)
    few, _ = trial_rows(X[:3000], y[:3000], 2400, "multiclass", 0, None)[0]  # all of it
    assert 2400 <= few.shape[0] <= 2403  # each class keeps at least one row
    few, _ = trial_rows(np.zeros((5000, 300)), y[:5000], 4000, "multiclass", 0, None)[0]
    assert 1000 <= few.shape[0] <= 1003


def test_a_short_budget_thins_the_grid_then_the_folds_then_the_rows():
    candidate = Candidate("m", None, (0.01, 0.1, 1.0, 10.0), (10, 5, 3))
    plans = [make_plan([candidate], [1.0], 5, 100_000, budget) for budget in (None, 20.0, 6.0, 1.0)]
    assert [plan.n_folds for plan in plans] == [5, 5, 2, 1]
    assert [plan.candidates[0].n_fits for plan in plans] == [12, 2, 2, 2]
    assert [plan.share for plan in plans[:3]] == [1.0, 1.0, 1.0]
    assert 0.005 <= plans[3].share < 0.5
    assert all(plan.total <= budget for plan, budget in zip(plans[1:], (20.0, 6.0, 1.0), strict=True))


def test_a_short_budget_cuts_the_comparison_and_the_result_says_so(monkeypatch):
    rng = np.random.default_rng(3)
    y, X = rng.integers(0, 5, 2000), rng.normal(size=(2000, 10))
    slow = SimpleNamespace(monotonic=itertools.count(0.0, 10.0).__next__)  # every trial takes ten seconds
    monkeypatch.setattr(sys.modules["widemargin.comparison.compare"], "time", slow)
    seen = []
    result = compare(X, y, methods=["one-vs-all", "top-k"], budget=2.0, report=lambda *what: seen.append(what))
    assert result.about["share_of_rows"] < 0.5
    assert len(result.methods) + len(result.not_tried) == 3
    assert all(0.0 <= elapsed <= total for _, elapsed, total in seen)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cv": 1}, "at least 2"),
        ({"budget": 0.0}, "positive number of seconds"),
        ({"X_test": np.zeros((1, 4))}, "pass both or neither"),
    ],
)
def test_wrong_arguments_are_an_error_before_any_work(four_classes, arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(*four_classes, **arguments)


def test_progress_is_reported_with_an_estimate_of_the_whole(four_classes):
    seen = []
    compare(*four_classes, methods=["top-k"], cv=2, report=lambda *what: seen.append(what))
    assert [what for what, _, _ in seen] == [f"{name}, fold {n}" for n in (1, 2) for name in ("top-k, k = 1", "top-k")]
    assert all(0.0 <= elapsed <= total for _, elapsed, total in seen)


def test_labels_above_others_are_predicted_by_every_method_of_the_tree(four_classes):
    X, y = four_classes
    y = np.where(np.arange(160) % 10 == 0, "a", y)  # an inner node
    result = compare(X, y, taxonomy=TREE, cv=2, methods=["tree-loss", "top-k, k = 1"])
    assert {method.name for method in result.methods} == {"tree-loss", "top-k, k = 1"}
    assert result.not_tried == {}


def test_a_method_that_cannot_be_fitted_is_listed_with_the_reason(four_classes):
    X, y = four_classes
    y = np.where(y == "b2", "elsewhere", y)  # not in the tree
    result = compare(X, y, taxonomy=TREE, cv=2, methods=["orthogonal", "one-vs-all"])
    assert [method.name for method in result.methods] == ["one-vs-all"]
    assert "elsewhere" in result.not_tried["orthogonal"]


@pytest.mark.parametrize("form", ["lists", "sparse", "dense"])
def test_lists_of_exactly_one_label_are_classes(four_classes, form):
    X, y = four_classes
    classes = np.unique(y)
    indicator = (y[:, None] == classes).astype(int)
    given = {"lists": [[label] for label in y], "sparse": sp.csr_array(indicator), "dense": indicator}[form]
    as_classes = compare(X, y, cv=2, methods=["top-k, k = 1"])
    as_lists = compare(X, given, cv=2, methods=["top-k, k = 1"])
    assert as_lists.metric == "top_k_accuracy@1"
    assert as_lists.about["lists_of_one_label"]
    assert not as_classes.about["lists_of_one_label"]
    for name, outcomes in as_classes.outcomes.items():
        np.testing.assert_array_equal(as_lists.outcomes[name], outcomes)


def test_one_row_with_two_labels_or_none_makes_lists_lists_again(four_classes):
    X, y = four_classes
    for odd in (["a1", "b1"], []):
        lists = [[label] for label in y[:-1]] + [odd]
        result = compare(X, lists, cv=2)
        assert {method.name for method in result.methods} == {"one-vs-all, squared hinge", "one-vs-all, logistic"}
        assert not result.about["lists_of_one_label"]


def test_lists_of_test_rows_decide_too_and_unknown_labels_are_misses(four_classes):
    X, y = four_classes
    lists = [[label] for label in y]
    options = {"methods": ["one-vs-all"], "X_test": X[:8]}
    several = compare(X, lists, **options, y_test=[["a1", "b1"], *lists[1:8]])
    assert several.metric == "precision@1"
    all_known = compare(X, lists, **options, y_test=lists[:8])
    some_new = compare(X, lists, **options, y_test=[["new"], [], *lists[2:8]])
    assert some_new.metric == "top_k_accuracy@1"
    expected = all_known.outcomes["one-vs-all"].copy()
    expected[:2] = 0.0
    np.testing.assert_array_equal(some_new.outcomes["one-vs-all"], expected)


class Spy(TfidfVectorizer):
    """A vectoriser that records which texts it was fitted on and which it only transformed."""

    fitted: ClassVar[list[set[str]]] = []
    transformed: ClassVar[list[set[str]]] = []

    def fit_transform(self, raw_documents, y=None):
        Spy.fitted.append(set(raw_documents))
        return super().fit_transform(raw_documents, y)

    def transform(self, raw_documents):
        Spy.transformed.append(set(raw_documents))
        return super().transform(raw_documents)


def test_a_vectoriser_never_learns_from_held_out_texts():
    rng = np.random.default_rng(4)
    words = {"food": ["bread", "cake"], "cars": ["engine", "tyre"], "sea": ["wave", "cake"]}
    y = [*words] * 20
    texts = [" ".join(rng.choice(words[label], size=3)) + f" n{i}" for i, label in enumerate(y)]
    Spy.fitted.clear()
    Spy.transformed.clear()
    result = compare(texts, y, transformer=Spy(), cv=2, methods=["one-vs-all", "top-k, k = 1"])
    assert len(result.outcomes["one-vs-all"]) == 60
    trial, *folds = zip(Spy.fitted, [set(), *Spy.transformed], strict=True)
    assert len(folds) == 4  # per fold: the search on a part of its training rows, then the fit
    assert all(not learned & held_out for learned, held_out in folds)
    for (search, searched), (whole, test) in (folds[:2], folds[2:]):
        assert search | searched == whole
        assert whole | test == set(texts)
        assert len(test) == 30
    assert trial[0] <= set(texts)


def test_transformers_must_be_some_and_texts_need_one(four_classes):
    with pytest.raises(ValueError, match="pass a transformer"):
        compare(["a text", "another"], ["a", "b"])
    with pytest.raises(ValueError, match="transformer must have the methods fit_transform"):
        compare(*four_classes, transformer="tfidf")


def test_what_methods_share_counts_in_the_plan():
    candidate = Candidate("m", None, (1.0,))
    plan = make_plan([candidate], [1.0], 5, 1000, None, overhead=2.0)
    assert plan.total == 15.0
    assert make_plan([candidate], [1.0], 5, 1000, 10.0, overhead=2.0).n_folds == 2
    assert Clock(plan, None).remaining == 15.0
