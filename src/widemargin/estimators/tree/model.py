"""A fitted model on a tree: scores of nodes and classes, decisions, probabilities, explanations.

A model sets `taxonomy_`, `classes_`, the node of each class, and the weights of all nodes but the root, or a kernel.
Decisions turn the scores s of nodes into scores of paths, and into one path or the top few:

    greedy   from the root down to the best child, level by level: eq. (1) of Zhou, Xiao and Wu (2011)
    margin   of a path: min over its nodes i of s_i − max of the siblings' scores; above 0 only for the greedy path
    sum      of a path: Σ over its nodes of s_i
    beam     the paths with the largest sums of each level, among those that continue a path kept above

Nodes with no training label at or below them take no part. Where all labels compete at once, the tree of decisions is a
star, and all rules are the argmax. Probabilities multiply along a path, with one choice among siblings per node:

    P(node) = P(parent) · P(node | its siblings),      P(root) = 1

Where all classes compete at once, there is one choice among them, and a node above has the sum of the classes below.
Scores of paths are linear in the row once the weakest step and its best sibling are known, so explanations are exact.

Work is done in dense blocks, rows × nodes, that fit `memory_limit_mb`; a greedy decision from weights looks only at the
children on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_consistent_length

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.calibration import BYTES_PER_MB, Calibrator, if_calibrated
from widemargin.estimators.explanation import (
    Explanation,
    LabelExplanation,
    LinearForm,
    Row,
    as_list,
    make_row,
    one_row,
    plain,
    weights_of_rows,
)
from widemargin.estimators.scoring import LabelModel, TopK
from widemargin.estimators.training import COUNT
from widemargin.estimators.tree.targets import join_levels, label_nodes, labelled_nodes, without_stops
from widemargin.labels.encoding import encode_targets, unwrap
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import Tree
from widemargin.metrics.hierarchical import nearest_labels
from widemargin.metrics.lists import find_tied, joined_ties
from widemargin.problems.tree_factor import AncestorPaths, FactoredScorer, TreeWeights
from widemargin.solvers.calibration import Choices

__all__ = ["DecisionTree", "Orthogonality", "TreeLabelModel", "nearest_labels", "nodes_of_labels", "path_proba"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
GroupScores = Callable[[Ints, slice], Floats]
"""Scores (n_rows, n_nodes) of some rows at a range of nodes of the decision tree."""

PATH_METHODS = ("orthogonal", "per-node", "similarity")
"""Methods that train the path to a label, and predict by going down."""
DECISIONS = ("auto", "greedy", "beam", "flat")
BLOCK_ARRAYS = 8
"""Arrays of the size of the scores of a block that exist at once."""
BLOCK_VALUES = 1 << 21
"""Probabilities of nodes that are computed at once: 16 MB."""
AT_BOUND = 1e-6
"""|S| this close to 1 is at its bound."""
ROWS_SHOWN = 10


@with_shared_passages
class TreeLabelModel(LabelModel):
    """Scores, predictions, probabilities and explanations of a fitted model on a tree; a base of the estimator."""

    taxonomy_: Taxonomy
    class_node_: Ints
    separator: str | None
    beam_width: int
    _decisions: DecisionTree
    _stops: Ints

    def decision_function(self, X: Any) -> Floats:
        """Scores of all classes.

        With `decision="greedy"`, the margin of the path to the class: the smallest lead of a node of the path over its
        siblings, above 0 only for the greedy path. With "beam" and "flat", the sum of the scores of the nodes of the
        path, or the score of the class itself where all classes compete at once. An inner node among the classes has at
        least the margin of all classes below it, although without `stop=True` no prediction ends there.

        <rows_to_score>

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            Scores in float64; for two classes the lead of the second. The array is dense, so a result above
            `memory_limit_mb` raises a MemoryError; `predict_topk` never does.
        """
        X = self._check_rows(X)
        self._refuse_dense(X.shape[0], len(self.classes_), "decision_function")
        scores = np.empty((X.shape[0], len(self.classes_)))
        for rows, values in self._path_scores(X):
            scores[rows] = self._decisions.of_classes(values)
        if self.kind_ != "binary":
            return scores
        # The margins of two siblings are each other's negative: the lead is half of their difference.
        return (scores[:, 1] - scores[:, 0]) * (0.5 if self._decision() == "greedy" else 1.0)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict one label per row.

        <rows_to_score>

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of nodes, among `classes_`.
        """
        classes = self._predicted_classes(self._check_rows(X))
        labels: npt.NDArray[Any] = self.classes_[classes]
        return labels

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The top k labels of each row, by the scores of their paths.

        <rows_to_score>
        k : int, default=5
            Number of labels. Places beyond the labels that can be predicted, or beyond those that a beam finds, are
            marked as missing; a beam is at least k wide.

        <top_k_lists>
        """
        if not COUNT.is_satisfied_by(k):
            raise ValueError(f"k, the number of labels per row, must be a positive integer; got {k!r}")
        X = self._check_rows(X)
        indices, ranked = np.empty((X.shape[0], k), dtype=np.int64), np.empty((X.shape[0], k))
        tied = []
        for rows, values in self._path_scores(X):
            kept = self._kept_by_beam(values, k)
            # One more place shows which lists end within a tie.
            listed, scores = self._decisions.best_ends(values, k + 1, kept)
            indices[rows], ranked[rows] = listed[:, :k], scores[:, :k]
            labels_tied = partial(self._labels_tied, values, kept, scores[:, k - 1])
            tied.append(find_tied(listed, scores, k, len(self.classes_), labels_tied))
        return TopK(None, ranked, indices, self.classes_, joined_ties(tied))

    def label_scores(self, X: Any, y: Any) -> Any:
        """Scores of known labels, as in `decision_function` for three or more classes.

        <rows_to_score>
        y : array-like of shape (n_samples,)
            Their labels, from `classes_`, as names or full paths.

        Returns
        -------
        ndarray of shape (n_samples,)
            The score of each row's label.
        """
        X = self._check_rows(X)
        targets = encode_targets(join_levels(y, self.separator))
        if targets.kind == "multilabel":
            raise ValueError("label_scores requires one label per row, but y has several")
        classes = self._class_numbers(targets.classes)[targets.indices]
        check_consistent_length(X, classes)
        scores = np.empty(X.shape[0])
        for rows, values in self._path_scores(X):
            known = self._decisions.of_classes(values)
            scores[rows] = known[np.arange(len(known)), classes[rows]]
        return scores

    def explain(
        self, X: Any, labels: Any = None, *, k: int = 1, feature_names: Sequence[str] | None = None
    ) -> Explanation:
        if not COUNT.is_satisfied_by(k):
            raise ValueError(f"k, the number of labels to explain, must be a positive integer; got {k!r}")
        checked = self._explained_row(one_row(X))
        paths = _Paths(self, checked, make_row(self, checked, feature_names))
        best = paths.best(max(int(k), 2))  # of a wider beam, which may find another label than that of the top k
        chosen = paths.best(int(k)) if labels is None else self._class_numbers(as_list(labels)).tolist()
        return Explanation(tuple(paths.explain(label, best) for label in chosen))

    explain.__doc__ = LabelModel.explain.__doc__

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, at_or_below: bool = False) -> float:
        """Share of rows whose label is predicted exactly: the accuracy, as for every other classifier.

        <rows_to_score>
        y : array-like of shape (n_samples,), indicator, list of label sets, or level columns
            True labels, names or full paths. If a row has several, labels above another one are ignored, and predicting
            any of the others is correct. A label that is not in the tree counts as a wrong prediction.
        <sample_weight>
        at_or_below : bool, default=False
            Whether predictions below the true node also count as correct. This is the rule of Zhou, Xiao and Wu (2011),
            one minus `metrics.hierarchical_zero_one_error`. It favours models that only predict leaves; to compare
            models on rows that are labelled with inner nodes, use the accuracy or `metrics.hierarchical_f1`.

        Returns
        -------
        float
            Between 0 and 1.
        """
        classes = self._predicted_classes(self._check_rows(X))
        tree = self.taxonomy_
        predicted = tree.indices(self.classes_)[classes]
        check_consistent_length(predicted, unwrap(y), sample_weight)
        row, node = nodes_of_labels(self, y, skip_unknown=True)
        fits = tree.tree.covers(node, predicted[row]) if at_or_below else node == predicted[row]
        right = np.bincount(row, weights=fits, minlength=len(predicted)) > 0
        return float(np.average(right, weights=sample_weight))

    def decision_path(self, X: Any) -> Any:
        """The nodes from the root to the predicted label, in the form of scikit-learn's trees.

        <rows_to_score>

        Returns
        -------
        csr_array of int8 of shape (n_samples, n_nodes)
            1 for the nodes of `taxonomy_` on the path, including the root and a virtual node. The names of one path are
            `taxonomy_.path(label)`.
        """
        classes = self._predicted_classes(self._check_rows(X))
        return self.taxonomy_.tree.ancestor_matrix(self.class_node_[classes])

    def node_scores(self, X: Any) -> Floats:
        """Scores of all nodes except the root.

        <rows_to_score>

        Returns
        -------
        ndarray of shape (n_samples, n_nodes − 1)
            Column c belongs to `taxonomy_.nodes[c + 1]`. The array is dense, so a result above `memory_limit_mb` raises
            a MemoryError.
        """
        X = self._check_rows(X)
        self._refuse_dense(X.shape[0], self.taxonomy_.n_nodes - 1, "node_scores")
        return self._all_scores(X)

    @if_calibrated
    def predict_node_proba(self, X: Any) -> Floats:
        """Probabilities that the label of a row is at or below each node; those of children add up to their parent's.

        <rows_to_score>

        Returns
        -------
        ndarray of shape (n_samples, n_nodes − 1)
            Column c belongs to `taxonomy_.nodes[c + 1]`, as in `node_scores`; 0 for nodes with no training label at or
            below them. The array is dense, so a result above `memory_limit_mb` raises a MemoryError. Available after
            `calibrate`.
        """
        X = self._check_rows(X)
        tree, n_rows = self.taxonomy_.tree, _num_samples(X)
        self._refuse_dense(n_rows, tree.n_nodes - 1, "predict_node_proba")
        out = np.zeros((n_rows, tree.n_nodes - 1))
        for rows, scores in self.calibrator.steady_blocks(X):
            out[rows, self._decisions.rows] = self.calibrator.path_probabilities(scores)
        if len(self._decisions.levels) == 1:  # all classes compete at once: nodes above them sum them up
            for depth in range(tree.height, 1, -1):
                nodes = np.flatnonzero(tree.depth == depth)
                np.add.at(out.T, tree.parent[nodes] - 1, out.T[nodes - 1])
        return out

    @property
    def calibrator(self) -> TreeCalibrator:
        """The probabilities of this model."""
        return TreeCalibrator(self)

    def _decision(self) -> str:
        """The rule in force: that of the method unless one was chosen."""
        if self.decision == "auto":
            return "greedy" if self._follows_paths() else "flat"
        if self.decision not in DECISIONS:
            known = ", ".join(map(repr, DECISIONS))
            raise ValueError(f"{type(self).__name__}: decision must be one of {known}; got {self.decision!r}")
        return str(self.decision)

    def _follows_paths(self) -> bool:
        """Whether siblings compete along a path, or all classes at once."""
        return self.method in PATH_METHODS

    def _class_numbers(self, labels: Any) -> Ints:
        """Class numbers of labels, given as names of nodes or as full paths."""
        nodes = label_nodes(labels, self.taxonomy_, self.separator)
        return self._encoding()._look_up([self.taxonomy_.nodes[node] for node in nodes.tolist()])

    def _predicted_classes(self, X: Any) -> Ints:
        """Number of the class predicted for each of the checked rows."""
        found = np.empty(X.shape[0], dtype=np.int64)
        if self._decision() != "greedy":
            for rows, values in self._path_scores(X):
                found[rows] = self._decisions.best_ends(values, 1, self._kept_by_beam(values, 1))[0][:, 0]
            return found
        has_rows = isinstance(getattr(self, "coef_", None), np.ndarray | TreeWeights)
        by_group = has_rows and len(self._decisions.levels) > 1
        largest = int(np.diff(self._decisions.first_child).max())
        for rows in self._row_blocks(X.shape[0], largest if by_group else self.taxonomy_.n_nodes):
            part = X[rows]
            scores = None if by_group else self._all_scores(part)[:, self._decisions.rows]
            found[rows] = self._decisions.greedy(part.shape[0], partial(self._group_scores, part, scores))
        return found

    def _group_scores(self, X: Any, scores: Floats | None, rows: Ints, nodes: slice) -> Floats:
        """Scores of some rows at siblings of the decision tree: those given, else from the siblings' weights alone."""
        if scores is not None:
            return scores[rows, nodes]
        places = self._decisions.rows[nodes]
        if isinstance(self.coef_, TreeWeights):
            values = self.coef_.sibling_scores(X[rows], places)
        else:
            values = np.asarray(X[rows] @ self.coef_[places].astype(np.float64, copy=False).T, dtype=np.float64)
        found: Floats = values + self.intercept_[places]
        return found

    def _path_scores(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Margins or sums of the paths to the nodes of the decision tree, for blocks of rows."""
        path_score = self._decisions.margins if self._decision() == "greedy" else self._decisions.sums
        for rows in self._row_blocks(X.shape[0], self.taxonomy_.n_nodes):
            yield rows, path_score(np.ascontiguousarray(self._all_scores(X[rows])[:, self._decisions.rows]))

    def _kept_by_beam(self, values: Floats, k: int) -> Bools | None:
        """The paths that a beam finds for the top k; None without a beam."""
        if self._decision() != "beam":
            return None
        return self._decisions.kept_by_beam(values, max(int(self.beam_width), k))

    def _labels_tied(self, values: Floats, kept: Bools | None, last: Floats, rows: Ints) -> Bools:
        """Which classes have the score of the last listed one, in some rows of a block."""
        found = self._decisions.at_ends(values[rows], len(self.classes_), None if kept is None else kept[rows])
        return np.asarray(found == last[rows, None])

    def _all_scores(self, X: Any) -> Floats:
        """Scores at all nodes, shape (n_rows, m)."""
        scores: Floats = self.scorer.scores(X, n_threads=self._n_threads())
        return scores

    def _row_blocks(self, n_rows: int, n_nodes: int) -> Iterator[slice]:
        """Ranges of rows whose scores at that many nodes fit the memory limit."""
        row_bytes = 8 * BLOCK_ARRAYS * max(1, n_nodes)
        step = max(1, int(self.memory_limit_mb * BYTES_PER_MB / row_bytes))
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def _linear_scorer(self, scale: Floats | None) -> Any:
        if isinstance(self.coef_, TreeWeights):
            return FactoredScorer(self.coef_, self.intercept_)
        return super()._linear_scorer(scale)

    def _n_weights(self) -> int:
        coef = getattr(self, "coef_", None)
        return int(coef.parts.nnz) if isinstance(coef, TreeWeights) else super()._n_weights()

    def _weight_arrays(self) -> list[npt.NDArray[Any]]:
        coef = self.coef_
        return [*coef.arrays, self.intercept_] if isinstance(coef, TreeWeights) else super()._weight_arrays()

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        coef = getattr(self, "coef_", None)
        if not isinstance(coef, TreeWeights):
            return super()._weights_at(outputs, features)
        paths = [coef.path_factors(int(i)) for i in outputs]
        weights = [factors @ weights_of_rows(coef.parts, above, features) for above, factors in paths]
        return np.array(weights), self.intercept_[outputs].astype(np.float64)


class TreeCalibrator(Calibrator):
    """Probabilities of a model on a tree: one choice among siblings per node of a path."""

    def path_probabilities(self, scores: Floats) -> Floats:
        """P of the nodes of the decision tree, (n_rows, n_live), from the scores of all nodes."""
        tree = self.model._decisions
        starts, live = tree.group_start, np.ascontiguousarray(scores[:, tree.rows])
        found: Floats = self.model.calibration_.of_groups(live, starts, tree.nodes(tree.parent[starts]))
        for level in tree.levels[1:]:
            found[:, level] *= found[:, tree.parent[level]]
        return found

    def probabilities(self, scores: Floats) -> Floats:
        place = self.model._decisions.place
        found: Floats = self.path_probabilities(scores)[:, place]
        found[:, place < 0] = 1.0  # every label is the root or below it
        return found

    def n_groups(self) -> int | None:
        return int(self.model.taxonomy_.n_nodes)

    def n_block_values(self) -> int:
        return int(self.model.taxonomy_.n_nodes)

    def targets(self, y: Any) -> tuple[Any, Bools]:
        tree, separator = self.model.taxonomy_, self.model.separator
        y = join_levels(y if hasattr(y, "shape") or isinstance(y, list) else list(y), separator)
        targets = encode_targets(y)
        in_tree = label_nodes(targets.classes, tree, separator, missing=-1) >= 0
        if not in_tree.any():
            label_nodes(targets.classes, tree, separator)  # the error that names them
        if targets.kind != "multilabel":
            return y, np.asarray(in_tree[targets.indices])
        if not in_tree.all():  # a row may have labels of both kinds
            names, rows = targets.classes.tolist(), np.split(targets.Y.indices, targets.Y.indptr[1:-1])
            y = [[names[label] for label in row.tolist() if in_tree[label]] for row in rows]
        return y, np.asarray(targets.Y @ in_tree > 0)

    def fold_model(self) -> Any:
        return super().fold_model().set_params(taxonomy=without_stops(self.model.taxonomy_, self.model._stops))

    def evidence(self, model: Any, X: Any, y: Any, weights: Floats) -> Choices:
        """The choices on the way to the label of every row; labels that the model does not know are left out."""
        row, node = nodes_of_labels(model, y)
        share, place_of_node = 1.0 / np.bincount(row)[row], np.full(model.taxonomy_.n_nodes, -1, dtype=np.int64)
        place_of_node[model.taxonomy_.indices(model.classes_)] = model._decisions.place
        place = place_of_node[node]
        row, place, share = row[place >= 0], place[place >= 0], share[place >= 0]
        scores = model._all_scores(_safe_indexing(model._check_rows(X), row))[:, model._decisions.rows]
        parts = list(model._decisions.choices_on_paths(scores, place))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0, int)] * 5
        values, sizes, true, example, above = columns
        starts = np.cumsum(sizes) - sizes
        # The virtual nodes of the two models may differ, so their nodes are matched by name.
        used, group = np.unique(above.astype(np.int64), return_inverse=True)
        names = [model.taxonomy_.nodes[node] for node in used.tolist()]
        groups = self.model.taxonomy_.indices(names).astype(np.int64)[group.reshape(-1)]
        return Choices(values.astype(np.float64), starts, starts + true, (weights[row] * share)[example], groups)


class DecisionTree:
    """The part of a tree in which predictions are searched; its nodes are numbered breadth first without the root.

    Parameters
    ----------
    tree : Tree
        The tree that was trained; row r of the weights is its node r + 1.
    class_node : ndarray of int64 of shape (n_classes,)
        Node of each class.
    follows_paths : bool
        Whether siblings compete along a path, or all classes at once.

    Attributes
    ----------
    rows : ndarray of int64 of shape (n_live,)
        Row of the weights of each node.
    parent : ndarray of int64 of shape (n_live,)
        Number of the parent, −1 for the root.
    place : ndarray of int64 of shape (n_classes,)
        Node of each class here, −1 for a class that is the root.
    first_child : ndarray of int64 of shape (n_live + 2,)
        First child of each node, after that of the root.
    end_class : ndarray of int64 of shape (n_live,)
        Class that is predicted at a node without children, −1 for nodes with children.
    """

    def __init__(self, tree: Tree, class_node: Ints, follows_paths: bool) -> None:
        live, above = np.sort(class_node), tree.parent
        if follows_paths:  # nodes that are or cover the node of a class
            covers, node = np.zeros(len(above), dtype=bool), np.unique(class_node)
            while node.size:
                covers[node] = True
                node = np.unique(above[node[node > 0]])
                node = node[~covers[node]]
            covers[0] = False
            live = np.flatnonzero(covers)
        number = np.full(len(above), -1, dtype=np.int64)
        number[live] = np.arange(len(live))
        self.rows, self.place = live - 1, number[class_node]
        self.parent = number[above[live]] if follows_paths else np.full(len(live), -1, dtype=np.int64)
        # The children of the root, number −1, come first.
        self.first_child = np.searchsorted(self.parent, np.arange(-1, len(live) + 1))
        self.end_class = np.full(len(live), -1, dtype=np.int64)
        inside = self.place >= 0
        self.end_class[self.place[inside]] = np.flatnonzero(inside)
        self.end_class[np.diff(self.first_child)[1:] > 0] = -1

    def children(self, node: int) -> slice:
        """Children of a node; −1 is the root."""
        return slice(int(self.first_child[node + 1]), int(self.first_child[node + 2]))

    def nodes(self, places: Ints) -> Ints:
        """Nodes of the taxonomy at places here; −1 is the root."""
        nodes: Ints = np.where(places >= 0, self.rows[np.maximum(places, 0)] + 1, 0)
        return nodes

    @cached_property
    def levels(self) -> list[slice]:
        """Nodes of each depth, from 1 on."""
        found, start, stop = [], 0, int(self.first_child[1])
        while stop > start:
            found.append(slice(start, stop))
            start, stop = stop, int(self.first_child[stop + 1])
        return found

    @cached_property
    def group_start(self) -> Ints:
        """First node of each group of siblings."""
        return np.flatnonzero(np.diff(self.parent, prepend=-2) > 0)

    @property
    def ends(self) -> Ints:
        """Nodes at which a prediction may end."""
        return np.flatnonzero(self.end_class >= 0)

    def greedy(self, n_rows: int, scores_of: GroupScores) -> Ints:
        """Class of each row, by groups of rows at the same node; the first child wins a tie."""
        at = np.full(n_rows, -1, dtype=np.int64)
        walking = np.arange(n_rows)
        while len(walking):
            order = walking[np.argsort(at[walking], kind="stable")]
            starts = np.flatnonzero(np.diff(at[order], prepend=-2))
            for group in np.split(order, starts[1:]):
                nodes = self.children(int(at[group[0]]))
                alone = nodes.stop - nodes.start == 1
                at[group] = nodes.start if alone else nodes.start + scores_of(group, nodes).argmax(axis=1)
            walking = walking[self.end_class[at[walking]] < 0]
        return self.end_class[at]

    def margins(self, scores: Floats) -> Floats:
        """Margin of the path to each node, shape (n_rows, n_live); 0 if no node of the path has a sibling."""
        sizes = np.diff(self.group_start, append=scores.shape[1])
        group = np.repeat(np.arange(len(sizes)), sizes)
        best = np.maximum.reduceat(scores, self.group_start, axis=1)[:, group]
        # The second best score of each group, −∞ for an only child; of several equal best scores one is left out.
        is_best = scores == best
        before = np.cumsum(is_best, axis=1)
        ahead = np.concatenate([np.zeros((len(scores), 1), dtype=before.dtype), before], axis=1)[:, self.group_start]
        rest = np.where(is_best & (before - ahead[:, group] == 1), -np.inf, scores)
        second = np.maximum.reduceat(rest, self.group_start, axis=1)[:, group]
        margins: Floats = scores - np.where(scores >= best, second, best)
        for level in self.levels[1:]:
            np.minimum(margins[:, level], margins[:, self.parent[level]], out=margins[:, level])
        margins[np.isinf(margins)] = 0.0
        return margins

    def sums(self, scores: Floats) -> Floats:
        """Sum of the scores along the path to each node, shape (n_rows, n_live)."""
        sums = scores.copy()
        for level in self.levels[1:]:
            sums[:, level] += sums[:, self.parent[level]]
        return sums

    def kept_by_beam(self, sums: Floats, width: int) -> Bools:
        """Which paths a beam of this width finds, shape (n_rows, n_live)."""
        kept = np.zeros(sums.shape, dtype=bool)
        for depth, level in enumerate(self.levels):
            reached = np.ones_like(kept[:, level]) if depth == 0 else kept[:, self.parent[level]]
            if reached.shape[1] > width:
                values = np.where(reached, sums[:, level], -np.inf)
                best = np.argsort(-values, axis=1, kind="stable")[:, :width]
                chosen = np.zeros_like(reached)
                np.put_along_axis(chosen, best, True, axis=1)
                reached = reached & chosen
            kept[:, level] = reached
        return kept

    def of_classes(self, values: Floats) -> Floats:
        """Values of the nodes of the classes, shape (n_rows, n_classes); 0 for a class that is the root."""
        found: Floats = values[:, self.place]
        found[:, self.place < 0] = 0.0
        return found

    def best_ends(self, values: Floats, k: int, kept: Bools | None = None) -> tuple[Ints, Floats]:
        """Classes and values of the top k ends, (n_rows, k), best first; −1 and −∞ if there are fewer."""
        ends = self.ends[np.argsort(self.end_class[self.ends])]  # ties go to the class that comes first
        at_ends = self._kept_values(values, ends, kept)
        classes = np.full((len(values), k), -1, dtype=np.int64)
        ranked = np.full((len(values), k), -np.inf)
        found = min(k, len(ends))
        best = np.argsort(-at_ends, axis=1, kind="stable")[:, :found]
        ranked[:, :found] = np.take_along_axis(at_ends, best, axis=1)
        classes[:, :found] = np.where(np.isneginf(ranked[:, :found]), -1, self.end_class[ends][best])
        return classes, ranked

    def at_ends(self, values: Floats, n_classes: int, kept: Bools | None = None) -> Floats:
        """Values of the classes at which a path can end, shape (n_rows, n_classes); −∞ for the others."""
        found = np.full((len(values), n_classes), -np.inf)
        found[:, self.end_class[self.ends]] = self._kept_values(values, self.ends, kept)
        return found

    @staticmethod
    def _kept_values(values: Floats, nodes: Ints, kept: Bools | None) -> Floats:
        """Values of some nodes; −∞ for those that a beam has dropped."""
        return values[:, nodes] if kept is None else np.where(kept[:, nodes], values[:, nodes], -np.inf)

    def choices_on_paths(self, scores: Floats, place: Ints) -> Iterator[tuple[Any, ...]]:
        """Scores of siblings, sizes, the true one of them, example and parent's node: for all paths, level by level."""
        example = np.arange(len(place))
        while len(place):
            above = self.parent[place]
            start = self.first_child[above + 1]
            sizes = self.first_child[above + 2] - start
            some = sizes > 1
            if some.any():
                counts = sizes[some]
                first = np.cumsum(counts) - counts
                columns = np.arange(counts.sum()) - np.repeat(first - start[some], counts)
                values = scores[np.repeat(example[some], counts), columns]
                yield values, counts, (place - start)[some], example[some], self.nodes(above[some])
            inside = above >= 0
            place, example = above[inside], example[inside]


class _Paths:
    """One row on a tree: the scores of its nodes, and their linear forms as they are needed."""

    def __init__(self, model: TreeLabelModel, X: Any, row: Row) -> None:
        self.model, self.row, self.tree = model, row, model._decisions
        self.scores: Floats = np.ascontiguousarray(model._all_scores(X)[:, self.tree.rows])[0]
        self.greedy = model._decision() == "greedy"
        self._forms: dict[int, LinearForm] = {}

    def best(self, k: int) -> list[int]:
        """The top k classes, best first."""
        scores = self.scores[None, :]
        values = self.tree.margins(scores) if self.greedy else self.tree.sums(scores)
        classes = self.tree.best_ends(values, k, self.model._kept_by_beam(values, k))[0][0]
        return [label for label in classes.tolist() if label >= 0]

    def explain(self, label: int, best: list[int]) -> LabelExplanation:
        """The explanation of one class."""
        classes = self.model.classes_
        form, note = self._form_of_path(label)
        rival = next((other for other in best if other != label), None)
        lead = None if rival is None else self.row.contributions(form - self._form_of_path(rival)[0])
        name = None if rival is None else plain(classes[rival])
        steps = tuple(map(self._step, self._nodes(label))) if self.model._follows_paths() else ()
        return LabelExplanation(plain(classes[label]), self.row.contributions(form), name, lead, steps, note)

    def _nodes(self, label: int) -> list[int]:
        """Nodes of the decision tree on the path to a class, from below the root."""
        node, found = int(self.tree.place[label]), []
        while node >= 0:
            found.append(node)
            node = int(self.tree.parent[node])
        return found[::-1]

    def _sibling(self, node: int) -> int | None:
        """The best sibling, the first of equals."""
        group = self.tree.children(int(self.tree.parent[node]))
        others = self.scores[group].copy()
        others[node - group.start] = -np.inf
        return None if len(others) == 1 else group.start + int(others.argmax())

    def _step(self, node: int) -> LabelExplanation:
        form, sibling = self._form(node), self._sibling(node)
        lead = None if sibling is None else self.row.contributions(form - self._form(sibling))
        name = None if sibling is None else self._name(sibling)
        return LabelExplanation(self._name(node), self.row.contributions(form), name, lead)

    def _form_of_path(self, label: int) -> tuple[LinearForm, str]:
        """The score of a class, and a description of it."""
        nodes, nothing = self._nodes(label), LinearForm(np.zeros(len(self.row.features)), 0.0)
        if not self.greedy:
            note = "sum of the scores along the path" if self.model._follows_paths() else ""
            return reduce(LinearForm.plus, map(self._form, nodes), nothing), note
        pairs = [(node, sibling) for node in nodes if (sibling := self._sibling(node)) is not None]
        if not pairs:
            return nothing, "there is no other path"
        node, sibling = min(pairs, key=lambda pair: self.scores[pair[0]] - self.scores[pair[1]])
        note = f"lead of {self._name(node)} over {self._name(sibling)}, the smallest on the path"
        return self._form(node) - self._form(sibling), note

    def _form(self, node: int) -> LinearForm:
        """The score of a node."""
        if node not in self._forms:
            weights, intercepts = self.model._weights_at(self.tree.rows[[node]], self.row.features)
            self._forms[node] = self.row.form(weights[0], intercepts[0])
        return self._forms[node]

    def _name(self, node: int) -> Any:
        """The name of a node of the decision tree."""
        return plain(self.model.taxonomy_.nodes[int(self.tree.rows[node]) + 1])


def nodes_of_labels(model: TreeLabelModel, y: Any, *, skip_unknown: bool = False) -> tuple[Ints, Ints]:
    """Rows and nodes of all labels; see `labelled_nodes`."""
    targets = encode_targets(join_levels(y, model.separator))
    return labelled_nodes(targets, model.taxonomy_, model.separator, skip_unknown=skip_unknown)


def probable_predictions(model: TreeLabelModel, X: Any, y: Any) -> tuple[Bools, Floats]:
    """For each row with a label: whether the prediction is right, and its probability; see `path_proba`."""
    tree = model.taxonomy_
    predicted = tree.indices(model.predict(X)).astype(np.int64)
    true = nearest_labels(tree, *nodes_of_labels(model, y), predicted)
    kept = np.flatnonzero(true >= 0)
    probability = path_proba(model, X[kept], true[kept], predicted[kept])
    return np.asarray(tree.tree.covers(true[kept], predicted[kept])), probability


def path_proba(model: TreeLabelModel, X: Any, true: Ints, predicted: Ints) -> Floats:
    """Probabilities of predictions, cut to the depth of the true label, below which nothing is known about the row.

    The most probable class would be misleading: a label above others has the probability of all of them.
    """
    tree = model.taxonomy_.tree
    known = predicted.copy()
    while (below := tree.depth[known] > tree.depth[true]).any():
        known[below] = tree.parent[known[below]]
    probability: Floats = model.label_proba(X, model.predict_topk(X, 1).indices)[:, 0]
    cut = np.flatnonzero(known != predicted)
    size = max(1, BLOCK_VALUES // tree.n_nodes)
    for start in range(0, len(cut), size):
        rows = cut[start : start + size]
        of_nodes = np.column_stack([np.ones(len(rows)), model.predict_node_proba(X[rows])])  # the root: 1
        probability[rows] = of_nodes[np.arange(len(rows)), known[rows]]
    return probability


class PairOfNodes(NamedTuple):
    """A node and one of its ancestors.

    Parameters
    ----------
    ancestor, descendant : str or other name
        The two nodes.
    S : float
        Between −1 and 1: the sign of the product, or the multiplier that keeps the two orthogonal.
    product : float
        Scalar product of their weights, including the intercepts as in the penalty.
    cosine : float
        The product over the two norms; 0 if one of them is 0.

    Examples
    --------
    >>> from widemargin.estimators.tree.model import PairOfNodes
    >>> PairOfNodes("CCAT", "C15", S=0.4, product=0.0, cosine=0.0).forced_apart
    True
    """

    ancestor: Any
    descendant: Any
    S: float
    product: float
    cosine: float

    @property
    def forced_apart(self) -> bool:
        """Whether S is between its bounds, which means that the penalty makes the two orthogonal."""
        return abs(self.S) < 1.0 - AT_BOUND


class Orthogonality:
    """The ancestor pairs of a model with orthogonal transfer, in the order of the descendants, nearest ancestor first.

    The penalty is a maximum over the multipliers S::

        Ω(W) = ½ Σ K_ij |w_iᵀ w_j| = max over |S_ij| ≤ 1 of ½ Σ K_ij S_ij w_iᵀ w_j

    At the optimum S_ij is the sign of w_iᵀ w_j, or lies between −1 and 1. In that case w_i and w_j are exactly
    orthogonal: the penalty forces them apart, and S_ij shows how strongly. Memory: two numbers per ancestor pair.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    S, products : ndarray of float64 of shape (n_entries,)
        On the layout of `AncestorPaths`, the diagonal included.

    Attributes
    ----------
    ancestor, descendant : ndarray of int64 of shape (n_pairs,)
        Node numbers in the taxonomy.
    S, product, cosine : ndarray of float64 of shape (n_pairs,)
        As in `PairOfNodes`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import Taxonomy
    >>> from widemargin.estimators.tree.model import Orthogonality
    >>> tree = Taxonomy.from_paths(["animal/mammal/cat", "animal/mammal/dog", "animal/bird"])
    >>> S, products = np.array([1.0, 1.0, 1.0, 0.3, 1.0, -1.0]), np.array([4.0, 1.0, 1.0, 0.0, 1.0, -0.5])
    >>> pairs = Orthogonality(tree, S, products)
    >>> pairs["mammal", "dog"]
    PairOfNodes(ancestor='mammal', descendant='dog', S=-1.0, product=-0.5, cosine=-0.25)
    >>> [pair.descendant for pair in pairs if pair.forced_apart]
    ['cat']
    >>> pairs.by_depth()
    {(1, 2): 0.5}
    """

    def __init__(self, taxonomy: Taxonomy, S: Floats, products: Floats) -> None:
        paths = AncestorPaths.of(taxonomy.tree.parent)
        pairs = ~paths.is_diagonal
        norms = np.sqrt(np.maximum(products[paths.is_diagonal], 0.0))
        self.taxonomy = taxonomy
        self.ancestor = paths.path_nodes[pairs].astype(np.int64) + 1
        self.descendant = paths.descendant[pairs].astype(np.int64) + 1
        self.S, self.product = S[pairs], products[pairs]
        size = norms[self.ancestor - 1] * norms[self.descendant - 1]
        self.cosine: Floats = np.divide(self.product, size, out=np.zeros_like(size), where=size > 0.0)

    def __len__(self) -> int:
        return len(self.S)

    def __iter__(self) -> Iterator[PairOfNodes]:
        return (self._pair(place) for place in range(len(self)))

    def __getitem__(self, names: tuple[Any, Any]) -> PairOfNodes:
        """The pair of an ancestor and a descendant, by name."""
        above, below = (self.taxonomy.index(name) for name in names)
        place = np.flatnonzero((self.ancestor == above) & (self.descendant == below))
        if len(place) == 0:
            raise KeyError(
                f"{names[0]!r} must be an ancestor of {names[1]!r} other than the root, which has no weights"
            )
        return self._pair(int(place[0]))

    @property
    def forced_apart(self) -> Bools:
        """Whether S of each pair is between its bounds, shape (n_pairs,)."""
        apart: Bools = np.abs(self.S) < 1.0 - AT_BOUND
        return apart

    def by_depth(self) -> dict[tuple[int, int], float]:
        """Share of the pairs that were forced apart, by the depths of ancestor and descendant."""
        depth = self.taxonomy.depth
        levels = np.stack([depth[self.ancestor], depth[self.descendant]], axis=1)
        kinds, which = np.unique(levels, axis=0, return_inverse=True)
        which = which.reshape(-1)
        shares = np.bincount(which, weights=self.forced_apart, minlength=len(kinds)) / np.maximum(np.bincount(which), 1)
        return {(int(a), int(b)): float(share) for (a, b), share in zip(kinds, shares, strict=True)}

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name, ready for a data frame."""
        rows = list(self)
        return {name: [getattr(row, name) for row in rows] for name in (*PairOfNodes._fields, "forced_apart")}

    def _pair(self, place: int) -> PairOfNodes:
        above, below = (self.taxonomy.nodes[int(side[place])] for side in (self.ancestor, self.descendant))
        return PairOfNodes(above, below, float(self.S[place]), float(self.product[place]), float(self.cosine[place]))

    def __repr__(self) -> str:
        lines = [f"{len(self)} ancestor pairs, {int(self.forced_apart.sum())} of them forced apart"]
        for place in range(min(len(self), ROWS_SHOWN)):
            pair = self._pair(place)
            lines.append(f"  {pair.ancestor} > {pair.descendant}: S={pair.S:+.3f}, cosine={pair.cosine:+.4f}")
        return "\n".join([*lines, *(["  …"] if len(self) > ROWS_SHOWN else [])])
