"""`widemargin compare`: a table, JSON, a recommendation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from widemargin import write_svmlight
from widemargin.cli._time import parse_seconds
from widemargin.cli.app import app


@pytest.fixture
def rows_file(tmp_path):
    y = np.arange(120) % 3
    X = np.eye(3)[y] + 0.2 * np.random.default_rng(0).normal(size=(120, 3))
    write_svmlight(tmp_path / "rows.svm", X, y)
    return tmp_path / "rows.svm"


def test_the_table_ends_with_a_recommendation(rows_file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, ["compare", str(rows_file), "--folds", "2", "--methods", "one-vs-all; top-k"])
    assert done.exit_code == 0, done.output
    assert "120 held-out rows" in done.output
    assert "Use " in done.output.splitlines()[-1]


def test_json_has_the_methods_and_their_costs(rows_file):
    options = ["--test", str(rows_file), "--methods", "one-vs-all", "--metric", "top_k_accuracy@2", "--json"]
    done = CliRunner().invoke(app, ["compare", str(rows_file), *options])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["metric"] == "top_k_accuracy@2"
    assert found["recommended"] == "one-vs-all"
    assert found["methods"][0]["cpu_s"] > 0
    assert found["held_out_rows"] == 120


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (None, None)]
)
def test_budgets_have_units(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "5d", "0m", "-3s"])
def test_wrong_budgets_are_refused(rows_file, text):
    done = CliRunner().invoke(app, ["compare", str(rows_file), "--budget", text])
    assert done.exit_code != 0
    assert "--budget takes a time such as" in done.output
