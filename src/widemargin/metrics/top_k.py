"""Top-k error of multiclass predictions, with an honest rule for ties.

With g labels scored strictly above the true one and e labels tied with it (itself included),

    P(true label among the top k) = clip((k − g) / e, 0, 1)     ties="expected": the order of ties is uniform
                                    1 if g < k      else 0      ties="optimistic": the rule of the top-k SVM paper
                                    1 if g + e ≤ k  else 0      ties="pessimistic"

and the top-k error is one minus its mean. Under the optimistic rule, the zero model, which ties everything, has error
0; models should never be chosen by it, so "expected" is the default.

g and e are counted in the lists of `predict_topk`, which also knows the labels past the end of a list that are tied
with its last one. Other lists may end too early to know g and e. Then the best and the worst case are compared, and
only a row for which they differ is an error: it needs a longer list, or the true label's score. Memory: O(n·K).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import (
    MISSING,
    Bools,
    Floats,
    Ints,
    Places,
    Tied,
    check_choice,
    check_enough_places,
    check_no_repeats,
    check_places,
    check_same_kind,
    check_weights,
    hits,
    mean_over_rows,
    number_or_array,
)

__all__ = ["top_k_accuracy", "top_k_accuracy_from_scores", "top_k_error", "top_k_error_from_scores"]

Ties: TypeAlias = Literal["expected", "optimistic", "pessimistic"]

# A listed score and the same label's `label_scores` may be summed in a different order in float32; sums of 10⁴ products
# then differ by about 1e-6, relative. A larger difference means another model or another row.
SCORE_NOISE = 1e-4


class _Lists(NamedTuple):
    """Checked output of `predict_topk`: `places` are those with a label, `complete` the rows that list all labels.

    `tied` and `classes` come from a `TopK`, or are None.
    """

    labels: npt.NDArray[Any]
    scores: npt.NDArray[np.floating[Any]]
    places: Bools
    complete: Bools
    tied: Tied | None = None
    classes: npt.NDArray[Any] | None = None


class _Rank(NamedTuple):
    """Labels above the true one, and tied with it, per row; infinite if they certainly reach past the list."""

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
    """Share of rows whose true label is not among the top k; ties count by the rule `ties`.

    err_k = Σ_i w_i · (1 − P_i) / Σ_i w_i,  P_i = clip((k − g_i) / e_i, 0, 1) for ``ties="expected"``.

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        True labels, as they occur in ``topk.labels``. A label that the model does not know counts as an error.
    topk : named tuple (labels, scores, indices) of arrays of shape (n_samples, n_places)
        The result of `predict_topk`: best first, missing places (index −1) at the end. A plain tuple of such arrays
        should have more than k places: k places do not show whether the last one is tied with labels not listed.
    k : int or sequence of int
        Number of places that count; at most n_places and at most the number of labels.
    label_scores : array of shape (n_samples,), optional
        The true labels' scores. They matter only for rows whose true label is not listed and could be tied with the
        last listed one; without them, such a row is an error if the result depends on it.
    n_labels : int, optional
        Number of labels, if `topk` does not know it. A list is complete if it has a missing place or n_labels places.
    ties : {"expected", "optimistic", "pessimistic"}
        Rule for labels with the score of the true one. "expected": any order is equally likely (model selection uses
        this). "optimistic": the true label comes first, so a row is wrong only if the k-th largest score is strictly
        greater than its score (the rule of the top-k SVM paper). "pessimistic": the true label comes last.
    <mean_at_k>

    Raises
    ------
    ValueError
        If ties are cut off by the end of a list, the result depends on them, and `topk` does not know them; the message
        names the remedy.

    References
    ----------
    .. [1] M. Lapin, M. Hein and B. Schiele, "Top-k multiclass SVM", NIPS 2015.

    Examples
    --------
    Label 0 is the true one of both rows: the top label of the first, one of two tied for second place in the other.

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
    lists = _check_lists(topk, n_labels)
    _check_places_fit(places, lists, n_labels)
    truth = _check_truth(y_true, lists)
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
    """Share of rows whose true label is among the top k: one minus `top_k_error`, which explains the arguments.

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        True labels, as they occur in ``topk.labels``.
    topk : named tuple (labels, scores, indices) of arrays of shape (n_samples, n_places)
        The result of `predict_topk`, with k places or more.
    <any_k>
    label_scores : array of shape (n_samples,), optional
        The true labels' scores.
    n_labels : int, optional
        Number of labels.
    <ties>
    <mean_at_k>

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.metrics import top_k_accuracy
    >>> labels = np.array([["cat", "dog", "cow"], ["dog", "cow", "cat"]])
    >>> scores, indices = np.array([[3.0, 2.0, 1.0]] * 2), np.array([[0, 1, 2], [1, 2, 0]])
    >>> top_k_accuracy(["cat", "cow"], (labels, scores, indices), k=[1, 2])
    array([0.5, 1. ])

    The lists of a model need only k places:

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

    <true_and_scored>
    ties : {"expected", "optimistic", "pessimistic"}
        Rule for labels with the score of the true one, as in `top_k_error`.
    <mean_at_k>

    References
    ----------
    .. [1] M. Lapin, M. Hein and B. Schiele, "Top-k multiclass SVM", NIPS 2015.

    Examples
    --------
    The zero model ties all labels: by chance, it is right in one of four cases.

    >>> import numpy as np
    >>> from widemargin.metrics import top_k_error_from_scores
    >>> top_k_error_from_scores([0, 2], np.zeros((2, 4)), k=1)
    0.75
    >>> top_k_error_from_scores([0, 2], np.zeros((2, 4)), k=1, ties="optimistic")
    0.0
    """
    check_choice(ties, "ties", ("expected", "optimistic", "pessimistic"))
    places, single = check_places(k)
    values = _check_scores(scores, "scores")
    n_samples, n_labels = values.shape
    if places.max() > n_labels:
        raise ValueError(f"k={places.max()} is more than the number of labels, {n_labels}; use a smaller k")
    known = np.ones(n_samples, dtype=bool)
    if labels is not None:
        y_true, known = _columns_of_labels(y_true, labels, n_labels)
    columns = np.asarray(y_true)
    if columns.shape != (n_samples,) or columns.dtype.kind not in "iu":
        raise ValueError(
            f"y_true must contain the column of the true label for each row of scores, with shape ({n_samples},); got "
            f"dtype {columns.dtype}, shape {columns.shape}; to use labels instead, pass labels=model.classes_"
        )
    if ((columns < 0) | (columns >= n_labels)).any():
        raise ValueError(
            f"y_true must be between 0 and {n_labels - 1}; got values from {columns.min()} to {columns.max()}"
        )
    weights = check_weights(sample_weight, n_samples)
    own = values[np.arange(n_samples), columns][:, None]
    rank = _Rank(np.where(known, _count(values > own), np.inf), _count(values == own))
    return number_or_array(mean_over_rows(1.0 - _chance(rank, places, ties), weights), single)


