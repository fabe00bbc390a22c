"""Hierarchical large-margin training by block-coordinate ascent on a joint dual.

    minimise  penalty(W) + Σ_g γ_g loss_g(W),       loss_g(W) = max(0, max_c ρ_c − κ_c (s_i(c) − s_j(c))),  s = W x

over one weight vector per node of a tree; see `problems.tree_losses` and `problems.tree_penalties` for the five
methods. With M the coupling of the nodes, one point a_g of a simplex per block, and B(a) = Σ_g γ_g Σ_c a_gc κ_c (e_i −
e_j) xᵀ,

    D(a, S) = Σ_g γ_g Σ_c a_gc ρ_c − ½ tr(B(a)ᵀ M(S)⁻¹ B(a)),      W = M(S)⁻¹ B(a),

where M(S) = K∘S with |S_ij| ≤ 1 for orthogonal transfer, and M is fixed for the other methods. D is jointly concave and
smooth over a product of simplices and a box, so steps in one block after another reach its maximum, the optimum. A
round visits the blocks in random order (blocks with nothing to gain sleep), improves S, and extrapolates a. It stops
when the certified `decrease_gap` is at most `tol`. During the ascent W is not formed, only Z = L⁻¹B with M = L diag(d)
Lᵀ: a row of Z has only the features of the examples that pass the node. Memory: these tables, in float32 while that is
accurate enough for `tol`; one integer per entry of X and level; the non-zero dual variables.

`solvers.tree.kernel_joint_dual` and `solvers.tree.dense_joint_dual` solve the same problem with a kernel, and with a K
between any nodes or a top-k loss. They share the progress, the result and the checks of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin._docstrings import with_shared_passages
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import csr_of, saves_memory
from widemargin.problems.tree_factor import TreeFactor, TreeWeights
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, Penalty, pair_products
from widemargin.solvers.limits import ROUNDING, Limits, best_multiple, ending, history_of
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["JointAscent", "JointProgress", "JointResult", "JointStart", "TreeOptions", "solve_joint_dual"]

Floats = npt.NDArray[np.float64]

FLOAT32_TOL = 1e-5
"""For smaller tolerances the rounding of float32 vectors matters."""
SINGLE_VALUES, SINGLE_COSTS = 1e15, (1e-30, 1e30)
"""Largest value of X, and range of the largest cost, for which float32 vectors are tried: squares must fit as well."""
LARGEST_VALUE, LARGEST_COST = 1e150, 1e300
"""Squared norms of rows and sums of losses must be finite in float64."""
SLICE_S = 0.1
"""The ascent returns to Python after this many seconds, to check for signals and the deadline."""
COUPLING_SHARE = 0.1
"""Share of the allowed gap that a step in S may leave of the gap of the pairs."""
COUPLING_STEPS = 4
"""Steps of large subtrees in one step in S."""
SMALL_SUBTREE = 150
"""Size of a subtree, in nodes, above which updates of dense matrices cost more than passes over the node vectors."""
NEAR = 4.0
"""A certificate is due when the estimate, made before the visits, is below this multiple of the allowed gap."""
EVERY = 10
"""Rounds after which a certificate is due in any case; it also wakes sleeping blocks."""
STALL_ROUNDS = 40
"""Rounds without a smaller certified gap after which rounding is suspected."""
STUCK_ROUNDS = 400
"""Rounds without a smaller gap or a larger dual after which both count as out of reach. The error of the primal is the
root of that of the dual, so the gap still shrinks long after the dual seems constant; 40 were too few."""
LEAST_SHARE = 0.05
"""Least share of a pass that a round counts: it improves the coupling even if almost no block is awake."""
RESCALINGS = {"none": 0, "slack": 1, "margin": 2}
HISTORY = ("iteration", "passes", "seconds", "primal", "dual", "visits", "certified")


@dataclass(frozen=True)
class TreeOptions:
    """Options of the solvers on a tree. Not all of them use all: dual averaging and the dense solver have no threads.

    Parameters
    ----------
    intercept_scaling : float
        Value of the constant feature, whose weights are the intercepts and part of the penalty; 0 for none.
    tol : float
        `decrease_gap` to reach.
    max_iter : int
        Largest number of passes. For the joint dual a pass is as many visits as there are blocks, so a round with
        sleeping blocks is part of a pass.
    seed : int
        Seed of the order in which examples are visited.
    callback : callable or None
        Called with a `Progress` after each round; stops the solver when it returns true.
    n_threads : int
        Threads for everything but the visits, which are sequential. Results do not depend on it.
    memory_limit_mb : float
        Limit on dense arrays.
    cache_size_mb : float
        Memory for kernel values that are kept.

    Examples
    --------
    >>> from widemargin.solvers.tree.joint_dual import TreeOptions
    >>> TreeOptions(tol=1e-6).max_iter
    10000
    """

    intercept_scaling: float = 0.0
    tol: float = 1e-3
    max_iter: int = 10_000
    seed: int = 0
    callback: Callback | None = None
    n_threads: int = 1
    memory_limit_mb: float = 1024.0
    cache_size_mb: float = 512.0


@dataclass(frozen=True)
class JointStart:
    """A point to start from: dual variables and signs of a result for the same examples and tree.

    Dual variables are feasible for any C; for another α the signs can keep M = K∘S (`scaled`).

    Parameters
    ----------
    dual : csr_array of shape (n_blocks, m)
        Dual variables.
    S : ndarray of float64 of shape (n_entries,) or None
        Signs on the layout of ancestor pairs; the diagonal counts as 1, whatever it holds.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.solvers.tree.joint_dual import JointStart
    >>> JointStart(sp.csr_array((1, 2)), np.array([1.0, 1.0, 0.8])).scaled(2.0).S
    array([1., 1., 1.])
    """

    dual: Any
    S: Floats | None = None

    def scaled(self, ratio: float) -> JointStart:
        """For a K whose entries off the diagonal were divided by `ratio`: the same M, as far as |S| ≤ 1 allows."""
        return self if self.S is None else JointStart(self.dual, np.clip(self.S * ratio, -1.0, 1.0))


@dataclass(frozen=True)
class JointResult(SolverResult):
    """A `SolverResult` with the signs of orthogonal transfer, and with the support rows of a kernel model.

    Parameters
    ----------
    S : ndarray of float64 of shape (n_entries,) or None
        Signs on the layout of the penalty; |S_ij| < 1 means that this force holds w_i and w_j orthogonal.
    products : ndarray of float64 of shape (n_entries,) or None
        w_iᵀw_j on the same layout, the constant feature included.
    support : ndarray of int64 of shape (n_support,) or None
        With a kernel: the training rows that the weights are made of; `coef` is None.
    dual_coef : ndarray of float64 of shape (m, n_support) or None
        With a kernel: scores of rows A are `kernel.block(A, X[support]) @ dual_coef.T + intercept`.

    Examples
    --------
    >>> from widemargin.solvers.tree.joint_dual import JointResult
    >>> list(JointResult.__dataclass_fields__)[-4:]
    ['S', 'products', 'support', 'dual_coef']
    """

    S: Floats | None = None
    products: Floats | None = None
    support: npt.NDArray[np.int64] | None = None
    dual_coef: Floats | None = None

    @property
    def start(self) -> JointStart:
        """A start for a fit with another C."""
        return JointStart(self.dual, self.S)


@with_shared_passages
def solve_joint_dual(
    X: Any, losses: TreeLosses, penalty: Penalty, *, start: JointStart | None = None, **options: Any
) -> JointResult:
    """Solve the problem of all nodes by ascent on its dual, and certify the result.

    <tree_problem>
    penalty : OrthogonalPenalty or QuadraticPenalty
        The penalty of the same method and tree, from `problems.tree_penalties.tree_penalty`.
    start : JointStart or None
        Dual variables and signs of a result for the same examples, method and tree.
    **options
        The fields of `TreeOptions`. Weights are an ndarray up to `memory_limit_mb`, unless they are large and mostly
        zero. Otherwise they are a `TreeWeights`, a product of sparse factors, or a csr_array if nodes are not coupled.

    Returns
    -------
    JointResult
        `coef` (m, n_features), row r for node r + 1; `intercept` (m,); `dual`, a csr_array (n_blocks, m) whose entry
        (g, j) belongs to the constraint of block g that node j should lose; `S` and `products` for orthogonal transfer.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_losses import tree_losses
    >>> from widemargin.problems.tree_penalties import tree_penalty
    >>> from widemargin.solvers.tree.joint_dual import solve_joint_dual
    >>> tree, labels = Tree(np.array([-1, 0, 0, 1, 1])), np.array([2, 3, 4])
    >>> X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.2], [0.0, 1.0, -0.2]])
    >>> result = solve_joint_dual(X, tree_losses("orthogonal", tree, labels, C=10.0), tree_penalty("orthogonal", tree))
    >>> result.certificate.decrease_gap <= 1e-3, result.coef.shape
    (True, (4, 3))
    """
    given = TreeOptions(**options)
    (rows, largest), (low, high) = rows_with_constant(X, given.intercept_scaling), SINGLE_COSTS
    check_problem(rows.shape[0], losses, penalty)
    fits_single = given.tol >= FLOAT32_TOL and largest <= SINGLE_VALUES and low <= float(losses.cost.max()) <= high
    problem = rows, losses, penalty
    ascent = JointAscent(*problem, np.float32 if fits_single else np.float64, given.seed, given.n_threads)
    progress = JointProgress(losses.at_zero, given, ROUNDING if largest > 0.0 else 0.0)
    best: JointStart | None = None  # the best certified point, unless it is the final one
    if start is not None:
        ascent.start_from(start)
        progress.accept(*ascent.certify())
        best = ascent.point if progress.status is None else None
    n_blocks, core = len(losses.cost), ascent.core
    while progress.status is None:
        while not core.run(min(SLICE_S, progress.seconds_left)) and not progress.is_out_of_time:
            pass
        pairs_gap, dual = core.improve_coupling(COUPLING_SHARE * progress.allowed_gap, COUPLING_STEPS)
        is_due = progress.record(dual, core.pass_gap + pairs_gap, core.n_visits, n_blocks)
        if is_due and progress.accept(*ascent.certify()):
            best = ascent.point if progress.status is None else None
        if ascent.dtype == np.float64:
            progress.end_if_stuck()
        if progress.status is None:
            core.extrapolate(dual)
        if ascent.dtype == np.float32 and progress.stalls:  # the same point with vectors in float64
            point = ascent.point
            ascent = JointAscent(*problem, np.float64, given.seed, given.n_threads)
            ascent.start_from(point)
            core = ascent.core
            progress.restart()
    if best is not None:
        ascent.start_from(best)
        progress.accept(*ascent.certify())
    scale = progress.shorten(ascent.losses_at)
    coef, intercept = _weights(ascent, scale, given.intercept_scaling, given.memory_limit_mb)
    point, learns = ascent.point, isinstance(penalty, OrthogonalPenalty)
    products = scale * scale * ascent.products() if learns else None
    return JointResult(coef, intercept, point.dual, **progress.outcome(), S=point.S, products=products)


def _weights(ascent: JointAscent, scale: float, intercept_scaling: float, memory_limit_mb: float) -> tuple[Any, Floats]:
    """Weights, dense unless sparse factors are smaller or the limit requires them, and intercepts."""
    m, n = ascent.paths.m, ascent.rows.shape[1]
    dense_bytes = 8 * m * n
    fits = dense_bytes <= memory_limit_mb * 2**20
    if not fits or saves_memory(0, dense_bytes):
        parts = ascent.parts()
        factors = TreeWeights(parts if scale == 1.0 else scale * parts.astype(np.float64), ascent.factor())
        if not fits or saves_memory(factors.nbytes, dense_bytes):
            if intercept_scaling == 0.0:
                return factors.plain(), np.zeros(m)
            coef, last = factors.split_last()
            return coef, intercept_scaling * last
        del factors, parts
    W = ascent.weights()
    if scale != 1.0:
        W *= scale
    if intercept_scaling == 0.0:
        return W, np.zeros(m)
    intercept, flat, n = intercept_scaling * W[:, -1], W.reshape(-1), n - 1
    for i in range(m):  # compact the rows in place: a copy would take the same memory again
        flat[i * n : (i + 1) * n] = W[i, :n]
    return flat[: m * n].reshape(m, n), intercept


def rows_with_constant(X: Any, intercept_scaling: float) -> tuple[Any, float]:
    """X as a canonical csr_array, with a constant last column if intercept_scaling ≠ 0, and its largest magnitude.

    Rows of float32 become float64 if float32 cannot represent the constant: the certificate is for the given one.
    Values whose squared norms would overflow are an error.
    """
    single = X.dtype == np.float32 and float(np.float32(intercept_scaling)) == intercept_scaling
    dtype = np.float32 if single else np.float64
    rows = sp.csr_array(X, dtype=dtype)
    if intercept_scaling != 0.0:
        column = sp.csr_array(np.full((rows.shape[0], 1), intercept_scaling, dtype=dtype))
        rows = sp.hstack([rows, column], format="csr", dtype=dtype)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    largest = max(float(rows.data.max(initial=0.0)), -float(rows.data.min(initial=0.0)))
    if not np.isfinite(largest):
        raise ValueError("X contains NaN or infinity; remove or replace these values")
    if largest > LARGEST_VALUE:
        raise ValueError(f"X or intercept_scaling contains values above {LARGEST_VALUE:g}; scale down the features")
    return rows, largest


def check_problem(n_rows: int, losses: TreeLosses, penalty: Penalty, *, any_pairs: bool = False) -> None:
    """Raise an error if rows, losses and penalty do not match, no row counts, or sums of losses would overflow."""
    if n_rows != losses.n_samples:
        raise ValueError(f"X has {n_rows} rows, but there are {losses.n_samples} labels; pass one label per row")
    if penalty.paths.m != losses.paths.m:
        raise ValueError(
            f"the penalty has {penalty.paths.m} nodes, but the losses have {losses.paths.m}; use the same tree for both"
        )
    if not any_pairs and penalty.paths.n_entries != losses.paths.n_entries:
        raise ValueError("K joins nodes that are not ancestor and descendant; use solve_dense_joint_dual")
    largest = float(losses.cost.max(initial=0.0))
    if not largest > 0.0:
        raise ValueError(
            "all rows have weight 0 or no constraint; at least one must have a constraint and a positive weight"
        )
    if largest > LARGEST_COST / len(losses.cost):
        raise ValueError(f"the largest cost is {largest:g}, so the sum of the losses may overflow; use a smaller C")


def core_problem(losses: TreeLosses, penalty: Penalty) -> tuple[_core.TreeProblem, bool]:
    """The blocks and the tree as the compiled solvers take them, and whether the penalty couples any two nodes."""
    paths, (group_of, group_start) = losses.paths, losses.groups
    coupled = isinstance(penalty, OrthogonalPenalty) or bool(np.any(penalty.M[~paths.is_diagonal] != 0.0))
    outputs = np.ones(paths.m, dtype=bool) if losses.is_output is None else losses.is_output
    problem = _core.TreeProblem(
        parent=paths.parent.astype(np.int32),
        group_of=group_of.astype(np.int32),
        group_start=group_start.astype(np.int32),
        path_start=paths.path_indptr if coupled else np.arange(paths.m + 1, dtype=np.int64),
        path_nodes=(paths.path_nodes if coupled else np.arange(paths.m)).astype(np.int32),
        block_row=losses.row.astype(np.int32),
        block_node=losses.node.astype(np.int32),
        block_levels=losses.n_levels.astype(np.int32),
        block_cost=np.ascontiguousarray(losses.cost, dtype=np.float64),
        over_all=losses.is_output is not None,
        rescaling=RESCALINGS[losses.rescaling],
        is_output=outputs.astype(np.uint8),
    )
    return problem, coupled


class JointAscent:
    """The compiled solver in one precision.

    Parameters
    ----------
    rows : csr_array of shape (n_samples, n_features)
        The data, as returned by `rows_with_constant`.
    losses : TreeLosses
        The blocks of constraints.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The coupling of the nodes, learned or fixed.
    dtype : float32 or float64
        Type of the vectors during the ascent.
    seed : int
        Seed of the order of visits.
    n_threads : int
        Threads for everything but the visits.
    small_subtree : int
        Largest subtree, in nodes, whose coupling is improved on dense matrices.
    """

    def __init__(
        self,
        rows: Any,
        losses: TreeLosses,
        penalty: Penalty,
        dtype: npt.DTypeLike,
        seed: int,
        n_threads: int,
        small_subtree: int = SMALL_SUBTREE,
    ) -> None:
        self.rows, self.losses, self.penalty, self.dtype = rows, losses, penalty, np.dtype(dtype)
        self.paths = losses.paths
        matrix = penalty.K if isinstance(penalty, OrthogonalPenalty) else penalty.M
        self._problem, self.coupled = core_problem(losses, penalty)
        kind = _core.JointDual32 if self.dtype == np.float32 else _core.JointDual64
        self.core = kind(
            problem=self._problem,
            values=rows.data.astype(self.dtype, copy=False),
            cols=rows.indices.astype(np.int32, copy=False),
            start=rows.indptr.astype(np.int64),
            n_cols=rows.shape[1],
            M=np.ascontiguousarray(matrix if self.coupled else matrix[self.paths.is_diagonal]),
            learns_signs=isinstance(penalty, OrthogonalPenalty),
            seed=seed,
            n_threads=n_threads,
            small_subtree=small_subtree,
        )

    @property
    def point(self) -> JointStart:
        """The current dual variables, and the signs if they are learned."""
        starts, losers, values = self.core.duals()
        signs = self.core.signs()
        dual = sp.csr_array((values, losers, starts), shape=(len(self.losses.row), self.paths.m))
        return JointStart(dual, signs if len(signs) else None)

    def start_from(self, start: JointStart) -> None:
        """Set the dual variables, and S if the coupling is learned."""
        dual = sp.csr_array(start.dual)
        off_diagonal = 0.0 if start.S is None else np.clip(start.S, -1.0, 1.0)
        signs = np.where(self.paths.is_diagonal, 1.0, off_diagonal)
        parts = (dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data.astype(np.float64))
        self.core.start_from(*parts, signs, self.rows.data)

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as given."""
        primal, dual = self.core.certify(self.rows.data)
        if isinstance(self.penalty, OrthogonalPenalty) and self.penalty.missing:
            primal += self.penalty.beyond(self.products())
        return primal, dual

    def products(self) -> Floats:
        """w_iᵀw_j on the layout; the core has them after its first step in S."""
        found: Floats = self.core.products()
        return found if len(found) else pair_products(self.paths, self.weights())

    def losses_at(self, scale: float) -> float:
        """Sum of the losses at a multiple of the weights, for the data as given."""
        return float(self.core.losses_at(self.rows.data, scale))

    def factor(self) -> TreeFactor:
        """The factor of the coupling, with R only."""
        R = self.core.inverse_factor()
        if not self.coupled:
            R = np.where(self.paths.is_diagonal, 1.0, 0.0)
        return TreeFactor(self.paths, np.empty(0), R, self.core.pivots())

    def weights(self) -> Floats:
        """W, shape (m, n_features); memory pages without used features are not touched."""
        W = np.zeros((self.paths.m, self.rows.shape[1]))
        self.core.read_weights(W)
        return W

    def parts(self) -> Any:
        """Z = L⁻¹B, csr_array (m, n_features)."""
        starts, columns, values = self.core.parts()
        return csr_of(values, columns, starts, (self.paths.m, self.rows.shape[1]))


