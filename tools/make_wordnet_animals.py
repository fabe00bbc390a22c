"""Make the embedded set `wordnet_animals` from Debian's package `wordnet-base` (WordNet 3.0).

Usage (needs numpy, and the package installed or unpacked; tools/README.md):

    python tools/make_wordnet_animals.py --nouns /usr/share/wordnet/data.noun \
        --copyright /usr/share/doc/wordnet-base/copyright --out src/widemargin/datasets/files

A sample is a noun synset under *animal*: the word counts of its definition (the gloss without its quoted examples; the
names of the synset are not features). Its label is the most specific category it belongs to.

1. Hypernyms form a directed acyclic graph; keeping only the first hypernym makes it a tree.
2. Synsets with fewer than `MIN_TERMS` words, or with the same words as an earlier one, are not samples.
3. From the bottom up, a synset becomes a category if it has at least `--min-samples` samples (itself and all synsets
   below it that have no category yet); otherwise they pass to its hypernym. So every category, including inner ones,
   labels at least that many samples, and no sample is lost. *animal* is the root.
4. In each category every `--test-every`-th sample, in an order shuffled by SHA-256, is a test sample.
5. Vocabulary: words of at least `--min-documents` training samples; rows that lose all words are left out.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bag_of_words import stable_order, vocabulary, words, write_set

ROOT = "animal"
MIN_TERMS = 3  # A shorter definition ("young sheep") only names its category, or says nothing.

NOTICE = """\
wordnet_animals.npz: words of WordNet's definitions of animals, and their hypernym tree
=======================================================================================

Source: WordNet 3.0 as in Debian's package wordnet-base (data.noun), made into numbers by tools/make_wordnet_animals.py.
This is a modified part of the WordNet database: for {n_rows} synsets, how often each word of a vocabulary occurs in the
definition, and the hypernym tree cut down to {n_labels} categories. The definitions themselves are not kept.

The licence of the database, from the package's copyright file, applies:

