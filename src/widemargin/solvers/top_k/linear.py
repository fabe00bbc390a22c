"""Top-k multiclass SVM by dual coordinate ascent, one row a block.

    minimise  ½‖W‖² + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   s_i = W x_i

with a top-k hinge φ; for k = 1 this is the multiclass SVM of Crammer and Singer. An intercept is the weight of a
constant feature of value `bias`, and part of the penalty. Rows are visited in random order, a pass after another; rows
whose visits change next to nothing are left out for a while; the weights returned are an average over the last passes.
Stops when the certified relative gap, primal at the weights returned and dual at the dual variables returned, is at
most `tol`. Weights are float32 while that is enough for `tol`, then float64. Memory: W twice, the dual variables that
are not 0 (all of them below 96 classes), and a copy of X where it is of another type than W.

A step on the face of the dual that an ascent has settled on, for problems where single rows move too slowly.

The dual variables strictly between their bounds stay free, the others keep to their bound (for α: to ⟨1,x⟩/k, which
moves); on a row with ⟨1,x⟩ = C_i the sum stays. On that face the dual is a quadratic without bounds,

    D(x + T v) = D(x) + g·v − ½ v'H v,        H v = T' (scores of the change of W),

maximised by conjugate gradients, preconditioned by the blocks of H of single rows, N_i (I + c 11'). The step is then
cut to what improves the dual after projection of every row onto its domain. Cost of an iteration: two products of the
rows that have dual variables with a matrix of the size of W; memory: a few arrays (support rows, n_classes) in
float64.

When a dual ascent is evaluated, why it ends, and what is kept of the way there.

The compiled dual ascent of the top-k multiclass SVM as the solver sees it: data in, weights and certificate out.

Dual ascent on wide dense rows: scores and steps of a block of rows by matrix products.

Visits of single rows read a large W again and again, from beyond the cache. Here the scores of a block of rows are one
product with W, visits within the block pass on what they change through the block's Gram matrix, and their steps reach
W in one more product: the same visits in the same order, up to rounding. Evaluation and certificate take their scores
from products, too. Memory beyond that of the ascent: blocks of rows, and W in float64 for the certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, sgemm
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.reference.top_k_ascent import ascend, bounds, weights_of
from widemargin.solvers.limits import GROWTH_GAP, Limits, best_growth, best_multiple, history_of
from widemargin.solvers.result import Callback, History, SolverResult, Status

__all__ = [
    "Ascent",
    "BlockedAscent",
    "Face",
    "TopKProblem",
    "TopKProgress",
    "face_step",
    "is_wide",
    "solve_top_k",
    "with_constant",
]

Floats = npt.NDArray[np.float64]
AT_BOUND = 1e-9
"""Relative distance from a bound within which a dual variable, or a sum of them, is taken to be there."""
RESIDUAL = 1e-6
"""Conjugate gradients end when the residual is this small against the first."""
HALVINGS = 12
"""Of the step, before it is given up."""


class Face:
    """The free directions at dual variables x (n_rows, n_classes) of rows X (n_rows, n_features) with positive costs.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.linear import Face
    >>> X, y, x = np.eye(2), np.array([0, 1]), np.array([[0.0, 0.2, 0.0], [1.0, 0.0, 0.0]])
    >>> Face(X, y, x, np.ones(2), TopKHinge(1)).free.tolist()  # the second row's is at its bound
    [[False, True, False], [False, False, False]]
    """

    def __init__(self, X: Any, y: npt.NDArray[np.int64], x: Floats, costs: Floats, loss: TopKHinge) -> None:
        self.X, self.y, self.rows = X, y, np.arange(len(y))
        total = x.sum(axis=1)
        cap = (total if loss.variant == "alpha" else costs) / loss.k
        at_cap = (x >= cap[:, None] * (1.0 - AT_BOUND)) & (x > 0.0)
        self.free = (x > AT_BOUND * costs[:, None]) & ~at_cap
        fixed_sum = total >= costs * (1.0 - AT_BOUND)
        alpha = loss.variant == "alpha" and loss.k > 1
        # With p values at the cap σ/k, a change v of the free ones changes the sum by σ' = Σv + p σ'/k.
        n_capped = at_cap.sum(axis=1) if alpha else np.zeros(len(y))
        moves = ~fixed_sum & (n_capped < loss.k)
        self.rise = np.where(moves, loss.k / np.maximum(loss.k - n_capped, 1.0), 0.0)
        self.follow = at_cap / loss.k if alpha else np.zeros_like(x)
        self.count = np.maximum(self.free.sum(axis=1), 1)
        squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
        self.norms = np.maximum(np.asarray(squares).ravel(), np.finfo(float).tiny)
        self.curvature = self.rise**2 * (1.0 + n_capped / loss.k**2)

    def within(self, v: Floats) -> Floats:
        """The part of v (n_rows, n_classes) that is on the face: free, and of sum 0 where the sum is fixed."""
        v = np.where(self.free, v, 0.0)
        mean = np.where(self.rise == 0.0, v.sum(axis=1) / self.count, 0.0)
        return v - np.where(self.free, mean[:, None], 0.0)

    def change(self, v: Floats) -> tuple[Floats, Floats]:
        """The change of x and that of the signed duals, for v on the face."""
        sums = self.rise * v.sum(axis=1)
        dx = v + self.follow * sums[:, None]
        da = -dx
        da[self.rows, self.y] = sums
        return dx, da

    def pull(self, scores: Floats) -> Floats:
        """T' for values (n_rows, n_classes) of the signed duals: what a unit of each free variable picks up."""
        own = scores[self.rows, self.y] - (self.follow * scores).sum(axis=1)
        return self.within((self.rise * own)[:, None] - scores)

    def hessian(self, v: Floats) -> Floats:
        """H v."""
        W = self.change(v)[1].T @ self.X
        return self.pull(np.asarray(self.X @ W.T))

    def precondition(self, r: Floats) -> Floats:
        """r by the inverse of the blocks N_i (I + c 11')."""
        share = self.curvature / (1.0 + self.curvature * self.count)
        scaled = (r - np.where(self.free, (share * r.sum(axis=1))[:, None], 0.0)) / self.norms[:, None]
        return self.within(scaled)

    def ascend(self, gradient: Floats, max_iter: int) -> Floats:
        """The v that maximises the quadratic, or is on the way there after `max_iter` conjugate gradients."""
        v, r = np.zeros_like(gradient), gradient
        z = self.precondition(r)
        p, rz = z, float((r * z).sum())
        target = RESIDUAL**2 * rz
        for _ in range(max_iter):
            Hp = self.hessian(p)
            pHp = float((p * Hp).sum())
            if not pHp > 0.0:
                break
            step = rz / pHp
            v, r = v + step * p, r - step * Hp
            z = self.precondition(r)
            rz, previous = float((r * z).sum()), rz
            if not rz > target:
                break
            p = z + (rz / previous) * p
        return v


