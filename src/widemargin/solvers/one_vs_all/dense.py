"""One-vs-all for dense rows: blocks of labels share matrix products with X; every label is certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

The labels of a block take their steps together, in float32:

    SZ = D Xᵀ                      scores of the directions of all labels, (labels, rows)
    a step of each label along its direction
    G = W + A X                    gradients from the slopes A = y c φ'(m)

A direction is the negative gradient, followed by an exact search over (direction, last step, weights, intercept), or a
Newton direction with the Hessian written out, followed by backtracking; the latter where three of them cost less than
the gradient steps that seem to be left. Labels start in the span of the mean positive row, the mean row and the
intercept, or from given weights, which are verified first. Finished labels leave the block and are verified together
over all rows in float64, from their weights as stored:

    g = v + Σ_i y_i c_i φ'(m_i) (x_i, 1),   u = Σ_i y_i α_i (x_i, 1),   D = Σ_i ψ_i(α_i) − ½‖u‖²

where a free intercept is first moved to its optimum, and α is feasible after shrinking its heavier side. A label counts
as solved only when rule and certified gap hold there; others continue, and what float32 steps do not reach is finished
by truncated Newton.

BLAS runs on one thread; threads work on different blocks, whose bounds are fixed, so results do not depend on their
number. Memory: X once more where it is float64; for each thread and label of its block 60 bytes per row and 56 per
feature, and at most 128 MB for a Newton direction. Blocks have at most 32 labels, fewer where `memory_limit_mb` asks
for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import spotrf, spotrs
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.certificate import relative_gap
from widemargin.problems.losses import get_loss
from widemargin.solvers.limits import Limits
from widemargin.solvers.one_vs_all.newton import BlockRun
from widemargin.solvers.one_vs_all.problem import RECORD_COLUMNS, BlockResult, BlockTask, OneVsAllResult
from widemargin.solvers.one_vs_all.starts import GivenStart, Start

if TYPE_CHECKING:
    from widemargin.solvers.one_vs_all.plan import Plan

__all__ = ["block_width", "newton_direction", "solve_dense"]

Single = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_BLOCK = 32  # labels; 64 were 15 % faster in the products alone, but keep fewer threads busy
SHARE = 0.9  # of the rule and of gap_tol: float32 gradients must promise a little more than float64 will check
MORE_DEMANDING = 0.3  # of the targets of a label that failed its verification
MAX_VERIFICATIONS = 4  # after that, float32 does not get there
MAX_STEPS = 300  # float32 steps; what needs more is hard enough for a float64 solver
STEPS_BEFORE_W = 2  # of the start, in which direction w is collinear with the last step
WINDOW = 3  # steps from which the rate of gradient steps is estimated
PRIOR_STEPS_LEFT = 12.0  # gradient steps that are left before a rate is known; well-conditioned data need about 12
SLOWEST_RATE = 0.98  # of the gradient's norm per step: rates beyond are noise
NEWTON_STEPS_LEFT = 3.0  # directions that a change to Newton is charged with
ROW_FLOPS = {"squared_hinge": 400.0, "logistic": 1500.0}  # what a step does to a row, in flops of a matrix product
MAX_DIRECT_BYTES = 64 * 2**20  # of the copied rows, and of the system, of a Newton direction
SLOPE_AT_ZERO = {"squared_hinge": -2.0, "logistic": -0.5}  # φ'(0)
PIECE_BYTES = 4 * 2**20  # of rows converted to float64 at a time; fits a level-3 cache


def solve_dense(plan: Plan, task: BlockTask, limits: Limits, keep_records: bool) -> OneVsAllResult:
    """Solve the labels of a task, rounds of one block of `plan.width` labels for each thread."""
    assert plan.width is not None
    width, X, n_labels = plan.width, plan.problem.X, len(task.positive_factor)
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(task.n_threads) as executor:
        rows = _Rows.of(X, task.row_weight)

        def solve_part(part: BlockTask, out: BlockResult, first: int) -> Double:
            last = min(first + width, len(out.n_iter))
            one = replace(part.select(np.arange(first, last)), n_threads=1)
            table = _solve_block(rows, one, out.part(first, last))
            table[:, 0] += first
            return table

        def solve_round(part: BlockTask, out: BlockResult) -> Double:
            firsts = range(0, len(out.n_iter), width)
            return np.concatenate(list(executor.map(lambda first: solve_part(part, out, first), firsts)))

        size = width * min(task.n_threads, -(-n_labels // width))
        start = Start(n_labels) if plan.start is None else GivenStart(*plan.start)
        return BlockRun(plan, task, start, keep_records, size, size).solve(solve_round, limits)


def _solve_block(rows: _Rows, task: BlockTask, out: BlockResult) -> Double:
    """Solve a block by matrix products, and the labels that need it by truncated Newton in float64; the records."""
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is noticed and given up
        records, rest = _Block(rows, task, out).solve()
    tables = [records]
    for j in rest.tolist():
        steps = int(out.n_iter[j])
        one = replace(task.select(np.array([j])), max_iter=max(0, task.max_iter - steps))
        more = one.solve(rows.X, out.part(j, j + 1))
        more[:, 0] = j
        more[:, 1] += steps
        out.n_iter[j] += steps
        tables.append(more)
    return np.concatenate(tables)


def block_width(n_labels: int, label_bytes: float, memory_limit_mb: float) -> int:
    """Labels of a block: at most 32 and as many as memory holds, evenly many in all blocks.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.dense import block_width
    >>> block_width(101, 60_000, 1024.0), block_width(10, 60_000, 1024.0)
    (26, 10)
    """
    largest = max(1, min(MAX_BLOCK, int(memory_limit_mb * 2**20 / label_bytes)))
    n_blocks = -(-n_labels // largest)
    return -(-n_labels // n_blocks)


@dataclass(frozen=True)
class _Rows:
    """The rows that all blocks share: as given, in float32, and their weighted mean."""

    X: npt.NDArray[Any]
    single: Single
    mean: Single
    mean_scores: Single

    @classmethod
    def of(cls, X: npt.NDArray[Any], row_weight: Double) -> _Rows:
        """Copies X only where it is float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            single = X.astype(np.float32, copy=False)
            mean = (row_weight / row_weight.sum()).astype(np.float32) @ single  # only a start: need not be exact
            return cls(X, single, mean, single @ mean)


