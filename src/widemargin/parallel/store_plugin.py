"""A plugin of dask's workers that gets stores to machines without the shared file system, once a host.

The scheduler gives it to every worker, also to those that join later or come back. A worker that does not find a store
asks for it by an event; the driver, which listens, sends the pieces (`StoreSender`). No connection is needed that the
cluster does not have already. Of the workers of a host the one with the lock asks; when it dies, the next one does.
At the end, the last worker of a host that lets go of the copy removes it. A driver that dies takes its plugin with it:
the scheduler sees to that (`DriverWatch`), or workers that join later would ask for stores that nobody sends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import SchedulerPlugin, WorkerPlugin
from distributed.comm.core import CommClosedError

from widemargin.exceptions import WidemarginError
from widemargin.parallel import copies

__all__ = ["DriverWatch", "StorePlugin", "StoreSender"]

POLL_S = 0.2
ASK_AGAIN_S = 20.0  # without a sign of the driver
N_SENDERS = 4  # hosts that are sent to at the same time
# Failures of a write, which no other attempt mends; others mean that the worker is gone.
LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EFBIG}


class StorePlugin(WorkerPlugin):
    """Stores that a worker needs.

    Parameters
    ----------
    names : list of str
        What `named_by_content` gave for each.
    topic : str
        Of the events by which the worker asks, and the plugin's name.

    Examples
    --------
    >>> from widemargin.parallel.store_plugin import StorePlugin
    >>> StorePlugin(["/data/rows#0f1e"], "widemargin-1").name
    'widemargin-1'
    """

    def __init__(self, names: list[str], topic: str) -> None:
        self.names, self.name = names, topic

    def setup(self, worker: Any) -> None:
        """Begin to look after the stores, in a thread: the worker goes on meanwhile."""
        self.held: list[tuple[str, int]] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look_after, args=(worker,), daemon=True)
        self.thread.start()

    def teardown(self, worker: Any) -> None:
        """Let go of the copies."""
        self.ended.set()
        self.thread.join()
        for digest, descriptor in self.held:
            copies.let_go(digest, "used", descriptor)

    def _look_after(self, worker: Any) -> None:
        """Have every store come that is not here. Sets: held."""
        for name in self.names:
            digest = name.rpartition("#")[2]
            try:
                if copies.is_original(name):
                    continue
                self._use(digest)
                while not copies.is_here(name) and not self.ended.is_set():
                    if (lock := copies.hold(digest, "copying", fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                        try:
                            self._receive(worker, name, digest)
                        finally:
                            copies.let_go(digest, "copying", lock)
                    self.ended.wait(POLL_S)
            except (WidemarginError, OSError) as error:  # tasks that need the store say so
                logging.getLogger("distributed.worker").warning("no copy of %s: %s", name, error)

    def _use(self, digest: str) -> None:
        """Keep others from removing the copy. Sets: held."""
        descriptor = copies.hold(digest, "used", fcntl.LOCK_SH)
        assert descriptor is not None  # the call waits
        self.held.append((digest, descriptor))

    def _receive(self, worker: Any, name: str, digest: str) -> None:
        """Ask for a store, wait until all of it is there, and check it."""
        if copies.is_here(name):
            return
        copies.begin_copy(digest)
        arrived, last_sign = 0, -math.inf
        while not copies.is_sent(digest):
            now = time.monotonic()
            if copies.arrived_bytes(digest) != arrived:
                arrived, last_sign = copies.arrived_bytes(digest), now
            elif now - last_sign >= ASK_AGAIN_S:
                last_sign = now
                worker.loop.add_callback(worker.log_event, self.name, {"worker": worker.address, "store": name})
            if self.ended.wait(POLL_S):
                return
        copies.complete_copy(digest)


class DriverWatch(SchedulerPlugin):
    """Takes the plugin off all workers when the driver is gone without having done so, as after a kill.

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
        """Called for every client that leaves."""
        if client == self.driver:
            scheduler.remove_plugin(self.name)
            scheduler.loop.add_callback(scheduler.unregister_worker_plugin, None, self.name)


class StoreSender:
    """The driver's side: answers the workers that ask for stores.

    Parameters
    ----------
    client : dask.distributed.Client
        Of the cluster.
    names : list of str
        The stores.

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
        """Send no more, and have the copies removed from all hosts."""
        self._ended = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(OSError):  # the scheduler is gone
            self.client.unsubscribe_topic(self.topic)
            self.client.unregister_scheduler_plugin(self.topic)
            self.client.unregister_worker_plugin(self.topic)

    def _answer(self, event: tuple[float, dict[str, str]]) -> None:
        """Have a thread send what a worker asked for, unless one does already."""
        asked = event[1]["worker"], event[1]["store"]
        if asked[1] in self.names and asked not in self._at_work and not self._ended:
            self._at_work.add(asked)
            with contextlib.suppress(RuntimeError):  # the pool was closed a moment ago
                self._pool.submit(self._send, *asked)

    def _send(self, address: str, name: str) -> None:
        folder, _, digest = name.rpartition("#")
        try:
            for block in copies.blocks_of(folder):
                if self._ended:
                    return
                self.client.run(copies.receive_block, digest, *block, workers=[address])
            self.client.run(copies.all_sent, digest, workers=[address])
            self.n_copies += 1
        except CommClosedError:
            pass  # the worker is gone; another one of its host will ask
        except OSError as error:
            if error.errno in LASTING:
                self.failure = error
        finally:
            self._at_work.discard((address, name))
