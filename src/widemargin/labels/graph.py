"""A label graph: named labels that may have several parents, and sets of labels that contain all their ancestors.

A taxonomy is a tree; a thesaurus or an ontology often is not. A label graph is any directed graph without cycles. A set
of nodes is *closed* if it contains the ancestors of each of its nodes. Given the probability p_i of each node, the
predicted set S maximises the plug-in estimate of the expected F1 of a row,

    F(S) = 2 Σ_{i∈S} p_i / (|S| + Σ_i p_i)       over all closed sets S,

after p_i is raised to the largest probability below node i: an ancestor is at least as probable as its descendants. For
a given size, the most probable nodes are best; and all nodes with p_i ≥ t are closed for any t. So the best of the
sets "the m most probable nodes" is optimal among all closed sets, and a sort finds it: O(n_nodes log n_nodes) per row.

Nodes are numbered by level, the length of the longest path from a root, and by first appearance within a level: parents
come before their children, and a `Taxonomy` keeps its numbers. A single root above all other nodes is in every set that
is not empty, and would only flatter: it does not count in F, nor in the metrics.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import LabelEncoding, is_several, listed, look_up
from widemargin.labels.taxonomy import EdgeList, Taxonomy, as_taxonomy
from widemargin.labels.tree import IntArray

__all__ = ["LabelGraph", "as_label_graph", "best_closed_sets", "decide_closed"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class LabelGraph:
    """Named labels with any number of parents each, without cycles.

    Use one of the `from_…` constructors. A label graph is immutable.

    Parameters
    ----------
    nodes : tuple of hashables, length n_nodes
        Names, parents before their children.
    parents : csr_array of int32 of shape (n_nodes, n_nodes)
        Entry (i, a) is 1 if a is a parent of i.
    level : ndarray of int of shape (n_nodes,)
        Length of the longest path from a root to each node, ascending.

    See Also
    --------
    Taxonomy : trees, in which each node has one parent.

    Examples
    --------
    >>> from widemargin import LabelGraph
    >>> graph = LabelGraph.from_edges([("spork", "spoon"), ("spork", "fork"), ("spoon", "tool"), ("fork", "tool")])
    >>> graph
    LabelGraph(n_nodes=4, n_edges=4, height=2)
    >>> graph.nodes
    ('tool', 'spoon', 'fork', 'spork')
    >>> graph.closed([{"fork"}, {"spork"}]).toarray()
    array([[1, 0, 1, 0],
           [1, 1, 1, 1]])
    """

    nodes: tuple[Hashable, ...]
    parents: Any
    level: IntArray

    @classmethod
    def from_edges(cls, edges: Iterable[Any]) -> LabelGraph:
        """Build from (child, parent) pairs; a parent of None adds the child only, and repeated pairs count once.

        Examples
        --------
        >>> from widemargin import LabelGraph
        >>> LabelGraph.from_edges([("a", None), ("c", "b")]).nodes
        ('a', 'b', 'c')
        """
        return _build(EdgeList.from_pairs(edges))

    @classmethod
    def from_parents(cls, parents: Mapping[Any, Any]) -> LabelGraph:
        """Build from a mapping of each child to its parent, or to a list of parents; None or [] for none.

        Examples
        --------
        >>> from widemargin import LabelGraph
        >>> LabelGraph.from_parents({"spork": ["spoon", "fork"], "fork": "tool", "spoon": "tool"}).nodes
        ('tool', 'fork', 'spoon', 'spork')
        """
        pairs: list[tuple[Any, Any]] = []
        for child, above in parents.items():
            several = is_several(above) or isinstance(above, set | frozenset)
            pairs += [(child, parent) for parent in ((list(above) or [None]) if several else [above])]
        return cls.from_edges(pairs)

    @classmethod
    def from_tsv(cls, path: str | os.PathLike[str], *, header: bool | None = None) -> LabelGraph:
        """Read a UTF-8 file with child and parent in two tab-separated columns, as for `Taxonomy.from_tsv`.

        Parameters
        ----------
        path : str or path
            The file; a child with several parents has a line for each.
        header : bool, optional
            Whether the first line is a header. By default, it is one if it reads ``child<TAB>parent``.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from widemargin import LabelGraph
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "graph.tsv")
        ...     _ = file.write_text("child\\tparent\\nspork\\tspoon\\nspork\\tfork\\n")
        ...     LabelGraph.from_tsv(file).nodes
        ('spoon', 'fork', 'spork')
        """
        from widemargin.data.taxonomy import read_edges

        return _build(read_edges(path, header))

    @classmethod
    def from_taxonomy(cls, taxonomy: Taxonomy) -> LabelGraph:
        """The tree as a graph, with the same node numbers; its root is a node too.

        Examples
        --------
        >>> from widemargin import LabelGraph, Taxonomy
        >>> LabelGraph.from_taxonomy(Taxonomy.from_paths(["A/B", "A/C"])).nodes
        ('A', 'B', 'C')
        """
        return cls.from_edges(taxonomy.to_parents().items())

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @cached_property
    def counted(self) -> Bools:
        """Which nodes count in F1: all but a single root above all others, shape (n_nodes,)."""
        counted = np.ones(self.n_nodes, dtype=bool)
        counted[0] = self.n_nodes == 1 or np.count_nonzero(self.level == 0) > 1
        return counted

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return dict(zip(self.nodes, range(self.n_nodes), strict=True))

    @cached_property
    def _encoding(self) -> LabelEncoding:
        names = np.empty(self.n_nodes, dtype=object)
        names[:] = self.nodes
        return LabelEncoding("multilabel", names)

    def indices(self, labels: Iterable[Any]) -> IntArray:
        """Numbers of some nodes, shape (n,); an error names the labels that are not in the graph.

        Examples
        --------
        >>> from widemargin import LabelGraph
        >>> LabelGraph.from_edges([("c", "a"), ("c", "b")]).indices(["c", "a"])
        array([2, 0])
        """
        return look_up(labels, self._numbers, "the label graph")

    def closed(self, Y: Any) -> Any:
        """Add all ancestors to sets of labels.

        Parameters
        ----------
        Y : list of label sets, or indicator of shape (n_samples, n_nodes)
            Names of nodes, or an indicator whose columns are `nodes`.

        Returns
        -------
        csr_array of int64 of shape (n_samples, n_nodes)
            Indicator of the labels and their ancestors. Time: as many sparse products as the graph has levels.
        """
        # int64: a sum of int8 ones over 256 paths would wrap to 0.
        closed = new = sparse.csr_array(self._encoding.indicator(Y), dtype=np.int64)
        while new.nnz:
            reached = sparse.csr_array(new @ self.parents)
            reached.data[:] = 1
            new = sparse.csr_array(reached - reached.multiply(closed))
            new.eliminate_zeros()
            closed = closed + new
        closed.sort_indices()
        return closed

    def consistent(self, probabilities: Any) -> Floats:
        """Raise the probability of each node to the largest one among its descendants.

        Parameters
        ----------
        probabilities : array-like of shape (n_samples, n_nodes)
            Probabilities; 0 for nodes that have none of their own.

        Returns
        -------
        ndarray of float64 of shape (n_samples, n_nodes)

        Examples
        --------
        >>> from widemargin import LabelGraph
        >>> LabelGraph.from_edges([("c", "a"), ("c", "b")]).consistent([[0.5, 0.0, 0.4]])
        array([[0.5, 0.4, 0.4]])
        """
        P = np.asarray(probabilities, dtype=np.float64)
        if P.ndim != 2 or P.shape[1] != self.n_nodes:
            raise ValueError(f"probabilities must have shape (n_samples, {self.n_nodes}); got shape {P.shape}")
        by_node = P.T.copy()
        for above, starts, below in self._families:
            best_below = np.maximum.reduceat(by_node[below], starts, axis=0)
            by_node[above] = np.maximum(by_node[above], best_below)
        return np.ascontiguousarray(by_node.T)

    @cached_property
    def _families(self) -> list[tuple[IntArray, IntArray, IntArray]]:
        """Parents of each level, the lowest first: their numbers, where their children start, and the children."""
        children = sparse.csr_array(self.parents.T)
        inner = np.flatnonzero(np.diff(children.indptr))
        families = []
        for above in np.split(inner, np.searchsorted(self.level[inner], np.arange(1, self.height)))[::-1]:
            below = children[above]
            families.append((above, below.indptr[:-1].astype(np.intp), below.indices.astype(np.intp)))
        return families if inner.size else []

    @property
    def height(self) -> int:
        """Number of edges of the longest path."""
        return int(self.level[-1])

    def __len__(self) -> int:
        return self.n_nodes

    def __contains__(self, node: object) -> bool:
        return node in self._numbers

    def __repr__(self) -> str:
        return f"LabelGraph(n_nodes={self.n_nodes}, n_edges={self.parents.nnz}, height={self.height})"


def _build(edges: EdgeList) -> LabelGraph:
    """Number the nodes by level and find cycles."""
    names: list[Any] = [name for name in dict.fromkeys(chain(edges.children, edges.parents)) if name is not None]
    if not names:
        raise DataFormatError("the label graph has no nodes", path=edges.path, remedy="pass at least one node")
    numbers = dict(zip(names, range(len(names)), strict=True))
    pairs = [(numbers[c], numbers[p]) for c, p in zip(edges.children, edges.parents, strict=True) if p is not None]
    child, parent = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    shape = (len(names), len(names))
    up = sparse.csr_array((np.ones(len(child), dtype=np.int32), (child, parent)), shape=shape)
    up.data[:] = 1  # repeated pairs were added up
    level = _levels(edges, names, up)
    order = np.argsort(level, kind="stable")
    return LabelGraph(tuple(names[i] for i in order.tolist()), sparse.csr_array(up[order][:, order]), level[order])


def _levels(edges: EdgeList, names: list[Any], up: Any) -> IntArray:
    """Length of the longest path from a root to each node; nodes that no such path reaches lead into a cycle."""
    down = sparse.csr_array(up.T)
    waiting, level = np.diff(up.indptr).tolist(), [0] * len(names)  # parents that have no level yet
    starts, children = down.indptr.tolist(), down.indices.tolist()
    ready = [node for node, count in enumerate(waiting) if count == 0]
    for node in ready:  # grows while it is read
        for child in children[starts[node] : starts[node + 1]]:
            level[child] = max(level[child], level[node] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    if len(ready) < len(names):
        raise _cycle_error(edges, names, up, waiting)
    return np.array(level, dtype=np.intp)


def _cycle_error(edges: EdgeList, names: list[Any], up: Any, waiting: list[int]) -> Exception:
    """The error that names a cycle: a node without a level has a parent without one."""
    node = next(i for i, count in enumerate(waiting) if count)
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        node = next(a for a in up.indices[up.indptr[node] : up.indptr[node + 1]].tolist() if waiting[a])
    cycle = [names[i] for i in [*list(seen)[seen[node] :], node]]
    edge = next(e for e, c in enumerate(edges.children) if (c, edges.parents[e]) == (cycle[0], cycle[1]))
    problem = f"the nodes form a cycle (child → parent): {listed(cycle, ' → ')}"
    return edges.error(problem, edge, "remove one of its edges")


def as_label_graph(given: Any) -> LabelGraph:
    """A label graph as it is, or made from any form of a tree that `as_taxonomy` takes.

    Parameters
    ----------
    given : LabelGraph, Taxonomy, mapping or networkx.DiGraph
        Several parents per node require a `LabelGraph`.

    Returns
    -------
    LabelGraph

    Examples
    --------
    >>> from widemargin.labels.graph import as_label_graph
    >>> as_label_graph({"cat": "animal", "dog": "animal"}).nodes
    ('animal', 'cat', 'dog')
    """
    return given if isinstance(given, LabelGraph) else LabelGraph.from_taxonomy(as_taxonomy(given))


def decide_closed(probabilities: Any, graph: LabelGraph) -> Any:
    """The closed sets of labels with the largest expected F1, by a plug-in estimate.

    The probabilities are made consistent (`LabelGraph.consistent`). Then each row gets the closed set S with the
    largest 2 Σ_{i∈S} p_i / (m + Σ_i p_i), where m is the size of S; a single root above all other nodes does not count.

    Parameters
    ----------
    probabilities : array-like of shape (n_samples, n_nodes)
        Probability of each node; 0 for nodes that have none of their own.
    graph : LabelGraph
        The graph.

    Returns
    -------
    csr_array of int64 of shape (n_samples, n_nodes)
        Indicator of the sets. Only a row without any positive probability has an empty one.

    Examples
    --------
    >>> from widemargin import LabelGraph
    >>> from widemargin.labels.graph import decide_closed
    >>> graph = LabelGraph.from_edges([("tool", None), ("spoon", "tool"), ("fork", "tool"), ("toy", None)])
    >>> graph.nodes
    ('tool', 'toy', 'spoon', 'fork')
    >>> decide_closed([[0.3, 0.1, 0.1, 0.6]], graph).toarray()
    array([[1, 0, 0, 1]])
    """
    return sparse.csr_array(best_closed_sets(graph.consistent(probabilities), graph), dtype=np.int64)


def best_closed_sets(consistent: Floats, graph: LabelGraph) -> Bools:
    """Membership in the best closed set of each row, shape (n_samples, n_nodes), for consistent probabilities.

    Nodes that tie with the last one chosen are in the set as well: where the best value is attained, a further node of
    the same probability does not change it.
    """
    ordered = -np.sort(-consistent[:, graph.counted], axis=1)
    sums = np.cumsum(ordered, axis=1)
    values = sums / (np.arange(1, sums.shape[1] + 1) + sums[:, -1:])
    threshold = np.take_along_axis(ordered, values.argmax(axis=1)[:, None], axis=1)
    chosen: Bools = (consistent >= threshold) & (threshold > 0.0)
    return chosen
