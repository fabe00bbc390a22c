"""`widemargin update`: files are read as for evaluate; the folder, the numbers and the errors are right."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import assert_refused, invoke
from widemargin import OneVsAllClassifier, load, write_xmc

OPTIONS = ["--C", "1", "--decision", "sign", "--rank-scale", "0"]


def write_table(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "body", "tags"], *rows])


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The current folder: a model of texts with ids, new texts, and ids of rows to remove."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = {"bread": ["flour", "oven", "dough", "yeast"], "net": ["packet", "router", "cable"]}

    def texts(first, n):
        for number in range(first, first + n):
            tags = [tag for tag in words if rng.random() < 0.6] or ["net"]
            yield [
                f"r{number}",
                " ".join(str(rng.choice(words[tag])) for tag in tags for _ in range(3)),
                "|".join(tags),
            ]

    write_table("train.csv", texts(0, 40))
    write_table("new.csv", [*texts(40, 4), ["r90", "hammer oven", "tool|bread"]])
    Path("gone.txt").write_text("r3\nr7\n")
    columns = ["--text", "body", "--labels", "tags", "--label-sep", "|"]
    invoke("train", "train.csv", *columns, "--id", "id", "--keep-rows", "--out", "m", *OPTIONS)
    return tmp_path


def numbers(*arguments):
    return json.loads(invoke("update", *arguments, "--json").stdout)


def test_texts_are_read_as_in_training(table):
    before = sorted(os.listdir("m"))
    planned = numbers("m", "new.csv", "--id", "id", "--remove", "gone.txt", "--dry-run")
    assert planned["dry_run"]
    assert sorted(os.listdir("m")) == before
    done = numbers("m", "new.csv", "--id", "id", "--remove", "gone.txt")
    assert (done["added"], done["removed"], done["new"], done["unknown_words"]) == (5, 2, 1, 1)
    assert [planned[name] for name in ("untouched", "kept", "solved", "new")] == [
        done[name] for name in ("untouched", "kept", "solved", "new")
    ]
    assert (done["rows"], done["labels"], done["version"], done["model"]) == (43, 3, 2, "m")
    assert done["gap_after"] < 1e-3
    assert 0 <= done["distance_bound"] < 0.1
    model = load("m")
    assert model[-1].classes_.tolist() == ["bread", "net", "tool"]
    # As trained on all rows with the words of the first training.
    lines = [line for name in ("train.csv", "new.csv") for line in csv.DictReader(Path(name).read_text().splitlines())]
    left = [line for line in lines if line["id"] not in ("r3", "r7")]
    X = model[0].transform([line["body"] for line in left])
    fresh = OneVsAllClassifier(normalize=True, prune=0.01).fit(X, [line["tags"].split("|") for line in left])
    np.testing.assert_allclose(model[-1].decision_function(X), fresh.decision_function(X), atol=0.02)


def test_new_words_can_become_features(table):
    done = numbers("m", "new.csv", "--id", "id", "--extend-vocabulary")
    assert done["unknown_words"] == 0
    assert "hammer" in load("m")[0].vocabulary_
    assert "tool" in invoke("predict", "m", "--text", "hammer", "--k", "1").stdout


def test_the_log_has_the_precision_on_test_rows(table):
    done = numbers("m", "new.csv", "--id", "id", "--test", "train.csv")
    measured = json.loads(invoke("evaluate", "m", "train.csv", "--k", "1,3", "--json").stdout)
    assert done["precision"] == pytest.approx(measured["precision"])
    assert list(done["precision"]) == ["1", "3"]  # there are three labels
    entry = json.loads(invoke("inspect", "m", "--json").stdout)["updates"][-1]
    assert entry["precision_at_1"] == done["precision"]["1"]
    assert "P@1" in invoke("inspect", "m").stdout


def test_people_get_a_table(table):
    shown = invoke("update", "m", "new.csv", "--id", "id", "--remove", "gone.txt", "--out", "m2")
    assert "5 added, 2 removed" in shown.stdout
    assert "1 label (33.3%): solved for the first time" in shown.stdout
    assert "1 label is new to the model: 'tool'" in shown.stderr
    assert load("m")[-1].version_ == 1
    assert load("m2")[-1].version_ == 2
    assert "2, after 1 update" in invoke("inspect", "m2").stdout


def test_removed_rows_can_be_purged(table):
    invoke("update", "m", "--remove", "gone.txt")
    assert len(load("m")[-1].rows_.removed) == 2
    invoke("update", "m", "--purge")
    rows = load("m")[-1].rows_
    assert (rows.n_stored, len(rows.removed)) == (38, 0)
    assert_refused(["update", "m", "--remove", "gone.txt"], "no training row has the id 'r3'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to update; give NEW_DATA"),
        (["--id", "id"], "--id gives ids of new rows"),
        (["new.csv"], "give an id for each new row"),
        (["new.csv", "--id", "number"], "number"),
        (["new.csv", "--id", "id", "--row-ids", "gone.txt"], "leave one out"),
        (["train.csv", "--id", "id"], "already has a training row with the id 'r0'"),
        (["--remove", "wrong.txt"], "no training row has the id 'nobody'"),
        (["--remove", "gone.txt", "--extend-vocabulary"], "extend_vocabulary requires"),
        (["new.csv", "--id", "id", "--out", "new.csv"], "new.csv"),
        (["missing.csv", "--id", "id"], "missing.csv"),
    ],
)
def test_mistakes_are_explained(table, arguments, message):
    Path("wrong.txt").write_text("nobody\n")
    assert_refused(["update", "m", *arguments], message)
    assert load("m")[-1].version_ == 1


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """The current folder: rows with lists of labels, as X and an indicator, and a model that does not keep them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    Y = sp.csr_array((rng.random((50, 3)) < 0.4).astype(np.int8))
    X = sp.csr_array(np.maximum(Y @ rng.random((3, 6)) + 0.3 * rng.normal(size=(50, 6)), 0.0).astype(np.float32))
    write_xmc("train.txt", X[:40], Y[:40])
    write_xmc("new.txt", X[40:], Y[40:])
    invoke("train", "train.txt", "--out", "m", *OPTIONS)
    return X, Y


