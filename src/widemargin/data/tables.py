"""Tables of text: how one is described, and its texts and labels, row by row.

    .csv, .tsv, .tab               a header line with the column names; quotes as spreadsheets write them
    .jsonl, .ndjson, .json         one JSON object per line
    .parquet, .pq                  by pyarrow, from the extra `parquet`

    text of a row   =  its text columns, joined by line breaks
    labels          one per row, or a list: a cell such as "red|round" with a separator, or a JSON or Parquet list

A `TableSpec` says which columns to read and how; it is stored with a model, and later tables are read the same way.
Text files may have any encoding and may be gzipped (recognised by content). Rows are a stream: each is read once, when
the vectoriser asks for it. An error names the file, the line and the column. Memory: a block of the file or a batch of
Parquet rows, and the labels.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.exceptions import DataFormatError
from widemargin.files import BrokenGzip, PathLike, open_input, read_blocks

__all__ = [
    "Cells", "TableFormat", "TableSpec", "TextRows", "Texts", "is_table", "read_cells", "read_texts", "table_format",
]  # fmt: skip

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
MAX_LINE_CHARS = 1 << 26  # a longer line is not part of a table
MAX_CELL_CHARS = 1 << 24  # of CSV, where an open quote would swallow the rest of the file
ROWS_PER_BATCH = 1024
LISTED = 20
"""Columns that an error lists."""
CELLS_KEPT = 10_000
"""Label cells that `TextRows` counts, for hints about their form."""


@dataclass(frozen=True)
class TableSpec:
    """How a table is read: which columns make the text, which one has the labels, and the form of the file.

    Examples
    --------
    >>> from widemargin.data.tables import TableSpec
    >>> spec = TableSpec(("title", "body"), "tags", label_sep="|", delimiter=";", format="csv")
    >>> TableSpec.from_dict(spec.to_dict()) == spec
    True
    >>> spec.for_file("rows.tsv").delimiter is None
    True
    """

    text: tuple[str, ...] = ()  # text columns
    labels: str | None = None  # label column
    label_sep: str | None = None  # between the labels of a cell; without it a cell is one label, or a JSON list
    delimiter: str | None = None  # between the cells of CSV and TSV files; None for a comma or a tab
    quotes: bool = True  # whether cells of CSV and TSV files may be quoted; False takes quotes as ordinary characters
    encoding: str = "utf-8"  # of text files
    format: TableFormat | None = None  # that delimiter, quotes and encoding are for; other files have the usual ones

    def __post_init__(self) -> None:
        if self.label_sep is not None and not self.label_sep.strip("\n"):
            raise ValueError(f"label_sep must be the text between two labels, such as '|'; got {self.label_sep!r}")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(
                f"delimiter must be a single character other than a quote or a line break; got {self.delimiter!r}"
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ValueError(f"unknown encoding {self.encoding!r}; use a name such as utf-8 or latin-1") from None

    def for_file(self, path: PathLike) -> TableSpec:
        """The spec for a file, whose format may differ from that of the table described."""
        found = table_format(path)
        if self.format in (None, found):
            return self
        return replace(self, delimiter=None, quotes=True, encoding="utf-8", format=found)

    def text_of(self, record: Mapping[str, str]) -> str:
        """The text of a row given by its columns."""
        missing = [name for name in self.text if name not in record]
        if missing:
            raise ValueError(f"column {missing[0]!r} is missing; the text columns are {', '.join(self.text)}")
        return "\n".join(record[name] for name in self.text)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for a model folder; the form only where it is unusual."""
        found: dict[str, Any] = {"text": list(self.text), "labels": self.labels, "label_sep": self.label_sep}
        form: dict[str, Any] = {"delimiter": self.delimiter, "quotes": self.quotes}
        if self.encoding != "utf-8":
            form["encoding"] = self.encoding
        if self.format is not None and form != {"delimiter": None, "quotes": True}:
            found["form"] = {self.format: form}
        return found

    @classmethod
    def from_dict(cls, source: Mapping[str, Any]) -> TableSpec:
        """The spec that `to_dict` described; a ValueError, TypeError or KeyError for anything else."""
        if set(source) - {"form"} != {"text", "labels", "label_sep"}:
            raise ValueError(f"the table description has unexpected keys: {', '.join(sorted(source))}")
        text, labels, label_sep = source["text"], source["labels"], source["label_sep"]
        if not isinstance(text, list) or not text:
            raise ValueError("the table description names no text column")
        forms = source.get("form", {})
        kind, form = next(iter(dict(forms).items()), (None, {}))
        form = dict(form)
        types = set(map(type, (*text, labels, label_sep, form.get("delimiter"), form.get("encoding"), kind)))
        if not types <= {str, type(None)} or labels is None or None in text or len(forms) > 1:
            raise ValueError(
                "the table description contains a column, separator, delimiter or encoding that is not a string"
            )
        if kind not in (None, *ENDINGS.values()) or type(form.get("quotes", True)) is not bool:
            raise ValueError(
                f"the table description has an invalid format, {kind!r}, or an invalid value of quotes, "
                f"{form.get('quotes')!r}"
            )
        if form and not {"delimiter", "quotes"} <= set(form) <= {"delimiter", "quotes", "encoding"}:
            raise ValueError("the table description must contain a delimiter, quotes and, optionally, an encoding")
        return cls(tuple(text), labels, label_sep, **form, format=kind)


