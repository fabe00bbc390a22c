"""NumPy files: files written by scipy and NumPy are read; damaged and hostile files are refused."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data.store import read_matrix, read_npz, write_matrix, write_npz
from widemargin.exceptions import DataFormatError


def sparse(rng=None):
    rng = rng or np.random.default_rng(0)
    return sp.random_array((6, 9), density=0.4, format="csr", dtype=np.float32, random_state=rng)


def test_sparse_matrix_of_scipy_is_read(tmp_path):
    X = sparse()
    sp.save_npz(tmp_path / "X.npz", X)
    np.testing.assert_array_equal(read_matrix(tmp_path / "X.npz").toarray(), X.toarray())
    X_read, Y = read_npz(tmp_path / "X.npz")
    np.testing.assert_array_equal(X_read.toarray(), X.toarray())
    assert Y is None


def test_written_sparse_matrix_is_read_by_scipy(tmp_path):
    X = sparse()
    write_matrix(tmp_path / "X.npz", sp.csr_matrix(X))
    np.testing.assert_array_equal(sp.load_npz(tmp_path / "X.npz").toarray(), X.toarray())


@pytest.mark.parametrize("array", [np.eye(3), np.arange(4), np.array(["a", "bc"]), np.zeros((0, 5), np.float32)])
def test_dense_array_comes_back(array, tmp_path):
    write_matrix(tmp_path / "a.npy", array)
    got = read_matrix(tmp_path / "a.npy")
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize("dense_x", [True, False])
@pytest.mark.parametrize("y", ["vector", "indicator", "none"])
def test_features_and_labels_come_back_from_one_file(dense_x, y, tmp_path):
    X = sparse().toarray() if dense_x else sparse()
    Y = {"vector": np.arange(6), "indicator": sp.csr_array(np.eye(6)), "none": None}[y]
    write_npz(tmp_path / "a.npz", X, Y)
    X_read, Y_read = read_npz(tmp_path / "a.npz")
    for got, written in ((X_read, X), (Y_read, Y)):
        assert sp.issparse(got) == sp.issparse(written)
        if written is not None:
            np.testing.assert_array_equal(*(m.toarray() if sp.issparse(m) else m for m in (got, written)))


def test_file_of_savez_with_lower_case_y_is_read(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=np.array([1, 2]), other=np.array(["x"]))
    assert read_npz(tmp_path / "a.npz")[1].tolist() == [1, 2]


def csr_parts(**changes):
    parts = {
        "data": np.ones(2),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 2]),
        "shape": np.array([2, 2]),
        "format": np.array("csr"),
    }
    return {name: value for name, value in (parts | changes).items() if value is not None}


BAD_CSR = {
    "missing part": ({"indices": None}, "missing from the file: indices"),
    "other sparse format": ({"format": np.array("csc")}, "'csc'"),
    "index too large": ({"indices": np.array([0, 2])}, "column indices must be between"),
    "negative index": ({"indices": np.array([0, -1])}, "column indices must be between"),
    "falling indptr": ({"indptr": np.array([0, 3, 2])}, "indptr must not decrease"),
    "indptr beyond the data": ({"indptr": np.array([0, 1, 3])}, "indptr runs from 0 to 3"),
    "indptr not from 0": ({"indptr": np.array([1, 1, 2])}, "indptr runs from 1"),
    "indptr too short": ({"indptr": np.array([0, 2])}, "2 entries, but the matrix has 2 rows"),
    "empty indptr": ({"indptr": np.array([], dtype=int)}, "0 entries"),
    "lengths differ": ({"data": np.ones(3)}, "2 indices and 3 values"),
    "fractions as indices": ({"indices": np.array([0.0, 1.0])}, "indices must be a numeric vector; got type float64"),
    "two-dimensional data": ({"data": np.ones((2, 1))}, "data must be a numeric vector"),
    "strings as data": ({"data": np.array(["a", "b"])}, "data must be a numeric vector"),
    "shape of three": ({"shape": np.array([2, 2, 2])}, "shape"),
    "negative shape": ({"shape": np.array([2, -2])}, "shape"),
    "fractional shape": ({"shape": np.array([2.0, 2.0])}, "shape is stored as an array of type float64"),
    "nan": ({"data": np.array([1, np.nan])}, "must be finite"),
    "inf": ({"data": np.array([1, -np.inf])}, "must be finite"),
    "objects": ({"data": np.array([1, None])}, "damaged or contains something other than plain arrays"),
}


@pytest.mark.parametrize(("changes", "words"), BAD_CSR.values(), ids=BAD_CSR.keys())
def test_bad_sparse_matrix_is_refused(changes, words, tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, **csr_parts(**changes))
    for read in (read_matrix, read_npz):
        with pytest.raises(DataFormatError, match=words) as caught:
            read(path)
        assert caught.value.path == str(path)


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


HUGE = npy_bytes(np.zeros(4)).replace(b"(4,), }", b"(4000000000000000,), }")
BAD_FILES = {
    "empty": b"",
    "text": b"1 2 3\n",
    "pickle": b"\x80\x04K\x01.",
    "truncated npy": npy_bytes(np.eye(5))[:-9],
    "truncated header": npy_bytes(np.eye(5))[:20],
    "array of objects": npy_bytes(np.array([{}, 1])),
    "header claims a huge array": HUGE,
    "header is code": b"\x93NUMPY\x01\x00\x10\x00__import__('os')",
    "truncated zip": b"PK\x03\x04" + b"\0" * 50,
    "complex": npy_bytes(np.eye(2) * 1j),
    "three dimensions": npy_bytes(np.zeros((2, 2, 2))),
    "nan": npy_bytes(np.array([np.nan])),
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file_is_refused(content, tmp_path):
    path = tmp_path / "bad.npy"
    path.write_bytes(content)
    for read in (read_matrix, read_npz):
        with pytest.raises(DataFormatError):
            read(path)


def test_damaged_member_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.arange(1000.0).reshape(10, 100))
    content = bytearray(path.read_bytes())
    content[500] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match="damaged"):
        read_npz(path)


def test_missing_x_and_rows_that_do_not_match_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", Z=np.eye(2))
    with pytest.raises(DataFormatError, match="the file contains no X, only"):
        read_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.eye(2), Y=np.arange(3))
    with pytest.raises(DataFormatError, match="same number of rows; got 2 and 3"):
        read_npz(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", X=np.arange(3))
    with pytest.raises(DataFormatError, match="must be a numeric matrix"):
        read_npz(tmp_path / "c.npz")


def test_zip_without_arrays_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", b"not an array")
    with pytest.raises(DataFormatError):
        read_npz(tmp_path / "a.npz")


# A local header has flags at 6 and the compression at 8; its copy in the directory has both 2 bytes later.
ENCRYPTED, UNKNOWN_COMPRESSION = (6, b"\x01\x00"), (8, b"\x63\x00")


@pytest.mark.parametrize(
    ("change", "words"), [(ENCRYPTED, "is encrypted"), (UNKNOWN_COMPRESSION, "compression method is not supported")]
)
def test_archive_that_zipfile_cannot_open_is_refused(change, words, tmp_path):
    sp.save_npz(tmp_path / "a.npz", sp.eye(3, format="csr"), compressed=False)
    content, (place, value) = bytearray((tmp_path / "a.npz").read_bytes()), change
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = content.find(signature)
        while at >= 0:
            content[at + place + shift : at + place + shift + 2] = value
            at = content.find(signature, at + 4)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(
        DataFormatError, match=f"a.npz: the file is damaged or contains something other than plain arrays .*{words}"
    ):
        read_npz(tmp_path / "a.npz")


def test_objects_and_wrong_endings_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="Python objects"):
        write_npz(tmp_path / "a.npz", np.eye(2), np.array([None, "a"], dtype=object))
    with pytest.raises(ValueError, match=r"\.npz"):
        write_matrix(tmp_path / "a.npy", sparse())
    assert list(tmp_path.iterdir()) == []
