"""The fast one-vs-all solver with rows indexed by feature: certificates, recomputed by brute force, on adverse rows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from liblinear import liblinear, liblinearutil

from one_vs_all_solvers import planned, solve_large
from sparse_rows import arrays
from widemargin import OneVsAllClassifier, _core
from widemargin.solvers.one_vs_all import plan as plan_module
from widemargin.solvers.one_vs_all.fast import shared_choices
from widemargin.solvers.one_vs_all.plan import solve
from widemargin.solvers.result import Status

GAP_TOL = 1e-3
N_ROWS = 9000  # so that rare labels are solved on working sets
N_FEATURES = 8000


def text_rows(rng, n_rows=N_ROWS, n_features=N_FEATURES, length=9):
    """Rows of unit length: a few frequent and many rare features, without negative values."""
    popularity = 1.0 / np.arange(11, n_features + 11)
    columns = rng.choice(n_features, size=(n_rows, length), p=popularity / popularity.sum())
    values = rng.uniform(0.5, 2.0, columns.size)
    X = sp.csr_array((values, columns.ravel(), np.arange(0, columns.size + 1, length)), shape=(n_rows, n_features))
    X.sum_duplicates()
    return sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X)


def scaled(X, size):
    """Three rows are `size` times as long."""
    return sp.csr_array(sp.diags_array(np.where(np.isin(np.arange(X.shape[0]), [3, 2000, 7000]), size, 1.0)) @ X)


def adverse_rows(kind):
    rng = np.random.default_rng(4)
    if kind == "long":  # of 5,000 entries, and one whose sums may overflow
        X = text_rows(rng, n_features=18_000).tolil()
        X[:3] = np.where(rng.random((3, 18_000)) < 5000 / 18_000, 0.05, 0.0)
        X[3] = 0.05
        return sp.csr_array(X)
    X = text_rows(rng)
    if kind == "signed":
        X.data *= np.where(rng.random(X.nnz) < 0.1, -1.0, 1.0)
    elif kind == "empty":  # rows without values, and values that are zero but stored
        X = sp.csr_array(sp.diags_array((np.arange(N_ROWS) % 20 > 0).astype(float)) @ X)
    elif kind == "single value":  # far above all others, and in a feature whose weights are small
        rare = np.argsort(np.bincount(X.indices, minlength=N_FEATURES))[4000:4010]
        X = X.tolil()
        X[20:30, rare] = 1e6 * np.eye(10)
        X = sp.csr_array(X)
    elif kind != "usual":
        X = scaled(X, float(kind))
    return X


def labels_for(X, rng):
    """Labels of one row, of a few, of many (their intercepts are above −1), and of most rows."""
    n_rows, n_labels = X.shape[0], 14
    scores = X @ rng.normal(size=(X.shape[1], n_labels)) + 0.3 * rng.normal(size=(n_rows, n_labels))
    scores /= np.sqrt(1 + np.asarray(X.multiply(X).sum(axis=1)))[:, None]
    counts = [1, 1, 1, 1, 2, 1, 2, 3, 8, 30, 100, 900, 4400, 8000]
    Y = np.zeros((n_rows, n_labels), dtype=bool)
    for j, count in enumerate(counts):
        Y[np.argsort(-scores[:, j], kind="stable")[:count], j] = True
    return sp.csr_array(Y)


EASY = ["usual", "long", "signed", "empty", "1e-6", "300"]
# Labels are finished by the Newton solver, and rounding its weights to float32 moves scores of long rows by 0.006: the
# certified gap holds, the stopping rule may not.
KINDS = [*EASY, "single value", "1e6"]


@pytest.fixture(scope="module")
def problems():
    """Rows and labels of every kind."""
    rows = {kind: adverse_rows(kind) for kind in KINDS}
    return {kind: (X, labels_for(X, np.random.default_rng(5))) for kind, X in rows.items()}


def objectives_of(X, Y, result, penalty_b=0.0):
    """½‖w‖² + ½ penalty_b b² + Σ max(0, 1 − y (w·x + b))² over all rows in float64, one label at a time."""
    coef = sp.csr_array(result.coef).astype(np.float64)
    values = []
    for j in range(Y.shape[1]):
        w, y = coef[[j]].toarray().ravel(), np.where(Y[:, [j]].toarray().ravel(), 1.0, -1.0)
        margins = y * (X.astype(np.float64) @ w + float(result.intercept[j]))
        values.append(
            0.5 * w @ w
            + 0.5 * penalty_b * float(result.intercept[j]) ** 2
            + (np.maximum(0.0, 1.0 - margins) ** 2).sum()
        )
    return np.array(values)


def bounds_and_ratios(X, Y, result, tol):
    """The dual objective at α = 2 max(0, 1 − y s), balanced, and ‖∇f‖ over what the stopping rule allows."""
    X, duals, ratios = X.astype(np.float64), [], []
    for j in range(Y.shape[1]):
        w, b = np.asarray(result.coef[j], dtype=np.float64), float(result.intercept[j])
        positive = Y[:, [j]].toarray().ravel()
        y = np.where(positive, 1.0, -1.0)
        alpha = 2 * np.maximum(0.0, 1 - y * (X @ w + b))
        gradient = np.append(w - X.T @ (y * alpha), -(y * alpha).sum())
        at_zero = np.append(-2 * (X.T @ y), -2 * y.sum())
        rare = min(positive.sum(), (~positive).sum())
        ratios.append(np.linalg.norm(gradient) / (tol * rare / len(y) * np.linalg.norm(at_zero)))
        sides = np.array([alpha[~positive].sum(), alpha[positive].sum()])
        balanced = alpha * (sides.min() / sides)[positive.astype(int)]
        u = X.T @ (y * balanced)
        duals.append((balanced - balanced**2 / 4).sum() - 0.5 * u @ u)
    return np.array(duals), np.array(ratios)


def is_indexed(X, result, prune=0.0):
    """For which labels the last check of the solver could use the index."""
    hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
    isa = _core.available_instruction_sets()[0]
    coef = sp.csr_array(result.coef).toarray().astype(np.float32)
    rows = arrays(X.astype(np.float32))
    return np.array(
        [
            hooks.screen_rows(*rows, w, float(b), -1.01, prune, True, 32, isa)[0]
            for w, b in zip(coef, result.intercept, strict=True)
        ]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_certificates_hold_over_all_rows(problems, kind, dtype):
    X, Y = problems[kind]
    X = X.astype(dtype)
    result = solve_large(X, Y, row_index=True, gap_tol=GAP_TOL)
    np.testing.assert_allclose(result.primal_by_label, objectives_of(X, Y, result), rtol=1e-10)
    assert (result.dual_by_label <= result.primal_by_label).all()
    if kind in EASY:
        assert result.status is Status.CONVERGED
        duals, ratios = bounds_and_ratios(X, Y, result, 0.01)
        assert ratios.max() <= 1.0
        assert (result.primal_by_label - result.dual_by_label <= GAP_TOL * result.primal_by_label).all()
        np.testing.assert_allclose(result.dual_by_label, duals, rtol=1e-6)
    if kind == "usual":
        assert (result.intercept > -1).any()
        assert is_indexed(X, result).sum() >= 7
    if kind == "signed":
        assert not is_indexed(X, result).any()


@pytest.mark.parametrize("prune", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_index_changes_neither_bounds_nor_what_pruning_costs(problems, kind, prune):
    X, Y = problems[kind]
    with_index, without = (solve_large(X, Y, row_index=indexed, prune=prune) for indexed in (True, False))
    for result in (with_index, without):
        assert result.status is Status.CONVERGED
        np.testing.assert_allclose(result.primal_by_label, objectives_of(X, Y, result), rtol=1e-10)
    primal, dual, _, before, _ = with_index.bounds_by_label.T
    _, dual_without, _, before_without, _ = without.bounds_by_label.T
    assert (before - dual <= GAP_TOL * before).all()
    np.testing.assert_allclose(before, before_without, rtol=GAP_TOL)
    # Each lower bound is below the optimum, and so below every objective.
    assert (np.maximum(dual, dual_without) <= np.minimum(before, before_without) * (1 + 1e-12)).all()
    if prune == 0 and kind == "usual":
        np.testing.assert_array_equal(primal, before)


@pytest.mark.parametrize("kind", ["usual", "long", "empty"])
def test_the_path_of_a_label_does_not_depend_on_pruning(problems, kind):
    X, Y = problems[kind]
    whole, pruned = (solve_large(X, Y, row_index=True, prune=prune) for prune in (0.0, 0.5))
    np.testing.assert_array_equal(whole.n_iter, pruned.n_iter)
    np.testing.assert_array_equal(whole.intercept, pruned.intercept)
    np.testing.assert_allclose(pruned.bounds_by_label[:, [1, 3]], whole.bounds_by_label[:, [1, 3]], rtol=1e-12)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("regularize_intercept", [True, False])
def test_a_value_that_float32_cannot_hold_is_not_certified_away(problems, regularize_intercept, indexed):
    X, Y = problems["usual"]
    X, Y = X.copy(), Y[:, :6]
    X.data[X.indptr[100]] = 1e39
    result = solve_large(X, Y, row_index=indexed, regularize_intercept=regularize_intercept)
    objectives = objectives_of(X, Y, result, float(regularize_intercept))
    np.testing.assert_allclose(result.primal_by_label, objectives, rtol=1e-10)
    assert (result.dual_by_label <= objectives).all()


@pytest.mark.parametrize("regularize_intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rows_that_pruning_brings_back_from_far_below_the_margin(seed, regularize_intercept):
    # Weights of f are pruned, those of g are kept. The last rows have scores near −10⁶, and after pruning near −1;
    # float32 rounds the difference by up to 0.06.
    rng = np.random.default_rng(seed)
    n_extra, (f, g) = 400, (N_FEATURES, N_FEATURES + 1)
    X = sp.lil_array(sp.hstack([text_rows(rng), sp.csr_array((N_ROWS, 2))]))
    X[:25, g] = 0.5
    X[5:25, f] = 2.0
    extra = sp.lil_array((n_extra, N_FEATURES + 2))
    extra[:, f] = 3e6
    extra[:, g] = rng.uniform(0.0, 0.2, n_extra)[:, None]
    X = sp.csr_array(sp.vstack([X, extra]))
    Y = sp.csr_array((np.arange(N_ROWS + n_extra) < 5)[:, None])
    for indexed in (True, False):
        result = solve_large(X, Y, row_index=indexed, prune=0.8, regularize_intercept=regularize_intercept)
        kept = result.coef.toarray().ravel()
        assert kept[f] == 0 < kept[g]
        np.testing.assert_allclose(
            result.primal_by_label, objectives_of(X, Y, result, float(regularize_intercept)), rtol=1e-10
        )


@pytest.mark.parametrize("prune", [0.0, 0.01])
@pytest.mark.parametrize("kind", ["usual", "long"])
def test_threads_and_ranges_do_not_change_results(problems, kind, prune):
    X, Y = problems[kind]
    plan = planned(X, Y, row_index=True, prune=prune, n_threads=2)
    assert plan.row_index
    whole = solve(plan)
    one = solve(replace(plan, n_threads=1))
    parted = replace(plan, choices=shared_choices(plan))
    parts = [solve(parted, ends) for ends in itertools.pairwise([0, 1, 6, Y.shape[1]])]
    stack = sp.vstack if prune > 0 else np.vstack
    for intercept, bounds, coef in (
        (one.intercept, one.bounds_by_label, one.coef),
        (
            np.concatenate([part.intercept for part in parts]),
            np.concatenate([part.bounds_by_label for part in parts]),
            stack([part.coef for part in parts]),
        ),
    ):
        np.testing.assert_array_equal(intercept, whole.intercept)
        np.testing.assert_array_equal(bounds, whole.bounds_by_label)
        assert abs(sp.csr_array(coef) - sp.csr_array(whole.coef)).max() == 0


@pytest.mark.parametrize("j", [0, 4, 6])
def test_liblinear_finds_no_better_weights_than_the_lower_bound(problems, j):
    X, Y = problems["usual"]
    Y = Y[:, [j]]
    result = solve_large(X, Y, row_index=True)
    assert is_indexed(X, result).all()
    y = Y.toarray().ravel()
    order = np.argsort(~y, kind="stable")  # LIBLINEAR's first class is the first label it meets
    data = liblinear.problem(np.where(y[order], 1.0, -1.0), sp.csr_matrix(X[order]), bias=1)
    w, b = liblinearutil.train(data, liblinear.parameter("-s 2 -c 1 -e 1e-9 -B 1 -R -q")).get_decfun()
    margins = np.where(y, 1.0, -1.0) * (X @ np.array(w) + b)
    best = 0.5 * np.dot(w, w) + (np.maximum(0.0, 1.0 - margins) ** 2).sum()
    assert result.dual_by_label[0] <= best * (1 + 1e-9)
    assert best <= result.primal_by_label[0] * (1 + 1e-9)


def test_the_estimator_has_the_same_certificate_with_and_without_an_index(problems, monkeypatch):
    monkeypatch.setattr(plan_module, "SMALL_SPARSE_WORK", 0)
    X, Y = problems["usual"]
    models = [OneVsAllClassifier(row_index=indexed, prune=0.01, n_jobs=1).fit(X, Y) for indexed in (True, False)]
    certificates = [model.certificate_ for model in models]
    assert certificates[0].primal == pytest.approx(certificates[1].primal, rel=GAP_TOL)
    for certificate in certificates:
        before = certificate.primal_before_pruning
        assert before - certificate.dual <= GAP_TOL * before
