"""`widemargin compare`: the methods that fit the labels, tuned and measured on the same rows, and which one to use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from widemargin.cli._console import print_json, short_warnings, size_text
from widemargin.cli._methods import targets_for
from widemargin.cli._path import labels_to_come
from widemargin.cli._train import check_labelled
from widemargin.cli._truth import load_for_model, truth_in_model_columns
from widemargin.comparison import Comparison, MethodResult, compare
from widemargin.data.load import Dataset, load_data
from widemargin.data.text import ZeroBased
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["parse_seconds", "run"]

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")


def run(
    data: Path,
    test: Path | None,
    taxonomy: Path | None,
    options: dict[str, Any],
    names: dict[str, Path | None],
    *,
    zero_based: ZeroBased,
    as_json: bool,
) -> None:
    """Read, compare and report."""
    tree = None if taxonomy is None else Taxonomy.from_tsv(taxonomy)
    with short_warnings():
        dataset = load_data(data, label_names=names["labels"], feature_names=names["features"], zero_based=zero_based)
        check_labelled(dataset, "compare")
        dataset = _with_names_of_nodes(dataset, tree)
        held_out = {} if test is None else _held_out(dataset, test, tree, zero_based)
        with _bar() as report:
            result = compare(dataset.X, dataset.Y, taxonomy=tree, **held_out, **options, report=report)
    if as_json:
        print_json({"data": str(data), **result.to_dict()})
    else:
        print_comparison(result, str(data))


def parse_seconds(text: str | None) -> float | None:
    """A duration such as 90s, 10m or 1.5h; without a unit, seconds."""
    if text is None:
        return None
    match = DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) == 0.0:
        raise ValueError(f"--budget takes a time such as 90s, 10m or 1.5h; got {text!r}")
    return float(match[1]) * UNITS[match[2] or "s"]


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


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[str, float, float], None]]:
    """A bar on a terminal's standard error with the time that is left; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("trial of every method", total=None, left="")

        def show(what: str, elapsed: float, total: float) -> None:
            left = f"about {max(total - elapsed, 0.0):.0f} s left"
            bar.update(task, description=what, completed=elapsed, total=total, left=left)

        yield show


def print_comparison(result: Comparison, title: str) -> None:
    """The table for people, and the recommendation."""
    about = result.about
    table = Table(title=f"{title}: {about['held_out_rows']:,} held-out rows", title_justify="left", title_style="bold")
    table.add_column("method")
    others = [name for name in result.best.quality if name != result.metric]
    for name in ["values", result.metric, *others, "gap", "CPU s", "memory", "model", "µs a row"]:
        table.add_column(name, justify="right")
    for method in result.methods:
        table.add_row(*_cells(method, result.metric, others), style="bold" if method is result.recommended else None)
    Console().print(table)
    for line in notes(result):
        Console().print(line, highlight=False)


def notes(result: Comparison) -> list[str]:
    """What the table does not say."""
    about = result.about
    lines = [result.recommendation]
    if about["share_of_rows"] < 1.0:
        lines.append(
            f"Only {about['share_of_rows']:.0%} of the rows fit the budget; a larger one may change the order."
        )
    if any(method.stopped for method in result.methods):
        lines.append("* the budget stopped a fit before its tolerance; the gap says how far it was.")
    lines += [f"{name} was not tried: {why}." for name, why in result.not_tried.items()]
    return lines


def _cells(method: MethodResult, metric: str, others: list[str]) -> list[str]:
    """A row of the table; ± is half the 95 % interval."""
    first = method.quality[metric]
    memory = method.cost.memory_bytes
    return [
        method.name + (" *" if method.stopped else ""),
        "; ".join(f"{name} {_span(values)}" for name, values in method.parameters.items()),
        f"{first.mean:.4f} ± {first.high - first.mean:.4f}",
        *(f"{method.quality[name].mean:.4f}" for name in others),
        f"{method.relative_gap:.0e}",
        f"{method.cost.cpu_s:.2f}",
        f"{memory / 1e6:.0f} MB" if memory == memory else "?",
        size_text(method.cost.model_bytes),
        f"{1e6 * method.cost.prediction_s:.0f}",
    ]


def _span(values: list[float]) -> str:
    """Values chosen in the folds: one, or from the smallest to the largest."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"
