"""A second implementation of the problems of all estimators, for `fuzz_certificates.py`: objectives and optima, with
numpy, scipy and Clarabel, and without anything from the package.

    objective   of stored weights, in extended precision if the machine has it, computed from the scores s = W x of the
                training rows and the scalar products G = W Wᵀ; nothing else about weights or kernel coefficients is
                needed
    rounding    the largest change of that objective by double precision, given the rounding error of each score
    optimum     weights found by another solver, for problems it can handle; their objective is an upper bound on the
                optimum, which no dual value may exceed

Written from the papers (Schultheis & Babbar 2022; Lapin, Hein & Schiele 2015; Crammer & Singer 2002; Zhou, Xiao & Wu
2011; Li, Jin & Zhou 2014; Joachims 2005), each objective as a sum over rows. Everything is dense: problems are tiny.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
import scipy.optimize
import scipy.sparse as sp

Array = np.ndarray
EXACT = np.longdouble
EPS = float(np.finfo(np.float64).eps)
LEAST_CURVATURE, MOST_CURVATURE = 1e-9, 1e7
"""Range of the penalty's weight relative to the losses, both normalised, in which Clarabel finds good solutions."""
SEARCH_STEPS = 45
NEWTON_STEPS, LEAST_DAMPING = 300, 1e-14


@dataclass
class Point:
    """Stored weights in the form that their problem needs."""

    scores: Array  # (n_samples, n_outputs)
    G: Array  # (n_outputs, n_outputs), scalar products of the weight vectors, regularised intercept included
    error: Array  # (n_samples, n_outputs): rounding error of a score

    def scaled(self, factor: float) -> Point:
        """The point with the weights multiplied by a number."""
        return Point(self.scores * factor, self.G * factor**2, self.error * factor)


def linear_point(X: Array, W: Array, intercept: Array, bias: float = 0.0) -> Point:
    """Scores X Wᵀ + intercept; with `bias` the intercept is the weight of a constant feature with that value."""
    X, W, b = np.asarray(X, dtype=EXACT), np.asarray(W, dtype=EXACT), np.asarray(intercept, dtype=EXACT)
    G = W @ W.T
    if bias:
        G = G + np.outer(b / bias, b / bias)
    error = EPS * (X.shape[1] + 4) * (np.abs(X) @ np.abs(W).T + np.abs(b))
    return Point(X @ W.T + b, G, error)


def kernel_point(K: Array, K_error: Array, A: Array, intercept: Array, bias: float = 0.0) -> Point:
    """Scores K Aᵀ + intercept of coefficients A (n_outputs, n_samples)."""
    K, A, b = np.asarray(K, dtype=EXACT), np.asarray(A, dtype=EXACT), np.asarray(intercept, dtype=EXACT)
    G = A @ K @ A.T
    if bias:
        G = G + np.outer(b / bias, b / bias)
    return Point(K @ A.T + b, G, K_error @ np.abs(A).T + EPS * (len(K) + 4) * (np.abs(K) @ np.abs(A).T + np.abs(b)))


def gram_features(K: Array) -> Array:
    """Φ with Φ Φᵀ = K for a positive semidefinite K."""
    values, vectors = np.linalg.eigh(0.5 * (K + K.T))
    keep = values > EPS * len(K) * max(float(values[-1]), 0.0)
    return vectors[:, keep] * np.sqrt(values[keep])


def newton(
    value: Callable[[Array], float], gradient: Callable[[Array], Array], hessian: Callable[[Array], Array], v: Array
) -> Array:
    """The best point that damped Newton steps from v find on a convex function.

    `trust-exact` of scipy.optimize would do as well, but before scipy 1.17 its inner loop may run forever.
    """
    best, damping = value(v), 0.0
    for _ in range(NEWTON_STEPS):
        slope, curvature = gradient(v), hessian(v)
        size = float(np.trace(curvature))
        if not np.isfinite(size) or not slope.any():
            break
        # Relative to the trace, and never 0: some directions may have no curvature at all.
        step = np.linalg.solve(curvature + max(damping, LEAST_DAMPING) * size * np.eye(len(v)), -slope)
        there = value(v + step)
        if there < best:
            v, best, damping = v + step, there, damping / 10.0
        elif damping < 1e6:
            damping = max(10.0 * damping, 10.0 * LEAST_DAMPING)
        else:
            break
    return v


