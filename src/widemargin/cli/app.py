"""The commands, their options and their help; what they do is in one module each, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._compare_command import compare
from widemargin.cli._failure import report_failures
from widemargin.cli._options import (
    DATA_HELP,
    Alpha,
    Base,
    BeamWidth,
    BinaryC,
    Calibrate,
    ClassWeight,
    CodeOption,
    CodeSize,
    Coef0,
    Data,
    DecisionOption,
    DecodingOption,
    Degree,
    Explain,
    ExplainFeatures,
    Features,
    Folds,
    Gamma,
    IndexBase,
    Init,
    Interleave,
    Jobs,
    Json,
    Kernel,
    Labels,
    Learn,
    Loss,
    MaxIter,
    MemoryLimit,
    Method,
    MethodOption,
    Model,
    NodeScalingOption,
    NormBound,
    OutputsOption,
    Processes,
    RepairOption,
    RescalingOption,
    Restart,
    Scheduler,
    Seed,
    ShardSize,
    Smoothing,
    Stop,
    TimeLimit,
    Tolerance,
    Tree,
    executor_of,
)
from widemargin.cli._path_command import EPILOG as PATH_EPILOG
from widemargin.cli._path_command import path
from widemargin.cli._report_command import demo, report
from widemargin.cli._serve_command import serve
from widemargin.cli._text_options import TableColumns, TextOptions, label_table_options, table_options, text_options
from widemargin.cli._tune_options import TuneOptions, tune_options

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
@text_options
@tune_options
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
    method: MethodOption = Method.one_vs_all,
    taxonomy: Tree = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            "-k",
            help="The true class shall be among the k best, of top-k; of per-node, the true child.",
            show_default="1",
        ),
    ] = None,
    C: Annotated[
        float | None,
        typer.Option(
            "--C",
            "-C",
            help="Weight of the loss; larger fits the training rows closer. Of output-code, that of the learned code.",
            show_default="1",
        ),
    ] = None,
    code: CodeOption = None,
    code_size: CodeSize = None,
    learn: Learn = None,
    norm_bound: NormBound = None,
    decoding: DecodingOption = None,
    cv: Folds = None,
    interleave: Interleave = None,
    binary_C: BinaryC = None,
    loss: Loss = None,
    smoothing: Smoothing = None,
    kernel: Kernel = None,
    gamma: Gamma = None,
    degree: Degree = None,
    coef0: Coef0 = None,
    cache_size_mb: Annotated[
        float | None, typer.Option(help="Megabytes of columns of the kernel matrix to keep.", show_default="512")
    ] = None,
    init: Annotated[
        Init | None,
        typer.Option(
            help="Where one-vs-all starts: all lead to the same optimum; auto takes the fastest solver.",
            show_default="auto",
        ),
    ] = None,
    tol: Tolerance = None,
    gap_tol: Annotated[
        float | None,
        typer.Option(
            help="Largest certified relative gap of a label before pruning, of one-vs-all.", show_default="0.001"
        ),
    ] = None,
    prune: Annotated[
        float | None,
        typer.Option(
            help="Drop weights below this, for a smaller model; 0 keeps all.",
            show_default="0.01 for one-vs-all, otherwise 0",
        ),
    ] = None,
    normalize: Annotated[bool, typer.Option(help="Scale rows to unit length, in training and prediction.")] = True,
    intercept: Annotated[bool, typer.Option(help="Learn an intercept for each label.")] = True,
    regularize_intercept: Annotated[
        bool | None, typer.Option(help="Penalise the intercept like a weight, in one-vs-all; top-k always does.")
    ] = None,
    alpha: Alpha = None,
    repair: RepairOption = None,
    outputs: OutputsOption = None,
    rescaling: RescalingOption = None,
    node_scaling: NodeScalingOption = None,
    decision: DecisionOption = None,
    beam_width: BeamWidth = None,
    stop: Stop = None,
    class_weight: Annotated[
        ClassWeight,
        typer.Option(help="Give positive and negative rows of a label, or all classes, the same total weight."),
    ] = ClassWeight.none,
    max_iter: MaxIter = None,
    calibrate: Calibrate = None,
    seed: Seed = None,
    labels: Labels = None,
    features: Features = None,
    jobs: Jobs = 1,
    processes: Processes = None,
    scheduler: Scheduler = None,
    shard_size: ShardSize = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    restart: Restart = False,
    index_base: Base = IndexBase.auto,
    json: Json = False,
    text: TextOptions | None = None,
    tuning: TuneOptions | None = None,
) -> None:
    """Train a model and write it to a folder, with a certificate of how far from optimal it is.

    A one-vs-all training that was killed or interrupted goes on when it is started again with the same data and
    options; finished labels are kept in the folder until then, and an earlier model there stays usable. With --tune the
    values are chosen again then, the same ones unless --budget cut the search short.
    """
    from widemargin.cli import _train

    parameters = {
        "k": k,
        "C": C,
        "code": code and code.value,
        "code_size": code_size,
        "learn": learn and learn.value,
        "norm_bound": norm_bound,
        "decoding": decoding and decoding.value,
        "cv": cv,
        "interleave": interleave,
        "binary_C": binary_C,
        "loss": loss and loss.value,
        "smoothing": smoothing,
        "kernel": kernel and kernel.value,
        "gamma": gamma,
        "degree": degree,
        "coef0": coef0,
        "cache_size_mb": cache_size_mb,
        "init": init and init.value,
        "tol": tol,
        "gap_tol": gap_tol,
        "prune": prune,
        "normalize": normalize,
        "fit_intercept": intercept,
        "regularize_intercept": regularize_intercept,
        "max_iter": max_iter,
        "random_state": seed,
        "n_jobs": jobs,
        "class_weight": None if class_weight is ClassWeight.none else class_weight.value,
        "taxonomy": taxonomy,
        "alpha": alpha,
        "repair": repair and repair.value,
        "outputs": outputs and outputs.value,
        "rescaling": rescaling and rescaling.value,
        "node_scaling": node_scaling and node_scaling.value,
        "decision": decision and decision.value,
        "beam_width": beam_width,
        "stop": stop,
    }
    limits = {"time_limit_s": time_limit, "memory_limit_mb": memory_limit}
    how = {"executor": executor_of(processes, scheduler), "shard_size": shard_size, "restart": restart, **limits}
    rest: dict[str, Any] = {"calibrate": calibrate and calibrate.value, "text": text, "tuning": tuning, "as_json": json}
    rest |= {"labels": labels, "features": features, "zero_based": index_base.zero_based}
    _train.run(data, out, method.value, parameters, how, **rest)


app.command(epilog=PATH_EPILOG)(path)


app.command(epilog="Example: widemargin compare train.txt.gz --budget 10m")(compare)


@app.command(epilog="Example: widemargin predict model test.txt.gz --k 3 --out predictions.tsv")
@report_failures
@table_options
def predict(
    model: Model,
    data: Data,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many labels for each row.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; standard output otherwise.")] = None,
    explain: Explain = False,
    explain_features: ExplainFeatures = 10,
    jobs: Jobs = 1,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory_limit: MemoryLimit = None,
    index_base: Base = IndexBase.auto,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a row instead of tab-separated text.")] = False,
    table: TableColumns | None = None,
) -> None:
    """Print the best labels of each row with their scores, one row a line, best first.

    A model that was trained with --calibrate gives probabilities in place of scores; with --json, both. With --explain
    indented lines follow: what each feature adds to a score, and to its lead over the best other label.
    """
    from widemargin.cli import _predict

    shown, engine = explain_features if explain else None, executor_of(processes, scheduler)
    base = index_base.zero_based
    _predict.run(
        model, data, k, out, jobs, engine, memory_limit, zero_based=base, as_json=json, explain=shown, table=table
    )


@app.command(epilog="Example: widemargin evaluate model test.txt.gz --k 1,3,5")
@report_failures
@label_table_options
def evaluate(
    model: Model,
    data: Data,
    k: Annotated[
        str | None,
        typer.Option(
            "--k", "-k", help="Depths, separated by commas.", show_default="1,3,5; for one label a row, 1 to 10"
        ),
    ] = None,
    propensity_a: Annotated[float, typer.Option("--propensity-a", help="A of Jain's propensities.")] = 0.55,
    propensity_b: Annotated[float, typer.Option("--propensity-b", help="B of Jain's propensities.")] = 1.5,
    jobs: Jobs = 1,
    index_base: Base = IndexBase.auto,
    json: Json = False,
    table: TableColumns | None = None,
) -> None:
    """Measure a model on labelled rows.

    Multi-label data: precision, recall, nDCG and propensity-scored precision at k, micro and macro F1. One label per
    row: accuracy, macro F1 and the curve of top-k accuracy. Labels in a tree: accuracy, the share at or below the true
    node, hierarchical F1, tree loss, micro and macro F1 and the error of each level; with --k also top-k accuracy.
    Macro F1 is the mean over the model's labels and true ones that it does not know. Calibrated models: the expected
    calibration error, too, over the top k.
    """
    from widemargin.cli import _evaluate

    propensity = {"propensity_a": propensity_a, "propensity_b": propensity_b}
    _evaluate.run(model, data, k, propensity, jobs, zero_based=index_base.zero_based, as_json=json, table=table)


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


app.command(epilog="Example: widemargin serve model --port 8000")(serve)


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


app.command(epilog="Example: widemargin report model test.txt.gz -o report.html")(report)
app.command()(demo)
