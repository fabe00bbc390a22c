"""The methods, all trained by one solver with a certificate, and their predictions.

C is the paper's: the loss of each of N rows has cost C/N. Flat training and tree-loss training among the leaves use
only the rows labelled with leaves; the other methods use all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reproduce_orthogonal_transfer.tasks import Rows
from widemargin.labels.tree import Tree
from widemargin.problems.tree_factor import AncestorPaths
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import Method, largest_alpha, tree_penalty
from widemargin.solvers.result import SolverResult
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging
from widemargin.solvers.tree.joint_dual import JointResult, JointStart, solve_joint_dual

MAX_PASSES = 5000
COMMON_SHARE = 0.9  # of α*, where the paper's α = 1 is not below α*


@dataclass(frozen=True)
class Variant:
    """A method with its options; `published` is its row in the paper's tables."""

    label: str
    method: Method
    options: dict[str, Any] = field(default_factory=dict)
    published: str | None = None

    @property
    def is_flat(self) -> bool:
        """Whether prediction is one argmax over all outputs rather than a descent through the tree."""
        return self.method in ("flat", "tree-loss")

    def outputs(self, tree: Tree) -> npt.NDArray[np.int64]:
        """The nodes that a flat method can predict."""
        return np.flatnonzero(tree.is_leaf) if "outputs" not in self.options else np.arange(1, tree.n_nodes)

    def trainable(self, rows: Rows, tree: Tree) -> Rows:
        """The rows that the method can be trained on."""
        return rows.take(np.isin(rows.labels, self.outputs(tree))) if self.is_flat else rows


VARIANTS = {
    "flat": Variant("flat", "flat", published="flat"),
    "per-node": Variant("per-node", "per-node", published="per-node"),
    "similarity": Variant("similarity", "similarity", published="similarity"),
    "tree-loss": Variant("tree-loss, all nodes", "tree-loss", {"outputs": "all"}, published="tree-loss"),
    "tree-loss-leaves": Variant("tree-loss, leaves", "tree-loss"),
    "uncoupled": Variant("α = 0", "orthogonal"),
    "orthogonal": Variant("orthogonal", "orthogonal", published="orthogonal"),
}


def alpha_limit(tree: Tree) -> float:
    """α*, below which K is positive definite."""
    return largest_alpha(AncestorPaths.of(tree.parent)).lower


def common_alpha(tree: Tree) -> float:
    """The paper's α = 1 where it is below α*, else a share of α*."""
    limit = alpha_limit(tree)
    return 1.0 if limit > 1.0 else COMMON_SHARE * limit


def train(
    variant: Variant,
    rows: Rows,
    tree: Tree,
    C: float,
    *,
    alpha: float = 0.0,
    tol: float,
    start: JointStart | None = None,
    node_scaling: Literal["sum", "paper"] = "sum",
) -> JointResult:
    """Train on rows the method can use; per-node with "paper" divides C by the number of rows that pass the parent."""
    C = C if node_scaling == "paper" else C / len(rows.labels)
    losses = tree_losses(variant.method, tree, rows.labels, C=C, node_scaling=node_scaling, **variant.options)
    penalty = tree_penalty(variant.method, tree, alpha=alpha)
    return solve_joint_dual(rows.X, losses, penalty, tol=tol, max_iter=MAX_PASSES, start=start)


def train_as_published(
    variant: Variant, rows: Rows, tree: Tree, alpha: float, epsilon: float, max_iter: int
) -> SolverResult:
    """Algorithm 1 of the paper with C = 1, its lower bound and its stopping rule primal − dual ≤ ε."""
    scaling: Literal["sum", "paper"] = "paper" if variant.method == "per-node" else "sum"
    C = 1.0 if scaling == "paper" else 1.0 / len(rows.labels)
    losses = tree_losses(variant.method, tree, rows.labels, C=C, node_scaling=scaling, **variant.options)
    penalty = tree_penalty(variant.method, tree, alpha=alpha)
    options: dict[str, Any] = {"lower_bound": "published", "stop": "gap", "tol": epsilon, "max_iter": max_iter}
    return solve_dual_averaging(rows.X, losses, penalty, **options)


def predict(variant: Variant, tree: Tree, coef: Any, X: Any) -> npt.NDArray[np.int64]:
    """The predicted node of each row: a greedy descent from the root, or the best of all outputs."""
    scores = X @ (coef if isinstance(coef, np.ndarray) else coef.toarray()).T
    if variant.is_flat:
        outputs = variant.outputs(tree)
        return outputs[scores[:, outputs - 1].argmax(axis=1)]
    return descend(tree, scores)


def descend(tree: Tree, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Greedy descent from the root to a leaf by scores of shape (n_rows, m); parents come before children."""
    place = np.zeros(len(scores), dtype=np.int64)
    for node in np.flatnonzero(~tree.is_leaf):
        here = np.flatnonzero(place == node)
        children = tree.children(node)
        place[here] = children[scores[here][:, children - 1].argmax(axis=1)]
    return place
