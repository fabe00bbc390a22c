"""One-vs-all, label by label: truncated Newton from a start, rounded to the stored type, pruned, and certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

with c_i = C · row_weight_i · (positive_factor_j where y_i = +1, else negative_factor_j). This is the specification of
cpp/one_vs_all.hpp: same arguments, same results up to rounding. Memory: X, one label's vectors, and the outputs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.problems.losses import Floats, Loss
from widemargin.reference.binary_certificate import certified_gap, dual_bound, relative_gap
from widemargin.reference.binary_objective import BinaryObjective, BinaryProblem
from widemargin.reference.newton import (
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

__all__ = ["BOUND_COLUMNS", "NOT_ATTAINED", "RECORD_COLUMNS", "BlockResult", "BlockTask", "solve_block"]

BOUND_COLUMNS = ("primal", "dual", "primal_at_zero", "primal_before_pruning", "pruned_share")
RECORD_COLUMNS = (
    "label",
    "iteration",
    "value",
    "gradient_ratio",
    "active_rows",
    "step",
    "cg_steps",
    "seconds",
)


@dataclass(frozen=True)
class BlockTask:
    """The labels of a block and how to solve them.

    Parameters
    ----------
    positive_rows, positive_indptr : ndarray of int64
        The positives of label j are positive_rows[positive_indptr[j]:positive_indptr[j + 1]].
    row_weight : ndarray of shape (n_samples,)
        Sample weights, without C.
    positive_factor, negative_factor : ndarray of shape (n_labels,)
        Class factors.
    loss : str
        Name of the loss.
    C : float
        Weight of the losses.
    bias_value, bias_penalty : float
        (1, 0) for a free intercept, (1, 1) for a regularised one, (0, 1) for none.
    tol, gap_tol : float
        The stopping rule; gap_tol is infinity when not asked for.
    prune : float
        Stored weights smaller than this become zero.
    max_iter, n_threads : int
        Newton steps a label; threads of the compiled core.
    polish : bool
        Whether to go on to rounding error once the rule holds.
    solve_one_sided : bool
        Whether labels of one side only, which have a known answer with a free intercept, are solved like others.
    tighten_cg : bool
        Whether CG's tolerance is tightened once a full step was refused, see `NewtonRule`.

    Examples
    --------
    >>> from widemargin.reference.one_vs_all import BlockTask
    >>> len(BlockTask.__dataclass_fields__)
    17
    """

    positive_rows: npt.NDArray[np.int64]
    positive_indptr: npt.NDArray[np.int64]
    row_weight: Floats
    positive_factor: Floats
    negative_factor: Floats
    loss: str
    C: float
    bias_value: float
    bias_penalty: float
    tol: float
    gap_tol: float
    prune: float
    max_iter: int
    n_threads: int
    polish: bool = False
    solve_one_sided: bool = False
    tighten_cg: bool = True

    def problem(self, X: Any, j: int, loss: Loss) -> BinaryProblem:
        """The problem of label j."""
        y = np.full(X.shape[0], -1.0)
        y[self.positive_rows[self.positive_indptr[j] : self.positive_indptr[j + 1]]] = 1.0
        factor = np.where(y > 0.0, self.positive_factor[j], self.negative_factor[j])
        return BinaryProblem(X, y, self.C * self.row_weight * factor, loss, self.bias_value, self.bias_penalty)


@dataclass(frozen=True)
class BlockResult:
    """Where the results of a block go; coef and intercept hold the start when the solver is called.

    Parameters
    ----------
    coef : ndarray of shape (n_labels, n_features)
        Weights in the type of X.
    intercept : ndarray of shape (n_labels,)
        Intercepts in the type of X.
    bounds : ndarray of shape (n_labels, 5)
        The columns of `BOUND_COLUMNS`.
    n_iter : ndarray of int64 of shape (n_labels,)
        Newton steps.
    converged : ndarray of uint8 of shape (n_labels,)
        1 where the stopping rule holds, 2 (`NOT_ATTAINED`) where there is no minimiser, or rounding came before it.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.reference.one_vs_all import BlockResult
    >>> BlockResult.zeros(2, 3, np.dtype("float32")).bounds.shape
    (2, 5)
    """

    coef: npt.NDArray[Any]
    intercept: npt.NDArray[Any]
    bounds: Floats
    n_iter: npt.NDArray[np.int64]
    converged: npt.NDArray[np.uint8]

    @classmethod
    def zeros(
        cls, n_labels: int, n_features: int, dtype: np.dtype[Any], coef: npt.NDArray[Any] | None = None
    ) -> BlockResult:
        """Outputs for a block, the start at zero; `coef` may be a given (n_labels, n_features) array to fill."""
        return cls(
            np.zeros((n_labels, n_features), dtype=dtype) if coef is None else coef,
            np.zeros(n_labels, dtype=dtype),
            np.zeros((n_labels, len(BOUND_COLUMNS))),
            np.zeros(n_labels, dtype=np.int64),
            np.zeros(n_labels, dtype=np.uint8),
        )


def solve_block(X: Any, task: BlockTask, loss: Loss, out: BlockResult) -> Floats:
    """Solve every label of a block into `out`; returns the records, one row of `RECORD_COLUMNS` an iteration.

    Parameters
    ----------
    X : ndarray or sparse array of shape (n_samples, n_features)
        The rows, float32 or float64.
    task : BlockTask
        The labels, and how to solve them.
    loss : Loss
        The loss that `task.loss` names.
    out : BlockResult
        The start, and then the results.

    Returns
    -------
    ndarray of shape (n_records, 8)
        What happened, in the order of the labels.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.losses import SquaredHinge
    >>> from widemargin.reference.one_vs_all import BlockResult, BlockTask, solve_block
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
        problem, first = task.problem(X, j, loss), len(records)
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
    return np.array(records).reshape(-1, len(RECORD_COLUMNS))


def _minimize(
    problem: BinaryProblem, task: BlockTask, j: int, v: Floats, records: list[tuple[float, ...]]
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
    problem: BinaryProblem, task: BlockTask, j: int, v: Floats, one_sided: bool, known: list[Floats], out: BlockResult
) -> None:
    """Round to the stored type, drop small weights (never the intercept), and certify what is stored.

    Where rounding has made the weights worse than zero, or those of a label that did not converge worse than its start,
    the better of these, which are `known`, is stored.
    """
    # The bound from below comes from the weights before rounding and pruning: any weights give one, these the best.
    # One side alone has no feasible dual point but zero.
    dual = 0.0 if one_sided else dual_bound(problem, problem.scores(v))
    out.coef[j], out.intercept[j] = v[:-1], v[-1]
    stored = np.append(out.coef[j], out.intercept[j]).astype(np.float64)
    before = BinaryObjective(problem, stored)
    dual = min(before.value(), dual)
    # Rounding can spoil weights that are large against the margins: such a label has not converged. float32 is a choice
    # of the caller, float64 is not.
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
