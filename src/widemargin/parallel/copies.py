"""Stores and models on machines that do not share a file system with the driver: copied once a host, and found there.

A folder is known by the SHA-256 of its `store.json` or `model.json`, which has the hashes of all its files. A worker
that does not find a folder under the driver's path looks for its copy in the temporary folder of its host. Copies are
sent through the cluster's own connections in blocks, to one worker of each host, and take their name when they are
complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from widemargin.data.store import STORE_FILE, is_store, open_store
from widemargin.exceptions import WidemarginError
from widemargin.model_io import read_model
from widemargin.model_io.state import MANIFEST

__all__ = ["copy_where_missing", "find_folder", "is_visible", "named_by_content", "remove_copies"]

BLOCK_BYTES = 2**25
WAIT_S = 600.0  # for a copy that another worker of the host receives
POLL_S = 0.2


def find_folder(path: str) -> str:
    """The folder itself, or its copy on this host."""
    if "#" not in path:
        return path
    folder, _, digest = path.rpartition("#")
    if _has(folder, digest):
        return folder
    copy, deadline = copy_path(digest), time.monotonic() + WAIT_S
    while not _has(copy, digest):
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


def copy_where_missing(run_on: Callable[..., dict[str, Any]], hosts: dict[str, str], names: list[str]) -> int:
    """Send stores to the hosts that do not have them.

    Parameters
    ----------
    run_on : callable
        `run_on(function, *arguments, workers=addresses)` runs a function on workers, as `Cluster.run_everywhere`.
    hosts : dict of str to str
        Host of every worker by its address.
    names : list of str
        What `named_by_content` gave for each store.

    Returns
    -------
    int
        How many copies were sent.
    """
    one_a_host = {host: address for address, host in hosts.items()}
    n_sent = 0
    for name in names:
        present = run_on(is_here, name, workers=list(one_a_host.values()))
        for address, has_it in present.items():
            if not has_it:
                _send(run_on, address, name)
                n_sent += 1
    return n_sent


def is_here(name: str) -> bool:
    """Whether this host has a store, under its path or as a copy."""
    folder, _, digest = name.rpartition("#")
    return _has(folder, digest) or _has(copy_path(digest), digest)


def receive_block(digest: str, file_name: str, offset: int, block: bytes) -> None:
    """Write a block of a file of a copy that is not complete yet."""
    if os.path.basename(file_name) != file_name:
        raise ValueError(f"{file_name!r} is not the name of a file")
    folder = Path(copy_path(digest) + ".part")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder / file_name, "r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(block)


def complete_copy(digest: str) -> None:
    """Give a copy its name, once all files are there with the hashes that its description has."""
    part, copy = copy_path(digest) + ".part", copy_path(digest)
    if is_store(part):
        open_store(part, verify=True)
    else:
        read_model(part, verify=True)
    shutil.rmtree(copy, ignore_errors=True)
    os.rename(part, copy)


def remove_copies(names: list[str]) -> None:
    """Remove this host's copies of stores; the stores themselves stay."""
    for name in names:
        copy = copy_path(name.rpartition("#")[2])
        for folder in (copy, copy + ".part"):
            shutil.rmtree(folder, ignore_errors=True)


def is_visible(folder: str) -> bool:
    """Whether this machine sees a folder of the driver."""
    return os.path.isdir(folder)


def _send(run_on: Callable[..., dict[str, Any]], address: str, name: str) -> None:
    folder, _, digest = name.rpartition("#")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    for file_name in names:
        with open(os.path.join(folder, file_name), "rb") as file:
            offset = 0
            while (block := file.read(BLOCK_BYTES)) or offset == 0:
                run_on(receive_block, digest, file_name, offset, block, workers=[address])
                offset += len(block)
                if not block:
                    break
    run_on(complete_copy, digest, workers=[address])


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
