"""Goal: reproduce tables 2–8 of Zhou, Xiao and Wu (2011) on open data, with the paper's C and with tuned C and α.

    WIDEMARGIN_DATA=data PYTHONPATH=benchmarks python -m reproduce_orthogonal_transfer [--splits 50] [--folder build/…]

Finished cells stay in a folder (--folder), so an interrupted command resumes where it stopped. Remove the folder to
measure again. With --quick two small generated trees are used instead, and the page is written to that folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from _common import DATA_VARIABLE, ROOT, describe_machine, find_data
from reproduce_orthogonal_transfer import rival
from reproduce_orthogonal_transfer.cells import Results
from reproduce_orthogonal_transfer.figure import draw_errors
from reproduce_orthogonal_transfer.page import write_page
from reproduce_orthogonal_transfer.tasks import Task, rcv1_tasks, small_tasks
from reproduce_orthogonal_transfer.tuning import Settings

BUILD = ROOT / "build" / "reproduce-orthogonal-transfer"
PAGE = "orthogonal-transfer"
QUICK = Settings(n_splits=3)


def reproduce(
    tasks: Sequence[Task], as_given: Sequence[Task], settings: Settings, cells: Path, out: Path, with_rival: bool
) -> Path:
    """Run everything that is missing in `cells`, then write the figure and the page into `out`."""
    results = Results(cells, settings)
    with threadpool_limits(limits=1):
        results.run(tasks, as_given, with_rival)
    packages = ["numpy", "scipy", "scikit-learn", *(["hiclass"] if with_rival else [])]
    machine = f"Machine: {describe_machine(packages)}; {results.cpu_s / 60:.0f} minutes of CPU time in total, one core."
    draw_errors(out / PAGE / "errors.svg", results, tasks)
    path = out / f"{PAGE}.md"
    write_page(path, results, tasks, as_given, machine, with_rival)
    return path


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="try everything on two small generated trees")
    parser.add_argument("--splits", type=int, default=Settings.n_splits, help="random splits (50 in the paper)")
    parser.add_argument("--folder", type=Path, default=BUILD, help="folder for finished cells")
    parser.add_argument("--no-hiclass", action="store_true", help="skip the comparison with hiclass")
    args = parser.parse_args()
    with_rival = not args.no_hiclass
    if with_rival and not rival.is_installed():
        sys.exit(rival.MISSING)
    if args.quick:
        folder = args.folder / "quick"
        print(f"written to {reproduce(small_tasks(), [], QUICK, folder, folder, with_rival)}")
        return
    data = find_data("rcv1v2-subsets")
    if data is None:
        sys.exit(f"no data: set {DATA_VARIABLE} to the folder that contains rcv1v2-subsets, or use --quick")
    settings = Settings(n_splits=args.splits)
    reproduce(*rcv1_tasks(data), settings, args.folder, ROOT / "docs" / "reproductions", with_rival)


if __name__ == "__main__":
    main()
