"""Compare the methods that fit the labels on the same rows, within a budget of time.

For each fold, or for given test rows, and for each method:

    search   C (and k) along a warm-started path on 4/5 of the training rows, scored on the others
    fit      with the best values on all training rows: certificate, CPU time, memory, size
    measure  every held-out row                                                  → means, intervals, differences

Held-out rows never take part in the choice of values. All methods are measured on the
same rows: a fold counts only if it was finished for all of them. Memory: the data, two copies of the rows of a fold,
and one model at a time.

A budget limits the work. Every method is first fitted once on a few rows, which shows what it will cost and whether it
can be fitted at all. If the full comparison does not fit the budget, the grids are thinned, starting with the most
expensive method; then folds are dropped; then methods that take more time than all others together, as long as two
remain; and finally rows. While it runs, estimates are corrected by the time that finished parts took; spare time goes
into further folds.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin.comparison.candidates import Candidate, candidates_for
from widemargin.comparison.measure import (
    Cost,
    Floats,
    Fold,
    Metric,
    Report,
    as_targets,
    check_rows_and_budget,
    fit_quietly,
    interval_of,
    measured_fit,
    metrics_for,
    part_of,
    row_outcomes,
    scored_path,
    splits,
)
from widemargin.comparison.result import Comparison, MethodResult
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy, as_taxonomy
from widemargin.model_selection.stratification import group_numbers
from widemargin.parallel import Executor, as_executor, run_tasks, use_executor
from widemargin.parallel.folders import SharedRows
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status

__all__ = ["Clock", "Plan", "classes_of_lists", "compare", "make_plan", "trial_rows"]

SEARCH_FOLDS = 5
"""One in this many parts of the training rows scores the search."""
SEARCH_ROWS = 0.8
SEARCH_TIME = 0.7
"""Share of a method's time after which the search stops: the fit that counts must have some left."""
WITHOUT_RESERVE = 0.95
"""Share of the budget at whose end fits are stopped: the pass under way and the last predictions come after it."""
SAFETY = 0.7
"""Share of the budget that is planned; fits with a large C take longer than the trial's."""
MARGIN = 1.2
"""Time that must be left for a further fold, relative to the finished ones."""
WARM_START = 0.6
"""Cost of a fit of the search, relative to one from scratch."""
FEWEST_ROWS = 500
TRIAL_ROWS = 1000
"""Least number of rows of the trial fit, which shows what a method costs."""
TRIAL_VALUES = 200_000
"""Its least number of stored values: with fewer, the fixed cost of a fit would be taken for a cost of its rows, and
very small problems are solved more exactly than larger ones."""
GROWTH = 1.3
"""Power of the number of rows with which the time of a fit grows: more rows make more features, and harder problems."""
TRANSFORMED = 2.25
"""How often a transformer sees the training rows of a fold: as a whole and in the search, and a quarter to test."""


