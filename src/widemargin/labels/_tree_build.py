"""From (child, parent) pairs of names to a tree numbered breadth first.

Every constructor of `Taxonomy` ends here. Names get numbers in order of first appearance, so siblings keep the
order of the input; then each node must have one parent, several roots get a virtual one, and whatever a
breadth-first walk from the root does not reach hangs on a cycle. Time and memory are linear; nothing recurses.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from widemargin.exceptions import DataFormatError
from widemargin.labels._names import listed, plain_name, plain_names
from widemargin.labels.tree import IntArray, Tree

__all__ = ["EdgeList", "build_tree"]

NO_PARENT_SEEN = -2  # in `_parent_array`, before a node's first edge

OF_A_DAG = (
    "a taxonomy is a tree: keep one parent of each node, for example the first that is given, by "
    "Taxonomy.from_parents({child: parent for child, parent in reversed(edges)}), or the one with the most rows; or "
    "train OneVsAllClassifier on label lists in which each label comes with all its ancestors"
)
"""What to do with a graph in which nodes have several parents."""


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
        """Take (child, parent) pairs apart; a pair that is none is named."""
        if isinstance(pairs, np.ndarray) and pairs.ndim == 2 and pairs.shape[1] == 2:
            children, parents = pairs.T.tolist()
        else:
            rows = list(pairs)
            if not (set(map(type, rows)) <= {tuple, list} and set(map(len, rows)) <= {2}):
                position, row = next(pair for pair in enumerate(rows) if not _is_pair(pair[1]))
                raise DataFormatError(f"edge {position} is {row!r}", remedy="give (child, parent) pairs")
            children, parents = [row[0] for row in rows], [row[1] for row in rows]
        return cls(plain_names(children), plain_names(parents, or_none=True))

    def error(self, problem: str, edge: int, remedy: str) -> DataFormatError:
        """The error at an edge, with file and line where there are any."""
        line = None if self.lines is None else self.lines[edge]
        return DataFormatError(problem, path=self.path, line=line, remedy=remedy)


def build_tree(edges: EdgeList, root: Hashable) -> tuple[tuple[Hashable, ...], Tree]:
    """Names in breadth-first order, and their tree; `root` names the virtual root if one is needed."""
    # Children get their numbers first: siblings then keep the order of their own edges.
    numbers: dict[Any, int] = dict.fromkeys(chain(edges.children, edges.parents), -1)
    numbers.pop(None, None)
    names = list(numbers)
    if not names:
        raise DataFormatError("the taxonomy has no nodes", path=edges.path, remedy="give at least one node")
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
            problem = f"{name!r} is given as a root and as a child of {names[max(first, second)]!r}"
            raise edges.error(problem, edge, "keep one of the two edges: a taxonomy is a tree")
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
            f"the {roots.size} roots {listed(names[node] for node in roots)} need a virtual root, "
            f"but a node is already called {root!r}",
            path=edges.path,
            remedy="choose another name with root=…",
        )
    above[roots] = len(names)
    names.append(plain_name(root))
    return np.append(above, -1), len(names) - 1


def _breadth_first(above: IntArray, start: int) -> IntArray:
    """Nodes that hang on `start`, level by level and siblings ascending; none if start is −1."""
    if start < 0:
        return np.empty(0, dtype=np.intp)
    by_parent = np.argsort(above, kind="stable")[1:]  # without the root, whose parent −1 sorts first
    first = np.searchsorted(above[by_parent], np.arange(above.size + 1))
    down = sparse.csr_array((np.ones(by_parent.size), by_parent, first), shape=(above.size, above.size))
    order: IntArray = csgraph.breadth_first_order(down, start, return_predecessors=False).astype(np.intp)
    return order


def _cycle_error(edges: EdgeList, names: list[Any], above: IntArray, child: IntArray, reached: IntArray) -> Exception:
    """The error that names a cycle: from a node that was not reached, parents lead into one."""
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
