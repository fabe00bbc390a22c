"""Scores of a model on held-out rows: the model's own, scikit-learn's by name, any function, and rankings at k.

Names such as "precision@5" are rankings of the best labels, precision, recall or ndcg for several labels a row and
top_k_accuracy for one; several of them share one prediction. Memory: the best labels of every row, up to the largest k;
for top_k_accuracy, blocks of rows with all classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import get_scorer

from widemargin import metrics

__all__ = ["Scoring", "class_numbers", "top_k_accuracies"]

RANKINGS = {
    "precision": metrics.precision_at_k,
    "recall": metrics.recall_at_k,
    "ndcg": metrics.ndcg_at_k,
}
TOP_K_ACCURACY = "top_k_accuracy"
AT_K = re.compile(r"(\w+)@([1-9]\d*)")
RANKED_PLACES_PER_BLOCK = 4_000_000  # 100 MB of labels, scores and indices

Scorer = Callable[[Any, Any, Any], float]


class Scoring:
    """Named scores, the first of which decides what is best."""

    def __init__(self, scoring: Any) -> None:
        self.rankings: dict[str, tuple[str, int]] = {}
        self.scorers: dict[str, Scorer] = {}
        self.names: list[str] = []
        for name, given in _named(scoring):
            self.names.append(name)
            ranking = AT_K.fullmatch(given) if isinstance(given, str) else None
            if ranking:
                if ranking[1] not in {*RANKINGS, TOP_K_ACCURACY}:
                    known = ", ".join([*RANKINGS, TOP_K_ACCURACY])
                    raise ValueError(f"unknown ranking {given!r}; before the @ stands one of {known}")
                self.rankings[name] = (ranking[1], int(ranking[2]))
            else:
                self.scorers[name] = _scorer(given)

    def __call__(self, model: Any, X: Any, y: Any) -> dict[str, float]:
        """All scores of a fitted model."""
        found = self._ranked(model, X, y) if self.rankings else {}
        found |= {name: float(scorer(model, X, y)) for name, scorer in self.scorers.items()}
        return {name: found[name] for name in self.names}

    def _ranked(self, model: Any, X: Any, y: Any) -> dict[str, float]:
        """Scores at k, from one list of the best labels of each row."""
        single = getattr(model, "kind_", "multilabel") != "multilabel"
        for name, (metric, _) in self.rankings.items():
            if not hasattr(model, "predict_topk") or (metric == TOP_K_ACCURACY) != single:
                wanted = "one label a row" if metric == TOP_K_ACCURACY else "a multi-label model"
                raise ValueError(f"scoring={name!r} needs {wanted}, and predict_topk; use another score")
        ks = [k for _, k in self.rankings.values()]
        if single:
            classes = class_numbers(model.classes_, y)
            return dict(zip(self.rankings, top_k_accuracies(model, X, classes, ks).tolist(), strict=True))
        top = model.predict_topk(X, max(ks))
        truth = model._encoding().indicator_with_unknown(y)
        return {name: float(RANKINGS[metric](truth, top, k)) for name, (metric, k) in self.rankings.items()}


def top_k_accuracies(model: Any, X: Any, classes: npt.NDArray[np.int64], ks: list[int]) -> npt.NDArray[np.float64]:
    """Top-k accuracy of a model with one label a row at each k, with expected ties, shape (len(ks),).

    `classes` (n_samples,) are places in `classes_`, −1 for labels that the model does not know. In blocks of rows, of
    all classes: only such lists always show where a tie ends.
    """
    n_rows, n_classes = X.shape[0], len(model.classes_)
    rows_per_block = max(1, RANKED_PLACES_PER_BLOCK // n_classes)
    hits = np.zeros(len(ks))
    for start in range(0, n_rows, rows_per_block):
        rows, truth = X[start : start + rows_per_block], classes[start : start + rows_per_block]
        top = model.predict_topk(rows, n_classes)
        by_number = (top.indices, top.scores, top.indices)
        hits += len(truth) * np.asarray(metrics.top_k_accuracy(truth, by_number, ks, n_labels=n_classes))
    accuracies: npt.NDArray[np.float64] = hits / n_rows
    return accuracies


def class_numbers(classes: npt.NDArray[Any], y: Any) -> npt.NDArray[np.int64]:
    """Places of the labels y among the classes; −1 for labels that are none of them."""
    places = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([places.get(label, -1) for label in np.asarray(y).ravel().tolist()], dtype=np.int64)


def _named(scoring: Any) -> list[tuple[str, Any]]:
    """Pairs of a column name and what computes it."""
    if scoring is None or isinstance(scoring, str) or callable(scoring):
        return [(scoring if isinstance(scoring, str) else "score", scoring)]
    if isinstance(scoring, Mapping):
        pairs = list(scoring.items())
    elif isinstance(scoring, list | tuple | set):
        pairs = [(name, name) for name in scoring]
    else:
        pairs = []
    names = [name for name, _ in pairs]
    if not pairs or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(
            f"scoring must be a name, a function, a list of names or a dictionary of them, got {scoring!r}"
        )
    return pairs


def _scorer(given: Any) -> Scorer:
    """A function of model, rows and labels."""
    if given is None:
        return lambda model, X, y: model.score(X, y)
    scorer = get_scorer(given)
    return lambda model, X, y: float(np.asarray(scorer(model, X, y)))
