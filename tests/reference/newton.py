"""Truncated Newton: H δ ≈ −∇L by preconditioned conjugate gradients, then a backtracking step.

Stops when ‖∇L(v)‖ ≤ tol · scale, eq. (12)–(13), and the certified relative gap is at most `gap_tol`; if the first
holds and the second does not, the target of the first is tightened and the iteration continues. After Galli & Lin,
"Truncated Newton methods for linear classification" (liblinear's newton.cpp), with three differences: CG stops by its
residual, its tolerance is relative to the stopping rule instead of absolute, so scaling the objective changes nothing,
and it is tightened once a full step has been refused, unless `tighten_cg` is off. Memory: six vectors of
n_features + 1. Twin: cpp/one_vs_all/newton.hpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reference.binary_objective import BinaryObjective
from widemargin.problems.losses import Floats

__all__ = [
    "CONVERGED",
    "ENDED_EARLY",
    "NOT_ATTAINED",
    "IterationRecord",
    "NewtonRule",
    "conjugate_gradients",
    "newton_cg",
]

CG_TOLERANCE = 0.5  # the paper's ε, liblinear 2.50
PRECONDITIONER_SHARE = 0.01  # the paper's α: M = (1 − a) I + a diag(H)
CG_STEPS_PER_VARIABLE = 20  # exact arithmetic needs one; hard margins, with conditions of 1e8, need more
NO_CURVATURE = 1e-30  # a free intercept far out on the logistic loss has none; then the step goes straight down
CG_TARGET_SHARE = 0.25  # no residual below this share of what the stopping rule requires
TIGHTENING = 0.1  # of the target, when the rule holds but the certified gap does not
CG_TIGHTENING = 0.5  # of CG's tolerance, for the rest of the label, each time a full step is refused; not as published
MIN_CG_TOLERANCE = 1e-3  # and never below this
MAX_POLISH_STALLS = 10  # then polishing ends, even above the floor
POLISH_DECREASE = 0.5  # a polishing step that decreases ‖∇L‖ less has met the rounding floor
MAX_FLAT_STEPS = 20  # in a row; then rounding repeats the same point or a short cycle forever
FLAT_DECREASE = 4 * float(np.finfo(np.float64).eps)  # of the objective, relative: no more is flat,
FLAT_GRADIENT = 0.5  # unless ‖∇L‖ has fallen by this factor since the last step that was not
GAP_SHARE = 0.99  # of gap_tol: the rest is for rounding to the stored type
ROUNDING_GAP = 1e-12  # a relative gap this small cannot be improved in double precision
ROUNDING_GRADIENT = 4 * float(np.finfo(np.float64).eps)  # relative to ‖∇L(0)‖

ENDED_EARLY, CONVERGED, NOT_ATTAINED = range(3)  # no minimiser, or rounding ended the progress; as in the twin


@dataclass(frozen=True)
class NewtonRule:
    """When to stop.

    Examples
    --------
    >>> NewtonRule(scale=2.0, tol=0.01, gap_tol=1e-3, floor=0.0, max_iter=100).tol
    0.01
    """

    scale: float  # max(1, min(P, N)) / n · ‖∇L(0)‖, the unit of the rule
    tol: float  # stop at ‖∇L‖ ≤ tol · scale …
    gap_tol: float  # … and a relative gap of at most this; infinity if not asked for
    floor: float  # a smaller gradient is rounding: ROUNDING_GRADIENT · ‖∇L(0)‖
    max_iter: int  # Newton steps
    polish: bool = False  # continue to the rounding floor once the rule holds
    tighten_cg: bool = True  # tighten CG's tolerance each time a full step is refused; the paper keeps CG_TOLERANCE


@dataclass(frozen=True)
class IterationRecord:
    """The state after `iteration` steps, and the step that led there.

    Examples
    --------
    >>> IterationRecord(0, 2.0, 2.8, 2, 0.0, 0).iteration
    0
    """

    iteration: int
    value: float  # L
    gradient_norm: float  # ‖∇L‖
    active_rows: int  # size of the active set
    step: float  # length of the last step; 0 at the start
    cg_steps: int  # CG iterations of the last step


def conjugate_gradients(objective: BinaryObjective, gradient: Floats, tolerance: float) -> tuple[Floats, int]:
    """Solve H x = −gradient until ‖residual‖ ≤ tolerance; returns x and the number of steps.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> objective = BinaryObjective(two_rows(), np.zeros(3))
    >>> x, steps = conjugate_gradients(objective, objective.gradient(), 1e-12)
    >>> x.round(6).tolist(), steps
    ([0.666667, -0.666667, 0.0], 1)
    """
    M = (1.0 - PRECONDITIONER_SHARE) + PRECONDITIONER_SHARE * objective.diagonal()
    x, r = np.zeros(len(gradient)), -gradient
    p = r / M
    r_dot_Mr = r @ p
    step = 0
    while step < CG_STEPS_PER_VARIABLE * len(gradient):
        Hp = objective.hess_vec(p)
        p_dot_Hp = p @ Hp
        if not p_dot_Hp > NO_CURVATURE * (p @ p):  # also r = 0, or numbers that are not finite
            x = p if step == 0 else x
            break
        step += 1
        length = r_dot_Mr / p_dot_Hp
        x, r = x + length * p, r - length * Hp
        if np.sqrt(r @ r) <= tolerance:
            break
        previous, r_dot_Mr = r_dot_Mr, r @ (r / M)
        p = r / M + (r_dot_Mr / previous) * p
    return x, step


def cg_tolerance(gradient_norm: float, target: float, scale: float, largest: float) -> float:
    """Residual at which CG may stop: looser while far away, never tighter than the rule needs."""
    relative = min(largest, float(np.sqrt(gradient_norm / scale))) if scale > 0.0 else largest
    return max(relative * gradient_norm, CG_TARGET_SHARE * target)


def newton_cg(
    objective: BinaryObjective,
    rule: NewtonRule,
    relative_gap: Callable[[], float],
    record: Callable[[IterationRecord], None],
) -> tuple[int, int]:
    """Minimise from the current point; returns how it ended, and the number of steps.

    It ends as CONVERGED if the rule holds or only rounding is left, as NOT_ATTAINED if rounding stops the progress
    before, and as ENDED_EARLY after `max_iter` steps. `relative_gap` gives the certified gap at the current point;
    `record` is called before the first step and after each.

    With `polish` it continues once the rule holds, and returns the point with the smallest gradient from then on: far
    from the floor a step on a piecewise quadratic may well raise ‖∇L‖, so one such step is not the end. Only
    `objective.v` is left there, not its scores.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> objective = BinaryObjective(two_rows(), np.zeros(3))
    >>> newton_cg(objective, NewtonRule(1.0, 1e-9, np.inf, 0.0, 10), lambda: 0.0, lambda state: None)
    (1, 1)
    >>> objective.v.round(6).tolist()
    [0.666667, -0.666667, 0.0]
    """
    target, looseness, step, cg_steps, n_iter = rule.tol * rule.scale, CG_TOLERANCE, 0.0, 0, 0
    converged, stalls, previous_norm, best_norm, best = False, 0, 0.0, np.inf, objective.v
    flat_steps, flat_value, flat_norm = 0, np.inf, np.inf
    while True:
        gradient = objective.gradient()
        norm = float(np.sqrt(gradient @ gradient))
        value = objective.value()
        record(IterationRecord(n_iter, value, norm, objective.n_active, step, cg_steps))
        flat_steps += 1
        if value < (1.0 - FLAT_DECREASE) * flat_value or norm < FLAT_GRADIENT * flat_norm:
            flat_steps, flat_value, flat_norm = 0, value, norm
        stalled = converged and norm > POLISH_DECREASE * previous_norm
        if not converged and norm <= target:
            converged = bool(np.isinf(rule.gap_tol)) or relative_gap() <= rule.gap_tol
            target = 0.0 if converged else TIGHTENING * norm
        if converged and norm < best_norm:
            best_norm, best = norm, objective.v
        previous_norm, stalls = norm, stalls + stalled
        if converged and not rule.polish:
            break
        if stalled and (stalls == MAX_POLISH_STALLS or relative_gap() <= ROUNDING_GAP):
            break
        if norm <= rule.floor and relative_gap() <= ROUNDING_GAP:
            break
        if n_iter == rule.max_iter or norm == 0.0 or (not converged and flat_steps == MAX_FLAT_STEPS):
            break
        d, cg_steps = conjugate_gradients(objective, gradient, cg_tolerance(norm, target, rule.scale, looseness))
        slope = float(gradient @ d)
        step = objective.line_search(d, slope) if slope < 0.0 else 0.0
        if step == 0.0:  # only rounding is left
            break
        if step < 1.0 and rule.tighten_cg:
            looseness = max(MIN_CG_TOLERANCE, CG_TIGHTENING * looseness)
        n_iter += 1
    if converged:
        objective.v = best
    if converged or relative_gap() <= ROUNDING_GAP:
        return CONVERGED, n_iter
    return ENDED_EARLY if n_iter == rule.max_iter else NOT_ATTAINED, n_iter