def compare(
    X: Any,
    y: Any,
    *,
    taxonomy: Any = None,
    transformer: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    cv: int = 5,
    groups: Any = None,
    methods: Sequence[str] | None = None,
    metric: str | None = None,
    budget: float | None = None,
    normalize: bool = False,
    random_state: int = 0,
    n_jobs: int | None = None,
    executor: Any = None,
    report: Report | None = None,
) -> Comparison:
    """Try every method that fits the labels, and recommend one.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features), or list of n_samples texts
        Rows, or what the `transformer` takes.
    y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
        Labels. Lists, or rows of an indicator, that have exactly one label each are taken as classes.
    taxonomy : Taxonomy, dict, networkx.DiGraph or None, default=None
        A tree over the labels; its methods are tried too, where a row has one label. If some rows are labelled with
        inner nodes, the methods that predict a path are also tried with ``stop=True``, which lets it end there.
    transformer : transformer or None, default=None
        Makes rows of numbers, such as a `TfidfVectorizer` for text. It is cloned and fitted only on the training rows
        of each fold and of each search. The costs in the table do not include it.
    X_test, y_test : rows and labels, default=None
        Held-out rows. By default, cross-validation is used.
    cv : int, default=5
        Number of folds of the cross-validation.
    groups : array-like of shape (n_samples,), default=None
        Group of each row of X; no group is divided between training and held-out rows, in the folds and in the
        searches. `near_copy_groups` finds near-copies.
    methods : sequence of str or None, default=None
        Names of the methods to try; all if None.
    metric : str or None, default=None
        What decides: "top_k_accuracy@k" for one label per row (k = 1, the accuracy, if None), "precision@k" or "psp@k"
        (propensity-scored precision, in which rare labels count more) for several. With a taxonomy also
        "hierarchical_f1", which gives credit for a part of the path, or "at_or_below@k", which counts any node below
        the true one as right and so favours methods that only predict leaves.
    budget : float or None, default=None
        Time limit in seconds; None for no limit. If it is short, fewer values, fewer folds and finally fewer rows are
        used, and the result says so.
    normalize : bool, default=False
        Whether every method scales rows to unit length.
    random_state : int, default=0
        Seed of the folds, and of the methods that use random numbers.
    n_jobs : int or None, default=None
        Threads of each fit.
    executor : None, int, str or dask.distributed.Client, default=None
        Where the methods are fitted: in this process, in a number of processes, or on a dask cluster. The quality does
        not depend on it. Cannot be combined with `budget`, which is for one process.
    report : callable or None, default=None
        Called with the current step, the seconds elapsed, and the seconds expected in total.

    Returns
    -------
    Comparison
        Methods, best first, with intervals, certificates and costs; `recommendation` is a sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import compare
    >>> y = np.arange(120) % 4
    >>> X = np.eye(4)[y] + 0.3 * np.random.default_rng(0).normal(size=(120, 4))
    >>> result = compare(X, y, methods=["one-vs-all", "top-k"], metric="top_k_accuracy@2", cv=2)
    >>> sorted(method.name for method in result.methods)
    ['one-vs-all', 'top-k', 'top-k, k = 1']
    >>> result.best.quality["top_k_accuracy@2"].mean > 0.9
    True
    """
    started = time.monotonic()
    y, y_test, has_lists = _labels(y, y_test)
    targets = encode_targets(y)
    _check_arguments(X, y, X_test, y_test, cv, budget, transformer)
    n_rows, n_classes = _num_samples(X), len(targets.classes)
    groups = None if groups is None else group_numbers(groups, n_rows)
    executor = as_executor(executor)
    if budget is not None and not executor.in_process:
        raise ValueError("budget cannot be combined with executor; leave out one of them")
    tree = None if targets.kind == "multilabel" or taxonomy is None else as_taxonomy(taxonomy)
    measured = metrics_for(targets.kind, n_classes, metric, on_tree=tree is not None)
    task = Task(measured, targets.kind, tree, random_state)
    candidates = candidates_for(
        targets.kind,
        n_classes,
        tree,
        has_inner_labels=tree is not None and _has_inner(targets.classes.tolist(), tree),
        methods=methods,
        normalize=normalize,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    n_folds, n_training = (1, n_rows) if X_test is not None else (cv, n_rows * (cv - 1) // cv)
    few, overhead = trial_rows(X, y, n_training, targets.kind, random_state, transformer)
    seconds, refused = _try_methods(candidates, *few, n_training)
    left = None if budget is None else max(0.0, WITHOUT_RESERVE * budget - (time.monotonic() - started))
    working = [candidate for candidate in candidates if candidate.name not in refused]
    plan = make_plan(working, seconds, n_folds, n_training, left, overhead)
    run = _Run(plan, task, transformer, Clock(plan, left), started, report)
    run.measure(_folds(Fold(X, y, X_test, y_test, groups), cv, plan, task), executor)
    about = {"rows": n_rows, "labels": n_classes, "share_of_rows": plan.share, "budget_s": budget}
    return run.result(about | {"lists_of_one_label": has_lists}, refused | plan.dropped)


class Task(NamedTuple):
    """What is measured, on which kind of labels."""

    metrics: list[Metric]
    kind: str
    taxonomy: Taxonomy | None
    seed: int


class FoldResult(NamedTuple):
    """What a method did in a fold."""

    parameters: dict[str, Any]
    outcomes: Floats
    cost: Cost
    gap: float
    stopped: bool


@dataclass
class _Run:
    """The results of the folds so far; `measure` adds to `folds`."""

    plan: Plan
    task: Task
    transformer: Any
    clock: Clock
    started: float
    report: Report | None
    folds: list[dict[str, FoldResult]] = field(default_factory=list)

    def measure(self, folds: Iterator[Fold], executor: Executor) -> None:
        """All folds on workers, or as many in this process as the plan has and the time allows."""
        if not executor.in_process:
            self._measure_on_workers([self._prepared(*given) for given in enumerate(folds)], executor)
            return
        for number, fold in enumerate(folds):
            if number >= self.plan.n_folds and not self.clock.has_time_for_another_fold:
                break
            found = self._measure_here(*self._prepared(len(self.folds), fold))
            if not self.folds or len(found) == len(self.folds[0]):
                self.folds.append(found)

    def _measure_here(self, fold: Fold, inner: Fold | None) -> dict[str, FoldResult]:
        """The methods on a fold, until time runs out; in the first fold at least one."""
        found: dict[str, FoldResult] = {}
        for number, candidate in enumerate(self.plan.candidates):
            if self.clock.is_over and (self.folds or found):
                break
            self._report(f"{candidate.name}, fold {len(self.folds) + 1}")
            started = time.monotonic()
            found[candidate.name] = _measure(self.task, candidate, fold, inner, self.clock.limit_of(number))
            self.clock.finish(number, time.monotonic() - started)
        return found

    def _measure_on_workers(self, folds: list[tuple[Fold, Fold | None]], executor: Executor) -> None:
        """All methods on all folds; the rows reach the workers through stores."""
        candidates = self.plan.candidates
        found: dict[int, FoldResult] = {}
        last = time.monotonic()
        with contextlib.ExitStack() as stack:

            def stored(fold: Fold | None) -> Fold | None:
                if fold is None:
                    return None
                X, X_test = (stack.enter_context(SharedRows.of(part, executor)) for part in (fold.X, fold.X_test))
                return fold._replace(X=X, X_test=X_test)

            in_stores = [tuple(stored(part) for part in fold) for fold in folds]
            tasks = [(self.task, candidate, *fold) for fold in in_stores for candidate in candidates]
            for number, result in run_tasks(_measure_stored, tasks, executor):
                found[number], now = result, time.monotonic()
                self.clock.finish(number % len(candidates), now - last)
                last = now
                self._report(f"{len(found)} of {len(tasks)} fits and their searches")
        for first in range(0, len(tasks), len(candidates)):
            self.folds.append({candidate.name: found[first + m] for m, candidate in enumerate(candidates)})

    def _report(self, step: str) -> None:
        if self.report is not None:
            now = time.monotonic()
            left = max(0.0, min(self.clock.remaining, self.clock.deadline - now))
            self.report(step, now - self.started, now - self.started + left)

    def _prepared(self, number: int, fold: Fold) -> tuple[Fold, Fold | None]:
        """A fold, and its training rows split for the search, both transformed; the same for all methods.

        The second is None if no method has a choice.
        """
        inner = None
        if any(candidate.n_fits > 1 for candidate in self.plan.candidates):
            seed = self.task.seed + number
            n_parts = SEARCH_FOLDS
            if fold.groups is not None:
                n_parts = min(n_parts, len(np.unique(fold.groups)))
                if n_parts < 2:  # with a cv of 2, or test rows: otherwise, every fold has a group
                    raise ValueError(
                        "the training rows are a single group, so none can be held out to choose C; use more groups or "
                        "a larger cv"
                    )
            rows = splits(n_parts, fold.y, _num_samples(fold.X), self.task.kind, seed, fold.groups)[0]
            inner = Fold.split(fold.X, fold.y, *rows).transformed(self.transformer)
        return fold.transformed(self.transformer), inner

    def result(self, about: dict[str, Any], refused: dict[str, str]) -> Comparison:
        """Means over the held-out rows of all folds."""
        names = list(self.folds[0])
        rows = {name: np.vstack([fold[name].outcomes for fold in self.folds]) for name in names}
        methods = [self._method(candidate, rows) for candidate in self.plan.candidates if candidate.name in names]
        first = self.task.metrics[0].name
        methods.sort(key=lambda method: -method.quality[first].mean)
        left_out = {c.name: "the budget was used up" for c in self.plan.candidates if c.name not in names}
        about |= {"folds": len(self.folds), "folds_asked": self.plan.folds_asked, "held_out_rows": len(rows[names[0]])}
        about["seconds"] = time.monotonic() - self.started
        return Comparison(tuple(methods), {name: rows[name][:, 0] for name in names}, first, about, refused | left_out)

    def _method(self, candidate: Candidate, rows: dict[str, Floats]) -> MethodResult:
        folds = [fold[candidate.name] for fold in self.folds]
        outcomes, chosen = rows[candidate.name], [fold.parameters for fold in folds]
        # The values that most folds chose; among equally frequent ones the smallest C, then the smallest k.
        usual = min(chosen, key=lambda values: (-chosen.count(values), *(values[name] for name in sorted(values))))
        return MethodResult(
            name=candidate.name,
            estimator=clone(candidate.estimator).set_params(**usual),
            parameters={name: [values[name] for values in chosen] for name in chosen[0]},
            quality={m.name: interval_of(outcomes[:, i]) for i, m in enumerate(self.task.metrics)},
            cost=Cost(
                cpu_s=float(np.mean([fold.cost.cpu_s for fold in folds])),
                memory_bytes=float(np.max([fold.cost.memory_bytes for fold in folds])),
                model_bytes=int(np.mean([fold.cost.model_bytes for fold in folds])),
                prediction_s=float(np.mean([fold.cost.prediction_s for fold in folds])),
            ),
            relative_gap=max(fold.gap for fold in folds),
            stopped=any(fold.stopped for fold in folds),
        )


def _measure(task: Task, candidate: Candidate, fold: Fold, inner: Fold | None, limit: float) -> FoldResult:
    """Search, fit and measure one method in at most this many seconds."""
    whole = TimeLimit(limit)

    def score(model: Any, X: Any, y: Any) -> float:
        return float(row_outcomes(model, X, y, task.metrics[:1], task.taxonomy).mean())

    chosen, estimator = candidate.middle(), clone(candidate.estimator)
    if candidate.n_fits > 1 and inner is not None:
        estimator.set_params(callback=TimeLimit(SEARCH_TIME * limit))
        found = scored_path(estimator, inner, score, Cs=list(candidate.Cs), ks=list(candidate.ks) or None)
        chosen = {name: found.best[name] for name in found.params}
    estimator.set_params(**chosen, callback=whole)
    depth = max(metric.k for metric in task.metrics)
    model, cost = measured_fit(estimator, fold.X, fold.y, fold.X_test, depth)
    certificate = model.certificate_
    gap = certificate.decrease_gap if hasattr(model, "taxonomy_") else certificate.relative_gap
    outcomes = row_outcomes(model, fold.X_test, fold.y_test, task.metrics, task.taxonomy)
    return FoldResult(chosen, outcomes, cost, float(gap), model.status_ in (Status.STOPPED, Status.TIME_LIMIT))


def _measure_stored(task: Task, candidate: Candidate, *stored: Fold | None) -> FoldResult:
    """The task of a worker: one method on one fold, whose rows are in stores."""
    fold, inner = (part and part._replace(X=part.X.load(), X_test=part.X_test.load()) for part in stored)
    assert fold is not None
    with use_executor(None):
        return _measure(task, candidate, fold, inner, math.inf)


@dataclass(frozen=True)
class Plan:
    """What a comparison runs."""

    candidates: tuple[Candidate, ...]  # with their grids
    n_folds: int  # that are run; 1 with test rows, and for a single split
    share: float  # of the rows that is used
    seconds: tuple[float, ...]  # expected wall-clock time of each method in each fold
    overhead: float = 0.0  # expected seconds per fold of the work that the methods share: a vectoriser of text
    dropped: dict[str, str] = field(default_factory=dict)  # methods that are left out, with the reason
    folds_asked: int = 1

    @property
    def total(self) -> float:
        """Expected seconds in total."""
        return self.n_folds * (self.overhead + sum(self.seconds))


def make_plan(
    candidates: list[Candidate],
    seconds_per_fit: list[float],
    n_folds: int,
    n_rows: int,
    budget: float | None,
    overhead: float = 0.0,
) -> Plan:
    """The largest comparison that fits the budget.

    Parameters
    ----------
    candidates : list of Candidate
        Methods with full grids.
    seconds_per_fit : list of float
        Expected seconds of a fit on all training rows of a fold.
    n_folds : int
        Number of folds that were asked for.
    n_rows : int
        Number of training rows.
    budget : float or None
        Seconds; None for no limit.
    overhead : float
        Expected seconds per fold of the work that the methods share.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> from widemargin.comparison.compare import make_plan
    >>> from widemargin.comparison.candidates import Candidate
    >>> candidate = Candidate("one-vs-all", OneVsAllClassifier(), (0.1, 1.0, 10.0, 100.0))
    >>> full = make_plan([candidate], [1.0], 5, 10_000, None)
    >>> short = make_plan([candidate], [1.0], 5, 10_000, budget=5.0)
    >>> full.n_folds, round(full.total, 1), short.n_folds, len(short.candidates[0].Cs), short.share
    (5, 14.6, 1, 2, 1.0)
    """
    limit = float("inf") if budget is None else SAFETY * budget
    expected = _seconds(candidates, seconds_per_fit)
    plan = Plan(tuple(candidates), n_folds, 1.0, expected, overhead, folds_asked=n_folds)
    for _ in candidates:
        if plan.total <= limit:
            return plan
        plan = _with_one_thinned(plan, candidates, seconds_per_fit)
    least = replace(plan, n_folds=min(2, n_folds))
    while least.total > limit and (lighter := _without_the_costliest(least)) is not None:
        least = lighter
    for folds in (n_folds, 3, 2, 1):
        plan = replace(least, n_folds=min(folds, n_folds))
        if plan.total <= limit:
            return plan
    share = min(1.0, max(limit / plan.total, FEWEST_ROWS / max(n_rows, 1)))
    return replace(plan, share=share, seconds=tuple(share * s for s in plan.seconds), overhead=share * overhead)


def _with_one_thinned(plan: Plan, full: list[Candidate], seconds_per_fit: list[float]) -> Plan:
    """The plan with fewer values for the most expensive method that still has all of them."""
    kept = list(plan.candidates)
    costly = max((m for m in range(len(kept)) if kept[m] is full[m]), key=lambda m: plan.seconds[m])
    kept[costly] = full[costly].thinned()
    return replace(plan, candidates=tuple(kept), seconds=_seconds(kept, seconds_per_fit))


def _without_the_costliest(plan: Plan) -> Plan | None:
    """The plan without the method that takes more time than all others; None if none does, or only two are left."""
    costliest = max(range(len(plan.seconds)), key=lambda m: plan.seconds[m])
    if len(plan.seconds) < 3 or plan.seconds[costliest] <= 0.5 * sum(plan.seconds):
        return None
    rest = [m for m in range(len(plan.seconds)) if m != costliest]
    reason = f"it would take about {plan.seconds[costliest]:.0f} s per fold, which exceeds the budget"
    return replace(
        plan,
        candidates=tuple(plan.candidates[m] for m in rest),
        seconds=tuple(plan.seconds[m] for m in rest),
        dropped=plan.dropped | {plan.candidates[costliest].name: reason},
    )


def _seconds(candidates: list[Candidate], seconds_per_fit: list[float]) -> tuple[float, ...]:
    """Expected seconds of each method in a fold."""
    return tuple(
        s * (1.0 + (SEARCH_ROWS * WARM_START * c.n_fits if c.n_fits > 1 else 0.0))
        for c, s in zip(candidates, seconds_per_fit, strict=True)
    )


class Clock:
    """The time that is left, by the plan and by the time that finished parts took.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> from widemargin.comparison.compare import Clock, make_plan
    >>> from widemargin.comparison.candidates import Candidate
    >>> plan = make_plan([Candidate("one-vs-all", OneVsAllClassifier(), (1.0,))], [2.0], 1, 100, None)
    >>> clock = Clock(plan, None)
    >>> round(clock.remaining, 2), clock.limit_of(0) > 1e9
    (2.0, True)
    """

    def __init__(self, plan: Plan, budget: float | None) -> None:
        self.plan = plan
        self.deadline = float("inf") if budget is None else time.monotonic() + budget
        self.done = [0] * len(plan.candidates)  # folds finished, by method
        self.expected = self.taken = 0.0  # seconds of the finished parts, planned and real

    def finish(self, method: int, seconds: float) -> None:
        """Record that a fold of a method is done."""
        self.done[method] += 1
        self.expected += self.plan.seconds[method]
        self.taken += seconds

    @property
    def remaining(self) -> float:
        """Seconds that are still expected."""
        planned = sum(s * (self.plan.n_folds - d) for s, d in zip(self.plan.seconds, self.done, strict=True))
        planned += self.plan.overhead * (self.plan.n_folds - max(self.done))
        return planned * (self.taken / self.expected if self.expected > 0.0 else 1.0)

    @property
    def has_time_for_another_fold(self) -> bool:
        """Whether one more fold than planned fits, by the time that the finished ones took."""
        per_fold = self.taken / max(1, min(self.done))
        return time.monotonic() + MARGIN * per_fold <= self.deadline

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self.deadline

    def limit_of(self, method: int) -> float:
        """Seconds that a method may take in this fold: the rest, minus the expected time of the waiting methods."""
        fold, left = self.done[method], self.deadline - time.monotonic()
        planned = enumerate(zip(self.plan.seconds, self.done, strict=True))
        waiting = [seconds for m, (seconds, done) in planned if done <= fold and m != method]
        return max(0.0, left - sum(waiting), left / (1 + len(waiting)))


def trial_rows(X: Any, y: Any, n_rows: int, kind: str, seed: int, transformer: Any) -> tuple[tuple[Any, Any], float]:
    """A few rows for trials, and the seconds that a transformer takes in a fold of n_rows, estimated from the few.

    There are as many as `TRIAL_ROWS` and `TRIAL_VALUES` ask for, at most n_rows.
    """
    n_few = min(n_rows, TRIAL_ROWS)
    for _ in range(2):
        part = part_of(y, _num_samples(X), n_few / _num_samples(X), kind, seed)
        few, y_few = _safe_indexing(X, part), _safe_indexing(y, part)
        started = time.monotonic()
        few = few if transformer is None else clone(transformer).fit_transform(few, y_few)
        overhead = 0.0 if transformer is None else TRANSFORMED * (time.monotonic() - started) * n_rows / len(part)
        needed = int(len(part) * 1.1 * TRIAL_VALUES / max(1, few.nnz if sp.issparse(few) else few.size)) + 1
        if n_few == n_rows or needed <= n_few:
            break
        n_few = min(n_rows, needed)
    return (few, y_few), overhead


def _try_methods(candidates: list[Candidate], X: Any, y: Any, n_rows: int) -> tuple[list[float], dict[str, str]]:
    """Seconds of a fit on n_rows, estimated from a few; and the methods that cannot be fitted, with the reasons."""
    seconds: list[float] = []
    refused: dict[str, str] = {}
    for candidate in candidates:
        started = time.monotonic()
        try:
            fit_quietly(clone(candidate.estimator).set_params(**candidate.middle()), X, y)
        except ValueError as error:
            refused[candidate.name] = str(error)
        else:
            seconds.append(float((time.monotonic() - started) * (n_rows / X.shape[0]) ** GROWTH))
    if not seconds:
        name = candidates[0].name
        raise ValueError(f"no method can be fitted; {name}: {refused[name]}")
    return seconds, refused


def classes_of_lists(y: Any, *, or_none: bool = False) -> Any:
    """The label of each row where y is lists, or an indicator, with exactly one label in every row; otherwise None.

    With `or_none`, a row may also have no label, as in a test file with labels that no training row has; its entry is
    then None.

    Examples
    --------
    >>> from widemargin.comparison.compare import classes_of_lists
    >>> classes_of_lists([["cat"], ["dog"], ["cat"]]).tolist()
    ['cat', 'dog', 'cat']
    >>> classes_of_lists([["cat"], ["dog", "cat"]]) is None
    True
    """
    targets = encode_targets(y)
    if targets.kind != "multilabel":
        return None
    counts, columns = np.diff(targets.Y.indptr), targets.Y.indices
    if counts.max(initial=0) > 1 or (not or_none and (counts.min(initial=1) != 1 or len(np.unique(columns)) < 2)):
        return None
    if counts.min(initial=1) == 0:
        labels = np.full(len(counts), None, dtype=object)
        labels[counts == 1] = targets.classes[columns]
        return labels
    return targets.classes[columns]


def _has_inner(labels: list[Any], taxonomy: Taxonomy) -> bool:
    """Whether a label is a node above others."""
    known = [label for label in labels if label in taxonomy]
    return bool(known) and not bool(taxonomy.tree.is_leaf[taxonomy.indices(known)].all())


def _labels(y: Any, y_test: Any) -> tuple[Any, Any, bool]:
    """The labels of all rows and test rows, as classes if they are lists of exactly one; and whether they are."""
    y, y_test = as_targets(y), None if y_test is None else as_targets(y_test)
    classes = classes_of_lists(y)
    if classes is None:
        return y, y_test, False
    if y_test is None or encode_targets(y_test).kind != "multilabel":
        return classes, y_test, True
    test_classes = classes_of_lists(y_test, or_none=True)
    # Test rows with several labels ask for a method that can give several.
    return (y, y_test, False) if test_classes is None else (classes, test_classes, True)


def _folds(whole: Fold, cv: int, plan: Plan, task: Task) -> Iterator[Fold]:
    """All folds, on the plan's share of the rows; without test rows, by cross-validation."""
    if plan.share < 1.0:
        part = part_of(whole.y, _num_samples(whole.X), plan.share, task.kind, task.seed)
        groups = None if whole.groups is None else whole.groups[part]
        whole = whole._replace(X=_safe_indexing(whole.X, part), y=_safe_indexing(whole.y, part), groups=groups)
    if whole.X_test is not None:
        yield whole
        return
    for train, test in splits(cv, whole.y, _num_samples(whole.X), task.kind, task.seed, whole.groups):
        yield Fold.split(whole.X, whole.y, train, test, whole.groups)


def _check_arguments(X: Any, y: Any, X_test: Any, y_test: Any, cv: int, budget: float | None, transformer: Any) -> None:
    """Errors before any work."""
    if not hasattr(X, "shape") and transformer is None:
        raise ValueError(
            "X must be an array or a sparse matrix; use numpy.asarray(X), or pass a transformer, such as "
            "TfidfVectorizer() for texts"
        )
    if transformer is not None and not hasattr(transformer, "fit_transform"):
        raise ValueError(f"transformer must have the methods fit_transform and transform; got {transformer!r}")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be passed together; pass both or neither")
    check_rows_and_budget(X, y, budget)
    if not isinstance(cv, int) or cv < 2:
        raise ValueError(f"cv must be an integer of at least 2, the number of folds; got {cv!r}")
