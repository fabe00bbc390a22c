"""Goal: measure the gain of training for the top k over the multiclass SVM and over the rivals of the top-k paper.

    WIDEMARGIN_DATA=data PYTHONPATH=benchmarks python -m reproduce_top_k_rivals

Repeats Table 1 of Lapin, Hein and Schiele (2015) on Caltech-101 silhouettes, and compares top-k SVMs over random
splits. Finished fits are kept in benchmarks/results/top-k-rivals.json, so an interrupted command resumes where it
stopped. Remove the file to measure again. --finished writes the page without unfinished methods; --quick uses a small
generated problem.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from _common import DATA_VARIABLE, RESULTS, ROOT, describe_machine
from reproduce_top_k_rivals.methods import NEAR, Method, one_vs_all, rivals, top_k_svms
from reproduce_top_k_rivals.page import write_page
from reproduce_top_k_rivals.problems import SILHOUETTES, Problem, newsgroups, silhouettes, small_problem
from reproduce_top_k_rivals.runs import Fit, Missing, Runs
from reproduce_top_k_rivals.tables import Results

PAGE = "top-k-rivals"
N_SPLITS = 5
TOP_KS = (10, 20)
OTHER_KS = (5, 10)  # for problems with fewer classes


def search_all(problem: Problem, methods: Sequence[Method], runs: Runs) -> dict[str, list[Fit]]:
    """Fits of a table, fast methods first; skips methods that lack fits when fitting is not allowed."""
    found = {}
    for method in sorted(methods, key=lambda method: (method.has_epochs, method.limit_s)):
        with contextlib.suppress(Missing):
            found[method.name] = runs.search(problem, None, method)
    return found


def run(problem: Problem, table: Sequence[Method], studied: Sequence[Method], n_splits: int, runs: Runs) -> Results:
    """All fits of a problem: first the study of the claim, then the table."""
    study = {m.name: [runs.search(problem, seed, m) for seed in range(n_splits)] for m in studied}
    return Results.of(problem, table, search_all(problem, table, runs), studied, study)


def run_other(problem: Problem, runs: Runs) -> Results:
    """The table of a smaller comparison: one-vs-all and top-k SVMs."""
    methods = [one_vs_all(), *top_k_svms(OTHER_KS)]
    return Results.of(problem, methods, search_all(problem, methods, runs))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", type=Path, metavar="FOLDER", help="use a small problem and write to FOLDER")
    parser.add_argument("--finished", action="store_true", help="write the page from finished fits only")
    args = parser.parse_args()
    if args.quick:
        args.quick.mkdir(parents=True, exist_ok=True)
        problem, others, out, runs = small_problem(), [], args.quick, Runs(args.quick / f"{PAGE}.json")
        table, studied = [*rivals((1, 3), 16), *top_k_svms((3, 5))], top_k_svms((3, 5), NEAR)
    else:
        problem, out, runs = (
            silhouettes(),
            ROOT / "docs" / "reproductions",
            Runs(RESULTS / f"{PAGE}.json", not args.finished),
        )
        others = [other for other in (newsgroups(),) if other is not None]
        table, studied = [*rivals(), *top_k_svms(TOP_KS)], top_k_svms(TOP_KS, NEAR)
    if problem is None:
        sys.exit(f"no data: set {DATA_VARIABLE} to the folder that contains {SILHOUETTES}, or use --quick")
    results = run(problem, table, studied, N_SPLITS, runs)
    other_results = [found for other in others if (found := run_other(other, runs)).fits]
    machine = f"{describe_machine()}; {runs.cpu_s / 60:.0f} minutes of CPU time in total, one thread"
    print(write_page(out / f"{PAGE}.md", results, other_results, machine))


if __name__ == "__main__":
    main()
