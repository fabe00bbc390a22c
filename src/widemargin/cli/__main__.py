"""Entry point of `widemargin` and of `python -m widemargin.cli`."""

from __future__ import annotations

import io
import sys

from widemargin import _core

__all__ = ["main"]

INTERRUPTED = 130  # as in widemargin.cli._failure, which needs typer


def main() -> None:
    """Run the command line; without its extra installed, say how to get it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that a terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        _run()
    except KeyboardInterrupt:  # before a command has begun; later ones are caught there
        sys.stderr.write("widemargin: interrupted\n")
        sys.exit(INTERRUPTED)


def _run() -> None:
    try:
        from widemargin.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.exit("The command line needs typer and rich: pip install 'widemargin[cli]'")
    _core.explain_bus_errors()
    app()


if __name__ == "__main__":
    main()
