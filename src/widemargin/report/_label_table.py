"""The table of labels: how often each occurs and is predicted, and how well, bounded to the most frequent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin import metrics
from widemargin.report._outcome import Outcome

__all__ = ["MAX_LABELS", "LabelRow", "label_rows", "short"]

MAX_LABELS = 5000
"""Labels in the table; a page with many more is slow on a phone."""
LONGEST_NAME = 200


@dataclass(frozen=True)
class LabelRow:
    """One line of the table; None stands for a value that is not defined."""

    name: str
    parent: str | None
    train: int
    true: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    mistaken: str | None
    mistaken_count: int


def label_rows(outcome: Outcome, max_labels: int = MAX_LABELS) -> list[LabelRow]:
    """Lines for the labels that are most frequent in training, most frequent first."""
    counts = np.asarray(outcome.model.label_counts_)
    order = np.argsort(-counts, kind="stable")[:max_labels]
    truth = outcome.truth_of_labels
    values = metrics.precision_recall_f1(truth, outcome.predicted, average=None, zero_division=float("nan"))
    true, predicted = (_column_counts(Y) for Y in (truth, outcome.predicted))
    mistaken = _mistaken_for(outcome)
    parents = _parents(outcome)
    rows = []
    for label in order.tolist():
        other, n = mistaken.get(label, (None, 0))
        rows.append(
            LabelRow(
                name=short(outcome.names[label]),
                parent=None if parents is None else short(parents[label]),
                train=int(counts[label]),
                true=int(true[label]),
                predicted=int(predicted[label]),
                precision=_defined(values.precision[label]),
                recall=_defined(values.recall[label]),
                f1=_defined(values.f1[label]),
                mistaken=None if other is None else short(outcome.names[other]),
                mistaken_count=n,
            )
        )
    return rows


def short(name: Any, length: int = LONGEST_NAME) -> str:
    """A name of bounded length, without characters that cannot be shown."""
    text = str(name).encode("utf-8", "backslashreplace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else text[: length - 1] + "…"


def _column_counts(Y: Any) -> npt.NDArray[np.int64]:
    return np.bincount(Y.indices, minlength=Y.shape[1])


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _parents(outcome: Outcome) -> list[Any] | None:
    """On a tree, the parent of each label."""
    if outcome.nodes is None:
        return None
    tree = outcome.model.taxonomy_
    above = tree.parent[tree.indices(outcome.model.classes_)].tolist()
    return ["" if parent < 0 else tree.nodes[parent] for parent in above]


def _mistaken_for(outcome: Outcome) -> dict[int, tuple[int, int]]:
    """Of one label a row: for each true class the class that it is most often taken for, and how often."""
    if outcome.classes is None or outcome.guess is None:
        return {}
    wrong = (outcome.classes != outcome.guess) & (outcome.classes >= 0) & (outcome.guess >= 0)
    pairs, counts = np.unique(
        np.stack([outcome.classes[wrong], outcome.guess[wrong]], axis=1), axis=0, return_counts=True
    )
    found: dict[int, tuple[int, int]] = {}
    for place in np.argsort(counts, kind="stable").tolist():  # the largest count of a class comes last
        true, guess = pairs[place].tolist()
        found[true] = (guess, int(counts[place]))
    return found
