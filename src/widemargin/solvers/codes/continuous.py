"""Continuous codes for l1, l2 and l∞: the code matrix that suits given binary classifiers best.

    soft    min ‖M‖_p + C Σ_i weight_i ξ_i                        C = 1/β of Crammer and Singer (2002, eq. 15 and 16)
    hard    min C Σ_i weight_i ξ_i   s.t. ‖M‖_p ≤ A
    separable   min ‖M‖_p   s.t. ξ = 0                            C = ∞ (eq. 13)
    ξ_i = max(0, max_{r ≠ y_i} b_ir − ⟨h_i, M_{y_i} − M_r⟩),   b_ir = 1 unless given;   p = 1, 2, ∞ over all entries

For l2 the soft penalty is ½‖M‖², solved by SPOC, with a kernel if wanted (`widemargin.solvers.codes.spoc`); the hard
and the separable problem are series of soft ones (`widemargin.solvers.codes.l2`). The other norms are linear programs
(`widemargin.solvers.codes.linear_programs`).

Their dual has η_ir ≥ 0 with Σ_{r ≠ y_i} η_ir ≤ C weight_i and G_r = Σ_i h_i ([[y_i = r]] Σ_q η_iq − η_ir):

    soft    max ⟨b, η⟩  s.t. ‖G‖_q ≤ 1            hard    max ⟨b, η⟩ − A ‖G‖_q           1/p + 1/q = 1

Every solver returns M and η that are feasible; the certificate is both objectives, recomputed from them. M = 0 is
optimal exactly for C up to `largest_zero_C`. Memory: a few times n · k, and for the programs about 20 n_columns numbers
for each row (`largest_zero_C`: 4 k n_columns).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.labels.codes import check_targets
from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import Kernel
from widemargin.solvers.codes.l2 import LEAST_TOL, NormSearch, Separation
from widemargin.solvers.codes.linear_programs import scaled_program, solve_by_pairs
from widemargin.solvers.codes.spoc import signed_duals, solve_spoc
from widemargin.solvers.result import Callback, Status

__all__ = [
    "NORMS",
    "CodeNorm",
    "CodeProblem",
    "CodeSolution",
    "ContinuousCode",
    "continuous_code",
    "incremental_column",
    "incremental_margins",
    "largest_zero_C",
]

Floats: TypeAlias = npt.NDArray[np.float64]
CodeNorm: TypeAlias = Literal["l1", "l2", "linf"]
CodeSolution: TypeAlias = tuple[Floats, Floats, Certificate, Status, int]
"""M, or τ (n_samples, n_classes) with a kernel; η (n_samples, n_classes), 0 for the true class; their objectives; why
the solver ended; and its iterations."""

NORMS: tuple[CodeNorm, ...] = get_args(CodeNorm)
STRICTER = 1e-2  # tolerance against the one before, where a code within it is worse than none


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
    status : Status
        Why the solver stopped. NOT_ATTAINED if HiGHS leaves the gap of a linear program above `tol`.
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
    status: Status = Status.CONVERGED
    n_iter: int = 0
    kernel: Kernel | None = None
    support: npt.NDArray[np.int64] | None = None
    dual_coef: Floats | None = None
    support_outputs: Floats | None = None

    def scores(self, h: npt.ArrayLike) -> Floats:
        """Scores (n_rows, n_classes) of the classes for outputs h (n_rows, n_columns)."""
        outputs = _finite_matrix(h, "h")
        if self.code is not None:
            return np.asarray(outputs @ self.code.T)
        assert self.kernel is not None
        return np.asarray(self.kernel.block(outputs, self.support_outputs) @ self.dual_coef)


@with_shared_passages
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
        Outputs of the binary classifiers, preferably on rows that these were not trained on.
    <one_class>
    norm : {"l1", "l2", "linf"}
        Norm of the entries of the code: their sum in absolute value, the root of the sum of their squares (its soft
        penalty is half the sum of squares), or the largest in absolute value.
    C : float
        Cost of the losses against the norm; 1/β of the paper. With `norm_bound` it only scales the objective. inf: no
        loss is allowed, and a ValueError says so where the rows of weight above 0 cannot be separated.
    norm_bound : float, optional
        Largest norm allowed; the norm is then no part of the objective (the hard version).
    <row_weights>
    b : array-like of shape (n_samples, n_classes), optional
        Margins asked for, any numbers, 0 for the true class; 1 for wrong classes if not given.
    n_classes : int, optional
        Number of classes. By default that of `b`, or else one more than the largest index in y.
    kernel : Kernel or None
        Kernel of outputs, from `make_kernel`, for l2; None for the inner product.
    tol : float
        Relative gap to reach. Linear programs are solved to about 1e-9, but those with thousands of margins get them a
        few at a time, until the gap to the problem with all of them is at most `tol`.
    max_iter, seed, n_threads, callback, cache_size_mb, order
        For l2, as in `solve_spoc`.

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
    ValueError: C=inf requires a zero-loss code, but no code separates these outputs: ...
    """
    problem = _checked_problem(h, y, norm, C, norm_bound, sample_weight, b, n_classes)
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be a finite, positive number; got {tol}")
    if norm != "l2":
        if order != "random":
            raise ValueError(f"order={order!r} applies only to norm='l2'; norm={norm!r} is solved as a linear program")
        if kernel is not None:
            raise ValueError(
                f"a kernel requires norm='l2'; norm={norm!r} is solved as a linear program in the entries of the code"
            )
        return ContinuousCode(*solve_by_pairs(problem, tol))
    options: dict[str, Any] = {
        "kernel": kernel, "tol": tol, "max_iter": max_iter, "seed": seed, "n_threads": n_threads, "callback": callback,
        "cache_size_mb": cache_size_mb, "order": order,
    }  # fmt: skip
    if norm_bound is not None:
        solution = NormSearch(problem, options).run()
    elif np.isinf(C):
        solution = Separation(problem, options).run()
    else:
        solution = _soft_l2(problem, options)
    if kernel is None:
        return ContinuousCode(*solution)
    tau, *_ = solution
    support = np.flatnonzero(tau.any(axis=1))
    return ContinuousCode(None, *solution[1:], kernel, support, tau[support], problem.h[support])


