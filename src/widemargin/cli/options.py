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
    envvar: str | None = None

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
        raise ValueError(f"{flag} takes column names separated by commas, each once; got {text!r}")
    return names


def tab_or_character(flag: str, text: str) -> str:
    r"""The value of `--delimiter`; \t stands for a tab, which is hard to type."""
    return "\t" if text == "\\t" else text


def numbers(flag: str, text: str) -> list[float]:
    """The numbers of an option such as `--C 0.25,1,4`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{flag} takes numbers separated by commas, such as 0.25,1,4; got {text!r}") from None


def depths(flag: str, text: str) -> list[int]:
    """The numbers of `--k 1,3,5`, ascending and each once."""
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        ks = []
    if not ks or ks[0] < 1:
        raise ValueError(f"{flag} takes whole numbers from 1 separated by commas, such as 1,3,5; got {text!r}")
    return ks


def lengths(flag: str, text: str) -> tuple[int, int]:
    """The shortest and longest length of `--ngrams 1,2`."""
    found = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if len(found) != 2 or not 1 <= found[0] <= found[1]:
        raise ValueError(f"{flag} takes the shortest and the longest length, such as 1,2; got {text!r}")
    return found[0], found[1]


def count_or_share(flag: str, text: str) -> int | float:
    """A number of texts, or a share of them if it has a point."""
    try:
        value: int | float = float(text) if "." in text else int(text)
    except ValueError:
        value = -1
    if value < 0 or (isinstance(value, float) and value > 1):
        raise ValueError(f"{flag} takes a number of texts, such as 2, or a share, such as 0.01; got {text!r}")
    return value


def number_or(*words: str, kind: Callable[[str], Any] = float) -> Parse:
    """An option that takes a number or one of some words."""

    def parse(flag: str, text: str) -> Any:
        try:
            return text if text in words else kind(text)
        except ValueError:
            what = "a number" if kind is float else "a whole number"
            raise ValueError(f"{flag} takes {', '.join(words)} or {what}; got {text!r}") from None

    return parse


def parse_seconds(flag: str, text: str) -> float:
    """A duration such as 90s, 10m or 1.5h; seconds without a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0.0:
        raise ValueError(f"{flag} takes a time such as 90s, 10m or 1.5h; got {text!r}")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


def names_between_semicolons(flag: str, text: str) -> list[str]:
    """The names of `--methods "one-vs-all; top-k, k = 1"`."""
    return [name.strip() for name in text.split(";")]


TREE_METHODS = ("orthogonal", "per-node", "similarity", "tree-loss", "flat")
# Estimator by method, and defaults that differ from those of the class: DiSMEC++'s settings, and repeatable runs.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "one-vs-all": ("OneVsAllClassifier", {"prune": 0.01}),
    "top-k": ("TopKClassifier", {"random_state": 0}),
    "output-code": ("OutputCodeClassifier", {"random_state": 0}),
    **{method: ("HierarchicalClassifier", {"method": method, "random_state": 0}) for method in TREE_METHODS},
}
BINARY = ("one-vs-all", "output-code")
CODES = ("output-code",)
KERNELS = ("top-k", "output-code", *TREE_METHODS)
LOSSES = dict.fromkeys(BINARY, ("squared_hinge", "logistic")) | {"top-k": ("beta", "alpha")}

TRAINING = "train path compare"
WITH_MODEL = "predict evaluate report"
DATA, TABLE, TREES, CODE, KERNEL, RUN = (
    "Data", "Tables of text", "Trees", "Output codes", "Kernels (top-k, trees, output-code with --learn l2)", "Running",
)  # fmt: skip
ONE_VS_ALL, TUNING = "One-vs-all", "Tuning"
NUMBERS = (
    "a file in the Extreme Classification Repository format or svmlight (plain or .gz), an .npz file, or a store "
    "folder made by widemargin convert"
)
A_TABLE = "a table of text (.csv, .tsv, .jsonl, .parquet; text formats also .gz)"
METRICS = (
    "top_k_accuracy@k for one label per row, precision@k for several; on a tree also hierarchical_f1 or at_or_below@k."
)

