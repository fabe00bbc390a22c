"""Hierarchical large-margin training by block-coordinate ascent on a joint dual.

    minimise  penalty(W) + Σ_g γ_g loss_g(W),       loss_g(W) = max(0, max_c ρ_c − κ_c (s_i(c) − s_j(c))),  s = W x

over one vector a node of a tree; see `problems.tree_losses` and `problems.tree_penalties` for the five ways to train.
With M the coupling of the nodes, a point a_g of a simplex a block, B(a) = Σ_g γ_g Σ_c a_gc κ_c (e_i − e_j) xᵀ,

    D(a, S) = Σ_g γ_g Σ_c a_gc ρ_c − ½ tr(B(a)ᵀ M(S)⁻¹ B(a)),      W = M(S)⁻¹ B(a),

where M(S) = K∘S with |S_ij| ≤ 1 for orthogonal transfer, and M is fixed for its rivals. D is jointly concave and smooth
over a product of simplices and a box, so that steps in one block after another reach its maximum, the optimum. A round
visits the blocks in random order (those with nothing to do sleep), improves S, and extrapolates a. Stops when the
certified `decrease_gap` is at most `tol`. During the ascent W is not formed but Z = L⁻¹B, M = L diag(d) Lᵀ, whose rows
have no other features than the examples that pass by. Memory: these tables, in float32 while that is enough for `tol`;
one integer an entry of X and level; the dual variables that are not 0.

The compiled joint dual ascent as the solver sees it: data in, weights, bounds and dual variables out.

When a joint dual ascent is certified, why it ends, and what is kept of the way there.

Weights of the nodes of a large tree as a product of sparse factors.

    W = L⁻ᵀ diag(d)⁻¹ Z,      w_i = Σ_a R[a, i] z_a / d_a  over node i and its ancestors a

A row of W has all features of the rows of Z above it, so that W of a large tree is dense where Z is sparse: a node's z
has no other features than the examples that pass its siblings. Scores cost as much as those of Z. Memory: Z as CSR,
R one number per ancestor pair. Where nodes are not coupled, W is Z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import csr_of, drop_small, saves_memory
from widemargin.problems.tree_factor import AncestorPaths, TreeFactor
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import OrthogonalPenalty, QuadraticPenalty, pair_products
from widemargin.solvers.limits import ROUNDING, Limits, best_multiple, ending, history_of
from widemargin.solvers.result import Callback, History, SolverResult, Status

__all__ = [
    "JointAscent",
    "JointProgress",
    "JointResult",
    "JointStart",
    "TreeWeights",
    "problem_arrays",
    "rows_with_constant",
    "solve_joint_dual",
]

SMALL_SUBTREE = 150
"""Nodes of a subtree above which updates of dense matrices cost more than passes over the vectors of the nodes."""
RESCALINGS = {"none": 0, "slack": 1, "margin": 2}
Penalty = OrthogonalPenalty | QuadraticPenalty


def rows_with_constant(X: Any, bias: float) -> Any:
    """X as csr_array of float32 or float64 with int32 columns and int64 starts, a constant last column if bias ≠ 0.

    Rows of float32 become float64 for a constant that float32 cannot hold: the certificate is for the one given.
    """
    single = X.dtype == np.float32 and float(np.float32(bias)) == bias
    dtype = np.float32 if single else np.float64
    rows = sp.csr_array(X, dtype=dtype)
    if bias != 0.0:
        column = sp.csr_array(np.full((rows.shape[0], 1), bias, dtype=dtype))
        rows = sp.hstack([rows, column], format="csr", dtype=dtype)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


class JointAscent:
    """The compiled solver in one precision.

    Parameters
    ----------
    rows : csr_array of shape (n_samples, n_features)
        The data, as `rows_with_constant` gives them.
    losses : TreeLosses
        The blocks of constraints.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The coupling of the nodes, learnt or fixed.
    dtype : float32 or float64
        Of the vectors during the ascent.
    seed, n_threads : int
        Of the order of visits; of all but the visits.
    small_subtree : int
        Nodes of a subtree up to which its coupling is improved on dense matrices.
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
        learns = isinstance(penalty, OrthogonalPenalty)
        matrix = penalty.K if isinstance(penalty, OrthogonalPenalty) else penalty.M
        self.paths = losses.paths
        self.coupled = learns or bool(np.any(matrix[~self.paths.is_diagonal] != 0.0))
        self._problem = _core.TreeProblem(**problem_arrays(losses, self.paths, self.coupled))
        kind = _core.JointDual32 if self.dtype == np.float32 else _core.JointDual64
        self.core = kind(
            problem=self._problem,
            values=rows.data.astype(self.dtype, copy=False),
            cols=rows.indices.astype(np.int32, copy=False),
            start=rows.indptr.astype(np.int64),
            n_cols=rows.shape[1],
            M=np.ascontiguousarray(matrix if self.coupled else matrix[self.paths.is_diagonal]),
            learns_signs=learns,
            seed=seed,
            n_threads=n_threads,
            small_subtree=small_subtree,
        )

    def start_from(self, dual: Any, S: npt.NDArray[np.float64] | None) -> None:
        """Take dual variables, csr_array (n_blocks, m), and S on the layout (for a learnt coupling)."""
        dual = sp.csr_array(dual)
        off_diagonal = 0.0 if S is None else np.clip(S, -1.0, 1.0)
        signs = np.where(self.paths.is_diagonal, 1.0, off_diagonal)
        parts = (dual.indptr.astype(np.int64), dual.indices.astype(np.int32), dual.data.astype(np.float64))
        self.core.start_from(*parts, signs, self.rows.data)

    def certify(self) -> tuple[float, float]:
        """Primal and dual bound in float64, for the data as they were given."""
        primal, dual = self.core.certify(self.rows.data)
        if isinstance(self.penalty, OrthogonalPenalty) and self.penalty.missing:
            primal += self.penalty.beyond(self.products())
        return primal, dual

    def products(self) -> npt.NDArray[np.float64]:
        """w_iᵀ w_j on the layout; the core has them from its first step in S on."""
        found: npt.NDArray[np.float64] = self.core.products()
        return found if len(found) else pair_products(self.paths, self.weights())

    def losses_at(self, scale: float) -> float:
        """Sum of the losses at a multiple of the weights, for the data as they were given."""
        return float(self.core.losses_at(self.rows.data, scale))

    def duals(self) -> Any:
        """Dual variables, csr_array (n_blocks, m): column j of a block is the constraint that node j loses."""
        starts, losers, values = self.core.duals()
        return sp.csr_array((values, losers, starts), shape=(self.losses.n_blocks, self.paths.m))

    def factor(self) -> TreeFactor:
        """The factor of the coupling, with R only."""
        R = self.core.inverse_factor()
        if not self.coupled:
            R = np.where(self.paths.is_diagonal, 1.0, 0.0)
        return TreeFactor(self.paths, np.empty(0), R, self.core.pivots())

    def weights(self) -> npt.NDArray[np.float64]:
        """W, shape (m, n_features); memory pages without features in use are not touched."""
        W = np.zeros((self.paths.m, self.rows.shape[1]))
        self.core.read_weights(W)
        return W

    def parts(self) -> Any:
        """Z = L⁻¹B, csr_array (m, n_features)."""
        starts, columns, values = self.core.parts()
        return csr_of(values, columns, starts, (self.paths.m, self.rows.shape[1]))


