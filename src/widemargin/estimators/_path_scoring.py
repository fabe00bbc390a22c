"""Scores of a model on held-out rows: the model's own, scikit-learn's by name, any function, and rankings at k.

Names such as "precision@5" are rankings of the best labels, precision, recall or ndcg; several of them share one
prediction. Memory: the best labels of every row, up to the largest k.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from widemargin import metrics

__all__ = ["Scoring"]

RANKINGS = {
    "precision": metrics.precision_at_k,
    "recall": metrics.recall_at_k,
    "ndcg": metrics.ndcg_at_k,
}
AT_K = re.compile(r"(\w+)@([1-9]\d*)")

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
                if ranking[1] not in RANKINGS:
                    known = ", ".join(RANKINGS)
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
        if not hasattr(model, "predict_topk") or getattr(model, "kind_", "multilabel") != "multilabel":
            name = next(iter(self.rankings))
            raise ValueError(f"scoring={name!r} needs a multi-label model with predict_topk; use another score")
        top = model.predict_topk(X, max(k for _, k in self.rankings.values()))
        truth = model._encoding().indicator_with_unknown(y)
        return {name: float(RANKINGS[metric](truth, top, k)) for name, (metric, k) in self.rankings.items()}


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
