"""Reliability of probabilities: of the predictions with a probability of about p, a share of about p should be right.

Predictions are put into bins of their probability. With n_b of the n predictions in bin b, conf_b the mean of their
probabilities and acc_b the share that is right, the expected calibration error is

    ECE = Σ_b (n_b / n) |acc_b − conf_b|

One label a row: the prediction is the class with the largest probability; on a tree, where a label above others is the
more probable, the one that is predicted, as far down as the true label goes. Lists of labels: every label of every row
is one; labels without a stored probability in a sparse matrix have none, and count only where they are true.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import BLUE, GREY, axes_for
from widemargin.estimators.scoring import Model, class_numbers
from widemargin.estimators.tree.model import probable_predictions
from widemargin.metrics.calibration import N_BINS, reliability_curve
from widemargin.metrics.lists import check_choice, check_indicator

__all__ = ["ReliabilityDisplay"]

Floats = npt.NDArray[np.float64]

LARGEST_MARKER = 120.0
SMALLEST_MARKER = 8.0


@with_shared_passages
class ReliabilityDisplay:
    """Share of right predictions over their probability.

    Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    confidence : ndarray of shape (n_bins,)
        Mean probability of the predictions of each bin that has any.
    accuracy : ndarray of shape (n_bins,)
        Share of them that is right.
    counts : ndarray of int of shape (n_bins,)
        Their number.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from widemargin.displays import ReliabilityDisplay
    >>> display = ReliabilityDisplay.from_predictions(
    ...     [1, 1, 0, 0], [0.9, 0.7, 0.7, 0.1], n_bins=2, ax=Figure().subplots())
    >>> display.counts.tolist(), display.accuracy.round(2).tolist(), round(display.expected_calibration_error, 3)
    ([1, 3], [0.0, 0.67], 0.1)
    """

    def __init__(self, *, confidence: Floats, accuracy: Floats, counts: npt.NDArray[np.int64]) -> None:
        self.confidence = confidence
        self.accuracy = accuracy
        self.counts = counts

    @property
    def expected_calibration_error(self) -> float:
        """Mean distance of accuracy and confidence over the predictions, as the module says."""
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
        <n_bins>
        <strategy>
        <ax>
        <name>

        <display>
        """
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(f"{type(estimator).__name__} has no predict_proba; calibrate it, or use from_predictions")
        truth: Any
        if hasattr(estimator, "taxonomy_"):
            truth, y_prob = probable_predictions(estimator, X, y)
        elif getattr(estimator, "kind_", "") == "multilabel":
            known = len(estimator.classes_)  # of other labels the model says nothing
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
            Two classes: 0 or 1. More: the column of the true class in `y_prob`, −1 if it has none. Lists of labels: an
            indicator.
        y_prob : array-like of shape (n_samples,), or array or sparse matrix of shape (n_samples, n_labels)
            Probabilities of class 1, or of all classes or labels.
        <n_bins>
        <strategy>
        <ax>
        <name>

        <display>
        """
        return cls.of_predictions(y_true, y_prob, n_bins, strategy).plot(ax=ax, name=name)

    @classmethod
    def of_predictions(cls, y_true: Any, y_prob: Any, n_bins: int = N_BINS, strategy: str = "uniform") -> Self:
        """The display of probabilities, not drawn yet."""
        check_choice(strategy, "strategy", ("uniform", "quantile"))
        probability, right = _decisions(y_true, y_prob)
        if len(probability) == 0 or not (np.min(probability) >= 0.0 and np.max(probability) <= 1.0):
            raise ValueError("y_prob must hold at least one probability, and all of them between 0 and 1")
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
        """Draw: the area of a dot is the number of its predictions.

        Parameters
        ----------
        <ax>
        <name>

        <itself>
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
        self.ax_.set_ylabel("share that is right")
        self.ax_.legend(frameon=False, loc="upper left")
        return self


def _decisions(y_true: Any, y_prob: Any) -> tuple[Floats, Floats]:
    """Probability of each prediction, and whether it is right."""
    if sp.issparse(y_prob) or (np.ndim(y_prob) == 2 and (sp.issparse(y_true) or np.ndim(y_true) == 2)):
        return _decisions_of_labels(check_indicator(y_true, "y_true"), y_prob)
    prob, true = np.asarray(y_prob, dtype=np.float64), np.asarray(y_true)
    if true.ndim != 1 or len(prob) != len(true):
        raise ValueError(f"y_true of shape {true.shape} does not fit y_prob of shape {prob.shape}")
    if prob.ndim == 1:
        return prob, (true == 1).astype(np.float64)
    best = prob.argmax(axis=1)
    return prob[np.arange(len(prob)), best], (best == true).astype(np.float64)


def _decisions_of_labels(Y: Any, y_prob: Any) -> tuple[Floats, Floats]:
    """All labels of all rows of a dense matrix; of a sparse one those with a probability, and the true ones."""
    if Y.shape != y_prob.shape:
        raise ValueError(f"y_true of shape {Y.shape} does not fit y_prob of shape {y_prob.shape}")
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
