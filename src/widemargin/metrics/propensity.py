"""Propensities of labels, and the precision of the top k labels when rare labels are worth more.

Rare labels are more often missing from the true sets than frequent ones. With p_l the chance (propensity) that a label
which applies was also recorded, and r_ij the j-th label in the list of row i,

    PSP@k  = Σ_i w_i · (1/k) Σ_{j≤k} Y[i, r_ij] / p_{r_ij}  / Σ_i w_i

is an unbiased estimate of P@k on complete label sets. It can exceed 1, so the Extreme Classification Repository reports
it divided by the same sum for the best attainable lists, which take each row's true labels in order of 1/p_l: a ratio
of two sums over all rows, not a mean of ratios. Both need O(n·K + nnz(Y)) memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import Floats, Ints, Places, number_or_array
from widemargin.metrics.ranking import prepare_ranking

__all__ = [
    "FEWEST_SAMPLES",
    "JAIN_A",
    "JAIN_B",
    "gains_of_rows",
    "jain_propensities",
    "propensity_scored_precision_at_k",
]

JAIN_A, JAIN_B = 0.55, 1.5  # what Jain et al. use for sets that are neither from Wikipedia nor from Amazon
FEWEST_SAMPLES = 3  # with fewer rows log N − 1 is negative and the "probabilities" exceed 1


def jain_propensities(label_counts: Any, n_samples: int, A: float = JAIN_A, B: float = JAIN_B) -> Floats:
    """Propensity of each label from its count in the training set, by the sigmoid model of Jain et al.

    p_l = 1 / (1 + C · (N_l + B)^(−A)) with C = (log N − 1) · (B + 1)^A.

    Parameters
    ----------
    label_counts : array of shape (n_labels,)
        N_l, the number of training rows with each label: ``Y_train.sum(axis=0)``. Labels without rows (0) get the
        smallest propensity.
    n_samples : int
        N, the number of training rows; at least 3.
    A, B : float
        Shape of the model: 0.55 and 1.5 by default, 0.5 and 0.4 for Wikipedia sets, 0.6 and 2.6 for Amazon sets.

    Returns
    -------
    ndarray of shape (n_labels,)
        Propensities in (0, 1).

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking
       and other missing label applications", KDD 2016.

    Examples
    --------
    >>> from widemargin.metrics import jain_propensities
    >>> jain_propensities([0, 1, 100, 1000], n_samples=1000).round(4)
    array([0.1133, 0.1448, 0.5648, 0.8205])
    """
    counts = np.asarray(label_counts, dtype=np.float64)
    if counts.ndim != 1:
        raise ValueError(f"label_counts must have shape (n_labels,); got shape {counts.shape}")
    if n_samples < FEWEST_SAMPLES:
        raise ValueError(
            f"n_samples must be at least {FEWEST_SAMPLES}, so that its logarithm exceeds 1; got {n_samples}"
        )
    if A < 0 or B <= 0:
        raise ValueError(f"A must be nonnegative and B positive; got A={A}, B={B}")
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts > n_samples).any():
        raise ValueError(
            f"label_counts must be between 0 and n_samples={n_samples}; got values from {counts.min()} to "
            f"{counts.max()}"
        )
    C = (np.log(n_samples) - 1.0) * (B + 1.0) ** A
    propensities: Floats = 1.0 / (1.0 + C * (counts + B) ** -A)
    return propensities


@with_shared_passages
def propensity_scored_precision_at_k(
    Y_true: Any,
    topk: Any,
    k: Places = 5,
    *,
    propensities: Any,
    normalize: bool = True,
    sample_weight: Any = None,
) -> Any:
    """Precision at k in which each true label is worth 1 / propensity: PSP@k.

    PSP@k = Σ_i w_i (1/k) Σ_{j≤k} Y[i, r_ij] / p_{r_ij}, divided by the same sum for the best attainable lists
    (each row's true labels, rarest first), or by Σ_i w_i with ``normalize=False``.

    Parameters
    ----------
    Y_true : indicator of shape (n_samples, n_labels), label sets, or labels of shape (n_samples,)
        True labels, as for `precision_at_k`. Rows without labels add nothing to either sum.
    topk : named tuple (labels, scores, indices) or int array of shape (n_samples, n_places)
        The result of `predict_topk`, or its `indices`: best first. −1 marks a missing place, which counts as a miss.
    k : int or sequence of int
        Number of places that count; at most n_places.
    propensities : array of shape (n_labels,)
        p_l in (0, 1], from the *training* set: see `jain_propensities`.
    normalize : bool
        Divide by the best attainable value, as the Extreme Classification Repository does.
    <sample_weight>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        At most 1 if normalised; 0 if there is no true label at all.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking
       and other missing label applications", KDD 2016.

    <small_ranking>

    Label 0 is frequent and label 2 rare; finding only label 0 earns 1/0.8 of the attainable 1/0.2 + 1/0.5.

    >>> from widemargin.metrics import propensity_scored_precision_at_k
    >>> p = np.array([0.8, 0.5, 0.2, 0.4])
    >>> round(propensity_scored_precision_at_k(Y, indices, k=1, propensities=p), 6)
    0.178571
    """
    Y, listed, found, places, single, weights = prepare_ranking(Y_true, topk, k, "zero", sample_weight)
    gain, attainable = gains_of_rows(Y, listed, found, _check_propensities(propensities, Y.shape[1]))
    gained = weights @ gain
    if normalize:
        best = weights @ attainable
        values = np.divide(gained, best, out=np.zeros(len(best)), where=best > 0)[places - 1]
    else:
        values = gained[places - 1] / (places * weights.sum())
    return number_or_array(values, single)


def gains_of_rows(Y: Any, listed: Ints, found: Any, propensities: Floats) -> tuple[Floats, Floats]:
    """Sums of 1 / p over the hits in the first 1, 2, … places of each row, and the largest attainable sums.

    Parameters
    ----------
    Y : csr_array of shape (n_samples, n_labels)
        Canonical indicator of the true labels.
    listed : ndarray of int of shape (n_samples, n_places)
        Ranked labels, −1 for a missing place.
    found : ndarray of bool of shape (n_samples, n_places)
        Which of them are true: `widemargin.metrics.lists.hits`.
    propensities : ndarray of shape (n_labels,)
        p of each label.

    Returns
    -------
    tuple of two ndarrays of shape (n_samples, n_places)
    """
    worth = 1.0 / propensities
    # A missing place (−1) reads the 0 at the end.
    gain = np.cumsum(found * np.append(worth, 0.0)[listed], axis=1)
    return gain, np.cumsum(_largest_worths(Y, worth, listed.shape[1]), axis=1)


def _check_propensities(propensities: Any, n_labels: int) -> Floats:
    """Propensities of shape (n_labels,) in (0, 1]."""
    values = np.asarray(propensities, dtype=np.float64)
    if values.shape != (n_labels,):
        raise ValueError(
            f"propensities must have shape ({n_labels},): one per label of the model, then one per label of Y_true "
            f"that is unknown to the model; got shape {values.shape}"
        )
    if not ((values > 0) & (values <= 1)).all():
        raise ValueError("propensities must be probabilities in (0, 1]; check that they are not inverse propensities")
    return values


def _largest_worths(Y: Any, worth: Floats, n_places: int) -> Floats:
    """out[i, j] = j-th largest worth among the true labels of row i, 0 past the last; shape (n, n_places)."""
    n_true = np.diff(Y.indptr)
    rows = np.repeat(np.arange(Y.shape[0]), n_true)
    values = worth[Y.indices]
    order = np.lexsort((-values, rows))
    rank: Ints = np.arange(len(order)) - np.repeat(Y.indptr[:-1], n_true)
    kept = rank < n_places
    out = np.zeros((Y.shape[0], n_places))
    out[rows[kept], rank[kept]] = values[order][kept]
    return out
