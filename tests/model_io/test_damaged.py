"""A damaged or hostile model folder gives a `ModelFormatError` that names the file and a remedy; one case per row."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.exceptions import ModelFormatError
from widemargin.model_io import ModelState, describe_model, read_model, write_model
from widemargin.model_io import read as reader


@pytest.fixture
def folder(tmp_path):
    coef = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    state = ModelState(
        "OneVsAllClassifier",
        {"C": 1.0},
        {"coef": coef, "intercept": np.array([0.5, -0.5])},
        labels=["a", "b"],
        feature_names=["x", "y", "z"],
        history={"primal": np.array([2.0, 1.0])},
    )
    write_model(tmp_path / "model", state)
    return tmp_path / "model"


def manifest(folder):
    return json.loads((folder / "model.json").read_text())


def edit(change):
    """Damage that changes the manifest as a Python value."""

    def damage(folder):
        content = manifest(folder)
        change(content)
        (folder / "model.json").write_text(json.dumps(content))

    return damage


def entry_of(content, name):
    array, _, part = name.partition(".")
    if array in ("labels", "feature_names"):
        return content[array]
    if array == "history":
        return content["history"][part]
    return content["arrays"][array][part] if part else content["arrays"][array]


def replace_bytes(name, change, sign=False):
    """Damage that changes the bytes of a file; `sign` corrects its size and hash in the manifest."""

    def damage(folder):
        content = manifest(folder)
        entry = entry_of(content, name)
        path = folder / entry["file"]
        path.write_bytes(change(path.read_bytes()))
        if sign:
            entry["size"] = path.stat().st_size
            entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            (folder / "model.json").write_text(json.dumps(content))

    return damage


def replace_array(name, array):
    """A signed replacement of an array by one of another type, shape or content, described in the table."""

    def damage(folder):
        buffer = io.BytesIO()
        np.save(buffer, array)
        replace_bytes(name, lambda _: buffer.getvalue(), sign=True)(folder)

        def describe(content):
            entry_of(content, name).update(dtype=array.dtype.str, shape=list(array.shape))

        edit(describe)(folder)

    return damage


def signed(name, array):
    """Like `replace_array`, but the table keeps the old type and shape."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return replace_bytes(name, lambda _: buffer.getvalue(), sign=True)


def set_entry(name, **values):
    return edit(lambda content: entry_of(content, name).update(values))


def set_field(name, value):
    return edit(lambda content: content.__setitem__(name, value))


def link_out(folder):
    path = folder / entry_of(manifest(folder), "intercept")["file"]
    outside = folder.parent / "outside.npy"
    path.rename(outside)
    path.symlink_to(outside)


def make_pipe(folder):
    path = folder / entry_of(manifest(folder), "intercept")["file"]
    path.unlink()
    os.mkfifo(path)


def remove(name):
    return lambda folder: (folder / entry_of(manifest(folder), name)["file"]).unlink()


def write_text(text):
    return lambda folder: (folder / "model.json").write_text(text)


def flip_last(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def fortran(data):
    return data.replace(b"'fortran_order': False", b"'fortran_order': True ")


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("exploded",))


BOMB = np.array([Bomb()], dtype=object)
I32 = np.int32

