"""`widemargin train --tune`: values chosen by cross-validation before the training, and the table of those tried."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from sklearn.pipeline import Pipeline

from widemargin.cli._console import output
from widemargin.cli._time import parse_seconds, time_bar
from widemargin.cli._tune_options import TuneOptions
from widemargin.comparison import Tuning, tune
from widemargin.comparison.result import NAMES
from widemargin.comparison.tune import grid_for

__all__ = ["check_tunable", "print_tuning", "with_best_values"]

MANY = 10**6  # more classes than any k: what can be chosen does not depend on the data


def check_tunable(estimator: Any, parameters: dict[str, Any], options: TuneOptions) -> None:
    """Errors before a large file is read: a wrong budget, or nothing left to choose."""
    parse_seconds(options.budget)
    try:
        grid_for(estimator, MANY, **_axes(estimator, parameters))
    except ValueError:
        given = " and ".join(option for option, name in OPTION_OF.items() if parameters.get(name) is not None)
        raise ValueError(f"--tune has nothing left to choose beside {given}; leave out one of them") from None


def with_best_values(
    estimator: Any, X: Any, y: Any, vectorizer: Any, parameters: dict[str, Any], options: TuneOptions
) -> Tuning:
    """Choose the values and set them; X are texts where there is a vectoriser.

    Sets: the parameters of the estimator, and its `tuning_`, which goes into the model.
    """
    whole = estimator if vectorizer is None else Pipeline([("tfidf", vectorizer), ("classifier", estimator)])
    with time_bar("choosing values") as report:
        found = tune(
            whole,
            X,
            y,
            **_axes(estimator, parameters),
            cv=options.folds,
            metric=options.metric,
            budget=parse_seconds(options.budget),
            refit=False,
            report=report,
        )
    estimator.set_params(**found.best)
    estimator.tuning_ = found.to_dict()
    return found


def print_tuning(found: Tuning) -> None:
    """The values tried, the chosen ones in bold, and the reason."""
    folds = f"{found.n_folds} folds" if found.n_folds > 1 else "one fold"
    table = Table(title=f"Values tried, {folds}", title_justify="left", title_style="bold")
    for name in (*(NAMES.get(name, name) for name in found.params), found.metric):
        table.add_column(name, justify="right", no_wrap=True)
    for index, (values, quality) in enumerate(zip(found.tried, found.quality, strict=True)):
        measured = "no time" if quality is None else f"{quality.mean:.4f} ± {quality.high - quality.mean:.4f}"
        cells = [*(f"{value:.4g}" for value in values.values()), measured]
        table.add_row(*cells, style="bold" if index == found.best_index else None)
    for line in (table, found.reason, *found.notes):
        output().print(line)


OPTION_OF = {"--C": "C", "--binary-C": "binary_C", "--k": "k", "--alpha": "alpha"}


def _axes(estimator: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """What is left to choose: parameters that were given keep their values."""
    is_code = "code_size" in estimator.get_params(deep=False)
    learned = is_code and estimator.learn is not None and estimator.norm_bound is None and estimator.learn != "greedy"
    C = parameters.get("binary_C" if is_code and not learned else "C")
    return {
        "Cs": "auto" if C is None else None,
        "ks": "auto" if parameters.get("k") is None else None,
        "alpha_shares": "auto",
    }
