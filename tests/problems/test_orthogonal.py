"""Ω of orthogonal transfer: definition, subgradient, convexity and its limits, conjugate, and the split of the gap."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference import orthogonal_conjugate
from reference.orthogonal_conjugate import conjugate
from tree_problems import trees
from widemargin.exceptions import DataFormatError, NotPositiveDefiniteError
from widemargin.labels.tree import Tree
from widemargin.problems import tree_penalties as orthogonal
from widemargin.problems.tree_penalties import OrthogonalPenalty, pair_products, subtree_penalties

THREE_LEVELS = Tree(np.array([-1, 0, 0, 1, 1, 2, 3, 3]))


def dense_matrix(tree, alpha):
    """K of eq. (6) by its definition, without the root."""
    nodes = np.arange(1, tree.n_nodes)
    related = tree.covers(nodes[:, None], nodes) | tree.covers(nodes, nodes[:, None])
    return np.where(np.eye(len(nodes), dtype=bool), tree.size[1:], alpha * related)


def dense_value(K, W):
    return 0.5 * float((K * np.abs(W @ W.T)).sum())


def dense_signs(penalty, S):
    """S on the layout as a dense symmetric matrix, 0 off the pairs."""
    return penalty.paths.symmetric(S).toarray()


@examples(40)
@given(trees(), st.integers(0, 10**6))
def test_value_and_subgradient_are_those_of_the_definition(tree, seed):
    rng = np.random.default_rng(seed)
    penalty = OrthogonalPenalty.of_tree(tree)
    K, W = dense_matrix(tree, penalty.alpha), rng.normal(size=(tree.n_nodes - 1, 4))
    signs = np.sign(W @ W.T)
    np.fill_diagonal(signs, 1.0)
    for weights in (W, sp.csr_array(W), W.astype(np.float32).astype(np.float64)):
        dense = weights.toarray() if sp.issparse(weights) else weights
        assert penalty.value(weights) == pytest.approx(dense_value(K, dense), rel=1e-12)
        gradient = penalty.value_and_subgradient(weights)[1]
        gradient = gradient.toarray() if sp.issparse(gradient) else gradient
        np.testing.assert_allclose(gradient, (K * signs) @ dense, atol=1e-12)


def test_products_in_small_parts_are_the_same(monkeypatch):
    W = np.random.default_rng(0).normal(size=(7, 5))
    paths = OrthogonalPenalty.of_tree(THREE_LEVELS).paths
    expected = (W @ W.T)[paths.descendant, paths.path_nodes]
    monkeypatch.setattr(orthogonal, "PRODUCT_BYTES", 200)
    np.testing.assert_allclose(pair_products(paths, W), expected, atol=1e-13)
    np.testing.assert_allclose(pair_products(paths, sp.csr_array(W)), expected, atol=1e-13)


@examples(60)
@given(trees(), st.integers(0, 10**6))
def test_theorem_4_the_subgradient_supports_a_strongly_convex_function(tree, seed):
    rng = np.random.default_rng(seed)
    penalty = OrthogonalPenalty.of_tree(tree)
    W, V = rng.normal(size=(2, tree.n_nodes - 1, 3))
    W[rng.random(W.shape) < 0.5] = 0.0  # many products are exactly 0, where Ω has kinks
    step = V - W
    value, gradient = penalty.value_and_subgradient(W)
    bound = value + (gradient * step).sum() + 0.5 * penalty.modulus * (step * step).sum()
    assert penalty.value(V) >= bound - 1e-10 * (1 + abs(bound))


def test_theorem_1_omega_is_not_convex_where_the_comparison_matrix_is_not_definite():
    m = THREE_LEVELS.n_nodes - 1
    paths = OrthogonalPenalty.of_tree(THREE_LEVELS).paths
    K = dense_matrix(THREE_LEVELS, 1.0)
    comparison = 2.0 * np.diag(np.diag(K)) - K
    eigenvalues, vectors = np.linalg.eigh(comparison)
    assert eigenvalues[0] < 0
    W = np.eye(m) - 1.0 / m  # all products of two rows are −1/m
    direction = 0.01 * np.outer(vectors[:, 0], np.ones(m)) / m
    penalty = OrthogonalPenalty(*orthogonal.matrix_on_paths(paths, K))  # past the check of the constructors
    middle, ends = penalty.value(W), [penalty.value(W + sign * direction) for sign in (-1, 1)]
    assert 0.5 * sum(ends) < middle - 1e-8
    with pytest.raises(NotPositiveDefiniteError):
        OrthogonalPenalty.of_matrix(THREE_LEVELS, K)


@examples(60)
@given(trees(), st.integers(0, 10**6), st.booleans())
def test_fact_a_every_choice_of_signs_is_as_definite_as_the_comparison_matrix(tree, seed, extreme):
    rng = np.random.default_rng(seed)
    penalty = OrthogonalPenalty.of_tree(tree)
    S = rng.uniform(-1, 1, penalty.paths.n_entries)
    S = np.where(penalty.paths.is_diagonal, 1.0, np.sign(S) if extreme else S)
    M = penalty.paths.symmetric(penalty.K * S).toarray()
    assert np.linalg.eigvalsh(M)[0] >= penalty.modulus - 1e-10
    assert penalty.factor(S).is_positive_definite
    v = rng.normal(size=len(M))
    comparison = 2.0 * np.diag(np.diag(M)) - dense_matrix(tree, penalty.alpha)
    assert v @ M @ v >= np.abs(v) @ comparison @ np.abs(v) - 1e-10


@examples(30)
@given(trees(), st.integers(0, 10**6))
@pytest.mark.slow
def test_the_bounds_of_the_conjugate_are_bounds_and_meet(tree, seed):
    rng = np.random.default_rng(seed)
    penalty = OrthogonalPenalty.of_tree(tree)
    B = rng.normal(size=(tree.n_nodes - 1, 4))
    bounds = conjugate(penalty, B, tol=1e-8)
    assert bounds.lower <= bounds.upper * (1 + 1e-12)
    assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper
    assert np.abs(bounds.S).max() <= 1.0
    for scale in (0.1, 1.0, 3.0):  # Fenchel: ⟨B, W⟩ − Ω(W) never exceeds the conjugate
        W = scale * rng.normal(size=B.shape)
        assert (B * W).sum() - penalty.value(W) <= bounds.upper
    W = penalty.factor(bounds.S).solve(B)
    assert (B * W).sum() - penalty.value(W) == pytest.approx(bounds.upper, rel=1e-6)


@pytest.mark.parametrize("parent", [[-1, 0, 1, 1], [-1, 0, 1, 2], [-1, 0, 0, 1, 1, 2, 3, 3], [-1, 0, 0, 1, 2, 3]])
def test_the_conjugate_agrees_with_an_independent_solver(parent):
    tree = Tree(np.array(parent))
    m, penalty = tree.n_nodes - 1, OrthogonalPenalty.of_tree(tree)
    B = np.random.default_rng(len(parent)).normal(size=(m, 3))
    K = dense_matrix(tree, penalty.alpha)
    S = cp.Variable((m, m), symmetric=True)
    problem = cp.Problem(cp.Minimize(0.5 * cp.matrix_frac(B, cp.multiply(K, S))), [cp.diag(S) == 1, S <= 1, S >= -1])
    problem.solve(solver=cp.CLARABEL)
    bounds = conjugate(penalty, B)
    assert bounds.upper == pytest.approx(problem.value, rel=1e-6)
    assert bounds.lower == pytest.approx(problem.value, rel=1e-6)


def test_quasi_newton_and_coordinate_steps_find_the_same(monkeypatch):
    penalty = OrthogonalPenalty.of_tree(THREE_LEVELS)
    B = sp.random_array((7, 12), density=0.5, random_state=np.random.default_rng(5), format="csr")
    with monkeypatch.context() as context:
        context.setattr(orthogonal_conjugate, "COORDINATE_ROWS", 0)
        by_quasi_newton = conjugate(penalty, B)
    with monkeypatch.context() as context:
        context.setattr(orthogonal_conjugate, "MAX_QUASI_NEWTON", 0)
        by_coordinates = conjugate(penalty, B)
    assert by_coordinates.upper - by_coordinates.lower <= 1e-9 * by_coordinates.upper
    assert by_quasi_newton.upper == pytest.approx(by_coordinates.upper, rel=1e-9)
    assert by_quasi_newton.lower == pytest.approx(by_coordinates.upper, rel=1e-4)


def test_conjugate_at_zero_is_zero():
    bounds = conjugate(OrthogonalPenalty.of_tree(THREE_LEVELS), np.zeros((7, 2)))
    assert (bounds.lower, bounds.upper) == (0.0, 0.0)


def test_subtrees_carry_their_part_of_the_penalty():
    penalty = OrthogonalPenalty.of_tree(THREE_LEVELS)
    W = np.random.default_rng(1).normal(size=(7, 3))
    parts = list(subtree_penalties(penalty))
    assert [rows.tolist() for rows, _, _ in parts] == [[0, 2, 3, 5, 6], [1, 4]]
    assert sum(part.value(W[rows]) for rows, _, part in parts) == pytest.approx(penalty.value(W), rel=1e-12)


@examples(30)
@given(trees(), st.integers(0, 10**6))
def test_the_excess_of_signs_is_the_part_of_the_gap_that_they_cause(tree, seed):
    """Ω(W) + Ω-part of the dual − ⟨B, W⟩ with W = M(S)⁻¹B: the first sum of the split of the gap."""
    rng = np.random.default_rng(seed)
    penalty = OrthogonalPenalty.of_tree(tree)
    S = np.where(penalty.paths.is_diagonal, 1.0, rng.uniform(-1, 1, penalty.paths.n_entries))
    B = rng.normal(size=(tree.n_nodes - 1, 3))
    M = penalty.paths.symmetric(penalty.K * S).toarray()
    W = np.linalg.solve(M, B)
    gap = dense_value(dense_matrix(tree, penalty.alpha), W) + 0.5 * np.trace(B.T @ W) - (B * W).sum()
    assert penalty.excess(S, pair_products(penalty.paths, W)) == pytest.approx(gap, abs=1e-10)


def test_a_given_matrix_is_taken_as_it_is():
    K = dense_matrix(THREE_LEVELS, 0.3)
    K[0, 2] = K[2, 0] = 0.0
    for form in (K, sp.csr_array(K), sp.coo_matrix(K)):
        penalty = OrthogonalPenalty.of_matrix(THREE_LEVELS, form)
        np.testing.assert_array_equal(penalty.paths.symmetric(penalty.K).toarray(), K)
        assert penalty.alpha is None


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((0, 2), -0.1, r"K\[0, 2\] = -0.1 is negative"),
        ((0, 2), np.nan, r"K\[0, 2\] = nan is not finite"),
        ((0, 1), 0.1, "differs from its transposed entry"),
        ((4, 5), 0.1, "differs from its transposed entry"),
        ((2, 0), 0.2, "differs from its transposed entry"),
        ((3, 3), 0.0, r"K\[3, 3\] = 0 is not positive"),
    ],
)
def test_a_matrix_that_cannot_be_a_penalty_is_refused(place, value, message):
    K = dense_matrix(THREE_LEVELS, 0.3)
    K[place] = value
    with pytest.raises(DataFormatError, match=message):
        OrthogonalPenalty.of_matrix(THREE_LEVELS, K)


def test_a_matrix_of_another_size_is_refused():
    with pytest.raises(DataFormatError, match=r"K has shape \(8, 8\), but the tree has 7 nodes below its root"):
        OrthogonalPenalty.of_matrix(THREE_LEVELS, np.eye(8))


def test_repairs_of_the_constructors_warn_once_and_are_definite():
    for repair, message in [("alpha", "used instead"), ("diagonal", "added to the diagonal")]:
        with pytest.warns(UserWarning, match=message) as caught:
            penalty = OrthogonalPenalty.of_tree(THREE_LEVELS, 1.0, repair=repair)
        assert len(caught) == 1
        assert penalty.modulus > 0
