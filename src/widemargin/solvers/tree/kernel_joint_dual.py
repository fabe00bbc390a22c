"""Hierarchical large-margin training with a kernel, by block-coordinate ascent on the joint dual.

The problem is the one in `solvers.tree.joint_dual`, in the feature space of the kernel. By the representer theorem

    w_i = Σ_k c_ik φ(x_k),     c = M(S)⁻¹ B(a),     scores of x:  c κ(X, x),     w_iᵀw_j = (c K cᵀ)_ij

with B (m × n) from the dual variables a, and K (n × n) the kernel matrix. The ascent maintains Z = L⁻¹ B K with
M = L diag(d) Lᵀ: a visit reads a column of Z at the nodes of the block, and a step adds a column of K to a few rows.
Blocks with nothing to gain sleep. After each round S is improved from L⁻¹ B K Bᵀ L⁻ᵀ, subtree by subtree. It stops when
the certified `decrease_gap`, computed in float64 from the returned dual variables and S, is at most `tol`. With

    B (m × n): column k = Σ_g γ_g Σ_c a_gc κ_c (e_i − e_j) over the blocks g of example k,
    scores = M⁻¹ B K = L⁻ᵀ diag(d)⁻¹ Z,    gram = L⁻¹ B K Bᵀ L⁻ᵀ,    W Wᵀ = L⁻ᵀ diag(d)⁻¹ gram diag(d)⁻¹ L⁻¹,

and gain = Σ_g γ_g Σ_c a_gc ρ_c, the dual is D = gain − ½ Σ_i gram_ii / d_i.

Memory, all float64: `WORK_ARRAYS` arrays of nodes × rows, 8 m n bytes each, which must fit in `memory_limit_mb`; K if
its 8 n² bytes fit in `cache_size_mb`, otherwise as many of its columns as fit, while the others are recomputed when
needed. A kernel with negative curvature is refused, see `problems.kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.kernels import (
    PrecomputedKernel,
    TrainingKernel,
    check_positive_semidefinite,
    not_positive_semidefinite,
)
from widemargin.problems.tree_factor import TreeFactor
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, Penalty, subtree_penalties
from widemargin.solvers.kernel_matrix import KernelMatrix
from widemargin.solvers.limits import ROUNDING
from widemargin.solvers.tree.joint_dual import (
    COUPLING_SHARE,
    JointProgress,
    JointResult,
    JointStart,
    TreeOptions,
    check_problem,
    core_problem,
)

__all__ = ["DualPoint", "SignSteps", "solve_kernel_joint_dual"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CURVATURE_TOLERANCE = 1e-9  # share of the terms of bᵀKb that rounding may make negative
SMALL_SUBTREE = 150  # largest subtree, in nodes, whose S is changed one entry at a time; as in the compiled solver
LARGE_STEPS = 4  # steps of a large subtree per round
SHORTER = (1.0, 0.5, 0.25, 0.125, 0.0625)  # shares of a step in all entries that are tried until one gains
WORK_ARRAYS = 4  # arrays of nodes × rows that exist at once: Z, the scores of a certificate, and their parts
SMALL_SHARE = 0.1  # share of the allowed gap that all blocks that are left alone may have together
WORK = 20_000_000  # multiplications between looks at the clock: about 20 ms
PASS_DONE, COLUMNS_WANTED = 0, 1  # results of the core's run()
MEGABYTE = 2**20


def solve_kernel_joint_dual(
    kernel: TrainingKernel | PrecomputedKernel,
    losses: TreeLosses,
    penalty: Penalty,
    *,
    start: JointStart | None = None,
    **options: Any,
) -> JointResult:
    """Train, and certify the result.

    Parameters
    ----------
    kernel : TrainingKernel or PrecomputedKernel
        The kernel matrix of the training rows.
    losses, penalty, start
        As for `solve_joint_dual`.
    **options
        The fields of `TreeOptions`; intercept_scaling² is added to the kernel. If arrays of nodes × rows need more than
        `memory_limit_mb`, an error is raised.

    Returns
    -------
    JointResult
        `support` and `dual_coef`; `intercept` (m,) = intercept_scaling² Σ_k c_ik; `dual`, a csr_array (n_blocks, m) as
        for `solve_joint_dual`; `S` and `products` for orthogonal transfer. `coef` is None.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.kernels import TrainingKernel, make_kernel
    >>> from widemargin.problems.tree_losses import tree_losses
    >>> from widemargin.problems.tree_penalties import tree_penalty
    >>> from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual
    >>> tree, labels = Tree(np.array([-1, 0, 0, 1, 1])), np.array([3, 2, 4, 2])
    >>> K = TrainingKernel(np.array([[0.0], [1.0], [2.0], [3.0]]), make_kernel("rbf", gamma=2.0))
    >>> losses = tree_losses("orthogonal", tree, labels, C=100.0)
    >>> result = solve_kernel_joint_dual(K, losses, tree_penalty("orthogonal", tree), tol=1e-6)
    >>> scores = K.columns(slice(None))[:, result.support] @ result.dual_coef.T
    >>> scores[:, :2].argmax(axis=1).tolist(), result.certificate.decrease_gap <= 1e-6
    ([0, 1, 0, 1], True)
    """
    given = TreeOptions(**options)
    check_problem(kernel.n_rows, losses, penalty)
    needed = WORK_ARRAYS * 8 * losses.paths.m * kernel.n_rows / MEGABYTE
    if needed > given.memory_limit_mb:
        raise ValueError(
            f"training with a kernel needs {WORK_ARRAYS} arrays of {losses.paths.m:,} nodes × {kernel.n_rows:,} rows, "
            f"{needed:,.0f} MB in total, which exceeds memory_limit_mb={given.memory_limit_mb:g}; raise the limit, "
            "use fewer rows, or train without a kernel"
        )
    with threadpool_limits(limits=1, user_api="blas"):
        check_positive_semidefinite(kernel, given.seed)
        matrix = KernelMatrix(kernel, given.intercept_scaling, max(1, given.n_threads))
        run = _Run(matrix, losses, penalty, given.seed, given.cache_size_mb * MEGABYTE)
        progress = JointProgress(losses.at_zero, given, ROUNDING if run.diagonal.any() else 0.0)
        if start is not None:
            run.start_from(start)
            run.certify(progress)
        while progress.status is None:
            run.advance(progress)
            progress.end_if_stuck()
        return run.result(progress)


class _Run:
    """The state of one problem: the core's dual variables and Z, S with its factor, and the best certified point."""

    def __init__(
        self, matrix: KernelMatrix, losses: TreeLosses, penalty: Penalty, seed: int, cache_bytes: float
    ) -> None:
        self.matrix, self.losses, self.penalty, self.paths = matrix, losses, penalty, losses.paths
        self.signs = SignSteps(penalty) if isinstance(penalty, OrthogonalPenalty) else None
        self.diagonal = matrix.diagonal()
        whole, n_slots = matrix.room(cache_bytes, np.float64)
        self.Z = np.zeros((self.paths.m, matrix.n))
        self._problem, self.coupled = core_problem(losses, penalty)
        self.core = _core.KernelTreeAscent(self._problem, self.diagonal, self.Z, n_slots, seed % 2**63)
        if whole:
            self.core.use_matrix(matrix.whole(np.float64))
        self.rounds, self.products = 0, np.empty(0)
        self.dual: Any = sp.csr_array((losses.n_blocks, self.paths.m))
        self.best = JointStart(self.dual)
        self._set_signs(np.where(self.paths.is_diagonal, 1.0, 0.0))

    def start_from(self, start: JointStart) -> None:
        """Set dual variables and signs; the certificate that must follow computes Z."""
        dual = feasible(sp.csr_array(start.dual, dtype=np.float64))
        self.core.set_duals(dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data)
        if start.S is not None and self.signs is not None:
            self._set_signs(np.clip(start.S, -1.0, 1.0))

    def advance(self, progress: JointProgress) -> None:
        """One round: visits, a step in S, and a certificate if it is due."""
        small = self._small(progress) if self.rounds else 0.0
        while (ended := self.core.run(WORK, small)) != PASS_DONE and not progress.is_out_of_time:
            if ended == COLUMNS_WANTED:
                self.core.lend_columns(self.matrix.columns(self.core.wanted(), np.float64))
        self.rounds += 1
        point = DualPoint(self.losses, self._duals())
        gram, pairs_gap = self._improve_signs(point.gram(self.factor, self.Z), progress)
        dual = point.gain - self._half_trace(gram)
        if progress.record(dual, self.core.pass_gap + pairs_gap, self.core.n_visits, self.losses.n_blocks):
            self.certify(progress)

    def certify(self, progress: JointProgress) -> Floats:
        """Take both bounds, from the dual variables and S alone. Sets: dual, products, Z, best; wakes blocks.

        Returns the scores of the rows, shape (m, n).
        """
        self.dual = feasible(self._duals())
        point = DualPoint(self.losses, self.dual)
        F = self.matrix.scores(sp.csr_array(point.B.T)).T
        point.check_curvature(F)
        self.Z[:] = self.factor.forward(F)
        del F
        gram = point.gram(self.factor, self.Z)
        penalty = quadratic = self._half_trace(gram)
        if isinstance(self.penalty, OrthogonalPenalty):
            self.products = weight_products(self.factor, gram)
            penalty = self.penalty.value_of_products(self.products)
        scores: Floats = self.factor.backward(self.Z)
        losses = self.losses.evaluate_scores(lambda rows, nodes: scores[nodes, rows].T)
        gaps = point.block_gaps(scores, losses.loss)
        self.core.wake(np.flatnonzero(gaps > self._small(progress)))
        if progress.accept(penalty + losses.value, point.gain - quadratic):
            self.best = JointStart(self.dual, self.S)
        return scores

    def result(self, progress: JointProgress) -> JointResult:
        """The best certified point, or a multiple of its weights if zero weights are better."""
        scale = 1.0
        if progress.certified is None or progress.certified > min(progress.primal, progress.at_zero):
            self.start_from(self.best)
            scores, evaluate = self.certify(progress), self.losses.evaluate_scores
            scale = progress.shorten(lambda t: evaluate(lambda rows, nodes: t * scores[nodes, rows].T).value)
        B = DualPoint(self.losses, self.dual).B
        support = np.unique(B.indices).astype(np.int64)
        dual_coef = scale * self.factor.solve(B[:, support].toarray())
        learned = self.signs is not None
        return JointResult(
            coef=None,
            intercept=self.matrix.shift * dual_coef.sum(axis=1),
            dual=self.dual,
            **progress.outcome(),
            S=self.S if learned else None,
            products=scale * scale * self.products if learned else None,
            support=support,
            dual_coef=dual_coef,
        )

    def _improve_signs(self, gram: Floats, progress: JointProgress) -> tuple[Floats, float]:
        """A step in S, after which Z belongs to the new factor; gram of that factor, and the gap of the pairs."""
        if self.signs is None or not isinstance(self.penalty, OrthogonalPenalty):
            return gram, 0.0
        S = self.signs.improve(self.S, gram, COUPLING_SHARE * progress.allowed_gap)
        if not np.array_equal(S, self.S):
            L = self.paths.upper(self.factor.L).tocsr()
            Q = L @ (L @ gram).T
            F = L @ self.Z
            self._set_signs(S)
            self.Z[:] = self.factor.forward(F)
            gram = self.factor.forward(self.factor.forward(Q).T)
        return gram, self.penalty.excess(self.S, weight_products(self.factor, gram))

    def _set_signs(self, S: Floats) -> None:
        """Sets: S, factor, and the factor of the core."""
        penalty = self.penalty
        self.S = S
        self.factor: TreeFactor = penalty.factor(S) if isinstance(penalty, OrthogonalPenalty) else penalty.factor
        R = self.factor.R if self.coupled else self.factor.R[self.paths.is_diagonal]
        self.core.set_factor(np.ascontiguousarray(R), np.ascontiguousarray(self.factor.pivots, dtype=np.float64))

    def _half_trace(self, gram: Floats) -> float:
        return 0.5 * float(np.diag(gram) @ (1.0 / self.factor.pivots))

    def _small(self, progress: JointProgress) -> float:
        """Gap up to which a block is left alone."""
        return SMALL_SHARE * progress.allowed_gap / self.losses.n_blocks

    def _duals(self) -> Any:
        starts, losers, values = self.core.duals()
        return sp.csr_array((values, losers, starts), shape=(self.losses.n_blocks, self.paths.m))


