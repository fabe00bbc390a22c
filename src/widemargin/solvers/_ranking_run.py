"""What the ranking solvers share: one joint problem or one for each class, when to stop, and what is returned."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.problems.ranking_pairs import RankingPairs
from widemargin.solvers._limits import history_of, worst_of
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status

__all__ = ["RankingSolution", "Reduction", "Rounds", "solve_reduction"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Reduction: TypeAlias = Literal["joint", "one-vs-all"]

ROUNDING = 1e-12
"""Relative gap below which double precision shows no difference between weights."""


@dataclass
class Rounds:
    """When one problem has been worked on for long enough; keeps one row per round.

    Parameters
    ----------
    tol : float
        Relative gap to reach.
    max_iter : int
        Rounds at most.
    deadline : float
        Of `time.monotonic`.
    callback : callable or None
        Called with a `Progress` after each round; stops the solver when true.
    """

    tol: float
    max_iter: int
    began: float
    deadline: float = np.inf
    callback: Callback | None = None
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def verdict(self, best: RankingSolution, size: int) -> Status | None:
        """Keep the bounds of a round and say whether it is the last.

        Zero weights rank nothing. Where C is so small that they are within the tolerance, the rounds go on until there
        are better ones, or until zero is optimal up to rounding.
        """
        seconds = time.monotonic() - self.began
        self.rows.append((len(self.rows) + 1, seconds, best.primal, best.dual, size))
        stop = self.callback is not None and self.callback(
            Progress(len(self.rows), self.max_iter, seconds, best.primal, best.dual)
        )
        if best.relative_gap <= (self.tol if best.W.any() else min(self.tol, ROUNDING)):
            return Status.CONVERGED
        if stop:
            return self.end(best, Status.STOPPED)
        if time.monotonic() >= self.deadline:
            return self.end(best, Status.TIME_LIMIT)
        return self.end(best, Status.MAX_ITER) if len(self.rows) >= self.max_iter else None

    def end(self, best: RankingSolution, reason: Status) -> Status:
        """The status of a problem that ends here: the tolerance counts first."""
        return Status.CONVERGED if best.relative_gap <= self.tol else reason


@dataclass(frozen=True, eq=False)
class RankingSolution:
    """What one problem gives: the best weights and the best dual point, which need not be of the same round.

    `dual_pairs` are rows, blocks and coefficients of the dual point's W, or None where they are not kept.
    """

    W: Floats
    primal: float
    dual: float
    primal_at_zero: float
    status: Status
    dual_pairs: tuple[Ints, Ints, Floats] | None = None

    @property
    def relative_gap(self) -> float:
        """Gap over the larger of primal and dual."""
        return float(relative_gap(np.array([self.primal]), np.array([self.dual]))[0])

    def with_weights(self, W: Floats, primal: float) -> RankingSolution:
        """The better of these weights and those so far; equal ones replace zero, which ranks nothing."""
        better = primal < self.primal or (primal == self.primal and not self.W.any())
        return replace(self, W=W, primal=primal) if better else self

    def with_dual(self, dual: float, dual_pairs: tuple[Ints, Ints, Floats] | None = None) -> RankingSolution:
        """The better of this dual point and that so far."""
        return replace(self, dual=dual, dual_pairs=dual_pairs) if dual > self.dual else self

    @classmethod
    def nothing_to_learn(cls, pairs: RankingPairs) -> RankingSolution:
        """Zero weights, which are optimal where there is nothing to rank."""
        return cls.untouched(pairs, 0.0, Status.CONVERGED)

    @classmethod
    def untouched(cls, pairs: RankingPairs, primal_at_zero: float, status: Status) -> RankingSolution:
        """Zero weights, before the first round; 0 is a bound from below on what is never negative."""
        W = np.zeros((pairs.n_blocks, pairs.n_columns))
        none: Ints = np.empty(0, dtype=np.int64)
        return cls(W, primal_at_zero, 0.0, primal_at_zero, status, (none, none, np.empty(0)))


Solve: TypeAlias = Callable[[RankingPairs, Rounds], RankingSolution]
AtZero: TypeAlias = Callable[[RankingPairs], float]


def solve_reduction(
    X: Any,
    y: Ints,
    n_classes: int,
    solve: Solve,
    at_zero: AtZero,
    *,
    reduction: Reduction,
    bias: float,
    tol: float,
    max_iter: int,
    callback: Callback | None,
    time_limit: float | None,
) -> SolverResult:
    """Solve the joint problem, or one for each class after another, and put together what is returned."""
    began = time.monotonic()
    deadline = np.inf if time_limit is None else began + time_limit
    if reduction == "joint":
        rounds = Rounds(tol, max_iter, began, deadline, callback)
        solution = _on_one_thread(solve, RankingPairs.joint(X, y, n_classes, bias), rounds)
        return _result([solution], [rounds], X.shape[0], n_classes, bias)
    if reduction != "one-vs-all":
        raise ValueError(f"reduction must be 'joint' or 'one-vs-all', got {reduction!r}")
    solutions: list[RankingSolution] = []
    runs: list[Rounds] = []
    ended: Status | None = None
    for label in range(n_classes):
        pairs = RankingPairs.one_vs_all(X, y, label, bias)
        runs.append(Rounds(tol, max_iter, began, deadline))
        if ended is None:
            solutions.append(_on_one_thread(solve, pairs, runs[-1]))
        else:
            solutions.append(RankingSolution.untouched(pairs, at_zero(pairs), ended))
        ended = ended or _asks_to_end(solutions, n_classes, began, deadline, callback)
    return _result(solutions, runs, X.shape[0], n_classes, bias)


def _on_one_thread(solve: Solve, pairs: RankingPairs, rounds: Rounds) -> RankingSolution:
    """BLAS on one thread: blocks are small, and sums must not depend on the number of cores."""
    with threadpool_limits(limits=1, user_api="blas"):
        return solve(pairs, rounds)


def _asks_to_end(
    solutions: list[RankingSolution], n_classes: int, began: float, deadline: float, callback: Callback | None
) -> Status | None:
    """Whether the callback or the clock leaves the other classes out."""
    primal, dual = (sum(getattr(one, name) for one in solutions) for name in ("primal", "dual"))
    now = time.monotonic()
    if callback is not None and callback(Progress(len(solutions), n_classes, now - began, primal, dual)):
        return Status.STOPPED if len(solutions) < n_classes else None
    return Status.TIME_LIMIT if now >= deadline and len(solutions) < n_classes else None


def _result(
    solutions: list[RankingSolution], runs: list[Rounds], n_samples: int, n_classes: int, bias: float
) -> SolverResult:
    W = np.concatenate([one.W for one in solutions])
    primal, dual, zero = (np.array([getattr(s, n) for s in solutions]) for n in ("primal", "dual", "primal_at_zero"))
    return SolverResult(
        coef=np.ascontiguousarray(W[:, :-1]),
        intercept=bias * W[:, -1],
        dual=_dual_variables(solutions, n_samples, n_classes),
        certificate=Certificate.sum(primal, dual, zero, primal),
        history=_history(runs),
        n_iter=np.array([len(run.rows) for run in runs], dtype=np.int64),
        status=worst_of(one.status for one in solutions),
    )


def _dual_variables(solutions: list[RankingSolution], n_samples: int, n_classes: int) -> Any:
    """csr_array A of shape (n_samples, n_classes) with W = AᵀX; None where the solver does not keep them."""
    kept = [one.dual_pairs for one in solutions if one.dual_pairs is not None]
    if len(kept) < len(solutions):
        return None
    rows, blocks, values = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    if len(solutions) > 1:  # one block each
        blocks = np.repeat(np.arange(len(kept)), [len(part[0]) for part in kept])
    return sp.csr_array((values, (rows, blocks)), shape=(n_samples, n_classes))


def _history(runs: list[Rounds]) -> History:
    """One row per round; the rounds of one problem after those of another."""
    rows = [(float(problem), *row) for problem, run in enumerate(runs) for row in run.rows]
    names = ("problem", "iteration", "seconds", "primal", "dual", "working_set")
    return history_of(rows, names, whole=("problem", "iteration", "working_set"))
