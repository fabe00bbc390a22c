"""`widemargin labels`: rename, merge, drop and add labels of a model folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from widemargin.cli import console, inputs
from widemargin.cli.options import Given
from widemargin.cli.update import labelled_rows, read_ids
from widemargin.data.load import label_files
from widemargin.estimators.label_changes import ACTIONS, change_labels
from widemargin.exceptions import DataFormatError
from widemargin.files import read_lines
from widemargin.model_io import check_writable, folder_size

__all__ = ["run"]

USAGE = {
    "rename": "rename OLD NEW",
    "merge": "merge LABEL LABEL … --into NAME",
    "drop": "drop LABEL …",
    "add": "add NAME --rows-with FILE",
}
FEWEST = {"rename": 2, "merge": 3, "drop": 1, "add": 2}  # cells after the action in a line of --changes


def run(given: Given) -> None:
    """Read the changes, change the folder, and report."""
    names = () if given.rows is None else label_files(given.rows)
    target = inputs.changed_model(given, given.changes, given.rows_with, given.rows, *names)
    check_writable(target)
    wall, cpu = time.perf_counter(), time.process_time()
    opened = inputs.open_model(given.model, verify=False)  # `change_labels` verifies it
    model = opened.classifier
    changes = _given_change(given, model) if given.changes is None else _changes_of_file(given, model)
    rows = None if given.rows is None else labelled_rows(opened, given, given.rows)[:2]
    with console.progress_bar("Solving") as callback:
        how = {"n_jobs": given.jobs, "restart": given.restart, "callback": callback, "report": console.print_note}
        changed = change_labels(given.model, changes, rows=rows, out=given.out, **how)
    model = changed[-1] if hasattr(changed, "steps") else changed
    done = model.updates_[-1]
    summary = {
        **done["labels"],
        "labels": len(model.classes_),
        "gap_before": done["gap_before"],
        "gap_after": done["gap_after"],
        "stale": done["stale"],
        "version": model.version_,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "model": str(target),
        "model_bytes": folder_size(target),
    }
    if given.json:
        console.print_json(summary)
    else:
        console.print_table(f"Model in {target}", table_rows(summary))


def _given_change(given: Given, model: Any) -> list[tuple[Any, ...]]:
    """The change that the arguments describe."""
    action, names = given.action, given.names or []
    if action is None:
        raise ValueError(f"there is nothing to change; use one of: {'; '.join(USAGE.values())}; or --changes FILE")
    for option, value, wanted in (("--into", given.into, "merge"), ("--rows-with", given.rows_with, "add")):
        if value is not None and action != wanted:
            raise ValueError(f"{option} applies to {wanted}, not to {action}; leave it out")
        if value is None and action == wanted:
            raise ValueError(f"{option} is missing; use: {USAGE[action]}")
    right = {"rename": len(names) == 2, "merge": len(names) > 1, "drop": len(names) > 0, "add": len(names) == 1}
    if not right[action]:
        raise ValueError(
            f"{action} with {len(names)} label{'' if len(names) == 1 else 's'} is incomplete or has too "
            f"many; use: {USAGE[action]}"
        )
    if action == "add":
        return [(action, _as_label(names[0], model), read_ids(given.rows_with, model))]
    names = [*names, *([given.into] if action == "merge" else [])]
    return [(action, *(_as_label(name, model) for name in names))]


def _changes_of_file(given: Given, model: Any) -> list[tuple[Any, ...]]:
    """The changes of a tab-separated file; empty lines are left out."""
    if given.action is not None or given.into is not None or given.rows_with is not None:
        raise ValueError("--changes cannot be combined with another change; write it to the file")
    changes: list[tuple[Any, ...]] = []
    path: Path = given.changes
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        action, *cells = (cell.strip() for cell in line.split("\t"))
        if action not in ACTIONS or len(cells) < FEWEST[action] or "" in cells:
            raise DataFormatError(
                f"{line!r:.60} is not a change of labels",
                path=path,
                line=number,
                remedy=f"start a line with {', '.join(ACTIONS)}, and separate the labels by tabs",
            )
        if action == "add":
            recorded = hasattr(model, "rows_")
            ids = [int(cell) if cell.isdecimal() and not recorded else cell for cell in cells[1:]]
            changes.append((action, _as_label(cells[0], model), ids))
        else:
            changes.append((action, *(_as_label(cell, model) for cell in cells)))
    if not changes:
        raise DataFormatError("the file has no changes", path=path, remedy="write a change on each line")
    return changes


def _as_label(name: str, model: Any) -> Any:
    """A name in the type of the model's labels."""
    kind = model.classes_.dtype.kind
    if kind in "iu" and name.isascii() and name.removeprefix("-").isdecimal():
        return int(name)
    if kind == "f":
        try:
            return float(name)
        except ValueError:
            return name
    return name


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    done = [f"{summary[name]:,} {name}" for name in ("renamed", "merged", "dropped", "added") if summary[name]]
    rows = [("changes", ", ".join(done)), ("labels", f"{summary['labels']:,}")]
    if summary["gap_after"] is not None:
        gaps = f"{summary['gap_after']:.2e} of the objective; {summary['gap_before']:.2e} before"
        rows.append(("certified gap", gaps))
    if summary["stale"]:
        rows.append(("out of date", f"{', '.join(summary['stale'])}; fitted to the old labels and dropped"))
    rows.append(("time", f"{summary['seconds']:.1f} s ({summary['cpu_seconds']:.1f} s CPU)"))
    rows.append(("version", f"{summary['version']:,}"))
    rows.append(("model size", console.size_text(summary["model_bytes"])))
    return rows
