"""True labels and predictions as node numbers of a tree, for the displays of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.estimators._tree_targets import label_nodes
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics._ancestor_sets import node_numbers

__all__ = ["child_towards", "numbers", "predictions_of", "where_paths_part"]

Ints = npt.NDArray[np.int64]

ELSEWHERE, STOPPED = -1, -2


def numbers(y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """Node numbers of true and predicted labels, each of shape (n_samples,)."""
    true, predicted = node_numbers(y_true, y_pred, taxonomy)
    return true.astype(np.int64), predicted.astype(np.int64)


def predictions_of(estimator: Any, X: Any, y: Any) -> tuple[list[Any], Any, Taxonomy]:
    """True labels as names of nodes, predictions, and the tree of a fitted model."""
    if not hasattr(estimator, "taxonomy_"):
        raise ValueError(
            f"{type(estimator).__name__} has no taxonomy_; fit a HierarchicalClassifier, or use from_predictions"
        )
    tree: Taxonomy = estimator.taxonomy_
    nodes = label_nodes(np.asarray(y), tree, estimator.separator)
    return [tree.nodes[node] for node in nodes.tolist()], estimator.predict(X), tree


def child_towards(taxonomy: Taxonomy, node: int, nodes: Ints) -> Ints:
    """Which child of `node`, by its place, each of the nodes is at or below; STOPPED for the node, else ELSEWHERE."""
    tree = taxonomy.tree
    children = tree.children(node)
    places = np.searchsorted(tree.enter[children], tree.enter[nodes], side="right") - 1
    inside = tree.covers(node, nodes)
    return np.where(nodes == node, STOPPED, np.where(inside, places, ELSEWHERE)).astype(np.int64)


def where_paths_part(true: Ints, predicted: Ints, taxonomy: Taxonomy) -> list[tuple[int, int]]:
    """Nodes with the number of wrong predictions that leave the true path below them, most first."""
    wrong = ~taxonomy.tree.covers(true, predicted)
    nodes, counts = np.unique(taxonomy.tree.lca(true[wrong], predicted[wrong]), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return list(zip(nodes[order].tolist(), counts[order].tolist(), strict=True))
