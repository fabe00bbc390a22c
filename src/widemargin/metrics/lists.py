"""Input checks and sparse look-ups that the metrics share.

Every metric checks its input here once, and then works on three things: `indices`, an int64 array of shape
(n, K) of labels in order of score, best first, −1 for a missing place; `Y`, a canonical CSR indicator of shape (n, L);
and `weights`, float64 of shape (n,). Memory is O(n·K + nnz(Y)): Y is never made dense.

Checks of what the top-k error needs: lists of `predict_topk` with their scores, true labels and their scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.labels.encoding import LabelEncoding, is_indicator, label_sets, unwrap

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = int | Sequence[int] | npt.NDArray[np.integer[Any]]
Empty: TypeAlias = Literal["zero", "skip"]

MISSING = -1
"""Index of a place that `predict_topk` could not fill."""


def check_choice(value: object, name: str, choices: Sequence[object]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_places(k: Places) -> tuple[Ints, bool]:
    """`k` as an array of positive integers, and whether it was a single number."""
    places = np.asarray(k)
    if places.dtype.kind not in "iu" or places.ndim > 1 or places.size == 0:
        raise ValueError(f"k must be an integer or a non-empty sequence of integers; got {k!r}")
    if places.min() < 1:
        raise ValueError(f"k must be at least 1; got {k!r}")
    return np.atleast_1d(places).astype(np.int64), places.ndim == 0


def check_enough_places(places: Ints, n_places: int) -> None:
    """Raise unless lists of `n_places` reach as far as every k."""
    longest = int(places.max())
    if longest > n_places:
        raise ValueError(
            f"k={longest}, but the lists have {n_places} place(s) only; ask predict_topk for at least {longest}"
        )


def check_indicator(Y: Any, name: str) -> Any:
    """`Y` as a canonical CSR indicator of shape (n, L) without stored zeros; the caller's matrix is left as it is."""
    matrix = sparse.csr_array(Y)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (samples, labels); got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold zeros and ones; got dtype {matrix.dtype}")
    tidy = matrix.has_canonical_format and bool(np.all(matrix.data))
    if not tidy:
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    wrong = matrix.data != 1
    if wrong.any():
        raise ValueError(
            f"{name} must be an indicator of zeros and ones; it holds {matrix.data[wrong][0]!s} (stored twice, or a "
            "count or weight?)"
        )
    return matrix


def check_indices(topk: Any) -> Ints:
    """Ranked label indices of shape (n, K), from that array itself or from what `predict_topk` returned."""
    indices = np.asarray(topk[2] if isinstance(topk, tuple) and len(topk) == 3 else topk)
    if indices.ndim != 2 or indices.dtype.kind not in "iu":
        raise ValueError(
            "the ranked labels must be an integer array of shape (n_samples, n_places) or the named tuple of "
            f"predict_topk; got dtype {indices.dtype}, shape {indices.shape}"
        )
    return indices.astype(np.int64, copy=False)


def has_columns(y: Any) -> bool:
    """Whether targets are an indicator, and not labels or sets of labels; rows of floats 0 and 1 are one, too."""
    if sparse.issparse(y) or getattr(y, "ndim", 0) == 2:
        return True
    if isinstance(y, list) and y and all(isinstance(row, list) and len(row) == len(y[0]) > 1 for row in y):
        return {0.0, 1.0}.issuperset(value for row in y for value in row)
    return is_indicator(unwrap(y))


def check_label_pair(y_true: Any, y_pred: Any, labels: Any) -> tuple[Any, Any]:
    """True and predicted labels, in any form that `fit` takes, as canonical indicators with the same columns.

    The columns are those of `labels`, which names the columns of an indicator where the other side has labels, and
    after them one for each other label that is true or predicted.
    """
    sides = {"Y_true": y_true, "Y_pred": y_pred}
    matrices = {name: check_indicator(y, name) for name, y in sides.items() if has_columns(y)}
    if len(matrices) == 2 and labels is None:
        truth, prediction = matrices.values()
    elif matrices and labels is None:
        raise ValueError(
            f"{next(iter(matrices))} is an indicator and the other side has labels; say which labels the "
            "columns are: labels=model.classes_"
        )
    else:
        truth, prediction = _with_the_same_columns(
            sides, matrices, [] if labels is None else np.asarray(labels).tolist()
        )
    if truth.shape != prediction.shape:
        raise ValueError(f"Y_true and Y_pred must have the same shape; got {truth.shape} and {prediction.shape}")
    return truth, prediction


def _with_the_same_columns(sides: dict[str, Any], matrices: dict[str, Any], labels: list[Any]) -> list[Any]:
    """Both sides in the columns of `labels` and of what else occurs."""
    sets = {name: label_sets(y) for name, y in sides.items() if name not in matrices}
    for name, given in sets.items():
        other = next((side.labels for other, side in sets.items() if other != name), labels)
        check_same_kind(given.labels, other, name)
    every = list(dict.fromkeys([*labels, *(label for given in sets.values() for label in given.labels)]))
    classes = np.empty(len(every), dtype=object)
    classes[:] = every
    encoding = LabelEncoding("multiclass", classes)

    def in_columns(name: str) -> Any:
        if name in sets:
            return encoding.indicator_with_unknown(sides[name])
        Y = matrices[name]
        if Y.shape[1] != len(labels):
            raise ValueError(f"{name} has {Y.shape[1]} columns, but labels names {len(labels)}")
        return sparse.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], len(every)))

    return [in_columns(name) for name in sides]


