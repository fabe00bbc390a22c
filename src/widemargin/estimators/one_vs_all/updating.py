"""Which labels of a one-vs-all model keep their weights when rows come and go, with proof, and how the others go on.

For one label, with the rows O of the model, added rows N and removed rows R, the stored weights (w, b) and the bounds
P_O ≥ optimum ≥ D_O:

    P(w, b) = P_O(w, b) + Σ_N c_i φ(m_i) − Σ_R c_i φ(m_i)            exactly
    D       = D_O                                                      if no removed row has a dual variable α_i > 0

Added rows get α_i = 0, which every dual point may have, so D_O stays a lower bound however many rows are added. With
the squared hinge a row with a slack ξ_i = max(0, 1 − m_i) of zero changes neither P nor D. Hence, in this order:

    untouched    no added or removed row has a slack: the old certificate is the new one
    kept         the gap before pruning plus the change of P is within `gap_tol`: the weights stay, P is the new one
    solved       all others, from their old weights, on all rows that are left
    new          labels that the model did not have

A removed row with a slack makes D_O worthless, unless the dual variables were kept (`duals_`): they say which labels
had an α_i > 0 in a removed row, and D_O holds for the others. A label that is not kept with D_O gets a D from the dual
variables of the rows that are left, those of touching rows set to the maximiser of their own coordinate, and the
heavier side scaled down until Σ α_i y_i = 0. That reads all rows with a dual variable, so it is done only where a
forecast says that the label will be kept:

    D ≈ D_O + Σ_N c_i ξ_i² / (1 + 2 c_i ‖x_i‖²) − ½‖Σ_R α_i y_i x_i‖²

Near the optimum all other changes of D are of second order in them, or cancel. A wrong forecast costs time, never
correctness. Removing 0.1 % of the rows of yso-finna-en (C = 1), it is wrong for 0.9 % of the labels that lose an α_i.
Shifting the intercept, α_i − 2 c_i y_i t on both sides, instead of scaling the heavier side keeps 82.7 % of these
labels instead of 82.3 %: not worth the passes.

The logistic loss has α_i > 0 in every row: its labels can be kept when rows are added, and are solved again when rows
are removed. The gradient rule `tol` is not tested for kept labels: only a norm of the gradient is known, and not at the
stored weights.

Scores of added and removed rows are products of sparse matrices, one block of labels at a time: only pairs that share a
feature are visited, plus the labels whose intercept is above −1, which every row touches. Memory: the pairs of a block.
"""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from widemargin.data.normalize import with_unit_rows
from widemargin.data.training_rows import TrainingRows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.one_vs_all.folder_training import is_large, write_rows
from widemargin.estimators.one_vs_all.growing import appended, concatenated
from widemargin.estimators.one_vs_all.shards import CONTINUE, ShardRun, can_be_split
from widemargin.estimators.training import TrainingData
from widemargin.exceptions import TrainingInterrupted, WidemarginError
from widemargin.labels.encoding import EncodedTargets, listed
from widemargin.model_io.write import JoinedArray, JoinedCsr
from widemargin.parallel import as_executor
from widemargin.parallel.work_folder import WorkFolder
from widemargin.problems.certificate import relative_gap
from widemargin.problems.losses import get_loss
from widemargin.problems.scores import squared_norms
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.one_vs_all.duals import dual_values
from widemargin.solvers.one_vs_all.fast import usual_intercepts
from widemargin.solvers.one_vs_all.plan import solve
from widemargin.solvers.one_vs_all.problem import (
    BOUND_COLUMNS,
    ROUNDING_GAP,
    OneVsAllResult,
    Problem,
    frequency_history,
)
from widemargin.solvers.result import Status

__all__ = [
    "Change", "OldDuals", "Rows", "Verdict", "in_order", "joined_rows", "judge", "label_with_other_objective",
    "pick_rows", "problem_of_labels", "solve_labels", "stack_rows", "start_from", "update_labels", "widened",
]  # fmt: skip

