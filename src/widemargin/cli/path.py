"""`widemargin path`: models along C, k and pruning thresholds, compared on held-out rows; the best may be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from widemargin import metrics
from widemargin.cli import console, inputs
from widemargin.cli.evaluate import depths_within
from widemargin.cli.options import TREE_METHODS, Given, make_estimator
from widemargin.data.load import Dataset, label_files
from widemargin.estimators.one_vs_all.folder_training import add_names
from widemargin.estimators.path import PathResult, check_grid, path
from widemargin.estimators.persistence import save
from widemargin.estimators.scoring import class_numbers, top_k_accuracies
from widemargin.estimators.text import with_text
from widemargin.files import refuse_input_as_output
from widemargin.model_io import check_writable

__all__ = ["run"]

Scorer = Callable[[Any, Any, Any], float]


def run(given: Given) -> None:
    """Read, train, compare, save and report."""
    spec, sweep = inputs.table_spec(given), sweep_of(given)
    if given.out is not None:
        names = () if spec else (given.labels, given.features, *label_files(given.data, given.test))
        refuse_input_as_output(given.out, given.data, given.test, given.taxonomy, *names)
        check_writable(given.out)
    swept = dict.fromkeys(("C", "k", "prune"))
    estimator = make_estimator(given.method, vars(given) | swept)
    check_grid(estimator, sweep["Cs"], sweep.get("ks"), None, None)  # wrong values are errors before a file is read
    dataset, _, _ = inputs.load_training(given, spec)
    taxonomy = getattr(estimator, "taxonomy", None)
    targets = inputs.targets_for(given.method, dataset, taxonomy)
    if given.method in TREE_METHODS and targets.kind == "multilabel":
        raise ValueError(
            f"{given.data}: with --method {given.method}, path requires one label per row; use train for several"
        )
    future = inputs.facts_of(dataset, targets)
    if spec is not None:
        future = future._replace(vectorizer=dataset.text.vectorizer, spec=spec.for_file(given.test))
    held_out = inputs.load_for_model(future, given, given.test)
    if given.method in TREE_METHODS:
        held_out = replace(held_out, Y=inputs.targets_for(given.method, held_out, taxonomy))
    ks = depths_within(given.k, targets.n_classes, given=True)
    scoring = scorers(future.classifier, held_out, ks)
    rows = {"X_test": held_out.X, "y_test": held_out.targets.labels, "scoring": scoring}
    result = path(estimator, dataset.X, targets, **sweep, **rows)
    if given.out is not None:
        add_names(result.best_model, dataset)
        save(with_text(result.best_model, dataset.text), given.out)
    if given.json:
        best = {"best": result.best} | ({} if given.out is None else {"model": str(given.out)})
        console.print_json({"rows": int(held_out.X.shape[0]), "path": result.to_dict(), **best})
    else:
        print_path(result, f"{given.data} on {held_out.X.shape[0]:,} rows of {given.test}")


def sweep_of(given: Given) -> dict[str, Any]:
    """The values to try, as arguments of `path`; an error for those that the method does not have."""
    if given.method == "output-code":
        raise ValueError("path does not support --method output-code; use train")
    if given.ks is not None and given.method != "top-k":
        raise ValueError(f"--ks does not apply to --method {given.method}; leave it out, or use --method top-k")
    sweep: dict[str, Any] = {"Cs": given.C}
    if given.method == "top-k":
        sweep["ks"] = given.ks or [1]
    if given.prune is not None or given.method == "one-vs-all":
        sweep["prune"] = given.prune or [0.01]
    return sweep


def scorers(future: Any, held_out: Dataset, ks: list[int]) -> dict[str, Scorer]:
    """Scores by name; those of a model at several depths come from one prediction."""
    multilabel = future.kind_ == "multilabel"
    if multilabel:
        truth = inputs.truth_in_model_columns(future, held_out)
    else:
        truth = class_numbers(future.classes_, inputs.labels_of_rows(future, held_out))
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
    console.print_columns(f"{title}: {word}", names, rows, n_keys=len(settings), marked=result.best_index)
    console.output().print("best: " + ", ".join(f"{name} = {result.best[name]:g}" for name in settings))


def _cells(row: dict[str, Any], settings: list[str], scores: Sequence[str]) -> list[str]:
    """A row of the table."""
    return [
        *(f"{row[name]:g}" for name in settings),
        *(f"{row[name]:.4f}" for name in scores),
        f"{row['relative_gap']:.1e}",
        f"{row['cpu_s']:.2f}",
        f"{row['n_weights']:,}",
        console.size_text(row["model_bytes"]),
    ]
