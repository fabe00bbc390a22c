"""Linear programs of continuous codes for l1 and l∞, as sparse matrices for HiGHS (scipy.optimize.linprog).

Pairs (i, r) with r ≠ y_i number the margins; D has a row for each, (D M)_ir = ⟨h_i, M_{y_i} − M_r⟩, and E adds pairs of
a row i. The primal, with M = M⁺ − M⁻ and a the norm:

    min ν a + Σ_i c_i ξ_i   s.t.  D M + Eᵀξ ≥ b,   l1: Σ (M⁺ + M⁻) ≤ a,   l∞: M⁺ + M⁻ ≤ a in every entry

soft with ν > 0; hard with ν = 0 and a ≤ A. The dual, reduced to the pairs and G = Dᵀη = g⁺ − g⁻ (the multipliers of
these rows are −M):

    max ⟨b, η⟩ − A t     s.t.  E η ≤ c,   l1: g⁺ + g⁻ ≤ t in every entry,   l∞: Σ (g⁺ + g⁻) ≤ t;   soft: t ≤ ν, A = 0

Memory: D and its transpose, 2 · n_columns numbers for each of the n (k − 1) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

__all__ = ["CodeProgram", "Norm"]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]
Norm: TypeAlias = Literal["l1", "linf"]

HIGHS_TOLERANCE = 1e-9
"""Feasibility tolerance given to HiGHS; its own default of 1e-7 would show in the seventh figure of the certificate."""

DUAL_ROWS_COUNT = {"l1": 4, "linf": 1}
"""Weight of a row of the dual against one of the primal. Seconds of primal and dual with 10 classes, C = 1: l1 0.34 and
0.55 (100 examples, 40 columns), 0.31 and 0.30 (300, 15), 1.4 and 1.2 (1,000, 15);
l∞ 0.54 and 0.37, 0.57 and 0.27, 1.4 and 1.1."""
TIE_TOLERANCE = 1e-10
"""Margins this close, relative to the largest, are equal: an optimal code leaves some that differ by rounding only."""


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
        c_i ≥ 0.
    norm : {"l1", "linf"}
        Norm of all entries of M.
    price : float
        ν, the cost of the norm; 0 in the hard version.
    bound : float
        A, the largest norm; inf in the soft version.
    """

    h: Floats
    y: Indices
    b: Floats
    costs: Floats
    norm: Norm
    price: float
    bound: float

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """Row and class of each pair with a wrong class."""
        wrong = np.ones(self.b.shape, dtype=bool)
        wrong[np.arange(len(self.y)), self.y] = False
        rows, classes = np.nonzero(wrong)
        return rows, classes

    @property
    def prefers_dual(self) -> bool:
        """Whether the dual has so few rows, one an example where the primal has one a pair, that HiGHS is faster."""
        entries = self.b.shape[1] * self.h.shape[1]
        n_primal = len(self.pairs[0]) + (1 if self.norm == "l1" else entries)
        n_dual = len(self.y) + entries + (entries if self.norm == "l1" else 1)
        return bool(DUAL_ROWS_COUNT[self.norm] * n_dual <= n_primal)

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
        split = sparse.hstack([-differences, differences])
        if self.norm == "l1":
            norm_rows, below = sparse.csr_array(np.ones((1, 2 * n_entries))), -np.ones((1, 1))
        else:
            norm_rows, below = sparse.hstack([sparse.eye_array(n_entries)] * 2), -np.ones((n_entries, 1))
        constraints = sparse.block_array([[split, -sums.T, None], [norm_rows, None, sparse.csr_array(below)]])
        objective = np.concatenate([np.zeros(2 * n_entries), self.costs, [self.price]])
        bounds = np.column_stack([np.zeros(len(objective)), np.full(len(objective), np.inf)])
        bounds[-1, 1] = self.bound
        limits = np.concatenate([-self.b[self.pairs], np.zeros(below.shape[0])])
        solution = _solve(objective, bounds, A_ub=constraints, b_ub=limits)
        matrix = solution.x[:n_entries] - solution.x[n_entries : 2 * n_entries]
        return matrix.reshape(self.b.shape[1], -1), -solution.ineqlin.marginals[:n_pairs]

    def solve_dual(self) -> tuple[Floats, Floats]:
        """The same from the dual program: η is the solution, and −M the multipliers of Dᵀη = g⁺ − g⁻."""
        differences, sums = self.differences(), self.row_sums()
        n_pairs, n_entries = differences.shape
        norm_rows, below = self._dual_norm_rows(n_entries)
        constraints = sparse.block_array([[sums, None, None], [None, norm_rows, below]])
        identity = sparse.eye_array(n_entries)
        equal = sparse.hstack([differences.T, -identity, identity, sparse.csr_array((n_entries, 1))])
        hard = np.isfinite(self.bound)
        objective = np.concatenate([-self.b[self.pairs], np.zeros(2 * n_entries), [self.bound if hard else 0.0]])
        bounds = np.column_stack([np.zeros(len(objective)), np.full(len(objective), np.inf)])
        bounds[-1, 1] = np.inf if hard else self.price
        limits = np.concatenate([self.costs, np.zeros(norm_rows.shape[0])])
        solution = _solve(objective, bounds, A_ub=constraints, b_ub=limits, A_eq=equal, b_eq=np.zeros(n_entries))
        return -solution.eqlin.marginals.reshape(self.b.shape[1], -1), solution.x[:n_pairs]

    def smallest_dual_norm(self) -> float:
        """min ‖Dᵀη‖ of the dual norm over the η that are optimal at M = 0: all of c_i on the largest b_ir."""
        rows, classes = self.pairs
        largest, tie = np.maximum(self.b.max(axis=1), 0.0), TIE_TOLERANCE * float(np.abs(self.b).max())
        used = (self.b[rows, classes] >= largest[rows] - tie) & (self.costs[rows] > 0.0)
        if not used.any():
            return 0.0
        differences, sums = self.differences()[used], self.row_sums()[:, used]
        n_pairs, n_entries = differences.shape
        norm_rows, below = self._dual_norm_rows(n_entries)
        whole = largest > tie  # where the largest b is 0 the true class may have any part of c_i
        constraints = sparse.block_array([[sums[~whole], None, None], [None, norm_rows, below]])
        identity = sparse.eye_array(n_entries)
        equal = sparse.block_array(
            [[differences.T, sparse.hstack([-identity, identity]), sparse.csr_array((n_entries, 1))],
             [sums[whole], None, None]]
        )  # fmt: skip
        objective = np.concatenate([np.zeros(n_pairs + 2 * n_entries), [1.0]])
        bounds = np.column_stack([np.zeros(len(objective)), np.full(len(objective), np.inf)])
        limits = np.concatenate([self.costs[~whole], np.zeros(norm_rows.shape[0])])
        values = np.concatenate([np.zeros(n_entries), self.costs[whole]])
        solution = _solve(objective, bounds, A_ub=constraints, b_ub=limits, A_eq=equal, b_eq=values)
        smallest = float(solution.x[-1])
        return smallest if smallest > HIGHS_TOLERANCE else 0.0

    def _dual_norm_rows(self, n_entries: int) -> tuple[Any, Any]:
        """Rows that make t at least the dual norm of g⁺ − g⁻: coefficients of (g⁺, g⁻), and of t."""
        if self.norm == "l1":
            identity = sparse.eye_array(n_entries)
            return sparse.hstack([identity, identity]), sparse.csr_array(-np.ones((n_entries, 1)))
        return sparse.csr_array(np.ones((1, 2 * n_entries))), sparse.csr_array(-np.ones((1, 1)))


def _solve(objective: Floats, bounds: Floats, **constraints: Any) -> Any:
    """The solution that HiGHS finds, or an error with its words: these programs always have one."""
    matrices = {name: sparse.csr_matrix(value) if name[0] == "A" else value for name, value in constraints.items()}
    options = {"primal_feasibility_tolerance": HIGHS_TOLERANCE, "dual_feasibility_tolerance": HIGHS_TOLERANCE}
    solution = optimize.linprog(objective, bounds=bounds, method="highs", options=options, **matrices)
    if solution.status != 0:
        raise RuntimeError(f"HiGHS did not solve the linear program of the code: {solution.message}")
    return solution
