"""load_data recognises the formats, finds labels and names, and passes options on; read_names and its errors."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data.load import load_data, recognize_format
from widemargin.data.names import find_label_names, read_names, write_names
from widemargin.data.store import write_matrix, write_npz, write_store
from widemargin.data.text import write_svmlight, write_xmc
from widemargin.exceptions import DataFormatError

X = sp.csr_array(np.array([[3, 4, 0], [0, 1, 2.0], [0, 0, 5.0]], dtype=np.float32))
Y = sp.csr_array(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.float32))


def write(kind, folder):
    path = folder / {"store": "s", "npz": "a.npz", "xmc": "a.txt", "xmc-gz": "a.gz", "svmlight": "a.svm"}[kind]
    writers = {"store": write_store, "npz": write_npz, "svmlight": write_svmlight}
    writers.get(kind, write_xmc)(path, X, Y)
    return path


@pytest.mark.parametrize("kind", ["store", "npz", "xmc", "xmc-gz", "svmlight"])
def test_every_format_gives_the_same_data(kind, tmp_path):
    path = write(kind, tmp_path)
    assert recognize_format(path) == kind.removesuffix("-gz")
    data = load_data(path)
    np.testing.assert_array_equal(data.X.toarray(), X.toarray())
    np.testing.assert_array_equal(data.Y.toarray(), Y.toarray())
    assert data.path == str(path)
    normalised = load_data(path, normalize=True).X.toarray()
    np.testing.assert_allclose(normalised[0], [0.6, 0.8, 0], rtol=1e-6)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("label_file", ["Y_train.npz", "y_train.npy"])
def test_labels_are_found_next_to_a_matrix(dense, label_file, tmp_path):
    path = tmp_path / ("X_train.npy" if dense else "X_train.npz")
    write_matrix(path, X.toarray() if dense else X)
    assert load_data(path).Y is None
    write_matrix(tmp_path / label_file, Y if label_file.endswith("z") else np.arange(3))
    assert load_data(path).Y.shape[0] == 3
    np.save(tmp_path / "other.npy", np.array([7, 8, 9]))
    assert load_data(path, y_path=tmp_path / "other.npy").Y.tolist() == [7, 8, 9]
    np.save(tmp_path / "short.npy", np.array([7]))
    with pytest.raises(DataFormatError, match="same number of rows; got 3 and 1"):
        load_data(path, y_path=tmp_path / "short.npy")


def test_svmlight_with_one_label_gives_a_vector(tmp_path):
    write_svmlight(tmp_path / "a.svm", X, np.array([1, -1, 1]))
    data = load_data(tmp_path / "a.svm", n_features=10)
    assert (data.Y.tolist(), data.X.shape, data.label_names) == ([1, -1, 1], (3, 10), None)


def test_svmlight_with_a_row_without_labels_is_multilabel(tmp_path):
    (tmp_path / "a.svm").write_bytes(b"1 1:1\n 2:1\n")
    assert load_data(tmp_path / "a.svm").Y.toarray().tolist() == [[1], [0]]
    with pytest.raises(DataFormatError, match="no label"):
        load_data(tmp_path / "a.svm", multilabel=False)


def test_problem_of_a_file_is_the_problem_of_its_format(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"# c\n1 2 3\n0 0:x\n")
    with pytest.raises(DataFormatError, match=r"line 3.*not a number"):
        load_data(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_bytes(gzip.compress(b"1 2 3\n")[:12])
    with pytest.raises(DataFormatError, match="gzip stream ends early"):
        load_data(tmp_path / "b.txt")
    (tmp_path / "c.txt").write_bytes(b"")
    with pytest.raises(DataFormatError, match="empty"):
        load_data(tmp_path / "c.txt")
    with pytest.raises(DataFormatError, match="not a store"):
        load_data(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_data(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="format must be"):
        load_data(tmp_path / "a.txt", format="arff")


def test_format_can_be_specified(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"1 2 3\n")
    with pytest.raises(DataFormatError, match="no colon"):
        load_data(tmp_path / "a.txt", format="svmlight")


def test_label_names_are_given_or_found(tmp_path):
    path = tmp_path / "tags_train.txt"
    write_xmc(path, X, Y)
    assert load_data(path).label_names is None
    write_names(tmp_path / "labels.txt", ["of", "something", "else"])
    assert load_data(path).label_names is None, "three names do not belong to two labels"
    write_names(tmp_path / "tags_labels.txt", ["red", "grün"])
    assert load_data(path).label_names == ["red", "grün"]
    assert load_data(path, label_names=["a", "b"]).label_names == ["a", "b"]
    assert load_data(path, feature_names=tmp_path / "labels.txt").feature_names == ["of", "something", "else"]
    with pytest.raises(DataFormatError, match="one name for each of the 2 columns; got 3"):
        load_data(path, label_names=tmp_path / "labels.txt")


def test_names_of_a_store_come_with_it(tmp_path):
    write_store(tmp_path / "s", X, Y, label_names=["u", "v"], feature_names=["a", "b", "c"])
    data = load_data(tmp_path / "s")
    assert (data.label_names, data.feature_names) == (["u", "v"], ["a", "b", "c"])


def test_names_are_lines_or_a_column(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes("a\tb\r\n\nünd\n".encode())
    assert read_names(path) == ["a\tb", "", "ünd"]
    table = tmp_path / "labels.tsv"
    table.write_bytes(b"p3\tlight reading\np4\tfiction\n")
    assert read_names(table) == ["light reading", "fiction"]
    assert read_names(table, column=0) == ["p3", "p4"]
    with pytest.raises(DataFormatError, match="line 1: column 2 does not exist"):
        read_names(table, column=2)
    path.write_bytes(b"ok\n\xff\n")
    with pytest.raises(DataFormatError, match="line 2: the file is not UTF-8"):
        read_names(path)
    path.write_bytes(b"ok\r\none\rtwo\n")
    with pytest.raises(DataFormatError, match="line 2: the line contains a carriage return"):
        read_names(path)
    with pytest.raises(ValueError, match="line break"):
        write_names(path, ["a\nb"])
    assert find_label_names(tmp_path / "x.txt") == table
