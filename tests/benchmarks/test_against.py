"""`benchmarks/against.py`: two versions of a package take turns; here of a made-up one that is not compiled."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import widemargin

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = ("one_vs_all", "top_k", "hierarchical", "prediction", "path")
HELPERS = ("_common", "_multiclass", "_trees")
SCRIPT = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from _common import print_figures
import widemargin
with open(sys.argv[2], "a") as log:
    log.write(widemargin.NAME + "\\n")
print_figures([("count", lambda: sum(range(widemargin.SIZE)))])
"""


@pytest.fixture(autouse=True)
def folder_of_benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def git(repository, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", repository, *who, *arguments], check=True, capture_output=True)


def write_package(folder, name, size):
    (folder / "widemargin").mkdir(parents=True, exist_ok=True)
    (folder / "widemargin" / "__init__.py").write_text(f"NAME, SIZE = {name!r}, {size}\n")


@pytest.fixture
def sides(tmp_path, monkeypatch):
    """A commit of a made-up package, and the checkout after it; installing is copying."""
    import against

    def install(source, side):
        shutil.copytree(source / "widemargin", side.site / "widemargin", dirs_exist_ok=True)
        against.make_environment(side)

    monkeypatch.setattr(against, "install", install)
    root, build = tmp_path / "repository", tmp_path / "build"
    write_package(root, "old", 1000)
    git(tmp_path, "init", "repository")
    git(root, "add", ".")
    git(root, "commit", "-m", "old")
    write_package(root, "new", 2000)
    return [against.build_commit("HEAD", root, build), against.build_this(root, build)]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.slow
def test_both_sides_run_their_own_package_and_take_turns(sides, script, tmp_path):
    import against

    log = tmp_path / "log"
    turns = against.alternate(sides, script, [str(log)], 3)
    assert log.read_text().split() == ["old", "new", "new", "old", "old", "new"]
    assert {name: len(figures) for name, figures in turns.items()} == {"HEAD": 3, "this checkout": 3}
    assert all(set(figures) == {"count"} for side in turns.values() for figures in side)


@pytest.mark.slow
def test_a_commit_is_built_once(sides, monkeypatch):
    import against

    monkeypatch.setattr(against, "install", lambda *_: pytest.fail("installed again"))
    root = sides[0].folder.parents[1] / "repository"
    assert against.build_commit("HEAD", root, sides[0].folder.parent) == sides[0]


@pytest.mark.slow
def test_a_side_that_imports_another_package_is_an_error(sides, script, tmp_path):
    import against

    shutil.rmtree(sides[0].site)
    shutil.copytree(sides[1].site, tmp_path / "elsewhere")
    pth = next((sides[0].folder / "env").rglob("against.pth"))
    pth.write_text(f"{tmp_path / 'elsewhere'}\n")
    with pytest.raises(RuntimeError, match="HEAD was imported from"):
        against.run_script(sides[0], script, [str(tmp_path / "log")])


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("valgrind") and shutil.which("cc")), reason="needs valgrind and a C compiler")
def test_instructions_are_those_of_the_piece_alone(sides, script, tmp_path):
    import against

    counter = against.make_counter(tmp_path / "build")
    old, new = (against.count_instructions(side, script, [str(tmp_path / "log")], counter)["count"] for side in sides)
    # Twice the additions; starting Python takes millions of instructions.
    assert 1.5 < new / old < 2.5
    assert new < 1e6


def test_a_script_without_figures_is_an_error(tmp_path):
    import against

    empty = tmp_path / "empty.py"
    empty.write_text("")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    with pytest.raises(RuntimeError, match="no figures"):
        against.run_script(against.Side("made up", tmp_path), empty, [])


def test_the_table_has_medians_quartiles_and_the_median_of_ratios():
    from against import timing_table

    old, new = [1.0, 2.0, 4.0], [1.1, 1.8, 4.4]
    table = timing_table(
        {"HEAD": [{"fit": value} for value in old], "this checkout": [{"fit": value} for value in new]}
    )
    head, _, row = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    assert head[1::2] == ["HEAD, CPU s", "this checkout, CPU s", "ratio"]
    # Ratios are 1.1, 0.9 and 1.1.
    assert row == ["fit", "2.0000", "1.5000–3.0000", "1.8000", "1.4500–3.1000", "1.100", "1.000–1.100"]


def test_counts_are_read_from_the_dumps_of_callgrind(tmp_path):
    from against import count_table, read_counts

    for number, (name, total) in enumerate([("fit, dense", 1500), ("predict", 2500)], start=1):
        head = (
            f"# callgrind format\npart: {number}\ndesc: Trigger: Client Request: {name}\n\nevents: Ir\nfn=(1) f\n1 5\n"
        )
        (tmp_path / f"out.{number}").write_text(f"{head}totals: {total}\n")
    (tmp_path / "out").write_text("desc: Trigger: Program termination\n\ntotals: 0\n")
    counts = read_counts(tmp_path)
    assert counts == {"fit, dense": 1500.0, "predict": 2500.0}
    halves = {name: count / 2 for name, count in counts.items()}
    assert "0.5000" in count_table({"HEAD": counts, "this checkout": halves})


@pytest.mark.parametrize("name", [*SCRIPTS, *HELPERS])
def test_scripts_use_public_names_only(name):
    source = (BENCHMARKS / f"{name}.py").read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "widemargin":
            module, *inner = node.module.split(".")[1:] or [None]
            names = {alias.name for alias in node.names} if module is None else {module}
            assert not inner
            assert names <= set(widemargin.__all__)
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("widemargin.") for alias in node.names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("one_vs_all", []),
        ("top_k", ["--sets", "digits"]),
        ("prediction", ["--labels", "200", "--features", "300", "--model-folder", "no-such-folder"]),
    ],
)
def test_figures_of_our_code_are_printed_as_json(name, arguments, monkeypatch, capsys, tmp_path):
    import _common

    monkeypatch.setenv(_common.DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr(_common, "REPETITIONS", 1)
    monkeypatch.setattr(sys, "argv", [name, "--ours", *arguments])
    __import__(name).main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["package"] == widemargin.__file__
    assert found["figures"]
    assert all(value >= 0.0 for value in found["figures"].values())
