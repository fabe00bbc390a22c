"""Models along a path of parameter values, each started from an earlier one, and a sweep of pruning thresholds.

    for C₁ < C₂ < …:   w(C_i) = argmin ½‖w‖² + C_i Σ loss,  from w(C_{i−1}),  stored at thresholds t₁ < t₂ < …
    for C₁ < C₂ < … and, for each, k₁ > k₂ > …:    W(C_i, k_1) from W(C_{i−1}, k_1),   W(C_i, k_j) from W(C_i, k_{j−1})

Every solution obeys the same stopping rule and carries the same certificate as a separate fit; only the start differs.
Sessions of this package's estimators check and normalise the rows and encode the labels once. One-vs-all starts each
fit from the weights of the one before as they are stored, pruned: on debian-tags these serve as well as unpruned ones.
Top-k starts from dual variables of a fit with the same or a larger k, which are also feasible for a smaller k, computes
its kernel once, and prunes the weights of one fit at all thresholds. Any other estimator is fitted again for every
value, with `warm_start=True` if it has this parameter. A pipeline's transformers are fitted once.

Memory: the data, two or three models at a time (or the dual variables of two fits), and those that are kept.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin import metrics
from widemargin._frames import data_frame, html_table
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.scoring import class_numbers, label_propensities, top_k_accuracies, training_kernel
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.training import Estimator, check_parameters
from widemargin.estimators.tuning import AUTO
from widemargin.labels.encoding import encode_targets
from widemargin.model_selection.stratification import make_folds
from widemargin.parallel import Executor, as_executor, run_tasks
from widemargin.parallel.folders import SharedRows
from widemargin.problems.tree_factor import TreeWeights
from widemargin.solvers.result import History
from widemargin.solvers.top_k.start import DualPoint

__all__ = ["PathResult", "Scoring", "check_grid", "path"]

KEEP = ("best", "all", "none")
DESCENDING = {"k"}  # dual variables for a larger k are feasible for a smaller one; other parameters ascend
KERNEL_PARAMETERS = {"gamma", "degree", "coef0"}
PSP = "psp"
RANKINGS: dict[str, Callable[..., Any]] = {
    "precision": metrics.precision_at_k,
    "recall": metrics.recall_at_k,
    "ndcg": metrics.ndcg_at_k,
    PSP: metrics.propensity_scored_precision_at_k,
}
TOP_K_ACCURACY = "top_k_accuracy"
AT_K = re.compile(r"(\w+)@([1-9]\d*)")

Scorer = Callable[[Any, Any, Any], float]


def path(
    estimator: Estimator,
    X: Any,
    y: Any,
    *,
    Cs: Sequence[float] | None = None,
    ks: Sequence[int] | None = None,
    values: Sequence[float] | None = None,
    param: str | None = None,
    sample_weight: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    cv: Any = None,
    groups: Any = None,
    scoring: Any = None,
    prune: Sequence[float] | None = None,
    keep: str | None = None,
    n_jobs: int | None = None,
    executor: Any = None,
) -> PathResult:
    """Fit an estimator at several values of C, of k, or of another parameter, sharing work, and score the models.

    Parameters
    ----------
    estimator : estimator, or Pipeline with an estimator as last step
        It is cloned, not changed. The transformers of a pipeline are fitted once.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training rows.
    y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
        Targets.
    Cs : sequence of float, default=None
        Distinct values of `C` in any order; they are fitted from the smallest to the largest. A rank scale of "auto" is
        0 along a path.
    ks : sequence of int, default=None
        Values of the `k` of a `TopKClassifier`; for each C they are fitted from the largest to the smallest.
    values, param : sequence of float and str, default=None
        Values of another parameter of the estimator or of a pipeline's last step, instead of `Cs` and `ks`; without
        `param` they are values of `C`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the training rows. Scores are not weighted.
    X_test, y_test : rows and targets, default=None
        Held-out rows for the scores.
    cv : int, splitter or iterable, default=None
        Cross-validation for the scores instead: one path per fold, and one on all rows. A number means scikit-learn's
        stratified folds if a row has one label, and those of `StratifiedLabelKFold` if it has several.
    groups : array-like of shape (n_samples,), default=None
        Group of each row, for `cv`; no group is divided between training and held-out rows. `near_copy_groups` finds
        near-copies.
    scoring : str, callable, list or dict, default=None
        None for the model's own `score`; the name of a scikit-learn scorer; "precision@k", "recall@k", "ndcg@k" or
        "psp@k" (propensity-scored precision) with a number for k, or "top_k_accuracy@k" with one label per row; a
        function of model, X and y; or several of these. The first one decides. Larger is better.
    prune : sequence of float, default=None
        Pruning thresholds at which each fit is stored; they replace the `prune` parameter of the estimator. Thresholds
        share one fit: the weights are fitted at the smallest threshold, pruned further, and certified again. Models on
        a tree start from the dual variables of the first fit. Output codes, whose code is learned for pruned columns,
        and other estimators are fitted once per threshold.
    keep : {"best", "all", "none"}, default=None
        Which models stay in memory. None keeps the best if there are scores, otherwise all.
    n_jobs : int or None, default=None
        Threads per fit; None leaves the choice to the estimator.
    executor : None, int, str or dask.distributed.Client, default=None
        Where the folds of `cv` run: in this process, in that many processes, or on a dask cluster. The path on all rows
        is a chain of fits, each started from the one before, and runs in this process.

    Returns
    -------
    PathResult
        One row per fit and threshold, in the order of the fits; thresholds ascend.

    See Also
    --------
    sklearn.model_selection.GridSearchCV : independent fits over any grid.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, path
    >>> from widemargin.datasets import load_debian_tags
    >>> data = load_debian_tags()
    >>> result = path(
    ...     OneVsAllClassifier(normalize=True), data.X_train, data.y_train[:, :20], Cs=[0.1, 1.0],
    ...     prune=[0.01, 0.02], X_test=data.X_test, y_test=data.y_test[:, :20], scoring=["precision@1", "precision@5"],
    ... )
    >>> result.table["C"].tolist(), result.table["prune"].tolist()
    ([0.1, 0.1, 1.0, 1.0], [0.01, 0.02, 0.01, 0.02])
    >>> result.best_model.C == result.best["C"], bool((result.table["relative_gap"] < 0.02).all())
    (True, True)

    The k and C of a top-k SVM:

    >>> import numpy as np
    >>> from widemargin import TopKClassifier
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.4 * np.random.default_rng(0).normal(size=(60, 4))
    >>> result = path(TopKClassifier(random_state=0), X, y, Cs=[0.1, 1.0], ks=[1, 3])
    >>> result.table["C"].tolist(), result.table["k"].tolist()
    ([0.1, 0.1, 1.0, 1.0], [3, 1, 3, 1])
    >>> bool((result.table["relative_gap"] <= 1e-3).all())
    True
    """
    pipeline, last = _split_pipeline(estimator)
    grid, thresholds = check_grid(last, Cs, ks, param, values), _check_prune(last, prune)
    if n_jobs is not None:
        last = _with_jobs(last, n_jobs)
    scoring = _check_scoring(scoring, X_test, y_test, cv)
    keep = _check_keep(keep, scoring)
    if groups is not None and cv is None:
        raise ValueError("groups has no effect without cross-validation; pass cv, or leave out groups")
    test = None if X_test is None else (X_test, y_test)
    task = _Path(pipeline, last, grid, thresholds, scoring)
    folds = [] if cv is None else _scores_of_folds(task, cv, groups, X, y, sample_weight, as_executor(executor))
    table, models = task.run(X, y, sample_weight, test, folds, keep)
    return PathResult(tuple(grid), History(table), models, tuple(scoring.names) if scoring else ())


@dataclass(frozen=True)
class PathResult:
    """The result of `path`: a table with one row per value and threshold, and the models that were kept.

    Parameters
    ----------
    params : tuple of str
        Names of the parameters, which are also the names of their columns.
    table : History
        Columns by name: the parameters, `prune` where the estimator has it, the scores (with cross-validation their
        means, and their standard deviations as `<name>_std`), `cpu_s` (CPU seconds of the fit; at further thresholds,
        of the pruning, whose evaluation counts with the first of them), the certificate's `primal`, `dual`,
        `relative_gap` and `primal_before_pruning` (NaN where there is none), `n_iter` (summed), `n_weights` (not zero;
        kernel models: coefficients), `model_bytes` (in memory) and `status`.
    models : mapping of int to estimator
        Fitted models by row.
    score_names : tuple of str
        Columns of the scores; the first decides which model is best. Empty if no model was scored.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, path
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["cold", "cold", "hot", "hot"]
    >>> result = path(OneVsAllClassifier(), X, y, values=[0.1, 10.0], X_test=X, y_test=y)
    >>> len(result), result.best["C"], result.best_model.predict([[2.5]]).tolist()
    (2, 0.1, ['hot'])
    """

    params: tuple[str, ...]
    table: History
    models: Mapping[int, Any] = field(repr=False)
    score_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.table.n_rows

    @property
    def best_index(self) -> int:
        """Row with the largest first score; among equal ones the first values, and there the largest threshold."""
        if not self.score_names:
            raise ValueError("there is no best model, because none was scored; pass X_test and y_test, or cv")
        scores = self.table[self.score_names[0]]
        best = np.flatnonzero(scores == np.nanmax(scores))
        same_values = np.all([self.table[name][best] == self.table[name][best[0]] for name in self.params], axis=0)
        return int(best[same_values][-1])

    @property
    def best(self) -> dict[str, Any]:
        """The best row, as plain values by column."""
        return self.row(self.best_index)

    @property
    def best_model(self) -> Any:
        """The model of the best row."""
        return self.model(self.best_index)

    def row(self, index: int) -> dict[str, Any]:
        """One row, as plain values by column."""
        return {name: column[index].item() for name, column in self.table.items()}

    def model(self, index: int) -> Any:
        """The fitted model of a row."""
        if index not in self.models:
            kept = ", ".join(map(str, self.models)) or "none"
            raise ValueError(
                f"the model of row {index} was not kept (kept: {kept}); pass keep='all' to keep all models"
            )
        return self.models[index]

    def to_dict(self) -> dict[str, list[Any]]:
        """The table as plain lists by column, for JSON."""
        return {name: column.tolist() for name, column in self.table.items()}

    def to_frame(self) -> Any:
        """The table as a data frame with one row per fit and threshold.

        Returns
        -------
        pandas.DataFrame
            The columns of `table`.

        Examples
        --------
        >>> from widemargin import OneVsAllClassifier, path
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["cold", "cold", "hot", "hot"]
        >>> path(OneVsAllClassifier(), X, y, Cs=[0.1, 10.0]).to_frame()[["C", "status"]].to_dict("list")
        {'C': [0.1, 10.0], 'status': ['converged', 'converged']}
        """
        return data_frame(self.to_dict())

    def _repr_html_(self) -> str:
        best = f"the best row is {self.best_index}" if self.score_names else "not scored"
        return html_table({"": list(range(len(self))), **self.to_dict()}, f"{len(self):,} models; {best}")


class _Path:
    """The grid of values and thresholds, and how models are scored."""

    def __init__(
        self,
        pipeline: Pipeline | None,
        estimator: Estimator,
        grid: dict[str, list[Any]],
        thresholds: list[float] | None,
        scoring: Scoring | None,
    ) -> None:
        self.pipeline, self.estimator, self.params = pipeline, estimator, tuple(grid)
        self.points = [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]
        self.thresholds, self.scoring = thresholds, scoring

    def models(self, X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[dict[str, Any], Any, float]]:
        """Values of the parameters, model and CPU seconds, row by row."""
        session = _open_session(self.estimator, self.params, X, y, sample_weight)
        for point in self.points:
            steps = session.models(point, self.thresholds)
            started = time.process_time()
            for model in steps:
                yield point, model, time.process_time() - started
                started = time.process_time()

    def fold_scores(self, train: tuple[Any, Any, Any], test: tuple[Any, Any]) -> list[dict[str, float]]:
        """Scores of every row on held-out rows."""
        fitted, X = self._transform(train[0], train[1])
        X_test = test[0] if fitted is None else fitted.transform(test[0])
        assert self.scoring is not None
        return [self.scoring(model, X_test, test[1]) for _, model, _ in self.models(X, train[1], train[2])]

    def run(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        test: tuple[Any, Any] | None,
        folds: list[list[dict[str, float]]],
        keep: str,
    ) -> tuple[dict[str, Any], dict[int, Any]]:
        """The columns, and the models that are kept by row."""
        fitted, X = self._transform(X, y)
        if test is not None and fitted is not None:
            test = (fitted.transform(test[0]), test[1])
        rows: list[dict[str, Any]] = []
        models: dict[int, Any] = {}
        for point, model, cpu_s in self.models(X, y, sample_weight):
            scores = self._scores(model, test, [fold[len(rows)] for fold in folds])
            pruned = {"prune": float(model.prune)} if self._shows_prune(model) else {}
            facts = _facts(model)
            rows.append({**point, **pruned, **scores, "cpu_s": cpu_s, **facts})
            if keep == "all":
                models[len(rows) - 1] = model
            elif keep == "best" and self._is_best(rows):
                models = {len(rows) - 1: model}
        table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return table, {row: self._whole(fitted, model) for row, model in models.items()}

    def _shows_prune(self, model: Any) -> bool:
        """Whether `prune` is a column: where it is swept or used, and for one-vs-all, which is usually pruned."""
        return hasattr(model, "prune") and (
            self.thresholds is not None or model.prune > 0 or isinstance(model, OneVsAllClassifier)
        )

    def _scores(self, model: Any, test: tuple[Any, Any] | None, folds: list[dict[str, float]]) -> dict[str, float]:
        """Scores on the test rows, or their mean and standard deviation over the folds."""
        if self.scoring is None:
            return {}
        if test is not None:
            return self.scoring(model, *test)
        means = {name: float(np.mean([fold[name] for fold in folds])) for name in self.scoring.names}
        return means | {f"{name}_std": float(np.std([fold[name] for fold in folds])) for name in self.scoring.names}

    def _is_best(self, rows: list[dict[str, Any]]) -> bool:
        """Whether the last row is the best so far, by the rule of `PathResult.best_index`."""
        assert self.scoring is not None
        columns = (*self.params, self.scoring.names[0])
        table = {name: np.array([row[name] for row in rows]) for name in columns}
        return PathResult(self.params, History(table), {}, columns[-1:]).best_index == len(rows) - 1

    def _transform(self, X: Any, y: Any) -> tuple[Pipeline | None, Any]:
        """Fitted transformers, and the rows as the estimator sees them."""
        if self.pipeline is None:
            return None, X
        fitted = clone(self.pipeline[:-1])
        return fitted, fitted.fit_transform(X, y)

    def _whole(self, fitted: Pipeline | None, model: Any) -> Any:
        """The pipeline with the model as its last step."""
        return (
            model
            if fitted is None or self.pipeline is None
            else Pipeline([*fitted.steps, (self.pipeline.steps[-1][0], model)])
        )


def _split_pipeline(estimator: Estimator) -> tuple[Pipeline | None, Any]:
    """The pipeline if there is anything before its last step, and that step; other estimators are a last step."""
    if not isinstance(estimator, Pipeline):
        return None, estimator
    last = estimator.steps[-1][1]
    if not hasattr(last, "fit") or not hasattr(last, "predict"):
        raise ValueError("the last step of the pipeline must be a classifier")
    return (estimator if len(estimator.steps) > 1 else None), last


def _with_jobs(estimator: Estimator, n_jobs: int) -> Any:
    """A clone with that many threads."""
    if "n_jobs" not in estimator.get_params(deep=False):
        raise ValueError(f"{type(estimator).__name__} has no parameter 'n_jobs'; leave out n_jobs")
    return clone(estimator).set_params(n_jobs=n_jobs)


def _check_scoring(scoring: Any, X_test: Any, y_test: Any, cv: Any) -> Scoring | None:
    """How models are scored; None when there are no rows for it."""
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be passed together; pass both or neither")
    if X_test is not None and cv is not None:
        raise ValueError("X_test and y_test cannot be combined with cv; pass either test rows or cv")
    if X_test is None and cv is None:
        if scoring is not None:
            raise ValueError("scoring requires rows to score; pass X_test and y_test, or cv")
        return None
    return Scoring(scoring)


def _check_keep(keep: str | None, scoring: Scoring | None) -> str:
    """Which models are kept."""
    if keep is None:
        return "all" if scoring is None else "best"
    if keep not in KEEP:
        raise ValueError(f"keep must be one of {', '.join(map(repr, KEEP))} or None; got {keep!r}")
    if keep == "best" and scoring is None:
        raise ValueError("keep='best' requires scores; pass X_test and y_test, or cv")
    return keep


def _scores_of_folds(
    task: _Path, cv: Any, groups: Any, X: Any, y: Any, sample_weight: Any, executor: Executor
) -> list[list[dict[str, float]]]:
    """Scores of every row of the path on each fold, in this process or by the executor."""
    folds = make_folds(cv, y, _num_samples(X), encode_targets(y).kind, groups=groups)
    if executor.in_process:
        return [task.fold_scores(*_fold_data(X, y, sample_weight, *fold)) for fold in folds]
    with SharedRows.of(X, executor) as rows:
        given = [(task, rows, y, sample_weight, *fold) for fold in folds]
        scores = dict(run_tasks(_score_fold, given, executor))
    return [scores[number] for number in range(len(folds))]


def _score_fold(
    task: _Path, rows: SharedRows, y: Any, sample_weight: Any, train: Any, test: Any
) -> list[dict[str, float]]:
    """The task of a fold; its rows come from a store."""
    return task.fold_scores(*_fold_data(rows.load(), y, sample_weight, train, test))


def _fold_data(X: Any, y: Any, sample_weight: Any, train: Any, test: Any) -> tuple[Any, Any]:
    """Training rows, targets and weights, and held-out rows and targets."""
    weights = None if sample_weight is None else np.asarray(sample_weight)[train]
    part = (_safe_indexing(X, train), _safe_indexing(y, train), weights)
    return part, (_safe_indexing(X, test), _safe_indexing(y, test))


class _Session:
    """Fits of any estimator on the same data."""

    def __init__(self, estimator: Estimator, X: Any, y: Any, sample_weight: Any) -> None:
        if sample_weight is not None and "sample_weight" not in inspect.signature(estimator.fit).parameters:
            raise ValueError(f"{type(estimator).__name__}.fit does not accept sample_weight; leave it out")
        self.arguments = {"X": X, "y": y}
        if sample_weight is not None:
            self.arguments["sample_weight"] = sample_weight
        self.worker = clone(estimator)
        self.has_warm_start = _can_warm_start(estimator)
        self.warm_start = getattr(estimator, "warm_start", None)

    def models(self, point: dict[str, Any], thresholds: list[float] | None) -> Iterator[Any]:
        """The model with these parameters, then at each further threshold; the caller may change them."""
        first = {} if thresholds is None else {"prune": thresholds[0]}
        warm = {"warm_start": True} if self.has_warm_start else {}
        self.worker.set_params(**point, **first, **warm).fit(**self.arguments)
        yield self._own_copy()
        for threshold in (thresholds or [])[1:]:
            self.worker.set_params(prune=threshold).fit(**self.arguments)
            yield self._own_copy()

    def _own_copy(self) -> Any:
        """The fitted model as it is now; the next fit may write into the worker's arrays."""
        model = copy.deepcopy(self.worker)
        return model.set_params(warm_start=self.warm_start) if self.has_warm_start else model


