"""What workers need to know of a one-vs-all problem: the store of its labels, and the options of its solver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.data.store import write_store
from widemargin.solvers.dense_one_vs_all import block_width

__all__ = ["part_options", "plain_value", "write_label_store"]

SAME_NAMES = ("C", "loss", "fit_intercept", "regularize_intercept", "tol", "gap_tol", "prune", "max_iter", "init")


def write_label_store(folder: Path, Y: Any, factors: tuple[Any, Any]) -> None:
    """A store whose X has the rows of each label; its Y, where there are any, the factors of both sides.

    Parameters
    ----------
    folder : Path
        Where to.
    Y : CSR indicator of shape (n_samples, n_labels)
        The labels.
    factors : tuple of two arrays of shape (n_labels,) or None
        Of the rows with, and without, each label; None is all ones.
    """
    columns = sp.csc_array(Y, copy=True)
    columns.eliminate_zeros()
    columns.sum_duplicates()
    ones = np.ones(columns.nnz, dtype=np.int8)
    rows = sp.csr_array((ones, columns.indices, columns.indptr), shape=columns.shape[::-1])
    both = None
    if any(part is not None for part in factors):
        n_labels = columns.shape[1]
        both = np.column_stack([np.ones(n_labels) if part is None else part for part in factors]).astype(np.float64)
    write_store(folder, rows, both)


def part_options(estimator: Any, X: Any, n_labels: int, area_mb: float) -> tuple[str, dict[str, Any]]:
    """The solver of an estimator's labels and its options, as a `PartSolver` takes them: JSON values."""
    name = estimator._solver_name(X, n_labels, area_mb)
    solver = "logistic" if name == "fast" and estimator.loss == "logistic" else name
    options = {key: getattr(estimator, key) for key in (*SAME_NAMES, "init_params")}
    options |= {"memory_limit_mb": area_mb, "polish": estimator._is_polished(X, n_labels), "width": None}
    if solver == "dense":
        options["width"] = block_width(n_labels, X.shape[0], X.shape[1], area_mb)
    plain: dict[str, Any] = json.loads(json.dumps(options, default=plain_value))
    return solver, plain


def plain_value(value: Any) -> Any:
    """A NumPy number as Python's own, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not a JSON value")
