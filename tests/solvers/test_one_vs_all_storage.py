"""The one-vs-all solver: stored weights and their bounds, the forms of its input, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import solve_newton
from reference.binary_certificate import dual_bound
from reference.binary_objective import BinaryProblem
from widemargin.problems.losses import get_loss


def objective(X, y, w, b):
    """The objective, implemented independently in float64; y is boolean."""
    margins = np.where(y, 1.0, -1.0) * (X.astype(np.float64) @ w.astype(np.float64) + float(b))
    losses = np.sum(np.maximum(0.0, 1.0 - margins) ** 2)
    return 0.5 * (w.astype(np.float64) @ w.astype(np.float64)) + losses


def objectives(X, Y, coef, intercept):
    coef = coef.toarray() if sp.issparse(coef) else coef
    labels = Y.toarray().astype(bool).T
    return np.array([objective(X, y, w, b) for y, w, b in zip(labels, coef, intercept, strict=True)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_are_those_of_the_stored_weights(labelled_rows, dtype):
    X, Y = labelled_rows
    X = X.astype(dtype)
    full, pruned = (solve_newton(X, Y, prune=prune) for prune in (0.0, 0.1))
    assert full.coef.dtype == pruned.coef.dtype == full.intercept.dtype == dtype
    assert isinstance(full.coef, np.ndarray)
    assert sp.issparse(pruned.coef)
    kept = np.where(np.abs(full.coef) < 0.1, 0, full.coef)
    np.testing.assert_array_equal(pruned.coef.toarray(), kept)
    np.testing.assert_array_equal(pruned.intercept, full.intercept)
    np.testing.assert_allclose(pruned.primal_by_label, objectives(X, Y, pruned.coef, pruned.intercept), rtol=1e-12)
    before = objectives(X, Y, full.coef, full.intercept)
    assert pruned.certificate.primal_before_pruning == pytest.approx(before.sum(), rel=1e-12)
    assert full.certificate.primal == pytest.approx(before.sum(), rel=1e-12)
    np.testing.assert_array_equal(pruned.dual_by_label, full.dual_by_label)
    norms = [np.sum(np.square(w.astype(np.float64)), axis=1) for w in (kept, full.coef)]
    np.testing.assert_allclose(pruned.pruned_share, 1 - norms[0] / norms[1], atol=1e-12)
    assert not full.pruned_share.any()


def test_dual_bound_is_that_of_the_weights_by_numpy(labelled_rows):
    X, Y = labelled_rows
    result = solve_newton(X, Y)
    for j, y in enumerate(Y.toarray().T):
        sign = np.where(y, 1.0, -1.0)
        problem = BinaryProblem(X, sign, np.ones(120), get_loss("squared_hinge"), 1.0, 0.0)
        v = np.append(result.coef[j], result.intercept[j])
        assert result.dual_by_label[j] == pytest.approx(dual_bound(problem, problem.scores(v)), rel=1e-11)


def test_sparse_and_dense_rows_agree(labelled_rows):
    X, Y = labelled_rows
    sparse, dense, fortran = (solve_newton(rows, Y, tol=1e-8) for rows in (X, X.toarray(), X.toarray(order="F")))
    np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-9)
    np.testing.assert_array_equal(dense.coef, fortran.coef)


def test_read_only_memory_maps_with_64_bit_indices_are_taken_as_they_are(labelled_rows, tmp_path):
    X, Y = labelled_rows
    parts = []
    for name, dtype in (("data", np.float32), ("indices", np.int64), ("indptr", np.int64)):
        np.save(tmp_path / f"{name}.npy", getattr(X, name).astype(dtype))
        parts.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    mapped = sp.csr_matrix(X.shape, dtype=np.float32)
    mapped.data, mapped.indices, mapped.indptr = parts
    result = solve_newton(mapped, Y)
    assert result.coef.tobytes() == solve_newton(X.astype(np.float32), Y).coef.tobytes()


def test_small_memory_limits_change_nothing_but_the_blocks(labelled_rows):
    X, Y = labelled_rows
    calls = []
    options = {"prune": 0.01, "n_threads": 3}
    small = solve_newton(X, Y, memory_limit_mb=1e-3, callback=lambda p: calls.append(p.done) or False, **options)
    assert calls == list(range(1, 13))
    assert small.coef.data.tobytes() == solve_newton(X, Y, **options).coef.data.tobytes()


def test_explicit_zeros_and_repeated_entries_of_Y_are_fixed(labelled_rows):
    X, _ = labelled_rows
    messy = sp.coo_array((np.array([1, 1, 0, 1]), (np.array([3, 3, 5, 8]), np.zeros(4, int))), shape=(120, 1))
    clean = np.zeros((120, 1))
    clean[[3, 8]] = 1
    assert solve_newton(X, messy).coef.tobytes() == solve_newton(X, clean).coef.tobytes()
