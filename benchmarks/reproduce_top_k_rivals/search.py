"""Which value of a parameter to try next, by the accuracy on the validation rows.

All values of a grid are tried. While the best value of a rule is at an edge of what was tried, the value a factor
beyond is tried, too; then the values half a step beside the best. A rule is a k: the best value is that of the
largest top-k accuracy. Ties go to the larger value, so that a search ends where ever smaller ones change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

STEP = 10.0
EDGE_RULES = (1, 5, 10)

Accuracies = Mapping[float, Mapping[int, float]]  # value -> k -> accuracy on the validation rows


def rounded(value: float) -> float:
    """Three digits, so that a value has one name."""
    return float(f"{value:.3g}")


def best(tried: Accuracies, k: int) -> float:
    """The value of the largest top-k accuracy."""
    return max(tried, key=lambda value: (tried[value][k], value))


def next_value(
    tried: Accuracies, grid: Sequence[float], limits: tuple[float, float], half_step_rules: Sequence[int]
) -> float | None:
    """The next value to try, or None where the search is over."""
    for value in grid:
        if value not in tried:
            return value
    for k in EDGE_RULES:
        edge, beyond = best(tried, k), None
        if edge == min(tried):
            beyond = rounded(edge / STEP)
        elif edge == max(tried):
            beyond = rounded(edge * STEP)
        if beyond is not None and limits[0] <= beyond <= limits[1]:
            return beyond
    return _half_step(tried, grid, half_step_rules)


def _half_step(tried: Accuracies, grid: Sequence[float], rules: Sequence[int]) -> float | None:
    """A value half a step beside the best whole step, not beyond what was tried."""
    origin = np.log10(grid[0])
    whole = {v: tried[v] for v in tried if abs((o := np.log10(v) - origin) - round(o)) < 0.1}
    for k in rules:
        centre = best(whole, k)
        for value in (rounded(centre / np.sqrt(STEP)), rounded(centre * np.sqrt(STEP))):
            if value not in tried and min(tried) < value < max(tried):
                return value
    return None
