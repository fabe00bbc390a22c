"""Texts and their labels out of a table: several columns make one text, one column has the labels.

    text of a row   =  its text columns, joined by a line break
    labels          one a row;  or a list: a cell such as "red|round" with a separator, or a list of JSON or Parquet

Rows are read once, as they are asked for, so that a vectoriser sees them as a stream: memory is that of the labels.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from widemargin.data.files import PathLike
from widemargin.data.tables import Cells, read_cells, table_format
from widemargin.exceptions import DataFormatError

__all__ = ["TextRows", "Texts", "read_texts"]


class Texts(NamedTuple):
    """Texts with their labels.

    Parameters
    ----------
    texts : list of str of length n_samples
        The texts.
    y : ndarray of shape (n_samples,), list of lists of str, or None
        One label a row, or a list of labels a row, in the forms that `fit` takes.

    Examples
    --------
    >>> from widemargin import Texts
    >>> Texts(["a red ball"], [["red", "round"]]).y
    [['red', 'round']]
    """

    texts: list[str]
    y: Any


class TextRows:
    """The texts of a table, as an iterable that can be gone through once; labels are kept on the way.

    Parameters
    ----------
    path : str or path
        The table: CSV, TSV, JSON lines or Parquet.
    text : sequence of str
        Names of the columns that make up the text.
    labels : str, optional
        Name of the column of labels.
    label_sep : str, optional
        What separates the labels of a cell; without it a cell is one label, but for lists of JSON and Parquet.
    delimiter : str, optional
        What separates the cells of CSV and TSV files; a comma or a tab by default.
    quotes : bool, default=True
        Whether cells of CSV and TSV files may stand in quotes; False takes quotes as letters like others.

    Attributes
    ----------
    multilabel : bool or None
        Whether rows have lists of labels; None before the first row that tells.
    n_rows : int
        Rows read so far.

    Examples
    --------
    See `read_texts`.
    """

    def __init__(
        self,
        path: PathLike,
        text: Sequence[str],
        labels: str | None = None,
        *,
        label_sep: str | None = None,
        delimiter: str | None = None,
        quotes: bool = True,
    ) -> None:
        if not text:
            raise ValueError("name at least one column of text")
        if label_sep is not None and not label_sep.strip("\n"):
            raise ValueError(f"label_sep is what stands between two labels, such as '|'; got {label_sep!r}")
        self.path, self.text, self.labels = path, list(text), labels
        self.label_sep = label_sep
        self._form: dict[str, Any] = {"delimiter": delimiter, "quotes": quotes}
        self.multilabel: bool | None = True if label_sep is not None else None
        self.n_rows = 0
        self._found: list[Any] = []
        self._undecided: Cells | None = None  # the first of the rows without a label before one that has some
        self._unit = "row" if table_format(path) == "parquet" else "line"

    def __iter__(self) -> Iterator[str]:
        columns = [*self.text, *([] if self.labels is None else [self.labels])]
        for cells in read_cells(self.path, columns, **self._form):
            texts = [
                self._plain(cells, value, column)
                for value, column in zip(cells.values[: len(self.text)], self.text, strict=True)
            ]
            if self.labels is not None:
                self._found.append(self._labels_of(cells, self.labels))
            self.n_rows += 1
            yield "\n".join(texts)

    def y(self) -> Any:
        """The labels of the rows that were read, in a form that `fit` takes; None without a column of labels."""
        if self.labels is None:
            return None
        if self.multilabel:
            return [[] if found is None else found for found in self._found]
        if self._undecided is not None:
            raise self._no_label(self._undecided, self.labels)
        return np.array(self._found, dtype=object)

    def _labels_of(self, cells: Cells, column: str) -> Any:
        """The label or the labels of a row; the first row that has some decides which."""
        value = cells.values[-1]
        is_list = isinstance(value, list | tuple)
        if self.multilabel is None:
            if value is None:
                self._undecided = self._undecided or cells
                return None
            self.multilabel = is_list
        if self.multilabel:
            return self._list_of(cells, value, column)
        if is_list:
            raise self._error(cells, f"column {column!r} has a list of labels, and earlier rows have one label")
        label = self._plain(cells, value, column).strip()
        if not label or self._undecided is not None:
            raise self._no_label(self._undecided or cells, column)
        return label

    def _list_of(self, cells: Cells, value: Any, column: str) -> list[str]:
        if isinstance(value, list | tuple):
            parts = [self._plain(cells, part, column) for part in value]
        elif value is None:
            parts = []
        elif self.label_sep is None:
            raise self._error(cells, f"column {column!r} has one label, and earlier rows have lists")
        else:
            parts = self._plain(cells, value, column).split(self.label_sep)
        return sorted({part.strip() for part in parts} - {""})

    def _no_label(self, cells: Cells, column: str) -> DataFormatError:
        return self._error(
            cells,
            f"column {column!r} is empty, and each row needs a label",
            "fill it in, leave the row out, or give a separator of labels for lists, which may be empty",
        )

    def _plain(self, cells: Cells, value: Any, column: str) -> str:
        """A cell as text; numbers and truth values as JSON writes them, nothing as an empty text."""
        if isinstance(value, str):
            return value
        if value is None or value != value:  # NaN is how tables say that nothing is there
            return ""
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        raise self._error(
            cells, f"column {column!r} has a value of type {type(value).__name__}, not text", "give strings or numbers"
        )

    def _error(self, cells: Cells, problem: str, remedy: str | None = None) -> DataFormatError:
        path = os.fspath(self.path)
        if self._unit == "line":
            return DataFormatError(problem, path=path, line=cells.place, remedy=remedy)
        return DataFormatError(f"row {cells.place}: {problem}", path=path, remedy=remedy)


def read_texts(
    path: PathLike,
    text: str | Sequence[str],
    labels: str | None = None,
    *,
    label_sep: str | None = None,
    delimiter: str | None = None,
    quotes: bool = True,
) -> Texts:
    """Read texts and their labels from a CSV, TSV, JSON lines or Parquet file.

    Parameters
    ----------
    path : str or path
        The file, told by its ending; all but Parquet may be gzipped. UTF-8, with or without a byte order mark.
    text : str or sequence of str
        Name of the column of text, or of several, which are joined by line breaks.
    labels : str, optional
        Name of the column of labels.
    label_sep : str, optional
        What separates the labels of a cell, such as "|"; without it a cell is one label, but for lists of JSON and
        Parquet. Blanks around labels are dropped, and so are empty ones.
    delimiter : str, optional
        What separates the cells of CSV and TSV files; a comma or a tab by default.
    quotes : bool, default=True
        Whether cells of CSV and TSV files may stand in quotes; False takes quotes as letters like others.

    Returns
    -------
    Texts
        Named tuple `(texts, y)`.

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin import read_texts
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "toys.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write('name,about,tags\\nball,"it bounces, well",red|round\\nkite,it flies,\\n')
    >>> texts, y = read_texts(path, ["name", "about"], "tags", label_sep="|")
    >>> texts
    ['ball\\nit bounces, well', 'kite\\nit flies']
    >>> y
    [['red', 'round'], []]
    >>> folder.cleanup()
    """
    columns = [text] if isinstance(text, str) else list(text)
    rows = TextRows(path, columns, labels, label_sep=label_sep, delimiter=delimiter, quotes=quotes)
    texts = list(rows)
    return Texts(texts, rows.y())
