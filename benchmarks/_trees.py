"""The category-tree tasks of the benchmarks: subtrees of RCV1-v2 and generated trees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import Taxonomy, read_xmc


@dataclass(frozen=True)
class TreeTask:
    """Rows with one label path each: X (n_samples, n_features), labels (n_samples,) as numbers of nodes."""

    name: str
    X: Any
    labels: npt.NDArray[np.int64]
    taxonomy: Taxonomy

    @property
    def tree(self) -> Any:
        """The tree over the numbers of the nodes."""
        return self.taxonomy.tree

    @property
    def label_names(self) -> list[Any]:
        """The label of each row by name, as estimators take it."""
        return [self.taxonomy.nodes[label] for label in self.labels]


def rcv1_task(folder: Path, category: str, part: str = "train") -> TreeTask:
    """The subtree below a top category, with the rows that have exactly one label path inside it."""
    X, Y = read_xmc(folder / f"{part}.txt.gz")
    names = (folder / "labels.txt").read_text(encoding="utf-8").split()
    taxonomy = Taxonomy.from_tsv(folder / "hierarchy.tsv").subtree(category)
    inside = [(column, taxonomy.index(name)) for column, name in enumerate(names) if name in taxonomy]
    columns, nodes = np.array(inside, dtype=np.int64).T
    indicator = sp.csr_array(Y[:, columns])
    tree, labels = taxonomy.tree, np.full(X.shape[0], -1, dtype=np.int64)
    for row in range(X.shape[0]):
        found = nodes[indicator.indices[indicator.indptr[row] : indicator.indptr[row + 1]]]
        found = found[found > 0]
        if len(found) == 0:
            continue
        deepest = found[np.argmax(tree.depth[found])]
        if tree.covers(found, deepest).all():
            labels[row] = deepest
    kept = np.flatnonzero(labels > 0)
    return TreeTask(category, sp.csr_array(X[kept]), labels[kept], taxonomy)


def generated_taxonomy(n_nodes: int, depth: int, rng: np.random.Generator) -> Taxonomy:
    """A tree with `n_nodes` nodes below the root, leaves at about `depth`, and uneven numbers of children.

    Nodes are named by their numbers.
    """
    branching = n_nodes ** (1.0 / depth)
    parents, level = [-1], [0]
    for d in range(1, depth + 1):
        left = n_nodes - (len(parents) - 1)
        wanted = left if d == depth else round(len(level) * branching)
        share = rng.gamma(4.0, size=len(level))
        counts = np.maximum(1, np.floor(share / share.sum() * wanted)).astype(int)
        counts[: max(0, wanted - counts.sum())] += 1
        first = len(parents)
        parents += np.repeat(level, counts).tolist()[:left]
        level = list(range(first, len(parents)))
    return Taxonomy.from_parents({node: parent for node, parent in enumerate(parents) if node > 0})


def generated_task(n_nodes: int, depth: int, n_rows: int, n_features: int, n_words: int, seed: int) -> TreeTask:
    """Text-like rows: a third of the words come from lists of the nodes on the path, the rest from a power law."""
    rng = np.random.default_rng(seed)
    taxonomy = generated_taxonomy(n_nodes, depth, rng)
    tree = taxonomy.tree
    leaves = np.flatnonzero(tree.is_leaf)
    labels = leaves[rng.integers(0, len(leaves), n_rows)]
    own = rng.integers(0, n_features, size=(tree.n_nodes, 8))  # the words of each node
    ranks = np.minimum(n_features * rng.random((n_rows, n_words)) ** 3, n_features - 1).astype(np.int64)
    words, node = ranks, labels.copy()
    for level in range(depth):
        for column in range(max(1, n_words // (3 * depth))):
            at = level * max(1, n_words // (3 * depth)) + column
            words[:, at] = np.where(node > 0, own[node, rng.integers(0, own.shape[1], n_rows)], words[:, at])
        node = np.maximum(tree.parent[node], 0)
    values = rng.gamma(2.0, size=words.shape)
    X = sp.csr_array(
        (values.ravel(), words.ravel(), np.arange(0, n_rows * n_words + 1, n_words)), shape=(n_rows, n_features)
    )
    X.sum_duplicates()
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return TreeTask(f"{n_nodes} nodes", X.astype(np.float32), labels.astype(np.int64), taxonomy)
