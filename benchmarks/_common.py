"""Code shared by the benchmarks: finding data, describing the machine, timing, figures, peak memory, result files."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DATA_VARIABLE = "WIDEMARGIN_DATA"
CALLGRIND_VARIABLE = "WIDEMARGIN_CALLGRIND"
"""Names the library that `benchmarks/against.py` makes to count the instructions of a piece of code."""
REPETITIONS = 3  # of each piece of our code in one turn of `benchmarks/against.py`


def find_data(name: str) -> Path | None:
    """A file or folder of the benchmark data; if it is missing, print a message and return None."""
    folder = Path(os.environ.get(DATA_VARIABLE, ROOT / "data"))
    path = folder / name
    if path.exists():
        return path
    hint = "" if folder.exists() else f"; set {DATA_VARIABLE} to the folder that contains it"
    print(f"{name} is missing in {folder}{hint}", file=sys.stderr)
    return None


def cpu_model() -> str:
    """The processor's name as reported by the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine(packages: Sequence[str] = ("numpy", "scipy", "scikit-learn")) -> str:
    """Processor, cores, load (including other jobs) and versions in one line, without names or paths."""
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    system = f"{platform.system()}, load {os.getloadavg()[0]:.1f} at the end"
    return f"{cpu_model()}, {n_cores()} cores, {system}, Python {platform.python_version()}, {versions}"


@dataclass(frozen=True)
class Timing:
    """Medians over the repetitions, in seconds; CPU time covers all threads."""

    wall_s: float
    cpu_s: float


def time_it(function: Callable[[], Any], repetitions: int = 5) -> Timing:
    """Median wall and CPU time; the result is freed between repetitions."""
    walls, cpus = [], []
    for _ in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        result = function()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        del result
    return Timing(statistics.median(walls), statistics.median(cpus))


def add_ours_option(parser: argparse.ArgumentParser) -> None:
    """The option of the scripts that `benchmarks/against.py` can run."""
    parser.add_argument("--ours", action="store_true", help="time our code only and print the figures as JSON")


def print_figures(pieces: Iterable[tuple[str, Callable[[], Any]]]) -> None:
    """Time each piece of our code and print, as JSON, its CPU seconds by name and the package that they belong to.

    A piece runs once unmeasured, which loads modules and builds caches; then the median of `REPETITIONS` runs counts.
    Under callgrind it runs once more only, and callgrind's files have its instructions.
    """
    counter = os.environ.get(CALLGRIND_VARIABLE)
    figures = {}
    for name, piece in pieces:
        piece()
        figures[name] = time_it(piece, REPETITIONS).cpu_s if counter is None else _count(counter, name, piece)
    package = importlib.util.find_spec("widemargin")
    print(json.dumps({"package": package and package.origin, "figures": figures}))


def _count(counter: str, name: str, piece: Callable[[], Any]) -> None:
    """Run a piece while callgrind counts."""
    library = ctypes.CDLL(counter)
    library.start()
    piece()
    library.stop(name.encode())


def forget_peak() -> None:
    """Give freed memory back to the system and start the peak again at what is in use now; on Linux only."""
    with contextlib.suppress(AttributeError):  # glibc has it, other libraries do not
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Largest resident memory of this process, on Linux since the last `forget_peak`."""
    with contextlib.suppress(OSError):
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(status["VmHWM"].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def peak_growth_bytes(function: Callable[[], Any]) -> tuple[int, Any]:
    """Growth of the peak resident memory of this process during a call; use it in a fresh process."""
    forget_peak()  # the peak of the imports
    before = peak_bytes()
    result = function()
    return peak_bytes() - before, result


def in_processes(context: Any, target: Callable[..., None], n_processes: int) -> float:
    """Mean seconds of work in several processes at once; `target(barrier, results)` waits, works, and puts its time."""
    barrier, results = context.Barrier(n_processes), context.SimpleQueue()
    processes = [context.Process(target=target, args=(barrier, results)) for _ in range(n_processes)]
    for process in processes:
        process.start()
    seconds = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return statistics.mean(seconds)


def in_fresh_process(script: str, *arguments: object) -> Any:
    """Run a script with the same Python and return the JSON that it prints."""
    command = [sys.executable, script, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    table = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def write_result(name: str, title: str, sections: Sequence[str]) -> Path:
    """Print the sections and write them to benchmarks/results/<date>-<name>.md."""
    text = "\n\n".join([f"# {title}", *sections]) + "\n"
    print(text)
    path = RESULTS / f"{datetime.date.today().isoformat()}-{name}.md"
    write_text(path, text)
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, under a temporary name that is then renamed; creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
