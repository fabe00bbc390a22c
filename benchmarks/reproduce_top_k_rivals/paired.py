"""Is one method better than another over random splits of the same rows? Intervals for the mean of the differences.

Let d_1 … d_J be the differences and s² their variance. The plain interval is mean ± t √(s²/J), with t the 97.5 % point
for J − 1 degrees of freedom. It treats splits as independent, but they share rows; the corrected interval of Nadeau and
Bengio (2003) has √((1/J + n_test/n_train) s²) instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95


class Interval(NamedTuple):
    """Mean difference and the half widths of both intervals."""

    mean: float
    half: float
    half_corrected: float

    @property
    def sign(self) -> int:
        """1 or −1 if the plain interval lies on one side of 0, else 0."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.half else 0

    @property
    def sign_corrected(self) -> int:
        """The same by the corrected interval."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.half_corrected else 0


def interval(a: Sequence[float], b: Sequence[float], n_train: int, n_test: int) -> Interval:
    """Interval for the mean of a − b, paired by split."""
    d = np.subtract(a, b)
    factor = float(stats.t.ppf(0.5 + LEVEL / 2, len(d) - 1)) * float(d.std(ddof=1))
    return Interval(
        float(d.mean()), factor * float(np.sqrt(1 / len(d))), factor * float(np.sqrt(1 / len(d) + n_test / n_train))
    )
