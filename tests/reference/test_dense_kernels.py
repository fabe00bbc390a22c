"""The row kernels of the dense solver against their NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest

from reference.binary_objective import BinaryProblem
from reference.dense_one_vs_all import StepProblem, backtracked_step, certified_rows, searched_step
from widemargin import _core
from widemargin.problems.losses import get_loss

LOSSES = ["squared_hinge", "logistic"]


def make_step(rng, loss, n, bias_penalty=0.0, newton=False):
    """A random label of n rows with 3 features: the arrays of the kernel, and the twin's problem."""
    X, w, b = rng.normal(size=(n, 3)), 0.3 * rng.normal(size=3), 0.2
    z, p = rng.normal(size=3), rng.normal(size=3)
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    c = rng.uniform(0.5, 2.0, n)
    s = (X @ w + b).astype(np.float32)
    sz, sp = (X @ z).astype(np.float32), (X @ p).astype(np.float32)
    V = np.array([z, p, w])
    gram, linear = np.zeros((4, 4)), np.append(V @ w, bias_penalty * b)
    gram[:3, :3], gram[3, 3] = V @ V.T, bias_penalty
    scores = np.column_stack([sz, sp, s - np.float32(b), np.ones(n)]).astype(np.float64)
    twin = StepProblem(scores, s.astype(np.float64), y, c, gram, linear, get_loss(loss))
    inputs = np.array([[z @ z, z @ p, z @ w, p @ p, p @ w, w @ w, b, 0.1, 0.0, newton, 1.0]])
    return {"s": s, "sz": sz, "sp": sp, "cost": (y * c).astype(np.float32), "inputs": inputs}, twin


def run_step(arrays, loss, bias_penalty=0.0, use_bias=True):
    s, sp = arrays["s"][None].copy(), arrays["sp"][None].copy()
    slopes, out = np.empty_like(s), np.empty((1, 7))
    rows = (s, arrays["sz"][None], sp, arrays["cost"][None])
    _core.dense_steps(loss, use_bias, bias_penalty, *rows, arrays["inputs"], slopes, out)
    return s[0].astype(np.float64), sp[0].astype(np.float64), slopes[0].astype(np.float64), out[0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [1, 7, 16, 17, 1000, 1111])
@pytest.mark.parametrize("isa", _core.available_instruction_sets())
def test_a_step_moves_scores_and_fills_slopes(loss, n, isa, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    arrays, twin = make_step(np.random.default_rng(n), loss, n)
    s, sp, slopes, out = run_step(arrays, loss)
    theta = out[:4]
    np.testing.assert_allclose(s, twin.s + twin.scores @ theta, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sp, twin.scores[:, :3] @ theta[:3], rtol=1e-4, atol=1e-4)
    phi = get_loss(loss)
    np.testing.assert_allclose(slopes, twin.y * twin.c * phi.derivative(twin.y * s), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[4], twin.c @ phi.value(twin.y * s), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[5], slopes.sum(), rtol=1e-4, atol=1e-3)
    assert out[6] == np.count_nonzero(slopes)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias_penalty", [0.0, 1.0])
def test_the_search_gets_nearly_all_of_the_possible_decrease(loss, bias_penalty):
    for seed in range(10):
        arrays, twin = make_step(np.random.default_rng(seed), loss, 300, bias_penalty)
        theta = run_step(arrays, loss, bias_penalty)[3][:4]
        assert twin.change(theta) <= 0.97 * twin.change(searched_step(twin))


@pytest.mark.parametrize("loss", LOSSES)
def test_without_an_intercept_it_stays_where_it_is(loss):
    arrays, _ = make_step(np.random.default_rng(3), loss, 100)
    assert run_step(arrays, loss, use_bias=False)[3][3] == 0.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_newton_steps_are_shortened_as_by_the_twin(loss, scale):
    rng = np.random.default_rng(5)
    arrays, twin = make_step(rng, loss, 200, newton=True)
    gradient = twin.gradient(np.zeros(4))
    sign = -np.sign(gradient[0] + 0.1 * gradient[3])
    for name in ("sz",):
        arrays[name] = (scale * sign * arrays[name]).astype(np.float32)
    inputs = arrays["inputs"][0]
    inputs[[0, 1, 2]] *= [scale**2, scale * sign, scale * sign]
    bias_step = 0.1 * sign * scale
    slope = scale * sign * (gradient[0] + 0.1 * gradient[3])
    inputs[7], inputs[8] = bias_step, slope
    scores = twin.scores.copy()
    scores[:, 0] = arrays["sz"]
    gram, linear = twin.gram.copy(), twin.linear.copy()
    gram[0] *= scale * sign
    gram[:, 0] *= scale * sign
    linear[0] *= scale * sign
    moved = StepProblem(scores, twin.s, twin.y, twin.c, gram, linear, twin.loss)
    assert run_step(arrays, loss)[3][0] == backtracked_step(moved, bias_step, slope)


def test_no_step_is_taken_where_all_go_up():
    arrays, twin = make_step(np.random.default_rng(6), "squared_hinge", 50, newton=True)
    if twin.gradient(np.zeros(4))[0] < 0:
        arrays["sz"] = -arrays["sz"]
        arrays["inputs"][0, [1, 2]] *= -1
    arrays["inputs"][0, [7, 8]] = 0.0, -1e9
    s, _, _, out = run_step(arrays, "squared_hinge")
    assert not out[:4].any()
    np.testing.assert_array_equal(s, arrays["s"])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("bias_value", "bias_penalty"), [(1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
@pytest.mark.parametrize("single", [False, True])
def test_certified_rows_are_those_of_the_twin(loss, bias_value, bias_penalty, single):
    rng = np.random.default_rng(8)
    n = 83
    y, c, z = np.where(rng.random(n) < 0.3, 1.0, -1.0), rng.uniform(0.5, 2.0, n), rng.normal(size=n)
    problem = BinaryProblem(np.zeros((n, 1)), y, c, get_loss(loss), bias_value, bias_penalty)
    moved, losses, conjugates, slopes, dual = certified_rows(problem, z, 0.25)
    scores, a, u, out = z[None].copy(), np.empty((1, n)), np.empty((1, n)), np.empty((1, 5))
    _core.certify_dense(loss, bias_value, bias_penalty, single, scores, (y * c)[None], np.array([0.25]), a, u, out)
    tolerance = 1e-6 if single else 1e-12
    np.testing.assert_allclose(out[0, 0], np.float32(moved) if single else moved, rtol=1e-12)
    np.testing.assert_allclose(out[0, 1:3], [losses, conjugates], rtol=tolerance)
    np.testing.assert_allclose(a[0], slopes, rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(u[0], dual, rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(out[0, 3:], [a.sum(), u.sum()], atol=1e-9)
    if bias_penalty == 0.0:
        assert abs(out[0, 4]) <= 1e-12 * np.abs(u).sum()
