"""Specification of the joint dual ascent for hierarchical large-margin training: plain, dense, for small problems.

    D(a, S) = Σ_g γ_g Σ_c a_gc ρ_c − ½ tr(B(a)ᵀ M⁻¹ B(a)),     B(a) = Σ_g γ_g Σ_c a_gc κ_c (e_i(c) − e_j(c)) x_gᵀ

is maximised over a_g ≥ 0, Σ_c a_gc ≤ 1, and, if M = K∘S is learned, over |S_ij| ≤ 1 on ancestor pairs, S_ii = 1. With
W = M⁻¹B and the objective J(W) = penalty(W) + Σ_g γ_g loss_g(W), at any such point D ≤ min J ≤ J, and the gap is

    J(W) − D = Σ_pairs K_ij (|w_iᵀw_j| − S_ij w_iᵀw_j) + Σ_g γ_g (loss_g − Σ_c a_gc slack_c),

slack = ρ − κ (s_i − s_j). A round: pairwise steps in the blocks in random order, a step in S, an extrapolation of a.
Memory: W, and M⁻¹ densely.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from widemargin.problems.tree_factor import AncestorPaths, TreeFactor, factorize

__all__ = [
    "Block",
    "JointProblem",
    "JointState",
    "coordinate_sweep",
    "orthogonal_change",
    "pairwise_steps",
    "run_round",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PAIRWISE_STEPS = 8
STILL_VISITS = 2
MIN_SWEEPS, MAX_SWEEPS = 2, 20
SLACK_NOISE = 1e-14
SLACK_TIE = 1e-12
MASS_NOISE = 1e-14
WORD = 2**64 - 1


@dataclass(frozen=True, eq=False)
class Block:
    """One slack: the row of X, γ, and its constraints (winner i, loser j, offset ρ, slope κ), each of shape (n,)."""

    row: int
    cost: float
    winner: Ints
    loser: Ints
    rho: Floats
    kappa: Floats


@dataclass(frozen=True, eq=False)
class JointProblem:
    """Rows X (n_samples, n_features), blocks, and the coupling: K of K∘S if it is learned, else M."""

    X: Floats
    blocks: list[Block]
    paths: AncestorPaths
    matrix: Floats
    learns_signs: bool


@dataclass(eq=False)
class JointState:
    """A point (a, S) and its state; `a[g]` has one value per constraint of block g.

    Examples
    --------
    >>> paths, one = AncestorPaths.of(np.array([-1, 0, 0])), np.ones(1)
    >>> block = Block(0, 1.0, np.array([0]), np.array([1]), one, one)
    >>> state = JointState(JointProblem(np.ones((1, 1)), [block], paths, np.ones(2), learns_signs=False))
    >>> run_round(state)
    >>> state.a[0], state.bounds()  # D = a − a², largest at ½
    (array([0.5]), (0.25, 0.25))
    """

    problem: JointProblem
    seed: int = 0
    a: list[Floats] = field(default_factory=list)
    S: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        self.a = [np.zeros(len(block.loser)) for block in self.problem.blocks]
        self.S = np.where(self.problem.paths.is_diagonal, 1.0, 0.0)
        self.before: list[Floats] | None = None
        self.momentum, self.last_dual = 1.0, 0.0
        self.still = [0] * len(self.a)

    @property
    def factor(self) -> TreeFactor:
        """The factor of M."""
        signs = self.S if self.problem.learns_signs else np.ones_like(self.S)
        return factorize(self.problem.paths, self.problem.matrix * signs)

    @property
    def B(self) -> Floats:
        """B(a), shape (m, n_features)."""
        B = np.zeros((self.problem.paths.m, self.problem.X.shape[1]))
        for block, a in zip(self.problem.blocks, self.a, strict=True):
            x = self.problem.X[block.row]
            np.add.at(B, block.winner, (block.cost * block.kappa * a)[:, None] * x)
            np.add.at(B, block.loser, -(block.cost * block.kappa * a)[:, None] * x)
        return B

    @property
    def W(self) -> Floats:
        """M⁻¹B."""
        weights: Floats = self.factor.solve(self.B)
        return weights

    def products(self, W: Floats) -> Floats:
        """w_iᵀw_j on the layout."""
        paths = self.problem.paths
        products: Floats = np.einsum("ij,ij->i", W[paths.descendant], W[paths.path_nodes])
        return products

    def pairs_gap(self) -> float:
        """Σ_pairs K_ij (|w_iᵀw_j| − S_ij w_iᵀw_j)."""
        products = self.products(self.W)
        return float(self.problem.matrix @ (np.abs(products) - self.S * products)) if self.problem.learns_signs else 0.0

    def bounds(self) -> tuple[float, float]:
        """J(W) and D(a, S)."""
        B, W = self.B, self.W
        quadratic = 0.5 * float((B * W).sum())
        gain = sum(block.cost * float(a @ block.rho) for block, a in zip(self.problem.blocks, self.a, strict=True))
        losses = sum(
            block.cost * max(0.0, float(self.slack(block, W).max(initial=0.0))) for block in self.problem.blocks
        )
        return quadratic + self.pairs_gap() + losses, gain - quadratic

    def slack(self, block: Block, W: Floats) -> Floats:
        """ρ − κ (s_i − s_j) of the constraints of a block."""
        scores = W @ self.problem.X[block.row]
        slack: Floats = block.rho - block.kappa * (scores[block.winner] - scores[block.loser])
        return slack


def pairwise_steps(slack: Floats, a: Floats, H: Floats, noise: float = SLACK_NOISE) -> Floats:
    """Dual variables of a block after a few exact steps between two vertices of its simplex.

    `slack` (n,) is the gradient of the dual by γ a, `a` (n,) the dual variables, and H (n, n) the decrease of the
    slacks per unit of each dual variable. Differences of slacks up to `noise` count as zero.

    Examples
    --------
    >>> pairwise_steps(np.array([1.0]), np.zeros(1), np.array([[4.0]]))
    array([0.25])
    """
    left = 1.0 - float(a.sum())
    mass, slack = np.append(a, left if left >= MASS_NOISE else 0.0), np.append(slack, 0.0)  # the last: no violation
    H = np.pad(H, (0, 1))
    for _ in range(max(PAIRWISE_STEPS, 2 * int((a > 0.0).sum()))):
        order = np.roll(np.arange(len(mass)), 1)  # ties go to the vertex 0, then to the lower number
        to = int(order[np.argmax(slack[order] >= slack.max() - SLACK_TIE)])
        occupied = order[mass[order] > 0.0]
        out = int(occupied[np.argmax(slack[occupied] <= slack[occupied].min() + SLACK_TIE)])
        rise = slack[to] - slack[out]
        if to == out or rise <= noise:
            break
        curvature = H[to, to] + H[out, out] - 2.0 * H[to, out]
        moved = rise / curvature if curvature * mass[out] > rise else mass[out]
        mass[to] += moved
        mass[out] = 0.0 if moved == mass[out] else mass[out] - moved
        slack = slack - moved * (H[:, to] - H[:, out])
    return mass[:-1]


def visit(state: JointState, g: int) -> bool:
    """Steps in one block with the others and M fixed; whether anything changed."""
    block = state.problem.blocks[g]
    x = state.problem.X[block.row]
    m, n = state.problem.paths.m, len(block.loser)
    E = np.zeros((m, n))
    np.add.at(E, (block.winner, np.arange(n)), block.kappa)
    np.add.at(E, (block.loser, np.arange(n)), -block.kappa)
    H = block.cost * float(x @ x) * (E.T @ state.factor.solve(E))
    after = pairwise_steps(state.slack(block, state.W), state.a[g], H)
    changed = not np.array_equal(after, state.a[g])
    state.a[g] = after
    return changed


def orthogonal_change(p_ii: float, p_ij: float, p_jj: float, g_ii: float, g_ij: float, g_jj: float) -> float:
    """The change of M_ij after which w_iᵀw_j = 0, from entries of P = M⁻¹ and G = W Wᵀ.

    Examples
    --------
    >>> round(orthogonal_change(1.0, 0.0, 1.0, 1.0, 0.5, 1.0), 4)  # W = [[1, 0], [½, √¾]]
    0.2679
    """
    h = p_jj * g_ii + p_ii * g_jj
    root = float(np.sqrt(max(h * h - 4.0 * p_ii * p_jj * g_ij * g_ij, 0.0)))
    if not h + root > 0.0:
        return 0.0
    z = 2.0 * g_ij / (h + root)
    return z / (1.0 - z * p_ij)


def coordinate_sweep(paths: AncestorPaths, K: Floats, S: Floats, Q: Floats) -> Floats:
    """S after one exact step in every pair, one after the other, for Q = B Bᵀ."""
    S = S.copy()
    for e in np.flatnonzero(~paths.is_diagonal & (K > 0.0)):
        i, j = paths.descendant[e], paths.path_nodes[e]
        P = np.linalg.inv(paths.symmetric(K * S).toarray())
        G = P @ Q @ P
        d = orthogonal_change(P[i, i], P[i, j], P[j, j], G[i, i], G[i, j], G[j, j])
        S[e] = np.clip(S[e] + d / K[e], -1.0, 1.0)
    return S


def joint_proposal(paths: AncestorPaths, K: Floats, S: Floats, Q: Floats) -> Floats:
    """S with every pair at its own optimum, the others fixed: the step of large subtrees before its line search."""
    P = np.linalg.inv(paths.symmetric(K * S).toarray())
    G, proposal = P @ Q @ P, S.copy()
    for e in np.flatnonzero(~paths.is_diagonal & (K > 0.0)):
        i, j = paths.descendant[e], paths.path_nodes[e]
        d = orthogonal_change(P[i, i], P[i, j], P[j, j], G[i, i], G[i, j], G[j, j])
        proposal[e] = np.clip(S[e] + d / K[e], -1.0, 1.0)
    return proposal


def improve_signs(state: JointState, target: float) -> None:
    """Sweeps over the pairs until their gap is at most `target`; none if it is infinite."""
    if not state.problem.learns_signs or np.isinf(target):
        return
    B = state.B
    for k in range(MAX_SWEEPS):
        if k >= MIN_SWEEPS and state.pairs_gap() <= target:
            return
        state.S = coordinate_sweep(state.problem.paths, state.problem.matrix, state.S, B @ B.T)


def extrapolate(state: JointState, dual: float) -> None:
    """a ← a + share · (a − a of the round before), projected onto the simplices; restarts if the dual fell."""
    if state.before is None:
        state.before, state.momentum, state.last_dual = [a.copy() for a in state.a], 1.0, dual
        return
    if dual < state.last_dual:
        state.momentum = 1.0
    state.last_dual = dual
    after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
    share = (state.momentum - 1.0) / after
    state.momentum = after
    for g, (now, before) in enumerate(zip(state.a, state.before, strict=True)):
        moved = np.maximum((1.0 + share) * now - share * before, 0.0)
        state.a[g] = moved / max(float(moved.sum()), 1.0)
        state.before[g] = now


def run_round(state: JointState, target: float = 0.0, *, then_extrapolate: bool = False) -> None:
    """Visits to the blocks that are awake, in random order, then the step in S."""
    awake = [g for g, still in enumerate(state.still) if still < STILL_VISITS and state.problem.blocks[g].cost > 0.0]
    for g in shuffled(awake, state):
        state.still[g] = 0 if visit(state, g) else state.still[g] + 1
    improve_signs(state, target)
    if then_extrapolate:
        extrapolate(state, state.bounds()[1])


def shuffled(items: list[int], state: JointState) -> list[int]:
    """A random order by splitmix64, the same as in the core; advances the seed."""
    items = list(items)
    for n in range(len(items), 1, -1):
        state.seed = z = (state.seed + 0x9E3779B97F4A7C15) & WORD
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        at = (((z ^ (z >> 31)) & 0xFFFFFFFF) * n) >> 32
        items[n - 1], items[at] = items[at], items[n - 1]
    return items
