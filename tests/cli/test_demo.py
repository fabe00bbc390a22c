"""`widemargin demo`: every family on embedded data, a comparison, a report; on fewer rows to save time."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from typer.testing import CliRunner

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TopKClassifier,
    datasets,
    load,
    metrics,
)
from widemargin.cli import demo as demo_command
from widemargin.cli.__main__ import make_app

ROWS, LABELS = 300, 40
CLASSES = {
    "one-vs-all": OneVsAllClassifier,
    "top-k": TopKClassifier,
    "output-code": OutputCodeClassifier,
    "orthogonal": HierarchicalClassifier,
}


def few(data):
    """The first rows of both parts."""
    parts = ("X_train", "y_train", "X_test", "y_test")
    return replace(data, **{name: getattr(data, name)[:ROWS] for name in parts})


@pytest.fixture(scope="module")
def small():
    tags = few(datasets.load_debian_tags())
    columns = {name: getattr(tags, name)[:, :LABELS] for name in ("y_train", "y_test")}
    tags = replace(tags, **columns, label_names=tags.label_names[:LABELS])
    return {"tags": tags, "animals": few(datasets.load_wordnet_animals())}


@pytest.fixture
def demo(small, monkeypatch):
    """The command with few rows and methods."""
    monkeypatch.setattr(demo_command, "load_debian_tags", lambda: small["tags"])
    monkeypatch.setattr(demo_command, "load_wordnet_animals", lambda: small["animals"])
    monkeypatch.setattr(demo_command, "COMPARED", ["top-k, k = 1", "per-node"])
    monkeypatch.setattr(demo_command, "BUDGET", None)
    monkeypatch.setattr(demo_command, "_write_report", lambda out, model, data: "report.html")  # tested below

    def run(*options):
        done = CliRunner().invoke(make_app(), ["demo", *map(str, options)])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


@pytest.mark.slow
def test_every_family_is_trained_saved_and_measured(demo, small, tmp_path):
    found = json.loads(demo("--out", tmp_path / "d", "--json"))
    assert [row["method"] for row in found["models"]] == list(CLASSES)
    for row in found["models"]:
        model = load(tmp_path / "d" / row["method"])
        assert isinstance(model, CLASSES[row["method"]])
        assert row["certificate"]["dual"] <= row["certificate"]["primal"] * (1 + 1e-9)
        data = small[row["data"]]
        if row["data"] == "tags":
            top = model.predict_topk(data.X_test, 3)
            expected = metrics.precision_at_k(data.y_test, top, [1, 3])
            assert [row["quality"][f"precision@{k}"] for k in (1, 3)] == pytest.approx(list(expected))
        else:
            accuracy = accuracy_score(data.y_test, model.predict(data.X_test))
            assert row["quality"]["top_k_accuracy@1"] == pytest.approx(accuracy)
    compared = {method["method"]: method["quality"] for method in found["comparison"]["methods"]}
    assert set(compared) == {"top-k, k = 1", "per-node", "per-node, stop"}
    assert set(compared["per-node"]) >= {"top_k_accuracy@1", "hierarchical_f1", "tree_loss"}
    assert found["report"] == "report.html"


@pytest.mark.slow
def test_the_output_fits_a_terminal_and_says_where_things_are(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = demo()
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("Use ") for line in lines)
    assert "inspect widemargin-demo/one-vs-all" in text
    assert lines[-1] == "The report on the tags is in report.html; open it in a browser."


@pytest.mark.slow
def test_the_demo_has_a_report_where_it_can(monkeypatch, tmp_path):
    model = TopKClassifier(random_state=0).fit(np.eye(3), [0, 1, 2])
    data = SimpleNamespace(X_test=np.eye(3), y_test=np.array([0, 1, 2]))
    assert demo_command._write_report(tmp_path, model, data) == str(tmp_path / "report.html")
    assert "Debian packages" in (tmp_path / "report.html").read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert demo_command._write_report(tmp_path, model, data) is None


def test_the_readme_shows_the_output_of_the_demo():
    """The data and the headings of both tables; the numbers come from a real run."""
    readme = Path(__file__).parents[2].joinpath("README.md").read_text(encoding="utf-8")
    for name, data in (("tags    ", datasets.load_debian_tags()), ("animals ", datasets.load_wordnet_animals())):
        assert f"{name} {demo_command._size(data)}: " in readme
    for heading in ("method data @1 @3 @5 gap CPU s model", "method values accuracy hier. F1 tree loss CPU s"):
        assert any(" ".join(line.split()) == heading for line in readme.splitlines())
