"""Dual variables of one-vs-all certificates: sparse rows of α, and the lower bounds that they give on any rows.

    D(α) = Σ_i α_i − Σ_i α_i² / (4 c_i) − ½‖Σ_i α_i y_i x_i‖² [− ½ (Σ_i α_i y_i)²]        α_i ≥ 0

for the squared hinge with c_i = C · row_weight_i · factor. The last term belongs to a regularised intercept; with a
free one Σ_i α_i y_i = 0 must hold. An α of the certificate satisfies this up to rounding to float32, and loses it when
rows are removed: the heavier side is scaled down until both are equal, as the certificate does. α = 0 is feasible too,
so no bound is below zero. Rows without an entry have α_i = 0: rows that are new leave a bound as it is.
"""

from __future__ import annotations

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
        Lower bounds on the optima. Memory: 16 bytes for each dual variable, and a float64 for each feature.

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
    X, values = problem.X, np.zeros(problem.n_labels)
    rows, indptr = (np.asarray(part, dtype=np.int64) for part in (duals.indices, duals.indptr))
    labels = problem.positive_rows, problem.positive_indptr, problem.row_weight
    factors = problem.positive_factor, problem.negative_factor
    bias = problem.bias_value, problem.bias_penalty
    of = *labels, *factors, problem.C, *bias, rows, indptr, duals.data.astype(np.float64), values
    if sp.issparse(X):
        _core.dual_values_csr(X.data, X.indices, X.indptr, X.shape[1], *of)
    else:
        _core.dual_values_dense(X, *of)
    return values
