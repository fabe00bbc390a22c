"""`widemargin export`: a model in a form that other programs can run."""

from __future__ import annotations

from widemargin.cli.console import print_json, print_table, size_text
from widemargin.cli.options import Given
from widemargin.estimators.persistence import load
from widemargin.files import check_file_target, refuse_input_as_output
from widemargin.page import export_html

__all__ = ["run"]


def run(given: Given) -> None:
    """Write the file, and report its size."""
    if given.html is None:
        raise ValueError("there is nothing to export; name a file with --html")
    check_file_target(given.html)
    refuse_input_as_output(given.html, given.model)
    n_bytes = export_html(load(given.model), given.html, title=given.title or given.model.resolve().name)
    if given.json:
        print_json({"model": str(given.model), "file": str(given.html), "bytes": n_bytes})
    else:
        print_table(f"Page in {given.html}", [("model", str(given.model)), ("size", size_text(n_bytes))])
