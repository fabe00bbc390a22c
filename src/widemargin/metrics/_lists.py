"""Checks of what the top-k error needs: lists of `predict_topk` with their scores, true labels and their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.metrics._checks import MISSING, Bools, Ints, check_enough_places, check_no_repeats, hits

__all__: list[str] = []

# A listed score and the same label's `label_scores` may be summed in another order in float32; sums of 10⁴ products
# then differ by some 1e-6 relative. More than this is another model or another row.
SCORE_NOISE = 1e-4


MOST_TIED = 1_000_000
"""Labels past the ends of the lists that are kept at most, beside as many as are listed: 5 MB, 50 MB on the way."""
BLOCK_SCORES = 1 << 21
"""Scores of rows that end within a tie, at a time; 16 MB."""


class Tied(NamedTuple):
    """Labels past the ends of lists that have the score of the last listed one.

    Parameters
    ----------
    labels : csr_array of int8 of shape (n_samples, n_labels)
        Their indicator; rows whose lists do not end within a tie have none.
    left_out : ndarray of bool of shape (n_samples,)
        Rows whose ties are not in `labels`, because there were too many.
    """

    labels: Any
    left_out: Bools


class Lists(NamedTuple):
    """Checked output of `predict_topk`: `places` is where a label is listed, `complete` where all labels are.

    `tied` and `classes` are what a `TopK` carries, or None.
    """

    labels: npt.NDArray[Any]
    scores: npt.NDArray[np.floating[Any]]
    places: Bools
    complete: Bools
    tied: Tied | None = None
    classes: npt.NDArray[Any] | None = None


def find_tied(indices: Ints, scores: Any, k: int, n_labels: int, labels_tied: Callable[[Ints], Bools]) -> Tied:
    """What is tied with place k.

    Parameters
    ----------
    indices, scores : ndarray of shape (n_samples, k + 1 or more), or (n_samples, k) if these are all labels
        Lists with one place more than k.
    k : int
        Length of the lists that are returned.
    n_labels : int
        How many labels there are.
    labels_tied : callable
        Which labels (n_rows, n_labels) of some rows have the score of place k, those that are listed included.

    Returns
    -------
    Tied
        Computed only for rows in which the place after k has the same score.
    """
    more = scores.shape[1] > k
    ends_in_tie = (
        (indices[:, k] != MISSING) & (scores[:, k] == scores[:, k - 1]) if more else np.zeros(len(scores), bool)
    )
    rows = np.flatnonzero(ends_in_tie)
    room, left_out = MOST_TIED + len(scores) * k, np.zeros(len(scores), dtype=bool)
    parts: list[Ints] = []
    for part in np.array_split(rows, max(1, -(-len(rows) * n_labels // BLOCK_SCORES))):
        if room < 0 or len(part) == 0:
            left_out[part] = True
            continue
        unlisted = labels_tied(part)
        np.put_along_axis(unlisted, indices[part, :k], False, axis=1)
        row, label = np.nonzero(unlisted)
        parts.append(np.stack([part[row], label]))
        room -= len(row)
    row, label = np.concatenate([np.empty((2, 0), dtype=np.int64), *parts], axis=1)
    ones = np.ones(len(row), dtype=np.int8)
    return Tied(sparse.csr_array((ones, (row, label)), shape=(len(scores), n_labels)), left_out)


def joined_ties(parts: list[Tied]) -> Tied | None:
    """Ties of successive blocks of rows; None for no block."""
    if not parts:
        return None
    labels, left_out = zip(*parts, strict=True)
    return Tied(sparse.vstack(labels, format="csr"), np.concatenate(left_out))


def check_lists(topk: Any, n_labels: int | None) -> Lists:
    """Arrays of one shape (n, K), scores descending, labels distinct, missing places last."""
    if not (isinstance(topk, tuple) and len(topk) == 3):
        raise ValueError("topk must be the named tuple (labels, scores, indices) of predict_topk: ties need the scores")
    tied, classes = getattr(topk, "tied", None), getattr(topk, "classes", None)
    n_labels = len(classes) if n_labels is None and classes is not None else n_labels
    labels, indices = np.asarray(topk[0]), np.asarray(topk[2])
    scores = np.asarray(topk[1])
    if not labels.shape == scores.shape == indices.shape or indices.ndim != 2 or 0 in indices.shape:
        raise ValueError(
            "labels, scores and indices must have one shape (n_samples, n_places); got "
            f"{labels.shape}, {scores.shape} and {indices.shape}"
        )
    if indices.dtype.kind not in "iu" or indices.min() < MISSING:
        raise ValueError(
            f"indices must be integers from {MISSING} (missing) up; got dtype {indices.dtype}, minimum {indices.min()}"
        )
    places = indices != MISSING
    scores = np.where(places, check_scores(np.where(places, scores, 0.0), "scores"), -np.inf)
    if not places[:, 0].all() or (places[:, 1:] & ~places[:, :-1]).any() or (scores[:, 1:] > scores[:, :-1]).any():
        raise ValueError("each row must list at least one label, best score first, with missing places (−1) at the end")
    if n_labels is not None and (indices >= n_labels).any():
        raise ValueError(f"label index {indices.max()} is out of range for n_labels={n_labels}")
    check_no_repeats(indices.astype(np.int64, copy=False))
    full = n_labels is not None and indices.shape[1] >= n_labels
    return Lists(labels, scores, places, ~places.all(axis=1) | full, tied, classes)


def ties_past_the_end(truth: npt.NDArray[Any], lists: Lists) -> tuple[Bools, Bools, Ints]:
    """For each row: whether the ties past its list are known, whether its label is one of them, their number."""
    if lists.tied is None or lists.classes is None:
        none = np.zeros(len(truth), dtype=bool)
        return none, none, np.zeros(len(truth), dtype=np.int64)
    numbers = {label: number for number, label in enumerate(lists.classes.tolist())}
    own = np.array([[numbers.get(label, MISSING)] for label in truth.tolist()], dtype=np.int64)
    return ~lists.tied.left_out, hits(own, lists.tied.labels)[:, 0], np.diff(lists.tied.labels.indptr).astype(np.int64)


def check_places_fit(places: Ints, lists: Lists, n_labels: int | None) -> None:
    """Raise when k exceeds the places or the labels; a complete list shows how many labels there are."""
    longest = int(places.max())
    shortest = int(lists.places.sum(axis=1).min())
    known = n_labels if n_labels is not None else shortest if lists.complete.any() else None
    if known is not None and longest > known:
        raise ValueError(f"k={longest} is more than the number of labels, {known}")
    check_enough_places(places, lists.scores.shape[1])


def check_truth(y_true: Any, lists: Lists) -> npt.NDArray[Any]:
    """True labels of shape (n,) that can be compared with the listed ones."""
    truth = np.asarray(y_true)
    if truth.shape != (len(lists.labels),):
        raise ValueError(
            f"y_true must have shape ({len(lists.labels)},), one label a row of the lists of shape "
            f"{lists.labels.shape}; got shape {truth.shape}"
        )
    kinds = {"text" if a.dtype.kind in "UST" else "number" for a in (truth, lists.labels) if a.dtype.kind != "O"}
    if len(kinds) > 1:
        raise ValueError(
            f"y_true (dtype {truth.dtype}) and the listed labels (dtype {lists.labels.dtype}) cannot be compared; pass "
            "the labels themselves, not their indices"
        )
    return truth


def check_label_scores(
    label_scores: Any, listed: Bools, known: Bools, own: npt.NDArray[Any], lists: Lists
) -> npt.NDArray[Any]:
    """Scores of the true labels in the lists' precision; they must not contradict the lists."""
    given = np.asarray(label_scores).astype(lists.scores.dtype)
    if given.shape != own.shape:
        raise ValueError(f"label_scores must have shape {own.shape}, one score a row; got {given.shape}")
    if np.isnan(given).any():
        raise ValueError("label_scores must not hold NaN")
    noise = SCORE_NOISE * np.maximum(1.0, np.abs(own))
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is no difference here
        apart = (given != own) & ~(np.abs(given - own) <= noise)
    wrong = (listed & apart) | (~known & (given > own) & apart)
    if wrong.any():
        row = int(np.argmax(wrong))
        where = "is listed with" if listed[row] else "is not listed although the last one has"
        raise ValueError(
            f"label_scores and topk disagree in row {row}: the true label has {given[row]}, but {where} {own[row]}; "
            "compute both with the same model and the same rows"
        )
    return given


def check_scores(scores: Any, name: str) -> npt.NDArray[np.floating[Any]]:
    """Scores of shape (n, m) as floats without NaN."""
    values = np.asarray(scores)
    if values.dtype.kind not in "f":
        values = values.astype(np.float64)
    if values.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (samples, labels); got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"{name} must not hold NaN; row {int(np.isnan(values).any(axis=1).argmax())} does")
    return values
