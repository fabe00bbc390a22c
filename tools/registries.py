"""Package metadata from a registry: download them into a snapshot, and make a data set of it.

A snapshot is a gzipped file with one JSON object per line, sorted by name. It is the source of a data set: registries
change daily, a snapshot does not. Its rows contain what the registry publishes about a package, except for people:
`owner` is a hash, good only for telling whether two packages have the same owner.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from bag_of_words import replace_file
from text_sets import MIN_TERMS, Row, at_most_per_source, informative, split, write_files

PARALLEL_REQUESTS = 16
TRIES = 4
PAUSE_S = 3  # longer after each failure
NOT_THERE = (403, 404, 410)  # Mirrors withhold some packages (403); respect that and go on without them.
TIMEOUT_S = 60
# An account on a host of repositories; pages for sponsors belong to the host.
REPOSITORY = re.compile(
    r"(?:github|gitlab|bitbucket|codeberg)\.(?:com|org)[/:]+(?!sponsors/|orgs/)([\w.-]+)/", re.IGNORECASE
)


def owner_of(urls: Iterable[str], otherwise: Iterable[str]) -> str:
    """Hash of the account that hosts the source code, or of the first name that is not empty."""
    accounts = (f"account {found[1]}" for url in urls if (found := REPOSITORY.search(url)))
    names = (name for name in otherwise if name and name.strip())
    owner = next(accounts, None) or next(names, "")
    return hashlib.sha256(owner.strip().lower().encode()).hexdigest()[:16]


def get_json(url: str) -> dict[str, Any] | None:
    """The object at a URL, or None if the registry does not have it. Other failures are tried again."""
    request = urllib.request.Request(url, headers={"User-Agent": "widemargin-data (one snapshot for a benchmark)"})
    for attempt in range(TRIES):
        time.sleep(attempt * PAUSE_S)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return cast(dict[str, Any], json.load(answer))
        except (OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code in NOT_THERE:
                return None
            failure = error
    raise SystemExit(f"{url}: {failure}; run the command again to resume it")


def download(names: Sequence[str], row_of: Callable[[str], Mapping[str, Any] | None], out: Path) -> int:
    """Write the rows of the named packages that the registry has. Returns their number.

    Answers are kept in `<out>.answers`, one per line, until all have arrived. Run a stopped command again to resume it.
    """
    answers = out.with_name(out.name + ".answers")
    found: dict[str, Mapping[str, Any] | None] = {}
    if answers.exists():
        complete = [line for line in answers.read_text(encoding="utf-8").split("\n")[:-1] if line]
        answers.write_text("".join(f"{line}\n" for line in complete), encoding="utf-8")
        found = dict(map(json.loads, complete))
    missing = [name for name in names if name not in found]
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool, answers.open("a", encoding="utf-8") as log:
        for name, row in zip(missing, pool.map(row_of, missing), strict=True):
            found[name] = row
            log.write(json.dumps([name, row]) + "\n")
    rows = [row for name in names if (row := found[name]) is not None]
    write_snapshot(out, rows)
    answers.unlink()
    return len(rows)


def write_snapshot(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    lines = [json.dumps(row, sort_keys=True) for row in sorted(rows, key=lambda row: row["name"])]
    content = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def read_snapshot(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def add_make_command(
    commands: Any, row_of: Callable[[dict[str, Any]], Row], readme: str, *, per_owner: int, min_documents: int
) -> None:
    """Add the command `make`, which makes the set of a snapshot; `row_of` turns an entry of the snapshot into a row."""
    parser = commands.add_parser("make", help="make the set")
    parser.add_argument("--snapshot", type=Path, required=True, help="the snapshot, .jsonl.gz")
    parser.add_argument("--date", required=True, help="day of the snapshot, for the README")
    parser.add_argument("--out", type=Path, required=True, help="folder of the set")
    parser.add_argument("--per-owner", type=int, default=per_owner)
    parser.add_argument("--test-share", type=float, default=0.25)
    parser.add_argument("--min-documents", type=int, default=min_documents)
    parser.add_argument("--min-train", type=int, default=5, help="minimum training rows per label")
    parser.add_argument("--min-test", type=int, default=1, help="minimum test rows per label")
    parser.set_defaults(run=lambda arguments: make_set(arguments, row_of, readme))


def make_set(arguments: argparse.Namespace, row_of: Callable[[dict[str, Any]], Row], readme: str) -> None:
    """Rows with labels and a few words, limited per owner, split by owner and near-copies, written as files."""
    entries = read_snapshot(arguments.snapshot)
    rows = [row for row in map(row_of, entries) if row.labels and len(row.bag) >= MIN_TERMS]
    train, test = split(at_most_per_source(rows, arguments.per_owner), arguments.test_share)
    rules = {name: getattr(arguments, name) for name in ("min_documents", "min_train", "min_test")}
    chosen = informative(train, test, **rules)
    if not chosen[0] or not chosen[1]:
        raise SystemExit(
            f"{arguments.snapshot}: a part has no row with enough known words and labels; lower the minima"
        )
    rules |= {name: getattr(arguments, name) for name in ("per_owner", "test_share")}
    about = readme.format(
        n_snapshot=len(entries),
        date=arguments.date,
        snapshot_hash=hashlib.sha256(arguments.snapshot.read_bytes()).hexdigest(),
        parameters=", ".join(f"{name} {value}" for name, value in rules.items()),
    )
    write_files(arguments.out, *chosen, about)
