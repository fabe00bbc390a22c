"""Quality of the top k labels against sparse true labels: precision, recall, nDCG and propensity-scored precision.

With r_i1, r_i2, … the labels of row i in order of score, Y the indicator of its n_i true labels, and w_i the weights:

    P@k    = Σ_i w_i · (1/k) Σ_{j≤k} Y[i, r_ij]                                           / Σ_i w_i
    R@k    = Σ_i w_i · (1/n_i) Σ_{j≤k} Y[i, r_ij]                                       / Σ_i w_i
    nDCG@k = Σ_i w_i · Σ_{j≤k} Y[i, r_ij] / log2(j+1)  /  Σ_{j≤min(k,n_i)} 1 / log2(j+1)  / Σ_i w_i
    PSP@k  = Σ_i w_i · (1/k) Σ_{j≤k} Y[i, r_ij] / p_{r_ij}                                / Σ_i w_i

A missing place (index −1) is a miss. A row without labels counts as 0 and stays in the mean, as in the scripts of the
Extreme Classification Repository (and scikit-learn's `ndcg_score`); `empty="skip"` leaves it out.

Rare labels are more often missing from the true sets than frequent ones. With p_l the chance (propensity) that a label
which applies was also recorded, PSP@k is an unbiased estimate of P@k on complete label sets. It can exceed 1, so the
Extreme Classification Repository reports it divided by the same sum for the best attainable lists, which take each
row's true labels in order of 1/p_l: a ratio of two sums over all rows, not a mean of ratios.

Cost: one binary search per listed place, O(n·K·log nnz(Y)) time and O(n·K + nnz(Y)) memory.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import (
    Bools,
    Floats,
    Ints,
    Places,
    check_choice,
    check_ranking,
    check_weights,
    hits,
    mean_over_rows,
    number_or_array,
)

__all__ = ["jain_propensities", "ndcg_at_k", "precision_at_k", "propensity_scored_precision_at_k", "recall_at_k"]

Empty: TypeAlias = Literal["zero", "skip"]

FEWEST_SAMPLES = 3  # with fewer rows log N − 1 is negative and the "probabilities" exceed 1


class _Ranking(NamedTuple):
    """Checked input: the indicator, listed labels and hits of shape (n, max k), k as an array, weights of the rows."""

    Y: Any
    listed: Ints
    found: Bools
    places: Ints
    single: bool
    weights: Floats

    @property
    def n_true(self) -> Ints:
        """Number of true labels, shape (n, 1); 1 for a row without labels, whose 0/0 becomes 0/1."""
        counts: Ints = np.maximum(np.diff(self.Y.indptr), 1)[:, None]
        return counts

    def mean(self, values: Floats) -> Any:
        """Weighted mean over the rows of values of shape (n, len(k)), as a float if k was a single number."""
        return number_or_array(mean_over_rows(values, self.weights), self.single)


@with_shared_passages
def precision_at_k(Y_true: Any, topk: Any, k: Places = 5, *, empty: Empty = "zero", sample_weight: Any = None) -> Any:
    """Share of true labels among the top k, P@k = mean_i (1/k) Σ_{j≤k} Y[i, r_ij].

    The best attainable value is below 1 if rows have fewer than k labels.

    <ranked_truth>
    empty : {"zero", "skip"}
        Rows without true labels count as 0 (as in the Extreme Classification Repository), or are left out.
    <mean_at_k>

    <repository>

    <small_ranking>
    >>> from widemargin.metrics import precision_at_k
    >>> precision_at_k(Y, indices, k=1)
    0.5
    >>> precision_at_k(Y, indices, k=[1, 2])
    array([0.5, 0.5])
    """
    ranking = _prepare(Y_true, topk, k, empty, sample_weight)
    return ranking.mean(np.cumsum(ranking.found, axis=1)[:, ranking.places - 1] / ranking.places)


@with_shared_passages
def recall_at_k(Y_true: Any, topk: Any, k: Places = 5, *, empty: Empty = "zero", sample_weight: Any = None) -> Any:
    """Share of the true labels that are among the top k, R@k = mean_i (1/n_i) Σ_{j≤k} Y[i, r_ij].

    <ranked_truth>
    empty : {"zero", "skip"}
        Rows without true labels count as 0 (as in pyxclib), or are left out.
    <mean_at_k>

    <repository>

    <small_ranking>
    >>> from widemargin.metrics import recall_at_k
    >>> recall_at_k(Y, indices, k=[1, 2, 3])
    array([0.25, 0.75, 1.  ])
    """
    ranking = _prepare(Y_true, topk, k, empty, sample_weight)
    return ranking.mean(np.cumsum(ranking.found, axis=1)[:, ranking.places - 1] / ranking.n_true)


@with_shared_passages
def ndcg_at_k(Y_true: Any, topk: Any, k: Places = 5, *, empty: Empty = "zero", sample_weight: Any = None) -> Any:
    """Discounted gain of the top k labels over the best attainable one.

    nDCG@k = mean_i DCG_i / IDCG_i with
    DCG_i = Σ_{j≤k} Y[i, r_ij] / log2(j+1) and IDCG_i = Σ_{j≤min(k,n_i)} 1 / log2(j+1).

    <ranked_truth>
    empty : {"zero", "skip"}
        Rows without true labels count as 0 (as in scikit-learn's `ndcg_score`), or are left out.
    <mean_at_k>

    Notes
    -----
    The order of the list counts as it is; scikit-learn's `ndcg_score` averages over the orders of tied scores.

    References
    ----------
    .. [1] K. Järvelin and J. Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002.

    <small_ranking>
    >>> from widemargin.metrics import ndcg_at_k
    >>> ndcg_at_k(Y, indices, k=[1, 3]).round(4)
    array([0.5   , 0.7753])
    """
    ranking = _prepare(Y_true, topk, k, empty, sample_weight)
    discount = 1.0 / np.log2(np.arange(2, ranking.found.shape[1] + 2))
    gained = np.cumsum(ranking.found * discount, axis=1)[:, ranking.places - 1]
    attainable = np.minimum(ranking.n_true, ranking.places)
    return ranking.mean(gained / np.cumsum(discount)[attainable - 1])


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
        raise ValueError(f"label_counts must have shape (n_labels,); got {counts.shape}")
    if n_samples < FEWEST_SAMPLES:
        raise ValueError(f"n_samples must be at least {FEWEST_SAMPLES}, where log N > 1; got {n_samples}")
    if A < 0 or B <= 0:
        raise ValueError(f"A must be at least 0 and B positive; got A={A}, B={B}")
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
    Y, listed, found, places, single, weights = _prepare(Y_true, topk, k, "zero", sample_weight)
    worth = 1.0 / _check_propensities(propensities, Y.shape[1])
    # A missing place (−1) reads the 0 at the end.
    gained = weights @ np.cumsum(found * np.append(worth, 0.0)[listed], axis=1)
    if normalize:
        best = weights @ np.cumsum(_largest_worths(Y, worth, listed.shape[1]), axis=1)
        values = np.divide(gained, best, out=np.zeros(len(best)), where=best > 0)[places - 1]
    else:
        values = gained[places - 1] / (places * weights.sum())
    return number_or_array(values, single)


def _prepare(Y_true: Any, topk: Any, k: Places, empty: Empty, sample_weight: Any) -> _Ranking:
    """Check the input, and look up every listed label among the true ones."""
    Y, indices, places, single = check_ranking(Y_true, topk, k)
    check_choice(empty, "empty", ("zero", "skip"))
    weights = check_weights(sample_weight, Y.shape[0])
    if empty == "skip":
        weights = np.where(np.diff(Y.indptr) > 0, weights, 0.0)
        if not weights.any():
            raise ValueError('no row of positive weight has a label, so empty="skip" leaves nothing; use empty="zero"')
    listed = indices[:, : places.max()]
    return _Ranking(Y, listed, hits(listed, Y), places, single, weights)


def _check_propensities(propensities: Any, n_labels: int) -> Floats:
    """Propensities of shape (n_labels,) in (0, 1]."""
    values = np.asarray(propensities, dtype=np.float64)
    if values.shape != (n_labels,):
        raise ValueError(
            f"propensities must have shape ({n_labels},): one per label of the model, then one per label of Y_true "
            f"that it does not know; got {values.shape}"
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
