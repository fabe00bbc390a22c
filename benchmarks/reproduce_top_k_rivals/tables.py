"""The tables of the page, computed from the fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from _common import format_table
from reproduce_top_k_rivals.methods import BASE, Method
from reproduce_top_k_rivals.paired import Interval, interval
from reproduce_top_k_rivals.paper import TABLE_1
from reproduce_top_k_rivals.problems import SILHOUETTES, Problem
from reproduce_top_k_rivals.runs import KS, NEAR_GAP, Fit, choose

CUT = "†"  # marks methods whose choice a time limit may have changed
ONE_MODEL, EACH_COLUMN = "one model", "each column"
RULES = (ONE_MODEL, EACH_COLUMN)
HEAD = [f"top-{k}" for k in KS]


@dataclass(frozen=True)
class Results:
    """All fits: the table's by method, the study's by method and split."""

    problem: Problem
    methods: list[Method]
    fits: dict[str, list[Fit]]
    studied: list[Method] = field(default_factory=list)
    study: dict[str, list[list[Fit]]] = field(default_factory=dict)
    unfinished: list[Method] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        problem: Problem,
        table: Sequence[Method],
        fits: dict[str, list[Fit]],
        studied: Sequence[Method] = (),
        study: dict[str, list[list[Fit]]] | None = None,
    ) -> Results:
        """Results with the methods that have fits; the others are `unfinished`."""
        done = [method for method in table if method.name in fits]
        rest = [method for method in table if method.name not in fits]
        return cls(problem, done, fits, list(studied), study or {}, rest)

    def chosen(self, name: str) -> Fit:
        """The model of a method with the best top-1 accuracy on the validation rows."""
        return choose(self.fits[name], KS[0])

    def is_cut(self, name: str) -> bool:
        """Whether a time limit may have changed the choice in any column.

        This is so if the chosen fit was stopped, if a stopped fit is better on the validation rows, or if a stopped fit
        far from its solution has the next value. In the last case the best value is not known to lie between two
        solved ones.
        """
        return any(_may_be_cut(self.fits[name], k) for k in KS)

    def label(self, method: Method) -> str:
        """The name of a row, marked if its search was cut."""
        return f"{method.label} {CUT}" if self.is_cut(method.name) else method.label

    def row(self, name: str, rule: str) -> list[float]:
        """Test accuracies of a method by column."""
        return [chosen_accuracy(self.fits[name], k, rule) for k in KS]

    def difference(self, name: str, k: int, rule: str) -> Interval:
        """Test accuracy of a method minus that of k = 1 over the splits."""
        ours, base = ([chosen_accuracy(fits, k, rule) for fits in self.study[method]] for method in (name, BASE))
        n_train, _, n_test = self.problem.sizes
        return interval(ours, base, n_train, n_test)


def _may_be_cut(fits: list[Fit], k: int) -> bool:
    chosen, tried = choose(fits, k), sorted({fit.value for fit in fits})
    place = tried.index(chosen.value)
    beside = tried[max(0, place - 1) : place + 2]
    return not chosen.is_solution or any(
        fit.valid[k] > chosen.valid[k] or (fit.value in beside and fit.gap > NEAR_GAP)
        for fit in fits
        if not fit.is_solution
    )


def chosen_accuracy(fits: list[Fit], k: int, rule: str) -> float:
    """Test accuracy of the model that is best on the validation rows, by top-1 or by the column's top-k accuracy."""
    return choose(fits, KS[0] if rule == ONE_MODEL else k).test[k]


def signed(value: float) -> str:
    """Two decimals with a sign and a typographic minus."""
    return f"{value:+.2f}".replace("-", "−")


def parameters(fit: Fit) -> str:
    """The parameters chosen on the validation rows."""
    return f"{fit.value:g}" if fit.epochs is None else f"rate {fit.value:g}, {fit.epochs} epochs"


def accuracy_table(results: Results) -> str:
    """The table with one model per method."""
    rows = []
    for method in results.methods:
        fit = results.chosen(method.name)
        gap = "none: not convex" if fit.gap is None else f"{fit.gap:.1e}" + ("" if fit.converged else " (stopped)")
        figures = [f"{value:.2f}" for value in results.row(method.name, ONE_MODEL)]
        rows.append([results.label(method), *figures, parameters(fit), f"{fit.cpu_s:.1f}", gap])
    return format_table(["method", *HEAD, "C", "CPU s", "relative gap"], rows)


def column_table(results: Results) -> str:
    """The table with C chosen for each column."""
    return format_table(
        ["method", *HEAD],
        [[results.label(m), *(f"{value:.2f}" for value in results.row(m.name, EACH_COLUMN))] for m in results.methods],
    )


def paper_difference(name: str) -> list[float] | None:
    """A method minus k = 1 in the paper's table; None if the method is not in it."""
    theirs = TABLE_1.get(name)
    return None if theirs is None else [a - b for a, b in zip(theirs, TABLE_1[BASE], strict=True)]


def difference_table(results: Results, rule: str) -> str:
    """Differences from k = 1, ours and the paper's."""
    rows = []
    for method in results.methods:
        if method.name == BASE:
            continue
        ours = np.subtract(results.row(method.name, rule), results.row(BASE, rule))
        cells = [signed(value) for value in ours]
        theirs = paper_difference(method.name)
        if results.problem.name == SILHOUETTES and theirs is not None:
            cells = [f"{cell} ({signed(value)})" for cell, value in zip(cells, theirs, strict=True)]
        rows.append([results.label(method), *cells])
    return format_table(["method", *HEAD], rows)


def study_table(results: Results, rule: str, ks: Sequence[int]) -> str:
    """Differences from k = 1 over the splits, with both intervals."""
    rows = []
    for method in results.studied:
        if method.name == BASE:
            continue
        cells = []
        for k in ks:
            found = results.difference(method.name, k, rule)
            cells.append(f"{signed(found.mean)} ± {found.half:.2f} ({found.half_corrected:.2f})")
        rows.append([method.label, *cells])
    return format_table(["method", *(f"top-{k}" for k in ks)], rows)


def mean_table(results: Results, rule: str) -> str:
    """Mean test accuracy and standard deviation over the splits."""
    rows = []
    for method in results.studied:
        values = np.array([[chosen_accuracy(fits, k, rule) for k in KS] for fits in results.study[method.name]])
        cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(values.mean(axis=0), values.std(axis=0, ddof=1), strict=True)]
        rows.append([method.label, *cells])
    return format_table(["method", *HEAD], rows)


def stopped_table(tables: Sequence[Results]) -> str:
    """Fits of the tables that stopped at the limit of CPU time, with their certificates."""
    rows = []
    for results, method in [(table, method) for table in tables for method in table.methods]:
        best = results.chosen(method.name).valid[KS[0]]
        for fit in sorted(results.fits[method.name], key=lambda fit: fit.value):
            if fit.gap is not None and not fit.converged:
                figures = [f"{fit.value:g}", f"{fit.cpu_s:.0f}", f"{fit.gap:.1e}", signed(fit.valid[KS[0]] - best)]
                rows.append([results.problem.name, method.label, *figures])
    return format_table(["data", "method", "C", "CPU s", "relative gap", "validation top-1 − chosen fit's"], rows)
