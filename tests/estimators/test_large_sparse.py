"""The fast solver trains sparse data above the size of small problems; Newton gives the same answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import OneVsAllClassifier, Status
from widemargin.datasets import make_zipf_multilabel
from widemargin.solvers.one_vs_all.plan import SMALL_SPARSE_WORK


@pytest.fixture(scope="module")
def data():
    X, Y = make_zipf_multilabel(5000, 2000, 40, nnz_per_row=60, random_state=0)
    assert X.nnz > SMALL_SPARSE_WORK
    return X, Y


@pytest.fixture(scope="module")
def newton(data):
    return OneVsAllClassifier(init="zero", tol=1e-6, gap_tol=1e-8).fit(*data)


@pytest.mark.slow
def test_fast_solver_is_the_default_and_newton_is_asked_for_by_a_start(data, newton):
    fast = OneVsAllClassifier().fit(*data)
    assert "iteration" not in fast.history_
    assert "iteration" in newton.history_
    assert fast.status_ is Status.CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("prune", [0.0, 0.01])
def test_bounds_bracket_the_optimum_and_meet_the_gap(data, newton, n_jobs, prune):
    fast = OneVsAllClassifier(n_jobs=n_jobs, prune=prune).fit(*data)
    certificate, optimum = fast.certificate_, newton.certificate_
    assert certificate.dual <= optimum.primal
    assert certificate.primal >= optimum.dual
    assert certificate.primal_before_pruning - certificate.dual <= 1e-3 * certificate.primal_before_pruning
    X, Y = data
    coef = fast.coef_.toarray() if sp.issparse(fast.coef_) else fast.coef_
    margins = np.where(Y.toarray() > 0, 1, -1) * (X @ coef.T.astype(np.float64) + fast.intercept_)
    objective = 0.5 * (coef.astype(np.float64) ** 2).sum() + (np.maximum(0, 1 - margins) ** 2).sum()
    assert certificate.primal == pytest.approx(objective, rel=1e-9)


@pytest.mark.slow
def test_weights_are_as_close_as_the_gaps_allow(data, newton):
    """Two points of a 1-strongly convex problem differ by at most √(2 gap₁) + √(2 gap₂)."""
    fast = OneVsAllClassifier().fit(*data)
    distance = np.linalg.norm(fast.coef_ - newton.coef_)
    assert distance <= np.sqrt(2 * fast.certificate_.gap) + np.sqrt(2 * newton.certificate_.gap)


def test_weights_of_rows_are_repeated_rows(data):
    X, Y = data
    weights = np.random.default_rng(1).integers(0, 3, X.shape[0])
    rows = np.repeat(np.arange(X.shape[0]), weights)
    weighted = OneVsAllClassifier().fit(X, Y, sample_weight=weights).certificate_
    repeated = OneVsAllClassifier().fit(X[rows], Y[rows]).certificate_
    assert weighted.dual <= repeated.primal
    assert repeated.dual <= weighted.primal
    assert weighted.primal_at_zero == pytest.approx(repeated.primal_at_zero)


def test_rows_that_do_not_fit_the_memory_limit_are_not_copied(data):
    X, Y = data
    model = OneVsAllClassifier(memory_limit_mb=1).fit(X, sp.csr_array(Y[:, :3]))
    assert 8 * X.nnz > 2**20
    assert "iteration" in model.history_
    assert model.status_ is Status.CONVERGED
