"""Input checks and sparse look-ups that the metrics share, and the ties past the ends of ranked lists.

Every metric checks its input here once, and then works on three things: `indices`, an int64 array of shape
(n, K) of labels in order of score, best first, −1 for a missing place; `Y`, a canonical CSR indicator of shape (n, L);
and `weights`, float64 of shape (n,). Memory is O(n·K + nnz(Y)): Y is never made dense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.labels.encoding import LabelEncoding, is_indicator, label_sets, unwrap

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = int | Sequence[int] | npt.NDArray[np.integer[Any]]

MISSING = -1
"""Index of a place that `predict_topk` could not fill."""
MOST_TIED = 1_000_000
"""Largest number of labels kept past the ends of the lists, in addition to as many as are listed: 5 MB, 50 MB on the
way."""
BLOCK_SCORES = 1 << 21
"""Number of scores of rows that end within a tie, at a time; 16 MB."""


def check_choice(value: object, name: str, choices: Sequence[object]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_places(k: Places) -> tuple[Ints, bool]:
    """`k` as an array of positive integers, and whether it was a single number."""
    places = np.asarray(k)
    if places.dtype.kind not in "iu" or places.ndim > 1 or places.size == 0:
        raise ValueError(f"k must be an integer or a nonempty sequence of integers; got {k!r}")
    if places.min() < 1:
        raise ValueError(f"k must be at least 1; got {k!r}")
    return np.atleast_1d(places).astype(np.int64), places.ndim == 0


def check_enough_places(places: Ints, n_places: int) -> None:
    """Raise unless lists of `n_places` reach as far as every k."""
    longest = int(places.max())
    if longest > n_places:
        raise ValueError(
            f"k={longest} exceeds the length of the ranked lists, {n_places}; use predict_topk with k={longest} or more"
        )


def check_indicator(Y: Any, name: str) -> Any:
    """`Y` as a canonical CSR indicator of shape (n, L) without stored zeros; the caller's matrix is not changed."""
    matrix = sparse.csr_array(Y)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (samples, labels); got shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name} must contain zeros and ones; got dtype {matrix.dtype}")
    tidy = matrix.has_canonical_format and bool(np.all(matrix.data))
    if not tidy:
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    wrong = matrix.data != 1
    if wrong.any():
        raise ValueError(
            f"{name} must be an indicator matrix of zeros and ones, but contains {matrix.data[wrong][0]!s}; check for "
            "repeated entries, counts or weights"
        )
    return matrix


def check_indices(topk: Any) -> Ints:
    """Ranked label indices of shape (n, K), from that array itself or from the result of `predict_topk`."""
    indices = np.asarray(topk[2] if isinstance(topk, tuple) and len(topk) == 3 else topk)
    if indices.ndim != 2 or indices.dtype.kind not in "iu":
        raise ValueError(
            "the ranked labels must be an integer array of shape (n_samples, n_places) or the named tuple returned by "
            f"predict_topk; got dtype {indices.dtype}, shape {indices.shape}"
        )
    return indices.astype(np.int64, copy=False)


def has_columns(y: Any) -> bool:
    """Whether targets are an indicator, not labels or label sets; rows of floats 0 and 1 are an indicator too."""
    if sparse.issparse(y) or getattr(y, "ndim", 0) == 2:
        return True
    if isinstance(y, list) and y and all(isinstance(row, list) and len(row) == len(y[0]) > 1 for row in y):
        return {0.0, 1.0}.issuperset(value for row in y for value in row)
    return is_indicator(unwrap(y))


def check_label_pair(y_true: Any, y_pred: Any, labels: Any) -> tuple[Any, Any]:
    """True and predicted labels, in any form that `fit` takes, as canonical indicators with the same columns.

    The columns are the `labels`, which name the columns of an indicator if the other side has labels, followed by each
    other label that is true or predicted.
    """
    sides = {"Y_true": y_true, "Y_pred": y_pred}
    matrices = {name: check_indicator(y, name) for name, y in sides.items() if has_columns(y)}
    if len(matrices) == 2 and labels is None:
        truth, prediction = matrices.values()
    elif matrices and labels is None:
        raise ValueError(
            f"{next(iter(matrices))} is an indicator matrix, but the other argument contains labels; pass the labels "
            "of its columns, as in labels=model.classes_"
        )
    else:
        truth, prediction = _with_the_same_columns(
            sides, matrices, [] if labels is None else np.asarray(labels).tolist()
        )
    if truth.shape != prediction.shape:
        raise ValueError(f"Y_true and Y_pred must have the same shape; got shapes {truth.shape} and {prediction.shape}")
    return truth, prediction


def _with_the_same_columns(sides: dict[str, Any], matrices: dict[str, Any], labels: list[Any]) -> list[Any]:
    """Both sides in the columns of `labels` and of the other labels that occur."""
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
            raise ValueError(
                f"{name} has {Y.shape[1]} columns, but labels has {len(labels)} names; pass one name per column"
            )
        return sparse.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], len(every)))

    return [in_columns(name) for name in sides]


