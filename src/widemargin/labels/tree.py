"""A rooted tree over the integers 0 … n − 1: arrays and algorithms, no names.

Nodes are numbered breadth first: node 0 is the root, every parent comes before its children, and siblings are
contiguous. A loop over nodes is therefore a topological order, and a group of siblings is one slice.

Two linear recursions give everything else: sums along the path from the root (depth, preorder) and sums over
subtrees (sizes). Node i covers the interval [enter_i, enter_i + size_i) of the preorder, hence

    i is an ancestor of j, or j itself   ⟺   enter_i ≤ enter_j < enter_i + size_i.

The search for the lowest common ancestor climbs with one jump pointer per node (Myers, "An applicative random-access
stack", 1983): O(log n) vectorised steps for any depth. Memory: at most eight integers per node, computed on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.exceptions import DataFormatError

__all__ = ["IntArray", "Tree"]

IntArray = npt.NDArray[np.intp]

# More (node, ancestor) pairs than this do not fit 32-bit CSR pointers, and take more than 16 GB.
MAX_ANCESTOR_PAIRS = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """An immutable rooted tree with nodes numbered breadth first.

    Parameters
    ----------
    parent : array of int, shape (n_nodes,)
        Parent of each node; −1 for node 0, the root; from node 1 on never decreasing and below the node itself.

    Raises
    ------
    DataFormatError
        If `parent` is not such an array.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> tree = Tree(np.array([-1, 0, 0, 1, 1]))
    >>> tree.depth
    array([0, 1, 1, 2, 2])
    >>> tree.lca([3, 3, 4], [4, 2, 1])
    array([1, 0, 1])
    >>> tree.distance(3, [4, 2, 3])
    array([2, 3, 0])
    """

    parent: IntArray

    def __post_init__(self) -> None:
        parent = np.array(self.parent, dtype=np.intp)
        if parent.ndim != 1 or parent.size == 0:
            raise DataFormatError("the parent array of a tree must be one-dimensional and contain at least one node")
        rest = parent[1:]
        if parent[0] != -1 or np.any(rest < 0) or np.any(np.diff(rest) < 0) or np.any(rest > np.arange(rest.size)):
            raise DataFormatError(
                "the nodes in the parent array must be numbered breadth-first",
                remedy="build the tree with Taxonomy.from_parents",
            )
        object.__setattr__(self, "parent", _read_only(parent))

    def __reduce__(self) -> tuple[Callable[..., Tree], tuple[IntArray]]:
        return Tree, (self.parent,)

    @property
    def n_nodes(self) -> int:
        """Number of nodes, the root included."""
        return int(self.parent.size)

    @cached_property
    def children_indptr(self) -> IntArray:
        """Shape (n_nodes + 1,): start and end of the children of each node in `children_indices`."""
        return _read_only(np.searchsorted(self.parent[1:], np.arange(self.n_nodes + 1)).astype(np.intp))

    @cached_property
    def children_indices(self) -> IntArray:
        """Shape (n_nodes − 1,): all nodes but the root, grouped by parent; 1 … n − 1 in this numbering."""
        return _read_only(np.arange(1, self.n_nodes, dtype=np.intp))

    @cached_property
    def order(self) -> IntArray:
        """Shape (n_nodes,): nodes with parents before children; 0 … n − 1 in this numbering."""
        return _read_only(np.arange(self.n_nodes, dtype=np.intp))

    @cached_property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        """Shape (n_nodes,): whether a node has no children."""
        leaf: npt.NDArray[np.bool_] = np.diff(self.children_indptr) == 0
        leaf.flags.writeable = False
        return leaf

    @cached_property
    def depth(self) -> IntArray:
        """Shape (n_nodes,): number of edges from the root."""
        return _read_only(path_sums(self.parent, np.minimum(self.order, 1)))

    @property
    def height(self) -> int:
        """Largest depth; breadth-first numbering puts it last."""
        return int(self.depth[-1])

    @cached_property
    def size(self) -> IntArray:
        """Shape (n_nodes,): number of nodes in the subtree of a node, itself included."""
        return _read_only(subtree_sums(self.parent, np.ones(self.n_nodes, dtype=np.intp)))

    @cached_property
    def enter(self) -> IntArray:
        """Shape (n_nodes,): position in the depth-first preorder."""
        before = np.cumsum(self.size) - self.size
        first_sibling = self.children_indptr[self.parent[1:]] + 1
        step = np.zeros(self.n_nodes, dtype=np.intp)
        step[1:] = before[1:] - before[first_sibling] + 1  # the subtrees of earlier siblings, and the parent itself
        return _read_only(path_sums(self.parent, step))

    @cached_property
    def preorder(self) -> IntArray:
        """Shape (n_nodes,): nodes in depth-first preorder, the inverse of `enter`."""
        nodes = np.empty(self.n_nodes, dtype=np.intp)
        nodes[self.enter] = self.order
        return _read_only(nodes)

    @cached_property
    def _jump(self) -> IntArray:
        """A far ancestor of each node such that parent and jump steps reach any ancestor in O(log depth)."""
        parent, depth = self.parent.tolist(), self.depth.tolist()
        jump = [0] * self.n_nodes
        for node in range(1, self.n_nodes):
            near = parent[node]
            far = jump[near]
            doubles = depth[near] - depth[far] == depth[far] - depth[jump[far]]
            jump[node] = jump[far] if doubles else near
        return np.array(jump, dtype=np.intp)

    def covers(self, i: npt.ArrayLike, j: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether node i is node j or one of its ancestors, elementwise with broadcasting."""
        above, below = np.asarray(i, dtype=np.intp), self.enter[np.asarray(j, dtype=np.intp)]
        start = self.enter[above]
        inside: npt.NDArray[np.bool_] = (start <= below) & (below < start + self.size[above])
        return inside

    def lca(self, i: npt.ArrayLike, j: npt.ArrayLike) -> IntArray:
        """Lowest common ancestor of nodes i and j, elementwise with broadcasting."""
        left, right = np.broadcast_arrays(np.asarray(i, dtype=np.intp), np.asarray(j, dtype=np.intp))
        node, other = left.flatten(), right.flatten()
        active = np.flatnonzero(~self.covers(node, other))
        while active.size:
            here, target = node[active], other[active]
            leap = self._jump[here]
            # A leap that already covers the target may have passed the lowest such node: take one step instead.
            here = np.where(self.covers(leap, target), self.parent[here], leap)
            node[active] = here
            active = active[~self.covers(here, target)]
        return node.reshape(left.shape)

    def distance(self, i: npt.ArrayLike, j: npt.ArrayLike) -> IntArray:
        """Number of edges between nodes i and j, elementwise with broadcasting."""
        i, j = np.asarray(i, dtype=np.intp), np.asarray(j, dtype=np.intp)
        edges: IntArray = self.depth[i] + self.depth[j] - 2 * self.depth[self.lca(i, j)]
        return edges

    def path(self, node: int) -> list[int]:
        """Nodes from the root down to `node`, both included."""
        climb = [node]
        while climb[-1] != 0:
            climb.append(int(self.parent[climb[-1]]))
        return climb[::-1]

    def children(self, node: int) -> IntArray:
        """Children of a node, ascending."""
        return self.children_indices[self.children_indptr[node] : self.children_indptr[node + 1]]

    def descendants(self, node: int) -> IntArray:
        """Nodes of the subtree of a node, itself included, ascending: parents before children."""
        start = self.enter[node]
        return np.sort(self.preorder[start : start + self.size[node]])

    def ancestor_matrix(self, nodes: npt.ArrayLike | None = None) -> Any:
        """Indicator of the ancestors of some nodes, themselves and the root included.

        Parameters
        ----------
        nodes : array of int, shape (n_rows,), optional
            The nodes; default all of them, in order.

        Returns
        -------
        csr_array of int8, shape (n_rows, n_nodes)
            Entry (r, a) is 1 if a covers node r; indices are sorted. Time and memory O(total path length).
        """
        rows = self.order if nodes is None else np.asarray(nodes, dtype=np.intp)
        counts = self.depth[rows] + 1
        indptr = np.concatenate([[0], np.cumsum(counts)])
        if indptr[-1] > MAX_ANCESTOR_PAIRS:
            raise DataFormatError(
                f"the ancestor matrix would have {indptr[-1]:,} entries",
                remedy=f"request fewer nodes at a time; the limit is {MAX_ANCESTOR_PAIRS:,} entries",
            )
        indices = np.empty(indptr[-1], dtype=np.int32)
        slot, node = indptr[1:] - 1, rows  # deepest last: numbers rise along a path, so indices come out sorted
        while node.size:
            indices[slot] = node
            climbing = node > 0
            slot, node = slot[climbing] - 1, self.parent[node[climbing]]
        ones = np.ones(indices.size, dtype=np.int8)
        return sparse.csr_array((ones, indices, indptr.astype(np.int32)), shape=(rows.size, self.n_nodes))


def path_sums(parent: IntArray, values: IntArray) -> IntArray:
    """Sum of `values` from the root to each node; a plain loop, 0.1 s per million nodes for any depth."""
    totals = values.tolist()
    for node, above in enumerate(parent[1:].tolist(), start=1):
        totals[node] += totals[above]
    return np.array(totals, dtype=np.intp)


def subtree_sums(parent: IntArray, values: IntArray) -> IntArray:
    """Sum of `values` over the subtree of each node; the same loop, backwards."""
    totals, above = values.tolist(), parent.tolist()
    for node in range(len(above) - 1, 0, -1):
        totals[above[node]] += totals[node]
    return np.array(totals, dtype=np.intp)


def _read_only(array: IntArray) -> IntArray:
    """The array, made read-only."""
    array.flags.writeable = False
    return array
