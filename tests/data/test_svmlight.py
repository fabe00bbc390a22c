"""read_svmlight and write_svmlight against scikit-learn's functions for the format."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from widemargin.data.text import read_svmlight, write_svmlight
from widemargin.exceptions import DataFormatWarning


def example(rng, n=60):
    X = np.where(rng.random((n, 15)) < 0.3, rng.random((n, 15)), 0).astype(np.float32)
    X[:, 14] = 1.0
    return sp.csr_array(X)


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("twin", [False, True], ids=["core", "twin"])
def test_single_label_file_is_read_as_by_scikit_learn(zero_based, twin, tmp_path, read_by_twin):
    rng = np.random.default_rng(0)
    X, y = example(rng), rng.integers(-2, 3, 60)
    path = tmp_path / "a.svm"
    dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="made by scikit-learn")
    X_theirs, y_theirs = load_svmlight_file(str(path), dtype=np.float32)
    if twin:
        read_by_twin()
    X_ours, y_ours, classes = read_svmlight(path)
    np.testing.assert_array_equal(X_ours.toarray(), X_theirs.toarray())
    np.testing.assert_array_equal(y_ours, y_theirs)
    assert y_ours.dtype == np.int64
    np.testing.assert_array_equal(classes, np.unique(y))


def test_multilabel_file_is_read_as_by_scikit_learn(tmp_path):
    rng = np.random.default_rng(1)
    X, Y = example(rng), sp.csr_array(rng.random((60, 5)) < 0.4)
    path = tmp_path / "a.svm"
    dump_svmlight_file(X, sp.csr_matrix(Y), str(path), multilabel=True)
    X_theirs, sets = load_svmlight_file(str(path), multilabel=True, dtype=np.float32)
    X_ours, Y_ours, classes = read_svmlight(path, multilabel=True)
    np.testing.assert_array_equal(X_ours.toarray(), X_theirs.toarray())
    assert [tuple(classes[row.nonzero()]) for row in Y_ours.toarray()] == [tuple(sorted(s)) for s in sets]


def test_label_values_become_columns(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"2.5,7 1:1\n1:2\n 3:1\n-1 2:1\n")
    X, Y, classes = read_svmlight(path, multilabel=True)
    assert classes.tolist() == [-1.0, 2.5, 7.0]
    assert Y.toarray().tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert X.toarray().tolist() == [[1, 0, 0], [2, 0, 0], [0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("labels", [[5, -3, 5, 0, 7], [10**12, 3, 10**12], [0.5, 0.25, 0.5]])
def test_classes_are_the_sorted_values_whatever_their_spread(labels, tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("".join(f"{label} 1:1\n" for label in labels))
    classes, columns = np.unique(labels, return_inverse=True)
    data = read_svmlight(path, multilabel=True)
    np.testing.assert_array_equal(data.classes, classes)
    np.testing.assert_array_equal(data.y.indices, columns)
    np.testing.assert_array_equal(read_svmlight(path).y, labels)


def test_blank_lines_are_nothing_with_one_label(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"\n1 1:1\n \n# note\n0.5\n\n")
    X, y, _ = read_svmlight(path)
    assert (X.shape, y.tolist()) == ((2, 1), [1.0, 0.5])


def test_number_of_features_can_be_given(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 3:1\n")
    assert read_svmlight(path, n_features=3).X.toarray().tolist() == [[0, 0, 1]]
    assert read_svmlight(path, n_features=5, zero_based=True).X.toarray().tolist() == [[0, 0, 0, 1, 0]]


def test_repeated_labels_are_counted_once_and_reported(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"2,1,2 1:1\n")
    with pytest.warns(DataFormatWarning, match="1 rows had repeated"):
        assert read_svmlight(path, multilabel=True).y.toarray().tolist() == [[1, 1]]


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("name", ["a.svm", "a.svm.gz"])
def test_written_file_is_read_by_scikit_learn_and_back(zero_based, name, tmp_path):
    rng = np.random.default_rng(2)
    X, y = example(rng), rng.normal(size=60)
    path = tmp_path / name
    write_svmlight(path, X, y, zero_based=zero_based)
    X_theirs, y_theirs = load_svmlight_file(str(path), zero_based=zero_based, dtype=np.float32)
    X_ours, y_ours, _ = read_svmlight(path, zero_based=zero_based)
    for X_read, y_read in ((X_theirs, y_theirs), (X_ours, y_ours)):
        np.testing.assert_array_equal(X_read.toarray(), X.toarray())
        np.testing.assert_array_equal(y_read, y)


def test_written_label_lists_come_back(tmp_path):
    rng = np.random.default_rng(3)
    X, Y = example(rng), sp.csr_array(rng.random((60, 4)) < 0.4)
    write_svmlight(tmp_path / "a.svm", X, Y)
    X_read, Y_read, classes = read_svmlight(tmp_path / "a.svm", multilabel=True)
    np.testing.assert_array_equal(X_read.toarray(), X.toarray())
    np.testing.assert_array_equal(Y_read.toarray(), Y.toarray())
    assert classes.tolist() == [0, 1, 2, 3]


def test_row_that_would_be_a_blank_line_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="row 1 has neither labels nor features"):
        write_svmlight(tmp_path / "a.svm", np.array([[1.0], [0.0]]), sp.csr_array(np.array([[1], [0]])))
    with pytest.raises(ValueError, match="vector of finite numbers"):
        write_svmlight(tmp_path / "a.svm", np.eye(2), np.array(["a", "b"]))
    with pytest.raises(ValueError, match="same number of rows; got 2 and 3"):
        write_svmlight(tmp_path / "a.svm", np.eye(2), np.arange(3))
