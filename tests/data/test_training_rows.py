"""The rows of a model: numbers, ids, removed rows, and stores that are missing or have changed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.data.store import open_store, write_store
from widemargin.data.training_rows import Segment, TrainingRows, check_row_ids, write_segment
from widemargin.exceptions import DataFormatError, WidemarginError

rng = np.random.default_rng(0)
X = rng.normal(size=(6, 3)).astype(np.float32)
Y = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1]], dtype=np.int8))
IDS = ["a", "b", "c", "d", "e", "f"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def rows_in(folder, matrix=X, labels=Y, **parts):
    return TrainingRows((write_segment(folder, matrix),), labels, folder=str(folder), **parts)


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_one_segment_is_mapped_as_it_is(tmp_path, make):
    found, labels, weights = rows_in(tmp_path, make(X)).read(verify=True)
    values = found.data if sp.issparse(found) else found
    while values is not None and not isinstance(values, np.memmap):
        values = values.base
    assert isinstance(values, np.memmap)
    np.testing.assert_array_equal(dense(found), X)
    assert labels is not None
    assert weights is None


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_segments_are_read_in_order_and_without_removed_rows(tmp_path, make):
    rows = rows_in(tmp_path, make(X[:2]), Y[:2], row_ids=IDS[:2], weights=np.array([1.0, 2.0]))
    rows = rows.with_appended(write_segment(tmp_path, make(X[2:5])), Y[2:5], ids=IDS[2:5])
    write_store(tmp_path / "outside", make(X[5:]))
    outside = Segment.of_store(tmp_path / "outside")
    rows = rows.with_appended(outside, Y[5:], ids=IDS[5:], weights=[3.0])
    assert (rows.n_stored, rows.n_rows) == (6, 6)
    np.testing.assert_array_equal(dense(rows.read()[0]), X)
    np.testing.assert_array_equal(rows.weights, [1, 2, 1, 1, 1, 3])
    for removed in ([0], [1, 4], [0, 1], [2, 3, 4], [5], [0, 2, 5]):
        fewer = rows.with_removed(removed)
        live = np.setdiff1d(np.arange(6), removed)
        found, labels, weights = fewer.read()
        np.testing.assert_array_equal(fewer.live_numbers(), live)
        np.testing.assert_array_equal(dense(found), X[live])
        np.testing.assert_array_equal(labels.toarray(), Y.toarray()[live])
        np.testing.assert_array_equal(weights, rows.weights[live])
        np.testing.assert_array_equal(fewer.Y.toarray()[removed], 0)
        assert (fewer.n_stored, fewer.n_rows) == (6, len(live))
        assert type(found) is type(rows.read()[0])


def test_removals_add_up_and_leave_the_earlier_rows_alone(tmp_path):
    rows = rows_in(tmp_path)
    fewer = rows.with_removed([4]).with_removed([1, 4])
    np.testing.assert_array_equal(fewer.removed, [1, 4])
    assert rows.n_rows == 6
    np.testing.assert_array_equal(rows.Y.toarray(), Y.toarray())


def test_the_same_rows_are_kept_once_and_a_damaged_copy_is_replaced(tmp_path):
    first = write_segment(tmp_path, X)
    inode = (tmp_path / first.path / "X.npy").stat().st_ino
    assert write_segment(tmp_path, X) == first
    assert (tmp_path / first.path / "X.npy").stat().st_ino == inode
    assert first.path == f"rows-{first.sha256[:12]}"
    (tmp_path / first.path / "X.npy").write_bytes(b"damaged")
    assert write_segment(tmp_path, X) == first
    np.testing.assert_array_equal(open_store(tmp_path / first.path, verify=True).X, X)
    assert os.listdir(tmp_path) == [first.path]


def test_a_failed_write_of_rows_leaves_nothing(tmp_path):
    with pytest.raises(DataFormatError, match="finite"):
        write_segment(tmp_path, np.array([[np.nan]]))
    assert os.listdir(tmp_path) == []


def test_rows_are_found_by_their_ids(tmp_path):
    rows = rows_in(tmp_path, row_ids=IDS)
    np.testing.assert_array_equal(rows.numbers_of(["f", "a"]), [5, 0])
    assert rows.numbers_of([]).dtype == np.int64
    with pytest.raises(WidemarginError, match=r"no training row has the id 'g'; use the ids .* such as 'a', 'b', 'c'"):
        rows.numbers_of(["a", "g"])
    with pytest.raises(WidemarginError, match="the row 'a' is given twice; give each row once"):
        rows.numbers_of(["a", "b", "a"])
    with pytest.raises(WidemarginError, match="the row 'b' was removed already; leave it out"):
        rows.with_removed([1]).numbers_of(["a", "b"])


def test_rows_without_ids_are_found_by_their_numbers(tmp_path):
    rows = rows_in(tmp_path)
    np.testing.assert_array_equal(rows.numbers_of(["5", 0]), [5, 0])
    for wrong in ("6", "-1", "x", "1.0", "", "٣", "9" * 30):
        with pytest.raises(WidemarginError, match=r"no training row has the number .* between 0 and 5"):
            rows.numbers_of([wrong])
    with pytest.raises(WidemarginError, match="given twice"):
        rows.numbers_of(["1", "01"])
    with pytest.raises(WidemarginError, match="removed already"):
        rows.with_removed([1]).numbers_of(["1"])


def test_an_id_of_a_removed_row_can_be_given_to_a_new_one(tmp_path):
    rows, more = rows_in(tmp_path, row_ids=IDS), write_segment(tmp_path, X[:1] + 1)
    with pytest.raises(WidemarginError, match="already has a training row with the id 'b'; remove that row first"):
        rows.with_appended(more, Y[:1], ids=["b"])
    replaced = rows.with_removed([1]).with_appended(more, Y[:1], ids=["b"])
    np.testing.assert_array_equal(replaced.numbers_of(["b"]), [6])
    with pytest.raises(WidemarginError, match="'b' was removed already"):
        replaced.with_removed([6]).numbers_of(["b"])
    assert replaced.purged().row_ids == ["a", "c", "d", "e", "f", "b"]


def test_appended_rows_must_fit(tmp_path):
    rows, named = rows_in(tmp_path), rows_in(tmp_path, row_ids=IDS)
    more = write_segment(tmp_path, X[:2] + 1)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 2\); got \(1, 2\)"):
        rows.with_appended(more, Y[:1])
    with pytest.raises(WidemarginError, match="have no ids, but the new rows have; leave the ids out"):
        rows.with_appended(more, Y[:2], ids=["x", "y"])
    with pytest.raises(WidemarginError, match="have ids, but the new rows have none; give an id"):
        named.with_appended(more, Y[:2])
    with pytest.raises(ValueError, match="'x' is repeated"):
        named.with_appended(more, Y[:2], ids=["x", "x"])
    with pytest.raises(ValueError, match="2 float64 numbers"):
        rows.with_appended(more, Y[:2], weights=[1.0])
    with pytest.raises(ValueError, match="not negative"):
        rows.with_appended(more, Y[:2], weights=[1.0, -1.0])
    for other, message in (
        (X[:2].astype(np.float64), "type float64, but those of .* have float32; write the rows with the type float32"),
        (X[:2, :2], "number of features 2, but those of .* have 3"),
        (sp.csr_array(X[:2]), "format sparse, but those of .* have dense"),
    ):
        with pytest.raises(DataFormatError, match=message):
            rows.with_appended(write_segment(tmp_path, other), Y[:2])


def test_sparse_rows_may_gain_features_in_which_earlier_rows_are_zero(tmp_path):
    wide = sp.csr_array(np.arange(10, dtype=np.float32).reshape(2, 5))
    rows = rows_in(tmp_path, sp.csr_array(X)).with_appended(write_segment(tmp_path, wide), Y[:2])
    expected = np.vstack([np.hstack([X, np.zeros((len(X), 2), np.float32)]), wide.toarray()])
    np.testing.assert_array_equal(rows.read()[0].toarray(), expected)
    purged = rows.with_removed([0, len(X)]).purged()
    np.testing.assert_array_equal(purged.read()[0].toarray(), np.delete(expected, [0, len(X)], axis=0))
    with pytest.raises(DataFormatError, match=r"number of features 3, but those of .* have 5"):
        rows.with_appended(write_segment(tmp_path, sp.csr_array(X[:1])), Y[:1])
    with pytest.raises(DataFormatError, match=r"number of features 5, but those of .* have 3"):
        rows_in(tmp_path).with_appended(write_segment(tmp_path, wide.toarray()), Y[:2])


def test_rows_can_be_appended_while_an_outside_store_is_away(tmp_path):
    write_store(tmp_path / "outside", X)
    rows = TrainingRows((Segment.of_store(tmp_path / "outside"),), Y, folder=str(tmp_path))
    shutil.move(tmp_path / "outside", tmp_path / "away")
    more = rows.with_appended(write_segment(tmp_path, X[:1, :2]), Y[:1])
    with pytest.raises(DataFormatError, match=r"outside: the store .* is missing; move it back to this path, or train"):
        more.read()
    shutil.move(tmp_path / "away", tmp_path / "outside")
    with pytest.raises(DataFormatError, match="number of features 2"):
        more.read()


def test_a_store_that_changed_is_refused(tmp_path):
    write_store(tmp_path / "outside", X)
    segment = Segment.of_store(tmp_path / "outside")
    rows = TrainingRows((segment,), Y)
    write_store(tmp_path / "outside", X + 1, overwrite=True)
    with pytest.raises(DataFormatError, match=r"outside: .* has changed since training; restore it from a copy"):
        rows.read()
    write_store(tmp_path / "outside", X, overwrite=True)
    rows.read(verify=True)
    content = bytearray((tmp_path / "outside" / "X.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "outside" / "X.npy").write_bytes(content)
    with pytest.raises(DataFormatError, match="has changed since it was written"):
        rows.read(verify=True)


def test_a_wrong_number_of_rows_is_refused(tmp_path):
    segment = write_segment(tmp_path, X)
    rows = TrainingRows((replace(segment, n_rows=5),), Y[:5], folder=str(tmp_path))
    with pytest.raises(DataFormatError, match="the store has 6 rows, but the model recorded 5"):
        rows.read()


def test_purging_rewrites_kept_stores_without_the_removed_rows(tmp_path):
    write_store(tmp_path / "outside", X[:2])
    rows = TrainingRows(
        (Segment.of_store(tmp_path / "outside"),), Y[:2], row_ids=IDS[:2], weights=np.array([1.0, 2.0]),
        folder=str(tmp_path),
    )  # fmt: skip
    rows = rows.with_appended(write_segment(tmp_path, X[2:4]), Y[2:4], IDS[2:4], [3.0, 4.0])
    rows = rows.with_appended(write_segment(tmp_path, X[4:]), Y[4:], IDS[4:], [5.0, 6.0])
    assert rows.purged() is rows
    clean = rows.with_removed([3, 5]).purged()
    assert [segment.n_rows for segment in clean.segments] == [2, 2]
    assert (clean.n_stored, clean.n_rows, clean.row_ids) == (4, 4, ["a", "b", "c", "e"])
    found, labels, weights = clean.read(verify=True)
    np.testing.assert_array_equal(found, X[[0, 1, 2, 4]])
    np.testing.assert_array_equal(labels.toarray(), Y.toarray()[[0, 1, 2, 4]])
    np.testing.assert_array_equal(weights, [1, 2, 3, 5])
    assert [s.path for s in rows.with_removed([2, 3, 4, 5]).purged().segments] == [str(tmp_path / "outside")]
    with pytest.raises(WidemarginError, match=r"removed rows are in .*outside, which is outside the model folder and"):
        rows.with_removed([0]).purged()


def test_at_least_one_row_must_stay(tmp_path):
    rows = rows_in(tmp_path)
    with pytest.raises(WidemarginError, match="all training rows would be removed"):
        rows.with_removed(range(6))
    with pytest.raises(ValueError, match="between 0 and 5"):
        rows.with_removed([6])


def test_kept_rows_need_a_folder(tmp_path):
    rows = replace(rows_in(tmp_path), folder=None)
    with pytest.raises(WidemarginError, match="load the model from its folder"):
        rows.read()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"], "1 row ids, but 2 rows; give one id per row"),
        (["a", ""], "the id of row 1 is empty"),
        (["a", "a"], "'a' is repeated; give each row its own id"),
        (["a", 1], "list of strings"),
        ("ab", "list of strings"),
    ],
)
def test_ids_must_be_distinct_strings(ids, message):
    with pytest.raises(ValueError, match=message):
        check_row_ids(ids, 2)


HASH = "0123456789ab" + "0" * 52
WRONG_SEGMENTS = {
    "relative": (("train", HASH, 1), "must be absolute"),
    "parent": (("../rows-0123456789ab", HASH, 1), "must be absolute"),
    "inside": (("rows-0123456789ab/x", HASH, 1), "must be absolute"),
    "null": (("/a\0b", HASH, 1), "must be absolute"),
    "path a number": ((3, HASH, 1), "must be absolute|expected string"),
    "other hash": (("rows-ffffffffffff", HASH, 1), "another hash than its name"),
    "short hash": (("/train", "0123", 1), "64 hexadecimal digits"),
    "hash a number": (("/train", 5, 1), "64 hexadecimal digits"),
    "negative": (("/train", HASH, -1), "must be an integer"),
    "truth": (("/train", HASH, True), "must be an integer"),
    "huge": (("/train", HASH, 2**63), "must be an integer"),
}


@pytest.mark.parametrize("name", WRONG_SEGMENTS)
def test_a_segment_is_checked(name):
    values, message = WRONG_SEGMENTS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        Segment(*values)


WRONG_ROWS = {
    "no segments": ({"segments": ()}, "at least one store"),
    "dense labels": ({"Y": np.ones((6, 2), dtype=np.int8)}, "CSR array of int8 with 6 rows"),
    "wide labels": ({"Y": Y.astype(np.int64)}, "CSR array of int8 with 6 rows"),
    "few labels": ({"Y": Y[:5]}, "CSR array of int8 with 6 rows"),
    "label of 2": ({"Y": sp.csr_array(2 * Y.toarray())}, "stored as 1"),
    "removed of int32": ({"removed": np.array([1], dtype=np.int32)}, "vector of int64"),
    "removed a list": ({"removed": [3]}, "vector of int64"),
    "removed outside": ({"removed": np.array([6])}, "below 6"),
    "removed negative": ({"removed": np.array([-1])}, "below 6"),
    "removed twice": ({"removed": np.array([3, 3])}, "must ascend"),
    "removed with labels": ({"removed": np.array([0])}, "a removed row has labels"),
    "few ids": ({"row_ids": IDS[:5]}, "5 row ids, but 6 rows"),
    "weights of float32": ({"weights": np.ones(6, dtype=np.float32)}, "6 float64 numbers"),
    "few weights": ({"weights": np.ones(5)}, "6 float64 numbers"),
    "infinite weight": ({"weights": np.full(6, np.inf)}, "finite and not negative"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_the_parts_must_fit_each_other(name):
    changed, message = WRONG_ROWS[name]
    parts = {"segments": (Segment("/train", HASH, 6),), "Y": Y} | changed
    with pytest.raises(ValueError, match=message):
        TrainingRows(**parts)


def test_a_store_elsewhere_is_recorded_by_its_absolute_path(tmp_path, monkeypatch):
    write_store(tmp_path / "train", X)
    monkeypatch.chdir(tmp_path)
    segment = Segment.of_store("train")
    assert segment.path == str(tmp_path / "train")
    assert not segment.is_kept
    assert json.loads((tmp_path / "train" / "store.json").read_text())["X"]["shape"] == [6, 3]
