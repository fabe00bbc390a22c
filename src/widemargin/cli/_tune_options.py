"""Options of `train --tune`; the decorator adds them to a command and hands them over as one argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from widemargin.cli._text_options import with_options

__all__ = ["TuneOptions", "tune_options"]

OPTIONS: dict[str, Any] = {
    "tune": Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune",
            help="Choose C by cross-validation, of top-k also k, of orthogonal also α; what is given is kept.",
            show_default="no-tune",
        ),
    ],
    "folds": Annotated[int | None, typer.Option("--folds", min=2, help="Folds of --tune.", show_default="5")],
    "metric": Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="What decides in --tune: top_k_accuracy@k for one label per row, precision@k for several; in a tree "
            "also hierarchical_f1 or at_or_below@k.",
            show_default="with k = 1",
        ),
    ],
    "budget": Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="Time that --tune may take, such as 90s, 10m or 1h; a short one uses fewer folds.",
            show_default="no limit",
        ),
    ],
}


@dataclass(frozen=True)
class TuneOptions:
    """What the options say; the budget as it was written."""

    folds: int = 5
    metric: str | None = None
    budget: str | None = None


def tune_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as `tuning`: TuneOptions, or None without `--tune`."""
    return with_options(command, "tuning", OPTIONS, _gathered)


def _gathered(values: dict[str, Any]) -> TuneOptions | None:
    given = {name: value for name, value in values.items() if value is not None}
    if given.pop("tune", False):
        return TuneOptions(**given)
    for name in given:
        raise ValueError(f"--{name} is an option of --tune; give that, too, or leave it out")
    return None
