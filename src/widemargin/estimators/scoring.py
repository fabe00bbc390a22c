"""What every fitted model can do: scores, the top labels, prediction, probabilities, explanations.

    score of label j for row x  =  coef_[j] · x + intercept_[j]

A model has a `scorer` (all scores of some rows, their top k, or those of known labels), a `calibrator` (probabilities)
and a `codec` (its model folder); the methods here put them together. A family sets `coef_` and `intercept_`, or the
support rows of a kernel, and `classes_` and `kind_` ("binary", "multiclass" or "multilabel"). Scores of linear models
are float64 and the same bit for bit in every method, batch and number of threads; the last bits of a kernel's may
depend on the batch. Work is done in blocks: only `decision_function`, dense by contract, holds rows × labels numbers.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol, Self
from weakref import WeakKeyDictionary

import joblib
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, _safe_indexing
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from widemargin import metrics
from widemargin._docstrings import with_shared_passages
from widemargin._frames import MOST_ROWS, data_frame, html_table
from widemargin.data.normalize import l2_normalize_rows
from widemargin.estimators.calibration import BYTES_PER_MB, Calibrator, if_calibrated
from widemargin.estimators.closed_sets import closed_blocks
from widemargin.estimators.explanation import Explanation, explain_labels, weights_of_rows
from widemargin.estimators.persistence import Codec
from widemargin.estimators.proven import PLACES_TO_PROVE, ErrorBounds, ProvenLists, proven_classes, proven_lists
from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    COUNT,
    CommonParameters,
    Trainable,
    kernel_description,
    refuse_texts,
)
from widemargin.labels.encoding import LabelEncoding
from widemargin.labels.graph import as_label_graph
from widemargin.metrics.lists import Tied, find_tied
from widemargin.metrics.propensity import FEWEST_SAMPLES
from widemargin.model_io import ModelState
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, make_kernel, resolve_gamma
from widemargin.problems.probabilities import Calibration, Method
from widemargin.problems.scores import FeatureIndex, KernelScorer, LinearScorer, csr_of_dense

__all__ = [
    "LabelModel",
    "Model",
    "TopK",
    "class_numbers",
    "keep_support_vectors",
    "label_propensities",
    "tag_kernel",
    "top_k_accuracies",
    "training_kernel",
]

RANKED_PLACES_PER_BLOCK = 4_000_000  # 100 MB of labels, scores and indices
MOST_PLAIN_VALUES = 2**20  # of rows that are checked here; the time that scikit-learn needs does not matter for more
# Prediction indices by model. Beside the models and not inside, because prediction must not change a model's attributes
# (scikit-learn checks it), and because an index is neither copied nor pickled with its model.
_SCORERS: WeakKeyDictionary[Any, dict[bool, tuple[tuple[Any, ...], Any]]] = WeakKeyDictionary()
# Indices by feature that model folders have, with the arrays of which they were made.
_STORED_INDICES: WeakKeyDictionary[Any, tuple[list[Any], FeatureIndex]] = WeakKeyDictionary()


class _Lists(NamedTuple):
    """The three arrays of a `TopK`, which it unpacks to."""

    labels: npt.NDArray[Any]
    scores: npt.NDArray[np.float64]
    indices: npt.NDArray[np.int64]


class TopK(_Lists):
    """The top labels of each row, best first; ties go to the label that comes first in `classes_`.

    A named tuple of three arrays. The result of `predict_topk` also has the model's classes and the labels past the end
    of a list that are tied with its last one; the metrics need nothing else.

    Parameters
    ----------
    labels : ndarray of shape (n_samples, k), or None
        The labels themselves; None (objects) or -1 (numbers) where there are fewer than k labels. None for those that
        `indices` and `classes` give.
    scores : ndarray of shape (n_samples, k)
        Their scores, float64; -inf in missing places.
    indices : ndarray of shape (n_samples, k)
        Their positions in `classes_`; -1 in missing places.
    classes : ndarray of shape (n_classes,), optional
        `classes_` of the model.
    tied : Tied, optional
        Labels that are not listed although they have the same score as the last one listed.
    proven_set, proven_order : ndarray of bool of shape (n_samples,), optional
        Compressed models with exact bounds: whether it is proven that the model before compression lists the same
        labels, and lists them in the same order. None for other models.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import TopK
    >>> TopK(np.array([["b"]]), np.array([[0.5]]), np.array([[1]])).labels
    array([['b']], dtype='<U1')
    >>> TopK(None, np.array([[0.5, -np.inf]]), np.array([[1, -1]]), classes=np.array(["a", "b"])).labels
    array([['b', None]], dtype=object)
    """

    classes: npt.NDArray[Any] | None = None
    tied: Tied | None = None
    proven_set: npt.NDArray[np.bool_] | None = None
    proven_order: npt.NDArray[np.bool_] | None = None

    def __new__(
        cls,
        labels: npt.NDArray[Any] | None,
        scores: npt.NDArray[np.float64],
        indices: npt.NDArray[np.int64],
        classes: npt.NDArray[Any] | None = None,
        tied: Tied | None = None,
        proven_set: npt.NDArray[np.bool_] | None = None,
        proven_order: npt.NDArray[np.bool_] | None = None,
    ) -> Self:
        if labels is None:
            if classes is None:
                raise ValueError("labels are missing; pass them, or pass classes from which to determine them")
            listed, numbers = indices >= 0, classes.dtype.kind in "if"
            labels = classes[indices] if listed.all() else np.full(indices.shape, -1 if numbers else None, object)
            if not listed.all():
                labels[listed] = classes[indices[listed]]
                labels = labels.astype(classes.dtype) if numbers else labels
        self = super().__new__(cls, labels, scores, indices)
        self.classes, self.tied = classes, tied
        self.proven_set, self.proven_order = proven_set, proven_order
        return self

    def to_frame(self) -> Any:
        """The lists as a data frame with one row per listed label; missing places are left out.

        Returns
        -------
        pandas.DataFrame
            Columns "row" (the sample, from 0), "rank" (from 1), "label" and "score".

        Examples
        --------
        >>> import numpy as np
        >>> from widemargin import TopK
        >>> scores, indices = np.array([[0.5, -np.inf], [2.0, 1.0]]), np.array([[1, -1], [0, 1]])
        >>> TopK(None, scores, indices, classes=np.array(["a", "b"])).to_frame().to_dict("list")
        {'row': [0, 1, 1], 'rank': [1, 1, 2], 'label': ['b', 'a', 'b'], 'score': [0.5, 2.0, 1.0]}
        """
        return data_frame(self._columns())

    def _repr_html_(self) -> str:
        first = TopK(self.labels[:MOST_ROWS], self.scores[:MOST_ROWS], self.indices[:MOST_ROWS])
        return html_table(first._columns(), f"top {self.indices.shape[1]} labels of {len(self.indices):,} rows")

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """One row per listed label; see `to_frame`."""
        row, place = np.nonzero(self.indices >= 0)
        return {"row": row, "rank": place + 1, "label": self.labels[row, place], "score": self.scores[row, place]}


class Model(Protocol):
    """A fitted classifier of this package, or a pipeline with one as its last step."""

    classes_: npt.NDArray[Any]
    kind_: str

    def predict(self, X: Any) -> Any: ...

    def predict_topk(self, X: Any, k: int = 5) -> TopK: ...

    def __getattr__(self, name: str) -> Any: ...


@with_shared_passages
class LabelModel(CommonParameters, ClassifierMixin, BaseEstimator):
    """The base of all estimators: predictions of a fitted model by its scorer, its calibrator and its codec."""

    codec: ClassVar[Codec] = Codec()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS
    calibration_: Calibration
    classes_: npt.NDArray[Any]
    label_scale_: npt.NDArray[np.float64]
    normalize: bool

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores of all labels.

        <rows_to_score>

        Returns
        -------
        ndarray of shape (n_samples, n_labels), or (n_samples,) for a binary problem
            Scores in float64. The array is dense, so a result above `memory_limit_mb` raises a MemoryError;
            `predict_topk` never does.
        """
        X = self._check_rows(X)
        self._refuse_dense(X.shape[0], self._n_scores(), "decision_function")
        scorer = self.scorer if self.kind_ == "multilabel" else self._unscaled()
        scores: npt.NDArray[np.float64] = scorer.scores(X, n_threads=self._n_threads())
        return scores[:, 0] if self.kind_ == "binary" else scores

    def predict(self, X: Any) -> Any:
        """Predict labels.

        <rows_to_label>

        Returns
        -------
        ndarray of shape (n_samples,), or an indicator of shape (n_samples, n_labels)
            The top class; for multi-label problems the labels with a score above 0, or with a probability above ½
            if the model is calibrated, or those of its decision rule, as a CSR array, or as a dense array if the model
            was fitted on one. Column l is `classes_[l]`; `predict_sets` gives the labels themselves.
        """
        X = self._check_rows(X)
        if self.kind_ != "multilabel":
            return self.classes_[self._ranked(X, 1, self._unscaled())[0][:, 0]]
        indicator = self._decide(X)
        return indicator if self.sparse_output_ else indicator.toarray()

    def predict_sets(self, X: Any) -> list[set[Any]]:
        """Predict labels by name: the labels of `predict` as a set per row.

        <rows_to_label>

        Returns
        -------
        list of n_samples sets
            Labels of `classes_`, as label sets that `fit` and the metrics accept. A multi-label model may predict none;
            other models predict exactly one.
        """
        predicted = self.predict(X)
        if self.kind_ != "multilabel":
            return [{label} for label in predicted.tolist()]
        Y = sp.csr_array(predicted)
        labels = self.classes_[Y.indices].tolist()
        return [set(labels[start:end]) for start, end in pairwise(Y.indptr.tolist())]

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The top k labels of each row, exactly, in bounded memory.

        <rows_to_label>
        k : int, default=5
            Number of labels per row; places beyond the number of labels are marked as missing.

        <top_k_lists>
        """
        if not COUNT.is_satisfied_by(k):
            raise ValueError(f"k, the number of labels per row, must be a positive integer; got {k!r}")
        X = self._check_rows(X)
        n_labels, proves = len(self.classes_), hasattr(self, "compression_errors_")
        # One place more shows which lists end within a tie, and a few more what the next labels could be.
        indices, scores = self._ranked(X, k + (PLACES_TO_PROVE if proves else 1) if k < n_labels else k, self.scorer)
        proven = self._proven(X, k, indices, scores) if proves else (None, None)
        indices, scores = indices[:, : k + 1], scores[:, : k + 1]

        def labels_tied(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
            found = self.scorer.scores(_safe_indexing(X, rows), n_threads=self._n_threads())
            found = np.concatenate([-found, found], axis=1) if self.kind_ == "binary" else found
            # By the scores computed here: those of a kernel may differ in the last bits from the listed ones.
            return np.asarray(found == np.take_along_axis(found, indices[rows, k - 1][:, None], axis=1))

        listed = np.ascontiguousarray(indices[:, :k])
        tied = find_tied(indices, scores, k, n_labels, labels_tied)
        return TopK(None, np.ascontiguousarray(scores[:, :k]), listed, self.classes_, tied, *proven)

    def _proven(self, X: Any, k: int, indices: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> ProvenLists:
        """Which lists of checked rows are those of the model before compression."""
        bounds = ErrorBounds.of(
            self.coef_, self.compression_errors_, self.intercept_, getattr(self, "label_scale_", None)
        )
        if self.kind_ == "binary":
            return proven_classes(bounds, X, k, scores)
        how: dict[str, Any] = {"memory_limit_mb": self.memory_limit_mb, "n_threads": self._n_threads()}
        return proven_lists(bounds, self.scorer, X, k, indices, scores, **how)

    def _ranked(self, X: Any, k: int, scorer: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Indices and scores of the top k labels of checked rows."""
        if self.kind_ != "binary":
            ranked: tuple[Any, Any] = scorer.top_k(X, k, n_threads=self._n_threads())
            return ranked
        # Two classes have the scores −s and s.
        score = scorer.scores(X, n_threads=self._n_threads())[:, 0]
        indices, scores = np.full((len(score), k), -1, dtype=np.int64), np.full((len(score), k), -np.inf)
        top = (score > 0).astype(np.int64)
        for place, classes in enumerate((top, 1 - top)[:k]):
            indices[:, place] = classes
            scores[:, place] = np.where(classes == 1, score, -score)
        return indices, scores

    def label_scores(self, X: Any, y: Any) -> Any:
        """Scores of known labels, for metrics in which ties matter.

        <rows_to_score>
        y : array-like of shape (n_samples,), sparse indicator, or list of label sets
            Their labels, in a form that `fit` accepts.

        Returns
        -------
        ndarray of shape (n_samples,) or csr_array of shape (n_samples, n_labels)
            The score of each row's label; for multi-label problems a matrix with the pattern of `y`.
        """
        X = self._check_rows(X)
        if self.kind_ == "multilabel":
            truth = self._encoding().indicator(y)
            check_consistent_length(X, truth)
            return self.scorer.label_scores(X, truth, n_threads=self._n_threads())
        classes = self._encoding().indices(y)
        check_consistent_length(X, classes)
        if self.kind_ == "binary":
            scores = self.scorer.scores(X, n_threads=self._n_threads())[:, 0]
            return np.where(classes == 1, scores, -scores)
        return self.scorer.label_scores(X, classes, n_threads=self._n_threads())

    def explain(
        self, X: Any, labels: Any = None, *, k: int = 1, feature_names: Sequence[str] | None = None
    ) -> Explanation:
        """What each feature of one row adds to the scores of its labels, and to their leads over the runner-up.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_features,) or (1, n_features)
            The row.
        labels : label or list of labels, default=None
            Labels to explain; by default the top k labels of the row.
        k : int, default=1
            Number of top labels to explain.
        feature_names : sequence of str of length n_features, default=None
            Names of the features; by default the names that the model knows, or else column numbers.

        Returns
        -------
        Explanation
            Contributions that add up to the score and to the lead; on a tree also for each step of the path. A model
            with a kernel has no weights of features and raises a ValueError.
        """
        return explain_labels(self, X, labels, k, feature_names)

    def calibrate(
        self, X: Any, y: Any, *, method: Method = "sigmoid", cv: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn how scores become probabilities, from rows that the model has not seen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows kept apart from training; with `cv`, the training rows.
        y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
            Their labels, in a form that `fit` accepts. Unknown labels are ignored, and so are their rows if a row has
            one label.
        method : {"sigmoid", "isotonic"}, default="sigmoid"
            Shape of the map: Platt's sigmoid, or a monotone curve, which needs more rows (some thousands).
        cv : None, int or splitter, default=None
            None if X was not used in training. Otherwise X is the training data, and `cv` a number of folds, a
            scikit-learn splitter or an iterable of splits: copies of the model are trained without one fold and score
            it; the model itself does not change. Folds are contiguous, so neighbouring rows, which are often similar,
            stay together.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self
            The model, with `calibration_` and `predict_proba`; the next `fit` deletes them.
        """
        self.calibration_ = self.calibrator.fit(X, y, method, cv, sample_weight)
        return self

    def _chosen_numbers(self) -> dict[str, Any]:
        """Parameters of a fit to other rows with the numbers that this one chose for "auto"."""
        given = {name: getattr(self, name, None) for name in ("C", "rank_scale")}
        return {name: getattr(self, f"{name}_") for name, value in given.items() if value == "auto"}

    @if_calibrated
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of all labels or classes.

        <rows_to_score>

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            With one label per row, the columns add up to 1; with several, each is the probability that the row has the
            label. A row gets the same numbers in any batch. The array is dense, so a result above `memory_limit_mb`
            raises a MemoryError; `label_proba` of the labels of `predict_topk` does not. Only calibrated models have
            this method.
        """
        return self.calibrator.all_probabilities(self._check_rows(X))

    @if_calibrated
    def label_proba(self, X: Any, indices: Any) -> npt.NDArray[np.float64]:
        """Probabilities of some labels of each row, in bounded memory.

        <rows_to_score>
        indices : array-like of int of shape (n_samples, k)
            Positions in `classes_`, such as `predict_topk(X, k).indices`; −1 for no label.

        Returns
        -------
        ndarray of shape (n_samples, k)
            As in `predict_proba`; 0 where there is no label. Only calibrated models have this method.
        """
        return self.calibrator.some_probabilities(self._check_rows(X), indices)

    @if_calibrated
    def predict_closed(self, X: Any, taxonomy: Any) -> Any:
        """Predict label sets that contain all ancestors of their labels in a tree or a graph over the labels.

        The probabilities are made consistent: an ancestor is at least as probable as its descendants. Each row then
        gets the closed set with the largest expected F1, estimated from them (`widemargin.labels.graph`).

        <rows_to_label>
        taxonomy : LabelGraph, Taxonomy, dict or networkx.DiGraph
            The graph, which contains all labels of the model. Nodes that are not labels of the model get the
            probability of their most probable descendant. Labels with several parents require a `LabelGraph`.

        Returns
        -------
        csr_array of int64 of shape (n_samples, n_nodes)
            Indicator whose columns are the `nodes` of the graph or taxonomy, as `hierarchical_f1` takes it. Only
            calibrated multi-label models have this method.
        """
        graph, X = as_label_graph(taxonomy), self._check_rows(X)
        blocks = [csr_of_dense(chosen, np.int64) for _, chosen in closed_blocks(self, X, graph)]
        return sp.vstack(blocks or [sp.csr_array((0, graph.n_nodes), dtype=np.int64)], format="csr")

    def compress(
        self,
        *,
        bits: int | None = None,
        max_size_mb: float | None = None,
        max_gap: float | None = None,
        keep_exact_bounds: bool = False,
        rows: Any = None,
    ) -> Self:
        """A smaller model: weights of 8 or 16 bits with a scale per label, without small ones, certified as stored.

        Parameters
        ----------
        bits : {8, 16} or None, default=None
            Bits per weight. None chooses them together with the pruning threshold; without `max_size_mb` and `max_gap`,
            it stands for 16.
        max_size_mb : float or None, default=None
            Largest size of the model folder in megabytes (10⁶ bytes), all files included. Of all thresholds and bits
            that meet it, those with the smallest objective are taken.
        max_gap : float or None, default=None
            Largest certified relative gap of the result, as in `certificate_.relative_gap`; it includes the gap that
            the model has before. Without `max_size_mb`, the smallest folder that meets it is the result.
        keep_exact_bounds : bool, default=False
            Whether to keep bounds on the errors of each label's weights, 8 bytes per label. `predict_topk` then proves
            for most rows that the list is that of this model (`TopK.proven_set`, `TopK.proven_order`).
        rows : tuple of (X, y) or (X, y, sample_weight), default=None
            The rows that the model was trained on, over which the objective is computed. By default those that the
            model records (see `train`).

        Returns
        -------
        fitted model
            A copy with compressed weights and their certificate, without training rows and dual variables; this model
            does not change. It predicts, explains and can be saved like any other, but it cannot be updated: update
            this model and compress it again.
        """
        from widemargin.estimators.compression import compress

        how: dict[str, Any] = {"bits": bits, "max_size_mb": max_size_mb, "max_gap": max_gap}
        small: Self = compress(self, **how, keep_exact_bounds=keep_exact_bounds, rows=rows)
        return small

    def to_state(self) -> ModelState:
        """The fitted model as arrays and JSON values."""
        return self.codec.encode(self)

    @classmethod
    def from_state(cls, state: ModelState) -> Self:
        """The fitted model that `to_state` described."""
        model: Self = cls.codec.decode(cls, state)
        return model

    @property
    def version_(self) -> int:
        """1 after training, and one more with every update since."""
        check_is_fitted(self)
        return 1 + len(getattr(self, "updates_", ()))

    @property
    def calibrator(self) -> Calibrator:
        """The probabilities of this model."""
        return Calibrator(self)

    @property
    def scorer(self) -> Any:
        """The scores by which this model ranks labels."""
        return self._scorer(getattr(self, "label_scale_", None))

    def _unscaled(self) -> Any:
        """The scores of the problems that were solved, without a rank scale."""
        return self._scorer(None) if hasattr(self, "label_scale_") else self.scorer

    def _scorer(self, scale: npt.NDArray[np.float64] | None) -> Any:
        """Scores with these factors of the labels: an index over the weights, made again when they have changed.

        Weights of a fit are read-only, so a change is a new array; arrays that can change in place are not trusted.
        """
        if hasattr(self, "dual_coef_"):
            precomputed = self.kernel == "precomputed"
            return KernelScorer(
                None if precomputed else make_kernel(*kernel_description(self, self.gamma_)),
                self.support_ if precomputed else self.support_vectors_,
                self.dual_coef_,
                self.intercept_,
                memory_limit_mb=self.memory_limit_mb,
            )
        for part in self._weight_arrays():
            if part.flags.writeable:
                return self._linear_scorer(scale)
        indices = _SCORERS.setdefault(self, {})
        made_of, index = indices.get(scale is None, ((), None))
        arrays = (self.coef_, self.intercept_, scale)
        if not made_of or any(map(operator.is_not, made_of, arrays)):
            index = self._linear_scorer(scale)
            indices[scale is None] = arrays, index
        index.memory_limit_mb = self.memory_limit_mb
        return index

    def _linear_scorer(self, scale: npt.NDArray[np.float64] | None) -> Any:
        index = self._stored_index(scale)
        return LinearScorer(self.coef_, self.intercept_, scale=scale, memory_limit_mb=self.memory_limit_mb, index=index)

    def _stored_index(self, scale: npt.NDArray[np.float64] | None) -> FeatureIndex | None:
        """The index that the model folder has, if the weights are still those and the factors are these."""
        arrays, index = _STORED_INDICES.get(self, ([], None))
        same = arrays and all(map(operator.is_, arrays, [scale, *self._weight_arrays()[:-1]]))
        return index if same else None

    def _use_feature_index(self, index: FeatureIndex) -> None:
        """Predict from this index of the weights as they are now."""
        arrays = [getattr(self, "label_scale_", None), *self._weight_arrays()[:-1]]  # without the intercepts
        _STORED_INDICES[self] = arrays, index

    def _feature_index(self) -> FeatureIndex:
        """The index of sparse weights by which this model ranks labels."""
        scale = getattr(self, "label_scale_", None)
        index = self._stored_index(scale)
        return FeatureIndex.of(self.coef_, scale) if index is None else index

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose label (or whole label set) is predicted exactly.

        <rows_to_score>
        y : array-like of shape (n_samples,), sparse indicator, or list of label sets
            True labels; a row with an unknown label counts as wrong.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Accuracy. With many labels, precision@k in `widemargin.metrics` says more.
        """
        if self.kind_of_fitted() != "multilabel":
            return float(super().score(X, y, sample_weight))
        # Nothing is made dense.
        truth = self._encoding().indicator_with_unknown(y)
        predicted = sp.csr_array(self.predict(X))
        check_consistent_length(predicted, truth, sample_weight)
        predicted = sp.csr_array((predicted.data, predicted.indices, predicted.indptr), shape=truth.shape)
        differences = np.diff(sp.csr_array(truth != predicted).indptr)
        return float(np.average(differences == 0, weights=sample_weight))

    def set_label_names(self, names: Sequence[str]) -> Self:
        """Name the labels of a model that was fitted on an indicator matrix.

        Parameters
        ----------
        names : sequence of str of length n_labels
            Distinct names in the order of the columns; they replace the column numbers in `classes_`.

        Returns
        -------
        self
            The model.
        """
        if self.kind_of_fitted() != "multilabel":
            raise ValueError(
                "only multi-label models have numbered label columns that can be renamed; classes keep their names"
            )
        self.classes_ = _checked_names("label", names, len(self.classes_), distinct=True)
        return self

    def set_feature_names(self, names: Sequence[str]) -> Self:
        """Name the features; the names appear wherever weights are shown.

        Parameters
        ----------
        names : sequence of str of length n_features
            The names in the order of the columns of X; they need not be distinct.

        Returns
        -------
        self
            The model. Unlike `feature_names_in_`, which scikit-learn sets for data frames, these names are not
            compared with those of new data.
        """
        check_is_fitted(self)
        self.feature_names_ = _checked_names("feature", names, self.n_features_in_, distinct=False)
        return self

    def feature_name(self, index: int) -> str:
        """The name of a feature where it has one, its column number as text otherwise."""
        names = getattr(self, "feature_names_in_", getattr(self, "feature_names_", None))
        return str(index if names is None else names[index])

    def kind_of_fitted(self) -> str:
        """The kind of target the model was fitted on; an error if it was not fitted."""
        check_is_fitted(self)
        return str(self.kind_)

    def _check_rows(self, X: Any) -> Any:
        """Rows as the kernels take them: CSR or C-contiguous, float32 or float64."""
        if not self._are_plain_rows(X):
            check_is_fitted(self)
            try:
                X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
            except ValueError:
                refuse_texts(X, type(self).__name__)
                raise
        return l2_normalize_rows(X) if self.normalize else X

    def _are_plain_rows(self, X: Any) -> bool:
        """Whether these rows are such that `validate_data` would return them unchanged, without asking it.

        It takes longer (95 µs) than scoring a row with hundreds of labels. All errors and warnings are left to it.
        """
        if type(X) not in (np.ndarray, sp.csr_array, sp.csr_matrix) or X.ndim != 2 or X.dtype.char not in "fd":
            return False
        if not 0 < X.shape[1] == getattr(self, "n_features_in_", 0) or hasattr(self, "feature_names_in_"):
            return False
        values = X if isinstance(X, np.ndarray) else X.data
        if X.shape[0] == 0 or values.size > MOST_PLAIN_VALUES or not values.flags.c_contiguous:
            return False
        return X.dtype.isnative and bool(np.isfinite(values).all())

    def _decide(self, X: Any) -> Any:
        """The labels of checked rows, of a model with several labels per row, as a CSR array."""
        return self._indicator(X, self._is_predicted)

    def _indicator(self, X: Any, is_predicted: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.bool_]]) -> Any:
        """Labels chosen by their scores, block by block, as a CSR array."""
        blocks = [csr_of_dense(is_predicted(scores), np.int64) for scores in self._score_blocks(X)]
        return sp.vstack(blocks or [sp.csr_array((0, len(self.classes_)), dtype=np.int64)], format="csr")

    def _is_predicted(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Which labels of a multi-label model are predicted, for a block of scores."""
        if hasattr(self, "calibration_"):
            return self.calibration_.of_labels(scores) > 0.5
        # a (s + 1) − 1 > a − 1 where s > 0
        return scores > getattr(self, "label_scale_", 1.0) - 1.0

    def _refuse_dense(self, n_rows: int, n_labels: int, method: str) -> None:
        """A MemoryError if an array of that shape is above the limit."""
        needed_mb = n_rows * n_labels * 8 / BYTES_PER_MB
        if needed_mb > self.memory_limit_mb:
            size = f"{needed_mb:,.0f}" if needed_mb >= 10 else f"{needed_mb:.2g}"
            raise MemoryError(
                f"{method} would create a dense array of {size} MB ({n_rows:,} rows × {n_labels:,} labels), which "
                f"exceeds memory_limit_mb={self.memory_limit_mb:g}; use predict_topk for the top labels or "
                "label_scores for the scores of known labels, or raise memory_limit_mb"
            )

    def _n_scores(self) -> int:
        """Length of a row of `decision_function`."""
        return len(self.intercept_)

    def _n_weights(self) -> int:
        """Number of stored weights, without the intercepts."""
        coef = self.coef_ if hasattr(self, "coef_") else self.dual_coef_
        return int(coef.size if isinstance(coef, np.ndarray) else coef.nnz)

    def _problem_name(self, index: int) -> str:
        """Name of a problem of the certificate: its label, unless a family overrides this."""
        return str(self.classes_[index])

    def _explained_row(self, X: Any) -> Any:
        """A checked row, scaled as for its weights."""
        return self._check_rows(X)

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        """Weights of shape (n_outputs, n_features of them) and intercepts of some outputs, in float64."""
        if not hasattr(self, "coef_"):
            kernel = self.kernel if isinstance(self.kernel, str) else "a function"
            raise ValueError(
                f"explain requires scores that are sums over features, but this model has a kernel ({kernel}); train "
                "with kernel='linear'"
            )
        scale, compressed = getattr(self, "label_scale_", None), isinstance(self.coef_, CompressedWeights)
        coef = self.coef_.scaled(scale) if compressed and scale is not None else self.coef_
        weights, intercepts = weights_of_rows(coef, outputs, features), self.intercept_[outputs].astype(np.float64)
        if scale is None:
            return weights, intercepts
        # As the scores are computed: the products are rounded to the type of the weights.
        scaled = weights if compressed else (weights * scale[outputs, None]).astype(coef.dtype).astype(np.float64)
        return scaled, scale[outputs] * (intercepts + 1.0) - 1.0

    def _encoding(self) -> LabelEncoding:
        return LabelEncoding(self.kind_, self.classes_)

    def _weight_arrays(self) -> list[npt.NDArray[Any]]:
        """The arrays that hold `coef_` and `intercept_`."""
        coef = self.coef_
        if isinstance(coef, CompressedWeights):
            return [*(getattr(coef, name) for name in CompressedWeights.ARRAYS), self.intercept_]
        return [*((coef.data, coef.indices, coef.indptr) if sp.issparse(coef) else (coef,)), self.intercept_]

    def _freeze_weights(self) -> None:
        """Make the weights read-only: a change in place would go unseen; assign a new array instead."""
        for part in self._weight_arrays():
            part.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "coef_"):
            self._freeze_weights()  # copies and unpickled arrays are writeable

    def _score_blocks(self, X: Any) -> Iterator[npt.NDArray[np.float64]]:
        """Dense scores of successive row blocks, each within the memory limit."""
        rows = max(1, int(self.memory_limit_mb * BYTES_PER_MB / (16 * max(1, len(self.intercept_)))))
        for start in range(0, X.shape[0], rows):
            yield self.scorer.scores(X[start : start + rows], n_threads=self._n_threads())

    def _n_threads(self) -> int:
        return int(joblib.effective_n_jobs(self.n_jobs))


