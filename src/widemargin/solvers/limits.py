"""What stops a solver: its tolerance, a number of passes, a deadline, a callback; and the best multiple of weights.

A `TimeLimit` is a callback that carries a deadline through estimators and pipelines down to the solver; `Limits` reads
it there, and the solver stops with `Status.TIME_LIMIT`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = [
    "GROWTH_GAP",
    "ROUNDING",
    "Limits",
    "TimeLimit",
    "best_growth",
    "best_multiple",
    "deadline_of",
    "ending",
    "history_of",
    "with_deadline_of",
    "worst_of",
]

ROUNDING = 64.0 * float(np.finfo(np.float64).eps)  # of the objective at zero: a smaller gap may be rounding
HALVINGS = 200.0  # multiples are searched down to 2^-200: weights after few passes with a very large C are that far off
NEGLIGIBLE = 1e-13  # relative difference of two objectives that is rounding
GROWTH_GAP = 1e-6  # gap, relative to the objective at zero, below which usually only margins just below 1 are left
GROWTHS = 26  # 4^-26 is the last place of float64
MULTIPLE_STEPS = 28  # evaluations of a search for the best multiple; they leave it within a factor of 1.001

SEVERITY = (Status.CONVERGED, Status.NOT_ATTAINED, Status.MAX_ITER, Status.TIME_LIMIT, Status.STOPPED)
"""From the best to the worst."""


class TimeLimit:
    """A callback that stops training after a time limit, with `Status.TIME_LIMIT` and the model reached so far.

    Parameters
    ----------
    seconds : float
        Seconds from now. The clock starts when the object is created; several fits can share one limit.
    callback : callable or None, default=None
        Another callback. It is called with every `Progress` and may stop training as well.

    Attributes
    ----------
    deadline : float
        When the time is up, on the clock of `time.monotonic`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import TimeLimit, TopKClassifier
    >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    >>> TopKClassifier(callback=TimeLimit(60.0), random_state=0).fit(X, y).status_
    <Status.CONVERGED: 'converged'>
    """

    def __init__(self, seconds: float, callback: Callback | None = None) -> None:
        if not seconds >= 0.0:
            raise ValueError(f"TimeLimit: seconds must be a nonnegative number; got {seconds!r}")
        self.callback = callback
        self.deadline = time.monotonic() + seconds

    def __call__(self, progress: Progress) -> bool:
        asked = self.callback is not None and self.callback(progress)
        return bool(asked) or time.monotonic() >= self.deadline

    def __getstate__(self) -> dict[str, Any]:
        """The seconds left: another machine has another clock."""
        return {"callback": self.callback, "seconds": self.deadline - time.monotonic()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.callback, self.deadline = state["callback"], time.monotonic() + state["seconds"]


def deadline_of(callback: Callback | None) -> float:
    """When a callback's time is up, on the clock of `time.monotonic`; infinity without a `TimeLimit`."""
    return float(getattr(callback, "deadline", math.inf))


def with_deadline_of(callback: Callback | None, wrapper: Callback) -> Callback:
    """A function that calls `callback`, as a callback that carries its deadline too."""
    deadline = deadline_of(callback)
    if deadline == math.inf:
        return wrapper
    limit = TimeLimit(0.0, wrapper)
    limit.deadline = deadline
    return limit


class Limits:
    """A number of passes, and a callback that stops the solver when it returns true or when its time is up."""

    def __init__(self, max_iter: int, callback: Callback | None = None) -> None:
        self.started = time.monotonic()
        self.max_iter, self.callback = max_iter, callback
        self.deadline = float(getattr(callback, "deadline", math.inf))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def seconds_left(self) -> float:
        """Seconds up to the deadline."""
        return self.deadline - time.monotonic()

    @property
    def is_out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.seconds_left <= 0.0

    def reached(self, passes: float, seconds: float, primal: float, dual: float) -> Status | None:
        """Call the callback; the limit that is reached, or None."""
        progress = Progress(int(passes), self.max_iter, seconds, primal, dual)
        asked = self.callback is not None and self.callback(progress)
        if time.monotonic() >= self.deadline:
            return Status.TIME_LIMIT
        if asked:
            return Status.STOPPED
        return Status.MAX_ITER if passes >= self.max_iter else None


