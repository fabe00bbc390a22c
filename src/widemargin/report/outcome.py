"""The predictions and true labels of some rows, computed once for all parts of a report; and its table of labels.

There are three kinds: label lists, one class per row, and nodes of a tree. On a tree, a row with several labels is
measured against the one nearest to its prediction, except in the measures of single labels and their mean, which count
all. Only the label itself is right; "at or below" it is a separate measure. Memory: the top labels of each row, and its
labels. The table shows how often each label occurs and is predicted, and how well; it is limited to the most frequent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_consistent_length

from widemargin import metrics
from widemargin.displays._axes import short_text as short
from widemargin.estimators.scoring import top_k_accuracies
from widemargin.estimators.tree.model import nearest_labels, nodes_of_labels

__all__ = ["LabelRow", "Outcome", "Side", "label_rows", "make_outcome"]

Ints = npt.NDArray[np.int64]
Kind = Literal["labels", "classes", "tree"]

UNKNOWN = -1
PLACES = 10
"""Number of top labels kept per row."""
MAX_LABELS = 5000
"""Largest number of labels in the table; a page with many more is slow on a phone."""


@dataclass(frozen=True)
class Side:
    """Nodes of a tree, one per row."""

    true: Ints
    predicted: Ints


@dataclass(frozen=True)
class Outcome:
    """Predictions and true labels of n_samples rows."""

    model: Any
    X: Any
    kind: Kind
    top: Any  # the top labels of each row, a TopK
    # Indicator of the true labels, on a tree of the nearest one: a CSR array with the columns of the model, followed by
    # those of labels that it does not know.
    truth: Any
    # With one label per row, the positions of label and prediction in `classes_`; −1 for a label that is not there.
    classes: Ints | None = None
    guess: Ints | None = None
    # On a tree, the indicator of all true labels, of the shape of `truth`; and true and predicted nodes.
    every_label: Any = None
    nodes: Side | None = None
    row_numbers: Ints | None = None  # if some rows were left out

    @property
    def n_labels(self) -> int:
        """Number of labels that the model knows."""
        return len(self.model.classes_)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.truth.shape[0])

    @cached_property
    def names(self) -> list[str]:
        """Names of the model's labels."""
        return [str(name) for name in self.model.classes_.tolist()]

    @cached_property
    def predicted(self) -> Any:
        """Indicator of the predicted labels, of the shape of `truth`."""
        if self.kind == "labels":
            Y = sp.csr_array(self.model.predict(self.X))
            return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=self.truth.shape)
        assert self.guess is not None
        return _one_per_row(self.guess, self.truth.shape[1])

    @cached_property
    def curve(self) -> npt.NDArray[np.float64]:
        """With one label per row: top-k accuracy for k = 1, 2, …; ties count as expected, except on a tree."""
        assert self.classes is not None
        if self.nodes is None:
            ks = list(range(1, min(PLACES, self.n_labels) + 1))
            return top_k_accuracies(self.model, self.X, self.classes, ks)
        found = (self.top.indices == self.classes[:, None]) & (self.top.indices >= 0)
        return np.asarray(np.logical_or.accumulate(found, axis=1).mean(axis=0))

    @property
    def truth_of_labels(self) -> Any:
        """Indicator of the true labels for the measures of single labels: on a tree, all labels of a row."""
        return self.truth if self.every_label is None else self.every_label

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """With one label per row: whether the prediction is the true label, shape (n_samples,)."""
        if self.nodes is not None:
            return np.asarray(self.nodes.true == self.nodes.predicted)
        return np.asarray(self.classes == self.guess)

    @property
    def at_or_below(self) -> npt.NDArray[np.bool_]:
        """On a tree, whether the prediction is at or below the true node; otherwise `right`."""
        if self.nodes is None:
            return self.right
        return np.asarray(self.model.taxonomy_.tree.covers(self.nodes.true, self.nodes.predicted))


def make_outcome(model: Any, X: Any, y: Any) -> Outcome:
    """Predict, and put the labels into the model's columns."""
    if hasattr(model, "taxonomy_"):
        return _on_tree(model, X, y)
    top = model.predict_topk(X, min(PLACES, len(model.classes_)))
    several, n_labels = model.kind_ == "multilabel", len(model.classes_)
    # An indicator may have more columns than a multi-label model.
    is_wider = several and sp.issparse(y) and y.shape[1] > n_labels
    truth = sp.csr_array(y) if is_wider else model._encoding().indicator_with_unknown(y)
    check_consistent_length(X, truth)
    if several:
        return Outcome(model, X, "labels", top, truth)
    if np.any(np.diff(truth.indptr) != 1):
        raise ValueError(
            "some rows of y have several labels or none; pass one label per row, because the model predicts one"
        )
    classes = np.where(truth.indices < n_labels, truth.indices, UNKNOWN).astype(np.int64)
    return Outcome(model, X, "classes", top, truth, classes, top.indices[:, 0])


