"""Regularised dual averaging with bounds: Algorithm 1 of the paper on orthogonal transfer, as published.

    minimise  J(W) = penalty(W) + H(W) = φ(W) + Ψ(W),      Ψ = (σ/2)‖W‖²,   φ = penalty − Ψ + H

with σ the penalty's modulus of strong convexity; see `tree_penalties` and `tree_losses` for the five methods. From
W = 0, with subgradients g(t) ∈ ∂φ(W(t)) and their average ḡ(t), W(t + 1) = −ḡ(t)/σ. The best J(W(t)) is an upper bound.
Each g(t) gives a linear function below φ, and any average of these a lower bound,

    J* ≥ avg(φ(W(t)) − ⟨g(t), W(t)⟩) − ‖avg g(t)‖² / (2σ).

`lower_bound="published"` averages over all iterations. It is valid but almost useless: directions of curvature κ grow
until t ≈ κ/(2σ), by many orders of magnitude if κ/σ is large, and the average never forgets it. "tail" also averages
from the last power of 2 on, and converges. Both allow for the rounding of sums. The rate is O(ln t / (σt)), so this is
a baseline for comparisons, not a way to train: the joint dual takes about ten passes where this takes thousands (Zhou,
Xiao and Wu, ICML 2011; Xiao, JMLR 11, 2010). Memory: six dense float64 arrays of the size of W.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.tree_losses import LossPoint, TreeLosses
from widemargin.problems.tree_penalties import Penalty
from widemargin.solvers.limits import Limits, ending, history_of
from widemargin.solvers.result import SolverResult, Status
from widemargin.solvers.tree.joint_dual import TreeOptions

__all__ = ["solve_dual_averaging"]

Floats = npt.NDArray[np.float64]

SCORES_MB = 256.0
"""Scores of all examples at all nodes are computed by one product up to this size, in parts above it."""
ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
"""Bound on the rounding of a sum of n terms, over √n and the norm of the terms."""
COLUMNS = ("iteration", "seconds", "objective", "primal", "dual", "dual_published", "dual_tail")


def solve_dual_averaging(
    X: Any,
    losses: TreeLosses,
    penalty: Penalty,
    *,
    lower_bound: Literal["tail", "published"] = "tail",
    stop: Literal["decrease_gap", "gap"] = "decrease_gap",
    **options: Any,
) -> SolverResult:
    """Run the algorithm until the certified gap is small.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Examples.
    losses : TreeLosses
        H, from `tree_losses`.
    penalty : OrthogonalPenalty or QuadraticPenalty
        From `tree_penalty`, for the same method and tree.
    lower_bound : {"tail", "published"}
        Lower bounds that count: averages over all iterations, or also from the last power of 2 on.
    stop : {"decrease_gap", "gap"}
        Quantity that `tol` limits: `decrease_gap`, or the difference of the bounds, ε of Algorithm 1 as published.
    **options
        `intercept_scaling`, `tol`, `max_iter` and `callback` of `TreeOptions`; an iteration is a pass over the
        examples.

    Returns
    -------
    SolverResult
        `coef` (m, n_features) with the weights of the best iterate, row r for node r + 1 of the tree, `intercept` (m,),
        and no `dual`. `history` has one row per iteration: the objective of its iterate, the best bounds so far, and
        both lower bounds of the iteration itself.
    """
    if getattr(penalty, "missing", 0.0):
        raise ValueError(
            "dual averaging requires a strongly convex penalty (Corollary 2 of the paper), but the comparison matrix "
            "of K is singular; use solver='dual', or a K whose comparison matrix is positive definite"
        )
    given = TreeOptions(**options)
    run = _Run(_with_constant(X, given.intercept_scaling), losses, penalty, lower_bound == "tail")
    limits = Limits(given.max_iter, given.callback)
    rows: list[tuple[float, ...]] = []
    status = None
    while status is None:
        t = len(rows) + 1
        if not run.step(t):
            status = Status.STOPPED
            break
        seconds = limits.elapsed_s
        rows.append((t, seconds, run.objective, run.upper, run.lower, run.published, run.tail))
        reached = limits.reached(t, seconds, run.upper, run.lower)
        status = run.ending(given.tol, stop) or reached
    return run.result(given.intercept_scaling, rows, status)


class _Average:
    """The average of linear functions a + ⟨g, W⟩ below φ, and bounds on its rounding errors.

    Sets: `offset`, `slope`, and bounds `offset_error`, `slope_error` on their rounding errors.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.slope = np.zeros(shape)
        self.rounding = ROUNDING * float(np.sqrt(max(self.slope.size, 1)))
        self.count: int = 0
        self.offset, self.offset_error, self.slope_error = 0.0, 0.0, 0.0

    def add(self, offset: float, offset_size: float, g: Floats, g_size: float) -> None:
        """Add a function; `offset_size` and `g_size` are the sizes of the terms in the two sums."""
        self.count += 1
        share = 1.0 / self.count
        self.slope *= 1.0 - share
        self.slope += share * g
        self.offset = (1.0 - share) * self.offset + share * offset
        keep = (1.0 - share) * np.array([self.offset_error, self.slope_error])
        new = self.rounding * share * np.array([offset_size, g_size])
        own = ROUNDING * np.array([abs(self.offset), np.linalg.norm(self.slope)])
        self.offset_error, self.slope_error = (keep + new + own).tolist()

    def bound(self, sigma: float) -> float:
        """A lower bound on the minimum of the average plus (σ/2)‖W‖²."""
        slope = float(np.linalg.norm(self.slope)) * (1.0 + self.rounding) + self.slope_error
        return self.offset - self.offset_error - 0.5 * slope * slope / sigma

    def reset(self) -> None:
        """Forget all functions."""
        self.slope[:] = 0.0
        self.count, self.offset, self.offset_error, self.slope_error = 0, 0.0, 0.0, 0.0


