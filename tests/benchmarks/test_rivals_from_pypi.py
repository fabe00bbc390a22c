"""The command that runs rivals from PyPI, tested with generated problems and made-up rivals, without a network."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
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
    from rivals_from_pypi.rivals import ENTRIES, OUR_DEFAULT, OUR_FIT, RIVALS, Entry, Rival

    frequent, entry = made_up("frequent", FREQUENT)
    here = [dataclasses.replace(rival, requirement=None) for rival in RIVALS[:2]]  # ours and LIBLINEAR
    rivals = [*here, frequent, Rival(NOT_THERE, NOT_THERE, "nothing", tmp_path / "nothing.py")]
    liblinear = next(entry for entry in ENTRIES if entry.rival == "liblinear-official")
    entries = [OUR_FIT, OUR_DEFAULT, liblinear, entry, Entry(NOT_THERE, "its defaults", "multilabel")]
    task, folder = task_of("multilabel"), tmp_path / "work"

    results = run_all([task], rivals, entries, folder, LIMIT_S, pip_options=["--no-index"])
    rows = {line.entry.rival: line.row for line in results.lines[task.name] if not line.tuned}
    # Same problem and stopping rule: equal lists up to ties. The most frequent labels are a poor guess.
    ours, theirs, guess = (rows[rival.name]["quality"]["P@1"] for rival in rivals[:3])
    assert ours == pytest.approx(theirs, abs=1.5)
    assert guess < 50.0 < ours
    assert rows[NOT_THERE] == {"reason": "not installed"}
    assert all(row["peak_bytes"] > 10e6 and row["train_cpu_s"] >= 0 for row in rows.values() if not row["reason"])

    page = "\n".join(sections([task], rivals, results, "a machine", LIMIT_S))
    assert f"no: Could not find a version that satisfies the requirement {NOT_THERE}" in page
    assert "| widemargin: one-vs-all | one fit at C = 1 " in page
    assert "| widemargin: one-vs-all | tuned: C = " in page
    assert "| frequent: made up " in page
    differences = [line for line in page.splitlines() if line.startswith(("| liblinear", "| frequent")) and "±" in line]
    assert ["level" in line for line in differences] == [True, False]
    assert differences[1].count("ahead +") == 3
    assert re.search(r"\| frequent: made up +\| +\| 3 / 0 / 0 +\| .+\| – +\| – +\| – +\|\n", page)
    assert f"- {NOT_THERE}: its defaults: not installed" in page
    assert str(tmp_path) not in page

    again = run_all([task], rivals, entries, folder, LIMIT_S, pip_options=["--no-index"])
    assert [line.row.get("quality") for line in again.lines[task.name]] == [
        line.row.get("quality") for line in results.lines[task.name]
    ]
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
    assert results.lines["quick-multilabel"][0].row["reason"] == reason


def test_problems_too_large_for_a_rival_are_left_out_and_named(tmp_path, made_up):
    from rivals_from_pypi.measuring import run_all
    from rivals_from_pypi.page import sections

    rival, entry = made_up("small", FREQUENT)
    task = dataclasses.replace(task_of("multilabel"), large=True)
    results = run_all([task], [rival], [entry], tmp_path / "work", LIMIT_S)
    assert results.lines[task.name] == []
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
    sp.save_npz(tmp_path / "train_Y.npz", sp.csr_matrix(np.ones((20, 6))))
    lists = np.array([[0, 2, 1, 3, 4], [0, 5, -1, -1, -1]])
    found = quality(Task("a", "multilabel", "", dict), tmp_path, lists)
    # All labels are equally frequent, so PSP@k is the share of what the best lists find: 1 of 2, and 3 of 3.
    counted = {"P@1": 50.0, "P@3": 50.0, "P@5": 30.0, "PSP@1": 50.0, "PSP@3": 100.0, "PSP@5": 100.0}
    assert found == pytest.approx(counted)

    np.save(truth / "test_y.npy", np.array([3, 5]))
    found = quality(Task("a", "multiclass", "", dict), tmp_path, lists)
    assert found == pytest.approx({"top-1": 0.0, "top-3": 50.0, "top-5": 100.0})

    # 0 has 1 and 2; 1 has 3, 4; 2 has 5. Predicted 4 for 3 (its parent is right), and 5 for 5.
    np.save(tmp_path / "parents.npy", np.array([-1, 0, 0, 1, 1, 2]))
    found = quality(Task("a", "tree", "", dict), tmp_path, np.array([[4], [5]]))
    assert found == pytest.approx({"at or below": 50.0, "F1": 75.0})


def test_f1_of_label_sets_is_that_of_scikit_learn_over_labels_that_occur(tmp_path):
    from sklearn.metrics import f1_score

    from rivals_from_pypi.tasks import decision_quality

    rng = np.random.default_rng(0)
    true, predicted = rng.random((2, 40, 7)) < 0.3
    true[:, 2] = False
    (tmp_path / "truth").mkdir()
    sp.save_npz(tmp_path / "truth" / "test_Y.npz", sp.csr_matrix(true.astype(float)))
    found = decision_quality(tmp_path, sp.csr_matrix(predicted.astype(np.int8)))
    occurring = [0, 1, 3, 4, 5, 6]
    macro = f1_score(true[:, occurring], predicted[:, occurring], average="macro")
    micro = f1_score(true, predicted, average="micro")
    assert found == pytest.approx({"micro-F1": 100 * micro, "macro-F1": 100 * macro})


def test_differences_are_paired_by_row(tmp_path):
    from rivals_from_pypi.page import verdict
    from rivals_from_pypi.tasks import precision_differences

    (tmp_path / "truth").mkdir()
    sp.save_npz(tmp_path / "truth" / "test_Y.npz", sp.csr_matrix(np.eye(4, 6)))
    right = np.array([[i, *(j for j in range(6) if j != i)][:5] for i in range(4)])
    wrong = right[:, [1, 0, 2, 3, 4]]
    # P@1 differs by 1 in three rows of four: mean 0.75, standard deviation 0.5, standard error 0.25.
    others = np.vstack([wrong[:3], right[3:]])
    (first, third, fifth) = precision_differences(tmp_path, right, others)
    assert first == pytest.approx((75.0, 1.96 * 25.0), rel=1e-4)
    assert third == fifth == (0.0, 0.0)
    assert [verdict(*pair) for pair in (first, third, (-75.0, 49.0), (30.0, 49.0))] == [
        "ahead",
        "level",
        "behind",
        "level",
    ]


HIT_OR_MISS = """
    run = Run()
    with open(run.folder / "runs.txt", "a") as runs:
        runs.write(json.dumps(run.options | {"n": run.X.shape[0]}) + chr(10))
    known = run.train(lambda: None)
    # The first feature of a row is four times its label; "shift" spoils the first place, "length" the others.
    first = run.X_test.indices[run.X_test.indptr[:-1]] // 4
    places = (first[:, None] + run.options["shift"] + np.arange(5)) % run.n_labels
    places[:, run.options.get("length", 1):] = -1
    run.finish(run.predict(lambda: places), 40, "numpy")
