"""Hierarchical large-margin training with a kernel, by block-coordinate ascent on the joint dual.

The problem is that of `solvers.joint_dual` in the feature space of the kernel. By the representer theorem

    w_i = Σ_k c_ik φ(x_k),     c = M(S)⁻¹ B(a),     scores of x:  c κ(X, x),     w_iᵀw_j = (c K cᵀ)_ij

with B (m × n) of the dual variables a, and K (n × n) the kernel matrix. The ascent keeps Z = L⁻¹ B K, M = L diag(d) Lᵀ,
up to date: a visit reads a column of it at the nodes of the block, and a step adds a column of K to a few rows. Blocks
with nothing to gain sleep; after each round S is improved from L⁻¹ B K Bᵀ L⁻ᵀ, subtree by subtree. Stops when the
certified `decrease_gap`, computed in float64 from the dual variables and S that are returned, is at most `tol`.

Memory, all float64: `WORK_ARRAYS` arrays of nodes × rows, 8 m n bytes each, which must fit in `memory_limit_mb`; K if
its 8 n² bytes fit in `cache_size_mb`, otherwise as many of its columns as fit, the others being computed again when
they are wanted. A kernel with negative curvature is refused, see `problems.kernels`.

Points of the joint dual of a tree with a kernel: what dual variables and a coupling give, in float64.

    B (m × n): column k = Σ_g γ_g Σ_c a_gc κ_c (e_i − e_j) over the blocks g of example k,    M = L diag(d) Lᵀ
    Z = L⁻¹ B K,    scores = M⁻¹ B K = L⁻ᵀ diag(d)⁻¹ Z,
    gram = L⁻¹ B K Bᵀ L⁻ᵀ,    W Wᵀ = L⁻ᵀ diag(d)⁻¹ gram diag(d)⁻¹ L⁻¹

With Σ_g γ_g Σ_c a_gc ρ_c as gain, D = gain − ½ Σ_i gram_ii / d_i. Memory: the dual variables that are not 0, and arrays
of m × m and, where scores are made, m × n.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from widemargin.problems.tree_penalties import OrthogonalPenalty, QuadraticPenalty, subtree_penalties
from widemargin.reference.joint_dual import joint_proposal
from widemargin.solvers.kernel_matrix import KernelMatrix
from widemargin.solvers.limits import ROUNDING
from widemargin.solvers.result import Callback
from widemargin.solvers.tree.joint_dual import (
    COUPLING_SHARE,
    JointProgress,
    JointResult,
    JointStart,
    check_costs,
    problem_arrays,
)

__all__ = ["DualPoint", "KernelJointResult", "SignSteps", "feasible", "solve_kernel_joint_dual", "weight_products"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CURVATURE_TOLERANCE = 1e-9  # of the terms of bᵀKb, for what rounding may make negative
SMALL_SUBTREE = 150  # nodes, up to which S is changed one entry at a time; as in cpp/tree_coupling.hpp
LARGE_STEPS = 4  # of a large subtree in one step
SHORTER = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of a step in all entries at once, until it gains


def feasible(dual: sp.csr_array) -> sp.csr_array:
    """Dual variables of at least 0 whose sums by block are at most 1, where rounding left them elsewhere."""
    values = np.maximum(dual.data, 0.0)
    sums = np.bincount(_blocks_of(dual), weights=values, minlength=dual.shape[0])
    scale = np.where(sums > 1.0, 1.0 / (np.maximum(sums, 1.0) * (1.0 + 1e-15)), 1.0)
    return sp.csr_array((values * scale[_blocks_of(dual)], dual.indices, dual.indptr), shape=dual.shape)


class DualPoint:
    """Dual variables as the constraints they belong to.

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
        """Refuse F = B K of a kernel under which a row of B has a negative squared norm."""
        terms = self.B.multiply(F).tocsr()
        sums, sizes = np.asarray(terms.sum(axis=1)).ravel(), np.asarray(abs(terms).sum(axis=1)).ravel()
        if (sums < -CURVATURE_TOLERANCE * sizes).any():
            raise not_positive_semidefinite(
                f"a linear combination of its columns has the squared norm {sums.min():.3g}"
            )

    def block_gaps(self, scores: Floats, loss: Floats) -> Floats:
        """γ_g (loss_g − Σ_c a_gc slack_c), shape (n_blocks,), for scores of shape (m, n)."""
        row = self.losses.row[self.block]
        slack = self.rho - self.kappa * (scores[self.winner, row] - scores[self.loser, row])
        kept = np.bincount(self.block, weights=self.value * slack, minlength=self.losses.n_blocks)
        return self.losses.cost * (loss - kept)


