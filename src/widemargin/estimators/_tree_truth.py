"""The true labels of rows on a tree, as measures and reports need them: one node per row, whatever form they have.

Probabilities are judged in the same way in `evaluate`, displays and reports: a label that is no leaf says nothing of
what is below it, so that a prediction is cut to its depth, and holds if the label is at or below what is left. Accuracy
is exact. Memory beside the rows: a block of them × nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.estimators._tree_targets import label_nodes
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics._ancestor_sets import most_specific, nearest_labels

__all__ = ["nearest_labels", "nodes_of_labels", "path_proba", "probable_predictions"]

Ints = npt.NDArray[np.int64]

UNKNOWN = -1
BLOCK_VALUES = 1 << 21
"""Probabilities of all nodes for so many rows at a time that they take 16 MB."""


def nodes_of_labels(model: Any, y: Any, *, skip_unknown: bool = False) -> tuple[Ints, Ints]:
    """Rows and nodes of all labels, those left out that are above another one of the row.

    A label that is not in the tree is an error, or left out as well.
    """
    targets = encode_targets(y)
    Y = targets.Y
    if targets.kind == "multilabel":
        row, column = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices
    else:
        row, column = np.arange(Y.shape[0]), targets.indices
    used, column = np.unique(column, return_inverse=True)
    missing = UNKNOWN if skip_unknown else None
    node = label_nodes(targets.classes[used], model.taxonomy_, model.separator, missing=missing)[column.reshape(-1)]
    return most_specific(row[node != UNKNOWN], node[node != UNKNOWN], model.taxonomy_)


def probable_predictions(model: Any, X: Any, y: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Of each row with a label: whether the prediction is right, and the probability that it is; see `path_proba`."""
    tree: Taxonomy = model.taxonomy_
    predicted = tree.indices(model.predict(X)).astype(np.int64)
    true = nearest_labels(tree, *nodes_of_labels(model, y), predicted)
    kept = np.flatnonzero(true >= 0)
    probability = path_proba(model, X[kept], true[kept], predicted[kept])
    return np.asarray(tree.tree.covers(true[kept], predicted[kept])), probability


def path_proba(model: Any, X: Any, true: Ints, predicted: Ints) -> npt.NDArray[np.float64]:
    """Probabilities of predictions, cut to the depth of the true label, beyond which nothing is known of the row.

    The most probable class would not do: a label above others has the probability of all of them.
    """
    tree = model.taxonomy_.tree
    known = predicted.copy()
    while (below := tree.depth[known] > tree.depth[true]).any():
        known[below] = tree.parent[known[below]]
    probability: npt.NDArray[np.float64] = model.label_proba(X, model.predict_topk(X, 1).indices)[:, 0]
    cut = np.flatnonzero(known != predicted)
    size = max(1, BLOCK_VALUES // tree.n_nodes)
    for start in range(0, len(cut), size):
        rows = cut[start : start + size]
        of_nodes = np.column_stack([np.ones(len(rows)), model.predict_node_proba(X[rows])])  # the root: 1
        probability[rows] = of_nodes[np.arange(len(rows)), known[rows]]
    return probability
