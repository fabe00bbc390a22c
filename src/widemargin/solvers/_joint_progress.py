"""When a joint dual ascent is certified, why it ends, and what is kept of the way there."""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.problems.certificate import Certificate
from widemargin.solvers._limits import Limits, history_of
from widemargin.solvers.result import Callback, History, Status

__all__ = ["JointProgress"]

NEAR = 4.0
"""A certificate is made when the estimate is below so many times the gap allowed: estimates are taken before visits."""
EVERY = 10
"""Rounds after which one is made in any case, which also wakes the blocks that slept."""
STALL_ROUNDS = 40
"""Rounds without a smaller certified gap after which rounding is suspected."""
LEAST_SHARE = 0.05
"""Of a pass, that a round counts at least: it improves the coupling even where hardly a block is awake."""


class JointProgress(Limits):
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
        super().__init__(max_iter, callback, time_limit)
        self.at_zero, self.tol = at_zero, tol
        self.rounds, self.passes = 0, 0.0
        self.status: Status | None = None
        self.certified: tuple[float, float] | None = None
        self._rows: list[list[float]] = []
        self._dual = 0.0  # the last estimate
        self._gap = np.inf
        self._best, self._best_round, self._last = np.inf, 0, 0

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

    def record(self, dual: float, gap: float, n_visits: int, n_blocks: int) -> None:
        """Keep a round, with estimates of the dual bound and of the gap, and see whether something asks to stop."""
        self.rounds += 1
        self.passes += max(n_visits / n_blocks, LEAST_SHARE)
        self.certified = None
        self._dual, self._gap = dual, gap
        seconds = self.elapsed_s
        self._rows.append([self.rounds, self.passes, seconds, dual + gap, dual, n_visits, 0])
        self.status = self.reached(self.passes, seconds, dual + gap, dual) or self.status

    def accept(self, primal: float, dual: float) -> None:
        """Take certified bounds; they end the ascent if they are close enough."""
        self.certified, self._last, self._dual = (primal, dual), self.rounds, dual
        gap = Certificate(primal, dual, self.at_zero, primal).decrease_gap
        if gap < self._best:
            self._best, self._best_round = gap, self.rounds
        if self._rows:
            self._rows[-1][2:5] = self.elapsed_s, primal, dual
            self._rows[-1][6] = 1
        if gap <= self.tol:
            self.status = Status.CONVERGED

    def restart(self) -> None:
        """Forget what was reached: from now on another precision makes it."""
        self._best, self._best_round = np.inf, self.rounds

    def outcome(self) -> dict[str, Any]:
        """What a result says of the way and of its end: `certificate`, `history`, `n_iter` and `status`."""
        assert self.certified is not None
        primal, dual = self.certified
        return {
            "certificate": Certificate(primal, dual, self.at_zero, primal),
            "history": self.history(),
            "n_iter": np.array([int(np.ceil(self.passes))]),
            "status": self.status or Status.CONVERGED,
        }

    def history(self) -> History:
        """One row a round; the bounds are estimates where `certified` is 0."""
        names = ("iteration", "passes", "seconds", "primal", "dual", "visits", "certified")
        return history_of(self._rows, names, whole=("iteration", "visits"))
