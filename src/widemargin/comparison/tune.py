"""Choose C, k and α by cross-validation along warm-started paths, and train with the best values.

    for each fold, each share of α* and each k:    W(C₁) → W(C₂) → …   on the training rows, each from the one before
    quality(values) = mean over the held-out rows of all folds,    the best one wins; of equal ones the smallest C

Where the best C is the smallest or the largest that was tried, and better than the next one, further ones are tried on
that side. A transformer in front of the classifier is fitted on the training rows of each fold. Memory: the data, a
copy of a fold's rows, and two or three models at a time.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from widemargin.comparison._grids import BINARY_C, Grid, grid_for
from widemargin.comparison._measure import stop_at
from widemargin.comparison._outcomes import NORMAL_95, Interval, Metric, metrics_for, row_outcomes
from widemargin.comparison._rows import Fold, Rows, as_targets, n_rows_of, splits, take, transformed
from widemargin.comparison.tuning import Tuning, same
from widemargin.estimators._tree_targets import make_taxonomy
from widemargin.estimators.hierarchical import HierarchicalClassifier
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.estimators.path import path
from widemargin.labels.encoding import EncodedTargets, encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.solvers.result import Status

__all__ = ["tune"]

EXTENSIONS = 4
"""How often values of C are added, at most: eight of them, a factor of 65,536 for one-vs-all."""
LARGER_C = 2.0
"""Cost of a fit beyond the edge, relative to those before: a larger C makes problems harder."""

Report = Callable[[str, float, float], None]
Key = tuple[float, ...]


class Sums(NamedTuple):
    """Number, sum and sum of squares of the outcomes of rows."""

    n: int
    total: float
    squares: float


def tune(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    Cs: Sequence[float] | str | None = "auto",
    ks: Sequence[int] | str | None = "auto",
    alpha_shares: Sequence[float] | str | None = "auto",
    cv: Any = 5,
    metric: str | None = None,
    sample_weight: Any = None,
    budget: float | None = None,
    refit: bool = True,
    random_state: int = 0,
    n_jobs: int | None = None,
    report: Report | None = None,
) -> Tuning:
    """Choose C, and k or α where the method has them, by cross-validation, and train on all rows with the best.

    Parameters
    ----------
    estimator : estimator of this package, or Pipeline that ends in one
        It is cloned, not changed. The transformers of a pipeline are fitted on the training rows of each fold.
    X : {array-like, sparse matrix} of shape (n_samples, n_features), or what a pipeline takes
        Rows.
    y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
        Labels.
    Cs : sequence of float, "auto" or None, default="auto"
        Values of C; of an output code that is not learned, of the classifiers inside. "auto" takes five or three, and
        more where the best is at the edge. None leaves C as it is.
    ks : sequence of int, "auto" or None, default="auto"
        Values of k of a `TopKClassifier`. "auto": 1, 3, 5 and 10, below the number of classes; None leaves k as it is.
    alpha_shares : sequence of float, "auto" or None, default="auto"
        Values of `alpha_share`, the share of α* that orthogonal transfer takes as its α. "auto": .3, .6 and .9; None
        leaves it as it is.
    cv : int, splitter or iterable, default=5
        Folds; a number of them are shuffled, and stratified where a row has one label.
    metric : str or None, default=None
        What decides: "top_k_accuracy@k" for one label per row, "precision@k" for several; k = 1 if None. In a tree
        also "hierarchical_f1", or "at_or_below@k", which takes any node below the true one for right; of several labels
        any one has to be found.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in training; quality is not weighted.
    budget : float or None, default=None
        Seconds that the search may take; None for no limit. When it is short, fewer folds are used, and the notes say
        so. The fit on all rows comes after it.
    refit : bool, default=True
        Whether to fit on all rows with the best values.
    random_state : int, default=0
        Seed of the folds.
    n_jobs : int or None, default=None
        Threads of each fit; None leaves it to the estimator.
    report : callable or None, default=None
        Called with what was done, seconds gone and seconds expected in all.

    Returns
    -------
    Tuning
        The values tried with their quality, the best ones with the reason, and the fitted model.

    See Also
    --------
    path : fits along one row of values, with certificates and sizes.
    compare : all methods that fit the labels.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import TopKClassifier, tune
    >>> y = np.arange(120) % 4
    >>> X = np.eye(4)[y] + 0.4 * np.random.default_rng(0).normal(size=(120, 4))
    >>> found = tune(TopKClassifier(random_state=0), X, y, Cs=[0.1, 1.0], ks=[1, 2], cv=3, metric="top_k_accuracy@2")
    >>> len(found.tried), found.best == {name: getattr(found.model, name) for name in ("C", "k")}
    (4, True)
    >>> found.model.tuning_["metric"]
    'top_k_accuracy@2'
    """
    began = time.monotonic()
    y = as_targets(y)
    targets = encode_targets(y)
    transformer, last = _prepared(estimator, targets, n_jobs)
    is_tree = isinstance(last, HierarchicalClassifier)
    kind = "multiclass" if is_tree else targets.kind
    measured = metrics_for(kind, len(targets.classes), metric, on_tree=is_tree)[0]
    grid = grid_for(last, len(targets.classes), Cs, ks, alpha_shares)
    if BINARY_C in grid.params and last.estimator is None:
        last.set_params(estimator=OneVsAllClassifier())
    if budget is not None and not budget > 0.0:
        raise ValueError(f"budget must be a positive number of seconds, or None; got {budget!r}")
    folds = _split(cv, y, n_rows_of(X), targets.kind, random_state)
    tree = last.taxonomy if is_tree else None
    search = _Search(last, transformer, (X, y, sample_weight), measured, tree, budget, began, report)
    search.run(grid, folds)
    found = search.result(measured.name)
    if not refit:
        return found
    return replace(found, model=_refitted(estimator, last, found, X, y, sample_weight))


class _Search:
    """Sums of outcomes by values, fold by fold."""

    def __init__(
        self,
        estimator: Any,
        transformer: Any,
        data: tuple[Any, Any, Any],
        metric: Metric,
        taxonomy: Taxonomy | None,
        budget: float | None,
        began: float,
        report: Report | None,
    ) -> None:
        self.estimator, self.transformer, self.data = estimator, transformer, data
        self.metric, self.taxonomy = metric, taxonomy
        self.began, self.report = began, report
        self.deadline = math.inf if budget is None else began + budget
        if budget is not None:
            self.estimator.set_params(callback=stop_at(self.deadline))
        self.sums: dict[Key, list[Sums | None]] = {}
        self.n_done = self.n_planned = 0
        self.notes: list[str] = []

    def run(self, grid: Grid, folds: list[tuple[Rows, Rows]]) -> None:
        """All values on the folds there is time for, and values beyond the edge where the best is there."""
        self.grid = grid
        self.n_planned = grid.n_fits * len(folds)
        used = self._folds_in_time(folds)
        if len(used) < len(folds):
            self.notes.append(f"There was time for {len(used)} of {len(folds)} folds.")
        added: set[float] = set()
        while grid.grows and (more := self._beyond()) is not None and len(added) < EXTENSIONS * len(more.Cs):
            expected = LARGER_C * (time.monotonic() - self.began) * more.n_fits / max(self.n_done / len(used), 1.0)
            if time.monotonic() + expected > self.deadline:
                self.notes.append("There was no time for values beyond the edge.")
                break
            added |= set(more.Cs)
            self._extend(more, used)
        if added:
            words = ", ".join(f"{C:.4g}" for C in sorted(added))
            edges = f"{grid.Cs[0]:.4g} to {grid.Cs[-1]:.4g}"
            self.notes.append(
                f"The best C was at the edge of the first values, {edges}, so others were tried: {words}."
            )
        if self._beyond() is not None:
            self.notes.append("The best C is at the edge of the values tried; a better one may lie beyond.")

    def _beyond(self) -> Grid | None:
        """Values of C beyond the best if that is at the edge, and better than its neighbour inside; otherwise None."""
        best = self._best()
        more = self.grid.beyond(best[0]) if self.grid.Cs else None
        if more is None:
            return None
        inside = self.grid.Cs[1] if best[0] == self.grid.Cs[0] else self.grid.Cs[-2]
        means = [quality.mean for key in self.sums if key[0] == inside and (quality := _quality(self.sums[key]))]
        quality = _quality(self.sums[best])
        is_flat = quality is not None and any(same(mean, quality.mean) for mean in means)
        return None if is_flat else more

    def _extend(self, more: Grid, folds: list[tuple[Rows, Rows]]) -> None:
        """Further values of C."""
        self.n_planned += more.n_fits * len(folds)
        self.grid = self.grid.with_more(more)
        for number, fold in enumerate(folds):
            self._add(self._outcomes(more, fold, number), number)

    def _folds_in_time(self, folds: list[tuple[Rows, Rows]]) -> list[tuple[Rows, Rows]]:
        """The folds on which all values were measured, or the first alone with those there was time for."""
        for number, fold in enumerate(folds):
            a_fold = (time.monotonic() - self.began) / max(number, 1)
            if number and time.monotonic() + a_fold > self.deadline:
                return folds[:number]
            found = self._outcomes(self.grid, fold, number)
            if number and None in found.values():
                return folds[:number]
            self._add(found, number)
        return folds

    def _add(self, found: dict[Key, Sums | None], number: int) -> None:
        for key, sums in found.items():
            self.sums.setdefault(key, [None] * number).append(sums)

    def _outcomes(self, grid: Grid, rows: tuple[Rows, Rows], number: int) -> dict[Key, Sums | None]:
        """What every combination of values achieved on the held-out rows of a fold."""
        X, y, weights = self.data
        fold = transformed(Fold(*take(X, y, rows[0]), *take(X, y, rows[1])), self.transformer)
        inside = None if weights is None else _safe_indexing(np.asarray(weights), rows[0])
        found: dict[Key, Sums | None] = {}
        for share in grid.shares or (None,):
            fixed = () if share is None else (share,)
            measured: list[Sums | None] = []
            result = self._path(grid, fixed, fold, inside, self._scorer(measured, number))
            names = [name for name in result.params if name != "alpha_share"]
            for place, sums in enumerate(measured):
                found[(*(result.row(place)[name] for name in names), *fixed)] = sums
        return found

    def _path(self, grid: Grid, fixed: tuple[float, ...], fold: Fold, weights: Any, score: Any) -> Any:
        """A warm-started path along C and k, or along the one parameter that there is."""
        estimator = clone(self.estimator).set_params(**({"alpha_share": fixed[0]} if fixed else {}))
        along: dict[str, Any] = {"Cs": list(grid.Cs) or None, "ks": list(grid.ks) or None}
        if grid.C_name == BINARY_C:
            along = {"values": list(grid.Cs), "param": BINARY_C}
        elif not grid.Cs and not grid.ks:
            along = {"values": list(fixed), "param": "alpha_share"}
        held_out = {"X_test": fold.X_test, "y_test": fold.y_test, "scoring": score, "keep": "none"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return path(estimator, fold.X, fold.y, sample_weight=weights, **along, **held_out)

    def _scorer(self, measured: list[Sums | None], number: int) -> Callable[[Any, Any, Any], float]:
        """A score that keeps the sums of its outcomes; those of a fit that the budget stopped are none."""

        def score(model: Any, X: Any, y: Any) -> float:
            self._tell(f"fold {number + 1}, C = {getattr(model, 'C', 0):g}")
            if model.status_ in (Status.STOPPED, Status.TIME_LIMIT):
                measured.append(None)
                return 0.0
            outcomes = row_outcomes(model, X, y, [self.metric], self.taxonomy)[:, 0]
            measured.append(Sums(len(outcomes), float(outcomes.sum()), float(outcomes @ outcomes)))
            return float(outcomes.mean())

        return score

    def _tell(self, what: str) -> None:
        self.n_done += 1
        if self.report is not None:
            elapsed = time.monotonic() - self.began
            total = elapsed * max(self.n_planned, self.n_done) / self.n_done
            self.report(what, elapsed, min(total, max(elapsed, self.deadline - self.began)))

    def _best(self) -> Key:
        """The values with the best mean; of equal ones those with the smallest C, then the smallest k."""
        means = {key: quality.mean for key in sorted(self.sums) if (quality := _quality(self.sums[key])) is not None}
        if not means:
            raise ValueError("the budget was used up before a single fit was finished; give more time")
        best = max(means.values())
        return next(key for key, mean in means.items() if same(mean, best))

    def result(self, metric: str) -> Tuning:
        """The values in ascending order with their quality."""
        keys, best = sorted(self.sums), self._best()
        params = self.grid.params
        n_folds = len(self.sums[best])
        n_rows = sum(sums.n for sums in self.sums[best] if sums is not None)
        tried = tuple(dict(zip(params, key, strict=True)) for key in keys)
        quality = tuple(_quality(self.sums[key]) for key in keys)
        return Tuning(params, tried, quality, metric, n_folds, n_rows, keys.index(best), tuple(self.notes))


def _quality(folds: list[Sums | None]) -> Interval | None:
    """Mean over the rows of all folds with its interval; None if a fold is missing."""
    if None in folds:
        return None
    n, total, squares = (sum(part) for part in zip(*(sums for sums in folds if sums is not None), strict=True))
    mean = total / n
    variance = max(0.0, squares - n * mean * mean) / (n - 1) if n > 1 else math.inf
    error = NORMAL_95 * math.sqrt(variance / n)
    return Interval(mean, mean - error, mean + error)


def _prepared(estimator: Any, targets: EncodedTargets, n_jobs: int | None) -> tuple[Any, Any]:
    """What comes before the classifier, and a clone of the classifier for the search."""
    steps = estimator.steps if isinstance(estimator, Pipeline) else []
    transformer = clone(estimator[:-1]) if len(steps) > 1 else None
    last = clone(steps[-1][1] if steps else estimator)
    if not hasattr(last, "predict_topk"):
        raise ValueError(f"{type(last).__name__} has no predict_topk, by which values are compared; use GridSearchCV")
    if getattr(last, "kernel", None) == "precomputed":
        raise ValueError("tune takes rows, not a precomputed kernel; use GridSearchCV, which splits the matrix")
    if n_jobs is not None:
        last.set_params(n_jobs=n_jobs)
    if isinstance(last, HierarchicalClassifier) and last.taxonomy is None:
        # The tree of all labels: a fold alone may lack some of its nodes.
        last.set_params(taxonomy=make_taxonomy(targets.classes, last.separator))
    return transformer, last


def _split(cv: Any, y: Any, n_rows: int, kind: str, seed: int) -> list[tuple[Rows, Rows]]:
    """Training and held-out rows of each fold."""
    n_labelled = n_rows_of(y)
    if n_labelled != n_rows:
        raise ValueError(f"X has {n_rows} rows and y {n_labelled}; give one label, or set of labels, a row")
    if isinstance(cv, int):
        if isinstance(cv, bool) or not 2 <= cv <= n_rows:
            raise ValueError(f"cv must be a number of folds, from 2 to the number of rows, or a splitter; got {cv!r}")
        return list(splits(y, n_rows, cv, kind, seed))
    strata = None if kind == "multilabel" else np.asarray(y)
    return list(check_cv(cv, strata, classifier=strata is not None).split(np.zeros(n_rows), strata))


def _refitted(estimator: Any, prepared: Any, found: Tuning, X: Any, y: Any, sample_weight: Any) -> Any:
    """The estimator on all rows with the best values."""
    model = clone(estimator)
    steps = model.steps if isinstance(model, Pipeline) else []
    last = steps[-1][1] if steps else model
    if BINARY_C in found.best:
        last.set_params(estimator=clone(prepared.estimator))
    last.set_params(**found.best)
    if prepared.n_jobs is not None:
        last.set_params(n_jobs=prepared.n_jobs)
    name = f"{steps[-1][0]}__sample_weight" if steps else "sample_weight"
    model.fit(X, y, **({} if sample_weight is None else {name: sample_weight}))
    last.tuning_ = found.to_dict()
    return model