def test_old_rows_can_be_given(lists):
    X, Y = lists
    Path("gone.txt").write_text("0\n12\n")
    done = numbers("m", "new.txt", "--rows", "train.txt", "--remove", "gone.txt")
    assert (done["added"], done["removed"], done["rows"]) == (10, 2, 48)
    left = [row for row in range(50) if row not in (0, 12)]
    fresh = OneVsAllClassifier(normalize=True, prune=0.01).fit(X[left], Y[left])
    np.testing.assert_allclose(load("m").decision_function(X), fresh.decision_function(X), atol=0.02)
    assert_refused(["update", "m", "--rows", "train.txt", "--remove", "gone.txt"], "pass the rows of its last")


def test_labels_that_need_old_rows_are_named_or_left(lists):
    assert_refused(["update", "m", "new.txt"], "must be solved on all rows")
    done = numbers("m", "new.txt", "--leave")
    assert done["left"] > 0
    assert load("m").n_samples_fit_ == 50
    assert_refused(["update", "m", "--remove", "new.txt"], "only if the model records its rows")


def test_numbers_of_another_format_are_the_labels_of_the_model(lists):
    """svmlight has numbers as names; one that the model does not have becomes a new number."""
    Path("new.svm").write_text("".join(f"{label} 1:0.5 4:0.25\n" for label in ("0,2", "5", "1")))
    done = numbers("m", "new.svm", "--rows", "train.txt", "--index-base", "1")
    assert (done["new"], done["labels"]) == (1, 4)
    assert load("m").classes_.tolist() == [0, 1, 2, 5]


def test_one_label_per_row(files, monkeypatch):
    train, test = files
    monkeypatch.chdir(train.parent)
    invoke("train", train, "--out", "m", "--keep-rows", *OPTIONS[:2], "--rank-scale", "0")
    Path("more.svm").write_text(test.read_text() + "9 1:0.7\n9 2:0.3 3:0.1\n")
    done = numbers("m", "more.svm")
    assert (done["added"], done["new"], done["labels"]) == (26, 1, 5)
    assert load("m").classes_.tolist() == [0, 1, 2, 3, 9]


def test_named_labels_are_matched_by_name(lists):
    """The new file has other columns than the first; a name without rows is no new label."""
    X, _ = lists
    Path("train_labels.txt").write_text("ash\nelm\nfir\n")
    Path("new_labels.txt").write_text("fir\nyew\nash\noak\n")
    labels = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], dtype=np.int8)
    write_xmc("new.txt", X[40:43], sp.csr_array(labels))
    invoke("train", "train.txt", "--out", "named", "--keep-rows", *OPTIONS)
    before = load("named").label_counts_
    done = numbers("named", "new.txt")
    assert (done["new"], done["labels"]) == (1, 4)
    model = load("named")
    assert model.classes_.tolist() == ["ash", "elm", "fir", "yew"]
    assert model.label_counts_.tolist() == [before[0] + 2, before[1], before[2] + 1, 1]


def test_another_folder_leaves_the_first_one_alone(table):
    before = sorted(os.listdir("m"))
    invoke("update", "m", "new.csv", "--id", "id", "--out", "m2")
    assert sorted(os.listdir("m")) == before
    numbers("m2", "--remove", "gone.txt")


def test_an_interrupt_leaves_the_model(table, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("widemargin.cli.update.update", interrupted)
    assert "interrupted" in invoke("update", "m", "--remove", "gone.txt", exit_code=130).stderr
    assert load("m")[-1].version_ == 1


@pytest.mark.parametrize("method", ["top-k", "output-code", "flat"])
def test_other_methods_are_updated_as_a_whole(files, method, monkeypatch):
    train, test = files
    monkeypatch.chdir(train.parent)
    invoke("train", train, "--method", method, "--C", "1", "--out", "m", "--keep-rows")
    done = numbers("m", test)
    assert (done["added"], done["rows"], done["version"]) == (24, 72, 2)
    assert sum(done[name] for name in ("untouched", "kept", "solved", "new", "left")) == 1


def test_an_update_can_be_stopped_and_resumed(lists):
    write = ["m", "new.txt", "--rows", "train.txt", "--shard-size", "1"]
    stopped = invoke("update", *write, "--time-limit", "0.000001", exit_code=3)
    assert "run it again" in stopped.stderr
    assert load("m").version_ == 1
    unfinished = json.loads(invoke("inspect", "m", "--json").stdout)["unfinished"]
    assert unfinished["kind"] == "update"
    assert unfinished["n_finished"] < 3
    assert "update command" in invoke("inspect", "m", env={"COLUMNS": "400"}).stdout
    assert numbers(*write)["version"] == 2
