"""Other forms of a tree as edges: paths, nested mappings, tab-separated files; and the way back to a file."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from widemargin.exceptions import DataFormatError
from widemargin.labels._names import plain_name
from widemargin.labels._tree_build import EdgeList

__all__ = ["edges_of_nested", "edges_of_paths", "read_edges", "write_edges"]

HEADER = ("child", "parent")
COMMENT = "#"


def edges_of_paths(paths: Iterable[Any], separator: str, full_names: bool) -> EdgeList:
    """Edges of label paths, each from the top down."""
    children: list[Hashable] = []
    parents: list[Hashable | None] = []
    for path in paths:
        steps = path.split(separator) if isinstance(path, str) else list(path)
        if not steps or "" in steps:
            raise DataFormatError(
                f"the path {path!r} has an empty name", remedy=f"write every name once, with {separator!r} only between"
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
                f"below {parent!r} there is {below!r}", remedy="use a mapping of children, a list of leaves, or None"
            )
        names = [plain_name(name) for name in below]
        children += names
        parents += [parent] * len(names)
        if isinstance(below, Mapping):
            queue.extend(zip(names, below.values(), strict=True))
    return EdgeList(children, parents)


def read_edges(path: str | os.PathLike[str], header: bool | None) -> EdgeList:
    """Edges of a file with child and parent in two tab-separated columns."""
    place = os.fspath(path)
    children: list[Any] = []
    parents: list[Any] = []
    lines: list[int] = []
    skip_header = header
    for number, text in enumerate(_read_lines(place), start=1):
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
    return EdgeList(children, parents, place, lines)


def write_edges(path: str | os.PathLike[str], edges: Iterable[tuple[Any, Any]]) -> None:
    """Write (child, parent) pairs as `read_edges` reads them, to a temporary file that is renamed when complete."""
    target = Path(path)
    rows = ["\t".join(HEADER)]
    for child, parent in edges:
        names = [_checked_for_file(child), "" if parent is None else _checked_for_file(parent)]
        rows.append("\t".join(names))
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write("\n".join(rows) + "\n")
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _read_lines(path: str) -> list[str]:
    """Lines of a UTF-8 file without their ends; a byte-order mark is skipped."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataFormatError(
            "this is a pipe or a device, not a file", path=path, remedy="write the tree to a file first"
        )
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataFormatError("this is not UTF-8 text", path=path, line=line, remedy="convert the file") from error
    # Not str.splitlines, which also cuts at characters that may stand inside a name, such as U+2028.
    return [line.removesuffix("\r") for line in text.split("\n")]


def _check_columns(columns: list[str], path: str, line: int) -> None:
    """Refuse what is not exactly a child and its parent, and names with spaces around them."""
    if len(columns) != 2:
        raise DataFormatError(
            f"{len(columns)} column(s) instead of 2",
            path=path,
            line=line,
            remedy="write child, a tab, and parent (nothing after the tab for a root)",
        )
    if not columns[0]:
        raise DataFormatError("the child has no name", path=path, line=line, remedy="name it before the tab")
    for name in columns:
        if name != name.strip():
            raise DataFormatError(f"spaces around the name {name!r}", path=path, line=line, remedy="remove them")


def _checked_for_file(name: Any) -> str:
    """The name if the file format can hold it."""
    broken = not isinstance(name, str) or not name or name != name.strip() or any(c in name for c in "\t\r\n")
    if broken or name.startswith(COMMENT):
        raise DataFormatError(
            f"the name {name!r} cannot be written to a tab-separated file",
            remedy="use strings without tabs, line ends, spaces around them or a leading '#'",
        )
    return str(name)
