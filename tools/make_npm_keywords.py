"""Make the set `npm-keywords` from the metadata of packages on npm: their descriptions, and their keywords.

Usage (needs numpy and scipy; the snapshot takes half an hour to download):

    npm pack download-counts@2.20260301.0 && tar --extract --file download-counts-*.tgz package/counts.json
    python tools/make_npm_keywords.py snapshot --counts package/counts.json --count 10000 --out npm.jsonl.gz
    python tools/make_npm_keywords.py make --snapshot npm.jsonl.gz --date 2026-11-17 \
        --out data/npm-keywords

A sample is a package: the words of its name and its one-line description. Its labels are its keywords, chosen freely by
its authors; they are lower-cased, with hyphens in place of spaces and underscores.

1. The snapshot has the `--count` most downloaded packages, at most `--per-scope` per scope (@scope/name).
2. Keep packages with at least one keyword, at most `--per-owner` per owner: the account that hosts the source code, or
   the scope, or the author.
3. Group owners with nearly the same description (Jaccard similarity of word sets). Put whole groups into the test part
   until it is large enough. Neither an owner nor copies of a package are then split between the parts; both facts are
   asserted.
4. Vocabulary: words of at least `--min-documents` training packages. Labels: those with enough positives in both parts.

The files are described at the top of text_sets.py.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bag_of_words import words
from registries import REPOSITORY, add_make_command, download, get_json, owner_of
from text_sets import Row

README = """\
# npm-keywords: descriptions of JavaScript packages, and their keywords

{{sizes}}

Source: manifests of packages on npm (https://registry.npmjs.org/<name>/latest), {n_snapshot} packages, chosen by the
counts of the npm package download-counts 2.20260301.0; snapshot of {date}, SHA-256 {snapshot_hash}; made by
tools/make_npm_keywords.py, whose docstring states the rules. Split by owner; near-identical descriptions never straddle
the split. Parameters: {parameters}.

Licence: descriptions and keywords were published by the authors of each package; the copyright of a description is with
its authors, under the licence of the package. There is no single licence for all of them. The files here contain names
of packages, word weights and keywords, not the texts. The snapshot contains the texts and is not for redistribution.
The package download-counts is under the MIT licence.
"""


def scope_of(name: str) -> str:
    """The scope of a package's name; empty if it has none."""
    return name.partition("/")[0] if name.startswith("@") else ""


def most_downloaded(counts: Mapping[str, int], n: int, per_scope: int) -> list[str]:
    """The `n` names with the most downloads, at most `per_scope` per scope; equal counts in the order of the names."""
    taken: Counter[str] = Counter()
    names = []
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        scope = scope_of(name)
        taken[scope] += 1
        if not scope or taken[scope] <= per_scope:
            names.append(name)
            if len(names) == n:
                break
    return names


def fetch_package(name: str) -> dict[str, Any] | None:
    """What the snapshot keeps of a package, or None if it is gone."""
    found = get_json(f"https://registry.npmjs.org/{name.replace('/', '%2f')}/latest")
    return None if found is None else package_entry(name, found)


def package_entry(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Text and keywords of a package's latest release, and the hash of its owner."""
    repository, author = manifest.get("repository"), manifest.get("author")
    url = repository.get("url") if isinstance(repository, dict) else repository
    url = url.replace("github:", "github.com/") if isinstance(url, str) else ""
    if ":" not in url and not REPOSITORY.search(url):  # "owner/repository" is short for GitHub.
        url = f"github.com/{url}"
    person = author.get("email") or author.get("name") if isinstance(author, dict) else author
    return {
        "name": name,
        "owner": owner_of([url], [scope_of(name), person if isinstance(person, str) else "", name]),
        "description": manifest.get("description") or "",
        "keywords": manifest.get("keywords") or [],
    }


def keywords(found: Any) -> frozenset[str]:
    """Keywords in one spelling, from a list or from a string with commas or spaces between them."""
    if isinstance(found, str):
        found = found.split(",") if "," in found else found.split()
    spelled = (re.sub(r"[\s_]+", "-", word.strip().lower()) for word in found if isinstance(word, str))
    return frozenset(word for word in spelled if word)


def package_row(entry: dict[str, Any]) -> Row:
    """A sample from an entry of the snapshot."""
    return Row(
        entry["name"], entry["owner"], keywords(entry["keywords"]), words(f"{entry['name']} {entry['description']}")
    )


def take_snapshot(arguments: argparse.Namespace) -> None:
    counts = json.loads(arguments.counts.read_text(encoding="utf-8"))
    names = most_downloaded(counts, arguments.count, arguments.per_scope)
    print(f"{download(names, fetch_package, arguments.out)} of {len(names)} packages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    snapshot = commands.add_parser("snapshot", help="download the metadata")
    snapshot.add_argument("--counts", type=Path, required=True, help="counts.json of the npm package download-counts")
    snapshot.add_argument("--count", type=int, required=True, help="number of packages")
    snapshot.add_argument("--per-scope", type=int, default=5)
    snapshot.add_argument("--out", type=Path, required=True, help="the snapshot, .jsonl.gz")
    snapshot.set_defaults(run=take_snapshot)
    add_make_command(commands, package_row, README, per_owner=100, min_documents=2)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
