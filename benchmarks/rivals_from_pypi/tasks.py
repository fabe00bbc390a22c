"""The problems as plain files for the runners, and the quality of the runners' lists by our metrics.

A task is a folder: `task.json`, `train_X.npz` and `test_X.npz` (CSR, float32), and `train_Y.npz` (an indicator) or
`train_y.npy` (class numbers or nodes), `parents.npy` for a tree, and `train.txt` for a rival that only reads files. The
true labels of the test rows stay in `truth/`, which no runner reads. `held-out/` is a task made from the training rows
of a multi-label task: its test rows are a tenth of them, on which settings are chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from _common import find_data
from _trees import rcv1_task
from widemargin import Taxonomy, load_data, read_xmc, write_xmc
from widemargin.metrics import (
    hierarchical_f1,
    hierarchical_zero_one_error,
    jain_propensities,
    macro_f1,
    micro_f1,
    precision_at_k,
    propensity_scored_precision_at_k,
)
from widemargin.metrics.lists import hits
from widemargin.model_selection import stratified_split

PLACES = (1, 3, 5)
HELD_OUT_SHARE = 0.1  # of the training rows
LARGE_SHARE = 0.25  # of the training rows of a large task to train on while tuning
NORMAL_95 = 1.959964  # half-width of a 95 % interval in standard errors
MEASURES = {
    "multilabel": (*(f"P@{k}" for k in PLACES), *(f"PSP@{k}" for k in PLACES)),
    "multiclass": tuple(f"top-{k}" for k in PLACES),
    "tree": ("at or below", "F1"),
}
DECISION_MEASURES = ("micro-F1", "macro-F1")
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A named problem; `read` returns its arrays, or None if the data are missing."""

    name: str
    kind: str  # "multilabel", "multiclass" or "tree"
    text: str
    read: Callable[[], Arrays | None]
    large: bool = False
    unseen: bool = False  # nothing in the package was chosen with its help

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the values that `quality` returns."""
        return MEASURES[self.kind]


def make_folder(task: Task, folder: Path) -> Path | None:
    """The task's folder below `folder`, written if needed; None if the data are missing."""
    path = folder / "tasks" / task.name
    if (path / "task.json").exists():
        return path
    arrays = task.read()
    if arrays is None:
        return None
    _write(path, task.kind, arrays)
    return path


def held_out_folder(task: Task, folder: Path) -> Path:
    """The folder of the task on which settings are chosen, written if needed; `folder` is the task's folder."""
    path = folder / "held-out"
    if not (path / "task.json").exists():
        X, Y = (sp.csr_array(sp.load_npz(folder / f"train_{name}.npz")) for name in "XY")
        train, test = stratified_split(Y, test_size=HELD_OUT_SHARE)
        if task.large:
            n_train = round(LARGE_SHARE * X.shape[0])
            train = np.sort(np.random.default_rng(0).choice(train, n_train, replace=False))
        parts = {"train_X": X[train], "train_Y": Y[train], "test_X": X[test], "test_Y": Y[test]}
        _write(path, task.kind, parts | {"n_labels": Y.shape[1]})
    return path


def _write(path: Path, kind: str, arrays: Arrays) -> None:
    """Write the files of a task; `task.json`, the last one, marks it as complete."""
    (path / "truth").mkdir(parents=True, exist_ok=True)
    sizes = {"n_train": arrays["train_X"].shape[0], "n_test": arrays["test_X"].shape[0]}
    about = {"kind": kind, "n_features": arrays["train_X"].shape[1], "n_labels": arrays.pop("n_labels"), **sizes}
    if kind == "multilabel":
        write_xmc(path / "train.txt", arrays["train_X"], arrays["train_Y"])
    for name, array in arrays.items():
        place = path / "truth" if name in ("test_Y", "test_y") else path
        if sp.issparse(array):
            sp.save_npz(place / f"{name}.npz", sp.csr_matrix(array), compressed=False)
        else:
            np.save(place / f"{name}.npy", array, allow_pickle=False)
    (path / "task.json").write_text(json.dumps(about), encoding="utf-8")


