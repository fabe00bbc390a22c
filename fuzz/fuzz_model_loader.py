"""Fuzz the reader of model folders: a small valid model is damaged at random, over and over.

    python fuzz/fuzz_model_loader.py --seconds 600 [--seed 0] [--keep]
    python fuzz/fuzz_model_loader.py --engine atheris --seconds 600

Every outcome must be a `ModelFormatError`, or a state whose arrays are valid and can be scored; anything else, a case
of more than TIME_LIMIT_S included, is a finding: the case is kept in the corpus and the exit code is 1. After a crash
of the interpreter the case is in the folder printed at the start. Half of the damages are signed (size and hash put
right in the manifest), so that the checks behind the hashes are reached. `--keep` adds one case for every new message
to the corpus, which the tests replay.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import inspect
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import widemargin.model_io.read
import widemargin.model_io.state
from widemargin.exceptions import ModelFormatError
from widemargin.model_io import ModelState, describe_model, write_model
from widemargin.problems.linear_scores import LinearScorer

CORPUS = Path(__file__).parent / "corpus" / "model_loader"
TIME_LIMIT_S = 10
MOST_DAMAGES = 4
WORDS_THAT_DIFFER = 5
NASTY_VALUES = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, 0.5, 1e308, "", "x", "<f4", "<i8", "|O", "|b1", "csr", "dense",
    "../../etc/passwd", "model.json", [], [0], [2, 3], [3, 2, 1], [2**40, 0], [[]], {}, {"$float": "nan"},
    {"$tuple": [1]}, {"$items": [[[], 1]]}, {"$bad": 1}, {"file": "model.json"},
]  # fmt: skip
NASTY_INTEGERS = [0, 1, 2, 3, 7, 127, 128, 255]

Files = dict[str, bytes]


class RandomChoices:
    """Choices from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        return self._random.randrange(n)


class ByteChoices:
    """Choices read off a string of bytes, zeros when it ends: what a coverage-guided engine steers."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def below(self, n: int) -> int:
        part = self._data[self._place : self._place + 2]
        self._place += 2
        return int.from_bytes(part, "little") % n


def pick(choices, items):
    return items[choices.below(len(items))]


def valid_model() -> Files:
    """The files of a small model with all parts of the format."""
    coef = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32))
    state = ModelState(
        "OneVsAllClassifier",
        {"C": 1.0, "class_weight": {0: 2.0}, "shape": (1, 2), "tol": float("inf")},
        {"coef": coef, "intercept": np.array([0.5, -0.5, 0.0]), "dense": np.ones((2, 3)), "none": np.empty((0, 2))},
        labels=["a", "b", 3],
        feature_names=["x", "y", "z"],
        certificate={"primal": 1.0, "dual": 0.5},
        history={"primal": np.array([2.0, np.nan])},
    )
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, state)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def damage_bytes(data: bytes, choices) -> bytes:
    """One small change of a string of bytes: a flip, a cut, an insertion, a removal or a nasty integer."""
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
    return data[:place] + bytes([pick(choices, NASTY_INTEGERS)]) + data[place + 1 :]


def containers(value):
    """Every object and non-empty list inside a JSON value."""
    if isinstance(value, dict | list) and value:
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from containers(item)


def damage_manifest(files: Files, choices) -> None:
    """Change, remove, copy or swap a value of the manifest, which stays valid JSON; or change its bytes."""
    try:
        manifest = json.loads(files["model.json"])
    except ValueError:
        return
    target = pick(choices, list(containers(manifest)) or [{"a": 1}])
    key = pick(choices, list(target) if isinstance(target, dict) else range(len(target)))
    kind = choices.below(4)
    if kind == 0:
        target[key] = pick(choices, NASTY_VALUES)
    elif kind == 1:
        del target[key]
    elif kind == 2:
        other = pick(choices, list(containers(manifest)))
        target[key] = pick(choices, list(other.values()) if isinstance(other, dict) else other)
    else:
        files["model.json"] = damage_bytes(files["model.json"], choices)
        return
    try:
        files["model.json"] = json.dumps(manifest).encode()
    except (ValueError, RecursionError):  # a value was copied into itself
        return


def sign(files: Files) -> None:
    """Put sizes and hashes in the manifest right, so that only the content is wrong."""
    try:
        manifest = json.loads(files["model.json"])
    except ValueError:
        return
    for entry in containers(manifest):
        name = entry.get("file") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in files:
            entry["size"], entry["sha256"] = len(files[name]), hashlib.sha256(files[name]).hexdigest()
    files["model.json"] = json.dumps(manifest).encode()


def damaged_model(valid: Files, choices) -> Files:
    files = dict(valid)
    for _ in range(1 + choices.below(MOST_DAMAGES)):
        if choices.below(2):
            damage_manifest(files, choices)
        else:
            name = pick(choices, sorted(files))
            if choices.below(16) == 0 and name != "model.json":
                del files[name]
            else:
                files[name] = damage_bytes(files[name], choices)
    if choices.below(2):
        sign(files)
    return files


def check_state(state: ModelState, verified: bool) -> None:
    """What every state that was read must satisfy; assertions and crashes are findings."""
    assert all(isinstance(part, dict) for part in (state.params, state.attributes, state.arrays, state.history))
    for array in state.arrays.values():
        if sp.issparse(array) and verified:
            array.check_format(full_check=True)
        if verified:
            assert np.isfinite(array.data if sp.issparse(array) else np.asarray(array)).all()
    coef = state.arrays.get("coef")
    if coef is None or coef.ndim != 2 or coef.shape[1] > 10**6:
        return
    try:
        LinearScorer(coef).top_k(np.ones((1, coef.shape[1])), 2)
    except ValueError:
        assert not verified  # without `verify` an index may be out of range, and the scorer says so


def run_case(files: Files, folder: Path) -> str:
    """Read the model with and without `verify`; returns the outcome, numbers and names left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    outcomes = []
    for verify in (True, False, None):
        signal.alarm(TIME_LIMIT_S)
        try:
            if verify is None:
                describe_model(folder)
            else:
                check_state(widemargin.model_io.read.read_model(folder, verify=verify), verified=verify)
            outcomes.append("loaded")
        except ModelFormatError as error:
            outcomes.append(re.sub(r"\(.*\)|'[^']*'|\d+", "…", str(error).split(": ", 1)[-1]))
        finally:
            signal.alarm(0)
    return " | ".join(outcomes)


