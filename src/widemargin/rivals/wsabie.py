"""Wsabie and its successor W++: an embedding trained for the top of the ranking, not convex and without a certificate.

    score of class g  =  V_g · (U x)

Trained by stochastic gradient in `widemargin.solvers.wsabie`; memory is the data and U and V twice.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import validate_data

from widemargin.estimators._linear import LinearLabelModel
from widemargin.estimators._parameters import (
    boolean,
    check_parameters,
    jobs_or_none,
    positive,
    positive_integer,
    whole_number,
)
from widemargin.estimators._training import check_one_label_a_row, keep_targets
from widemargin.problems.embedded_scores import EmbeddedScorer
from widemargin.solvers.result import Callback, Progress
from widemargin.solvers.wsabie import train_wsabie

__all__ = ["Wsabie"]

SEEDS = np.iinfo(np.int32).max


class Wsabie(LinearLabelModel):
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
        self._check_parameters()
        data = check_one_label_a_row(self, X, y)
        validate_data(type(self)(), data.given, skip_check_array=True)  # refuses odd names of features before any work
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
        validate_data(self, data.given, skip_check_array=True)  # keeps the number and names of the features
        self.classes_ = data.targets.classes
        self.feature_embedding_, self.label_embedding_ = found.features, found.labels
        self.intercept_ = np.zeros(1 if data.targets.n_classes == 2 else data.targets.n_classes)
        self._forget_old_data()
        keep_targets(self, data.targets)
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

    def _check_parameters(self) -> None:
        check_parameters(
            self,
            embedding_size=positive_integer,
            Q=whole_number,
            learning_rate=positive,
            normalize=boolean,
            max_iter=positive_integer,
            memory_limit_mb=positive,
            n_jobs=jobs_or_none,
        )

    def _n_weights(self) -> int:
        return int(self.feature_embedding_.size + self.label_embedding_.size)

    def _scorer(self) -> EmbeddedScorer:
        return EmbeddedScorer(self.feature_embedding_, self._outputs(), memory_limit_mb=self.memory_limit_mb)

    def _outputs(self) -> npt.NDArray[Any]:
        """V, of two classes the difference."""
        V = self.label_embedding_
        return V[1:] - V[:1] if self.kind_ == "binary" else V

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        V, U = self._outputs()[outputs].astype(np.float64), self.feature_embedding_[:, features].astype(np.float64)
        return V @ U, np.zeros(len(outputs))

    def _best_labels(self, X: Any, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        return self._scorer().top_k(X, k, n_threads=self._n_threads())


def _printing(verbose: int, callback: Callback | None) -> Callback | None:
    """The user's callback, preceded by a printed line when `verbose` is positive."""
    if verbose <= 0:
        return callback

    def report(progress: Progress) -> bool:
        epochs = f"{progress.done:,} of {progress.total:,} epochs"
        print(f"{epochs} in {progress.elapsed_s:.1f} s, mean loss met {progress.primal:.6g}", flush=True)
        return callback(progress) if callback is not None else False

    return report
