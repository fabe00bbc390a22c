"""The commands that write reports, their options and help; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemargin.cli._failure import report_failures
from widemargin.cli._options import Base, Data, IndexBase, Jobs, Json, Model
from widemargin.cli._text_options import TableColumns, label_table_options

__all__ = ["demo", "report"]


@report_failures
@label_table_options
def report(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="HTML", help="File to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Headline of the page.", show_default="the model's name")] = None,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Json = False,
    table: TableColumns | None = None,
) -> None:
    """Write a page on a model, measured on labelled rows, that a browser shows without a network.

    Quality and certificate, pictures, a table of the labels to search and sort, and the worst mistakes with the
    features that made them.
    """
    from widemargin.cli import _report

    _report.run(model, data, out, title, jobs, zero_based=index_base.zero_based, as_json=json, table=table)


@report_failures
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the models.")] = Path("widemargin-demo"),
    json: Json = False,
) -> None:
    """Train, certify and measure every family on embedded data, compare them, and write a report."""
    from widemargin.cli import _demo

    _demo.run(out, as_json=json)