USUAL = TableSpec()


class Cells(NamedTuple):
    """The values of the chosen columns of one row, and its line of text or row of Parquet, counted from 1.

    Values are str in CSV and TSV; in other formats any JSON value, None where one is missing.
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
            "the file name does not end like that of a table", path=path, remedy=f"use one of {', '.join(ENDINGS)}"
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


@with_shared_passages
def read_cells(path: PathLike, columns: Sequence[str], spec: TableSpec = USUAL) -> Iterator[Cells]:
    """The values of some columns, row by row.

    Parameters
    ----------
    path : str or path
        The table.
    columns : sequence of str
        Names of the columns.
    spec : TableSpec
        Delimiter, quotes and encoding of the file.

    Yields
    ------
    Cells
        Blank lines are left out.

    <folder>
    >>> from widemargin.data.tables import read_cells
    >>> path = os.path.join(folder.name, "pets.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write('name,age,noise\\ncat,3,"mew, mew"\\n')
    >>> [tuple(row) for row in read_cells(path, ["noise", "name"])]
    [(2, ['mew, mew', 'cat'])]
    >>> folder.cleanup()
    """
    kind = table_format(path)
    if spec.delimiter is not None and kind not in DELIMITERS:
        raise ValueError(f"{path}: delimiter applies only to CSV and TSV files; leave it out")
    if kind == "parquet":
        return _read_parquet(path, columns)
    lines = _lines(path, spec.encoding)
    if kind == "json":
        return _read_json(path, lines, columns)
    return _read_csv(path, lines, columns, spec.delimiter or DELIMITERS[kind], spec.quotes)


def _check_columns(
    path: PathLike, known: Sequence[str], columns: Sequence[str], hint: str = "", line: int | None = None
) -> None:
    """Raise an error for columns that a table does not have, or has more than once."""
    for column in columns:
        if column not in known:
            listed = ", ".join(map(repr, known[:LISTED])) or "none"
            more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
            near = difflib.get_close_matches(column, known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else hint
            raise DataFormatError(
                f"column {column!r} is not in {path}; its columns are {listed}{more}",
                remedy=remedy or "use one of them (--text or --labels on the command line)",
            )
        if known.count(column) > 1:
            raise DataFormatError(
                f"{known.count(column)} columns are named {column!r}",
                path=path,
                line=line,
                remedy="use a distinct name for each column",
            )


def _lines(path: PathLike, encoding: str) -> Iterator[str]:
    """Lines of text with their ends, of a plain or gzipped file; errors name the line."""
    codec = codecs.lookup("utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding)
    decoder = codecs.getincrementaldecoder(codec.name)()
    pending, number = [""], 1  # the pieces of an unfinished line
    blocks = itertools.chain(read_blocks(path, BLOCK_BYTES), [None])
    while True:
        broken = None
        try:
            block = next(blocks)
            text = decoder.decode(b"" if block is None else block.tobytes(), block is None)
        except BrokenGzip as error:
            raise DataFormatError(str(error), path=path, line=number) from None
        except UnicodeDecodeError as error:
            broken, text = error, codec.decode(error.object[: error.start])[0]
        first, *rest = text.split("\n")
        pending.append(first)
        for line in rest:
            yield "".join([*pending, "\n"])
            pending, number = [line], number + 1
        if broken is not None:
            position = len("".join(pending).encode(encoding, "replace")) + 1
            name = "UTF-8" if codec.name == "utf-8-sig" else encoding
            raise DataFormatError(
                f"the line is not valid {name} text (byte 0x{broken.object[broken.start]:02x} at position {position})",
                path=path,
                line=number,
                remedy="save the file as UTF-8, or set the encoding (--encoding on the command line)",
            )
        if sum(map(len, pending)) > MAX_LINE_CHARS:
            problem = f"the line has more than {MAX_LINE_CHARS:,} characters; this is not a text table"
            raise DataFormatError(problem, path=path, line=number)
        if block is None:
            break
    if any(pending):
        yield "".join(pending)


def _read_csv(
    path: PathLike, lines: Iterator[str], columns: Sequence[str], delimiter: str, quotes: bool
) -> Iterator[Cells]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_CHARS))  # the default of 128 k is short for a text
    quoting: Any = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=quoting)
    start = 1
    try:
        header = next(reader, None)
        if header is None:
            remedy = "the first line must contain the column names"
            raise DataFormatError("the file is empty", path=path, remedy=remedy)
        header = list(map(str.strip, header))
        hint = ""
        if len(header) == 1 and (others := sorted(set(header[0]) & set(";\t,|") - {delimiter})):
            how = "pass it as the delimiter (--delimiter on the command line)"
            hint = f"cells seem to be separated by {others[0]!r}; {how}"
        _check_columns(path, header, columns, hint, line=1)
        places = list(map(header.index, columns))
        start = reader.line_num + 1
        for record in reader:
            if record and len(record) != len(header):
                raise DataFormatError(
                    f"the row has {len(record)} cells, but the header has {len(header)} columns",
                    path=path,
                    line=start,
                    remedy='enclose cells that contain a delimiter or a line break in quotes, "…"',
                )
            if record:
                yield Cells(start, list(map(record.__getitem__, places)))
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataFormatError(
            f"{error}",
            path=path,
            line=start,
            remedy='double each quote inside a quoted cell ("") and close the cell with a quote, or read the file '
            "without quotes",
        ) from None


def _read_json(path: PathLike, lines: Iterator[str], columns: Sequence[str]) -> Iterator[Cells]:
    """Objects of JSON lines; a key missing in some lines is None there, one missing in all lines is an error."""
    seen: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _json_object(path, number, line)
        seen.update(dict.fromkeys(record))
        yield Cells(number, [record.get(column) for column in columns])
    if seen:
        _check_columns(path, list(seen), columns)


def _json_object(path: PathLike, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=lambda name: None)  # NaN, which pandas may write, is a missing value
    except (ValueError, RecursionError) as error:
        array = line.lstrip()[:1] == "["
        raise DataFormatError(
            f"the line is not a JSON object ({error})",
            path=path,
            line=number,
            remedy="write one object per line, not an array" if array else "write one object per line",
        ) from None
    if not isinstance(record, dict):
        raise DataFormatError(
            f"the line must be a JSON object; got a {type(record).__name__}",
            path=path,
            line=number,
            remedy="write one object per line, with the columns as keys",
        )
    if "\\ud" in line.lower():
        _refuse_half_characters(path, number, record)
    return record


def _refuse_half_characters(path: PathLike, number: int, record: dict[str, Any]) -> None:
    """Raise an error for unpaired escapes such as \\ud800: no model file could hold such a label."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataFormatError(
            f"the escape {error.object[error.start]!r} is only half of a surrogate pair",
            path=path,
            line=number,
            remedy="write the character as UTF-8 or with both escapes",
        ) from None


