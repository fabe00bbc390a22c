"""The penalties of the five ways to train on a tree, with one face: value, subgradient, modulus.

    orthogonal   ½ Σ_ij K_ij |w_iᵀ w_j|                          see `OrthogonalPenalty`
    per-node     ½ Σ_i ‖w_i‖²                                    M = I; flat training has the same
    similarity   ½ Σ_i ‖w_i‖² + ½ Σ_i ‖w_i − w_p(i)‖²            M = I + forest Laplacian; second sum without tops
    tree-loss    ½ Σ_i ‖w_i − w_p(i)‖², w_p = 0 for top nodes    M = (I − Par)ᵀ(I − Par)

All but the first are ½ tr(Wᵀ M W) with M on ancestor pairs, factored in closed form. Row r of W is node r + 1 of the
tree. Flat training leaves the weights of nodes that are no outputs at zero.

Positive definiteness on ancestor pairs: the test by elimination, and the smallest eigenvalue between two bounds.

    K̄_ii = K_ii,   K̄_ij = −|K_ij|        (comparison matrix)

K̄ positive definite makes K ∘ S positive definite for all symmetric S with S_ii = 1 and |S_ij| ≤ 1, and the penalty
½ Σ K_ij |w_iᵀ w_j| strongly convex with modulus λ_min(K̄).

For a matrix A without positive entries off the diagonal and any v > 0

    min_i (Av)_i / v_i  ≤  λ_min(A)  ≤  vᵀAv / vᵀv,

and the iteration of Noda (Numerische Mathematik 17, 1971), (A − σI) u = v with σ the lower bound, v ← u, raises the
lower bound to λ_min quadratically. A − σI is positive definite on the way, so that a step is one elimination without
fill. All components of A go at once, each with bounds of its own. The lower bound counts the rounding of Av in. Memory:
a few numbers an ancestor pair.

The weight α of ancestor pairs in K of orthogonal transfer: how large it may be, and the choice of it.

    K = diag(d) + αN,   d_i = number of nodes below node i, itself included,   N_ij = 1 for ancestor pairs      (6)

Zhou, Xiao and Wu, "Hierarchical Classification via Orthogonal Transfer", ICML 2011. The problem is strongly convex if
and only if α < α* = 1/λ_max(d^(−½) N d^(−½)). With two levels α* = min √(1 + 1/children) over the top nodes, so that
α = 1 will do; with three or more levels α* < 1 always, and α = 1 is never allowed. α = 1/(levels − 1) always is, for
two or more levels. A matrix K given by the user is treated alike: d is its diagonal, N the rest, α = 1.

The penalty of orthogonal transfer, which asks a node's weights to be orthogonal to those of its ancestors.

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

The conjugate of the penalty of orthogonal transfer, by minimisation over a box.

    Ω*(B) = max_W ⟨B, W⟩ − Ω(W) = min_S ½ tr(Bᵀ M(S)⁻¹ B),   M(S) = K ∘ S,   S_ii = 1, |S_ij| ≤ 1 on ancestor pairs

S ↦ tr(Bᵀ M(S)⁻¹ B) is convex, and M(S) is block diagonal over the subtrees of the top nodes, each of which is a problem
of its own, solved by L-BFGS-B with values and gradients from the tree algebra; in subtrees of up to `COORDINATE_ROWS`
nodes exact steps in one S_ij at a time follow, on the dense inverse and G = W Wᵀ, until `tol` is reached. Any S gives
an upper bound u, and W = M(S)⁻¹B a lower one: the best multiple of W gives ⟨B, tW⟩ − Ω(tW) = u²/Ω(W). Memory: a few
copies of a subtree's rows of B, and three b × b arrays for a small subtree of b nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components

from widemargin.exceptions import DataFormatError, NotPositiveDefiniteError
from widemargin.labels.tree import Tree
from widemargin.problems.tree_factor import (
    AncestorPaths,
    TreeFactor,
    factorize,
    identity_factor,
    similarity_factor,
    similarity_matrix,
    tree_loss_factor,
    tree_loss_matrix,
)

__all__ = [
    "METHODS",
    "Bracket",
    "ConjugateBounds",
    "Method",
    "OrthogonalPenalty",
    "QuadraticPenalty",
    "Repair",
    "TreePenalty",
    "choose_alpha",
    "comparison_matrix",
    "conjugate",
    "is_convex",
    "is_positive_definite",
    "largest_alpha",
    "matrix_on_paths",
    "orthogonal_matrix",
    "pair_products",
    "repaired_matrix",
    "smallest_eigenvalue",
    "subtree_penalties",
    "subtree_sizes",
    "tree_penalty",
]

Floats = npt.NDArray[np.float64]

MAX_STEPS = 60
"""Steps of the iteration at most; it is quadratic, and 5 to 10 are usual."""
BRACKET_TOL = 1e-12
"""Relative width at which the bounds are as good as the rounding of a product lets them be."""


class Bracket(NamedTuple):
    """A number between two bounds that hold for certain.

    Examples
    --------
    >>> from widemargin.problems.tree_penalties import Bracket
    >>> Bracket(lower=0.5, upper=0.75).lower
    0.5
    """

    lower: float
    upper: float


def comparison_matrix(paths: AncestorPaths, K: Floats) -> Floats:
    """K̄ on the layout of K: the diagonal as it is, −|K_ij| off it."""
    return np.where(paths.is_diagonal, K, -np.abs(K))


def is_positive_definite(paths: AncestorPaths, M: Floats) -> bool:
    """Whether a symmetric matrix on ancestor pairs is positive definite, by elimination leaves first: O(Σ depth²).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import is_positive_definite
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> is_positive_definite(paths, np.array([2.0, 1.0, 1.0])), is_positive_definite(paths, np.array([1.0, 1.0, 1.0]))
    (True, False)
    """
    return factorize(paths, M).is_positive_definite


def smallest_eigenvalue(paths: AncestorPaths, A: Floats) -> Bracket:
    """Bounds on the smallest eigenvalue of a symmetric matrix without positive entries off the diagonal.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    A : ndarray of float64 of shape (n_entries,)
        The matrix; entries off the diagonal are at most 0, the diagonal is free.

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
    iteration = _NodaIteration(paths, A)
    for _ in range(MAX_STEPS):
        if not iteration.step():
            break
    return Bracket(float(iteration.lower.min()), float(iteration.upper.min()))


