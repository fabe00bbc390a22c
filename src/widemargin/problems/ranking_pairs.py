"""The reduction of many classes to two: pairs (row, block) with scores s_ib = w_b · x_i, never written out.

    joint        blocks are the classes; (i, y_i) is a positive, the (i, r) with r ≠ y_i are negatives
    one-vs-all   one block, a problem for each class; rows of the class are positives, all others negatives

The features of a pair are x_i in block b of a vector that is 0 elsewhere, so a weight vector is a matrix W with a row
for each block, and two pairs of different blocks are orthogonal. The last column of W is the weight of a constant
feature of value `bias`. Scores are made for some rows at a time; memory is X (for a moment in float64, too), W, and
`BLOCK_ENTRIES` scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["RankingPairs"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

BLOCK_ENTRIES = 2**20
"""Scores made at a time: 8 MB."""


@dataclass(frozen=True, eq=False)
class RankingPairs:
    """Rows, and in which block each is a positive.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    true_block : ndarray of int64 of shape (n_samples,)
        Block in which the row is a positive; −1 if it is a negative everywhere.
    n_blocks : int
        Number of blocks.
    bias : float
        Value of the constant feature; 0 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.ranking_pairs import RankingPairs
    >>> pairs = RankingPairs(np.eye(2), np.array([0, 1]), n_blocks=3)
    >>> pairs.n_positives, pairs.n_negatives
    (2, 4)
    >>> positives, block_values = next(pairs.scores(np.arange(9.0).reshape(3, 3)))[1:]
    >>> positives, block_values
    (array([0., 4.]), array([[-inf,   3.,   6.],
           [  1., -inf,   7.]]))
    """

    X: Any
    true_block: Ints
    n_blocks: int
    bias: float = 0.0

    @classmethod
    def joint(cls, X: Any, y: Ints, n_classes: int, bias: float = 0.0) -> RankingPairs:
        """All pairs of a row and a class."""
        return cls(X, y, n_classes, bias)

    @classmethod
    def one_vs_all(cls, X: Any, y: Ints, label: int, bias: float = 0.0) -> RankingPairs:
        """The rows of one class against the others."""
        return cls(X, np.where(y == label, 0, -1).astype(np.int64), 1, bias)

    @cached_property
    def positive_rows(self) -> Ints:
        """Rows that are a positive, in their order; the n-th positive is in this row."""
        return np.flatnonzero(self.true_block >= 0)

    @property
    def n_positives(self) -> int:
        """Number of positives."""
        return len(self.positive_rows)

    @property
    def n_negatives(self) -> int:
        """Number of negatives."""
        return len(self.true_block) * self.n_blocks - self.n_positives

    @property
    def n_columns(self) -> int:
        """Columns of W: the features and the constant."""
        return int(self.X.shape[1]) + 1

    def scores(self, W: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """First row, scores of the positives, and scores of all pairs of successive rows, −inf for positives."""
        step = max(1, BLOCK_ENTRIES // self.n_blocks)
        weights, constants = np.ascontiguousarray(W[:, :-1].T), self.bias * W[:, -1]
        for first in range(0, len(self.true_block), step):
            found = np.asarray(self.X[first : first + step] @ weights) + constants
            true = self.true_block[first : first + step]
            rows = np.flatnonzero(true >= 0)
            positives = found[rows, true[rows]]
            found[rows, true[rows]] = -np.inf
            yield first, positives, found

    def combination(self, rows: Ints, blocks: Ints, values: Floats) -> Floats:
        """W = Σ values · features of the pairs (rows, blocks), of shape (n_blocks, n_columns)."""
        coefficients = sp.csr_array((values, (blocks, rows)), shape=(self.n_blocks, len(self.true_block)))
        W = np.empty((self.n_blocks, self.n_columns))
        product = coefficients @ self.X
        W[:, :-1] = product.toarray() if sp.issparse(product) else product
        W[:, -1] = self.bias * coefficients.sum(axis=1)
        return W

    def features(self, rows: Ints) -> Any:
        """x and the constant of the rows, CSR or dense like X, float64, of shape (n, n_columns)."""
        part = self.X[rows].astype(np.float64)
        constant = np.full((len(rows), 1), self.bias)
        return sp.csr_array(sp.hstack([part, constant])) if sp.issparse(part) else np.hstack([part, constant])
