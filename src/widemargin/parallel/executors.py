"""The engines that run a list of tasks: this process, processes through joblib, a cluster through dask.distributed.

A task is a function of a module and JSON values; it is pure and idempotent, so that an engine may run it twice, on any
worker, after any failure. Results come back in the order in which they are finished. Memory: at most
`TASKS_PER_SLOT` tasks for each place of a worker are handed out at a time (back-pressure).

The engine that fits use for their independent problems: `with use_executor(client): model.fit(X, y)`.

What a training will need, before it starts: memory of a worker, disk, and time.

    memory     the process itself, the solver's copy of the rows, the work areas of its threads, the weights of a shard
    disk       the shards and, before they are removed, the model: the weights twice; and the rows, where copied
    time       that of a sample of labels, evenly spaced, times the number of labels

The sizes of the work areas are those that the solvers state.

The largest resident memory of this process, by Linux's count or, elsewhere, by what `getrusage` says.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import joblib
import scipy.sparse as sp
from joblib.externals.loky.process_executor import TerminatedWorkerError

from widemargin.exceptions import WidemarginError

__all__ = [
    "Estimate",
    "Executor",
    "InProcess",
    "Processes",
    "as_executor",
    "current_executor",
    "estimate_memory_mb",
    "forget_peak",
    "largest_shard",
    "peak_bytes",
    "run_tasks",
    "use_executor",
]

TASKS_PER_SLOT = 2  # one runs while the next waits
RETRIES = 5  # of a task whose worker died

Function = Callable[..., Any]
Arguments = Sequence[tuple[Any, ...]]


class Executor(Protocol):
    """What an engine offers."""

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""

    @property
    def in_process(self) -> bool:
        """Whether tasks run in this process, one at a time, so that they may be given callbacks."""

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield (number of the task, result) as tasks end; closing the iterator drops the others."""


class InProcess:
    """One task after another in this process; parallel work is left to the threads of the core.

    Examples
    --------
    >>> from widemargin.parallel import InProcess, run_tasks
    >>> list(run_tasks(max, [(1, 2), (5, 3)], InProcess()))
    [(0, 2), (1, 5)]
    """

    n_workers = 1
    in_process = True

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield the results in the order of the tasks."""
        for number, given in enumerate(arguments):
            yield number, function(*given)


class Processes:
    """Processes of this machine, through joblib.

    Parameters
    ----------
    n_workers : int
        How many; -1 for one on every core.
    retries : int, default=5
        How often tasks are begun again after the death of a worker.

    Examples
    --------
    >>> from widemargin.parallel import Processes
    >>> Processes(2).n_workers
    2
    """

    in_process = False

    def __init__(self, n_workers: int, retries: int = RETRIES) -> None:
        if n_workers == 0:
            raise ValueError("a number of processes must not be 0; give 1 or more, or -1 for one on every core")
        self.n_workers: int = joblib.effective_n_jobs(n_workers)
        self.retries = retries

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield results as they come; after the death of a worker the tasks that are left are begun again."""
        left, deaths = dict(enumerate(arguments)), 0
        while left:
            pool = joblib.Parallel(
                self.n_workers, return_as="generator_unordered", pre_dispatch=TASKS_PER_SLOT * self.n_workers
            )
            calls = (joblib.delayed(_numbered)(number, function, given) for number, given in list(left.items()))
            try:
                for number, result in pool(calls):
                    del left[number]
                    yield number, result
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths > self.retries:
                    raise WidemarginError(
                        f"worker processes died {deaths} times; they may need more memory than there is: use fewer of "
                        "them or a smaller memory limit"
                    ) from error


def _numbered(number: int, function: Function, given: tuple[Any, ...]) -> tuple[int, Any]:
    return number, function(*given)


def as_executor(executor: Any) -> Executor:
    """An engine from what a caller may give.

    Parameters
    ----------
    executor : None, int, str, dask.distributed.Client or Executor
        None for this process, a number of processes, the address of a dask scheduler, or a client of one.

    Returns
    -------
    Executor

    Examples
    --------
    >>> from widemargin.parallel import as_executor
    >>> as_executor(None).in_process
    True
    """
    if executor is None:
        return InProcess()
    if isinstance(executor, int) and not isinstance(executor, bool):
        return Processes(executor)
    if isinstance(executor, str) or hasattr(executor, "scheduler_info"):
        from widemargin.parallel.cluster import Cluster

        return Cluster(executor)
    if all(hasattr(executor, name) for name in ("run", "n_workers", "in_process")):
        given: Executor = executor
        return given
    raise ValueError(
        f"executor must be None, a number of processes, the address of a dask scheduler such as tcp://host:8786, or a "
        f"dask.distributed.Client; got {executor!r:.100}"
    )


def run_tasks(function: Function, arguments: Arguments, executor: Any = None) -> Generator[tuple[int, Any], None, None]:
    """Run a function once for each tuple of arguments.

    Parameters
    ----------
    function : callable
        A function of a module: other processes import it by its name.
    arguments : sequence of tuples
        The arguments of each task: paths and small values, never the data themselves.
    executor : None, int, str, dask.distributed.Client or Executor
        See `as_executor`.

    Yields
    ------
    tuple of (int, object)
        The number of a task and its result, as tasks end.

    Examples
    --------
    >>> from widemargin.parallel import run_tasks
    >>> sorted(run_tasks(pow, [(2, 3), (3, 2)]))
    [(0, 8), (1, 9)]
    """
    return as_executor(executor).run(function, list(arguments))


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_CURRENT: ContextVar[Executor | None] = ContextVar("widemargin_executor", default=None)


