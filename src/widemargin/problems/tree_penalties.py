"""The penalties of the five methods on a tree: orthogonal transfer, and three quadratic forms.

    orthogonal   Ω(W) = ½ Σ_ij K_ij |w_iᵀ w_j|,  K ≥ 0           wants nodes orthogonal to their ancestors
    per-node     ½ Σ_i ‖w_i‖²                                    M = I; the same for flat training
    similarity   ½ Σ_i ‖w_i‖² + ½ Σ_i ‖w_i − w_p(i)‖²            M = I + forest Laplacian; second sum without top nodes
    tree-loss    ½ Σ_i ‖w_i − w_p(i)‖², w_p = 0 for top nodes    M = (I − Par)ᵀ(I − Par)

All but the first are ½ tr(Wᵀ M W). Row r of W is node r + 1 of the tree; the root has no weights. Matrices between
nodes are arrays of values on the layout of `AncestorPaths`; nothing of size nodes × nodes is made. W is dense or CSR.

Orthogonal transfer is from Zhou, Xiao and Wu, "Hierarchical Classification via Orthogonal Transfer", ICML 2011. With
the comparison matrix K̄_ii = K_ii, K̄_ij = −|K_ij|, Ω is convex if K̄ is positive semidefinite (Theorem 1), and
strongly convex with modulus λ_min(K̄) if K̄ is positive definite (Corollary 2), which makes K ∘ S positive definite for
all symmetric S with S_ii = 1 and |S_ij| ≤ 1. A subgradient is (K ∘ S) W with S_ij = sign(w_iᵀ w_j), S_ii = 1 (Theorem
4). As |t| is the maximum of st over |s| ≤ 1, Ω(W) = max_S ½ tr(Wᵀ (K ∘ S) W). The paper's choice is

    K = diag(d) + αN,   d_i = number of nodes in the subtree of node i,   N_ij = 1 for ancestor pairs               (6)

Ω is strongly convex if and only if α < α* = 1/λ_max(d^(−½) N d^(−½)). With two levels α* = min √(1 + 1/children) over
the top nodes, so α = 1 works; with three or more levels α* < 1, and α = 1 is never allowed. α = 1/(levels − 1) always
is, for two or more levels. A matrix K given by the user is treated in the same way: d is its diagonal, N the rest, α =
1. If it joins nodes that are not ancestor and descendant, the layout is a chain, in which all earlier nodes are
ancestors: half of nodes × nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from widemargin._docstrings import with_shared_passages
from widemargin.exceptions import DataFormatError, NotPositiveDefiniteError
from widemargin.labels.tree import Tree
from widemargin.problems.tree_factor import (
    AncestorPaths,
    TreeFactor,
    factorize,
    identity_coupling,
    similarity_coupling,
    tree_loss_coupling,
)

__all__ = ["METHODS", "REPAIRS", "OrthogonalPenalty", "Penalty", "QuadraticPenalty", "pair_products", "tree_penalty"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Method = Literal["orthogonal", "per-node", "similarity", "tree-loss", "flat"]
METHODS: tuple[str, ...] = get_args(Method)
Repair = Literal["error", "alpha", "diagonal"]
REPAIRS: tuple[str, ...] = get_args(Repair)

AUTO_SHARE = 0.9
"""Share of α* that "auto" takes: near α* the transfer is strong, and the problem is still strongly convex."""
SINGULAR = 1e-12
"""A smallest eigenvalue between minus this share of the largest entry and 0 counts as 0."""
NEARLY_SINGULAR = 1e-9
"""Share of the largest entry: with a smaller λ_min(K̄) the solvers get a K with shorter entries off the diagonal."""
SHORTER = 1e-7
"""By how much they are shorter: the gap that this leaves is below this share of Ω, and K̄ has a condition number of
about 1e7."""
PRODUCT_BYTES = 2**25
"""Work area of the scalar products of pairs of rows."""
MAX_STEPS = 60
"""Limit on the steps of Noda's iteration; it is quadratic, and 5 to 10 are usual."""
BRACKET_TOL = 1e-12
"""Relative width at which the bounds on an eigenvalue are as good as the rounding of a product allows."""


