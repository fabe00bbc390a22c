"""The joint dual solver against cvxpy, its certificate against an independent evaluation, and laws of the family."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference.tree_constraints import constraints_of
from tree_problems import ALL_NODE_METHODS, assert_certified, draw_rows
from widemargin import _core
from widemargin.labels.tree import Tree
from widemargin.problems.tree_factor import TreeWeights
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import OrthogonalPenalty, tree_penalty
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.tree.joint_dual import JointStart, solve_joint_dual

TREES = {
    "two levels": [-1, 0, 0, 1, 1, 2, 2],
    "three levels": [-1, 0, 0, 1, 1, 3, 3],
    "chain and only child": [-1, 0, 0, 1, 3, 4, 4],
    "flat": [-1, 0, 0, 0, 0],
}
CASES = [
    *ALL_NODE_METHODS,
    ("flat", {"outputs": "all"}),
    ("tree-loss", {"outputs": "all"}),
    ("tree-loss", {"outputs": "all", "rescaling": "margin"}),
    ("tree-loss", {}),
]


def draw(tree, method, options, C, seed, n_samples=14, n_features=5):
    """Rows, one of them zero, losses and penalty."""
    X, labels, weight = draw_rows(tree, method, options, seed, n_samples, n_features)
    X[0] = 0.0
    return X, tree_losses(method, tree, labels, C=C, sample_weight=weight, **options), tree_penalty(method, tree)


def objective(X, losses, penalty, result):
    """The objective of the returned weights, by the definitions."""
    return penalty.value(result.coef) + losses.evaluate(X, result.coef).value


@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize(("method", "options"), CASES)
def test_bounds_hold_the_optimum_of_clarabel(method, options, shape, tree_optimum):
    C = [0.05, 0.5, 5.0, 0.2][list(TREES).index(shape)]
    X, losses, penalty = draw(Tree(np.array(TREES[shape])), method, options, C, seed=len(shape))
    result = solve_joint_dual(X, losses, penalty, tol=1e-6, max_iter=20_000)
    optimum = tree_optimum(X, losses, penalty)
    assert_certified(result, optimum, objective(X, losses, penalty, result), losses, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_orthogonal_transfer_matches_clarabel_with_eight_nodes_and_any_K(seed, tree_optimum):
    rng = np.random.default_rng(seed)
    tree = Tree(np.array([-1, 0, 0, 1, 1, 2, 3, 3, 6]))
    K = OrthogonalPenalty.of_tree(tree).paths.symmetric(OrthogonalPenalty.of_tree(tree).K).toarray()
    share = rng.random(K.shape)
    K = np.where(np.eye(len(K)) > 0, K, K * (share + share.T) / 2)
    X, losses, _ = draw(tree, "orthogonal", {}, 0.1 * 10.0 ** (seed % 3), seed)
    penalty = OrthogonalPenalty.of_matrix(tree, K)
    result = solve_joint_dual(X, losses, penalty, tol=1e-6, max_iter=20_000)
    optimum = tree_optimum(X, losses, penalty)
    slack = 1e-6 * abs(optimum)
    assert result.certificate.dual - slack <= optimum <= result.certificate.primal + slack
    assert result.certificate.decrease_gap <= 1e-6


def problem(method="orthogonal", C=0.5, seed=0, n_samples=60, **options):
    tree = Tree(np.array([-1, 0, 0, 0, 1, 1, 2, 2, 2, 4, 4]))
    return draw(tree, method, options, C, seed, n_samples, n_features=30)


def test_dual_variables_and_signs_make_the_weights():
    X, losses, penalty = problem()
    result = solve_joint_dual(X, losses, penalty, tol=1e-7)
    B = np.zeros((losses.paths.m, X.shape[1]))
    for g in range(losses.n_blocks):
        i, j, _, _ = constraints_of(losses, g)
        for winner, loser in zip(i, j, strict=True):
            change = losses.cost[g] * result.dual[g, loser] * X[losses.row[g]]
            B[winner] += change
            B[loser] -= change
    M = losses.paths.symmetric(penalty.K * result.S).toarray()
    np.testing.assert_allclose(result.coef, np.linalg.solve(M, B), atol=1e-10)
    pairs = result.coef[losses.paths.descendant], result.coef[losses.paths.path_nodes]
    np.testing.assert_allclose(result.products, (pairs[0] * pairs[1]).sum(axis=1), atol=1e-10)
    interior = (np.abs(result.S) < 1.0 - 1e-6) & ~losses.paths.is_diagonal
    assert interior.any()
    assert np.abs(result.products[interior]).max() <= 1e-4 * np.abs(result.products).max()


def test_a_diagonal_K_decouples_the_levels():
    tree = Tree(np.array([-1, 0, 0, 1, 1, 2, 2]))
    X, losses, _ = draw(tree, "per-node", {}, 0.5, 3, 40, 8)
    scale = np.array([2.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    together = solve_joint_dual(X, losses, OrthogonalPenalty.of_matrix(tree, np.diag(scale)), tol=1e-8)
    alone = solve_joint_dual(X, losses, OrthogonalPenalty.of_matrix(tree, np.diag(scale * 7.0)), tol=1e-8)
    flat = Tree(np.array([-1, 0, 0]))
    top = np.where(losses.node < 2)[0]
    part = tree_losses("flat", flat, losses.node[top] + 1, sample_weight=losses.cost[top])
    single = solve_joint_dual(
        X[losses.row[top]], part, OrthogonalPenalty.of_matrix(flat, np.diag([2.0, 2.0])), tol=1e-8
    )
    np.testing.assert_allclose(together.coef[:2], single.coef, atol=1e-3)
    assert not np.allclose(together.coef, alone.coef, atol=1e-2)


@pytest.mark.parametrize("method", ["orthogonal", "similarity", "per-node", "tree-loss", "flat"])
def test_threads_and_repetitions_do_not_change_a_bit(method):
    X, losses, penalty = problem(method, **({"outputs": "all"} if method in ("tree-loss", "flat") else {}))
    results = [solve_joint_dual(X, losses, penalty, tol=1e-4, n_threads=n, seed=3) for n in (1, 1, 3)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].coef, other.coef)
        assert results[0].certificate == other.certificate
    assert not np.array_equal(results[0].coef, solve_joint_dual(X, losses, penalty, tol=1e-4, seed=4).coef)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("isa", _core.available_instruction_sets())
def test_groups_of_all_widths_are_certified_with_every_instruction_set(isa, dtype, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    widths = [1, 2, 3, 5, 7, 9, 12, 14, 17, 20, 25, 33]
    tree = Tree(np.concatenate([[-1], np.zeros(len(widths), int), np.repeat(np.arange(1, len(widths) + 1), widths)]))
    X, losses, penalty = draw(tree, "orthogonal", {}, 0.5, seed=4, n_samples=150, n_features=9)
    result = solve_joint_dual(X.astype(dtype), losses, penalty, tol=1e-3)
    assert result.certificate.decrease_gap <= 1e-3
    assert result.certificate.primal == pytest.approx(objective(X.astype(dtype), losses, penalty, result), rel=1e-9)


def test_blocks_too_large_to_keep_their_quadratic_problems_are_trained_as_well():
    tree = Tree(np.concatenate([[-1], np.zeros(400, int), [1, 1, 2, 2]]))  # 400² numbers per label, 2²⁰ for all of them
    X, losses, penalty = draw(tree, "orthogonal", {}, 0.5, seed=5, n_samples=40, n_features=6)
    result = solve_joint_dual(X, losses, penalty, tol=1e-6)
    assert result.certificate.decrease_gap <= 1e-6
    assert result.certificate.primal == pytest.approx(objective(X, losses, penalty, result), rel=1e-9)


def test_sparse_dense_single_and_double_rows_are_the_same_problem():
    X, losses, penalty = problem()
    single = X.astype(np.float32)
    results = [solve_joint_dual(A, losses, penalty, tol=1e-3) for A in (single, sp.csr_array(single))]
    np.testing.assert_array_equal(results[0].coef, results[1].coef)
    double = solve_joint_dual(X, losses, penalty, tol=1e-3)
    assert double.certificate.primal == pytest.approx(objective(X, losses, penalty, double), rel=1e-12)
    assert double.certificate.decrease_gap <= 1e-3


def test_unsorted_and_repeated_columns_are_added_up():
    X, losses, penalty = problem()
    entries = sp.csr_array(X)
    halves = [sp.csr_array((entries.data / 2, entries.indices[::1], entries.indptr), shape=X.shape) for _ in range(2)]
    doubled = sp.hstack(halves).tocsr()
    doubled = sp.csr_array((doubled.data, doubled.indices % X.shape[1], doubled.indptr), shape=X.shape)
    expected = solve_joint_dual(X, losses, penalty, tol=1e-6)
    np.testing.assert_allclose(solve_joint_dual(doubled, losses, penalty, tol=1e-6).coef, expected.coef, atol=1e-4)


def test_the_intercept_is_the_weight_of_a_constant_feature():
    X, losses, penalty = problem()
    wide = np.hstack([X, np.full((len(X), 1), 2.0)])
    expected = solve_joint_dual(wide, losses, penalty, tol=1e-6)
    result = solve_joint_dual(X, losses, penalty, tol=1e-6, intercept_scaling=2.0)
    np.testing.assert_allclose(result.coef, expected.coef[:, :-1], atol=1e-12)
    np.testing.assert_allclose(result.intercept, 2.0 * expected.coef[:, -1], atol=1e-12)


def test_a_weight_is_a_repeated_example_and_a_weight_of_zero_is_none():
    X, losses, penalty = problem()
    labels = losses.node + 1
    weight = np.random.default_rng(0).integers(0, 3, len(labels))
    weighted = tree_losses("orthogonal", losses.tree, labels, C=0.5, sample_weight=weight)
    repeated = np.repeat(np.arange(len(labels)), weight)
    a = solve_joint_dual(X, weighted, penalty, tol=1e-8)
    b = solve_joint_dual(
        X[repeated], tree_losses("orthogonal", losses.tree, labels[repeated], C=0.5), penalty, tol=1e-8
    )
    assert a.certificate.dual <= b.certificate.primal * (1.0 + 1e-12)
    assert b.certificate.dual <= a.certificate.primal * (1.0 + 1e-12)
    # the penalty is strongly convex: two points with these gaps are that close
    bound = sum(np.sqrt(2.0 * max(r.certificate.gap, 0.0) / penalty.modulus) for r in (a, b))
    assert np.linalg.norm(a.coef - b.coef) <= bound + 1e-9


def test_a_warm_start_at_the_solution_needs_no_pass_and_one_for_another_C_needs_fewer():
    X, losses, penalty = problem(n_samples=200)
    cold = solve_joint_dual(X, losses, penalty, tol=1e-6)
    again = solve_joint_dual(X, losses, penalty, tol=1e-6, start=cold.start)
    assert again.n_iter[0] == 0
    np.testing.assert_allclose(again.coef, cold.coef, atol=1e-12)
    larger = tree_losses("orthogonal", losses.tree, losses.node + 1, C=0.6)
    from_zero = solve_joint_dual(X, larger, penalty, tol=1e-5)
    warm = solve_joint_dual(X, larger, penalty, tol=1e-5, start=cold.start)
    assert warm.n_iter[0] < from_zero.n_iter[0]
    assert warm.certificate.decrease_gap <= 1e-5


def test_a_warm_start_for_another_alpha_is_feasible():
    X, losses, _ = problem(n_samples=100)
    low, high = (OrthogonalPenalty.of_tree(losses.tree, alpha) for alpha in (0.2, 0.6))
    cold = solve_joint_dual(X, losses, low, tol=1e-5)
    for start in (cold.start, cold.start.scaled(0.2 / 0.6)):
        warm = solve_joint_dual(X, losses, high, tol=1e-5, start=start)
        assert warm.certificate.decrease_gap <= 1e-5
        assert warm.certificate.primal == pytest.approx(objective(X, losses, high, warm), rel=1e-12)
    assert np.abs(cold.start.scaled(9.0).S).max() == 1.0
    assert JointStart(cold.dual).scaled(2.0).S is None


def test_a_start_from_nonsense_still_ends_at_the_solution():
    X, losses, penalty = problem()
    rng = np.random.default_rng(0)
    dual = sp.csr_array(rng.random((losses.n_blocks, losses.paths.m)))  # infeasible, and for nodes without constraint
    signs = np.where(losses.paths.is_diagonal, 1.0, rng.uniform(-1.0, 1.0, losses.paths.n_entries))
    result = solve_joint_dual(X, losses, penalty, tol=1e-6, start=JointStart(dual, signs))
    expected = solve_joint_dual(X, losses, penalty, tol=1e-6)
    assert result.certificate.dual <= expected.certificate.primal
    allowed = 2e-6 * losses.at_zero
    assert result.certificate.primal == pytest.approx(expected.certificate.primal, abs=allowed)


def test_sleeping_blocks_are_seen_to_before_the_end():
    X, losses, penalty = problem(n_samples=300, C=0.05)
    result = solve_joint_dual(X, losses, penalty, tol=1e-6)
    assert result.history["visits"].min() < losses.n_blocks  # some slept
    assert result.certificate.primal == pytest.approx(objective(X, losses, penalty, result), rel=1e-12)
    assert result.certificate.decrease_gap <= 1e-6
    assert result.history["passes"][-1] <= result.history["iteration"][-1]


def test_limits_and_callback_end_with_their_status_and_a_valid_certificate():
    X, losses, penalty = problem(n_samples=200)
    seen = []
    cases = {
        Status.MAX_ITER: {"max_iter": 2},
        Status.TIME_LIMIT: {"callback": TimeLimit(0.0)},
        Status.STOPPED: {"callback": lambda progress: seen.append(progress) or len(seen) == 2},
    }
    best = solve_joint_dual(X, losses, penalty, tol=1e-6).certificate
    for status, options in cases.items():
        result = solve_joint_dual(X, losses, penalty, tol=1e-12, **options)
        assert result.status is status
        assert result.certificate.dual <= best.primal
        assert result.certificate.primal == pytest.approx(objective(X, losses, penalty, result), rel=1e-12)
    assert [progress.done for progress in seen] == [1, 2]


def test_weights_above_the_limit_come_as_factors_with_the_same_scores():
    X, losses, penalty = problem()
    dense = solve_joint_dual(X, losses, penalty, tol=1e-4, intercept_scaling=1.0)
    factors = solve_joint_dual(X, losses, penalty, tol=1e-4, intercept_scaling=1.0, memory_limit_mb=0.0)
    assert isinstance(factors.coef, TreeWeights)
    assert factors.coef.shape == dense.coef.shape
    assert factors.coef.nbytes > 0
    np.testing.assert_allclose(factors.coef.toarray(), dense.coef, atol=1e-14)
    np.testing.assert_allclose(factors.coef.scores(sp.csr_array(X)), X @ dense.coef.T, atol=1e-12)
    np.testing.assert_allclose(factors.intercept, dense.intercept, atol=1e-14)


def test_nodes_without_examples_and_rows_of_zeros_are_harmless():
    tree = Tree(np.array([-1, 0, 0, 0, 1, 1, 2, 4, 4]))
    X, labels = np.zeros((4, 3)), np.array([4, 5, 4, 3])
    X[1] = [1.0, 0.0, 2.0]
    penalty = tree_penalty("orthogonal", tree)
    losses = tree_losses("orthogonal", tree, labels)
    result = solve_joint_dual(X, losses, penalty, tol=1e-8)
    assert result.certificate.decrease_gap <= 1e-8
    assert not result.coef[[5, 6, 7]].any()  # rows of nodes 6, 7, 8, on no path
    only_zeros = solve_joint_dual(np.zeros((4, 3)), losses, penalty)
    assert only_zeros.status is Status.CONVERGED
    assert not only_zeros.coef.any()


def test_only_children_have_no_constraint_and_zero_weights():
    chain = Tree(np.array([-1, 0, 1, 2]))
    penalty = tree_penalty("orthogonal", chain, alpha=0.3)
    result = solve_joint_dual(np.ones((2, 2)), tree_losses("orthogonal", chain, np.array([3, 2])), penalty)
    assert result.status is Status.CONVERGED
    assert (result.certificate.primal, result.certificate.dual) == (0.0, 0.0)


@pytest.mark.parametrize(("scale", "C"), [(1e20, 1e-41), (1e-20, 1e39), (1.0, 1e-35)])
def test_values_beyond_float32_are_trained_in_float64(scale, C):
    X, losses, penalty = problem()
    scaled = tree_losses("orthogonal", losses.tree, losses.node + 1, C=C)
    result = solve_joint_dual(scale * X, scaled, penalty, tol=1e-4)
    assert result.certificate.decrease_gap <= 1e-4
    assert np.isfinite(result.coef).all()
    assert result.coef.any()


def test_wrong_input_is_named():
    X, losses, penalty = problem()
    with pytest.raises(ValueError, match="X has 59 rows, but there are 60 labels"):
        solve_joint_dual(X[:-1], losses, penalty)
    with pytest.raises(ValueError, match="the penalty has 2 nodes, but the losses have 10"):
        solve_joint_dual(X, losses, tree_penalty("orthogonal", Tree(np.array([-1, 0, 0]))))
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        solve_joint_dual(X, losses, penalty)
    X[3, 2] = 1e200
    with pytest.raises(ValueError, match="scale down the features"):
        solve_joint_dual(X, losses, penalty)
    with pytest.raises(ValueError, match="use a smaller C"):
        solve_joint_dual(X[:, :2], tree_losses("orthogonal", losses.tree, losses.node + 1, C=1e300), penalty)
    nothing = tree_losses("orthogonal", losses.tree, losses.node + 1, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match="weight 0"):
        solve_joint_dual(np.ones((60, 30)), nothing, penalty)
