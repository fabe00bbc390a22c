"""The true labels of rows on a tree, as measures and reports need them: one node a row, whatever form they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.estimators._tree_targets import label_nodes, most_specific
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["nearest_labels", "nodes_of_labels"]

Ints = npt.NDArray[np.int64]


def nodes_of_labels(model: Any, y: Any) -> tuple[Ints, Ints]:
    """Rows and nodes of all labels, those left out that are above another one of the row."""
    targets = encode_targets(y)
    Y = targets.Y
    if targets.kind == "multilabel":
        row, column = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices
    else:
        row, column = np.arange(Y.shape[0]), targets.indices
    used, column = np.unique(column, return_inverse=True)
    node = label_nodes(targets.classes[used], model.taxonomy_, model.separator)[column]
    return most_specific(row, node, model.taxonomy_)


def nearest_labels(tree: Taxonomy, row: Ints, node: Ints, predicted: Ints) -> Ints:
    """The label of each row with the least tree-induced loss; −1 for rows without labels."""
    below = tree.tree.covers(node, predicted[row])
    loss = np.where(below, 0, tree.tree.distance(node, predicted[row]))
    order = np.lexsort((loss, row))
    rows, first = np.unique(row[order], return_index=True)
    nearest = np.full(len(predicted), -1, dtype=np.int64)
    nearest[rows] = node[order][first]
    return nearest
