"""No command overwrites its input: the error comes before any work and names both files and the remedy."""

from __future__ import annotations

import hashlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from widemargin import OneVsAllClassifier, train, write_store, write_xmc
from widemargin.cli.__main__ import make_app
from widemargin.data.names import write_names
from widemargin.files import refuse_input_as_output

TREE = "child\tparent\nred\tcolour\ngreen\tcolour\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with data of every kind, a model, and a text model."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 3))
    Y = np.zeros((60, 2))
    Y[np.arange(60), (X[:, 0] > 0.5).astype(int)] = 1.0
    write_xmc(tmp_path / "data.txt", X, sp.csr_array(Y))
    write_names(tmp_path / "data_labels.txt", ["red", "green"])
    write_store(tmp_path / "data.store", X, sp.csr_array(Y), label_names=["red", "green"])
    np.save(tmp_path / "X_rows.npy", X)
    np.save(tmp_path / "Y_rows.npy", Y)
    (tmp_path / "tree.tsv").write_text(TREE)
    rows = "".join(f"{'fresh bread' if i % 2 else 'old engine'},{'food' if i % 2 else 'cars'}\n" for i in range(20))
    (tmp_path / "s.csv").write_text("text,label\n" + rows)
    monkeypatch.chdir(tmp_path)
    succeed("train", "data.txt", "-o", "model")
    succeed("train", "s.csv", "--text", "text", "--labels", "label", "-o", "text_model")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(make_app(), [str(argument) for argument in arguments])


