"""The pieces of one label's objective: compiled against NumPy, and NumPy against mathematics."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from reference.binary_certificate import dual_bound, dual_point, optimal_shift
from reference.binary_objective import BinaryObjective, BinaryProblem
from reference.one_vs_all import binary_problem
from widemargin import _core
from widemargin.problems.losses import LOSSES, get_loss
from widemargin.solvers.one_vs_all.problem import BlockTask

_hooks = pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")
INTERCEPTS = {"free": (1.0, 0.0), "regularised": (1.0, 1.0), "none": (0.0, 1.0)}


def random_case(seed, n, d, density, intercept, spread, loss="squared_hinge"):
    """A matrix with empty rows, a task of one label, a point and a direction."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[rng.random(n) < 0.2] = 0.0
    positives = np.flatnonzero(rng.random(n) < 0.4)
    bias_value, bias_penalty = INTERCEPTS[intercept]
    task = BlockTask(
        positive_rows=positives,
        positive_indptr=np.array([0, len(positives)]),
        row_weight=rng.choice([0.0, 0.5, 1.0, 3.0], size=n),
        positive_factor=np.array([2.0]),
        negative_factor=np.array([0.7]),
        loss=loss,
        C=1.5,
        bias_value=bias_value,
        bias_penalty=bias_penalty,
        tol=0.01,
        gap_tol=np.inf,
        prune=0.0,
        max_iter=10,
        n_threads=1,
    )
    return X, task, spread * rng.normal(size=d + 1), rng.normal(size=d + 1)


def shuffled(X, index_dtype, rng):
    """CSR with the entries of every row in random order, and the given index type."""
    X = sp.csr_matrix(X)
    for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        order = start + rng.permutation(end - start)
        X.indices[start:end], X.data[start:end] = X.indices[order], X.data[order]
    X.indices, X.indptr = X.indices.astype(index_dtype), X.indptr.astype(index_dtype)
    return X


def compiled(X, task, v, d):
    """The values computed by the core: gradient, H d, diagonal, end of the line search; value, dual, shift, step."""
    out = [np.full(len(v), np.nan) for _ in range(4)]
    core_task = _core.OneVsAllTask(**vars(task))
    if sp.issparse(X):
        scalars = _hooks.inspect_label_csr(X.data, X.indices, X.indptr, X.shape[1], core_task, v, d, *out)
    else:
        scalars = _hooks.inspect_label_dense(X, core_task, v, d, *out)
    return out, scalars


def specified(X, task, v, d):
    """The same by the NumPy specification."""
    problem = binary_problem(task, np.asarray(X, dtype=np.float64), 0, get_loss(task.loss))
    objective = BinaryObjective(problem, v)
    gradient, hess_vec, diagonal = objective.gradient(), objective.hess_vec(d), objective.diagonal()
    scalars = [objective.value(), dual_bound(problem, objective.z), optimal_shift(problem, objective.z)]
    slope = gradient @ d
    step = objective.line_search(d, slope) if slope < 0 else 0.0
    return [gradient, hess_vec, diagonal, objective.v], [*scalars, step]


cases = st.builds(
    random_case,
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 30),
    d=st.integers(1, 12),
    density=st.sampled_from([0.0, 0.2, 1.0]),
    intercept=st.sampled_from(sorted(INTERCEPTS)),
    spread=st.sampled_from([0.0, 0.3, 30.0]),
    loss=st.sampled_from(sorted(LOSSES)),
)


@examples(150)
@given(cases, st.sampled_from([np.float32, np.float64]), st.sampled_from([np.int32, np.int64, None]))
def test_compiled_pieces_equal_the_specification(case, dtype, index_dtype):
    X, task, v, d = case
    X = X.astype(dtype)
    if (BinaryObjective(binary_problem(task, X.astype(np.float64), 0, get_loss(task.loss)), v).gradient() @ d) > 0:
        d = -d
    matrix = X if index_dtype is None else shuffled(X, index_dtype, np.random.default_rng(0))
    (gradient, hess_vec, diagonal, end), (value, dual, shift, step) = compiled(matrix, task, v, d)
    vectors, scalars = specified(X, task, v, d)
    scale = 1e-12 * max(1.0, scalars[0])
    for got, expected in zip((gradient, hess_vec, diagonal, end), vectors, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=scale)
    np.testing.assert_allclose((value, dual, step), (scalars[0], scalars[1], scalars[3]), rtol=1e-10, atol=scale)
    # With free room the optimal shift is an interval, of which both may return any point.
    if dual > 0 and task.bias_value:
        np.testing.assert_allclose(shift, scalars[2], rtol=1e-8, atol=1e-10)