def problem_arrays(losses: TreeLosses, paths: AncestorPaths, coupled: bool) -> dict[str, Any]:
    """Arguments of `_core.TreeProblem`."""
    over_all, m = losses.is_output is not None, paths.m
    group_of = np.zeros(m, dtype=np.int32) if over_all else np.cumsum(np.diff(paths.parent, prepend=-1) > 0)
    starts = np.searchsorted(group_of, np.arange(group_of[-1] + 2))
    outputs = np.ones(m, dtype=bool) if losses.is_output is None else losses.is_output
    return {
        "parent": paths.parent.astype(np.int32),
        "group_of": group_of.astype(np.int32),
        "group_start": starts.astype(np.int32),
        "path_start": paths.path_indptr if coupled else np.arange(m + 1, dtype=np.int64),
        "path_nodes": (paths.path_nodes if coupled else np.arange(m)).astype(np.int32),
        "block_row": losses.row.astype(np.int32),
        "block_node": losses.node.astype(np.int32),
        "block_levels": losses.n_levels.astype(np.int32),
        "block_cost": np.ascontiguousarray(losses.cost, dtype=np.float64),
        "over_all": over_all,
        "rescaling": RESCALINGS[losses.rescaling],
        "is_output": outputs.astype(np.uint8),
    }


