"""JSON from a file that may be hostile: no inf or nan, no repeated keys, no nesting without end."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["parse_json"]


def parse_json(text: bytes) -> Any:
    """The value of a JSON text in UTF-8; a ValueError says what is wrong with it.

    Examples
    --------
    >>> from widemargin._strict_json import parse_json
    >>> parse_json(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' is repeated
    """
    try:
        return json.loads(
            text.decode(), parse_constant=_finite_float, parse_float=_finite_float, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.50} is not a finite number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r:.50} is repeated")
    return values
