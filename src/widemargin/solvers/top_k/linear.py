"""Top-k multiclass SVM with linear scores by dual coordinate ascent, one row per block.

    minimise  ½‖W‖² + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   s_i = W x_i

with a top-k hinge φ (Algorithm 1 of Lapin, Hein and Schiele, 2015); for k = 1 this is the multiclass SVM of Crammer and
Singer. An intercept is the weight of a constant feature of value `intercept_scaling`, and part of the penalty. Rows are
visited in random order, pass after pass; rows whose visits change next to nothing are left out for a while, and the
rows that gained most are visited again after each pass (`cpp/top_k/ascent.hpp`); the weights returned are an average
over the last passes. Evaluations are planned for the pass at which the gap is expected to be reached; those before it
look at a sample of the rows. The solver stops when the certified relative gap, primal at the weights returned and dual
at the dual variables returned, is at most `tol`. Weights are float32 while that is enough for `tol`, then float64.
Where single rows move too slowly, a step on the face of the dual helps (`widemargin.solvers.top_k.face`).

Memory: W twice, the dual variables that are not 0 (all of them below 96 classes), and a copy of X where its type is not
that of W. Wide dense rows go through the core in blocks (`BlockedAscent`), with blocks of rows on top, and W in float64
for the certificate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, sgemm
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin._docstrings import with_shared_passages
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import csr_of_dense
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers.limits import GROWTH_GAP, Limits, best_growth, best_multiple, history_of
from widemargin.solvers.result import Callback, SolverResult, Status
from widemargin.solvers.top_k.face import face_step, with_constant

__all__ = ["Ascent", "BlockedAscent", "TopKProblem", "TopKProgress", "solve_top_k"]

# Rows and precision.
DENSE_FILL = 0.75  # dense rows with a smaller share of values that are not 0 are better off sparse
FLOAT32_TOL = 1e-5  # below this gap the rounding of float32 weights shows: on digits with C = 1 it stays above 1e-5
# Largest value of X, and range of the largest cost, up to which float32 weights are tried: squares must fit, too.
SINGLE_VALUES, SINGLE_COSTS = 1e15, (1e-30, 1e30)
LARGEST_VALUE, LARGEST_COST = 1e150, 1e300  # squared norms of rows and sums of losses must be finite in float64
WIDE_VALUES = 150_000  # weights above which products win: 77,000 cost the same, 307,000 were 1.5 times cheaper
BLOCK_ROWS = 128  # rows visited between two products; 64 and 256 cost the same within a tenth
EVALUATED_ROWS = 256  # rows of a product in evaluations
EVALUATED_SCORES = 2**20  # scores that an evaluation in NumPy makes at a time: 8 MB
SCORE_ERROR = 8.0  # rounding error of a margin in units of eps · |w|·|x|: two sums of some products each
SLICE_S = 0.1  # seconds after which the ascent comes back to Python, for signals and the clock

# When to evaluate.
FIRST_EVALUATION = 4  # pass of the first evaluation of an ascent from zero
# Part of the passes foreseen from an earlier fit that go by without an evaluation; the second one is at their end.
# Paths k = 10, 5, 3, 1 with α on letter and 20newsgroups against fits from scratch: 1.16 and 1.21 with .7, 1.12 and
# 1.20 with .5, .96 and 1.04 with an evaluation of the start and short steps from there.
UNSEEN_SHARE = 0.7
# Predicted passes times this before the next evaluation: the gap falls ever more slowly, so predictions are too short.
# Visits of all rows, evaluations counted as 0.6 of one, on letter, digits and Debian's descriptions (11 losses, 8
# settings): 1 with 0.8, rounded down, 0.97 with 1, 0.95 with 1.1, 0.94 with 1.2.
PATIENCE = 1.1
GROWTH = 1.0  # largest growth of the number of passes from an evaluation to the next
LEAST_GROWTH = 0.03  # smallest growth; an evaluation costs as much as one or two passes over all rows
STALL = 4  # the gap stalls if it does not halve while the passes grow by this factor
STALL_PASSES = 200  # passes before that is decided: the first ones are slow, too

# When to step on the face.
FACE_GAP = 0.05  # gap below which a step is tried: further away dual variables have not found their bounds
FACE_PASSES = 100  # passes still expected, at least, for a step to be worth it
LEAST_GAIN = 0.01  # share of the gap that a step must gain for another to follow soon
PASSES_AFTER_FACE = 20  # passes between a step and the next evaluation
LATE_PASSES = 2000  # passes after which a step is tried with float32 weights, too
FACE_ITERATIONS, LEAST_ITERATIONS = 200, 20  # conjugate gradients of a step, at most and at least
# Visits of a row that cost as much as its part in one of them: a step costs no more than all before it. With 4, letter
# took 2.1 instead of 0.8 CPU s to 1e-6, and Debian's first tags with α, k = 5 took 36 instead of 12; arrays of at most
# SMALL_FACE dual variables stay in the cache.
SMALL_FACE, FACE_COST, SMALL_FACE_COST = 100_000, 40, 4
FACE_VALUES = 4_000_000  # dual variables of the rows that have any, up to which a step is tried: 32 MB per array


@with_shared_passages
def solve_top_k(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    *,
    intercept_scaling: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    foreseen_passes: int = 0,
    callback: Callback | None = None,
) -> SolverResult:
    """Train, and certify the result.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    <top_k_classes>
    intercept_scaling : float
        Value of the constant feature; 0 for none.
    <top_k_passes>
    n_threads : int
        Threads of evaluations; the ascent is sequential. Results do not depend on it.
    <top_k_start>
    foreseen_passes : int
        Passes that an equally hard problem took; the gap is not evaluated before a good part of them. 0: at once.
    <top_k_callback>

    Returns
    -------
    SolverResult
        `coef` (n_classes, n_features), `intercept` (n_classes,), and `dual`, a csr_array (n_samples, n_classes) of the
        dual variables of the wrong classes.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.linear import solve_top_k
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([0, 1, 2])
    >>> result = solve_top_k(X, y, 3, TopKHinge(k=1), np.ones(3), tol=1e-6)
    >>> (X @ result.coef.T).argmax(axis=1).tolist(), result.certificate.relative_gap <= 1e-6
    ([0, 1, 2], True)
    """
    problem = TopKProblem.of(X, y, n_classes, loss, costs, intercept_scaling)
    progress = TopKProgress(tol, max_iter, callback)
    wide = not sp.issparse(problem.rows) and problem.rows.shape[1] * n_classes >= WIDE_VALUES
    kind = BlockedAscent if wide else Ascent
    fits_single = problem.largest_value <= SINGLE_VALUES and SINGLE_COSTS[0] <= costs.max() <= SINGLE_COSTS[1]
    single = tol >= FLOAT32_TOL and fits_single
    ascent = kind(problem, np.float32 if single else np.float64, seed, n_threads, start)
    if start is not None:  # evaluated at once, it may be enough, and shows which rows may sleep
        progress.plan_from_start(foreseen_passes)
    while progress.status is None:
        progress.record(ascent.advance(progress), ascent.core.n_active, ascent.core.n_visits)
        if progress.gap <= tol:
            progress.accept(ascent.certify())
        if progress.status is None and progress.stalls and ascent.dtype == np.float32:
            ascent = kind(problem, np.float64, seed, n_threads, ascent.duals())
            progress.restart()
        elif progress.status in (None, Status.MAX_ITER) and progress.stalls and ascent.is_at_rounding():
            progress.status = Status.NOT_ATTAINED
        elif progress.status is None and progress.wants_face_step:
            ascent.step_on_face(progress)
    return ascent.result(progress)


@dataclass(frozen=True)
class TopKProblem:
    """Checked inputs: `rows` a csr_array with int32 columns or a dense array in C order, y int32, costs float64."""

    rows: Any
    values: npt.NDArray[Any]  # the data of the rows in one dimension
    largest_value: float  # in absolute value, the constant feature included
    y: npt.NDArray[np.int32]
    costs: npt.NDArray[np.float64]
    n_classes: int
    loss: TopKHinge
    intercept_scaling: float

    @classmethod
    def of(
        cls,
        X: Any,
        y: npt.NDArray[np.int64],
        n_classes: int,
        loss: TopKHinge,
        costs: npt.NDArray[np.float64],
        intercept_scaling: float,
    ) -> TopKProblem:
        """Arrays as the core takes them, of a problem that has an answer."""
        if not 1 <= loss.k < n_classes:
            raise ValueError(f"k must be at least 1 and less than the number of classes, {n_classes}; got {loss.k}")
        if not (costs > 0.0).any():
            raise ValueError("all rows have weight 0; at least one must have a positive weight")
        if loss.k == 1 and loss.variant == "alpha":  # both are the same, and β needs fewer steps
            loss = replace(loss, variant="beta")
        if not sp.issparse(X) and np.count_nonzero(X) >= DENSE_FILL * X.size:
            rows = np.ascontiguousarray(X)
            values = rows.reshape(-1)
        else:
            rows = sp.csr_array(X) if sp.issparse(X) else csr_of_dense(X)
            if rows.indices.dtype != np.int32:
                rows = sp.csr_array((rows.data, rows.indices.astype(np.int32), rows.indptr), shape=rows.shape)
                rows.indices = rows.indices.astype(np.int32, copy=False)
            values = rows.data
        largest = max(abs(intercept_scaling), float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
        if largest > LARGEST_VALUE:
            raise ValueError(f"X or intercept_scaling contains values above {LARGEST_VALUE:g}; scale down the features")
        if costs.max() > LARGEST_COST / len(costs):
            raise ValueError(
                f"C times the weight of a row is {costs.max():g}, so the sum of the losses may overflow; use a "
                "smaller C"
            )
        costs = np.ascontiguousarray(costs)
        return cls(rows, values, largest, y.astype(np.int32), costs, n_classes, loss, intercept_scaling)

    def objective(self, W: npt.NDArray[Any], t: float = 1.0) -> float:
        """½‖tW‖² + Σ_i C_i φ(z_i) for W of shape (n_classes, n_features + 1), the constant feature last, in float64."""
        weights = t * W.astype(np.float64)
        value = 0.5 * float(np.vdot(weights, weights))
        for part in self._parts():
            scores = np.asarray(self.rows[part].astype(np.float64) @ weights[:, :-1].T)
            scores = scores + self.intercept_scaling * weights[:, -1]
            value += float(self.costs[part] @ self.loss.value(margins_of_wrong_classes(scores, self.y[part])))
        return value

    def rounding(self, W: npt.NDArray[Any]) -> float:
        """How much of the objective of W may be rounding: Σ_i C_i times the error of the margins of row i."""
        weights, value = np.abs(W.astype(np.float64)), 0.0
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            for part in self._parts():
                sizes = np.asarray(abs(self.rows[part]).astype(np.float64) @ weights[:, :-1].T)
                sizes += abs(self.intercept_scaling) * weights[:, -1]
                value += float(self.costs[part] @ sizes.max(axis=1))
        return SCORE_ERROR * float(np.finfo(np.float64).eps) * value

    def rescaled(
        self, W: npt.NDArray[Any], best: Callable[[Callable[[float], float]], float]
    ) -> tuple[npt.NDArray[Any], float]:
        """The multiple of W that `best` finds for the objective, in the precision of W, and its objective."""
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            W = (best(lambda t: self.objective(W, t)) * W.astype(np.float64)).astype(W.dtype)
            return W, self.objective(W)

    def _parts(self) -> Iterator[slice]:
        """Ranges of rows whose scores are made at a time."""
        step = max(1, EVALUATED_SCORES // self.n_classes)
        for first in range(0, len(self.y), step):
            yield slice(first, first + step)


class TopKProgress(Limits):
    """Counts passes, plans evaluations for the pass at which the gap is expected to be reached, and records them.

    Parameters
    ----------
    tol : float
        Relative gap to reach.
    max_iter : int
        Largest number of passes.
    callback : callable or None
        Called with a `Progress` after each evaluation.

    Attributes
    ----------
    passes, next_evaluation : int
        Passes so far, and at the next evaluation.
    is_early : bool
        Whether the gap is expected to be reached only after the next evaluation, for which some of the rows will do.
    gap : float
        Relative gap of the last evaluation.
    stalls : bool
        Whether the gap has hardly moved for long, as where rounding keeps it up.
    wants_face_step : bool
        Whether many passes are still expected and dual variables are likely to have found their bounds.
    status : Status or None
        Why the ascent ends.
    certified : tuple of (primal, dual) or None
        The bounds with which it converged.

    Examples
    --------
    >>> from widemargin.solvers.top_k.linear import TopKProgress
    >>> progress = TopKProgress(tol=1e-3, max_iter=7, callback=None)
    >>> progress.passes = progress.next_evaluation
    >>> progress.record(bounds=(2.0, 1.0), n_active=10, n_visits=40)
    >>> progress.passes, progress.next_evaluation, progress.status
    (4, 7, None)
    """

    def __init__(self, tol: float, max_iter: int, callback: Callback | None) -> None:
        super().__init__(max_iter, callback)
        self.tol, self.passes = tol, 0
        self.next_evaluation, self.is_early = min(FIRST_EVALUATION, max_iter), True
        self.gap, self.stalls, self.wants_face_step = np.inf, False, False
        self.status: Status | None = None
        self.certified: tuple[float, float] | None = None
        self.rows: list[tuple[float, ...]] = []  # of the history
        self._gaps: list[float] = []  # since the last restart
        self._face_gap = FACE_GAP  # that the next step on the face waits for
        self._foreseen = 0  # passes in total, by an earlier fit

    def plan_from_start(self, foreseen: int) -> None:
        """Plan for dual variables to start from: evaluate at once unless an earlier fit tells the number of passes."""
        self._foreseen = foreseen
        self.next_evaluation, self.is_early = min(self.max_iter, int(UNSEEN_SHARE * foreseen)), False

    def record(self, bounds: tuple[float, float], n_active: int, n_visits: int) -> None:
        """Keep an evaluation, plan the next, and check the limits.

        Sets: gap, next_evaluation, is_early, stalls, wants_face_step, status.
        """
        primal, dual = bounds
        self.gap = gap = (primal - dual) / (max(abs(primal), abs(dual)) or 1.0)
        seconds = time.monotonic() - self.started
        self.rows.append((self.passes, seconds, primal, dual, gap, n_active, n_visits))
        self._gaps.append(gap)
        needed, expected = max(2, int(GROWTH * self.passes)), np.inf
        is_foreseen = len(self.rows) == 1 and 0 < self.passes < self._foreseen
        if is_foreseen:
            needed = self._foreseen - self.passes
        elif len(self._gaps) > 1 and 0.0 < gap < self._gaps[-2]:  # the gap's logarithm falls along a line
            before = self.rows[-2]
            rate = np.log(before[4] / gap) / max(self.passes - before[0], 1.0)
            expected = float(np.log(max(gap / self.tol, 1.0)) / rate)
            needed = int(np.clip(np.ceil(PATIENCE * expected), max(1.0, LEAST_GROWTH * self.passes), needed))
        self.next_evaluation = min(self.max_iter, self.passes + needed)
        self.is_early = needed < expected and not is_foreseen
        self.stalls = self.passes >= STALL_PASSES and self._has_stalled()
        self.wants_face_step = gap <= self._face_gap and expected >= FACE_PASSES
        self.status = self.reached(self.passes, seconds, primal, dual) or self.status

    def accept(self, bounds: tuple[float, float]) -> None:
        """Take certified bounds; they end the ascent if they are close enough. Sets: certified, status."""
        primal, dual = bounds
        if (primal - dual) / (max(abs(primal), abs(dual)) or 1.0) <= self.tol:
            self.certified, self.status = (primal, dual), Status.CONVERGED

    def restart(self) -> None:
        """Forget the gaps so far: from now on another precision makes them."""
        self._gaps.clear()

    def note_face_step(self, gain: float) -> None:
        """Plan on after a step on the face; one that gained little waits for half the gap."""
        primal, dual = self.rows[-1][2:4]
        self.wants_face_step = False
        if gain < LEAST_GAIN * (primal - dual):
            self._face_gap = 0.5 * self.gap
            return
        self._face_gap = 0.9 * self.gap  # the next one only if this one leads on
        self.next_evaluation = min(self.max_iter, self.passes + PASSES_AFTER_FACE)
        self._gaps.clear()

    def _has_stalled(self) -> bool:
        recent = self.rows[-len(self._gaps) :]
        earlier = [row[4] for row in recent if STALL * row[0] <= self.passes]
        later = self._gaps[len(earlier) :]  # a small gap long ago, by luck, is no progress
        return bool(earlier) and bool(later) and min(later) > 0.5 * earlier[-1]


class Ascent:
    """The compiled ascent in one precision."""

    def __init__(self, problem: TopKProblem, dtype: Any, seed: int, n_threads: int, start: Any) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        sparse = sp.issparse(problem.rows)
        kind = _core.TopKAscent32 if self.dtype == np.float32 else _core.TopKAscent64
        self.core = kind(
            values=problem.values.astype(self.dtype, copy=False),
            cols=problem.rows.indices if sparse else np.empty(0, dtype=np.int32),
            start=problem.rows.indptr.astype(np.int64) if sparse else np.empty(0, dtype=np.int64),
            n_features=problem.rows.shape[1],
            bias=problem.intercept_scaling,
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

    def advance(self, progress: TopKProgress) -> tuple[float, float]:
        """Passes up to the next evaluation, a slice of time after another; estimates of the primal and dual bound."""
        while progress.passes < progress.next_evaluation:
            left = progress.deadline - time.monotonic()
            if left <= 0.0:
                break
            progress.passes += self.core.run(progress.next_evaluation - progress.passes, min(SLICE_S, left))
        return self.core.evaluate(progress.is_early)

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        certified: tuple[float, float] = self.core.certify(self.problem.values)
        return certified

    def step_on_face(self, progress: TopKProgress) -> None:
        """Continue from the best dual variables on the present face, if that is likely to be worth its cost."""
        dual, problem = self.duals(), self.problem
        support = np.flatnonzero(np.diff(dual.indptr))
        # Float32 weights are for loose tolerances, which seldom gain by it.
        late = self.dtype == np.float64 or progress.passes >= LATE_PASSES
        n_values = len(support) * problem.n_classes
        cost = (SMALL_FACE_COST if n_values <= SMALL_FACE else FACE_COST) * max(len(support), 1)
        affordable, large = min(FACE_ITERATIONS, self.core.n_visits // cost), n_values > FACE_VALUES
        if not late or large or affordable < LEAST_ITERATIONS or problem.loss.smoothing > 0.0:
            return
        rows = with_constant(problem.rows[support].astype(np.float64), problem.intercept_scaling)
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
        problem = self.problem
        primal, dual = progress.certified or self.certify()
        coef, constant = self.weights()
        # Zero weights have margins of 1.
        at_zero = float(problem.costs.sum() * problem.loss.value(np.ones((1, problem.n_classes - 1)))[0])
        shrink = primal > at_zero
        unfinished = progress.status in (Status.MAX_ITER, Status.NOT_ATTAINED)
        if shrink or (unfinished and primal - dual <= GROWTH_GAP * at_zero):
            best = best_multiple if shrink else best_growth
            W, primal = problem.rescaled(np.column_stack([coef, constant]), best)
            coef, constant = np.ascontiguousarray(W[:, :-1]), W[:, -1]
            progress.accept((primal, dual))
        assert progress.status is not None
        names = ("iteration", "seconds", "primal", "dual", "relative_gap", "active_rows", "visits")
        return SolverResult(
            coef=coef,
            intercept=problem.intercept_scaling * constant.astype(np.float64),  # as certified: not rounded once more
            dual=self.duals(),
            certificate=Certificate(primal, dual, at_zero, primal),
            history=history_of(progress.rows, names, whole=("iteration", "active_rows", "visits")),
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
        """Whether float64 can no longer tell the present weights from the optimum."""
        primal, dual = self.certify()
        return primal - dual <= self.problem.rounding(np.column_stack(self.weights()))


class BlockedAscent(Ascent):
    """An `Ascent` on wide dense rows: scores and steps of a block of rows by matrix products.

    Visits of single rows read a large W again and again, from beyond the cache. Here the scores of a block of rows are
    one product with W, visits within the block pass on their changes through the block's Gram matrix, and their steps
    reach W in one more product: the same visits in the same order, up to rounding. Evaluation and certificate take
    their scores from products, too.
    """

    def __init__(self, problem: TopKProblem, dtype: Any, seed: int, n_threads: int, start: Any) -> None:
        super().__init__(problem, dtype, seed, n_threads, start)
        self.rows = problem.rows.astype(self.dtype, copy=False)
        self.scores, self.steps = self.core.block(BLOCK_ROWS), self.core.block(BLOCK_ROWS)
        self.gemm = sgemm if self.dtype == np.float32 else dgemm
        self.order = np.empty(0, dtype=np.int32)

    def advance(self, progress: TopKProgress) -> tuple[float, float]:
        """Passes up to the next evaluation; estimates of the primal and dual bound."""
        with threadpool_limits(limits=1, user_api="blas"):  # sums of several threads depend on their number
            while progress.passes < progress.next_evaluation and not progress.is_out_of_time:
                if len(self.order) == 0:
                    self.order = self.core.next_pass()
                self._visit(self.order[:BLOCK_ROWS])
                self.order = self.order[BLOCK_ROWS:]
                if len(self.order) == 0:
                    self.order = self.core.next_sweep()
                    progress.passes += len(self.order) == 0
        W, scaling = self.core.primal_weights, self.dtype.type(self.problem.intercept_scaling)
        losses = 0.0
        for first, rows in self._row_blocks(self.rows):
            losses += self.core.losses_of_scores(first, rows @ W[:-1] + scaling * W[-1])
        return self.core.bounds_of(losses)

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        penalty, dual = self.core.penalty_and_dual(self.problem.values)
        W = self.core.primal_weights.astype(np.float64)
        losses = 0.0
        for first, rows in self._row_blocks(self.problem.rows):
            scores = rows.astype(np.float64) @ W[:-1] + self.problem.intercept_scaling * W[-1]
            losses += self.core.losses_of_exact_scores(first, scores)
        return penalty + losses, dual

    def _row_blocks(self, rows: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        with threadpool_limits(limits=1, user_api="blas"):
            for first in range(0, len(rows), EVALUATED_ROWS):
                yield first, rows[first : first + EVALUATED_ROWS]

    def _visit(self, order: npt.NDArray[np.int32]) -> None:
        rows, W, scaling = self.rows[order], self.core.weights, self.dtype.type(self.problem.intercept_scaling)
        scores, steps = self.scores[: len(order)], self.steps[: len(order)]
        np.matmul(rows, W[:-1], out=scores)
        scores += scaling * W[-1]
        self.core.visit_block(order, rows @ rows.T + scaling * scaling, scores, steps)
        # W += rows' steps in place: BLAS thinks in columns, so all is transposed.
        self.gemm(1.0, steps.T, rows.T, beta=1.0, c=W[:-1].T, trans_b=True, overwrite_c=True)
        W[-1] += scaling * steps.sum(axis=0)
        self.core.count_visits(len(order))
