"""Input files in blocks, gzipped or not.

`read_blocks` yields blocks of a fixed size; gzip is recognised by its first two bytes, not by the name, and is unpacked
as a stream, several members included. Memory: one block.

A packed file may say a few bytes and mean a full disk: unpacking stops at `unpacked_limit`, `SMALL_UNPACKED_BYTES` or
`UNPACKED_RATIO` times the size of the file, whichever is more.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike, is_special

__all__ = [
    "BrokenGzip",
    "is_gzip",
    "open_input",
    "read_blocks",
    "refuse_bomb",
    "unpacked_limit",
]

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 31  # zlib: largest window, gzip header and checksum
COMPRESSED_BLOCK_BYTES = 1 << 18
UNPACKED_RATIO = 100  # text packs 3 to 10 times, an indicator as compressed arrays 20 to 50 times; zlib could 1,032
SMALL_UNPACKED_BYTES = 1 << 30

Block = npt.NDArray[np.uint8]


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
