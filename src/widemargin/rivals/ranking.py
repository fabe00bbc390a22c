"""What TopPush and RecallAtK share: pairs, rounds, an interior point method, and the fit of an estimator.

Many classes are reduced to a ranking of two kinds of pairs (row, block), with scores s_ib = w_b · x_i:

    joint        one problem; the blocks are the classes; (i, y_i) is a positive, every (i, r) with r ≠ y_i a negative
    one-vs-all   one problem per class, with one block; the rows of the class are positives, all others negatives

The features of a pair are x_i in block b of a vector that is 0 elsewhere. So a weight vector is a matrix W with one row
per block, and pairs of different blocks are orthogonal. The last column of W is the weight of a constant feature of
value `intercept_scaling`. Pairs are never written out; memory is X (briefly also in float64), W, and `BLOCK_ENTRIES`
scores.

A solver works in rounds: it solves the dual for the negatives or labellings found so far, then scores all pairs to find
more. The dual is a convex quadratic program with one equality,

    minimise ½ vᵀQv − cᵀv   subject to  eᵀv = b,  v ≥ 0,      Q = block diagonal + diag(q),  positive semidefinite

solved by Mehrotra's predictor and corrector. A step factors Q + diag(z/v) block by block. A block is given by its Gram
matrix or, which is cheaper where Z has few columns, by a factor Z with Q = Z Zᵀ (Sherman, Morrison, Woodbury).
A step costs Σ p · min(p, columns)² over the blocks of size p; 15 to 30 steps. Memory: twice the blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotrs
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from threadpoolctl import threadpool_limits

from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import COMMON_CONSTRAINTS, POSITIVE, TrainingData, finish_fit, progress_callback
from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.solvers.limits import Limits, history_of, with_deadline_of, worst_of
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = [
    "Block", "FactorBlock", "Floats", "GramBlock", "Ints", "QuadraticProgram", "RankingModel", "RankingPairs",
    "RankingProblem", "Search",
]  # fmt: skip

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, lower C, or scale the features",
    Status.NOT_ATTAINED: "double precision limits the gap; loosen tol, lower C, or scale the features",
}
BLOCK_ENTRIES = 2**20  # scores made at a time: 8 MB
ROUNDING = 1e-12  # relative gap below which double precision shows no difference between weights

MAX_STEPS = 100  # of the interior point method
CENTRED = 0.01  # least v z of a variable at the start, relative to the mean: a smaller one would cut all steps short
BOUNDARY = 0.995  # share of the way to the boundary that a step goes
RIDGES = (0.0, 1e-15, 1e-13, 1e-11, 1e-9)  # relative to the largest diagonal entry; the next one where a factor fails
GIVE_UP = 1e3  # growth of the error over its least value that only rounding can cause
REFINEMENTS = 2  # of systems solved through a factor: small diagonals near the solution cost digits
LEAST_STEP = 1e-6  # a shorter step makes no progress against rounding error


@dataclass(eq=False, repr=False, kw_only=True)
class RankingModel(LabelModel):
    """The base of both estimators: a linear model that is trained in rounds, as one problem or as one per class."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "C": [POSITIVE],
        "reduction": [StrOptions({"joint", "one-vs-all"})],
    }

    reduction: str = "joint"
    tol: float = 1e-3
    fit_intercept: bool
    intercept_scaling: float = 1.0
    normalize: bool = False
    max_iter: int
    memory_limit_mb: float = 1024
    callback: Callback | None = None
    n_jobs: int | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _train(self, problem: RankingProblem, data: TrainingData, X: Any, y: npt.NDArray[Any]) -> None:
        """Solve the problem for rows X of classes y, and keep the result."""
        n_classes, scaling = data.targets.n_classes, float(self.intercept_scaling) if self.fit_intercept else 0.0
        searches = self._searches(problem, X, y.astype(np.int64, copy=False), n_classes, scaling)
        W = np.concatenate([search.W for search in searches])
        primal, dual, zero = (np.array([getattr(s, n) for s in searches]) for n in ("primal", "dual", "primal_at_zero"))
        rows = [(float(number), *row) for number, search in enumerate(searches) for row in search.rows]
        names = ("problem", "iteration", "seconds", "primal", "dual", "working_set")
        result = SolverResult(
            coef=np.ascontiguousarray(W[:, :-1]),
            intercept=scaling * W[:, -1],
            dual=None,
            certificate=Certificate.sum(primal, dual, zero, primal),
            history=history_of(rows, names, whole=("problem", "iteration", "working_set")),
            n_iter=np.array([len(search.rows) for search in searches], dtype=np.int64),
            status=worst_of(search.status for search in searches),
        )
        self.classes_ = data.targets.classes
        self.coef_ = np.diff(result.coef, axis=0) if n_classes == 2 else result.coef
        self.intercept_ = np.diff(result.intercept) if n_classes == 2 else result.intercept
        self._freeze_weights()
        finish_fit(self, data, result, ADVICE, tol=self.tol, stacklevel=4)
        self.n_iter_ = int(result.n_iter.sum())

    def _searches(self, problem: RankingProblem, X: Any, y: Ints, n_classes: int, scaling: float) -> list[Search]:
        """Solve the joint problem, or one problem per class; the classes after a limit keep zero weights."""
        all_pairs: Iterable[RankingPairs]
        if self.reduction == "joint":
            classes, rounds = Limits(n_classes), Limits(int(self.max_iter), progress_callback(self, "rounds"))
            all_pairs = [RankingPairs(X, y, n_classes, scaling)]
        else:
            classes = Limits(n_classes, progress_callback(self, "classes"))
            rounds = Limits(int(self.max_iter), with_deadline_of(self.callback, lambda progress: False))
            all_pairs = (RankingPairs(X, np.where(y == label, 0, -1), 1, scaling) for label in range(n_classes))
        searches: list[Search] = []
        ended: Status | None = None
        for pairs in all_pairs:
            at_zero = problem.value_at_zero(pairs) if pairs.n_positives and pairs.n_negatives else 0.0
            W = np.zeros((pairs.n_blocks, pairs.n_columns))
            search = Search(W, at_zero, at_zero, float(self.tol), rounds, ended or Status.CONVERGED)
            searches.append(search)
            if ended is not None:
                continue
            if at_zero > 0.0:  # otherwise there is nothing to rank, and zero weights are optimal
                # BLAS on one thread: blocks are small, and sums must not depend on the number of cores.
                with threadpool_limits(limits=1, user_api="blas"):
                    search.status = problem.solve(pairs, search)
            primal, dual = sum(one.primal for one in searches), sum(one.dual for one in searches)
            ended = classes.reached(len(searches), classes.elapsed_s, primal, dual)
        return searches


