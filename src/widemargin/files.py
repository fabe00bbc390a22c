"""Files that are written whole or not at all and read with care, their hashes and locks, and strict JSON.

This is the only module that renames a file. A writer fills a temporary neighbour, syncs it to the disk and renames it
at the end, so that a kill at any moment leaves the old file or the new one. `read_blocks` reads plain and gzipped files
(recognised by their first two bytes) in blocks of a fixed size. A packed file of a few bytes may unpack to more than
the disk holds: unpacking stops at `unpacked_limit`. Memory: one block.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import json
import math
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import DataFormatError

__all__ = [
    "TEMPORARY",
    "BrokenGzip",
    "HashingFile",
    "PathLike",
    "Writable",
    "atomic_file",
    "atomic_folder",
    "check_file_target",
    "copy_folder",
    "file_sha256",
    "hashed_file",
    "is_gzip",
    "is_special",
    "lock",
    "locked_folder",
    "open_input",
    "parse_json",
    "read_blocks",
    "read_lines",
    "refuse_bomb",
    "refuse_input_as_output",
    "remove_at_once",
    "replace_folder",
    "sync_folder",
    "unpacked_limit",
    "write_hashed",
]

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.EBADF}
GZIP_LEVEL = 6  # level 9 takes twice as long for 1 % less
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 31  # zlib: largest window, gzip header and checksum
COMPRESSED_BLOCK_BYTES = 1 << 18
UNPACKED_RATIO = 100  # text packs 3 to 10 times, an indicator as compressed arrays 20 to 50 times; zlib could 1,032
SMALL_UNPACKED_BYTES = 1 << 30
TEMPORARY = ".tmp-widemargin-"
"""Start of the names of unfinished files in a model folder; the next writer removes them."""

PathLike = str | os.PathLike[str]
Block = npt.NDArray[np.uint8]


class Writable(Protocol):
    """What the writers need of a file."""

    def write(self, data: bytes, /) -> object: ...


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
                # Without name and time in the header, the same data gives the same bytes.
                packed = gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) if compress else None
                with packed or contextlib.nullcontext():
                    yield packed or file
                file.flush()
                if not special:
                    os.fsync(file.fileno())
            if not special:
                os.replace(temporary, target)
    except BaseException:
        if not special:
            temporary.unlink(missing_ok=True)
        raise


def check_file_target(path: PathLike) -> None:
    """Raise the error that `atomic_file` would raise for this name, before any work is lost."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "this is a folder; choose a file name", os.fspath(path))
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.exists(path) and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist; create it first", os.fspath(path))
    if not os.access(path if is_special(path) else folder, os.W_OK):
        raise PermissionError(errno.EACCES, "you do not have permission to write here", os.fspath(path))


def refuse_input_as_output(output: PathLike, *inputs: PathLike | None) -> None:
    """Raise an error if writing a file or folder would replace or change an input.

    The output must not be an input under any name (relative, symbolic link, hard link), lie inside an input folder,
    such as a store or a model, or be a folder around an input.

    Parameters
    ----------
    output : str or path
        What will be written; it need not exist.
    *inputs : str, path or None
        The inputs; None and names that do not exist are skipped.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from widemargin.files import refuse_input_as_output
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = pathlib.Path(folder, "data.txt")
    ...     _ = data.write_text("1 2 3\\n0 0:1\\n")
    ...     refuse_input_as_output(data.with_name("predictions.tsv"), data)
    ...     try:
    ...         refuse_input_as_output(data, data)
    ...     except ValueError as error:
    ...         print(str(error).partition("; ")[2])
    choose another output name
    """
    target = Path(output)
    above = list(filter(Path.exists, Path(os.path.realpath(output)).parents))
    for given in inputs:
        if given is None or not os.path.exists(given):
            continue
        source = Path(given)
        how = ""
        if target.exists() and target.samefile(source):
            how = "is the same as" if target.is_dir() else "would overwrite"
        elif source.is_dir() and any(map(source.samefile, above)):
            how = "lies inside"
        elif target.is_dir() and any(map(target.samefile, Path(os.path.realpath(source)).parents)):
            how = "is a folder that contains"
        if how:
            raise ValueError(f"the output {output} {how} the input {source}; choose another output name")


def is_special(path: PathLike) -> bool:
    """Whether a name stands for a pipe, a terminal or another device, which is written to and never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


@contextlib.contextmanager
def atomic_folder(path: PathLike, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that takes its name when the block ends well; a symbolic link to a folder stays one."""
    target = Path(os.path.realpath(path))
    if target.exists() and not overwrite:
        raise FileExistsError(f"{path} already exists; choose another name, or pass overwrite=True")
    temporary = _neighbour(target, "tmp")
    try:
        with _naming(path, temporary):
            temporary.mkdir()
            yield temporary
            replace_folder(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def replace_folder(temporary: Path, target: Path) -> None:
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


def copy_folder(source: Path, target: Path) -> None:
    """Copy the regular files of a folder to a new one, which takes its name at the end.

    Files are hard links where the file system allows it: they are never changed in place.
    """
    temporary = target.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(6)}")
    try:
        temporary.mkdir()
        for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
            if entry.is_file(follow_symlinks=False):
                _link_or_copy(Path(entry), temporary / entry.name)
        sync_folder(temporary)
        replace_folder(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links; what else is wrong, copying will say
        with open(source, "rb") as file:
            write_hashed(target, lambda copy: shutil.copyfileobj(file, copy))


def remove_at_once(path: Path, doomed: Path) -> None:
    """Rename a file or folder, then remove it: a late process finds nothing to write to."""
    os.rename(path, doomed)
    if doomed.is_dir() and not doomed.is_symlink():
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        doomed.unlink()


class HashingFile:
    """Passes bytes on and keeps their number and SHA-256."""

    def __init__(self, file: Writable) -> None:
        self._file, self.sha256, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        """Write, as a file does."""
        self.sha256.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)


