"""Tables of text: chosen columns of CSV, TSV, JSON lines and Parquet files, row by row.

    .csv, .tsv, .tab               a header line with the names of the columns; quotes as spreadsheets write them
    .jsonl, .ndjson, .json         one JSON object a line
    .parquet, .pq                  by pyarrow, from the extra `text`

Text files are UTF-8, with or without a byte order mark, plain or gzipped (told by content). Rows are read as they are
asked for; an error names the file, the line and the column. Memory: a line, or a batch of rows of a Parquet file.

Columns of Parquet files by pyarrow, which is an extra and imported only here. Memory: one batch of rows.

Texts and their labels out of a table: several columns make one text, one column has the labels.

    text of a row   =  its text columns, joined by a line break
    labels          one a row;  or a list: a cell such as "red|round" with a separator, or a list of JSON or Parquet

Rows are read once, as they are asked for, so that a vectoriser sees them as a stream: memory is that of the labels.
"""

from __future__ import annotations

import csv
import difflib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin.data.files import BrokenGzip, open_input, read_blocks
from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike

__all__ = [
    "Cells",
    "TableFormat",
    "TextRows",
    "Texts",
    "is_table",
    "read_cells",
    "read_parquet_cells",
    "read_texts",
    "table_format",
]

TableFormat = Literal["csv", "tsv", "json", "parquet"]
ENDINGS: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
BLOCK_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 26  # a longer line is no line of a table
MAX_CELL_CHARS = 1 << 24  # of CSV, where an open quote would swallow the rest of the file
ROWS_PER_BATCH = 1024
LISTED = 20
"""Columns that an error lists."""


class Cells(NamedTuple):
    """The values of the chosen columns of one row, and where it is: a line of text, a row of Parquet, from 1.

    Values are str in CSV and TSV; in other formats anything that JSON has, None for what is missing.
    """

    place: int
    values: list[Any]


def table_format(path: PathLike) -> TableFormat:
    """The format of a table by the ending of its name; DataFormatError for other names.

    Parameters
    ----------
    path : str or path
        The file; `.gz` at the end is ignored.

    Returns
    -------
    format : {"csv", "tsv", "json", "parquet"}

    Examples
    --------
    >>> from widemargin.data.tables import table_format
    >>> table_format("reviews.tsv.gz")
    'tsv'
    """
    ending = Path(os.fspath(path).removesuffix(".gz")).suffix.lower()
    if ending not in ENDINGS:
        raise DataFormatError(
            "the format of a table is told by the ending of its name, and this has none of them",
            path=os.fspath(path),
            remedy=f"use one of {', '.join(ENDINGS)}",
        )
    return ENDINGS[ending]


def is_table(path: PathLike) -> bool:
    """Whether the name ends like that of a table.

    Examples
    --------
    >>> from widemargin.data.tables import is_table
    >>> is_table("reviews.csv"), is_table("train.txt.gz")
    (True, False)
    """
    return Path(os.fspath(path).removesuffix(".gz")).suffix.lower() in ENDINGS


def read_cells(
    path: PathLike, columns: Sequence[str], *, delimiter: str | None = None, quotes: bool = True
) -> Iterator[Cells]:
    """The values of some columns, row by row.

    Parameters
    ----------
    path : str or path
        The table.
    columns : sequence of str
        Names of the columns.
    delimiter : str, optional
        What separates the cells of a CSV or TSV file; a comma or a tab by default.
    quotes : bool, default=True
        Whether cells of a CSV or TSV file may stand in quotes; False takes quotes as letters like others.

    Yields
    ------
    Cells
        Blank lines are left out.

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin.data.tables import read_cells
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "pets.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write('name,age,noise\\ncat,3,"mew, mew"\\n')
    >>> [tuple(row) for row in read_cells(path, ["noise", "name"])]
    [(2, ['mew, mew', 'cat'])]
    >>> folder.cleanup()
    """
    kind = table_format(path)
    if delimiter is not None:
        if kind not in DELIMITERS:
            raise ValueError(f"{path}: a delimiter separates the cells of CSV and TSV files; leave it out")
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise ValueError(f"a delimiter is one character, no quote and no line break; got {delimiter!r}")
    if kind == "parquet":
        yield from read_parquet_cells(path, columns, ROWS_PER_BATCH)
    elif kind == "json":
        yield from _read_json(path, columns)
    else:
        yield from _read_csv(path, columns, delimiter or DELIMITERS[kind], quotes)


def check_columns(
    path: PathLike, known: Sequence[str], columns: Sequence[str], hint: str = "", line: int | None = None
) -> None:
    """An error for columns that a table does not have, or has more than once."""
    for column in columns:
        if column not in known:
            raise missing_column(path, column, known, hint)
        if known.count(column) > 1:
            raise DataFormatError(
                f"{known.count(column)} columns have the name {column!r}",
                path=os.fspath(path),
                line=line,
                remedy="give each column a name of its own",
            )