class RankingProblem(Protocol):
    """A convex objective in the scores of positives and negatives, and the rounds that minimise it."""

    def value_at_zero(self, pairs: RankingPairs) -> float:
        """The objective at zero weights."""

    def solve(self, pairs: RankingPairs, search: Search) -> Status:
        """Work in rounds until the search has a verdict."""


@dataclass(eq=False)
class Search:
    """The best weights and the largest dual value so far, which may be of different rounds; one row per round."""

    W: Floats
    primal: float
    primal_at_zero: float
    tol: float
    limits: Limits
    status: Status
    dual: float = 0.0  # a lower bound on objectives that are never negative
    rows: list[tuple[float, ...]] = field(default_factory=list)

    @property
    def relative_gap(self) -> float:
        """Gap over the larger of primal and dual."""
        return float(relative_gap(np.array([self.primal]), np.array([self.dual]))[0])

    def offer(self, W: Floats, primal: float) -> None:
        """Keep weights if they are better; equally good ones replace zero weights, which rank nothing."""
        if primal < self.primal or (primal == self.primal and not self.W.any()):
            self.W, self.primal = W, primal

    def record(self, working_set: int) -> None:
        """Add the row of a round."""
        self.rows.append((len(self.rows) + 1, self.limits.elapsed_s, self.primal, self.dual, working_set))

    def verdict(self, *, stuck: bool) -> Status | None:
        """Why the recorded round is the last, or None: the tolerance, a limit, or rounding error where it is stuck.

        Zero weights rank nothing. Where C is so small that they are within the tolerance, the rounds continue until
        better weights are found, or until zero is optimal up to rounding.
        """
        reached = self.limits.reached(*self.rows[-1][:4]) or (Status.NOT_ATTAINED if stuck else None)
        gap = self.relative_gap
        close = gap <= self.tol and (reached or self.W.any() or gap <= ROUNDING)
        return Status.CONVERGED if close else reached


