"""What `compare` and `tune` return: tables of what was measured, what they recommend or chose, and why.

Recommended is the best method, unless one that is not worse beyond chance (95 %, on the same rows) is much cheaper to
train: it saves at least half of the CPU time, and at least one second. A method with a fit that the budget stopped is
recommended only if all that are as good have one: it was not fully measured, and one-vs-all then lacks whole labels.
As plain values, a `Tuning` is part of the fitted model, `tuning_`, and of its folder.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from widemargin._frames import data_frame, html_table
from widemargin.comparison.measure import Cost, Floats, Interval, interval_of
from widemargin.estimators.training import Estimator

__all__ = ["NAMES", "Comparison", "MethodResult", "Tuning", "same"]

WORTH_SHARE = 0.5
"""Share of the best method's CPU time that another must save to be preferred to it."""
WORTH_SECONDS = 1.0
"""CPU seconds that it must save as well: a share of almost nothing is nothing."""
NAMES = {"estimator__C": "binary C", "alpha_share": "α/α*"}
"""Displayed names of parameters, where they differ."""


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
        Means over the folds; for memory, the maximum.
    relative_gap : float
        The largest certified relative gap of the models; for trees, of the decrease.
    stopped : bool
        Whether the budget stopped a fit before its tolerance.
    """

    name: str
    estimator: Estimator = field(repr=False)
    parameters: dict[str, list[Any]]
    quality: dict[str, Interval]
    cost: Cost
    relative_gap: float
    stopped: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which has no NaN."""
        return {
            "method": self.name,
            "parameters": self.parameters,
            "quality": {name: asdict(interval) for name, interval in self.quality.items()},
            **{name: None if value != value else value for name, value in asdict(self.cost).items()},
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
        Number of rows, labels and folds, the folds asked for, the share of the rows used, and the seconds.
    not_tried : dict of str to str
        Methods that are not in the table, and why.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import compare
    >>> X, y = np.repeat(np.eye(3), 30, axis=0), np.repeat(["cat", "cow", "dog"], 30)
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
        """The method with the highest mean, whether its fits were stopped or not."""
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
        """The best method, or one as good that is much cheaper to train; a stopped one only if all of these were."""
        good = self.as_good_as_the_best
        first, *others = [method for method in good if not method.stopped] or good
        worth = max(WORTH_SECONDS, WORTH_SHARE * first.cost.cpu_s)
        cheap = [method for method in others if first.cost.cpu_s - method.cost.cpu_s >= worth]
        return min(cheap, key=lambda method: method.cost.cpu_s, default=first)

    @property
    def recommendation(self) -> str:
        """What to use, in one sentence with the reason."""
        chosen, best = self.recommended, self.best
        value = f"{self.metric} ({best.quality[self.metric].mean:.3f})"
        if chosen is best:
            more = "; its fits were stopped by the budget, so more time may improve it" if chosen.stopped else ""
            return f"Use {chosen.name}: {self._lead(value)}{more}."
        reason = f"takes {best.cost.cpu_s / max(chosen.cost.cpu_s, 1e-9):.1f} times the CPU time to train"
        if best.stopped and not chosen.stopped:
            reason = "was stopped by the budget"
        return (
            f"Use {chosen.name}: {best.name} has the best {value}, but leads by only {self._points(chosen)}, and "
            f"{reason}."
        )

    def _lead(self, value: str) -> str:
        """Why the best method is recommended."""
        if len(self.methods) == 1:
            return f"{value}; no other method was tried"
        if len(self.as_good_as_the_best) > 1:
            return f"it has the best {value}, and no statistically equivalent method saves much CPU time"
        second = self.methods[1]
        return f"it has the best {value}, {self._points(second)} ahead of {second.name}"

    def _points(self, other: MethodResult) -> str:
        """By how much the best method leads another."""
        gap = self.difference(self.best.name, other.name)
        return f"{100 * gap.mean:.1f} points (95% CI: {100 * gap.low:.1f} to {100 * gap.high:.1f})"

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

    def to_frame(self) -> Any:
        """The methods as a data frame, best first.

        Returns
        -------
        pandas.DataFrame
            Column "method"; one per parameter, with the value chosen in most folds (missing where a method does not
            have it); per metric its mean, "<metric>_low" and "<metric>_high"; "relative_gap", "cpu_s", "memory_bytes",
            "model_bytes" and "prediction_s" as in `MethodResult`; "stopped", and "recommended".

        Examples
        --------
        >>> import numpy as np
        >>> from widemargin import compare
        >>> y = np.arange(90) % 3
        >>> X = np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
        >>> frame = compare(X, y, methods=["one-vs-all", "top-k, k = 1"], cv=3).to_frame()
        >>> len(frame), frame["recommended"].sum().item(), sorted(frame.columns)[:2]
        (2, 1, ['C', 'cpu_s'])
        """
        return data_frame(self._columns())

    def _repr_html_(self) -> str:
        return html_table(self._columns(), self.recommendation)

    def _columns(self) -> dict[str, list[Any]]:
        """One row per method; see `to_frame`."""
        searched = [name for method in self.methods for name in method.parameters]
        rows = []
        for method in self.methods:
            chosen = method.estimator.get_params()
            row = {
                "method": method.name,
                **dict.fromkeys(searched),
                **{name: chosen[name] for name in method.parameters},
            }
            for name, value in method.quality.items():
                row |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
            row |= {"relative_gap": method.relative_gap, **asdict(method.cost), "stopped": method.stopped}
            rows.append({**row, "recommended": method is self.recommended})
        return {name: [row[name] for row in rows] for name in rows[0]}


@dataclass(frozen=True)
class Tuning:
    """What `tune` returns: one row per combination of values, and the model with the best ones.

    Parameters
    ----------
    params : tuple of str
        Names of the parameters.
    tried : tuple of dict
        Values by name, ascending.
    quality : tuple of Interval or None
        Mean over the held-out rows and 95 % interval of each; None where time ran out.
    metric : str
        What was measured.
    n_folds, n_rows : int
        Number of folds, and of their held-out rows together.
    best_index : int
        The row that was chosen.
    notes : tuple of str
        Sentences about the search: values added at the edge, folds left out.
    model : estimator or None
        Fitted on all rows with the best values; None with refit=False.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import OneVsAllClassifier, tune
    >>> X, y = np.repeat(np.eye(3), 30, axis=0), np.repeat(["cat", "cow", "dog"], 30)
    >>> found = tune(OneVsAllClassifier(), X, y, Cs=[0.1, 1.0], cv=3)
    >>> [values["C"] for values in found.tried], found.best["C"] == found.model.C
    ([0.1, 1.0], True)
    >>> found.metric, found.n_folds, found.n_rows
    ('top_k_accuracy@1', 3, 90)
    """

    params: tuple[str, ...]
    tried: tuple[dict[str, Any], ...]
    quality: tuple[Interval | None, ...]
    metric: str
    n_folds: int
    n_rows: int
    best_index: int
    notes: tuple[str, ...] = ()
    model: Any = field(default=None, repr=False)

    @property
    def best(self) -> dict[str, Any]:
        """The values that were chosen, by name: arguments of `set_params`."""
        return self.tried[self.best_index]

    @property
    def reason(self) -> str:
        """What was chosen and why, in one sentence."""
        quality = self.quality[self.best_index]
        if quality is None:  # a choice that was not made
            return self.notes[0]
        how = f"{self.n_folds} folds" if self.n_folds > 1 else "one fold"
        ties = sum(q is not None and same(q.mean, quality.mean) for q in self.quality) > 1
        chosen = ", ".join(f"{NAMES.get(name, name)} = {value:.4g}" for name, value in self.best.items())
        why = f"the best mean {self.metric}, {quality.mean:.4f}, on {self.n_rows:,} held-out rows of {how}"
        return f"{chosen}: {why}{'; the smallest C among ties was chosen' if ties else ''}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and the model folder."""
        return {
            "params": list(self.params),
            "tried": [
                {"values": dict(values)} | {name: _finite(quality, name) for name in ("mean", "low", "high")}
                for values, quality in zip(self.tried, self.quality, strict=True)
            ],
            "metric": self.metric,
            "folds": self.n_folds,
            "rows": self.n_rows,
            "best": self.best_index,
            "notes": list(self.notes),
        }

    def to_frame(self) -> Any:
        """The values that were tried as a data frame, ascending.

        Returns
        -------
        pandas.DataFrame
            One column per parameter; "mean", "low" and "high", the quality and its 95 % interval (missing where time
            ran out); and "best", which is true in one row.

        Examples
        --------
        >>> import numpy as np
        >>> from widemargin import OneVsAllClassifier, tune
        >>> y = np.arange(90) % 3
        >>> X = np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
        >>> frame = tune(OneVsAllClassifier(), X, y, Cs=[0.1, 1.0], cv=3).to_frame()
        >>> list(frame.columns), frame["C"].tolist()
        (['C', 'mean', 'low', 'high', 'best'], [0.1, 1.0])
        """
        return data_frame(self._columns())

    def _repr_html_(self) -> str:
        return html_table(self._columns(), self.reason)

    def _columns(self) -> dict[str, list[Any]]:
        """One row per combination of values; see `to_frame`."""
        columns = {name: [values[name] for values in self.tried] for name in self.params}
        columns |= {end: [getattr(quality, end, None) for quality in self.quality] for end in ("mean", "low", "high")}
        return columns | {"best": [row == self.best_index for row in range(len(self.tried))]}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Tuning:
        """Inverse of `to_dict`, without the model.

        Parameters
        ----------
        stored : dict
            The result of `to_dict`, such as the attribute `tuning_` of a model.

        Returns
        -------
        Tuning
        """
        tried = stored["tried"]
        return cls(
            tuple(stored["params"]),
            tuple(dict(row["values"]) for row in tried),
            tuple(_interval(row) for row in tried),
            stored["metric"],
            stored["folds"],
            stored["rows"],
            stored["best"],
            tuple(stored["notes"]),
        )


def same(a: float, b: float) -> bool:
    """Whether two means are equal up to rounding."""
    return math.isclose(a, b, rel_tol=0.0, abs_tol=1e-12)


def _finite(quality: Interval | None, name: str) -> float | None:
    """A number of an interval as JSON can hold it: None if it is infinite, as the bounds of a single row are."""
    value: float = math.inf if quality is None else getattr(quality, name)
    return value if math.isfinite(value) else None


def _interval(row: dict[str, Any]) -> Interval | None:
    """Inverse of `_finite`, for all three numbers."""
    if row["mean"] is None:
        return None
    low, high = row["low"], row["high"]
    return Interval(row["mean"], -math.inf if low is None else low, math.inf if high is None else high)
