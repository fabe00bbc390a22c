"""A model as one `.wm` file: the same model as from its folder, and an error for every damage."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TextPipeline,
    TopKClassifier,
    change_labels,
    load,
    pack,
    save,
    update,
)
from widemargin.data.training_rows import Segment, TrainingRows
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import ModelState, describe_model, read_model, write_packed

HEADER = struct.Struct("<16sIIQ32s")
TEXTS = ["fresh bread and cake", "a cake with cream", "the engine and the gearbox", "an old engine"]


def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 12)) * (rng.random((40, 12)) < 0.5)


def models():
    X, y = rows(), np.array(["a/p", "a/q", "b/r", "b/s"])[np.arange(40) % 4]
    text = TextPipeline([("tfidf", TfidfVectorizer()), ("model", OneVsAllClassifier(prune=0.01))])
    return {
        "sparse": (OneVsAllClassifier(prune=0.1).fit(sp.csr_array(X), y), X),
        "dense": (OneVsAllClassifier().fit(X, y), X),
        "top-k": (TopKClassifier(k=2).fit(X, y), X),
        "kernel": (TopKClassifier(kernel="rbf").fit(X, y), X),
        "tree": (HierarchicalClassifier(prune=0.05).fit(X, y), X),
        "code": (OutputCodeClassifier(random_state=0).fit(X, y), X),
        "text": (text.fit(TEXTS, ["food", "food", "cars", "cars"]), TEXTS),
    }


def directory(data):
    """The directory of a file, read without the package: the layout that the guide documents."""
    magic, version, zero, size, digest = HEADER.unpack_from(data)
    assert (magic, version, zero) == (b"\x89widemargin\r\n\x1a\n\x00", 1, 0)
    text = data[64 : 64 + size]
    assert hashlib.sha256(text).digest() == digest
    return json.loads(text)["files"]


@pytest.mark.parametrize("name", ["sparse", "dense", "top-k", "kernel", "tree", "code", "text"])
def test_a_packed_model_predicts_as_its_folder_does(name, tmp_path):
    model, X = models()[name]
    save(model, tmp_path / "folder")
    pack(tmp_path / "folder", tmp_path / "model.wm")
    for verify in (True, False):
        loaded, expected = load(tmp_path / "model.wm", verify=verify), load(tmp_path / "folder")
        found, wanted = loaded.predict_topk(X, 3), expected.predict_topk(X, 3)
        assert (found.labels == wanted.labels).all()
        np.testing.assert_array_equal(found.scores, wanted.scores)
    assert describe_model(tmp_path / "model.wm")["kind"] == describe_model(tmp_path / "folder")["kind"]


def test_the_file_has_the_documented_layout(tmp_path):
    pack(models()["sparse"][0], tmp_path / "model.wm")
    data = (tmp_path / "model.wm").read_bytes()
    files = directory(data)
    end = 0
    for name, entry in files.items():
        part = data[entry["offset"] : entry["offset"] + entry["size"]]
        assert entry["offset"] % 64 == 0
        assert entry["offset"] >= end
        assert hashlib.sha256(part).hexdigest() == entry["sha256"]
        assert name == "model.json" or entry["sha256"].startswith(Path(name).stem[-12:])
        end = entry["offset"] + entry["size"]
    assert end == len(data)
    assert any(name.startswith("feature_index_starts") for name in files)  # no set-up for the native program


def test_equal_models_are_equal_bytes_from_memory_folder_and_file(tmp_path):
    model = models()["text"][0]
    save(model, tmp_path / "folder")
    pack(model, tmp_path / "a.wm")
    pack(tmp_path / "folder", tmp_path / "b.wm")
    pack(tmp_path / "a.wm", tmp_path / "c.wm")
    assert len({(tmp_path / f"{name}.wm").read_bytes() for name in "abc"}) == 1


def test_weights_are_mapped_read_only(tmp_path):
    pack(models()["dense"][0], tmp_path / "model.wm")
    coef = load(tmp_path / "model.wm").coef_
    assert isinstance(coef, np.memmap)
    assert not coef.flags.writeable
    assert coef.ctypes.data % 64 == 0


def test_parts_that_only_updates_need_are_left_out(tmp_path):
    X, y = rows(), np.arange(40) % 3
    model = OneVsAllClassifier(prune=0.1).fit(X, y)
    Y = sp.csr_array(np.eye(3, dtype=np.int8)[y])
    segment = Segment(str(tmp_path / "store"), "0" * 64, 40)
    model.rows_ = TrainingRows((segment,), Y, np.empty(0, np.int64), [str(i) for i in range(40)], None)
    pack(model, tmp_path / "model.wm")
    state = read_model(tmp_path / "model.wm")
    assert not {"row_labels", "rows_removed", "label_bounds"} & set(state.arrays)
    assert state.row_ids is None
    assert not state.stores
    assert not hasattr(load(tmp_path / "model.wm"), "rows_")


def test_changes_of_a_packed_model_are_refused_with_the_remedy(tmp_path):
    pack(models()["sparse"][0], tmp_path / "model.wm")
    for change in (
        lambda path: update(path, rows()[:2], ["a/p", "a/q"]),
        lambda path: change_labels(path, [("rename", "a/p", "a/x")]),
    ):
        with pytest.raises(ValueError, match="change the folder that it was packed from, and pack it again"):
            change(tmp_path / "model.wm")


def test_a_store_has_no_place_in_a_file(tmp_path):
    state = ModelState("OneVsAllClassifier", {}, {"coef": np.ones((1, 1))}, stores={"rows-0": str(tmp_path)})
    with pytest.raises(NotSavableError, match="stores"):
        write_packed(tmp_path / "model.wm", state)
    assert not (tmp_path / "model.wm").exists()


def test_a_failure_leaves_the_previous_file(tmp_path):
    (tmp_path / "model.wm").write_bytes(b"previous")
    with pytest.raises(NotSavableError):
        pack(object(), tmp_path / "model.wm")
    assert [path.name for path in tmp_path.iterdir()] == ["model.wm"]
    assert (tmp_path / "model.wm").read_bytes() == b"previous"


def test_a_model_is_not_packed_into_itself(tmp_path):
    save(models()["dense"][0], tmp_path / "model")
    with pytest.raises(ValueError, match="lies inside"):
        pack(tmp_path / "model", tmp_path / "model" / "model.wm")


def signed(data, change):
    """The file with another directory, of a correct hash; members stay where they are if there is room."""
    files = directory(data)
    start = min(entry["offset"] for entry in files.values())
    change(files)
    text = json.dumps({"files": files}, separators=(",", ":")).encode()
    assert len(text) <= start - 64
    head = HEADER.pack(data[:16], 1, 0, len(text), hashlib.sha256(text).digest())
    return head + text + bytes(start - 64 - len(text)) + data[start:]


def shift(field, value):
    def change(files):
        name = next(name for name in files if name.startswith("coef_data"))
        files[name][field] = value

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a packed model"),
        (lambda data: b"hello\n" * 20, "not a packed model"),
        (lambda data: data[:40], "ends within its header"),
        (lambda data: data[:16] + b"\x02" + data[17:], "layout version 2"),
        (lambda data: data[:20] + b"\x01" + data[21:], "header of the file is damaged"),
        (lambda data: data[:24] + b"\xff" * 8 + data[32:], "header of the file is damaged"),
        (lambda data: data[:70] + b"x" + data[71:], "directory of the file differs"),
        (lambda data: data[:-1], "is not inside the file"),
        (lambda data: signed(data, shift("offset", 1)), "is not inside the file"),
        (lambda data: signed(data, shift("offset", 64)), "overlap"),
        (lambda data: signed(data, shift("offset", -64)), "no offset and size"),
        (lambda data: signed(data, shift("size", True)), "no offset and size"),
        (lambda data: signed(data, lambda files: files.pop("model.json")), "model.json: missing"),
        (lambda data: data.replace(b"OneVsAllClassifier", b"OneVsAllClassifieR"), "SHA-256"),
    ],
)
def test_damage_is_an_error(damage, message, tmp_path):
    pack(models()["sparse"][0], tmp_path / "model.wm")
    (tmp_path / "bad.wm").write_bytes(damage((tmp_path / "model.wm").read_bytes()))
    for verify in (True, False):
        with pytest.raises(ModelFormatError, match=message):
            load(tmp_path / "bad.wm", verify=verify)


def test_a_changed_array_is_found_by_its_hash(tmp_path):
    pack(models()["dense"][0], tmp_path / "model.wm")
    data = bytearray((tmp_path / "model.wm").read_bytes())
    entry = next(entry for name, entry in directory(data).items() if name.startswith("coef-"))
    data[entry["offset"] + entry["size"] - 1] ^= 1
    (tmp_path / "model.wm").write_bytes(data)
    with pytest.raises(ModelFormatError, match=r"coef-.*SHA-256"):
        load(tmp_path / "model.wm")
    load(tmp_path / "model.wm", verify=False)
