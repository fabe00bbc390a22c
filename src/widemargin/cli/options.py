"""Every option of the command line, declared once.

Each row of `OPTIONS` has a name, flags, a type, a help text, the commands that take it and, for options of `train`, the
methods it is for and the estimator parameter that it sets. From this table come the parser and its help, shell
completion, docs/cli.md, the checks that an option fits the method, the hints in their errors, and the way back from an
estimator to the options that make it. This module imports nothing heavy, which keeps `--help` quick.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

__all__ = [
    "COMMANDS", "METHODS", "OPTIONS", "OPTIONS_OF", "TREE_METHODS", "Command", "Given", "Option", "columns",
    "converted", "executor_of", "gather", "given_words", "make_estimator", "option_words", "options_of",
    "parse_seconds", "signature", "zero_based",
]  # fmt: skip

Parse = Callable[[str, str], Any]


@dataclass(frozen=True)
class Option:
    """One option or argument of some commands."""

    name: str
    flags: str  # such as "--out -o" or "--quotes/--no-quotes"; empty for an argument
    type: Any  # bool, int, float, str, Path, or a tuple of choices
    help: str
    commands: str
    default: Any = None  # None: not given; ... for one that must be given
    shown: str | None = None  # the default in words
    panel: str = "Options"
    methods: tuple[str, ...] = ()  # methods of `train` that have it; all if empty
    parameter: str | None = None  # of the estimator, or text__… of the vectoriser; with methods, the name by default
    inside: bool = False  # output-code: a parameter of its binary classifier
    parse: Parse | None = None
    needs: str = ""  # in training commands, another option that must be given
    metavar: str | None = None
    min: float | None = None
    max: float | None = None

    @property
    def flag(self) -> str:
        """The long flag."""
        return self.flags.split()[0].split("/")[0]

    def parameter_of(self, method: str) -> str | None:
        """Name of the estimator parameter that the option sets for a method; None if it sets none."""
        name = self.parameter or (self.name if self.methods else None)
        return f"estimator__{name}" if self.inside and method == "output-code" else name


class Given(SimpleNamespace):
    """The values of a command's options by name; `raw` has those that were typed as they were typed."""

    raw: dict[str, Any]


@dataclass(frozen=True)
class Command:
    """A command: its help, an example, and the function that runs it."""

    help: str
    example: str
    runs: str  # module:function in this package


def columns(flag: str, text: str) -> list[str]:
    """The names of `--text title,body`."""
    names = list(map(str.strip, text.split(",")))
    if not all(names) or len(set(names)) != len(names):
        raise ValueError(f"{flag} must be distinct column names separated by commas; got {text!r}")
    return names


def tab_or_character(flag: str, text: str) -> str:
    r"""The value of `--delimiter`; \t stands for a tab, which is hard to type."""
    return "\t" if text == "\\t" else text


def numbers(flag: str, text: str) -> list[float]:
    """The numbers of an option such as `--C 0.25,1,4`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{flag} must be numbers separated by commas, such as 0.25,1,4; got {text!r}") from None


def depths(flag: str, text: str) -> list[int]:
    """The numbers of `--k 1,3,5`, ascending and each once."""
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        ks = []
    if not ks or ks[0] < 1:
        raise ValueError(f"{flag} must be positive integers separated by commas, such as 1,3,5; got {text!r}")
    return ks


def lengths(flag: str, text: str) -> tuple[int, int]:
    """The shortest and longest length of `--ngrams 1,2`."""
    found = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if len(found) != 2 or not 1 <= found[0] <= found[1]:
        raise ValueError(f"{flag} must be the minimum and maximum length, such as 1,2; got {text!r}")
    return found[0], found[1]


def count_or_share(flag: str, text: str) -> int | float:
    """A number of texts, or a share of them if it has a point."""
    try:
        value: int | float = float(text) if "." in text else int(text)
    except ValueError:
        value = -1
    if value < 0 or (isinstance(value, float) and value > 1):
        raise ValueError(f"{flag} must be a number of texts, such as 2, or a fraction, such as 0.01; got {text!r}")
    return value


def number_or(*words: str, kind: Callable[[str], Any] = float) -> Parse:
    """An option that takes a number or one of some words."""

    def parse(flag: str, text: str) -> Any:
        try:
            return text if text in words else kind(text)
        except ValueError:
            what = "a number" if kind is float else "an integer"
            raise ValueError(f"{flag} must be {', '.join(words)} or {what}; got {text!r}") from None

    return parse


def parse_seconds(flag: str, text: str) -> float:
    """A duration such as 90s, 10m or 1.5h; seconds without a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0.0:
        raise ValueError(f"{flag} must be a time such as 90s, 10m or 1.5h; got {text!r}")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


def megabytes(flag: str, text: str) -> float:
    """A size such as 50MB, 800kB or 1.5GB in megabytes, of 10⁶ bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|M|G)B", text.strip())
    if match is None or float(match[1]) == 0.0:
        raise ValueError(f"{flag} must be a size such as 50MB, 800kB or 1.5GB; got {text!r}")
    return float(match[1]) * {"k": 1e-3, "M": 1.0, "G": 1e3}[match[2]]


def share(flag: str, text: str) -> float:
    """A share such as 1% or 0.01."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-\d+)?)\s*(%?)", text.strip())
    if match is None or float(match[1]) == 0.0:
        raise ValueError(f"{flag} must be a share such as 1% or 0.01; got {text!r}")
    return float(match[1]) / (100.0 if match[2] else 1.0)


def names_between_semicolons(flag: str, text: str) -> list[str]:
    """The names of `--methods "one-vs-all; top-k, k = 1"`."""
    return [name.strip() for name in text.split(";")]


