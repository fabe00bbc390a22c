"""A model folder gives back what was written, byte-equal models for equal states, and replaces itself safely."""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from widemargin.exceptions import NotSavableError
from widemargin.model_io import ModelState, describe_model, read_model, write_model
from widemargin.model_io.state import decode_value, encode_value

VERSION_1 = Path(__file__).parents[1] / "data_files" / "model-v1"


def make_state(seed=0, labels=("red", "grün", "blue")):
    rng = np.random.default_rng(seed)
    return ModelState(
        kind="OneVsAllClassifier",
        params={"C": 0.1, "tol": 1e-3, "class_weight": {0: 1.5, "a": math.inf}, "shape": (1, None)},
        arrays={"coef": sp.random_array((3, 7), density=0.4, format="csr", rng=rng), "intercept": rng.random(3)},
        labels=list(labels),
        feature_names=[f"x{i}" for i in range(7)],
        certificate={"primal": 0.1 + 0.2, "dual": -math.inf, "worst": None},
        history={"iteration": np.arange(2), "dual": np.array([np.nan, 1.0])},
        attributes={"n_iter": 3, "seed": seed},
    )


def assert_same_state(a, b):
    for name in ("kind", "params", "labels", "feature_names", "certificate", "attributes"):
        assert getattr(a, name) == getattr(b, name), name
    for mapping in ("arrays", "history"):
        assert sorted(getattr(a, mapping)) == sorted(getattr(b, mapping))
        for name, array in getattr(a, mapping).items():
            assert_same_array(array, getattr(b, mapping)[name])


def assert_same_array(a, b):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if sp.issparse(a):
        for part in ("data", "indices", "indptr"):
            assert_same_array(getattr(a, part), getattr(b, part))
    else:
        np.testing.assert_array_equal(a, b)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("verify", [True, False])
def test_everything_comes_back(tmp_path, verify):
    state = make_state()
    write_model(tmp_path / "new" / "model", state)
    assert_same_state(read_model(tmp_path / "new" / "model", verify=verify), state)


ARRAYS = {
    "float32 matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fortran order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
    "booleans": np.array([True, False]),
    "bytes": np.arange(3, dtype=np.uint8),
    "no dimensions": np.array(2.5),
    "empty": np.empty((0, 5)),
    "empty rows": np.empty((5, 0), dtype=np.int32),
    "empty csr": sp.csr_array((4, 3)),
    "csr without rows": sp.csr_array((0, 3)),
    "csr without columns": sp.csr_array((3, 0)),
    "csr float32": sp.csr_array(np.eye(3, dtype=np.float32)),
    "csr matrix": sp.csr_matrix(np.eye(3)),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_come_back_with_dtype_and_shape(tmp_path, case):
    write_model(tmp_path, ModelState("K", {}, {"a": ARRAYS[case]}))
    assert_same_array(read_model(tmp_path).arrays["a"], ARRAYS[case])


def test_int64_indices_and_unsorted_rows_stay_as_they_are(tmp_path):
    csr = sp.csr_array(np.ones((2, 3)))
    csr.indices, csr.indptr = csr.indices[::-1].astype(np.int64), csr.indptr.astype(np.int64)
    write_model(tmp_path, ModelState("K", {}, {"a": csr}))
    assert_same_array(read_model(tmp_path).arrays["a"], csr)


def test_big_endian_arrays_are_stored_little_endian(tmp_path):
    write_model(tmp_path, ModelState("K", {}, {"a": np.array([1, 2], dtype=">i4")}))
    np.testing.assert_array_equal(read_model(tmp_path).arrays["a"], np.array([1, 2], dtype="<i4"))


def test_arrays_are_memory_mapped_and_read_only(tmp_path):
    write_model(tmp_path, make_state())
    arrays = read_model(tmp_path).arrays
    for part in (arrays["intercept"], arrays["coef"].data, arrays["coef"].indices, arrays["coef"].indptr):
        assert isinstance(part, np.memmap)
        assert not part.flags.writeable


def test_a_loaded_model_can_be_saved_over_itself(tmp_path):
    state = make_state()
    write_model(tmp_path, state)
    loaded = read_model(tmp_path)
    before = contents(tmp_path)
    write_model(tmp_path, loaded)
    assert contents(tmp_path) == before
    assert_same_state(loaded, state)


@pytest.mark.parametrize("labels", [["a", "b"], [3, 1, 2], [0.5, 1.5], [True, False], list(np.array(["x", "y"])), []])
def test_labels_may_be_strings_or_numbers(tmp_path, labels):
    write_model(tmp_path, ModelState("K", {}, {}, labels=labels))
    assert read_model(tmp_path).labels == labels


def test_equal_models_are_equal_byte_for_byte(tmp_path):
    write_model(tmp_path / "a", make_state())
    write_model(tmp_path / "b", make_state())
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers() | st.tuples(st.booleans()), inner)
        | st.lists(inner).map(tuple)
    ),
    max_leaves=10,
)


@given(VALUES)
@settings(deadline=None, max_examples=100)
def test_values_survive_json_exactly(value):
    text = json.dumps(encode_value(value, "value"), allow_nan=False)
    assert repr(decode_value(json.loads(text))) == repr(value)


def test_numpy_scalars_become_plain_numbers():
    values = [np.float32(0.1), np.int64(3), np.bool_(True), np.str_("a"), np.float64(0.1)]
    encoded = encode_value(values, "value")
    assert encoded == [float(np.float32(0.1)), 3, True, "a", 0.1]
    assert [type(value) for value in encoded] == [float, int, bool, str, float]


