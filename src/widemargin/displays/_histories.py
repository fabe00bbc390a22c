"""Histories of all families as series over iterations, whatever their rows stand for.

A history has one row a pass, or one for each iteration and part of the work: log₂ bins of label frequency in
one-vs-all, problems in the rivals. A part that has ended keeps its last value, so that sums over the parts compare:

    total(t) = Σ_parts value(part, last iteration of the part ≤ t)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Clock", "bin_name", "clock_of", "least_of_bin", "parts_of", "total_of"]

Floats = npt.NDArray[np.float64]

PARTS = ("frequency_bin", "problem")
THOUSAND = 1000


class Clock(NamedTuple):
    """The column that counts, and what to call it."""

    column: str
    name: str


def clock_of(history: Mapping[str, npt.NDArray[Any]]) -> Clock:
    """What a history counts by; an error for one that has no iterations."""
    for column, name in (("passes", "passes over the rows"), ("round", "round"), ("iteration", "iteration")):
        if column in history:
            return Clock(column, name)
    raise ValueError(
        f"this history has no iterations, only {', '.join(history) or 'nothing'}: the solver keeps one row for each "
        "part of its work"
    )


def parts_of(history: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Which part of the work each row belongs to, shape (n_rows,); all zeros where there is one only."""
    for name in PARTS:
        if name in history:
            return np.asarray(history[name], dtype=np.int64)
    n_rows = len(next(iter(history.values()))) if history else 0
    return np.zeros(n_rows, dtype=np.int64)


def total_of(history: Mapping[str, npt.NDArray[Any]], values: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Iterations, and the sum over the parts of a column at each of them, both of shape (n_iterations,)."""
    clock, parts = np.asarray(history[clock_of(history).column], dtype=np.float64), parts_of(history)
    times = np.unique(clock)
    total = np.zeros(len(times))
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        rows = rows[np.argsort(clock[rows], kind="stable")]
        last = np.searchsorted(clock[rows], times, side="right") - 1
        total += values[rows[np.maximum(last, 0)]]
    return times, total


def bin_name(log2_frequency: int) -> str:
    """The numbers of a log₂ bin: "0", "1", "2–3", "4–7", …; from a thousand on as "1k–2k"."""
    if log2_frequency < 1:
        return least_of_bin(log2_frequency)
    above = 2 ** (log2_frequency + 1)
    most = str(above - 1) if above < 2 * THOUSAND else f"{above // THOUSAND}k"
    return f"{least_of_bin(log2_frequency)}–{most}"


def least_of_bin(log2_frequency: int) -> str:
    """The smallest number of a log₂ bin; −1 is the bin of 0."""
    least = 0 if log2_frequency < 0 else 2**log2_frequency
    return str(least) if least < THOUSAND else f"{least // THOUSAND}k"
