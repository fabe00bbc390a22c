"""Files in blocks, gzipped or not, and files that appear whole or not at all.

Reading: `read_blocks` yields blocks of a fixed size; gzip is told by its first two bytes, not by the name, and is
unpacked as a stream, several members included. Writing: `atomic_file` and `atomic_folder` give a temporary neighbour
and rename it at the end, so that a kill leaves the old file or the new one. Memory: one block.

A packed file may say a few bytes and mean a full disk: unpacking stops at `unpacked_limit`, `SMALL_UNPACKED_BYTES` or
`UNPACKED_RATIO` times the size of the file, whichever is more.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import DataFormatError

__all__ = [
    "BrokenGzip",
    "PathLike",
    "Writable",
    "atomic_file",
    "atomic_folder",
    "check_file_target",
    "hashed_file",
    "is_gzip",
    "is_special",
    "open_input",
    "read_blocks",
    "refuse_bomb",
    "unpacked_limit",
    "write_hashed",
]

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 31  # zlib: largest window, gzip header and checksum
COMPRESSED_BLOCK_BYTES = 1 << 18
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
UNPACKED_RATIO = 100  # text packs 3 to 10 times, an indicator as compressed arrays 20 to 50 times; zlib could 1,032
SMALL_UNPACKED_BYTES = 1 << 30
GZIP_LEVEL = 6  # level 9 takes twice as long for 1 % less

Block = npt.NDArray[np.uint8]
PathLike = str | os.PathLike[str]


class Writable(Protocol):
    """What the writers need of a file."""

    def write(self, data: bytes, /) -> object: ...


class BrokenGzip(Exception):
    """A gzip stream that ends early or is damaged; the argument says which."""


def open_input(path: PathLike) -> io.FileIO:
    """Open a regular file for reading; a folder or a pipe is a DataFormatError, a missing file Python's own error."""
    if os.path.isdir(path):
        raise DataFormatError("this is a folder, not a file", path=os.fspath(path), remedy="name a file inside it")
    if is_special(path):  # a file is read more than once, and a pipe or a device might never end
        raise DataFormatError(
            "this is a pipe or a device, not a file", path=os.fspath(path), remedy="write the data to a file first"
        )
    return open(path, "rb", buffering=0)


def unpacked_limit(packed_bytes: int) -> int:
    """How many bytes a packed file of this size may become."""
    return max(SMALL_UNPACKED_BYTES, UNPACKED_RATIO * packed_bytes)


def refuse_bomb(path: PathLike, packed_bytes: int) -> DataFormatError:
    """The error for a file that becomes more than `unpacked_limit` allows."""
    limit = unpacked_limit(packed_bytes)
    return DataFormatError(
        f"the file has {packed_bytes:,} bytes and would become more than {limit:,}",
        path=os.fspath(path),
        remedy="if you trust it, unpack it yourself and name the result",
    )


def is_gzip(path: PathLike) -> bool:
    """Whether the file begins like a gzip stream."""
    with open_input(path) as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def read_blocks(path: PathLike, block_bytes: int) -> Iterator[Block]:
    """Yield the unpacked bytes of a file; a block is only valid until the next one. Raises BrokenGzip."""
    compressed = is_gzip(path)
    with open_input(path) as file:
        if compressed:
            size = os.fstat(file.fileno()).st_size
            left = unpacked_limit(size)
            for block in _unpack(file, block_bytes):
                left -= len(block)
                if left < 0:
                    raise refuse_bomb(path, size)
                yield block
            return
        buffer = np.empty(block_bytes, dtype=np.uint8)
        while n_read := file.readinto(buffer.data):
            yield buffer[:n_read]


