"""The history of many labels in a small table: one row for each Newton iteration and log₂ bin of label frequency.

Labels are added one after another in their order, so the table depends neither on threads nor on the size of blocks
(seconds apart). Memory: iterations × bins, whatever the number of labels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from widemargin.reference.one_vs_all import RECORD_COLUMNS
from widemargin.solvers.result import History

__all__ = ["HistoryTable", "frequency_bin"]

N_BINS = 65  # labels without positives, and floor(log2) of 1 … 2⁶⁴
SUMS = ("n_labels", "primal", "active_rows", "step_size", "cg_steps", "seconds")


def frequency_bin(n_positives: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """floor(log2(n_positives)), and −1 for labels without positives."""
    # frexp is exact: n = mantissa · 2^exponent with mantissa in [½, 1).
    return np.frexp(n_positives.astype(np.float64))[1].astype(np.int64) - 1


class HistoryTable:
    """Sums of the records of labels by iteration and frequency bin."""

    def __init__(self) -> None:
        self._sums = np.zeros((len(SUMS), 0, N_BINS))
        self._gradient_ratio = np.zeros((0, N_BINS))

    def add(self, records: npt.NDArray[np.float64], bins: npt.NDArray[np.int64]) -> None:
        """Add the records of a block, (n_records, 8), whose labels are in `bins`, (n_labels,)."""
        column = dict(zip(RECORD_COLUMNS, records.T, strict=True))
        iteration, bin_ = column["iteration"].astype(np.int64), bins[column["label"].astype(np.int64)] + 1
        missing = int(iteration.max(initial=-1)) + 1 - len(self._gradient_ratio)
        if missing > 0:
            self._sums = np.pad(self._sums, ((0, 0), (0, missing), (0, 0)))
            self._gradient_ratio = np.pad(self._gradient_ratio, ((0, missing), (0, 0)))
        ones = np.ones(len(records))
        terms = (ones, *(column[name] for name in ("value", "active_rows", "step", "cg_steps", "seconds")))
        for sums, values in zip(self._sums, terms, strict=True):
            np.add.at(sums, (iteration, bin_), values)
        np.maximum.at(self._gradient_ratio, (iteration, bin_), column["gradient_ratio"])

    def history(self) -> History:
        """The table: sums over the labels of a row, but the mean of the steps and the largest gradient ratio."""
        iteration, bin_ = np.nonzero(self._sums[0])
        sums = dict(zip(SUMS, self._sums[:, iteration, bin_], strict=True))
        return History(
            {
                "iteration": iteration,
                "frequency_bin": bin_ - 1,
                "n_labels": sums["n_labels"].astype(np.int64),
                "primal": sums["primal"],
                "gradient_ratio": self._gradient_ratio[iteration, bin_],
                "active_rows": sums["active_rows"].astype(np.int64),
                "step_size": sums["step_size"] / sums["n_labels"],
                "cg_steps": sums["cg_steps"].astype(np.int64),
                "seconds": sums["seconds"],
            }
        )
