"""Checks of code matrices, and how far apart their rows and columns are.

    row separation      min over r ≠ s of Σ_j (1 − M_rj M_sj)/2
    column separation   min over i ≠ j of (n_classes − |Σ_r M_ri M_rj|)/2

Rows that coincide can never be told apart, a column without both signs asks nothing: errors. Equal or opposite columns
are the same binary problem twice: a warning. Memory: a bounded block of products of rows.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Code",
    "check_code",
    "check_count",
    "column_separation",
    "has_twin_columns",
    "is_usable",
    "oriented_columns",
    "row_separation",
]

Code: TypeAlias = npt.NDArray[np.int8]

BLOCK_ENTRIES = 1 << 22
"""Entries of the block of products of rows that is held while separations are measured (32 MB of float64)."""


def check_code(code: npt.ArrayLike) -> Code:
    """A given code matrix as int8, or an error that says what makes it useless.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        Entries −1, 0 and +1. Equal or opposite columns are allowed, with a warning: they are the same binary problem.

    Returns
    -------
    ndarray of int8 of shape (n_classes, n_columns)
        The code.

    Examples
    --------
    >>> from widemargin.labels.codes import check_code
    >>> check_code([[1, -1], [1, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    ValueError: column 0 of the code has no entry -1: it asks nothing of the classes; drop it or give it both signs
    """
    given = np.asarray(code)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"the code must hold numbers; got dtype {given.dtype}")
    if given.ndim != 2 or given.shape[0] < 2 or given.shape[1] < 1:
        raise ValueError(f"the code must have a row for each of 2 or more classes, and a column; got {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError("the code holds NaN or infinity; its entries are -1, 0 and +1")
    if not np.isin(given, (-1, 0, 1)).all():
        raise ValueError(f"the entries of a code are -1, 0 and +1; got {given[~np.isin(given, (-1, 0, 1))][0]}")
    matrix = given.astype(np.int8)
    _check_rows(matrix)
    _check_columns(matrix)
    return matrix


def row_separation(code: npt.ArrayLike) -> float:
    """Smallest distance Σ_j (1 − M_rj M_sj)/2 of two rows r ≠ s; a column with a 0 counts one half.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        The code.

    Returns
    -------
    float
        The separation: of a dense code, (separation − 1)/2 wrong columns are corrected.

    Examples
    --------
    >>> from widemargin.labels.codes import exhaustive_code, row_separation
    >>> row_separation(exhaustive_code(4))
    4.0
    """
    rows = np.asarray(code, dtype=np.float64)
    return 0.5 * (float(rows.shape[1]) - _largest_product(rows, opposite_too=False))


def column_separation(code: npt.ArrayLike) -> float:
    """Smallest distance of two columns, or of one and the opposite of the other; inf for a single column.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        The code.

    Returns
    -------
    float
        The separation; 0 of a dense code when two columns are equal or opposite.

    Examples
    --------
    >>> from widemargin.labels.codes import column_separation, one_vs_rest_code
    >>> column_separation(one_vs_rest_code(5))
    2.0
    """
    columns = np.asarray(code, dtype=np.float64).T
    return 0.5 * (float(columns.shape[1]) - _largest_product(columns, opposite_too=True))


def _largest_product(rows: npt.NDArray[np.float64], *, opposite_too: bool) -> float:
    """Largest ⟨u, v⟩ (or |⟨u, v⟩|) of two different rows, in blocks; −inf if there is only one."""
    largest = -np.inf
    step = max(1, BLOCK_ENTRIES // max(1, len(rows)))
    for start in range(0, len(rows), step):
        products = rows[start : start + step] @ rows.T
        if opposite_too:
            np.abs(products, out=products)
        here = np.arange(len(products))
        products[here, start + here] = -np.inf
        largest = max(largest, float(products.max()))
    return largest


def check_count(value: Any, name: str, least: int) -> int:
    """`value` as an int of at least `least`, or an error that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    count = operator.index(value)
    if count < least:
        raise ValueError(f"{name} must be at least {least}; got {count}")
    return count


def is_usable(code: Code) -> bool:
    """Whether rows differ and are not zero, and every column has both signs."""
    both = (code > 0).any(axis=0) & (code < 0).any(axis=0)
    return bool(both.all() and code.any(axis=1).all()) and _first_twin(code) is None


def has_twin_columns(code: Code) -> bool:
    """Whether two columns are equal or opposite."""
    return _first_twin(oriented_columns(code).T) is not None


def oriented_columns(code: Code) -> Code:
    """Columns with the first entry that is not 0 made positive: a column and its opposite become equal."""
    oriented: Code = code * code[(code != 0).argmax(axis=0), np.arange(code.shape[1])]
    return oriented


def _check_rows(code: Code) -> None:
    empty = np.flatnonzero(~code.any(axis=1))
    if len(empty):
        raise ValueError(f"row {empty[0]} of the code is all zero: its class is in no binary problem")
    twins = _first_twin(code)
    if twins is not None:
        raise ValueError(f"rows {twins[0]} and {twins[1]} of the code are equal: their classes cannot be told apart")


def _check_columns(code: Code) -> None:
    for value in (1, -1):
        without = np.flatnonzero(~(code == value).any(axis=0))
        if len(without):
            what = f"has no entry {value:+d}" if code[:, without[0]].any() else "is all zero"
            raise ValueError(
                f"column {without[0]} of the code {what}: it asks nothing of the classes; drop it or give it both signs"
            )
    twins = _first_twin(oriented_columns(code).T)
    if twins is not None:
        relation = "equal" if np.array_equal(code[:, twins[0]], code[:, twins[1]]) else "opposite"
        warnings.warn(
            f"columns {twins[0]} and {twins[1]} of the code are {relation}: the same binary problem is trained twice",
            UserWarning,
            stacklevel=3,
        )


def _first_twin(rows: Code) -> tuple[int, int] | None:
    """Indices of two equal rows, or None."""
    order = np.lexsort(rows.T)
    same = np.flatnonzero((rows[order[1:]] == rows[order[:-1]]).all(axis=1))
    if not len(same):
        return None
    pair = sorted((int(order[same[0]]), int(order[same[0] + 1])))
    return pair[0], pair[1]