def _soft_l2(problem: CodeProblem, options: dict[str, Any]) -> CodeSolution:
    """SPOC once, or again to smaller tolerances while its code is within the tolerance and yet worse than none."""
    given: Any = (problem.h, problem.y, problem.b.shape[1], problem.costs)
    result, tol = solve_spoc(*given, margins=problem.b, **options), options["tol"]
    passes, at_zero = int(result.n_iter[0]), result.certificate.primal_at_zero
    while result.certificate.primal > at_zero and result.status is Status.CONVERGED and tol > LEAST_TOL:
        tol = STRICTER * tol
        result = solve_spoc(*given, margins=problem.b, **(options | {"tol": tol, "start": result.dual}))
        passes += int(result.n_iter[0])
    code = signed_duals(result.dual, problem.y) if result.coef is None else result.coef
    certificate, status = result.certificate, result.status
    if certificate.primal > at_zero:
        code = np.zeros(code.shape)
        certificate = replace(certificate, primal=at_zero, primal_before_pruning=at_zero)
    if status in (Status.MAX_ITER, Status.NOT_ATTAINED) and certificate.relative_gap <= options["tol"]:
        status = Status.CONVERGED
    return code, result.dual, certificate, status, passes


@dataclass(frozen=True)
class CodeProblem:
    """A problem after its checks: outputs h, classes y, margins b, costs c, the norm, and A, inf unless it is hard."""

    h: Floats
    y: npt.NDArray[np.intp]
    b: Floats
    costs: Floats
    norm: CodeNorm
    bound: float

    @property
    def hard(self) -> bool:
        """Whether the norm is bounded, and no part of the objective."""
        return bool(np.isfinite(self.bound))

    @property
    def separable(self) -> bool:
        """Whether all margins must be reached: C = ∞."""
        return bool(np.isinf(self.costs).any())

    def all_pairs(self) -> npt.NDArray[np.bool_]:
        """Which margins count, (n_samples, n_classes): those of wrong classes of the rows that cost something."""
        pairs = np.repeat(self.costs[:, None] > 0.0, self.b.shape[1], axis=1)
        pairs[np.arange(len(self.y)), self.y] = False
        return pairs

    def lacks(self, matrix: Floats, dtype: Any = np.float64) -> npt.NDArray[Any]:
        """b_ir − ⟨h_i, M_{y_i} − M_r⟩, shape (n_samples, n_classes): what each margin lacks; 0 for the true class."""
        scores = self.h.astype(dtype, copy=False) @ matrix.astype(dtype, copy=False).T
        lacks: npt.NDArray[Any] = self.b + (scores - scores[np.arange(len(self.y)), self.y][:, None])
        return lacks


