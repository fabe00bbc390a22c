"""How a problem on a tree is solved: one algorithm, chosen once.

A plan names the algorithm, and each has its module:

    kernel           `kernel_joint_dual`   a kernel is given
    dual-averaging   `dual_averaging`      the user asks for Algorithm 1 of the paper, a baseline
    dense            `dense_joint_dual`    orthogonal transfer with a K between any nodes, or with k > 1; in NumPy
    per-parent       `node_top_k`          per-node training with k > 1: one top-k problem per parent
    joint-dual       `joint_dual`          everything else, compiled
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, Penalty
from widemargin.solvers.result import SolverResult
from widemargin.solvers.tree.dense_joint_dual import solve_dense_joint_dual
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging
from widemargin.solvers.tree.joint_dual import JointStart, TreeOptions, solve_joint_dual
from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual
from widemargin.solvers.tree.node_top_k import Distribute, solve_node_top_k

__all__ = ["Algorithm", "Solver", "TreePlan", "make_plan", "solve"]

Algorithm = Literal["joint-dual", "kernel", "dense", "per-parent", "dual-averaging"]
Solver = Literal["dual", "dual-averaging", "dual-averaging-published"]
"""The choice that is left to the user."""


@dataclass(frozen=True, eq=False)
class TreePlan:
    """A problem and the algorithm that solves it; build it with `make_plan`.

    Parameters
    ----------
    algorithm : {"joint-dual", "kernel", "dense", "per-parent", "dual-averaging"}
        The choice.
    method : str
        The method whose losses and penalty follow.
    losses : TreeLosses
        The losses, on rows of X.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The penalty.
    k : int
        k of the top-k loss among siblings.
    kernel : TrainingKernel, PrecomputedKernel or None
        The kernel of the training rows.
    published : bool
        Dual averaging with the lower bound and the stopping rule of the paper.
    can_continue : bool
        Whether the result is a start for a similar problem.
    """

    algorithm: Algorithm
    method: str
    losses: TreeLosses
    penalty: Penalty
    k: int
    kernel: TrainingKernel | PrecomputedKernel | None
    published: bool
    can_continue: bool

    def start_from(self, other: TreePlan, start: JointStart) -> JointStart | None:
        """The start that the solution of another plan gives; None unless method, tree and examples are the same."""
        mine, theirs = self.losses, other.losses
        if (self.method, self.algorithm, mine.n_samples) != (other.method, other.algorithm, theirs.n_samples):
            return None
        for name in ("row", "node", "is_output"):
            if not np.array_equal(getattr(mine, name), getattr(theirs, name)):
                return None
        if not np.array_equal(mine.tree.parent, theirs.tree.parent):
            return None
        old, new = (getattr(plan.penalty, "alpha", None) for plan in (other, self))
        return start.scaled(old / new) if old and new and old != new else start


def make_plan(
    method: str,
    losses: TreeLosses,
    penalty: Penalty,
    *,
    k: int = 1,
    solver: Solver = "dual",
    kernel: TrainingKernel | PrecomputedKernel | None = None,
) -> TreePlan:
    """Choose the algorithm."""
    joins_any = penalty.paths.n_entries != losses.paths.n_entries
    if joins_any and kernel is not None:
        raise ValueError(
            "K joins nodes that are not ancestor and descendant, which requires kernel='linear'; with a kernel, use a "
            "K between ancestors and descendants only"
        )
    algorithm: Algorithm = "joint-dual"
    if kernel is not None:
        algorithm = "kernel"
    elif solver != "dual":
        algorithm = "dual-averaging"
    elif joins_any or k > 1:
        algorithm = "dense" if isinstance(penalty, OrthogonalPenalty) else "per-parent"
    published, can_continue = solver == "dual-averaging-published", algorithm in ("joint-dual", "kernel")
    return TreePlan(algorithm, method, losses, penalty, k, kernel, published, can_continue)


def solve(
    plan: TreePlan, X: Any, options: TreeOptions, *, start: JointStart | None = None, run: Distribute | None = None
) -> SolverResult:
    """Solve a plan on rows X, from a `start` if the plan can continue one; `run` solves parents elsewhere."""
    losses, penalty, given = plan.losses, plan.penalty, vars(options)
    if plan.algorithm == "dual-averaging":
        published: dict[str, Any] = {"lower_bound": "published", "stop": "gap"} if plan.published else {}
        return solve_dual_averaging(X, losses, penalty, **published, **given)
    if plan.algorithm == "dense":
        assert isinstance(penalty, OrthogonalPenalty)
        return solve_dense_joint_dual(X, losses, penalty, k=plan.k, **given)
    if plan.algorithm == "per-parent":
        result = solve_node_top_k(X, losses, plan.k, run=run, **given)
        # The worst problem of this certificate is a parent, not a class; the history has all parents.
        return replace(result, certificate=replace(result.certificate, worst=None))
    if plan.kernel is not None:
        return solve_kernel_joint_dual(plan.kernel, losses, penalty, start=start, **given)
    return solve_joint_dual(X, losses, penalty, start=start, **given)
