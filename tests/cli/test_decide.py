"""`train --decision`, `predict --decide`, and where a decision rule is shown."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import assert_refused, invoke
from widemargin import load, save, write_xmc

LIMITS = ("--min-labels", 1, "--max-labels", 3, "--precision-target", 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, and a model `m` with a rule."""
    folder, rng = tmp_path_factory.mktemp("decide"), np.random.default_rng(0)
    X = rng.normal(size=(900, 10)).astype(np.float32)
    Y = sp.csr_array((X @ rng.normal(size=(10, 5)) + rng.normal(size=(900, 5)) > 2.0).astype(np.int8))
    write_xmc(folder / "train.txt", X[:600], Y[:600])
    write_xmc(folder / "new.txt", X[600:], Y[600:])
    words = ("--C", 0.1, "--no-normalize", "--decision", "threshold", "--objective", "macro-f1", *LIMITS)
    invoke("train", folder / "train.txt", "--out", folder / "m", *words)
    model = load(folder / "m")
    assert (model.decision, model.objective, model.min_labels, model.max_labels) == ("threshold", "macro-f1", 1, 3)
    assert model.precision_target == 0.5
    save(model.fit_decision(X[600:], Y[600:]), folder / "m")
    np.save(folder / "new.npy", X[600:])
    return folder


def test_decide_writes_the_labels_of_predict_and_marks_those_of_accept(folder):
    model, X = load(folder / "m"), np.load(folder / "new.npy")
    predicted, accepted = model.predict_sets(X), model.accept(X)
    lines = invoke("predict", folder / "m", folder / "new.txt", "--decide", "--json").stdout.splitlines()
    assert len(lines) == len(predicted)
    n_accepted = 0
    for row, line in enumerate(map(json.loads, lines)):
        assert set(line["labels"]) == predicted[row]
        assert line["scores"] == sorted(line["scores"], reverse=True)
        assert line["accepted"] == [bool(accepted[row, label]) for label in line["labels"]]
        n_accepted += sum(line["accepted"])
    assert 0 < n_accepted < sum(map(len, predicted))
    text = invoke("predict", folder / "m", folder / "new.txt", "--decide").stdout
    cells = [line.split("\t") for line in text.split("\n")]
    marks = [["accept" if mark else "check" for mark in json.loads(line)["accepted"]] for line in lines]
    assert [row[2::3] for row in cells[:-1]] == marks


def test_a_csv_file_has_as_many_columns_as_labels_are_allowed(folder, tmp_path):
    invoke("predict", folder / "m", folder / "new.txt", "--decide", "--out", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == [f"{name}_{place}" for place in (1, 2, 3) for name in ("label", "score", "decision")]
    assert len(rows) == 300


def test_a_parquet_file_has_a_list_of_marks(folder, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    invoke("predict", folder / "m", folder / "new.txt", "--decide", "--out", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert all(len(row["labels"]) == len(row["accepted"]) for row in table)


def test_inspect_evaluate_and_serve_use_the_rule(folder):
    model = load(folder / "m")
    facts = json.loads(invoke("inspect", folder / "m", "--json").stdout)
    assert facts["decision"] == model.decision_.describe()
    assert "decision rule" in invoke("inspect", folder / "m").stdout
    measured = json.loads(invoke("evaluate", folder / "m", folder / "new.txt", "--json").stdout)
    assert measured["macro_f1"] == pytest.approx(model.decision_.value, abs=1e-12)
    testclient = pytest.importorskip("fastapi.testclient")
    from widemargin.serve import make_app

    with testclient.TestClient(make_app(model)) as client:
        assert client.get("/model").json()["decision"] == model.decision_.describe()


def test_a_report_shows_the_rule(folder, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    invoke("report", folder / "m", folder / "new.txt", "--out", tmp_path / "report.html")
    assert "Decision rule" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_options_without_a_meaning_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, model = folder / "train.txt", folder / "m"
    assert_refused(["train", data, "--decision", "beam"], "--decision beam is not available for --method one-vs-all")
    assert_refused(["train", data, "--method", "flat", "--decision", "sign"], "is not available for --method flat")
    assert_refused(["train", data, "--method", "top-k", "--min-labels", 1], "--min-labels does not apply")
    assert_refused(["train", data, "--min-labels", 3, "--max-labels", 2], "min_labels=3 is larger than max_labels=2")
    for words in (["--k", 3], ["--explain"]):
        assert_refused(["predict", model, data, "--decide", *words], f"{words[0]} cannot be combined with --decide")
    assert_refused(["predict", model, data, "--decide", "--processes", 2], "decisions can only be computed in this")
    invoke("train", data, "--out", "plain")
    assert_refused(["predict", "plain", data, "--decide", "--format", "csv"], "no fixed number of columns for CSV")
    assert_refused(
        ["train", data, "--decision", "sign", "--min-labels", 1], "--min-labels does not apply to --decision"
    )
    invoke("train", data, "--out", "untuned", "--decision", "threshold", "--no-tune-decision")
    assert_refused(["predict", "untuned", data, "--decide"], "tune_decision=True")
