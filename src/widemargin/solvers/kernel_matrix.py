"""Parts of the kernel matrix as the kernel solvers ask for them, scores, and bounds of the top-k problem.

The matrix is K + intercept_scaling², the kernel of rows with a constant feature of value `intercept_scaling`.

Everything is computed in chunks of fixed size: results do not depend on the number of threads, as long as BLAS runs on
one. Memory: a chunk of rows of K per thread, and for the bounds the scores, n × m in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, not_positive_semidefinite
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes

__all__ = ["KernelMatrix", "signed", "wrong_classes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS_AT_ONCE = 128  # largest number that a core asks for
GRAM_ROWS = 128  # in a chunk of the matrix: 1.5 MB of float32 at 3,000 rows, which stays in the cache
COLUMN_ROWS = 32  # in a chunk of the columns asked for
CERTIFIED_ROWS = 64  # in a chunk of the scores of the bounds
GAP_ROWS = 1024  # in a chunk of their sum
DENSE_SHARE = 0.1  # share of dual variables that are not 0 above which a dense product is faster
CURVATURE_TOLERANCE = 1e-9  # relative to the terms of aᵀKa: rounding may make the sum negative


def signed(x: sp.csr_array, y: Ints) -> sp.csr_array:
    """A of the dual variables x: −x for the wrong classes, the sum of x for the true one."""
    n, m = x.shape
    sums = sp.csr_array((np.asarray(x.sum(axis=1)).ravel(), y, np.arange(n + 1)), shape=(n, m))
    return sp.csr_array(sums - x)


class KernelMatrix:
    """K + intercept_scaling² of the training rows, in chunks, on several threads."""

    def __init__(self, kernel: TrainingKernel | PrecomputedKernel, intercept_scaling: float, n_threads: int) -> None:
        self.kernel, self.shift, self.n_threads = kernel, intercept_scaling**2, n_threads
        self.n = kernel.n_rows

    def diagonal(self) -> Floats:
        """Diagonal; values that rounding made negative are 0."""
        return np.maximum(self.kernel.diagonal(), 0.0) + self.shift

    def room(self, cache_bytes: float, dtype: Any) -> tuple[bool, int]:
        """Whether the whole matrix fits, and if not, how many columns do besides those asked for at once."""
        column_bytes = np.dtype(dtype).itemsize * self.n
        whole = column_bytes * self.n <= cache_bytes
        return whole, 0 if whole else max(0, int(cache_bytes / column_bytes) - COLUMNS_AT_ONCE)

    def whole(self, dtype: Any) -> npt.NDArray[Any]:
        """The matrix; a precomputed one of this type is not copied."""
        K = self.kernel.K if isinstance(self.kernel, PrecomputedKernel) else None
        if K is not None and self.shift == 0.0 and K.dtype == dtype and K.flags.c_contiguous:
            return K
        out = np.empty((self.n, self.n), dtype=dtype)

        def fill(rows: slice) -> None:
            out[rows] = self._shifted(self.kernel.columns(rows, dtype))

        self._for_each(fill, _slices(self.n, GRAM_ROWS))
        return out

    def columns(self, indices: Ints, dtype: Any) -> npt.NDArray[Any]:
        """Columns, each contiguous: shape (len(indices), n)."""
        out = np.empty((len(indices), self.n), dtype=dtype)

        def fill(rows: slice) -> None:
            out[rows] = self._shifted(self.kernel.columns(indices[rows], dtype))

        self._for_each(fill, _slices(len(indices), COLUMN_ROWS))
        return out

    def bounds(
        self, x: sp.csr_array, y: Ints, costs: Floats, loss: TopKHinge, margins: Floats | None = None
    ) -> tuple[float, float, Floats]:
        """Primal and dual objective of the dual variables x (n, m), and the scores (n, m) they give.

        `margins` (n, m) are the margins asked for, 1 by default.
        """
        A = signed(x, y)
        scores = self.scores(A)
        gap = 0.0
        for rows in _slices(self.n, GAP_ROWS):
            z = margins_of_wrong_classes(scores[rows], y[rows])
            if margins is not None:
                z += wrong_classes(margins[rows], y[rows]) - 1.0
            gap += float(loss.duality_gap(z, wrong_classes(x[rows].toarray(), y[rows]), costs[rows]).sum())
        asked = x.sum() if margins is None else x.multiply(margins).sum()
        dual = float(asked) - _quadratic(x, costs, loss) - 0.5 * self.squared_norm(A, scores)
        return dual + gap, dual, scores

    def scores(self, A: sp.csr_array) -> Floats:
        """(K + intercept_scaling²) A in float64 for A of shape (n, m)."""
        support = np.flatnonzero(np.diff(A.indptr))
        used = A[support]
        right = used.toarray() if used.nnz > DENSE_SHARE * used.shape[0] * used.shape[1] else used
        moved = self.shift * np.asarray(A.sum(axis=0)).ravel()
        strip, scores = self.kernel.strip(support), np.empty(A.shape)

        def fill(rows: slice) -> None:
            scores[rows] = strip(rows) @ right + moved

        self._for_each(fill, _slices(self.n, CERTIFIED_ROWS))
        return scores

    def squared_norm(self, A: sp.csr_array, scores: Floats) -> float:
        """⟨A, KA⟩; negative curvature is an error unless the kernel is known to be positive semidefinite."""
        terms = A.multiply(scores).tocsc()
        sums, sizes = np.asarray(terms.sum(axis=0)).ravel(), np.asarray(abs(terms).sum(axis=0)).ravel()
        rounding = np.finfo(np.float64).eps * (abs(A).T @ np.sqrt(self.diagonal())) ** 2
        negative = sums < -np.maximum(CURVATURE_TOLERANCE * sizes, rounding)
        if negative.any() and not self.kernel.is_positive_semidefinite:
            raise not_positive_semidefinite(
                f"a linear combination of its columns has a squared norm of {sums.min():.3g}"
            )
        return float(np.where(negative, 0.0, sums).sum())

    def _shifted(self, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.shift != 0.0:
            block += block.dtype.type(self.shift)
        return block

    def _for_each(self, work: Callable[[slice], None], chunks: Iterable[slice]) -> None:
        if self.n_threads == 1:
            for rows in chunks:
                work(rows)
            return
        with ThreadPoolExecutor(self.n_threads) as pool:
            for done in [pool.submit(work, rows) for rows in chunks]:
                done.result()


def _slices(n: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def wrong_classes(x: Floats, y: Ints) -> Floats:
    """Columns of the wrong classes of each row."""
    wrong: Floats = x[np.arange(x.shape[1]) != y[:, None]].reshape(len(y), x.shape[1] - 1)
    return wrong


def _quadratic(x: sp.csr_array, costs: Floats, loss: TopKHinge) -> float:
    """Σ_i γ/(2C_i) ‖x_i‖²"""
    if loss.smoothing == 0.0:
        return 0.0
    c = np.repeat(costs, np.diff(x.indptr))
    shares = np.divide(x.data, c, out=np.zeros(len(c)), where=c > 0.0)  # first: squares of small costs would be 0
    return 0.5 * loss.smoothing * float(x.data @ shares)