def _can_warm_start(estimator: Estimator) -> bool:
    """Whether it accepts `warm_start=True`; an output code of classifiers of another package has it, but refuses it."""
    if "warm_start" not in estimator.get_params(deep=False):
        return False
    if hasattr(estimator, "_check_parameters"):
        try:
            clone(estimator).set_params(warm_start=True)._check_parameters()
        except ValueError:
            return False
    return True


class _OneVsAllSession(_Session):
    """Fits of one-vs-all: shared data, warm starts, and thresholds that share the weights."""

    def __init__(self, estimator: OneVsAllClassifier, X: Any, y: Any, sample_weight: Any) -> None:
        self.estimator = estimator
        self.data = estimator._training_data(X, y, sample_weight)
        self.weights: tuple[Any, Any] | None = None

    def models(self, point: dict[str, Any], thresholds: list[float] | None) -> Iterator[Any]:
        first = {} if thresholds is None else {"prune": thresholds[0]}
        model = clone(self.estimator).set_params(**point, **first)
        if model.rank_scale == AUTO:  # it is chosen by `fit`, on rows that a path does not hold out
            model.rank_scale = 0.0
        result = model._fit_checked(self.data, initial=self.weights)
        self.weights = (model.coef_, model.intercept_)
        yield model
        if thresholds is not None and len(thresholds) > 1:
            yield from model._pruned_models(self.data, result, thresholds[1:])