UNTOUCHED, KEPT, SOLVED, NEW, LEFT = OUTCOMES = ("untouched", "kept", "solved", "new", "left")
UNFINISHED = (Status.TIME_LIMIT, Status.STOPPED)
MAX_NAMED = 5  # labels in a message
PAIRS_PER_BLOCK = 4_000_000  # of labels and rows, dense; sparse blocks have about as many pairs that share a feature
LABELS_PER_BLOCK = 512  # at most: what is made of their weights should stay in the cache
# How far outside the margin a removed row may be and still count as a row with a dual variable, if dual variables were
# not kept. The batched and the dense solver store the intercept of the certificate, rounded to float32. The Newton
# solver stores its own, which a polished solution does not differ from: in 58 of 12,951 small fits that were not
# polished, rows up to 0.054 outside the margin had a dual variable, though none that made a bound wrong.
INTERCEPT_ROUNDING, NEWTON_INTERCEPT = 1e-5, 0.1
N_COMPARED = 4  # labels whose objectives tell whether rows are those of the model; 3 ms for 140,000 short texts
OTHER_OBJECTIVE = 1e-4  # relative: rows in float64 may have been trained on in float32

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows that a model gains or loses, in the form they are trained on.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_rows, n_features)
        The rows.
    Y : csr_array of shape (n_rows, n_labels)
        Their labels.
    weight : ndarray of shape (n_rows,)
        Their sample weights.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.estimators.one_vs_all.updating import Rows
    >>> len(Rows(np.eye(2), sp.csr_array(np.eye(2, dtype=np.int8)), np.ones(2)))
    2
    """

    X: Any
    Y: Any
    weight: Floats

    def __len__(self) -> int:
        return int(self.X.shape[0])


@dataclass(frozen=True)
class Change:
    """A model's data after an update, and how they differ from those before.

    Parameters
    ----------
    X : ndarray or CSR array, or None
        All rows after the update, as they are trained on; None if the old rows are not available.
    weight : ndarray or None
        Their weights, if some row has one.
    targets : EncodedTargets
        Kind and classes after the update; its Y has all rows, or the added ones if the old ones are not available.
    added, removed : Rows
        The difference, in the columns of the outputs.
    source : ndarray of shape (n_outputs,)
        The old number of each output; −1 for a new one.
    order : ndarray of shape (n_classes,)
        The place of each class among the old classes followed by the new ones.
    old_rows : ndarray of shape (n_rows,)
        The place of each row in the old rows; −1 for added ones.
    plain : ndarray or CSR array of shape (n_added, n_features)
        The added rows before normalisation, as a store keeps them.
    """

    X: Any
    weight: Floats | None
    targets: EncodedTargets
    added: Rows
    removed: Rows
    source: Ints
    order: Ints
    old_rows: Ints
    plain: Any

    @property
    def data(self) -> TrainingData:
        """All rows, or the added ones if the old ones are not available."""
        if self.X is None:
            return TrainingData(self.added.X, self.added.X, self.targets, self.added.weight)
        return TrainingData(self.X, self.X, self.targets, self.weight)

    @property
    def same_classes(self) -> bool:
        return bool((self.source >= 0).all())


@dataclass(frozen=True)
class Verdict:
    """What the bounds say about the labels of a changed model.

    Parameters
    ----------
    outcome : ndarray of str of shape (n_labels,)
        "untouched", "kept", "solved" (to be solved again) or "new" (to be solved for the first time).
    bounds : ndarray of shape (n_labels, 5)
        Bounds of the old weights on the changed rows, the columns of `BOUND_COLUMNS`; zero for new labels. A dual
        value that is lost with removed rows is zero: losses are never negative.
    touched : ndarray of int
        Labels with dual variables in new rows; a label that keeps its weights and is not among them has the old ones of
        the rows that stay.
    touched_duals : csr_array of shape (n_touched, n_rows) or None
        These dual variables, if there are any.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.estimators.one_vs_all.updating import Verdict
    >>> Verdict(np.array(["kept", "solved", "new"]), np.zeros((3, 5))).to_solve
    array([1, 2])
    """

    outcome: npt.NDArray[np.str_]
    bounds: Floats
    touched: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    touched_duals: Any = None

    @property
    def to_solve(self) -> Ints:
        """The labels that need a solver."""
        return np.flatnonzero((self.outcome == SOLVED) | (self.outcome == NEW))


def update_labels(
    model: OneVsAllClassifier,
    change: Change,
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
    coef, intercept = widened(model.coef_, problem.X.shape[1]), model.intercept_
    plan = new._planned(problem)
    verdict = judge(
        problem,
        coef,
        intercept,
        old_bounds,
        change.source,
        change.added,
        change.removed,
        prune=model.prune,
        gap_tol=model.gap_tol,
        duals=duals,
        added_rows=_problem_rows(change)[change.old_rows < 0],
        outside=NEWTON_INTERCEPT if plan.algorithm == "newton" and not plan.polish else INTERCEPT_ROUNDING,
    )
    outcome = verdict.outcome
    wanted = _labels_to_solve(model, change, verdict, leave)
    if dry_run:
        return copy.copy(model), outcome
    solved = None
    if len(wanted):
        # Batches of the logistic loss have no start, and from zero they take an eighth of the CPU of Newton from one.
        from_zero = model.loss == "logistic" and sp.issparse(problem.X)
        start = None if from_zero else start_from(coef, intercept, change.source[wanted])
        solved = solve_labels(new, problem.select(wanted), start, work, keep_duals=duals is not None, **how)
    result = _joined(new, coef, model, change, problem, verdict, duals, wanted, solved)
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


def _labels_to_solve(model: OneVsAllClassifier, change: Change, verdict: Verdict, leave: bool) -> Ints:
    """The labels that are solved; sets the outcome of those that change with the number of rows or must be left."""
    outcome, is_old = verdict.outcome, change.source >= 0
    if _depends_on_all_rows(model, change):
        outcome[is_old] = SOLVED
    if model.status_ in UNFINISHED and change.X is not None:
        # An earlier update was stopped, or left labels.
        _, dual, _, before, _ = verdict.bounds.T
        outcome[is_old & (relative_gap(before, dual) > (model.gap_tol or ROUNDING_GAP))] = SOLVED
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


def _depends_on_all_rows(model: OneVsAllClassifier, change: Change) -> bool:
    """Whether the change gives old rows other weights."""
    return model.class_weight in ("balanced", "propensity") and len(change.added) + len(change.removed) > 0


def _joined(
    new: OneVsAllClassifier,
    coef: Any,
    model: OneVsAllClassifier,
    change: Change,
    problem: Problem,
    verdict: Verdict,
    duals: Any,
    wanted: Ints,
    solved: OneVsAllResult | None,
) -> OneVsAllResult:
    """The old labels and those that were solved as one result; labels that were not reached keep their old weights."""
    outcome, bounds, source = verdict.outcome, verdict.bounds, change.source
    known = np.maximum(source, 0)
    n_iter = np.where(source >= 0, np.atleast_1d(model.n_iter_)[known], 0)
    intercept, pick = model.intercept_, source.copy()
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
        coef = pick_rows(coef, solved.coef, pick)
        intercept = np.concatenate([intercept, solved.intercept])[pick]
    elif not np.array_equal(pick, np.arange(len(intercept))):
        coef, intercept = pick_rows(coef, coef[:0], pick), intercept[pick]
    left = np.flatnonzero(outcome == LEFT)
    if len(left) and _depends_on_all_rows(model, change):
        bounds[left] = _certified(new, problem.select(left), coef[left], intercept[left])
    joined = None
    if duals is not None:
        joined = _joined_duals(duals, verdict, source, None if solved is None else solved.duals, pick)
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
    return OneVsAllResult.of(coef, intercept, status, bounds, history=history, n_iter=n_iter, duals=joined)


def _name_of(change: Change, output: int) -> str:
    """The name of a label, for a message."""
    classes = change.targets.classes
    return str(classes[1 if change.targets.kind == "binary" else output])


def label_with_other_objective(model: OneVsAllClassifier, X: Any, Y: Any, weight: Floats | None) -> int | None:
    """A class whose stored objective differs from that on some rows; None if the rows may be those of the model.

    Only the most frequent labels are compared, by whose margins most rows are that are inside any.
    """
    if not hasattr(model, "label_bounds_"):  # stored by an earlier version
        return None
    is_binary = model.kind_ == "binary"
    counts = model.label_counts_[is_binary:]
    labels = np.argpartition(counts, -min(N_COMPARED, len(counts)))[-N_COMPARED:]
    rows = with_unit_rows(X) if model.normalize else X
    names = model.classes_ if is_binary else model.classes_[labels]
    targets = EncodedTargets(model.kind_, names, columns_of(Y, labels + is_binary), model.sparse_output_)
    problem = problem_of_labels(model, TrainingData(rows, rows, targets, weight))
    objective = problem.objectives(rows_of(model.coef_, labels), model.intercept_[labels])
    other = np.abs(objective - model.label_bounds_[labels, 0]) > OTHER_OBJECTIVE * objective
    return int(labels[np.argmax(other)] + is_binary) if other.any() else None


def problem_of_labels(model: OneVsAllClassifier, data: TrainingData) -> Problem:
    """The problem of some labels of a model, those of `data`, with its parameters; other labels do not matter to it."""
    plain = copy.copy(model)
    plain.C = model.C_
    if isinstance(model.class_weight, dict):
        names = set(data.targets.classes.tolist())
        plain.class_weight = {name: factor for name, factor in model.class_weight.items() if name in names}
    return plain._problem(data)


def _bounds_of(new: OneVsAllClassifier, model: OneVsAllClassifier, change: Change) -> Floats:
    """The bounds of each label on the old rows; those of a model that lacks them are computed in one pass."""
    if hasattr(model, "label_bounds_"):
        return np.asarray(model.label_bounds_)
    if change.X is None:
        raise WidemarginError(
            "the model was stored by an earlier version, without bounds for each label; pass rows=, from which they "
            "are computed"
        )
    before = change.old_rows >= 0
    X = stack_rows([change.X[before], change.removed.X])
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
    """The bounds of labels with given weights, from all rows.

    A Newton solver without steps certifies its start, but with the dual variables of the best intercept for these
    weights. A later update takes rows outside the margin of the stored weights for rows without a dual variable, so the
    lower bound is computed again from the slacks of the stored weights.
    """
    plan = model._planned(problem, (coef, intercept))
    bounds = solve(replace(plan, algorithm="newton", max_iter=0, prune=0.0, polish=False)).bounds_by_label.copy()
    if problem.loss == "squared_hinge":
        bounds[:, 1] = np.minimum(bounds[:, 0], _dual_values_at(problem, coef, intercept))
    return bounds


def _dual_values_at(problem: Problem, coef: Any, intercept: npt.NDArray[Any]) -> Floats:
    """D at α_i = 2 c_i ξ_i, with the slacks of given weights; a block of labels at a time, dense."""
    values, n_rows = np.zeros(problem.n_labels), problem.X.shape[0]
    for first in range(0, problem.n_labels, step := max(1, PAIRS_PER_BLOCK // max(1, n_rows))):
        labels = np.arange(first, min(first + step, problem.n_labels))
        block = problem.select(labels)
        weights = coef[labels].toarray() if sp.issparse(coef) else coef[labels]
        scores = np.asarray(problem.X @ weights.astype(np.float64).T).T + problem.bias_value * intercept[labels, None]
        is_positive = np.zeros(scores.shape, dtype=bool)
        is_positive[np.repeat(np.arange(len(labels)), np.diff(block.positive_indptr)), block.positive_rows] = True
        slack = np.maximum(0.0, 1.0 - np.where(is_positive, scores, -scores))
        factor = np.where(is_positive, block.positive_factor[:, None], block.negative_factor[:, None])
        values[labels] = dual_values(block, sp.csr_array(2.0 * problem.C * problem.row_weight * factor * slack))
    return values


@dataclass(frozen=True)
class OldDuals:
    """The dual variables of a model, as the rows of a changed problem see them.

    They are renumbered when they are used, a few labels at a time: memory that is new to a process costs more than what
    is done with it.

    Parameters
    ----------
    stored : csr_array of shape (n_old, n_columns)
        The dual variables of the model.
    place : ndarray of shape (n_columns,)
        The row of the problem that each column belongs to; −1 for removed rows and those of weight zero.
    n_rows : int
        Number of rows of the problem.
    removed : csr_array of shape (n_old, n_removed)
        The dual variables in the removed rows.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.estimators.one_vs_all.updating import OldDuals
    >>> stored = sp.csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]))
    >>> old = OldDuals.of(stored, place=np.array([1, -1, 0]), n_rows=2, removed=np.array([1]))
    >>> old.rows(np.array([1])).toarray().tolist(), old.removed.toarray().tolist()
    ([[4.0, 0.0]], [[2.0], [3.0]])
    """

    stored: Any
    place: npt.NDArray[Any]
    n_rows: int
    removed: Any

    @classmethod
    def of(cls, stored: Any, place: Ints, n_rows: int, removed: Ints) -> OldDuals:
        """Those of a model, given the columns of the removed rows."""
        number = np.full(stored.shape[1], -1, dtype=stored.indices.dtype)
        number[removed] = np.arange(len(removed))
        gone, found = number >= 0, [np.empty(0, dtype=np.int64)]
        if len(removed):
            for first in range(0, stored.nnz, PAIRS_PER_BLOCK):
                found.append(first + np.flatnonzero(gone[stored.indices[first : first + PAIRS_PER_BLOCK]]))
        lost = np.concatenate(found)
        indptr = np.searchsorted(lost, stored.indptr)
        parts = stored.data[lost], number[stored.indices[lost]], indptr
        shape = stored.shape[0], len(removed)
        return cls(stored, place.astype(stored.indices.dtype), n_rows, sp.csr_array(parts, shape=shape))

    def rows(self, labels: Ints) -> Any:
        """Those of some labels in the rows of the problem, CSR of shape (len(labels), n_rows)."""
        return self.joined([], labels)

    def joined(self, others: list[Any], pick: Ints) -> Any:
        """The labels `pick` of these followed by those of other matrices, CSR of shape (len(pick), n_rows)."""
        n_old = self.stored.shape[0]
        parts = [self.stored, *others]
        lengths = np.concatenate([np.diff(part.indptr) for part in parts]).astype(np.int64)
        lengths[:n_old] -= np.diff(self.removed.indptr)
        indptr = np.append(0, np.cumsum(lengths[pick]))
        found = sp.csr_array((len(pick), self.n_rows), dtype=self.stored.dtype)
        found.data = np.empty(indptr[-1], dtype=self.stored.dtype)
        found.indices, found.indptr = np.empty(indptr[-1], dtype=self.place.dtype), indptr.astype(self.place.dtype)
        first = 0
        for number, data, indices in _runs_of_rows(parts, pick):
            if number == 0:
                indices = self.place.take(indices)
                kept = indices >= 0
                if not kept.all():
                    data, indices = data[kept], indices[kept]
            last = first + len(data)
            found.data[first:last], found.indices[first:last] = data, indices
            first = last
        return found


def _duals_of(model: OneVsAllClassifier, change: Change, problem: Problem) -> OldDuals | None:
    """The dual variables of the old labels, if they were kept and the old rows are known."""
    duals = getattr(model, "duals_", None)
    if duals is None or change.X is None:
        return None
    record: TrainingRows | None = getattr(model, "rows_", None)
    is_stored = record is not None and duals.shape[1] == record.n_stored
    numbers = record.live_numbers() if record is not None and is_stored else np.arange(duals.shape[1])
    is_old = change.old_rows >= 0
    stay = change.old_rows[is_old]
    gone = np.ones(len(numbers), dtype=bool)
    gone[stay] = False
    place = np.full(duals.shape[1], -1)
    place[numbers[stay]] = _problem_rows(change)[is_old]
    return OldDuals.of(duals, place, problem.X.shape[0], numbers[gone])


def _problem_rows(change: Change) -> Ints:
    """The row of the problem that each row is; −1 for rows of weight zero, which it leaves out."""
    if change.weight is None:
        return np.arange(len(change.old_rows))
    has_weight = change.weight > 0.0
    return np.where(has_weight, np.cumsum(has_weight) - 1, -1)


def _joined_duals(old: OldDuals, verdict: Verdict, source: Ints, solved: Any, pick: Ints) -> Any:
    """The dual variables of all labels: old ones, those that an update changed, and those of labels solved again."""
    chosen, n_old = np.maximum(source, 0), old.stored.shape[0]
    others = [] if verdict.touched_duals is None else [verdict.touched_duals]
    chosen[verdict.touched] = n_old + np.arange(len(verdict.touched))
    if solved is not None:
        is_solved = pick >= n_old
        chosen[is_solved] = pick[is_solved] + len(verdict.touched)
        others.append(solved)
    return old.joined(others, chosen)


def start_from(coef: Any, intercept: npt.NDArray[Any], source: Ints) -> tuple[Any, Any]:
    """Weights to start from: those of the old labels, none for new ones."""
    places, known = np.maximum(source, 0), source >= 0
    weights = coef[places]
    if sp.issparse(coef):
        if known.all():
            return weights, intercept[places]
        lengths = np.where(known, np.diff(weights.indptr), 0)
        entries = np.repeat(known, np.diff(weights.indptr))
        parts = weights.data[entries], weights.indices[entries], np.append(0, np.cumsum(lengths))
        weights = sp.csr_array(parts, shape=weights.shape)
    else:
        weights[~known] = 0.0
    return weights, np.where(known, intercept[places], 0.0).astype(intercept.dtype)


def solve_labels(
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
    n_jobs: int | None,
    callback: Any,
    report: Any,
) -> OneVsAllResult:
    """Solve labels from given weights, in memory or, in a folder and if there is much to do, in shards.

    `model` has the parameters, and is still fitted to what it was before the change.
    """
    if n_jobs is not None:
        model = copy.copy(model)
        model.n_jobs = n_jobs
    plan = model._planned(problem, start, keep_duals=keep_duals)
    if plan.algorithm == "fast" and model.status_ is Status.CONVERGED:
        # Known from its labels, so new ones need no pilots: saves 12 (C = 1) to 19 ms (C = 0.25) of 100 new labels of
        # yso-finna-en.
        counts = model.label_counts_[model.kind_ == "binary" :]
        plan = replace(plan, prior=usual_intercepts(counts, model.n_samples_fit_, model.intercept_))
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


def pick_rows(old: Any, new: Any, pick: Ints) -> Any:
    """The rows `pick` of the old weights followed by the new ones; all rows in order may share memory with the old."""
    if not sp.issparse(old):
        return np.vstack([old, new])[pick]
    picked = sp.csr_array((len(pick), old.shape[1]), dtype=old.dtype)
    if np.array_equal(pick, np.arange(old.shape[0] + new.shape[0])):
        picked.data = appended(old.data[: old.nnz], new.data[: new.nnz])
        picked.indices = appended(old.indices[: old.nnz], new.indices[: new.nnz])
    else:
        _, data, indices = zip(*_runs_of_rows([old, new], pick), strict=True)
        picked.data, picked.indices = concatenated(data), concatenated(indices)
    picked.indptr = _starts_of_rows([old, new], pick)
    return picked


def joined_rows(old: Any, new: Any, pick: Ints) -> JoinedCsr:
    """The rows `pick` of two CSR arrays below each other, to be written to a model folder; nothing is copied."""
    _, data, indices = zip(*_runs_of_rows([old, new], pick), strict=True)
    indptr = _starts_of_rows([old, new], pick)
    joined = [JoinedArray(runs[0].dtype, (int(indptr[-1]),), functools.partial(iter, runs)) for runs in (data, indices)]
    return JoinedCsr(joined[0], joined[1], indptr, (len(pick), old.shape[1]))


def _starts_of_rows(parts: list[Any], pick: Ints) -> npt.NDArray[Any]:
    """`indptr` of the rows `pick` of CSR arrays below each other."""
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])[pick]
    return np.append(0, np.cumsum(lengths, dtype=np.int64)).astype(parts[0].indices.dtype)


def _runs_of_rows(parts: list[Any], pick: Ints) -> Iterator[tuple[int, Any, Any]]:
    """The rows `pick` of CSR arrays below each other: the number of an array, and values and columns that share memory.

    Rows that follow each other in one array are given together, up to LABELS_PER_BLOCK.
    """
    starts = np.append(0, np.cumsum([part.shape[0] for part in parts]))
    number = np.searchsorted(starts, pick, side="right") - 1
    place = pick - starts[number]
    is_start = np.append(True, (np.diff(place) != 1) | (np.diff(number) != 0))[: len(pick)]
    is_start[::LABELS_PER_BLOCK] = True
    runs = np.append(np.flatnonzero(is_start), len(pick))
    yield 0, parts[0].data[:0], parts[0].indices[:0]
    for first, last in itertools.pairwise(runs.tolist()):
        matrix = parts[number[first]]
        values = slice(matrix.indptr[place[first]], matrix.indptr[place[last - 1] + 1])
        yield int(number[first]), matrix.data[values], matrix.indices[values]


def widened(matrix: Any, n_columns: int) -> Any:
    """A matrix with further columns, all zero."""
    if matrix.shape[1] == n_columns:
        return matrix
    if sp.issparse(matrix):
        return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_columns))
    return np.pad(matrix, ((0, 0), (0, n_columns - matrix.shape[1])))


def columns_of(Y: Any, numbers: Ints) -> Any:
    """A few columns of an indicator, CSR; takes a fifth of the time of ``Y[:, numbers]``."""
    place, wanted = np.zeros(Y.shape[1], dtype=np.int32), np.zeros(Y.shape[1], dtype=bool)
    place[numbers], wanted[numbers] = np.arange(len(numbers)), True
    chosen = np.flatnonzero(wanted.take(Y.indices))
    row = np.searchsorted(Y.indptr, chosen, side="right") - 1
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=Y.shape[0])))
    return sp.csr_array((Y.data[chosen], place[Y.indices[chosen]], indptr), shape=(Y.shape[0], len(numbers)))


def in_order(Y: Any, order: Ints) -> Any:
    """An indicator of the old classes, and perhaps new ones, with a column for each class in the new order."""
    wide = widened(sp.csr_array(Y), len(order))
    if np.array_equal(order, np.arange(len(order))):
        return wide
    return sp.csr_array(wide[:, order])


def stack_rows(parts: list[Any]) -> Any:
    """Rows below each other; a single part that has rows is used as it is."""
    parts = [part for part in parts if part.shape[0]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.vstack(parts, format="csr")) if sp.issparse(parts[0]) else np.vstack(parts)


def judge(
    problem: Problem,
    coef: Any,
    intercept: npt.NDArray[Any],
    bounds: Floats,
    source: Ints,
    added: Rows,
    removed: Rows,
    *,
    prune: float,
    gap_tol: float | None,
    duals: OldDuals | None = None,
    added_rows: Ints | None = None,
    outside: float = INTERCEPT_ROUNDING,
) -> Verdict:
    """Decide which labels keep their weights.

    Parameters
    ----------
    problem : Problem
        The labels on the rows that are left and the added ones. Without `duals`, only the factors of the labels are
        used: the rows may be any.
    coef, intercept : matrix of shape (n_old, n_features), ndarray of shape (n_old,)
        The stored weights.
    bounds : ndarray of shape (n_old, 5)
        Their bounds on the old rows, the columns of `BOUND_COLUMNS`.
    source : ndarray of shape (n_labels,)
        The old number of each label of the problem; −1 for a new label.
    added, removed : Rows
        What has changed; their Y has the columns of the problem.
    prune : float
        The threshold below which weights were dropped.
    gap_tol : float or None
        The gap to keep; None keeps untouched labels only.
    duals : OldDuals, optional
        The dual variables of the old labels. Without them, every label that a removed row may have touched loses its
        bound. Squared hinge only.
    added_rows : ndarray of shape (n_added,), optional
        The rows of the problem that the added rows are, −1 for those of weight zero; needed with `duals`.
    outside : float
        How far outside the margin a removed row may be and still have touched a label.

    Returns
    -------
    Verdict
    """
    old = np.flatnonzero(source >= 0)
    outcome = np.full(problem.n_labels, NEW, dtype="<U9")
    outcome[old] = UNTOUCHED
    new_bounds = np.zeros((problem.n_labels, bounds.shape[1]))
    new_bounds[old] = bounds[source[old]]
    primal, dual, _, before, share = new_bounds.T
    gain, touched, _, step = _change(problem, coef, intercept, source, old, added, np.zeros(problem.n_labels), 0.0)
    # The dual variables come from the weights before pruning, whose scores differ by at most ‖dropped‖ ‖x‖.
    dropped = np.zeros(problem.n_labels)
    if prune > 0.0 and len(removed) and duals is None:
        norms = np.zeros(problem.n_labels)
        norms[old] = squared_norms(coef)[source[old]]
        dropped = np.sqrt(norms * share / np.maximum(1e-300, 1.0 - share))
    outside = outside if duals is None else 0.0
    loss, shrunk, lost, _ = _change(problem, coef, intercept, source, old, removed, dropped, outside)
    if duals is not None:
        lost[old] = (np.diff(duals.removed.indptr) > 0)[source[old]]
    elif len(removed):  # of a label that lost all its weights, ‖dropped‖ is not known
        lost |= share >= 1.0
    primal += gain - loss
    before += gain - loss
    new_bounds[:, 2] += _at_zero(problem, added) - _at_zero(problem, removed)
    changed = np.flatnonzero((touched | shrunk | lost) & (source >= 0))

    def near(lower: Floats) -> npt.NDArray[np.bool_]:
        if gap_tol is None:
            return np.zeros(problem.n_labels, dtype=bool)
        return np.asarray(relative_gap(before, np.minimum(lower, primal)) <= gap_tol)

    certified = ~lost
    kept = near(dual) & certified
    changed_duals: list[Any] = []
    with_new_duals = [np.empty(0, dtype=np.int64)]
    if duals is not None:
        forecast = dual + step
        if len(removed):
            forecast[old] -= 0.5 * _lost_norms(duals.removed[source[old]], removed.Y[:, old], removed.X)
        tested = changed[(near(forecast) & ~kept)[changed]]
        for first in range(0, len(tested), LABELS_PER_BLOCK):
            block = tested[first : first + LABELS_PER_BLOCK]
            own = duals.rows(source[block])
            extended = _extended(problem, coef, intercept, source, block, own, added, added_rows)
            found, without = dual_values(problem.select(block), extended), np.where(lost[block], -np.inf, dual[block])
            # New rows get their dual variables one by one; together, these may be worse than none.
            again = np.flatnonzero(lost[block] & touched[block])
            if len(again):
                without[again] = dual_values(problem.select(block[again]), own[again])
            better = found > without
            dual[block], certified[block] = np.maximum(found, without), True
            if len(added):  # without new rows, the dual variables are those of the rows that stay
                with_new_duals.append(block[better])
                changed_duals.append(extended if better.all() else extended[np.flatnonzero(better)])
        kept = near(dual) & certified
    dual[:] = np.where(certified, np.minimum(dual, primal), 0.0)
    outcome[changed] = np.where(kept, KEPT, SOLVED)[changed]
    together = sp.csr_array(sp.vstack(changed_duals, format="csr")) if changed_duals else None
    return Verdict(outcome, new_bounds, np.concatenate(with_new_duals), together)


def _lost_norms(duals: Any, Y: Any, X: Any) -> Floats:
    """‖Σ_R α_i y_i x_i‖² of some labels: their dual variables in the removed rows, these rows' labels and features."""
    alpha, positive = duals.astype(np.float64), sp.csr_array(Y.T).astype(np.float64)
    sums = sp.csr_array(2.0 * alpha.multiply(positive) - alpha) @ X.astype(np.float64)
    return squared_norms(sp.csr_array(sums) if sp.issparse(sums) else sums)


