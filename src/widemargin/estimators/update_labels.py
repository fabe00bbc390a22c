"""The labels of a one-vs-all model after an update: which are solved, in memory or in shards, and all of them joined.

What the bounds prove is in `widemargin.estimators.one_vs_all.updating`. Memory: the rows, the old weights, and the
weights of the labels that are solved.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from widemargin.data.training_rows import TrainingRows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.one_vs_all.folder_training import is_large, write_rows
from widemargin.estimators.one_vs_all.shards import CONTINUE, ShardRun, can_be_split
from widemargin.estimators.one_vs_all.updating import NEW, SOLVED, Verdict, judge
from widemargin.estimators.training import TrainingData
from widemargin.estimators.update_rows import RowChange, in_order, padded, stacked
from widemargin.exceptions import TrainingInterrupted, WidemarginError
from widemargin.labels.encoding import listed
from widemargin.parallel import as_executor
from widemargin.parallel.work_folder import WorkFolder
from widemargin.problems.certificate import relative_gap
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.one_vs_all.plan import solve
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS, OneVsAllResult, Problem, frequency_history
from widemargin.solvers.result import Status

__all__ = ["LEFT", "update_labels"]

LEFT = "left"
UNFINISHED = (Status.TIME_LIMIT, Status.STOPPED)
MAX_NAMED = 5  # labels in a message

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def update_labels(
    model: OneVsAllClassifier,
    change: RowChange,
    work: WorkFolder | None,
    *,
    leave: bool,
    dry_run: bool,
    **how: Any,
) -> tuple[OneVsAllClassifier, npt.NDArray[np.str_]]:
    """The updated one-vs-all model, and what happened to its labels."""
    new = copy.copy(model)
    # Numbers in place of "auto", and a plain fit.
    new.C, new.rank_scale, new.warm_start, new.callback = model.C_, model.rank_scale_, False, None
    problem = new._problem(change.data)
    old_bounds = _bounds_of(new, model, change)
    duals = _duals_of(model, change, problem)
    verdict = judge(
        problem,
        model.coef_,
        model.intercept_,
        old_bounds,
        change.source,
        change.added,
        change.removed,
        prune=model.prune,
        gap_tol=model.gap_tol,
        duals=duals,
    )
    outcome = verdict.outcome
    wanted = _labels_to_solve(model, change, verdict, leave)
    if dry_run:
        shown = copy.copy(model)
        shown.label_bounds_ = old_bounds
        return shown, outcome
    solved = None
    if len(wanted):
        # Batches of the logistic loss have no start, and from zero they take an eighth of the CPU of Newton from one.
        from_zero = model.loss == "logistic" and sp.issparse(problem.X)
        n_features = problem.X.shape[1]
        start = None if from_zero else _start(model.coef_, model.intercept_, change.source[wanted], n_features)
        solved = _solve(new, problem.select(wanted), start, work, keep_duals=duals is not None, **how)
    result = _joined(new, model, change, problem, verdict, duals, wanted, solved)
    with warnings.catch_warnings():
        if change.X is None:  # `leave` asked for it, and advice about training does not apply
            warnings.simplefilter("ignore", ConvergenceWarning)
        new._keep(change.data, result)
    if change.X is None:
        old_counts = in_order(sp.csr_array(model.label_counts_[None]), change.order).toarray()[0]
        new.label_counts_ = new.label_counts_ + old_counts
        new.n_samples_fit_ += model.n_samples_fit_
    for name in ("C", "rank_scale", "warm_start", "callback"):
        setattr(new, name, getattr(model, name))
    return new, outcome


def _labels_to_solve(model: OneVsAllClassifier, change: RowChange, verdict: Verdict, leave: bool) -> Ints:
    """The labels that are solved; sets the outcome of those that change with the number of rows or must be left."""
    outcome, is_old = verdict.outcome, change.source >= 0
    if _depends_on_all_rows(model, change):
        outcome[is_old] = SOLVED
    if model.status_ in UNFINISHED and change.X is not None and model.gap_tol is not None:
        # An earlier update was stopped, or left labels.
        _, dual, _, before, _ = verdict.bounds.T
        outcome[is_old & (relative_gap(before, dual) > model.gap_tol)] = SOLVED
    wanted = verdict.to_solve
    if change.X is not None or len(wanted) == 0:
        return wanted
    can_be_left = not (outcome == NEW).any() and not _depends_on_all_rows(model, change)
    if not (leave and can_be_left):
        names = listed([_name_of(change, number) for number in wanted[:MAX_NAMED].tolist()])
        remedy = ", or pass leave=True to keep the old weights of known labels" if can_be_left else ""
        raise WidemarginError(
            f"{len(wanted):,} of {len(outcome):,} labels must be solved on all rows, but the model does not record "
            f"its rows: {names}{' …' if len(wanted) > MAX_NAMED else ''}; pass rows=, train on a store or with "
            f"keep_rows{remedy}"
        )
    outcome[wanted] = LEFT
    return wanted[:0]


def _depends_on_all_rows(model: OneVsAllClassifier, change: RowChange) -> bool:
    """Whether the change gives old rows other weights."""
    return model.class_weight in ("balanced", "propensity") and len(change.added) + len(change.removed) > 0


def _joined(
    new: OneVsAllClassifier,
    model: OneVsAllClassifier,
    change: RowChange,
    problem: Problem,
    verdict: Verdict,
    duals: Any,
    wanted: Ints,
    solved: OneVsAllResult | None,
) -> OneVsAllResult:
    """The old labels and those that were solved as one result; what was stopped before its turn is left."""
    outcome, bounds, source = verdict.outcome, verdict.bounds, change.source
    known = np.maximum(source, 0)
    n_iter = np.where(source >= 0, np.atleast_1d(model.n_iter_)[known], 0)
    coef, intercept, pick = model.coef_, model.intercept_, source.copy()
    stopped = Status.STOPPED
    if solved is not None:
        done = ~np.isin(solved.status_by_label, [status.value for status in UNFINISHED])
        finished = wanted[done]
        bounds[finished], n_iter[finished] = solved.bounds_by_label[done], solved.n_iter[done]
        pick[finished] = len(intercept) + np.flatnonzero(done)
        if (pick < 0).any():
            raise WidemarginError("the update was stopped before all new labels were solved; allow more time")
        outcome[wanted[~done]] = LEFT
        stopped = solved.status if solved.status in UNFINISHED else stopped
        coef = _picked(coef, solved.coef, pick)
        intercept = np.concatenate([intercept, solved.intercept])[pick]
    elif not np.array_equal(pick, np.arange(len(intercept))):
        coef, intercept = _picked(coef, coef[:0], pick), intercept[pick]
    coef = padded(coef, problem.X.shape[1]) if sp.issparse(coef) else coef
    left = np.flatnonzero(outcome == LEFT)
    if len(left) and _depends_on_all_rows(model, change):
        bounds[left] = _certified(new, problem.select(left), coef[left], intercept[left])
    if duals is not None:
        duals = _joined_duals(duals, verdict, source, None if solved is None else solved.duals, pick)
    status = np.full(len(outcome), model.status_.value, dtype="<U16")
    if model.gap_tol is not None:
        status[relative_gap(bounds[:, 3], bounds[:, 1]) <= model.gap_tol] = Status.CONVERGED.value
    if solved is not None:
        status[finished] = solved.status_by_label[done]
    status[left] = stopped.value
    counts = np.asarray(change.targets.Y.sum(axis=0)).reshape(-1).astype(np.int64)
    if change.X is None:
        counts += model.label_counts_[1:] if model.kind_ == "binary" else model.label_counts_[known]
    history = frequency_history(counts, n_iter, bounds)
    return OneVsAllResult.of(coef, intercept, status, bounds, history=history, n_iter=n_iter, duals=duals)


def _name_of(change: RowChange, output: int) -> str:
    """The name of a label, for a message."""
    classes = change.targets.classes
    return str(classes[1 if change.targets.kind == "binary" else output])


def _bounds_of(new: OneVsAllClassifier, model: OneVsAllClassifier, change: RowChange) -> Floats:
    """The bounds of each label on the old rows; those of a model that lacks them are computed in one pass."""
    if hasattr(model, "label_bounds_"):
        return np.asarray(model.label_bounds_)
    if change.X is None:
        raise WidemarginError(
            "the model was stored by an earlier version, without bounds for each label; pass rows=, from which they "
            "are computed"
        )
    before = change.old_rows >= 0
    X = stacked([change.X[before], change.removed.X])
    Y = sp.vstack([change.targets.Y[np.flatnonzero(before)], change.removed.Y], format="csr")
    own = np.ones(int(before.sum())) if change.weight is None else change.weight[before]
    weight = np.concatenate([own, change.removed.weight])
    data = TrainingData(X, X, replace(change.targets, Y=sp.csr_array(Y)), weight)
    old = np.flatnonzero(change.source >= 0)
    place = change.source[old]
    bounds = np.zeros((len(model.intercept_), len(BOUND_COLUMNS)))
    bounds[place] = _certified(new, new._problem(data).select(old), model.coef_[place], model.intercept_[place])
    return bounds


def _certified(model: OneVsAllClassifier, problem: Problem, coef: Any, intercept: npt.NDArray[Any]) -> Floats:
    """The bounds of labels with given weights, from all rows: a Newton solver without steps certifies its start."""
    plan = model._planned(problem, (coef, intercept))
    return solve(replace(plan, algorithm="newton", max_iter=0, prune=0.0, polish=False)).bounds_by_label


def _duals_of(model: OneVsAllClassifier, change: RowChange, problem: Problem) -> Any:
    """The dual variables of the old labels in the rows of the problem, zero in new rows; None if they were not kept."""
    duals = getattr(model, "duals_", None)
    if duals is None or change.X is None or problem.X.shape[0] != change.X.shape[0]:  # rows of weight zero are left out
        return None
    record: TrainingRows | None = getattr(model, "rows_", None)
    if record is not None and duals.shape[1] == record.n_stored:
        duals = duals[:, record.live_numbers()]
    old = change.old_rows[change.old_rows >= 0]
    kept = sp.csr_array(duals[:, old] if len(old) < duals.shape[1] else duals)
    return sp.csr_array((kept.data, kept.indices, kept.indptr), shape=(kept.shape[0], problem.X.shape[0]))


def _joined_duals(old: Any, verdict: Verdict, source: Ints, solved: Any, pick: Ints) -> Any:
    """The dual variables of all labels: old ones, those extended by new rows, and those of labels solved again."""
    extended = np.maximum(source, 0)
    extended[verdict.touched] = old.shape[0] + np.arange(len(verdict.touched))
    duals = _picked(old, verdict.touched_duals, extended)
    if solved is None:
        return duals
    is_solved = pick >= old.shape[0]
    return _picked(duals, solved, np.where(is_solved, pick - old.shape[0] + len(pick), np.arange(len(pick))))


def _start(coef: Any, intercept: npt.NDArray[Any], source: Ints, n_features: int) -> tuple[Any, Any]:
    """Weights to start from: those of the old labels, none for new ones."""
    places, known = np.maximum(source, 0), source >= 0
    weights = coef[places]
    if sp.issparse(coef):
        weights = padded(sp.csr_array(weights), n_features)
        lengths = np.where(known, np.diff(weights.indptr), 0)
        entries = np.repeat(known, np.diff(weights.indptr))
        parts = weights.data[entries], weights.indices[entries], np.append(0, np.cumsum(lengths))
        weights = sp.csr_array(parts, shape=weights.shape)
    else:
        weights[~known] = 0.0
    return weights, np.where(known, intercept[places], 0.0).astype(intercept.dtype)


def _solve(
    model: OneVsAllClassifier,
    problem: Problem,
    start: tuple[Any, Any] | None,
    work: WorkFolder | None,
    *,
    keep_duals: bool,
    executor: Any,
    shard_size: int | None,
    time_limit_s: float | None,
    memory_limit_mb: float | None,
    callback: Any,
    report: Any,
) -> OneVsAllResult:
    """Solve labels from given weights, in memory or, in a folder and if there is much to do, in shards."""
    plan = model._planned(problem, start, keep_duals=keep_duals)
    asked = (executor, shard_size, time_limit_s, memory_limit_mb) != (None, None, None, None)
    if (
        work is not None
        and can_be_split(plan)
        and (asked or is_large(problem.X, problem.n_labels) or bool(work.finished(problem.n_labels)))
    ):
        run = ShardRun(plan, work, as_executor(executor), callback, time_limit_s, memory_limit_mb, report)
        try:
            rows = write_rows(work.path / "rows", problem.X, "", normalize=False)
            return run.solve(rows, shard_size, in_memory=True)
        except KeyboardInterrupt:
            raise TrainingInterrupted(f"{run.so_far()}; {CONTINUE}") from None
    if time_limit_s is not None:
        callback = TimeLimit(time_limit_s, callback)
    return solve(plan, callback=callback)


def _picked(old: Any, new: Any, pick: Ints) -> Any:
    """The rows `pick` of the old weights followed by the new ones."""
    if not sp.issparse(old):
        wide = np.zeros((len(old), new.shape[1]), dtype=old.dtype)
        wide[:, : old.shape[1]] = old
        return np.vstack([wide, new])[pick]
    lengths = np.concatenate([np.diff(old.indptr), np.diff(new.indptr)])[pick].astype(np.int64)
    is_new = pick >= old.shape[0]
    place = pick - np.where(is_new, old.shape[0], 0)
    # Runs of consecutive rows of the same matrix are copied as a whole.
    ends = np.flatnonzero((np.diff(place) != 1) | (np.diff(is_new.astype(np.int8)) != 0)) + 1
    data, indices = [old.data[:0]], [old.indices[:0]]
    for first, last in zip(np.append(0, ends), np.append(ends, len(pick)), strict=True):
        matrix = new if is_new[first] else old
        values = slice(matrix.indptr[place[first]], matrix.indptr[place[last - 1] + 1])
        data.append(matrix.data[values])
        indices.append(matrix.indices[values])
    coef = sp.csr_array((len(pick), max(old.shape[1], new.shape[1])), dtype=old.dtype)
    coef.data, coef.indices = np.concatenate(data), np.concatenate(indices)
    coef.indptr = np.append(0, np.cumsum(lengths)).astype(coef.indices.dtype)
    return coef