@with_shared_passages
def top_k_accuracy_from_scores(
    y_true: Any, scores: Any, k: Places = 1, *, labels: Any = None, ties: Ties = "expected", sample_weight: Any = None
) -> Any:
    """Top-k accuracy from the scores of all labels: one minus `top_k_error_from_scores`.

    <true_and_scored>
    <ties>
    <mean_at_k>

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.metrics import top_k_accuracy_from_scores
    >>> top_k_accuracy_from_scores([0, 2], np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), k=[1, 3])
    array([0.5, 1. ])
    """
    return 1.0 - top_k_error_from_scores(y_true, scores, k, labels=labels, ties=ties, sample_weight=sample_weight)


def _columns_of_labels(y_true: Any, labels: Any, n_labels: int) -> tuple[Ints, Bools]:
    """Columns of the true labels, 0 for labels without one, and which have one."""
    names, truth = np.asarray(labels).tolist(), np.asarray(y_true).ravel().tolist()
    if len(names) != n_labels:
        raise ValueError(f"labels has {len(names)} names, but scores has {n_labels} columns; pass one name per column")
    check_same_kind(truth, names, "y_true")
    numbers = {label: number for number, label in enumerate(names)}
    columns = np.array([numbers.get(label, -1) for label in truth], dtype=np.int64)
    return np.maximum(columns, 0), columns >= 0


