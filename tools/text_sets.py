"""Rows of words with labels: a split without near-copies, tf-idf, and files in the repository's format.

A set made by `write_files` is a folder:

    train.txt.gz, test.txt.gz              Extreme Classification Repository format: a header `n_samples n_features
                                           n_labels`, then `label,label feature:value …` per row, all zero-based
    labels.txt, vocab.tsv                  names of the labels; terms with their inverse document frequency
    train_packages.txt, test_packages.txt  names of the rows
    README.md                              source, rules, sizes and licence

Values are (1 + ln count) · idf with idf = 1 + ln((1 + n) / (1 + df)) on the n training rows; rows have unit length.
Equal input gives byte-identical files (for the same version of zlib).
"""

from __future__ import annotations

import gzip
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from bag_of_words import replace_file, stable_order, vocabulary

# Texts that share more words than this are the same text with a different version or part name.
NEAR_IDENTICAL = 0.7
MIN_TERMS = 3  # Rows with fewer known words carry no information.
ROWS_PER_BLOCK = 1000  # Bounds the memory of comparing all pairs of rows.


@dataclass(frozen=True)
class Row:
    """One sample: its name, what it shares with its relatives, its labels and its word counts."""

    name: str
    source: str
    labels: frozenset[str]
    bag: Counter[str]


def groups(rows: Sequence[Row], *, single_words: bool) -> list[int]:
    """Group of each row: one group per source, merged if two texts are nearly identical.

    `single_words` says whether words that only one text has count as a difference. In short texts they must.
    """
    place = {term: column for column, term in enumerate(vocabulary([row.bag for row in rows], 2))}
    terms = [[place[term] for term in row.bag if term in place] for row in rows]
    sizes = np.array([len(row.bag) for row in rows] if single_words else [len(row) for row in terms])
    indptr = np.cumsum([0, *map(len, terms)])
    columns = np.array([column for row in terms for column in row], dtype=np.int64)
    sets = csr_array((np.ones(len(columns), dtype=np.int32), columns, indptr), (len(rows), len(place)))
    number = {source: i for i, source in enumerate(sorted({row.source for row in rows}))}
    source_of = np.array([number[row.source] for row in rows])
    links = []
    for start in range(0, len(rows), ROWS_PER_BLOCK):
        common = (sets[start : start + ROWS_PER_BLOCK] @ sets.T).tocoo()
        left, right = common.row + start, common.col
        alike = common.data >= NEAR_IDENTICAL * (sizes[left] + sizes[right] - common.data)
        links.append(np.stack([source_of[left[alike]], source_of[right[alike]]]))
    pairs = np.concatenate(links, axis=1)
    graph = coo_array((np.ones(pairs.shape[1]), tuple(pairs)), (len(number), len(number)))
    component = connected_components(graph, directed=False)[1]
    return [int(component[source]) for source in source_of]


def split(rows: Sequence[Row], test_share: float, *, single_words: bool = True) -> tuple[list[Row], list[Row]]:
    """Training and test part, made of whole `groups`, in the order of the given rows."""
    members: dict[int, list[Row]] = defaultdict(list)
    group_of = dict(zip((row.name for row in rows), groups(rows, single_words=single_words), strict=True))
    for row in rows:
        members[group_of[row.name]].append(row)
    test_names: set[str] = set()
    for group in sorted(members, key=lambda group: stable_order(f"test {members[group][0].source}")):
        if len(test_names) >= test_share * len(rows):
            break
        test_names.update(row.name for row in members[group])
    train = [row for row in rows if row.name not in test_names]
    test = [row for row in rows if row.name in test_names]
    assert not {row.source for row in train} & {row.source for row in test}
    assert not {group_of[row.name] for row in train} & {group_of[row.name] for row in test}
    return train, test


