"""Label encoding: targets in any form to a sparse indicator and a list of classes, and numbers back to labels.

    Y_il = 1 if row i has label l, else 0           (n_samples × n_classes, CSR of int8)

Forms of y: one label a row (list, array, Series; strings, integers, booleans, whole floats), an indicator (sparse, a
dense array, or a data frame, whose column names are the labels; at least two columns), or a label set a row (sets,
lists or tuples; empty ones allowed). Lists of zeros and ones, two or more and equally many a row, are an indicator, as
in scikit-learn; other lists of lists are label lists, and sets are always label sets. Memory is that of the non-zeros;
an indicator in canonical CSR shares its index arrays with the result.

Names of labels and nodes: plain values, missing ones, look-up, and how messages show them.

The forms in which targets come, each brought to one: a one-dimensional array, a CSR indicator, or label sets.

Errors say what scikit-learn's own say ("Unknown label type: …", "Input y contains NaN."), so that its estimator
checks and its users recognise them. Nothing here densifies; a canonical CSR keeps its index arrays uncopied.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.exceptions import DataFormatError
from widemargin.labels.tree import IntArray

__all__ = [
    "EncodedTargets",
    "LabelEncoding",
    "LabelSets",
    "TargetKind",
    "as_indicator",
    "as_label_sets",
    "as_labels",
    "encode_targets",
    "is_indicator",
    "is_label_sets",
    "is_missing",
    "is_several",
    "label_sets",
    "listed",
    "look_up",
    "many",
    "plain_name",
    "plain_names",
    "unwrap",
]

MAX_NAMES_IN_MESSAGE = 10
# difflib compares with every name: about 10 µs each, so at most 0.2 s for an error message.
MAX_NAMES_TO_COMPARE = 20_000


def is_missing(name: Any) -> bool:
    """Whether a label is None, NaN, or one of pandas' missing values, which do not equal themselves."""
    if name is None:
        return True
    same = name == name
    return not (isinstance(same, bool | np.bool_) and bool(same))


def plain_name(name: Any) -> Hashable:
    """The name as a plain Python value; missing and unhashable names are refused."""
    if isinstance(name, np.generic):
        name = name.item()
    try:
        hash(name)
    except TypeError as error:
        raise DataFormatError(f"the name {name!r} is not hashable", remedy="use strings, numbers or tuples") from error
    if is_missing(name):
        raise DataFormatError(f"{name!r} cannot be a name", remedy="give every label and node a name")
    plain: Hashable = name
    return plain


def plain_names(names: list[Any], *, or_none: bool = False) -> list[Any]:
    """`plain_name` of each, without a call for each when all are of Python's own simple types."""
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


def listed(names: Iterable[Any], separator: str = ", ") -> str:
    """The first few names for a message, and how many more there are."""
    names = list(names)
    shown = separator.join(repr(name) for name in names[:MAX_NAMES_IN_MESSAGE])
    more = len(names) - MAX_NAMES_IN_MESSAGE
    return f"{shown}{separator}… ({more} more)" if more > 0 else shown


def look_up(labels: Iterable[Any], numbers: Mapping[Any, int], place: str) -> IntArray:
    """Number of each label; labels without one are named, with the nearest known ones for a single label."""
    labels = list(labels)
    try:
        found = [numbers.get(label, -1) for label in labels]
    except TypeError as error:
        raise DataFormatError("a label is not hashable", remedy="give a one-dimensional list of names") from error
    result = np.array(found, dtype=np.intp)
    if result.size and result.min() < 0:
        missing = list(dict.fromkeys(label for label, number in zip(labels, found, strict=True) if number < 0))
        raise DataFormatError(f"{_subject(missing)} not in {place}", remedy=_suggestion(missing, numbers))
    return result


def _subject(missing: list[Any]) -> str:
    """'x' is / 2 labels are, with their names."""
    if len(missing) == 1:
        return f"{missing[0]!r} is"
    return f"{len(missing)} labels ({listed(missing)}) are"


def _suggestion(missing: list[Any], known: Mapping[Any, int]) -> str:
    """Known names near the first missing one, numbers and their spellings included."""
    if len(known) <= MAX_NAMES_TO_COMPARE:
        spelled = {str(name): name for name in known}
        near = difflib.get_close_matches(str(missing[0]), spelled)
        if near:
            return f"did you mean {' or '.join(repr(spelled[name]) for name in near)} instead of {missing[0]!r}?"
    return "add it, or leave out the rows that have it"


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


