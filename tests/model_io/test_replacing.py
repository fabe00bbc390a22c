"""A model folder is replaced safely: a failure or a kill at any moment leaves the old model or the new one."""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import os
import shutil

import numpy as np
import pytest

from widemargin.model_io import read_model, write_model


def test_a_second_save_leaves_only_its_own_files(tmp_path, make_state, contents):
    write_model(tmp_path, make_state(0))
    write_model(tmp_path, make_state(1, labels=["a", "b", "c"]))
    write_model(tmp_path / "fresh", make_state(1, labels=["a", "b", "c"]))
    fresh = contents(tmp_path / "fresh")
    shutil.rmtree(tmp_path / "fresh")
    assert contents(tmp_path) == fresh


def test_files_of_others_beside_a_model_stay(tmp_path, make_state):
    write_model(tmp_path, make_state(0))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "mine-0123456789ab.json").write_text("[]")
    write_model(tmp_path, make_state(1))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "mine-0123456789ab.json").exists()


def test_a_folder_with_other_files_and_no_model_is_refused(tmp_path, make_state, contents):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.tex.*choose a new or empty folder"):
        write_model(tmp_path, make_state())
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_model_json_of_another_program_is_refused(tmp_path, make_state):
    (tmp_path / "model.json").write_text('{"modelTopology": {}}')
    with pytest.raises(FileExistsError, match="not written by widemargin"):
        write_model(tmp_path, make_state())


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path, make_state):
    (tmp_path / "model").write_text("")
    with pytest.raises(OSError, match="could not be written"):
        write_model(tmp_path / "model", make_state())


def test_two_writers_at_once_are_refused(tmp_path, make_state):
    write_model(tmp_path, make_state())
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError, match="another process"):
        write_model(tmp_path, make_state(1))
    os.close(descriptor)
    write_model(tmp_path, make_state(1))


@pytest.fixture
def before_each_step(monkeypatch):
    """A context that calls a function with the step number before each step of a write that touches the disk."""

    @contextlib.contextmanager
    def watch(function):
        steps = iter(range(10**6))

        def watched(original, is_step=lambda *args: True):
            def call(*args, **kwargs):
                if is_step(*args):
                    function(next(steps))
                return original(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", watched(os.replace))
            patch.setattr(os, "fsync", watched(os.fsync))
            patch.setattr(os, "unlink", watched(os.unlink))
            patch.setattr(builtins, "open", watched(open, lambda *args: "x" in "".join(args[1:2])))
            yield

    return watch


@pytest.mark.slow
@pytest.mark.parametrize("has_previous", [True, False])
def test_a_failure_at_any_step_leaves_the_previous_model_and_no_rubbish(
    tmp_path, monkeypatch, has_previous, make_state, assert_same_state, contents, same
):
    old, new = make_state(0), make_state(1)
    failures = 0
    for failing in range(1000):
        folder = tmp_path / str(failing)
        if has_previous:
            write_model(folder, old)
            before = contents(folder)
        steps = iter(range(1000))

        def fail(original, *args, _steps=steps, _failing=failing, **kwargs):
            if next(_steps) == _failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(*args, **kwargs)

        with monkeypatch.context() as patch:
            for owner, name in ((os, "replace"), (os, "fsync"), (builtins, "open")):
                original = getattr(owner, name)
                patch.setattr(owner, name, lambda *a, _original=original, **k: fail(_original, *a, **k))
            error_number = None
            try:
                write_model(folder, new)
            except OSError as error:
                error_number = error.errno
        failed = error_number is not None
        assert error_number in (None, errno.ENOSPC)
        if not failed and next(steps) <= failing:
            break
        failures += failed
        if not (folder / "model.json").exists():
            assert not has_previous
            assert contents(folder) == {}
        elif not same(read_model(folder), new):
            assert contents(folder) == before
        write_model(folder, new)
        assert_same_state(read_model(folder), new)
    assert failures > 20


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_the_previous_model_or_the_new_one(
    tmp_path, before_each_step, make_state, contents, same
):
    """A copy of the folder before each step shows what a kill at that moment leaves."""
    old, new, snapshots = make_state(0), make_state(1), tmp_path / "snapshots"
    folder = tmp_path / "model"
    write_model(folder, old)
    with before_each_step(lambda step: shutil.copytree(folder, snapshots / str(step))):
        write_model(folder, new)
    expected = contents(folder)
    seen = []
    for step in range(len(list(snapshots.iterdir()))):
        state = read_model(snapshots / str(step))
        seen.append("new" if same(state, new) else "old")
        assert seen[-1] == "new" or same(state, old)
    assert seen == sorted(seen, reverse=True)
    assert {"old", "new"} == set(seen)
    for step in range(len(seen)):
        write_model(snapshots / str(step), new)
        assert contents(snapshots / str(step)) == expected


def test_a_kill_during_the_first_save_does_not_block_the_next(tmp_path, before_each_step, make_state, contents):
    folder, snapshots = tmp_path / "model", tmp_path / "snapshots"
    with before_each_step(lambda step: shutil.copytree(folder, snapshots / str(step))):
        write_model(folder, make_state())
    for snapshot in list(snapshots.iterdir()):
        write_model(snapshot, make_state())
        assert contents(snapshot) == contents(folder)


def test_a_model_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch, make_state, assert_same_state):
    old, new = make_state(0), make_state(1)
    write_model(tmp_path, old)
    original, replaced = np.memmap, []

    def replace_once(*args, **kwargs):
        if not replaced:
            replaced.append(True)
            write_model(tmp_path, new)
        return original(*args, **kwargs)

    monkeypatch.setattr(np, "memmap", replace_once)
    assert_same_state(read_model(tmp_path), new)


def test_every_file_is_synced_before_it_gets_its_name(tmp_path, monkeypatch, make_state):
    calls, replace = [], os.replace

    def note_sync(descriptor):
        calls.append(("sync", os.fstat(descriptor).st_ino))

    def note_and_replace(source, target):
        calls.append((target.name, source.stat().st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_and_replace)
    write_model(tmp_path, make_state())
    renames = [i for i, (what, _) in enumerate(calls) if what != "sync"]
    assert all(calls[i - 1] == ("sync", calls[i][1]) for i in renames)
    assert calls[renames[-1]][0] == "model.json"
    folder_sync = ("sync", tmp_path.stat().st_ino)
    assert calls[renames[-1] - 2] == folder_sync, "the new names are on disk before the switch"
    assert calls[-1] == folder_sync