class OneVsAll:
    """½‖w_j‖² + Σ_i c_ij φ(y_ij s_ij) for each label j, summed; φ the squared hinge or the logistic loss."""

    def __init__(self, X: Array, Y: Array, costs: Array, loss: str, free: bool, regularised: bool) -> None:
        self.X, self.Y, self.costs, self.loss = X, Y, costs, loss  # Y of ±1; costs of the shape of Y
        self.free, self.regularised = free, regularised

    def losses(self, margins: Array) -> Array:
        if self.loss == "squared_hinge":
            return np.maximum(1 - margins, 0) ** 2
        return np.logaddexp(np.zeros(1, dtype=margins.dtype), -margins)

    def values(self, point: Point) -> Array:
        """The objective of each label."""
        return np.diag(point.G) / 2 + (self.costs * self.losses(self.Y * point.scores)).sum(axis=0)

    def value(self, point: Point) -> float:
        return float(self.values(point).sum())

    def rounding(self, point: Point) -> float:
        slack = np.maximum(1 - self.Y * point.scores, 0) if self.loss == "squared_hinge" else 0.5
        slope = 2 * slack + point.error if self.loss == "squared_hinge" else 1.0
        return float((self.costs * slope * point.error).sum())

    @property
    def at_zero(self) -> float:
        return float((self.costs * self.losses(np.zeros(self.Y.shape))).sum())

    def optimum(self, start: tuple[Array, Array]) -> tuple[Array, Array]:
        """Weights and intercepts by Newton's method from given starts, label by label."""
        W, b = np.array(start[0], dtype=np.float64), np.array(start[1], dtype=np.float64)
        for j in range(self.Y.shape[1]):
            W[j], b[j] = self._optimum_of(j, W[j], float(b[j]))
        return W, b

    def _optimum_of(self, j: int, w: Array, b: float) -> tuple[Array, float]:
        size = float(np.abs(self.X).max(initial=0.0)) or 1.0
        y, c = self.Y[:, j], self.costs[:, j]
        total = float(c.sum()) or 1.0
        Z = np.column_stack([self.X / size, np.ones(len(y))]) if self.free else self.X / size
        damping = np.full(Z.shape[1], 1.0 / (size**2 * total))
        if self.free:
            damping[-1] = 1.0 / total if self.regularised else 0.0
        c = c / total

        def value(v: Array) -> float:
            return float(0.5 * v @ (damping * v) + c @ self.losses(y * (Z @ v)))

        def gradient(v: Array) -> Array:
            m = y * (Z @ v)
            slope = -2.0 * np.maximum(1.0 - m, 0.0) if self.loss == "squared_hinge" else -1.0 / (1.0 + np.exp(m))
            return damping * v + Z.T @ (c * y * slope)

        def hessian(v: Array) -> Array:
            m = y * (Z @ v)
            p = 1.0 / (1.0 + np.exp(-np.abs(m)))
            curvature = 2.0 * (m < 1.0) if self.loss == "squared_hinge" else p * (1.0 - p)
            return np.diag(damping) + (Z * (c * curvature)[:, None]).T @ Z

        v0 = np.append(w * size, b) if self.free else w * size
        with np.errstate(all="ignore"):
            found = newton(value, gradient, hessian, v0)
        if not np.isfinite(found).all():
            return w, b
        return (found[:-1] / size, float(found[-1])) if self.free else (found / size, 0.0)