TargetKind = Literal["binary", "multiclass", "multilabel"]

MISSING_INDEX = -1
MISSING_NUMBER = -1  # label in a place that `predict_topk` could not fill, when labels are numbers; None otherwise


@dataclass(frozen=True, eq=False)
class LabelEncoding:
    """The classes of a problem and the two ways between labels and class numbers.

    Parameters
    ----------
    kind : {"binary", "multiclass", "multilabel"}
        One label of at most two, one label of several, or a set of labels a row.
    classes : array, shape (n_classes,)
        The labels, ascending; the column numbers when y was an indicator.

    Examples
    --------
    >>> from widemargin.labels.encoding import encode_targets
    >>> encoding = encode_targets([{"cat"}, {"dog", "cat"}, set()]).encoding
    >>> encoding.indicator([["dog"], []]).toarray()
    array([[0, 1],
           [0, 0]], dtype=int8)
    >>> encoding.decode([[1, 0], [0, -1]])
    array([['dog', 'cat'],
           ['cat', None]], dtype=object)
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
        """Class numbers of one label a row, shape (n,); labels that are no class are named."""
        y = unwrap(y)
        if isinstance(y, list) or is_indicator(y):
            raise ValueError(f"y has several labels a row, but the problem is {self.kind}; give one label a row")
        return self._look_up(as_labels(y).tolist())

    def indicator(self, y: Any) -> Any:
        """Encode further targets against the known classes.

        Parameters
        ----------
        y : targets
            In any form of the same kind: one label a row for binary and multiclass problems, an indicator or
            label sets for multi-label ones.

        Returns
        -------
        csr_array of int8, shape (n, n_classes), or (n, 1) for binary problems
            Binary: the one column is 1 for `classes[1]`.
        """
        if self.kind != "multilabel":
            return _one_label_a_row(self.indices(y), self.kind, self.n_classes)
        y = unwrap(y)
        if isinstance(y, list):
            sets = as_label_sets(y)
            return _indicator_of_sets(sets, self._look_up(sets.labels), self.n_classes)
        if not is_indicator(y):
            if y.size == 0:
                return sparse.csr_array((0, self.n_classes), dtype=np.int8)
            raise ValueError("y has one label a row, but the problem is multilabel; give an indicator or label sets")
        Y = as_indicator(y)
        if Y.shape[1] != self.n_classes:
            raise ValueError(f"y has {Y.shape[1]} columns, but there are {self.n_classes} classes")
        return Y

    def indicator_with_unknown(self, y: Any) -> Any:
        """Encode targets some of whose labels may be no class, for measuring: these are misses, not nothing.

        Parameters
        ----------
        y : targets
            Of the problem's kind, as for `indicator`; label sets also where it has one label per row.

        Returns
        -------
        csr_array of int8, shape (n, n_classes + n_unknown)
            After the columns of the classes, one for each different label that is no class, in order of appearance.
        """
        values = unwrap(y)
        if is_indicator(values) or (self.kind == "multilabel" and not isinstance(values, list)):
            return LabelEncoding("multilabel", self.classes).indicator(values)
        numbers = dict(self._numbers)
        sets = label_sets(values)
        columns = [numbers.setdefault(label, len(numbers)) for label in sets.labels]
        return _indicator_of_sets(sets, np.array(columns, dtype=np.intp), len(numbers))

    def decode(self, indices: npt.ArrayLike) -> npt.NDArray[Any]:
        """Labels of class numbers, of the same shape; −1 becomes −1 for numbers and None for other labels."""
        places = np.asarray(indices, dtype=np.intp)
        missing = places == MISSING_INDEX
        if not missing.any():
            labels: npt.NDArray[Any] = self.classes[places]
            return labels
        holds_minus_one = self.classes.dtype.kind in "if"
        labels = np.full(places.shape, MISSING_NUMBER, self.classes.dtype if holds_minus_one else object)
        if not holds_minus_one:
            labels[...] = None
        labels[~missing] = self.classes[places[~missing]]
        return labels

    def _look_up(self, labels: list[Any]) -> IntArray:
        """Class numbers of a list of labels."""
        return look_up(labels, self._numbers, "the classes seen in training")


@dataclass(frozen=True, eq=False)
class EncodedTargets:
    """Targets as a sparse indicator.

    Parameters
    ----------
    kind : {"binary", "multiclass", "multilabel"}
        Kind of the problem; at most two different single labels are binary, one or none included.
    classes : array, shape (n_classes,)
        The labels, ascending. It is for the caller to refuse fewer than two.
    Y : csr_array of int8, shape (n_samples, n_classes), or (n_samples, 1) for binary problems
        The indicator; the column of a binary problem is 1 for `classes[1]` (all 0 if there is one class only).
    sparse_given : bool
        Whether y was sparse or a list of label sets; False for a dense indicator and for one label a row.

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
            raise ValueError("rows of a multi-label problem have several classes; use Y")
        # The one column of a binary problem is the number of the class; otherwise each row has one entry, its class.
        numbers = np.diff(self.Y.indptr) if self.kind == "binary" else self.Y.indices
        return np.asarray(numbers, dtype=np.intp)


