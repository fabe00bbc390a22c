"""A problem of continuous codes after its checks: its objectives, its scaling for HiGHS, and its certificate.

HiGHS works with absolute tolerances, so the program is solved for h / s and the objective times f, with s the largest
|h| and f such that the costs of the norm and of the losses lie on both sides of 1; M and η are scaled back.
Whatever HiGHS says, bounds come from M and η alone: η is cut to η ≥ 0, its rows to their costs and the whole to
‖G‖_q ≤ 1 (soft), M to ‖M‖_p ≤ A (hard), and then both objectives are computed, in extended precision where NumPy has
one: with outputs of very different sizes, sums in float64 are off in the sixth figure.
The separable problem (C = ∞) asks for all margins: its codes are scaled until they have them, and others cost ∞.
Memory: a few arrays of shape (n_samples, n_classes).

Linear programs of continuous codes for l1 and l∞, as sparse matrices for HiGHS (scipy.optimize.linprog).

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
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from widemargin.labels.codes import check_count
from widemargin.labels.decoding import check_class_indices, check_weights
from widemargin.problems.certificate import Certificate

__all__ = [
    "HIGHS_TOLERANCE",
    "CodeNorm",
    "CodeProblem",
    "CodeProgram",
    "Mask",
    "Norm",
    "ProgramFailed",
    "Scale",
    "finite_matrix",
]

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


Mask: TypeAlias = npt.NDArray[np.bool_]
CodeNorm: TypeAlias = Literal["l1", "l2", "linf"]

OBJECTIVE_ROUNDING = 1e-10
"""Objectives closer than this, relatively, are equal: then M = 0 is preferred, so that zero codes are exactly zero."""
ROOM = 1e-9
"""The hard and the separable program ask for margins larger by this share of the largest, so that codes without any
loss, whose margins HiGHS meets but for rounding, have a loss of exactly 0."""
MOST_DIVISIONS = 5
"""Times that η is divided by its dual norm until rounding leaves it feasible."""
LEAST_LACK = 1e-6
"""Of the largest margin asked for: outputs whose best code has a margin that lacks more are not separable."""


class Scale(NamedTuple):
    """What the program's outputs were divided by, and what its objective was multiplied by."""

    h: float
    objective: float


