"""Hostile problems on trees: results are never worse than zero weights, and no gap above `tol` is "converged".

The objective is recomputed here by loops over the definitions, from the tree's parents alone.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tree_problems import lineage
from widemargin.labels.tree import Tree
from widemargin.problems.kernels import TrainingKernel, make_kernel
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import tree_penalty
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging
from widemargin.solvers.tree.joint_dual import JointAscent, rows_with_constant, solve_joint_dual
from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual
from widemargin.solvers.tree.node_top_k import solve_node_top_k

METHODS = {
    "orthogonal": {},
    "similarity": {},
    "per-node": {},
    "flat": {"outputs": "all"},
    "tree-loss": {"outputs": "all"},
}
TREES = {
    "chain": [-1, 0, 0, 1, 1, 3, 3, 5, 5, 7, 7],
    "star": [-1, *[0] * 12],
    "three levels": [-1, 0, 0, 1, 1, 1, 2, 2, 3, 3],
}


def draw(shape, seed=0, n_samples=40, n_features=6, scale=1.0):
    rng = np.random.default_rng(seed)
    parent = np.array(TREES[shape])
    labels = rng.integers(1, len(parent), n_samples)
    X = rng.normal(size=(len(parent), n_features))[labels] + 0.7 * rng.normal(size=(n_samples, n_features))
    X[0] = 0.0
    X[3] = X[4]
    return Tree(parent), labels, scale * X


def matrix(method, parent, alpha):
    """K or M of a method."""
    m = len(parent) - 1
    if method == "orthogonal":
        K = np.zeros((m, m))
        for node in range(1, m + 1):
            own, *above = lineage(parent, node)
            K[own, above] = K[above, own] = alpha
            K[[own, *above], [own, *above]] += 1.0
        return K
    up = np.eye(m)
    for node in range(1, m + 1):
        if parent[node] > 0:
            up[node - 1, parent[node] - 1] = -1.0
    if method == "tree-loss":
        return up.T @ up
    below = up[parent[1:] > 0]
    return np.eye(m) + (below.T @ below if method == "similarity" else 0.0)


def loss_of_row(method, parent, s, label, k=1):
    """Loss of a row by its scores."""
    path = lineage(parent, label)
    if method in ("flat", "tree-loss"):
        distance = {j: 0.5 * len(set(path) ^ set(lineage(parent, j + 1))) for j in range(len(s)) if j != path[0]}
        delta = {j: d if method == "tree-loss" else 1.0 for j, d in distance.items()}
        return max(max(0.0, d * (1.0 - s[path[0]] + s[j])) for j, d in delta.items())
    levels = []
    for i in path:
        rivals = np.flatnonzero(parent[1:] == parent[i + 1])
        wrong = np.sort([max(0.0, 1.0 - s[i] + s[j]) for j in rivals if j != i])[::-1]
        levels.append(wrong[:k].sum() / min(k, len(wrong)) if len(wrong) else 0.0)
    return sum(levels) if method == "per-node" else max(levels)


def objective(method, tree, labels, X, C, W, alpha=0.0, k=1):
    K, products = matrix(method, tree.parent, alpha), W @ W.T
    penalty = 0.5 * float((K * (np.abs(products) if method == "orthogonal" else products)).sum())
    return penalty + C * sum(loss_of_row(method, tree.parent, W @ x, y, k) for x, y in zip(X, labels, strict=True))


def problem(method, tree, labels, C):
    return tree_losses(method, tree, labels, C=C, **METHODS[method]), tree_penalty(method, tree)


@pytest.mark.parametrize("limit", [{"max_iter": 1}, {"max_iter": 7}, {"max_iter": 5, "memory_limit_mb": 0.0}])
@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("method", METHODS)
def test_a_fit_that_is_cut_short_is_no_worse_than_zero_weights(method, shape, limit):
    tree, labels, X = draw(shape)
    for C in (1e4, 1e8):
        losses, penalty = problem(method, tree, labels, C)
        result = solve_joint_dual(X, losses, penalty, tol=1e-9, **limit)
        W = result.coef if isinstance(result.coef, np.ndarray) else result.coef.toarray()
        value = objective(method, tree, labels, X, C, W, getattr(penalty, "alpha", 0.0))
        at_zero = objective(method, tree, labels, X, C, 0.0 * W)
        assert result.status is Status.MAX_ITER
        assert value <= at_zero
        assert result.certificate.primal == pytest.approx(value, rel=1e-9)
        assert result.certificate.primal_at_zero == pytest.approx(at_zero, rel=1e-12)
        assert result.certificate.dual <= value
        assert W.any()  # a multiple of the weights, which predicts the same, not just zeros


@pytest.mark.parametrize("method", METHODS)
def test_the_best_certified_point_is_returned_and_not_the_last(method):
    tree, labels, X = draw("three levels", n_samples=60)
    losses, penalty = problem(method, tree, labels, 300.0)
    result = solve_joint_dual(X, losses, penalty, tol=1e-12, max_iter=60)
    certified = result.history["certified"] > 0
    assert certified.sum() > 1
    assert result.certificate.primal <= result.history["primal"][certified].min() * (1.0 + 1e-12)
    assert result.certificate.dual >= result.history["dual"][certified].max() * (1.0 - 1e-12)
    value = objective(method, tree, labels, X, 300.0, result.coef, getattr(penalty, "alpha", 0.0))
    assert result.certificate.primal == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_kernel_fit_that_is_cut_short_is_no_worse_than_zero_weights(method):
    tree, labels, X = draw("three levels")
    for C, max_iter in ((1e4, 1), (1e6, 7)):
        losses, penalty = problem(method, tree, labels, C)
        kernel = TrainingKernel(X, make_kernel("linear"))
        result = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-9, max_iter=max_iter)
        W = result.dual_coef @ X[result.support]
        value = objective(method, tree, labels, X, C, W, getattr(penalty, "alpha", 0.0))
        assert value <= objective(method, tree, labels, X, C, 0.0 * W)
        assert result.certificate.primal == pytest.approx(value, rel=1e-9)
        if result.products is not None:
            paths = losses.paths
            np.testing.assert_allclose(
                result.products, (W @ W.T)[paths.descendant, paths.path_nodes], rtol=1e-7, atol=1e-12
            )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_top_k_among_children_that_is_cut_short_is_no_worse_than_zero_weights(form):
    tree, labels, X = draw("star", n_samples=60)
    for C in (1e4, 1e7):
        result = solve_node_top_k(
            form(X), tree_losses("per-node", tree, labels, C=C), 3, intercept_scaling=2.0, tol=1e-9, max_iter=1
        )
        W = np.column_stack([result.coef, result.intercept / 2.0])
        wide = np.column_stack([X, np.full(len(X), 2.0)])
        value = objective("per-node", tree, labels, wide, C, W, k=3)
        assert value <= objective("per-node", tree, labels, wide, C, 0.0 * W, k=3)
        assert result.certificate.primal == pytest.approx(value, rel=1e-6)
        assert W.any()


@pytest.mark.parametrize("solver", ["joint", "kernel", "top-k", "averaging"])
@pytest.mark.parametrize("scale", [1e-20, 1e-9])
def test_a_decrease_that_is_lost_in_rounding_is_not_attained(solver, scale):
    """The possible improvement over zero weights is about C ‖x‖² of the objective, below its rounding."""
    tree, labels, X = draw("three levels", scale=scale)
    losses, penalty = problem("per-node", tree, labels, 1e-3)
    if solver == "joint":
        result = solve_joint_dual(X, losses, penalty, tol=1e-2)
    elif solver == "kernel":
        result = solve_kernel_joint_dual(TrainingKernel(X, make_kernel("linear")), losses, penalty, tol=1e-2)
    elif solver == "top-k":
        result = solve_node_top_k(X, tree_losses("per-node", tree, labels, C=1e-3), 2, tol=1e-2)
    else:
        result = solve_dual_averaging(X, losses, penalty, tol=1e-2, max_iter=500)
    assert result.status is Status.NOT_ATTAINED
    assert result.certificate.primal <= result.certificate.primal_at_zero * (1.0 + 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("node_scaling", ["sum", "paper"])
@pytest.mark.parametrize("C", [1e-8, 1e-6, 1e-3])
def test_converged_means_a_gap_of_at_most_tol_for_small_C(node_scaling, C):
    tree, labels, X = draw("three levels", n_samples=25)
    for tol in (1e-3, 1e-7, 1e-9, 1e-12):
        losses = tree_losses("per-node", tree, labels, C=C, node_scaling=node_scaling)
        result = solve_node_top_k(X, losses, 2, tol=tol, max_iter=3000)
        assert result.status is not Status.CONVERGED or abs(result.certificate.decrease_gap) <= tol
        losses, penalty = problem("similarity", tree, labels, C)
        result = solve_joint_dual(X, losses, penalty, tol=tol, max_iter=3000)
        assert result.status in (Status.CONVERGED, Status.NOT_ATTAINED)
        assert result.status is Status.NOT_ATTAINED or abs(result.certificate.decrease_gap) <= tol


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
def test_the_losses_at_a_multiple_of_the_weights_are_those_of_the_definition(method, dtype):
    tree, labels, X = draw("three levels")
    losses, penalty = problem(method, tree, labels, 2.0)
    ascent = JointAscent(rows_with_constant(X, 0.0)[0], losses, penalty, dtype, seed=0, n_threads=1)
    ascent.core.run(10.0)
    ascent.certify()
    for scale in (0.0, 0.3, 1.0):
        W = scale * ascent.weights()
        expected = 2.0 * sum(loss_of_row(method, tree.parent, W @ x, y) for x, y in zip(X, labels, strict=True))
        assert ascent.losses_at(scale) == pytest.approx(expected, rel=1e-12)


def test_where_zero_weights_are_optimal_nothing_is_claimed_of_the_decrease():
    """Every row occurs twice, once with each label: no weights gain anything."""
    tree = Tree(np.array([-1, 0, 0]))
    X = np.repeat(np.random.default_rng(0).normal(size=(20, 4)), 2, axis=0)
    losses, penalty = problem("similarity", tree, np.tile([1, 2], 20), 1e-6)
    result = solve_joint_dual(X, losses, penalty, tol=1e-3)
    assert result.status is Status.NOT_ATTAINED
    assert result.certificate.primal == pytest.approx(result.certificate.primal_at_zero, rel=1e-13)
    assert result.certificate.gap <= 1e-13 * result.certificate.primal_at_zero


@pytest.mark.parametrize("method", METHODS)
def test_where_the_optimum_is_next_to_nothing_the_primal_is_right_to_rounding_of_the_losses(method):
    """Rows that are far apart: margins are 1 up to rounding, which determines the objective. Its relative error may be
    large, so it is compared on the scale of the objective at zero weights."""
    tree, X = Tree(np.array([-1, 0, 0, 0])), 1e6 * np.eye(3)
    for C in (1e-6, 1.0, 1e6):
        losses, penalty = problem(method, tree, np.arange(1, 4), C)
        result = solve_joint_dual(X, losses, penalty, tol=1e-9, max_iter=3000)
        value = objective(method, tree, np.arange(1, 4), X, C, result.coef, getattr(penalty, "alpha", 0.0))
        assert result.status is Status.CONVERGED
        assert value < 1e-5 * result.certificate.primal_at_zero
        assert abs(result.certificate.primal - value) <= 1e-14 * result.certificate.primal_at_zero


def test_a_solver_that_is_stuck_in_rounding_says_so_and_stops():
    tree, labels, X = draw("three levels", scale=1e18)
    losses, penalty = problem("flat", tree, labels, 1.0)
    result = solve_joint_dual(X, losses, penalty, tol=1e-12, max_iter=10**6, callback=TimeLimit(60.0))
    assert result.status is Status.NOT_ATTAINED
    assert result.certificate.primal <= result.certificate.primal_at_zero
