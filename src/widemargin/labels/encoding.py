"""Label encoding: targets in any form to a sparse indicator and a list of classes, and numbers back to labels.

    Y_il = 1 if row i has label l, else 0           (n_samples × n_classes, CSR of int8)

Forms of y: one label a row (list, array, Series; strings, integers, booleans, whole floats), an indicator (sparse, a
dense array, or a data frame, whose column names are the labels; at least two columns), or a label set a row (sets,
lists or tuples; empty ones allowed). Lists of zeros and ones, two or more and equally many a row, are an indicator, as
in scikit-learn; other lists of lists are label lists, and sets are always label sets. Memory is that of the non-zeros;
an indicator in canonical CSR shares its index arrays with the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.labels._names import look_up
from widemargin.labels._target_forms import LabelSets, as_indicator, as_label_sets, as_labels, is_indicator, unwrap
from widemargin.labels.tree import IntArray

__all__ = ["EncodedTargets", "LabelEncoding", "TargetKind", "encode_targets", "label_sets"]

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
