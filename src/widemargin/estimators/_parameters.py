"""Checks of constructor parameters, made in `fit` as scikit-learn wants it."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

__all__ = [
    "LINEAR_MODEL",
    "boolean",
    "check_parameters",
    "finite_number",
    "jobs_or_none",
    "nonnegative",
    "positive",
    "positive_integer",
    "positive_or_none",
    "whole_number",
]

LARGEST_MB = 1e12
"""More than any machine has, and a number of bytes that 64 bits hold."""


def positive(value: Any) -> bool:
    """A finite number above 0."""
    return _is_number(value) and value > 0 and bool(np.isfinite(value))


def nonnegative(value: Any) -> bool:
    """A finite number, 0 or above."""
    return _is_number(value) and value >= 0 and bool(np.isfinite(value))


def positive_integer(value: Any) -> bool:
    """A whole number above 0."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)


def whole_number(value: Any) -> bool:
    """A whole number, 0 or above."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def finite_number(value: Any) -> bool:
    """A finite number."""
    return _is_number(value) and bool(np.isfinite(value))


def positive_or_none(value: Any) -> bool:
    """A finite number above 0, or None."""
    return value is None or positive(value)


def boolean(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool | np.bool_)


def jobs_or_none(value: Any) -> bool:
    """A whole number other than 0, or None."""
    return value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value != 0))


LINEAR_MODEL: dict[str, Callable[[Any], bool]] = {
    "C": positive,
    "tol": positive,
    "fit_intercept": boolean,
    "intercept_scaling": positive,
    "normalize": boolean,
    "max_iter": positive_integer,
    "memory_limit_mb": positive,
    "n_jobs": jobs_or_none,
}
"""The parameters that the dual methods have in common."""


def check_parameters(estimator: Any, **allowed: Callable[[Any], bool]) -> None:
    """Raise a ValueError that names the first parameter of `estimator` whose value its check does not allow."""
    for name, check in allowed.items():
        value = getattr(estimator, name)
        if not check(value):
            wanted = (check.__doc__ or "an allowed value.").strip().rstrip(".")
            wanted = wanted if wanted.startswith("True") else wanted[0].lower() + wanted[1:]
            raise ValueError(f"{type(estimator).__name__}: {name} must be {wanted}, got {value!r}")
        if name.endswith("_mb") and value > LARGEST_MB:
            raise ValueError(f"{type(estimator).__name__}: {name} must be at most {LARGEST_MB:g}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
