"""A step on the face of the top-k dual that an ascent has settled on, where visits of single rows move too slowly.

The dual variables strictly between their bounds stay free, the others keep to their bound (for α: to ⟨1,x⟩/k, which
moves); on a row with ⟨1,x⟩ = C_i the sum stays. On that face the dual is a quadratic without bounds,

    D(x + T v) = D(x) + g·v − ½ v'H v,        H v = T' (scores of the change of W),

maximised by conjugate gradients, preconditioned by the blocks of H of single rows, N_i (I + c 11'). The step is then
cut to what improves the dual after projection of every row onto its domain. An iteration costs two products of the rows
that have dual variables with a matrix of the size of W; memory: a few arrays (support rows, n_classes) in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.top_k_losses import TopKHinge

__all__ = ["Face", "face_step", "with_constant"]

Floats = npt.NDArray[np.float64]
AT_BOUND = 1e-9  # relative distance from a bound within which a dual variable, or a sum of them, is taken to be there
RESIDUAL = 1e-6  # conjugate gradients end when the residual is this small against the first
HALVINGS = 12  # of the step, before it is given up


class Face:
    """The free directions at dual variables x (n_rows, n_classes) of rows X (n_rows, n_features) with positive costs.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.face import Face
    >>> X, y, x = np.eye(2), np.array([0, 1]), np.array([[0.0, 0.2, 0.0], [1.0, 0.0, 0.0]])
    >>> Face(X, y, x, np.ones(2), TopKHinge(1)).free.tolist()  # the second row's is at its bound
    [[False, True, False], [False, False, False]]
    """

    def __init__(self, X: Any, y: npt.NDArray[np.int64], x: Floats, costs: Floats, loss: TopKHinge) -> None:
        self.X, self.y, self.rows = X, y, np.arange(len(y))
        total = x.sum(axis=1)
        cap = (total if loss.variant == "alpha" else costs) / loss.k
        at_cap = (x >= cap[:, None] * (1.0 - AT_BOUND)) & (x > 0.0)
        self.free = (x > AT_BOUND * costs[:, None]) & ~at_cap
        fixed_sum = total >= costs * (1.0 - AT_BOUND)
        alpha = loss.variant == "alpha" and loss.k > 1
        # With p values at the cap σ/k, a change v of the free ones changes the sum by σ' = Σv + p σ'/k.
        n_capped = at_cap.sum(axis=1) if alpha else np.zeros(len(y))
        moves = ~fixed_sum & (n_capped < loss.k)
        self.rise = np.where(moves, loss.k / np.maximum(loss.k - n_capped, 1.0), 0.0)
        self.follow = at_cap / loss.k if alpha else np.zeros_like(x)
        self.count = np.maximum(self.free.sum(axis=1), 1)
        squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
        self.norms = np.maximum(np.asarray(squares).ravel(), np.finfo(float).tiny)
        self.curvature = self.rise**2 * (1.0 + n_capped / loss.k**2)

    def within(self, v: Floats) -> Floats:
        """The part of v (n_rows, n_classes) that is on the face: free, and of sum 0 where the sum is fixed."""
        v = np.where(self.free, v, 0.0)
        mean = np.where(self.rise == 0.0, v.sum(axis=1) / self.count, 0.0)
        return v - np.where(self.free, mean[:, None], 0.0)

    def change(self, v: Floats) -> tuple[Floats, Floats]:
        """The change of x and that of the signed duals, for v on the face."""
        sums = self.rise * v.sum(axis=1)
        dx = v + self.follow * sums[:, None]
        da = -dx
        da[self.rows, self.y] = sums
        return dx, da

    def pull(self, scores: Floats) -> Floats:
        """T' for values (n_rows, n_classes) of the signed duals: what a unit of each free variable picks up."""
        own = scores[self.rows, self.y] - (self.follow * scores).sum(axis=1)
        return self.within((self.rise * own)[:, None] - scores)

    def hessian(self, v: Floats) -> Floats:
        """H v."""
        W = self.change(v)[1].T @ self.X
        return self.pull(np.asarray(self.X @ W.T))

    def precondition(self, r: Floats) -> Floats:
        """r by the inverse of the blocks N_i (I + c 11')."""
        share = self.curvature / (1.0 + self.curvature * self.count)
        scaled = (r - np.where(self.free, (share * r.sum(axis=1))[:, None], 0.0)) / self.norms[:, None]
        return self.within(scaled)

    def ascend(self, gradient: Floats, max_iter: int) -> Floats:
        """The v that maximises the quadratic, or is on the way there after `max_iter` conjugate gradients."""
        v, r = np.zeros_like(gradient), gradient
        z = self.precondition(r)
        p, rz = z, float((r * z).sum())
        target = RESIDUAL**2 * rz
        for _ in range(max_iter):
            Hp = self.hessian(p)
            pHp = float((p * Hp).sum())
            if not pHp > 0.0:
                break
            step = rz / pHp
            v, r = v + step * p, r - step * Hp
            z = self.precondition(r)
            rz, previous = float((r * z).sum()), rz
            if not rz > target:
                break
            p = z + (rz / previous) * p
        return v


def face_step(
    X: Any, y: npt.NDArray[np.int64], x: Floats, costs: Floats, loss: TopKHinge, max_iter: int = 200
) -> tuple[Floats, float]:
    """Dual variables x (n_rows, n_classes) after a step on their face, and how much the dual gained; γ must be 0.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.face import face_step
    >>> X, y, x = np.array([[1.0]]), np.array([0]), np.array([[0.0, 0.1]])
    >>> face_step(X, y, x, np.ones(1), TopKHinge(1))  # D = x − ½(x² + x²), largest at ½
    (array([[0. , 0.5]]), 0.16)
    """
    face = Face(X, y, x, costs, loss)
    W = _weights_of(X, y, x)
    gradient = face.within(face.rise[:, None] - face.pull(np.asarray(X @ W.T)))
    if not gradient.any():
        return x, 0.0
    dx, _ = face.change(face.ascend(gradient, max_iter))
    before = float(x.sum()) - 0.5 * float((W * W).sum())
    for halving in range(HALVINGS):
        moved = _project(x + 0.5**halving * dx, y, costs, loss)
        W = _weights_of(X, y, moved)
        gain = float(moved.sum()) - 0.5 * float((W * W).sum()) - before
        if gain > 0.0:
            return moved, gain
    return x, 0.0


def with_constant(X: Any, intercept_scaling: float) -> Any:
    """X (n_rows, n_features) with a last column of value `intercept_scaling`, or as it is if that is 0."""
    if intercept_scaling == 0.0:
        return X
    column = np.full((X.shape[0], 1), intercept_scaling)
    return sp.csr_array(sp.hstack([X, column])) if sp.issparse(X) else np.hstack([X, column])


def _weights_of(X: Any, y: npt.NDArray[np.int64], x: Floats) -> Floats:
    """W = A' X, with a_ij = −x_ij for the wrong classes and a_{i,y_i} = ⟨1,x_i⟩, shape (n_classes, n_features)."""
    A = -x
    A[np.arange(len(y)), y] = x.sum(axis=1)
    W: Floats = A.T @ X
    return W


def _project(x: Floats, y: npt.NDArray[np.int64], costs: Floats, loss: TopKHinge) -> Floats:
    """Every row onto its domain; the true class is not one of its coordinates."""
    wrong = np.arange(x.shape[1]) != y[:, None]
    moved = np.zeros_like(x)
    moved[wrong] = loss.project(x[wrong].reshape(len(x), -1), costs).ravel()
    return moved
