"""`widemargin pack`, and the commands that take a packed model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import assert_refused, invoke
from widemargin import OneVsAllClassifier, save, write_svmlight


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model folder, its packed file, and rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    save(OneVsAllClassifier(prune=0.05).fit(X, y), tmp_path / "model")
    write_svmlight(tmp_path / "rows.svm", X, y)
    monkeypatch.chdir(tmp_path)
    invoke("pack", "model", "model.wm")
    return tmp_path


def test_pack_reports_sizes(folder):
    summary = json.loads(invoke("pack", "model", "again.wm", "--json").stdout)
    assert summary["class"] == "OneVsAllClassifier"
    assert summary["bytes"] == (folder / "again.wm").stat().st_size
    assert (folder / "again.wm").read_bytes() == (folder / "model.wm").read_bytes()


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_commands_give_the_same_from_a_file(command, folder):
    packed, plain = (invoke(command, name, "rows.svm").stdout for name in ("model.wm", "model"))
    assert packed.replace("model.wm on", "model on") == plain


def test_inspect_and_report_take_a_file(folder):
    packed, plain = (json.loads(invoke("inspect", name, "--json").stdout) for name in ("model.wm", "model"))
    assert packed.pop("bytes") == (folder / "model.wm").stat().st_size
    assert plain.pop("bytes") > 0
    assert packed == plain
    invoke("report", "model.wm", "rows.svm", "-o", "report.html")


def test_changes_of_a_file_are_refused_with_the_remedy(folder):
    for arguments in (["update", "model.wm", "rows.svm"], ["labels", "model.wm", "drop", "1"]):
        assert_refused(arguments, "change the folder that it was packed from, and pack it again")


def test_processes_load_the_file_themselves(folder):
    parts = invoke("predict", "model.wm", "rows.svm", "--processes", "2").stdout
    assert parts == invoke("predict", "model", "rows.svm").stdout
