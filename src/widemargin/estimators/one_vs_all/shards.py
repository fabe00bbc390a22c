"""Ranges of labels solved by tasks on any executor: what a task is given, the file it writes, and the files together.

    solve_shard(job, (first, last), out)

maps the rows and the positives of its labels from stores, solves them to the bytes that they have in any other split of
the labels, and writes a shard in one step. Every process keeps the plan of one training, with its copy of the rows,
from task to task; one task at a time uses it, on all the threads that the process has. A shard is one `.npz` file:

    data, indices, lengths        pruned weights, row after row (or coef, dense)
    intercept, bounds, n_iter, ending        one row per label; `ending` is a place in `FINISHED`
    records                       what the history is made of, where the solver gives it

Nothing is compressed or pickled, and every member has a checksum. The merged result is that of a fit in one piece, bit
for bit: sums over labels are taken over all labels in their order. Memory: the pages of the stores in use, the solver
and the weights of one shard; merging, 80 bytes per label and one shard.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.data.store import open_store, write_store
from widemargin.exceptions import DataFormatError, WidemarginError
from widemargin.files import atomic_file
from widemargin.model_io.write import JoinedArray, JoinedCsr
from widemargin.parallel import Executor, folders, plan_shards, run_tasks, shared_folders
from widemargin.parallel.executors import check_memory
from widemargin.solvers.limits import with_deadline_of
from widemargin.solvers.one_vs_all.fast import SharedChoices, shared_choices
from widemargin.solvers.one_vs_all.newton import HistoryTable
from widemargin.solvers.one_vs_all.plan import Plan, solve
from widemargin.solvers.one_vs_all.problem import (
    BOUND_COLUMNS,
    RECORD_COLUMNS,
    OneVsAllResult,
    Problem,
    as_rows,
    frequency_bin,
    frequency_history,
)
from widemargin.solvers.result import Callback, Progress, Status

__all__ = [
    "ShardJob",
    "can_be_split",
    "find_choices",
    "merge_shards",
    "pack_shard",
    "pin_instruction_set",
    "read_shard",
    "release_solver",
    "sample_labels",
    "solve_on_workers",
    "solve_ranges",
    "solve_shard",
    "watching_memory",
    "write_labels",
    "write_shard",
]

FINISHED = (Status.CONVERGED, Status.MAX_ITER, Status.NOT_ATTAINED)
"""How a label of a shard may have ended."""
SHARDS_PER_WORKER = 4  # so that workers end at about the same time
LABEL_ARRAYS = ("intercept", "bounds", "n_iter", "ending")
STARTS_OF_MANY_LABELS = ("ovap++",)
"""Starts that take weights from other labels: such labels cannot be solved apart."""

Arrays = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]
Range = tuple[int, int]
_LOCK = threading.Lock()
_OPEN: list[tuple[ShardJob, Plan]] = []  # the training whose plan this process keeps


@dataclass(frozen=True)
class ShardJob:
    """What all tasks of a training are given: paths and small values.

    Parameters
    ----------
    rows, labels : str
        Folders of the stores with the rows, as they are trained on, and with the rows of each label.
    plan : Plan
        How labels are solved, without arrays; see `of`.
    n_threads : int or None
        Threads of a task; None for those that a worker of the cluster has, otherwise one.
    instruction_set : str
        Vector instructions that every worker must use.
    memory_limit_mb : float or None
        Bound on the memory of a worker.
    """

    rows: str
    labels: str
    plan: Plan
    n_threads: int | None
    instruction_set: str
    memory_limit_mb: float | None = None

    @classmethod
    def of(cls, plan: Plan, rows: str, labels: str, n_threads: int | None, *rest: Any) -> ShardJob:
        """The job of a plan whose rows and labels are in stores."""
        names = ("X", "positive_rows", "positive_indptr", "row_weight", "positive_factor", "negative_factor")
        nothing: dict[str, Any] = dict.fromkeys(names)
        light = replace(plan.problem, **nothing)
        return cls(rows, labels, replace(plan, problem=light, spare_cores=[]), n_threads, *rest)


def can_be_split(plan: Plan) -> bool:
    """Whether the labels are independent of each other and of anything but the rows."""
    several = plan.problem.n_labels > 1 and plan.init not in STARTS_OF_MANY_LABELS and plan.start is None
    return several and bool((plan.problem.row_weight == 1.0).all())


def write_labels(folder: Path, problem: Problem) -> None:
    """A store whose X has the rows of each label; its Y, where they are not all 1, the factors of both sides."""
    shape, n_positives = (problem.n_labels, len(problem.row_weight)), len(problem.positive_rows)
    ones = np.ones(n_positives, dtype=np.int8)
    rows = sp.csr_array((ones, problem.positive_rows, problem.positive_indptr), shape=shape)
    factors = np.column_stack([problem.positive_factor, problem.negative_factor])
    write_store(folder, rows, None if (factors == 1.0).all() else factors)


# Tasks


def solve_shard(job: ShardJob, label_range: Range, out: str, callback: Callback | None = None) -> dict[str, Any]:
    """Solve a range of labels and write their weights.

    Parameters
    ----------
    job : ShardJob
        What is trained.
    label_range : tuple of int
        The first label and the one after the last.
    out : str
        The file to write; where its folder is not there, as on a machine without the shared file system, the file is
        returned instead.
    callback : callable, optional
        The solver's callback, for a task that runs in the process of its caller; a true answer drops the shard.

    Returns
    -------
    dict
        `finished`: whether the shard is complete; `content`: its bytes, or None where they are in `out`; `n_weights`.
    """
    with _opened(job) as plan:
        result = solve(plan, label_range, watching_memory(job.memory_limit_mb, callback))
    arrays = _shard_arrays(result)
    if arrays is None:
        return {"finished": False, "content": None, "n_weights": 0}
    check_memory(job.memory_limit_mb)
    visible = folders.is_visible(os.path.dirname(out))
    if visible:
        write_shard(Path(out), arrays)
    return {"finished": True, "content": None if visible else pack_shard(arrays), "n_weights": int(result.coef.size)}


def find_choices(job: ShardJob, stop: Callable[[], bool] | None = None) -> SharedChoices | None:
    """What the fast solver decides on all labels together; None when `stop` ended the search."""
    with _opened(job) as plan:
        return shared_choices(plan, stop)


def sample_labels(job: ShardJob, numbers: list[int], callback: Callback | None = None) -> dict[str, float]:
    """Wall-clock seconds and weights of some labels: what an estimate is made from."""
    with _opened(job) as plan:
        problem, choices = plan.problem, plan.choices
        indptr = np.asarray(problem.positive_indptr)
        parts = [np.asarray(problem.positive_rows[indptr[label] : indptr[label + 1]]) for label in numbers]
        some = replace(
            problem,
            n_labels=len(numbers),
            positive_rows=np.concatenate(parts),
            positive_indptr=np.append(0, np.cumsum([len(part) for part in parts])),
            positive_factor=problem.positive_factor[numbers],
            negative_factor=problem.negative_factor[numbers],
        )
        plan = replace(plan, problem=some, choices=None if choices is None else replace(choices, pilot=[]))
        began = time.perf_counter()
        result = solve(plan, (0, len(numbers)), watching_memory(job.memory_limit_mb, callback))
    return {"seconds": time.perf_counter() - began, "n_weights": float(result.coef.size)}


def release_solver() -> None:
    """Release the copy of the rows that this process keeps for its next task."""
    with _LOCK:
        _OPEN.clear()


@contextlib.contextmanager
def _opened(job: ShardJob) -> Iterator[Plan]:
    """The plan of a training with the arrays of its stores, kept for the next task; for one task at a time."""
    pin_instruction_set(job.instruction_set)
    key = replace(job, plan=replace(job.plan, choices=None))
    with _LOCK:
        if not _OPEN or _OPEN[0][0] != key:
            _OPEN.clear()
            X, labels = (open_store(folders.find_folder(name)) for name in (job.rows, job.labels))
            factors = np.ones((labels.X.shape[0], 2)) if labels.Y is None else np.asarray(labels.Y, dtype=np.float64)
            problem = replace(
                job.plan.problem,
                X=as_rows(X.X),
                positive_rows=labels.X.indices,
                positive_indptr=labels.X.indptr,
                row_weight=np.ones(X.X.shape[0]),
                positive_factor=np.ascontiguousarray(factors[:, 0]),
                negative_factor=np.ascontiguousarray(factors[:, 1]),
            )
            n_threads = job.n_threads or _threads_here()
            _OPEN.append((key, replace(job.plan, problem=problem, n_threads=n_threads, spare_cores=[])))
        yield replace(_OPEN[0][1], choices=job.plan.choices)


def _threads_here() -> int:
    """Threads of a worker of the cluster, one elsewhere."""
    worker = sys.modules.get("distributed.worker")
    try:
        return 1 if worker is None else int(worker.get_worker().state.nthreads)
    except ValueError:
        return 1


def pin_instruction_set(name: str) -> None:
    """Use the instruction set that the training started with; an error on a machine that does not have it."""
    if _core.choose_instruction_set() == name:
        return
    os.environ["WIDEMARGIN_ISA"] = name
    try:
        _core.choose_instruction_set()
    except ValueError as error:
        del os.environ["WIDEMARGIN_ISA"]
        raise WidemarginError(
            f"the training uses the instruction set {name}, which this machine does not have ({error}); start it again "
            "with WIDEMARGIN_ISA set to one that all machines have, such as baseline"
        ) from error


def watching_memory(limit_mb: float | None, callback: Callback | None) -> Callback | None:
    """A callback that also checks the memory of this process, about twice a second."""
    if limit_mb is None:
        return callback

    def watch(progress: Progress) -> bool:
        check_memory(limit_mb)
        return callback is not None and bool(callback(progress))

    return with_deadline_of(callback, watch)


# Lists of tasks


def solve_ranges(
    job: ShardJob,
    ranges: Sequence[Range],
    file_of: Callable[[int, int], Path],
    executor: Executor,
    callback: Callback | None = None,
) -> Iterator[tuple[Range, bool]]:
    """Solve ranges of labels; yield each one, and whether its file is written, or `callback` dropped it.

    The callback of the solver is for an executor that works in this process.
    """
    function: Any = functools.partial(solve_shard, callback=callback) if executor.in_process else solve_shard
    results = run_tasks(function, [(job, (first, last), str(file_of(first, last))) for first, last in ranges], executor)
    with contextlib.closing(results):
        for number, done in results:
            if done["content"] is not None:
                write_shard(file_of(*ranges[number]), done["content"])
            yield ranges[number], done["finished"]


def solve_on_workers(plan: Plan, callback: Callback | None, executor: Executor) -> OneVsAllResult | None:
    """Solve the labels of a plan on an executor, with the result of `solve`; None when the callback asked to stop.

    Rows and labels go to stores in a temporary folder. Memory of this process: the result.
    """
    problem, n_labels = plan.problem, plan.problem.n_labels

    def file_of(first: int, last: int) -> Path:
        return folder / "shards" / f"{first}-{last}.npz"

    with tempfile.TemporaryDirectory(prefix="widemargin-fit-") as temporary:
        folder = Path(temporary)
        write_store(folder / "rows", problem.X)
        write_labels(folder / "labels", problem)
        (folder / "shards").mkdir()
        with shared_folders(executor, [folder / "rows", folder / "labels"]) as (rows, labels):
            job = ShardJob.of(plan, rows, labels, None, _core.choose_instruction_set())
            if plan.algorithm == "fast":
                ((_, choices),) = run_tasks(find_choices, [(job,)], executor)
                job = replace(job, plan=replace(job.plan, choices=choices))
            width = plan.width or 1  # shards of the dense solver consist of whole blocks
            size = -(-n_labels // (SHARDS_PER_WORKER * executor.n_workers * width)) * width
            ranges = plan_shards(n_labels, size, [])
            began, n_done = time.monotonic(), 0
            for (first, last), _ in solve_ranges(job, ranges, file_of, executor):
                n_done += last - first
                progress = Progress(n_done, n_labels, time.monotonic() - began, 0.0, 0.0)
                if callback is not None and callback(progress) and n_done < n_labels:
                    return None
        files = [(first, last, file_of(first, last)) for first, last in ranges]
        return merge_shards(files, problem.X.shape[1], np.diff(problem.positive_indptr), in_memory=True)


# Files of shards


def _shard_arrays(result: OneVsAllResult) -> Arrays | None:
    """The arrays of a shard; None unless every label is finished."""
    known = [status.value for status in FINISHED]
    if not set(np.unique(result.status_by_label)) <= set(known):
        return None
    arrays: Arrays = {
        "intercept": result.intercept,
        "bounds": result.bounds_by_label,
        "n_iter": result.n_iter,
        "ending": np.array([known.index(value) for value in result.status_by_label], dtype=np.uint8),
    }
    if sp.issparse(result.coef):
        arrays |= {"data": result.coef.data, "indices": result.coef.indices, "lengths": np.diff(result.coef.indptr)}
    else:
        arrays["coef"] = result.coef
    if result.records is not None:
        arrays["records"] = result.records.copy()
        arrays["records"][:, RECORD_COLUMNS.index("seconds")] = 0.0  # a shard that is solved twice is the same twice
    return arrays


def pack_shard(arrays: Mapping[str, Any]) -> bytes:
    """The file's bytes, for a worker that cannot write where the driver reads."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # numbers only: nothing is pickled
    return buffer.getvalue()