@with_shared_passages
def tree_penalty(
    method: Method,
    tree: Tree,
    *,
    alpha: float | Literal["auto"] = "auto",
    K: Any = None,
    share: float = AUTO_SHARE,
    repair: Repair = "error",
) -> Penalty:
    """The penalty of a method.

    Parameters
    ----------
    <method_and_tree>
    alpha, share, repair
        Orthogonal transfer only; see `OrthogonalPenalty.of_tree`.
    K : ndarray or sparse array of shape (m, m), optional
        Replaces eq. (6); `alpha` is then not used.

    Returns
    -------
    OrthogonalPenalty or QuadraticPenalty
        Both have `value`, `value_and_subgradient`, `modulus` and `paths`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_penalties import tree_penalty
    >>> tree_penalty("flat", Tree(np.array([-1, 0, 0]))).value(np.array([[3.0], [4.0]]))
    12.5
    """
    if method == "orthogonal":
        if K is not None:
            return OrthogonalPenalty.of_matrix(tree, K, share=share, repair=repair)
        return OrthogonalPenalty.of_tree(tree, alpha, share=share, repair=repair)
    couplings = {"similarity": similarity_coupling, "tree-loss": tree_loss_coupling}
    return QuadraticPenalty(*couplings.get(method, identity_coupling)(AncestorPaths.of(tree.parent)))


@dataclass(frozen=True, eq=False)
class OrthogonalPenalty:
    """Ω for one tree and a K whose comparison matrix is positive semidefinite; build it with `of_tree` or `of_matrix`.

    If K̄ is singular, or nearly so, the solvers get a K with shorter entries off the diagonal. Its Ω is strongly convex
    and below the true one, so a lower bound for it also holds for the true problem, and `beyond` is the difference.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,)
        Weights of the diagonal and of pairs of nodes, such that the comparison matrix is positive definite.
    alpha : float or None
        α of eq. (6), if K has that form.
    missing : float
        What the entries off the diagonal lack, relative to what they have; 0 unless the comparison matrix is singular.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_penalties import OrthogonalPenalty
    >>> penalty = OrthogonalPenalty.of_tree(Tree(np.array([-1, 0, 1])), alpha=1.0)  # K = [[2, 1], [1, 1]]
    >>> penalty.value(np.array([[1.0, 0.0], [-3.0, 0.0]])), penalty.value(np.array([[1.0, 0.0], [0.0, 3.0]]))
    (8.5, 5.5)
    >>> penalty.value_and_subgradient(np.array([[1.0, 0.0], [-3.0, 0.0]]))[1]
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
            A number of at least 0, or "auto": `share` · α*, but at most 1.
        share : float
            Share of α*; above 0 and below 1.
        repair : {"error", "alpha", "diagonal"}
            If α is above α*: raise an error, lower α to `share` · α*, or raise the diagonal. The last two warn.
        """
        paths = AncestorPaths.of(tree.parent)
        chosen = choose_alpha(paths, alpha, share=share, repair=repair)
        K = orthogonal_matrix(paths, chosen)
        if alpha == "auto":
            return cls(paths, K, chosen)
        return cls._definite(paths, repaired_matrix(paths, K, share=share, repair=repair), chosen)

    @classmethod
    def of_matrix(cls, tree: Tree, K: Any, *, share: float = AUTO_SHARE, repair: Repair = "error") -> OrthogonalPenalty:
        """K as given, dense or sparse of shape (m, m), row r for node r + 1; see `matrix_on_paths`.

        Parameters
        ----------
        tree : Tree
            The tree; its root has no weights.
        K : ndarray or sparse array of shape (m, m)
            The matrix.
        share, repair
            As in `of_tree`; "alpha" scales the entries off the diagonal.
        """
        paths, values = matrix_on_paths(AncestorPaths.of(tree.parent), K)
        return cls._definite(paths, repaired_matrix(paths, values, share=share, repair=repair))

    @classmethod
    def _definite(cls, paths: AncestorPaths, K: Floats, alpha: float | None = None) -> OrthogonalPenalty:
        """The penalty of K, with shorter entries off the diagonal if the comparison matrix is singular."""
        smallest = smallest_eigenvalue(paths, comparison_matrix(paths, K)).lower
        if smallest >= NEARLY_SINGULAR * float(np.abs(K).max()):
            return cls(paths, K, alpha)
        return cls(paths, np.where(paths.is_diagonal, K, (1.0 - SHORTER) * K), alpha, SHORTER / (1.0 - SHORTER))

    @cached_property
    def modulus(self) -> float:
        """A modulus of strong convexity of Ω: the lower bound on λ_min of the comparison matrix."""
        return smallest_eigenvalue(self.paths, comparison_matrix(self.paths, self.K)).lower

    @cached_property
    def weight(self) -> Floats:
        """Shape (n_entries,): the weight of an entry in Ω, ½K_ii on the diagonal and K_ij for a pair."""
        return np.where(self.paths.is_diagonal, 0.5, 1.0 + self.missing) * self.K

    def value(self, W: Any) -> float:
        """Ω(W) for W of shape (m, n), dense or CSR."""
        return self.value_of_products(pair_products(self.paths, W))

    def value_of_products(self, products: Floats) -> float:
        """Ω from the scalar products w_iᵀ w_j on the layout."""
        return float(self.weight @ np.abs(products))

    def value_and_subgradient(self, W: Any) -> tuple[float, Any]:
        """Ω(W) and the subgradient (K ∘ S) W of Theorem 4, shape (m, n), with S_ij = sign(w_iᵀ w_j) and sign 0 = 0."""
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
        """Ω minus the Ω of K as the solvers have it; 0 unless the comparison matrix is singular."""
        return self.missing * float((self.K * ~self.paths.is_diagonal) @ np.abs(products)) if self.missing else 0.0


