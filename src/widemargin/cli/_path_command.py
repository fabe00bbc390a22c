"""The command `path`, its options and its help; what it does is in `_path`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemargin.cli._failure import report_failures
from widemargin.cli._options import (
    Base,
    Coef0,
    Data,
    Degree,
    Features,
    Gamma,
    IndexBase,
    Jobs,
    Json,
    Kernel,
    Labels,
    Loss,
    MaxIter,
    Method,
    MethodOption,
    Seed,
    Smoothing,
    Tolerance,
    Tree,
)

__all__ = ["EPILOG", "path"]

EPILOG = "Example: widemargin path train.txt.gz --test test.txt.gz --C 0.25,1,4 --prune 0.01,0.03"


@report_failures
def path(
    data: Data,
    test: Annotated[Path, typer.Option("--test", metavar="DATA", help="Held-out rows, for the scores.")],
    method: MethodOption = Method.one_vs_all,
    taxonomy: Tree = None,
    C: Annotated[
        str, typer.Option("--C", "-C", help="Weights of the loss, separated by commas.")
    ] = "0.0625,0.125,0.25,0.5,1,2,4,8,16",
    ks: Annotated[
        str | None, typer.Option("--ks", help="Values of k of the top-k losses, separated by commas.", show_default="1")
    ] = None,
    prune: Annotated[
        str | None,
        typer.Option(
            help="Thresholds below which weights are dropped, separated by commas.",
            show_default="0.01 for one-vs-all, otherwise 0",
        ),
    ] = None,
    k: Annotated[str, typer.Option("--k", "-k", help="Depths of the ranking; the first decides.")] = "1,3,5",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="MODEL", help="Folder for the best model.")] = None,
    loss: Loss = None,
    smoothing: Smoothing = None,
    kernel: Kernel = None,
    gamma: Gamma = None,
    degree: Degree = None,
    coef0: Coef0 = None,
    tol: Tolerance = None,
    max_iter: MaxIter = None,
    seed: Seed = None,
    normalize: Annotated[bool, typer.Option(help="Scale rows to unit length, in training and prediction.")] = True,
    labels: Labels = None,
    features: Features = None,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Json = False,
) -> None:
    """Train at several C and k, or C and thresholds, each from an earlier one; compare the models on held-out rows.

    Precision at k for lists of labels, top-k accuracy for one label a row; with every certificate and model size.
    """
    from widemargin.cli import _path

    parameters = {
        "loss": loss and loss.value,
        "smoothing": smoothing,
        "kernel": kernel and kernel.value,
        "gamma": gamma,
        "degree": degree,
        "coef0": coef0,
        "tol": tol,
        "max_iter": max_iter,
        "random_state": seed,
        "normalize": normalize,
        "n_jobs": jobs,
        "taxonomy": taxonomy,
    }
    sweep = _path.parse_sweep(method.value, C, ks, prune)
    names = {"labels": labels, "features": features}
    zero_based = index_base.zero_based
    _path.run(data, test, out, method.value, parameters, sweep, k, names, zero_based=zero_based, as_json=json)
