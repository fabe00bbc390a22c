"""How much is done within a budget of time, and how long the rest will take.

Every method is fitted once on a small part of the rows. From that follows the cost of a full comparison: for each fold,
a search along the grid on four fifths of the training rows and a fit on all of them.
If it does not fit the budget, the grids are thinned, the most expensive method's first, then the folds become fewer,
then methods that take more time than all others together are left out, as long as two are left, and at last rows.
While it runs, estimates are corrected by what the finished parts really took; time that is left goes into further
folds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from widemargin.comparison.candidates import Candidate

__all__ = ["SEARCH_TIME", "Clock", "Plan", "make_plan"]

SAFETY = 0.7
"""Part of the budget that is planned; fits with a large C take longer than the trial's."""
SEARCH_ROWS = 0.8
SEARCH_TIME = 0.7
"""Part of a method's time after which the search stops: the fit that counts must have some left."""
FEWEST_ROWS = 500
MARGIN = 1.2
"""Time that must be left for a further fold, in units of the finished ones."""
WARM_START = 0.6
"""Cost of a fit of the search, relative to one from scratch."""


@dataclass(frozen=True)
class Plan:
    """What is done.

    Parameters
    ----------
    candidates : tuple of Candidate
        Methods with their grids.
    n_folds : int
        Folds of the cross-validation that are run; 1 with test rows, and for a single split.
    share : float
        Part of the rows that is used.
    seconds : tuple of float
        Expected wall-clock seconds of each method in each fold.
    overhead : float
        Expected seconds of what the methods share in each fold: a vectoriser of text.
    dropped : dict
        Methods that are left out, with the reason.
    folds_asked : int
        Folds that were wanted.
    """

    candidates: tuple[Candidate, ...]
    n_folds: int
    share: float
    seconds: tuple[float, ...]
    overhead: float = 0.0
    dropped: dict[str, str] = field(default_factory=dict)
    folds_asked: int = 1

    @property
    def total(self) -> float:
        """Expected seconds in all."""
        return self.n_folds * (self.overhead + sum(self.seconds))


def make_plan(
    candidates: list[Candidate],
    seconds_a_fit: list[float],
    n_folds: int,
    n_rows: int,
    budget: float | None,
    overhead: float = 0.0,
) -> Plan:
    """The largest comparison that fits the budget.

    Parameters
    ----------
    candidates : list of Candidate
        Methods with full grids.
    seconds_a_fit : list of float
        Expected seconds of a fit on all training rows of a fold.
    n_folds : int
        Folds that are wanted.
    n_rows : int
        Rows of a training part.
    budget : float or None
        Seconds; None for no limit.
    overhead : float
        Expected seconds of what the methods share in a fold.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> from widemargin.comparison._plan import make_plan
    >>> from widemargin.comparison.candidates import Candidate
    >>> candidate = Candidate("one-vs-all", OneVsAllClassifier(), (0.1, 1.0, 10.0, 100.0))
    >>> full = make_plan([candidate], [1.0], 5, 10_000, None)
    >>> short = make_plan([candidate], [1.0], 5, 10_000, budget=5.0)
    >>> full.n_folds, round(full.total, 1), short.n_folds, len(short.candidates[0].Cs), short.share
    (5, 14.6, 1, 2, 1.0)
    """
    limit = float("inf") if budget is None else SAFETY * budget
    expected = _seconds(candidates, seconds_a_fit)
    plan = Plan(tuple(candidates), n_folds, 1.0, expected, overhead, folds_asked=n_folds)
    for _ in candidates:
        if plan.total <= limit:
            return plan
        plan = _with_one_thinned(plan, candidates, seconds_a_fit)
    least = replace(plan, n_folds=min(2, n_folds))
    while least.total > limit and (lighter := _without_the_costliest(least)) is not None:
        least = lighter
    for folds in (n_folds, 3, 2, 1):
        plan = replace(least, n_folds=min(folds, n_folds))
        if plan.total <= limit:
            return plan
    share = min(1.0, max(limit / plan.total, FEWEST_ROWS / max(n_rows, 1)))
    return replace(plan, share=share, seconds=tuple(share * s for s in plan.seconds), overhead=share * overhead)


