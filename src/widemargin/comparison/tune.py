"""Choose C, k and α by cross-validation along warm-started paths, and train with the best values.

    for each fold, each share of α* and each k:    W(C₁) → W(C₂) → …   on the training rows, each from the one before
    quality(values) = mean over the held-out rows of all folds,    the best one wins; of equal ones the smallest C

Where the best C is the smallest or the largest that was tried, and better than the next one, further ones are tried on
that side. A transformer in front of the classifier is fitted on the training rows of each fold. Memory: the data, a
copy of a fold's rows, and two or three models at a time.

The values that `tune` tries: C for every method, k of the top-k SVM, the share of α* of orthogonal transfer.

The values of C are a geometric row. Where the best one is the smallest or the largest, the row is made longer on that
side, two values at a time, until it is not.

Parts of the data: folds, shares of the rows, labels as classes, and rows made by a transformer of the fold alone.

A transformer, such as a vectoriser of text, is fitted on the training rows of a fold only: what it learns of the
held-out rows (their words, how frequent they are) would make these look easier than new ones.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from widemargin.comparison.candidates import CODE_CS
from widemargin.comparison.result import NORMAL_95, Interval, Metric, Tuning, metrics_for, row_outcomes, same, stop_at
from widemargin.estimators.codes.classifier import OutputCodeClassifier
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.path import path
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.estimators.tree.targets import make_taxonomy
from widemargin.labels.encoding import EncodedTargets, encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.solvers.codes.continuous import NORMS
from widemargin.solvers.result import Status

__all__ = [
    "AUTO",
    "Fold",
    "Grid",
    "Rows",
    "as_targets",
    "classes_of_lists",
    "grid_for",
    "n_rows_of",
    "part_of",
    "splits",
    "take",
    "transformed",
    "tune",
]

AUTO = "auto"
CS = (0.0625, 0.25, 1.0, 4.0, 16.0)
"""Values of C to begin with."""
KS = (10, 5, 3, 1)
ALPHA_SHARES = (0.3, 0.6, 0.9)
"""Shares of α*; 0.9 is what alpha="auto" takes."""
MORE = 2
"""Values of C added at a time."""
BINARY_C = "estimator__C"


@dataclass(frozen=True)
class Grid:
    """Values to try; an axis with no values is left as the estimator has it.

    Parameters
    ----------
    C_name : str
        The parameter whose values are `Cs`: "C", or "estimator__C" of an output code that is not learned.
    Cs : tuple of float
        Values of C, ascending.
    ks : tuple of int
        Values of k, descending.
    shares : tuple of float
        Values of `alpha_share`, ascending.
    grows : bool
        Whether there may be more values of C where the best is at the edge.

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
        """Fits on a fold."""
        return max(1, len(self.Cs)) * max(1, len(self.ks)) * max(1, len(self.shares))

    def beyond(self, C: float) -> Grid | None:
        """The same grid with values of C beyond this one if it is the smallest or the largest; otherwise None."""
        if len(self.Cs) < 2 or C not in (self.Cs[0], self.Cs[-1]):
            return None
        ratio = self.Cs[1] / self.Cs[0] if self.Cs[0] == C else self.Cs[-1] / self.Cs[-2]
        powers = [ratio ** -(step + 1.0) if self.Cs[0] == C else ratio ** (step + 1.0) for step in range(MORE)]
        return replace(self, Cs=tuple(sorted(C * power for power in powers)))

    def with_more(self, other: Grid) -> Grid:
        """Both values of C."""
        return replace(self, Cs=tuple(sorted({*self.Cs, *other.Cs})))


def grid_for(
    estimator: Any,
    n_classes: int,
    Cs: Sequence[float] | str | None,
    ks: Sequence[int] | str | None,
    alpha_shares: Sequence[float] | str | None,
) -> Grid:
    """The values for an estimator: "auto" is what suits it, None leaves a parameter alone; an error if none is left."""
    C_name = _name_of_C(estimator)
    grid = Grid(
        C_name,
        tuple(sorted(_values("Cs", Cs, CODE_CS if _is_learned(estimator) else CS))),
        tuple(sorted(_ks(estimator, ks, n_classes), reverse=True)),
        tuple(sorted(_shares(estimator, alpha_shares))),
        grows=isinstance(Cs, str),
    )
    if not grid.params:
        raise ValueError("there is nothing to choose: give values of C, or of k or alpha_share where there are some")
    return grid