"""


@dataclass(frozen=True)
class Synset:
    """A noun synset: its first name, its first hypernym (None at the top), and the words of its definition."""

    offset: str
    name: str
    hypernym: str | None
    bag: Counter[str]


def parse_synset(line: str) -> Synset:
    """Parse one line of data.noun; the fields are described in wndb(5)."""
    record, gloss = line.split("|", 1)
    fields = record.split()
    n_names = int(fields[3], 16)
    pointers = fields[5 + 2 * n_names :]
    # Four fields per pointer: symbol, offset, part of speech, source and target; "@" is the hypernym of a class.
    hypernyms = [pointers[i + 1] for i in range(0, len(pointers), 4) if pointers[i] == "@" and pointers[i + 2] == "n"]
    definition = gloss.split('"', 1)[0]
    return Synset(fields[0], fields[4], hypernyms[0] if hypernyms else None, words(definition))


def read_branch(path: Path) -> dict[str, Synset]:
    """The synsets at and below the root, by offset, in file order."""
    with path.open(encoding="ascii") as lines:
        # The file starts with the licence, on lines that start with a blank.
        synsets = {synset.offset: synset for synset in (parse_synset(line) for line in lines if line[0] != " ")}
    root = next(synset.offset for synset in synsets.values() if synset.name == ROOT)
    inside = {root: True}

    def is_inside(offset: str) -> bool:
        if offset not in inside:
            above = synsets[offset].hypernym
            inside[offset] = above is not None and is_inside(above)
        return inside[offset]

    return {offset: synset for offset, synset in synsets.items() if is_inside(offset)}


def samples_of(branch: Mapping[str, Synset]) -> set[str]:
    """Offsets of synsets with enough words and with word counts that no earlier synset has."""
    seen = set()
    found = set()
    for offset, synset in branch.items():
        content = frozenset(synset.bag.items())
        if len(synset.bag) >= MIN_TERMS and content not in seen:
            found.add(offset)
            seen.add(content)
    return found


def bottom_up(branch: Mapping[str, Synset]) -> list[str]:
    """Offsets, each after all synsets below it."""
    depth: dict[str, int] = {}
    for offset in branch:
        path = [offset]
        while path[-1] not in depth and branch[path[-1]].hypernym in branch:
            path.append(str(branch[path[-1]].hypernym))
        for below, node in enumerate(reversed(path)):
            depth.setdefault(node, depth.get(path[-1], 0) + below)
    return sorted(branch, key=lambda offset: -depth[offset])


def categorise(branch: Mapping[str, Synset], min_samples: int) -> tuple[dict[str, str], dict[str, str]]:
    """Category of each sample, and the nearest category above each category except the root, all as offsets."""
    samples = samples_of(branch)
    members: dict[str, list[str]] = defaultdict(list)
    pending: dict[str, list[str]] = defaultdict(list)  # Categories that still need a parent category.
    label_of: dict[str, str] = {}
    parent_of: dict[str, str] = {}
    for offset in bottom_up(branch):
        above = branch[offset].hypernym
        is_root = above not in branch
        mine = members.pop(offset, []) + [offset] * (offset in samples)
        waiting = pending.pop(offset, [])
        if is_root or len(mine) >= min_samples:
            label_of.update(dict.fromkeys(mine, offset))
            parent_of.update(dict.fromkeys(waiting, offset))
            mine, waiting = [], [offset]
        if not is_root:
            members[str(above)] += mine
            pending[str(above)] += waiting
    return label_of, parent_of


def split(label_of: Mapping[str, str], test_every: int) -> tuple[list[str], list[str]]:
    """Training and test samples, with every category divided in the same proportion, both shuffled."""
    by_label: dict[str, list[str]] = defaultdict(list)
    for sample in sorted(label_of, key=stable_order):
        by_label[label_of[sample]].append(sample)
    test = {sample for samples in by_label.values() for sample in samples[test_every - 1 :: test_every]}
    order = sorted(label_of, key=stable_order)
    return [sample for sample in order if sample not in test], [sample for sample in order if sample in test]


def node_names(branch: Mapping[str, Synset], offsets: Sequence[str]) -> dict[str, str]:
    """Names of categories: the first name of the synset, with its offset if the name is not unique."""
    uses = Counter(branch[offset].name for offset in offsets)
    return {
        offset: branch[offset].name if uses[branch[offset].name] == 1 else f"{branch[offset].name}#{offset}"
        for offset in offsets
    }


def licence_text(path: Path) -> str:
    """The paragraph of the copyright file that covers the database, without the licence of the packaging."""
    text = path.read_text(encoding="utf-8").split("\nFiles: debian/*")[0]
    if "WordNet 3.0 Copyright" not in text:
        raise SystemExit(f"{path}: the WordNet 3.0 licence is not in this file; give wordnet-base's copyright file")
    return text.rstrip() + "\n"


def make(arguments: argparse.Namespace) -> None:
    branch = read_branch(arguments.nouns)
    label_of, parent_of = categorise(branch, arguments.min_samples)
    train, test = split(label_of, arguments.test_every)
    features = vocabulary([branch[sample].bag for sample in train], arguments.min_documents)
    train, test = ([s for s in part if branch[s].bag.keys() & set(features)] for part in (train, test))
    rows = [*train, *test]
    names = node_names(branch, sorted(set(label_of.values())))
    assert {label_of[sample] for sample in train} == names.keys()
    write_set(
        arguments.out / "wordnet_animals.npz",
        [branch[sample].bag for sample in rows],
        [{names[label_of[sample]]} for sample in rows],
        n_train=len(train),
        features=features,
        label_names=sorted(names.values()),
        parent_of={names[child]: names[parent] for child, parent in parent_of.items()},
        licence=NOTICE.format(n_rows=len(rows), n_labels=len(names)) + licence_text(arguments.copyright),
    )
    print(f"{len(train)} + {len(test)} synsets, {len(features)} words, {len(names)} categories")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nouns", type=Path, required=True, help="WordNet's data.noun")
    parser.add_argument("--copyright", type=Path, required=True, help="the copyright file of wordnet-base")
    parser.add_argument("--out", type=Path, required=True, help="folder for wordnet_animals.npz and .LICENSE")
    parser.add_argument("--min-samples", type=int, default=12, help="minimum samples per category")
    parser.add_argument("--test-every", type=int, default=4)
    parser.add_argument("--min-documents", type=int, default=2)
    make(parser.parse_args())


if __name__ == "__main__":
    main()
