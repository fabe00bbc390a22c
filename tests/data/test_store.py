"""The store: a round trip, mapping without reading, atomic writing, and refusal of damaged or hostile folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data import store as module
from widemargin.data.store import open_store, write_store
from widemargin.exceptions import DataFormatError
from widemargin.files import file_sha256


def example(n=30, d=12, n_labels=5):
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=0.3, format="csr", dtype=np.float32, random_state=rng)
    return X, sp.csr_array(rng.random((n, n_labels)) < 0.3).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    X, Y = example()
    write_store(tmp_path / "s", X, Y, label_names=[f"läbel {i}" for i in range(5)])
    return tmp_path / "s"


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


@pytest.mark.parametrize("verify", [False, True])
def test_round_trip_is_exact_and_mapped_read_only(folder, verify):
    X, Y = example()
    opened = open_store(folder, verify=verify)
    for got, written in ((opened.X, X), (opened.Y, Y)):
        for part in ("data", "indices", "indptr"):
            array = getattr(got, part)
            np.testing.assert_array_equal(array, getattr(written, part))
            assert is_mapped(array)
            assert not array.flags.writeable
        assert got.indices.dtype == np.int32
        assert got.has_canonical_format
    assert opened.label_names[1] == "läbel 1"
    assert opened.feature_names is None


def test_dense_features_class_vector_and_no_labels(tmp_path):
    dense = np.random.default_rng(0).random((4, 3))
    write_store(tmp_path / "a", dense, np.array(["x", "y", "x", "z"]), feature_names=["a", "b", "c"])
    opened = open_store(tmp_path / "a", verify=True)
    np.testing.assert_array_equal(opened.X, dense)
    assert isinstance(opened.X, np.memmap)
    assert (opened.Y.tolist(), opened.feature_names) == (["x", "y", "x", "z"], ["a", "b", "c"])
    write_store(tmp_path / "b", dense)
    assert open_store(tmp_path / "b").Y is None


def test_empty_matrices_can_be_stored(tmp_path):
    write_store(tmp_path / "a", sp.csr_array((0, 4), dtype=np.float32), sp.csr_array((0, 2), dtype=np.float32))
    assert open_store(tmp_path / "a", verify=True).X.shape == (0, 4)
    write_store(tmp_path / "b", sp.csr_array((3, 4), dtype=np.float32))
    assert open_store(tmp_path / "b", verify=True).X.nnz == 0


def test_unsorted_and_repeated_entries_are_stored_in_order(tmp_path):
    X = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    write_store(tmp_path / "a", X)
    assert open_store(tmp_path / "a", verify=True).X.indices.tolist() == [0, 2]
    assert open_store(tmp_path / "a").X.toarray().tolist() == [[2, 0, 5]]
    assert X.nnz == 3, "the input is left alone"


@pytest.mark.slow
def test_opening_does_not_read_the_arrays(tmp_path):
    n = 1 << 23  # 96 MB of entries
    X = sp.csr_array((np.ones(n, np.float32), np.tile(np.arange(1024, dtype=np.int32), n // 1024),
        np.arange(0, n + 1, 1024, dtype=np.int32)), shape=(n // 1024, 1024))  # fmt: skip
    write_store(tmp_path / "a", X)
    program = """
        import resource, sys
        from widemargin.data.store import open_store
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store = open_store(sys.argv[1])
        part = store.X[100:200]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(part.nnz, (after - before) // (1 if sys.platform != "darwin" else 1024))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "a")]
    nonzeros, grown_kb = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert nonzeros == 100 * 1024
    assert grown_kb < 16_000, "the arrays are 64 MB; slicing touches 1 MB"


def test_existing_folder_is_kept_unless_it_is_a_store_to_overwrite(folder, tmp_path):
    X, _ = example()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_store(folder, X)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="not a store"):
        write_store(tmp_path / "mine", X, overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"
    write_store(folder, X[:3], overwrite=True)
    assert open_store(folder, verify=True).X.shape == (3, 12)
    assert sorted(os.listdir(tmp_path)) == ["mine", "s"]


def test_failure_while_writing_leaves_nothing_or_the_old_store(folder, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_names", fail)
    X, _ = example()
    for target in (folder, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            write_store(target, X[:3], feature_names=[f"f{i}" for i in range(12)], overwrite=True)
    assert os.listdir(tmp_path) == ["s"]
    monkeypatch.undo()
    assert open_store(folder, verify=True).X.shape == (30, 12)


def change(folder, edit):
    path = folder / "store.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


BAD_MANIFESTS = {
    "other format": (lambda m: m.update(format="x"), "does not describe a store"),
    "newer version": (lambda m: m.update(version=2), "version 2, but this release reads version 1"),
    "X is missing": (lambda m: m.update(X=None), "X is missing"),
    "unknown kind": (lambda m: m["X"].update(kind="../csr"), "unknown kind"),
    "X is a list": (lambda m: m.update(X=[1]), "unknown kind"),
    "no files": (lambda m: m["X"].update(files=None), "does not describe X.data.npy"),
    "other dtype": (lambda m: m["X"]["files"]["X.data.npy"].update(dtype="<f8"), "says <f8"),
    "other length": (lambda m: m["X"]["files"]["X.data.npy"].update(shape=[3]), r"and \[3\]"),
    "other shape": (lambda m: m["X"].update(shape=[31, 12]), "31 rows"),
    "negative shape": (lambda m: m["X"].update(shape=[30, -1]), "shape"),
    "shape of text": (lambda m: m["X"].update(shape="12"), "shape"),
    "shape of three": (lambda m: m["X"].update(shape=[30, 12, 1]), "shape"),
    "Y of other length": (lambda m: m.update(Y=m["X"] | {"kind": "dense"}), "does not describe Y.npy"),
    "names missing": (lambda m: m.update(feature_names={}), "feature_names.txt is missing"),
}


@pytest.mark.parametrize(("edit", "words"), BAD_MANIFESTS.values(), ids=BAD_MANIFESTS.keys())
def test_wrong_description_is_refused(edit, words, folder):
    change(folder, edit)
    with pytest.raises(DataFormatError, match=words):
        open_store(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20)])
def test_description_that_is_no_json_object_is_refused(content, folder):
    (folder / "store.json").write_bytes(content)
    with pytest.raises(DataFormatError):
        open_store(folder)


def test_links_out_of_the_folder_are_refused(folder, tmp_path):
    secret = tmp_path / "secret.npy"
    os.rename(folder / "X.data.npy", secret)
    os.symlink(secret, folder / "X.data.npy")
    with pytest.raises(DataFormatError, match="not a regular file"):
        open_store(folder)
    os.unlink(folder / "X.data.npy")
    with pytest.raises(DataFormatError, match="missing"):
        open_store(folder)


def test_changed_bytes_are_found_by_verify(folder):
    path = folder / "X.data.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    open_store(folder)
    with pytest.raises(DataFormatError, match="SHA-256"):
        open_store(folder, verify=True)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [("indices", 12, "column"), ("indices", -1, "column"), ("data", np.nan, "must be finite")],
)
def test_bad_entries_are_found_by_verify_even_with_matching_hashes(part, value, words, folder):
    array = np.load(folder / f"X.{part}.npy")
    array[0] = value
    np.save(folder / f"X.{part}.npy", array)
    digest = file_sha256(folder / f"X.{part}.npy")
    change(folder, lambda m: m["X"]["files"][f"X.{part}.npy"].update(sha256=digest))
    with pytest.raises(DataFormatError, match=words):
        open_store(folder, verify=True)