@dataclass(frozen=True, eq=False)
class QuadraticPenalty:
    """½ tr(Wᵀ M W) for M positive definite on ancestor pairs, without positive entries off the diagonal.

    Parameters
    ----------
    M : ndarray of float64 of shape (n_entries,)
        The matrix on the layout of `factor`.
    factor : TreeFactor
        Its factor.
    """

    M: Floats
    factor: TreeFactor

    @property
    def paths(self) -> AncestorPaths:
        """The layout of ancestor pairs."""
        return self.factor.paths

    @cached_property
    def matrix(self) -> Any:
        """M as a CSR array of shape (m, m)."""
        matrix = self.paths.symmetric(self.M)
        matrix.eliminate_zeros()
        return matrix

    @cached_property
    def modulus(self) -> float:
        """The lower bound on λ_min(M)."""
        return smallest_eigenvalue(self.paths, self.M).lower

    def value(self, W: Any) -> float:
        """½ tr(Wᵀ M W) for W of shape (m, n), dense or CSR."""
        return self.value_and_subgradient(W)[0]

    def value_and_subgradient(self, W: Any) -> tuple[float, Any]:
        """½ tr(Wᵀ M W) and the gradient M W, shape (m, n)."""
        image = self.matrix @ W
        return 0.5 * float(W.multiply(image).sum() if sp.issparse(W) else np.vdot(W, image)), image


Penalty = OrthogonalPenalty | QuadraticPenalty


def pair_products(paths: AncestorPaths, W: Any) -> Floats:
    """w_iᵀ w_j on the layout, shape (n_entries,), for W of shape (m, n), dense or sparse."""
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


def subtree_penalties(penalty: OrthogonalPenalty) -> Iterator[tuple[Ints, Ints, OrthogonalPenalty]]:
    """The rows below each top node, their entries on the layout, and the penalty of these rows alone."""
    paths = penalty.paths
    rows_by_top = np.argsort(paths.top, kind="stable")
    entries_by_top = np.argsort(paths.top[paths.descendant], kind="stable")
    n_tops = paths.level_indptr[1] if paths.height else 0
    row_ends = np.cumsum(np.bincount(paths.top, minlength=n_tops))
    entry_ends = np.cumsum(np.bincount(paths.top[paths.descendant], minlength=n_tops))
    for rows, entries in zip(
        np.split(rows_by_top, row_ends[:-1]), np.split(entries_by_top, entry_ends[:-1]), strict=True
    ):
        # Ascending rows stay breadth first; the top node becomes row 0, node 1 of a separate tree.
        parent = np.searchsorted(rows, paths.parent[rows[1:]]) + 1
        below = AncestorPaths.of(np.concatenate([[-1, 0], parent]))
        yield rows, entries, OrthogonalPenalty(below, penalty.K[entries])


