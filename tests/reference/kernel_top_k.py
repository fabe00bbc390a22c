"""Specification of the kernel top-k SVM by dual ascent: NumPy, float64, the whole kernel matrix, one row after another.

    minimise  P(A) = ½⟨A, KA⟩ + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   S = KA
    maximise  D(A) = Σ_i [⟨1,x_i⟩ − γ/(2C_i) ‖x_i‖²] − ½⟨A, KA⟩,     x_i in the domain of C_i φ

with a_ij = −x_ij for the wrong classes and a_{i,y_i} = ⟨1,x_i⟩, as in `tests/reference/top_k_ascent.py`. The gap is a
sum of nonnegative terms:  P − D = Σ_i [C_i φ(z_i) − ⟨x_i,z_i⟩ + γ/(2C_i) ‖x_i‖²].  A visit to row i finds the
exact maximum over x_i; the scores S then change by K[:, i] times the change of a_i. Cost of a pass: n² times the
changed classes of a row; memory: K, and n × m for each of S and x.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.top_k_ascent import Loss, signed_duals, visit

__all__ = ["ascend", "bounds", "row_gaps", "visit_rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def visit_rows(K: Floats, S: Floats, rows: npt.ArrayLike, y: Ints, x: Floats, costs: Floats, loss: Loss) -> None:
    """Visit rows in their order; x and S = K A, both (n_samples, n_classes), are changed in place."""
    for i in np.asarray(rows):
        if costs[i] == 0.0:
            continue
        best = visit(S[i], float(K[i, i]), x[i], int(y[i]), float(costs[i]), loss)
        S += np.outer(K[:, i], signed_duals((best - x[i])[None, :], y[i : i + 1])[0])
        x[i] = best


def row_gaps(S: Floats, y: Ints, x: Floats, costs: Floats, loss: Loss) -> Floats:
    """C_i φ(z_i) − ⟨x_i,z_i⟩ + γ/(2C_i) ‖x_i‖² of each row, given the scores S = K A."""
    n, n_classes = S.shape
    wrong = np.arange(n_classes) != np.asarray(y)[:, None]
    z = (1.0 + S - S[np.arange(n), y][:, None])[wrong].reshape(n, -1)
    quadratic = np.divide(loss.smoothing, 2.0 * costs, out=np.zeros(n), where=costs > 0.0)
    products = np.einsum("ij,ij->i", x[wrong].reshape(n, -1), z)
    gaps: Floats = costs * loss.value(z) - products + quadratic * (x * x).sum(axis=1)
    return gaps


def bounds(K: Floats, y: Ints, x: Floats, costs: Floats, loss: Loss) -> tuple[float, float]:
    """P and D of the dual variables x (n_samples, n_classes)."""
    A = signed_duals(x, y)
    S = K @ A
    quadratic = np.divide(loss.smoothing, 2.0 * costs, out=np.zeros(len(costs)), where=costs > 0.0)
    dual = float(x.sum() - quadratic @ (x * x).sum(axis=1) - 0.5 * (A * S).sum())
    return dual + float(row_gaps(S, y, x, costs, loss).sum()), dual


def ascend(
    K: Floats, y: Ints, x: Floats, costs: Floats, loss: Loss, *, tol: float, max_iter: int, rng: np.random.Generator
) -> tuple[int, bool]:
    """Improve the dual variables x (n_samples, n_classes) in place until the relative gap is at most `tol`.

    Returns the number of passes over the rows, and whether the tolerance was reached.
    """
    for n_iter in range(1, max_iter + 1):
        S = K @ signed_duals(x, y)
        visit_rows(K, S, rng.permutation(len(y)), y, x, costs, loss)
        primal, dual = bounds(K, y, x, costs, loss)
        if primal - dual <= tol * max(abs(primal), abs(dual)):
            return n_iter, True
    return max_iter, False