def _at_zero(problem: Problem, rows: Rows) -> Floats:
    """The loss of rows at zero weights, by label."""
    positive = np.asarray(rows.Y.T @ rows.weight)
    weights = problem.positive_factor * positive + problem.negative_factor * (rows.weight.sum() - positive)
    return np.asarray(problem.C * float(get_loss(problem.loss).value(np.zeros(1))[0]) * weights)


def _extended(
    problem: Problem,
    coef: Any,
    intercept: npt.NDArray[Any],
    source: Ints,
    labels: Ints,
    own: Any,
    added: Rows,
    added_rows: Ints | None,
) -> Any:
    """The dual variables `own` of some labels with those of touching new rows.

    A new row gets the maximiser over its own coordinate, α = 2cξ / (1 + 2c‖x‖²), which adds c ξ² / (1 + 2c‖x‖²) to D.
    """
    if added_rows is None or len(added) == 0:
        return own
    norms = squared_norms(added.X)
    kept_row = np.repeat(np.arange(len(labels)), np.diff(own.indptr))
    data, row, column = [own.data], [kept_row], [own.indices]
    place = np.full(problem.n_labels, -1)
    place[labels] = np.arange(len(labels))
    no_allowance = np.zeros(problem.n_labels)
    for block, pairs in _slack_blocks(coef, intercept, source, labels, added, no_allowance, np.sqrt(norms), 0.0):
        label, new_row, slack, is_positive = pairs
        factor = np.where(is_positive, problem.positive_factor[block][label], problem.negative_factor[block][label])
        cost = 2.0 * problem.C * added.weight[new_row] * factor
        inside = (slack > 0.0) & (cost > 0.0)
        data.append((cost * slack / (1.0 + cost * norms[new_row]))[inside])
        row.append(place[block[label[inside]]])
        column.append(added_rows[new_row[inside]])
    coordinates = np.concatenate(row), np.concatenate(column)
    found = sp.csr_array((np.concatenate(data), coordinates), shape=own.shape, dtype=np.float32)
    found.sort_indices()
    return found


