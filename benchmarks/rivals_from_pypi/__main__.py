"""Goal: compare every rival on PyPI, in its own environment, with ours: defaults with defaults, tuned with tuned.

    WIDEMARGIN_DATA=data PYTHONPATH=benchmarks python -m rivals_from_pypi [--folder build/…] [--cpu-limit 1500]

Writes a dated file in benchmarks/results and docs/reproductions/rivals.md. Environments, tasks and finished rows stay
in the folder, so an interrupted command resumes where it stopped. Remove the folder, or single files in `rows`, to
measure again: `rows/*-widemargin-*` after a change of this package. --quick installs nothing: it runs small generated
problems with the rivals that can be imported here and writes a page to the folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import ROOT, describe_machine, write_result
from rivals_from_pypi.measuring import run_all
from rivals_from_pypi.page import TITLE, sections, write_page
from rivals_from_pypi.rivals import ENTRIES, RIVALS, Rival
from rivals_from_pypi.tasks import TASKS, Task, quick_tasks

BUILD = ROOT / "build" / "rivals-from-pypi"
PAGE = ROOT / "docs" / "reproductions" / "rivals.md"
CPU_LIMIT_S = 1500


def measure(tasks: Sequence[Task], rivals: Sequence[Rival], folder: Path, limit_s: int) -> list[str]:
    """Run what is missing and return the sections of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    results = run_all(tasks, rivals, ENTRIES, folder, limit_s)
    return sections(tasks, rivals, results, describe_machine(), limit_s)


def importable_here(rivals: Sequence[Rival]) -> list[Rival]:
    """The rivals installed in this environment, set up to run in it."""
    here = [rival for rival in rivals if importlib.util.find_spec(rival.module.partition(".")[0])]
    return [dataclasses.replace(rival, requirement=None) for rival in here]


def chosen(what: str, known: Sequence[Any], only: Sequence[str], skipped: Sequence[str] = ()) -> list[Any]:
    """The requested tasks or rivals; an unknown name is an error."""
    names = [one.name for one in known]
    unknown = sorted({*only, *skipped} - set(names))
    if unknown:
        raise SystemExit(f"no such {what}: {', '.join(unknown)}; the {what}s are {', '.join(names)}")
    return [one for one in known if one.name in (only or names) and one.name not in skipped]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=BUILD, help="folder for environments and finished rows")
    parser.add_argument("--cpu-limit", type=int, default=CPU_LIMIT_S, help="CPU seconds per run")
    parser.add_argument("--task", action="append", default=[], help="run only this task, no page; may be repeated")
    parser.add_argument("--rival", action="append", default=[], help="run only this rival, no page; may be repeated")
    parser.add_argument("--skip", action="append", default=[], help="skip this task; the page says so; may be repeated")
    parser.add_argument("--quick", action="store_true", help="run small generated problems and install nothing")
    args = parser.parse_args(arguments)
    if args.quick:
        folder = args.folder / "quick"
        write_page(folder / "rivals.md", measure(quick_tasks(), importable_here(RIVALS), folder, args.cpu_limit))
        print(f"written to {folder / 'rivals.md'}")
        return
    tasks, rivals = chosen("task", TASKS, args.task, args.skip), chosen("rival", RIVALS, args.rival)
    parts = measure(tasks, rivals, args.folder, args.cpu_limit)
    if args.task or args.rival:
        print("\n\n".join(parts))
        return
    if args.skip:
        parts.append(f"Not measured this time: {', '.join(args.skip)}.")
    write_result("rivals-from-pypi", TITLE, parts)
    write_page(PAGE, parts)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # also ends the running rival
    main()
