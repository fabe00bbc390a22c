"""Active rows of a fit: how many rows still matter to the solver at each iteration.

In one-vs-all these are the rows with curvature, on average over the labels of a log₂ bin of frequency; in the dual
solvers the rows, or blocks of the dual, that are visited because they are not at rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import BLUE, Display, bin_name, clock_of, parts_of, whole_numbers
from widemargin.estimators.scoring import Model

__all__ = ["ActiveRowsDisplay", "ActiveRowsOfPart"]

FAINTEST = 0.4
"""Opacity of the line of the rarest labels."""
COUNTS = ("active_rows", "visits")


class ActiveRowsOfPart(NamedTuple):
    """One line of the display.

    Parameters
    ----------
    name : str
        Which labels; empty where there is one line only.
    iteration, rows : ndarray of shape (n_iterations,)
        Active rows at each iteration, a mean over the labels.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.displays import ActiveRowsOfPart
    >>> ActiveRowsOfPart("2–3", np.array([0, 1]), np.array([10.0, 4.0])).rows.tolist()
    [10.0, 4.0]
    """

    name: str
    iteration: npt.NDArray[Any]
    rows: npt.NDArray[np.float64]


@with_shared_passages
class ActiveRowsDisplay(Display):
    """Active rows over the iterations of a fit, by label frequency where labels are solved apart.

    Use `from_estimator` or `from_history`.

    Parameters
    ----------
    parts : list of ActiveRowsOfPart
        The lines, rarest labels first.
    n_samples : int, optional
        Number of training rows; with it, shares of rows are drawn.
    <unit>

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from widemargin import TopKClassifier
    >>> from widemargin.displays import ActiveRowsDisplay
    >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    >>> model = TopKClassifier(random_state=0).fit(X, y)
    >>> display = ActiveRowsDisplay.from_estimator(model, ax=Figure().subplots())
    >>> len(display.parts), display.ax_.get_ylabel()
    (1, 'share of rows that are active')
    """

    def __init__(self, *, parts: list[ActiveRowsOfPart], n_samples: int | None = None, unit: str = "iteration") -> None:
        self.parts = parts
        self.n_samples = n_samples
        self.unit = unit

    @classmethod
    def from_estimator(cls, estimator: Model, *, ax: Any = None) -> Self:
        """Draw the active rows of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            One whose `history_` has the column `active_rows` or `visits`.
        <ax>

        <display>
        """
        check_is_fitted(estimator)
        # Visits of the solver on trees are of blocks, of which a row has one for each step of its path.
        counts_rows = "active_rows" in estimator.history_
        return cls.from_history(estimator.history_, estimator.n_samples_fit_ if counts_rows else None, ax=ax)

    @classmethod
    def from_history(
        cls, history: Mapping[str, npt.NDArray[Any]], n_samples: int | None = None, *, ax: Any = None
    ) -> Self:
        """Draw the history of a solver.

        Parameters
        ----------
        history : History
            With a column `active_rows` or `visits`.
        n_samples : int, optional
            Number of training rows.
        <ax>

        <display>
        """
        return cls.of_history(history, n_samples).plot(ax=ax)

    @classmethod
    def of_history(cls, history: Mapping[str, npt.NDArray[Any]], n_samples: int | None = None) -> Self:
        """The display of a history, not drawn yet; a ValueError if it does not count rows."""
        clock = clock_of(history)
        column = next((name for name in COUNTS if name in history), None)
        if column is None:
            raise ValueError(f"this history does not count active rows; it has {', '.join(history)}")
        counts, parts = np.asarray(history[column], dtype=np.float64), parts_of(history)
        if "n_labels" in history:
            counts = counts / np.maximum(history["n_labels"], 1)
        several = "frequency_bin" in history
        lines = []
        for part in np.unique(parts):
            rows = parts == part
            name = bin_name(int(part)) if several else ""
            lines.append(ActiveRowsOfPart(name, np.asarray(history[clock.column])[rows], counts[rows]))
        return cls(parts=lines, n_samples=n_samples, unit=clock.name)

    def _draw(self) -> None:
        scale = 1.0 if self.n_samples is None else 1.0 / max(1, self.n_samples)
        opacity = np.linspace(FAINTEST if len(self.parts) > 1 else 1.0, 1.0, len(self.parts))
        for part, alpha in zip(self.parts, opacity, strict=True):
            style = {"marker": "o", "markersize": 3, "alpha": float(alpha)}
            self.ax_.plot(part.iteration, part.rows * scale, color=BLUE, label=part.name, **style)
        self.ax_.set_ylim(bottom=0)
        self.ax_.set_xlabel(self.unit)
        whole_numbers(self.ax_.xaxis)
        self.ax_.set_ylabel("blocks visited in a round" if self.n_samples is None else "share of rows that are active")
        if len(self.parts) > 1:
            place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 5}
            self.ax_.legend(frameon=False, title="training rows of a label", fontsize="small", **place)
