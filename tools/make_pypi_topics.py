"""Make the set `pypi-topics` from the metadata of projects on PyPI: their descriptions, and the topics they claim.

Usage (needs numpy and scipy; the snapshot takes half an hour to download):

    curl --output simple.html https://pypi.org/simple/
    python tools/make_pypi_topics.py snapshot --index simple.html --count 21000 --out pypi.jsonl.gz
    python tools/make_pypi_topics.py make --snapshot pypi.jsonl.gz --date 2026-11-17 \
        --out data/pypi-topics

A sample is a project: the words of its name, summary and description (usually the README). Its labels are the
classifiers "Topic" and "Framework" of its latest release, chosen by its authors from a fixed list. Version numbers are
dropped ("Framework :: Django :: 4.2" is "Framework :: Django"); classifiers above a chosen one are not added.

1. The snapshot has the first `--count` projects of the index in an order shuffled by SHA-256.
2. Keep projects with at least one label, at most `--per-owner` per owner: the account that hosts the source code, or
   the author's address or name.
3. Group owners with nearly the same description (Jaccard similarity of word sets). Put whole groups into the test part
   until it is large enough. Neither an owner nor copies of a README are then split between the parts; both facts are
   asserted.
4. Vocabulary: words of at least `--min-documents` training projects. Labels: those with enough positives in both parts.

The files are described at the top of text_sets.py.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bag_of_words import stable_order, words
from registries import add_make_command, download, get_json, owner_of
from text_sets import Row

KINDS = ("Topic :: ", "Framework :: ")
VERSION = re.compile(r"v?\d+(\.\d+)*")

README = """\
# pypi-topics: descriptions of Python projects, and their topics

{{sizes}}

Source: metadata of projects on the Python Package Index (https://pypi.org/pypi/<name>/json), {n_snapshot} projects,
snapshot of {date}, SHA-256 {snapshot_hash}; made by tools/make_pypi_topics.py, whose docstring states the rules. Split
by owner; near-identical descriptions never straddle the split. Parameters: {parameters}.

Licence: descriptions and classifiers were published by the authors of each project; the copyright of a description is
with its authors, under the licence of the project. There is no single licence for all of them. The files here contain
names of projects, word weights and classifiers, not the texts. The snapshot contains the texts and is not for
redistribution.
"""


def names_in_index(page: str) -> list[str]:
    """Names of the projects in the page of PyPI's simple index, in a stable shuffled order."""
    return sorted(re.findall(r'<a href="(?:/simple/)?([^"/]+)/"', page), key=stable_order)


def fetch_project(name: str) -> dict[str, Any] | None:
    """What the snapshot keeps of a project, or None if it is gone."""
    found = get_json(f"https://pypi.org/pypi/{name}/json")
    return None if found is None else project_entry(name, found["info"])


def project_entry(name: str, info: dict[str, Any]) -> dict[str, Any]:
    """Text and classifiers of a project's latest release, and the hash of its owner."""
    urls = [info.get("home_page") or "", *(info.get("project_urls") or {}).values()]
    people = [info.get(key) or "" for key in ("author_email", "maintainer_email", "author", "maintainer")]
    return {
        "name": name,
        "owner": owner_of(urls, [*people, name]),
        "summary": info.get("summary") or "",
        "description": info.get("description") or "",
        "classifiers": info.get("classifiers") or [],
    }


def topics(classifiers: Iterable[str]) -> frozenset[str]:
    """Classifiers that say what a project is about, without version numbers."""
    chosen = (classifier.split(" :: ") for classifier in classifiers if classifier.startswith(KINDS))
    return frozenset(" :: ".join(part for part in parts if not VERSION.fullmatch(part)) for parts in chosen)


def project_row(entry: dict[str, Any]) -> Row:
    """A sample from an entry of the snapshot."""
    text = f"{entry['name']} {entry['summary']} {entry['description']}"
    return Row(entry["name"], entry["owner"], topics(entry["classifiers"]), words(text))


def take_snapshot(arguments: argparse.Namespace) -> None:
    names = names_in_index(arguments.index.read_text(encoding="utf-8"))[: arguments.count]
    print(f"{download(names, fetch_project, arguments.out)} of {len(names)} projects")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    snapshot = commands.add_parser("snapshot", help="download the metadata")
    snapshot.add_argument("--index", type=Path, required=True, help="the page https://pypi.org/simple/")
    snapshot.add_argument("--count", type=int, required=True, help="number of projects")
    snapshot.add_argument("--out", type=Path, required=True, help="the snapshot, .jsonl.gz")
    snapshot.set_defaults(run=take_snapshot)
    add_make_command(commands, project_row, README, per_owner=20, min_documents=3)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
