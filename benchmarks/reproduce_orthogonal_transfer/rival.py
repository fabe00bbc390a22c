"""hiclass with scikit-learn's LinearSVC on the same splits.

`LocalClassifierPerParentNode` trains one multiclass LinearSVC (one-vs-rest, squared hinge) at each inner node; it is
the closest relative of per-node training. (`LocalClassifierPerNode` needs probabilities, which LinearSVC does not
provide.) hiclass is not a dependency of the package; if it is missing, the command says so.
"""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.svm import LinearSVC

from reproduce_orthogonal_transfer.tasks import Rows, Task
from reproduce_orthogonal_transfer.tuning import Settings, search
from widemargin.labels.tree import Tree

MISSING = "hiclass is not installed: `pip install hiclass`, or skip its section with --no-hiclass"
DEFAULT_C = 1.0


def is_installed() -> bool:
    """Whether hiclass can be imported."""
    return importlib.util.find_spec("hiclass") is not None


def label_paths(tree: Tree, labels: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Labels in hiclass's format: one column per level, empty strings below inner labels."""
    by_node = np.full((tree.n_nodes, tree.height), "", dtype=object)
    for node in range(1, tree.n_nodes):
        path = [str(above) for above in tree.path(node)[1:]]
        by_node[node, : len(path)] = path
    return by_node[labels]


def fit(tree: Tree, rows: Rows, C: float) -> tuple[Any, float]:
    """The trained model and the CPU seconds of its `fit`; no intercept, like all fits here."""
    from hiclass import LocalClassifierPerParentNode

    model = LocalClassifierPerParentNode(LinearSVC(C=C, fit_intercept=False, random_state=0))
    paths = label_paths(tree, rows.labels)
    started = time.process_time()
    model.fit(rows.X, paths)
    return model, time.process_time() - started


def predict(tree: Tree, model: Any, X: Any) -> npt.NDArray[np.int64]:
    """The last node of each predicted path."""
    paths = model.predict(X)
    return np.array([int([name for name in path if name != ""][-1]) for path in paths], dtype=np.int64)


def tuned_cell(
    task: Task, train: Rows, test: Rows, parts: list[tuple[Rows, Rows]], settings: Settings
) -> dict[str, Any]:
    """hiclass with LinearSVC's C chosen by the same cross-validation."""

    def error_of(C: float) -> float:
        fitted = [(fit(task.tree, rows, C)[0], held) for rows, held in parts]
        return float(np.mean([task.score(held.labels, predict(task.tree, m, held.X)).error for m, held in fitted]))

    started = time.process_time()
    chosen = search(error_of, settings.rival_first, settings.rival_limits, settings.factor)
    cv_s = time.process_time() - started
    return _cell(task, train, test, chosen.C) | {"cv_s": cv_s, "at_limit": chosen.at_limit, "n_tried": chosen.n_tried}


def default_cell(task: Task, train: Rows, test: Rows) -> dict[str, Any]:
    """hiclass with LinearSVC's default C."""
    return _cell(task, train, test, DEFAULT_C)


def _cell(task: Task, train: Rows, test: Rows, C: float) -> dict[str, Any]:
    model, cpu_s = fit(task.tree, train, C)
    scores = task.score(test.labels, predict(task.tree, model, test.X))
    return scores._asdict() | {"C": C, "cpu_s": cpu_s}
