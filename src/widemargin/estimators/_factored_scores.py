"""Scores and rows of weights that are kept as sparse factors, W = L⁻ᵀ diag(d)⁻¹ Z.

    w_i = Σ_a R[a, i] z_a / d_a        over node i and its ancestors a

Scores of all nodes are those of Z, from an index by feature that is made once, and a pass over the tree; a greedy
decision needs a group of siblings at a time, of which only z of the group and of its ancestors are looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators._explain import weights_of_rows
from widemargin.problems.linear_scores import LinearScorer
from widemargin.solvers.tree_weights import TreeWeights

__all__ = ["FactoredScorer", "sibling_scores", "weights_at", "weights_of_row"]

Floats = npt.NDArray[np.float64]


class FactoredScorer:
    """Weights in factors made ready for prediction, as `LinearScorer` has it for others."""

    def __init__(self, weights: TreeWeights, intercept: Floats) -> None:
        self._parts = LinearScorer(weights.parts)
        self._factor, self._intercept = weights.factor, intercept

    def scores(self, X: Any, *, n_threads: int = 1) -> Floats:
        """Scores of all nodes, shape (n_samples, m)."""
        parts = self._parts.scores(X, n_threads=n_threads)
        scores: Floats = np.ascontiguousarray(self._factor.backward(np.ascontiguousarray(parts.T)).T)
        scores += self._intercept
        return scores


def sibling_scores(weights: TreeWeights, X: Any, nodes: npt.NDArray[np.int64]) -> Floats:
    """Scores of rows X at some children of one parent, shape (n_samples, n_nodes), without intercepts."""
    paths, factor = weights.factor.paths, weights.factor
    start = paths.path_indptr[nodes]
    depth = int(paths.path_indptr[nodes[0] + 1] - start[0])
    above = paths.path_nodes[start[0] + 1 : start[0] + depth]
    rows = np.concatenate([nodes, above])
    values = X @ weights.parts[rows].astype(np.float64).T
    parts = np.asarray(values.toarray() if sp.issparse(values) else values) / factor.pivots[rows]
    R = factor.R[start[:, None] + np.arange(1, depth)]  # (n_nodes, ancestors)
    scores: Floats = parts[:, : len(nodes)] + parts[:, len(nodes) :] @ R.T
    return scores


def weights_of_row(weights: TreeWeights, i: int) -> Floats:
    """One row of W, shape (n,)."""
    above, factors = _path_factors(weights, i)
    values: Floats = weights.parts[above].astype(np.float64).T @ factors
    return values


def weights_at(weights: TreeWeights, i: int, features: npt.NDArray[np.int64]) -> Floats:
    """One row of W at ascending features."""
    above, factors = _path_factors(weights, i)
    values: Floats = factors @ weights_of_rows(weights.parts, above, features)
    return values


def _path_factors(weights: TreeWeights, i: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Node i and its ancestors, and what their rows of Z are multiplied by."""
    paths, factor = weights.factor.paths, weights.factor
    entries = slice(int(paths.path_indptr[i]), int(paths.path_indptr[i + 1]))
    above = paths.path_nodes[entries]
    return above, factor.R[entries] / factor.pivots[above]
