"""One solution of one-vs-all stored at several pruning thresholds, each with its own certificate.

    w(t)_k = w_k if |w_k| ≥ t, else 0         primal(t) = Σ_j L_j(w_j(t), b_j)  in float64 over all rows

Dropping weights changes neither the optimum nor its lower bound, so a threshold costs a copy of the weights and one
evaluation of the objective: for sparse X and the squared hinge a batched pass in which only rows near a margin get
float64 scores, otherwise the Newton solver with no step allowed. Memory: X once more as (column, value) pairs for the
former, the weights at one threshold, and a work area per thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.scores import drop_small, squared_norms
from widemargin.solvers.one_vs_all.fast import weight_arrays
from widemargin.solvers.one_vs_all.plan import Plan, solve
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS, OneVsAllResult

__all__ = ["prune_sweep", "stored_objectives"]

SMALLEST = float(np.finfo(np.float32).tiny)  # drops zeros only: weights that are never dense


def prune_sweep(plan: Plan, result: OneVsAllResult, thresholds: Sequence[float]) -> Iterator[OneVsAllResult]:
    """Yield the result at each threshold, as if it had been solved with that `prune`.

    Parameters
    ----------
    plan : Plan
        What was solved.
    result : OneVsAllResult
        The solution, pruned at no more than the smallest threshold.
    thresholds : sequence of float
        Weights smaller than this are dropped.

    Yields
    ------
    OneVsAllResult
        `result` with the pruned weights, their objectives and certificate, and the share of ‖w‖² that is gone.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.plan import make_plan, solve
    >>> from widemargin.solvers.one_vs_all.problem import Problem
    >>> from widemargin.solvers.one_vs_all.prune_sweep import prune_sweep
    >>> X, Y = np.array([[1.0, 0.1], [-1.0, 0.1]]), np.array([[1], [0]])
    >>> plan = make_plan(Problem.of(X, Y), prune=1e-9)
    >>> [round(sweep.certificate.gap, 3) for sweep in prune_sweep(plan, solve(plan), [0.01, 1.0])]
    [0.0, 1.6]
    """
    objectives = _batched_objectives(plan, result.coef, result.intercept, thresholds)
    before = squared_norms(result.coef)
    for place, threshold in enumerate(thresholds):
        coef = drop_small(result.coef, threshold)
        primal = objectives[place] if objectives is not None else _objectives_one_by_one(plan, coef, result.intercept)
        kept = np.divide(squared_norms(coef), before, out=np.ones_like(before), where=before > 0)
        bounds = result.bounds_by_label.copy()
        bounds[:, BOUND_COLUMNS.index("primal")] = primal
        bounds[:, BOUND_COLUMNS.index("pruned_share")] = 1.0 - kept * (1.0 - result.pruned_share)
        rest = {"history": result.history, "n_iter": result.n_iter, "duals": result.duals}
        yield OneVsAllResult.of(coef, result.intercept, result.status_by_label, bounds, **rest)


def stored_objectives(plan: Plan, coef: Any, intercept: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The objective of given weights in float64 over all rows, for every label.

    Parameters
    ----------
    plan : Plan
        The problem, and how it is solved.
    coef : ndarray or csr_array of shape (n_labels, n_features)
        The weights: numbers of the type of X.
    intercept : ndarray of shape (n_labels,)
        The intercepts.

    Returns
    -------
    ndarray of shape (n_labels,)
        The objectives.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.plan import make_plan
    >>> from widemargin.solvers.one_vs_all.problem import Problem
    >>> from widemargin.solvers.one_vs_all.prune_sweep import stored_objectives
    >>> X, Y = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[1], [0]])
    >>> stored_objectives(make_plan(Problem.of(X, Y)), np.array([[0.5, 0.0]]), np.zeros(1))  # ½ · 0.25 + 2 · 0.25
    array([0.625])
    """
    objectives = _batched_objectives(plan, coef, intercept, [0.0])
    return _objectives_one_by_one(plan, coef, intercept) if objectives is None else objectives[0]


def _objectives_one_by_one(plan: Plan, coef: Any, intercept: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Objectives of shape (n_labels,) by the Newton solver with no step allowed."""
    stay = replace(plan, algorithm="newton", start=(coef, intercept), max_iter=0, polish=False, prune=SMALLEST)
    return solve(stay).primal_by_label


def _batched_objectives(
    plan: Plan, coef: Any, intercept: npt.NDArray[Any], thresholds: Sequence[float]
) -> npt.NDArray[np.float64] | None:
    """Objectives of shape (n_thresholds, n_labels) by batched passes; None where these do not apply."""
    X, arrays = plan.problem.X, weight_arrays(coef, intercept)
    as_stored = coef.data if sp.issparse(coef) else coef[coef != 0]
    exact = np.array_equal(arrays["data"], as_stored) and np.array_equal(arrays["intercept"], intercept)
    fits = sp.issparse(X) and X.nnz * 16 <= plan.memory_limit_mb * 2**20
    if plan.problem.loss != "squared_hinge" or not fits or not exact:
        return None
    shared = ("row_weight", "positive_rows", "positive_indptr", "positive_factor", "negative_factor")
    values = _core.pruned_objectives(
        data=X.data,
        indices=X.indices,
        indptr=X.indptr,
        n_features=X.shape[1],
        **{name: getattr(plan.problem, name) for name in (*shared, "C", "bias_value", "bias_penalty")},
        n_threads=plan.n_threads,
        coef_data=arrays["data"],
        coef_indices=arrays["indices"],
        coef_indptr=arrays["indptr"],
        intercept=arrays["intercept"],
        thresholds=[float(threshold) for threshold in thresholds],
    )
    return None if np.isnan(values).any() else values.reshape(len(thresholds), -1)
