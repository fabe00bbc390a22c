"""Top-k losses among the children of each node: against Clarabel, and for k = 1 against the joint dual."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.labels.tree import Tree
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import tree_penalty
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.tree.joint_dual import solve_joint_dual
from widemargin.solvers.tree.node_top_k import solve_node_top_k

# Four children, three below the first, an only child below the second, two below that one.
TREE = Tree(np.array([-1, 0, 0, 0, 0, 1, 1, 1, 2, 8, 8]))


def draw(seed, n_samples=16, n_features=4):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, TREE.n_nodes, n_samples)
    X = rng.normal(size=(n_samples, n_features)) + rng.normal(size=(TREE.n_nodes, n_features))[labels]
    return X, labels, rng.random(n_samples) + 0.5


def solve(X, labels, k, *, C=1.0, sample_weight=None, node_scaling="sum", **options):
    losses = tree_losses("per-node", TREE, labels, C=C, sample_weight=sample_weight, node_scaling=node_scaling)
    return solve_node_top_k(X, losses, k, **options)


def optimum(X, labels, weight, k, C, node_scaling="sum"):
    """The optimal value by Clarabel, written down from the definition: parents, their rows, the k largest margins."""
    value = 0.0
    for parent in range(TREE.n_nodes):
        children = np.flatnonzero(TREE.parent == parent)
        if len(children) < 2:
            continue
        W = cp.Variable((len(children), X.shape[1]))
        value += 0.5 * cp.sum_squares(W)
        passing = [(i, c) for i, y in enumerate(labels) for c in range(len(children)) if children[c] in ancestors(y)]
        total = sum(weight[i] for i, _ in passing) if node_scaling == "paper" else 1.0
        count = min(k, len(children) - 1)
        for i, c in passing:
            scores = W @ X[i]
            z = 1.0 + scores[[j for j in range(len(children)) if j != c]] - scores[c]
            value += C * weight[i] / total * cp.sum_largest(cp.pos(z), count) / count
    return cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)


def ancestors(node):
    path = {node}
    while TREE.parent[node] >= 0:
        node = TREE.parent[node]
        path.add(node)
    return path


@pytest.mark.parametrize("C", [0.02, 1.0])
@pytest.mark.parametrize("node_scaling", ["sum", "paper"])
def test_bounds_hold_the_optimum_of_clarabel_for_the_top_2(node_scaling, C):
    X, labels, weight = draw(seed=3)
    options = {"C": C, "sample_weight": weight, "node_scaling": node_scaling}
    result = solve(X, labels, 2, tol=1e-6, **options)
    best = optimum(X, labels, weight, 2, C, node_scaling)
    assert result.status is Status.CONVERGED
    assert result.certificate.decrease_gap <= 1e-6
    assert result.certificate.dual - 1e-6 * best <= best <= result.certificate.primal + 1e-6 * best


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_with_k_1_it_is_per_node_training_of_the_joint_dual(C, tol):
    X, labels, weight = draw(seed=5, n_samples=60, n_features=8)
    X = sp.csr_array(np.where(np.abs(X) > 0.8, X, 0.0))
    result = solve(X, labels, 1, C=C, sample_weight=weight, intercept_scaling=0.5, tol=tol)
    losses = tree_losses("per-node", TREE, labels, C=C, sample_weight=weight)
    joint = solve_joint_dual(X, losses, tree_penalty("per-node", TREE), intercept_scaling=0.5, tol=tol)
    ours, theirs = result.certificate, joint.certificate
    assert ours.decrease_gap <= tol
    assert ours.primal_at_zero == pytest.approx(theirs.primal_at_zero)
    assert ours.dual <= theirs.primal
    assert theirs.dual <= ours.primal
    # The objective is 1-strongly convex: both are within √(2 gap) of its minimum.
    distance = np.linalg.norm(np.column_stack([result.coef - joint.coef, (result.intercept - joint.intercept) / 0.5]))
    assert distance <= np.sqrt(2.0 * ours.gap) + np.sqrt(2.0 * theirs.gap) + 1e-12


def test_the_primal_bound_is_the_objective_of_the_weights():
    X, labels, weight = draw(seed=1, n_samples=40)
    result = solve(X, labels, 1, C=0.3, sample_weight=weight)
    losses = tree_losses("per-node", TREE, labels, C=0.3, sample_weight=weight)
    coef = result.coef.astype(np.float64)
    value = 0.5 * np.sum(coef**2) + losses.evaluate(X, coef).value
    assert result.certificate.primal == pytest.approx(value, rel=1e-12)
    assert result.certificate.n_problems == 3
    np.testing.assert_array_equal(result.coef[7], 0.0)  # the only child


def test_dual_variables_make_the_weights_and_keep_to_their_domain():
    X, labels, weight = draw(seed=2, n_samples=40)
    result = solve(X, labels, 2, C=0.3, sample_weight=weight, tol=1e-9)
    losses = tree_losses("per-node", TREE, labels, C=0.3, sample_weight=weight)
    x = result.dual.toarray()
    assert x.min() >= 0.0
    assert (x.sum(axis=1) <= losses.cost * (1 + 1e-12)).all()
    coefficients = -x
    coefficients[np.arange(len(x)), losses.node] += x.sum(axis=1)
    expected = coefficients.T @ X[losses.row]
    assert np.linalg.norm(expected - result.coef) <= 2.0 * np.sqrt(2.0 * result.certificate.gap) + 1e-6


def test_results_do_not_depend_on_the_number_of_threads():
    X, labels, weight = draw(seed=4, n_samples=50)
    one, two = (solve(X, labels, 2, sample_weight=weight, n_threads=n, seed=7) for n in (1, 3))
    np.testing.assert_array_equal(one.coef, two.coef)
    assert one.certificate == two.certificate


def test_weights_above_the_memory_limit_are_sparse_and_the_same():
    X, labels, _ = draw(seed=6, n_samples=30)
    X = sp.csr_array(np.hstack([np.where(np.abs(X) > 0.8, X, 0.0), np.zeros((30, 5))]))
    dense, sparse = (solve(X, labels, 2, memory_limit_mb=limit) for limit in (1.0, 0.0))
    np.testing.assert_array_equal(sparse.coef.toarray(), dense.coef)


def test_rows_of_weight_0_and_at_the_root_count_as_absent():
    X, labels, weight = draw(seed=8, n_samples=30)
    weight[:5], labels[5:8] = 0.0, 0
    result = solve(X, labels, 2, sample_weight=weight)
    alone = solve(X[8:], labels[8:], 2, sample_weight=weight[8:])
    np.testing.assert_allclose(result.coef, alone.coef, atol=1e-6)


def test_rows_without_features_are_certified_with_zero_weights():
    X = sp.csr_array((6, 3))
    result = solve(X, np.arange(1, 7), 2)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(result.certificate.primal_at_zero)
    np.testing.assert_array_equal(result.coef, 0.0)


def test_a_limit_is_reported_and_the_result_is_still_certified():
    X, labels, weight = draw(seed=3)
    best = optimum(X, labels, weight, 2, 1.0)
    seen = []

    def stop(progress):
        seen.append(progress)
        return len(seen) == 2

    for limits, status in [
        ({"max_iter": 1}, Status.MAX_ITER),
        ({"callback": TimeLimit(0.0)}, Status.TIME_LIMIT),
        ({"callback": stop}, Status.STOPPED),
    ]:
        result = solve(X, labels, 2, sample_weight=weight, tol=1e-10, **limits)
        assert result.status is status
        assert result.certificate.dual <= best * (1 + 1e-7)
        assert best <= result.certificate.primal * (1 + 1e-7)
    assert seen[-1].total == 3


def test_wrong_input_is_refused():
    X, labels, _ = draw(seed=3)
    with pytest.raises(ValueError, match="nothing to train"):
        solve(X, np.zeros(len(X), dtype=int), 2)
    with pytest.raises(ValueError, match="k must be at least 1"):
        solve(X, labels, 0)
