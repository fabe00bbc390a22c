"""The command that runs rivals from PyPI, tested with generated problems and made-up rivals, without a network."""

from __future__ import annotations

import dataclasses
import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LIMIT_S = 60
NOT_THERE = "widemargin-rival-that-is-not-there"


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """Put the benchmarks folder on the path, like the command."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def made_up(tmp_path):
    """A function that makes a rival from the code of its runner; it runs in the environment of the tests."""
    from rivals_from_pypi.rivals import RUNNERS, Entry, Rival

    def make(name, code, kind="multilabel"):
        runner = tmp_path / f"run_{name}.py"
        head = f"import sys\nsys.path.insert(0, {str(RUNNERS)!r})\nfrom _runner import *\n"
        runner.write_text(head + textwrap.dedent(code))
        return Rival(name, None, "numpy", runner), Entry(name, "made up", kind)

    return make


FREQUENT = """
    run = Run()
    with open(run.folder / "runs.txt", "a") as runs:
        runs.write("x")
    best = run.train(lambda: np.argsort(-run.Y.sum(axis=0).A1, kind="stable")[:5])
    run.finish(run.predict(lambda: np.tile(best, (run.X_test.shape[0], 1))), 40, "numpy")
"""


def task_of(kind):
    from rivals_from_pypi.tasks import quick_tasks

    return next(task for task in quick_tasks() if task.kind == kind)


@pytest.mark.slow
def test_rivals_run_beside_ours_and_those_that_do_not_install_are_listed_with_the_reason(tmp_path, made_up):
    from rivals_from_pypi.measuring import run_all
    from rivals_from_pypi.page import sections
    from rivals_from_pypi.rivals import ENTRIES, RIVALS, Entry, Rival

    frequent, entry = made_up("frequent", FREQUENT)
    here = [dataclasses.replace(rival, requirement=None) for rival in RIVALS[:2]]  # ours and LIBLINEAR
    rivals = [*here, frequent, Rival(NOT_THERE, NOT_THERE, "nothing", tmp_path / "nothing.py")]
    entries = [*ENTRIES[:2], entry, Entry(NOT_THERE, "its defaults", "multilabel")]
    task, folder = task_of("multilabel"), tmp_path / "work"

    results = run_all([task], rivals, entries, folder, LIMIT_S, pip_options=["--no-index"])
    rows = {entry.rival: row for entry, row in results.rows[task.name]}
    # Same problem and stopping rule: equal lists up to ties. The most frequent labels are a poor guess.
    ours, liblinear, guess = (rows[rival.name]["quality"]["P@1"] for rival in rivals[:3])
    assert ours == pytest.approx(liblinear, abs=1.5)
    assert guess < 50.0 < ours
    assert rows[NOT_THERE] == {"reason": "not installed"}
    assert all(row["peak_bytes"] > 10e6 and row["train_cpu_s"] >= 0 for row in rows.values() if not row["reason"])

    page = "\n".join(sections([task], rivals, results, "a machine", LIMIT_S))
    assert f"no: Could not find a version that satisfies the requirement {NOT_THERE}" in page
    assert "| widemargin: one-vs-all, pruned below 0.01 " in page
    assert "| frequent: made up " in page
    assert f"- {NOT_THERE}: its defaults: not installed" in page
    assert str(tmp_path) not in page

    again = run_all([task], rivals, entries, folder, LIMIT_S, pip_options=["--no-index"])
    assert {entry.rival: row for entry, row in again.rows[task.name]} == rows
    assert (folder / "tasks" / task.name / "runs.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("code", "limit_s", "reason"),
    [
        ("while True: pass", 1, "stopped at the limit of 1 CPU seconds"),
        ("raise ValueError('nothing in /home/someone/data.txt')", LIMIT_S, "ValueError: nothing in data.txt"),
    ],
)
@pytest.mark.slow
def test_runs_that_fail_or_take_too_long_say_so(tmp_path, made_up, code, limit_s, reason):
    from rivals_from_pypi.measuring import run_all

    rival, entry = made_up("unlucky", code)
    results = run_all([task_of("multilabel")], [rival], [entry], tmp_path / "work", limit_s)
    assert results.rows["quick-multilabel"][0][1]["reason"] == reason


def test_problems_too_large_for_a_rival_are_left_out_and_named(tmp_path, made_up):
    from rivals_from_pypi.measuring import run_all
    from rivals_from_pypi.page import sections

    rival, entry = made_up("small", FREQUENT)
    task = dataclasses.replace(task_of("multilabel"), large=True)
    results = run_all([task], [rival], [entry], tmp_path / "work", LIMIT_S)
    assert results.rows[task.name] == []
    assert "Not run here" in sections([task], [rival], results, "a machine", LIMIT_S)[-1]


def test_runners_do_not_get_the_labels_of_test_rows(tmp_path):
    from rivals_from_pypi.tasks import make_folder, quick_tasks

    for task in quick_tasks():
        folder = make_folder(task, tmp_path)
        files = {path.name for path in folder.iterdir() if path.is_file()}
        assert not {name for name in files if name.startswith(("test_y", "test_Y"))}
        assert {"task.json", "train_X.npz", "test_X.npz"} <= files
        assert json.loads((folder / "task.json").read_text())["kind"] == task.kind


def test_quality_is_that_of_hand_counts(tmp_path):
    from rivals_from_pypi.tasks import Task, quality

    truth = tmp_path / "truth"
    truth.mkdir()
    sp.save_npz(truth / "test_Y.npz", sp.csr_matrix([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]))
    lists = np.array([[0, 2, 1, 3, 4], [0, 5, -1, -1, -1]])
    found = quality(Task("a", "multilabel", "", dict), tmp_path, lists)
    assert found == pytest.approx({"P@1": 50.0, "P@3": 50.0, "P@5": 30.0})

    np.save(truth / "test_y.npy", np.array([3, 5]))
    found = quality(Task("a", "multiclass", "", dict), tmp_path, lists)
    assert found == pytest.approx({"top-1": 0.0, "top-3": 50.0, "top-5": 100.0})

    # 0 has 1 and 2; 1 has 3, 4; 2 has 5. Predicted 4 for 3 (its parent is right), and 5 for 5.
    np.save(tmp_path / "parents.npy", np.array([-1, 0, 0, 1, 1, 2]))
    found = quality(Task("a", "tree", "", dict), tmp_path, np.array([[4], [5]]))
    assert found == pytest.approx({"at or below": 50.0, "F1": 75.0})


OTHER_PYTHON = """\
ERROR: Ignored the following versions that require a different python version: 1.0 Requires-Python <3.11
ERROR: Could not find a version that satisfies the requirement x
ERROR: No matching distribution found for x
"""
DOES_NOT_COMPILE = """\
  /tmp/build/x/solver.cpp:3:10: fatal error: cblas.h: No such file or directory
  error: command '/usr/bin/g++' failed with exit code 1
