"""`widemargin compare`: the methods that fit the labels, tuned and measured on the same rows, and which one to use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from widemargin.cli._console import print_json, short_warnings, size_text
from widemargin.cli._methods import targets_for
from widemargin.cli._path import labels_to_come
from widemargin.cli._text import check_text_options, read_table, vectorizer_of
from widemargin.cli._text_options import TextOptions
from widemargin.cli._time import time_bar
from widemargin.cli._train import check_labelled
from widemargin.cli._truth import load_for_model, truth_in_model_columns
from widemargin.comparison import Comparison, MethodResult, compare
from widemargin.data.load import Dataset, load_data
from widemargin.data.text import ZeroBased
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["print_comparison", "run"]


WIDE = 160


def run(
    data: Path,
    test: Path | None,
    taxonomy: Path | None,
    options: dict[str, Any],
    names: dict[str, Path | None],
    *,
    zero_based: ZeroBased,
    as_json: bool,
    text: TextOptions | None = None,
) -> None:
    """Read, compare and report."""
    tree = None if taxonomy is None else Taxonomy.from_tsv(taxonomy)
    check_text_options(data, text, **names)
    with short_warnings():
        if text is None:
            arguments = _numbers(data, test, tree, names, zero_based)
        else:
            arguments = _texts(data, test, text, str(names["labels"]))
        with time_bar("trial of every method") as report:
            result = compare(**arguments, taxonomy=tree, **options, report=report)
    if as_json:
        print_json({"data": str(data), **result.to_dict()})
    else:
        print_comparison(result, str(data))


def _numbers(
    data: Path, test: Path | None, tree: Taxonomy | None, names: dict[str, Path | None], zero_based: ZeroBased
) -> dict[str, Any]:
    """Rows of numbers and their labels, as arguments of `compare`."""
    dataset = load_data(data, label_names=names["labels"], feature_names=names["features"], zero_based=zero_based)
    check_labelled(dataset, "compare")
    dataset = _with_names_of_nodes(dataset, tree)
    held_out = {} if test is None else _held_out(dataset, test, tree, zero_based)
    return {"X": dataset.X, "y": dataset.Y, **held_out}


def _texts(data: Path, test: Path | None, text: TextOptions, labels: str) -> dict[str, Any]:
    """Texts of tables with their labels, and the vectoriser, which is fitted in each fold anew."""
    rows = read_table(data, text, labels)
    arguments = {"X": rows.texts, "y": rows.y, "transformer": vectorizer_of(text)}
    if test is not None:
        held_out = read_table(test, text, labels)
        arguments |= {"X_test": held_out.texts, "y_test": held_out.y}
    return arguments


def _with_names_of_nodes(dataset: Dataset, tree: Taxonomy | None) -> Dataset:
    """With a tree, labels as names of its nodes; lists of labels stay lists."""
    return dataset if tree is None else targets_for("orthogonal", dataset, tree)


def _held_out(dataset: Dataset, test: Path, tree: Taxonomy | None, zero_based: ZeroBased) -> dict[str, Any]:
    """Rows and labels of the test file, in terms of the training file's labels."""
    future = labels_to_come(dataset)
    rows = load_for_model(future, test, zero_based)
    check_labelled(rows, "compare")
    if tree is not None:
        rows = targets_for("orthogonal", rows, tree)
    elif future.kind_ == "multilabel":
        return {"X_test": rows.X, "y_test": truth_in_model_columns(future, rows)[:, : len(future.classes_)]}
    return {"X_test": rows.X, "y_test": rows.Y}


def print_comparison(result: Comparison, title: str, *, brief: bool = False) -> None:
    """The table for people, and the recommendation; `brief` leaves out columns, for a terminal of 80 characters."""
    others = [name for name in result.best.quality if name != result.metric]
    on_tree = "tree_loss" in others
    others = [name for name in others if ("@" not in name if on_tree else name.endswith("@5"))] if brief else others
    table = Table(box=box.SIMPLE_HEAD if brief else box.HEAVY_HEAD)
    table.add_column("method", no_wrap=True)
    few = ["CPU s"] if on_tree else ["gap", "CPU s", "model"]
    costs = few if brief else ["gap", "CPU s", "memory", "model", "µs a row"]
    for name in ["values", heading(result.metric), *map(heading, others), *costs]:
        table.add_column(name, justify="right", no_wrap=True)
    for method in result.methods:
        cells = _cells(method, result.metric, others, costs)
        table.add_row(*cells, style="bold" if method is result.recommended else None)
    console = Console()
    # A file or a pipe has no width that a table would have to fit.
    wide = WIDE if not console.is_terminal and "COLUMNS" not in os.environ and not brief else None
    word = "accuracy" if result.metric == "top_k_accuracy@1" else result.metric.partition("@")[0]
    headline = f"{title}: {word} on {result.about['held_out_rows']:,} held-out rows"
    console.print(Text(headline, style="bold"), soft_wrap=wide is not None)
    Console(width=wide).print(table)
    for line in notes(result):
        console.print(line, highlight=False, soft_wrap=wide is not None)


HEADINGS = {"top_k_accuracy@1": "accuracy", "hierarchical_f1": "hier. F1", "tree_loss": "tree loss"}


def heading(metric: str) -> str:
    """Of a column: a word, or the depth of a list."""
    return HEADINGS.get(metric) or f"@{metric.partition('@')[2]}"


def notes(result: Comparison) -> list[str]:
    """What the table does not say."""
    about = result.about
    lines = [result.recommendation]
    if about["lists_of_one_label"]:
        lines.append("Every list has exactly one label, so that the labels were compared as classes.")
    if about["folds"] < about["folds_asked"]:
        lines.append(f"There was time for {about['folds']} of {about['folds_asked']} folds.")
    if about["share_of_rows"] < 1.0:
        lines.append(
            f"Only {about['share_of_rows']:.0%} of the rows fit the budget; a larger one may change the order."
        )
    if any(method.stopped for method in result.methods):
        lines.append("* the budget stopped a fit before its tolerance; the gap says how far it was.")
    lines += [f"{name} was not tried: {why}." for name, why in result.not_tried.items()]
    return lines


def _cells(method: MethodResult, metric: str, others: list[str], costs: list[str]) -> list[str]:
    """A row of the table; ± is half the 95 % interval."""
    first = method.quality[metric]
    memory = method.cost.memory_bytes
    cost = {
        "gap": f"{method.relative_gap:.0e}",
        "CPU s": f"{method.cost.cpu_s:.2f}",
        "memory": f"{memory / 1e6:.0f} MB" if memory == memory else "?",
        "model": size_text(method.cost.model_bytes),
        "µs a row": f"{1e6 * method.cost.prediction_s:.0f}",
    }
    return [
        method.name + (" *" if method.stopped else ""),
        "; ".join(f"{name} {_span(values)}" for name, values in method.parameters.items()),
        f"{first.mean:.4f} ± {first.high - first.mean:.4f}",
        *(f"{method.quality[name].mean:.4f}" for name in others),
        *(cost[name] for name in costs),
    ]


def _span(values: list[float]) -> str:
    """Values chosen in the folds: one, or from the smallest to the largest."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"
