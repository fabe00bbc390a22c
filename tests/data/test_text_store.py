"""Text converted to a store in parts: the same bytes as in memory, with little memory."""

from __future__ import annotations

import gzip
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import write_store, write_xmc
from widemargin.data import text
from widemargin.data.load import load_data
from widemargin.data.store import open_store
from widemargin.data.stream import write_text_store
from widemargin.data.text import write_svmlight
from widemargin.exceptions import DataFormatError

FILES = ["rows.txt", "rows.txt.gz", "one-based.txt", "one-label.svm", "fractions.svm", "lists.svm", "odd-lists.svm"]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    X = sp.random_array((200, 30), density=0.2, random_state=rng, dtype=np.float32, format="csr")
    Y = sp.csr_array((rng.random((200, 12)) < 0.2).astype(np.float32))
    write_xmc(root / "rows.txt", X, Y)
    (root / "rows.txt.gz").write_bytes(gzip.compress((root / "rows.txt").read_bytes()))
    write_xmc(root / "one-based.txt", X, Y, zero_based=False)
    (root / "rows_labels.txt").write_text("".join(f"label {j}\n" for j in range(12)))
    write_svmlight(root / "one-label.svm", X, rng.integers(-3, 4, 200))
    write_svmlight(root / "fractions.svm", X, rng.integers(0, 9, 200) / 4)
    write_svmlight(root / "lists.svm", X, Y)
    lists = (root / "lists.svm").read_text().splitlines(keepends=True)
    (root / "odd-lists.svm").write_text("".join(f"-7.5,{line}" if line[0] in "12" else line for line in lists))
    return root


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore::widemargin.exceptions.DataFormatWarning")
def test_store_is_that_of_the_way_through_memory(name, normalize, folder, tmp_path, monkeypatch):
    data = load_data(folder / name, normalize=normalize)
    names = {"label_names": data.label_names, "feature_names": data.feature_names}
    write_store(tmp_path / "expected", data.X, data.Y, **names)
    monkeypatch.setattr(text, "BLOCK_BYTES", 1000)  # many parts
    found = write_text_store(tmp_path / "found", folder / name, normalize=normalize)
    assert content(tmp_path / "found") == content(tmp_path / "expected")
    assert (found.X.shape, found.Y.shape, found.label_names) == (data.X.shape, data.Y.shape, data.label_names)
    open_store(tmp_path / "found", verify=True)


def test_bad_text_leaves_the_store_of_before(folder, tmp_path):
    write_text_store(tmp_path / "store", folder / "rows.txt")
    before = content(tmp_path / "store")
    (tmp_path / "bad.txt").write_text("2 3 2\n0 0:1\n1 7:5\n")
    with pytest.raises(DataFormatError, match="line 3"):
        write_text_store(tmp_path / "store", tmp_path / "bad.txt")
    assert content(tmp_path / "store") == before
    with pytest.raises(FileExistsError, match="not a store"):
        write_text_store(folder, folder / "rows.txt")


MEASURE = """
import sys
from widemargin.data.stream import write_text_store
from widemargin.parallel.executors import peak_bytes
write_text_store(sys.argv[2], sys.argv[1])  # a small file first: what the program itself needs
before = peak_bytes()
write_text_store(sys.argv[4], sys.argv[3])
print((peak_bytes() - before) / 2**20)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(folder, tmp_path):
    """60 MB of text, whose arrays would take more than 50 MB."""
    line = b"3,5,11 " + b" ".join(b"%d:0.5" % j for j in range(30)) + b"\n"
    n_rows = 60 * 2**20 // len(line)
    with open(tmp_path / "large.txt", "wb") as file:
        file.write(b"%d 30 12\n" % n_rows)
        for _ in range(n_rows // 1000):
            file.write(1000 * line)
        file.write((n_rows % 1000) * line)
    command = [sys.executable, "-c", MEASURE, folder / "rows.txt", tmp_path / "small", tmp_path / "large.txt"]
    growth_mb = float(subprocess.check_output([*map(str, command), str(tmp_path / "store")]))
    assert growth_mb < 40
    store = open_store(tmp_path / "store")
    assert store.X.shape == (n_rows, 30)
    assert store.X.nnz == 30 * n_rows
