"""Continuous codes for l1, l2 and l∞: the code matrix that suits given binary classifiers best.

    soft    min ‖M‖_p + C Σ_i weight_i ξ_i                        C = 1/β of Crammer and Singer (2002, eq. 15 and 16)
    hard    min C Σ_i weight_i ξ_i   s.t. ‖M‖_p ≤ A
    separable   min ‖M‖_p   s.t. ξ = 0                            C = ∞ (eq. 13)
    ξ_i = max(0, max_{r ≠ y_i} b_ir − ⟨h_i, M_{y_i} − M_r⟩),   b_ir = 1 unless given;   p = 1, 2, ∞ over all entries

For l2 the soft penalty is ½‖M‖², solved by SPOC, with a kernel if wanted (`widemargin.solvers.codes.spoc`). The others
are linear programs.

Their dual has η_ir ≥ 0 with Σ_{r ≠ y_i} η_ir ≤ C weight_i and G_r = Σ_i h_i ([[y_i = r]] Σ_q η_iq − η_ir):

    soft    max ⟨b, η⟩  s.t. ‖G‖_q ≤ 1            hard    max ⟨b, η⟩ − A ‖G‖_q           1/p + 1/q = 1

Either program gives M and η; both are then made feasible (scaled) and their objectives recomputed, which is the
certificate. Programs have only the margins that matter (`widemargin.solvers.codes.continuous`). M = 0 is optimal
exactly for C up to `largest_zero_C`. Memory: a few times n · k, and for the programs about 20 n_columns numbers for
each example (`largest_zero_C`: 4 k n_columns).

Continuous codes for l1 and l∞ with many classes: linear programs that have only the margins that matter.

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

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin.labels.decoding import check_class_indices
from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import Kernel
from widemargin.solvers.codes.l2 import L2Options, solve_l2, solve_soft
from widemargin.solvers.codes.problem import HIGHS_TOLERANCE, CodeNorm, CodeProblem, Mask, ProgramFailed, finite_matrix
from widemargin.solvers.result import Callback, Status

__all__ = [
    "ContinuousCode",
    "ProgramSolution",
    "continuous_code",
    "incremental_column",
    "incremental_margins",
    "largest_zero_C",
    "solve_by_pairs",
]

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


FormContinuousCodes: TypeAlias = Literal["auto", "primal", "dual"]


@dataclass(frozen=True)
class ContinuousCode:
    """A learned code with bounds on the optimum.

    Parameters
    ----------
    code : ndarray of shape (n_classes, n_columns) or None
        M; scores of the classes are h @ code.T. None with a kernel.
    dual : ndarray of shape (n_samples, n_classes)
        η, a feasible dual point; 0 for the true class.
    certificate : Certificate
        Objective of `code` and of `dual`, recomputed from them.
    form : {"primal", "dual", "spoc"}
        Which linear program was solved, or that it was none.
    status : Status
        Why the solver stopped. A linear program whose gap stays above `tol`, because HiGHS gives it no more digits, is
        NOT_ATTAINED.
    n_iter : int
        Passes of SPOC over the rows, or linear programs solved.
    kernel : Kernel or None
        The kernel of outputs, if there is one.
    support : ndarray of int of shape (n_support,) or None
        With a kernel, the training rows that the scores depend on.
    dual_coef : ndarray of shape (n_support, n_classes) or None
        With a kernel, their coefficients: C τ of the paper. Scores are kernel(h, h_train[support]) @ dual_coef.
    support_outputs : ndarray of shape (n_support, n_columns) or None
        With a kernel, h_train[support].

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import make_kernel
    >>> from widemargin.solvers.codes.continuous import continuous_code
    >>> h, y = np.array([[0.0], [1.0], [2.0]]), [0, 1, 0]
    >>> learned = continuous_code(h, y, norm="l2", C=10.0, kernel=make_kernel("rbf", gamma=2.0))
    >>> learned.code is None, learned.support.tolist(), learned.scores(h).argmax(axis=1).tolist()
    (True, [0, 1, 2], [0, 1, 0])
    """

    code: Floats | None
    dual: Floats
    certificate: Certificate
    form: Literal["primal", "dual", "spoc"]
    status: Status = Status.CONVERGED
    n_iter: int = 0
    kernel: Kernel | None = None
    support: npt.NDArray[np.int64] | None = None
    dual_coef: Floats | None = None
    support_outputs: Floats | None = None

    def scores(self, h: npt.ArrayLike) -> Floats:
        """Scores (n_rows, n_classes) of the classes for outputs h (n_rows, n_columns)."""
        outputs = finite_matrix(h, "h")
        if self.code is not None:
            return np.asarray(outputs @ self.code.T)
        assert self.kernel is not None
        return np.asarray(self.kernel.block(outputs, self.support_outputs) @ self.dual_coef)


def continuous_code(
    h: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    norm: CodeNorm = "l1",
    C: float = 1.0,
    norm_bound: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
    b: npt.ArrayLike | None = None,
    n_classes: int | None = None,
    form: FormContinuousCodes = "auto",
    kernel: Kernel | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    callback: Callback | None = None,
    cache_size_mb: float = 512.0,
    order: Literal["random", "worst-first"] = "random",
) -> ContinuousCode:
    """Learn the code matrix for given outputs of binary classifiers.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs of the binary classifiers, best on rows that these were not trained on.
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.
    norm : {"l1", "l2", "linf"}
        Norm of the entries of the code: their sum in absolute value, the root of the sum of their squares (its soft
        penalty is half the sum of squares), or the largest in absolute value.
    C : float
        Cost of the losses against the norm; 1/β of the paper. With `norm_bound` it only scales the objective. inf: no
        loss is allowed, and a ValueError says so where the rows of weight above 0 cannot be separated.
    norm_bound : float, optional
        Largest norm allowed; the norm is then no part of the objective (the hard version).
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows, at least 0 and not all 0.
    b : array-like of shape (n_samples, n_classes), optional
        Margins asked for, any numbers, 0 for the true class; 1 for wrong classes if not given.
    n_classes : int, optional
        Number of classes; from `b`, or the largest index of y and one more, if not given.
    form : {"auto", "primal", "dual"}
        Which linear program is solved; "auto" is the dual, which HiGHS solves in half the time for l1 and in the same
        time for linf. Not for l2.
    kernel : Kernel or None
        Kernel of outputs, from `make_kernel`, for l2; None for the inner product.
    tol : float
        Relative gap to reach. Linear programs are solved to about 1e-9, but those with thousands of margins get them a
        few at a time, until the gap to the problem with all of them is at most `tol`.
    max_iter, seed, n_threads, callback, cache_size_mb, order
        Of the solver for l2, as in `solve_spoc`.

    Returns
    -------
    ContinuousCode
        The code, a dual point and the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.codes.continuous import continuous_code
    >>> h = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.5]])
    >>> learned = continuous_code(h, [0, 1, 2], norm="l1", C=10.0)
    >>> np.argmax(h @ learned.code.T, axis=1), learned.certificate.relative_gap < 1e-9
    (array([0, 1, 2]), True)
    >>> float(np.abs(continuous_code(h, [0, 1, 2], norm="linf", C=10.0, norm_bound=0.25).code).max())
    0.25
    >>> continuous_code([[1.0], [2.0], [3.0]], [0, 1, 0], norm="l2", C=np.inf)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: C=inf asks for a code without any loss, and no code separates these outputs: ...
    """
    problem = CodeProblem.checked(h, y, norm, C, norm_bound, sample_weight, b, n_classes)
    if form not in ("auto", "primal", "dual"):
        raise ValueError(f"form must be 'auto', 'primal' or 'dual'; got {form!r}")
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be a finite number above 0; got {tol}")
    if norm == "l2":
        options = L2Options(kernel, tol, max_iter, seed, n_threads, callback, cache_size_mb, order)
        return _by_spoc(problem, form, options)
    if order != "random":
        raise ValueError(f"order={order!r} is one of SPOC, which norm='l2' has; norm={norm!r} is a linear program")
    if kernel is not None:
        raise ValueError(f"a kernel needs norm='l2'; norm={norm!r} is a linear program in the entries of the code")
    used: Literal["primal", "dual"] = "primal" if form == "primal" else "dual"
    code, dual, certificate, n_programs, status = solve_by_pairs(problem, used, tol)
    return ContinuousCode(code, dual, certificate, used, status, n_programs)


def _by_spoc(problem: CodeProblem, form: FormContinuousCodes, options: L2Options) -> ContinuousCode:
    if form != "auto":
        raise ValueError(f"form={form!r} is for linear programs; norm='l2' has none, leave form='auto'")
    found = solve_l2(problem, options)
    parts: dict[str, Any] = {"status": found.status, "n_iter": found.n_iter, "kernel": options.kernel}
    if options.kernel is not None:
        support = np.flatnonzero(found.tau.any(axis=1))
        parts |= {"support": support, "dual_coef": found.tau[support], "support_outputs": problem.h[support]}
    return ContinuousCode(found.code, found.dual, found.certificate, "spoc", **parts)


def incremental_column(
    h: npt.ArrayLike,
    y: npt.ArrayLike,
    code: npt.ArrayLike,
    h_new: npt.ArrayLike,
    *,
    norm: CodeNorm = "l1",
    C: float = 1.0,
    norm_bound: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
    form: FormContinuousCodes = "auto",
    tol: float = 1e-6,
    max_iter: int = 10_000,
) -> ContinuousCode:
    """Learn the column of a code for one more binary classifier, the columns before it fixed.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs of the classifiers that have a column.
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.
    code : array-like of shape (n_classes, n_columns)
        Their columns.
    h_new : array-like of shape (n_samples,)
        Outputs of the new classifier.
    norm, C, norm_bound, sample_weight, form, tol, max_iter
        As in `continuous_code`; the norm is that of the new column alone.

    Returns
    -------
    ContinuousCode
        `code` of shape (n_classes, 1), the new column; the objective counts the losses of the whole code.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.codes.continuous import incremental_column
    >>> first = np.array([[1.0], [-1.0], [-1.0]])
    >>> column = incremental_column([[1.0], [-1.0], [-1.0]], [0, 1, 2], first, [0.0, 1.0, -1.0], C=10.0)
    >>> column.code.shape, float(column.code[1, 0] - column.code[2, 0])
    ((3, 1), 1.0)
    """
    new = np.asarray(h_new, dtype=np.float64)
    if new.ndim != 1:
        raise ValueError(f"h_new must have shape (n_samples,), one output a row; got {new.shape}")
    b = incremental_margins(h, y, code)
    return continuous_code(
        new[:, None], y, norm=norm, C=C, norm_bound=norm_bound, sample_weight=sample_weight, b=b, form=form, tol=tol,
        max_iter=max_iter,
    )  # fmt: skip


def incremental_margins(h: npt.ArrayLike, y: npt.ArrayLike, code: npt.ArrayLike) -> Floats:
    """b_ir = [[r ≠ y_i]] − ⟨h_i, M_{y_i} − M_r⟩: the margins that a code still lacks.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs.
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.
    code : array-like of shape (n_classes, n_columns)
        The code.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        Margins to ask of what is added to the scores; 0 for the true class.

    Examples
    --------
    >>> from widemargin.solvers.codes.continuous import incremental_margins
    >>> incremental_margins([[2.0]], [0], [[1.0], [0.0], [0.75]])
    array([[ 0. , -1. ,  0.5]])
    """
    outputs, matrix = finite_matrix(h, "h"), finite_matrix(code, "code")
    if outputs.shape[1] != matrix.shape[1]:
        raise ValueError(f"h has {outputs.shape[1]} column(s), but the code has {matrix.shape[1]}; they must agree")
    true = check_class_indices(y, len(outputs), len(matrix))
    scores = outputs @ matrix.T
    rows = np.arange(len(true))
    margins: Floats = 1.0 + scores - scores[rows, true][:, None]
    margins[rows, true] = 0.0
    return margins


def largest_zero_C(
    h: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    norm: CodeNorm = "l1",
    sample_weight: npt.ArrayLike | None = None,
    b: npt.ArrayLike | None = None,
    n_classes: int | None = None,
) -> float:
    """The C up to which M = 0 solves the soft problem: 1/β_max, by one linear program.

    M = 0 is optimal when some η that is optimal there, all of C·weight_i on the largest b_ir, has ‖G(η)‖_q ≤ 1.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs of the binary classifiers.
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.
    norm : {"l1", "linf"}
        Norm of the code; for l2 there is no such C.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.
    b : array-like of shape (n_samples, n_classes), optional
        Margins asked for.
    n_classes : int, optional
        Number of classes.

    Returns
    -------
    float
        The threshold; inf if no C gives a code other than 0.

    Examples
    --------
    >>> from widemargin.solvers.codes.continuous import continuous_code, largest_zero_C
    >>> h, y = [[1.0], [-1.0]], [0, 1]
    >>> largest_zero_C(h, y)
    0.5
    >>> continuous_code(h, y, C=0.49).code.ravel().tolist(), continuous_code(h, y, C=0.51).code.any().item()
    ([0.0, 0.0], True)
    """
    problem = CodeProblem.checked(h, y, norm, 1.0, None, sample_weight, b, n_classes)
    program, scale = problem.program(problem.all_pairs())
    smallest = program.smallest_dual_norm() * scale.h / scale.objective
    return 1.0 / smallest if smallest > 0.0 else np.inf
