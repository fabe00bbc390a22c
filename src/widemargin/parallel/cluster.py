"""A cluster of `dask.distributed` as the engine of a task list.

Workers get paths and JSON values. A task whose worker dies is begun again elsewhere: the scheduler's `allowed-failures`
are raised, since machines of long runs do die, and a task that fails with an I/O error is tried again. At most two
tasks a thread are in the scheduler's hands, so that a list of any length costs it no memory.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import secrets
import weakref
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from widemargin.exceptions import WidemarginError
from widemargin.parallel.copies import named_by_content
from widemargin.parallel.executors import RETRIES, TASKS_PER_SLOT, Arguments, Executor, Function

__all__ = ["Cluster", "shared_folders"]

POLL_S = 1.0  # how long Python is not asked for signals
CONNECT_S = 30  # to a scheduler
ALLOWED_FAILURES = 100  # deaths of workers that a task survives; dask's 3 are few for hours of work


class Cluster:
    """A dask cluster.

    Parameters
    ----------
    client : dask.distributed.Client or str
        A client, or the address of a scheduler such as "tcp://host:8786".
    retries : int, default=5
        How often a task that fails is tried again.

    Examples
    --------
    >>> from widemargin.parallel.cluster import ALLOWED_FAILURES
    >>> ALLOWED_FAILURES
    100
    """

    in_process = False

    def __init__(self, client: Any, retries: int = RETRIES) -> None:
        self.client, self.retries = _connected(client), retries
        if self.client is not client:  # one of our own lives as long as this object
            weakref.finalize(self, self.client.close).atexit = False
        self.n_copies = 0
        self._senders: list[Any] = []  # of stores, while workers need them
        self.client.run_on_scheduler(_raise_allowed_failures, ALLOWED_FAILURES)

    @property
    def n_workers(self) -> int:
        """Worker processes that are there now, at least one: they may come later."""
        return max(1, len(self._workers()))

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield results as they come; at most so many tasks are submitted as workers can soon begin."""
        waiting, run_name = enumerate(arguments), secrets.token_hex(4)
        running: dict[Any, int] = {}
        try:
            while True:
                self._check_sender()
                places = TASKS_PER_SLOT * sum(info["nthreads"] for info in self._workers().values())
                for number, given in itertools.islice(waiting, max(0, max(1, places) - len(running))):
                    key = f"{getattr(function, '__name__', 'task')}-{run_name}-{number}"
                    running[self.client.submit(function, *given, key=key, retries=self.retries, pure=False)] = number
                if not running:
                    return
                with contextlib.suppress(TimeoutError):
                    _distributed().wait(list(running), timeout=POLL_S, return_when="FIRST_COMPLETED")
                for future in [future for future in running if future.done()]:
                    yield running.pop(future), _result(future)
        finally:
            self.client.cancel(list(running))

    @contextlib.contextmanager
    def stores(self, names: list[str]) -> Iterator[None]:
        """Give workers on machines without the shared file system copies of stores, while the block lasts.

        A task that needs one waits for it. Sets: n_copies, at the end.

        Parameters
        ----------
        names : list of str
            What `named_by_content` gave for each store.
        """
        from widemargin.parallel.store_plugin import StoreSender  # dask is an extra

        sender = StoreSender(self.client, names)
        self._senders.append(sender)
        try:
            yield
        finally:
            self._senders.remove(sender)
            sender.close()
            self.n_copies += sender.n_copies

    def _check_sender(self) -> None:
        """An error where a machine has no place for a copy."""
        failure = next((sender.failure for sender in self._senders if sender.failure is not None), None)
        if failure is not None:
            raise WidemarginError(
                f"a store could not be copied to a machine without the shared file system ({failure}); free space in "
                "its temporary folder, or set TMPDIR for its worker"
            ) from failure


@contextlib.contextmanager
def shared_folders(executor: Executor, folders: Sequence[str | os.PathLike[str]]) -> Iterator[list[str]]:
    """Names by which the tasks of an engine find stores and models, while the block lasts.

    Parameters
    ----------
    executor : Executor
        The engine; workers of a cluster that do not see the folders get copies.
    folders : sequence of paths
        Stores and models.
    """
    if not isinstance(executor, Cluster):
        yield [os.path.abspath(folder) for folder in folders]
        return
    names = [named_by_content(folder) for folder in folders]
    with executor.stores(names):
        yield names


def _connected(client: Any) -> Any:
    if not isinstance(client, str):
        return client
    try:
        return _distributed().Client(client, timeout=CONNECT_S)
    except OSError as error:
        raise WidemarginError(f"no dask scheduler answers at {client}; start one with: dask scheduler") from error


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError:
        raise WidemarginError("a cluster needs dask.distributed: pip install 'widemargin[dask]'") from None


def _raise_allowed_failures(least: int, dask_scheduler: Any = None) -> None:
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, least)


def _result(future: Any) -> Any:
    """The result of a task, or its error in our words where the cluster is to blame."""
    distributed = _distributed()
    try:
        return future.result()
    except distributed.KilledWorker as error:
        raise WidemarginError(
            f"the workers of {error.task} died again and again; they may need more memory than they have: give "
            "workers more of it, or lower the memory limit of the training"
        ) from error
    except distributed.CancelledError as error:
        raise WidemarginError("the scheduler dropped a task; see its log, and start the command again") from error
