"""How far probabilities are from the shares of true labels: reliability curves and expected calibration error.

    ECE = Σ_b (W_b / W) |share of true pairs in bin b − mean probability in bin b|

over bins of equal width in the probability, where W_b is the weight in a bin (Naeini, Cooper and Hauskrecht, 2015), and
a pair is a row with a label. With one label per row, the pairs are usually the rows with their top class. With many
labels, nearly all pairs have a probability near 0 and would hide the rest, so the error is computed over the top k
labels of each row. Memory: O(pairs).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import MISSING, Floats, Places, check_ranking, check_weights, hits, number_or_array

__all__ = ["ReliabilityCurve", "calibration_error_at_k", "expected_calibration_error", "reliability_curve"]

N_BINS = 15  # as in Guo, Pleiss, Sun and Weinberger (2017); displays and reports use the same


class ReliabilityCurve(NamedTuple):
    """Bins of probabilities that are not empty, ascending.

    Parameters
    ----------
    mean_probability : ndarray of shape (n_bins,)
        Mean probability in each bin.
    true_share : ndarray of shape (n_bins,)
        Share of the pairs in the bin that are true.
    weight : ndarray of shape (n_bins,)
        Total weight of the pairs in the bin.

    Examples
    --------
    >>> from widemargin.metrics import reliability_curve
    >>> reliability_curve([0, 1], [0.25, 0.75], n_bins=2).true_share
    array([0., 1.])
    """

    mean_probability: Floats
    true_share: Floats
    weight: Floats


@with_shared_passages
def reliability_curve(y_true: Any, y_prob: Any, *, n_bins: int = N_BINS, sample_weight: Any = None) -> ReliabilityCurve:
    """Probabilities and the shares of true labels, in bins of equal width.

    Parameters
    ----------
    y_true : array-like of bool
        Whether each pair is true, 0 or 1, of any shape.
    <y_prob>
    n_bins : int
        Number of bins of equal width from 0 to 1; a probability on a border belongs to the bin above.
    <weights>

    Returns
    -------
    ReliabilityCurve
        The bins that are not empty.

    Examples
    --------
    >>> from widemargin.metrics import reliability_curve
    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.4, 0.6, 0.8], n_bins=2)
    >>> curve.mean_probability, curve.true_share
    (array([0.25, 0.7 ]), array([0., 1.]))
    """
    truth, probability = np.asarray(y_true, dtype=np.float64), np.asarray(y_prob, dtype=np.float64)
    if truth.shape != probability.shape:
        raise ValueError(
            f"y_true and y_prob must have the same shape; got shapes {truth.shape} and {probability.shape}"
        )
    if not np.isin(truth, (0.0, 1.0)).all():
        raise ValueError("y_true must contain only zeros and ones")
    if not ((probability >= 0.0) & (probability <= 1.0)).all():
        raise ValueError("y_prob must contain probabilities between 0 and 1")
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}")
    if sample_weight is not None and np.shape(sample_weight) != truth.shape:
        raise ValueError(f"sample_weight must have shape {truth.shape}; got shape {np.shape(sample_weight)}")
    weights = check_weights(None if sample_weight is None else np.ravel(sample_weight), truth.size)
    truth, probability = truth.ravel(), probability.ravel()
    bins = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
    total, mean, share = (
        np.bincount(bins, weights=values, minlength=n_bins).astype(np.float64, copy=False)
        for values in (weights, weights * probability, weights * truth)
    )
    used = total > 0
    return ReliabilityCurve(mean[used] / total[used], share[used] / total[used], total[used])


@with_shared_passages
def expected_calibration_error(y_true: Any, y_prob: Any, *, n_bins: int = N_BINS, sample_weight: Any = None) -> float:
    """Mean distance between probabilities and shares of true labels, over bins of equal width.

    Parameters
    ----------
    y_true : array-like of bool
        Whether each pair of a row and a label is true, 0 or 1, of any shape: for one label per row, whether the top
        class is right; for several, an indicator, or a part of it.
    <y_prob>
    <bins>
    <weights>

    Returns
    -------
    float
        Between 0 and 1; 0 is best.

    Examples
    --------
    >>> from widemargin.metrics import expected_calibration_error
    >>> round(expected_calibration_error([0, 0, 1, 1], [0.1, 0.4, 0.6, 0.8], n_bins=2), 4)
    0.275
    """
    curve = reliability_curve(y_true, y_prob, n_bins=n_bins, sample_weight=sample_weight)
    distance = np.abs(curve.true_share - curve.mean_probability)
    return float(np.average(distance, weights=curve.weight))


@with_shared_passages
def calibration_error_at_k(
    Y_true: Any, topk: Any, y_prob: Any, k: Places, *, n_bins: int = N_BINS, sample_weight: Any = None
) -> Any:
    """Expected calibration error over the pairs of each row with its top k labels.

    Parameters
    ----------
    Y_true : indicator of shape (n_samples, n_labels), label sets, or labels of shape (n_samples,)
        True labels, as for `precision_at_k`.
    topk : array of int of shape (n_samples, n_places), or the named tuple of `predict_topk`
        Labels in order of score, best first; −1 for a missing place, which does not count.
    y_prob : array-like of shape (n_samples, n_places)
        Probabilities of these labels, see `label_proba`.
    <any_k>
    <bins>
    <sample_weight>

    Returns
    -------
    float, or ndarray of shape (n_k,) for a sequence of k
        Between 0 and 1; 0 is best.

    Examples
    --------
    >>> from widemargin.metrics import calibration_error_at_k
    >>> Y_true = [[1, 0, 0], [0, 1, 1]]
    >>> round(calibration_error_at_k(Y_true, [[0, 1], [1, 2]], [[0.9, 0.2], [0.8, 0.6]], 2, n_bins=1), 4)
    0.125
    """
    Y, indices, places, single = check_ranking(Y_true, topk, k)
    probability = np.asarray(y_prob, dtype=np.float64)
    if probability.shape != indices.shape:
        raise ValueError(
            f"y_prob must have the same shape as the ranked labels, {indices.shape}; got shape {probability.shape}"
        )
    weights = np.where(indices != MISSING, check_weights(sample_weight, len(indices))[:, None], 0.0)
    true = hits(indices, Y)
    errors = [
        expected_calibration_error(true[:, :n], probability[:, :n], n_bins=n_bins, sample_weight=weights[:, :n])
        for n in places.tolist()
    ]
    return number_or_array(np.array(errors), single)
