"""Specification of the top-k multiclass SVM by dual ascent: NumPy, float64, one row after another.

    minimise  P(W) = ½‖W‖² + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   s_i = W x_i
    maximise  D(A) = Σ_i [⟨1,x_i⟩ − γ/(2C_i) ‖x_i‖²] − ½‖W(A)‖²,     x_i in the domain of C_i φ,   W(A) = Σ_i a_i x_i'

with a_ij = −x_ij for the wrong classes and a_{i,y_i} = ⟨1,x_i⟩. A visit to row i finds the exact maximum over x_i, a
biased projection (Lapin, Hein, Schiele 2015, Prop. 4; the true class is left out of z). Cost of a pass: n · m · d;
memory: W and the dual variables, n × m.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Loss", "ascend", "bounds", "signed_duals", "visit", "weights_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Loss(Protocol):
    """The part used here of `widemargin.problems.top_k_losses.TopKHinge`."""

    @property
    def smoothing(self) -> float:
        """γ, 0 for the plain loss."""

    def value(self, z: Floats) -> Floats:
        """φ of each row."""

    def project(self, a: Floats, cost: npt.ArrayLike = 1.0, rho: npt.ArrayLike = 0.0) -> Floats:
        """Biased projection of each row onto the domain of cost · φ."""


def signed_duals(x: Floats, y: Ints) -> Floats:
    """A from the dual variables x, both (n_samples, n_classes); x is 0 at the true class."""
    A = -x
    A[np.arange(len(y)), y] = x.sum(axis=1)
    return A


def weights_of(X: Floats, y: Ints, x: Floats) -> Floats:
    """W(A) of shape (n_classes, n_features)."""
    W: Floats = signed_duals(x, y).T @ X
    return W


def visit(scores: Floats, norm: float, x: Floats, y: int, cost: float, loss: Loss) -> Floats:
    """The best x_i, the other rows fixed.

    `scores` (n_classes,) are W x_i with this row's own part included, `norm` = ‖x_i‖², `x` (n_classes,) the value
    so far.
    """
    smoothing = loss.smoothing / cost if loss.smoothing > 0.0 else 0.0
    wrong = np.arange(len(x)) != y
    if norm + smoothing <= 0.0:  # a row of zeros: its margins are 1 for every W, so any x with sum C_i is optimal
        return np.where(wrong, cost / (len(x) - 1), 0.0)
    own = np.where(wrong, -x, x.sum())
    others = scores - norm * own
    b = (others[wrong] + 1.0 - others[y]) / (norm + smoothing)
    best = np.zeros(len(x))
    best[wrong] = loss.project(b[None, :], cost, norm / (norm + smoothing))[0]
    return best


def bounds(W: Floats, X: Floats, y: Ints, x: Floats, costs: Floats, loss: Loss) -> tuple[float, float]:
    """P(W), and D of the dual variables x (n_samples, n_classes); W need not be W(A)."""
    scores = X @ W.T
    rows = np.arange(len(y))
    z = 1.0 + scores - scores[rows, y][:, None]
    wrong = np.ones(z.shape, dtype=bool)
    wrong[rows, y] = False
    margins = z[wrong].reshape(len(y), -1)
    primal = 0.5 * float((W * W).sum()) + float(costs @ loss.value(margins))
    quadratic = np.divide(loss.smoothing, 2.0 * costs, out=np.zeros(len(costs)), where=costs > 0.0)
    norm = float((weights_of(X, y, x) ** 2).sum())
    return primal, float(x.sum()) - float(quadratic @ (x * x).sum(axis=1)) - 0.5 * norm


def ascend(
    X: Floats,
    y: Ints,
    x: Floats,
    costs: Floats,
    loss: Loss,
    *,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
) -> tuple[int, bool]:
    """Improve the dual variables x (n_samples, n_classes) in place until the relative gap is at most `tol`.

    Returns the number of passes over the rows, and whether the tolerance was reached.
    """
    norms = np.einsum("ij,ij->i", X, X)
    W = weights_of(X, y, x)
    for n_iter in range(1, max_iter + 1):
        for i in rng.permutation(len(y)):
            if costs[i] == 0.0:
                continue
            best = visit(W @ X[i], norms[i], x[i], int(y[i]), float(costs[i]), loss)
            change = signed_duals((best - x[i])[None, :], y[i : i + 1])[0]
            W += np.outer(change, X[i])
            x[i] = best
        W = weights_of(X, y, x)
        primal, dual = bounds(W, X, y, x, costs, loss)
        if primal - dual <= tol * max(abs(primal), abs(dual)):
            return n_iter, True
    return max_iter, False
