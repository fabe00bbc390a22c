"""The tree algebra against dense linear algebra: factors, solves, no fill, inertia, and the fixed matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from tree_problems import lineage, parent_arrays
from widemargin.problems.tree_factor import (
    AncestorPaths,
    factorize,
    identity_coupling,
    similarity_coupling,
    tree_loss_coupling,
)

CHAIN = [-1, 0, 1, 2, 3, 4]
STAR = [-1, 0, 0, 0, 0]
STAR_BELOW_ONE_NODE = [-1, 0, 1, 1, 1]
ONLY_CHILDREN = [-1, 0, 0, 1, 2, 3, 4]
ONE_NODE = [-1, 0]
NAMED = [CHAIN, STAR, STAR_BELOW_ONE_NODE, ONLY_CHILDREN, ONE_NODE]
PARENTS = st.sampled_from(NAMED).map(np.array) | parent_arrays(14)


def dense(parent, values):
    """The symmetric matrix of values on the layout, filled in by climbing."""
    m = len(parent) - 1
    M, place = np.zeros((m, m)), 0
    for node in range(1, m + 1):
        for row in lineage(parent, node):
            M[row, node - 1] = M[node - 1, row] = values[place]
            place += 1
    return M


def random_values(parent, seed, dominance):
    """Random values on the layout; positive definite if dominance is 1, any inertia if it is small."""
    rng = np.random.default_rng(seed)
    paths = AncestorPaths.of(parent)
    values = rng.normal(size=paths.n_entries)
    off_diagonal = dense(parent, np.where(paths.is_diagonal, 0.0, values))
    values[paths.is_diagonal] = dominance * np.abs(off_diagonal).sum(axis=1) + 0.1 + rng.random(paths.m)
    return paths, values


@examples(40)
@given(PARENTS)
def test_the_layout_lists_the_paths_of_all_rows(parent):
    paths = AncestorPaths.of(parent)
    climbs = [lineage(parent, node) for node in range(1, len(parent))]
    assert paths.path_nodes.tolist() == [row for climb in climbs for row in climb]
    assert paths.depth.tolist() == [len(climb) for climb in climbs]
    assert paths.top.tolist() == [climb[-1] for climb in climbs]
    pairs = [(above, climb[0]) for climb in climbs for above in climb]
    above, below = np.array(pairs).T
    np.testing.assert_array_equal(paths.entries(above, below), np.arange(paths.n_entries))
    np.testing.assert_array_equal(paths.descendant, below)


@examples(60)
@given(PARENTS, st.integers(0, 10**6))
def test_factors_and_solves_agree_with_dense_algebra(parent, seed):
    paths, values = random_values(parent, seed, dominance=1.0)
    M, factor = dense(parent, values), factorize(paths, values)
    np.testing.assert_array_equal(paths.symmetric(values).toarray(), M)
    L, R = paths.upper(factor.L).toarray(), paths.upper(factor.R).toarray()
    np.testing.assert_allclose(L @ np.diag(factor.pivots) @ L.T, M, atol=1e-12)
    np.testing.assert_allclose(R, np.linalg.inv(L), atol=1e-12)
    assert factor.is_positive_definite
    B = np.random.default_rng(seed).normal(size=(paths.m, 3))
    inverse = np.linalg.inv(M)
    Z = factor.forward(B)
    np.testing.assert_allclose(Z, np.linalg.solve(L, B), atol=1e-12)
    np.testing.assert_allclose(factor.backward(Z), inverse @ B, atol=1e-11)
    np.testing.assert_allclose(factor.solve(B[:, 0]), inverse @ B[:, 0], atol=1e-11)
    assert (Z * Z).sum(axis=1) @ (1.0 / factor.pivots) == pytest.approx(np.trace(B.T @ inverse @ B), rel=1e-10)
    np.testing.assert_allclose(R.T @ np.diag(1.0 / factor.pivots) @ R, inverse, atol=1e-11)


@examples(60)
@given(PARENTS, st.integers(0, 10**6))
def test_elimination_leaves_first_fills_nothing_in(parent, seed):
    paths, values = random_values(parent, seed, dominance=1.0)
    M = dense(parent, values)
    related = dense(parent, np.ones(paths.n_entries)) > 0
    rest = M.copy()
    for row in range(paths.m - 1, -1, -1):  # plain dense elimination, in place
        column = rest[:row, row] / rest[row, row]
        rest[:row, :row] -= np.outer(column, rest[row, :row])
        assert not rest[:row, :row][~related[:row, :row]].any()
    inverse_of_unit = np.linalg.inv(paths.upper(factorize(paths, values).L).toarray())
    assert not inverse_of_unit[~np.triu(related)].any()


@examples(80)
@given(PARENTS, st.integers(0, 10**6), st.floats(0.0, 0.8))
def test_pivots_have_the_signs_of_the_eigenvalues(parent, seed, dominance):
    paths, values = random_values(parent, seed, dominance)
    eigenvalues = np.linalg.eigvalsh(dense(parent, values))
    if np.abs(eigenvalues).min() < 1e-9:  # the sign of such an eigenvalue depends on rounding
        return
    factor = factorize(paths, values)
    assert (factor.pivots > 0).sum() == (eigenvalues > 0).sum()
    assert factor.is_positive_definite == bool(eigenvalues[0] > 0)


def test_a_pivot_of_zero_is_not_positive_definite_and_makes_no_nan():
    factor = factorize(AncestorPaths.of([-1, 0, 1]), np.array([1.0, 0.0, 1.0]))  # [[1, 1], [1, 0]]
    assert not factor.is_positive_definite
    assert np.isfinite(factor.L).all()
    assert np.isfinite(factor.R).all()


@examples(40)
@given(PARENTS)
def test_the_fixed_matrices_are_those_of_their_penalties(parent):
    paths = AncestorPaths.of(parent)
    Par = np.zeros((paths.m, paths.m))
    for node in range(1, len(parent)):
        if parent[node] > 0:
            Par[node - 1, parent[node] - 1] = 1.0
    steps = np.eye(paths.m) - Par
    tree_loss = steps.T @ steps
    np.testing.assert_array_equal(dense(parent, tree_loss_coupling(paths)[0]), tree_loss)
    inner = steps[Par.any(axis=1)]  # differences with a parent, top nodes left out
    np.testing.assert_array_equal(dense(parent, similarity_coupling(paths)[0]), np.eye(paths.m) + inner.T @ inner)


@examples(40)
@given(PARENTS)
def test_the_closed_factors_are_those_of_elimination(parent):
    paths = AncestorPaths.of(parent)
    np.testing.assert_array_equal(identity_coupling(paths)[0], np.where(paths.is_diagonal, 1.0, 0.0))
    for matrix, closed in (similarity_coupling(paths), tree_loss_coupling(paths), identity_coupling(paths)):
        by_elimination = factorize(paths, matrix)
        for name in ("L", "R", "pivots"):
            np.testing.assert_allclose(getattr(closed, name), getattr(by_elimination, name), atol=1e-13)
        np.testing.assert_allclose(closed.solve(np.eye(paths.m)), np.linalg.inv(dense(parent, matrix)), atol=1e-12)


@examples(20)
@given(PARENTS)
def test_the_inverse_of_tree_loss_counts_common_ancestors(parent):
    _, factor = tree_loss_coupling(AncestorPaths.of(parent))
    sets = [set(lineage(parent, node)) for node in range(1, len(parent))]
    expected = [[len(a & b) for b in sets] for a in sets]
    np.testing.assert_array_equal(factor.solve(np.eye(len(sets))), expected)


def test_sparse_right_hand_sides_stay_sparse():
    parent = np.array([-1, 0, 0, 1, 1, 2])
    paths, values = random_values(parent, seed=3, dominance=1.0)
    factor = factorize(paths, values)
    B = sp.random_array((paths.m, 40), density=0.1, random_state=np.random.default_rng(0), format="csr")
    W, Z = factor.solve(B), factor.forward(B)
    assert sp.issparse(W)
    assert sp.issparse(Z)
    np.testing.assert_allclose(W.toarray(), np.linalg.solve(dense(parent, values), B.toarray()), atol=1e-12)


def test_a_tree_with_too_many_pairs_is_refused():
    chain = np.arange(-1, 70_000)
    with pytest.raises(ValueError, match="node-ancestor pairs"):
        AncestorPaths.of(chain)
