"""Kernel blocks against scikit-learn's, errors, and training matrices in parts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import chi2_kernel, pairwise_kernels
from sklearn.svm import SVC

from widemargin import _core
from widemargin.exceptions import NotPositiveDefiniteError
from widemargin.problems.kernels import (
    PrecomputedKernel,
    TrainingKernel,
    check_positive_semidefinite,
    make_kernel,
    resolve_gamma,
)

PARAMETERS = {
    "linear": {},
    "rbf": {"gamma": 0.3},
    "poly": {"gamma": 0.3, "degree": 3, "coef0": 0.5},
    "sigmoid": {"gamma": 0.2, "coef0": -0.1},
}


def make_rows(n=20, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", PARAMETERS)
def test_blocks_and_diagonals_are_those_of_scikit_learn(name, sparse):
    A, B = make_rows(20, seed=1), make_rows(9, seed=2)
    expected = pairwise_kernels(A, B, metric=name, **PARAMETERS[name])
    kernel = make_kernel(name, **PARAMETERS[name])
    left, right = (sp.csr_array(A), sp.csr_array(B)) if sparse else (A, B)
    np.testing.assert_allclose(kernel.block(left, right), expected, rtol=1e-12, atol=1e-14)
    single = kernel.block(left, right, np.float32)
    assert single.dtype == np.float32
    assert single.flags.c_contiguous
    np.testing.assert_allclose(single, expected, rtol=2e-6, atol=2e-6)
    own = pairwise_kernels(A, metric=name, **PARAMETERS[name]).diagonal()
    np.testing.assert_allclose(kernel.diagonal(left), own, rtol=1e-12, atol=1e-14)


def test_rows_far_from_the_origin_lose_no_distance_in_float32():
    A = 1000.0 + make_rows(30)
    block = make_kernel("rbf", gamma=0.5).block(A, A, np.float32)
    np.testing.assert_allclose(block, pairwise_kernels(A - 1000.0, metric="rbf", gamma=0.5), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_that_of_numpy(dtype):
    smallest = -80.0 if dtype is np.float32 else -700.0
    values = np.linspace(smallest, 0.0, 3001, dtype=dtype)[None, :]
    out = values.copy()
    _core.exp_in_place(out)
    exact = np.exp(values.astype(np.longdouble))
    np.testing.assert_allclose(out.astype(np.longdouble), exact, rtol=2.0 * np.finfo(dtype).eps)
    edges = np.array([[0.0, 1e-9, 3.0, 10.0 * smallest]], dtype=dtype)
    _core.exp_in_place(edges)
    np.testing.assert_allclose(edges, [[1.0, 1.0, 1.0, 0.0]], atol=1e-37)


@pytest.mark.parametrize("gamma", ["scale", "auto", 0.7])
@pytest.mark.parametrize("sparse", [False, True])
def test_gamma_is_that_of_svc(gamma, sparse):
    X = make_rows()
    given = sp.csr_array(X) if sparse else X
    model = SVC(gamma=gamma).fit(X, np.arange(20) % 2)
    np.testing.assert_allclose(resolve_gamma(gamma, given), model._gamma, rtol=1e-12)
    assert resolve_gamma("scale", np.ones((3, 2))) == 1.0  # no variance: as in scikit-learn


def test_callables_are_called_with_two_matrices_and_their_parameters():
    A, B = np.abs(make_rows(70, seed=1)), np.abs(make_rows(5, seed=2))
    kernel = make_kernel(chi2_kernel, params={"gamma": 0.4})
    np.testing.assert_allclose(kernel.block(A, B), chi2_kernel(A, B, gamma=0.4))
    np.testing.assert_allclose(kernel.diagonal(A), np.ones(70))
    sparse = make_kernel(lambda a, b: a @ b.T)
    np.testing.assert_allclose(sparse.block(sp.csr_array(A), sp.csr_array(B)), A @ B.T)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: np.zeros((2, 2)), "must return a real matrix of shape"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), "NaN or infinity"),
        (lambda A, B: np.full((len(A), len(B)), "a"), "must return a real matrix"),
    ],
)
def test_what_a_callable_returns_is_checked(function, message):
    with pytest.raises(ValueError, match=message):
        make_kernel(function).block(make_rows(3), make_rows(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "cosine"}, "kernel must be one of linear, rbf, poly, sigmoid or a callable"),
        ({"kernel": "rbf", "gamma": 0.0}, "gamma must be a positive number"),
        ({"kernel": "rbf", "gamma": "scale"}, "gamma must be a positive number; got 'scale'"),
        ({"kernel": "poly", "degree": 2.5}, "degree must be a nonnegative integer"),
        ({"kernel": "poly", "coef0": np.nan}, "coef0 must be a finite number"),
        ({"kernel": "rbf", "params": {"a": 1}}, "apply only to callable kernels"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_kernel(**arguments)


def test_an_unknown_word_for_gamma_is_refused():
    with pytest.raises(ValueError, match="'scale', 'auto' or a positive number"):
        resolve_gamma("large", np.eye(2))


@pytest.mark.parametrize("precomputed", [False, True])
def test_a_training_kernel_gives_columns_and_strips_of_one_matrix(precomputed):
    X = make_rows()
    K = pairwise_kernels(X, metric="rbf", gamma=0.3)
    kernel = PrecomputedKernel(K) if precomputed else TrainingKernel(X, make_kernel("rbf", gamma=0.3))
    some = np.array([7, 2, 11])
    assert kernel.n_rows == 20
    np.testing.assert_allclose(kernel.diagonal(), K.diagonal())
    np.testing.assert_allclose(kernel.columns(some), K[some], rtol=1e-12)
    np.testing.assert_allclose(kernel.columns(slice(3, 6), np.float32), K[3:6], rtol=1e-5)
    np.testing.assert_allclose(kernel.among(some), K[some][:, some], rtol=1e-12)
    np.testing.assert_allclose(kernel.strip(some)(slice(4, 9)), K[4:9][:, some], rtol=1e-12)


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.zeros((3, 2)), "must be square"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "not symmetric: mirrored entries differ by up to 0.1"),
        (np.array([[1.0, np.inf], [np.inf, 1.0]]), "NaN or infinity"),
    ],
)
def test_bad_precomputed_matrices_are_refused(K, message):
    with pytest.raises(ValueError, match=message):
        PrecomputedKernel(K)


def test_training_rows_must_be_finite_and_a_matrix():
    with pytest.raises(ValueError, match="X contains NaN"):
        TrainingKernel(np.array([[1.0, np.nan]]), make_kernel("linear"))
    with pytest.raises(ValueError, match="X must have shape"):
        TrainingKernel(np.ones(3), make_kernel("linear"))


def test_whole_numbers_are_a_precomputed_matrix_too():
    assert PrecomputedKernel(np.eye(3, dtype=np.int64)).columns(np.array([0])).dtype == np.float64


@pytest.mark.parametrize(
    "kernel",
    [
        TrainingKernel(make_rows(), make_kernel("sigmoid", gamma=0.5, coef0=-1.0)),  # negative diagonal
        TrainingKernel(make_rows(), make_kernel("sigmoid", gamma=0.5, coef0=1.0)),
        TrainingKernel(make_rows(), make_kernel(lambda A, B: A @ B.T - 3.0)),
        PrecomputedKernel(np.array([[0.0, 1.0], [1.0, 2.0]])),  # a zero on the diagonal, and more beside it
        PrecomputedKernel(-np.eye(2)),
    ],
)
def test_negative_curvature_is_refused(kernel):
    with pytest.raises(NotPositiveDefiniteError, match="not positive semidefinite"):
        check_positive_semidefinite(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        TrainingKernel(make_rows(), make_kernel("poly", coef0=1.0)),
        TrainingKernel(np.ones((5, 2)), make_kernel("sigmoid", gamma=0.1)),  # rank one
        TrainingKernel(np.abs(make_rows()), make_kernel(chi2_kernel)),
        PrecomputedKernel((make_rows() @ make_rows().T).astype(np.float32)),  # singular, rounded
        PrecomputedKernel(np.zeros((3, 3))),
        PrecomputedKernel(np.zeros((0, 0))),
    ],
)
def test_semidefinite_matrices_pass(kernel):
    check_positive_semidefinite(kernel)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("offset", "scale", "gamma"), [(1e6, 1.0, 1.0), (0.0, 1e19, 0.1), (3e4, 0.01, 100.0)])
def test_rbf_of_long_rows_is_that_of_their_differences(sparse, offset, scale, gamma):
    """Norms of such rows lose the distance between close rows: k(x, x) was 0, or depended on the other rows."""
    rng = np.random.default_rng(0)
    X = offset + scale * rng.normal(size=(30, 4))
    X[5] = X[7]
    expected = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    rows = sp.csr_array(X) if sparse else X
    kernel = make_kernel("rbf", gamma=gamma)
    np.testing.assert_allclose(kernel.block(rows, rows), expected, rtol=0.0, atol=1e-9)
    for i in range(30):
        np.testing.assert_allclose(kernel.block(rows[[i]], rows)[0], expected[i], rtol=0.0, atol=1e-9)
