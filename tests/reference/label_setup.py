"""Specification of how the fast one-vs-all solver sets up a label: the rarer side, its weights, and when to stop.

    f(w, b) = ½‖w‖² + Σ_i c_i max(0, 1 − y_i (w·x_i + b))²,      c_i = row weight · factor of the row's side

The rule stops at ‖∇f‖ ≤ tol · max(1, min(P, N)) / n · ‖∇f(0)‖ with P and N the weights of the two sides and n their
sum. A label with more positive rows than negative ones is solved with all signs flipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["PreparedLabel", "prepare_label"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class PreparedLabel(NamedTuple):
    """A label's problem as the solver sees it.

    Examples
    --------
    >>> PreparedLabel._fields
    ('rows', 'factor', 'other_factor', 'rule', 'swapped', 'positive', 'negative')
    """

    rows: Ints  # of the rarer side, ascending
    factor: float  # of these rows' weights
    other_factor: float
    rule: float  # gradient norm at which to stop
    swapped: bool  # whether the rarer side is the negative one
    positive: float  # weight of the positive rows, factor included
    negative: float


def prepare_label(
    X: Any,
    positives: Ints,
    row_weight: Floats,
    positive_factor: float,
    negative_factor: float,
    bias_value: float,
    tol: float,
) -> PreparedLabel:
    """The problem of the label with these positive rows of X (n_rows, n_features), sparse; the intercept's feature is
    `bias_value`, 0 for none.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> X = sp.csr_array([[1.0], [1.0], [0.0]])
    >>> label = prepare_label(X, np.array([0]), np.ones(3), 1.0, 1.0, bias_value=0.0, tol=0.3)
    >>> label.rows.tolist(), label.rule, label.positive, label.negative  # the gradient at 0 is −2 (1 − 1 − 0)
    ([0], 0.0, 1.0, 2.0)
    """
    n_rows = X.shape[0]
    is_positive = np.zeros(n_rows, dtype=bool)
    is_positive[positives] = True
    costs = row_weight * np.where(is_positive, positive_factor, negative_factor)
    signed = np.where(is_positive, costs, -costs)
    gradient = np.append(X.T @ signed, bias_value * signed.sum())
    positive, negative = float(costs[is_positive].sum()), float(costs[~is_positive].sum())
    scale = max(1.0, min(positive, negative)) / max(1.0, positive + negative)
    swapped = 2 * len(positives) > n_rows
    factors = (negative_factor, positive_factor) if swapped else (positive_factor, negative_factor)
    rows = np.flatnonzero(is_positive != swapped)
    return PreparedLabel(
        rows, *factors, tol * scale * 2.0 * float(np.linalg.norm(gradient)), swapped, positive, negative
    )
