"""How good predictions are: top-k accuracy, precision and recall by label frequency, reliability of probabilities.

Top-k accuracy is the share of rows whose label is among the top k; ties count as expected.

By label frequency, with labels in log₂ bins of their number of training rows, among the top k labels of all rows:

    precision of a bin = listed labels of the bin that are true / listed labels of the bin
    recall of a bin    = listed labels of the bin that are true / true labels of the bin

Over all bins together, listed true labels over (rows · k) is the usual precision@k. Memory: O(rows · k).

Reliability: of the predictions with a probability of about p, a share of about p should be right. Predictions are put
into bins of their probability. With n_b of the n predictions in bin b, conf_b the mean of their probabilities and acc_b
the share that is right, the expected calibration error is

    ECE = Σ_b (n_b / n) |acc_b − conf_b|

With one label per row, the prediction is the class with the largest probability; on a tree, where a label above others
is always more probable, it is the predicted label, down to the depth of the true one. With label lists, every label of
every row is a prediction; labels without a stored probability in a sparse matrix count only if they are true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import metrics
from widemargin.displays._axes import BLUE, GREY, SERIES, axes_for, bin_start, display_class, draw_curve
from widemargin.estimators.scoring import Model, class_numbers, top_k_accuracies
from widemargin.estimators.tree.model import TreeLabelModel, probable_predictions
from widemargin.metrics.calibration import N_BINS, reliability_curve
from widemargin.metrics.lists import MISSING, check_choice, check_indicator, check_ranking, hits
from widemargin.solvers.one_vs_all.problem import frequency_bin

__all__ = ["PrecisionByFrequencyDisplay", "ReliabilityDisplay", "TopKAccuracyDisplay"]

N_DEPTHS = 10
KS = (1, 3, 5)
LARGEST_MARKER = 120.0
SMALLEST_MARKER = 8.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@display_class
class TopKAccuracyDisplay:
    """Top-k accuracy over k, for one label per row; made by `from_estimator` or `from_predictions`.

    Parameters
    ----------
    k : ndarray of int of shape (n_depths,)
        Depths.
    accuracy : ndarray of shape (n_depths,)
        Share of the rows whose label is among the top k.

    <drawn>
    >>> import numpy as np
    >>> from widemargin.displays import TopKAccuracyDisplay
    >>> labels = np.array([["cat", "dog", "cow"], ["dog", "cow", "cat"]])
    >>> scores, indices = np.array([[3.0, 2.0, 1.0]] * 2), np.array([[0, 1, 2], [1, 2, 0]])
    >>> display = TopKAccuracyDisplay.from_predictions(
    ...     ["cat", "cow"], (labels, scores, indices), n_labels=3, ax=Figure().subplots())
    >>> display.accuracy.tolist()
    [0.5, 1.0, 1.0]
    """

    k: Ints
    accuracy: Floats

    @classmethod
    def from_estimator(
        cls, estimator: Model, X: Any, y: Any, *, max_k: int = N_DEPTHS, ax: Any = None, name: str | None = None
    ) -> Self:
        """Draw the curve of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            A multiclass model with `predict_topk`.
        <X>
        y : array-like of shape (n_samples,)
            Their labels; a label that the model does not know is a miss.
        max_k : int, default=10
            Largest depth; at most the number of classes.
        <named_display>
        """
        if getattr(estimator, "kind_", "multiclass") == "multilabel":
            raise ValueError(
                "top-k accuracy requires one label per row; for lists of labels, use PrecisionByFrequencyDisplay"
            )
        depths = np.arange(1, min(max_k, len(estimator.classes_)) + 1)
        accuracy = top_k_accuracies(estimator, X, class_numbers(estimator.classes_, y), depths.tolist())
        return cls(k=depths, accuracy=accuracy).plot(ax=ax, name=name)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        topk: Any,
        *,
        max_k: int = N_DEPTHS,
        label_scores: Any = None,
        n_labels: int | None = None,
        ax: Any = None,
        name: str | None = None,
    ) -> Self:
        """Draw the curve of ranked predictions.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        topk : named tuple (labels, scores, indices) of arrays of shape (n_samples, n_places)
            The result of `predict_topk`.
        max_k : int, default=10
            Largest depth; at most n_places, or n_places − 1 for lists that neither hold all labels nor know the ties
            past their ends, as those of `predict_topk` do.
        label_scores : array-like of shape (n_samples,), optional
            Scores of the true labels, see `widemargin.metrics.top_k_accuracy`.
        n_labels : int, optional
            Number of labels.
        <named_display>
        """
        places = np.shape(topk[2])[1]
        knows_ties = getattr(topk, "tied", None) is not None
        most = places if knows_ties or (n_labels is not None and places >= n_labels) else max(1, places - 1)
        depths = np.arange(1, min(max_k, most, n_labels or most) + 1)
        accuracy = metrics.top_k_accuracy(y_true, topk, depths, label_scores=label_scores, n_labels=n_labels)
        return cls(k=depths, accuracy=np.asarray(accuracy)).plot(ax=ax, name=name)

    def plot(self, ax: Any = None, *, name: str | None = None) -> Self:
        """Draw.

        <named_plot>
        """
        self.figure_, self.ax_ = axes_for(ax)
        draw_curve(self.ax_, self.k, self.accuracy, name, marker="o", markersize=4)
        self.ax_.set_xticks(self.k)
        self.ax_.set_ylim(top=1.0)
        self.ax_.set_xlabel("k")
        self.ax_.set_ylabel("top-k accuracy")
        return self


@display_class
class PrecisionByFrequencyDisplay:
    """Precision@k or recall@k of labels by their frequency; made by `from_estimator` or `from_predictions`.

    Parameters
    ----------
    frequency_bin : ndarray of int of shape (n_bins,)
        floor(log₂) of the number of training rows; −1 for labels without any. Bins without a true or listed label are
        left out.
    n_labels : ndarray of int of shape (n_bins,)
        Number of labels in each bin.
    ks : ndarray of int of shape (n_depths,)
        Depths.
    listed, found : ndarray of shape (n_depths, n_bins)
        Number of labels of each bin among the top k of the rows, and how many of these are true.
    true : ndarray of shape (n_bins,)
        Number of true labels of each bin.

    <drawn>
    >>> import numpy as np
    >>> from widemargin.displays import PrecisionByFrequencyDisplay
    >>> Y = np.array([[1, 0, 1], [0, 1, 0]])
    >>> display = PrecisionByFrequencyDisplay.from_predictions(
    ...     Y, np.array([[0, 1], [0, 1]]), [9, 8, 1], ks=[1, 2], ax=Figure().subplots())
    >>> display.frequency_bin.tolist(), display.precision.tolist(), display.recall.tolist()
    ([0, 3], [[nan, 0.5], [nan, 0.5]], [[0.0, 0.5], [0.0, 1.0]])
    """

    frequency_bin: Ints
    n_labels: Ints
    ks: Ints
    listed: Floats
    found: Floats
    true: Floats

    @property
    def precision(self) -> Floats:
        """Shape (n_depths, n_bins); NaN where no label of the bin is listed."""
        return np.where(self.listed > 0, self.found / np.maximum(self.listed, 1), np.nan)

    @property
    def recall(self) -> Floats:
        """Shape (n_depths, n_bins); NaN where no label of the bin is true."""
        return np.where(self.true > 0, self.found / np.maximum(self.true, 1), np.nan)

    @classmethod
    def from_estimator(
        cls, estimator: Model, X: Any, y: Any, *, ks: Sequence[int] = KS, measure: str = "precision", ax: Any = None
    ) -> Self:
        """Draw a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            One with `predict_topk` and `label_counts_`.
        <X>
        y : array-like of shape (n_samples,), sparse indicator, or list of label sets
            Their labels.
        ks : sequence of int, default=(1, 3, 5)
            Depths; those above the number of labels are left out.
        <measure>
        <display>
        """
        n_labels = len(estimator.classes_)
        within = [k for k in ks if k <= n_labels] or [n_labels]
        top = estimator.predict_topk(X, max(within))
        truth = estimator._encoding().indicator_with_unknown(y)
        return cls.from_predictions(truth, top, estimator.label_counts_, ks=within, measure=measure, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        Y_true: Any,
        topk: Any,
        label_counts: Any,
        *,
        ks: Sequence[int] = KS,
        measure: str = "precision",
        ax: Any = None,
    ) -> Self:
        """Draw ranked predictions.

        Parameters
        ----------
        Y_true : sparse or dense indicator of shape (n_samples, n_labels)
            The true labels.
        topk : named tuple (labels, scores, indices) or int array of shape (n_samples, n_places)
            The result of `predict_topk`, or its `indices`.
        label_counts : array-like of shape (n_labels,)
            Number of training rows of each label; 0 for further labels at the end of `Y_true`.
        ks : sequence of int, default=(1, 3, 5)
            Depths.
        <measure>
        <display>
        """
        return cls.of_predictions(Y_true, topk, label_counts, ks=ks).plot(ax=ax, measure=measure)

    @classmethod
    def of_predictions(cls, Y_true: Any, topk: Any, label_counts: Any, *, ks: Sequence[int] = KS) -> Self:
        """The display of ranked predictions, not drawn yet."""
        Y, indices, depths, _ = check_ranking(Y_true, topk, ks)
        counts = np.zeros(Y.shape[1], dtype=np.int64)
        counts[: len(label_counts)] = label_counts
        bins, which = np.unique(frequency_bin(counts), return_inverse=True)
        true = hits(indices, Y)
        listed, found = np.zeros((2, len(depths), len(bins)))
        for row, k in enumerate(depths.tolist()):
            there = indices[:, :k] != MISSING
            part = which[indices[:, :k][there]]
            listed[row] = np.bincount(part, minlength=len(bins))
            found[row] = np.bincount(part, weights=true[:, :k][there], minlength=len(bins))
        occurs = np.bincount(which[Y.indices], minlength=len(bins)).astype(np.float64)
        used = (occurs > 0) | listed.any(axis=0)
        return cls(
            frequency_bin=bins[used],
            n_labels=np.bincount(which, minlength=len(bins))[used],
            ks=depths,
            listed=listed[:, used],
            found=found[:, used],
            true=occurs[used],
        )

    def plot(self, ax: Any = None, *, measure: str = "precision") -> Self:
        """Draw.

        Parameters
        ----------
        <ax>
        <measure>

        <itself>
        """
        check_choice(measure, "measure", ("precision", "recall"))
        self.figure_, self.ax_ = axes_for(ax)
        ticks = np.arange(len(self.frequency_bin))
        for number, (k, values) in enumerate(zip(self.ks, getattr(self, measure), strict=True)):
            colour = SERIES[number % len(SERIES)]
            self.ax_.plot(ticks, values, color=colour, marker="os^D"[number % 4], markersize=4, label=f"k = {k}")
        names = [bin_start(b) for b in self.frequency_bin.tolist()]
        texts = [f"{name}\n({n:,})" for name, n in zip(names, self.n_labels.tolist(), strict=True)]
        self.ax_.set_xticks(ticks, texts, fontsize="small")
        self.ax_.set_ylim(-0.02, 1.02)
        self.ax_.set_xlabel("minimum number of training rows per label (labels in the bin)")
        self.ax_.set_ylabel(f"{measure} at k")
        self.ax_.legend(frameon=False)
        return self


@display_class
class ReliabilityDisplay:
    """Share of right predictions over their probability; made by `from_estimator` or `from_predictions`.

    Parameters
    ----------
    confidence : ndarray of shape (n_bins,)
        Mean probability of the predictions in each bin that is not empty.
    accuracy : ndarray of shape (n_bins,)
        Share of these predictions that is right.
    counts : ndarray of int of shape (n_bins,)
        Number of these predictions.

    <drawn>
    >>> from widemargin.displays import ReliabilityDisplay
    >>> display = ReliabilityDisplay.from_predictions(
    ...     [1, 1, 0, 0], [0.9, 0.7, 0.7, 0.1], n_bins=2, ax=Figure().subplots())
    >>> display.counts.tolist(), display.accuracy.round(2).tolist(), round(display.expected_calibration_error, 3)
    ([1, 3], [0.0, 0.67], 0.1)
    """

    confidence: Floats
    accuracy: Floats
    counts: Ints

    @property
    def expected_calibration_error(self) -> float:
        """Mean distance between accuracy and confidence over the predictions."""
        return float(np.average(np.abs(self.accuracy - self.confidence), weights=self.counts))

    @classmethod
    def from_estimator(
        cls,
        estimator: Model,
        X: Any,
        y: Any,
        *,
        n_bins: int = N_BINS,
        strategy: str = "uniform",
        ax: Any = None,
        name: str | None = None,
    ) -> Self:
        """Draw the reliability of a fitted estimator with `predict_proba`.

        Parameters
        ----------
        estimator : fitted classifier
            One with `predict_proba` and `classes_`.
        <X>
        y : array-like of shape (n_samples,), indicator, or list of label sets
            Their labels.
        <probability_bins>
        <named_display>
        """
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(
                f"{type(estimator).__name__} has no predict_proba; calibrate the model, or use from_predictions"
            )
        truth: Any
        if hasattr(estimator, "taxonomy_"):
            truth, y_prob = probable_predictions(cast(TreeLabelModel, estimator), X, y)
        elif getattr(estimator, "kind_", "") == "multilabel":
            known = len(estimator.classes_)  # the model has no probability of other labels
            truth, y_prob = estimator._encoding().indicator_with_unknown(y)[:, :known], estimator.predict_proba(X)
        else:
            truth, y_prob = class_numbers(np.asarray(estimator.classes_), y), estimator.predict_proba(X)
        return cls.from_predictions(truth, y_prob, n_bins=n_bins, strategy=strategy, ax=ax, name=name)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        *,
        n_bins: int = N_BINS,
        strategy: str = "uniform",
        ax: Any = None,
        name: str | None = None,
    ) -> Self:
        """Draw the reliability of probabilities.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,), or indicator of shape (n_samples, n_labels)
            Two classes: 0 or 1. More: the column of the true class in `y_prob`, −1 if it has none. Label lists: an
            indicator.
        y_prob : array-like of shape (n_samples,), or array or sparse matrix of shape (n_samples, n_labels)
            Probabilities of class 1, or of all classes or labels.
        <probability_bins>
        <named_display>
        """
        return cls.of_predictions(y_true, y_prob, n_bins, strategy).plot(ax=ax, name=name)

    @classmethod
    def of_predictions(cls, y_true: Any, y_prob: Any, n_bins: int = N_BINS, strategy: str = "uniform") -> Self:
        """The display of probabilities, not drawn yet."""
        check_choice(strategy, "strategy", ("uniform", "quantile"))
        probability, right = _decisions(y_true, y_prob)
        if len(probability) == 0 or not (np.min(probability) >= 0.0 and np.max(probability) <= 1.0):
            raise ValueError("y_prob must contain at least one value, and all values must be between 0 and 1")
        if strategy == "uniform":
            curve = reliability_curve(right, probability, n_bins=n_bins)
            counts = curve.weight.astype(np.int64)
            return cls(confidence=curve.mean_probability, accuracy=curve.true_share, counts=counts)
        edges = np.unique(np.quantile(probability, np.linspace(0.0, 1.0, n_bins + 1)))
        bins = np.clip(np.searchsorted(edges[1:-1], probability, side="left"), 0, n_bins - 1)
        counts = np.bincount(bins, minlength=n_bins)
        used = counts > 0
        means = [
            np.bincount(bins, weights=values, minlength=n_bins)[used] / counts[used] for values in (probability, right)
        ]
        return cls(confidence=means[0], accuracy=means[1], counts=counts[used])

    def plot(self, ax: Any = None, *, name: str | None = None) -> Self:
        """Draw; the area of a dot is the number of its predictions.

        <named_plot>
        """
        self.figure_, self.ax_ = axes_for(ax)
        self.ax_.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle="--", zorder=0)
        error = f"calibration error {self.expected_calibration_error:.3f}"
        label = error if name is None else f"{name}, {error}"
        (line,) = self.ax_.plot(self.confidence, self.accuracy, color=None if name else BLUE, label=label)
        sizes = SMALLEST_MARKER + LARGEST_MARKER * self.counts / self.counts.max()
        self.ax_.scatter(self.confidence, self.accuracy, s=sizes, color=line.get_color())
        self.ax_.set_xlim(-0.02, 1.02)
        self.ax_.set_ylim(-0.02, 1.02)
        self.ax_.set_xlabel("predicted probability")
        self.ax_.set_ylabel("share of correct predictions")
        self.ax_.legend(frameon=False, loc="upper left")
        return self


def _decisions(y_true: Any, y_prob: Any) -> tuple[Floats, Floats]:
    """Probability of each prediction, and whether it is right."""
    if sp.issparse(y_prob) or (np.ndim(y_prob) == 2 and (sp.issparse(y_true) or np.ndim(y_true) == 2)):
        return _decisions_of_labels(check_indicator(y_true, "y_true"), y_prob)
    prob, true = np.asarray(y_prob, dtype=np.float64), np.asarray(y_true)
    if true.ndim != 1 or len(prob) != len(true):
        raise ValueError(f"y_true must have one label per row of y_prob; got shapes {true.shape} and {prob.shape}")
    if prob.ndim == 1:
        return prob, (true == 1).astype(np.float64)
    best = prob.argmax(axis=1)
    return prob[np.arange(len(prob)), best], (best == true).astype(np.float64)


def _decisions_of_labels(Y: Any, y_prob: Any) -> tuple[Floats, Floats]:
    """All labels of all rows for a dense matrix; the labels with a probability and the true ones for a sparse one."""
    if Y.shape != y_prob.shape:
        raise ValueError(f"y_true and y_prob must have the same shape; got shapes {Y.shape} and {y_prob.shape}")
    if not sp.issparse(y_prob):
        true = np.zeros(Y.shape)
        true[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices] = 1.0
        return np.asarray(y_prob, dtype=np.float64).ravel(), true.ravel()
    stored = sp.coo_array(y_prob)
    n_labels = Y.shape[1]
    keys = np.asarray(stored.coords[0], dtype=np.int64) * n_labels + stored.coords[1]
    true_keys = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * n_labels + Y.indices
    missed = np.setdiff1d(true_keys, keys)
    probability = np.concatenate([np.asarray(stored.data, dtype=np.float64), np.zeros(len(missed))])
    return probability, np.concatenate([np.isin(keys, true_keys), np.ones(len(missed))]).astype(np.float64)