class JointProgress(Limits):
    """Counts rounds and passes, decides when a certificate is due and when to stop, and keeps the history.

    Parameters
    ----------
    at_zero : float
        The objective of zero weights.
    options : TreeOptions
        `tol`, `max_iter` and `callback`.
    rounding : float
        As in `ending`; 0 if nothing can be learned, because the bounds are then exact.

    Examples
    --------
    >>> from widemargin.solvers.tree.joint_dual import JointProgress, TreeOptions
    >>> progress = JointProgress(at_zero=10.0, options=TreeOptions(tol=0.1, max_iter=5))
    >>> progress.record(dual=4.0, gap=0.9, n_visits=7, n_blocks=10), progress.passes
    (True, 0.7)
    >>> progress.accept(primal=4.5, dual=4.1), progress.status.value
    (True, 'converged')
    """

    def __init__(self, at_zero: float, options: TreeOptions, rounding: float = ROUNDING) -> None:
        super().__init__(options.max_iter, options.callback)
        self.at_zero, self.tol, self.rounding = at_zero, options.tol, rounding
        self.rounds, self.passes = 0, 0.0
        self.status: Status | None = None
        self.certified: float | None = None  # the primal value of the current point
        self.primal, self.dual = np.inf, -np.inf  # the best bounds
        self._rows: list[list[float]] = []
        self._dual = 0.0  # the latest estimate or bound
        self._least_gap, self._best_round = np.inf, 0
        self._risen_to, self._risen_round, self._last = -np.inf, 0, 0

    @property
    def allowed_gap(self) -> float:
        """The gap that may remain: `tol` times the largest decrease that seems possible."""
        return self.tol * max(self.at_zero - self._dual, 0.0)

    @property
    def stalls(self) -> bool:
        """Whether the certified gap has not shrunk for many rounds, as happens when rounding dominates it."""
        return self.rounds - self._best_round >= STALL_ROUNDS and np.isfinite(self._least_gap)

    def end_if_stuck(self) -> None:
        """Stop if for many rounds neither the gap has shrunk nor the dual has risen: rounding is in the way."""
        if self.status is None and self.rounds - max(self._best_round, self._risen_round) >= STUCK_ROUNDS:
            self.status = Status.NOT_ATTAINED

    def record(self, dual: float, gap: float, n_visits: int, n_blocks: int) -> bool:
        """Record a round with estimates of the dual bound and of the gap. Returns whether a certificate is due."""
        self.rounds += 1
        self.passes += max(n_visits / n_blocks, LEAST_SHARE)
        self.certified, self._dual = None, dual
        seconds = self.elapsed_s
        self._rows.append([self.rounds, self.passes, seconds, dual + gap, dual, n_visits, 0])
        self.status = self.reached(self.passes, seconds, dual + gap, dual) or self.status
        return self.status is not None or gap <= NEAR * self.allowed_gap or self.rounds - self._last >= EVERY

    def accept(self, primal: float, dual: float) -> bool:
        """Take certified bounds, and stop if the best are close enough. Returns whether `primal` is the best."""
        self.certified, self._last, self._dual = primal, self.rounds, dual
        is_best = primal <= self.primal
        self.primal, self.dual = min(self.primal, primal), max(self.dual, dual)
        if primal - dual < self._least_gap:
            self._least_gap, self._best_round = primal - dual, self.rounds
        if self.dual - self._risen_to > self.rounding * abs(self.dual):
            self._risen_to, self._risen_round = self.dual, self.rounds
        if self._rows:
            self._rows[-1][2:5] = self.elapsed_s, primal, dual
            self._rows[-1][6] = 1
        self.status = ending(self.primal, self.dual, self.at_zero, self.tol, self.rounding) or self.status
        return is_best

    def restart(self) -> None:
        """Forget the gap reached so far: from now on the precision is different."""
        self._least_gap, self._best_round, self._risen_round = np.inf, self.rounds, self.rounds

    def shorten(self, losses_at: Callable[[float], float]) -> float:
        """The multiple of the certified weights that is at least as good as zero weights: 1 if they already are.

        `losses_at(t)` is the sum of the losses at t times the weights; the penalty is homogeneous of degree 2.
        Sets: certified.
        """
        assert self.certified is not None
        if self.certified <= self.at_zero:
            return 1.0
        penalty = self.certified - losses_at(1.0)

        def objective(t: float) -> float:
            return t * t * penalty + losses_at(t)

        scale = best_multiple(objective)
        self.certified = objective(scale)
        return scale

    def outcome(self) -> dict[str, Any]:
        """`certificate`, `history`, `n_iter` and `status` of a result.

        The history has one row per round; the bounds are estimates where `certified` is 0.
        """
        assert self.certified is not None
        return {
            "certificate": Certificate(self.certified, self.dual, self.at_zero, self.certified),
            "history": history_of(self._rows, HISTORY, whole=("iteration", "visits")),
            "n_iter": np.array([int(np.ceil(self.passes))]),
            "status": self.status or Status.CONVERGED,
        }
