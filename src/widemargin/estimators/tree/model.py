"""What a fitted model on a tree can do: scores of nodes and of classes, decisions, paths.

A model sets `taxonomy_`, `classes_`, the node of each class, and weights of all nodes but the root, or a kernel. Work
is done in blocks of rows whose scores at all nodes stay within `memory_limit_mb`; a greedy decision with weights
looks at the children on the way only.

Decisions on a tree: from scores of nodes to scores of paths, and to one path or the best few.

    greedy   from the root down to the best child, again and again: eq. (1) of Zhou, Xiao and Wu (2011)
    margin   of a path: min over its nodes i of s_i − max of the siblings' scores; above 0 for the greedy path only
    sum      of a path: Σ over its nodes of s_i
    beam     of every level the paths with the largest sums, among those that continue a path kept above

Nodes below which nothing was seen in training take no part. Where labels compete all at once, the tree here is a star
of them, and all rules are the argmax. Work is done on dense blocks, rows × nodes.

Probabilities along the paths of a tree: at each node of a path a choice among siblings, and their product.

    P(node) = P(parent) · P(node | its siblings),      P(root) = 1

Where all classes compete at once, there is one choice among them, and a node above has the sum of the classes below.

Explanations along the paths of a tree.

    greedy       score = min over the nodes i of the path of  s_i − max of the siblings' scores
    beam, flat   score = Σ over the nodes of the path of s_i;  of labels that compete all at once, s of the label

Each s_i is linear in the row, and so is the score once the weakest step and its best sibling are known. Memory: the
scores of all nodes for the row, and its non-zeros for each node of the paths that are explained.

Scores and rows of weights that are kept as sparse factors, W = L⁻ᵀ diag(d)⁻¹ Z.

    w_i = Σ_a R[a, i] z_a / d_a        over node i and its ancestors a

Scores of all nodes are those of Z, from an index by feature that is made once, and a pass over the tree; a greedy
decision needs a group of siblings at a time, of which only z of the group and of its ancestors are looked at.

The true labels of rows on a tree, as measures and reports need them: one node per row, whatever form they have.

Probabilities are judged in the same way in `evaluate`, displays and reports: a label that is no leaf says nothing of
what is below it, so that a prediction is cut to its depth, and holds if the label is at or below what is left. Accuracy
is exact. Memory beside the rows: a block of them × nodes.

How the weights of a node stand to those of its ancestors, by the names of the nodes.

    Ω(W) = ½ Σ K_ij |w_iᵀ w_j| = max over |S_ij| ≤ 1 of ½ Σ K_ij S_ij w_iᵀ w_j

At the optimum S_ij is the sign of w_iᵀ w_j, or lies between −1 and 1, and then w_i and w_j are exactly orthogonal:
they were forced apart, and S_ij says how hard. Memory: two numbers an ancestor pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_consistent_length

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
from widemargin.estimators.tree.targets import label_nodes, without_stops
from widemargin.labels.encoding import encode_targets, unwrap
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import Tree
from widemargin.metrics.hierarchical import most_specific, nearest_labels
from widemargin.metrics.lists import find_tied, joined_ties
from widemargin.problems.tree_factor import AncestorPaths, FactoredScorer, TreeWeights
from widemargin.solvers.calibration import Choices

__all__ = [
    "DECISIONS",
    "PATH_METHODS",
    "DecisionTree",
    "Orthogonality",
    "PairOfNodes",
    "TreeCalibrator",
    "TreeLabelModel",
    "explain_paths",
    "nearest_labels",
    "nodes_of_labels",
    "path_proba",
    "probable_predictions",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
GroupScores = Callable[[Ints, slice], Floats]
"""Scores (n_rows, n_nodes) of some rows at a range of nodes of the decision tree."""


class DecisionTree:
    """The part of a tree in which predictions are looked for; its nodes are numbered breadth first without the root.

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
    end_class : ndarray of int64 of shape (n_live,)
        Class that is predicted at a node without children, −1 for nodes with children.
    """

    def __init__(self, tree: Tree, class_node: Ints, follows_paths: bool) -> None:
        live, above = _live_nodes(tree, class_node) if follows_paths else (np.sort(class_node), None)
        number = np.full(tree.n_nodes, -1, dtype=np.int64)
        number[live] = np.arange(len(live))
        self.rows = live - 1
        self.parent = np.full(len(live), -1, dtype=np.int64) if above is None else number[above]
        self.place = number[class_node]
        # Of the root, numbered −1, the children come first.
        self.first_child = np.searchsorted(self.parent, np.arange(-1, len(live) + 1))
        is_end = np.diff(self.first_child)[1:] == 0
        self.end_class = np.full(len(live), -1, dtype=np.int64)
        inside = self.place >= 0
        self.end_class[self.place[inside]] = np.flatnonzero(inside)
        self.end_class[~is_end] = -1

    def children(self, node: int) -> slice:
        """Children of a node, −1 being the root."""
        return slice(int(self.first_child[node + 1]), int(self.first_child[node + 2]))

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
        """Class of each row, by groups of rows that stand at the same node; of equal scores the first child wins."""
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
        """Margin of the path to each node, shape (n_rows, n_live); 0 where no node of the path has a sibling."""
        best, second = self._two_best(scores)
        group = np.repeat(np.arange(len(self.group_start)), np.diff(self.group_start, append=scores.shape[1]))
        best, second = best[:, group], second[:, group]
        margins: Floats = scores - np.where(scores >= best, second, best)
        for level in self.levels[1:]:
            np.minimum(margins[:, level], margins[:, self.parent[level]], out=margins[:, level])
        margins[np.isinf(margins)] = 0.0
        return margins

    def _two_best(self, scores: Floats) -> tuple[Floats, Floats]:
        """Largest and second largest score of each group of siblings; −∞ for the second of an only child."""
        best = np.maximum.reduceat(scores, self.group_start, axis=1)
        sizes = np.diff(self.group_start, append=scores.shape[1])
        rest = scores.copy()
        group = np.repeat(np.arange(len(sizes)), sizes)
        is_best = scores == best[:, group]
        # Of several equal best ones the first is taken out: the others are the second.
        before = np.cumsum(is_best, axis=1)
        ahead = np.concatenate([np.zeros((len(scores), 1), dtype=before.dtype), before], axis=1)[:, self.group_start]
        rest[is_best & (before - ahead[:, group] == 1)] = -np.inf
        return best, np.maximum.reduceat(rest, self.group_start, axis=1)

    def sums(self, scores: Floats) -> Floats:
        """Sum of the scores along the path to each node, shape (n_rows, n_live)."""
        sums = scores.copy()
        for level in self.levels[1:]:
            sums[:, level] += sums[:, self.parent[level]]
        return sums

    def kept_by_beam(self, sums: Floats, width: int) -> npt.NDArray[np.bool_]:
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

    def best_ends(self, values: Floats, k: int, kept: npt.NDArray[Any] | None = None) -> tuple[Ints, Floats]:
        """Classes and values of the k best ends, (n_rows, k), best first; −1 and −∞ where there are fewer."""
        ends = self.ends[np.argsort(self.end_class[self.ends])]  # ties go to the class that comes first
        at_ends = self._kept_values(values, ends, kept)
        classes = np.full((len(values), k), -1, dtype=np.int64)
        ranked = np.full((len(values), k), -np.inf)
        found = min(k, len(ends))
        best = np.argsort(-at_ends, axis=1, kind="stable")[:, :found]
        ranked[:, :found] = np.take_along_axis(at_ends, best, axis=1)
        classes[:, :found] = np.where(np.isneginf(ranked[:, :found]), -1, self.end_class[ends][best])
        return classes, ranked

    def at_ends(self, values: Floats, n_classes: int, kept: npt.NDArray[Any] | None = None) -> Floats:
        """Values of the classes at which a path can end, shape (n_rows, n_classes); −∞ for the others."""
        found = np.full((len(values), n_classes), -np.inf)
        found[:, self.end_class[self.ends]] = self._kept_values(values, self.ends, kept)
        return found

    @staticmethod
    def _kept_values(values: Floats, nodes: Ints, kept: npt.NDArray[Any] | None) -> Floats:
        """Values of some nodes; −∞ where a beam has left them out."""
        return values[:, nodes] if kept is None else np.where(kept[:, nodes], values[:, nodes], -np.inf)


def _live_nodes(tree: Tree, class_node: Ints) -> tuple[Ints, Ints]:
    """Nodes that are or cover the node of a class, without the root, ascending; and their parents."""
    covers = np.zeros(tree.n_nodes, dtype=bool)
    node = np.unique(class_node)
    while node.size:
        covers[node] = True
        node = np.unique(tree.parent[node[node > 0]])
        node = node[~covers[node]]
    covers[0] = False
    live = np.flatnonzero(covers)
    return live, tree.parent[live]


class TreeCalibrator(Calibrator):
    """Probabilities of a model on a tree: a choice between siblings at every node of a path."""

    def path_probabilities(self, scores: Floats) -> Floats:
        """P of the nodes of the decision tree, (n_rows, n_live), from the scores of all nodes."""
        tree = self.model._decisions
        starts, live = tree.group_start, np.ascontiguousarray(scores[:, tree.rows])
        found: Floats = self.model.calibration_.of_groups(live, starts, _node_of(tree, tree.parent[starts]))
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

    def targets(self, y: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
        y = y if hasattr(y, "shape") or isinstance(y, list) else list(y)
        targets = encode_targets(y)
        in_tree = label_nodes(targets.classes, self.model.taxonomy_, self.model.separator, missing=-1) >= 0
        if not in_tree.any():
            label_nodes(targets.classes, self.model.taxonomy_, self.model.separator)  # the error that names them
        several = targets.kind == "multilabel"
        known = targets.Y @ in_tree > 0 if several else in_tree[targets.indices]
        if several and not in_tree.all():  # a row may have labels of both kinds
            names = targets.classes.tolist()
            rows = np.split(targets.Y.indices, targets.Y.indptr[1:-1])
            y = [[names[label] for label in row.tolist() if in_tree[label]] for row in rows]
        return y, np.asarray(known)

    def fold_model(self) -> Any:
        return super().fold_model().set_params(taxonomy=without_stops(self.model.taxonomy_, self.model._stops))

    def evidence(self, model: Any, X: Any, y: Any, weights: Floats) -> Choices:
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
        found: Ints = self.model.taxonomy_.indices(names).astype(np.int64)[place.reshape(-1)]
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


def explain_paths(model: Any, X: Any, labels: Any, k: int, feature_names: Sequence[str] | None) -> Explanation:
    """What `explain` returns for a model on a tree."""
    if not COUNT.is_satisfied_by(k):
        raise ValueError(f"k is the number of labels to explain, a whole number from 1; got {k!r}")
    checked = model._explained_row(one_row(X))
    paths = _Paths(model, checked, make_row(model, checked, feature_names))
    best = paths.best(max(int(k), 2))
    chosen = best[:k] if labels is None else _classes_of(model, labels)
    return Explanation(tuple(paths.explain(label, best) for label in chosen))


def _classes_of(model: Any, labels: Any) -> list[int]:
    """Class numbers of labels, given as names of nodes or as full paths."""
    nodes = label_nodes(np.array(as_list(labels), dtype=object), model.taxonomy_, model.separator)
    names = [model.taxonomy_.nodes[node] for node in nodes.tolist()]
    found: list[int] = model._encoding()._look_up(names).tolist()
    return found


class _Paths:
    """One row on a tree: scores of its nodes, and their linear forms as they are needed."""

    def __init__(self, model: Any, X: Any, row: Row) -> None:
        self.model, self.row, self.tree = model, row, model._decisions
        self.scores: Floats = np.ascontiguousarray(model._all_scores(X)[:, self.tree.rows])[0]
        self.greedy = model._decision() == "greedy"
        self._forms: dict[int, LinearForm] = {}

    def best(self, k: int) -> list[int]:
        """The k best classes, best first."""
        scores = self.scores[None, :]
        values = self.tree.margins(scores) if self.greedy else self.tree.sums(scores)
        beam = self.model._decision() == "beam"
        kept = self.tree.kept_by_beam(values, max(int(self.model.beam_width), k)) if beam else None
        classes = self.tree.best_ends(values, k, kept)[0][0]
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
        """The score of a class, and in words what it is."""
        nodes = self._nodes(label)
        if not self.greedy:
            note = "sum of the scores along the path" if self.model._follows_paths() else ""
            return reduce(LinearForm.plus, map(self._form, nodes), self._nothing()), note
        pairs = [(node, sibling) for node in nodes if (sibling := self._sibling(node)) is not None]
        if not pairs:
            return self._nothing(), "there is no other way"
        node, sibling = min(pairs, key=lambda pair: self.scores[pair[0]] - self.scores[pair[1]])
        note = f"lead of {self._name(node)} over {self._name(sibling)}, the least on the path"
        return self._form(node) - self._form(sibling), note

    def _form(self, node: int) -> LinearForm:
        """The score of a node."""
        if node not in self._forms:
            weights, intercepts = self.model._weights_at(self.tree.rows[[node]], self.row.features)
            self._forms[node] = self.row.form(weights[0], intercepts[0])
        return self._forms[node]

    def _nothing(self) -> LinearForm:
        return LinearForm(np.zeros(len(self.row.features)), 0.0)

    def _name(self, node: int) -> Any:
        """The name of a node of the decision tree."""
        return plain(self.model.taxonomy_.nodes[int(self.tree.rows[node]) + 1])


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


PATH_METHODS = ("orthogonal", "per-node", "similarity")
"""Methods that train the path to a label, and predict by going down."""
DECISIONS = ("auto", "greedy", "beam", "flat")
BLOCK_ARRAYS = 8
"""Arrays of the size of the scores of a block that are alive at once."""


class TreeLabelModel(LabelModel):
    """Scores and predictions of a fitted model on a tree."""

    taxonomy_: Taxonomy
    class_node_: Ints
    separator: str | None
    beam_width: int
    _decisions: DecisionTree

    def decision_function(self, X: Any) -> Floats:
        """Scores of all classes.

        With `decision="greedy"`, the margin of the path to the class: the least lead of a node of the path over its
        siblings, above 0 for the greedy path only. With "beam" and "flat", the sum of the scores of the nodes of the
        path, or the score of the class itself where all classes compete at once. An inner node among the classes has at
        least the margin of all classes below it, although without `stop=True` no prediction ends there.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            Scores in float64; for two classes the lead of the second. Dense, so it is refused above
            `memory_limit_mb`; `predict_topk` never is.
        """
        X = self._check_rows(X)
        self._refuse_large(X.shape[0], len(self.classes_), "decision_function", "classes")
        scores = np.empty((X.shape[0], len(self.classes_)))
        for rows, values in self._path_scores(X):
            scores[rows] = self._decisions.of_classes(values)
        if self.kind_ != "binary":
            return scores
        # The margins of two siblings are each other's negative: the lead is half of their difference.
        return (scores[:, 1] - scores[:, 0]) * (0.5 if self._decision() == "greedy" else 1.0)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict one label a row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to label.

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of nodes, among `classes_`.
        """
        classes = self._predicted_classes(self._check_rows(X))
        labels: npt.NDArray[Any] = self.classes_[classes]
        return labels

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row, by the scores of their paths.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to label.
        k : int, default=5
            How many labels. Places beyond the labels that can be predicted, or beyond what a beam finds, are marked as
            missing; a beam is made at least k wide.

        Returns
        -------
        TopK
            Named tuple `(labels, scores, indices)` of arrays of shape (n_samples, k).
        """
        if not COUNT.is_satisfied_by(k):
            raise ValueError(f"k is the number of labels wanted for each row, a whole number from 1; got {k!r}")
        X = self._check_rows(X)
        indices, ranked = np.empty((X.shape[0], k), dtype=np.int64), np.empty((X.shape[0], k))
        tied = []
        for rows, values in self._path_scores(X):
            beam = self._decision() == "beam"
            kept = self._decisions.kept_by_beam(values, max(int(self.beam_width), k)) if beam else None
            # One place more shows which lists end within a tie.
            listed, scores = self._decisions.best_ends(values, k + 1, kept)
            indices[rows], ranked[rows] = listed[:, :k], scores[:, :k]
            labels_tied = partial(self._labels_tied, values, kept, scores[:, k - 1])
            tied.append(find_tied(listed, scores, k, len(self.classes_), labels_tied))
        return TopK(self._encoding().decode(indices), ranked, indices, self.classes_, joined_ties(tied))

    def label_scores(self, X: Any, y: Any) -> Any:
        """Scores of known labels, as `decision_function` has them for three or more classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.
        y : array-like of shape (n_samples,)
            Their labels, of `classes_`, as names or full paths.

        Returns
        -------
        ndarray of shape (n_samples,)
            The score of each row's label.
        """
        X = self._check_rows(X)
        targets = encode_targets(y)
        if targets.kind == "multilabel":
            raise ValueError("label_scores takes one label a row; y has several")
        nodes = label_nodes(targets.classes, self.taxonomy_, self.separator)
        names = [self.taxonomy_.nodes[node] for node in nodes.tolist()]
        classes = self._encoding()._look_up(names)[targets.indices]
        check_consistent_length(X, classes)
        scores = np.empty(X.shape[0])
        for rows, values in self._path_scores(X):
            known = self._decisions.of_classes(values)
            scores[rows] = known[np.arange(len(known)), classes[rows]]
        return scores

    def explain(
        self, X: Any, labels: Any = None, *, k: int = 1, feature_names: Sequence[str] | None = None
    ) -> Explanation:
        """As for other models, and for each node on the way to a label: its score, and its lead over the best sibling.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_features,) or (1, n_features)
            The row.
        labels : label or list of labels, default=None
            What to explain, names or full paths; the k best labels of the row by default.
        k : int, default=1
            How many of the best labels.
        feature_names : sequence of str of length n_features, default=None
            Names of the features; by default those that the model has, else their column numbers.

        Returns
        -------
        Explanation
            Its `steps` are empty where labels compete all at once.
        """
        return explain_paths(self, X, labels, k, feature_names)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, at_or_below: bool = False) -> float:
        """Share of rows whose label is predicted exactly: the accuracy, as for every other classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,), indicator, or list of label sets
            True labels, names or full paths. Of several labels, those above another one of the row are left out, and
            one of the others has to be predicted. A label that is not in the tree is predicted wrongly.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        at_or_below : bool, default=False
            Count predictions below the true node as right, too. This is the rule of Zhou, Xiao and Wu (2011), one
            minus `metrics.hierarchical_zero_one_error`. It favours models that only predict leaves; to compare models
            on rows that are labelled with inner nodes use the accuracy or `metrics.hierarchical_f1`.

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
        """The nodes from the root to the predicted label, as scikit-learn's trees have them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        csr_array of int8 of shape (n_samples, n_nodes)
            1 for the nodes of `taxonomy_` on the way, the root and a virtual node included. The names of one path are
            `taxonomy_.path(label)`.
        """
        classes = self._predicted_classes(self._check_rows(X))
        return self.taxonomy_.tree.ancestor_matrix(self.class_node_[classes])

    def node_scores(self, X: Any) -> Floats:
        """Scores of all nodes but the root.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_nodes − 1)
            Column c belongs to `taxonomy_.nodes[c + 1]`. Dense, so it is refused above `memory_limit_mb`.
        """
        X = self._check_rows(X)
        self._refuse_large(X.shape[0], self.taxonomy_.n_nodes - 1, "node_scores", "nodes")
        return self._all_scores(X)

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
            in training. Dense, so it is refused above `memory_limit_mb`. Only calibrated models have this method.
        """
        X = self._check_rows(X)
        tree = self.taxonomy_.tree
        self._refuse_dense(_num_samples(X), tree.n_nodes - 1, "predict_node_proba")
        out = np.zeros((_num_samples(X), tree.n_nodes - 1))
        for rows, scores in self.calibrator.steady_blocks(X):
            out[rows, self._decisions.rows] = self.calibrator.path_probabilities(scores)
        if len(self._decisions.levels) == 1:  # classes that compete at once: nodes above them sum them up
            for depth in range(int(tree.depth.max()), 1, -1):
                nodes = np.flatnonzero(tree.depth == depth)
                np.add.at(out.T, tree.parent[nodes] - 1, out.T[nodes - 1])
        return out

    @property
    def calibrator(self) -> TreeCalibrator:
        """The probabilities of this model."""
        return TreeCalibrator(self)

    def _decision(self) -> str:
        """The rule in force: that of the method unless one was chosen."""
        if self.decision != "auto":
            if self.decision not in DECISIONS:
                known = ", ".join(map(repr, DECISIONS))
                raise ValueError(f"{type(self).__name__}: decision must be one of {known}, got {self.decision!r}")
            return str(self.decision)
        return "greedy" if self.method in PATH_METHODS else "flat"

    def _follows_paths(self) -> bool:
        """Whether siblings compete along a path, or all classes at once."""
        return self.method in PATH_METHODS

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        if not isinstance(getattr(self, "coef_", None), TreeWeights):
            return super()._weights_at(outputs, features)
        paths = [self.coef_.path_factors(int(i)) for i in outputs]
        weights = [factors @ weights_of_rows(self.coef_.parts, above, features) for above, factors in paths]
        return np.array(weights), self.intercept_[outputs].astype(np.float64)

    def _predicted_classes(self, X: Any) -> Ints:
        """Number of the class predicted for each of the checked rows."""
        found = np.empty(X.shape[0], dtype=np.int64)
        if self._decision() != "greedy":
            for rows, values in self._path_scores(X):
                beam = self._decision() == "beam"
                kept = self._decisions.kept_by_beam(values, int(self.beam_width)) if beam else None
                found[rows] = self._decisions.best_ends(values, 1, kept)[0][:, 0]
            return found
        by_group = (
            isinstance(getattr(self, "coef_", None), np.ndarray | TreeWeights) and len(self._decisions.levels) > 1
        )
        for rows in self._row_blocks(X.shape[0], self._largest_group() if by_group else self.taxonomy_.n_nodes):
            part = X[rows]
            if by_group:
                scores_of = partial(self._group_scores, part)
            else:
                scores_of = partial(_picked, self._all_scores(part)[:, self._decisions.rows])
            found[rows] = self._decisions.greedy(part.shape[0], scores_of)
        return found

    def _labels_tied(self, values: Floats, kept: Any, last: Floats, rows: Ints) -> npt.NDArray[np.bool_]:
        """Which classes have the score of the last listed one, in some rows of a block."""
        found = self._decisions.at_ends(values[rows], len(self.classes_), None if kept is None else kept[rows])
        return np.asarray(found == last[rows, None])

    def _group_scores(self, X: Any, rows: Ints, nodes: slice) -> Floats:
        """Scores of some rows at siblings of the decision tree, from their weights alone."""
        places = self._decisions.rows[nodes]
        if isinstance(self.coef_, TreeWeights):
            found: Floats = self.coef_.sibling_scores(X[rows], places) + self.intercept_[places]
            return found
        weights = self.coef_[places].astype(np.float64, copy=False)
        scores: Floats = np.asarray(X[rows] @ weights.T, dtype=np.float64) + self.intercept_[places]
        return scores

    def _path_scores(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Margins or sums of the paths to the nodes of the decision tree, for blocks of rows."""
        for rows in self._row_blocks(X.shape[0], self.taxonomy_.n_nodes):
            scores = np.ascontiguousarray(self._all_scores(X[rows])[:, self._decisions.rows])
            greedy = self._decision() == "greedy"
            yield rows, self._decisions.margins(scores) if greedy else self._decisions.sums(scores)

    def _all_scores(self, X: Any) -> Floats:
        """Scores at all nodes, shape (n_rows, m)."""
        scores: Floats = self.scorer.scores(X, n_threads=self._n_threads())
        return scores

    def _linear_scorer(self) -> Any:
        if isinstance(self.coef_, TreeWeights):
            return FactoredScorer(self.coef_, self.intercept_)
        return super()._linear_scorer()

    def _n_weights(self) -> int:
        coef = getattr(self, "coef_", None)
        return int(coef.parts.nnz) if isinstance(coef, TreeWeights) else super()._n_weights()

    def _largest_group(self) -> int:
        """Number of the children of a node at most."""
        return int(np.diff(self._decisions.first_child).max())

    def _row_blocks(self, n_rows: int, n_nodes: int) -> Iterator[slice]:
        """Ranges of rows whose scores at so many nodes fit the memory limit."""
        row_bytes = 8 * BLOCK_ARRAYS * max(1, n_nodes)
        step = max(1, int(self.memory_limit_mb * BYTES_PER_MB / row_bytes))
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def _refuse_large(self, n_rows: int, n_columns: int, what: str, columns: str) -> None:
        needed_mb = n_rows * n_columns * 8 / BYTES_PER_MB
        if needed_mb > self.memory_limit_mb:
            size = f"{needed_mb:,.0f}" if needed_mb >= 10 else f"{needed_mb:.2g}"
            raise MemoryError(
                f"{what} would make a dense array of {size} MB ({n_rows:,} rows × {n_columns:,} {columns}), above "
                f"memory_limit_mb={self.memory_limit_mb:g}; use predict_topk for the best labels, fewer rows at a "
                "time, or raise memory_limit_mb"
            )

    def _weight_arrays(self) -> list[npt.NDArray[Any]]:
        coef = self.coef_
        if not isinstance(coef, TreeWeights):
            return super()._weight_arrays()
        return [*coef.arrays, self.intercept_]


