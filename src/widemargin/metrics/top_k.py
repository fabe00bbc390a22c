"""Top-k error of multiclass predictions, with an honest rule for ties.

With g labels scored strictly above the true one and e labels tied with it (itself included),

    P(true label among the k best) = clip((k − g) / e, 0, 1)     ties="expected": the order of ties is uniform
                                     1 if g < k      else 0      ties="optimistic": the rule of the top-k SVM paper
                                     1 if g + e ≤ k  else 0      ties="pessimistic"

and the top-k error is one minus its mean. Under the optimistic rule the zero model, which ties everything, has error 0;
models should never be chosen by it, which is why "expected" is the default.

g and e are counted in the lists of `predict_topk`, which also knows the labels past the end of a list that are tied
with its last one. Other lists may end too early to know g and e: then the best and the worst case are compared, and
only a row for which they differ is an error: it needs a longer list, or the true label's score. Memory: O(n·K).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import (
    Bools,
    Floats,
    Ints,
    Lists,
    Places,
    check_choice,
    check_label_scores,
    check_lists,
    check_places,
    check_places_fit,
    check_same_kind,
    check_scores,
    check_truth,
    check_weights,
    mean_over_rows,
    number_or_array,
    ties_past_the_end,
)

__all__ = ["top_k_accuracy", "top_k_accuracy_from_scores", "top_k_error", "top_k_error_from_scores"]

Ties: TypeAlias = Literal["expected", "optimistic", "pessimistic"]


class _Rank(NamedTuple):
    """Labels above the true one, and tied with it, per row; infinite where they certainly reach past the list."""

    above: Floats
    tied: Floats


@with_shared_passages
def top_k_error(
    y_true: Any,
    topk: Any,
    k: Places = 1,
    *,
    label_scores: Any = None,
    n_labels: int | None = None,
    ties: Ties = "expected",
    sample_weight: Any = None,
) -> Any:
    """Share of rows whose true label is not among the k best; ties count by the rule `ties`.

    err_k = Σ_i w_i · (1 − P_i) / Σ_i w_i,  P_i = clip((k − g_i) / e_i, 0, 1) for ``ties="expected"``.

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        True labels, as they occur in ``topk.labels``. A label that the model does not know counts as an error.
    topk : named tuple (labels, scores, indices) of arrays of shape (n_samples, n_places)
        What `predict_topk` returned: best first, missing places (index −1) at the end. A plain tuple of such arrays
        should have more than k places: k of them do not show whether the last one is tied with labels not listed.
    k : int or sequence of int
        How many places count; at most n_places and at most the number of labels.
    label_scores : array of shape (n_samples,), optional
        The true labels' scores. They matter only for rows whose true label is not listed and could be tied with the
        last one that is; without them such a row is an error if its answer depends on it.
    n_labels : int, optional
        How many labels there are, if `topk` does not know it. A list is complete when it has a missing place or
        n_labels places.
    ties : {"expected", "optimistic", "pessimistic"}
        Rule for labels with the score of the true one: any order is equally likely (what model selection uses); the
        true label comes first, so that there is an error iff the k-th largest score is strictly greater than its
        score (the rule of the top-k SVM paper); the true label comes last.
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.

    Raises
    ------
    ValueError
        When ties are cut off by the end of a list, the answer depends on them, and `topk` does not know them; the
        message says how to go on.

    References
    ----------
    .. [1] M. Lapin, M. Hein and B. Schiele, "Top-k multiclass SVM", NIPS 2015.

    Examples
    --------
    Label 0 is the true one of both rows: the best of the first, one of two on the second place of the other.

    >>> import numpy as np
    >>> from widemargin.metrics import top_k_error
    >>> labels = indices = np.array([[0, 1, 2, 3], [1, 0, 2, 3]])
    >>> scores = np.array([[3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 2.0, 0.0]])
    >>> top_k_error([0, 0], (labels, scores, indices), k=[1, 2, 3])
    array([0.5 , 0.25, 0.  ])
    >>> top_k_error([0, 0], (labels, scores, indices), k=2, ties="optimistic")
    0.0
    """
    check_choice(ties, "ties", ("expected", "optimistic", "pessimistic"))
    places, single = check_places(k)
    lists = check_lists(topk, n_labels)
    check_places_fit(places, lists, n_labels)
    truth = check_truth(y_true, lists)
    weights = check_weights(sample_weight, len(truth))
    best, worst = _rank_bounds(truth, lists, label_scores)
    chance = _chance(best, places, ties)
    undecided = (chance != _chance(worst, places, ties)) & (weights > 0)[:, None]
    if undecided.any():
        _raise_undecided(undecided, lists, places, label_scores is not None)
    return number_or_array(mean_over_rows(1.0 - chance, weights), single)


@with_shared_passages
def top_k_accuracy(
    y_true: Any,
    topk: Any,
    k: Places = 1,
    *,
    label_scores: Any = None,
    n_labels: int | None = None,
    ties: Ties = "expected",
    sample_weight: Any = None,
) -> Any:
    """Share of rows whose true label is among the k best: one minus `top_k_error`, which explains the arguments.

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        True labels, as they occur in ``topk.labels``.
    topk : named tuple (labels, scores, indices) of arrays of shape (n_samples, n_places)
        What `predict_topk` returned, for k places or more.
    <any_k>
    label_scores : array of shape (n_samples,), optional
        The true labels' scores.
    n_labels : int, optional
        How many labels there are.
    <ties>
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.metrics import top_k_accuracy
    >>> labels = np.array([["cat", "dog", "cow"], ["dog", "cow", "cat"]])
    >>> scores, indices = np.array([[3.0, 2.0, 1.0]] * 2), np.array([[0, 1, 2], [1, 2, 0]])
    >>> top_k_accuracy(["cat", "cow"], (labels, scores, indices), k=[1, 2])
    array([0.5, 1. ])

    Of a model, for k places as they are:

    >>> from widemargin import TopKClassifier
    >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat(["cat", "cow", "dog"], 4)
    >>> model = TopKClassifier(random_state=0).fit(X, y)
    >>> top_k_accuracy(y, model.predict_topk(X, k=1), k=1)
    1.0
    """
    error = top_k_error(
        y_true, topk, k, label_scores=label_scores, n_labels=n_labels, ties=ties, sample_weight=sample_weight
    )
    return 1.0 - error


@with_shared_passages
def top_k_error_from_scores(
    y_true: Any, scores: Any, k: Places = 1, *, labels: Any = None, ties: Ties = "expected", sample_weight: Any = None
) -> Any:
    """Top-k error from the scores of all labels, for small problems and `decision_function`.

    Parameters
    ----------
    <y_true>
    <scores>
    <k_of_labels>
    <column_labels>
    ties : {"expected", "optimistic", "pessimistic"}
        Rule for labels with the score of the true one, as in `top_k_error`.
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.

    References
    ----------
    .. [1] M. Lapin, M. Hein and B. Schiele, "Top-k multiclass SVM", NIPS 2015.

    Examples
    --------
    The zero model ties all labels: by chance it is right in one of four cases.

    >>> import numpy as np
    >>> from widemargin.metrics import top_k_error_from_scores
    >>> top_k_error_from_scores([0, 2], np.zeros((2, 4)), k=1)
    0.75
    >>> top_k_error_from_scores([0, 2], np.zeros((2, 4)), k=1, ties="optimistic")
    0.0
    """
    check_choice(ties, "ties", ("expected", "optimistic", "pessimistic"))
    places, single = check_places(k)
    values = check_scores(scores, "scores")
    n_samples, n_labels = values.shape
    if places.max() > n_labels:
        raise ValueError(f"k={places.max()} is more than the number of labels, {n_labels}")
    known = np.ones(n_samples, dtype=bool)
    if labels is not None:
        y_true, known = _columns_of_labels(y_true, labels, n_labels)
    columns = np.asarray(y_true)
    if columns.shape != (n_samples,) or columns.dtype.kind not in "iu":
        raise ValueError(
            f"y_true must hold a column number of scores for each row, shape ({n_samples},) for scores of shape "
            f"{values.shape}; got dtype {columns.dtype}, shape {columns.shape}"
        )
    if ((columns < 0) | (columns >= n_labels)).any():
        raise ValueError(f"y_true must lie between 0 and {n_labels - 1}; it spans {columns.min()} to {columns.max()}")
    weights = check_weights(sample_weight, n_samples)
    own = values[np.arange(n_samples), columns][:, None]
    rank = _Rank(np.where(known, _count(values > own), np.inf), _count(values == own))
    return number_or_array(mean_over_rows(1.0 - _chance(rank, places, ties), weights), single)


@with_shared_passages
def top_k_accuracy_from_scores(
    y_true: Any, scores: Any, k: Places = 1, *, labels: Any = None, ties: Ties = "expected", sample_weight: Any = None
) -> Any:
    """Top-k accuracy from the scores of all labels: one minus `top_k_error_from_scores`.

    Parameters
    ----------
    <y_true>
    <scores>
    <k_of_labels>
    <column_labels>
    <ties>
    <sample_weight_in_mean>

    Returns
    -------
    float, or ndarray of shape (len(k),) when k is a sequence
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.metrics import top_k_accuracy_from_scores
    >>> top_k_accuracy_from_scores([0, 2], np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), k=[1, 3])
    array([0.5, 1. ])
    """
    return 1.0 - top_k_error_from_scores(y_true, scores, k, labels=labels, ties=ties, sample_weight=sample_weight)


def _columns_of_labels(y_true: Any, labels: Any, n_labels: int) -> tuple[Ints, Bools]:
    """Columns of the true labels, 0 for those that have none, and which have one."""
    names, truth = np.asarray(labels).tolist(), np.asarray(y_true).ravel().tolist()
    if len(names) != n_labels:
        raise ValueError(f"labels names {len(names)} columns, but scores has {n_labels}")
    check_same_kind(truth, names, "y_true")
    numbers = {label: number for number, label in enumerate(names)}
    columns = np.array([numbers.get(label, -1) for label in truth], dtype=np.int64)
    return np.maximum(columns, 0), columns >= 0


def _chance(rank: _Rank, places: Ints, ties: Ties) -> Floats:
    """out[i, j] = P(true label of row i among the places[j] best); shape (n, len(places))."""
    above, tied = rank.above[:, None], rank.tied[:, None]
    if ties == "optimistic":
        return (above < places).astype(np.float64)
    if ties == "pessimistic":
        return (above + tied <= places).astype(np.float64)
    return np.clip((places - above) / tied, 0.0, 1.0)


def _rank_bounds(truth: npt.NDArray[Any], lists: Lists, label_scores: Any) -> tuple[_Rank, _Rank]:
    """The best and the worst rank of the true label that agree with the list (and with its score, if known)."""
    own_place = (lists.labels == truth[:, None]) & lists.places
    listed = own_place.any(axis=1)
    rows = np.arange(len(truth))
    last = np.where(lists.places, lists.scores, np.inf).min(axis=1)
    # A label that is not listed has at most the last listed score: take that as the best case.
    own = np.where(listed, lists.scores[rows, own_place.argmax(axis=1)], last)
    ranks_below_list = ~listed & lists.complete
    known = listed | lists.complete
    recorded, own_is_tied, n_tied = ties_past_the_end(truth, lists)
    ranks_below_list |= recorded & ~listed & ~own_is_tied
    known |= recorded
    if label_scores is not None:
        given = check_label_scores(label_scores, listed, known, own, lists)
        ranks_below_list |= ~listed & (given < last)
        known = np.ones_like(listed)
    above = _count((lists.scores > own[:, None]) & lists.places)
    tied = _count((lists.scores == own[:, None]) & lists.places) + ~listed
    tied = np.where(recorded & (own == last), tied + n_tied - own_is_tied, tied)
    above[ranks_below_list], tied[ranks_below_list] = np.inf, 1.0
    cut_off = ~lists.complete & ~recorded & (own == last)
    best = _Rank(above, tied)
    worst = _Rank(np.where(known, above, np.inf), np.where(cut_off & known & ~ranks_below_list, np.inf, tied))
    return best, worst


def _raise_undecided(undecided: Bools, lists: Lists, places: Ints, scores_known: bool) -> None:
    """Say which row is undecided, why, and what to do."""
    row, column = np.argwhere(undecided)[0]
    n_places = lists.scores.shape[1]
    k = int(places[column])
    remedy = f"ask predict_topk for more places than the {n_places} here (more than k), or pass n_labels if that is all"
    if not scores_known:
        remedy += ", or pass label_scores where the true label is not listed"
    raise ValueError(
        f"the top-{k} error of row {row} (and of {undecided.any(axis=1).sum() - 1} more) depends on labels past the "
        f"end of its list, which may be tied with the true label; {remedy}"
    )


def _count(mask: Bools) -> Floats:
    """Number of True in each row, as floats (a rank may be infinite)."""
    return np.asarray(mask.sum(axis=1), dtype=np.float64)
