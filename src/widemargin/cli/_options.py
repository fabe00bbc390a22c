"""Arguments and options that the commands share: their names, values and help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "DATA_HELP",
    "Alpha",
    "Base",
    "BeamWidth",
    "BinaryC",
    "Calibrate",
    "CalibrationName",
    "ClassWeight",
    "CodeName",
    "CodeOption",
    "CodeSize",
    "Coef0",
    "Data",
    "DecisionOption",
    "DecodingName",
    "DecodingOption",
    "Degree",
    "Explain",
    "ExplainFeatures",
    "Features",
    "Folds",
    "Gamma",
    "IndexBase",
    "Init",
    "Interleave",
    "Jobs",
    "Json",
    "Kernel",
    "KernelName",
    "Labels",
    "Learn",
    "LearnName",
    "Loss",
    "LossName",
    "MaxIter",
    "MemoryLimit",
    "Method",
    "MethodOption",
    "Model",
    "NodeScalingOption",
    "NormBound",
    "OutputsOption",
    "Processes",
    "RepairOption",
    "RescalingOption",
    "Restart",
    "Scheduler",
    "Seed",
    "ShardSize",
    "Smoothing",
    "Stop",
    "TimeLimit",
    "Tolerance",
    "Tree",
    "executor_of",
]

DATA_HELP = (
    "Rows and labels: a file in the Extreme Classification Repository format or svmlight (plain or .gz), an .npz file, "
    "a store folder made by widemargin convert, or a table with text."
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
        "lies next to the data as labels.txt. With --text, the column of labels.",
    ),
]
Features = Annotated[
    Path | None, typer.Option("--features", help="Feature names, one a line in the order of their numbers.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say what each feature adds to the scores, of models with linear scores.")
]
ExplainFeatures = Annotated[
    int, typer.Option("--explain-features", min=1, help="How many features to show for each sum of --explain.")
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
    top_k = "top-k"
    output_code = "output-code"
    orthogonal = "orthogonal"
    per_node = "per-node"
    similarity = "similarity"
    tree_loss = "tree-loss"
    flat = "flat"


class CalibrationName(StrEnum):
    """Values of `--calibrate`."""

    sigmoid = "sigmoid"
    isotonic = "isotonic"


Calibrate = Annotated[
    CalibrationName | None,
    typer.Option(
        help="Learn probabilities as well, by a sigmoid of the scores or a curve, from three more fits on parts of the "
        "rows; predict then gives them."
    ),
]


class CodeName(StrEnum):
    """Values of `--code`."""

    random = "random"
    random_sparse = "random-sparse"
    bch = "bch"
    one_vs_rest = "one-vs-rest"
    all_pairs = "all-pairs"
    exhaustive = "exhaustive"


class LearnName(StrEnum):
    """Values of `--learn`."""

    l1 = "l1"
    l2 = "l2"
    linf = "linf"
    greedy = "greedy"


class DecodingName(StrEnum):
    """Values of `--decoding`."""

    inner = "inner"
    hamming = "hamming"
    exponential = "exponential"
    hinge = "hinge"
    logistic = "logistic"


class Decision(StrEnum):
    """Values of `--decision`."""

    auto = "auto"
    greedy = "greedy"
    beam = "beam"
    flat = "flat"


class Repair(StrEnum):
    """Values of `--repair`."""

    error = "error"
    alpha = "alpha"
    diagonal = "diagonal"


class Outputs(StrEnum):
    """Values of `--outputs`."""

    leaves = "leaves"
    all = "all"


class Rescaling(StrEnum):
    """Values of `--rescaling`."""

    slack = "slack"
    margin = "margin"


class NodeScaling(StrEnum):
    """Values of `--node-scaling`."""

    sum = "sum"
    paper = "paper"


class LossName(StrEnum):
    """Values of `--loss`."""

    squared_hinge = "squared_hinge"
    logistic = "logistic"
    beta = "beta"
    alpha = "alpha"


class KernelName(StrEnum):
    """Values of `--kernel`."""

    linear = "linear"
    rbf = "rbf"
    poly = "poly"
    sigmoid = "sigmoid"


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


# Options of output-code.
CodeOption = Annotated[
    CodeName | None, typer.Option("--code", help="Code matrix, of output-code.", show_default="random")
]
CodeSize = Annotated[
    float | None,
    typer.Option("--code-size", help="Columns of a random or bch code for each class.", show_default="1.5"),
]
Learn = Annotated[
    LearnName | None,
    typer.Option("--learn", help="Learn the code for the columns, with this norm or greedily.", show_default="no"),
]
NormBound = Annotated[
    float | None, typer.Option("--norm-bound", help="Largest norm of a learned code, in place of a penalty.")
]
DecodingOption = Annotated[
    DecodingName | None,
    typer.Option("--decoding", help="How outputs are compared with the code.", show_default="inner; greedy: hamming"),
]
Folds = Annotated[
    str | None,
    typer.Option("--cv", help="Folds whose outputs the code is learned on, or training.", show_default="5"),
]
Interleave = Annotated[
    int | None, typer.Option("--interleave", help="Rounds of training columns again for the code.", show_default="0")
]
BinaryC = Annotated[
    float | None, typer.Option("--binary-C", help="Weight of the loss in columns of output-code.", show_default="1")
]

# Options of both `train` and `path`; None stands for the default of the method.
MethodOption = Annotated[
    Method,
    typer.Option(
        "--method",
        help="Family of models; top-k and output-code take one label a row, the last five labels in a tree.",
    ),
]
Tree = Annotated[
    Path | None,
    typer.Option(
        "--taxonomy",
        metavar="TSV",
        help="The tree: child and parent, tab-separated; without it labels with a / are paths, others have a flat one.",
    ),
]
Alpha = Annotated[
    str | None, typer.Option("--alpha", help="α of orthogonal: auto or a number below α*.", show_default="auto")
]
RepairOption = Annotated[
    Repair | None, typer.Option("--repair", help="What to do about an α that is too large.", show_default="error")
]
OutputsOption = Annotated[
    Outputs | None, typer.Option("--outputs", help="What competes in tree-loss and flat.", show_default="leaves")
]
RescalingOption = Annotated[
    Rescaling | None, typer.Option("--rescaling", help="Use of the distance in tree-loss.", show_default="slack")
]
NodeScalingOption = Annotated[
    NodeScaling | None, typer.Option("--node-scaling", help="Loss weights of per-node.", show_default="sum")
]
DecisionOption = Annotated[
    Decision | None, typer.Option("--decision", help="How to predict in a tree.", show_default="auto")
]
BeamWidth = Annotated[int | None, typer.Option("--beam-width", help="Paths kept at a level.", show_default="10")]
Stop = Annotated[
    bool | None, typer.Option("--stop", help="Let predictions end at inner nodes that are labels.", show_default="off")
]
Loss = Annotated[
    LossName | None,
    typer.Option("--loss", help="Loss of a margin.", show_default="squared_hinge; of top-k, beta"),
]
Kernel = Annotated[
    KernelName | None,
    typer.Option("--kernel", help="Kernel, of top-k, trees, and outputs with --learn l2.", show_default="linear"),
]
Gamma = Annotated[
    str | None, typer.Option("--gamma", help="γ of the kernel: scale, auto or a number.", show_default="scale")
]
Degree = Annotated[int | None, typer.Option("--degree", help="Degree of the poly kernel.", show_default="3")]
Coef0 = Annotated[
    float | None, typer.Option("--coef0", help="Constant of the poly and sigmoid kernels.", show_default="0")
]
Smoothing = Annotated[float | None, typer.Option("--smoothing", help="Smoothing of a top-k loss.", show_default="0")]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Of the order of rows, of top-k and trees; of the code and the folds, of output-code.",
        show_default="0",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tol",
        help="Tolerance of the gradient rule; of top-k and codes, relative gap; of trees, gap over the decrease.",
        show_default="0.01; of top-k, trees and learned codes, 0.001",
    ),
]
MaxIter = Annotated[
    int | None,
    typer.Option(
        "--max-iter",
        help="Newton iterations a label; of top-k and trees, passes over the rows.",
        show_default="1000; of top-k, 10000",
    ),
]

# Options of work that is split up: who does it, and within what limits.
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", help="Worker processes; -1 for one on every core. Without it, this one with its threads."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Let the workers of a dask cluster do it, such as tcp://host:8786."
    ),
]
ShardSize = Annotated[
    int | None,
    typer.Option(
        "--shard-size",
        min=1,
        help="Labels that are solved and kept together, of one-vs-all; a kill costs at most these. No influence on the "
        "model.",
        show_default="about half a minute of work",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        min=0.0,
        help="Stop after so long; one-vs-all goes on when it is started again, others keep the model reached.",
    ),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option("--memory-limit", metavar="MB", min=1.0, help="Megabytes that this process, or each worker, may use."),
]
Restart = Annotated[bool, typer.Option("--restart", help="Drop an unfinished training in the folder, and begin anew.")]


def executor_of(processes: int | None, scheduler: str | None) -> int | str | None:
    """Who does the work: so many processes, the workers of a scheduler, or None for this process."""
    if processes is not None and scheduler is not None:
        raise ValueError("--processes and --scheduler are two ways to do the work; give one of them")
    return processes if scheduler is None else scheduler
