"""A taxonomy: a category tree whose nodes have names.

    A(i) = the proper ancestors of i      D(i) = its descendants      S(i) = its siblings

Nodes are numbered breadth first (the root is 0, parents come before children, siblings are contiguous and keep the
order of the input); `nodes[i]` is the name of node i and `index(name)` its number. Methods use names, arrays use
numbers; `tree` has the algorithms on numbers (`widemargin.labels.tree.Tree`).

A tree has one root. Several nodes without a parent are put under a virtual root, named `VIRTUAL_ROOT` unless `root=` is
given. Every constructor calls `build_tree`: names get numbers in order of first appearance, so siblings keep the order
of the input; each node must have one parent; and a node that a breadth-first walk from the root does not reach hangs on
a cycle. Time and memory are linear, nothing recurses, and a million nodes take about two seconds in any shape.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import is_several, listed, look_up, many, plain_name, plain_names
from widemargin.labels.tree import IntArray, Tree

__all__ = ["VIRTUAL_ROOT", "EdgeList", "Taxonomy", "as_taxonomy"]

VIRTUAL_ROOT = "(root)"
NO_PARENT_SEEN = -2  # in `_parent_array`, before a node's first edge

OF_A_DAG = (
    "a taxonomy is a tree: keep one parent per node, for example the first, with Taxonomy.from_parents({child: parent "
    "for child, parent in reversed(edges)}), or the one with the most rows; or train OneVsAllClassifier and pass a "
    "LabelGraph, whose nodes may have several parents, to predict_closed"
)
"""Remedy for a graph in which nodes have several parents."""


@dataclass(frozen=True)
class EdgeList:
    """Edges and where they came from; a parent of None marks a root.

    Parameters
    ----------
    children, parents : list of names, equally long
        Edge e says that the parent of ``children[e]`` is ``parents[e]``.
    path : str, optional
        The file of the edges, for error messages.
    lines : list of int, optional
        The line of each edge in it, counted from 1.
    """

    children: list[Any]
    parents: list[Any]
    path: str | None = None
    lines: list[int] | None = None

    @classmethod
    def from_pairs(cls, pairs: Iterable[Any]) -> EdgeList:
        """Split (child, parent) pairs; anything else is an error that names it."""
        if isinstance(pairs, np.ndarray) and pairs.ndim == 2 and pairs.shape[1] == 2:
            children, parents = pairs.T.tolist()
        else:
            rows = list(pairs)
            if not (set(map(type, rows)) <= {tuple, list} and set(map(len, rows)) <= {2}):
                position, row = next(pair for pair in enumerate(rows) if not _is_pair(pair[1]))
                raise DataFormatError(
                    f"edge {position} is not a pair; got {row!r}", remedy="pass (child, parent) pairs"
                )
            children, parents = [row[0] for row in rows], [row[1] for row in rows]
        return cls(plain_names(children), plain_names(parents, or_none=True))

    def error(self, problem: str, edge: int, remedy: str) -> DataFormatError:
        """The error at an edge, with file and line if known."""
        line = None if self.lines is None else self.lines[edge]
        return DataFormatError(problem, path=self.path, line=line, remedy=remedy)


def build_tree(edges: EdgeList, root: Hashable) -> tuple[tuple[Hashable, ...], Tree]:
    """Names in breadth-first order, and their tree; `root` names the virtual root if one is needed."""
    # Children get their numbers first: siblings then keep the order of their edges.
    numbers: dict[Any, int] = dict.fromkeys(chain(edges.children, edges.parents), -1)
    numbers.pop(None, None)
    names = list(numbers)
    if not names:
        raise DataFormatError("the taxonomy has no nodes", path=edges.path, remedy="pass at least one node")
    numbers.update(zip(names, range(len(names)), strict=True))
    numbers[None] = -1
    child = np.fromiter(map(numbers.__getitem__, edges.children), dtype=np.intp)
    parent = np.fromiter(map(numbers.__getitem__, edges.parents), dtype=np.intp)
    above = _parent_array(edges, names, child, parent)
    above, start = _with_single_root(edges, names, above, root)
    order = _breadth_first(above, start)
    if len(order) < len(names):
        raise _cycle_error(edges, names, above, child, order)
    place = np.empty(len(names), dtype=np.intp)
    place[order] = np.arange(len(names))
    above = above[order]
    return tuple([names[node] for node in order.tolist()]), Tree(np.where(above >= 0, place[above], -1))


def _is_pair(row: Any) -> bool:
    """Whether a row is a tuple or list of two."""
    return type(row) in (tuple, list) and len(row) == 2


def _parent_array(edges: EdgeList, names: list[Any], child: IntArray, parent: IntArray) -> IntArray:
    """Parent number of each node, −1 for roots; two different parents of one node are an error."""
    above = np.full(len(names), NO_PARENT_SEEN, dtype=np.intp)
    above[child[::-1]] = parent[::-1]  # the first edge of a node is written last, and stays
    conflicts = np.flatnonzero(above[child] != parent)
    if conflicts.size:
        edge = int(conflicts[0])
        name, first, second = names[child[edge]], above[child[edge]], parent[edge]
        if first < 0 or second < 0:
            problem = f"{name!r} is both a root and a child of {names[max(first, second)]!r}"
            raise edges.error(problem, edge, "keep one of the two edges, because a taxonomy is a tree")
        n_several = len(np.unique(child[conflicts]))
        more = f" ({n_several:,} nodes have more than one)" if n_several > 1 else ""
        raise edges.error(f"{name!r} has two parents, {names[first]!r} and {names[second]!r}{more}", edge, OF_A_DAG)
    above[above == NO_PARENT_SEEN] = -1
    return above


def _with_single_root(edges: EdgeList, names: list[Any], above: IntArray, root: Hashable) -> tuple[IntArray, int]:
    """The parent array and its root; several roots are put under a new node, which is appended to `names`."""
    roots = np.flatnonzero(above == -1)
    if roots.size <= 1:
        return above, int(roots[0]) if roots.size else -1
    if root in names:
        raise DataFormatError(
            f"the {roots.size} roots {listed(names[node] for node in roots)} require a virtual root, but there is "
            f"already a node named {root!r}",
            path=edges.path,
            remedy="choose another name with root=…",
        )
    above[roots] = len(names)
    names.append(plain_name(root))
    return np.append(above, -1), len(names) - 1


def _breadth_first(above: IntArray, start: int) -> IntArray:
    """Nodes below `start` and itself, level by level and siblings ascending; none if start is −1."""
    if start < 0:
        return np.empty(0, dtype=np.intp)
    by_parent = np.argsort(above, kind="stable")[1:]  # without the root, whose parent −1 sorts first
    first = np.searchsorted(above[by_parent], np.arange(above.size + 1))
    down = sparse.csr_array((np.ones(by_parent.size), by_parent, first), shape=(above.size, above.size))
    order: IntArray = csgraph.breadth_first_order(down, start, return_predecessors=False).astype(np.intp)
    return order


def _cycle_error(edges: EdgeList, names: list[Any], above: IntArray, child: IntArray, reached: IntArray) -> Exception:
    """The error that names a cycle: the parents of a node that was not reached lead into one."""
    lost = np.ones(len(names), dtype=bool)
    lost[reached] = False
    node = int(np.flatnonzero(lost)[0])
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        node = int(above[node])
    cycle = list(seen)[seen[node] :]
    edge = int(np.flatnonzero(np.isin(child, cycle))[0])
    way = listed([names[i] for i in [*cycle, node]], " → ")
    return edges.error(f"the nodes form a cycle (child → parent): {way}", edge, "remove one of its edges")


def edges_of_paths(paths: Iterable[Any], separator: str, full_names: bool) -> EdgeList:
    """Edges of label paths, each from the top down."""
    children: list[Hashable] = []
    parents: list[Hashable | None] = []
    for path in paths:
        steps = path.split(separator) if isinstance(path, str) else list(path)
        if not steps or "" in steps:
            raise DataFormatError(
                f"the path {path!r} contains an empty name", remedy=f"use {separator!r} only between two names"
            )
        names = [plain_name(step) for step in steps]
        if full_names:
            whole = [tuple(names[: end + 1]) for end in range(len(names))]
            names = [separator.join(steps[: len(way)]) for way in whole] if isinstance(path, str) else list(whole)
        children += names
        parents += [None, *names[:-1]]
    return EdgeList(children, parents)


def edges_of_nested(nested: Mapping[Any, Any]) -> EdgeList:
    """Edges of nested mappings; a mapping holds children, a list names leaves, None and {} end a branch."""
    children: list[Hashable] = []
    parents: list[Hashable | None] = []
    queue: deque[tuple[Hashable | None, Any]] = deque([(None, nested)])
    while queue:
        parent, below = queue.popleft()
        if below is None:
            continue
        if isinstance(below, str) or not isinstance(below, Mapping | Sequence | set | frozenset):
            raise DataFormatError(
                f"{below!r} cannot describe the children of {parent!r}",
                remedy="use a mapping of children, a list of leaves, or None",
            )
        names = [plain_name(name) for name in below]
        children += names
        parents += [parent] * len(names)
        if isinstance(below, Mapping):
            queue.extend(zip(names, below.values(), strict=True))
    return EdgeList(children, parents)


@dataclass(frozen=True, eq=False, repr=False)
class Taxonomy:
    """An immutable tree of named categories.

    Use one of the `from_…` constructors; the plain one takes `nodes` and `tree` of another taxonomy. A taxonomy is
    immutable and therefore its own copy, so `sklearn.base.clone` shares it. Two taxonomies are equal if they have the
    same nodes and edges; the order of siblings does not count. Where a method takes one node or several, a list, array
    or Series means several, and anything else (a tuple included) is one name.

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
            raise DataFormatError(f"there must be one name for each of the {self.tree.n_nodes} nodes; got {len(nodes)}")
        object.__setattr__(self, "nodes", nodes)
        if len(self._numbers) != len(nodes):
            twice = next(name for number, name in enumerate(nodes) if self._numbers[name] != number)
            raise DataFormatError(f"two nodes are named {twice!r}", remedy="use a distinct name for each node")

    @classmethod
    def from_parents(cls, parents: Mapping[Any, Any], *, root: Hashable = VIRTUAL_ROOT) -> Taxonomy:
        """Build from a mapping child → parent; the parent of a root is None, or the root is not a key.

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
            "A/B/C" or ["A", "B", "C"]; inner nodes need no separate path.
        separator : str, default="/"
            Separator of the names in a path given as a string.
        full_names : bool, default=False
            Whether to name a node by its whole path, "A/B" or the tuple ("A", "B"); the same word may then occur in
            several branches. Otherwise the node has its last name.
        root : hashable, default=VIRTUAL_ROOT
            Name of the virtual root, needed unless all paths start with the same name.

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

        Empty lines and lines that start with ``#`` are skipped. A child with nothing after the tab is a root, and so is
        one with the parent ``-1`` unless ``-1`` is itself a child. Names stay strings.

        Parameters
        ----------
        path : str or path
            The file.
        header : bool, optional
            Whether the first line is a header. By default, it is one if it reads ``child<TAB>parent``.
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
        from widemargin.data.taxonomy import read_edges

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
                "the graph is undirected, so it does not show which end of an edge is the parent",
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
            raise DataFormatError(
                f"the root and a label are both named {root!r}", remedy="choose another name with root=…"
            )
        return cls(*build_tree(EdgeList(names, [plain_name(root)] * len(names)), root))

    @property
    def n_nodes(self) -> int:
        """Number of nodes, the root included."""
        return self.tree.n_nodes

    @property
    def parent(self) -> IntArray:
        """Parent number of each node, −1 for the root, shape (n_nodes,)."""
        return self.tree.parent

    @property
    def children_indptr(self) -> IntArray:
        """Start of the children of each node in `children_indices`, shape (n_nodes + 1,)."""
        return self.tree.children_indptr

    @property
    def children_indices(self) -> IntArray:
        """Children of all nodes, grouped by parent, shape (n_nodes − 1,)."""
        return self.tree.children_indices

    @property
    def depth(self) -> IntArray:
        """Number of edges from the root to each node, shape (n_nodes,)."""
        return self.tree.depth

    @property
    def order(self) -> IntArray:
        """Node numbers with parents before children, shape (n_nodes,)."""
        return self.tree.order

    @property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        """Whether each node has no children, shape (n_nodes,)."""
        return self.tree.is_leaf

    @property
    def height(self) -> int:
        """Largest depth."""
        return self.tree.height

    def ancestor_matrix(self) -> Any:
        """CSR indicator, nodes × nodes: entry (i, a) is 1 if a is i or an ancestor of i (see `Tree.ancestor_matrix`).

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.from_paths(["A/B", "A/C"]).ancestor_matrix().toarray()
        array([[1, 0, 0],
               [1, 1, 0],
               [1, 0, 1]], dtype=int8)
        """
        return self.tree.ancestor_matrix()

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
        """Number of one node; an unknown name is an error that suggests similar ones."""
        return int(look_up([plain_name(node)], self._numbers, "the taxonomy")[0])

    def indices(self, labels: Iterable[Any]) -> IntArray:
        """Numbers of many nodes, shape (n,); an error names the labels that are not in the tree.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.flat(["cat", "dog"]).indices(["dog", "cat", "dog"])
        array([2, 1, 2])
        """
        return look_up(many(labels), self._numbers, "the taxonomy")

    def find(self, labels: Iterable[Any], missing: int = -1) -> IntArray:
        """Numbers of many nodes, shape (n,); `missing` for labels that are not in the tree.

        Examples
        --------
        >>> from widemargin.labels.taxonomy import Taxonomy
        >>> Taxonomy.flat(["cat", "dog"]).find(["dog", "cow"])
        array([ 2, -1])
        """
        return np.fromiter(map(self._numbers.get, labels, repeat(missing)), dtype=np.intp)

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
        """Names of the leaves below the node; for a leaf, its own name."""
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
        # Ascending numbers stay breadth first below a node, so renumbering is just counting.
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
        """Write the file that `from_tsv` reads, atomically; names must be strings."""
        from widemargin.data.taxonomy import write_edges

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


def as_taxonomy(given: Any) -> Taxonomy:
    """A taxonomy in any form that estimators take.

    Parameters
    ----------
    given : Taxonomy, mapping or networkx.DiGraph
        A mapping is nested, as for `Taxonomy.from_nested`, if one of its values is a mapping, list, tuple or set;
        otherwise it maps each child to its parent, as for `Taxonomy.from_parents`.

    Returns
    -------
    Taxonomy

    Examples
    --------
    >>> from widemargin.labels.taxonomy import as_taxonomy
    >>> as_taxonomy({"animal": ["cat", "dog"]}) == as_taxonomy({"cat": "animal", "dog": "animal"})
    True
    """
    if isinstance(given, Taxonomy):
        return given
    if isinstance(given, Mapping):
        nested = any(isinstance(value, Mapping | list | tuple | set | frozenset) for value in given.values())
        return Taxonomy.from_nested(given) if nested else Taxonomy.from_parents(given)
    if hasattr(given, "is_directed"):
        return Taxonomy.from_networkx(given)
    raise ValueError(
        "taxonomy must be a Taxonomy, a nested dict, a dict from child to parent, or a networkx.DiGraph; got "
        f"{given!r:.100}; see also Taxonomy.from_edges, from_paths and from_tsv"
    )
