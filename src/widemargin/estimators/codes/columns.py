"""The binary classifiers of an output code: one a column, trained on the rows of the classes that the column asks.

    column t:  rows i with T[y_i, t] ≠ 0,  target T[y_i, t] = ±1,  weight_i · F[y_i, t]     (F: factors, 1 unless given)

`OneVsAllClassifier` takes all columns in one call of its solver where they have the same rows and weights, and one call
a column otherwise. Any other classifier is cloned and fitted column by column. Columns are fitted in parallel, by the
workers of `use_executor` where there are some. Outputs are decision
values, or 2p − 1 for a classifier that has probabilities p only, so that they are positive on the +1 side.
Memory: the data, the weights, and a copy of the rows of a column that leaves classes out.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples, has_fit_parameter

from widemargin.data.normalize import l2_normalize_rows, with_unit_rows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.training import TrainingData
from widemargin.labels.codes import Code
from widemargin.labels.encoding import EncodedTargets
from widemargin.parallel import Executor, current_executor, run_tasks, use_executor
from widemargin.parallel.folders import SharedRows
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import LinearScorer, compact
from widemargin.solvers.limits import worst_of
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS
from widemargin.solvers.result import Callback, Progress, Status

__all__ = [
    "BinaryTask",
    "ClonedTrainer",
    "ConstantColumn",
    "FittedColumns",
    "LinearColumns",
    "OwnTrainer",
    "n_weights_of",
    "steps_of",
    "takes_weights",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]

BOUNDS = ("primal", "dual", "primal_at_zero", "primal_before_pruning")
"""What a certificate adds up, in the order of `Certificate.sum`."""
SIGNS = np.array([-1, 1])


@dataclass(frozen=True)
class BinaryTask:
    """What is asked of the columns: T and F of shape (n_classes, n_columns), F None where all are 1, and which rows."""

    book: Code
    factors: Floats | None = None
    rows: Indices | None = None


class ConstantColumn:
    """Stands for the classifier of a column that has rows of one side only, or none: always the same output."""

    def __init__(self, value: float) -> None:
        self.value = value

    def decision_function(self, X: Any) -> Floats:
        """The value for each row."""
        return np.full(_num_samples(X), self.value)


@dataclass(frozen=True)
class LinearColumns:
    """Columns of our own solver: a row of weights each, and what the solver says of them."""

    template: OneVsAllClassifier
    coef: Any
    intercept: npt.NDArray[Any]
    certificate: Certificate | None  # None once it was stored and loaded
    n_iter: npt.NDArray[np.int64]
    status: Status
    bounds: Floats | None = None  # (n_columns, 4): `BOUNDS` of each column; None once it was stored and loaded

    def output_function(self) -> Callable[[Any, int], Floats]:
        """Decision values of shape (n_samples, n_columns) as a function of checked rows and a number of threads."""
        scorer, normalize = LinearScorer(self.coef, self.intercept), self.template.normalize
        return lambda X, n_threads: scorer.scores(l2_normalize_rows(X) if normalize else X, n_threads=n_threads)

    def select(self, columns: Indices) -> LinearColumns:
        """Some of the columns, with their own certificate."""
        if self.bounds is None:
            certificate, bounds = self.certificate, None
        else:
            bounds = self.bounds[columns]
            certificate = Certificate.sum(*bounds.T) if len(columns) else Certificate(0.0, 0.0, 0.0, 0.0)
        parts = (self.coef[columns], self.intercept[columns], certificate, self.n_iter[columns], self.status)
        return LinearColumns(self.template, *parts, bounds)

    def as_estimators(self) -> list[OneVsAllClassifier]:
        """A fitted binary classifier a column, its weights shared with these."""
        return [self._estimator(j) for j in range(len(self.intercept))]

    def _estimator(self, j: int) -> OneVsAllClassifier:
        model: OneVsAllClassifier = clone(self.template)
        model.classes_, model.kind_, model.sparse_output_ = SIGNS.copy(), "binary", False
        model.coef_, model.intercept_ = self.coef[j : j + 1], self.intercept[j : j + 1]
        model.n_features_in_, model.n_iter_ = self.coef.shape[1], self.n_iter[j : j + 1]
        model._freeze_weights()
        return model


@dataclass(frozen=True)
class FittedColumns:
    """Columns of any other classifier: the fitted estimators."""

    steady: ClassVar[bool] = False  # whether the last bits of outputs are the same in any batch

    estimators: tuple[Any, ...]

    def output_function(self) -> Callable[[Any, int], Floats]:
        """Outputs of shape (n_samples, n_columns) as a function of rows as the classifiers take them."""
        return lambda X, n_threads: np.column_stack([_output(estimator, X) for estimator in self.estimators])

    def select(self, columns: Indices) -> FittedColumns:
        """Some of the columns."""
        return FittedColumns(tuple(self.estimators[j] for j in columns))

    def as_estimators(self) -> list[Any]:
        """The fitted classifiers."""
        return list(self.estimators)


class OwnTrainer:
    """Trains columns by the solver of `OneVsAllClassifier`.

    Parameters
    ----------
    template : OneVsAllClassifier
        Its parameters.
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Checked rows.
    y : ndarray of shape (n_samples,)
        Class of each row.
    weights : ndarray of shape (n_samples,) or None
        Weights of the rows.
    callback : callable or None
        Called while columns are trained.
    """

    def __init__(
        self, template: OneVsAllClassifier, X: Any, y: Indices, weights: Floats | None, callback: Callback | None
    ) -> None:
        self.template, self.y, self.weights, self.callback = template, y, weights, callback
        self.X = with_unit_rows(X) if template.normalize else X

    def fit(self, task: BinaryTask, initial: tuple[Any, Any] | None = None) -> LinearColumns:
        """Columns for a task, from given weights and intercepts if there are any."""
        n_columns = task.book.shape[1]
        # A dictionary of weights names the two sides of a column, which one call for all columns has no names for.
        together = task.factors is None and task.book.all() and not isinstance(self.template.class_weight, dict)
        calls = [np.arange(n_columns)] if together else [np.array([j]) for j in range(n_columns)]
        if len(calls) == 1:
            return self._solve(task, calls[0], initial, self.template.n_jobs)
        engine = current_executor()
        if engine is not None:
            parts = _on_workers(self, [(task, columns, initial, 1) for columns in calls], self.callback, engine)
            if parts is not None:  # else the callback asks to stop, and is asked again below
                return _joined(parts)
        jobs = (delayed(self._solve)(task, columns, initial, 1) for columns in calls)
        return _joined(Parallel(n_jobs=self.template.n_jobs, prefer="threads")(jobs))  # the core works without the GIL

    def outputs(self, columns: LinearColumns, rows: Indices | None = None) -> Floats:
        """Outputs for training rows."""
        return LinearScorer(columns.coef, columns.intercept).scores(self.X if rows is None else self.X[rows])

    def _solve(
        self, task: BinaryTask, columns: Indices, initial: tuple[Any, Any] | None, n_jobs: int | None
    ) -> LinearColumns:
        """One call of the solver, for columns with the same rows and weights."""
        targets, weights = task.book[self.y][:, columns], self.weights
        if task.factors is not None:
            factors = task.factors[self.y, columns[0]]
            weights = factors if weights is None else weights * factors
        X, rows = self.X, _asked_rows(targets[:, 0], weights, task.rows)
        if rows is not None:
            X, targets, weights = X[rows], targets[rows], None if weights is None else weights[rows]
        if len(targets) == 0:  # no row of this fold is asked: nothing is known, the output is 0
            nothing = Certificate(0.0, 0.0, 0.0, 0.0)
            zeros, none = np.zeros((1, X.shape[1]), dtype=X.dtype), np.zeros(1, dtype=np.int64)
            return LinearColumns(
                self.template, zeros, np.zeros(1), nothing, none, Status.CONVERGED, np.zeros((1, len(BOUNDS)))
            )
        start = None if initial is None else (initial[0][columns], initial[1][columns])
        result = self._model(n_jobs)._fit_checked(TrainingData(X, X, _encoded(targets), weights), start)
        stored = (compact(result.coef), result.intercept, result.certificate, result.n_iter, result.status)
        table = result.bounds_by_label
        bounds = None if table is None else table[:, [BOUND_COLUMNS.index(name) for name in BOUNDS]]
        return LinearColumns(self.template, *stored, bounds)

    def _model(self, n_jobs: int | None) -> OneVsAllClassifier:
        model: OneVsAllClassifier = clone(self.template)
        model.n_jobs = n_jobs
        if self.callback is not None:
            model.callback = self.callback
        return model


class ClonedTrainer:
    """Trains a clone of any classifier for each column.

    Parameters
    ----------
    template : estimator
        A classifier with `decision_function` or `predict_proba`.
    X : object
        Rows as the classifier takes them.
    y : ndarray of shape (n_samples,)
        Class of each row.
    weights : ndarray of shape (n_samples,) or None
        Weights of the rows; None leaves `sample_weight` out of the call of `fit`.
    fit_params : mapping
        Further arguments of `fit`.
    n_jobs : int or None
        Columns that are fitted at the same time.
    prune : float
        Weights below this in absolute value are dropped.
    """

    def __init__(
        self,
        template: Any,
        X: Any,
        y: Indices,
        weights: Floats | None,
        fit_params: Mapping[str, Any],
        n_jobs: int | None,
        prune: float = 0.0,
    ) -> None:
        self.template, self.X, self.y, self.weights = template, X, y, weights
        self.fit_params, self.n_jobs, self.prune = fit_params, n_jobs, prune

    def fit(self, task: BinaryTask, initial: tuple[Any, Any] | None = None) -> FittedColumns:
        """Columns for a task; these classifiers start anew."""
        if task.factors is not None and not takes_weights(self.template):
            name = type(self.template).__name__
            raise ValueError(f"{name}.fit takes no sample_weight, and retraining columns needs it: use interleave=0")
        if initial is not None:
            raise ValueError("only OneVsAllClassifier starts from given weights")
        engine = current_executor()
        if engine is not None:
            calls = [(task, j) for j in range(task.book.shape[1])]
            return FittedColumns(tuple(_on_workers(self, calls, None, engine) or ()))
        jobs = (delayed(_fit_one)(self.template, self.prune, *self._call(task, j)) for j in range(task.book.shape[1]))
        return FittedColumns(tuple(Parallel(n_jobs=self.n_jobs)(jobs)))

    def outputs(self, columns: FittedColumns, rows: Indices | None = None) -> Floats:
        """Outputs for training rows."""
        return columns.output_function()(self.X if rows is None else _safe_indexing(self.X, rows), 1)

    def _solve(self, task: BinaryTask, j: int) -> Any:
        """The fitted classifier of one column."""
        return _fit_one(self.template, self.prune, *self._call(task, j))

    def _call(self, task: BinaryTask, j: int) -> tuple[Any, npt.NDArray[np.int64], dict[str, Any]]:
        """Rows, targets and further arguments of the fit of one column."""
        targets, weights = task.book[self.y, j].astype(np.int64), self.weights
        if task.factors is not None:
            factors = task.factors[self.y, j]
            weights = factors if weights is None else weights * factors
        params = dict(self.fit_params) if weights is None else {**self.fit_params, "sample_weight": weights}
        rows = _asked_rows(targets, weights, task.rows)
        if rows is None:
            return self.X, targets, params
        return _safe_indexing(self.X, rows), targets[rows], _check_method_params(self.X, params, rows)


def steps_of(columns: LinearColumns | FittedColumns) -> npt.NDArray[np.int64]:
    """Steps of the solver of each column; 1 where the classifier does not tell."""
    if isinstance(columns, LinearColumns):
        return columns.n_iter
    told = [getattr(estimator, "n_iter_", None) for estimator in columns.estimators]
    return np.array([1 if steps is None else np.max(steps) for steps in told], dtype=np.int64)


def n_weights_of(columns: LinearColumns | FittedColumns) -> int:
    """Weights of linear columns; 0 for classifiers without."""
    if isinstance(columns, LinearColumns):
        coefs = [columns.coef]
    else:
        coefs = [getattr(estimator, "coef_", np.empty(0)) for estimator in columns.estimators]
    return int(sum(coef.nnz if sp.issparse(coef) else coef.size for coef in coefs))


def takes_weights(estimator: Any) -> bool:
    """Whether `fit` of the estimator has a parameter `sample_weight`."""
    return bool(has_fit_parameter(estimator, "sample_weight"))


def _fit_one(template: Any, prune: float, X: Any, targets: npt.NDArray[np.int64], params: dict[str, Any]) -> Any:
    """A fitted classifier of one column; a constant where there is nothing to tell apart."""
    sides = np.unique(targets)
    if len(sides) < 2:
        return ConstantColumn(float(sides[0]) if len(sides) else 0.0)
    fitted = clone(template).fit(X, targets, **params)
    return _pruned(fitted, prune) if prune > 0 else fitted


def _pruned(fitted: Any, prune: float) -> Any:
    """A linear classifier without its small weights, sparse if it can be."""
    coef = getattr(fitted, "coef_", None)
    if coef is None:
        raise ValueError(
            f"prune={prune:g} drops weights of features, and {type(fitted).__name__} has none (coef_); use prune=0"
        )
    dense = coef.toarray() if sp.issparse(coef) else np.asarray(coef)
    fitted.coef_ = np.where(np.abs(dense) >= prune, dense, dense.dtype.type(0))
    return fitted.sparsify() if hasattr(fitted, "sparsify") else fitted


def _output(estimator: Any, X: Any) -> Floats:
    """Positive for the +1 side: the decision value, or twice the probability, less 1."""
    if hasattr(estimator, "decision_function"):
        return np.ravel(np.asarray(estimator.decision_function(X), dtype=np.float64))
    probabilities: Floats = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    return 2.0 * probabilities[:, 1] - 1.0


def _asked_rows(targets: npt.NDArray[Any], weights: Floats | None, rows: Indices | None) -> Indices | None:
    """Rows of a column with a target and a weight, among those given; None for all."""
    asked = targets != 0
    if weights is not None:
        asked &= weights > 0.0
    if rows is not None:
        within: Indices = rows[asked[rows]]
        return within
    return None if asked.all() else np.flatnonzero(asked)


def _encoded(targets: npt.NDArray[Any]) -> EncodedTargets:
    """Targets ±1 of some columns as labels: present where +1."""
    n_columns = targets.shape[1]
    positive = sp.csr_array(targets > 0, dtype=np.int8)
    if n_columns == 1:
        return EncodedTargets("binary", SIGNS, positive, False)
    return EncodedTargets("multilabel", np.arange(n_columns), positive, True)


def _on_workers(
    trainer: OwnTrainer | ClonedTrainer, calls: list[tuple[Any, ...]], callback: Callback | None, engine: Executor
) -> list[Any] | None:
    """What `_solve` of a trainer gives for each call, by workers that map the rows; None when the callback stops it."""
    light = copy.copy(trainer)
    light.X = None
    if isinstance(light, OwnTrainer):
        light.callback = None
    began, found = time.monotonic(), {}
    with SharedRows.of(trainer.X, engine) as rows:
        for number, part in run_tasks(_solve_call, [(light, rows, *call) for call in calls], engine):
            found[number] = part
            progress = Progress(len(found), len(calls), time.monotonic() - began, 0.0, 0.0)
            if callback is not None and callback(progress) and len(found) < len(calls):
                return None
    return [found[number] for number in range(len(calls))]


def _solve_call(trainer: OwnTrainer | ClonedTrainer, rows: SharedRows, *call: Any) -> Any:
    """The task of a column."""
    trainer = copy.copy(trainer)
    trainer.X = rows.load()
    with use_executor(None):
        return trainer._solve(*call)


def _joined(parts: Sequence[LinearColumns]) -> LinearColumns:
    """Columns that were solved one by one, together; their bounds are added up."""
    bounds = np.array([[getattr(part.certificate, name) for name in BOUNDS] for part in parts])
    coefs = [part.coef for part in parts]
    sparse = any(sp.issparse(coef) for coef in coefs)
    return LinearColumns(
        parts[0].template,
        sp.vstack([sp.csr_array(coef) for coef in coefs], format="csr") if sparse else np.vstack(coefs),
        np.concatenate([part.intercept for part in parts]),
        Certificate.sum(*bounds.T),
        np.concatenate([part.n_iter for part in parts]),
        worst_of(part.status for part in parts),
        bounds,
    )
