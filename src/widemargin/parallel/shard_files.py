"""A shard: the solved labels of a range in one `.npz` file, and the shards of a model put together as a stream.

    data, indices, lengths        pruned weights, row after row (or coef, dense)
    intercept, bounds, n_iter, ending        one row a label; `ending` numbers the reasons of `ENDINGS`
    records                       what the history is made of, where the solver gives it

Nothing is compressed, nothing is pickled, and every member has a checksum. Memory: one shard.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.data.files import atomic_file
from widemargin.exceptions import DataFormatError
from widemargin.reference.one_vs_all import BOUND_COLUMNS, RECORD_COLUMNS
from widemargin.solvers._one_vs_all_run import OneVsAllResult
from widemargin.solvers.result import Status

__all__ = ["ENDINGS", "Arrays", "pack_shard", "read_member", "read_shard", "shard_arrays", "write_shard"]

ENDINGS = (Status.CONVERGED, Status.MAX_ITER, Status.NOT_ATTAINED)
"""How a finished label may end."""

Arrays = dict[str, npt.NDArray[Any]]
SECONDS = RECORD_COLUMNS.index("seconds")


def shard_arrays(result: OneVsAllResult) -> Arrays | None:
    """The arrays of a shard; None unless every label is finished."""
    known = {status.value: number for number, status in enumerate(ENDINGS)}
    if not set(np.unique(result.status_by_label)) <= set(known) or result.bounds_by_label is None:
        return None
    arrays: Arrays = {
        "intercept": result.intercept,
        "bounds": result.bounds_by_label,
        "n_iter": result.n_iter,
        "ending": np.array([known[value] for value in result.status_by_label], dtype=np.uint8),
    }
    if sp.issparse(result.coef):
        arrays |= {"data": result.coef.data, "indices": result.coef.indices, "lengths": np.diff(result.coef.indptr)}
    else:
        arrays["coef"] = result.coef
    if result.records is not None:
        records = result.records.copy()
        records[:, SECONDS] = 0.0  # a shard that is solved twice is the same twice
        arrays["records"] = records
    return arrays


def pack_shard(arrays: Mapping[str, Any]) -> bytes:
    """The file's bytes, for a worker that cannot write where the driver reads."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # numbers only: nothing is pickled
    return buffer.getvalue()


def write_shard(path: Path, arrays: Mapping[str, Any] | bytes) -> None:
    """Write a shard that appears whole or not at all."""
    with atomic_file(path) as file:
        if isinstance(arrays, bytes):
            file.write(arrays)
        else:
            np.savez(file, **arrays)


def read_shard(path: Path, n_labels: int, n_features: int) -> Arrays:
    """The arrays of a shard, checked; a DataFormatError that says what to do when it is damaged."""
    try:
        with open(path, "rb") as file:
            arrays = _load(file)
        problem = _problem(arrays, n_labels, n_features)
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        problem = str(error)
    if problem is not None:
        raise DataFormatError(
            f"the file of trained labels is damaged ({problem})",
            path=str(path),
            remedy="remove it and start the training again: only its labels are trained anew",
        )
    return arrays


def read_member(path: Path, name: str) -> npt.NDArray[Any]:
    """One array of a shard that was checked before."""
    with np.load(path, allow_pickle=False) as archive:
        member: npt.NDArray[Any] = archive[name]
    return member


def _load(file: BinaryIO) -> Arrays:
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _problem(arrays: Arrays, n_labels: int, n_features: int) -> str | None:
    shapes = {"intercept": (n_labels,), "bounds": (n_labels, len(BOUND_COLUMNS)), "n_iter": (n_labels,)}
    shapes |= {"ending": (n_labels,)}
    if "coef" in arrays:
        shapes["coef"] = (n_labels, n_features)
    else:
        shapes["lengths"] = (n_labels,)
        total = (int(arrays["lengths"].sum()),)
        shapes |= {"data": total, "indices": total}
        indices = arrays["indices"]
        if len(indices) and not (indices.min() >= 0 and indices.max() < n_features):
            return "an index is out of range"
    wrong = [name for name, shape in shapes.items() if arrays[name].shape != shape]
    if wrong:
        return f"{wrong[0]} has the shape {arrays[wrong[0]].shape}"
    if len(arrays["ending"]) and int(arrays["ending"].max()) >= len(ENDINGS):
        return "an ending is unknown"
    records = arrays.get("records")
    if records is not None and (records.ndim != 2 or records.shape[1] != len(RECORD_COLUMNS)):
        return f"records have the shape {records.shape}"
    return None
