"""Parts of the data: folds, shares of the rows, labels as classes, and rows made by a transformer of the fold alone.

A transformer, such as a vectoriser of text, is fitted on the training rows of a fold only: what it learns of the
held-out rows (their words, how frequent they are) would make these look easier than new ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import _safe_indexing

from widemargin.labels.encoding import encode_targets

__all__ = ["Fold", "Rows", "as_targets", "classes_of_lists", "n_rows_of", "part_of", "splits", "take", "transformed"]

Rows = npt.NDArray[np.int64]


class Fold(NamedTuple):
    """Training and held-out rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def transformed(fold: Fold, transformer: Any) -> Fold:
    """The fold as a transformer shows it that was fitted on its training rows; as it is without one."""
    if transformer is None:
        return fold
    fitted = clone(transformer)
    X = fitted.fit_transform(fold.X, fold.y)
    return Fold(X, fold.y, fitted.transform(fold.X_test), fold.y_test)


def n_rows_of(X: Any) -> int:
    """Number of rows of an array or of a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take(X: Any, y: Any, rows: Rows) -> tuple[Any, Any]:
    """These rows, and their labels."""
    return _safe_indexing(X, rows), _safe_indexing(y, rows)


def part_of(y: Any, n_rows: int, share: float, kind: str, seed: int) -> Rows:
    """So many of the rows at random, but at least one of each class where a row has one label."""
    order = np.random.default_rng(seed).permutation(n_rows)
    kept = order[: max(1, round(share * n_rows))]
    if kind != "multilabel":
        kept = np.union1d(kept, np.unique(np.asarray(y), return_index=True)[1])
    rows: Rows = np.sort(kept)
    return rows


def splits(y: Any, n_rows: int, n_folds: int, kind: str, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Training and held-out rows, stratified where a row has one label."""
    dummy = np.zeros(n_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with fewer rows than folds
        if kind == "multilabel":
            yield from KFold(n_folds, shuffle=True, random_state=seed).split(dummy)
        else:
            yield from StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(dummy, np.asarray(y))


def as_targets(y: Any) -> Any:
    """Labels in a form whose rows can be taken: arrays as they are, lists of label sets too, other lists as arrays."""
    is_list_of_sets = isinstance(y, list) and bool(y) and isinstance(y[0], list | tuple | set | frozenset)
    return y if hasattr(y, "shape") or is_list_of_sets else np.asarray(y)


def classes_of_lists(y: Any, *, or_none: bool = False) -> Any:
    """The label of each row where y is lists, or an indicator, with exactly one label in every row; otherwise None.

    With `or_none` rows may also have none, as those of a test file whose label is not one of the training rows; theirs
    is None then.

    Examples
    --------
    >>> from widemargin.comparison._rows import classes_of_lists
    >>> classes_of_lists([["cat"], ["dog"], ["cat"]]).tolist()
    ['cat', 'dog', 'cat']
    >>> classes_of_lists([["cat"], ["dog", "cat"]]) is None
    True
    """
    targets = encode_targets(y)
    if targets.kind != "multilabel":
        return None
    counts, columns = np.diff(targets.Y.indptr), targets.Y.indices
    if counts.max(initial=0) > 1 or (not or_none and (counts.min(initial=1) != 1 or len(np.unique(columns)) < 2)):
        return None
    if counts.min(initial=1) == 0:
        labels = np.full(len(counts), None, dtype=object)
        labels[counts == 1] = targets.classes[columns]
        return labels
    return targets.classes[columns]
