"""What a taxonomy shows of its tree: read-only arrays over node numbers, the root being node 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.labels.tree import IntArray, Tree

__all__ = ["TreeArrays"]


class TreeArrays:
    """The arrays of `tree`, under the same names."""

    tree: Tree

    @property
    def n_nodes(self) -> int:
        """Number of nodes, the root included."""
        return self.tree.n_nodes

    @property
    def parent(self) -> IntArray:
        """Parent number of each node, −1 for the root, shape (n_nodes,)."""
        return self.tree.parent

    @property
    def children_indptr(self) -> IntArray:
        """Where the children of each node begin in `children_indices`, shape (n_nodes + 1,)."""
        return self.tree.children_indptr

    @property
    def children_indices(self) -> IntArray:
        """Children of all nodes, grouped by parent, shape (n_nodes − 1,)."""
        return self.tree.children_indices

    @property
    def depth(self) -> IntArray:
        """Number of edges from the root to each node, shape (n_nodes,)."""
        return self.tree.depth

    @property
    def order(self) -> IntArray:
        """Node numbers with parents before children, shape (n_nodes,)."""
        return self.tree.order

    @property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        """Whether each node has no children, shape (n_nodes,)."""
        return self.tree.is_leaf

    @property
    def height(self) -> int:
        """Largest depth."""
        return self.tree.height

    def ancestor_matrix(self) -> Any:
        """CSR indicator, nodes × nodes: entry (i, a) is 1 if a is i or an ancestor of i (see `Tree.ancestor_matrix`).

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_paths(["A/B", "A/C"]).ancestor_matrix().toarray()
        array([[1, 0, 0],
               [1, 1, 0],
               [1, 0, 1]], dtype=int8)
        """
        return self.tree.ancestor_matrix()