def _read_parquet(path: PathLike, columns: Sequence[str]) -> Iterator[Cells]:
    """Values of some columns as Python's own; rows are counted from 1."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise DataFormatError(
            "reading Parquet requires pyarrow",
            path=path,
            remedy="run pip install 'widemargin[parquet]', or convert the file to CSV or JSON lines",
        ) from None
    with open_input(path):  # raises for a missing file or a folder
        pass
    try:
        with parquet.ParquetFile(os.fspath(path)) as file:
            _check_columns(path, file.schema_arrow.names, columns)
            number = 0
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=list(columns)):
                parts = [batch.column(column).to_pylist() for column in columns]
                for values in zip(*parts, strict=True):
                    number += 1
                    yield Cells(number, list(values))
    except DataFormatError:
        raise
    # pyarrow also raises errors about names that are not UTF-8, and about dates that Python cannot hold.
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataFormatError(f"the file cannot be read as Parquet ({text})", path=path) from None


class Texts(NamedTuple):
    """Texts with their labels.

    Parameters
    ----------
    texts : list of str of length n_samples
        The texts.
    y : ndarray of shape (n_samples,), list of lists of str, or None
        One label, or a list of labels, per row, in the forms that `fit` takes.

    Examples
    --------
    >>> from widemargin import Texts
    >>> Texts(["a red ball"], [["red", "round"]]).y
    [['red', 'round']]
    """

    texts: list[str]
    y: Any


class TextRows:
    """The texts of a table, as an iterable that is read once; labels are kept on the way.

    Parameters
    ----------
    path : str or path
        The table: CSV, TSV, JSON lines or Parquet.
    spec : TableSpec
        How to read it.
    labelled : bool, default=True
        Whether to read the label column.
    keep : sequence of str
        Further columns whose values are kept.
    skip_unlabelled : bool, default=False
        Leave out rows without a label.

    Attributes
    ----------
    multilabel : bool or None
        Whether rows have lists of labels; None before the first row that shows it.
    n_rows, n_skipped : int
        Rows read and rows left out so far.
    label_cells : Counter of str
        The first label cells as they are written.
    kept : list of list
        Values of the columns to keep, per row.

    Examples
    --------
    See `read_texts`.
    """

    def __init__(
        self,
        path: PathLike,
        spec: TableSpec,
        *,
        labelled: bool = True,
        keep: Sequence[str] = (),
        skip_unlabelled: bool = False,
    ) -> None:
        if not spec.text:
            raise ValueError("text_columns is empty; name at least one text column")
        self.path, self.spec, self.keep, self.skip_unlabelled = path, spec.for_file(path), keep, skip_unlabelled
        self.labels = spec.labels if labelled else None
        self.multilabel: bool | None = True if spec.label_sep is not None else None
        self.n_rows = self.n_skipped = 0
        self.label_cells: Counter[str] = Counter()
        self.kept: list[list[Any]] = []
        self._found: list[Any] = []
        self._undecided: int | None = None  # place of the first row without a label before one that has some

    def __iter__(self) -> Iterator[str]:
        n_text = len(self.spec.text)
        columns = [*self.spec.text, *([] if self.labels is None else [self.labels]), *self.keep]
        for place, values in read_cells(self.path, columns, self.spec):
            if self.labels is not None:
                value = values[n_text]
                if self.skip_unlabelled and _is_empty(value):
                    self.n_skipped += 1
                    continue
                if isinstance(value, str) and self.n_rows < CELLS_KEPT:
                    self.label_cells[value.strip()] += 1
                self._found.append(self._labels_of(place, value, self.labels))
            if self.keep:
                self.kept.append(values[len(values) - len(self.keep) :])
            self.n_rows += 1
            texts = values[:n_text]
            for number, text in enumerate(texts):
                if not isinstance(text, str):
                    texts[number] = self._plain(place, text, self.spec.text[number])
            yield "\n".join(texts)

    def y(self) -> Any:
        """The labels of the rows read so far, in a form that `fit` takes; None without a label column."""
        if self.labels is None:
            return None
        if self.multilabel:
            return [[] if found is None else found for found in self._found]
        if self._undecided is not None:
            raise self._no_label(self._undecided, self.labels)
        return np.array(self._found, dtype=object)

    def _labels_of(self, place: int, value: Any, column: str) -> Any:
        """The label or the labels of a row; the first row that has some decides which."""
        is_list = isinstance(value, list | tuple)
        if self.multilabel is None:
            if value is None:
                self._undecided = self._undecided or place
                return None
            self.multilabel = is_list
        if self.multilabel:
            return self._list_of(place, value, column)
        if is_list:
            raise self._error(place, f"column {column!r} has a list of labels, but earlier rows have one label")
        label = (value if isinstance(value, str) else self._plain(place, value, column)).strip()
        if not label or self._undecided is not None:
            raise self._no_label(self._undecided or place, column)
        return label

    def _list_of(self, place: int, value: Any, column: str) -> list[str]:
        if isinstance(value, list | tuple):
            parts = [self._plain(place, part, column) for part in value]
        elif value is None:
            parts = []
        elif self.spec.label_sep is None:
            raise self._error(place, f"column {column!r} has one label, but earlier rows have lists")
        else:
            parts = self._plain(place, value, column).split(self.spec.label_sep)
        return sorted({*map(str.strip, parts)} - {""})

    def _no_label(self, place: int, column: str) -> DataFormatError:
        return self._error(
            place,
            f"column {column!r} is empty, but each row must have a label",
            "fill it in, leave out the row (--skip-unlabelled on the command line), or set a label separator, which "
            "allows empty lists",
        )

    def _plain(self, place: int, value: Any, column: str) -> str:
        """A cell as text; numbers and booleans as JSON writes them, a missing value as an empty text."""
        if isinstance(value, str):
            return value
        if value is None or value != value:  # NaN marks a missing value
            return ""
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        problem = f"column {column!r} has a value of type {type(value).__name__}, not text"
        raise self._error(place, problem, "use strings or numbers")

    def _error(self, place: int, problem: str, remedy: str | None = None) -> DataFormatError:
        path = os.fspath(self.path)
        if table_format(path) == "parquet":
            return DataFormatError(f"row {place}: {problem}", path=path, remedy=remedy)
        return DataFormatError(problem, path=path, line=place, remedy=remedy)


def _is_empty(value: Any) -> bool:
    """Whether a label cell has no label."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value or (isinstance(value, list | tuple) and not value)


