"""Continuous codes for l1 and l∞: linear programs with the margins that matter, solved by HiGHS and certified here.

A pair (i, r) with r ≠ y_i stands for the margin of row i against class r; a program has some or all of them. D has a
row for each, (D M)_ir = ⟨h_i, M_{y_i} − M_r⟩, and E adds the pairs of a row. With a ≥ ‖M‖ and t ≥ ‖Dᵀη‖_q:

    primal   min ν a + Σ_i c_i ξ_i   s.t.  D M + Eᵀξ ≥ b       soft: ν > 0           hard: ν = 0, a = A
    dual     max ⟨b, η⟩ − A t        s.t.  E η ≤ c, η ≥ 0      soft: t = ν, no A     hard: t ≥ 0

The separable problem has c = ∞: its primal has no ξ, its dual no E η ≤ c.

The dual is solved, which has the code in its multipliers: HiGHS takes half the time of the primal for l1 and the same
time for l∞. Its balls have one variable per entry: x ≤ 2t for |x − t| ≤ t (l1), and u ≥ max(0, g), Σ (2u − g) ≤ t for
‖g‖₁ ≤ t (l∞). HiGHS solves it by its interior point method, and then goes to a vertex: with 520 letters, 26 classes,
39 columns and 3 pairs per row in 0.7 s where its simplex method takes 7 s, l1 and C = 1.

Of the n (k − 1) margins of a code, those against the few wrong classes with the highest scores decide the losses. So
the program starts with `PAIRS` wrong classes of each row, the worst for a rough code, and is solved again with margins
added as long as the code leaves some worse than those it was asked for:

    lower bound  the dual point of a program, 0 for absent pairs, is feasible for all pairs, and its value only rises
    upper bound  the objective of the best code so far, its losses over all classes

The rough code comes from l2 (SPOC): of the codes for a few costs, the one with the smallest objective here. Every round
adds a pair or is the last; small problems start with all pairs and need one round.

HiGHS works with absolute tolerances, so the program is solved for h / s and the objective times f, with s the largest
|h| and f such that the costs of the norm and of the losses lie on both sides of 1; M and η are scaled back. Whatever
HiGHS says, bounds come from M and η alone: η is cut to η ≥ 0, its rows to their costs and the whole to ‖G‖_q ≤ 1
(soft), M to ‖M‖_p ≤ A (hard), and then both objectives are computed, in extended precision where NumPy has one: with
outputs of very different sizes, sums in float64 are off in the sixth figure. The separable problem asks for all
margins: its codes are scaled until they have them, and others cost ∞.
Memory: a few arrays of shape (n_samples, n_classes), and the matrices of the pairs, 4 n_columns numbers for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from widemargin.problems.certificate import Certificate
from widemargin.solvers.codes.spoc import solve_spoc
from widemargin.solvers.result import Status

if TYPE_CHECKING:
    from widemargin.solvers.codes.continuous import CodeProblem, CodeSolution

__all__ = ["check_separable", "scaled_program", "solve_by_pairs"]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]

PAIRS = 6
"""Wrong classes of a row to start with, and the most to add in a round. Seconds with 4 and with 8: l1, 260 letters,
104 columns 2.7 and 2.6, l∞ 14 and 10; with 4 and with 6: 520 letters, 39 columns, four values of C 12 and 13."""
FEW_PAIRS = 2_000
"""The program has all pairs at once if there are no more than this. Seconds with some and with all of 2,000 pairs of 26
classes, 15 columns: l1 0.37 and 0.19, l∞ 0.55 and 0.25; 3,250 pairs, 104 columns: l1 2.0 and 4.6, l∞ 3.4 and 5.5."""
ROUGH_COSTS = (0.1, 1.0, 10.0, 100.0)
"""Costs of the rough codes, over the mean of ‖h‖²: from codes that hardly separate to codes that fit nearly all."""
ROUGH_SCALES = tuple(2.0**power for power in range(-6, 3))
"""Factors of a rough code that are tried, because another norm asks for another length."""
ROUGH_GAP, ROUGH_PASSES = 1e-2, 50
CAPS = (1e8, 1e6, 1e4, 1e2)
"""Costs over the largest output that are tried instead of larger ones, which HiGHS treats as infinite."""
CAPPED_ABOVE = 1e-6  # gap from which they are tried: below it HiGHS has solved its program
HIGHS_TOLERANCE = 1e-9
"""Feasibility tolerance given to HiGHS; its own default of 1e-7 would show in the seventh figure of the certificate."""
TIE_TOLERANCE = 1e-10
"""Margins this close, relative to the largest, are equal: an optimal code leaves some that differ by rounding only."""
OBJECTIVE_ROUNDING = 1e-10
"""Objectives closer than this, relatively, are equal: then M = 0 is preferred, and zero codes are exactly zero."""
ROOM = 1e-9
"""The hard and the separable program ask for margins larger by this share of the largest: HiGHS meets margins up to
rounding, and codes without any loss should have a loss of exactly 0."""
MOST_DIVISIONS = 5
"""Largest number of divisions of η by its dual norm until it is feasible in spite of rounding."""
LEAST_LACK = 1e-6
"""Share of the largest margin: outputs whose best code lacks more than that are not separable."""


def solve_by_pairs(problem: CodeProblem, tol: float) -> CodeSolution:
    """Solve programs with more and more pairs until the relative gap is at most `tol` or no pair is missing.

    Programs have no more digits than HiGHS gives them: a gap above `tol` is NOT_ATTAINED.
    """
    search = _Search(problem, tol)
    pairs = search.run(problem)
    if problem.separable and not np.isfinite(search.least):
        check_separable(problem, pairs)
        raise RuntimeError("no zero-loss code was found, although one may exist; use a finite C")
    code, dual, certificate = search.certified()
    if not certificate.relative_gap <= max(tol, CAPPED_ABOVE) and not problem.separable:
        size = float(np.abs(problem.h).max(initial=0.0))
        for cap in CAPS:
            if size > 0.0 and cap < size * problem.costs.max():
                search.run(replace(problem, costs=np.minimum(problem.costs, cap / size)))
        code, dual, certificate = search.certified()
    status = Status.CONVERGED if certificate.relative_gap <= tol else Status.NOT_ATTAINED
    return code, dual, certificate, status, search.n_programs


class _Search:
    """Programs of one problem: the best code and the best dual variables so far."""

    def __init__(self, problem: CodeProblem, tol: float) -> None:
        self.problem, self.tol = problem, tol
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
            program, size, factor = scaled_program(solved, used)
            try:
                matrix, of_pairs = program.solve()
            except ProgramFailed:
                return used
            matrix, eta = _within_bound(solved, matrix / size), np.zeros(used.shape)
            eta[program.pairs] = of_pairs / factor
            self._consider(matrix, eta)
            lacks = solved.lacks(matrix)  # pairs that lack more than all those that are used
            known = np.where(used, lacks, 0.0).max(axis=1, keepdims=True)
            rounding = HIGHS_TOLERANCE * max(1.0, float(np.abs(solved.b).max()))
            missing = _worst(lacks, (lacks > known + rounding) & solved.all_pairs())
            if not missing.any():
                return used
            if np.isfinite(self.least) and self.certified()[2].relative_gap <= self.tol:
                return used
            used |= missing

    def _consider(self, matrix: Floats, eta: Floats) -> None:
        """Keep what is better than before. Sets: best, least, eta, value."""
        problem, candidates = self.problem, [matrix]
        if problem.separable or (not problem.hard and _primal(problem, matrix) > self.least):
            longer = _without_loss(problem, matrix)
            candidates += [] if longer is None else [longer]
        for candidate in candidates:
            precision = np.longdouble if problem.separable else np.float64
            if (primal := _primal(problem, candidate, precision)) < self.least:
                self.best, self.least = candidate, primal
        _, value = _feasible_dual(problem, eta)
        if value > self.value:
            self.eta, self.value = eta, value

    def certified(self) -> tuple[Floats, Floats, Certificate]:
        """The best code and dual variables made feasible, and the bounds that they give; 0 if that is as good."""
        problem, code, zero = self.problem, _within_bound(self.problem, self.best), np.zeros(self.best.shape)
        primal, at_zero = _primal(problem, code, np.longdouble), _primal(problem, zero, np.longdouble)
        if at_zero < np.inf and at_zero <= primal + OBJECTIVE_ROUNDING * at_zero:
            code, primal = zero, at_zero
        dual, value = _feasible_dual(problem, self.eta)
        return code, dual, Certificate(primal, value, _primal(problem, zero), primal)


def _first_pairs(problem: CodeProblem) -> Mask:
    """All pairs if they are few; otherwise the worst of each row for a rough code."""
    pairs = problem.all_pairs()
    return pairs if pairs.sum() <= FEW_PAIRS else _worst(problem.lacks(_rough_code(problem)), pairs)


def _worst(lacks: Floats, allowed: Mask) -> Mask:
    """The `PAIRS` allowed pairs of each row with the largest lack of margin."""
    n_kept = min(PAIRS, lacks.shape[1])
    order = np.argpartition(-np.where(allowed, lacks, -np.inf), n_kept - 1, axis=1)[:, :n_kept]
    worst = np.zeros(lacks.shape, dtype=bool)
    np.put_along_axis(worst, order, True, axis=1)
    return worst & allowed


def _rough_code(problem: CodeProblem) -> Floats:
    """The l2 code, among a few costs and lengths, with the least objective; never 0 unless all are."""
    best, least = np.zeros((problem.b.shape[1], problem.h.shape[1])), np.inf
    square = float((problem.h**2).sum(axis=1).mean())
    if square == 0.0:
        return best
    shares = (problem.costs > 0.0).astype(np.float64) if problem.separable else problem.costs / problem.costs.mean()
    judge = replace(problem, costs=ROUGH_COSTS[-1] * shares) if problem.separable else problem
    for cost in ROUGH_COSTS:
        given: Any = (problem.h, problem.y, problem.b.shape[1], cost / square * shares)
        code = solve_spoc(*given, margins=problem.b, tol=ROUGH_GAP, max_iter=ROUGH_PASSES).coef
        for scale in ROUGH_SCALES:
            matrix = _within_bound(problem, scale * code)
            if (primal := _primal(judge, matrix)) < least:
                best, least = matrix, primal
    return best


def _primal(problem: CodeProblem, matrix: Floats, dtype: Any = np.float64) -> float:
    """Objective of a code, with losses over all classes; in the hard version its norm must be within the bound."""
    losses = np.maximum(problem.lacks(matrix, dtype).max(axis=1), 0.0)
    norm = 0.0 if problem.hard else _norm(matrix.astype(dtype, copy=False), problem.norm == "l1")
    if problem.separable:
        return np.inf if losses[problem.costs > 0.0].any() else norm
    return float(problem.costs @ losses) + norm


def _norm(matrix: npt.NDArray[Any], is_sum: bool) -> float:
    """The l1 norm of all entries, their absolute sum, or l∞."""
    return float(np.abs(matrix).sum() if is_sum else np.abs(matrix).max())


def _within_bound(problem: CodeProblem, matrix: Floats) -> Floats:
    """The code, made shorter where its norm is above the bound."""
    norm = _norm(matrix, problem.norm == "l1")
    return matrix * (problem.bound / norm) if norm > problem.bound else matrix


def _without_loss(problem: CodeProblem, matrix: Floats) -> Floats | None:
    """The code at the least length that has all margins, or None where no length has."""
    wanted = problem.all_pairs() & (problem.b > 0.0)
    reached = (problem.b - problem.lacks(matrix, np.longdouble))[wanted]
    if not (reached > 0.0).all():
        return None
    return matrix * (float((problem.b[wanted] / reached).max(initial=0.0)) * (1.0 + 4.0 * np.finfo(np.float64).eps))


def _feasible_dual(problem: CodeProblem, eta: Floats) -> tuple[Floats, float]:
    """η made feasible, shape (n_samples, n_classes), and its value; 0 is feasible, so the value is never below."""
    eta, rows = np.maximum(eta, 0.0), np.arange(len(problem.y))
    eta[rows, problem.y] = 0.0
    sums = eta.sum(axis=1)
    eta *= np.minimum(1.0, np.divide(problem.costs, sums, out=np.ones(len(sums)), where=sums > 0.0))[:, None]

    def dual_norm() -> float:  # of G(η), in extended precision
        tau = -eta.astype(np.longdouble)
        tau[rows, problem.y] = -tau.sum(axis=1)
        return _norm(tau.T @ problem.h, problem.norm != "l1")

    size, room = dual_norm(), 0.0
    for _ in range(0 if problem.hard else MOST_DIVISIONS):
        if size <= 1.0:
            break
        eta /= size + room  # rounds η, and with it G, which is a small difference of large sums at worst
        size = dual_norm()
        room = 2.0 * max(room, size - 1.0)
    value = float(np.vdot(problem.b, eta))
    value = value - problem.bound * size if problem.hard else value / max(1.0, size)
    return (eta, value) if value > 0.0 else (np.zeros(eta.shape), 0.0)


def check_separable(problem: CodeProblem, pairs: Mask) -> None:
    """Raise a ValueError if no code has the margins of these pairs."""
    s = float(np.abs(problem.h).max(initial=0.0)) or 1.0
    rows, classes = np.nonzero(pairs)
    program = CodeProgram(problem.h / s, problem.y, problem.b, problem.costs, "l1", 1.0, np.inf, (rows, classes))
    lack = program.least_lack()
    if lack > LEAST_LACK * float(np.abs(problem.b).max()):
        raise ValueError(
            "C=inf requires a zero-loss code, but no code separates these outputs: with every code, the margin of "
            f"some row is too small by at least {lack:.3g}; use a finite C"
        )


def scaled_program(problem: CodeProblem, pairs: Mask) -> tuple[CodeProgram, float, float]:
    """The programs with the margins of these pairs; what outputs are divided by, and the objective multiplied by."""
    s = float(np.abs(problem.h).max(initial=0.0)) or 1.0
    largest = float(problem.costs.max())
    f = s if problem.separable else 1.0 / largest if problem.hard else float(np.sqrt(s / largest))
    price = 0.0 if problem.hard else f / s
    b = problem.b + ROOM * np.abs(problem.b).max() if problem.hard or problem.separable else problem.b
    rows, classes = np.nonzero(pairs)
    costs, bound = f * problem.costs, problem.bound * s
    return CodeProgram(problem.h / s, problem.y, b, costs, problem.norm, price, bound, (rows, classes)), s, f


class ProgramFailed(RuntimeError):
    """HiGHS gave up on a program, or found that it has no solution."""


@dataclass(frozen=True)
class CodeProgram:
    """The two linear programs of one problem.

    Parameters
    ----------
    h : ndarray of shape (n_samples, n_columns)
        Outputs of the binary classifiers.
    y : ndarray of int of shape (n_samples,)
        Classes.
    b : ndarray of shape (n_samples, n_classes)
        Margins asked for, 0 for the true class.
    costs : ndarray of shape (n_samples,)
        c_i ≥ 0; all inf for the separable problem.
    norm : {"l1", "linf"}
        Norm of all entries of M.
    price : float
        ν, the cost of the norm; 0 in the hard version.
    bound : float
        A, the largest norm; inf in the soft version.
    pairs : tuple of two ndarrays of int of shape (n_pairs,)
        Row and wrong class of each margin that counts.
    """

    h: Floats
    y: Indices
    b: Floats
    costs: Floats
    norm: str
    price: float
    bound: float
    pairs: tuple[Indices, Indices]

    def least_lack(self) -> float:
        """min_M max_ir (b_ir − (D M)_ir)₊: 0 if some code has all margins. Its dual: max ⟨b, η⟩, Dᵀη = 0, Σ η ≤ 1."""
        differences = self.differences()
        ones = sparse.csr_array(np.ones((1, differences.shape[0])))
        equal = differences.T.tocsr()
        equal = equal[np.diff(equal.indptr) > 0]
        solution = _solve(
            np.append(-self.b[self.pairs], 0.0), (0.0, 0.0), A_ub=_padded(ones, 1), b_ub=np.ones(1),
            A_eq=_padded(equal, 1), b_eq=np.zeros(equal.shape[0]),
        )  # fmt: skip
        return float(-solution.fun)

    def differences(self) -> Any:
        """D, CSR of shape (n_pairs, n_classes * n_columns)."""
        rows, classes = self.pairs
        n_columns = self.h.shape[1]
        columns = np.arange(n_columns)
        data = np.hstack([self.h[rows], -self.h[rows]]).ravel()
        places = np.hstack([self.y[rows][:, None] * n_columns + columns, classes[:, None] * n_columns + columns])
        indptr = np.arange(0, len(data) + 1, 2 * n_columns)
        matrix = sparse.csr_array((data, places.ravel(), indptr), shape=(len(rows), self.b.shape[1] * n_columns))
        matrix.eliminate_zeros()
        return matrix

    def row_sums(self) -> Any:
        """E, CSR of shape (n_samples, n_pairs)."""
        rows, _ = self.pairs
        return sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(len(self.y), len(rows)))

    def solve(self) -> tuple[Floats, Floats]:
        """M of shape (n_classes, n_columns), the multipliers of the ball of Dᵀη, and η of shape (n_pairs,).

        Neither has been made feasible yet.
        """
        differences = self.differences()
        n_pairs, n_entries = differences.shape
        upper, equal = self._dual_ball(differences)
        n_ball = upper.shape[0]
        limits = np.zeros(n_ball)
        if not np.isinf(self.costs).any():
            upper = sparse.vstack([upper, _padded(self.row_sums(), n_entries + 1)])
            limits = np.concatenate([limits, self.costs])
        hard = np.isfinite(self.bound)
        objective = np.concatenate([-self.b[self.pairs], np.zeros(n_entries), [self.bound if hard else 0.0]])
        sizes = (0.0, np.inf) if hard else (self.price, self.price)
        solution = _solve(objective, sizes, A_ub=upper, b_ub=limits, A_eq=equal, b_eq=np.zeros(equal.shape[0]))
        if self.norm == "l1":
            matrix = -solution.eqlin.marginals
        else:
            multipliers = -solution.ineqlin.marginals[:n_ball]
            matrix = multipliers[:-1] - multipliers[-1]
        return matrix.reshape(self.b.shape[1], -1), solution.x[:n_pairs]

    def smallest_dual_norm(self) -> float:
        """min ‖Dᵀη‖ of the dual norm over the η that are optimal at M = 0: all of c_i on the largest b_ir."""
        rows, classes = self.pairs
        largest, tie = np.maximum(self.b.max(axis=1), 0.0), TIE_TOLERANCE * float(np.abs(self.b).max())
        used = (self.b[rows, classes] >= largest[rows] - tie) & (self.costs[rows] > 0.0)
        if not used.any():
            return 0.0
        differences, sums = self.differences()[used], self.row_sums()[:, used]
        n_pairs, n_entries = differences.shape
        whole = largest > tie  # where the largest b is 0 the true class may have any part of c_i
        upper, equal = self._dual_ball(differences)
        limits = np.concatenate([np.zeros(upper.shape[0]), self.costs[~whole]])
        values = np.concatenate([np.zeros(equal.shape[0]), self.costs[whole]])
        upper = sparse.vstack([upper, _padded(sums[~whole], n_entries + 1)])
        equal = sparse.vstack([equal, _padded(sums[whole], n_entries + 1)])
        objective = np.concatenate([np.zeros(n_pairs + n_entries), [1.0]])
        solution = _solve(objective, (0.0, np.inf), A_ub=upper, b_ub=limits, A_eq=equal, b_eq=values)
        smallest = float(solution.x[-1])
        return smallest if smallest > HIGHS_TOLERANCE else 0.0

    def _dual_ball(self, differences: Any) -> tuple[Any, Any]:
        """Rows over (η, u, t), at most 0 and equal to 0, that make t at least the dual norm of G = Dᵀη."""
        n_pairs, n_entries = differences.shape
        identity, ones = sparse.eye_array(n_entries), np.ones(n_entries)
        if self.norm == "l1":  # u = G + t, at most 2t
            upper = sparse.hstack([sparse.csr_array((n_entries, n_pairs)), identity, _column(-2.0 * ones)])
            return upper, sparse.hstack([differences.T, -identity, _column(ones)])
        total = np.concatenate([-differences.sum(axis=1), 2.0 * ones, [-1.0]])
        upper = sparse.hstack([differences.T, -identity, sparse.csr_array((n_entries, 1))])
        return sparse.vstack([upper, _column(total).T]), sparse.csr_array((0, len(total)))


def _column(values: Floats) -> Any:
    """The values as a sparse column."""
    return sparse.csr_array(values[:, None])


def _padded(matrix: Any, n_columns: int) -> Any:
    """The matrix with columns of zeros after its own."""
    return sparse.hstack([matrix, sparse.csr_array((matrix.shape[0], n_columns))])


def _solve(objective: Floats, last: tuple[float, float], **constraints: Any) -> Any:
    """The solution that HiGHS finds, or a ProgramFailed with its message: all but separable problems have a solution.

    Variables are at least 0; the last one lies between the two numbers of `last`.
    """
    bounds = np.column_stack([np.zeros(len(objective)), np.full(len(objective), np.inf)])
    bounds[-1] = last
    matrices = {name: sparse.csr_matrix(value) if name[0] == "A" else value for name, value in constraints.items()}
    options = {"primal_feasibility_tolerance": HIGHS_TOLERANCE, "dual_feasibility_tolerance": HIGHS_TOLERANCE}
    solution = optimize.linprog(objective, bounds=bounds, method="highs-ipm", options=options, **matrices)
    if solution.status != 0:
        raise ProgramFailed(f"HiGHS failed to solve the linear program for the code: {solution.message}")
    return solution