# Rows that have most of their columns in common.
code = partial(Option, commands="train", panel=CODE, methods=CODES)
tree = partial(Option, commands="train", panel=TREES, methods=TREE_METHODS)
kernel = partial(Option, commands="train path", panel=KERNEL, methods=KERNELS)
one_vs_all = partial(Option, commands="train", panel=ONE_VS_ALL, methods=BINARY, inside=True)
text = partial(Option, commands=TRAINING, panel=TABLE, needs="text")

OPTIONS: list[Option] = [
    Option("model", "", Path, "A model folder written by widemargin train.", f"{WITH_MODEL} inspect serve", ...),
    Option("data", "", Path, f"Rows and labels: {NUMBERS}; or {A_TABLE}.", f"{TRAINING} evaluate report", ...),
    Option("data", "", Path, f"Rows: {NUMBERS}; or {A_TABLE}. - reads standard input.", "predict"),
    Option("source", "", Path, f"Rows and labels: {NUMBERS}.", "convert", ..., metavar="IN"),
    Option("target", "", Path, "A name ending in .txt, .txt.gz (Extreme Classification Repository), .svm, .svm.gz "
           "(svmlight) or .npz; any other name is a store folder, which training maps instead of reading.", "convert",
           ..., metavar="OUT"),
    Option("out", "--out -o", Path, "Folder for the model. An earlier model there is replaced when training succeeds.",
           "train", ..., metavar="MODEL"),
    Option("out", "--out -o", Path, "Folder for the best model.", "path", metavar="MODEL"),
    Option("out", "--out -o", Path, "File to write; the ending .csv, .jsonl or .parquet sets the format.", "predict",
           shown="standard output"),
    Option("out", "--out -o", Path, "File to write.", "report", Path("report.html"), metavar="HTML"),
    Option("out", "--out -o", Path, "Folder for the models.", "demo", Path("widemargin-demo")),
    Option("method", "--method", tuple(METHODS), "Family of models. top-k and output-code take one label per row; "
           "the last five take labels in a tree.", "train path", "one-vs-all"),
    Option("test", "--test", Path, "Held-out rows, for the scores.", "path", ..., metavar="DATA"),
    Option("test", "--test", Path, "Held-out rows.", "compare", shown="cross-validation", metavar="DATA"),
    Option("methods", "--methods", str, "Methods to try, separated by semicolons.", "compare", shown="all that fit",
           parse=names_between_semicolons),
    Option("C", "--C -C", float, "Weight of the loss: a larger value fits the training rows more closely. "
           "output-code: weight of the learned code's loss.", "train", shown="1", parameter="C"),
    Option("C", "--C -C", str, "Weights of the loss, separated by commas.", "path", "0.0625,0.125,0.25,0.5,1,2,4,8,16",
           parse=numbers),
    Option("ks", "--ks", str, "Values of k for top-k, separated by commas.", "path", shown="1", parse=depths),
    Option("k", "--k -k", str, "Depths of the ranking, separated by commas; the first decides.", "path", "1,3,5",
           parse=depths),
    Option("k", "--k -k", int, "Number of labels per row.", "predict", 5, min=1),
    Option("k", "--k -k", str, "Depths, separated by commas.", "evaluate", shown="1,3,5; one label per row: 1 to 10",
           parse=depths),
    Option("threshold", "--threshold", float, "Leave out labels whose score (calibrated models: probability) is "
           "below this.", "predict"),
    Option("format", "--format", ("tsv", "csv", "jsonl", "parquet"), "Output format.", "predict",
           shown="by the name of --out, otherwise tsv"),
    Option("keep", "--keep", str, "Columns of a table to copy to the output, separated by commas.", "predict",
           metavar="COLUMNS", parse=columns),
    Option("names", "--names", Path, "Display names: a tab-separated file of labels and the names to show for them.",
           "predict inspect", metavar="TSV"),
    Option("loss", "--loss", ("squared_hinge", "logistic", "beta", "alpha"), "Loss of a margin.", "train path",
           shown="squared_hinge; top-k: beta", methods=tuple(LOSSES), inside=True),
    Option("tol", "--tol", float, "Tolerance of the gradient (one-vs-all), the relative gap (top-k, codes), or the "
           "gap relative to the decrease (trees).", "train path", shown="0.01; top-k, trees and learned codes: 0.001",
           parameter="tol"),
    Option("max_iter", "--max-iter", int, "Newton iterations per label; top-k and trees: passes over the rows.",
           "train path", shown="1000; top-k: 10000", parameter="max_iter"),
    Option("prune", "--prune", float, "Drop weights below this, for a smaller model; 0 keeps all.", "train",
           shown="0.01 for one-vs-all, otherwise 0", parameter="prune", inside=True),
    Option("prune", "--prune", str, "Thresholds below which weights are dropped, separated by commas.", "path",
           shown="0.01 for one-vs-all, otherwise 0", parse=numbers),
    Option("normalize", "--normalize/--no-normalize", bool, "Scale rows to unit length, in training and prediction.",
           TRAINING, True, parameter="normalize", inside=True),
    Option("normalize", "--normalize/--no-normalize", bool, "Scale rows to unit length.", "convert", False),
    Option("intercept", "--intercept/--no-intercept", bool, "Learn an intercept per label.", "train", True,
           parameter="fit_intercept", inside=True),
    Option("class_weight", "--class-weight", ("none", "balanced"), "balanced gives the positive and negative rows of "
           "a label, or all classes, the same total weight.", "train", "none", parameter="class_weight"),
    Option("calibrate", "--calibrate", ("sigmoid", "isotonic"), "Also learn probabilities, by a sigmoid or a step "
           "curve of the scores, from three more fits on parts of the rows; predict then gives them.", "train"),
    Option("seed", "--seed", int, "Seed for the order of rows (top-k, trees), for codes and folds (output-code), and "
           "for --test-size.", "train path", shown="0", methods=tuple(KERNELS), parameter="random_state"),
    Option("seed", "--seed", int, "Seed for the folds and the methods.", "compare", 0),
    one_vs_all("init", "--init", ("auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace"), "Start of the "
               "solver. All lead to the same optimum; auto takes the fastest.", shown="auto"),
    one_vs_all("gap_tol", "--gap-tol", float, "Largest certified relative gap of a label before pruning.",
               shown="0.001"),
    one_vs_all("rank_scale", "--rank-scale", float, "Exponent q of the rank scale: labels are ranked by their scores "
               "divided by the norm of their weights to this power, which favours rare labels; 0 ranks by the scores.",
               shown="0"),
    one_vs_all("regularize_intercept", "--regularize-intercept/--no-regularize-intercept", bool,
               "Penalise the intercept like a weight; top-k always does."),
    Option("k", "--k -k", int, "Length of the shortlist to train for (top-k: classes; per-node: children).", "train",
           shown="1", panel="Top-k", methods=("top-k", *TREE_METHODS)),
    Option("smoothing", "--smoothing", float, "Smoothing of the loss.", "train path", shown="0", panel="Top-k",
           methods=("top-k",)),
    code("code", "--code", ("random", "random-sparse", "bch", "one-vs-rest", "all-pairs", "exhaustive"), "Code matrix.",
         shown="random"),
    code("code_size", "--code-size", float, "Columns of a random or bch code per class.", shown="1.5"),
    code("learn", "--learn", ("l1", "l2", "linf", "greedy"), "Learn the code for its columns, with this norm or "
         "greedily.", shown="no"),
    code("norm_bound", "--norm-bound", float, "Largest norm of a learned code, instead of a penalty."),
    code("decoding", "--decoding", ("inner", "hamming", "exponential", "hinge", "logistic"),
         "How outputs are compared with the code.", shown="inner; greedy: hamming"),
    code("cv", "--cv", str, "Number of folds whose outputs the code is learned from, or training.", shown="5",
         parse=number_or("training", kind=int)),
    code("interleave", "--interleave", int, "Rounds in which the columns are trained again for the code.", shown="0"),
    code("binary_C", "--binary-C", float, "Weight of the loss in the columns.", shown="1", parameter="C", inside=True),
    Option("taxonomy", "--taxonomy", Path, "The tree: child and parent, tab-separated. Without it, labels with a / "
           "are paths, and other labels form a flat tree.", TRAINING, panel=TREES, methods=TREE_METHODS, metavar="TSV"),
    tree("alpha", "--alpha", str, "α of orthogonal: auto, or a number below α*.", shown="auto",
         parse=number_or("auto")),
    tree("repair", "--repair", ("error", "alpha", "diagonal"), "What to do if α is too large.", shown="error"),
    tree("outputs", "--outputs", ("leaves", "all"), "Nodes that compete in tree-loss and flat.", shown="leaves"),
    tree("rescaling", "--rescaling", ("slack", "margin"), "How tree-loss uses the tree distance.", shown="slack"),
    tree("node_scaling", "--node-scaling", ("sum", "paper"), "Loss weights of per-node.", shown="sum"),
    tree("decision", "--decision", ("auto", "greedy", "beam", "flat"), "How to predict on a tree.", shown="auto"),
    tree("beam_width", "--beam-width", int, "Paths kept per level.", shown="10"),
    tree("stop", "--stop", bool, "Let predictions end at inner nodes that are labels.", shown="off"),
    kernel("kernel", "--kernel", ("linear", "rbf", "poly", "sigmoid"), "Kernel.", shown="linear"),
    kernel("gamma", "--gamma", str, "γ of the kernel: scale, auto or a number.", shown="scale",
           parse=number_or("scale", "auto")),
    kernel("degree", "--degree", int, "Degree of the poly kernel.", shown="3"),
    kernel("coef0", "--coef0", float, "Constant of the poly and sigmoid kernels.", shown="0"),
    Option("cache_size_mb", "--cache-size-mb", float, "Megabytes of kernel matrix columns to keep.", "train",
           shown="512", panel=KERNEL, methods=KERNELS),
    Option("labels", "--labels", Path, "Label names, one per line in the order of their numbers; labels.txt next to "
           "the data is found on its own. With --text: the label column.", TRAINING, panel=DATA),
    Option("labels", "--labels", Path, "Label names, one per line in the order of their numbers; labels.txt next to "
           "the data is found on its own.", "convert", panel=DATA),
    Option("features", "--features", Path, "Feature names, one per line in the order of their numbers.",
           f"{TRAINING} convert", panel=DATA),
    Option("index_base", "--index-base", ("auto", "0", "1"), "Index of the first feature in a text file, for files "
           "that do not show it.", f"{TRAINING} {WITH_MODEL} convert", "auto", panel=DATA),
    Option("test_size", "--test-size", float, "Hold out this share of the rows, such as 0.2, and measure the model "
           "on them.", "train", panel=DATA, min=0.0, max=1.0),
    Option("skip_unlabelled", "--skip-unlabelled", bool, "Leave out rows without a label.",
           f"{TRAINING} evaluate report", False, panel=DATA),
    Option("text", "--text", str, f"The data are {A_TABLE}: its text columns, separated by commas. --labels names "
           "the label column.", TRAINING, panel=TABLE, metavar="COLUMNS", parse=columns),
    Option("text", "--text", str, "Text columns of a table. Without DATA: one text to predict.", "predict", panel=TABLE,
           metavar="COLUMNS", shown="those of training"),
    Option("text", "--text", str, "Text columns of a table, separated by commas.", "evaluate report", panel=TABLE,
           metavar="COLUMNS", shown="those of training", parse=columns),
    Option("labels", "--labels", str, "Label column of a table.", "evaluate report", panel=TABLE, metavar="COLUMN",
           shown="that of training"),
    text("label_sep", "--label-sep", str, "Separator of the labels in a cell, such as '|'; without it a cell is one "
         "label.", commands=f"{TRAINING} evaluate report"),
    text("delimiter", "--delimiter", str, "Separator of the cells of a CSV or TSV file.", shown="comma; tab",
         commands=f"{TRAINING} {WITH_MODEL}", parse=tab_or_character),
    text("quotes", "--quotes/--no-quotes", bool, "Whether cells of a CSV or TSV file may be quoted.",
         commands=f"{TRAINING} {WITH_MODEL}", shown="quotes"),
    text("encoding", "--encoding", str, "Encoding of a CSV, TSV or JSON lines file.", shown="utf-8",
         commands=f"{TRAINING} {WITH_MODEL}"),
    text("analyzer", "--analyzer", ("word", "char", "char_wb"),
         "Terms of words, or of characters (char_wb: inside words).", shown="word", parameter="text__analyzer"),
    text("ngrams", "--ngrams", str, "Shortest and longest length of a term, in words or characters.", shown="1,1",
         parameter="text__ngram_range", parse=lengths, metavar="FROM,TO"),
    text("min_df", "--min-df", str, "Leave out terms in fewer texts: a number, or a share such as 0.01.", shown="1",
         parameter="text__min_df", parse=count_or_share),
    text("max_df", "--max-df", str, "Leave out terms in more texts: a number, or a share.", shown="1.0",
         parameter="text__max_df", parse=count_or_share),
    text("max_features", "--max-features", int, "Largest number of terms; the most frequent are kept.",
         parameter="text__max_features", min=1),
    text("stop_words", "--stop-words", ("english",), "Leave out the frequent words of a language.",
         parameter="text__stop_words"),
    text("strip_accents", "--strip-accents", ("ascii", "unicode"), "Remove accents from letters.", shown="no",
         parameter="text__strip_accents"),
    text("lowercase", "--lowercase/--no-lowercase", bool, "Ignore case.", shown="lowercase",
         parameter="text__lowercase"),
    text("sublinear_tf", "--sublinear-tf/--no-sublinear-tf", bool, "Count a repeated term as 1 + log.",
         shown="no-sublinear-tf", parameter="text__sublinear_tf"),
    Option("tune", "--tune/--no-tune", bool, "Choose C by cross-validation; top-k: also k; orthogonal: also α. "
           "Values that are given are kept.", "train", shown="no-tune", panel=TUNING),
    Option("folds", "--folds", int, "Folds of --tune.", "train", shown="5", panel=TUNING, needs="tune", min=2),
    Option("folds", "--folds", int, "Folds of the cross-validation.", "compare", 5, min=2),
    Option("metric", "--metric", str, f"Metric that decides in --tune: {METRICS}", "train", shown="with k = 1",
           panel=TUNING, needs="tune"),
    Option("metric", "--metric", str, f"Metric that decides: {METRICS}", "compare", shown="with k = 1"),
    Option("budget", "--budget", str, "Time for --tune, such as 90s, 10m or 1h; a short one uses fewer folds.", "train",
           shown="no limit", panel=TUNING, parse=parse_seconds, needs="tune"),
    Option("budget", "--budget", str, "Time limit, such as 90s, 10m or 1h; a short one tries less.", "compare",
           shown="no limit", parse=parse_seconds),
    Option("propensity_a", "--propensity-a", float, "A of Jain's propensities.", "evaluate", 0.55),
    Option("propensity_b", "--propensity-b", float, "B of Jain's propensities.", "evaluate", 1.5),
    Option("explain", "--explain", bool, "Show what each feature adds to the scores (models with linear scores).",
           "predict", False),
    Option("explain_features", "--explain-features", int, "Number of features to show per sum of --explain.", "predict",
           10, min=1),
    Option("label", "--label", str, "Show the largest weights of this label.", "inspect"),
    Option("top", "--top", int, "Number of weights to show with --label.", "inspect", 10, min=1),
    Option("title", "--title", str, "Headline of the page.", "report", shown="the model's name"),
    Option("host", "--host", str, "Address to listen on; 0.0.0.0 for all, then use --token.", "serve", "127.0.0.1"),
    Option("port", "--port", int, "Port; 0 for a free one.", "serve", 8000, min=0, max=65535),
    Option("token", "--token", str, "Bearer token that requests must carry.", "serve",
           shown="none", envvar="WIDEMARGIN_TOKEN"),
    Option("body_mb", "--body-mb", float, "Largest size of a request, in megabytes.", "serve", 10.0),
    Option("body_seconds", "--body-seconds", float, "Seconds within which a request must arrive.", "serve", 10.0),
    Option("rate", "--rate", float, "Requests per second of one client; 0 for no limit.", "serve", 0.0),
    Option("batch_rows", "--batch-rows", int, "Largest number of rows predicted together.", "serve", 1024, min=1),
    Option("connections", "--connections", int, "Connections at the same time; others get status 503.", "serve",
           1000, min=1),
    Option("jobs", "--jobs -j", int, "Threads; -1 for all cores. Results do not depend on it.",
           f"{TRAINING} {WITH_MODEL} serve", 1, panel=RUN, parameter="n_jobs"),
    Option("processes", "--processes", int, "Worker processes; -1 for one per core. By default, this process does "
           "the work.", "train compare predict", panel=RUN),
    Option("scheduler", "--scheduler", str, "Dask scheduler whose workers do the work, such as tcp://host:8786.",
           "train compare predict", panel=RUN, metavar="ADDRESS"),
    Option("shard_size", "--shard-size", int, "Labels per shard of one-vs-all; a kill loses at most the shards being "
           "solved. The model does not depend on it.", "train", shown="about half a minute of work", panel=RUN,
           min=1),
    Option("time_limit", "--time-limit", float, "Time limit. Run the command again to resume one-vs-all; other "
           "methods save the model reached so far.", "train", panel=RUN, metavar="SECONDS", min=0.0),
    Option("memory_limit", "--memory-limit", float, "Megabytes that this process, or each worker, may use.",
           "train predict", panel=RUN, metavar="MB", min=1.0),
    Option("restart", "--restart", bool, "Drop an unfinished training in the folder and start over.", "train", False,
           panel=RUN),
    Option("json", "--json", bool, "Print one JSON object instead of tables.",
           f"{TRAINING} evaluate inspect report convert demo", False),
    Option("json", "--json", bool, "Print one JSON object per row; the same as --format jsonl.", "predict", False),
]  # fmt: skip

