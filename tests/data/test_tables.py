"""Tables of text: the formats that the readers accept, and their errors for bad files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from widemargin import read_texts
from widemargin.data.tables import BLOCK_BYTES, TableSpec, TextRows, is_table, read_cells, table_format
from widemargin.exceptions import DataFormatError

COLUMNS = ["title", "tags"]


@pytest.fixture
def write(tmp_path):
    """A function that writes a file of text or bytes and returns its path."""

    def write_file(name, content):
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file


def cells(path, columns=COLUMNS, **options):
    return [tuple(row.values) for row in read_cells(path, columns, TableSpec(**options))]


def failure(path, columns=COLUMNS, **options):
    with pytest.raises(DataFormatError) as error:
        list(read_cells(path, columns, TableSpec(**options)))
    return str(error.value)


AWKWARD = 'id,title,tags\r\n1,"a ""b"", c",x|y\r\n\r\n2,"two\r\nlines","é"\r\n3,,\r\n4,last,z'
EXPECTED = [('a "b", c', "x|y"), ("two\r\nlines", "é"), ("", ""), ("last", "z")]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_quotes_line_breaks_marks_and_blank_lines_of_csv(write, mark, ending):
    path = write(f"t{ending}", mark + AWKWARD.encode())
    assert cells(path) == EXPECTED
    assert cells(path, ["tags", "id"])[0] == ("x|y", "1")


def test_lines_are_counted_where_a_row_starts(write):
    places = [row.place for row in read_cells(write("t.csv", AWKWARD), COLUMNS)]
    assert places == [2, 4, 6, 7]


def test_tsv_and_other_delimiters(write):
    assert cells(write("t.tsv", "title\ttags\na, b\tx\n")) == [("a, b", "x")]
    assert cells(write("t.csv", "title;tags\na, b;x\n"), delimiter=";") == [("a, b", "x")]
    assert cells(write("t.tsv", 'title\ttags\n"a" b\t"x\n'), quotes=False) == [('"a" b', '"x')]
    with pytest.raises(ValueError, match="single character"):
        cells(write("t.csv", "title;tags\n"), delimiter=";;")


def test_json_lines_have_lists_numbers_and_gaps(write):
    rows = [{"title": "a", "tags": ["x", "y"]}, {"title": None}, {"tags": [], "title": 3, "more": {"deep": 1}}]
    path = write("t.jsonl.gz", "\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert cells(path) == [("a", ["x", "y"]), (None, None), (3, [])]


def test_the_suffix_determines_the_format():
    assert [table_format(name) for name in ("a.CSV", "a.tab.gz", "a.ndjson", "a.pq")] == [
        "csv",
        "tsv",
        "json",
        "parquet",
    ]
    assert not is_table("train.txt.gz")
    with pytest.raises(DataFormatError, match=r"use one of \.csv"):
        table_format("a.xlsx")


def test_a_missing_column_is_named_with_those_that_are_there(write):
    message = failure(write("reviews.csv", "title,body,tags\na,b,c\n"), ["titles", "body"])
    assert "column 'titles' is not in" in message
    assert "its columns are 'title', 'body', 'tags'; did you mean 'title'?" in message
    assert "'b', 'a'" in failure(write("t.jsonl", '{"b": 1}\n{"a": 2}\n'), ["a", "c"])
    many = write("wide.csv", ",".join(f"c{i}" for i in range(50)) + "\n")
    assert "and 30 more" in failure(many, ["x"])


def test_another_delimiter_is_suspected(write):
    assert "separated by ';'" in failure(write("t.csv", "title;tags\na;b\n"), ["tags"])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["empty"]),
        ("title,tags\na,b\nc\n", ["line 3", "1 cells, but the header has 2 columns"]),
        ('title,tags\na,b\n"open,c\nd,e\n', ["line 3", "or read the file without quotes"]),
        ('title,tags\n"a" b,c\n', ["line 2", "double each quote"]),
        ("title,title,tags\na,b,c\n", ["line 1", "2 columns are named 'title'"]),
        (
            b"title,tags\na,b\ncaf\xe9,x\n",
            ["line 3", "not valid UTF-8", "0xe9 at position 4", "save the file as UTF-8"],
        ),
        ("title,tags\na,b\n".encode("utf-16"), ["line 1", "not valid UTF-8"]),
    ],
    ids=["empty", "ragged", "open quote", "stray quote", "twice", "latin-1", "utf-16"],
)
def test_a_damaged_csv_file_is_an_error_with_its_line(write, content, parts):
    message = failure(write("t.csv", content))
    assert all(part in message for part in ["t.csv", *parts]), message


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ('{"title": "a", "tags": "b"}\n{"title": \n', ["line 2", "not a JSON object"]),
        ('[{"title": "a"},\n{"title": "b"}]\n', ["line 1", "not an array"]),
        ('"title"\n', ["line 1", "must be a JSON object; got a str"]),
        ("[" * 100_000, ["line 1", "not a JSON object"]),
        (
            '{"title": "\\ud83d\\ude00"}\n{"tags": ["\\uD800"]}\n',
            ["line 2", r"'\ud800' is only half of a surrogate pair"],
        ),
    ],
    ids=["cut off", "array", "string", "deep", "half a character"],
)
def test_a_damaged_json_file_is_an_error_with_its_line(write, content, parts):
    message = failure(write("t.jsonl", content))
    assert all(part in message for part in ["t.jsonl", *parts]), message


def test_a_broken_gzip_stream_is_an_error(write, tmp_path):
    whole = gzip.compress(AWKWARD.encode() * 100)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert "gzip" in failure(path)


def test_cells_longer_than_a_block_and_than_csv_s_own_limit_are_read(write):
    long = "word " * (BLOCK_BYTES // 4)
    path = write("t.csv", f'title,tags\n"{long}",x\nb,y\n')
    assert cells(path) == [(long, "x"), ("b", "y")]


def test_files_that_are_not_there_say_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        cells(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "this is a folder" in failure(tmp_path / "folder.csv")


cell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)


@examples(60)
@given(st.lists(st.tuples(cell, cell), max_size=6), st.sampled_from([",", "\t", ";"]))
@pytest.mark.slow
def test_what_csv_writes_is_read_again(tmp_path_factory, rows, delimiter):
    """Python's csv module is the oracle; carriage returns are left out, because some releases do not keep them."""
    rows = [tuple(part.replace("\r", "") for part in row) for row in rows]
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([("title", "tags"), *rows])
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    assert cells(path, delimiter=delimiter) == rows


