"""The history of many labels in a small table: one row for each Newton iteration and log₂ bin of label frequency.

    n_labels           labels of the bin still running: with a state at this iteration, their last one included
    primal             sum of their objectives; `primal_finished` is that of the labels which ended before, so that
                       primal + primal_finished never rises from one iteration to the next
    active_rows        sum of the rows with curvature
    step_size          mean line-search multiplier of the step that led here
    cg_steps, seconds  sums over the labels, of the step that led here; seconds are CPU time
    gradient_ratio     the largest ‖∇L‖/‖∇L(0)‖
    …_std              standard deviation over the labels of the row

Mean and band: the mean is sum / n_labels, its standard error std / √n_labels. Labels are added one after another in
their order, so the table depends neither on threads nor on the size of blocks (seconds apart).
Memory: iterations × bins, whatever the number of labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.reference.one_vs_all import RECORD_COLUMNS
from widemargin.solvers.result import History

__all__ = ["HistoryTable", "frequency_bin"]

N_BINS = 65  # labels without positives, and floor(log2) of 1 … 2⁶⁴
# Names of the quantities that are summed, and of the columns of the records that they come from.
QUANTITIES = {
    "primal": "value",
    "active_rows": "active_rows",
    "step_size": "step",
    "cg_steps": "cg_steps",
    "seconds": "seconds",
}


def frequency_bin(n_positives: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """floor(log2(n_positives)), and −1 for labels without positives."""
    # frexp is exact: n = mantissa · 2^exponent with mantissa in [½, 1).
    return np.frexp(n_positives.astype(np.float64))[1].astype(np.int64) - 1


class _Moments:
    """Sum and standard deviation of one quantity in each cell (iteration, bin)."""

    def __init__(self) -> None:
        # The squares are of differences from a cell's first value: without that, equal objectives of 1e5 would seem to
        # have a deviation of 1e-3.
        self.total, self.first, self.difference, self.square = (np.zeros((0, N_BINS)) for _ in range(4))

    def grow(self, n_iterations: int) -> None:
        """Add empty iterations at the end."""
        pad = ((0, n_iterations), (0, 0))
        self.total, self.first = np.pad(self.total, pad), np.pad(self.first, pad)
        self.difference, self.square = np.pad(self.difference, pad), np.pad(self.square, pad)

    def add(self, cell: tuple[Any, ...], values: npt.NDArray[np.float64], new: npt.NDArray[np.int64]) -> None:
        """Add values to their cells; those at `new` are the first ones of theirs."""
        self.first[cell[0][new], cell[1][new]] = values[new]
        np.add.at(self.total, cell, values)
        np.add.at(self.difference, cell, values - self.first[cell])
        np.add.at(self.square, cell, (values - self.first[cell]) ** 2)

    def deviation(self, cell: tuple[Any, ...], n_labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The standard deviation in the cells, zero where there is one label."""
        variance = self.square[cell] / n_labels - (self.difference[cell] / n_labels) ** 2
        deviation: npt.NDArray[np.float64] = np.sqrt(np.maximum(variance, 0.0))
        return deviation


class HistoryTable:
    """Sums of the records of labels by iteration and frequency bin."""

    def __init__(self) -> None:
        self._moments = {name: _Moments() for name in QUANTITIES}
        self._n_labels = np.zeros((0, N_BINS), dtype=np.int64)
        self._gradient_ratio = np.zeros((0, N_BINS))
        self._ended = np.zeros((0, N_BINS))  # sum of the objectives of the labels whose last iteration it is

    def add(self, records: npt.NDArray[np.float64], bins: npt.NDArray[np.int64]) -> None:
        """Add the records of a block, (n_records, 8), whose labels are in `bins`, (n_labels,)."""
        column = dict(zip(RECORD_COLUMNS, records.T, strict=True))
        iteration, bin_ = column["iteration"].astype(np.int64), bins[column["label"].astype(np.int64)] + 1
        self._grow(int(iteration.max(initial=-1)) + 1 - len(self._n_labels))
        cell = (iteration, bin_)
        cells, first = np.unique(iteration * N_BINS + bin_, return_index=True)
        new = first[self._n_labels.ravel()[cells] == 0]
        for name, source in QUANTITIES.items():
            self._moments[name].add(cell, column[source], new)
        np.add.at(self._n_labels, cell, 1)
        np.maximum.at(self._gradient_ratio, cell, column["gradient_ratio"])
        # The records of a label need not follow each other: solvers of many labels at once write them step by step.
        order = np.lexsort((iteration, column["label"]))
        last = order[np.flatnonzero(np.diff(column["label"][order], append=-1.0))]
        np.add.at(self._ended, (iteration[last], bin_[last]), column["value"][last])

    def _grow(self, n_iterations: int) -> None:
        """Make room for so many more iterations."""
        if n_iterations <= 0:
            return
        pad = ((0, n_iterations), (0, 0))
        self._n_labels, self._ended = np.pad(self._n_labels, pad), np.pad(self._ended, pad)
        self._gradient_ratio = np.pad(self._gradient_ratio, pad)
        for moments in self._moments.values():
            moments.grow(n_iterations)

    def history(self) -> History:
        """The table, as the module describes it."""
        cell = iteration, bin_ = np.nonzero(self._n_labels)
        n_labels = self._n_labels[cell]
        ended_before = np.cumsum(self._ended, axis=0) - self._ended
        columns: dict[str, npt.NDArray[Any]] = {
            "iteration": iteration,
            "frequency_bin": bin_ - 1,
            "n_labels": n_labels,
            "primal_finished": ended_before[cell],
            "gradient_ratio": self._gradient_ratio[cell],
        }
        for name, moments in self._moments.items():
            columns[name] = moments.total[cell]
            columns[name + "_std"] = moments.deviation(cell, n_labels)
        columns["step_size"] = columns["step_size"] / n_labels
        for name in ("active_rows", "cg_steps"):
            columns[name] = columns[name].astype(np.int64)
        return History(columns)