def test_unsorted_rows_are_found_by_verify(folder):
    array, indptr = np.load(folder / "X.indices.npy"), np.load(folder / "X.indptr.npy")
    row = int(np.argmax(np.diff(indptr)))
    array[indptr[row] : indptr[row + 1]] = array[indptr[row] : indptr[row + 1]][::-1].copy()
    np.save(folder / "X.indices.npy", array)
    digest = file_sha256(folder / "X.indices.npy")
    change(folder, lambda m: m["X"]["files"]["X.indices.npy"].update(sha256=digest))
    with pytest.raises(DataFormatError, match="not sorted"):
        open_store(folder, verify=True)


def test_falling_indptr_is_found_at_once(folder):
    array = np.load(folder / "X.indptr.npy")
    array[5] = array[-1] + 1
    np.save(folder / "X.indptr.npy", array)
    with pytest.raises(DataFormatError, match="must not decrease"):
        open_store(folder)


@pytest.mark.parametrize("cut", [1, 100, 200])
def test_truncated_array_is_refused(cut, folder):
    path = folder / "X.data.npy"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataFormatError):
        open_store(folder)


def test_array_of_objects_is_refused(folder):
    np.save(folder / "X.data.npy", np.array([{}] * 3), allow_pickle=True)
    with pytest.raises(DataFormatError):
        open_store(folder)


def test_what_is_no_store_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(DataFormatError, match=r"store\.json is missing"):
        open_store(tmp_path)


def test_input_that_does_not_fit_together_is_refused(tmp_path):
    X, Y = example()
    with pytest.raises(DataFormatError, match="same number of rows; got 30 and 29"):
        write_store(tmp_path / "a", X, Y[:29])
    with pytest.raises(DataFormatError, match="one name for each of the 5 columns; got 4"):
        write_store(tmp_path / "a", X, Y, label_names=list("abcd"))
    with pytest.raises(DataFormatError, match="must be finite"):
        write_store(tmp_path / "a", np.array([[np.inf]]))
    with pytest.raises(DataFormatError, match="must be a numeric matrix"):
        write_store(tmp_path / "a", np.arange(3))
    assert os.listdir(tmp_path) == []