class _NodaIteration:
    """Vectors and bounds of all components of A, and the step that brings the bounds together.

    Sets: `v` (m,), and by component `lower`, `upper` and `active`.
    """

    def __init__(self, paths: AncestorPaths, A: Floats) -> None:
        self.paths, self.A, self.matrix = paths, A, paths.symmetric(A)
        self.matrix.eliminate_zeros()
        n_components, self.component = connected_components(self.matrix, directed=False)
        self.order = np.argsort(self.component, kind="stable")
        self.starts = np.searchsorted(self.component[self.order], np.arange(n_components))
        # A sum of k products is off by at most k units of rounding of the sum of their absolute values.
        self.rounding = abs(self.matrix) * np.finfo(np.float64).eps
        self.n_terms = np.diff(self.matrix.indptr) + 2.0
        self.scale = float(np.abs(A).max())
        self.lower, self.upper = np.full(n_components, -np.inf), np.full(n_components, np.inf)
        self.active = np.ones(n_components, dtype=bool)
        self.v = np.ones(paths.m)
        self._improve_bounds()

    def step(self) -> bool:
        """Solve with the lower bounds as shifts; false when no bound can be improved."""
        if not self.active.any():
            return False
        # A component that is done gets a shift far below, so that the elimination is sound there.
        shift = np.where(self.active, self.lower, self.lower - self.scale - 1.0)[self.component]
        shifted = np.where(self.paths.is_diagonal, self.A - shift[self.paths.descendant], self.A)
        with np.errstate(all="ignore"):
            u = factorize(self.paths, shifted).solve(self.v)
            u /= self._by_component(np.maximum, u)[self.component]
        # Not a positive vector: the shift is the eigenvalue, up to rounding.
        self.active[self.component[~(np.isfinite(u) & (u > 0.0))]] = False
        self.v = np.where(self.active[self.component], u, self.v)
        self._improve_bounds()
        return True

    def _improve_bounds(self) -> None:
        """Both bounds from v; components whose lower bound no longer rises, or whose bounds have met, are done."""
        image, v = self.matrix @ self.v, self.v
        quotient = (image - self.n_terms * (self.rounding @ v)) / v
        lower = self._by_component(np.minimum, quotient)
        upper = self._by_component(np.add, v * image) / self._by_component(np.add, v * v)
        rises = lower > self.lower
        self.lower, self.upper = np.maximum(self.lower, lower), np.minimum(self.upper, upper)
        self.upper = np.maximum(self.lower, self.upper)  # they may cross by rounding
        self.active &= rises & (self.upper - self.lower > BRACKET_TOL * np.abs(self.upper))

    def _by_component(self, ufunc: np.ufunc, values: Floats) -> Floats:
        reduced: Floats = ufunc.reduceat(values[self.order], self.starts)
        return reduced