def encode_targets(y: Any) -> EncodedTargets:
    """Find out what kind of targets y are, and encode them.

    Parameters
    ----------
    y : array-like of shape (n,), indicator of shape (n, n_labels), or list of n label sets
        The targets; see the module's description of the forms.

    Returns
    -------
    EncodedTargets

    Raises
    ------
    ValueError
        For missing or continuous values, an indicator with other values than 0 and 1, and labels of mixed types.

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
    values = unwrap(y)
    if isinstance(values, list):
        sets = as_label_sets(values)
        classes = _sorted_classes(sets.labels)
        columns = look_up(sets.labels, dict(zip(classes.tolist(), range(len(classes)), strict=True)), "y")
        return EncodedTargets("multilabel", classes, _indicator_of_sets(sets, columns, len(classes)), True)
    if is_indicator(values):
        Y = as_indicator(values)
        return EncodedTargets("multilabel", _column_labels(y, Y.shape[1]), Y, sparse.issparse(values))
    classes, numbers = _unique(as_labels(values))
    kind: TargetKind = "binary" if len(classes) <= 2 else "multiclass"
    return EncodedTargets(kind, classes, _one_label_a_row(numbers, kind, len(classes)), False)


def _column_labels(y: Any, n_columns: int) -> npt.NDArray[Any]:
    """Labels of the columns of an indicator: the names that a data frame has, otherwise their numbers."""
    names = list(getattr(y, "columns", ()))
    if len(names) != n_columns or not all(isinstance(name, str) for name in names):
        return np.arange(n_columns)
    if len(set(names)) != n_columns:
        raise ValueError("two columns of y have the same name; give each label a name of its own")
    return np.array(names, dtype=object)


def _one_label_a_row(numbers: IntArray, kind: TargetKind, n_classes: int) -> Any:
    """Indicator of one class number a row; for binary problems its one column says class 1."""
    if kind == "binary":
        return sparse.csr_array((numbers == 1).astype(np.int8)[:, None])
    ones = np.ones(numbers.size, dtype=np.int8)
    return sparse.csr_array((ones, numbers, np.arange(numbers.size + 1)), shape=(numbers.size, n_classes))


def label_sets(y: Any) -> LabelSets:
    """Label sets, or one label per row as sets of one; an indicator is neither."""
    values = unwrap(y)
    if isinstance(values, list):
        return as_label_sets(values)
    labels = as_labels(values).tolist()
    return LabelSets(labels, np.arange(len(labels) + 1, dtype=np.int64))


def _indicator_of_sets(sets: LabelSets, columns: IntArray, n_classes: int) -> Any:
    """Indicator of label sets whose labels have the given column numbers."""
    ones = np.ones(columns.size, dtype=np.int8)
    return as_indicator(sparse.csr_array((ones, columns, sets.indptr), shape=(sets.indptr.size - 1, n_classes)))


def _unique(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    """Sorted classes and the class number of each label."""
    try:
        classes, numbers = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise _mixed_types(labels.tolist()) from error
    return classes, numbers.reshape(-1)


def _sorted_classes(labels: list[Any]) -> npt.NDArray[Any]:
    """Sorted classes of labels from sets: integers if all are, else objects, as scikit-learn's binarizer has them."""
    try:
        names = sorted(set(labels))
    except TypeError as error:
        raise _mixed_types(labels) from error
    if all(type(name) is int for name in names):
        return np.array(names, dtype=np.int64)
    classes = np.empty(len(names), dtype=object)
    classes[:] = names
    return classes


def _mixed_types(labels: list[Any]) -> ValueError:
    """The error for labels that cannot be put in one order."""
    types = sorted({type(label).__name__ for label in labels})
    return ValueError(f"y mixes labels of types {', '.join(types)}; use labels of one type, for example strings")
