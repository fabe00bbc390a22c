"""Labels solved in parts have the weights of the whole fit, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.datasets import make_zipf_multilabel
from widemargin.solvers.one_vs_all.fast import solve_fast_one_vs_all
from widemargin.solvers.one_vs_all.label_parts import LabelPart, PartSolver

OPTIONS = {
    "C": 1.0,
    "loss": "squared_hinge",
    "fit_intercept": True,
    "regularize_intercept": False,
    "tol": 0.01,
    "gap_tol": 1e-3,
    "prune": 0.01,
    "max_iter": 1000,
    "memory_limit_mb": 100.0,
}


@pytest.fixture(scope="module")
def problem():
    # Enough rows that rare labels are not solved in batches over all rows, and that pilots are chosen.
    X, Y = make_zipf_multilabel(12000, 300, 90, labels_per_row=1, nnz_per_row=8, exponent=1.5, random_state=2)
    return X, sp.csc_array(Y)


def part_of(Y, first, last):
    indptr = Y.indptr[first : last + 1].astype(np.int64)
    return LabelPart.plain(first, Y.indices[indptr[0] : indptr[-1]].astype(np.int64), indptr - indptr[0])


@pytest.mark.parametrize("bounds", [[0, 90], [0, 1, 40, 41, 90], [0, 33, 66, 90]], ids=str)
def test_parts_are_those_of_the_whole(problem, bounds):
    X, Y = problem
    whole = solve_fast_one_vs_all(X, Y, prune=0.01)
    solver = PartSolver(X, "fast", OPTIONS, n_threads=2)
    choices = solver.find_choices(part_of(Y, 0, 90))
    assert 10 < len(choices.pilot) < 80
    parts = [solver.solve(part_of(Y, first, last), choices) for first, last in itertools.pairwise(bounds)]
    assert (sp.vstack([part.coef for part in parts], format="csr") != whole.coef).nnz == 0
    np.testing.assert_array_equal(np.concatenate([part.intercept for part in parts]), whole.intercept)
    np.testing.assert_array_equal(np.concatenate([part.n_iter for part in parts]), whole.n_iter)
    np.testing.assert_array_equal(np.concatenate([part.bounds_by_label for part in parts]), whole.bounds_by_label)


def test_solver_that_was_stopped_is_recreated(problem):
    X, Y = problem
    solver = PartSolver(X, "fast", OPTIONS, n_threads=1)
    choices = solver.find_choices(part_of(Y, 0, 90))
    stopped = solver.solve(part_of(Y, 0, 90), choices, time_limit_s=0.0)
    assert set(stopped.status_by_label) == {"time_limit"}
    again = solver.solve(part_of(Y, 10, 20), choices)
    whole = solve_fast_one_vs_all(X, Y, prune=0.01)
    assert (again.coef != whole.coef[10:20]).nnz == 0


def test_search_for_choices_can_be_stopped(problem):
    X, Y = problem
    solver = PartSolver(X, "fast", OPTIONS, n_threads=1)
    found = solver.find_choices(part_of(Y, 0, 90), stop=lambda: True)
    assert found is None or found.pilot  # None unless the pilots were faster than the first look


@pytest.mark.parametrize(
    ("name", "call"),
    [("newton", lambda solver, part: solver.find_choices(part)), ("fast", lambda solver, part: solver.solve(part))],
)
def test_choices_belong_to_the_fast_solver(problem, name, call):
    X, Y = problem
    with pytest.raises(ValueError, match="all labels"):
        call(PartSolver(X, name, OPTIONS, n_threads=1), part_of(Y, 0, 2))


def test_core_refuses_choices_that_do_not_fit(problem):
    X, Y = problem
    solver = PartSolver(X, "fast", OPTIONS, n_threads=1)
    part = part_of(Y, 0, 5)
    core = solver._core_solver(solver._inputs(part))
    arrays = solver._inputs(part).label_arrays()
    with pytest.raises(ValueError, match="128 values"):
        core.begin_part(*arrays, [], False, [0.0])
    with pytest.raises(ValueError, match="not here"):
        core.begin_part(*arrays, [5], False, [0.0] * 128)