class DualPoint:
    """Dual variables together with the constraints they belong to.

    Parameters
    ----------
    losses : TreeLosses
        The blocks.
    dual : csr_array of shape (n_blocks, m)
        Dual variables by block and loser.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_losses import tree_losses
    >>> from widemargin.solvers.tree.kernel_joint_dual import DualPoint
    >>> losses = tree_losses("orthogonal", Tree(np.array([-1, 0, 0, 1, 1])), np.array([3]))
    >>> point = DualPoint(losses, sp.csr_array(np.array([[0.0, 0.2, 0.0, 0.5]])))
    >>> point.gain, point.B.toarray().ravel()
    (0.7, array([ 0.2, -0.2,  0.5, -0.5]))
    """

    def __init__(self, losses: TreeLosses, dual: sp.csr_array) -> None:
        paths = losses.paths
        self.losses, self.block = losses, _blocks_of(dual)
        self.loser, self.value = dual.indices.astype(np.int64), dual.data
        node = losses.node[self.block]
        self.rho: Floats = np.ones(len(node))
        self.kappa = self.rho
        if losses.is_output is None:  # the winner is the node of the path that is the loser's sibling
            self.winner = paths.path_nodes[paths.path_indptr[node] + paths.depth[node] - paths.depth[self.loser]]
        else:
            self.winner = node
        if losses.rescaling != "none":
            self.rho = (0.5 * losses.tree.distance(node + 1, self.loser + 1)).astype(np.float64)
            self.kappa = self.rho if losses.rescaling == "slack" else self.kappa
        weight = losses.cost[self.block] * self.value
        self.gain = float(weight @ self.rho)
        row, mass = losses.row[self.block], weight * self.kappa
        entries = np.concatenate([mass, -mass]), (np.concatenate([self.winner, self.loser]), np.concatenate([row, row]))
        self.B = sp.csr_array(sp.coo_array(entries, shape=(paths.m, losses.n_samples)))

    def gram(self, factor: TreeFactor, Z: Floats) -> Floats:
        """L⁻¹ B K Bᵀ L⁻ᵀ, shape (m, m), from Z = L⁻¹ B K."""
        product: Floats = factor.forward(self.B) @ Z.T
        return 0.5 * (product + product.T)

    def check_curvature(self, F: Floats) -> None:
        """Raise an error for F = B K if the kernel gives a row of B a negative squared norm."""
        terms = self.B.multiply(F).tocsr()
        sums, sizes = np.asarray(terms.sum(axis=1)).ravel(), np.asarray(abs(terms).sum(axis=1)).ravel()
        if (sums < -CURVATURE_TOLERANCE * sizes).any():
            raise not_positive_semidefinite(
                f"a linear combination of its columns has a squared norm of {sums.min():.3g}"
            )

    def block_gaps(self, scores: Floats, loss: Floats) -> Floats:
        """γ_g (loss_g − Σ_c a_gc slack_c), shape (n_blocks,), for scores of shape (m, n)."""
        row = self.losses.row[self.block]
        slack = self.rho - self.kappa * (scores[self.winner, row] - scores[self.loser, row])
        kept = np.bincount(self.block, weights=self.value * slack, minlength=self.losses.n_blocks)
        return self.losses.cost * (loss - kept)