def face_step(
    X: Any, y: npt.NDArray[np.int64], x: Floats, costs: Floats, loss: TopKHinge, max_iter: int = 200
) -> tuple[Floats, float]:
    """Dual variables x (n_rows, n_classes) after a step on their face, and how much the dual gained; γ must be 0.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.linear import face_step
    >>> X, y, x = np.array([[1.0]]), np.array([0]), np.array([[0.0, 0.1]])
    >>> face_step(X, y, x, np.ones(1), TopKHinge(1))  # D = x − ½(x² + x²), largest at ½
    (array([[0. , 0.5]]), 0.16)
    """
    face = Face(X, y, x, costs, loss)
    W = weights_of(X, y, x)
    gradient = face.within(face.rise[:, None] - face.pull(np.asarray(X @ W.T)))
    if not gradient.any():
        return x, 0.0
    dx, _ = face.change(face.ascend(gradient, max_iter))
    before = float(x.sum()) - 0.5 * float((W * W).sum())
    for halving in range(HALVINGS):
        moved = _project(x + 0.5**halving * dx, y, costs, loss)
        W = weights_of(X, y, moved)
        gain = float(moved.sum()) - 0.5 * float((W * W).sum()) - before
        if gain > 0.0:
            return moved, gain
    return x, 0.0


