"""save_data writes files that load_data reads, and does not replace a file of names that belongs to other data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data.load import Dataset, load_data, save_data
from widemargin.data.names import find_label_names, names_stem, read_names, write_names
from widemargin.exceptions import DataFormatError

X = sp.csr_array(np.eye(3, dtype=np.float32))
Y = sp.csr_array(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.float32))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.svm", "a.npz", "a.store"])
def test_names_of_labels_come_back(tmp_path, name):
    save_data(tmp_path / name, Dataset(X, Y, ["u", "v"], None, "here"))
    data = load_data(tmp_path / name)
    assert data.label_names == ["u", "v"]
    np.testing.assert_array_equal(data.Y.toarray(), Y.toarray())


@pytest.mark.parametrize("kind", ["labels", "features"])
@pytest.mark.parametrize("name", ["bar.txt", "bar.npz", "bar.svm.gz"])
def test_other_names_are_not_replaced_and_nothing_is_written(tmp_path, kind, name):
    write_names(tmp_path / f"bar_{kind}.txt", ["precious"])
    with pytest.raises(FileExistsError, match="the names in this file differ from"):
        save_data(tmp_path / name, Dataset(X, Y, ["u", "v"], ["f", "g", "h"], "here"))
    assert [entry.name for entry in tmp_path.iterdir()] == [f"bar_{kind}.txt"]
    assert read_names(tmp_path / f"bar_{kind}.txt") == ["precious"]


def test_equal_names_may_be_there_already(tmp_path):
    for name in ("bar.txt", "bar.npz", "bar.npz"):
        save_data(tmp_path / name, Dataset(X, Y, ["u", "v"], None, "here"))


def test_files_that_differ_before_the_suffix_have_their_own_names(tmp_path):
    save_data(tmp_path / "a.1.npz", Dataset(X, Y, ["u", "v"], None, "here"))
    save_data(tmp_path / "a.2.npz", Dataset(X, Y, ["x", "y"], None, "here"))
    assert load_data(tmp_path / "a.1.npz").label_names == ["u", "v"]
    assert load_data(tmp_path / "a.2.npz").label_names == ["x", "y"]
    assert find_label_names(tmp_path / "a.3.npz") is None


@pytest.mark.parametrize(
    ("name", "stem"), [("a.txt.gz", "a"), ("a.b.svm", "a.b"), ("a", "a"), ("a.2024", "a.2024"), ("a.npy", "a")]
)
def test_only_endings_of_formats_are_stripped(name, stem):
    assert names_stem(name) == stem


@pytest.mark.parametrize(
    ("labels", "problem"), [(None, "requires labels, but"), (np.array(["a", "b", "c"]), "numeric labels")]
)
def test_svmlight_gets_no_invented_labels(tmp_path, labels, problem):
    with pytest.raises(DataFormatError, match=rf"source\.npz: .*{problem}.*; use a \.txt"):
        save_data(tmp_path / "a.svm", Dataset(X, labels, None, None, "source.npz"))
    assert not list(tmp_path.iterdir())


def test_names_given_for_svmlight_go_by_number_and_else_by_order(tmp_path):
    (tmp_path / "a.svm").write_text("0,2 1:1\n2 1:1\n")
    assert load_data(tmp_path / "a.svm", label_names=["u", "v", "w"]).label_names == ["u", "w"]
    (tmp_path / "b.svm").write_text("1,7 1:1\n7 1:1\n")
    assert load_data(tmp_path / "b.svm", label_names=["u", "v"]).label_names == ["u", "v"]
    with pytest.raises(DataFormatError, match="one name for each of the 2 columns; got 3"):
        load_data(tmp_path / "b.svm", label_names=["u", "v", "w"])
