"""OvAP++ (Fang et al., 2019): a minimum spanning tree of the labels; every label starts where its parent ended.

    d(j, k) = P_j + P_k − 2 co(j, k)   rows in which the labels j and k differ;   d(root, j) = P_j

The root has no positives; its weights are OvAP's. By the triangle with the root, a pair can be an edge of the tree only
if 2 co(j, k) > min(P_j, P_k), so that edges come from the sparse YᵀY and not from all pairs. Labels are solved in
blocks of the tree's depth-first order, and inside a block by their depth, so that the labels of one wave are
independent of each other. Memory: the co-occurrences; weights of one block, and of the ancestors of the next label.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

__all__ = ["children_of", "depth_first", "tree_parents", "waves"]

Ints = npt.NDArray[np.int64]


def tree_parents(positive_rows: Ints, positive_indptr: Ints, n_rows: int) -> Ints:
    """Return the parent of each label in a minimum spanning tree, −1 for the root, shape (n_labels,)."""
    n_labels = len(positive_indptr) - 1
    edges = _candidate_edges(positive_rows, positive_indptr, n_rows)
    tree = minimum_spanning_tree(edges)
    _, predecessor = breadth_first_order(tree, n_labels, directed=False)
    return np.where(predecessor[:n_labels] == n_labels, -1, predecessor[:n_labels]).astype(np.int64)


def _candidate_edges(positive_rows: Ints, positive_indptr: Ints, n_rows: int) -> sp.csr_array:
    """Distances plus one, above the diagonal; the root is the last node. SciPy takes a zero for a missing edge."""
    n_labels, n_positives = len(positive_indptr) - 1, np.diff(positive_indptr)
    ones = np.ones(len(positive_rows), dtype=np.int64)
    Y = sp.csc_array((ones, positive_rows, positive_indptr), shape=(n_rows, n_labels))
    common = sp.coo_array(sp.triu(Y.T @ Y, k=1))
    j, k, co = common.row, common.col, common.data
    near = 2 * co > np.minimum(n_positives[j], n_positives[k])
    j, k, co = j[near], k[near], co[near]
    labels, root = np.arange(n_labels), np.full(n_labels, n_labels)
    weights = np.concatenate([n_positives[j] + n_positives[k] - 2 * co, n_positives]) + 1
    ends = (np.concatenate([j, labels]), np.concatenate([k, root]))
    return sp.csr_array((weights.astype(np.float64), ends), shape=(n_labels + 1, n_labels + 1))


def children_of(parent: Ints) -> tuple[Ints, Ints]:
    """Children of every label in order, those of the root last: children[indptr[j]:indptr[j + 1]]."""
    owner = np.where(parent < 0, len(parent), parent)
    children = np.argsort(owner, kind="stable")
    indptr = np.append(0, np.cumsum(np.bincount(owner, minlength=len(parent) + 1)))
    return children, indptr


def depth_first(parent: Ints) -> Ints:
    """Return the labels in depth-first order from the root, each after its parent."""
    children, indptr = children_of(parent)
    order: list[int] = []
    stack = children[indptr[-2] :][::-1].tolist()
    while stack:
        label = stack.pop()
        order.append(label)
        stack.extend(children[indptr[label] : indptr[label + 1]][::-1].tolist())
    return np.array(order, dtype=np.int64)


def waves(parent: Ints, labels_per_block: int) -> Iterator[Ints]:
    """Yield groups of labels that do not depend on each other, every label after its parent."""
    order = depth_first(parent)
    for first in range(0, len(order), labels_per_block):
        block = order[first : first + labels_per_block]
        wave = dict.fromkeys(block.tolist(), 0)
        for label in block.tolist():  # a parent in the block comes before its children
            wave[label] = wave.get(int(parent[label]), -1) + 1
        number = np.array([wave[label] for label in block.tolist()])
        for k in range(int(number.max()) + 1):
            yield block[number == k]