def _chance(rank: _Rank, places: Ints, ties: Ties) -> Floats:
    """out[i, j] = P(true label of row i among the top places[j]); shape (n, len(places))."""
    above, tied = rank.above[:, None], rank.tied[:, None]
    if ties == "optimistic":
        return (above < places).astype(np.float64)
    if ties == "pessimistic":
        return (above + tied <= places).astype(np.float64)
    return np.clip((places - above) / tied, 0.0, 1.0)


def _rank_bounds(truth: npt.NDArray[Any], lists: _Lists, label_scores: Any) -> tuple[_Rank, _Rank]:
    """The best and the worst rank of the true label that agree with the list (and with its score, if known)."""
    own_place = (lists.labels == truth[:, None]) & lists.places
    listed = own_place.any(axis=1)
    rows = np.arange(len(truth))
    last = np.where(lists.places, lists.scores, np.inf).min(axis=1)
    # A label that is not listed has at most the last listed score, which is the best case.
    own = np.where(listed, lists.scores[rows, own_place.argmax(axis=1)], last)
    ranks_below_list = ~listed & lists.complete
    known = listed | lists.complete
    recorded, own_is_tied, n_tied = _ties_past_the_end(truth, lists)
    ranks_below_list |= recorded & ~listed & ~own_is_tied
    known |= recorded
    if label_scores is not None:
        given = _check_label_scores(label_scores, listed, known, own, lists)
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


def _raise_undecided(undecided: Bools, lists: _Lists, places: Ints, scores_known: bool) -> None:
    """Raise an error that names the undecided row, the reason and the remedy."""
    row, column = np.argwhere(undecided)[0]
    n_places = lists.scores.shape[1]
    k = int(places[column])
    remedy = f"call predict_topk with k above {n_places}, or pass n_labels if all labels are listed"
    if not scores_known:
        remedy += ", or pass label_scores for true labels that are not listed"
    raise ValueError(
        f"the top-{k} error of row {row} (and of {undecided.any(axis=1).sum() - 1} more) depends on labels beyond the "
        f"end of its list, which may be tied with the true label; {remedy}"
    )


def _count(mask: Bools) -> Floats:
    """Number of True in each row, as floats (a rank may be infinite)."""
    return np.asarray(mask.sum(axis=1), dtype=np.float64)


def _check_lists(topk: Any, n_labels: int | None) -> _Lists:
    """Arrays of one shape (n, K), scores descending, labels distinct, missing places last."""
    if not (isinstance(topk, tuple) and len(topk) == 3):
        raise ValueError(
            "topk must be the named tuple (labels, scores, indices) returned by predict_topk, because ties depend on "
            "the scores"
        )
    tied, classes = getattr(topk, "tied", None), getattr(topk, "classes", None)
    n_labels = len(classes) if n_labels is None and classes is not None else n_labels
    labels, indices = np.asarray(topk[0]), np.asarray(topk[2])
    scores = np.asarray(topk[1])
    if not labels.shape == scores.shape == indices.shape or indices.ndim != 2 or 0 in indices.shape:
        raise ValueError(
            f"labels, scores and indices must have the same shape, (n_samples, n_places); got shapes {labels.shape}, "
            f"{scores.shape} and {indices.shape}"
        )
    if indices.dtype.kind not in "iu" or indices.min() < MISSING:
        raise ValueError(
            f"indices must be integers of at least {MISSING} (a missing place); got dtype {indices.dtype}, minimum "
            f"{indices.min()}"
        )
    places = indices != MISSING
    scores = np.where(places, _check_scores(np.where(places, scores, 0.0), "scores"), -np.inf)
    if not places[:, 0].all() or (places[:, 1:] & ~places[:, :-1]).any() or (scores[:, 1:] > scores[:, :-1]).any():
        raise ValueError("each row must list at least one label, best score first, with missing places (−1) at the end")
    if n_labels is not None and (indices >= n_labels).any():
        raise ValueError(f"label index {indices.max()} is out of range for n_labels={n_labels}")
    check_no_repeats(indices.astype(np.int64, copy=False))
    full = n_labels is not None and indices.shape[1] >= n_labels
    return _Lists(labels, scores, places, ~places.all(axis=1) | full, tied, classes)


