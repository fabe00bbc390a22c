"""The command `compare`, its options and its help; what it does is in `_compare`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemargin.cli._failure import report_failures
from widemargin.cli._options import (
    Base,
    Data,
    Features,
    IndexBase,
    Jobs,
    Json,
    Labels,
    Processes,
    Scheduler,
    Seed,
    Tree,
    executor_of,
)
from widemargin.cli._text_options import TextOptions, text_options

__all__ = ["compare"]


@report_failures
@text_options
def compare(
    context: typer.Context,
    data: Data,
    test: Annotated[
        Path | None,
        typer.Option("--test", metavar="DATA", help="Held-out rows.", show_default="cross-validation"),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Time it may take, such as 90s, 10m or 1h; a short one tries less.", show_default="no limit"),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What decides: top_k_accuracy@k for one label per row, precision@k for several; with a taxonomy also "
            "hierarchical_f1 or at_or_below@k.",
            show_default="with k = 1",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods to try, separated by semicolons.", show_default="all that fit")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    taxonomy: Tree = None,
    normalize: Annotated[bool, typer.Option(help="Scale rows to unit length.")] = True,
    seed: Seed = None,
    labels: Labels = None,
    features: Features = None,
    jobs: Jobs = 1,
    processes: Processes = None,
    scheduler: Scheduler = None,
    index_base: Base = IndexBase.auto,
    json: Json = False,
    text: TextOptions | None = None,
) -> None:
    """Try every method that fits the labels, and recommend one.

    C and k are chosen on a part of the training rows; quality comes from rows that took no part in the choice, with
    95 % intervals, next to the certified gap, training time, memory, model size and time of a prediction. With --text
    the vectoriser is fitted on the training rows of each fold; the costs are without it. No model is kept: the last
    line is the command that trains the recommended one.
    """
    from widemargin.cli import _compare
    from widemargin.cli._time import parse_seconds

    options = {
        "cv": folds,
        "methods": None if methods is None else [name.strip() for name in methods.split(";")],
        "metric": metric,
        "budget": parse_seconds(budget),
        "normalize": normalize,
        "random_state": 0 if seed is None else seed,
        "n_jobs": jobs,
        "executor": executor_of(processes, scheduler),
    }
    names = {"labels": labels, "features": features}
    zero_based, carried = index_base.zero_based, _compare.options_for_train(context)
    _compare.run(data, test, taxonomy, options, names, carried, zero_based=zero_based, as_json=json, text=text)
