"""Wsabie that skips remembered violators (W++): labels and features in one space, by stochastic gradient.

    score of class g  =  V_g · (U x),      loss of (x, y)  ≈  L(rank of y) · max(0, 1 + s_g − s_y)

For a row, wrong classes are drawn at random until one has s_g > s_y − 1 and is not among the last Q violators of class
y, at most n_classes − 1 of them; then g is remembered. The step on (y, g) is weighted by L(r) = Σ_{j ≤ r} 1/j with the
rank estimated as r = ⌊(n_classes − 1) / draws⌋; AdaGrad scales it (Weston et al. 2011). Skipping remembered violators
keeps the steps from the classes that are hardest to tell apart, as Gupta, Bengio and Weston (2014) want; it follows the
abstract and introduction of their paper, whose Table 3 was not at hand.
The problem is not convex: there is no bound from below, hence no certificate, and other seeds find other models.
Memory: X, and U and V with a sum of squares for each of their entries.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin.solvers._limits import history_of
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["WsabieResult", "train_wsabie"]

Floats: TypeAlias = npt.NDArray[np.float64]

SMALLEST_SQUARE = 1e-12
"""Keeps AdaGrad's root away from 0."""


@dataclass(frozen=True, eq=False)
class WsabieResult:
    """What the stochastic gradient found.

    Parameters
    ----------
    features : ndarray of shape (embedding_size, n_features)
        U.
    labels : ndarray of shape (n_classes, embedding_size)
        V.
    history : History
        One row an epoch; the loss is the mean of the weighted hinges met on the way.
    n_iter : int
        Epochs.
    status : Status
        `MAX_ITER` after all epochs, `STOPPED` where the callback asked for it.

    Examples
    --------
    >>> from widemargin.solvers.wsabie import WsabieResult
    >>> list(WsabieResult.__dataclass_fields__)
    ['features', 'labels', 'history', 'n_iter', 'status']
    """

    features: Floats
    labels: Floats
    history: History
    n_iter: int
    status: Status


def train_wsabie(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    *,
    embedding_size: int = 256,
    n_remembered: int = 0,
    learning_rate: float = 0.1,
    max_iter: int = 20,
    seed: int = 0,
    callback: Callback | None = None,
) -> WsabieResult:
    """Train for a number of epochs.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows.
    y : ndarray of int64 of shape (n_samples,)
        Class of each row, 0 … n_classes − 1.
    n_classes : int
        Number of classes, at least 2.
    embedding_size : int
        Rows of U.
    n_remembered : int
        Q: how many violators of a class are remembered and skipped, at most n_classes − 2; 0 for plain Wsabie.
    learning_rate : float
        Of AdaGrad.
    max_iter : int
        Epochs.
    seed : int
        Of the start, of the order of the rows, and of the classes that are drawn.
    callback : callable or None
        Called with a `Progress` after each epoch, whose `primal` is the mean loss met and `dual` −inf; stops training
        when true.

    Returns
    -------
    WsabieResult
        U, V and the history.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.wsabie import train_wsabie
    >>> X, y = np.eye(3), np.array([0, 1, 2])
    >>> found = train_wsabie(X, y, 3, embedding_size=4, max_iter=50)
    >>> (X @ found.features.T @ found.labels.T).argmax(axis=1)
    array([0, 1, 2])
    """
    began, rng = time.monotonic(), np.random.default_rng(seed)
    model = _Embedding(X.shape[1], n_classes, embedding_size, n_remembered, learning_rate, rng)
    rows: list[tuple[float, ...]] = []
    status = Status.MAX_ITER
    for epoch in range(max_iter):
        order = rng.permutation(X.shape[0])
        with threadpool_limits(limits=1, user_api="blas"):  # products are small
            losses = np.array([model.visit(*_row(X, i), int(y[i])) for i in order])
        seconds = time.monotonic() - began
        rows.append((epoch + 1, seconds, float(losses.mean()), float(np.mean(losses > 0.0))))
        if callback is not None and callback(Progress(epoch + 1, max_iter, seconds, rows[-1][2], -np.inf)):
            status = Status.STOPPED
            break
    history = history_of(rows, ("iteration", "seconds", "loss", "violated"), whole=())
    features = np.ascontiguousarray(model.U.T)
    return WsabieResult(features, model.V, history, len(rows), status)


class _Embedding:
    """U (by feature) and V with AdaGrad's sums of squares, and the violators that classes remember.

    Sets: U, V, and the private sums, by `visit`.
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        size: int,
        n_remembered: int,
        learning_rate: float,
        rng: np.random.Generator,
    ) -> None:
        self.U = rng.normal(scale=1.0 / np.sqrt(n_features), size=(n_features, size))
        self.V = rng.normal(scale=1.0 / np.sqrt(size), size=(n_classes, size))
        self._squares_U, self._squares_V = np.zeros_like(self.U), np.zeros_like(self.V)
        # One wrong class is never remembered: a class that skips all others would not be trained again.
        self._remembered = [deque[int](maxlen=min(n_remembered, n_classes - 2)) for _ in range(n_classes)]
        self._rank_weights = np.cumsum(1.0 / np.arange(1, n_classes))  # L(r) at r − 1
        self._rate, self._rng = learning_rate, rng

    def visit(self, places: Any, values: Floats, true: int) -> float:
        """A step on one row, given by its non-zeros; its weighted hinge, 0 where no violator was met."""
        embedded = values @ self.U[places]
        scores = self.V @ embedded
        violator, draws = self._violator(scores, true)
        if draws == 0:
            return 0.0
        n_wrong = len(scores) - 1
        weight = float(self._rank_weights[n_wrong // draws - 1])
        towards = weight * (self.V[violator] - self.V[true])
        self._descend(self.U, self._squares_U, places, values[:, None] * towards)
        self._descend(self.V, self._squares_V, violator, weight * embedded)
        self._descend(self.V, self._squares_V, true, -weight * embedded)
        return weight * float(1.0 + scores[violator] - scores[true])

    def _violator(self, scores: Floats, true: int) -> tuple[int, int]:
        """A wrong class with s_g > s_y − 1 that is not remembered, and the number of draws; 0 where none was met."""
        n_wrong = len(scores) - 1
        drawn = self._rng.integers(0, n_wrong, size=n_wrong)
        drawn += drawn >= true
        memory = self._remembered[true]
        violating = scores[drawn] > scores[true] - 1.0
        for place in np.flatnonzero(violating).tolist():
            found = int(drawn[place])
            if found not in memory:
                memory.append(found)
                return found, place + 1
        return -1, 0

    def _descend(self, weights: Floats, squares: Floats, places: Any, gradient: Floats) -> None:
        """AdaGrad: each entry by its gradient over the root of the sum of its squares."""
        sums = squares[places] + gradient**2
        squares[places] = sums
        weights[places] -= self._rate * gradient / np.sqrt(sums + SMALLEST_SQUARE)


def _row(X: Any, i: int) -> tuple[Any, Floats]:
    """Places and values of the non-zeros of a row."""
    if sp.issparse(X):
        part = slice(X.indptr[i], X.indptr[i + 1])
        return X.indices[part], X.data[part].astype(np.float64)
    places = np.flatnonzero(X[i])
    return places, X[i, places].astype(np.float64)