def main_outcome(outcome: str) -> str:
    """The first words of the outcome with `verify`, by which the cases of the corpus differ."""
    return " ".join(outcome.split(" | ")[0].split()[:WORDS_THAT_DIFFER])


def keep_case(files: Files, corpus: Path) -> Path:
    """Store a case as a zip file named by its content; times fixed, so that equal cases are equal files."""
    name = hashlib.sha256(b"".join(name.encode() + data for name, data in sorted(files.items()))).hexdigest()[:12]
    corpus.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(corpus / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file_name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(file_name), data, zipfile.ZIP_DEFLATED)
    return corpus / f"{name}.zip"


def read_case(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def fuzz_at_random(seconds: float, seed: int, keep: bool) -> None:
    valid, outcomes = valid_model(), collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        print(f"the case being run is in {folder}")
        seen = {main_outcome(run_case(read_case(path), folder)) for path in sorted(CORPUS.glob("*.zip"))}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            files = damaged_model(valid, RandomChoices(seed))
            seed += 1
            try:
                outcome = run_case(files, folder)
            except BaseException:
                print(f"finding, kept as {keep_case(files, CORPUS)}")
                raise
            outcomes[outcome] += 1
            if keep and main_outcome(outcome) not in seen:
                keep_case(files, CORPUS)
            seen.add(main_outcome(outcome))
    loaded = sum(n for outcome, n in outcomes.items() if outcome.startswith("loaded"))
    print(f"{outcomes.total()} cases, {len(outcomes)} different outcomes, {loaded} loaded with verify, no finding")


def fuzz_with_atheris(seconds: float) -> None:
    """Coverage-guided: the engine's bytes are the choices."""
    import atheris

    for module in (widemargin.model_io.read, widemargin.model_io.state):
        for name, member in list(vars(module).items()):
            if inspect.isfunction(member):
                setattr(module, name, atheris.instrument_func(member))
    valid, folder = valid_model(), Path(tempfile.mkdtemp()) / "model"
    print(f"the case being run is in {folder}")

    def test_one_input(data: bytes) -> None:
        files = damaged_model(valid, ByteChoices(data))
        try:
            run_case(files, folder)
        except BaseException:
            print(f"finding, kept as {keep_case(files, CORPUS)}")
            raise

    atheris.Setup([sys.argv[0], f"-max_total_time={int(seconds)}", "-print_final_stats=1"], test_one_input)
    atheris.Fuzz()


def stop_hanging_case(signal_number, frame):
    raise TimeoutError(f"a case took more than {TIME_LIMIT_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=["random", "atheris"], default="random")
    parser.add_argument("--keep", action="store_true", help="add cases with new outcomes to the corpus")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, stop_hanging_case)
    if options.engine == "atheris":
        fuzz_with_atheris(options.seconds)
    else:
        fuzz_at_random(options.seconds, options.seed, options.keep)


if __name__ == "__main__":
    main()
