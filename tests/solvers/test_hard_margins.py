"""One-vs-all where C is large against the rows: many steps, refused full steps, and weights that float32 spoils."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.datasets import load_debian_tags
from widemargin.solvers.one_vs_all import solve_one_vs_all
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
    result = solve_one_vs_all(
        X, Y, C=C, regularize_intercept=regularize_intercept, tol=0.1, polish=True, backend=backend
    )
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
    result = solve_one_vs_all(X, Y, C=C, polish=polish)
    assert result.status is Status.CONVERGED
    relative_gaps = (result.primal_by_label - result.dual_by_label) / result.primal_by_label
    assert relative_gaps.max() <= (1e-8 if polish else 1e-3)


def test_refused_steps_tighten_the_directions_and_not_more_than_that():
    data = load_debian_tags()
    result = solve_one_vs_all(data.X_train[:3000], data.y_train[:3000][:, :6], C=1000.0)
    # 222 steps a label on average with directions that stay loose.
    assert result.n_iter.mean() < 60


def test_weights_that_float32_spoils_are_not_called_converged():
    rng = np.random.default_rng(0)
    X, Y = 1e4 * rng.normal(size=(30, 40)), (rng.random((30, 1)) < 0.5).astype(int)
    exact = solve_one_vs_all(X, Y, C=1e4)
    stored = solve_one_vs_all(X.astype(np.float32), Y, C=1e4)
    assert exact.status is Status.CONVERGED
    # Separable rows: the margins are 1 up to 1e-12, which weights of 24 bits cannot say.
    assert stored.certificate.relative_gap > 1e-3
    assert stored.status is Status.MAX_ITER
    # The bound from below does not suffer from the rounding of the weights.
    assert stored.certificate.dual == pytest.approx(exact.certificate.primal, rel=2e-3)


def test_start_that_is_not_finite_is_refused():
    X, Y = np.eye(3), np.eye(3, dtype=int)
    with pytest.raises(ValueError, match="NaN or infinite"):
        solve_one_vs_all(X, Y, initial=(np.full((3, 3), np.nan), np.zeros(3)))
