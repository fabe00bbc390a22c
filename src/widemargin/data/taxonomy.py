"""A taxonomy as a file: child and parent in two tab-separated columns.

    child<TAB>parent        an optional header
    C15<TAB>CCAT            one edge per line
    CCAT<TAB>               nothing after the tab, or -1: a root

Empty lines and lines that start with `#` are skipped. The file is UTF-8, and names stay strings.
`Taxonomy.from_tsv` and `Taxonomy.to_tsv` are the public functions. Memory: the file and its edges.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike, atomic_file, read_lines
from widemargin.labels.taxonomy import EdgeList

__all__ = ["read_edges", "write_edges"]

HEADER = ("child", "parent")
COMMENT = "#"
NO_PARENT = "-1"  # of a root, in files that were arrays of parents


def read_edges(path: PathLike, header: bool | None) -> EdgeList:
    """Edges of a file with child and parent in two tab-separated columns."""
    place = os.fspath(path)
    children: list[Any] = []
    parents: list[Any] = []
    lines: list[int] = []
    skip_header = header
    for number, text in enumerate(read_lines(place), start=1):
        if not text or text.startswith(COMMENT):
            continue
        columns = text.split("\t")
        is_header = skip_header if skip_header is not None else tuple(map(str.lower, columns)) == HEADER
        skip_header = False  # only the first line that says something can be a header
        if is_header:
            continue
        _check_columns(columns, place, number)
        children.append(columns[0])
        parents.append(columns[1] or None)
        lines.append(number)
    if NO_PARENT in parents and NO_PARENT not in children:
        parents = [None if parent == NO_PARENT else parent for parent in parents]
    return EdgeList(children, parents, place, lines)


def write_edges(path: PathLike, edges: Iterable[tuple[Any, Any]]) -> None:
    """Write (child, parent) pairs as `read_edges` reads them."""
    rows = ["\t".join(HEADER)]
    for child, parent in edges:
        names = [_checked_for_file(child), "" if parent is None else _checked_for_file(parent)]
        rows.append("\t".join(names))
    with atomic_file(path, compress=False) as file:
        file.write(("\n".join(rows) + "\n").encode())


def _check_columns(columns: list[str], path: str, line: int) -> None:
    """Refuse what is not exactly a child and its parent, and names with spaces around them."""
    if len(columns) != 2:
        raise DataFormatError(
            f"the line has {len(columns)} column(s) instead of 2",
            path=path,
            line=line,
            remedy="write the child, a tab and the parent (for a root, nothing after the tab)",
        )
    if not columns[0]:
        raise DataFormatError("the child name is missing", path=path, line=line, remedy="write it before the tab")
    for name in columns:
        if name != name.strip():
            raise DataFormatError(
                f"the name {name!r} has leading or trailing spaces", path=path, line=line, remedy="remove them"
            )


def _checked_for_file(name: Any) -> str:
    """The name if the file format can hold it."""
    broken = not isinstance(name, str) or not name or name != name.strip() or any(c in name for c in "\t\r\n")
    if broken or name.startswith(COMMENT):
        raise DataFormatError(
            f"the name {name!r} cannot be written to a tab-separated file",
            remedy="use strings without tabs, line breaks, leading or trailing spaces, or a leading '#'",
        )
    return str(name)
