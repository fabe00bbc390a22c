"""The tables as Markdown sections, shared by the dated result file and the page of the documentation."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from _common import format_table, write_text
from rivals_from_pypi.environments import Environment
from rivals_from_pypi.measuring import Results, Row
from rivals_from_pypi.rivals import OURS, Entry, Rival
from rivals_from_pypi.tasks import Task

TITLE = "Rivals from PyPI"
INTRO = """\
One command, `make bench-rivals`, runs widemargin and every rival available from PyPI. Each rival has its own virtual
environment, and each run its own process with one thread. C = 1 and the settings in the table apply; everything else is
the package's default. Neither our settings nor theirs are tuned for the data.

- *CPU s*: CPU seconds of training, all threads and child processes, without reading or converting data (except omikuji,
  whose training reads its file). Steps shorter than two seconds are the median of three.
- *memory*: largest resident memory of the whole process, with Python, libraries and data.
- *model*: bytes on disk as saved by the package; for LIBLINEAR, which has no model with many labels, the weights in
  memory.
- *µs per row*: CPU time to find the top 5 labels (trees: one node) of a test row, with all rows in one call if the
  package allows it.
- Quality is computed by `widemargin.metrics` from the lists that each process wrote, in per cent of the test rows.

Ratios are relative to the first line of each table, whose times are the mean of one run before the others and one after
them. Trees of labels (omikuji, PLT, XR-Linear, libmultilabel's tree) solve a different problem from one-vs-all, and
omikuji combines three trees. Read time and quality together."""
NOT_MADE_FOR = """\
Not run here, because they solve one full problem per label, which takes over an hour of CPU time at the rates measured
by `benchmarks/one_vs_all.py`: {}."""


def sections(tasks: Sequence[Task], rivals: Sequence[Rival], results: Results, machine: str, limit_s: int) -> list[str]:
    """All sections below the title."""
    date = datetime.date.today().isoformat()
    about = f"Measured on {date}. Machine: {machine}. A run may take {limit_s} CPU seconds.\n"
    about += "The machine was shared: treat differences below a third as noise."
    parts = [INTRO, about, "## Which rivals install\n\n" + _install_table(rivals, results)]
    for task in tasks:
        if task.name in results.rows:
            parts.append(_task_section(task, results))
    if results.missing:
        parts.append(f"Not measured, because the data are missing: {', '.join(results.missing)}.")
    return parts


def write_page(path: Path, parts: Sequence[str]) -> None:
    """Write the page of the documentation."""
    write_text(path, "\n\n".join([f"# {TITLE}", *parts]) + "\n")


def _install_table(rivals: Sequence[Rival], results: Results) -> str:
    versions = {
        entry.rival: row["version"] for rows in results.rows.values() for entry, row in rows if "version" in row
    }
    lines = []
    for rival in rivals:
        if rival.name != OURS:
            environment: Environment = results.environments[rival.name]
            outcome = "yes" if environment.python is not None else f"no: {environment.reason}"
            if rival.instead_of_dependencies and environment.python is not None:
                outcome += f", with `--no-deps` and {', '.join(f'`{name}`' for name in rival.instead_of_dependencies)}"
            lines.append([rival.name, versions.get(rival.name, "–"), outcome])
    return format_table(["rival", "version", "installs"], lines)


def _task_section(task: Task, results: Results) -> str:
    sizes, rows = results.sizes[task.name], results.rows[task.name]
    unit = {"multilabel": "labels", "multiclass": "classes", "tree": "nodes"}[task.kind]
    head = f"## {task.name}\n\n{task.text} {sizes['n_train']:,} training and {sizes['n_test']:,} test rows, "
    head += f"{sizes['n_features']:,} features, {sizes['n_labels']:,} {unit}."
    columns = ["method", "CPU s", "× ours", "memory MB", "model MB", "µs per row", "× ours", *task.measures]
    ours = next((row for entry, row in rows if entry.rival == OURS and not row["reason"]), None)
    lines = [_line(entry, row, ours, sizes["n_test"], task.measures) for entry, row in rows if not row["reason"]]
    parts = [head, format_table(columns, lines)]
    failed = [f"- {_name(entry)}: {row['reason']}" for entry, row in rows if row["reason"]]
    if failed:
        parts.append("Without a result:\n\n" + "\n".join(failed))
    if results.left_out[task.name]:
        parts.append(NOT_MADE_FOR.format(", ".join(_name(entry) for entry in results.left_out[task.name])))
    return "\n\n".join(parts)


def _line(entry: Entry, row: Row, ours: Row | None, n_test: int, measures: Sequence[str]) -> list[str]:
    times = [_ratio(row[name], ours and ours[name]) for name in ("train_cpu_s", "predict_cpu_s")]
    seconds, micro = f"{row['train_cpu_s']:.3g}", f"{1e6 * row['predict_cpu_s'] / n_test:.3g}"
    memory, model = f"{row['peak_bytes'] / 1e6:.0f}", f"{row['model_bytes'] / 1e6:.3g}"
    scores = [f"{row['quality'][name]:.2f}" for name in measures]
    return [_name(entry), seconds, times[0], memory, model, micro, times[1], *scores]


def _ratio(value: float, ours: float | None) -> str:
    return f"{value / ours:.2g}" if ours else "–"


def _name(entry: Entry) -> str:
    return f"{entry.rival}: {entry.label}"