def check_same_kind(labels: list[Any], others: list[Any], name: str) -> None:
    """Raise when one side has text and the other numbers: no label would ever be found."""
    kinds = [{isinstance(label, str) for label in side} for side in (labels, others)]
    if all(len(kind) == 1 for kind in kinds) and kinds[0] != kinds[1]:
        raise ValueError(
            f"{name} holds {'text' if kinds[0] == {True} else 'numbers'}, such as {labels[0]!r}, and the labels it is "
            f"compared with are like {others[0]!r}; use the same labels on both sides"
        )


def check_true_labels(Y_true: Any, topk: Any) -> Any:
    """True labels in any form that `fit` takes as a canonical indicator in the columns of ranked labels.

    Labels need the classes that `predict_topk` puts into its result; those that are none get columns at the end.
    """
    if has_columns(Y_true):
        return check_indicator(Y_true, "Y_true")
    classes = getattr(topk, "classes", None)
    if classes is None:
        raise ValueError(
            "Y_true holds labels, so the ranked labels must be the result of predict_topk, which knows the classes; or "
            "give both as numbers: an indicator of shape (n_samples, n_labels), and indices"
        )
    check_same_kind(label_sets(Y_true).labels, classes.tolist(), "Y_true")
    return LabelEncoding("multiclass", classes).indicator_with_unknown(Y_true)


def check_ranking(Y_true: Any, topk: Any) -> tuple[Any, Ints]:
    """Canonical indicator and ranked indices that fit each other: same rows, labels in range, none twice in a row."""
    Y, indices = check_true_labels(Y_true, topk), check_indices(topk)
    if Y.shape[0] != indices.shape[0]:
        raise ValueError(
            f"Y_true and the ranked labels must have the same number of rows; got shapes {Y.shape} and {indices.shape}"
        )
    outside = (indices >= Y.shape[1]) | (indices < MISSING)
    if outside.any():
        row, place = np.argwhere(outside)[0]
        raise ValueError(
            f"label index {indices[row, place]} in row {row}, place {place} is out of range: Y_true has "
            f"{Y.shape[1]} labels (0 to {Y.shape[1] - 1}; {MISSING} marks a missing place)"
        )
    check_no_repeats(indices)
    return Y, indices


def check_no_repeats(indices: Ints) -> None:
    """Raise when a label is listed twice in a row, which would count it twice."""
    ordered = np.sort(indices, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != MISSING)
    if repeated.any():
        row, place = np.argwhere(repeated)[0]
        raise ValueError(f"label index {ordered[row, place]} is listed twice in row {row}")


def check_weights(sample_weight: Any, n_samples: int) -> Floats:
    """Weights of shape (n_samples,), all one by default; finite, not negative, not all zero."""
    if n_samples == 0:
        raise ValueError("a metric needs at least one row; got none")
    if sample_weight is None:
        return np.ones(n_samples)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight must have shape ({n_samples},); got {weights.shape}")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError("sample_weight must be finite and not negative")
    if not weights.any():
        raise ValueError("sample_weight must not be zero for every row")
    return weights


def hits(indices: Ints, Y: Any) -> Bools:
    """out[i, j] = Y[i, indices[i, j]], False at missing places; Y canonical, so its keys row·L + label ascend."""
    n_samples, n_labels = Y.shape
    rows = np.arange(n_samples, dtype=np.int64)
    true_keys = np.repeat(rows * n_labels, np.diff(Y.indptr)) + Y.indices
    if len(true_keys) == 0:
        return np.zeros(indices.shape, dtype=np.bool_)
    keys = rows[:, None] * n_labels + indices
    found = np.minimum(np.searchsorted(true_keys, keys), len(true_keys) - 1)
    is_true: Bools = (true_keys[found] == keys) & (indices != MISSING)
    return is_true


def weights_of_rows(Y: Any, sample_weight: Any, empty: Empty) -> Floats:
    """Checked sample weights, with rows without labels at weight 0 under `empty="skip"`."""
    check_choice(empty, "empty", ("zero", "skip"))
    weights = check_weights(sample_weight, Y.shape[0])
    if empty == "skip":
        weights = np.where(np.diff(Y.indptr) > 0, weights, 0.0)
        if not weights.any():
            raise ValueError('no row of positive weight has a label, so empty="skip" leaves nothing; use empty="zero"')
    return weights


def mean_over_rows(values: Floats, weights: Floats) -> Floats:
    """out[j] = Σ_i weights[i]·values[i, j] / Σ_i weights[i]; summed in one order: a mean of ones is exactly 1."""
    totals: Floats = np.multiply(values.T, weights, order="C").sum(axis=1)
    return totals / float(weights.sum())


def number_or_array(values: Floats, single: bool) -> Any:
    """The only value as a float when k was a single number, the array otherwise."""
    return float(values[0]) if single else values


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
