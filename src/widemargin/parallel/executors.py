"""Executors that run a list of tasks: this process, processes through joblib, a cluster through dask.distributed.

A task is a function of a module with small arguments; it is pure and idempotent, so an executor may run it twice, on
any worker, after any failure. Results come back in the order in which tasks finish. Memory: at most `TASKS_PER_SLOT`
tasks for each place of a worker are handed out at a time.

    run_tasks(function, arguments, executor)                       any list of tasks, on any executor
    with use_executor(client): model.fit(X, y)                     fits hand their independent problems to it
    peak_bytes(), check_memory(limit_mb)                           what a worker needed so far
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import joblib

from widemargin.exceptions import WidemarginError

__all__ = [
    "CURRENT_EXECUTOR",
    "MEGABYTE",
    "PROCESS_MB",
    "Executor",
    "InProcess",
    "Processes",
    "as_executor",
    "check_memory",
    "current_executor",
    "forget_peak",
    "peak_bytes",
    "run_tasks",
    "use_executor",
]

TASKS_PER_SLOT = 2  # one runs while the next waits
RETRIES = 5  # of a task whose worker died
MEGABYTE = 2**20
PROCESS_MB = 170.0  # Python, NumPy, SciPy and scikit-learn
STATUS, CLEAR_REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # see proc(5)

Function = Callable[..., Any]
Arguments = Sequence[tuple[Any, ...]]


class Executor(Protocol):
    """What an executor offers."""

    @property
    def n_workers(self) -> int:
        """Tasks that run at the same time."""

    @property
    def in_process(self) -> bool:
        """Whether tasks run in this process, one at a time, and may be given callbacks."""

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield (number of the task, result) as tasks end; closing the iterator drops the others."""


CURRENT_EXECUTOR: ContextVar[Executor | None] = ContextVar("widemargin_executor", default=None)
"""The executor of the innermost `use_executor`; None where the work stays in this process."""


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
        How many; -1 for one per core.
    retries : int, default=5
        How often tasks are started again after the death of a worker.

    Examples
    --------
    >>> from widemargin.parallel import Processes
    >>> Processes(2).n_workers
    2
    """

    in_process = False

    def __init__(self, n_workers: int, retries: int = RETRIES) -> None:
        if n_workers == 0:
            raise ValueError("the number of processes must not be 0; use a positive number, or -1 for one per core")
        self.n_workers: int = joblib.effective_n_jobs(n_workers)
        self.retries = retries

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield results as tasks end; after the death of a worker the remaining tasks are started again."""
        from joblib.externals.loky.process_executor import TerminatedWorkerError

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
                        f"worker processes died {deaths} times, perhaps because they ran out of memory; use fewer "
                        "processes or a smaller memory limit"
                    ) from error


def _numbered(number: int, function: Function, given: tuple[Any, ...]) -> tuple[int, Any]:
    return number, function(*given)


def as_executor(executor: Any) -> Executor:
    """An executor from what a caller may give.

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
        try:
            from widemargin.parallel.cluster import Cluster
        except ModuleNotFoundError:
            raise WidemarginError("a cluster requires dask.distributed; run: pip install 'widemargin[dask]'") from None
        return Cluster(executor)
    if all(hasattr(executor, name) for name in ("run", "n_workers", "in_process")):
        given: Executor = executor
        return given
    raise ValueError(
        "executor must be None, a number of processes, the address of a Dask scheduler such as tcp://host:8786, or a "
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


@contextlib.contextmanager
def use_executor(executor: Any) -> Iterator[None]:
    """Let fits in this block, and in this thread, hand independent problems to an executor; results stay the same.

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
    chosen = as_executor(executor)
    token = CURRENT_EXECUTOR.set(None if chosen.in_process else chosen)
    try:
        yield
    finally:
        CURRENT_EXECUTOR.reset(token)


def current_executor() -> Executor | None:
    """The executor of the innermost `use_executor`; None where the work stays in this process.

    Examples
    --------
    See `use_executor`.
    """
    return CURRENT_EXECUTOR.get()


def peak_bytes() -> int:
    """The largest resident memory of this process so far, or since the last `forget_peak`, in bytes."""
    # What `getrusage` says may be the memory of the parent before this program took its place.
    with contextlib.suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak() -> bool:
    """Reset the peak to what is in use now; false where the system cannot, as off Linux.

    Freed memory goes back to the system first: otherwise new work would reuse it, and seem to need no memory.
    """
    with contextlib.suppress(AttributeError):  # glibc has it, other libraries do not
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        CLEAR_REFERENCES.write_text(RESET_PEAK)
        return True
    return False


def check_memory(limit_mb: float | None) -> None:
    """Raise a MemoryError once this process needed more than `limit_mb`; None: no limit."""
    if limit_mb is not None and peak_bytes() > limit_mb * MEGABYTE:
        raise MemoryError(
            f"a worker needed {peak_bytes() / MEGABYTE:,.0f} MB, which exceeds the memory limit of {limit_mb:,.0f} "
            "MB; raise the limit, or use fewer threads per worker (labels in finished shards are kept)"
        )
