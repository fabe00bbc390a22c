"""The labels of a data file in terms of a model: matched by name, with unknown ones kept as misses.

A file and a model need not have the same form of labels: svmlight holds the label numbers that occur, the Extreme
Classification Repository columns, arrays the labels themselves. What cannot be matched is an error, and what is
matched in part a warning with a count: a label that does not fit must not look like a bad model.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.cli._text import TextReader
from widemargin.data.load import Dataset, load_data, recognize_format
from widemargin.data.stream import RowStream, open_rows, rows_of_array
from widemargin.data.tables import is_table
from widemargin.data.text import ZeroBased
from widemargin.estimators._path_scoring import class_numbers
from widemargin.exceptions import DataFormatError, DataFormatWarning

__all__ = [
    "classes_of_rows",
    "labels_of_rows",
    "load_for_model",
    "only_labels",
    "open_for_model",
    "truth_in_model_columns",
]


def load_for_model(model: Any, data: Path, zero_based: ZeroBased, reader: TextReader | None = None) -> Dataset:
    """Rows of a file for a model: its number of features, form of labels and, unless told, its index base.

    A model with a vectoriser has a reader of tables.
    """
    if reader is not None:
        return reader.dataset(data, labelled=True)
    dataset = load_data(data, **_reading_options(model, data, zero_based))
    _check_rows_fit(model, data, *dataset.X.shape)
    return dataset


def open_for_model(model: Any, data: Path, zero_based: ZeroBased, reader: TextReader | None = None) -> RowStream:
    """The same rows without their labels, to be read block by block."""
    if reader is not None:
        return rows_of_array(data, reader.dataset(data, labelled=False).X)
    rows = open_rows(data, **_reading_options(model, data, zero_based))
    _check_rows_fit(model, data, rows.n_rows, rows.n_features)
    return rows


def _reading_options(model: Any, data: Path, zero_based: ZeroBased) -> dict[str, Any]:
    if is_table(data):
        raise DataFormatError("a table of text, and the model takes rows of numbers", path=str(data))
    if zero_based == "auto":
        base = getattr(model, "index_base_", {}).get(recognize_format(data))
        zero_based = "auto" if base is None else base == 0
    # A model with one label a row reads any file: lists of one label each may be matched by name.
    multilabel = True if model.kind_ == "multilabel" else None
    return {"n_features": model.n_features_in_, "zero_based": zero_based, "multilabel": multilabel}


def _check_rows_fit(model: Any, data: Path, n_rows: int, n_features: int) -> None:
    if n_rows == 0:
        raise DataFormatError("the data have no rows", path=str(data), remedy="give at least one")
    if n_features != model.n_features_in_:
        raise DataFormatError(
            f"the rows have {n_features:,} features and the model {model.n_features_in_:,}",
            path=str(data),
            remedy="give rows with the same features as in training",
        )


def labels_of_rows(model: Any, dataset: Dataset) -> Any:
    """For a model with one label per row: an array of objects, each row's label, as in `classes_` if it is there."""
    y = dataset.Y
    if y.ndim == 2:
        remedy = "evaluate on rows with one label each, or train on lists of labels"
        y = only_labels(dataset, "the model gives one label a row", remedy)
    known = model.classes_.tolist()
    values = y.tolist()
    if (y.dtype.kind in "biuf") != (model.classes_.dtype.kind in "biuf"):  # one has names where the other has numbers
        known, values = [str(label) for label in known], [str(label) for label in values]
    label_of = dict(zip(known, model.classes_.tolist(), strict=True))
    _report_unknown(dataset, sorted({str(value) for value in values if value not in label_of}), len(set(values)), known)
    labels = np.empty(len(values), dtype=object)  # a number stays a number beside names that are unknown
    labels[:] = [label_of.get(value, value) for value in values]
    return labels


def classes_of_rows(model: Any, dataset: Dataset) -> Any:
    """The number of each row's class in `classes_`, −1 for one that the model does not know."""
    return class_numbers(model.classes_, labels_of_rows(model, dataset))


def only_labels(dataset: Dataset, need: str, remedy: str) -> Any:
    """The name of each row's label, its column number without names, of a file with lists of labels that all have one.

    Otherwise an error that says who needs it so, and what to do.
    """
    Y = sp.csr_array(dataset.Y)
    counts = np.diff(Y.indptr)
    if np.any(counts != 1):
        row = int(np.argmax(counts != 1))
        raise DataFormatError(
            f"{need}, but the file has lists of labels: row {row} (counted from 0) has {counts[row]}",
            path=dataset.path,
            remedy=remedy,
        )
    columns = Y.indices.astype(np.int64)
    return columns if dataset.label_names is None else np.array(dataset.label_names, dtype=object)[columns]


def truth_in_model_columns(model: Any, dataset: Dataset) -> Any:
    """The true labels as an indicator that begins with the model's labels, matched by name where there are names.

    A label that the model does not know keeps a column of its own at the end: it is a miss, not nothing.
    """
    if dataset.Y.ndim != 2:
        raise DataFormatError(
            "the model gives lists of labels, but the file has one label a row",
            path=dataset.path,
            remedy="evaluate on rows with lists of labels, or train on rows with one label each",
        )
    Y, n_labels = sp.csr_array(dataset.Y), len(model.classes_)
    known, names = [str(name) for name in model.classes_.tolist()], dataset.label_names
    # Numbers as names, which svmlight always has, are those of a model's columns without names.
    has_names = model.classes_.dtype.kind not in "iu"
    if names is not None and names != known and (has_names or all(name.isdecimal() for name in names)):
        place = {name: column for column, name in enumerate(known)}
        new = {name: n_labels + i for i, name in enumerate(n for n in names if n not in place)}
        _report_unknown(dataset, list(new), len(names), known)
        columns = np.array([place.get(name, new.get(name)) for name in names], dtype=np.int64)
        return sp.csr_array((Y.data, columns[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels + len(new)))
    if Y.shape[1] != n_labels:
        raise DataFormatError(
            f"the data have {Y.shape[1]:,} labels and the model {n_labels:,}",
            path=dataset.path,
            remedy="evaluate data with the same label columns as in training, or name the labels of both",
        )
    return Y


def _report_unknown(dataset: Dataset, unknown: list[str], n_labels: int, known: list[Any]) -> None:
    """An error when the model knows none of the labels, a warning when it does not know some."""
    if not unknown:
        return
    if len(unknown) == n_labels:
        remedy = "name the labels of the file as those of the training data, in <name>_labels.txt next to it"
        if is_table(dataset.path):
            remedy = (
                "write labels as in the training data, or say which column and separator to read: --labels, --label-sep"
            )
        raise DataFormatError(
            f"the model knows none of the labels; the file has {unknown[0]!r}, the model {str(known[0])!r}",
            path=dataset.path,
            remedy=remedy,
        )
    warnings.warn(
        f"{dataset.path}: the model does not know {len(unknown):,} of {n_labels:,} labels, such as {unknown[0]!r}; "
        "they count as misses",
        DataFormatWarning,
        stacklevel=2,
    )
