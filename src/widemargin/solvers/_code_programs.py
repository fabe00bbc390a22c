"""Linear programs of continuous codes for l1 and l∞, as sparse matrices for HiGHS (scipy.optimize.linprog).

A pair (i, r) with r ≠ y_i stands for the margin of example i against class r; a program has some or all of them. D has
a row for each, (D M)_ir = ⟨h_i, M_{y_i} − M_r⟩, and E adds the pairs of an example. With a ≥ ‖M‖ and t ≥ ‖Dᵀη‖_q:

    primal   min ν a + Σ_i c_i ξ_i   s.t.  D M + Eᵀξ ≥ b       soft: ν > 0           hard: ν = 0, a = A
    dual     max ⟨b, η⟩ − A t        s.t.  E η ≤ c, η ≥ 0      soft: t = ν, no A     hard: t ≥ 0

The separable problem has c = ∞: its primal has no ξ, its dual no E η ≤ c.

Balls have one variable an entry where that is possible: x ≤ 2a for |x − a| ≤ a (primal of l∞, dual of l1), and
u ≥ max(0, g), Σ (2u − g) ≤ t for ‖g‖₁ ≤ t (dual of l∞); in the primal of l1, M = M⁺ − M⁻. The dual has the code in its
multipliers. HiGHS solves either by its interior point method, and then goes to a vertex: with 520 letters, 26 classes,
39 columns and 3 pairs an example in 0.7 s where its simplex method takes 1.9 s (primal) or 7 s (dual), l1 and C = 1.
Memory: D and its transpose, 2 · n_columns numbers for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

__all__ = ["HIGHS_TOLERANCE", "CodeProgram", "Norm", "ProgramFailed"]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]
Norm: TypeAlias = Literal["l1", "linf"]

HIGHS_TOLERANCE = 1e-9
"""Feasibility tolerance given to HiGHS; its own default of 1e-7 would show in the seventh figure of the certificate."""

TIE_TOLERANCE = 1e-10
"""Margins this close, relative to the largest, are equal: an optimal code leaves some that differ by rounding only."""


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
        Example and wrong class of each margin that counts.
    """

    h: Floats
    y: Indices
    b: Floats
    costs: Floats
    norm: Norm
    price: float
    bound: float
    pairs: tuple[Indices, Indices]

    @property
    def separable(self) -> bool:
        """Whether no margin may be missed."""
        return bool(np.isinf(self.costs).any())

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

    def solve_primal(self) -> tuple[Floats, Floats]:
        """M of shape (n_classes, n_columns) and η of shape (n_pairs,), not yet made feasible."""
        differences, sums = self.differences(), self.row_sums()
        n_pairs, n_entries = differences.shape
        if self.norm == "l1":
            margins, of_norm = sparse.hstack([-differences, differences]), np.zeros(n_pairs)
            ball, radius = _column(np.ones(2 * n_entries)).T, -np.ones(1)
        else:
            margins, of_norm = -differences, differences.sum(axis=1)
            ball, radius = sparse.eye_array(n_entries), np.full(n_entries, -2.0)
        blocks = [[margins, -sums.T, _column(of_norm)], [ball, None, _column(radius)]]
        slack = self.costs
        if self.separable:
            blocks, slack = [[margins, _column(of_norm)], [ball, _column(radius)]], np.empty(0)
        constraints = sparse.block_array(blocks)
        objective = np.concatenate([np.zeros(margins.shape[1]), slack, [self.price]])
        largest = (self.bound, self.bound) if np.isfinite(self.bound) else (0.0, np.inf)
        limits = np.concatenate([-self.b[self.pairs], np.zeros(len(radius))])
        solution = _solve(objective, largest, A_ub=constraints, b_ub=limits)
        parts = solution.x[: margins.shape[1]]
        matrix = parts[:n_entries] - parts[n_entries:] if self.norm == "l1" else parts - solution.x[-1]
        return matrix.reshape(self.b.shape[1], -1), -solution.ineqlin.marginals[:n_pairs]

    def solve_dual(self) -> tuple[Floats, Floats]:
        """The same from the dual program: η is the solution, and M is in the multipliers of the ball of Dᵀη."""
        differences = self.differences()
        n_pairs, n_entries = differences.shape
        upper, equal = self._dual_ball(differences)
        n_ball = upper.shape[0]
        limits = np.zeros(n_ball)
        if not self.separable:
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
    """The matrix with so many columns of zeros after its own."""
    return sparse.hstack([matrix, sparse.csr_array((matrix.shape[0], n_columns))])


def _solve(objective: Floats, last: tuple[float, float], **constraints: Any) -> Any:
    """The solution that HiGHS finds, or a ProgramFailed with its words: all but the separable ones have a solution.

    Variables are at least 0; the last one lies between the two numbers of `last`.
    """
    bounds = np.column_stack([np.zeros(len(objective)), np.full(len(objective), np.inf)])
    bounds[-1] = last
    matrices = {name: sparse.csr_matrix(value) if name[0] == "A" else value for name, value in constraints.items()}
    options = {"primal_feasibility_tolerance": HIGHS_TOLERANCE, "dual_feasibility_tolerance": HIGHS_TOLERANCE}
    solution = optimize.linprog(objective, bounds=bounds, method="highs-ipm", options=options, **matrices)
    if solution.status != 0:
        raise ProgramFailed(f"HiGHS did not solve the linear program of the code: {solution.message}")
    return solution