ERROR: Failed building wheel for x
"""


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (OTHER_PYTHON, OTHER_PYTHON.splitlines()[0].removeprefix("ERROR: ")),
        (DOES_NOT_COMPILE, "solver.cpp:3:10: fatal error: cblas.h: No such file or directory"),
        ("Collecting x from https://somewhere.example/simple\nno more", "no more"),
    ],
)
def test_reason_of_pip_is_the_most_informative_line(output, reason):
    from rivals_from_pypi.environments import reason_of_pip

    assert reason_of_pip(output) == reason


def test_reasons_have_no_addresses_and_no_folders():
    from rivals_from_pypi.environments import without_places

    line = "cannot read /home/someone/papers/a.txt from https://somewhere.example/x | 1/2"
    assert without_places(line) == "cannot read a.txt from … / 1/2"


def test_labels_for_hiclass_are_paths_with_empty_ends(monkeypatch):
    from rivals_from_pypi.rivals import RUNNERS

    monkeypatch.syspath_prepend(str(RUNNERS))
    monkeypatch.setitem(sys.modules, "hiclass", type(sys)("hiclass"))
    sys.modules["hiclass"].LocalClassifierPerParentNode = None
    import run_hiclass

    paths = run_hiclass.label_paths(np.array([-1, 0, 0, 1]), np.array([3, 1, 2]))
    assert paths.tolist() == [["1", "3"], ["1", ""], ["2", ""]]
    assert run_hiclass.last_nodes(paths).tolist() == [3, 1, 2]


def test_unknown_task_is_named():
    from rivals_from_pypi.__main__ import main

    with pytest.raises(SystemExit, match="no such task: letters; the tasks are debian-tags"):
        main(["--task", "letters"])
