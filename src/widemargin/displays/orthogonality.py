"""Orthogonality between levels: how the weights of nodes stand to those of their ancestors, level by level.

A line for each pair of levels: the cosines between descendants and ancestors, from the 5th to the 95th percentile, with
the middle half thicker and a dot at the median, and the share of pairs that the penalty holds exactly orthogonal.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import BLUE, GREY, Display
from widemargin.estimators.tree.model import Orthogonality

__all__ = ["OrthogonalityDisplay"]

PERCENTILES = (5, 25, 50, 75, 95)


@with_shared_passages
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
        Share of the pairs that the penalty holds orthogonal.
    n_pairs : ndarray of int of shape (n_levels,)
        Pairs.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from widemargin import Taxonomy
    >>> from widemargin.displays import OrthogonalityDisplay
    >>> from widemargin import Orthogonality
    >>> tree = Taxonomy.from_paths(["animal/mammal/cat", "animal/mammal/dog", "animal/bird"])
    >>> S, products = np.array([1.0, 1.0, 1.0, 0.3, 1.0, -1.0]), np.array([4.0, 1.0, 1.0, 0.0, 1.0, -0.5])
    >>> display = OrthogonalityDisplay.from_orthogonality(Orthogonality(tree, S, products), ax=Figure().subplots())
    >>> display.levels, display.forced_apart.tolist(), display.percentiles[0, 2].tolist()
    ([(1, 2)], [0.5], -0.125)
    """

    def __init__(
        self,
        *,
        levels: list[tuple[int, int]],
        percentiles: npt.NDArray[np.float64],
        forced_apart: npt.NDArray[np.float64],
        n_pairs: npt.NDArray[np.int64],
    ) -> None:
        self.levels = levels
        self.percentiles = percentiles
        self.forced_apart = forced_apart
        self.n_pairs = n_pairs

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw a fitted model of orthogonal transfer.

        Parameters
        ----------
        estimator : fitted HierarchicalClassifier
            With ``method="orthogonal"``.
        <ax>

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
        <ax>

        <display>
        """
        return cls.of_orthogonality(orthogonality).plot(ax=ax)

    @classmethod
    def of_orthogonality(cls, pairs: Orthogonality) -> Self:
        """The display of ancestor pairs, not drawn yet."""
        shares = pairs.by_depth()
        if not shares:
            raise ValueError("a tree with one level has no ancestor pairs below its root to compare")
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
        places = np.arange(len(self.levels))
        low, first, middle, third, high = self.percentiles.T
        self.ax_.axvline(0.0, color=GREY, linewidth=0.8)
        self.ax_.hlines(places, low, high, color=BLUE, linewidth=1.2)
        self.ax_.hlines(places, first, third, color=BLUE, linewidth=4.5, alpha=0.5)
        self.ax_.plot(middle, places, "o", color=BLUE, markersize=5)
        names = [f"{a} and {b}" for a, b in self.levels]
        self.ax_.set_yticks(places, names, fontsize="small")
        self.ax_.set_ylim(len(places) - 0.5, -0.5)
        self.ax_.set_ylabel("levels of ancestor and descendant")
        self.ax_.set_xlabel("cosine of their weights")
        for place, share, n in zip(places, self.forced_apart, self.n_pairs.tolist(), strict=True):
            note = f" {share:.0%} of {n:,}"
            self.ax_.annotate(note, (1.0, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        self.ax_.set_title("held orthogonal", fontsize="small", loc="right")
