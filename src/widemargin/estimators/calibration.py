"""Probabilities of a fitted model: `calibrate` on rows that it has not seen, then `predict_proba`.

Held-out scores come from rows that the user kept apart, or from folds: copies of the model are trained without a fold
and score it, and the model itself stays as it is. With many labels, only the top few of a row, its true ones and a
random sample of the others are used; a sampled pair stands for as many as were left out, and sums over pairs are right
on average. Memory: at most `memory_limit_mb` for held-out scores, with a sample of the rows if necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
)

from widemargin.problems.probabilities import METHODS, Calibration, Method
from widemargin.solvers.calibration import Choices, Pairs, calibrate_choices, calibrate_pairs

__all__ = ["BYTES_PER_MB", "Calibrator", "if_calibrated"]

BYTES_PER_MB = 2**20
BYTES_PER_SCORE = 128
"""A held-out score, and the arrays of its size in a fit of the maps."""
BEST_LABELS, SAMPLED_LABELS = 32, 32
"""Labels of a row that are used besides the true ones: the top ones, and a sample of all."""
FEWEST_ROWS = 2
SEED = 0  # of these samples: calibrating twice gives the same

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


class _IfCalibrated:
    """A method that only calibrated models have, as with scikit-learn's `available_if`; the error names the remedy."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, model: Any, owner: Any = None) -> Any:
        if model is None:
            return self.method
        if not hasattr(model, "calibration_"):
            scores = " (even with loss='logistic', the scores are not calibrated)" if _is_logistic(model) else ""
            raise AttributeError(
                f"{self.method.__name__} requires a calibrated model{scores}; after fit, call calibrate(X, y) with "
                "rows that were not used for training, or calibrate(X, y, cv=3) with the training rows of "
                f"{type(model).__name__}"
            )
        return MethodType(self.method, model)


def _is_logistic(model: Any) -> bool:
    return "logistic" in (value for name, value in model.get_params().items() if name.split("__")[-1] == "loss")


def if_calibrated(method: AnyMethod) -> AnyMethod:
    """Make a method one that only calibrated models have."""
    return cast(AnyMethod, _IfCalibrated(method))


