"""A hint for tables whose cells of labels look like lists, such as "red;round", where no separator was given, or one
that no cell has.

Names of classes may have a comma too, as "Smith, John" and "Food, Beverages & Tobacco" have. Of the different cells,
however often each occurs, those with the mark are taken for lists of labels where

    most of them are made of parts that are cells of their own, as "red;round" is where "red" and "round" occur, or
    the parts of all cells are clearly fewer than the cells, so that parts come back in other cells, and do so at other
    places: lists mix, while a surname comes first, and the steps of a path keep their level.

The first rows of a table decide, read before the work on all of it begins.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from widemargin.data.tables import read_cells
from widemargin.exceptions import DataFormatWarning

__all__ = ["hint_of_lists", "separator_of"]

MARKS = ("|", ";", ",")
"""What may stand between labels where nobody said so; a slash does not, since it makes paths on a tree."""
ROWS_LOOKED_AT = 10_000
LEAST_KNOWN = 2 / 3
"""Of the different cells with the mark, those whose parts all occur as cells. A name such as "Education, Nursing" may
have such parts by chance; most of its kind, such as "Education, Medical", do not."""
LEAST_KNOWN_CELLS = 3
"""Such cells, so that it is not by chance."""
FEWER = 0.75
"""Different parts to different cells, at most."""
LEAST_MIXED = 1 / 3
"""Of the parts of several cells, those that do not always have the same place. Pairs of names with a comma, of which
some are surnames and first names alike, stay far below it."""


def hint_of_lists(path: Path, column: str, form: dict[str, Any], given: str | None, remedy: str = "give") -> None:
    """Warn if the first cells of a column look like lists of labels, and not of those that the given separator makes.

    Parameters
    ----------
    path : path
        The table.
    column : str
        The column of labels.
    form : dict
        Options of `read_cells`.
    given : str or None
        The separator, if there is one.
    remedy : str
        What to do with the option `--label-sep`.
    """
    values = (cells.values[0] for cells in itertools.islice(read_cells(path, [column], **form), ROWS_LOOKED_AT))
    counts = Counter(value.strip() for value in values if isinstance(value, str))
    mark = None if given and any(given in cell for cell in counts) else separator_of(counts)
    if mark is not None:
        example = min((cell for cell in counts if mark in cell), key=lambda cell: (len(cell), cell))
        why = f", as none has {given!r}" if given else ""
        warnings.warn(
            f"{path}: column {column!r} has cells such as {example!r}, each taken as one label{why}; if they are lists "
            f"of labels, {remedy} --label-sep '{mark}'",
            DataFormatWarning,
            stacklevel=1,  # of one place, so that it is told once
        )


def separator_of(cells: Iterable[str] | Counter[str]) -> str | None:
    """The mark at which cells should be split, if they look like lists; None for names of classes.

    Examples
    --------
    >>> from widemargin.cli._label_lists import separator_of
    >>> separator_of(["red;round", "round", "blue;round", "red;blue", "red"])
    ';'
    >>> separator_of(["Smith, John", "Smith, Ann", "Jones, Ann", "Smith, John"])
    """
    counts = Counter(cells)
    return next((mark for mark in MARKS if _are_lists(counts, mark)), None)


def _are_lists(counts: Counter[str], mark: str) -> bool:
    parts_of = {cell: [part for part in map(str.strip, cell.split(mark)) if part] for cell in counts}
    marked = [parts for cell, parts in parts_of.items() if mark in cell]
    known = sum(len(parts) > 1 and all(part in counts for part in parts) for parts in marked)
    if known >= LEAST_KNOWN_CELLS and known >= LEAST_KNOWN * len(marked):
        return True
    return bool(marked) and _are_mixed(list(parts_of.values()))


def _are_mixed(cells: list[list[str]]) -> bool:
    """Whether parts are fewer than cells, and those of several cells have different places in them."""
    n_cells: Counter[str] = Counter()
    places: defaultdict[str, set[int]] = defaultdict(set)
    for parts in cells:
        n_cells.update(set(parts))
        for place, part in enumerate(parts):
            places[part].add(place)
    shared = [part for part, count in n_cells.items() if count > 1]
    mixed = sum(len(places[part]) > 1 for part in shared)
    return len(n_cells) <= FEWER * len(cells) and mixed >= LEAST_MIXED * len(shared)
