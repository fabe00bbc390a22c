"""From checked data to the problem on a tree, its solver, and a start from an earlier solution.

    minimise  penalty(W) + Σ_g γ_g loss_g(W)        see `problems.tree_losses` and `problems.tree_penalties`

An example is a row and one of its labels; several examples of a row share the row of X, nothing is copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.estimators._class_weight import row_factors
from widemargin.estimators._training import TrainingData
from widemargin.estimators._tree_model import PATH_METHODS
from widemargin.estimators._tree_targets import TreeTargets, tree_targets
from widemargin.parallel import current_executor, run_tasks
from widemargin.parallel.shared_rows import SharedRows
from widemargin.problems.orthogonal import OrthogonalPenalty, pair_products
from widemargin.problems.tree_losses import TreeLosses, tree_losses
from widemargin.problems.tree_penalties import QuadraticPenalty, tree_penalty
from widemargin.solvers.dense_joint_dual import solve_dense_joint_dual
from widemargin.solvers.dual_averaging import solve_dual_averaging
from widemargin.solvers.joint_dual import JointStart, solve_joint_dual
from widemargin.solvers.kernel_joint_dual import solve_kernel_joint_dual
from widemargin.solvers.node_top_k import solve_node, solve_node_top_k
from widemargin.solvers.result import SolverResult

__all__ = ["TreePoint", "TreeProblem", "make_problem", "pairs_of", "solve"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TreeProblem:
    """A problem on a tree.

    Parameters
    ----------
    targets : TreeTargets
        Tree, classes and examples.
    weights : ndarray of float64 of shape (n_examples,)
        Weights of the examples.
    losses : TreeLosses
        Their blocks, on rows of X.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The penalty of the method.
    """

    targets: TreeTargets
    weights: Floats
    losses: TreeLosses
    penalty: OrthogonalPenalty | QuadraticPenalty

    @property
    def alpha(self) -> float | None:
        """α of eq. (6), if K has that form."""
        return self.penalty.alpha if isinstance(self.penalty, OrthogonalPenalty) else None


@dataclass(frozen=True, eq=False)
class TreePoint:
    """A dual solution with what it belongs to, for a later fit."""

    start: JointStart
    method: str
    has_kernel: bool
    alpha: float | None
    problem: TreeProblem

    def start_for(self, estimator: Any, problem: TreeProblem) -> JointStart | None:
        """Where a fit of another problem on the same examples and tree may begin; None if they are not the same."""
        mine, other = self.problem, problem
        same = (
            self.method == estimator.method
            and self.has_kernel == (estimator.kernel != "linear")
            and mine.losses.n_samples == other.losses.n_samples
            and np.array_equal(mine.losses.row, other.losses.row)
            and np.array_equal(mine.losses.node, other.losses.node)
            and mine.targets.taxonomy == other.targets.taxonomy
            and np.array_equal(mine.targets.taxonomy.parent, other.targets.taxonomy.parent)
            and _outputs(mine) == _outputs(other)
        )
        if not same:
            return None
        if self.alpha and other.alpha and self.alpha != other.alpha:
            return self.start.scaled(self.alpha / other.alpha)
        return self.start


def make_problem(estimator: Any, data: TrainingData) -> TreeProblem:
    """Place the labels in the tree and build losses and penalty."""
    targets = tree_targets(
        data.targets,
        estimator.taxonomy,
        separator=estimator.separator,
        stop=bool(estimator.stop),
        multilabel=estimator.multilabel,
    )
    if estimator.method not in PATH_METHODS and estimator.outputs == "leaves":
        _refuse_inner_labels(estimator.method, targets)
    weights = targets.share if data.sample_weight is None else targets.share * data.sample_weight[targets.row]
    weights = row_factors(estimator.class_weight, targets.examples, weights)
    tree = targets.taxonomy.tree
    losses = tree_losses(
        estimator.method,
        tree,
        targets.class_node[targets.label],
        C=float(estimator.C),
        sample_weight=weights,
        node_scaling=estimator.node_scaling,
        rescaling=estimator.rescaling,
        outputs=estimator.outputs,
    )
    losses = replace(losses, row=targets.row[losses.row], n_samples=targets.n_samples)
    if losses.at_zero <= 0.0:
        raise ValueError(
            "there is nothing to tell apart: all rows have weight 0, or no node on the way to their labels has a "
            "sibling"
        )
    penalty = tree_penalty(
        estimator.method,
        tree,
        alpha=estimator.alpha,
        K=estimator.K,
        share=float(estimator.alpha_share),
        repair=estimator.repair,
    )
    return TreeProblem(targets, weights, losses, penalty)


def solve(
    estimator: Any, X: Any, kernel: Any, problem: TreeProblem, options: dict[str, Any], start: JointStart | None
) -> SolverResult:
    """Train by the solver that the parameters ask for; `kernel` is that of the training rows, None for weights."""
    threads = {"n_threads": estimator._n_threads(), "memory_limit_mb": float(estimator.memory_limit_mb)}
    joins_any = problem.penalty.paths.n_entries != problem.losses.paths.n_entries
    if kernel is not None:
        if joins_any:
            raise ValueError("K joins nodes of which neither is above the other, which needs kernel='linear'")
        threads |= {"cache_size_mb": float(estimator.cache_size_mb)}
        return solve_kernel_joint_dual(kernel, problem.losses, problem.penalty, start=start, **options, **threads)
    if estimator.solver != "dual":
        only = {name: options[name] for name in ("bias", "tol", "max_iter", "callback")}
        published = estimator.solver == "dual-averaging-published"
        only |= {"lower_bound": "published", "stop": "gap"} if published else {}
        return solve_dual_averaging(X, problem.losses, problem.penalty, **only)
    if isinstance(problem.penalty, OrthogonalPenalty) and (joins_any or estimator.k > 1):
        limit = threads["memory_limit_mb"]
        given = options | {"k": int(estimator.k), "memory_limit_mb": limit}
        return solve_dense_joint_dual(X, problem.losses, problem.penalty, **given)
    if estimator.k == 1:
        return solve_joint_dual(X, problem.losses, problem.penalty, start=start, **options, **threads)
    targets = problem.targets
    rows = X if len(targets.row) == X.shape[0] else X[targets.row]
    with _distributed(rows) as run:
        result = solve_node_top_k(
            rows,
            targets.taxonomy.tree,
            targets.class_node[targets.label],
            int(estimator.k),
            C=float(estimator.C),
            sample_weight=problem.weights,
            node_scaling=estimator.node_scaling,
            run=run,
            **options,
            **threads,
        )
    # The worst problem there is a parent, not a class; the history has all parents.
    return replace(result, certificate=replace(result.certificate, worst=None))


@contextlib.contextmanager
def _distributed(rows: Any) -> Iterator[Any]:
    """What gives the problems of nodes to the workers of `use_executor`; None without them."""
    engine = current_executor()
    if engine is None:
        yield None
        return
    with SharedRows.of(rows, engine) as shared:

        def run(arguments: list[tuple[Any, ...]]) -> list[Any]:
            results = dict(run_tasks(_solve_node, [(shared, *given) for given in arguments], engine))
            return [results[number] for number in range(len(arguments))]

        yield run


def _solve_node(shared: SharedRows, *arguments: Any) -> Any:
    """The task of a node."""
    return solve_node(shared.load(), *arguments)


def pairs_of(result: Any, problem: TreeProblem, bias: float) -> tuple[Floats, Floats] | None:
    """S and the scalar products of ancestor pairs, for orthogonal transfer; of a K with other pairs only these."""
    penalty, paths = problem.penalty, problem.losses.paths
    if not isinstance(penalty, OrthogonalPenalty):
        return None
    if getattr(result, "S", None) is not None:
        S, products = result.S, result.products
    else:
        products = pair_products(penalty.paths, result.coef)
        if bias:
            products += pair_products(penalty.paths, result.intercept[:, None] / bias)
        S = penalty.signs(products)
    places = penalty.paths.entries(paths.path_nodes, paths.descendant)
    return S[places], products[places]


def _refuse_inner_labels(method: str, targets: TreeTargets) -> None:
    """Leaves alone compete: an inner node would be a label that no prediction can be."""
    inner = ~targets.taxonomy.is_leaf[targets.class_node]
    if inner.any():
        name = targets.classes[np.flatnonzero(inner)[0]]
        n_rows = int(inner[targets.label].sum())
        raise ValueError(
            f"{n_rows:,} labels are inner nodes, such as {str(name)!r}, which method={method!r} with outputs='leaves' "
            "cannot predict; use outputs='all', leave these rows out, or use a method that trains paths"
        )


def _outputs(problem: TreeProblem) -> int:
    """Number of nodes that compete all at once; 0 where siblings do."""
    is_output = problem.losses.is_output
    return 0 if is_output is None else int(is_output.sum())