def frequent_labels(train: Sequence[Row], test: Sequence[Row], min_train: int, min_test: int) -> list[str]:
    """Labels with enough positives in both parts, sorted."""
    in_train, in_test = (Counter(label for row in part for label in row.labels) for part in (train, test))
    return sorted(label for label, count in in_train.items() if count >= min_train and in_test[label] >= min_test)


def informative(
    train: Sequence[Row], test: Sequence[Row], *, min_documents: int, min_train: int, min_test: int
) -> tuple[list[Row], list[Row], list[str], list[str]]:
    """Both parts without rows that have too few known words or no known label; the terms; the labels."""
    features = vocabulary([row.bag for row in train], min_documents)
    known = set(features)
    train, test = ([row for row in part if len(known & row.bag.keys()) >= MIN_TERMS] for part in (train, test))
    labels = frequent_labels(train, test, min_train, min_test)
    train, test = ([row for row in part if row.labels & set(labels)] for part in (train, test))
    return train, test, features, labels


def at_most_per_source(rows: Iterable[Row], limit: int) -> list[Row]:
    """At most `limit` rows of each source, the first in an order shuffled by name; the order of the rows is kept."""
    taken: Counter[str] = Counter()
    kept = set()
    rows = list(rows)
    for row in sorted(rows, key=lambda row: stable_order(row.name)):
        taken[row.source] += 1
        if taken[row.source] <= limit:
            kept.add(row.name)
    return [row for row in rows if row.name in kept]


def inverse_document_frequencies(train: Sequence[Row], features: Sequence[str]) -> dict[str, float]:
    """1 + ln((1 + n) / (1 + df)) by term."""
    documents = Counter(term for row in train for term in row.bag)
    return {term: 1.0 + math.log((1 + len(train)) / (1 + documents[term])) for term in features}


def xmc_line(
    row: Row, label_number: Mapping[str, int], term_number: Mapping[str, int], idf: Mapping[str, float]
) -> str:
    """One row in the repository's format."""
    numbers = sorted(label_number[label] for label in row.labels if label in label_number)
    weights = {term_number[t]: (1.0 + math.log(count)) * idf[t] for t, count in row.bag.items() if t in term_number}
    norm = math.sqrt(math.fsum(weight * weight for weight in weights.values()))
    pairs = (f"{term}:{weights[term] / norm:.4g}" for term in sorted(weights))
    return f"{','.join(map(str, numbers))} {' '.join(pairs)}\n"


def write_files(
    folder: Path, train: Sequence[Row], test: Sequence[Row], features: Sequence[str], labels: Sequence[str], readme: str
) -> None:
    """Write the folder described at the top, and print the sizes. `readme` may use {sizes}."""
    folder.mkdir(parents=True, exist_ok=True)
    idf = inverse_document_frequencies(train, features)
    label_number = {name: number for number, name in enumerate(labels)}
    term_number = {term: number for number, term in enumerate(features)}
    for part, rows in (("train", train), ("test", test)):
        lines = [xmc_line(row, label_number, term_number, idf) for row in rows]
        header = f"{len(rows)} {len(features)} {len(labels)}\n"
        write_bytes(folder / f"{part}.txt.gz", gzip.compress((header + "".join(lines)).encode(), mtime=0))
        write_bytes(folder / f"{part}_packages.txt", "".join(f"{row.name}\n" for row in rows).encode())
    write_bytes(folder / "labels.txt", "".join(f"{name}\n" for name in labels).encode())
    write_bytes(folder / "vocab.tsv", "".join(f"{term}\t{idf[term]:.5f}\n" for term in features).encode())
    kept = set(labels)
    per_row = sum(len(row.labels & kept) for row in [*train, *test]) / (len(train) + len(test))
    sizes = f"{len(train)} + {len(test)} rows, {len(features)} features, {len(labels)} labels ({per_row:.2f} per row)"
    write_bytes(folder / "README.md", readme.format(sizes=sizes).encode())
    print(sizes)


def write_bytes(path: Path, content: bytes) -> None:
    replace_file(path, lambda temporary: temporary.write_bytes(content))
