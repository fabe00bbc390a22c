"""A cluster of `dask.distributed` as the executor of a task list.

Workers get paths and small values. A task whose worker dies is started again elsewhere: the scheduler's
`allowed-failures` are raised, since machines of long runs do die, and a task that fails with an I/O error is tried
again. At most two tasks per thread are submitted at a time, so a list of any length costs the scheduler no memory.

Stores get to machines without the shared file system by a plugin of the workers, once per host. The scheduler gives it
to every worker, also to those that join later or come back. A worker that does not find a store asks for it by an
event; the driver, which listens, sends the pieces (`StoreSender`). No connection is needed that the cluster does not
have already. Of the workers of a host, the one with the lock asks; when it dies, the next one does. At the end, the
last worker of a host to release the copy removes it. A driver that dies takes its plugin with it: the scheduler removes
it (`DriverWatch`), or workers that join later would ask for stores that nobody sends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import logging
import math
import os
import secrets
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import distributed
from distributed import SchedulerPlugin, WorkerPlugin
from distributed.comm.core import CommClosedError

from widemargin.exceptions import WidemarginError
from widemargin.parallel import folders
from widemargin.parallel.executors import RETRIES, TASKS_PER_SLOT, Arguments, Function

__all__ = ["Cluster", "DriverWatch", "StorePlugin", "StoreSender"]

POLL_S = 1.0  # longest time between two checks of signals
CONNECT_S = 30  # to a scheduler
ALLOWED_FAILURES = 100  # deaths of workers that a task survives; dask's 3 are few for hours of work
ASK_AGAIN_S = 20.0  # without a sign of the driver
N_SENDERS = 4  # hosts that are sent to at the same time
# Failures of a write that no other attempt mends; others mean that the worker is gone.
LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EFBIG}


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
        if self.client is not client:  # our own client lives as long as this object
            weakref.finalize(self, self.client.close).atexit = False
        self.n_copies = 0
        self._senders: list[Any] = []  # of stores, while workers need them
        self.client.run_on_scheduler(_raise_allowed_failures, ALLOWED_FAILURES)

    @property
    def n_workers(self) -> int:
        """Worker processes that are connected now, at least 1: they may join later."""
        return max(1, len(self._workers()))

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def run(self, function: Function, arguments: Arguments) -> Generator[tuple[int, Any], None, None]:
        """Yield results as tasks end; at most as many tasks are submitted as workers can soon start."""
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
                    distributed.wait(list(running), timeout=POLL_S, return_when="FIRST_COMPLETED")  # type: ignore[no-untyped-call]
                for future in [future for future in running if future.done()]:
                    yield running.pop(future), _result(future)
        finally:
            self.client.cancel(list(running))

    @contextlib.contextmanager
    def stores(self, names: list[str]) -> Iterator[None]:
        """Give workers on machines without the shared file system copies of stores, while the block lasts.

        `names` come from `named_by_content`. A task that needs a store waits for it. Sets: n_copies, at the end.
        """
        sender = StoreSender(self.client, names)
        self._senders.append(sender)
        try:
            yield
        finally:
            self._senders.remove(sender)
            sender.close()
            self.n_copies += sender.n_copies

    def _check_sender(self) -> None:
        """Raise an error when a machine has no space for a copy."""
        failure = next((sender.failure for sender in self._senders if sender.failure is not None), None)
        if failure is not None:
            raise WidemarginError(
                f"a store could not be copied to a machine that does not share the file system ({failure}); free up "
                "space in its temporary folder, or set TMPDIR for its worker"
            ) from failure


def _connected(client: Any) -> Any:
    if not isinstance(client, str):
        return client
    try:
        return distributed.Client(client, timeout=CONNECT_S)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise WidemarginError(f"no Dask scheduler responds at {client}; start one with: dask scheduler") from error


def _raise_allowed_failures(least: int, dask_scheduler: Any = None) -> None:
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, least)


def _result(future: Any) -> Any:
    """The result of a task; an error of the cluster, not of the task, gets our own message."""
    try:
        return future.result()
    except distributed.KilledWorker as error:
        raise WidemarginError(
            f"the workers running {error.task} died repeatedly, perhaps because they ran out of memory; use workers "
            "with more memory, or lower the memory limit"
        ) from error
    except distributed.CancelledError as error:
        raise WidemarginError("the scheduler dropped a task; check its log, and run the command again") from error


class StorePlugin(WorkerPlugin):
    """Fetches the stores that a worker needs.

    Parameters
    ----------
    names : list of str
        The stores, by the names of `named_by_content`.
    topic : str
        Topic of the events by which the worker asks, and the plugin's name.

    Examples
    --------
    >>> from widemargin.parallel.cluster import StorePlugin
    >>> StorePlugin(["/data/rows#0f1e"], "widemargin-1").name
    'widemargin-1'
    """

    def __init__(self, names: list[str], topic: str) -> None:
        self.names, self.name = names, topic

    def setup(self, worker: Any) -> None:
        """Start to fetch the stores in a thread; the worker continues meanwhile."""
        self.held: list[tuple[str, int]] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look_after, args=(worker,), daemon=True)
        self.thread.start()

    def teardown(self, worker: Any) -> None:
        """Release the copies."""
        self.ended.set()
        self.thread.join()
        for digest, descriptor in self.held:
            folders.let_go(digest, "used", descriptor)

    def _look_after(self, worker: Any) -> None:
        """Fetch every store that is not on this host. Sets: held."""
        for name in self.names:
            digest = name.rpartition("#")[2]
            try:
                if folders.is_original(name):
                    continue
                self._use(digest)
                while not folders.is_here(name) and not self.ended.is_set():
                    if (lock := folders.hold(digest, "copying", fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                        try:
                            self._receive(worker, name, digest)
                        finally:
                            folders.let_go(digest, "copying", lock)
                    self.ended.wait(folders.POLL_S)
            except (WidemarginError, OSError) as error:  # tasks that need the store say so
                logging.getLogger("distributed.worker").warning("no copy of %s: %s", name, error)

    def _use(self, digest: str) -> None:
        """Keep others from removing the copy. Sets: held."""
        descriptor = folders.hold(digest, "used", fcntl.LOCK_SH)
        assert descriptor is not None  # the call waits
        self.held.append((digest, descriptor))

    def _receive(self, worker: Any, name: str, digest: str) -> None:
        """Ask for a store, wait until all of it has arrived, and check it."""
        if folders.is_here(name):
            return
        folders.begin_copy(digest)
        arrived, last_sign = 0, -math.inf
        while not folders.is_sent(digest):
            now = time.monotonic()
            if folders.arrived_bytes(digest) != arrived:
                arrived, last_sign = folders.arrived_bytes(digest), now
            elif now - last_sign >= ASK_AGAIN_S:
                last_sign = now
                worker.loop.add_callback(worker.log_event, self.name, {"worker": worker.address, "store": name})
            if self.ended.wait(folders.POLL_S):
                return
        folders.complete_copy(digest)


class DriverWatch(SchedulerPlugin):
    """Removes the plugin from all workers when the driver left without doing so, as after a kill.

    Parameters
    ----------
    driver : str
        The id of the driver's client.
    topic : str
        Name of the plugin, and of this one.
    """

    def __init__(self, driver: str, topic: str) -> None:
        self.driver, self.name = driver, topic

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Called by the scheduler for every client that leaves."""
        if client == self.driver:
            scheduler.remove_plugin(self.name)
            scheduler.loop.add_callback(scheduler.unregister_worker_plugin, None, self.name)


