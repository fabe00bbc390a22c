"""Files in blocks, gzipped or not, and files that appear whole or not at all.

Reading: `read_blocks` yields blocks of a fixed size; gzip is told by its first two bytes, not by the name, and is
unpacked as a stream, several members included. Writing: `atomic_file` and `atomic_folder` give a temporary neighbour
and rename it at the end, so that a kill leaves the old file or the new one. Memory: one block.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import DataFormatError

__all__ = ["BrokenGzip", "PathLike", "Writable", "atomic_file", "atomic_folder", "is_gzip", "open_input", "read_blocks"]

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 31  # zlib: largest window, gzip header and checksum
COMPRESSED_BLOCK_BYTES = 1 << 18
GZIP_LEVEL = 6  # level 9 takes twice as long for 1 % less

Block = npt.NDArray[np.uint8]
PathLike = str | os.PathLike[str]


class Writable(Protocol):
    """What the writers need of a file."""

    def write(self, data: bytes, /) -> object: ...


class BrokenGzip(Exception):
    """A gzip stream that ends early or is damaged; the argument says which."""


def open_input(path: PathLike) -> io.FileIO:
    """Open a regular file for reading; a folder is a DataFormatError, a missing file Python's own error."""
    if os.path.isdir(path):
        raise DataFormatError("this is a folder, not a file", path=os.fspath(path), remedy="name a file inside it")
    return open(path, "rb", buffering=0)


def is_gzip(path: PathLike) -> bool:
    """Whether the file begins like a gzip stream."""
    with open_input(path) as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def read_blocks(path: PathLike, block_bytes: int) -> Iterator[Block]:
    """Yield the unpacked bytes of a file; a block is only valid until the next one. Raises BrokenGzip."""
    compressed = is_gzip(path)
    with open_input(path) as file:
        if compressed:
            yield from _unpack(file, block_bytes)
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


@contextlib.contextmanager
def atomic_file(path: PathLike, *, compress: bool | None = None) -> Iterator[io.BufferedIOBase]:
    """A file to write that takes its name when the block ends well; gzipped when the name ends in `.gz`."""
    target = Path(path)
    if compress is None:
        compress = target.name.endswith(".gz")
    temporary = _neighbour(target, "tmp")
    try:
        with open(temporary, "xb") as file:
            if compress:
                # No name and no time in the header: the same data gives the same bytes.
                with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
                    yield packed
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def atomic_folder(path: PathLike, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that takes its name when the block ends well."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; choose another name, or pass overwrite=True")
    temporary = _neighbour(target, "tmp")
    temporary.mkdir()
    try:
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


def _neighbour(target: Path, ending: str) -> Path:
    """A hidden name in the same folder, so that renaming never copies."""
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.{ending}")
