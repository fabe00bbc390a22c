"""Stores and models on machines that do not share a file system with the driver: one copy a host, found by its content.

A folder is known by the SHA-256 of its `store.json` or `model.json`, which has the hashes of all its files. A worker
that does not find a folder under the driver's path looks for its copy in the temporary folder of its host:

    widemargin-<user>/store-<hash>         the copy, which has its name once all hashes are right
                      store-<hash>.part    what has come of it; .sent says that this is all
                      store-<hash>.copying, .used    locks: of the worker that receives it, of all that use it

Locks end with their process, so that a worker that is killed stands in nobody's way.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from widemargin.data.store import STORE_FILE, is_store, open_store
from widemargin.exceptions import WidemarginError
from widemargin.model_io import read_model
from widemargin.model_io.state import MANIFEST

__all__ = ["blocks_of", "complete_copy", "find_folder", "is_here", "is_visible", "named_by_content", "receive_block"]

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
    shutil.rmtree(copy, ignore_errors=True)
    os.rename(part, copy)
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
    while True:
        _make_private(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # The one who held it may have removed the file just before we got it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


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
    with open(os.path.join(folder, name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