def with_constant(X: Any, bias: float) -> Any:
    """X (n_rows, n_features) with a last column of value `bias`, or as it is if that is 0."""
    if bias == 0.0:
        return X
    column = np.full((X.shape[0], 1), bias)
    return sp.csr_array(sp.hstack([X, column])) if sp.issparse(X) else np.hstack([X, column])


def _project(x: Floats, y: npt.NDArray[np.int64], costs: Floats, loss: TopKHinge) -> Floats:
    """Every row onto its domain; the true class is not one of its coordinates."""
    wrong = np.arange(x.shape[1]) != y[:, None]
    moved = np.zeros_like(x)
    moved[wrong] = loss.project(x[wrong].reshape(len(x), -1), costs).ravel()
    return moved


FIRST_EVALUATION = 4
"""Pass of the first evaluation, of an ascent from zero."""
UNSEEN_SHARE = 0.7
"""Part of the passes foreseen from an earlier fit that go by without an evaluation; the second one is at their end.
Paths k = 10, 5, 3, 1 with α on letter and 20newsgroups against fits from scratch: 1.16 and 1.21 with .7, 1.12 and 1.20
with .5, .96 and 1.04 with an evaluation of the start and short steps from there."""
CAUTION = 0.8
"""Share of the predicted way that is gone before the next evaluation: predictions from early passes are too long."""
GROWTH = 1.0
"""Most that the number of passes grows from an evaluation to the next, relative to the passes so far."""
FACE_GAP = 0.05
"""Gap from which on a step on the face is tried: further away dual variables have not found their bounds."""
FACE_PASSES = 100
"""Passes still expected, at least, for a step on the face to be worth it."""
LEAST_GAIN = 0.01
"""Share of the gap that a step on the face must gain for another to follow soon."""
PASSES_AFTER_FACE = 20
"""Passes between a step on the face and the next evaluation."""
LEAST_GROWTH = 0.03
"""Least that the number of passes grows; an evaluation costs as much as one or two passes over all rows."""
STALL = 4
"""The gap stalls if it does not halve while the passes grow by this factor."""
STALL_PASSES = 200
"""Passes before that is said: the first ones are slow, too."""