@dataclass
class _Labels:
    """The labels that are still running; one row each in every array. `index` is their place in the block."""

    index: Ints
    W: Single
    P: Single  # the last step
    D: Single  # the direction
    G: Single  # the gradient
    S: Single  # scores
    SP: Single  # scores of the last step, without the intercept
    A: Single  # slopes
    cost: Single  # y c
    intercept: Double
    intercept_step: Double  # of the direction
    intercept_gradient: Double
    newton: npt.NDArray[np.bool_]  # whether the direction is Newton's
    past: Double  # gradient norms of the last steps, the latest last
    n_active: Double
    value: Double  # the objective
    stalled: Ints  # steps in a row that went nowhere

    def select(self, which: Any) -> _Labels:
        return _Labels(**{name: values[which] for name, values in vars(self).items()})

    @staticmethod
    def join(parts: list[_Labels]) -> _Labels:
        return _Labels(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _Labels.__annotations__}
        )


class _Block:
    """One block of labels: their targets and their progress."""

    def __init__(self, rows: _Rows, task: BlockTask, out: BlockResult) -> None:
        self.rows, self.task, self.out = rows, task, out
        n_labels = len(task.positive_factor)
        self.intercept_kind = "none" if task.bias_value == 0.0 else "free" if task.bias_penalty == 0.0 else "penalised"
        self.given: npt.NDArray[np.bool_] = np.any(out.coef != 0, axis=1)  # labels with a start
        self.demand = np.ones(n_labels)
        self.n_checks = np.zeros(n_labels, dtype=np.int64)
        self.records: list[npt.NDArray[np.float64]] = []
        self.given_up: list[Ints] = []
        self.limit = min(task.max_iter, MAX_STEPS)
        cost = np.array([_label_cost(task, j) for j in range(n_labels)])
        positive, total = np.maximum(cost, 0.0).sum(axis=1) / task.C, np.abs(cost).sum(axis=1) / task.C
        self.at_zero = float(get_loss(task.loss).value(np.zeros(1))[0]) * task.C * total
        self.two_sided = (positive > 0.0) & (positive < total)
        direction = _sums_of(rows.X, cost)[0]
        squared = np.square(direction).sum(axis=1) + np.square(task.bias_value * cost.sum(axis=1))
        self.norm_at_zero = abs(SLOPE_AT_ZERO[task.loss]) * np.sqrt(squared)
        # The lower bound of the total only matters when the weights of all rows sum to less than one.
        share = np.maximum(1.0, np.minimum(positive, total - positive)) / np.maximum(1.0, total)
        self.rule = task.tol * share * self.norm_at_zero
        self.start = direction / np.maximum(np.abs(cost).sum(axis=1), np.finfo(np.float64).tiny)[:, None]
        self.cost = cost.astype(np.float32)

    def solve(self) -> tuple[Double, Ints]:
        """Steps until all labels are verified or given up; the records, and the labels that were given up.

        Those have in `out` the weights they got to, and their steps in `n_iter`; they are not certified.
        """
        todo = np.full(len(self.rule), self.task.max_iter > 0)
        if self.intercept_kind == "free":
            todo &= self.two_sided  # labels with one side only have a known answer, which the Newton solver gives
        self.given_up.append(np.flatnonzero(~todo))
        parked: list[_Labels] = []
        labels = self._start(np.flatnonzero(todo & ~self.given))
        if (todo & self.given).any():
            labels = _Labels.join([labels, self._continue(np.flatnonzero(todo & self.given))])
        while len(labels.index):
            labels = self._step(labels)
            done, hopeless = self._finished(labels), self._hopeless(labels)
            if done.any() or hopeless.any():
                self._give_up(labels.select(hopeless & ~done))
                parked += [labels.select(done)] if done.any() else []
                labels = labels.select(~(done | hopeless))
            if len(labels.index) == 0 and parked:
                labels = self._verify(_Labels.join(parked))
                parked = []
            if len(labels.index):
                self._choose_directions(labels)
        records = np.concatenate([np.empty((0, len(RECORD_COLUMNS))), *self.records])
        order = np.lexsort((records[:, 1], records[:, 0]))
        return records[order], np.sort(np.concatenate(self.given_up))

    def _start(self, index: Ints) -> _Labels:
        """Zero weights; directions: the negative gradient, and as last step the mean row."""
        size, (n, d) = len(index), self.rows.single.shape
        row, weight, number = np.zeros((size, n), np.float32), np.zeros((size, d), np.float32), np.zeros(size)
        numbers = ("intercept", "intercept_step", "intercept_gradient", "n_active", "value")
        return _Labels(
            index,
            W=weight,
            P=np.tile(self.rows.mean, (size, 1)),
            D=self.start[index].astype(np.float32),
            G=weight.copy(),
            S=row,
            SP=np.tile(self.rows.mean_scores, (size, 1)),
            A=row.copy(),
            cost=self.cost[index],
            newton=np.zeros(size, dtype=bool),
            past=np.full((size, WINDOW + 1), np.inf),
            stalled=np.zeros(size, dtype=np.int64),
            **{name: number.copy() for name in numbers},
        )

    def _continue(self, index: Ints) -> _Labels:
        """Labels at the weights that `out` holds, except those that pass the verification there."""
        labels = self._start(index)
        labels.W = self.out.coef[index].astype(np.float32)
        labels.intercept = self.task.bias_value * self.out.intercept[index].astype(np.float32).astype(np.float64)
        labels = self._verify(labels)
        self.demand[index], self.n_checks[index] = 1.0, 0  # no step has failed yet
        labels.n_active = np.count_nonzero(labels.A, axis=1).astype(np.float64)
        self._choose_directions(labels)
        return labels

    def _step(self, labels: _Labels) -> _Labels:
        """One step of every label: two products over all rows."""
        started, task = time.perf_counter(), self.task
        penalty, out = task.bias_penalty * task.bias_value, np.empty((len(labels.index), 7))
        scores = (labels.S, labels.D @ self.rows.single.T, labels.SP, labels.cost, self._step_inputs(labels))
        _core.dense_steps(task.loss, task.bias_value != 0.0, penalty, *scores, labels.A, out)
        theta, (loss, slope_sum, labels.n_active) = out[:, :4], out[:, 4:].T
        z, p, w = (theta[:, [k]].astype(np.float32) for k in range(3))
        labels.P = z * labels.D + p * labels.P + w * labels.W
        labels.W = labels.W + labels.P
        labels.intercept = labels.intercept + theta[:, 3]
        labels.G = labels.A @ self.rows.single + labels.W
        labels.intercept_gradient = task.bias_value * slope_sum + penalty * labels.intercept
        labels.stalled = np.where(theta.any(axis=1), 0, labels.stalled + 1)
        norm = np.sqrt(_dots(labels.G, labels.G) + np.square(labels.intercept_gradient))
        labels.past = np.column_stack([labels.past[:, 1:], norm])
        self.out.n_iter[labels.index] += 1
        labels.value = 0.5 * _dots(labels.W, labels.W) + 0.5 * penalty * np.square(labels.intercept) + loss
        self._record(labels, theta[:, 0], time.perf_counter() - started)
        return labels

    def _step_inputs(self, labels: _Labels) -> Double:
        """Inner products and numbers of a step, one row per label, in the order of `_core.dense_steps`."""
        D, P, W = labels.D, labels.P, labels.W
        pairs = ((D, D), (D, P), (D, W), (P, P), (P, W), (W, W))
        slope = _dots(labels.G, D) + labels.intercept_gradient * labels.intercept_step
        late = (self.out.n_iter[labels.index] >= STEPS_BEFORE_W) | self.given[labels.index]
        numbers = (labels.intercept, labels.intercept_step, slope, labels.newton, late)
        return np.column_stack([*(_dots(a, b) for a, b in pairs), *numbers]).astype(np.float64)

    def _record(self, labels: _Labels, step: Double, seconds: float) -> None:
        """Rows of the history; all labels get an equal share of the block's time."""
        ratio = labels.past[:, -1] / np.maximum(self.norm_at_zero[labels.index], np.finfo(np.float64).tiny)
        state = (labels.index, self.out.n_iter[labels.index], labels.value, ratio, labels.n_active)
        size = len(labels.index)
        self.records.append(np.column_stack([*state, step, np.zeros(size), np.full(size, seconds / size)]))

    def _finished(self, labels: _Labels) -> npt.NDArray[np.bool_]:
        """Whether rule and gap seem to hold. P − D = ½‖∇‖² where a free intercept is at its optimum."""
        demand = SHARE * self.demand[labels.index]
        gap = _dots(labels.G, labels.G)
        if self.intercept_kind == "penalised":
            gap = gap + np.square(labels.intercept_gradient)
        by_gap = 0.5 * gap <= demand * self.task.gap_tol * labels.value
        done: npt.NDArray[np.bool_] = (labels.past[:, -1] <= demand * self.rule[labels.index]) & by_gap
        return done

    def _hopeless(self, labels: _Labels) -> npt.NDArray[np.bool_]:
        """Labels at the limit of steps, those that float32 no longer moves, and those it cannot hold."""
        stuck = (labels.stalled > 1) | ~np.isfinite(labels.value) | ~np.isfinite(labels.past[:, -1])
        hopeless: npt.NDArray[np.bool_] = stuck | (self.out.n_iter[labels.index] >= self.limit)
        return hopeless

    def _give_up(self, labels: _Labels) -> None:
        """Put the weights of labels where the Newton solver can start from them, if they are finite. Sets: given_up."""
        finite = np.isfinite(labels.W).all(axis=1) & np.isfinite(labels.intercept)
        self.out.coef[labels.index] = np.where(finite[:, None], labels.W, 0.0)
        self.out.intercept[labels.index] = np.where(finite, labels.intercept, 0.0)
        self.given_up.append(labels.index)

    def _choose_directions(self, labels: _Labels) -> None:
        """Newton directions where they pay, else negative gradients. Sets: D, intercept_step, newton."""
        n, d = self.rows.single.shape
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rate = (labels.past[:, -1] / labels.past[:, 0]) ** (1.0 / WINDOW)
            goal = np.minimum(np.sqrt(2.0 * self.task.gap_tol * labels.value), self.rule[labels.index])
            goal = np.minimum(labels.past[:, -1], SHARE * goal)
            left = np.log(labels.past[:, -1] / goal) / -np.log(np.minimum(rate, SLOWEST_RATE))
        left = np.where(np.isfinite(labels.past[:, 0]) & np.isfinite(left), np.maximum(left, 1.0), PRIOR_STEPS_LEFT)
        pass_flops = n * (4.0 * d + ROW_FLOPS[self.task.loss])
        small = 4.0 * d * labels.n_active <= MAX_DIRECT_BYTES
        small &= 4.0 * np.square(np.minimum(labels.n_active, d)) <= MAX_DIRECT_BYTES
        # A direction takes a symmetric product and a Cholesky factor.
        low, high = np.minimum(labels.n_active, d), np.maximum(labels.n_active, d)
        pays = NEWTON_STEPS_LEFT * (low**2 * high + low**3 / 3.0) <= left * pass_flops
        # A label that has changed to Newton stays with it: going back and forth took twice as many steps.
        wanted = small & (pays | labels.newton) & (labels.n_active > 0) & (labels.stalled == 0)
        labels.D, labels.intercept_step = -labels.G, np.zeros(len(labels.index))
        labels.newton = np.zeros(len(labels.index), dtype=bool)
        for k in np.flatnonzero(wanted).tolist():
            labels.newton[k] = self._newton(labels, k)

    def _newton(self, labels: _Labels, k: int) -> bool:
        """Put label k's Newton direction in its place; false where there is none that goes down."""
        active = np.flatnonzero(labels.A[k])
        margins = np.copysign(labels.S[k, active], labels.S[k, active] * labels.cost[k, active])
        curvature = np.abs(labels.cost[k, active]) * get_loss(self.task.loss).second_derivative(margins)
        found = newton_direction(
            self.rows.single[active],
            curvature.astype(np.float32),
            labels.G[k],
            float(labels.intercept_gradient[k]),
            self.intercept_kind,
        )
        if found is None:
            return False
        slope = float(np.dot(labels.G[k].astype(np.float64), found[0])) + labels.intercept_gradient[k] * found[1]
        if not slope < 0.0:
            return False
        labels.D[k], labels.intercept_step[k] = found
        return True

    def _verify(self, labels: _Labels) -> _Labels:
        """Store the labels for which rule and gap hold in float64 over all rows; the others, with exact gradients."""
        X, task, index = self.rows.X, self.task, labels.index
        weights, cost = labels.W.astype(np.float64), np.array([_label_cost(task, j) for j in index.tolist()])
        scores = _scores_of(X, weights) + task.bias_value * labels.intercept[:, None]
        slopes, dual_slopes, sums = np.empty_like(scores), np.empty_like(scores), np.empty((len(index), 5))
        intercept_rule = (task.loss, task.bias_value, task.bias_penalty, X.dtype == np.float32)
        _core.certify_dense(*intercept_rule, scores, cost, labels.intercept, slopes, dual_slopes, sums)
        labels.intercept, loss, conjugates, slope_sum, dual_sum = sums.T  # a free intercept is moved
        gradient, u = _sums_of(X, slopes, dual_slopes)
        gradient += weights
        penalty = task.bias_penalty * task.bias_value
        labels.intercept_gradient = task.bias_value * slope_sum + penalty * labels.intercept
        squared_u = np.square(u).sum(axis=1) + np.square(penalty * dual_sum)
        regularised = 0.5 * np.square(weights).sum(axis=1) + 0.5 * task.bias_penalty * np.square(labels.intercept)
        labels.value = regularised + loss
        dual = np.minimum(labels.value, np.maximum(0.0, conjugates - 0.5 * squared_u))
        norm = np.sqrt(np.square(gradient).sum(axis=1) + np.square(labels.intercept_gradient))
        good = (norm <= self.rule[index]) & (relative_gap(labels.value, dual) <= task.gap_tol)
        self._store(index[good], weights[good], labels.intercept[good], labels.value[good], dual[good])
        if self.out.duals is not None:
            for k in np.flatnonzero(good).tolist():
                alpha = np.abs(dual_slopes[k]) * (dual[k] > 0.0)  # else the bound is that of α = 0
                kept = np.flatnonzero(alpha)
                self.out.duals[index[k]] = kept.astype(np.int32), alpha[kept].astype(np.float32)
        self.n_checks[index] += 1
        self.demand[index] *= MORE_DEMANDING
        labels.S, labels.A = scores.astype(np.float32), slopes.astype(np.float32)
        labels.G, labels.past[:, -1] = gradient.astype(np.float32), norm
        again = (self.n_checks[index] < MAX_VERIFICATIONS) & (self.out.n_iter[index] < self.limit)
        self._give_up(labels.select(~(good | again)))
        return labels.select(again & ~good)

    def _store(self, index: Ints, weights: Double, intercept: Double, primal: Double, dual: Double) -> None:
        """Weights as stored, small ones dropped, and their bounds."""
        task, out = self.task, self.out
        kept = np.where(np.abs(weights) >= task.prune, weights, 0.0)
        after, share = primal, np.zeros(len(index))
        if task.prune > 0.0 and len(index):
            cost = np.array([_label_cost(task, j) for j in index.tolist()])
            scores = _scores_of(self.rows.X, kept) + task.bias_value * intercept[:, None]
            losses = np.abs(cost) * get_loss(task.loss).value(np.where(np.signbit(cost), -scores, scores))
            squared, before = np.square(kept).sum(axis=1), np.square(weights).sum(axis=1)
            after = 0.5 * squared + 0.5 * task.bias_penalty * np.square(intercept) + losses.sum(axis=1)
            share = np.where(before > squared, 1.0 - squared / np.where(before > 0.0, before, 1.0), 0.0)
        out.coef[index], out.intercept[index] = kept, intercept
        out.bounds[index] = np.column_stack([after, dual, self.at_zero[index], primal, share])
        out.converged[index] = 1


