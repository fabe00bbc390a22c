"""Hierarchical metrics against brute force over explicit ancestor sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import f1_score, precision_score, recall_score, zero_one_loss

from hypothesis_examples import examples
from widemargin import metrics
from widemargin.exceptions import DataFormatError
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics import hierarchical as _ancestor_sets

ANIMALS = Taxonomy.from_nested({"animal": {"mammal": {"cat": None, "dog": ["poodle"]}, "bird": ["owl"]}})


@st.composite
def parent_maps(draw):
    n = draw(st.integers(1, 12))
    names = draw(st.permutations([f"n{i}" for i in range(n)]))
    return {names[i]: None if i == 0 else names[draw(st.integers(0, i - 1))] for i in range(n)}


@st.composite
def single_label_problems(draw):
    parents = draw(parent_maps())
    node = st.sampled_from(sorted(parents))
    rows = draw(st.lists(st.tuples(node, node, st.integers(0, 3)), min_size=1, max_size=10))
    weights = [weight for _, _, weight in rows]
    if not any(weights):
        weights[0] = 1
    return parents, [row[0] for row in rows], [row[1] for row in rows], weights


@st.composite
def label_set_problems(draw):
    parents = draw(parent_maps())
    subset = st.sets(st.sampled_from(sorted(parents)), max_size=4)
    rows = draw(st.lists(st.tuples(subset, subset, st.integers(1, 3)), min_size=1, max_size=8))
    return parents, [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def up(parents, node):
    """The node and its ancestors, root included, nearest first."""
    chain = [node]
    while parents[chain[-1]] is not None:
        chain.append(parents[chain[-1]])
    return chain


def closure(parents, nodes):
    """All nodes and ancestors without the root."""
    return {a for node in nodes for a in up(parents, node)} - {next(n for n in parents if parents[n] is None)}


def edges_between(parents, a, b):
    return len(set(up(parents, a)) ^ set(up(parents, b)))


@given(single_label_problems())
@examples(100)
def test_zero_one_error_and_tree_loss_agree_with_brute_force(problem):
    parents, true, predicted, weights = problem
    tree = Taxonomy.from_parents(parents)
    wrong = [t not in up(parents, p) for t, p in zip(true, predicted, strict=True)]
    half = [edges_between(parents, t, p) / 2 for t, p in zip(true, predicted, strict=True)]
    forgiving = [d * w for d, w in zip(half, wrong, strict=True)]
    assert metrics.hierarchical_zero_one_error(true, predicted, tree) == pytest.approx(np.mean(wrong))
    assert metrics.tree_induced_loss(true, predicted, tree, literal=True) == pytest.approx(np.mean(half))
    assert metrics.tree_induced_loss(true, predicted, tree) == pytest.approx(np.mean(forgiving))
    for metric, losses in [(metrics.hierarchical_zero_one_error, wrong), (metrics.tree_induced_loss, forgiving)]:
        repeated = np.repeat(losses, weights).mean()
        assert metric(true, predicted, tree, sample_weight=weights) == pytest.approx(repeated)


@given(single_label_problems())
@examples(100)
def test_error_by_depth_agrees_with_brute_force(problem):
    parents, true, predicted, weights = problem
    result = metrics.error_by_depth(true, predicted, Taxonomy.from_parents(parents), sample_weight=weights)
    height = max(len(up(parents, node)) for node in parents) - 1
    assert result.depth.tolist() == list(range(1, height + 1))
    for d, error, support in zip(*result, strict=True):
        counted = bad = 0
        for t, p, weight in zip(true, predicted, weights, strict=True):
            from_root_t, from_root_p = up(parents, t)[::-1], up(parents, p)[::-1]
            if len(from_root_t) > d:
                counted += weight
                bad += weight * (len(from_root_p) <= d or from_root_p[d] != from_root_t[d])
        assert support == pytest.approx(counted)
        assert np.isnan(error) if counted == 0 else error == pytest.approx(bad / counted)


def brute_force_prf(parents, true, predicted, weights, zero_division):
    shared = n_predicted = n_true = 0
    for t, p, weight in zip(true, predicted, weights, strict=True):
        T, P = closure(parents, t), closure(parents, p)
        shared, n_predicted, n_true = (
            shared + weight * len(T & P),
            n_predicted + weight * len(P),
            n_true + weight * len(T),
        )
    precision = shared / n_predicted if n_predicted else zero_division
    recall = shared / n_true if n_true else zero_division
    if n_predicted + n_true == 0:
        return precision, recall, zero_division
    if shared == 0:
        return precision, recall, 0.0
    return precision, recall, 2 * precision * recall / (precision + recall)


def prf(*args, **kwargs):
    return tuple(
        f(*args, **kwargs)
        for f in (metrics.hierarchical_precision, metrics.hierarchical_recall, metrics.hierarchical_f1)
    )


@given(label_set_problems(), st.sampled_from([0.0, 1.0]))
@examples(100)
@pytest.mark.slow
def test_set_metrics_agree_with_brute_force_in_every_form(problem, zero_division):
    parents, true, predicted, weights = problem
    tree = Taxonomy.from_parents(parents)
    expected = pytest.approx(brute_force_prf(parents, true, predicted, weights, zero_division))
    options = {"sample_weight": weights, "zero_division": zero_division}
    assert prf(true, predicted, tree, **options) == expected

    columns = sorted(parents)
    T, P = (sparse.csr_array([[name in row for name in columns] for row in rows]) for rows in (true, predicted))
    assert prf(T, P, tree, labels=columns, **options) == expected
    assert prf(true, P.tocsc(), tree, labels=columns, **options) == expected
    by_node = sparse.csr_array([[name in row for name in tree.nodes] for row in true])
    assert prf(by_node, predicted, tree, **options) == expected


@given(single_label_problems())
@examples(60)
def test_single_labels_are_sets_of_one(problem):
    parents, true, predicted, weights = problem
    tree = Taxonomy.from_parents(parents)
    expected = brute_force_prf(parents, [[t] for t in true], [[p] for p in predicted], weights, 0.0)
    options = {"sample_weight": weights}
    assert prf(true, predicted, tree, **options) == pytest.approx(expected)
    assert prf(true, [{p} for p in predicted], tree, **options) == pytest.approx(expected)
    assert prf(np.array(true), pd.Series(predicted), tree, **options) == pytest.approx(expected)


def test_in_a_flat_tree_the_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(5, size=(2, 50))
    tree = Taxonomy.flat(range(5))
    assert metrics.hierarchical_zero_one_error(true, predicted, tree) == pytest.approx(zero_one_loss(true, predicted))
    assert metrics.tree_induced_loss(true, predicted, tree) == pytest.approx(zero_one_loss(true, predicted))
    Y, P = rng.integers(2, size=(2, 50, 5))
    expected = [score(Y, P, average="micro") for score in (precision_score, recall_score, f1_score)]
    assert prf(Y, P, tree, labels=range(5)) == pytest.approx(expected)


def test_blocks_of_rows_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    Y, P = (sparse.csr_array(rng.random((23, len(ANIMALS))) < 0.3) for _ in range(2))
    whole = prf(Y, P, ANIMALS)
    monkeypatch.setattr(_ancestor_sets, "BLOCK_ROWS", 4)
    assert prf(Y, P, ANIMALS) == whole


def test_hundreds_of_labels_below_one_node_count_it_once():
    tree = Taxonomy.from_nested({"root": {"top": list(range(300))}})
    everything = [set(range(256))]
    assert prf(everything, [{"top"}], tree) == pytest.approx((1.0, 1 / 257, 2 / 258))


def test_tuple_names_are_labels_and_not_sets():
    tree = Taxonomy.from_paths([["A", "x"], ["B", "x"]], full_names=True)
    assert prf([("A", "x"), ("A", "x")], [("A", "x"), ("A",)], tree) == pytest.approx((1.0, 0.75, 6 / 7))


def test_the_papers_conventions_on_one_row_each():
    def loss(true, predicted, **options):
        return metrics.tree_induced_loss([true], [predicted], ANIMALS, **options)

    assert loss("mammal", "poodle") == 0
    assert loss("mammal", "poodle", literal=True) == 1
    assert loss("poodle", "mammal") == 1
    assert loss("cat", "owl") == 2
    assert metrics.hierarchical_zero_one_error(["poodle"], ["mammal"], ANIMALS) == 1
    assert metrics.hierarchical_zero_one_error(["animal"], ["owl"], ANIMALS) == 0


@pytest.mark.parametrize(
    "metric",
    [metrics.hierarchical_zero_one_error, metrics.tree_induced_loss, metrics.error_by_depth, *(prf,)],
    ids=["zero-one", "tree loss", "by depth", "sets"],
)
def test_bad_input_is_refused_by_name(metric):
    with pytest.raises(DataFormatError, match="'cta' is not in the taxonomy; did you mean 'cat'"):
        metric(["cat", "dog"], ["cta", "dog"], ANIMALS)
    with pytest.raises(ValueError, match="y_true has 2 rows and y_pred has 1"):
        metric(["cat", "dog"], ["cat"], ANIMALS)
    with pytest.raises(ValueError, match="no rows"):
        metric([], [], ANIMALS)
    for weights, message in [
        ([1.0], "shape"),
        ([1.0, -1.0], "nonnegative"),
        ([0.0, 0.0], "zero"),
        ([1, np.nan], "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            metric(["cat", "dog"], ["cat", "dog"], ANIMALS, sample_weight=weights)


def test_unknown_labels_in_sets_and_wrong_columns_are_refused():
    with pytest.raises(DataFormatError, match="'whale' is not in the taxonomy"):
        metrics.hierarchical_f1([{"cat"}], [{"whale"}], ANIMALS)
    with pytest.raises(ValueError, match="2 columns, but there are 7 labels"):
        metrics.hierarchical_f1(np.eye(2), np.eye(2), ANIMALS)
    with pytest.raises(ValueError, match=r"y\[0, 0\] is 2"):
        metrics.hierarchical_f1(2 * np.eye(7), np.eye(7), ANIMALS)
