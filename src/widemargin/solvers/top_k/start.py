"""Dual variables of a solved top-k problem as the start of another one, on the same rows or on some of them and others.

    x_i in the domain of C_i φ   →   t x_i in the domain of (t C_i) φ,  t ≥ 0      (the domains are homogeneous)
    D(t x) = t Σ_i ⟨1,x_i⟩ − ½t² (‖W‖² + Σ_i γ/C_i' ‖x_i‖²),   ‖W‖² = 2 (Σ_i ⟨1,x_i⟩ − Σ_i γ/(2C_i) ‖x_i‖² − D(x))

When all costs change by one factor r, the start is the best t x with t ≤ r; when they change row by row, each row is
scaled by its own factor. The domain of a smaller k contains that of a larger one, and that of β contains that of α. In
other cases the rows outside the domain are projected (ρ = 0); classes that were 0 stay 0, and the start is as sparse as
the dual variables it comes from. An equally hard problem takes about as many passes from there as the one before took,
which saves evaluations. When rows come and go, new ones have x_i = 0, and the others keep theirs. Memory: a copy of the
dual variables, and a bounded block of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.top_k_losses import TopKHinge

__all__ = ["DualPoint"]

Floats = npt.NDArray[np.float64]

PLACES_PER_BLOCK = 1_000_000
SAME_FACTOR = 1e-12
"""Relative difference below which factors are equal: rounding of products of weights."""
FAR_BELOW = -10.0
"""In units of a row's cost: a value this low is projected to 0 whatever the others are, which are within the cost."""


@dataclass(frozen=True)
class DualPoint:
    """Dual variables, and the problem for which they are feasible.

    Parameters
    ----------
    dual : csr_array of shape (n_samples, n_classes)
        Dual variables of the wrong classes; 0 at the true ones.
    y : ndarray of int64 of shape (n_samples,)
        Class of each row.
    loss : TopKHinge
        The loss.
    costs : ndarray of shape (n_samples,)
        C_i ≥ 0.
    value : float
        The dual objective; NaN if it is not known, and each row is then scaled by its own factor.
    passes : int
        Number of passes that led there; 0 if unknown.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.top_k_losses import TopKHinge
    >>> from widemargin.solvers.top_k.start import DualPoint
    >>> dual = sp.csr_array(np.array([[0.0, 1.0, 0.0]]))
    >>> point = DualPoint(dual, np.array([0]), TopKHinge(k=1), np.ones(1), 0.9)
    >>> point.start_for(TopKHinge(k=1), np.full(1, 2.0)).toarray()
    array([[0., 2., 0.]])
    >>> point.start_for(TopKHinge(k=2), np.ones(1)).toarray()
    array([[0. , 0.5, 0. ]])
    """

    dual: Any
    y: npt.NDArray[np.int64]
    loss: TopKHinge
    costs: Floats
    value: float
    passes: int = 0

    def fits(self, y: npt.NDArray[np.int64], n_classes: int) -> bool:
        """Whether the variables belong to such rows: as many, with the same classes."""
        return self.dual.shape == (len(y), n_classes) and bool(np.array_equal(self.y, y))

    def start_for(self, loss: TopKHinge, costs: Floats) -> Any:
        """A csr_array of dual variables that are feasible for another loss and other costs of the same rows."""
        scaled = sp.csr_array(self.dual, copy=True)
        scaled.data *= np.repeat(self._factors(loss, costs), np.diff(scaled.indptr))
        _move_inside(scaled, loss, costs)
        return scaled

    def on_rows(
        self,
        old_rows: npt.NDArray[np.int64],
        y: npt.NDArray[np.int64],
        costs: Floats,
        old_classes: npt.NDArray[np.int64],
    ) -> DualPoint:
        """The point for other rows and classes: new i was old `old_rows[i]`, and class j `old_classes[j]`; −1 for none.

        Rows that are new or have another class now are 0. `start_for` makes the others feasible if a class is missing.
        """
        new_class = np.full(self.dual.shape[1], -1, dtype=np.int64)
        new_class[old_classes[old_classes >= 0]] = np.flatnonzero(old_classes >= 0)
        known = np.flatnonzero(old_rows >= 0)
        known = known[new_class[self.y[old_rows[known]]] == y[known]]
        part = sp.coo_array(self.dual[old_rows[known]])
        columns = new_class[part.col]
        present = columns >= 0
        places = known[part.row[present]], columns[present]
        dual = sp.csr_array((part.data[present], places), shape=(len(y), len(old_classes)))
        before = costs.copy()
        before[known] = self.costs[old_rows[known]]
        return DualPoint(dual, y, self.loss, before, np.nan)

    def passes_for(self, loss: TopKHinge, costs: Floats) -> int:
        """Passes that a problem with a smaller k is expected to take from here; 0 if unknown.

        A larger C takes more passes, and early evaluations pay: rows whose dual variables are at their bounds sleep
        from then on (20newsgroups, eight values of C against fits from scratch: 1.08 with, .90 without).
        """
        as_hard = self.loss.k > loss.k and loss == replace(self.loss, k=loss.k) and np.array_equal(costs, self.costs)
        return self.passes if as_hard else 0

    def _factors(self, loss: TopKHinge, costs: Floats) -> Floats:
        """Factor of each row."""
        factors = np.divide(costs, self.costs, out=np.zeros(len(costs)), where=self.costs > 0.0)
        counted = factors[self.costs > 0.0]
        if len(counted) == 0 or np.ptp(counted) > SAME_FACTOR * counted.max():
            return factors
        squares = np.add.reduceat(np.append(self.dual.data**2, 0.0), self.dual.indptr[:-1])
        squares[np.diff(self.dual.indptr) == 0] = 0.0  # reduceat gives an empty row the next entry
        total = float(self.dual.data.sum())
        norm = 2.0 * (total - 0.5 * self.loss.smoothing * _ratio(squares, self.costs) - self.value)
        curvature = norm + loss.smoothing * _ratio(squares, costs)
        return np.minimum(factors, total / curvature) if curvature > 0.0 else factors


def _ratio(squares: Floats, costs: Floats) -> float:
    """Σ_i squares_i / C_i over the rows with a positive cost."""
    return float(np.divide(squares, costs, out=np.zeros(len(costs)), where=costs > 0.0).sum())


def _move_inside(dual: Any, loss: TopKHinge, costs: Floats) -> None:
    """Project the rows outside the domain, in place."""
    entries = np.diff(dual.indptr)
    width = max(loss.k, int(entries.max(initial=0)))
    step = max(1, PLACES_PER_BLOCK // width)
    for first in range(0, dual.shape[0], step):
        rows = slice(first, first + step)
        present = np.arange(width) < entries[rows, None]
        values = dual.data[dual.indptr[first] : dual.indptr[min(first + step, dual.shape[0])]]  # a view
        x = np.zeros(present.shape)
        x[present] = values
        outside = ~loss.is_feasible(x, costs[rows])
        if outside.any():
            cost = costs[rows][outside]
            x[outside] = loss.project(np.where(present, x, FAR_BELOW * costs[rows, None])[outside], cost)
            values[:] = x[present]
    dual.eliminate_zeros()
