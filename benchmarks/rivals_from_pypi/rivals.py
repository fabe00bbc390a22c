"""The rivals and their settings: C = 1 and one thread, unless the label says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """A line of the tables: a rival with stated settings, for tasks of one kind; `large` admits large tasks."""

    rival: str
    label: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    large: bool = False


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

# LIBLINEAR's -s 2 -e 0.01 is our gradient rule with tol 0.01; -s 1 -e 0.1 are its defaults.
ENTRIES = (
    Entry(
        OURS,
        "one-vs-all, pruned below 0.01",
        "multilabel",
        {"family": "one-vs-all", "parameters": {"tol": 0.01, "prune": 0.01}},
        large=True,
    ),
    Entry("liblinear-official", "`-s 2 -B 1 -R -e 0.01`", "multilabel", {"options": "-s 2 -c 1 -B 1 -R -e 0.01"}),
    Entry("liblinear-official", "`-s 1 -B 1 -e 0.1`", "multilabel", {"options": "-s 1 -c 1 -B 1 -e 0.1"}),
    Entry("scikit-learn", "OneVsRest, `LinearSVC(dual=False, tol=0.01)`", "multilabel", {"dual": False, "tol": 0.01}),
    Entry("scikit-learn", "OneVsRest, `LinearSVC()`", "multilabel"),
    Entry("libmultilabel", "one-vs-rest, `-s 1 -B 1 -e 0.1`", "multilabel", {"method": "1vsrest"}),
    Entry("libmultilabel", "tree, `-s 1 -B 1 -e 0.1`", "multilabel", {"method": "tree"}, large=True),
    Entry(
        "napkinxc",
        "`BR`, squared hinge, pruned below 0.01",
        "multilabel",
        {"model": "BR", "loss": "l2", "liblinear_c": 1, "weights_threshold": 0.01},
    ),
    Entry("napkinxc", "`PLT`, its defaults", "multilabel", {"model": "PLT", "seed": 0}, large=True),
    Entry("omikuji", "its defaults (3 trees)", "multilabel", large=True),
    Entry("PECOS", "XR-Linear, its defaults", "multilabel", large=True),
    Entry(OURS, "top-k SVM, k = 1", "multiclass", {"family": "top-k", "parameters": {"k": 1}}),
    Entry(OURS, "one-vs-all", "multiclass", {"family": "one-vs-all", "parameters": {}}),
    Entry("liblinear-official", "`-s 4 -B 1`", "multiclass", {"options": "-s 4 -c 1 -B 1"}),
    Entry("scikit-learn", "`LinearSVC(multi_class='crammer_singer')`", "multiclass", {"multi_class": "crammer_singer"}),
    Entry("scikit-learn", "`LinearSVC()`", "multiclass"),
    Entry(OURS, "per-node", "tree", {"family": "tree", "parameters": {"method": "per-node"}}),
    Entry(OURS, "orthogonal transfer", "tree", {"family": "tree", "parameters": {"method": "orthogonal"}}),
    Entry("hiclass", "`LocalClassifierPerParentNode(LinearSVC())`", "tree"),
)