@examples(50)
@given(cases)
def test_gradient_and_hess_vec_agree_with_finite_differences(case):
    X, task, v, d = case
    problem, h = binary_problem(task, X, 0, get_loss(task.loss)), 1e-6
    above, below = BinaryObjective(problem, v + h * d), BinaryObjective(problem, v - h * d)
    objective = BinaryObjective(problem, v)
    slope = (above.value() - below.value()) / (2 * h)
    np.testing.assert_allclose(objective.gradient() @ d, slope, rtol=1e-5, atol=1e-5 * max(1.0, objective.value()))
    if task.loss == "logistic" or np.array_equal(above.curvature, below.curvature):  # no row crosses its kink
        difference = (above.gradient() - below.gradient()) / (2 * h)
        np.testing.assert_allclose(objective.hess_vec(d), difference, rtol=1e-4, atol=1e-4)


@examples(50)
@given(cases)
def test_diagonal_is_the_diagonal_of_the_hessian(case):
    X, task, v, _ = case
    objective = BinaryObjective(binary_problem(task, X, 0, get_loss(task.loss)), v)
    hessian = np.array([objective.hess_vec(unit) for unit in np.eye(len(v))])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-10)
    np.testing.assert_allclose(objective.diagonal(), np.diag(hessian), atol=1e-10)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("seed", range(10))
def test_optimal_shift_beats_a_fine_grid(seed, loss):
    X, task, v, _ = random_case(seed, 25, 4, 1.0, "free", 1.0, loss)
    problem = binary_problem(task, X, 0, get_loss(task.loss))
    z = problem.scores(v)

    def losses(t):
        return problem.c @ problem.loss.value(problem.y * (z + t))

    best = losses(optimal_shift(problem, z))
    assert best <= min(losses(t) for t in np.linspace(-8, 8, 4001)) * (1 + 1e-14)


@pytest.mark.parametrize("offset", [-2000.0, 2000.0])
def test_optimal_shift_of_the_logistic_loss_is_found_from_where_it_is_flat(offset):
    # At these scores every curvature is zero in double precision.
    y = np.array([1.0, -1.0, -1.0, -1.0])
    problem = BinaryProblem(np.zeros((4, 1)), y, np.ones(4), get_loss("logistic"), 1.0, 0.0)
    shift = optimal_shift(problem, np.full(4, offset))
    assert shift + offset == pytest.approx(-np.log(3.0), abs=1e-12)


@examples(50)
@given(cases)
def test_dual_point_is_feasible_and_below_any_primal_value(case):
    X, task, v, d = case
    problem = binary_problem(task, X, 0, get_loss(task.loss))
    alpha = dual_point(problem, problem.scores(v))
    assert (alpha >= 0).all()
    assert task.loss != "logistic" or (alpha <= problem.c).all()
    assert (alpha[problem.c == 0] == 0).all()
    if problem.free_intercept:
        assert abs(problem.y @ alpha) <= 1e-13 * alpha.sum()
    bound = dual_bound(problem, problem.scores(v))
    for point in (v, d, np.zeros_like(v)):
        assert 0 <= bound <= BinaryObjective(problem, point).value() * (1 + 1e-12)


def test_no_active_row_leaves_only_the_penalty():
    X = np.array([[1.0], [-1.0]])
    _, task, _, _ = random_case(0, 2, 1, 1.0, "free", 1.0)
    task = BlockTask(**(vars(task) | {"positive_rows": np.array([0]), "positive_indptr": np.array([0, 1])}))
    v, d = np.array([5.0, 0.0]), np.array([-1.0, 2.0])
    (gradient, hess_vec, diagonal, _), (value, _, _, _) = compiled(X, task, v, d)
    assert value == 12.5
    np.testing.assert_array_equal(gradient, [5.0, 0.0])
    np.testing.assert_array_equal(hess_vec, [-1.0, 0.0])
    np.testing.assert_array_equal(diagonal, [1.0, 0.0])


def test_a_wrong_type_is_refused_and_not_copied():
    X, task, v, d = random_case(0, 5, 3, 1.0, "free", 1.0)
    with pytest.raises(TypeError):
        compiled(X.astype(np.int64), task, v, d)
