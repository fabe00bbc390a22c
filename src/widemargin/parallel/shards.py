"""The task of a training: solve a range of labels, write them to a file. Pure and idempotent, run by any engine.

    solve_shard(store, (first, last), params, out)

maps the rows and the positives of its labels from stores, solves them to the bytes that they have in any other split of
the labels, and writes a temporary file that is renamed. Every process keeps the solver of one training, with its copy
of the rows, from task to task; one task at a time uses it, on all the threads that the process has. Memory: the pages
of the stores in use, the solver, and the weights of one shard, whatever the number of labels.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from widemargin import _core
from widemargin._memory import peak_bytes
from widemargin.data.store import open_store
from widemargin.exceptions import WidemarginError
from widemargin.parallel import copies
from widemargin.parallel.shard_files import pack_shard, shard_arrays, write_shard
from widemargin.solvers.label_parts import LabelPart, PartSolver, SharedChoices
from widemargin.solvers.result import Callback, Progress

__all__ = ["find_choices", "peak_memory_mb", "release_solver", "sample_labels", "solve_shard"]

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
