"""`widemargin compare`: a table, JSON, a recommendation."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

from widemargin import OneVsAllClassifier, compare, load, write_svmlight, write_xmc
from widemargin.cli import train as train_command
from widemargin.cli.__main__ import make_app
from widemargin.cli.compare import notes
from widemargin.cli.options import make_estimator, options_of, parse_seconds
from widemargin.comparison.candidates import candidates_for
from widemargin.labels.taxonomy import Taxonomy


@pytest.fixture
def rows_file(tmp_path):
    y = np.arange(120) % 3
    X = np.eye(3)[y] + 0.2 * np.random.default_rng(0).normal(size=(120, 3))
    write_svmlight(tmp_path / "rows.svm", X, y)
    return tmp_path / "rows.svm"


def test_the_table_ends_with_a_recommendation_and_how_to_train_it(rows_file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # the recommendation on one line
    done = CliRunner().invoke(make_app(), ["compare", str(rows_file), "--folds", "2", "--methods", "one-vs-all; top-k"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "120 held-out rows" in lines[0]
    assert [line[:4] for line in lines[-3:-1]] == ["Use ", "Trai"]
    assert lines[-1].startswith(f"    widemargin train {rows_file} --method ")


@pytest.mark.parametrize("columns", ["40", "80", None])
@pytest.mark.slow
def test_the_table_is_never_cut(rows_file, monkeypatch, columns):
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    arguments = ["compare", str(rows_file), "--test", str(rows_file), "--methods", "one-vs-all; top-k; output-code"]
    text = CliRunner().invoke(make_app(), arguments).output
    assert "…" not in text
    assert " 0 MB" not in text
    table = text[: text.index("Use ")].splitlines()[1:]
    width = max(map(len, table))
    assert width <= (80 if columns is None else int(columns)) or columns is None
    headings = ["method", "values", "accuracy", "@3", "gap", "CPU s", "memory", "model", "µs per row"]
    assert all(any(name in line for line in table) for name in headings)
    n_tables = sum(line.startswith("method") for line in table)
    assert n_tables == {"40": 4, "80": 2, None: 1}[columns]
    for name in ("one-vs-all", "top-k, k = 1", "output-code"):
        assert sum(line.startswith(name) for line in table) == n_tables
    numbers = json.loads(CliRunner().invoke(make_app(), [*arguments, "--json"]).output)
    for method in numbers["methods"]:
        quality = method["quality"]["top_k_accuracy@1"]
        assert f"{quality['mean']:.4f} ± {quality['high'] - quality['mean']:.4f}" in text


def test_json_has_the_methods_and_their_costs(rows_file):
    options = ["--test", str(rows_file), "--methods", "one-vs-all", "--metric", "top_k_accuracy@2", "--json"]
    done = CliRunner().invoke(make_app(), ["compare", str(rows_file), *options])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["metric"] == "top_k_accuracy@2"
    assert found["recommended"] == "one-vs-all"
    assert found["methods"][0]["cpu_s"] > 0
    assert found["held_out_rows"] == 120


@pytest.mark.parametrize("metric", ["precision@1", "psp@1"])
def test_precision_and_psp_have_their_own_columns(tmp_path, monkeypatch, metric):
    monkeypatch.setenv("COLUMNS", "200")
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((90, 6)).astype(np.float32))
    write_xmc(tmp_path / "rows.txt", X, sp.csr_array((X.toarray() > 0.6).astype(np.int8)))
    options = ["--methods", "one-vs-all, squared hinge", "--metric", metric, "--test", str(tmp_path / "rows.txt")]
    done = CliRunner().invoke(make_app(), ["compare", str(tmp_path / "rows.txt"), *options])
    assert done.exit_code == 0, done.output
    heading = next(line for line in done.output.splitlines() if line.startswith("method"))
    columns = [word for word in heading.split() if "@" in word]
    assert sorted(columns) == ["P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"]
    assert columns[0] == {"precision@1": "P@1", "psp@1": "PSP@1"}[metric]


def test_methods_left_out_by_the_budget_are_reported():
    y = np.arange(60) % 3
    result = compare(np.eye(3)[y], y, methods=["one-vs-all"], cv=2)
    assert notes(result) == [result.recommendation]
    short = dataclasses.replace(result, about=result.about | {"folds_asked": 5, "share_of_rows": 0.25})
    assert notes(short)[1] == "The budget allowed 2 of 5 folds."
    assert notes(short)[2].startswith("Only 25% of the rows could be used within the budget")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_budgets_have_units(text, seconds):
    assert parse_seconds("--budget", text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "5d", "0m", "-3s"])
def test_wrong_budgets_are_refused(rows_file, text):
    done = CliRunner().invoke(make_app(), ["compare", str(rows_file), "--budget", text])
    assert done.exit_code != 0
    assert "--budget must be a time such as" in done.output


WORDS = {"food": ["bread", "cake", "oven"], "cars": ["engine", "tyre", "oven"], "sea": ["wave", "boat", "tyre"]}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The same texts as CSV, TSV, JSON lines and Parquet, with one label, lists of one label, and longer lists."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(3)
    rows = []
    for i, name in enumerate([*WORDS] * 16):
        text = " ".join(rng.choice(WORDS[name], size=3))
        rows.append({"body": text, "main": name, "one": [name], "tags": [name, "even"] if i % 2 == 0 else [name]})
    flat = [row | {"one": row["main"], "tags": "|".join(row["tags"])} for row in rows]
    for name, delimiter in (("t.csv", ","), ("t.tsv", "\t")):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(flat[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(flat)
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "t.parquet")
    return folder


def compared(*arguments):
    done = CliRunner().invoke(make_app(), ["compare", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet"])
def test_tables_of_text_are_compared_as_they_are_trained_on(tables, name):
    options = ("--text", "body", "--labels", "main", "--folds", 2, "--methods", "one-vs-all", "--ngrams", "1,2")
    found = compared(tables / name, *options)
    rows = [json.loads(line) for line in (tables / "t.jsonl").read_text().splitlines()]
    texts, y = [row["body"] for row in rows], np.array([row["main"] for row in rows])
    right = []
    for fold, (train, test) in enumerate(StratifiedKFold(2, shuffle=True, random_state=0).split(texts, y)):
        C = found["methods"][0]["parameters"]["C"][fold]
        model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), dtype=np.float32), OneVsAllClassifier(C=C))
        model.fit([texts[i] for i in train], y[train])
        right += (model.predict([texts[i] for i in test]) == y[test]).tolist()
    assert found["methods"][0]["quality"]["top_k_accuracy@1"]["mean"] == pytest.approx(np.mean(right))


@pytest.mark.slow
def test_tables_have_lists_of_labels_test_files_and_lists_of_one(tables, monkeypatch):
    text = ("--text", "body", "--folds", 2, "--methods", "one-vs-all")
    several = compared(tables / "t.csv", *text, "--labels", "tags", "--label-sep", "|", "--test", tables / "t.tsv")
    assert (several["metric"], several["held_out_rows"]) == ("precision@1", 48)
    one = compared(tables / "t.jsonl", *text, "--labels", "one")
    assert one["lists_of_one_label"]
    assert one["metric"] == "top_k_accuracy@1"
    arguments = ["compare", str(tables / "t.parquet"), *map(str, text[:-1]), "output-code; top-k", "--labels", "one"]
    done = CliRunner().invoke(make_app(), arguments)
    assert "Every list has exactly one label, so the labels were compared as classes." in done.stdout
    assert "output-code" in done.stdout


def test_text_options_that_do_not_fit_are_an_error(tables, rows_file):
    runner = CliRunner()
    assert "is a table" in runner.invoke(make_app(), ["compare", str(tables / "t.csv")]).stderr
    assert (
        "--labels is missing" in runner.invoke(make_app(), ["compare", str(tables / "t.csv"), "--text", "body"]).stderr
    )
    assert (
        "--ngrams requires --text" in runner.invoke(make_app(), ["compare", str(rows_file), "--ngrams", "1,2"]).stderr
    )


def test_a_file_of_lists_with_one_label_each_is_one_of_classes(tmp_path):
    y = np.arange(60) % 3
    X = sp.csr_array(np.eye(3)[y] + 0.2 * np.random.default_rng(0).normal(size=(60, 3)))
    write_xmc(tmp_path / "train.txt", X, sp.csr_array(np.eye(4, dtype=int)[y]))  # one column without rows
    write_xmc(tmp_path / "test.txt", X, sp.csr_array(np.eye(4, dtype=int)[np.where(y == 1, 3, y)]))
    methods = ("--methods", "one-vs-all; top-k, k = 1")
    found = compared(tmp_path / "train.txt", *methods, "--folds", 2)
    assert {method["method"] for method in found["methods"]} == {"one-vs-all", "top-k, k = 1"}
    assert (found["labels"], found["metric"]) == (3, "top_k_accuracy@1")
    with_test = compared(tmp_path / "train.txt", *methods, "--test", tmp_path / "test.txt")
    best = with_test["methods"][0]["quality"]["top_k_accuracy@1"]["mean"]
    assert best == pytest.approx(2 / 3)  # a label without training rows is never predicted correctly


TREE = Taxonomy.from_edges([("red", "warm"), ("orange", "warm"), ("blue", "cold")])
CANDIDATES = [
    candidate
    for normalize in (True, False)
    for kind, tree in (("multilabel", None), ("multiclass", TREE))
    for candidate in candidates_for(
        kind, 20, tree, has_inner_labels=True, normalize=normalize, random_state=3, n_jobs=2
    )
]


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda c: f"{c.name}-{c.estimator.get_params().get('normalize')}")
def test_the_options_for_train_make_the_estimator_that_was_compared(candidate, monkeypatch, tmp_path):
    """For each method, compare the estimator that `train` builds from its options, including defaults."""
    estimator = candidate.estimator.set_params(**{"C": 0.001} | ({"k": 5} if candidate.ks else {}))
    made = []
    monkeypatch.setattr(train_command, "run", lambda given: made.append((given.method, vars(given))))
    TREE.to_tsv(tmp_path / "tree.tsv")
    tree = ["--taxonomy", str(tmp_path / "tree.tsv")] if hasattr(estimator, "taxonomy") else []
    done = CliRunner().invoke(make_app(), ["train", "data.txt", *tree, *options_of(estimator), "--out", "model"])
    assert done.exit_code == 0, done.output
    again = make_estimator(*made[0])
    assert type(again) is type(estimator)
    expected = {name: value for name, value in estimator.get_params().items() if name not in ("taxonomy", "estimator")}
    found = again.get_params()
    assert {name: found[name] for name in expected} == expected


@pytest.mark.slow
def test_the_last_line_trains_the_recommended_model_in_a_shell(tmp_path, monkeypatch):
    folder = tmp_path / "it's here; now"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "model").mkdir()  # must not be replaced
    rng = np.random.default_rng(3)
    rows = [f"{' '.join(rng.choice(WORDS[name], size=3))};{name},x" for name in [*WORDS] * 16]
    Path("my $texts.csv").write_text("the body;main tag\n" + "\n".join(rows) + "\n")
    options = ["--text", "the body", "--labels", "main tag", "--delimiter", ";", "--label-sep", ",", "--ngrams", "1,2"]
    options += ["--no-lowercase", "--no-normalize", "--folds", "2"]
    done = CliRunner().invoke(make_app(), ["compare", "my $texts.csv", *options])
    assert done.exit_code == 0, done.output
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(done.output.splitlines()[-1], shell=True, check=True, env=os.environ | path, capture_output=True)
    model = load("model-2")
    assert (model[0].ngram_range, model[0].lowercase) == ((1, 2), False)
    assert sorted(model[-1].classes_) == [*sorted(WORDS), "x"]
    assert not model[-1].normalize
    assert json.loads(CliRunner().invoke(make_app(), ["compare", "my $texts.csv", *options, "--json"]).output)[
        "train"
    ].endswith("--out model-3")
