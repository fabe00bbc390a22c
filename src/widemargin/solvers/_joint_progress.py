"""When a joint dual ascent is certified, why it ends, and what is kept of the way there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from widemargin.problems.certificate import Certificate
from widemargin.solvers._limits import ROUNDING, Limits, best_multiple, ending, history_of
from widemargin.solvers.result import Callback, History, Status

__all__ = ["JointProgress"]

NEAR = 4.0
"""A certificate is made when the estimate is below so many times the gap allowed: estimates are taken before visits."""
EVERY = 10
"""Rounds after which one is made in any case, which also wakes the blocks that slept."""
STALL_ROUNDS = 40
"""Rounds without a smaller certified gap after which rounding is suspected."""
STUCK_ROUNDS = 400
"""Rounds without a smaller gap or a larger dual after which that is out of reach. The error of the primal goes by the
root of that of the dual, so that the gap still shrinks long after the dual seems to stand; 40 were too few."""
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
    rounding : float
        Of `ending`; 0 where nothing can be learnt, and the bounds are exact.

    Examples
    --------
    >>> from widemargin.solvers._joint_progress import JointProgress
    >>> progress = JointProgress(at_zero=10.0, tol=0.1, max_iter=5, callback=None, time_limit=None)
    >>> progress.record(dual=4.0, gap=0.9, n_visits=7, n_blocks=10)
    >>> progress.passes, progress.wants_certificate
    (0.7, True)
    >>> progress.accept(primal=4.5, dual=4.1), progress.status.value
    (True, 'converged')
    """

    def __init__(
        self,
        at_zero: float,
        tol: float,
        max_iter: int,
        callback: Callback | None,
        time_limit: float | None,
        rounding: float = ROUNDING,
    ) -> None:
        super().__init__(max_iter, callback, time_limit)
        self.at_zero, self.tol, self.rounding = at_zero, tol, rounding
        self.rounds, self.passes = 0, 0.0
        self.status: Status | None = None
        self.certified: float | None = None  # the primal value of the present point
        self.primal, self.dual = np.inf, -np.inf  # the best bounds
        self._rows: list[list[float]] = []
        self._dual = 0.0  # the last estimate
        self._gap = np.inf
        self._least_gap, self._best_round = np.inf, 0
        self._risen_to, self._risen_round, self._last = -np.inf, 0, 0

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
        return self.rounds - self._best_round >= STALL_ROUNDS and np.isfinite(self._least_gap)

    def end_if_stuck(self) -> None:
        """End where neither the gap has become smaller nor the dual has risen for long: rounding is in the way."""
        if self.status is None and self.rounds - max(self._best_round, self._risen_round) >= STUCK_ROUNDS:
            self.status = Status.NOT_ATTAINED

    def record(self, dual: float, gap: float, n_visits: int, n_blocks: int) -> None:
        """Keep a round, with estimates of the dual bound and of the gap, and see whether something asks to stop."""
        self.rounds += 1
        self.passes += max(n_visits / n_blocks, LEAST_SHARE)
        self.certified = None
        self._dual, self._gap = dual, gap
        seconds = self.elapsed_s
        self._rows.append([self.rounds, self.passes, seconds, dual + gap, dual, n_visits, 0])
        self.status = self.reached(self.passes, seconds, dual + gap, dual) or self.status

    def accept(self, primal: float, dual: float) -> bool:
        """Take certified bounds, which end the ascent if the best are close enough; whether `primal` is the best."""
        self.certified, self._last, self._dual = primal, self.rounds, dual
        is_best = primal <= self.primal
        self.primal, self.dual = min(self.primal, primal), max(self.dual, dual)
        if primal - dual < self._least_gap:
            self._least_gap, self._best_round = primal - dual, self.rounds
        if self.dual - self._risen_to > self.rounding * abs(self.dual):
            self._risen_to, self._risen_round = self.dual, self.rounds
        if self._rows:
            self._rows[-1][2:5] = self.elapsed_s, primal, dual
            self._rows[-1][6] = 1
        self.status = ending(self.primal, self.dual, self.at_zero, self.tol, self.rounding) or self.status
        return is_best

    def restart(self) -> None:
        """Forget the gap that was reached: from now on another precision makes it."""
        self._least_gap, self._best_round, self._risen_round = np.inf, self.rounds, self.rounds

    def shorten(self, losses_at: Callable[[float], float]) -> float:
        """The multiple of the certified weights that is at least as good as zero weights: 1 where these are already.

        `losses_at(t)` is the sum of the losses at t times the weights; the penalty is homogeneous of degree 2.
        Sets: certified.
        """
        assert self.certified is not None
        if self.certified <= self.at_zero:
            return 1.0
        penalty = self.certified - losses_at(1.0)

        def objective(t: float) -> float:
            return t * t * penalty + losses_at(t)

        scale = best_multiple(objective)
        self.certified = objective(scale)
        return scale

    def outcome(self) -> dict[str, Any]:
        """What a result says of the way and of its end: `certificate`, `history`, `n_iter` and `status`."""
        assert self.certified is not None
        return {
            "certificate": Certificate(self.certified, self.dual, self.at_zero, self.certified),
            "history": self.history(),
            "n_iter": np.array([int(np.ceil(self.passes))]),
            "status": self.status or Status.CONVERGED,
        }

    def history(self) -> History:
        """One row a round; the bounds are estimates where `certified` is 0."""
        names = ("iteration", "passes", "seconds", "primal", "dual", "visits", "certified")
        return history_of(self._rows, names, whole=("iteration", "visits"))
