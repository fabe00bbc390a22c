"""Targets in any form become a sparse indicator and a list of classes, once; class numbers become labels again.

    Y_il = 1 if row i has label l, else 0           (n_samples × n_classes, CSR of int8)

Forms of y: one label per row (list, array, Series; strings, integers, booleans, whole floats), an indicator (sparse, a
dense array, or a data frame, whose column names are the labels; at least two columns), or one label set per row (sets,
lists or tuples; empty ones allowed). Lists of zeros and ones, two or more and equally many per row, are an indicator,
as in scikit-learn; other lists of lists are label lists, and sets are always label sets. Errors use scikit-learn's
words ("Unknown label type: …", "Input y contains NaN."), which its estimator checks and its users recognise. Memory:
the non-zeros; nothing is densified, and a canonical CSR indicator shares its index arrays.

The second half deals with names of labels and nodes: plain values, missing ones, and how messages show them.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.exceptions import DataFormatError
from widemargin.labels.tree import IntArray

__all__ = [
    "EncodedTargets", "LabelEncoding", "LabelSets", "TargetKind", "as_indicator", "as_label_sets", "encode_targets",
    "in_use", "is_indicator", "is_several", "label_sets", "listed", "look_up", "many", "plain_name", "plain_names",
    "unwrap",
]  # fmt: skip

TargetKind = Literal["binary", "multiclass", "multilabel"]

SET_TYPES = (set, frozenset, list, tuple, np.ndarray)
MAX_NAMES_IN_MESSAGE = 10
MAX_MISSING_IN_MESSAGE = 3
# difflib compares with every name: about 10 µs each, so at most 0.2 s for an error message.
MAX_NAMES_TO_COMPARE = 20_000


@dataclass(frozen=True, eq=False)
class EncodedTargets:
    """Targets as a sparse indicator.

    Parameters
    ----------
    kind : {"binary", "multiclass", "multilabel"}
        Kind of the problem; at most two different single labels are binary, one or none included.
    classes : array, shape (n_classes,)
        The labels, ascending, or the names of the columns. The caller refuses fewer than two.
    Y : csr_array of int8, shape (n_samples, n_classes), or (n_samples, 1) for binary problems
        The indicator; the column of a binary problem is 1 for `classes[1]` (all 0 if there is one class only).
    sparse_given : bool
        Whether y was sparse or a list of label sets; False for a dense indicator and for one label per row.

    Examples
    --------
    >>> from widemargin.labels.encoding import encode_targets
    >>> targets = encode_targets([2, 0, 2, 1])
    >>> targets.kind, targets.n_classes, targets.indices, targets.Y.shape
    ('multiclass', 3, array([2, 0, 2, 1]), (4, 3))
    """

    kind: TargetKind
    classes: npt.NDArray[Any]
    Y: Any
    sparse_given: bool

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def encoding(self) -> LabelEncoding:
        """Classes and kind, for encoding further targets and decoding predictions."""
        return LabelEncoding(self.kind, self.classes)

    @property
    def indices(self) -> IntArray:
        """Class number of each row of a binary or multiclass problem, shape (n_samples,)."""
        if self.kind == "multilabel":
            raise ValueError("the rows of a multi-label problem can have several classes; use Y")
        # The one column of a binary problem is the number of the class; otherwise each row has one entry, its class.
        numbers = np.diff(self.Y.indptr) if self.kind == "binary" else self.Y.indices
        return np.asarray(numbers, dtype=np.intp)

    @property
    def labels(self) -> Any:
        """The labels of each row in a form that `fit` takes: an array of labels, or a list of label lists."""
        if self.kind != "multilabel":
            return self.classes[self.indices]
        names = self.classes[self.Y.indices].tolist()
        return [names[start:stop] for start, stop in pairwise(self.Y.indptr.tolist())]

    def renamed(self, names: npt.NDArray[Any]) -> EncodedTargets:
        """The same rows under other names, one per class: ascending, and without those that no row has.

        One label in every row makes the targets those of a problem with one label per row.
        """
        several = self.kind == "multilabel" and bool(np.any(np.diff(self.Y.indptr) != 1))
        columns = self.Y.indices if self.kind == "multilabel" else self.indices
        used, columns = in_use(columns, self.n_classes)
        classes, places = np.unique(names[used], return_inverse=True)
        if not several:
            return _of_classes(classes, places[columns])
        return _of_sets(classes.astype(object), LabelSets(places[columns], self.Y.indptr))


def encode_targets(y: Any) -> EncodedTargets:
    """Find out what kind of targets y are, and encode them.

    Parameters
    ----------
    y : array-like of shape (n,), indicator of shape (n, n_labels), list of n label sets, or EncodedTargets
        The targets; see the module's description of the forms. Encoded ones are returned as they are.

    Returns
    -------
    EncodedTargets

    Raises
    ------
    ValueError
        For missing or continuous values, an indicator with values other than 0 and 1, and labels of mixed types.

    Examples
    --------
    >>> from widemargin.labels.encoding import encode_targets
    >>> targets = encode_targets(["no", "yes", "yes"])
    >>> targets.kind, targets.classes, targets.Y.toarray().ravel()
    ('binary', array(['no', 'yes'], dtype='<U3'), array([0, 1, 1], dtype=int8))
    >>> targets = encode_targets([{3, 7}, set(), {7}])
    >>> targets.kind, targets.classes, targets.Y.toarray().tolist()
    ('multilabel', array([3, 7]), [[1, 1], [0, 0], [0, 1]])
    """
    if isinstance(y, EncodedTargets):
        return y
    if isinstance(y, list) and set(map(type, y)) == {str}:
        names, numbers = _numbered(y)  # an array of all labels, and its order, would take three times as long
        classes = np.array(names)
        if classes.tolist() == names:  # NumPy drops trailing zero characters
            return _of_classes(classes, numbers)
    values = unwrap(y)
    if isinstance(values, list):
        sets = as_label_sets(values)
        names, numbers = _numbered(sets.labels)
        integers = set(map(type, names)) <= {int}
        classes = np.array(names, dtype=np.int64) if integers else _objects(names)
        return _of_sets(classes, LabelSets(numbers, sets.indptr))
    if values.ndim == 2:
        Y = as_indicator(values)
        return EncodedTargets("multilabel", _column_labels(y, Y.shape[1]), Y, sparse.issparse(values))
    labels = _checked_labels(values)
    if labels.dtype.kind != "O":
        classes, numbers = np.unique(labels, return_inverse=True)
        return _of_classes(classes, numbers)
    names, numbers = _numbered(labels.tolist())
    return _of_classes(_objects(names), numbers)


def in_use(numbers: npt.NDArray[Any], n: int) -> tuple[IntArray, IntArray]:
    """Which of the numbers 0 … n − 1 occur, ascending, and the place of each among them: np.unique without sorting.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.encoding import in_use
    >>> in_use(np.array([5, 2, 5]), 7)
    (array([2, 5]), array([1, 0, 1]))
    """
    occurs = np.zeros(n, dtype=bool)
    occurs[numbers] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]


def _of_classes(classes: npt.NDArray[Any], numbers: IntArray) -> EncodedTargets:
    """One class number per row; the column of a binary problem is 1 for class 1."""
    kind: TargetKind = "binary" if len(classes) <= 2 else "multiclass"
    return EncodedTargets(kind, classes, _one_per_row(numbers.reshape(-1), kind, len(classes)), False)


def _one_per_row(numbers: IntArray, kind: TargetKind, n_classes: int) -> Any:
    if kind == "binary":
        return sparse.csr_array((numbers == 1).astype(np.int8)[:, None])
    ones = np.ones(numbers.size, dtype=np.int8)
    return sparse.csr_array((ones, numbers, np.arange(numbers.size + 1)), shape=(numbers.size, n_classes))


def _of_sets(classes: npt.NDArray[Any], sets: LabelSets) -> EncodedTargets:
    """Label sets whose labels are class numbers."""
    ones, shape = np.ones(len(sets.labels), dtype=np.int8), (sets.indptr.size - 1, len(classes))
    Y = as_indicator(sparse.csr_array((ones, sets.labels, sets.indptr), shape=shape))
    return EncodedTargets("multilabel", classes, Y, True)


def _numbered(labels: list[Any]) -> tuple[list[Any], IntArray]:
    """The different labels, ascending, and the place of each label among them."""
    try:
        names = sorted(set(labels))
    except TypeError as error:
        types = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"y mixes labels of the types {', '.join(types)}; use labels of one type, for example strings"
        ) from error
    place = dict(zip(names, range(len(names)), strict=True))
    return names, np.fromiter(map(place.__getitem__, labels), dtype=np.intp, count=len(labels))


def _objects(names: list[Any]) -> npt.NDArray[Any]:
    """Names as an array of objects, tuples included."""
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _column_labels(y: Any, n_columns: int) -> npt.NDArray[Any]:
    """Labels of the columns of an indicator: the column names of a data frame, otherwise numbers."""
    names = list(getattr(y, "columns", ()))
    if len(names) != n_columns or not all(isinstance(name, str) for name in names):
        return np.arange(n_columns)
    if len(set(names)) != n_columns:
        raise ValueError("two columns of y have the same name; use a distinct name for each label")
    return np.array(names, dtype=object)


@dataclass(frozen=True, eq=False)
class LabelEncoding:
    """The classes of a problem and the two ways between labels and class numbers.

    Parameters
    ----------
    kind : {"binary", "multiclass", "multilabel"}
        One label of at most two, one label of several, or a set of labels per row.
    classes : array, shape (n_classes,)
        The labels, ascending; the column numbers when y was an indicator.

    Examples
    --------
    >>> from widemargin.labels.encoding import encode_targets
    >>> encoding = encode_targets([{"cat"}, {"dog", "cat"}, set()]).encoding
    >>> encoding.indicator([["dog"], []]).toarray()
    array([[0, 1],
           [0, 0]], dtype=int8)
    """

    kind: TargetKind
    classes: npt.NDArray[Any]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        """Number of each class."""
        return dict(zip(self.classes.tolist(), range(self.n_classes), strict=True))

    def indices(self, y: Any) -> IntArray:
        """Class numbers of one label per row, shape (n,); an error names labels that are not classes."""
        y = unwrap(y)
        if isinstance(y, list) or is_indicator(y):
            raise ValueError(f"y has several labels per row, but the problem is {self.kind}; pass one label per row")
        return self._look_up(_checked_labels(y).tolist())

    def indicator(self, y: Any) -> Any:
        """Encode further targets against the known classes.

        Parameters
        ----------
        y : targets
            In any form of the same kind: one label per row for binary and multiclass problems, an indicator or
            label sets for multi-label ones.

        Returns
        -------
        csr_array of int8, shape (n, n_classes), or (n, 1) for binary problems
            Binary: the one column is 1 for `classes[1]`.
        """
        if self.kind != "multilabel":
            return _one_per_row(self.indices(y), self.kind, self.n_classes)
        y = unwrap(y)
        if isinstance(y, list):
            sets = as_label_sets(y)
            return _of_sets(self.classes, LabelSets(self._look_up(sets.labels), sets.indptr)).Y
        if not is_indicator(y):
            if y.size == 0:
                return sparse.csr_array((0, self.n_classes), dtype=np.int8)
            raise ValueError(
                "y has one label per row, but the problem is multilabel; pass an indicator matrix or label sets"
            )
        Y = as_indicator(y)
        if Y.shape[1] != self.n_classes:
            raise ValueError(
                f"y has {Y.shape[1]} columns, but there are {self.n_classes} classes; pass one column per class"
            )
        return Y

    def indicator_with_unknown(self, y: Any) -> Any:
        """Encode targets for measuring; labels that are not classes count as misses.

        Parameters
        ----------
        y : targets
            As for `indicator`; label sets are allowed for every kind of problem.

        Returns
        -------
        csr_array of int8, shape (n, n_classes + n_unknown)
            After the columns of the classes, one per label that is not a class, in order of appearance.
        """
        values = unwrap(y)
        if is_indicator(values) or (self.kind == "multilabel" and not isinstance(values, list)):
            return LabelEncoding("multilabel", self.classes).indicator(values)
        numbers = dict(self._numbers)
        sets = label_sets(values)
        columns = np.array([numbers.setdefault(label, len(numbers)) for label in sets.labels], dtype=np.intp)
        return _of_sets(np.arange(len(numbers)), LabelSets(columns, sets.indptr)).Y

    def _look_up(self, labels: list[Any]) -> IntArray:
        """Class numbers of a list of labels."""
        return look_up(labels, self._numbers, "the classes seen in training")


class LabelSets(NamedTuple):
    """Label sets end to end: row i has ``labels[indptr[i]:indptr[i + 1]]``."""

    labels: Any
    indptr: npt.NDArray[np.int64]


def unwrap(y: Any) -> Any:
    """Targets as a sparse matrix, a NumPy array, or a list whose rows are label sets."""
    if sparse.issparse(y):
        return y
    if hasattr(y, "to_numpy"):  # pandas and polars
        y = y.to_numpy()
    if isinstance(y, list | tuple) and len(y) and isinstance(y[0], SET_TYPES) and not _is_listed_indicator(y):
        return list(y)
    given = y
    try:
        y = np.asarray(given)
    except ValueError:
        if not isinstance(given, list | tuple):
            raise
        return list(given)  # labels and label sets: `as_label_sets` names the row
    is_text = y.dtype.kind in "US" and isinstance(given, list | tuple)
    if is_text and not all(issubclass(kind, str | bytes) for kind in set(map(type, given))):
        y = np.array(given, dtype=object)  # NumPy would have made text of numbers and NaN
    if y.ndim == 1 and y.dtype == object and len(y) and isinstance(y[0], SET_TYPES):
        return list(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.ravel()  # a column of labels, as scikit-learn's type_of_target sees it
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y should be a 1d array, an indicator matrix or a list of label sets; got an array of shape {y.shape}"
        )
    return y


def _is_listed_indicator(y: Any) -> bool:
    """Whether y is rows of zeros and ones, two or more and equally many: an indicator as scikit-learn reads it."""
    width = len(y[0])
    if width < 2 or any(not isinstance(row, list | tuple | np.ndarray) or len(row) != width for row in y):
        return False
    return all(isinstance(value, int | np.integer | np.bool_) and value in (0, 1) for row in y for value in row)


def is_indicator(y: Any) -> bool:
    """Whether unwrapped targets are a matrix with one column per label."""
    return sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2)


def label_sets(y: Any) -> LabelSets:
    """Label sets, or one label per row as sets of one; an indicator is neither."""
    values = unwrap(y)
    if isinstance(values, list):
        return as_label_sets(values)
    labels = _checked_labels(values).tolist()
    return LabelSets(labels, np.arange(len(labels) + 1, dtype=np.int64))


def _checked_labels(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One label per row: no missing value, no fraction; NumPy strings of variable width become objects."""
    if y.dtype.kind == "T":
        y = y.astype(object)
    if y.dtype.kind not in "biufUSO":
        raise ValueError(f"Unknown label type: unknown. y has dtype {y.dtype}; use strings, integers or booleans.")
    floats = y if y.dtype.kind == "f" else None
    if y.dtype.kind == "O":
        _refuse_missing(labels := y.tolist())
        floats = y.astype(np.float64) if set(map(type, labels)) == {float} else None
    if floats is None:
        return y
    if np.isnan(floats).any():
        raise ValueError("Input y contains NaN.")
    if np.isinf(floats).any():
        raise ValueError(f"Input y contains infinity or a value too large for {floats.dtype!r}.")
    if np.any(floats != np.floor(floats)):
        raise ValueError(
            f"Unknown label type: continuous. y contains {floats[floats != np.floor(floats)][0]}; a classifier "
            "requires discrete labels, not the continuous values of a regression target."
        )
    return y


