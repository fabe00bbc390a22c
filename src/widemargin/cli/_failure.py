"""Failures of a command: one sentence on standard error and an exit code, no traceback.

Exit codes: 0 success, 1 a failure that the message explains, 2 wrong usage (typer's), 3 a training that goes on when it
is started again, 130 interrupted, 141 the reader of standard output went away (as `head` does).
"""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from widemargin.exceptions import TrainingInterrupted, UnfinishedTrainingError, WidemarginError

__all__ = ["BROKEN_PIPE", "FAILED", "INTERRUPTED", "UNFINISHED", "report_failures"]

FAILED = 1
UNFINISHED = 3
INTERRUPTED = 130  # the shell's code for a process ended by Ctrl-C
BROKEN_PIPE = 141  # the shell's code for a process ended by a broken pipe

P = ParamSpec("P")


def report_failures(command: Callable[P, None]) -> Callable[P, None]:
    """Turn the errors a user can cause or mend into a message and an exit code; others keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()  # here, where a failure can still be told
        except BrokenPipeError as error:
            _discard_output()
            raise typer.Exit(BROKEN_PIPE) from error
        except (WidemarginError, OSError, ValueError, MemoryError) as error:
            sys.stderr.write(f"widemargin: {_sentence(error)}\n")
            raise typer.Exit(UNFINISHED if isinstance(error, UnfinishedTrainingError) else FAILED) from error
        except TrainingInterrupted as error:
            sys.stderr.write(f"widemargin: interrupted; {error}\n")
            raise typer.Exit(INTERRUPTED) from None
        except KeyboardInterrupt:
            writes = kwargs.get("out") is not None or "target" in kwargs
            sys.stderr.write(f"widemargin: interrupted{'; no unfinished result was left' if writes else ''}\n")
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


def _discard_output() -> None:
    """Send what is still in the buffer of standard output nowhere, so that closing it does not fail again."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
