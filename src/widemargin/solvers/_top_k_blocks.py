"""Dual ascent on wide dense rows: scores and steps of a block of rows by matrix products.

Visits of single rows read a large W again and again, from beyond the cache. Here the scores of a block of rows are one
product with W, visits within the block pass on what they change through the block's Gram matrix, and their steps reach
W in one more product: the same visits in the same order, up to rounding. Evaluation and certificate take their scores
from products, too. Memory beyond that of the ascent: blocks of rows, and W in float64 for the certificate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, sgemm
from threadpoolctl import threadpool_limits

from widemargin.solvers._top_k_core import Ascent, TopKProblem
from widemargin.solvers._top_k_progress import TopKProgress

__all__ = ["BlockedAscent", "is_wide"]

BLOCK_ROWS = 128
"""Rows visited between two products; 64 and 256 cost the same within a tenth."""
WIDE_VALUES = 150_000
"""Weights from which on products win: with 77,000 both ways cost the same, with 307,000 products 1.5 times less."""
EVALUATED_ROWS = 256
"""Rows of a product in evaluations."""


def is_wide(problem: TopKProblem) -> bool:
    """Whether rows are dense and W is beyond the cache."""
    return not sp.issparse(problem.rows) and problem.rows.shape[1] * problem.n_classes >= WIDE_VALUES


class BlockedAscent(Ascent):
    """An `Ascent` whose rows go through the core in blocks."""

    def __init__(self, problem: TopKProblem, dtype: Any, seed: int, n_threads: int, start: Any) -> None:
        super().__init__(problem, dtype, seed, n_threads, start)
        self.rows = problem.rows.astype(self.dtype, copy=False)
        self.scores, self.steps = self.core.block(BLOCK_ROWS), self.core.block(BLOCK_ROWS)
        self.gemm = sgemm if self.dtype == np.float32 else dgemm
        self.order = np.empty(0, dtype=np.int32)

    def advance(self, progress: TopKProgress) -> None:
        """Passes up to the next evaluation."""
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            while progress.passes_to_go > 0 and not progress.is_out_of_time:
                if len(self.order) == 0:
                    self.order = self.core.next_pass()
                self._visit(self.order[:BLOCK_ROWS])
                self.order = self.order[BLOCK_ROWS:]
                progress.passes += len(self.order) == 0

    def evaluate(self) -> tuple[float, float]:
        """Estimates of the primal and the dual bound."""
        W, bias = self.core.primal_weights, self.dtype.type(self.problem.bias)
        losses = 0.0
        for first, rows in self._row_blocks(self.rows):
            losses += self.core.losses_of_scores(first, rows @ W[:-1] + bias * W[-1])
        return self.core.bounds_of(losses)

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        penalty, dual = self.core.penalty_and_dual(self.problem.values)
        W = self.core.primal_weights.astype(np.float64)
        losses = 0.0
        for first, rows in self._row_blocks(self.problem.rows):
            scores = rows.astype(np.float64) @ W[:-1] + self.problem.bias * W[-1]
            losses += self.core.losses_of_exact_scores(first, scores)
        return penalty + losses, dual

    def _row_blocks(self, rows: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        with threadpool_limits(limits=1, user_api="blas"):
            for first in range(0, len(rows), EVALUATED_ROWS):
                yield first, rows[first : first + EVALUATED_ROWS]

    def _visit(self, order: npt.NDArray[np.int32]) -> None:
        rows, W, bias = self.rows[order], self.core.weights, self.dtype.type(self.problem.bias)
        scores, steps = self.scores[: len(order)], self.steps[: len(order)]
        np.matmul(rows, W[:-1], out=scores)
        scores += bias * W[-1]
        self.core.visit_block(order, rows @ rows.T + bias * bias, scores, steps)
        # W += rows' steps in place: BLAS thinks in columns, so all is transposed.
        self.gemm(1.0, steps.T, rows.T, beta=1.0, c=W[:-1].T, trans_b=True, overwrite_c=True)
        W[-1] += bias * steps.sum(axis=0)
        self.core.count_visits(len(order))