def _refuse_missing(labels: list[Any]) -> None:
    """Raise scikit-learn's error for None, NaN and pandas' missing values."""
    if not set(map(type, labels)) <= {str, int, bytes, bool} and any(map(is_missing, labels)):
        raise ValueError("Input y contains NaN.")


def as_label_sets(y: list[Any]) -> LabelSets:
    """Label sets end to end, checked row by row."""
    for row, labels in enumerate(y):
        if not isinstance(labels, SET_TYPES):
            raise ValueError(f"y[{row}] is {labels!r}, but other rows of y are label sets; use [{labels!r}]")
    plain = [labels.tolist() if isinstance(labels, np.ndarray) else labels for labels in y]
    labels = [label.item() if isinstance(label, np.generic) else label for label in chain.from_iterable(plain)]
    _refuse_missing(labels)
    return LabelSets(labels, np.concatenate([[0], np.cumsum([len(row) for row in plain], dtype=np.int64)]))


def as_indicator(y: Any) -> Any:
    """CSR indicator of int8 ones, shape (n, n_columns), sorted, without zeros or duplicates; the input is untouched."""
    rows = _stored_rows(y)
    if rows.dtype.kind == "f" and not np.isfinite(rows.data).all():
        raise ValueError(f"Input y contains {'NaN' if np.isnan(rows.data).any() else 'infinity'}.")
    other = np.flatnonzero((rows.data != 0) & (rows.data != 1))
    if other.size:
        row = int(np.searchsorted(rows.indptr, other[0], side="right")) - 1
        raise ValueError(
            f"Unknown label type: multiclass-multioutput. y[{row}, {rows.indices[other[0]]}] is "
            f"{rows.data[other[0]]}; an indicator matrix must contain only 0 and 1."
        )
    if not _ascends(rows) or not rows.data.all():
        # Into a wider type first: a label stored 128 times would overflow int8 to 0 or below.
        rows = sparse.csr_array((rows.data.astype(np.int64), rows.indices, rows.indptr), shape=rows.shape, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
    ones = np.ones(rows.nnz, dtype=np.int8)
    return sparse.csr_array((ones, rows.indices, rows.indptr), shape=rows.shape)


def _ascends(rows: Any) -> bool:
    """Whether the columns of each row ascend without duplicates; half of the time of `has_canonical_format`."""
    ascending = np.append(rows.indices[:-1] < rows.indices[1:], True)  # whether the next entry has a later column
    ends = rows.indptr[1:]
    ascending[ends[ends > 0] - 1] = True  # or is in another row
    return bool(ascending.all())


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
    used = rows.indptr[-1]  # arrays may be longer than the used part
    return sparse.csr_array((rows.data[:used], rows.indices[:used], rows.indptr), shape=rows.shape)


def _numeric(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A dense indicator of numbers; objects, such as a table of integer and boolean columns, become numbers."""
    if y.dtype.kind in "biuf":
        return y
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Unknown label type: unknown. y has shape {y.shape} and dtype {y.dtype}; an indicator matrix must "
            "contain only 0 and 1. For several labels per row, pass a list of sets. Only HierarchicalClassifier takes "
            "level columns; otherwise, join them, for example ['/'.join(row) for row in y]."
        ) from error


def is_missing(name: Any) -> bool:
    """Whether a label is None, NaN, or one of pandas' missing values, which do not equal themselves."""
    if name is None:
        return True
    same = name == name
    return not (isinstance(same, bool | np.bool_) and bool(same))


def plain_name(name: Any) -> Hashable:
    """The name as a plain Python value; missing and unhashable names are errors."""
    if isinstance(name, np.generic):
        name = name.item()
    try:
        hash(name)
    except TypeError as error:
        raise DataFormatError(f"the name {name!r} is not hashable", remedy="use strings, numbers or tuples") from error
    if is_missing(name):
        raise DataFormatError(f"{name!r} cannot be used as a name", remedy="name every label and node")
    plain: Hashable = name
    return plain


def plain_names(names: list[Any], *, or_none: bool = False) -> list[Any]:
    """`plain_name` of each; a list of Python's own simple types is returned as it is."""
    simple = {str, int, bytes, type(None)} if or_none else {str, int, bytes}
    if set(map(type, names)) <= simple:
        return names
    return [None if or_none and name is None else plain_name(name) for name in names]


def is_several(names: Any) -> bool:
    """Lists, arrays and Series hold several names; anything else, a tuple included, is one."""
    return isinstance(names, list) or (hasattr(names, "__array__") and np.ndim(names) > 0)


def many(names: Any) -> list[Any]:
    """Names as plain Python values; a lone string is one name, not its letters."""
    if isinstance(names, str):
        return [names]
    values = names if isinstance(names, list | tuple) else np.asarray(names).tolist()
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def listed(names: Iterable[Any], separator: str = ", ", most: int = MAX_NAMES_IN_MESSAGE) -> str:
    """The first few names for a message, and how many more there are."""
    names = list(names)
    shown = separator.join(repr(name) for name in names[:most])
    more = len(names) - most
    return f"{shown}{separator}… ({more} more)" if more > 0 else shown


def look_up(labels: Iterable[Any], numbers: Mapping[Any, int], place: str, remedy: str | None = None) -> IntArray:
    """Number of each label; an error names labels without one, and the nearest known names or the remedy."""
    labels = list(labels)
    try:
        found = [numbers.get(label, -1) for label in labels]
    except TypeError as error:
        raise DataFormatError("a label is not hashable", remedy="pass a one-dimensional list of names") from error
    result = np.array(found, dtype=np.intp)
    if result.size and result.min() < 0:
        missing = list(dict.fromkeys(label for label, number in zip(labels, found, strict=True) if number < 0))
        raise DataFormatError(f"{_subject(missing)} not in {place}", remedy=_suggestion(missing, numbers, remedy))
    return result


def _subject(missing: list[Any]) -> str:
    """'x' is / 2 labels are, with their names."""
    if len(missing) == 1:
        return f"{missing[0]!r} is"
    return f"{len(missing)} labels ({listed(missing, most=MAX_MISSING_IN_MESSAGE)}) are"


def _suggestion(missing: list[Any], known: Mapping[Any, int], remedy: str | None) -> str:
    """Known names near the first missing one, compared as text; otherwise a remedy."""
    if len(known) <= MAX_NAMES_TO_COMPARE:
        spelled = {str(name): name for name in known}
        same = spelled.get(str(missing[0]))
        if same is not None:
            types = f"{type(same).__name__}, not {type(missing[0]).__name__}"
            return (
                f"did you mean {same!r} instead of {missing[0]!r}? The names there have the type {types}; convert "
                "the labels"
            )
        near = difflib.get_close_matches(str(missing[0]), spelled)
        if near:
            return f"did you mean {' or '.join(repr(spelled[name]) for name in near)} instead of {missing[0]!r}?"
    if remedy is not None:
        return remedy
    return "add it, or leave out its rows" if len(missing) == 1 else "add them, or leave out their rows"
