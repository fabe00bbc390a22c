"""Run the command line inside the test process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from widemargin.cli.__main__ import make_app


def assert_refused(arguments, message):
    """A command that fails with a message and no traceback; a training leaves no model `new` behind."""
    out = ["--out", "new"] if arguments[0] == "train" else []
    result = invoke(*arguments, *out, exit_code=1)
    assert message in result.output
    assert "Traceback" not in result.output
    assert not Path("new").exists()


def invoke(*arguments, exit_code=0, **options):
    """Run `widemargin` with these arguments, which must exit with `exit_code` and never by a traceback."""
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments], **options)
    assert result.exit_code == exit_code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
