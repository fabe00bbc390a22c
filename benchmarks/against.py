"""Goal: show whether this checkout is slower than another commit, on a machine whose speed drifts.

Both are built in their own environments below build/against, with the dependencies of the Python that runs this
script, and take turns: in each alternation both run SCRIPT of this checkout once with `--ours`, and every second
alternation swaps their order. The table has, for each figure, both medians with their quartiles and the median of the
ratios within the alternations; above 1 this checkout is slower. `--instructions` adds one run of each under callgrind
with AVX2, which counts instructions and hardly varies.

    WIDEMARGIN_DATA=data python benchmarks/against.py [--alternations 9] [--instructions] COMMIT SCRIPT [arguments …]

SCRIPT is a file of benchmarks/ that has `--ours` and uses public names only, such as one_vs_all; the arguments are its
own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _common import CALLGRIND_VARIABLE, ROOT, describe_machine, format_table

BUILD = ROOT / "build" / "against"
THIS = "this checkout"
INSTRUCTION_SET = "avx2"  # the widest that valgrind knows
COUNTER = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""
DUMP = re.compile(r"Trigger: Client Request: (?P<name>.*)\n(?:.*\n)*?totals: (?P<total>\d+)")

Figures = dict[str, float]
Turns = dict[str, list[Figures]]  # by side


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: its name in the table, and the folder with its package and environment."""

    name: str
    folder: Path

    @property
    def site(self) -> Path:
        """Where its package is installed."""
        return self.folder / "site"

    @property
    def python(self) -> Path:
        """The interpreter that imports it."""
        return self.folder / "env" / "bin" / "python"


def run(*command: object, **options: object) -> str:
    """Standard output of a command; standard error goes to the terminal."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def build_commit(commit: str, root: Path = ROOT, build: Path = BUILD) -> Side:
    """Another commit, exported and installed; once."""
    full = run("git", "-C", root, "rev-parse", "--verify", f"{commit}^{{commit}}").strip()
    side = Side(commit, build / full)
    done = side.folder / "done"
    if not done.exists():
        source = side.folder / "source"
        shutil.rmtree(side.folder, ignore_errors=True)
        source.mkdir(parents=True)
        archive = side.folder / "source.tar"
        run("git", "-C", root, "archive", "--output", archive, full)
        run("tar", "-xf", archive, "-C", source)
        install(source, side)
        done.touch()
    return side


def build_this(root: Path = ROOT, build: Path = BUILD) -> Side:
    """This checkout as it is now, uncommitted changes included."""
    side = Side(THIS, build / "this")
    install(root, side)
    return side


def install(source: Path, side: Side) -> None:
    """Compile and install a source tree, and make the environment that imports it."""
    print(f"installing {side.name}", file=sys.stderr)
    environment = dict(os.environ)
    if shutil.which("ccache"):
        environment.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    shutil.rmtree(side.site, ignore_errors=True)
    settings = f"--config-settings=build-dir={side.folder / 'core'}"
    pip = [build_python(side.folder.parent), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*pip, "--target", side.site, settings, source, env=environment)
    if not side.python.exists():
        make_environment(side)


def build_python(build: Path) -> Path:
    """The interpreter that builds both: with the same tools at the same place so that nothing is compiled twice."""
    folder = build / "tools"
    python, done = folder / "bin" / "python", folder / "done"
    if not done.exists():
        run(sys.executable, "-m", "venv", "--clear", folder)
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        run(python, "-m", "pip", "install", "--quiet", *needed, "cmake", "ninja")
        done.touch()
    return python


def make_environment(side: Side) -> None:
    """An environment with the package of one side and, behind it, the packages of the Python that runs this script.

    Both sides have the same dependencies. Hooks of those packages are not run, an editable installation's among them:
    Python reads .pth files in the environment's own folder only.
    """
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", side.folder / "env")
    purelib = Path(run(side.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    shared = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (purelib / "against.pth").write_text("\n".join([str(side.site), *shared]) + "\n")


def run_script(
    side: Side, script: Path, arguments: Sequence[str], valgrind: Sequence[str] = (), **variables: str
) -> Figures:
    """Figures of one run: the JSON in the last line that the script prints."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", **variables}
    environment.pop("PYTHONPATH", None)
    lines = run(*valgrind, side.python, script, "--ours", *arguments, env=environment).splitlines()
    found = json.loads(lines[-1]) if lines else {}
    if not found.get("figures"):
        raise RuntimeError(f"{script.name} printed no figures; does WIDEMARGIN_DATA name the folder of its data?")
    if side.site not in Path(found["package"]).parents:
        raise RuntimeError(f"{side.name} was imported from {found['package']}, not from {side.site}")
    return found["figures"]


