"""Models on a tree: where predictions go wrong, which children are confused, how weights relate to those of ancestors.

Error of a node: the share of the rows with a label at or below it whose prediction is neither. With c the counts of the
lowest common ancestors of label and prediction, and n those of the labels, it is 1 − (sum of c over its subtree) / (sum
of n over its subtree). Every node is a cell to the right of its parent's, as high as its share of the rows: one column
per level. Cells too thin to be seen are left out.

Confusion at a node: the rows below it by their true child and the predicted one. At the root this is the confusion
between the main branches; at another node it is that between siblings, with one more column for the rows whose
prediction is in another part of the tree.

Orthogonality: one line per pair of levels with the cosines between the weights of descendants and ancestors, from the
5th to the 95th percentile, the middle half thicker and a dot at the median, and the share of pairs that the penalty
keeps exactly orthogonal.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from widemargin.displays._axes import (
    BLUE,
    GREY,
    RUST,
    STEEL,
    Display,
    colour_on,
    display_class,
    draw_bar,
    draw_matrix,
    shades,
    short_name,
    without_frame,
)
from widemargin.estimators.scoring import Model
from widemargin.estimators.tree.model import Orthogonality
from widemargin.estimators.tree.targets import label_nodes
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import subtree_sums
from widemargin.metrics.hierarchical import node_numbers

__all__ = ["OrthogonalityDisplay", "TaxonomyErrorDisplay", "TreeConfusionDisplay", "where_paths_part"]

LEAST_SHARE = 0.003
"""Cells with a smaller share of the rows are not drawn: they would be lines."""
LEAST_POINTS = 7.0
"""Least height of a cell, in points, for its name to be written."""
POINTS_PER_INCH, POINTS_PER_LETTER = 72.0, 4.2
FEW, MANY = 10, 16
"""Largest number of columns that leaves room for larger numbers, and the default for the number of children shown."""
OTHERS, HERE, OUTSIDE = "(others)", "(stays here)", "(elsewhere)"
ELSEWHERE, STOPPED = -1, -2
PERCENTILES = (5, 25, 50, 75, 95)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@display_class
class TaxonomyErrorDisplay(Display):
    """The error of every node of a taxonomy.

    Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    support : ndarray of int of shape (n_nodes,)
        Number of rows with a label at or below each node.
    error : ndarray of shape (n_nodes,)
        Share of these rows whose prediction is not at or below the node; NaN if there are none.

    <drawn>
    <animals>
    >>> from widemargin.displays import TaxonomyErrorDisplay
    >>> display = TaxonomyErrorDisplay.from_predictions(
    ...     ["cat", "cat", "dog", "bird"], ["cat", "dog", "bird", "bird"], tree, ax=Figure().subplots())
    >>> dict(zip(tree.nodes, display.error.round(2).tolist()))
    {'animal': 0.0, 'mammal': 0.33, 'bird': 0.0, 'cat': 0.5, 'dog': 1.0}
    """

    taxonomy: Taxonomy
    support: Ints
    error: Floats

    @classmethod
    def from_estimator(cls, estimator: Model, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Draw the errors of a fitted model on a tree.

        <tree_model_and_rows>
        <display>
        """
        return cls.from_predictions(*_predictions(estimator, X, y), ax=ax)

    @classmethod
    def from_predictions(cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, ax: Any = None) -> Self:
        """Draw the errors of predictions.

        <true_and_predicted>
        <display>
        """
        return cls.of_predictions(y_true, y_pred, taxonomy).plot(ax=ax)

    @classmethod
    def of_predictions(cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> Self:
        """The display of predictions, not drawn yet."""
        true, predicted = node_numbers(y_true, y_pred, taxonomy)
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

    def _tops(self) -> Floats:
        """Where the cell of each node starts, as a share of the height: below the siblings before it."""
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


@display_class
class TreeConfusionDisplay(Display):
    """Counts of true and predicted children of one node of a tree.

    Colours are shares of a true child's rows, numbers are rows. Use `from_estimator` or `from_predictions`.

    Parameters
    ----------
    confusion : ndarray of int of shape (n_true, n_predicted)
        Number of rows of each true child (first axis) and predicted child (second axis).
    true_names, predicted_names : list of str
        Names on both axes; "(others)" stands for children that are not shown one by one, "(stays here)" for the node
        itself and "(elsewhere)" for predictions that are not below it.
    node : hashable
        The node.

    <drawn>
    <animals>
    >>> from widemargin.displays import TreeConfusionDisplay
    >>> y_true, y_pred = ["cat", "cat", "dog", "bird"], ["cat", "dog", "bird", "bird"]
    >>> across = TreeConfusionDisplay.from_predictions(y_true, y_pred, tree, ax=Figure().subplots())
    >>> across.true_names, across.confusion.tolist()
    (['mammal', 'bird'], [[2, 1], [0, 1]])
    >>> siblings = TreeConfusionDisplay.from_predictions(y_true, y_pred, tree, node="mammal", ax=Figure().subplots())
    >>> siblings.predicted_names, siblings.confusion.tolist()
    (['cat', 'dog', '(elsewhere)'], [[1, 1, 0], [0, 0, 1]])
    """

    confusion: Ints
    true_names: list[str]
    predicted_names: list[str]
    node: Any

    @classmethod
    def from_estimator(
        cls, estimator: Model, X: Any, y: Any, *, node: Any = None, max_children: int = MANY, ax: Any = None
    ) -> Self:
        """Draw the confusion of a fitted model on a tree.

        <tree_model_and_rows>
        <node_and_max_children>
        <display>
        """
        y_true, y_pred, taxonomy = _predictions(estimator, X, y)
        return cls.from_predictions(y_true, y_pred, taxonomy, node=node, max_children=max_children, ax=ax)

    @classmethod
    def from_predictions(
        cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, node: Any = None, max_children: int = MANY, ax: Any = None
    ) -> Self:
        """Draw the confusion of predictions.

        <true_and_predicted>
        <node_and_max_children>
        <display>
        """
        return cls.of_predictions(y_true, y_pred, taxonomy, node, max_children).plot(ax=ax)

    @classmethod
    def of_predictions(
        cls, y_true: Any, y_pred: Any, taxonomy: Taxonomy, node: Any = None, max_children: int = MANY
    ) -> Self:
        """The display of predictions, not drawn yet."""
        true, predicted = node_numbers(y_true, y_pred, taxonomy)
        above = 0 if node is None else taxonomy.index(node)
        children = taxonomy.tree.children(above)
        if len(children) == 0:
            raise ValueError(f"{taxonomy.nodes[above]!r} has no children to compare; name a node with children")
        child = _child_towards(taxonomy, above, true)
        kept = child >= 0
        child, guess = child[kept], _child_towards(taxonomy, above, predicted[kept])
        position, names = _shown(child, guess, [taxonomy.nodes[c] for c in children.tolist()], max_children)
        n_shown = len(names)
        columns = np.where(guess == STOPPED, n_shown, np.where(guess == ELSEWHERE, n_shown + 1, position[guess]))
        counts = np.zeros((n_shown, n_shown + 2), dtype=np.int64)
        np.add.at(counts, (position[child], columns), 1)
        used = np.append(np.ones(n_shown, dtype=bool), counts[:, n_shown:].any(axis=0))
        shown = [name for name, use in zip([*names, HERE, OUTSIDE], used, strict=True) if use]
        return cls(confusion=counts[:, used], true_names=names, predicted_names=shown, node=taxonomy.nodes[above])

    def _draw(self) -> None:
        shares = self.confusion / np.maximum(self.confusion.sum(axis=1, keepdims=True), 1)
        draw_matrix(self.ax_, shares, shades(STEEL), 0.0, 1.0)
        size = "small" if len(self.predicted_names) <= FEW else "xx-small"
        for row, column in np.argwhere(self.confusion).tolist():
            style = {"ha": "center", "va": "center", "fontsize": size, **colour_on(shares[row, column])}
            self.ax_.text(column, row, str(self.confusion[row, column]), **style)
        columns = [short_name(name, 18) for name in self.predicted_names]
        self.ax_.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
        self.ax_.set_yticks(range(len(self.true_names)), [short_name(name, 18) for name in self.true_names])
        self.ax_.set_xlabel("predicted")
        self.ax_.set_ylabel("true")


def _shown(child: Ints, guess: Ints, names: list[Any], max_children: int) -> tuple[Ints, list[str]]:
    """The row of each child in the matrix, and the names of the rows: all that occur, or those with most mistakes."""
    n, mistakes = len(names), child != guess
    wrong = np.bincount(child[mistakes], minlength=n) + np.bincount(guess[mistakes & (guess >= 0)], minlength=n)
    seen = wrong + np.bincount(child, minlength=n) > 0
    order = np.argsort(-wrong, kind="stable")
    order = order[seen[order]]
    if len(order) <= max_children:
        shown = np.sort(order)
        position = np.searchsorted(shown, np.arange(n))
        return np.minimum(position, max(0, len(shown) - 1)), [str(names[c]) for c in shown.tolist()]
    shown = np.sort(order[:max_children])
    position = np.full(n, max_children, dtype=np.int64)
    position[shown] = np.arange(max_children)
    return position, [*(str(names[c]) for c in shown.tolist()), OTHERS]


@display_class
class OrthogonalityDisplay(Display):
    """Cosines between the weights of nodes and of their ancestors, by the levels of both.

    Use `from_estimator` or `from_orthogonality`.

    Parameters
    ----------
    levels : list of tuple (int, int)
        Depths of ancestor and descendant.
    percentiles : ndarray of shape (n_levels, 5)
        5th, 25th, 50th, 75th and 95th percentile of the cosines.
    forced_apart : ndarray of shape (n_levels,)
        Share of the pairs that the penalty keeps orthogonal.
    n_pairs : ndarray of int of shape (n_levels,)
        Number of pairs.

    <drawn>
    >>> import numpy as np
    >>> from widemargin import Orthogonality, Taxonomy
    >>> from widemargin.displays import OrthogonalityDisplay
    >>> tree = Taxonomy.from_paths(["animal/mammal/cat", "animal/mammal/dog", "animal/bird"])
    >>> S, products = np.array([1.0, 1.0, 1.0, 0.3, 1.0, -1.0]), np.array([4.0, 1.0, 1.0, 0.0, 1.0, -0.5])
    >>> display = OrthogonalityDisplay.from_orthogonality(Orthogonality(tree, S, products), ax=Figure().subplots())
    >>> display.levels, display.forced_apart.tolist(), display.percentiles[0, 2].tolist()
    ([(1, 2)], [0.5], -0.125)
    """

    levels: list[tuple[int, int]]
    percentiles: Floats
    forced_apart: Floats
    n_pairs: Ints

    @classmethod
    def from_estimator(cls, estimator: Model, *, ax: Any = None) -> Self:
        """Draw a fitted model of orthogonal transfer.

        Parameters
        ----------
        estimator : fitted HierarchicalClassifier
            With ``method="orthogonal"``.
        <display>
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "orthogonality_"):
            raise ValueError('the model has no orthogonality_; fit a HierarchicalClassifier with method="orthogonal"')
        return cls.from_orthogonality(estimator.orthogonality_, ax=ax)

    @classmethod
    def from_orthogonality(cls, orthogonality: Orthogonality, *, ax: Any = None) -> Self:
        """Draw the ancestor pairs of a model.

        Parameters
        ----------
        orthogonality : Orthogonality
            The pairs.
        <display>
        """
        return cls.of_orthogonality(orthogonality).plot(ax=ax)

    @classmethod
    def of_orthogonality(cls, pairs: Orthogonality) -> Self:
        """The display of ancestor pairs, not drawn yet."""
        shares = pairs.by_depth()
        if not shares:
            raise ValueError("a tree with a single level below its root has no ancestor-descendant pairs to plot")
        depth = pairs.taxonomy.depth
        above, below = depth[pairs.ancestor], depth[pairs.descendant]
        cosines = [pairs.cosine[(above == a) & (below == b)] for a, b in shares]
        return cls(
            levels=list(shares),
            percentiles=np.array([np.percentile(values, PERCENTILES) for values in cosines]),
            forced_apart=np.array(list(shares.values())),
            n_pairs=np.array([len(values) for values in cosines]),
        )

    def _draw(self) -> None:
        lines = np.arange(len(self.levels))
        low, first, middle, third, high = self.percentiles.T
        self.ax_.axvline(0.0, color=GREY, linewidth=0.8)
        self.ax_.hlines(lines, low, high, color=BLUE, linewidth=1.2)
        self.ax_.hlines(lines, first, third, color=BLUE, linewidth=4.5, alpha=0.5)
        self.ax_.plot(middle, lines, "o", color=BLUE, markersize=5)
        names = [f"{a} and {b}" for a, b in self.levels]
        self.ax_.set_yticks(lines, names, fontsize="small")
        self.ax_.set_ylim(len(lines) - 0.5, -0.5)
        self.ax_.set_ylabel("levels of ancestor and descendant")
        self.ax_.set_xlabel("cosine of their weights")
        for line, share, n in zip(lines, self.forced_apart, self.n_pairs.tolist(), strict=True):
            note = f" {share:.0%} of {n:,}"
            self.ax_.annotate(note, (1.0, line), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        self.ax_.set_title("kept orthogonal", fontsize="small", loc="right")


def _predictions(estimator: Model, X: Any, y: Any) -> tuple[list[Any], Any, Taxonomy]:
    """True labels as names of nodes, predictions, and the tree of a fitted model."""
    if not hasattr(estimator, "taxonomy_"):
        raise ValueError(
            f"{type(estimator).__name__} has no taxonomy_; fit a HierarchicalClassifier, or use from_predictions"
        )
    tree: Taxonomy = estimator.taxonomy_
    nodes = label_nodes(np.asarray(y), tree, estimator.separator)
    return [tree.nodes[node] for node in nodes.tolist()], estimator.predict(X), tree


def _child_towards(taxonomy: Taxonomy, node: int, nodes: Ints) -> Ints:
    """The child of `node`, by position, that each of the nodes is at or below; STOPPED for the node, else ELSEWHERE."""
    tree = taxonomy.tree
    positions = np.searchsorted(tree.enter[tree.children(node)], tree.enter[nodes], side="right") - 1
    return np.where(nodes == node, STOPPED, np.where(tree.covers(node, nodes), positions, ELSEWHERE)).astype(np.int64)


def where_paths_part(true: Ints, predicted: Ints, taxonomy: Taxonomy) -> list[tuple[int, int]]:
    """Nodes, and the number of wrong predictions that leave the true path just below them, largest first."""
    wrong = ~taxonomy.tree.covers(true, predicted)
    nodes, counts = np.unique(taxonomy.tree.lca(true[wrong], predicted[wrong]), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return list(zip(nodes[order].tolist(), counts[order].tolist(), strict=True))
