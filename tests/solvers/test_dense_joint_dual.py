"""Orthogonal transfer with any K, with a singular comparison matrix, and with a top-k loss, against Clarabel."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.exceptions import NotPositiveDefiniteError
from widemargin.labels.tree import Tree
from widemargin.problems.kernels import TrainingKernel, make_kernel
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import OrthogonalPenalty
from widemargin.solvers.result import Status
from widemargin.solvers.top_k.linear import solve_top_k
from widemargin.solvers.tree.dense_joint_dual import solve_dense_joint_dual
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging
from widemargin.solvers.tree.joint_dual import solve_joint_dual
from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual

PARENT = np.array([-1, 0, 0, 0, 1, 1, 1, 2, 2])
TREE = Tree(PARENT)


def draw(seed, tree=TREE, n_samples=14, n_features=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, tree.n_nodes, n_samples)
    X = rng.normal(size=(tree.n_nodes, n_features))[labels] + 0.7 * rng.normal(size=(n_samples, n_features))
    X[0], X[2] = 0.0, X[1]
    return X, labels, rng.random(n_samples) + 0.5


def any_matrix(seed, m=8, share=0.9):
    """A random K on all pairs of nodes whose comparison matrix has a smallest eigenvalue of 1 − share."""
    rng = np.random.default_rng(seed)
    K = np.triu(rng.random((m, m)) * (rng.random((m, m)) < 0.6), 1)
    K += K.T
    scale = np.sqrt(rng.random(m) + 0.5)
    K *= share / np.linalg.eigvalsh(K)[-1]
    return scale[:, None] * (K + np.eye(m)) * scale


def levels_of(parent, label):
    """The nodes of a path with their siblings."""
    found, node = [], label
    while node > 0:
        siblings = [j for j in range(1, len(parent)) if parent[j] == parent[node] and j != node]
        if siblings:
            found.append((node, siblings))
        node = parent[node]
    return found


def objective(parent, X, labels, costs, K, k, W):
    """The objective by definition."""
    value = 0.5 * float((K * np.abs(W @ W.T)).sum())
    for x, label, cost in zip(X, labels, costs, strict=True):
        s = W @ x
        worst = 0.0
        for node, siblings in levels_of(parent, label):
            hinges = np.sort([max(0.0, 1.0 - s[node - 1] + s[j - 1]) for j in siblings])[::-1]
            worst = max(worst, hinges[:k].sum() / min(k, len(hinges)))
        value += cost * worst
    return value


def optimum(parent, X, labels, costs, K, k):
    """Clarabel on the dual: x_lj ≤ λ_l / k_l, Σ_j x_lj ≤ λ_l, Σ_l λ_l ≤ 1, |S_ij| ≤ 1."""
    m = len(parent) - 1
    B, gain, rules = np.zeros((m, X.shape[1])), 0.0, []
    for x, label, cost in zip(X, labels, costs, strict=True):
        levels = levels_of(parent, label)
        share = cp.Variable(len(levels), nonneg=True)
        rules.append(cp.sum(share) <= 1)
        for number, (node, siblings) in enumerate(levels):
            a, count = cp.Variable(len(siblings), nonneg=True), min(k, len(siblings))
            rules += [a <= share[number] / count, cp.sum(a) <= share[number]]
            E = np.eye(m)[:, [node - 1] * len(siblings)] - np.eye(m)[:, [j - 1 for j in siblings]]
            gain = gain + cost * cp.sum(a)
            B = B + cost * cp.reshape(E @ a, (m, 1), order="C") @ x[None, :]
    S = cp.Variable((m, m), symmetric=True)
    rules += [cp.diag(S) == 1, S <= 1, S >= -1]
    return cp.Problem(cp.Maximize(gain - 0.5 * cp.matrix_frac(B, cp.multiply(K, S))), rules).solve(solver=cp.CLARABEL)


def check(result, X, labels, costs, K, k, tol, parent=PARENT):
    """Both bounds against Clarabel and the definition."""
    expected, certificate = optimum(parent, X, labels, costs, K, k), result.certificate
    assert result.status is Status.CONVERGED
    assert certificate.decrease_gap <= tol
    slack = 2e-6 * abs(expected)
    assert certificate.dual - slack <= expected <= certificate.primal + slack
    assert certificate.primal == pytest.approx(objective(parent, X, labels, costs, K, k, result.coef), rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("C", [0.1, 2.0])
@pytest.mark.slow
def test_top_k_losses_with_orthogonal_transfer_match_clarabel(k, C):
    X, labels, weight = draw(k)
    losses = tree_losses("orthogonal", TREE, labels, C=C, sample_weight=weight)
    penalty = OrthogonalPenalty.of_tree(TREE)
    result = solve_dense_joint_dual(X, losses, penalty, k=k, tol=1e-6, max_iter=5000)
    check(result, X, labels, C * weight, penalty.paths.symmetric(penalty.K).toarray(), k, 1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_a_K_that_joins_any_nodes_matches_clarabel(seed):
    X, labels, weight = draw(10 + seed)
    K, C = any_matrix(seed), [0.1, 1.0][seed % 2]
    losses = tree_losses("orthogonal", TREE, labels, C=C, sample_weight=weight)
    penalty = OrthogonalPenalty.of_matrix(TREE, K if seed % 2 else sp.csr_array(K))
    result = solve_dense_joint_dual(X, losses, penalty, tol=1e-6, max_iter=5000)
    check(result, X, labels, C * weight, K, 1, 1e-6)
    i, j = np.triu_indices(8, 1)
    places = penalty.paths.entries(i, j)
    np.testing.assert_allclose(result.products[places], (result.coef @ result.coef.T)[i, j], atol=1e-12)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_singular_comparison_matrix_matches_clarabel(seed, k):
    """Theorem 1 of the paper only requires a positive semidefinite matrix."""
    X, labels, weight = draw(20 + seed)
    K = any_matrix(seed, share=1.0)
    comparison = np.where(np.eye(8) > 0, K, -K)
    assert abs(np.linalg.eigvalsh(comparison)[0]) < 1e-14
    losses = tree_losses("orthogonal", TREE, labels, C=1.0, sample_weight=weight)
    result = solve_dense_joint_dual(X, losses, OrthogonalPenalty.of_matrix(TREE, K), k=k, tol=1e-5, max_iter=5000)
    check(result, X, labels, weight, K, k, 1e-5)


@pytest.mark.slow
def test_alpha_at_its_limit_is_trained_by_the_compiled_ascent():
    tree = Tree(np.array([-1, 0, 0, 1, 1, 2, 2]))  # α* = √(1 + 1/2)
    limit = np.sqrt(1.5)
    X, labels, weight = draw(5, tree)
    losses = tree_losses("orthogonal", tree, labels, C=2.0, sample_weight=weight)
    penalty = OrthogonalPenalty.of_tree(tree, limit)
    K = np.diag([3.0, 3.0, 1.0, 1.0, 1.0, 1.0])
    K[0, 2:4] = K[2:4, 0] = K[1, 4:] = K[4:, 1] = limit
    for result in (
        solve_joint_dual(X, losses, penalty, tol=1e-5, max_iter=5000),
        solve_dense_joint_dual(X, losses, penalty, tol=1e-5, max_iter=5000),
    ):
        check(result, X, labels, 2.0 * weight, K, 1, 1e-5, tree.parent)
    kernel = TrainingKernel(X, make_kernel("linear"))
    with_kernel = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-5, max_iter=5000)
    value = objective(tree.parent, X, labels, 2.0 * weight, K, 1, with_kernel.dual_coef @ X[with_kernel.support])
    assert with_kernel.certificate.primal == pytest.approx(value, rel=1e-9)
    assert with_kernel.certificate.decrease_gap <= 1e-5
    with pytest.raises(NotPositiveDefiniteError, match="convex only up to"):
        OrthogonalPenalty.of_tree(tree, 1.0001 * limit)
    with pytest.raises(ValueError, match="requires a strongly convex penalty"):
        solve_dual_averaging(X, losses, penalty)


@pytest.mark.slow
def test_k_1_and_a_K_of_the_tree_are_what_the_compiled_ascent_solves():
    X, labels, weight = draw(3, n_samples=60)
    losses = tree_losses("orthogonal", TREE, labels, C=0.5, sample_weight=weight)
    penalty = OrthogonalPenalty.of_tree(TREE)
    dense = solve_dense_joint_dual(sp.csr_array(X), losses, penalty, intercept_scaling=1.0, tol=1e-7, max_iter=5000)
    compiled = solve_joint_dual(X, losses, penalty, intercept_scaling=1.0, tol=1e-7, max_iter=5000)
    bound = sum(np.sqrt(2.0 * max(r.certificate.gap, 0.0) / penalty.modulus) for r in (dense, compiled))
    assert np.linalg.norm(dense.coef - compiled.coef) <= bound
    assert dense.certificate.dual <= compiled.certificate.primal
    assert compiled.certificate.dual <= dense.certificate.primal


@pytest.mark.slow
def test_on_a_flat_tree_it_is_the_top_k_svm():
    tree = Tree(np.array([-1, 0, 0, 0, 0, 0]))
    X, labels, weight = draw(4, tree, n_samples=50)
    losses = tree_losses("orthogonal", tree, labels, C=0.3, sample_weight=weight)
    ours = solve_dense_joint_dual(X, losses, OrthogonalPenalty.of_tree(tree), k=3, tol=1e-7, max_iter=5000).certificate
    flat = solve_top_k(X, labels - 1, 5, TopKHinge(3), 0.3 * weight, tol=1e-8).certificate
    assert ours.dual <= flat.primal * (1.0 + 1e-12)
    assert flat.dual <= ours.primal
    assert ours.primal == pytest.approx(flat.primal, rel=1e-6)


@pytest.mark.parametrize("k", [1, 3])
def test_a_fit_that_is_cut_short_is_no_worse_than_zero_weights(k):
    X, labels, weight = draw(6, n_samples=40)
    K = any_matrix(1)
    for C in (1e4, 1e8):
        losses = tree_losses("orthogonal", TREE, labels, C=C, sample_weight=weight)
        result = solve_dense_joint_dual(X, losses, OrthogonalPenalty.of_matrix(TREE, K), k=k, tol=1e-9, max_iter=1)
        value = objective(PARENT, X, labels, C * weight, K, k, result.coef)
        assert result.status is Status.MAX_ITER
        assert value <= objective(PARENT, X, labels, C * weight, K, k, 0.0 * result.coef)
        assert result.certificate.primal == pytest.approx(value, rel=1e-9)


def test_a_K_that_is_not_convex_is_refused_and_a_node_without_penalty_named():
    with pytest.raises(NotPositiveDefiniteError, match="not positive semidefinite, so the problem is not convex"):
        OrthogonalPenalty.of_matrix(TREE, any_matrix(0, share=1.001))
    K = any_matrix(0)
    K[3] = K[:, 3] = 0.0
    with pytest.raises(ValueError, match=r"K\[3, 3\] = 0 is not positive; .* unbounded"):
        OrthogonalPenalty.of_matrix(TREE, K)
    X, labels, _ = draw(0)
    losses, penalty = tree_losses("orthogonal", TREE, labels), OrthogonalPenalty.of_matrix(TREE, any_matrix(0))
    with pytest.raises(ValueError, match="use solve_dense_joint_dual"):
        solve_joint_dual(X, losses, penalty)
    with pytest.raises(ValueError, match=r"exceeds memory_limit_mb=0\.001"):
        solve_dense_joint_dual(X, losses, penalty, memory_limit_mb=0.001)
    with pytest.raises(ValueError, match="scale down the features"):
        solve_dense_joint_dual(1e200 * X, losses, penalty)
    with pytest.raises(ValueError, match="use a smaller C"):
        solve_dense_joint_dual(X, tree_losses("orthogonal", TREE, labels, C=1e307), penalty)
