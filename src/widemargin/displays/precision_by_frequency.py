"""Precision and recall at k by label frequency: does the model know the rare labels?

Labels are put into log₂ bins of their number of training rows. Of the k best labels of all rows and of the true labels,

    precision of a bin = listed labels of the bin that are true / listed labels of the bin
    recall of a bin    = listed labels of the bin that are true / true labels of the bin

Over all bins together, listed true labels over (rows · k) is the usual precision@k. Memory: O(rows · k).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import SERIES, axes_for, least_of_bin
from widemargin.estimators.scoring import Model
from widemargin.metrics.lists import MISSING, check_choice, check_enough_places, check_places, check_ranking, hits
from widemargin.solvers.one_vs_all.problem import frequency_bin

__all__ = ["PrecisionByFrequencyDisplay"]

Floats = npt.NDArray[np.float64]


@with_shared_passages
class PrecisionByFrequencyDisplay:
    """Precision@k or recall@k of labels by their number of training rows.

    Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    frequency_bin : ndarray of int of shape (n_bins,)
        floor(log₂) of the number of training rows; −1 for labels without any. Bins without a true or listed label are
        left out.
    n_labels : ndarray of int of shape (n_bins,)
        Labels of each bin.
    ks : ndarray of int of shape (n_depths,)
        Depths.
    listed, found : ndarray of shape (n_depths, n_bins)
        Labels of each bin among the k best of the rows, and the true ones of them.
    true : ndarray of shape (n_bins,)
        True labels of each bin.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from widemargin.displays import PrecisionByFrequencyDisplay
    >>> Y = np.array([[1, 0, 1], [0, 1, 0]])
    >>> display = PrecisionByFrequencyDisplay.from_predictions(
    ...     Y, np.array([[0, 1], [0, 1]]), [9, 8, 1], ks=[1, 2], ax=Figure().subplots())
    >>> display.frequency_bin.tolist(), display.precision.tolist(), display.recall.tolist()
    ([0, 3], [[nan, 0.5], [nan, 0.5]], [[0.0, 0.5], [0.0, 1.0]])
    """

    def __init__(
        self,
        *,
        frequency_bin: npt.NDArray[np.int64],
        n_labels: npt.NDArray[np.int64],
        ks: npt.NDArray[np.int64],
        listed: Floats,
        found: Floats,
        true: Floats,
    ) -> None:
        self.frequency_bin = frequency_bin
        self.n_labels = n_labels
        self.ks = ks
        self.listed = listed
        self.found = found
        self.true = true

    @property
    def precision(self) -> Floats:
        """Shape (n_depths, n_bins); NaN where no label of the bin is listed."""
        return _share(self.found, self.listed)

    @property
    def recall(self) -> Floats:
        """Shape (n_depths, n_bins); NaN where no label of the bin is true."""
        return _share(self.found, np.broadcast_to(self.true, self.found.shape))

    @classmethod
    def from_estimator(
        cls,
        estimator: Model,
        X: Any,
        y: Any,
        *,
        ks: Sequence[int] = (1, 3, 5),
        measure: str = "precision",
        ax: Any = None,
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
        <ax>

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
        ks: Sequence[int] = (1, 3, 5),
        measure: str = "precision",
        ax: Any = None,
    ) -> Self:
        """Draw ranked predictions.

        Parameters
        ----------
        Y_true : sparse or dense indicator of shape (n_samples, n_labels)
            The true labels.
        topk : named tuple (labels, scores, indices) or int array of shape (n_samples, n_places)
            What `predict_topk` returned, or its `indices`.
        label_counts : array-like of shape (n_labels,)
            Training rows of each label; labels at the end of `Y_true` without one have none.
        ks : sequence of int, default=(1, 3, 5)
            Depths.
        <measure>
        <ax>

        <display>
        """
        return cls.of_predictions(Y_true, topk, label_counts, ks=ks).plot(ax=ax, measure=measure)

    @classmethod
    def of_predictions(cls, Y_true: Any, topk: Any, label_counts: Any, *, ks: Sequence[int] = (1, 3, 5)) -> Self:
        """The display of ranked predictions, not drawn yet."""
        Y, indices = check_ranking(Y_true, topk)
        places, _ = check_places(ks)
        check_enough_places(places, indices.shape[1])
        counts = np.zeros(Y.shape[1], dtype=np.int64)
        counts[: len(label_counts)] = label_counts
        bins, which = np.unique(frequency_bin(counts), return_inverse=True)
        true = hits(indices, Y)
        listed, found = np.zeros((2, len(places), len(bins)))
        for row, k in enumerate(places.tolist()):
            there = indices[:, :k] != MISSING
            part = which[indices[:, :k][there]]
            listed[row] = np.bincount(part, minlength=len(bins))
            found[row] = np.bincount(part, weights=true[:, :k][there], minlength=len(bins))
        occurs = np.bincount(which[Y.indices], minlength=len(bins)).astype(np.float64)
        used = (occurs > 0) | listed.any(axis=0)
        return cls(
            frequency_bin=bins[used],
            n_labels=np.bincount(which, minlength=len(bins))[used],
            ks=places,
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
        places = np.arange(len(self.frequency_bin))
        for number, (k, values) in enumerate(zip(self.ks, getattr(self, measure), strict=True)):
            colour = SERIES[number % len(SERIES)]
            self.ax_.plot(places, values, color=colour, marker="os^D"[number % 4], markersize=4, label=f"k = {k}")
        names = [least_of_bin(b) for b in self.frequency_bin.tolist()]
        texts = [f"{name}\n({n:,})" for name, n in zip(names, self.n_labels.tolist(), strict=True)]
        self.ax_.set_xticks(places, texts, fontsize="small")
        self.ax_.set_ylim(-0.02, 1.02)
        self.ax_.set_xlabel("training rows of a label, at least (labels of the bin)")
        self.ax_.set_ylabel(f"{measure} at k")
        self.ax_.legend(frameon=False)
        return self


def _share(part: Floats, whole: Floats) -> Floats:
    """Elementwise quotient, NaN where there is nothing."""
    shares: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return shares
