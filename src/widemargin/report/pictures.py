"""The pictures that fit a model: which displays, in what size, and a sentence on how to read each.

Pictures are inline SVG: text stays text, colours follow the page, and the identifiers of two pictures do not clash.
matplotlib's file is parsed and written again without its name spaces, metadata and style sheet; identifiers get a
prefix, and the colours of lines and text become variables of the page's style sheet, which has a light and a dark set.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree import ElementTree

import numpy as np

from widemargin.comparison.result import NAMES, Tuning
from widemargin.displays import (
    ActiveRowsDisplay,
    CodeMatrixDisplay,
    ConvergenceDisplay,
    OrthogonalityDisplay,
    PrecisionByFrequencyDisplay,
    ReliabilityDisplay,
    TaxonomyErrorDisplay,
    TopKAccuracyDisplay,
    TreeConfusionDisplay,
)
from widemargin.displays._axes import (
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    SERIES,
    VERMILION,
    import_matplotlib,
    short_name,
    short_text,
)
from widemargin.displays.trees import where_paths_part
from widemargin.estimators.tree.model import path_proba
from widemargin.report.outcome import Outcome

__all__ = ["Picture", "pictures_of"]

NARROW = (4.4, 3.0)
WIDE = (9.2, 5.4)
N_SIBLING_GROUPS = 3
INCHES_PER_LINE = 0.17
DEPTHS = (1, 3, 5)
LOGARITHMIC = ("C", "estimator__C")
LINES = ("-", "--", ":")
LONGEST_NAME, LONGEST_REASON = 40, 600
MOST_PROBABILITIES = 20_000_000  # 160 MB
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


@dataclass(frozen=True)
class Picture:
    """A picture that is not drawn yet, with a title and a sentence on it."""

    name: str
    title: str
    caption: str
    draw: Callable[[Any], Any]
    size: tuple[float, float] = NARROW

    @property
    def is_wide(self) -> bool:
        """Whether the picture needs the width of the page."""
        return self.size[0] > NARROW[0]

    def draw_svg(self) -> str:
        """The picture, drawn in a new figure of its size in inches, as an `svg` element."""
        matplotlib = import_matplotlib()
        from matplotlib.figure import Figure

        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            # The page's fonts are not matplotlib's, which need not know every letter of a name.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure = Figure(figsize=self.size, layout="constrained")
            self.draw(figure.subplots())
            file = io.BytesIO()
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        return _tidy(file.getvalue(), self.name, f"{self.title}. {self.caption}")


def pictures_of(outcome: Outcome) -> list[Picture]:
    """All pictures that fit the model, in the order of the page."""
    parts = (_of_quality, _of_tree, _of_model, _of_tuning, _of_training)
    return [picture for part in parts for picture in part(outcome)]


def _tidy(svg: bytes, name: str, alt: str) -> str:
    """The `svg` element on its own, for a page."""
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
    if key == "id":
        return f"{name}-{value}"
    if key == "href" and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    value = REFERENCE.sub(rf"url(#{name}-\1)", value)
    return COLOUR.sub(lambda found: VARIABLES[found[0]], value) if key in {"style", "fill", "stroke"} else value


def _of_quality(outcome: Outcome) -> Iterator[Picture]:
    """How good the predictions are."""
    if outcome.classes is not None:
        curve = TopKAccuracyDisplay(k=np.arange(1, len(outcome.curve) + 1), accuracy=outcome.curve)
        caption = "Share of the rows whose label is among the top k; ties count as expected."
        yield Picture("top-k", "Top-k accuracy", caption, curve.plot)
    ks = [k for k in DEPTHS if k <= outcome.top.indices.shape[1]]
    bins = PrecisionByFrequencyDisplay.of_predictions(outcome.truth, outcome.top, outcome.model.label_counts_, ks=ks)
    if outcome.kind == "labels":
        caption = "Share of the top k labels that are true, by how often a label occurs in training."
        yield Picture("precision", "Precision by label frequency", caption, bins.plot)
    caption = "Share of the true labels that are among the top k, by how often a label occurs in training."
    yield Picture("recall", "Recall by label frequency", caption, lambda ax: bins.plot(ax, measure="recall"))
    if hasattr(outcome.model, "predict_proba"):
        caption = (
            "Of the predictions with probability p, a fraction p should be correct: dots should lie on the dashed line."
        )
        yield Picture("reliability", "Reliability of probabilities", caption, _reliability(outcome).plot)


def _reliability(outcome: Outcome) -> ReliabilityDisplay:
    """Reliability; without a tree, on as many rows as have probabilities of all labels that fit into memory."""
    if outcome.nodes is not None:
        on_paths = path_proba(outcome.model, outcome.X, outcome.nodes.true, outcome.nodes.predicted)
        return ReliabilityDisplay.of_predictions(outcome.at_or_below, on_paths)
    rows = slice(0, max(1, MOST_PROBABILITIES // outcome.n_labels))
    probabilities = outcome.model.predict_proba(outcome.X[rows])
    if outcome.kind == "labels":
        return ReliabilityDisplay.of_predictions(outcome.truth[rows, : outcome.n_labels].tocsr(), probabilities)
    assert outcome.classes is not None
    return ReliabilityDisplay.of_predictions(outcome.classes[rows], probabilities)


def _of_tree(outcome: Outcome) -> Iterator[Picture]:
    """Where in the tree predictions go wrong."""
    if outcome.nodes is None:
        return
    tree = outcome.model.taxonomy_
    true, guess = ([tree.nodes[i] for i in side.tolist()] for side in (outcome.nodes.true, outcome.nodes.predicted))
    if tree.height > 1:
        caption = (
            "One cell per node, as high as its share of the rows, to the right of its parent. The stronger its colour, "
            "the more of its rows are lost: their predictions are not at or below the node."
        )
        error = TaxonomyErrorDisplay.of_predictions(true, guess, tree)
        yield Picture("taxonomy", "The taxonomy, coloured by error", caption, error.plot, WIDE)
    forks = where_paths_part(outcome.nodes.true, outcome.nodes.predicted, tree)
    below = [node for node, _ in forks if node != 0][:N_SIBLING_GROUPS]
    for number, node in enumerate([0, *below]):
        confusion = TreeConfusionDisplay.of_predictions(true, guess, tree, tree.nodes[node])
        if confusion.confusion.size == 0:
            continue
        title = "Confusion across the tree"
        if node != 0:
            title = f"Confusion among children of {short_text(confusion.node, 40)}"
        caption = "Rows by true branch (down) and predicted branch (across); shades are shares of a true branch."
        n_lines = len(confusion.true_names)
        size = (NARROW[0], max(NARROW[1], 1.4 + INCHES_PER_LINE * n_lines))
        yield Picture(f"confusion-{number}", title, caption, confusion.plot, size)


def _of_model(outcome: Outcome) -> Iterator[Picture]:
    """The model itself."""
    model = outcome.model
    if getattr(model, "code_book_", None) is not None:
        learned = hasattr(model, "code_matrix_")
        code = CodeMatrixDisplay(
            code=np.asarray(model.code_matrix_ if learned else model.code_book_, dtype=np.float64),
            classes=model.classes_.tolist(),
        )
        caption = "One row per class, one column per binary classifier: blue for positive, orange for negative."
        yield Picture("code", "The code matrix", caption, code.plot, WIDE)
    if len(getattr(model, "orthogonality_", ())) > 0:
        pairs = OrthogonalityDisplay.of_orthogonality(model.orthogonality_)
        caption = (
            "Cosines between the weights of nodes and of their ancestors: 5th to 95th percentile, middle half and "
            "median; to the right, the share of pairs that the penalty keeps exactly orthogonal."
        )
        size = (NARROW[0], max(NARROW[1], 0.9 + INCHES_PER_LINE * len(pairs.levels)))
        yield Picture("orthogonality", "Orthogonality between levels", caption, pairs.plot, size)


def _of_tuning(outcome: Outcome) -> Iterator[Picture]:
    """The values that were tried for parameters; those that were not chosen by quality have no picture."""
    stored = getattr(outcome.model, "tuning_", None)
    for table in () if stored is None else Tuning.from_dict(stored).tables:
        if sum(quality is not None for quality in table.quality) > 1:
            param = short_text(table.params[0], LONGEST_NAME)
            why = short_text(" ".join((table.reason, *table.notes)), LONGEST_REASON)
            caption = f"Quality on held-out rows; the circle marks the choice. {why}"
            title = f"The choice of {NAMES.get(param, param)}"
            yield Picture(f"tuning-{param}", title, caption, partial(draw_tuning, found=table))


def draw_tuning(ax: Any, found: Tuning) -> None:
    """Quality against the first parameter, one line for each combination of values of the others."""
    first, *others = found.params
    lines: dict[str, list[tuple[float, float]]] = {}
    for values, quality in zip(found.tried, found.quality, strict=True):
        if quality is not None:
            name = ", ".join(f"{NAMES.get(other, other)} = {values[other]:.4g}" for other in others)
            name = short_name(name, LONGEST_NAME)
            lines.setdefault(name, []).append((values[first], quality.mean))
    for number, (name, points) in enumerate(lines.items()):
        style = {"color": SERIES[number % len(SERIES)], "linestyle": LINES[number // len(SERIES) % len(LINES)]}
        ax.plot(*zip(*points, strict=True), label=name, marker="o", markersize=3, **style)
    if others:
        ax.legend(frameon=False)
    best = found.quality[found.best_index]
    assert best is not None
    ax.plot(found.best[first], best.mean, color=INK, marker="o", markersize=7, fillstyle="none", linestyle="none")
    if first in LOGARITHMIC:
        ax.set_xscale("log")
    ax.set_xlabel(short_name(NAMES.get(first, first), LONGEST_NAME))
    ax.set_ylabel(short_name(found.metric, LONGEST_NAME))


def _of_training(outcome: Outcome) -> Iterator[Picture]:
    """How training went; histories without bounds have no picture."""
    model, history = outcome.model, outcome.model.history_
    by_frequency = "frequency_bin" in history and "dual" in history and "iteration" not in history
    if by_frequency:
        bounds = ConvergenceDisplay.of_history(history)
        caption = "Objective and lower bound at the end of training, by how often a label occurs in training."
        yield Picture("bounds", "Both bounds by label frequency", caption, bounds.plot)
        caption = "Distance between the bounds, relative to the objective."
        title = "Certified gap by label frequency"
        yield Picture("gap", title, caption, lambda ax: bounds.plot(ax, scale="gap"))
    elif "iteration" in history and "primal" in history and len(np.unique(history["iteration"])) > 1:
        bounds = ConvergenceDisplay.of_history(history, getattr(model, "certificate_", None))
        below = "the lower bound rises" if "dual" in history else "the lower bound comes from the certificate"
        caption = f"The objective falls, {below}; the optimum is between them."
        yield Picture("bounds", "Convergence: both bounds", caption, bounds.plot)
        caption = "Distance between the bounds, relative to the objective; the dots are guaranteed, not estimated."
        yield Picture("gap", "Convergence: certified gap", caption, lambda ax: bounds.plot(ax, scale="gap"))
    if "iteration" in history and ("active_rows" in history or "visits" in history):
        n_samples = model.n_samples_fit_ if "active_rows" in history else None
        active = ActiveRowsDisplay.of_history(history, n_samples)
        caption = "Share of the data that the solver still has to visit."
        if len(active.parts[0].iteration) > 1:
            yield Picture("active", "Active rows", caption, active.plot)