class _Run:
    """The iterates and the bounds, on the features that occur in some example: the other weights are always 0.

    Sets: `W`, the last iterate, with its `objective`, `penalty_at` (value and subgradient) and `point`; `upper` with
    `best`, `lower`; `published` and `tail`, the lower bounds of the last iteration.
    """

    def __init__(self, X: Any, losses: TreeLosses, penalty: Penalty, use_tail: bool) -> None:
        self.n_features = X.shape[1]
        self.used = np.unique(X.indices).astype(np.int64) if sp.issparse(X) else np.arange(X.shape[1])
        self.X, self.losses, self.penalty, self.use_tail = X[:, self.used], losses, penalty, use_tail
        self.by_feature = self.X.T.tocsr() if sp.issparse(X) else self.X.T
        self.sigma = float(penalty.modulus)
        shape = (penalty.paths.m, len(self.used))
        self.scores_fit = 8e-6 * losses.n_samples * shape[0] <= SCORES_MB
        self.W, self.best = np.zeros(shape), np.zeros(shape)
        self.all, self.late = _Average(shape), _Average(shape)
        self.at_zero = self.upper = self.objective = losses.at_zero
        self.lower = self.published = self.tail = 0.0  # J is nowhere negative
        self.penalty_at, self.point = penalty.value_and_subgradient(self.W), self._losses_at(self.W)

    def step(self, t: int) -> bool:
        """One iteration; false, with a warning, if numbers became too large."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._take_subgradient(t)
            W = self.all.slope / -self.sigma
            self.published, self.tail = self.all.bound(self.sigma), self.late.bound(self.sigma)
            penalty_at = self.penalty.value_and_subgradient(W)
        if not (np.isfinite(penalty_at[0]) and np.isfinite(self.published)):
            warnings.warn(
                f"dual averaging overflowed in iteration {t}, because the curvature of the penalty is too large for "
                f"its modulus {self.sigma:.3g}; use solver='dual'",
                RuntimeWarning,
                stacklevel=3,
            )
            return False
        self.W, self.penalty_at, self.point = W, penalty_at, self._losses_at(W)
        self.objective = penalty_at[0] + self.point.value
        if self.objective < self.upper:
            self.upper = self.objective
            self.best[:] = W
        self.lower = max(self.lower, self.published, self.tail if self.use_tail else self.published)
        return True

    def ending(self, tol: float, stop: str) -> Status | None:
        """Whether the bounds are close enough."""
        if stop == "gap":
            return Status.CONVERGED if self.upper - self.lower <= tol else None
        return ending(self.upper, self.lower, self.at_zero, tol)

    def _take_subgradient(self, t: int) -> None:
        """Add the linear function at W to the averages."""
        W, sigma, (penalty, coupled), loss = self.W, self.sigma, self.penalty_at, self.point.value
        g, norm = self._loss_subgradient(), float(np.linalg.norm(W))
        g_size = float(np.linalg.norm(coupled)) + float(np.linalg.norm(g)) + sigma * norm
        g += coupled
        g -= sigma * W
        psi = 0.5 * sigma * norm * norm
        offset, offset_size = penalty - psi + loss - float(np.vdot(g, W)), penalty + psi + loss + g_size * norm
        if t & (t - 1) == 0:
            self.late.reset()
        self.all.add(offset, offset_size, g, g_size)
        self.late.add(offset, offset_size, g, g_size)

    def _losses_at(self, W: Floats) -> LossPoint:
        if not self.scores_fit:
            return self.losses.evaluate(self.X, W)
        scores = self.X @ W.T
        return self.losses.evaluate_scores(lambda rows, nodes: scores[rows, nodes])

    def _loss_subgradient(self) -> Floats:
        """A subgradient of H at W, dense."""
        coefficients = self.losses.coefficients(self.point)
        if self.scores_fit:  # a product with a dense array is faster than building a sparse one
            return np.ascontiguousarray((self.by_feature @ coefficients.T.toarray()).T)
        g = coefficients @ self.X
        return np.asarray(g.toarray() if sp.issparse(g) else g)

    def result(self, intercept_scaling: float, rows: list[tuple[float, ...]], status: Status) -> SolverResult:
        """The best iterate, with its objective recomputed."""
        primal = self.penalty.value(self.best) + self.losses.evaluate(self.X, self.best).value
        weights = np.zeros((len(self.best), self.n_features))
        weights[:, self.used] = self.best
        return SolverResult(
            coef=weights if intercept_scaling == 0.0 else weights[:, :-1].copy(),
            intercept=np.zeros(len(weights)) if intercept_scaling == 0.0 else intercept_scaling * weights[:, -1],
            dual=None,
            certificate=Certificate(primal, self.lower, self.at_zero, primal),
            history=history_of(rows, COLUMNS, whole=("iteration",)),
            n_iter=np.array([len(rows)]),
            status=status,
        )


def _with_constant(X: Any, intercept_scaling: float) -> Any:
    """X in float64 by row, with the constant feature as last column unless intercept_scaling is 0."""
    X = sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    if intercept_scaling == 0.0:
        return X
    column = np.full((X.shape[0], 1), intercept_scaling)
    return sp.hstack([X, sp.csr_array(column)], format="csr") if sp.issparse(X) else np.hstack([X, column])
