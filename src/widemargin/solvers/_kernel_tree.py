"""Points of the joint dual of a tree with a kernel: what dual variables and a coupling give, in float64.

    B (m × n): column k = Σ_g γ_g Σ_c a_gc κ_c (e_i − e_j) over the blocks g of example k,    M = L diag(d) Lᵀ
    Z = L⁻¹ B K,    scores = M⁻¹ B K = L⁻ᵀ diag(d)⁻¹ Z,
    gram = L⁻¹ B K Bᵀ L⁻ᵀ,    W Wᵀ = L⁻ᵀ diag(d)⁻¹ gram diag(d)⁻¹ L⁻¹

With Σ_g γ_g Σ_c a_gc ρ_c as gain, D = gain − ½ Σ_i gram_ii / d_i. Memory: the dual variables that are not 0, and arrays
of m × m and, where scores are made, m × n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.kernels import not_positive_semidefinite
from widemargin.problems.orthogonal import OrthogonalPenalty
from widemargin.problems.orthogonal_conjugate import subtree_penalties
from widemargin.problems.tree_losses import TreeLosses
from widemargin.reference.joint_dual import joint_proposal
from widemargin.reference.tree_factor import TreeFactor

__all__ = ["DualPoint", "SignSteps", "feasible", "weight_products"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CURVATURE_TOLERANCE = 1e-9  # of the terms of bᵀKb, for what rounding may make negative
SMALL_SUBTREE = 150  # nodes, up to which S is changed one entry at a time; as in cpp/tree_coupling.hpp
LARGE_STEPS = 4  # of a large subtree in one step
SHORTER = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of a step in all entries at once, until it gains


def feasible(dual: sp.csr_array) -> sp.csr_array:
    """Dual variables of at least 0 whose sums by block are at most 1, where rounding left them elsewhere."""
    values = np.maximum(dual.data, 0.0)
    sums = np.bincount(_blocks_of(dual), weights=values, minlength=dual.shape[0])
    scale = np.where(sums > 1.0, 1.0 / (np.maximum(sums, 1.0) * (1.0 + 1e-15)), 1.0)
    return sp.csr_array((values * scale[_blocks_of(dual)], dual.indices, dual.indptr), shape=dual.shape)


class DualPoint:
    """Dual variables as the constraints they belong to.

    Parameters
    ----------
    losses : TreeLosses
        The blocks.
    dual : csr_array of shape (n_blocks, m)
        Dual variables by block and loser.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_losses import tree_losses
    >>> from widemargin.solvers._kernel_tree import DualPoint
    >>> losses = tree_losses("orthogonal", Tree(np.array([-1, 0, 0, 1, 1])), np.array([3]))
    >>> point = DualPoint(losses, sp.csr_array(np.array([[0.0, 0.2, 0.0, 0.5]])))
    >>> point.gain, point.B.toarray().ravel()
    (0.7, array([ 0.2, -0.2,  0.5, -0.5]))
    """

    def __init__(self, losses: TreeLosses, dual: sp.csr_array) -> None:
        paths = losses.paths
        self.losses, self.block = losses, _blocks_of(dual)
        self.loser, self.value = dual.indices.astype(np.int64), dual.data
        node = losses.node[self.block]
        self.rho: Floats = np.ones(len(node))
        self.kappa = self.rho
        if losses.is_output is None:  # the winner is the node of the path that is the loser's sibling
            self.winner = paths.path_nodes[paths.path_indptr[node] + paths.depth[node] - paths.depth[self.loser]]
        else:
            self.winner = node
        if losses.rescaling != "none":
            self.rho = (0.5 * losses.tree.distance(node + 1, self.loser + 1)).astype(np.float64)
            self.kappa = self.rho if losses.rescaling == "slack" else self.kappa
        weight = losses.cost[self.block] * self.value
        self.gain = float(weight @ self.rho)
        row, mass = losses.row[self.block], weight * self.kappa
        entries = np.concatenate([mass, -mass]), (np.concatenate([self.winner, self.loser]), np.concatenate([row, row]))
        self.B = sp.csr_array(sp.coo_array(entries, shape=(paths.m, losses.n_samples)))

    def gram(self, factor: TreeFactor, Z: Floats) -> Floats:
        """L⁻¹ B K Bᵀ L⁻ᵀ, shape (m, m), from Z = L⁻¹ B K."""
        product: Floats = factor.forward(self.B) @ Z.T
        return 0.5 * (product + product.T)

    def check_curvature(self, F: Floats) -> None:
        """Refuse F = B K of a kernel under which a row of B has a negative squared norm."""
        terms = self.B.multiply(F).tocsr()
        sums, sizes = np.asarray(terms.sum(axis=1)).ravel(), np.asarray(abs(terms).sum(axis=1)).ravel()
        if (sums < -CURVATURE_TOLERANCE * sizes).any():
            raise not_positive_semidefinite(
                f"a linear combination of its columns has the squared norm {sums.min():.3g}"
            )

    def block_gaps(self, scores: Floats, loss: Floats) -> Floats:
        """γ_g (loss_g − Σ_c a_gc slack_c), shape (n_blocks,), for scores of shape (m, n)."""
        row = self.losses.row[self.block]
        slack = self.rho - self.kappa * (scores[self.winner, row] - scores[self.loser, row])
        kept = np.bincount(self.block, weights=self.value * slack, minlength=self.losses.n_blocks)
        return self.losses.cost * (loss - kept)


def weight_products(factor: TreeFactor, gram: Floats) -> Floats:
    """w_iᵀw_j on the layout."""
    G = factor.backward(factor.backward(gram).T)
    products: Floats = G[factor.paths.descendant, factor.paths.path_nodes]
    return products


class SignSteps:
    """Steps in S with the dual variables fixed, one subtree of a top node after another.

    Small subtrees: exact steps in one entry at a time. Large ones: the exact steps of all entries at once, each as if
    alone, shortened until they gain.
    """

    def __init__(self, penalty: OrthogonalPenalty) -> None:
        self.parts = [part for part in subtree_penalties(penalty) if len(part[0]) > 1]

    def improve(self, S: Floats, gram: Floats, target: float) -> Floats:
        """S with a smaller gap of the pairs, the steps ending when it seems to be at most `target`."""
        after, share = S.copy(), target / max(len(self.parts), 1)
        for rows, entries, part in self.parts:
            inside, signs = np.ascontiguousarray(gram[np.ix_(rows, rows)]), after[entries]
            if len(rows) <= SMALL_SUBTREE:
                start, nodes = part.paths.path_indptr, part.paths.path_nodes.astype(np.int32)
                _core.sweep_signs(start, nodes, part.K, inside, share, signs)
            else:
                signs = _steps_of_all(part, signs, inside, share)
            after[entries] = signs
        return after


def _steps_of_all(penalty: OrthogonalPenalty, S: Floats, gram: Floats, target: float) -> Floats:
    """A few steps in all entries of a large subtree."""
    factor = penalty.factor(S)
    L = penalty.paths.upper(factor.L)
    Q = L @ (L @ gram).T
    for _ in range(LARGE_STEPS):
        factor, inside = _factor_and_gram(penalty, S, Q)
        if penalty.excess(S, weight_products(factor, inside)) <= target:
            break
        direction, value = joint_proposal(penalty.paths, penalty.K, S, Q) - S, np.diag(inside) @ (1.0 / factor.pivots)
        for share in SHORTER:
            factor, inside = _factor_and_gram(penalty, S + share * direction, Q)
            if np.diag(inside) @ (1.0 / factor.pivots) < value:
                S = S + share * direction
                break
        else:
            break
    return S


def _factor_and_gram(penalty: OrthogonalPenalty, S: Floats, Q: Floats) -> tuple[TreeFactor, Floats]:
    factor = penalty.factor(S)
    return factor, factor.forward(factor.forward(Q).T)


def _blocks_of(dual: Any) -> Ints:
    blocks: Ints = np.repeat(np.arange(dual.shape[0]), np.diff(dual.indptr))
    return blocks
