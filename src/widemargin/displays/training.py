"""How training went: the bounds on the optimum, and the rows that still matter, over the iterations of a fit.

    dual  ≤  optimum  ≤  primal          relative gap = (primal − dual) / max(|primal|, |dual|)

A history has one row per pass, or one per iteration and part of the work: log₂ bins of label frequency in one-vs-all,
problems in the rivals. A part that has stopped keeps its last value, which makes sums over the parts comparable:

    total(t) = Σ_parts value(part, last iteration of the part ≤ t)

One-vs-all has no lower bound before it stops; the bound of its certificate stands for all iterations, so the gap drawn
is still a bound on the distance from the optimum. Its solver for large sparse data keeps no iterations, only the bounds
of each log₂ bin of label frequency: these are drawn instead, as means over the labels of a bin.

Active rows are the rows with curvature in one-vs-all, on average over the labels of a bin; in the dual solvers the
rows, or blocks of the dual, that are visited because they are not at rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from widemargin.displays._axes import (
    BLUE,
    THOUSAND,
    VERMILION,
    Display,
    axes_for,
    bin_start,
    display_class,
    draw_curve,
    whole_numbers,
)
from widemargin.estimators.scoring import Model
from widemargin.metrics.lists import check_choice
from widemargin.problems.certificate import Certificate

__all__ = ["ActiveRowsDisplay", "ActiveRowsOfPart", "ConvergenceDisplay", "bin_name"]

ROUNDING = 1e-12
"""Smaller relative gaps are rounding error of sums of many numbers, and are drawn as this."""
WIDE_RANGE = 20.0
"""Objectives that fall by more than this factor are drawn on a logarithmic axis."""
FAINTEST = 0.4
"""Opacity of the line of the rarest labels."""
CLOCKS = {"passes": "passes over the rows", "round": "round", "iteration": "iteration"}
"""Columns that count the iterations, and their names on the axis."""
PARTS = ("frequency_bin", "problem")
COUNTS = ("active_rows", "visits")

Floats = npt.NDArray[np.float64]
Table = Mapping[str, npt.NDArray[Any]]


@display_class
class ConvergenceDisplay:
    """Both bounds on the optimum, or the gap between them, over the iterations of a fit.

    Use `from_estimator` or `from_history`.

    Parameters
    ----------
    iteration : ndarray of shape (n_iterations,)
        Iterations, passes or rounds.
    primal : ndarray of shape (n_iterations,)
        Objective at each.
    dual : ndarray of shape (n_iterations,)
        Lower bound at each.
    certified : ndarray of bool of shape (n_iterations,), optional
        Where both bounds were certified, if the solver has estimates in between. By default, everywhere.
    <unit>
    names : list of str, optional
        Names of the ticks, if `iteration` only numbers them.

    <drawn>
    <small_fit>
    >>> from widemargin.displays import ConvergenceDisplay
    >>> display = ConvergenceDisplay.from_estimator(model, ax=Figure().subplots())
    >>> bool(display.relative_gap[-1] <= 1e-3), display.ax_.get_ylabel()
    (True, 'objective')
    """

    iteration: npt.NDArray[Any]
    primal: Floats
    dual: Floats
    certified: npt.NDArray[np.bool_] | None = None
    unit: str = "iteration"
    names: list[str] | None = None

    @property
    def relative_gap(self) -> Floats:
        """Gap over the larger of the two bounds in absolute value, shape (n_iterations,)."""
        scale = np.maximum(np.abs(self.primal), np.abs(self.dual))
        return np.divide(self.primal - self.dual, np.where(scale > 0, scale, 1.0))

    @classmethod
    def from_estimator(
        cls, estimator: Model, *, scale: str = "objective", ax: Any = None, name: str | None = None
    ) -> Self:
        """Draw the convergence of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            One with `history_` and `certificate_`.
        <scale>
        <named_display>
        """
        check_is_fitted(estimator)
        certificate = getattr(estimator, "certificate_", None)
        return cls.from_history(estimator.history_, certificate, scale=scale, ax=ax, name=name)

    @classmethod
    def from_history(
        cls,
        history: Table,
        certificate: Certificate | None = None,
        *,
        scale: str = "objective",
        ax: Any = None,
        name: str | None = None,
    ) -> Self:
        """Draw the history of a solver.

        Parameters
        ----------
        history : History
            With a column `primal`, and `dual` if the solver has lower bounds.
        certificate : Certificate, optional
            Its lower bound stands for all iterations if the history has none.
        <scale>
        <named_display>
        """
        return cls.of_history(history, certificate).plot(ax=ax, scale=scale, name=name)

    @classmethod
    def of_history(cls, history: Table, certificate: Certificate | None = None) -> Self:
        """The display of a history, not drawn yet; a ValueError if it has no objectives or no lower bounds."""
        if "frequency_bin" in history and "dual" in history and "iteration" not in history:
            return cls._of_bins(history)
        column = _clock(history)
        if "primal" not in history:
            raise ValueError("the history contains no objectives to plot; use a method with a certificate")
        before = history.get("primal_finished", 0.0)
        iteration, primal = _total(history, np.asarray(history["primal"] + before, dtype=np.float64))
        if "dual" in history:
            dual = _total(history, np.asarray(history["dual"], dtype=np.float64))[1]
        elif certificate is not None:
            dual = np.full(len(primal), certificate.dual)
        else:
            raise ValueError("the history contains no lower bounds; pass the certificate of the fit")
        certified = np.asarray(history["certified"]) > 0 if "certified" in history else None
        return cls(iteration=iteration, primal=primal, dual=dual, certified=certified, unit=CLOCKS[column])

    @classmethod
    def _of_bins(cls, history: Table) -> Self:
        """The bounds of bins of labels, as means over the labels of a bin."""
        n_labels = np.maximum(history["n_labels"], 1)
        return cls(
            iteration=np.arange(len(n_labels)),
            primal=history["primal"] / n_labels,
            dual=history["dual"] / n_labels,
            unit="minimum number of training rows per label",
            names=[bin_start(b) for b in history["frequency_bin"].tolist()],
        )

    def plot(self, ax: Any = None, *, scale: str = "objective", name: str | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        <ax>
        scale : {"objective", "gap"}, default="objective"
            Both bounds, or the relative gap between them, on a logarithmic axis.
        name : str, optional
            Name in the legend.

        <itself>
        """
        check_choice(scale, "scale", ("objective", "gap"))
        self.figure_, self.ax_ = axes_for(ax)
        if scale == "objective":
            self._draw_bounds(name)
        else:
            self._draw_gap(name)
        self.ax_.set_xlabel(self.unit)
        if self.names is None:
            whole_numbers(self.ax_.xaxis)
        else:
            self.ax_.set_xticks(self.iteration, self.names)
        return self

    def _draw_bounds(self, name: str | None) -> None:
        prefix = "" if name is None else f"{name}, "
        style = self._style()
        self.ax_.fill_between(self.iteration, self.dual, self.primal, color=BLUE, alpha=0.12, linewidth=0)
        self.ax_.plot(self.iteration, self.primal, color=BLUE, label=f"{prefix}objective (upper bound)", **style)
        self.ax_.plot(self.iteration, self.dual, color=VERMILION, ls="--", label=f"{prefix}lower bound", **style)
        if np.min(self.dual) > 0 and np.max(self.primal) > WIDE_RANGE * np.min(self.dual):
            self.ax_.set_yscale("log")
        self.ax_.set_ylabel("objective" if self.names is None else "objective per label")
        self.ax_.legend(frameon=False)

    def _draw_gap(self, name: str | None) -> None:
        gaps = np.maximum(self.relative_gap, ROUNDING)
        self.ax_.set_yscale("log")
        draw_curve(self.ax_, self.iteration, gaps, name, **self._style())
        self.ax_.set_ylabel("relative gap")

    def _style(self) -> dict[str, Any]:
        """A dot at each certified point of a line."""
        where = slice(None) if self.certified is None else np.flatnonzero(self.certified).tolist()
        return {"marker": "o", "markersize": 3.5, "markevery": where}


