"""The methods that fit the structure of the labels, each with the values that are tried.

Several labels per row: one-vs-all with either loss. One label per row: one-vs-all, the multiclass SVM, the top-k SVM
and a learned output code. With a tree over the labels also the methods for trees; "flat" is the multiclass SVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from widemargin.estimators.codes.classifier import OutputCodeClassifier
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.training import Estimator
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.estimators.tree.model import PATH_METHODS
from widemargin.labels.taxonomy import Taxonomy
from widemargin.problems.tree_penalties import METHODS as TREE_METHODS

__all__ = ["Candidate", "candidates_for"]

CS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Values of C: for rows of length 1 the best is between 0.1 and 10, for counts and pixels it is below."""
CODE_CS = (0.1, 1.0, 10.0)
"""Values of C of a learned code: few, since each one is a fit of all binary classifiers."""
KS = (10, 5, 3)
PRUNE = 0.01
"""Smaller weights are dropped from models with several labels per row, as `widemargin train` does."""


@dataclass(frozen=True)
class Candidate:
    """A method to try.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> from widemargin.comparison.candidates import Candidate
    >>> Candidate("one-vs-all", OneVsAllClassifier(), (0.1, 1.0, 10.0)).n_fits
    3
    """

    name: str  # as in `widemargin train --method`, with the loss or k where there are several
    estimator: Estimator = field(repr=False)  # with everything set except the values that are tried
    Cs: tuple[float, ...]  # ascending
    ks: tuple[int, ...] = ()  # empty if the method has none

    @property
    def n_fits(self) -> int:
        """Number of fits of the search for the best values."""
        return len(self.Cs) * max(1, len(self.ks))

    def thinned(self) -> Candidate:
        """The candidate with every other value of C, and one k, for when time is short."""
        kept = self.Cs[len(self.Cs) % 2 :: 2] if len(self.Cs) > 2 else self.Cs
        return Candidate(self.name, self.estimator, kept, self.ks[len(self.ks) // 2 :][:1])

    def middle(self) -> dict[str, Any]:
        """One point of the grid, for a trial of the cost."""
        values: dict[str, Any] = {"C": self.Cs[len(self.Cs) // 2]}
        return values | ({"k": self.ks[-1]} if self.ks else {})


def candidates_for(
    kind: str,
    n_classes: int,
    taxonomy: Taxonomy | None,
    *,
    has_inner_labels: bool = False,
    methods: Sequence[str] | None = None,
    normalize: bool = False,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> list[Candidate]:
    """The methods for labels of this kind.

    Parameters
    ----------
    kind : str
        "multilabel", or another kind of `encode_targets` for one label per row.
    n_classes : int
        Number of labels.
    taxonomy : Taxonomy or None
        A tree over the labels.
    has_inner_labels : bool
        Whether some labels are nodes above others: tree-loss then gives scores to all nodes, and methods that predict
        paths are also tried with ``stop=True``.
    methods : sequence of str or None
        Names of the methods to keep; all if None.
    normalize : bool
        Whether rows are scaled to length 1.
    random_state : int
        Seed of the methods that use random numbers.
    n_jobs : int or None
        Threads.

    Returns
    -------
    list of Candidate

    Examples
    --------
    >>> from widemargin.comparison.candidates import candidates_for
    >>> [candidate.name for candidate in candidates_for("multiclass", 20, None)]
    ['one-vs-all', 'top-k, k = 1', 'top-k', 'output-code']
    """
    common: dict[str, Any] = {"normalize": normalize, "n_jobs": n_jobs}
    seeded: dict[str, Any] = {**common, "random_state": random_state}
    if kind == "multilabel":
        found = [
            Candidate(f"one-vs-all, {words}", OneVsAllClassifier(loss=loss, prune=PRUNE, **common), CS[2:])
            for loss, words in (("squared_hinge", "squared hinge"), ("logistic", "logistic"))
        ]
    else:
        found = [
            Candidate("one-vs-all", OneVsAllClassifier(**common), CS),
            Candidate("top-k, k = 1", TopKClassifier(**seeded), CS),
        ]
        ks = tuple(k for k in KS if k < n_classes)
        if ks:
            found.append(Candidate("top-k", TopKClassifier(**seeded), CS, ks))
        if n_classes > 2:
            code = OutputCodeClassifier(
                OneVsAllClassifier(normalize=normalize), learn="l2", n_jobs=n_jobs, random_state=random_state
            )
            found.append(Candidate("output-code", code, CODE_CS))
        if taxonomy is not None:
            found += _tree_candidates(taxonomy, has_inner_labels, seeded)
    return found if methods is None else _only(found, methods)


def _tree_candidates(taxonomy: Taxonomy, has_inner_labels: bool, options: dict[str, Any]) -> list[Candidate]:
    """Methods for trees; with labels on inner nodes, paths are also predicted with `stop`, to end there."""
    variants: list[tuple[str, dict[str, Any]]] = []
    for method in TREE_METHODS:
        if method in PATH_METHODS:
            variants += [(method, {}), *([(f"{method}, stop", {"stop": True})] if has_inner_labels else [])]
        elif method != "flat":
            variants.append((method, {"outputs": "all"} if has_inner_labels else {}))
    trees = [(name, {"method": name.partition(",")[0], **options, **more}) for name, more in variants]
    return [Candidate(name, HierarchicalClassifier(taxonomy, **parameters), CS) for name, parameters in trees]


def _only(found: list[Candidate], methods: Sequence[str]) -> list[Candidate]:
    """The candidates with one of these names, or whose name starts with one."""
    matches = {name: [c for c in found if c.name == name or c.name.startswith(name + ",")] for name in methods}
    missing = [name for name in methods if not matches[name]]
    if missing or not matches:
        known = ", ".join(repr(candidate.name) for candidate in found)  # names may have commas
        raise ValueError(
            f"method {', '.join(map(repr, missing))} is not available for these labels; use one of: {known}"
        )
    return [candidate for candidate in found if any(candidate in group for group in matches.values())]
