"""What every display shares: axes to draw in, colours, and names that cannot be taken for markup.

matplotlib is imported when something is drawn; results can be computed without it.
Colours are Okabe and Ito's ("Color universal design", 2008), which people with any colour vision can distinguish.
Shades are one colour at growing opacity, which suits light and dark pages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self, TypeVar, dataclass_transform

from widemargin._docstrings import with_shared_passages
from widemargin.exceptions import MissingExtraError

BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#808080"
RUST, STEEL = "#c25400", "#006ba8"
"""Colours of cells, not of lines, which a page may brighten."""
SERIES = (BLUE, VERMILION, GREEN, PURPLE)
N_SHADES = 16
STRONG = 0.6
"""From this opacity on, white text is easier to read than dark text."""
NAME_LENGTH, LONGEST_TEXT = 24, 200
THOUSAND = 1000

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False)
def display_class(cls: type[T]) -> type[T]:
    """Make a class a dataclass of keywords, without equality and repr, and fill in its shared passages."""
    return with_shared_passages(dataclass(kw_only=True, eq=False, repr=False)(cls))


@with_shared_passages
class Display(ABC):
    """A display whose `plot` asks only for the axes."""

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        <ax>

        Returns
        -------
        Self
            The display itself, with `ax_` and `figure_`.
        """
        self.figure_, self.ax_ = axes_for(ax)
        self._draw()
        return self

    @abstractmethod
    def _draw(self) -> None:
        """Draw into `ax_`."""


def import_matplotlib() -> ModuleType:
    """matplotlib, or an error that names the extra to install."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtraError("drawing", "matplotlib", "report") from error
    return matplotlib


def axes_for(ax: Any) -> tuple[Any, Any]:
    """Figure and axes: the given axes, or those of a new pyplot figure."""
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


def two_shades() -> Any:
    """A colour map from full rust over nothing to full steel."""
    from matplotlib.colors import ListedColormap, to_rgb

    steps = [step / N_SHADES for step in range(N_SHADES + 1)]
    down = [(*to_rgb(RUST), step) for step in reversed(steps)]
    return ListedColormap([*down, *((*to_rgb(STEEL), step) for step in steps[1:])])


def short_text(name: Any, length: int = LONGEST_TEXT) -> str:
    """A text of bounded length on one line, without characters that cannot be shown."""
    text = str(name).encode("utf-8", "backslashreplace").decode()
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else text[: length - 1] + "…"


def short_name(name: Any, length: int = NAME_LENGTH) -> str:
    """A label name for a picture: one short line that is never read as a formula."""
    return short_text(name, length).replace("$", r"\$")  # matplotlib reads the text between two of them as a formula


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


def draw_bar(ax: Any, colours: Any, **options: Any) -> Any:
    """A narrow bar that explains the colours, to the right of the axes."""
    bar = ax.figure.colorbar(colours, ax=ax, fraction=0.03, pad=0.02, **options)
    bar.outline.set_linewidth(0.4)
    return bar


def draw_curve(ax: Any, x: Any, y: Any, name: str | None, **style: Any) -> None:
    """A line; with a name it takes the next colour and an entry in the legend."""
    ax.plot(x, y, color=None if name else BLUE, label=name, **style)
    if name is not None:
        ax.legend(frameon=False)


def colour_on(shade: float) -> dict[str, str]:
    """The colour of a text on a shade (0 to 1), if it is not the usual one."""
    return {"color": "white"} if shade >= STRONG else {}


def bin_start(log2_frequency: int) -> str:
    """The smallest number of a log₂ bin, from a thousand on as "1k"; −1 is the bin of 0."""
    least = 0 if log2_frequency < 0 else 2**log2_frequency
    return str(least) if least < THOUSAND else f"{least // THOUSAND}k"
