"""Continuous codes for l2 by SPOC: soft, hard by a search for the cost at which the code has the norm allowed, and
separable by growing costs.

    soft        min ½‖M‖² + Σ_i c_i ξ_i             hard        min Σ_i c_i ξ_i   s.t. ‖M‖ ≤ A
    separable   min ½‖M‖²   s.t. ξ = 0  (eq. 13)

The hard problem has the dual  max ⟨b, η⟩ − A ‖G(η)‖,  η ≥ 0, Σ_{r ≠ y_i} η_ir ≤ c_i,  and its solution is the soft one
for costs γ c_i with some γ: then M = γ G(η/γ), ‖M‖ grows with γ, ‖M‖/γ falls. γ is searched on logarithmic scales by
regula falsi, each problem started from the dual variables of the one before. Every soft solution gives both bounds: an
upper one by M scaled into the bound, a lower one by η/γ; the search ends when the best two are as close as asked. Where
the bound is not active γ only grows. With a kernel the same from scores and ‖M‖² = ⟨T, K T⟩.

The separable problem has the dual  max ⟨b, η⟩ − ½‖G(η)‖²,  η ≥ 0, and no bound on sums: it is the soft one from some
finite cost on. So soft problems with growing costs are solved, each from the one before. Their η, at the best length
⟨b, η⟩ / ‖G‖², bounds the optimum from below, their M, at the least length without any loss, from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import Kernel, TrainingKernel
from widemargin.solvers.codes.problem import CodeProblem
from widemargin.solvers.codes.spoc import CAREFUL, kernel_scores, rounding_of_losses, signed_duals, solve_spoc
from widemargin.solvers.kernel_matrix import KernelMatrix
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["L2Options", "L2Solution", "solve_l2", "solve_soft"]

Floats = npt.NDArray[np.float64]

INNER_SHARE = 0.1  # of the tolerance, for the soft problems of a search
TIGHTER = 0.1  # their tolerance when the search does not halve the gap
LEAST_TOL = 1e-12  # of them
STRICTER = 1e-2  # tolerance against the one before, where a code within it is worse than none
MOST_SOLVES = 100
SEPARATING_COSTS = tuple(10.0**power for power in range(1, 15))  # over the mean of ‖h‖²
MOST_LENGTHS = 6  # tried for a code without any loss
LONGER = 1e-14  # what a code without any loss is longer by, so that rounding of its entries leaves none
GROWTH = 4.0  # of γ beyond what the norm asks for, until the bound lies between two norms
MOST_GROWTH = 16.0  # at once: from a start that is too far away SPOC is slow
ROUNDING = 1e-14  # of the objective at zero: a gap that is none


@dataclass(frozen=True)
class L2Options:
    """How SPOC runs; names as in `solve_spoc`."""

    kernel: Kernel | None = None
    tol: float = 1e-6
    max_iter: int = 10_000
    seed: int = 0
    n_threads: int = 1
    callback: Callback | None = None
    cache_size_mb: float = 512.0
    order: Literal["random", "worst-first"] = "random"


@dataclass(frozen=True)
class L2Solution:
    """A code, or with a kernel its coefficients τ (n_samples, n_classes); η of the wrong classes, and bounds."""

    code: Floats | None
    tau: Floats
    dual: Floats
    certificate: Certificate
    status: Status
    n_iter: int


def solve_l2(problem: CodeProblem, options: L2Options) -> L2Solution:
    """The soft problem, or the hard one where the norm is bounded."""
    if problem.hard:
        return _Search(problem, options).run()
    if problem.separable:
        return _Separation(problem, options).run()
    result, passes = solve_soft(problem, options, problem.costs, None), 0
    at_zero, tol = result.certificate.primal_at_zero, options.tol
    while result.certificate.primal > at_zero and result.status is Status.CONVERGED and tol > LEAST_TOL:
        passes, tol = passes + int(result.n_iter[0]), STRICTER * tol  # as good as asked, and yet worse than no code
        result = solve_soft(problem, replace(options, tol=tol), problem.costs, result.dual)
    passes += int(result.n_iter[0])
    tau, code, certificate = signed_duals(result.dual, problem.y), result.coef, result.certificate
    if certificate.primal > at_zero:
        tau, code = np.zeros(tau.shape), None if code is None else np.zeros(code.shape)
        certificate = replace(certificate, primal=at_zero, primal_before_pruning=at_zero)
    status = result.status
    if status in (Status.MAX_ITER, Status.NOT_ATTAINED) and certificate.relative_gap <= options.tol:
        status = Status.CONVERGED
    return L2Solution(code, tau, result.dual, certificate, status, passes)


def solve_soft(problem: CodeProblem, options: L2Options, costs: Floats, start: Any) -> SolverResult:
    """The soft problem with these costs in place of its own."""
    n_classes = problem.b.shape[1]
    y = problem.y.astype(np.int64, copy=False)
    plain = np.array_equal(problem.b, np.arange(n_classes) != y[:, None])
    margins = None if plain else problem.b
    return solve_spoc(problem.h, y, n_classes, costs, margins=margins, start=start, **vars(options))


def _left_of(options: L2Options, passes: int, tol: float) -> L2Options:
    """Options of a further soft problem, to this tolerance, with the passes that are left."""
    return replace(options, tol=tol, max_iter=max(1, options.max_iter - passes))


class _Separation:
    """Soft problems with growing costs: the shortest code without any loss so far, and the best dual variables."""

    def __init__(self, problem: CodeProblem, options: L2Options) -> None:
        self.problem, self.options = problem, options
        self.kernel = None if options.kernel is None else TrainingKernel(problem.h, options.kernel)
        self.used = (problem.costs > 0.0).astype(np.float64)
        self.primal, self.dual, self.passes = math.inf, 0.0, 0
        self.stored = self.x = np.zeros(problem.b.shape)

    def run(self) -> L2Solution:
        """Let costs grow until the bounds are close, a limit is reached, or the outputs prove not to be separable."""
        squares = (self.problem.h**2).sum(axis=1) if self.kernel is None else self.kernel.diagonal()
        size = float((self.used @ squares) / self.used.sum()) or 1.0
        inner, start, status = INNER_SHARE * self.options.tol, None, Status.NOT_ATTAINED
        checked = self.kernel is not None
        for cost in SEPARATING_COSTS:
            inner_options = _left_of(self.options, self.passes, inner)
            result = solve_soft(self.problem, inner_options, cost / size * self.used, start)
            self.passes += int(result.n_iter[0])
            self._consider(result)
            if math.isfinite(self.primal) and self.primal - self.dual <= self.options.tol * self.primal:
                status = Status.CONVERGED
                break
            if result.status not in (Status.CONVERGED, Status.NOT_ATTAINED):
                status = result.status
                break
            if not checked and not math.isfinite(self.primal):
                self.problem.check_separable(self.problem.all_pairs())
                checked = True
            inner, start = max(TIGHTER * inner, LEAST_TOL), result.dual
        if not math.isfinite(self.primal):
            if not checked:
                self.problem.check_separable(self.problem.all_pairs())
            raise ValueError(
                f"C=inf asks for a code without any loss, and none was found (status: {status.value}): the outputs are "
                "not separable, or nearly so; use a finite C, or raise max_iter"
            )
        certificate = Certificate(self.primal, self.dual, math.inf, self.primal)
        if self.kernel is None:
            return L2Solution(self.stored, np.zeros(self.x.shape), self.x, certificate, status, self.passes)
        return L2Solution(None, self.stored, self.x, certificate, status, self.passes)

    def _consider(self, result: SolverResult) -> None:
        """Keep what is better than before. Sets: primal, stored, dual, x."""
        tau = signed_duals(result.dual.astype(np.longdouble), self.problem.y)
        asked = float(np.vdot(self.problem.b, result.dual))
        if self.kernel is None:
            matrix = tau.T @ self.problem.h.astype(np.longdouble)
            squares = float((matrix * matrix).sum())
        else:
            matrix, squares = tau, float((tau * kernel_scores(self.kernel, tau)).sum())
        if asked > 0.0 and squares > 0.0 and asked**2 / (2.0 * squares) > self.dual:
            self.dual, self.x = asked**2 / (2.0 * squares), result.dual * (asked / squares)
        candidate = matrix.astype(np.float64)
        factor, _ = self._measured(candidate)
        for _ in range(MOST_LENGTHS):  # entries are rounded, so that the first length may lack a digit
            if math.isinf(factor):
                return
            candidate = (factor * (1.0 + LONGER)) * candidate
            factor, value = self._measured(candidate)
            if factor <= 1.0:
                if value < self.primal:
                    self.primal, self.stored = value, candidate
                return

    def _measured(self, stored: Floats) -> tuple[float, float]:
        """The factor that gives a code all its margins, inf if there is none, and ½‖M‖²."""
        entries = stored.astype(np.longdouble)
        if self.kernel is None:
            scores, squares = self.problem.h.astype(np.longdouble) @ entries.T, float((entries * entries).sum())
        else:
            scores = kernel_scores(self.kernel, entries)
            squares = float((entries * scores).sum())
        b, rows = self.problem.b, np.arange(len(scores))
        wanted = self.problem.all_pairs()
        reached = scores[rows, self.problem.y][:, None] - scores
        positive = wanted & (b > 0.0)
        if not (reached[positive] > 0.0).all():
            return math.inf, 0.5 * squares
        factor = float((b[positive] / reached[positive]).max(initial=0.0))
        missed = (max(factor, 1.0) * reached < b) & wanted & ~positive
        return math.inf if missed.any() else factor, 0.5 * squares


class _Search:
    """The search for γ: the best code and dual variables so far, and norms on either side of the bound."""

    def __init__(self, problem: CodeProblem, options: L2Options) -> None:
        self.problem, self.options = problem, options
        self.matrix: KernelMatrix | None = None
        if options.kernel is not None:
            self.kernel = TrainingKernel(problem.h, options.kernel)
            self.matrix = KernelMatrix(self.kernel, 0.0, options.n_threads)
        self.at_zero = self._loss(np.zeros(problem.b.shape), 0.0)
        self.primal, self.dual, self.passes = math.inf, 0.0, 0
        self.x = np.zeros(problem.b.shape)  # feasible, and of value 0
        self.code: Floats | None = None
        self.sides: dict[bool, tuple[float, float]] = {}  # above or not: log γ and log(‖M‖/A)
        self.last: bool | None = None

    def run(self) -> L2Solution:
        """Search until the bounds are close or a limit is reached."""
        if self.problem.bound == 0.0:
            return self._zero()
        gamma, inner, start = 1.0, INNER_SHARE * self.options.tol, None
        status = Status.MAX_ITER
        for _ in range(MOST_SOLVES):
            inner_options = _left_of(self.options, self.passes, inner)
            result = solve_soft(self.problem, inner_options, gamma * self.problem.costs, start)
            self.passes += int(result.n_iter[0])
            before = self.primal - self.dual
            norm = self._consider(result, gamma)
            if self._is_reached():
                break
            if result.status not in (Status.CONVERGED, Status.NOT_ATTAINED):
                status = result.status
                break
            following = self._next(gamma, norm)
            if len(self.sides) == 2 and self.primal - self.dual > 0.5 * before:
                inner = max(TIGHTER * inner, LEAST_TOL)
            start, gamma = result.dual * min(following / gamma, max(1.0, self.longest)), following
        return self._best(status)

    def _consider(self, result: SolverResult, gamma: float) -> float:
        """Keep what is better than before; returns ‖M‖. Sets: primal, code, tau, dual, x, longest.

        `longest` is the factor of x that is best for the soft dual when costs allow it.
        """
        x, bound = result.dual, self.problem.bound
        tau = signed_duals(x, self.problem.y)
        if self.matrix is None:
            scores = self.problem.h @ result.coef.T
            norm = float(np.linalg.norm(result.coef))
            dual_norm = float(np.linalg.norm(tau.T @ self.problem.h))  # not that of a code that is an average
        else:
            scores = self.matrix.scores(sp.csr_array(tau))
            norm = dual_norm = math.sqrt(max(0.0, float(np.vdot(tau, scores))))
        value = (float(np.vdot(self.problem.b, x)) - bound * dual_norm) / gamma
        self.longest = float(np.vdot(self.problem.b, x)) / dual_norm**2 if dual_norm > 0.0 else 1.0
        if value > self.dual:
            self.dual, self.x = value, x / gamma
        for scale in self._scales(scores, norm):
            loss = self._loss(scores, scale)
            if loss < self.primal:
                self.primal, self.tau = loss, scale * tau
                self.code = None if result.coef is None else scale * result.coef
        return norm

    def _scales(self, scores: Floats, norm: float) -> list[float]:
        """Factors within the bound: the least without any loss if there is one, 1, and the largest."""
        largest = self.problem.bound / norm * (1.0 - 1e-15) if norm > 0.0 else 1.0
        own = scores[np.arange(len(scores)), self.problem.y][:, None]
        wanted = (self.problem.b > 0.0) & (self.problem.costs > 0.0)[:, None]
        reached = (own - scores)[wanted]
        scales = [min(1.0, largest), largest]
        if (reached > 0.0).all():
            scales.insert(0, min(largest, (1.0 + 1e-12) * float((self.problem.b[wanted] / reached).max(initial=0.0))))
        return scales

    def _loss(self, scores: npt.NDArray[Any], scale: float) -> float:
        """Σ c_i ξ_i of scores times a factor."""
        own = scores[np.arange(len(scores)), self.problem.y][:, None]
        return float(self.problem.costs @ (self.problem.b + scale * (scores - own)).max(axis=1))

    def _is_reached(self) -> bool:
        gap = self.primal - self.dual
        return gap <= max(self.options.tol * max(abs(self.primal), abs(self.dual)), ROUNDING * self.at_zero)

    def _next(self, gamma: float, norm: float) -> float:
        """The next γ. Sets: sides, last."""
        if norm == 0.0:
            return MOST_GROWTH * gamma
        above, place = norm > self.problem.bound, (math.log(gamma), math.log(norm / self.problem.bound))
        if above == self.last and (other := self.sides.get(not above)) is not None:
            self.sides[not above] = (other[0], 0.5 * other[1])  # Illinois: the other side must move, too
        self.sides[above], self.last = place, above
        if len(self.sides) < 2:
            factor = self.problem.bound / norm * (1.0 / GROWTH if above else GROWTH)
            return gamma * min(factor, MOST_GROWTH)
        (low, f_low), (high, f_high) = self.sides[False], self.sides[True]
        share = -f_low / (f_high - f_low) if f_high > f_low else 0.5
        return math.exp(low + share * (high - low))

    def _zero(self) -> L2Solution:
        """The code 0: the dual variables have all of c_i on the largest margin."""
        problem = self.problem
        rows, best = np.arange(len(problem.y)), problem.b.argmax(axis=1)
        self.x[rows, best] = np.where(problem.b[rows, best] > 0.0, problem.costs, 0.0)
        self.primal, self.dual, self.tau = self.at_zero, float(np.vdot(problem.b, self.x)), np.zeros(problem.b.shape)
        self.code = np.zeros((problem.b.shape[1], problem.h.shape[1])) if self.matrix is None else None
        return self._solution(Status.CONVERGED)

    def _best(self, status: Status) -> L2Solution:
        """The best code seen or 0: converged if its gap is small enough, not attained if only rounding is left."""
        if self.primal > self.at_zero:
            self.primal, self.tau = self.at_zero, np.zeros(self.tau.shape)
            self.code = None if self.code is None else np.zeros(self.code.shape)
        self._compute_again()
        gap, size = self.primal - self.dual, max(abs(self.primal), abs(self.dual))
        if gap <= self.options.tol * size:
            status = Status.CONVERGED
        elif gap <= ROUNDING * self.at_zero or status is Status.CONVERGED:
            status = Status.NOT_ATTAINED
        return self._solution(status)

    def _compute_again(self) -> None:
        """Bounds in extended precision where rounding of the scores could matter. Sets: primal, dual."""
        problem, size = self.problem, max(abs(self.primal), abs(self.dual))
        squares = (problem.h**2).sum(axis=1) if self.matrix is None else self.kernel.diagonal()
        noise = rounding_of_losses(squares, problem.costs, np.abs(self.tau).max(axis=1))
        if noise <= min(CAREFUL, 0.1 * self.options.tol) * size:
            return
        tau = signed_duals(self.x.astype(np.longdouble), problem.y)
        if self.matrix is None:
            assert self.code is not None
            outputs = problem.h.astype(np.longdouble)
            scores, norm = outputs @ self.code.T, float(np.sqrt(((tau.T @ outputs) ** 2).sum()))
        else:
            scores = kernel_scores(self.kernel, self.tau.astype(np.longdouble))
            norm = float(np.sqrt(max(0.0, (tau * kernel_scores(self.kernel, tau)).sum())))
        self.primal = self._loss(scores, 1.0)
        self.dual = float(np.vdot(problem.b, self.x)) - problem.bound * norm

    def _solution(self, status: Status) -> L2Solution:
        certificate = Certificate(self.primal, self.dual, self.at_zero, self.primal)
        return L2Solution(self.code, self.tau, self.x, certificate, status, self.passes)
