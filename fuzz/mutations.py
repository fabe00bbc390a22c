"""Code shared by the fuzzers of folders: files as a dictionary, damage to bytes, JSON values and arrays, and the loop.

Damage consists of small choices, made by a seed or by the bytes of a coverage-guided fuzzer. Each fuzzer defines how a
case is made and run; `fuzz` repeats it, stores findings and counts outcomes.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from widemargin.data.store import READ_ERRORS

TIME_LIMIT_S = 20
"""CPU seconds: on a busy machine a case may wait longer, but not twenty times as long."""
WAIT_LIMIT_S = 20 * TIME_LIMIT_S
PROGRESS_EVERY = 1000
MOST_FINDINGS = 20
WORDS_THAT_DIFFER = 5
NASTY_BYTES = [0, 1, 2, 3, 7, 127, 128, 255]
NASTY_VALUES = [
    None, True, False, -1, 0, 1, 2, 7, 2**31 - 1, 2**31, 2**53, 2**63, 10**30, 0.5, -0.5, 1e-300, 1e308, "", "x",
    "linear", "<f4", "<i8", "|O", "|b1", "csr", "dense", "object", "U9999999999", "M8[s]", "binary", "multilabel",
    "rbf", "precomputed", "\ud800", "../../etc/passwd", "model.json", [], [0], [2, 3], [3, 2, 1], [2**40, 0], [[]], {},
    {"$float": "nan"}, {"$float": "inf"}, {"$tuple": [1]}, {"$items": [[[], 1]]}, {"$items": [[1, 2]]}, {"$bad": 1},
    {"pairs": [[1, 2]]}, {"pairs": 3}, {"file": "model.json"}, {"class": "SGDClassifier", "params": {}},
]  # fmt: skip
NASTY_NUMBERS = [
    0,
    1,
    -1,
    2,
    5,
    127,
    -128,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
    1e-300,
    1e30,
    1e308,
    np.nan,
    np.inf,
]
DTYPES = ["<f4", "<f8", "<i4", "<i8", "<i2", "<u4", "<u8", "|i1", "|u1", "|b1"]

Files = dict[str, bytes]


class RandomChoices:
    """Choices from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        return self._random.randrange(n)


class ByteChoices:
    """Choices read from a string of bytes, then zeros; a coverage-guided fuzzer controls the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def below(self, n: int) -> int:
        part = self._data[self._place : self._place + 2]
        self._place += 2
        return int.from_bytes(part, "little") % n


def pick(choices, items):
    return items[choices.below(len(items))]


def damage_bytes(data: bytes, choices) -> bytes:
    """One small change to a string of bytes: a flip, a cut, an insertion, a removal or a special byte."""
    place = choices.below(len(data) + 1)
    kind = choices.below(5)
    if kind == 0 and place < len(data):
        return data[:place] + bytes([data[place] ^ (1 << choices.below(8))]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data[:place] + bytes([choices.below(256)]) * (1 + choices.below(9)) + data[place:]
    if kind == 3:
        return data[:place] + data[place + 1 + choices.below(9) :]
    return data[:place] + bytes([pick(choices, NASTY_BYTES)]) + data[place + 1 :]


def containers(value):
    """Every object and non-empty list inside a JSON value."""
    if isinstance(value, dict | list) and value:
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from containers(item)


def damage_value(content: Any, choices, within: Any = None) -> None:
    """Change, remove or copy a value inside a JSON value or inside a part of it."""
    target = pick(choices, list(containers(content if within is None else within)) or [{"a": 1}])
    key = pick(choices, list(target) if isinstance(target, dict) else range(len(target)))
    kind = choices.below(4)
    if kind <= 1:
        target[key] = pick(choices, NASTY_VALUES)
    elif kind == 2:
        del target[key]
    else:
        other = pick(choices, list(containers(content)) or [[0]])
        target[key] = pick(choices, list(other.values()) if isinstance(other, dict) else other)


def damage_json(files: Files, name: str, choices, part: str | None = None) -> None:
    """Damage a value in a JSON file or in one of its fields; it stays valid JSON."""
    try:
        content = json.loads(files[name])
        within = content.get(part) if isinstance(content, dict) and part is not None else None
        damage_value(content, choices, within)
        files[name] = json.dumps(content).encode()
    except (ValueError, RecursionError):  # it is already damaged, or a value was copied into itself
        return


def damage_array(data: bytes, choices) -> tuple[bytes, str, list[int]] | None:
    """Change a value, the type, the shape or the length of a `.npy` file; return its bytes, type and shape, or None
    if it is not such a file."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except READ_ERRORS:
        return None
    kind = choices.below(6)
    with np.errstate(all="ignore"):
        if kind <= 2 and array.size:
            array = array.copy()
            number = pick(choices, NASTY_NUMBERS) if array.dtype.kind != "U" else "x"
            value = np.asarray(number)
            array.flat[choices.below(array.size)] = value.astype(array.dtype) if value.dtype.kind != "U" else "x"
        elif kind == 3:
            array = array.astype(pick(choices, DTYPES)) if array.dtype.kind != "U" else array
        elif kind == 4 and array.ndim:
            array = pick(choices, [array[:-1], array[1:], array.reshape(-1), array[:0], array.T, array[None]])
        elif array.ndim:
            array = np.concatenate([array, array[: 1 + choices.below(3)]])
    array = np.ascontiguousarray(array)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue(), array.dtype.str, list(array.shape)


