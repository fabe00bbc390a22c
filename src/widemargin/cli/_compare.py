"""`widemargin compare`: the methods that fit the labels, tuned and measured on the same rows, and which one to use."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

from widemargin.cli._console import output, print_columns, print_json, short_warnings, size_text
from widemargin.cli._methods import options_of, targets_for
from widemargin.cli._path import labels_to_come
from widemargin.cli._text import check_text_options, read_table, vectorizer_of
from widemargin.cli._text_options import COLUMNS, VECTORIZER, TextOptions
from widemargin.cli._time import time_bar
from widemargin.cli._train import check_labelled
from widemargin.cli._truth import load_for_model, truth_in_model_columns
from widemargin.comparison import Comparison, MethodResult, compare
from widemargin.data.load import Dataset, load_data
from widemargin.data.text import ZeroBased
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["options_for_train", "print_comparison", "run"]

CARRIED = {"labels", "features", "index_base", "taxonomy", *COLUMNS, *VECTORIZER}
"""Options about the data, which `train` takes as `compare` does."""
LEAST_MEMORY = 1e5
"""Bytes below which the growth of memory is not worth a number: it comes in pages, and some are free already."""


def run(
    data: Path,
    test: Path | None,
    taxonomy: Path | None,
    options: dict[str, Any],
    names: dict[str, Path | None],
    carried: dict[str, list[str]],
    *,
    zero_based: ZeroBased,
    as_json: bool,
    text: TextOptions | None = None,
) -> None:
    """Read, compare and report; `carried` are options about the data for the command that trains."""
    tree = None if taxonomy is None else Taxonomy.from_tsv(taxonomy)
    check_text_options(data, text, **names)
    with short_warnings():
        if text is None:
            arguments = _numbers(data, test, tree, names, zero_based)
        else:
            arguments = _texts(data, test, text, str(names["labels"]))
        with time_bar("trial of every method") as report:
            result = compare(**arguments, taxonomy=tree, **options, report=report)
    command = train_command(result, data, carried)
    if as_json:
        print_json({"data": str(data), **result.to_dict(), "train": command})
        return
    print_comparison(result, str(data))
    sys.stdout.write(f"Train it on all rows:\n    {command}\n")  # in one line, however long, to be copied


def options_for_train(context: Any) -> dict[str, list[str]]:
    """Options about the data that were given to `compare`, by name, as `train` takes them."""
    found = {}
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if parameter.name not in CARRIED or value is None or value == parameter.default:
            continue
        if isinstance(value, bool):
            found[parameter.name] = [(parameter.opts if value else parameter.secondary_opts)[0]]
        else:  # as one word where the value looks like an option
            words = [parameter.opts[0], str(value)]
            found[parameter.name] = ["=".join(words)] if words[1].startswith("-") else words
    return found


def train_command(result: Comparison, data: Path, carried: dict[str, list[str]]) -> str:
    """The command that trains the recommended method, for a shell; into a folder that does not exist yet."""
    estimator = result.recommended.estimator
    kept = {name: words for name, words in carried.items() if name != "taxonomy" or hasattr(estimator, "taxonomy")}
    folders = itertools.chain(["model"], (f"model-{number}" for number in itertools.count(2)))
    out = next(name for name in folders if not Path(name).exists())
    source = f"./{data}" if str(data).startswith("-") else str(data)
    words = [source, *itertools.chain.from_iterable(kept.values()), *options_of(estimator), "--out", out]
    return shlex.join(["widemargin", "train", *words])


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
    few = ["CPU s"] if on_tree else ["gap", "CPU s", "model"]
    costs = few if brief else ["gap", "CPU s", "memory", "model", "µs per row"]
    names = ["method", "values", heading(result.metric), *map(heading, others), *costs]
    rows = [_cells(method, result.metric, others, costs) for method in result.methods]
    word = "accuracy" if result.metric == "top_k_accuracy@1" else result.metric.partition("@")[0]
    headline = f"{title}: {word} on {result.about['held_out_rows']:,} held-out rows"
    print_columns(headline, names, rows, n_keys=1, marked=result.methods.index(result.recommended))
    for line in notes(result):
        output().print(line)


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
        "memory": "?" if memory != memory else size_text(int(memory)) if memory >= LEAST_MEMORY else "< 0.1 MB",
        "model": size_text(method.cost.model_bytes),
        "µs per row": f"{1e6 * method.cost.prediction_s:.0f}",
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