class TopKProgress(Limits):
    """Counts passes, asks for evaluations where the gap is expected to be reached, and records them.

    Parameters
    ----------
    tol : float
        Relative gap to reach.
    max_iter : int
        Passes at most.
    callback : callable or None
        Called with a `Progress` after each evaluation.

    Examples
    --------
    >>> from widemargin.solvers.top_k.linear import TopKProgress
    >>> progress = TopKProgress(tol=1e-3, max_iter=7, callback=None)
    >>> progress.passes += progress.passes_to_go
    >>> progress.record(bounds=(2.0, 1.0), n_active=10, n_visits=40)
    >>> progress.passes, progress.passes_to_go, progress.status
    (4, 3, None)
    """

    def __init__(self, tol: float, max_iter: int, callback: Callback | None) -> None:
        super().__init__(max_iter, callback)
        self.tol = tol
        self.passes = 0
        self.next_evaluation = min(FIRST_EVALUATION, max_iter)
        self.status: Status | None = None
        self.certified: tuple[float, float] | None = None
        self._rows: list[tuple[float, ...]] = []
        self._gaps: list[float] = []  # since the last restart
        self._face_gap = FACE_GAP  # that the next step on the face waits for
        self._expected = 0.0  # passes up to the tolerance
        self._foreseen = 0  # passes in all, by an earlier fit

    @property
    def passes_to_go(self) -> int:
        """Passes up to the next evaluation."""
        return self.next_evaluation - self.passes

    @property
    def looks_reached(self) -> bool:
        """Whether the last evaluation was within the tolerance."""
        return self._gaps[-1] <= self.tol

    @property
    def stalls(self) -> bool:
        """Whether the gap has hardly moved for long, as where rounding keeps it up."""
        recent = self._rows[-len(self._gaps) :]
        earlier = [row[4] for row in recent if STALL * row[0] <= self.passes]
        later = self._gaps[len(earlier) :]  # a small gap long ago, by luck, is no progress
        return self.passes >= STALL_PASSES and bool(earlier) and bool(later) and min(later) > 0.5 * earlier[-1]

    @property
    def wants_face_step(self) -> bool:
        """Whether the way is still long and dual variables are likely to have found their bounds."""
        return self._gaps[-1] <= self._face_gap and self._expected >= FACE_PASSES

    def begin_from_start(self, foreseen: int) -> None:
        """Plan for given dual variables: an evaluation at once if no fit tells how many passes to foresee."""
        self._foreseen = foreseen
        self.next_evaluation = min(self.max_iter, int(UNSEEN_SHARE * foreseen))

    def note_face_step(self, gain: float) -> None:
        """Plan on after a step on the face; one that gained little waits for half the gap."""
        gap, primal, dual = self._gaps[-1], *self._rows[-1][2:4]
        if gain < LEAST_GAIN * (primal - dual):
            self._face_gap = 0.5 * gap
            return
        self._face_gap = 0.9 * gap  # the next one only if this one leads on
        self.next_evaluation = min(self.max_iter, self.passes + PASSES_AFTER_FACE)
        self._gaps.clear()

    def record(self, bounds: tuple[float, float], n_active: int, n_visits: int) -> None:
        """Keep an evaluation, plan the next, and see whether something asks to stop."""
        primal, dual = bounds
        gap = float(relative_gap(np.array([primal]), np.array([dual]))[0])
        seconds = self.elapsed_s
        self._rows.append((self.passes, seconds, primal, dual, gap, n_active, n_visits))
        self._gaps.append(gap)
        self.next_evaluation = min(self.max_iter, self.passes + self._passes_needed(gap))
        self.status = self.reached(self.passes, seconds, primal, dual) or self.status

    def accept(self, bounds: tuple[float, float]) -> None:
        """Take certified bounds; they end the ascent if they are close enough."""
        primal, dual = bounds
        if float(relative_gap(np.array([primal]), np.array([dual]))[0]) <= self.tol:
            self.certified, self.status = (primal, dual), Status.CONVERGED

    def restart(self) -> None:
        """Forget the gaps so far: from now on another precision makes them."""
        self._gaps.clear()

    def history(self) -> History:
        """One row an evaluation."""
        names = ("iteration", "seconds", "primal", "dual", "relative_gap", "active_rows", "visits")
        return history_of(self._rows, names, whole=("iteration", "active_rows", "visits"))

    def _passes_needed(self, gap: float) -> int:
        """How many passes the gap is expected to need: its logarithm falls along a line."""
        most = max(2, int(GROWTH * self.passes))
        self._expected = np.inf
        if len(self._rows) == 1 and 0 < self.passes < self._foreseen:
            return self._foreseen - self.passes
        if len(self._gaps) < 2 or not 0.0 < gap < self._gaps[-2]:
            return most
        before = self._rows[-2]
        rate = np.log(before[4] / gap) / max(self.passes - before[0], 1.0)
        self._expected = float(np.log(max(gap / self.tol, 1.0)) / rate)
        return int(np.clip(CAUTION * self._expected, max(1.0, LEAST_GROWTH * self.passes), most))


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


FLOAT32_TOL = 1e-5
"""Below this gap rounding of float32 weights is felt: on digits with C = 1 it stays above 1e-5."""


