"""The l2 code with a bound on its norm, or without any loss: by series of soft problems, which SPOC solves.

    soft        min ½‖M‖² + Σ_i c_i ξ_i             hard        min Σ_i c_i ξ_i   s.t. ‖M‖ ≤ A
    separable   min ½‖M‖²   s.t. ξ = 0  (eq. 13)

The hard problem has the dual  max ⟨b, η⟩ − A ‖G(η)‖,  η ≥ 0, Σ_{r ≠ y_i} η_ir ≤ c_i,  and its solution is the soft one
for costs γ c_i with some γ: then M = γ G(η/γ), ‖M‖ grows with γ, ‖M‖/γ falls. γ is searched on logarithmic scales by
regula falsi, each problem started from the dual variables of the one before. Every soft solution gives both bounds: an
upper one by M scaled into the bound, a lower one by η/γ; the search stops when the best two are close enough. Where the
bound is not active, γ only grows. With a kernel, scores and ‖M‖² = ⟨T, K T⟩ take the place of M.

The separable problem has the dual  max ⟨b, η⟩ − ½‖G(η)‖²,  η ≥ 0, and no bound on sums: it is the soft one from some
finite cost on. So soft problems with growing costs are solved, each from the one before. Their η, at the best length
⟨b, η⟩ / ‖G‖², bounds the optimum from below, their M, at the least length without any loss, from above.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import TrainingKernel
from widemargin.solvers.codes.linear_programs import check_separable
from widemargin.solvers.codes.spoc import CAREFUL, SoftProblem, signed_duals, solve_spoc
from widemargin.solvers.kernel_matrix import KernelMatrix
from widemargin.solvers.result import SolverResult, Status

if TYPE_CHECKING:
    from widemargin.solvers.codes.continuous import CodeProblem, CodeSolution

__all__ = ["NormSearch", "Separation"]

Floats = npt.NDArray[np.float64]

INNER_SHARE = 0.1  # of the tolerance, for the soft problems of a search
TIGHTER = 0.1  # their tolerance when the search does not halve the gap
LEAST_TOL = 1e-12  # their smallest tolerance
MOST_SOLVES = 100
SEPARATING_COSTS = tuple(10.0**power for power in range(1, 15))  # over the mean of ‖h‖²
MOST_LENGTHS = 6  # tried for a code without any loss
LONGER = 1e-14  # added to the length of a code without any loss: rounding its entries then causes none
GROWTH = 4.0  # factor of γ beyond the one for the norm, until the bound lies between two norms
MOST_GROWTH = 16.0  # largest factor of one step: SPOC is slow from a start that is far away
ROUNDING = 1e-14  # of the objective at zero: a smaller gap is rounding


class _Series:
    """Soft problems of one problem: what they cost so far, and the best bounds and dual variables seen."""

    def __init__(self, problem: CodeProblem, options: dict[str, Any]) -> None:
        self.problem, self.options, self.tol = problem, options, float(options["tol"])
        kernel = None if options["kernel"] is None else TrainingKernel(problem.h, options["kernel"])
        self.soft = SoftProblem(problem.h, problem.y, problem.b, problem.costs, kernel)
        self.primal, self.dual, self.passes = math.inf, 0.0, 0
        self.x = np.zeros(problem.b.shape)  # feasible, and of value 0

    def solve(self, costs: Floats, tol: float, start: Any) -> SolverResult:
        """The soft problem with these costs, within the passes that are left. Sets: passes."""
        left = {"tol": tol, "max_iter": max(1, self.options["max_iter"] - self.passes), "start": start}
        given: Any = (self.problem.h, self.problem.y, self.problem.b.shape[1], costs)
        result = solve_spoc(*given, margins=self.problem.b, **(self.options | left))
        self.passes += int(result.n_iter[0])
        return result


class Separation(_Series):
    """The shortest code without any loss, by soft problems with growing costs; `stored` is the best so far."""

    def run(self) -> CodeSolution:
        """Let costs grow until the bounds are close, a limit is reached, or the outputs prove not to be separable."""
        used = (self.problem.costs > 0.0).astype(np.float64)
        kernel = self.soft.kernel
        squares = (self.problem.h**2).sum(axis=1) if kernel is None else kernel.diagonal()
        size = float((used @ squares) / used.sum()) or 1.0
        inner, start, status = INNER_SHARE * self.tol, None, Status.NOT_ATTAINED
        self.stored = np.zeros(self.x.shape)
        checked = kernel is not None
        for cost in SEPARATING_COSTS:
            result = self.solve(cost / size * used, inner, start)
            self._consider(result)
            if math.isfinite(self.primal) and self.primal - self.dual <= self.tol * self.primal:
                status = Status.CONVERGED
                break
            if result.status not in (Status.CONVERGED, Status.NOT_ATTAINED):
                status = result.status
                break
            if not checked and not math.isfinite(self.primal):
                check_separable(self.problem, self.problem.all_pairs())
                checked = True
            inner, start = max(TIGHTER * inner, LEAST_TOL), result.dual
        if not math.isfinite(self.primal):
            if not checked:
                check_separable(self.problem, self.problem.all_pairs())
            raise ValueError(
                f"C=inf requires a zero-loss code, but none was found (status: {status.value}), because the outputs "
                "are not separable, or only barely; use a finite C, or raise max_iter"
            )
        return self.stored, self.x, Certificate(self.primal, self.dual, math.inf, self.primal), status, self.passes

    def _consider(self, result: SolverResult) -> None:
        """Keep what is better than before. Sets: primal, stored, dual, x."""
        code = self.soft.code_of(result.dual.astype(np.longdouble))
        asked, squares = float(np.vdot(self.problem.b, result.dual)), float(self.soft.squared_norm(code))
        if asked > 0.0 and squares > 0.0 and asked**2 / (2.0 * squares) > self.dual:
            self.dual, self.x = asked**2 / (2.0 * squares), result.dual * (asked / squares)
        candidate = code.astype(np.float64)
        factor, _ = self._measured(candidate)
        for _ in range(MOST_LENGTHS):  # entries are rounded: the first length may be too short by a digit
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
        scores = self.soft.scores(entries)
        half = 0.5 * float(self.soft.squared_norm(entries, scores))
        b, wanted = self.problem.b, self.problem.all_pairs()
        reached = scores[np.arange(len(scores)), self.problem.y][:, None] - scores
        positive = wanted & (b > 0.0)
        if not (reached[positive] > 0.0).all():
            return math.inf, half
        factor = float((b[positive] / reached[positive]).max(initial=0.0))
        missed = (max(factor, 1.0) * reached < b) & wanted & ~positive
        return math.inf if missed.any() else factor, half


class NormSearch(_Series):
    """The code of bounded norm with the least loss, by a search for γ: M and τ so far, and norms on either side."""

    def run(self) -> CodeSolution:
        """Search until the bounds are close or a limit is reached."""
        problem, soft = self.problem, self.soft
        self.matrix = None if soft.kernel is None else KernelMatrix(soft.kernel, 0.0, self.options["n_threads"])
        self.code, self.tau = np.zeros((problem.b.shape[1], problem.h.shape[1])), np.zeros(self.x.shape)
        self.at_zero = soft.loss(self.tau)
        if problem.bound == 0.0:  # the code 0: the dual variables have all of c_i on the largest margin
            rows, best = np.arange(len(problem.y)), problem.b.argmax(axis=1)
            self.x[rows, best] = np.where(problem.b[rows, best] > 0.0, problem.costs, 0.0)
            self.primal, self.dual = self.at_zero, float(np.vdot(problem.b, self.x))
            return self._solution(Status.CONVERGED)
        self.sides: dict[bool, tuple[float, float]] = {}  # above or not: log γ and log(‖M‖/A)
        self.last: bool | None = None
        gamma, inner, start, status = 1.0, INNER_SHARE * self.tol, None, Status.MAX_ITER
        for _ in range(MOST_SOLVES):
            result, before = self.solve(gamma * problem.costs, inner, start), self.primal - self.dual
            norm, longest = self._consider(result, gamma)
            gap, size = self.primal - self.dual, max(abs(self.primal), abs(self.dual))
            if gap <= max(self.tol * size, ROUNDING * self.at_zero):
                break
            if result.status not in (Status.CONVERGED, Status.NOT_ATTAINED):
                status = result.status
                break
            following = self._next(gamma, norm)
            if len(self.sides) == 2 and gap > 0.5 * before:
                inner = max(TIGHTER * inner, LEAST_TOL)
            start, gamma = result.dual * min(following / gamma, max(1.0, longest)), following
        return self._best(status)

    def _consider(self, result: SolverResult, gamma: float) -> tuple[float, float]:
        """Keep what is better than before. Sets: primal, code, tau, dual, x.

        Returns ‖M‖, and the factor of x that is best for the soft dual when costs allow it.
        """
        x, soft = result.dual, self.soft
        tau = signed_duals(x, self.problem.y)
        if self.matrix is None:
            scores, norm = self.problem.h @ result.coef.T, float(np.linalg.norm(result.coef))
            dual_norm = float(np.linalg.norm(tau.T @ self.problem.h))  # not that of a code that is an average
        else:
            scores = self.matrix.scores(sp.csr_array(tau))
            norm = dual_norm = math.sqrt(max(0.0, float(np.vdot(tau, scores))))
        asked = float(np.vdot(self.problem.b, x))
        value = (asked - self.problem.bound * dual_norm) / gamma
        if value > self.dual:
            self.dual, self.x = value, x / gamma
        for scale in self._scales(scores, norm):
            loss = soft.loss(scores, scale)
            if loss < self.primal:
                self.primal, self.tau = loss, scale * tau
                self.code = self.code if result.coef is None else scale * result.coef
        return norm, asked / dual_norm**2 if dual_norm > 0.0 else 1.0

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

    def _best(self, status: Status) -> CodeSolution:
        """The best code seen or 0: converged if its gap is small enough, not attained if only rounding is left."""
        soft, bound = self.soft, self.problem.bound
        if self.primal > self.at_zero:
            self.primal, self.tau, self.code = self.at_zero, np.zeros(self.tau.shape), np.zeros(self.code.shape)
        size = max(abs(self.primal), abs(self.dual))
        noise = soft.rounding_of_losses(np.abs(self.tau).max(axis=1))
        if noise > min(CAREFUL, 0.1 * self.tol) * size:  # rounding of the scores could matter
            stored = self.code if self.matrix is None else self.tau
            self.primal = soft.loss(soft.scores(stored.astype(np.longdouble)))
            norm = float(np.sqrt(soft.squared_norm(soft.code_of(self.x.astype(np.longdouble)))))
            self.dual = float(np.vdot(self.problem.b, self.x)) - bound * norm
        gap, size = self.primal - self.dual, max(abs(self.primal), abs(self.dual))
        if gap <= self.tol * size:
            status = Status.CONVERGED
        elif gap <= ROUNDING * self.at_zero or status is Status.CONVERGED:
            status = Status.NOT_ATTAINED
        return self._solution(status)

    def _solution(self, status: Status) -> CodeSolution:
        stored = self.code if self.matrix is None else self.tau
        return stored, self.x, Certificate(self.primal, self.dual, self.at_zero, self.primal), status, self.passes
