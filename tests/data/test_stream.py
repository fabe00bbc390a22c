"""`open_rows`: the rows of `load_data`, block by block."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import load_data, write_store, write_svmlight, write_xmc
from widemargin.data import stream, text
from widemargin.data.stream import open_rows
from widemargin.exceptions import DataFormatError, DataFormatWarning


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few bytes so that rows and numbers are cut everywhere."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 37)
    monkeypatch.setattr(text, "MAX_DEFAULT_THREADS", 1)
    monkeypatch.setattr(stream, "ROWS_PER_BLOCK", 7)


def problem():
    rng = np.random.default_rng(3)
    X = sp.random_array((50, 20), density=0.2, random_state=rng, dtype=np.float32, format="csr")
    return X, sp.csr_array((rng.random((50, 6)) < 0.3).astype(np.float32))


def joined(rows):
    blocks = list(rows.blocks())
    assert len(blocks) > 1
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.vstack(blocks)


def write(folder, kind):
    X, Y = problem()
    path = folder / f"data{'.store' if kind == 'store' else '.txt.gz' if kind == 'gzip' else '.txt'}"
    if kind in ("xmc", "gzip"):
        write_xmc(path, X, Y)
    elif kind == "xmc from 1":
        write_xmc(path, sp.hstack([X, np.ones((50, 1))], format="csr"), Y, zero_based=False)
    elif kind == "svmlight":
        write_svmlight(path, X, np.arange(50) % 3)
    elif kind == "lists":
        write_svmlight(path, sp.hstack([X, np.ones((50, 1))], format="csr"), Y)
    else:
        write_store(path, X, Y)
    return path


@pytest.mark.filterwarnings("ignore::widemargin.exceptions.DataFormatWarning")
@pytest.mark.parametrize("kind", ["xmc", "gzip", "xmc from 1", "svmlight", "lists", "store"])
def test_blocks_are_the_rows_of_load_data(kind, tmp_path, small_blocks):
    path = write(tmp_path, kind)
    expected, rows = load_data(path).X, open_rows(path)
    assert (rows.n_rows, rows.n_features, rows.n_values) == (*expected.shape, expected.nnz)
    found = joined(rows)
    assert (found != expected).nnz == 0
    assert found.dtype == expected.dtype
    assert (joined(rows) != expected).nnz == 0  # a second time


def test_unsorted_rows_are_reported_once(tmp_path, small_blocks):
    path = tmp_path / "data.txt"
    path.write_text("4 9 2\n" + "0 3:1 1:2\n" * 4)
    with pytest.warns(DataFormatWarning, match="4 rows had unsorted") as caught:
        joined(open_rows(path))
    assert len(caught) == 1


@pytest.mark.parametrize(
    "content",
    ["3 5 2\n0 0:1\n1 1:1\n", "1 5 2\n0 0:1\n1 1:1\n", "2 5 2\n0 0:1\n1 x:1\n", "2 5 2\n0 0:1\n1 7:1\n", ""],
    ids=["too few rows", "too many", "bad index", "out of range", "empty"],
)
def test_errors_are_those_of_load_data_and_come_first(content, tmp_path, small_blocks):
    path = tmp_path / "data.txt"
    path.write_text(content)
    with pytest.raises(DataFormatError) as expected:
        load_data(path, format="xmc")
    with pytest.raises(DataFormatError) as found:
        stream.scan_text(path, None, "auto", None, text.TextFormat.XMC)
    assert str(found.value) == str(expected.value)


def test_broken_gzip_is_named(tmp_path):
    path = tmp_path / "data.txt.gz"
    path.write_bytes(gzip.compress(b"2 5 2\n0 0:1\n1 1:1\n")[:-6])
    with pytest.raises(DataFormatError, match="gzip stream ends early"):
        open_rows(path)


def test_given_number_of_features_is_that_of_svmlight(tmp_path):
    write_svmlight(tmp_path / "data.svm", np.eye(3), np.zeros(3))
    assert open_rows(tmp_path / "data.svm", n_features=9).n_features == 9