Repair = Literal["error", "alpha", "diagonal"]

AUTO_SHARE = 0.9
"""Share of α* that "auto" takes: near it the transfer is strong, and strong convexity is not lost."""
REPAIRS = ("error", "alpha", "diagonal")
SINGULAR = 1e-12
"""Of the largest entry: a smallest eigenvalue between minus this and 0 is taken for 0."""


def subtree_sizes(paths: AncestorPaths) -> Floats:
    """d of eq. (6): number of descendants of each row, itself included, shape (m,)."""
    return np.bincount(paths.path_nodes, minlength=paths.m).astype(np.float64)


def orthogonal_matrix(paths: AncestorPaths, alpha: float) -> Floats:
    """K of eq. (6) on the layout, shape (n_entries,).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import orthogonal_matrix
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> orthogonal_matrix(AncestorPaths.of(np.array([-1, 0, 1, 1])), alpha=0.5)
    array([3. , 1. , 0.5, 1. , 0.5])
    """
    K = np.full(paths.n_entries, float(alpha))
    K[paths.is_diagonal] = subtree_sizes(paths)
    return K


def largest_alpha(paths: AncestorPaths, K: Floats | None = None) -> Bracket:
    """α*: the factor of the entries off the diagonal below which the comparison matrix is positive definite.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,), optional
        Diagonal and entries that are multiplied; by default those of eq. (6) with α = 1.

    Returns
    -------
    Bracket
        lower ≤ α* ≤ upper, by the bounds of Collatz and Wielandt and of Rayleigh; ∞ where K is diagonal.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import largest_alpha
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> two_levels = AncestorPaths.of(np.array([-1, 0, 1, 1, 1]))
    >>> round(largest_alpha(two_levels).lower, 9) == round((1 + 1 / 3) ** 0.5, 9)
    True
    """
    K = orthogonal_matrix(paths, 1.0) if K is None else K
    root = np.sqrt(K[paths.is_diagonal])
    coupling = -np.abs(K) / (root[paths.descendant] * root[paths.path_nodes])
    bounds = smallest_eigenvalue(paths, np.where(paths.is_diagonal, 0.0, coupling))
    return Bracket(*(float(np.divide(-1.0, bound)) if bound < 0.0 else np.inf for bound in bounds))


def is_convex(paths: AncestorPaths, K: Floats) -> bool:
    """Whether the comparison matrix is positive semidefinite, up to rounding: Theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import is_convex
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> is_convex(paths, np.array([1.0, 4.0, 2.0])), is_convex(paths, np.array([1.0, 4.0, 2.001]))
    (True, False)
    """
    comparison = comparison_matrix(paths, K)
    if is_positive_definite(paths, comparison):
        return True
    return smallest_eigenvalue(paths, comparison).lower >= -SINGULAR * float(np.abs(K).max())