@with_shared_passages
def read_texts(
    path: PathLike,
    text: str | Sequence[str],
    labels: str | None = None,
    *,
    label_sep: str | None = None,
    delimiter: str | None = None,
    quotes: bool = True,
    encoding: str = "utf-8",
) -> Texts:
    """Read texts and their labels from a CSV, TSV, JSON lines or Parquet file.

    Parameters
    ----------
    path : str or path
        The file; the ending of its name gives the format. All but Parquet may be gzipped.
    text : str or sequence of str
        Name of the text column, or of several, which are joined by line breaks.
    labels : str, optional
        Name of the label column.
    label_sep : str, optional
        Separator of the labels in a cell, such as "|"; without it a cell is one label, except for JSON and Parquet
        lists. Blanks around labels are dropped, and so are empty labels.
    delimiter : str, optional
        Separator of the cells of CSV and TSV files; a comma or a tab by default.
    quotes : bool, default=True
        Whether cells of CSV and TSV files may be quoted; False takes quotes as ordinary characters.
    encoding : str, default="utf-8"
        Encoding of text files; a byte order mark is skipped.

    Returns
    -------
    Texts
        Named tuple `(texts, y)`.

    <folder>
    >>> from widemargin import read_texts
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
    columns = (text,) if isinstance(text, str) else tuple(text)
    rows = TextRows(path, TableSpec(columns, labels, label_sep, delimiter, quotes, encoding))
    texts = list(rows)
    return Texts(texts, rows.y())
