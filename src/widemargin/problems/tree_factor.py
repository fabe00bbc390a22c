"""Matrices that couple a node with its ancestors only: factors, solves, and weights stored as such a product.

    M = L diag(d) Lᵀ,     L unit,     L[a, i] ≠ 0 only if a is i or an ancestor of i

Elimination from the leaves up causes no fill-in: node i touches pairs of its ancestors, which are ancestors of each
other. R = L⁻¹ has the same pattern, and with Z = R B

    M⁻¹B = Rᵀ diag(d)⁻¹ Z,     (M⁻¹)_ij = Σ_a R_ai R_aj / d_a,     tr(Bᵀ M⁻¹ B) = Σ_a ‖z_a‖² / d_a.

Row r stands for node r + 1 of a tree; the root, node 0, has no row. All matrices are arrays of values on one layout,
`AncestorPaths`: the paths [r, parent, …, top] of all rows, one after another. Nodes are numbered breadth first, so the
values of one depth are one slice, a (nodes × depth) array, and every step takes a few NumPy calls per level. Memory:
one number per ancestor pair. Time: O(Σ depth²) to factor, O(Σ depth) per column to solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.scores import LinearScorer, csr_of, drop_small

__all__ = ["AncestorPaths", "FactoredScorer", "TreeFactor", "TreeWeights", "factorize"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_ENTRIES = 2**31 - 1
"""With more ancestor pairs one array takes 16 GB; such a tree is really a chain."""
BLOCK_BYTES = 2**26
"""Size of the rows of W that are computed at once when they are pruned."""


@dataclass(frozen=True, eq=False)
class AncestorPaths:
    """Positions of the entries of a matrix on ancestor pairs: a CSR structure of paths, each starting at its own row.

    Parameters
    ----------
    m, n_entries, height : int
        Number of rows (nodes without the root), of values (m diagonal ones and one per ancestor pair), and of levels.
    parent : ndarray of int64 of shape (m,)
        Row of the parent, −1 for top nodes; breadth first, so it never decreases and is below the row itself.
    level_indptr : ndarray of int64 of shape (height + 1,)
        Rows level_indptr[d − 1] … level_indptr[d] − 1 are the nodes of depth d.
    path_indptr : ndarray of int64 of shape (m + 1,)
        Start and end of the path of each row.
    path_nodes : ndarray of int64 of shape (n_entries,)
        Rows on the paths, from the row itself up to its top node.
    depth : ndarray of int64 of shape (m,)
        Length of each path; 1 for top nodes.
    descendant : ndarray of int64 of shape (n_entries,)
        The row whose path an entry belongs to.
    is_diagonal : ndarray of bool of shape (n_entries,)
        Whether an entry is the first of its path.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 0, 1, 1]))  # a root, two top nodes, two leaves below the first
    >>> paths.path_indptr, paths.path_nodes
    (array([0, 1, 2, 4, 6]), array([0, 1, 2, 0, 3, 0]))
    """

    m: int
    n_entries: int
    height: int
    parent: Ints
    level_indptr: Ints
    path_indptr: Ints
    path_nodes: Ints
    depth: Ints
    descendant: Ints
    is_diagonal: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, tree_parent: npt.ArrayLike) -> AncestorPaths:
        """Layout of a tree given by `Tree.parent`, shape (m + 1,): node 0 is the root, numbered breadth first."""
        parent = np.asarray(tree_parent, dtype=np.int64)[1:] - 1
        m, ends = len(parent), [0]
        while ends[-1] < m:  # a level ends at the first parent that is not in the previous level
            ends.append(int(np.searchsorted(parent, ends[-1])))
        depth = np.repeat(np.arange(1, len(ends)), np.diff(ends))
        path_indptr = np.concatenate([[0], np.cumsum(depth)]).astype(np.int64)
        n_entries = int(path_indptr[-1])
        if n_entries > MAX_ENTRIES:
            raise ValueError(
                f"the tree has {n_entries:,} node-ancestor pairs, but at most {MAX_ENTRIES:,} are "
                "supported; use a tree with fewer levels"
            )
        path_nodes, above = np.empty(n_entries, dtype=np.int64), np.empty((0, 0), dtype=np.int64)
        for d in range(1, len(ends)):
            before, first, last = ends[max(d - 2, 0)], ends[d - 1], ends[d]
            block = path_nodes[path_indptr[first] : path_indptr[last]].reshape(last - first, d)
            block[:, 0] = np.arange(first, last)
            if d > 1:
                block[:, 1:] = above[parent[first:last] - before]
            above = block
        descendant, levels = np.repeat(np.arange(m), depth), np.array(ends, dtype=np.int64)
        is_diagonal: npt.NDArray[np.bool_] = descendant == path_nodes
        layout = parent, levels, path_indptr, path_nodes, depth, descendant, is_diagonal
        return cls(m, n_entries, len(ends) - 1, *layout)

    @cached_property
    def top(self) -> Ints:
        """Shape (m,): the last row of each path; a matrix on ancestor pairs is block diagonal over these."""
        return self.path_nodes[self.path_indptr[1:] - 1]

    def block(self, values: npt.NDArray[Any], d: int) -> npt.NDArray[Any]:
        """View of the values of depth d, shape (n_nodes of the level, d); column t is place t of the path."""
        first, last = self.level_indptr[d - 1 : d + 1]
        return values[self.path_indptr[first] : self.path_indptr[last]].reshape(last - first, d)

    def entries(self, above: npt.ArrayLike, below: npt.ArrayLike) -> Ints:
        """Places of pairs (ancestor or the row itself, row) on the layout; no other pairs are allowed."""
        above, below = np.asarray(above, dtype=np.int64), np.asarray(below, dtype=np.int64)
        places: Ints = self.path_indptr[below] + self.depth[below] - self.depth[above]
        return places

    def upper(self, values: Floats) -> Any:
        """Sparse (m, m) with entry (ancestor, row) = value: upper triangular, because parents come first."""
        return sp.csc_array((values, self.path_nodes, self.path_indptr), shape=(self.m, self.m))

    def symmetric(self, values: Floats) -> Any:
        """Sparse (m, m) with entries (ancestor, row) and (row, ancestor) = value, as CSR."""
        triangle = self.upper(values)
        off_diagonal = self.upper(np.where(self.is_diagonal, 0.0, values))
        return (triangle + off_diagonal.T).tocsr()

    def up(self, values: Floats, v: Floats) -> Floats:
        """`upper(values) @ v`, shape (m,); no sparse array is made, which would take longer if there are few nodes."""
        sums = np.bincount(self.path_nodes, weights=values * v[self.descendant], minlength=self.m)
        return sums.astype(np.float64, copy=False)

    def down(self, values: Floats, v: Floats) -> Floats:
        """`upper(values).T @ v`, shape (m,)."""
        products: Floats = np.add.reduceat(values * v[self.path_nodes], self.path_indptr[:-1])
        return products


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
    def _inverses(self) -> tuple[Any, Any]:
        """R and Rᵀ as CSR arrays."""
        R = self.paths.upper(self.R).tocsr()
        return R, R.T.tocsr()

    def forward(self, B: Any) -> Any:
        """Z = L⁻¹ B for B dense or sparse of shape (m,) or (m, n)."""
        return self._inverses[0] @ B if B.ndim == 2 else self.paths.up(self.R, B)

    def backward(self, Z: Any) -> Any:
        """W = L⁻ᵀ diag(pivots)⁻¹ Z for Z dense or sparse of shape (m,) or (m, n)."""
        scale = 1.0 / self.pivots
        if Z.ndim == 1:
            return self.paths.down(self.R, scale * Z)
        return self._inverses[1] @ (sp.diags_array(scale) @ Z if sp.issparse(Z) else (Z.T * scale).T)

    def solve(self, B: Any) -> Any:
        """W = M⁻¹ B for B dense or sparse of shape (m,) or (m, n)."""
        return self.backward(self.forward(B))


def factorize(paths: AncestorPaths, M: Floats) -> TreeFactor:
    """Eliminate from the leaves up, without fill-in; the pivots show whether M is positive definite.

    A pivot of exactly 0 ends the elimination of its row (L = 0 there). The rest then means only that M is not positive
    definite.

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
    """
    rest, pivots = np.array(M, dtype=np.float64), np.empty(paths.m)
    L, R = np.ones(paths.n_entries), np.ones(paths.n_entries)
    for d in range(paths.height, 0, -1):
        first, last = paths.level_indptr[d - 1 : d + 1]
        pivot = pivots[first:last] = paths.block(rest, d)[:, 0]
        above, nodes, column = paths.block(rest, d)[:, 1:], paths.block(paths.path_nodes, d), paths.block(L, d)
        safe = np.where(pivot == 0.0, np.inf, pivot)
        column[:, 1:] = above / safe[:, None]
        for t in range(1, d):  # M[path_t, path_u] −= l_t l_u pivot for u ≥ t
            places = paths.path_indptr[nodes[:, t], None] + np.arange(d - t)
            np.subtract.at(rest, places, column[:, t, None] * above[:, t - 1 :])
    for d in range(2, paths.height + 1):
        starts, row = paths.path_indptr[paths.block(paths.path_nodes, d)], paths.block(R, d)
        for t in range(1, d):  # R[i, t] = −Σ_{u<t} L[path_t, path_u] R[i, u]
            row[:, t] = -(L[starts[:, :t] + np.arange(t, 0, -1)] * row[:, :t]).sum(axis=1)
    return TreeFactor(paths, L, R, pivots)


def identity_coupling(paths: AncestorPaths) -> tuple[Floats, TreeFactor]:
    """M = I and its factor: flat and per-node training."""
    unit = np.where(paths.is_diagonal, 1.0, 0.0)
    return unit, TreeFactor(paths, unit, unit, np.ones(paths.m))


def similarity_coupling(paths: AncestorPaths) -> tuple[Floats, TreeFactor]:
    """M of ½ Σ_i (‖w_i‖² + ‖w_i − w_p(i)‖²), no second term for top nodes: I + forest Laplacian; and its factor.

    In O(entries): d_i = M_ii − Σ_c 1/d_c over the children c, and R has the products of 1/d along the path.
    """
    M = _edge_matrix(paths, has_parent_term=True)
    pivots = M[paths.is_diagonal]
    for d in range(paths.height, 1, -1):
        first, last = paths.level_indptr[d - 1 : d + 1]
        np.subtract.at(pivots, paths.parent[first:last], 1.0 / pivots[first:last])
    L, R = np.where(paths.is_diagonal, 1.0, 0.0), np.ones(paths.n_entries)
    for d in range(2, paths.height + 1):
        nodes = paths.block(paths.path_nodes, d)
        paths.block(L, d)[:, 1] = -1.0 / pivots[nodes[:, 0]]
        paths.block(R, d)[:, 1:] = np.cumprod(1.0 / pivots[nodes[:, :-1]], axis=1)
    return M, TreeFactor(paths, L, R, pivots)


def tree_loss_coupling(paths: AncestorPaths) -> tuple[Floats, TreeFactor]:
    """M of ½ Σ_i ‖w_i − w_p(i)‖², w_p = 0 for top nodes: (I − Par)ᵀ(I − Par); and its factor.

    The pivots and R are 1, so Z = L⁻¹B has the sums over subtrees.
    """
    M = _edge_matrix(paths, has_parent_term=False)
    return M, TreeFactor(paths, np.where(paths.is_diagonal, 1.0, M), np.ones(paths.n_entries), np.ones(paths.m))


def _edge_matrix(paths: AncestorPaths, *, has_parent_term: bool) -> Floats:
    """M_ii = 1 + number of children (+ 1 below a parent), −1 between a node and its parent, 0 for other pairs."""
    has_parent = paths.parent >= 0
    n_children = np.bincount(paths.parent[has_parent], minlength=paths.m).astype(np.float64)
    values = np.zeros(paths.n_entries)
    values[paths.path_indptr[:-1]] = 1.0 + n_children + (has_parent & has_parent_term)
    values[paths.path_indptr[:-1][has_parent] + 1] = -1.0
    return values


class TreeWeights:
    """Weights of the nodes of a large tree as a product of sparse factors, W = L⁻ᵀ diag(d)⁻¹ Z of shape (m, n).

        w_i = Σ_a R[a, i] z_a / d_a        over node i and its ancestors a

    A row of W has all features of the rows of Z above it, so W of a large tree is dense where Z is sparse: z of a node
    has only the features of the examples that pass its siblings. Scores cost as much as those of Z.

    Parameters
    ----------
    parts : csr_array of shape (m, n)
        Z.
    factor : TreeFactor
        R and the pivots d; L is not used.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.problems.tree_factor import AncestorPaths, TreeWeights, factorize
    >>> factor = factorize(AncestorPaths.of(np.array([-1, 0, 1])), np.array([2.0, 1.0, 1.0]))
    >>> W = TreeWeights(sp.csr_array(np.eye(2)), factor)
    >>> W.toarray()
    array([[ 1.,  0.],
           [-1.,  1.]])
    >>> W.scores(np.array([[1.0, 2.0]]))
    array([[1., 1.]])
    """

    def __init__(self, parts: Any, factor: TreeFactor) -> None:
        self.parts, self.factor = parts, factor

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        m, n = self.parts.shape
        return m, n

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """The arrays that hold the factors."""
        return [self.parts.data, self.parts.indices, self.parts.indptr, self.factor.R, self.factor.pivots]

    @property
    def nbytes(self) -> int:
        """Memory of the factors."""
        return sum(array.nbytes for array in self.arrays)

    def toarray(self) -> Floats:
        """W as a dense array of float64."""
        dense: Floats = self.factor.backward(self.parts.toarray().astype(np.float64, copy=False))
        return dense

    def path_factors(self, i: int) -> tuple[Ints, Floats]:
        """Node i and its ancestors a, and the factors R[a, i] / d_a of their rows of Z in w_i."""
        paths = self.factor.paths
        entries = slice(int(paths.path_indptr[i]), int(paths.path_indptr[i + 1]))
        above = paths.path_nodes[entries]
        return above, self.factor.R[entries] / self.factor.pivots[above]

    def row(self, i: int) -> Floats:
        """One row of W, shape (n,)."""
        above, factors = self.path_factors(i)
        values: Floats = self.parts[above].astype(np.float64).T @ factors
        return values

    def split_last(self) -> tuple[Any, Floats]:
        """W without its last column (Z itself if the factor is the identity), and that column, shape (m,)."""
        last: Floats = self.factor.backward(self.parts[:, [-1]].toarray().astype(np.float64)[:, 0])
        return TreeWeights(self.parts[:, :-1], self.factor).plain(), last

    def plain(self) -> Any:
        """Z if the factor is the identity, else the factors."""
        factor = self.factor
        is_unit = np.where(factor.paths.is_diagonal, factor.R == 1.0, factor.R == 0.0).all()
        return self.parts if is_unit and (factor.pivots == 1.0).all() else self

    def pruned(self, threshold: float) -> Any:
        """The entries of W of at least `threshold`, a positive number, as a csr_array of the dtype of Z."""
        step = max(1, BLOCK_BYTES // (24 * max(1, self.shape[1])))
        scaled = sp.csr_array(sp.diags_array(1.0 / self.factor.pivots) @ self.parts)
        inverse = self.factor.paths.upper(self.factor.R).T.tocsr()
        rows = (sp.csr_array(inverse[first : first + step] @ scaled) for first in range(0, self.shape[0], step))
        joined = sp.vstack([drop_small(part.astype(self.parts.dtype), threshold) for part in rows], format="csr")
        joined.sort_indices()
        return csr_of(joined.data, joined.indices, joined.indptr, joined.shape)

    def scores(self, X: Any) -> Floats:
        """X Wᵀ, shape (n_samples, m), for X dense or sparse of shape (n_samples, n)."""
        products = self.parts.astype(np.float64) @ X.T
        dense = products.toarray() if sp.issparse(products) else np.asarray(products)
        scores: Floats = self.factor.backward(dense).T
        return scores

    def sibling_scores(self, X: Any, nodes: Ints) -> Floats:
        """Scores of rows X at some children of one parent, shape (n_samples, n_nodes), from z of these and above."""
        paths, factor = self.factor.paths, self.factor
        start = paths.path_indptr[nodes]
        depth = int(paths.path_indptr[nodes[0] + 1] - start[0])
        rows = np.concatenate([nodes, paths.path_nodes[start[0] + 1 : start[0] + depth]])
        values = X @ self.parts[rows].astype(np.float64).T
        parts = np.asarray(values.toarray() if sp.issparse(values) else values) / factor.pivots[rows]
        R = factor.R[start[:, None] + np.arange(1, depth)]  # (n_nodes, ancestors)
        scores: Floats = parts[:, : len(nodes)] + parts[:, len(nodes) :] @ R.T
        return scores


class FactoredScorer:
    """Factored weights prepared for prediction, the counterpart of `LinearScorer`."""

    def __init__(self, weights: TreeWeights, intercept: Floats) -> None:
        self._parts = LinearScorer(weights.parts)
        self._factor, self._intercept = weights.factor, intercept

    def scores(self, X: Any, *, n_threads: int = 1) -> Floats:
        """Scores of all nodes, shape (n_samples, m)."""
        parts = self._parts.scores(X, n_threads=n_threads)
        scores: Floats = np.ascontiguousarray(self._factor.backward(np.ascontiguousarray(parts.T)).T)
        scores += self._intercept
        return scores