NOT_SAVABLE = {
    "a function": (ModelState("K", {"kernel": len}, {}), "parameter 'kernel'"),
    "a function inside": (ModelState("K", {"init_params": {"f": [len]}}, {}), r"parameter 'init_params'.f\[0\]"),
    "an array": (ModelState("K", {"code": np.ones(2)}, {}), "parameter 'code'"),
    "a random state": (ModelState("K", {"random_state": np.random.default_rng()}, {}), "parameter 'random_state'"),
    "objects": (ModelState("K", {}, {"a": np.array([None])}), "array 'a'"),
    "strings": (ModelState("K", {}, {"a": np.array(["x"])}), "array 'a'"),
    "half precision": (ModelState("K", {}, {"a": np.ones(2, np.float16)}), "array 'a'"),
    "nan": (ModelState("K", {}, {"a": np.array([np.nan])}), "array 'a' has values that are not finite"),
    "inf in csr": (ModelState("K", {}, {"a": sp.csr_array([[np.inf]])}), "not finite"),
    "a path as name": (ModelState("K", {}, {"../a": np.ones(2)}), "file name"),
    "a label of none": (ModelState("K", {}, {}, labels=[None]), "labels has None"),
    "an attribute": (ModelState("K", {}, {}, attributes={"f": len}), "attribute 'f'"),
}


@pytest.mark.parametrize("case", NOT_SAVABLE)
def test_what_cannot_be_saved_is_named_and_nothing_is_written(tmp_path, case):
    state, message = NOT_SAVABLE[case]
    with pytest.raises(NotSavableError, match=message):
        write_model(tmp_path / "model", state)
    assert not (tmp_path / "model").exists()


def test_a_parameter_that_contains_itself_is_refused(tmp_path):
    loop = []
    loop.append(loop)
    with pytest.raises(NotSavableError, match="contains itself"):
        write_model(tmp_path, ModelState("K", {"a": loop}, {}))


def test_describe_reads_the_manifest_only(tmp_path):
    write_model(tmp_path, make_state())
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    for path in tmp_path.glob("*-*"):
        path.unlink()
    about = describe_model(tmp_path)
    assert about["kind"] == "OneVsAllClassifier"
    assert about["params"] == make_state().params
    assert about["arrays"] == {"coef": [3, 7], "intercept": [3]}
    assert (about["n_labels"], about["size_bytes"], about["format_version"]) == (3, size, 1)


def test_a_stored_model_of_format_version_1_is_read():
    state = read_model(VERSION_1, kinds={"OneVsAllClassifier"})
    assert state.kind == "OneVsAllClassifier"
    assert state.params == {"C": 1.0, "class_weight": {0: 2.0}, "prune": 0.01, "tol": math.inf, "window": (1, 2)}
    np.testing.assert_array_equal(state.arrays["coef"].toarray(), np.float32([[1, 0, -2], [0, 0.5, 0]]))
    np.testing.assert_array_equal(state.arrays["intercept"], [-1.0, 0.25])
    assert state.labels == ["cat", "Hündchen"]
    assert state.feature_names == ["fur", "bark", "purr"]
    assert state.certificate == {"primal": 0.30000000000000004, "dual": 0.25}
    np.testing.assert_array_equal(state.history["primal"], [2.0, 0.5])
    assert state.attributes == {"n_iter": [3, 4]}


# --- replacing a model ---


def test_a_second_save_leaves_only_its_own_files(tmp_path):
    write_model(tmp_path, make_state(0))
    write_model(tmp_path, make_state(1, labels=["a", "b", "c"]))
    write_model(tmp_path / "fresh", make_state(1, labels=["a", "b", "c"]))
    fresh = contents(tmp_path / "fresh")
    shutil.rmtree(tmp_path / "fresh")
    assert contents(tmp_path) == fresh


def test_files_of_others_beside_a_model_stay(tmp_path):
    write_model(tmp_path, make_state(0))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "mine-0123456789ab.json").write_text("[]")
    write_model(tmp_path, make_state(1))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "mine-0123456789ab.json").exists()


def test_a_folder_with_other_files_and_no_model_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.tex.*choose a new or an empty folder"):
        write_model(tmp_path, make_state())
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_model_json_of_another_program_is_refused(tmp_path):
    (tmp_path / "model.json").write_text('{"modelTopology": {}}')
    with pytest.raises(FileExistsError, match="not ours"):
        write_model(tmp_path, make_state())


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "model").write_text("")
    with pytest.raises(OSError, match="could not be written"):
        write_model(tmp_path / "model", make_state())


def test_two_writers_at_once_are_refused(tmp_path):
    write_model(tmp_path, make_state())
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError, match="another process"):
        write_model(tmp_path, make_state(1))
    os.close(descriptor)
    write_model(tmp_path, make_state(1))


@pytest.fixture
def before_each_step(monkeypatch):
    """A context in which a function gets the number of the step before each step of a write that touches the disk."""

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


def same(a, b):
    try:
        assert_same_state(a, b)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("has_previous", [True, False])
def test_a_failure_at_any_step_leaves_the_previous_model_and_no_rubbish(tmp_path, monkeypatch, has_previous):
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


def test_a_kill_at_any_step_leaves_the_previous_model_or_the_new_one(tmp_path, before_each_step):
    """A copy of the folder before each step is what a kill at that moment leaves."""
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


def test_a_kill_during_the_first_save_does_not_block_the_next(tmp_path, before_each_step):
    folder, snapshots = tmp_path / "model", tmp_path / "snapshots"
    with before_each_step(lambda step: shutil.copytree(folder, snapshots / str(step))):
        write_model(folder, make_state())
    for snapshot in list(snapshots.iterdir()):
        write_model(snapshot, make_state())
        assert contents(snapshot) == contents(folder)


def test_a_model_replaced_while_it_is_read_is_read_anew(tmp_path, monkeypatch):
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


def test_every_file_is_synced_before_it_gets_its_name(tmp_path, monkeypatch):
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