class _TopKSession(_Session):
    """Fits of the top-k SVM: shared data and kernel, and starts from dual variables."""

    def __init__(self, estimator: TopKClassifier, X: Any, y: Any, sample_weight: Any) -> None:
        self.estimator = estimator
        self.data = estimator._training_data(X, y, sample_weight)
        self.kernel: Any = None
        self.last: DualPoint | None = None
        self.widest: DualPoint | None = None  # the last one with the largest k

    def models(self, point: dict[str, Any], thresholds: list[float] | None) -> Iterator[Any]:
        first = {} if thresholds is None else {"prune": thresholds[0]}
        model = clone(self.estimator).set_params(**point, **first)
        if thresholds is not None:
            check_parameters(clone(model).set_params(prune=thresholds[-1]))  # they ascend
        if model.kernel != "linear" and (self.kernel is None or not KERNEL_PARAMETERS.isdisjoint(point)):
            self.kernel = training_kernel(model, self.data.X)
        start = self.last if self.last is None or self.last.loss.k >= model.k else self.widest
        result = model._fit_checked(self.data, start=start, kernel=self.kernel)
        self.last = model._dual_point
        if self.widest is None or self.last.loss.k >= self.widest.loss.k:
            self.widest = self.last
        yield model
        yield from model._pruned_models(self.data, result, (thresholds or [])[1:])