TREE_METHODS = ("orthogonal", "per-node", "similarity", "tree-loss", "flat")
# Estimator by method, and defaults that differ from those of the class: values that are chosen on held-out rows,
# DiSMEC++'s pruning, and repeatable runs.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "one-vs-all": ("OneVsAllClassifier", {"prune": 0.01, "C": "auto", "rank_scale": "auto"}),
    "top-k": ("TopKClassifier", {"random_state": 0, "C": "auto"}),
    "output-code": ("OutputCodeClassifier", {"random_state": 0, "C": "auto"}),
    **{
        method: ("HierarchicalClassifier", {"method": method, "random_state": 0, "C": "auto"})
        for method in TREE_METHODS
    },
}
BINARY = ("one-vs-all", "output-code")
CODES = ("output-code",)
KERNELS = ("top-k", "output-code", *TREE_METHODS)
Choices = dict[str, tuple[str, ...]]
LOSSES: Choices = {**dict.fromkeys(BINARY, ("squared_hinge", "logistic")), "top-k": ("beta", "alpha")}
DECISIONS: Choices = {
    "one-vs-all": ("sign", "threshold"),
    **dict.fromkeys(TREE_METHODS, ("auto", "greedy", "beam", "flat")),
}
# Options whose values depend on the method.
CHOICES: dict[str, Choices] = {"loss": LOSSES, "decision": DECISIONS}

TRAINING = "train path compare"
WITH_MODEL = "predict evaluate report"
DATA, TABLE, TREES, CODE, KERNEL, RUN = (
    "Data", "Text tables", "Trees", "Output codes", "Kernels (top-k, trees, output-code with --learn l2)", "Running",
)  # fmt: skip
ONE_VS_ALL, TUNING, DECIDING = "One-vs-all", "Tuning", "Decisions (one-vs-all with several labels per row)"
NUMBERS = (
    "a file in Extreme Classification Repository or svmlight format (plain or .gz), an .npz file, or a store folder "
    "written by widemargin convert"
)
A_TABLE = "a table with text columns (.csv, .tsv, .jsonl, .parquet; all but .parquet also as .gz)"
METRICS = (
    "top_k_accuracy@k for one label per row; precision@k or psp@k (propensity-scored precision) for several labels per "
    "row; for labels in a tree, also hierarchical_f1 and at_or_below@k."
)

# Rows that have most of their columns in common.
code = partial(Option, commands="train", panel=CODE, methods=CODES)
tree = partial(Option, commands="train", panel=TREES, methods=TREE_METHODS)
kernel = partial(Option, commands="train path", panel=KERNEL, methods=KERNELS)
one_vs_all = partial(Option, commands="train", panel=ONE_VS_ALL, methods=BINARY, inside=True)
deciding = partial(Option, commands="train", panel=DECIDING, methods=("one-vs-all",))
text = partial(Option, commands=TRAINING, panel=TABLE, needs="text")

