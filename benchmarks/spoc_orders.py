"""SPOC's two orders: passes over the rows in random order, and always the row with the largest violation (the paper's).

Goal: which of the two reaches a relative gap of 1e-3 and 1e-6 with fewer visits, and which with less CPU time. A visit
solves the reduced problem of one row; a pass in random order leaves out rows that sleep, and is counted here as visits
of all rows, so that its number is an upper bound. Steps on faces, which only the random order takes, are not visits.
Run: python benchmarks/spoc_orders.py
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_digits

from widemargin.problems.kernels import make_kernel
from widemargin.solvers.spoc import solve_spoc

REPEATS = 3


def quadrants(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of four quadrants, as in figure 5 of the paper."""
    h = np.random.default_rng(0).uniform(-1.0, 1.0, (n, 2))
    return h, (h[:, 0] > 0) + 2 * (h[:, 1] > 0)


def clusters(n: int, k: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs around the centres of k classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, n)
    return rng.normal(size=(k, n_columns))[y] + rng.normal(size=(n, n_columns)), y


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of digits."""
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16.0, y[:n].astype(np.int64)


PROBLEMS = {
    "four quadrants, 250 rows": (*quadrants(250), 4, None),
    "four quadrants, 1,000 rows": (*quadrants(1000), 4, None),
    "10 classes, 15 columns, 500 rows": (*clusters(500, 10, 15), 10, None),
    "digits, 300 rows, 64 columns": (*digits(300), 10, None),
    "digits, 300 rows, rbf": (*digits(300), 10, make_kernel("rbf", 0.05)),
}


def main() -> None:
    """Print a row per problem and tolerance."""
    print("| problem | gap | visits, random | visits, worst first | ms, random | ms, worst first |")
    print("|---|---|---|---|---|---|")
    for name, (h, y, k, kernel) in PROBLEMS.items():
        y = y.astype(np.int64)
        for tol in (1e-3, 1e-6):
            cells = []
            for order in ("random", "worst-first"):
                best = np.inf
                for _ in range(REPEATS):
                    began = time.process_time()
                    result = solve_spoc(
                        h, y, k, np.ones(len(y)), kernel=kernel, tol=tol, order=order, max_iter=20_000, time_limit=120.0
                    )
                    best = min(best, time.process_time() - began)
                    if best > 5.0:
                        break
                visits = f"{int(result.n_iter[0]) * len(y):,}"
                cells.append((visits if result.certificate.relative_gap <= tol else f"> {visits}", f"{1e3 * best:.3g}"))
            (v1, t1), (v2, t2) = cells
            print(f"| {name} | {tol:g} | {v1} | {v2} | {t1} | {t2} |", flush=True)


if __name__ == "__main__":
    main()
