"""Goal: reproduce every figure and table of Schultheis & Babbar (2022) on open data, with ratios next to the paper's.

    WIDEMARGIN_DATA=data make reproduce-one-vs-all

Finished runs stay in build/, so an interrupted command resumes where it stopped. Remove that folder to measure again.
With --embedded the small data set inside the package is used instead, and the page is written to build/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _common import DATA_VARIABLE, ROOT, describe_machine
from reproduce_one_vs_all.figures import draw_figures
from reproduce_one_vs_all.page import write_page
from reproduce_one_vs_all.problems import Problem, dense_problems, embedded_problem, text_problems
from reproduce_one_vs_all.runs import Runner
from reproduce_one_vs_all.studies import compare_starts, study_dense, study_text

BUILD = ROOT / "build" / "reproduce-one-vs-all"
EMBEDDED_LABELS = 60


def reproduce(text: Sequence[Problem], dense: Sequence[Problem], runs: Path, out: Path) -> None:
    """Run everything that is missing in `runs`, then write the figures and the page into `out`."""
    runner = Runner(runs)
    studies = [study_text(problem, runner) for problem in text]
    dense_studies = [study_dense(problem, runner) for problem in dense]
    comparisons = compare_starts(text[0], runner)
    draw_figures(studies, out / "one_vs_all")
    machine = f"Machine: {describe_machine(('numpy', 'scipy'))}; {runner.cpu_s / 60:.0f} minutes of CPU time in total."
    write_page(out / "one_vs_all.md", studies, dense_studies, comparisons, machine)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedded", action="store_true", help="use the small data set inside the package")
    if parser.parse_args().embedded:
        folder = BUILD / "embedded"
        reproduce([embedded_problem(EMBEDDED_LABELS)], [], folder, folder)
        print(f"written to {folder / 'one_vs_all.md'}")
        return
    text, dense = text_problems(), dense_problems()
    if not text:
        sys.exit(f"no data: set {DATA_VARIABLE} to the folder with the data sets, or use --embedded")
    reproduce(text, dense, BUILD, ROOT / "docs" / "reproductions")


if __name__ == "__main__":
    main()
