"""Solutions of joint problems without their small weights, certified as they are stored.

    w(t)_k = w_k if |w_k| ≥ t, else 0,        primal = the objective of w(t), in float64 over all rows

Dropping weights changes neither the optimum nor its lower bound; a threshold costs one evaluation of the objective, by
the kernels that predict. Intercepts stay. Memory: the remaining weights, an index of them by feature, and `WORK_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.scores import LinearScorer, drop_small, squared_norms
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.problems.tree_factor import TreeWeights
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, QuadraticPenalty, pair_products
from widemargin.solvers.result import SolverResult
from widemargin.solvers.tree.joint_dual import JointResult

__all__ = ["prune_top_k", "prune_tree", "top_k_objective", "tree_objective"]

WORK_BYTES = 2**26
WORK_ARRAYS = 5  # of the size of a part of the scores, alive at once

Floats = npt.NDArray[np.float64]


def prune_top_k(
    result: SolverResult,
    X: Any,
    y: npt.NDArray[np.int64],
    loss: TopKHinge,
    costs: Floats,
    *,
    intercept_scaling: float,
    threshold: float,
    n_threads: int = 1,
) -> SolverResult:
    """The result of `solve_top_k` without weights below a threshold.

    Parameters
    ----------
    result : SolverResult
        The solution.
    X, y, loss, costs, intercept_scaling
        The problem, as it was given to the solver.
    threshold : float
        Weights below this in absolute value are dropped; positive.
    n_threads : int
        Threads of the scores; the result does not depend on them.

    Returns
    -------
    SolverResult
        With `coef` as csr_array, and its objective in the certificate. With two classes only the difference matters:
        the difference is pruned, and each class gets half of it.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.pruning import prune_top_k
    >>> from widemargin.solvers.top_k.linear import solve_top_k
    >>> X, y = np.array([[1.0, 0.1], [0.0, 1.0], [-1.0, -1.0]]), np.array([0, 1, 2])
    >>> problem = X, y, TopKHinge(k=1), np.ones(3)
    >>> result = solve_top_k(X, y, 3, *problem[2:], tol=1e-6)
    >>> pruned = prune_top_k(result, *problem, intercept_scaling=0.0, threshold=1.0)
    >>> pruned.coef.nnz, pruned.certificate.primal  # nothing is left: the loss of zero weights
    (0, 3.0)
    """
    coef, intercept = result.coef, result.intercept.astype(np.float64)
    if len(intercept) == 2:
        half = drop_small(0.5 * np.diff(coef.astype(np.float64), axis=0), 0.5 * threshold)
        coef = sp.vstack([-half, half], format="csr")
        intercept = 0.5 * np.diff(intercept) * np.array([-1.0, 1.0])
    else:
        coef = drop_small(coef, threshold)
    how: dict[str, Any] = {"intercept_scaling": intercept_scaling, "n_threads": n_threads}
    certificate = replace(result.certificate, primal=top_k_objective(coef, intercept, X, y, loss, costs, **how))
    return replace(result, coef=coef, intercept=intercept, certificate=certificate)


def top_k_objective(
    coef: Any,
    intercept: Floats,
    X: Any,
    y: npt.NDArray[np.int64],
    loss: TopKHinge,
    costs: Floats,
    *,
    intercept_scaling: float,
    n_threads: int = 1,
) -> float:
    """The objective of given weights, one row per class, in float64 over all rows; the rest as in `prune_top_k`."""
    scorer = LinearScorer(coef, intercept)
    primal = 0.5 * (float(squared_norms(coef).sum()) + _squared_constant(intercept, intercept_scaling))
    step = max(1, WORK_BYTES // (8 * WORK_ARRAYS * len(intercept)))
    for first in range(0, X.shape[0], step):
        rows = slice(first, first + step)
        margins = margins_of_wrong_classes(scorer.scores(X[rows], n_threads=n_threads), y[rows])
        primal += float(costs[rows] @ loss.value(margins))
    return primal


def prune_tree(
    result: SolverResult,
    X: Any,
    losses: TreeLosses,
    penalty: OrthogonalPenalty | QuadraticPenalty,
    *,
    intercept_scaling: float,
    threshold: float,
    k: int = 1,
    n_threads: int = 1,
) -> SolverResult:
    """The result of a linear solver on a tree without weights below a threshold.

    Parameters
    ----------
    result, threshold, n_threads
        As in `prune_top_k`.
    X, losses, penalty, intercept_scaling
        The problem, as it was given to the solver.
    k : int
        k of the top-k losses among siblings; nodes with k or fewer children have one less than their number instead.

    Returns
    -------
    SolverResult
        With `coef` as csr_array, its objective in the certificate, and for orthogonal transfer its `products`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems import tree_losses, tree_penalties
    >>> from widemargin.solvers.pruning import prune_tree
    >>> from widemargin.solvers.tree.joint_dual import solve_joint_dual
    >>> tree, X = Tree(np.array([-1, 0, 0])), np.array([[1.0, 0.1], [-1.0, 0.1]])
    >>> losses = tree_losses.tree_losses("per-node", tree, np.array([1, 2]))
    >>> problem = X, losses, tree_penalties.tree_penalty("per-node", tree)
    >>> pruned = prune_tree(solve_joint_dual(*problem), *problem, intercept_scaling=0.0, threshold=1.0)
    >>> pruned.coef.nnz, pruned.certificate.primal  # nothing is left: the loss of zero weights
    (0, 2.0)
    """
    coef, intercept = result.coef, result.intercept.astype(np.float64)
    coef = coef.pruned(threshold) if isinstance(coef, TreeWeights) else drop_small(coef, threshold)
    how: dict[str, Any] = {"intercept_scaling": intercept_scaling, "k": k, "n_threads": n_threads}
    primal, products = tree_objective(coef, intercept, X, losses, penalty, **how)
    changes: dict[str, Any] = {"coef": coef}
    if products is not None and isinstance(result, JointResult):
        changes["products"] = products
    return replace(result, **changes, certificate=replace(result.certificate, primal=primal))


def tree_objective(
    coef: Any,
    intercept: Floats,
    X: Any,
    losses: TreeLosses,
    penalty: OrthogonalPenalty | QuadraticPenalty,
    *,
    intercept_scaling: float,
    k: int = 1,
    n_threads: int = 1,
) -> tuple[float, Floats | None]:
    """The objective of given weights of nodes in float64 over all rows, and the products of an `OrthogonalPenalty`.

    The rest as in `prune_tree`.
    """
    constant = (intercept / intercept_scaling if intercept_scaling != 0.0 else np.zeros(len(intercept)))[:, None]
    products = None
    if isinstance(penalty, OrthogonalPenalty):
        products = pair_products(penalty.paths, coef) + pair_products(penalty.paths, constant)
        value = penalty.value_of_products(products)
    else:
        value = penalty.value(coef.astype(np.float64)) + penalty.value(constant)
    score_of = _group_scores(X, coef, intercept, n_threads)
    loss = losses.evaluate_scores(score_of).value if k == 1 else losses.top_k_value(score_of, TopKHinge(k))
    return value + loss, products


def _group_scores(X: Any, coef: Any, intercept: Floats, n_threads: int) -> Callable[[Any, slice], Floats]:
    """Scores of some rows at a range of nodes; ranges come one after another, and the last index is kept."""
    last: dict[tuple[int, int], LinearScorer] = {}

    def score_of(rows: Any, nodes: slice) -> Floats:
        key = nodes.start, nodes.stop
        if key not in last:
            last.clear()
            last[key] = LinearScorer(coef[nodes], intercept[nodes])
        return last[key].scores(X[rows], n_threads=n_threads)

    return score_of


def _squared_constant(intercept: Floats, intercept_scaling: float) -> float:
    """Squared norm of the weights of the constant feature."""
    return float(np.sum((intercept / intercept_scaling) ** 2)) if intercept_scaling != 0.0 else 0.0
