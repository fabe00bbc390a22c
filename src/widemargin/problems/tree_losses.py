"""The losses of the five methods on a tree: blocks of constraints, each with one slack.

    H(W) = Σ_g γ_g loss_g(W),     loss_g(W) = max(0, max_c ρ_c − κ_c (s_i(c) − s_j(c))),     s = W x

A constraint c = (i, j, ρ, κ) asks node i to win over node j. Blocks and constraints of an example with label y:

    orthogonal, similarity   one block: i on the path to y, j a sibling of i, ρ = κ = 1
    per-node                 the same constraints, but one block per level of the path
    flat                     one block: i = y, j any other output, ρ = κ = 1
    tree-loss                i = y, j any other output, ρ = Δ, κ = Δ (slack rescaling) or 1 (margin rescaling), where Δ
                             is half the number of edges between i and j

γ is C times the weight of the example; per-node training with `node_scaling="paper"` divides it by the weight of the
examples that pass through the parent of i. Outputs are the leaves or all nodes but the root. Labels may be inner nodes
where paths are trained; only children have no constraint. Scores are computed by groups of siblings, for the examples
that pass through, in parts of `memory_limit_mb`: a pass takes time Σ (nodes of the example's constraints) · (its
non-zeros).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.labels.tree import Tree
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.problems.tree_factor import AncestorPaths
from widemargin.problems.tree_penalties import Method

__all__ = ["LossPoint", "TreeLosses", "tree_losses"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rescaling = Literal["none", "slack", "margin"]
ScoreOf = Callable[[Ints, slice], Floats]
"""Scores (n_rows, n_nodes) of some examples at a range of rows of W."""

MEGABYTE = 2**20
WORK_ARRAYS = 5
"""Arrays of the size of a part of the scores that exist at once."""


class LossPoint(NamedTuple):
    """H at some W, and for each block its loss and the constraint that attains it.

    Parameters
    ----------
    value : float
        H(W).
    loss : ndarray of float64 of shape (n_blocks,)
        The unweighted losses.
    winner, loser : ndarray of int64 of shape (n_blocks,)
        Rows i and j of the constraint that attains the loss; −1 if the loss is 0.
    kappa : ndarray of float64 of shape (n_blocks,)
        Its slope.
    """

    value: float
    loss: Floats
    winner: Ints
    loser: Ints
    kappa: Floats


@dataclass(frozen=True, eq=False)
class TreeLosses:
    """H of one data set; build it with `tree_losses`.

    Parameters
    ----------
    tree : Tree
        The tree; row r of W is node r + 1.
    paths : AncestorPaths
        Its layout.
    n_samples : int
        Number of examples.
    row : ndarray of int64 of shape (n_blocks,)
        Example of each block.
    node : ndarray of int64 of shape (n_blocks,)
        Row of W of the label, or of the path node that the block is about.
    n_levels : ndarray of int64 of shape (n_blocks,)
        The block has the constraints of `node` and of the n_levels − 1 nodes above it.
    cost : ndarray of float64 of shape (n_blocks,)
        γ_g.
    is_output : ndarray of bool of shape (m,) or None
        Nodes that compete with the label, all in one group; None if siblings compete along the path.
    rescaling : {"none", "slack", "margin"}
        Use of the tree distance: none, ρ = κ = Δ, or ρ = Δ.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_losses import tree_losses
    >>> tree = Tree(np.array([-1, 0, 0, 1, 1]))
    >>> losses = tree_losses("orthogonal", tree, labels=np.array([3, 2]))
    >>> X, W = np.eye(2), np.array([[1.0, 0.0], [0.0, 0.5], [0.5, 0.0], [0.0, 0.0]])
    >>> losses.evaluate(X, W).value, losses.at_zero
    (1.0, 2.0)
    """

    tree: Tree
    paths: AncestorPaths
    n_samples: int
    row: Ints
    node: Ints
    n_levels: Ints
    cost: Floats
    is_output: npt.NDArray[np.bool_] | None
    rescaling: Rescaling

    @property
    def n_blocks(self) -> int:
        """Number of slacks."""
        return len(self.row)

    @cached_property
    def at_zero(self) -> float:
        """H(0) = Σ_g γ_g max_c ρ_c; along paths ρ = 1, and a block counts if a level of it has siblings."""
        if self.is_output is not None:
            return self.evaluate_scores(None).value
        group, group_start = self.groups
        paths, has_siblings = self.paths, np.diff(group_start)[group] > 1
        place = np.arange(paths.n_entries) - paths.path_indptr[paths.descendant]
        steps = np.where(has_siblings[paths.path_nodes], place, paths.n_entries)  # up to a node that has siblings
        nearest = np.minimum.reduceat(steps, paths.path_indptr[:-1])
        return float(self.cost @ (nearest[self.node] < self.n_levels))

    def evaluate(self, X: Any, W: Any, *, memory_limit_mb: float = 64.0) -> LossPoint:
        """H(W) for X of shape (n_samples, n) and W of shape (m, n), each dense or CSR.

        The work area is `memory_limit_mb`, besides a copy of the weights of one group of siblings.
        """
        X, W = (sp.csr_array(A) if sp.issparse(A) else np.asarray(A) for A in (X, W))

        def score_of(rows: Ints, nodes: slice) -> Floats:
            scores = X[rows] @ W[nodes].astype(np.float64, copy=False).T
            return np.asarray(scores.toarray() if sp.issparse(scores) else scores, dtype=np.float64)

        return self.evaluate_scores(score_of, memory_limit_mb=memory_limit_mb)

    def evaluate_scores(self, score_of: ScoreOf | None, *, memory_limit_mb: float = 64.0) -> LossPoint:
        """H from a function that returns scores, such as that of a kernel model; None for scores of 0."""
        loss, kappa = np.zeros(len(self.row)), np.ones(len(self.row))
        winner = np.full(len(self.row), -1, dtype=np.int64)
        loser = winner.copy()
        for blocks, right, nodes in self._parts(int(memory_limit_mb * MEGABYTE)):
            rho, slope = (1.0, 1.0) if self.rescaling == "none" else self._rescaled(blocks, nodes)
            shape, each = (len(blocks), nodes.stop - nodes.start), np.arange(len(blocks))
            scores = np.zeros(shape) if score_of is None else score_of(self.row[blocks], nodes)
            margins = scores[each, right - nodes.start][:, None] - scores
            slack = rho - slope * margins
            slack[each, right - nodes.start] = -np.inf
            if self.is_output is not None:
                slack[:, ~self.is_output[nodes]] = -np.inf
            worst = slack.argmax(axis=1)
            worse = slack[each, worst] > loss[blocks]
            chosen, each, worst = blocks[worse], each[worse], worst[worse]
            loss[chosen], winner[chosen], loser[chosen] = slack[each, worst], right[worse], worst + nodes.start
            kappa[chosen] = np.broadcast_to(slope, slack.shape)[each, worst]
        return LossPoint(float(self.cost @ loss), loss, winner, loser, kappa)

    def top_k_value(self, score_of: ScoreOf, loss: TopKHinge, *, memory_limit_mb: float = 64.0) -> float:
        """H with a top-k hinge among siblings instead of the largest margin; a block has the largest of its levels."""
        largest = np.zeros(len(self.row))
        for blocks, right, nodes in self._parts(int(memory_limit_mb * MEGABYTE)):
            margins = margins_of_wrong_classes(score_of(self.row[blocks], nodes), right - nodes.start)
            value = replace(loss, k=min(loss.k, margins.shape[1])).value(margins)
            largest[blocks] = np.maximum(largest[blocks], value)
        return float(self.cost @ largest)

    def coefficients(self, point: LossPoint) -> Any:
        """A, CSR of shape (m, n_samples), such that A X = Σ_g γ_g κ_c (e_j − e_i) xᵀ is a subgradient of H."""
        bad = np.flatnonzero(point.loss > 0.0)
        weight = self.cost[bad] * point.kappa[bad]
        nodes = np.concatenate([point.winner[bad], point.loser[bad]])
        entries = np.concatenate([-weight, weight]), (nodes, np.concatenate([self.row[bad], self.row[bad]]))
        return sp.coo_array(entries, shape=(self.paths.m, self.n_samples)).tocsr()

    @cached_property
    def groups(self) -> tuple[Ints, Ints]:
        """Group in which each row of W competes, shape (m,), and the first row of each group, shape (n_groups + 1,)."""
        if self.is_output is not None:
            return np.zeros(self.paths.m, dtype=np.int64), np.array([0, self.paths.m])
        group: Ints = np.cumsum(np.diff(self.paths.parent, prepend=-1) > 0)
        return group, np.searchsorted(group, np.arange(group[-1] + 2))

    @cached_property
    def _members(self) -> tuple[Ints, Ints]:
        """Block and path node of each level of each block, by group; levels of an only child are left out."""
        if self.is_output is not None:
            order = np.argsort(self.node, kind="stable")  # few labels per part
            return order, self.node[order]
        group, group_start = self.groups
        block = np.repeat(np.arange(len(self.row)), self.n_levels)
        level = np.arange(len(block)) - np.repeat(np.cumsum(self.n_levels) - self.n_levels, self.n_levels)
        node = self.paths.path_nodes[self.paths.path_indptr[self.node[block]] + level]
        kept = np.diff(group_start)[group[node]] > 1
        block, node = block[kept], node[kept]
        order = np.argsort(group[node], kind="stable")
        return block[order], node[order]

    def _parts(self, work_bytes: int) -> Iterator[tuple[Ints, Ints, slice]]:
        """Blocks, their right nodes, and the rows of W that compete, in parts that fit the work area."""
        (group, starts), (block, node) = self.groups, self._members
        ends = np.searchsorted(group[node], np.arange(len(starts)))
        for number, (first, last) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            nodes = slice(int(starts[number]), int(starts[number + 1]))
            step = max(1, work_bytes // (8 * WORK_ARRAYS * (nodes.stop - nodes.start)))
            for low in range(first, last, step):
                part = slice(low, min(low + step, last))
                yield block[part], node[part], nodes

    def _rescaled(self, blocks: Ints, nodes: slice) -> tuple[Any, Any]:
        """ρ and κ of a part for tree-loss training, shape (n_blocks, n_nodes), or κ = 1."""
        labels, which = np.unique(self.node[blocks], return_inverse=True)
        delta = 0.5 * self.tree.distance(labels[:, None] + 1, np.arange(nodes.start, nodes.stop) + 1)[which]
        return delta, delta if self.rescaling == "slack" else 1.0


@with_shared_passages
def tree_losses(
    method: Method,
    tree: Tree,
    labels: npt.ArrayLike,
    *,
    C: float = 1.0,
    sample_weight: npt.ArrayLike | None = None,
    node_scaling: Literal["sum", "paper"] = "sum",
    rescaling: Literal["slack", "margin"] = "slack",
    outputs: Literal["leaves", "all"] = "leaves",
) -> TreeLosses:
    """The blocks of a method for labelled examples.

    Parameters
    ----------
    <method_and_tree>
    labels : array of int of shape (n_samples,)
        Nodes of the tree. Where paths are trained, examples labelled with the root have no constraint.
    C : float
        Factor of the sum of losses.
    sample_weight : array of shape (n_samples,), optional
        At least 0; default 1.
    node_scaling : {"sum", "paper"}
        Per-node training only: γ = C · weight; "paper" divides by the weight of all examples that pass through the
        parent of the node.
    rescaling : {"slack", "margin"}
        Tree-loss training only.
    outputs : {"leaves", "all"}
        Flat and tree-loss training only: the nodes that compete with the label. All labels must be outputs.

    Returns
    -------
    TreeLosses
        The losses.
    """
    paths, labels = AncestorPaths.of(tree.parent), np.asarray(labels).astype(np.int64)
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if method in ("flat", "tree-loss"):
        is_output = (tree.is_leaf | (outputs == "all"))[1:]
        row, n_levels = np.arange(len(labels)), np.ones(len(labels), dtype=np.int64)
        kind: Rescaling = rescaling if method == "tree-loss" else "none"
        return TreeLosses(tree, paths, len(labels), row, labels - 1, n_levels, C * weight, is_output, kind)
    row = np.flatnonzero(labels > 0)
    node, n_levels = labels[row] - 1, tree.depth[labels[row]].astype(np.int64)
    if method == "per-node":
        entry = np.repeat(paths.path_indptr[node + 1] - np.cumsum(n_levels), n_levels) + np.arange(n_levels.sum())
        row, node = np.repeat(row, n_levels), paths.path_nodes[entry]
        n_levels = np.ones(len(row), dtype=np.int64)
    cost = C * weight[row]
    if node_scaling == "paper":
        above = paths.parent[node] + 1
        passing = np.bincount(above, weights=weight[row], minlength=paths.m + 1)
        cost = np.divide(cost, passing[above], out=np.zeros_like(cost), where=cost > 0.0)
    return TreeLosses(tree, paths, len(labels), row, node, n_levels, cost, None, "none")
