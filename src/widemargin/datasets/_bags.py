"""Random bags of words that depend on labels: the sampling that the generators share.

A row with the labels S is a bag of t words. Each word comes, with probability `signal`, from the few characteristic
features of a label drawn uniformly from S, and otherwise from a background that is Zipf-distributed over all
features:  P(feature of rank r) ∝ r^(−exponent).  Repeated words become counts tf, counts become (1 + log tf) · idf, and
rows get length 1.

Rows are drawn in blocks of a fixed size, each from a generator of its own, so that the data depends on the seed only
and the work area on the block only. Memory: the arrays of the result, of which some 20 % are spare until the end,
and O(n_labels · features_per_label + n_features).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

__all__: list[str] = []

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

# Rows drawn at once. Part of what a seed means: another value gives other data.
BLOCK_ROWS = 8192
# Halvings of an interval of lengths; 60 exhaust the precision of a float.
BISECTIONS = 60
LARGEST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Zipf:
    """A Zipf distribution over 0 … n − 1 in a random order of ranks.

    Parameters
    ----------
    cumulative : ndarray of shape (n,)
        Cumulative probability of the ranks; the last is 1.
    item_of_rank : ndarray of shape (n,)
        Which item has the rank.
    """

    cumulative: Floats
    item_of_rank: npt.NDArray[np.int32]

    @classmethod
    def over(cls, n_items: int, exponent: float, rng: np.random.Generator) -> Zipf:
        """P(rank r) ∝ r^(−exponent) over n_items ranks, r from 1."""
        cumulative = np.cumsum(np.arange(1.0, n_items + 1.0) ** -exponent)
        return cls(cumulative / cumulative[-1], rng.permutation(n_items).astype(np.int32))

    def draw(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.int32]:
        """Independent items, by inversion; shape (size,)."""
        # In range: the last cumulative value is x / x = 1, and a uniform number is below 1.
        return self.item_of_rank[np.searchsorted(self.cumulative, rng.random(size), side="right")]

    def expected_distinct(self, mean_draws: float) -> float:
        """Expected number of different items in 1 + Poisson(mean_draws − 1) draws: Σ 1 − (1 − p)·exp(−(mean − 1)·p)."""
        p = np.diff(self.cumulative, prepend=0.0)
        return float(np.sum(1.0 - (1.0 - p) * np.exp(-(mean_draws - 1.0) * p)))


@dataclass(frozen=True)
class Words:
    """Where the words of a row come from.

    Parameters
    ----------
    background : Zipf
        Distribution over all features.
    characteristic : int32 ndarray of shape (n_labels, features_per_label)
        Features of each label.
    signal : float
        Probability that a word comes from a label of its row.
    mean_words : float
        Mean number of words in a row, repetitions included.
    """

    background: Zipf
    characteristic: npt.NDArray[np.int32]
    signal: float
    mean_words: float


def make_words(
    rng: np.random.Generator,
    *,
    n_features: int,
    n_labels: int,
    labels_per_row: float,
    nnz_per_row: float,
    exponent: float,
    features_per_label: int,
    signal: float,
) -> Words:
    """Draw each label's features, and choose the number of words for about nnz_per_row different ones in a row."""
    background = Zipf.over(n_features, exponent, rng)
    characteristic = rng.integers(n_features, size=(n_labels, features_per_label), dtype=np.int32)
    reachable = max(labels_per_row * features_per_label, 1.0)

    def expected_nnz(mean_words: float) -> float:
        from_labels = reachable * -np.expm1(-signal * mean_words / reachable)
        from_background = background.expected_distinct(max((1.0 - signal) * mean_words, 1.0)) if signal < 1 else 0.0
        return float(from_labels + from_background)

    return Words(background, characteristic, signal, solve_increasing(expected_nnz, nnz_per_row))


