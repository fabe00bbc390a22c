"""The task of a training: solve a range of labels, write them to a file. Pure and idempotent, run by any engine.

    solve_shard(store, (first, last), params, out)

maps the rows and the positives of its labels from stores, solves them to the bytes that they have in any other split of
the labels, and writes a temporary file that is renamed. Every process keeps the solver of one training, with its copy
of the rows, from task to task; one task at a time uses it, on all the threads that the process has. Memory: the pages
of the stores in use, the solver, and the weights of one shard, whatever the number of labels.

A shard: the solved labels of a range in one `.npz` file, and the shards of a model put together as a stream.

    data, indices, lengths        pruned weights, row after row (or coef, dense)
    intercept, bounds, n_iter, ending        one row a label; `ending` numbers the reasons of `ENDINGS`
    records                       what the history is made of, where the solver gives it

Nothing is compressed, nothing is pickled, and every member has a checksum. Memory: one shard.

Shards put together to one result, whose weights stay on disk until they are written to the model, part after part.

The result is that of a fit in one piece, bit for bit: sums over labels are taken over all labels in their order.
Memory: 80 bytes a label, and one shard.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.data.store import open_store
from widemargin.exceptions import DataFormatError, WidemarginError
from widemargin.files import atomic_file
from widemargin.model_io.write import JoinedArray, JoinedCsr
from widemargin.parallel import cluster as copies
from widemargin.parallel.executors import peak_bytes
from widemargin.reference.one_vs_all import BOUND_COLUMNS, RECORD_COLUMNS
from widemargin.solvers.one_vs_all.fast import frequency_history
from widemargin.solvers.one_vs_all.label_parts import LabelPart, PartSolver, SharedChoices
from widemargin.solvers.one_vs_all.newton import HistoryTable, OneVsAllResult, frequency_bin, outcome_of
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = [
    "ENDINGS",
    "Arrays",
    "find_choices",
    "merge_shards",
    "pack_shard",
    "peak_memory_mb",
    "read_member",
    "read_shard",
    "release_solver",
    "sample_labels",
    "shard_arrays",
    "solve_shard",
    "weights_of",
    "write_shard",
]

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


_LOCK = threading.Lock()
_SOLVERS: dict[str, tuple[PartSolver, Any]] = {}  # of one training: its solver and its labels


def solve_shard(
    store: str, label_range: tuple[int, int], params: dict[str, Any], out: str, callback: Callback | None = None
) -> dict[str, Any]:
    """Solve a range of labels and write their weights.

    Parameters
    ----------
    store : str
        Folder of the store whose X are the rows, as they are trained on.
    label_range : tuple of int
        The first label and the one after the last.
    params : dict of JSON values
        `labels` (folder of the store with the rows of each label), `solver`, `options`, `choices`, `n_threads`,
        `instruction_set`, `memory_limit_mb` (None: not looked at).
    out : str
        The file to write; where its folder is not there, as on a machine without the shared file system, the file is
        returned instead.
    callback : callable, optional
        Of the solver, for a task that runs in the process of its caller; a true answer drops the shard.

    Returns
    -------
    dict
        `finished`: whether the shard is complete; `content`: its bytes, or None where they are in `out`;
        `n_weights`, `peak_memory_mb`.
    """
    pin_instruction_set(params["instruction_set"])
    first, last = label_range
    with _LOCK:
        solver, labels = _opened(store, params)
        choices = params["choices"]
        part = _part(labels, first, last)
        shared = None if choices is None else SharedChoices(**choices)
        result = solver.solve(part, shared, _watching_memory(params["memory_limit_mb"], callback))
    arrays = shard_arrays(result)
    done: dict[str, Any] = {
        "finished": arrays is not None,
        "content": None,
        "n_weights": 0,
        "peak_memory_mb": peak_memory_mb(),
    }
    if arrays is None:
        return done
    check_memory(params["memory_limit_mb"])
    if copies.is_visible(os.path.dirname(out)):
        write_shard(Path(out), arrays)
    else:
        done["content"] = pack_shard(arrays)
    done["n_weights"] = int(arrays["coef"].size if "coef" in arrays else arrays["data"].size)
    return done


def find_choices(store: str, params: dict[str, Any], stop: Callable[[], bool] | None = None) -> dict[str, Any] | None:
    """What the fast solver decides on all labels together, as JSON values; None when `stop` said so before."""
    pin_instruction_set(params["instruction_set"])
    with _LOCK:
        solver, labels = _opened(store, params)
        choices = solver.find_choices(_part(labels, 0, labels.X.shape[0]), stop)
    return None if choices is None else vars(choices).copy()


def sample_labels(
    store: str, numbers: list[int], params: dict[str, Any], callback: Callback | None = None
) -> dict[str, float]:
    """CPU and wall-clock seconds, and weights, of some labels: what an estimate is made from."""
    pin_instruction_set(params["instruction_set"])
    with _LOCK:
        solver, labels = _opened(store, params)
        part = _part_of(labels, np.array(numbers))
        choices = params["choices"]
        shared = None if choices is None else SharedChoices(**(choices | {"pilot": []}))
        wall, cpu = time.perf_counter(), time.process_time()
        result = solver.solve(part, shared, _watching_memory(params["memory_limit_mb"], callback))
    n_weights = result.coef.size  # of a CSR array the stored ones
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    return seconds | {"n_weights": float(n_weights), "peak_memory_mb": peak_memory_mb()}


def release_solver() -> None:
    """Give back the copy of the rows that this process keeps for its next task."""
    with _LOCK:
        _SOLVERS.clear()


def pin_instruction_set(name: str) -> None:
    """Use the instruction set that the training began with; an error on a machine that does not have it."""
    if _core.choose_instruction_set() == name:
        return
    os.environ["WIDEMARGIN_ISA"] = name
    try:
        _core.choose_instruction_set()
    except ValueError as error:
        del os.environ["WIDEMARGIN_ISA"]
        raise WidemarginError(
            f"the training uses the instruction set {name}, which this machine does not have ({error}); start it anew "
            "with WIDEMARGIN_ISA set to one that all machines have, such as baseline"
        ) from error


def peak_memory_mb() -> float:
    """The largest resident memory of this process so far, in MB of 2²⁰ bytes."""
    return peak_bytes() / 2**20


def check_memory(limit_mb: float | None) -> None:
    """An error once this process needed more than it may."""
    peak = peak_memory_mb()
    if limit_mb is not None and peak > limit_mb:
        raise MemoryError(
            f"a worker needed {peak:,.0f} MB, above the memory limit of {limit_mb:,.0f} MB; raise the limit, or use "
            "fewer threads a worker; labels that are done in shards are kept"
        )


def _watching_memory(limit_mb: float | None, callback: Callback | None) -> Callback | None:
    """A callback that also looks at the memory, about twice a second."""
    if limit_mb is None:
        return callback

    def watch(progress: Progress) -> bool:
        check_memory(limit_mb)
        return callback is not None and callback(progress)

    return watch


def _opened(store: str, params: dict[str, Any]) -> tuple[PartSolver, Any]:
    """The solver of a training and the store of its labels, kept for the next task."""
    shared = {name: params[name] for name in ("labels", "solver", "options", "n_threads", "instruction_set")}
    key = json.dumps([store, shared], sort_keys=True)
    if key not in _SOLVERS:
        _SOLVERS.clear()
        rows, labels = open_store(copies.find_folder(store)), open_store(copies.find_folder(params["labels"]))
        solver = PartSolver(rows.X, params["solver"], params["options"], params["n_threads"] or _threads_here())
        _SOLVERS[key] = solver, labels
    return _SOLVERS[key]


def _threads_here() -> int:
    """Threads of a worker of the cluster, one elsewhere."""
    worker = sys.modules.get("distributed.worker")
    if worker is None:
        return 1
    try:
        return int(worker.get_worker().state.nthreads)
    except ValueError:
        return 1


def _part(labels: Any, first: int, last: int) -> LabelPart:
    """The rows of labels first … last − 1, read from the map."""
    indptr = np.asarray(labels.X.indptr[first : last + 1], dtype=np.int64)
    rows = np.asarray(labels.X.indices[indptr[0] : indptr[-1]], dtype=np.int64)
    part = LabelPart.plain(first, rows, indptr - indptr[0])
    if labels.Y is None:
        return part
    factors = np.asarray(labels.Y[first:last], dtype=np.float64)
    columns = np.ascontiguousarray(factors[:, 0]), np.ascontiguousarray(factors[:, 1])
    return LabelPart(first, part.positive_rows, part.positive_indptr, *columns)


def _part_of(labels: Any, numbers: Any) -> LabelPart:
    """Some labels, as if they followed each other."""
    parts = [_part(labels, int(number), int(number) + 1) for number in numbers]
    lengths = [len(part.positive_rows) for part in parts]
    return LabelPart(
        0,
        np.concatenate([part.positive_rows for part in parts]),
        np.append(0, np.cumsum(lengths)).astype(np.int64),
        np.concatenate([part.positive_factor for part in parts]),
        np.concatenate([part.negative_factor for part in parts]),
    )


LABEL_ARRAYS = ("intercept", "bounds", "n_iter", "ending")


@dataclass(frozen=True)
class _Light:
    """What is kept in memory of the shards."""

    arrays: Arrays
    lengths: npt.NDArray[np.int64] | None  # None where weights are dense
    dtype: np.dtype[Any]
    table: HistoryTable | None


def merge_shards(
    files: Sequence[tuple[int, int, Path]], n_features: int, n_positives: npt.NDArray[np.int64]
) -> OneVsAllResult:
    """The result of all labels.

    Parameters
    ----------
    files : sequence of (first, last, path)
        The shards, in the order of their labels and without gaps.
    n_features : int
        Columns of X.
    n_positives : ndarray of shape (n_labels,)
        Positive rows of each label, for the history.

    Returns
    -------
    OneVsAllResult
        `coef` is a `JoinedArray` or a `JoinedCsr`, which can be written to a model and nothing else.
    """
    light = _read_light(files, n_features, n_positives)
    status = np.array([ending.value for ending in ENDINGS])[light.arrays["ending"]]
    return OneVsAllResult(
        coef=_joined_weights(files, light, n_features),
        intercept=light.arrays["intercept"],
        dual=None,
        history=_history(light, n_positives),
        n_iter=light.arrays["n_iter"],
        **outcome_of(light.arrays["bounds"], status, copy=False),
    )


def weights_of(result: OneVsAllResult) -> OneVsAllResult:
    """The same result with its weights in memory, CSR or dense."""
    joined = result.coef
    if isinstance(joined, JoinedArray):
        return replace(result, coef=np.concatenate(list(joined.parts())))
    coef = sp.csr_array(joined.shape, dtype=joined.data.dtype)
    coef.data = np.concatenate(list(joined.data.parts()))
    coef.indices = np.concatenate(list(joined.indices.parts())).astype(joined.indices.dtype, copy=False)
    coef.indptr = joined.indptr
    return replace(result, coef=coef)


def _read_light(files: Sequence[tuple[int, int, Path]], n_features: int, n_positives: npt.NDArray[np.int64]) -> _Light:
    """Read every shard once and check it; keep all but weights and records."""
    kept: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*LABEL_ARRAYS, "lengths")}
    bins, table = frequency_bin(n_positives), None
    dtype = np.dtype(np.float32)
    for first, last, path in files:
        arrays = read_shard(path, last - first, n_features)
        for name in kept:
            if name in arrays:
                kept[name].append(arrays[name])
        dtype = arrays["coef" if "coef" in arrays else "data"].dtype
        if "records" in arrays:
            table = table or HistoryTable()
            table.add(arrays["records"], bins[first:last])
    lengths = np.concatenate(kept["lengths"]).astype(np.int64) if kept["lengths"] else None
    return _Light({name: np.concatenate(kept[name]) for name in LABEL_ARRAYS}, lengths, dtype, table)


def _history(light: _Light, n_positives: npt.NDArray[np.int64]) -> History:
    if light.table is not None:
        return light.table.history()
    return frequency_history(n_positives, light.arrays["n_iter"], light.arrays["bounds"])


def _joined_weights(files: Sequence[tuple[int, int, Path]], light: _Light, n_features: int) -> JoinedArray | JoinedCsr:
    shape = len(light.arrays["n_iter"]), n_features
    if light.lengths is None:
        return JoinedArray(light.dtype, shape, lambda: _members(files, "coef"))
    total = int(light.lengths.sum())
    index_dtype = np.dtype(np.int32 if total <= np.iinfo(np.int32).max else np.int64)
    return JoinedCsr(
        data=JoinedArray(light.dtype, (total,), lambda: _members(files, "data")),
        indices=JoinedArray(index_dtype, (total,), lambda: _members(files, "indices")),
        indptr=np.append(0, np.cumsum(light.lengths)).astype(index_dtype),
        shape=shape,
    )


def _members(files: Sequence[tuple[int, int, Path]], name: str) -> Iterator[npt.NDArray[Any]]:
    for _, _, path in files:
        yield read_member(path, name)
