"""Dual variables of one-vs-all certificates: sparse rows of α, and the lower bounds that they give on any rows.

    D(α) = Σ_i α_i − Σ_i α_i² / (4 c_i) − ½‖Σ_i α_i y_i x_i‖² [− ½ (Σ_i α_i y_i)²]        α_i ≥ 0

for the squared hinge with c_i = C · row_weight_i · factor. The last term belongs to a regularised intercept; with a
free one Σ_i α_i y_i = 0 must hold. An α of the certificate satisfies this up to rounding to float32, and loses it when
rows are removed: the heavier side is scaled down until both are equal, as the certificate does. α = 0 is feasible too,
so no bound is below zero. Rows without an entry have α_i = 0: rows that are new leave a bound as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core

if TYPE_CHECKING:
    from widemargin.solvers.one_vs_all.problem import Problem

__all__ = ["dual_matrix", "dual_values", "in_all_rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_VALUES = 200_000  # of the rows that the dual variables of a block of labels multiply: about 10 MB
# A label with fewer terms than features / 16 gets no vector of all features; a guess, not measured.


def dual_matrix(lengths: Ints, rows: npt.NDArray[Any], values: npt.NDArray[Any], n_rows: int) -> sp.csr_array:
    """The dual variables of labels, one after another, as a CSR array of shape (n_labels, n_rows); nothing is copied.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.duals import dual_matrix
    >>> dual_matrix(np.array([1, 0]), np.array([2], np.int32), np.array([0.5], np.float32), 3).toarray().tolist()
    [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]
    """
    index_dtype = np.int32 if len(values) <= np.iinfo(np.int32).max else np.int64
    duals = sp.csr_array((len(lengths), n_rows), dtype=np.float32)
    duals.data, duals.indices = values, rows.astype(index_dtype, copy=False)
    duals.indptr = np.append(0, np.cumsum(lengths)).astype(index_dtype)
    return duals


def in_all_rows(duals: Any, weight: npt.NDArray[Any] | None) -> Any:
    """Dual variables of the rows of positive weight, which are those of a `Problem`, with a column for every row.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.solvers.one_vs_all.duals import in_all_rows
    >>> in_all_rows(sp.csr_array(np.array([[1.0, 2.0]])), np.array([1.0, 0.0, 0.5])).toarray().tolist()
    [[1.0, 0.0, 2.0]]
    """
    if weight is None or duals.shape[1] == len(weight):
        return duals
    indices = np.flatnonzero(weight > 0.0).astype(duals.indices.dtype)[duals.indices]
    return sp.csr_array((duals.data, indices, duals.indptr), shape=(duals.shape[0], len(weight)))


def dual_values(problem: Problem, duals: Any) -> Floats:
    """D of every label at the feasible α nearest to the given one, or zero if that is larger.

    Parameters
    ----------
    problem : Problem
        Rows, labels, costs and the kind of intercept; the loss must be the squared hinge.
    duals : CSR array of shape (n_labels, n_rows)
        α ≥ 0; its columns are the rows of `problem.X`.

    Returns
    -------
    ndarray of float64 of shape (n_labels,)
        Lower bounds on the optima. Memory: about 10 MB beside the result, or the rows of one label if they take more.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.duals import dual_values
    >>> from widemargin.solvers.one_vs_all.plan import make_plan, solve
    >>> from widemargin.solvers.one_vs_all.problem import Problem
    >>> problem = Problem.of(np.array([[1.0, 0.1], [-1.0, 0.1], [-3.0, 0.0]]), np.array([[1], [0], [0]]))
    >>> result = solve(make_plan(problem, keep_duals=True))
    >>> result.duals.indices.tolist(), dual_values(problem, result.duals).round(6).tolist()
    ([0, 1], [0.4])
    """
    if problem.loss != "squared_hinge":
        raise ValueError(f"dual variables are kept for loss='squared_hinge' only, not for loss={problem.loss!r}")
    if duals.shape != (problem.n_labels, problem.X.shape[0]):
        shape = (problem.n_labels, problem.X.shape[0])
        raise ValueError(f"the dual variables must have the shape {shape} of the labels and rows, not {duals.shape}")
    if not duals.has_sorted_indices:
        duals = duals.sorted_indices()
    values = np.zeros(problem.n_labels)
    for first, last in _label_blocks(problem.X, duals):
        values[first:last] = _block_values(problem, duals, first, last)
    return values


def _label_blocks(X: Any, duals: Any) -> Iterator[tuple[int, int]]:
    """Ranges of labels whose products with the rows have about BLOCK_VALUES terms at most, or a single label."""
    # Of rows of average length: adding up the lengths of the rows in use took 0.7 of 6 CPU s of an update.
    mean_length = X.nnz / max(1, X.shape[0]) if sp.issparse(X) else X.shape[1]
    running = mean_length * duals.indptr
    first = 0
    while first < duals.shape[0]:
        last = max(first + 1, int(np.searchsorted(running, running[first] + BLOCK_VALUES, side="right")) - 1)
        yield first, last
        first = last


def _block_values(problem: Problem, duals: Any, first: int, last: int) -> Floats:
    """D of labels first … last − 1."""
    n_labels, n_rows = last - first, problem.X.shape[0]
    indptr = np.asarray(duals.indptr[first : last + 1], dtype=np.int64)
    rows = np.asarray(duals.indices[indptr[0] : indptr[-1]], dtype=np.int64)
    label = np.repeat(np.arange(n_labels), np.diff(indptr))
    positive = _is_positive(problem, first, last, label * n_rows + rows)
    factor = np.where(positive, problem.positive_factor[first + label], problem.negative_factor[first + label])
    cost = problem.C * problem.row_weight[rows] * factor
    alpha = np.where(cost > 0.0, np.asarray(duals.data[indptr[0] : indptr[-1]], dtype=np.float64), 0.0)
    filled = np.flatnonzero(np.diff(indptr))

    def by_label(terms: Floats) -> Floats:
        sums = np.zeros(n_labels)
        if len(filled):
            sums[filled] = np.add.reduceat(terms, indptr[filled] - indptr[0])
        return sums

    if problem.bias_value != 0.0 and problem.bias_penalty == 0.0:
        sides = by_label(np.where(positive, alpha, 0.0)), by_label(np.where(positive, 0.0, alpha))
        smaller = np.minimum(*sides)
        shares = [np.divide(smaller, side, out=np.zeros(n_labels), where=side > 0.0) for side in sides]
        alpha = alpha * np.where(positive, shares[0][label], shares[1][label])
    signed = np.where(positive, alpha, -alpha)
    squares = _squared_norms(problem.X, rows, indptr - indptr[0], signed)
    if problem.bias_value != 0.0 and problem.bias_penalty != 0.0:
        squares += np.square(by_label(signed))
    conjugates = by_label(alpha - np.divide(alpha**2, 4.0 * cost, out=np.zeros_like(alpha), where=cost > 0.0))
    values: Floats = np.maximum(0.0, conjugates - 0.5 * squares)
    return values


def _is_positive(problem: Problem, first: int, last: int, places: Ints) -> npt.NDArray[np.bool_]:
    """Whether label · n_rows + row, labels counted from `first` and in ascending order, are positives."""
    indptr = np.asarray(problem.positive_indptr[first : last + 1], dtype=np.int64)
    rows = np.asarray(problem.positive_rows[indptr[0] : indptr[-1]], dtype=np.int64)
    positives = np.repeat(np.arange(last - first), np.diff(indptr)) * problem.X.shape[0] + rows
    found = np.zeros(len(places), dtype=bool)
    # Positives are few: each is looked for among the places, not the other way round.
    place = np.searchsorted(places, positives)
    inside = place < len(places)
    place, positives = place[inside], positives[inside]
    found[place[places[place] == positives]] = True
    return found


def _squared_norms(X: Any, rows: Ints, indptr: Ints, signed: Floats) -> Floats:
    """‖Σ_i α_i y_i x_i‖² of each label, in float64.

    In the core: products of sparse matrices took ten times as long.
    """
    norms = np.zeros(len(indptr) - 1)
    if sp.issparse(X):
        _core.dual_norms_csr(X.data, X.indices, X.indptr, X.shape[1], rows, indptr, signed, norms)
    else:
        _core.dual_norms_dense(X, rows, indptr, signed, norms)
    return norms
