"""`widemargin path`: models along C, k and pruning thresholds, compared on held-out rows; the best may be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from widemargin import metrics
from widemargin.cli._console import output, print_columns, print_json, short_warnings, size_text
from widemargin.cli._evaluate import depths_within, parse_depths
from widemargin.cli._methods import make_estimator, targets_for
from widemargin.cli._text import refuse_table
from widemargin.cli._train import add_names, check_labelled
from widemargin.cli._truth import classes_of_rows, load_for_model, truth_in_model_columns
from widemargin.data.load import Dataset, load_data, refuse_input_as_output
from widemargin.data.text import ZeroBased
from widemargin.estimators._path_scoring import top_k_accuracies
from widemargin.estimators.path import PathResult, check_grid, path
from widemargin.estimators.persistence import save
from widemargin.labels.encoding import encode_targets
from widemargin.model_io import check_writable
from widemargin.problems.tree_penalties import METHODS as TREE_METHODS

__all__ = ["parse_numbers", "parse_sweep", "run"]

Scorer = Callable[[Any, Any, Any], float]


def run(
    data: Path,
    test: Path,
    out: Path | None,
    method: str,
    parameters: dict[str, Any],
    sweep: dict[str, Any],
    depths: str,
    names: dict[str, Path | None],
    *,
    zero_based: ZeroBased,
    as_json: bool,
) -> None:
    """Read, train, compare, save and report."""
    if out is not None:
        refuse_input_as_output(out, data, test, parameters.get("taxonomy"), *names.values())
        check_writable(out)
    refuse_table(data, "path")
    ks = parse_depths(depths)
    estimator = make_estimator(method, parameters)
    check_grid(estimator, sweep["Cs"], sweep.get("ks"), None, None)  # wrong values are told before a large file is read
    with short_warnings():
        dataset = load_data(data, label_names=names["labels"], feature_names=names["features"], zero_based=zero_based)
        check_labelled(dataset, "path")
        taxonomy = getattr(estimator, "taxonomy", None)
        dataset = targets_for(method, dataset, taxonomy)
        if method in TREE_METHODS and isinstance(dataset.Y, list):
            raise ValueError(f"{data}: path takes one label a row for --method {method}; train takes several")
        future = labels_to_come(dataset)
        held_out = load_for_model(future, test, zero_based)
        check_labelled(held_out, "path")
        if method in TREE_METHODS:
            held_out = targets_for(method, held_out, taxonomy)
        scoring = scorers(future, held_out, depths_within(ks, len(future.classes_), given=True))
        rows = {"X_test": held_out.X, "y_test": held_out.Y, "scoring": scoring}
        result = path(estimator, dataset.X, dataset.Y, **sweep, **rows)
    if out is not None:
        add_names(result.best_model, dataset)
        save(result.best_model, out)
    if as_json:
        best = {"best": result.best} | ({} if out is None else {"model": str(out)})
        print_json({"rows": int(held_out.X.shape[0]), "path": result.to_dict(), **best})
    else:
        print_path(result, f"{data} on {held_out.X.shape[0]:,} rows of {test}")


def parse_numbers(option: str, text: str) -> list[float]:
    """The numbers of an option such as `--C 0.25,1,4`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes numbers separated by commas, such as 0.25,1,4; got {text!r}") from None


def parse_sweep(method: str, C: str, ks: str | None, prune: str | None) -> dict[str, Any]:
    """The values to go through, as arguments of `path`; an error for those that the method has not."""
    if method == "output-code":
        raise ValueError("path is for one-vs-all, top-k and methods of a tree; for --method output-code use train")
    if ks is not None and method != "top-k":
        raise ValueError(f"--ks is not an option of --method {method}; leave it out, or use --method top-k")
    sweep: dict[str, Any] = {"Cs": parse_numbers("--C", C)}
    if method == "top-k":
        sweep["ks"] = parse_depths(ks or "1", option="--ks")
    if prune is not None or method == "one-vs-all":
        sweep["prune"] = parse_numbers("--prune", prune or "0.01")
    return sweep


def labels_to_come(dataset: Dataset) -> Any:
    """What the models will know of their labels and features, for matching the held-out file before there is one."""
    targets = encode_targets(dataset.Y)
    named = dataset.label_names is not None and targets.kind == "multilabel"
    classes = np.array(dataset.label_names, dtype=object) if named else targets.classes
    return SimpleNamespace(
        kind_=targets.kind,
        classes_=classes,
        n_features_in_=dataset.X.shape[1],
        index_base_=dict(dataset.index_base or {}),
    )


def scorers(future: Any, held_out: Dataset, ks: list[int]) -> dict[str, Scorer]:
    """Scores by name; those of a model at several depths come from one prediction."""
    multilabel = future.kind_ == "multilabel"
    truth = truth_in_model_columns(future, held_out) if multilabel else classes_of_rows(future, held_out)
    found: list[float] = []

    def at_depth(place: int, model: Any, X: Any, y: Any) -> float:
        if place == 0:  # the first score of a model finds them all
            if multilabel:
                found[:] = metrics.precision_at_k(truth, model.predict_topk(X, max(ks)), ks)
            else:
                found[:] = top_k_accuracies(model, X, truth, ks)
        return found[place]

    name = "precision" if multilabel else "top_k_accuracy"
    return {f"{name}@{k}": partial(at_depth, place) for place, k in enumerate(ks)}


def print_path(result: PathResult, title: str) -> None:
    """The table for people; the best row is marked."""
    settings = [*result.params, *(["prune"] if "prune" in result.table else [])]
    word = result.score_names[0].partition("@")[0]
    scores = [name.removeprefix(word) for name in result.score_names]
    names = [*settings, *scores, "gap", "CPU s", "weights", "size"]
    rows = [_cells(result.row(index), settings, result.score_names) for index in range(len(result))]
    print_columns(f"{title}: {word}", names, rows, n_keys=len(settings), marked=result.best_index)
    output().print("best: " + ", ".join(f"{name} = {result.best[name]:g}" for name in settings))


def _cells(row: dict[str, Any], settings: list[str], scores: Sequence[str]) -> list[str]:
    """A row of the table."""
    return [
        *(f"{row[name]:g}" for name in settings),
        *(f"{row[name]:.4f}" for name in scores),
        f"{row['relative_gap']:.1e}",
        f"{row['cpu_s']:.2f}",
        f"{row['n_weights']:,}",
        size_text(row["model_bytes"]),
    ]