NEAR = 4.0
"""A certificate is made when the estimate is below so many times the gap allowed: estimates are taken before visits."""
EVERY = 10
"""Rounds after which one is made in any case, which also wakes the blocks that slept."""
STALL_ROUNDS = 40
"""Rounds without a smaller certified gap after which rounding is suspected."""
STUCK_ROUNDS = 400
"""Rounds without a smaller gap or a larger dual after which that is out of reach. The error of the primal goes by the
root of that of the dual, so that the gap still shrinks long after the dual seems to stand; 40 were too few."""
LEAST_SHARE = 0.05
"""Of a pass, that a round counts at least: it improves the coupling even where hardly a block is awake."""


class JointProgress(Limits):
    """Counts rounds and passes, asks for certificates, and records.

    Parameters
    ----------
    at_zero : float
        The objective of zero weights.
    tol : float
        `decrease_gap` to reach.
    max_iter : int
        Passes at most.
    callback : callable or None
        Called with a `Progress` after each round.
    rounding : float
        Of `ending`; 0 where nothing can be learnt, and the bounds are exact.

    Examples
    --------
    >>> from widemargin.solvers.tree.joint_dual import JointProgress
    >>> progress = JointProgress(at_zero=10.0, tol=0.1, max_iter=5, callback=None)
    >>> progress.record(dual=4.0, gap=0.9, n_visits=7, n_blocks=10)
    >>> progress.passes, progress.wants_certificate
    (0.7, True)
    >>> progress.accept(primal=4.5, dual=4.1), progress.status.value
    (True, 'converged')
    """

    def __init__(
        self,
        at_zero: float,
        tol: float,
        max_iter: int,
        callback: Callback | None,
        rounding: float = ROUNDING,
    ) -> None:
        super().__init__(max_iter, callback)
        self.at_zero, self.tol, self.rounding = at_zero, tol, rounding
        self.rounds, self.passes = 0, 0.0
        self.status: Status | None = None
        self.certified: float | None = None  # the primal value of the present point
        self.primal, self.dual = np.inf, -np.inf  # the best bounds
        self._rows: list[list[float]] = []
        self._dual = 0.0  # the last estimate
        self._gap = np.inf
        self._least_gap, self._best_round = np.inf, 0
        self._risen_to, self._risen_round, self._last = -np.inf, 0, 0

    @property
    def allowed_gap(self) -> float:
        """The gap that may be left: `tol` times the largest decrease that seems possible."""
        return self.tol * max(self.at_zero - self._dual, 0.0)

    @property
    def wants_certificate(self) -> bool:
        """Whether the tolerance seems near, or the last certificate is long ago."""
        return self.status is not None or self._gap <= NEAR * self.allowed_gap or self.rounds - self._last >= EVERY

    @property
    def stalls(self) -> bool:
        """Whether the certified gap has not become smaller for long, as where rounding keeps it up."""
        return self.rounds - self._best_round >= STALL_ROUNDS and np.isfinite(self._least_gap)

    def end_if_stuck(self) -> None:
        """End where neither the gap has become smaller nor the dual has risen for long: rounding is in the way."""
        if self.status is None and self.rounds - max(self._best_round, self._risen_round) >= STUCK_ROUNDS:
            self.status = Status.NOT_ATTAINED

    def record(self, dual: float, gap: float, n_visits: int, n_blocks: int) -> None:
        """Keep a round, with estimates of the dual bound and of the gap, and see whether something asks to stop."""
        self.rounds += 1
        self.passes += max(n_visits / n_blocks, LEAST_SHARE)
        self.certified = None
        self._dual, self._gap = dual, gap
        seconds = self.elapsed_s
        self._rows.append([self.rounds, self.passes, seconds, dual + gap, dual, n_visits, 0])
        self.status = self.reached(self.passes, seconds, dual + gap, dual) or self.status

    def accept(self, primal: float, dual: float) -> bool:
        """Take certified bounds, which end the ascent if the best are close enough; whether `primal` is the best."""
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
        """Forget the gap that was reached: from now on another precision makes it."""
        self._least_gap, self._best_round, self._risen_round = np.inf, self.rounds, self.rounds

    def shorten(self, losses_at: Callable[[float], float]) -> float:
        """The multiple of the certified weights that is at least as good as zero weights: 1 where these are already.

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
        """What a result says of the way and of its end: `certificate`, `history`, `n_iter` and `status`."""
        assert self.certified is not None
        return {
            "certificate": Certificate(self.certified, self.dual, self.at_zero, self.certified),
            "history": self.history(),
            "n_iter": np.array([int(np.ceil(self.passes))]),
            "status": self.status or Status.CONVERGED,
        }

    def history(self) -> History:
        """One row a round; the bounds are estimates where `certified` is 0."""
        names = ("iteration", "passes", "seconds", "primal", "dual", "visits", "certified")
        return history_of(self._rows, names, whole=("iteration", "visits"))


Floats = npt.NDArray[np.float64]

BLOCK_BYTES = 2**26
"""Rows of W that are made at once where they are to be pruned."""


class TreeWeights:
    """A matrix of shape (m, n) with one row a node, kept as sparse factors.

    Parameters
    ----------
    parts : csr_array of shape (m, n)
        Z.
    factor : TreeFactor
        R and the pivots d; L is not used.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.problems.tree_factor import AncestorPaths, factorize
    >>> from widemargin.solvers.tree.joint_dual import TreeWeights
    >>> factor = factorize(AncestorPaths.of(np.array([-1, 0, 1])), np.array([2.0, 1.0, 1.0]))
    >>> W = TreeWeights(sp.csr_array(np.eye(2)), factor)
    >>> W.toarray()
    array([[ 1.,  0.],
           [-1.,  1.]])
    >>> W.scores(np.array([[1.0, 2.0]]))
    array([[1., 1.]])
    """

    def __init__(self, parts: Any, factor: TreeFactor) -> None:
        self.parts, self.factor = parts, factor

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        m, n = self.parts.shape
        return m, n

    @property
    def nbytes(self) -> int:
        """Memory of the factors."""
        arrays = (self.parts.data, self.parts.indices, self.parts.indptr, self.factor.R, self.factor.pivots)
        return sum(array.nbytes for array in arrays)

    def toarray(self) -> Floats:
        """W as a dense array of float64."""
        dense: Floats = self.factor.backward(self.parts.toarray().astype(np.float64, copy=False))
        return dense

    def column(self, j: int) -> Floats:
        """One column of W, shape (m,)."""
        values: Floats = self.factor.backward(self.parts[:, [j]].toarray().astype(np.float64)[:, 0])
        return values

    def without_last(self) -> TreeWeights:
        """The same without the last column."""
        return TreeWeights(self.parts[:, :-1], self.factor)

    def plain(self) -> Any:
        """Z where it is W itself, else the factors."""
        factor = self.factor
        is_unit = np.where(factor.paths.is_diagonal, factor.R == 1.0, factor.R == 0.0).all()
        return self.parts if is_unit and (factor.pivots == 1.0).all() else self

    def pruned(self, threshold: float) -> Any:
        """The entries of W of at least `threshold`, a positive number, as a csr_array of the type of Z."""
        step = max(1, BLOCK_BYTES // (24 * max(1, self.shape[1])))
        scaled = sp.csr_array(sp.diags_array(1.0 / self.factor.pivots) @ self.parts)
        inverse = self.factor.paths.upper(self.factor.R).T.tocsr()
        rows = (sp.csr_array(inverse[first : first + step] @ scaled) for first in range(0, self.shape[0], step))
        parts = [drop_small(part.astype(self.parts.dtype), threshold) for part in rows]
        joined = sp.vstack(parts, format="csr")
        joined.sort_indices()
        return csr_of(joined.data, joined.indices, joined.indptr, joined.shape)

    def scores(self, X: Any) -> Floats:
        """X Wᵀ, shape (n_samples, m), for X dense or sparse of shape (n_samples, n)."""
        products = self.parts.astype(np.float64) @ X.T
        dense = products.toarray() if sp.issparse(products) else np.asarray(products)
        scores: Floats = self.factor.backward(dense).T
        return scores


FLOAT32_TOL = 1e-5
"""Below this gap rounding of float32 vectors is felt."""
SINGLE_VALUES, SINGLE_COSTS = 1e15, (1e-30, 1e30)
"""Largest value of X, and range of the largest cost, up to which float32 vectors are tried: squares must fit, too."""
LARGEST_VALUE, LARGEST_COST = 1e150, 1e300
"""Squared norms of rows and sums of losses must be finite in float64."""
SLICE_S = 0.1
"""The ascent comes back to Python after so many seconds, to see to signals and to the clock."""
COUPLING_SHARE = 0.1
"""Of the gap that is allowed in the end: what an S-step may leave of the gap of the pairs."""
COUPLING_STEPS = 4
"""Steps of large subtrees in one S-step."""


@dataclass(frozen=True)
class JointStart:
    """Where to begin: dual variables and signs of a result for the same examples and tree.

    Dual variables are feasible for any C; for another α the signs can keep M = K∘S (`scaled`).

    Parameters
    ----------
    dual : csr_array of shape (n_blocks, m)
        Dual variables.
    S : ndarray of float64 of shape (n_entries,) or None
        Signs on the layout of ancestor pairs; the diagonal counts as 1, whatever is there.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from widemargin.solvers.tree.joint_dual import JointStart
    >>> JointStart(sp.csr_array((1, 2)), np.array([1.0, 1.0, 0.8])).scaled(2.0).S
    array([1., 1., 1.])
    """

    dual: Any
    S: npt.NDArray[np.float64] | None = None

    def scaled(self, ratio: float) -> JointStart:
        """For a K whose entries off the diagonal were divided by `ratio`: the same M, as far as |S| ≤ 1 allows."""
        return self if self.S is None else JointStart(self.dual, np.clip(self.S * ratio, -1.0, 1.0))


@dataclass(frozen=True)
class JointResult(SolverResult):
    """A `SolverResult` with the signs of orthogonal transfer.

    Parameters
    ----------
    S : ndarray of float64 of shape (n_entries,) or None
        Signs on the layout of ancestor pairs; |S_ij| < 1 says that w_i and w_j were held orthogonal by that force.
    products : ndarray of float64 of shape (n_entries,) or None
        w_iᵀw_j on the same layout, the constant feature included.

    Examples
    --------
    >>> from widemargin.solvers.tree.joint_dual import JointResult
    >>> list(JointResult.__dataclass_fields__)[-2:]
    ['S', 'products']
    """

    S: npt.NDArray[np.float64] | None = None
    products: npt.NDArray[np.float64] | None = None

    @property
    def start(self) -> JointStart:
        """Where a fit with another C may begin."""
        return JointStart(self.dual, self.S)


def solve_joint_dual(
    X: Any,
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
    memory_limit_mb: float = 1024.0,
) -> JointResult:
    """Train, and certify what is returned.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    losses : TreeLosses
        The blocks of constraints with their costs, from `problems.tree_losses.tree_losses`.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The penalty of the same method and tree, from `problems.tree_penalties.tree_penalty`.
    bias : float
        Value of the constant feature, which is part of the penalty; 0 for none.
    tol : float
        `decrease_gap` to reach.
    max_iter : int
        Passes at most; a pass is as many visits as there are blocks, so that rounds with sleeping blocks are parts of
        one.
    seed : int
        Of the order in which examples are visited.
    n_threads : int
        Threads of everything but the visits, which are sequential. Results do not depend on it.
    start : JointStart or None
        Dual variables and signs to start from, of a result for the same examples, method and tree.
    callback : callable or None
        Called with a `Progress` after each pass; stops the solver when true.
    memory_limit_mb : float
        Weights are an ndarray up to this size, unless they are large and mostly zero; else a `TreeWeights`, which has
        them as products of sparse factors, or a csr_array where nodes are not coupled.

    Returns
    -------
    JointResult
        `coef` (m, n_features), row r being node r + 1; `intercept` (m,); `dual`, a csr_array (n_blocks, m) whose entry
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
    rows = rows_with_constant(X, bias)
    _check(rows, losses, penalty)
    largest = checked_largest(rows)
    dtype = np.float32 if tol >= FLOAT32_TOL and _fits_single(largest, losses) else np.float64
    ascent = JointAscent(rows, losses, penalty, dtype, seed, n_threads)
    rounding = ROUNDING if largest > 0.0 else 0.0
    progress = JointProgress(losses.at_zero, tol, max_iter, callback, rounding)
    best = None
    if start is not None:
        ascent.start_from(start.dual, start.S)
        best = _certify(ascent, progress, best)
    while progress.status is None:
        dual = _advance(ascent, progress)
        if progress.wants_certificate:
            best = _certify(ascent, progress, best)
        if ascent.dtype == np.float64:
            progress.end_if_stuck()
        if progress.status is None:
            ascent.core.extrapolate(dual)
        if progress.stalls and ascent.dtype == np.float32:
            ascent = _in_double(ascent, penalty, seed, n_threads)
            progress.restart()
    return _result(ascent, penalty, progress, best, bias, memory_limit_mb)