def matrix_on_paths(paths: AncestorPaths, K: Any) -> tuple[AncestorPaths, Floats]:
    """A matrix given by the user on a layout, after a check that it can be a K.

    Parameters
    ----------
    paths : AncestorPaths
        The layout of the tree.
    K : ndarray or sparse array of shape (m, m)
        Row r is node r + 1. Symmetric, nonnegative, finite, and positive on the diagonal.

    Returns
    -------
    tuple of (AncestorPaths, ndarray of float64 of shape (n_entries,))
        The layout, a chain if K joins nodes that are not ancestor and descendant; and the values.

    Raises
    ------
    DataFormatError
        Naming the problem and the entry.
    """
    matrix = sp.coo_array(K if sp.issparse(K) else np.asarray(K, dtype=np.float64))
    if matrix.shape != (paths.m, paths.m):
        raise DataFormatError(
            f"K has shape {matrix.shape}, but the tree has {paths.m} nodes below its root",
            remedy=f"pass a matrix of shape ({paths.m}, {paths.m}), where row r is for node r + 1",
        )
    matrix.sum_duplicates()
    i, j, value = matrix.row.astype(np.int64), matrix.col.astype(np.int64), matrix.data.astype(np.float64)
    _refuse(~np.isfinite(value), i, j, value, "is not finite", "use finite numbers")
    _refuse(value < 0.0, i, j, value, "is negative", "use nonnegative weights")
    above, below = np.minimum(i, j), np.maximum(i, j)  # parents come first
    related = paths.path_nodes[np.minimum(paths.entries(above, below), paths.path_indptr[below + 1] - 1)] == above
    if (value[~related] != 0.0).any():
        paths, related = AncestorPaths.of(np.arange(-1, paths.m)), np.ones(len(value), dtype=bool)
    i, j, value, above, below = (array[related] for array in (i, j, value, above, below))
    halves = np.zeros((2, paths.n_entries))
    halves[(i == below).astype(np.int64), paths.entries(above, below)] = value  # (ancestor, row), and (row, ancestor)
    halves[0, paths.is_diagonal] = halves[1, paths.is_diagonal]
    differs = np.abs(halves[0] - halves[1]) > 1e-12 * np.abs(halves).max(axis=0)
    _refuse(
        differs, paths.descendant, paths.path_nodes, halves[1], "differs from its transposed entry", "make K symmetric"
    )
    empty = paths.is_diagonal & (halves[1] == 0.0)
    remedy = "use a positive diagonal, because the weights of a node without a penalty are unbounded"
    _refuse(empty, paths.descendant, paths.path_nodes, halves[1], "is not positive", remedy)
    return paths, halves[1]


def _refuse(bad: npt.NDArray[np.bool_], i: Ints, j: Ints, value: Floats, problem: str, remedy: str) -> None:
    """Raise for the first bad entry, if there is one."""
    if bad.any():
        first = int(np.argmax(bad))
        raise DataFormatError(f"K[{i[first]}, {j[first]}] = {value[first]:g} {problem}", remedy=remedy)


