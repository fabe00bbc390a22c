"""The binary classifiers of an output code: one per column, trained on the rows of the classes that the column has.

    column t:  rows i with T[y_i, t] ≠ 0,  target T[y_i, t] = ±1,  weight_i · F[y_i, t]     (F: factors, 1 unless given)

`OneVsAllClassifier` trains all columns in one call of its solver if they have the same rows and weights, and with one
call per column otherwise. Any other classifier is cloned and fitted column by column. Columns are fitted in parallel,
by the executor of `use_executor` if there is one. Outputs are decision values, or 2p − 1 for a classifier that has only
probabilities p: positive on the +1 side. Memory: the data, the weights, and a copy of the rows of a column that leaves
classes out.
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

from widemargin.data.normalize import l2_normalize_rows
from widemargin.estimators.explanation import weights_of_rows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.training import Estimator, TrainingData
from widemargin.labels.codes import Code, Floats, Indices
from widemargin.labels.encoding import EncodedTargets
from widemargin.parallel import Executor, current_executor, run_tasks, use_executor
from widemargin.parallel.folders import SharedRows
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import LinearScorer, compact
from widemargin.solvers.limits import worst_of
from widemargin.solvers.result import Callback, Progress, Status

__all__ = [
    "N_BOUNDS",
    "SIGNS",
    "BinaryTask",
    "ClonedTrainer",
    "ColumnTrainer",
    "Columns",
    "FittedColumns",
    "LinearColumns",
    "OwnTrainer",
    "linear_part",
]

Ints: TypeAlias = npt.NDArray[np.int64]

N_BOUNDS = 4
"""Numbers of a certificate that are added up, in the order of `Certificate.sum`."""
SIGNS = np.array([-1, 1])


@dataclass(frozen=True)
class BinaryTask:
    """What columns are trained for: T and F of shape (n_classes, n_columns), F None if all are 1, and on which rows."""

    book: Code
    factors: Floats | None = None
    rows: Indices | None = None

    def rows_of(self, j: int, y: Indices, weights: Floats | None) -> tuple[Indices | None, Floats | None]:
        """Rows of column j, those with a target and a weight (None: all), and the weights of all rows (None: 1)."""
        if self.factors is not None:
            factors = self.factors[y, j]
            weights = factors if weights is None else weights * factors
        used = self.book[y, j] != 0
        if weights is not None:
            used &= weights > 0.0
        if self.rows is not None:
            return self.rows[used[self.rows]], weights
        return None if used.all() else np.flatnonzero(used), weights


@dataclass(frozen=True)
class LinearColumns:
    """Columns trained by `OneVsAllClassifier`: a row of weights each, and the solver's report."""

    steady: ClassVar[bool] = True

    template: OneVsAllClassifier
    coef: Any
    intercept: npt.NDArray[Any]
    certificate: Certificate | None  # None in a model that was loaded
    n_iter: Ints
    status: Status
    bounds: Floats | None = None  # (n_columns, N_BOUNDS), those of each column; None in a model that was loaded

    @property
    def estimators(self) -> list[OneVsAllClassifier]:
        """A fitted binary classifier per column; their weights are views of these."""
        made = []
        for j in range(len(self.intercept)):
            model: OneVsAllClassifier = clone(self.template)
            model.classes_, model.kind_, model.sparse_output_ = SIGNS.copy(), "binary", False
            model.coef_, model.intercept_ = self.coef[j : j + 1], self.intercept[j : j + 1]
            model.n_features_in_, model.n_iter_ = self.coef.shape[1], self.n_iter[j : j + 1]
            model._freeze_weights()
            made.append(model)
        return made

    @property
    def n_weights(self) -> int:
        """Number of stored weights."""
        return int(self.coef.nnz if sp.issparse(self.coef) else self.coef.size)

    def output_function(self) -> Callable[[Any, int], Floats]:
        """Decision values of shape (n_samples, n_columns) as a function of checked rows and a number of threads."""
        scorer, normalize = LinearScorer(self.coef, self.intercept), self.template.normalize
        return lambda X, n_threads: scorer.scores(l2_normalize_rows(X) if normalize else X, n_threads=n_threads)

    def select(self, kept: Indices) -> LinearColumns:
        """Some of the columns, with their own certificate."""
        certificate, bounds = self.certificate, self.bounds
        if bounds is not None:
            bounds = bounds[kept]
            certificate = Certificate.sum(*bounds.T) if len(kept) else Certificate(0.0, 0.0, 0.0, 0.0)
        parts = (self.coef[kept], self.intercept[kept], certificate, self.n_iter[kept], self.status)
        return LinearColumns(self.template, *parts, bounds)

    def weights_at(self, features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Weights of all columns at some features, and their intercepts."""
        rows = np.arange(len(self.intercept))
        return weights_of_rows(self.coef, rows, features), self.intercept.astype(np.float64)


@dataclass(frozen=True)
class FittedColumns:
    """Columns of any other classifier: the fitted estimators, which report neither certificate nor status."""

    steady: ClassVar[bool] = False
    certificate: ClassVar[None] = None
    status: ClassVar[Status] = Status.CONVERGED

    fitted: tuple[Any, ...]

    @property
    def estimators(self) -> list[Any]:
        """The fitted classifiers."""
        return list(self.fitted)

    @property
    def n_iter(self) -> Ints:
        """Iterations of each column; 1 if the classifier does not report them."""
        reported = [getattr(estimator, "n_iter_", None) for estimator in self.fitted]
        return np.array([1 if steps is None else np.max(steps) for steps in reported], dtype=np.int64)

    @property
    def n_weights(self) -> int:
        """Number of stored weights of linear classifiers; 0 for classifiers without."""
        coefs: list[Any] = [getattr(estimator, "coef_", np.empty(0)) for estimator in self.fitted]
        return int(sum(coef.nnz if sp.issparse(coef) else coef.size for coef in coefs))

    def output_function(self) -> Callable[[Any, int], Floats]:
        """Outputs of shape (n_samples, n_columns) as a function of rows as the classifiers take them."""
        return lambda X, n_threads: np.column_stack([_output(estimator, X) for estimator in self.fitted])

    def select(self, kept: Indices) -> FittedColumns:
        """Some of the columns."""
        return FittedColumns(tuple(self.fitted[j] for j in kept))

    def weights_at(self, features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        """Weights of all columns at some features, and their intercepts; an error if they are not linear."""
        parts = [linear_part(column, int(features.max(initial=0)) + 1) for column in self.fitted]
        weights = [weights_of_rows(coef, np.array([0]), features)[0] for coef, _ in parts]
        return np.array(weights), np.array([intercept for _, intercept in parts])


Columns: TypeAlias = LinearColumns | FittedColumns
"""Trained columns: outputs, classifiers, weights at some features, and a selection of them."""


class ConstantColumn:
    """Stands for the classifier of a column that has rows of one side only, or none: always the same output."""

    def __init__(self, value: float) -> None:
        self.value = value

    def decision_function(self, X: Any) -> Floats:
        """The value for each row."""
        return np.full(_num_samples(X), self.value)


def linear_part(column: Any, n_features: int) -> tuple[Any, float]:
    """Weights, of shape (1, n_features), and intercept of a fitted binary classifier; an error if it is not linear."""
    if isinstance(column, ConstantColumn):
        return sp.csr_array((1, n_features)), column.value
    if not (hasattr(column, "coef_") and hasattr(column, "decision_function")):
        raise ValueError(
            f"the binary classifier {type(column).__name__} has no feature weights (coef_); use a linear one, such as "
            "OneVsAllClassifier or LinearSVC"
        )
    coef = sp.csr_array(column.coef_) if sp.issparse(column.coef_) else np.asarray(column.coef_).reshape(1, -1)
    return coef, float(np.ravel(column.intercept_)[0])


@dataclass
class OwnTrainer:
    """Trains columns by the solver of `OneVsAllClassifier`.

    Parameters
    ----------
    template : OneVsAllClassifier
        Its parameters.
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Checked rows, scaled if the template says so.
    y : ndarray of shape (n_samples,)
        Class of each row.
    weights : ndarray of shape (n_samples,) or None
        Weights of the rows.
    callback : callable or None
        Called while columns are trained.
    """

    template: OneVsAllClassifier
    X: Any
    y: Indices
    weights: Floats | None
    callback: Callback | None

    def fit(self, task: BinaryTask, start: tuple[Any, Any] | None = None) -> LinearColumns:
        """Train the columns of a task, from given weights and intercepts if there are any."""
        n_columns = task.book.shape[1]
        # A dictionary of weights names the two sides of a column, and one call for all columns has no such names.
        together = task.factors is None and task.book.all() and not isinstance(self.template.class_weight, dict)
        if together or n_columns == 1:
            return self._solve(task, np.arange(n_columns), start, self.template.n_jobs)
        calls = [(task, np.array([j]), start, 1) for j in range(n_columns)]
        executor = current_executor()
        parts = None if executor is None else _run_on(executor, self, calls, self.callback)
        if parts is None:  # also if the callback asked to stop: it is asked again
            parallel = Parallel(n_jobs=self.template.n_jobs, prefer="threads")  # the core releases the GIL
            parts = parallel(delayed(self._solve)(*call) for call in calls)
        return _joined(parts)

    def outputs(self, columns: Any, rows: Indices | None = None) -> Floats:
        """Outputs for training rows."""
        return LinearScorer(columns.coef, columns.intercept).scores(self.X if rows is None else self.X[rows])

    def _solve(
        self, task: BinaryTask, columns: Indices, start: tuple[Any, Any] | None, n_jobs: int | None
    ) -> LinearColumns:
        """One call of the solver, for columns with the same rows and weights."""
        X, targets = self.X, task.book[self.y][:, columns]
        rows, weights = task.rows_of(int(columns[0]), self.y, self.weights)
        if rows is not None:
            X, targets, weights = X[rows], targets[rows], None if weights is None else weights[rows]
        if len(targets) == 0:  # this fold has no row of the column: nothing is known, the output is 0
            zeros, none = np.zeros((1, X.shape[1]), dtype=X.dtype), np.zeros(1, dtype=np.int64)
            nothing = Certificate(0.0, 0.0, 0.0, 0.0)
            ends = (nothing, none, Status.CONVERGED, np.zeros((1, N_BOUNDS)))
            return LinearColumns(self.template, zeros, np.zeros(1), *ends)
        positive, single = sp.csr_array(targets > 0, dtype=np.int8), len(columns) == 1
        encoded = EncodedTargets(
            "binary" if single else "multilabel", SIGNS if single else np.arange(len(columns)), positive, not single
        )
        model: OneVsAllClassifier = clone(self.template)
        model.n_jobs, model.callback = n_jobs, model.callback if self.callback is None else self.callback
        initial = None if start is None else (start[0][columns], start[1][columns])
        result = model._fit_checked(TrainingData(X, X, encoded, weights), initial, keep=False)
        parts = (compact(result.coef), result.intercept, result.certificate, result.n_iter, result.status)
        return LinearColumns(self.template, *parts, result.bounds_by_label[:, :N_BOUNDS])


@dataclass
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

    template: Any
    X: Any
    y: Indices
    weights: Floats | None
    fit_params: Mapping[str, Any]
    n_jobs: int | None
    prune: float

    def fit(self, task: BinaryTask, start: tuple[Any, Any] | None = None) -> FittedColumns:
        """Train the columns of a task; these classifiers have no start."""
        if task.factors is not None and not has_fit_parameter(self.template, "sample_weight"):
            name = type(self.template).__name__
            raise ValueError(
                f"{name}.fit does not accept sample_weight, which is required to retrain columns; use interleave=0"
            )
        if start is not None:
            raise ValueError("only OneVsAllClassifier can start from existing weights")
        executor = current_executor()
        if executor is not None:
            calls = [(task, j) for j in range(task.book.shape[1])]
            return FittedColumns(tuple(_run_on(executor, self, calls, None) or ()))
        jobs = (delayed(_fit_one)(self.template, self.prune, *self._call(task, j)) for j in range(task.book.shape[1]))
        return FittedColumns(tuple(Parallel(n_jobs=self.n_jobs)(jobs)))

    def outputs(self, columns: Any, rows: Indices | None = None) -> Floats:
        """Outputs for training rows."""
        found: Floats = columns.output_function()(self.X if rows is None else _safe_indexing(self.X, rows), 1)
        return found

    def _solve(self, task: BinaryTask, j: int) -> Any:
        """The fitted classifier of one column."""
        return _fit_one(self.template, self.prune, *self._call(task, j))

    def _call(self, task: BinaryTask, j: int) -> tuple[Any, Ints, dict[str, Any]]:
        """Rows, targets and further arguments of the fit of one column."""
        targets = task.book[self.y, j].astype(np.int64)
        rows, weights = task.rows_of(j, self.y, self.weights)
        params = dict(self.fit_params) if weights is None else {**self.fit_params, "sample_weight": weights}
        if rows is None:
            return self.X, targets, params
        return _safe_indexing(self.X, rows), targets[rows], _check_method_params(self.X, params, rows)


ColumnTrainer: TypeAlias = OwnTrainer | ClonedTrainer
"""Trains columns on some rows, and computes their outputs for these rows."""


def _fit_one(template: Any, prune: float, X: Any, targets: Ints, params: dict[str, Any]) -> Any:
    """A fitted classifier of one column, without its small weights; a constant where there is nothing to separate."""
    sides = np.unique(targets)
    if len(sides) < 2:
        return ConstantColumn(float(sides[0]) if len(sides) else 0.0)
    fitted = clone(template).fit(X, targets, **params)
    if prune <= 0:
        return fitted
    coef = getattr(fitted, "coef_", None)
    if coef is None:
        raise ValueError(
            f"prune={prune:g} requires feature weights (coef_), which {type(fitted).__name__} does not have; use "
            "prune=0"
        )
    dense = coef.toarray() if sp.issparse(coef) else np.asarray(coef)
    fitted.coef_ = np.where(np.abs(dense) >= prune, dense, dense.dtype.type(0))
    return fitted.sparsify() if hasattr(fitted, "sparsify") else fitted


def _output(estimator: Estimator, X: Any) -> Floats:
    """Positive for the +1 side: the decision value, or twice the probability, less 1."""
    if hasattr(estimator, "decision_function"):
        return np.ravel(np.asarray(estimator.decision_function(X), dtype=np.float64))
    probabilities: Floats = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    return 2.0 * probabilities[:, 1] - 1.0


def _run_on(
    executor: Executor, trainer: ColumnTrainer, calls: list[tuple[Any, ...]], callback: Callback | None
) -> list[Any] | None:
    """What `_solve` of a trainer returns for each call, by tasks that map the rows; None if the callback stops it."""
    light = copy.copy(trainer)
    light.X = None
    if isinstance(light, OwnTrainer):
        light.callback = None
    started, found = time.monotonic(), {}
    with SharedRows.of(trainer.X, executor) as rows:
        for number, part in run_tasks(_solve_call, [(light, rows, *call) for call in calls], executor):
            found[number] = part
            progress = Progress(len(found), len(calls), time.monotonic() - started, 0.0, 0.0)
            if callback is not None and callback(progress) and len(found) < len(calls):
                return None
    return [found[number] for number in range(len(calls))]


def _solve_call(trainer: ColumnTrainer, rows: SharedRows, *call: Any) -> Any:
    """The task of one call."""
    trainer = copy.copy(trainer)
    trainer.X = rows.load()
    with use_executor(None):
        return trainer._solve(*call)


def _joined(parts: Sequence[LinearColumns]) -> LinearColumns:
    """Columns that were solved one by one, together; their bounds are added up."""
    certificates, coefs = [part.certificate for part in parts], [part.coef for part in parts]
    bounds = np.array([(c.primal, c.dual, c.primal_at_zero, c.primal_before_pruning) for c in certificates if c])
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
