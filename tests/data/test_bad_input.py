"""A table of bad input: the C++ reader and its twin refuse each case and name the line and a remedy."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from widemargin.data import text
from widemargin.data.text import read_svmlight, read_xmc
from widemargin.exceptions import DataFormatError, WidemarginError

GOOD = b"2 4 3\n0,2 0:1 3:0.5\n1 1:2\n"
PACKED = gzip.compress(GOOD)

# (what is wrong, the file, line or None, words of the message, options)
BAD_XMC = [
    ("empty file", b"", None, "empty", {}),
    ("blank lines only", b"\n\n", None, "empty", {}),
    ("comments only", b"# nothing\n", None, "empty", {}),
    ("missing header", b"0,2 0:1\n", 1, "header is missing", {}),
    ("header with two fields", b"1 4\n0 0:1\n", 1, "three integers", {}),
    ("header with four fields", b"1 4 3 9\n0 0:1\n", 1, "three integers", {}),
    ("header with a word", b"1 four 3\n0 0:1\n", 1, "three integers", {}),
    ("negative count in the header", b"1 -4 3\n0 0:1\n", 1, "three integers", {}),
    ("fraction in the header", b"1 4.0 3\n0 0:1\n", 1, "three integers", {}),
    ("huge count in the header", b"1 99999999999 3\n0 0:1\n", 1, "above 2147483647", {}),
    ("huge count of 5000 digits", b"1 " + b"9" * 5000 + b" 3\n", 1, "above 2147483647", {}),
    ("header counts too many rows", b"3 4 3\n0 0:1\n1 1:1\n", 1, "says 3 rows, but the file has 2", {}),
    ("header counts too few rows", b"1 4 3\n0 0:1\n1 1:1\n", 3, "more rows than the header says (1)", {}),
    ("rows after a header of none", b"0 4 3\n0 0:1\n", 2, "more rows", {}),
    ("feature out of range", b"1 4 3\n0 0:1 5:1\n", 2, "'5:1' is outside the range 0 to 4", {}),
    ("feature out of range, zero-based", b"1 4 3\n0 4:1\n", 2, "range 0 to 3", {"zero_based": True}),
    ("feature 0, one-based", b"1 4 3\n1 0:1\n", 2, "range 1 to 4", {"zero_based": False}),
    ("features 0 and n_features", b"2 4 3\n0 0:1\n1 4:1\n", 3, "feature 4 is outside the range 0 to 3", {}),
    ("feature beyond 64 bits", b"1 4 3\n0 18446744073709551617:1\n", 2, "outside the range", {}),
    ("label out of range", b"1 4 3\n4 0:1\n", 2, "label 4 is outside the range 0 to 3", {}),
    ("label out of range, zero-based", b"1 4 3\n3 0:1\n", 2, "range 0 to 2", {"zero_based": True}),
    ("label n_labels and feature 0", b"2 4 3\n1 0:1\n3 1:1\n", 3, "label 3 is outside the range 0 to 2", {}),
    ("label 0, one-based", b"1 4 3\n0 1:1\n", 2, "range 1 to 3", {"zero_based": False}),
    ("nan", b"1 4 3\n0 0:nan\n", 2, "not a finite float32", {}),
    ("infinity", b"1 4 3\n0 0:-Infinity\n", 2, "not a finite float32", {}),
    ("beyond float32", b"1 4 3\n0 0:1e39\n", 2, "not a finite float32", {}),
    ("beyond float64", b"1 4 3\n0 0:1e999\n", 2, "not a finite float64", {"dtype": np.float64}),
    ("word for a value", b"1 4 3\n0 0:one\n", 2, "'0:one' is not a number", {}),
    ("word after digits", b"1 4 3\n0 0:1x\n", 2, "'0:1x' is not a number", {}),
    ("empty value", b"1 4 3\n0 0: 1:2\n", 2, "'0:' is not a number", {}),
    ("two colons", b"1 4 3\n0 0:1:2\n", 2, "'0:1:2' is not a number", {}),
    ("hexadecimal value", b"1 4 3\n0 0:0x10\n", 2, "not a number", {}),
    ("decimal comma", b"1 4 3\n0 0:0,5\n", 2, "not a number", {}),
    ("underscore in a value", b"1 4 3\n0 0:1_0\n", 2, "not a number", {}),
    ("missing colon", b"1 4 3\n0 0:1 2\n", 2, "'2' has no colon", {}),
    ("labels after a leading blank", b"1 4 3\n 0,1 0:1\n", 2, "'0,1' has no colon", {}),
    ("blank after the colon", b"1 4 3\n0 0:1 2: 3\n", 2, "'2:' is not a number", {}),
    ("word for an index", b"1 4 3\n0 one:1\n", 2, "index in 'one:1' is not an integer", {}),
    ("empty index", b"1 4 3\n0 :1\n", 2, "not an integer", {}),
    ("fraction for an index", b"1 4 3\n0 1.0:1\n", 2, "not an integer", {}),
    ("negative index", b"1 4 3\n0 -1:1\n", 2, "'-1:1' is negative", {}),
    ("word for a label", b"1 4 3\nsport 0:1\n", 2, "label 'sport' is not an integer", {}),
    ("fraction for a label", b"1 4 3\n1.5 0:1\n", 2, "label '1.5' is not an integer", {}),
    ("negative label", b"1 4 3\n0,-1 0:1\n", 2, "label -1 is negative", {}),
    ("trailing comma", b"1 4 3\n0, 0:1\n", 2, "'0,' has an empty entry", {}),
    ("leading comma", b"1 4 3\n,0 0:1\n", 2, "empty entry", {}),
    ("double comma", b"1 4 3\n0,,1 0:1\n", 2, "empty entry", {}),
    ("blank inside the label list", b"1 4 3\n0, 1 0:1\n", 2, "empty entry", {}),
    ("duplicate feature refused", b"1 4 3\n0 1:1 1:2\n", 2, "feature 1 is repeated", {"indices": "refuse"}),
    ("unsorted features refused", b"1 4 3\n0 3:1 1:2\n", 2, "feature 1 is out of order", {"indices": "refuse"}),
    ("duplicate label refused", b"1 4 3\n2,2 0:1\n", 2, "label 2 is repeated", {"indices": "refuse"}),
    ("unsorted labels refused", b"1 4 3\n2,1 0:1\n", 2, "label 1 is out of order", {"indices": "refuse"}),
    ("duplicates that add up to infinity", b"1 4 3\n0 1:3e38 1:3e38\n", 2, "sum of its values overflows", {}),
    ("truncated gzip", PACKED[:-12], None, "gzip stream ends early", {}),
    ("gzip without its checksum", PACKED[:-8], None, "gzip stream ends early after 3 complete lines", {}),
    ("gzip with a wrong checksum", PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:], None, "gzip stream is damaged", {}),
    ("gzip followed by other bytes", PACKED + b"more", None, "gzip stream is damaged", {}),
    ("gzip header only", PACKED[:10], None, "gzip stream ends early", {}),
    ("two bytes of gzip", b"\x1f\x8b", None, "gzip stream ends early", {}),
    ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 1, "not plain text: byte 0x89", {}),
    ("zero bytes", b"1 4 3\n0 0:1\0\n", 2, "byte 0x00", {}),
    ("control byte in a comment", b"1 4 3\n0 0:1 # \x07\n", 2, "byte 0x07", {}),
    ("UTF-16", "1 4 3\n0 0:1\n".encode("utf-16"), 1, "not plain text", {}),
    ("a letter beyond ASCII", "1 4 3\n0 0:½\n".encode(), 2, "not plain text", {}),
    ("carriage returns for line ends", b"1 4 3\r0 0:1\r", 1, "contains a carriage return", {}),
    ("too many non-zeros", GOOD, 3, "more than 2 nonzeros", {"MAX_COUNT": 2}),
    ("problem in the last line without newline", b"1 4 3\n0 0:x", 2, "not a number", {}),
    ("problem after Windows line ends", b"1 4 3\r\n0 0:x\r\n", 2, "'0:x' is not a number", {}),
]

BAD_SVMLIGHT = [
    ("empty file", b"", None, "empty", {}),
    ("row without label", b"1 1:1\n2:1\n", 2, "no label", {}),
    ("label list", b"1,2 1:1\n", 1, "list of labels", {}),
    ("word for a label", b"spam 1:1\n", 1, "'spam' is not a number", {}),
    ("nan for a label", b"nan 1:1\n", 1, "not a finite", {}),
    ("query ID", b"1 qid:3 1:1\n", 1, "query IDs are not supported", {}),
    ("query id, many labels", b"1,2 qid:3 1:1\n", 1, "query IDs are not supported", {"multilabel": True}),
    ("blank line, many labels", b"1,2 1:1\n\n3 1:1\n", 2, "it could be a row", {"multilabel": True}),
    ("trailing comma, many labels", b"1, 1:1\n", 1, "empty entry", {"multilabel": True}),
    ("negative index", b"1 -1:1\n", 1, "negative", {}),
    ("index beyond 32 bits", b"1 2147483647:1\n", 1, "range 0 to 2147483646", {}),
    ("feature beyond n_features", b"1 1:1\n1 5:1\n", 2, "outside the range 0 to 3", {"n_features": 3}),
    ("feature 0 and n_features", b"1 3:1\n1 0:1\n", 1, "range 0 to 2", {"n_features": 3}),
    ("feature 0, one-based", b"1 0:1\n", 1, "range 1 to", {"zero_based": False}),
    ("duplicate refused", b"1 1:1 1:1\n", 1, "repeated", {"indices": "refuse"}),
    ("unsorted refused", b"1 2:1 1:1\n", 1, "out of order", {"indices": "refuse"}),
    ("duplicate label refused", b"1,1 1:1\n", 1, "repeated", {"indices": "refuse", "multilabel": True}),
    ("too many non-zeros", b"1 1:1\n1 1:1\n", 2, "more than 1 nonzeros", {"MAX_COUNT": 1}),
]


def check_refused(read, path, content, line, words, options, monkeypatch, read_by_twin):
    """The message of the reader, which is also that of its Python twin."""
    path.write_bytes(content)
    options = dict(options)
    if "MAX_COUNT" in options:
        monkeypatch.setattr(text, "MAX_COUNT", options.pop("MAX_COUNT"))
    with pytest.raises(DataFormatError) as caught:
        read(path, **options)
    read_by_twin()
    with pytest.raises(DataFormatError) as caught_by_twin:
        read(path, **options)
    assert str(caught_by_twin.value) == str(caught.value)
    error = caught.value
    assert (error.line, error.path) == (line, str(path))
    assert words in str(error)
    assert error.remedy, "every problem of a text file has a remedy"
    assert isinstance(error, WidemarginError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("content", "line", "words", "options"), [pytest.param(*row[1:], id=row[0]) for row in BAD_XMC]
)
def test_bad_xmc_file_is_refused_with_line_and_remedy(
    content, line, words, options, tmp_path, monkeypatch, read_by_twin
):
    check_refused(read_xmc, tmp_path / "bad.txt", content, line, words, options, monkeypatch, read_by_twin)


@pytest.mark.parametrize(
    ("content", "line", "words", "options"), [pytest.param(*row[1:], id=row[0]) for row in BAD_SVMLIGHT]
)
def test_bad_svmlight_file_is_refused_with_line_and_remedy(
    content, line, words, options, tmp_path, monkeypatch, read_by_twin
):
    check_refused(read_svmlight, tmp_path / "bad.txt", content, line, words, options, monkeypatch, read_by_twin)


@pytest.mark.parametrize("read", [read_xmc, read_svmlight])
def test_missing_file_is_named(read, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("read", [read_xmc, read_svmlight])
def test_folder_is_refused(read, tmp_path):
    with pytest.raises(DataFormatError, match="is a folder"):
        read(tmp_path)


@pytest.mark.parametrize(
    "options",
    [{"zero_based": "yes"}, {"indices": "drop"}, {"dtype": np.int32}, {"n_threads": 0}],
    ids=lambda options: next(iter(options)),
)
def test_wrong_option_is_named(options, tmp_path):
    path = tmp_path / "good.txt"
    path.write_bytes(GOOD)
    with pytest.raises(ValueError, match=next(iter(options))):
        read_xmc(path, **options)
