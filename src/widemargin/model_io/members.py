"""Where the files of a stored model come from: a folder, or one `.wm` file that holds them all.

    byte 0    magic, 16 bytes; layout version, uint32; zero, uint32; size of the directory, uint64
    byte 32   SHA-256 of the directory, 32 bytes
    byte 64   the directory, JSON: {"files": {name: {"offset", "size", "sha256"}, …}}
    then      the files of the model folder as they are, each at an offset that is a multiple of 64

Numbers are little-endian. Offsets count from the start of the file. Arrays are therefore aligned when they are mapped,
and nothing is unpacked. The reader of models sees the same names, sizes and bytes in both forms. Memory: the directory.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

from widemargin.exceptions import ModelFormatError
from widemargin.files import parse_json
from widemargin.model_io.state import MANIFEST, WORK_FOLDER

__all__ = [
    "ALIGNMENT", "HEADER", "MAGIC", "PACKED_VERSION", "USE_FOLDER", "Member", "Members", "fail", "is_packed",
    "open_members",
]  # fmt: skip

MAGIC = b"\x89widemargin\r\n\x1a\n\x00"  # as PNG does: copies that change line ends or drop the high bit show
HEADER = struct.Struct("<16sIIQ32s")
PACKED_VERSION = 1
ALIGNMENT = 64
MAX_DIRECTORY_BYTES = 2**24  # a directory of ours has a few kilobytes
LARGEST_COUNT = 2**62
DAMAGED = "the model is damaged; restore it from a copy or save the model again"
USE_FOLDER = "use the folder in which the model was saved, or a file written by widemargin pack"


def fail(path: Path, problem: str, remedy: str = DAMAGED) -> NoReturn:
    """Raise the ModelFormatError for a file of a model."""
    raise ModelFormatError(f"{path}: {problem}; {remedy}")


class Member(io.RawIOBase):
    """One file of a model, open for reading: `size` bytes of `file`, from `start` on."""

    def __init__(self, file: io.BufferedReader, start: int, size: int, *, owned: bool) -> None:
        self.file, self.start, self.size = file, start, size
        self._owned, self._place = owned, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._place = offset + (0, self._place, self.size)[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self.size - self._place)]
        self.file.seek(self.start + self._place)
        n_read = self.file.readinto(view) if len(view) else 0
        self._place += n_read
        return n_read

    def close(self) -> None:
        if self._owned:
            self.file.close()
        super().close()


class Members:
    """The files of a model folder, by name; `members / name` is the name of a file in messages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stays open."""

    def check_manifest(self) -> None:
        """Raise the error for a folder without a model."""
        if not (self.path / MANIFEST).exists():
            remedy = USE_FOLDER
            if (self.path / WORK_FOLDER).exists():
                remedy = "training is unfinished; run the same train command again to resume it"
            fail(self.path / MANIFEST, "missing", remedy)

    def open(self, name: str) -> Member:
        """Open a regular file of the folder; a link that leads out of it, a pipe or a device is refused unopened."""
        path = self.path / name
        try:
            real = Path(os.path.realpath(path, strict=True))
            if real.parent != Path(os.path.realpath(self.path)):
                fail(path, "the link points outside the model folder", "replace the link with the file itself")
            if not stat.S_ISREG(os.stat(real).st_mode):
                fail(path, "this is not a regular file")
            file = open(real, "rb")  # noqa: SIM115 — the member closes it
        except FileNotFoundError:
            fail(path, "missing")
        except OSError as error:
            fail(path, f"the file cannot be opened ({error.strerror})", "check the permissions and the disk")
        return Member(file, 0, os.fstat(file.fileno()).st_size, owned=True)


class _Place(NamedTuple):
    """Where a file is; the manifest has the hashes of all files but its own."""

    offset: int
    size: int
    sha256: Any


class PackedMembers(Members):
    """The files inside a `.wm` file, which stays open until the block ends.

    The file that was opened is read to the end, even if another one takes its name meanwhile.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._file = open(path, "rb")  # noqa: SIM115 — __exit__ closes it
        except OSError as error:
            fail(path, f"the file cannot be opened ({error.strerror})", "check the permissions and the disk")
        try:
            self._places = self._read_directory()
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check_manifest(self) -> None:
        """Raise the error for a file without a description, or with another one than was packed."""
        if MANIFEST not in self._places:
            fail(self.path / MANIFEST, "missing")
        if hashlib.file_digest(self.open(MANIFEST), "sha256").hexdigest() != self._places[MANIFEST].sha256:
            fail(self.path / MANIFEST, "the content differs from what was saved (SHA-256 mismatch)")

    def open(self, name: str) -> Member:
        place = self._places.get(name)
        if place is None:
            fail(self.path / name, "missing")
        return Member(self._file, place.offset, place.size, owned=False)

    def _read_directory(self) -> dict[str, _Place]:
        """Where each file is; every place is inside the file, aligned, and no two overlap."""
        length, header = os.fstat(self._file.fileno()).st_size, self._file.read(HEADER.size)
        if header[: len(MAGIC)] != MAGIC:
            fail(self.path, "the file is not a packed model", USE_FOLDER)
        if len(header) < HEADER.size:
            fail(self.path, "the file ends within its header")
        _, version, zero, n_bytes, digest = HEADER.unpack(header)
        if version != PACKED_VERSION:
            remedy = "load it with the release of widemargin that wrote it, or a newer one"
            fail(self.path, f"the file has layout version {version}, but this release reads {PACKED_VERSION}", remedy)
        if zero != 0 or n_bytes > min(MAX_DIRECTORY_BYTES, length - HEADER.size):
            fail(self.path, "the header of the file is damaged")
        text = self._file.read(n_bytes)
        if hashlib.sha256(text).digest() != digest:
            fail(self.path, "the directory of the file differs from what was saved (SHA-256 mismatch)")
        try:
            content = parse_json(text)
        except ValueError as error:
            fail(self.path, f"the directory of the file is not valid JSON ({error})")
        files = content.get("files") if isinstance(content, dict) else None
        if not isinstance(files, dict):
            fail(self.path, "the directory of the file has no table of files")
        places = {name: self._checked_place(name, entry, length) for name, entry in files.items()}
        end = HEADER.size + n_bytes
        for place in sorted((place for place in places.values() if place.size), key=lambda place: place.offset):
            if place.offset < end:
                fail(self.path, "two parts of the file overlap")
            end = place.offset + place.size
        return places

    def _checked_place(self, name: str, entry: Any, length: int) -> _Place:
        entry = entry if isinstance(entry, dict) else {}
        place = _Place(entry.get("offset"), entry.get("size"), entry.get("sha256"))
        if not all(type(number) is int and 0 <= number < LARGEST_COUNT for number in place[:2]):
            fail(self.path, f"the directory has no offset and size of {name!r:.100}")
        if place.offset % ALIGNMENT or place.offset + place.size > length:
            fail(self.path, f"the place of {name!r:.100} is not inside the file")
        return place


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether this is a file, and so not a model folder."""
    return os.path.isfile(path)


def open_members(path: Path) -> Members:
    """The files of a model folder or of a `.wm` file; an error if there is neither."""
    if path.is_dir():
        return Members(path)
    if is_packed(path):
        return PackedMembers(path)
    if path.exists():
        raise NotADirectoryError(f"{path}: this is neither a model folder nor a file; {USE_FOLDER}")
    raise FileNotFoundError(f"{path}: the model folder does not exist; {USE_FOLDER}")
