"""Updates of one-vs-all models: bounds against Clarabel and sums over all rows, and which labels are solved again."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import INTERCEPTS
from reference.one_vs_all_optimum import label_objective, label_optimum
from widemargin import OneVsAllClassifier, update
from widemargin.data.normalize import with_unit_rows
from widemargin.estimators.training import training_data
from widemargin.exceptions import WidemarginError
from widemargin.solvers.result import Status

N_PROBLEMS, N_QUICK = 200, 40
SEEDS = [pytest.param(seed, marks=() if seed < N_QUICK else pytest.mark.slow) for seed in range(N_PROBLEMS)]
ACCURACY = 1e-7  # of Clarabel, relative
CLEARLY = 0.5  # of the tolerance: a gap this small must be recognised, whatever the forecast
NEAR = 1e-4  # a slack this close to zero may count as either
KINDS = ("multilabel", "indicator", "multiclass", "binary")
WEIGHTS = (None, None, None, None, "dict", "dict", "balanced", "propensity")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")


@dataclass
class Data:
    """Rows, a set of labels for each, and their weights."""

    X: np.ndarray
    labels: list = field(repr=False)
    weight: np.ndarray

    def __getitem__(self, rows):
        rows = np.asarray(rows, dtype=np.int64)
        return Data(self.X[rows], [self.labels[row] for row in rows], self.weight[rows])

    def __add__(self, other):
        weight = np.concatenate([self.weight, other.weight])
        return Data(np.vstack([self.X, other.X]), [*self.labels, *other.labels], weight)


@dataclass
class Case:
    """An update by a random change, and everything that tests compare."""

    old: OneVsAllClassifier
    new: OneVsAllClassifier
    before: Data
    final: Data
    added: Data
    removed: Data
    stay: np.ndarray
    intercept: str
    exact_outcome: bool

    @property
    def names(self):
        """The label of each output."""
        return self.new.classes_[1:] if self.new.kind_ == "binary" else self.new.classes_

    def costs(self, data, label):
        """C · weight · factor of rows, as the final rows give them, and which rows are positive."""
        model, everything = self.new, self.final
        y = np.array([label in row for row in data.labels], dtype=bool)
        all_y, weight = np.array([label in row for row in everything.labels], dtype=bool), everything.weight
        positive = negative = 1.0
        if isinstance(model.class_weight, dict):
            positive = model.class_weight.get(label, 1.0)
            if model.kind_ == "binary":
                negative = model.class_weight.get(model.classes_[0], 1.0)
        elif model.class_weight == "balanced":
            totals = weight[all_y].sum(), weight[~all_y].sum()
            positive, negative = (weight.sum() / (2 * side) if side > 0 else 1.0 for side in totals)
        elif model.class_weight == "propensity":  # Jain et al., with A = 0.55 and B = 1.5
            C = (np.log(len(all_y)) - 1.0) * 2.5**0.55
            positive = 1.0 + C * (all_y.sum() + 1.5) ** -0.55
        return model.C * data.weight * np.where(y, positive, negative), y

    def rows(self, data):
        X = data.X.astype(self.dtype)
        return (with_unit_rows(X) if self.new.normalize else X).astype(np.float64)

    @property
    def dtype(self):
        return self.old.intercept_.dtype

    def weights(self, label):
        row = self.new.coef_[[label]]
        return (row.toarray() if sp.issparse(row) else row)[0].astype(np.float64), float(self.new.intercept_[label])

    def dual_value(self, label, alpha):
        """D(α) on the final rows by its definition, with Σ α y = 0 restored by scaling the heavier side."""
        cost, y = self.costs(self.final, self.names[label])
        assert (alpha >= 0).all()
        assert not alpha[cost == 0].any()
        if self.intercept == "free":
            sides = alpha[y].sum(), alpha[~y].sum()
            for side, total in zip((y, ~y), sides, strict=True):
                alpha[side] *= min(sides) / total if total > 0 else 0.0
        v = (alpha * np.where(y, 1.0, -1.0)) @ self.rows(self.final)
        value = alpha.sum() - (alpha[cost > 0] ** 2 / (4 * cost[cost > 0])).sum() - 0.5 * v @ v
        if self.intercept == "regularised":
            value -= 0.5 * (alpha[y].sum() - alpha[~y].sum()) ** 2
        return max(0.0, value)

    def slacks(self, data, label):
        """1 − y s of rows for the stored weights of an output, where the row costs something."""
        w, b = self.weights(label)
        cost, y = self.costs(data, self.names[label])
        return (1.0 - np.where(y, 1.0, -1.0) * (self.rows(data) @ w + b))[cost > 0.0]


def drawn_labels(rng, scores, kind):
    if kind == "binary":
        return [{"yes"} if row[0] > 0.5 else {"no"} for row in scores]
    if kind == "multiclass":
        return [{f"c{row.argmax()}"} for row in scores]
    return [{number if kind == "indicator" else f"c{number}" for number in np.flatnonzero(row > 1.0)} for row in scores]


def as_targets(labels, kind, n_labels):
    """Labels in the form that users pass."""
    if kind == "indicator":
        return sp.csr_array(np.array([[int(j in row) for j in range(n_labels)] for row in labels], dtype=np.int8))
    return labels if kind == "multilabel" else np.array([next(iter(row)) for row in labels])


@functools.cache
def random_case(seed):
    """All kinds of targets, intercepts, weights and losses; added, removed and relabelled rows and new labels."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % 4]
    n_labels = 2 if kind == "binary" else int(rng.integers(3, 7))
    large = seed % 5 == 0  # above the size that is solved to rounding error
    n, d = (300, 30) if large else (int(rng.integers(30, 90)), int(rng.integers(5, 20)))
    sparse, loss = rng.random() < 0.6, "logistic" if rng.random() < 0.25 else "squared_hinge"
    dtype = np.float32 if rng.random() < 0.5 else np.float64
    X = np.abs(rng.normal(size=(n + 8, d))) * (rng.random((n + 8, d)) < (0.5 if sparse else 1.0))
    X = X.astype(dtype).astype(np.float64)
    # Most labels have their own few features, so that most rows are far from their margins.
    truth = np.where(rng.random((n_labels, d)) < 0.3, 3.0, -0.5) * rng.uniform(0.5, 2.0, (n_labels, 1))
    labels = drawn_labels(rng, X @ truth.T - (d / 8 if sparse else d / 4), kind)
    weight = np.ones(n + 8)
    weighted = rng.random() < 0.4
    if weighted:
        weight = rng.integers(0 if rng.random() < 0.4 else 1, 4, n + 8).astype(float)
        weight[:6] = 1.0
    if kind in ("binary", "multiclass"):  # every class has a row that stays
        names = ["no", "yes"] if kind == "binary" else [f"c{number}" for number in range(n_labels)]
        labels[: len(names)] = [{name} for name in names]
    class_weight = WEIGHTS[int(rng.integers(len(WEIGHTS)))]
    if class_weight == "dict":
        class_weight = {"binary": {"no": 0.5, "yes": 2.0}, "indicator": {1: 2.5}}.get(kind, {"c1": 2.5})
    elif class_weight == "propensity" and kind in ("binary", "multiclass"):
        class_weight = "balanced"
    intercept = ("free", "regularised", "none")[int(rng.integers(3))]
    estimator = OneVsAllClassifier(
        C=float(10 ** rng.uniform(-1.5, 1.0)),
        loss=loss,
        prune=float(rng.choice([0.0, 0.02, 0.1])),
        gap_tol=float(rng.choice([1e-3, 1e-2, 5e-2, 0.1])),
        tol=float(rng.choice([0.01, 0.3])),
        normalize=bool(rng.random() < 0.3),
        class_weight=class_weight,
        **INTERCEPTS[intercept],
    )
    everything = Data(X, labels, weight)
    before = everything[np.arange(n)]
    removed_rows = 6 + rng.choice(n - 6, int(rng.choice([0, 0, 1, 3])), replace=False)
    n_relabelled = int(rng.integers(0, len(removed_rows) + 1))
    added = everything[np.append(removed_rows[:n_relabelled], n + np.arange(int(rng.choice([0, 1, 1, 2, 8]))))]
    for row in range(n_relabelled):  # removed and added again with the labels of another row
        added.labels[row] = set(labels[int(rng.integers(6))])
    if kind in ("multilabel", "multiclass") and len(added.labels) and rng.random() < 0.25:
        added.labels[0] = {"b new"} | (added.labels[0] if kind == "multilabel" else set())
    added.weight[:] = added.weight if weighted else 1.0
    form = (lambda Z: sp.csr_array(Z.astype(dtype))) if sparse else (lambda Z: Z.astype(dtype))
    own_weight = before.weight if weighted else None
    old = OneVsAllClassifier(**estimator.get_params())
    keep_duals = loss == "squared_hinge" and rng.random() < 0.5
    data = training_data(old, form(before.X), as_targets(before.labels, kind, n_labels), own_weight)
    old._fit_checked(data, keep_duals=keep_duals)
    new = update(
        old,
        form(added.X) if len(added.labels) else None,
        as_targets(added.labels, kind, n_labels) if len(added.labels) else None,
        rows=(form(before.X), as_targets(before.labels, kind, n_labels), own_weight),
        remove=removed_rows if len(removed_rows) else None,
        sample_weight=added.weight if weighted and len(added.labels) else None,
    )
    stay = np.setdiff1d(np.arange(n), removed_rows)
    exact = not hasattr(old, "duals_") and estimator.prune == 0.0
    return Case(old, new, before, before[stay] + added, added, before[removed_rows], stay, intercept, exact)


