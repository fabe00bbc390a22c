"""What ends a solver, the status of several problems, the best multiple of given weights, and a history as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["ROUNDING", "Limits", "best_multiple", "ending", "history_of", "worst_of"]

ROUNDING = 64.0 * float(np.finfo(np.float64).eps)
"""Of the objective at zero: a smaller gap cannot be told from the rounding of the sums that it is a difference of."""
SMALLEST_MULTIPLE = 1e-40
"""Weights are tried at multiples from this to 1: steps that are too long are so by C ‖x‖², which may be that large."""

SEVERITY = (Status.CONVERGED, Status.NOT_ATTAINED, Status.MAX_ITER, Status.TIME_LIMIT, Status.STOPPED)
"""From the best to the worst."""


class Limits:
    """Passes, seconds from now, and a callback that ends the solver when it returns true."""

    def __init__(self, max_iter: int, callback: Callback | None, time_limit: float | None) -> None:
        self.began = time.monotonic()
        self.max_iter, self.callback = max_iter, callback
        self.deadline = np.inf if time_limit is None else self.began + time_limit

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    @property
    def seconds_left(self) -> float:
        """Seconds up to the limit."""
        return self.deadline - time.monotonic()

    @property
    def is_out_of_time(self) -> bool:
        """Whether the limit is reached."""
        return self.seconds_left <= 0.0

    def reached(self, passes: float, seconds: float, primal: float, dual: float) -> Status | None:
        """Tell the callback, and say which limit is reached."""
        progress = Progress(int(passes), self.max_iter, seconds, primal, dual)
        if self.callback is not None and self.callback(progress):
            return Status.STOPPED
        if self.is_out_of_time:
            return Status.TIME_LIMIT
        return Status.MAX_ITER if passes >= self.max_iter else None


def ending(primal: float, dual: float, at_zero: float, tol: float, rounding: float = ROUNDING) -> Status | None:
    """Whether bounds are close enough: primal − dual at most tol · (at_zero − dual), the `decrease_gap`.

    None while they are not, `NOT_ATTAINED` where the gap is rounding and the tolerance asks for less than that.

    Examples
    --------
    >>> from widemargin.solvers._limits import ending
    >>> ending(5.01, 5.0, at_zero=10.0, tol=1e-2), ending(5.1, 5.0, at_zero=10.0, tol=1e-2)
    (<Status.CONVERGED: 'converged'>, None)
    >>> ending(10.0, 10.0, at_zero=10.0, tol=1e-2)  # what zero weights can be improved by is lost in rounding
    <Status.NOT_ATTAINED: 'not_attained'>
    """
    allowed, noise = tol * max(at_zero - dual, 0.0), rounding * max(abs(primal), abs(at_zero))
    if primal - dual > max(allowed, noise):
        return None
    return Status.CONVERGED if allowed >= noise else Status.NOT_ATTAINED


def best_multiple(penalty: float, losses_at: Callable[[float], float]) -> tuple[float, float]:
    """The t from 0 to 1 with the least t² · penalty + losses_at(t), and that value; 0 if nothing is better.

    The objective along the ray of given weights, which a solver that was cut short may have made far too long. The
    order of the scores stays the same.

    Examples
    --------
    >>> from widemargin.solvers._limits import best_multiple
    >>> t, value = best_multiple(8.0, lambda t: max(0.0, 1.0 - 4.0 * t))  # 8t² + 1 − 4t
    >>> round(t, 3), round(value, 6)
    (0.25, 0.5)
    """

    def objective(logarithm: float) -> float:
        t = float(np.exp(logarithm))
        return t * t * penalty + losses_at(t)

    found = minimize_scalar(objective, bounds=(np.log(SMALLEST_MULTIPLE), 0.0), method="bounded")
    best, value = float(np.exp(found.x)), float(found.fun)
    at_zero = losses_at(0.0)
    return (best, value) if value < at_zero else (0.0, at_zero)


def worst_of(statuses: Iterable[Status]) -> Status:
    """The status of several problems together: that of the one that is furthest from its end."""
    return max(statuses, key=SEVERITY.index)


def history_of(rows: Sequence[Sequence[float]], names: Sequence[str], whole: Collection[str]) -> History:
    """A history of rows of numbers, with columns of integers where `whole` names them."""
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    columns = dict(zip(names, table.T, strict=True))
    return History({name: column.astype(np.int64) if name in whole else column for name, column in columns.items()})
