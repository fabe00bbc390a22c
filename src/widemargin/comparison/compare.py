"""Compare the methods that fit the labels on the same rows, within a budget of time.

For each fold, or for given test rows, and for each method:

    search   C (and k) along a warm-started path on 4/5 of the training rows, scored on the others
    fit      with the best values on all training rows: certificate, CPU time, memory, size
    measure  every held-out row                                                  → means, intervals, differences

Held-out rows never take part in the choice of values. Folds are finished for all methods or not counted, so that all
are measured on the same rows. Memory: the data, two copies of a fold's rows, and a model at a time.

How much is done within a budget of time, and how long the rest will take.

Every method is fitted once on a small part of the rows. From that follows the cost of a full comparison: for each fold,
a search along the grid on four fifths of the training rows and a fit on all of them.
If it does not fit the budget, the grids are thinned, the most expensive method's first, then the folds become fewer,
then methods that take more time than all others together are left out, as long as two are left, and at last rows.
While it runs, estimates are corrected by what the finished parts really took; time that is left goes into further
folds.

A fit of every method on a few rows: what it will cost on all of them, and whether the method can be fitted.

The methods of a comparison in its folds, fitted and measured by the workers of an engine; rows come from stores.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from widemargin.comparison.candidates import Candidate, candidates_for
from widemargin.comparison.result import (
    Comparison,
    Cost,
    MethodResult,
    Metric,
    fit_quietly,
    interval_of,
    measured_fit,
    metrics_for,
    row_outcomes,
    stop_at,
)
from widemargin.comparison.tune import Fold, as_targets, classes_of_lists, n_rows_of, part_of, splits, take, transformed
from widemargin.estimators.path import path
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.parallel import Executor, as_executor, run_tasks, use_executor
from widemargin.parallel.folders import SharedRows
from widemargin.solvers.result import Status

__all__ = [
    "SEARCH_TIME",
    "Clock",
    "Plan",
    "Trial",
    "compare",
    "folds_on_workers",
    "make_plan",
    "trial_rows",
    "try_methods",
]

SAFETY = 0.7
"""Part of the budget that is planned; fits with a large C take longer than the trial's."""
SEARCH_ROWS = 0.8
SEARCH_TIME = 0.7
"""Part of a method's time after which the search stops: the fit that counts must have some left."""
FEWEST_ROWS = 500
MARGIN = 1.2
"""Time that must be left for a further fold, in units of the finished ones."""
WARM_START = 0.6
"""Cost of a fit of the search, relative to one from scratch."""


@dataclass(frozen=True)
class Plan:
    """What is done.

    Parameters
    ----------
    candidates : tuple of Candidate
        Methods with their grids.
    n_folds : int
        Folds of the cross-validation that are run; 1 with test rows, and for a single split.
    share : float
        Part of the rows that is used.
    seconds : tuple of float
        Expected wall-clock seconds of each method in each fold.
    overhead : float
        Expected seconds of what the methods share in each fold: a vectoriser of text.
    dropped : dict
        Methods that are left out, with the reason.
    folds_asked : int
        Folds that were wanted.
    """

    candidates: tuple[Candidate, ...]
    n_folds: int
    share: float
    seconds: tuple[float, ...]
    overhead: float = 0.0
    dropped: dict[str, str] = field(default_factory=dict)
    folds_asked: int = 1

    @property
    def total(self) -> float:
        """Expected seconds in all."""
        return self.n_folds * (self.overhead + sum(self.seconds))


