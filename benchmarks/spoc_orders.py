"""Goal: find which order of SPOC takes fewer visits and which less CPU time, to relative gaps of 1e-3 and 1e-6: passes
over the rows in random order, or always the row with the largest violation (the paper's order).

A visit solves the reduced problem of one row. A pass in random order skips sleeping rows but counts as one visit per
row, so its number of visits is an upper bound; the gap is checked every 4 or 10 passes. Steps on faces, which only the
random order takes, are not visits. With the paper's order, the worst row is searched at every visit and the gap is
checked after each pass.

    python benchmarks/spoc_orders.py [--repetitions 3]
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits

from _common import describe_machine, format_table, time_it, write_result
from widemargin.problems.kernels import make_kernel
from widemargin.solvers.codes.spoc import solve_spoc

GAPS, ORDERS = (1e-3, 1e-6), ("random", "worst-first")


def quadrants(n):
    """Points in four quadrants, as in figure 5 of the paper."""
    h = np.random.default_rng(0).uniform(-1.0, 1.0, (n, 2))
    return h, (h[:, 0] > 0) + 2 * (h[:, 1] > 0)


def clusters(n, k, n_columns):
    """Outputs around the centres of k classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, n)
    return rng.normal(size=(k, n_columns))[y] + rng.normal(size=(n, n_columns)), y


def digits(n):
    """Pixels of scikit-learn's digits."""
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16.0, y[:n]


PROBLEMS = {
    "four quadrants, 250 rows": (*quadrants(250), 4, None),
    "four quadrants, 1,000 rows": (*quadrants(1000), 4, None),
    "10 classes, 15 columns, 500 rows": (*clusters(500, 10, 15), 10, None),
    "digits, 300 rows, 64 columns": (*digits(300), 10, None),
    "digits, 300 rows, rbf (γ = 0.05)": (*digits(300), 10, make_kernel("rbf", 0.05)),
}


def measure(name, tol, repetitions):
    """Visits and CPU milliseconds of both orders."""
    h, y, k, kernel = PROBLEMS[name]
    visits, times = [], []
    for order in ORDERS:
        kept = {}
        options = {"kernel": kernel, "tol": tol, "order": order, "max_iter": 20_000}

        def run(kept=kept, options=options):
            kept["result"] = solve_spoc(h, y.astype(np.int64), k, np.ones(len(y)), **options)

        ms = 1e3 * time_it(run, repetitions).cpu_s
        times.append(f"{ms:,.0f}" if ms >= 100.0 else f"{ms:.3g}")
        assert kept["result"].certificate.relative_gap <= tol
        visits.append(f"{int(kept['result'].n_iter[0]) * len(y):,}")
    return [name, f"{tol:g}", *visits, *times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    rows = [measure(name, tol, options.repetitions) for name in PROBLEMS for tol in GAPS]
    columns = ["problem, C = 1", "gap", "visits, random", "visits, worst first", "ms, random", "ms, worst first"]
    text = "CPU milliseconds, one thread, median; visits are defined in `benchmarks/spoc_orders.py`."
    write_result("spoc-orders", "SPOC: rows in random order and the worst row first", [
        text, format_table(columns, rows), describe_machine(),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
