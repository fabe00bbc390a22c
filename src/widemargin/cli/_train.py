"""`widemargin train`: data file in, model folder out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from widemargin.cli._console import (
    gap_text,
    print_json,
    print_note,
    print_table,
    progress_bar,
    short_warnings,
    size_text,
)
from widemargin.cli._methods import make_estimator, targets_for
from widemargin.cli._text import check_text_options, load_training, read_table, vectorizer_of
from widemargin.cli._text_options import TextOptions
from widemargin.cli._tune import check_tunable, print_tuning, with_best_values
from widemargin.cli._tune_options import TuneOptions
from widemargin.data.load import Dataset, refuse_input_as_output
from widemargin.data.text import ZeroBased
from widemargin.estimators.one_vs_all.folder_training import add_names, train
from widemargin.estimators.persistence import save
from widemargin.estimators.text import with_text
from widemargin.exceptions import DataFormatError
from widemargin.model_io import check_writable, folder_size

__all__ = ["add_names", "check_labelled", "run", "train_model"]

CALIBRATION_FOLDS = 3


def run(
    data: Path,
    out: Path,
    method: str,
    parameters: dict[str, Any],
    run_options: dict[str, Any],
    *,
    labels: Path | None,
    features: Path | None,
    calibrate: str | None = None,
    zero_based: ZeroBased,
    as_json: bool,
    text: TextOptions | None = None,
    tuning: TuneOptions | None = None,
) -> None:
    """Read, train into the folder, and report."""
    names = (None, None) if text is not None else (labels, features)  # with text, `labels` is a column
    refuse_input_as_output(out, data, parameters.get("taxonomy"), *names)
    check_writable(out)
    check_text_options(data, text, labels, features)
    estimator = make_estimator(method, parameters)  # wrong options are told before a large file is read
    if tuning is not None:
        check_tunable(estimator, parameters, tuning)
    with short_warnings():
        dataset = load_training(data, text, labels=labels, features=features, zero_based=zero_based)
        check_labelled(dataset, "train")
        dataset = targets_for(method, dataset, getattr(estimator, "taxonomy", None))
        if tuning is not None:
            texts = None if text is None else (read_table(data, text, str(labels)).texts, vectorizer_of(text))
            rows, vectorizer = (dataset.X, None) if texts is None else texts
            found = with_best_values(estimator, rows, dataset.Y, vectorizer, parameters, tuning)
            if not as_json:
                print_tuning(found)
        wall, cpu = time.perf_counter(), time.process_time()
        with progress_bar("Training") as callback:
            fitted = train(estimator.set_params(callback=callback), dataset, out, report=print_note, **run_options)
        model = fitted if dataset.text is None else fitted[-1]
        if calibrate is not None:
            model.calibrate(dataset.X, dataset.Y, method=calibrate, cv=CALIBRATION_FOLDS)
            save(with_text(model, dataset.text), out)
        seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    summary = summarize(model, dataset, seconds) | {"model": str(out), "model_bytes": folder_size(out)}
    if tuning is not None:
        summary["tuning"] = model.tuning_
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


def check_labelled(dataset: Dataset, command: str) -> None:
    """An error unless the rows have labels."""
    if dataset.Y is None:
        raise DataFormatError(
            "the data have no labels", path=str(dataset.path), remedy=f"{command} needs rows with their labels"
        )


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
