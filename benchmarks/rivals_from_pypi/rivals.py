"""The rivals and their settings: C = 1 and one thread, unless the label says otherwise; the settings to tune over."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from widemargin import OneVsAllClassifier
from widemargin.cli.options import OPTIONS_OF, make_estimator

RUNNERS = Path(__file__).parent / "runners"
OURS = "widemargin"


@dataclass(frozen=True)
class Rival:
    """A package: the pip requirement (None: already installed), the module to import, and the script that runs it."""

    name: str
    requirement: str | None
    module: str
    runner: Path
    instead_of_dependencies: tuple[str, ...] = ()

    def installations(self, others: tuple[str, ...]) -> list[list[str]]:
        """The arguments of each pip call, including the other packages that a runner needs."""
        if not self.instead_of_dependencies:
            return [[str(self.requirement), *others]]
        return [["--no-deps", str(self.requirement)], list(self.instead_of_dependencies)]


@dataclass(frozen=True)
class Entry:
    """A method of a rival with settings, for one kind of table; `large` admits large tasks.

    If `grid` is not empty, the method is also tuned: every member of `grid` changes some of `options`, and so does the
    best of them together with `then`. The best of all these settings on held-out rows is trained on all rows.
    """

    rival: str
    settings: str
    kind: str  # that of the tasks, or "decisions" for label sets of multi-label tasks
    options: dict[str, Any] = field(default_factory=dict)
    method: str = ""  # for rivals with several methods
    large: bool = False
    label_tree: bool = False
    grid: tuple[dict[str, Any], ...] = ()
    then: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Method and settings."""
        return ", ".join(filter(None, (self.method, self.settings)))


RIVALS = (
    Rival(OURS, None, "widemargin", RUNNERS / "run_widemargin.py"),
    Rival("liblinear-official", "liblinear-official", "liblinear.liblinearutil", RUNNERS / "run_liblinear.py"),
    Rival("scikit-learn", "scikit-learn", "sklearn", RUNNERS / "run_scikit_learn.py"),
    Rival("hiclass", "hiclass", "hiclass", RUNNERS / "run_hiclass.py"),
    Rival("omikuji", "omikuji", "omikuji", RUNNERS / "run_omikuji.py"),
    Rival("napkinxc", "napkinxc", "napkinxc.models", RUNNERS / "run_napkinxc.py"),
    Rival("libmultilabel", "libmultilabel", "libmultilabel.linear", RUNNERS / "run_libmultilabel.py"),
    # The linear part uses only these dependencies; torch and transformers would take gigabytes.
    Rival(
        "PECOS",
        "libpecos",
        "pecos.xmc.xlinear",
        RUNNERS / "run_pecos.py",
        ("numpy<2", "scipy<1.14", "scikit-learn"),
    ),
)


def command_line_options() -> dict[str, Any]:
    """Options of the runner for the estimator of `widemargin train` without options."""
    defaults = {option.name: option.default for option in OPTIONS_OF["train"].values() if option.default is not ...}
    usual = OneVsAllClassifier().get_params()
    # For rows with several labels, `train` also chooses which of them to predict.
    several = {"decision": "threshold", "tune_decision": True}
    chosen = make_estimator("one-vs-all", defaults).set_params(**several).get_params()
    return {"family": "one-vs-all"} | {name: value for name, value in chosen.items() if value != usual[name]}


# Every rival is tuned over five settings, and so are we.
CS = tuple({"C": C} for C in (0.125, 0.25, 0.5, 1, 2))
OUR_GRID = tuple({"C": C, "rank_scale": q} for C, q in ((1, 0.0), (0.5, 0.1), (0.25, 0.2), (0.125, 0.2), (0.5, 0.2)))
PECOS_GRID = tuple(
    {"Cp": C, "Cn": C, "threshold": threshold}
    for C, threshold in ((1, 0.1), (1, 0.01), (0.25, 0.01), (0.5, 0.01), (2, 0.01))
)
PLT_GRID = tuple(
    {"liblinear_c": C, "liblinear_eps": eps, "weights_threshold": threshold}
    for C, eps, threshold in ((10, 0.1, 0.1), (10, 0.1, 0.01), (3, 0.1, 0.01), (30, 0.1, 0.01), (10, 0.01, 0.01))
)
BR_GRID = tuple({"liblinear_c": setting["C"]} for setting in CS)
OMIKUJI_GRID = tuple({"linear_c": C} for C in (0.25, 0.5, 1, 2))

