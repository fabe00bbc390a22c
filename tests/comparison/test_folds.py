"""`tune`, `compare` and `path` on the same splits: label shares are kept, and groups stay together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline

from widemargin import OneVsAllClassifier, compare, path, tune
from widemargin.comparison.compare import Plan, make_plan
from widemargin.estimators import tuning
from widemargin.model_selection import StratifiedLabelKFold

N_ROWS, N_CLASSES, GROUP_SIZE = 120, 4, 7
CLASSES = np.arange(N_ROWS) % N_CLASSES
SETS = [[f"c{c}", f"c{(c + 1) % N_CLASSES}"] if row % 3 == 0 else [f"c{c}"] for row, c in enumerate(CLASSES)]
GROUPS = np.array([f"g{row // GROUP_SIZE}" for row in range(N_ROWS)])
X = np.column_stack(
    [np.eye(N_CLASSES)[CLASSES] + 0.5 * np.random.default_rng(0).normal(size=(N_ROWS, N_CLASSES)), np.arange(N_ROWS)]
)
TARGETS = {"one label": CLASSES, "several labels": SETS}


class Spy(TransformerMixin, BaseEstimator):
    """Takes the row number, the last column, away, and records the rows it was fitted on and those it transformed."""

    calls: ClassVar[list[tuple[str, frozenset[int]]]] = []

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        self.calls.append(("fit", frozenset(X[:, -1].astype(int).tolist())))
        return X[:, :-1]

    def transform(self, X: Any) -> Any:
        self.calls.append(("transform", frozenset(X[:, -1].astype(int).tolist())))
        return X[:, :-1]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any = None) -> Spy:
        return self


def run_tune(y, cv, **options):
    return tune(make_pipeline(Spy(), OneVsAllClassifier()), X, y, Cs=[0.1, 1.0], cv=cv, **options)


def run_compare(y, cv, **options):
    return compare(X, y, transformer=Spy(), methods=["one-vs-all"], cv=cv, **options)


def run_path(y, cv, **options):
    return path(make_pipeline(Spy(), OneVsAllClassifier()), X, y, Cs=[0.1, 1.0], cv=cv, **options)


RUNS = {"tune": run_tune, "compare": run_compare, "path": run_path}


def splits_of(run, *arguments, **options):
    """Pairs of the rows that were trained on and those that were held out, searches included."""
    Spy.calls.clear()
    run(*arguments, **options)
    calls = zip(Spy.calls, Spy.calls[1:], strict=False)
    return [(train, test) for (first, train), (then, test) in calls if (first, then) == ("fit", "transform")]


def groups_in_both(train, test):
    return set(GROUPS[sorted(train)]) & set(GROUPS[sorted(test)])


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", RUNS)
def test_groups_stay_together(name, targets):
    run, y, n_splits = RUNS[name], TARGETS[targets], 6 if name == "compare" else 3  # a search in each fold
    together = splits_of(run, y, 3, groups=GROUPS)
    assert len(together) == n_splits
    assert not any(groups_in_both(train, test) for train, test in together)
    held_out = [test for train, test in together if len(train | test) == N_ROWS]
    assert sorted(row for test in held_out for row in test) == list(range(N_ROWS))
    apart = splits_of(run, y, 3)
    assert len(apart) == n_splits
    assert all(groups_in_both(train, test) for train, test in apart)


@pytest.mark.parametrize("name", RUNS)
def test_held_out_rows_have_the_share_of_every_label(name):
    indicator = np.array([[f"c{c}" in labels for c in range(N_CLASSES)] for labels in SETS])
    for train, test in splits_of(RUNS[name], SETS, 3):
        rows = sorted(train | test)
        share = len(test) / len(rows) * indicator[rows].sum(axis=0)
        assert np.abs(indicator[sorted(test)].sum(axis=0) - share).max() <= 1.0


@pytest.mark.parametrize("name", ["tune", "path"])
def test_a_number_is_the_splitter_of_model_selection_and_a_splitter_gets_the_groups(name):
    run = RUNS[name]
    assert splits_of(run, SETS, 3) == splits_of(run, SETS, StratifiedLabelKFold(3, random_state=0))
    grouped = splits_of(run, CLASSES, 3, groups=GROUPS)
    assert grouped == splits_of(run, CLASSES, StratifiedLabelKFold(3, random_state=0), groups=GROUPS)
    given = [(frozenset(train), frozenset(test)) for train, test in GroupKFold(4).split(X, groups=GROUPS)]
    assert splits_of(run, SETS, GroupKFold(4), groups=GROUPS) == given


def test_a_comparison_needs_no_more_groups_than_folds():
    """The search in a fold then has only two groups to divide."""
    three = np.arange(N_ROWS) // N_CLASSES % 3
    for train, test in splits_of(run_compare, CLASSES, 3, groups=three):
        assert not set(three[sorted(train)]) & set(three[sorted(test)])


def test_groups_are_kept_in_the_search_before_given_test_rows():
    test = {"X_test": X[:10], "y_test": CLASSES[:10]}
    search, _ = splits_of(run_compare, CLASSES, 3, groups=GROUPS, **test)
    assert not groups_in_both(*search)


def test_groups_are_kept_where_only_a_part_of_the_rows_is_compared(monkeypatch):
    def half(*arguments: Any) -> Plan:
        return replace(make_plan(*arguments), share=0.5)

    monkeypatch.setitem(compare.__globals__, "make_plan", half)
    splits = splits_of(run_compare, SETS, 3, groups=GROUPS)
    assert max(len(train | test) for train, test in splits) == N_ROWS // 2
    assert not any(groups_in_both(train, test) for train, test in splits)


def test_the_last_fit_of_tune_holds_groups_out_together(monkeypatch):
    seen = []
    known = tuning.stratified_split

    def split(Y, **options):
        seen.append(options["groups"])
        return known(Y, **options)

    monkeypatch.setattr(tuning, "stratified_split", split)
    found = tune(OneVsAllClassifier(rank_scale="auto"), X[:, :-1], SETS, Cs=[0.1, 1.0], cv=3, groups=GROUPS)
    assert [groups.tolist() for groups in seen] == [GROUPS.tolist()]
    assert found.model.tuning_["params"] == ["C"]
    assert found.model.tuning_["rank_scale"]["params"] == ["rank_scale"]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (GROUPS[:7], r"groups has shape \(7,\), but there are 120 rows; give one group per row"),
        (np.arange(N_ROWS) % 2, r"groups has 2 group\(s\), but the rows are split into 3 parts; use at least 3 groups"),
        ([None, *GROUPS[1:]], r"groups has no value for row\(s\) 0"),
    ],
)
def test_groups_that_cannot_be_split_are_named(name, groups, message):
    with pytest.raises(ValueError, match=message):
        RUNS[name](SETS, 3, groups=groups)


def test_a_search_within_a_single_group_is_an_error():
    with pytest.raises(ValueError, match="the training rows are a single group, so none can be held out to choose C"):
        run_compare(CLASSES, 2, groups=np.arange(N_ROWS) // N_CLASSES % 2)


def test_groups_without_effect_are_refused():
    with pytest.raises(ValueError, match="groups has no effect without cross-validation; pass cv"):
        run_path(SETS, None, groups=GROUPS)
    rows = list(KFold(3).split(X))
    for run in (run_tune, run_path):
        with pytest.raises(ValueError, match="groups has no effect on folds given as row numbers"):
            run(SETS, rows, groups=GROUPS)


@pytest.mark.parametrize("name", ["tune", "path"])
@pytest.mark.parametrize("cv", [1, True, N_ROWS + 1])
def test_an_impossible_number_of_folds_is_an_error(name, cv):
    with pytest.raises(ValueError, match="cv must be a splitter or an integer between 2 and the number of rows"):
        RUNS[name](SETS, cv)
