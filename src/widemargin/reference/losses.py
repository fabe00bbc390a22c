"""Losses of a margin: all that a solver or a certificate knows of them. Twins: cpp/squared_hinge.hpp.

    squared hinge    φ(m) = max(0, 1 − m)²     −(c φ)*(−α) = α − α² / (4c)   for α ≥ 0

A new loss is a new class with these methods; no solver changes. Every method works elementwise on arrays of margins.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Loss", "SquaredHinge"]

Floats = npt.NDArray[np.float64]


class Loss(Protocol):
    """What a loss of a margin m = y·score has to tell; convex, decreasing, never negative.

    Examples
    --------
    >>> from widemargin.reference.losses import Loss, SquaredHinge
    >>> loss: Loss = SquaredHinge()
    >>> loss.name
    'squared_hinge'
    """

    name: str
    one_sided_margin: float

    def value(self, m: Floats) -> Floats:
        """φ(m)."""

    def derivative(self, m: Floats) -> Floats:
        """φ'(m)."""

    def second_derivative(self, m: Floats) -> Floats:
        """φ''(m), at a kink that of one side."""

    def change(self, m: Floats, step: Floats) -> Floats:
        """φ(m + step) − φ(m), accurate for the smallest steps."""

    def dual_value(self, alpha: Floats, c: Floats) -> Floats:
        """−(c φ)*(−α): the row's part of the dual, zero at α = 0 whatever the weight c."""


class SquaredHinge:
    """The squared hinge φ(m) = max(0, 1 − m)².

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.reference.losses import SquaredHinge
    >>> m = np.array([-1.0, 0.5, 2.0])
    >>> SquaredHinge().value(m).tolist(), SquaredHinge().derivative(m).tolist()
    ([4.0, 0.25, 0.0], [-4.0, -1.0, 0.0])
    """

    name = "squared_hinge"
    # With a free intercept a label without positives (or without negatives) puts every margin here: loss zero.
    one_sided_margin = 1.0

    def value(self, m: Floats) -> Floats:
        """max(0, 1 − m)²."""
        return np.square(np.maximum(0.0, 1.0 - m))

    def derivative(self, m: Floats) -> Floats:
        """−2 max(0, 1 − m)."""
        return np.where(m < 1.0, -2.0 * (1.0 - m), 0.0)

    def second_derivative(self, m: Floats) -> Floats:
        """2 where m < 1, else 0: only rows inside the margin are active, eq. (19)–(20)."""
        return np.where(m < 1.0, 2.0, 0.0)

    def change(self, m: Floats, step: Floats) -> Floats:
        """step·(step − 2(1 − m)) while the margin stays below 1; beyond, the difference of the values."""
        before = 1.0 - m
        after = before - step
        inside = (before > 0.0) & (after > 0.0)
        difference = np.square(np.maximum(0.0, after)) - np.square(np.maximum(0.0, before))
        return np.where(inside, step * (step - 2.0 * before), difference)

    def dual_value(self, alpha: Floats, c: Floats) -> Floats:
        """α − α²/(4c)."""
        return alpha - np.square(alpha) / (4.0 * np.where(alpha > 0.0, c, 1.0))
