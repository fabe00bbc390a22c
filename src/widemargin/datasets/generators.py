"""Synthetic data of any size that resembles text: extreme multi-label, and labels in a tree.

Label frequencies and word frequencies follow Zipf's law, P(rank r) ∝ r^(−exponent). A row with the labels S is a bag of
t words. Each word comes, with probability `signal`, from the few characteristic features of a label drawn uniformly
from S, and otherwise from a background that is Zipf-distributed over all features; so the labels can be learned. In a
tree, S is the path to the label. Repeated words become counts tf, counts become (1 + log tf) · idf, and rows get length
1.

With topics, labels and words share them, as in text: see `Topics`, and benchmarks/active_negatives.py for how its
constants were matched to real text.

Rows are drawn in blocks of a fixed size, each from its own generator, so the data depends only on the seed and on the
version of NumPy, and the work area only on the block. Memory: the arrays of the result, about 20 % of them spare until
the end, and O(n_labels · features_per_label + n_features). Rows that go to a store are drawn twice, first to count the
rows with each word, and only a block of them is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin._docstrings import with_shared_passages
from widemargin.data.store import open_store
from widemargin.data.stream import write_block_store
from widemargin.files import PathLike

__all__ = ["make_hierarchical", "make_zipf_multilabel", "weigh_and_normalise"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
RandomState: TypeAlias = int | np.random.Generator | None

BLOCK_ROWS = 8192  # rows drawn at once; another value gives other data for the same seed
BISECTIONS = 60  # halvings of an interval of lengths, which exhaust the precision of a float
LARGEST_INT32 = 2**31 - 1
# Random streams of one seed: shared by all rows, lengths of rows, one per block of rows, topics, trial rows.
SHARED, LENGTHS, ROWS, TOPICS, TRIAL = 0, 1, 2, 3, 4

# Topical data; the first three were matched to real text (benchmarks/active_negatives.py).
TOPIC_SHARE = 0.5  # share of the words that do not come from a label which come from the row's topic
TOPIC_WORDS = 1000  # words of a topic, repetitions included
OWN_WORDS_EXPONENT = 2.0  # of Zipf's law over the characteristic words of a label
FOCUS = 0.8  # share of a row's further labels that belong to its topic
TRIALS = 6  # rounds that choose the mean numbers of draws


def cumulative_zipf(n_items: int, exponent: float, offset: float = 0.0) -> Floats:
    """Cumulative probabilities of P(rank r) ∝ (r + offset)^(−exponent); the last is 1."""
    cumulative = np.cumsum((np.arange(1.0, n_items + 1.0) + offset) ** -exponent)
    return np.asarray(cumulative / cumulative[-1])


@dataclass(frozen=True)
class Zipf:
    """A Zipf distribution over 0 … n − 1 in a random order of ranks.

    Parameters
    ----------
    cumulative : ndarray of shape (n,)
        Cumulative probability of the ranks; the last is 1.
    item_of_rank : ndarray of shape (n,)
        The item of each rank.
    """

    cumulative: Floats
    item_of_rank: npt.NDArray[np.int32]

    @classmethod
    def over(cls, n_items: int, exponent: float, rng: np.random.Generator, offset: float = 0.0) -> Zipf:
        """P(rank r) ∝ (r + offset)^(−exponent) over n_items ranks, r from 1."""
        return cls(cumulative_zipf(n_items, exponent, offset), rng.permutation(n_items).astype(np.int32))

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
    offset: float = 0.0,
    features_per_label: int,
    signal: float,
) -> Words:
    """Draw the features of each label, and choose the number of words for about nnz_per_row distinct ones per row."""
    background = Zipf.over(n_features, exponent, rng, offset)
    characteristic = rng.integers(n_features, size=(n_labels, features_per_label), dtype=np.int32)
    reachable = max(labels_per_row * features_per_label, 1.0)

    def expected_nnz(mean_words: float) -> float:
        from_labels = reachable * -np.expm1(-signal * mean_words / reachable)
        from_background = background.expected_distinct(max((1.0 - signal) * mean_words, 1.0)) if signal < 1 else 0.0
        return float(from_labels + from_background)

    return Words(background, characteristic, signal, solve_increasing(expected_nnz, nnz_per_row))


def solve_increasing(function: Callable[[float], float], target: float) -> float:
    """The mean number of draws with function(draws) = target, between 1 and 50 · target (or the nearer end)."""
    low, high = 1.0, 50.0 * max(target, 1.0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return low


def generator_of(seed: int, *key: int) -> np.random.Generator:
    """The independent random stream `key` of a seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def seed_of(random_state: RandomState) -> int:
    """The seed: random_state itself, a draw from a generator, or fresh entropy."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if random_state is None:
        return int(np.random.default_rng().integers(2**63))
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state must be None, a nonnegative integer or a NumPy Generator; got {random_state!r}")
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
        Upper bound on the number of stored values; unused memory is freed at the end.
    """

    def __init__(self, shape: tuple[int, int], capacity: int) -> None:
        self.shape = shape
        index_type = np.int32 if max(capacity, *shape) <= LARGEST_INT32 else np.int64
        self.data = np.empty(capacity, dtype=np.float32)
        self.indices = np.empty(capacity, dtype=index_type)
        self.indptr = np.zeros(shape[0] + 1, dtype=index_type)
        self.n_rows = 0

    def append(self, n_rows: int, keys: Ints, counts: npt.NDArray[Any]) -> None:
        """Add rows from ascending keys row · n_columns + column, and the values there."""
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
    """Keys row · n_features + feature of the distinct words of each row, ascending, and how often each occurs.

    `lengths` (n_rows,) has the numbers of words; `labels[label_indptr[i]:label_indptr[i+1]]` are the labels of row i.
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


def unique_labels(rows: Ints, labels: npt.NDArray[Any], n_rows: int, n_labels: int) -> tuple[Ints, Ints, Ints]:
    """Keys row · n_labels + label of the distinct labels, ascending; the same as indptr and labels of each row."""
    keys = np.unique(rows * n_labels + labels)
    return keys, np.searchsorted(keys, np.arange(n_rows + 1) * n_labels), keys % n_labels


@dataclass(frozen=True)
class PlainRows:
    """Labels of a row independent of each other; words of its labels and of the background.

    Parameters
    ----------
    frequency : Zipf
        Distribution of labels.
    words : Words
        Where the words come from.
    mean_labels : float
        Mean number of labels drawn for a row, repetitions included.
    """

    frequency: Zipf
    words: Words
    mean_labels: float

    def lengths(self, rng: np.random.Generator, n_rows: int) -> tuple[Ints, Ints]:
        """Numbers of labels and words to draw, (n_rows,) each."""
        n_draws = lengths_of_rows(rng, self.mean_labels, n_rows)
        return n_draws, lengths_of_rows(rng, self.words.mean_words, n_rows)

    def draw(self, rng: np.random.Generator, n_draws: Ints, n_words: Ints) -> tuple[Ints, Ints, Ints]:
        """Keys of the labels of some rows, keys of their words, and how often each word occurs."""
        n_rows, n_labels = len(n_draws), len(self.frequency.cumulative)
        rows = np.repeat(np.arange(n_rows, dtype=np.int64), n_draws)
        keys, indptr, labels = unique_labels(rows, self.frequency.draw(rng, len(rows)), n_rows, n_labels)
        return keys, *draw_words(rng, self.words, n_words, indptr, labels)


@dataclass(frozen=True)
class Topics:
    """What labels and words share: every label and every row has a topic, and every topic its own words.

    All words of topics and labels are drawn from the background's law, so this is also the law of all words together.

    Parameters
    ----------
    words : int32 ndarray of shape (n_topics, TOPIC_WORDS)
        Words of each topic, Zipf-distributed with exponent 1.
    of_label : int32 ndarray of shape (n_labels,)
        Topic of each label.
    by_topic : int32 ndarray of shape (n_labels,)
        Labels in order of their topics.
    cumulative : ndarray of shape (n_labels,)
        Cumulative probability of the labels in this order.
    bounds : ndarray of shape (n_topics + 1,)
        Cumulative probability of the topics, from 0 to 1.
    """

    words: npt.NDArray[np.int32]
    of_label: npt.NDArray[np.int32]
    by_topic: npt.NDArray[np.int32]
    cumulative: Floats
    bounds: Floats

    @classmethod
    def over(cls, n_topics: int, frequency: Zipf, background: Zipf, rng: np.random.Generator) -> Topics:
        """Give every label a random topic, and every topic random words."""
        words = background.draw(rng, n_topics * TOPIC_WORDS).reshape(n_topics, TOPIC_WORDS)
        of_label = rng.integers(n_topics, size=len(frequency.cumulative), dtype=np.int32)
        by_topic = np.argsort(of_label, kind="stable").astype(np.int32)
        probability = np.empty(len(of_label))
        probability[frequency.item_of_rank] = np.diff(frequency.cumulative, prepend=0.0)
        cumulative = np.cumsum(probability[by_topic])
        cumulative /= cumulative[-1]
        first = np.searchsorted(of_label[by_topic], np.arange(n_topics + 1))
        return cls(words, of_label, by_topic, cumulative, np.concatenate([[0.0], cumulative])[first])

    def draw_labels(self, rng: np.random.Generator, n_draws: Ints) -> tuple[Ints, npt.NDArray[np.int32]]:
        """Labels, n_draws[i] of row i, and the topics of the rows.

        The first label of a row is drawn from all and gives the row its topic; a further label is drawn, with
        probability FOCUS, from those of the topic. So the law of every draw is that of the first.
        """
        first, uniform = np.cumsum(n_draws) - n_draws, rng.random(int(n_draws.sum()))
        topic = self.of_label[self._labels_at(uniform[first])]
        inside = rng.random(len(uniform)) < FOCUS
        inside[first] = False
        of_draw = np.repeat(topic, n_draws)[inside]
        low, high = self.bounds[of_draw], self.bounds[of_draw + 1]
        uniform[inside] = low + uniform[inside] * (high - low)
        return self._labels_at(uniform), topic

    def _labels_at(self, uniform: Floats) -> Ints:
        """Labels by inversion; an end of a topic may be rounded up to 1."""
        place = np.searchsorted(self.cumulative, uniform, side="right")
        return self.by_topic[np.minimum(place, len(self.by_topic) - 1)].astype(np.int64)

    def draw_words(self, rng: np.random.Generator, topics: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """A word of each of the given topics."""
        rank = np.searchsorted(cumulative_zipf(TOPIC_WORDS, 1.0), rng.random(topics.shape), side="right")
        return np.asarray(self.words[topics, rank])


@dataclass(frozen=True)
class TopicalRows:
    """Most labels of a row have the same topic; words of its labels, of the topic and of the background.

    Lengths of rows are spread as those of texts: exponentially distributed means.

    Parameters
    ----------
    topics : Topics
        The topics.
    words : Words
        Where the words come from. Every other characteristic word of a label is one of its topic.
    mean_labels : float
        Mean number of labels drawn for a row, repetitions included.
    """

    topics: Topics
    words: Words
    mean_labels: float

    @classmethod
    def over(
        cls,
        n_topics: int,
        frequency: Zipf,
        words: Words,
        seed: int,
        labels_per_row: float,
        nnz_per_row: float,
    ) -> TopicalRows:
        """Draw topics and characteristic words, then the numbers of draws that give trial rows the wanted means."""
        rng = generator_of(seed, TOPICS)
        topics = Topics.over(n_topics, frequency, words.background, rng)
        for first in range(0, len(words.characteristic), BLOCK_ROWS):  # random numbers take 8 bytes each
            part = words.characteristic[first : first + BLOCK_ROWS]
            part[:] = words.background.draw(rng, part.size).reshape(part.shape)
            topic = topics.of_label[first : first + BLOCK_ROWS, None]
            part[:, 1::2] = topics.draw_words(rng, np.broadcast_to(topic, part[:, 1::2].shape))
        rows = cls(topics, replace(words, mean_words=nnz_per_row), labels_per_row)
        for _ in range(TRIALS):
            rng = generator_of(seed, TRIAL)
            labels, found, _ = rows.draw(rng, *rows.lengths(rng, BLOCK_ROWS))
            n_words = _corrected(rows.words.mean_words, nnz_per_row, len(found) / BLOCK_ROWS)
            n_draws = _corrected(rows.mean_labels, labels_per_row, len(labels) / BLOCK_ROWS)
            rows = cls(topics, replace(words, mean_words=n_words), n_draws)
        return rows

    def lengths(self, rng: np.random.Generator, n_rows: int) -> tuple[Ints, Ints]:
        """Numbers of labels and words to draw, (n_rows,) each."""
        n_draws = lengths_of_rows(rng, self.mean_labels, n_rows)
        means = max(self.words.mean_words - 1.0, 0.0) * rng.exponential(size=n_rows)
        return n_draws, 1 + rng.poisson(means).astype(np.int64)

    def draw(self, rng: np.random.Generator, n_draws: Ints, n_words: Ints) -> tuple[Ints, Ints, Ints]:
        """Keys of the labels of some rows, keys of their words, and how often each word occurs."""
        n_rows, n_labels = len(n_draws), len(self.topics.of_label)
        drawn, topic = self.topics.draw_labels(rng, n_draws)
        rows = np.repeat(np.arange(n_rows, dtype=np.int64), n_draws)
        label_keys, indptr, labels = unique_labels(rows, drawn, n_rows, n_labels)
        rows = np.repeat(np.arange(n_rows, dtype=np.int64), n_words)
        source = rng.random(len(rows))
        of_label = np.flatnonzero(source < self.words.signal)
        of_topic = np.flatnonzero(
            (source >= self.words.signal) & (source < self.words.signal + TOPIC_SHARE * (1.0 - self.words.signal))
        )
        words = self.words.background.draw(rng, len(rows)).astype(np.int64)
        words[of_topic] = self.topics.draw_words(rng, topic[rows[of_topic]])
        owners = rows[of_label]
        choice = (rng.random(len(owners)) * np.diff(indptr)[owners]).astype(np.int64)
        law = cumulative_zipf(self.words.characteristic.shape[1], OWN_WORDS_EXPONENT)
        rank = np.searchsorted(law, rng.random(len(owners)), side="right")
        words[of_label] = self.words.characteristic[labels[indptr[owners] + choice], rank]
        return label_keys, *np.unique(rows * len(self.words.background.cumulative) + words, return_counts=True)


def _corrected(mean: float, wanted: float, found: float) -> float:
    """The mean number of draws that gives the wanted number of distinct ones, to first order; at most 50 · wanted."""
    return min(1.0 + (mean - 1.0) * (wanted - 1.0) / max(found - 1.0, 1e-9), 50.0 * wanted)


def weigh_and_normalise(X: Any, n_train: int) -> Any:
    """Turn counts into (1 + log tf) · idf with rows of length 1, in place.

    idf = 1 + log((1 + n) / (1 + df)), with n the first n_train rows and df the number of them with the feature.
    """
    n_rows_with = np.zeros(X.shape[1])
    for first in range(0, n_train, BLOCK_ROWS):  # in blocks, since bincount copies int32 to int64
        part = slice(X.indptr[first], X.indptr[min(first + BLOCK_ROWS, n_train)])
        n_rows_with += np.bincount(X.indices[part], minlength=X.shape[1])
    return weigh_by(X, idf_of(n_rows_with, n_train))


def idf_of(n_rows_with: Floats, n_rows: int) -> Floats:
    """1 + log((1 + n) / (1 + df)) of each feature."""
    return np.asarray(1.0 + np.log((1.0 + n_rows) / (1.0 + n_rows_with)))


def weigh_by(X: Any, idf: Floats) -> Any:
    """Turn counts into (1 + log tf) · idf with rows of length 1, in place."""
    for first in range(0, X.shape[0], BLOCK_ROWS):
        bounds = X.indptr[first : first + BLOCK_ROWS + 1]
        part = slice(bounds[0], bounds[-1])
        values = (1.0 + np.log(X.data[part].astype(np.float64))) * idf[X.indices[part]]
        # Every row has a word, so reduceat sees no empty segment.
        norms = np.sqrt(np.add.reduceat(values**2, bounds[:-1] - bounds[0]))
        X.data[part] = values / np.repeat(norms, np.diff(bounds))
    return X


@dataclass(frozen=True)
class BlocksOfRows:
    """Rows with labels that are drawn block by block, each block from its own generator.

    Parameters
    ----------
    rows : PlainRows or TopicalRows
        How they are drawn.
    seed : int
        The seed.
    n_draws, n_words : int64 ndarrays of shape (n_samples,)
        Numbers of labels and words to draw.
    n_features, n_labels : int
        Numbers of columns.
    """

    rows: PlainRows | TopicalRows
    seed: int
    n_draws: Ints
    n_words: Ints
    n_features: int
    n_labels: int

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of X and Y."""
        return (len(self.n_draws), self.n_features), (len(self.n_draws), self.n_labels)

    def __iter__(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        """Number of rows, keys of labels, keys of words, and counts of words, for each block."""
        for block, first in enumerate(range(0, len(self.n_draws), BLOCK_ROWS)):
            part = slice(first, first + BLOCK_ROWS)
            n_draws, n_words = self.n_draws[part], self.n_words[part]
            yield len(n_draws), *self.rows.draw(generator_of(self.seed, ROWS, block), n_draws, n_words)

    def in_memory(self) -> tuple[Any, Any]:
        """X and Y."""
        X = CsrBuilder(self.shapes[0], int(self.n_words.sum()))
        Y = CsrBuilder(self.shapes[1], int(self.n_draws.sum()))
        for n_rows, labels, words, counts in self:
            Y.append(n_rows, labels, np.ones(len(labels)))
            X.append(n_rows, words, counts)
        return weigh_and_normalise(X.finish(), len(self.n_draws)), Y.finish()

    def in_store(self, folder: PathLike) -> tuple[Any, Any]:
        """The same, written to a store and mapped."""
        n_rows_with, n_values = np.zeros(self.n_features), np.zeros(2, dtype=np.int64)
        for _, labels, words, _ in self:
            n_rows_with += np.bincount(words % self.n_features, minlength=self.n_features)
            n_values += len(words), len(labels)
        idf = idf_of(n_rows_with, len(self.n_draws))
        write_block_store(folder, self.shapes, (int(n_values[0]), int(n_values[1])), self._weighed(idf))
        store = open_store(folder)
        return store.X, store.Y

    def _weighed(self, idf: Floats) -> Iterator[tuple[Any, Any]]:
        for n_rows, labels, words, counts in self:
            X = CsrBuilder((n_rows, self.n_features), len(words))
            Y = CsrBuilder((n_rows, self.n_labels), len(labels))
            X.append(n_rows, words, counts)
            Y.append(n_rows, labels, np.ones(len(labels)))
            yield weigh_by(X.finish(), idf), Y.finish()


@with_shared_passages
def make_zipf_multilabel(
    n_samples: int,
    n_features: int,
    n_labels: int,
    *,
    labels_per_row: float = 5.0,
    nnz_per_row: float = 75.0,
    exponent: float = 1.0,
    word_exponent: float | None = None,
    word_offset: float = 0.0,
    features_per_label: int = 10,
    signal: float = 0.5,
    n_topics: int | None = None,
    folder: PathLike | None = None,
    random_state: RandomState = None,
) -> tuple[Any, Any]:
    """Extreme multi-label data: Zipf-distributed labels, each with characteristic words.

    Parameters
    ----------
    n_samples, n_features, n_labels : int
        Size of the data; all at least 1.
    labels_per_row : float
        Mean number of labels per row, from 1 to n_labels; every row has at least one.
    <nnz_and_exponent>
    word_exponent : float, optional
        Exponent for the background words, if it differs.
    word_offset : float
        Makes the most frequent background words more alike, P(rank r) ∝ (r + word_offset)^(−word_exponent), as if
        stop words were left out.
    features_per_label : int
        Number of characteristic features per label; labels may share some by chance.
    signal : float
        Share of words, from 0 to 1, that come from the row's labels and not from the background.
    n_topics : int, optional
        Number of topics that labels and words share. Every label has a topic. Most labels of a row have the same topic,
        half of the words that do not come from its labels come from the topic's own vocabulary, and so does every other
        characteristic word of a label. Rows vary more in length. By default there are no topics. With signal=0.6,
        word_exponent=1.2 and word_offset=100, labels have about as many active negatives as on real text of library
        titles, and words the same frequencies; benchmarks/active_negatives.py has the figures.
    folder : str or path, optional
        Write the rows block by block to a new store here, in bounded memory, and return them mapped. The rows are the
        same and take twice as long.
    <seed>

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), float32
        Rows of length 1.
    Y : csr_array of shape (n_samples, n_labels), float32
        Indicator of the labels.

    Examples
    --------
    >>> from widemargin.datasets.generators import make_zipf_multilabel
    >>> X, Y = make_zipf_multilabel(1000, 500, 200, labels_per_row=3, nnz_per_row=20, random_state=0)
    >>> X.shape, Y.shape, X.dtype
    ((1000, 500), (1000, 200), dtype('float32'))
    >>> bool(2.8 < Y.nnz / 1000 < 3.2), bool(18 < X.nnz / 1000 < 22)
    (True, True)
    """
    _check_sizes(n_samples=n_samples, n_features=n_features, n_labels=n_labels, features_per_label=features_per_label)
    word_exponent = exponent if word_exponent is None else word_exponent
    _check_rows(n_features, nnz_per_row, signal, exponent, word_exponent)
    if not 0 <= word_offset < np.inf:
        raise ValueError(f"word_offset must be finite and nonnegative; got {word_offset}")
    if n_topics is not None:
        _check_sizes(n_topics=n_topics)
    if folder is not None and os.path.exists(folder):  # before the rows are drawn
        raise FileExistsError(f"{os.fspath(folder)} already exists; choose another folder")
    if not 1 <= labels_per_row <= n_labels:
        raise ValueError(f"labels_per_row must be between 1 and n_labels={n_labels}; got {labels_per_row}")
    seed = seed_of(random_state)
    shared, lengths = generator_of(seed, SHARED), generator_of(seed, LENGTHS)
    frequency = Zipf.over(n_labels, exponent, shared)
    words = make_words(
        shared,
        n_features=n_features,
        n_labels=n_labels,
        labels_per_row=labels_per_row,
        nnz_per_row=nnz_per_row,
        exponent=word_exponent,
        offset=word_offset,
        features_per_label=features_per_label,
        signal=signal,
    )
    rows: PlainRows | TopicalRows
    if n_topics is None:
        rows = PlainRows(frequency, words, solve_increasing(frequency.expected_distinct, labels_per_row))
    else:
        rows = TopicalRows.over(n_topics, frequency, words, seed, labels_per_row, nnz_per_row)
    blocks = BlocksOfRows(rows, seed, *rows.lengths(lengths, n_samples), n_features, n_labels)
    return blocks.in_memory() if folder is None else blocks.in_store(folder)


@with_shared_passages
def make_hierarchical(
    n_samples: int,
    n_features: int,
    *,
    n_nodes: int = 200,
    depth: int = 4,
    nnz_per_row: float = 50.0,
    inner_label_share: float = 0.2,
    exponent: float = 1.0,
    features_per_node: int = 10,
    signal: float = 0.5,
    random_state: RandomState = None,
) -> tuple[Any, npt.NDArray[np.str_], dict[str, str]]:
    """Data with one label per row from a random tree; a row has words of its label and of the label's ancestors.

    Level d of the tree has about r^d nodes, with r such that there are n_nodes in total. Each node hangs below a random
    node of the level above, so numbers of children vary and some leaves are not on the last level.

    Parameters
    ----------
    n_samples, n_features : int
        Size of the data.
    n_nodes : int
        Number of nodes of the tree, root included; more than depth.
    depth : int
        Number of levels below the root.
    <nnz_and_exponent>
    inner_label_share : float
        Probability that a row's label is an inner node (not the root); 0 labels only leaves.
    features_per_node : int
        Number of characteristic features per node; nodes may share some by chance.
    signal : float
        Share of words, from 0 to 1, that come from the path to the row's label and not from the background.
    <seed>

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), float32
        Rows of length 1.
    y : str ndarray of shape (n_samples,)
        Names of the nodes, "n1", "n2", …; the root "n0" is not a label.
    parents : dict of str to str
        The parent of every node except the root.

    Examples
    --------
    >>> from widemargin.datasets.generators import make_hierarchical
    >>> X, y, parents = make_hierarchical(100, 50, n_nodes=20, depth=3, nnz_per_row=10, random_state=0)
    >>> X.shape, y.shape, len(parents), parents["n1"]
    ((100, 50), (100,), 19, 'n0')
    """
    _check_sizes(n_samples=n_samples, n_features=n_features, depth=depth, features_per_node=features_per_node)
    _check_rows(n_features, nnz_per_row, signal, exponent)
    if n_nodes <= depth:
        raise ValueError(f"n_nodes must be more than depth={depth}; got n_nodes={n_nodes}")
    seed = seed_of(random_state)
    shared, lengths = generator_of(seed, SHARED), generator_of(seed, LENGTHS)
    parent = _random_tree(n_nodes, depth, shared)
    label = _draw_nodes(parent, n_samples, inner_label_share, exponent, shared)
    paths = _paths(parent, depth)
    words = make_words(
        shared,
        n_features=n_features,
        n_labels=n_nodes,
        labels_per_row=float(np.count_nonzero(paths[label] >= 0)) / n_samples,
        nnz_per_row=nnz_per_row,
        exponent=exponent,
        features_per_label=features_per_node,
        signal=signal,
    )
    n_words = lengths_of_rows(lengths, words.mean_words, n_samples)
    X = CsrBuilder((n_samples, n_features), int(n_words.sum()))
    for block, first in enumerate(range(0, n_samples, BLOCK_ROWS)):
        part = slice(first, first + BLOCK_ROWS)
        on_path = paths[label[part]] >= 0
        indptr = np.concatenate([[0], np.cumsum(on_path.sum(axis=1))])
        nodes = paths[label[part]][on_path]
        X.append(len(indptr) - 1, *draw_words(generator_of(seed, ROWS, block), words, n_words[part], indptr, nodes))
    names = np.array([f"n{node}" for node in range(n_nodes)])
    parents = {str(names[node]): str(names[parent[node]]) for node in range(1, n_nodes)}
    return weigh_and_normalise(X.finish(), n_samples), names[label], parents


def _random_tree(n_nodes: int, depth: int, rng: np.random.Generator) -> Ints:
    """Parent of each node, −1 for the root, node 0; nodes are numbered level by level."""
    levels = np.arange(1, depth + 1)
    with np.errstate(over="ignore"):  # a trial growth of a deep tree may be far too large
        growth = solve_increasing(lambda r: float(np.sum(r**levels)), n_nodes - 1.0)
    # growth ≥ 1, so every level has a node; the last level takes those that rounding down has left.
    sizes = np.floor(growth**levels).astype(np.int64)
    sizes[-1] = n_nodes - 1 - sizes[:-1].sum()
    starts = np.concatenate([[1], 1 + np.cumsum(sizes)])
    parent = np.full(n_nodes, -1, dtype=np.int64)
    for level in range(depth):
        first, last = (starts[level - 1], starts[level]) if level else (0, 1)
        parent[starts[level] : starts[level + 1]] = rng.integers(first, last, size=sizes[level])
    return parent


def _draw_nodes(parent: Ints, n_samples: int, inner_share: float, exponent: float, rng: np.random.Generator) -> Ints:
    """A node for each row: Zipf-distributed over the leaves, or over the inner nodes below the root."""
    if not 0 <= inner_share <= 1:
        raise ValueError(f"inner_label_share must be between 0 and 1; got {inner_share}")
    has_children = np.zeros(len(parent), dtype=np.bool_)
    has_children[parent[1:]] = True
    leaves, inner = np.flatnonzero(~has_children), np.flatnonzero(has_children)[1:]
    if inner_share > 0 and len(inner) == 0:
        raise ValueError("a tree of depth 1 has no inner nodes to label; use inner_label_share=0, or a larger depth")
    is_inner = rng.random(n_samples) < inner_share
    label = leaves[Zipf.over(len(leaves), exponent, rng).draw(rng, n_samples)]
    if inner_share > 0:
        label[is_inner] = inner[Zipf.over(len(inner), exponent, rng).draw(rng, int(is_inner.sum()))]
    return label


def _paths(parent: Ints, depth: int) -> Ints:
    """Nodes from each node up to below the root, then −1; shape (n_nodes, depth)."""
    paths = np.full((len(parent), depth), -1, dtype=np.int64)
    here = np.arange(len(parent))
    for level in range(depth):
        below_root = here > 0
        paths[below_root, level] = here[below_root]
        here = np.where(below_root, parent[here], 0)
    return paths


def _check_sizes(**sizes: int) -> None:
    """Raise unless all sizes are integers of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"{name} must be a positive integer; got {size!r}")


def _check_rows(n_features: int, nnz_per_row: float, signal: float, *exponents: float) -> None:
    """Raise for rows that cannot be drawn."""
    if not 1 <= nnz_per_row <= n_features:
        raise ValueError(f"nnz_per_row must be between 1 and n_features={n_features}; got {nnz_per_row}")
    if not all(0 <= exponent < np.inf for exponent in exponents):
        raise ValueError(f"exponents must be finite and nonnegative; got {exponents}")
    if not 0 <= signal <= 1:
        raise ValueError(f"signal must be between 0 and 1; got {signal}")
