"""Kernels: matrices of similarities between rows, in blocks.

    linear   x·x'            poly     (γ x·x' + c)^degree
    rbf      exp(−γ‖x−x'‖²)   sigmoid  tanh(γ x·x' + c)          callable   function(A, B) → matrix

as in scikit-learn. A kernel machine is a convex problem only if the kernel matrix of its training rows is positive
semidefinite. Linear, rbf and, for c ≥ 0, poly kernels always are. Others are tested (`check_positive_semidefinite`),
and a matrix with negative curvature is refused: the problem would have no minimum, and there would be nothing to
certify. Sigmoid kernels often fail. Blocks are computed by matrix products. Memory of a block: its result, and what a
callable needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.exceptions import NotPositiveDefiniteError

__all__ = ["Kernel", "PrecomputedKernel", "TrainingKernel", "make_kernel", "resolve_gamma"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Block: TypeAlias = npt.NDArray[Any]

NAMES = ("linear", "rbf", "poly", "sigmoid")
SINGLE_REACH = 16.0  # γ‖x‖² up to which distances are computed in float32: an error of 2e-6 in exp(−γ d²)
SAMPLE_ROWS = 400  # in the test of curvature: the eigenvalues of that many rows take about 20 ms
CURVATURE_TOLERANCE = 1e-6  # of the largest eigenvalue: rounding of kernels that were computed in float32
SYMMETRY_TOLERANCE = 1e-6  # of the largest entry
DIAGONAL_ROWS = 64  # per call of a callable for its diagonal
CHECKED_ROWS = 256  # of a precomputed matrix, at a time

EXACT_REACH = 1e5  # sum of γ‖a‖² and γ‖b‖² up to which their rounding changes kernel values by at most about 1e-10
ROUNDING = 1e-14  # largest rounding error of an exponent, relative to that sum
LEAST_EXPONENT = -800.0  # exponents below give 0 in float64
MENDED_PAIRS = 4096  # pairs of rows whose differences are computed at a time


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters; made by `make_kernel`.

    Parameters
    ----------
    name : {"linear", "rbf", "poly", "sigmoid", "callable"}
        Which one.
    gamma, coef0 : float
        γ and c of the formulas.
    degree : int
        Degree of the polynomial.
    function : callable or None
        function(A, B, **params) returns a matrix of shape (len(A), len(B)).
    params : mapping
        Further arguments of the function.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import make_kernel
    >>> rbf = make_kernel("rbf", gamma=0.5)
    >>> rbf.block(np.array([[0.0, 1.0]]), np.array([[0.0, 1.0], [2.0, 1.0]])).round(4).tolist()
    [[1.0, 0.1353]]
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    function: Callable[..., Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_positive_semidefinite(self) -> bool:
        """Whether all kernel matrices are."""
        return self.name in ("linear", "rbf") or (self.name == "poly" and self.coef0 >= 0.0)

    def block(self, A: Any, B: Any, dtype: Any = np.float64) -> Block:
        """Kernel values of rows of A and B, dense or CSR: shape (len(A), len(B)), float64 or float32."""
        return self.against(B, dtype)(A)

    def diagonal(self, A: Any) -> Floats:
        """k(x, x) of each row."""
        if self.function is not None:
            starts = range(0, A.shape[0], DIAGONAL_ROWS)
            blocks = [self.block(A[i : i + DIAGONAL_ROWS], A[i : i + DIAGONAL_ROWS]) for i in starts]
            return np.concatenate([np.empty(0), *(block.diagonal() for block in blocks)])
        if self.name == "rbf":
            return np.ones(A.shape[0])
        return self._finish(_squared_norms(A))

    def against(self, B: Any, dtype: Any = np.float64) -> Callable[[Any], Block]:
        """A function of A that returns block(A, B); B is prepared once for many A."""
        if self.function is not None:
            return lambda A: self._call(A, B, dtype)
        if self.name == "rbf":
            return _Distances(B, self.gamma, dtype)
        columns = _as_type(B, np.float64 if self.name != "linear" else dtype).T
        return lambda A: self._finish(_product(_as_type(A, columns.dtype), columns)).astype(dtype, copy=False)

    def _finish(self, products: Block) -> Block:
        """Kernel values from inner products, in place."""
        if self.name == "linear":
            return products
        products *= self.gamma
        products += self.coef0
        return np.power(products, self.degree, out=products) if self.name == "poly" else np.tanh(products, out=products)

    def _call(self, A: Any, B: Any, dtype: Any) -> Block:
        assert self.function is not None
        values = self.function(A, B, **self.params)
        block = np.asarray(values.todense() if sp.issparse(values) else values)
        if block.shape != (A.shape[0], B.shape[0]) or block.dtype.kind not in "biuf":
            wanted = f"a real matrix of shape {(A.shape[0], B.shape[0])}"
            raise ValueError(f"the kernel function must return {wanted}; got {block.dtype} of shape {block.shape}")
        _check_finite(block, "the result of the kernel function")
        return np.ascontiguousarray(block, dtype=dtype)


class _Distances:
    """exp(−γ‖a − b‖²) from one product: −γ‖a‖² − γ‖b‖² + 2γ a·b = (√2γ a, −γ‖a‖², 1) · (√2γ b, 1, −γ‖b‖²).

    Where rows are long enough for the rounding of their norms to show, distances of near rows are sums of squares.
    """

    def __init__(self, B: Any, gamma: float, dtype: Any) -> None:
        norms = gamma * _squared_norms(B)
        self.gamma, self.dtype, self.rows, self.norms = gamma, np.dtype(dtype), B, norms
        small = norms.max(initial=0.0) <= SINGLE_REACH
        self.work = self.dtype if small else np.dtype(np.float64)
        self.columns = _as_type(self._join(B, norms, 1), self.work).T

    def _join(self, rows: Any, norms: Floats, place: int) -> Any:
        extra = np.ones((len(norms), 2))
        extra[:, place] = -norms
        scaled = rows.astype(np.float64) * np.sqrt(2.0 * self.gamma)
        return sp.hstack([scaled, extra], format="csr") if sp.issparse(rows) else np.hstack([scaled, extra])

    def __call__(self, A: Any) -> Block:
        norms = self.gamma * _squared_norms(A)
        rows = _as_type(self._join(A, norms, 0), self.work)
        exponents = _product(rows, self.columns)
        if norms.max(initial=0.0) + self.norms.max(initial=0.0) > EXACT_REACH:
            self._mend(exponents, A, norms)
        if exponents.dtype != self.dtype:  # exponents of rows far apart may be beyond float32
            exponents = np.maximum(exponents, np.finfo(self.dtype).min).astype(self.dtype)
        _core.exp_in_place(exponents)
        return exponents

    def _mend(self, exponents: Block, A: Any, norms: Floats) -> None:
        """Recompute the exponents that rounding may have changed by 1e-10 and whose exponential is not 0."""
        sums = norms[:, None] + self.norms
        i, j = np.nonzero((sums > EXACT_REACH) & (exponents > LEAST_EXPONENT - ROUNDING * sums))
        for first in range(0, len(i), MENDED_PAIRS):
            part = slice(first, first + MENDED_PAIRS)
            difference = A[i[part]].astype(np.float64) - self.rows[j[part]].astype(np.float64)
            exponents[i[part], j[part]] = -self.gamma * _squared_norms(difference)


def make_kernel(
    kernel: str | Callable[..., Any],
    gamma: float | str = 1.0,
    degree: int = 3,
    coef0: float = 0.0,
    params: Mapping[str, Any] | None = None,
) -> Kernel:
    """A kernel with checked parameters.

    Parameters
    ----------
    kernel : {"linear", "rbf", "poly", "sigmoid"} or callable
        Name, or a function of two matrices of rows that returns the matrix of their kernel values.
    gamma : float
        γ > 0; `resolve_gamma` turns "scale" and "auto" into a number. Not used by linear and callables.
    degree : int
        Degree of poly, at least 0.
    coef0 : float
        c of poly and sigmoid.
    params : mapping or None
        Further keyword arguments of a callable.

    Returns
    -------
    Kernel
        With `block(A, B)` and `diagonal(A)`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import make_kernel
    >>> make_kernel("poly", gamma=1.0, degree=2, coef0=1.0).block(np.array([[1.0], [2.0]]), np.array([[3.0]])).tolist()
    [[16.0], [49.0]]
    """
    if callable(kernel):
        return Kernel("callable", function=kernel, params=dict(params or {}))
    if kernel not in NAMES:
        raise ValueError(f"kernel must be one of {', '.join(NAMES)} or a callable; got {kernel!r}")
    if params:
        raise ValueError(
            f"the kernel parameters {sorted(params)} apply only to callable kernels; for {kernel!r}, use gamma, "
            "degree and coef0"
        )
    if isinstance(gamma, str) or not 0.0 < gamma < np.inf:
        raise ValueError(f"gamma must be a positive number; got {gamma!r}")
    if int(degree) != degree or degree < 0:
        raise ValueError(f"degree must be a nonnegative integer; got {degree!r}")
    if not np.isfinite(coef0):
        raise ValueError(f"coef0 must be a finite number; got {coef0!r}")
    return Kernel(kernel, float(gamma), int(degree), float(coef0))


def resolve_gamma(gamma: float | str, X: Any) -> float:
    """γ as a number: "scale" is 1 / (n_features · variance of X), "auto" is 1 / n_features, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import resolve_gamma
    >>> resolve_gamma("scale", np.array([[0.0, 2.0], [2.0, 0.0]])), resolve_gamma("auto", np.eye(4))
    (0.5, 0.25)
    """
    if gamma == "auto":
        return 1.0 / int(X.shape[1])
    if gamma == "scale":
        values = X.astype(np.float64, copy=False)
        variance = float(values.multiply(values).mean() - values.mean() ** 2 if sp.issparse(X) else values.var())
        return 1.0 / (int(X.shape[1]) * variance) if variance > 0.0 else 1.0
    if isinstance(gamma, str):
        raise ValueError(f"gamma must be 'scale', 'auto' or a positive number; got {gamma!r}")
    return float(gamma)


class TrainingKernel:
    """The kernel matrix of training rows, never held as a whole.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, finite.
    kernel : Kernel
        From `make_kernel`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import TrainingKernel, make_kernel
    >>> K = TrainingKernel(np.eye(3), make_kernel("linear"))
    >>> K.n_rows, K.diagonal().tolist(), K.columns(np.array([1])).tolist()
    (3, [1.0, 1.0, 1.0], [[0.0, 1.0, 0.0]])
    """

    def __init__(self, X: Any, kernel: Kernel) -> None:
        if len(X.shape) != 2:
            raise ValueError(f"X must have shape (n_samples, n_features); got shape {X.shape}")
        self.X: Any = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
        self.kernel = kernel
        _check_finite(self.X.data if sp.issparse(X) else self.X, "X")
        self._prepared: dict[np.dtype[Any], Callable[[Any], Block]] = {}

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return int(self.X.shape[0])

    @property
    def is_positive_semidefinite(self) -> bool:
        """Whether the matrix is known to be."""
        return self.kernel.is_positive_semidefinite

    def diagonal(self) -> Floats:
        """k(x_i, x_i), shape (n_rows,)."""
        return self.kernel.diagonal(self.X)

    def columns(self, indices: Any, dtype: Any = np.float64) -> Block:
        """Columns of the matrix, each contiguous: shape (len(indices), n_rows); indices may be a slice."""
        key = np.dtype(dtype)
        if key not in self._prepared:
            self._prepared[key] = self.kernel.against(self.X, key)
        return self._prepared[key](self.X[indices])

    def among(self, indices: Ints) -> Block:
        """The float64 block of some rows and the same columns."""
        return self.kernel.block(self.X[indices], self.X[indices])

    def strip(self, indices: Ints) -> Callable[[slice], Block]:
        """A function that returns the float64 block of a slice of rows and the chosen columns."""
        block = self.kernel.against(self.X[indices], np.float64)
        return lambda rows: block(self.X[rows])


class PrecomputedKernel:
    """A kernel matrix that was computed beforehand.

    Parameters
    ----------
    K : array-like of shape (n_samples, n_samples)
        Symmetric up to rounding, float32 or float64; not copied.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.kernels import PrecomputedKernel
    >>> K = PrecomputedKernel(np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> K.n_rows, K.diagonal().tolist(), K.columns(np.array([1])).tolist()
    (2, [2.0, 3.0], [[1.0, 3.0]])
    """

    is_positive_semidefinite = False

    def __init__(self, K: npt.ArrayLike) -> None:
        given = np.asarray(K)
        if given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise ValueError(
                f"a precomputed kernel matrix must be square (n_samples × n_samples); got shape {given.shape}"
            )
        self.K = given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
        _check_finite(self.K, "the precomputed kernel matrix")
        largest = float(max(self.K.max(initial=0.0), -self.K.min(initial=0.0)))
        for i in range(0, len(self.K), CHECKED_ROWS):
            rows = slice(i, i + CHECKED_ROWS)
            difference = float(np.abs(self.K[rows] - self.K[:, rows].T).max())
            if difference > SYMMETRY_TOLERANCE * largest:
                raise ValueError(
                    "the precomputed kernel matrix is not symmetric: mirrored entries differ by up to "
                    f"{difference:.3g}; for training, pass k(X, X), or (K + K.T) / 2 if the difference is due to "
                    "rounding"
                )

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.K)

    def diagonal(self) -> Floats:
        """Diagonal of the matrix, shape (n_rows,)."""
        return self.K.diagonal().astype(np.float64)

    def columns(self, indices: Any, dtype: Any = np.float64) -> Block:
        """Columns of the matrix, each contiguous: shape (len(indices), n_rows); indices may be a slice."""
        return np.array(self.K[indices], dtype=dtype, order="C")  # a copy: blocks are changed by their users

    def among(self, indices: Ints) -> Block:
        """The float64 block of some rows and the same columns."""
        return self.K[np.ix_(indices, indices)].astype(np.float64)

    def strip(self, indices: Ints) -> Callable[[slice], Block]:
        """A function that returns the float64 block of a slice of rows and the chosen columns."""
        return lambda rows: self.K[rows][:, indices].astype(np.float64)


def check_positive_semidefinite(kernel: TrainingKernel | PrecomputedKernel, seed: int = 0) -> None:
    """Refuse a kernel matrix whose diagonal or a sample of whose rows shows negative curvature.

    Tests the diagonal and, unless the kernel is known to be positive semidefinite, the smallest eigenvalue of at most
    400 random rows: in a small problem these are all rows; in a large one a little negative curvature may go unnoticed.
    """
    diagonal = kernel.diagonal()
    _check_finite(diagonal, "the diagonal of the kernel matrix")
    lowest, largest = float(diagonal.min(initial=0.0)), float(diagonal.max(initial=0.0))
    if lowest < -CURVATURE_TOLERANCE * largest or (lowest < 0.0 and largest == 0.0):
        raise not_positive_semidefinite(f"its diagonal entry is {lowest:.3g} in row {int(diagonal.argmin())}")
    if kernel.is_positive_semidefinite or kernel.n_rows == 0:
        return
    drawn = np.sort(np.random.default_rng(seed).permutation(kernel.n_rows)[:SAMPLE_ROWS])
    sample = kernel.among(drawn)
    values = np.linalg.eigvalsh(0.5 * (sample + sample.T))
    if values[0] < -CURVATURE_TOLERANCE * max(values[-1], 0.0):
        raise not_positive_semidefinite(
            f"a submatrix of {len(drawn)} of its rows has eigenvalues from {values[0]:.3g} to {values[-1]:.3g}"
        )


def not_positive_semidefinite(evidence: str) -> NotPositiveDefiniteError:
    """The error, with the evidence and the remedy."""
    return NotPositiveDefiniteError(
        f"the kernel matrix is not positive semidefinite ({evidence}), so the problem has no minimum; use "
        "kernel='rbf', or 'poly' with coef0 >= 0, or pass the precomputed matrix K + δI, where δ is at least the "
        "negated smallest eigenvalue of K"
    )


def _squared_norms(rows: Any) -> Floats:
    """‖x‖² of each row in float64."""
    if sp.issparse(rows):
        values = rows.astype(np.float64)
        return np.asarray(values.multiply(values).sum(axis=1)).ravel()
    values = np.asarray(rows, dtype=np.float64)
    norms: Floats = np.einsum("ij,ij->i", values, values)
    return norms


def _as_type(rows: Any, dtype: Any) -> Any:
    """Rows of a type, dense ones contiguous."""
    return rows.astype(dtype) if sp.issparse(rows) else np.ascontiguousarray(rows, dtype=dtype)


def _product(rows: Any, columns: Any) -> Block:
    """rows @ columns as a dense C-contiguous array."""
    values = rows @ columns
    return np.ascontiguousarray(values.todense() if sp.issparse(values) else values)


def _check_finite(values: Any, what: str) -> None:
    """Refuse NaN and infinity."""
    if values.size and not np.isfinite([values.min(), values.max()]).all():
        raise ValueError(f"{what} contains NaN or infinity; kernels require finite values")
