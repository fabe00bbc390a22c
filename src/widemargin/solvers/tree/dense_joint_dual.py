"""Orthogonal transfer where the compiled ascent does not apply: a K between any nodes, or a top-k loss among siblings.

    minimise  ½ Σ_ij K_ij |w_iᵀw_j| + Σ_g γ_g φ_g(W),     φ_g = max over the levels l of the path of row g
                                                           (mean of the k_l largest max(0, 1 − s_p(l) + s_j))

over the siblings j of the path's node p(l), with k_l = k, or their number if that is less. k = 1 is the loss of
`problems.tree_losses`; on a flat tree it is the top-k hinge β. K is any matrix of `OrthogonalPenalty.of_matrix`, also
one that joins nodes that are not ancestor and descendant. A term of φ_g is a *vertex* v: a level and at most k_l
siblings T, with E_v = Σ_T (e_p − e_j) / k_l, ρ_v = |T| / k_l. With masses a_gv ≥ 0 of sum at most 1, the dual is the
one in `solvers.tree.joint_dual` with E_v in place of κ_c (e_i − e_j), and the ascent is the same: exact steps between
the best vertex and the worst that has mass, row after row in random order, then a step in S, until the certified
`decrease_gap` is at most `tol`. In NumPy: 0.1 to 0.3 ms per visit on subtrees of RCV1; the compiled ascent takes 1 to 2
µs. Memory: W, B and three arrays of rows × nodes, all dense in float64.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, pair_products
from widemargin.solvers.limits import ROUNDING
from widemargin.solvers.tree.joint_dual import (
    COUPLING_SHARE,
    JointProgress,
    JointResult,
    TreeOptions,
    check_problem,
    rows_with_constant,
)
from widemargin.solvers.tree.kernel_joint_dual import SignSteps

__all__ = ["solve_dense_joint_dual"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STEPS = 8  # least number of steps of a visit
SLACK_NOISE = 1e-14  # slacks closer than this count as equal
STILL_VISITS = 2  # visits without a step after which a row sleeps
AWAKE = 1e-9  # gap of a row, over γ, above which it wakes up
WORK_ARRAYS = 5  # arrays of nodes × features and of rows × nodes that exist at once
MEGABYTE = 2**20


def solve_dense_joint_dual(
    X: Any, losses: TreeLosses, penalty: OrthogonalPenalty, *, k: int = 1, **options: Any
) -> JointResult:
    """Train, and certify the result.

    Parameters
    ----------
    X, losses
        As for `solve_joint_dual`, for a method that trains paths.
    penalty : OrthogonalPenalty
        For the same nodes; its layout may be different.
    k : int
        Largest number of siblings that count in the loss of a level.
    **options
        The fields of `TreeOptions`. If dense arrays need more than `memory_limit_mb`, an error is raised.

    Returns
    -------
    JointResult
        `coef` (m, n_features), row r for node r + 1; `intercept` (m,); `dual`, a csr_array (n_blocks, m) whose entry
        (g, j) is the mass of the vertices that node j should lose, over k_l; `S` and `products`.
    """
    given = TreeOptions(**options)
    rows, largest = rows_with_constant(X, given.intercept_scaling)
    check_problem(rows.shape[0], losses, penalty, any_pairs=True)
    needed = WORK_ARRAYS * 8 * losses.paths.m * (rows.shape[0] + rows.shape[1]) / MEGABYTE
    if needed > given.memory_limit_mb:
        raise ValueError(
            f"orthogonal transfer with k={k}, or with a K that joins arbitrary nodes, needs dense arrays of "
            f"{losses.paths.m:,} nodes × {rows.shape[0]:,} rows and × {rows.shape[1]:,} features, {needed:,.0f} MB in "
            f"total, which exceeds memory_limit_mb={given.memory_limit_mb:g}; raise the limit, use k=1 and a K that "
            "joins only nodes and their ancestors, or use fewer features"
        )
    run = _Run(rows, losses, penalty, k, given.seed)
    progress = JointProgress(run.at_zero, given, ROUNDING if largest > 0.0 else 0.0)
    while progress.status is None:
        run.advance(progress)
        progress.end_if_stuck()
    return run.result(progress, given.intercept_scaling)


class _Path:
    """The constraints of rows with one label: the siblings that should lose, by level, and how many of them count."""

    def __init__(self, losses: TreeLosses, node: int, n_levels: int, k: int) -> None:
        paths = losses.paths
        self.levels: list[tuple[int, Ints, int]] = []
        for winner in paths.path_nodes[paths.path_indptr[node] :][:n_levels].tolist():
            siblings = np.flatnonzero(paths.parent == paths.parent[winner])
            siblings = siblings[siblings != winner]
            if len(siblings):
                self.levels.append((winner, siblings, min(k, len(siblings))))

    def losses(self, scores: Floats) -> Floats:
        """φ of rows of scores, shape (n_rows,)."""
        loss = np.zeros(len(scores))
        for winner, losers, count in self.levels:
            hinges = np.maximum(1.0 - scores[:, winner, None] + scores[:, losers], 0.0)
            largest = -np.partition(-hinges, count - 1, axis=1)[:, :count]
            loss = np.maximum(loss, largest.sum(axis=1) / count)
        return loss

    def best_vertex(self, s: Floats) -> tuple[tuple[int, ...], float, int]:
        """The vertex with the largest slack at scores s as (winner, losers …) or (), its slack, and k_l."""
        best, slack, of = (), 0.0, 1
        for winner, losers, count in self.levels:
            hinges = 1.0 - s[winner] + s[losers]
            order = np.argsort(-hinges, kind="stable")[:count]
            kept = order[hinges[order] > 0.0]
            value = float(hinges[kept].sum()) / count
            if value > slack:
                best, slack, of = (winner, *losers[kept].tolist()), value, count
        return best, slack, of


class _Vertex:
    """A vertex with mass: E_v, ρ_v and a_v."""

    __slots__ = ("E", "mass", "rho")

    def __init__(self, key: tuple[int, ...], count: int, m: int) -> None:
        self.E = np.zeros(m)
        self.E[list(key[1:])] = -1.0 / count
        self.rho = (len(key) - 1) / count
        self.E[key[0]] = self.rho
        self.mass = 0.0


class _Run:
    """The state of one problem.

    Sets: `vertices` by block; `combined` (n_blocks, m) = Σ_v a_v E_v and `gain` (n_blocks,) = Σ_v a_v ρ_v; S with
    `U`, M(S) = U diag(d) Uᵀ, and P = M⁻¹; B and W = P B.
    """

    def __init__(self, X: Any, losses: TreeLosses, penalty: OrthogonalPenalty, k: int, seed: int) -> None:
        self.X, self.losses, self.penalty = X, losses, penalty
        self.m, self.random = losses.paths.m, np.random.default_rng(seed)
        self.path_of = list(zip(losses.node.tolist(), losses.n_levels.tolist(), strict=True))
        self.paths = {key: _Path(losses, *key, k) for key in set(self.path_of)}
        self.squared_norms = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        self.vertices: list[dict[tuple[int, ...], _Vertex]] = [{} for _ in range(losses.n_blocks)]
        self.combined, self.gain = np.zeros((losses.n_blocks, self.m)), np.zeros(losses.n_blocks)
        self.at_zero = float(losses.cost @ self._losses_of(np.zeros((losses.n_samples, self.m))))
        self.B, self.W = np.zeros((self.m, X.shape[1])), np.zeros((self.m, X.shape[1]))
        self.steps, self.still = SignSteps(penalty), np.zeros(losses.n_blocks, dtype=np.int64)
        self._set_signs(np.where(penalty.paths.is_diagonal, 1.0, 0.0))
        self.best = self.combined.copy(), self.gain.copy(), self.S

    @cached_property
    def blocks_of(self) -> dict[tuple[int, int], Ints]:
        """Blocks by label, for work on many rows at once."""
        numbers: dict[tuple[int, int], list[int]] = {key: [] for key in self.paths}
        for g, key in enumerate(self.path_of):
            numbers[key].append(g)
        return {key: np.array(found) for key, found in numbers.items()}

    def advance(self, progress: JointProgress) -> None:
        """A pass over the rows that are awake, a step in S, and a certificate if it is due."""
        awake = np.flatnonzero((self.still < STILL_VISITS) & (self.losses.cost > 0.0))
        gap = sum(self._visit(g) for g in self.random.permutation(awake).tolist())
        Q = self.B @ self.B.T
        S = self.steps.improve(self.S, self._gram(Q), COUPLING_SHARE * progress.allowed_gap)
        if not np.array_equal(S, self.S):
            self._set_signs(S)
        products = pair_products(self.penalty.paths, self.W)
        dual = float(self.losses.cost @ self.gain) - 0.5 * float(np.sum(self.P * Q))
        gap += self.penalty.excess(self.S, products)
        if progress.record(dual, gap, len(awake), self.losses.n_blocks):
            self.certify(progress)

    def certify(self, progress: JointProgress) -> None:
        """Take both bounds, with B and W from the masses. Sets: B, W, best; wakes rows."""
        for g, vertices in enumerate(self.vertices):
            if vertices:
                self._combine(g)
        self._rebuild()
        scores, cost = np.asarray(self.X @ self.W.T), self.losses.cost
        loss = self._losses_of(scores)
        kept = self.gain - np.einsum("gi,gi->g", self.combined, scores[self.losses.row])
        self.still[loss - kept > AWAKE] = 0
        dual = float(cost @ self.gain) - 0.5 * float(np.vdot(self.B, self.W))
        if progress.accept(self.penalty.value(self.W) + float(cost @ loss), dual):
            self.best = self.combined.copy(), self.gain.copy(), self.S

    def result(self, progress: JointProgress, intercept_scaling: float) -> JointResult:
        """The best certified point, or a multiple of its weights if zero weights are better."""
        self.combined, self.gain, S = self.best
        self._set_signs(S)
        self._rebuild()
        scores, cost = np.asarray(self.X @ self.W.T), self.losses.cost
        progress.certified = self.penalty.value(self.W) + float(cost @ self._losses_of(scores))
        W = progress.shorten(lambda t: float(cost @ self._losses_of(t * scores))) * self.W
        return JointResult(
            coef=W if intercept_scaling == 0.0 else W[:, :-1].copy(),
            intercept=np.zeros(self.m) if intercept_scaling == 0.0 else intercept_scaling * W[:, -1],
            dual=sp.csr_array(np.maximum(-self.combined, 0.0)),
            **progress.outcome(),
            S=self.S,
            products=pair_products(self.penalty.paths, W),
        )

    def _visit(self, g: int) -> float:
        """Exact steps between two vertices of a block; its gap γ (loss − Σ_v a_v slack_v) before them."""
        row, cost = int(self.losses.row[g]), float(self.losses.cost[g])
        inside = slice(self.X.indptr[row], self.X.indptr[row + 1])
        columns, values = self.X.indices[inside], self.X.data[inside].astype(np.float64)
        s, weight = self.W[:, columns] @ values, cost * float(self.squared_norms[row])
        path, vertices, change = self.paths[self.path_of[g]], self.vertices[g], np.zeros(self.m)
        gap = path.best_vertex(s)[1] - (float(self.gain[g]) - float(self.combined[g] @ s))
        for _ in range(max(STEPS, 2 * len(vertices))):
            step = self._step(path, vertices, s, weight)
            if step is None:
                break
            s += weight * (self.P @ step)
            change += step
        self.still[g] = 0 if change.any() else self.still[g] + 1
        self._combine(g)
        self.B[:, columns] += np.outer(cost * change, values)
        self.W[:, columns] += np.outer(cost * (self.P @ change), values)
        return cost * gap

    def _step(self, path: _Path, vertices: dict[tuple[int, ...], _Vertex], s: Floats, weight: float) -> Floats | None:
        """Move mass from the worst vertex to the best as far as that gains; the change of Σ_v a_v E_v, or None."""
        key, high, count = path.best_vertex(s)
        free = 1.0 - sum(vertex.mass for vertex in vertices.values())
        worst, low = None, 0.0 if free > SLACK_NOISE else np.inf
        for other, vertex in vertices.items():
            slack = vertex.rho - float(vertex.E @ s)
            if slack < low:
                worst, low = other, slack
        if high - low <= SLACK_NOISE or key == (worst or ()):
            return None
        if key and key not in vertices:
            vertices[key] = _Vertex(key, count, self.m)
        none = np.zeros(self.m)
        direction = (vertices[key].E if key else none) - (vertices[worst].E if worst else none)
        available = vertices[worst].mass if worst else free
        curvature = weight * float(direction @ self.P @ direction)
        moved = min(available, (high - low) / curvature) if curvature > 0.0 else available
        if key:
            vertices[key].mass += moved
        if worst:
            vertices[worst].mass -= moved
            if moved == available:
                del vertices[worst]
        return moved * direction

    def _combine(self, g: int) -> None:
        """Sets: `combined` and `gain` of a block, from masses that are exactly feasible."""
        vertices = list(self.vertices[g].values())
        masses = np.array([vertex.mass for vertex in vertices])
        masses /= max(1.0, float(masses.sum()) * (1.0 + 1e-15))
        self.combined[g] = masses @ np.array([vertex.E for vertex in vertices]) if vertices else 0.0
        self.gain[g] = masses @ np.array([vertex.rho for vertex in vertices]) if vertices else 0.0

    def _rebuild(self) -> None:
        """Sets: B and W, from the masses."""
        weights = sp.csr_array(self.losses.cost[:, None] * self.combined)
        self.B = np.asarray((weights.T @ self.X[self.losses.row]).toarray(), dtype=np.float64)
        self.W = self.P @ self.B

    def _set_signs(self, S: Floats) -> None:
        """Sets: S, U, d, P and W."""
        self.S = S
        M = self.penalty.paths.symmetric(self.penalty.K * S).toarray()
        lower = np.linalg.cholesky(M[::-1, ::-1])[::-1, ::-1]  # upper triangular: the last node is eliminated first
        self.U = lower / np.diag(lower)
        inverse = solve_triangular(lower, np.eye(self.m))
        self.P = inverse.T @ inverse
        self.W = self.P @ self.B

    def _gram(self, Q: Floats) -> Floats:
        """U⁻¹ Q U⁻ᵀ."""
        half = solve_triangular(self.U, Q, unit_diagonal=True)
        whole: Floats = solve_triangular(self.U, half.T, unit_diagonal=True)
        return whole

    def _losses_of(self, scores: Floats) -> Floats:
        """φ of all blocks at scores of shape (n_samples, m)."""
        loss = np.zeros(self.losses.n_blocks)
        for key, blocks in self.blocks_of.items():
            loss[blocks] = self.paths[key].losses(scores[self.losses.row[blocks]])
        return loss