def _with_one_thinned(plan: Plan, full: list[Candidate], seconds_a_fit: list[float]) -> Plan:
    """The plan with fewer values for the most expensive method that still has all of them."""
    kept = list(plan.candidates)
    costly = max((m for m in range(len(kept)) if kept[m] is full[m]), key=lambda m: plan.seconds[m])
    kept[costly] = full[costly].thinned()
    return replace(plan, candidates=tuple(kept), seconds=_seconds(kept, seconds_a_fit))


def _without_the_costliest(plan: Plan) -> Plan | None:
    """The plan without the method that takes more time than all others; None if none does, or only two are left."""
    costliest = max(range(len(plan.seconds)), key=lambda m: plan.seconds[m])
    if len(plan.seconds) < 3 or plan.seconds[costliest] <= 0.5 * sum(plan.seconds):
        return None
    rest = [m for m in range(len(plan.seconds)) if m != costliest]
    reason = f"it would take about {plan.seconds[costliest]:.0f} s a fold, too much for the budget"
    return replace(
        plan,
        candidates=tuple(plan.candidates[m] for m in rest),
        seconds=tuple(plan.seconds[m] for m in rest),
        dropped=plan.dropped | {plan.candidates[costliest].name: reason},
    )


def _seconds(candidates: list[Candidate], seconds_a_fit: list[float]) -> tuple[float, ...]:
    """Expected seconds of each method in a fold."""
    return tuple(
        s * (1.0 + (SEARCH_ROWS * WARM_START * c.n_fits if c.n_fits > 1 else 0.0))
        for c, s in zip(candidates, seconds_a_fit, strict=True)
    )


class Clock:
    """The time that is left, by the plan and by what finished parts took.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> from widemargin.comparison._plan import Clock, make_plan
    >>> from widemargin.comparison.candidates import Candidate
    >>> plan = make_plan([Candidate("one-vs-all", OneVsAllClassifier(), (1.0,))], [2.0], 1, 100, None)
    >>> clock = Clock(plan, None)
    >>> round(clock.remaining, 2), clock.limit_of(0) > 1e9
    (2.0, True)
    """

    def __init__(self, plan: Plan, budget: float | None) -> None:
        self.plan = plan
        self.deadline = float("inf") if budget is None else time.monotonic() + budget
        self.done = [0] * len(plan.candidates)  # folds finished, by method
        self.expected = self.taken = 0.0  # seconds of the finished parts, planned and real

    def finish(self, method: int, seconds: float) -> None:
        """Note that a fold of a method is done."""
        self.done[method] += 1
        self.expected += self.plan.seconds[method]
        self.taken += seconds

    @property
    def remaining(self) -> float:
        """Seconds that are still expected."""
        planned = sum(s * (self.plan.n_folds - d) for s, d in zip(self.plan.seconds, self.done, strict=True))
        planned += self.plan.overhead * (self.plan.n_folds - max(self.done))
        return planned * (self.taken / self.expected if self.expected > 0.0 else 1.0)

    @property
    def has_time_for_another_fold(self) -> bool:
        """Whether one more fold than planned fits, by what the finished ones took."""
        a_fold = self.taken / max(1, min(self.done))
        return time.monotonic() + MARGIN * a_fold <= self.deadline

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self.deadline

    def limit_of(self, method: int) -> float:
        """Seconds that a method may take in this fold: what the others that wait are not expected to need."""
        fold, left = self.done[method], self.deadline - time.monotonic()
        waiting = [
            s for m, (s, d) in enumerate(zip(self.plan.seconds, self.done, strict=True)) if d <= fold and m != method
        ]
        return max(left - sum(waiting), left / (1 + len(waiting)))
