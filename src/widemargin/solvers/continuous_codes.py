"""Continuous codes for l1, l2 and l∞: the code matrix that suits given binary classifiers best.

    soft    min ‖M‖_p + C Σ_i weight_i ξ_i                        C = 1/β of Crammer and Singer (2002, eq. 15 and 16)
    hard    min C Σ_i weight_i ξ_i   s.t. ‖M‖_p ≤ A
    separable   min ‖M‖_p   s.t. ξ = 0                            C = ∞ (eq. 13)
    ξ_i = max(0, max_{r ≠ y_i} b_ir − ⟨h_i, M_{y_i} − M_r⟩),   b_ir = 1 unless given;   p = 1, 2, ∞ over all entries

For l2 the soft penalty is ½‖M‖², solved by SPOC, with a kernel if wanted (`widemargin.solvers.spoc`). The others are
linear programs.

Their dual has η_ir ≥ 0 with Σ_{r ≠ y_i} η_ir ≤ C weight_i and G_r = Σ_i h_i ([[y_i = r]] Σ_q η_iq − η_ir):

    soft    max ⟨b, η⟩  s.t. ‖G‖_q ≤ 1            hard    max ⟨b, η⟩ − A ‖G‖_q           1/p + 1/q = 1

Either program gives M and η; both are then made feasible (scaled) and their objectives recomputed, which is the
certificate. Programs have only the margins that matter (`widemargin.solvers._code_pairs`). M = 0 is optimal exactly
for C up to `largest_zero_C`. Memory: a few times n · k, and for the programs about 20 n_columns numbers for each
example (`largest_zero_C`: 4 k n_columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin.labels.decoding import check_class_indices
from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import Kernel
from widemargin.solvers._code_pairs import solve_by_pairs
from widemargin.solvers._code_problem import CodeNorm, CodeProblem, finite_matrix
from widemargin.solvers._l2_codes import L2Options, solve_l2
from widemargin.solvers.result import Callback, Status

__all__ = ["ContinuousCode", "continuous_code", "incremental_column", "incremental_margins", "largest_zero_C"]

Floats: TypeAlias = npt.NDArray[np.float64]
Form: TypeAlias = Literal["auto", "primal", "dual"]


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
    >>> from widemargin.solvers.continuous_codes import continuous_code
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
    form: Form = "auto",
    kernel: Kernel | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    callback: Callback | None = None,
    time_limit: float | None = None,
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
    max_iter, seed, n_threads, callback, time_limit, cache_size_mb, order
        Of the solver for l2, as in `solve_spoc`.

    Returns
    -------
    ContinuousCode
        The code, a dual point and the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.continuous_codes import continuous_code
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
        options = L2Options(kernel, tol, max_iter, seed, n_threads, callback, time_limit, cache_size_mb, order)
        return _by_spoc(problem, form, options)
    if order != "random":
        raise ValueError(f"order={order!r} is one of SPOC, which norm='l2' has; norm={norm!r} is a linear program")
    if kernel is not None:
        raise ValueError(f"a kernel needs norm='l2'; norm={norm!r} is a linear program in the entries of the code")
    used: Literal["primal", "dual"] = "primal" if form == "primal" else "dual"
    code, dual, certificate, n_programs, status = solve_by_pairs(problem, used, tol)
    return ContinuousCode(code, dual, certificate, used, status, n_programs)


def _by_spoc(problem: CodeProblem, form: Form, options: L2Options) -> ContinuousCode:
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
    form: Form = "auto",
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
    >>> from widemargin.solvers.continuous_codes import incremental_column
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
    >>> from widemargin.solvers.continuous_codes import incremental_margins
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
    >>> from widemargin.solvers.continuous_codes import continuous_code, largest_zero_C
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
