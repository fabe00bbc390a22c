"""A block of labels over dense rows: all of them take their steps together, so that X is read by matrix products.

    SZ = D Xᵀ                     scores of the directions of all labels, (labels, rows)
    a step of each label           along its direction: see `widemargin.reference.dense_one_vs_all`
    G = W + A X                    gradients from the slopes A = y c φ'(m)

A direction is the negative gradient, followed by an exact search over (direction, last step, weights, intercept), or a
Newton direction with the Hessian written out, followed by backtracking; the latter where three of them cost less than
the gradient steps that seem to be left. Labels begin in the span of the mean positive row, the mean row and the
intercept. Finished ones leave the block and are verified together in float64; what fails goes on from there.

Products and steps are float32. Memory: 24 bytes a row and a feature for each label; while verifying, 32 more of each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin import _core
from widemargin.problems.losses import get_loss
from widemargin.reference.one_vs_all import RECORD_COLUMNS, BlockResult, BlockTask
from widemargin.solvers._dense_newton import direct_flops, newton_direction
from widemargin.solvers._dense_verify import label_cost, scores_of, sums_of, verify

__all__ = ["DenseRows", "solve_dense_block"]

Single = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARE = 0.9  # of the rule and of gap_tol: float32 gradients must promise a little more than float64 will check
MORE_DEMANDING = 0.3  # of the targets of a label that failed its verification
MAX_VERIFICATIONS = 4  # then float32 does not get there
MAX_STEPS = 300  # float32 steps; what needs more is hard enough for a float64 solver
STEPS_BEFORE_W = 2  # of the start, in which direction w is collinear with the last step
WINDOW = 3  # steps from which the rate of gradient steps is estimated
PRIOR_STEPS_LEFT = 12.0  # gradient steps that are left, before a rate is known; well-conditioned data need about 12
SLOWEST_RATE = 0.98  # of the gradient's norm a step: rates beyond are noise
NEWTON_STEPS_LEFT = 3.0  # directions that a change to Newton is charged with
ROW_FLOPS = {"squared_hinge": 400.0, "logistic": 1500.0}  # what a step does to a row, in flops of a matrix product
MAX_DIRECT_BYTES = 64 * 2**20  # of the copied rows, and of the system, of a Newton direction
SLOPE_AT_ZERO = {"squared_hinge": -2.0, "logistic": -0.5}  # φ'(0)


@dataclass(frozen=True)
class DenseRows:
    """The rows that all blocks share: as given, in float32, and their weighted mean."""

    X: npt.NDArray[Any]
    single: Single
    mean: Single
    mean_scores: Single

    @classmethod
    def of(cls, X: npt.NDArray[Any], row_weight: Double) -> DenseRows:
        """Copies X only where it is float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            single = X.astype(np.float32, copy=False)
            mean = (row_weight / row_weight.sum()).astype(np.float32) @ single  # to start with: need not be exact
            return cls(X, single, mean, single @ mean)


@dataclass
class _Labels:
    """The labels that are on their way; one row each in every array. `index` is their place in the block."""

    index: Ints
    W: Single
    P: Single  # the last step
    D: Single  # the direction
    G: Single  # the gradient
    S: Single  # scores
    SP: Single  # scores of the last step, without the intercept
    A: Single  # slopes
    cost: Single  # y c
    bias: Double
    bias_step: Double  # of the direction
    bias_gradient: Double
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


