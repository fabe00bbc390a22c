"""Losses of rankings: TopPush and recall@k, of the scores of positive and negative pairs.

    TopPush     Σ_i C_i max(0, 1 + t − s_i)²,   t the largest score of a negative,  s_i of a positive
    recall@k    max over the labellings y' with at most K positives of  Δ(y') + 2 Σ_{chosen negatives} s
                                                                        − 2 Σ_{left out positives} s
                Δ(y') = 1 − (chosen positives) / (all positives)

The first is what Li, Jin and Zhou minimise (NIPS 2014), the second the structural SVM of Joachims (ICML 2005), with
the labels ±1 of SVM-perf, hence the factor 2. Both are convex in the scores. Pairs are (row, class): either all of
them, the true class of a row being its positive, or the rows of one class against the others.
Cost: O(n) for the first; a sort for the second, whose maximum is found exactly, by the number of chosen positives.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["RecallPlane", "recall_at_k_oracle", "top_push_conjugate", "top_push_loss"]

Floats: TypeAlias = npt.NDArray[np.float64]


def top_push_loss(positives: Floats, top_negative: float, costs: Floats) -> float:
    """Σ_i C_i max(0, 1 + t − s_i)².

    Parameters
    ----------
    positives : ndarray of shape (n_positives,)
        Scores s_i of the positives.
    top_negative : float
        Largest score t of a negative.
    costs : ndarray of shape (n_positives,)
        C_i.

    Returns
    -------
    float
        The loss.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.ranking_losses import top_push_loss
    >>> top_push_loss(np.array([2.0, 0.5]), 0.0, np.array([1.0, 2.0]))
    0.5
    """
    return float(costs @ np.maximum(1.0 + top_negative - positives, 0.0) ** 2)


def top_push_conjugate(alpha: Floats, costs: Floats) -> float:
    """Σ_i α_i²/(4 C_i), what the dual of TopPush loses to its squares; costs are positive.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.ranking_losses import top_push_conjugate
    >>> top_push_conjugate(np.array([2.0, 0.0]), np.array([1.0, 1.0]))
    1.0
    """
    return float(np.sum(alpha**2 / (4.0 * costs)))


class RecallPlane(NamedTuple):
    """The labelling that violates its constraint most.

    Parameters
    ----------
    value : float
        Δ(y') + 2 Σ_{chosen negatives} s − 2 Σ_{left out positives} s; may be negative.
    delta : float
        Δ(y').
    positives : ndarray of shape (n_positives − a,)
        Places of the positives that are left out, the lowest ones.
    negatives : ndarray of shape (b,), b ≤ n_selected − a
        Places of the negatives that are chosen, the highest ones.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.ranking_losses import recall_at_k_oracle
    >>> recall_at_k_oracle(np.array([1.0]), np.array([0.9, 0.0]), 1).negatives
    array([0])
    """

    value: float
    delta: float
    positives: npt.NDArray[np.int64]
    negatives: npt.NDArray[np.int64]


def recall_at_k_oracle(positives: Floats, negatives: Floats, n_selected: int) -> RecallPlane:
    """The labelling with at most `n_selected` positives whose constraint is violated most, exactly.

    For a given number a of chosen positives the best labelling chooses the a highest positives and, among the
    n_selected − a highest negatives, those with a score above 0; all a are tried.

    Parameters
    ----------
    positives : ndarray of shape (n_positives,)
        Scores of the positives, at least one.
    negatives : ndarray of shape (n_kept,)
        Scores of the negatives in any order; the `n_selected` highest are enough.
    n_selected : int
        K ≥ 0.

    Returns
    -------
    RecallPlane
        Its value, its Δ, and which positives are left out and negatives chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.ranking_losses import recall_at_k_oracle
    >>> plane = recall_at_k_oracle(np.array([2.0, 0.1]), np.array([0.2, -1.0]), n_selected=3)
    >>> plane.delta, round(plane.value, 12), plane.positives, plane.negatives
    (0.5, 0.7, array([1]), array([0]))
    """
    if n_selected < 0:
        raise ValueError(f"n_selected={n_selected} must be 0 or more")
    n_pos = len(positives)
    best_positives = np.argsort(-positives, kind="stable")
    best_negatives = np.argsort(-negatives, kind="stable")
    chosen = np.arange(min(n_pos, n_selected) + 1)
    n_negatives = np.minimum(n_selected - chosen, np.count_nonzero(negatives > 0.0))
    left_out = np.append(np.cumsum(positives[best_positives[::-1]])[::-1], 0.0)  # Σ of all but the a highest
    taken = np.append(0.0, np.cumsum(negatives[best_negatives]))
    values = 1.0 - chosen / n_pos + 2.0 * (taken[n_negatives] - left_out[chosen])
    a = int(np.argmax(values))
    return RecallPlane(float(values[a]), 1.0 - a / n_pos, best_positives[a:], best_negatives[: n_negatives[a]])
