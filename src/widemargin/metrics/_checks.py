"""Input checks and sparse look-ups that the metrics share.

Every metric checks its input here once, and then works on three things: `indices`, an int64 array of shape
(n, K) of labels in order of score, best first, −1 for a missing place; `Y`, a canonical CSR indicator of shape (n, L);
and `weights`, float64 of shape (n,). Memory is O(n·K + nnz(Y)): Y is never made dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

__all__: list[str] = []

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


def check_ranking(Y_true: Any, topk: Any) -> tuple[Any, Ints]:
    """Canonical indicator and ranked indices that fit each other: same rows, labels in range, none twice in a row."""
    Y, indices = check_indicator(Y_true, "Y_true"), check_indices(topk)
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