@contextlib.contextmanager
def use_executor(executor: Any) -> Iterator[None]:
    """Let fits in this block, and in this thread, give independent problems to an engine; results stay the same.

    Parameters
    ----------
    executor : None, int, str, dask.distributed.Client or Executor
        See `as_executor`.

    Examples
    --------
    >>> from widemargin.parallel import current_executor, use_executor
    >>> with use_executor(2):
    ...     current_executor().n_workers
    2
    >>> current_executor() is None
    True
    """
    engine = as_executor(executor)
    token = _CURRENT.set(None if engine.in_process else engine)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_executor() -> Executor | None:
    """The engine of the innermost `use_executor`; None where the work stays in this process.

    Examples
    --------
    See `use_executor`.
    """
    return _CURRENT.get()


MEGABYTE = 2**20
PROCESS_MB = 170.0  # Python, NumPy, SciPy and scikit-learn
# Bytes beside X: of the copy for each non-zero and each row, and of a thread's work area for each feature and row.
COPY = {"fast": (13.0, 60.0), "logistic": (9.0, 60.0), "dense": (0.0, 8.0), "newton": (0.0, 8.0)}
THREAD = {"fast": (410.0, 460.0), "logistic": (300.0, 220.0), "dense": (32 * 56.0, 32 * 60.0), "newton": (64.0, 33.0)}
SHARD_SHARE = 0.25  # of the memory limit, at most, for the weights of a shard
COPIES_OF_SHARD = 3  # while it is written: as solved, as arrays of the file, and what is being written


@dataclass(frozen=True)
class Estimate:
    """What a training will need.

    Parameters
    ----------
    memory_mb : float
        Resident memory of a worker.
    disk_bytes : float
        Space in the model folder, at the end of the training.
    seconds : float or None
        Wall-clock time; None where no sample was solved.
    n_workers, n_threads : int
        What the time is for.

    Examples
    --------
    >>> from widemargin.parallel.executors import Estimate
    >>> print(Estimate(memory_mb=800.0, disk_bytes=3e9, seconds=5400.0, n_workers=2, n_threads=4).text())
    about 800 MB of memory a worker, 3.0 GB of disk, 1.5 hours on 2 workers with 4 threads each
    """

    memory_mb: float
    disk_bytes: float
    seconds: float | None
    n_workers: int = 1
    n_threads: int = 1

    def text(self) -> str:
        """A sentence for people."""
        where = f"{self.n_workers} workers with {_counted(self.n_threads, 'thread')} each"
        if self.n_workers == 1:
            where = _counted(self.n_threads, "thread")
        time = "" if self.seconds is None else f", {_duration(self.seconds)} on {where}"
        return f"about {self.memory_mb:,.0f} MB of memory a worker, {_size(self.disk_bytes)} of disk{time}"


def estimate_memory_mb(X: Any, solver: str, n_threads: int, shard_bytes: float) -> float:
    """Resident memory of a worker in MB, the mapped pages of X included.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features)
        The rows.
    solver : str
        Name of a `PartSolver`.
    n_threads : int
        Its threads.
    shard_bytes : float
        Weights of a shard.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.parallel.executors import estimate_memory_mb
    >>> estimate_memory_mb(np.eye(3), "newton", 1, 0.0) < 200
    True
    """
    n_rows, n_features = X.shape
    n_values = X.nnz if sp.issparse(X) else X.size
    mapped = n_values * X.dtype.itemsize + (n_values * X.indices.dtype.itemsize if sp.issparse(X) else 0)
    copy = n_values * COPY[solver][0] + n_rows * COPY[solver][1]
    if solver == "fast" and X.dtype.itemsize == 8:
        copy += 8.0 * n_values
    thread = n_features * THREAD[solver][0] + n_rows * THREAD[solver][1]
    total = mapped + copy + n_threads * thread + COPIES_OF_SHARD * shard_bytes
    return float(PROCESS_MB + total / MEGABYTE)


def largest_shard(bytes_per_label: float, memory_limit_mb: float) -> int:
    """Labels of a shard whose weights take no more than their share of the memory.

    Examples
    --------
    >>> from widemargin.parallel.executors import largest_shard
    >>> largest_shard(1024.0, 16.0)
    1365
    """
    return max(1, int(SHARD_SHARE * memory_limit_mb * MEGABYTE / (COPIES_OF_SHARD * max(1.0, bytes_per_label))))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _size(n_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{max(1.0, n_bytes / 1e3):.0f} kB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


STATUS, CLEAR_REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""What proc(5) wants to be written for it."""


def peak_bytes() -> int:
    """The largest resident memory of this process so far, or since the last `forget_peak`, in bytes."""
    # What `getrusage` says may be the memory of the parent before this program took its place.
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak() -> bool:
    """Start the peak again at what is in use now; false where the system cannot, as off Linux.

    What was freed goes back to the system first: otherwise new work would reuse it, and seem to need no memory.
    """
    with suppress(AttributeError):  # glibc has it, other libraries do not
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        CLEAR_REFERENCES.write_text(RESET_PEAK)
        return True
    return False