def weight_products(factor: TreeFactor, gram: Floats) -> Floats:
    """w_iᵀw_j on the layout."""
    G = factor.backward(factor.backward(gram).T)
    products: Floats = G[factor.paths.descendant, factor.paths.path_nodes]
    return products


class SignSteps:
    """Steps in S with the dual variables fixed, one subtree of a top node after another.

    Small subtrees: exact steps in one entry at a time. Large ones: the exact steps of all entries at once, each as if
    alone, shortened until they gain.
    """

    def __init__(self, penalty: OrthogonalPenalty) -> None:
        self.parts = [part for part in subtree_penalties(penalty) if len(part[0]) > 1]

    def improve(self, S: Floats, gram: Floats, target: float) -> Floats:
        """S with a smaller gap of the pairs, the steps ending when it seems to be at most `target`."""
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
    factor = penalty.factor(S)
    L = penalty.paths.upper(factor.L)
    Q = L @ (L @ gram).T
    for _ in range(LARGE_STEPS):
        factor, inside = _factor_and_gram(penalty, S, Q)
        if penalty.excess(S, weight_products(factor, inside)) <= target:
            break
        direction, value = joint_proposal(penalty.paths, penalty.K, S, Q) - S, np.diag(inside) @ (1.0 / factor.pivots)
        for share in SHORTER:
            factor, inside = _factor_and_gram(penalty, S + share * direction, Q)
            if np.diag(inside) @ (1.0 / factor.pivots) < value:
                S = S + share * direction
                break
        else:
            break
    return S


def _factor_and_gram(penalty: OrthogonalPenalty, S: Floats, Q: Floats) -> tuple[TreeFactor, Floats]:
    factor = penalty.factor(S)
    return factor, factor.forward(factor.forward(Q).T)


def _blocks_of(dual: Any) -> Ints:
    blocks: Ints = np.repeat(np.arange(dual.shape[0]), np.diff(dual.indptr))
    return blocks


WORK_ARRAYS = 4
"""Arrays of nodes × rows that are alive at once: Z, the scores of a certificate, and what they are made of."""
SMALL_SHARE = 0.1
"""Of the gap that is allowed in the end: what blocks that are left as they are may have of it together."""
WORK = 20_000_000  # multiplications between looks at the clock: some 20 ms
PASS_DONE, COLUMNS_WANTED = 0, 1  # what the core's run() ends with
MEGABYTE = 2**20


@dataclass(frozen=True)
class KernelJointResult(JointResult):
    """A `JointResult` whose weights are combinations of training rows; `coef` is None.

    Parameters
    ----------
    support : ndarray of int64 of shape (n_support,)
        Training rows that the weights are made of.
    dual_coef : ndarray of float64 of shape (m, n_support)
        c at these rows: scores of rows A are `kernel.block(A, X[support]) @ dual_coef.T + intercept`.

    Examples
    --------
    >>> from widemargin.solvers.tree.kernel_joint_dual import KernelJointResult
    >>> list(KernelJointResult.__dataclass_fields__)[-2:]
    ['support', 'dual_coef']
    """

    support: Ints | None = None
    dual_coef: Floats | None = None


