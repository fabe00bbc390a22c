"""Quality of the top k labels against sparse true labels: precision, recall and nDCG.

With r_i1, r_i2, … the labels of row i in order of score, Y the indicator of its n_i true labels, and w_i the weights:

    P@k    = Σ_i w_i · (1/k) Σ_{j≤k} Y[i, r_ij]                                           / Σ_i w_i
    R@k    = Σ_i w_i · (1/n_i) Σ_{j≤k} Y[i, r_ij]                                       / Σ_i w_i
    nDCG@k = Σ_i w_i · Σ_{j≤k} Y[i, r_ij] / log2(j+1)  /  Σ_{j≤min(k,n_i)} 1 / log2(j+1)  / Σ_i w_i

A missing place (index −1) is a miss. A row without labels counts as 0 and stays in the mean, as in the scripts of the
Extreme Classification Repository (and scikit-learn's `ndcg_score`); `empty="skip"` leaves it out.

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

__all__ = ["ndcg_at_k", "precision_at_k", "prepare_ranking", "recall_at_k"]

Empty: TypeAlias = Literal["zero", "skip"]


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
    ranking = prepare_ranking(Y_true, topk, k, empty, sample_weight)
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
    ranking = prepare_ranking(Y_true, topk, k, empty, sample_weight)
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
    ranking = prepare_ranking(Y_true, topk, k, empty, sample_weight)
    discount = 1.0 / np.log2(np.arange(2, ranking.found.shape[1] + 2))
    gained = np.cumsum(ranking.found * discount, axis=1)[:, ranking.places - 1]
    attainable = np.minimum(ranking.n_true, ranking.places)
    return ranking.mean(gained / np.cumsum(discount)[attainable - 1])


def prepare_ranking(Y_true: Any, topk: Any, k: Places, empty: Empty, sample_weight: Any) -> _Ranking:
    """Check the input, and look up every listed label among the true ones."""
    Y, indices, places, single = check_ranking(Y_true, topk, k)
    check_choice(empty, "empty", ("zero", "skip"))
    weights = check_weights(sample_weight, Y.shape[0])
    if empty == "skip":
        weights = np.where(np.diff(Y.indptr) > 0, weights, 0.0)
        if not weights.any():
            raise ValueError(
                'no row with a positive weight has a label, so empty="skip" leaves no rows; use empty="zero"'
            )
    listed = indices[:, : places.max()]
    return _Ranking(Y, listed, hits(listed, Y), places, single, weights)
