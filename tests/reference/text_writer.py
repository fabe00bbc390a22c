"""Rows as text: the specification of cpp/text/writer.hpp, one line at a time.

    [labels] {feature:value}

A value is written in the fewest digits that read back, through float64, as the same number, in
positional or scientific notation, whichever is shorter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["format_rows", "format_value"]


def format_value(value: np.floating[Any]) -> str:
    """The shortest text that reads back as the value."""
    positional = np.format_float_positional(value, unique=True, trim="-")
    scientific = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    text = positional if len(positional) <= len(scientific) else scientific
    return text if type(value)(float(text)) == value else format_value(np.float64(value))


def format_rows(
    data: npt.NDArray[Any],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    label_indptr: npt.NDArray[np.int64],
    base: int,
) -> bytes:
    """Rows of CSR arrays as XMC text, counted from `base`."""
    lines = []
    for r in range(len(indptr) - 1):
        row_labels = ",".join(str(label + base) for label in labels[label_indptr[r] : label_indptr[r + 1]])
        entries = range(indptr[r], indptr[r + 1])
        lines.append(row_labels + "".join(f" {indices[i] + base}:{format_value(data[i])}" for i in entries) + "\n")
    return "".join(lines).encode()
