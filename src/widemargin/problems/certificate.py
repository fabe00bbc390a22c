"""The certificate: a bound from above and a bound from below on the optimum of a convex problem.

    dual  ≤  optimum  ≤  primal

`primal` is the objective of the weights as stored (rounded and pruned), `dual` the value of a feasible dual point. Both
are recomputed in float64 from the result of a solver, never taken from its running sums.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin._frames import data_frame, html_table

__all__ = ["Certificate", "WorstProblem"]


@dataclass(frozen=True)
class WorstProblem:
    """The problem with the largest relative gap among several that were solved one by one.

    Parameters
    ----------
    index : int
        Number of the problem: the label's row in `coef_`.
    primal, dual : float
        Its own bounds.
    relative_gap : float
        Its own relative gap.

    Examples
    --------
    >>> from widemargin.problems.certificate import WorstProblem
    >>> WorstProblem(index=3, primal=2.0, dual=1.0, relative_gap=0.5).index
    3
    """

    index: int
    primal: float
    dual: float
    relative_gap: float


@dataclass(frozen=True)
class Certificate:
    """Bounds on the optimum of the objective that was minimised, in float64.

    Parameters
    ----------
    primal : float
        Objective of the stored weights, pruned and rounded as they are: an upper bound on the optimum.
    dual : float
        Value of a feasible dual point: a lower bound on the optimum.
    primal_at_zero : float
        Objective at zero weights, the scale of `decrease_gap`.
    primal_before_pruning : float
        Objective of the weights before small ones were dropped.
    n_problems : int
        Number of independent problems whose bounds are summed here.
    worst : WorstProblem or None
        The problem with the largest relative gap; None if there is only one problem.

    Examples
    --------
    >>> from widemargin.problems.certificate import Certificate
    >>> c = Certificate(primal=10.0, dual=9.0, primal_at_zero=29.0, primal_before_pruning=10.0)
    >>> c.gap, c.relative_gap, c.decrease_gap
    (1.0, 0.1, 0.05)
    """

    primal: float
    dual: float
    primal_at_zero: float
    primal_before_pruning: float
    n_problems: int = 1
    worst: WorstProblem | None = None

    @property
    def gap(self) -> float:
        """Primal minus dual: the objective of the stored weights is at most this far above the optimum."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """Gap over the larger of primal and dual in absolute value; 0 when both are 0."""
        return float(relative_gap(np.array([self.primal]), np.array([self.dual]))[0])

    @property
    def decrease_gap(self) -> float:
        """Gap over the largest decrease that was possible from zero weights; 0 when nothing could be gained."""
        possible = self.primal_at_zero - self.dual
        return self.gap / possible if possible > 0 else 0.0

    @classmethod
    def sum(
        cls,
        primal: npt.NDArray[np.float64],
        dual: npt.NDArray[np.float64],
        primal_at_zero: npt.NDArray[np.float64],
        primal_before_pruning: npt.NDArray[np.float64],
        attained: npt.NDArray[np.bool_] | None = None,
    ) -> Certificate:
        """Add up the bounds of independent problems, each argument of shape (n_problems,), and name the worst.

        Problems that are not `attained` have no minimiser, only ever smaller objectives; a relative gap says nothing
        about them. The worst problem is one of the others if there are any.
        """
        gaps = relative_gap(primal, dual)
        index = int(np.argmax(gaps if attained is None else np.where(attained, gaps, -1.0)))
        worst = WorstProblem(index, float(primal[index]), float(dual[index]), float(gaps[index]))
        return cls(
            float(primal.sum()),
            float(dual.sum()),
            float(primal_at_zero.sum()),
            float(primal_before_pruning.sum()),
            n_problems=len(primal),
            worst=worst if len(primal) > 1 else None,
        )

    def with_rows(self, loss: float, at_zero: float) -> Certificate:
        """The bounds after rows were added whose losses, at least 0, sum to `loss`, and at zero weights to `at_zero`.

        The old optimum, and so its lower bound, is a lower bound on the new one. The weights before pruning are gone:
        `primal_before_pruning` gets the losses at the stored weights, too. Other bounds of the `worst` problem are not
        known, so it is not named.
        """
        return Certificate(
            self.primal + loss,
            self.dual,
            self.primal_at_zero + at_zero,
            self.primal_before_pruning + loss,
            n_problems=self.n_problems,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, the derived gaps included for readers of the file."""
        return asdict(self) | {"gap": self.gap, "relative_gap": self.relative_gap}

    def to_frame(self) -> Any:
        """The certificate as a data frame of one row, to be concatenated with those of other models.

        Returns
        -------
        pandas.DataFrame
            Columns "primal", "dual", "gap", "relative_gap", "decrease_gap", "primal_at_zero", "primal_before_pruning",
            "n_problems", "worst_index" and "worst_relative_gap"; the last two are missing values if `worst` is None.

        Examples
        --------
        >>> from widemargin import Certificate
        >>> frame = Certificate(10.0, 9.0, primal_at_zero=29.0, primal_before_pruning=10.0).to_frame()
        >>> frame["gap"].tolist(), frame["decrease_gap"].tolist()
        ([1.0], [0.05])
        """
        return data_frame(self._columns())

    def _repr_html_(self) -> str:
        return html_table(self._columns(), "dual ≤ optimum ≤ primal")

    def _columns(self) -> dict[str, list[Any]]:
        """One row; see `to_frame`."""
        names = ("primal", "dual", "gap", "relative_gap", "decrease_gap", "primal_at_zero", "primal_before_pruning")
        own = {name: [getattr(self, name)] for name in (*names, "n_problems")}
        return own | {f"worst_{name}": [getattr(self.worst, name, None)] for name in ("index", "relative_gap")}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Certificate:
        """Inverse of `to_dict`; the derived gaps are recomputed."""
        worst = values["worst"]
        fields = {name: values[name] for name in cls.__dataclass_fields__ if name != "worst"}
        return cls(**fields, worst=None if worst is None else WorstProblem(**worst))


def relative_gap(primal: npt.NDArray[np.float64], dual: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Gap over max(|primal|, |dual|), elementwise, 0 where both are 0."""
    scale = np.maximum(np.abs(primal), np.abs(dual))
    gaps: npt.NDArray[np.float64] = (primal - dual) / np.where(scale > 0, scale, 1.0)
    return gaps
