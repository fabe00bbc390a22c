"""The compiled joint dual ascent as the solver sees it: data in, weights, bounds and dual variables out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.orthogonal import OrthogonalPenalty, pair_products
from widemargin.problems.sparse_weights import csr_of
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import QuadraticPenalty
from widemargin.reference.tree_factor import AncestorPaths, TreeFactor

__all__ = ["JointAscent", "problem_arrays", "rows_with_constant"]

SMALL_SUBTREE = 150
"""Nodes of a subtree above which updates of dense matrices cost more than passes over the vectors of the nodes."""
RESCALINGS = {"none": 0, "slack": 1, "margin": 2}
Penalty = OrthogonalPenalty | QuadraticPenalty


def rows_with_constant(X: Any, bias: float) -> Any:
    """X as csr_array of float32 or float64 with int32 columns and int64 starts, a constant last column if bias ≠ 0.

    Rows of float32 become float64 for a constant that float32 cannot hold: the certificate is for the one given.
    """
    single = X.dtype == np.float32 and float(np.float32(bias)) == bias
    dtype = np.float32 if single else np.float64
    rows = sp.csr_array(X, dtype=dtype)
    if bias != 0.0:
        column = sp.csr_array(np.full((rows.shape[0], 1), bias, dtype=dtype))
        rows = sp.hstack([rows, column], format="csr", dtype=dtype)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


class JointAscent:
    """The compiled solver in one precision.

    Parameters
    ----------
    rows : csr_array of shape (n_samples, n_features)
        The data, as `rows_with_constant` gives them.
    losses : TreeLosses
        The blocks of constraints.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The coupling of the nodes, learnt or fixed.
    dtype : float32 or float64
        Of the vectors during the ascent.
    seed, n_threads : int
        Of the order of visits; of all but the visits.
    small_subtree : int
        Nodes of a subtree up to which its coupling is improved on dense matrices.
    """

    def __init__(
        self,
        rows: Any,
        losses: TreeLosses,
        penalty: Penalty,
        dtype: npt.DTypeLike,
        seed: int,
        n_threads: int,
        small_subtree: int = SMALL_SUBTREE,
    ) -> None:
        self.rows, self.losses, self.penalty, self.dtype = rows, losses, penalty, np.dtype(dtype)
        learns = isinstance(penalty, OrthogonalPenalty)
        matrix = penalty.K if isinstance(penalty, OrthogonalPenalty) else penalty.M
        self.paths = losses.paths
        self.coupled = learns or bool(np.any(matrix[~self.paths.is_diagonal] != 0.0))
        self._problem = _core.TreeProblem(**problem_arrays(losses, self.paths, self.coupled))
        kind = _core.JointDual32 if self.dtype == np.float32 else _core.JointDual64
        self.core = kind(
            problem=self._problem,
            values=rows.data.astype(self.dtype, copy=False),
            cols=rows.indices.astype(np.int32, copy=False),
            start=rows.indptr.astype(np.int64),
            n_cols=rows.shape[1],
            M=np.ascontiguousarray(matrix if self.coupled else matrix[self.paths.is_diagonal]),
            learns_signs=learns,
            seed=seed,
            n_threads=n_threads,
            small_subtree=small_subtree,
        )

    def start_from(self, dual: Any, S: npt.NDArray[np.float64] | None) -> None:
        """Take dual variables, csr_array (n_blocks, m), and S on the layout (for a learnt coupling)."""
        dual = sp.csr_array(dual)
        off_diagonal = 0.0 if S is None else np.clip(S, -1.0, 1.0)
        signs = np.where(self.paths.is_diagonal, 1.0, off_diagonal)
        parts = (dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data.astype(np.float64))
        self.core.start_from(*parts, signs, self.rows.data)

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        primal, dual = self.core.certify(self.rows.data)
        if isinstance(self.penalty, OrthogonalPenalty) and self.penalty.missing:
            primal += self.penalty.beyond(self.products())
        return primal, dual

    def products(self) -> npt.NDArray[np.float64]:
        """w_iᵀ w_j on the layout; the core has them from its first step in S on."""
        found: npt.NDArray[np.float64] = self.core.products()
        return found if len(found) else pair_products(self.paths, self.weights())

    def losses_at(self, scale: float) -> float:
        """Sum of the losses at a multiple of the weights, for the data as they were given."""
        return float(self.core.losses_at(self.rows.data, scale))

    def duals(self) -> Any:
        """Dual variables, csr_array (n_blocks, m): column j of a block is the constraint that node j loses."""
        starts, losers, values = self.core.duals()
        return sp.csr_array((values, losers, starts), shape=(self.losses.n_blocks, self.paths.m))

    def factor(self) -> TreeFactor:
        """The factor of the coupling, with R only."""
        R = self.core.inverse_factor()
        if not self.coupled:
            R = np.where(self.paths.is_diagonal, 1.0, 0.0)
        return TreeFactor(self.paths, np.empty(0), R, self.core.pivots())

    def weights(self) -> npt.NDArray[np.float64]:
        """W, shape (m, n_features); memory pages without features in use are not touched."""
        W = np.zeros((self.paths.m, self.rows.shape[1]))
        self.core.read_weights(W)
        return W

    def parts(self) -> Any:
        """Z = L⁻¹B, csr_array (m, n_features)."""
        starts, columns, values = self.core.parts()
        return csr_of(values, columns, starts, (self.paths.m, self.rows.shape[1]))


def problem_arrays(losses: TreeLosses, paths: AncestorPaths, coupled: bool) -> dict[str, Any]:
    """Arguments of `_core.TreeProblem`."""
    over_all, m = losses.is_output is not None, paths.m
    group_of = np.zeros(m, dtype=np.int32) if over_all else np.cumsum(np.diff(paths.parent, prepend=-1) > 0)
    starts = np.searchsorted(group_of, np.arange(group_of[-1] + 2))
    outputs = np.ones(m, dtype=bool) if losses.is_output is None else losses.is_output
    return {
        "parent": paths.parent.astype(np.int32),
        "group_of": group_of.astype(np.int32),
        "group_start": starts.astype(np.int32),
        "path_start": paths.path_indptr if coupled else np.arange(m + 1, dtype=np.int64),
        "path_nodes": (paths.path_nodes if coupled else np.arange(m)).astype(np.int32),
        "block_row": losses.row.astype(np.int32),
        "block_node": losses.node.astype(np.int32),
        "block_levels": losses.n_levels.astype(np.int32),
        "block_cost": np.ascontiguousarray(losses.cost, dtype=np.float64),
        "over_all": over_all,
        "rescaling": RESCALINGS[losses.rescaling],
        "is_output": outputs.astype(np.uint8),
    }
