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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.problems.orthogonal import OrthogonalPenalty
from widemargin.problems.sparse_weights import saves_memory
from widemargin.problems.tree_losses import TreeLosses
from widemargin.problems.tree_penalties import QuadraticPenalty
from widemargin.solvers._joint_core import JointAscent, rows_with_constant
from widemargin.solvers._joint_progress import JointProgress
from widemargin.solvers._limits import ROUNDING
from widemargin.solvers.result import Callback, SolverResult
from widemargin.solvers.tree_weights import TreeWeights

__all__ = ["JointResult", "JointStart", "solve_joint_dual"]

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
    >>> from widemargin.solvers.joint_dual import JointStart
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
    >>> from widemargin.solvers.joint_dual import JointResult
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
    time_limit: float | None = None,
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
    time_limit : float or None
        Seconds after which the solver stops.
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
    >>> from widemargin.solvers.joint_dual import solve_joint_dual
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
    progress = JointProgress(losses.at_zero, tol, max_iter, callback, time_limit, rounding)
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
