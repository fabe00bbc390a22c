"""Is one method better than another over random splits of the same rows?

With d_1 … d_J the differences over J splits, s² their variance, the corrected resampled t-test of Nadeau and Bengio
(2003) takes t = mean(d) / √((1/J + n_test/n_train) s²) with J − 1 degrees of freedom: splits share rows, so that their
differences vary less than those of fresh samples would. The plain paired t-test, as papers often use it, has 1/J alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.01  # the paper's


class Comparison(NamedTuple):
    """Mean of a − b and the two-sided p-values."""

    difference: float
    p_corrected: float
    p_plain: float

    @property
    def verdict(self) -> int:
        """−1 where a is smaller, 1 where it is larger, both by the corrected test, else 0."""
        return int(np.sign(self.difference)) if self.p_corrected < LEVEL else 0


def compare(a: Sequence[float], b: Sequence[float], n_train: int, n_test: int) -> Comparison:
    """Both tests of a against b, split by split."""
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