@contextlib.contextmanager
def hashed_file(path: Path) -> Iterator[HashingFile]:
    """A new file that knows the SHA-256 of what was written, synced to the disk at the end."""
    with open(path, "xb") as file:
        yield HashingFile(file)
        file.flush()
        os.fsync(file.fileno())


def write_hashed(
    path: Path, write: Callable[[Any], object], *, name_of: Callable[[str], str] | None = None
) -> tuple[str, str, int]:
    """Write a new file, synced to the disk.

    Parameters
    ----------
    path : Path
        Where to; with `name_of` the temporary name.
    write : callable
        Writes to the file that it is given.
    name_of : callable, optional
        The final name in the same folder, given the hash; a file of that name is replaced.

    Returns
    -------
    tuple of (name, sha256, size)
        Of the file.
    """
    with hashed_file(path) as file:
        write(file)
    digest, name = file.sha256.hexdigest(), path.name
    if name_of is not None:
        name = name_of(digest)
        os.replace(path, path.with_name(name))
    return name, digest, file.size


def file_sha256(path: PathLike) -> str:
    """SHA-256 of the content of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames durable; a network file system that cannot sync folders is no error."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_folder(folder: Path, busy: str, *, named: Path | None = None) -> Iterator[None]:
    """Make a folder if need be and hold its lock; a BlockingIOError says `busy` of it, or of `named`."""
    descriptor = lock(folder, os.O_RDONLY, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if descriptor is None:
        raise BlockingIOError(errno.EWOULDBLOCK, busy, str(named or folder))
    try:
        yield
    finally:
        os.close(descriptor)


def lock(path: PathLike, flags: int, how: int) -> int | None:
    """A descriptor with the lock of a file or folder; None when another process has it.

    On file systems without locks, the lock is skipped.

    Parameters
    ----------
    path : path
        The file, or with `flags` of `os.O_RDONLY` a folder, which is made if need be.
    flags : int
        Of `os.open`.
    how : int
        Of `fcntl.flock`.
    """
    while True:
        if flags == os.O_RDONLY:
            os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        # The one who held the lock may have removed the file just before we got it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


class BrokenGzip(Exception):
    """A gzip stream that ends early or is damaged; the argument says which."""


def open_input(path: PathLike) -> io.FileIO:
    """Open a regular file for reading; a folder or a pipe is a DataFormatError, a missing file Python's own error."""
    if os.path.isdir(path):
        raise DataFormatError("this is a folder, not a file", path=path, remedy="name a file inside it")
    # A file is read more than once, and a pipe or a device might never end.
    if os.path.exists(path) and not os.path.isfile(path):
        raise DataFormatError(
            "this is a pipe or a device, not a file", path=path, remedy="write the data to a file first"
        )
    return open(path, "rb", buffering=0)


def unpacked_limit(packed_bytes: int) -> int:
    """Number of bytes that a packed file of this size may unpack to."""
    return max(SMALL_UNPACKED_BYTES, UNPACKED_RATIO * packed_bytes)


def refuse_bomb(path: PathLike, packed_bytes: int) -> DataFormatError:
    """The error for a file that unpacks to more than `unpacked_limit` allows."""
    limit = unpacked_limit(packed_bytes)
    return DataFormatError(
        f"the file has {packed_bytes:,} bytes and would decompress to more than {limit:,} bytes",
        path=path,
        remedy="if you trust it, decompress it yourself and use the result",
    )


def is_gzip(path: PathLike) -> bool:
    """Whether the file starts like a gzip stream."""
    with open_input(path) as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def read_blocks(path: PathLike, block_bytes: int) -> Iterator[Block]:
    """Yield the unpacked bytes of a file; a block is only valid until the next one. Raises BrokenGzip."""
    with open_input(path) as file:
        magic = file.read(len(GZIP_MAGIC))
        file.seek(0)
        if magic == GZIP_MAGIC:
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


def read_lines(path: PathLike) -> list[str]:
    """The lines of a small UTF-8 file without their ends; a byte-order mark is skipped."""
    with open_input(path) as file:
        data = file.readall()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataFormatError(
            "the file is not UTF-8 text", path=path, line=line, remedy="convert it to UTF-8"
        ) from error
    # Not str.splitlines, which also cuts at characters that may stand inside a name, such as U+2028.
    return [line.removesuffix("\r") for line in text.split("\n")]


def parse_json(text: bytes) -> Any:
    """The value of a JSON text in UTF-8 that may be hostile: no inf or nan, no repeated keys, no endless nesting.

    A ValueError says what is wrong with it.

    Examples
    --------
    >>> from widemargin.files import parse_json
    >>> parse_json(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parse_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' is repeated
    """
    try:
        return json.loads(
            text.decode(), parse_constant=_finite_float, parse_float=_finite_float, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.50} is not a finite number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r:.50} is repeated")
    return values


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


def _neighbour(target: Path, ending: str) -> Path:
    """A hidden name in the same folder, so that renaming never copies."""
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.{ending}")
