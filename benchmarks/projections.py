"""Goal: a projection onto a top-k set takes about as long as one onto the plain simplex, for d = 10 … 10⁶ values.

The first experiment of the top-k paper (Lapin, Hein, Schiele, NIPS 2015): rows of standard normal values, k = 1, 5, 10.
Every cell projects the same number of values, in as many rows as fit. Projections onto the plain simplex
{x ≥ 0, ⟨1,x⟩ = 1} use Kiwiel's variable fixing, as in the paper, and the usual sort and cumulative sum in NumPy. The
results are checked: the two methods for the plain simplex against each other, the other projections against their NumPy
twins on the first values of a row.

    python benchmarks/projections.py [--values 1000000] [--largest 1000000]
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np

from _common import describe_machine, format_table, time_it, write_result
from widemargin.projections import project_capped_simplex, project_top_k_cone, project_top_k_simplex

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from reference.projections import sweep_capped_simplex, sweep_top_k_simplex

KS = (1, 5, 10)
RHO = 1.0  # as in the dual of the top-k SVM
REPETITIONS = 5
CHECKED_VALUES = 2000  # the twins are slow Python


def simplex_by_sort(a):
    """Project rows onto the plain simplex by sort and cumulative sum (Held, Wolfe, Crowder, 1974)."""
    sums = np.cumsum(-np.sort(-a, axis=1), axis=1) - 1.0
    t = (sums / np.arange(1, a.shape[1] + 1)).max(axis=1, keepdims=True)
    return np.maximum(a - t, 0.0)


def top_k_methods(k):
    return {
        "top-k simplex": partial(project_top_k_simplex, k=k, rho=RHO),
        "top-k cone": partial(project_top_k_cone, k=k, rho=RHO),
        "capped simplex, fixing": partial(project_capped_simplex, k=k, rho=RHO, method="fixing"),
        "capped simplex, sweep": partial(project_capped_simplex, k=k, rho=RHO, method="sweep"),
    }


def check(a, k):
    """Compare every method with its twin on the first values."""
    row = a[0, :CHECKED_VALUES]
    twins = [sweep_top_k_simplex(row, k, bound, RHO) for bound in (1.0, np.inf)]
    twins += 2 * [sweep_capped_simplex(row, k, 1.0, RHO)]
    for project, twin in zip(top_k_methods(k).values(), twins, strict=True):
        np.testing.assert_allclose(project(row), twin.apply(row), rtol=0, atol=1e-11)


def nanoseconds(project, a):
    """CPU time per value."""
    return 1e9 * time_it(lambda: project(a), REPETITIONS).cpu_s / a.size


def measure(rng, d, n_values):
    """One row per k: time per value of the two plain projections and the top-k ones, with ratios to the first."""
    a = rng.standard_normal((max(1, n_values // d), d))
    simplex = partial(project_capped_simplex, k=1, exactly=True)
    np.testing.assert_allclose(simplex(a), simplex_by_sort(a), rtol=0, atol=1e-9)
    plain, by_sort = nanoseconds(simplex, a), nanoseconds(simplex_by_sort, a)
    rows = []
    for k in KS:
        check(a, k)
        times = [nanoseconds(project, a) for project in top_k_methods(k).values()]
        cells = [f"{t:.1f} ({t / plain:.2f})" for t in (plain, by_sort, *times)]
        rows.append([f"{d:,}", str(k), *cells])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=1_000_000, help="values projected per cell")
    parser.add_argument("--largest", type=int, default=1_000_000, help="length of the longest row")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    sizes = [10**power for power in range(1, 7) if 10**power <= options.largest]
    rows = [row for d in sizes for row in measure(rng, d, options.values)]
    columns = ["d", "k", "plain simplex, fixing", "plain simplex, NumPy sort", *top_k_methods(1)]
    note = (
        f"CPU nanoseconds per value, medians of {REPETITIONS}, input checks included; in brackets the ratio to "
        f"the plain simplex by variable fixing. r = 1, and ρ = {RHO:g} except for the plain simplex."
    )
    write_result(
        "projections",
        "Projections onto the top-k sets against the plain simplex",
        [f"Machine: {describe_machine()}.", note, format_table(columns, rows)],
    )


if __name__ == "__main__":
    main()