def old_number(case, label):
    """The number of an output of the updated model in the old one."""
    name = case.names[label]
    names = case.old.classes_[1:] if case.old.kind_ == "binary" else case.old.classes_
    return int(np.flatnonzero(names == name)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_updated_bounds_are_those_of_the_final_rows(seed):
    case = random_case(seed)
    X, tight = case.rows(case.final), 1e-10 if case.dtype == np.float64 else 1e-9
    for label, name in enumerate(case.names):
        cost, y = case.costs(case.final, name)
        how = X, y, cost, case.new.loss, case.intercept
        primal, dual, at_zero, before_pruning, _ = case.new.label_bounds_[label]
        w, b = case.weights(label)
        assert primal == pytest.approx(label_objective(*how, w, b), rel=tight)
        assert at_zero == pytest.approx(label_objective(*how, 0 * w, 0.0), rel=tight)
        optimum = label_optimum(*how)
        assert dual * (1 - ACCURACY) <= optimum <= primal * (1 + ACCURACY), case.new.update_.outcome[label]
        if case.new.update_.outcome[label] == "kept":
            assert (before_pruning - dual) <= case.new.gap_tol * max(before_pruning, dual)
        assert case.new.update_.distance_bound[label] == pytest.approx(np.sqrt(2 * max(0.0, primal - dual)))
    assert case.new.certificate_.primal == pytest.approx(case.new.label_bounds_[:, 0].sum())
    assert case.new.certificate_.dual == pytest.approx(case.new.label_bounds_[:, 1].sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_that_stay_are_bit_identical_and_the_facts_are_those_of_the_final_rows(seed):
    case = random_case(seed)
    outcome = case.new.update_.outcome
    for label in np.flatnonzero(np.isin(outcome, ("untouched", "kept"))):
        place = old_number(case, label)
        for name in ("coef_", "intercept_"):
            one, other = (getattr(model, name)[[row]] for model, row in ((case.new, label), (case.old, place)))
            parts = [part.toarray() if sp.issparse(part) else part for part in (one, other)]
            assert parts[0].dtype == parts[1].dtype
            assert parts[0].tobytes() == parts[1].tobytes()
    assert case.new.n_samples_fit_ == len(case.final.labels)
    counts = Counter(name for row in case.final.labels for name in row)
    assert dict(zip(case.new.classes_.tolist(), case.new.label_counts_.tolist(), strict=True)) == {
        name: counts[name] for name in case.new.classes_.tolist()
    }
    assert (case.new.update_.added, case.new.update_.removed) == (len(case.added.labels), len(case.removed.labels))
    assert [name == "new" for name in outcome] == [name not in case.old.classes_ for name in case.names]


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_solved_again_only_if_they_must_be(seed):
    """The outcome from the slacks of all changed rows, where nothing is pruned and no dual variables are kept."""
    case = random_case(seed)
    recounted = case.new.class_weight in ("balanced", "propensity") and len(case.added.labels + case.removed.labels)
    for label in np.flatnonzero(case.new.update_.outcome != "new"):
        found = case.new.update_.outcome[label]
        if recounted:
            assert found == "solved"
            continue
        if found == "solved":  # the slacks of the old weights decide
            reached = expected_outcomes(case, label, case.old, old_number(case, label))
        else:
            reached = expected_outcomes(case, label, case.new, label)
        assert not case.exact_outcome or found in reached
        assert found != "untouched" or case.new.loss == "logistic" or "untouched" in reached


def expected_outcomes(case, label, model, place):
    """What may happen to a label with the weights of an output of a model; several if a slack is close to zero."""
    w, b = np.asarray(sp.csr_array(model.coef_[[place]]).toarray()[0], float), float(model.intercept_[place])
    primal, dual = case.old.label_bounds_[old_number(case, label), :2]
    touching = {}
    for name, data in (("added", case.added), ("removed", case.removed)):
        cost, y = case.costs(data, case.names[label])
        X, sign = case.rows(data), 1.0 if name == "added" else -1.0
        slack = np.where(cost > 0, 1.0 - np.where(y, 1.0, -1.0) * (X @ w + b), -np.inf)
        if model.loss == "logistic":
            primal += sign * cost @ np.logaddexp(0.0, slack - 1.0)
            touching[name] = {bool(len(slack))}
        else:
            primal += sign * cost @ np.maximum(slack, 0.0) ** 2
            touching[name] = {bool((slack > limit).any()) for limit in (-NEAR, NEAR)}
    gap = (primal - dual) / max(primal, dual, 1e-300)
    possible = set()
    for lost in touching["removed"]:
        for touched in touching["added"]:
            if not (lost or touched):
                possible.add("untouched")
            elif lost:
                possible.add("solved")
            else:
                possible |= {"kept"} if gap <= case.new.gap_tol * (1 + 1e-6) else {"solved"}
    return possible


@pytest.mark.parametrize("seed", SEEDS)
def test_kept_dual_variables_give_the_lower_bounds(seed):
    """D(α) of the stored dual variables; an old bound that is better stays."""
    case = random_case(seed)
    assert hasattr(case.new, "duals_") == hasattr(case.old, "duals_")
    if not hasattr(case.new, "duals_"):
        return
    for label in range(len(case.names)):
        value = case.dual_value(label, case.new.duals_[[label]].toarray()[0].astype(np.float64))
        primal, dual = case.new.label_bounds_[label, :2]
        # The bound of a solved label was computed before α was rounded to float32.
        assert value <= dual + 1e-6 * primal
        if case.new.update_.outcome[label] == "kept" and len(case.removed.labels):
            reached = dual == pytest.approx(value, rel=1e-6, abs=1e-9 * primal)
            assert reached or dual == case.old.label_bounds_[old_number(case, label), 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_lower_bound_is_worse_than_that_of_the_old_dual_variables(seed):
    """To drop the dual variables of removed rows is the least that an update can do."""
    case = random_case(seed)
    if not hasattr(case.old, "duals_"):
        return
    for label in np.flatnonzero(case.new.update_.outcome != "new"):
        place = old_number(case, label)
        alpha = np.zeros(len(case.final.labels))
        alpha[: len(case.stay)] = case.old.duals_[[place]].toarray()[0][case.stay]
        value = case.dual_value(label, alpha)
        w, b = np.asarray(sp.csr_array(case.old.coef_[[place]]).toarray()[0], float), float(case.old.intercept_[place])
        changes = [
            label_objective(case.rows(data), y, cost, case.new.loss, case.intercept, w, b)
            for data in (case.final, case.before)
            for cost, y in (case.costs(data, case.names[label]),)
        ]
        before_pruning = case.old.label_bounds_[place, 3] + changes[0] - changes[1]
        if case.new.update_.outcome[label] in ("untouched", "kept"):
            primal, dual = case.new.label_bounds_[label, :2]
            assert dual >= min(value, primal) - 1e-6 * primal
        elif case.new.class_weight not in ("balanced", "propensity"):
            assert before_pruning - value > CLEARLY * case.new.gap_tol * before_pruning


def test_a_new_row_gets_the_dual_variable_that_raises_the_bound_most():
    """One row, no intercept: D gains c ξ² / (1 + 2c‖x‖²), and the gap only what is left of c ξ²."""
    rng = np.random.default_rng(7)
    X, y, x = rng.normal(size=(60, 5)), rng.random((60, 1)) < 0.5, np.full((1, 5), 0.3)
    model = OneVsAllClassifier(C=0.05, fit_intercept=False, gap_tol=1e-3, tol=1e-6)
    model._fit_checked(training_data(model, X, y.astype(int), None), keep_duals=True)
    w, C = model.coef_[0].astype(np.float64), model.C
    primal, dual = model.label_bounds_[0, :2]
    slack, gain = 1.0 - w @ x[0], C * (1.0 - w @ x[0]) ** 2 / (1.0 + 2.0 * C * (x[0] @ x[0]))
    assert C * slack**2 > 1.5 * model.gap_tol * primal  # the old bound would not be enough
    new = update(model, x, np.array([[1]]), rows=(X, y.astype(int)))
    assert new.update_.counts["kept"] == 1
    assert new.label_bounds_[0, 1] == pytest.approx(dual + gain, rel=1e-6)


def outcomes_of_random_cases(n_problems):
    """Numbers of labels by outcome, and of kept ones by loss, kept dual variables and removed rows."""
    found, kept = Counter(), Counter()
    for seed in range(n_problems):
        case = random_case(seed)
        found.update(case.new.update_.counts)
        what = (case.new.loss, hasattr(case.old, "duals_"), len(case.removed.labels) > 0)
        kept[what] += case.new.update_.counts["kept"]
    return found, kept


def test_the_first_random_problems_have_every_outcome():
    """Without this the tests above could pass without a label that is kept."""
    found, _ = outcomes_of_random_cases(N_QUICK)
    assert min(found["untouched"], found["kept"], found["solved"]) >= 15, found
    assert found["new"] >= 3, found


@pytest.mark.slow
def test_the_random_problems_have_every_outcome_often():
    found, kept = outcomes_of_random_cases(N_PROBLEMS)
    assert min(found["untouched"], found["kept"], found["solved"]) >= 80, found
    assert found["new"] >= 15, found
    assert kept["squared_hinge", True, True] >= 20, kept
    assert min(kept["squared_hinge", duals, False] for duals in (False, True)) >= 15, kept
    assert kept["logistic", False, False] >= 15, kept
    assert kept["logistic", False, True] == 0


# Labels as users pass them


ROWS = np.random.default_rng(3).normal(size=(40, 4))
SETS = [{label for label in range(1, 4) if x[label] > 0.5} for x in ROWS]


def test_rows_without_labels_can_be_added_as_empty_sets():
    model = OneVsAllClassifier().fit(ROWS, SETS)
    new = update(model, ROWS[:2] + 1, [set(), set()], rows=(ROWS, SETS))
    np.testing.assert_array_equal(new.label_counts_, model.label_counts_)
    assert new.n_samples_fit_ == 42


@pytest.mark.parametrize("sets", [[{1}, {2}], [{0}, {1, 2}]], ids=["fewer", "a new one"])
def test_label_sets_of_integers_are_not_taken_for_columns(sets):
    model = OneVsAllClassifier().fit(ROWS, SETS)
    new = update(model, ROWS[:2] + 1, sets, rows=(ROWS, SETS))
    refitted = OneVsAllClassifier().fit(np.vstack([ROWS, ROWS[:2] + 1]), [*SETS, *sets])
    counts = [dict(zip(m.classes_.tolist(), m.label_counts_.tolist(), strict=True)) for m in (new, refitted)]
    assert counts[0] == counts[1]


def test_columns_without_names_are_those_of_the_model():
    model = OneVsAllClassifier().fit(ROWS, SETS)
    new = update(model, ROWS[:2] + 1, np.array([[1, 0, 0], [1, 0, 1]]), rows=(ROWS, SETS))
    assert (new.label_counts_ - model.label_counts_).tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match="y has 2 columns, but the model has 3 labels"):
        update(model, ROWS[:2], np.array([[1, 0], [1, 0]]), rows=(ROWS, SETS))


def test_new_rows_of_weight_zero_change_nothing():
    model = OneVsAllClassifier().fit(ROWS, SETS)
    new = update(model, ROWS[:1], [{1}], rows=(ROWS, SETS), sample_weight=[0.0])
    np.testing.assert_array_equal(new.label_bounds_, model.label_bounds_)
    assert new.update_.counts["untouched"] == 3


def test_dual_variables_survive_rows_of_weight_zero():
    weight = np.ones(40)
    weight[3] = 0.0
    model = OneVsAllClassifier()
    model._fit_checked(training_data(model, ROWS, SETS, weight), keep_duals=True)
    rows = (ROWS, SETS, weight)
    new = update(model, ROWS[:2], SETS[:2], rows=rows, remove=[5], sample_weight=[0.0, 1.0])
    stay = np.append(np.setdiff1d(np.arange(40), 5), [0, 1])
    refit = OneVsAllClassifier()
    again = training_data(refit, ROWS[stay], [SETS[row] for row in stay], np.append(weight[stay[:-2]], [0.0, 1.0]))
    refit._fit_checked(again, keep_duals=True)
    assert model.duals_.shape == (3, 40)
    assert new.duals_.shape == (3, 41)
    np.testing.assert_allclose(new.duals_.toarray(), refit.duals_.toarray(), atol=0.02)
    assert not new.duals_[:, [3, 39]].toarray().any()


@pytest.mark.parametrize("what", ["rows", "weights", "labels of rows"])
def test_old_rows_that_are_not_those_of_the_model_are_an_error(what):
    weight = np.linspace(0.5, 2.0, 40)
    model = OneVsAllClassifier(normalize=True, class_weight="balanced").fit(ROWS, SETS, sample_weight=weight)
    update(model, remove=[0], rows=(ROWS, SETS, weight))
    rows, sets = ROWS.copy(), list(SETS)
    if what == "rows":
        rows[[1, 2]] = rows[[2, 1]]
    elif what == "weights":
        weight = weight[::-1]
    else:
        sets[1], sets[2] = sets[2], sets[1]
    assert SETS[1] != SETS[2]
    with pytest.raises(WidemarginError, match="the model was trained on other rows: on those given, the objective of"):
        update(model, remove=[0], rows=(rows, sets, weight))


@pytest.mark.parametrize("weights", [[1.0], [1.0] * 39 + [-1.0], [1.0] * 39 + [np.nan], [[1.0]] * 40], ids=str)
def test_wrong_weights_of_old_rows_are_errors(weights):
    model = OneVsAllClassifier().fit(ROWS, SETS)
    with pytest.raises(ValueError, match=r"sample_weight|inconsistent numbers"):
        update(model, ROWS[:1], [{1}], rows=(ROWS, SETS, weights))


# Rows without features


@pytest.mark.parametrize("prune", [0.0, 1e-3], ids=["dense weights", "sparse weights"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_a_row_without_features_touches_labels_with_an_intercept_above_minus_one(form, weight, prune):
    """It costs C · weight · (1 + b)² of every label with b > −1 that it does not have, and nothing elsewhere."""
    X = np.abs(np.random.default_rng(5).normal(size=(60, 6)))
    model = OneVsAllClassifier(C=0.7, gap_tol=10.0, prune=prune).fit(form(X), sp.csr_array((X > 1).astype(np.int8)))
    b = np.array([2.5, -0.4, -0.999, -1.0, -1.25, -3.0])
    model.intercept_ = b
    for labels in (np.zeros((1, 6), dtype=np.int8), np.eye(1, 6, 4, dtype=np.int8)):
        new = update(model, form(np.zeros((1, 6))), sp.csr_array(labels), sample_weight=[weight])
        slack = np.maximum(0.0, 1.0 + np.where(labels[0], -b, b))
        assert new.update_.outcome.tolist() == np.where(slack > 0.0, "kept", "untouched").tolist()
        rise = new.label_bounds_ - model.label_bounds_
        np.testing.assert_allclose(rise[:, 0], 0.7 * weight * slack**2, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(rise[:, 1], 0.0)
        np.testing.assert_allclose(rise[:, 2], 0.7 * weight)


# Updates that are stopped


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("prune", [0.0, 1e-3], ids=["dense weights", "sparse weights"])
@pytest.mark.parametrize("remove", [[], list(range(10))], ids=["added", "removed"])
def test_labels_that_were_not_reached_are_left_with_true_bounds_and_solved_by_the_next_update(
    remove, prune, class_weight
):
    X = np.abs(np.random.default_rng(7).normal(size=(70, 12)))
    Y = (X > 1.0).astype(np.int8)
    model = OneVsAllClassifier(prune=prune, class_weight=class_weight).fit(X[:60], Y[:60])
    given = X[60:], 1 - Y[60:]
    new = update(model, *given, rows=(X[:60], Y[:60]), remove=remove, callback=lambda progress: True)
    outcome = new.update_.outcome
    assert sorted(Counter(outcome.tolist())) == ["left", "solved"]
    assert new.status_ is Status.STOPPED
    final = np.vstack([np.delete(X[:60], remove, axis=0), X[60:]])
    labels = np.vstack([np.delete(Y[:60], remove, axis=0), given[1]])
    continued = update(new, rows=(final, labels))
    assert (continued.update_.outcome == np.where(outcome == "left", "solved", "untouched")).all()
    assert continued.status_ is Status.CONVERGED
    for label in range(12):
        y = labels[:, label] > 0
        cost = np.ones(len(y)) if class_weight is None else np.where(y, len(y) / y.sum(), len(y) / (~y).sum()) / 2
        optimum = label_optimum(final, y, cost, "squared_hinge", "free")
        for updated in (new, continued):
            w = sp.csr_array(updated.coef_[[label]]).toarray()[0]
            primal, dual = updated.label_bounds_[label, :2]
            stated = label_objective(final, y, cost, "squared_hinge", "free", w, updated.intercept_[label])
            assert primal == pytest.approx(stated, rel=1e-10)
            assert dual * (1 - ACCURACY) <= optimum <= primal * (1 + ACCURACY)
        if outcome[label] == "left":
            old, found = (sp.csr_array(one.coef_[[label]]).toarray() for one in (model, new))
            np.testing.assert_array_equal(found, old)


def test_new_labels_that_were_not_reached_are_an_error():
    X = np.abs(np.random.default_rng(7).normal(size=(70, 12)))
    sets = [{int(label) for label in np.flatnonzero(x > 1.0)} for x in X]
    model = OneVsAllClassifier().fit(X[:60], sets[:60])
    with pytest.raises(WidemarginError, match="stopped before all new labels were solved; allow more time"):
        update(model, X[60:], [{99}] * 10, rows=(X[:60], sets[:60]), callback=lambda progress: True)


def offset_rows(rng):
    """Rows with an offset that a small weight makes up for: without that weight, the intercept is far from its best."""
    X = rng.normal(size=(50, 4))
    X[:, 0] = 30.0 + 0.1 * rng.normal(size=50)
    score = X[:, 1:] @ rng.normal(size=3) + 0.3 * rng.normal(size=50)
    return X, np.where(np.arange(50) < 2, np.arange(50), score > np.median(score)).astype(int)


@pytest.mark.parametrize("what", ["all weights are pruned", "bounds are not stored"])
@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_pruned_weights_hold_after_rows_outside_the_margin_are_removed(what, seed):
    rng = np.random.default_rng(seed)
    X, y = offset_rows(rng)
    C = float(10 ** rng.uniform(-2, 1))
    size = np.abs(OneVsAllClassifier(C).fit(X, y).coef_)[0]
    prune = 1.01 * float(size.max() if what == "all weights are pruned" else size[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so much is pruned
        model = OneVsAllClassifier(C, prune=prune).fit(X, y)
    if what == "bounds are not stored":
        del model.label_bounds_  # as in folders of format version 2
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    margins = np.where(y == 1, 1.0, -1.0) * (X @ coef[0] + model.intercept_[0])
    gone = np.flatnonzero(margins > 1.0 + 1e-4)
    gone = gone[gone >= 2]  # a row of each class stays
    kept = np.setdiff1d(np.arange(50), gone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, dual = update(model, rows=(X, y), remove=gone).label_bounds_[0, :2]
    optimum = label_optimum(X[kept], y[kept] == 1, np.full(len(kept), C), "squared_hinge", "free")
    assert dual <= optimum * (1.0 + 1e-6)