def choose_alpha(
    paths: AncestorPaths,
    alpha: float | Literal["auto"] = "auto",
    *,
    share: float = AUTO_SHARE,
    repair: Repair = "error",
) -> float:
    """The α of eq. (6) to use.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    alpha : float or "auto"
        A value at least 0, or `share` · α*, at most 1.
    share : float
        Above 0 and below 1.
    repair : {"error", "alpha", "diagonal"}
        What happens to a value that is too large: an error; `share` · α* instead, with a warning; or nothing here,
        because the diagonal will be raised (`repaired_matrix`).

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
    >>> round(choose_alpha(paths), 3)
    0.791
    >>> choose_alpha(paths, 1.0)
    Traceback (most recent call last):
    ...
    widemargin.exceptions.NotPositiveDefiniteError: alpha=1 is too large for this tree: the comparison matrix of K is
    positive definite only below α* = 0.879, and the problem not convex above; use alpha="auto" (here 0.791), a smaller
    alpha, or let it be repaired
    """
    if isinstance(alpha, str):
        if alpha != "auto":
            raise ValueError(f'alpha must be "auto" or a number at least 0, got {alpha!r}')
        return min(1.0, _check_share(share) * largest_alpha(paths).lower)
    if not (np.isfinite(alpha) and alpha >= 0.0):
        raise ValueError(f'alpha must be "auto" or a finite number at least 0, got {alpha!r}')
    _check_repair(repair)
    K = orthogonal_matrix(paths, alpha)
    if repair == "diagonal" or is_convex(paths, K):
        return float(alpha)
    largest, instead = largest_alpha(paths).lower, choose_alpha(paths, share=share)
    if repair == "alpha":
        _warn(f"alpha={alpha:g} is not below α* = {largest:.4g} of this tree; {instead:.4g} is used instead")
        return instead
    raise NotPositiveDefiniteError(
        f"alpha={alpha:g} is too large for this tree: the comparison matrix of K is positive definite only below "
        f'α* = {largest:.3g}, and the problem not convex above; use alpha="auto" (here {instead:.3g}), a smaller '
        "alpha, or let it be repaired"
    )


def repaired_matrix(paths: AncestorPaths, K: Floats, *, share: float = AUTO_SHARE, repair: Repair = "error") -> Floats:
    """K as it is if its comparison matrix is positive semidefinite, otherwise an error or a K near it, with a warning.

    Parameters
    ----------
    paths : AncestorPaths
        The layout.
    K : ndarray of float64 of shape (n_entries,)
        Nonnegative with a positive diagonal.
    share : float
        Above 0 and below 1.
    repair : {"error", "alpha", "diagonal"}
        "alpha" multiplies the entries off the diagonal by `share` · α*. "diagonal" adds one number to the diagonal,
        such that λ_min of the comparison matrix is (1 − share) · min K_ii, what the other repair leaves at least.

    Returns
    -------
    ndarray of float64 of shape (n_entries,)
        The matrix.

    Raises
    ------
    NotPositiveDefiniteError
        If the comparison matrix is not positive semidefinite; the message names α*.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import repaired_matrix
    >>> from widemargin.problems.tree_factor import AncestorPaths
    >>> paths = AncestorPaths.of(np.array([-1, 0, 1]))
    >>> repaired_matrix(paths, np.array([1.0, 1.0, 0.5]))
    array([1. , 1. , 0.5])
    """
    _check_share(share)
    _check_repair(repair)
    comparison = comparison_matrix(paths, K)
    if is_convex(paths, K):
        return K
    largest = largest_alpha(paths, K).lower
    if repair == "alpha":
        factor = share * largest
        _warn(
            f"the comparison matrix of K is not positive definite; entries off the diagonal are scaled by {factor:.4g}"
        )
        return np.where(paths.is_diagonal, K, factor * K)
    if repair == "diagonal":
        more = (1.0 - share) * K[paths.is_diagonal].min() - smallest_eigenvalue(paths, comparison).lower
        _warn(f"the comparison matrix of K is not positive definite; {more:.4g} is added to the diagonal")
        return np.where(paths.is_diagonal, K + more, K)
    raise NotPositiveDefiniteError(
        "the comparison matrix of K (K_ii on the diagonal, −|K_ij| off it) is not positive semidefinite: with as many "
        "features as nodes the problem is not convex; scale the entries off the diagonal by a factor of at most "
        f"α* = {largest:.3g}, or raise the diagonal"
    )