@dataclass(frozen=True)
class CodeProblem:
    """min (soft) ‖M‖ + Σ c_i ξ_i, or (hard, `bound` finite) Σ c_i ξ_i s.t. ‖M‖ ≤ bound; fields as in `CodeProgram`.

    Objectives and certificates here are those of l1 and linf; `widemargin.solvers.codes.l2` has those of l2.
    """

    h: Floats
    y: Indices
    b: Floats
    costs: Floats
    norm: CodeNorm
    bound: float

    @classmethod
    def checked(
        cls,
        h: npt.ArrayLike,
        y: npt.ArrayLike,
        norm: CodeNorm,
        C: float,
        norm_bound: float | None,
        sample_weight: npt.ArrayLike | None,
        b: npt.ArrayLike | None,
        n_classes: int | None,
    ) -> CodeProblem:
        """The problem of what a user gave, or an error that names what is wrong."""
        outputs = finite_matrix(h, "h")
        weights = check_weights(sample_weight, len(outputs))
        if norm not in get_args(CodeNorm):
            raise ValueError(f"norm must be 'l1', 'l2' or 'linf'; got {norm!r}")
        if not C > 0.0:
            raise ValueError(f"C must be a number above 0, inf for a code without any loss; got {C}")
        if np.isinf(C) and norm_bound is not None:
            raise ValueError("C=inf asks for a code without any loss, which a norm_bound may exclude; leave one out")
        if norm_bound is not None and not 0.0 <= norm_bound < np.inf:
            raise ValueError(f"norm_bound must be a finite number of at least 0, or None; got {norm_bound}")
        true, margins = _check_margins(y, b, len(outputs), n_classes)
        costs = np.where(weights > 0.0, np.inf, 0.0) if np.isinf(C) else C * weights
        return cls(outputs, true, margins, costs, norm, np.inf if norm_bound is None else float(norm_bound))

    @property
    def hard(self) -> bool:
        """Whether the norm is bounded, and no part of the objective."""
        return bool(np.isfinite(self.bound))

    @property
    def separable(self) -> bool:
        """Whether all margins must be reached: C = ∞."""
        return bool(np.isinf(self.costs).any())

    def all_pairs(self) -> Mask:
        """Which margins count, (n_samples, n_classes): those of wrong classes of the examples that cost something."""
        pairs = np.repeat(self.costs[:, None] > 0.0, self.b.shape[1], axis=1)
        pairs[np.arange(len(self.y)), self.y] = False
        return pairs

    def program(self, pairs: Mask) -> tuple[CodeProgram, Scale]:
        """The scaled linear programs of l1 and linf with the margins of these pairs."""
        if self.norm == "l2":
            raise ValueError("the code for l2 is no linear program; it is 0 for no C, and solved by solve_spoc")
        s = float(np.abs(self.h).max(initial=0.0)) or 1.0
        largest = float(self.costs.max())
        f = s if self.separable else 1.0 / largest if self.hard else float(np.sqrt(s / largest))
        price = 0.0 if self.hard else f / s
        margins = self.b + ROOM * np.abs(self.b).max() if self.hard or self.separable else self.b
        rows, classes = np.nonzero(pairs)
        program = CodeProgram(
            self.h / s, self.y, margins, f * self.costs, self.norm, price, self.bound * s, (rows, classes)
        )
        return program, Scale(s, f)

    def check_separable(self, pairs: Mask) -> None:
        """An error if no code has the margins of these pairs."""
        s = float(np.abs(self.h).max(initial=0.0)) or 1.0
        rows, classes = np.nonzero(pairs)
        program = CodeProgram(self.h / s, self.y, self.b, self.costs, "l1", 1.0, np.inf, (rows, classes))
        lack = program.least_lack()
        if lack > LEAST_LACK * float(np.abs(self.b).max()):
            raise ValueError(
                "C=inf asks for a code without any loss, and no code separates these outputs: the margin of some row "
                f"lacks at least {lack:.3g} with every code; use a finite C"
            )

    def norm_of(self, matrix: npt.NDArray[Any]) -> float:
        """‖M‖ of all entries."""
        return float(np.abs(matrix).sum() if self.norm == "l1" else np.abs(matrix).max())

    def dual_norm_of(self, matrix: npt.NDArray[Any]) -> float:
        """The dual norm of all entries."""
        return float(np.abs(matrix).max() if self.norm == "l1" else np.abs(matrix).sum())

    def lacks(self, matrix: Floats, dtype: Any = np.float64) -> npt.NDArray[Any]:
        """b_ir − ⟨h_i, M_{y_i} − M_r⟩, shape (n_samples, n_classes): what each margin lacks; 0 for the true class."""
        scores = self.h.astype(dtype, copy=False) @ matrix.astype(dtype, copy=False).T
        lacks: npt.NDArray[Any] = self.b + (scores - scores[np.arange(len(self.y)), self.y][:, None])
        return lacks

    def primal(self, matrix: Floats, dtype: Any = np.float64) -> float:
        """Objective of a code, its losses over all classes; in the hard version its norm must be within the bound."""
        losses = np.maximum(self.lacks(matrix, dtype).max(axis=1), 0.0)
        norm = 0.0 if self.hard else self.norm_of(matrix.astype(dtype, copy=False))
        if self.separable:
            return np.inf if losses[self.costs > 0.0].any() else norm
        return float(self.costs @ losses) + norm

    def within_bound(self, matrix: Floats) -> Floats:
        """The code, made shorter where its norm is above the bound."""
        norm = self.norm_of(matrix)
        return matrix * (self.bound / norm) if norm > self.bound else matrix

    def without_loss(self, matrix: Floats) -> Floats | None:
        """The code at the least length that has all margins, or None where no length has."""
        wanted = self.all_pairs() & (self.b > 0.0)
        reached = (self.b - self.lacks(matrix, np.longdouble))[wanted]
        if not (reached > 0.0).all():
            return None
        return matrix * (float((self.b[wanted] / reached).max(initial=0.0)) * (1.0 + 4.0 * np.finfo(np.float64).eps))

    def feasible_code(self, matrix: Floats) -> Floats:
        """The code within its bound, and 0 if that is as good."""
        matrix = self.within_bound(matrix)
        zero = np.zeros(matrix.shape)
        at_zero = self.primal(zero, np.longdouble)
        good = at_zero <= self.primal(matrix, np.longdouble) + (OBJECTIVE_ROUNDING * at_zero if at_zero < np.inf else 0)
        return zero if good and at_zero < np.inf else matrix

    def feasible_dual(self, eta: Floats) -> tuple[Floats, float]:
        """η made feasible, shape (n_samples, n_classes), and its value; 0 is feasible, so the value is never below."""
        eta = np.maximum(eta, 0.0)
        eta[np.arange(len(self.y)), self.y] = 0.0
        sums = eta.sum(axis=1)
        eta *= np.minimum(1.0, np.divide(self.costs, sums, out=np.ones(len(sums)), where=sums > 0.0))[:, None]
        size, room = self._size_of(eta), 0.0
        for _ in range(0 if self.hard else MOST_DIVISIONS):
            if size <= 1.0:
                break
            eta /= size + room  # rounds η, and with it G, which is a small difference of large sums at worst
            size = self._size_of(eta)
            room = 2.0 * max(room, size - 1.0)
        value = float(np.vdot(self.b, eta))
        value = value - self.bound * size if self.hard else value / max(1.0, size)
        return (eta, value) if value > 0.0 else (np.zeros(eta.shape), 0.0)

    def _size_of(self, eta: Floats) -> float:
        """‖G(η)‖ of the dual norm, in extended precision."""
        tau = -eta.astype(np.longdouble)
        tau[np.arange(len(self.y)), self.y] = -tau.sum(axis=1)
        return self.dual_norm_of(tau.T @ self.h)

    def certified(self, matrix: Floats, eta: Floats) -> tuple[Floats, Floats, Certificate]:
        """Feasible M and η, and the bounds that they give."""
        code = self.feasible_code(matrix)
        dual, value = self.feasible_dual(eta)
        primal, at_zero = self.primal(code, np.longdouble), self.primal(np.zeros(code.shape))
        return code, dual, Certificate(primal, value, at_zero, primal)


