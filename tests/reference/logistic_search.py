"""The batched subspace search with the logistic loss, one label at a time in plain NumPy.

Like `solve_by_subspace`, with a start that is already the minimiser over span{mean positive, mean row, intercept}, one
Newton step per search, and searches to the end only once a step did not decrease the objective. The kernels work
in float32 and find the start on a sample of rows; here everything is in float64 and over all rows. Memory: X and a few
vectors. Twin: cpp/one_vs_all/logistic_search.hpp.
"""

from __future__ import annotations

import numpy as np

from reference.batch_subspace import BatchStep, batch_step, feature_spread
from reference.binary_objective import BinaryProblem
from reference.subspace_search import SearchRows, minimize_in_subspace, newton_in_subspace
from widemargin.problems.losses import Floats

__all__ = ["solve_by_logistic_search"]

# Values and reasons: cpp/one_vs_all/logistic_search.hpp, batch_search.hpp and subspace_search.hpp.
BATCH_RULE_SHARE = 0.8
BATCH_GAP_SHARE = 0.9
BATCH_MAX_ITER = 150
VALUE_ROUNDING = 1e-6
SOLO_ITERATIONS = 2


def solve_by_logistic_search(problem: BinaryProblem, rule: float, gap_tol: float) -> tuple[Floats, int]:
    """Return (w, b) with ‖gradient‖ ≤ rule and an expected relative gap of at most gap_tol, and the iterations.

    The problem must have rows of both signs.

    Examples
    --------
    >>> from widemargin.problems.losses import Logistic
    >>> problem = BinaryProblem(np.eye(2), np.array([1.0, -1.0]), np.ones(2), Logistic(), 1.0, 0.0)
    >>> v, n_iter = solve_by_logistic_search(problem, 1e-9, 1e-9)
    >>> abs(v).round(6).tolist()  # w = 1 / (1 + e^w)
    [0.401058, 0.401058, 0.0]
    """
    lane, bias = _start(problem)
    spread, has_bias, careful, value, slope = feature_spread(problem), problem.bias_value != 0.0, False, np.inf, 0.0
    for n_iter in range(1, BATCH_MAX_ITER + 1):
        sz = np.asarray(problem.X @ lane.z)
        first = n_iter == 1  # the search starts from w = z
        w, s = (lane.z, lane.s + sz) if first else (lane.w, lane.s)
        rows = SearchRows(problem.loss, problem.y, problem.c, s, sz, lane.sp, bias)
        vectors = np.stack([lane.z, lane.p, w])
        use = np.array([True, True, n_iter > SOLO_ITERATIONS, has_bias])
        search = minimize_in_subspace if careful else newton_in_subspace
        theta = search(rows, vectors @ vectors.T, problem.bias_penalty, use) + np.array([float(first), 0.0, 0.0, 0.0])
        before, lane = lane.gg, batch_step(problem, lane, sz, bias, theta, spread)
        bias += float(theta[3])
        back = lane.gg / (lane.gg + before)
        penalty = problem.bias_penalty if has_bias else 0.0
        old_value, value = value, lane.loss + 0.5 * float(lane.w @ lane.w) + 0.5 * penalty * bias**2
        old_slope, slope = slope, penalty * bias - lane.bias_sum if has_bias else 0.0
        rose = not value <= (1.0 + VALUE_ROUNDING) * old_value
        careful = careful or rose
        gg = lane.gg * (1.0 - back)
        short = np.sqrt(gg + slope**2) <= BATCH_RULE_SHARE * rule
        if not rose and short and 0.5 * gg <= BATCH_GAP_SHARE * gap_tol * value:
            break
    # One Newton step of the intercept, whose derivative is nearly linear between the last two iterates.
    step = ((1.0 - back) * slope + back * old_slope) / (lane.curvature + penalty)
    b = bias - back * theta[3] - (step if abs(step) < 1.0 else 0.0)
    return np.append(lane.w - back * lane.p, b), n_iter


def _start(problem: BinaryProblem) -> tuple[BatchStep, float]:
    """No weights; the first direction is the minimiser over span{mean positive, mean row, intercept}."""
    positive, n_features = problem.y > 0.0, problem.X.shape[1]
    z = np.asarray(problem.X.T @ positive.astype(np.float64)) / positive.sum()
    p = np.asarray(problem.X.T @ problem.c) / problem.c.sum()
    share, has_bias = float(positive.mean()), problem.bias_value != 0.0
    bias = float(np.log(share / (1.0 - share))) if has_bias else 0.0
    step_scores, s = np.asarray(problem.X @ p), np.full(len(problem.y), bias)
    rows = SearchRows(problem.loss, problem.y, problem.c, s, np.asarray(problem.X @ z), step_scores, bias)
    vectors = np.stack([z, p, np.zeros(n_features)])
    use = np.array([True, True, False, has_bias])
    theta = minimize_in_subspace(rows, vectors @ vectors.T, problem.bias_penalty, use)
    bias += float(theta[3])
    start = theta[0] * z + theta[1] * p
    s = np.full(len(problem.y), bias)
    return BatchStep(np.zeros(n_features), p, start, s, step_scores, 0.0, 0.0, 0.0, np.inf), bias
