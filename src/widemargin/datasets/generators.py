"""Synthetic data of any size in the likeness of text: extreme multi-label, and labels in a tree.

Label frequencies and word frequencies follow Zipf's law, P(rank r) ∝ r^(−exponent), and every label (or node of the
tree) has a few characteristic features that turn up in its rows, so that the labels can be learnt. Values are
(1 + log tf) · idf with rows of length 1. The same seed gives the same data with the same version of NumPy; memory is
that of the result plus a block of rows (see `widemargin.datasets._bags`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.datasets._bags import (
    BLOCK_ROWS,
    CsrBuilder,
    Ints,
    Words,
    Zipf,
    draw_words,
    generator_of,
    lengths_of_rows,
    make_words,
    seed_of,
    solve_increasing,
    weigh_and_normalise,
)

__all__ = ["make_hierarchical", "make_zipf_multilabel"]

# Streams of random numbers of one seed: what all rows share, lengths of rows, and one stream a block of rows.
SHARED, LENGTHS, ROWS = 0, 1, 2


def make_zipf_multilabel(
    n_samples: int,
    n_features: int,
    n_labels: int,
    *,
    labels_per_row: float = 5.0,
    nnz_per_row: float = 75.0,
    exponent: float = 1.0,
    word_exponent: float | None = None,
    features_per_label: int = 10,
    signal: float = 0.5,
    random_state: int | np.random.Generator | None = None,
) -> tuple[Any, Any]:
    """Extreme multi-label data: Zipf-distributed labels, each with characteristic words.

    Parameters
    ----------
    n_samples, n_features, n_labels : int
        Size of the data; all at least 1.
    labels_per_row : float
        Mean number of labels of a row, from 1 to n_labels; every row has one at least.
    nnz_per_row : float
        Mean number of non-zero features of a row, met within some per cent unless n_features is hardly larger.
    exponent : float
        Of Zipf's law, for labels and for background words; 0 is uniform.
    word_exponent : float, optional
        That of the background words, if it is another one.
    features_per_label : int
        Number of characteristic features of a label; they are shared with other labels by chance.
    signal : float
        Share of words, from 0 to 1, that come from the row's labels and not from the background.
    random_state : int, numpy Generator or None
        Seed; the same number gives the same data.

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
    for given in (exponent, word_exponent):
        _check_shape_of_rows(n_features, nnz_per_row, given, signal)
    if not 1 <= labels_per_row <= n_labels:
        raise ValueError(f"labels_per_row must lie between 1 and n_labels={n_labels}; got {labels_per_row}")
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
        features_per_label=features_per_label,
        signal=signal,
    )
    n_draws = lengths_of_rows(lengths, solve_increasing(frequency.expected_distinct, labels_per_row), n_samples)
    n_words = lengths_of_rows(lengths, words.mean_words, n_samples)
    X = CsrBuilder((n_samples, n_features), int(n_words.sum()))
    Y = CsrBuilder((n_samples, n_labels), int(n_draws.sum()))
    for block, first in enumerate(range(0, n_samples, BLOCK_ROWS)):
        part = slice(first, first + BLOCK_ROWS)
        _append_multilabel_block(X, Y, generator_of(seed, ROWS, block), frequency, words, n_draws[part], n_words[part])
    return weigh_and_normalise(X.finish()), Y.finish()


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
    random_state: int | np.random.Generator | None = None,
) -> tuple[Any, npt.NDArray[np.str_], dict[str, str]]:
    """Data with one label a row from a random tree; a row has words of its label and of the label's ancestors.

    Level d of the tree has about r^d nodes, with r such that there are n_nodes in all; each node hangs below
    a random one of the level above, so that numbers of children vary and some leaves are not on the last level.

    Parameters
    ----------
    n_samples, n_features : int
        Size of the data.
    n_nodes : int
        Number of nodes of the tree with its root; more than depth.
    depth : int
        Number of levels below the root.
    nnz_per_row : float
        Mean number of non-zero features of a row, met within some per cent unless n_features is hardly larger.
    inner_label_share : float
        Probability that a row's label is an inner node (not the root); 0 labels leaves only.
    exponent : float
        Of Zipf's law, for labels and for background words; 0 is uniform.
    features_per_node : int
        Number of characteristic features of a node; they are shared with other nodes by chance.
    signal : float
        Share of words, from 0 to 1, that come from the path to the row's label and not from the background.
    random_state : int, numpy Generator or None
        Seed; the same number gives the same data.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), float32
        Rows of length 1.
    y : str ndarray of shape (n_samples,)
        Names of the nodes, "n1", "n2", …; the root "n0" is no label.
    parents : dict of str to str
        The parent of every node but the root.

    Examples
    --------
    >>> from widemargin.datasets.generators import make_hierarchical
    >>> X, y, parents = make_hierarchical(100, 50, n_nodes=20, depth=3, nnz_per_row=10, random_state=0)
    >>> X.shape, y.shape, len(parents), parents["n1"]
    ((100, 50), (100,), 19, 'n0')
    """
    _check_sizes(n_samples=n_samples, n_features=n_features, depth=depth, features_per_node=features_per_node)
    _check_shape_of_rows(n_features, nnz_per_row, exponent, signal)
    if n_nodes <= depth:
        raise ValueError(f"a tree of depth {depth} needs more than {depth} nodes; got n_nodes={n_nodes}")
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
    return weigh_and_normalise(X.finish()), names[label], parents


