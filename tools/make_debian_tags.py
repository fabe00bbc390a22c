"""Make the embedded set `debian_tags` from Debian's package metadata.

Usage (Debian 12 or a later release whose Packages file has Tag fields; needs numpy and scipy):

    python tools/make_debian_tags.py --packages Packages.xz --translation Translation-en.xz \
        --release "Debian 12.15 (bookworm), main, amd64" --out src/widemargin/datasets/files

`Packages` and `Translation-en` are the archive's own files, plain, gzip or xz, from any mirror
(`dists/<release>/main/binary-amd64/Packages.xz`, `dists/<release>/main/i18n/Translation-en.xz`) or apt's copies of them
(tools/README.md).

A sample is a binary package: the word counts of its name, its one-line description and its long description. Its labels
are its tags `facet::tag`; the tree is facet → tag.

1. Keep packages with at least `--min-tags` tags ("TODO" tags do not count), at most `--per-source` per source package.
2. Take source packages in an order shuffled by SHA-256 until there are `--samples` packages.
3. Group source packages with nearly the same description (Jaccard similarity of word sets). Put whole groups into the
   test part until it is large enough. Neither binaries of one source nor versions such as gcc-11 and gcc-12 are then
   split between the parts; both facts are asserted.
4. Vocabulary: words of at least `--min-documents` training packages. Labels: tags with enough positives in both parts.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import lzma
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from bag_of_words import stable_order, words, write_set
from text_sets import Row, informative, split

LICENCE = """\
debian_tags.npz: words of Debian package descriptions, and the packages' tags
=============================================================================

Source: the files Packages and Translation-en (uncompressed) of {release},
    Packages        SHA-256 {packages_hash}
    Translation-en  SHA-256 {translation_hash}
made into numbers by tools/make_debian_tags.py.

What is kept: for {n_rows} packages, how often each word of a vocabulary of single words occurs in the package's name
and description, and which tags the package carries. What is not kept: the descriptions, their word order, and the names
of the packages.

Descriptions are written by the maintainers of each package and are part of its packaging (debian/control); their
copyright is with those authors, and each is distributed by Debian under the licence of its package, as stated in
/usr/share/doc/<package>/copyright. All are in Debian's section "main", hence free under the Debian Free Software
Guidelines, but there is no single licence for all of them. The index files are an aggregate of them.

Tags were assigned by the contributors of Debtags (https://wiki.debian.org/Debtags) and are published in the same index
files. We know of no separate licence of the assignments; the package `debtags`, which carries the list of tags, is
Copyright (C) 2003-2005 Enrico Zini et al. and distributed under the GNU General Public License, version 2.

Word counts and tag names are facts about these texts; the makers of widemargin claim no rights in them. The licence of
widemargin (BSD-3-Clause) covers the script and the loader, not this data.
"""


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a plain, gzip or xz file."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    return cast(BinaryIO, lzma.open(path)) if path.suffix == ".xz" else path.open("rb")


def sha256_of(path: Path) -> str:
    """Hash of the uncompressed content of a file."""
    with open_bytes(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """Paragraphs of a plain or compressed Debian control file, as field → value with continuation lines."""
    fields: dict[str, str] = {}
    name = ""
    with io.TextIOWrapper(open_bytes(path), encoding="utf-8") as lines:
        for line in lines:
            if line == "\n":
                if fields:
                    yield fields
                fields = {}
            elif line[0] in " \t":
                fields[name] += line
            else:
                name, value = line.split(":", 1)
                fields[name] = value
    if fields:
        yield fields


def read_packages(packages: Path, translation: Path) -> list[Row]:
    """All tagged packages with their words, sorted by name."""
    texts = {
        (entry["Package"].strip(), entry["Description-md5"].strip()): entry["Description-en"]
        for entry in paragraphs(translation)
    }
    found = {}
    for entry in paragraphs(packages):
        if "Tag" not in entry:
            continue
        name = entry["Package"].strip()
        source = entry.get("Source", name).split()[0]  # The field may end with a version in brackets.
        tags = frozenset(tag for tag in entry["Tag"].replace(",", " ").split() if not tag.endswith("::TODO"))
        text = texts[name, entry["Description-md5"].strip()]
        found[name] = Row(name, source, tags, words(f"{name} {text}"))
    if not found:
        raise SystemExit(f"{packages}: no package has a Tag field; use the Packages file of Debian 12")
    return [found[name] for name in sorted(found)]


def select(packages: Sequence[Row], *, min_tags: int, per_source: int, n_samples: int) -> list[Row]:
    """Packages with enough tags, taking whole sources in a stable shuffled order until there are enough."""
    by_source: dict[str, list[Row]] = defaultdict(list)
    for package in packages:
        if len(package.labels) >= min_tags and len(by_source[package.source]) < per_source:
            by_source[package.source].append(package)
    chosen: list[Row] = []
    for source in sorted(by_source, key=stable_order):
        if len(chosen) >= n_samples:
            break
        chosen.extend(by_source[source])
    return chosen


def make(arguments: argparse.Namespace) -> None:
    packages = select(
        read_packages(arguments.packages, arguments.translation),
        min_tags=arguments.min_tags,
        per_source=arguments.per_source,
        n_samples=arguments.samples,
    )
    train, test = split(packages, arguments.test_share, single_words=False)
    train, test, features, tags = informative(
        train,
        test,
        min_documents=arguments.min_documents,
        min_train=arguments.min_train,
        min_test=arguments.min_test,
    )
    rows = [*train, *test]
    notice = LICENCE.format(
        release=arguments.release,
        packages_hash=sha256_of(arguments.packages),
        translation_hash=sha256_of(arguments.translation),
        n_rows=len(rows),
    )
    write_set(
        arguments.out / "debian_tags.npz",
        [p.bag for p in rows],
        [p.labels for p in rows],
        n_train=len(train),
        features=features,
        label_names=tags,
        parent_of={tag: tag.split("::")[0] for tag in tags},
        licence=notice,
    )
    print(f"{len(train)} + {len(test)} packages, {len(features)} words, {len(tags)} tags")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="Packages, plain, .gz or .xz")
    parser.add_argument("--translation", type=Path, required=True, help="Translation-en, plain, .gz or .xz")
    parser.add_argument("--release", required=True, help="release of the files, for the licence notice")
    parser.add_argument("--out", type=Path, required=True, help="folder for debian_tags.npz and debian_tags.LICENSE")
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--min-tags", type=int, default=4)
    parser.add_argument("--per-source", type=int, default=2)
    parser.add_argument("--test-share", type=float, default=0.25)
    parser.add_argument("--min-documents", type=int, default=3)
    parser.add_argument("--min-train", type=int, default=15, help="minimum training packages per tag")
    parser.add_argument("--min-test", type=int, default=3, help="minimum test packages per tag")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