def _picked(scores: Floats, rows: Ints, nodes: slice) -> Floats:
    """Scores that are there already."""
    return scores[rows, nodes]


AT_BOUND = 1e-6
"""|S| this near to 1 is at its bound."""
ROWS_SHOWN = 10


class PairOfNodes(NamedTuple):
    """A node and one of its ancestors.

    Parameters
    ----------
    ancestor, descendant : str or other name
        The two nodes.
    S : float
        Between −1 and 1: the sign of the product, or a force that holds the two orthogonal.
    product : float
        Scalar product of their weights, that of the intercepts included as the penalty sees it.
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
        """Whether S is between its bounds, and so the two are orthogonal because of the penalty."""
        return abs(self.S) < 1.0 - AT_BOUND


class Orthogonality:
    """The ancestor pairs of a model with orthogonal transfer, in the order of the descendants, nearest ancestor first.

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
        paths = AncestorPaths.of(taxonomy.parent)
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
            raise KeyError(f"{names[0]!r} is not above {names[1]!r}, or it is the root, which has no weights")
        return self._pair(int(place[0]))

    @property
    def forced_apart(self) -> npt.NDArray[np.bool_]:
        """Whether S of each pair is between its bounds, shape (n_pairs,)."""
        apart: npt.NDArray[np.bool_] = np.abs(self.S) < 1.0 - AT_BOUND
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
