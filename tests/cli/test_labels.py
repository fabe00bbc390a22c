"""`widemargin labels`: names in, changed folder out; mistakes are explained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import assert_refused, invoke
from widemargin import load, write_svmlight, write_xmc

NAMES = ["ash", "elm", "fir"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: `named` keeps its rows, with ids; `plain` has numbers as labels, and no rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.random((40, 3)) < 0.4
    X = sp.csr_array(np.maximum(truth @ rng.random((3, 6)) + 0.3 * rng.normal(size=(40, 6)), 0.0))
    write_xmc("train.txt", X, sp.csr_array(truth.astype(np.int8)))
    Path("names.txt").write_text("\n".join(NAMES) + "\n")
    Path("ids.txt").write_text("".join(f"r{number}\n" for number in range(40)))
    options = ["--C", "1", "--decision", "sign"]
    invoke("train", "train.txt", "--out", "plain", *options)
    invoke(
        "train", "train.txt", "--labels", "names.txt", "--out", "named", "--keep-rows", "--row-ids", "ids.txt", *options
    )
    return tmp_path


def test_labels_are_renamed_merged_dropped_and_added(folder):
    assert "1 renamed" in invoke("labels", "named", "rename", "ash", "Fraxinus").stdout
    assert load("named").classes_.tolist() == ["Fraxinus", "elm", "fir"]
    Path("rows.txt").write_text("r1\nr5\n")
    done = json.loads(invoke("labels", "named", "add", "yew", "--rows-with", "rows.txt", "--json").stdout)
    assert (done["added"], done["labels"], done["version"]) == (1, 4, 3)
    assert load("named").label_counts_[3] == 2
    done = json.loads(invoke("labels", "named", "merge", "elm", "yew", "--into", "elm", "--json").stdout)
    assert (done["merged"], done["labels"]) == (2, 3)
    assert done["gap_after"] < 1e-3
    invoke("labels", "named", "drop", "fir", "--out", "other")
    assert load("named").classes_.tolist() == ["Fraxinus", "elm", "fir"]
    assert load("other").classes_.tolist() == ["Fraxinus", "elm"]
    shown = invoke("inspect", "other").stdout
    for what in ("1 renamed", "1 added", "2 merged", "1 dropped", "5, after 4 updates"):
        assert what in shown


def test_numbers_are_names_of_numbered_labels(folder):
    invoke("labels", "plain", "drop", "1")
    assert load("plain").classes_.tolist() == [0, 2]
    assert_refused(["labels", "plain", "rename", "0", "oak"], "of another type")


def test_rows_can_be_given_to_a_model_that_does_not_record_them(folder):
    Path("rows.txt").write_text("1\n5\n")
    add = ["labels", "plain", "add", "7", "--rows-with", "rows.txt"]
    assert_refused(add, "which the model does not record")
    done = json.loads(invoke(*add, "--rows", "train.txt", "--json").stdout)
    assert (done["added"], done["labels"]) == (1, 4)
    assert load("plain").label_counts_[3] == 2
    write_xmc("other.txt", sp.csr_array(np.ones((40, 6))), sp.csr_array(np.ones((40, 4), dtype=np.int8)))
    assert_refused([*add[:3], "8", *add[4:], "--rows", "other.txt"], "with other labels than")


def test_many_changes_come_from_a_file(folder):
    Path("changes.tsv").write_text("rename\tash\telm\nrename\telm\tash\n\nadd\tyew\tr2\tr3\n")
    done = json.loads(invoke("labels", "named", "--changes", "changes.tsv", "--json").stdout)
    assert (done["renamed"], done["added"]) == (2, 1)
    assert load("named").classes_.tolist() == ["elm", "ash", "fir", "yew"]
    Path("changes.tsv").write_text("merge\telm\tfir\ttree\ndrop\tyew\n")
    invoke("labels", "named", "--changes", "changes.tsv")
    assert load("named").classes_.tolist() == ["tree", "ash"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to change; use one of: rename OLD NEW"),
        (["rename", "ash"], "use: rename OLD NEW"),
        (["merge", "ash", "elm"], "--into is missing; use: merge LABEL LABEL"),
        (["add", "yew"], "--rows-with is missing"),
        (["drop", "ash", "--into", "x"], "--into applies to merge, not to drop"),
        (["drop", "ahs"], "did you mean 'ash'"),
        (["rename", "ash", "elm"], "two labels would have the name 'elm'"),
        (["drop", "elm", "elm"], "elm is given twice"),
        (["add", "yew", "--rows-with", "wrong.txt"], "no training row has the id 'nobody'"),
        (["--changes", "wrong.tsv"], "wrong.tsv, line 2"),
        (["drop", "ash", "--changes", "wrong.tsv"], "--changes cannot be combined"),
        (["drop", "ash", "--out", "wrong.txt"], "wrong.txt"),
    ],
)
def test_mistakes_are_explained(folder, arguments, message):
    Path("wrong.txt").write_text("nobody\n")
    Path("wrong.tsv").write_text("drop\tash\nrename\telm\n")
    assert_refused(["labels", "named", *arguments], message)
    assert load("named").classes_.tolist() == NAMES


def test_merging_without_rows_names_the_remedy(folder):
    assert_refused(["labels", "plain", "merge", "0", "1", "--into", "1"], "keep_rows")


def test_classes_of_other_methods_are_only_renamed(folder):
    rng = np.random.default_rng(1)
    write_svmlight("one.svm", sp.csr_array(rng.random((20, 4))), np.arange(20) % 3)
    invoke("train", "one.svm", "--method", "top-k", "--C", "1", "--out", "classes")
    invoke("labels", "classes", "rename", "2", "7")
    assert load("classes").classes_.tolist() == [0, 1, 7]
    assert_refused(["labels", "classes", "drop", "7"], "one problem for all classes; only rename is; train")
