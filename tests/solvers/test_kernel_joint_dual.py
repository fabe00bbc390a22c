"""Kernel training on a tree: a linear kernel equals linear training, an rbf kernel equals Clarabel on Gram features."""

from __future__ import annotations

import numpy as np
import pytest

from reference.joint_dual import Block, JointProblem, JointState, run_round
from reference.tree_constraints import constraints_of
from tree_problems import ALL_NODE_METHODS, assert_certified, draw_rows
from widemargin.exceptions import NotPositiveDefiniteError
from widemargin.labels.tree import Tree
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, make_kernel
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import OrthogonalPenalty, tree_penalty
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.tree import kernel_joint_dual as _kernel_tree
from widemargin.solvers.tree.joint_dual import solve_joint_dual
from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual

CASES = [
    *ALL_NODE_METHODS,
    ("flat", {"outputs": "all"}),
    ("tree-loss", {"outputs": "all"}),
    ("tree-loss", {"rescaling": "margin"}),
]
SMALL = Tree(np.array([-1, 0, 0, 1, 1, 2, 3, 3]))  # three levels, an only child
LARGE = Tree(np.array([-1, 0, 0, 0, 1, 1, 2, 2, 2, 4, 4]))


def draw(tree, method, options, C=0.5, seed=0, n_samples=14, n_features=4):
    """Rows (two equal, one zero), weighted losses, and the penalty."""
    X, labels, weight = draw_rows(tree, method, options, seed, n_samples, n_features)
    X[0], X[2] = 0.0, X[1]
    weight[3] = 0.0
    return X, tree_losses(method, tree, labels, C=C, sample_weight=weight, **options), tree_penalty(method, tree)