OPTIONS: list[Option] = [
    Option("model", "", Path, "A model folder written by widemargin train, or a file written by widemargin pack.",
           f"{WITH_MODEL} inspect serve pack export", ...),
    Option("model", "", Path, "A model folder written by widemargin train.", "update labels compress", ...),
    Option("data", "", Path, f"Rows and labels: {NUMBERS}; or {A_TABLE}.", f"{TRAINING} evaluate report", ...),
    Option("data", "", Path, f"Rows: {NUMBERS}; or {A_TABLE}. Use - for standard input.", "predict"),
    Option("data", "", Path, f"New rows and labels, in the form that the model was trained on: {NUMBERS}; or "
           f"{A_TABLE}. Labels that the model does not have become new labels.", "update", metavar="NEW_DATA"),
    Option("source", "", Path, f"Rows and labels: {NUMBERS}.", "convert", ..., metavar="IN"),
    Option("target", "", Path, "Output path. Its extension determines the format: .txt or .txt.gz (Extreme "
           "Classification Repository), .svm or .svm.gz (svmlight), or .npz. Any other path is written as a store, a "
           "folder that is memory-mapped during training.", "convert", ..., metavar="OUT"),
    Option("target", "", Path, "File to write, usually with the ending .wm; an existing file is replaced.", "pack", ...,
           metavar="FILE"),
    Option("out", "--out -o", Path, "Folder for the model. If it already contains a model, that model is replaced when "
           "training succeeds.", "train", ..., metavar="MODEL"),
    Option("out", "--out -o", Path, "Folder for the best model.", "path", metavar="MODEL"),
    Option("out", "--out -o", Path, "File to write; the extension .csv, .jsonl or .parquet determines the format.",
           "predict", shown="standard output"),
    Option("out", "--out -o", Path, "File to write.", "report", Path("report.html"), metavar="HTML"),
    Option("out", "--out -o", Path, "Folder for the models.", "demo", Path("widemargin-demo")),
    Option("html", "--html", Path, "HTML page to write, for linear models on text. The page contains the model and "
           "needs no server.", "export", metavar="FILE"),
    Option("onnx", "--onnx", Path, "ONNX file to write, for linear models on dense rows of numbers.", "export",
           metavar="FILE"),
    Option("action", "", ("rename", "merge", "drop", "add"), "What to do: rename OLD NEW; merge LABEL LABEL … --into "
           "NAME; drop LABEL …; or add NAME --rows-with FILE.", "labels", metavar="ACTION"),
    Option("names", "", list[str], "Labels of the model, or new names.", "labels", metavar="LABEL"),
    Option("into", "--into", str, "Name of the merged label; it may be one of those that are merged.", "labels",
           metavar="NAME"),
    Option("rows_with", "--rows-with", Path, "File with the ids of the training rows that get the added label, one per "
           "line; if the rows have no ids, their numbers, counting from 0.", "labels", metavar="FILE"),
    Option("changes", "--changes", Path, "File with many changes, which are made at once. Each line has an action and "
           "labels, separated by tabs: rename, the old name and the new one; merge, the labels and the name of the "
           "merged one; drop and labels; or add, a new name and the ids of its rows.", "labels", metavar="TSV"),
    Option("out", "--out -o", Path, "Folder for the changed model.", "update labels", metavar="MODEL2",
           shown="the model is replaced"),
    Option("out", "--out -o", Path, "Folder for the compressed model.", "compress", ..., metavar="SMALL"),
    Option("max_size", "--max-size", str, "Largest size of the compressed model folder, such as 50MB, with all its "
           "files. The bits and the pruning threshold that increase the objective least are chosen.", "compress",
           metavar="SIZE", parse=megabytes),
    Option("max_gap", "--max-gap", str, "Largest certified relative gap of the compressed model, such as 1%. Without "
           "--max-size, the smallest folder that meets it is written.", "compress", metavar="SHARE", parse=share),
    Option("bits", "--bits", ("8", "16"), "Bits per weight.", "compress",
           shown="chosen; without --max-size and --max-gap, 16"),
    Option("keep_exact_bounds", "--keep-exact-bounds", bool, "Keep bounds on the errors of the weights, so that "
           "predict and evaluate can prove for most rows that their list is that of the full model.", "compress",
           False),
    Option("rows", "--rows", Path, "The rows and labels that the model was trained on, for a model that does not "
           "record them (see train --keep-rows). The objective is computed over them.", "compress", metavar="DATA"),
    Option("test", "--test", Path, "Labelled rows on which the precision is measured before and after.", "compress",
           metavar="DATA"),
    Option("remove", "--remove", Path, "File with the ids of training rows to remove, one per line; if the rows have "
           "no ids, their numbers, counting from 0.", "update", metavar="FILE"),
    Option("rows", "--rows", Path, "The rows and labels that the model was trained on, for a model that does not "
           "record them (see train --keep-rows).", "update labels", metavar="DATA"),
    Option("extend_vocabulary", "--extend-vocabulary", bool, "Make features of the words in new texts that the model "
           "does not know; by default, they are ignored.", "update", False),
    Option("test", "--test", Path, "Labelled rows on which the precision of the updated model is measured, for the log "
           "that inspect and report show.", "update", metavar="DATA"),
    Option("leave", "--leave", bool, "If the old rows are not available, keep the old weights of labels that should be "
           "solved again; by default, this is an error.", "update", False),
    Option("purge", "--purge", bool, "Delete removed rows from the model folder. Stores outside it are never "
           "rewritten.", "update", False),
    Option("dry_run", "--dry-run", bool, "Show which labels would be solved again, and write nothing.", "update",
           False),
    Option("method", "--method", tuple(METHODS), "Method to use. top-k and output-code require one label per row; the "
           "last five are for labels in a tree.", "train path", "one-vs-all"),
    Option("test", "--test", Path, "Held-out rows on which the models are evaluated.", "path", ..., metavar="DATA"),
    Option("test", "--test", Path, "Held-out rows on which the methods are compared.", "compare",
           shown="cross-validation", metavar="DATA"),
    Option("methods", "--methods", str, "Methods to compare, separated by semicolons.", "compare",
           shown="all that apply", parse=names_between_semicolons),
    Option("C", "--C -C", str, "Weight of the loss: a larger value fits the training rows more closely. 'auto' chooses "
           "it on held-out rows. For output-code, this is the weight of the loss when the code is learned; otherwise, "
           "'auto' chooses --binary-C.", "train", shown="auto", parameter="C", parse=number_or("auto")),
    Option("C", "--C -C", str, "Values of C to try, separated by commas.", "path", "0.0625,0.125,0.25,0.5,1,2,4,8,16",
           parse=numbers),
    Option("ks", "--ks", str, "Values of k to try with top-k, separated by commas.", "path", shown="1", parse=depths),
    Option("k", "--k -k", str, "Ranking depths to evaluate, separated by commas; the first one determines which model "
           "is the best.", "path", "1,3,5", parse=depths),
    Option("k", "--k -k", int, "Number of labels to predict per row.", "predict", 5, min=1),
    Option("k", "--k -k", int, "Number of labels per row in the lists of --onnx.", "export", 5, min=1),
    Option("k", "--k -k", str, "Ranking depths to evaluate, separated by commas.", "evaluate",
           shown="1,3,5; with one label per row, 1 to 10", parse=depths),
    Option("threshold", "--threshold", float, "Leave out labels whose score (for calibrated models, probability) is "
           "below this value.", "predict"),
    Option("decide", "--decide", bool, "Output only the labels that the model predicts for a row, instead of the top "
           "k; with a precision target, each is marked as accepted or as one to check.", "predict", False),
    Option("format", "--format", ("tsv", "csv", "jsonl", "parquet"), "Output format.", "predict",
           shown="determined by the extension of --out; otherwise, tsv"),
    Option("keep", "--keep", str, "Table columns to copy to the output, separated by commas.", "predict",
           metavar="COLUMNS", parse=columns),
    Option("names", "--names", Path, "File with a label and its display name on each line, separated by a tab.",
           "predict inspect", metavar="TSV"),
    Option("loss", "--loss", ("squared_hinge", "logistic", "beta", "alpha"), "Loss function.",
           "train path", shown="squared_hinge; top-k: beta", methods=tuple(LOSSES), inside=True),
    Option("tol", "--tol", float, "Tolerance on the gradient norm (one-vs-all), on the relative gap (top-k, learned "
           "codes), or on the gap relative to the decrease in the objective (trees).", "train path",
           shown="0.01; top-k, trees and learned codes: 0.001", parameter="tol"),
    Option("max_iter", "--max-iter", int, "Maximum number of Newton iterations per label; for top-k and trees, maximum "
           "number of passes over the rows.", "train path", shown="1000; top-k: 10000", parameter="max_iter"),
    Option("prune", "--prune", float, "Drop weights whose absolute value is below this threshold, which makes the "
           "model smaller; 0 keeps all weights.", "train", shown="0.01 for one-vs-all, otherwise 0", parameter="prune",
           inside=True),
    Option("prune", "--prune", str, "Pruning thresholds to try, separated by commas; weights with a smaller absolute "
           "value are dropped.", "path", shown="0.01 for one-vs-all, otherwise 0", parse=numbers),
    Option("normalize", "--normalize/--no-normalize", bool, "Scale rows to unit length, both in training and in "
           "prediction.", TRAINING, True, parameter="normalize", inside=True),
    Option("normalize", "--normalize/--no-normalize", bool, "Scale rows to unit length.", "convert", False),
    Option("intercept", "--intercept/--no-intercept", bool, "Learn an intercept for each label.", "train", True,
           parameter="fit_intercept", inside=True),
    Option("class_weight", "--class-weight", ("none", "balanced", "propensity"), "With 'balanced', the positive and "
           "the negative rows of each label (one-vs-all), or the rows of each class (other methods), have the same "
           "total weight. With 'propensity' (one-vs-all with several labels per row), the positive rows of rare labels "
           "count more.", "train", "none", parameter="class_weight"),
    Option("calibrate", "--calibrate", ("sigmoid", "isotonic"), "Learn to convert scores to probabilities, using a "
           "sigmoid or a step function; this requires three more fits, each on a subset of the rows. predict then "
           "outputs probabilities.", "train"),
    Option("seed", "--seed", int, "Random seed for the order of the rows (top-k, trees), for codes and folds "
           "(output-code), and for --test-size.", "train path", shown="0", methods=tuple(KERNELS),
           parameter="random_state"),
    Option("seed", "--seed", int, "Random seed for the folds and the methods.", "compare", 0),
    one_vs_all("init", "--init", ("auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace"), "Starting point of the "
               "solver. All choices lead to the same optimum; 'auto' chooses the fastest.", shown="auto"),
    one_vs_all("gap_tol", "--gap-tol", float, "Largest certified relative gap that is allowed for a label, before "
               "pruning.", shown="0.001"),
    one_vs_all("row_index", "--row-index/--no-row-index", bool, "Index the rows by feature, which saves most labels a "
               "pass over all rows.", shown="for at least 6 million values"),
    Option("rank_scale", "--rank-scale", str, "Exponent q of the rank scale: labels are ranked by their scores divided "
           "by the norm of their weights to this power, which favours rare labels; 0 ranks by the scores. 'auto' "
           "chooses it on held-out rows, by --metric.", "train", shown="auto", panel=ONE_VS_ALL,
           methods=("one-vs-all",), parse=number_or("auto")),
    Option("propensity_a", "--propensity-a", float, "Parameter A in the propensity model of --class-weight propensity.",
           "train", shown="0.55", panel=ONE_VS_ALL, methods=("one-vs-all",), parameter="propensity_A"),
    Option("propensity_b", "--propensity-b", float, "Parameter B in the propensity model of --class-weight propensity.",
           "train", shown="1.5", panel=ONE_VS_ALL, methods=("one-vs-all",), parameter="propensity_B"),
    one_vs_all("regularize_intercept", "--regularize-intercept/--no-regularize-intercept", bool, "Penalise the "
               "intercept like a weight; top-k always does this."),
    Option("decision", "--decision", ("sign", "threshold", "auto", "greedy", "beam", "flat"), "How labels are "
           "predicted. One-vs-all with several labels per row: those with a score above 0 (sign), or above a threshold "
           "chosen on held-out rows. Trees: the search for a label.", "train", panel=DECIDING,
           methods=tuple(DECISIONS), shown="threshold with several labels per row, otherwise sign; trees: auto"),
    deciding("objective", "--objective", ("micro-f1", "macro-f1", "f1-per-row"), "What the threshold maximises: F1 "
             "over all labels of all rows, the mean F1 of the labels, or the mean F1 of the rows.", shown="micro-f1"),
    deciding("per_label_thresholds", "--per-label-thresholds/--no-per-label-thresholds", bool, "Give each label its "
             "own threshold, shrunk towards the common one.", shown="no-per-label-thresholds"),
    deciding("min_labels", "--min-labels", int, "Minimum number of labels to predict per row.", shown="0", min=0),
    deciding("max_labels", "--max-labels", int, "Maximum number of labels to predict per row.", shown="no limit",
             min=1),
    deciding("precision_target", "--precision-target", float, "Precision, such as 0.95, of the labels that can be "
             "accepted without a check; predict --decide marks them.", shown="none", min=0.0, max=1.0),
    deciding("tune_decision", "--tune-decision/--no-tune-decision", bool, "Choose the threshold on held-out rows.",
             shown="tune-decision with several labels per row"),
    Option("k", "--k -k", int, "Train the model to rank the true class (top-k) or the correct child (per-node) among "
           "the top k.", "train", shown="1", panel="Top-k", methods=("top-k", *TREE_METHODS)),
    Option("smoothing", "--smoothing", float, "Amount of smoothing applied to the loss; 0 for none.", "train path",
           shown="0", panel="Top-k", methods=("top-k",)),
    code("code", "--code", ("random", "random-sparse", "bch", "one-vs-rest", "all-pairs", "exhaustive"), "Kind of code "
         "matrix.", shown="random"),
    code("code_size", "--code-size", float, "Number of columns per class in a random or bch code.", shown="1.5"),
    code("learn", "--learn", ("l1", "l2", "linf", "greedy"), "Learn the code from the outputs of the trained columns, "
         "using this norm or a greedy search.", shown="no"),
    code("norm_bound", "--norm-bound", float, "Upper bound on the norm of a learned code, instead of a penalty."),
    code("decoding", "--decoding", ("inner", "hamming", "exponential", "hinge", "logistic"), "How the column outputs "
         "are compared with the code.", shown="inner; greedy: hamming"),
    code("cv", "--cv", str, "Number of cross-validation folds for computing the outputs from which the code is "
         "learned, or 'training' to learn it from the outputs on the training rows.", shown="5",
         parse=number_or("training", kind=int)),
    code("interleave", "--interleave", int, "Number of additional rounds in which the columns are retrained to match "
         "the learned code.", shown="0"),
    code("binary_C", "--binary-C", float, "Weight of the loss (C) in the binary problem for each column.", shown="1",
         parameter="C", inside=True),
    Option("taxonomy", "--taxonomy", Path, "File that defines the tree, with the names of a child and its parent on "
           "each line, separated by a tab. Without this file, labels that contain a / are read as paths, and other "
           "labels form a flat tree.", TRAINING, panel=TREES, methods=TREE_METHODS, metavar="TSV"),
    tree("alpha", "--alpha", str, "Parameter α of orthogonal transfer: 'auto', or a number below the limit α*, which "
         "depends on the tree.", shown="auto", parse=number_or("auto")),
    tree("repair", "--repair", ("error", "alpha", "diagonal"), "What to do if α is too large: report an error, reduce "
         "α, or increase the diagonal of the matrix K.", shown="error"),
    tree("outputs", "--outputs", ("leaves", "all"), "Which nodes compete with each other when tree-loss or flat is "
         "used.", shown="leaves"),
    tree("rescaling", "--rescaling", ("slack", "margin"), "Whether tree-loss uses the distance in the tree to rescale "
         "the slack or the margin.", shown="slack"),
    tree("node_scaling", "--node-scaling", ("sum", "paper"), "How per-node scales the loss at each node: 'paper' "
         "divides C by the total weight of the rows at that node.", shown="sum"),
    tree("beam_width", "--beam-width", int, "Number of paths that a beam search keeps at each level.", shown="10"),
    tree("stop", "--stop", bool, "Allow predictions to stop at inner nodes that are labels.", shown="off"),
    kernel("kernel", "--kernel", ("linear", "rbf", "poly", "sigmoid"), "Kernel function.", shown="linear"),
    kernel("gamma", "--gamma", str, "Kernel coefficient γ: 'scale', 'auto' or a number.", shown="scale",
           parse=number_or("scale", "auto")),
    kernel("degree", "--degree", int, "Degree of the poly kernel.", shown="3"),
    kernel("coef0", "--coef0", float, "Constant term of the poly and sigmoid kernels.", shown="0"),
    Option("cache_size_mb", "--cache-size-mb", float, "Size of the cache for kernel matrix columns, in megabytes.",
           "train", shown="512", panel=KERNEL, methods=KERNELS),
    Option("labels", "--labels", Path, "File of label names, one per line, in the order of the label numbers; a file "
           "named labels.txt next to the data is picked up automatically. With --text, this is the name of the label "
           "column.",
           TRAINING, panel=DATA),
    Option("labels", "--labels", Path, "File of label names, one per line, in the order of the label numbers; a file "
           "named labels.txt next to the data is picked up automatically.", "convert", panel=DATA),
    Option("features", "--features", Path, "File of feature names, one per line, in the order of the feature numbers.",
           f"{TRAINING} convert", panel=DATA),
    Option("index_base", "--index-base", ("auto", "0", "1"), "Index of the first feature in a text file; needed only "
           "if it cannot be inferred from the file.", f"{TRAINING} {WITH_MODEL} convert update", "auto", panel=DATA),
    Option("keep_rows", "--keep-rows", bool, "Keep a copy of the training rows in the model folder, so that the model "
           "can be updated. Without it, a model that was trained on a store records where the store is.", "train",
           False, panel=DATA),
    Option("keep_duals", "--keep-duals", bool, "Keep the dual variables in the model folder as well, so that updates "
           "solve fewer labels again, above all when rows are removed. This requires --keep-rows or a store.", "train",
           False, panel=DATA),
    Option("row_ids", "--row-ids", Path, "File with an id for each row, one per line; rows can later be removed by "
           "their ids. This requires --keep-rows or a store.", "train", panel=DATA, metavar="FILE"),
    Option("row_ids", "--row-ids", Path, "File with an id for each new row, one per line; needed if the model records "
           "ids.", "update", panel=DATA, metavar="FILE"),
    Option("test_size", "--test-size", float, "Hold out this fraction of the rows, such as 0.2, and evaluate the model "
           "on them.", "train", panel=DATA, min=0.0, max=1.0),
    Option("skip_unlabelled", "--skip-unlabelled", bool, "Leave out rows without a label.",
           f"{TRAINING} evaluate report update labels compress", False, panel=DATA),
    Option("text", "--text", str, f"Treat the data as {A_TABLE} and use these text columns, separated by commas; "
           "--labels names the label column.", TRAINING, panel=TABLE, metavar="COLUMNS", parse=columns),
    Option("text", "--text", str, "Text columns of a table, separated by commas. If DATA is not given, this is a "
           "single text to classify.", "predict", panel=TABLE, metavar="COLUMNS", shown="as in training"),
    Option("text", "--text", str, "Text columns of a table, separated by commas.", "evaluate report update compress",
           panel=TABLE, metavar="COLUMNS", shown="as in training", parse=columns),
    Option("labels", "--labels", str, "Label column of a table.", "evaluate report update compress", panel=TABLE,
           metavar="COLUMN", shown="as in training"),
    text("id", "--id", str, "Column with an id for each row, as with --row-ids.", commands="train", metavar="COLUMN"),
    Option("id", "--id", str, "Column with an id for each new row, as with --row-ids.", "update", panel=TABLE,
           metavar="COLUMN"),
    text("label_sep", "--label-sep", str, "Separator between the labels in a cell, such as '|'; without it, each cell "
         "contains a single label.", commands=f"{TRAINING} evaluate report update compress"),
    text("delimiter", "--delimiter", str, "Separator between the cells of a CSV or TSV file.",
         shown="comma for CSV, tab for TSV", parse=tab_or_character,
         commands=f"{TRAINING} {WITH_MODEL} update compress"),
    text("quotes", "--quotes/--no-quotes", bool, "Whether cells of a CSV or TSV file may be quoted.",
         commands=f"{TRAINING} {WITH_MODEL} update compress", shown="quotes"),
    text("encoding", "--encoding", str, "Character encoding of a CSV, TSV or JSON lines file.", shown="utf-8",
         commands=f"{TRAINING} {WITH_MODEL} update compress"),
    text("analyzer", "--analyzer", ("word", "char", "char_wb"), "Whether terms consist of words or of characters "
         "(char_wb: characters within words).", shown="word", parameter="text__analyzer"),
    text("ngrams", "--ngrams", str, "Minimum and maximum length of a term, in words or characters.", shown="1,1",
         parameter="text__ngram_range", parse=lengths, metavar="FROM,TO"),
    text("min_df", "--min-df", str, "Leave out terms that occur in fewer texts than this: a count, or a fraction such "
         "as 0.01.", shown="1", parameter="text__min_df", parse=count_or_share),
    text("max_df", "--max-df", str, "Leave out terms that occur in more texts than this: a count, or a fraction such "
         "as 0.5.", shown="1.0", parameter="text__max_df", parse=count_or_share),
    text("max_features", "--max-features", int, "Maximum number of terms; the most frequent ones are kept.",
         parameter="text__max_features", min=1),
    text("stop_words", "--stop-words", ("english",), "Leave out common words in this language.",
         parameter="text__stop_words"),
    text("strip_accents", "--strip-accents", ("ascii", "unicode"), "Remove accents from letters.", shown="no",
         parameter="text__strip_accents"),
    text("lowercase", "--lowercase/--no-lowercase", bool, "Ignore case.", shown="lowercase",
         parameter="text__lowercase"),
    text("sublinear_tf", "--sublinear-tf/--no-sublinear-tf", bool, "Count a term that occurs n times as 1 + log n.",
         shown="no-sublinear-tf", parameter="text__sublinear_tf"),
    Option("tune", "--tune/--no-tune", bool, "Use cross-validation to choose C (top-k: also k; orthogonal: also α). "
           "Values that you set with other options are kept.", "train", shown="no-tune", panel=TUNING),
    Option("folds", "--folds", int, "Number of cross-validation folds for --tune.", "train", shown="5", panel=TUNING,
           needs="tune", min=2),
    Option("folds", "--folds", int, "Number of cross-validation folds.", "compare", 5, min=2),
    Option("metric", "--metric", str, f"Metric that --tune optimises: {METRICS} Without --tune, the metric by which "
           "--rank-scale auto is chosen: precision@k, ndcg@k or psp@k.", "train", panel=TUNING,
           shown="top_k_accuracy@1 or precision@1; without --tune, the mean of precision at 1, 3 and 5"),
    Option("group", "--group", str, "Keep rows of the same group together when rows are held out. With --text, the "
           "column that names the group; otherwise, a file with one group per line.", "train", panel=TUNING,
           metavar="COLUMN"),
    Option("metric", "--metric", str, f"Metric by which the methods are compared: {METRICS}", "compare",
           shown="top_k_accuracy@1 or precision@1"),
    Option("budget", "--budget", str, "Time budget for --tune, such as 90s, 10m or 1h; with a short budget, fewer "
           "folds are used.", "train", shown="no limit", panel=TUNING, parse=parse_seconds, needs="tune"),
    Option("budget", "--budget", str, "Time budget, such as 90s, 10m or 1h; with a short budget, fewer values are "
           "tried and fewer folds are used.", "compare", shown="no limit", parse=parse_seconds),
    Option("propensity_a", "--propensity-a", float, "Parameter A in the propensity model of Jain et al.", "evaluate",
           0.55),
    Option("propensity_b", "--propensity-b", float, "Parameter B in the propensity model of Jain et al.", "evaluate",
           1.5),
    Option("taxonomy", "--taxonomy", Path, "Predict sets that contain all ancestors of their labels, and print them "
           "with their probabilities. Each line of the file has the names of a child and its parent, separated by a "
           "tab; labels may have several parents. This requires several labels per row and train --calibrate.",
           "predict", metavar="TSV"),
    Option("explain", "--explain", bool, "Show how much each feature contributes to the scores (only for models with "
           "linear scores).", "predict", False),
    Option("explain_features", "--explain-features", int, "Number of features to show in each explanation with "
           "--explain.", "predict", 10, min=1),
    Option("label", "--label", str, "Show the largest weights for this label.", "inspect"),
    Option("top", "--top", int, "Number of weights to show with --label.", "inspect", 10, min=1),
    Option("title", "--title", str, "Page title.", "report export", shown="the model's name"),
    Option("host", "--host", str, "Address to listen on. To listen on all addresses, use 0.0.0.0 and also set "
           "--token-file.", "serve", "127.0.0.1"),
    Option("port", "--port", int, "Port to listen on; 0 picks a free one.", "serve", 8000, min=0, max=65535),
    Option("token_file", "--token-file", Path, "File with the bearer token that requests must include. Without this "
           "option, the token is the value of the environment variable WIDEMARGIN_TOKEN, if it is set.", "serve",
           shown="none"),
    Option("workers", "--workers", int, "Number of processes that answer requests. They share the port and the files "
           "of the model.", "serve", 1, min=1, max=256),
    Option("body_mb", "--body-mb", float, "Maximum size of a request, in megabytes.", "serve", 10.0),
    Option("body_seconds", "--body-seconds", float, "Maximum time that a request may take to arrive, in seconds.",
           "serve", 10.0),
    Option("rate", "--rate", float, "Maximum number of requests per second from one client to one worker; 0 for no "
           "limit.", "serve", 0.0),
    Option("batch_rows", "--batch-rows", int, "Maximum number of rows predicted together.", "serve", 1024, min=1),
    Option("connections", "--connections", int, "Maximum number of simultaneous connections per worker; further ones "
           "are refused with status 503.", "serve", 1000, min=1),
    Option("jobs", "--jobs -j", int, "Number of threads; -1 for all cores. The results do not depend on this number.",
           f"{TRAINING} {WITH_MODEL} serve update labels compress", 1, panel=RUN, parameter="n_jobs"),
    Option("processes", "--processes", int, "Number of worker processes; -1 for one per core. By default, there are no "
           "worker processes.", "train compare predict update", panel=RUN),
    Option("scheduler", "--scheduler", str, "Address, such as tcp://host:8786, of a Dask scheduler whose "
           "workers do the work.", "train compare predict update", panel=RUN, metavar="ADDRESS"),
    Option("shard_size", "--shard-size", int, "Number of labels per shard in one-vs-all training. If training is "
           "killed, only the shards in progress are lost. The model does not depend on this number.", "train update",
           shown="enough for about half a minute", panel=RUN, min=1),
    Option("time_limit", "--time-limit", float, "Time limit, in seconds. When it is reached, one-vs-all "
           "training stops and can be resumed by running the command again; other methods save the model trained so "
           "far.", "train update", panel=RUN,
           metavar="SECONDS", min=0.0),
    Option("memory_limit", "--memory-limit", float, "Memory limit for this process, or for each worker, in megabytes.",
           "train predict update", panel=RUN, metavar="MB", min=1.0),
    Option("restart", "--restart", bool, "Discard an unfinished training run or update in the folder and start over.",
           "train update labels", False, panel=RUN),
    Option("json", "--json", bool, "Print one JSON object instead of tables.",
           f"{TRAINING} evaluate inspect report convert pack demo update labels compress export", False),
    Option("json", "--json", bool, "Print one JSON object per row, as with --format jsonl.", "predict", False),
]  # fmt: skip