def keep_case(files: Files, corpus: Path) -> Path:
    """Store a case as a zip file named by its content; fixed times make equal cases equal files."""
    name = hashlib.sha256(b"".join(name.encode() + data for name, data in sorted(files.items()))).hexdigest()[:12]
    corpus.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(corpus / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file_name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(file_name), data, zipfile.ZIP_DEFLATED)
    return corpus / f"{name}.zip"


def read_case(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_files(files: Files, folder: Path) -> None:
    """Make the folder contain exactly these files."""
    folder.mkdir(exist_ok=True)
    for name in os.listdir(folder):
        if name not in files:
            os.unlink(folder / name)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def main_outcome(outcome: str) -> str:
    """The first words of the outcome with `verify`, which distinguish the cases of the corpus."""
    return " ".join(outcome.split(" | ")[0].split()[:WORDS_THAT_DIFFER])


def scratch_folder() -> Path:
    """A folder in memory if the system has one, because hundreds of thousands of files are written."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="widemargin-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))


def stop_hanging_case(signal_number, frame):
    raise TimeoutError(f"a case took more than {TIME_LIMIT_S} s")


def fuzz(
    make_case: Callable[[Any], Files],
    run_case: Callable[[Files, Path], str],
    corpus: Path,
    options: argparse.Namespace,
) -> int:
    """Run cases up to a number or a time limit; findings go to `fuzz/failures`. Returns the exit code."""
    signal.signal(signal.SIGALRM, stop_hanging_case)
    signal.signal(signal.SIGPROF, stop_hanging_case)
    sys.stdout.reconfigure(errors="backslashreplace")
    outcomes, findings, folder = collections.Counter(), {}, scratch_folder() / "case"
    print(f"{corpus.name}: the case being run is in {folder}", flush=True)
    seen = {main_outcome(run_case(read_case(path), folder)) for path in sorted(corpus.glob("*.zip"))}
    seed, end = options.seed, time.monotonic() + options.seconds
    while seed - options.seed < options.cases and time.monotonic() < end and len(findings) < MOST_FINDINGS:
        files = make_case(RandomChoices(seed))
        seed += 1
        signal.alarm(WAIT_LIMIT_S)
        signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT_S)
        try:
            outcome = run_case(files, folder)
        except Exception:  # noqa: BLE001 - whatever a reader lets out is a finding
            outcome = "finding: " + "".join(traceback.format_exc().splitlines()[-3:])
            if outcome not in findings:
                findings[outcome] = keep_case(files, Path(__file__).parent / "failures" / corpus.name)
                print(f"seed {seed - 1}: {findings[outcome]}\n{traceback.format_exc(limit=-6)}", flush=True)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if (seed - options.seed) % PROGRESS_EVERY == 0:
            print(f"{corpus.name}: {seed - options.seed} cases", flush=True)
        outcomes[outcome] += 1
        if options.keep and main_outcome(outcome) not in seen and outcome not in findings:
            keep_case(files, corpus)
        seen.add(main_outcome(outcome))
    loaded = sum(n for outcome, n in outcomes.items() if outcome.startswith("loaded"))
    if options.show:
        print("\n".join(f"{n:7d} {outcome}" for outcome, n in outcomes.most_common()))
    print(f"{corpus.name}: {outcomes.total()} cases, {loaded} loaded, {len(outcomes)} different outcomes, "
          f"{len(findings)} findings")  # fmt: skip
    return 1 if findings else 0


def parse_options(description: str, argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2**62, help="stop after this many cases")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=["random", "atheris"], default="random")
    parser.add_argument("--keep", action="store_true", help="add cases with new outcomes to the corpus")
    parser.add_argument("--show", action="store_true", help="list all outcomes with their counts")
    options = parser.parse_args(argv)
    if options.cases == 2**62 and options.seconds == 1e9:
        options.seconds = 60.0
    return options
