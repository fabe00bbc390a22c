"""Evaluations of an ascent from some of the rows: exact where rows repeat, close to that of all rows elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference.top_k_ascent import bounds, weights_of
from widemargin import _core
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.solvers.top_k.linear import Ascent, TopKProblem, TopKProgress

LOSSES = [TopKHinge(1), TopKHinge(3, "alpha"), TopKHinge(3, "beta"), TopKHinge(3, "alpha", smoothing=0.5)]


@pytest.mark.parametrize("isa", _core.available_instruction_sets())
@pytest.mark.parametrize("n_classes", [5, 120])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_rows_that_repeat_64_times_are_summed_exactly_by_a_sample(loss, n_classes, isa, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", isa)
    rng = np.random.default_rng(n_classes)
    n = 130
    X = rng.standard_normal((n, 9)) * (rng.random((n, 9)) < 0.5)
    X[3] = 0.0  # its margins are 1, and any dual variables with sum C are the best
    y, costs = rng.integers(0, n_classes, n), rng.uniform(0.1, 2.0, n)
    costs[7] = 0.0
    x = costs[:, None] * rng.uniform(0.8 / n_classes, 1.0 / n_classes, (n, n_classes))  # feasible
    x[np.arange(n), y] = 0.0
    x[11] = 0.0
    repeated = [np.repeat(part, 64, axis=0) for part in (X, y, costs, x)]
    problem = TopKProblem.of(sp.csr_array(repeated[0]), repeated[1], n_classes, loss, repeated[2], 0.0)
    ascent = Ascent(problem, np.float64, 0, 2, sp.csr_array(repeated[3]))

    if loss.smoothing == 0.0:
        x[3] = costs[3] / (n_classes - 1)
        x[3, y[3]] = 0.0
    X, y, x, costs = (np.repeat(part, 64, axis=0) for part in (X, y, x, costs))
    primal, dual = bounds(weights_of(X, y, x), X, y, x, costs, loss)
    assert ascent.core.evaluate(True) == pytest.approx((primal, dual), rel=1e-10)
    assert ascent.core.evaluate(False) == pytest.approx((primal, dual), rel=1e-10)


@pytest.mark.parametrize("alike", [False, True], ids=["different rows", "rows with a common part"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_gap_of_a_sample_is_close_to_that_of_all_rows(loss, alike):
    rng = np.random.default_rng(5)
    n, d, n_classes = 10_000, 60, 12
    X = (rng.random((n, d)) < (0.9 if alike else 0.2)).astype(np.float64)
    y = (X @ rng.standard_normal((d, n_classes)) + 2.0 * rng.standard_normal((n, n_classes))).argmax(axis=1)
    order = np.argsort(y, kind="stable")  # rows of one class after another: a sample must have some of each
    problem = TopKProblem.of(sp.csr_array(X[order]), y[order], n_classes, loss, np.ones(n), 1.0)
    ascent = Ascent(problem, np.float64, 0, 1, None)
    for _ in range(5):
        ascent.core.run(3, 1e9)
        (primal, dual), (sampled, same) = ascent.core.evaluate(False), ascent.core.evaluate(True)
        assert same == dual
        assert sampled != primal
        assert sampled - dual == pytest.approx(primal - dual, rel=0.15, abs=1e-9 * primal)


def test_few_rows_are_all_evaluated():
    rng = np.random.default_rng(6)
    X, y = sp.csr_array(rng.standard_normal((8191, 3))), rng.integers(0, 4, 8191)
    ascent = Ascent(TopKProblem.of(X, y, 4, TopKHinge(1), np.ones(8191), 0.0), np.float64, 0, 1, None)
    ascent.core.run(2, 1e9)
    assert ascent.core.evaluate(True) == ascent.core.evaluate(False)


def test_the_evaluation_that_may_be_the_last_has_all_rows():
    progress = TopKProgress(1e-3, 10_000, None)
    early = []
    while progress.gap > 1e-3:
        early.append(progress.is_early)
        progress.passes = progress.next_evaluation
        progress.record((1.0, 1.0 - 0.8**progress.passes), 1, progress.passes)
    assert early == [True, True, True, False]  # after 4, 8, 16 and 31 passes
    progress = TopKProgress(1e-3, 10_000, None)
    progress.plan_from_start(40)
    assert not progress.is_early
    progress.passes = progress.next_evaluation
    progress.record((1.0, 0.9), 1, 1)
    assert (progress.next_evaluation, progress.is_early) == (40, False)
