"""Starting weights of one label: mean-separating, in the span of means, and the tree of labels of OvAP++.

    p̄ mean of the positive rows, x̄ mean of all rows, n̄ of the negative ones, all with the intercept's input
    mean-separating    the shortest w with w·p̄ = s and w·n̄ = t, which is u p̄ + v x̄, eq. (23)–(27)
    subspace           the minimiser of the label's objective over u p̄ + v x̄ + intercept
    OvAP++             a label starts where its parent ended; minimum spanning tree by Hamming distance of labels

Schultheis & Babbar, 2022, section 4; OvAP++ is from Fang et al., 2019. Means are weighted by the rows' weights. This is
the specification of cpp/one_vs_all/starts.hpp and of solvers/one_vs_all/starts.py. Memory: a few vectors of rows and of
features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.binary_objective import ARMIJO_SLOPE, BACKTRACK_FACTOR, BinaryProblem
from widemargin.problems.losses import Floats

__all__ = ["hamming_tree", "mean_separating", "separating_start", "subspace_start"]

DEPENDENT_SINE2 = 1e-10  # 1 − cos² of p̄ and x̄ up to which they count as linearly dependent
ORTHOGONAL_COSINE = 1e-6  # |cos| up to which they count as orthogonal
MAX_SUBSPACE_STEPS = 30  # text takes 4 to 8
SUBSPACE_DECREMENT = 1e-3  # relative to the objective: the steps outside the span undo more accuracy
DEPENDENT_PIVOT = 1e-9  # a pivot of a 3 × 3 Hessian this small relative to its diagonal is rounding
MAX_SUBSPACE_BACKTRACKS = 20


def mean_separating(p: Floats, x: Floats, share: float, s: float, t: float) -> Floats:
    """Return the shortest w = u p + v x with w·p = s and w·n = t, where x = share · p + (1 − share) · n.

    p is the mean of the positive rows, x that of all rows, and n that of the others; `share` is |P| / |X|. Zero if p
    and x are linearly dependent.

    Examples
    --------
    >>> p, n = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    >>> mean_separating(p, 0.25 * p + 0.75 * n, 0.25, s=1.0, t=-2.0).tolist()
    [1.0, -2.0]
    """
    pp, px, xx = p @ p, p @ x, x @ x
    cosine2 = px**2 / (pp * xx) if pp * xx > 0.0 else 1.0
    if not 1.0 - cosine2 > DEPENDENT_SINE2:
        return np.zeros(len(p))
    along_x = t + (s - t) * share  # w · x
    if cosine2 <= ORTHOGONAL_COSINE**2:  # eq. (27)
        return s / pp * p + along_x / xx * x
    u = (px * along_x - s * xx) / (px**2 - pp * xx)  # eq. (23)
    v = (s - u * pp) / px  # eq. (24)
    return u * p + v * x


def separating_start(problem: BinaryProblem, row_weight: Floats, s: float, t: float) -> Floats:
    """Return the mean-separating start of a label, shape (n_features + 1,), the intercept last.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> start = separating_start(problem, np.ones(2), s=1.0, t=-2.0)
    >>> problem.scores(start).round(6).tolist()
    [1.0, -2.0]
    """
    positive = np.where(problem.y > 0.0, row_weight, 0.0)
    if not positive.sum() > 0.0 or (problem.y > 0.0).all():
        return np.zeros(problem.X.shape[1] + 1)
    p = problem.rows_sum(positive) / positive.sum()
    x = problem.rows_sum(row_weight) / row_weight.sum()
    w = mean_separating(p, x, positive.sum() / row_weight.sum(), s, t)
    return np.append(w[:-1], problem.bias_value * w[-1])


def subspace_start(problem: BinaryProblem, row_weight: Floats) -> Floats:
    """Return the minimiser of the label's objective over u p̄ + v x̄ + intercept, shape (n_features + 1,).

    Newton with backtracking on three variables; the scores of a row come from p̄ and x̄, so no step reads X.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> subspace_start(problem, np.ones(2)).round(6).tolist()  # the optimum lies in the span
    [0.666667, -0.666667, 0.0]
    """
    positive = np.where(problem.y > 0.0, row_weight, 0.0)
    one_sided = not positive.any() or bool((problem.y > 0.0).all())
    if one_sided and problem.free_intercept:  # a known answer, or none
        return np.zeros(problem.X.shape[1] + 1)
    p = problem.X.T @ positive / (positive.sum() if positive.any() else 1.0)
    x = problem.X.T @ row_weight / row_weight.sum()
    basis = np.zeros((3, len(p) + 1))
    basis[0, :-1], basis[1, :-1], basis[2, -1] = p, x, 1.0
    theta: Floats = _minimize_in_span(problem, basis) @ basis
    return np.append(theta[:-1], problem.bias_value * theta[-1])


def _minimize_in_span(problem: BinaryProblem, basis: Floats) -> Floats:
    """The three coefficients of the minimiser."""
    loss, c, y = problem.loss, problem.c, problem.y
    scores = np.array([problem.scores(vector) for vector in basis])
    G = np.array([problem.penalised(vector) for vector in basis]) @ basis.T
    theta, z = np.zeros(3), np.zeros(len(y))
    for _ in range(MAX_SUBSPACE_STEPS):
        m = y * z
        g = G @ theta + scores @ (c * y * loss.derivative(m))
        H = G + (scores * (c * loss.second_derivative(m))) @ scores.T
        d = solve_three(H, -g)
        slope = g @ d
        if not -slope > SUBSPACE_DECREMENT * (0.5 * theta @ G @ theta + c @ loss.value(m)):
            break
        direction, step = d @ scores, 1.0
        for _ in range(MAX_SUBSPACE_BACKTRACKS):
            change = step * (theta @ G @ d) + 0.5 * step**2 * (d @ G @ d) + c @ loss.change(m, step * y * direction)
            if change <= ARMIJO_SLOPE * step * slope:
                break
            step *= BACKTRACK_FACTOR
        else:
            break
        theta, z = theta + step * d, z + step * direction
    return theta


def solve_three(H: Floats, r: Floats) -> Floats:
    """Solve H d = r, H positive semidefinite of three variables, leaving out variables that depend on others."""
    H, r, diagonal, d = H.copy(), r.copy(), np.diag(H).copy(), np.zeros(3)
    used = [False] * 3
    for k in range(3):
        used[k] = bool(H[k, k] > DEPENDENT_PIVOT * diagonal[k])
        for i in range(k + 1, 3 if used[k] else 0):
            factor = H[i, k] / H[k, k]
            H[i, k + 1 :] -= factor * H[k, k + 1 :]
            r[i] -= factor * r[k]
    for k in (2, 1, 0):
        d[k] = (r[k] - H[k, k + 1 :] @ d[k + 1 :]) / H[k, k] if used[k] else 0.0
    return d


def hamming_tree(Y: Any) -> tuple[npt.NDArray[np.int64], int]:
    """Return the parents (n_labels,) in a minimum spanning tree of the labels, −1 for the root, and its total weight.

    Y is a dense indicator (n_samples, n_labels). The root is the label without positives; distances are the numbers of
    rows in which two labels differ. Prim's algorithm on all pairs: quadratic in the labels, for small sets only.

    Examples
    --------
    >>> parent, weight = hamming_tree(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]))
    >>> parent.tolist(), weight
    ([1, -1, -1], 4)
    """
    Y = np.asarray(Y).astype(bool)
    distance = Y.sum(axis=0).astype(np.int64)  # of each label to the tree, at first the root alone
    parent = np.full(Y.shape[1], -1, dtype=np.int64)
    outside, weight = np.ones(Y.shape[1], dtype=bool), 0
    while outside.any():
        j = int(np.flatnonzero(outside)[np.argmin(distance[outside])])
        outside[j] = False
        weight += int(distance[j])
        to_j = (Y[:, [j]] != Y).sum(axis=0)
        closer = outside & (to_j < distance)
        distance[closer], parent[closer] = to_j[closer], j
    return parent, weight
