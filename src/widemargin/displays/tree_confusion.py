"""Confusion in a tree: of the rows below a node, which child they belong to and which child was predicted.

With the root as the node this is the confusion across the tree, between its main branches; with another node it is that
between siblings, and a column more has the rows whose prediction is in another part of the tree altogether.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import (
    ELSEWHERE,
    STEEL,
    STOPPED,
    Display,
    child_towards,
    draw_matrix,
    numbers,
    predictions_of,
    shades,
    short_name,
    write_in_cells,
)
from widemargin.estimators.scoring import Model
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["TreeConfusionDisplay"]

MAX_CHILDREN = 16
FEW = 10
"""Columns up to which there is room for larger numbers."""
OTHERS, HERE, OUTSIDE = "(others)", "(stays here)", "(elsewhere)"


@with_shared_passages
class TreeConfusionDisplay(Display):
    """Counts of true and predicted children of one node of a tree.

    Colours are shares of a true child's rows, numbers are rows. Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    confusion : ndarray of int of shape (n_true, n_predicted)
        Rows of each true child (first axis) and predicted child (second axis).
    true_names, predicted_names : list of str
        Names of both axes; "(others)" stands for children that are not shown one by one, "(stays here)" for the node
        itself and "(elsewhere)" for predictions that are not below it.
    node : hashable
        The node.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from widemargin import Taxonomy
    >>> from widemargin.displays import TreeConfusionDisplay
    >>> tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": None}})
    >>> y_true, y_pred = ["cat", "cat", "dog", "bird"], ["cat", "dog", "bird", "bird"]
    >>> across = TreeConfusionDisplay.from_predictions(y_true, y_pred, tree, ax=Figure().subplots())
    >>> across.true_names, across.confusion.tolist()
    (['mammal', 'bird'], [[2, 1], [0, 1]])
    >>> siblings = TreeConfusionDisplay.from_predictions(y_true, y_pred, tree, node="mammal", ax=Figure().subplots())
    >>> siblings.predicted_names, siblings.confusion.tolist()
    (['cat', 'dog', '(elsewhere)'], [[1, 1, 0], [0, 0, 1]])
    """

    def __init__(
        self, *, confusion: npt.NDArray[np.int64], true_names: list[str], predicted_names: list[str], node: Any
    ) -> None:
        self.confusion = confusion
        self.true_names = true_names
        self.predicted_names = predicted_names
        self.node = node

    @classmethod
    def from_estimator(
        cls, estimator: Model, X: Any, y: Any, *, node: Any = None, max_children: int = MAX_CHILDREN, ax: Any = None
    ) -> Self:
        """Draw the confusion of a fitted model on a tree.

        Parameters
        ----------
        <tree_model>
        <X>
        <one_label>
        <node>
        <max_children>
        <ax>

        <display>
        """
        y_true, y_pred, taxonomy = predictions_of(estimator, X, y)
        return cls.from_predictions(y_true, y_pred, taxonomy, node=node, max_children=max_children, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        taxonomy: Taxonomy,
        *,
        node: Any = None,
        max_children: int = MAX_CHILDREN,
        ax: Any = None,
    ) -> Self:
        """Draw the confusion of predictions.

        Parameters
        ----------
        <true_and_predicted>
        <tree>
        <node>
        <max_children>
        <ax>

        <display>
        """
        return cls.of_predictions(y_true, y_pred, taxonomy, node, max_children).plot(ax=ax)

    @classmethod
    def of_predictions(
        cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy, node: Any = None, max_children: int = MAX_CHILDREN
    ) -> Self:
        """The display of predictions, not drawn yet."""
        true, predicted = numbers(y_true, y_pred, taxonomy)
        above = 0 if node is None else taxonomy.index(node)
        children = taxonomy.tree.children(above)
        if len(children) == 0:
            raise ValueError(f"{taxonomy.nodes[above]!r} has no children to compare; name a node that has")
        child = child_towards(taxonomy, above, true)
        kept = child >= 0
        child, guess = child[kept], child_towards(taxonomy, above, predicted[kept])
        place, names = _places(child, guess, [taxonomy.nodes[c] for c in children.tolist()], max_children)
        n_shown = len(names)
        columns = np.where(guess == STOPPED, n_shown, np.where(guess == ELSEWHERE, n_shown + 1, place[guess]))
        counts = np.zeros((n_shown, n_shown + 2), dtype=np.int64)
        np.add.at(counts, (place[child], columns), 1)
        used = np.append(np.ones(n_shown, dtype=bool), counts[:, n_shown:].any(axis=0))
        predicted_names = [name for name, use in zip([*names, HERE, OUTSIDE], used, strict=True) if use]
        return cls(
            confusion=counts[:, used],
            true_names=names,
            predicted_names=predicted_names,
            node=taxonomy.nodes[above],
        )

    def _draw(self) -> None:
        shares = self.confusion / np.maximum(self.confusion.sum(axis=1, keepdims=True), 1)
        draw_matrix(self.ax_, shares, shades(STEEL), 0.0, 1.0)
        texts = [[str(n) if n else "" for n in row] for row in self.confusion.tolist()]
        write_in_cells(self.ax_, texts, shares, fontsize="small" if len(self.predicted_names) <= FEW else "xx-small")
        columns = [short_name(name, 18) for name in self.predicted_names]
        self.ax_.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
        self.ax_.set_yticks(range(len(self.true_names)), [short_name(name, 18) for name in self.true_names])
        self.ax_.set_xlabel("predicted")
        self.ax_.set_ylabel("true")


def _places(
    child: npt.NDArray[np.int64], guess: npt.NDArray[np.int64], names: list[Any], max_children: int
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The row of each child in the matrix, and the names of the rows: all that occur, or those with most mistakes."""
    n = len(names)
    wrong = np.bincount(child[child != guess], minlength=n) + np.bincount(
        guess[(guess >= 0) & (child != guess)], minlength=n
    )
    seen = wrong + np.bincount(child, minlength=n) > 0
    order = np.argsort(-wrong, kind="stable")
    order = order[seen[order]]
    if len(order) <= max_children:
        shown = np.sort(order)
        place = np.searchsorted(shown, np.arange(n))
        return np.minimum(place, max(0, len(shown) - 1)), [str(names[c]) for c in shown.tolist()]
    shown = np.sort(order[:max_children])
    place = np.full(n, max_children, dtype=np.int64)
    place[shown] = np.arange(max_children)
    return place, [*(str(names[c]) for c in shown.tolist()), OTHERS]