def check_same_kind(labels: list[Any], others: list[Any], name: str) -> None:
    """Raise if one side has text and the other numbers: no label would ever be found."""
    kinds = [{isinstance(label, str) for label in side} for side in (labels, others)]
    if all(len(kind) == 1 for kind in kinds) and kinds[0] != kinds[1]:
        raise ValueError(
            f"{name} contains {'text' if kinds[0] == {True} else 'numbers'}, such as {labels[0]!r}, but is compared "
            f"with labels such as {others[0]!r}; use the same kind of labels for both"
        )


def check_true_labels(Y_true: Any, topk: Any) -> Any:
    """True labels, in any form that `fit` takes, as a canonical indicator in the columns of ranked labels.

    Labels need the classes that `predict_topk` puts into its result; unknown labels get columns at the end.
    """
    if has_columns(Y_true):
        return check_indicator(Y_true, "Y_true")
    classes = getattr(topk, "classes", None)
    if classes is None:
        raise ValueError(
            "Y_true contains labels, so the ranked labels must be the result of predict_topk, which includes the "
            "classes; otherwise, pass an indicator matrix of shape (n_samples, n_labels) and an array of indices"
        )
    check_same_kind(label_sets(Y_true).labels, classes.tolist(), "Y_true")
    return LabelEncoding("multiclass", classes).indicator_with_unknown(Y_true)


def check_ranking(Y_true: Any, topk: Any, k: Places) -> tuple[Any, Ints, Ints, bool]:
    """Canonical indicator and ranked indices that fit each other and every k; then `check_places`.

    They fit if they have the same rows, labels in range, none twice in a row, and lists of at least k places.
    """
    Y, indices, (places, single) = check_true_labels(Y_true, topk), check_indices(topk), check_places(k)
    if Y.shape[0] != indices.shape[0]:
        raise ValueError(
            f"Y_true and the ranked labels must have the same number of rows; got shapes {Y.shape} and {indices.shape}"
        )
    outside = (indices >= Y.shape[1]) | (indices < MISSING)
    if outside.any():
        row, place = np.argwhere(outside)[0]
        raise ValueError(
            f"label index {indices[row, place]} in row {row}, place {place} is out of range: Y_true has {Y.shape[1]} "
            f"labels (0 to {Y.shape[1] - 1}; {MISSING} marks an empty place)"
        )
    check_no_repeats(indices)
    check_enough_places(places, indices.shape[1])
    return Y, indices, places, single


def check_no_repeats(indices: Ints) -> None:
    """Raise if a label is listed twice in a row, which would count it twice."""
    ordered = np.sort(indices, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != MISSING)
    if repeated.any():
        row, place = np.argwhere(repeated)[0]
        raise ValueError(f"label index {ordered[row, place]} occurs twice in row {row}; list each label once")


def check_weights(sample_weight: Any, n_samples: int) -> Floats:
    """Weights of shape (n_samples,), all one by default; finite, not negative, not all zero."""
    if n_samples == 0:
        raise ValueError("there are no rows; a metric requires at least one")
    if sample_weight is None:
        return np.ones(n_samples)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight must have shape ({n_samples},); got shape {weights.shape}")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError("sample_weight must be finite and nonnegative")
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


def mean_over_rows(values: Floats, weights: Floats) -> Floats:
    """out[j] = Σ_i weights[i]·values[i, j] / Σ_i weights[i]; summed in one order: a mean of ones is exactly 1."""
    totals: Floats = np.multiply(values.T, weights, order="C").sum(axis=1)
    return totals / float(weights.sum())


def number_or_array(values: Floats, single: bool) -> Any:
    """The only value as a float if k was a single number, otherwise the array."""
    return float(values[0]) if single else values


class Tied(NamedTuple):
    """Labels past the ends of lists with the score of the last listed label.

    Parameters
    ----------
    labels : csr_array of int8 of shape (n_samples, n_labels)
        Their indicator; empty for rows whose lists do not end within a tie.
    left_out : ndarray of bool of shape (n_samples,)
        Rows whose ties are not in `labels` because there were too many.
    """

    labels: Any
    left_out: Bools


@lru_cache(maxsize=8)
def no_ties(n_samples: int, n_labels: int) -> Tied:
    """The ties of lists none of which ends within one; shared and read-only, as scipy takes 13 µs to make it."""
    labels, left_out = sparse.csr_array((n_samples, n_labels), dtype=np.int8), np.zeros(n_samples, dtype=bool)
    for part in (labels.data, labels.indices, labels.indptr, left_out):
        part.setflags(write=False)
    return Tied(labels, left_out)


def find_tied(indices: Ints, scores: Any, k: int, n_labels: int, labels_tied: Callable[[Ints], Bools]) -> Tied:
    """The labels that are tied with place k.

    Parameters
    ----------
    indices, scores : ndarray of shape (n_samples, k + 1 or more), or (n_samples, k) if these are all labels
        Lists with one more place than k.
    k : int
        Length of the lists that are returned.
    n_labels : int
        Number of labels.
    labels_tied : callable
        Which labels of some rows have the score of place k, listed ones included, as an array (n_rows, n_labels).

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
    if len(rows) == 0:
        return no_ties(len(scores), n_labels)
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
    """Ties of successive blocks of rows; None if there is no block."""
    if not parts:
        return None
    labels, left_out = zip(*parts, strict=True)
    return Tied(sparse.vstack(labels, format="csr"), np.concatenate(left_out))