def _change(
    problem: Problem,
    coef: Any,
    intercept: npt.NDArray[Any],
    source: Ints,
    old: Ints,
    rows: Rows,
    dropped: Floats,
    outside: float,
) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_], Floats]:
    """Loss of some rows at the stored weights, by label; which labels they touch, and in which they may have duals.

    The last value is the gain in D if each touching row maximises its own coordinate.
    """
    loss, step = np.zeros(problem.n_labels), np.zeros(problem.n_labels)
    touched, active = np.zeros(problem.n_labels, dtype=bool), np.zeros(problem.n_labels, dtype=bool)
    if len(rows) == 0:
        return loss, touched, active, step
    if problem.loss == "logistic":
        for labels, scores in _score_blocks(coef, intercept, source, old, rows):
            loss[labels] = _logistic_losses(problem, labels, scores, intercept[source[labels]], rows)
        touched[old] = active[old] = True
        return loss, touched, active, step
    norms = np.sqrt(squared_norms(rows.X))
    for labels, pairs in _slack_blocks(coef, intercept, source, old, rows, dropped, norms, outside):
        label, row, slack, is_positive = pairs
        factor = np.where(is_positive, problem.positive_factor[labels][label], problem.negative_factor[labels][label])
        cost = problem.C * rows.weight[row] * factor
        inside = slack > 0.0
        n = len(labels)
        losses = np.where(inside, cost * slack**2, 0.0)
        loss[labels] = np.bincount(label, weights=losses, minlength=n)
        step[labels] = np.bincount(label, weights=losses / (1.0 + 2.0 * cost * norms[row] ** 2), minlength=n)
        touched[labels] = np.bincount(label[inside & (cost > 0.0)], minlength=n) > 0
        active[labels] = np.bincount(label[cost > 0.0], minlength=n) > 0
    return loss, touched, active, step


