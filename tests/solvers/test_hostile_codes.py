"""Learned codes for hostile outputs: bounds recomputed in extended precision by other code, and honest statuses."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.problems.kernels import TrainingKernel, make_kernel
from widemargin.solvers.codes.continuous import continuous_code
from widemargin.solvers.codes.spoc import solve_spoc
from widemargin.solvers.result import Status

LONG = np.longdouble
MISMATCH = 1e-8  # relative, of a bound and its recomputation


def draw(seed):
    """Outputs of size 1e-20 to 1e20, rows and columns that repeat or vanish; weights, C and tol of any size."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7))
    n, n_columns = int(rng.integers(k, 30)), int(rng.integers(1, 6))
    y = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    h = rng.normal(size=(k, n_columns))[y] + rng.choice([0.1, 1, 3]) * rng.normal(size=(n, n_columns))
    if rng.random() < 0.3:
        h[:, 0] = rng.choice([0.0, 1.0])
    if rng.random() < 0.3:
        h[rng.integers(n)] = 0.0
    if rng.random() < 0.3:
        h[1] = h[0]
    if rng.random() < 0.2 and n_columns > 1:
        h[:, 1] = h[:, 0]
    scale = 10.0 ** rng.choice([0, 0, 0, -20, 20, -8, 8, 3, -3])
    h *= scale
    if rng.random() < 0.2:
        h[:, 0] *= 10.0 ** rng.integers(-10, 10)
    weights = np.ones(n)
    if rng.random() < 0.3:
        weights = rng.choice([0, 1, 1, 1e6, 1e-6], n)
        weights[0] = 1.0
    C = 10.0 ** rng.uniform(-8, 8)
    tol = 10.0 ** rng.choice([-3, -6, -9, -10, -12])
    norm_bound = 10.0 ** rng.uniform(-3, 3) / scale if rng.random() < 0.25 else None
    return h, y, k, weights, C, tol, norm_bound


def recount(h, y, k, weights, C, norm, norm_bound, learned, kernel):
    """Primal, dual, primal at zero, and by how much the dual point misses its constraints, in extended precision."""
    rows, costs, b = np.arange(len(y)), (C * weights).astype(LONG), 1 - np.eye(k)[y]
    x = learned.dual.astype(LONG)
    tau = -x
    tau[rows, y] = x.sum(axis=1)
    if kernel is None:
        M, H = learned.code.astype(LONG), h.astype(LONG)
        scores, G = H @ M.T, tau.T @ H
        sizes = {"l1": np.abs(M).sum(), "l2": np.sqrt((M * M).sum()), "linf": np.abs(M).max()}
        duals = {"l1": np.abs(G).max(), "l2": np.sqrt((G * G).sum()), "linf": np.abs(G).sum()}
        size, dual_size = sizes[norm], duals[norm]
    else:
        K, coefficients = kernel.columns(slice(None)).astype(LONG), np.zeros((len(y), k), LONG)
        coefficients[learned.support] = learned.dual_coef
        scores = K @ coefficients
        size, dual_size = (np.sqrt(max(LONG(0), (t * (K @ t)).sum())) for t in (coefficients, tau))
    loss = costs @ np.maximum((b + scores - scores[rows, y][:, None]).max(axis=1), 0)
    missed = max(0.0, float((x.sum(axis=1) - costs).max() / costs.max()), float(-x.min() / costs.max()))
    if norm_bound is not None:
        missed = max(missed, float(size / norm_bound) - 1.0)
        return float(loss), float(x.sum() - norm_bound * dual_size), float(costs.sum()), missed
    if norm == "l2":
        return float(loss + size**2 / 2), float(x.sum() - dual_size**2 / 2), float(costs.sum()), missed
    return float(loss + size), float(x.sum()), float(costs.sum()), max(missed, float(dual_size) - 1.0)


def check(seed, norm, kernelised=False):
    h, y, k, weights, C, tol, norm_bound = draw(seed)
    kernel = make_kernel("rbf", 0.5 / max(float((h**2).mean()), 1e-300)) if kernelised else None
    learned = continuous_code(
        h, y, norm=norm, C=C, norm_bound=norm_bound, sample_weight=weights, n_classes=k, tol=tol, kernel=kernel,
        max_iter=500,
    )  # fmt: skip
    matrix = None if kernel is None else TrainingKernel(h, kernel)
    primal, dual, at_zero, missed = recount(h, y, k, weights, C, norm, norm_bound, learned, matrix)
    certificate, size = learned.certificate, max(abs(primal), abs(dual))
    rounding = 0.0  # of the recomputation itself
    if kernel is None:
        rounding = 10 * np.finfo(LONG).eps * float(C * weights @ (np.abs(h) @ np.abs(learned.code).T).max(axis=1))
    assert abs(certificate.primal - primal) <= MISMATCH * size + rounding
    assert abs(certificate.dual - dual) <= MISMATCH * size
    assert missed <= 1e-9
    assert primal <= at_zero * (1 + 1e-12)
    if learned.status is Status.CONVERGED:
        assert certificate.relative_gap <= tol
        assert primal - dual <= 1.001 * tol * size + 1e-15 * size
    return learned.status


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_hostile_codes_are_what_they_say(norm, first):
    for seed in range(first, first + 20):
        check(seed, norm)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 20])