def write_shard(path: Path, content: Mapping[str, Any] | bytes) -> None:
    """Write the arrays, or the bytes, of a shard in one step."""
    with atomic_file(path) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            np.savez(file, **content)


def read_shard(path: Path, n_labels: int, n_features: int) -> Arrays:
    """The arrays of a shard, checked; a DataFormatError with the remedy when it is damaged."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        damage = _damage(arrays, n_labels, n_features)
    except (FileNotFoundError, PermissionError):
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        damage = str(error)
    if damage is not None:
        raise DataFormatError(
            f"the file of trained labels is damaged ({damage})",
            path=str(path),
            remedy="remove it and start the training again: only its labels are trained again",
        )
    return arrays


def _damage(arrays: Arrays, n_labels: int, n_features: int) -> str | None:
    """What does not fit in the arrays of a shard; a KeyError for one that is missing."""
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
    if len(arrays["ending"]) and int(arrays["ending"].max()) >= len(FINISHED):
        return "an ending is unknown"
    records = arrays.get("records")
    if records is not None and (records.ndim != 2 or records.shape[1] != len(RECORD_COLUMNS)):
        return f"records have the shape {records.shape}"
    return None


# Shards put together


def merge_shards(
    files: Sequence[tuple[int, int, Path]], n_features: int, n_positives: Ints, *, in_memory: bool = False
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
    in_memory : bool
        Whether to read the weights; otherwise `coef` is a `JoinedArray` or a `JoinedCsr`, which can be written to a
        model part after part.
    """
    kept: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*LABEL_ARRAYS, "lengths")}
    bins, table, dtype = frequency_bin(n_positives), None, np.dtype(np.float32)
    for first, last, path in files:  # every shard is read once and checked; weights and records are dropped
        arrays = read_shard(path, last - first, n_features)
        for name in kept.keys() & arrays.keys():
            kept[name].append(arrays[name])
        dtype = arrays["coef" if "coef" in arrays else "data"].dtype
        if "records" in arrays:
            table = table or HistoryTable()
            table.add(arrays["records"], bins[first:last])
    intercept, bounds, n_iter, ending = (np.concatenate(kept[name]) for name in LABEL_ARRAYS)
    return OneVsAllResult.of(
        _joined_weights(files, kept["lengths"], dtype, (len(n_iter), n_features), in_memory),
        intercept,
        np.array([status.value for status in FINISHED])[ending],
        bounds,
        history=frequency_history(n_positives, n_iter, bounds) if table is None else table.history(),
        n_iter=n_iter,
    )


def _joined_weights(
    files: Sequence[tuple[int, int, Path]], lengths: list[Any], dtype: np.dtype[Any], shape: Range, in_memory: bool
) -> Any:
    """The weights of all shards: dense, or CSR where shards have lengths of rows."""

    def joined(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        def parts() -> Iterator[npt.NDArray[Any]]:
            for _, _, path in files:
                with np.load(path, allow_pickle=False) as archive:
                    yield archive[name]

        return (
            np.concatenate(list(parts())).astype(dtype, copy=False) if in_memory else JoinedArray(dtype, shape, parts)
        )

    if not lengths:
        return joined("coef", dtype, shape)
    starts = np.append(0, np.cumsum(np.concatenate(lengths).astype(np.int64)))
    total = (int(starts[-1]),)
    index_dtype = np.dtype(np.int32 if total[0] <= np.iinfo(np.int32).max else np.int64)
    arrays = joined("data", dtype, total), joined("indices", index_dtype, total), starts.astype(index_dtype)
    if not in_memory:
        return JoinedCsr(*arrays, shape=shape)
    coef = sp.csr_array(shape, dtype=dtype)
    coef.data, coef.indices, coef.indptr = arrays
    return coef
