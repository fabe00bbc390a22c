"""Choose C, k and α by cross-validation along warm-started paths, and train with the best values.

    for each fold, each share of α* and each k:    W(C₁) → W(C₂) → …   on the training rows, each from the one before
    quality(values) = mean over the held-out rows of all folds,    the best one wins; among equals, the smallest C

The values are C for every method, k for the top-k SVM, and the share of α* for orthogonal transfer. The values of C
are a geometric sequence. If the best one is the smallest or the largest, and better than its neighbour, the sequence is
extended on that side, two values at a time. Memory: the data, a copy of the rows of a fold, and two or three models at
a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin.comparison.candidates import CODE_CS
from widemargin.comparison.measure import (
    NORMAL_95,
    Fold,
    Interval,
    Ints,
    Metric,
    Report,
    as_targets,
    check_rows_and_budget,
    metrics_for,
    row_outcomes,
    scored_path,
    splits,
)
from widemargin.comparison.result import Tuning, same
from widemargin.estimators.codes.classifier import OutputCodeClassifier
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.training import Estimator
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.estimators.tree.targets import join_levels, make_taxonomy
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.solvers.codes.continuous import NORMS
from widemargin.solvers.limits import TimeLimit
from widemargin.solvers.result import Status

__all__ = ["Grid", "grid_for", "tune"]

AUTO = "auto"
BINARY_C = "estimator__C"
CS = (0.0625, 0.25, 1.0, 4.0, 16.0)
"""The first values of C."""
KS = (10, 5, 3, 1)
ALPHA_SHARES = (0.3, 0.6, 0.9)
"""Shares of α*; alpha="auto" takes 0.9."""
MORE = 2
"""Values of C added at a time."""
EXTENSIONS = 4
"""Largest number of extensions: eight values, a factor of 65,536 for one-vs-all."""
LARGER_C = 2.0
"""Cost of a fit beyond the edge, relative to those before: a larger C makes problems harder."""

Key = tuple[float, ...]


def tune(
    estimator: Estimator,
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
    """Choose C, and k or α if the method has them, by cross-validation, and train on all rows with the best values.

    Parameters
    ----------
    estimator : estimator of this package, or Pipeline whose last step is one
        It is cloned, not changed. The transformers of a pipeline are fitted on the training rows of each fold.
    X : {array-like, sparse matrix} of shape (n_samples, n_features), or what a pipeline takes
        Rows.
    y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
        Labels.
    Cs : sequence of float, "auto" or None, default="auto"
        Values of C; for an output code that is not learned, the C of the classifiers inside. "auto" tries five or three
        values, and more if the best is at the edge. None leaves C as it is.
    ks : sequence of int, "auto" or None, default="auto"
        Values of k of a `TopKClassifier`. "auto": 1, 3, 5 and 10, below the number of classes; None leaves k as it is.
    alpha_shares : sequence of float, "auto" or None, default="auto"
        Values of `alpha_share`, the share of α* that orthogonal transfer takes as its α. "auto": .3, .6 and .9; None
        leaves it as it is.
    cv : int, splitter or iterable, default=5
        Folds. A number means shuffled folds, stratified where a row has one label.
    metric : str or None, default=None
        What decides: "top_k_accuracy@k" for one label per row, "precision@k" or "psp@k" for several; k = 1 if None. In
        a tree also "hierarchical_f1", or "at_or_below@k", which counts any node below the true one as right; if a row
        has several labels, finding one of them is enough.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in training; quality is not weighted.
    budget : float or None, default=None
        Time limit of the search in seconds; None for no limit. If it is short, fewer folds are used, and the notes say
        so. The fit on all rows comes after it.
    refit : bool, default=True
        Whether to fit on all rows with the best values.
    random_state : int, default=0
        Seed of the folds.
    n_jobs : int or None, default=None
        Threads of each fit; None leaves it to the estimator.
    report : callable or None, default=None
        Called with the current step, the seconds elapsed, and the seconds expected in total.

    Returns
    -------
    Tuning
        The values tried with their quality, the best ones with the reason, and the fitted model.

    See Also
    --------
    path : fits along one sequence of values, with certificates and sizes.
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
    started = time.monotonic()
    transformer, last = _prepared(estimator, n_jobs)
    is_tree = isinstance(last, HierarchicalClassifier)
    y = join_levels(as_targets(y), last.separator) if is_tree else as_targets(y)
    targets = encode_targets(y)
    if is_tree:  # the tree of all labels: a fold alone may lack some of its nodes
        last.set_params(taxonomy=make_taxonomy(targets.classes, last.separator, last.taxonomy))
    kind = "multiclass" if is_tree else targets.kind
    measured = metrics_for(kind, len(targets.classes), metric, on_tree=is_tree)[0]
    grid = grid_for(last, len(targets.classes), Cs, ks, alpha_shares)
    if grid.C_name == BINARY_C and grid.Cs and last.estimator is None:
        last.set_params(estimator=OneVsAllClassifier())
    check_rows_and_budget(X, y, budget)
    folds = _split(cv, y, _num_samples(X), targets.kind, random_state)
    deadline = math.inf if budget is None else started + budget
    if budget is not None:
        last.set_params(callback=TimeLimit(max(0.0, deadline - time.monotonic()), last.callback))
    tree = last.taxonomy if is_tree else None
    search = _Search(last, transformer, (X, y, sample_weight), measured, tree, grid, started, deadline, report)
    search.run(folds)
    found = search.result()
    if not refit:
        return found
    return replace(found, model=_refitted(estimator, last, found, X, y, sample_weight))


