"""A taxonomy: a category tree whose nodes have names.

    A(i) = the proper ancestors of i      D(i) = its descendants      S(i) = its siblings

Nodes are numbered breadth first (the root is 0, parents before children, siblings contiguous and in the order of
the input); `nodes[i]` is the name of node i and `index(name)` its number. Methods speak of names, arrays of
numbers; `tree` has the algorithms on numbers (`widemargin.labels.tree.Tree`).

A tree has one root. Several nodes without a parent are put under a virtual one, called `VIRTUAL_ROOT` unless
`root=` says otherwise. Building is linear in time and memory: a million nodes take about two seconds, as a
chain, a star or anything between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from widemargin.exceptions import DataFormatError
from widemargin.labels._names import is_several, look_up, many, plain_name, plain_names
from widemargin.labels._tree_arrays import TreeArrays
from widemargin.labels._tree_build import EdgeList, build_tree
from widemargin.labels._tree_text import edges_of_nested, edges_of_paths, read_edges, write_edges
from widemargin.labels.tree import IntArray, Tree

__all__ = ["VIRTUAL_ROOT", "Taxonomy"]

VIRTUAL_ROOT = "(root)"


@dataclass(frozen=True, eq=False, repr=False)
class Taxonomy(TreeArrays):
    """An immutable tree of named categories.

    Use one of the `from_…` constructors; the plain one takes what `nodes` and `tree` of another taxonomy hold.
    Being immutable, a taxonomy is its own copy, so that `sklearn.base.clone` shares it. Two taxonomies are equal
    if they have the same nodes and edges; the order of siblings does not count. Where a method takes one node or
    several, a list, array or Series means several, and anything else (a tuple included) is one name.

    Parameters
    ----------
    nodes : sequence of hashables, length n_nodes
        Names in breadth-first order.
    tree : Tree
        The tree over their numbers.

    Examples
    --------
    >>> from widemargin.labels.taxonomy import Taxonomy
    >>> tree = Taxonomy.from_edges([("cat", "mammal"), ("dog", "mammal"), ("mammal", "animal"), ("bird", "animal")])
    >>> tree
    Taxonomy(n_nodes=5, n_leaves=3, height=2, root='animal')
    >>> tree.ancestors("cat"), tree.siblings("mammal"), tree.leaves
    (['mammal', 'animal'], ['bird'], ('bird', 'cat', 'dog'))
    >>> tree.lowest_common_ancestor("cat", "dog"), tree.tree_distance("cat", "bird")
    ('mammal', 3)
    >>> tree.tree_distance(["cat", "cat"], ["dog", "animal"])
    array([2, 2])
    """

    nodes: tuple[Hashable, ...]
    tree: Tree

    def __post_init__(self) -> None:
        nodes = tuple(plain_names(list(self.nodes)))
        if len(nodes) != self.tree.n_nodes:
            raise DataFormatError(f"{len(nodes)} names for a tree of {self.tree.n_nodes} nodes")
        object.__setattr__(self, "nodes", nodes)
        if len(self._numbers) != len(nodes):
            twice = next(name for number, name in enumerate(nodes) if self._numbers[name] != number)
            raise DataFormatError(f"two nodes are called {twice!r}", remedy="give every node its own name")

    @classmethod
    def from_parents(cls, parents: Mapping[Any, Any], *, root: Hashable = VIRTUAL_ROOT) -> Taxonomy:
        """Build from a mapping child → parent; the parent of a root is None, or the root is no key at all.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_parents({"cat": "mammal", "dog": "mammal"}).root
        'mammal'
        """
        return cls.from_edges(parents.items(), root=root)

    @classmethod
    def from_edges(cls, edges: Iterable[Any], *, root: Hashable = VIRTUAL_ROOT) -> Taxonomy:
        """Build from (child, parent) pairs; a parent of None marks a root, and repeated pairs count once.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_edges([("C15", "CCAT"), ("E12", "ECAT")]).nodes
        ('(root)', 'CCAT', 'ECAT', 'C15', 'E12')
        """
        return cls(*build_tree(EdgeList.from_pairs(edges), root))

    @classmethod
    def from_paths(
        cls, paths: Iterable[Any], *, separator: str = "/", full_names: bool = False, root: Hashable = VIRTUAL_ROOT
    ) -> Taxonomy:
        """Build from label paths, each from the top down.

        Parameters
        ----------
        paths : iterable of str or of sequences
            "A/B/C" or ["A", "B", "C"]; inner nodes need no path of their own.
        separator : str, default="/"
            What stands between the names of a path given as a string.
        full_names : bool, default=False
            Name a node by its whole path ("A/B", or the tuple ("A", "B")), so that the same word may stand in
            several branches; otherwise by the last name of it.
        root : hashable, default=VIRTUAL_ROOT
            Name of the virtual root, needed unless all paths begin with the same name.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_paths(["A/B", "A/C"]).nodes
        ('A', 'B', 'C')
        >>> Taxonomy.from_paths(["A/misc", "B/misc"], full_names=True).leaves
        ('A/misc', 'B/misc')
        """
        return cls(*build_tree(edges_of_paths(paths, separator, full_names), root))

    @classmethod
    def from_nested(cls, nested: Mapping[Any, Any], *, root: Hashable = VIRTUAL_ROOT) -> Taxonomy:
        """Build from nested mappings: name → mapping of children, list of leaves, or None.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": None}}).leaves
        ('bird', 'cat', 'dog')
        """
        return cls(*build_tree(edges_of_nested(nested), root))

    @classmethod
    def from_tsv(
        cls, path: str | os.PathLike[str], *, header: bool | None = None, root: Hashable = VIRTUAL_ROOT
    ) -> Taxonomy:
        """Read a UTF-8 file with child and parent in two tab-separated columns.

        Empty lines and lines that begin with ``#`` are skipped; a child with nothing after the tab is a root. Names
        stay strings.

        Parameters
        ----------
        path : str or path
            The file.
        header : bool, optional
            Whether the first line is a header; by default it is one if it reads ``child<TAB>parent``.
        root : hashable, default=VIRTUAL_ROOT
            Name of the virtual root, if one is needed.

        Raises
        ------
        DataFormatError
            With file and line, for anything that is not a tree.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "hierarchy.tsv")
        ...     _ = file.write_text("child\\tparent\\nC15\\tCCAT\\nC151\\tC15\\n")
        ...     Taxonomy.from_tsv(file).path("C151")
        ['CCAT', 'C15', 'C151']
        """
        return cls(*build_tree(read_edges(path, header), root))

    @classmethod
    def from_networkx(cls, graph: Any, *, root: Hashable = VIRTUAL_ROOT) -> Taxonomy:
        """Build from a networkx `DiGraph` whose edges point from parent to child, as in its arborescences.

        Note the direction: `from_edges` takes (child, parent), networkx stores (parent, child). An undirected graph
        has no parents and is refused.

        Examples
        --------
        >>> import networkx
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_networkx(networkx.DiGraph([("animal", "mammal"), ("mammal", "cat")])).path("cat")
        ['animal', 'mammal', 'cat']
        """
        if not graph.is_directed():
            raise DataFormatError(
                "an undirected graph does not say which end of an edge is the parent",
                remedy="use a DiGraph with edges from parent to child, for example networkx.bfs_tree(graph, root)",
            )
        pairs = [(node, above) for node in graph.nodes for above in (*graph.predecessors(node),) or (None,)]
        return cls.from_edges(pairs, root=root)

    @classmethod
    def flat(cls, labels: Iterable[Any], *, root: Hashable = VIRTUAL_ROOT) -> Taxonomy:
        """Build the tree of height one: all labels are children of the root.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.flat(["a", "b"]).nodes
        ('(root)', 'a', 'b')
        """
        names = plain_names(many(labels))
        if root in names:
            raise DataFormatError(f"the root and a label are both called {root!r}", remedy="choose another root=…")
        return cls(*build_tree(EdgeList(names, [plain_name(root)] * len(names)), root))

    @property
    def root(self) -> Hashable:
        """Name of the root."""
        return self.nodes[0]

    @cached_property
    def leaves(self) -> tuple[Hashable, ...]:
        """Names of the nodes without children, in order."""
        return tuple(self._names(np.flatnonzero(self.is_leaf)))

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        """Number of each name."""
        return dict(zip(self.nodes, range(self.n_nodes), strict=True))

    def index(self, node: Any) -> int:
        """Number of one node; an unknown one is named, with near matches."""
        return int(look_up([plain_name(node)], self._numbers, "the taxonomy")[0])

    def indices(self, labels: Iterable[Any]) -> IntArray:
        """Numbers of many nodes, shape (n,); labels that are not in the tree are named.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.flat(["cat", "dog"]).indices(["dog", "cat", "dog"])
        array([2, 1, 2])
        """
        return look_up(many(labels), self._numbers, "the taxonomy")

    def _names(self, numbers: Iterable[int]) -> list[Hashable]:
        """Names of some numbers."""
        return [self.nodes[number] for number in numbers]

    def _number_or_numbers(self, nodes: Any) -> Any:
        """Numbers of several nodes as an array, or of one as an int."""
        return self.indices(nodes) if is_several(nodes) else self.index(nodes)

    def children_of(self, node: Any) -> list[Hashable]:
        """Names of the children."""
        return self._names(self.tree.children(self.index(node)))

    def siblings(self, node: Any) -> list[Hashable]:
        """Names of the other children of the same parent."""
        number = self.index(node)
        group = self.tree.children(int(self.parent[number])) if number else np.empty(0, dtype=np.intp)
        return self._names(group[group != number])

    def path(self, node: Any) -> list[Hashable]:
        """Names from the root down to the node, both included."""
        return self._names(self.tree.path(self.index(node)))

    def ancestors(self, node: Any, *, include_self: bool = False) -> list[Hashable]:
        """Names from the parent (or the node itself) up to the root."""
        climb = self.path(node)[::-1]
        return climb if include_self else climb[1:]

    def descendants(self, node: Any, *, include_self: bool = False) -> list[Hashable]:
        """Names below the node, parents before children."""
        return self._names(self.tree.descendants(self.index(node))[0 if include_self else 1 :])

    def leaves_under(self, node: Any) -> list[Hashable]:
        """Names of the leaves below the node; a leaf has itself."""
        below = self.tree.descendants(self.index(node))
        return self._names(below[self.is_leaf[below]])

    def subtree(self, node: Any) -> Taxonomy:
        """The taxonomy below a node, which becomes the root.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_paths(["A/B/C", "A/D"]).subtree("B").nodes
        ('B', 'C')
        """
        below = self.tree.descendants(self.index(node))
        # Ascending numbers stay breadth first below a node, so that counting is the whole renumbering.
        parent = np.searchsorted(below, self.parent[below])
        parent[0] = -1
        return Taxonomy(tuple(self._names(below)), Tree(parent))

    def is_ancestor(self, above: Any, below: Any, *, include_self: bool = False) -> Any:
        """Whether `above` is an ancestor of `below`, for two nodes (bool) or elementwise for many (array)."""
        i, j = self._number_or_numbers(above), self._number_or_numbers(below)
        result = self.tree.covers(i, j)
        if not include_self:
            result &= np.not_equal(i, j)
        return result if np.ndim(result) else bool(result)

    def lowest_common_ancestor(self, a: Any, b: Any) -> Any:
        """Name of the deepest node that is an ancestor of both, or one of them; an object array for many pairs."""
        numbers = self.tree.lca(self._number_or_numbers(a), self._number_or_numbers(b))
        if not np.ndim(numbers):
            return self.nodes[int(numbers)]
        names = np.empty(numbers.shape, dtype=object)
        names[:] = self._names(numbers.tolist())
        return names

    def tree_distance(self, a: Any, b: Any) -> Any:
        """Number of edges between two nodes (int), or elementwise for many (array)."""
        edges = self.tree.distance(self._number_or_numbers(a), self._number_or_numbers(b))
        return edges if np.ndim(edges) else int(edges)

    def to_parents(self) -> dict[Hashable, Hashable | None]:
        """Mapping of every node to its parent, None for the root; the inverse of `from_parents`."""
        names: list[Hashable | None] = [*self.nodes, None]  # place −1, the root's parent, is None
        return {name: names[above] for name, above in zip(self.nodes, self.parent.tolist(), strict=True)}

    def to_edges(self) -> list[tuple[Hashable, Hashable]]:
        """(child, parent) pairs of all nodes but the root, parents before children."""
        return [(name, self.nodes[above]) for name, above in zip(self.nodes[1:], self.parent[1:].tolist(), strict=True)]

    def to_tsv(self, path: str | os.PathLike[str]) -> None:
        """Write the file that `from_tsv` reads; names must be strings. It is renamed into place when complete."""
        write_edges(path, self.to_parents().items())

    def __len__(self) -> int:
        return self.n_nodes

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.nodes)

    def __contains__(self, node: object) -> bool:
        return node in self._numbers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Taxonomy):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.to_parents() == other.to_parents())

    def __hash__(self) -> int:
        return hash((self.n_nodes, self.root, self.height))

    def __repr__(self) -> str:
        n_leaves = np.count_nonzero(self.is_leaf)
        return f"Taxonomy(n_nodes={self.n_nodes}, n_leaves={n_leaves}, height={self.height}, root={self.root!r})"

    def __reduce__(self) -> tuple[Callable[..., Taxonomy], tuple[Any, ...]]:
        return Taxonomy, (self.nodes, self.tree)

    def __copy__(self) -> Taxonomy:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Taxonomy:
        return self
