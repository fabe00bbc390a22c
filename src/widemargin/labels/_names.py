"""Names of labels and nodes: plain values, missing ones, look-up, and how messages show them."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from widemargin.exceptions import DataFormatError
from widemargin.labels.tree import IntArray

__all__ = ["is_missing", "is_several", "listed", "look_up", "many", "plain_name", "plain_names"]

MAX_NAMES_IN_MESSAGE = 10
# difflib compares with every name: about 10 µs each, so at most 0.2 s for an error message.
MAX_NAMES_TO_COMPARE = 20_000


def is_missing(name: Any) -> bool:
    """Whether a label is None, NaN, or one of pandas' missing values, which do not equal themselves."""
    if name is None:
        return True
    same = name == name
    return not (isinstance(same, bool | np.bool_) and bool(same))


def plain_name(name: Any) -> Hashable:
    """The name as a plain Python value; missing and unhashable names are refused."""
    if isinstance(name, np.generic):
        name = name.item()
    try:
        hash(name)
    except TypeError as error:
        raise DataFormatError(f"the name {name!r} is not hashable", remedy="use strings, numbers or tuples") from error
    if is_missing(name):
        raise DataFormatError(f"{name!r} cannot be a name", remedy="give every label and node a name")
    plain: Hashable = name
    return plain


def plain_names(names: list[Any], *, or_none: bool = False) -> list[Any]:
    """`plain_name` of each, without a call for each when all are of Python's own simple types."""
    simple = {str, int, bytes, type(None)} if or_none else {str, int, bytes}
    if set(map(type, names)) <= simple:
        return names
    return [None if or_none and name is None else plain_name(name) for name in names]


def is_several(names: Any) -> bool:
    """Lists, arrays and Series hold several names; anything else, a tuple included, is one."""
    return isinstance(names, list) or (hasattr(names, "__array__") and np.ndim(names) > 0)


def many(names: Any) -> list[Any]:
    """Names as plain Python values; a lone string is one name, not its letters."""
    if isinstance(names, str):
        return [names]
    values = names if isinstance(names, list | tuple) else np.asarray(names).tolist()
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def listed(names: Iterable[Any], separator: str = ", ") -> str:
    """The first few names for a message, and how many more there are."""
    names = list(names)
    shown = separator.join(repr(name) for name in names[:MAX_NAMES_IN_MESSAGE])
    more = len(names) - MAX_NAMES_IN_MESSAGE
    return f"{shown}{separator}… ({more} more)" if more > 0 else shown


def look_up(labels: Iterable[Any], numbers: Mapping[Any, int], place: str) -> IntArray:
    """Number of each label; labels without one are named, with the nearest known ones for a single label."""
    labels = list(labels)
    try:
        found = [numbers.get(label, -1) for label in labels]
    except TypeError as error:
        raise DataFormatError("a label is not hashable", remedy="give a one-dimensional list of names") from error
    result = np.array(found, dtype=np.intp)
    if result.size and result.min() < 0:
        missing = list(dict.fromkeys(label for label, number in zip(labels, found, strict=True) if number < 0))
        raise DataFormatError(f"{_subject(missing)} not in {place}", remedy=_suggestion(missing, numbers))
    return result


def _subject(missing: list[Any]) -> str:
    """'x' is / 2 labels are, with their names."""
    if len(missing) == 1:
        return f"{missing[0]!r} is"
    return f"{len(missing)} labels ({listed(missing)}) are"


def _suggestion(missing: list[Any], known: Mapping[Any, int]) -> str:
    """Known names near the first missing one, numbers and their spellings included."""
    if len(known) <= MAX_NAMES_TO_COMPARE:
        spelled = {str(name): name for name in known}
        near = difflib.get_close_matches(str(missing[0]), spelled)
        if near:
            return f"did you mean {' or '.join(repr(spelled[name]) for name in near)} instead of {missing[0]!r}?"
    return "add it, or leave out the rows that have it"
