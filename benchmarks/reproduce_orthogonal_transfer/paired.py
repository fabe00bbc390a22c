"""Is one method better than another over random splits of the same rows?

Let d_1 … d_J be the differences over J splits and s² their variance. The corrected resampled t-test of Nadeau and
Bengio (2003) uses t = mean(d) / √((1/J + n_test/n_train) s²) with J − 1 degrees of freedom, because splits share rows
and their differences vary less than those of fresh samples. The plain paired t-test, common in papers, has only 1/J.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.01  # as in the paper


class Comparison(NamedTuple):
    """Mean of a − b and the two-sided p-values."""

    difference: float
    p_corrected: float
    p_plain: float

    @property
    def verdict(self) -> int:
        """By the corrected test: −1 if a is smaller, 1 if it is larger, else 0."""
        return int(np.sign(self.difference)) if self.p_corrected < LEVEL else 0


def compare(a: Sequence[float], b: Sequence[float], n_train: int, n_test: int) -> Comparison:
    """Both tests of a against b, paired by split."""
    d = np.subtract(a, b)
    mean, variance = float(d.mean()), float(d.var(ddof=1))
    return Comparison(
        mean,
        _p_value(mean, (1.0 / len(d) + n_test / n_train) * variance, len(d) - 1),
        _p_value(mean, variance / len(d), len(d) - 1),
    )


def _p_value(mean: float, variance: float, freedom: int) -> float:
    if variance == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return float(2.0 * stats.t.sf(abs(mean) / np.sqrt(variance), freedom))