def _append_multilabel_block(
    X: CsrBuilder, Y: CsrBuilder, rng: np.random.Generator, frequency: Zipf, words: Words, n_draws: Ints, n_words: Ints
) -> None:
    """Draw a block's labels and then its words, and append both."""
    n_rows, n_labels = len(n_draws), Y.shape[1]
    rows = np.repeat(np.arange(n_rows, dtype=np.int64), n_draws)
    keys = np.unique(rows * n_labels + frequency.draw(rng, len(rows)))
    Y.append(n_rows, keys, np.ones(len(keys)))
    indptr = np.searchsorted(keys, np.arange(n_rows + 1) * n_labels)
    X.append(n_rows, *draw_words(rng, words, n_words, indptr, keys % n_labels))


def _random_tree(n_nodes: int, depth: int, rng: np.random.Generator) -> Ints:
    """Parent of each node, −1 for the root, node 0; nodes are numbered level by level."""
    levels = np.arange(1, depth + 1)
    with np.errstate(over="ignore"):  # a trial growth of a deep tree may be far too large
        growth = solve_increasing(lambda r: float(np.sum(r**levels)), n_nodes - 1.0)
    # growth ≥ 1, so every level has a node; the last level takes what rounding down has left.
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
        raise ValueError(f"inner_label_share must lie between 0 and 1; got {inner_share}")
    has_children = np.zeros(len(parent), dtype=np.bool_)
    has_children[parent[1:]] = True
    leaves, inner = np.flatnonzero(~has_children), np.flatnonzero(has_children)[1:]
    if inner_share > 0 and len(inner) == 0:
        raise ValueError("a tree of depth 1 has no inner nodes to label: use inner_label_share=0, or a larger depth")
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
            raise ValueError(f"{name} must be an integer of at least 1; got {size!r}")


def _check_shape_of_rows(n_features: int, nnz_per_row: float, exponent: float, signal: float) -> None:
    """Raise for rows that cannot be drawn."""
    if not 1 <= nnz_per_row <= n_features:
        raise ValueError(f"nnz_per_row must lie between 1 and n_features={n_features}; got {nnz_per_row}")
    if not 0 <= exponent < np.inf:
        raise ValueError(f"exponent must be finite and not negative; got {exponent}")
    if not 0 <= signal <= 1:
        raise ValueError(f"signal must lie between 0 and 1; got {signal}")
