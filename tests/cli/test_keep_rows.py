"""`train --keep-rows`, `--row-ids` and `--id`, and what `inspect` shows of rows and updates."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import assert_refused, invoke
from widemargin import load, save, write_xmc
from widemargin.data.training_rows import write_segment
from widemargin.model_io import folder_size


@pytest.fixture
def ids(folder_with_lists):
    Path("ids.txt").write_text("".join(f"doc {i}\n" for i in range(48)))
    return folder_with_lists


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of 12 texts with ids; two texts have no label."""
    monkeypatch.chdir(tmp_path)
    lines = [f"id{i}\t{'red' if i % 2 else 'green'} fruit {i}\t{'' if i in (3, 6) else 'ab'[i % 2]}" for i in range(12)]
    Path("texts.tsv").write_text("\n".join(["id\ttext\tlabel", *lines]) + "\n")


TEXTS = ["train", "texts.tsv", "--text", "text", "--labels", "label", "--C", 1]


def test_kept_rows_and_ids(ids, data):
    invoke("train", "train.svm", "--out", "model", "--keep-rows", "--row-ids", "ids.txt", "--C", 1, "--prune", 0)
    rows = load("model").rows_
    np.testing.assert_array_equal(rows.read(verify=True)[0].toarray(), data[0][:48].toarray())
    np.testing.assert_array_equal(rows.numbers_of(["doc 7"]), [7])
    summary = json.loads(invoke("inspect", "model", "--json").stdout)
    (store,) = summary["training_rows"].pop("stores")
    assert store == {"path": os.path.abspath(f"model/{rows.segments[0].path}"), "kept": True, "rows": 48, "found": True}
    assert summary["training_rows"] == {"live": 48, "removed_on_disk": 0, "ids": True}
    assert (summary["version"], summary["updates"], summary["bytes"]) == (1, [], folder_size("model"))
    shown = " ".join(invoke("inspect", "model").stdout.split())
    assert "1, no updates" in shown
    assert "48 in this folder" in shown


def test_ids_follow_the_rows_that_are_held_out(ids, data):
    train = ("train", "train.svm", "--keep-rows", "--row-ids", "ids.txt", "--C", 1, "--test-size", 0.25)
    invoke(*train, "--out", "model")
    rows = load("model").rows_
    numbers = [int(name.removeprefix("doc ")) for name in rows.row_ids]
    assert len(numbers) == 36
    np.testing.assert_array_equal(rows.read()[0].toarray(), data[0][:48].toarray()[numbers])


def test_ids_follow_the_rows_that_are_skipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Y = sp.csr_array(np.array([[1, 0], [0, 0], [1, 1], [0, 1]] * 3))
    write_xmc("lists.txt", sp.csr_array(np.random.default_rng(0).random((12, 3))), Y)
    Path("ids.txt").write_text("".join(f"{i}\n" for i in range(12)))
    how = ("--C", 1, "--decision", "sign", "--rank-scale", 0)
    invoke("train", "lists.txt", "-o", "m", "--skip-unlabelled", "--keep-rows", "--row-ids", "ids.txt", *how)
    assert load("m").rows_.row_ids == [str(i) for i in range(12) if i % 4 != 1]


def test_a_store_is_found_again_unless_rows_are_left_out(folder_with_lists):
    invoke("convert", "train.svm", "store")
    invoke("train", "store", "--out", "model", "--C", 1)
    shown = " ".join(invoke("inspect", "model").stdout.split())
    assert "48 in" in shown
    assert "(missing)" not in shown
    shutil.move("store", "away")
    assert "(missing)" in " ".join(invoke("inspect", "model").stdout.split())
    shutil.move("away", "store")
    invoke("train", "store", "--out", "part", "--C", 1, "--test-size", 0.25)
    assert not hasattr(load("part"), "rows_")
    assert "training_rows" not in json.loads(invoke("inspect", "part", "--json").stdout)


@pytest.mark.parametrize("held_out", [(), ("--test-size", 0.2)], ids=["all", "held out"])
def test_ids_of_a_table_are_in_a_column(table, held_out):
    invoke(*TEXTS, "--out", "model", "--keep-rows", "--id", "id", "--skip-unlabelled", *held_out)
    model = load("model")
    rows = model[-1].rows_
    left = [f"id{i}" for i in range(12) if i not in (3, 6)]
    assert rows.row_ids == left if not held_out else set(rows.row_ids) < set(left)
    texts = [f"{'red' if int(name[2:]) % 2 else 'green'} fruit {name[2:]}" for name in rows.row_ids]
    np.testing.assert_array_equal(rows.read()[0].toarray(), model[0].transform(texts).toarray())


