"""What the commands share on the terminal: tables, JSON and progress bars. rich is imported only to draw them."""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "gap_text", "output", "print_columns", "print_json", "print_note",
    "print_table", "progress_bar", "size_text", "stdout_is_utf8", "time_bar",
]  # fmt: skip

LONGEST_NAME = 40
"""Length of a name in the first column of a table that is not folded."""
USUAL, WIDEST = 80, 10_000
"""Characters per line: of a usual terminal, and where there is no limit."""


def print_note(sentence: str) -> None:
    """A line on standard error about what is going on."""
    sys.stderr.write(f"widemargin: {sentence}\n")


def print_json(values: Mapping[str, Any]) -> None:
    """One JSON object on standard output; inf and nan, which JSON lacks, are null."""
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


def output(without_terminal: int = WIDEST) -> Any:
    """A rich console on standard output for any text: names of labels and files may look like rich's markup.

    A pipe or a file has no line width unless COLUMNS or the caller sets one.
    """
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = without_terminal
    return console


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of names and values on standard output; long ones are folded, in a pipe as on a usual terminal."""
    from rich.table import Table

    table = Table(show_header=False)
    longest = max(map(len, dict(rows)), default=0)
    table.add_column(style="cyan", no_wrap=longest <= LONGEST_NAME, overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    output().print(title, style="bold", soft_wrap=True)
    output(USUAL).print(table)


def print_columns(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, n_keys: int, marked: int | None
) -> None:
    """A table whose cells are never cut: columns that do not fit the terminal follow below, after the first ones again.

    One row may be marked.
    """
    from rich.measure import Measurement

    console = output()
    console.print(title, style="bold", soft_wrap=True)  # it may name a long path
    endless = console.options.update(max_width=WIDEST)
    rest = list(range(n_keys, len(names)))
    while rest:
        for n_fit in range(len(rest), 0, -1):
            table = _part(names, rows, [*range(n_keys), *rest[:n_fit]], marked)
            width = Measurement.get(console, endless, table).maximum
            if width <= console.width:
                break
        console.width, usual = max(width, console.width), console.width
        console.print(table)
        console.width = usual
        console.print()
        rest = rest[n_fit:]


def _part(names: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int], marked: int | None) -> Any:
    """A table of some columns; text to the left, numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in shown:
        is_text = any(row[column][:1].isalpha() for row in rows)
        table.add_column(names[column], justify="left" if is_text else "right", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*(row[column] for column in shown), style="bold" if number == marked else None)
    return table


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[Any], bool] | None]:
    """A bar on a terminal's standard error; yields the callback for a solver, None where there is no terminal."""
    with _bar(what, "MofNCompleteColumn", "TimeElapsedColumn", "TimeRemainingColumn") as update:

        def callback(progress: Any) -> bool:
            update(completed=progress.done, total=progress.total)
            return False

        yield callback if update else None


@contextlib.contextmanager
def time_bar(what: str) -> Iterator[Callable[[str, float, float], None] | None]:
    """A bar on a terminal's standard error with the time that is left; yields None where there is no terminal."""
    with _bar(what, "TimeElapsedColumn") as update:

        def show(what: str, elapsed: float, total: float) -> None:
            left = f"{what}, about {max(total - elapsed, 0.0):.0f} s left"
            update(description=left, completed=elapsed, total=total)

        yield show if update else None


@contextlib.contextmanager
def _bar(what: str, *columns: str) -> Iterator[Any]:
    """A function that updates a bar on standard error; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    parts = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        *(getattr(progress, n)() for n in columns),
    )
    with progress.Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        yield functools.partial(bar.update, bar.add_task(what, total=None))


def size_text(n_bytes: float) -> str:
    """A size for people: 1.5 MB."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} bytes"
    for unit in ("kB", "MB"):
        n_bytes /= 1000
        if n_bytes < 1000:
            return f"{n_bytes:.1f} {unit}"
    return f"{n_bytes / 1000:.1f} GB"


def gap_text(certificate: dict[str, Any]) -> str:
    """The relative gap as stored and, where pruning cost something, before it."""
    before = certificate["primal_before_pruning"]
    text = f"{certificate['relative_gap']:.2e} of the objective"
    if before != certificate["primal"] and before > 0:
        text += f" as stored, {(before - certificate['dual']) / before:.2e} before pruning"
    return text