def _advance(ascent: JointAscent, progress: JointProgress) -> float:
    """A pass and an S-step; the value of the dual after them."""
    while not ascent.core.run(min(SLICE_S, progress.seconds_left)):
        if progress.is_out_of_time:
            break
    target = COUPLING_SHARE * progress.allowed_gap
    pairs_gap, dual = ascent.core.improve_coupling(target, COUPLING_STEPS)
    progress.record(dual, ascent.core.pass_gap + pairs_gap, ascent.core.n_visits, ascent.losses.n_blocks)
    return dual


def _certify(ascent: JointAscent, progress: JointProgress, best: JointStart | None) -> JointStart | None:
    """Take the bounds of the present point; the best point so far, None where that is the present one at its end."""
    is_best = progress.accept(*ascent.certify())
    if progress.status is not None and is_best:
        return None
    return JointStart(ascent.duals(), _signs(ascent)) if is_best else best


def _in_double(ascent: JointAscent, penalty: Any, seed: int, n_threads: int) -> JointAscent:
    """The same point with vectors in float64."""
    double = JointAscent(ascent.rows, ascent.losses, penalty, np.float64, seed, n_threads)
    double.start_from(ascent.duals(), _signs(ascent))
    return double


def _signs(ascent: JointAscent) -> npt.NDArray[np.float64] | None:
    signs = ascent.core.signs()
    return signs if len(signs) else None


