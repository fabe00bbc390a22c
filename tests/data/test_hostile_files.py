"""Hostile data files: bombs, pipes, invalid shapes and strings, stores that lie; each gives a clear error."""

from __future__ import annotations

import gzip
import hashlib
import json
import os

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import Taxonomy, files
from widemargin.data.load import load_data
from widemargin.data.store import open_store, read_matrix, read_npz, write_store
from widemargin.exceptions import DataFormatError


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(files, "SMALL_UNPACKED_BYTES", 100_000)


def test_text_that_unpacks_to_too_much_is_refused_before_it_is_all_there(tmp_path, small_limit):
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"0 0:1\n" * 1_000_000))
    with pytest.raises(
        DataFormatError, match=r"bomb.txt.gz: the file has [\d,]+ bytes and would decompress to more than"
    ):
        load_data(path)


def test_many_gzip_members_count_together(tmp_path, small_limit):
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"0 0:1\n" * 10_000) * 60)
    with pytest.raises(DataFormatError, match="if you trust it, decompress it yourself"):
        load_data(path)


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path, small_limit):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, X=np.zeros((1000, 1000)))
    for read in (load_data, read_npz, read_matrix):
        with pytest.raises(DataFormatError, match="would decompress to more than"):
            read(path)


def test_usual_packed_files_stay_below_the_limit(tmp_path, small_limit):
    Y = sp.random_array((2000, 300), density=0.01, format="csr", random_state=np.random.default_rng(0))
    Y.data[:] = 1.0
    sp.save_npz(tmp_path / "Y.npz", Y)
    assert read_matrix(tmp_path / "Y.npz").nnz == Y.nnz


def test_pipes_are_refused_unopened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataFormatError, match="pipe: this is a pipe or a device, not a file; write the data"):
        load_data(tmp_path / "pipe")
    with pytest.raises(DataFormatError, match="device"):
        load_data("/dev/zero")
    with pytest.raises(DataFormatError, match="device"):
        Taxonomy.from_tsv(tmp_path / "pipe")


def test_a_shape_that_overflows_is_refused(tmp_path):
    X = sp.eye_array(3, format="csr")
    for shape in (np.array([3, 2**63], dtype=np.uint64), np.array([3, -1]), np.array([3.0, 3.0])):
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": shape, "format": b"csr"}
        np.savez(tmp_path / "X.npz", **parts)
        with pytest.raises(DataFormatError, match="shape"):
            read_matrix(tmp_path / "X.npz")


def test_strings_of_characters_that_do_not_exist_are_refused(tmp_path):
    words = np.array(["ab", "c"])
    words.view(np.uint32)[0] = 0x110000
    np.savez(tmp_path / "data.npz", X=np.eye(2), y=words)
    with pytest.raises(DataFormatError, match="invalid characters"):
        read_npz(tmp_path / "data.npz")


@pytest.fixture
def folder(tmp_path):
    write_store(tmp_path / "s", sp.eye_array(3, format="csr", dtype=np.float32), np.array(["a", "b", "a"]))
    return tmp_path / "s"


def edit_text(old, new):
    def damage(folder):
        text = (folder / "store.json").read_text()
        assert old in text
        (folder / "store.json").write_text(text.replace(old, new))

    return damage


def replace_array(name, array):
    """Replace an array by one of another type, signed and described correctly."""

    def damage(folder):
        np.save(folder / name, array)
        manifest = json.loads((folder / "store.json").read_text())
        for matrix in (manifest["X"], manifest["Y"]):
            if name in matrix["files"]:
                digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                matrix["files"][name] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}
        (folder / "store.json").write_text(json.dumps(manifest))

    return damage


def make_pipe(folder):
    (folder / "X.data.npy").unlink()
    os.mkfifo(folder / "X.data.npy")


def link_out(folder):
    (folder / "X.data.npy").rename(folder.parent / "elsewhere.npy")
    (folder / "X.data.npy").symlink_to(folder.parent / "elsewhere.npy")


LIES = {
    "version true": (edit_text('"version": 1', '"version": true'), "version True"),
    "repeated key": (edit_text('"version": 1', '"version": 1, "version": 1'), "'version' is repeated"),
    "must be finite": (edit_text('"version": 1', '"version": NaN'), "not a finite number"),
    "nested deeply": (edit_text('"version": 1', '"version": ' + "[" * 100_000), "not valid JSON"),
    "a huge number": (edit_text('"version": 1', f'"version": {"9" * 5000}'), "not valid JSON"),
    "big-endian": (replace_array("X.data.npy", np.ones(3, dtype=">f4")), "wrong type \\(>f4\\)"),
    "fortran order": (replace_array("X.data.npy", np.asfortranarray(np.ones((3, 3)))), "not in C order"),
    "pickled objects": (replace_array("X.data.npy", np.array([{}, 1, 2], dtype=object)), "is damaged"),
    "column of another sign": (
        replace_array("X.indices.npy", np.array([0, -1, 2], np.int32)),
        "must be between 0 and 2",
    ),
    "column too high": (replace_array("X.indices.npy", np.array([0, 1, 3], np.int32)), "must be between 0 and 2"),
    "not finite value": (replace_array("X.data.npy", np.array([1, np.inf, 1], np.float32)), "must be finite"),
    "an empty file": (lambda f: (f / "X.data.npy").write_bytes(b""), "damaged|SHA-256"),
    "a cut file": (lambda f: os.truncate(f / "X.data.npy", 130), "damaged|SHA-256"),
    "a pipe": (make_pipe, "not a regular file"),
    "a link out": (link_out, "not a regular file"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_store_that_lies_is_refused(folder, lie):
    damage, message = LIES[lie]
    open_store(folder, verify=True)
    damage(folder)
    with pytest.raises(DataFormatError, match=message) as caught:
        open_store(folder, verify=True)
    assert str(folder) in str(caught.value)
