"""When a dual ascent is evaluated, why it ends, and what is kept of the way there."""

from __future__ import annotations

import numpy as np

from widemargin.problems.certificate import relative_gap
from widemargin.solvers._limits import Limits, history_of
from widemargin.solvers.result import Callback, History, Status

__all__ = ["TopKProgress"]

FIRST_EVALUATION = 4
"""Pass of the first evaluation, of an ascent from zero."""
UNSEEN_SHARE = 0.7
"""Part of the passes foreseen from an earlier fit that go by without an evaluation; the second one is at their end.
Paths k = 10, 5, 3, 1 with α on letter and 20newsgroups against fits from scratch: 1.16 and 1.21 with .7, 1.12 and 1.20
with .5, .96 and 1.04 with an evaluation of the start and short steps from there."""
CAUTION = 0.8
"""Share of the predicted way that is gone before the next evaluation: predictions from early passes are too long."""
GROWTH = 1.0
"""Most that the number of passes grows from an evaluation to the next, relative to the passes so far."""
FACE_GAP = 0.05
"""Gap from which on a step on the face is tried: further away dual variables have not found their bounds."""
FACE_PASSES = 100
"""Passes still expected, at least, for a step on the face to be worth it."""
LEAST_GAIN = 0.01
"""Share of the gap that a step on the face must gain for another to follow soon."""
PASSES_AFTER_FACE = 20
"""Passes between a step on the face and the next evaluation."""
LEAST_GROWTH = 0.03
"""Least that the number of passes grows; an evaluation costs as much as one or two passes over all rows."""
STALL = 4
"""The gap stalls if it does not halve while the passes grow by this factor."""
STALL_PASSES = 200
"""Passes before that is said: the first ones are slow, too."""


class TopKProgress(Limits):
    """Counts passes, asks for evaluations where the gap is expected to be reached, and records them.

    Parameters
    ----------
    tol : float
        Relative gap to reach.
    max_iter : int
        Passes at most.
    callback : callable or None
        Called with a `Progress` after each evaluation.
    time_limit : float or None
        Seconds, from now.

    Examples
    --------
    >>> from widemargin.solvers._top_k_progress import TopKProgress
    >>> progress = TopKProgress(tol=1e-3, max_iter=7, callback=None, time_limit=None)
    >>> progress.passes += progress.passes_to_go
    >>> progress.record(bounds=(2.0, 1.0), n_active=10, n_visits=40)
    >>> progress.passes, progress.passes_to_go, progress.status
    (4, 3, None)
    """

    def __init__(self, tol: float, max_iter: int, callback: Callback | None, time_limit: float | None) -> None:
        super().__init__(max_iter, callback, time_limit)
        self.tol = tol
        self.passes = 0
        self.next_evaluation = min(FIRST_EVALUATION, max_iter)
        self.status: Status | None = None
        self.certified: tuple[float, float] | None = None
        self._rows: list[tuple[float, ...]] = []
        self._gaps: list[float] = []  # since the last restart
        self._face_gap = FACE_GAP  # that the next step on the face waits for
        self._expected = 0.0  # passes up to the tolerance
        self._foreseen = 0  # passes in all, by an earlier fit

    @property
    def passes_to_go(self) -> int:
        """Passes up to the next evaluation."""
        return self.next_evaluation - self.passes

    @property
    def looks_reached(self) -> bool:
        """Whether the last evaluation was within the tolerance."""
        return self._gaps[-1] <= self.tol

    @property
    def stalls(self) -> bool:
        """Whether the gap has hardly moved for long, as where rounding keeps it up."""
        recent = self._rows[-len(self._gaps) :]
        earlier = [row[4] for row in recent if STALL * row[0] <= self.passes]
        later = self._gaps[len(earlier) :]  # a small gap long ago, by luck, is no progress
        return self.passes >= STALL_PASSES and bool(earlier) and bool(later) and min(later) > 0.5 * earlier[-1]

    @property
    def wants_face_step(self) -> bool:
        """Whether the way is still long and dual variables are likely to have found their bounds."""
        return self._gaps[-1] <= self._face_gap and self._expected >= FACE_PASSES

    def begin_from_start(self, foreseen: int) -> None:
        """Plan for given dual variables: an evaluation at once if no fit tells how many passes to foresee."""
        self._foreseen = foreseen
        self.next_evaluation = min(self.max_iter, int(UNSEEN_SHARE * foreseen))

    def note_face_step(self, gain: float) -> None:
        """Plan on after a step on the face; one that gained little waits for half the gap."""
        gap, primal, dual = self._gaps[-1], *self._rows[-1][2:4]
        if gain < LEAST_GAIN * (primal - dual):
            self._face_gap = 0.5 * gap
            return
        self._face_gap = 0.9 * gap  # the next one only if this one leads on
        self.next_evaluation = min(self.max_iter, self.passes + PASSES_AFTER_FACE)
        self._gaps.clear()

    def record(self, bounds: tuple[float, float], n_active: int, n_visits: int) -> None:
        """Keep an evaluation, plan the next, and see whether something asks to stop."""
        primal, dual = bounds
        gap = float(relative_gap(np.array([primal]), np.array([dual]))[0])
        seconds = self.elapsed_s
        self._rows.append((self.passes, seconds, primal, dual, gap, n_active, n_visits))
        self._gaps.append(gap)
        self.next_evaluation = min(self.max_iter, self.passes + self._passes_needed(gap))
        self.status = self.reached(self.passes, seconds, primal, dual) or self.status

    def accept(self, bounds: tuple[float, float]) -> None:
        """Take certified bounds; they end the ascent if they are close enough."""
        primal, dual = bounds
        if float(relative_gap(np.array([primal]), np.array([dual]))[0]) <= self.tol:
            self.certified, self.status = (primal, dual), Status.CONVERGED

    def restart(self) -> None:
        """Forget the gaps so far: from now on another precision makes them."""
        self._gaps.clear()

    def history(self) -> History:
        """One row an evaluation."""
        names = ("iteration", "seconds", "primal", "dual", "relative_gap", "active_rows", "visits")
        return history_of(self._rows, names, whole=("iteration", "active_rows", "visits"))

    def _passes_needed(self, gap: float) -> int:
        """How many passes the gap is expected to need: its logarithm falls along a line."""
        most = max(2, int(GROWTH * self.passes))
        self._expected = np.inf
        if len(self._rows) == 1 and 0 < self.passes < self._foreseen:
            return self._foreseen - self.passes
        if len(self._gaps) < 2 or not 0.0 < gap < self._gaps[-2]:
            return most
        before = self._rows[-2]
        rate = np.log(before[4] / gap) / max(self.passes - before[0], 1.0)
        self._expected = float(np.log(max(gap / self.tol, 1.0)) / rate)
        return int(np.clip(CAUTION * self._expected, max(1.0, LEAST_GROWTH * self.passes), most))
