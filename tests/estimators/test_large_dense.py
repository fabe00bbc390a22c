"""Dense data too large to be solved to rounding error: the estimator uses the block solver."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from widemargin import OneVsAllClassifier
from widemargin.solvers.one_vs_all.plan import SMALL_DENSE_WORK


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(8, 110))
    y = rng.integers(8, size=2000)
    X = (centres[y] + 2.5 * rng.normal(size=(2000, 110))).astype(np.float32)
    assert len(centres) * X.size > SMALL_DENSE_WORK
    return X, y


def uses_blocks(model):
    """Only truncated Newton takes conjugate gradient steps."""
    return model.history_["cg_steps"].sum() == 0


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_the_block_solver_and_newton_give_the_same_optimum(data, loss):
    X, y = data
    blocks, newton = OneVsAllClassifier(loss=loss).fit(X, y), OneVsAllClassifier(loss=loss, init="zero").fit(X, y)
    assert uses_blocks(blocks)
    assert not uses_blocks(newton)
    np.testing.assert_allclose(blocks.certificate_.primal, newton.certificate_.primal, rtol=1e-3)
    assert blocks.certificate_.dual <= newton.certificate_.primal
    assert newton.certificate_.dual <= blocks.certificate_.primal
    # ½‖w − w*‖² ≤ gap for each label; both gaps are certified.
    gaps = blocks.certificate_.gap + newton.certificate_.gap
    assert np.linalg.norm(blocks.coef_ - newton.coef_) <= 2 * np.sqrt(2 * gaps)


@pytest.mark.slow
def test_class_and_sample_weights_reach_the_block_solver(data):
    X, y = data
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    models = [
        OneVsAllClassifier(class_weight="balanced", init=init).fit(X, y, sample_weight=weight)
        for init in ("auto", "subspace")
    ]
    assert uses_blocks(models[0])
    np.testing.assert_allclose(models[0].certificate_.primal, models[1].certificate_.primal, rtol=1e-3)


@pytest.mark.slow
def test_models_do_not_depend_on_n_jobs(data):
    X, y = data
    models = [OneVsAllClassifier(n_jobs=n).fit(X, y) for n in (1, 2, 3)]
    assert len({model.coef_.tobytes() for model in models}) == 1


def test_a_limit_on_iterations_asks_for_newton_and_warns(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = OneVsAllClassifier(max_iter=2).fit(X, y)
    assert model.n_iter_.max() == 2


def test_read_only_maps_and_pruned_models_work(data, tmp_path):
    X, y = data
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = OneVsAllClassifier(prune=0.01).fit(mapped, y)
    assert uses_blocks(model)
    assert (np.abs(model.coef_.data) >= 0.01).all()
    assert model.score(X, y) > 0.9