class ActiveRowsOfPart(NamedTuple):
    """One line of the display.

    Parameters
    ----------
    name : str
        Which labels; empty if there is only one line.
    iteration, rows : ndarray of shape (n_iterations,)
        Number of active rows at each iteration, a mean over the labels.

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


@display_class
class ActiveRowsDisplay(Display):
    """Active rows over the iterations of a fit, by label frequency if labels are solved separately.

    Use `from_estimator` or `from_history`.

    Parameters
    ----------
    parts : list of ActiveRowsOfPart
        The lines, rarest labels first.
    n_samples : int, optional
        Number of training rows; with it, shares of rows are drawn.
    <unit>

    <drawn>
    <small_fit>
    >>> from widemargin.displays import ActiveRowsDisplay
    >>> display = ActiveRowsDisplay.from_estimator(model, ax=Figure().subplots())
    >>> len(display.parts), display.ax_.get_ylabel()
    (1, 'share of active rows')
    """

    parts: list[ActiveRowsOfPart]
    n_samples: int | None = None
    unit: str = "iteration"

    @classmethod
    def from_estimator(cls, estimator: Model, *, ax: Any = None) -> Self:
        """Draw the active rows of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            One whose `history_` has the column `active_rows` or `visits`.
        <display>
        """
        check_is_fitted(estimator)
        # The solver on trees visits blocks, of which a row has one for each step of its path.
        counts_rows = "active_rows" in estimator.history_
        return cls.from_history(estimator.history_, estimator.n_samples_fit_ if counts_rows else None, ax=ax)

    @classmethod
    def from_history(cls, history: Table, n_samples: int | None = None, *, ax: Any = None) -> Self:
        """Draw the history of a solver.

        Parameters
        ----------
        history : History
            With a column `active_rows` or `visits`.
        n_samples : int, optional
            Number of training rows.
        <display>
        """
        return cls.of_history(history, n_samples).plot(ax=ax)

    @classmethod
    def of_history(cls, history: Table, n_samples: int | None = None) -> Self:
        """The display of a history, not drawn yet; a ValueError if it does not count rows."""
        clock, counted = _clock(history), next((name for name in COUNTS if name in history), None)
        if counted is None:
            raise ValueError(f"the history has no column for active rows or visits, only {', '.join(history)}")
        counts, parts = np.asarray(history[counted], dtype=np.float64), _parts(history)
        if "n_labels" in history:
            counts = counts / np.maximum(history["n_labels"], 1)
        several = "frequency_bin" in history
        lines = [
            ActiveRowsOfPart(
                bin_name(part) if several else "", np.asarray(history[clock])[parts == part], counts[parts == part]
            )
            for part in np.unique(parts).tolist()
        ]
        return cls(parts=lines, n_samples=n_samples, unit=CLOCKS[clock])

    def _draw(self) -> None:
        scale = 1.0 if self.n_samples is None else 1.0 / max(1, self.n_samples)
        opacity = np.linspace(FAINTEST if len(self.parts) > 1 else 1.0, 1.0, len(self.parts))
        for part, alpha in zip(self.parts, opacity, strict=True):
            style = {"marker": "o", "markersize": 3, "alpha": float(alpha)}
            self.ax_.plot(part.iteration, part.rows * scale, color=BLUE, label=part.name, **style)
        self.ax_.set_ylim(bottom=0)
        self.ax_.set_xlabel(self.unit)
        whole_numbers(self.ax_.xaxis)
        self.ax_.set_ylabel("blocks visited per round" if self.n_samples is None else "share of active rows")
        if len(self.parts) > 1:
            above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 5}
            self.ax_.legend(frameon=False, title="training rows per label", fontsize="small", **above)


def _clock(history: Table) -> str:
    """The column that counts the iterations; an error if there is none."""
    for column in CLOCKS:
        if column in history:
            return column
    raise ValueError(
        f"the history has no iteration column, only {', '.join(history) or 'nothing'}; this solver records one row "
        "for each part of its work"
    )


def _parts(history: Table) -> npt.NDArray[np.int64]:
    """The part of the work that each row belongs to, shape (n_rows,); all zeros if there is only one."""
    for name in PARTS:
        if name in history:
            return np.asarray(history[name], dtype=np.int64)
    return np.zeros(len(next(iter(history.values()))), dtype=np.int64)


def _total(history: Table, values: Floats) -> tuple[Floats, Floats]:
    """Iterations, and the sum over the parts of a column at each of them, both of shape (n_iterations,)."""
    clock, parts = np.asarray(history[_clock(history)], dtype=np.float64), _parts(history)
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
        return bin_start(log2_frequency)
    above = 2 ** (log2_frequency + 1)
    most = str(above - 1) if above < 2 * THOUSAND else f"{above // THOUSAND}k"
    return f"{bin_start(log2_frequency)}–{most}"
