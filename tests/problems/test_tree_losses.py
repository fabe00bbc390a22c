"""Losses and penalties of the five methods against their definitions, written out node by node."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.tree_constraints import constraints_of
from tree_problems import ALL_NODE_METHODS, trees
from widemargin.labels.tree import Tree
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import METHODS, pair_products, tree_penalty

TREE = Tree(np.array([-1, 0, 0, 0, 1, 1, 2, 4, 4, 4, 6]))  # node 6 is an only child, and so is node 10
LEAVES = np.flatnonzero(TREE.is_leaf)
VARIANTS = [
    *ALL_NODE_METHODS,
    ("flat", {}),
    ("flat", {"outputs": "all"}),
    ("tree-loss", {}),
    ("tree-loss", {"rescaling": "margin"}),
    ("tree-loss", {"outputs": "all"}),
]


def blocks_by_definition(method, tree, labels, options):
    """For each example a list of blocks, each a list of (i, j, ρ, κ) in node numbers."""
    outputs = [n for n in range(1, tree.n_nodes) if options.get("outputs") == "all" or tree.is_leaf[n]]
    for y in labels.tolist():
        path = tree.path(y)[1:]
        levels = [[(i, j, 1.0, 1.0) for j in tree.children(tree.parent[i]).tolist() if j != i] for i in path]
        if method == "per-node":
            yield levels
        elif method in ("orthogonal", "similarity"):
            yield [[constraint for level in levels for constraint in level]]
        else:
            block = []
            for j in outputs:
                above, other = set(path), set(tree.path(j)[1:])
                delta = 0.5 * len(above ^ other) if method == "tree-loss" else 1.0
                if j != y:
                    block.append((y, j, delta, 1.0 if options.get("rescaling") == "margin" else delta))
            yield [block]


def costs_by_definition(method, tree, labels, weight, options):
    """γ of each block, in the order of `blocks_by_definition`."""
    if options.get("node_scaling") != "paper":
        return [
            [w] * (len(tree.path(y)) - 1 if method == "per-node" else 1) for y, w in zip(labels, weight, strict=True)
        ]
    passing = [[w for y, w in zip(labels, weight, strict=True) if p in tree.path(y)[:-1]] for p in range(tree.n_nodes)]
    return [[w / sum(passing[p]) for p in tree.path(y)[:-1]] for y, w in zip(labels, weight, strict=True)]


def loss_by_definition(method, tree, labels, weight, options, X, W):
    total, at_zero = 0.0, 0.0
    blocks, costs = (
        blocks_by_definition(method, tree, labels, options),
        costs_by_definition(method, tree, labels, weight, options),
    )
    for x, own_blocks, own_costs in zip(X, blocks, costs, strict=True):
        for block, cost in zip(own_blocks, own_costs, strict=True):
            slacks = [rho - kappa * (W[i - 1] - W[j - 1]) @ x for i, j, rho, kappa in block]
            total += cost * max([0.0, *slacks])
            at_zero += cost * max([0.0, *(rho for _, _, rho, _ in block)])
    return total, at_zero


def draw_problem(method, options, tree, seed):
    rng = np.random.default_rng(seed)
    inner_too = method in ("orthogonal", "similarity", "per-node") or options.get("outputs") == "all"
    allowed = np.arange(1, tree.n_nodes) if inner_too else np.flatnonzero(tree.is_leaf)
    labels = rng.choice(allowed, size=8)
    X = rng.normal(size=(8, 3)) * (rng.random((8, 3)) < 0.7)
    return labels, rng.uniform(0.5, 2.0, 8), X, rng.normal(size=(tree.n_nodes - 1, 3))


@pytest.mark.parametrize(("method", "options"), VARIANTS)
@examples(15)
@given(tree=trees(), seed=st.integers(0, 10**6))
def test_losses_are_those_of_the_definition(method, options, tree, seed):
    labels, weight, X, W = draw_problem(method, options, tree, seed)
    expected, at_zero = loss_by_definition(method, tree, labels, 3.0 * weight, options, X, W)
    if options.get("node_scaling") == "paper":  # C is not a weight: it does not cancel
        expected, at_zero = 3.0 * expected, 3.0 * at_zero
    losses = tree_losses(method, tree, labels, C=3.0, sample_weight=weight, **options)
    assert losses.at_zero == pytest.approx(at_zero, rel=1e-12)
    for rows in (X, sp.csr_array(X)):
        for weights in (W, sp.csr_array(W)):
            point = losses.evaluate(rows, weights)
            assert point.value == pytest.approx(expected, rel=1e-12)
    tiny = losses.evaluate(X, W, memory_limit_mb=1e-4)
    np.testing.assert_allclose(tiny.loss, point.loss, atol=1e-12)


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_constraints_are_those_of_the_definition(method, options):
    labels, _, _, _ = draw_problem(method, options, TREE, 3)
    losses = tree_losses(method, TREE, labels, **options)
    found = [[] for _ in labels]
    for block in range(losses.n_blocks):
        i, j, rho, kappa = constraints_of(losses, block)
        found[losses.row[block]].append(sorted(zip(i + 1, j + 1, rho, kappa, strict=True)))
    for own, expected in zip(found, blocks_by_definition(method, TREE, labels, options), strict=True):
        assert sorted(own) == sorted(sorted(block) for block in expected)


@pytest.mark.parametrize(("method", "options"), VARIANTS)
@examples(10)
@given(tree=trees(), seed=st.integers(0, 10**6))
def test_subgradients_support_the_losses(method, options, tree, seed):
    labels, weight, X, W = draw_problem(method, options, tree, seed)
    losses = tree_losses(method, tree, labels, sample_weight=weight, **options)
    point = losses.evaluate(X, W)
    gradient = losses.coefficients(point) @ X
    np.testing.assert_allclose((losses.coefficients(point) @ sp.csr_array(X)).toarray(), gradient, atol=1e-12)
    V = np.random.default_rng(seed + 1).normal(size=W.shape)
    bound = point.value + (gradient * (V - W)).sum()
    assert loss_by_definition(method, tree, labels, weight, options, X, V)[0] >= bound - 1e-10


def test_rows_with_the_root_as_label_have_no_constraint():
    losses = tree_losses("orthogonal", TREE, np.array([0, 4, 0]))
    assert losses.row.tolist() == [1]
    assert losses.coefficients(losses.evaluate(np.ones((3, 1)), np.zeros((10, 1)))).shape == (10, 3)


def test_rows_of_weight_zero_add_nothing_in_any_scaling():
    labels, X = np.array([4, 6, 7]), np.eye(3)
    for options in ({}, {"node_scaling": "paper"}):
        with_it = tree_losses("per-node", TREE, labels, sample_weight=[1.0, 1.0, 0.0], **options)
        without = tree_losses("per-node", TREE, labels[:2], **options)
        W = np.random.default_rng(0).normal(size=(10, 3))
        assert with_it.evaluate(X, W).value == pytest.approx(without.evaluate(X[:2], W).value, rel=1e-12)


def test_only_children_alone_cost_nothing():
    losses = tree_losses("orthogonal", Tree(np.array([-1, 0, 1, 2])), np.array([3, 2]))
    assert losses.at_zero == 0.0
    assert losses.evaluate(np.ones((2, 1)), np.ones((3, 1))).value == 0.0


@examples(20)
@given(tree=trees(), seed=st.integers(0, 10**6))
def test_penalties_are_those_of_the_definition(tree, seed):
    W = np.random.default_rng(seed).normal(size=(tree.n_nodes - 1, 2))
    above = np.vstack([np.zeros(2), W])[np.maximum(tree.parent[1:], 0)]
    inner = tree.parent[1:] > 0
    norms, steps = 0.5 * (W * W).sum(axis=1), 0.5 * ((W - above) ** 2).sum(axis=1)
    expected = {
        "per-node": norms.sum(),
        "flat": norms.sum(),
        "similarity": norms.sum() + steps[inner].sum(),
        "tree-loss": steps.sum(),
    }
    for method, value in expected.items():
        penalty = tree_penalty(method, tree)
        assert penalty.value(W) == pytest.approx(value, rel=1e-12)
        assert penalty.value(sp.csr_array(W)) == pytest.approx(value, rel=1e-12)
        M = penalty.matrix.toarray()
        np.testing.assert_allclose(penalty.value_and_subgradient(W)[1], M @ W, atol=1e-12)
        assert penalty.modulus == pytest.approx(np.linalg.eigvalsh(M)[0], rel=1e-9)


def test_each_method_has_a_penalty():
    for method in METHODS:
        assert tree_penalty(method, TREE).modulus > 0
    K = np.eye(10)
    assert tree_penalty("orthogonal", TREE, K=K).value(np.ones((10, 2))) == 10.0


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_the_gap_splits_into_signs_and_slacks(method, options):
    """J(W) − D(a, S) at W = M(S)⁻¹B(a) is the excess of S plus that of the losses over their mean under a."""
    labels, weight, X, _ = draw_problem(method, options, TREE, 5)
    losses = tree_losses(method, TREE, labels, sample_weight=weight, **options)
    penalty, rng = tree_penalty(method, TREE), np.random.default_rng(7)
    m, is_orthogonal = TREE.n_nodes - 1, method == "orthogonal"
    S = np.where(penalty.paths.is_diagonal, 1.0, rng.uniform(-1, 1, penalty.paths.n_entries))
    M = penalty.paths.symmetric(penalty.K * S if is_orthogonal else penalty.M).toarray()
    blocks = [constraints_of(losses, g) for g in range(losses.n_blocks)]
    duals = [rng.dirichlet(np.ones(len(block.i) + 1))[1:] for block in blocks]
    B, gain = np.zeros((m, 3)), 0.0
    for block, a, cost, row in zip(blocks, duals, losses.cost, losses.row, strict=True):
        pairs = np.eye(m)[block.i] - np.eye(m)[block.j]
        B += cost * np.outer((a * block.kappa) @ pairs, X[row])
        gain += cost * a @ block.rho
    W = np.linalg.solve(M, B)
    point = losses.evaluate(X, W)
    gap = penalty.value(W) + point.value - (gain - 0.5 * np.trace(B.T @ W))
    slacks = 0.0
    for block, a, cost, row, loss in zip(blocks, duals, losses.cost, losses.row, point.loss, strict=True):
        slacks += cost * (loss - a @ (block.rho - block.kappa * ((W[block.i] - W[block.j]) @ X[row])))
    signs = penalty.excess(S, pair_products(penalty.paths, W)) if is_orthogonal else 0.0
    assert signs >= 0.0
    assert slacks >= -1e-12
    assert gap == pytest.approx(signs + slacks, rel=1e-10)
