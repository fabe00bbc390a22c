"""One-vs-all with a large C: many iterations, rejected full steps, and weights that need more than float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import solve_large, solve_newton
from widemargin.datasets import load_debian_tags
from widemargin.solvers.result import Status

BACKENDS = ["core", "reference"]


def gradient_norm(X, y, w, b, C, regularize_intercept):
    slack = np.maximum(0.0, 1.0 - y * (X @ w + b))
    bias = (b if regularize_intercept else 0.0) - 2.0 * C * (y @ slack)
    return np.linalg.norm(np.append(w - 2.0 * C * (X.T @ (y * slack)), bias))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("C", [1.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("regularize_intercept", [False, True])
@pytest.mark.parametrize("signs", [False, True])
def test_polishing_ends_at_the_rounding_floor(backend, C, regularize_intercept, signs):
    rng = np.random.default_rng(199)
    X = rng.normal(size=(20, 5))
    X = np.sign(X) if signs else X
    Y = (rng.random((20, 3)) < 0.3).astype(int)
    result = solve_newton(X, Y, C=C, regularize_intercept=regularize_intercept, tol=0.1, polish=True, backend=backend)
    assert result.status is Status.CONVERGED
    assert result.certificate.relative_gap < 1e-9
    for j, y in enumerate(np.where(Y.T, 1.0, -1.0)):
        at_zero = gradient_norm(X, y, np.zeros(5), 0.0, C, regularize_intercept)
        assert gradient_norm(X, y, result.coef[j], result.intercept[j], C, regularize_intercept) < 1e-10 * at_zero


@pytest.mark.parametrize(("scale", "C"), [(1.0, 1000.0), (20.0, 1.0), (20.0, 100.0)])
@pytest.mark.parametrize("polish", [False, True])
def test_nearly_separable_text_converges_to_its_gap(scale, C, polish):
    data = load_debian_tags()
    X, Y = scale * data.X_train[:3000], data.y_train[:3000][:, :3]
    result = solve_newton(X, Y, C=C, polish=polish)
    assert result.status is Status.CONVERGED
    relative_gaps = (result.primal_by_label - result.dual_by_label) / result.primal_by_label
    assert relative_gaps.max() <= (1e-8 if polish else 1e-3)


@pytest.mark.slow
def test_refused_steps_tighten_the_directions_and_not_more_than_that():
    data = load_debian_tags()
    result = solve_newton(data.X_train[:3000], data.y_train[:3000][:, :6], C=1000.0)
    # With directions that stay loose it takes 222 steps per label on average.
    assert result.n_iter.mean() < 60


def published_newton(X, y, C, v, tol, n_steps, tightening=1.0):
    """Truncated Newton as published, with the Hessian as a matrix: CG steps and multiplier of each Newton iteration.

    CG: M = 0.99 I + 0.01 diag(H), until ‖r‖ ≤ min(0.5, sqrt(‖∇L‖ / scale)) ‖∇L‖, and no residual below a quarter of
    the stopping rule's target; backtracking by halves, η = 0.01. `X` has a last column of ones, for a free intercept.
    Not as published: `tightening` multiplies the 0.5 each time a full step is rejected.
    """
    penalty = np.diag(np.append(np.ones(X.shape[1] - 1), 0.0))

    def value(v):
        return 0.5 * v @ penalty @ v + C * np.sum(np.maximum(0.0, 1.0 - y * (X @ v)) ** 2)

    def gradient(v):
        return penalty @ v - 2.0 * C * X.T @ (y * np.maximum(0.0, 1.0 - y * (X @ v)))

    share = max(1, min((y > 0).sum(), (y < 0).sum())) / len(y)
    scale = share * np.linalg.norm(gradient(np.zeros_like(v)))
    found, looseness = [], 0.5
    for _ in range(n_steps):
        g, active = gradient(v), y * (X @ v) < 1.0
        norm = np.linalg.norm(g)
        H = penalty + 2.0 * C * X[active].T @ X[active]
        M = 0.99 + 0.01 * np.diag(H)
        enough = max(min(looseness, np.sqrt(norm / scale)) * norm, 0.25 * tol * scale)
        d, r, cg_steps = np.zeros_like(v), -g, 0
        p = r / M
        while cg_steps == 0 or np.linalg.norm(r) > enough:
            alpha = (r @ (r / M)) / (p @ H @ p)
            d, new = d + alpha * p, r - alpha * H @ p
            p, r, cg_steps = new / M + (new @ (new / M)) / (r @ (r / M)) * p, new, cg_steps + 1
        step = 1.0
        while value(v + step * d) - value(v) > 0.01 * step * (g @ d):
            step *= 0.5
        v = v + step * d
        looseness *= tightening if step < 1.0 else 1.0
        found.append((cg_steps, step))
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("C", [10.0, 1000.0])
@pytest.mark.parametrize("seed", range(3))
def test_without_tightening_the_steps_are_those_of_the_published_method(backend, C, seed):
    rng = np.random.default_rng(seed)
    X = np.abs(rng.normal(size=(80, 25))) / 5.0
    Y = rng.random((80, 1)) < 0.15
    on_the_kink = np.append(np.zeros(25), -1.0)  # the intercept at which no negative row has a loss
    rows, y = np.column_stack([X, np.ones(80)]), np.where(Y[:, 0], 1.0, -1.0)
    expected, tightened = (published_newton(rows, y, C, on_the_kink, 1e-6, 7, factor) for factor in (1.0, 0.5))
    assert expected[0][1] < 1.0  # the first full step is rejected
    options = {"C": C, "tol": 1e-6, "gap_tol": None, "max_iter": 7, "init": "bias", "init_params": {"lam": 1.0}}

    def steps(**more):
        history = solve_newton(X, Y, backend=backend, **options, **more).history
        return list(zip(history["cg_steps"][1:], history["step_size"][1:], strict=True))

    assert steps(tighten_cg=False) == expected
    assert steps() == tightened != expected


@pytest.mark.slow
def test_directions_that_stay_loose_take_many_more_steps():
    data = load_debian_tags()
    X, Y = data.X_train[:3000], data.y_train[:3000][:, :2]
    tight, published = (solve_newton(X, Y, C=1000.0, tighten_cg=on) for on in (True, False))
    assert published.status is tight.status is Status.CONVERGED
    assert published.n_iter.sum() > 2 * tight.n_iter.sum()
    # Both are within their certified gap of the optimum.
    assert published.certificate.dual <= tight.certificate.primal
    assert tight.certificate.dual <= published.certificate.primal


def test_weights_that_float32_spoils_are_not_called_converged():
    rng = np.random.default_rng(0)
    X, Y = 1e4 * rng.normal(size=(30, 40)), (rng.random((30, 1)) < 0.5).astype(int)
    exact = solve_newton(X, Y, C=1e4)
    stored = solve_newton(X.astype(np.float32), Y, C=1e4)
    assert exact.status is Status.CONVERGED
    # Separable rows: the margins are 1 up to 1e-12, which 24-bit weights cannot represent.
    assert stored.certificate.relative_gap > 1e-3
    assert stored.status is Status.MAX_ITER
    # Rounding of the weights does not affect the lower bound.
    assert stored.certificate.dual == pytest.approx(exact.certificate.primal, rel=2e-3)


def test_start_that_is_not_finite_is_refused():
    X, Y = np.eye(3), np.eye(3, dtype=int)
    with pytest.raises(ValueError, match="NaN or infinity"):
        solve_newton(X, Y, start=(np.full((3, 3), np.nan), np.zeros(3)))


# Where rounding ends the progress


def hostile_problem(seed):
    """Rows of mixed scales and low rank, a huge C and tolerances below rounding."""
    rng = np.random.default_rng(seed)
    n, d = rng.integers(4, 40), rng.integers(1, 30)
    X = rng.normal(size=(n, d)) if seed % 2 else rng.normal(size=(n, 2)) @ rng.normal(size=(2, d))
    X[:, : d // 3 + 1] *= 10.0 ** rng.choice([-20, -10, 5, 10, 20])
    Y = rng.random((n, 3)) < 0.4
    Y[:2] = [[True], [False]]
    tolerances = {"tol": 10.0 ** rng.uniform(-12, -2), "gap_tol": 10.0 ** rng.uniform(-12, -2)}
    intercept = {"fit_intercept": bool(rng.random() < 0.8), "regularize_intercept": bool(rng.random() < 0.4)}
    init = str(rng.choice(["zero", "msi", "ovap", "subspace"]))
    options = {"C": 10.0 ** rng.uniform(4, 8), "init": init, "polish": bool(rng.random() < 0.5)}
    return X.astype(np.float32 if rng.random() < 0.4 else np.float64), Y, options | tolerances | intercept


def objective(X, y, w, b, C, loss, regularize_intercept):
    """The objective of stored weights by exact sums, in the type in which they are stored."""
    rows, w, b = X.astype(np.float64), w.astype(np.float64), float(b)
    margins = [sign * math.fsum([*(row * w), b]) for row, sign in zip(rows, y, strict=True)]
    losses = [max(0.0, 1.0 - m) ** 2 if loss == "squared_hinge" else float(np.logaddexp(0.0, -m)) for m in margins]
    return 0.5 * (w @ w + regularize_intercept * b * b) + C * math.fsum(losses)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("seed", range(30))
def test_a_label_that_rounding_stops_says_so_and_is_no_worse_than_zero(seed, loss, backend):
    X, Y, options = hostile_problem(seed)
    for j in range(Y.shape[1] if backend == "core" else 1):
        result = solve_newton(X, Y[:, [j]], loss=loss, backend=backend, **options)
        trace = result.history["primal"]
        assert result.status is not Status.MAX_ITER or result.n_iter[0] == 1000 or X.dtype == np.float32
        if result.status is Status.MAX_ITER and result.n_iter[0] == 1000:
            assert trace[-1] < trace[-40]  # slow, but not at a standstill
        y, regularised = np.where(Y[:, j], 1.0, -1.0), options["regularize_intercept"]
        found = objective(X, y, result.coef[0], result.intercept[0], options["C"], loss, regularised)
        zero = options["C"] * len(y) * (1.0 if loss == "squared_hinge" else np.log(2.0))
        assert result.certificate.primal <= zero * (1 + 1e-9)
        assert found <= zero * (1 + 1e-6)


@pytest.mark.parametrize(
    ("solve", "dtype", "tolerances"),
    [
        (solve_newton, np.float32, {"tol": 1e-12, "gap_tol": None}),
        (solve_newton, np.float32, {"tol": 1e-4}),
        (solve_large, np.float32, {"tol": 1e-4}),
        (solve_large, np.float64, {"tol": 1e-4}),  # also keeps weights in float32
    ],
)
def test_weights_that_float32_makes_worse_than_zero_are_not_stored(solve, dtype, tolerances):
    rng = np.random.default_rng(82)
    # Rank two except for rounding to float32: weights fit the labels by what remains of 1e20 after cancellation.
    X = sp.csr_array((1e20 * rng.normal(size=(43, 2)) @ rng.normal(size=(2, 59))).astype(np.float32).astype(dtype))
    Y, zero = rng.random((43, 6)) < 0.3, 43e7
    result = solve(X, Y, C=1e7, fit_intercept=False, **tolerances)
    assert not result.coef.any(axis=1).all()
    for j, y in enumerate(np.where(Y.T, 1.0, -1.0)):
        found = objective(X.toarray(), y, result.coef[j], 0.0, 1e7, "squared_hinge", False)
        assert found <= zero * (1 + 1e-9)
        assert result.primal_by_label[j] == pytest.approx(found, rel=1e-6, abs=1e-9 * zero)
        assert result.coef[j].any() or result.status_by_label[j] != "converged"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_start_that_is_better_than_the_rounded_end_is_kept(backend):
    rng = np.random.default_rng(82)
    X = (1e20 * rng.normal(size=(43, 2)) @ rng.normal(size=(2, 59))).astype(np.float32)
    Y, options = rng.random((43, 1)) < 0.3, {"C": 1e7, "fit_intercept": False, "backend": backend}
    start = solve_newton(X, Y, tol=1e-4, gap_tol=None, **options)
    y = np.where(Y[:, 0], 1.0, -1.0)
    at_start = objective(X, y, start.coef[0], 0.0, 1e7, "squared_hinge", False)
    assert at_start < 43e7
    result = solve_newton(X, Y, tol=1e-12, start=(start.coef, start.intercept), **options)
    assert result.status is not Status.CONVERGED
    assert result.n_iter[0] > 0
    assert objective(X, y, result.coef[0], 0.0, 1e7, "squared_hinge", False) <= at_start * (1 + 1e-9)