def succeed(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output


def contents(folder):
    """Hashes of all files below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refused(folder, *arguments):
    """The message of a command that must change nothing."""
    before = contents(folder)
    done = run(*arguments)
    assert done.exit_code == 1, done.output
    assert contents(folder) == before
    assert "choose another output name" in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "output", "source"),
    [
        (["predict", "text_model", "s.csv", "-o", "s.csv"], "s.csv", "s.csv"),
        (["predict", "model", "data.txt", "-o", "data.txt"], "data.txt", "data.txt"),
        (["predict", "model", "data.store", "-o", "data.store/store.json"], "data.store/store.json", "data.store"),
        (["predict", "model", "data.store", "-o", "data.store/new.tsv"], "data.store/new.tsv", "data.store"),
        (["predict", "model", "data.txt", "-o", "model/model.json"], "model/model.json", "model"),
        (["predict", "model", "data.txt", "-o", "data_labels.txt"], "data_labels.txt", "data_labels.txt"),
        (["predict", "model", "X_rows.npy", "-o", "Y_rows.npy"], "Y_rows.npy", "Y_rows.npy"),
        (["report", "text_model", "s.csv", "-o", "s.csv"], "s.csv", "s.csv"),
        (["report", "model", "data.txt", "-o", "data.txt"], "data.txt", "data.txt"),
        (["report", "model", "data.txt", "-o", "model/report.html"], "model/report.html", "model"),
        (["convert", "data.txt", "data.txt"], "data.txt", "data.txt"),
        (["convert", "data.store", "data.store"], "data.store", "data.store"),
        (["convert", "data.store", "data.store/new.npz"], "data.store/new.npz", "data.store"),
        (["convert", "data.txt", "tree.tsv", "--features", "tree.tsv"], "tree.tsv", "tree.tsv"),
        (["pack", "model", "model/model.wm"], "model/model.wm", "model"),
        (["train", "data.txt", "-o", "data.txt"], "data.txt", "data.txt"),
        (["train", "data.store", "-o", "data.store"], "data.store", "data.store"),
        (["train", "data.store", "-o", "data.store/model"], "data.store/model", "data.store"),
        (["train", "s.csv", "--text", "text", "--labels", "label", "-o", "s.csv"], "s.csv", "s.csv"),
        (["train", "data.txt", "--method", "flat", "--taxonomy", "tree.tsv", "-o", "tree.tsv"], "tree.tsv", "tree.tsv"),
        (["train", "data.txt", "-o", "."], ".", "data.txt"),
        (["path", "data.txt", "--test", "data.store", "-o", "data.store"], "data.store", "data.store"),
        (["path", "data.store", "--test", "data.txt", "-o", "data.store/best"], "data.store/best", "data.store"),
        (["path", "data.txt", "--test", "s.csv", "-o", "s.csv"], "s.csv", "s.csv"),
        (["update", "model", "data.txt", "-o", "data.txt"], "data.txt", "data.txt"),
        (["update", "model", "data.txt", "-o", "model/new"], "model/new", "model"),
        (["update", "model", "data.txt", "--rows", "data.store", "-o", "data.store/m"], "data.store/m", "data.store"),
        (["update", "model", "data.txt", "--remove", "tree.tsv", "-o", "tree.tsv"], "tree.tsv", "tree.tsv"),
        (["compress", "model", "-o", "model/small"], "model/small", "model"),
        (["compress", "model", "--rows", "data.store", "-o", "data.store/m"], "data.store/m", "data.store"),
        (["labels", "model", "drop", "red", "-o", "model/new"], "model/new", "model"),
        (["labels", "model", "--changes", "tree.tsv", "-o", "tree.tsv"], "tree.tsv", "tree.tsv"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else value,
)
def test_an_input_is_no_output(folder, arguments, output, source):
    error = refused(folder, *arguments)
    assert f"the output {output} " in error
    assert f" the input {source};" in error


def test_every_command_with_an_output_is_covered():
    """Every command with an output needs a case above."""
    callbacks = {command.callback.__name__: command.callback for command in make_app().registered_commands}
    with_output = {n for n, call in callbacks.items() if {"out", "target"} & set(inspect.signature(call).parameters)}
    read = {"predict", "report", "convert", "pack", "train", "path", "update", "labels", "compress"}
    assert with_output == read | {"demo"}  # which reads no file


def aliases(folder):
    (folder / "symbolic").symlink_to("s.csv")
    os.link(folder / "s.csv", folder / "hard")
    (folder / "elsewhere").mkdir()
    (folder / "way").symlink_to(folder, target_is_directory=True)
    return ["symbolic", "hard", folder / "s.csv", "elsewhere/../s.csv", "way/s.csv", "./s.csv"]


@pytest.mark.slow
def test_other_names_of_an_input_are_seen(folder):
    for name in aliases(folder):
        for command in ("predict", "report"):
            error = refused(folder, command, "text_model", "s.csv", "-o", name)
            assert f"the output {Path(name)} would overwrite the input s.csv" in error
    error = refused(folder, "predict", "way/text_model", "s.csv", "-o", "text_model/p.tsv")
    assert "the output text_model/p.tsv lies inside the input way/text_model" in error


def test_it_is_refused_before_any_work(folder, monkeypatch):
    for place in ("inputs.open_model", "inputs.load_training"):
        monkeypatch.setattr(f"widemargin.cli.{place}", None)
    refused(folder, "predict", "model", "data.txt", "-o", "data.txt")
    refused(folder, "report", "model", "data.txt", "-o", "data.txt")
    refused(folder, "train", "data.store", "-o", "data.store")
    refused(folder, "path", "data.txt", "--test", "data.store", "-o", "data.store")


@pytest.mark.slow
def test_predictions_are_not_appended_to_their_own_data(folder):
    before = contents(folder)
    with open(folder / "s.csv", "a") as output:
        arguments = [sys.executable, "-m", "widemargin.cli", "predict", "text_model", "s.csv"]
        done = subprocess.run(arguments, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "would overwrite the input s.csv" in done.stderr
    assert contents(folder) == before


def test_a_folder_around_the_input_is_not_replaced(folder):
    os.rename("data.txt", "data.store/data.txt")
    error = refused(folder, "convert", "data.store/data.txt", "data.store")
    assert "the output data.store is a folder that contains the input data.store/data.txt" in error


def test_python_refuses_a_model_in_its_own_data(folder):
    before = contents(folder)
    with pytest.raises(ValueError, match="lies inside the input"):
        train(OneVsAllClassifier(), folder / "data.store", folder / "data.store" / "model")
    with pytest.raises(ValueError, match="is the same as the input"):
        train(OneVsAllClassifier(), str(folder / "data.store"), folder / "data.store")
    assert contents(folder) == before


@pytest.mark.slow
def test_other_outputs_next_to_the_input_are_written(folder):
    refuse_input_as_output("missing", "missing", None)
    (folder / "labels.tsv").write_text("old")  # no input of a table
    for name in ("p.tsv", "p.tsv", "s.csv.tsv", "labels.tsv"):
        succeed("predict", "text_model", "s.csv", "-o", name)
    succeed("train", "data.txt", "-o", "model")
    succeed("convert", "data.txt", "data.npz")
    succeed("convert", "data.txt", "data.store")
    succeed("report", "model", "data.txt", "-o", "report.html")
