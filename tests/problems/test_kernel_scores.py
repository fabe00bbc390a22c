"""Scores of kernel models against plain matrix products."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from widemargin.problems.kernels import make_kernel
from widemargin.problems.scores import KernelScorer

rng = np.random.default_rng(0)
ROWS, SUPPORT = rng.normal(size=(20, 3)), rng.normal(size=(7, 3))
COEF, INTERCEPT = rng.normal(size=(5, 7)) * (rng.random((5, 7)) < 0.5), rng.normal(size=5)
EXPECTED = rbf_kernel(ROWS, SUPPORT, gamma=0.3) @ COEF.T + INTERCEPT


@pytest.mark.parametrize("memory_limit_mb", [1e-6, 0.001, 100])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_all_methods_agree_with_a_matrix_product(form, memory_limit_mb):
    kernel = make_kernel("rbf", 0.3)
    scorer = KernelScorer(
        kernel, form(SUPPORT), sp.csr_array(COEF), INTERCEPT, memory_limit_mb=memory_limit_mb
    )  # fmt: skip
    scores = scorer.scores(form(ROWS))
    np.testing.assert_allclose(scores, EXPECTED, atol=1e-12)
    indices, best = scorer.top_k(form(ROWS), 3, n_threads=2)
    np.testing.assert_array_equal(indices, np.argsort(-EXPECTED, axis=1)[:, :3])
    np.testing.assert_array_equal(best, np.take_along_axis(scores, indices, axis=1))
    y = rng.integers(0, 5, 20)
    np.testing.assert_array_equal(scorer.label_scores(form(ROWS), y), scores[np.arange(20), y])


def test_precomputed_values_are_columns_of_the_training_rows():
    support = np.array([1, 2, 5, 8, 9, 11, 12])
    values = rng.normal(size=(4, 13))
    scorer = KernelScorer(None, support, sp.csr_array(COEF), INTERCEPT)
    for form in (np.asarray, sp.csr_array):
        expected = values[:, support] @ COEF.T + INTERCEPT
        np.testing.assert_allclose(scorer.scores(form(values)), expected, atol=1e-12)


def test_no_rows_and_no_support_are_fine():
    scorer = KernelScorer(make_kernel("linear"), np.empty((0, 3)), sp.csr_array((5, 0)), INTERCEPT)
    np.testing.assert_allclose(scorer.scores(ROWS), np.tile(INTERCEPT, (20, 1)))
    assert scorer.top_k(ROWS[:0], 2)[0].shape == (0, 2)


def test_coefficients_that_point_nowhere_are_refused():
    coef = sp.csr_array(COEF)
    coef.indices[0] = 99
    with pytest.raises(ValueError, match="dual_coef contains a column index that is out of range"):
        KernelScorer(None, np.arange(7), coef, INTERCEPT)
    support = sp.csr_array(SUPPORT)
    support.indices[0] = -1
    with pytest.raises(ValueError, match="support contains a column index that is out of range"):
        KernelScorer(make_kernel("linear"), support, sp.csr_array(COEF), INTERCEPT)
