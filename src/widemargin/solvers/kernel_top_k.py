"""Kernel top-k multiclass SVM by dual coordinate ascent, one row a block, with cached scores.

minimise  ½⟨A, KA⟩ + Σ_i C_i φ(z_i),      z_ij = 1 + s_ij − s_{i,y_i} for the wrong classes j,   S = KA
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.reference.kernel_top_k import ascend, bounds
from widemargin.reference.top_k_ascent import signed_duals
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status

__all__ = ["solve_kernel_top_k"]


def solve_kernel_top_k(
    kernel: TrainingKernel | PrecomputedKernel,
    y: npt.NDArray[np.int64],
    n_classes: int,
    loss: TopKHinge,
    costs: npt.NDArray[np.float64],
    *,
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 1000,
    seed: int = 0,
    n_threads: int = 1,
    start: Any = None,
    callback: Callback | None = None,
    time_limit: float | None = None,
    cache_size_mb: float = 512.0,
) -> SolverResult:
    """Train, and certify what is returned (for now by the NumPy specification)."""
    began = time.monotonic()
    K = kernel.columns(slice(None)) + bias**2
    x = np.zeros((len(y), n_classes)) if start is None else np.asarray(start.todense(), dtype=np.float64)
    n_iter, reached = ascend(K, y, x, costs, loss, tol=tol, max_iter=max_iter, rng=np.random.default_rng(seed))
    primal, dual = bounds(K, y, x, costs, loss)
    at_zero = float(costs @ loss.value(np.ones((len(y), n_classes - 1))))
    if callback is not None:
        callback(Progress(n_iter, max_iter, time.monotonic() - began, primal, dual))
    return SolverResult(
        coef=None,
        intercept=bias**2 * signed_duals(x, y).sum(axis=0),
        dual=sp.csr_array(x),
        certificate=Certificate(primal, dual, at_zero, primal),
        history=History({"iteration": np.array([n_iter]), "primal": np.array([primal]), "dual": np.array([dual])}),
        n_iter=np.array([n_iter]),
        status=Status.CONVERGED if reached else Status.MAX_ITER,
    )
