"""The compiled joint dual ascent against its specification in NumPy, and that against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.joint_dual import (
    Block,
    JointProblem,
    JointState,
    coordinate_sweep,
    extrapolate,
    improve_signs,
    joint_proposal,
    orthogonal_change,
    pairwise_steps,
    run_round,
)
from reference.tree_constraints import constraints_of
from widemargin.labels.tree import Tree
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import tree_penalty
from widemargin.solvers.tree.joint_dual import JointAscent, JointStart, rows_with_constant

METHODS = ["orthogonal", "similarity", "per-node", "tree-loss", "flat"]


def draw_tree(rng, n_nodes):
    """A random tree, numbered breadth first; few nodes have most of the children."""
    parents = np.sort([rng.integers(0, max(1, i // 2) + (i > 1)) for i in range(n_nodes)])
    return Tree(np.concatenate([[-1], np.minimum(parents, np.arange(n_nodes))]))


def draw_problem(method, seed, n_nodes=9, n_samples=12, C=0.5, **options):
    """Losses, penalty and rows of a small random problem."""
    rng = np.random.default_rng(seed)
    tree = draw_tree(rng, n_nodes)
    labels = rng.integers(1, tree.n_nodes, n_samples)
    if method in ("flat", "tree-loss"):
        options = {"outputs": "all", **options}
    X = rng.normal(size=(n_samples, 4)) * (rng.random((n_samples, 4)) < [1.0, 0.8, 0.8, 0.8])
    weight = rng.integers(0, 3, n_samples) + (np.arange(n_samples) == 0)
    losses = tree_losses(method, tree, labels, C=C, sample_weight=weight, **options)
    return X, losses, tree_penalty(method, tree)


def twin_of(X, losses, penalty):
    """The same problem for the specification."""
    blocks = []
    for g in range(losses.n_blocks):
        i, j, rho, kappa = constraints_of(losses, g)
        order = np.argsort(j, kind="stable")
        blocks.append(Block(losses.row[g], losses.cost[g], i[order], j[order], rho[order], kappa[order]))
    learns = hasattr(penalty, "K")
    return JointState(JointProblem(X, blocks, losses.paths, penalty.K if learns else penalty.M, learns), seed=7)


def dual_of_twin(state):
    """Dual variables (n_blocks, m) of the specification."""
    dual = np.zeros((len(state.a), state.problem.paths.m))
    for g, (block, a) in enumerate(zip(state.problem.blocks, state.a, strict=True)):
        dual[g, block.loser] = a
    return dual


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@examples(4)
@given(seed=st.integers(0, 10_000), C=st.sampled_from([0.01, 0.5, 20.0]))
def test_rounds_of_the_core_are_those_of_the_specification(method, seed, C):
    X, losses, penalty = draw_problem(method, seed, C=C)
    ascent = JointAscent(rows_with_constant(X, 0.0)[0], losses, penalty, np.float64, 7, 1)
    twin, rng = twin_of(X, losses, penalty), np.random.default_rng(seed)
    twin.a = [rng.dirichlet(np.ones(len(a) + 1))[:-1] for a in twin.a]  # at 0 all slacks are the same, and ties differ
    ascent.start_from(JointStart(dual_of_twin(twin)))
    for _ in range(3):
        ascent.core.run(np.inf)
        _, dual = ascent.core.improve_coupling(0.0, 1)
        run_round(twin, 0.0)
        np.testing.assert_allclose(ascent.point.dual.toarray(), dual_of_twin(twin), atol=1e-8)
        assert ascent.core.improve_coupling(np.inf, 1)[1] == pytest.approx(twin.bounds()[1], rel=1e-9, abs=1e-12)
        ascent.core.extrapolate(dual)
        extrapolate(twin, dual)
    ascent.core.run(np.inf)
    run_round(twin, np.inf)
    assert ascent.certify() == pytest.approx(twin.bounds(), rel=1e-7)


@examples(8)
@given(seed=st.integers(0, 10_000))
@pytest.mark.slow
def test_signs_of_small_and_of_large_subtrees_reach_the_same_value(seed):
    X, losses, penalty = draw_problem("orthogonal", seed, n_nodes=12, n_samples=20)
    twin = twin_of(X, losses, penalty)
    run_round(twin, np.inf)
    values = []
    for small in (0, 150):
        ascent = JointAscent(rows_with_constant(X, 0.0)[0], losses, penalty, np.float64, 7, 2, small_subtree=small)
        ascent.start_from(JointStart(dual_of_twin(twin)))
        gap, dual = ascent.core.improve_coupling(1e-9, 200)
        values.append(dual)
        assert gap <= 1e-5
    improve_signs(twin, 1e-9)
    np.testing.assert_allclose(values, twin.bounds()[1], rtol=1e-5)


@examples(8)
@given(seed=st.integers(0, 10_000))
def test_a_step_of_all_pairs_at_once_is_that_of_the_specification_if_it_gains(seed):
    X, losses, penalty = draw_problem("orthogonal", seed, n_nodes=12, n_samples=20)
    twin = twin_of(X, losses, penalty)
    run_round(twin, np.inf)
    B = twin.B
    proposal = joint_proposal(losses.paths, penalty.K, twin.S, B @ B.T)
    ascent = JointAscent(rows_with_constant(X, 0.0)[0], losses, penalty, np.float64, 7, 2, small_subtree=0)
    ascent.start_from(JointStart(dual_of_twin(twin)))
    before = ascent.core.improve_coupling(np.inf, 0)[1]
    _, after = ascent.core.improve_coupling(0.0, 1)
    assert after >= before - 1e-12
    moved = ascent.core.signs() - twin.S
    wanted = proposal - twin.S
    shares = moved[np.abs(wanted) > 1e-9] / wanted[np.abs(wanted) > 1e-9]
    assert np.all(np.min(np.abs(shares[:, None] - 0.5 ** np.arange(7)), axis=1) < 1e-6) or not moved.any()


@examples(30)
@given(seed=st.integers(0, 10_000))
def test_the_change_of_one_entry_makes_two_weights_orthogonal(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(4, 4))
    M, B = A @ A.T + np.eye(4), rng.normal(size=(4, 3))
    P = np.linalg.inv(M)
    G = P @ B @ B.T @ P
    M[0, 2] += orthogonal_change(P[0, 0], P[0, 2], P[2, 2], G[0, 0], G[0, 2], G[2, 2])
    M[2, 0] = M[0, 2]
    W = np.linalg.solve(M, B)
    assert abs(W[0] @ W[2]) <= 1e-8 * np.linalg.norm(W[0]) * np.linalg.norm(W[2])
    assert np.linalg.eigvalsh(M).min() > 0.0


@examples(8)
@given(seed=st.integers(0, 10_000))
def test_a_sweep_never_lowers_the_dual(seed):
    X, losses, penalty = draw_problem("orthogonal", seed)
    twin = twin_of(X, losses, penalty)
    run_round(twin, np.inf)
    before, B = twin.bounds()[1], twin.B
    twin.S = coordinate_sweep(losses.paths, penalty.K, twin.S, B @ B.T)
    assert twin.bounds()[1] >= before - 1e-12
    assert np.abs(twin.S).max() <= 1.0


@examples(30)
@given(seed=st.integers(0, 10_000))
def test_pairwise_steps_stay_in_the_simplex_and_gain(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(4, 3))
    H, slack = A @ A.T, rng.normal(size=4)
    a = rng.dirichlet(np.ones(5))[:4] * (rng.random(4) < 0.6)
    after = pairwise_steps(slack, a, H)
    d = after - a
    assert after.min() >= 0.0
    assert after.sum() <= 1.0 + 1e-12
    assert slack @ d - 0.5 * d @ H @ d >= -1e-12