class Calibrator:
    """Probabilities of a fitted model; models on a tree have a subclass.

    Parameters
    ----------
    model : LabelModel
        The model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any, y: Any, method: Method, cv: Any, sample_weight: Any) -> Calibration:
        """Learn the maps from scores to probabilities from held-out rows, with the arguments of `calibrate`."""
        check_is_fitted(self.model)
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}")
        y, known = self.targets(y)
        check_consistent_length(X, known)
        n_known = int(known.sum())
        if n_known < FEWEST_ROWS:
            unknown = f" with a label known to the model, out of {len(known):,}" if n_known < len(known) else ""
            raise ValueError(
                f"calibrate requires at least {FEWEST_ROWS} rows, preferably a few hundred; got {n_known}{unknown}; "
                "pass more rows that were not used for training, or the training rows with cv=3"
            )
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        share = self._block_rows(evidence=True) / _num_samples(X)
        parts = [
            self.evidence(model, *_sampled(share, rows, truth, kept))
            for model, rows, truth, kept in self._held_out(X, y, known, weights, cv)
        ]
        n_groups = self.n_groups()
        if n_groups is None:
            n_labels = 1 if self.model.kind_ == "binary" else len(self.model.classes_)
            return calibrate_pairs(_joined_pairs(parts), n_labels, method)
        choices = _joined_choices(parts)
        if len(choices.starts) == 0:
            raise ValueError("no row involves a choice between classes known to the model; calibrate on other rows")
        return calibrate_choices(choices, n_groups, method)

    def all_probabilities(self, X: Any) -> Floats:
        """Probabilities of all labels of checked rows, of shape (n_samples, n_labels)."""
        n_labels = len(self.model.classes_)
        self.model._refuse_dense(_num_samples(X), n_labels, "predict_proba")
        blocks = [self.probabilities(scores) for _, scores in self.steady_blocks(X)]
        return np.concatenate(blocks) if blocks else np.empty((0, n_labels))

    def some_probabilities(self, X: Any, indices: Any) -> Floats:
        """Probabilities of the labels at some positions in `classes_` (−1: none), both of shape (n_samples, k)."""
        model, n_rows, n_labels = self.model, _num_samples(X), len(self.model.classes_)
        places = np.asarray(indices, dtype=np.int64)
        if places.ndim != 2 or len(places) != n_rows:
            raise ValueError(
                f"indices must have shape ({n_rows}, k), with one row per row of X; got shape {places.shape}"
            )
        if places.size and not (places.min() >= -1 and places.max() < n_labels):
            raise ValueError(f"indices must be positions in classes_, between −1 and {n_labels - 1}")
        asked, out = places >= 0, np.zeros(places.shape)
        if model.kind_ == "multilabel":  # labels do not depend on each other: their own scores are enough
            labels = places[asked]
            indptr = np.concatenate([[0], np.cumsum(asked.sum(axis=1))])
            pattern = sp.csr_array((np.ones(len(labels), dtype=np.int8), labels, indptr), (n_rows, n_labels))
            scores = model.scorer.label_scores(X, pattern, n_threads=model._n_threads()).data
            out[asked] = model.calibration_.of_labels(scores, labels)
            return out
        for rows, scores in self.steady_blocks(X):
            out[rows] = np.take_along_axis(self.probabilities(scores), np.maximum(places[rows], 0), axis=1)
        return np.where(asked, out, 0.0)

    def steady_blocks(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Scores of successive rows within the memory limit, whose last bits do not depend on the rows beside them."""
        n_rows, step, scorer = _num_samples(X), self._block_rows(), self.model.scorer
        # Products with kernel values, and what other classifiers do inside, may be rounded as the size of the batch has
        # it: such rows are scored one by one.
        if "dual_coef_" in vars(self.model) or not getattr(vars(self.model).get("_columns"), "steady", True):
            scorer.rows_per_block = 1
        for start in range(0, n_rows, step):
            rows = slice(start, min(start + step, n_rows))
            part = X if step >= n_rows else _safe_indexing(X, rows)
            yield rows, scorer.scores(part, n_threads=self.model._n_threads())

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities of all labels from all scores of some rows."""
        calibration: Calibration = self.model.calibration_
        kind = self.model.kind_
        if kind == "multilabel":
            return calibration.of_labels(scores)
        if kind == "binary":
            second = calibration.of_labels(scores)
            return np.concatenate([1.0 - second, second], axis=1)
        return calibration.of_groups(scores, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))

    def n_groups(self) -> int | None:
        """Groups of classes that exclude each other; None where labels are independent."""
        return 1 if self.model.kind_ == "multiclass" else None

    def n_block_values(self) -> int:
        """Scores per row."""
        return len(self.model.classes_)

    def targets(self, y: Any) -> tuple[Any, Bools]:
        """The targets in a form that can be split into folds, and the rows with a label that the model knows."""
        encoding = self.model._encoding()
        Y = encoding.indicator_with_unknown(y)[:, : encoding.n_classes]
        if self.model.kind_ == "multilabel":
            return Y, np.ones(Y.shape[0], dtype=bool)
        known = np.diff(Y.indptr) > 0
        if not known.any():
            encoding.indices(y)  # the error that names them
        return y, known

    def fold_model(self) -> Any:
        """A copy of the model to be trained on other rows."""
        known = self.model.get_params(deep=False)
        # The folds take the values that were chosen for all rows, and decide nothing.
        quiet = {"callback": None, "warm_start": False, "tune_decision": False} | self.model._chosen_numbers()
        return clone(self.model).set_params(**{name: value for name, value in quiet.items() if name in known})

    def evidence(self, model: Any, X: Any, y: Any, weights: Floats) -> Any:
        """Scores of a model for rows that it has not seen, with the true labels."""
        X = model._check_rows(X)
        if self.model.kind_ == "multilabel":
            return _labels_of_rows(model, X, y, weights)
        encoding = self.model._encoding()
        classes = encoding.indices(y)
        scores = model.scorer.scores(X, n_threads=self.model._n_threads())
        if self.model.kind_ == "binary":
            return Pairs(scores[:, 0].copy(), classes == 1, weights, np.zeros(len(classes), dtype=np.int64))
        return _choices(scores, encoding.indices(model.classes_), classes, weights)

    def _held_out(
        self, X: Any, y: Any, known: Bools, weights: Floats | None, cv: Any
    ) -> Iterator[tuple[Any, Any, Any, Floats]]:
        """Models, rows that they have not seen, the targets of these, and their weights."""
        weight = np.ones(len(known)) if weights is None else weights
        if cv is None:
            yield self.model, *_rows_of(X, y, weight, known)
            return
        from sklearn.model_selection import check_cv  # slow to import

        folds = check_cv(cv, None if sp.issparse(y) or isinstance(y, list) else y, classifier=True)
        for train, test in folds.split(X, y):
            train, test = train[known[train]], test[known[test]]
            model = self.fold_model()
            rows, truth = _safe_split(model, X, y, train)
            model.fit(rows, truth, **({} if weights is None else {"sample_weight": weights[train]}))
            if model.kind_ != self.model.kind_:
                raise ValueError(
                    f"one of the folds contains only {len(model.classes_)} of the {len(self.model.classes_)} classes "
                    "in its training rows; use fewer folds, or pass rows that were not used for training and leave "
                    "out cv"
                )
            yield model, *_safe_split(model, X, y, test, train), weight[test]

    def _block_rows(self, *, evidence: bool = False) -> int:
        """Rows whose scores, or the part of them that calibration looks at, fit the memory limit."""
        n_values = self.n_block_values()
        if evidence and self.model.kind_ == "multilabel":
            n_values = min(n_values, 2 * (BEST_LABELS + SAMPLED_LABELS))
        return max(1, int(self.model.memory_limit_mb * BYTES_PER_MB / (BYTES_PER_SCORE * n_values)))


def _rows_of(X: Any, y: Any, weights: Floats, kept: Bools) -> tuple[Any, Any, Floats]:
    """Some of the rows, without a copy if it is all of them."""
    if kept.all():
        return X, y, weights
    rows = np.flatnonzero(kept)
    return _safe_indexing(X, rows), _safe_indexing(y, rows), weights[rows]


def _sampled(share: float, X: Any, y: Any, weights: Floats) -> tuple[Any, Any, Floats]:
    """The rows, or a share of them, drawn at random."""
    n_rows = _num_samples(X)
    if share >= 1.0:
        return X, y, weights
    drawn = np.sort(np.random.default_rng(SEED).choice(n_rows, max(1, int(share * n_rows)), replace=False))
    return _safe_indexing(X, drawn), _safe_indexing(y, drawn), weights[drawn]


def _labels_of_rows(model: Any, X: Any, Y: Any, weights: Floats) -> Pairs:
    """Pairs of rows with their top labels, their true ones and sampled others, which stand for all the others."""
    Y = sp.csr_array(Y)
    n_rows, n_labels = Y.shape
    best = model._ranked(X, min(n_labels, BEST_LABELS + SAMPLED_LABELS), model.scorer)[0]
    few = n_labels <= BEST_LABELS + SAMPLED_LABELS
    best = best if few else best[:, :BEST_LABELS]
    row = np.arange(n_rows, dtype=np.int64)
    true_keys = np.repeat(row, np.diff(Y.indptr)) * n_labels + Y.indices
    keys = np.union1d((row[:, None] * n_labels + best).ravel(), true_keys)
    standing_for = np.ones(len(keys))
    if not few:
        others = np.random.default_rng(SEED).integers(0, n_labels, size=(n_rows, SAMPLED_LABELS))
        drawn = (row[:, None] * n_labels + others).ravel()
        drawn, counts = np.unique(drawn[~np.isin(drawn, keys, assume_unique=False)], return_counts=True)
        standing_for = np.concatenate([standing_for, counts * (n_labels / SAMPLED_LABELS)])
        keys = np.concatenate([keys, drawn])
        order = np.argsort(keys, kind="stable")
        keys, standing_for = keys[order], standing_for[order]
    indptr = np.searchsorted(keys, np.arange(n_rows + 1, dtype=np.int64) * n_labels)
    labels = keys % n_labels
    pattern = sp.csr_array((np.ones(len(keys), dtype=np.int8), labels, indptr), shape=Y.shape)
    scores = model.scorer.label_scores(X, pattern, n_threads=model._n_threads()).data
    return Pairs(scores, np.isin(keys, true_keys), standing_for * weights[keys // n_labels], labels)


def _choices(scores: Floats, known: Ints, classes: Ints, weights: Floats) -> Choices:
    """One choice per row among the classes that a model knows; rows of other classes are left out."""
    place = np.full(int(max(known.max(), classes.max(initial=0))) + 1, -1, dtype=np.int64)
    place[known] = np.arange(len(known))
    kept = place[classes] >= 0
    scores = np.ascontiguousarray(scores[kept])
    starts = np.arange(len(scores), dtype=np.int64) * scores.shape[1]
    zeros = np.zeros(len(starts), dtype=np.int64)
    return Choices(scores.ravel(), starts, starts + place[classes[kept]], weights[kept], zeros)


def _joined_pairs(parts: list[Pairs]) -> Pairs:
    columns = ([getattr(part, name) for part in parts] for name in ("scores", "truth", "weights", "labels"))
    return Pairs(*(np.concatenate(column) for column in columns))


def _joined_choices(parts: list[Choices]) -> Choices:
    """Choices one after another, with the places of their scores moved on."""
    before = np.cumsum([0, *(len(part.scores) for part in parts[:-1])])
    moved = [
        (part.scores, part.starts + first, part.true + first, part.weights, part.groups)
        for part, first in zip(parts, before, strict=True)
    ]
    return Choices(*(np.concatenate(column) for column in zip(*moved, strict=True)))
