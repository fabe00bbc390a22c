"""The worst mistakes: rows whose best label is wrong by the largest margin, and what made it win.

    margin of a row = score of its best label − score of its best true label          where the best label is wrong

The reasons are the contributions of features to this margin (`explain`), on a tree at the fork where the paths part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from widemargin.report._label_table import short
from widemargin.report._outcome import Outcome

__all__ = ["Mistake", "Reason", "Reasons", "texts_of_rows", "worst_mistakes"]

N_MISTAKES = 12
N_REASONS = 8
N_NAMES = 8
N_BEST = 3
LONGEST_TEXT = 400

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reason:
    """What a feature adds to the margin; `share` is relative to the largest one, for a bar."""

    feature: str
    contribution: float
    share: float


@dataclass(frozen=True)
class Reasons:
    """Why one label, or one child at a fork of a tree, won over another."""

    winner: str
    loser: str
    margin: float
    reasons: tuple[Reason, ...]
    others: float
    intercept: float


@dataclass(frozen=True)
class Mistake:
    """One row: what was predicted with which scores, what is true, and why; `problem` says why there is no reason."""

    row: int
    best: tuple[tuple[str, float, bool], ...]
    true: tuple[tuple[str, float | None], ...]
    more_true: int
    margin: float
    why: Reasons | None
    problem: str


def worst_mistakes(outcome: Outcome, n_mistakes: int = N_MISTAKES) -> list[Mistake]:
    """The mistakes with the largest margins, worst first; rows without a label that the model knows have none."""
    rows, margins = _wrong_rows(outcome)
    order = np.argsort(-margins, kind="stable")[:n_mistakes]
    return [_mistake(outcome, int(rows[place]), float(margins[place])) for place in order.tolist()]


def texts_of_rows(texts: Iterable[str] | None, rows: list[int]) -> dict[int, str]:
    """The beginnings of the texts of some rows, by their numbers; the texts are gone through once."""
    if texts is None or not rows:
        return {}
    wanted = set(rows)
    return {row: short(text, LONGEST_TEXT) for row, text in enumerate(islice(texts, max(rows) + 1)) if row in wanted}


def _wrong_rows(outcome: Outcome) -> tuple[npt.NDArray[np.int64], Floats]:
    """Rows whose best label is wrong, and their margins."""
    known = outcome.truth[:, : outcome.n_labels].tocsr()
    if outcome.kind == "labels":
        right = np.asarray(known[np.arange(outcome.n_rows), outcome.top.indices[:, 0]]).ravel() != 0
    else:
        right = outcome.at_or_below
    rows = np.flatnonzero(~right & (np.diff(known.indptr) > 0))
    if len(rows) == 0:
        return rows, np.zeros(0)
    if outcome.kind == "labels":
        scores = outcome.model.label_scores(outcome.X[rows], known[rows])
        true = np.maximum.reduceat(scores.data, scores.indptr[:-1])
    else:
        true = outcome.model.label_scores(outcome.X[rows], outcome.model.classes_[known[rows].indices])
    return rows, np.asarray(outcome.top.scores[rows, 0] - true, dtype=np.float64)


def _mistake(outcome: Outcome, row: int, margin: float) -> Mistake:
    """All about one row."""
    model, names = outcome.model, outcome.names
    true = outcome.truth[[row]].indices
    known = true[true < outcome.n_labels]
    if outcome.kind == "labels":
        scores = model.label_scores(outcome.X[[row]], outcome.truth[[row], : outcome.n_labels].tocsr()).toarray()[0]
        scores = scores[known]
    else:
        scores = np.atleast_1d(model.label_scores(outcome.X[[row]], model.classes_[known]))
    order = np.argsort(-scores, kind="stable")
    known, scores = known[order], scores[order]
    why, problem = _reasons(outcome, row, int(known[0]))
    indices, values = outcome.top.indices[row, :N_BEST].tolist(), outcome.top.scores[row, :N_BEST].tolist()
    best = [(short(names[i], 80), s, i in known) for i, s in zip(indices, values, strict=True) if i >= 0]
    shown = [(short(names[i], 80), float(s)) for i, s in zip(known[:N_NAMES].tolist(), scores, strict=False)]
    number = row if outcome.row_numbers is None else int(outcome.row_numbers[row])
    return Mistake(number, tuple(best), tuple(shown), len(true) - len(shown), margin, why, problem)


def _reasons(outcome: Outcome, row: int, true: int) -> tuple[Reasons | None, str]:
    """Why the best true label lost; or the reason that there is no explanation, such as a kernel."""
    model = outcome.model
    label = model.classes_[true]
    try:
        explained = next(iter(model.explain(outcome.X[[row]], labels=[label])))
    except ValueError as error:
        return None, str(error)
    # On a tree, the first step at which a sibling of the true path won.
    lost = next((step for step in explained.steps if step.margin is not None and step.margin < 0), explained)
    if lost.to_margin is None:
        return None, "there is no other label to compare with"
    terms = list(zip(lost.to_margin.features, lost.to_margin.contributions, strict=True))
    largest = max((abs(part) for _, part in terms), default=0.0) or 1.0
    reasons = tuple(Reason(short(name, 60), -part, -part / largest) for name, part in terms[:N_REASONS])
    others = -float(sum(part for _, part in terms[N_REASONS:]))
    names = (short(lost.runner_up, 80), short(lost.label, 80))
    return Reasons(*names, -lost.to_margin.total, reasons, others, -lost.to_margin.intercept), ""
