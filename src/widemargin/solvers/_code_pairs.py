"""Continuous codes for l1 and l∞ with many classes: linear programs that have only the margins that matter.

Of the n (k − 1) margins of a code, those with the few wrong classes whose scores are highest decide the losses. So the
program starts with `PAIRS` wrong classes of each example, the worst for a rough code, and is solved again with margins
added as long as the code leaves some worse than those it was asked for:

    lower bound  the dual point of a program, 0 for absent pairs, is feasible for all pairs, and its value only rises
    upper bound  the objective of the best code so far, its losses over all classes

The rough code is that of l2 (SPOC), for the one of a few costs whose code has the least objective here. Every round
adds a pair or is the last; small problems start with all pairs and need one round.
Memory: a few arrays of shape (n_samples, n_classes), and the matrices of the pairs, 4 n_columns numbers for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin.problems.certificate import Certificate
from widemargin.solvers._code_problem import CodeProblem, Mask
from widemargin.solvers._code_programs import HIGHS_TOLERANCE, ProgramFailed
from widemargin.solvers._l2_codes import L2Options, solve_soft
from widemargin.solvers.result import Status

__all__ = ["ProgramSolution", "solve_by_pairs"]

Floats: TypeAlias = npt.NDArray[np.float64]
Form: TypeAlias = Literal["primal", "dual"]

PAIRS = 6
"""Wrong classes of an example to start with, and at most to add in a round. Seconds with 4 and with 8: l1, 260 letters,
104 columns 2.7 and 2.6, l∞ 14 and 10; with 4 and with 6: 520 letters, 39 columns, four values of C 12 and 13."""
FEW_PAIRS = 2_000
"""With no more pairs than these the program has all at once. Seconds with some and with all of 2,000 pairs of 26
classes, 15 columns: l1 0.37 and 0.19, l∞ 0.55 and 0.25; of 3,250 pairs, 104 columns: l1 2.0 and 4.6, l∞ 3.4 and 5.5."""
ROUGH_COSTS = (0.1, 1.0, 10.0, 100.0)
"""Costs of the rough codes, over the mean of ‖h‖²: from codes that hardly separate to codes that fit nearly all."""
ROUGH_SCALES = tuple(2.0**power for power in range(-6, 3))
"""Factors of a rough code that are tried, because another norm asks for another length."""
ROUGH = L2Options(tol=1e-2, max_iter=50)


CAPS = (1e8, 1e6, 1e4, 1e2)
"""Costs over the largest output that are tried instead of larger ones, which HiGHS cannot tell from infinity."""
CAPPED_ABOVE = 1e-6  # gap from which they are tried: below it HiGHS has solved its program


class ProgramSolution(NamedTuple):
    """A code (n_classes, n_columns), η (n_samples, n_classes), their bounds, how many programs were solved, and why it
    ended: programs have no more digits than HiGHS gives them."""

    code: Floats
    dual: Floats
    certificate: Certificate
    n_programs: int
    status: Status


def solve_by_pairs(problem: CodeProblem, form: Form, tol: float) -> ProgramSolution:
    """Solve programs with more and more pairs until the relative gap is at most `tol` or no pair is missing."""
    search = _Search(problem, form, tol)
    pairs = search.run(problem)
    if problem.separable and not np.isfinite(search.least):
        problem.check_separable(pairs)
        raise RuntimeError("no code without any loss was found, though there may be one; use a finite C")
    code, dual, certificate = search.certified()
    if not certificate.relative_gap <= max(tol, CAPPED_ABOVE) and not problem.separable:
        size = float(np.abs(problem.h).max(initial=0.0))
        for cap in CAPS:
            if size > 0.0 and cap < size * problem.costs.max():
                search.run(replace(problem, costs=np.minimum(problem.costs, cap / size)))
        code, dual, certificate = search.certified()
    status = Status.CONVERGED if certificate.relative_gap <= tol else Status.NOT_ATTAINED
    return ProgramSolution(code, dual, certificate, search.n_programs, status)


class _Search:
    """Programs of one problem: the best code and the best dual variables so far."""

    def __init__(self, problem: CodeProblem, form: Form, tol: float) -> None:
        self.problem, self.form, self.tol = problem, form, tol
        self.best = np.zeros((problem.b.shape[1], problem.h.shape[1]))
        self.least, self.n_programs = np.inf, 0
        self.eta, self.value = np.zeros(problem.b.shape), 0.0

    def run(self, solved: CodeProblem) -> Mask:
        """Solve programs of this problem, which has the costs of the one searched for or less; returns their pairs.

        One that HiGHS cannot solve is the last.
        """
        used = _first_pairs(solved)
        while True:
            self.n_programs += 1
            try:
                matrix, eta = _solve_program(solved, self.form, used)
            except ProgramFailed:
                return used
            self._consider(matrix, eta)
            missing = _missing_pairs(solved, matrix, used)
            if not missing.any():
                return used
            if np.isfinite(self.least) and self.certified()[2].relative_gap <= self.tol:
                return used
            used |= missing

    def _consider(self, matrix: Floats, eta: Floats) -> None:
        """Keep what is better than before. Sets: best, least, eta, value."""
        candidates = [matrix]
        if self.problem.separable or (not self.problem.hard and self.problem.primal(matrix) > self.least):
            candidates = [found for found in (matrix, self.problem.without_loss(matrix)) if found is not None]
        for candidate in candidates:
            if (primal := self.problem.primal(candidate, self._precision())) < self.least:
                self.best, self.least = candidate, primal
        _, value = self.problem.feasible_dual(eta)
        if value > self.value:
            self.eta, self.value = eta, value

    def _precision(self) -> Any:
        return np.longdouble if self.problem.separable else np.float64

    def certified(self) -> tuple[Floats, Floats, Certificate]:
        """The best code and dual variables with their bounds."""
        return self.problem.certified(self.best, self.eta)


def _solve_program(problem: CodeProblem, form: Form, used: Mask) -> tuple[Floats, Floats]:
    """M within its bound, and η of shape (n_samples, n_classes)."""
    program, scale = problem.program(used)
    matrix, of_pairs = program.solve_dual() if form == "dual" else program.solve_primal()
    eta = np.zeros(problem.b.shape)
    eta[program.pairs] = of_pairs / scale.objective
    return problem.within_bound(matrix / scale.h), eta


def _first_pairs(problem: CodeProblem) -> Mask:
    """All pairs if they are few; otherwise the worst of each example for a rough code."""
    pairs = problem.all_pairs()
    if pairs.sum() <= FEW_PAIRS:
        return pairs
    return _worst(problem.lacks(_rough_code(problem)), pairs)


def _missing_pairs(problem: CodeProblem, matrix: Floats, used: Mask) -> Mask:
    """The worst pairs of each example whose lack of margin is larger than those of all pairs that are used."""
    lacks = problem.lacks(matrix)
    known = np.where(used, lacks, 0.0).max(axis=1, keepdims=True)
    rounding = HIGHS_TOLERANCE * max(1.0, float(np.abs(problem.b).max()))
    return _worst(lacks, (lacks > known + rounding) & problem.all_pairs())


def _worst(lacks: Floats, allowed: Mask) -> Mask:
    """Of the pairs that are allowed, the `PAIRS` of each example with the largest lack of margin."""
    n_kept = min(PAIRS, lacks.shape[1])
    order = np.argpartition(-np.where(allowed, lacks, -np.inf), n_kept - 1, axis=1)[:, :n_kept]
    worst = np.zeros(lacks.shape, dtype=bool)
    np.put_along_axis(worst, order, True, axis=1)
    return worst & allowed


def _rough_code(problem: CodeProblem) -> Floats:
    """Of l2 codes for a few costs, each at a few lengths, the one with the least objective; never 0 unless all are."""
    best, least = np.zeros((problem.b.shape[1], problem.h.shape[1])), np.inf
    square = float((problem.h**2).sum(axis=1).mean())
    if square == 0.0:
        return best
    shares = (problem.costs > 0.0).astype(np.float64) if problem.separable else problem.costs / problem.costs.mean()
    judge = replace(problem, costs=ROUGH_COSTS[-1] * shares) if problem.separable else problem
    for cost in ROUGH_COSTS:
        code = solve_soft(problem, ROUGH, cost / square * shares, None).coef
        for scale in ROUGH_SCALES:
            matrix = problem.within_bound(scale * code)
            if judge.primal(matrix) < least:
                best, least = matrix, judge.primal(matrix)
    return best
