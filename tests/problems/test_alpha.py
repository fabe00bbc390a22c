"""How large α may be: closed forms, certified bounds, and what happens to an α or a K that is too large."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from tree_problems import parent_arrays
from widemargin.exceptions import NotPositiveDefiniteError, WidemarginError
from widemargin.problems.tree_factor import AncestorPaths, factorize
from widemargin.problems.tree_penalties import (
    choose_alpha,
    comparison_matrix,
    largest_alpha,
    orthogonal_matrix,
    repaired_matrix,
    smallest_eigenvalue,
)


def regular_tree(branching):
    parent, level = [-1], [0]
    for children in branching:
        level_below = []
        for node in level:
            level_below += range(len(parent), len(parent) + children)
            parent += [node] * children
        level = level_below
    return np.array(parent)


def dense_parts(parent):
    """Diagonal d and adjacency N of eq. (6) by definition."""
    m = len(parent) - 1
    d, N = np.zeros(m), np.zeros((m, m))
    for node in range(1, m + 1):
        above = node
        while above > 0:
            d[above - 1] += 1
            if above != node:
                N[above - 1, node - 1] = N[node - 1, above - 1] = 1.0
            above = parent[above]
    return d, N


def dense_largest_alpha(parent):
    d, N = dense_parts(parent)
    largest = np.linalg.eigvalsh(N / np.sqrt(np.outer(d, d)))[-1]
    return 1.0 / largest if largest > 1e-12 else np.inf


@pytest.mark.parametrize(
    ("branching", "expected"),
    [([3, 3, 2], 0.773), ([10, 10, 10], 0.719), ([3, 3, 3, 3], 0.605), ([2, 2, 2, 2, 2, 2], 0.480)],
)
def test_known_values_of_regular_trees(branching, expected):
    assert largest_alpha(AncestorPaths.of(regular_tree(branching))).lower == pytest.approx(expected, abs=5e-4)


@examples(30)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_two_levels_have_a_closed_form(children):
    parent = np.array([-1] + [0] * len(children) + [top for top, n in enumerate(children, start=1) for _ in range(n)])
    bounds = largest_alpha(AncestorPaths.of(parent))
    expected = min((np.sqrt(1 + 1 / n) for n in children if n), default=np.inf)
    assert bounds.lower <= expected * (1 + 1e-12)
    assert bounds.upper >= expected * (1 - 1e-12)
    assert bounds.lower == pytest.approx(expected, rel=1e-9)
    assert choose_alpha(AncestorPaths.of(parent), "auto") == pytest.approx(min(1.0, 0.9 * expected), rel=1e-9)


@examples(60)
@given(parent_arrays(14))
def test_the_bracket_holds_the_eigenvalue_and_is_narrow(parent):
    expected, bounds = dense_largest_alpha(parent), largest_alpha(AncestorPaths.of(parent))
    if np.isinf(expected):
        assert bounds == (np.inf, np.inf)
        return
    assert bounds.lower <= expected * (1 + 1e-12)
    assert bounds.upper >= expected * (1 - 1e-12)
    assert bounds.upper - bounds.lower <= 1e-9 * expected


@examples(60)
@given(parent_arrays(14))
def test_alpha_of_one_is_never_allowed_on_three_levels(parent):
    paths = AncestorPaths.of(parent)
    comparison = comparison_matrix(paths, orthogonal_matrix(paths, 1.0))
    if paths.height >= 3:
        assert largest_alpha(paths).upper < 1.0
        assert not factorize(paths, comparison).is_positive_definite
    else:
        assert factorize(paths, comparison).is_positive_definite


@examples(60)
@given(parent_arrays(14), st.floats(0.01, 1.5))
def test_the_test_by_elimination_agrees_with_eigenvalues(parent, alpha):
    paths = AncestorPaths.of(parent)
    d, N = dense_parts(parent)
    smallest = np.linalg.eigvalsh(np.diag(d) - alpha * N)[0]
    comparison = comparison_matrix(paths, orthogonal_matrix(paths, alpha))
    bounds = smallest_eigenvalue(paths, comparison)
    assert bounds.lower <= smallest + 1e-12 * d.max()
    assert bounds.upper >= smallest - 1e-12 * d.max()
    assert bounds.upper - bounds.lower <= 1e-10 * d.max()
    if abs(smallest) > 1e-10:
        assert factorize(paths, comparison).is_positive_definite == (smallest > 0)


def test_the_universal_value_is_always_below_alpha_star():
    for branching in ([2, 2], [3, 2, 2], [1, 1, 1, 1], [2, 3, 1, 2]):
        paths = AncestorPaths.of(regular_tree(branching))
        assert largest_alpha(paths).lower > 1.0 / (paths.height - 1)


def test_smallest_eigenvalue_of_a_diagonal_matrix_is_its_smallest_entry():
    paths = AncestorPaths.of(np.array([-1, 0, 1, 1]))
    bounds = smallest_eigenvalue(paths, np.where(paths.is_diagonal, 3.0, 0.0))
    assert bounds.lower == pytest.approx(3.0, rel=1e-14)
    assert bounds.upper == pytest.approx(3.0, rel=1e-14)


def test_an_alpha_that_is_too_large_raises_an_error_that_names_the_largest():
    paths = AncestorPaths.of(regular_tree([3, 3, 2]))
    with pytest.raises(NotPositiveDefiniteError, match=r"alpha=1 is too large.*α\* = 0\.773") as error:
        choose_alpha(paths, 1.0)
    assert isinstance(error.value, WidemarginError)
    assert isinstance(error.value, ValueError)
    assert choose_alpha(paths, 0.77) == 0.77


def test_alpha_can_be_lowered_with_a_warning():
    paths = AncestorPaths.of(regular_tree([3, 3, 2]))
    with pytest.warns(UserWarning, match="is used instead"):
        assert choose_alpha(paths, 1.0, repair="alpha") == pytest.approx(0.9 * 0.7725, abs=1e-4)


def test_the_diagonal_can_be_raised_with_a_warning():
    parent = regular_tree([3, 3, 2])
    paths, (d, N) = AncestorPaths.of(parent), dense_parts(parent)
    with pytest.warns(UserWarning, match="added to the diagonal"):
        K = repaired_matrix(paths, orthogonal_matrix(paths, 1.0), repair="diagonal")
    raised = K[paths.is_diagonal] - d
    np.testing.assert_allclose(raised, raised[0])
    assert np.linalg.eigvalsh(np.diag(d) + raised[0] * np.eye(len(d)) - N)[0] == pytest.approx(0.1, rel=1e-6)


def test_a_given_matrix_is_refused_or_scaled_alike():
    paths = AncestorPaths.of(np.array([-1, 0, 1]))
    K = np.array([1.0, 1.0, 2.0])  # [[1, 2], [2, 1]]: α* = ½
    with pytest.raises(NotPositiveDefiniteError, match=r"α\* = 0\.5"):
        repaired_matrix(paths, K)
    with pytest.warns(UserWarning, match="scaled by 0.45"):
        np.testing.assert_allclose(repaired_matrix(paths, K, repair="alpha"), [1.0, 1.0, 0.9], rtol=1e-9)
