"""Goal: paths of the top-k SVM over C and over k in less CPU time than the same fits from scratch.

`widemargin.path` passes the dual variables of each fit to the next; C increases and k decreases. Both sides certify a
relative gap of 1e-3 at every value. Runs alternate; times are medians, with one thread and no intercept.

    WIDEMARGIN_DATA=data python benchmarks/top_k_path.py [--repetitions 3] [--sets letter …]
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from sklearn.base import clone

from _common import describe_machine, format_table, time_it, write_result
from _multiclass import SETS
from widemargin import TopKClassifier, path

KS = [1, 3, 5, 10]
FACTORS = np.geomspace(0.03, 100.0, 8) / 3.0
"""Eight values around the C of the data set, a factor of 3.2 apart."""


def cold_fits(model, X, y, grid):
    for values in grid:
        clone(model).set_params(**values).fit(X, y)


def compare(name, label, model, X, y, grid, options, repetitions):
    warm, cold = [], []
    for _ in range(repetitions):
        warm.append(time_it(lambda: path(model, X, y, **options), 1).cpu_s)
        cold.append(time_it(lambda: cold_fits(model, X, y, grid), 1).cpu_s)
    ours, theirs = statistics.median(warm), statistics.median(cold)
    return [name, label, str(len(grid)), f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.2f}"]


def paths_of(name, repetitions):
    (X, y), C = SETS[name][0](), SETS[name][1]
    Cs = [float(C * factor) for factor in FACTORS]
    ks = [min(k, int(y.max())) for k in KS]
    rows = []
    for loss in ("beta", "alpha"):
        model = TopKClassifier(C=C, loss=loss, fit_intercept=False, random_state=0)
        by_k = [{"k": k} for k in ks]
        rows.append(compare(name, f"k, {loss}", model, X, y, by_k, {"ks": ks}, repetitions))
    model = TopKClassifier(C=C, fit_intercept=False, random_state=0)
    by_C = [{"C": value} for value in Cs]
    rows.append(compare(name, "C, k = 1", model, X, y, by_C, {"Cs": Cs}, repetitions))
    model = clone(model).set_params(k=5)
    rows.append(compare(name, "C, k = 5", model, X, y, by_C, {"Cs": Cs}, repetitions))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--sets", nargs="+", default=["20newsgroups", "letter", "caltech101-silhouettes"], choices=list(SETS)
    )
    options = parser.parse_args()
    rows = [row for name in options.sets for row in paths_of(name, options.repetitions)]
    columns = ["data", "path", "fits", "path, CPU s", "fits from scratch, CPU s", "ratio"]
    about = f"Medians of {options.repetitions} alternating runs; k = 10, 5, 3, 1; C from .01 to 33 times the usual C."
    write_result("top-k-path", "Paths of the top-k SVM", [about, format_table(columns, rows), describe_machine()])


if __name__ == "__main__":
    main()
