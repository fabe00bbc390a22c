"""TopPush: the true class of every row should be above all wrong classes of all rows.

    minimise ½‖W‖² + C Σ_i weight_i max(0, 1 + t − s_{i,y_i})²,      t the largest score of a wrong pair

Solved in `widemargin.solvers.top_push`, which says what is kept in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.estimators._class_weight import row_factors
from widemargin.estimators._training import check_one_label_a_row
from widemargin.rivals._ranking import RankingModel
from widemargin.solvers.result import Callback
from widemargin.solvers.top_push import solve_top_push

__all__ = ["TopPush"]


class TopPush(RankingModel):
    """TopPush of Li, Jin and Zhou for many classes, with a certificate of how far from optimal it is.

    With scores s_ir = coef_r · x_i + intercept_r, the objective that `certificate_` bounds is

    - "joint": ½ Σ_r (‖coef_r‖² + (intercept_r / intercept_scaling)²) + C Σ_i weight_i max(0, 1 + t − s_{i,y_i})²,
      where t is the largest score s_jr, r ≠ y_j, of any row j, not only of row i;
    - "one-vs-all": the same penalty, and t replaced by t_{y_i}, where t_r is the largest score s_jr of the rows j of
      other classes: the sum of one problem per class.

    Rows of weight 0 count in neither maximum. For two classes `coef_` and `intercept_` hold the difference of the two
    rows of W, from which the penalty cannot be recomputed.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty ½‖W‖²; a sum over rows. 1 / (λ n) in the notation with a mean.
    reduction : {"joint", "one-vs-all"}, default="joint"
        Whether there is one problem of all pairs of a row and a class, or one problem per class: its rows against all
        others.
    tol : float, default=1e-3
        Training ends when the certified relative gap, primal − dual over the larger of them, is at most this in each
        of the problems.
    fit_intercept : bool, default=True
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty. In the
        one-vs-all form it is 0, since the loss of a class does not change when all its scores are shifted.
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the less the penalty on the intercept counts.
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`; "balanced" gives all classes the same total.
        In the one-vs-all form the factor of a class scales C of its own problem and nothing else.
    max_iter : int, default=200
        Largest number of rounds per problem; a round solves for the wrong pairs found so far and looks for more.
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
    RecallAtK : the structural SVM for recall@k.
    widemargin.TopKClassifier : compares the classes of one row with each other, not with those of others.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals import TopPush
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.3 * rng.normal(size=(60, 4))
    >>> model = TopPush(C=1.0).fit(X, y)
    >>> model.score(X, y) > 0.9, model.certificate_.relative_gap <= model.tol
    (True, True)
    >>> model.predict_topk(X, k=2).indices.shape
    (60, 2)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        reduction: str = "joint",
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        normalize: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        max_iter: int = 200,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.reduction = reduction
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TopPush:
        """Train on rows with one label each.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows as positives, not negative; a row of weight 0 counts as absent. Wrong pairs have no
            weight, only the highest counts.

        Returns
        -------
        TopPush
            The fitted model.
        """
        self._check_common_parameters()
        data = check_one_label_a_row(self, X, y, sample_weight)
        labels = data.targets.indices.astype(np.int64, copy=False)
        costs = np.ascontiguousarray(self.C * row_factors(self.class_weight, data.targets, data.sample_weight))
        self._fit_checked(
            data, lambda **options: solve_top_push(data.X, labels, data.targets.n_classes, costs, **options)
        )
        return self