DAMAGES = {
    # the manifest
    "manifest missing": (lambda folder: (folder / "model.json").unlink(), "missing; use the folder"),
    "manifest empty": (write_text(""), "not valid JSON"),
    "manifest cut": (write_text('{"format": "widemargin model", "format_v'), "not valid JSON"),
    "manifest not UTF-8": (lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe{}"), "not valid JSON"),
    "manifest a list": (write_text("[]"), "not describe a widemargin model"),
    "manifest of others": (write_text('{"format": "keras"}'), "not describe a widemargin model"),
    "manifest nested deeply": (write_text("[" * 100_000), "not valid JSON"),
    "manifest huge": (write_text(" " * (reader.MAX_MANIFEST_BYTES + 1)), "longer than"),
    "manifest with NaN": (write_text('{"format": NaN}'), "not valid JSON"),
    "manifest with 1e999": (write_text('{"format": 1e999}'), "not a finite number"),
    "manifest with a long number": (write_text('{"a": ' + "9" * 5000 + "}"), "not valid JSON"),
    "manifest with repeated keys": (
        write_text('{"format": "x", "format": "widemargin model"}'),
        "key 'format' is repeated",
    ),
    "future version": (
        set_field("format_version", 5),
        "format version 5, but this release reads versions 1, 2, 3 and 4; load it",
    ),
    "version a string": (set_field("format_version", "1"), "format version '1'"),
    "version zero": (set_field("format_version", 0), "format version 0"),
    "version true": (set_field("format_version", True), "format version True"),
    "unknown kind": (set_field("kind", "os.system"), "unknown kind 'os.system'; this release supports"),
    "kind a number": (set_field("kind", 3), "'kind'"),
    "no arrays": (edit(lambda content: content.pop("arrays")), "'arrays'"),
    "arrays a list": (set_field("arrays", []), "'arrays'"),
    "params a list": (set_field("params", []), "'params'"),
    "unknown tag": (set_field("params", {"C": {"$eval": "1"}}), r"'\$eval' is not a valid tag"),
    "two tags": (set_field("params", {"C": {"$tuple": [], "$float": "inf"}}), "a value cannot be read"),
    "wrong float": (set_field("params", {"C": {"$float": "1"}}), "a value cannot be read"),
    "items not pairs": (set_field("params", {"C": {"$items": [[1]]}}), "a value cannot be read"),
    "items with list keys": (set_field("params", {"C": {"$items": [[[], 1]]}}), "a value cannot be read"),
    "items with tuple of list keys": (
        set_field("attributes", {"a": {"$items": [[{"$tuple": [[]]}, 1]]}}),
        "a value cannot be read",
    ),
    # names of files
    "path upwards": (
        set_entry("intercept", file="../secret-0123456789ab.npy"),
        "not a valid name for a file of a model",
    ),
    "absolute path": (set_entry("intercept", file="/etc/passwd"), "not a valid name for a file of a model"),
    "name with NUL": (set_entry("intercept", file="a\0-0123456789ab.npy"), "not a valid name for a file of a model"),
    "name a number": (set_entry("intercept", file=3), "not a valid name for a file of a model"),
    "list as array": (edit(lambda c: c["arrays"]["intercept"].update(file=c["labels"]["file"])), "not a valid name"),
    "no such file": (set_entry("intercept", file="intercept-0123456789ab.npy"), "intercept-0123456789ab.npy: missing"),
    "link out of the folder": (link_out, "points outside the model folder; replace the link"),
    "a pipe": (make_pipe, "not a regular file"),
    # arrays
    "array missing": (remove("coef.data"), "coef_data-.*npy: missing"),
    "array cut": (replace_bytes("intercept", lambda data: data[:-3]), r"must be \d+ bytes long; got"),
    "array longer": (replace_bytes("intercept", lambda data: data + b"\0"), r"must be \d+ bytes long; got"),
    "array empty": (replace_bytes("intercept", lambda data: b"", sign=True), "not a plain .npy file"),
    "array cut in the header": (replace_bytes("intercept", lambda data: data[:20], sign=True), "not a plain .npy file"),
    "array cut and signed": (replace_bytes("intercept", lambda d: d[:-8], sign=True), "file length"),
    "bit flipped": (replace_bytes("intercept", flip_last), "SHA-256 mismatch"),
    "bit flipped in indices": (replace_bytes("coef.indices", flip_last), "SHA-256 mismatch"),
    "hash not a string": (set_entry("intercept", sha256=None), "SHA-256 mismatch"),
    "header not NumPy's": (
        replace_bytes("intercept", lambda d: d.replace(b"descr", b"DESCR"), sign=True),
        "plain .npy",
    ),
    "fortran order": (replace_bytes("intercept", fortran, sign=True), "not a plain .npy file"),
    "version 3 header": (replace_bytes("intercept", lambda d: d[:6] + b"\x03" + d[7:], sign=True), "plain .npy"),
    "pickle in an npy": (signed("intercept", BOMB), "not a plain .npy file"),
    "a bare pickle": (replace_bytes("intercept", lambda _: pickle.dumps(Bomb()), sign=True), "not a plain .npy file"),
    "object dtype in the table": (set_entry("intercept", dtype="|O"), "type '|O', which is not allowed"),
    "dtype not a string": (set_entry("intercept", dtype=["<f8"]), "which is not allowed"),
    "other dtype": (signed("intercept", np.array([1, 2])), "got int64 of shape"),
    "other shape": (signed("intercept", np.ones(3)), "got float64 of shape"),
    "more dimensions": (signed("intercept", np.ones((1, 2))), "got float64 of shape"),
    "shape not a list": (set_entry("intercept", shape=2), "must have a shape"),
    "shape negative": (set_entry("intercept", shape=[-2]), "must be an integer"),
    "shape of booleans": (set_entry("intercept", shape=[True]), "must be an integer"),
    "shape too long": (set_entry("intercept", shape=[1] * 99), "must have a shape"),
    "size too large": (set_entry("intercept", size=2**63), "must be an integer"),
    "array not an object": (edit(lambda c: c["arrays"].update(intercept=7)), "must be dense or csr"),
    "array of unknown type": (set_entry("intercept", type="pickle"), "must be dense or csr"),
    "array with NaN": (replace_array("intercept", np.array([np.nan, 0])), "NaN or infinity"),
    "csr data with inf": (replace_array("coef.data", np.array([1, np.inf, 2])), "NaN or infinity"),
    # CSR
    "csr part missing": (edit(lambda c: c["arrays"]["coef"].pop("indptr")), "must have a shape"),
    "csr of three dimensions": (edit(lambda c: c["arrays"]["coef"].update(shape=[2, 3, 1])), "two dimensions"),
    "csr of more rows": (edit(lambda c: c["arrays"]["coef"].update(shape=[9, 3])), "3 entries, but there are 9 rows"),
    "indptr must not decrease": (replace_array("coef.indptr", np.array([0, 4, 3], I32)), "indptr must not decrease"),
    "indptr starts late": (replace_array("coef.indptr", np.array([1, 2, 3], I32)), "lengths of its parts"),
    "indptr ends early": (replace_array("coef.indptr", np.array([0, 1, 2], I32)), "lengths of its parts"),
    "indptr ends late": (replace_array("coef.indptr", np.array([0, 1, 99], I32)), "lengths of its parts"),
    "indptr empty": (replace_array("coef.indptr", np.array([], I32)), "0 entries, but there are 2 rows"),
    "indptr of floats": (replace_array("coef.indptr", np.array([0.0, 2.0, 3.0])), "must both be int32"),
    "indptr of another type": (replace_array("coef.indptr", np.array([0, 2, 3], np.int64)), "must both be int32"),
    "indices too few": (replace_array("coef.indices", np.array([0, 2], I32)), "lengths of its parts"),
    "indices a matrix": (replace_array("coef.indices", np.zeros((3, 1), I32)), "must be vectors"),
    "index too high": (replace_array("coef.indices", np.array([0, 3, 1], I32)), "must be between 0 and 2"),
    "index negative": (replace_array("coef.indices", np.array([0, -1, 1], I32)), "must be between 0 and 2"),
    # lists and history
    "labels cut": (replace_bytes("labels", lambda data: data[:-4], sign=True), "not valid JSON"),
    "labels an object": (replace_bytes("labels", lambda _: b"{}", sign=True), "must contain a list of 2 names"),
    "labels too few": (replace_bytes("labels", lambda _: b'["a"]', sign=True), "must contain a list of 2 names"),
    "labels nested": (replace_bytes("labels", lambda _: b'["a", []]', sign=True), "neither a string nor a number"),
    "label count wrong": (set_entry("labels", count=3), "must contain a list of 3 names"),
    "labels an array": (edit(lambda c: c["labels"].update(file=c["arrays"]["intercept"]["file"])), "not a valid name"),
    "labels changed": (replace_bytes("labels", lambda data: data.replace(b"a", b"c")), "SHA-256 mismatch"),
    "feature name a number": (replace_bytes("feature_names", lambda _: b"[1, 2, 3]", sign=True), "must be a string"),
    "history a matrix": (replace_array("history.primal", np.ones((2, 2))), "vectors of the same length"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_named(folder, case, monkeypatch):
    monkeypatch.chdir(folder.parent)
    damage, message = DAMAGES[case]
    read_model(folder, kinds={"OneVsAllClassifier"})
    damage(folder)
    with pytest.raises(ModelFormatError, match=message) as caught:
        read_model(folder, kinds={"OneVsAllClassifier"})
    assert str(folder) in str(caught.value)
    assert "; " in str(caught.value), "a remedy follows the problem"
    assert not (folder.parent / "exploded").exists()


# Damage that only reading all bytes can reveal; everything else must also be found without `verify`.
FOUND_BY_VERIFY_ONLY = {
    "bit flipped",
    "bit flipped in indices",
    "hash not a string",
    "array with NaN",
    "csr data with inf",
    "index too high",
    "index negative",
    "labels changed",
}


@pytest.mark.parametrize("case", DAMAGES)
def test_structure_is_checked_without_verify(folder, case):
    DAMAGES[case][0](folder)
    if case in FOUND_BY_VERIFY_ONLY:
        assert read_model(folder, verify=False).kind == "OneVsAllClassifier"
    else:
        with pytest.raises(ModelFormatError):
            read_model(folder, verify=False, kinds={"OneVsAllClassifier"})


def test_the_bomb_of_these_tests_is_live(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / "exploded").is_dir()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-here: the model folder does not exist"):
        read_model(tmp_path / "nothing-here")


def test_a_link_inside_the_folder_is_allowed(folder):
    path = folder / entry_of(manifest(folder), "intercept")["file"]
    path.rename(folder / "kept.npy")
    path.symlink_to("kept.npy")
    np.testing.assert_array_equal(read_model(folder).arrays["intercept"], [0.5, -0.5])


def test_a_link_to_the_folder_is_allowed(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert read_model(tmp_path / "link").labels == ["a", "b"]


@pytest.mark.parametrize("case", ["manifest cut", "future version", "arrays a list", "unknown tag", "shape negative"])
def test_describe_checks_what_it_reads(folder, case):
    DAMAGES[case][0](folder)
    with pytest.raises(ModelFormatError):
        describe_model(folder)
