"""What the commands share: where text goes, tables, JSON, the progress bar, warnings as one line."""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from widemargin.solvers.result import Callback
from widemargin.solvers.result import Progress as SolverProgress

__all__ = [
    "gap_text",
    "print_json",
    "print_note",
    "print_table",
    "progress_bar",
    "short_warnings",
    "size_text",
    "stdout_is_utf8",
]


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


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of names and values on standard output."""
    table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    Console().print(table)


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