COMMANDS: dict[str, Command] = {
    "train": Command(
        """Train a model and write it to a folder, with a certificate that bounds its distance from the optimum.

        Run the same command again to resume one-vs-all training that was killed or interrupted: finished labels are
        kept in the folder, and an existing model there stays usable. With --tune, the parameter values are chosen
        again; they are the same as before unless --budget cuts the search short.""",
        "widemargin train train.txt.gz --out model --jobs -1",
        "train:run",
    ),
    "path": Command(
        """Train models for several values of C and k, or C and pruning thresholds, and compare them on held-out rows.

        Each fit starts from the result of an earlier one. The table shows precision at k for lists of labels, or top-k
        accuracy for one label per row, together with the certificate and the size of each model.""",
        "widemargin path train.txt.gz --test test.txt.gz --C 0.25,1,4 --prune 0.01,0.03",
        "path:run",
    ),
    "compare": Command(
        """Compare all methods that apply to the labels, and recommend one.

        C and k are chosen using a part of the training rows. Quality is measured on rows that were not used for this
        choice, with 95% confidence intervals; the table also shows the certified gap, training time, memory, model
        size and prediction time. With --text, the vectoriser is fitted on the training rows of each fold; it is not
        included in the times and sizes. No model is kept: the last line of the output is the command that trains the
        recommended one.""",
        "widemargin compare train.txt.gz --budget 10m",
        "compare:run",
    ),
    "predict": Command(
        """Print the top labels for each row with their scores, one line per row, best label first.

        A calibrated model (train --calibrate) outputs probabilities instead of scores; JSON output contains both. With
        --explain, indented lines show how much each feature contributes to a score and to its lead over the next best
        label. Standard input (-) may contain rows in a text format, one text per line, or, with --text COLUMNS, a table
        like the training table.""",
        "widemargin predict model test.txt.gz --k 3 --out predictions.tsv",
        "predict:run",
    ),
    "evaluate": Command(
        """Evaluate a model on labelled rows.

        Lists of labels: precision, recall, nDCG and propensity-scored precision at k, micro and macro F1. One label per
        row: accuracy, macro F1 and the top-k accuracy curve. Labels in a tree: accuracy, the fraction of predictions at
        or below the true node, hierarchical F1, tree loss, micro and macro F1, and the error at each level; with --k,
        also top-k accuracy. Macro F1 is averaged over the model's labels and any true labels that are unknown to the
        model. Calibrated models: also the expected calibration error over the top k.""",
        "widemargin evaluate model test.txt.gz --k 1,3,5",
        "evaluate:run",
    ),
    "inspect": Command(
        """Show the contents of a model folder: parameters, sizes, the certificate and the label with the largest gap.

        If a training run was interrupted, show its progress and how to resume it.""",
        "widemargin inspect model --label devel::lang:python",
        "inspect:run",
    ),
    "update": Command(
        """Update a model with new rows, removed rows and new labels, without training it again.

        One-vs-all: labels whose weights are still within the tolerance keep them; the others are solved again, starting
        from their old weights. Other methods are tested and continued as a whole. The certificate of the result holds
        for the rows that are left and the new ones. The model must record its training rows (train --keep-rows, or
        training on a store), unless --rows gives them. The folder is replaced in one step at the end; run the same
        command again to resume an update that was interrupted.""",
        "widemargin update model new.txt.gz --remove ids.txt",
        "update:run",
    ),
    "labels": Command(
        """Rename, merge, drop or add labels of a model, without training it again.

        Renaming and dropping need no training rows. A merged label has the rows of all its parts, and an added one
        those of --rows-with; both are solved on all training rows, which the model must record (train --keep-rows, or
        training on a store). Models with one problem for all classes (top-k, output codes) can only rename them.""",
        "widemargin labels model rename colour color",
        "labels:run",
    ),
    "compress": Command(
        """Write a smaller copy of a model: weights of 8 or 16 bits, without small ones, and the certificate of these.

        The objective of the compressed weights is computed over all training rows, which the model must record (train
        --keep-rows, or training on a store), unless --rows gives them. With --max-size, the bits and the pruning
        threshold are chosen so that it is smallest. The copy predicts like any other model, but it cannot be updated:
        update the full model and compress it again.""",
        "widemargin compress model --max-size 50MB --out small",
        "compress:run",
    ),
    "export": Command(
        """Write a model in a form that other programs can run.

        --html writes a text model as a web page on which it can be tried: one file with the model inside, which works
        without a server or a network. The page shows the top labels of a text and the words that decided. Pages above
        30 MB are refused; compress the model first. --onnx writes linear models that score dense rows of numbers, for
        any ONNX runtime: all scores, and the top labels of each row.""",
        "widemargin export model --html try.html",
        "export:run",
    ),
    "serve": Command(
        """Answer HTTP requests with the top labels for rows or texts.

        POST /predict takes JSON such as {"rows": [[0.1, 0, 2]], "k": 3} or {"texts": ["fresh bread"]}; POST /batch
        takes one such object per line and answers line by line. /docs describes the interface, and /health and
        /metrics are for monitoring. Ctrl-C or SIGTERM stops the server; requests in progress have 10 seconds to
        finish.""",
        "widemargin serve model --port 8000",
        "serve:run",
    ),
    "pack": Command(
        """Write a model as one file, which every command that predicts takes in place of the folder.

        The file is mapped, not unpacked, and its parts have hashes. It lacks the training rows and other parts that
        only update and labels need. The native program and the C interface read it, too.""",
        "widemargin pack model model.wm",
        "pack:run",
    ),
    "convert": Command(
        "Convert between data formats, or into a memory-mapped store.",
        "widemargin convert train.txt.gz train.store --normalize",
        "convert:run",
    ),
    "report": Command(
        """Evaluate a model on labelled rows and write the results to a self-contained HTML page.

        The page shows quality metrics, the certificate, plots, a table of labels that you can search and sort, and the
        worst mistakes with the features that caused them.""",
        "widemargin report model test.txt.gz -o report.html",
        "evaluate:report",
    ),
    "demo": Command(
        "Train, certify and evaluate models of every family on bundled data, compare them, and write a report.",
        "widemargin demo",
        "demo:run",
    ),
}