def alternate(sides: Sequence[Side], script: Path, arguments: Sequence[str], alternations: int) -> Turns:
    """Figures of every alternation."""
    turns: Turns = {side.name: [] for side in sides}
    for number in range(alternations):
        print(f"alternation {number + 1} of {alternations}", file=sys.stderr)
        for side in sides if number % 2 == 0 else reversed(sides):
            turns[side.name].append(run_script(side, script, arguments))
    return turns


def timing_table(turns: Turns) -> str:
    """Medians, quartiles and ratios of each figure."""
    that, this = turns
    rows = []
    for name in turns[that][0]:
        theirs, ours = ([turn[name] for turn in turns[side]] for side in (that, this))
        ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
        rows.append([name, *_spread(theirs, ".4f"), *_spread(ours, ".4f"), *_spread(ratios, ".3f")])
    columns = ["figure"]
    for column in (f"{that}, CPU s", f"{this}, CPU s", "ratio"):
        columns += [column, "quartiles"]
    return format_table(columns, rows)


def _spread(values: Sequence[float], form: str) -> tuple[str, str]:
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return f"{median:{form}}", f"{low:{form}}–{high:{form}}"


def make_counter(build: Path = BUILD) -> Path:
    """The library through which a script tells callgrind when to count."""
    build.mkdir(parents=True, exist_ok=True)
    source, library = build / "counter.c", build / "counter.so"
    source.write_text(COUNTER)
    run("cc", "-O1", "-shared", "-fPIC", "-o", library, source)
    return library


def count_instructions(side: Side, script: Path, arguments: Sequence[str], counter: Path) -> Figures:
    """Instructions of every piece of the script in one run under callgrind."""
    print(f"counting instructions of {side.name}", file=sys.stderr)
    folder = side.folder / "callgrind"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
    environment = {CALLGRIND_VARIABLE: str(counter), "WIDEMARGIN_ISA": INSTRUCTION_SET}
    run_script(side, script, arguments, valgrind, **environment)
    return read_counts(folder)


def read_counts(folder: Path) -> Figures:
    """Instructions by the names that the dumps of callgrind in a folder carry."""
    found = (DUMP.search(path.read_text()) for path in sorted(folder.iterdir()))
    return {dump["name"]: float(dump["total"]) for dump in found if dump}


def count_table(counts: dict[str, Figures]) -> str:
    """Millions of instructions of each figure, and their ratio."""
    that, this = counts
    rows = []
    for name, theirs in counts[that].items():
        ours = counts[this][name]
        rows.append([name, f"{theirs / 1e6:,.1f}", f"{ours / 1e6:,.1f}", f"{ours / theirs:.4f}"])
    return format_table(["figure", f"{that}, million instructions", f"{this}, million instructions", "ratio"], rows)


def find_script(name: str) -> Path:
    """A script by its path, or by its name in benchmarks/."""
    for path in (Path(name), ROOT / "benchmarks" / name, ROOT / "benchmarks" / f"{name}.py"):
        if path.is_file():
            return path.resolve()
    sys.exit(f"there is no script {name}")


def main() -> None:
    """Build both, let them take turns, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alternations", type=int, default=9, help="0 with --instructions: no timing")
    parser.add_argument("--instructions", action="store_true", help="count instructions too (needs valgrind)")
    parser.add_argument("--json", type=Path, help="keep every figure of every run in this file")
    parser.add_argument("commit", metavar="COMMIT")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="arguments")
    options = parser.parse_args()
    script = find_script(options.script)
    sides = [build_commit(options.commit), build_this()]
    turns = alternate(sides, script, options.arguments, options.alternations)
    kept: dict[str, object] = {"turns": turns}
    if options.alternations:
        print(f"{options.alternations} alternations of {script.stem}. Machine: {describe_machine()}.\n")
        print(timing_table(turns))
    if options.instructions:
        counter = make_counter()
        counts = {side.name: count_instructions(side, script, options.arguments, counter) for side in sides}
        kept["instructions"] = counts
        print(f"\nInstructions of {script.stem}, {INSTRUCTION_SET}, one run of each.\n\n{count_table(counts)}")
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