OUR_OPTIONS = {"family": "one-vs-all", "normalize": True, "prune": 0.01}
OUR_FIT = Entry(
    OURS,
    "one fit at C = 1",
    "multilabel",
    OUR_OPTIONS | {"C": 1, "rank_scale": 0.0},
    method="one-vs-all",
    large=True,
    grid=OUR_GRID,
)
OUR_DEFAULT = Entry(OURS, "the command line's defaults", "multilabel", command_line_options(), large=True)
OUR_DECISIONS = tuple(
    Entry(OURS, settings, "decisions", options, large=True)
    for settings, options in (
        ("one-vs-all at C = 1: sign", OUR_OPTIONS | {"C": 1, "decision": "sign"}),
        (OUR_DEFAULT.settings, OUR_DEFAULT.options),
        ("threshold: macro-f1", OUR_DEFAULT.options | {"objective": "macro-f1"}),
    )
)

# LIBLINEAR's -s 2 -e 0.01 is our gradient rule with tol 0.01; -s 1 -e 0.1 are its defaults.
ENTRIES = (
    OUR_FIT,
    OUR_DEFAULT,
    Entry("liblinear-official", "`-s 2 -B 1 -R -e 0.01`", "multilabel", {"options": "-s 2 -B 1 -R -e 0.01", "C": 1}),
    Entry("liblinear-official", "`-s 1 -B 1 -e 0.1`", "multilabel", {"options": "-s 1 -B 1 -e 0.1", "C": 1}, grid=CS),
    Entry(
        "scikit-learn",
        "`LinearSVC(dual=False, tol=0.01)`",
        "multilabel",
        {"dual": False, "tol": 0.01},
        method="OneVsRest",
    ),
    Entry("scikit-learn", "`LinearSVC()`", "multilabel", method="OneVsRest", grid=CS),
    Entry(
        "libmultilabel",
        "`-s 1 -B 1 -e 0.1`",
        "multilabel",
        {"method": "1vsrest", "C": 1},
        method="one-vs-rest",
        grid=CS,
    ),
    Entry(
        "libmultilabel",
        "`-s 1 -B 1 -e 0.1`",
        "multilabel",
        {"method": "tree", "C": 1},
        method="tree",
        large=True,
        label_tree=True,
        grid=CS,
    ),
    Entry(
        "napkinxc",
        "squared hinge, pruned below 0.01",
        "multilabel",
        {"model": "BR", "loss": "l2", "liblinear_c": 1, "weights_threshold": 0.01},
        method="`BR`",
        grid=BR_GRID,
    ),
    Entry(
        "napkinxc",
        "its defaults",
        "multilabel",
        {"model": "PLT", "seed": 0},
        method="`PLT`",
        large=True,
        label_tree=True,
        grid=PLT_GRID,
    ),
    Entry(
        "omikuji",
        "its defaults (3 trees)",
        "multilabel",
        large=True,
        label_tree=True,
        grid=OMIKUJI_GRID,
        then={"n_trees": 6},
    ),
    Entry("PECOS", "its defaults", "multilabel", method="XR-Linear", large=True, label_tree=True, grid=PECOS_GRID),
    Entry(OURS, "top-k SVM, k = 1", "multiclass", {"family": "top-k", "k": 1}),
    Entry(OURS, "one-vs-all", "multiclass", {"family": "one-vs-all"}),
    Entry("liblinear-official", "`-s 4 -B 1`", "multiclass", {"options": "-s 4 -B 1", "C": 1}),
    Entry("scikit-learn", "`LinearSVC(multi_class='crammer_singer')`", "multiclass", {"multi_class": "crammer_singer"}),
    Entry("scikit-learn", "`LinearSVC()`", "multiclass"),
    Entry(OURS, "per-node", "tree", {"family": "tree", "method": "per-node"}),
    Entry(OURS, "orthogonal transfer", "tree", {"family": "tree", "method": "orthogonal"}),
    Entry("hiclass", "`LocalClassifierPerParentNode(LinearSVC())`", "tree"),
    *OUR_DECISIONS,
    Entry("libmultilabel", "`train_1vsrest`: sign", "decisions", {"method": "1vsrest", "C": 1}),
    Entry("libmultilabel", "`train_thresholding`: micro + macro F1", "decisions", {"method": "thresholding", "C": 1}),
    Entry("libmultilabel", "`train_cost_sensitive`: macro F1", "decisions", {"method": "cost_sensitive", "C": 1}),
    Entry(
        "libmultilabel",
        "`train_cost_sensitive_micro`: micro F1",
        "decisions",
        {"method": "cost_sensitive_micro", "C": 1},
    ),
)
