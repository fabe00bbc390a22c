"""Groups of rows that are nearly copies of each other.

Two rows are near-copies if their sets A and B have a Jaccard similarity |A ∩ B| / |A ∪ B| of at least t. The set of a
text consists of its shingles, runs of three words; the set of a sparse row, of its non-zero columns. Rows that are
connected by a chain of near-copies form a group.

All pairs are found, but few are compared (prefix filter; Chaudhuri, Ganti, Kaushik, ICDE 2006). Near-copies have at
least ⌈t|A|⌉ elements in common. If all rows list their elements from the rarest to the most frequent one, then m of
these are among the first |A| − ⌈t|A|⌉ + m of both rows, for any m up to ⌈t|A|⌉. MinHash would miss some pairs. The time
depends on how often the rarest elements of a row occur in other rows. Memory: the sets, and work areas of about
`WORK_ENTRIES` numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from widemargin.labels.tree import IntArray

__all__ = ["near_copy_groups"]

WORD = re.compile(r"\w+")
SHINGLE = 3  # words; one changed word then changes three shingles
ELEMENTS_PER_MATCH = 20  # m = 1 + |A| / 20: short rows have no rare elements to spare, long ones share one by chance
WORK_ENTRIES = 4_000_000
ROUNDING = 1e-9


def near_copy_groups(X: Any, *, threshold: float = 0.7) -> IntArray:
    """Number groups of near-identical rows, so that a split can keep them together.

    Copies of a training row in the test part make a model look better than it is.

    Parameters
    ----------
    X : sequence of str, or sparse matrix of shape (n_samples, n_features)
        Texts, which are compared by runs of three words regardless of case and punctuation, or rows, which are compared
        by their non-zero columns.
    threshold : float, default=0.7
        Smallest Jaccard similarity of near-copies, greater than 0 and at most 1. If one word of a text with n different
        runs changes, the similarity is at least (n − 3) / (n + 3). With 1, only equal sets are found.

    Returns
    -------
    ndarray of int, shape (n_samples,)
        Group of each row, numbered in order of appearance; pass it as `groups`. Chains of near-copies are one group. A
        row without words or non-zero columns is a group of its own.

    Examples
    --------
    >>> from widemargin.model_selection import near_copy_groups
    >>> text = "a library of fast solvers for large problems with many labels, sparse rows and little memory; version"
    >>> near_copy_groups([f"{text} 1", "another library", f"{text} 2", "Another library!"])
    array([0, 1, 0, 1])
    """
    if not (isinstance(threshold, int | float | np.number) and 0.0 < threshold <= 1.0):
        raise ValueError(f"threshold must be greater than 0 and at most 1; got {threshold!r}")
    sets = _columns(X) if sparse.issparse(X) else _shingles(X)
    copy_of, firsts = _equal_rows(sets)
    groups = _connected(sets[firsts], float(threshold))[copy_of]
    # Rows without elements are equal, but that is no sign of a copy.
    empty = np.diff(sets.indptr) == 0
    groups[empty] = len(firsts) + np.arange(np.count_nonzero(empty))
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[number], dtype=np.intp)


def _columns(X: Any) -> Any:
    """The set of non-zero columns of each row."""
    rows = sparse.csr_array(X, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return _from_rarest(rows.indices, rows.indptr)


def _shingles(texts: Any) -> Any:
    """The set of shingles of each text; one starts at every word, and those at the end are shorter."""
    if isinstance(texts, str | bytes):
        raise TypeError("X is a single text; pass a list of texts")
    if getattr(texts, "ndim", 1) != 1:
        raise TypeError("X is a dense matrix, whose rows have no sets of features; pass texts or a sparse matrix")
    number: dict[str, int] = {}
    padding = [0] * (SHINGLE - 1)
    words, lengths = [], []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"X[{row}] is {text!r}; pass one string per row, or a sparse matrix")
        found = WORD.findall(text.lower())
        words += [number.setdefault(word, len(number) + 1) for word in found]
        words += padding
        lengths.append(len(found))
    flat = np.array(words, dtype=np.int64)
    starts = np.flatnonzero(flat)
    shingles = flat[starts]
    for place in range(1, SHINGLE):
        # Numbers of runs of one more word; they stay below the number of words, so the products fit.
        shingles = np.unique(shingles * (len(number) + 1) + flat[starts + place], return_inverse=True)[1]
    return _from_rarest(shingles, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def _from_rarest(elements: IntArray, indptr: npt.NDArray[Any]) -> Any:
    """CSR array of ones with the elements of each row; they are numbered from the rarest one."""
    names, numbered = np.unique(elements, return_inverse=True)
    shape = (len(indptr) - 1, len(names))
    sets = sparse.csr_array((np.ones(len(elements), dtype=np.int32), numbered, indptr), shape=shape)
    sets.sum_duplicates()
    sets.data[:] = 1
    sets = sets[:, np.argsort(np.bincount(sets.indices, minlength=len(names)), kind="stable")]
    sets.sort_indices()
    return sets


def _equal_rows(sets: Any) -> tuple[IntArray, IntArray]:
    """Number of each row's set, and the first row of each set."""
    place: dict[bytes, int] = {}
    keys = (sets.indices[start:stop].tobytes() for start, stop in pairwise(sets.indptr.tolist()))
    number = np.array([place.setdefault(key, len(place)) for key in keys], dtype=np.intp)
    return number, np.unique(number, return_index=True)[1]


def _connected(sets: Any, threshold: float) -> IntArray:
    """Component of each set in the graph of near-copies, shape (n_sets,)."""
    n_sets, sizes = sets.shape[0], np.diff(sets.indptr)
    groups = np.arange(n_sets)
    needed = np.ceil(threshold * sizes - ROUNDING).astype(np.intp)  # common elements, if the other set is not larger
    matches = np.minimum(1 + sizes // ELEMENTS_PER_MATCH, needed)
    place = np.arange(sets.nnz) - np.repeat(sets.indptr[:-1], sizes)
    kept = place < np.repeat(sizes - needed + matches, sizes)
    indptr = np.concatenate([[0], np.cumsum(kept)])[sets.indptr]
    prefixes = sparse.csr_array((sets.data[kept], sets.indices[kept], indptr), shape=sets.shape)
    by_element = sparse.csr_array(prefixes.T)
    for rows in _batches(prefixes @ np.diff(by_element.indptr)):
        candidates = (prefixes[rows] @ by_element).tocoo()
        a, b = candidates.row + rows.start, candidates.col
        likely = (a < b) & (candidates.data >= np.minimum(matches[a], matches[b]))
        a, b = a[likely], b[likely]
        for pairs in _batches(sizes[a] + sizes[b]):
            c, d = a[pairs], b[pairs]
            apart = groups[c] != groups[d]
            c, d = c[apart], d[apart]
            common = np.asarray(sets[c].multiply(sets[d]).sum(axis=1))
            copies = common >= threshold * (sizes[c] + sizes[d] - common) - ROUNDING
            edges = (np.ones(np.count_nonzero(copies)), (groups[c[copies]], groups[d[copies]]))
            groups = connected_components(sparse.coo_array(edges, shape=(n_sets, n_sets)), directed=False)[1][groups]
    return groups


def _batches(costs: npt.NDArray[Any]) -> Iterator[slice]:
    """Slices whose costs add up to at most `WORK_ENTRIES`, or that have one element."""
    ends = np.cumsum(costs, dtype=np.int64)
    start = 0
    while start < len(costs):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + WORK_ENTRIES, side="right")))
        yield slice(start, stop)
        start = stop
