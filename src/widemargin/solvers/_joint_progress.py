"""When a joint dual ascent is certified, why it ends, and what is kept of the way there."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from widemargin.problems.certificate import Certificate
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["JointProgress"]

NEAR = 4.0
"""A certificate is made when the estimate is below so many times the gap allowed: estimates are taken before visits."""
EVERY = 10
"""Rounds after which one is made in any case, which also wakes the blocks that slept."""
STALL_ROUNDS = 40
"""Rounds without a smaller certified gap after which rounding is suspected."""
LEAST_SHARE = 0.05
"""Of a pass, that a round counts at least: it improves the coupling even where hardly a block is awake."""


class JointProgress:
    """Counts rounds and passes, asks for certificates, and records.

    Parameters
    ----------
    at_zero : float
        The objective of zero weights.
    tol : float
        `decrease_gap` to reach.
    max_iter : int
        Passes at most.
    callback : callable or None
        Called with a `Progress` after each round.
    time_limit : float or None
        Seconds, from now.

    Examples
    --------
    >>> from widemargin.solvers._joint_progress import JointProgress
    >>> progress = JointProgress(at_zero=10.0, tol=0.1, max_iter=5, callback=None, time_limit=None)
    >>> progress.record(dual=4.0, gap=0.9, n_visits=7, n_blocks=10)
    >>> progress.passes, progress.wants_certificate
    (0.7, True)
    >>> progress.accept(primal=4.5, dual=4.1)
    >>> progress.status.value
    'converged'
    """

    def __init__(
        self, at_zero: float, tol: float, max_iter: int, callback: Callback | None, time_limit: float | None
    ) -> None:
        self.began = time.monotonic()
        self.at_zero, self.tol, self.max_iter, self.callback = at_zero, tol, max_iter, callback
        self.deadline = np.inf if time_limit is None else self.began + time_limit
        self.rounds, self.passes = 0, 0.0
        self.status: Status | None = None
        self.certified: tuple[float, float] | None = None
        self._rows: list[list[float]] = []
        self._dual = 0.0  # the last estimate
        self._gap = np.inf
        self._best, self._best_round, self._last = np.inf, 0, 0

    @property
    def seconds_left(self) -> float:
        """Seconds up to the limit."""
        return self.deadline - time.monotonic()

    @property
    def is_out_of_time(self) -> bool:
        """Whether the limit is reached."""
        return self.seconds_left <= 0.0

    @property
    def allowed_gap(self) -> float:
        """The gap that may be left: `tol` times the largest decrease that seems possible."""
        return self.tol * max(self.at_zero - self._dual, 0.0)

    @property
    def wants_certificate(self) -> bool:
        """Whether the tolerance seems near, or the last certificate is long ago."""
        return self.status is not None or self._gap <= NEAR * self.allowed_gap or self.rounds - self._last >= EVERY

    @property
    def stalls(self) -> bool:
        """Whether the certified gap has not become smaller for long, as where rounding keeps it up."""
        return self.rounds - self._best_round >= STALL_ROUNDS and np.isfinite(self._best)

    @property
    def bounds(self) -> tuple[float, float]:
        """The last certified bounds."""
        assert self.certified is not None
        return self.certified

    def record(self, dual: float, gap: float, n_visits: int, n_blocks: int) -> None:
        """Keep a round, with estimates of the dual bound and of the gap, and see whether something asks to stop."""
        self.rounds += 1
        self.passes += max(n_visits / n_blocks, LEAST_SHARE)
        self.certified = None
        self._dual, self._gap = dual, gap
        seconds = time.monotonic() - self.began
        self._rows.append([self.rounds, self.passes, seconds, dual + gap, dual, n_visits, 0])
        progress = Progress(int(self.passes), self.max_iter, seconds, dual + gap, dual)
        if self.callback is not None and self.callback(progress):
            self.status = Status.STOPPED
        elif self.is_out_of_time:
            self.status = Status.TIME_LIMIT
        elif self.passes >= self.max_iter:
            self.status = Status.MAX_ITER

    def accept(self, primal: float, dual: float) -> None:
        """Take certified bounds; they end the ascent if they are close enough."""
        self.certified, self._last, self._dual = (primal, dual), self.rounds, dual
        gap = Certificate(primal, dual, self.at_zero, primal).decrease_gap
        if gap < self._best:
            self._best, self._best_round = gap, self.rounds
        if self._rows:
            self._rows[-1][2:5] = time.monotonic() - self.began, primal, dual
            self._rows[-1][6] = 1
        if gap <= self.tol:
            self.status = Status.CONVERGED

    def restart(self) -> None:
        """Forget what was reached: from now on another precision makes it."""
        self._best, self._best_round = np.inf, self.rounds

    def history(self) -> History:
        """One row a round; the bounds are estimates where `certified` is 0."""
        names = ("iteration", "passes", "seconds", "primal", "dual", "visits", "certified")
        table: npt.NDArray[np.float64] = np.array(self._rows, dtype=np.float64).reshape(-1, len(names))
        columns = dict(zip(names, table.T, strict=True))
        return History({n: c.astype(np.int64) if n in ("iteration", "visits") else c for n, c in columns.items()})