OPTIONS_OF = {name: {o.name: o for o in OPTIONS if name in o.commands.split()} for name in COMMANDS}
"""The rows of the table by command and name."""


enumeration: Any = StrEnum  # typer takes choices as an enumeration


def signature(command: str, typer: Any) -> inspect.Signature:
    """The parameters of a command as typer reads them."""
    parameters = []
    for option in OPTIONS_OF[command].values():
        kind: Any = option.type
        if isinstance(kind, tuple):
            kind = enumeration(option.name, [(choice, choice) for choice in kind])
        about = {name: getattr(option, name) for name in ("help", "metavar", "min", "max")}
        if option.flags:
            shown = {"show_default": option.shown} if option.shown else {}
            field = typer.Option(*option.flags.split(), rich_help_panel=option.panel, **about, **shown)
        else:
            field = typer.Argument(**about | {"metavar": option.metavar or option.name.upper()})
        default = inspect.Parameter.empty if option.default is ... else option.default
        about = {"default": default, "annotation": Annotated[kind | None if default is None else kind, field]}
        parameters.append(inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, **about))
    return inspect.Signature(parameters)


def converted(option: Option | None, slowly: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """A value of the option's type; typer's own conversion, which imports pydantic for 0.1 s, only reports errors."""
    if option is None:  # one of typer's own, such as --help
        return None if value is None else slowly(context, value)
    if isinstance(value, bool) or (value is None and option.default is not ...):
        return value
    if isinstance(option.type, tuple):
        return value if value in option.type else slowly(context, value)
    try:
        found = option.type(value)
        if (option.min is None or found >= option.min) and (option.max is None or found <= option.max):
            return found
    except (TypeError, ValueError):
        pass
    return slowly(context, value)


def gather(command: str, values: Mapping[str, Any]) -> Given:
    """The values of a command's options, parsed; an error for one that needs another that is missing."""
    parsed: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    for option in OPTIONS_OF[command].values():
        value = values[option.name]
        value = value.value if isinstance(value, StrEnum) else value
        if value is not None and value != option.default:
            raw[option.name] = value
        if option.needs and value is not None and command in TRAINING and not values[option.needs]:
            raise ValueError(f"{option.flag} requires --{option.needs}; use both, or leave out {option.flag}")
        parsed[option.name] = option.parse(option.flag, value) if option.parse and value is not None else value
    return Given(raw=raw, **parsed)


def zero_based(given: Given) -> Any:
    """`--index-base` as the readers take it."""
    return "auto" if given.index_base == "auto" else given.index_base == "0"


def executor_of(given: Given) -> int | str | None:
    """Who does the work: a number of processes, the workers of a scheduler, or None for this process."""
    if given.processes is not None and given.scheduler is not None:
        raise ValueError("--processes and --scheduler cannot be combined; use one of them")
    return given.processes if given.scheduler is None else str(given.scheduler)


def make_estimator(method: str, values: Mapping[str, Any]) -> Any:
    """The estimator that options of `train` describe, checked; an error for an option that the method does not have."""
    import widemargin
    from widemargin.estimators.persistence import check_savable

    name, defaults = METHODS[method]
    inside = {"estimator": widemargin.OneVsAllClassifier()} if method == "output-code" else {}
    parameters = dict(defaults)
    for option in OPTIONS_OF["train"].values():
        value, parameter = values.get(option.name), option.parameter_of(method)
        if parameter is None or parameter.startswith("text__") or value in (None, "none"):
            continue
        if option.methods and method not in option.methods:
            other = f"; leave it out, or use --method {option.methods[0]}"
            raise ValueError(f"{option.flag} does not apply to --method {method}{other}")
        if option.name in CHOICES and value not in CHOICES[option.name][method]:
            choices = " or ".join(CHOICES[option.name][method])
            raise ValueError(f"{option.flag} {value} is not available for --method {method}; use {choices}")
        if option.name == "taxonomy" and isinstance(value, Path):
            value = widemargin.Taxonomy.from_tsv(value)
        parameters[parameter] = value
    estimator = getattr(widemargin, name)(**inside).set_params(**parameters)
    estimator._check_parameters()  # before the data are read
    check_savable(estimator)
    return estimator


def options_of(estimator: Any) -> list[str]:
    """Options of `train` that make this estimator, apart from `--taxonomy`: the way back from `make_estimator`."""
    classes = {name: method for method, (name, _) in METHODS.items() if method not in TREE_METHODS}
    method = classes.get(type(estimator).__name__) or estimator.method
    usual = make_estimator(method, {"normalize": True, "intercept": True, "jobs": 1}).get_params()
    found, values = ["--method", method], estimator.get_params()
    for option in OPTIONS_OF["train"].values():
        name, fits = option.parameter_of(method), not option.methods or method in option.methods
        if option.name != "taxonomy" and fits and name in values and values[name] != usual[name]:
            found += option_words(option, values[name])
    return found


def option_words(option: Option, value: Any) -> list[str]:
    """An option with its value as words of a command."""
    if isinstance(value, bool):
        return [option.flag if value else option.flags.split("/")[-1]]
    words = [option.flag, str(value)]
    return ["=".join(words)] if words[1].startswith("-") else words  # as one word where the value looks like an option


def given_words(given: Given, command: str, panels: Iterable[str]) -> list[str]:
    """The options of some panels as they were typed, for another command that takes them."""
    words: list[str] = []
    for option in OPTIONS_OF[command].values():
        if option.panel in panels and option.name in given.raw:
            words += option_words(option, given.raw[option.name])
    return words
