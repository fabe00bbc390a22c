"""Dual averaging on the five methods: its bounds contain the optimum of independent solvers, and their quality."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from reference.tree_constraints import constraints_of
from tree_problems import ALL_NODE_METHODS
from widemargin.labels.tree import Tree
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import OrthogonalPenalty, tree_penalty
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging

TREES = [
    Tree(np.array([-1, 0, 0, 1, 1, 2, 2])),  # two levels
    Tree(np.array([-1, 0, 0, 1, 1, 2, 3, 3])),  # three levels, an only child
]
VARIANTS = [
    *ALL_NODE_METHODS,
    ("flat", {}),
    ("tree-loss", {}),
    ("tree-loss", {"rescaling": "margin", "outputs": "all"}),
]


def make_problem(method, options, tree, C=1.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.flatnonzero(tree.is_leaf), 3)
    X = rng.normal(size=(len(labels), 4)) + 2.0 * rng.normal(size=(tree.n_nodes, 4))[labels]
    return X, tree_losses(method, tree, labels, C=C, **options), tree_penalty(method, tree)


def optimum(X, losses, penalty):
    """The optimal value by Clarabel: the primal for a quadratic penalty, the joint dual for orthogonal transfer."""
    blocks = [(losses.row[g], losses.cost[g], constraints_of(losses, g)) for g in range(losses.n_blocks)]
    m = penalty.paths.m
    if isinstance(penalty, OrthogonalPenalty):
        return _joint_dual(X, blocks, penalty, m)
    W, slack = cp.Variable((m, X.shape[1])), cp.Variable(len(blocks), nonneg=True)
    conditions = [
        rho[c] - kappa[c] * ((W[i[c]] - W[j[c]]) @ X[row]) <= slack[g]
        for g, (row, _, (i, j, rho, kappa)) in enumerate(blocks)
        for c in range(len(i))
    ]
    root = np.linalg.cholesky(penalty.paths.symmetric(penalty.M).toarray()).T
    value = 0.5 * cp.sum_squares(root @ W) + np.array([cost for _, cost, _ in blocks]) @ slack
    return cp.Problem(cp.Minimize(value), conditions).solve(solver=cp.CLARABEL)


def _joint_dual(X, blocks, penalty, m):
    """max_{a, S} Σ γ a ρ − ½ tr(B(a)ᵀ (K ∘ S)⁻¹ B(a))."""
    a = [cp.Variable(len(constraints.i), nonneg=True) for _, _, constraints in blocks]
    gain, B = 0.0, 0.0
    for mass, (row, cost, (i, j, rho, kappa)) in zip(a, blocks, strict=True):
        pairs = (np.eye(m)[i] - np.eye(m)[j]).T * kappa
        gain += cost * rho @ mass
        B += cost * cp.reshape(pairs @ mass, (m, 1), order="C") @ X[row : row + 1]
    S = cp.Variable((m, m), symmetric=True)
    K = penalty.paths.symmetric(penalty.K).toarray()
    conditions = [cp.sum(mass) <= 1 for mass in a] + [cp.diag(S) == 1, S <= 1, S >= -1]
    return cp.Problem(cp.Maximize(gain - 0.5 * cp.matrix_frac(B, cp.multiply(K, S))), conditions).solve(
        solver=cp.CLARABEL
    )


@pytest.mark.parametrize("tree", TREES, ids=["two levels", "three levels"])
@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_both_bounds_hold_the_optimum_and_the_tail_bound_converges(method, options, tree):
    X, losses, penalty = make_problem(method, options, tree, C=0.1)
    expected = optimum(X, losses, penalty)
    result = solve_dual_averaging(X, losses, penalty, tol=0.02, max_iter=3000)
    slack = 1e-6 * losses.at_zero
    for name in ("dual", "dual_published", "dual_tail"):
        assert result.history[name].max() <= expected + slack
    assert result.history["objective"].min() >= expected - slack
    assert result.status is Status.CONVERGED
    certificate = result.certificate
    assert certificate.dual <= expected + slack
    assert certificate.primal >= expected - slack
    assert certificate.decrease_gap <= 0.02
    assert certificate.primal == pytest.approx(penalty.value(result.coef) + losses.evaluate(X, result.coef).value)


@pytest.mark.slow
def test_the_published_bound_is_valid_but_worthless_where_curvatures_differ():
    tree = Tree(np.array([-1] + [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + list(np.repeat(np.arange(4, 13), 2))))
    X, losses, penalty = make_problem("orthogonal", {}, tree, C=0.02)
    published = solve_dual_averaging(X, losses, penalty, lower_bound="published", tol=0.1, max_iter=200)
    tail = solve_dual_averaging(X, losses, penalty, lower_bound="tail", tol=0.1, max_iter=800)
    assert published.history["objective"].max() > 1e6 * losses.at_zero  # it blows up first
    assert published.status is Status.MAX_ITER
    assert published.certificate.dual == 0.0  # the average over all iterations says nothing, then and later
    assert tail.history["dual_published"].max() < 0.0
    assert tail.certificate.decrease_gap < 0.5
    assert tail.certificate.dual <= published.certificate.primal


def test_the_rows_are_those_of_algorithm_1():
    """Three iterations by hand, on the flat problem of two nodes where φ = H."""
    tree, X, labels = Tree(np.array([-1, 0, 0])), np.array([[2.0]]), np.array([1])
    losses, penalty = tree_losses("flat", tree, labels), tree_penalty("flat", tree)
    result = solve_dual_averaging(X, losses, penalty, lower_bound="published", tol=0.0, max_iter=3)
    # W(1) = 0: loss 1, g = (−2, 2), W(2) = (2, −2): J = 4, bound 1 − 8/2 = −3
    # W(2) has margin 8, loss 0, g = 0: average (−1, 1), W(3) = (1, −1): J = 1, bound ½ − 1 = −½
    # W(3) has margin 4, loss 0: average (−⅔, ⅔), W(4) = (⅔, −⅔): J = 4/9, bound ⅓ − 4/9 = −1/9
    np.testing.assert_allclose(result.history["objective"], [4.0, 1.0, 4.0 / 9.0], rtol=1e-12)
    np.testing.assert_allclose(result.history["dual_published"], [-3.0, -0.5, -1.0 / 9.0], rtol=1e-12)
    np.testing.assert_allclose(result.history["primal"], [1.0, 1.0, 4.0 / 9.0], rtol=1e-12)
    np.testing.assert_allclose(result.history["dual"], [0.0, 0.0, 0.0])
    # The tail restarts at t = 2: its only functions are 0 there, and again 0 at t = 3.
    np.testing.assert_allclose(result.history["dual_tail"], [-3.0, 0.0, 0.0], atol=1e-12)


def test_sparse_rows_and_parts_of_scores_give_the_same(monkeypatch):
    X, losses, penalty = make_problem("orthogonal", {}, TREES[1], C=0.1)
    dense = solve_dual_averaging(X, losses, penalty, intercept_scaling=1.0, max_iter=20)
    monkeypatch.setattr("widemargin.solvers.tree.dual_averaging.SCORES_MB", 0.0)
    sparse = solve_dual_averaging(sp.csr_array(X), losses, penalty, intercept_scaling=1.0, max_iter=20)
    np.testing.assert_allclose(dense.coef, sparse.coef, atol=1e-9 * np.abs(dense.coef).max())
    np.testing.assert_allclose(dense.intercept, sparse.intercept, atol=1e-9 * np.abs(dense.coef).max())
    np.testing.assert_allclose(dense.history["objective"], sparse.history["objective"], rtol=1e-9)


def test_the_intercept_is_the_weight_of_a_constant_feature():
    X, losses, penalty = make_problem("per-node", {}, TREES[0], C=0.1)
    with_intercept = solve_dual_averaging(X, losses, penalty, intercept_scaling=2.0, max_iter=30, tol=0.0)
    by_hand = solve_dual_averaging(np.hstack([X, np.full((len(X), 1), 2.0)]), losses, penalty, max_iter=30, tol=0.0)
    np.testing.assert_allclose(with_intercept.coef, by_hand.coef[:, :-1])
    np.testing.assert_allclose(with_intercept.intercept, 2.0 * by_hand.coef[:, -1])


def test_callback_and_time_limit_stop():
    X, losses, penalty = make_problem("per-node", {}, TREES[0])
    seen = []
    stopped = solve_dual_averaging(X, losses, penalty, tol=0.0, callback=lambda p: seen.append(p) or p.done == 3)
    assert stopped.status is Status.STOPPED
    assert stopped.n_iter.tolist() == [3]
    assert [p.done for p in seen] == [1, 2, 3]
    assert seen[-1].dual <= seen[-1].primal
    assert solve_dual_averaging(X, losses, penalty, tol=0.0, callback=TimeLimit(0.0)).status is Status.TIME_LIMIT


def test_an_overflow_ends_with_a_warning_and_bounds_that_hold():
    X, losses, _ = make_problem("orthogonal", {}, TREES[0])
    penalty = tree_penalty("orthogonal", TREES[0], K=np.diag([5000.0, 5000.0, 1.0, 1.0, 1.0, 1.0]))
    with pytest.warns(RuntimeWarning, match="overflowed in iteration"):
        result = solve_dual_averaging(X, losses, penalty, max_iter=5000)
    assert result.status is Status.STOPPED
    assert 0.0 <= result.certificate.dual <= result.certificate.primal <= losses.at_zero
