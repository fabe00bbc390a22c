"""The values a path goes through: checked before anything is fitted, and in the order in which fits help each other."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone

__all__ = ["check_grid", "check_prune"]

# Dual variables for a larger k are feasible for a smaller one; of every other parameter the fits begin at the smallest.
DESCENDING = {"k"}


def check_grid(estimator: Any, Cs: Any, ks: Any, param: str | None, values: Any) -> dict[str, list[Any]]:
    """Values by parameter, each in the order of the fits; the last parameter changes fastest."""
    if values is None and param is not None:
        raise ValueError(f"param={param!r} needs its values; give them as values=[…]")
    if values is not None and (Cs is not None or ks is not None):
        raise ValueError("values belong to one parameter; give them, or Cs and ks, not both")
    given = {param or "C": values} if values is not None else {"C": Cs, "k": ks}
    grid = {name: _check_values(estimator, name, some) for name, some in given.items() if some is not None}
    if not grid:
        raise ValueError("a path needs values to go through; give Cs, ks, or param and values")
    if hasattr(estimator, "_check_parameters"):
        for name, some in grid.items():
            for value in some:
                clone(estimator).set_params(**{name: value})._check_parameters()
    return grid


def _check_values(estimator: Any, param: str, values: Any) -> list[Any]:
    """The values of one parameter in their order."""
    known = sorted(estimator.get_params(deep=True))
    if param not in known:
        raise ValueError(f"{type(estimator).__name__} has no parameter {param!r}; it has {', '.join(known)}")
    if param == "prune":
        raise ValueError("thresholds share one fit: give them as prune=[…], and values of another parameter")
    checked = [value.item() if isinstance(value, np.generic) else value for value in np.ravel(values).tolist()]
    numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in checked)
    if not checked or not numbers or not np.isfinite(np.array(checked, dtype=float)).all():
        raise ValueError(f"values of {param} must be finite numbers, at least one; got {values!r}")
    if len(set(checked)) != len(checked):
        raise ValueError(f"values of {param} must be different from each other; got {values!r}")
    return sorted(checked, reverse=param in DESCENDING)


def check_prune(estimator: Any, prune: Any) -> list[float] | None:
    """The thresholds, ascending, or None when there is no sweep."""
    if prune is None:
        return None
    if "prune" not in estimator.get_params(deep=False):
        raise ValueError(f"{type(estimator).__name__} has no parameter 'prune'; leave prune out")
    try:
        thresholds = sorted({float(threshold) for threshold in np.ravel(prune)})
    except (TypeError, ValueError):
        thresholds = []
    if not thresholds or not np.isfinite(thresholds).all() or thresholds[0] < 0:
        raise ValueError(f"prune must be finite numbers, 0 or above, at least one; got {prune!r}")
    return thresholds
