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
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, Penalty
from widemargin.solvers.result import SolverResult
from widemargin.solvers.tree.dense_joint_dual import solve_dense_joint_dual
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging
from widemargin.solvers.tree.joint_dual import JointStart, TreeOptions, solve_joint_dual
from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual
from widemargin.solvers.tree.node_top_k import Distribute, solve_node_top_k

__all__ = ["Algorithm", "Solver", "TreePlan", "TreePoint", "make_plan", "solve"]

Ints = npt.NDArray[np.int64]

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

    def point(self, result: SolverResult) -> TreePoint:
        """The solution of this plan, for later ones."""
        losses, start = self.losses, JointStart(result.dual, getattr(result, "S", None))
        if self.algorithm == "per-parent":
            cost = np.where(losses.cost > 0.0, losses.cost, 1.0)
            start = JointStart(sp.csr_array(sp.diags_array(1.0 / cost) @ result.dual))
        return TreePoint(
            self.method,
            self.algorithm,
            self.k,
            getattr(self.penalty, "alpha", None),
            losses.tree.parent,
            losses.is_output,
            losses.n_samples,
            losses.row,
            losses.node,
            start,
        )

    def start_from(self, point: TreePoint, old_rows: Ints | None = None) -> JointStart | None:
        """The start that a solution gives; None unless method, tree and examples are the same.

        With `old_rows` the examples may differ: row i was row `old_rows[i]`, or none if that is −1. Examples that are
        new or have another label start from 0. Dual variables are feasible whatever their examples weigh.
        """
        mine, outputs = self.losses, cast(Any, self.losses.is_output)
        if (self.method, self.algorithm, self.k) != (point.method, point.algorithm, point.k):
            return None
        if not (np.array_equal(mine.tree.parent, point.parent) and np.array_equal(outputs, point.is_output)):
            return None
        start = point.start
        if old_rows is not None:
            start = replace(start, dual=point.dual_of(old_rows[mine.row], mine.node))
        elif mine.n_samples != point.n_samples or not (
            np.array_equal(mine.row, point.row) and np.array_equal(mine.node, point.node)
        ):
            return None
        old, new = point.alpha, getattr(self.penalty, "alpha", None)
        return start.scaled(old / new) if old and new and old != new else start


@dataclass(frozen=True, eq=False)
class TreePoint:
    """The solution of a plan, and what another plan must have in common with it to start there.

    Parameters
    ----------
    method, algorithm, k
        As in `TreePlan`.
    alpha : float or None
        α of orthogonal transfer.
    parent : ndarray of shape (n_nodes,)
        The tree.
    is_output, n_samples, row, node
        The blocks, as in `TreeLosses`.
    start : JointStart
        Dual variables, one row per block, for γ = 1, and signs.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.solvers.tree.joint_dual import JointStart
    >>> from widemargin.solvers.tree.plan import TreePoint
    >>> start = JointStart(sp.csr_array(np.array([[0.0, 0.5], [0.2, 0.0]])))
    >>> tree, rows, nodes = np.array([-1, 0, 0]), np.array([0, 1]), np.array([0, 1])
    >>> point = TreePoint("flat", "joint-dual", 1, None, tree, np.array([True, True]), 2, rows, nodes, start)
    >>> point.dual_of(np.array([1, -1, 0]), np.array([1, 0, 1])).toarray()
    array([[0.2, 0. ],
           [0. , 0. ],
           [0. , 0. ]])
    """

    method: str
    algorithm: str
    k: int
    alpha: float | None
    parent: Ints
    is_output: Any
    n_samples: int
    row: Ints
    node: Ints
    start: JointStart

    def dual_of(self, row: Ints, node: Ints) -> Any:
        """Dual variables of blocks given by row and node, as a csr_array; 0 for those that are not among these."""
        m = len(self.parent) - 1
        mine, wanted = self.row * m + self.node, np.where(row < 0, -1, row * m + node)
        order = np.argsort(mine, kind="stable")
        # Labels of a row that share a node have equal blocks there, and their order distinguishes them.
        place = np.searchsorted(mine[order], wanted) + _repetitions(wanted)
        known = np.flatnonzero(place < len(mine))
        known = known[mine[order[place[known]]] == wanted[known]]
        part = sp.coo_array(self.start.dual[order[place[known]]])
        return sp.csr_array((part.data, (known[part.row], part.col)), shape=(len(row), m))


def _repetitions(values: Ints) -> Ints:
    """How often each value occurs before its place."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return found


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
    published, can_continue = solver == "dual-averaging-published", algorithm in ("joint-dual", "kernel", "per-parent")
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
        shares = None if start is None else start.dual
        result = solve_node_top_k(X, losses, plan.k, start=shares, run=run, **given)
        # The worst problem of this certificate is a parent, not a class; the history has all parents.
        return replace(result, certificate=replace(result.certificate, worst=None))
    if plan.kernel is not None:
        return solve_kernel_joint_dual(plan.kernel, losses, penalty, start=start, **given)
    return solve_joint_dual(X, losses, penalty, start=start, **given)
