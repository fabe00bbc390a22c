"""Wsabie and its successor W++: an embedding trained for the top of the ranking, not convex and without a certificate.

    score of class g  =  V_g · (U x)

Trained by stochastic gradient in `widemargin.rivals.wsabie`; memory is the data and U and V twice.

Wsabie that skips remembered violators (W++): labels and features in one space, by stochastic gradient.

    score of class g  =  V_g · (U x),      loss of (x, y)  ≈  L(rank of y) · max(0, 1 + s_g − s_y)

For a row, wrong classes are drawn at random until one has s_g > s_y − 1 and is not among the last Q violators of class
y, at most n_classes − 1 of them; then g is remembered. The step on (y, g) is weighted by L(r) = Σ_{j ≤ r} 1/j with the
rank estimated as r = ⌊(n_classes − 1) / draws⌋; AdaGrad scales it (Weston et al. 2011). Skipping remembered violators
keeps the steps from the classes that are hardest to tell apart, as Gupta, Bengio and Weston (2014) want; it follows the
abstract and introduction of their paper, whose Table 3 was not at hand.
The problem is not convex: there is no bound from below, hence no certificate, and other seeds find other models.
Memory: X, and U and V with a sum of squares for each of their entries.

Scores of a model that embeds features and labels in one space, in bounded memory.

    score[i, l] = V_l · (U x_i)

Rows are embedded some at a time, and scored by `LinearScorer` on V. Memory: `memory_limit_mb` of embedded rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import Tags, check_random_state
from threadpoolctl import threadpool_limits

from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    COUNT,
    POSITIVE,
    Number,
    keep_data,
    training_data,
)
from widemargin.problems.scores import LinearScorer
from widemargin.solvers.limits import history_of
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["EmbeddedScorer", "Wsabie", "WsabieResult", "train_wsabie"]

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
    >>> from widemargin.rivals.wsabie import WsabieResult
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
    >>> from widemargin.rivals.wsabie import train_wsabie
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


_MEGABYTE = 2**20


class EmbeddedScorer:
    """An embedding made ready for prediction.

    Parameters
    ----------
    features : ndarray of shape (embedding_size, n_features)
        U.
    labels : ndarray of shape (n_labels, embedding_size)
        V.
    memory_limit_mb : float, default=256
        Bound on the embedded rows.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.wsabie import EmbeddedScorer
    >>> scorer = EmbeddedScorer(np.array([[1.0, 2.0]]), np.array([[1.0], [-1.0], [0.5]]))
    >>> scorer.scores(np.array([[1.0, 1.0]]))
    array([[ 3. , -3. ,  1.5]])
    >>> scorer.top_k(np.array([[1.0, 1.0]]), k=2)[0]
    array([[0, 2]])
    """

    def __init__(
        self, features: npt.NDArray[np.float64], labels: npt.NDArray[np.float64], *, memory_limit_mb: float = 256.0
    ) -> None:
        self._features = np.ascontiguousarray(features.T)
        self._labels = LinearScorer(labels, memory_limit_mb=memory_limit_mb)
        self._rows = max(1, int(memory_limit_mb * _MEGABYTE / (8 * max(1, features.shape[0]))))

    def scores(self, X: Any, *, n_threads: int = 1) -> npt.NDArray[np.float64]:
        """Scores of all labels, of shape (n_samples, n_labels)."""
        found = [self._labels.scores(part, n_threads=n_threads) for _, part in self._embedded(X)]
        return np.concatenate(found) if found else np.empty((0, self._labels.n_labels))

    def top_k(self, X: Any, k: int, *, n_threads: int = 1) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The k best labels of every row and their scores, best first."""
        indices = np.empty((X.shape[0], k), dtype=np.int64)
        scores = np.empty((X.shape[0], k))
        for part, rows in self._embedded(X):
            indices[part], scores[part] = self._labels.top_k(rows, k, n_threads=n_threads)
        return indices, scores

    def label_scores(self, X: Any, labels: npt.NDArray[np.int64], *, n_threads: int = 1) -> npt.NDArray[np.float64]:
        """Score of one label of each row."""
        scores = np.empty(X.shape[0])
        for part, rows in self._embedded(X):
            scores[part] = self._labels.label_scores(rows, labels[part], n_threads=n_threads)
        return scores

    def _embedded(self, X: Any) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
        """U x of successive rows."""
        for first in range(0, X.shape[0], self._rows):
            part = slice(first, first + self._rows)
            rows = X[part].astype(np.float64) if sp.issparse(X) else np.asarray(X[part], dtype=np.float64)
            yield part, np.ascontiguousarray(rows @ self._features)


SEEDS = np.iinfo(np.int32).max