def quality(task: Task, folder: Path, lists: Any) -> dict[str, float]:
    """Quality of a runner's lists (n_test, k) in per cent, by name; `folder` is the task's folder."""
    if task.kind == "multilabel":
        Y, train_Y = _true_labels(folder), sp.csr_array(sp.load_npz(folder / "train_Y.npz"))
        propensities = jain_propensities(train_Y.sum(axis=0), train_Y.shape[0])
        scored = propensity_scored_precision_at_k(Y, lists, PLACES, propensities=propensities)
        values = [*precision_at_k(Y, lists, PLACES), *scored]
    elif task.kind == "multiclass":
        y = np.load(folder / "truth" / "test_y.npy")
        values = [np.mean((lists[:, :k] == y[:, None]).any(axis=1)) for k in PLACES]
    else:
        y, parents = np.load(folder / "truth" / "test_y.npy"), np.load(folder / "parents.npy")
        taxonomy = Taxonomy.from_parents({node: int(above) for node, above in enumerate(parents) if above >= 0}, root=0)
        predicted = lists[:, 0].tolist()
        error = hierarchical_zero_one_error(y.tolist(), predicted, taxonomy)
        values = [1.0 - error, hierarchical_f1(y.tolist(), predicted, taxonomy)]
    return {name: 100.0 * float(value) for name, value in zip(task.measures, values, strict=True)}


def decision_quality(folder: Path, labels: Any) -> dict[str, float]:
    """F1 in per cent of predicted labels, a CSR indicator (n_test, n_labels); macro over labels with true rows."""
    Y, labels = _true_labels(folder), sp.csr_array(labels)
    occurring = np.flatnonzero(Y.sum(axis=0))
    values = micro_f1(Y, labels), macro_f1(Y[:, occurring], labels[:, occurring])
    return {name: 100.0 * value for name, value in zip(DECISION_MEASURES, values, strict=True)}


def precision_differences(folder: Path, lists: Any, others: Any) -> list[tuple[float, float]]:
    """Mean over the test rows of P@k of `lists` minus that of `others`, and its 95 % half-width, in points, by k.

    The rows of both lists are the same, so the interval is that of the paired differences.
    """
    Y = _true_labels(folder)
    Y.sort_indices()
    places = np.array(PLACES)
    found, other = (np.cumsum(hits(part.astype(np.int64), Y), axis=1)[:, places - 1] for part in (lists, others))
    differences = 100.0 * (found - other) / places
    widths = NORMAL_95 * differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    return list(zip(differences.mean(axis=0).tolist(), widths.tolist(), strict=True))


def _true_labels(folder: Path) -> Any:
    return sp.csr_array(sp.load_npz(folder / "truth" / "test_Y.npz"))


def _multilabel(train: str, test: str) -> Arrays | None:
    paths = [find_data(name) for name in (train, test)]
    if None in paths:
        return None
    (X, Y), (X_test, Y_test) = ((data.X, data.Y) for data in (load_data(path, normalize=True) for path in paths))
    return {"train_X": X, "train_Y": Y, "test_X": X_test, "test_Y": Y_test, "n_labels": Y.shape[1]}


def _bibtex() -> Arrays | None:
    """One file with all rows, and the row numbers of each part."""
    folder = find_data("bibtex")
    if folder is None:
        return None
    data = load_data(folder / "all.txt.gz", normalize=True)
    train, test = (np.loadtxt(folder / f"{part}_idx.txt", dtype=np.int64) for part in ("train", "test"))
    parts = {"train_X": data.X[train], "train_Y": data.Y[train], "test_X": data.X[test], "test_Y": data.Y[test]}
    return parts | {"n_labels": data.Y.shape[1]}


def _newsgroups() -> Arrays | None:
    folder = find_data("20newsgroups")
    if folder is None:
        return None
    (X, Y), (X_test, Y_test) = (read_xmc(folder / f"{part}.txt.gz") for part in ("train", "test"))
    y, y_test = (np.asarray(part.indices, dtype=np.int64) for part in (Y, Y_test))
    return {"train_X": X, "train_y": y, "test_X": X_test, "test_y": y_test, "n_labels": Y.shape[1]}


