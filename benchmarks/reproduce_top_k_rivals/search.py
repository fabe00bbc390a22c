"""Which value of a parameter to try next, by the accuracy on the validation rows.

All values of a grid are tried. While a value at an edge of the tried values is better than all others by some rule, the
search also tries the value one step beyond, within limits. It then tries, on request, the values half a step on either
side of the best. A rule is a k: the best value has the largest top-k accuracy. Ties go to the smaller value and do not
make an edge the best, so the search stops where accuracies no longer change. All values are powers of ten or halfway
between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

EDGE_RULES = (1, 5, 10)

Accuracies = Mapping[float, Mapping[int, float]]  # value -> k -> accuracy on the validation rows


def rounded(value: float) -> float:
    """The nearest half power of ten with three digits so that each value has one name."""
    return float(f"{10 ** (round(2 * np.log10(value)) / 2):.3g}")


def best(tried: Accuracies, k: int) -> float:
    """The value with the largest top-k accuracy."""
    return max(tried, key=lambda value: (tried[value][k], -value))


def next_value(
    tried: Accuracies, grid: Sequence[float], limits: tuple[float, float], half_step_rules: Sequence[int]
) -> float | None:
    """The next value to try, or None if the search is finished."""
    step = _step(grid)
    for value in grid:
        if value not in tried:
            return value
    for k in EDGE_RULES:
        edge, beyond = best(tried, k), None
        if sum(tried[value][k] == tried[edge][k] for value in tried) > 1:
            continue
        if edge == min(tried):
            beyond = rounded(edge / step)
        elif edge == max(tried):
            beyond = rounded(edge * step)
        if beyond is not None and limits[0] <= beyond <= limits[1]:
            return beyond
    return _half_step(tried, grid, half_step_rules)


def _step(grid: Sequence[float]) -> float:
    """The factor from one value of the grid to the next."""
    return grid[1] / grid[0]


def _half_step(tried: Accuracies, grid: Sequence[float], rules: Sequence[int]) -> float | None:
    """A value half a step from the best whole step, within the tried values."""
    places = {value: np.log(value / grid[0]) / np.log(_step(grid)) for value in tried}
    whole = {value: tried[value] for value, place in places.items() if abs(place - round(place)) < 0.1}
    half = np.sqrt(_step(grid))
    for k in rules:
        centre = best(whole, k)
        for value in (rounded(centre / half), rounded(centre * half)):
            if value not in tried and min(tried) < value < max(tried):
                return value
    return None
