"""Probabilities of a fitted model: `calibrate` on rows that it has not seen, then `predict_proba`.

Held-out scores come from rows that the user kept apart, or from folds: copies of the model are trained without a fold
and score it, and the model itself stays as it is. Of many labels only the best few of a row, its true ones and a random
sample of the others are looked at; a sampled pair stands for as many as were left out, so that sums over pairs are
right on average. Memory: at most `memory_limit_mb` for held-out scores, by a sample of the rows if need be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import check_cv
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

__all__ = ["BYTES_PER_MB", "CalibratedModel", "if_calibrated"]

BYTES_PER_MB = 2**20
BYTES_PER_SCORE = 128
"""A held-out score and the arrays of its size that a fit of the maps makes of it."""
BEST_LABELS, SAMPLED_LABELS = 32, 32
"""Labels of a row that are looked at beside the true ones: the best, and a sample of all."""
FEWEST_ROWS = 2
SEED = 0  # of these samples: calibrating twice gives the same

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


class _IfCalibrated:
    """A method that is there for calibrated models only; as scikit-learn's `available_if`, with the remedy on top."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, model: Any, owner: Any = None) -> Any:
        if model is None:
            return self.method
        if not hasattr(model, "calibration_"):
            scores = " (scores of loss='logistic' are not calibrated either)" if _is_logistic(model) else ""
            raise AttributeError(
                f"{self.method.__name__} needs a calibrated model{scores}: after fit, call calibrate(X, y) with rows "
                f"kept apart from training, or calibrate(X, y, cv=3) with the training rows of {type(model).__name__}"
            )
        return MethodType(self.method, model)


def _is_logistic(model: Any) -> bool:
    return "logistic" in (value for name, value in model.get_params().items() if name.split("__")[-1] == "loss")


def if_calibrated(method: AnyMethod) -> AnyMethod:
    """A method that is there for calibrated models only: `hasattr` tells."""
    return cast(AnyMethod, _IfCalibrated(method))