def missing_column(path: PathLike, column: str, known: Sequence[str], hint: str = "") -> DataFormatError:
    """The error for a column that a table does not have."""
    listed = ", ".join(map(repr, known[:LISTED])) + (f" and {len(known) - LISTED} more" if len(known) > LISTED else "")
    near = difflib.get_close_matches(column, known, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else hint or "name one of them (--text, --labels on the command line)"
    return DataFormatError(f"column {column!r} is not in {path}; its columns are {listed or 'none'}", remedy=remedy)


def _lines(path: PathLike) -> Iterator[str]:
    """Lines of UTF-8 text with their ends; errors name the line."""
    for number, line in enumerate(_byte_lines(path), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataFormatError(
                f"not UTF-8 text (byte 0x{line[error.start]:02x} at position {error.start + 1})",
                path=os.fspath(path),
                line=number,
                remedy="save the file as UTF-8",
            ) from None


def _byte_lines(path: PathLike) -> Iterator[bytes]:
    """Lines as bytes, of a plain or gzipped file."""
    with open_input(path):  # a missing file or a folder has an error of its own
        pass
    pending: list[bytes] = []
    n_pending, number = 0, 1
    try:
        for block in read_blocks(path, BLOCK_BYTES):
            first, *rest = block.tobytes().split(b"\n")
            pending.append(first)
            n_pending += len(first)
            if n_pending > MAX_LINE_BYTES:
                raise DataFormatError(
                    f"a line of more than {MAX_LINE_BYTES:,} bytes; this is no table of text",
                    path=os.fspath(path),
                    line=number,
                )
            if not rest:
                continue
            yield b"".join([*pending, b"\n"])
            yield from (line + b"\n" for line in rest[:-1])
            pending, n_pending, number = [rest[-1]], len(rest[-1]), number + len(rest)
    except BrokenGzip as error:
        raise DataFormatError(str(error), path=os.fspath(path), line=number) from None
    if n_pending:
        yield b"".join(pending)


def _read_csv(path: PathLike, columns: Sequence[str], delimiter: str, quotes: bool) -> Iterator[Cells]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_CHARS))  # the default of 128 k is short for a text
    reader = csv.reader(
        _lines(path), delimiter=delimiter, strict=True, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    )
    header = _next_record(path, reader)
    if header is None:
        raise DataFormatError(
            "the file is empty", path=os.fspath(path), remedy="its first line has the names of the columns"
        )
    places = _column_places(path, [name.strip() for name in header], columns, delimiter)
    while True:
        start = reader.line_num + 1
        record = _next_record(path, reader)
        if record is None:
            return
        if not record:
            continue
        if len(record) != len(header):
            raise DataFormatError(
                f"{len(record)} cells, and the header has {len(header)} columns",
                path=os.fspath(path),
                line=start,
                remedy='put cells with a delimiter or a line break in quotes, "…"',
            )
        yield Cells(start, [record[place] for place in places])


def _next_record(path: PathLike, reader: Any) -> list[str] | None:
    """The next record, None at the end; csv's errors with file and line."""
    start = reader.line_num + 1
    try:
        record: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise DataFormatError(
            f"{error}",
            path=os.fspath(path),
            line=start,
            remedy='inside a quoted cell write a quote twice, "", and close it; or read without quotes',
        ) from None
    return record


def _column_places(path: PathLike, header: list[str], columns: Sequence[str], delimiter: str) -> list[int]:
    """Where the columns are in a record."""
    others = [mark for mark in (";", "\t", ",", "|") if mark != delimiter and len(header) == 1 and mark in header[0]]
    how = "give it as the delimiter (--delimiter on the command line)"
    hint = f"cells seem to be separated by {others[0]!r}; {how}" if others else ""
    check_columns(path, header, columns, hint, line=1)
    return [header.index(column) for column in columns]


def _read_json(path: PathLike, columns: Sequence[str]) -> Iterator[Cells]:
    """Objects of JSON lines; a key that some lines lack is None there, one that all lack is an error."""
    seen: dict[str, None] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        record = _json_object(path, number, line)
        seen.update(dict.fromkeys(record))
        yield Cells(number, [record.get(column) for column in columns])
    for column in columns:
        if seen and column not in seen:
            raise missing_column(path, column, list(seen))


def _json_object(path: PathLike, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=lambda name: None)  # NaN, which pandas may write, is nothing
    except (ValueError, RecursionError) as error:
        array = line.lstrip()[:1] == "["
        raise DataFormatError(
            f"not a JSON object ({error})",
            path=os.fspath(path),
            line=number,
            remedy="write one object a line, not an array of them" if array else "write one object a line",
        ) from None
    if not isinstance(record, dict):
        raise DataFormatError(
            f"a {type(record).__name__}, not a JSON object",
            path=os.fspath(path),
            line=number,
            remedy="write one object a line, with the columns as keys",
        )
    if "\\ud" in line.lower():
        _refuse_half_characters(path, number, record)
    return record


def _refuse_half_characters(path: PathLike, number: int, record: dict[str, Any]) -> None:
    """An error for escapes such as \\ud800 that are not in pairs: no file of a model could hold such a label."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataFormatError(
            f"the escape {error.object[error.start]!r} is half of a character",
            path=os.fspath(path),
            line=number,
            remedy="write such characters as UTF-8, or by both of their escapes",
        ) from None


def read_parquet_cells(path: PathLike, columns: Sequence[str], batch_rows: int) -> Iterator[Cells]:
    """Values of some columns as Python's own; rows are counted from 1."""
    pyarrow, parquet = _modules(path)
    with open_input(path):  # a missing file or a folder has an error of its own
        pass
    try:
        with parquet.ParquetFile(os.fspath(path)) as file:
            check_columns(path, file.schema_arrow.names, columns)
            number = 0
            for batch in file.iter_batches(batch_size=batch_rows, columns=list(columns)):
                parts = [batch.column(column).to_pylist() for column in columns]
                for values in zip(*parts, strict=True):
                    number += 1
                    yield Cells(number, list(values))
    except DataFormatError:
        raise
    # Beside its own errors pyarrow lets out those of names that are no UTF-8, and of dates that Python does not have.
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataFormatError(f"cannot be read as Parquet ({text})", path=os.fspath(path)) from None


def _modules(path: PathLike) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataFormatError(
            "reading Parquet needs pyarrow",
            path=os.fspath(path),
            remedy="pip install widemargin[text], or convert the file to CSV or JSON lines",
        ) from None
    return pyarrow, pyarrow.parquet


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
