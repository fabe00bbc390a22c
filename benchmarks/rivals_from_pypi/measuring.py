"""The rows of the tables: each is one run of one rival with one setting on one task, stored as a JSON file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from _common import write_text
from rivals_from_pypi.environments import Environment, prepare
from rivals_from_pypi.processes import run_limited
from rivals_from_pypi.rivals import OURS, Entry, Rival
from rivals_from_pypi.tasks import Task, make_folder, quality

Row = dict[str, Any]


@dataclass
class Results:
    """All results: an environment per rival, and the sizes and ordered rows of each task."""

    environments: dict[str, Environment] = field(default_factory=dict)
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, list[tuple[Entry, Row]]] = field(default_factory=dict)
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
        results.sizes[task.name] = json.loads((task_folder / "task.json").read_text(encoding="utf-8"))
        wanted = [entry for entry in entries if entry.kind == task.kind and entry.rival in by_name]
        results.left_out[task.name] = [entry for entry in wanted if task.large and not entry.large]
        run = [entry for entry in wanted if entry.large or not task.large]
        ours = [entry for entry in run if entry.rival == OURS][:1]
        rows = [
            _keep(task, task_folder, by_name[entry.rival], entry, results, folder, cpu_limit_s, again=place >= len(run))
            for place, entry in enumerate([*run, *ours])
        ]
        if ours:
            _take_mean(rows[run.index(ours[0])], rows.pop())
        results.rows[task.name] = list(zip(run, rows, strict=True))
    return results


def _take_mean(first: Row, last: Row) -> None:
    """Our times, the base of all ratios, are the mean of one run before the rivals and one after them."""
    if not (first["reason"] or last["reason"]):
        for name in ("train_cpu_s", "predict_cpu_s"):
            first[name] = (first[name] + last[name]) / 2.0


def _keep(
    task: Task,
    task_folder: Path,
    rival: Rival,
    entry: Entry,
    results: Results,
    folder: Path,
    cpu_limit_s: int,
    again: bool,
) -> Row:
    """Load a row or compute it; the row of a rival without an environment only has a reason and is not stored."""
    environment = results.environments[entry.rival]
    if environment.python is None:
        return {"reason": "not installed"}
    slug = re.sub(r"[^\w.]+", "-", f"{task.name}-{entry.rival}-{entry.label}").strip("-") + ("-again" if again else "")
    path = folder / "rows" / f"{slug}.json"
    settings = {"options": entry.options, "cpu_limit_s": cpu_limit_s}
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if kept is None or kept["settings"] != settings:
        kept = {
            "settings": settings,
            **_run(task, task_folder, rival, entry, environment.python, folder / "runs" / slug, cpu_limit_s),
        }
        write_text(path, json.dumps(kept))
        shown = kept["reason"] or f"{kept['train_cpu_s']:.2f} CPU s, {next(iter(kept['quality'].values())):.2f} %"
        print(f"{task.name}: {entry.rival}, {entry.label}: {shown}", flush=True)
    return kept


def _run(task: Task, task_folder: Path, rival: Rival, entry: Entry, python: str, out: Path, cpu_limit_s: int) -> Row:
    """One run in a new folder; only the log of the runner is kept."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = [python, str(rival.runner), str(task_folder), str(out), json.dumps(entry.options)]
    reason = run_limited(command, cpu_limit_s, out / "log.txt")
    if reason:
        return {"reason": reason}
    figures = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    found = quality(task, task_folder, np.load(out / "lists.npy", allow_pickle=False))
    for path in (path for path in out.iterdir() if path.name != "log.txt"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return {"reason": "", **figures, "quality": found}