def test_texts_join_columns_and_split_labels(write):
    path = write("t.csv", "title,body,tags\nA,one, x | y ||x\nB,two,\n")
    texts, y = read_texts(path, ["title", "body"], "tags", label_sep="|")
    assert texts == ["A\none", "B\ntwo"]
    assert y == [["x", "y"], []]
    assert read_texts(path, "body").texts == ["one", "two"]
    assert read_texts(path, "body").y is None


def test_one_label_a_row_is_an_array_of_names(write):
    y = read_texts(write("t.csv", "t,l\na, x\nb,y\n"), "t", "l").y
    assert y.tolist() == ["x", "y"]
    with pytest.raises(DataFormatError, match="line 3: column 'l' is empty, but each row must have a label"):
        read_texts(write("t.csv", "t,l\na,x\nb, \n"), "t", "l")
    with pytest.raises(DataFormatError, match="line 1: column 'l' is empty"):
        read_texts(write("t.jsonl", '{"t": "a"}\n{"t": "b", "l": "x"}\n'), "t", "l")


def test_lists_of_json_are_lists_of_labels(write):
    path = write(
        "t.jsonl", '{"t": "a"}\n{"t": "b", "l": ["y", "x", "y"]}\n{"t": 7, "l": [1, true]}\n{"t": "d", "l": []}\n'
    )
    rows = TextRows(path, TableSpec(("t",), "l"))
    assert list(rows) == ["a", "b", "7", "d"]
    assert rows.y() == [[], ["x", "y"], ["1", "true"], []]
    for second in ('{"l": "x"}', '{"l": [["x"]]}', '{"t": {}}'):
        with pytest.raises(DataFormatError, match="line 2"):
            read_texts(write("t.jsonl", f'{{"t": "b", "l": ["y"]}}\n{second}\n'), "t", "l")


def test_the_stream_is_read_as_it_is_asked_for(write):
    path = write("t.csv", b"t\n" + b"a\n" * 5 + b"\xff\n")
    rows = iter(TextRows(path, TableSpec(("t",))))
    assert [next(rows) for _ in range(5)] == ["a"] * 5
    with pytest.raises(DataFormatError, match="line 7"):
        next(rows)


@pytest.fixture
def parquet(tmp_path):
    def write_table(**columns):
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    return write_table


def test_parquet_has_texts_and_lists(parquet):
    path = parquet(title=["a", None, "c"], tags=[["x"], [], None], n=[1, 2, 3])
    texts, y = read_texts(path, ["title", "n"], "tags")
    assert texts == ["a\n1", "\n2", "c\n3"]
    assert y == [["x"], [], []]
    assert read_texts(path, "title", "n").y.tolist() == ["1", "2", "3"]


def test_parquet_errors_name_the_row_and_the_column(parquet, tmp_path):
    with pytest.raises(DataFormatError, match="row 2: column 'tags' is empty"):
        read_texts(parquet(title=["a", "b"], tags=["x", ""]), "title", "tags")
    with pytest.raises(DataFormatError, match=r"column 'tag' is not in .*; its columns are 'title', 'tags'"):
        read_texts(tmp_path / "t.parquet", "title", "tag")
    twice = pyarrow.table([["a"], ["b"]], names=["title", "title"])
    pyarrow.parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(DataFormatError, match="2 columns are named 'title'"):
        read_texts(tmp_path / "t.parquet", "title")
    damaged = parquet(title=["a"]).read_bytes().replace(b"title", b"t\xe9tle")
    (tmp_path / "t.parquet").write_bytes(damaged)
    with pytest.raises(DataFormatError, match=r"cannot be read as Parquet \('utf-8' codec"):
        read_texts(tmp_path / "t.parquet", "title")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataFormatError, match="cannot be read as Parquet"):
        read_texts(tmp_path / "t.parquet", "title")


def test_without_pyarrow_parquet_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataFormatError, match=r"pip install 'widemargin\[parquet\]'"):
        read_texts(tmp_path / "t.parquet", "title")


def test_labels_of_texts_are_what_fit_takes(write):
    from widemargin.labels.encoding import encode_targets

    _, y = read_texts(write("t.csv", "t,l\na,x|y\nb,y\n"), "t", "l", label_sep="|")
    targets = encode_targets(y)
    np.testing.assert_array_equal(targets.Y.toarray(), [[1, 1], [0, 1]])