def solve_kernel_joint_dual(
    kernel: TrainingKernel | PrecomputedKernel,
    losses: TreeLosses,
    penalty: OrthogonalPenalty | QuadraticPenalty,
    *,
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
    n_threads: int = 1,
    start: JointStart | None = None,
    callback: Callback | None = None,
    cache_size_mb: float = 512.0,
    memory_limit_mb: float = 4096.0,
) -> KernelJointResult:
    """Train, and certify what is returned.

    Parameters
    ----------
    kernel : TrainingKernel or PrecomputedKernel
        The kernel matrix of the training rows.
    losses : TreeLosses
        The blocks of constraints with their costs, from `problems.tree_losses.tree_losses`.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The penalty of the same method and tree, from `problems.tree_penalties.tree_penalty`.
    bias : float
        Value of a constant feature, which adds bias² to the kernel and is part of the penalty; 0 for none.
    tol : float
        `decrease_gap` to reach.
    max_iter : int
        Passes at most; a pass is as many visits as there are blocks.
    seed : int
        Of the order in which examples are visited.
    n_threads : int
        Threads of kernel values and certificate; the visits are sequential. Results do not depend on it.
    start : JointStart or None
        Dual variables and signs to start from, of a result for the same examples, method and tree.
    callback : callable or None
        Called with a `Progress` after each round; stops the solver when true.
    cache_size_mb : float
        Room for kernel values that are kept.
    memory_limit_mb : float
        Room for arrays of nodes × rows; more is an error.

    Returns
    -------
    KernelJointResult
        `support` and `dual_coef`; `intercept` (m,) = bias² Σ_k c_ik; `dual`, a csr_array (n_blocks, m) as of
        `solve_joint_dual`; `S` and `products` for orthogonal transfer. `coef` is None.

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
    _check(kernel, losses, penalty, memory_limit_mb)
    with threadpool_limits(limits=1, user_api="blas"):
        check_positive_semidefinite(kernel, seed)
        matrix = KernelMatrix(kernel, bias, max(1, n_threads))
        run = _Run(matrix, losses, penalty, seed, cache_size_mb * MEGABYTE)
        rounding = ROUNDING if run.diagonal.any() else 0.0
        progress = JointProgress(losses.at_zero, tol, max_iter, callback, rounding)
        if start is not None:
            run.start_from(start)
            run.certify(progress)
        while progress.status is None:
            run.advance(progress)
            progress.end_if_stuck()
        return run.result(progress)


class _Run:
    """One problem on its way: the core's dual variables and Z, S with its factor, and the best certified point."""

    def __init__(
        self,
        matrix: KernelMatrix,
        losses: TreeLosses,
        penalty: OrthogonalPenalty | QuadraticPenalty,
        seed: int,
        cache_bytes: float,
    ) -> None:
        self.matrix, self.losses, self.penalty = matrix, losses, penalty
        self.paths = losses.paths
        self.signs = SignSteps(penalty) if isinstance(penalty, OrthogonalPenalty) else None
        fixed = penalty.M if isinstance(penalty, QuadraticPenalty) else None
        self.coupled = fixed is None or bool(np.any(fixed[~self.paths.is_diagonal] != 0.0))
        n, self.diagonal = matrix.n, matrix.diagonal()
        whole, n_slots = matrix.room(cache_bytes, np.float64)
        self.Z = np.zeros((self.paths.m, n))
        self._problem = _core.TreeProblem(**problem_arrays(losses, self.paths, self.coupled))
        self.core = _core.KernelTreeAscent(self._problem, self.diagonal, self.Z, n_slots, seed % 2**63)
        if whole:
            self.core.use_matrix(matrix.whole(np.float64))
        self.rounds, self.products = 0, np.empty(0)
        self.dual: Any = sp.csr_array((losses.n_blocks, self.paths.m))
        self.best = JointStart(self.dual)
        self._set_signs(np.where(self.paths.is_diagonal, 1.0, 0.0))

    def start_from(self, start: JointStart) -> None:
        """Take dual variables and signs; Z is made by the certificate that is to follow."""
        dual = feasible(sp.csr_array(start.dual, dtype=np.float64))
        self.core.set_duals(dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data)
        if start.S is not None and self.signs is not None:
            self._set_signs(np.clip(start.S, -1.0, 1.0))

    def advance(self, progress: JointProgress) -> None:
        """A round: visits, a step in S, and a certificate if the tolerance seems near."""
        small = self._small(progress) if self.rounds else 0.0
        while (ended := self.core.run(WORK, small)) != PASS_DONE and not progress.is_out_of_time:
            if ended == COLUMNS_WANTED:
                self.core.lend_columns(self.matrix.columns(self.core.wanted(), np.float64))
        self.rounds += 1
        point = DualPoint(self.losses, self._duals())
        gram, pairs_gap = self._improve_signs(point.gram(self.factor, self.Z), progress)
        dual = point.gain - self._half_trace(gram)
        progress.record(dual, self.core.pass_gap + pairs_gap, self.core.n_visits, self.losses.n_blocks)
        if progress.wants_certificate:
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

    def result(self, progress: JointProgress) -> KernelJointResult:
        """The best point that was certified, or a multiple of its weights where zero weights are better than these."""
        if progress.certified is None or progress.certified > min(progress.primal, progress.at_zero):
            self.start_from(self.best)
            scores = self.certify(progress)
            evaluate = self.losses.evaluate_scores
            scale = progress.shorten(lambda t: evaluate(lambda rows, nodes: t * scores[nodes, rows].T).value)
        else:
            scale = 1.0
        B = DualPoint(self.losses, self.dual).B
        support = np.unique(B.indices).astype(np.int64)
        dual_coef = scale * self.factor.solve(B[:, support].toarray())
        return KernelJointResult(
            coef=None,
            intercept=self.matrix.shift * dual_coef.sum(axis=1),
            dual=self.dual,
            **progress.outcome(),
            S=self.S if self.signs is not None else None,
            products=scale * scale * self.products if self.signs is not None else None,
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
        """Sets: S, factor, and the core's."""
        penalty = self.penalty
        self.S = S
        self.factor: TreeFactor = penalty.factor(S) if isinstance(penalty, OrthogonalPenalty) else penalty.factor
        R = self.factor.R if self.coupled else self.factor.R[self.paths.is_diagonal]
        self.core.set_factor(np.ascontiguousarray(R), np.ascontiguousarray(self.factor.pivots, dtype=np.float64))

    def _half_trace(self, gram: Floats) -> float:
        return 0.5 * float(np.diag(gram) @ (1.0 / self.factor.pivots))

    def _small(self, progress: JointProgress) -> float:
        """Gap of a block up to which it is left as it is."""
        return SMALL_SHARE * progress.allowed_gap / self.losses.n_blocks

    def _duals(self) -> Any:
        starts, losers, values = self.core.duals()
        return sp.csr_array((values, losers, starts), shape=(self.losses.n_blocks, self.paths.m))


def _check(
    kernel: TrainingKernel | PrecomputedKernel,
    losses: TreeLosses,
    penalty: OrthogonalPenalty | QuadraticPenalty,
    memory_limit_mb: float,
) -> None:
    if kernel.n_rows != losses.n_samples:
        raise ValueError(f"the kernel has {kernel.n_rows} rows, but there are {losses.n_samples} labels")
    if penalty.paths.m != losses.paths.m:
        raise ValueError(f"the penalty is of {penalty.paths.m} nodes, the losses of {losses.paths.m}; use one tree")
    if penalty.paths.n_entries != losses.paths.n_entries:
        raise ValueError("K joins nodes of which neither is above the other; use solve_dense_joint_dual")
    check_costs(losses)
    needed = WORK_ARRAYS * 8 * losses.paths.m * kernel.n_rows / MEGABYTE
    if needed > memory_limit_mb:
        raise ValueError(
            f"training with a kernel keeps {WORK_ARRAYS} arrays of {losses.paths.m:,} nodes × {kernel.n_rows:,} rows, "
            f"{needed:,.0f} MB, more than memory_limit_mb={memory_limit_mb:g}; raise it, use fewer rows, or train "
            "without a kernel"
        )
