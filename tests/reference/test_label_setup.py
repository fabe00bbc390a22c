"""The setup of a label: core and specification, and both against differences of the objective."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.label_setup import PreparedLabel, prepare_label

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")


def _draw(seed, n, share):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, 6), density=0.4, random_state=rng, dtype=np.float32, format="csr")
    weight = rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.8)
    return X, np.flatnonzero(rng.random(n) < share), weight


def _by_core(X, positives, weight, *rest):
    X = X.astype(np.float32)
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32), X.shape[1])
    return PreparedLabel(*_hooks.prepare_label(*parts, positives.astype(np.int64), weight, *rest))


@examples(60)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    factors=st.tuples(st.sampled_from([0.5, 1.0, 7.0]), st.sampled_from([0.25, 1.0])),
    bias=st.sampled_from([0.0, 1.0]),
)
def test_core_prepares_labels_as_specified(seed, n, share, factors, bias):
    X, positives, weight = _draw(seed, n, share)
    expected = prepare_label(X.astype(np.float64), positives, weight, *factors, bias, 0.01)
    found = _by_core(X, positives, weight, *factors, bias, 0.01)
    assert found.rows.tolist() == expected.rows.tolist()
    assert (found.factor, found.other_factor, found.swapped) == (
        expected.factor,
        expected.other_factor,
        expected.swapped,
    )
    assert found.positive == pytest.approx(expected.positive, rel=1e-12)
    assert found.negative == pytest.approx(expected.negative, rel=1e-12, abs=1e-12)
    # the core subtracts squares of sums: half the digits are lost where the gradient nearly vanishes
    assert found.rule == pytest.approx(expected.rule, rel=1e-6, abs=1e-7)


def test_the_rule_scales_the_gradient_of_the_objective_at_zero():
    X, positives, weight = _draw(3, 30, 0.3)
    y = np.where(np.isin(np.arange(30), positives), 1.0, -1.0)
    costs = weight * np.where(y > 0, 3.0, 0.5)

    def objective(v):
        return 0.5 * v[:-1] @ v[:-1] + (costs * np.maximum(0.0, 1.0 - y * (X @ v[:-1] + v[-1])) ** 2).sum()

    step = 1e-6 * np.eye(7)
    gradient = np.array([(objective(e) - objective(-e)) / 2e-6 for e in step])
    P, N = costs[y > 0].sum(), costs[y < 0].sum()
    expected = 0.1 * max(1.0, min(P, N)) / (P + N) * np.linalg.norm(gradient)
    assert _by_core(X, positives, weight, 3.0, 0.5, 1.0, 0.1).rule == pytest.approx(expected, rel=1e-6)
