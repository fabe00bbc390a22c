"""The table of a comparison, and what it recommends.

Recommended is the best method, unless one that is not worse beyond chance (95 %, on the same rows) is much cheaper to
train: it saves at least half of the CPU time, and a second of it. A method of which the budget stopped a fit is
recommended only if all of those were stopped: it was not measured, and one-vs-all lacks whole labels then.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.comparison._measure import Cost
from widemargin.comparison._outcomes import Interval, interval_of

__all__ = ["Comparison", "MethodResult"]

WORTH_SHARE = 0.5
"""Part of the best method's CPU time that another must save to be preferred to it."""
WORTH_SECONDS = 1.0
"""CPU seconds that it must save as well: a part of almost nothing is nothing."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MethodResult:
    """A method on all held-out rows.

    Parameters
    ----------
    name : str
        The method.
    estimator : estimator
        Not fitted, with the values chosen in most folds.
    parameters : dict
        The values chosen in each fold, by name.
    quality : dict of str to Interval
        Mean and 95 % interval of each metric.
    cost : Cost
        Means over the folds: CPU seconds, memory, size and time of a prediction.
    relative_gap : float
        The largest certified relative gap of the models; for trees, of the decrease.
    stopped : bool
        Whether the budget stopped a fit before its tolerance.
    """

    name: str
    estimator: Any = field(repr=False)
    parameters: dict[str, list[Any]]
    quality: dict[str, Interval]
    cost: Cost
    relative_gap: float
    stopped: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which has no NaN."""
        quality = {name: asdict(interval) for name, interval in self.quality.items()}
        cost = asdict(self.cost)
        return {
            "method": self.name,
            "parameters": self.parameters,
            "quality": quality,
            **{name: None if value != value else value for name, value in cost.items()},
            "relative_gap": self.relative_gap,
            "stopped": self.stopped,
        }


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Parameters
    ----------
    methods : tuple of MethodResult
        Best first.
    outcomes : dict of str to ndarray of shape (n_held_out,)
        What each method achieved on each held-out row, by the metric that decides.
    metric : str
        That metric.
    about : dict
        Rows, labels, folds and how many were asked for, share of the rows used, seconds.
    not_tried : dict of str to str
        Methods that are not in the table, and why.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import compare
    >>> y = np.arange(90) % 3
    >>> X = np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
    >>> result = compare(X, y, methods=["one-vs-all", "top-k, k = 1"], cv=3)
    >>> len(result.methods), result.recommended.name in result.recommendation
    (2, True)
    """

    methods: tuple[MethodResult, ...]
    outcomes: dict[str, Floats] = field(repr=False)
    metric: str
    about: dict[str, Any]
    not_tried: dict[str, str]

    @property
    def best(self) -> MethodResult:
        """The method with the highest mean. What a stopped fit gave is a model, too."""
        return self.methods[0]

    def difference(self, name: str, other: str) -> Interval:
        """Mean difference of two methods on the same rows, with its 95 % interval."""
        return interval_of(self.outcomes[name] - self.outcomes[other])

    @property
    def as_good_as_the_best(self) -> list[MethodResult]:
        """The best, and those that are not worse beyond chance."""
        best = self.best
        return [best, *(m for m in self.methods[1:] if self.difference(best.name, m.name).low <= 0.0)]

    @property
    def recommended(self) -> MethodResult:
        """The best method, or one as good that is much cheaper to train; a stopped one only if all of them were."""
        good = self.as_good_as_the_best
        first, *others = [method for method in good if not method.stopped] or good
        worth = max(WORTH_SECONDS, WORTH_SHARE * first.cost.cpu_s)
        cheap = [method for method in others if first.cost.cpu_s - method.cost.cpu_s >= worth]
        return min(cheap, key=lambda method: method.cost.cpu_s, default=first)

    @property
    def recommendation(self) -> str:
        """What to use, in a sentence with its reason."""
        chosen, best = self.recommended, self.best
        value = f"{self.metric} {best.quality[self.metric].mean:.3f}"
        if chosen is best:
            more = "; the budget stopped its fits, so that more time may gain more" if chosen.stopped else ""
            return f"Use {chosen.name}: {self._lead(value)}{more}."
        gap = self.difference(best.name, chosen.name)
        times = f"takes {best.cost.cpu_s / max(chosen.cost.cpu_s, 1e-9):.1f} times the CPU time to train"
        if best.stopped and not chosen.stopped:
            times = "was stopped by the budget"
        return (
            f"Use {chosen.name}: {best.name} has the best {value}, but leads by only {100 * gap.mean:.1f} points "
            f"(95 %: {100 * gap.low:.1f} to {100 * gap.high:.1f}), and {times}."
        )

    def _lead(self, value: str) -> str:
        """Why the best one is recommended."""
        if len(self.methods) == 1:
            return f"{value}, the only method that was tried"
        second = self.methods[1]
        gap = self.difference(self.best.name, second.name)
        interval = f"(95 %: {100 * gap.low:.1f} to {100 * gap.high:.1f})"
        if len(self.as_good_as_the_best) > 1:
            return f"it has the best {value}, and no method as good within chance saves much CPU time"
        return f"it has the best {value}, {100 * gap.mean:.1f} points {interval} ahead of {second.name}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **self.about,
            "metric": self.metric,
            "methods": [method.to_dict() for method in self.methods],
            "not_tried": self.not_tried,
            "recommended": self.recommended.name,
            "recommendation": self.recommendation,
        }
