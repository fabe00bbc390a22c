"""What TopPush and RecallAtK have in common as estimators: parameters, training data, and what is kept of a result.

The reduction of many classes to two: pairs (row, block) with scores s_ib = w_b · x_i, never written out.

    joint        blocks are the classes; (i, y_i) is a positive, the (i, r) with r ≠ y_i are negatives
    one-vs-all   one block, a problem for each class; rows of the class are positives, all others negatives

The features of a pair are x_i in block b of a vector that is 0 elsewhere, so a weight vector is a matrix W with a row
for each block, and two pairs of different blocks are orthogonal. The last column of W is the weight of a constant
feature of value `bias`. Scores are made for some rows at a time; memory is X (for a moment in float64, too), W, and
`BLOCK_ENTRIES` scores.

What the ranking solvers share: one joint problem or one for each class, when to stop, and what is returned.

A convex quadratic program with one equality, by a primal-dual interior point method.

    minimise ½ vᵀQv − cᵀv   subject to  eᵀv = b,  v ≥ 0,      Q = block diagonal + diag(q),  positive semidefinite

Mehrotra's predictor and corrector. A step factors Q + diag(z/v) block by block: a block is given by its Gram matrix, or
by its factor Z with Q = Z Zᵀ, which is cheaper where Z has few columns (Sherman, Morrison, Woodbury).
Cost of a step: Σ p·min(p, columns)² over the blocks of size p; 15 to 30 steps. Memory: twice the blocks.

Losses of rankings: TopPush and recall@k, of the scores of positive and negative pairs.

    TopPush     Σ_i C_i max(0, 1 + t − s_i)²,   t the largest score of a negative,  s_i of a positive
    recall@k    max over the labellings y' with at most K positives of  Δ(y') + 2 Σ_{chosen negatives} s
                                                                        − 2 Σ_{left out positives} s
                Δ(y') = 1 − (chosen positives) / (all positives)

The first is what Li, Jin and Zhou minimise (NIPS 2014), the second the structural SVM of Joachims (ICML 2005), with
the labels ±1 of SVM-perf, hence the factor 2. Both are convex in the scores. Pairs are (row, class): either all of
them, the true class of a row being its positive, or the rows of one class against the others.
Cost: O(n) for the first; a sort for the second, whose maximum is found exactly, by the number of chosen positives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotrs
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from threadpoolctl import threadpool_limits

from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    TrainingData,
    finish_fit,
    progress_callback,
)
from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.solvers.limits import history_of, worst_of
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status

__all__ = [
    "Block",
    "FactorBlock",
    "GramBlock",
    "QuadraticProgram",
    "RankingModel",
    "RankingPairs",
    "RankingSolution",
    "RecallPlane",
    "Reduction",
    "Rounds",
    "recall_at_k_oracle",
    "solve_quadratic_program",
    "solve_reduction",
    "top_push_conjugate",
    "top_push_loss",
]

ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, lower C, or scale the features",
    Status.TIME_LIMIT: "allow more time, or loosen tol",
    Status.STOPPED: "the callback asked for it",
    Status.NOT_ATTAINED: "double precision allows no smaller one; loosen tol, lower C, or scale the features",
}


class RankingModel(LabelModel):
    """Training of a linear model by a ranking solver; a mix-in for the estimators."""

    C: float
    reduction: str
    tol: float
    fit_intercept: bool
    intercept_scaling: float
    max_iter: int
    callback: Callback | None
    verbose: int

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "reduction": [StrOptions({"joint", "one-vs-all"})]
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit_checked(self, data: TrainingData, solve: Callable[..., SolverResult]) -> None:
        """Train on checked data; `solve` takes the options of both solvers."""
        result = solve(
            reduction=self.reduction,
            bias=float(self.intercept_scaling) if self.fit_intercept else 0.0,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            callback=progress_callback(self, "rounds" if self.reduction == "joint" else "classes"),
        )
        self._keep(result, data)

    def _keep(self, result: SolverResult, data: TrainingData) -> None:
        two = data.targets.n_classes == 2
        self.classes_ = data.targets.classes
        self.coef_ = np.diff(result.coef, axis=0) if two else result.coef
        self.intercept_ = np.diff(result.intercept) if two else result.intercept
        self._freeze_weights()
        finish_fit(self, data, result, ADVICE, tol=self.tol)
        self.n_iter_ = int(result.n_iter.sum())


Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

BLOCK_ENTRIES = 2**20
"""Scores made at a time: 8 MB."""


@dataclass(frozen=True, eq=False)
class RankingPairs:
    """Rows, and in which block each is a positive.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    true_block : ndarray of int64 of shape (n_samples,)
        Block in which the row is a positive; −1 if it is a negative everywhere.
    n_blocks : int
        Number of blocks.
    bias : float
        Value of the constant feature; 0 for none.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.ranking import RankingPairs
    >>> pairs = RankingPairs(np.eye(2), np.array([0, 1]), n_blocks=3)
    >>> pairs.n_positives, pairs.n_negatives
    (2, 4)
    >>> positives, block_values = next(pairs.scores(np.arange(9.0).reshape(3, 3)))[1:]
    >>> positives, block_values
    (array([0., 4.]), array([[-inf,   3.,   6.],
           [  1., -inf,   7.]]))
    """

    X: Any
    true_block: Ints
    n_blocks: int
    bias: float = 0.0

    @classmethod
    def joint(cls, X: Any, y: Ints, n_classes: int, bias: float = 0.0) -> RankingPairs:
        """All pairs of a row and a class."""
        return cls(X, y, n_classes, bias)

    @classmethod
    def one_vs_all(cls, X: Any, y: Ints, label: int, bias: float = 0.0) -> RankingPairs:
        """The rows of one class against the others."""
        return cls(X, np.where(y == label, 0, -1).astype(np.int64), 1, bias)

    @cached_property
    def positive_rows(self) -> Ints:
        """Rows that are a positive, in their order; the n-th positive is in this row."""
        return np.flatnonzero(self.true_block >= 0)

    @property
    def n_positives(self) -> int:
        """Number of positives."""
        return len(self.positive_rows)

    @property
    def n_negatives(self) -> int:
        """Number of negatives."""
        return len(self.true_block) * self.n_blocks - self.n_positives

    @property
    def n_columns(self) -> int:
        """Columns of W: the features and the constant."""
        return int(self.X.shape[1]) + 1

    def scores(self, W: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """First row, scores of the positives, and scores of all pairs of successive rows, −inf for positives."""
        step = max(1, BLOCK_ENTRIES // self.n_blocks)
        weights, constants = np.ascontiguousarray(W[:, :-1].T), self.bias * W[:, -1]
        for first in range(0, len(self.true_block), step):
            found = np.asarray(self.X[first : first + step] @ weights) + constants
            true = self.true_block[first : first + step]
            rows = np.flatnonzero(true >= 0)
            positives = found[rows, true[rows]]
            found[rows, true[rows]] = -np.inf
            yield first, positives, found

    def combination(self, rows: Ints, blocks: Ints, values: Floats) -> Floats:
        """W = Σ values · features of the pairs (rows, blocks), of shape (n_blocks, n_columns)."""
        coefficients = sp.csr_array((values, (blocks, rows)), shape=(self.n_blocks, len(self.true_block)))
        W = np.empty((self.n_blocks, self.n_columns))
        product = coefficients @ self.X
        W[:, :-1] = product.toarray() if sp.issparse(product) else product
        W[:, -1] = self.bias * coefficients.sum(axis=1)
        return W

    def features(self, rows: Ints) -> Any:
        """x and the constant of the rows, CSR or dense like X, float64, of shape (n, n_columns)."""
        part = self.X[rows].astype(np.float64)
        constant = np.full((len(rows), 1), self.bias)
        return sp.csr_array(sp.hstack([part, constant])) if sp.issparse(part) else np.hstack([part, constant])


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


MAX_STEPS = 100
CENTRED = 0.01
"""Least v z of a variable at the start, relative to the mean: one far below it would cut all steps short."""
BOUNDARY = 0.995
"""Share of the way to the boundary that a step goes."""
RIDGES = (0.0, 1e-15, 1e-13, 1e-11, 1e-9)
"""Relative to the largest diagonal entry; the next where rounding makes a factor fail."""
GIVE_UP = 1e3
"""Growth of the error over its least value that only rounding can make."""
REFINEMENTS = 2
"""Of systems solved through a factor: small diagonals near the solution cost digits."""
LEAST_STEP = 1e-6
"""Steps shorter than this lead nowhere: rounding has the word."""


class Block(Protocol):
    """A diagonal block of Q."""

    @property
    def size(self) -> int:
        """Number of variables."""

    def multiply(self, v: Floats) -> Floats:
        """Q v."""

    def factor(self, diagonal: Floats) -> Callable[[Floats], Floats]:
        """The solver of (Q + diag(diagonal)) u = r; r may have several columns."""


@dataclass(frozen=True, eq=False)
class GramBlock:
    """A block given by its matrix of shape (p, p)."""

    gram: Floats

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self.gram)

    def multiply(self, v: Floats) -> Floats:
        """Q v."""
        product: Floats = self.gram @ v
        return product

    def factor(self, diagonal: Floats) -> Callable[[Floats], Floats]:
        """The solver of (Q + diag(diagonal)) u = r."""
        matrix = self.gram.copy()
        matrix.flat[:: len(matrix) + 1] += diagonal
        return _cholesky(matrix)


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """A block Q = Z Zᵀ given by Z of shape (p, columns)."""

    Z: Floats

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self.Z)

    def multiply(self, v: Floats) -> Floats:
        """Q v."""
        product: Floats = self.Z @ (self.Z.T @ v)
        return product

    def factor(self, diagonal: Floats) -> Callable[[Floats], Floats]:
        """The solver of (Q + diag(diagonal)) u = r, by I + Zᵀ diag⁻¹ Z."""
        scaled = self.Z / diagonal[:, None]
        solve_inner = _cholesky(np.eye(self.Z.shape[1]) + self.Z.T @ scaled)

        def solve_once(right: Floats) -> Floats:
            return right / diagonal[:, None] - scaled @ solve_inner(scaled.T @ right)

        def solve(right: Floats) -> Floats:
            u = solve_once(right)
            for _ in range(REFINEMENTS):
                u += solve_once(right - diagonal[:, None] * u - self.multiply(u))
            return u

        return solve


@dataclass(frozen=True, eq=False)
class QuadraticProgram:
    """Blocks of Q and the vectors of the program, in the order of the blocks."""

    blocks: Sequence[Block]
    diagonal: Floats
    linear: Floats
    normal: Floats
    level: float

    def multiply(self, v: Floats) -> Floats:
        """Q v."""
        parts = [block.multiply(part) for block, part in zip(self.blocks, self.split(v), strict=True)]
        product: Floats = np.concatenate(parts) + self.diagonal * v
        return product

    def split(self, v: Floats) -> list[Floats]:
        """A vector cut into its blocks."""
        return np.split(v, np.cumsum([block.size for block in self.blocks])[:-1])


def solve_quadratic_program(program: QuadraticProgram, starts: Iterable[Floats], tol: float) -> Floats:
    """A point v > 0 whose duality gap and residuals are at most `tol`, relative to the terms of the objective.

    Parameters
    ----------
    program : QuadraticProgram
        The program.
    starts : iterable of ndarray of shape (n,)
        Positive numbers of the size of the solution; need not be feasible. They are tried in turn until one leads to a
        point of the accuracy asked for.
    tol : float
        Relative accuracy; where rounding does not allow it the best point reached is returned.

    Returns
    -------
    ndarray of shape (n,)
        The point; the equality holds to rounding error times the number of steps.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.ranking import GramBlock, QuadraticProgram, solve_quadratic_program
    >>> program = QuadraticProgram([GramBlock(np.eye(2))], np.zeros(2), np.array([1.0, 0.5]), np.ones(2), 1.0)
    >>> solve_quadratic_program(program, [np.full(2, 0.5)], tol=1e-10).round(6)
    array([0.75, 0.25])
    """
    best, least = np.empty(0), np.inf
    for start in starts:
        v, error = _solve_from(program, start, tol)
        if error < least or not len(best):
            best, least = v, error
        if least <= tol:
            break
    return best


def _solve_from(program: QuadraticProgram, start: Floats, tol: float) -> tuple[Floats, float]:
    """The best point on the way from one start, and its error."""
    v, best, least = start, start, np.inf
    gradient = program.multiply(v) - program.linear
    y = 0.0
    z = np.maximum(gradient, 0.1 * np.abs(program.linear).max())
    z = np.maximum(z, CENTRED * float(v @ z) / len(v) / v)
    for _ in range(MAX_STEPS):
        of_dual = gradient - program.normal * y - z
        of_level = float(program.normal @ v - program.level)
        complementary = float(v @ z)
        scale = abs(float(program.linear @ v)) + abs(program.level * y) + np.finfo(float).tiny
        error = (complementary + float(v @ np.abs(of_dual)) + abs(of_level * y)) / scale
        if error < least:
            best, least = v, error
        if not tol < error < GIVE_UP * least:
            break
        try:
            step, dv, dy, dz = _step(program, v, z, of_dual, of_level)
        except LinAlgError:
            break  # as far as rounding allows
        if not step >= LEAST_STEP:
            break
        v, y, z = v + step * dv, y + step * dy, z + step * dz
        gradient = program.multiply(v) - program.linear
    return best, least


def _step(
    program: QuadraticProgram, v: Floats, z: Floats, of_dual: Floats, of_level: float
) -> tuple[float, Floats, float, Floats]:
    """Length and direction of a step: the predictor says how much to centre, the corrector goes there."""
    solvers = [
        block.factor(part) for block, part in zip(program.blocks, program.split(z / v + program.diagonal), strict=True)
    ]

    def solve(right: Floats) -> Floats:
        cut = np.cumsum([block.size for block in program.blocks])[:-1]
        return np.concatenate([one(part) for one, part in zip(solvers, np.split(right, cut), strict=True)])

    of_normal, of_predictor = solve(np.stack([program.normal, -z - of_dual], axis=1)).T
    curvature = float(program.normal @ of_normal)
    if not curvature > 0.0:
        raise LinAlgError("the matrix of a step is not positive definite")

    def direction(target: Floats, free: Floats) -> tuple[Floats, float, Floats]:
        """The Newton direction to v∘z + target; `free` is that without the equality."""
        dy = (-of_level - float(program.normal @ free)) / curvature
        dv: Floats = free + of_normal * dy
        return dv, dy, (target - z * dv) / v

    dv, _, dz = direction(-v * z, of_predictor)
    reach = _length(v, dv, z, dz, 1.0)
    mean = float(v @ z) / len(v)
    centring = (float((v + reach * dv) @ (z + reach * dz)) / len(v) / mean) ** 3
    target = centring * mean - v * z - dv * dz
    dv, dy, dz = direction(target, solve((target / v - of_dual)[:, None])[:, 0])
    return _length(v, dv, z, dz, BOUNDARY), dv, dy, dz


def _length(v: Floats, dv: Floats, z: Floats, dz: Floats, share: float) -> float:
    """Longest step, at most 1, that keeps v and z positive; a share of the way to the boundary."""
    both, change = np.concatenate([v, z]), np.concatenate([dv, dz])
    falling = change < 0.0
    return float(min(1.0, share * np.min(-both[falling] / change[falling], initial=np.inf)))


def _cholesky(matrix: Floats) -> Callable[[Floats], Floats]:
    """The solver of a system with a positive definite matrix; a small ridge where rounding spoils it."""
    # LAPACK directly: for blocks of a hundred pairs the checks of cho_factor and cho_solve cost as much as the work.
    largest = float(matrix.flat[:: len(matrix) + 1].max())
    for ridge in RIDGES:
        matrix.flat[:: len(matrix) + 1] += ridge * largest
        factor, failed = dpotrf(matrix.T, lower=1, clean=0)
        if not failed:
            return lambda right: np.asarray(dpotrs(factor, right, lower=1)[0])
    raise LinAlgError("the matrix of a step is not positive definite")


def top_push_loss(positives: Floats, top_negative: float, costs: Floats) -> float:
    """Σ_i C_i max(0, 1 + t − s_i)².

    Parameters
    ----------
    positives : ndarray of shape (n_positives,)
        Scores s_i of the positives.
    top_negative : float
        Largest score t of a negative.
    costs : ndarray of shape (n_positives,)
        C_i.

    Returns
    -------
    float
        The loss.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.ranking import top_push_loss
    >>> top_push_loss(np.array([2.0, 0.5]), 0.0, np.array([1.0, 2.0]))
    0.5
    """
    return float(costs @ np.maximum(1.0 + top_negative - positives, 0.0) ** 2)


def top_push_conjugate(alpha: Floats, costs: Floats) -> float:
    """Σ_i α_i²/(4 C_i), what the dual of TopPush loses to its squares; costs are positive.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.ranking import top_push_conjugate
    >>> top_push_conjugate(np.array([2.0, 0.0]), np.array([1.0, 1.0]))
    1.0
    """
    return float(np.sum(alpha**2 / (4.0 * costs)))


class RecallPlane(NamedTuple):
    """The labelling that violates its constraint most.

    Parameters
    ----------
    value : float
        Δ(y') + 2 Σ_{chosen negatives} s − 2 Σ_{left out positives} s; may be negative.
    delta : float
        Δ(y').
    positives : ndarray of shape (n_positives − a,)
        Places of the positives that are left out, the lowest ones.
    negatives : ndarray of shape (b,), b ≤ n_selected − a
        Places of the negatives that are chosen, the highest ones.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.ranking import recall_at_k_oracle
    >>> recall_at_k_oracle(np.array([1.0]), np.array([0.9, 0.0]), 1).negatives
    array([0])
    """

    value: float
    delta: float
    positives: npt.NDArray[np.int64]
    negatives: npt.NDArray[np.int64]


def recall_at_k_oracle(positives: Floats, negatives: Floats, n_selected: int) -> RecallPlane:
    """The labelling with at most `n_selected` positives whose constraint is violated most, exactly.

    For a given number a of chosen positives the best labelling chooses the a highest positives and, among the
    n_selected − a highest negatives, those with a score above 0; all a are tried.

    Parameters
    ----------
    positives : ndarray of shape (n_positives,)
        Scores of the positives, at least one.
    negatives : ndarray of shape (n_kept,)
        Scores of the negatives in any order; the `n_selected` highest are enough.
    n_selected : int
        K ≥ 0.

    Returns
    -------
    RecallPlane
        Its value, its Δ, and which positives are left out and negatives chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.ranking import recall_at_k_oracle
    >>> plane = recall_at_k_oracle(np.array([2.0, 0.1]), np.array([0.2, -1.0]), n_selected=3)
    >>> plane.delta, round(plane.value, 12), plane.positives, plane.negatives
    (0.5, 0.7, array([1]), array([0]))
    """
    if n_selected < 0:
        raise ValueError(f"n_selected={n_selected} must be 0 or more")
    n_pos = len(positives)
    best_positives = np.argsort(-positives, kind="stable")
    best_negatives = np.argsort(-negatives, kind="stable")
    chosen = np.arange(min(n_pos, n_selected) + 1)
    n_negatives = np.minimum(n_selected - chosen, np.count_nonzero(negatives > 0.0))
    left_out = np.append(np.cumsum(positives[best_positives[::-1]])[::-1], 0.0)  # Σ of all but the a highest
    taken = np.append(0.0, np.cumsum(negatives[best_negatives]))
    values = 1.0 - chosen / n_pos + 2.0 * (taken[n_negatives] - left_out[chosen])
    a = int(np.argmax(values))
    return RecallPlane(float(values[a]), 1.0 - a / n_pos, best_positives[a:], best_negatives[: n_negatives[a]])
