"""What every display shares: axes to draw in, colours, and names that cannot be taken for markup.

matplotlib is imported when something is drawn and not before, so that results can be computed without it.
Colours are Okabe and Ito's ("Color universal design", 2008), which people with any colour vision can tell apart. Shades
are one colour at growing opacity, so that they suit a light and a dark page alike.

Displays that are drawn without options: how they are drawn is theirs, where is the same for all.

Histories of all families as series over iterations, whatever their rows stand for.

A history has one row a pass, or one for each iteration and part of the work: log₂ bins of label frequency in
one-vs-all, problems in the rivals. A part that has ended keeps its last value, so that sums over the parts compare:

    total(t) = Σ_parts value(part, last iteration of the part ≤ t)

True labels and predictions as node numbers of a tree, for the displays of trees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.scoring import Model
from widemargin.estimators.tree.targets import label_nodes
from widemargin.exceptions import MissingExtraError
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics.hierarchical import node_numbers

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "PURPLE",
    "RUST",
    "SERIES",
    "STEEL",
    "VERMILION",
    "Clock",
    "Display",
    "axes_for",
    "bin_name",
    "child_towards",
    "clock_of",
    "colour_on",
    "draw_bar",
    "draw_curve",
    "draw_matrix",
    "least_of_bin",
    "numbers",
    "parts_of",
    "predictions_of",
    "shades",
    "short_name",
    "total_of",
    "two_shades",
    "where_paths_part",
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


Floats = npt.NDArray[np.float64]

PARTS = ("frequency_bin", "problem")
THOUSAND = 1000


class Clock(NamedTuple):
    """The column that counts, and what to call it."""

    column: str
    name: str


def clock_of(history: Mapping[str, npt.NDArray[Any]]) -> Clock:
    """What a history counts by; an error for one that has no iterations."""
    for column, name in (("passes", "passes over the rows"), ("round", "round"), ("iteration", "iteration")):
        if column in history:
            return Clock(column, name)
    raise ValueError(
        f"this history has no iterations, only {', '.join(history) or 'nothing'}: the solver keeps one row for each "
        "part of its work"
    )


def parts_of(history: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Which part of the work each row belongs to, shape (n_rows,); all zeros where there is one only."""
    for name in PARTS:
        if name in history:
            return np.asarray(history[name], dtype=np.int64)
    n_rows = len(next(iter(history.values()))) if history else 0
    return np.zeros(n_rows, dtype=np.int64)


def total_of(history: Mapping[str, npt.NDArray[Any]], values: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Iterations, and the sum over the parts of a column at each of them, both of shape (n_iterations,)."""
    clock, parts = np.asarray(history[clock_of(history).column], dtype=np.float64), parts_of(history)
    times = np.unique(clock)
    total = np.zeros(len(times))
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        rows = rows[np.argsort(clock[rows], kind="stable")]
        last = np.searchsorted(clock[rows], times, side="right") - 1
        total += values[rows[np.maximum(last, 0)]]
    return times, total


def bin_name(log2_frequency: int) -> str:
    """The numbers of a log₂ bin: "0", "1", "2–3", "4–7", …; from a thousand on as "1k–2k"."""
    if log2_frequency < 1:
        return least_of_bin(log2_frequency)
    above = 2 ** (log2_frequency + 1)
    most = str(above - 1) if above < 2 * THOUSAND else f"{above // THOUSAND}k"
    return f"{least_of_bin(log2_frequency)}–{most}"


def least_of_bin(log2_frequency: int) -> str:
    """The smallest number of a log₂ bin; −1 is the bin of 0."""
    least = 0 if log2_frequency < 0 else 2**log2_frequency
    return str(least) if least < THOUSAND else f"{least // THOUSAND}k"


Ints = npt.NDArray[np.int64]

ELSEWHERE, STOPPED = -1, -2


def numbers(y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """Node numbers of true and predicted labels, each of shape (n_samples,)."""
    true, predicted = node_numbers(y_true, y_pred, taxonomy)
    return true.astype(np.int64), predicted.astype(np.int64)


def predictions_of(estimator: Model, X: Any, y: Any) -> tuple[list[Any], Any, Taxonomy]:
    """True labels as names of nodes, predictions, and the tree of a fitted model."""
    if not hasattr(estimator, "taxonomy_"):
        raise ValueError(
            f"{type(estimator).__name__} has no taxonomy_; fit a HierarchicalClassifier, or use from_predictions"
        )
    tree: Taxonomy = estimator.taxonomy_
    nodes = label_nodes(np.asarray(y), tree, estimator.separator)
    return [tree.nodes[node] for node in nodes.tolist()], estimator.predict(X), tree


def child_towards(taxonomy: Taxonomy, node: int, nodes: Ints) -> Ints:
    """Which child of `node`, by its place, each of the nodes is at or below; STOPPED for the node, else ELSEWHERE."""
    tree = taxonomy.tree
    children = tree.children(node)
    places = np.searchsorted(tree.enter[children], tree.enter[nodes], side="right") - 1
    inside = tree.covers(node, nodes)
    return np.where(nodes == node, STOPPED, np.where(inside, places, ELSEWHERE)).astype(np.int64)


def where_paths_part(true: Ints, predicted: Ints, taxonomy: Taxonomy) -> list[tuple[int, int]]:
    """Nodes with the number of wrong predictions that leave the true path below them, most first."""
    wrong = ~taxonomy.tree.covers(true, predicted)
    nodes, counts = np.unique(taxonomy.tree.lca(true[wrong], predicted[wrong]), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return list(zip(nodes[order].tolist(), counts[order].tolist(), strict=True))
