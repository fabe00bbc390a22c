"""Which algorithm a one-vs-all problem gets, and that ranges of labels have the weights of the whole fit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import planned, solve_large, solve_newton
from widemargin import TimeLimit
from widemargin.datasets import make_zipf_multilabel
from widemargin.solvers.one_vs_all.fast import shared_choices, usual_intercepts, weight_arrays
from widemargin.solvers.one_vs_all.plan import make_plan, solve, work_of
from widemargin.solvers.one_vs_all.problem import Problem
from widemargin.solvers.result import Status


@pytest.fixture(scope="module")
def problem():
    # Enough rows that rare labels are not solved in batches over all of them, and pilots are chosen.
    X, Y = make_zipf_multilabel(12000, 300, 90, labels_per_row=1, nnz_per_row=8, exponent=1.5, random_state=2)
    return X, sp.csc_array(Y)


START = (np.zeros((3, 4)), np.zeros(3))


@pytest.mark.parametrize(
    ("sparse", "options", "algorithm"),
    [
        (True, {}, "fast"),
        (True, {"loss": "logistic"}, "logistic"),
        (False, {}, "dense"),
        (False, {"loss": "logistic"}, "dense"),
        (True, {"start": START}, "fast"),
        (True, {"start": START, "loss": "logistic"}, "newton"),
        (False, {"start": START}, "dense"),
        (False, {"start": START, "loss": "logistic"}, "dense"),
        (True, {"init": "subspace"}, "newton"),
        (False, {"init": "zero"}, "newton"),
        (True, {"tol": 1e-8}, "newton"),
        (False, {"gap_tol": 1e-9}, "newton"),
        (True, {"gap_tol": None}, "fast"),
        (True, {"memory_limit_mb": 1e-4}, "newton"),  # no room for the copy of the rows
        (False, {"memory_limit_mb": 1e-4}, "newton"),
    ],
    ids=str,
)
def test_rows_loss_start_and_tolerances_decide_the_algorithm(sparse, options, algorithm):
    X = np.random.default_rng(0).normal(size=(30, 4))
    assert planned(sp.csr_array(X) if sparse else X, np.eye(30)[:, :3], **options).algorithm == algorithm


@pytest.mark.parametrize("sparse", [False, True])
def test_an_iteration_limit_and_small_problems_get_newton(sparse):
    X = np.random.default_rng(0).normal(size=(400, 40))
    problem = Problem.of(sp.csr_array(X) if sparse else X, np.arange(400)[:, None] % 50 == np.arange(50))
    assert work_of(problem.X, 50) == 50 * (400 * 40 + 40)
    plan = make_plan(problem)
    assert (plan.algorithm, plan.polish) == ("fast" if sparse else "dense", False)
    assert make_plan(problem, max_iter=7).algorithm == "newton"
    one = make_plan(replace(problem, X=problem.X[:20], n_labels=1))
    assert (one.algorithm, one.polish) == ("newton", True)


def test_float32_dense_rows_need_no_copy():
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    assert planned(X, np.eye(30), memory_limit_mb=1e-4).algorithm == "dense"


def test_threads_and_blocks_shrink_with_the_memory_limit():
    X = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    plans = [planned(X, np.eye(3000)[:, :64], n_threads=8, memory_limit_mb=limit) for limit in (1024.0, 12.0, 0.1)]
    assert [plan.width for plan in plans] == [32, 32, 1]
    assert [plan.task(0, 64).n_threads for plan in plans] == [8, 2, 1]


def rows_with(n_values, dtype=np.float32):
    """Ten rows with this many values in all."""
    X = sp.csr_array(np.ones((10, n_values // 10), dtype=dtype))
    assert X.nnz == n_values
    return X, np.eye(10)[:, :3]


@pytest.mark.parametrize(
    ("options", "indexed"),
    [
        ({}, False),  # fewer than 6 million values
        ({"row_index": True}, True),
        ({"row_index": False}, False),
        ({"row_index": True, "loss": "logistic"}, False),
        ({"row_index": True, "init": "zero"}, False),
        ({"row_index": True, "tol": 1e-8}, False),
    ],
    ids=str,
)
def test_rows_are_indexed_for_the_fast_solver_where_asked(options, indexed):
    X, Y = rows_with(1000)
    assert planned(X, Y, **options).row_index is indexed
    assert not planned(X.toarray(), Y, **options).row_index


@pytest.mark.parametrize("n_values", [5_999_990, 6_000_000])
def test_many_values_are_indexed_without_being_asked(n_values):
    X, Y = rows_with(n_values)
    assert planned(X, Y).row_index is (n_values == 6_000_000)
    assert planned(X, Y, row_index="auto").row_index is (n_values == 6_000_000)
    assert not planned(X, Y, row_index=False).row_index
    assert not planned(X.toarray(), Y).row_index


@pytest.mark.parametrize(("dtype", "copy_bytes"), [(np.float32, 8), (np.float64, 16)])
def test_an_index_that_exceeds_the_memory_limit_is_not_built(dtype, copy_bytes):
    X, Y = rows_with(100_000, dtype)
    copy, index = 100_000 * copy_bytes / 2**20, 100_000 * 4 / 2**20
    for limit, expected in ((copy + index, True), (copy + 0.99 * index, False), (copy, False)):
        plan = planned(X, Y, row_index=True, memory_limit_mb=limit)
        assert (plan.algorithm, plan.row_index) == ("fast", expected)
    assert planned(X, Y, row_index=True, memory_limit_mb=0.99 * copy).algorithm == "newton"


@pytest.mark.parametrize("bounds", [[0, 90], [0, 1, 40, 41, 90], [0, 33, 66, 90]], ids=str)
def test_ranges_are_those_of_the_whole(problem, bounds):
    X, Y = problem
    plan = planned(X, Y, prune=0.01, n_threads=2)
    whole = solve(plan)
    plan = replace(plan, choices=shared_choices(plan))
    assert 10 < len(plan.choices.pilot) < 80
    parts = [solve(plan, label_range) for label_range in itertools.pairwise(bounds)]
    assert (sp.vstack([part.coef for part in parts], format="csr") != whole.coef).nnz == 0
    np.testing.assert_array_equal(np.concatenate([part.intercept for part in parts]), whole.intercept)
    np.testing.assert_array_equal(np.concatenate([part.n_iter for part in parts]), whole.n_iter)
    np.testing.assert_array_equal(np.concatenate([part.bounds_by_label for part in parts]), whole.bounds_by_label)


@pytest.mark.parametrize("options", [{"loss": "logistic"}, {"init": "msi"}, {"dense": True}], ids=str)
def test_ranges_of_other_algorithms_are_those_of_the_whole_too(problem, options):
    X, Y = problem[0][:900], sp.csr_array(problem[1])[:900]
    X = X.toarray() if options.pop("dense", False) else X
    plan = planned(X, Y, **options)
    whole, bounds = solve(plan), [0, plan.width or 7, 2 * (plan.width or 7), 90]
    parts = [solve(plan, label_range) for label_range in itertools.pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate([part.coef for part in parts]), whole.coef)
    np.testing.assert_array_equal(np.concatenate([part.bounds_by_label for part in parts]), whole.bounds_by_label)
    assert whole.records is None
    assert all(part.records is not None for part in parts)


def some_missing(start):
    """A start without the weights of every third label."""
    coef, intercept = sp.csr_array(start.coef).tolil(), start.intercept.copy()
    coef[::3], intercept[::3] = 0.0, 0.0
    return coef.tocsr(), intercept


def assert_same(parts, whole):
    coefs = [sp.csr_array(sp.vstack([sp.csr_array(part.coef) for part in parts])), sp.csr_array(whole.coef)]
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(*(getattr(coef, name) for coef in coefs))
    for name in ("intercept", "n_iter", "bounds_by_label"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


@pytest.mark.parametrize("bounds", [[0, 90], [0, 1, 40, 41, 90]], ids=str)
@pytest.mark.parametrize("few", [False, True])
def test_ranges_with_a_start_are_those_of_the_whole(problem, bounds, few):
    X, Y = problem
    start = some_missing(solve_large(X, Y, C=0.5, prune=0.01))
    if few:  # the first labels alone have weights, so that others are pilots
        start = sp.vstack([start[0][:5], sp.csr_array((85, X.shape[1]), dtype=X.dtype)], format="csr"), start[1]
    plan = planned(X, Y, prune=0.01, start=start, n_threads=2)
    whole = solve(plan)
    assert whole.status is Status.CONVERGED
    plan = replace(plan, choices=shared_choices(plan))
    assert bool(plan.choices.pilot) is few
    assert sum(plan.choices.prior[64:]) > 0
    assert_same([solve(plan, label_range) for label_range in itertools.pairwise(bounds)], whole)


@pytest.mark.parametrize("n_known", [90, 20])
def test_known_intercepts_take_the_place_of_pilots(problem, n_known):
    """As many as are missing to six per frequency are solved; the others come from what is known."""
    X, Y = problem
    before = solve_large(X, Y, prune=0.01)
    counts = np.bincount(sp.csr_array(Y).indices, minlength=90)
    prior = usual_intercepts(counts[:n_known], X.shape[0], before.intercept[:n_known])
    plan = replace(planned(X, Y, prune=0.01), prior=prior)
    whole = solve(plan)
    assert whole.status is Status.CONVERGED
    np.testing.assert_allclose(whole.primal_by_label, before.primal_by_label, rtol=1.1e-3)
    plan = replace(plan, choices=shared_choices(plan))
    frequency = np.floor(np.log2(np.minimum(counts, X.shape[0] - counts)))
    known = {bin_: int((frequency[:n_known] == bin_).sum()) for bin_ in np.unique(frequency)}
    pilots = frequency[plan.choices.pilot]
    for bin_, n in known.items():
        assert (pilots == bin_).sum() <= max(0, 6 - n)
    fewer = planned(X, Y, prune=0.01)
    assert len(pilots) < len(shared_choices(fewer).pilot)
    expected = np.array(prior[64:]) + np.bincount(pilots.astype(int), minlength=64)
    np.testing.assert_array_equal(plan.choices.prior[64:], expected)
    sums = np.bincount(pilots.astype(int), weights=whole.intercept[plan.choices.pilot], minlength=64)
    np.testing.assert_allclose(plan.choices.prior[:64], np.array(prior[:64]) + sums, rtol=1e-6)
    assert_same([solve(plan, label_range) for label_range in ((0, 40), (40, 90))], whole)


def test_a_start_without_weights_is_none(problem):
    X, Y = problem
    nothing = sp.csr_array((90, X.shape[1]), dtype=X.dtype), np.full(90, -3.0)
    assert_same([solve_large(X, Y, prune=0.01, start=nothing)], solve_large(X, Y, prune=0.01))
    rows, labels = X[:900], sp.csr_array(Y)[:900]
    for options in ({"loss": "logistic"}, {"init": "msi"}, {"init": "zero"}):
        with_start = planned(rows, labels, start=nothing, **options)
        assert_same([solve(with_start)], solve(replace(with_start, start=None)))


@pytest.mark.parametrize(
    "options", [{}, {"loss": "logistic"}, {"init": "msi"}, {"init": "ovap++"}, {"dense": True}], ids=str
)
def test_ranges_with_a_start_of_other_algorithms_are_those_of_the_whole_too(problem, options):
    X, Y = problem[0][:900], sp.csr_array(problem[1])[:900]
    options = dict(options)
    X = X.toarray() if options.pop("dense", False) else X
    options = options or {"tol": 1e-7}
    start = some_missing(solve_large(X, Y, C=0.5, loss=options.get("loss", "squared_hinge")))
    plan = planned(X, Y, start=start, **options)
    whole, bounds = solve(plan), [0, plan.width or 7, 2 * (plan.width or 7), 90]
    assert set(whole.status_by_label) <= {"converged", "not_attained"}
    assert_same([solve(plan, label_range) for label_range in itertools.pairwise(bounds)], whole)
    cold = solve(replace(plan, start=None))
    np.testing.assert_allclose(whole.primal_by_label, cold.primal_by_label, rtol=1.1e-3, atol=1e-9)


def test_a_start_of_another_shape_is_refused(problem):
    X, Y = problem
    with pytest.raises(ValueError, match="must have the shapes"):
        planned(X, Y, start=(np.zeros((90, 7)), np.zeros(90)))
    plan = planned(X, Y)
    task, core = plan.task(0, 5), plan.task(0, 5).make_core("FastOneVsAll", X)
    core.set_start(**weight_arrays(np.zeros((4, X.shape[1])), np.zeros(4)))
    with pytest.raises(ValueError, match="one row per label"):
        core.begin(task.positive_rows, task.positive_indptr, task.positive_factor, task.negative_factor)


@pytest.mark.parametrize("dense", [False, True])
def test_weights_of_rows_and_a_start_go_together(problem, dense):
    X, Y = problem[0][:900], sp.csr_array(problem[1])[:900]
    weights = {"sample_weight": np.random.default_rng(0).integers(0, 3, 900), "regularize_intercept": True}
    start = some_missing(solve_large(X, Y, C=0.5))
    warm = solve_large(X.toarray() if dense else X, Y, start=start, **weights)
    best = solve_newton(X.astype(np.float64), Y, tol=1e-7, gap_tol=1e-9, **weights)
    assert warm.status is Status.CONVERGED
    assert (warm.primal_by_label <= best.primal_by_label * (1 + 1.1e-3)).all()
    assert (warm.primal_by_label >= best.dual_by_label * (1 - 1e-9)).all()


def test_a_solver_that_was_stopped_is_not_used_again(problem):
    X, Y = problem
    plan = planned(X, Y, prune=0.01)
    plan = replace(plan, choices=shared_choices(plan))
    assert len(plan.spare_cores) == 1
    stopped = solve(plan, (0, 90), callback=TimeLimit(0.0))
    assert set(stopped.status_by_label) == {"time_limit"}
    assert plan.spare_cores == []
    again = solve(plan, (10, 20))
    assert len(plan.spare_cores) == 1
    assert (again.coef != solve_large(X, Y, prune=0.01).coef[10:20]).nnz == 0


def test_the_search_for_choices_can_be_stopped(problem):
    plan = planned(*problem)
    found = shared_choices(plan, stop=lambda: True)
    assert found is None or found.pilot  # None unless the pilots were faster than the first question


def test_the_core_refuses_choices_that_do_not_fit(problem):
    plan = planned(*problem)
    task = plan.task(0, 5)
    core = task.make_core("FastOneVsAll", plan.problem.X)
    arrays = (task.positive_rows, task.positive_indptr, task.positive_factor, task.negative_factor)
    with pytest.raises(ValueError, match="128 values"):
        core.begin_part(*arrays, [], False, [0.0])
    with pytest.raises(ValueError, match="128 values"):
        core.begin(*arrays, [0.0])
    with pytest.raises(ValueError, match="not here"):
        core.begin_part(*arrays, [5], False, [0.0] * 128)


@pytest.mark.parametrize("init", ["zero", "ovap++"])
def test_a_deadline_ends_the_newton_solver_between_blocks(problem, init):
    X, Y = problem
    seen = []
    result = solve_newton(X, Y, init=init, time_limit_s=0.0, callback=seen.append)
    assert result.status is Status.TIME_LIMIT
    assert not seen
    assert not result.coef.any()