def _dots(a: Single, b: Single) -> Double:
    """Σ_k a_jk b_jk of each row j, shape (n_labels,)."""
    dots: Double = np.einsum("jk,jk->j", a, b).astype(np.float64)
    return dots


def _label_cost(task: BlockTask, j: int) -> Double:
    """y_i c_i of label j, shape (n_samples,): −0.0 for negative rows of no weight."""
    cost: Double = -(task.C * task.negative_factor[j]) * task.row_weight
    rows = task.positive_rows[task.positive_indptr[j] : task.positive_indptr[j + 1]]
    cost[rows] = task.C * task.positive_factor[j] * task.row_weight[rows]
    return cost


def _pieces(X: npt.NDArray[Any]) -> Iterator[tuple[slice, Double]]:
    """Ranges of rows, and these rows as float64."""
    step = max(1, PIECE_BYTES // (8 * max(1, X.shape[1])))
    for first in range(0, len(X), step):
        part = slice(first, first + step)
        yield part, X[part].astype(np.float64, copy=False)


def _scores_of(X: npt.NDArray[Any], weights: Double) -> Double:
    """W Xᵀ in float64, shape (n_labels, n_samples)."""
    scores = np.empty((len(weights), len(X)))
    for part, rows in _pieces(X):
        scores[:, part] = weights @ rows.T
    return scores


def _sums_of(X: npt.NDArray[Any], *factors: Double) -> list[Double]:
    """A X in float64 for each A of shape (n_labels, n_samples); one pass over the rows."""
    sums = [np.zeros((len(A), X.shape[1])) for A in factors]
    for part, rows in _pieces(X):
        for total, A in zip(sums, factors, strict=True):
            total += A[:, part] @ rows
    return sums


def newton_direction(
    rows: Single, curvature: Single, gradient: Single, intercept_gradient: float, kind: str
) -> tuple[Single, float] | None:
    """Solve H (d, e) = −(gradient, intercept_gradient); None where float32 has no answer.

        H = I + Σ_i h_i x_i x_iᵀ   over the rows with curvature h_i = c_i φ''(m_i) > 0

    With fewer such rows than features the system has one unknown per row: with R = √h · X and the right-hand side r,
    d = r − Rᵀ(I + R Rᵀ)⁻¹ R r; otherwise one per feature. A free intercept is eliminated, which centres the rows by
    their weighted mean; a penalised one is a further column of ones. A direction need not be exact, so everything is
    float32. Memory: the active rows once more, and min(active, features)² entries.

    Parameters
    ----------
    rows : ndarray of float32 of shape (n_active, n_features)
        The rows with curvature; overwritten.
    curvature : ndarray of float32 of shape (n_active,)
        h_i.
    gradient : ndarray of float32 of shape (n_features,)
        ∇L for the weights.
    intercept_gradient : float
        ∂L/∂b.
    kind : {"none", "free", "penalised"}
        The kind of intercept.

    Returns
    -------
    tuple of (ndarray of shape (n_features,), float) or None
        The direction of the weights and of the intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.dense import newton_direction
    >>> one = np.ones(1, dtype=np.float32)
    >>> d, e = newton_direction(np.array([[2.0]], dtype=np.float32), one, one, 0.0, "none")
    >>> d.tolist(), e  # (1 + 2²) d = −1
    ([-0.19999998807907104], 0.0)
    """
    total = float(curvature.sum(dtype=np.float64))
    root = np.sqrt(curvature)[:, None]
    right = -gradient
    mean = right
    if kind == "free":
        mean = (curvature @ rows) / np.float32(total)
        right = np.float32(intercept_gradient) * mean - gradient
        rows -= mean
    elif kind == "penalised":
        rows = np.column_stack([rows, np.ones(len(rows), dtype=np.float32)])
        right = np.append(right, np.float32(-intercept_gradient))
    rows *= root
    direction = _solve_shifted(rows, right)
    if direction is None:
        return None
    if kind == "penalised":
        return direction[:-1], float(direction[-1])
    # The intercept's own equation: Σh (mean·d) + Σh e = −intercept_gradient.
    return direction, -intercept_gradient / total - float(mean @ direction) if kind == "free" else 0.0


def _solve_shifted(rows: Single, right: Single) -> Single | None:
    """(I + RᵀR)⁻¹ right, by the smaller of the two systems; None where the factor does not exist in float32."""
    by_row = len(rows) < rows.shape[1]
    matrix = rows @ rows.T if by_row else rows.T @ rows
    matrix[np.diag_indices(len(matrix))] += np.float32(1.0)
    # The transpose of a symmetric matrix in C order is itself in Fortran order: nothing is copied. NumPy's Cholesky
    # took two to three times as long.
    factor, info = spotrf(matrix.T, overwrite_a=True, clean=False)
    if info != 0:
        return None
    inner, info = spotrs(factor, rows @ right if by_row else right)
    solution: Single = right - rows.T @ inner if by_row else inner
    return solution if info == 0 and bool(np.isfinite(solution).all()) else None
