"""A cluster of `dask.distributed` as the engine of a task list.

Workers get paths and JSON values. A task whose worker dies is begun again elsewhere: the scheduler's `allowed-failures`
are raised, since machines of long runs do die, and a task that fails with an I/O error is tried again. At most two
tasks a thread are in the scheduler's hands, so that a list of any length costs it no memory.

Stores and models on machines that do not share a file system with the driver: one copy a host, found by its content.

A folder is known by the SHA-256 of its `store.json` or `model.json`, which has the hashes of all its files. A worker
that does not find a folder under the driver's path looks for its copy in the temporary folder of its host:

    widemargin-<user>/store-<hash>         the copy, which has its name once all hashes are right
                      store-<hash>.part    what has come of it; .sent says that this is all
                      store-<hash>.copying, .used    locks: of the worker that receives it, of all that use it

Locks end with their process, so that a worker that is killed stands in nobody's way.

A plugin of dask's workers that gets stores to machines without the shared file system, once a host.

The scheduler gives it to every worker, also to those that join later or come back. A worker that does not find a store
asks for it by an event; the driver, which listens, sends the pieces (`StoreSender`). No connection is needed that the
cluster does not have already. Of the workers of a host the one with the lock asks; when it dies, the next one does.
At the end, the last worker of a host that lets go of the copy removes it. A driver that dies takes its plugin with it:
the scheduler sees to that (`DriverWatch`), or workers that join later would ask for stores that nobody sends.

The rows of a fit for tasks of other processes: a store in a temporary folder, found by its path.

Numbers only can be stored; rows of other kinds (text for a pipeline, data frames) travel with the tasks instead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import itertools
import logging
import math
import os
import secrets
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import SchedulerPlugin, WorkerPlugin
from distributed.comm.core import CommClosedError

from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.exceptions import WidemarginError
from widemargin.files import file_sha256, lock, replace_folder
from widemargin.model_io import read_model
from widemargin.model_io.state import MANIFEST
from widemargin.parallel.executors import RETRIES, TASKS_PER_SLOT, Arguments, Executor, Function

__all__ = [
    "Cluster",
    "DriverWatch",
    "SharedRows",
    "StorePlugin",
    "StoreSender",
    "blocks_of",
    "complete_copy",
    "find_folder",
    "is_here",
    "is_visible",
    "named_by_content",
    "receive_block",
    "shared_folders",
]

BLOCK_BYTES = 2**25
WAIT_S = 600.0  # for a sign of life of a copy that another worker of the host receives
POLL_S = 0.2


def find_folder(path: str) -> str:
    """The folder itself, or its copy on this host, which may still be on its way."""
    if "#" not in path:
        return path
    folder, _, digest = path.rpartition("#")
    if _has(folder, digest):
        return folder
    copy, arrived, deadline = copy_path(digest), -1, 0.0
    while not _has(copy, digest):
        if (now := arrived_bytes(digest)) != arrived:
            arrived, deadline = now, time.monotonic() + WAIT_S
        if time.monotonic() > deadline:
            raise WidemarginError(
                f"{folder} is not on this machine and no copy of it came; put the data on a shared file system"
            )
        time.sleep(POLL_S)
    return copy


def named_by_content(folder: str | os.PathLike[str]) -> str:
    """The name under which `find_folder` finds a store on any machine."""
    return f"{os.path.abspath(folder)}#{_digest(folder)}"


def copy_path(digest: str) -> str:
    """Where this host keeps its copy of a store."""
    return os.path.join(tempfile.gettempdir(), f"widemargin-{os.getuid()}", f"store-{digest[:16]}")


def is_here(name: str) -> bool:
    """Whether this host has a store, under its path or as a copy."""
    digest = name.rpartition("#")[2]
    return is_original(name) or _has(copy_path(digest), digest)


def is_original(name: str) -> bool:
    """Whether this host sees the store under its path."""
    folder, _, digest = name.rpartition("#")
    return _has(folder, digest)


def is_visible(folder: str) -> bool:
    """Whether this machine sees a folder of the driver."""
    return os.path.isdir(folder)


def blocks_of(folder: str) -> Iterator[tuple[str, int, bytes]]:
    """The files of a folder in pieces: name, place in the file, content."""
    for file_name in sorted(entry.name for entry in os.scandir(folder) if entry.is_file()):
        with open(os.path.join(folder, file_name), "rb") as file:
            offset, block = 0, file.read(BLOCK_BYTES)
            while block or offset == 0:
                yield file_name, offset, block
                offset += max(1, len(block))
                block = file.read(BLOCK_BYTES)


def begin_copy(digest: str) -> None:
    """Drop what an earlier attempt left; only with the lock of the copy."""
    shutil.rmtree(copy_path(digest) + ".part", ignore_errors=True)
    Path(copy_path(digest) + ".sent").unlink(missing_ok=True)
    Path(copy_path(digest) + ".part").mkdir()


def receive_block(digest: str, file_name: str, offset: int, block: bytes) -> None:
    """Write a piece of a file of a copy that is not complete yet."""
    if os.path.basename(file_name) != file_name:
        raise ValueError(f"{file_name!r} is not the name of a file")
    if is_sent(digest):  # the answer to a question that was asked twice must not spoil what is being checked
        raise FileExistsError(f"the copy of store {digest[:16]} is complete")
    with open(Path(copy_path(digest) + ".part") / file_name, "r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(block)


def all_sent(digest: str) -> None:
    """Note that the last piece is here; checking it is not for the thread that answers the cluster."""
    Path(copy_path(digest) + ".sent").touch()


def is_sent(digest: str) -> bool:
    """Whether all pieces are here."""
    return os.path.exists(copy_path(digest) + ".sent")


def arrived_bytes(digest: str) -> int:
    """What has come of a copy."""
    with contextlib.suppress(FileNotFoundError):
        return sum(entry.stat().st_size for entry in os.scandir(copy_path(digest) + ".part"))
    return 0


def complete_copy(digest: str) -> None:
    """Give a copy its name, once all files are there with the hashes that its description has."""
    part, copy = copy_path(digest) + ".part", copy_path(digest)
    if is_store(part):
        open_store(part, verify=True)
    else:
        read_model(part, verify=True)
    if not _has(part, digest):
        raise WidemarginError(f"the copy of a store in {part} is not what was asked for")
    replace_folder(Path(part), Path(copy))
    Path(copy_path(digest) + ".sent").unlink(missing_ok=True)


def hold(digest: str, kind: str, how: int) -> int | None:
    """A descriptor with the lock of a copy, `.copying` or `.used`; None when another process has it.

    Parameters
    ----------
    digest : str
        Of the store.
    kind : {"copying", "used"}
        What the lock is for.
    how : int
        Flags of `fcntl.flock`.
    """
    path = f"{copy_path(digest)}.{kind}"
    _make_private(os.path.dirname(path))
    return lock(path, os.O_RDWR | os.O_CREAT, how)


def let_go(digest: str, kind: str, descriptor: int) -> None:
    """Give a lock of `hold` back; the last one that used a copy removes it."""
    if kind == "used":
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for ending in ("", ".part"):
                shutil.rmtree(copy_path(digest) + ending, ignore_errors=True)
            for ending in (".sent", ".copying", ".used"):
                Path(copy_path(digest) + ending).unlink(missing_ok=True)
    os.close(descriptor)


def _make_private(folder: str) -> None:
    """The folder of the copies; an error where somebody else made it, who could change them."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} belongs to another user; set TMPDIR to a folder of your own")


