"""The tasks: subtrees of RCV1-v2 with the rows that have one label path inside, their random splits and the metrics.

The rows of both parts of rcv1v2-subsets are merged and split again at random, with as many training rows as the task
has in the standard split. Nodes without rows are left out, and only children are merged into their parents. The numbers
of nodes and leaves then match the paper's (tables 1 and 5; but CCAT has 30 nodes, not 31), and α = 1 is positive
definite, as the paper says. The "hierarchical" task of a category drops first-level nodes without children.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from _trees import TreeTask, generated_task, rcv1_task
from widemargin import Taxonomy
from widemargin.labels.tree import Tree
from widemargin.metrics import hierarchical_zero_one_error, tree_induced_loss

CATEGORIES = ("CCAT", "MCAT", "ECAT")
SUFFIX = "-hierarchical"
AS_GIVEN = "-as-given"


class Rows(NamedTuple):
    """X (n_rows, n_features) as CSR, and the label of each row, a node of the tree."""

    X: Any
    labels: npt.NDArray[np.int64]

    def take(self, chosen: Any) -> Rows:
        """Some of the rows, selected by index or mask."""
        return Rows(self.X[chosen], self.labels[chosen])


class Scores(NamedTuple):
    """In per cent: 0/1 error with the paper's rule for inner labels, tree-induced loss, and 0/1 error of the rows
    labelled with leaves."""

    error: float
    tree_loss: float
    leaf_error: float


@dataclass(frozen=True, eq=False)
class Task:
    """All rows of a task, and the number used for training."""

    name: str
    rows: Rows
    tree: Tree
    n_train: int

    @cached_property
    def taxonomy(self) -> Taxonomy:
        """The tree with node numbers as names."""
        return Taxonomy(tuple(range(self.tree.n_nodes)), self.tree)

    @property
    def n_test(self) -> int:
        """Rows left for testing."""
        return len(self.rows.labels) - self.n_train

    def split(self, number: int, seed: int = 0) -> tuple[Rows, Rows]:
        """Training and test rows of a random split."""
        order = np.random.default_rng([seed, number]).permutation(len(self.rows.labels))
        return self.rows.take(order[: self.n_train]), self.rows.take(order[self.n_train :])

    def score(self, labels: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64]) -> Scores:
        """The metrics; micro-F1 of one prediction per row is 100 minus the 0/1 error."""
        leaf = self.tree.is_leaf[labels]
        error = hierarchical_zero_one_error(labels, predicted, self.taxonomy)
        loss = tree_induced_loss(labels, predicted, self.taxonomy)
        leaf_error = hierarchical_zero_one_error(labels[leaf], predicted[leaf], self.taxonomy)
        return Scores(100.0 * error, 100.0 * loss, 100.0 * leaf_error)


def folds(rows: Rows, n_folds: int, seed: int = 0) -> list[tuple[Rows, Rows]]:
    """Training and validation rows of each fold, the same for all methods."""
    fold = np.random.default_rng(seed).permutation(len(rows.labels)) % n_folds
    return [(rows.take(fold != number), rows.take(fold == number)) for number in range(n_folds)]


def rcv1_tasks(folder: Path) -> tuple[list[Task], list[Task]]:
    """The six tasks of tables 2–4 and 6–8, and the three categories that keep their only children."""
    whole = [_join(rcv1_task(folder, name), rcv1_task(folder, name, "test")) for name in CATEGORIES]
    merged = [without_only_children(task) for task in whole]
    whole = [Task(task.name + AS_GIVEN, task.rows, task.tree, task.n_train) for task in whole]
    return [*merged, *(without_flat_branches(task) for task in merged)], whole


def small_tasks(n_rows: int = 240) -> list[Task]:
    """Two small generated tasks with two and three levels and a few labels on inner nodes."""
    tasks = []
    for depth, n_nodes in ((2, 9), (3, 14)):
        made = generated_task(n_nodes, depth, n_rows, n_features=200, n_words=20, seed=depth)
        labels = made.labels.copy()
        labels[:: n_rows // 12] = made.tree.parent[labels[:: n_rows // 12]]
        inside = labels > 0
        X = sp.csr_array(made.X[inside])
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # for LIBLINEAR
        name = f"{depth}-levels"
        tasks.append(Task(name, Rows(X, labels[inside]), made.tree, int(inside.sum()) // 2))
    return tasks


def without_flat_branches(task: Task) -> Task:
    """The task without the root's children that are leaves, and without their rows."""
    tree = task.tree
    return _moved(task, np.where(tree.is_leaf & (tree.depth == 1), -1, np.arange(tree.n_nodes)), SUFFIX)


def without_only_children(task: Task) -> Task:
    """The task without empty nodes, and with only children merged into their parents (except the root)."""
    tree = task.tree
    n_rows = tree.ancestor_matrix(task.rows.labels).sum(axis=0)
    n_children = np.bincount(tree.parent[1:][n_rows[1:] > 0], minlength=tree.n_nodes)
    target = np.arange(tree.n_nodes)
    for node, parent in enumerate(tree.parent[1:], start=1):
        if parent > 0 and n_children[parent] == 1:
            target[node] = target[parent]
    return _moved(task, np.where(n_rows > 0, target, -1), "")


def _moved(task: Task, target: npt.NDArray[np.int64], suffix: str) -> Task:
    """The task with each node moved to its target; −1 drops the node and its rows."""
    kept = np.flatnonzero(target == np.arange(len(target)))
    taxonomy = Taxonomy.from_parents({int(node): int(target[task.tree.parent[node]]) for node in kept[1:]})
    places = target[task.rows.labels]
    inside = places > 0
    rows = Rows(task.rows.X[inside], np.asarray(taxonomy.indices(places[inside].tolist()), dtype=np.int64))
    return Task(task.name + suffix, rows, taxonomy.tree, int(inside[: task.n_train].sum()))


def _join(train: TreeTask, test: TreeTask) -> Task:
    """Merge both parts, with the rows of the standard training part first."""
    rows = Rows(sp.csr_array(sp.vstack([train.X, test.X])), np.concatenate([train.labels, test.labels]))
    return Task(train.name, rows, train.tree, len(train.labels))
