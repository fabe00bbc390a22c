"""`widemargin compare`: the methods that fit the labels, tuned and measured on the same rows, and which one to use."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

from widemargin.cli import console, inputs
from widemargin.cli.options import Given, executor_of, given_words, options_of
from widemargin.comparison import Comparison, MethodResult, compare
from widemargin.data.tables import TableSpec
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["print_comparison", "run"]

LEAST_MEMORY = 1e5
"""Bytes below which the growth of memory is not worth a number: it comes in pages, and some are free already."""


def run(given: Given) -> None:
    """Read, compare and report."""
    tree = None if given.taxonomy is None else Taxonomy.from_tsv(given.taxonomy)
    spec = inputs.table_spec(given)
    rows = _numbers(given, tree) if spec is None else _texts(given, spec)
    with console.time_bar("comparing methods") as report:
        result = compare(
            **rows,
            taxonomy=tree,
            cv=given.folds,
            methods=given.methods,
            metric=given.metric,
            budget=given.budget,
            normalize=given.normalize,
            random_state=given.seed,
            n_jobs=given.jobs,
            executor=executor_of(given),
            report=report,
        )
    command = train_command(result, given)
    if given.json:
        console.print_json({"data": str(given.data), **result.to_dict(), "train": command})
        return
    print_comparison(result, str(given.data))
    sys.stdout.write(f"Train it on all rows:\n    {command}\n")  # in one line, however long, to be copied


def train_command(result: Comparison, given: Given) -> str:
    """The command that trains the recommended method, for a shell; into a folder that does not exist yet."""
    estimator = result.recommended.estimator
    panels = ["Data", "Text tables", *(["Trees"] if hasattr(estimator, "taxonomy") else [])]
    folders = itertools.chain(["model"], (f"model-{number}" for number in itertools.count(2)))
    out = next(name for name in folders if not Path(name).exists())
    source = f"./{given.data}" if str(given.data).startswith("-") else str(given.data)
    words = [source, *given_words(given, "compare", panels), *options_of(estimator), "--out", out]
    return shlex.join(["widemargin", "train", *words])


def _numbers(given: Given, tree: Taxonomy | None) -> dict[str, Any]:
    """Rows of numbers and their labels, with a tree as names of its nodes, as arguments of `compare`."""
    dataset, _ = inputs.load_training(given, None)
    y = dataset.Y if tree is None else inputs.targets_for("orthogonal", dataset, tree).labels
    if given.test is None:
        return {"X": dataset.X, "y": y}
    future = inputs.facts_of(dataset, dataset.targets)
    held_out = inputs.load_for_model(future, given, given.test)
    y_test = held_out.Y
    if tree is not None:
        y_test = inputs.targets_for("orthogonal", held_out, tree).labels
    elif future.classifier.kind_ == "multilabel":
        y_test = inputs.truth_in_model_columns(future.classifier, held_out)[:, : dataset.targets.n_classes]
    return {"X": dataset.X, "y": y, "X_test": held_out.X, "y_test": y_test}


def _texts(given: Given, spec: TableSpec) -> dict[str, Any]:
    """Texts of tables with their labels, and the vectoriser, which is fitted again in each fold."""
    rows = inputs.read_table(given.data, spec, given.skip_unlabelled)
    arguments = {"X": rows.texts, "y": rows.y, "transformer": inputs.vectorizer_of(given)}
    if given.test is not None:
        held_out = inputs.read_table(given.test, spec, given.skip_unlabelled)
        arguments |= {"X_test": held_out.texts, "y_test": held_out.y}
    return arguments


def print_comparison(result: Comparison, title: str, *, brief: bool = False) -> None:
    """The table for people, and the recommendation; `brief` leaves out columns, for a terminal of 80 characters."""
    others = [name for name in result.best.quality if name != result.metric]
    on_tree = "tree_loss" in others
    if brief:
        kind = result.metric.partition("@")[0]
        others = [name for name in others if ("@" not in name if on_tree else name == f"{kind}@5")]
    few = ["CPU s"] if on_tree else ["gap", "CPU s", "model"]
    costs = few if brief else ["gap", "CPU s", "memory", "model", "µs per row"]
    names = ["method", "values", heading(result.metric), *map(heading, others), *costs]
    rows = [_cells(method, result.metric, others, costs) for method in result.methods]
    word = "accuracy" if result.metric == "top_k_accuracy@1" else result.metric.partition("@")[0]
    headline = f"{title}: {word} on {result.about['held_out_rows']:,} held-out rows"
    console.print_columns(headline, names, rows, n_keys=1, marked=result.methods.index(result.recommended))
    for line in notes(result):
        console.output().print(line)


HEADINGS = {"top_k_accuracy@1": "accuracy", "hierarchical_f1": "hier. F1", "tree_loss": "tree loss"}
SHORT = {"precision": "P", "psp": "PSP"}  # both are shown for several labels per row


def heading(metric: str) -> str:
    """Heading of a column: a word, or the depth of a list, with its metric if the table has several."""
    word, _, depth = metric.partition("@")
    return HEADINGS.get(metric) or f"{SHORT.get(word, '')}@{depth}"


def notes(result: Comparison) -> list[str]:
    """Lines below the table: the recommendation, and what was cut short or not tried."""
    about = result.about
    lines = [result.recommendation]
    if about["lists_of_one_label"]:
        lines.append("Every list has exactly one label, so the labels were compared as classes.")
    if about["folds"] < about["folds_asked"]:
        lines.append(f"The budget allowed {about['folds']} of {about['folds_asked']} folds.")
    if about["share_of_rows"] < 1.0:
        lines.append(
            f"Only {about['share_of_rows']:.0%} of the rows could be used within the budget; with a larger budget, "
            "the order may change."
        )
    if any(method.stopped for method in result.methods):
        lines.append(
            "* A fit was stopped by the budget before it reached its tolerance; the gap bounds its distance from the "
            "optimum."
        )
    lines += [f"{name} was not tried: {why}." for name, why in result.not_tried.items()]
    return lines


def _cells(method: MethodResult, metric: str, others: list[str], costs: list[str]) -> list[str]:
    """A row of the table; ± is half the 95 % interval."""
    first = method.quality[metric]
    memory = method.cost.memory_bytes
    cost = {
        "gap": f"{method.relative_gap:.0e}",
        "CPU s": f"{method.cost.cpu_s:.2f}",
        "memory": "?" if memory != memory else console.size_text(int(memory)) if memory >= LEAST_MEMORY else "< 0.1 MB",
        "model": console.size_text(method.cost.model_bytes),
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