@dataclass
class MarginProblem:
    """penalty(G) + Σ_g γ_g loss_g(z), z_c = ρ_c − κ_c (s_i − s_j) for the constraints c of block g.

    The loss is the top-k hinge: mean of the k largest max(0, z) (beta), or max(0, mean of the k largest z) (alpha); for
    k = 1 both are max(0, largest z). The penalty is ½ Σ M_ij G_ij, or with `orthogonal` ½ Σ M_ij |G_ij|.
    """

    M: Array
    row: Array  # of each constraint
    block: Array
    i: Array
    j: Array
    rho: Array
    kappa: Array
    gamma: Array  # of each block
    k: Array  # of each block
    variant: str = "beta"
    smoothing: float = 0.0
    orthogonal: bool = False

    def margins(self, scores: Array) -> Array:
        """z, padded with −inf, of shape (n_blocks, largest number of constraints)."""
        z = self.rho - self.kappa * (scores[self.row, self.i] - scores[self.row, self.j])
        counts = np.bincount(self.block, minlength=len(self.gamma))
        place = np.arange(len(self.block)) - np.repeat(np.cumsum(counts) - counts, counts)
        padded = np.full((len(self.gamma), max(int(counts.max(initial=0)), 1)), -np.inf, dtype=z.dtype)
        padded[self.block, place] = z
        return padded

    def losses(self, scores: Array) -> Array:
        z = self.margins(scores)
        if self.smoothing:
            return smoothed_top_k(z, self.k, self.variant, self.smoothing)
        z = -np.sort(-z, axis=1)
        counts = np.arange(z.shape[1]) < self.k[:, None]
        if self.variant == "beta":
            return np.where(counts, np.maximum(z, 0), 0).sum(axis=1) / self.k
        return np.maximum(np.where(counts, z, 0).sum(axis=1) / self.k, 0)

    def value(self, point: Point) -> float:
        G = np.abs(point.G) if self.orthogonal else point.G
        return float((self.M * G).sum() / 2 + (self.gamma * self.losses(point.scores)).sum())

    def rounding(self, point: Point) -> float:
        error = self.kappa * (point.error[self.row, self.i] + point.error[self.row, self.j])
        worst = np.zeros(len(self.gamma), dtype=error.dtype)
        np.maximum.at(worst, self.block, error)
        diagonal = np.diag(point.G)
        spread = np.sqrt(np.outer(diagonal, diagonal))
        return float((self.gamma * worst).sum() + 32 * EPS * (np.abs(self.M) * spread).sum())

    @property
    def at_zero(self) -> float:
        n = int(self.row.max(initial=0)) + 1
        return float((self.gamma * self.losses(np.zeros((n, len(self.M)), dtype=EXACT))).sum())

    def optimum(self, features: Array) -> Array | None:
        """W of shape (n_outputs, n_features) by Clarabel; None for problems it cannot handle."""
        size, total = float(np.abs(features).max(initial=0.0)), float(self.gamma.sum())
        if size == 0.0 or not 0.0 < total < np.inf:
            return None
        curvature = 1.0 / size / size / total
        if not LEAST_CURVATURE < curvature < MOST_CURVATURE:
            return None
        solve = self._by_matrices if self.orthogonal else self._by_quadratic_program
        W = solve(features / size, self.gamma / total, curvature)
        return None if W is None else W / size

    def _slack_rows(self, Z: Array) -> Array:
        """Coefficients of z in the entries of W, one row per constraint."""
        p, c = Z.shape[1], np.arange(len(self.row))
        rows = np.zeros((len(self.row), len(self.M), p))
        rows[c, self.i] -= self.kappa[:, None] * Z[self.row]
        rows[c, self.j] += self.kappa[:, None] * Z[self.row]
        return rows.reshape(len(self.row), -1)

    def _by_quadratic_program(self, Z: Array, gamma: Array, curvature: float) -> Array | None:
        """Variables W, t_g, u_c, ξ_g and, if smoothed, e_c: ξ ≥ t + mean of k of u,  u_c ≥ z_c − e_c − t_g."""
        n_w, n_g, n_c = len(self.M) * Z.shape[1], len(gamma), len(self.row)
        n_e = n_c if self.smoothing else 0
        member = np.zeros((n_c, n_g))
        member[np.arange(n_c), self.block] = 1.0
        none, eye, eye_g = np.zeros((n_g, n_w)), np.eye(n_c), np.eye(n_g)
        A = np.block([
            [self._slack_rows(Z), -member, -eye, np.zeros((n_c, n_g)), -eye[:, :n_e]],
            [none, eye_g, member.T / self.k[:, None], -eye_g, np.zeros((n_g, n_e))],
            [np.zeros((n_c, n_w + n_g)), -eye, np.zeros((n_c, n_g + n_e))],
            [none, np.zeros((n_g, n_g + n_c)), -eye_g, np.zeros((n_g, n_e))],
            [none, -eye_g, np.zeros((n_g, n_c + n_g + n_e))],
        ])  # fmt: skip
        bounds = np.concatenate([-self.rho, np.zeros(n_g + n_c + 2 * n_g)])
        if self.variant == "alpha":  # t of either sign
            A, bounds = A[:-n_g], bounds[:-n_g]
        squares = [np.zeros(2 * n_g + n_c), gamma[self.block[:n_e]] / (self.smoothing or 1.0)]
        P = sp.block_diag([curvature * np.kron(self.M, np.eye(Z.shape[1])), sp.diags_array(np.concatenate(squares))])
        q = np.concatenate([np.zeros(n_w + n_g + n_c), gamma, np.zeros(n_e)])
        x = quadratic_program(P, q, sp.csc_array(A), bounds)
        return None if x is None else x[:n_w].reshape(len(self.M), -1)

    def _by_matrices(self, Z: Array, gamma: Array, curvature: float) -> Array | None:
        """The joint dual of orthogonal transfer as a semidefinite program.

        max Σ γ a ρ − ½ tr T   s.t.  [[T, Bᵀ], [B, K ∘ S]] ⪰ 0,  |S_ij| ≤ 1,  a ≥ 0,  Σ_c a_c ≤ 1;   W = (K ∘ S)⁻¹ B.
        """
        m, n_c, n_g = len(self.M), len(self.row), len(gamma)
        p = Z.shape[1]
        K = curvature * self.M
        pairs = np.argwhere(np.triu(K, 1) > 0.0)
        t_pairs = [(r, c) for c in range(p) for r in range(c + 1)]
        n_a, n_s, n_t = n_c, len(pairs), len(t_pairs)
        where = {(r, c): c * (c + 1) // 2 + r for c in range(p + m) for r in range(c + 1)}
        size = (p + m) * (p + m + 1) // 2
        cone = np.zeros((size, n_a + n_s + n_t))
        constant = np.zeros(size)
        root = np.sqrt(2.0)
        for place, (r, c) in enumerate(t_pairs):
            cone[where[r, c], n_a + n_s + place] = 1.0 if r == c else root
        for place, (r, c) in enumerate(pairs):
            cone[where[p + r, p + c], n_a + place] = root * K[r, c]
        for r in range(m):
            constant[where[p + r, p + r]] = K[r, r]
        weight = gamma[self.block] * self.kappa
        for column in range(p):
            for output in range(m):
                sign = (self.i == output).astype(float) - (self.j == output)
                cone[where[column, p + output], :n_a] = root * weight * sign * Z[self.row, column]
        sums = np.zeros((n_g, n_a + n_s + n_t))
        sums[self.block, np.arange(n_a)] = 1.0
        eye = np.eye(n_a + n_s + n_t)
        box = np.vstack([sums, -eye[:n_a], eye[n_a : n_a + n_s], -eye[n_a : n_a + n_s]])
        box_bounds = np.concatenate([np.ones(n_g), np.zeros(n_a), np.ones(2 * n_s)])
        q = np.zeros(n_a + n_s + n_t)
        q[:n_a] = -gamma[self.block] * self.rho
        q[n_a + n_s :] = [0.5 if r == c else 0.0 for r, c in t_pairs]
        cones = [clarabel.NonnegativeConeT(len(box)), clarabel.PSDTriangleConeT(p + m)]
        rows = sp.vstack([sp.csc_array(box), sp.csc_array(-cone)])
        x = conic_program(sp.csc_array((len(q), len(q))), q, rows, np.concatenate([box_bounds, constant]), cones)
        if x is None:
            return None
        S = np.eye(m)
        S[pairs[:, 0], pairs[:, 1]] = S[pairs[:, 1], pairs[:, 0]] = np.clip(x[n_a : n_a + n_s], -1.0, 1.0)
        B = np.zeros((m, p))
        for c in range(n_c):
            step = weight[c] * x[c] * Z[self.row[c]]
            B[self.i[c]] += step
            B[self.j[c]] -= step
        return np.linalg.solve(K * S, B)


def smoothed_top_k(z: Array, k: Array, variant: str, smoothing: float) -> Array:
    """max ⟨p, z⟩ − ½γ‖p‖² over the domain of the conjugate: 0 ≤ p ≤ 1/k (beta) or Σp/k (alpha), Σp ≤ 1, by row."""
    k = k[:, None].astype(np.float64)
    rough = np.where(np.isfinite(z), z, -1e300).astype(np.float64)

    def value(p: Array) -> Array:
        return np.where(p > 0, p * (np.where(np.isfinite(z), z, 0) - smoothing * p / 2), 0).sum(axis=1)

    if variant == "beta":
        p = np.clip(rough / smoothing, 0, 1 / k)
        full = with_sum(rough, smoothing, 1 / k, np.ones_like(k))
        return np.maximum(value(np.where(p.sum(axis=1, keepdims=True) <= 1, p, full)), 0)
    # The value is concave in the sum of p, and negative for larger sums.
    largest = 2 * z.shape[1] * np.maximum(rough.max(axis=1, keepdims=True), 0) / smoothing
    low, high = np.zeros_like(k), np.minimum(largest, 1)
    for _ in range(SEARCH_STEPS):
        left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
        at_left, at_right = (value(with_sum(rough, smoothing, s / k, s))[:, None] for s in (left, right))
        better = at_left < at_right
        low, high = np.where(better, left, low), np.where(better, high, right)
    sums = (low, high, np.minimum(largest, 1))
    return np.maximum(np.max([value(with_sum(rough, smoothing, s / k, s)) for s in sums], axis=0), 0)


def with_sum(z: Array, smoothing: float, cap: Array, total: Array) -> Array:
    """clip((z − τ)/γ, 0, cap) per row, with τ chosen to reach a given sum; exact between two breakpoints."""
    bottom = np.full((len(z), 1), -1e305)
    breaks = -np.sort(-np.concatenate([z, z - smoothing * cap, bottom], axis=1), axis=1)
    p = np.clip((z[:, None, :] - breaks[:, :, None]) / smoothing, 0, cap[:, :, None])
    sums = p.sum(axis=2)  # rising
    above = np.minimum((sums < total).sum(axis=1), sums.shape[1] - 1)
    rows = np.arange(len(z))
    below = np.maximum(above - 1, 0)
    rise = sums[rows, above] - sums[rows, below]
    share = np.divide(total[:, 0] - sums[rows, below], rise, out=np.zeros(len(z)), where=rise > 0)[:, None]
    return (1 - share) * p[rows, below] + share * p[rows, above]


@dataclass
class TopPushProblem:
    """½‖W‖² + Σ_i C_i max(0, 1 + t − s_{i,y_i})², t the largest score of a negative pair; or one problem per class."""

    y: Array
    n_classes: int
    costs: Array
    joint: bool

    def parts(self) -> list[tuple[Array, Array, Array, Array]]:
        """For each problem: rows and classes of its positives, rows and classes of its negatives."""
        rows, classes = np.flatnonzero(self.costs > 0), np.arange(self.n_classes)
        if self.joint:
            r, c = (a.ravel() for a in np.meshgrid(rows, classes, indexing="ij"))
            wrong = self.y[r] != c
            return [(rows, self.y[rows], r[wrong], c[wrong])]
        found = []
        for label in classes:
            inside, outside = rows[self.y[rows] == label], rows[self.y[rows] != label]
            if len(inside) and len(outside):
                found.append((inside, np.full(len(inside), label), outside, np.full(len(outside), label)))
        return found

    def value(self, point: Point) -> float:
        total = np.diag(point.G).sum() / 2
        for rows, classes, other_rows, others in self.parts():
            top = point.scores[other_rows, others].max()
            total += (self.costs[rows] * np.maximum(1 + top - point.scores[rows, classes], 0) ** 2).sum()
        return float(total)

    def rounding(self, point: Point) -> float:
        total = 0.0
        for rows, classes, other_rows, others in self.parts():
            error = point.error[rows, classes] + point.error[other_rows, others].max()
            slack = np.maximum(1 + point.scores[other_rows, others].max() - point.scores[rows, classes], 0)
            total += float((self.costs[rows] * (2 * slack + error) * error).sum())
        return total

    @property
    def at_zero(self) -> float:
        return float(sum(self.costs[rows].sum() for rows, _, _, _ in self.parts()))

    def optimum(self, features: Array) -> Array | None:
        size = float(np.abs(features).max(initial=0.0)) or 1.0
        W = np.zeros((self.n_classes, features.shape[1]))
        Z = features / size
        for rows, classes, other_rows, others in self.parts():
            total = float(self.costs[rows].sum())
            curvature = 1.0 / size / size / total
            if not LEAST_CURVATURE < curvature < MOST_CURVATURE:
                return None
            n_w, n, n_neg, p = W.size, len(rows), len(other_rows), Z.shape[1]
            A = np.zeros((2 * n + n_neg, n_w + 1 + n))
            each, other = np.arange(n), np.arange(n_neg)
            for feature in range(p):
                A[each, classes * p + feature] = -Z[rows, feature]
                A[n + other, others * p + feature] = Z[other_rows, feature]
            A[:n, n_w], A[n : n + n_neg, n_w] = 1.0, -1.0
            A[each, n_w + 1 + each] = A[n + n_neg + each, n_w + 1 + each] = -1.0
            b = np.concatenate([-np.ones(n), np.zeros(n_neg + n)])
            squares = np.concatenate([np.full(n_w, curvature), [0.0], 2.0 * self.costs[rows] / total])
            x = quadratic_program(sp.diags_array(squares), np.zeros(len(squares)), sp.csc_array(A), b)
            if x is None:
                return None
            W += x[:n_w].reshape(W.shape)
        return W / size


@dataclass
class RecallProblem:
    """½‖W‖² + C ξ, ξ the largest of 0 and Δ(y') + 2 Σ_{chosen negatives} s − 2 Σ_{left out positives} s over the
    labellings y' with at most K positives, Δ = 1 − chosen positives / all positives; jointly or per class."""

    y: Array
    n_classes: int
    C: float
    k: int
    joint: bool

    def parts(self) -> list[tuple[Array, Array, Array, Array]]:
        return TopPushProblem(self.y, self.n_classes, np.ones(len(self.y)), self.joint).parts()

    def plane(self, part: tuple[Array, Array, Array, Array], scores: Array) -> tuple[float, float, Array, Array]:
        """Loss, Δ, and the omitted positives and chosen negatives of the worst labelling."""
        rows, classes, other_rows, others = part
        positives, negatives = scores[rows, classes], scores[other_rows, others]
        best, wrong = np.argsort(-positives, kind="stable"), np.argsort(-negatives, kind="stable")
        n_pos = len(positives)
        left_out = np.append(np.cumsum(positives[best][::-1])[::-1], 0)
        gain = np.append(0, np.cumsum(negatives[wrong]))
        largest = None
        for a in range(min(n_pos, self.k * n_pos) + 1):
            room = min(self.k * n_pos - a, int((negatives > 0).sum()))
            value = 1 - EXACT(a) / n_pos + 2 * (gain[room] - left_out[a])
            if largest is None or value > largest[0]:
                largest = value, a, room
        assert largest is not None
        value, a, room = largest
        return float(value), 1.0 - a / n_pos, best[a:], wrong[:room]

    def value(self, point: Point) -> float:
        losses = sum(max(0.0, self.plane(part, point.scores)[0]) for part in self.parts())
        return float(np.diag(point.G).sum() / 2 + self.C * losses)

    def rounding(self, point: Point) -> float:
        return float(4 * self.C * point.error.sum())

    @property
    def at_zero(self) -> float:
        return self.C * len(self.parts())

    def optimum(self, features: Array) -> Array | None:
        size = float(np.abs(features).max(initial=0.0)) * len(features)
        if size == 0.0 or not LEAST_CURVATURE < 1.0 / (size * size * self.C) < MOST_CURVATURE:
            return None
        curvature, Z = 1.0 / (size * size * self.C), features / size
        W = np.zeros((self.n_classes, features.shape[1]))
        for part in self.parts():
            W += self._one(part, Z, curvature)
        return W / size

    def _one(self, part: tuple[Array, Array, Array, Array], Z: Array, curvature: float) -> Array:
        """The best weights found by cutting planes."""
        shape = self.n_classes, Z.shape[1]
        V, best, best_value = np.zeros(shape), np.zeros(shape), np.inf
        planes: list[Array] = []
        deltas: list[float] = []
        for _ in range(80):
            loss, delta, left_out, chosen = self.plane(part, Z @ V.T)
            value = 0.5 * curvature * float((V**2).sum()) + max(loss, 0.0)
            if value < best_value:
                best, best_value = V, value
            plane = np.zeros(shape)
            np.add.at(plane, part[1][left_out], 2.0 * Z[part[0][left_out]])
            np.add.at(plane, part[3][chosen], -2.0 * Z[part[2][chosen]])
            planes.append(plane.ravel())
            deltas.append(delta)
            A = np.column_stack([-np.array(planes), -np.ones(len(planes))])
            A = np.vstack([A, np.append(np.zeros(V.size), -1.0)])
            squares = np.append(np.full(V.size, curvature), 0.0)
            q = np.append(np.zeros(V.size), 1.0)
            x = quadratic_program(sp.diags_array(squares), q, sp.csc_array(A), np.append(-np.array(deltas), 0.0))
            if x is None:
                return best
            lower = 0.5 * float(x @ (squares * x)) + x[-1]
            if best_value - lower <= 1e-9 * best_value:
                return best
            V = x[:-1].reshape(shape)
        return best


@dataclass
class CodeProblem:
    """‖M‖ + Σ c_i ξ_i with the l1 or l∞ norm, or Σ c_i ξ_i with ‖M‖ ≤ bound, also for l2; ξ of the multiclass SVM."""

    h: Array
    y: Array
    n_classes: int
    costs: Array
    norm: str
    bound: float | None

    def norm_of(self, M: Array) -> float:
        entries = np.abs(np.asarray(M, dtype=EXACT))
        if self.norm == "l2":
            return float(np.sqrt((entries**2).sum()))
        return float(entries.sum() if self.norm == "l1" else entries.max(initial=0.0))

    def slacks(self, scores: Array) -> Array:
        z = 1 + scores - scores[np.arange(len(self.y)), self.y][:, None]
        z[np.arange(len(self.y)), self.y] = 0
        return z.max(axis=1)

    def value_of(self, M: Array) -> float:
        point = linear_point(self.h, M, np.zeros(len(M)))
        return (0.0 if self.bound is not None else self.norm_of(M)) + float(
            (self.costs * self.slacks(point.scores)).sum()
        )

    def rounding_of(self, M: Array) -> float:
        point = linear_point(self.h, M, np.zeros(len(M)))
        return float(2 * (self.costs * point.error.max(axis=1)).sum())

    @property
    def at_zero(self) -> float:
        return float(self.costs.sum())

    def optimum(self) -> Array | None:
        """M by HiGHS, for l1 and l∞."""
        size, total = float(np.abs(self.h).max(initial=0.0)), float(self.costs.sum())
        if self.norm == "l2" or size == 0.0 or not 0.0 < total < np.inf:
            return None
        Z, (n, p), r = self.h / size, self.h.shape, self.n_classes
        weight = 1.0 / (size * total)
        if self.bound is None and not LEAST_CURVATURE < weight < MOST_CURVATURE:
            return None
        row, other = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(r), indexing="ij"))
        row, other = row[other != self.y[row]], other[other != self.y[row]]
        n_m, n_norm = r * p, r * p if self.norm == "l1" else 1
        A = np.zeros((len(row), n_m))
        for feature in range(p):
            A[np.arange(len(row)), self.y[row] * p + feature] -= Z[row, feature]
            A[np.arange(len(row)), other * p + feature] += Z[row, feature]
        slack = np.zeros((len(row), n))
        slack[np.arange(len(row)), row] = -1.0
        size_of = -np.eye(n_m) if self.norm == "l1" else -np.ones((n_m, 1))
        upper = np.vstack([
            np.hstack([A, np.zeros((len(row), n_norm)), slack]),
            np.hstack([np.eye(n_m), size_of, np.zeros((n_m, n))]),
            np.hstack([-np.eye(n_m), size_of, np.zeros((n_m, n))]),
        ])  # fmt: skip
        bounds = np.concatenate([-np.ones(len(row)), np.zeros(2 * n_m)])
        cost = np.concatenate([np.zeros(n_m), np.full(n_norm, weight), self.costs / total])
        if self.bound is not None:
            cost[n_m : n_m + n_norm] = 0.0
            upper = np.vstack([upper, np.concatenate([np.zeros(n_m), np.ones(n_norm), np.zeros(n)])])
            bounds = np.append(bounds, self.bound * size)
        limits = [(None, None)] * n_m + [(0, None)] * (n_norm + n)
        found = scipy.optimize.linprog(cost, sp.csr_array(upper), bounds, bounds=limits, method="highs")
        if found.x is None:
            return None
        M = found.x[:n_m].reshape(r, p) / size
        if self.bound is not None and self.norm_of(M) > self.bound:
            M *= self.bound / self.norm_of(M)
        return M


def quadratic_program(P: Any, q: Array, A: Any, b: Array) -> Array | None:
    """min ½ xᵀPx + qᵀx s.t. Ax ≤ b."""
    return conic_program(P, q, A, b, [clarabel.NonnegativeConeT(len(b))])


def conic_program(P: Any, q: Array, A: Any, b: Array, cones: list[Any]) -> Array | None:
    """Solve with Clarabel; None if it fails."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = 100
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(sp.csc_matrix(sp.triu(P)), q, sp.csc_matrix(A), b, cones, settings)
    found = np.array(solver.solve().x)
    return found if len(found) and np.isfinite(found).all() else None
