"""The engines that run a list of tasks: this process, processes through joblib, a cluster through dask.distributed.

A task is a function of a module and JSON values; it is pure and idempotent, so that an engine may run it twice, on any
worker, after any failure. Results come back in the order in which they are finished. Memory: at most
`TASKS_PER_SLOT` tasks for each place of a worker are handed out at a time (back-pressure).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from widemargin.exceptions import WidemarginError

__all__ = ["Executor", "InProcess", "Processes", "as_executor", "run_tasks"]

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
        from widemargin.parallel.cluster import Cluster  # dask is an extra

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