@dataclass(frozen=True)
class Grid:
    """Values to try; a parameter without values stays as the estimator has it.

    Parameters
    ----------
    C_name : str
        The parameter whose values are `Cs`: "C", or "estimator__C" for an output code that is not learned.
    Cs : tuple of float
        Values of C, ascending.
    ks : tuple of int
        Values of k, descending.
    shares : tuple of float
        Values of `alpha_share`, ascending.
    grows : bool
        Whether values of C are added if the best is at the edge.

    Examples
    --------
    >>> from widemargin.comparison.tune import Grid
    >>> grid = Grid("C", (0.25, 1.0, 4.0), (), (), grows=True)
    >>> grid.n_fits, grid.beyond(4.0).Cs, grid.beyond(0.25).Cs, grid.beyond(1.0)
    (3, (16.0, 64.0), (0.015625, 0.0625), None)
    """

    C_name: str
    Cs: tuple[float, ...]
    ks: tuple[int, ...]
    shares: tuple[float, ...]
    grows: bool

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters that have values."""
        axes = {self.C_name: self.Cs, "k": self.ks, "alpha_share": self.shares}
        return tuple(name for name, values in axes.items() if values)

    @property
    def n_fits(self) -> int:
        """Number of fits per fold."""
        return max(1, len(self.Cs)) * max(1, len(self.ks)) * max(1, len(self.shares))

    def beyond(self, C: float) -> Grid | None:
        """The same grid with values of C beyond this one if it is the smallest or the largest; otherwise None."""
        if len(self.Cs) < 2 or C not in (self.Cs[0], self.Cs[-1]):
            return None
        ratio = self.Cs[1] / self.Cs[0] if self.Cs[0] == C else self.Cs[-1] / self.Cs[-2]
        powers = [ratio ** -(step + 1.0) if self.Cs[0] == C else ratio ** (step + 1.0) for step in range(MORE)]
        return replace(self, Cs=tuple(sorted(C * power for power in powers)))


def grid_for(
    estimator: Estimator,
    n_classes: int,
    Cs: Sequence[float] | str | None,
    ks: Sequence[int] | str | None,
    alpha_shares: Sequence[float] | str | None,
) -> Grid:
    """The values for an estimator: "auto" takes those that suit it, None leaves a parameter alone.

    Having nothing to choose is an error.
    """
    is_code, has_k = isinstance(estimator, OutputCodeClassifier), isinstance(estimator, TopKClassifier)
    is_learned = is_code and estimator.learn in NORMS and estimator.norm_bound is None  # only then its own C matters
    is_orthogonal = isinstance(estimator, HierarchicalClassifier) and estimator.method == "orthogonal"
    has_share = is_orthogonal and estimator.K is None and estimator.alpha == AUTO
    if not has_k and _are_given(ks):
        raise ValueError(f"ks applies only to TopKClassifier; leave it out for {type(estimator).__name__}")
    if not has_share and _are_given(alpha_shares):
        raise ValueError(
            "alpha_shares applies only to HierarchicalClassifier with method='orthogonal' and alpha='auto'; leave it "
            "out"
        )
    grid = Grid(
        BINARY_C if is_code and not is_learned else "C",
        _values("Cs", Cs, CODE_CS if is_learned else CS),
        _values("ks", ks, tuple(k for k in KS if k < n_classes) if has_k else ())[::-1],
        _values("alpha_shares", alpha_shares, ALPHA_SHARES if has_share else ()),
        grows=isinstance(Cs, str),
    )
    if not grid.params:
        raise ValueError("there are no values to choose from; pass Cs, ks or alpha_shares")
    return grid


def _are_given(values: Any) -> bool:
    return values is not None and not isinstance(values, str)


def _values(name: str, given: Any, automatic: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values in ascending order."""
    if isinstance(given, str) and given != AUTO:
        raise ValueError(f"{name} must be 'auto', None or a sequence of numbers; got {given!r}")
    if given is None:
        return ()
    return tuple(sorted(automatic if isinstance(given, str) else given))