def _check_share(share: float) -> float:
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be above 0 and below 1, got {share!r}")
    return share


def _check_repair(repair: str) -> None:
    if repair not in REPAIRS:
        raise ValueError(f"repair must be one of {REPAIRS}, got {repair!r}")


def _warn(message: str) -> None:
    """Warn where the penalty is made."""
    warnings.warn(message, UserWarning, stacklevel=4)


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
    >>> from widemargin.problems.tree_penalties import OrthogonalPenalty
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
    >>> from widemargin.problems.tree_penalties import pair_products
    >>> from widemargin.problems.tree_factor import AncestorPaths
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
    >>> from widemargin.problems.tree_penalties import matrix_on_paths
    >>> from widemargin.problems.tree_factor import AncestorPaths
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


Method = Literal["orthogonal", "per-node", "similarity", "tree-loss", "flat"]
METHODS: tuple[str, ...] = get_args(Method)


class TreePenalty(Protocol):
    """What a solver sees of a penalty: a strongly convex function of W of shape (m, n), dense or CSR."""

    @property
    def paths(self) -> AncestorPaths:
        """The layout of ancestor pairs."""

    @property
    def modulus(self) -> float:
        """A modulus of strong convexity, positive."""

    def value(self, W: Any) -> float:
        """The penalty at W."""

    def subgradient(self, W: Any) -> Any:
        """A subgradient at W, of its shape."""

    def value_and_subgradient(self, W: Any) -> tuple[float, Any]:
        """Both, for little more than the price of one."""


@dataclass(frozen=True, eq=False)
class QuadraticPenalty:
    """½ tr(Wᵀ M W) for M positive definite on ancestor pairs, without positive entries off the diagonal.

    Parameters
    ----------
    M : ndarray of float64 of shape (n_entries,)
        The matrix on the layout of `factor`.
    factor : TreeFactor
        Its factor.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_penalties import tree_penalty
    >>> penalty = tree_penalty("similarity", Tree(np.array([-1, 0, 1])))
    >>> penalty.value(np.array([[1.0], [3.0]]))  # ½ (1 + 9 + 4)
    7.0
    >>> penalty.subgradient(np.array([[1.0], [3.0]]))
    array([[-1.],
           [ 5.]])
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

    def subgradient(self, W: Any) -> Any:
        """The gradient M W, shape (m, n)."""
        return self.matrix @ W

    def value_and_subgradient(self, W: Any) -> tuple[float, Any]:
        """Both by one product."""
        image = self.matrix @ W
        return 0.5 * float(W.multiply(image).sum() if sp.issparse(W) else np.vdot(W, image)), image


def tree_penalty(
    method: Method,
    tree: Tree,
    *,
    alpha: float | Literal["auto"] = "auto",
    K: Any = None,
    share: float = AUTO_SHARE,
    repair: Repair = "error",
) -> OrthogonalPenalty | QuadraticPenalty:
    """The penalty of a method.

    Parameters
    ----------
    method : {"orthogonal", "per-node", "similarity", "tree-loss", "flat"}
        How to train.
    tree : Tree
        The tree; its root has no weights.
    alpha, share, repair
        Of orthogonal transfer; see `OrthogonalPenalty.of_tree`.
    K : ndarray or sparse array of shape (m, m), optional
        Instead of eq. (6); `alpha` is not used then.

    Returns
    -------
    OrthogonalPenalty or QuadraticPenalty
        Both are a `TreePenalty`.

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
    paths = AncestorPaths.of(tree.parent)
    if method == "similarity":
        return QuadraticPenalty(similarity_matrix(paths), similarity_factor(paths))
    if method == "tree-loss":
        return QuadraticPenalty(tree_loss_matrix(paths), tree_loss_factor(paths))
    if method in ("per-node", "flat"):
        return QuadraticPenalty(np.where(paths.is_diagonal, 1.0, 0.0), identity_factor(paths))
    raise ValueError(f"method must be one of {METHODS}, got {method!r}")


