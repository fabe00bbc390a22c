"""One-vs-all, label by label: truncated Newton from a start, rounded to the stored type, pruned, and certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

with c_i = C · row_weight_i · (positive_factor_j where y_i = +1, else negative_factor_j). This is the specification of
cpp/one_vs_all/newton_solver.hpp: same arguments, same results up to rounding. Memory: X, one label's vectors, and the
outputs.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from reference.binary_certificate import certified_gap, dual_bound, dual_point, relative_gap
from reference.binary_objective import BinaryObjective, BinaryProblem
from reference.newton import (
    CONVERGED,
    ENDED_EARLY,
    GAP_SHARE,
    NOT_ATTAINED,
    ROUNDING_GAP,
    ROUNDING_GRADIENT,
    IterationRecord,
    NewtonRule,
    newton_cg,
)
from widemargin.problems.losses import Floats, Loss

__all__ = ["NOT_ATTAINED", "binary_problem", "solve_block"]

N_RECORD_COLUMNS = 8  # of `widemargin.solvers.one_vs_all.problem.RECORD_COLUMNS`


def binary_problem(task: Any, X: Any, j: int, loss: Loss) -> BinaryProblem:
    """The problem of label j of a task."""
    y = np.full(X.shape[0], -1.0)
    y[task.positive_rows[task.positive_indptr[j] : task.positive_indptr[j + 1]]] = 1.0
    factor = np.where(y > 0.0, task.positive_factor[j], task.negative_factor[j])
    return BinaryProblem(X, y, task.C * task.row_weight * factor, loss, task.bias_value, task.bias_penalty)


def solve_block(X: Any, task: Any, loss: Loss, out: Any) -> Floats:
    """Solve every label of a block into `out`; returns the records, one row of `RECORD_COLUMNS` per iteration.

    `out` holds the start, and then the results; `loss` is the one that `task.loss` names.

    Examples
    --------
    >>> from widemargin.problems.losses import SquaredHinge
    >>> from widemargin.solvers.one_vs_all.problem import BlockResult, BlockTask
    >>> task = BlockTask(np.array([0]), np.array([0, 1]), np.ones(2), np.ones(1), np.ones(1),
    ...                  "squared_hinge", 1.0, 1.0, 0.0, 1e-9, np.inf, 0.0, 100, 1)
    >>> out = BlockResult.zeros(1, 2, np.dtype("float64"))
    >>> records = solve_block(np.eye(2), task, SquaredHinge(), out)
    >>> out.coef.round(6).tolist(), out.bounds[:, :2].round(6).tolist()
    ([[0.666667, -0.666667]], [[0.666667, 0.666667]])
    """
    records: list[tuple[float, ...]] = []
    # The data are as stored; arithmetic is double throughout.
    X = X.astype(np.float64)
    for j in range(len(task.positive_factor)):
        problem, first = binary_problem(task, X, j, loss), len(records)
        start = np.append(out.coef[j], out.intercept[j] if task.bias_value != 0.0 else 0.0).astype(np.float64)
        v = start.copy()
        positive, negative = problem.c[problem.y > 0].sum(), problem.c[problem.y < 0].sum()
        one_sided = bool(problem.free_intercept and (positive == 0.0 or negative == 0.0))
        if one_sided and not task.solve_one_sided:
            v[:] = 0.0
            v[-1] = -loss.one_sided_margin if positive == 0.0 else loss.one_sided_margin
            out.n_iter[j], out.converged[j] = 0, CONVERGED if loss.one_sided_attained else NOT_ATTAINED
        else:
            v, out.converged[j], out.n_iter[j] = _minimize(problem, task, j, v, records)
        known = [np.zeros(len(v)), start] if len(records) > first else [np.zeros(len(v))]
        _store(problem, task, j, v, one_sided, known if task.max_iter > 0 else [], out)
    return np.array(records).reshape(-1, N_RECORD_COLUMNS)


def _minimize(
    problem: BinaryProblem, task: Any, j: int, v: Floats, records: list[tuple[float, ...]]
) -> tuple[Floats, int, int]:
    """Newton from v with the rule (12)–(13); appends to `records`."""
    started = time.thread_time()
    gradient_at_zero = BinaryObjective(problem, np.zeros(len(v))).gradient()
    norm_at_zero = float(np.sqrt(gradient_at_zero @ gradient_at_zero))
    positive, negative = problem.c[problem.y > 0].sum() / task.C, problem.c[problem.y < 0].sum() / task.C
    # The lower bound of the total only matters when the weights of all rows sum to less than one.
    share = max(1.0, min(positive, negative)) / max(1.0, positive + negative)
    objective = BinaryObjective(problem, v)

    def record(state: IterationRecord) -> None:
        nonlocal started
        now = time.thread_time()
        ratio = state.gradient_norm / norm_at_zero if norm_at_zero > 0.0 else 0.0
        rest = (state.active_rows, state.step, state.cg_steps, now - started)
        records.append((j, state.iteration, state.value, ratio, *rest))
        started = now

    floor = ROUNDING_GRADIENT * norm_at_zero
    limits = (task.tol, GAP_SHARE * task.gap_tol, floor, task.max_iter, task.polish, task.tighten_cg)
    rule = NewtonRule(share * norm_at_zero, *limits)
    ending, n_iter = newton_cg(objective, rule, lambda: certified_gap(objective), record)
    return objective.v, ending, n_iter


def _store(
    problem: BinaryProblem, task: Any, j: int, v: Floats, one_sided: bool, known: list[Floats], out: Any
) -> None:
    """Round to the stored type, drop small weights (never the intercept), and certify what is stored.

    If rounding has made the weights worse than zero, or the weights of a label that did not converge worse than its
    start, the better of these `known` points is stored.
    """
    # The lower bound comes from the weights before rounding and pruning: any weights give one, and these the best.
    # With one side alone, zero is the only feasible dual point.
    dual = 0.0 if one_sided else dual_bound(problem, problem.scores(v))
    if out.duals is not None:
        alpha = dual_point(problem, problem.scores(v)) if dual > 0.0 else np.zeros(len(problem.y))
        rows = np.flatnonzero(alpha)
        out.duals[j] = rows.astype(np.int32), alpha[rows].astype(np.float32)
    out.coef[j], out.intercept[j] = v[:-1], v[-1]
    stored = np.append(out.coef[j], out.intercept[j]).astype(np.float64)
    before = BinaryObjective(problem, stored)
    dual = min(before.value(), dual)
    # Rounding can spoil weights that are large relative to the margins: such a label has not converged. float32 is a
    # choice of the caller, float64 is not.
    spoilt = NOT_ATTAINED if out.coef.dtype == np.float64 else ENDED_EARLY
    if out.converged[j] == CONVERGED and not relative_gap(before.value(), dual) <= max(task.gap_tol, ROUNDING_GAP):
        out.converged[j] = spoilt
    points = [BinaryObjective(problem, point) for point in known[: 1 if out.converged[j] == CONVERGED else None]]
    best = min(points, key=lambda point: point.value(), default=before)
    if not before.value() <= (1.0 + ROUNDING_GAP) * best.value():
        before, stored, dual = best, best.v, min(best.value(), dual)
        out.coef[j], out.intercept[j] = stored[:-1], stored[-1]
        out.converged[j] = spoilt if out.converged[j] == CONVERGED else out.converged[j]
    kept = np.append(np.abs(stored[:-1]) >= task.prune, True)
    out.coef[j][~kept[:-1]] = 0.0
    after = BinaryObjective(problem, np.where(kept, stored, 0.0))
    norm = stored[:-1] @ stored[:-1]
    share = 1.0 - after.v[:-1] @ after.v[:-1] / norm if norm > 0.0 and not kept.all() else 0.0
    at_zero = BinaryObjective(problem, np.zeros(len(v))).value()
    out.bounds[j] = after.value(), dual, at_zero, before.value(), share
