"""`widemargin export`: a model in a form that other programs can run."""

from __future__ import annotations

import os

from widemargin.cli.console import print_json, print_table, size_text
from widemargin.cli.options import Given
from widemargin.estimators.onnx_export import write_onnx
from widemargin.estimators.persistence import load
from widemargin.files import check_file_target, refuse_input_as_output

__all__ = ["run"]


def run(given: Given) -> None:
    """Write the file, and report its size."""
    if given.onnx is None:
        raise ValueError("there is nothing to export; name a file with --onnx")
    check_file_target(given.onnx)
    refuse_input_as_output(given.onnx, given.model)
    model = load(given.model)
    write_onnx(model, given.onnx, given.k)
    n_bytes = os.path.getsize(given.onnx)
    summary = {"model": str(given.model), "file": str(given.onnx), "bytes": n_bytes}
    summary |= {"features": int(model.n_features_in_), "labels": len(model.classes_)}
    if given.json:
        print_json(summary)
    else:
        rows = [("features", f"{model.n_features_in_:,}"), ("labels", f"{len(model.classes_):,}")]
        print_table(f"Model in {given.onnx}", [*rows, ("size", size_text(n_bytes))])
