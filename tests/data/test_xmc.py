"""read_xmc and write_xmc: accepted input, its meaning, and exact round trips."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hypothesis_examples import examples
from reference import text_writer
from widemargin import _core
from widemargin.data import text
from widemargin.data.text import read_xmc, write_xmc
from widemargin.exceptions import DataFormatWarning

EXPECTED_X = [[1.0, 0.0, 0.0, 0.5], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
EXPECTED_Y = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]

# Ways to write the same three rows.
SAME = {
    "plain": b"3 4 3\n0,2 0:1 3:0.5\n 1:2\n1\n",
    "no final newline": b"3 4 3\n0,2 0:1 3:0.5\n 1:2\n1",
    "no blank before the features of a row without labels": b"3 4 3\n0,2 0:1 3:0.5\n1:2\n1\n",
    "Windows line ends": b"3 4 3\r\n0,2 0:1 3:0.5\r\n 1:2\r\n1\r\n",
    "comments": b"# file\n3 4 3 # header\n0,2 0:1 3:0.5#row\n# line\n 1:2 # \xc3\xa4\n1\n# end",
    "blank lines around": b"\n \n3 4 3\n0,2 0:1 3:0.5\n 1:2\n1\n\n\n",
    "tabs and more blanks": b"3\t4  3 \n0,2\t0:1  3:0.5 \n\t1:2\n1 \n",
    "byte order mark": b"\xef\xbb\xbf3 4 3\n0,2 0:1 3:0.5\n 1:2\n1\n",
    "other numbers": b"3 04 3\n00,2 0:+1.0 03:5E-1\n 1:.2e1\n1\n",
    "several gzip members": gzip.compress(b"3 4 3\n0,2 0:1") + gzip.compress(b" 3:0.5\n 1:2\n1\n"),
    "padded gzip": gzip.compress(b"3 4 3\n0,2 0:1 3:0.5\n 1:2\n1\n") + b"\0" * 500,
}


@pytest.mark.parametrize("twin", [False, True], ids=["core", "twin"])
@pytest.mark.parametrize("content", SAME.values(), ids=SAME.keys())
def test_the_same_rows_are_read_however_they_are_written(content, twin, tmp_path, read_by_twin, recwarn):
    path = tmp_path / "data.txt"
    path.write_bytes(content)
    if twin:
        read_by_twin()
    X, Y = read_xmc(path)
    np.testing.assert_array_equal(X.toarray(), EXPECTED_X)
    np.testing.assert_array_equal(Y.toarray(), EXPECTED_Y)
    assert (X.dtype, Y.dtype) == (np.float32, np.float32)
    assert {a.dtype for a in (X.indices, X.indptr, Y.indices, Y.indptr)} == {np.dtype(np.int32)}
    assert not recwarn.list


def test_blank_line_is_a_row_without_labels_and_features(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"3 2 2\n\n0 0:1\n\n")
    X, Y = read_xmc(path)
    assert np.diff(X.indptr).tolist() == [0, 1, 0]
    assert np.diff(Y.indptr).tolist() == [0, 1, 0]


def test_no_rows_can_be_read(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"0 5 3")
    X, Y = read_xmc(path)
    assert (X.shape, Y.shape) == ((0, 5), (0, 3))


def test_one_based_file_is_recognised_and_reported(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"2 4 3\n1,3 1:1 4:0.5\n2 2:2\n")
    with pytest.warns(DataFormatWarning, match="one-based"):
        X, Y = read_xmc(path)
    np.testing.assert_array_equal(X.toarray(), EXPECTED_X[:2])
    np.testing.assert_array_equal(Y.toarray(), [[1, 0, 1], [0, 1, 0]])
    X_said, Y_said = read_xmc(path, zero_based=False)
    assert (X_said != X).nnz == (Y_said != Y).nnz == 0


def test_last_label_alone_is_evidence_for_one_based_features(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"1 4 3\n3 1:7\n")
    with pytest.warns(DataFormatWarning, match="label 3 occurs"):
        X, _ = read_xmc(path)
    assert X.toarray().tolist() == [[7, 0, 0, 0]]


def test_without_evidence_a_file_is_zero_based(tmp_path, recwarn):
    path = tmp_path / "data.txt"
    path.write_bytes(b"1 4 3\n1 1:7\n")
    X, Y = read_xmc(path)
    assert X.toarray().tolist() == [[0, 7, 0, 0]]
    assert Y.toarray().tolist() == [[0, 1, 0]]
    assert not recwarn.list


def test_unsorted_and_repeated_indices_are_fixed_and_counted(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"4 4 3\n0 0:1\n2,0 3:1 1:2\n1,1 2:1.5 2:0.25\n0 3:1 0:1 3:1\n")
    with pytest.warns(DataFormatWarning, match=r"2 rows had unsorted .* 2 rows had repeated .*first in line 3"):
        X, Y = read_xmc(path)
    assert X.toarray().tolist() == [[1, 0, 0, 0], [0, 2, 0, 1], [0, 0, 1.75, 0], [1, 0, 0, 2]]
    assert Y.toarray().tolist() == [[1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape).has_canonical_format


def test_zeros_in_the_file_are_kept(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"1 4 3\n0 1:0 2:-0.0\n")
    assert read_xmc(path)[0].nnz == 2


def test_rows_are_normalised_on_demand(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"2 4 3\n0 1:3 2:4\n1\n")
    np.testing.assert_allclose(read_xmc(path, normalize=True)[0].toarray()[0], [0, 0.6, 0.8, 0], rtol=1e-7)


def test_double_precision_on_demand(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(b"1 1 1\n0 0:0.1\n")
    assert read_xmc(path, dtype=np.float64)[0].data[0] == 0.1
    assert read_xmc(path)[0].data[0] == np.float32(0.1)


finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def matrices(draw, dtype=np.float32):
    n, d, n_labels = draw(st.integers(0, 6)), draw(st.integers(1, 8)), draw(st.integers(1, 5))
    dense = draw(hnp.arrays(dtype, (n, d), elements=finite32 if dtype == np.float32 else st.floats(-1e300, 1e300)))
    mask = draw(hnp.arrays(bool, (n, d)))
    return sp.csr_array(np.where(mask, dense, 0).astype(dtype)), sp.csr_array(draw(hnp.arrays(bool, (n, n_labels))))


@examples(60)
@given(
    st.sampled_from([np.float32, np.float64]).flatmap(matrices), st.booleans(), st.sampled_from(["a.txt", "a.txt.gz"])
)
def test_round_trip_is_exact(tmp_path_factory, pair, zero_based, name):
    path = tmp_path_factory.mktemp("round") / name
    X, Y = pair
    write_xmc(path, X, Y, zero_based=zero_based)
    read = read_xmc(path, zero_based=zero_based, dtype=X.dtype)
    for written, got in zip((X, Y.astype(np.float32)), read, strict=True):
        assert got.shape == written.shape
        for part in ("data", "indices", "indptr"):
            assert getattr(got, part).tobytes() == getattr(written, part).astype(getattr(got, part).dtype).tobytes()
    assert os.listdir(path.parent) == [name], "no temporary file is left"


def test_large_matrix_is_written_in_several_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "ENTRIES_PER_WRITE", 7)
    rng = np.random.default_rng(0)
    X = sp.random_array((40, 12), density=0.3, format="csr", dtype=np.float32, random_state=rng)
    Y = sp.random_array((40, 5), density=0.3, format="csr", random_state=rng).astype(bool)
    write_xmc(tmp_path / "a.txt", X, Y)
    X_read, Y_read = read_xmc(tmp_path / "a.txt")
    np.testing.assert_array_equal(X_read.toarray(), X.toarray())
    np.testing.assert_array_equal(Y_read.toarray(), Y.toarray())


@examples(100)
@given(st.lists(finite32, min_size=1, max_size=5) | st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=5))
def test_numbers_are_written_as_short_as_by_the_twin(values):
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            data = np.array(values, dtype=dtype)
        data = data[np.isfinite(data)]
        arrays = (
            np.arange(len(data), dtype=np.int32),
            np.array([0, len(data)], dtype=np.int64),
            np.array([4], dtype=np.int32),
            np.array([0, 1], dtype=np.int64),
        )
        ours, twin = (f(data, *arrays, 1) for f in (_core.format_rows, text_writer.format_rows))
        assert len(ours) == len(twin)
        assert ours.split(b" ")[0].rstrip() == b"5"
        read = [dtype(float(token.split(b":")[1])) for token in ours.split()[1:]]
        assert np.array(read, dtype=dtype).tobytes() == data.tobytes()


def test_the_one_float_that_double_rounding_spoils_survives(tmp_path):
    """Its shortest text, 7.038531e-26, is nearest to this float, but its double is nearest to the neighbour."""
    value = np.array([0x15AE43FD], dtype=np.uint32).view(np.float32)
    assert np.float32(float(str(value[0]))) != value[0]
    write_xmc(tmp_path / "a.txt", value[None, :], np.array([[1]]))
    assert read_xmc(tmp_path / "a.txt")[0].data.tobytes() == value.tobytes()


def test_what_the_format_cannot_hold_is_not_written(tmp_path):
    path, eye = tmp_path / "a.txt", np.eye(2)
    with pytest.raises(ValueError, match="NaN or infinity"):
        write_xmc(path, np.array([[np.nan, 0]]), eye[:1])
    with pytest.raises(ValueError, match="indicator"):
        write_xmc(path, eye, 2 * eye)
    with pytest.raises(ValueError, match="same number of rows; got 2 and 1"):
        write_xmc(path, eye, eye[:1])
    assert os.listdir(tmp_path) == []


def test_failure_while_writing_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(text, "_write_rows", fail)
    with pytest.raises(KeyboardInterrupt):
        write_xmc(path, np.eye(2), np.eye(2))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_same_data_give_the_same_gzip_bytes(tmp_path):
    write_xmc(tmp_path / "a.gz", np.eye(2), np.eye(2))
    write_xmc(tmp_path / "b.gz", np.eye(2), np.eye(2))
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"2 2 2\n0 0:1\n1 1:1\n"
