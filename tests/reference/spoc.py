"""Specification of SPOC (Crammer and Singer 2002, figures 3 and 4): NumPy, float64, the whole kernel matrix.

    minimise  P = ½‖M‖² + Σ_i C_i max_r (b_ir + s_ir − s_{i,y_i}),      S = K T,   τ_ir = C_i [[r = y_i]] − η_ir
    maximise  D = Σ_ir b_ir η_ir − ½⟨T, K T⟩,                          η_i ≥ 0,   Σ_r η_ir = C_i

with C = 1/β in the paper, whose η and τ are multiplied by C here. For outputs h, K = h h' and the code is M = T' h. The
example with the largest violation ψ of the optimality conditions is chosen, its η_i maximised exactly, and S moved by
its column of K. Cost of a step: n · k; memory: K, and a few arrays (n, k). The compiled solver adds `face_step`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["bounds", "face_step", "reduced_threshold", "row_gaps", "signed", "solve", "violations", "visit"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def reduced_threshold(D: Floats, total: float = 1.0) -> float:
    """θ with Σ_r (D_r − θ)₊ = total: figure 3, for D of shape (k,).

    Examples
    --------
    >>> round(reduced_threshold(np.array([1.0, 0.2, 0.6, 0.8, 0.6])), 12)
    0.5
    """
    ordered = np.sort(D)[::-1]
    r, phi = 1, total
    while r < len(D):
        following = phi - r * (ordered[r - 1] - ordered[r])
        if following <= 0.0:
            break
        phi, r = following, r + 1
    return float(ordered[r - 1] - phi / r)


def signed(eta: Floats, y: Ints, costs: Floats) -> Floats:
    """T of the dual variables η, both (n_samples, n_classes)."""
    T = -eta
    T[np.arange(len(y)), y] += costs
    return T


def visit(F: Floats, norm: float, eta: Floats, cost: float) -> Floats:
    """The best η_i (n_classes,) with the other examples fixed; F = b_i + s_i with its own part, norm = K_ii."""
    if norm * cost <= 0.0:  # F does not move: all on the largest
        return np.where(np.arange(len(F)) == F.argmax(), cost, 0.0)
    D = F / norm + eta
    best: Floats = np.maximum(D - reduced_threshold(D, cost), 0.0)
    return best


def violations(F: Floats, eta: Floats) -> Floats:
    """ψ_i = max_r F_ir − min {F_ir : η_ir > 0}, 0 where the optimality conditions hold and where C_i is 0."""
    psi: Floats = np.maximum(F.max(axis=1) - np.where(eta > 0.0, F, np.inf).min(axis=1), 0.0)
    return psi


def row_gaps(F: Floats, eta: Floats) -> Floats:
    """g_i = Σ_r η_ir (max_q F_iq − F_ir), between 0 and C_i ψ_i; their sum is P − D."""
    gaps: Floats = (eta * (F.max(axis=1)[:, None] - F)).sum(axis=1)
    return gaps


def bounds(K: Floats, y: Ints, b: Floats, costs: Floats, eta: Floats) -> tuple[float, float]:
    """P and D of the dual variables η (n_samples, n_classes)."""
    T = signed(eta, y, costs)
    S = K @ T
    dual = float((b * eta).sum() - 0.5 * (T * S).sum())
    return dual + float(row_gaps(b + S, eta).sum()), dual


def solve(K: Floats, y: Ints, b: Floats, costs: Floats, eta: Floats, *, tol: float, max_iter: int) -> tuple[int, bool]:
    """Figure 4: improve η (n_samples, n_classes) in place, the worst example first, until the relative gap is `tol`.

    Returns the number of steps, and whether the tolerance was reached; it is tested with a
    recomputed S after every n_samples steps, and if a step changes nothing, because all later ones would be the same.
    """
    S = K @ signed(eta, y, costs)
    stuck = False
    for n_iter in range(max_iter + 1):
        if n_iter % len(y) == 0 or stuck:
            primal, dual = bounds(K, y, b, costs, eta)
            if primal - dual <= tol * max(abs(primal), abs(dual)):
                return n_iter, True
            if stuck or n_iter == max_iter:
                return n_iter, False
            S = K @ signed(eta, y, costs)
        p = int(violations(b + S, eta).argmax())
        best = visit(b[p] + S[p], float(K[p, p]), eta[p], float(costs[p]))
        stuck = bool((best == eta[p]).all())
        S -= np.outer(K[:, p], best - eta[p])
        eta[p] = best
    return max_iter, False


def face_step(h: Floats, b: Floats, y: Ints, costs: Floats, eta: Floats, ridge: float = 1e-4) -> tuple[Floats, float]:
    """η after a step on the face of its positive entries, and the gain of the dual.

    The step v maximises ⟨F, v⟩ − ½‖Σ_i h_i v_i'‖² − ½ ridge Σ_i ‖h_i‖² ‖v_i‖² over v with Σ_r v_ir = 0 that are 0
    where η is 0, and is halved until the dual improves after projection of every row.
    """
    norms = (h * h).sum(axis=1)
    free = (eta > 1e-12 * costs[:, None]) & (norms > 0.0)[:, None]
    free &= (free.sum(axis=1) >= 2)[:, None]
    rows, labels = np.nonzero(free)
    if len(rows) == 0:
        return eta, 0.0
    same = (rows[:, None] == rows).astype(float)
    centre = np.eye(len(rows)) - same / same.sum(axis=1)
    gram = (h @ h.T)[np.ix_(rows, rows)] * (labels[:, None] == labels)
    hessian = centre @ (gram + ridge * np.diag(norms[rows])) @ centre
    F = b + h @ (signed(eta, y, costs).T @ h).T
    v = np.linalg.lstsq(hessian, centre @ F[rows, labels], rcond=1e-13)[0]
    before = _dual(h, b, y, costs, eta)
    for halving in range(14):
        moved = eta.copy()
        moved[rows, labels] += 0.5**halving * v
        for i in np.unique(rows):
            D = moved[i, free[i]]
            if D.min() < 0.0:
                moved[i, free[i]] = np.maximum(D - reduced_threshold(D, float(costs[i])), 0.0)
        gain = _dual(h, b, y, costs, moved) - before
        if gain > 0.0:
            return moved, gain
    return eta, 0.0


def _dual(h: Floats, b: Floats, y: Ints, costs: Floats, eta: Floats) -> float:
    M = signed(eta, y, costs).T @ h
    return float((b * eta).sum() - 0.5 * (M * M).sum())
