"""`widemargin compress`: a smaller copy of a model folder, with the certificate of what it stores."""

from __future__ import annotations

import time
from typing import Any

from sklearn.pipeline import Pipeline

from widemargin.cli import console, inputs
from widemargin.cli.inspect import compression_text
from widemargin.cli.options import Given
from widemargin.cli.update import labelled_rows
from widemargin.data.load import label_files
from widemargin.estimators.compression import compress
from widemargin.estimators.persistence import load, save
from widemargin.estimators.update import precision_of
from widemargin.files import refuse_input_as_output
from widemargin.model_io import check_writable, folder_size

__all__ = ["run"]


def run(given: Given) -> None:
    """Load, compress, write, and report."""
    sources = [path for path in (given.rows, given.test) if path is not None]
    names = [name for path in sources for name in label_files(path)]
    refuse_input_as_output(given.out, given.model, *sources, *names)
    check_writable(given.out)
    wall, cpu = time.perf_counter(), time.process_time()
    opened, model = inputs.open_model(given.model, given, verify=False), load(given.model)
    rows = None if given.rows is None else labelled_rows(opened, given, given.rows)[:2]
    test = None if given.test is None else labelled_rows(opened, given, given.test)[:2]
    small = compress(
        model,
        bits=None if given.bits is None else int(given.bits),
        max_size_mb=given.max_size,
        max_gap=given.max_gap,
        keep_exact_bounds=given.keep_exact_bounds,
        rows=rows,
        n_jobs=given.jobs,
    )
    save(small, given.out)
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    summary = summarize(model, small) | {"model": str(given.out), "bytes": folder_size(given.out)} | seconds
    if test is not None:
        for when, fitted in (("before", model), ("after", small)):
            summary[f"precision_{when}"] = {str(k): value for k, value in precision_of(fitted, test).items()}
    if given.json:
        console.print_json(summary)
    else:
        console.print_table(f"Model in {given.out}", table_rows(summary))


def summarize(model: Any, small: Any) -> dict[str, Any]:
    """The compression as plain values."""
    before, after = (fitted[-1] if isinstance(fitted, Pipeline) else fitted for fitted in (model, small))
    stale = getattr(getattr(before, "decision_", None), "acceptance", None) is not None
    return {
        "compression": after.compression_ | {"exact_bounds": hasattr(after, "compression_errors_")},
        "weights": after._n_weights(),
        "certificate": after.certificate_.to_dict(),
        "gap_before": before.certificate_.relative_gap,
        "gap_after": after.certificate_.relative_gap,
        "stale": ["acceptance"] if stale else [],
    }


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    rows = [
        ("compression", compression_text(summary)),
        ("weights", f"{summary['weights']:,} of {summary['compression']['weights_before']:,}"),
        ("certified gap", f"{summary['gap_after']:.2e} of the objective; {summary['gap_before']:.2e} before"),
    ]
    for when in ("before", "after"):
        if f"precision_{when}" in summary:
            values = summary[f"precision_{when}"]
            text = " / ".join(f"{value:.4f}" for value in values.values())
            rows.append((f"P@{' / '.join(values)} {when}", text))
    if summary["stale"]:
        rows.append(("out of date", f"{', '.join(summary['stale'])}; proven for the full weights and dropped"))
    rows.append(("time", f"{summary['seconds']:.1f} s ({summary['cpu_seconds']:.1f} s CPU)"))
    return rows
