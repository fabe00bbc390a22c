"""Splits keep label shares and groups, and near-copies are found."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate

from hypothesis_examples import examples
from widemargin import OneVsAllClassifier
from widemargin.datasets import make_zipf_multilabel
from widemargin.model_selection import StratifiedLabelKFold, near_copy_groups, stratified_split

ignore_rare_labels = pytest.mark.filterwarnings("ignore:.*fewer rows than n_splits")


def folds_of(Y, n_splits, **options):
    """Fold of each row."""
    groups = options.pop("groups", None)
    folds = np.full(Y.shape[0] if sp.issparse(Y) else len(Y), -1)
    for fold, (train, test) in enumerate(StratifiedLabelKFold(n_splits, **options).split(None, Y, groups)):
        assert (folds[test] == -1).all()
        folds[test] = fold
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(folds)))
    assert folds.min() == 0
    return folds


def counts_by_fold(Y, folds):
    """Rows of each label in each fold, written without the code under test."""
    return np.array([Y[folds == fold].sum(axis=0) for fold in range(folds.max() + 1)])


def zipf_rows(n_rows):
    """Rows and an indicator with frequent and rare labels."""
    return make_zipf_multilabel(n_rows, 50, 100, labels_per_row=3.0, nnz_per_row=5.0, random_state=0)


# Small sets whose best split is known.


def test_every_fold_gets_its_share_where_that_is_possible():
    pattern = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]])
    Y = np.tile(pattern, (6, 1))
    for n_splits in (2, 3, 6):
        table = counts_by_fold(Y, folds_of(Y, n_splits))
        np.testing.assert_array_equal(table, np.tile(Y.sum(axis=0) / n_splits, (n_splits, 1)))


def test_a_rare_label_is_spread_over_all_folds():
    # Label 1 has one row per fold, and each of them has label 0 as well.
    Y = np.zeros((50, 2), dtype=int)
    Y[:, 0] = 1
    Y[:5, 1] = 1
    np.testing.assert_array_equal(counts_by_fold(Y, folds_of(Y, 5)), [[10, 1]] * 5)


def test_a_split_has_the_wanted_share_of_each_label():
    Y = np.repeat(np.eye(4, dtype=int), [10, 20, 30, 40], axis=0)
    train, test = stratified_split(Y, test_size=0.1)
    np.testing.assert_array_equal(Y[test].sum(axis=0), [1, 2, 3, 4])
    np.testing.assert_array_equal(Y[train].sum(axis=0), [9, 18, 27, 36])


def test_the_form_of_the_targets_does_not_matter():
    Y = np.random.default_rng(0).random((60, 4)) < 0.4
    sets = [set(np.flatnonzero(row).tolist()) for row in Y]
    expected = stratified_split(sp.csr_array(Y.astype(int)), test_size=0.2)
    for targets in (Y.astype(int), sp.csc_array(Y.astype(np.int8)), sets, [sorted(labels) for labels in sets]):
        for rows, wanted in zip(stratified_split(targets, test_size=0.2), expected, strict=True):
            np.testing.assert_array_equal(rows, wanted)


def test_both_classes_of_a_binary_problem_keep_their_share():
    y = np.array(["no"] * 30 + ["yes"] * 10)
    _, test = stratified_split(y, test_size=0.1)
    assert np.unique(y[test], return_counts=True)[1].tolist() == [3, 1]


# Shares at a larger scale.


@ignore_rare_labels
@pytest.mark.parametrize("n_splits", [2, 5, 10])
def test_label_counts_are_close_to_the_wanted_ones_and_closer_than_by_chance(n_splits):
    _, Y = zipf_rows(2000)
    total = np.asarray(Y.sum(axis=0))
    wanted, often = total / n_splits, total >= 10
    deviation = np.abs(counts_by_fold(Y, folds_of(Y, n_splits)) - wanted)
    assert np.mean(deviation[:, often] <= np.maximum(1, 0.1 * wanted[often]), axis=1).min() >= 0.97
    by_chance = np.random.default_rng(0).permutation(Y.shape[0]) % n_splits
    assert deviation.mean() < 0.5 * np.abs(counts_by_fold(Y, by_chance) - wanted).mean()


@ignore_rare_labels
@pytest.mark.filterwarnings("ignore:The least populated class")
@pytest.mark.parametrize("n_splits", [2, 3, 10])
@pytest.mark.parametrize(("n_rows", "n_classes"), [(40, 3), (1000, 2), (1000, 60)])
def test_one_label_per_row_is_as_good_as_with_scikit_learn(n_rows, n_classes, n_splits):
    y = np.minimum(np.random.default_rng(n_rows).geometric(0.2, n_rows), n_classes) - 1
    Y = np.eye(n_classes)[y]
    theirs = np.empty(n_rows, dtype=int)
    for fold, (_, test) in enumerate(StratifiedKFold(n_splits, shuffle=True, random_state=0).split(y, y)):
        theirs[test] = fold
    tables = [counts_by_fold(Y, folds) for folds in (folds_of(y, n_splits), theirs)]
    ours, wanted = (np.abs(table - Y.sum(axis=0) / n_splits).max() for table in tables)
    assert ours <= wanted + 1e-9
    assert np.ptp(tables[0].sum(axis=1)) <= max(1, np.ptp(tables[1].sum(axis=1)))


# Laws.


@ignore_rare_labels
@given(
    n_rows=st.integers(4, 40),
    n_labels=st.integers(2, 12),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@examples(100)
def test_folds_are_a_partition_that_keeps_groups(n_rows, n_labels, density, seed, data):
    rng = np.random.default_rng(seed)
    Y = sp.csr_array((rng.random((n_rows, n_labels)) < density).astype(np.int8))
    n_splits = data.draw(st.integers(2, 4))
    n_groups = data.draw(st.integers(n_splits, n_rows))
    groups = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n_rows - n_groups)])
    for given_groups in (None, groups):
        folds = folds_of(Y, n_splits, groups=given_groups, random_state=seed)
        assert len(np.unique(folds)) == n_splits
        np.testing.assert_array_equal(folds, folds_of(Y, n_splits, groups=given_groups, random_state=seed))
    assert all(len(set(folds[groups == group])) == 1 for group in range(n_groups))


@given(n_rows=st.integers(10, 40), test_size=st.sampled_from([0.1, 0.3, 0.5, 0.9]), seed=st.integers(0, 1000))
@examples(50)
def test_a_split_has_rows_on_both_sides(n_rows, test_size, seed):
    # Each row has several labels of its own, so that no label asks for a test row.
    Y = sp.csr_array(np.repeat(np.eye(n_rows, dtype=np.int8), 5, axis=1))
    train, test = stratified_split(Y, test_size=test_size, random_state=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(n_rows))
    assert len(train) > 0
    assert len(test) > 0


def test_without_a_seed_the_result_is_always_the_same_and_seeds_differ():
    _, Y = zipf_rows(300)
    first, second = stratified_split(Y), stratified_split(Y)
    np.testing.assert_array_equal(first[1], second[1])
    seeds = [stratified_split(Y, random_state=seed)[1].tolist() for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1]
    assert seeds[0] != seeds[2]


def test_groups_may_have_any_names():
    Y = np.eye(2, dtype=int)[np.arange(40) % 2]
    numbers = np.arange(40) // 4
    names = [f"group {number}" for number in numbers]
    expected = stratified_split(Y, test_size=0.2, groups=numbers)[1]
    assert len(expected) == 8
    np.testing.assert_array_equal(stratified_split(Y, test_size=0.2, groups=names)[1], expected)
    np.testing.assert_array_equal(stratified_split(Y, test_size=0.2, groups=7 * numbers - 100.0)[1], expected)


# In scikit-learn.


@ignore_rare_labels
def test_it_works_as_cv_in_scikit_learn():
    X, Y = zipf_rows(200)
    cv = StratifiedLabelKFold(3, random_state=0)
    assert cv.get_n_splits() == 3
    assert repr(cv) == "StratifiedLabelKFold(n_splits=3, random_state=0)"
    search = GridSearchCV(OneVsAllClassifier(), {"C": [0.1, 1.0]}, cv=cv).fit(X, Y)
    assert search.n_splits_ == 3
    groups = np.arange(200) // 4
    result = cross_validate(OneVsAllClassifier(), X, Y.toarray(), cv=cv, groups=groups, return_indices=True)
    for test in result["indices"]["test"]:
        assert not set(groups[test]) & set(np.delete(groups, test))


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_size": 0.0}, "test_size must be a share of the rows between 0 and 1; got 0.0"),
        ({"test_size": 1}, "test_size must be a share of the rows between 0 and 1; got 1"),
        ({"test_size": "0.1"}, "test_size must be a share"),
        ({"test_size": float("nan")}, "test_size must be a share"),
        ({"test_size": 0.01}, r"test_size=0.01 of 20 row\(s\) leaves less than one row"),
        ({"test_size": 0.99}, r"test_size=0.99 of 20 row\(s\) leaves less than one row"),
        ({"groups": np.arange(19)}, r"groups has shape \(19,\), but there are 20 rows; give one group per row"),
        ({"groups": np.zeros((20, 2))}, r"groups has shape \(20, 2\)"),
        ({"groups": np.zeros(20)}, r"groups has 1 group\(s\), but the rows are split into 2 parts"),
        ({"groups": [None, *range(19)]}, r"groups has no value for row\(s\) 0; give every row a group"),
        ({"groups": [*range(19), np.nan]}, r"groups has no value for row\(s\) 19"),
        ({"Y": np.linspace(0, 1, 20)}, "continuous"),
    ],
)
def test_bad_arguments_of_a_split_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        stratified_split(**{"Y": np.arange(20) % 2, **arguments})


def test_bad_arguments_of_folds_are_named():
    for n_splits in (1, 0, 2.5, "3"):
        with pytest.raises(ValueError, match="n_splits must be an integer of at least 2"):
            StratifiedLabelKFold(n_splits)
    cv = StratifiedLabelKFold(3)
    for X, y, groups, message in [
        (None, [0, 1], None, "n_splits=3 is greater than the number of rows, 2"),
        (np.zeros((4, 1)), [0, 1, 0], None, "X has 4 rows and y has 3"),
        (np.zeros((4, 1)), None, None, "y is missing"),
        (None, [0, 1, 0, 1], [0, 0, 1, 1], r"groups has 2 group\(s\), but the rows are split into 3 parts"),
    ]:
        with pytest.raises(ValueError, match=message):
            next(cv.split(X, y, groups))


def test_labels_with_fewer_rows_than_folds_are_warned_of():
    y = [0] * 10 + [1] * 10 + [2] * 2
    with pytest.warns(UserWarning, match="1 of 3 labels have fewer rows than n_splits=5"):
        next(StratifiedLabelKFold(5).split(None, y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(StratifiedLabelKFold(2).split(None, y))


# Near-copies.


def jaccard_groups(sets, threshold):
    """Groups by comparing all pairs, numbered in order of appearance."""
    group = list(range(len(sets)))
    for a, b in itertools.combinations(range(len(sets)), 2):
        if sets[a] and sets[b] and len(sets[a] & sets[b]) >= threshold * len(sets[a] | sets[b]) - 1e-9:
            old, new = group[b], group[a]
            group = [new if name == old else name for name in group]
    names = list(dict.fromkeys(group))
    return [names.index(name) for name in group]


def planted_texts(rng, n_texts, n_words, n_copies):
    """Texts of random words, and copies of the first ones with one word changed each."""
    texts = [[f"w{word}" for word in rng.integers(0, 500, n_words)] for _ in range(n_texts)]
    copies = [list(text) for text in texts[:n_copies]]
    for copy in copies:
        copy[rng.integers(0, n_words)] = "changed"
    return [" ".join(text) for text in texts + copies]


@pytest.mark.parametrize("threshold", [0.3, 0.7, 0.9, 1.0])
@given(seed=st.integers(0, 10_000), n_columns=st.sampled_from([4, 12, 60]), density=st.sampled_from([0.05, 0.5, 0.9]))
@examples(40)
def test_groups_of_sparse_rows_are_those_of_all_pairs(threshold, seed, n_columns, density):
    rng = np.random.default_rng(seed)
    X = rng.random((25, n_columns)) < density
    X[20:] = X[:5] ^ (rng.random((5, n_columns)) < 0.1)
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in X]
    groups = near_copy_groups(sp.csr_array(rng.normal(size=X.shape) * X), threshold=threshold)
    assert groups.tolist() == jaccard_groups(sets, threshold)


@pytest.mark.parametrize("threshold", [0.2, 0.7])
def test_groups_of_texts_are_those_of_all_pairs_of_shingles(threshold):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["a", "b", "c", "d"], rng.integers(0, 9))) for _ in range(120)]
    words = [[*text.split(), "", ""] for text in texts]
    sets = [{tuple(row[start : start + 3]) for start in range(len(row) - 2)} for row in words]
    assert near_copy_groups(texts, threshold=threshold).tolist() == jaccard_groups(sets, threshold)


def test_small_work_areas_change_nothing(monkeypatch):
    texts = planted_texts(np.random.default_rng(1), 200, 12, 50)
    expected = near_copy_groups(texts, threshold=0.5)
    monkeypatch.setattr("widemargin.model_selection.near_copies.WORK_ENTRIES", 50)
    np.testing.assert_array_equal(near_copy_groups(texts, threshold=0.5), expected)
    assert len(np.unique(expected)) < len(texts)


@pytest.mark.parametrize("as_rows", [False, True])
def test_planted_near_copies_are_found_and_never_straddle(as_rows):
    n_texts, n_copies = 1000, 200
    texts = planted_texts(np.random.default_rng(2), n_texts, 30, n_copies)
    rows = texts
    if as_rows:
        columns = {
            word: column for column, word in enumerate(sorted({word for text in texts for word in text.split()}))
        }
        rows = sp.lil_array((len(texts), len(columns)))
        for row, text in enumerate(texts):
            rows[row, [columns[word] for word in text.split()]] = 1.0
    groups = near_copy_groups(rows)
    np.testing.assert_array_equal(groups[:n_texts], np.arange(n_texts))
    np.testing.assert_array_equal(groups[n_texts:], np.arange(n_copies))
    Y = np.random.default_rng(3).random((len(texts), 6)) < 0.3
    _, test = stratified_split(Y.astype(int), test_size=0.2, groups=groups)
    held_out = np.isin(np.arange(len(texts)), test)
    np.testing.assert_array_equal(held_out[n_texts:], held_out[:n_copies])
    assert 0.15 * len(texts) < held_out.sum() < 0.25 * len(texts)


def test_case_punctuation_and_values_do_not_matter_and_empty_rows_stay_apart():
    assert near_copy_groups(["One, two!", "", "one TWO", "...", "two one"]).tolist() == [0, 1, 0, 2, 3]
    X = sp.csr_array(np.array([[1.0, 0, 2], [0, 0, 0], [-3, 0, 1], [0, 0, 0], [0, 1, 0]]))
    assert near_copy_groups(X).tolist() == [0, 1, 0, 2, 3]
    stored_zero = sp.csr_array((np.array([1.0, 0.0, 5.0]), [0, 1, 0], [0, 2, 3]), shape=(2, 2))
    assert near_copy_groups(stored_zero).tolist() == [0, 0]
    assert stored_zero.nnz == 3  # the input is untouched
    assert near_copy_groups([]).tolist() == []
    assert near_copy_groups(["", ""]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("X", "options", "error", "message"),
    [
        (["a"], {"threshold": 0.0}, ValueError, "threshold must be greater than 0 and at most 1; got 0.0"),
        (["a"], {"threshold": 1.5}, ValueError, "threshold must be"),
        (["a"], {"threshold": "high"}, ValueError, "threshold must be"),
        ("one text", {}, TypeError, "X is a single text; pass a list of texts"),
        (["a", 3], {}, TypeError, r"X\[1\] is 3; pass one string per row, or a sparse matrix"),
        (np.zeros((2, 2)), {}, TypeError, "X is a dense matrix"),
    ],
)
def test_bad_arguments_of_near_copies_are_named(X, options, error, message):
    with pytest.raises(error, match=message):
        near_copy_groups(X, **options)
