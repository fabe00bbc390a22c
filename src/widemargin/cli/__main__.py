"""Entry point of `widemargin` and of `python -m widemargin.cli`: the application, and what becomes of its failures.

The application is made from the table of options. A failure is one sentence on standard error and an exit code, without
a traceback: 0 success, 1 a failure that the message explains, 2 wrong usage (typer's), 3 a training to be resumed,
130 interrupted, 141 the reader of standard output went away (as `head` does).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import io
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from widemargin import __version__, _core
from widemargin.cli.console import print_note
from widemargin.cli.options import COMMANDS, OPTIONS_OF, converted, gather, signature
from widemargin.exceptions import TrainingInterrupted, UnfinishedTrainingError, WidemarginError

__all__ = ["main", "make_app"]

FAILED = 1
UNFINISHED = 3
INTERRUPTED = 130  # the shell's code for a process ended by Ctrl-C
BROKEN_PIPE = 141  # the shell's code for a process ended by a broken pipe
SUMMARY = "Large-margin linear classification with many labels: fast, exact, and certified."


def main() -> None:
    """Run the command line; without its extra installed, say how to get it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that a terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        app = make_app()
        _core.explain_bus_errors()
        app()
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.exit("The command-line interface requires typer and rich; run: pip install 'widemargin[cli]'")
    except KeyboardInterrupt:  # before a command starts; later ones are caught there
        print_note("interrupted")
        sys.exit(INTERRUPTED)


@functools.cache
def make_app() -> Any:
    """The application with all commands; the module of a command is imported when it runs."""
    import typer
    from typer.core import TyperCommand, TyperGroup

    class ByTable:
        """A command, or the group of commands, whose values the table of options converts."""

        def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
            options = OPTIONS_OF.get(self.name, {})
            for parameter in self.get_params(ctx):
                slowly = parameter.process_value
                parameter.process_value = functools.partial(converted, options.get(parameter.name), slowly)
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]

    class Commands(ByTable, TyperGroup):
        """All commands, and the options of `widemargin` itself."""

    class Grouped(ByTable, TyperCommand):
        """A command whose help lists the options by their panels."""

        def format_options(self, ctx: Any, formatter: Any) -> None:
            panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
            for parameter in self.get_params(ctx):
                is_option = parameter.param_type_name == "option"
                panel = getattr(parameter, "rich_help_panel", None) or "Options" if is_option else "Arguments"
                if (record := parameter.get_help_record(ctx)) is not None:
                    panels.setdefault(panel, []).append(record)
            for panel, records in panels.items():
                if records:
                    with formatter.section(panel):
                        formatter.write_dl(records)

    app = typer.Typer(
        name="widemargin",
        cls=Commands,
        help=SUMMARY,
        epilog="Try it on bundled data: widemargin demo",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help: rich would add 0.1 s to the start
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def version_option(
        version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    ) -> None:
        if version:
            typer.echo(f"widemargin {__version__}")
            raise typer.Exit

    for name, command in COMMANDS.items():
        run = _callback(name, signature(name, typer))
        app.command(name, cls=Grouped, help=command.help, epilog=f"Example: {command.example}")(run)
    return app


def _callback(command: str, parameters: inspect.Signature) -> Any:
    """The function behind a command, which imports its module."""

    def run(**values: Any) -> None:
        writes = values.get("out") is not None or "target" in values or command in ("update", "labels")
        with _failures_explained(writes):
            module, _, function = COMMANDS[command].runs.partition(":")
            given = gather(command, values)
            with _quick_imports():
                imported = importlib.import_module(f"widemargin.cli.{module}")
            getattr(imported, function)(given)

    run.__name__ = command
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.parameters.items()}
    run.__dict__["__signature__"] = parameters
    return run


@contextlib.contextmanager
def _quick_imports() -> Iterator[None]:
    """Save 0.4 of 1.5 s in which modules are imported.

    They make 250,000 objects that stay, so no garbage is looked for among them. scikit-learn imports pandas if it is
    installed, and makes no use of it; tables and frames import it themselves.
    """
    gc.disable()
    try:
        if "pandas" not in sys.modules:
            sys.modules["pandas"] = None  # type: ignore[assignment]  # how Python marks a module that does not exist
            try:
                import sklearn.base  # noqa: F401
            finally:
                del sys.modules["pandas"]
        yield
    finally:
        gc.enable()  # after a missing extra, too


@contextlib.contextmanager
def _failures_explained(writes: bool) -> Iterator[None]:
    """Turn errors that a user can cause or fix into a message and an exit code; others keep their traceback.

    A warning is one line on standard error, without the source line.
    """

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print_note(f"warning: {message}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = show
            yield
        sys.stdout.flush()  # here, where a failure can still be reported
    except BrokenPipeError as error:
        if isinstance(sys.stdout, io.TextIOWrapper):  # discard the buffer; closing it would fail again
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise SystemExit(BROKEN_PIPE) from error
    except (WidemarginError, OSError, ValueError, MemoryError) as error:
        sentence = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            sentence = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        print_note(sentence)
        raise SystemExit(UNFINISHED if isinstance(error, UnfinishedTrainingError) else FAILED) from error
    except TrainingInterrupted as error:
        print_note(f"interrupted; {error}")
        raise SystemExit(INTERRUPTED) from None
    except KeyboardInterrupt:
        print_note(f"interrupted{'; no partial output was left behind' if writes else ''}")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