def _checked_names(what: str, names: Any, n_expected: int, *, distinct: bool) -> npt.NDArray[Any]:
    """Names as an array of str objects; an error unless there is a string for each column."""
    plain = list(names) if isinstance(names, Iterable) and not isinstance(names, str | bytes) else [None]
    if not all(isinstance(name, str) for name in plain):
        raise ValueError(f"{what} names must be a sequence of strings, one per {what}; got {names!r:.100}")
    if len(plain) != n_expected:
        raise ValueError(f"there must be one {what} name for each of the {n_expected:,} {what}s; got {len(plain):,}")
    if distinct and len(set(plain)) != len(plain):
        name = next(name for name, count in Counter(plain).items() if count > 1)
        raise ValueError(f"{what} names must be distinct, but {name!r} is used for several {what}s")
    return np.array([str(name) for name in plain], dtype=object)


def top_k_accuracies(model: Any, X: Any, classes: npt.NDArray[np.int64], ks: list[int]) -> npt.NDArray[np.float64]:
    """Top-k accuracy of a model with one label per row at each k, with expected ties, shape (len(ks),).

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


def label_propensities(model: Any, n_labels: int, **parameters: float) -> npt.NDArray[np.float64]:
    """Propensities by the model's training rows, shape (n_labels,), with A and B of `jain_propensities` as parameters.

    The columns after those of the model are labels that it does not know. The formula needs 3 rows; a model of fewer
    rows is treated as one of 3.
    """
    counts = np.zeros(n_labels)
    counts[: len(model.label_counts_)] = model.label_counts_
    return metrics.jain_propensities(counts, max(model.n_samples_fit_, FEWEST_SAMPLES), **parameters)


def class_numbers(classes: npt.NDArray[Any], y: Any) -> npt.NDArray[np.int64]:
    """Places of the labels y among the classes; −1 for labels that are none of them."""
    places = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([places.get(label, -1) for label in np.asarray(y).ravel().tolist()], dtype=np.int64)


def training_kernel(estimator: Trainable, X: Any) -> TrainingKernel | PrecomputedKernel:
    """The kernel of the training rows; nothing of it is computed yet."""
    if estimator.kernel == "precomputed":
        return PrecomputedKernel(X)
    return TrainingKernel(X, make_kernel(*kernel_description(estimator, resolve_gamma(estimator.gamma, X))))


def keep_support_vectors(model: Any, X: Any, kernel: TrainingKernel | PrecomputedKernel) -> None:
    """Set `support_vectors_` and `gamma_`, from which kernel values of new rows are computed; after `support_`."""
    if isinstance(kernel, PrecomputedKernel):
        model.support_vectors_, model.gamma_ = np.empty((0, 0)), 1.0
    else:
        model.support_vectors_, model.gamma_ = X[model.support_], kernel.kernel.gamma


def tag_kernel(tags: Tags, kernel: Any) -> Tags:
    """Tags of an estimator with this kernel: rows of features may be sparse, kernel values are pairwise."""
    precomputed = isinstance(kernel, str) and kernel == "precomputed"
    tags.input_tags.sparse = not precomputed
    tags.input_tags.pairwise = precomputed
    return tags
