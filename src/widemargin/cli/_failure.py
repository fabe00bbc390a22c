"""Failures of a command: one sentence on standard error and an exit code, no traceback.

Exit codes: 0 success, 1 a failure that the message explains, 2 wrong usage (typer's), 130 interrupted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from widemargin.exceptions import WidemarginError

__all__ = ["FAILED", "INTERRUPTED", "report_failures"]

FAILED = 1
INTERRUPTED = 130  # the shell's code for a process ended by Ctrl-C

P = ParamSpec("P")


def report_failures(command: Callable[P, None]) -> Callable[P, None]:
    """Turn the errors a user can cause or mend into a message and an exit code; others keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (WidemarginError, OSError, ValueError, MemoryError) as error:
            sys.stderr.write(f"widemargin: {_sentence(error)}\n")
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt:
            sys.stderr.write("widemargin: interrupted; nothing was written\n")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
