"""A fit of every method on a few rows: what it will cost on all of them, and whether the method can be fitted."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import scipy.sparse as sp
from sklearn.base import clone

from widemargin.comparison._measure import fit_quietly
from widemargin.comparison._rows import n_rows_of, part_of, take
from widemargin.comparison.candidates import Candidate

__all__ = ["Trial", "trial_rows", "try_methods"]

TRIAL_ROWS = 1000
"""Rows of the fit that tells what a method costs, at least."""
TRIAL_VALUES = 200_000
"""Stored values of it: with fewer, what a fit costs beside its rows would be taken for the cost of rows, and very small
problems are solved more exactly than larger ones."""
GROWTH = 1.3
"""Power of the number of rows with which the time of a fit grows: more rows make more features, and harder problems."""
TRANSFORMED = 2.25
"""How often a transformer sees the training rows of a fold: as a whole and in the search, and a quarter to test."""


class Trial(NamedTuple):
    """Methods that work with the seconds of a fit, why others do not, and seconds of the transformer in a fold."""

    candidates: list[Candidate]
    seconds: list[float]
    refused: dict[str, str]
    overhead: float


def trial_rows(X: Any, y: Any, n_rows: int, kind: str, seed: int, transformer: Any) -> tuple[tuple[Any, Any], float]:
    """A few rows for trials, and what a transformer takes in a fold of so many, by what it took for them.

    They are as many as `TRIAL_ROWS` and `TRIAL_VALUES` ask for, or all of a fold.
    """
    n_few = min(n_rows, TRIAL_ROWS)
    for _ in range(2):
        part = part_of(y, n_rows_of(X), n_few / n_rows_of(X), kind, seed)
        few, y_few = take(X, y, part)
        began = time.monotonic()
        few = few if transformer is None else clone(transformer).fit_transform(few, y_few)
        overhead = 0.0 if transformer is None else TRANSFORMED * (time.monotonic() - began) * n_rows / len(part)
        needed = int(len(part) * 1.1 * TRIAL_VALUES / max(1, few.nnz if sp.issparse(few) else few.size)) + 1
        if n_few == n_rows or needed <= n_few:
            break
        n_few = min(n_rows, needed)
    return (few, y_few), overhead


def trial_seconds(candidate: Candidate, X: Any, y: Any, n_rows: int) -> float | str:
    """Seconds of a fit on so many rows, by one on a few; or why the method cannot be fitted."""
    began = time.monotonic()
    try:
        fit_quietly(clone(candidate.estimator).set_params(**candidate.middle()), X, y)
    except ValueError as error:
        return str(error)
    return float((time.monotonic() - began) * (n_rows / X.shape[0]) ** GROWTH)


def those_that_worked(
    candidates: list[Candidate], trials: list[float | str]
) -> tuple[list[Candidate], list[float], dict[str, str]]:
    """Methods that fit the data with their seconds, and the reasons of the others; an error if there is none."""
    pairs = list(zip(candidates, trials, strict=True))
    refused = {c.name: trial for c, trial in pairs if isinstance(trial, str)}
    if len(refused) == len(pairs):
        raise ValueError(f"no method can be fitted; {pairs[0][0].name}: {refused[pairs[0][0].name]}")
    worked = [(c, trial) for c, trial in pairs if not isinstance(trial, str)]
    return [c for c, _ in worked], [seconds for _, seconds in worked], refused


def try_methods(
    candidates: list[Candidate], X: Any, y: Any, n_rows: int, kind: str, seed: int, transformer: Any
) -> Trial:
    """Fit each method on a few rows, as a trial for fits of `n_rows`."""
    few, overhead = trial_rows(X, y, n_rows, kind, seed, transformer)
    trials = [trial_seconds(candidate, *few, n_rows) for candidate in candidates]
    return Trial(*those_that_worked(candidates, trials), overhead)
