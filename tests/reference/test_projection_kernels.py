"""The compiled projections, their NumPy twins and the paper's own search give the same points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hypothesis_examples import examples
from reference.projections import fix_capped_simplex, sweep_capped_simplex, sweep_top_k_simplex
from reference.top_k_search import search_top_k_cone, search_top_k_simplex
from widemargin import _core

VALUES = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3, width=32))


@st.composite
def problems(draw):
    a = draw(arrays(np.float64, st.integers(1, 40), elements=VALUES))
    k = draw(st.integers(1, len(a)))
    r = draw(st.one_of(st.sampled_from([0.0, 1.0, 3.0]), st.floats(1e-6, 1e4)))
    rho = draw(st.one_of(st.sampled_from([0.0, 0.37, 1.0, 5.0]), st.floats(0.0, 100.0)))
    return a, k, r, rho


def compiled_capped_simplex(a, k, r, rho, exactly, by_fixing):
    out = np.empty((1, len(a)))
    _core.project_capped_simplex(a[None], k, np.array([r]), np.array([rho]), exactly, by_fixing, out)
    return out[0]


def compiled_top_k_simplex(a, k, r, rho):
    out = np.empty((1, len(a)))
    _core.project_top_k_simplex(a[None], k, np.array([r]), np.array([rho]), out)
    return out[0]


def assert_same(x, expected, a):
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(a).max()) * len(a))


@examples(300)
@given(problem=problems(), exactly=st.booleans())
@pytest.mark.slow
def test_capped_simplex_twins_agree(problem, exactly):
    a, k, r, rho = problem
    expected = sweep_capped_simplex(a, k, r, rho, exactly).apply(a)
    assert_same(fix_capped_simplex(a, k, r, rho, exactly).apply(a), expected, a)
    for by_fixing in (False, True):
        assert_same(compiled_capped_simplex(a, k, r, rho, exactly, by_fixing), expected, a)


@examples(300)
@given(problem=problems(), unbounded=st.booleans())
@pytest.mark.slow
def test_top_k_simplex_twin_and_the_search_of_the_paper_agree(problem, unbounded):
    a, k, r, rho = problem
    r = np.inf if unbounded else r
    x = compiled_top_k_simplex(a, k, r, rho)
    assert_same(x, sweep_top_k_simplex(a, k, r, rho).apply(a), a)
    # The search tests its splits to rounding, so it may stop at a neighbour of the right one.
    found = search_top_k_cone(a, k, rho) if unbounded else search_top_k_simplex(a, k, r, rho)
    np.testing.assert_allclose(x, found, rtol=0, atol=1e-10 * max(1.0, np.abs(a).max()))


@pytest.mark.parametrize("d", [500, 2000, 20_000])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_long_rows_agree_with_their_twins(d, k):
    rng = np.random.default_rng(d + k)
    for scale, r, rho in ((1.0, 1.0, 0.0), (10.0, 1.0, 1.0), (0.1, 50.0, 1.0), (1.0, 3.0, 0.37)):
        a = scale * rng.standard_normal(d)
        expected = fix_capped_simplex(a, k, r, rho).apply(a)
        for by_fixing in (False, True):
            assert_same(compiled_capped_simplex(a, k, r, rho, False, by_fixing), expected, a)
        if d <= 2000:
            for bound in (r, np.inf):
                x = compiled_top_k_simplex(a, k, bound, rho)
                assert_same(x, sweep_top_k_simplex(a, k, bound, rho).apply(a), a)


def test_arrays_of_another_type_are_refused():
    ones = np.ones(1)
    with pytest.raises(TypeError):
        _core.project_top_k_simplex(np.ones((1, 3), dtype=np.float32), 1, ones, ones, np.empty((1, 3)))
    with pytest.raises(TypeError):
        _core.project_capped_simplex(np.ones((1, 3)), 1, ones, ones, False, True, np.empty(3))
