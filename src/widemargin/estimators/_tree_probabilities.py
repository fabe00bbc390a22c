"""Probabilities along the paths of a tree: at each node of a path a choice among siblings, and their product.

    P(node) = P(parent) · P(node | its siblings),      P(root) = 1

Where all classes compete at once, there is one choice among them, and a node above has the sum of the classes below.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin.estimators._calibrated import CalibratedModel, if_calibrated
from widemargin.estimators._tree_decisions import DecisionTree
from widemargin.estimators._tree_targets import label_nodes, most_specific, without_stops
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.solvers.calibration import Choices

__all__ = ["TreeProbabilities"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class TreeProbabilities(CalibratedModel):
    """Probabilities of a fitted model on a tree; a mix-in for the estimator."""

    taxonomy_: Taxonomy
    _decisions: DecisionTree

    @if_calibrated
    def predict_node_proba(self, X: Any) -> Floats:
        """Probabilities that the label of a row is a node or below it; those of children add up to their parent's.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_nodes − 1)
            Column c belongs to `taxonomy_.nodes[c + 1]`, as in `node_scores`; 0 for nodes below which nothing was seen
            in training. Dense, so it is refused above `memory_limit_mb`. There only after `calibrate`.
        """
        X = self._check_rows(X)
        tree = self.taxonomy_.tree
        self._refuse_dense(_num_samples(X), tree.n_nodes - 1, "predict_node_proba")
        out = np.zeros((_num_samples(X), tree.n_nodes - 1))
        for rows, scores in self._steady_blocks(X):
            out[rows, self._decisions.rows] = self._path_probabilities(scores)
        if len(self._decisions.levels) == 1:  # classes that compete at once: nodes above them sum them up
            for depth in range(int(tree.depth.max()), 1, -1):
                nodes = np.flatnonzero(tree.depth == depth)
                np.add.at(out.T, tree.parent[nodes] - 1, out.T[nodes - 1])
        return out

    def _path_probabilities(self, scores: Floats) -> Floats:
        """P of the nodes of the decision tree, (n_rows, n_live), from the scores of all nodes."""
        tree = self._decisions
        starts, found = tree.group_start, np.ascontiguousarray(scores[:, tree.rows])
        found = self.calibration_.of_groups(found, starts, _node_of(tree, tree.parent[starts]))
        for level in tree.levels[1:]:
            found[:, level] *= found[:, tree.parent[level]]
        return found

    def _probabilities(self, scores: Floats) -> Floats:
        place = self._decisions.place
        found: Floats = self._path_probabilities(scores)[:, place]
        found[:, place < 0] = 1.0  # every label is the root or below it
        return found

    def _n_groups(self) -> int | None:
        return int(self.taxonomy_.n_nodes)

    def _n_block_values(self) -> int:
        return int(self.taxonomy_.n_nodes)

    def _calibration_targets(self, y: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
        y = y if hasattr(y, "shape") or isinstance(y, list) else list(y)
        targets = encode_targets(y)
        in_tree = label_nodes(targets.classes, self.taxonomy_, self.separator, missing=-1) >= 0
        if not in_tree.any():
            label_nodes(targets.classes, self.taxonomy_, self.separator)  # the error that names them
        several = targets.kind == "multilabel"
        known = targets.Y @ in_tree > 0 if several else in_tree[targets.indices]
        if several and not in_tree.all():  # a row may have labels of both kinds
            names = targets.classes.tolist()
            rows = np.split(targets.Y.indices, targets.Y.indptr[1:-1])
            y = [[names[label] for label in row.tolist() if in_tree[label]] for row in rows]
        return y, np.asarray(known)

    def _fold_model(self) -> Any:
        return super()._fold_model().set_params(taxonomy=without_stops(self.taxonomy_, self._stops))

    def _evidence(self, model: Any, X: Any, y: Any, weights: Floats) -> Choices:
        """The choices on the way to the label of every row; labels that the model does not know are left out."""
        X = model._check_rows(X)
        row, place, share = _examples(model, y)
        scores = model._all_scores(_safe_indexing(X, row))[:, model._decisions.rows]
        parts = list(_choices_on_paths(model._decisions, scores, place))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0, int)] * 5
        values, sizes, true, example, node = columns
        starts = np.cumsum(sizes) - sizes
        groups = self._same_nodes(model, node.astype(np.int64))
        return Choices(values.astype(np.float64), starts, starts + true, (weights[row] * share)[example], groups)

    def _same_nodes(self, model: Any, nodes: Ints) -> Ints:
        """Nodes of another model's tree in this one, by name; virtual nodes of the two may differ."""
        used, place = np.unique(nodes, return_inverse=True)
        names = [model.taxonomy_.nodes[node] for node in used.tolist()]
        found: Ints = self.taxonomy_.indices(names).astype(np.int64)[place.reshape(-1)]
        return found


def _node_of(tree: DecisionTree, places: Ints) -> Ints:
    """Nodes of the taxonomy of places in the decision tree, −1 being the root."""
    nodes: Ints = np.where(places >= 0, tree.rows[np.maximum(places, 0)] + 1, 0)
    return nodes


def _examples(model: Any, y: Any) -> tuple[Ints, Ints, Floats]:
    """Row, place in the decision tree and share of the row's weight of each label that the model can end at."""
    targets = encode_targets(y)
    if targets.kind == "multilabel":
        row, column = np.repeat(np.arange(targets.Y.shape[0]), np.diff(targets.Y.indptr)), targets.Y.indices
    else:
        row, column = np.arange(targets.Y.shape[0]), targets.indices
    used, column = np.unique(column, return_inverse=True)
    node = label_nodes(targets.classes[used], model.taxonomy_, model.separator)[column.reshape(-1)]
    row, node = most_specific(row, node, model.taxonomy_)
    share = 1.0 / np.bincount(row)[row]
    known = dict(zip(model.classes_.tolist(), model._decisions.place.tolist(), strict=True))
    place = np.array([known.get(model.taxonomy_.nodes[i], -1) for i in node.tolist()], dtype=np.int64)
    kept = place >= 0
    return row[kept], place[kept], share[kept]


def _choices_on_paths(tree: DecisionTree, scores: Floats, place: Ints) -> Iterator[tuple[Any, ...]]:
    """Scores of siblings, sizes, the true one of them, example and parent's node: for all paths, a level at a time."""
    example = np.arange(len(place))
    while len(place):
        above = tree.parent[place]
        start = tree.first_child[above + 1]
        sizes = tree.first_child[above + 2] - start
        some = sizes > 1
        if some.any():
            counts = sizes[some]
            first = np.cumsum(counts) - counts
            columns = np.arange(counts.sum()) - np.repeat(first - start[some], counts)
            values = scores[np.repeat(example[some], counts), columns]
            yield values, counts, (place - start)[some], example[some], _node_of(tree, above[some])
        inside = above >= 0
        place, example = above[inside], example[inside]
