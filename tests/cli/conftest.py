"""Fixtures of several commands: rows of four classes, in memory and in files."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import write_svmlight, write_xmc


@pytest.fixture(scope="module")
def data():
    """72 sparse rows of four classes that overlap, as X and class numbers."""
    rng = np.random.default_rng(0)
    y = np.arange(72) % 4
    X = np.maximum(np.eye(4)[y] @ rng.random((4, 5)) + 0.3 * rng.normal(size=(72, 5)), 0.0).astype(np.float32)
    return sp.csr_array(X), y


@pytest.fixture
def files(data, tmp_path):
    """The rows in svmlight format: 48 for training, and the others."""
    X, y = data
    write_svmlight(tmp_path / "train.svm", X[:48], y[:48])
    write_svmlight(tmp_path / "test.svm", X[48:], y[48:])
    return tmp_path / "train.svm", tmp_path / "test.svm"


@pytest.fixture
def folder_with_lists(files, tmp_path, monkeypatch):
    """The current folder, with the files above and lists.txt, whose rows have several labels."""
    write_xmc(tmp_path / "lists.txt", sp.csr_array(np.eye(3, 5)), sp.csr_array(np.array([[1, 0], [1, 1], [0, 1]])))
    monkeypatch.chdir(tmp_path)
    return tmp_path
