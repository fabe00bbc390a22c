"""What ends a solver before its tolerance, the status of several problems, and a history as a table."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["Limits", "history_of", "worst_of"]

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


def worst_of(statuses: Iterable[Status]) -> Status:
    """The status of several problems together: that of the one that is furthest from its end."""
    return max(statuses, key=SEVERITY.index)


def history_of(rows: Sequence[Sequence[float]], names: Sequence[str], whole: Collection[str]) -> History:
    """A history of rows of numbers, with columns of integers where `whole` names them."""
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    columns = dict(zip(names, table.T, strict=True))
    return History({name: column.astype(np.int64) if name in whole else column for name, column in columns.items()})
