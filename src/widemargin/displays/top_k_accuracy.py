"""The curve of top-k accuracy: the share of rows whose label is among the k best; ties count as expected."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from widemargin import metrics
from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import axes_for, draw_curve
from widemargin.estimators.scoring import Model, class_numbers, top_k_accuracies

__all__ = ["TopKAccuracyDisplay"]

N_DEPTHS = 10


@with_shared_passages
class TopKAccuracyDisplay:
    """Top-k accuracy over k, for one label a row.

    Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    k : ndarray of int of shape (n_depths,)
        Depths.
    accuracy : ndarray of shape (n_depths,)
        Share of the rows whose label is among the k best.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from widemargin.displays import TopKAccuracyDisplay
    >>> labels = np.array([["cat", "dog", "cow"], ["dog", "cow", "cat"]])
    >>> scores, indices = np.array([[3.0, 2.0, 1.0]] * 2), np.array([[0, 1, 2], [1, 2, 0]])
    >>> display = TopKAccuracyDisplay.from_predictions(
    ...     ["cat", "cow"], (labels, scores, indices), n_labels=3, ax=Figure().subplots())
    >>> display.accuracy.tolist()
    [0.5, 1.0, 1.0]
    """

    def __init__(self, *, k: npt.NDArray[np.int64], accuracy: npt.NDArray[np.float64]) -> None:
        self.k = k
        self.accuracy = accuracy

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
            Their labels; one that the model does not know is a miss.
        max_k : int, default=10
            Largest depth; at most the number of classes.
        <ax>
        <name>

        <display>
        """
        if getattr(estimator, "kind_", "multiclass") == "multilabel":
            raise ValueError(
                "top-k accuracy is for one label a row; for lists of labels see PrecisionByFrequencyDisplay"
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
            What `predict_topk` returned.
        max_k : int, default=10
            Largest depth; at most n_places. Lists that do not know what is tied past their ends, as those of
            `predict_topk` do, and are not of all labels, have to be one place longer.
        label_scores : array-like of shape (n_samples,), optional
            Scores of the true labels, see `widemargin.metrics.top_k_accuracy`.
        n_labels : int, optional
            How many labels there are.
        <ax>
        <name>

        <display>
        """
        places = np.shape(topk[2])[1]
        knows_ties = getattr(topk, "tied", None) is not None
        most = places if knows_ties or (n_labels is not None and places >= n_labels) else max(1, places - 1)
        depths = np.arange(1, min(max_k, most, n_labels or most) + 1)
        accuracy = metrics.top_k_accuracy(y_true, topk, depths, label_scores=label_scores, n_labels=n_labels)
        return cls(k=depths, accuracy=np.asarray(accuracy)).plot(ax=ax, name=name)

    def plot(self, ax: Any = None, *, name: str | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        <ax>
        <name>

        <itself>
        """
        self.figure_, self.ax_ = axes_for(ax)
        draw_curve(self.ax_, self.k, self.accuracy, name, marker="o", markersize=4)
        self.ax_.set_xticks(self.k)
        self.ax_.set_ylim(top=1.0)
        self.ax_.set_xlabel("k")
        self.ax_.set_ylabel("top-k accuracy")
        return self
