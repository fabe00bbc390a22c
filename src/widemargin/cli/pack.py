"""`widemargin pack`: a model as one file."""

from __future__ import annotations

from widemargin.cli import console
from widemargin.cli.options import Given
from widemargin.estimators.persistence import pack
from widemargin.model_io import describe_model, folder_size

__all__ = ["run"]


def run(given: Given) -> None:
    """Write the file and report its size."""
    pack(given.model, given.target)
    summary = {
        "from": str(given.model),
        "to": str(given.target),
        "class": describe_model(given.target)["kind"],
        "bytes_before": folder_size(given.model),
        "bytes": folder_size(given.target),
    }
    if given.json:
        console.print_json(summary)
        return
    sizes = {name: console.size_text(summary[name]) for name in ("bytes_before", "bytes")}
    rows = [("model", str(summary["class"])), ("size before", sizes["bytes_before"]), ("size", sizes["bytes"])]
    console.print_table(f"{given.model} to {given.target}", rows)