class CalibratedModel(BaseEstimator):
    """Adds `calibrate`, `predict_proba` and `label_proba`; a mix-in for the estimators."""

    calibration_: Calibration

    def calibrate(
        self, X: Any, y: Any, *, method: Method = "sigmoid", cv: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn how scores become probabilities, from rows that the model has not seen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows kept apart from training; with `cv`, the training rows.
        y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
            Their labels, in the form that `fit` takes. Labels that the model does not know are no error, as in `score`:
            they are left out, with their rows where a row has one label.
        method : {"sigmoid", "isotonic"}, default="sigmoid"
            The shape of the map: Platt's sigmoid, or a curve that is learned and needs more rows, some thousands.
        cv : None, int or splitter, default=None
            None for rows that the model has not seen. Otherwise folds of the training rows, or a splitter of
            scikit-learn or splits: copies of the model are trained without a fold and score it; the model stays as it
            is. Folds are contiguous, so that neighbours, which are often alike, stay together.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self
            The model, with `calibration_` and `predict_proba`; the next `fit` forgets them.
        """
        check_is_fitted(self)
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}")
        y, known = self._calibration_targets(y)
        check_consistent_length(X, known)
        _check_enough(known)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        share = self._block_rows(evidence=True) / _num_samples(X)
        parts = [
            self._evidence(model, *_sampled(share, rows, truth, kept))
            for model, rows, truth, kept in self._held_out(X, y, known, weights, cv)
        ]
        self.calibration_ = self._calibration_of(parts, method)
        return self

    @if_calibrated
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of all labels or classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            For one label a row, columns add up to 1; for several, each is the probability that the row has the label.
            A row gets the same numbers in any batch. Dense, so it is refused above `memory_limit_mb`; `label_proba`
            of the labels of `predict_topk` is not. There only after `calibrate`.
        """
        X = self._check_rows(X)
        self._refuse_dense(_num_samples(X), len(self.classes_), "predict_proba")
        blocks = [self._probabilities(scores) for _, scores in self._steady_blocks(X)]
        return np.concatenate(blocks) if blocks else np.empty((0, len(self.classes_)))

    @if_calibrated
    def label_proba(self, X: Any, indices: Any) -> Floats:
        """Probabilities of some labels of each row, in bounded memory.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        indices : array-like of int of shape (n_samples, k)
            Places of labels in `classes_`, such as `predict_topk(X, k).indices`; −1 for none.

        Returns
        -------
        ndarray of shape (n_samples, k)
            As in `predict_proba`; 0 where there is no label. There only after `calibrate`.
        """
        X = self._check_rows(X)
        places = np.asarray(indices, dtype=np.int64)
        if places.ndim != 2 or len(places) != _num_samples(X):
            raise ValueError(f"indices must have shape ({_num_samples(X)}, k), one row a row of X; got {places.shape}")
        if places.size and not (places.min() >= -1 and places.max() < len(self.classes_)):
            raise ValueError(f"indices must be from −1 to {len(self.classes_) - 1}, the places in classes_")
        if self.kind_ == "multilabel":
            return self._proba_of_pairs(X, places)
        out = np.empty(places.shape)
        for rows, scores in self._steady_blocks(X):
            out[rows] = np.take_along_axis(self._probabilities(scores), np.maximum(places[rows], 0), axis=1)
        return np.where(places >= 0, out, 0.0)

    def _proba_of_pairs(self, X: Any, places: Ints) -> Floats:
        """Probabilities of labels that do not depend on each other, from their scores alone."""
        asked = places >= 0
        indptr, labels = np.concatenate([[0], np.cumsum(asked.sum(axis=1))]), places[asked]
        pattern = sp.csr_array((np.ones(len(labels), dtype=np.int8), labels, indptr), (len(places), len(self.classes_)))
        scores = self._scorer().label_scores(X, pattern, n_threads=self._n_threads()).data
        out = np.zeros(places.shape)
        out[asked] = self.calibration_.of_labels(scores, labels)
        return out

    def _calibration_targets(self, y: Any) -> tuple[Any, Bools]:
        """The targets as folds can be taken of them, and the rows that say something of the model's labels."""
        encoding = self._encoding()
        if self.kind_ == "multilabel":
            Y = encoding.indicator_with_unknown(y)[:, : encoding.n_classes]
            return Y, np.ones(Y.shape[0], dtype=bool)
        known = np.diff(encoding.indicator_with_unknown(y)[:, : encoding.n_classes].indptr) > 0
        if not known.any():
            encoding.indices(y)  # the error that names them
        return y, known

    def _held_out(
        self, X: Any, y: Any, known: Bools, weights: Floats | None, cv: Any
    ) -> Iterator[tuple[Any, Any, Any, Floats]]:
        """Models, rows that they have not seen, the targets of these, and their weights."""
        weight = np.ones(len(known)) if weights is None else weights
        if cv is None:
            yield self, *_rows_of(X, y, weight, known)
            return
        folds = check_cv(cv, None if sp.issparse(y) or isinstance(y, list) else y, classifier=True)
        for train, test in folds.split(X, y):
            train, test = train[known[train]], test[known[test]]
            model = self._fold_model()
            rows, truth = _safe_split(model, X, y, train)
            model.fit(rows, truth, **({} if weights is None else {"sample_weight": weights[train]}))
            if model.kind_ != self.kind_:
                raise ValueError(
                    f"a fold leaves {len(model.classes_)} of {len(self.classes_)} classes to train on; give fewer "
                    "folds, or rows kept apart and no cv"
                )
            yield model, *_safe_split(model, X, y, test, train), weight[test]

    def _fold_model(self) -> Any:
        """A copy of this model to be trained on other rows."""
        quiet = {"callback": None, "warm_start": False}
        known = self.get_params(deep=False)
        return clone(self).set_params(**{name: value for name, value in quiet.items() if name in known})

    def _block_rows(self, *, evidence: bool = False) -> int:
        """Rows whose scores, or those of them that calibration looks at, fit the memory limit."""
        n_values = self._n_block_values()
        if evidence and self.kind_ == "multilabel":
            n_values = min(n_values, 2 * (BEST_LABELS + SAMPLED_LABELS))
        return max(1, int(self.memory_limit_mb * BYTES_PER_MB / (BYTES_PER_SCORE * n_values)))

    def _n_block_values(self) -> int:
        """Scores of a row."""
        return len(self.classes_)

    def _evidence(self, model: Any, X: Any, y: Any, weights: Floats) -> Any:
        """Scores of a model for rows that it has not seen, and what is true of them."""
        X = model._check_rows(X)
        if self.kind_ == "multilabel":
            return _labels_of_rows(model, X, y, weights)
        classes = self._encoding().indices(y)
        scores = model._scorer().scores(X, n_threads=self._n_threads())
        if self.kind_ == "binary":
            return Pairs(scores[:, 0].copy(), classes == 1, weights, np.zeros(len(classes), dtype=np.int64))
        return _choices(scores, self._encoding().indices(model.classes_), classes, weights)

    def _calibration_of(self, parts: list[Any], method: Method) -> Calibration:
        n_groups = self._n_groups()
        if n_groups is None:
            return calibrate_pairs(_joined_pairs(parts), 1 if self.kind_ == "binary" else len(self.classes_), method)
        choices = _joined_choices(parts)
        if len(choices.starts) == 0:
            raise ValueError("no row has a choice between classes that the model knows; calibrate on other rows")
        return calibrate_choices(choices, n_groups, method)

    def _n_groups(self) -> int | None:
        """Groups of classes that exclude each other; None where labels are independent."""
        return 1 if self.kind_ == "multiclass" else None

    def _probabilities(self, scores: Floats) -> Floats:
        """Probabilities of all labels from all scores of some rows."""
        if self.kind_ == "multilabel":
            return self.calibration_.of_labels(scores)
        if self.kind_ == "binary":
            second = self.calibration_.of_labels(scores)
            return np.concatenate([1.0 - second, second], axis=1)
        return self.calibration_.of_groups(scores, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))

    def _steady_blocks(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Scores of successive rows within the memory limit, whose last bits do not depend on the rows beside them."""
        n_rows = _num_samples(X)
        scorer, step = self._scorer(), self._block_rows()
        # Products with kernel values, and what other classifiers do inside, may be rounded as the size of the batch has
        # it: such rows are done one by one.
        if "dual_coef_" in vars(self) or not getattr(vars(self).get("_columns"), "steady", True):
            scorer.rows_per_block = 1
        for start in range(0, n_rows, step):
            rows = slice(start, min(start + step, n_rows))
            part = X if step >= n_rows else _safe_indexing(X, rows)
            yield rows, scorer.scores(part, n_threads=self._n_threads())


def _check_enough(known: Bools) -> None:
    """Raise unless there are two rows to learn from."""
    n_known = int(known.sum())
    if n_known < FEWEST_ROWS:
        unknown = f" with a label that the model knows, of {len(known):,} given" if n_known < len(known) else ""
        raise ValueError(
            f"calibrate learns from many rows, {FEWEST_ROWS} at the very least, and got {n_known}{unknown}; give some "
            "hundred rows kept apart from training, or the training rows and cv=3"
        )


def _rows_of(X: Any, y: Any, weights: Floats, kept: Bools) -> tuple[Any, Any, Floats]:
    """Some of the rows, without a copy where that is all."""
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
    """Pairs of rows with their best labels, their true ones and sampled others, which stand for all that are left."""
    Y = sp.csr_array(Y)
    n_rows, n_labels = Y.shape
    best = model._best_labels(X, min(n_labels, BEST_LABELS + SAMPLED_LABELS))[0]
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
    scores = model._scorer().label_scores(X, pattern, n_threads=model._n_threads()).data
    return Pairs(scores, np.isin(keys, true_keys), standing_for * weights[keys // n_labels], labels)


def _choices(scores: Floats, known: Ints, classes: Ints, weights: Floats) -> Choices:
    """One choice a row among the classes that a model knows; rows of other classes are left out."""
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
