"""`widemargin train`: data file in, model folder out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from widemargin.cli._console import gap_text, print_json, print_table, progress_bar, short_warnings, size_text
from widemargin.cli._methods import make_estimator, targets_for
from widemargin.data.load import Dataset, load_data
from widemargin.data.text import ZeroBased
from widemargin.estimators.persistence import save
from widemargin.exceptions import DataFormatError
from widemargin.model_io import check_writable, folder_size

__all__ = ["add_names", "calibrate_model", "check_labelled", "run", "train_model"]

CALIBRATION_FOLDS = 3


def run(
    data: Path,
    out: Path,
    method: str,
    parameters: dict[str, Any],
    *,
    labels: Path | None,
    features: Path | None,
    calibrate: str | None = None,
    zero_based: ZeroBased,
    as_json: bool,
) -> None:
    """Read, train, save and report."""
    check_writable(out)
    make_estimator(method, parameters)  # wrong options are told before a large file is read
    with short_warnings():
        dataset = load_data(data, label_names=labels, feature_names=features, zero_based=zero_based)
        model, seconds = train_model(dataset, method, parameters)
        if calibrate is not None:
            calibrate_model(model, dataset, method, calibrate)
    save(model, out)
    summary = summarize(model, dataset, seconds) | {"model": str(out), "model_bytes": folder_size(out)}
    if as_json:
        print_json(summary)
    else:
        print_table(f"Model in {out}", table_rows(summary))


def train_model(dataset: Dataset, method: str, parameters: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    """A fitted model with label and feature names, and the wall-clock and CPU seconds that it took."""
    check_labelled(dataset, "train")
    estimator = make_estimator(method, parameters)
    dataset = targets_for(method, dataset, getattr(estimator, "taxonomy", None))
    wall, cpu = time.perf_counter(), time.process_time()
    with progress_bar("Training") as callback:
        model = estimator.set_params(callback=callback).fit(dataset.X, dataset.Y)
    model.callback = None
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    add_names(model, dataset)
    return model, seconds


def calibrate_model(model: Any, dataset: Dataset, method: str, shape: str) -> None:
    """Learn probabilities of a trained model by folds of its training rows."""
    dataset = targets_for(method, dataset, getattr(model, "taxonomy", None))
    model.calibrate(dataset.X, dataset.Y, method=shape, cv=CALIBRATION_FOLDS)


def check_labelled(dataset: Dataset, command: str) -> None:
    """An error unless the rows have labels."""
    if dataset.Y is None:
        raise DataFormatError(
            "the data have no labels", path=str(dataset.path), remedy=f"{command} needs rows with their labels"
        )


def add_names(model: Any, dataset: Dataset) -> None:
    """What a model keeps of the file it was trained on: names of labels and features, number of the first feature."""
    if dataset.label_names is not None and model.kind_ == "multilabel":
        model.set_label_names(dataset.label_names)
    if dataset.index_base:
        model.index_base_ = dict(dataset.index_base)
    if dataset.feature_names is not None:
        model.set_feature_names(dataset.feature_names)


def summarize(model: Any, dataset: Dataset, seconds: dict[str, float]) -> dict[str, Any]:
    """What `train` reports, as plain values."""
    n_rows, n_features = dataset.X.shape
    certificate = model.certificate_
    worst = certificate.worst
    return {
        "rows": int(n_rows),
        "features": int(n_features),
        "labels": len(model.classes_),
        **seconds,
        "status": model.status_.value,
        "calibration": model.calibration_.method if hasattr(model, "calibration_") else None,
        "certificate": certificate.to_dict(),
        # What `tol` is about for models on a tree.
        **({"decrease_gap": certificate.decrease_gap} if hasattr(model, "taxonomy_") else {}),
        "worst_label": None if worst is None else model._problem_name(worst.index),
    }


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    certificate = summary["certificate"]
    rows = [
        ("rows", f"{summary['rows']:,}"),
        ("features", f"{summary['features']:,}"),
        ("labels", f"{summary['labels']:,}"),
        ("training", f"{summary['seconds']:.1f} s ({summary['cpu_seconds']:.1f} s CPU), {summary['status']}"),
        *([("probabilities", f"by {summary['calibration']}")] if summary["calibration"] else []),
        ("objective", f"between {certificate['dual']:.6g} and {certificate['primal']:.6g}"),
        ("certified gap", gap_text(certificate)),
        *([("of the decrease", f"{summary['decrease_gap']:.2e}")] if "decrease_gap" in summary else []),
    ]
    if summary["worst_label"] is not None:
        rows.append(("worst label", f"{summary['worst_label']}: {certificate['worst']['relative_gap']:.2e}"))
    rows.append(("model size", size_text(summary["model_bytes"])))
    return rows
