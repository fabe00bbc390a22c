"""Folders that tasks read wherever they run: stores and models by path, or as a copy found by its content.

A folder is known by the SHA-256 of its `store.json` or `model.json`, which has the hashes of all its files. A worker
that does not find a folder under the driver's path looks for its copy in the temporary folder of its host:

    widemargin-<user>/store-<hash>         the copy, which gets its name once all hashes are right
                      store-<hash>.part    what has arrived of it; .sent says that this is all
                      store-<hash>.copying, .used    locks: of the worker that receives it, of all that use it

Locks end with their process, so a worker that is killed blocks nobody. `StorePlugin` in `widemargin.parallel.cluster`
has copies sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.exceptions import WidemarginError
from widemargin.files import file_sha256, lock, replace_folder
from widemargin.model_io import is_packed, read_model
from widemargin.model_io.state import MANIFEST
from widemargin.parallel.executors import Executor

__all__ = [
    "SharedRows",
    "all_sent",
    "arrived_bytes",
    "begin_copy",
    "blocks_of",
    "complete_copy",
    "copy_path",
    "find_folder",
    "hold",
    "is_here",
    "is_original",
    "is_sent",
    "is_visible",
    "let_go",
    "named_by_content",
    "receive_block",
    "shared_folders",
]

BLOCK_BYTES = 2**25
WAIT_S = 600.0  # without any arriving byte of a copy that another worker of the host receives
POLL_S = 0.2


@contextlib.contextmanager
def shared_folders(executor: Executor, folders: Sequence[str | os.PathLike[str]]) -> Iterator[list[str]]:
    """Names by which the tasks of an executor find stores and models, while the block lasts.

    Workers of a cluster that do not see a folder receive a copy of it.
    """
    send_copies = getattr(executor, "stores", None)
    if send_copies is None:
        yield [os.path.abspath(folder) for folder in folders]
        return
    names = [named_by_content(folder) for folder in folders]
    with send_copies(names):
        yield names


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
    >>> from widemargin.parallel.folders import SharedRows
    >>> with SharedRows.of(np.eye(2), Processes(2)) as rows:
    ...     rows.given is None, rows.load().tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    """

    path: str
    given: Any = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, X: Any, executor: Executor) -> Iterator[SharedRows]:
        """Rows for the tasks of an executor, while the block lasts."""
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


def find_folder(path: str) -> str:
    """The folder itself, or its copy on this host; waits for a copy that is still arriving."""
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
                f"{folder} is not on this machine, and no copy of it was received; put the data on a shared file system"
            )
        time.sleep(POLL_S)
    return copy


def named_by_content(folder: str | os.PathLike[str]) -> str:
    """The name under which `find_folder` finds a store or model on any machine."""
    if is_packed(folder):
        raise WidemarginError(f"{folder} is a packed model, which is not sent to a cluster; use the model folder")
    return f"{os.path.abspath(folder)}#{_digest(folder)}"


def copy_path(digest: str) -> str:
    """Where this host keeps its copy of a folder."""
    return os.path.join(tempfile.gettempdir(), f"widemargin-{os.getuid()}", f"store-{digest[:16]}")


def is_here(name: str) -> bool:
    """Whether this host has a folder, under its path or as a copy."""
    digest = name.rpartition("#")[2]
    return is_original(name) or _has(copy_path(digest), digest)


def is_original(name: str) -> bool:
    """Whether this host sees the folder under its path."""
    folder, _, digest = name.rpartition("#")
    return _has(folder, digest)


def is_visible(folder: str) -> bool:
    """Whether this machine sees a folder of the driver."""
    return os.path.isdir(folder)


def blocks_of(folder: str) -> Iterator[tuple[str, int, bytes]]:
    """The files of a folder in pieces: file name, offset, content."""
    for file_name in sorted(entry.name for entry in os.scandir(folder) if entry.is_file()):
        with open(os.path.join(folder, file_name), "rb") as file:
            offset, block = 0, file.read(BLOCK_BYTES)
            while block or offset == 0:
                yield file_name, offset, block
                offset += max(1, len(block))
                block = file.read(BLOCK_BYTES)


def begin_copy(digest: str) -> None:
    """Remove what an earlier attempt left; the caller holds the lock of the copy."""
    shutil.rmtree(copy_path(digest) + ".part", ignore_errors=True)
    Path(copy_path(digest) + ".sent").unlink(missing_ok=True)
    Path(copy_path(digest) + ".part").mkdir()


def receive_block(digest: str, file_name: str, offset: int, block: bytes) -> None:
    """Write a piece of a file of a copy that is not complete yet."""
    if os.path.basename(file_name) != file_name:
        raise ValueError(f"{file_name!r} is not a valid file name")
    if is_sent(digest):  # a second answer must not change what is being checked
        raise FileExistsError(f"the copy of store {digest[:16]} is already complete")
    with open(Path(copy_path(digest) + ".part") / file_name, "r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(block)


def all_sent(digest: str) -> None:
    """Note that the last piece has arrived; the thread that answers the cluster has no time to check it."""
    Path(copy_path(digest) + ".sent").touch()


def is_sent(digest: str) -> bool:
    """Whether all pieces have arrived."""
    return os.path.exists(copy_path(digest) + ".sent")


def arrived_bytes(digest: str) -> int:
    """Bytes of a copy that have arrived."""
    with contextlib.suppress(FileNotFoundError):
        return sum(entry.stat().st_size for entry in os.scandir(copy_path(digest) + ".part"))
    return 0


def complete_copy(digest: str) -> None:
    """Give a copy its name, once all its files have the hashes in its description."""
    part, copy = copy_path(digest) + ".part", copy_path(digest)
    if is_store(part):
        open_store(part, verify=True)
    else:
        read_model(part, verify=True)
    if not _has(part, digest):
        raise WidemarginError(f"the copy of a store in {part} is not the requested store")
    replace_folder(Path(part), Path(copy))
    Path(copy_path(digest) + ".sent").unlink(missing_ok=True)


def hold(digest: str, kind: str, how: int) -> int | None:
    """A descriptor with the lock of a copy, "copying" or "used"; None when another process has it.

    `how` are the flags of `fcntl.flock`.
    """
    path = f"{copy_path(digest)}.{kind}"
    _make_private(os.path.dirname(path))
    return lock(path, os.O_RDWR | os.O_CREAT, how)


def let_go(digest: str, kind: str, descriptor: int) -> None:
    """Release a lock of `hold`; the last process that used a copy removes it."""
    if kind == "used":
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for ending in ("", ".part"):
                shutil.rmtree(copy_path(digest) + ending, ignore_errors=True)
            for ending in (".sent", ".copying", ".used"):
                Path(copy_path(digest) + ending).unlink(missing_ok=True)
    os.close(descriptor)


def _make_private(folder: str) -> None:
    """The folder of the copies; an error where another user made it, who could change them."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} is owned by another user; set TMPDIR to a folder of your own")


def _has(folder: str, digest: str) -> bool:
    try:
        return _digest(folder) == digest
    except OSError:
        return False


def _digest(folder: str | os.PathLike[str]) -> str:
    """SHA-256 of the description of a store or a model, which has the hashes of all its files."""
    name = STORE_FILE if is_store(folder) else MANIFEST
    return file_sha256(os.path.join(folder, name))