def feasible(dual: sp.csr_array) -> sp.csr_array:
    """Dual variables made feasible where rounding left them outside: at least 0, with sums of at most 1 per block."""
    values, blocks = np.maximum(dual.data, 0.0), _blocks_of(dual)
    sums = np.bincount(blocks, weights=values, minlength=dual.shape[0])
    scale = np.where(sums > 1.0, 1.0 / (np.maximum(sums, 1.0) * (1.0 + 1e-15)), 1.0)
    return sp.csr_array((values * scale[blocks], dual.indices, dual.indptr), shape=dual.shape)


def _blocks_of(dual: Any) -> Ints:
    blocks: Ints = np.repeat(np.arange(dual.shape[0]), np.diff(dual.indptr))
    return blocks


def weight_products(factor: TreeFactor, gram: Floats) -> Floats:
    """w_iᵀw_j on the layout."""
    G = factor.backward(factor.backward(gram).T)
    products: Floats = G[factor.paths.descendant, factor.paths.path_nodes]
    return products


class SignSteps:
    """Steps in S with the dual variables fixed, one subtree of a top node after another.

    Small subtrees: exact steps in one entry at a time. Large subtrees: the exact steps of all entries at once, each
    computed as if it were the only one, shortened until they gain.
    """

    def __init__(self, penalty: OrthogonalPenalty) -> None:
        self.parts = [part for part in subtree_penalties(penalty) if len(part[0]) > 1]

    def improve(self, S: Floats, gram: Floats, target: float) -> Floats:
        """S with a smaller gap of the pairs; the steps end when that gap seems to be at most `target`."""
        after, share = S.copy(), target / max(len(self.parts), 1)
        for rows, entries, part in self.parts:
            inside, signs = np.ascontiguousarray(gram[np.ix_(rows, rows)]), after[entries]
            if len(rows) <= SMALL_SUBTREE:
                start, nodes = part.paths.path_indptr, part.paths.path_nodes.astype(np.int32)
                _core.sweep_signs(start, nodes, part.K, inside, share, signs)
            else:
                signs = _steps_of_all(part, signs, inside, share)
            after[entries] = signs
        return after


