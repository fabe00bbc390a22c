"""Scores of a model that embeds features and labels in one space, in bounded memory.

    score[i, l] = V_l · (U x_i)

Rows are embedded some at a time, and scored by `LinearScorer` on V. Memory: `memory_limit_mb` of embedded rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.linear_scores import LinearScorer

__all__ = ["EmbeddedScorer"]

_MEGABYTE = 2**20


class EmbeddedScorer:
    """An embedding made ready for prediction.

    Parameters
    ----------
    features : ndarray of shape (embedding_size, n_features)
        U.
    labels : ndarray of shape (n_labels, embedding_size)
        V.
    memory_limit_mb : float, default=256
        Bound on the embedded rows.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.embedded_scores import EmbeddedScorer
    >>> scorer = EmbeddedScorer(np.array([[1.0, 2.0]]), np.array([[1.0], [-1.0], [0.5]]))
    >>> scorer.scores(np.array([[1.0, 1.0]]))
    array([[ 3. , -3. ,  1.5]])
    >>> scorer.top_k(np.array([[1.0, 1.0]]), k=2)[0]
    array([[0, 2]])
    """

    def __init__(
        self, features: npt.NDArray[np.float64], labels: npt.NDArray[np.float64], *, memory_limit_mb: float = 256.0
    ) -> None:
        self._features = np.ascontiguousarray(features.T)
        self._labels = LinearScorer(labels)
        self._memory_limit_mb = memory_limit_mb
        self._rows = max(1, int(memory_limit_mb * _MEGABYTE / (8 * max(1, features.shape[0]))))

    def scores(self, X: Any, *, n_threads: int = 1) -> npt.NDArray[np.float64]:
        """Scores of all labels, of shape (n_samples, n_labels)."""
        found = [self._labels.scores(part, n_threads=n_threads) for _, part in self._embedded(X)]
        return np.concatenate(found) if found else np.empty((0, self._labels.n_labels))

    def top_k(self, X: Any, k: int, *, n_threads: int = 1) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The k best labels of every row and their scores, best first."""
        indices = np.empty((X.shape[0], k), dtype=np.int64)
        scores = np.empty((X.shape[0], k))
        for part, rows in self._embedded(X):
            indices[part], scores[part] = self._labels.top_k(
                rows, k, n_threads=n_threads, memory_limit_mb=self._memory_limit_mb
            )
        return indices, scores

    def label_scores(self, X: Any, labels: npt.NDArray[np.int64], *, n_threads: int = 1) -> npt.NDArray[np.float64]:
        """Score of one label of each row."""
        scores = np.empty(X.shape[0])
        for part, rows in self._embedded(X):
            scores[part] = self._labels.label_scores(rows, labels[part], n_threads=n_threads)
        return scores

    def _embedded(self, X: Any) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
        """U x of successive rows."""
        for first in range(0, X.shape[0], self._rows):
            part = slice(first, first + self._rows)
            rows = X[part].astype(np.float64) if sp.issparse(X) else np.asarray(X[part], dtype=np.float64)
            yield part, np.ascontiguousarray(rows @ self._features)
