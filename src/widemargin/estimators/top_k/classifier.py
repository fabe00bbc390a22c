"""Top-k multiclass SVM: one label per row; the true class should be among the top k.

    minimise  ½‖W‖² + C Σ_i weight_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   s_i = W x_i

with φ the top-k hinge α or β, plain or smoothed; k = 1 is the multiclass SVM of Crammer and Singer. Solved by dual
ascent, linear in `widemargin.solvers.top_k.linear`, with a kernel in `widemargin.solvers.top_k.kernel`. Memory is the
data, the model, the dual variables that are not 0, and for kernels a cache of columns of at most `cache_size_mb`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import StrOptions

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.persistence import Codec, checked_matrix, checked_vector
from widemargin.estimators.scoring import (
    LabelModel,
    class_numbers,
    keep_support_vectors,
    tag_kernel,
    training_kernel,
)
from widemargin.estimators.training import (
    COUNT,
    KERNEL_CONSTRAINTS,
    NONNEGATIVE,
    JointParameters,
    TrainingData,
    certificate_with,
    changes_with_rows,
    count_rows,
    in_classes_of,
    keep_data,
    progress_callback,
    row_factors,
    training_data,
    warn_if_unfinished,
    warn_of_pruned_gap,
)
from widemargin.estimators.tuning import AUTO, choose_C, using
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import compact
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers.pruning import prune_top_k
from widemargin.solvers.result import SolverResult, Status
from widemargin.solvers.top_k.kernel import solve_kernel_top_k
from widemargin.solvers.top_k.linear import solve_top_k
from widemargin.solvers.top_k.start import DualPoint

__all__ = ["TopKClassifier"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SEEDS = np.iinfo(np.int32).max
OF_ONE_FIT = ("coef_", "dual_coef_", "support_", "support_vectors_", "gamma_")
ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, or scale the features",
    Status.TIME_LIMIT: "allow more time, or loosen tol",
    Status.STOPPED: "the callback requested it; fit again with warm_start=True to continue",
    Status.NOT_ATTAINED: "double precision limits the gap; raise tol, lower C, or scale the features",
}


@with_shared_passages
@dataclass(eq=False, repr=False)
class TopKClassifier(JointParameters, LabelModel):
    """Top-k multiclass SVM, linear or with a kernel, and a certificate of how far from optimal it is.

    Parameters
    ----------
    k : int, default=1
        Length of the list that should contain the true class; at least 1 and below the number of classes. k = 1 is the
        multiclass SVM of Crammer and Singer.
    C : float or "auto", default=1.0
        Weight of the loss against the penalty ½‖W‖²; a sum over rows, as in LIBLINEAR. "auto" chooses it by the top-k
        accuracy of held-out rows, before the fit to all rows; not with a precomputed kernel.
    loss : {"beta", "alpha"}, default="beta"
        The mean of the k largest max(0, z) (β), or the positive part of the mean of the k largest z (α). Here z = 1 +
        score of a wrong class − score of the true class.
    smoothing : float, default=0.0
        γ ≥ 0. The smoothed loss is differentiable, and below the plain one by at most γ/(2k).
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        As in `sklearn.svm.SVC`; a callable takes two sets of rows and returns the matrix of their kernel values, which
        must be positive semidefinite for rows with themselves.
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid; "scale" is 1 / (n_features · variance of X), "auto" 1 / n_features.
    <kernel_numbers>
    cache_size_mb : float, default=512
        Memory for the columns of the kernel matrix that are kept during training.
    tol : float, default=1e-3
        Training stops when the certified relative gap, primal − dual over the larger of them in absolute value, is at
        most this.
    fit_intercept : bool, default=True
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty.
    <intercept_scaling>
    <normalize>
    prune : float, default=0.0
        Weights of a linear model below this in absolute value are dropped from the stored model, which is then sparse.
        The intercept is never pruned, and `tol` holds before pruning.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`; "balanced" gives all classes the same total.
    max_iter : int, default=10000
        Largest number of passes over the rows. Rows that hardly change are left out of most passes, which may be short.
    <prediction_memory>
    callback : callable or None, default=None
        Called with a `Progress` after evaluations; training stops when it returns true. `TimeLimit` sets a time limit.
    warm_start : bool, default=False
        Whether `fit` starts from the dual variables of the previous fit, if the labels of all rows are the same. C, k,
        the loss and weights may have changed: the variables are scaled, and projected where needed.
    n_jobs : int or None, default=None
        Threads for evaluation and prediction; -1 for all cores. The ascent itself is sequential. Results do not depend
        on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which rows are visited.
    <verbose>

    Attributes
    ----------
    coef_ : ndarray or csr_array of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights of a linear model, one row per class; for two classes the second minus the first. CSR when `prune` is
        positive, and for large weights that are mostly 0. Read-only: to change weights, assign a new array.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts; zeros if there are none.
    dual_coef_ : csr_array of shape (n_classes, n_support) or (1, n_support)
        Coefficients of a kernel model.
    support_ : ndarray of shape (n_support,)
        Indices of the training rows with a coefficient that is not 0, for a kernel model.
    support_vectors_ : ndarray or csr_array of shape (n_support, n_features)
        These rows, scaled if `normalize`; shape (0, 0) for a precomputed kernel.
    gamma_ : float
        γ of a kernel model as a number.
    certificate_ : Certificate
        Bounds on the optimum.
    history_ : History
        How training went, one row per evaluation. The bounds are estimates, early ones from a sample of the rows; only
        `certificate_` is exact.
    n_iter_ : int
        Number of passes over the rows.
    status_ : Status
        Why training stopped: `Status.CONVERGED` if the tolerance was reached, `Status.NOT_ATTAINED` if double precision
        does not allow it.
    <training_data_attributes>
    instruction_set_ : str
        Vector instructions used in training: the widest, unless the environment variable `WIDEMARGIN_ISA` names others.
    <row_attributes>

    See Also
    --------
    OneVsAllClassifier : one problem per class, and several labels per row.
    sklearn.svm.LinearSVC : with `multi_class="crammer_singer"` the problem of k = 1, without a certificate.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import TopKClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.4 * rng.normal(size=(60, 4))
    >>> model = TopKClassifier(k=2, C=1.0, random_state=0).fit(X, y)
    >>> top = model.predict_topk(X, k=2)
    >>> bool((top.indices == y[:, None]).any(axis=1).mean() > 0.95)
    True
    >>> model.certificate_.relative_gap <= model.tol
    True
    >>> TopKClassifier(k=2, kernel="rbf", gamma=1.0, random_state=0).fit(X, y).score(X, y) > 0.8
    True
    """

    k: int = 1
    C: float | str = 1.0
    _: KW_ONLY
    loss: str = "beta"
    smoothing: float = 0.0
    max_iter: int = 10_000

    codec: ClassVar[Codec] = Codec(joint=True)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = KERNEL_CONSTRAINTS | {
        "k": [COUNT],
        "loss": [StrOptions({"beta", "alpha"})],
        "smoothing": [NONNEGATIVE],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> TopKClassifier:
        """Train on rows with one label each.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or (n_samples, n_samples) if precomputed
            Training rows; CSR and C-contiguous arrays of float32 or float64 are used as they are, memory maps included.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.
        <row_weights_of_fit>
        <groups_of_fit>

        <fitted>
        """
        data = self._training_data(X, y, sample_weight)
        if self.C != AUTO and groups is None:
            self._fit_checked(data)
            return self
        metric = f"top_k_accuracy@{self.k}"
        with using(self, choose_C(self, data, groups, score=metric, metric=metric)):
            self._fit_checked(data)
        return self

    def __sklearn_tags__(self) -> Tags:
        return tag_kernel(super().__sklearn_tags__(), self.kernel)

    def _training_data(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        sparse = self.kernel != "precomputed"
        return training_data(self, X, y, sample_weight, sparse=sparse, several_labels=False)

    def _fit_checked(self, data: TrainingData, start: DualPoint | None = None, kernel: Any = None) -> SolverResult:
        """Train on checked data, from the dual point `start` or else from that of the previous fit.

        `kernel` is the result of `training_kernel` for these rows and parameters, if it exists already.
        """
        classes = data.targets.classes
        n_classes = len(classes)
        if self.k >= n_classes:
            raise ValueError(
                f"TopKClassifier: k={self.k} is too large, because y has {n_classes} classes; k must be at most "
                f"{n_classes - 1}, the number of wrong classes per row"
            )
        y = data.targets.indices.astype(np.int64, copy=False)
        loss = self._hinge()
        costs = self._costs(data, cast(float, self.C))
        previous = vars(self).get("_dual_point") if self.warm_start else None
        if start is None and previous is not None and np.array_equal(self.classes_, classes):
            start = previous
        if start is not None and not start.fits(y, n_classes):
            start = None
        options: dict[str, Any] = {
            "intercept_scaling": float(self.intercept_scaling) if self.fit_intercept else 0.0,
            "tol": float(self.tol),
            "max_iter": int(self.max_iter),
            "seed": int(check_random_state(self.random_state).randint(SEEDS)),
            "n_threads": self._n_threads(),
            "start": None if start is None else start.start_for(loss, costs),
            "callback": progress_callback(self, "passes"),
        }
        if self.kernel == "linear":
            foreseen = 0 if start is None else start.passes_for(loss, costs)
            result = solve_top_k(data.X, y, n_classes, loss, costs, **options, foreseen_passes=foreseen)
        else:
            kernel = training_kernel(self, data.X) if kernel is None else kernel
            options["cache_size_mb"] = float(self.cache_size_mb)
            result = solve_kernel_top_k(kernel, y, n_classes, loss, costs, **options)
        self._dual_point = DualPoint(result.dual, y, loss, costs, result.certificate.dual, int(result.n_iter[0]))
        self._keep(result, data, kernel)
        if result.status is not Status.CONVERGED:
            warn_if_unfinished(result, ADVICE, tol=self.tol)
        return result

    def _hinge(self) -> TopKHinge:
        """The loss."""
        return TopKHinge(int(self.k), cast(Literal["alpha", "beta"], self.loss), float(self.smoothing))

    def _costs(self, data: TrainingData, C: float) -> Floats:
        """C times the weight of each row."""
        return np.ascontiguousarray(C * row_factors(self.class_weight, data.targets, data.sample_weight))

    def _added_loss(self, data: TrainingData, *, at_zero: bool = False) -> float:
        """C Σ_i weight_i φ(z_i) over further rows, at the stored weights or at zero weights, in float64.

        All four losses are at least 0, so the old optimum is a lower bound on the new one: in the dual, φ* is 0 at 0,
        with smoothing, too. Class weights must not depend on the rows (`changes_with_rows`).
        """
        data, loss = in_classes_of(self, data), self._hinge()
        costs, y = self._costs(data, self.C_), data.targets.indices
        if at_zero:
            return float(costs.sum() * loss.value(np.ones((1, len(self.classes_) - 1)))[0])
        total, first = 0.0, 0
        for margins in self._margin_blocks(data.X, y):
            rows = slice(first, first + len(margins))
            total, first = total + float(costs[rows] @ loss.value(margins)), rows.stop
        return total

    def _margin_blocks(self, X: Any, y: npt.NDArray[np.int64]) -> Iterator[Floats]:
        """Margins of the wrong classes at the stored weights, for successive blocks of rows."""
        first = 0
        for scores in self._score_blocks(X):
            rows = slice(first, first + len(scores))
            full = np.column_stack([np.zeros(len(scores)), scores]) if scores.shape[1] == 1 else scores
            yield margins_of_wrong_classes(full, y[rows])
            first = rows.stop

    def _changes_with_rows(self) -> str | None:
        """Why further rows change the problem of the old ones; None if they do not."""
        return changes_with_rows(self)

    def _certificate_with(self, added: TrainingData) -> Certificate | None:
        """The certificate with further rows; None if its gap, before pruning, is above `tol`."""
        found = certificate_with(self, added)
        unpruned = replace(found, primal=found.primal_before_pruning)
        return found if unpruned.relative_gap <= self.tol else None

    def _take_rows(self, added: TrainingData, data: TrainingData, old_rows: Ints | None) -> None:
        """Take further rows into a model that is kept: `data` are all rows, numbered as in `_continue_fit`."""
        data, point = in_classes_of(self, data), self.__dict__.pop("_dual_point", None)
        if point is not None and old_rows is not None:
            costs, y = self._costs(data, self.C_), data.targets.indices
            here = point.on_rows(old_rows, y, costs, np.arange(len(self.classes_)))
            self._dual_point = replace(here, value=point.value, passes=point.passes)
        classes = in_classes_of(self, added).targets.indices
        count_rows(self, classes, len(classes), old_rows)

    def _continue_fit(self, data: TrainingData, old_rows: Ints | None) -> None:
        """Train on rows of which some were trained on before: row i was row `old_rows[i]`, or none if that is −1.

        The dual variables of the previous fit are the start, where they are known: rows that are new or have another
        class have 0. The coefficients of a kernel model are these variables. Otherwise a smoothed loss has a start in
        its gradients at the stored weights. The gradients of other losses are not the dual variables of rows at a kink,
        and a start from them saves nothing on text. Passes after 1 % of rows were added at tol = 1e-3, C = 1 (from
        zero, from dual variables, from weights):

            k = 1, β                 20newsgroups  45, 26, 63    Debian's first tags  61, 25, 55    letter  111, 40, 62
            k = 5, β                               25, 14, 28                         24, 11, 23             32, 10, 11
            k = 5, β, smoothing .5                 12,  5,  8                         13,  5,  7             23,  7, 10
        """
        point, start, y = vars(self).get("_dual_point"), None, data.targets.indices
        costs, loss = self._costs(data, cast(float, self.C)), self._hinge()
        old_classes = class_numbers(self.classes_, data.targets.classes)
        if point is not None and old_rows is not None:
            start = point.on_rows(old_rows, y, costs, old_classes)
        elif hasattr(self, "dual_coef_") and old_rows is not None:
            start = self._point_of_support(old_rows, costs).on_rows(old_rows, y, costs, old_classes)
        elif loss.smoothing > 0.0 and self.kernel == "linear" and np.array_equal(self.classes_, data.targets.classes):
            start = self._gradients(data.X, y, loss, costs)
        self.__dict__.pop("_dual_point", None)  # belongs to other rows
        self._fit_checked(data, start)

    def _point_of_support(self, old_rows: Ints, costs: Floats) -> DualPoint:
        """The dual variables that the coefficients of a kernel model are made of: −x, and Σ x for the true class.

        Costs are those of the same rows now: rows that they do not allow are moved back by `start_for`.
        """
        coef = self.dual_coef_.toarray().T
        if coef.shape[1] == 1:  # the second class minus the first
            coef = 0.5 * coef * np.array([-1.0, 1.0])
        y, before = np.zeros(self.n_samples_fit_, dtype=np.int64), np.zeros(self.n_samples_fit_)
        y[self.support_] = coef.argmax(axis=1)
        before[old_rows[old_rows >= 0]] = costs[old_rows >= 0]
        values = sp.coo_array(np.maximum(-coef, 0.0))
        places = self.support_[values.row], values.col
        dual = sp.csr_array((values.data, places), shape=(len(y), len(self.classes_)))
        return DualPoint(dual, y, self._hinge(), before, np.nan)

    def _gradients(self, X: Any, y: npt.NDArray[np.int64], loss: TopKHinge, costs: Floats) -> DualPoint:
        """C_i ∇φ(z_i) at the stored weights."""
        n_classes, first, blocks = len(self.classes_), 0, []
        for margins in self._margin_blocks(X, y):
            rows = slice(first, first + len(margins))
            wrong = np.arange(n_classes) != y[rows, None]
            x = np.zeros(wrong.shape)
            x[wrong] = (costs[rows, None] * loss.gradient(margins)).ravel()
            blocks.append(sp.csr_array(x))
            first = rows.stop
        return DualPoint(sp.csr_array(sp.vstack(blocks)), y, loss, costs, np.nan)

    def _kept_duals(self) -> dict[str, Any]:
        """The dual variables as arrays of a model folder; none if they are not known."""
        point = vars(self).get("_dual_point")
        if point is None:
            return {}
        numbers = np.array([point.value, float(point.passes)])
        return {"duals": point.dual, "dual_y": point.y, "dual_costs": point.costs, "dual_numbers": numbers}

    def _restore_duals(self, arrays: Mapping[str, Any]) -> None:
        """Take the arrays of `_kept_duals`; a ValueError unless they fit the model. Sets: _dual_point."""
        self.__dict__.pop("_dual_point", None)
        if not arrays:
            return
        n_rows, n_classes = self.n_samples_fit_, len(self.classes_)
        dual = checked_matrix(arrays["duals"], "duals", (n_rows, n_classes))
        y = checked_vector(arrays["dual_y"], "dual_y", "iu", length=n_rows)
        costs = checked_vector(arrays["dual_costs"], "dual_costs", length=n_rows)
        value, passes = checked_vector(arrays["dual_numbers"], "dual_numbers", length=2).tolist()
        if n_rows and not (y.min() >= 0 and y.max() < n_classes and costs.min() >= 0.0):
            raise ValueError("the dual variables have classes or costs out of range")
        self._dual_point = DualPoint(sp.csr_array(dual), y, self._hinge(), costs, value, int(passes))

    def _pruned_models(
        self, data: TrainingData, result: SolverResult, thresholds: Sequence[float]
    ) -> Iterator[TopKClassifier]:
        """This fitted model with the weights of its solver's result pruned at each threshold, and certified again."""
        for threshold in thresholds:
            model = copy.copy(self)
            model.prune = threshold
            model._keep(result, data, None)
            yield model

    def _keep(self, result: SolverResult, data: TrainingData, kernel: Any) -> None:
        """Set the fitted attributes; small weights are pruned first, and the rest certified again."""
        if self.prune > 0:
            point, scaling = self._dual_point, float(self.intercept_scaling) if self.fit_intercept else 0.0
            options: dict[str, Any] = {"threshold": self.prune, "n_threads": self._n_threads()}
            problem = data.X, point.y, point.loss, point.costs
            result = prune_top_k(result, *problem, intercept_scaling=scaling, **options)
        for name in OF_ONE_FIT:
            self.__dict__.pop(name, None)
        self.classes_ = data.targets.classes
        two = len(self.classes_) == 2
        # Differences in float64: those of float32 weights would be rounded, and one row is no memory.
        self.intercept_ = np.diff(result.intercept.astype(np.float64)) if two else result.intercept
        if kernel is None:
            self.coef_ = compact(_difference(result.coef) if two else result.coef)
            self._freeze_weights()
        else:
            self._keep_support(result.coef, data.X, kernel)
        keep_data(self, data)
        self.certificate_, self.history_ = result.certificate, result.history
        self.status_, self.n_iter_ = result.status, int(result.n_iter.sum())
        if self.prune > 0:
            found = result.certificate
            warn_of_pruned_gap(found.primal, found.primal_before_pruning, found.dual, self.prune)

    def _keep_support(self, coefficients: Any, X: Any, kernel: Any) -> None:
        """Keep the coefficients and rows of a kernel model; rows without influence are left out."""
        coefficients.eliminate_zeros()
        self.support_ = np.flatnonzero(np.diff(coefficients.indptr))
        coef = sp.csr_array(coefficients[self.support_].T)
        self.dual_coef_ = sp.csr_array(coef[[1]] - coef[[0]]) if coef.shape[0] == 2 else coef
        keep_support_vectors(self, X, kernel)


def _difference(coef: Any) -> Any:
    """The second row minus the first, of shape (1, n_features), in float64."""
    coef = coef.astype(np.float64)
    return sp.csr_array(coef[[1]] - coef[[0]]) if sp.issparse(coef) else np.diff(coef, axis=0)