def finite_matrix(values: Any, name: str) -> Floats:
    """`values` as a float64 matrix with a column at least, without NaN or infinity."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"{name} must be a matrix with at least one column; got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} holds NaN or infinity; learning a code needs finite numbers")
    return matrix


def _check_margins(
    y: npt.ArrayLike, b: npt.ArrayLike | None, n_samples: int, n_classes: int | None
) -> tuple[Indices, Floats]:
    """Class indices and margins; the number of classes is that of `n_classes`, of b, or of y."""
    margins = None if b is None else finite_matrix(b, "b")
    if n_classes is None and margins is not None:
        n_classes = margins.shape[1]
    if n_classes is None:
        n_classes = max(2, int(check_class_indices(y, n_samples, np.iinfo(np.intp).max).max()) + 1)
    k = check_count(n_classes, "n_classes", 2)
    true = check_class_indices(y, n_samples, k)
    if margins is None:
        margins = np.ones((n_samples, k))
        margins[np.arange(n_samples), true] = 0.0
    if margins.shape != (n_samples, k):
        raise ValueError(f"b must have shape ({n_samples}, {k}), a margin for each row and class; got {margins.shape}")
    if margins[np.arange(n_samples), true].any():
        raise ValueError("b must be 0 for the true class of each row")
    return true, margins