def _has(folder: str, digest: str) -> bool:
    try:
        return _digest(folder) == digest
    except OSError:
        return False


def _digest(folder: str | os.PathLike[str]) -> str:
    """SHA-256 of what describes a store or a model, and with it all its files."""
    name = STORE_FILE if is_store(folder) else MANIFEST
    return file_sha256(os.path.join(folder, name))


POLL_S_CLUSTER = 1.0  # how long Python is not asked for signals
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
                    _distributed().wait(list(running), timeout=POLL_S_CLUSTER, return_when="FIRST_COMPLETED")
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
        The engine; workers of a cluster that do not see the folders get
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
    >>> from widemargin.parallel.cluster import StorePlugin
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
        """Let go of the"""
        self.ended.set()
        self.thread.join()
        for digest, descriptor in self.held:
            let_go(digest, "used", descriptor)

    def _look_after(self, worker: Any) -> None:
        """Have every store come that is not here. Sets: held."""
        for name in self.names:
            digest = name.rpartition("#")[2]
            try:
                if is_original(name):
                    continue
                self._use(digest)
                while not is_here(name) and not self.ended.is_set():
                    if (lock := hold(digest, "copying", fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                        try:
                            self._receive(worker, name, digest)
                        finally:
                            let_go(digest, "copying", lock)
                    self.ended.wait(POLL_S)
            except (WidemarginError, OSError) as error:  # tasks that need the store say so
                logging.getLogger("distributed.worker").warning("no copy of %s: %s", name, error)

    def _use(self, digest: str) -> None:
        """Keep others from removing the copy. Sets: held."""
        descriptor = hold(digest, "used", fcntl.LOCK_SH)
        assert descriptor is not None  # the call waits
        self.held.append((digest, descriptor))

    def _receive(self, worker: Any, name: str, digest: str) -> None:
        """Ask for a store, wait until all of it is there, and check it."""
        if is_here(name):
            return
        begin_copy(digest)
        arrived, last_sign = 0, -math.inf
        while not is_sent(digest):
            now = time.monotonic()
            if arrived_bytes(digest) != arrived:
                arrived, last_sign = arrived_bytes(digest), now
            elif now - last_sign >= ASK_AGAIN_S:
                last_sign = now
                worker.loop.add_callback(worker.log_event, self.name, {"worker": worker.address, "store": name})
            if self.ended.wait(POLL_S):
                return
        complete_copy(digest)


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
            for block in blocks_of(folder):
                if self._ended:
                    return
                self.client.run(receive_block, digest, *block, workers=[address])
            self.client.run(all_sent, digest, workers=[address])
            self.n_copies += 1
        except CommClosedError:
            pass  # the worker is gone; another one of its host will ask
        except OSError as error:
            if error.errno in LASTING:
                self.failure = error
        finally:
            self._at_work.discard((address, name))


@dataclass(frozen=True)
class SharedRows:
    """Rows that a task loads by a path, or brings with it.

    Parameters
    ----------
    path : str
        The store; empty where the rows are given.
    given : object
        The rows themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.parallel import Processes
    >>> from widemargin.parallel.cluster import SharedRows
    >>> with SharedRows.of(np.eye(2), Processes(2)) as rows:
    ...     rows.given is None, rows.load().tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    """

    path: str
    given: Any = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, X: Any, executor: Executor) -> Iterator[SharedRows]:
        """Rows for the tasks of an engine, as long as the block lasts."""
        plain = sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf")
        if not plain:
            yield cls("", X)
            return
        with tempfile.TemporaryDirectory(prefix="widemargin-rows-") as folder:
            path = os.path.join(folder, "rows")
            write_store(path, X)
            with shared_folders(executor, [path]) as (name,):
                yield cls(name)

    def load(self) -> Any:
        """The rows, mapped."""
        return open_store(find_folder(self.path)).X if self.path else self.given
