"""Specification of the tree algebra: factors and solves of matrices that couple a node with its ancestors only.

    M = L diag(d) Lᵀ,     L unit,     L[a, i] ≠ 0 only where a is i or an ancestor of i

Eliminated leaves first such a matrix fills nothing in: node i touches pairs of its ancestors, which are ancestors of
each other. R = L⁻¹ has the same pattern, and with Z = R B

    M⁻¹B = Rᵀ diag(d)⁻¹ Z,     (M⁻¹)_ij = Σ_a R_ai R_aj / d_a,     tr(Bᵀ M⁻¹ B) = Σ_a ‖z_a‖² / d_a.

Row r stands for node r + 1 of a tree whose node 0, the root, has no row. All matrices are arrays of values on one
layout, `AncestorPaths`: for each row its path [r, parent, …, top], one after the other. Nodes are numbered breadth
first, so that the values of all nodes of one depth are one slice, a (nodes × depth) array, and every step is a few
NumPy calls a level. Memory: one number an ancestor pair; time O(Σ depth²) to factor, O(Σ depth) a column to solve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = [
    "AncestorPaths",
    "TreeFactor",
    "factorize",
    "identity_factor",
    "similarity_factor",
    "similarity_matrix",
    "tree_loss_factor",
    "tree_loss_matrix",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# More entries than this take 16 GB an array; such a tree is a chain rather than a tree.
MAX_ENTRIES = 2**31 - 1


@dataclass(frozen=True, eq=False)
class AncestorPaths:
    """Where the entries of a matrix on ancestor pairs are: a CSR structure of paths, the row itself first.

    Parameters
    ----------
    parent : ndarray of int64 of shape (m,)
        Row of the parent, −1 for top nodes; breadth first, so never decreasing and below the row itself.
    level_indptr : ndarray of int64 of shape (height + 1,)
        Rows level_indptr[d − 1] … level_indptr[d] − 1 are the nodes of depth d.
    path_indptr : ndarray of int64 of shape (m + 1,)
        Where the path of each row begins and ends.
    path_nodes : ndarray of int64 of shape (n_entries,)
        Rows on the paths, from the row itself up to its top node.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 0, 1, 1]))  # a root, two top nodes, two leaves below the first
    >>> paths.path_indptr, paths.path_nodes
    (array([0, 1, 2, 4, 6]), array([0, 1, 2, 0, 3, 0]))
    """

    parent: Ints
    level_indptr: Ints
    path_indptr: Ints
    path_nodes: Ints

    @classmethod
    def of(cls, tree_parent: npt.ArrayLike) -> AncestorPaths:
        """Layout of a tree given by `Tree.parent`, shape (m + 1,): node 0 is the root, numbered breadth first."""
        parent = np.asarray(tree_parent, dtype=np.int64)[1:] - 1
        ends = [0]
        while ends[-1] < len(parent):  # a level ends where the parents are no longer of the level before
            ends.append(int(np.searchsorted(parent, ends[-1])))
        level_indptr = np.array(ends, dtype=np.int64)
        depth = np.repeat(np.arange(1, len(ends)), np.diff(level_indptr))
        path_indptr = np.concatenate([[0], np.cumsum(depth)]).astype(np.int64)
        if path_indptr[-1] > MAX_ENTRIES:
            raise ValueError(
                f"the tree has {path_indptr[-1]:,} pairs of a node and an ancestor, more than {MAX_ENTRIES:,}; cut it"
            )
        paths = cls(parent, level_indptr, path_indptr, np.empty(path_indptr[-1], dtype=np.int64))
        for d, rows in enumerate(paths.levels(), start=1):
            block = paths.block(paths.path_nodes, d)
            block[:, 0] = np.arange(rows.start, rows.stop)
            if d > 1:
                block[:, 1:] = paths.block(paths.path_nodes, d - 1)[parent[rows] - level_indptr[d - 2]]
        return paths

    @property
    def m(self) -> int:
        """Number of rows: nodes but the root."""
        return len(self.parent)

    @property
    def height(self) -> int:
        """Number of levels."""
        return len(self.level_indptr) - 1

    @property
    def n_entries(self) -> int:
        """Number of values on the layout: m diagonal ones and one an ancestor pair."""
        return len(self.path_nodes)

    @cached_property
    def depth(self) -> Ints:
        """Shape (m,): length of each path; 1 for top nodes."""
        return np.diff(self.path_indptr)

    @cached_property
    def descendant(self) -> Ints:
        """Shape (n_entries,): the row to whose path an entry belongs."""
        return np.repeat(np.arange(self.m), self.depth)

    @cached_property
    def is_diagonal(self) -> npt.NDArray[np.bool_]:
        """Shape (n_entries,): whether an entry is the first of its path."""
        diagonal: npt.NDArray[np.bool_] = self.descendant == self.path_nodes
        return diagonal

    @cached_property
    def top(self) -> Ints:
        """Shape (m,): the last row of each path; a matrix on ancestor pairs is block diagonal over these."""
        return self.path_nodes[self.path_indptr[1:] - 1]

    def levels(self) -> Iterator[slice]:
        """Rows of depth 1, 2, …"""
        for first, last in zip(self.level_indptr[:-1].tolist(), self.level_indptr[1:].tolist(), strict=True):
            yield slice(first, last)

    def block(self, values: npt.NDArray[Any], d: int) -> npt.NDArray[Any]:
        """View of the values of depth d, shape (n_nodes of the level, d), place t being the t-th of the path."""
        first, last = self.level_indptr[d - 1 : d + 1]
        return values[self.path_indptr[first] : self.path_indptr[last]].reshape(last - first, d)

    def entries(self, above: npt.ArrayLike, below: npt.ArrayLike) -> Ints:
        """Places of pairs (ancestor or the row itself, row) on the layout; they must be such pairs."""
        above, below = np.asarray(above, dtype=np.int64), np.asarray(below, dtype=np.int64)
        places: Ints = self.path_indptr[below] + self.depth[below] - self.depth[above]
        return places

    def upper(self, values: Floats) -> Any:
        """Sparse (m, m) with entry (ancestor, row) = value: upper triangular, as parents come first."""
        return sp.csc_array((values, self.path_nodes, self.path_indptr), shape=(self.m, self.m))

    def symmetric(self, values: Floats) -> Any:
        """Sparse (m, m) with entries (ancestor, row) and (row, ancestor) = value, as CSR."""
        triangle = self.upper(values)
        off_diagonal = self.upper(np.where(self.is_diagonal, 0.0, values))
        return (triangle + off_diagonal.T).tocsr()


@dataclass(frozen=True, eq=False)
class TreeFactor:
    """M = L diag(pivots) Lᵀ with L and R = L⁻¹ as values on `paths`.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    L, R : ndarray of float64 of shape (n_entries,)
        Unit factor and its inverse: place t of row i is L[path_t, i] and (L⁻¹)[path_t, i].
    pivots : ndarray of float64 of shape (m,)
        The diagonal d; M is positive definite if and only if all are positive.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_factor import AncestorPaths, factorize
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))  # two nodes, the second below the first
    >>> factor = factorize(paths, np.array([2.0, 1.0, 1.0]))  # [[2, 1], [1, 1]]
    >>> factor.pivots, factor.R
    (array([1., 1.]), array([ 1.,  1., -1.]))
    >>> factor.solve(np.eye(2))
    array([[ 1., -1.],
           [-1.,  2.]])
    """

    paths: AncestorPaths
    L: Floats
    R: Floats
    pivots: Floats

    @property
    def is_positive_definite(self) -> bool:
        """Whether all pivots are positive."""
        return bool((self.pivots > 0.0).all())

    @cached_property
    def _inverse(self) -> Any:
        """R as a sparse array, by row."""
        return self.paths.upper(self.R).tocsr()

    @cached_property
    def _inverse_transposed(self) -> Any:
        return self._inverse.T.tocsr()

    def forward(self, B: Any) -> Any:
        """Z = L⁻¹ B for B dense or sparse of shape (m,) or (m, n)."""
        return self._inverse @ B

    def backward(self, Z: Any) -> Any:
        """W = L⁻ᵀ diag(pivots)⁻¹ Z for Z dense or sparse of shape (m,) or (m, n)."""
        return self._inverse_transposed @ _scale_rows(Z, 1.0 / self.pivots)

    def solve(self, B: Any) -> Any:
        """W = M⁻¹ B for B dense or sparse of shape (m,) or (m, n)."""
        return self.backward(self.forward(B))

    def half_trace(self, Z: Any) -> float:
        """½ tr(Bᵀ M⁻¹ B) = ½ Σ_a ‖z_a‖² / d_a, given Z = L⁻¹ B of shape (m, n)."""
        squares = Z.multiply(Z).sum(axis=1) if sp.issparse(Z) else (Z * Z).reshape(self.paths.m, -1).sum(axis=1)
        return float(0.5 * (np.asarray(squares).ravel() / self.pivots).sum())

    def inverse_entries(self, i: npt.ArrayLike, j: npt.ArrayLike) -> Floats:
        """(M⁻¹)_ij of some pairs of rows, each of shape (n_pairs,)."""
        paths, i, j = self.paths, np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
        ends = paths.path_indptr[i + 1], paths.path_indptr[j + 1]
        total, active = np.zeros(len(i)), np.arange(len(i))
        for d in range(1, paths.height + 1):  # from the top down, until the paths part
            active = active[(paths.depth[i[active]] >= d) & (paths.depth[j[active]] >= d)]
            left, right = ends[0][active] - d, ends[1][active] - d
            common = paths.path_nodes[left] == paths.path_nodes[right]
            active, left, right = active[common], left[common], right[common]
            total[active] += self.R[left] * self.R[right] / self.pivots[paths.path_nodes[left]]
        return total


def factorize(paths: AncestorPaths, M: Floats) -> TreeFactor:
    """Eliminate leaves first, without fill; the pivots tell whether M is positive definite.

    A pivot of exactly 0 ends the elimination of its row (L = 0 there): what comes after has no meaning but that M is
    not positive definite.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    M : ndarray of float64 of shape (n_entries,)
        Symmetric matrix: M[row, row] first, then M[ancestor, row] up the path.

    Returns
    -------
    TreeFactor
        L, R and the pivots.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_factor import AncestorPaths, factorize
    >>> factorize(AncestorPaths.of(np.array([-1, 0, 1])), np.array([1.0, 1.0, 2.0])).is_positive_definite
    False
    """
    rest, L, pivots = np.array(M, dtype=np.float64), np.ones(paths.n_entries), np.empty(paths.m)
    for d in range(paths.height, 0, -1):
        first, last = paths.level_indptr[d - 1 : d + 1]
        pivot = pivots[first:last] = paths.block(rest, d)[:, 0]
        above, nodes, column = paths.block(rest, d)[:, 1:], paths.block(paths.path_nodes, d), paths.block(L, d)
        safe = np.where(pivot == 0.0, np.inf, pivot)
        column[:, 1:] = above / safe[:, None]
        for t in range(1, d):  # M[path_t, path_u] −= l_t l_u pivot for u ≥ t
            places = paths.path_indptr[nodes[:, t], None] + np.arange(d - t)
            np.subtract.at(rest, places, column[:, t, None] * above[:, t - 1 :])
    return TreeFactor(paths, L, _invert(paths, L), pivots)


def _invert(paths: AncestorPaths, L: Floats) -> Floats:
    """R = L⁻¹ on the layout: R[i, t] = −Σ_{u<t} L[path_t, path_u] R[i, u]."""
    R = np.ones(paths.n_entries)
    for d in range(2, paths.height + 1):
        nodes, row = paths.block(paths.path_nodes, d), paths.block(R, d)
        starts = paths.path_indptr[nodes]
        for t in range(1, d):
            row[:, t] = -(L[starts[:, :t] + np.arange(t, 0, -1)] * row[:, :t]).sum(axis=1)
    return R


def identity_factor(paths: AncestorPaths) -> TreeFactor:
    """The factor of M = I: flat and per-node training."""
    unit = np.where(paths.is_diagonal, 1.0, 0.0)
    return TreeFactor(paths, unit, unit, np.ones(paths.m))


def similarity_matrix(paths: AncestorPaths) -> Floats:
    """M of similarity transfer: ½ Σ_i (‖w_i‖² + ‖w_i − w_p(i)‖²), the latter without top nodes; I + forest Laplacian.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_factor import AncestorPaths, similarity_matrix
    >>> similarity_matrix(AncestorPaths.of(np.array([-1, 0, 1])))
    array([ 2.,  2., -1.])
    """
    return _edge_matrix(paths, 1.0 + _n_children(paths) + (paths.parent >= 0))


def tree_loss_matrix(paths: AncestorPaths) -> Floats:
    """M of tree-loss training: ½ Σ_i ‖w_i − w_p(i)‖², w_p = 0 for top nodes; (I − Par)ᵀ(I − Par).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_factor import AncestorPaths, tree_loss_matrix
    >>> tree_loss_matrix(AncestorPaths.of(np.array([-1, 0, 1])))
    array([ 2.,  1., -1.])
    """
    return _edge_matrix(paths, 1.0 + _n_children(paths))


def similarity_factor(paths: AncestorPaths) -> TreeFactor:
    """Factor of `similarity_matrix` in O(entries): d_i = M_ii − Σ_c 1/d_c over children c, R the products of 1/d."""
    pivots = 1.0 + _n_children(paths) + (paths.parent >= 0)
    for d in range(paths.height, 1, -1):
        first, last = paths.level_indptr[d - 1 : d + 1]
        np.subtract.at(pivots, paths.parent[first:last], 1.0 / pivots[first:last])
    L, R = np.where(paths.is_diagonal, 1.0, 0.0), np.ones(paths.n_entries)
    for d in range(2, paths.height + 1):
        nodes = paths.block(paths.path_nodes, d)
        paths.block(L, d)[:, 1] = -1.0 / pivots[nodes[:, 0]]
        paths.block(R, d)[:, 1:] = np.cumprod(1.0 / pivots[nodes[:, :-1]], axis=1)
    return TreeFactor(paths, L, R, pivots)


def tree_loss_factor(paths: AncestorPaths) -> TreeFactor:
    """Factor of `tree_loss_matrix`: pivots 1, R = 1 on all paths, so that Z = L⁻¹B has the sums over subtrees."""
    return TreeFactor(paths, _edge_matrix(paths, np.ones(paths.m)), np.ones(paths.n_entries), np.ones(paths.m))


def _n_children(paths: AncestorPaths) -> Floats:
    return np.bincount(paths.parent[paths.parent >= 0], minlength=paths.m).astype(np.float64)


def _edge_matrix(paths: AncestorPaths, diagonal: Floats) -> Floats:
    """The given diagonal, −1 between a node and its parent, 0 between it and farther ancestors."""
    values = np.zeros(paths.n_entries)
    values[paths.path_indptr[:-1]] = diagonal
    has_parent = paths.parent >= 0
    values[paths.path_indptr[:-1][has_parent] + 1] = -1.0
    return values


def _scale_rows(A: Any, scale: Floats) -> Any:
    return sp.diags_array(scale) @ A if sp.issparse(A) else (A.T * scale).T