class StoreSender:
    """The driver's side: answers the workers that ask for stores.

    Parameters
    ----------
    client : dask.distributed.Client
        A client of the cluster.
    names : list of str
        The stores, by the names of `named_by_content`.

    Sets: n_copies, failure.
    """

    def __init__(self, client: Any, names: list[str]) -> None:
        self.client, self.names = client, names
        self.topic = f"widemargin-stores-{os.urandom(8).hex()}"
        self.n_copies = 0
        self.failure: OSError | None = None
        self._at_work: set[tuple[str, str]] = set()
        self._ended = False
        self._pool = ThreadPoolExecutor(N_SENDERS, thread_name_prefix=self.topic)
        client.subscribe_topic(self.topic, self._answer)
        client.register_plugin(DriverWatch(client.id, self.topic), name=self.topic)
        client.register_plugin(StorePlugin(names, self.topic), name=self.topic)

    def close(self) -> None:
        """Send no more, and remove the copies from all hosts."""
        self._ended = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(OSError):  # the scheduler is gone
            self.client.unsubscribe_topic(self.topic)
            self.client.unregister_scheduler_plugin(self.topic)
            self.client.unregister_worker_plugin(self.topic)

    def _answer(self, event: tuple[float, dict[str, str]]) -> None:
        """Send what a worker asked for in a thread, unless one does so already."""
        asked = event[1]["worker"], event[1]["store"]
        if asked[1] in self.names and asked not in self._at_work and not self._ended:
            self._at_work.add(asked)
            with contextlib.suppress(RuntimeError):  # the pool was closed a moment ago
                self._pool.submit(self._send, *asked)

    def _send(self, address: str, name: str) -> None:
        folder, _, digest = name.rpartition("#")
        try:
            for block in folders.blocks_of(folder):
                if self._ended:
                    return
                self.client.run(folders.receive_block, digest, *block, workers=[address])
            self.client.run(folders.all_sent, digest, workers=[address])
            self.n_copies += 1
        except CommClosedError:
            pass  # the worker is gone; another one of its host will ask
        except OSError as error:
            if error.errno in LASTING:
                self.failure = error
        finally:
            self._at_work.discard((address, name))