def choose_alpha(
    paths: AncestorPaths, alpha: float | Literal["auto"], *, share: float = AUTO_SHARE, repair: Repair = "error"
) -> float:
    """The α of eq. (6) to use.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    alpha, share
        As in `OrthogonalPenalty.of_tree`.
    repair : {"error", "alpha", "diagonal"}
        If the value is too large: raise an error, use `share` · α* instead and warn, or leave it, because the diagonal
        will be raised (`repaired_matrix`).

    Raises
    ------
    NotPositiveDefiniteError
        If the value is too large; the message names α*.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import choose_alpha
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1, 2]))  # three levels
    >>> round(choose_alpha(paths, "auto"), 3)
    0.791
    >>> choose_alpha(paths, 1.0)
    Traceback (most recent call last):
    ...
    widemargin.exceptions.NotPositiveDefiniteError: alpha=1 is too large for this tree: the problem is convex only up to
    α* = 0.879; use alpha="auto" (0.791 here), a smaller alpha, or repair="alpha" or "diagonal"
    """
    if alpha != "auto" and (repair == "diagonal" or _is_convex(paths, orthogonal_matrix(paths, alpha))):
        return float(alpha)
    largest = largest_alpha(paths).lower
    automatic = min(1.0, share * largest)
    if alpha == "auto":
        return automatic
    if repair == "alpha":
        message = (
            f"alpha={alpha:g} is not below α* = {largest:.4g}, the limit for this tree; {automatic:.4g} is used instead"
        )
        warnings.warn(message, UserWarning, stacklevel=3)
        return automatic
    raise NotPositiveDefiniteError(
        f"alpha={alpha:g} is too large for this tree: the problem is convex only up to α* = {largest:.3g}; use "
        f'alpha="auto" ({automatic:.3g} here), a smaller alpha, or repair="alpha" or "diagonal"'
    )


def repaired_matrix(paths: AncestorPaths, K: Floats, *, share: float = AUTO_SHARE, repair: Repair = "error") -> Floats:
    """K itself if its comparison matrix is positive semidefinite; otherwise an error, or a similar K and a warning.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,)
        Nonnegative with a positive diagonal.
    share : float
        Above 0 and below 1.
    repair : {"error", "alpha", "diagonal"}
        "alpha" multiplies the entries off the diagonal by `share` · α*. "diagonal" adds one number to the diagonal such
        that λ_min of the comparison matrix is (1 − share) · min K_ii, the least that the other repair leaves.

    Returns
    -------
    ndarray of float64 of shape (n_entries,)
        The matrix.

    Raises
    ------
    NotPositiveDefiniteError
        If the comparison matrix is not positive semidefinite; the message names α*.
    """
    if _is_convex(paths, K):
        return K
    largest, refused = largest_alpha(paths, K).lower, "the comparison matrix of K is not positive definite"
    if repair == "alpha":
        factor = share * largest
        warnings.warn(f"{refused}; the off-diagonal entries are scaled by {factor:.4g}", UserWarning, stacklevel=3)
        return np.where(paths.is_diagonal, K, factor * K)
    if repair == "diagonal":
        smallest = smallest_eigenvalue(paths, comparison_matrix(paths, K)).lower
        more = (1.0 - share) * K[paths.is_diagonal].min() - smallest
        warnings.warn(f"{refused}; {more:.4g} is added to the diagonal", UserWarning, stacklevel=3)
        return np.where(paths.is_diagonal, K + more, K)
    raise NotPositiveDefiniteError(
        "the comparison matrix of K (K_ii on the diagonal, −|K_ij| off it) is not positive semidefinite, so the "
        "problem is not convex if there are as many features as nodes; scale the off-diagonal entries by a factor of "
        f"at most α* = {largest:.3g}, or raise the diagonal"
    )


def _is_convex(paths: AncestorPaths, K: Floats) -> bool:
    """Whether the comparison matrix is positive semidefinite up to rounding: Theorem 1."""
    comparison = comparison_matrix(paths, K)
    if factorize(paths, comparison).is_positive_definite:
        return True
    return smallest_eigenvalue(paths, comparison).lower >= -SINGULAR * float(np.abs(K).max())


def orthogonal_matrix(paths: AncestorPaths, alpha: float) -> Floats:
    """K of eq. (6) on the layout, shape (n_entries,)."""
    K = np.full(paths.n_entries, float(alpha))
    K[paths.is_diagonal] = np.bincount(paths.path_nodes, minlength=paths.m)
    return K


def comparison_matrix(paths: AncestorPaths, K: Floats) -> Floats:
    """K̄ on the layout of K: the same diagonal, −|K_ij| off it."""
    return np.where(paths.is_diagonal, K, -np.abs(K))


class Bracket(NamedTuple):
    """A number between two proven bounds."""

    lower: float
    upper: float