def _score_blocks(
    coef: Any, intercept: npt.NDArray[Any], source: Ints, old: Ints, rows: Rows
) -> Iterator[tuple[Ints, Any]]:
    """w·x of blocks of labels and all rows, without the intercept: CSR or dense, in float64."""
    sparse = sp.issparse(coef) and sp.issparse(rows.X)
    if sparse:  # few of the features occur in the rows, so few of the weights are used
        used = np.zeros(rows.X.shape[1], dtype=bool)
        used[rows.X.indices] = True
        place = np.cumsum(used) - 1
        transposed = sp.csr_array(sp.csr_array(rows.X)[:, used].T, dtype=np.float64)
    per_block = min(LABELS_PER_BLOCK, max(1, PAIRS_PER_BLOCK // max(1, len(rows))))
    for start in range(0, len(old), per_block):
        labels = old[start : start + per_block]
        weights = rows_of(coef, source[labels])
        if sparse:
            chosen = np.flatnonzero(used[weights.indices])
            indptr = np.searchsorted(chosen, weights.indptr)
            parts = weights.data[chosen].astype(np.float64), place[weights.indices[chosen]], indptr
            yield labels, sp.csr_array(parts, shape=(len(labels), transposed.shape[0])) @ transposed
        else:
            product = rows.X @ (weights.toarray() if sp.issparse(weights) else weights).T.astype(np.float64)
            yield labels, np.asarray(product, dtype=np.float64).T


def rows_of(matrix: Any, numbers: Ints) -> Any:
    """Some rows of a matrix; those of a CSR matrix share its memory if they are consecutive."""
    first = int(numbers[0]) if len(numbers) else 0
    if not np.array_equal(numbers, np.arange(first, first + len(numbers))):
        return matrix[numbers]
    if not sp.issparse(matrix):
        return matrix[first : first + len(numbers)]
    indptr = matrix.indptr[first : first + len(numbers) + 1]
    values = slice(int(indptr[0]), int(indptr[-1]))
    parts = matrix.data[values], matrix.indices[values], indptr - indptr[0]
    return sp.csr_array(parts, shape=(len(numbers), matrix.shape[1]), copy=False)


def _slack_blocks(
    coef: Any,
    intercept: npt.NDArray[Any],
    source: Ints,
    old: Ints,
    rows: Rows,
    dropped: Floats,
    norms: Floats,
    outside: float,
) -> Iterator[tuple[Ints, tuple[Ints, Ints, Floats, npt.NDArray[np.bool_]]]]:
    """Pairs of a label (its place in the block) and a row with a slack 1 − y s above −allowance, and whether y = 1.

    The allowance is ‖dropped‖ ‖x‖ + `outside`, for removed rows; pairs with a slack of at most zero have no loss.
    """
    positives = sp.csr_array(rows.Y.T)
    longest = float(norms.max(initial=0.0))
    for labels, scores in _score_blocks(coef, intercept, source, old, rows):
        bias, room = intercept[source[labels]].astype(np.float64), dropped[labels] * longest + outside
        # A label whose intercept alone is inside the margin is touched by every row, also by one without features.
        full = np.arange(len(labels)) if isinstance(scores, np.ndarray) else np.flatnonzero(1.0 + bias + room > 0.0)
        label, row, score = _stored(scores, bias, room, full)
        own = sp.csr_array(positives[labels])
        positive_label = np.repeat(np.arange(len(labels)), np.diff(own.indptr))
        number = _numbered(len(labels), len(rows), positive_label, own.indices)
        negative = number[label, row] < 0
        positive_score = _scores_at(scores, number, positive_label, own.indices) + bias[positive_label]
        label = np.concatenate([label[negative], positive_label])
        row = np.concatenate([row[negative], own.indices.astype(np.int64)])
        slack = np.concatenate([1.0 + score[negative], 1.0 - positive_score])
        signs = np.arange(len(slack)) >= int(negative.sum())
        kept = slack > -(dropped[labels][label] * norms[row] + outside)
        yield labels, (label[kept], row[kept], slack[kept], signs[kept])


def _stored(scores: Any, bias: Floats, room: Floats, full: Ints) -> tuple[Ints, Ints, Floats]:
    """The pairs whose score is above −1 − room: all pairs of the labels `full`, the stored ones of the others."""
    if isinstance(scores, np.ndarray):
        total = scores + bias[:, None]
        label, row = np.nonzero(total > -1.0 - room[:, None])
        return label, row, total[label, row]
    scores = sp.csr_array(scores)
    label = np.repeat(np.arange(len(bias)), np.diff(scores.indptr))
    score = scores.data + bias[label]
    chosen = score > -1.0 - room[label]
    if len(full):
        chosen &= ~np.isin(label, full)
    label, row, score = label[chosen], scores.indices[chosen].astype(np.int64), score[chosen]
    if len(full) == 0:
        return label, row, score
    whole = scores[full].toarray() + bias[full][:, None]
    place, whole_row = np.nonzero(whole > -1.0 - room[full][:, None])
    return (
        np.concatenate([label, full[place]]),
        np.concatenate([row, whole_row]),
        np.concatenate([score, whole[place, whole_row]]),
    )


def _logistic_losses(problem: Problem, labels: Ints, scores: Any, intercept: npt.NDArray[Any], rows: Rows) -> Floats:
    """Σ_i c_i log(1 + exp(−y_i s_i)) by label: all rows as negatives without features, corrected where they differ."""
    value = get_loss("logistic").value
    bias = intercept.astype(np.float64)
    positive_factor, negative_factor = problem.positive_factor[labels], problem.negative_factor[labels]
    if isinstance(scores, np.ndarray):
        totals = scores + bias[:, None]
        signs = np.where(sp.csr_array(rows.Y.T)[labels].toarray() > 0, 1.0, -1.0)
        factor = np.where(signs > 0, positive_factor[:, None], negative_factor[:, None])
        return np.asarray(problem.C * (factor * value(signs * totals)) @ rows.weight)
    at_rest = value(-bias)
    losses = negative_factor * at_rest * rows.weight.sum()
    scores = sp.csr_array(scores)
    label = np.repeat(np.arange(len(labels)), np.diff(scores.indptr))
    differences = value(-(scores.data + bias[label])) - at_rest[label]
    losses += negative_factor * np.bincount(
        label, weights=rows.weight[scores.indices] * differences, minlength=len(bias)
    )
    own = sp.csr_array(sp.csr_array(rows.Y.T)[labels])
    label = np.repeat(np.arange(len(labels)), np.diff(own.indptr))
    number = _numbered(len(labels), len(rows), label, own.indices)
    score = _scores_at(scores, number, label, own.indices) + bias[label]
    exchanged = positive_factor[label] * value(score) - negative_factor[label] * value(-score)
    losses += np.bincount(label, weights=rows.weight[own.indices] * exchanged, minlength=len(bias))
    return np.asarray(problem.C * losses)


def _numbered(n_labels: int, n_rows: int, label: Ints, row: Ints) -> npt.NDArray[np.int32]:
    """A table of labels and rows with the numbers of some pairs, −1 elsewhere; blocks of labels are small."""
    number = np.full((n_labels, n_rows), -1, dtype=np.int32)
    number[label, row] = np.arange(len(label))
    return number


def _scores_at(scores: Any, number: npt.NDArray[np.int32], label: Ints, row: Ints) -> Floats:
    """The scores of the pairs that a table numbers; those that a CSR matrix does not have are zero."""
    if isinstance(scores, np.ndarray):
        return np.asarray(scores[label, row])
    # Not scores[label, row]: sorting the rows of the matrix takes longer than all else.
    found, of_entry = np.zeros(len(label)), np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    entry = number[of_entry, scores.indices]
    wanted = entry >= 0
    found[entry[wanted]] = scores.data[wanted]
    return found