def ending(primal: float, dual: float, at_zero: float, tol: float, rounding: float = ROUNDING) -> Status | None:
    """Whether bounds are close enough: primal − dual is at most tol · (at_zero − dual), the `decrease_gap`.

    None while they are not; `NOT_ATTAINED` where the gap is rounding and the tolerance is smaller than that.

    Examples
    --------
    >>> from widemargin.solvers.limits import ending
    >>> ending(5.01, 5.0, at_zero=10.0, tol=1e-2), ending(5.1, 5.0, at_zero=10.0, tol=1e-2)
    (<Status.CONVERGED: 'converged'>, None)
    >>> ending(10.0, 10.0, at_zero=10.0, tol=1e-2)  # any improvement of zero weights is lost in rounding
    <Status.NOT_ATTAINED: 'not_attained'>
    """
    allowed, noise = tol * max(at_zero - dual, 0.0), rounding * max(abs(primal), abs(at_zero))
    if primal - dual > max(allowed, noise):
        return None
    return Status.CONVERGED if allowed >= noise else Status.NOT_ATTAINED


def best_multiple(objective: Callable[[float], float]) -> float:
    """The t of [0, 1] with the smallest convex objective(t), found by golden section on the logarithm of t.

    Ascent on the dual may stop, or be within its tolerance, at weights W that are worse than zero weights. Then some
    t W is better. If zero is the best multiple, t is the largest for which t W is as good up to rounding: it still
    ranks the classes.

    Examples
    --------
    >>> from widemargin.solvers.limits import best_multiple
    >>> round(best_multiple(lambda t: (1e9 * t - 1.0) ** 2) * 1e9, 2)
    1.0
    >>> 0.0 < best_multiple(lambda t: 1.0 + t) < 1e-12
    True
    """
    at_zero, share = objective(0.0), 0.5 * (5.0**0.5 - 1.0)
    low, high = -HALVINGS, 0.0
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = objective(2.0**left), objective(2.0**right)
    for _ in range(MULTIPLE_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = objective(2.0**left)
        else:  # also where both are equal: multiples that small are as good as 0
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = objective(2.0**right)
    value, best = min((at_left, left), (at_right, right))
    if value < at_zero * (1.0 - NEGLIGIBLE):
        return math.exp2(best)
    low, high = -HALVINGS, 0.0
    while high - low > 1.0:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if objective(2.0**middle) <= at_zero * (1.0 + NEGLIGIBLE) else (low, middle)
    return math.exp2(low)


def best_growth(objective: Callable[[float], float]) -> float:
    """The t among 1 and 1 + 4^−j, j = 1 … 26, with the smallest objective(t).

    The optimum of separable rows is a corner at which many margins are exactly 1. Rounding leaves some just below,
    which costs C times as much; weights that are longer by a few units in the last place have no loss at all.

    Examples
    --------
    >>> from widemargin.solvers.limits import best_growth
    >>> best_growth(lambda t: 1e-3 * t**2 + max(0.0, 1.0 - t * (1.0 - 2.0**-22))) == 1.0 + 4.0**-11
    True
    """
    return min((1.0, *(1.0 + 4.0**-j for j in range(1, GROWTHS + 1))), key=objective)


def worst_of(statuses: Iterable[Status]) -> Status:
    """The status of several problems together: the worst of them."""
    return max(statuses, key=SEVERITY.index)


def history_of(rows: Sequence[Sequence[float]], names: Sequence[str], whole: Collection[str]) -> History:
    """A history of rows of numbers, with columns of integers where `whole` names them."""
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    columns: dict[str, Any] = dict(zip(names, table.T, strict=True))
    for name in whole:
        columns[name] = columns[name].astype(np.int64)
    return History(columns)
