"""Labels as nodes and their ancestor sets, counted: what the metrics on a tree are made of.

For label sets, with A⁺ the nodes of a set and their ancestors without the root,

    |A⁺(p_s) ∩ A⁺(y_s)|, |A⁺(p_s)| and |A⁺(y_s)|      for every row s

are sizes of rows of sparse products with the ancestor matrix; single labels need only depths. Memory: the non-zeros of
the ancestor sets of BLOCK_ROWS rows at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.labels._target_forms import as_indicator, as_label_sets, is_indicator, unwrap
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import IntArray
from widemargin.metrics._checks import check_weights

__all__ = ["checked_weights", "most_specific", "nearest_labels", "node_numbers", "set_sizes", "weighted_sizes"]

BLOCK_ROWS = 2**16  # rows whose ancestor sets are held at a time

FloatArray = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def node_numbers(y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> tuple[IntArray, IntArray]:
    """Node numbers of true and predicted nodes, one per row; of a set of true labels, that of the nearest."""
    predicted = taxonomy.indices(y_pred)
    if _is_single(y_true, taxonomy):
        true = taxonomy.indices(y_true)
        _check_rows(true.size, predicted.size)
        return true, predicted
    sets = _node_sets(y_true, taxonomy, None)
    _check_rows(sets.shape[0], predicted.size)
    row = np.repeat(np.arange(sets.shape[0]), np.diff(sets.indptr))
    true = nearest_labels(taxonomy, *most_specific(row, sets.indices, taxonomy), predicted)
    if true.min(initial=0) < 0:
        raise ValueError(f"row {int(true.argmin())} of y_true has no label; leave out rows that cannot be measured")
    return true, predicted


def most_specific(row: Ints, node: Ints, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """Examples without those whose node is above that of another example of the row, or the same."""
    tree = taxonomy.tree
    order = np.lexsort((tree.enter[node], row))
    row, node = row[order], node[order]
    keep = np.ones(len(row), dtype=bool)
    # What is below a node follows it in the preorder, so that the next label of the row tells.
    keep[:-1] = (row[:-1] != row[1:]) | ~tree.covers(node[:-1], node[1:])
    return row[keep].astype(np.int64), node[keep]


def nearest_labels(tree: Taxonomy, row: Ints, node: Ints, predicted: Ints) -> Ints:
    """The label of each row with the least tree-induced loss; −1 for rows without labels."""
    below = tree.tree.covers(node, predicted[row])
    loss = np.where(below, 0, tree.tree.distance(node, predicted[row]))
    order = np.lexsort((loss, row))
    rows, first = np.unique(row[order], return_index=True)
    nearest = np.full(len(predicted), -1, dtype=np.int64)
    nearest[rows] = node[order][first]
    return nearest


def _check_rows(n_true: int, n_pred: int) -> None:
    """Refuse different numbers of rows, and none."""
    if n_true != n_pred:
        raise ValueError(f"y_true has {n_true} rows and y_pred {n_pred}; give a prediction for every row")
    if n_true == 0:
        raise ValueError("y_true has no rows; a metric needs at least one")


def checked_weights(sample_weight: npt.ArrayLike | None, n_samples: int) -> FloatArray:
    """Weights of the rows, checked; without weights there may also be no rows."""
    return np.ones(n_samples) if sample_weight is None else check_weights(sample_weight, n_samples)


def weighted_sizes(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, labels: Any, sample_weight: npt.ArrayLike | None
) -> tuple[float, float, float]:
    """Weighted numbers of nodes that are shared, predicted and true, ancestors included and the root excluded."""
    if _is_single(y_true, taxonomy) and _is_single(y_pred, taxonomy):
        true, predicted = node_numbers(y_true, y_pred, taxonomy)
        depth = taxonomy.depth  # |A⁺(i)| without the root, and A⁺(i) ∩ A⁺(j) = A⁺(LCA)
        counts = (depth[taxonomy.tree.lca(true, predicted)], depth[predicted], depth[true])
    else:
        counts = set_sizes(_node_sets(y_true, taxonomy, labels), _node_sets(y_pred, taxonomy, labels), taxonomy)
    weight = checked_weights(sample_weight, counts[0].size)
    shared, n_predicted, n_true = (float(weight @ count) for count in counts)
    return shared, n_predicted, n_true


def _is_single(y: Any, taxonomy: Taxonomy) -> bool:
    """Whether y has one node a row; tuples may be names."""
    if isinstance(y, list) and y and isinstance(y[0], tuple) and y[0] in taxonomy:
        return True
    values = unwrap(y)
    return not isinstance(values, list) and not is_indicator(values)


def _node_sets(y: Any, taxonomy: Taxonomy, labels: Any) -> Any:
    """Indicator of the given nodes, shape (n_samples, n_nodes)."""
    if _is_single(y, taxonomy):
        columns = taxonomy.indices(y)
        indptr: npt.NDArray[Any] = np.arange(columns.size + 1)
    elif isinstance(values := unwrap(y), list):
        sets = as_label_sets(values)
        columns, indptr = taxonomy.indices(sets.labels), sets.indptr
    else:
        given = as_indicator(values)
        names = taxonomy.order if labels is None else taxonomy.indices(labels)
        if given.shape[1] != names.size:
            raise ValueError(
                f"the indicator has {given.shape[1]} columns for {names.size} labels; name them in labels="
            )
        columns, indptr = names[given.indices], given.indptr
    ones = np.ones(columns.size, dtype=np.int8)
    return sparse.csr_array((ones, columns, indptr), shape=(indptr.size - 1, taxonomy.n_nodes))


def set_sizes(true: Any, predicted: Any, taxonomy: Taxonomy) -> tuple[IntArray, IntArray, IntArray]:
    """Per row, the sizes of the ancestor sets: shared, predicted, true."""
    _check_rows(true.shape[0], predicted.shape[0])
    used = np.union1d(true.indices, predicted.indices)
    # int32: a sum of int8 ones over 256 labels would wrap to 0.
    above = taxonomy.tree.ancestor_matrix(used)[:, 1:].astype(np.int32)
    sizes = np.empty((3, true.shape[0]), dtype=np.intp)
    for start in range(0, true.shape[0], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        T, P = true[rows][:, used] @ above, predicted[rows][:, used] @ above
        T.data[:] = P.data[:] = 1
        sizes[:, rows] = [np.diff(sets.indptr) for sets in (T.multiply(P).tocsr(), P, T)]
    return sizes[0], sizes[1], sizes[2]