def _ties_past_the_end(truth: npt.NDArray[Any], lists: _Lists) -> tuple[Bools, Bools, Ints]:
    """Per row: whether the ties past its list are known, whether its label is one of them, and their number."""
    if lists.tied is None or lists.classes is None:
        none = np.zeros(len(truth), dtype=bool)
        return none, none, np.zeros(len(truth), dtype=np.int64)
    numbers = {label: number for number, label in enumerate(lists.classes.tolist())}
    own = np.array([[numbers.get(label, MISSING)] for label in truth.tolist()], dtype=np.int64)
    return ~lists.tied.left_out, hits(own, lists.tied.labels)[:, 0], np.diff(lists.tied.labels.indptr).astype(np.int64)


def _check_places_fit(places: Ints, lists: _Lists, n_labels: int | None) -> None:
    """Raise if k exceeds the places or the labels; a complete list shows the number of labels."""
    longest = int(places.max())
    shortest = int(lists.places.sum(axis=1).min())
    known = n_labels if n_labels is not None else shortest if lists.complete.any() else None
    if known is not None and longest > known:
        raise ValueError(f"k={longest} is more than the number of labels, {known}; use a smaller k")
    check_enough_places(places, lists.scores.shape[1])


def _check_truth(y_true: Any, lists: _Lists) -> npt.NDArray[Any]:
    """True labels of shape (n,) that can be compared with the listed ones."""
    truth = np.asarray(y_true)
    if truth.shape != (len(lists.labels),):
        raise ValueError(
            f"y_true must have shape ({len(lists.labels)},), with one label per row of the lists, which have shape "
            f"{lists.labels.shape}; got shape {truth.shape}"
        )
    kinds = {"text" if a.dtype.kind in "UST" else "number" for a in (truth, lists.labels) if a.dtype.kind != "O"}
    if len(kinds) > 1:
        raise ValueError(
            f"y_true (dtype {truth.dtype}) and the listed labels (dtype {lists.labels.dtype}) cannot be compared; "
            "pass the labels themselves, not their indices"
        )
    return truth


def _check_label_scores(
    label_scores: Any, listed: Bools, known: Bools, own: npt.NDArray[Any], lists: _Lists
) -> npt.NDArray[Any]:
    """Scores of the true labels in the lists' precision; they must not contradict the lists."""
    given = np.asarray(label_scores).astype(lists.scores.dtype)
    if given.shape != own.shape:
        raise ValueError(f"label_scores must have shape {own.shape}, with one score per row; got shape {given.shape}")
    if np.isnan(given).any():
        raise ValueError("label_scores must not contain NaN")
    noise = SCORE_NOISE * np.maximum(1.0, np.abs(own))
    with np.errstate(invalid="ignore"):  # ∞ − ∞ counts as no difference
        apart = (given != own) & ~(np.abs(given - own) <= noise)
    wrong = (listed & apart) | (~known & (given > own) & apart)
    if wrong.any():
        row = int(np.argmax(wrong))
        where = "is listed with" if listed[row] else "is not listed, although the last listed label has"
        raise ValueError(
            f"label_scores and topk disagree on row {row}: the true label has the score {given[row]}, but {where} "
            f"{own[row]}; compute both with the same model on the same rows"
        )
    return given


def _check_scores(scores: Any, name: str) -> npt.NDArray[np.floating[Any]]:
    """Scores of shape (n, m) as floats without NaN."""
    values = np.asarray(scores)
    if values.dtype.kind not in "f":
        values = values.astype(np.float64)
    if values.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (samples, labels); got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"{name} must not contain NaN, but row {int(np.isnan(values).any(axis=1).argmax())} does")
    return values
