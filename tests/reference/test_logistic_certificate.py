"""The certificate of the logistic loss: its twin against brute force, the compiled one against the twin."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import entr

from hypothesis_examples import examples
from reference.binary_objective import BinaryProblem
from reference.logistic_certificate import logistic_bounds
from sparse_rows import arrays, random_rows
from widemargin import _core
from widemargin.problems.losses import Logistic

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
ISAS = _core.available_instruction_sets()
INTERCEPTS = {"free": (1.0, 0.0), "regularised": (1.0, 1.0), "none": (0.0, 1.0)}
COLUMNS = ("primal", "dual", "primal_before_pruning", "pruned_share", "gradient_norm", "next_bias", "swapped")


def dual_value(problem, alpha):
    """D of a feasible α, term by term."""
    share = alpha / problem.c
    u = problem.X.T @ (problem.y * alpha)
    u_bias = problem.bias_value * problem.bias_penalty * (problem.y @ alpha)
    return float(problem.c @ (entr(share) + entr(1 - share)) - 0.5 * u @ u - 0.5 * u_bias**2)


@examples(40)
@given(
    seed=st.integers(0, 2**32 - 1),
    intercept=st.sampled_from(sorted(INTERCEPTS)),
    size=st.sampled_from([0.1, 3.0]),
    offset=st.sampled_from([-4.0, 0.0, 1.0]),
)
def test_the_bounds_bracket_the_minimum_that_scipy_finds(seed, intercept, size, offset):
    rng = np.random.default_rng(seed)
    X = size * random_rows(rng, 40, 6, 0.4).astype(np.float64)
    y, c = np.where(rng.random(40) < 0.3, 1.0, -1.0), rng.uniform(0.2, 3.0, 40)
    y[:2] = 1.0, -1.0
    problem = BinaryProblem(X, y, c, Logistic(), *INTERCEPTS[intercept])
    v = np.append(rng.normal(size=6), offset if intercept != "none" else 0.0)

    def value(v):
        return 0.5 * v @ problem.penalised(v) + c @ np.logaddexp(0.0, -y * problem.scores(v))

    best = minimize(value, np.zeros(7), method="BFGS", options={"gtol": 1e-9})
    bounds = logistic_bounds(problem, v)
    assert bounds.primal == pytest.approx(value(v), rel=1e-12)
    assert bounds.dual <= best.fun * (1 + 1e-12)
    near = logistic_bounds(problem, best.x)
    assert near.dual == pytest.approx(best.fun, rel=1e-6)
    if intercept == "free":
        # At the point that the bound describes, D is not below it, and what an intercept off the optimum costs is of
        # second order.
        alpha = c / (1 + np.exp(y * problem.scores(v)))
        sides = np.array([alpha[y < 0].sum(), alpha[y > 0].sum()])
        alpha *= np.where(y > 0, sides.min() / sides[1], sides.min() / sides[0])
        assert bounds.dual <= max(0.0, dual_value(problem, alpha)) + 1e-9
        losses = [best.fun - logistic_bounds(problem, np.append(best.x[:6], best.x[6] + t)).dual for t in (0.02, 0.01)]
        assert losses[1] <= 0.3 * losses[0] + 1e-7 * best.fun


def draw_labels(rng, n_rows, n_features, n_labels, size, uniform):
    """Rows with many kinds of labels: rare, frequent, and (swapped) more than half of the rows."""
    X = random_rows(rng, n_rows, n_features, 0.25)
    X.data *= np.float32(size)
    weight = np.full(n_rows, 1.5) if uniform else rng.uniform(0.1, 3.0, n_rows)
    Y = rng.random((n_rows, n_labels)) < rng.choice([0.02, 0.3, 0.6, 0.98], n_labels)
    Y[0], Y[1] = True, False
    factors = rng.uniform(0.3, 3.0, (2, n_labels))
    return X, weight, Y, factors


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("intercept", sorted(INTERCEPTS))
@examples(10)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(2, 1200),
    n_labels=st.integers(1, 16),
    size=st.sampled_from([0.01, 1.0, 30.0]),
    uniform=st.booleans(),
)
def test_compiled_certificates_equal_their_twin(isa, intercept, seed, n_rows, n_labels, size, uniform):
    rng = np.random.default_rng(seed)
    X, weight, Y, factors = draw_labels(rng, n_rows, 20, n_labels, size, uniform)
    used = np.diff(sp.csc_array(X).indptr) > 0
    coef = (rng.normal(size=(n_labels, 20)) * used).astype(np.float32)
    b = rng.normal(size=n_labels).astype(np.float32).astype(np.float64) * (intercept != "none")
    out, positives = np.zeros((n_labels, 7)), sp.csc_array(Y)
    rows = positives.indices.astype(np.int64), positives.indptr.astype(np.int64)
    prune = 0.4
    _hooks.certify_logistic(*arrays(X), *rows, weight, factors, coef, b, *INTERCEPTS[intercept], prune, out, isa)
    for j in range(n_labels):
        c = weight * np.where(Y[:, j], factors[0, j], factors[1, j])
        problem = BinaryProblem(
            X.astype(np.float64), np.where(Y[:, j], 1.0, -1.0), c, Logistic(), *INTERCEPTS[intercept]
        )
        v = np.append(coef[j].astype(np.float64), b[j])
        kept = np.where(np.append(np.abs(coef[j]) < prune, [False]), 0.0, v)
        expected = logistic_bounds(problem, v)
        mine = dict(zip(COLUMNS, out[j], strict=True))
        scale = expected.primal
        assert mine["primal_before_pruning"] == pytest.approx(expected.primal, rel=1e-12)
        assert mine["primal"] == pytest.approx(logistic_bounds(problem, kept).primal, rel=1e-12)
        assert mine["dual"] == pytest.approx(expected.dual, rel=1e-10, abs=1e-10 * scale)
        assert mine["gradient_norm"] == pytest.approx(expected.gradient_norm, rel=1e-9, abs=1e-11 * scale)
        if intercept != "none" and abs(expected.next_bias) < 1e6:
            assert mine["next_bias"] == pytest.approx(expected.next_bias, rel=1e-6, abs=1e-6)
        norm, kept_norm = v[:-1] @ v[:-1], kept[:-1] @ kept[:-1]
        assert mine["pruned_share"] == pytest.approx(1 - kept_norm / norm if norm > 0 else 0.0, abs=1e-12)
