"""Passages that many docstrings share, written once.

A line `<name>` in a docstring, or in a passage, stands for the passage of that name in `_docstrings.txt`;
`with_shared_passages` puts it there when the module is imported. `{owner}` is the name of the class.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Documented = TypeVar("Documented", bound=Callable[..., Any] | type)

TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
PASSAGES = {name: textwrap.dedent(text) for name, text in re.findall(r"^<(\w+)>\n((?:    .*\n|\n)+)", TEXT, re.M)}


def with_shared_passages(documented: Documented) -> Documented:
    """Replace each line `<name>` of a docstring, and those of the methods of a class, by the shared passage.

    Parameters
    ----------
    documented : function or class
        What has the docstring; it is changed in place.

    Returns
    -------
    function or class
        The same object.

    Examples
    --------
    >>> from widemargin._docstrings import with_shared_passages
    >>> def draw(ax): "<ax>"
    >>> print(with_shared_passages(draw).__doc__)
    ax : matplotlib Axes, optional
        Axes to draw in. By default, a new figure.
    """

    def filled(text: str) -> str:
        return re.sub(r"^(?P<indent> *)<(?P<name>\w+)>$", passage, text, flags=re.M)

    def passage(match: re.Match[str]) -> str:
        text = PASSAGES[match["name"]].rstrip().replace("{owner}", documented.__name__)
        return textwrap.indent(filled(text), match["indent"])

    for thing in (documented, *(vars(documented).values() if inspect.isclass(documented) else ())):
        function = getattr(thing, "__func__", thing)  # a class method has a function inside
        if callable(function) and function.__doc__:  # there is none under python -OO
            function.__doc__ = filled(function.__doc__)
    return documented
