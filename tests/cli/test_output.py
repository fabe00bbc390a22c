"""Where output goes: pipes that close, terminals without UTF-8, files, links and pipes as targets, interruptions."""

from __future__ import annotations

import ast
import gzip
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import invoke
from widemargin import OneVsAllClassifier, load, save, write_xmc
from widemargin.data.names import write_names
from widemargin.exceptions import ModelFormatError

N_ROWS = 4000  # more lines than a pipe holds
NAMES = ["été", "hiver"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, `m`, and its data, `data.txt`, with a label name that is not ASCII."""
    folder = tmp_path_factory.mktemp("output")
    X = np.random.default_rng(0).random((N_ROWS, 3))
    write_xmc(folder / "data.txt", X, sp.csr_array((X[:, :2] > 0.5).astype(np.int8)))
    write_names(folder / "data_labels.txt", NAMES)
    invoke("train", folder / "data.txt", "--out", folder / "m")
    return folder


def command(*arguments):
    return [sys.executable, "-m", "widemargin.cli", *(str(argument) for argument in arguments)]


def ascii_terminal():
    return os.environ | {"PYTHONIOENCODING": "ascii"}


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_command_quietly(folder):
    process = subprocess.Popen(
        command("predict", folder / "m", folder / "data.txt"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.slow
def test_a_terminal_without_utf8_gets_escapes(folder, tmp_path):
    arguments = ["convert", folder / "data.txt", tmp_path / "é.npz"]
    done = subprocess.run(command(*arguments), env=ascii_terminal(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"\xe9.npz" in done.stdout


@pytest.mark.parametrize("arguments", [["predict", "--json", "--k", "1"], ["evaluate", "--json"]], ids=lambda a: a[0])
@pytest.mark.slow
def test_json_is_json_on_a_terminal_without_utf8(folder, arguments):
    full = command(arguments[0], folder / "m", folder / "data.txt", *arguments[1:])
    done = subprocess.run(full, env=ascii_terminal(), capture_output=True, check=True)
    assert done.stdout.isascii()
    if arguments[0] == "predict":
        assert {json.loads(line)["labels"][0] for line in done.stdout.splitlines()} == set(NAMES)


def expected_lines(folder):
    return invoke("predict", folder / "m", folder / "data.txt").stdout


def test_a_pipe_as_target_is_written_to(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(
        target=lambda: received.append((tmp_path / "pipe").read_text(encoding="utf-8")), daemon=True
    )
    reader.start()
    invoke("predict", folder / "m", folder / "data.txt", "--out", tmp_path / "pipe")
    reader.join(timeout=600)  # stops a process that would run forever
    assert received == [expected_lines(folder)]
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.slow
def test_standard_output_can_be_named(folder):
    done = subprocess.run(
        command("predict", folder / "m", folder / "data.txt", "--out", "/dev/stdout"), capture_output=True, check=True
    )
    assert done.stdout.decode() == expected_lines(folder)


def test_a_link_stays_a_link(folder, tmp_path):
    (tmp_path / "real.tsv").write_text("old")
    (tmp_path / "link.tsv").symlink_to("real.tsv")
    invoke("predict", folder / "m", folder / "data.txt", "--out", tmp_path / "link.tsv")
    assert (tmp_path / "link.tsv").is_symlink()
    assert (tmp_path / "real.tsv").read_text(encoding="utf-8") == expected_lines(folder)


def test_predictions_are_gzipped_when_the_name_says_so(folder, tmp_path):
    invoke("predict", folder / "m", folder / "data.txt", "--out", tmp_path / "p.tsv.gz")
    assert gzip.decompress((tmp_path / "p.tsv.gz").read_bytes()).decode() == expected_lines(folder)


@pytest.mark.parametrize(
    ("target", "problem"),
    [("a_folder", "this is a folder"), ("missing/p.tsv", "the folder {}/missing does not exist; create it first")],
)
def test_impossible_targets_are_refused_before_predicting(folder, tmp_path, monkeypatch, target, problem):
    (tmp_path / "a_folder").mkdir()
    monkeypatch.setattr("widemargin.cli.inputs.open_model", None)
    output = invoke("predict", folder / "m", folder / "data.txt", "--out", tmp_path / target, exit_code=1).output
    assert f"{tmp_path / target}: {problem.format(os.path.realpath(tmp_path))}" in output


def test_a_model_cannot_go_into_a_file_or_come_from_one(folder):
    output = invoke("train", folder / "data.txt", "--out", folder / "data.txt" / "x", exit_code=1).output
    assert "data.txt: this is a file" in output
    assert "data.txt: the file is not a packed model" in invoke("inspect", folder / "data.txt", exit_code=1).output
    with pytest.raises(ModelFormatError, match="not a packed model"):
        load(folder / "data.txt")


@pytest.mark.parametrize(("name", "out"), [("train", True), ("evaluate", False)])
def test_interruptions_speak_of_files_only_where_some_are_written(folder, tmp_path, monkeypatch, name, out):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"widemargin.cli.{name}.run", interrupt)
    arguments = [folder / "data.txt", "--out", tmp_path / "m"] if out else [folder / "m", folder / "data.txt"]
    output = invoke(name, *arguments, exit_code=130).output
    assert ("no partial output was left behind" in output) == out


def test_an_interruption_while_starting_shows_no_traceback(folder):
    script = (
        "import sys, widemargin.cli.__main__ as entry\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "entry.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "widemargin: interrupted\n")


HARD_NAMES = ["tab\there", "two\nlines", "old\rmac", "C:\\new", "plain"]


def test_names_with_tabs_line_breaks_and_backslashes_stay_one_cell(tmp_path):
    rows = [{"text": f"word{i % 5} {'much more'[: 4 + i % 3]}", "label": HARD_NAMES[i % 5]} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = ("--text", "text", "--labels", "label")
    invoke("train", tmp_path / "rows.jsonl", *columns, "--analyzer", "char", "--ngrams", "1,3", "--out", tmp_path / "m")
    arguments = ("predict", tmp_path / "m", tmp_path / "rows.jsonl", "--k", "5")
    lines = invoke(*arguments).stdout.split("\n")
    objects = [json.loads(line) for line in invoke(*arguments, "--json").stdout.splitlines()]
    assert lines.pop() == ""
    assert len(lines) == len(objects) == 40
    for line, found in zip(lines, objects, strict=True):
        cells = line.split("\t")
        assert len(cells) == 10
        assert [ast.literal_eval(f'"{cell}"') for cell in cells[::2]] == found["labels"]  # Python's own escapes
    assert {found["labels"][0] for found in objects} == set(HARD_NAMES)


def test_explanations_of_names_with_line_breaks_are_indented_lines(tmp_path):
    texts = ["a\tb", "c\nd", "e"] * 8  # character n-grams contain tabs and line breaks too
    rows = [{"text": text, "label": HARD_NAMES[i % 3]} for i, text in enumerate(texts)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = ("--text", "text", "--labels", "label")
    invoke("train", tmp_path / "rows.jsonl", *columns, "--analyzer", "char", "--out", tmp_path / "m")
    text = invoke("predict", tmp_path / "m", tmp_path / "rows.jsonl", "--k", "1", "--explain").stdout
    plain = [line for line in text.split("\n")[:-1] if not line.startswith("  ")]
    assert len(plain) == 24
    assert all(line.count("\t") == 1 for line in plain)
    assert text.count("\t") == 24


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path):
    model = OneVsAllClassifier().fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], ["[/b]", "[red]x", ":car:"])
    model.set_feature_names(["[bold]", "[/i]"])
    save(model, tmp_path / "[/m]")
    text = invoke("inspect", tmp_path / "[/m]", "--label", "[red]x").stdout
    assert all(name in text for name in ("[red]x", "[bold]", "[/i]"))
    assert "OneVsAllClassifier in " + str(tmp_path / "[/m]") in invoke("inspect", tmp_path / "[/m]").stdout
