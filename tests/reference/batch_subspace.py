"""The batched subspace search, one label at a time in plain NumPy: the specification of one lane of a batch.

Each iteration minimises the objective over span{z, last step, w, bias}, z_k = −g_k / (1 + t spread_k) with

    t = DIAGONAL_SHARE Σ c φ'' / Σ c,      spread = Σ c x² − (Σ c x)² / Σ c   (a share of the Hessian's diagonal),

the first one over span{mean positive, mean row, bias}. With the squared hinge, all labels share two more directions,
which replace the mean row. It stops when the point between the last two iterates with the
smallest expected gradient meets the rule and the gap. The kernels work in float32, look only at rows near the margin
in a search, and sample negatives in the first ones; here everything is in float64 and over all rows. Memory: X and a
few vectors. Twins: cpp/one_vs_all/batch_search.hpp and isa_batch.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from reference.binary_objective import BinaryProblem
from reference.fast_one_vs_all import store_order
from reference.subspace_search import SearchRows, minimize_in_subspace
from widemargin.problems.losses import Floats

__all__ = ["BatchStep", "batch_step", "feature_spread", "near_rows", "shared_directions", "solve_by_subspace"]

# Values and reasons: cpp/one_vs_all/batch_search.hpp.
BATCH_RULE_SHARE = 0.8
BATCH_GAP_SHARE = 0.9
BATCH_MAX_ITER = 150
DIAGONAL_SHARE = 0.15
SOLO_ITERATIONS = 2
N_SHARED = 2
N_GROUPS = 16
# Values and reasons: cpp/one_vs_all/shared_directions.hpp.
POWER_ROWS = 2048
SIGN_MULTIPLIER = 2654435761
SMALLEST_EIGENVALUE = 1e-4


def near_rows(y: Floats, s: Floats, sz: Floats, step_scores: Floats, reach: Floats) -> npt.NDArray[np.bool_]:
    """Return which rows a search looks at: those with 1 − y s > −(reach₀ + reach₁ |sz| + reach₂ |sp|).

    s, sz and step_scores = sp are the scores of the weights, the direction and the last step.

    Examples
    --------
    >>> two = np.array([1.0, 1.0])
    >>> near_rows(two, 1.5 * two, np.array([0.1, 0.6]), 0 * two, np.array([0.0, 1.0, 0.0])).tolist()
    [False, True]
    """
    near: npt.NDArray[np.bool_] = 1.0 - y * s > -(reach[0] + reach[1] * np.abs(sz) + reach[2] * np.abs(step_scores))
    return near


@dataclass(frozen=True)
class BatchStep:
    """A lane after a step.

    Examples
    --------
    >>> list(BatchStep.__dataclass_fields__)[:3]
    ['w', 'p', 'z']
    """

    w: Floats  # weights
    p: Floats  # the step
    z: Floats  # the next direction
    s: Floats  # scores of the weights, intercept included
    sp: Floats  # scores of the step, without the intercept
    loss: float  # Σ c φ
    bias_sum: float  # Σ −c φ' y
    curvature: float  # Σ c φ''
    gg: float  # squared norm of the gradient by the weights


def batch_step(
    problem: BinaryProblem,
    old: BatchStep,
    sz: Floats,
    bias: float,
    theta: Floats,
    spread: Floats,
    shared: Floats | None = None,
) -> BatchStep:
    """Take the step θ in the span of z, p, w, the intercept and the shared directions; compute the next direction.

    sz is X z, `bias` the intercept before the step, `spread` the result of `feature_spread`, and `shared` that of
    `shared_directions`.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> zero = np.zeros(2)
    >>> lane = BatchStep(zero, zero, np.array([1.0, -1.0]), zero, zero, 0.0, 0.0, 0.0, 0.0)
    >>> theta = np.array([0.5, 0.0, 0.0, 0.0])
    >>> batch_step(problem, lane, np.array([1.0, -1.0]), 0.0, theta, np.zeros(2)).z.tolist()
    [0.5, -0.5]
    """
    p = theta[0] * old.z + theta[1] * old.p + theta[2] * old.w
    moved = theta[0] * sz + theta[1] * old.sp + theta[2] * (old.s - bias)
    if shared is not None:
        p, moved = p + shared @ theta[4:], moved + np.asarray(problem.X @ shared) @ theta[4:]
    w, s = old.w + p, old.s + moved + theta[3]
    m = problem.y * s
    alpha = -problem.c * problem.loss.derivative(m)
    curvature = float(problem.c @ problem.loss.second_derivative(m))
    descent = np.asarray(problem.X.T @ (problem.y * alpha)) - w
    return BatchStep(
        w,
        p,
        descent / (1.0 + DIAGONAL_SHARE * curvature / problem.c.sum() * spread),
        s,
        moved,
        float(problem.c @ problem.loss.value(m)),
        float(problem.y @ alpha),
        curvature,
        float(descent @ descent),
    )


def feature_spread(problem: BinaryProblem) -> Floats:
    """Return Σ c x² − (Σ c x)² / Σ c of every feature, shape (n_features,).

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> feature_spread(problem).tolist()
    [0.5, 0.5]
    """
    squares = problem.X.multiply(problem.X) if sp.issparse(problem.X) else np.square(problem.X)
    sums = np.asarray(problem.X.T @ problem.c)
    spread: Floats = np.maximum(0.0, np.asarray(squares.T @ problem.c) - np.square(sums) / problem.c.sum())
    return spread


def shared_directions(X: npt.NDArray[np.float64] | sp.csr_array, c: Floats) -> Floats:
    """Approximate the leading eigenvectors of Σ c x x', shape (n_features, N_SHARED); zero if there are fewer.

    One step of the power method on evenly spaced rows of the row store, from their sum and 15 sums with signs, then
    the best orthonormal combinations over all rows.

    Examples
    --------
    >>> v = shared_directions(sp.csr_array(np.diag([3.0, 2.0, 1.0])), np.ones(3))
    >>> abs(v).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    X = sp.csr_array(X)
    sample = store_order(X)[0][:: max(1, len(c) // POWER_ROWS)]
    number, weight, rows = np.arange(len(sample)), c[sample], X[sample]
    groups = np.zeros((len(sample), N_GROUPS))
    groups[number, 1 + number % (N_GROUPS - 1)] = np.where(number * SIGN_MULTIPLIER % 2**32 >= 2**31, 1.0, -1.0)
    groups[:, 0] = 1.0
    sums = np.asarray(rows.T @ (weight[:, None] * groups))
    stepped = np.asarray(rows.T @ (weight[:, None] * np.asarray(rows @ sums)))
    lengths = np.linalg.norm(stepped, axis=0)
    left, singular, _ = np.linalg.svd(stepped / np.where(lengths > 0.0, lengths, 1.0), full_matrices=False)
    basis = left[:, singular**2 > SMALLEST_EIGENVALUE]
    values, vectors = np.linalg.eigh(basis.T @ np.asarray(X.T @ (c[:, None] * np.asarray(X @ basis))))
    found = (basis @ vectors[:, ::-1])[:, : min(N_SHARED, int((values > 0).sum()))]
    return np.pad(found, ((0, 0), (0, N_SHARED - found.shape[1])))


def solve_by_subspace(problem: BinaryProblem, rule: float, gap_tol: float) -> tuple[Floats, int]:
    """Return (w, b) with ‖gradient‖ ≤ rule and an expected relative gap of at most gap_tol, and the iterations.

    For the squared hinge; the problem must have rows of both signs.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> v, n_iter = solve_by_subspace(problem, 1e-9, 1e-9)
    >>> abs(v.round(6)).tolist()
    [0.666667, 0.666667, 0.0]
    """
    shared = shared_directions(problem.X, problem.c)
    lane, bias = _start(problem)
    spread, has_bias = feature_spread(problem), problem.bias_value != 0.0
    shared_scores, others = np.asarray(problem.X @ shared).T, shared.T
    for n_iter in range(1, BATCH_MAX_ITER + 1):
        sz = np.asarray(problem.X @ lane.z)
        rows = SearchRows(problem.loss, problem.y, problem.c, lane.s, sz, lane.sp, bias, shared_scores)
        vectors = np.concatenate([np.stack([lane.z, lane.p, lane.w]), others])
        use = np.array([True, True, n_iter > SOLO_ITERATIONS, has_bias, *[True] * len(others)])
        theta = minimize_in_subspace(rows, vectors @ vectors.T, problem.bias_penalty, use)
        before, lane = lane.gg, batch_step(problem, lane, sz, bias, theta, spread, shared)
        bias += float(theta[3])
        back = lane.gg / (lane.gg + before)
        if _finished(problem, lane, bias, lane.gg * (1.0 - back), rule, gap_tol):
            break
    return np.append(lane.w - back * lane.p, bias - back * theta[3]), n_iter


def _start(problem: BinaryProblem) -> tuple[BatchStep, float]:
    """No weights; the first direction is the mean positive."""
    positive, n_features = problem.y > 0.0, problem.X.shape[1]
    z = np.asarray(problem.X.T @ positive.astype(np.float64)) / positive.sum()
    p = np.zeros(n_features)
    bias = 2.0 * float(positive.mean()) - 1.0 if problem.bias_value != 0.0 else 0.0
    s = np.full(len(problem.y), bias)
    return BatchStep(np.zeros(n_features), p, z, s, np.asarray(problem.X @ p), 0.0, 0.0, 0.0, np.inf), bias


def _finished(problem: BinaryProblem, lane: BatchStep, bias: float, gg: float, rule: float, gap_tol: float) -> bool:
    """Whether a gradient of squared norm `gg` is short enough."""
    penalty = problem.bias_penalty if problem.bias_value != 0.0 else 0.0
    bias_gradient = penalty * bias - lane.bias_sum if problem.bias_value != 0.0 else 0.0
    value = lane.loss + 0.5 * float(lane.w @ lane.w) + 0.5 * penalty * bias**2
    norm = float(np.sqrt(gg + bias_gradient**2))
    return norm <= BATCH_RULE_SHARE * rule and 0.5 * gg <= BATCH_GAP_SHARE * gap_tol * value
