"""What `tune` found: the values tried, their quality with intervals, which were chosen and why.

As plain values it is part of the fitted model, `tuning_`, and of its folder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from widemargin.comparison._outcomes import Interval

__all__ = ["Tuning"]

NAMES = {"estimator__C": "binary C", "alpha_share": "α/α*"}
"""Names of parameters for people, where they have others."""


@dataclass(frozen=True)
class Tuning:
    """What `tune` returns: a row for each combination of values, and the model with the best ones.

    Parameters
    ----------
    params : tuple of str
        Names of the parameters.
    tried : tuple of dict
        Values by name, ascending.
    quality : tuple of Interval or None
        Mean over the held-out rows and 95 % interval of each; None where there was no time for it.
    metric : str
        What was measured.
    n_folds, n_rows : int
        Folds, and held-out rows in all of them.
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
    >>> y = np.arange(90) % 3
    >>> X = np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
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
        """What was chosen and why, in a sentence."""
        quality = self.quality[self.best_index]
        assert quality is not None
        how = f"{self.n_folds} folds" if self.n_folds > 1 else "one fold"
        ties = sum(q is not None and same(q.mean, quality.mean) for q in self.quality) > 1
        chosen = ", ".join(f"{NAMES.get(name, name)} = {value:.4g}" for name, value in self.best.items())
        why = f"the best mean {self.metric}, {quality.mean:.4f}, on {self.n_rows:,} held-out rows of {how}"
        return f"{chosen}: {why}{'; of equal ones the smallest C was taken' if ties else ''}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and the model folder."""
        return {
            "params": list(self.params),
            "tried": [
                {"values": dict(values), "mean": None, "low": None, "high": None}
                if q is None
                else {"values": dict(values), "mean": q.mean, "low": _finite(q.low), "high": _finite(q.high)}
                for values, q in zip(self.tried, self.quality, strict=True)
            ],
            "metric": self.metric,
            "folds": self.n_folds,
            "rows": self.n_rows,
            "best": self.best_index,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Tuning:
        """Inverse of `to_dict`, without the model.

        Parameters
        ----------
        stored : dict
            What `to_dict` gave, such as the attribute `tuning_` of a model.

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
    """Whether two means are equal but for rounding."""
    return math.isclose(a, b, rel_tol=0.0, abs_tol=1e-12)


def _finite(bound: float) -> float | None:
    """A bound as JSON can hold it; the interval of one row has none."""
    return bound if math.isfinite(bound) else None


def _interval(row: dict[str, Any]) -> Interval | None:
    if row["mean"] is None:
        return None
    low, high = row["low"], row["high"]
    return Interval(row["mean"], -math.inf if low is None else low, math.inf if high is None else high)
