"""Compare the methods that fit the labels on the same rows, within a budget of time.

For each fold, or for given test rows, and for each method:

    search   C (and k) along a warm-started path on 4/5 of the training rows, scored on the others
    fit      with the best values on all training rows: certificate, CPU time, memory, size
    measure  every held-out row                                                  → means, intervals, differences

Held-out rows never take part in the choice of values. Folds are finished for all methods or not counted, so that all
are measured on the same rows. Memory: the data, two copies of a fold's rows, and a model at a time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from widemargin.comparison._measure import Cost, measured_fit, stop_at
from widemargin.comparison._on_workers import folds_on_workers
from widemargin.comparison._outcomes import Metric, interval_of, metrics_for, row_outcomes
from widemargin.comparison._plan import SEARCH_TIME, Clock, Plan, make_plan
from widemargin.comparison._rows import (
    Fold,
    as_targets,
    classes_of_lists,
    n_rows_of,
    part_of,
    splits,
    take,
    transformed,
)
from widemargin.comparison._trial import try_methods
from widemargin.comparison.candidates import Candidate, candidates_for
from widemargin.comparison.result import Comparison, MethodResult
from widemargin.estimators.path import path
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.parallel import Executor, as_executor
from widemargin.solvers.result import Status

__all__ = ["compare"]

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
