"""`widemargin export`: a model in a form that other programs can run."""

from __future__ import annotations

import os

from widemargin.cli.console import print_json, print_table, size_text
from widemargin.cli.options import Given
from widemargin.estimators.onnx_export import write_onnx
from widemargin.estimators.persistence import load
from widemargin.files import check_file_target, refuse_input_as_output
from widemargin.page import export_html

__all__ = ["run"]


def run(given: Given) -> None:
    """Write the file, and report its size."""
    targets = [path for path in (given.html, given.onnx) if path is not None]
    if len(targets) != 1:
        problem = "only one form can be written at a time" if targets else "there is nothing to export"
        raise ValueError(f"{problem}; name a file with --html or --onnx")
    for name, owner in (("k", "onnx"), ("title", "html")):
        if name in given.raw and getattr(given, owner) is None:
            raise ValueError(f"--{name} has an effect only with --{owner}; leave it out")
    (target,) = targets
    check_file_target(target)
    refuse_input_as_output(target, given.model)
    model = load(given.model)
    if given.html is not None:
        export_html(model, target, title=given.title or given.model.resolve().name)
    else:
        write_onnx(model, target, given.k)
    n_bytes, classifier = os.path.getsize(target), model[-1] if hasattr(model, "steps") else model
    summary = {"model": str(given.model), "file": str(target), "bytes": n_bytes}
    summary |= {"features": int(classifier.n_features_in_), "labels": len(classifier.classes_)}
    if given.json:
        print_json(summary)
    else:
        rows = [(name, f"{summary[name]:,}") for name in ("features", "labels")]
        print_table(f"Model in {target}", [*rows, ("size", size_text(n_bytes))])
