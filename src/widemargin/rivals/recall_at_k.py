"""The structural SVM for recall@k.

    minimise ½‖W‖² + C ξ,      ξ the largest Δ(y') − ⟨W, g(y')⟩ over labellings y' with at most K positives

Solved in `widemargin.solvers.recall_at_k`, which says what is kept in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.estimators._parameters import check_parameters, positive_integer
from widemargin.estimators._training import check_one_label_a_row
from widemargin.rivals._ranking import RankingModel
from widemargin.solvers.recall_at_k import solve_recall_at_k
from widemargin.solvers.result import Callback

__all__ = ["RecallAtK"]


class RecallAtK(RankingModel):
    """The structural SVM for recall@k of Joachims for many classes, with a certificate of how far from optimal it is.

    It minimises ½‖W‖² + C ξ. Pairs of a row and a class, with features Φ and labels y of 1 for the true class and −1
    for others, are labelled as a whole: for every labelling y' with at most K positives, ⟨W, Σ (y − y') Φ⟩ ≥ Δ − ξ,
    where Δ is the share of the true positives that y' misses. The intercepts, divided by `intercept_scaling`, are part
    of W. In the one-vs-all form the objective is the sum over the classes, each with its own ξ and the rows as its
    pairs. There are no weights of rows or classes, and `fit` takes none.

    Parameters
    ----------
    k : int, default=1
        A labelling has at most K positives, K = k · n_samples in the joint problem and k · (rows of the class) in the
        one-vs-all form; below the number of classes.
    C : float, default=1.0
        Weight of the one slack ξ of a problem, which is 1 at zero weights, against the penalty ½‖W‖². Margins are sums
        over all rows: good values are far smaller than for other losses, and smaller for more rows.
    reduction : {"joint", "one-vs-all"}, default="joint"
        Whether there is one problem of all pairs of a row and a class, or one problem per class: its rows against all
        others.
    tol : float, default=1e-3
        Training ends when the certified relative gap, primal − dual over the larger of them, is at most this in each
        of the problems.
    fit_intercept : bool, default=False
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty.
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the less the penalty on the intercept counts.
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    max_iter : int, default=2000
        Largest number of rounds per problem; a round adds one or two cutting planes.
    memory_limit_mb : float, default=1024
        Bound on the dense result of `decision_function`, and on work areas of prediction.
    callback : callable or None, default=None
        Called with a `Progress` after rounds of the joint problem, or after classes; training stops when it returns
        true.
    n_jobs : int or None, default=None
        Threads of prediction, -1 for all cores.
    verbose : int, default=0
        Prints progress when positive.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights, one row per class; for two classes the difference of the second and the first. Read-only.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts, zeros without.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    certificate_ : Certificate
        Bounds on the optimum; sums over the classes in the one-vs-all form.
    history_ : History
        What happened, one row per round.
    n_iter_ : int
        Rounds, of all problems.
    label_counts_ : ndarray of shape (n_classes,)
        Training rows of each class.
    n_samples_fit_ : int
        Training rows.
    status_ : Status
        Why training ended; `Status.CONVERGED` when the tolerance was reached, `Status.NOT_ATTAINED` when rounding
        error does not allow it. The weights are never worse than zero weights.
    kind_ : str
        "binary" or "multiclass".

    See Also
    --------
    TopPush : the squared hinge against the highest wrong pair.
    widemargin.TopKClassifier : compares the classes of one row with each other, not with those of others.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals import RecallAtK
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.3 * rng.normal(size=(60, 4))
    >>> model = RecallAtK(k=1, C=0.01).fit(X, y)
    >>> model.score(X, y) > 0.9, model.certificate_.relative_gap <= model.tol
    (True, True)
    >>> model.predict_topk(X, k=2).indices.shape
    (60, 2)
    """

    def __init__(
        self,
        k: int = 1,
        C: float = 1.0,
        *,
        reduction: str = "joint",
        tol: float = 1e-3,
        fit_intercept: bool = False,
        intercept_scaling: float = 1.0,
        normalize: bool = False,
        max_iter: int = 2000,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.k = k
        self.C = C
        self.reduction = reduction
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> RecallAtK:
        """Train on rows with one label each.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.

        Returns
        -------
        RecallAtK
            The fitted model.
        """
        self._check_common_parameters()
        check_parameters(self, k=positive_integer)
        data = check_one_label_a_row(self, X, y)
        n_classes = data.targets.n_classes
        if self.k >= n_classes:
            raise ValueError(f"RecallAtK: k={self.k}, but y has {n_classes} classes; k can be at most {n_classes - 1}")
        labels = data.targets.indices.astype(np.int64, copy=False)
        self._fit_checked(
            data,
            lambda **options: solve_recall_at_k(data.X, labels, n_classes, int(self.k), float(self.C), **options),
        )
        return self
