"""The constraints of one block of `TreeLosses`, listed one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from widemargin.problems.tree_losses import TreeLosses

__all__ = ["Constraints", "constraints_of"]


class Constraints(NamedTuple):
    """The constraints of a block: node i should win over node j (rows of W), with offset ρ and slope κ."""

    i: npt.NDArray[np.int64]
    j: npt.NDArray[np.int64]
    rho: npt.NDArray[np.float64]
    kappa: npt.NDArray[np.float64]


def constraints_of(losses: TreeLosses, block: int) -> Constraints:
    """All constraints of a block, from the lowest level up and by loser."""
    node, paths = int(losses.node[block]), losses.paths
    if losses.is_output is not None:
        losers = np.flatnonzero(losses.is_output & (np.arange(paths.m) != node))
        delta = 0.5 * losses.tree.distance(node + 1, losers + 1)
        rho = np.ones(len(losers)) if losses.rescaling == "none" else delta
        return Constraints(np.full(len(losers), node), losers, rho, delta if losses.rescaling == "slack" else rho**0)
    path = paths.path_nodes[paths.path_indptr[node] :][: losses.n_levels[block]].tolist()
    pairs = [(i, j) for i in path for j in np.flatnonzero(paths.parent == paths.parent[i]).tolist() if j != i]
    i, j = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Constraints(i, j, np.ones(len(i)), np.ones(len(i)))
