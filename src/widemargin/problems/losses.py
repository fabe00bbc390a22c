"""Losses of a margin, by the names that users write: all that a solver or a certificate needs to know.

    squared hinge    φ(m) = max(0, 1 − m)²     −(c φ)*(−α) = α − α² / (4c)                              for α ≥ 0
    logistic         φ(m) = log(1 + e^−m)      −(c φ)*(−α) = −α log(α/c) − (c − α) log(1 − α/c)     for 0 ≤ α ≤ c

A new loss is a new class with these methods; no solver changes. Every method works elementwise on arrays of margins.
The compiled core has the same losses.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import entr, expit

__all__ = ["LOSSES", "Logistic", "Loss", "SquaredHinge", "get_loss"]

Floats = npt.NDArray[np.float64]


class Loss(Protocol):
    """A loss of a margin m = y·score: convex, decreasing, never negative.

    Examples
    --------
    >>> from widemargin.problems.losses import Loss, SquaredHinge
    >>> loss: Loss = SquaredHinge()
    >>> loss.name
    'squared_hinge'
    """

    name: str
    one_sided_margin: float
    one_sided_attained: bool

    def value(self, m: Floats) -> Floats:
        """φ(m)."""

    def derivative(self, m: Floats) -> Floats:
        """φ'(m)."""

    def second_derivative(self, m: Floats) -> Floats:
        """φ''(m); at a kink, the one-sided one."""

    def change(self, m: Floats, step: Floats) -> Floats:
        """φ(m + step) − φ(m), accurate for the smallest steps."""

    def dual_value(self, alpha: Floats, c: Floats) -> Floats:
        """−(c φ)*(−α): the row's part of the dual, zero at α = 0 whatever the weight c."""


class SquaredHinge:
    """The squared hinge φ(m) = max(0, 1 − m)².

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.losses import SquaredHinge
    >>> m = np.array([-1.0, 0.5, 2.0])
    >>> SquaredHinge().value(m).tolist(), SquaredHinge().derivative(m).tolist()
    ([4.0, 0.25, 0.0], [-4.0, -1.0, 0.0])
    """

    name = "squared_hinge"
    # With a free intercept a label without positives (or without negatives) puts every margin here: loss zero.
    one_sided_margin = 1.0
    one_sided_attained = True

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


class Logistic:
    """The logistic loss φ(m) = log(1 + e^−m), without overflow or cancellation at either end.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.losses import Logistic
    >>> Logistic().value(np.array([-1000.0, 0.0, 1000.0])).round(6).tolist()
    [1000.0, 0.693147, 0.0]
    >>> Logistic().derivative(np.array([-1000.0, 0.0])).tolist()
    [-1.0, -0.5]
    """

    name = "logistic"
    # With a free intercept a label without positives (or without negatives) has no minimiser: its losses go to zero as
    # the margin grows. Here they are 1e-13, below anything that matters.
    one_sided_margin = 30.0
    one_sided_attained = False

    def value(self, m: Floats) -> Floats:
        """log(1 + e^−m)."""
        return np.logaddexp(0.0, -m)

    def derivative(self, m: Floats) -> Floats:
        """−1 / (1 + e^m)."""
        slope: Floats = -expit(-m)
        return slope

    def second_derivative(self, m: Floats) -> Floats:
        """1 / ((1 + e^m)(1 + e^−m)): every row is active."""
        curvature: Floats = expit(m) * expit(-m)
        return curvature

    def change(self, m: Floats, step: Floats) -> Floats:
        """log(1 − φ'(m)(e^−step − 1)) for short steps; for long ones the values differ enough."""
        short = np.abs(step) <= 1.0
        exact = np.log1p(expit(-m) * np.expm1(-np.where(short, step, 0.0)))
        return np.where(short, exact, self.value(m + step) - self.value(m))

    def dual_value(self, alpha: Floats, c: Floats) -> Floats:
        """The entropy c·H(α/c), where 0 · log 0 = 0."""
        weight = np.where(c > 0.0, c, 1.0)
        share = np.clip(alpha / weight, 0.0, 1.0)
        # log1p keeps the digits of 1 − share when the share is small.
        rest = np.where(share < 1.0, share - 1.0, 0.0) * np.log1p(-np.where(share < 1.0, share, 0.0))
        value: Floats = weight * (entr(share) + rest)
        return value


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SquaredHinge(), Logistic())}
"""Every loss of one-vs-all by its name; the compiled core has the same list in its bindings."""


def get_loss(name: str) -> Loss:
    """Return the loss called `name`.

    Parameters
    ----------
    name : str
        A key of `LOSSES`.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> from widemargin.problems.losses import get_loss
    >>> get_loss("squared_hinge").one_sided_margin
    1.0
    """
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; use one of {', '.join(map(repr, sorted(LOSSES)))}")
    return LOSSES[name]