# Parameters that change the data a session shares, or the meaning of its weights.
NOT_SHARED: dict[type, set[str]] = {
    OneVsAllClassifier: {"normalize", "fit_intercept", "prune", "warm_start"},
    TopKClassifier: {"normalize", "kernel", "warm_start"},
}
SESSIONS: dict[type, Callable[..., _Session]] = {OneVsAllClassifier: _OneVsAllSession, TopKClassifier: _TopKSession}


def _open_session(estimator: Estimator, params: tuple[str, ...], X: Any, y: Any, sample_weight: Any) -> _Session:
    """The session that suits the estimator and the parameters."""
    kind = type(estimator)
    shares = kind in SESSIONS and NOT_SHARED[kind].isdisjoint(params)
    return (SESSIONS[kind] if shares else _Session)(estimator, X, y, sample_weight)


def check_grid(estimator: Estimator, Cs: Any, ks: Any, param: str | None, values: Any) -> dict[str, list[Any]]:
    """Values by parameter, each in the order of the fits; the last parameter changes fastest."""
    if values is None and param is not None:
        raise ValueError(f"param={param!r} has no values; pass them as values=[…]")
    if values is not None and (Cs is not None or ks is not None):
        raise ValueError("values cannot be combined with Cs or ks; pass either param and values, or Cs and ks")
    given = {param or "C": values} if values is not None else {"C": Cs, "k": ks}
    grid = {name: _check_values(estimator, name, some) for name, some in given.items() if some is not None}
    if not grid:
        raise ValueError("there are no parameter values to try; pass Cs, ks, or param and values")
    if "C" not in grid and getattr(estimator, "C", 1.0) == AUTO:
        raise ValueError("path varies other parameters, but C is 'auto'; pass Cs, or give C a number")
    if hasattr(estimator, "_check_parameters"):
        for name, some in grid.items():
            for value in some:
                clone(estimator).set_params(**{name: value})._check_parameters()
    return grid