class Sums(NamedTuple):
    """Number, sum and sum of squares of the outcomes of rows."""

    n: int
    total: float
    squares: float


@dataclass
class _Search:
    """Sums of outcomes by values, fold by fold.

    Sets: grid, sums, notes, n_done and n_planned, by `run`.
    """

    estimator: Estimator
    transformer: Any
    data: tuple[Any, Any, Any]
    metric: Metric
    taxonomy: Taxonomy | None
    grid: Grid
    started: float
    deadline: float
    report: Report | None
    sums: dict[Key, list[Sums | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    n_done: int = 0
    n_planned: int = 0

    def run(self, folds: list[tuple[Ints, Ints]]) -> None:
        """Try all values on as many folds as time allows, and values beyond the edge if the best is there."""
        first = self.grid
        self.n_planned = first.n_fits * len(folds)
        used = self._folds_in_time(folds)
        if len(used) < len(folds):
            self.notes.append(f"The budget allowed {len(used)} of {len(folds)} folds.")
        added: set[float] = set()
        while first.grows and (more := self._beyond()) is not None and len(added) < EXTENSIONS * len(more.Cs):
            expected = LARGER_C * (time.monotonic() - self.started) * more.n_fits / max(self.n_done / len(used), 1.0)
            if time.monotonic() + expected > self.deadline:
                self.notes.append("The budget allowed no values beyond the edge of the grid.")
                break
            added |= set(more.Cs)
            self.n_planned += more.n_fits * len(used)
            self.grid = replace(self.grid, Cs=tuple(sorted({*self.grid.Cs, *more.Cs})))
            for number, fold in enumerate(used):
                self._add(self._outcomes(more, fold, number), number)
        if added:
            words = ", ".join(f"{C:.4g}" for C in sorted(added))
            edges = f"{first.Cs[0]:.4g} to {first.Cs[-1]:.4g}"
            self.notes.append(
                f"The best C was at the edge of the initial grid, {edges}, so more values were tried: {words}."
            )
        if self._beyond() is not None:
            self.notes.append("The best C is at the edge of the values tried; a better value may lie beyond it.")

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

    def _folds_in_time(self, folds: list[tuple[Ints, Ints]]) -> list[tuple[Ints, Ints]]:
        """The folds on which all values were measured, or only the first fold, with the values that time allowed."""
        for number, fold in enumerate(folds):
            per_fold = (time.monotonic() - self.started) / max(number, 1)
            if number and time.monotonic() + per_fold > self.deadline:
                return folds[:number]
            found = self._outcomes(self.grid, fold, number)
            if number and None in found.values():
                return folds[:number]
            self._add(found, number)
        return folds

    def _add(self, found: dict[Key, Sums | None], number: int) -> None:
        for key, sums in found.items():
            self.sums.setdefault(key, [None] * number).append(sums)

    def _outcomes(self, grid: Grid, rows: tuple[Ints, Ints], number: int) -> dict[Key, Sums | None]:
        """What every combination of values achieved on the held-out rows of a fold."""
        X, y, weights = self.data
        fold = Fold.split(X, y, *rows).transformed(self.transformer)
        weights = None if weights is None else _safe_indexing(np.asarray(weights), rows[0])
        along: dict[str, Any] = {"Cs": list(grid.Cs) or None, "ks": list(grid.ks) or None}
        if grid.C_name == BINARY_C:
            along = {"values": list(grid.Cs), "param": BINARY_C}
        found: dict[Key, Sums | None] = {}
        for share in grid.shares or (None,):
            fixed = () if share is None else (share,)
            estimator = clone(self.estimator).set_params(**({} if share is None else {"alpha_share": share}))
            if not grid.Cs and not grid.ks:
                along = {"values": [share], "param": "alpha_share"}
            measured: list[Sums | None] = []
            result = scored_path(estimator, fold, self._scorer(measured, number), sample_weight=weights, **along)
            names = [name for name in result.params if name != "alpha_share"]
            for i, sums in enumerate(measured):
                found[(*(result.row(i)[name] for name in names), *fixed)] = sums
        return found

    def _scorer(self, measured: list[Sums | None], number: int) -> Callable[[Any, Any, Any], float]:
        """A score that keeps the sums of its outcomes, or None for a fit that the budget stopped."""

        def score(model: Any, X: Any, y: Any) -> float:
            self._report(f"fold {number + 1}, C = {getattr(model, 'C', 0):g}")
            if model.status_ in (Status.STOPPED, Status.TIME_LIMIT):
                measured.append(None)
                return 0.0
            outcomes = row_outcomes(model, X, y, [self.metric], self.taxonomy)[:, 0]
            measured.append(Sums(len(outcomes), float(outcomes.sum()), float(outcomes @ outcomes)))
            return float(outcomes.mean())

        return score

    def _report(self, step: str) -> None:
        self.n_done += 1
        if self.report is not None:
            elapsed = time.monotonic() - self.started
            total = elapsed * max(self.n_planned, self.n_done) / self.n_done
            self.report(step, elapsed, min(total, max(elapsed, self.deadline - self.started)))

    def _best(self) -> Key:
        """The values with the best mean; among equals those with the smallest C, then the smallest k."""
        means = {key: quality.mean for key in sorted(self.sums) if (quality := _quality(self.sums[key])) is not None}
        if not means:
            raise ValueError("the budget ran out before the first fit finished; use a larger budget")
        best = max(means.values())
        return next(key for key, mean in means.items() if same(mean, best))

    def result(self) -> Tuning:
        """The values in ascending order with their quality."""
        keys, best = sorted(self.sums), self._best()
        return Tuning(
            params=self.grid.params,
            tried=tuple(dict(zip(self.grid.params, key, strict=True)) for key in keys),
            quality=tuple(_quality(self.sums[key]) for key in keys),
            metric=self.metric.name,
            n_folds=len(self.sums[best]),
            n_rows=sum(sums.n for sums in self.sums[best] if sums is not None),
            best_index=keys.index(best),
            notes=tuple(self.notes),
        )


def _quality(folds: list[Sums | None]) -> Interval | None:
    """Mean over the rows of all folds with its interval; None if a fold is missing."""
    if None in folds:
        return None
    n, total, squares = (sum(part) for part in zip(*(sums for sums in folds if sums is not None), strict=True))
    mean = total / n
    variance = max(0.0, squares - n * mean * mean) / (n - 1) if n > 1 else math.inf
    error = NORMAL_95 * math.sqrt(variance / n)
    return Interval(mean, mean - error, mean + error)


def _prepared(estimator: Estimator, n_jobs: int | None) -> tuple[Any, Any]:
    """The steps before the classifier, and a clone of the classifier for the search."""
    whole: Any = estimator
    steps = whole.steps if isinstance(whole, Pipeline) else []
    transformer = clone(whole[:-1]) if len(steps) > 1 else None
    last = clone(steps[-1][1] if steps else estimator)
    if not hasattr(last, "predict_topk"):
        raise ValueError(f"tune requires predict_topk, which {type(last).__name__} does not have; use GridSearchCV")
    if getattr(last, "kernel", None) == "precomputed":
        raise ValueError("tune does not support a precomputed kernel; use GridSearchCV, which splits the kernel matrix")
    if n_jobs is not None:
        last.set_params(n_jobs=n_jobs)
    return transformer, last


def _split(cv: Any, y: Any, n_rows: int, kind: str, seed: int) -> list[tuple[Ints, Ints]]:
    """Training and held-out rows of each fold."""
    if isinstance(cv, int):
        if isinstance(cv, bool) or not 2 <= cv <= n_rows:
            raise ValueError(f"cv must be a splitter or an integer between 2 and the number of rows; got {cv!r}")
        return list(splits(y, n_rows, cv, kind, seed))
    strata = None if kind == "multilabel" else np.asarray(y)
    return list(check_cv(cv, strata, classifier=strata is not None).split(np.zeros(n_rows), strata))


def _refitted(estimator: Estimator, prepared: Any, found: Tuning, X: Any, y: Any, sample_weight: Any) -> Any:
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
