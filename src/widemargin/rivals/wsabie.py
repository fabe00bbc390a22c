"""Wsabie and its successor W++: features and labels embedded in one space, trained for the top of the ranking.

    score of class g  =  V_g · (U x),      loss of (x, y)  ≈  L(rank of y) · max(0, 1 + s_g − s_y)

For each row, wrong classes are drawn at random, at most n_classes − 1 of them, until one has s_g > s_y − 1 and is not
among the last Q violators of class y; then g is remembered. The step on (y, g) is weighted by L(r) = Σ_{j ≤ r} 1/j with
the rank estimated as r = ⌊(n_classes − 1) / draws⌋; AdaGrad scales it (Weston et al. 2011). Skipping remembered
violators spends fewer steps on the classes that are hardest to separate, as Gupta, Bengio and Weston (2014) want; it
follows the abstract and introduction of their paper, whose Table 3 was not available.
The problem is not convex: there is no lower bound, hence no certificate, and other seeds find other models.
Memory: X, and U and V with a sum of squares for each of their entries; prediction embeds `memory_limit_mb` of rows at a
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import Tags, check_random_state
from threadpoolctl import threadpool_limits

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import COMMON_CONSTRAINTS, COUNT, POSITIVE, Number, keep_data, training_data
from widemargin.problems.scores import LinearScorer
from widemargin.solvers.limits import Limits, history_of, with_deadline_of
from widemargin.solvers.result import Callback, Progress, Status

__all__ = ["EmbeddedScorer", "Embedding", "Wsabie"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

SMALLEST_SQUARE = 1e-12  # keeps AdaGrad's root away from 0
SEEDS = np.iinfo(np.int32).max
MEGABYTE = 2**20


@with_shared_passages
@dataclass(eq=False, repr=False)
class Wsabie(LabelModel):
    """Wsabie: features and labels in one space, trained by sampling classes that come too close.

    The problem is not convex, so there is no certificate: `certificate_` raises an AttributeError that says so. `fit`
    takes no weights of rows, because stochastic gradient treats a weighted row differently from a repeated one.

    Parameters
    ----------
    embedding_size : int, default=256
        Dimension of the space.
    Q : int, default=0
        0 is plain Wsabie. W++ remembers the last Q violators of each class and skips them when they are drawn again, so
        fewer steps are spent on the classes that are hardest to separate (Gupta, Bengio, Weston 2014; after their
        abstract and introduction, since their Table 3 was not available). One wrong class is never remembered: values
        above n_classes − 2 have the effect of n_classes − 2.
    learning_rate : float, default=0.1
        Step size of AdaGrad.
    <normalize>
    max_iter : int, default=20
        Number of epochs: passes over the rows. All of them are made, since no bound could end training earlier.
    <prediction_memory>
    callback : callable or None, default=None
        Called after each epoch with a `Progress` whose `primal` is the mean loss met on the way and whose `dual` is
        −inf; training stops when it returns true. `TimeLimit` sets a time limit.
    <n_jobs>
    random_state : int, RandomState instance or None, default=None
        Determines the start, the order of the rows, and the classes that are drawn.
    <verbose>

    Attributes
    ----------
    feature_embedding_ : ndarray of shape (embedding_size, n_features)
        U.
    label_embedding_ : ndarray of shape (n_classes, embedding_size)
        V.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Zeros.
    history_ : History
        What happened, one row per epoch; `loss` is the mean of the weighted hinges met, `violated` the share of rows
        with one.
    n_iter_ : int
        Number of epochs.
    status_ : Status
        `Status.MAX_ITER` after all epochs, `Status.TIME_LIMIT` or `Status.STOPPED` if the callback ended training.
    <training_data_attributes>

    <four_classes>
    >>> from widemargin.rivals import Wsabie
    >>> model = Wsabie(embedding_size=8, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9, hasattr(model, "certificate_")
    (True, False)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "embedding_size": [COUNT],
        "Q": [Number(Integral, 0, None, closed="left")],
        "learning_rate": [POSITIVE],
    }

    embedding_size: int = 256
    Q: int = 0
    _: KW_ONLY
    learning_rate: float = 0.1
    normalize: bool = False
    max_iter: int = 20
    memory_limit_mb: float = 1024
    callback: Callback | None = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def fit(self, X: Any, y: Any) -> Wsabie:
        """Train on rows with one label each.

        <training_rows_to_model>
        """
        data = training_data(self, X, y, several_labels=False)
        labels, n_classes = data.targets.indices, data.targets.n_classes
        rng = np.random.default_rng(int(check_random_state(self.random_state).randint(SEEDS)))
        size, rate = int(self.embedding_size), float(self.learning_rate)
        embedding = Embedding(data.X.shape[1], n_classes, size, int(self.Q), rate, rng)
        limits = Limits(int(self.max_iter), with_deadline_of(self.callback, self._report))
        rows: list[tuple[float, ...]] = []
        status: Status | None = None
        while status is None:
            losses = embedding.visit_all(data.X, labels)
            seconds, loss = limits.elapsed_s, float(losses.mean())
            rows.append((len(rows) + 1, seconds, loss, float(np.mean(losses > 0.0))))
            status = limits.reached(len(rows), seconds, loss, -np.inf)
        self.classes_ = data.targets.classes
        self.feature_embedding_, self.label_embedding_ = np.ascontiguousarray(embedding.U.T), embedding.V
        self.intercept_ = np.zeros(1 if n_classes == 2 else n_classes)
        keep_data(self, data)
        self.history_ = history_of(rows, ("iteration", "seconds", "loss", "violated"), whole=())
        self.n_iter_, self.status_ = len(rows), status
        return self

    def _report(self, progress: Progress) -> bool:
        """Print a line when `verbose` is positive, and ask the callback."""
        if self.verbose > 0:
            epochs = f"{progress.done:,} of {progress.total:,} epochs"
            print(f"{epochs} in {progress.elapsed_s:.1f} s, mean loss {progress.primal:.6g}", flush=True)
        return self.callback is not None and self.callback(progress)

    @property
    def certificate_(self) -> NoReturn:
        """There is none: raises an AttributeError with the reason."""
        raise AttributeError(
            "Wsabie has no certificate_, because its problem is not convex and no bound on the optimum is known; "
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
        """V, or the difference of its rows for two classes."""
        V = self.label_embedding_
        return V[1:] - V[:1] if self.kind_ == "binary" else V

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        V, U = self._outputs()[outputs].astype(np.float64), self.feature_embedding_[:, features].astype(np.float64)
        return V @ U, np.zeros(len(outputs))


class Embedding:
    """U (one row per feature) and V with AdaGrad's sums of squares, and the violators that classes remember.

    Sets: U, V and the private sums, by `visit`.

    Parameters
    ----------
    n_features, n_classes : int
        Rows of U and of V.
    size : int
        Columns of U and V.
    n_remembered : int
        Q: how many violators of a class are remembered and skipped; 0 for plain Wsabie.
    learning_rate : float
        Step size of AdaGrad.
    rng : numpy.random.Generator
        Draws the start, the order of the rows and the wrong classes.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.wsabie import Embedding
    >>> X, y = np.eye(3), np.array([0, 1, 2])
    >>> embedding = Embedding(3, 3, 4, 0, 0.1, np.random.default_rng(0))
    >>> losses = [embedding.visit_all(X, y) for _ in range(50)]
    >>> (X @ embedding.U @ embedding.V.T).argmax(axis=1)
    array([0, 1, 2])
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

    def visit_all(self, X: Any, y: npt.NDArray[Any]) -> Floats:
        """One epoch: a step on each row, in random order; their weighted hinges."""
        order = self._rng.permutation(X.shape[0])
        with threadpool_limits(limits=1, user_api="blas"):  # products are small
            return np.array([self.visit(*_row(X, i), int(y[i])) for i in order])

    def visit(self, features: Any, values: Floats, true: int) -> float:
        """A step on one row, given by its non-zeros; its weighted hinge, 0 if no violator was met."""
        embedded = values @ self.U[features]
        scores = self.V @ embedded
        violator, draws = self._violator(scores, true)
        if draws == 0:
            return 0.0
        weight = float(self._rank_weights[(len(scores) - 1) // draws - 1])
        towards = weight * (self.V[violator] - self.V[true])
        self._descend(self.U, self._squares_U, features, values[:, None] * towards)
        self._descend(self.V, self._squares_V, violator, weight * embedded)
        self._descend(self.V, self._squares_V, true, -weight * embedded)
        return weight * float(1.0 + scores[violator] - scores[true])

    def _violator(self, scores: Floats, true: int) -> tuple[int, int]:
        """A wrong class with s_g > s_y − 1 that is not remembered, and the number of draws; 0 if none was met."""
        n_wrong = len(scores) - 1
        drawn = self._rng.integers(0, n_wrong, size=n_wrong)
        drawn += drawn >= true
        memory = self._remembered[true]
        for position in np.flatnonzero(scores[drawn] > scores[true] - 1.0).tolist():
            found = int(drawn[position])
            if found not in memory:
                memory.append(found)
                return found, position + 1
        return -1, 0

    def _descend(self, weights: Floats, squares: Floats, rows: Any, gradient: Floats) -> None:
        """AdaGrad: move each entry by its gradient over the root of the sum of its squares."""
        sums = squares[rows] + gradient**2
        squares[rows] = sums
        weights[rows] -= self._rate * gradient / np.sqrt(sums + SMALLEST_SQUARE)


def _row(X: Any, i: int) -> tuple[Any, Floats]:
    """Features and values of the non-zeros of a row."""
    if sp.issparse(X):
        part = slice(X.indptr[i], X.indptr[i + 1])
        return X.indices[part], X.data[part].astype(np.float64)
    features = np.flatnonzero(X[i])
    return features, X[i, features].astype(np.float64)


class EmbeddedScorer:
    """An embedding made ready for prediction: embeds some rows at a time, and scores them by `LinearScorer` on V.

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

    def __init__(self, features: Floats, labels: Floats, *, memory_limit_mb: float = 256.0) -> None:
        self._features = np.ascontiguousarray(features.T)
        self._labels = LinearScorer(labels, memory_limit_mb=memory_limit_mb)
        self._rows = max(1, int(memory_limit_mb * MEGABYTE / (8 * max(1, features.shape[0]))))

    def scores(self, X: Any, *, n_threads: int = 1) -> Floats:
        """Scores of all labels, of shape (n_samples, n_labels)."""
        return np.concatenate([self._labels.scores(rows, n_threads=n_threads) for _, rows in self._embedded(X)])

    def top_k(self, X: Any, k: int, *, n_threads: int = 1) -> tuple[Ints, Floats]:
        """The top k labels of every row and their scores, best first."""
        found = [self._labels.top_k(rows, k, n_threads=n_threads) for _, rows in self._embedded(X)]
        return np.concatenate([indices for indices, _ in found]), np.concatenate([scores for _, scores in found])

    def label_scores(self, X: Any, labels: Ints, *, n_threads: int = 1) -> Floats:
        """Score of one label of each row."""
        scorer = self._labels
        parts = [scorer.label_scores(rows, labels[part], n_threads=n_threads) for part, rows in self._embedded(X)]
        return np.concatenate(parts)

    def _embedded(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """U x of successive rows; one block without rows if there are none."""
        for first in range(0, max(1, X.shape[0]), self._rows):
            part = slice(first, first + self._rows)
            rows = X[part].astype(np.float64) if sp.issparse(X) else np.asarray(X[part], dtype=np.float64)
            yield part, np.ascontiguousarray(rows @ self._features)
