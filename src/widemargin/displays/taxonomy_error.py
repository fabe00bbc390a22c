"""A taxonomy coloured by error: where in the tree predictions go wrong.

    error of a node = share of the rows with a label at or below it whose prediction is neither

Every node is a cell to the right of its parent's, as high as its share of the rows: one column a level. With c the
counts of the lowest common ancestors of label and prediction and n those of the labels, the error of a node is
1 − (sum of c over its subtree) / (sum of n over its subtree). Cells too thin to be seen are left out.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import (
    GREY,
    RUST,
    Display,
    colour_on,
    draw_bar,
    numbers,
    predictions_of,
    shades,
    short_name,
    without_frame,
)
from widemargin.estimators.scoring import Model
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import subtree_sums

__all__ = ["TaxonomyErrorDisplay"]

LEAST_SHARE = 0.003
"""Cells that stand for fewer of the rows are not drawn: they would be lines."""
LEAST_POINTS = 7.0
"""Height of a cell, in points, from which on its name is written."""
POINTS_PER_INCH, POINTS_PER_LETTER = 72.0, 4.2


@with_shared_passages
class TaxonomyErrorDisplay(Display):
    """The error of every node of a taxonomy.

    Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    <tree>
    support : ndarray of int of shape (n_nodes,)
        Rows with a label at or below each node.
    error : ndarray of shape (n_nodes,)
        Share of them whose prediction is not at or below the node; NaN where there are none.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from widemargin import Taxonomy
    >>> from widemargin.displays import TaxonomyErrorDisplay
    >>> tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": None}})
    >>> display = TaxonomyErrorDisplay.from_predictions(
    ...     ["cat", "cat", "dog", "bird"], ["cat", "dog", "bird", "bird"], tree, ax=Figure().subplots())
    >>> dict(zip(tree.nodes, display.error.round(2).tolist()))
    {'animal': 0.0, 'mammal': 0.33, 'bird': 0.0, 'cat': 0.5, 'dog': 1.0}
    """

    def __init__(self, *, taxonomy: Taxonomy, support: npt.NDArray[np.int64], error: npt.NDArray[np.float64]) -> None:
        self.taxonomy = taxonomy
        self.support = support
        self.error = error

    @classmethod
    def from_estimator(cls, estimator: Model, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Draw the errors of a fitted model on a tree.

        Parameters
        ----------
        <tree_model>
        <X>
        <one_label>
        <ax>

        <display>
        """
        return cls.from_predictions(*predictions_of(estimator, X, y), ax=ax)

    @classmethod
    def from_predictions(cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, ax: Any = None) -> Self:
        """Draw the errors of predictions.

        Parameters
        ----------
        <true_and_predicted>
        <tree>
        <ax>

        <display>
        """
        return cls.of_predictions(y_true, y_pred, taxonomy).plot(ax=ax)

    @classmethod
    def of_predictions(cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> Self:
        """The display of predictions, not drawn yet."""
        true, predicted = numbers(y_true, y_pred, taxonomy)
        common = taxonomy.tree.lca(true, predicted)
        support, right = (
            subtree_sums(taxonomy.parent, np.bincount(nodes, minlength=len(taxonomy))) for nodes in (true, common)
        )
        error = np.full(len(taxonomy), np.nan)
        np.divide(support - right, support, out=error, where=support > 0)
        return cls(taxonomy=taxonomy, support=support.astype(np.int64), error=error)

    def _draw(self) -> None:
        tops, depth = self._tops(), self.taxonomy.depth
        height = self.support / max(1, int(self.support[0]))
        shown = np.flatnonzero((height >= LEAST_SHARE) & (depth > 0))
        colours = shades(RUST)
        self.ax_.barh(
            tops[shown] + height[shown] / 2,
            np.ones(len(shown)),
            height[shown],
            left=depth[shown] - 0.5,
            color=colours(self.error[shown]),
            edgecolor=GREY,
            linewidth=0.4,
        )
        self._write_names(shown, tops, height)
        deepest = int(depth[shown].max(initial=1))
        self.ax_.set_xlim(0.5, deepest + 0.5)
        self.ax_.set_ylim(1.0, 0.0)
        self.ax_.set_xticks(range(1, deepest + 1))
        self.ax_.set_yticks([])
        without_frame(self.ax_)
        self.ax_.set_xlabel("level of the tree")
        from matplotlib.cm import ScalarMappable

        bar = draw_bar(self.ax_, ScalarMappable(cmap=colours), shrink=0.5)
        bar.solids.set_alpha(None)  # the shades differ in opacity only
        bar.set_label("error")

    def _tops(self) -> npt.NDArray[np.float64]:
        """Where the cell of each node begins, as a share of the height: below the siblings before it."""
        share = self.support / max(1, int(self.support[0]))
        tops = np.zeros(len(share))
        parent = self.taxonomy.parent
        # Siblings are contiguous and parents come first: a running sum restarted at each first child.
        before = np.cumsum(share) - share
        first = self.taxonomy.tree.children_indptr[parent[1:]] + 1
        offsets = before[1:] - before[first]
        for node in range(1, len(share)):
            tops[node] = tops[parent[node]] + offsets[node - 1]
        return tops

    def _write_names(self, shown: Any, tops: Any, height: Any) -> None:
        """Names in the cells that are high enough for them."""
        box = self.ax_.get_position()
        wide, high = self.figure_.get_size_inches() * POINTS_PER_INCH
        deepest = int(self.taxonomy.depth[shown].max(initial=1))
        letters = max(3, int(box.width * wide / deepest / POINTS_PER_LETTER) - 2)
        for node in shown[height[shown] * box.height * high >= LEAST_POINTS].tolist():
            name = short_name(self.taxonomy.nodes[node], letters)
            middle = tops[node] + height[node] / 2
            colour = colour_on(self.error[node])
            self.ax_.text(self.taxonomy.depth[node] - 0.47, middle, name, va="center", fontsize=6.5, **colour)