def solve_increasing(function: Callable[[float], float], target: float) -> float:
    """The mean number of draws ≥ 1 with function(draws) = target, within 1 and 50 · target (or the nearer end)."""
    low, high = 1.0, 50.0 * max(target, 1.0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return low


def generator_of(seed: int, *key: int) -> np.random.Generator:
    """The independent stream number `key` of a seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def seed_of(random_state: int | np.random.Generator | None) -> int:
    """A number that stands for random_state: itself, a draw from a generator, or fresh entropy."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.default_rng().integers(2**63))
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state must be None, a number from 0 up or a numpy Generator; got {random_state!r}")
    return int(random_state)


def lengths_of_rows(rng: np.random.Generator, mean: float, n_rows: int) -> Ints:
    """1 + Poisson(mean − 1) for each row."""
    return 1 + rng.poisson(max(mean - 1.0, 0.0), size=n_rows).astype(np.int64)


class CsrBuilder:
    """A CSR array that is filled block by block into arrays allocated once.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns.
    capacity : int
        Upper bound on the stored values; what is not used is given back at the end.
    """

    def __init__(self, shape: tuple[int, int], capacity: int) -> None:
        self.shape = shape
        index_type = np.int32 if max(capacity, *shape) <= LARGEST_INT32 else np.int64
        self.data = np.empty(capacity, dtype=np.float32)
        self.indices = np.empty(capacity, dtype=index_type)
        self.indptr = np.zeros(shape[0] + 1, dtype=index_type)
        self.n_rows = 0

    def append(self, n_rows: int, keys: Ints, counts: npt.NDArray[Any]) -> None:
        """Add rows from ascending keys row · n_columns + column, and the values at those places."""
        rows, columns = np.divmod(keys, self.shape[1])
        start = int(self.indptr[self.n_rows])
        self.indices[start : start + len(keys)] = columns
        self.data[start : start + len(keys)] = counts
        ends = start + np.cumsum(np.bincount(rows, minlength=n_rows))
        self.indptr[self.n_rows + 1 : self.n_rows + n_rows + 1] = ends
        self.n_rows += n_rows

    def finish(self) -> Any:
        """The CSR array; the builder must not be used afterwards."""
        n_stored = int(self.indptr[-1])
        self.data.resize(n_stored, refcheck=False)
        self.indices.resize(n_stored, refcheck=False)
        return sparse.csr_array((self.data, self.indices, self.indptr), shape=self.shape)


def draw_words(
    rng: np.random.Generator, words: Words, lengths: Ints, label_indptr: Ints, labels: npt.NDArray[Any]
) -> tuple[Ints, Ints]:
    """Keys row · n_features + feature of the different words of each row, ascending, and how often each occurs.

    `lengths` (n_rows,) is the number of words; `labels[label_indptr[i]:label_indptr[i+1]]` are the labels of row i.
    """
    n_features = len(words.background.cumulative)
    rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    is_signal = rng.random(len(rows)) < words.signal
    features = np.empty(len(rows), dtype=np.int64)
    features[~is_signal] = words.background.draw(rng, int(np.count_nonzero(~is_signal)))
    owners = rows[is_signal]
    choice = (rng.random(len(owners)) * np.diff(label_indptr)[owners]).astype(np.int64)
    chosen = labels[label_indptr[owners] + choice]
    features[is_signal] = words.characteristic[chosen, rng.integers(words.characteristic.shape[1], size=len(owners))]
    keys, counts = np.unique(rows * n_features + features, return_counts=True)
    return keys, counts


def weigh_and_normalise(X: Any) -> Any:
    """Turn counts into (1 + log tf) · idf with idf = 1 + log((1 + n) / (1 + df)), rows of length 1; X is changed."""
    n_samples, n_features = X.shape
    blocks = [X.indptr[first : first + BLOCK_ROWS + 1] for first in range(0, n_samples, BLOCK_ROWS)]
    n_rows_with = np.zeros(n_features)
    for bounds in blocks:  # in blocks, as bincount copies int32 to int64
        n_rows_with += np.bincount(X.indices[bounds[0] : bounds[-1]], minlength=n_features)
    idf = 1.0 + np.log((1.0 + n_samples) / (1.0 + n_rows_with))
    for bounds in blocks:
        part = slice(bounds[0], bounds[-1])
        values = (1.0 + np.log(X.data[part].astype(np.float64))) * idf[X.indices[part]]
        # Every row has a word, so that reduceat sees no empty segment.
        norms = np.sqrt(np.add.reduceat(values**2, bounds[:-1] - bounds[0]))
        X.data[part] = values / np.repeat(norms, np.diff(bounds))
    return X
