"""Text generated from the code and from stored results when pages are read, so that it cannot go stale.

A comment such as `% generated: commands` in a page is replaced by the generated text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MARK = re.compile(r"^% generated: (\w+)$", re.MULTILINE)
RESULT_NAME = re.compile(r"(\d{4}-\d\d-\d\d)-(.+)\.md")
FENCE = "`````"


def commands() -> str:
    """The commands of `widemargin` with all their arguments and options, as MyST."""
    import typer

    from widemargin.cli.__main__ import make_app

    group = typer.main.get_command(make_app())
    return "\n\n".join(_command(name, command) for name, command in group.commands.items())


def _command(name: str, command: Any) -> str:
    """A section about one command; its options are link targets."""
    context = command.context_class(command, info_name=f"widemargin {name}")
    usage = " ".join([f"widemargin {name}", *command.collect_usage_pieces(context)])
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    lines = [f"## {name}", "", f"{FENCE}{{program}} widemargin {name}", FENCE, "", _prose(command.help or "")]
    lines += ["", "```text", usage, "```"]
    if command.epilog:
        lines += ["", _prose(command.epilog)]
    for signature, text in filter(None, records):
        choices = signature.replace("|", " | ")  # allows line breaks in a long list
        lines += ["", f"{FENCE}{{option}} {choices}", _escaped(text), FENCE]
    return "\n".join(lines)


def _prose(text: str) -> str:
    """Help text as paragraphs, with an example at the end as code."""
    text = _escaped(re.sub(r"(?<!\n)\n(?!\n)", " ", text).replace("\f", ""))
    return re.sub(r"(widemargin (?:[\w.-]+ ?)+.*)$", r"`\1`", text) if text.startswith("Example") else text


def _escaped(text: str) -> str:
    """Text with markup characters escaped."""
    return re.sub(r"([*_`<>\[\]|$])", r"\\\1", text)


def results() -> str:
    """The newest stored result of every benchmark, as MyST."""
    newest: dict[str, Path] = {}
    for path in sorted(RESULTS.glob("*.md")):
        if found := RESULT_NAME.fullmatch(path.name):
            newest[found[2]] = path
    return "\n\n".join(_result(path) for _, path in sorted(newest.items()))


def _result(path: Path) -> str:
    """One result, with headings one level down and the date below the first."""
    date = path.name[:10]
    title, *rest = path.read_text(encoding="utf-8").strip().splitlines()
    body = (f"#{line}" if line.startswith("#") else line for line in rest)
    return "\n".join([f"#{title}", "", f"Measured {date}.", *body])


GENERATORS: dict[str, Callable[[], str]] = {"commands": commands, "results": results}


def replace_marks(text: str) -> str:
    """A page with its marks replaced by generated text."""
    return MARK.sub(lambda mark: GENERATORS[mark[1]](), text)


def _on_source_read(app: Any, docname: str, source: list[str]) -> None:
    source[0] = replace_marks(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.connect("source-read", _on_source_read)
    return {"parallel_read_safe": True}
