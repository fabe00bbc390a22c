"""Precision of the k best labels when frequent labels are worth less: propensity-scored precision.

Rare labels are more often missing from the true sets than frequent ones. With p_l the chance (propensity) that
a label which applies was also written down, and r_ij the j-th best label of row i,

    PSP@k   = Σ_i w_i · (1/k) Σ_{j≤k} Y[i, r_ij] / p_{r_ij}  / Σ_i w_i

is an unbiased estimate of P@k on complete label sets. It can exceed 1, so the Extreme Classification Repository reports
it divided by the same sum for the best attainable lists, which take each row's true labels in order of 1/p_l:
a ratio of two sums over all rows, not a mean of ratios. Both need O(n·K + nnz(Y)) memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import (
    Floats,
    Ints,
    Places,
    check_enough_places,
    check_places,
    check_ranking,
    check_weights,
    hits,
    number_or_array,
)

__all__ = ["jain_propensities", "propensity_scored_precision_at_k"]

# With fewer rows log N − 1 is negative and the "probabilities" exceed 1.
FEWEST_SAMPLES = 3


def jain_propensities(label_counts: Any, n_samples: int, A: float = 0.55, B: float = 1.5) -> Floats:
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
        Shape of the model: 0.55 and 1.5 by default, 0.5 and 0.4 for the Wikipedia sets, 0.6 and 2.6 for Amazon's.

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
        raise ValueError(f"label_counts must have shape (n_labels,); got {counts.shape}")
    if n_samples < FEWEST_SAMPLES:
        raise ValueError(f"propensities need n_samples of at least {FEWEST_SAMPLES} (log N > 1); got {n_samples}")
    if A < 0 or B <= 0:
        raise ValueError(f"A must not be negative and B must be positive; got A={A}, B={B}")
    if not np.isfinite(counts).all() or (counts < 0).any() or (counts > n_samples).any():
        raise ValueError(
            f"label_counts must lie between 0 and n_samples={n_samples}; they span {counts.min()} to {counts.max()}"
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
    """Precision at k with each true label worth 1 / propensity: PSP@k.

    PSP@k = Σ_i w_i (1/k) Σ_{j≤k} Y[i, r_ij] / p_{r_ij}, divided by the same sum for the best attainable lists
    (each row's true labels, rarest first), or by Σ_i w_i with ``normalize=False``.

    Parameters
    ----------
    Y_true : indicator of shape (n_samples, n_labels), label sets, or labels of shape (n_samples,)
        The true labels, as for `precision_at_k`. Rows without labels add nothing to either sum.
    <topk>
    <k>
    propensities : array of shape (n_labels,)
        p_l in (0, 1], from the *training* set: see `jain_propensities`.
    normalize : bool
        Divide by the best attainable value, as the Extreme Classification Repository does.
    <sample_weight>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        At most 1 when normalised; 0 when there is no true label at all.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu and M. Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking
       and other missing label applications", KDD 2016.

    Examples
    --------
    Label 0 is frequent and label 2 rare; finding only label 0 earns 1/0.8 of the attainable 1/0.2 + 1/0.5.

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.metrics import propensity_scored_precision_at_k
    >>> Y = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]]))
    >>> p = np.array([0.8, 0.5, 0.2, 0.4])
    >>> indices = np.array([[0, 1, 2], [3, 1, -1]])
    >>> round(propensity_scored_precision_at_k(Y, indices, k=1, propensities=p), 6)
    0.178571
    """
    Y, indices = check_ranking(Y_true, topk)
    places, single = check_places(k)
    check_enough_places(places, indices.shape[1])
    weights = check_weights(sample_weight, Y.shape[0])
    worth = 1.0 / _check_propensities(propensities, Y.shape[1])
    longest = int(places.max())
    listed = indices[:, :longest]
    # A missing place (−1) reads the 0 at the end.
    gained = weights @ np.cumsum(hits(listed, Y) * np.append(worth, 0.0)[listed], axis=1)
    if normalize:
        best = weights @ np.cumsum(_largest_worths(Y, worth, longest), axis=1)
        values = np.divide(gained, best, out=np.zeros(longest), where=best > 0)[places - 1]
    else:
        values = gained[places - 1] / (places * weights.sum())
    return number_or_array(values, single)


def _check_propensities(propensities: Any, n_labels: int) -> Floats:
    """Propensities of shape (n_labels,) in (0, 1]."""
    values = np.asarray(propensities, dtype=np.float64)
    if values.shape != (n_labels,):
        raise ValueError(
            f"propensities must have shape ({n_labels},), one per label of the model and then one for each label "
            f"of Y_true that it does not know; got {values.shape}"
        )
    if not ((values > 0) & (values <= 1)).all():
        raise ValueError("propensities must be probabilities in (0, 1]; were inverse propensities passed?")
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
