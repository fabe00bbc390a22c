"""One solution of one-vs-all stored at several pruning thresholds, each with its own certificate.

    w(t)_k = w_k if |w_k| ≥ t, else 0         primal(t) = Σ_j L_j(w_j(t), b_j)  in float64 over all rows

Dropping weights changes neither the optimum nor its lower bound, so a threshold costs a copy of the weights and one
evaluation of the objective: for sparse X and the squared hinge a batched pass in which only rows near a margin get
float64 scores, otherwise the Newton solver with no step allowed. Memory: X once more as (column, value) pairs for the
former, the weights at one threshold, and a work area a thread.
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
from widemargin.reference.one_vs_all import BOUND_COLUMNS
from widemargin.solvers.one_vs_all.fast import weight_arrays
from widemargin.solvers.one_vs_all.newton import OneVsAllResult, outcome_of, solve_one_vs_all
from widemargin.solvers.one_vs_all.problem import prepare_inputs

__all__ = ["prune_sweep"]

Floats = npt.NDArray[np.float64]


def prune_sweep(
    X: Any,
    Y: Any,
    result: OneVsAllResult,
    thresholds: Sequence[float],
    *,
    C: float = 1.0,
    sample_weight: Any = None,
    positive_weight: Any = None,
    negative_weight: Any = None,
    fit_intercept: bool = True,
    regularize_intercept: bool = False,
    loss: str = "squared_hinge",
    n_threads: int = 1,
    memory_limit_mb: float = 1024.0,
) -> Iterator[OneVsAllResult]:
    """Yield the result at each threshold, as if it had been solved with that `prune`.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        The rows of the solution.
    Y : sparse or dense indicator of shape (n_samples, n_labels)
        Its labels.
    result : OneVsAllResult
        The solution, pruned at no more than the smallest threshold.
    thresholds : sequence of float
        Weights smaller than this are dropped.
    C, sample_weight, positive_weight, negative_weight, fit_intercept, regularize_intercept, loss
        The problem, as it was given to the solver.
    n_threads : int
        Threads of the core; the result does not depend on them.
    memory_limit_mb : float
        Bound on the copy of the rows; above it, the slower evaluation is used.

    Yields
    ------
    OneVsAllResult
        `result` with the pruned weights, their objectives and certificate, and the share of ‖w‖² that is gone.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.newton import solve_one_vs_all
    >>> from widemargin.solvers.one_vs_all.prune_sweep import prune_sweep
    >>> X, Y = np.array([[1.0, 0.1], [-1.0, 0.1]]), np.array([[1], [0]])
    >>> result = solve_one_vs_all(X, Y, tol=1e-9, prune=1e-9)
    >>> [sweep.certificate.gap.__round__(3) for sweep in prune_sweep(X, Y, result, [0.01, 1.0])]
    [0.0, 1.6]
    """
    problem: dict[str, Any] = {
        "C": C,
        "fit_intercept": fit_intercept,
        "regularize_intercept": regularize_intercept,
        "n_threads": n_threads,
        "memory_limit_mb": memory_limit_mb,
    }
    weights: dict[str, Any] = {
        "sample_weight": sample_weight,
        "positive_weight": positive_weight,
        "negative_weight": negative_weight,
    }
    objectives = _fast_objectives(X, Y, result, thresholds, loss, problem, weights)
    for place, threshold in enumerate(thresholds):
        coef = drop_small(result.coef, threshold)
        if objectives is not None:
            primal = objectives[place]
        else:
            start: dict[str, Any] = {"initial": (coef, result.intercept), "max_iter": 0, "prune": threshold}
            primal = solve_one_vs_all(X, Y, loss=loss, **problem, **weights, **start).primal_by_label
        yield _with_weights(result, coef, primal)


def _fast_objectives(
    X: Any,
    Y: Any,
    result: OneVsAllResult,
    thresholds: Sequence[float],
    loss: str,
    problem: dict[str, Any],
    weights: dict[str, Any],
) -> Floats | None:
    """Objectives of shape (n_thresholds, n_labels) by batched passes; None where these do not serve."""
    arrays = weight_arrays(result.coef, result.intercept)
    as_stored = result.coef.data if sp.issparse(result.coef) else result.coef[result.coef != 0]
    exact = np.array_equal(arrays["data"], as_stored) and np.array_equal(arrays["intercept"], result.intercept)
    fits = sp.issparse(X) and X.nnz * 16 <= problem["memory_limit_mb"] * 2**20
    if loss != "squared_hinge" or not fits or not exact:
        return None
    inputs = prepare_inputs(X, Y, **weights)
    free = problem["fit_intercept"] and not problem["regularize_intercept"]
    values = _core.pruned_objectives(
        data=inputs.X.data,
        indices=inputs.X.indices,
        indptr=inputs.X.indptr,
        n_features=inputs.X.shape[1],
        row_weight=inputs.row_weight,
        positive_rows=inputs.positive_rows,
        positive_indptr=inputs.positive_indptr,
        positive_factor=inputs.positive_factor,
        negative_factor=inputs.negative_factor,
        C=float(problem["C"]),
        bias_value=1.0 if problem["fit_intercept"] else 0.0,
        bias_penalty=0.0 if free else 1.0,
        n_threads=int(problem["n_threads"]),
        coef_data=arrays["data"],
        coef_indices=arrays["indices"],
        coef_indptr=arrays["indptr"],
        intercept=arrays["intercept"],
        thresholds=[float(threshold) for threshold in thresholds],
    )
    return None if np.isnan(values).any() else values.reshape(len(thresholds), -1)


def _with_weights(result: OneVsAllResult, coef: Any, primal: Floats) -> OneVsAllResult:
    """The result with other weights and their objectives."""
    assert result.bounds_by_label is not None
    before, after = squared_norms(result.coef), squared_norms(coef)
    kept = np.divide(after, before, out=np.ones_like(before), where=before > 0)
    table = result.bounds_by_label.copy()
    table[:, BOUND_COLUMNS.index("primal")] = primal
    table[:, BOUND_COLUMNS.index("pruned_share")] = 1.0 - kept * (1.0 - result.pruned_share)
    return replace(result, coef=coef, **outcome_of(table, result.status_by_label))
