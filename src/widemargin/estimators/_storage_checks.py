"""Checks of what a model folder says of itself, before a model is made of it.

`read_model` has checked that files are what the description says: types, shapes, hashes, CSR structure, finite numbers.
Here is checked what these mean: counts that are counts, vectors where vectors are due, labels that are all different.
Each function returns the value in the form that the estimators use, or raises a ValueError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.certificate import Certificate

__all__ = [
    "check_certificate",
    "check_kind",
    "checked_classes",
    "checked_count",
    "checked_matrix",
    "checked_parameters",
    "checked_tuning",
    "checked_vector",
]

KINDS = ("binary", "multiclass", "multilabel")
LARGEST_COUNT = 2**62
TUNING_KEYS = {"params", "tried", "metric", "folds", "rows", "best", "notes"}
# What `classes_` of a fitted model can be; any other name could make NumPy allocate or interpret at will.
CLASS_TYPES = {
    "str", "object", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
}  # fmt: skip


def checked_count(value: Any, name: str, least: int = 0) -> int:
    """A whole number, not a truth value."""
    if type(value) is not int or not least <= value < LARGEST_COUNT:
        raise ValueError(f"{name} is {value!r:.50}, not a whole number from {least}")
    return value


def checked_vector(array: Any, name: str, kinds: str = "f", length: int | None = None) -> Any:
    """A dense array of one dimension of these kinds of numbers."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is not a vector of numbers of the right type")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} has {len(array)} entries, not {length}")
    return array


def checked_matrix(matrix: Any, name: str, shape: tuple[int, int]) -> Any:
    """A dense or CSR matrix of float32 or float64 of this shape."""
    if not isinstance(matrix, np.ndarray) and not sp.issparse(matrix):
        raise ValueError(f"{name} is missing")
    if matrix.shape != shape or matrix.dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} is {matrix.dtype} of shape {matrix.shape}, which does not fit {shape}")
    return matrix


def check_kind(kind: Any, n_classes: int) -> None:
    """Two classes are binary, and three or more multiclass, unless rows have several labels."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the kind of targets is {kind!r:.50}, not one of {', '.join(KINDS)}")
    if kind != "multilabel" and (n_classes < 2 or (kind == "binary") != (n_classes == 2)):
        raise ValueError(f"{n_classes} classes are not {kind}")


def checked_classes(labels: Sequence[Any] | None, dtype: Any, n_classes: int) -> npt.NDArray[Any]:
    """Label names in the type they had, all different; column numbers when none were stored."""
    if not isinstance(dtype, str) or dtype not in CLASS_TYPES:
        raise ValueError(f"labels of the type {dtype!r:.50} are not known")
    if labels is None:
        classes: npt.NDArray[Any] = np.arange(n_classes).astype(dtype)
    elif len(labels) != n_classes:
        raise ValueError(f"{len(labels)} label names for {n_classes} labels")
    else:
        classes = np.array(labels, dtype=dtype)
    if len(set(classes.tolist())) != n_classes:
        raise ValueError("two labels have the same name")
    return classes


def checked_parameters(stored: Any) -> Mapping[str, Any]:
    """Parameters by name."""
    if not isinstance(stored, Mapping) or not all(isinstance(name, str) for name in stored):
        raise ValueError(f"parameters are {stored!r:.50}, not values by name")
    return stored


def check_certificate(certificate: Certificate) -> None:
    """Bounds that are numbers, and a worst problem that is one of those counted."""
    bounds = [certificate.primal, certificate.dual, certificate.primal_at_zero, certificate.primal_before_pruning]
    n_problems = checked_count(certificate.n_problems, "the number of problems", 1)
    worst = certificate.worst
    if worst is not None:
        bounds += [worst.primal, worst.dual, worst.relative_gap]
        if checked_count(worst.index, "the worst problem") >= n_problems:
            raise ValueError(f"problem {worst.index} of {n_problems} does not exist")
    if any(isinstance(bound, bool) or not isinstance(bound, int | float) for bound in bounds):
        raise ValueError("a bound of the certificate is not a number")


def checked_tuning(stored: Any) -> dict[str, Any]:
    """What `Tuning.to_dict` gave: names, values with their quality, and which were chosen."""
    params, tried, notes = (stored[name] for name in ("params", "tried", "notes"))
    words = [*params, *notes, stored["metric"]]
    if set(stored) != TUNING_KEYS or not all(isinstance(word, str) for word in words) or not params or not tried:
        raise ValueError("the values tried in tuning are not in the form that is stored")
    for row in tried:
        numbers = [*row["values"].values(), *(row[name] for name in ("mean", "low", "high") if row[name] is not None)]
        if set(row) != {"values", "mean", "low", "high"} or list(row["values"]) != params:
            raise ValueError("values tried in tuning lack a name")
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            raise ValueError("a value tried in tuning is not a number")
    if checked_count(stored["best"], "the best of the values tried") >= len(tried):
        raise ValueError(f"the best of {len(tried)} values tried is number {stored['best']}")
    if tried[stored["best"]]["mean"] is None:
        raise ValueError("the best of the values tried was not measured")
    checked_count(stored["folds"], "the number of folds", 1)
    checked_count(stored["rows"], "the number of held-out rows", 1)
    return dict(stored)
