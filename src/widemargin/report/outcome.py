"""What a model predicts for labelled rows beside what is true, computed once for all parts of a report.

Three kinds: lists of labels, one class per row, and nodes of a tree. On a tree a row with several labels is measured
against the one nearest to its prediction, but for the measures of single labels and their mean, which count all. Only
the label itself is right; "at or below" it is another measure. Memory: the best few labels of each row and the labels.

The table of labels: how often each occurs and is predicted, and how well, bounded to the most frequent ones.
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
from widemargin.estimators.scoring import top_k_accuracies
from widemargin.estimators.tree.model import nearest_labels, nodes_of_labels

__all__ = ["MAX_LABELS", "UNKNOWN", "LabelRow", "Outcome", "Side", "label_rows", "make_outcome", "short"]

Ints = npt.NDArray[np.int64]
Kind = Literal["labels", "classes", "tree"]

UNKNOWN = -1
PLACES = 10
"""How many of the best labels of a row are kept."""


@dataclass(frozen=True)
class Side:
    """Nodes of a tree, one a row."""

    true: Ints
    predicted: Ints


@dataclass(frozen=True)
class Outcome:
    """Predictions beside the truth.

    Parameters
    ----------
    model : fitted estimator
        The model.
    X : rows, n_samples of them
        What was predicted for.
    kind : {"labels", "classes", "tree"}
        Form of the targets.
    top : TopK
        The best labels of each row.
    truth : csr_array of shape (n_samples, n_labels or more)
        Indicator of the true labels, on a tree of the nearest one; columns after the model's labels are of labels that
        it does not know, one each.
    classes : ndarray of shape (n_samples,) or None
        Of one label per row: its place in `classes_`, −1 for one that the model does not know.
    guess : ndarray of shape (n_samples,) or None
        Of one label per row: the place of the prediction.
    every_label : csr_array of the shape of `truth`, or None
        On a tree, indicator of all true labels.
    nodes : Side or None
        On a tree: true and predicted nodes.
    row_numbers : ndarray of shape (n_samples,) or None
        Numbers of the rows where some were left out.
    """

    model: Any
    X: Any
    kind: Kind
    top: Any
    truth: Any
    classes: Ints | None = None
    guess: Ints | None = None
    every_label: Any = None
    nodes: Side | None = None
    row_numbers: Ints | None = None

    @property
    def n_labels(self) -> int:
        """Labels that the model knows."""
        return len(self.model.classes_)

    @property
    def n_rows(self) -> int:
        """Rows."""
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
        return _one_a_row(self.guess, self.truth.shape[1])

    @cached_property
    def curve(self) -> npt.NDArray[np.float64]:
        """Of one label per row: top-k accuracy for k from 1 on; ties count as expected, but on a tree."""
        assert self.classes is not None
        if self.nodes is None:
            ks = list(range(1, min(PLACES, self.n_labels) + 1))
            return top_k_accuracies(self.model, self.X, self.classes, ks)
        found = (self.top.indices == self.classes[:, None]) & (self.top.indices >= 0)
        return np.asarray(np.logical_or.accumulate(found, axis=1).mean(axis=0))

    @property
    def truth_of_labels(self) -> Any:
        """Indicator of the true labels for the measures of single labels: on a tree all labels of a row."""
        return self.truth if self.every_label is None else self.every_label

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Of one label per row: whether the prediction is the true label, shape (n_samples,)."""
        if self.nodes is not None:
            return np.asarray(self.nodes.true == self.nodes.predicted)
        return np.asarray(self.classes == self.guess)

    @property
    def at_or_below(self) -> npt.NDArray[np.bool_]:
        """On a tree, whether the prediction is the true node or below it; elsewhere as `right`."""
        if self.nodes is None:
            return self.right
        return np.asarray(self.model.taxonomy_.tree.covers(self.nodes.true, self.nodes.predicted))


def make_outcome(model: Any, X: Any, y: Any) -> Outcome:
    """Predict, and put the labels into the model's columns."""
    if hasattr(model, "taxonomy_"):
        return _on_tree(model, X, y)
    top = model.predict_topk(X, min(PLACES, len(model.classes_)))
    if model.kind_ == "multilabel":
        truth = _indicator(model, y)
        check_consistent_length(X, truth)
        return Outcome(model, X, "labels", top, truth)
    truth = model._encoding().indicator_with_unknown(y)
    check_consistent_length(X, truth)
    if np.any(np.diff(truth.indptr) != 1):
        raise ValueError("y has rows with several labels, or none, but the model predicts one label per row")
    classes = np.where(truth.indices < len(model.classes_), truth.indices, UNKNOWN).astype(np.int64)
    return Outcome(model, X, "classes", top, truth, classes, top.indices[:, 0])


def _on_tree(model: Any, X: Any, y: Any) -> Outcome:
    """Rows without a label, which cannot be measured, are left out."""
    tree, n_labels = model.taxonomy_, len(model.classes_)
    predicted = tree.indices(model.predict(X)).astype(np.int64)
    row, node = nodes_of_labels(model, y)
    true = nearest_labels(tree, row, node, predicted)
    kept = np.flatnonzero(true >= 0)
    if len(kept) == 0:
        raise ValueError("no row has a label; give rows with their labels")
    X, side = X[kept], Side(true[kept], predicted[kept])
    place = np.full(len(tree), UNKNOWN, dtype=np.int64)
    place[tree.indices(model.classes_)] = np.arange(n_labels)
    new = np.unique(node[place[node] == UNKNOWN])  # nodes that no training row was labelled with
    place[new] = n_labels + np.arange(len(new))
    shape = (len(true), n_labels + len(new))
    every_label = sp.csr_array((np.ones(len(row), dtype=np.int8), (row, place[node])), shape=shape)[kept]
    truth = _one_a_row(place[side.true], shape[1])
    classes = np.where(place[side.true] < n_labels, place[side.true], UNKNOWN)
    top = model.predict_topk(X, min(PLACES, n_labels))
    return Outcome(model, X, "tree", top, truth, classes, place[side.predicted], every_label, side, kept)


def _indicator(model: Any, y: Any) -> Any:
    """The true labels of a multi-label model; an indicator may have columns more than the model."""
    if sp.issparse(y) and y.shape[1] > len(model.classes_):
        return sp.csr_array(y)
    return model._encoding().indicator_with_unknown(y)


def _one_a_row(classes: Ints, n_columns: int) -> Any:
    """Indicator of class numbers."""
    ones = np.ones(len(classes), dtype=np.int8)
    return sp.csr_array((ones, classes, np.arange(len(classes) + 1)), shape=(len(classes), n_columns))


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
