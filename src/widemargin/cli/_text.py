"""Text on the command line: tables become rows for the classifiers, models with a vectoriser are opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin.cli._label_lists import hint_of_lists
from widemargin.cli._text_options import TableColumns, TextOptions
from widemargin.data.load import Dataset, load_data
from widemargin.data.tables import TextRows, Texts, is_table, read_texts, table_format
from widemargin.data.text import ZeroBased
from widemargin.estimators.persistence import load
from widemargin.estimators.text import TextPart, TextPipeline
from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import encode_targets

__all__ = [
    "OpenModel",
    "TextReader",
    "check_text_options",
    "load_training",
    "open_model",
    "read_table",
    "refuse_table",
    "vectorizer_of",
]


@dataclass(frozen=True)
class TextReader:
    """Reads tables for a model: its vectoriser, and the columns of its training data unless others are given."""

    vectorizer: TfidfVectorizer
    columns: list[str]
    labels: str | None
    label_sep: str | None
    one_label: bool = False
    given: TableColumns = field(default_factory=TableColumns)
    known_form: dict[str, dict[str, Any]] = field(default_factory=dict)

    def form(self, path: Path) -> dict[str, Any]:
        """Delimiter and quotes of a table: those given, those of training for a table of the same format, or none."""
        known = self.known_form.get(table_format(path), {})
        quotes = known.get("quotes", True) if self.given.quotes is None else self.given.quotes
        return {"delimiter": self.given.delimiter or known.get("delimiter"), "quotes": quotes}

    def dataset(self, path: Path, *, labelled: bool) -> Dataset:
        """The rows of a table, with labels if they are wanted."""
        if not self.columns:
            raise ValueError(f"{path}: the model does not know the columns of text; name them with --text")
        if labelled and self.labels is None:
            raise ValueError(f"{path}: the model does not know the column of labels; name it with --labels")
        labels = self.labels if labelled else None
        form = self.form(path)
        if labels is not None:
            # A model of one label a row has whole cells for labels.
            remedy = "train the model with" if self.one_label else "give"
            hint_of_lists(path, labels, form, self.label_sep, remedy)
        rows = TextRows(path, self.columns, labels, label_sep=self.label_sep, **form)
        return _dataset(self.vectorizer.transform(rows), rows)


class OpenModel(NamedTuple):
    """A classifier, and a reader of tables if it was stored with a vectoriser."""

    classifier: Any
    reader: TextReader | None


def check_text_options(data: Path, text: TextOptions | None, labels: Any, features: Any) -> None:
    """An error for options of `train` that do not fit a table, or a table without them."""
    if text is None:
        if is_table(data):
            raise ValueError(
                f"{data} is a table: name its columns of text and of labels, as in --text title,body --labels tags"
            )
        return
    if labels is None:
        raise ValueError("--labels is missing: with --text it is the column of labels")
    if features is not None:
        raise ValueError("--features is not for text, whose features are its terms; leave it out")


def refuse_table(data: Path, command: str) -> None:
    """An error for a table where rows of numbers are wanted."""
    if is_table(data):
        raise ValueError(f"{data} is a table of text, and {command} takes rows of numbers; train takes it, with --text")


def load_training(
    data: Path, text: TextOptions | None, *, labels: Path | None, features: Path | None, zero_based: ZeroBased
) -> Dataset:
    """Training data of any kind; those of text have the fitted vectoriser with them."""
    check_text_options(data, text, labels, features)
    if text is None:
        return load_data(data, label_names=labels, feature_names=features, zero_based=zero_based)
    form: dict[str, Any] = {"delimiter": text.delimiter, "quotes": text.quotes}
    hint_of_lists(data, str(labels), form, text.label_sep)
    rows = TextRows(data, text.columns, str(labels), label_sep=text.label_sep, **form)
    vectorizer = vectorizer_of(text)
    try:
        X = vectorizer.fit_transform(rows)
    except DataFormatError:
        raise
    except ValueError as error:  # no terms, or options that contradict each other
        if rows.n_rows == 0:
            raise _no_rows(data) from None
        raise DataFormatError(str(error), path=str(data)) from None
    source = {"text": text.columns, "labels": str(labels), "label_sep": text.label_sep}
    unusual = form != {"delimiter": None, "quotes": True}
    return _dataset(X, rows, TextPart(vectorizer, source | ({"form": {table_format(data): form}} if unusual else {})))


def vectorizer_of(text: TextOptions) -> TfidfVectorizer:
    """The vectoriser that the options describe, not fitted."""
    return TfidfVectorizer(dtype=np.float32, **text.vectorizer)


def read_table(data: Path, text: TextOptions, labels: str) -> Texts:
    """All texts of a table with their labels, for work that goes through them more than once."""
    form: dict[str, Any] = {"delimiter": text.delimiter, "quotes": text.quotes}
    hint_of_lists(data, labels, form, text.label_sep)
    found = read_texts(data, text.columns, labels, label_sep=text.label_sep, **form)
    if not found.texts:
        raise _no_rows(data)
    return found


def open_model(folder: Path, table: TableColumns | None = None) -> OpenModel:
    """The classifier of a model folder, and what reads tables for it; names of columns replace those it has."""
    given = TableColumns() if table is None else table
    model = load(folder)
    if not isinstance(model, TextPipeline):
        if given != TableColumns():
            raise ValueError(f"{folder} takes rows of numbers, not text: leave out options of tables")
        return OpenModel(model, None)
    known = model.source_
    columns = given.text or known.get("text", [])
    labels, label_sep = given.labels or known.get("labels"), given.label_sep or known.get("label_sep")
    classifier = model[-1]
    one_label = classifier.kind_ != "multilabel"
    reader = TextReader(model[0], columns, labels, label_sep, one_label, given, known.get("form", {}))
    return OpenModel(classifier, reader)


def _dataset(X: Any, rows: TextRows, text: TextPart | None = None) -> Dataset:
    """What other formats give: an indicator with names for lists of labels, an array of names for one a row."""
    if rows.n_rows == 0:
        raise _no_rows(rows.path)
    y, names = rows.y(), None
    if isinstance(y, list):
        targets = encode_targets(y)
        if targets.n_classes == 0:
            raise DataFormatError(f"column {rows.labels!r} has no labels", path=str(rows.path))
        y, names = targets.Y, [str(label) for label in targets.classes.tolist()]
    terms = None if text is None else [str(term) for term in text.vectorizer.get_feature_names_out()]
    return Dataset(X, y, names, terms, str(rows.path), text=text)


def _no_rows(path: Any) -> DataFormatError:
    return DataFormatError("the data have no rows", path=str(path), remedy="give at least one")