def largest_alpha(paths: AncestorPaths, K: Floats | None = None) -> Bracket:
    """α*: the factor of the entries off the diagonal below which the comparison matrix is positive definite.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,), optional
        Diagonal, and entries to be multiplied; by default those of eq. (6) with α = 1.

    Returns
    -------
    Bracket
        lower ≤ α* ≤ upper, by the bounds of Collatz and Wielandt and of Rayleigh; ∞ if K is diagonal.
    """
    K = orthogonal_matrix(paths, 1.0) if K is None else K
    root = np.sqrt(K[paths.is_diagonal])
    coupling = -np.abs(K) / (root[paths.descendant] * root[paths.path_nodes])
    low, high = smallest_eigenvalue(paths, np.where(paths.is_diagonal, 0.0, coupling))
    return Bracket(-1.0 / low if low < 0.0 else np.inf, -1.0 / high if high < 0.0 else np.inf)


def smallest_eigenvalue(paths: AncestorPaths, A: Floats) -> Bracket:
    """Bounds on the smallest eigenvalue of a symmetric matrix without positive entries off the diagonal.

    For such an A and any v > 0

        min_i (Av)_i / v_i  ≤  λ_min(A)  ≤  vᵀAv / vᵀv,

    and the iteration of Noda (Numerische Mathematik 17, 1971), (A − σI) u = v with σ the lower bound, v ← u, raises the
    lower bound to λ_min quadratically. A − σI stays positive definite, so a step is one elimination without fill-in.
    All components of A are processed at once, each with its own bounds. The lower bound allows for the rounding of Av.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    A : ndarray of float64 of shape (n_entries,)
        The matrix; entries off the diagonal are at most 0, the diagonal is arbitrary.

    Returns
    -------
    Bracket
        lower ≤ λ_min(A) ≤ upper.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import smallest_eigenvalue
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> bounds = smallest_eigenvalue(paths, np.array([2.0, 2.0, -1.0]))  # [[2, −1], [−1, 2]]
    >>> round(bounds.lower, 9), round(bounds.upper, 9)
    (1.0, 1.0)
    """
    joins = A != 0.0
    starts = np.append(0, np.cumsum(joins))[paths.path_indptr]
    pairs = sp.csr_array((np.ones(starts[-1]), paths.path_nodes[joins], starts), shape=(paths.m, paths.m))
    n_components, component = connected_components(pairs, directed=False)
    order = np.argsort(component, kind="stable")
    first = np.searchsorted(component[order], np.arange(n_components))
    # A sum of k products is off by at most k units of rounding of the sum of their absolute values.
    off_diagonal = np.where(paths.is_diagonal, 0.0, A)
    n_terms = np.diff(starts) + np.bincount(paths.path_nodes[joins], minlength=paths.m) + 2.0
    unit = n_terms * np.finfo(np.float64).eps
    lower, upper = np.full(n_components, -np.inf), np.full(n_components, np.inf)
    active, v, far = np.ones(n_components, dtype=bool), np.ones(paths.m), float(np.abs(A).max()) + 1.0
    for step in range(MAX_STEPS + 1):
        image = paths.down(A, v) + paths.up(off_diagonal, v)
        magnitude = paths.down(np.abs(A), v) - paths.up(off_diagonal, v)  # |A| v
        quotient = (image - unit * magnitude) / v
        low = np.minimum.reduceat(quotient[order], first)
        high = np.add.reduceat((v * image)[order], first) / np.add.reduceat((v * v)[order], first)
        rises = low > lower
        lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        upper = np.maximum(lower, upper)  # they may cross by rounding
        active &= rises & (upper - lower > BRACKET_TOL * np.abs(upper))
        if step == MAX_STEPS or not active.any():
            break
        # A component that is done gets a shift far below, which keeps its elimination sound.
        shift = np.where(active, lower, lower - far)[component]
        shifted = np.where(paths.is_diagonal, A - shift[paths.descendant], A)
        with np.errstate(all="ignore"):
            u = factorize(paths, shifted).solve(v)
            u /= np.maximum.reduceat(u[order], first)[component]
        # If u is not positive, the shift is the eigenvalue up to rounding.
        active[component[~(np.isfinite(u) & (u > 0.0))]] = False
        v = np.where(active[component], u, v)
    return Bracket(float(lower.min()), float(upper.min()))
