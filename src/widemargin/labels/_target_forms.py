"""The forms in which targets come, each brought to one: a one-dimensional array, a CSR indicator, or label sets.

Errors say what scikit-learn's own say ("Unknown label type: …", "Input y contains NaN."), so that its estimator
checks and its users recognise them. Nothing here densifies; a canonical CSR keeps its index arrays uncopied.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.labels._names import is_missing

__all__ = ["LabelSets", "as_indicator", "as_label_sets", "as_labels", "is_indicator", "is_label_sets", "unwrap"]

SET_TYPES = (set, frozenset, list, tuple, np.ndarray)


class LabelSets(NamedTuple):
    """Label sets end to end: row i has ``labels[indptr[i]:indptr[i + 1]]``."""

    labels: list[Any]
    indptr: npt.NDArray[np.int64]


def unwrap(y: Any) -> Any:
    """Targets as a sparse matrix, a NumPy array, or a list whose rows are label sets."""
    if sparse.issparse(y):
        return y
    if hasattr(y, "to_numpy"):  # pandas and polars
        y = y.to_numpy()
    if not isinstance(y, np.ndarray):
        if is_label_sets(y) and not _is_listed_indicator(y):
            return list(y)
        y = np.asarray(y)
    if y.ndim == 1 and is_label_sets(y):
        return list(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.ravel()  # a column of labels, as scikit-learn's type_of_target sees it
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y should be a 1d array, an indicator or a list of label sets, got an array of shape {y.shape}"
        )
    return y


def is_label_sets(y: Any) -> bool:
    """Whether y is a sequence with a set, list, tuple or array for each row."""
    if isinstance(y, np.ndarray) and (y.ndim != 1 or y.dtype != object):
        return False
    return isinstance(y, list | tuple | np.ndarray) and len(y) > 0 and isinstance(y[0], SET_TYPES)


def _is_listed_indicator(y: Any) -> bool:
    """Whether y is rows of zeros and ones, two or more and equally many: an indicator as scikit-learn reads it."""
    width = len(y[0])
    if width < 2 or any(not isinstance(row, list | tuple | np.ndarray) or len(row) != width for row in y):
        return False
    return all(isinstance(value, int | np.integer | np.bool_) and value in (0, 1) for row in y for value in row)


def is_indicator(y: Any) -> bool:
    """Whether unwrapped targets are a matrix with a column for each label."""
    return sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2)


def as_labels(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One label a row, checked: no missing value, no fraction; NumPy strings of variable width become objects."""
    kind = y.dtype.kind
    if kind == "T":
        y, kind = y.astype(object), "O"
    if kind not in "biufUSO":
        raise ValueError(f"Unknown label type: unknown. y has dtype {y.dtype}; use strings, integers or booleans.")
    if kind == "f":
        _refuse_fractions(y)
    if kind == "O" and any(is_missing(label) for label in y.tolist()):
        raise ValueError("Input y contains NaN.")
    if kind == "O" and all(type(label) is float for label in y.tolist()):
        _refuse_fractions(y.astype(np.float64))
    return y


def as_label_sets(y: list[Any]) -> LabelSets:
    """Label sets end to end, checked row by row."""
    for row, labels in enumerate(y):
        if not isinstance(labels, SET_TYPES):
            raise ValueError(f"y[{row}] is {labels!r}, but other rows of y are label sets; write [{labels!r}]")
    plain = [labels.tolist() if isinstance(labels, np.ndarray) else labels for labels in y]
    labels = [label.item() if isinstance(label, np.generic) else label for label in chain.from_iterable(plain)]
    if any(is_missing(label) for label in labels):
        raise ValueError("Input y contains NaN.")
    return LabelSets(labels, np.concatenate([[0], np.cumsum([len(row) for row in plain], dtype=np.int64)]))


def as_indicator(y: Any) -> Any:
    """CSR indicator of int8 ones, shape (n, n_columns), sorted, without zeros or duplicates; the input is untouched."""
    rows = _stored_rows(y)
    if rows.dtype.kind == "f" and not np.isfinite(rows.data).all():
        raise ValueError(f"Input y contains {'NaN' if np.isnan(rows.data).any() else 'infinity'}.")
    _refuse_other_values(rows)
    if not rows.has_canonical_format or not rows.data.all():
        # Into a wider type first: a label stored 128 times would overflow int8 to 0 or below.
        rows = sparse.csr_array((rows.data.astype(np.int64), rows.indices, rows.indptr), shape=rows.shape, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
    ones = np.ones(rows.nnz, dtype=np.int8)
    return sparse.csr_array((ones, rows.indices, rows.indptr), shape=rows.shape)


def _stored_rows(y: Any) -> Any:
    """The stored entries of a matrix as CSR of numbers, duplicates kept apart."""
    if not sparse.issparse(y):
        return sparse.csr_array(_numeric(y))
    if y.ndim != 2 or y.dtype.kind not in "biuf":
        raise ValueError(f"Unknown label type: unknown. y is sparse of dtype {y.dtype} and shape {y.shape}")
    if isinstance(y, sparse.coo_array | sparse.coo_matrix):  # its own conversion would add duplicates up
        order = np.argsort(y.row, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(y.row, minlength=y.shape[0]))])
        return sparse.csr_array((y.data[order], y.col[order], indptr), shape=y.shape)
    rows = sparse.csr_array(y)
    used = rows.indptr[-1]  # arrays may be longer than what is in use
    return sparse.csr_array((rows.data[:used], rows.indices[:used], rows.indptr), shape=rows.shape)


def _numeric(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A dense indicator of numbers; objects, such as a table of integer and boolean columns, become numbers."""
    if y.dtype.kind in "biuf":
        return y
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Unknown label type: unknown. y has shape {y.shape} and dtype {y.dtype}; an indicator holds 0 and 1 only, "
            "and several labels a row are a list of sets."
        ) from error


def _refuse_fractions(y: npt.NDArray[np.floating[Any]]) -> None:
    """Floats are labels only if they are whole numbers."""
    if np.isnan(y).any():
        raise ValueError("Input y contains NaN.")
    if np.isinf(y).any():
        raise ValueError(f"Input y contains infinity or a value too large for {y.dtype!r}.")
    if np.any(y != np.floor(y)):
        first = y[y != np.floor(y)][0]
        raise ValueError(
            f"Unknown label type: continuous. y contains {first}; a classifier needs discrete labels, "
            "not the continuous values of a regression target."
        )


def _refuse_other_values(rows: Any) -> None:
    """Name the first stored value of a CSR matrix that is neither 0 nor 1."""
    other = np.flatnonzero((rows.data != 0) & (rows.data != 1))
    if other.size:
        row = int(np.searchsorted(rows.indptr, other[0], side="right")) - 1
        raise ValueError(
            f"Unknown label type: multiclass-multioutput. y[{row}, {rows.indices[other[0]]}] is "
            f"{rows.data[other[0]]}; an indicator holds 0 and 1 only."
        )