def make_plan(
    candidates: list[Candidate],
    seconds_a_fit: list[float],
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
    seconds_a_fit : list of float
        Expected seconds of a fit on all training rows of a fold.
    n_folds : int
        Folds that are wanted.
    n_rows : int
        Rows of a training part.
    budget : float or None
        Seconds; None for no limit.
    overhead : float
        Expected seconds of what the methods share in a fold.

    Returns
    -------
    Plan

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
    expected = _seconds(candidates, seconds_a_fit)
    plan = Plan(tuple(candidates), n_folds, 1.0, expected, overhead, folds_asked=n_folds)
    for _ in candidates:
        if plan.total <= limit:
            return plan
        plan = _with_one_thinned(plan, candidates, seconds_a_fit)
    least = replace(plan, n_folds=min(2, n_folds))
    while least.total > limit and (lighter := _without_the_costliest(least)) is not None:
        least = lighter
    for folds in (n_folds, 3, 2, 1):
        plan = replace(least, n_folds=min(folds, n_folds))
        if plan.total <= limit:
            return plan
    share = min(1.0, max(limit / plan.total, FEWEST_ROWS / max(n_rows, 1)))
    return replace(plan, share=share, seconds=tuple(share * s for s in plan.seconds), overhead=share * overhead)


def _with_one_thinned(plan: Plan, full: list[Candidate], seconds_a_fit: list[float]) -> Plan:
    """The plan with fewer values for the most expensive method that still has all of them."""
    kept = list(plan.candidates)
    costly = max((m for m in range(len(kept)) if kept[m] is full[m]), key=lambda m: plan.seconds[m])
    kept[costly] = full[costly].thinned()
    return replace(plan, candidates=tuple(kept), seconds=_seconds(kept, seconds_a_fit))


def _without_the_costliest(plan: Plan) -> Plan | None:
    """The plan without the method that takes more time than all others; None if none does, or only two are left."""
    costliest = max(range(len(plan.seconds)), key=lambda m: plan.seconds[m])
    if len(plan.seconds) < 3 or plan.seconds[costliest] <= 0.5 * sum(plan.seconds):
        return None
    rest = [m for m in range(len(plan.seconds)) if m != costliest]
    reason = f"it would take about {plan.seconds[costliest]:.0f} s a fold, too much for the budget"
    return replace(
        plan,
        candidates=tuple(plan.candidates[m] for m in rest),
        seconds=tuple(plan.seconds[m] for m in rest),
        dropped=plan.dropped | {plan.candidates[costliest].name: reason},
    )


def _seconds(candidates: list[Candidate], seconds_a_fit: list[float]) -> tuple[float, ...]:
    """Expected seconds of each method in a fold."""
    return tuple(
        s * (1.0 + (SEARCH_ROWS * WARM_START * c.n_fits if c.n_fits > 1 else 0.0))
        for c, s in zip(candidates, seconds_a_fit, strict=True)
    )


class Clock:
    """The time that is left, by the plan and by what finished parts took.

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
        """Note that a fold of a method is done."""
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
        """Whether one more fold than planned fits, by what the finished ones took."""
        a_fold = self.taken / max(1, min(self.done))
        return time.monotonic() + MARGIN * a_fold <= self.deadline

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self.deadline

    def limit_of(self, method: int) -> float:
        """Seconds that a method may take in this fold: what the others that wait are not expected to need."""
        fold, left = self.done[method], self.deadline - time.monotonic()
        waiting = [
            s for m, (s, d) in enumerate(zip(self.plan.seconds, self.done, strict=True)) if d <= fold and m != method
        ]
        return max(left - sum(waiting), left / (1 + len(waiting)))


TRIAL_ROWS = 1000
"""Rows of the fit that tells what a method costs, at least."""
TRIAL_VALUES = 200_000
"""Stored values of it: with fewer, what a fit costs beside its rows would be taken for the cost of rows, and very small
problems are solved more exactly than larger ones."""
GROWTH = 1.3
"""Power of the number of rows with which the time of a fit grows: more rows make more features, and harder problems."""
TRANSFORMED = 2.25
"""How often a transformer sees the training rows of a fold: as a whole and in the search, and a quarter to test."""


class Trial(NamedTuple):
    """Methods that work with the seconds of a fit, why others do not, and seconds of the transformer in a fold."""

    candidates: list[Candidate]
    seconds: list[float]
    refused: dict[str, str]
    overhead: float


def trial_rows(X: Any, y: Any, n_rows: int, kind: str, seed: int, transformer: Any) -> tuple[tuple[Any, Any], float]:
    """A few rows for trials, and what a transformer takes in a fold of so many, by what it took for them.

    They are as many as `TRIAL_ROWS` and `TRIAL_VALUES` ask for, or all of a fold.
    """
    n_few = min(n_rows, TRIAL_ROWS)
    for _ in range(2):
        part = part_of(y, n_rows_of(X), n_few / n_rows_of(X), kind, seed)
        few, y_few = take(X, y, part)
        began = time.monotonic()
        few = few if transformer is None else clone(transformer).fit_transform(few, y_few)
        overhead = 0.0 if transformer is None else TRANSFORMED * (time.monotonic() - began) * n_rows / len(part)
        needed = int(len(part) * 1.1 * TRIAL_VALUES / max(1, few.nnz if sp.issparse(few) else few.size)) + 1
        if n_few == n_rows or needed <= n_few:
            break
        n_few = min(n_rows, needed)
    return (few, y_few), overhead


def trial_seconds(candidate: Candidate, X: Any, y: Any, n_rows: int) -> float | str:
    """Seconds of a fit on so many rows, by one on a few; or why the method cannot be fitted."""
    began = time.monotonic()
    try:
        fit_quietly(clone(candidate.estimator).set_params(**candidate.middle()), X, y)
    except ValueError as error:
        return str(error)
    return float((time.monotonic() - began) * (n_rows / X.shape[0]) ** GROWTH)


def those_that_worked(
    candidates: list[Candidate], trials: list[float | str]
) -> tuple[list[Candidate], list[float], dict[str, str]]:
    """Methods that fit the data with their seconds, and the reasons of the others; an error if there is none."""
    pairs = list(zip(candidates, trials, strict=True))
    refused = {c.name: trial for c, trial in pairs if isinstance(trial, str)}
    if len(refused) == len(pairs):
        raise ValueError(f"no method can be fitted; {pairs[0][0].name}: {refused[pairs[0][0].name]}")
    worked = [(c, trial) for c, trial in pairs if not isinstance(trial, str)]
    return [c for c, _ in worked], [seconds for _, seconds in worked], refused


def try_methods(
    candidates: list[Candidate], X: Any, y: Any, n_rows: int, kind: str, seed: int, transformer: Any
) -> Trial:
    """Fit each method on a few rows, as a trial for fits of `n_rows`."""
    few, overhead = trial_rows(X, y, n_rows, kind, seed, transformer)
    trials = [trial_seconds(candidate, *few, n_rows) for candidate in candidates]
    return Trial(*those_that_worked(candidates, trials), overhead)


def folds_on_workers(run: Any, folds: list[tuple[Fold, Fold | None]], engine: Executor) -> list[dict[str, Any]]:
    """What each method did in each fold, as `_Run.add` finds it in this process; folds come with their search parts."""
    light, candidates = copy.copy(run), run.plan.candidates
    light.report, light.folds, light.transformer = None, [], None
    found: dict[int, Any] = {}
    last = time.monotonic()
    with contextlib.ExitStack() as stack:
        tasks: list[tuple[Any, ...]] = []
        for fold in folds:
            shared = tuple(part and _shared(part, engine, stack) for part in fold)
            tasks += [(light, candidate, *shared) for candidate in candidates]
        for place, result in run_tasks(_fit_and_measure, tasks, engine):
            found[place], now = result, time.monotonic()
            run.clock.finish(place % len(candidates), now - last)
            last = now
            run._tell(f"{len(found)} of {len(tasks)} fits with their search")
    names = [candidate.name for candidate in candidates]
    places = range(0, len(tasks), len(names))
    return [{name: found[first + offset] for offset, name in enumerate(names)} for first in places]


def _shared(fold: Fold, engine: Executor, stack: contextlib.ExitStack) -> Fold:
    """The fold with its rows in stores."""
    X, X_test = (stack.enter_context(SharedRows.of(part, engine)) for part in (fold.X, fold.X_test))
    return fold._replace(X=X, X_test=X_test)


def _fit_and_measure(run: Any, candidate: Candidate, *shared: Fold | None) -> Any:
    """The task of a method in a fold."""
    fold, inner = (part and part._replace(X=part.X.load(), X_test=part.X_test.load()) for part in shared)
    with use_executor(None):
        return run._one(candidate, fold, inner, math.inf)


WITHOUT_RESERVE = 0.95
"""Part of the budget at whose end fits are stopped: a pass in hand, and the last predictions, come after it."""
SEARCH_FOLDS = 5
"""One of so many parts of the training rows scores the search."""

Report = Callable[[str, float, float], None]


class Task(NamedTuple):
    """What is measured, on which kind of labels."""

    metrics: list[Metric]
    kind: str
    taxonomy: Taxonomy | None
    seed: int


class FoldResult(NamedTuple):
    """What a method did in a fold."""

    parameters: dict[str, Any]
    outcomes: npt.NDArray[np.float64]
    cost: Cost
    gap: float
    stopped: bool


def compare(
    X: Any,
    y: Any,
    *,
    taxonomy: Taxonomy | None = None,
    transformer: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    cv: int = 5,
    methods: Sequence[str] | None = None,
    metric: str | None = None,
    budget: float | None = None,
    normalize: bool = False,
    random_state: int = 0,
    n_jobs: int | None = None,
    executor: Any = None,
    report: Report | None = None,
) -> Comparison:
    """Try every method that fits the labels, and say which to use.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features), or list of n_samples texts
        Rows; whatever a `transformer` takes.
    y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
        Labels. Lists, or rows of an indicator, that have exactly one label each are taken as classes.
    taxonomy : Taxonomy or None, default=None
        A tree over the labels; its methods are tried too, where a row has one label. If some rows are labelled with
        inner nodes, those that predict a path are also tried with ``stop=True``, which lets it end there.
    transformer : transformer or None, default=None
        What makes rows of numbers, such as a `TfidfVectorizer` for text. It is cloned and fitted on the training rows
        of each fold, and of each search, alone. The costs in the table are without it.
    X_test, y_test : rows and labels, default=None
        Held-out rows; cross-validation without them.
    cv : int, default=5
        Folds of the cross-validation.
    methods : sequence of str or None, default=None
        Names of the methods to try; all if None.
    metric : str or None, default=None
        What decides: "top_k_accuracy@k" for one label per row (k = 1, the accuracy, if None), "precision@k" for
        several. With a taxonomy also "hierarchical_f1", which gives credit for a part of the path, or "at_or_below@k",
        which takes any node below the true one for right and so favours methods that only predict leaves.
    budget : float or None, default=None
        Seconds that the comparison may take; None for no limit. When it is short, fewer values, folds and at last fewer
        rows are used, and the result says so.
    normalize : bool, default=False
        Whether every method scales rows to unit length.
    random_state : int, default=0
        Seed of the folds, and of the methods that draw.
    n_jobs : int or None, default=None
        Threads of each fit.
    executor : None, int, str or dask.distributed.Client, default=None
        Who fits the methods in the folds: this process, so many processes, or a dask cluster. The quality does not
        depend on it. Not together with `budget`, which plans the time of one process.
    report : callable or None, default=None
        Called with what is being done, seconds gone and seconds expected in all.

    Returns
    -------
    Comparison
        Methods best first, with intervals, certificates and costs; `recommendation` is a sentence.

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
    began = time.monotonic()
    y, y_test, has_lists = _labels(y, y_test)
    targets = encode_targets(y)
    _check_arguments(X, y, X_test, y_test, cv, budget, transformer)
    n_rows, n_classes = n_rows_of(X), len(targets.classes)
    engine = _engine(executor, budget)
    on_tree = taxonomy is not None and targets.kind != "multilabel"
    task = Task(metrics_for(targets.kind, n_classes, metric, on_tree=on_tree), targets.kind, taxonomy, random_state)
    options: dict[str, Any] = {
        "methods": methods,
        "has_inner_labels": _has_inner(task, targets.classes.tolist()),
        "normalize": normalize,
        "random_state": random_state,
        "n_jobs": n_jobs,
    }
    candidates = candidates_for(targets.kind, n_classes, taxonomy, **options)
    n_folds, n_training = (1, n_rows) if X_test is not None else (cv, n_rows * (cv - 1) // cv)
    trial = try_methods(candidates, X, y, n_training, targets.kind, random_state, transformer)
    left = None if budget is None else max(0.0, WITHOUT_RESERVE * budget - (time.monotonic() - began))
    plan = make_plan(trial.candidates, trial.seconds, n_folds, n_training, left, trial.overhead)
    run = _Run(plan, task, transformer, Clock(plan, left), began, report)
    run.measure(_folds(X, y, X_test, y_test, cv, plan, targets.kind, random_state), engine)
    about = {"rows": n_rows, "labels": n_classes, "share_of_rows": plan.share, "budget_s": budget}
    return run.result(about | {"lists_of_one_label": has_lists}, trial.refused | plan.dropped)


def _engine(executor: Any, budget: float | None) -> Executor:
    """Who fits the methods."""
    engine = as_executor(executor)
    if budget is not None and not engine.in_process:
        raise ValueError("budget plans the time of one process; leave it out, or leave executor out")
    return engine


class _Run:
    """The folds so far."""

    def __init__(
        self,
        plan: Plan,
        task: Task,
        transformer: Any,
        clock: Clock,
        began: float,
        report: Report | None,
    ) -> None:
        self.plan, self.task, self.transformer = plan, task, transformer
        self.clock, self.began, self.report = clock, began, report
        self.folds: list[dict[str, FoldResult]] = []

    def measure(self, folds: Iterator[Fold], engine: Executor) -> None:
        """All folds on workers, or here as many as the plan has and the time allows."""
        if not engine.in_process:
            self.folds = folds_on_workers(self, [self.prepared(*given) for given in enumerate(folds)], engine)
            return
        for number, fold in enumerate(folds):
            if number >= self.plan.n_folds and not self.clock.has_time_for_another_fold:
                break
            self.add(fold)

    def add(self, fold: Fold) -> None:
        """All methods on a fold; one that the budget cuts short counts only if it is the first."""
        found: dict[str, FoldResult] = {}
        fold, inner = self.prepared(len(self.folds), fold)
        for number, candidate in enumerate(self.plan.candidates):
            if self.clock.is_over and (self.folds or found):
                break
            self._tell(f"{candidate.name}, fold {len(self.folds) + 1}")
            began = time.monotonic()
            found[candidate.name] = self._one(candidate, fold, inner, self.clock.limit_of(number))
            self.clock.finish(number, time.monotonic() - began)
        if not self.folds or len(found) == len(self.folds[0]):
            self.folds.append(found)

    def _tell(self, what: str) -> None:
        if self.report is not None:
            now = time.monotonic()
            left = max(0.0, min(self.clock.remaining, self.clock.deadline - now))
            self.report(what, now - self.began, now - self.began + left)

    def prepared(self, number: int, fold: Fold) -> tuple[Fold, Fold | None]:
        """A fold, and its training rows split for the search, as the transformer shows them; the same for all methods.

        The second is None if no method has a choice.
        """
        if all(candidate.n_fits == 1 for candidate in self.plan.candidates):
            return transformed(fold, self.transformer), None
        seed = self.task.seed + number
        inside, outside = next(splits(fold.y, n_rows_of(fold.X), SEARCH_FOLDS, self.task.kind, seed))
        inner = transformed(Fold(*take(fold.X, fold.y, inside), *take(fold.X, fold.y, outside)), self.transformer)
        return transformed(fold, self.transformer), inner

    def _one(self, candidate: Candidate, fold: Fold, inner: Fold | None, limit: float) -> FoldResult:
        """Search, fit, measure."""
        began = time.monotonic()
        estimator = clone(candidate.estimator).set_params(callback=stop_at(began + SEARCH_TIME * limit))
        chosen = _search(candidate, estimator, inner, self._score)
        estimator.set_params(**chosen, callback=stop_at(began + limit))
        depth = max(metric.k for metric in self.task.metrics)
        model, cost = measured_fit(estimator, fold.X, fold.y, fold.X_test, depth)
        certificate = model.certificate_
        gap = certificate.decrease_gap if hasattr(model, "taxonomy_") else certificate.relative_gap
        outcomes = row_outcomes(model, fold.X_test, fold.y_test, self.task.metrics, self.task.taxonomy)
        return FoldResult(chosen, outcomes, cost, float(gap), model.status_ in (Status.STOPPED, Status.TIME_LIMIT))

    def _score(self, model: Any, X: Any, y: Any) -> float:
        """What decides, of a model of the search."""
        return float(row_outcomes(model, X, y, self.task.metrics[:1], self.task.taxonomy).mean())

    def result(self, about: dict[str, Any], refused: dict[str, str]) -> Comparison:
        """Means over the held-out rows of all folds."""
        names = list(self.folds[0])
        rows = {name: np.vstack([fold[name].outcomes for fold in self.folds]) for name in names}
        methods = [self._method(candidate, rows) for candidate in self.plan.candidates if candidate.name in names]
        first = self.task.metrics[0].name
        methods.sort(key=lambda method: -method.quality[first].mean)
        left_out = {c.name: "the budget was used up before" for c in self.plan.candidates if c.name not in names}
        about |= {"folds": len(self.folds), "folds_asked": self.plan.folds_asked, "held_out_rows": len(rows[names[0]])}
        about["seconds"] = time.monotonic() - self.began
        return Comparison(tuple(methods), {name: rows[name][:, 0] for name in names}, first, about, refused | left_out)

    def _method(self, candidate: Candidate, rows: dict[str, Any]) -> MethodResult:
        folds = [fold[candidate.name] for fold in self.folds]
        outcomes = rows[candidate.name]
        quality = {m.name: interval_of(outcomes[:, place]) for place, m in enumerate(self.task.metrics)}
        cost = Cost(
            cpu_s=float(np.mean([fold.cost.cpu_s for fold in folds])),
            memory_bytes=float(np.max([fold.cost.memory_bytes for fold in folds])),
            model_bytes=int(np.mean([fold.cost.model_bytes for fold in folds])),
            prediction_s=float(np.mean([fold.cost.prediction_s for fold in folds])),
        )
        parameters = {name: [fold.parameters[name] for fold in folds] for name in folds[0].parameters}
        estimator = clone(candidate.estimator).set_params(**_usual([fold.parameters for fold in folds]))
        gap, stopped = max(fold.gap for fold in folds), any(fold.stopped for fold in folds)
        return MethodResult(candidate.name, estimator, parameters, quality, cost, gap, stopped)


def _usual(chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """The values that most folds chose; of equally frequent ones the smallest C, then the smallest k, as in `tune`."""
    return min(chosen, key=lambda values: (-chosen.count(values), *(values[name] for name in sorted(values))))


def _search(candidate: Candidate, estimator: Any, inner: Fold | None, score: Any) -> dict[str, Any]:
    """The best values of C and k on a part of the training rows."""
    if candidate.n_fits == 1 or inner is None:
        return candidate.middle()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = path(
            estimator,
            inner.X,
            inner.y,
            Cs=list(candidate.Cs),
            ks=list(candidate.ks) or None,
            X_test=inner.X_test,
            y_test=inner.y_test,
            scoring=score,
            keep="none",
        )
    return {name: found.best[name] for name in found.params}


def _has_inner(task: Task, labels: list[Any]) -> bool:
    """Whether a label is a node above others."""
    if task.taxonomy is None or task.kind == "multilabel":
        return False
    known = [label for label in labels if label in task.taxonomy]
    return not bool(task.taxonomy.tree.is_leaf[task.taxonomy.indices(known)].all()) if known else False


def _labels(y: Any, y_test: Any) -> tuple[Any, Any, bool]:
    """Labels and those of the test rows; as classes if they are lists of exactly one, which the last value tells."""
    y, y_test = as_targets(y), None if y_test is None else as_targets(y_test)
    classes = classes_of_lists(y)
    if classes is None:
        return y, y_test, False
    if y_test is None or encode_targets(y_test).kind != "multilabel":
        return classes, y_test, True
    test_classes = classes_of_lists(y_test, or_none=True)
    # Test rows with several labels ask for a method that can give several.
    return (y, y_test, False) if test_classes is None else (classes, test_classes, True)


def _folds(X: Any, y: Any, X_test: Any, y_test: Any, cv: int, plan: Plan, kind: str, seed: int) -> Iterator[Fold]:
    """All folds, on the plan's share of the rows."""
    n_rows = n_rows_of(X)
    if X_test is not None:
        yield Fold(*take(X, y, part_of(y, n_rows, plan.share, kind, seed)), X_test, y_test)
        return
    X, y = (X, y) if plan.share == 1.0 else take(X, y, part_of(y, n_rows, plan.share, kind, seed))
    for train, test in splits(y, n_rows_of(X), cv, kind, seed):
        yield Fold(*take(X, y, train), *take(X, y, test))


def _check_arguments(X: Any, y: Any, X_test: Any, y_test: Any, cv: int, budget: float | None, transformer: Any) -> None:
    """Errors before any work."""
    if not hasattr(X, "shape") and transformer is None:
        raise ValueError(
            "X must be an array or a sparse matrix, with a shape; use numpy.asarray(X), and for text transformer="
        )
    if transformer is not None and not hasattr(transformer, "fit_transform"):
        raise ValueError(f"transformer must have fit_transform and transform; got {transformer!r}")
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test belong together; give both or none")
    n_labelled = y.shape[0] if hasattr(y, "shape") else len(y)
    if n_labelled != n_rows_of(X):
        raise ValueError(f"X has {n_rows_of(X)} rows and y {n_labelled}; give one label, or set of labels, a row")
    if not isinstance(cv, int) or cv < 2:
        raise ValueError(f"cv must be a number of folds, at least 2; got {cv!r}")
    if budget is not None and not budget > 0.0:
        raise ValueError(f"budget must be a positive number of seconds, or None; got {budget!r}")
