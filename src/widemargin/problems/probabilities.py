"""Probabilities as functions of scores: the few numbers per label, or per group of classes, of a calibrated model.

    labels    P(l) = c(α_l s_l + β_l)                      labels are independent; two classes are one label
    classes   P(j) = e^{τ v_j} / Σ_i e^{τ v_i},   v_j = log σ(α s_j + β)       over classes that exclude each other

with c = σ, or a non-decreasing curve that is linear between knots in the log-odds; for classes such a curve is applied
to the log-odds of P(j), and the results are divided by their sum. Everything is computed element by element or row by
row: the probabilities of a row do not depend on the rows beside it. `widemargin.solvers.calibration` fits the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit, logit

__all__ = ["METHODS", "Calibration", "Method", "log_odds"]

Method: TypeAlias = Literal["sigmoid", "isotonic"]
METHODS: tuple[Method, ...] = ("sigmoid", "isotonic")
LOGIT_LIMIT = 36.0
"""Log-odds beyond which a probability is 0 or 1 up to rounding."""
ARRAYS = ("slope", "offset", "temperature", "knots", "values")

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Parameters of the maps from scores to probabilities.

    Parameters
    ----------
    method : {"sigmoid", "isotonic"}
        Whether there is a curve.
    slope, offset : ndarray of float64 of shape (n_labels,), or (1,) for classes that exclude each other
        α and β.
    temperature : ndarray of float64 of shape (n_groups,) or None
        τ of each group of classes; None for labels.
    knots, values : ndarray of float64 of shape (n_knots,) or None
        The curve, None for sigmoids: log-odds, ascending, and probabilities, not descending.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.probabilities import Calibration
    >>> calibration = Calibration("sigmoid", np.array([2.0, 1.0]), np.array([0.0, 0.0]))
    >>> calibration.of_labels(np.array([[0.0, 100.0]]))
    array([[0.5, 1. ]])
    >>> classes = Calibration("sigmoid", np.ones(1), np.zeros(1), temperature=np.ones(1))
    >>> classes.of_groups(np.array([[1.0, 1.0]]), np.array([0]), np.array([0]))
    array([[0.5, 0.5]])
    """

    method: Method
    slope: Floats
    offset: Floats
    temperature: Floats | None = None
    knots: Floats | None = None
    values: Floats | None = None

    def of_labels(self, scores: Floats, labels: Ints | None = None) -> Floats:
        """Probabilities of all labels for scores of shape (n_rows, n_labels), or of one given label per score."""
        pick: Any = slice(None) if labels is None else labels
        logits = self.slope[pick] * scores + self.offset[pick]
        found: Floats = expit(logits) if self.knots is None else self._curve(logits)
        return found

    def of_groups(self, scores: Floats, starts: Ints, groups: Ints) -> Floats:
        """Probabilities of classes within their groups, which are contiguous.

        Parameters
        ----------
        scores : ndarray of shape (n_rows, n_classes)
            Scores.
        starts : ndarray of shape (n_groups,)
            First class of each group.
        groups : ndarray of shape (n_groups,)
            Number of each group in `temperature`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            The classes of a group add up to 1.
        """
        if self.temperature is None:
            raise ValueError("the calibration is for independent labels, not for mutually exclusive classes")
        sizes = np.diff(starts, append=scores.shape[1])
        of_class = np.repeat(np.arange(len(starts)), sizes)
        exponents = log_expit(self.slope[0] * scores + self.offset[0]) * self.temperature[groups[of_class]]
        exponents -= np.maximum.reduceat(exponents, starts, axis=1)[:, of_class]
        shares: Floats = np.exp(exponents)
        shares /= np.add.reduceat(shares, starts, axis=1)[:, of_class]
        if self.knots is None:
            return shares
        curved = self._curve(log_odds(shares))
        sums = np.add.reduceat(curved, starts, axis=1)[:, of_class]
        # A curve that is 0 for all classes says nothing about them.
        return np.where(sums > 0, curved / np.where(sums > 0, sums, 1.0), shares)

    def _curve(self, logits: Floats) -> Floats:
        found: Floats = np.interp(logits, np.asarray(self.knots), np.asarray(self.values))
        return found

    def to_arrays(self) -> dict[str, Floats]:
        """The parameters that are not None, by name."""
        return {name: getattr(self, name) for name in ARRAYS if getattr(self, name) is not None}

    @classmethod
    def from_arrays(cls, method: Any, arrays: Mapping[str, Any], n_labels: int, n_groups: int | None) -> Calibration:
        """Inverse of `to_arrays`; a ValueError unless they fit the number of labels, or of groups of classes."""
        found = {name: np.asarray(arrays[name], dtype=np.float64) for name in ARRAYS if name in arrays}
        n_maps = n_labels if n_groups is None else 1
        shapes = {"slope": (n_maps,), "offset": (n_maps,)} | ({} if n_groups is None else {"temperature": (n_groups,)})
        if method == "isotonic":
            n_knots = len(np.atleast_1d(found.get("knots", 0.0)))
            shapes |= {"knots": (n_knots,), "values": (n_knots,)}
        if method not in METHODS or {name: array.shape for name, array in found.items()} != shapes:
            raise ValueError(f"the calibration arrays do not match {n_labels} labels")
        if n_groups is not None and found["temperature"].min() < 0:
            raise ValueError("the calibration temperatures must be nonnegative")
        if method == "isotonic":
            knots, values = found["knots"], found["values"]
            rising = (np.diff(knots) > 0).all() and (np.diff(values) >= 0).all()
            if not rising or values[0] < 0 or values[-1] > 1:
                raise ValueError("the calibration curve must rise from 0 to 1")
        return cls(method, **found)


def log_odds(probabilities: Floats) -> Floats:
    """log p/(1 − p), clipped to finite limits.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.probabilities import log_odds
    >>> log_odds(np.array([0.0, 0.5, 1.0]))
    array([-36.,   0.,  36.])
    """
    found: Floats = np.clip(logit(probabilities), -LOGIT_LIMIT, LOGIT_LIMIT)
    return found