Ints = npt.NDArray[np.int64]

COORDINATE_ROWS = 150
"""Above this many nodes of a subtree a sweep of coordinate steps is slow: each changes a dense inverse."""
MAX_SWEEPS = 500
MAX_QUASI_NEWTON = 5000
VALUE_TOL = 1e-4
"""Relative change of the value at which L-BFGS-B stops, over `tol`: the error of W goes by the root of that of Ω*."""
SWEEPS_PER_CHECK = 2


class ConjugateBounds(NamedTuple):
    """Bounds lower ≤ Ω*(B) ≤ upper, and the S of the upper one on the layout.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.tree_penalties import ConjugateBounds
    >>> ConjugateBounds(lower=1.0, upper=1.0, S=np.ones(1)).upper
    1.0
    """

    lower: float
    upper: float
    S: Floats


def conjugate(penalty: OrthogonalPenalty, B: Any, *, tol: float = 1e-9) -> ConjugateBounds:
    """Ω*(B) between two bounds.

    Parameters
    ----------
    penalty : OrthogonalPenalty
        Ω.
    B : ndarray or sparse array of shape (m, n)
        The point.
    tol : float
        Relative distance of the bounds to reach. In subtrees of more than `COORDINATE_ROWS` nodes L-BFGS-B may stop
        before, at a distance of about 1e-6.

    Returns
    -------
    ConjugateBounds
        The bounds as reached, and S.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_penalties import OrthogonalPenalty
    >>> from widemargin.problems.tree_penalties import conjugate
    >>> penalty = OrthogonalPenalty.of_tree(Tree(np.array([-1, 0, 1])), alpha=1.0)
    >>> bounds = conjugate(penalty, np.array([[2.0, 0.0], [0.0, 1.0]]))  # orthogonal rows: as if K were diagonal
    >>> round(bounds.upper, 6), round(bounds.lower, 6)
    (1.5, 1.5)
    """
    B = sp.csr_array(B) if sp.issparse(B) else np.asarray(B, dtype=np.float64)
    S, lower, upper = np.where(penalty.paths.is_diagonal, 1.0, 0.0), 0.0, 0.0
    for rows, entries, part in subtree_penalties(penalty):
        found = _subtree_conjugate(part, B[rows], tol)
        S[entries] = found.S
        lower, upper = lower + found.lower, upper + found.upper
    return ConjugateBounds(lower, upper, S)


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
        # Ascending rows stay breadth first; the top node becomes row 0, node 1 of a tree of its own.
        parent = np.searchsorted(rows, paths.parent[rows[1:]]) + 1
        below = AncestorPaths.of(np.concatenate([[-1, 0], parent]))
        yield rows, entries, OrthogonalPenalty(below, penalty.K[entries])


def _subtree_conjugate(penalty: OrthogonalPenalty, B: Any, tol: float) -> ConjugateBounds:
    """The conjugate below one top node: quasi-Newton steps, and exact ones where these are not enough."""
    S = np.where(penalty.paths.is_diagonal, 1.0, 0.0)
    found = _bounds(penalty, B, S)
    if found.upper - found.lower > tol * found.upper:
        found = _by_quasi_newton(penalty, B, S, tol)
    if found.upper - found.lower > tol * found.upper and penalty.paths.m <= COORDINATE_ROWS:
        found = _by_coordinates(penalty, B, S, tol)
    return found


