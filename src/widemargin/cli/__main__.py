"""Entry point of `widemargin` and of `python -m widemargin.cli`: the application, made from the table of options."""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import sys
from typing import Any

from widemargin import __version__, _core
from widemargin.cli.console import INTERRUPTED, failures_explained, print_note
from widemargin.cli.options import COMMANDS, OPTIONS_OF, converted, gather, signature

__all__ = ["main", "make_app"]

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
        sys.exit("The command line needs typer and rich: pip install 'widemargin[cli]'")
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
        epilog="Try it on embedded data: widemargin demo",
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
        with failures_explained(writes=values.get("out") is not None or "target" in values):
            module, _, function = COMMANDS[command].runs.partition(":")
            given = gather(command, values)
            getattr(importlib.import_module(f"widemargin.cli.{module}"), function)(given)

    run.__name__ = command
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.parameters.items()}
    run.__dict__["__signature__"] = parameters
    return run


if __name__ == "__main__":
    main()
