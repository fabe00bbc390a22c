"""Decisions on a tree: from scores of nodes to scores of paths, and to one path or the best few.

    greedy   from the root down to the best child, again and again: eq. (1) of Zhou, Xiao and Wu (2011)
    margin   of a path: min over its nodes i of s_i − max of the siblings' scores; above 0 for the greedy path only
    sum      of a path: Σ over its nodes of s_i
    beam     of every level the paths with the largest sums, among those that continue a path kept above

Nodes below which nothing was seen in training take no part. Where labels compete all at once, the tree here is a star
of them, and all rules are the argmax. Work is done on dense blocks, rows × nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.labels.tree import Tree

__all__ = ["DecisionTree"]

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
