"""What every display shares: axes to draw in, colours, and names that cannot be taken for markup.

matplotlib is imported when something is drawn and not before, so that results can be computed without it.
Colours are Okabe and Ito's ("Color universal design", 2008), which people with any colour vision can tell apart. Shades
are one colour at growing opacity, so that they suit a light and a dark page alike.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from widemargin.exceptions import MissingExtraError

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "PURPLE",
    "RUST",
    "SERIES",
    "STEEL",
    "VERMILION",
    "axes_for",
    "colour_on",
    "draw_bar",
    "draw_curve",
    "draw_matrix",
    "shades",
    "short_name",
    "two_shades",
    "whole_numbers",
    "without_frame",
    "write_in_cells",
]

BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#808080"
RUST, STEEL = "#c25400", "#006ba8"
"""Colours of cells; those of lines, which a page may brighten, are others."""
SERIES = (BLUE, VERMILION, GREEN, PURPLE)
N_SHADES = 16
STRONG = 0.6
"""From this opacity on, white text is read better than dark text."""
NAME_LENGTH = 24


def import_matplotlib() -> ModuleType:
    """matplotlib, or an error that says how to get it."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtraError("drawing", "matplotlib", "report") from error
    return matplotlib


def axes_for(ax: Any) -> tuple[Any, Any]:
    """Figure and axes: those given, or a new figure of pyplot's."""
    import_matplotlib()
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    return ax.figure, ax


def shades(colour: str) -> Any:
    """A colour map from nothing to the full colour."""
    from matplotlib.colors import ListedColormap, to_rgb

    rgb = to_rgb(colour)
    return ListedColormap([(*rgb, step / (N_SHADES - 1)) for step in range(N_SHADES)])


def two_shades(low: str = RUST, high: str = STEEL) -> Any:
    """A colour map from one full colour over nothing to another one."""
    from matplotlib.colors import ListedColormap, to_rgb

    steps = [step / N_SHADES for step in range(N_SHADES + 1)]
    down = [(*to_rgb(low), step) for step in reversed(steps)]
    return ListedColormap([*down, *((*to_rgb(high), step) for step in steps[1:])])


def short_name(name: Any, length: int = NAME_LENGTH) -> str:
    """A label name for a picture: one line, not too long, and no formula, whatever is in it."""
    text = str(name).encode("utf-8", "backslashreplace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    if len(text) > length:
        text = text[: length - 1] + "…"
    return text.replace("$", r"\$")  # matplotlib takes what stands between two of them for a formula


def whole_numbers(axis: Any) -> None:
    """Ticks of an axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def draw_matrix(ax: Any, matrix: Any, colours: Any, low: float, high: float) -> Any:
    """A matrix as an image whose pixels are the cells, the first row at the top."""
    image = ax.imshow(matrix, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="none")
    without_frame(ax)
    return image


def without_frame(ax: Any) -> None:
    """Axes without lines around them and without ticks."""
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def draw_bar(ax: Any, colours: Any, **place: Any) -> Any:
    """A narrow bar of what the colours mean, to the right of the axes."""
    bar = ax.figure.colorbar(colours, ax=ax, fraction=0.03, pad=0.02, **place)
    bar.outline.set_linewidth(0.4)
    return bar


def draw_curve(ax: Any, x: Any, y: Any, name: str | None, **style: Any) -> None:
    """A line; with a name it takes the next colour and a place in the legend, to stand next to others."""
    ax.plot(x, y, color=None if name else BLUE, label=name, **style)
    if name is not None:
        ax.legend(frameon=False)


def write_in_cells(ax: Any, texts: Any, shade: Any, **style: Any) -> None:
    """A text in each cell that has one, white where the shade (0 to 1) is strong."""
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            if text:
                ax.text(column, row, text, ha="center", va="center", **style, **colour_on(shade[row][column]))


def colour_on(shade: float) -> dict[str, str]:
    """The colour of a text on a shade (0 to 1), where it is not the usual one."""
    return {"color": "white"} if shade >= STRONG else {}
