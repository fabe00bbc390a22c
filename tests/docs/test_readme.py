"""README and tutorial: commands print what the pages say, and README's numbers match the stored results."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from typer.testing import CliRunner

from widemargin import HierarchicalClassifier, OneVsAllClassifier, __version__, datasets, metrics
from widemargin.cli.__main__ import make_app

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "guide" / "examples"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run_commands(page, n_commands):
    """Run the commands of a page's console block in the current folder; each must print the text below it."""
    (block,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"^\$ widemargin (.*)\n((?:(?!\$).*\n)*)", block, re.MULTILINE)
    assert len(commands) == n_commands
    for command, expected in commands:
        result = CliRunner().invoke(make_app(), shlex.split(command))
        assert result.exit_code == 0, result.output
        assert expected in result.stdout
    assert Path("report.html").stat().st_size > 10_000


def example_rows(name):
    return set((EXAMPLES / Path(name).name).read_text(encoding="utf-8").splitlines()[1:])


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_models_are_measured_on_rows_that_they_were_not_trained_on(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    (train,) = re.findall(r"^\$ widemargin train (\S+)", text, re.MULTILINE)
    measured = re.findall(r"^\$ widemargin (?:evaluate|report) \S+ (\S+)", text, re.MULTILINE)
    assert measured
    for name in measured:
        assert not example_rows(name) & example_rows(train), name


def test_the_wheel_comes_first():
    """The commands of README's section on installing are those of the Makefile, and the version is ours."""
    section = README.split("## Install\n")[1].split("\n## ")[0]
    commands = re.findall(r"^    ([^#\n]*?)(?: +#.*)?$", section, re.MULTILINE)
    assert commands[0] == "make wheel"
    assert re.fullmatch(rf"pip install 'dist/widemargin-{re.escape(__version__)}-….whl\[all\]'", commands[1])
    assert commands[2] == "widemargin demo"
    assert re.search(r"^wheel: ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
def test_commands_of_readme_print_what_it_says(tmp_path, monkeypatch):
    shutil.copytree(EXAMPLES, tmp_path / "docs" / "guide" / "examples")
    monkeypatch.chdir(tmp_path)
    run_commands(README, 3)


@pytest.mark.slow
def test_commands_of_the_tutorial_print_what_it_says(tmp_path, monkeypatch):
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run_commands((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), 4)


def test_the_picture_is_small_and_has_what_its_script_draws():
    kept = (ROOT / "docs" / "pictures" / "readme.svg").read_text(encoding="utf-8")
    script = (ROOT / "tools" / "make_readme_picture.py").read_text(encoding="utf-8")
    assert "docs/pictures/readme.svg" in README
    assert len(kept) < 120_000
    # Glyphs are outlines; matplotlib writes the words next to them as comments.
    words = set(re.findall(r"<!-- (.*?) -->", kept))
    assert words >= set(re.findall(r'set_(?:title|xlabel)\("(.*?)"\)', script))


@pytest.mark.parametrize("name", ["one-vs-all", "per-node", "per-node, stop"])
def test_the_table_of_the_animals_is_exact(name):
    """Accuracy, hierarchical F1 and tree loss, not the share at or below the true node, which favours leaves."""
    (row,) = re.findall(rf"^{name} +C 1 +(.*)$", README, re.MULTILINE)
    shown = [float(number) for number in re.sub(r"± \S+", "", row).split()[:3]]
    animals = datasets.load_wordnet_animals()
    per_node = HierarchicalClassifier(
        animals.taxonomy, method="per-node", stop=name.endswith("stop"), normalize=True, random_state=0
    )
    model = OneVsAllClassifier(normalize=True) if name == "one-vs-all" else per_node
    predicted = model.fit(animals.X_train, animals.y_train).predict(animals.X_test)
    f1 = metrics.hierarchical_f1(animals.y_test, predicted, animals.taxonomy)
    loss = metrics.tree_induced_loss(animals.y_test, predicted, animals.taxonomy)
    np.testing.assert_allclose(shown, [accuracy_score(animals.y_test, predicted), f1, loss], atol=0.005)


@pytest.mark.parametrize(
    ("file", "cell", "figures"),
    [
        ("2026-11-19-one-vs-all.md", "153, 19, 22", ["153.4", "19.2", "21.8"]),
        ("2026-11-19-one-vs-all.md", "133, 20, 22", ["133.0", "20.5", "21.9"]),
        ("2026-11-19-dense.md", "3.6, 3.4, 26", ["3.6", "3.4", "26.1"]),
        ("2026-11-19-top-k.md", "2.7 to 5.7", ["2.7", "5.7"]),
    ],
)
def test_figures_are_those_of_the_result_it_links_to(file, cell, figures):
    assert f"benchmarks/results/{file}" in README
    assert f"| {cell} |" in README
    result = (ROOT / "benchmarks" / "results" / file).read_text(encoding="utf-8")
    for shown, figure in zip(re.findall(r"[\d.]+", cell), figures, strict=True):
        assert re.search(rf"\|\s+{re.escape(figure)}\s+\|", result), figure
        unit = 10.0 ** -len(shown.partition(".")[2])
        assert abs(float(shown) - float(figure)) <= unit / 2, figure
