"""The tree of labels of OvAP++ against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.starts import hamming_tree
from widemargin.solvers.one_vs_all.starts import depth_first, tree_parents, waves


def random_labels(seed, n_rows, n_labels, n_groups):
    """Labels that share rows within groups; some are equal, some are empty."""
    rng = np.random.default_rng(seed)
    groups = rng.random((n_rows, n_groups)) < rng.random(n_groups)
    return groups[:, rng.integers(0, n_groups, n_labels)] & (rng.random((n_rows, n_labels)) < rng.choice([0.6, 1.0]))


def parents_of(Y):
    Y = sp.csc_array(Y)
    return tree_parents(Y.indices.astype(np.int64), Y.indptr.astype(np.int64), Y.shape[0])


def weight_of(parent, Y):
    """Sum of the Hamming distances along the edges, from the definition."""
    vectors = np.column_stack([Y, np.zeros(len(Y), dtype=bool)])  # the root is the last one, at index −1 too
    return sum(int((vectors[:, j] != vectors[:, k]).sum()) for j, k in enumerate(parent))


def is_tree(parent):
    for label in range(len(parent)):
        seen = set()
        while label >= 0:
            if label in seen:
                return False
            seen.add(label)
            label = parent[label]
    return True


labels = st.builds(
    random_labels,
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(1, 30),
    n_labels=st.integers(1, 14),
    n_groups=st.integers(1, 5),
)


@examples(100)
@given(labels)
def test_sparse_candidates_give_a_minimum_spanning_tree_of_all_pairs(Y):
    parent = parents_of(Y)
    brute, weight = hamming_tree(Y)
    assert is_tree(parent)
    assert is_tree(brute)
    assert weight_of(parent, Y) == weight_of(brute, Y) == weight


def test_specification_is_minimal_among_all_trees_of_four_labels():
    rng = np.random.default_rng(1)
    for _ in range(20):
        Y = rng.random((6, 4)) < 0.5
        choices = np.array(np.meshgrid(*[np.arange(-1, 4)] * 4)).reshape(4, -1).T
        assert hamming_tree(Y)[1] == min(weight_of(parent, Y) for parent in choices.tolist() if is_tree(parent))


def test_equal_labels_hang_on_each_other_and_empty_ones_on_the_root():
    Y = np.zeros((8, 4), dtype=bool)
    Y[:5, 0] = Y[:5, 2] = True
    Y[6, 3] = True
    parent = parents_of(Y)
    assert sorted(parent[[0, 2]].tolist()) in ([-1, 0], [-1, 2])
    assert parent[1] == parent[3] == -1


@examples(60)
@given(labels, st.integers(1, 6))
def test_waves_hold_every_label_once_and_after_its_parent(Y, size):
    parent = parents_of(Y)
    done = {-1}
    for wave in waves(parent, size):
        assert 0 < len(wave) <= size
        assert all(int(parent[label]) in done for label in wave)
        assert done.isdisjoint(wave.tolist())
        done.update(wave.tolist())
    assert done == {-1, *range(len(parent))}


def test_depth_first_order_finishes_a_branch_before_the_next():
    #        root
    #       0    3        and 5 below 3, 1 and 4 below 0, 2 below 1
    parent = np.array([-1, 0, 1, -1, 0, 3])
    assert depth_first(parent).tolist() == [0, 1, 2, 4, 3, 5]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_long_chain_is_no_recursion(size):
    parent = np.arange(-1, 4999)
    assert np.concatenate(list(waves(parent, size))).tolist() == list(range(5000))
