"""What the commands share: where text goes, tables, JSON, the progress bar, warnings as one line."""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from widemargin.solvers.result import Callback
from widemargin.solvers.result import Progress as SolverProgress

__all__ = [
    "gap_text",
    "output",
    "print_columns",
    "print_json",
    "print_note",
    "print_table",
    "progress_bar",
    "short_warnings",
    "size_text",
    "stdout_is_utf8",
]


LONGEST_NAME = 40
"""A name in the first column of a table that is not folded."""
USUAL, WIDEST = 80, 10_000
"""Characters in a line: of a usual terminal, and where there is no limit."""


def print_json(values: Mapping[str, Any]) -> None:
    """One JSON object on standard output; numbers that JSON has no word for, inf and nan, are null."""
    text = json.dumps(_finite(values), indent=2, ensure_ascii=not stdout_is_utf8(), allow_nan=False)
    sys.stdout.write(text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def stdout_is_utf8() -> bool:
    """Whether standard output takes every character."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"


def print_note(sentence: str) -> None:
    """A line on standard error about what is going on."""
    sys.stderr.write(f"widemargin: {sentence}\n")


def output(without_terminal: int = WIDEST) -> Console:
    """Standard output for text of any kind: names of labels and files may look like rich's markup.

    A pipe or a file has no width that text would have to fit, unless COLUMNS says one, or the caller does.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = without_terminal
    return console


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of names and values on standard output; long ones are folded, in a pipe as on a usual terminal."""
    table = Table(show_header=False)
    table.add_column(style="cyan", no_wrap=all(len(name) <= LONGEST_NAME for name, _ in rows), overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    output().print(title, style="bold", soft_wrap=True)
    output(USUAL).print(table)


def print_columns(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, n_keys: int, marked: int | None
) -> None:
    """A table whose cells are never cut: columns that do not fit the terminal follow below, with the first ones again.

    One row may be marked.
    """
    console = output()
    console.print(title, style="bold", soft_wrap=True)  # it may name a long path
    rest = list(range(n_keys, len(names)))
    while rest:
        n_fit = len(rest)
        while n_fit > 1 and _width(_part(names, rows, n_keys, rest[:n_fit], marked)) > console.width:
            n_fit -= 1
        table = _part(names, rows, n_keys, rest[:n_fit], marked)
        console.width, width = max(_width(table), console.width), console.width
        console.print(table)
        console.width = width
        console.print()
        rest = rest[n_fit:]


def _part(
    names: Sequence[str], rows: Sequence[Sequence[str]], n_keys: int, columns: Sequence[int], marked: int | None
) -> Table:
    """A table of the first columns and some others; text to the left, numbers to the right."""
    shown = [*range(n_keys), *columns]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in shown:
        is_text = any(row[column][:1].isalpha() for row in rows)
        table.add_column(names[column], justify="left" if is_text else "right", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*(row[column] for column in shown), style="bold" if number == marked else None)
    return table


def _width(table: Table) -> int:
    """Characters that a table needs."""
    console = output()
    return Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callback]:
    """A bar on a terminal's standard error, nothing elsewhere; yields the callback for a solver."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def update(progress: SolverProgress) -> bool:
            bar.update(task, completed=progress.done, total=progress.total)
            return False

        yield update


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Show warnings as one line on standard error, without the source line."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        sys.stderr.write(f"widemargin: warning: {message}\n")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def size_text(n_bytes: int) -> str:
    """A size for people: 1.5 MB."""
    size = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def gap_text(certificate: dict[str, Any]) -> str:
    """The relative gap as stored and, where pruning cost something, before it."""
    before = certificate["primal_before_pruning"]
    text = f"{certificate['relative_gap']:.2e} of the objective"
    if before != certificate["primal"] and before > 0:
        text += f" as stored, {(before - certificate['dual']) / before:.2e} before pruning"
    return text