def _bounds(penalty: OrthogonalPenalty, B: Any, S: Floats) -> ConjugateBounds:
    """Both bounds at S."""
    factor = penalty.factor(S)
    Z = factor.forward(B)
    upper, value = factor.half_trace(Z), penalty.value(factor.backward(Z))
    return ConjugateBounds(upper * min(1.0, upper / value) if value > 0.0 else 0.0, upper, S)


def _by_coordinates(penalty: OrthogonalPenalty, B: Any, S: Floats, tol: float) -> ConjugateBounds:
    """Sweeps of exact steps; P and G are made anew for each two sweeps, against drift."""
    Q = B @ B.T
    Q = Q.toarray() if sp.issparse(Q) else Q
    found = _bounds(penalty, B, S)
    for _ in range(MAX_SWEEPS):
        P = penalty.factor(S).solve(np.eye(penalty.paths.m))
        G = P @ Q @ P
        for _ in range(SWEEPS_PER_CHECK):
            _sweep(penalty, S, P, G)
        found = _bounds(penalty, B, S)
        if found.upper - found.lower <= tol * found.upper:
            break
    return found


def _sweep(penalty: OrthogonalPenalty, S: Floats, P: Floats, G: Floats) -> None:
    """Minimise over each S_ij in turn, the others fixed; S, P = M⁻¹ and G = P Q P are updated in place."""
    paths = penalty.paths
    for entry in np.flatnonzero(~paths.is_diagonal & (penalty.K > 0.0)):
        pair = [paths.descendant[entry], paths.path_nodes[entry]]
        (p, q), (_, r) = P[np.ix_(pair, pair)].tolist()
        (g1, g12), (_, g2) = G[np.ix_(pair, pair)].tolist()
        h = r * g1 + p * g2
        if h <= 0.0:
            continue
        # The root of w_i(δ)ᵀ w_j(δ) = 0 for M_ij + δ, then clipped: the function is convex in one variable.
        z = 2.0 * g12 / (h + np.sqrt(max(h * h - 4.0 * p * r * g12 * g12, 0.0)))
        new = np.clip(S[entry] + z / (1.0 - z * q) / penalty.K[entry], -1.0, 1.0)
        delta, S[entry] = penalty.K[entry] * (new - S[entry]), new
        u = 1.0 + delta * q
        X = delta / (u * u - delta * delta * p * r) * np.array([[-delta * r, u], [u, -delta * p]])
        V = P[:, pair] @ X
        P -= V @ P[pair]
        G -= V @ G[pair]
        G -= G[:, pair] @ V.T


def _by_quasi_newton(penalty: OrthogonalPenalty, B: Any, S: Floats, tol: float) -> ConjugateBounds:
    """L-BFGS-B over the pairs; scaled by ‖B‖² so that its tolerances mean the same for every B."""
    free = np.flatnonzero(~penalty.paths.is_diagonal & (penalty.K > 0.0))
    scale = 1.0 / max(float((B * B).sum()), np.finfo(np.float64).tiny)

    def value_and_gradient(s: Floats) -> tuple[float, Floats]:
        S[free] = s
        factor = penalty.factor(S)
        Z = factor.forward(B)
        products = pair_products(penalty.paths, factor.backward(Z))
        return scale * factor.half_trace(Z), -scale * penalty.K[free] * products[free]

    options = {"ftol": VALUE_TOL * tol, "gtol": 0.0, "maxiter": MAX_QUASI_NEWTON, "maxfun": 2 * MAX_QUASI_NEWTON}
    found = minimize(
        value_and_gradient, S[free], jac=True, method="L-BFGS-B", bounds=[(-1.0, 1.0)] * len(free), options=options
    )
    S[free] = np.clip(found.x, -1.0, 1.0)
    return _bounds(penalty, B, S)