def _check_values(estimator: Estimator, param: str, values: Any) -> list[Any]:
    """The values of one parameter in their order."""
    known = sorted(estimator.get_params(deep=True))
    if param not in known:
        raise ValueError(f"{type(estimator).__name__} has no parameter {param!r}; it has {', '.join(known)}")
    if param == "prune":
        raise ValueError(
            "param must not be 'prune', because all thresholds share one fit; pass the thresholds as prune=[…]"
        )
    checked = [value.item() if isinstance(value, np.generic) else value for value in np.ravel(values).tolist()]
    numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in checked)
    if not checked or not numbers or not np.isfinite(np.array(checked, dtype=float)).all():
        raise ValueError(f"values of {param} must be a nonempty sequence of finite numbers; got {values!r}")
    if len(set(checked)) != len(checked):
        raise ValueError(f"values of {param} must be distinct; got {values!r}")
    return sorted(checked, reverse=param in DESCENDING)


def _check_prune(estimator: Estimator, prune: Any) -> list[float] | None:
    """The thresholds, ascending, or None when there is no sweep."""
    if prune is None:
        return None
    if "prune" not in estimator.get_params(deep=False):
        raise ValueError(f"{type(estimator).__name__} has no parameter 'prune'; leave out prune")
    try:
        thresholds = sorted({float(threshold) for threshold in np.ravel(prune)})
    except (TypeError, ValueError):
        thresholds = []
    if not thresholds or not np.isfinite(thresholds).all() or thresholds[0] < 0:
        raise ValueError(f"prune must be a nonempty sequence of finite, nonnegative numbers; got {prune!r}")
    return thresholds


