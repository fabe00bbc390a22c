"""`widemargin demo`: the whole way on embedded data, from rows to a certified and evaluated model and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widemargin.cli._console import gap_text, print_json, print_table, short_warnings, size_text
from widemargin.cli._evaluate import evaluate_model
from widemargin.cli._train import train_model
from widemargin.data.load import Dataset
from widemargin.datasets import load_debian_tags
from widemargin.estimators.persistence import load, save
from widemargin.exceptions import MissingExtraError
from widemargin.model_io import check_writable, folder_size
from widemargin.report.page import check_report_extra, write_report

__all__ = ["run"]

DEPTHS = [1, 3, 5]
TITLE = "Debian packages and their tags, one-vs-all"
# DiSMEC++'s settings, the same as the defaults of `widemargin train`.
PARAMETERS: dict[str, Any] = {"C": 1.0, "tol": 0.01, "prune": 0.01, "normalize": True, "n_jobs": -1}


def run(out: Path, *, as_json: bool) -> None:
    """Train on the training part, save, load again, and measure on the test part."""
    check_writable(out)
    data = load_debian_tags()
    labels, features = list(data.label_names), list(data.feature_names)
    dataset = Dataset(data.X_train, data.y_train, labels, features, "widemargin.datasets")
    with short_warnings():
        model, seconds = train_model(dataset, "one-vs-all", PARAMETERS)
    save(model, out)
    model = load(out)
    values = evaluate_model(model, Dataset(data.X_test, data.y_test, labels, features, dataset.path), DEPTHS)
    precision = values["precision"]
    summary = {
        "rows": int(data.X_train.shape[0]),
        "test_rows": int(data.X_test.shape[0]),
        "labels": len(model.classes_),
        **seconds,
        "precision": precision,
        "certificate": model.certificate_.to_dict(),
        "model_bytes": folder_size(out),
        "model": str(out),
        "report": _write_report(out, model, data),
    }
    if as_json:
        print_json(summary)
        return
    print_table(TITLE, _table_rows(summary))
    print(f"The model is in {out}. Try: widemargin inspect {out}")
    if summary["report"] is None:
        print("For a report on it: pip install 'widemargin[report]'")
    else:
        print(f"A report on it is in {summary['report']}; open it in a browser.")


def _write_report(out: Path, model: Any, data: Any) -> str | None:
    """Write a report next to the arrays of the model; None if what it needs is not installed."""
    try:
        check_report_extra()
    except MissingExtraError:
        return None
    path = out / "report.html"
    write_report(path, model, data.X_test, data.y_test, title=TITLE, data_name="the test part of the embedded data")
    return str(path)


def _table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("rows", f"{summary['rows']:,} for training, {summary['test_rows']:,} for testing"),
        ("labels", f"{summary['labels']:,}"),
        ("seconds", f"{summary['seconds']:.1f} ({summary['cpu_seconds']:.1f} CPU)"),
        ("P@1 / P@3 / P@5", " / ".join(f"{value:.3f}" for value in summary["precision"].values())),
        ("certified gap", gap_text(summary["certificate"])),
        ("model size", size_text(summary["model_bytes"])),
    ]
