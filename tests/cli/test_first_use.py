"""What a new user tries first: predictions from standard input or one text, kept columns, thresholds and formats,
held-out rows, rows without a label, other encodings, empty files, names to show."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from command_line import invoke
from widemargin import load, write_svmlight, write_xmc
from widemargin.cli.__main__ import make_app
from widemargin.cli.options import COMMANDS, METHODS, OPTIONS_OF

WORDS = {"food": "bread cake cream", "cars": "engine gearbox tyre", "sea": "wave boat sail"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts with one label (`main`) or a list of labels (`tags`), and models of both, the second one calibrated."""
    path, rng = tmp_path_factory.mktemp("first"), np.random.default_rng(0)
    rows = []
    for i, name in enumerate([*WORDS] * 15):
        text = " ".join(rng.choice(WORDS[name].split(), size=3))
        rows.append({"id": f"row {i}", "text": text, "main": name, "tags": f"{name}|odd" if i % 2 else name})
    with open(path / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    text = ("train", path / "rows.csv", "--text", "text", "--labels")
    invoke(*text, "main", "-o", path / "one")
    invoke(*text, "tags", "--label-sep", "|", "--calibrate", "sigmoid", "-o", path / "lists")
    return path


def lines(*arguments, **options):
    return invoke("predict", *arguments, **options).stdout.splitlines()


def test_one_text_is_predicted_without_a_file(folder):
    (line,) = lines(folder / "one", "--text", "fresh bread and cake", "--k", 1)
    assert line.split("\t")[0] == "food"
    message = invoke("predict", folder / "one", exit_code=1).stderr
    assert "DATA is missing; name a file, use - for standard input, or pass a single text with --text" in message


def test_standard_input_has_one_text_per_line_or_a_table(folder):
    texts = "bread cake\nan engine\n\n"
    found = lines(folder / "one", "-", "--k", 1, input=texts)
    assert [line.split("\t")[0] for line in found[:2]] == ["food", "cars"]
    assert len(found) == 3  # an empty text is a text
    table = (folder / "rows.csv").read_text()
    expected = lines(folder / "one", folder / "rows.csv")
    assert lines(folder / "one", "-", "--text", "text", input=table) == expected


def test_standard_input_has_rows_of_numbers(tmp_path):
    write_svmlight(tmp_path / "rows.svm", np.eye(6)[np.arange(30) % 6], np.arange(30) % 6)
    invoke("train", tmp_path / "rows.svm", "-o", tmp_path / "m")
    text = (tmp_path / "rows.svm").read_text()
    assert lines(tmp_path / "m", "-", input=text) == lines(tmp_path / "m", tmp_path / "rows.svm")


def test_columns_are_kept_in_every_format(folder, tmp_path):
    predict = ("predict", folder / "lists", folder / "rows.csv", "--k", 2, "--keep", "id,main")
    expected = [json.loads(line) for line in invoke(*predict, "--json").stdout.splitlines()]
    assert expected[3]["id"] == "row 3"
    assert set(expected[0]) == {"id", "main", "labels", "scores", "probabilities"}
    cells = [line.split("\t") for line in invoke(*predict).stdout.splitlines()]
    assert [row[:2] for row in cells] == [[row["id"], row["main"]] for row in expected]
    assert [row[2::2] for row in cells] == [row["labels"] for row in expected]
    for name in ("p.csv", "p.jsonl", "p.parquet"):
        invoke(*predict, "-o", tmp_path / name)
    with open(tmp_path / "p.csv", newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == ["id", "main", "label_1", "probability_1", "label_2", "probability_2"]
    assert [[row["label_1"], row["label_2"]] for row in table] == [row["labels"] for row in expected]
    written = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert written == expected == pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert invoke(*predict, "--format", "csv").stdout.encode() == (tmp_path / "p.csv").read_bytes()


def test_wrong_outputs_are_refused(folder, tmp_path):
    predict = ("predict", folder / "one", folder / "rows.csv")
    assert "set its name with --out" in invoke(*predict, "--format", "parquet", exit_code=1).stderr
    assert "cannot be written as csv" in invoke(*predict, "--explain", "--format", "csv", exit_code=1).stderr
    assert "column 'nothing' is not in" in invoke(*predict, "--keep", "nothing", exit_code=1).stderr
    assert "--keep must be distinct column names" in invoke(*predict, "--keep", "id,", exit_code=1).stderr
    message = invoke("predict", folder / "one", "--text", "bread", "--keep", "id", exit_code=1).stderr
    assert "--keep copies table columns, but the input is not a table" in message


def test_a_threshold_leaves_out_labels(folder):
    everything = [json.loads(line) for line in lines(folder / "lists", folder / "rows.csv", "--json")]
    above = [json.loads(line) for line in lines(folder / "lists", folder / "rows.csv", "--json", "--threshold", 0.5)]
    for row, kept in zip(everything, above, strict=True):
        places = [place for place, value in enumerate(row["probabilities"]) if value >= 0.5]
        assert kept["labels"] == [row["labels"][place] for place in places]
    scores = [line.split("\t") for line in lines(folder / "one", folder / "rows.csv", "--threshold", 0)]
    assert {len(row) // 2 for row in scores} <= {0, 1, 2}
    assert all(float(value) >= 0 for row in scores for value in row[1::2])


def test_empty_input_gives_empty_output(folder, tmp_path):
    (tmp_path / "header.csv").write_text("id,text\n")
    (tmp_path / "nothing.jsonl").write_text("")
    for name in ("header.csv", "nothing.jsonl"):
        assert lines(folder / "one", tmp_path / name) == []
    assert lines(folder / "one", "-", input="") == []
    assert lines(folder / "one", tmp_path / "header.csv", "--format", "csv", "--k", 1) == ["label_1,score_1"]
    invoke("predict", folder / "one", tmp_path / "header.csv", "-o", tmp_path / "p.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet").num_rows == 0
    write_xmc(tmp_path / "train.txt", np.eye(3), np.eye(3, dtype=int))
    (tmp_path / "empty.txt").write_text("0 3 3\n")
    (tmp_path / "zero.txt").write_text("")
    invoke("train", tmp_path / "train.txt", "-o", tmp_path / "m")
    assert lines(tmp_path / "m", tmp_path / "empty.txt") == lines(tmp_path / "m", tmp_path / "zero.txt") == []


def test_names_are_shown_for_labels(folder, tmp_path):
    (tmp_path / "names.tsv").write_text("food\tThings to eat\ncars\tThings to drive\n", encoding="utf-8")
    names = ("--names", tmp_path / "names.tsv")
    (line,) = lines(folder / "one", "--text", "bread cake", "--k", 3, *names)
    assert line.split("\t")[0] == "Things to eat"
    assert "sea" in line.split("\t")  # has no other name
    assert "Things to eat: largest weights" in invoke("inspect", folder / "one", "--label", "food", *names).stdout
    (tmp_path / "bad.tsv").write_text("food\n")
    message = invoke("predict", folder / "one", "--text", "x", "--names", tmp_path / "bad.tsv", exit_code=1).stderr
    assert "bad.tsv, line 1: the line has no tab; write label, tab and name" in message


@pytest.mark.parametrize("text", [False, True], ids=["numbers", "text"])
def test_rows_are_held_out_and_measured(folder, tmp_path, text):
    if text:
        data = ("train", folder / "rows.csv", "--text", "text", "--labels", "main")
    else:
        rng = np.random.default_rng(0)
        write_svmlight(
            tmp_path / "rows.svm", np.eye(3)[np.arange(45) % 3] + 0.1 * rng.random((45, 3)), np.arange(45) % 3
        )
        data = ("train", tmp_path / "rows.svm")
    options = ("--test-size", 0.2, "-o", tmp_path / "m")
    summary = json.loads(invoke(*data, *options, "--json").stdout)
    assert (summary["rows"], summary["test"]["rows"]) == (36, 9)
    assert load(tmp_path / "m")[-1].n_samples_fit_ == 36 if text else load(tmp_path / "m").n_samples_fit_ == 36
    assert 0.5 < summary["test"]["accuracy"] <= 1
    assert json.loads(invoke(*data, *options, "--json").stdout)["test"] == summary["test"]
    other = json.loads(invoke(*data, *options, "--seed", 1, "--json").stdout)
    assert other["certificate"] != summary["certificate"]
    assert "Evaluated on 9 held-out rows" in invoke(*data, *options).stdout
    assert "no rows for training" in invoke(*data, "--test-size", 0, "-o", tmp_path / "n", exit_code=1).stderr
    assert not (tmp_path / "n").exists()


def test_the_vectoriser_does_not_see_the_rows_held_out(tmp_path):
    words = [f"word{i}" for i in range(40)]
    rows = "\n".join(f"{word} common,{'ab'[i % 2]}" for i, word in enumerate(words))
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}\n")
    train = ("train", tmp_path / "t.csv", "--text", "text", "--labels", "label", "--test-size", 0.25)
    invoke(*train, "-o", tmp_path / "m")
    assert len(load(tmp_path / "m")[0].vocabulary_) == 31  # 30 words of the training rows, and the common one


def test_rows_without_a_label_can_be_skipped(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\nbread,food\nengine,cars\nnothing,\n, \ncake,food\n")
    train = ("train", tmp_path / "t.csv", "--text", "text", "--labels", "label", "-o", tmp_path / "m", "--json")
    assert "--skip-unlabelled" in invoke(*train, exit_code=1).stderr
    result = invoke(*train, "--skip-unlabelled")
    assert json.loads(result.stdout)["rows"] == 3
    assert "2 of 5 rows have no label and are skipped" in result.stderr
    evaluate = ("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json")
    assert "each row must have a label" in invoke(*evaluate, exit_code=1).stderr
    assert json.loads(invoke(*evaluate, "--skip-unlabelled").stdout)["rows"] == 3
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n{"text": "bread", "label": ["x"]}\n{"text": "c", "label": []}\n')
    lists = ("train", tmp_path / "t.jsonl", "--text", "text", "--labels", "label", "-o", tmp_path / "m", "--json")
    options = ("--analyzer", "char", "--skip-unlabelled")
    assert json.loads(invoke(*lists, *options).stdout)["rows"] == 1
    write_xmc(tmp_path / "rows.txt", np.eye(3), sp.csr_array(np.array([[1, 0], [0, 0], [0, 1]])))
    numbers = ("train", tmp_path / "rows.txt", "-o", tmp_path / "m", "--json")
    assert json.loads(invoke(*numbers).stdout)["rows"] == 3
    assert json.loads(invoke(*numbers, "--skip-unlabelled").stdout)["rows"] == 2


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_read_and_kept_with_the_model(tmp_path, encoding):
    table = "text;label\ncafé crème;été\nglace neige;hiver\ncafé;été\nneige;hiver\n"
    (tmp_path / "t.csv").write_bytes(table.encode(encoding))
    train = (
        "train",
        tmp_path / "t.csv",
        "--text",
        "text",
        "--labels",
        "label",
        "--delimiter",
        ";",
        "-o",
        tmp_path / "m",
    )
    assert "set the encoding (--encoding on the command line)" in invoke(*train, exit_code=1).stderr
    invoke(*train, "--encoding", encoding)
    model = load(tmp_path / "m")
    assert sorted(model[-1].classes_) == ["hiver", "été"]
    assert model.source_["form"] == {"csv": {"delimiter": ";", "quotes": True, "encoding": encoding}}
    expected = [row.split(";")[1] for row in table.splitlines()[1:]]
    assert [line.split("\t")[0] for line in lines(tmp_path / "m", tmp_path / "t.csv")] == expected
    assert json.loads(invoke("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json").stdout)["accuracy"] == 1.0
    # A file of another format is UTF-8, as usual; an option overrides what the model knows.
    (tmp_path / "t.tsv").write_text(table.replace(";", "\t"), encoding="utf-8")
    assert [line.split("\t")[0] for line in lines(tmp_path / "m", tmp_path / "t.tsv")] == expected
    (tmp_path / "other.csv").write_text(table, encoding="utf-8")
    assert len(lines(tmp_path / "m", tmp_path / "other.csv", "--encoding", "utf-8")) == 4
    assert "unknown encoding 'utf-9'" in invoke(*train, "--encoding", "utf-9", exit_code=1).stderr


def test_path_takes_text(folder, tmp_path):
    data = (
        folder / "rows.csv",
        "--test",
        folder / "rows.csv",
        "--text",
        "text",
        "--labels",
        "tags",
        "--label-sep",
        "|",
    )
    found = json.loads(invoke("path", *data, "--C", "0.1,10", "-o", tmp_path / "best", "--json").stdout)
    model = load(tmp_path / "best")
    assert found["best"]["C"] == model[-1].C
    assert model.source_["labels"] == "tags"
    evaluated = json.loads(invoke("evaluate", tmp_path / "best", folder / "rows.csv", "--json", "--k", 1).stdout)
    assert evaluated["precision"]["1"] == pytest.approx(found["best"]["precision@1"])
    assert "is a table" in invoke("path", folder / "rows.csv", "--test", folder / "rows.csv", exit_code=1).stderr


def test_the_help_of_train_groups_options_by_method():
    text = invoke("train", "--help").stdout
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert [heading.partition(" (")[0] for heading in headings[:7]] == [
        "Arguments",
        "Options",
        "One-vs-all",
        "Decisions",
        "Top-k",
        "Output codes",
        "Trees",
    ]
    trees = text[text.index("\nTrees:") : text.index("\nKernels")]
    assert "--taxonomy" in trees
    assert "--code" not in trees


def test_commands_do_not_advertise_what_they_lack():
    assert ".csv" not in invoke("convert", "--help").stdout
    assert "labels" not in next(option.help for option in OPTIONS_OF["predict"].values() if option.name == "data")


@pytest.mark.parametrize("method", METHODS)
def test_the_table_knows_the_parameters_of_every_method(method):
    """An option is for a method exactly if the estimator has its parameter."""
    import widemargin

    name, _ = METHODS[method]
    inside = {"estimator": widemargin.OneVsAllClassifier()} if method == "output-code" else {}
    parameters = getattr(widemargin, name)(**inside).get_params()
    for option in OPTIONS_OF["train"].values():
        name = option.parameter_of(method)
        if name is not None and not name.startswith("text__") and option.name != "binary_C":
            assert (name in parameters) == (method in (option.methods or METHODS)), option.name


def test_options_complete_in_a_shell():
    """An option offers the choices of the table."""
    environment = {
        "_WIDEMARGIN_COMPLETE": "complete_bash",
        "COMP_WORDS": "widemargin train --method ",
        "COMP_CWORD": "3",
    }
    done = CliRunner().invoke(make_app(), [], prog_name="widemargin", env=environment)
    assert done.stdout.split() == list(METHODS)


def test_every_command_has_help_and_an_example():
    for name, command in COMMANDS.items():
        assert command.example.startswith(f"widemargin {name}")
        assert all(option.help.endswith(".") for option in OPTIONS_OF[name].values())
