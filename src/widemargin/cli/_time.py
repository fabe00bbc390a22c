"""Time on the command line: durations such as 10m, and a bar that says how much of it is left."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["parse_seconds", "time_bar"]

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def parse_seconds(text: str | None) -> float | None:
    """A duration such as 90s, 10m or 1.5h; without a unit, seconds."""
    if text is None:
        return None
    match = DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) == 0.0:
        raise ValueError(f"--budget takes a time such as 90s, 10m or 1.5h; got {text!r}")
    return float(match[1]) * UNITS[match[2] or "s"]


@contextlib.contextmanager
def time_bar(first: str) -> Iterator[Callable[[str, float, float], None]]:
    """A bar on a terminal's standard error with the time that is left; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(first, total=None, left="")

        def show(what: str, elapsed: float, total: float) -> None:
            left = f"about {max(total - elapsed, 0.0):.0f} s left"
            bar.update(task, description=what, completed=elapsed, total=total, left=left)

        yield show
