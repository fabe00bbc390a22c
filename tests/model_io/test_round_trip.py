"""A model folder returns what was written, and equal states give byte-identical models."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import ModelState, describe_model, read_model, write_model
from widemargin.model_io.read import decode_value
from widemargin.model_io.write import encode_value

VERSION_1 = Path(__file__).parents[1] / "data_files" / "model-v1"


@pytest.mark.parametrize("verify", [True, False])
def test_everything_comes_back(tmp_path, verify, make_state, assert_same_state):
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
def test_arrays_come_back_with_dtype_and_shape(tmp_path, case, assert_same_array):
    write_model(tmp_path, ModelState("K", {}, {"a": ARRAYS[case]}))
    assert_same_array(read_model(tmp_path).arrays["a"], ARRAYS[case])


def test_int64_indices_and_unsorted_rows_stay_as_they_are(tmp_path, assert_same_array):
    csr = sp.csr_array(np.ones((2, 3)))
    csr.indices, csr.indptr = csr.indices[::-1].astype(np.int64), csr.indptr.astype(np.int64)
    write_model(tmp_path, ModelState("K", {}, {"a": csr}))
    assert_same_array(read_model(tmp_path).arrays["a"], csr)


def test_big_endian_arrays_are_stored_little_endian(tmp_path):
    write_model(tmp_path, ModelState("K", {}, {"a": np.array([1, 2], dtype=">i4")}))
    np.testing.assert_array_equal(read_model(tmp_path).arrays["a"], np.array([1, 2], dtype="<i4"))


def test_arrays_are_memory_mapped_and_read_only(tmp_path, make_state):
    write_model(tmp_path, make_state())
    arrays = read_model(tmp_path).arrays
    for part in (arrays["intercept"], arrays["coef"].data, arrays["coef"].indices, arrays["coef"].indptr):
        assert isinstance(part, np.memmap)
        assert not part.flags.writeable


def test_a_loaded_model_can_be_saved_over_itself(tmp_path, make_state, assert_same_state, contents):
    state = make_state()
    write_model(tmp_path, state)
    loaded = read_model(tmp_path)
    before = contents(tmp_path)
    write_model(tmp_path, loaded)
    assert contents(tmp_path) == before
    assert_same_state(loaded, state)


def test_mapped_files_stay_when_a_model_is_saved_into_its_own_folder(tmp_path):
    weights = np.arange(12.0).reshape(4, 3)
    write_model(
        tmp_path, ModelState("OneVsAllClassifier", {}, {"coef": sp.csr_array(weights), "intercept": weights[0]})
    )
    before = {entry.name: entry.inode() for entry in os.scandir(tmp_path) if entry.name.endswith(".npy")}
    state = read_model(tmp_path)
    write_model(tmp_path, replace(state, params={"C": 2.0}))
    assert {entry.name: entry.inode() for entry in os.scandir(tmp_path) if entry.name.endswith(".npy")} == before
    assert read_model(tmp_path).params == {"C": 2.0}


def test_parts_and_views_of_mapped_files_are_written(tmp_path):
    weights = np.arange(12.0).reshape(4, 3)
    write_model(tmp_path, ModelState("OneVsAllClassifier", {}, {"coef": weights, "scale": weights[0]}))
    state = read_model(tmp_path)
    coef, scale = state.arrays["coef"], state.arrays["scale"]
    for changed in (coef[1:], coef[::-1], coef.reshape(3, 4), coef.view(np.int64), np.asfortranarray(coef)):
        write_model(tmp_path, replace(state, arrays={"coef": changed, "scale": coef[0]}))
        found = read_model(tmp_path).arrays
        np.testing.assert_array_equal(found["coef"], changed)
        np.testing.assert_array_equal(found["scale"], scale)


def test_a_damaged_file_is_not_given_a_new_hash(tmp_path):
    write_model(tmp_path, ModelState("OneVsAllClassifier", {}, {"coef": np.arange(100.0)}))
    (file,) = tmp_path.glob("coef-*.npy")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    write_model(tmp_path, read_model(tmp_path, verify=False))
    with pytest.raises(ModelFormatError, match="SHA-256"):
        read_model(tmp_path)


@pytest.mark.parametrize("labels", [["a", "b"], [3, 1, 2], [0.5, 1.5], [True, False], list(np.array(["x", "y"])), []])
def test_labels_may_be_strings_or_numbers(tmp_path, labels):
    write_model(tmp_path, ModelState("K", {}, {}, labels=labels))
    assert read_model(tmp_path).labels == labels


def test_equal_models_are_equal_byte_for_byte(tmp_path, make_state, contents):
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
@examples(100)
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
    "nan": (ModelState("K", {}, {"a": np.array([np.nan])}), "array 'a' contains NaN or infinity"),
    "inf in csr": (ModelState("K", {}, {"a": sp.csr_array([[np.inf]])}), "NaN or infinity"),
    "a path as name": (ModelState("K", {}, {"../a": np.ones(2)}), "file name"),
    "a label of none": (
        ModelState("K", {}, {}, labels=[None]),
        "labels: names must be strings or finite numbers; got None",
    ),
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


def test_describe_reads_the_manifest_only(tmp_path, make_state):
    write_model(tmp_path, make_state())
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    for path in tmp_path.glob("*-*"):
        path.unlink()
    about = describe_model(tmp_path)
    assert about["kind"] == "OneVsAllClassifier"
    assert about["params"] == make_state().params
    assert about["arrays"] == {"coef": [3, 7], "intercept": [3]}
    assert (about["n_labels"], about["size_bytes"], about["format_version"]) == (3, size, 4)


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
