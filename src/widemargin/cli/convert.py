"""`widemargin convert`: between data formats, and into a memory-mapped store."""

from __future__ import annotations

from typing import Any

from widemargin.cli.console import print_json, print_table
from widemargin.cli.inputs import refuse_table
from widemargin.cli.options import Given, zero_based
from widemargin.data.load import format_of_name, label_files, load_data, recognize_format, save_data
from widemargin.data.stream import write_text_store
from widemargin.files import refuse_input_as_output

__all__ = ["run"]


def run(given: Given) -> None:
    """Read one format, write another, and report the sizes."""
    source, target = given.source, given.target
    refuse_input_as_output(target, source, given.labels, given.features, *label_files(source))
    refuse_table(source, "convert")
    options: dict[str, Any] = {"label_names": given.labels, "feature_names": given.features}
    options |= {"normalize": given.normalize, "zero_based": zero_based(given)}
    written = format_of_name(target)
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
        "normalized": given.normalize,
    }
    if given.json:
        print_json(summary)
    else:
        print_table(
            f"{source} to {target}",
            [(name, f"{value:,}" if type(value) is int else str(value)) for name, value in summary.items()],
        )