def _unpack(file: io.FileIO, block_bytes: int) -> Iterator[Block]:
    """Unpack gzip members one after the other; zero bytes after the last are padding."""
    packed = file.read(COMPRESSED_BLOCK_BYTES)
    while packed:
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        while not member.eof:
            if not packed:
                raise BrokenGzip("the gzip stream ends early")
            try:
                block = member.decompress(packed, block_bytes)
            except zlib.error as error:
                raise BrokenGzip(f"the gzip stream is damaged ({error})") from None
            packed = member.unconsumed_tail
            if block:
                yield np.frombuffer(block, dtype=np.uint8)
            if not packed and not member.eof:
                packed = file.read(COMPRESSED_BLOCK_BYTES)
        packed = member.unused_data or file.read(COMPRESSED_BLOCK_BYTES)
        while packed and not packed.strip(b"\0"):
            packed = file.read(COMPRESSED_BLOCK_BYTES)
        packed = packed.lstrip(b"\0") if packed[:1] == b"\0" else packed


def check_file_target(path: PathLike) -> None:
    """Raise the error that `atomic_file` would raise for this name, before any work is lost."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "this is a folder; name a file", os.fspath(path))
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.exists(path) and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder} to write it to", os.fspath(path))
    if not os.access(path if is_special(path) else folder, os.W_OK):
        raise PermissionError(errno.EACCES, "no permission to write here", os.fspath(path))


def is_special(path: PathLike) -> bool:
    """Whether a name stands for a pipe, a terminal or another device, which is written to and never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


@contextlib.contextmanager
def atomic_file(path: PathLike, *, compress: bool | None = None) -> Iterator[io.BufferedWriter | gzip.GzipFile]:
    """A file to write that takes its name when the block ends well; gzipped when the name ends in `.gz`.

    A symbolic link stays one: the file that it names is replaced. A pipe or a device is written to directly.
    """
    check_file_target(path)
    if compress is None:
        compress = os.fspath(path).endswith(".gz")
    special = is_special(path)
    target = Path(os.path.realpath(path))
    temporary = Path(path) if special else _neighbour(target, "tmp")
    try:
        with _naming(path, temporary):
            with open(temporary, "wb" if special else "xb") as file:
                with _packed(file) if compress else contextlib.nullcontext(file) as stream:
                    yield stream
                file.flush()
                if not special:
                    os.fsync(file.fileno())
            if not special:
                os.replace(temporary, target)
    except BaseException:
        if not special:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        raise


def _packed(file: io.BufferedWriter) -> gzip.GzipFile:
    """A gzip stream into a file, without name and time in the header: the same data gives the same bytes."""
    return gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0)


@contextlib.contextmanager
def _naming(path: PathLike, temporary: Path) -> Iterator[None]:
    """Errors name what the user asked for, not the temporary neighbour; a full disk names no file at all."""
    try:
        yield
    except OSError as error:
        names_ours = isinstance(error.filename, str) and Path(error.filename).is_relative_to(temporary)
        is_ours = names_ours or (error.filename is None and error.errno in DISK_ERRORS)
        if not is_ours or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextlib.contextmanager
def atomic_folder(path: PathLike, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that takes its name when the block ends well; a symbolic link to a folder stays one."""
    target = Path(os.path.realpath(path))
    if target.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another name, or pass overwrite=True")
    temporary = _neighbour(target, "tmp")
    try:
        with _naming(path, temporary):
            temporary.mkdir()
            yield temporary
            _replace_folder(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _replace_folder(temporary: Path, target: Path) -> None:
    """Rename over an old folder, which has another name between the two renames; no data is lost by a kill."""
    if not target.exists():
        os.rename(temporary, target)
        return
    old = _neighbour(target, "old")
    os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old)


@contextlib.contextmanager
def hashed_file(path: Path) -> Iterator[HashingFile]:
    """A new file that knows the SHA-256 of what was written, synced to the disk at the end."""
    with open(path, "xb") as file:
        yield HashingFile(file)
        file.flush()
        os.fsync(file.fileno())


def write_hashed(path: Path, write: Callable[[Writable], object]) -> str:
    """Write a new file, synced to the disk, and return its SHA-256."""
    with hashed_file(path) as file:
        write(file)
    return file.sha256.hexdigest()


class HashingFile:
    """Passes bytes on and keeps their SHA-256."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)


def _neighbour(target: Path, ending: str) -> Path:
    """A hidden name in the same folder, so that renaming never copies."""
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.{ending}")
