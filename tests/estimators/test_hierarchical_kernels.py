"""HierarchicalClassifier with kernels: a linear kernel equals the linear model, with all its methods."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score

from estimator_checks import scikit_learn_checks
from widemargin import HierarchicalClassifier, Taxonomy, load, save

METHODS = ("orthogonal", "per-node", "similarity", "tree-loss", "flat")
TREE = Taxonomy.from_nested({"all": {"a": {"a1": None, "a2": ["x", "y"]}, "b": ["b1", "b2"], "c": None}})


@scikit_learn_checks(HierarchicalClassifier(kernel="rbf", tol=1e-2))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    leaves = np.array(["a1", "x", "y", "b1", "b2", "c"])
    which = np.arange(60) % 6
    return np.eye(6)[which] @ rng.normal(size=(6, 5)) + 0.5 * rng.normal(size=(60, 5)), leaves[which]


def linear(A, B):
    return np.asarray((A @ B.T).toarray() if sp.issparse(A) else A @ B.T)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_linear_kernel_is_the_linear_model(data, method):
    X, y = data
    options = {"method": method, "C": 0.3, "intercept_scaling": 2.0, "tol": 1e-6, "random_state": 0}
    with_kernel = HierarchicalClassifier(TREE, kernel=linear, **options).fit(X, y)
    plain = HierarchicalClassifier(TREE, **options).fit(X, y)
    assert with_kernel.certificate_.dual <= plain.certificate_.primal * (1 + 1e-9)
    assert plain.certificate_.dual <= with_kernel.certificate_.primal * (1 + 1e-9)
    np.testing.assert_allclose(with_kernel.node_scores(X), plain.node_scores(X), atol=0.02)
    assert with_kernel.dual_coef_.shape == (9, len(with_kernel.support_))
    assert not hasattr(with_kernel, "coef_")
    if method == "orthogonal":
        np.testing.assert_allclose(with_kernel.orthogonality_.product, plain.orthogonality_.product, atol=0.01)


@pytest.mark.slow
def test_precomputed_kernel_values_are_the_kernel(data, tmp_path):
    X, y = data
    rbf = HierarchicalClassifier(TREE, kernel="rbf", gamma=0.5, C=2.0, random_state=0).fit(X, y)
    matrix = rbf_kernel(X, gamma=0.5)
    given = HierarchicalClassifier(TREE, kernel="precomputed", C=2.0, random_state=0).fit(matrix, y)
    np.testing.assert_allclose(given.decision_function(matrix), rbf.decision_function(X), atol=1e-6)
    np.testing.assert_array_equal(given.predict(matrix), rbf.predict(X))
    assert cross_val_score(HierarchicalClassifier(TREE, kernel="precomputed"), matrix, y, cv=3).mean() > 0.5
    for name, model, rows in (("rbf", rbf, X), ("given", given, matrix)):
        save(model, tmp_path / name)
        again = load(tmp_path / name)
        np.testing.assert_allclose(again.decision_function(rows), model.decision_function(rows), atol=1e-12)
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
        again.fit(rows, y)


def test_kernels_take_sparse_rows_warm_starts_and_rows_with_several_labels(data):
    X, y = data
    model = HierarchicalClassifier(TREE, kernel="poly", degree=2, coef0=1.0, C=0.5, warm_start=True, random_state=0)
    model.fit(sp.csr_array(X), y)
    dense = model.predict(X)
    np.testing.assert_array_equal(model.predict(sp.csr_array(X)), dense)
    model.fit(sp.csr_array(X), y)
    assert model.n_iter_ == 0
    sets = [[label, "c"] for label in y]
    several = HierarchicalClassifier(TREE, kernel="rbf", C=0.5, stop=True).fit(X, sets)
    assert several.predict_topk(X, 2).labels.shape == (60, 2)
    several.set_params(kernel="linear").fit(X, y)
    assert not hasattr(several, "dual_coef_")
