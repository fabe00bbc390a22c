"""The rows and labels of a model after an update, and how they differ from those before.

    old rows, without the removed ones        in their order
    added rows                                below them

Labels of added rows that the model does not have become classes: at the end if rows have several labels, otherwise in
ascending order, as scikit-learn has them. A binary problem with a third class becomes one of three. Memory: the rows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_non_negative

from widemargin.data.normalize import with_unit_rows
from widemargin.data.training_rows import TrainingRows
from widemargin.estimators.one_vs_all.updating import Rows
from widemargin.estimators.training import TrainingData
from widemargin.exceptions import WidemarginError
from widemargin.labels.encoding import (
    EncodedTargets,
    LabelEncoding,
    TargetKind,
    encode_targets,
    is_indicator,
    unwrap,
)

__all__ = ["OldRows", "RowChange", "change_of", "in_order", "old_rows_of", "padded", "stacked"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class OldRows(NamedTuple):
    """The rows of a model before normalisation, with a column for each class, and their weights if they have any."""

    X: Any
    Y: Any
    weight: Floats | None


@dataclass(frozen=True)
class RowChange:
    """A model's data after an update, and how they differ from those before.

    Parameters
    ----------
    X : ndarray or CSR array, or None
        All rows after the update, as they are trained on; None if the old rows are not available.
    weight : ndarray or None
        Their weights, if some row has one.
    targets : EncodedTargets
        Kind and classes after the update; its Y has all rows, or the added ones if the old ones are not available.
    added, removed : Rows
        The difference, in the columns of the outputs.
    source : ndarray of shape (n_outputs,)
        The old number of each output; −1 for a new one.
    order : ndarray of shape (n_classes,)
        The place of each class among the old classes followed by the new ones.
    old_rows : ndarray of shape (n_rows,)
        The place of each row in the old rows; −1 for added ones.
    plain : ndarray or CSR array of shape (n_added, n_features)
        The added rows before normalisation, as a store keeps them.
    """

    X: Any
    weight: Floats | None
    targets: EncodedTargets
    added: Rows
    removed: Rows
    source: Ints
    order: Ints
    old_rows: Ints
    plain: Any

    @property
    def data(self) -> TrainingData:
        """All rows, or the added ones if the old ones are not available."""
        if self.X is None:
            return TrainingData(self.added.X, self.added.X, self.targets, self.added.weight)
        return TrainingData(self.X, self.X, self.targets, self.weight)

    @property
    def same_classes(self) -> bool:
        return bool((self.source >= 0).all())


def old_rows_of(model: Any, vectorizer: Any, rows: Any) -> OldRows | None:
    """The rows of the model before normalisation, with a column for each class: given, recorded, or None."""
    if rows is None:
        record: TrainingRows | None = getattr(model, "rows_", None)
        if record is None:
            return None
        X, Y, weight = record.read(verify=False)
        X = padded(X, model.n_features_in_)
    else:
        X, y, *rest = rows
        X = vectorizer.transform(list(X)) if vectorizer is not None else X
        X = _checked(model, X, model.n_features_in_ if vectorizer is None else X.shape[1])
        Y, new = _encoded(model._encoding(), y)
        weight = None if not rest or rest[0] is None else _checked_weights(rest[0], X)
        if new:
            raise ValueError(f"rows has the label {new[0]!r}, which the model does not have; pass its training rows")
    counts = np.asarray(Y.sum(axis=0)).reshape(-1)
    if (
        X.shape[0] != model.n_samples_fit_
        or Y.shape[0] != X.shape[0]
        or not np.array_equal(counts, model.label_counts_)
    ):
        raise WidemarginError(
            f"the model was trained on {model.n_samples_fit_:,} rows with other labels than the {X.shape[0]:,} rows "
            "given; pass the rows of its last training or update"
        )
    return OldRows(X, sp.csr_array(Y), weight)


def _checked(model: Any, X: Any, n_features: int) -> Any:
    """Rows as `predict` takes them, not normalised; after new words they have more features than the model."""
    plain = copy.copy(model)
    plain.normalize, plain.n_features_in_ = False, n_features
    return plain._check_rows(X)


def _checked_weights(weights: Any, X: Any) -> Floats:
    """Weights of rows, of which all may be zero: unlike those of a fit, they are not the only rows."""
    found: Floats = check_array(weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if found.ndim != 1:
        raise ValueError(f"sample_weight must have one number for each row; got the shape {found.shape}")
    check_consistent_length(X, found)
    check_non_negative(found, "sample_weight")
    return found


def change_of(
    model: Any, old: OldRows | None, X: Any, y: Any, sample_weight: Any, remove: Any, n_features: int
) -> RowChange:
    """The rows after the update, and the difference."""
    kind: TargetKind = model.kind_
    n_old_classes, encoding, new_names = len(model.classes_), model._encoding(), list[Any]()
    plain: Any
    if X is None:
        width, sparse = (model.n_features_in_, True) if old is None else (old.X.shape[1], sp.issparse(old.X))
        plain = sp.csr_array((0, width), dtype=np.float32) if sparse else np.empty((0, width), dtype=np.float32)
        added_Y = sp.csr_array((0, n_old_classes), dtype=np.int8)
    else:
        if y is None:
            raise ValueError("new rows need labels; pass y")
        plain = _checked(model, X, n_features)
        added_Y, new_names = _encoded(encoding, y)
        if added_Y.shape[0] != plain.shape[0]:
            raise ValueError(
                f"X has {plain.shape[0]:,} rows, but y has {added_Y.shape[0]:,}; pass a label for each row"
            )
    if old is not None:
        plain = plain.astype(old.X.dtype, copy=False)
        if sp.issparse(old.X) != sp.issparse(plain):
            plain = sp.csr_array(plain) if sp.issparse(old.X) else plain.toarray()
    weight = np.ones(plain.shape[0])
    if sample_weight is not None:
        weight = _checked_weights(sample_weight, plain)
    classes, order = _new_classes(model.classes_, kind, new_names)
    grown = kind == "binary" and bool(new_names)  # one output becomes three
    source = np.where(order < n_old_classes, order, -1)
    if kind == "binary":
        source = np.full(len(classes), -1) if grown else np.zeros(1, dtype=np.int64)
    new_kind: TargetKind = "multiclass" if grown else kind

    def outputs(Y: Any) -> Any:
        """Labels in the columns of the outputs."""
        wide = in_order(Y, order)
        return sp.csr_array(wide[:, [1]]) if new_kind == "binary" else wide

    if old is None:
        if remove is not None and len(remove):
            raise WidemarginError(
                "rows can be removed only if the model records its rows; train it on a store or with keep_rows, or "
                "pass rows="
            )
        added_X = with_unit_rows(plain) if model.normalize else plain
        targets = EncodedTargets(new_kind, classes, outputs(added_Y), model.sparse_output_)
        added = Rows(added_X, targets.Y, weight)
        nothing = Rows(added_X[:0], targets.Y[:0], weight[:0])
        return RowChange(None, None, targets, added, nothing, source, order, np.full(len(weight), -1), plain)
    gone = np.zeros(old.X.shape[0], dtype=bool)
    if remove is not None:
        gone[_places(model, remove, old.X.shape[0])] = True
    stay = np.flatnonzero(~gone)
    old_X = padded(old.X, plain.shape[1])
    together = stacked([old_X[stay] if gone.any() else old_X, plain, old_X[gone]])
    if model.normalize:
        together = with_unit_rows(together)
    n_all = len(stay) + len(weight)
    old_weight = np.ones(old.X.shape[0]) if old.weight is None else old.weight
    Y, removed_Y = outputs(sp.vstack([_wide(old.Y[stay], added_Y), added_Y], format="csr")), outputs(old.Y[gone])
    targets = EncodedTargets(new_kind, classes, Y, model.sparse_output_)
    if new_kind != "multilabel" and len(np.unique(targets.indices)) < 2:
        raise ValueError("only one class would be left; keep rows of at least two classes")
    weighted = old.weight is not None or sample_weight is not None
    all_X = together[:n_all] if gone.any() else together
    return RowChange(
        all_X,
        np.concatenate([old_weight[stay], weight]) if weighted else None,
        targets,
        Rows(together[len(stay) : n_all], sp.csr_array(Y[len(stay) :]), weight),
        Rows(together[n_all:], removed_Y, old_weight[gone]),
        source,
        order,
        np.concatenate([stay, np.full(len(weight), -1)]),
        plain,
    )


def in_order(Y: Any, order: Ints) -> Any:
    """An indicator of the old classes, and perhaps new ones, with a column for each class in the new order."""
    wide = _wide(Y, order)
    if np.array_equal(order, np.arange(len(order))):
        return wide
    return sp.csr_array(wide[:, order])


def _wide(Y: Any, other: Any) -> Any:
    """Y with as many columns as there are in `order`, or in another indicator."""
    width = other.shape[1] if sp.issparse(other) else len(other)
    Y = sp.csr_array(Y)
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], max(width, Y.shape[1])))


def padded(X: Any, n_features: int) -> Any:
    """Rows with further features, all zero."""
    if X.shape[1] == n_features:
        return X
    if not sp.issparse(X):
        raise ValueError(f"the rows have {X.shape[1]:,} features, but the new ones {n_features:,}")
    return sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))


def stacked(parts: list[Any]) -> Any:
    """Rows below each other; a single part that has rows is used as it is."""
    parts = [part for part in parts if part.shape[0]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.vstack(parts, format="csr")) if sp.issparse(parts[0]) else np.vstack(parts)


def _new_classes(classes: npt.NDArray[Any], kind: str, new_names: list[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """The classes after the update, and the place of each among the old ones followed by the new ones."""
    order = np.arange(len(classes) + len(new_names))
    if not new_names:
        return classes, order
    names = [*classes.tolist(), *new_names]
    if kind != "multilabel":  # scikit-learn has single labels in ascending order
        order = np.array(sorted(range(len(names)), key=names.__getitem__))
    found = np.empty(len(names), dtype=object)
    found[:] = [names[place] for place in order]
    if classes.dtype != object:
        found = found.astype(np.result_type(classes.dtype, np.array(new_names).dtype))
    return found, order


def _places(model: Any, remove: Any, n_rows: int) -> Ints:
    """Places of the rows to remove among the old rows."""
    record: TrainingRows | None = getattr(model, "rows_", None)
    if record is not None and record.n_rows == n_rows:
        return np.searchsorted(record.live_numbers(), record.numbers_of(remove))
    numbers = np.asarray(remove)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError("remove must be a list of row numbers, because the rows have no ids")
    wrong = numbers[(numbers < 0) | (numbers >= n_rows)]
    if wrong.size:
        raise ValueError(f"there is no row {wrong[0]}; the model was trained on the rows 0 to {n_rows - 1:,}")
    unique, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"row {unique[counts > 1][0]} is given twice in remove; give each row once")
    return np.asarray(unique, dtype=np.int64)


def _encoded(encoding: LabelEncoding, y: Any) -> tuple[Any, list[Any]]:
    """An indicator with a column for each class and then for each label that is not a class yet; and these labels."""
    targets = encode_targets(y)
    several = encoding.kind == "multilabel"
    if (targets.kind == "multilabel") != several:
        form = "an indicator matrix or label sets" if several else "one label per row"
        raise ValueError(f"y must have the form that the model was trained on; pass {form}")
    names, classes = targets.classes.tolist(), encoding.classes.tolist()
    if several and names != classes and _has_numbered_columns(y, names):
        if len(names) != len(classes):
            raise ValueError(
                f"y has {len(names):,} columns, but the model has {len(classes):,} labels; pass one column per label, "
                "or label sets to add labels"
            )
        return sp.csr_array(targets.Y), []
    rows, columns = targets.Y.nonzero() if several else (np.arange(targets.Y.shape[0]), targets.indices)
    place = {name: number for number, name in enumerate(classes)}
    new = [names[column] for column in np.unique(columns).tolist() if names[column] not in place]
    if new and classes and isinstance(new[0], str) != isinstance(classes[0], str):
        raise ValueError(
            f"the new label {new[0]!r} is of another type than those of the model, such as {classes[0]!r}; use the "
            "type of the old labels"
        )
    place |= {name: len(classes) + number for number, name in enumerate(new)}
    target = np.array([place.get(name, -1) for name in names], dtype=np.int64)
    ones = np.ones(len(rows), dtype=np.int8)
    return sp.csr_array((ones, (rows, target[columns])), shape=(targets.Y.shape[0], len(place))), new


def _has_numbered_columns(y: Any, names: list[Any]) -> bool:
    """Whether targets are an indicator whose columns have no names; label sets may have the same numbers as labels."""
    if isinstance(y, EncodedTargets):  # of either form
        return names == list(range(len(names))) and len(names) > 0
    return is_indicator(unwrap(y)) and names == list(range(len(names)))
