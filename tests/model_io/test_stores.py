"""Stores of rows inside a model folder: taken along, replaced with the model, and never mixed with another one."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from widemargin.data.training_rows import write_segment
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import describe_model, folder_size, read_model, write_model


@pytest.fixture
def make_model(make_state, tmp_path):
    """A function that makes a state with a store, which is written to a folder of its own."""

    def make(number=0, folder=None):
        place = tmp_path / "elsewhere" if folder is None else folder
        segment = write_segment(place, np.full((3, 2), float(number)))
        ids = [f"row {i}" for i in range(3)]
        return replace(make_state(number), row_ids=ids, stores={segment.path: str(place / segment.path)})

    return make


def stores_in(folder):
    return {path.name for path in folder.iterdir() if path.is_dir()}


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_store_is_taken_along_by_hard_links(tmp_path, make_model):
    state = make_model()
    ((name, source),) = state.stores.items()
    write_model(tmp_path / "model", state)
    found = read_model(tmp_path / "model")
    assert found.stores == {name: str(tmp_path / "model" / name)}
    assert found.row_ids == state.row_ids
    assert found.folder == str(tmp_path / "model")
    assert os.stat(os.path.join(source, "X.npy")).st_ino == (tmp_path / "model" / name / "X.npy").stat().st_ino
    shutil.rmtree(source)
    write_model(tmp_path / "second", found)
    assert files_of(tmp_path / "model") == files_of(tmp_path / "second")


def test_a_store_is_copied_and_synced_where_links_are_impossible(tmp_path, monkeypatch, make_model):
    def no_link(*args):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    state, synced = make_model(), []
    ((name, source),) = state.stores.items()
    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    write_model(tmp_path / "model", state)
    copied = tmp_path / "model" / name
    assert files_of(copied) == files_of(tmp_path / "elsewhere" / name)
    assert os.stat(os.path.join(source, "X.npy")).st_ino != (copied / "X.npy").stat().st_ino
    assert {os.path.basename(path) for path in synced} >= {"X.npy", "store.json"}


def test_the_next_model_removes_stores_that_it_does_not_name(tmp_path, make_model, make_state):
    folder = tmp_path / "model"
    first, second = make_model(0, folder), make_model(1, folder)
    write_model(folder, replace(first, stores=first.stores | second.stores))
    assert stores_in(folder) == {*first.stores, *second.stores}
    write_model(folder, second)
    assert stores_in(folder) == set(second.stores)
    write_model(folder, make_state())
    assert stores_in(folder) == set()


def test_stores_of_others_beside_a_model_stay(tmp_path, make_model, make_state):
    folder = tmp_path / "model"
    write_model(folder, make_model(0, folder))
    for name in ("rows-0123456789ab", "rows", "rows-of-mine"):
        (folder / name).mkdir()
        (folder / name / "notes.txt").write_text("mine")
    write_model(folder, make_state(1))
    assert stores_in(folder) == {"rows-0123456789ab", "rows", "rows-of-mine"}


def test_a_failed_save_keeps_the_store_of_the_caller_and_removes_its_own_copy(tmp_path, monkeypatch, make_model):
    folder, new = tmp_path / "model", make_model(1)
    write_model(folder, make_model(0, folder))
    before, replaced = files_of(folder), os.replace

    def full(source, target):
        if str(target).endswith("model.json"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replaced(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="an existing model there is unchanged"):
        write_model(folder, new)
    assert files_of(folder) == before
    inside = make_model(2, folder)
    (name,) = inside.stores
    with pytest.raises(OSError, match="an existing model there is unchanged"):
        write_model(folder, inside)
    assert {file: content for file, content in files_of(folder).items() if not file.startswith(name)} == before
    monkeypatch.undo()
    write_model(folder, inside)
    assert stores_in(folder) == {name}


def test_a_kill_leaves_the_previous_model_with_its_store(tmp_path, monkeypatch, make_model, assert_same_state):
    class Killed(BaseException):
        pass

    folder, old, new = tmp_path / "model", make_model(0, tmp_path / "model"), make_model(1)
    write_model(folder, old)
    steps = iter(range(1000))
    limit = 0

    def step(original):
        def call(*args, **kwargs):
            if next(steps) == limit:
                raise Killed
            return original(*args, **kwargs)

        return call

    seen = set()
    for limit in range(200):
        steps = iter(range(1000))
        copy = tmp_path / f"copy{limit}"
        shutil.copytree(folder, copy)
        with monkeypatch.context() as patch:
            for name in ("replace", "rename", "link", "mkdir", "unlink"):
                patch.setattr(os, name, step(getattr(os, name)))
            # A process that is killed does not clean up.
            patch.setattr(shutil, "rmtree", step(lambda *args, **kwargs: None))
            try:
                write_model(copy, new)
            except Killed:
                done = False
            else:
                done = True
        found = read_model(copy)
        expected = new if found.attributes["seed"] == 1 else old
        seen.add(found.attributes["seed"])
        assert_same_state(found, expected)
        assert all(os.path.isfile(os.path.join(path, "store.json")) for path in found.stores.values())
        write_model(copy, new)
        assert {path.name for path in copy.iterdir() if path.name.startswith((".", "rows-"))} == set(new.stores)
        if done:
            break
    assert done
    assert seen == {0, 1}


def test_sizes_count_the_stores(tmp_path, make_model):
    write_model(tmp_path / "model", make_model())
    size = sum(len(content) for content in files_of(tmp_path / "model").values())
    assert folder_size(tmp_path / "model") == size
    assert describe_model(tmp_path / "model")["size_bytes"] == size


def test_a_first_save_that_was_killed_does_not_block_the_next(tmp_path, make_model, make_state):
    folder = tmp_path / "model"
    make_model(0, folder)
    (folder / ".tmp-widemargin-1-rows").mkdir()
    write_model(folder, make_state())
    assert stores_in(folder) == set()


def test_a_missing_or_changed_store_is_an_error_before_anything_is_written(tmp_path, make_model):
    state = make_model()
    ((name, source),) = state.stores.items()
    with open(os.path.join(source, "store.json"), "a") as file:
        file.write(" ")
    with pytest.raises(NotSavableError, match=f"{name} .* has changed since it was written; restore it from a copy"):
        write_model(tmp_path / "model", state)
    shutil.rmtree(source)
    with pytest.raises(NotSavableError, match=f"{name} .* is missing; restore it from a copy, or delete rows_"):
        write_model(tmp_path / "model", state)
    with pytest.raises(NotSavableError, match="not a valid name"):
        write_model(tmp_path / "model", replace(state, stores={"../rows-0123456789ab": source}))
    assert not (tmp_path / "model").exists()


HASH = "0123456789ab" + "0" * 52
DAMAGES = {
    "list": ([], "'stores'"),
    "missing": (None, "'stores'"),
    "parent": ({"../rows-0123456789ab": {"sha256": HASH, "size": 1}}, "not a valid name for a store"),
    "absolute": ({"/rows-0123456789ab": {"sha256": HASH, "size": 1}}, "not a valid name for a store"),
    "entry a number": ({"rows-0123456789ab": 3}, "not a valid name for a store"),
    "other hash": ({"rows-0123456789ab": {"sha256": "f" * 64, "size": 1}}, "or its hash is another one"),
    "no size": ({"rows-0123456789ab": {"sha256": HASH}}, "'size' of a file must be an integer"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_table_of_stores_is_checked(tmp_path, make_state, name):
    value, message = DAMAGES[name]
    write_model(tmp_path, make_state())
    manifest = json.loads((tmp_path / "model.json").read_text())
    manifest["stores"] = value
    if value is None:
        del manifest["stores"]
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError, match=message):
        read_model(tmp_path)


def test_row_ids_are_checked(tmp_path, make_model):
    write_model(tmp_path / "model", make_model())
    manifest = json.loads((tmp_path / "model" / "model.json").read_text())
    manifest["row_ids"]["count"] = 2
    (tmp_path / "model" / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError, match="a list of 2 names"):
        read_model(tmp_path / "model")


def test_an_earlier_version_has_no_stores(tmp_path, make_state):
    write_model(tmp_path, make_state())
    manifest = json.loads((tmp_path / "model.json").read_text()) | {"format_version": 2, "stores": {"../x": 1}}
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    found = read_model(tmp_path)
    assert found.stores == {}
    assert found.row_ids is None
