"""Convergence of a fit: the bound from above falls, the bound from below rises, and the optimum is between them.

    dual  ≤  optimum  ≤  primal          relative gap = (primal − dual) / max(|primal|, |dual|)

One-vs-all has no bound from below before its end; its certificate's stands for all iterations, so that the gap drawn is
still a bound on the distance from the optimum. Its solver for large sparse data keeps no iterations at all, only the
bounds of each log₂ bin of label frequency: these are drawn instead, as means over the labels of a bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from widemargin._docstrings import with_shared_passages
from widemargin.displays._axes import (
    BLUE,
    VERMILION,
    axes_for,
    clock_of,
    draw_curve,
    least_of_bin,
    total_of,
    whole_numbers,
)
from widemargin.estimators.scoring import Model
from widemargin.metrics.lists import check_choice
from widemargin.problems.certificate import Certificate

__all__ = ["ConvergenceDisplay"]

ROUNDING = 1e-12
"""Relative gaps below this are those of sums of many numbers in float64, and are drawn as this."""
WIDE_RANGE = 20.0
"""Objectives that fall by more than this factor are drawn on a logarithmic axis."""


@with_shared_passages
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
        Bound from below at each.
    certified : ndarray of bool of shape (n_iterations,), optional
        Where both bounds were certified in a solver that has estimates between; all by default.
    <unit>
    names : list of str, optional
        Names of the places on the axis where `iteration` only numbers them.

    Attributes
    ----------
    <ax_>

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from widemargin import TopKClassifier
    >>> from widemargin.displays import ConvergenceDisplay
    >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    >>> model = TopKClassifier(random_state=0).fit(X, y)
    >>> display = ConvergenceDisplay.from_estimator(model, ax=Figure().subplots())
    >>> bool(display.relative_gap[-1] <= 1e-3), display.ax_.get_ylabel()
    (True, 'objective')
    """

    def __init__(
        self,
        *,
        iteration: npt.NDArray[Any],
        primal: npt.NDArray[np.float64],
        dual: npt.NDArray[np.float64],
        certified: npt.NDArray[np.bool_] | None = None,
        unit: str = "iteration",
        names: list[str] | None = None,
    ) -> None:
        self.iteration = iteration
        self.primal = primal
        self.dual = dual
        self.certified = certified
        self.unit = unit
        self.names = names

    @property
    def relative_gap(self) -> npt.NDArray[np.float64]:
        """Gap over the larger of the two bounds in absolute value, shape (n_iterations,)."""
        scale = np.maximum(np.abs(self.primal), np.abs(self.dual))
        gaps: npt.NDArray[np.float64] = (self.primal - self.dual) / np.where(scale > 0, scale, 1.0)
        return gaps

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
        <ax>
        name : str, optional
            Name in the legend, to tell several models in the same axes apart.

        <display>
        """
        check_is_fitted(estimator)
        certificate = getattr(estimator, "certificate_", None)
        return cls.from_history(estimator.history_, certificate, scale=scale, ax=ax, name=name)

    @classmethod
    def from_history(
        cls,
        history: Mapping[str, npt.NDArray[Any]],
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
            With a column `primal`; `dual` where the solver has bounds from below.
        certificate : Certificate, optional
            Its bound from below stands for all iterations where the history has none.
        <scale>
        <ax>
        <name>

        <display>
        """
        display = cls.of_history(history, certificate)
        return display.plot(ax=ax, scale=scale, name=name)

    @classmethod
    def of_history(cls, history: Mapping[str, npt.NDArray[Any]], certificate: Certificate | None = None) -> Self:
        """The display of a history, not drawn yet; a ValueError if it has no objectives or no bounds from below."""
        if "frequency_bin" in history and "dual" in history and "iteration" not in history:
            return cls._of_bins(history)
        clock = clock_of(history)
        if "primal" not in history:
            raise ValueError("this history has no objectives: its method has no certificate")
        before = history.get("primal_finished", 0.0)
        iteration, primal = total_of(history, np.asarray(history["primal"] + before, dtype=np.float64))
        if "dual" in history:
            dual = total_of(history, np.asarray(history["dual"], dtype=np.float64))[1]
        elif certificate is not None:
            dual = np.full(len(primal), certificate.dual)
        else:
            raise ValueError("the history has no bounds from below; give the certificate of the fit")
        certified = np.asarray(history["certified"]) > 0 if "certified" in history else None
        return cls(iteration=iteration, primal=primal, dual=dual, certified=certified, unit=clock.name)

    @classmethod
    def _of_bins(cls, history: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The bounds of bins of labels, as means over the labels of a bin."""
        n_labels = np.maximum(history["n_labels"], 1)
        return cls(
            iteration=np.arange(len(n_labels)),
            primal=history["primal"] / n_labels,
            dual=history["dual"] / n_labels,
            unit="training rows of a label, at least",
            names=[least_of_bin(b) for b in history["frequency_bin"].tolist()],
        )

    def plot(self, ax: Any = None, *, scale: str = "objective", name: str | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        <ax>
        scale : {"objective", "gap"}, default="objective"
            Both bounds, or the relative gap between them, on a logarithmic axis.
        <name>

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
        self.ax_.plot(self.iteration, self.primal, color=BLUE, label=f"{prefix}objective (from above)", **style)
        self.ax_.plot(self.iteration, self.dual, color=VERMILION, ls="--", label=f"{prefix}bound from below", **style)
        if np.min(self.dual) > 0 and np.max(self.primal) > WIDE_RANGE * np.min(self.dual):
            self.ax_.set_yscale("log")
        self.ax_.set_ylabel("objective" if self.names is None else "objective a label")
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