def test_hostile_kernel_codes_are_what_they_say(first):
    for seed in range(first, first + 20):
        check(seed, "l2", kernelised=True)


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_a_program_with_fewer_digits_than_asked_for_is_not_attained(norm):
    """HiGHS solves programs to some 1e-10; the same problem to 1e-6 is converged."""
    rng = np.random.default_rng(5)
    y = np.arange(40) % 4
    h = rng.normal(size=(4, 3))[y] + rng.normal(size=(40, 3))
    strict = continuous_code(h, y, norm=norm, C=100.0, tol=1e-15)
    assert strict.certificate.relative_gap > 1e-15
    assert strict.status is Status.NOT_ATTAINED
    assert continuous_code(h, y, norm=norm, C=100.0, tol=1e-6).status is Status.CONVERGED


def test_a_code_that_rounding_keeps_from_its_tolerance_is_not_attained_and_no_worse_than_none():
    """Rows that cannot be separated, C ‖h‖² = 1e32: the dual variables would need 32 digits."""
    rng = np.random.default_rng(0)
    y = np.arange(20) % 4
    h = 1e20 * rng.normal(size=(20, 2))
    learned = continuous_code(h, y, norm="l2", C=1e-8, tol=1e-9, max_iter=1000)
    assert learned.status is Status.NOT_ATTAINED
    assert learned.certificate.primal <= 20e-8 * (1 + 1e-12)


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_a_program_that_highs_gives_up_still_has_a_code_and_bounds(norm):
    """Costs of 1e8 against outputs of 1e20: HiGHS cannot tell them from infinity."""
    rng = np.random.default_rng(1)
    y = np.arange(24) % 4
    h = 1e20 * (rng.normal(size=(4, 3))[y] + 3.0 * rng.normal(size=(24, 3)))
    learned = continuous_code(h, y, norm=norm, C=1e8, tol=1e-9)
    assert learned.status is Status.NOT_ATTAINED
    assert 0.0 <= learned.certificate.dual <= learned.certificate.primal <= 24e8 * (1 + 1e-12)


@pytest.mark.parametrize("seed", [13, 87])
def test_a_solver_that_runs_out_of_passes_returns_the_best_code_that_it_saw(seed):
    """With large costs the last pass may be worse than no code."""
    h, y, k, weights, C, _, _ = draw(seed)
    for max_iter in (3, 30, 300):
        result = solve_spoc(h, y, k, C * weights, tol=1e-12, max_iter=max_iter)
        scores = h @ result.coef.T
        asked = 1 - np.eye(k)[y]
        losses = (asked + scores - scores[np.arange(len(y)), y][:, None]).max(axis=1)
        value = 0.5 * float((result.coef**2).sum()) + float(C * weights @ losses)
        assert value == pytest.approx(result.certificate.primal, rel=1e-8)
        assert value <= C * weights.sum() * (1 + 1e-12)


def test_a_kernel_that_is_positive_semidefinite_is_not_refused_for_rounding():
    """Outputs that differ in their last digits only: kernel values have errors larger than the differences."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    h = 1.0 + 1e-9 * rng.normal(size=(30, 2))
    learned = continuous_code(h, y, norm="l2", C=1e4, kernel=make_kernel("rbf", 1e18), tol=1e-9, max_iter=200)
    assert np.isfinite(learned.certificate.primal)


def test_the_primal_of_a_kernel_code_is_that_of_its_stored_coefficients():
    """A sum of dual variables that is rounded moves scores by less than 1e-16 of it, which C times is not small."""
    kernel, y, C = make_kernel("rbf", 0.5), np.arange(6) % 5, 1e10
    for seed in range(10):
        h = np.random.default_rng(seed).normal(size=(6, 5))
        learned = continuous_code(h, y, norm="l2", C=C, n_classes=5, kernel=kernel, tol=1e-9, max_iter=2000)
        primal, dual, at_zero, _ = recount(h, y, 5, np.ones(6), C, "l2", None, learned, TrainingKernel(h, kernel))
        assert learned.certificate.primal == pytest.approx(primal, rel=MISMATCH)
        assert abs(learned.certificate.dual - dual) <= MISMATCH * primal
        assert primal <= at_zero
        assert learned.status is Status.NOT_ATTAINED  # losses of 1e-15 cost 1e-5