def solve_top_k(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    *,
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    foreseen_passes: int = 0,
    callback: Callback | None = None,
    backend: str = "core",
) -> SolverResult:
    """Train, and certify what is returned.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    y : ndarray of int64 of shape (n_samples,)
        Class of each row, 0 … n_classes − 1.
    n_classes : int
        Number of classes; some may have no row.
    loss : TopKHinge
        The loss of a row's margins; its k is at most n_classes − 1.
    costs : ndarray of shape (n_samples,)
        C_i ≥ 0; rows of cost 0 count as absent.
    bias : float
        Value of the constant feature; 0 for none.
    tol : float
        Relative gap to reach.
    max_iter : int
        Passes over the rows at most.
    seed : int
        Of the order in which rows are visited.
    n_threads : int
        Threads of evaluations; the ascent is sequential. Results do not depend on it.
    start : csr_array of shape (n_samples, n_classes) or None
        Dual variables to start from, feasible for `loss` and `costs`; 0 at the true classes.
    foreseen_passes : int
        Passes that a problem as hard took; the gap is not looked at before a good part of them. 0: at once.
    callback : callable or None
        Called with a `Progress` after evaluations; stops the solver when true.
    backend : {"core", "reference"}
        The compiled solver, or its specification in NumPy (slow, dense, float64, without limit of time and callback).

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
    if not 1 <= loss.k < n_classes:
        raise ValueError(f"k={loss.k} must be at least 1 and below the number of classes, {n_classes}")
    if not (costs > 0.0).any():
        raise ValueError("all rows have weight 0; at least one needs a positive weight")
    if backend == "reference":
        return _solve_by_reference(X, y, n_classes, loss, costs, bias, tol, max_iter, seed, start)
    problem = TopKProblem.of(X, y, n_classes, loss, costs, bias)
    progress = TopKProgress(tol, max_iter, callback)
    kind = BlockedAscent if is_wide(problem) else Ascent
    single = tol >= FLOAT32_TOL and problem.fits_single()
    ascent = kind(problem, np.float32 if single else np.float64, seed, n_threads, start)
    if start is not None:  # evaluated at once, it may be enough, and tells which rows may sleep
        progress.begin_from_start(foreseen_passes)
    while progress.status is None:
        ascent.advance(progress)
        progress.record(ascent.evaluate(), ascent.core.n_active, ascent.core.n_visits)
        if progress.looks_reached:
            progress.accept(ascent.certify())
        if progress.status is None and progress.stalls and ascent.dtype == np.float32:
            ascent = kind(problem, np.float64, seed, n_threads, ascent.duals())
            progress.restart()
        elif progress.status in (None, Status.MAX_ITER) and progress.stalls and ascent.is_at_rounding():
            progress.status = Status.NOT_ATTAINED
        elif progress.status is None and progress.wants_face_step:
            ascent.step_on_face(progress)
    return ascent.result(progress)


def _solve_by_reference(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    bias: float,
    tol: float,
    max_iter: int,
    seed: int,
    start: Any,
) -> SolverResult:
    rows = np.asarray(X.todense() if sp.issparse(X) else X, dtype=np.float64)
    rows = np.hstack([rows, np.full((len(rows), 1), bias)])
    x = np.zeros((len(y), n_classes)) if start is None else np.asarray(start.todense(), dtype=np.float64)
    progress = TopKProgress(tol, max_iter, None)
    rng = np.random.default_rng(seed)
    progress.passes, reached = ascend(rows, y, x, costs, loss, tol=tol, max_iter=max_iter, rng=rng)
    W = weights_of(rows, y, x)
    primal, dual = bounds(W, rows, y, x, costs, loss)
    progress.record((primal, dual), len(y), progress.passes * len(y))
    at_zero = float(costs @ loss.value(np.ones((len(y), n_classes - 1))))
    return SolverResult(
        coef=W[:, :-1],
        intercept=bias * W[:, -1],
        dual=sp.csr_array(x),
        certificate=Certificate(primal, dual, at_zero, primal),
        history=progress.history(),
        n_iter=np.array([progress.passes]),
        status=Status.CONVERGED if reached else Status.MAX_ITER,
    )