def _steps_of_all(penalty: OrthogonalPenalty, S: Floats, gram: Floats, target: float) -> Floats:
    """A few steps in all entries of a large subtree."""
    L = penalty.paths.upper(penalty.factor(S).L)
    Q = L @ (L @ gram).T

    def point_at(S: Floats) -> tuple[TreeFactor, Floats, float]:
        """Factor, gram, and twice the quadratic term at S."""
        factor = penalty.factor(S)
        inside = factor.forward(factor.forward(Q).T)
        return factor, inside, float(np.diag(inside) @ (1.0 / factor.pivots))

    for _ in range(LARGE_STEPS):
        factor, inside, value = point_at(S)
        if penalty.excess(S, weight_products(factor, inside)) <= target:
            break
        direction = best_alone(penalty, S, Q) - S
        share = next((share for share in SHORTER if point_at(S + share * direction)[2] < value), None)
        if share is None:
            break
        S = S + share * direction
    return S


def best_alone(penalty: OrthogonalPenalty, S: Floats, Q: Floats) -> Floats:
    """S with every pair at its best value if it were the only one to change: w_iᵀw_j = 0, or a bound.

    From P = M⁻¹ and G = W Wᵀ = P Q P. With h = P_jj G_ii + P_ii G_jj and z = 2 G_ij / (h + √(h² − 4 P_ii P_jj G_ij²)),
    the change of M_ij that makes w_i and w_j orthogonal is z / (1 − z P_ij).
    """
    paths = penalty.paths
    P = np.linalg.inv(paths.symmetric(penalty.K * S).toarray())
    G, proposal, free = P @ Q @ P, S.copy(), np.flatnonzero(~paths.is_diagonal & (penalty.K > 0.0))
    i, j, K = paths.descendant[free], paths.path_nodes[free], penalty.K[free]
    h = P[j, j] * G[i, i] + P[i, i] * G[j, j]
    scale = h + np.sqrt(np.maximum(h * h - 4.0 * P[i, i] * P[j, j] * G[i, j] * G[i, j], 0.0))
    z = np.divide(2.0 * G[i, j], scale, out=np.zeros(len(free)), where=scale > 0.0)
    proposal[free] = np.clip(S[free] + z / (1.0 - z * P[i, j]) / K, -1.0, 1.0)
    return proposal
