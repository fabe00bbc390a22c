"""Means and bands by iteration (from histories) and by number of positives (from labels)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from reproduce_one_vs_all.runs import Outcome

MIN_LABELS = 5  # means over fewer labels are not drawn
FIRST_ITERATION = {"step_size": 1, "cg_steps": 1, "seconds": 1}  # there is no step before the first
NORMAL_95 = 1.96


class Curve(NamedTuple):
    """A line with a band."""

    x: Any
    mean: Any
    low: Any
    high: Any


def by_iteration(outcome: Outcome, quantity: str, n_rows: int) -> Curve:
    """Mean over the labels still running and the 95 % band of that mean; active rows as a fraction."""
    history = outcome.history
    labels = np.bincount(history["iteration"], history["n_labels"])
    mean = history[quantity] if quantity == "step_size" else history[quantity] / history["n_labels"]
    first = np.bincount(history["iteration"], history["n_labels"] * mean) / labels
    squares = history["n_labels"] * (history[f"{quantity}_std"] ** 2 + mean**2)
    deviation = np.sqrt(np.maximum(np.bincount(history["iteration"], squares) / labels - first**2, 0.0))
    scale = 1.0 / n_rows if quantity == "active_rows" else 1.0
    drawn = labels >= min(MIN_LABELS, labels[0])
    drawn[: FIRST_ITERATION.get(quantity, 0)] = False
    x, first, half = (
        np.flatnonzero(drawn),
        scale * first[drawn],
        scale * NORMAL_95 * (deviation / np.sqrt(labels))[drawn],
    )
    return Curve(x, first, first - half, first + half)


def objective_of_all(outcome: Outcome) -> Curve:
    """Mean objective over all labels, with finished labels at their last value; it never rises."""
    history = outcome.history
    last = history["iteration"].max()
    total = np.zeros(last + 1)
    for bin_ in np.unique(history["frequency_bin"]):
        rows = history["frequency_bin"] == bin_
        of_bin = (history["primal"] + history["primal_finished"])[rows]
        # After the last iteration of a bin all of its labels have finished, so the total stays constant.
        total += np.pad(of_bin, (0, last + 1 - len(of_bin)), mode="edge")
    mean = total / len(outcome.n_iter)
    return Curve(np.arange(last + 1), mean, mean, mean)


def by_positives(values: Any, n_positives: Any) -> Curve:
    """Mean and 5–95 % quantiles of a per-label quantity, in log₂ bins of the number of positives."""
    bins = np.floor(np.log2(n_positives)).astype(int)
    rows = [
        (2.0**bin_ * np.sqrt(2.0), values[bins == bin_].mean(), *np.quantile(values[bins == bin_], (0.05, 0.95)))
        for bin_ in np.unique(bins)
    ]
    return Curve(*np.array(rows).T)


def model_error(step: Any, margin: float) -> Any:
    """e(δ; m₀) of eq. (17): the quadratic approximation of the squared hinge at m₀ minus the loss at m₀ + δ."""
    short_of = max(0.0, 1.0 - margin)
    model = short_of**2 - 2.0 * step * short_of + step**2 * (short_of > 0.0)
    return model - np.maximum(0.0, 1.0 - margin - step) ** 2


def rarest(n_positives: Any, share: float = 0.25) -> Any:
    """Mask of the rarest quarter of the labels, ties included."""
    return n_positives <= np.quantile(n_positives, share)
