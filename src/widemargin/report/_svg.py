"""Figures as inline SVG: text stays text, colours follow the page, and the names in one do not clash with another's.

matplotlib's file is taken apart and written again without its name spaces, metadata and style sheet; identifiers get a
prefix, and the colours of lines and text become variables of the page's style sheet, which has a light and a dark set.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from widemargin.displays._axes import BLUE, GREEN, GREY, PURPLE, VERMILION, import_matplotlib

__all__ = ["draw_svg"]

INK = "#1b1c1d"
VARIABLES = {
    INK: "var(--ink)",
    BLUE: "var(--blue)",
    VERMILION: "var(--vermilion)",
    GREEN: "var(--green)",
    PURPLE: "var(--purple)",
    GREY: "var(--grey)",
}
COLOUR = re.compile("|".join(VARIABLES))
REFERENCE = re.compile(r"url\(#([^)]*)\)")
HREF = "href"
LEFT_OUT = {"metadata", "style"}
STYLE = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "widemargin",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
}


def draw_svg(draw: Callable[[Any], Any], name: str, alt: str, size: tuple[float, float]) -> str:
    """Draw into axes of a new figure of this size in inches, and return it as an `svg` element."""
    matplotlib = import_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # The page's fonts are not matplotlib's: it need not know every letter of a name.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _tidy(file.getvalue(), name, alt)


def _tidy(svg: bytes, name: str, alt: str) -> str:
    """The `svg` element by itself, for a page."""
    root = ElementTree.fromstring(svg)
    for parent in root.iter():
        for child in [child for child in parent if _local(child.tag) in LEFT_OUT]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(key): _attribute(_local(key), value, name) for key, value in element.attrib.items()}
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": alt}
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """A name without its name space."""
    return name.rpartition("}")[2]


def _attribute(key: str, value: str, name: str) -> str:
    """An attribute with prefixed references, and colours as variables."""
    if key == "id" or (key == HREF and value.startswith("#")):
        return f"#{name}-{value[1:]}" if key == HREF else f"{name}-{value}"
    value = REFERENCE.sub(rf"url(#{name}-\1)", value)
    return COLOUR.sub(lambda found: VARIABLES[found[0]], value) if key in {"style", "fill", "stroke"} else value
