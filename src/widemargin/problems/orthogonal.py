"""The penalty of orthogonal transfer, which asks a node's weights to be orthogonal to those of its ancestors.

    Ω(W) = ½ Σ_ij K_ij |w_iᵀ w_j|,        K ≥ 0

Zhou, Xiao and Wu, "Hierarchical Classification via Orthogonal Transfer", ICML 2011. Ω is convex if the comparison
matrix K̄ is positive semidefinite (Theorem 1), and strongly convex with modulus λ_min(K̄) if it is positive definite
(Corollary 2); a subgradient is (K ∘ S) W with S_ij = sign(w_iᵀ w_j), S_ii = 1 (Theorem 4). As |t| is the maximum of st
over |s| ≤ 1,

    Ω(W) = max_S ½ tr(Wᵀ (K ∘ S) W)    over symmetric S with S_ii = 1, |S_ij| ≤ 1.

Row r of W is node r + 1 of the tree; the root has no weights. The paper has K between nodes and their ancestors only.
Such matrices are arrays of values on the layout of `AncestorPaths`, and nothing of size nodes × nodes is made. For any
other K the layout is that of a chain, in which all nodes before a node are its ancestors: half of nodes × nodes.
Where K̄ is singular, or nearly so, the solvers have K with the entries off the diagonal shorter by `SHORTER`: that Ω is
strongly convex and below this one, so that a lower bound on its problem holds for this one, too, and `beyond` is what
is missing to the objective. W is dense or CSR; scalar products of pairs of rows are made in parts of `PRODUCT_BYTES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.exceptions import DataFormatError
from widemargin.labels.tree import Tree
from widemargin.problems.alpha import AUTO_SHARE, Repair, choose_alpha, orthogonal_matrix, repaired_matrix
from widemargin.problems.positive_definite import Bracket, comparison_matrix, smallest_eigenvalue
from widemargin.reference.tree_factor import AncestorPaths, TreeFactor, factorize

__all__ = ["OrthogonalPenalty", "matrix_on_paths", "pair_products"]

Floats = npt.NDArray[np.float64]

PRODUCT_BYTES = 2**25
"""Work area of the scalar products of pairs of rows."""
NEARLY_SINGULAR = 1e-9
"""Smallest eigenvalue of K̄, over the largest entry, below which the solvers get a K with shorter entries."""
SHORTER = 1e-7
"""By how much: the gap that it leaves is below this share of Ω, and K̄ has a condition number of some 1e7."""


@dataclass(frozen=True, eq=False)
class OrthogonalPenalty:
    """Ω for one tree and one K whose comparison matrix is positive semidefinite; build it by `of_tree` or `of_matrix`.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,)
        Weights of the diagonal and of pairs of nodes, such that the comparison matrix is positive definite.
    alpha : float or None
        α of eq. (6), if K is of that form.
    missing : float
        What the entries off the diagonal lack, over what they have; 0 but for a singular comparison matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.orthogonal import OrthogonalPenalty
    >>> penalty = OrthogonalPenalty.of_tree(Tree(np.array([-1, 0, 1])), alpha=1.0)  # K = [[2, 1], [1, 1]]
    >>> penalty.value(np.array([[1.0, 0.0], [-3.0, 0.0]])), penalty.value(np.array([[1.0, 0.0], [0.0, 3.0]]))
    (8.5, 5.5)
    >>> penalty.subgradient(np.array([[1.0, 0.0], [-3.0, 0.0]]))
    array([[ 5.,  0.],
           [-4.,  0.]])
    """

    paths: AncestorPaths
    K: Floats
    alpha: float | None = None
    missing: float = 0.0

    @classmethod
    def of_tree(
        cls,
        tree: Tree,
        alpha: float | Literal["auto"] = "auto",
        *,
        share: float = AUTO_SHARE,
        repair: Repair = "error",
    ) -> OrthogonalPenalty:
        """K of eq. (6): the sizes of the subtrees on the diagonal, α between nodes and ancestors.

        Parameters
        ----------
        tree : Tree
            The tree; its root has no weights.
        alpha : float or "auto"
            At least 0, or `share` · α*, at most 1.
        share : float
            Of α*; above 0 and below 1.
        repair : {"error", "alpha", "diagonal"}
            An α above α* is an error, or α is lowered to `share` · α*, or the diagonal is raised; the latter two
            with a warning.
        """
        paths = AncestorPaths.of(tree.parent)
        chosen = choose_alpha(paths, alpha, share=share, repair=repair)
        K = orthogonal_matrix(paths, chosen)
        if alpha == "auto":
            return cls(paths, K, chosen)
        return cls._definite(paths, repaired_matrix(paths, K, share=share, repair=repair), chosen)

    @classmethod
    def of_matrix(cls, tree: Tree, K: Any, *, share: float = AUTO_SHARE, repair: Repair = "error") -> OrthogonalPenalty:
        """K as given, dense or sparse of shape (m, m), row r being node r + 1; see `matrix_on_paths`.

        The layout is that of the tree, or of a chain where K joins nodes of which neither is above the other.

        Parameters
        ----------
        tree : Tree
            The tree; its root has no weights.
        K : ndarray or sparse array of shape (m, m)
            The matrix.
        share, repair
            As in `of_tree`; "alpha" scales the entries off the diagonal.
        """
        paths = AncestorPaths.of(tree.parent)
        if _joins_others(paths, K):
            paths = AncestorPaths.of(np.arange(-1, paths.m))
        return cls._definite(paths, repaired_matrix(paths, matrix_on_paths(paths, K), share=share, repair=repair))

    @classmethod
    def _definite(cls, paths: AncestorPaths, K: Floats, alpha: float | None = None) -> OrthogonalPenalty:
        """With shorter entries off the diagonal where the comparison matrix is singular."""
        smallest = smallest_eigenvalue(paths, comparison_matrix(paths, K)).lower
        if smallest >= NEARLY_SINGULAR * float(np.abs(K).max()):
            return cls(paths, K, alpha)
        return cls(paths, np.where(paths.is_diagonal, K, (1.0 - SHORTER) * K), alpha, SHORTER / (1.0 - SHORTER))

    @cached_property
    def modulus_bracket(self) -> Bracket:
        """Bounds on λ_min of the comparison matrix, the modulus of strong convexity of Ω."""
        return smallest_eigenvalue(self.paths, comparison_matrix(self.paths, self.K))

    @property
    def modulus(self) -> float:
        """A modulus of strong convexity of Ω: the lower bound on λ_min."""
        return self.modulus_bracket.lower

    @cached_property
    def weight(self) -> Floats:
        """Shape (n_entries,): what an entry counts in Ω, ½K_ii on the diagonal and K_ij for a pair."""
        return np.where(self.paths.is_diagonal, 0.5, 1.0 + self.missing) * self.K

    def value(self, W: Any) -> float:
        """Ω(W) for W of shape (m, n), dense or CSR."""
        return self.value_of_products(pair_products(self.paths, W))

    def value_of_products(self, products: Floats) -> float:
        """Ω from the scalar products w_iᵀ w_j on the layout."""
        return float(self.weight @ np.abs(products))

    def subgradient(self, W: Any) -> Any:
        """A subgradient (K ∘ S) W of Theorem 4, shape (m, n), with S_ij = sign(w_iᵀ w_j) and sign 0 = 0."""
        return self.value_and_subgradient(W)[1]

    def value_and_subgradient(self, W: Any) -> tuple[float, Any]:
        """Both from the same scalar products."""
        products = pair_products(self.paths, W)
        K = np.where(self.paths.is_diagonal, 1.0, 1.0 + self.missing) * self.K
        return self.value_of_products(products), self.paths.symmetric(K * self.signs(products)) @ W

    def signs(self, products: Floats) -> Floats:
        """S_ij = sign(w_iᵀ w_j) on the layout, 1 on the diagonal."""
        return np.where(self.paths.is_diagonal, 1.0, np.sign(products))

    def factor(self, S: Floats) -> TreeFactor:
        """The factor of M(S) = K ∘ S for S on the layout, S_ii = 1 and |S_ij| ≤ 1."""
        return factorize(self.paths, self.K * S)

    def excess(self, S: Floats, products: Floats) -> float:
        """Σ_pairs K_ij (|w_iᵀw_j| − S_ij w_iᵀw_j) ≥ 0: how far S is from giving Ω(W), with K as the solvers have it."""
        return float((self.K * ~self.paths.is_diagonal) @ (np.abs(products) - S * products))

    def beyond(self, products: Floats) -> float:
        """What Ω is above that of K as the solvers have it; 0 unless the comparison matrix is singular."""
        return self.missing * float((self.K * ~self.paths.is_diagonal) @ np.abs(products)) if self.missing else 0.0


def pair_products(paths: AncestorPaths, W: Any) -> Floats:
    """w_iᵀ w_j on the layout, shape (n_entries,), for W of shape (m, n), dense or sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.orthogonal import pair_products
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> pair_products(AncestorPaths.of(np.array([-1, 0, 1])), np.array([[1.0, 2.0], [3.0, -1.0]]))
    array([ 5., 10.,  1.])
    """
    W = W.tocsr() if sp.issparse(W) else np.asarray(W)
    bytes_per_row = 24 * (1 + W.nnz // max(paths.m, 1)) if sp.issparse(W) else 16 * W.shape[1]
    step = max(1, PRODUCT_BYTES // max(bytes_per_row, 1))
    products = np.empty(paths.n_entries)
    for first in range(0, paths.n_entries, step):
        part = slice(first, first + step)
        below, above = W[paths.descendant[part]], W[paths.path_nodes[part]]
        if sp.issparse(W):
            products[part] = np.asarray(below.astype(np.float64).multiply(above).sum(axis=1)).ravel()
        else:
            products[part] = np.einsum("ij,ij->i", below, above, dtype=np.float64)
    return products


def matrix_on_paths(paths: AncestorPaths, K: Any) -> Floats:
    """Values of a matrix on the layout, after a check that it can be a K.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray or sparse array of shape (m, m)
        Row r is node r + 1. Symmetric, nonnegative, finite, positive on the diagonal, and zero for pairs that the
        layout does not have.

    Returns
    -------
    ndarray of float64 of shape (n_entries,)
        The values.

    Raises
    ------
    DataFormatError
        Naming what is wrong and where.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.orthogonal import matrix_on_paths
    >>> from widemargin.reference.tree_factor import AncestorPaths
    >>> matrix_on_paths(AncestorPaths.of(np.array([-1, 0, 1])), np.array([[2.0, 0.5], [0.5, 1.0]]))
    array([2. , 1. , 0.5])
    """
    matrix = sp.coo_array(K if sp.issparse(K) else np.asarray(K, dtype=np.float64))
    if matrix.shape != (paths.m, paths.m):
        raise DataFormatError(
            f"K has shape {matrix.shape}, but the tree has {paths.m} nodes below its root",
            remedy=f"give a matrix of shape ({paths.m}, {paths.m}), row r for node r + 1",
        )
    matrix.sum_duplicates()
    i, j, value = matrix.row.astype(np.int64), matrix.col.astype(np.int64), matrix.data.astype(np.float64)
    _refuse(~np.isfinite(value), i, j, value, "is not finite", "give finite numbers")
    _refuse(value < 0.0, i, j, value, "is negative", "give weights of at least 0")
    above, below = np.minimum(i, j), np.maximum(i, j)  # parents come first
    place = np.minimum(paths.entries(above, below), paths.path_indptr[below + 1] - 1)
    unrelated = paths.path_nodes[place] != above
    remedy = "use a layout that has these pairs, see OrthogonalPenalty.of_matrix"
    _refuse(unrelated & (value != 0.0), i, j, value, "joins nodes of which neither is above the other", remedy)
    i, j, value, place, below = (array[~unrelated] for array in (i, j, value, place, below))
    halves = np.zeros((2, paths.n_entries))
    halves[(i == below).astype(np.int64), place] = value  # entries (ancestor, row), and (row, ancestor)
    halves[0, paths.is_diagonal] = halves[1, paths.is_diagonal]
    differs = np.abs(halves[0] - halves[1]) > 1e-12 * np.abs(halves).max(axis=0)
    _refuse(differs, paths.descendant, paths.path_nodes, halves[1], "differs from its mirror image", "make K symmetric")
    empty = paths.is_diagonal & (halves[1] == 0.0)
    remedy = "give a positive diagonal: a node without a penalty could have weights of any size"
    _refuse(empty, paths.descendant, paths.path_nodes, halves[1], "is not positive", remedy)
    values: Floats = halves[1]
    return values


def _joins_others(paths: AncestorPaths, K: Any) -> bool:
    """Whether a matrix of the right shape has entries between nodes of which neither is above the other."""
    matrix = sp.coo_array(K if sp.issparse(K) else np.asarray(K, dtype=np.float64))
    if matrix.shape != (paths.m, paths.m):
        return False  # an error, which `matrix_on_paths` raises
    above, below = np.minimum(*matrix.coords), np.maximum(*matrix.coords)
    places = np.minimum(paths.entries(above, below), paths.path_indptr[below + 1] - 1)
    return bool((matrix.data[paths.path_nodes[places] != above] != 0.0).any())


def _refuse(
    bad: npt.NDArray[np.bool_],
    i: npt.NDArray[np.int64],
    j: npt.NDArray[np.int64],
    value: Floats,
    problem: str,
    remedy: str,
) -> None:
    """Raise for the first bad entry, if there is one."""
    if bad.any():
        first = int(np.argmax(bad))
        raise DataFormatError(f"K[{i[first]}, {j[first]}] = {value[first]:g} {problem}", remedy=remedy)
