"""Scores of the classes from the outputs of an output code's binary classifiers, in blocks of rows.

    s = decode(h(x), M)   (inner product, Hamming or loss),   or   s_r = Σ_i a_ri K(h(x), h_i)   for a kernel code

Two classes have one score, s_1 − s_0, as other models of two classes have. Memory: outputs and scores of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin.problems.kernels import Kernel
from widemargin.problems.linear_scores import LinearScorer

__all__ = ["CodeScorer", "InnerDecoder", "kernel_scores"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BYTES_PER_MB = 2**20
BYTES_PER_VALUE = 32
"""An output or score, its copies on the way through decoding, and its place in the ranking."""


def kernel_scores(kernel: Kernel, rows: FloatArray, dual_coef: FloatArray, h: FloatArray) -> FloatArray:
    """s_r = Σ_i a_ri K(h, h_i), of shape (n_samples, n_classes)."""
    scores: FloatArray = np.asarray(kernel.block(h, rows), dtype=np.float64) @ dual_coef.T
    return scores


class InnerDecoder:
    """s_r = ⟨h, M_r⟩ as `decode` has it, with sums in one order: the same to the last bit in any batch.

    Parameters
    ----------
    code : ndarray of shape (n_classes, n_columns)
        The code M.
    """

    def __init__(self, code: FloatArray) -> None:
        self._scorer = LinearScorer(np.ascontiguousarray(code, dtype=np.float64))

    def __call__(self, h: FloatArray) -> FloatArray:
        """Scores of shape (n_samples, n_classes)."""
        outputs = np.ascontiguousarray(h, dtype=np.float64)
        if not np.isfinite(outputs).all():
            raise ValueError("h holds NaN or infinity; decoding needs finite outputs")
        return self._scorer.scores(outputs)


class CodeScorer:
    """A fitted output code made ready for prediction.

    Parameters
    ----------
    columns : LinearColumns or FittedColumns
        The binary classifiers.
    decode : callable
        Scores of shape (n_samples, n_classes) from outputs of shape (n_samples, n_columns).
    n_values : int
        Numbers that a row needs on the way: columns and classes.
    memory_limit_mb : float
        Bound on what the rows of a block need; at least one row is done at a time.

    Attributes
    ----------
    rows_per_block : int
        Rows that are done at once; with 1 the last bits of a row's scores do not depend on the batch.
    """

    def __init__(
        self, columns: Any, decode: Callable[[FloatArray], FloatArray], n_values: int, memory_limit_mb: float
    ) -> None:
        self.outputs, self.decode = columns.output_function(), decode
        self.rows_per_block = max(1, int(memory_limit_mb * BYTES_PER_MB / (BYTES_PER_VALUE * n_values)))

    def scores(self, X: Any, *, n_threads: int = 1) -> FloatArray:
        """All scores, of shape (n_samples, n_classes), or (n_samples, 1) for two classes."""
        blocks = [scores for _, scores in self._blocks(X, n_threads)]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def top_k(
        self, X: Any, k: int, *, n_threads: int = 1, memory_limit_mb: float | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Indices and scores of the k best of three classes or more, best first, the lower class first among equals."""
        n_samples = _num_samples(X)
        indices, ranked = np.full((n_samples, k), -1, dtype=np.int64), np.full((n_samples, k), -np.inf)
        for rows, scores in self._blocks(X, n_threads):
            found = min(k, scores.shape[1])
            best = np.argsort(-scores, axis=1, kind="stable")[:, :found]
            indices[rows, :found] = best
            ranked[rows, :found] = np.take_along_axis(scores, best, axis=1)
        return indices, ranked

    def label_scores(self, X: Any, y: npt.NDArray[Any], *, n_threads: int = 1) -> FloatArray:
        """The score of one given class a row, shape (n_samples,)."""
        out = np.empty(_num_samples(X))
        for rows, scores in self._blocks(X, n_threads):
            out[rows] = scores[np.arange(len(scores)), y[rows]]
        return out

    def _blocks(self, X: Any, n_threads: int) -> Iterator[tuple[slice, FloatArray]]:
        """Ranges of rows and their scores; an empty range if there are no rows."""
        n_samples = _num_samples(X)
        for first in range(0, max(n_samples, 1), self.rows_per_block):
            rows = slice(first, first + self.rows_per_block)
            part = X if self.rows_per_block >= n_samples else _safe_indexing(X, rows)
            scores = self.decode(self.outputs(part, n_threads))
            yield rows, np.diff(scores, axis=1) if scores.shape[1] == 2 else scores
