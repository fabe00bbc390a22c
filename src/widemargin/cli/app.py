"""The commands, their options and their help; what they do is in one module each, imported when it is called."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from widemargin.cli._failure import report_failures

__all__ = ["app"]

app = typer.Typer(
    name="widemargin",
    help="Large-margin linear classification with many labels: fast, exact, and certified.",
    epilog="Try it on embedded data: widemargin demo",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: rich would add 0.1 s to the start
    pretty_exceptions_enable=False,
    add_completion=False,
)

DATA_HELP = (
    "Rows and labels: a file in the Extreme Classification Repository format or svmlight (plain or .gz), an .npz file, "
    "or a store folder made by widemargin convert."
)

Data = Annotated[Path, typer.Argument(metavar="DATA", help=DATA_HELP)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder written by widemargin train.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1 for all cores. Results do not depend on it.")]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        help="Label names, one a line in the order of their numbers; found by itself when it "
        "lies next to the data as labels.txt.",
    ),
]
Features = Annotated[
    Path | None, typer.Option("--features", help="Feature names, one a line in the order of their numbers.")
]


class IndexBase(StrEnum):
    """Values of `--index-base`."""

    auto = "auto"
    zero = "0"
    one = "1"

    @property
    def zero_based(self) -> bool | Literal["auto"]:
        """The argument of the readers."""
        return "auto" if self is IndexBase.auto else self is IndexBase.zero


Base = Annotated[
    IndexBase,
    typer.Option("--index-base", help="Number of the first feature in a text file; say it where a file may lack it."),
]


class Method(StrEnum):
    """Families that `train` offers."""

    one_vs_all = "one-vs-all"


class LossName(StrEnum):
    """Values of `--loss`."""

    squared_hinge = "squared_hinge"
    logistic = "logistic"


class Init(StrEnum):
    """Values of `--init`; the numbers of the starts have their defaults."""

    auto = "auto"
    zero = "zero"
    bias = "bias"
    msi = "msi"
    ovap = "ovap"
    ovap_tree = "ovap++"
    subspace = "subspace"


class ClassWeight(StrEnum):
    """Values of `--class-weight`."""

    none = "none"
    balanced = "balanced"


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    """Large-margin linear classification with many labels: fast, exact, and certified."""
    if version:
        from widemargin import __version__

        typer.echo(f"widemargin {__version__}")
        raise typer.Exit


@app.command(epilog="Example: widemargin train train.txt.gz --out model --jobs -1")
@report_failures
def train(
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="MODEL",
            help="Folder for the model; an earlier model in it is replaced when training has succeeded.",
        ),
    ],
    method: Annotated[Method, typer.Option(help="Family of models.")] = Method.one_vs_all,
    C: Annotated[
        float, typer.Option("--C", "-C", help="Weight of the loss; larger fits the training rows closer.")
    ] = 1.0,
    loss: Annotated[LossName, typer.Option(help="Loss of a margin.")] = LossName.squared_hinge,
    init: Annotated[
        Init, typer.Option(help="Where training starts: all lead to the same optimum; auto takes the fastest solver.")
    ] = Init.auto,
    tol: Annotated[float, typer.Option(help="Tolerance of the gradient rule.")] = 0.01,
    gap_tol: Annotated[float, typer.Option(help="Largest certified relative gap of a label before pruning.")] = 1e-3,
    prune: Annotated[float, typer.Option(help="Drop weights below this; 0 keeps all, in a dense model.")] = 0.01,
    normalize: Annotated[bool, typer.Option(help="Scale rows to unit length, in training and prediction.")] = True,
    intercept: Annotated[bool, typer.Option(help="Learn an intercept for each label.")] = True,
    regularize_intercept: Annotated[bool, typer.Option(help="Penalise the intercept like a weight.")] = False,
    class_weight: Annotated[
        ClassWeight, typer.Option(help="Give positive and negative rows the same total weight.")
    ] = ClassWeight.none,
    max_iter: Annotated[int, typer.Option(help="Newton iterations a label.")] = 1000,
    labels: Labels = None,
    features: Features = None,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Json = False,
) -> None:
    """Train a model and write it to a folder, with a certificate of how far from optimal it is."""
    from widemargin.cli import _train

    parameters = {
        "C": C,
        "loss": loss.value,
        "init": init.value,
        "tol": tol,
        "gap_tol": gap_tol,
        "prune": prune,
        "normalize": normalize,
        "fit_intercept": intercept,
        "regularize_intercept": regularize_intercept,
        "max_iter": max_iter,
        "n_jobs": jobs,
        "class_weight": None if class_weight is ClassWeight.none else class_weight.value,
    }
    _train.run(
        data,
        out,
        method.value,
        parameters,
        labels=labels,
        features=features,
        zero_based=index_base.zero_based,
        as_json=json,
    )


@app.command(epilog="Example: widemargin path train.txt.gz --test test.txt.gz --C 0.25,1,4 --prune 0.01,0.03")
@report_failures
def path(
    data: Data,
    test: Annotated[Path, typer.Option("--test", metavar="DATA", help="Held-out rows, for the scores.")],
    C: Annotated[
        str, typer.Option("--C", "-C", help="Weights of the loss, separated by commas.")
    ] = "0.0625,0.125,0.25,0.5,1,2,4,8,16",
    prune: Annotated[
        str, typer.Option(help="Thresholds below which weights are dropped, separated by commas.")
    ] = "0.01",
    k: Annotated[str, typer.Option("--k", "-k", help="Depths of the ranking; the first decides.")] = "1,3,5",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="MODEL", help="Folder for the best model.")] = None,
    tol: Annotated[float, typer.Option(help="Tolerance of the gradient rule.")] = 0.01,
    normalize: Annotated[bool, typer.Option(help="Scale rows to unit length, in training and prediction.")] = True,
    labels: Labels = None,
    features: Features = None,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Json = False,
) -> None:
    """Train at several C and thresholds, each from the one before, and compare the models on held-out rows.

    Precision at k for lists of labels, top-k accuracy for one label a row; with every certificate and model size.
    """
    from widemargin.cli import _path

    parameters = {"tol": tol, "normalize": normalize, "n_jobs": jobs}
    sweep = {"values": _path.parse_numbers("--C", C), "prune": _path.parse_numbers("--prune", prune)}
    names = {"labels": labels, "features": features}
    _path.run(data, test, out, parameters, sweep, k, names, zero_based=index_base.zero_based, as_json=json)


@app.command(epilog="Example: widemargin predict model test.txt.gz --k 3 --out predictions.tsv")
@report_failures
def predict(
    model: Model,
    data: Data,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many labels for each row.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; standard output otherwise.")] = None,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a row instead of tab-separated text.")] = False,
) -> None:
    """Print the best labels of each row with their scores, one row a line, best first."""
    from widemargin.cli import _predict

    _predict.run(model, data, k, out, jobs, zero_based=index_base.zero_based, as_json=json)


@app.command(epilog="Example: widemargin evaluate model test.txt.gz --k 1,3,5")
@report_failures
def evaluate(
    model: Model,
    data: Data,
    k: Annotated[
        str | None,
        typer.Option("--k", "-k", help="Depths of the ranking, separated by commas.", show_default="1,3,5"),
    ] = None,
    propensity_a: Annotated[float, typer.Option("--propensity-a", help="A of Jain's propensities.")] = 0.55,
    propensity_b: Annotated[float, typer.Option("--propensity-b", help="B of Jain's propensities.")] = 1.5,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Json = False,
) -> None:
    """Measure a model on labelled rows.

    Multi-label data: precision, recall, nDCG and propensity-scored precision at k, micro and macro F1. One label a
    row: top-k accuracy.
    """
    from widemargin.cli import _evaluate

    propensity = {"propensity_a": propensity_a, "propensity_b": propensity_b}
    _evaluate.run(model, data, k, propensity, jobs, zero_based=index_base.zero_based, as_json=json)


@app.command(epilog="Example: widemargin inspect model --label devel::lang:python")
@report_failures
def inspect(
    model: Model,
    label: Annotated[str | None, typer.Option(help="Show the largest weights of this label.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many weights to show with --label.")] = 10,
    json: Json = False,
) -> None:
    """Show what a model folder holds: parameters, sizes, the certificate, the worst label."""
    from widemargin.cli import _inspect

    _inspect.run(model, label, top, as_json=json)


@app.command(epilog="Example: widemargin convert train.txt.gz train.store --normalize")
@report_failures
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help=DATA_HELP)],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="A name ending in .txt, .txt.gz (Extreme Classification Repository), .svm, .svm.gz "
            "(svmlight) or .npz; any other name is a store folder, which training maps without reading it into memory.",
        ),
    ],
    normalize: Annotated[bool, typer.Option(help="Scale rows to unit length.")] = False,
    labels: Labels = None,
    features: Features = None,
    index_base: Base = IndexBase.auto,
    json: Json = False,
) -> None:
    """Convert between data formats, or into a memory-mapped store."""
    from widemargin.cli import _convert

    options = {"normalize": normalize, "zero_based": index_base.zero_based}
    _convert.run(source, target, options, labels=labels, features=features, as_json=json)


@app.command()
@report_failures
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.")] = Path("widemargin-demo"),
    json: Json = False,
) -> None:
    """Train, evaluate and certify a model on embedded data: Debian packages and their tags."""
    from widemargin.cli import _demo

    _demo.run(out, as_json=json)