COMMANDS: dict[str, Command] = {
    "train": Command(
        """Train a model and write it to a folder, with a certificate of how far from optimal it is.

        Run the same command again to resume a one-vs-all training that was killed or interrupted: finished labels are
        kept in the folder, and an earlier model there stays usable. With --tune the values are chosen again; they are
        the same unless --budget cut the search short.""",
        "widemargin train train.txt.gz --out model --jobs -1",
        "train:run",
    ),
    "path": Command(
        """Train at several C and k, or C and thresholds, each from an earlier one; compare the models on held-out rows.

        The scores are precision at k for lists of labels and top-k accuracy for one label per row, next to every
        certificate and model size.""",
        "widemargin path train.txt.gz --test test.txt.gz --C 0.25,1,4 --prune 0.01,0.03",
        "path:run",
    ),
    "compare": Command(
        """Try every method that fits the labels, and recommend one.

        C and k are chosen on a part of the training rows. Quality is measured on rows that took no part in the choice,
        with 95 % intervals, next to the certified gap, training time, memory, model size and prediction time. With
        --text the vectoriser is fitted on the training rows of each fold; the costs do not include it. No model is
        kept: the last line is the command that trains the recommended one.""",
        "widemargin compare train.txt.gz --budget 10m",
        "compare:run",
    ),
    "predict": Command(
        """Print the top labels of each row with their scores, one line per row, best first.

        A calibrated model (train --calibrate) gives probabilities instead of scores; JSON has both. With --explain,
        indented lines show what each feature adds to a score and to its lead over the next best label. Standard input
        (-) holds rows in a text format, one text per line or, with --text COLUMNS, a table like that of training.""",
        "widemargin predict model test.txt.gz --k 3 --out predictions.tsv",
        "predict:run",
    ),
    "evaluate": Command(
        """Measure a model on labelled rows.

        Lists of labels: precision, recall, nDCG and propensity-scored precision at k, micro and macro F1. One label per
        row: accuracy, macro F1 and the curve of top-k accuracy. Labels in a tree: accuracy, the share at or below the
        true node, hierarchical F1, tree loss, micro and macro F1 and the error of each level; with --k also top-k
        accuracy. Macro F1 is the mean over the model's labels and the true labels that it does not know. Calibrated
        models: also the expected calibration error over the top k.""",
        "widemargin evaluate model test.txt.gz --k 1,3,5",
        "evaluate:run",
    ),
    "inspect": Command(
        """Show what a model folder holds: parameters, sizes, the certificate, the worst label.

        It also describes an interrupted training, and how to resume it.""",
        "widemargin inspect model --label devel::lang:python",
        "inspect:run",
    ),
    "serve": Command(
        """Answer HTTP requests with the top labels of rows or texts.

        POST /predict takes JSON such as {"rows": [[0.1, 0, 2]], "k": 3} or {"texts": ["fresh bread"]}; /docs describes
        it, /health and /metrics watch it. Ctrl-C or SIGTERM finishes the current requests.""",
        "widemargin serve model --port 8000",
        "serve:run",
    ),
    "convert": Command(
        "Convert between data formats, or into a memory-mapped store.",
        "widemargin convert train.txt.gz train.store --normalize",
        "convert:run",
    ),
    "report": Command(
        """Write a self-contained HTML page about a model, measured on labelled rows.

        It shows quality and certificate, pictures, a table of the labels to search and sort, and the worst mistakes
        with the features that caused them.""",
        "widemargin report model test.txt.gz -o report.html",
        "evaluate:report",
    ),
    "demo": Command(
        "Train, certify and measure every family on embedded data, compare them, and write a report.",
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
        about = {name: getattr(option, name) for name in ("help", "metavar", "min", "max", "envvar")}
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
            raise ValueError(f"{option.flag} needs --{option.needs}: give both, or leave out {option.flag}")
        parsed[option.name] = option.parse(option.flag, value) if option.parse and value is not None else value
    return Given(raw=raw, **parsed)


def zero_based(given: Given) -> Any:
    """`--index-base` as the readers take it."""
    return "auto" if given.index_base == "auto" else given.index_base == "0"


def executor_of(given: Given) -> int | str | None:
    """Who does the work: a number of processes, the workers of a scheduler, or None for this process."""
    if given.processes is not None and given.scheduler is not None:
        raise ValueError("--processes and --scheduler exclude each other; give one of them")
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
            raise ValueError(f"{option.flag} is not an option of --method {method}{other}")
        if option.name == "loss" and value not in LOSSES[method]:
            choices = " or ".join(LOSSES[method])
            raise ValueError(f"--loss {value} is not a loss of --method {method}; use {choices}")
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
