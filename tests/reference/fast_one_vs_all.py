"""Specification of the parts of the fast one-vs-all solver, in plain NumPy.

    row store     rows by length and then by their rarest column, columns by descending frequency, both stable
    local problem min over (w, b) of the objective on a set of rows
    certificate   after an exact bias step: P of the weights and of the pruned weights, D, and ‖∇f‖ over all rows

The kernels work in float32 and see only some of the rows; here everything is dense, in float64 and over all rows. The
batch pass is in packed_rows.py. Memory: n_samples scores. Twins in cpp/one_vs_all: row_store.hpp,
local_problem.hpp, sparse_certificate.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.binary_certificate import dual_bound, optimal_shift
from reference.binary_objective import BinaryObjective, BinaryProblem
from reference.newton import NewtonRule, newton_cg
from widemargin.problems.losses import Floats

__all__ = ["CertifiedWeights", "certify_weights", "solve_local", "store_order"]

MAX_ITER = 1000


def store_order(X: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the rows of X ordered by length and rarest column, and its columns by descending frequency; both stable.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows, columns = store_order(sp.csr_array([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0]]))
    >>> rows.tolist(), columns.tolist()
    ([1, 0], [1, 0, 2])
    """
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    columns = np.argsort(-frequency, kind="stable").astype(np.int64)
    rank = np.argsort(columns)
    rarest = [
        max(rank[X.indices[start:end]], default=0) for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    rows = np.lexsort((rarest, np.diff(X.indptr))).astype(np.int64)
    return rows, columns


def solve_local(problem: BinaryProblem, rows: npt.NDArray[np.int64], target: float) -> Floats:
    """Return (w, b), shape (n_features + 1,), that minimises the objective on `rows` to ‖gradient‖ ≤ target.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> solve_local(problem, np.array([0, 1]), 1e-9).round(6).tolist()
    [0.666667, -0.666667, 0.0]
    """
    part = replace(problem, X=problem.X[rows], y=problem.y[rows], c=problem.c[rows])
    objective = BinaryObjective(part, np.zeros(problem.X.shape[1] + 1))
    newton_cg(objective, NewtonRule(target, 1.0, np.inf, 0.0, MAX_ITER), lambda: 0.0, lambda state: None)
    return objective.v


@dataclass(frozen=True)
class CertifiedWeights:
    """Bounds of stored weights over all rows.

    Examples
    --------
    >>> CertifiedWeights(0.0, 2.0, 1.5, 1.0, 0.1).primal
    2.0
    """

    intercept: float  # moved to its optimum if it is free
    primal: float  # objective after pruning
    primal_before_pruning: float
    dual: float  # lower bound on the optimum
    gradient_norm: float  # before pruning


def certify_weights(problem: BinaryProblem, w: Floats, intercept: float, prune: float) -> CertifiedWeights:
    """Move a free intercept to its optimum, and bound the optimum from both sides over all rows.

    `primal` leaves out weights below `prune`.

    Examples
    --------
    >>> from reference.binary_objective import two_rows
    >>> problem = two_rows()
    >>> round(certify_weights(problem, np.array([2 / 3, -2 / 3]), 0.5, 0.0).primal, 6)
    0.666667
    """
    z = np.asarray(problem.X @ w) + problem.bias_value * intercept
    if problem.free_intercept:
        intercept = float(np.float32(intercept + optimal_shift(problem, z)))
    objective = BinaryObjective(problem, np.append(w, intercept))
    gradient = objective.gradient()
    kept = BinaryObjective(problem, np.append(np.where(np.abs(w) < prune, 0.0, w), intercept))
    return CertifiedWeights(
        intercept,
        kept.value(),
        objective.value(),
        dual_bound(problem, objective.z),
        float(np.sqrt(gradient @ gradient)),
    )
