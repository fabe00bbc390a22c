"""Goal: a path over C, each fit started from the previous one, in less CPU time than separate fits of equal quality.

Nine values of C, 2⁻⁴ to 2⁴, on debian-tags, one thread: `widemargin.path` against separate fits of the same estimator,
and against scikit-learn's LinearSVC(dual=False) in a loop over a few evenly spaced labels (its intercept is penalised,
its stopping rule is the same). Then a sweep of eight pruning thresholds at C = 1 against one fit per threshold. Runs
are interleaved; CPU seconds are medians.

    WIDEMARGIN_DATA=data python benchmarks/path.py [--repetitions 3] [--rival-labels 8] [--ours]
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from _common import add_ours_option, describe_machine, find_data, format_table, print_figures, time_it, write_result
from widemargin import OneVsAllClassifier, load_data, path

VALUES = [2.0**k for k in range(-4, 5)]
THRESHOLDS = [0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2]
TOL = 0.01
OUR_LABELS = 50  # with --ours


def interleaved(functions: list[Any], repetitions: int) -> list[float]:
    """Median CPU seconds of each function, run in turn so that a busy moment affects all of them."""
    runs = [[time_it(function, 1).cpu_s for function in functions] for _ in range(repetitions)]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def gap_before_pruning(table: Any, row: int) -> float:
    """Certified relative gap of the weights before pruning."""
    return float((table["primal_before_pruning"][row] - table["dual"][row]) / table["primal_before_pruning"][row])


def rival_seconds(X: Any, targets: list[Any], C: float) -> float:
    """CPU seconds of scikit-learn's LinearSVC on some labels."""
    return time_it(lambda: [LinearSVC(C=C, dual=False, tol=TOL).fit(X, y) for y in targets], 1).cpu_s


def path_table(X: Any, Y: Any, options: argparse.Namespace) -> str:
    """CPU seconds by C: along the path, in separate fits, and of the rival per label."""
    estimator = OneVsAllClassifier(prune=0.01, tol=TOL)
    results: list[Any] = []
    own = [clone(estimator).set_params(C=C) for C in VALUES]
    functions = [lambda: results.append(path(estimator, X, Y, values=VALUES, keep="none"))]
    functions += [lambda model=model: model.fit(X, Y) for model in own]
    whole, *alone = interleaved(functions, options.repetitions)
    few = np.unique(np.linspace(0, Y.shape[1] - 1, options.rival_labels).astype(int))
    targets = [np.asarray(sp.csc_array(Y)[:, [j]].todense()).ravel() > 0 for j in few]
    with threadpool_limits(1):  # idle BLAS threads would count as its CPU time
        rival = [rival_seconds(X, targets, C) for C in VALUES]
    rows = []
    for row, C in enumerate(VALUES):
        table = results[-1].table
        along = statistics.median(result.table["cpu_s"][row] for result in results)
        certificate = own[row].certificate_
        gap = (certificate.primal_before_pruning - certificate.dual) / certificate.primal_before_pruning
        cells = [f"{C:g}", f"{along:.2f}", f"{alone[row]:.2f}", f"{alone[row] / along:.2f}"]
        cells += [f"{table['n_iter'][row] / Y.shape[1]:.1f}", f"{own[row].n_iter_.mean():.1f}"]
        rows.append(
            [*cells, f"{gap_before_pruning(table, row):.1e}", f"{gap:.1e}", f"{1e3 * rival[row] / len(few):.0f}"]
        )
    total, each = sum(alone), sum(rival) / len(few)
    rows.append(["all", f"{whole:.2f}", f"{total:.2f}", f"{total / whole:.2f}", "", "", "", "", f"{1e3 * each:.0f}"])
    columns = ["C", "path, s", "separate fits, s", "ratio", "iterations", "separate", "gap", "separate"]
    columns.append("LinearSVC, ms per label")
    scaled = each * Y.shape[1] / whole
    return (
        format_table(columns, rows)
        + f"\n\nLinearSVC on all labels, scaled from {len(few)}: {scaled:.0f} times the path."
    )


def sweep_table(X: Any, Y: Any, options: argparse.Namespace) -> str:
    """CPU seconds by threshold: in one sweep and in separate fits."""
    estimator, results = OneVsAllClassifier(tol=TOL), []
    own = [clone(estimator).set_params(prune=threshold) for threshold in THRESHOLDS]
    functions: list[Any] = [
        lambda: results.append(path(estimator, X, Y, values=[1.0], prune=THRESHOLDS, keep="none")),
        *(lambda model=model: model.fit(X, Y) for model in own),
    ]
    whole, *alone = interleaved(functions, options.repetitions)
    rows = []
    for row, threshold in enumerate(THRESHOLDS):
        table = results[-1].table
        along = statistics.median(result.table["cpu_s"][row] for result in results)
        gap, size = table["relative_gap"][row], table["n_weights"][row]
        rows.append([f"{threshold:g}", f"{along:.2f}", f"{alone[row]:.2f}", f"{gap:.1e}", f"{size:,}"])
    rows.append(["all", f"{whole:.2f}", f"{sum(alone):.2f}", "", ""])
    return format_table(["prune", "sweep, s", "separate fits, s", "gap as stored", "weights"], rows)


def our_pieces(X: Any, Y: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A path and a sweep over evenly spaced labels."""
    few = sp.csr_array(sp.csc_array(Y)[:, np.linspace(0, Y.shape[1] - 1, OUR_LABELS).astype(int)])
    along, swept = OneVsAllClassifier(prune=0.01, tol=TOL), OneVsAllClassifier(tol=TOL)
    yield "path over C", partial(path, along, X, few, values=VALUES, keep="none")
    yield "sweep of thresholds", partial(path, swept, X, few, values=[1.0], prune=THRESHOLDS, keep="none")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rival-labels", type=int, default=8)
    add_ours_option(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    file = find_data("debian-tags/tags_train.txt.gz")
    if file is None:
        return
    data = load_data(file, normalize=True)
    X, Y = data.X, sp.csr_array(data.Y)
    if options.ours:
        with threadpool_limits(1):
            print_figures(our_pieces(X, Y))
        return
    intro = f"debian-tags, {X.shape[0]:,} rows, {Y.shape[1]} labels, tol {TOL}, one thread; {options.repetitions} runs."
    sections = [f"{intro}\nMachine: {describe_machine()}.", "## A path over C, with weights below 0.01 pruned"]
    sections += [path_table(X, Y, options), "## A sweep of pruning thresholds at C = 1", sweep_table(X, Y, options)]
    write_result("path", "Paths over C and sweeps of pruning thresholds", sections)


if __name__ == "__main__":
    main()
