"""Random draws of code matrices, arranged so that a draw is nearly always usable.

With few columns the rows are drawn without replacement from the 2^n_columns words, with many the columns from the
2^(n_classes − 1) − 1 splits of the classes: drawing entries one by one would make two rows, or two columns, coincide in
almost every draw of a tight code. Memory: the code.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from widemargin.labels.code_checks import Code, oriented_columns

__all__ = ["check_rows_can_differ", "draw_dense", "draw_sparse", "numbered_columns"]

MOST_NUMBERED_CLASSES = 62
"""Columns of codes with up to this many classes are drawn as int64 numbers, without replacement."""
TWIN_REDRAWS = 50
"""How often rows and columns of a sparse code that coincide are drawn again; then they are taken as unavoidable."""
SPARSE_VALUES = np.array([-1, 0, 0, 1], dtype=np.int8)  # one half of zeros (Allwein, Schapire, Singer, JMLR 2000)


def check_rows_can_differ(n_classes: int, n_columns: int, sparse: bool) -> None:
    """An error if there are fewer words of n_columns letters than classes; the word of zeros is not used."""
    n_words = 3**n_columns - 1 if sparse else 2**n_columns
    if n_words < n_classes:
        raise ValueError(
            f"{n_columns} column(s) have {n_words} different rows, too few for {n_classes} classes; use more"
        )


def numbered_columns(numbers: npt.NDArray[np.int64], n_classes: int) -> Code:
    """Columns by number: +1 for the first class, and bit r − 1 of the number says whether class r is on its side."""
    bits = (numbers[None, :] >> np.arange(n_classes - 1)[:, None]) & 1
    # Number 0 would be the constant column with every bit clear; clear bits mean +1, so that it is never asked for.
    return np.vstack([np.ones(len(numbers), dtype=np.int8), 1 - 2 * bits]).astype(np.int8)


def draw_dense(rng: np.random.Generator, n_classes: int, n_columns: int) -> Code:
    """A code of signs; rows or columns may still coincide, but rarely."""
    n_splits = 2 ** (n_classes - 1) - 1
    if n_columns < n_splits and 2**n_columns <= n_classes**2:
        words = rng.choice(2**n_columns, n_classes, replace=False)
        bits = (words[:, None] >> np.arange(n_columns)) & 1
        return (2 * bits - 1).astype(np.int8)
    if n_classes > MOST_NUMBERED_CLASSES:  # two of so many splits hardly ever coincide
        return rng.choice(np.array([-1, 1], dtype=np.int8), (n_classes, n_columns))
    whole, rest = divmod(n_columns, n_splits)  # all splits as often as they fit, then some of them once more
    numbers = 1 + np.concatenate(
        [np.tile(np.arange(n_splits if whole else 0), whole), rng.choice(n_splits, rest, False)]
    )
    signs = rng.choice(np.array([-1, 1], dtype=np.int8), n_columns)
    code: Code = numbered_columns(rng.permutation(numbers), n_classes) * signs
    return code


def draw_sparse(rng: np.random.Generator, n_classes: int, n_columns: int) -> Code:
    """A code with zeros; columns without both signs are drawn again, and for a while rows and columns that coincide."""
    code = rng.choice(SPARSE_VALUES, (n_classes, n_columns))
    for n_draws in itertools.count():
        wanted = (code > 0).any(axis=0) & (code < 0).any(axis=0)
        good_rows = np.ones(n_classes, dtype=bool)
        if n_draws < TWIN_REDRAWS:
            wanted &= _is_first(oriented_columns(code).T)
            good_rows = _is_first(code) & code.any(axis=1)
        if wanted.all() and good_rows.all():
            break
        code[:, ~wanted] = rng.choice(SPARSE_VALUES, (n_classes, n_columns - np.count_nonzero(wanted)))
        code[~good_rows] = rng.choice(SPARSE_VALUES, (n_classes - np.count_nonzero(good_rows), n_columns))
    return code


def _is_first(rows: Code) -> npt.NDArray[np.bool_]:
    """Whether no earlier row is equal, for each row."""
    first = np.zeros(len(rows), dtype=bool)
    first[np.unique(rows, axis=0, return_index=True)[1]] = True
    return first