"""


def written_runs(folder):
    return [json.loads(line) for line in (folder / "runs.txt").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_settings_are_chosen_on_held_out_rows_and_trained_on_all_rows(tmp_path, made_up, large):
    from rivals_from_pypi.measuring import run_all

    rival, entry = made_up("shifting", HIT_OR_MISS)
    grid = tuple({"shift": shift} for shift in (6, 5, 0, 4))
    entry = dataclasses.replace(entry, options={"shift": 7}, large=True, grid=grid, then={"length": 2})
    task = dataclasses.replace(task_of("multilabel"), large=large)
    results = run_all([task], [rival], [entry], tmp_path, LIMIT_S)
    default, tuned = results.lines[task.name]
    assert (default.tuned, tuned.tuned, tuned.values) == (False, True, {"shift": 0, "length": 2})
    folder = results.folders[task.name]
    tried = written_runs(folder / "held-out")
    assert [run["shift"] for run in tried] == [6, 5, 0, 4, 0]
    assert [run.get("length") for run in tried] == [None] * 4 + [2]
    n_all = results.sizes[task.name]["n_train"]
    assert {run["n"] for run in tried} == {round(n_all * (0.25 if large else 0.9))}
    assert written_runs(folder) == [{"shift": 7, "n": n_all}, {"shift": 0, "length": 2, "n": n_all}]
    rows = [json.loads(path.read_text()) for path in (tmp_path / "rows").glob("*held-out.json")]
    spent = sum(row["train_cpu_s"] + row["predict_cpu_s"] for row in rows) + tuned.row["train_cpu_s"]
    assert tuned.tuning_cpu_s == pytest.approx(spent)


def test_every_tuned_method_has_five_settings():
    from rivals_from_pypi.rivals import ENTRIES, RIVALS

    tuned = [entry for entry in ENTRIES if entry.grid]
    assert {len(entry.grid) + bool(entry.then) for entry in tuned} == {5}
    assert {entry.rival for entry in tuned} == {rival.name for rival in RIVALS} - {"hiclass"}  # for trees only


def test_held_out_rows_are_training_rows_of_the_task_and_not_of_the_tuning(tmp_path):
    from rivals_from_pypi.tasks import held_out_folder, make_folder

    task = task_of("multilabel")
    folder = make_folder(dataclasses.replace(task, read=lambda: numbered(task.read())), tmp_path)
    held_out = held_out_folder(task, folder)
    parts = [set(sp.load_npz(held_out / f"{part}_X.npz").toarray()[:, 0]) for part in ("train", "test")]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(sp.load_npz(folder / "train_X.npz").toarray()[:, 0])


def numbered(arrays):
    """The arrays of a task whose rows differ in their first feature."""
    for part, first in (("train_X", 1), ("test_X", 1001)):
        X = arrays[part].tolil()
        X[:, 0] = np.arange(first, first + X.shape[0])[:, None]
        arrays[part] = sp.csr_array(X)
    return arrays


@pytest.mark.slow
def test_a_stopped_run_is_repeated_with_another_limit_only(tmp_path, made_up):
    from rivals_from_pypi.measuring import run_all

    code = "run = Run()\nopen(run.folder / 'runs.txt', 'a').write('x')\nraise ValueError('no')"
    rival, entry = made_up("unlucky", code)
    for limit_s, n_runs in ((10, 1), (10, 1), (20, 2)):
        results = run_all([task_of("multilabel")], [rival], [entry], tmp_path, limit_s)
        assert (results.folders["quick-multilabel"] / "runs.txt").read_text() == n_runs * "x"


@pytest.mark.slow
def test_label_sets_have_a_table(tmp_path, made_up):
    from rivals_from_pypi.measuring import run_all
    from rivals_from_pypi.page import sections
    from rivals_from_pypi.rivals import OUR_DECISIONS, RIVALS

    nothing = """
        run = Run()
        run.train(lambda: None)
        run.finish(run.decide(lambda: sp.csr_matrix((run.X_test.shape[0], run.n_labels))), 0, "numpy")
    """
    rival, entry = made_up("nothing", nothing, "decisions")
    task = task_of("multilabel")
    results = run_all([task], [RIVALS[0], rival], [*OUR_DECISIONS, entry], tmp_path, LIMIT_S)
    *ours, theirs = results.decisions[task.name]
    assert all(line.row["quality"]["micro-F1"] > 80.0 for line in ours)
    assert theirs.row["quality"] == {"micro-F1": 0.0, "macro-F1": 0.0}
    assert "| nothing: made up " in sections([task], [RIVALS[0], rival], results, "a machine", LIMIT_S)[-1]


def test_our_default_is_that_of_the_command_line():
    from rivals_from_pypi.rivals import command_line_options
    from widemargin import OneVsAllClassifier

    options = command_line_options()
    assert options.pop("family") == "one-vs-all"
    chosen = OneVsAllClassifier(**options)
    assert chosen.normalize
    assert chosen.prune == 0.01


def test_bibtex_is_split_by_its_row_numbers(tmp_path, monkeypatch):
    from rivals_from_pypi.tasks import TASKS

    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path))
    folder = tmp_path / "bibtex"
    folder.mkdir()
    with gzip.open(folder / "all.txt.gz", "wt") as out:
        out.write("4 3 2\n0 0:1\n1 1:1 2:1\n0,1 2:2\n1 0:3\n")
    (folder / "train_idx.txt").write_text("1\n3\n")
    (folder / "test_idx.txt").write_text("0\n2\n")
    arrays = next(task for task in TASKS if task.name == "bibtex").read()
    assert arrays["train_X"].toarray() == pytest.approx(np.array([[0, 0.5**0.5, 0.5**0.5], [1, 0, 0]]))
    assert arrays["test_Y"].toarray().tolist() == [[1, 0], [1, 1]]


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


def test_unknown_rival_is_named():
    from rivals_from_pypi.__main__ import main

    with pytest.raises(SystemExit, match="no such rival: svm; the rivals are widemargin"):
        main(["--rival", "svm"])
