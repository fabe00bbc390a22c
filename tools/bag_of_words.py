"""Words, counts and the file format shared by the scripts that make the embedded data sets.

A set is one `.npz` file without pickled objects. Rows of the training part come first:

    n_train                        rows of the training part
    X_counts, X_terms, X_indptr    CSR word counts: uint8 counts, uint16 columns sorted in each row, uint32 offsets
    Y_labels, Y_indptr             CSR label indicator without its ones: uint16 columns, uint32 offsets
    features                       the terms as UTF-8 bytes, one per line
    n_labels                       number of labels
    nodes                          names of the tree's nodes, same format: the labels, then nodes that are no labels
    parents                        parent of each node as an index into nodes, -1 for a root

The text itself is never written. Equal input gives byte-identical files (members of the archive have no time stamp).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

# Words that contain a letter: "c++", "c#", "x11" and "3d" are terms, "2001" is not.
TERM = re.compile(r"(?=[0-9+#]*[a-z])[a-z0-9][a-z0-9+#]+")
# English function words: they would fill the file and say nothing about any label.
FUNCTION_WORDS = """
    a about after all also although an and any are as at be because been before being between both but by can could
    did do does doing during each either etc for from further had has have having he her here him his how however if in
    into is it its itself just like may might more most much must no nor not now of off on once only onto or other our
    out over own per rather same she should since so some such than that the their them then there these they this
    those through thus to too under until up upon us very via was we were what when where which while who whose why
    will with within without would you your
"""
STOP_WORDS = frozenset(FUNCTION_WORDS.split())
MAX_COUNT = np.iinfo(np.uint8).max


def words(text: str) -> Counter[str]:
    """Counts of the lower-case terms of a text, without function words."""
    found = (match.group() for match in TERM.finditer(text.lower()))
    return Counter(term for term in found if term not in STOP_WORDS)


def stable_order(name: str) -> str:
    """Sort key that shuffles names the same way everywhere, without a random generator and for any number of names."""
    return hashlib.sha256(name.encode()).hexdigest()


def vocabulary(bags: Iterable[Mapping[str, int]], min_documents: int) -> list[str]:
    """Terms that occur in at least `min_documents` bags, sorted."""
    documents: Counter[str] = Counter()
    for bag in bags:
        documents.update(bag.keys())
    return sorted(term for term, count in documents.items() if count >= min_documents)


def rows_of_columns(rows: Iterable[Iterable[str]], columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """CSR columns (uint16, sorted in each row) and offsets (uint32) for rows given as sets of column names."""
    place = {name: column for column, name in enumerate(columns)}
    if len(place) > np.iinfo(np.uint16).max + 1:
        raise SystemExit(f"{len(place)} columns do not fit into uint16: raise the minimum number of documents")
    sorted_rows = [sorted(place[name] for name in row if name in place) for row in rows]
    indptr = np.cumsum([0, *map(len, sorted_rows)], dtype=np.uint32)
    return np.array([column for row in sorted_rows for column in row], dtype=np.uint16), indptr


def write_set(
    path: Path,
    bags: Sequence[Mapping[str, int]],
    labels: Sequence[Iterable[str]],
    *,
    n_train: int,
    features: Sequence[str],
    label_names: Sequence[str],
    parent_of: Mapping[str, str],
    licence: str,
) -> None:
    """Write a set in the format above, and its licence next to it, .LICENSE in place of .npz.

    `parent_of` maps nodes to parents and has no entry for roots.
    """
    terms, indptr = rows_of_columns(bags, features)
    counts = [bag[features[term]] for row, bag in enumerate(bags) for term in terms[indptr[row] : indptr[row + 1]]]
    label_columns, label_indptr = rows_of_columns(labels, label_names)
    inner = sorted({*parent_of, *parent_of.values()} - set(label_names))
    nodes = [*label_names, *inner]
    place = {name: node for node, name in enumerate(nodes)}
    arrays = {
        "n_train": np.array(n_train, dtype=np.uint32),
        "X_counts": np.minimum(counts, MAX_COUNT).astype(np.uint8),
        "X_terms": terms,
        "X_indptr": indptr,
        "Y_labels": label_columns,
        "Y_indptr": label_indptr,
        "features": as_bytes(features),
        "nodes": as_bytes(nodes),
        "parents": np.array([place[parent_of[name]] if name in parent_of else -1 for name in nodes], dtype=np.int16),
        "n_labels": np.array(len(label_names), dtype=np.uint32),
    }
    replace_file(path, lambda temporary: save_npz(temporary, arrays))
    replace_file(path.with_suffix(".LICENSE"), lambda temporary: temporary.write_text(licence, encoding="utf-8"))


def save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as out:
        np.savez_compressed(out, allow_pickle=False, **arrays)


def as_bytes(names: Sequence[str]) -> np.ndarray:
    """Names as UTF-8 bytes, one per line."""
    assert not any("\n" in name for name in names)
    return np.frombuffer("\n".join(names).encode(), dtype=np.uint8)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a temporary file and rename it so that an interrupted run leaves the old file."""
    temporary = path.with_name(path.name + ".part")
    write(temporary)
    os.replace(temporary, path)