def _facts(model: Any) -> dict[str, Any]:
    """Certificate, iterations and size of a fitted model, where it has them."""
    certificate = getattr(model, "certificate_", None)
    bounds = ("primal", "dual", "relative_gap", "primal_before_pruning")
    coef: Any = getattr(model, "coef_", getattr(model, "dual_coef_", np.zeros(0)))
    parts = _parts(coef)
    others = [part for name in ("intercept_", "support_vectors_") for part in _parts(getattr(model, name, np.zeros(0)))]
    status = getattr(model, "status_", None)
    return {
        **{name: float(getattr(certificate, name, np.nan)) for name in bounds},
        "n_iter": int(np.sum(getattr(model, "n_iter_", 0))),
        "n_weights": int(np.count_nonzero(parts[0])),
        "model_bytes": int(sum(part.nbytes for part in [*parts, *others])),
        "status": "" if status is None else getattr(status, "value", str(status)),
    }


def _parts(array: Any) -> list[Any]:
    """The arrays that hold a dense or sparse matrix, or its factors, values first."""
    if isinstance(array, TreeWeights):
        return [*_parts(array.parts), array.factor.R, array.factor.pivots]
    return [array.data, array.indices, array.indptr] if sp.issparse(array) else [np.asarray(array)]


class Scoring:
    """Named scores of a model on held-out rows, the first of which decides which is best.

    They are the model's own `score`, scikit-learn's by name, any function, and rankings at k. Names such as
    "precision@5" are rankings of the top labels: precision, recall, ndcg or psp with several labels per row,
    top_k_accuracy with one. Several of them share one prediction. Memory: the top labels of every row, up to the
    largest k; for top_k_accuracy, blocks of rows with all classes.
    """

    def __init__(self, scoring: Any) -> None:
        self.rankings: dict[str, tuple[str, int]] = {}
        self.scorers: dict[str, Scorer] = {}
        self.names: list[str] = []
        for name, given in _named(scoring):
            self.names.append(name)
            ranking = AT_K.fullmatch(given) if isinstance(given, str) else None
            if ranking:
                if ranking[1] not in {*RANKINGS, TOP_K_ACCURACY}:
                    known = ", ".join([*RANKINGS, TOP_K_ACCURACY])
                    raise ValueError(f"unknown score {given!r}; the name before the @ must be one of {known}")
                self.rankings[name] = (ranking[1], int(ranking[2]))
            else:
                self.scorers[name] = _scorer(given)

    def __call__(self, model: Any, X: Any, y: Any) -> dict[str, float]:
        """All scores of a fitted model."""
        found = self._ranked(model, X, y) if self.rankings else {}
        found |= {name: float(scorer(model, X, y)) for name, scorer in self.scorers.items()}
        return {name: found[name] for name in self.names}

    def _ranked(self, model: Any, X: Any, y: Any) -> dict[str, float]:
        """Scores at k, from one list of the top labels of each row."""
        single = getattr(model, "kind_", "multilabel") != "multilabel"
        for name, (metric, _) in self.rankings.items():
            if not hasattr(model, "predict_topk") or (metric == TOP_K_ACCURACY) != single:
                wanted = "one label per row" if metric == TOP_K_ACCURACY else "a multi-label model"
                raise ValueError(f"scoring={name!r} requires {wanted} and predict_topk; use another score")
        ks = [k for _, k in self.rankings.values()]
        if single:
            classes = class_numbers(model.classes_, y)
            return dict(zip(self.rankings, top_k_accuracies(model, X, classes, ks).tolist(), strict=True))
        top = model.predict_topk(X, max(ks))
        truth = model._encoding().indicator_with_unknown(y)
        more: dict[str, dict[str, Any]] = {}
        if any(metric == PSP for metric, _ in self.rankings.values()):
            more[PSP] = {"propensities": label_propensities(model, truth.shape[1])}
        return {
            name: float(RANKINGS[metric](truth, top, k, **more.get(metric, {})))
            for name, (metric, k) in self.rankings.items()
        }


def _named(scoring: Any) -> list[tuple[str, Any]]:
    """Pairs of a column name and what computes it."""
    if scoring is None or isinstance(scoring, str) or callable(scoring):
        return [(scoring if isinstance(scoring, str) else "score", scoring)]
    if isinstance(scoring, Mapping):
        pairs = list(scoring.items())
    elif isinstance(scoring, list | tuple | set):
        pairs = [(name, name) for name in scoring]
    else:
        pairs = []
    names = [name for name, _ in pairs]
    if not pairs or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(
            f"scoring must be a name, a function, a list of names or a dictionary of these; got {scoring!r}"
        )
    return pairs


def _scorer(given: Any) -> Scorer:
    """A function of model, rows and labels."""
    if given is None:
        return lambda model, X, y: model.score(X, y)
    scorer = get_scorer(given)
    return lambda model, X, y: float(np.asarray(scorer(model, X, y)))
