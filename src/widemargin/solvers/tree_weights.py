"""Weights of the nodes of a large tree as a product of sparse factors.

    W = L⁻ᵀ diag(d)⁻¹ Z,      w_i = Σ_a R[a, i] z_a / d_a  over node i and its ancestors a

A row of W has all features of the rows of Z above it, so that W of a large tree is dense where Z is sparse: a node's z
has no other features than the examples that pass its siblings. Scores cost as much as those of Z. Memory: Z as CSR,
R one number per ancestor pair. Where nodes are not coupled, W is Z.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.sparse_weights import csr_of, drop_small
from widemargin.reference.tree_factor import TreeFactor

__all__ = ["TreeWeights"]

Floats = npt.NDArray[np.float64]

BLOCK_BYTES = 2**26
"""Rows of W that are made at once where they are to be pruned."""


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

    def plain(self) -> Any:
        """Z where it is W itself, else the factors."""
        factor = self.factor
        is_unit = np.where(factor.paths.is_diagonal, factor.R == 1.0, factor.R == 0.0).all()
        return self.parts if is_unit and (factor.pivots == 1.0).all() else self

    def pruned(self, threshold: float) -> Any:
        """The entries of W of at least `threshold`, a positive number, as a csr_array of the type of Z."""
        step = max(1, BLOCK_BYTES // (24 * max(1, self.shape[1])))
        scaled = sp.csr_array(sp.diags_array(1.0 / self.factor.pivots) @ self.parts)
        inverse = self.factor.paths.upper(self.factor.R).T.tocsr()
        rows = (sp.csr_array(inverse[first : first + step] @ scaled) for first in range(0, self.shape[0], step))
        parts = [drop_small(part.astype(self.parts.dtype), threshold) for part in rows]
        joined = sp.vstack(parts, format="csr")
        joined.sort_indices()
        return csr_of(joined.data, joined.indices, joined.indptr, joined.shape)

    def scores(self, X: Any) -> Floats:
        """X Wᵀ, shape (n_samples, m), for X dense or sparse of shape (n_samples, n)."""
        products = self.parts.astype(np.float64) @ X.T
        dense = products.toarray() if sp.issparse(products) else np.asarray(products)
        scores: Floats = self.factor.backward(dense).T
        return scores