def _letter() -> Arrays | None:
    path = find_data("letter/letter.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        X, y, n = data["X"].astype(np.float64), data["y"], int(data["n_train"])
    low, high = X[:n].min(axis=0), X[:n].max(axis=0)
    X = sp.csr_array((2.0 * (X - low) / (high - low) - 1.0).astype(np.float32))
    classes, y = np.unique(y, return_inverse=True)
    return {"train_X": X[:n], "train_y": y[:n], "test_X": X[n:], "test_y": y[n:], "n_labels": len(classes)}


def _ccat() -> Arrays | None:
    folder = find_data("rcv1v2-subsets")
    if folder is None:
        return None
    train, test = (rcv1_task(folder, "CCAT", part) for part in ("train", "test"))
    arrays = {"train_X": train.X, "train_y": train.labels, "test_X": test.X, "test_y": test.labels}
    return arrays | {"parents": np.asarray(train.tree.parent), "n_labels": train.tree.n_nodes}


TASKS = (
    Task(
        "debian-tags",
        "multilabel",
        "Tags of Debian packages; rows of unit length.",
        lambda: _multilabel("debian-tags/tags_train.txt.gz", "debian-tags/tags_test.txt.gz"),
    ),
    Task(
        "rcv1v2-subsets",
        "multilabel",
        "Topics of news, all levels of their tree as labels; rows of unit length.",
        lambda: _multilabel("rcv1v2-subsets/train.txt.gz", "rcv1v2-subsets/test.txt.gz"),
    ),
    Task("bibtex", "multilabel", "Tags of bibliography entries; rows of unit length.", _bibtex),
    Task(
        "yso-finna-en",
        "multilabel",
        "Subject headings of library titles; rows of unit length.",
        lambda: _multilabel("yso-finna-en/train.txt.gz", "yso-finna-en/test.txt.gz"),
        large=True,
    ),
    Task(
        "pypi-topics",
        "multilabel",
        "Topics of Python projects, split by owner (`tools/make_pypi_topics.py`); rows of unit length.",
        lambda: _multilabel("pypi-topics/train.txt.gz", "pypi-topics/test.txt.gz"),
        unseen=True,
    ),
    Task(
        "npm-keywords",
        "multilabel",
        "Keywords of JavaScript packages, split by owner (`tools/make_npm_keywords.py`); rows of unit length.",
        lambda: _multilabel("npm-keywords/train.txt.gz", "npm-keywords/test.txt.gz"),
        unseen=True,
    ),
    Task("20newsgroups", "multiclass", "Newsgroups of postings, by date; rows of unit length.", _newsgroups),
    Task("letter", "multiclass", "Printed letters, 16 features scaled to [−1, 1].", _letter),
    Task(
        "rcv1-ccat",
        "tree",
        "The tree below CCAT; documents with one label path in it. Measured: predictions at or below the true node, "
        "and hierarchical F1.",
        _ccat,
    ),
)


def quick_tasks() -> list[Task]:
    """A small generated problem of each kind."""
    return [Task(f"quick-{kind}", kind, "Generated rows.", lambda kind=kind: _generated(kind)) for kind in _KINDS]


_KINDS = ("multilabel", "multiclass", "tree")


def _generated(kind: str, n: int = 300, n_labels: int = 12) -> Arrays:
    """Rows with two words of their label and two others; in the tree, nodes 1–3 are inner nodes, the others leaves."""
    rng = np.random.default_rng(0)
    n_features = 4 * n_labels
    y = rng.integers(4 if kind == "tree" else 0, n_labels, size=n)
    X = sp.lil_array((n, n_features), dtype=np.float32)
    for row, label in enumerate(y):
        X[row, [4 * label, 4 * label + 1, *rng.integers(0, n_features, size=2)]] = 0.5
    X, half = sp.csr_array(X), n // 2
    if kind == "multilabel":
        second = (y + 1) % n_labels
        Y = sp.csr_array((np.ones(2 * n), (np.tile(np.arange(n), 2), np.concatenate([y, second]))), shape=(n, n_labels))
        arrays = {"train_Y": Y[:half], "test_Y": Y[half:]}
    else:
        arrays = {"train_y": y[:half], "test_y": y[half:]}
    if kind == "tree":
        arrays["parents"] = np.array([-1, 0, 0, 0, *(1 + node % 3 for node in range(n_labels - 4))])
    return arrays | {"train_X": X[:half], "test_X": X[half:], "n_labels": n_labels}
