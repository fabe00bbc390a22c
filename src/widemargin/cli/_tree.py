"""Models on a tree on the command line: the labels of a file as names of nodes, and metrics of the tree.

Rows with several labels are measured against the label nearest to the prediction; F1 counts all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin import metrics
from widemargin.data.load import Dataset
from widemargin.estimators.tree.model import nearest_labels, nodes_of_labels, path_proba
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["evaluate_on_tree", "named_targets"]


def named_targets(dataset: Dataset, taxonomy: Taxonomy | None) -> Dataset:
    """The data with labels as names: one a row if all rows have one, else lists.

    Numbers become text where the nodes of the taxonomy are; a file of columns without names has their numbers.
    """
    Y = dataset.Y
    if Y is None:
        return dataset
    as_text = taxonomy is not None and all(isinstance(name, str) for name in taxonomy.nodes)
    if not sp.issparse(Y) and np.ndim(Y) == 1:
        return replace(dataset, Y=np.array([_text(label) for label in Y.tolist()]) if as_text else Y)
    Y = sp.csr_array(Y)
    if not np.all(Y.data):  # a store is read-only
        Y = Y.copy()
        Y.eliminate_zeros()
    names: list[Any] = list(range(Y.shape[1])) if dataset.label_names is None else list(dataset.label_names)
    if as_text:
        names = [_text(name) for name in names]
    counts, columns = np.diff(Y.indptr), Y.indices.tolist()
    if (counts == 1).all():
        return replace(dataset, Y=np.array(names)[columns], label_names=None)
    rows = [[names[c] for c in columns[a:b]] for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
    return replace(dataset, Y=rows, label_names=None)


def _text(label: Any) -> str:
    """A label as text; whole numbers, which svmlight has as floats, without a point."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def evaluate_on_tree(model: Any, dataset: Dataset, ks: list[int] | None) -> dict[str, Any]:
    """Accuracy, measures of the tree, F1s, the error of each level and of probabilities; with `ks`, top-k accuracies.

    Only `at_or_below` and the tree loss take a prediction below the true node for right.
    """
    tree = model.taxonomy_
    y = named_targets(dataset, tree).Y
    predicted = tree.indices(model.predict(dataset.X)).astype(np.int64)
    row, node = nodes_of_labels(model, y)
    nearest = nearest_labels(tree, row, node, predicted)
    kept = nearest >= 0  # rows without a label cannot be measured
    true, guess = ([tree.nodes[i] for i in side[kept].tolist()] for side in (nearest, predicted))
    by_depth = metrics.error_by_depth(true, guess, tree)
    sets: list[list[Any]] = [[] for _ in range(len(predicted))]
    for r, i in zip(row.tolist(), node.tolist(), strict=True):
        sets[r].append(tree.nodes[i])
    kept_sets = [labels for labels, keep in zip(sets, kept, strict=True) if keep]
    guesses = [[name] for name in guess]
    values: dict[str, Any] = {
        "accuracy": float((nearest == predicted)[kept].mean()),
        "at_or_below": 1.0 - metrics.hierarchical_zero_one_error(true, guess, tree),
        "hierarchical_f1": metrics.hierarchical_f1(kept_sets, guesses, tree),
        "tree_loss": metrics.tree_induced_loss(true, guess, tree),
        "micro_f1": metrics.micro_f1(kept_sets, guesses),
        "macro_f1": metrics.macro_f1(kept_sets, guesses, labels=model.classes_),
        "error_by_level": {
            str(depth): float(wrong)
            for depth, wrong in zip(by_depth.depth, by_depth.error, strict=True)
            if wrong == wrong
        },
    }
    if ks is not None:
        top = model.predict_topk(dataset.X, max(ks)).indices
        listed = tree.indices(model.classes_)[top]
        hits = np.zeros((len(predicted), max(ks)), dtype=bool)
        np.logical_or.at(hits, row, (top[row] >= 0) & (node[:, None] == listed[row]))
        values["top_k_accuracy"] = {str(k): float(hits[kept, :k].any(axis=1).mean()) for k in ks}
    if hasattr(model, "label_proba"):
        sides = nearest[kept], predicted[kept]
        probability = path_proba(model, dataset.X[kept], *sides)
        values["calibration_error"] = metrics.expected_calibration_error(tree.tree.covers(*sides), probability)
    return values