class Wsabie(LabelModel):
    """Wsabie: features and labels in one space, trained by sampling classes that come too close.

    The problem is not convex, so there is no certificate: `certificate_` raises an AttributeError that says so. Rows
    have no weights: a stochastic gradient of weighted rows is not that of repeated ones.

    Parameters
    ----------
    embedding_size : int, default=256
        Dimension of the space.
    Q : int, default=0
        0 is plain Wsabie. W++ remembers the last Q violators of each class and skips them when they are drawn again, so
        that fewer steps are spent on the classes that are hardest to tell apart (Gupta, Bengio, Weston 2014; after
        their abstract and introduction, since their Table 3 was not at hand). The last of the wrong classes is never
        remembered: with n_classes classes, values above n_classes − 2 are the same as that.
    learning_rate : float, default=0.1
        Step size of AdaGrad.
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    max_iter : int, default=20
        Epochs: passes over the rows. All of them are made: there is no bound that could end training earlier.
    memory_limit_mb : float, default=1024
        Bound on the dense result of `decision_function`, and on work areas of prediction.
    callback : callable or None, default=None
        Called after each epoch with a `Progress` whose `primal` is the mean loss met on the way and whose `dual` is
        −inf; training stops when it returns true.
    n_jobs : int or None, default=None
        Threads of prediction, -1 for all cores.
    random_state : int, RandomState instance or None, default=None
        Decides the start, the order of the rows, and the classes that are drawn.
    verbose : int, default=0
        Prints progress when positive.

    Attributes
    ----------
    feature_embedding_ : ndarray of shape (embedding_size, n_features)
        U.
    label_embedding_ : ndarray of shape (n_classes, embedding_size)
        V.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Zeros.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    history_ : History
        What happened, one row an epoch.
    n_iter_ : int
        Epochs.
    label_counts_ : ndarray of shape (n_classes,)
        Training rows of each class.
    n_samples_fit_ : int
        Training rows.
    status_ : Status
        `Status.MAX_ITER` after all epochs, `Status.STOPPED` if the callback asked for it.
    kind_ : str
        "binary" or "multiclass".

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals import Wsabie
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.2 * rng.normal(size=(60, 4))
    >>> model = Wsabie(embedding_size=8, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9, hasattr(model, "certificate_")
    (True, False)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "embedding_size": [COUNT],
        "Q": [Number(Integral, 0, None, closed="left")],
        "learning_rate": [POSITIVE],
    }

    def __init__(
        self,
        embedding_size: int = 256,
        Q: int = 0,
        *,
        learning_rate: float = 0.1,
        normalize: bool = False,
        max_iter: int = 20,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.embedding_size = embedding_size
        self.Q = Q
        self.learning_rate = learning_rate
        self.normalize = normalize
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Wsabie:
        """Train on rows with one label each.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.

        Returns
        -------
        Wsabie
            The fitted model.
        """
        data = training_data(self, X, y, several_labels=False)
        found = train_wsabie(
            data.X,
            data.targets.indices.astype(np.int64, copy=False),
            data.targets.n_classes,
            embedding_size=int(self.embedding_size),
            n_remembered=int(self.Q),
            learning_rate=float(self.learning_rate),
            max_iter=int(self.max_iter),
            seed=int(check_random_state(self.random_state).randint(SEEDS)),
            callback=_printing(self.verbose, self.callback),
        )
        self.classes_ = data.targets.classes
        self.feature_embedding_, self.label_embedding_ = found.features, found.labels
        self.intercept_ = np.zeros(1 if data.targets.n_classes == 2 else data.targets.n_classes)
        keep_data(self, data)
        self.history_, self.n_iter_, self.status_ = found.history, found.n_iter, found.status
        return self

    @property
    def certificate_(self) -> NoReturn:
        """There is none; an AttributeError with the reason."""
        raise AttributeError(
            "Wsabie has no certificate_: its problem is not convex, and no bound on its optimum is known; "
            "compare models on validation data"
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _n_weights(self) -> int:
        return int(self.feature_embedding_.size + self.label_embedding_.size)

    @property
    def scorer(self) -> EmbeddedScorer:
        """The scores of this model."""
        return EmbeddedScorer(self.feature_embedding_, self._outputs(), memory_limit_mb=self.memory_limit_mb)

    def _outputs(self) -> npt.NDArray[Any]:
        """V, of two classes the difference."""
        V = self.label_embedding_
        return V[1:] - V[:1] if self.kind_ == "binary" else V

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        V, U = self._outputs()[outputs].astype(np.float64), self.feature_embedding_[:, features].astype(np.float64)
        return V @ U, np.zeros(len(outputs))


def _printing(verbose: int, callback: Callback | None) -> Callback | None:
    """The user's callback, preceded by a printed line when `verbose` is positive."""
    if verbose <= 0:
        return callback

    def report(progress: Progress) -> bool:
        epochs = f"{progress.done:,} of {progress.total:,} epochs"
        print(f"{epochs} in {progress.elapsed_s:.1f} s, mean loss met {progress.primal:.6g}", flush=True)
        return callback(progress) if callback is not None else False

    return report
