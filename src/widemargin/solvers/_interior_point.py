"""A convex quadratic program with one equality, by a primal-dual interior point method.

    minimise ½ vᵀQv − cᵀv   subject to  eᵀv = b,  v ≥ 0,      Q = block diagonal + diag(q),  positive semidefinite

Mehrotra's predictor and corrector. A step factors Q + diag(z/v) block by block: a block is given by its Gram matrix, or
by its factor Z with Q = Z Zᵀ, which is cheaper where Z has few columns (Sherman, Morrison, Woodbury).
Cost of a step: Σ p·min(p, columns)² over the blocks of size p; 15 to 30 steps. Memory: twice the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotrs

__all__ = ["Block", "FactorBlock", "GramBlock", "QuadraticProgram", "solve_quadratic_program"]

Floats: TypeAlias = npt.NDArray[np.float64]

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
    >>> from widemargin.solvers._interior_point import GramBlock, QuadraticProgram, solve_quadratic_program
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
