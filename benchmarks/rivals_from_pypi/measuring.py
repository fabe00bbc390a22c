"""The lines of the tables: each is one run of one method with one setting on one task.

A run is stored as two files in `rows`: its figures as JSON, and its lists or label sets, from which all quality is
computed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from _common import write_text
from rivals_from_pypi.environments import Environment, prepare
from rivals_from_pypi.processes import run_limited
from rivals_from_pypi.rivals import OURS, Entry, Rival
from rivals_from_pypi.tasks import PLACES, Task, decision_quality, held_out_folder, make_folder, quality

Row = dict[str, Any]


@dataclass
class Line:
    """A line of a table; a tuned one has its values and the CPU seconds spent on all of them."""

    entry: Entry
    row: Row
    tuned: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    tuning_cpu_s: float | None = None

    @property
    def whole_cpu_s(self) -> float:
        """CPU seconds of training with everything that it needs."""
        return self.row["train_cpu_s"] if self.tuning_cpu_s is None else self.tuning_cpu_s


@dataclass
class Results:
    """All results: an environment per rival, and the folder, sizes and ordered lines of each task."""

    environments: dict[str, Environment] = field(default_factory=dict)
    folders: dict[str, Path] = field(default_factory=dict)
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, list[Line]] = field(default_factory=dict)
    decisions: dict[str, list[Line]] = field(default_factory=dict)
    left_out: dict[str, list[Entry]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def run_all(
    tasks: Sequence[Task],
    rivals: Sequence[Rival],
    entries: Sequence[Entry],
    folder: Path,
    cpu_limit_s: int,
    pip_options: Sequence[str] = (),
) -> Results:
    """Run everything that is missing in the folder."""
    results = Results()
    for rival in rivals:
        results.environments[rival.name] = prepare(rival, folder, pip_options)
    by_name = {rival.name: rival for rival in rivals}
    for task in tasks:
        task_folder = make_folder(task, folder)
        if task_folder is None:
            results.missing.append(task.name)
            continue
        results.folders[task.name] = task_folder
        results.sizes[task.name] = json.loads((task_folder / "task.json").read_text(encoding="utf-8"))
        kinds = (task.kind, "decisions") if task.kind == "multilabel" else (task.kind,)
        wanted = [entry for entry in entries if entry.kind in kinds and entry.rival in by_name]
        results.left_out[task.name] = [entry for entry in wanted if task.large and not entry.large]
        run = [entry for entry in wanted if entry.large or not task.large]
        runs = _Runs(task, task_folder, by_name, results.environments, folder, cpu_limit_s)
        results.lines[task.name] = runs.lines([entry for entry in run if entry.kind == task.kind])
        results.decisions[task.name] = [Line(entry, runs.row(entry)) for entry in run if entry.kind == "decisions"]
    return results


@dataclass(frozen=True)
class _Runs:
    """The runs on one task."""

    task: Task
    task_folder: Path
    rivals: dict[str, Rival]
    environments: dict[str, Environment]
    folder: Path
    cpu_limit_s: int

    def lines(self, entries: Sequence[Entry]) -> list[Line]:
        """The lines of the entries, each followed by its tuned one; our first entry runs again at the end."""
        lines = []
        for entry in entries:
            lines.append(Line(entry, self.row(entry)))
            if entry.grid:
                lines.append(self.tuned(entry))
        ours = next((line for line in lines if line.entry.rival == OURS), None)
        if ours is not None:
            _take_mean(ours.row, self.row(ours.entry, place="again"))
        return lines

    def tuned(self, entry: Entry) -> Line:
        """The settings of the grid on held-out rows, and the best of them on all rows."""
        tried = [(values, self.row(entry, values, "held out")) for values in entry.grid]
        if entry.then and any(not row["reason"] for _, row in tried):
            values = _best(tried) | entry.then
            tried.append((values, self.row(entry, values, "held out")))
        if all(row["reason"] for _, row in tried):
            return Line(entry, {"reason": f"no setting has a result: {tried[0][1]['reason']}"}, tuned=True)
        best = _best(tried)
        row = self.row(entry, best)
        spent = [row["train_cpu_s"] + row["predict_cpu_s"] for _, row in tried if not row["reason"]]
        return Line(entry, row, True, best, None if row["reason"] else sum(spent) + row["train_cpu_s"])

    def row(self, entry: Entry, values: dict[str, Any] | None = None, place: str = "") -> Row:
        """Load a row or compute it, and its quality; a rival without an environment has only a reason, not stored."""
        python = self.environments[entry.rival].python
        if python is None:
            return {"reason": "not installed"}
        held_out = place == "held out"
        task_folder = held_out_folder(self.task, self.task_folder) if held_out else self.task_folder
        name = f"{self.task.name}-{entry.kind}-{entry.rival}-{entry.label}-{shown_values(values or {})}-{place}"
        path = self.folder / "rows" / (re.sub(r"[^\w.]+", "-", name).strip("-") + ".json")
        options = entry.options | (values or {})
        found = path.with_suffix(".npz" if entry.kind == "decisions" else ".npy")
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        # A run that was stopped may finish with another limit.
        if kept is None or kept["options"] != options or (kept["reason"] and kept["cpu_limit_s"] != self.cpu_limit_s):
            command = [python, str(self.rivals[entry.rival].runner), str(task_folder)]
            outcome = self._run(command, options, entry.kind, found)
            kept = {"options": options, "cpu_limit_s": self.cpu_limit_s, **outcome}
            write_text(path, json.dumps(kept))
            shown = kept["reason"] or f"{kept['train_cpu_s']:.2f} CPU s"
            print(f"{name}: {shown}", flush=True)
        if kept["reason"]:
            return kept
        if entry.kind == "decisions":
            return kept | {"quality": decision_quality(task_folder, sp.load_npz(found))}
        lists = np.load(found, allow_pickle=False)
        return kept | {"quality": quality(self.task, task_folder, lists), "lists": lists}

    def _run(self, command: Sequence[str], options: dict[str, Any], kind: str, found: Path) -> Row:
        """One run in a new folder; only its log and what it found are kept."""
        out = self.folder / "runs" / found.stem
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        last = ["decisions"] if kind == "decisions" else []
        reason = run_limited([*command, str(out), json.dumps(options), *last], self.cpu_limit_s, out / "log.txt")
        figures = {} if reason else json.loads((out / "figures.json").read_text(encoding="utf-8"))
        if not reason:
            found.parent.mkdir(exist_ok=True)
            (out / ("labels.npz" if last else "lists.npy")).replace(found)
        for path in (path for path in out.iterdir() if path.name != "log.txt"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {"reason": reason, **figures}


def shown_values(values: dict[str, Any]) -> str:
    """Values of a setting in words."""
    return ", ".join(f"{name} = {value:g}" for name, value in values.items())


def _best(tried: Sequence[tuple[dict[str, Any], Row]]) -> dict[str, Any]:
    """The values with the largest mean of P@1, P@3 and P@5; the first of equal ones."""
    done = [(values, row["quality"]) for values, row in tried if not row["reason"]]
    return max(done, key=lambda pair: sum(pair[1][f"P@{k}"] for k in PLACES))[0]


def _take_mean(first: Row, last: Row) -> None:
    """Our times, the base of all ratios, are the mean of one run before the rivals and one after them."""
    if not (first["reason"] or last["reason"]):
        for name in ("train_cpu_s", "predict_cpu_s"):
            first[name] = (first[name] + last[name]) / 2.0
