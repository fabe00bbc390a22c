"""Orthogonal transfer on a large generated tree: wall time, CPU time and peak memory to a certified gap.

    python benchmarks/large_tree.py [--nodes 20000] [--rows 50000 100000 200000] [--tol 1e-2] [--n-jobs 2]

Goal: 20,000 nodes in six levels and 200,000 rows of 30 words to `decrease_gap` 1e-2 within 10 minutes on two cores and
6 GB, in time linear in the number of rows. Each number of rows is trained in its own process; memory is the peak of
that process, including the data and everything else.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import scipy.sparse as sp

from _common import describe_machine, format_table, in_fresh_process, peak_bytes, write_result
from _trees import generated_task
from widemargin import HierarchicalClassifier

DEPTH, WORDS, FEATURES = 6, 30, 50_000


def stored_bytes(coef: Any) -> int:
    """Size of weights, dense, sparse or factored."""
    return coef.data.nbytes + coef.indices.nbytes + coef.indptr.nbytes if sp.issparse(coef) else coef.nbytes


def train(n_nodes: int, n_rows: int, C: float, tol: float, n_jobs: int) -> dict[str, float]:
    """Train once in this process and measure."""
    task = generated_task(n_nodes, DEPTH, n_rows, FEATURES, WORDS, seed=0)
    model = HierarchicalClassifier(task.taxonomy, C=C, tol=tol, fit_intercept=False, n_jobs=n_jobs, random_state=0)
    labels = task.label_names
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(task.X, labels)
    return {
        "rows": n_rows,
        "nodes": task.tree.n_nodes - 1,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": peak_bytes() / 2**20,
        "passes": int(model.n_iter_),
        "gap": model.certificate_.decrease_gap,
        "alpha": float(model.alpha_ or 0.0),
        "weights_mb": stored_bytes(model.coef_) / 2**20,
    }


def main() -> None:
    """Train each number of rows in its own process and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 100_000, 200_000])
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(train(args.nodes, args.rows[0], args.C, args.tol, args.n_jobs)))
        return
    table = []
    for n_rows in args.rows:
        options = {"--nodes": args.nodes, "--rows": n_rows, "--C": args.C, "--tol": args.tol, "--n-jobs": args.n_jobs}
        done = in_fresh_process(__file__, "--child", *(x for pair in options.items() for x in pair))
        times = [f"{done['wall_s']:.1f}", f"{done['cpu_s']:.1f}", f"{1e6 * done['cpu_s'] / n_rows:.0f}"]
        rest = [f"{done['peak_mb']:.0f}", str(done["passes"]), f"{done['gap']:.1e}", f"{done['weights_mb']:.0f}"]
        table.append([f"{n_rows:,}", *times, *rest])
        print(table[-1], flush=True)
    columns = ["rows", "wall s", "CPU s", "CPU µs per row", "peak MB", "passes", "decrease_gap", "weights MB"]
    intro = (
        f"{done['nodes']:.0f} nodes in {DEPTH} levels, {WORDS} words per row, {FEATURES:,} features, "
        f"method orthogonal, alpha {done['alpha']:.3f}, C = {args.C:g}, tol {args.tol:g}, {args.n_jobs} threads."
    )
    sections = [intro, format_table(columns, table), f"Machine: {describe_machine()}."]
    write_result("large-tree", "Orthogonal transfer on a large tree", sections)


if __name__ == "__main__":
    main()
