"""Weights of the nodes of a large tree as a product of sparse factors.

    W = L⁻ᵀ diag(d)⁻¹ Z,      w_i = Σ_a R[a, i] z_a / d_a  over node i and its ancestors a

A row of W has all features of the rows of Z above it, so that W of a large tree is dense where Z is sparse: a node's z
has no other features than the examples that pass its siblings. Scores cost as much as those of Z. Memory: Z as CSR,
R one number an ancestor pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.reference.tree_factor import TreeFactor

__all__ = ["TreeWeights"]

Floats = npt.NDArray[np.float64]


class TreeWeights:
    """A matrix of shape (m, n) with one row a node, kept as sparse factors.

    Parameters
    ----------
    parts : csr_array of shape (m, n)
        Z.
    factor : TreeFactor
        R and the pivots d; L is not used.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.reference.tree_factor import AncestorPaths, factorize
    >>> from widemargin.solvers.tree_weights import TreeWeights
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
    def nbytes(self) -> int:
        """Memory of the factors."""
        arrays = (self.parts.data, self.parts.indices, self.parts.indptr, self.factor.R, self.factor.pivots)
        return sum(array.nbytes for array in arrays)

    def toarray(self) -> Floats:
        """W as a dense array of float64."""
        dense: Floats = self.factor.backward(self.parts.toarray().astype(np.float64, copy=False))
        return dense

    def column(self, j: int) -> Floats:
        """One column of W, shape (m,)."""
        values: Floats = self.factor.backward(self.parts[:, [j]].toarray().astype(np.float64)[:, 0])
        return values

    def without_last(self) -> TreeWeights:
        """The same without the last column."""
        return TreeWeights(self.parts[:, :-1], self.factor)

    def scores(self, X: Any) -> Floats:
        """X Wᵀ, shape (n_samples, m), for X dense or sparse of shape (n_samples, n)."""
        products = self.parts.astype(np.float64) @ X.T
        dense = products.toarray() if sp.issparse(products) else np.asarray(products)
        scores: Floats = self.factor.backward(dense).T
        return scores
