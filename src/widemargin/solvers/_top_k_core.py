"""The compiled dual ascent of the top-k multiclass SVM as the solver sees it: data in, weights and certificate out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers._limits import GROWTH_GAP, best_growth, best_multiple
from widemargin.solvers._top_k_face import face_step, with_constant
from widemargin.solvers._top_k_progress import TopKProgress
from widemargin.solvers.result import SolverResult, Status

__all__ = ["Ascent", "TopKProblem"]

DENSE_FILL = 0.75
"""Dense rows with a smaller share of values that are not 0 are better off sparse."""
LATE_PASSES = 2000
"""Passes after which a step on the face is tried with float32 weights, too."""
FACE_ITERATIONS, LEAST_ITERATIONS = 200, 20
"""Conjugate gradients of a step on the face, at most and at least."""
FACE_COST = 4
"""Visits of a row that cost as much as its part in one of them: a step costs no more than all that came before."""
FACE_VALUES = 4_000_000
"""Dual variables of the rows that have any, up to which a step on the face is tried: 32 MB an array."""
SINGLE_VALUES, SINGLE_COSTS = 1e15, (1e-30, 1e30)
"""Largest value of X, and range of the largest cost, up to which float32 weights are tried: squares must fit, too."""
LARGEST_VALUE, LARGEST_COST = 1e150, 1e300
"""Squared norms of rows and sums of losses must be finite in float64."""
EVALUATED_SCORES = 2**20
"""Scores that an evaluation in NumPy makes at a time: 8 MB."""
SCORE_ERROR = 8.0
"""Rounding error of a margin in units of eps · |w|·|x|: two sums of some products each."""
SLICE_S = 0.1
"""The ascent comes back to Python after so many seconds, to see to signals and to the clock."""


@dataclass(frozen=True)
class TopKProblem:
    """What is solved; `rows` a csr_array with int32 columns or a dense array in C order, y int32, costs float64."""

    rows: Any
    y: npt.NDArray[np.int32]
    costs: npt.NDArray[np.float64]
    n_classes: int
    loss: TopKHinge
    bias: float

    @classmethod
    def of(
        cls,
        X: Any,
        y: npt.NDArray[np.int64],
        n_classes: int,
        loss: TopKHinge,
        costs: npt.NDArray[np.float64],
        bias: float,
    ) -> TopKProblem:
        """Arrays as the core takes them."""
        if loss.k == 1:  # α and β are the same, and β needs fewer steps
            loss = replace(loss, variant="beta")
        problem = cls(_rows(X), y.astype(np.int32), np.ascontiguousarray(costs), n_classes, loss, bias)
        if problem.largest_value() > LARGEST_VALUE:
            raise ValueError(f"X or the intercept's scaling has values above {LARGEST_VALUE:g}; scale the features")
        if costs.max() > LARGEST_COST / len(costs):
            raise ValueError(
                f"C times the weight of a row is {costs.max():g}, too large for sums of losses; use a smaller C"
            )
        return problem

    def largest_value(self) -> float:
        """The largest absolute value of the rows, the constant feature included."""
        values = self.values
        return max(abs(self.bias), float(values.max(initial=0.0)), -float(values.min(initial=0.0)))

    def fits_single(self) -> bool:
        """Whether float32 can hold the rows, the costs and what is made of them."""
        low, high = SINGLE_COSTS
        return self.largest_value() <= SINGLE_VALUES and low <= self.costs.max() <= high

    @property
    def values(self) -> npt.NDArray[Any]:
        """The data of the rows in one dimension."""
        flat: npt.NDArray[Any] = self.rows.data if sp.issparse(self.rows) else self.rows.reshape(-1)
        return flat

    def objective_at_zero(self) -> float:
        """The objective of zero weights: every margin is 1."""
        return float(self.costs.sum() * self.loss.value(np.ones((1, self.n_classes - 1)))[0])

    def objective(self, W: npt.NDArray[Any], t: float = 1.0) -> float:
        """½‖tW‖² + Σ_i C_i φ(z_i) for W of shape (n_classes, n_features + 1), the constant feature last, in float64."""
        weights = t * W.astype(np.float64)
        value, step = 0.5 * float(np.vdot(weights, weights)), max(1, EVALUATED_SCORES // self.n_classes)
        for first in range(0, len(self.y), step):
            part = slice(first, first + step)
            scores = np.asarray(self.rows[part].astype(np.float64) @ weights[:, :-1].T) + self.bias * weights[:, -1]
            value += float(self.costs[part] @ self.loss.value(margins_of_wrong_classes(scores, self.y[part])))
        return value

    def rounding(self, W: npt.NDArray[Any]) -> float:
        """How much of the objective of W may be rounding: Σ_i C_i times the error of the margins of row i."""
        weights = np.abs(W.astype(np.float64))
        value, step = 0.0, max(1, EVALUATED_SCORES // self.n_classes)
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            for first in range(0, len(self.y), step):
                part = slice(first, first + step)
                sizes = np.asarray(abs(self.rows[part]).astype(np.float64) @ weights[:, :-1].T)
                sizes += abs(self.bias) * weights[:, -1]
                value += float(self.costs[part] @ sizes.max(axis=1))
        return SCORE_ERROR * float(np.finfo(np.float64).eps) * value

    def rescaled(
        self, W: npt.NDArray[Any], best: Callable[[Callable[[float], float]], float]
    ) -> tuple[npt.NDArray[Any], float]:
        """The multiple of W that `best` finds for the objective, in the precision of W, and its objective."""
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            W = (best(lambda t: self.objective(W, t)) * W.astype(np.float64)).astype(W.dtype)
            return W, self.objective(W)


def _rows(X: Any) -> Any:
    """X as csr_array with int32 columns, or as dense rows in C order."""
    if not sp.issparse(X) and np.count_nonzero(X) >= DENSE_FILL * X.size:
        return np.ascontiguousarray(X)
    rows = sp.csr_array(X)
    if rows.indices.dtype != np.int32:
        parts = (rows.data, rows.indices.astype(np.int32), rows.indptr)
        rows = sp.csr_array(parts, shape=rows.shape)
        rows.indices = rows.indices.astype(np.int32, copy=False)
    return rows


class Ascent:
    """The compiled ascent in one precision."""

    def __init__(self, problem: TopKProblem, dtype: Any, seed: int, n_threads: int, start: Any) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        sparse = sp.issparse(problem.rows)
        columns = problem.rows.indices if sparse else np.empty(0, dtype=np.int32)
        starts = problem.rows.indptr.astype(np.int64) if sparse else np.empty(0, dtype=np.int64)
        kind = _core.TopKAscent32 if self.dtype == np.float32 else _core.TopKAscent64
        self.core = kind(
            values=problem.values.astype(self.dtype, copy=False),
            cols=columns,
            start=starts,
            n_features=problem.rows.shape[1],
            bias=problem.bias,
            y=problem.y,
            costs=problem.costs,
            n_classes=problem.n_classes,
            k=problem.loss.k,
            alpha=problem.loss.variant == "alpha",
            smoothing=problem.loss.smoothing,
            seed=seed,
            n_threads=n_threads,
            instruction_set=_core.choose_instruction_set(),
        )
        if start is not None:
            self.start_from(sp.csr_array(start))

    def advance(self, progress: TopKProgress) -> None:
        """Passes up to the next evaluation, a slice of time after another."""
        while progress.passes_to_go > 0 and not progress.is_out_of_time:
            progress.passes += self.core.run(progress.passes_to_go, min(SLICE_S, progress.seconds_left))

    def evaluate(self) -> tuple[float, float]:
        """Estimates of the primal and the dual bound."""
        return self.core.evaluate()

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        certified: tuple[float, float] = self.core.certify(self.problem.values)
        return certified

    def step_on_face(self, progress: TopKProgress) -> None:
        """Go on from the best dual variables on the present face, if it is likely to be worth its cost."""
        dual, problem = self.duals(), self.problem
        support = np.flatnonzero(np.diff(dual.indptr))
        # Float32 weights are for loose tolerances, which seldom gain by it.
        late = self.dtype == np.float64 or progress.passes >= LATE_PASSES
        affordable = min(FACE_ITERATIONS, self.core.n_visits // (FACE_COST * max(len(support), 1)))
        large = len(support) * problem.n_classes > FACE_VALUES
        if not late or large or affordable < LEAST_ITERATIONS or problem.loss.smoothing > 0.0:
            return
        rows = with_constant(problem.rows[support].astype(np.float64), problem.bias)
        y, x, costs = problem.y[support].astype(np.int64), dual[support].toarray(), problem.costs[support]
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            x, gain = face_step(rows, y, x, costs, problem.loss, affordable)
        progress.note_face_step(gain)
        if gain > 0.0:
            values = sp.coo_array(x)
            places = (support[values.row], values.col)
            self.start_from(sp.csr_array((values.data, places), shape=dual.shape))

    def start_from(self, dual: Any) -> None:
        """Take dual variables, csr_array (n_samples, n_classes)."""
        parts = (dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data.astype(np.float64))
        self.core.start_from(*parts)

    def duals(self) -> Any:
        """Dual variables of the wrong classes, csr_array (n_samples, n_classes)."""
        starts, classes, values = self.core.duals()
        return sp.csr_array((values, classes, starts), shape=(len(starts) - 1, self.problem.n_classes))

    def result(self, progress: TopKProgress) -> SolverResult:
        """Weights, dual variables and their certificate."""
        primal, dual = progress.certified or self.certify()
        coef, constant = self.weights()
        at_zero = self.problem.objective_at_zero()
        shrink = primal > at_zero
        unfinished = progress.status in (Status.MAX_ITER, Status.NOT_ATTAINED)
        if shrink or (unfinished and primal - dual <= GROWTH_GAP * at_zero):
            best = best_multiple if shrink else best_growth
            W, primal = self.problem.rescaled(np.column_stack([coef, constant]), best)
            coef, constant = np.ascontiguousarray(W[:, :-1]), W[:, -1]
            progress.accept((primal, dual))
        assert progress.status is not None
        return SolverResult(
            coef=coef,
            intercept=self.problem.bias * constant.astype(np.float64),  # as certified: not rounded once more
            dual=self.duals(),
            certificate=Certificate(primal, dual, at_zero, primal),
            history=progress.history(),
            n_iter=np.array([progress.passes]),
            status=progress.status,
        )

    def weights(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """W of shape (n_classes, n_features), and the weights (n_classes,) of the constant feature."""
        coef = np.empty((self.problem.n_classes, self.problem.rows.shape[1]), dtype=self.dtype)
        constant = np.empty(self.problem.n_classes, dtype=self.dtype)
        self.core.read_weights(coef, constant)
        return coef, constant

    def is_at_rounding(self) -> bool:
        """Whether float64 can tell the present weights from the optimum no more."""
        primal, dual = self.certify()
        return primal - dual <= self.problem.rounding(np.column_stack(self.weights()))
