"""`widemargin compress`, and what the other commands make of a compressed model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import assert_refused, invoke
from widemargin import datasets, load, write_xmc
from widemargin.model_io import folder_size

OPTIONS = ["--C", "1", "--decision", "sign", "--rank-scale", "0", "--no-normalize"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: rows for training and test, and a model that keeps its rows."""
    monkeypatch.chdir(tmp_path)
    X, Y = datasets.make_zipf_multilabel(260, 200, 30, nnz_per_row=12, random_state=0)
    write_xmc("train.txt", X[:200], Y[:200])
    write_xmc("test.txt", X[200:], Y[200:])
    invoke("train", "train.txt", "--keep-rows", "--out", "m", *OPTIONS)
    return tmp_path


def numbers(*arguments):
    return json.loads(invoke("compress", *arguments, "--json").stdout)


def test_a_size_is_met_and_the_numbers_are_right(folder):
    found = numbers("m", "--max-size", "25kB", "--test", "test.txt", "--out", "small")
    assert found["bytes"] == folder_size("small") <= 25_000
    small, full = load("small"), load("m")
    assert found["compression"] == small.compression_ | {"exact_bounds": False}
    assert found["gap_after"] == small.certificate_.relative_gap >= found["gap_before"]
    assert found["certificate"]["dual"] == full.certificate_.dual
    for when, model in (("before", "m"), ("after", "small")):
        measured = json.loads(invoke("evaluate", model, "test.txt", "--json").stdout)
        assert measured["precision"] == pytest.approx(found[f"precision_{when}"])
    shown = invoke("compress", "m", "--max-gap", "5%", "--test", "test.txt", "--out", "other").stdout
    for word in ("compression", "certified gap", "P@1 / 3 / 5 before", "P@1 / 3 / 5 after"):
        assert word in shown
    assert load("other").certificate_.relative_gap <= 0.05
    assert set(Path("m").glob("rows-*"))
    assert not set(Path("small").glob("row*"))


def test_rows_may_be_given(folder):
    invoke("train", "train.txt", "--out", "bare", *OPTIONS)
    assert_refused(["compress", "bare", "--out", "small"], "--keep-rows")
    invoke("compress", "bare", "--bits", "8", "--rows", "train.txt", "--out", "given")
    invoke("compress", "m", "--bits", "8", "--out", "kept")
    assert load("given").certificate_ == load("kept").certificate_


def test_a_model_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [[f"r{i}", f"{'bread oven' if i % 2 else 'wheel'} w{i % 5}", "food" if i % 2 else "cars"] for i in range(40)]
    with open("train.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "body", "tags"], *rows])
    columns = ["--text", "body", "--labels", "tags", "--label-sep", "|"]
    invoke("train", "train.csv", *columns, "--out", "m", "--C", "1", "--keep-rows")
    kept = numbers("m", "--out", "small", "--test", "train.csv")
    assert kept["precision_after"] == kept["precision_before"]
    invoke("compress", "m", "--rows", "train.csv", "--out", "again")
    assert load("again")[-1].certificate_ == load("small")[-1].certificate_
    assert "food" in invoke("predict", "small", "--text", "bread").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--max-size", "50"], "--max-size must be a size such as 50MB"),
        (["--max-size", "0MB"], "--max-size must be a size such as 50MB"),
        (["--max-gap", "much"], "--max-gap must be a share such as 1%"),
        (["--max-size", "1kB"], "without any weight"),
        (["--max-size", "16kB", "--max-gap", "0.001%"], "within 0.016 MB"),
    ],
    ids=str,
)
def test_mistakes_are_explained(folder, arguments, problem):
    assert_refused(["compress", "m", *arguments, "--out", "small"], problem)
    assert not Path("small").exists()


def test_the_model_itself_is_not_overwritten(folder):
    before = Path("m/model.json").read_bytes()
    assert_refused(["compress", "m", "--out", "m"], "m")
    assert Path("m/model.json").read_bytes() == before


def test_inspect_update_and_labels(folder):
    invoke("compress", "m", "--max-size", "25kB", "--keep-exact-bounds", "--out", "small")
    found = json.loads(invoke("inspect", "small", "--json").stdout)
    assert found["compression"]["bits"] in (8, 16)
    assert found["compression"]["exact_bounds"]
    shown = invoke("inspect", "small").stdout
    assert "before," in shown
    assert "exact bounds" in shown
    label = load("small").classes_[0]
    weights = json.loads(invoke("inspect", "small", "--label", str(label), "--json").stdout)["weights"]
    wanted = load("small").coef_.tocsr()[[0]].toarray()[0]
    assert weights[0]["weight"] == wanted[np.argmax(np.abs(wanted))]
    assert_refused(["update", "small", "test.txt"], "compress it again")
    assert_refused(["labels", "small", "drop", str(label)], "compress it again")
    assert_refused(["compress", "small", "--out", "smaller"], "compressed already")


def test_predict_and_evaluate_report_what_is_proven(folder):
    invoke("compress", "m", "--bits", "16", "--keep-exact-bounds", "--out", "small")
    X = sp.csr_array(load("m").rows_.read()[0])
    top = load("small").predict_topk(X, 3)
    result = invoke("predict", "small", "train.txt", "--k", "3", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    wanted = np.where(top.proven_order, "order", np.where(top.proven_set, "set", "no"))
    assert [line["proven"] for line in lines] == wanted.tolist()
    assert f"{int(top.proven_set.sum())} of 200 lists" in result.stderr
    table = list(csv.reader(invoke("predict", "small", "train.txt", "--k", "3", "--format", "csv").stdout.splitlines()))
    assert table[0][:3] == ["proven", "label_1", "score_1"]
    assert [row[0] for row in table[1:]] == wanted.tolist()
    tabs = invoke("predict", "small", "train.txt", "--k", "3").stdout.splitlines()
    assert [line.split("\t")[0] for line in tabs] == wanted.tolist()
    measured = json.loads(invoke("evaluate", "small", "train.txt", "--k", "1,3", "--json").stdout)
    assert measured["proven"] == {"k": 3, "set": top.proven_set.mean(), "order": top.proven_order.mean()}
    assert "top 5 proven as a set" in invoke("evaluate", "small", "train.txt").stdout
    assert_refused(["predict", "small", "train.txt", "--processes", "1"], "proven lists")
    assert "proven" not in invoke("predict", "m", "train.txt", "--json").stdout
