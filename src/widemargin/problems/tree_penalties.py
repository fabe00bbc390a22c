"""The penalties of the five ways to train on a tree, with one face: value, subgradient, modulus.

    orthogonal   ½ Σ_ij K_ij |w_iᵀ w_j|                          see `OrthogonalPenalty`
    per-node     ½ Σ_i ‖w_i‖²                                    M = I; flat training has the same
    similarity   ½ Σ_i ‖w_i‖² + ½ Σ_i ‖w_i − w_p(i)‖²            M = I + forest Laplacian; second sum without tops
    tree-loss    ½ Σ_i ‖w_i − w_p(i)‖², w_p = 0 for top nodes    M = (I − Par)ᵀ(I − Par)

All but the first are ½ tr(Wᵀ M W) with M on ancestor pairs, factored in closed form. Row r of W is node r + 1 of the
tree. Flat training leaves the weights of nodes that are no outputs at zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.labels.tree import Tree
from widemargin.problems.alpha import AUTO_SHARE, Repair
from widemargin.problems.orthogonal import OrthogonalPenalty
from widemargin.problems.positive_definite import smallest_eigenvalue
from widemargin.reference.tree_factor import (
    AncestorPaths,
    TreeFactor,
    identity_factor,
    similarity_factor,
    similarity_matrix,
    tree_loss_factor,
    tree_loss_matrix,
)

__all__ = ["METHODS", "Method", "QuadraticPenalty", "TreePenalty", "tree_penalty"]

Floats = npt.NDArray[np.float64]
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