def checked_largest(rows: Any) -> float:
    """The largest magnitude of rows, the constant feature included; an error where squared norms would overflow."""
    largest = max(float(rows.data.max(initial=0.0)), -float(rows.data.min(initial=0.0)))
    if not np.isfinite(largest):
        raise ValueError("X has values that are not finite")
    if largest > LARGEST_VALUE:
        raise ValueError(f"X or the bias has values above {LARGEST_VALUE:g}; scale the features")
    return largest


def check_costs(losses: TreeLosses) -> None:
    """An error where no row counts, or where sums of losses would overflow."""
    if not (losses.cost > 0.0).any():
        raise ValueError("all examples have weight 0 or no constraint; at least one needs a positive weight")
    if losses.cost.max() > LARGEST_COST / losses.n_blocks:
        raise ValueError(f"a cost of {losses.cost.max():g} is too large for sums of losses; use a smaller C")


def _fits_single(largest: float, losses: TreeLosses) -> bool:
    """Whether float32 can hold the rows, the costs and what is made of them."""
    low, high = SINGLE_COSTS
    return largest <= SINGLE_VALUES and low <= float(losses.cost.max()) <= high


def _check(rows: Any, losses: TreeLosses, penalty: Any) -> None:
    if rows.shape[0] != losses.n_samples:
        raise ValueError(f"X has {rows.shape[0]} rows, but there are {losses.n_samples} labels")
    if penalty.paths.m != losses.paths.m:
        raise ValueError(f"the penalty is of {penalty.paths.m} nodes, the losses of {losses.paths.m}; use one tree")
    if penalty.paths.n_entries != losses.paths.n_entries:
        raise ValueError("K joins nodes of which neither is above the other; use solve_dense_joint_dual")
    check_costs(losses)