def _checked_problem(
    h: npt.ArrayLike,
    y: npt.ArrayLike,
    norm: CodeNorm,
    C: float,
    norm_bound: float | None,
    sample_weight: npt.ArrayLike | None,
    b: npt.ArrayLike | None,
    n_classes: int | None,
) -> CodeProblem:
    """The problem, or an error that names what is wrong with the arguments of `continuous_code`."""
    outputs, margins = _finite_matrix(h, "h"), None if b is None else _finite_matrix(b, "b")
    if norm not in NORMS:
        raise ValueError(f"norm must be 'l1', 'l2' or 'linf'; got {norm!r}")
    if not C > 0.0:
        raise ValueError(f"C must be a positive number, or inf for a zero-loss code; got {C}")
    if np.isinf(C) and norm_bound is not None:
        raise ValueError("C=inf requires a zero-loss code, which norm_bound may exclude; leave out one of them")
    if norm_bound is not None and not 0.0 <= norm_bound < np.inf:
        raise ValueError(f"norm_bound must be None or a finite, nonnegative number; got {norm_bound}")
    if n_classes is None and margins is not None:
        n_classes = margins.shape[1]
    true, weights, k = check_targets(y, len(outputs), sample_weight, n_classes)
    rows = np.arange(len(true))
    if margins is None:
        margins = np.ones((len(true), k))
        margins[rows, true] = 0.0
    if margins.shape != (len(true), k):
        raise ValueError(
            f"b must have shape ({len(true)}, {k}), one margin per row and class; got shape {margins.shape}"
        )
    if margins[rows, true].any():
        raise ValueError("b must be 0 for the true class of each row")
    costs = np.where(weights > 0.0, np.inf, 0.0) if np.isinf(C) else C * weights
    return CodeProblem(outputs, true, margins, costs, norm, np.inf if norm_bound is None else float(norm_bound))


def _finite_matrix(values: Any, name: str) -> Floats:
    """`values` as a float64 matrix with at least one column, without NaN or infinity."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"{name} must be a matrix with at least one column; got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinity; learning a code requires finite numbers")
    return matrix


@with_shared_passages
def incremental_column(
    h: npt.ArrayLike, y: npt.ArrayLike, code: npt.ArrayLike, h_new: npt.ArrayLike, **options: Any
) -> ContinuousCode:
    """Learn the column of a code for one more binary classifier, the columns before it fixed.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs of the classifiers that have a column.
    <one_class>
    code : array-like of shape (n_classes, n_columns)
        Their columns.
    h_new : array-like of shape (n_samples,)
        Outputs of the new classifier.
    **options
        Further arguments of `continuous_code`, such as `norm`, `C` and `sample_weight`; the norm is the norm of the new
        column.

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
        raise ValueError(f"h_new must have shape (n_samples,), one output per row; got shape {new.shape}")
    b = incremental_margins(h, y, code)
    return continuous_code(new[:, None], y, b=b, **options)


@with_shared_passages
def incremental_margins(h: npt.ArrayLike, y: npt.ArrayLike, code: npt.ArrayLike) -> Floats:
    """b_ir = [[r ≠ y_i]] − ⟨h_i, M_{y_i} − M_r⟩: the margins that a code still lacks.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs.
    <one_class>
    <code>

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
    outputs, matrix = _finite_matrix(h, "h"), _finite_matrix(code, "code")
    if outputs.shape[1] != matrix.shape[1]:
        raise ValueError(
            f"h has {outputs.shape[1]} column(s), but the code has {matrix.shape[1]}; they must have the same number "
            "of columns"
        )
    true, _, _ = check_targets(y, len(outputs), None, len(matrix))
    scores = outputs @ matrix.T
    rows = np.arange(len(true))
    margins: Floats = 1.0 + scores - scores[rows, true][:, None]
    margins[rows, true] = 0.0
    return margins


@with_shared_passages
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
    <one_class>
    norm : {"l1", "linf"}
        Norm of the code; for l2 there is no such C.
    <row_weights>
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
    problem = _checked_problem(h, y, norm, 1.0, None, sample_weight, b, n_classes)
    if norm == "l2":
        raise ValueError("norm='l2' has no largest C with a zero code, because its code is never 0")
    program, size, factor = scaled_program(problem, problem.all_pairs())
    smallest = program.smallest_dual_norm() * size / factor
    return 1.0 / smallest if smallest > 0.0 else np.inf
