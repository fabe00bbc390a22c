"""The best discrete column of a code for a binary classifier, and codes grown column by column.

The best column u ∈ {−1, +1}^k for one classifier (Crammer and Singer 2002, Theorem 1) has the smallest expected error

    ε = 1 − Σ_i weight_i [[y_i ∈ H_i]] / |H_i|,   H_i = argmax_r ⟨sign h_i, M_r⟩,   weights of sum 1

With a_r^± the weight of class r where sign h = ±1 and w^± the number of classes at ±1,

    1 − ε = Σ_{u_r = +1} a_r^+ / w^+  +  Σ_{u_r = −1} a_r^− / w^−

so for each w^+ the best classes at +1 are those with the largest a_r^+/w^+ − a_r^−/w^−: exact in O(n + k² log k) time,
for k − 1 sorts of k keys. With two columns or more the problem is NP-complete (Theorem 2): `greedy_code` adds columns
one by one, each by a local search. An output of exactly 0 counts as +1 here.
Memory: O(n · n_columns) and a bounded block of scores for the greedy code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages
from widemargin.labels.codes import Code, Floats, Indices, check_targets

__all__ = ["FirstColumn", "GreedyCode", "greedy_code", "optimal_first_column"]

BLOCK_ENTRIES = 1 << 20
"""Entries of the blocks of scores (rows × classes) that a step of the greedy search holds at a time (8 MB each)."""
SMALLEST_GAIN = 1e-12
"""A step of the local search must lower the error by more than this: less is rounding of sums of weights."""


class FirstColumn(NamedTuple):
    """A column of a code and the error that it has on its own.

    Parameters
    ----------
    column : ndarray of int8 of shape (n_classes,)
        +1 or −1 for each class.
    expected_error : float
        Error when one of the best classes is drawn uniformly.
    """

    column: Code
    expected_error: float


class GreedyCode(NamedTuple):
    """A code grown column by column.

    Parameters
    ----------
    code : ndarray of int8 of shape (n_classes, n_columns)
        The code.
    expected_errors : ndarray of shape (n_columns,)
        Expected error of the first columns, for each number of them; it never rises.
    """

    code: Code
    expected_errors: Floats


@with_shared_passages
def optimal_first_column(
    h: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None, n_classes: int | None = None
) -> FirstColumn:
    """The column of signs with the smallest expected error for one binary classifier, exactly.

    A constant column is never returned: its error is 1 − 1/n_classes, and the best column is at least as good. Among
    equally good ones it is the one with the fewest classes at +1, and of these classes those that come first.

    Parameters
    ----------
    h : array-like of shape (n_samples,)
        Outputs of the binary classifier; only their signs count, and 0 counts as +1.
    <one_class>
    <row_weights>
    <n_classes_of_y>

    Returns
    -------
    FirstColumn
        Named tuple `(column, expected_error)`.

    Examples
    --------
    >>> from widemargin import optimal_first_column
    >>> best = optimal_first_column([2.0, 1.5, -1.0, -0.5, -2.0, 1.0], [0, 0, 1, 1, 2, 2])
    >>> best.column, round(best.expected_error, 4)
    (array([ 1, -1, -1], dtype=int8), 0.4167)
    """
    signs = _check_signs(h, 1)
    true, weights, k = check_targets(y, len(signs), sample_weight, n_classes)
    column, right = _best_column(signs, true, weights, k)
    return FirstColumn(column, 1.0 - right / float(weights.sum()))


@with_shared_passages
def greedy_code(
    h: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None, n_classes: int | None = None
) -> GreedyCode:
    """A discrete code for given binary classifiers, grown one column at a time.

    Column j is chosen, the columns before it fixed, to lower the expected error of the code so far by a local search:
    from the best column of classifier j on its own, and from the best one for the rows that are not yet right, the
    class whose change of sign lowers the error most is changed until none does. The first column is exact. If the
    search finds nothing better than the code without classifier j, its column is all +1, which changes no decision.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs of the binary classifiers; only their signs count, and 0 counts as +1.
    <one_class>
    <row_weights>
    <n_classes_of_y>

    Returns
    -------
    GreedyCode
        Named tuple `(code, expected_errors)`. Decode signs of outputs by the inner product to get these errors.

    Examples
    --------
    >>> from widemargin.problems.first_column import greedy_code
    >>> greedy = greedy_code([[1, 1], [1, -1], [-1, 1], [-1, -1]], [0, 1, 2, 3])
    >>> greedy.expected_errors
    array([0.5, 0. ])
    """
    signs = _check_signs(h, 2)
    true, weights, k = check_targets(y, len(signs), sample_weight, n_classes)
    weights = weights / weights.sum()
    code, errors = np.ones((k, signs.shape[1]), dtype=np.int8), np.empty(signs.shape[1])
    code[:, 0], right = _best_column(signs[:, 0], true, weights, k)
    errors[0] = 1.0 - right
    for j in range(1, signs.shape[1]):
        search = _ColumnSearch(signs[:, : j + 1], code[:, :j], true, weights)
        code[:, j], errors[j] = search.best(errors[j - 1])
    return GreedyCode(code, errors)


def _best_column(signs: Code, y: Indices, weights: Floats, k: int) -> tuple[Code, float]:
    """The column of Theorem 1 and the weight of what it gets right, with weights as they are (not of sum 1)."""
    plus = np.bincount(y, np.where(signs > 0, weights, 0.0), k)
    minus = np.bincount(y, np.where(signs > 0, 0.0, weights), k)
    best, best_right = np.empty(0, dtype=np.intp), -1.0
    for n_plus in range(1, k):
        # The key times w^+ w^−: exact for whole numbers, so equal classes keep their order.
        order = np.argsort(minus * n_plus - plus * (k - n_plus), kind="stable")
        chosen, others = order[:n_plus], order[n_plus:]
        right = float(plus[chosen].sum() / n_plus + minus[others].sum() / (k - n_plus))
        if right > best_right:
            best, best_right = chosen, right
    column = np.full(k, -1, dtype=np.int8)
    column[best] = 1
    return column, best_right


class _ColumnSearch:
    """Local search for the next column of a code; scores are sums of ±1 and therefore exact."""

    def __init__(self, signs: Code, code: Code, y: Indices, weights: Floats) -> None:
        self.signs, self.code, self.y, self.weights = signs.astype(np.float64), code, y, weights
        self.step = max(1, BLOCK_ENTRIES // len(code))

    def best(self, error_without: float) -> tuple[Code, float]:
        """The better of the two local optima, or a column of +1 if both are worse than no column."""
        k, last = len(self.code), self.signs[:, -1].astype(np.int8)
        best, best_error = np.ones(k, dtype=np.int8), error_without
        wrong = self._wrong_weights()
        for weights in (self.weights, wrong) if wrong.any() else (self.weights,):
            column, error = self._descend(_best_column(last, self.y, weights, k)[0])
            if error < best_error - SMALLEST_GAIN:
                best, best_error = column, error
        return best, best_error

    def _descend(self, column: Code) -> tuple[Code, float]:
        """Change the class that lowers the error most until none does; returns column and error."""
        error, flipped = self._errors(column)
        while True:
            for lone in (1, -1):  # a change that would make the column constant is none
                flipped[(column == lone) & (np.count_nonzero(column == lone) == 1)] = np.inf
            r = int(np.argmin(flipped))
            if not flipped[r] < error - SMALLEST_GAIN:
                return column, error
            column = column.copy()
            column[r] = -column[r]
            error, flipped = self._errors(column)

    def _errors(self, column: Code) -> tuple[float, Floats]:
        """Expected error with this column, and with one class of it changed, for each class."""
        right, right_flipped = 0.0, np.zeros(len(column))
        matrix = np.column_stack([self.code, column]).astype(np.float64)
        for rows in self._blocks():
            scores = self.signs[rows] @ matrix.T
            right += float(self.weights[rows] @ _share(scores, self.y[rows]))
            changed = scores - 2.0 * np.multiply.outer(self.signs[rows, -1], column.astype(np.float64))
            right_flipped += self.weights[rows] @ _share_after_change(scores, changed, self.y[rows])
        return 1.0 - right, 1.0 - right_flipped

    def _wrong_weights(self) -> Floats:
        """Weight of each row times the probability that the code so far is wrong on it."""
        wrong = np.empty(len(self.y))
        for rows in self._blocks():
            scores = self.signs[rows, :-1] @ self.code.T.astype(np.float64)
            wrong[rows] = self.weights[rows] * (1.0 - _share(scores, self.y[rows]))
        return wrong

    def _blocks(self) -> list[slice]:
        return [slice(start, start + self.step) for start in range(0, len(self.y), self.step)]


def _share(scores: Floats, y: Indices) -> Floats:
    """[[y_i ∈ H_i]] / |H_i| of each row."""
    best = scores == scores.max(axis=1, keepdims=True)
    share: Floats = best[np.arange(len(y)), y] / best.sum(axis=1)
    return share


def _share_after_change(scores: Floats, changed: Floats, y: Indices) -> Floats:
    """[[y_i ∈ H_i]] / |H_i| when the score of class r alone becomes changed_ir, for each row i and class r."""
    rows = np.arange(len(y))
    top = scores.max(axis=1, keepdims=True)
    is_top = scores == top
    n_top = is_top.sum(axis=1, keepdims=True)
    below = np.where(is_top, -np.inf, scores)
    second = below.max(axis=1, keepdims=True)
    n_second = ((below == second) & ~is_top).sum(axis=1, keepdims=True)
    # Best score among the classes other than r, and how many have it.
    alone = is_top & (n_top == 1)
    others, n_others = np.where(alone, second, top), np.where(alone, n_second, n_top - is_top)
    n_best = np.where(changed < others, n_others, np.where(changed == others, n_others + 1, 1))
    is_best = scores[rows, y][:, None] >= np.maximum(others, changed)
    is_best[rows, y] = changed[rows, y] >= others[rows, y]
    share: Floats = is_best / n_best
    return share


def _check_signs(h: npt.ArrayLike, n_dimensions: int) -> Code:
    """Outputs as −1 and +1, 0 becoming +1."""
    outputs = np.asarray(h, dtype=np.float64)
    shape = "(n_samples,)" if n_dimensions == 1 else "(n_samples, n_columns) with at least one column"
    if outputs.ndim != n_dimensions or (n_dimensions == 2 and outputs.shape[1] == 0):
        raise ValueError(f"h must have shape {shape}; got shape {outputs.shape}")
    if np.isnan(outputs).any():
        raise ValueError("h must not contain NaN, which has no sign")
    return np.where(outputs >= 0.0, 1, -1).astype(np.int8)
