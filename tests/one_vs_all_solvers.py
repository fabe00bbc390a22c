"""The one-vs-all solvers behind two functions, which can use the NumPy twins in place of the core."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from unittest import mock

import numpy as np

from reference.one_vs_all import binary_problem, solve_block
from reference.starts import separating_start, subspace_start
from widemargin import TimeLimit
from widemargin.problems.losses import get_loss
from widemargin.solvers.one_vs_all import newton, plan
from widemargin.solvers.one_vs_all.problem import BlockTask, Problem
from widemargin.solvers.one_vs_all.starts import MeanStart, start_parameters

INTERCEPTS = {
    "free": {"fit_intercept": True},
    "regularised": {"fit_intercept": True, "regularize_intercept": True},
    "none": {"fit_intercept": False},
}
OF_PROBLEM = {
    "C",
    "loss",
    "sample_weight",
    "positive_weight",
    "negative_weight",
    "fit_intercept",
    "regularize_intercept",
}
OF_PLAN = {"max_iter", "polish", "tighten_cg", "width"}  # set after the choice of the algorithm


def draw_problem(rng, most_rows, most_features, sparse_share):
    """Dense or sparse rows X (n_samples, n_features), and a label with at least one row of each sign."""
    n, d = int(rng.integers(15, most_rows + 1)), int(rng.integers(2, most_features + 1))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.choice([sparse_share, 1.0]))
    y = X @ rng.normal(size=d) + rng.normal(size=n) > rng.choice([0.0, 2.0])
    y[:2] = True, False
    return X, y


def planned(X, Y, **options):
    """The plan that a large problem of this kind gets: it is not polished, however small."""
    problem = Problem.of(X, Y, **{name: options.pop(name) for name in OF_PROBLEM & set(options)})
    changes = {name: options.pop(name) for name in OF_PLAN & set(options)}
    with mock.patch.multiple(plan, SMALL_SPARSE_WORK=0, SMALL_DENSE_WORK=0):
        return replace(plan.make_plan(problem, **options), **changes)


def solve_large(X, Y, *, callback=None, time_limit_s=None, **options):
    """Solve by the algorithm that the plan of a large problem chooses."""
    if time_limit_s is not None:
        callback = TimeLimit(time_limit_s, callback)
    return plan.solve(planned(X, Y, **options), callback=callback)


def solve_newton(
    X, Y, *, backend="core", init="zero", labels_per_block=None, callback=None, time_limit_s=None, **options
):
    """Solve by truncated Newton, by default from zero; in blocks of a given size, or by the NumPy twins."""
    if time_limit_s is not None:
        callback = TimeLimit(time_limit_s, callback)
    numbers = start_parameters(options.get("init_params"), options.get("loss", "squared_hinge"))
    chosen = replace(planned(X, Y, init=init, **options), algorithm="newton", start_parameters=numbers)
    with contextlib.ExitStack() as patches:
        if backend == "reference":
            patches.enter_context(numpy_twins())
        if labels_per_block is not None:
            patches.enter_context(blocks_of(labels_per_block))
        return plan.solve(chosen, callback=callback)


@contextlib.contextmanager
def numpy_twins():
    """Let the NumPy specification solve labels and make starts, in place of the core."""

    def solve(task, X, out):
        return solve_block(X, task, get_loss(task.loss), out)

    def fill(start, labels, task, out):
        rows, weight = start.X.astype(np.float64), task.row_weight
        for j in range(len(labels)):
            problem = binary_problem(task, rows, j, get_loss(task.loss))
            if start.separate is None:
                v = subspace_start(problem, weight)
            else:
                v = separating_start(problem, weight, *start.separate)
            out.coef[j], out.intercept[j] = v[:-1], v[-1]

    with mock.patch.object(BlockTask, "solve", solve), mock.patch.object(MeanStart, "fill", fill):
        yield


def blocks_of(n_labels):
    """Let the Newton solver work in blocks of this many labels."""
    run = newton.BlockRun
    return mock.patch.object(newton, "BlockRun", lambda *given: run(*given, n_labels, n_labels))