def test_ids_and_groups_of_a_table(table):
    lines = Path("texts.tsv").read_text().splitlines()
    more = [f"{line}\t{'group' if i == 0 else i // 2}" for i, line in enumerate(lines)]
    Path("texts.tsv").write_text("\n".join(more) + "\n")
    how = ("--id", "id", "--group", "group", "--skip-unlabelled", "--test-size", 0.3)
    invoke("train", "texts.tsv", "--text", "text", "--labels", "label", "--out", "model", "--keep-rows", *how)
    numbers = [int(name.removeprefix("id")) for name in load("model")[-1].rows_.row_ids]
    groups = {(number + 1) // 2 for number in numbers}
    assert numbers == [i for i in range(12) if (i + 1) // 2 in groups and i not in (3, 6)]


def test_ids_of_a_table_in_a_file(table):
    Path("ids.txt").write_text("".join(f"doc {i}\n" for i in range(12)))
    labels = Path("texts.tsv").read_text().replace("\t\n", "\ta\n")
    Path("texts.tsv").write_text(labels)
    invoke(*TEXTS, "--out", "model", "--keep-rows", "--row-ids", "ids.txt")
    assert load("model")[-1].rows_.row_ids[11] == "doc 11"


def test_wrong_ids_are_errors(ids):
    Path("few.txt").write_text("a\nb\n")
    Path("twice.txt").write_text("a\n" * 48)
    train = ["train", "train.svm", "--C", "1", "--keep-rows"]
    assert_refused([*train, "--row-ids", "few.txt"], "the file has 2 ids, but the data have 48 rows; write one id per")
    assert_refused([*train, "--row-ids", "twice.txt"], "the row id 'a' is repeated")
    assert_refused([*train, "--row-ids", "none.txt"], "none.txt")
    assert_refused([*train[:-1], "--row-ids", "ids.txt"], "pass keep_rows=True (--keep-rows)")
    assert invoke(*train, "--id", "id", "--out", "new", exit_code=1).output.count("--text") == 1


def test_an_id_column_and_a_file_of_ids_exclude_each_other(table):
    Path("ids.txt").write_text("")
    assert_refused([*TEXTS, "--id", "id", "--row-ids", "ids.txt"], "--id and --row-ids both give")


def test_the_output_must_not_be_the_file_of_ids(ids):
    assert "ids" in invoke("train", "train.svm", "--row-ids", "ids.txt", "--out", "ids.txt", exit_code=1).output
    assert Path("ids.txt").read_text().startswith("doc 0")


def test_inspect_shows_the_updates(ids):
    invoke("train", "train.svm", "--out", "model", "--keep-rows", "--C", 1)
    model = load("model")
    more = write_segment("model", model.rows_.read()[0][:2] * 2)
    model.rows_ = model.rows_.with_appended(more, model.rows_.Y[:2]).with_removed([0, 1, 48])
    first = {"date": "2026-01-02", "added": 2, "removed": 0, "labels_solved": 3, "cpu_s": 0.25, "gap_after": 1e-4}
    model.updates_ = [first, {"date": "2026-02-03", "added": 0, "removed": 3, "labels_solved": 1234}]
    save(model, "model")
    summary = json.loads(invoke("inspect", "model", "--json").stdout)
    assert summary["updates"] == model.updates_
    assert summary["training_rows"]["removed_on_disk"] == 3
    shown = invoke("inspect", "model").stdout
    plain = " ".join(shown.split())
    assert "3, after 2 updates" in plain
    assert "47 in this folder; 3 removed rows are still on disk" in plain
    table = shown[shown.index("Updates") :].splitlines()
    assert table[1].split() == ["version", "date", "added", "removed", "re-solved", "CPU", "s", "gap", "after"]
    assert table[3].split() == ["2", "2026-01-02", "2", "0", "3", "0.2", "1.00e-04"]
    assert table[4].split() == ["3", "2026-02-03", "0", "3", "1,234"]
    model.updates_ = model.updates_ * 10
    save(model, "model")
    shown = invoke("inspect", "model").stdout
    assert "The latest 10 of 20 updates" in shown
    assert "21 " in shown
