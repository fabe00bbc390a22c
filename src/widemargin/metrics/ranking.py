"""Precision, recall and nDCG of the k best labels against a sparse set of true labels.

With r_i1, r_i2, … the labels of row i in order of score, Y the indicator of its n_i true labels, and w_i the weights:

    P@k    = Σ_i w_i · (1/k) Σ_{j≤k} Y[i, r_ij]                                           / Σ_i w_i
    R@k    = Σ_i w_i · (1/n_i) Σ_{j≤k} Y[i, r_ij]                                       / Σ_i w_i
    nDCG@k = Σ_i w_i · Σ_{j≤k} Y[i, r_ij] / log2(j+1)  /  Σ_{j≤min(k,n_i)} 1 / log2(j+1)  / Σ_i w_i

A missing place (index −1) is a miss. A row without labels counts as 0 in all three and stays in the mean, as in
the scripts of the Extreme Classification Repository (and scikit-learn's `ndcg_score`); `empty="skip"` leaves it out.
Cost: a binary search a listed place, O(n·K·log nnz(Y)) time and O(n·K + nnz(Y)) memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import (
    Bools,
    Empty,
    Floats,
    Ints,
    Places,
    check_enough_places,
    check_places,
    check_ranking,
    hits,
    mean_over_rows,
    number_or_array,
    weights_of_rows,
)

__all__ = ["ndcg_at_k", "precision_at_k", "recall_at_k"]


class _Ranking(NamedTuple):
    """Checked input: hits of shape (n, max k), true labels a row (at least 1), k as an array, weights of the rows."""

    found: Bools
    n_true: Ints
    places: Ints
    single: bool
    weights: Floats


@with_shared_passages
def precision_at_k(Y_true: Any, topk: Any, k: Places = 5, *, empty: Empty = "zero", sample_weight: Any = None) -> Any:
    """Share of true labels among the k best, P@k = mean_i (1/k) Σ_{j≤k} Y[i, r_ij].

    Parameters
    ----------
    <Y_true>
    <topk>
    <k>
    empty : {"zero", "skip"}
        Rows without true labels count as 0 (the Extreme Classification Repository's way), or are left out.
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1. The best attainable is below 1 when rows have fewer than k labels.

    References
    ----------
    .. [1] K. Bhatia et al., "The extreme classification repository: multi-label datasets and code", 2016.
       http://manikvarma.org/downloads/XC/XMLRepository.html

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.metrics import precision_at_k
    >>> Y = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]]))
    >>> indices = np.array([[0, 1, 2], [3, 1, -1]])
    >>> precision_at_k(Y, indices, k=1)
    0.5
    >>> precision_at_k(Y, indices, k=[1, 2])
    array([0.5, 0.5])
    """
    ranking = _prepare(Y_true, topk, k, empty, sample_weight)
    return _mean(np.cumsum(ranking.found, axis=1)[:, ranking.places - 1] / ranking.places, ranking)


@with_shared_passages
def recall_at_k(Y_true: Any, topk: Any, k: Places = 5, *, empty: Empty = "zero", sample_weight: Any = None) -> Any:
    """Share of the true labels that are among the k best, R@k = mean_i (1/n_i) Σ_{j≤k} Y[i, r_ij].

    Parameters
    ----------
    <Y_true>
    <topk>
    <k>
    empty : {"zero", "skip"}
        Rows without true labels count as 0 (pyxclib's way), or are left out.
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.

    References
    ----------
    .. [1] K. Bhatia et al., "The extreme classification repository: multi-label datasets and code", 2016.
       http://manikvarma.org/downloads/XC/XMLRepository.html

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.metrics import recall_at_k
    >>> Y = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]]))
    >>> recall_at_k(Y, np.array([[0, 1, 2], [3, 1, -1]]), k=[1, 2, 3])
    array([0.25, 0.75, 1.  ])
    """
    ranking = _prepare(Y_true, topk, k, empty, sample_weight)
    return _mean(np.cumsum(ranking.found, axis=1)[:, ranking.places - 1] / ranking.n_true[:, None], ranking)


@with_shared_passages
def ndcg_at_k(Y_true: Any, topk: Any, k: Places = 5, *, empty: Empty = "zero", sample_weight: Any = None) -> Any:
    """Discounted gain of the k best labels over the best attainable one.

    nDCG@k = mean_i DCG_i / IDCG_i with
    DCG_i = Σ_{j≤k} Y[i, r_ij] / log2(j+1) and IDCG_i = Σ_{j≤min(k,n_i)} 1 / log2(j+1).

    Parameters
    ----------
    <Y_true>
    <topk>
    <k>
    empty : {"zero", "skip"}
        Rows without true labels count as 0 (as in scikit-learn's `ndcg_score`), or are left out.
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.

    Notes
    -----
    The order of the list is taken as it is; scikit-learn's `ndcg_score` averages over the orders of tied scores.

    References
    ----------
    .. [1] K. Järvelin and J. Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.metrics import ndcg_at_k
    >>> Y = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]]))
    >>> ndcg_at_k(Y, np.array([[0, 1, 2], [3, 1, -1]]), k=[1, 3]).round(4)
    array([0.5   , 0.7753])
    """
    ranking = _prepare(Y_true, topk, k, empty, sample_weight)
    discount = 1.0 / np.log2(np.arange(2, ranking.found.shape[1] + 2))
    gained = np.cumsum(ranking.found * discount, axis=1)[:, ranking.places - 1]
    attainable = np.minimum(ranking.n_true[:, None], ranking.places)
    return _mean(gained / np.cumsum(discount)[attainable - 1], ranking)


def _prepare(Y_true: Any, topk: Any, k: Places, empty: Empty, sample_weight: Any) -> _Ranking:
    """Check everything, and look every listed label up among the true ones."""
    Y, indices = check_ranking(Y_true, topk)
    places, single = check_places(k)
    check_enough_places(places, indices.shape[1])
    weights = weights_of_rows(Y, sample_weight, empty)
    # A row without labels has no hits, so that 0/1 stands for its 0/0.
    n_true = np.maximum(np.diff(Y.indptr), 1)
    return _Ranking(hits(indices[:, : places.max()], Y), n_true, places, single, weights)


def _mean(values: Floats, ranking: _Ranking) -> Any:
    """Weighted mean over the rows of values of shape (n, len(k)), as a float when k was a single number."""
    return number_or_array(mean_over_rows(values, ranking.weights), ranking.single)