def _name_of_C(estimator: Any) -> str:
    if isinstance(estimator, OutputCodeClassifier) and not _is_learned(estimator):
        return BINARY_C  # C is that of a learned code only
    return "C"


def _is_learned(estimator: Any) -> bool:
    """Whether it is an output code whose own C matters."""
    return isinstance(estimator, OutputCodeClassifier) and estimator.learn in NORMS and estimator.norm_bound is None


def _ks(estimator: Any, given: Sequence[int] | str | None, n_classes: int) -> tuple[int, ...]:
    has_k = isinstance(estimator, TopKClassifier)
    if given is not None and not isinstance(given, str) and not has_k:
        raise ValueError(f"ks are values of TopKClassifier; leave them out for {type(estimator).__name__}")
    return _values("ks", given, tuple(k for k in KS if k < n_classes) if has_k else ())


def _shares(estimator: Any, given: Sequence[float] | str | None) -> tuple[float, ...]:
    is_orthogonal = isinstance(estimator, HierarchicalClassifier) and estimator.method == "orthogonal"
    has_share = is_orthogonal and estimator.K is None and estimator.alpha == "auto"
    if given is not None and not isinstance(given, str) and not has_share:
        raise ValueError("alpha_shares are for HierarchicalClassifier with method='orthogonal' and alpha='auto'")
    return _values("alpha_shares", given, ALPHA_SHARES if has_share else ())


def _values(name: str, given: Any, automatic: tuple[Any, ...]) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        if given != AUTO:
            raise ValueError(f"{name} must be 'auto', None or a sequence of numbers; got {given!r}")
        return automatic
    return tuple(given)


Rows = npt.NDArray[np.int64]


class Fold(NamedTuple):
    """Training and held-out rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def transformed(fold: Fold, transformer: Any) -> Fold:
    """The fold as a transformer shows it that was fitted on its training rows; as it is without one."""
    if transformer is None:
        return fold
    fitted = clone(transformer)
    X = fitted.fit_transform(fold.X, fold.y)
    return Fold(X, fold.y, fitted.transform(fold.X_test), fold.y_test)


def n_rows_of(X: Any) -> int:
    """Number of rows of an array or of a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take(X: Any, y: Any, rows: Rows) -> tuple[Any, Any]:
    """These rows, and their labels."""
    return _safe_indexing(X, rows), _safe_indexing(y, rows)


def part_of(y: Any, n_rows: int, share: float, kind: str, seed: int) -> Rows:
    """So many of the rows at random, but at least one of each class where a row has one label."""
    order = np.random.default_rng(seed).permutation(n_rows)
    kept = order[: max(1, round(share * n_rows))]
    if kind != "multilabel":
        kept = np.union1d(kept, np.unique(np.asarray(y), return_index=True)[1])
    rows: Rows = np.sort(kept)
    return rows


def splits(y: Any, n_rows: int, n_folds: int, kind: str, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Training and held-out rows, stratified where a row has one label."""
    dummy = np.zeros(n_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with fewer rows than folds
        if kind == "multilabel":
            yield from KFold(n_folds, shuffle=True, random_state=seed).split(dummy)
        else:
            yield from StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(dummy, np.asarray(y))


def as_targets(y: Any) -> Any:
    """Labels in a form whose rows can be taken: arrays as they are, lists of label sets too, other lists as arrays."""
    is_list_of_sets = isinstance(y, list) and bool(y) and isinstance(y[0], list | tuple | set | frozenset)
    return y if hasattr(y, "shape") or is_list_of_sets else np.asarray(y)


def classes_of_lists(y: Any, *, or_none: bool = False) -> Any:
    """The label of each row where y is lists, or an indicator, with exactly one label in every row; otherwise None.

    With `or_none` rows may also have none, as those of a test file whose label is not one of the training rows; theirs
    is None then.

    Examples
    --------
    >>> from widemargin.comparison.tune import classes_of_lists
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
