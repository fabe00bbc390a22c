"""Goal: what training for the top k gains, against the multiclass SVM and against the rivals of the top-k paper.

    WIDEMARGIN_DATA=data PYTHONPATH=benchmarks python -m reproduce_top_k_rivals

Table 1 of Lapin, Hein and Schiele (2015) on Caltech-101 silhouettes, and the differences between top-k SVMs over
random splits. Finished fits are kept in benchmarks/results/top-k-rivals.json: an interrupted command goes on where it
was; remove the file to measure anew. With --quick everything is done on a small generated problem.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _common import DATA_VARIABLE, RESULTS, ROOT, describe_machine
from reproduce_top_k_rivals.methods import NEAR, Method, rivals, top_k_svms
from reproduce_top_k_rivals.page import write_page
from reproduce_top_k_rivals.problems import SILHOUETTES, Problem, silhouettes, small_problem
from reproduce_top_k_rivals.runs import Runs
from reproduce_top_k_rivals.tables import Results

PAGE = "top-k-rivals"
N_SPLITS = 5
TOP_KS = (10, 20)


def run(problem: Problem, table: Sequence[Method], studied: Sequence[Method], n_splits: int, runs: Runs) -> Results:
    """All fits: the study of the claim first, since it is the quicker part, then the table."""
    study = {m.name: [runs.search(problem, seed, m) for seed in range(n_splits)] for m in studied}
    quick_first = sorted(table, key=lambda method: (method.has_epochs, method.limit_s))
    found = {method.name: runs.search(problem, None, method) for method in quick_first}
    return Results(problem, list(table), found, list(studied), study)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", type=Path, metavar="FOLDER", help="a trial on a small problem, written to FOLDER")
    args = parser.parse_args()
    if args.quick:
        args.quick.mkdir(parents=True, exist_ok=True)
        problem, ks, out, recall_ks, size = small_problem(), (3, 5), args.quick, (1, 3), 16
        runs = Runs(args.quick / f"{PAGE}.json")
    else:
        problem, ks, out, recall_ks, size = silhouettes(), TOP_KS, ROOT / "docs" / "reproductions", (1, 5, 10), 256
        runs = Runs(RESULTS / f"{PAGE}.json")
    if problem is None:
        sys.exit(f"no data: set {DATA_VARIABLE} to the folder that holds {SILHOUETTES}, or use --quick")
    results = run(problem, [*rivals(recall_ks, size), *top_k_svms(ks)], top_k_svms(ks, NEAR), N_SPLITS, runs)
    machine = f"{describe_machine()}; {runs.cpu_s / 60:.0f} minutes of CPU time in all, one thread"
    print(write_page(out / f"{PAGE}.md", results, machine))


if __name__ == "__main__":
    main()