def gram_features(K):
    """Rows whose scalar products are K."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def objective(K, losses, penalty, result):
    """The objective of the returned coefficients, by the definitions, as that of weights on features of the kernel."""
    X = gram_features(K)
    W = result.dual_coef @ X[result.support]
    return penalty.value(W) + losses.evaluate(X, W).value


@pytest.mark.parametrize(("method", "options"), CASES)
@pytest.mark.parametrize("C", [0.05, 5.0])
def test_bounds_hold_the_optimum_of_clarabel_for_an_rbf_kernel(method, options, C, tree_optimum):
    X, losses, penalty = draw(SMALL, method, options, C, n_samples=10)
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.2))
    K = kernel.columns(slice(None))
    result = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-6, max_iter=20_000)
    best = tree_optimum(gram_features(K), losses, penalty)
    assert_certified(result, best, objective(K, losses, penalty, result), losses, rel=1e-9)


@pytest.mark.parametrize(("method", "options"), CASES)
def test_a_linear_kernel_is_training_on_the_rows(method, options):
    X, losses, penalty = draw(LARGE, method, options, n_samples=60, n_features=12)
    kernel = TrainingKernel(X, make_kernel("linear"))
    result = solve_kernel_joint_dual(kernel, losses, penalty, intercept_scaling=0.7, tol=1e-7, max_iter=20_000)
    linear = solve_joint_dual(X, losses, penalty, intercept_scaling=0.7, tol=1e-7, max_iter=20_000)
    ours, theirs = result.certificate, linear.certificate
    assert ours.decrease_gap <= 1e-7
    assert ours.dual <= theirs.primal
    assert theirs.dual <= ours.primal
    W = result.dual_coef @ X[result.support]
    distance = np.linalg.norm(np.column_stack([W - linear.coef, (result.intercept - linear.intercept) / 0.7]))
    assert distance <= (np.sqrt(2.0 * ours.gap) + np.sqrt(2.0 * theirs.gap)) / np.sqrt(penalty.modulus)


def test_rounds_are_those_of_the_specification_on_gram_features():
    X, losses, penalty = draw(SMALL, "orthogonal", {}, C=1.0)
    K = make_kernel("rbf", gamma=0.2).block(X, X)
    blocks = []
    for g in range(losses.n_blocks):  # ties go to the lower number, so the order of the constraints matters
        order = np.argsort(constraints_of(losses, g).j)
        blocks.append(Block(losses.row[g], losses.cost[g], *(array[order] for array in constraints_of(losses, g))))
    state = JointState(JointProblem(gram_features(K), blocks, losses.paths, penalty.K, learns_signs=True), seed=3)
    run_round(state, target=0.0)
    result = solve_kernel_joint_dual(PrecomputedKernel(K), losses, penalty, tol=0.0, seed=3, callback=lambda _: True)
    expected = np.zeros((losses.n_blocks, losses.paths.m))
    for g, (block, a) in enumerate(zip(blocks, state.a, strict=True)):
        expected[g, block.loser] = a
    np.testing.assert_allclose(result.dual.toarray(), expected, atol=1e-9)
    np.testing.assert_allclose(result.S, state.S, atol=1e-6)


def test_a_small_cache_gives_the_same_optimum():
    X, losses, penalty = draw(LARGE, "orthogonal", {}, n_samples=400, n_features=6)
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.1))
    roomy = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-5)
    # Room for no column, and for 30 in addition to the 128 that are lent.
    for cache_size_mb in (0.0, 158 * 400 * 8 / 2**20):
        tight = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-5, cache_size_mb=cache_size_mb)
        assert tight.status is Status.CONVERGED
        assert tight.certificate.dual <= roomy.certificate.primal
        assert roomy.certificate.dual <= tight.certificate.primal


@pytest.mark.slow
def test_a_large_subtree_reaches_the_same_optimum(monkeypatch):
    X, losses, penalty = draw(LARGE, "orthogonal", {}, n_samples=60)
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.1))
    exact = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-5)
    monkeypatch.setattr(_kernel_tree, "SMALL_SUBTREE", 1)
    large = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-5)
    assert large.status is Status.CONVERGED
    assert large.certificate.dual <= exact.certificate.primal
    assert exact.certificate.dual <= large.certificate.primal


def test_products_and_signs_are_those_of_the_weights():
    X, losses, penalty = draw(LARGE, "orthogonal", {}, n_samples=60)
    K = make_kernel("rbf", gamma=0.1).block(X, X)
    result = solve_kernel_joint_dual(PrecomputedKernel(K), losses, penalty, tol=1e-7, max_iter=20_000)
    G = result.dual_coef @ K[np.ix_(result.support, result.support)] @ result.dual_coef.T
    paths = losses.paths
    np.testing.assert_allclose(result.products, G[paths.descendant, paths.path_nodes], atol=1e-10)
    interior = (np.abs(result.S) < 1.0 - 1e-6) & ~paths.is_diagonal
    assert interior.any()
    assert np.abs(result.products[interior]).max() <= 1e-3 * np.abs(result.products).max()


@pytest.mark.slow
def test_a_weight_of_2_is_a_row_twice():
    X, _, penalty = draw(LARGE, "similarity", {}, n_samples=30)
    labels = np.random.default_rng(1).integers(1, LARGE.n_nodes, 30)
    rbf = make_kernel("rbf", gamma=0.1)
    weighted = tree_losses("similarity", LARGE, labels, sample_weight=np.where(np.arange(30) < 10, 2.0, 1.0))
    repeated = tree_losses("similarity", LARGE, np.concatenate([labels, labels[:10]]))
    one = solve_kernel_joint_dual(TrainingKernel(X, rbf), weighted, penalty, tol=1e-8, max_iter=20_000)
    two = solve_kernel_joint_dual(TrainingKernel(np.vstack([X, X[:10]]), rbf), repeated, penalty, tol=1e-8)
    assert one.certificate.primal == pytest.approx(two.certificate.primal, rel=1e-7)


def test_rows_of_a_zero_diagonal_do_no_harm():
    X, losses, penalty = draw(LARGE, "orthogonal", {}, n_samples=30)
    X[:6] = 0.0
    result = solve_kernel_joint_dual(TrainingKernel(X, make_kernel("linear")), losses, penalty, tol=1e-6)
    linear = solve_joint_dual(X, losses, penalty, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(linear.certificate.primal, rel=1e-5)


def test_a_start_is_certified_before_the_first_pass():
    X, losses, penalty = draw(LARGE, "orthogonal", {}, n_samples=60)
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.1))
    first = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-5)
    again = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-4, start=first.start)
    assert again.n_iter[0] == 0
    assert again.certificate.primal == pytest.approx(first.certificate.primal, rel=1e-12)


def test_results_do_not_depend_on_the_number_of_threads():
    X, losses, penalty = draw(LARGE, "orthogonal", {}, n_samples=200)
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.1))
    one, two = (solve_kernel_joint_dual(kernel, losses, penalty, n_threads=n) for n in (1, 3))
    np.testing.assert_array_equal(one.dual_coef, two.dual_coef)
    assert one.certificate == two.certificate


def test_a_limit_is_reported_and_the_result_is_still_certified(tree_optimum):
    X, losses, penalty = draw(SMALL, "orthogonal", {}, C=1.0)
    kernel = TrainingKernel(X, make_kernel("rbf", gamma=0.2))
    best = tree_optimum(gram_features(kernel.columns(slice(None))), losses, penalty)
    for limits, status in [
        ({"max_iter": 1}, Status.MAX_ITER),
        ({"callback": TimeLimit(0.0)}, Status.TIME_LIMIT),
        ({"callback": lambda progress: progress.done >= 1}, Status.STOPPED),
    ]:
        result = solve_kernel_joint_dual(kernel, losses, penalty, tol=1e-12, **limits)
        assert result.status is status
        assert result.certificate.dual <= best * (1 + 1e-6)
        assert best <= result.certificate.primal * (1 + 1e-6)


def test_wrong_input_is_refused():
    X, losses, penalty = draw(SMALL, "orthogonal", {})
    kernel = TrainingKernel(X, make_kernel("linear"))
    with pytest.raises(ValueError, match="13 rows, but there are 14 labels"):
        solve_kernel_joint_dual(TrainingKernel(X[1:], make_kernel("linear")), losses, penalty)
    with pytest.raises(ValueError, match="memory_limit_mb"):
        solve_kernel_joint_dual(kernel, losses, penalty, memory_limit_mb=0.001)
    with pytest.raises(ValueError, match="use the same tree"):
        solve_kernel_joint_dual(kernel, losses, OrthogonalPenalty.of_tree(LARGE))
    with pytest.raises(ValueError, match="use a smaller C"):
        solve_kernel_joint_dual(kernel, tree_losses("orthogonal", SMALL, losses.node + 1, C=1e307), penalty)
    with pytest.raises(NotPositiveDefiniteError):
        solve_kernel_joint_dual(PrecomputedKernel(-np.eye(14)), losses, penalty)