def _on_tree(model: Any, X: Any, y: Any) -> Outcome:
    """The outcome on a tree; rows without a label, which cannot be measured, are left out."""
    tree, n_labels = model.taxonomy_, len(model.classes_)
    predicted = tree.indices(model.predict(X)).astype(np.int64)
    row, node = nodes_of_labels(model, y)
    true = nearest_labels(tree, row, node, predicted)
    kept = np.flatnonzero(true >= 0)
    if len(kept) == 0:
        raise ValueError("no row has a label; a report requires labelled rows")
    X, side = X[kept], Side(true[kept], predicted[kept])
    column = np.full(len(tree), UNKNOWN, dtype=np.int64)
    column[tree.indices(model.classes_)] = np.arange(n_labels)
    new = np.unique(node[column[node] == UNKNOWN])  # nodes that label no training row
    column[new] = n_labels + np.arange(len(new))
    shape = (len(true), n_labels + len(new))
    every_label = sp.csr_array((np.ones(len(row), dtype=np.int8), (row, column[node])), shape=shape)[kept]
    truth = _one_per_row(column[side.true], shape[1])
    classes = np.where(column[side.true] < n_labels, column[side.true], UNKNOWN)
    top = model.predict_topk(X, min(PLACES, n_labels))
    return Outcome(model, X, "tree", top, truth, classes, column[side.predicted], every_label, side, kept)


def _one_per_row(classes: Ints, n_columns: int) -> Any:
    """Indicator of class numbers."""
    ones = np.ones(len(classes), dtype=np.int8)
    return sp.csr_array((ones, classes, np.arange(len(classes) + 1)), shape=(len(classes), n_columns))


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
    """The lines of the labels that are most frequent in training, most frequent first."""
    counts = np.asarray(outcome.model.label_counts_)
    truth, predicted = outcome.truth_of_labels, outcome.predicted
    values = metrics.precision_recall_f1(truth, predicted, average=None, zero_division=float("nan"))
    n_true, n_predicted = (np.bincount(Y.indices, minlength=Y.shape[1]).tolist() for Y in (truth, predicted))
    names, parents, mistaken = [short(name) for name in outcome.names], _parents(outcome), _mistaken_for(outcome)
    rows = []
    for label in np.argsort(-counts, kind="stable")[:max_labels].tolist():
        other, n_mistaken = mistaken.get(label, (None, 0))
        precision, recall, f1 = (None if np.isnan(value[label]) else float(value[label]) for value in values)
        rows.append(
            LabelRow(
                name=names[label],
                parent=None if parents is None else short(parents[label]),
                train=int(counts[label]),
                true=n_true[label],
                predicted=n_predicted[label],
                precision=precision,
                recall=recall,
                f1=f1,
                mistaken=None if other is None else names[other],
                mistaken_count=n_mistaken,
            )
        )
    return rows


def _parents(outcome: Outcome) -> list[Any] | None:
    """On a tree, the parent of each label."""
    if outcome.nodes is None:
        return None
    tree = outcome.model.taxonomy_
    above = tree.parent[tree.indices(outcome.model.classes_)].tolist()
    return ["" if parent < 0 else tree.nodes[parent] for parent in above]


def _mistaken_for(outcome: Outcome) -> dict[int, tuple[int, int]]:
    """With one label per row: the class that each true class is most often taken for, and how often."""
    if outcome.classes is None or outcome.guess is None:
        return {}
    wrong = (outcome.classes != outcome.guess) & (outcome.classes >= 0) & (outcome.guess >= 0)
    pairs, counts = np.unique(
        np.stack([outcome.classes[wrong], outcome.guess[wrong]], axis=1), axis=0, return_counts=True
    )
    found: dict[int, tuple[int, int]] = {}
    for i in np.argsort(counts, kind="stable").tolist():  # the largest count of a class comes last
        true, guess = pairs[i].tolist()
        found[true] = (guess, int(counts[i]))
    return found
