"""`widemargin convert`: between data formats, and into a memory-mapped store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widemargin.cli._console import print_json, print_table, short_warnings
from widemargin.cli._text import refuse_table
from widemargin.data.load import load_data, recognize_format, refuse_input_as_output
from widemargin.data.save import format_of_name, save_data
from widemargin.data.text_store import write_text_store

__all__ = ["run"]


def run(
    source: Path,
    target: Path,
    options: dict[str, Any],
    *,
    labels: Path | None,
    features: Path | None,
    as_json: bool,
) -> None:
    """Read one format, write another, and report what went through."""
    refuse_input_as_output(target, source, labels, features)
    refuse_table(source, "convert")
    options = {"label_names": labels, "feature_names": features, **options}
    written = format_of_name(target)
    with short_warnings():
        if written == "store" and recognize_format(source) in ("xmc", "svmlight"):
            dataset = write_text_store(target, source, **options)  # of any size
        else:
            dataset = load_data(source, **options)
            save_data(target, dataset)
    summary = {
        "from": str(source),
        "to": str(target),
        "format": written,
        "rows": int(dataset.X.shape[0]),
        "features": int(dataset.X.shape[1]),
        "labels": None if dataset.Y is None or dataset.Y.ndim == 1 else int(dataset.Y.shape[1]),
        "normalized": options["normalize"],
    }
    if as_json:
        print_json(summary)
    else:
        print_table(f"{source} to {target}", [(name, _text(value)) for name, value in summary.items()])


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