def _result(
    ascent: JointAscent,
    penalty: Any,
    progress: JointProgress,
    best: JointStart | None,
    bias: float,
    memory_limit_mb: float,
) -> JointResult:
    """The best point that was certified, or a multiple of its weights where zero weights are better than these."""
    if best is not None:
        ascent.start_from(best.dual, best.S)
        progress.accept(*ascent.certify())
    scale = progress.shorten(ascent.losses_at)
    coef, intercept = _weights(ascent, scale, bias, memory_limit_mb)
    learns = isinstance(penalty, OrthogonalPenalty)
    return JointResult(
        coef=coef,
        intercept=intercept,
        dual=ascent.duals(),
        **progress.outcome(),
        S=ascent.core.signs() if learns else None,
        products=scale * scale * ascent.products() if learns else None,
    )


def _weights(
    ascent: JointAscent, scale: float, bias: float, memory_limit_mb: float
) -> tuple[Any, npt.NDArray[np.float64]]:
    """Weights, dense unless sparse factors are smaller or the limit forbids it, and intercepts."""
    m, n = ascent.paths.m, ascent.rows.shape[1]
    dense_bytes = 8 * m * n
    fits = dense_bytes <= memory_limit_mb * 2**20
    if fits and not saves_memory(0, dense_bytes):
        return _dense_weights(ascent, scale, bias)
    parts = ascent.parts()
    factors = TreeWeights(parts if scale == 1.0 else scale * parts.astype(np.float64), ascent.factor())
    if fits and not saves_memory(factors.nbytes, dense_bytes):
        del factors, parts
        return _dense_weights(ascent, scale, bias)
    if bias == 0.0:
        return factors.plain(), np.zeros(m)
    return factors.without_last().plain(), bias * factors.column(n - 1)


def _dense_weights(
    ascent: JointAscent, scale: float, bias: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    W = ascent.weights()
    if scale != 1.0:
        W *= scale
    if bias == 0.0:
        return W, np.zeros(len(W))
    intercept, flat, n = bias * W[:, -1], W.reshape(-1), W.shape[1] - 1
    for i in range(len(W)):  # the rows move together in place: a copy would be as large again
        flat[i * n : (i + 1) * n] = W[i, :n]
    return flat[: len(W) * n].reshape(len(W), n), intercept
