"""Few labels among which the k best of a dense row must be, by a matrix product and a bound on its rounding.

    |ŝ − s| ≤ γ (‖x‖ · max_l ‖w_l‖ + max_l |b_l|),   γ = (n_features + 4) u / (1 − (n_features + 4) u)

for a product in any order of summation and unit roundoff u (Higham, Accuracy and Stability, section 3.1). If t is the
k-th largest ŝ of a row, the k best labels by exact score, ties included, have ŝ ≥ t − 2 · bound. Their scores are then
computed anew in the order that defines them, so BLAS decides nothing: neither its threads nor its blocks show.
Memory: three scores a row and label of a block of rows, within the limit that is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CandidateFilter"]

SAFETY = 2.0  # on the bound: covers the rounding of the norms, and of the exact scores in double precision
LABELS_PER_PLACE = 32  # with fewer labels for each of the k places the plain kernel was faster (101 labels, k = 5)
MIN_FLOPS = 1e7  # below this a product takes less time than what is needed around it
ROWS_PER_BLOCK = 512
MAX_CANDIDATES_PER_PLACE = 16  # mean of a block; with more (ties, weights of zero) the plain kernel is as fast


class CandidateFilter:
    """Dense weights as a filter.

    Parameters
    ----------
    coef : ndarray of shape (n_labels, n_features)
        Weights, float32 or float64; not copied.
    intercept : ndarray of shape (n_labels,)
        Intercepts.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems._candidates import CandidateFilter
    >>> filter = CandidateFilter(np.eye(3), np.zeros(3))
    >>> filter.find(np.array([[1.0, 5.0, 4.0]]), k=1)
    (array([1]), array([0, 1]))
    """

    def __init__(self, coef: npt.NDArray[Any], intercept: npt.NDArray[np.float64]) -> None:
        self.coef, self.intercept = coef, intercept.astype(coef.dtype)
        largest = np.sqrt(np.einsum("ij,ij->i", coef, coef, dtype=np.float64).max(initial=0.0))
        self.norm, self.offset = float(largest), float(np.abs(intercept).max(initial=0.0))
        unit = (coef.shape[1] + 4) * float(np.finfo(coef.dtype).eps) / 2
        self.gamma = SAFETY * unit / (1.0 - unit) if unit < 1.0 else np.inf
        self.smallest = coef.shape[1] * float(np.finfo(coef.dtype).tiny)  # what underflow can lose

    def pays(self, n_rows: int, k: int) -> bool:
        """Whether finding candidates is likely to be faster than scoring all labels in the exact order."""
        n_labels, n_features = self.coef.shape
        return bool(n_labels >= LABELS_PER_PLACE * k and float(n_rows) * n_labels * n_features >= MIN_FLOPS)

    def rows_per_block(self, work_bytes: int) -> int:
        """Rows whose scores fit in the memory that is allowed, at most 512."""
        n_labels, n_features = self.coef.shape
        bytes_per_row = int(self.coef.itemsize * (3 * n_labels + n_features))
        return max(1, min(ROWS_PER_BLOCK, work_bytes // bytes_per_row))

    def find(self, X: npt.NDArray[Any], k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Labels that may be among the k best of each row, as (labels, indptr); None where they are too many."""
        with np.errstate(over="ignore", invalid="ignore"):
            scores = X.astype(self.coef.dtype, copy=False) @ self.coef.T + self.intercept
            length = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
            bound = self.gamma * (length * self.norm + self.offset) + self.smallest
            kth = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k].astype(np.float64)
            least = kth - 2.0 * bound
        if not np.isfinite(least).all():
            return None
        # Rounded down, so that nothing is lost by comparing in the type of the scores.
        limit = np.nextafter(least.astype(scores.dtype), scores.dtype.type(-np.inf))
        chosen = scores >= limit[:, None]
        counts = np.count_nonzero(chosen, axis=1)
        if counts.sum() > MAX_CANDIDATES_PER_PLACE * k * len(X):
            return None
        return np.nonzero(chosen)[1].astype(np.int64), np.append(0, np.cumsum(counts))
