"""`widemargin evaluate`: the metrics that fit the model's targets."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin import metrics
from widemargin.cli._console import print_json, print_table, short_warnings
from widemargin.cli._text import open_model
from widemargin.cli._text_options import TableColumns
from widemargin.cli._tree import evaluate_on_tree
from widemargin.cli._truth import labels_of_rows, load_for_model, truth_in_model_columns
from widemargin.data.load import Dataset
from widemargin.data.text import ZeroBased
from widemargin.estimators._path_scoring import class_numbers, top_k_accuracies
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.exceptions import DataFormatError

__all__ = ["evaluate_model", "run"]

DEPTHS = [1, 3, 5]
TITLES = {"at_or_below": "at or below the true node"}
CURVE = list(range(1, 11))  # depths for one label a row: the curve of top-k accuracy


def run(
    model_folder: Path,
    data: Path,
    depths: str | None,
    propensity: dict[str, float],
    jobs: int,
    *,
    zero_based: ZeroBased,
    as_json: bool,
    table: TableColumns | None = None,
) -> None:
    """Load, predict, measure and report."""
    given = None if depths is None else parse_depths(depths)
    model, reader = open_model(model_folder, table)
    model.n_jobs = jobs
    ks = given or (DEPTHS if model.kind_ == "multilabel" else CURVE)
    with short_warnings():
        ks = depths_within(ks, len(model.classes_), given=depths is not None)
        dataset = load_for_model(model, data, zero_based, reader)
        if dataset.Y is None:
            raise DataFormatError(
                "the data have no labels", path=str(data), remedy="evaluate needs rows with their labels; see predict"
            )
        if isinstance(model, HierarchicalClassifier):
            values = evaluate_on_tree(model, dataset, None if given is None else ks)
        else:
            values = evaluate_model(model, dataset, ks, **propensity)
    if as_json:
        print_json({"rows": int(dataset.X.shape[0])} | values)
    else:
        print_table(f"{model_folder} on {dataset.X.shape[0]:,} rows of {data}", table_rows(values))


def parse_depths(text: str, option: str = "--k") -> list[int]:
    """The numbers of `--k 1,3,5`, ascending and each once."""
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        ks = []
    if not ks or ks[0] < 1:
        raise ValueError(f"{option} takes whole numbers from 1 separated by commas, such as 1,3,5; got {text!r}")
    return ks


def depths_within(ks: list[int], n_labels: int, *, given: bool) -> list[int]:
    """Those depths at which there is a label; ones that the user gave are not left out without a word."""
    within = [k for k in ks if k <= n_labels]
    left_out = ", ".join(str(k) for k in ks if k > n_labels)
    if not within:
        raise ValueError(f"--k {left_out} is more than the {n_labels:,} labels of the model; give a smaller number")
    if given and left_out:
        warnings.warn(f"--k {left_out} is left out: the model has {n_labels:,} labels", UserWarning, stacklevel=2)
    return within


def evaluate_model(
    model: Any, dataset: Dataset, ks: list[int], *, propensity_a: float = 0.55, propensity_b: float = 1.5
) -> dict[str, Any]:
    """Metrics by name; those at several depths, none above the number of labels, as `{"1": …, "3": …}`."""
    X = dataset.X
    if model.kind_ != "multilabel":
        labels = labels_of_rows(model, dataset)
        classes, predicted = class_numbers(model.classes_, labels), model.predict(X)
        values: dict[str, Any] = {
            "accuracy": float(np.mean(class_numbers(model.classes_, predicted) == classes)),
            "macro_f1": metrics.macro_f1(labels, predicted, labels=model.classes_),
            "top_k_accuracy": _by_depth(ks, top_k_accuracies(model, X, classes, ks)),
        }
        return values | _error_of_best(model, X, classes)
    truth = truth_in_model_columns(model, dataset)
    top = model.predict_topk(X, max(ks))
    counts = np.zeros(truth.shape[1])
    counts[: len(model.label_counts_)] = model.label_counts_
    propensities = metrics.jain_propensities(counts, model.n_samples_fit_, A=propensity_a, B=propensity_b)
    at_depth = {
        "precision": metrics.precision_at_k(truth, top, ks),
        "recall": metrics.recall_at_k(truth, top, ks),
        "ndcg": metrics.ndcg_at_k(truth, top, ks),
        "propensity_scored_precision": metrics.propensity_scored_precision_at_k(
            truth, top, ks, propensities=propensities
        ),
    }
    if hasattr(model, "label_proba"):
        probabilities = model.label_proba(X, top.indices)
        at_depth["calibration_error"] = metrics.calibration_error_at_k(truth, top, probabilities, ks)
    predicted = _with_columns(sp.csr_array(model.predict(X)), truth.shape[1])
    f1 = {"micro_f1": metrics.micro_f1(truth, predicted), "macro_f1": metrics.macro_f1(truth, predicted)}
    return {name: _by_depth(ks, values) for name, values in at_depth.items()} | f1


def _error_of_best(model: Any, X: Any, classes: Any) -> dict[str, float]:
    """The calibration error of the best class of each row, where the model has probabilities."""
    if not hasattr(model, "label_proba"):
        return {}
    best = model.predict_topk(X, 1).indices
    probabilities = model.label_proba(X, best)[:, 0]
    return {"calibration_error": metrics.expected_calibration_error(best[:, 0] == classes, probabilities)}


def _with_columns(Y: Any, n_columns: int) -> Any:
    """The same entries in a wider matrix."""
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_columns))


def _by_depth(ks: list[int], values: Any) -> dict[str, float]:
    return {str(k): float(value) for k, value in zip(ks, np.atleast_1d(values), strict=True)}


def table_rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Metrics as lines for people: precision@1/3/5 and so on; the curve of top-k accuracy has a line for each k."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        title = TITLES.get(name, name.replace("_", " "))
        if name == "top_k_accuracy":
            rows += [(f"top-{k} accuracy", f"{number:.4f}") for k, number in value.items()]
        elif name == "error_by_level":
            rows += [(f"error at level {level}", f"{number:.4f}") for level, number in value.items()]
        elif isinstance(value, dict):
            depths = "/".join(value)
            rows.append((f"{title} @{depths}", "  ".join(f"{number:.4f}" for number in value.values())))
        else:
            rows.append((title, f"{value:.4f}"))
    return rows