def solve_dense_block(rows: DenseRows, task: BlockTask, out: BlockResult) -> tuple[Double, Ints]:
    """Solve the labels of a task into `out`; returns the records and the labels that float32 steps did not finish.

    Unfinished labels have in `out` the weights they got to, and their steps in `n_iter`; they are not certified.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is found out and given up
        return _Block(rows, task, out).solve()


class _Block:
    """One block: what its labels have in common."""

    def __init__(self, rows: DenseRows, task: BlockTask, out: BlockResult) -> None:
        self.rows, self.task, self.out = rows, task, out
        n_labels = len(task.positive_factor)
        self.has_bias = task.bias_value != 0.0
        self.bias_kind = "none" if not self.has_bias else "free" if task.bias_penalty == 0.0 else "penalised"
        self.demand = np.ones(n_labels)
        self.n_checks = np.zeros(n_labels, dtype=np.int64)
        self.records: list[npt.NDArray[np.float64]] = []
        self.given_up: list[Ints] = []
        self.limit = min(task.max_iter, MAX_STEPS)
        cost = np.array([label_cost(task, j) for j in range(n_labels)])
        positive, total = np.maximum(cost, 0.0).sum(axis=1) / task.C, np.abs(cost).sum(axis=1) / task.C
        self.at_zero = float(get_loss(task.loss).value(np.zeros(1))[0]) * task.C * total
        self.two_sided = (positive > 0.0) & (positive < total)
        direction = sums_of(rows.X, cost)[0]
        squared = np.square(direction).sum(axis=1) + np.square(task.bias_value * cost.sum(axis=1))
        self.norm_at_zero = abs(SLOPE_AT_ZERO[task.loss]) * np.sqrt(squared)
        # As in widemargin.reference.one_vs_all: the total is below one only for tiny weights.
        share = np.maximum(1.0, np.minimum(positive, total - positive)) / np.maximum(1.0, total)
        self.rule = task.tol * share * self.norm_at_zero
        self.start = direction / np.maximum(np.abs(cost).sum(axis=1), np.finfo(np.float64).tiny)[:, None]
        self.cost = cost.astype(np.float32)

    def solve(self) -> tuple[Double, Ints]:
        """Steps until all labels are verified or given up."""
        todo = np.full(len(self.rule), self.task.max_iter > 0)
        if self.bias_kind == "free":  # labels of one side have a known answer, which the other solver knows
            todo &= self.two_sided
        self.given_up.append(np.flatnonzero(~todo))
        parked: list[_Labels] = []
        labels = self._begin(np.flatnonzero(todo))
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

    def _begin(self, index: Ints) -> _Labels:
        """Zero weights; directions: the negative gradient, and as last step the mean row."""
        size, (n, d) = len(index), self.rows.single.shape
        row, weight = np.zeros((size, n), np.float32), np.zeros((size, d), np.float32)
        number = np.zeros(size)
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
            bias=number,
            bias_step=number.copy(),
            bias_gradient=number.copy(),
            newton=np.zeros(size, dtype=bool),
            past=np.full((size, WINDOW + 1), np.inf),
            n_active=number.copy(),
            value=number.copy(),
            stalled=np.zeros(size, dtype=np.int64),
        )

    def _step(self, labels: _Labels) -> _Labels:
        """One step of every label: two products over all rows."""
        started, task = time.perf_counter(), self.task
        direction_scores = labels.D @ self.rows.single.T
        inputs, out = self._step_inputs(labels), np.empty((len(labels.index), 7))
        penalty = task.bias_penalty * task.bias_value
        _core.dense_steps(
            task.loss, self.has_bias, penalty, labels.S, direction_scores, labels.SP, labels.cost, inputs, labels.A, out
        )
        theta, (loss, slope_sum, labels.n_active) = out[:, :4], out[:, 4:].T
        z, p, w = (theta[:, [k]].astype(np.float32) for k in range(3))
        labels.P = z * labels.D + p * labels.P + w * labels.W
        labels.W = labels.W + labels.P
        labels.bias = labels.bias + theta[:, 3]
        labels.G = labels.A @ self.rows.single + labels.W
        labels.bias_gradient = task.bias_value * slope_sum + penalty * labels.bias
        labels.stalled = np.where(theta.any(axis=1), 0, labels.stalled + 1)
        norm = np.sqrt(_dots(labels.G, labels.G) + np.square(labels.bias_gradient))
        labels.past = np.column_stack([labels.past[:, 1:], norm])
        self.out.n_iter[labels.index] += 1
        labels.value = 0.5 * _dots(labels.W, labels.W) + 0.5 * penalty * np.square(labels.bias) + loss
        self._record(labels, theta[:, 0], time.perf_counter() - started)
        return labels

    def _step_inputs(self, labels: _Labels) -> Double:
        """Inner products and numbers of a step, one row a label, in the order of `_core.dense_steps`."""
        D, P, W = labels.D, labels.P, labels.W
        pairs = ((D, D), (D, P), (D, W), (P, P), (P, W), (W, W))
        slope = _dots(labels.G, D) + labels.bias_gradient * labels.bias_step
        late = self.out.n_iter[labels.index] >= STEPS_BEFORE_W
        numbers = (labels.bias, labels.bias_step, slope, labels.newton, late)
        return np.column_stack([*(_dots(a, b) for a, b in pairs), *numbers]).astype(np.float64)

    def _record(self, labels: _Labels, step: Double, seconds: float) -> None:
        """Rows of the history; the block's time is shared out equally."""
        scale = np.maximum(self.norm_at_zero[labels.index], np.finfo(np.float64).tiny)
        size = len(labels.index)
        columns = (
            labels.index,
            self.out.n_iter[labels.index],
            labels.value,
            labels.past[:, -1] / scale,
            labels.n_active,
            step,
            np.zeros(size),
            np.full(size, seconds / size),
        )
        self.records.append(np.column_stack(columns))

    def _finished(self, labels: _Labels) -> npt.NDArray[np.bool_]:
        """Whether rule and gap seem to hold. P − D = ½‖∇‖² where a free intercept is at its optimum."""
        demand = SHARE * self.demand[labels.index]
        gap = _dots(labels.G, labels.G)
        if self.bias_kind == "penalised":
            gap = gap + np.square(labels.bias_gradient)
        by_gap = 0.5 * gap <= demand * self.task.gap_tol * labels.value
        done: npt.NDArray[np.bool_] = (labels.past[:, -1] <= demand * self.rule[labels.index]) & by_gap
        return done

    def _hopeless(self, labels: _Labels) -> npt.NDArray[np.bool_]:
        """Labels at a limit of steps, those that float32 moves no more, and those it cannot hold."""
        stuck = (labels.stalled > 1) | ~np.isfinite(labels.value) | ~np.isfinite(labels.past[:, -1])
        hopeless: npt.NDArray[np.bool_] = stuck | (self.out.n_iter[labels.index] >= self.limit)
        return hopeless

    def _give_up(self, labels: _Labels) -> None:
        """Put the weights of labels where another solver may begin, if they are numbers. Sets: given_up."""
        finite = np.isfinite(labels.W).all(axis=1) & np.isfinite(labels.bias)
        self.out.coef[labels.index] = np.where(finite[:, None], labels.W, 0.0)
        self.out.intercept[labels.index] = np.where(finite, labels.bias, 0.0)
        self.given_up.append(labels.index)

    def _choose_directions(self, labels: _Labels) -> None:
        """Newton directions where they pay, else negative gradients. Sets: D, bias_step, newton."""
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
        pays = NEWTON_STEPS_LEFT * direct_flops(labels.n_active, d) <= left * pass_flops
        # A label that has changed to Newton stays there: going back and forth took twice as many steps.
        wanted = small & (pays | labels.newton) & (labels.n_active > 0) & (labels.stalled == 0)
        labels.D, labels.bias_step = -labels.G, np.zeros(len(labels.index))
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
            float(labels.bias_gradient[k]),
            self.bias_kind,
        )
        if found is None:
            return False
        slope = float(np.dot(labels.G[k].astype(np.float64), found[0])) + labels.bias_gradient[k] * found[1]
        if not slope < 0.0:
            return False
        labels.D[k], labels.bias_step[k] = found
        return True

    def _verify(self, labels: _Labels) -> _Labels:
        """Store the labels for which rule and gap hold in float64 over all rows; returns the others, put right."""
        task, index = self.task, labels.index
        weights = labels.W.astype(np.float64)
        found = verify(self.rows.X, task, index, weights, labels.bias)
        good = (found.gradient_norm <= self.rule[index]) & (found.relative_gap <= task.gap_tol)
        self._store(index[good], weights[good], found.intercept[good], found.primal[good], found.dual[good])
        self.n_checks[index] += 1
        self.demand[index] *= MORE_DEMANDING
        labels.bias, labels.bias_gradient = found.intercept, found.bias_gradient
        labels.S, labels.A = found.scores.astype(np.float32), found.slopes.astype(np.float32)
        labels.G = found.gradient.astype(np.float32)
        labels.past[:, -1], labels.value = found.gradient_norm, found.primal
        again = (self.n_checks[index] < MAX_VERIFICATIONS) & (self.out.n_iter[index] < self.limit)
        self._give_up(labels.select(~(good | again)))
        return labels.select(again & ~good)

    def _store(self, index: Ints, weights: Double, intercept: Double, primal: Double, dual: Double) -> None:
        """Weights as stored, small ones dropped, and their bounds."""
        task, out = self.task, self.out
        kept = np.where(np.abs(weights) >= task.prune, weights, 0.0)
        after, share = primal, np.zeros(len(index))
        if task.prune > 0.0 and len(index):
            cost = np.array([label_cost(task, j) for j in index.tolist()])
            scores = scores_of(self.rows.X, kept) + task.bias_value * intercept[:, None]
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
