"""Differential fuzzing of the text reader: the C++ core and its Python twin must agree on every input.

    python fuzz/fuzz_text_reader.py [--seconds 60] [--seed 0] [corpus folder]

Inputs are mutations of the corpus, encoded as in fuzz_text_reader.cpp: one byte of options, one byte for the block
size, then the text. A disagreement is written to `fuzz/failures/` and stops the run with exit code 1. A crash or hang
of the core also stops it (the last input is in `fuzz/failures/current`).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path

import numpy as np

from widemargin.data.text import MAX_COUNT, TextFormat, TextOptions

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))

from core_text_reader import core_parse, outcome  # noqa: E402
from reference.text_reader import parse_text  # noqa: E402

CORPUS = HERE / "corpus" / "text_reader"
SMALL_LIMIT, SMALL_COUNT = 3, 5  # as in fuzz_text_reader.cpp
MAX_INPUT_BYTES = 4096
HANG_SECONDS = 10.0
TOKENS = [b"\n", b"\r\n", b"\r", b"\t", b" ", b"\0", b"\xef\xbb\xbf", b"3 4 5\n", b" 1:1"]
TOKENS += b"0 1 2 9 -1 + . e : , # nan inf qid: 1e39 1e-400 2147483647 99999999999999999999 1,2".split()


def decode(data: bytes) -> tuple[TextOptions, type[np.floating], int, bytes]:
    """Decode an input into options, type, block size and text."""
    byte = data[0]
    text_format = TextFormat(byte % 3)
    options = TextOptions(
        format=text_format,
        base=(None, 0, 1)[byte // 3 % 3],
        refuse_disorder=byte // 9 % 2 == 1,
        max_nonzeros=SMALL_LIMIT if byte // 36 % 2 == 1 else MAX_COUNT,
        n_features=SMALL_COUNT if byte // 72 % 2 == 1 and text_format != TextFormat.XMC else None,
    )
    return options, (np.float32, np.float64)[byte // 18 % 2], 1 + data[1] % 64, data[2:]


def disagreement(data: bytes) -> str | None:
    """The disagreement of the core and its twin on an input, or None."""
    if len(data) < 2:
        return None
    options, dtype, block, text = decode(data)
    core = outcome(core_parse, text, options, dtype, n_threads=2, block_bytes=block, stops=True)
    twin = outcome(parse_text, text, options, dtype)
    return None if core == twin else f"core: {core}\ntwin: {twin}"


def mutate(data: bytes, rng: random.Random, corpus: list[bytes]) -> bytes:
    """A few random edits: flip, delete, repeat, insert a token, splice with another input."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, length = rng.randrange(len(changed) + 1), rng.choice((1, 1, 2, 8))
        edit = rng.randrange(6)
        if edit == 0 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif edit == 1:
            del changed[place : place + length]
        elif edit == 2:
            changed[place:place] = changed[place : place + length] * rng.choice((1, 3))
        elif edit == 3:
            other = rng.choice(corpus)
            start = rng.randrange(len(other))
            changed[place:] = other[start:]
        else:
            changed[place:place] = rng.choice(TOKENS)
    return bytes(changed[:MAX_INPUT_BYTES])


def main() -> int:
    """Fuzz until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    corpus = [path.read_bytes() for path in sorted(arguments.corpus.iterdir()) if path.stat().st_size >= 2]
    failures = HERE / "failures"
    failures.mkdir(exist_ok=True)
    rng, n_inputs, end = random.Random(arguments.seed), 0, time.monotonic() + arguments.seconds
    pending = list(corpus)
    with open(failures / "current", "wb", buffering=0) as current:
        while time.monotonic() < end or pending:
            data = pending.pop() if pending else mutate(rng.choice(corpus), rng, corpus)
            current.seek(0)
            current.truncate()
            current.write(data)
            started = time.monotonic()
            problem = disagreement(data)
            n_inputs += 1
            if time.monotonic() - started > HANG_SECONDS:
                problem = f"took more than {HANG_SECONDS} s"
            if problem is not None:
                path = failures / f"text_reader-{hashlib.sha1(data).hexdigest()[:12]}"
                path.write_bytes(data)
                print(f"{path}: {problem}", file=sys.stderr)
                return 1
    (failures / "current").unlink()
    print(f"{n_inputs} inputs in {arguments.seconds:g} s: the core and its twin agree on all of them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
