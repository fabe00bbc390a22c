"""Objectives of given weights: the core against a dense product, for both losses and all kinds of rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import OneVsAllClassifier
from widemargin.solvers.one_vs_all.problem import Problem


def objectives(problem, coef, intercept):
    """The twin: all scores at once, in float64."""
    X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    scores = X.astype(np.float64) @ coef.T.astype(np.float64) + problem.bias_value * intercept.astype(np.float64)
    signs = np.full(scores.shape, -1.0)
    label = np.repeat(np.arange(problem.n_labels), np.diff(problem.positive_indptr))
    signs[problem.positive_rows, label] = 1.0
    margins = signs * scores
    loss = np.maximum(0.0, 1.0 - margins) ** 2 if problem.loss == "squared_hinge" else np.logaddexp(0.0, -margins)
    factor = np.where(signs > 0, problem.positive_factor, problem.negative_factor)
    losses = problem.C * problem.row_weight @ (factor * loss)
    return losses + 0.5 * (np.sum(coef.astype(np.float64) ** 2, axis=1) + problem.bias_penalty * intercept**2)


def random_problem(rng, dtype, index_dtype, n_labels, **options):
    X = rng.normal(size=(40, 9)).astype(dtype) * (rng.random((40, 9)) < 0.5)
    X[5] = 0.0
    if index_dtype is not None:
        X = sp.csr_array(X)
        X.indices, X.indptr = X.indices.astype(index_dtype), X.indptr.astype(index_dtype)
    Y = rng.random((40, n_labels)) < 0.3
    Y[:, 0] = False  # a label without positives
    problem = Problem.of(X, Y.astype(np.int8), sample_weight=rng.uniform(0.5, 2.0, 40), **options)
    return problem, rng.normal(size=(n_labels, 9)).astype(dtype), rng.normal(size=n_labels).astype(dtype)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64, None], ids=["int32", "int64", "dense"])
@pytest.mark.parametrize("n_labels", [1, 4, 6])
def test_objectives_are_those_of_a_dense_product(loss, dtype, index_dtype, n_labels):
    rng = np.random.default_rng(n_labels)
    weights = {"positive_weight": rng.uniform(0.5, 3.0, n_labels), "negative_weight": rng.uniform(0.5, 3.0, n_labels)}
    problem, coef, intercept = random_problem(rng, dtype, index_dtype, n_labels, loss=loss, C=0.7, **weights)
    expected = objectives(problem, coef, intercept)
    rtol = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(problem.objectives(coef, intercept), expected, rtol=rtol)
    np.testing.assert_allclose(problem.objectives(sp.csr_array(coef), intercept), expected, rtol=rtol)


@pytest.mark.parametrize("kind", [{"regularize_intercept": True}, {"fit_intercept": False}])
def test_the_intercept_counts_as_in_the_problem(kind):
    rng = np.random.default_rng(0)
    problem, coef, intercept = random_problem(rng, np.float64, np.int32, 3, **kind)
    if not kind.get("fit_intercept", True):
        intercept = np.zeros_like(intercept)
    np.testing.assert_allclose(problem.objectives(coef, intercept), objectives(problem, coef, intercept), rtol=1e-12)


def test_a_fitted_model_has_the_objective_of_its_certificate():
    rng = np.random.default_rng(3)
    X, Y = sp.csr_array(rng.random((200, 30)) * (rng.random((200, 30)) < 0.3)), (rng.random((200, 5)) < 0.2).astype(int)
    model = OneVsAllClassifier(C=0.5).fit(X, Y)
    found = Problem.of(X, Y, C=0.5).objectives(model.coef_, model.intercept_)
    np.testing.assert_allclose(found.sum(), model.certificate_.primal, rtol=1e-6)


def test_weights_of_other_labels_are_refused():
    problem, coef, intercept = random_problem(np.random.default_rng(0), np.float64, None, 3)
    with pytest.raises(ValueError, match="do not fit the labels"):
        problem.objectives(coef[:2], intercept)
    with pytest.raises(ValueError, match="do not fit the labels"):
        problem.objectives(coef[:, :5], intercept)
