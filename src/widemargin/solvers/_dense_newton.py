"""Newton directions for dense rows with the Hessian written out, and when they pay.

    H = I + Σ_i h_i x_i x_iᵀ   over the rows with curvature h_i = c_i φ''(m_i) > 0,   H d = −∇L

With fewer such rows than features the system has one unknown a row: with R = √h · X, d = r − Rᵀ(I + R Rᵀ)⁻¹ R r for the
right-hand side r; else one a feature. A free intercept is eliminated, which centres the rows by their weighted mean; a
penalised one is a further column of ones. Everything in float32: a direction need not be exact, and gradients decide.
Memory: the active rows once more, and min(active, features)² entries, one label at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import spotrf, spotrs

__all__ = ["direct_flops", "newton_direction"]

Single = npt.NDArray[np.float32]


def direct_flops(n_active: npt.NDArray[np.float64], n_features: int) -> npt.NDArray[np.float64]:
    """Multiplications and additions of one direction: a symmetric product and a Cholesky factor.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers._dense_newton import direct_flops
    >>> direct_flops(np.array([3.0, 30.0]), 6).tolist()
    [63.0, 1152.0]
    """
    small, large = np.minimum(n_active, n_features), np.maximum(n_active, n_features)
    flops: npt.NDArray[np.float64] = small**2 * large + small**3 / 3.0
    return flops


def newton_direction(
    rows: Single, curvature: Single, gradient: Single, bias_gradient: float, bias: str
) -> tuple[Single, float] | None:
    """Solve H (d, e) = −(gradient, bias_gradient); None where float32 has no answer.

    Parameters
    ----------
    rows : ndarray of float32 of shape (n_active, n_features)
        The rows with curvature; overwritten.
    curvature : ndarray of float32 of shape (n_active,)
        c_i φ''(m_i) > 0.
    gradient : ndarray of float32 of shape (n_features,)
        ∇L for the weights.
    bias_gradient : float
        ∂L/∂b.
    bias : {"none", "free", "penalised"}
        What kind of intercept there is.

    Returns
    -------
    tuple of (ndarray of shape (n_features,), float) or None
        The direction of the weights and of the intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers._dense_newton import newton_direction
    >>> one = np.ones(1, dtype=np.float32)
    >>> d, e = newton_direction(np.array([[2.0]], dtype=np.float32), one, one, 0.0, "none")
    >>> d.tolist(), e  # (1 + 2²) d = −1
    ([-0.19999998807907104], 0.0)
    """
    total = float(curvature.sum(dtype=np.float64))
    root = np.sqrt(curvature)[:, None]
    right = -gradient
    mean = right
    if bias == "free":
        mean = (curvature @ rows) / np.float32(total)
        right = np.float32(bias_gradient) * mean - gradient
        rows -= mean
    elif bias == "penalised":
        rows = np.column_stack([rows, np.ones(len(rows), dtype=np.float32)])
        right = np.append(right, np.float32(-bias_gradient))
    rows *= root
    direction = _solve_shifted(rows, right)
    if direction is None:
        return None
    if bias == "penalised":
        return direction[:-1], float(direction[-1])
    # The intercept's own equation: Σh (mean·d) + Σh e = −bias_gradient.
    return direction, -bias_gradient / total - float(mean @ direction) if bias == "free" else 0.0


def _solve_shifted(rows: Single, right: Single) -> Single | None:
    """(I + RᵀR)⁻¹ right, by the smaller of the two systems; None where the factor does not exist in float32."""
    by_row = len(rows) < rows.shape[1]
    matrix = rows @ rows.T if by_row else rows.T @ rows
    matrix[np.diag_indices(len(matrix))] += np.float32(1.0)
    # The transpose of a symmetric matrix in C order is itself in Fortran order: nothing is copied. NumPy's Cholesky
    # took two to three times as long.
    factor, info = spotrf(matrix.T, overwrite_a=True, clean=False)
    if info != 0:
        return None
    inner, info = spotrs(factor, rows @ right if by_row else right)
    solution: Single = right - rows.T @ inner if by_row else inner
    return solution if info == 0 and bool(np.isfinite(solution).all()) else None