@dataclass(frozen=True, eq=False)
class RankingPairs:
    """Rows, and the block in which each is a positive.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    true_block : ndarray of int64 of shape (n_samples,)
        Block in which the row is a positive; −1 if it is a negative everywhere.
    n_blocks : int
        Number of blocks.
    intercept_scaling : float
        Value of the constant feature; 0 for no intercept.

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
    intercept_scaling: float = 0.0

    @cached_property
    def positive_rows(self) -> Ints:
        """The rows that are a positive; the n-th positive is in the n-th of these rows."""
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
        """Blocks of rows: the first row, scores of the positives, and scores of all pairs, −inf for positives."""
        step = max(1, BLOCK_ENTRIES // self.n_blocks)
        weights, intercepts = np.ascontiguousarray(W[:, :-1].T), self.intercept_scaling * W[:, -1]
        for first in range(0, len(self.true_block), step):
            found = np.asarray(self.X[first : first + step] @ weights) + intercepts
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
        W[:, -1] = self.intercept_scaling * coefficients.sum(axis=1)
        return W

    def features(self, rows: Ints) -> Any:
        """x and the constant of the rows, CSR or dense like X, float64, of shape (n, n_columns)."""
        part = self.X[rows].astype(np.float64)
        constant = np.full((len(rows), 1), self.intercept_scaling)
        return sp.csr_array(sp.hstack([part, constant])) if sp.issparse(part) else np.hstack([part, constant])


@dataclass(frozen=True, eq=False)
class Block(ABC):
    """A block of Q, given by a matrix with one row per variable."""

    matrix: Floats

    def __len__(self) -> int:
        return len(self.matrix)

    @abstractmethod
    def multiply(self, v: Floats) -> Floats:
        """Q v."""

    @abstractmethod
    def factor(self, diagonal: Floats) -> Callable[[Floats], Floats]:
        """The solver of (Q + diag(diagonal)) u = r; r may have several columns."""


class GramBlock(Block):
    """A block given by Q itself, of shape (p, p)."""

    def multiply(self, v: Floats) -> Floats:
        product: Floats = self.matrix @ v
        return product

    def factor(self, diagonal: Floats) -> Callable[[Floats], Floats]:
        matrix = self.matrix.copy()
        matrix.flat[:: len(matrix) + 1] += diagonal
        return _cholesky(matrix)


class FactorBlock(Block):
    """A block Q = Z Zᵀ given by Z, of shape (p, columns); it is solved by I + Zᵀ diag⁻¹ Z."""

    def multiply(self, v: Floats) -> Floats:
        product: Floats = self.matrix @ (self.matrix.T @ v)
        return product

    def factor(self, diagonal: Floats) -> Callable[[Floats], Floats]:
        Z = self.matrix
        scaled = Z / diagonal[:, None]
        solve_inner = _cholesky(np.eye(Z.shape[1]) + Z.T @ scaled)

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
    """Blocks of Q, and the vectors q, c, e and the number b, in the order of the blocks."""

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
        """A vector, or an array of columns, cut into its blocks."""
        return np.split(v, np.cumsum([len(block) for block in self.blocks])[:-1])

    def solve(self, starts: Iterable[Floats], tol: float) -> Floats:
        """A point v > 0 whose duality gap and residuals are at most `tol`, relative to the terms of the objective.

        Parameters
        ----------
        starts : iterable of ndarray of shape (n,)
            Positive numbers of the size of the solution, which need not be feasible. They are tried in turn until one
            leads to a point that is accurate enough.
        tol : float
            Relative accuracy; where rounding does not allow it, the best point reached is returned.

        Returns
        -------
        ndarray of shape (n,)
            The point; the equality holds up to rounding error times the number of steps.

        Examples
        --------
        >>> import numpy as np
        >>> from widemargin.rivals.ranking import GramBlock, QuadraticProgram
        >>> program = QuadraticProgram([GramBlock(np.eye(2))], np.zeros(2), np.array([1.0, 0.5]), np.ones(2), 1.0)
        >>> program.solve([np.full(2, 0.5)], tol=1e-10).round(6)
        array([0.75, 0.25])
        """
        best, least = np.empty(0), np.inf
        for start in starts:
            v, error = _solve_from(self, start, tol)
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
            break  # this is as far as rounding allows
        if not step >= LEAST_STEP:
            break
        v, y, z = v + step * dv, y + step * dy, z + step * dz
        gradient = program.multiply(v) - program.linear
    return best, least


def _step(
    program: QuadraticProgram, v: Floats, z: Floats, of_dual: Floats, of_level: float
) -> tuple[float, Floats, float, Floats]:
    """Length and direction of a step: the predictor decides how much to centre, the corrector goes there."""
    diagonals = program.split(z / v + program.diagonal)
    solvers = [block.factor(part) for block, part in zip(program.blocks, diagonals, strict=True)]

    def solve(right: Floats) -> Floats:
        return np.concatenate([one(part) for one, part in zip(solvers, program.split(right), strict=True)])

    of_normal, of_predictor = solve(np.stack([program.normal, -z - of_dual], axis=1)).T
    curvature = float(program.normal @ of_normal)
    if not curvature > 0.0:
        raise LinAlgError("the matrix of the current step is not positive definite")

    def direction(target: Floats, free: Floats) -> tuple[Floats, float, Floats]:
        """The Newton direction to v∘z + target; `free` is the direction without the equality."""
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
    """The longest step, at most 1, that keeps v and z positive: a share of the way to the boundary."""
    both, change = np.concatenate([v, z]), np.concatenate([dv, dz])
    falling = change < 0.0
    return float(min(1.0, share * np.min(-both[falling] / change[falling], initial=np.inf)))


def _cholesky(matrix: Floats) -> Callable[[Floats], Floats]:
    """The solver of a positive definite system; adds a small ridge where rounding makes the factorisation fail."""
    # LAPACK directly: for blocks of a hundred pairs the checks of cho_factor and cho_solve cost as much as the work.
    largest = float(matrix.flat[:: len(matrix) + 1].max())
    for ridge in RIDGES:
        matrix.flat[:: len(matrix) + 1] += ridge * largest
        factor, failed = dpotrf(matrix.T, lower=1, clean=0)
        if not failed:
            return lambda right: np.asarray(dpotrs(factor, right, lower=1)[0])
    raise LinAlgError("the matrix of the current step is not positive definite")
