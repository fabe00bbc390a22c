"""The folder of an unfinished training: a manifest, the data as workers map them, and the finished shards.

    MODEL/.widemargin-training/
        manifest.json                data, parameters, version, instruction set
        rows/  labels/               stores: the rows, unless they are a store already, and the rows of each label
        chosen.json                  values for parameters that are "auto"
        choices.json                 decisions about all labels together
        shards-<hash>/<first>-<last>.npz     finished labels; <hash> is the hash of the manifest

Every file gets its name when it is complete, so a kill at any moment costs at most the shards in flight. A training
with a different manifest is refused. One training at a time holds the lock. When the model is complete, the folder is
removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from widemargin.exceptions import TrainingInterrupted, UnfinishedTrainingError, WidemarginError
from widemargin.files import PathLike, atomic_file, locked_folder, remove_at_once
from widemargin.model_io.state import WORK_FOLDER

__all__ = ["WorkFolder", "plan_shards"]

MANIFEST = "manifest.json"
FORMAT = "widemargin training"
MAX_MANIFEST_BYTES = 2**24
SHARD_NAME = re.compile(r"(\d{10})-(\d{10})\.npz")
DOOMED = re.compile(re.escape(WORK_FOLDER) + r"-[0-9a-f]{12}")
Range = tuple[int, int]
_WORDS = {"package_version": "the widemargin version", "instruction_set": "the instruction set"}


class WorkFolder:
    """An unfinished training in a model folder; use `open`.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin.parallel.work_folder import WorkFolder
    >>> folder = tempfile.TemporaryDirectory()
    >>> with WorkFolder.open(folder.name, {"data": "1a2b", "n_labels": 4}) as work:
    ...     work.finished(4)
    []
    >>> folder.cleanup()
    """

    WHOLE: ClassVar[dict[str, Any]] = {"kind": "training without shards"}
    """Identity of a training in one piece, which keeps nothing and only takes the lock."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self.identity = path, dict(identity)
        self.digest = _digest(self.identity)
        self.shards = path / f"shards-{self.digest[:12]}"

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, model_folder: PathLike, identity: Mapping[str, Any], *, restart: bool = False
    ) -> Iterator[WorkFolder]:
        """The work folder of a model folder, locked, and made if it is missing.

        Parameters
        ----------
        model_folder : path
            Where the model will be.
        identity : mapping of str to JSON values
            Everything that the bytes of the model depend on; an unfinished training must have the same.
        restart : bool, default=False
            Whether to drop an unfinished training instead.
        """
        path, is_new = Path(model_folder) / WORK_FOLDER, not os.path.exists(model_folder)
        work = cls(path, identity)
        busy = "another training run is writing to this folder; wait for it to finish, or choose another folder"
        with locked_folder(path, busy, named=path.parent):
            for name in os.listdir(model_folder):  # left by a kill while a work folder was being removed
                if DOOMED.fullmatch(name):
                    shutil.rmtree(Path(model_folder) / name, ignore_errors=True)
            if restart or work.before() == cls.WHOLE:
                work._empty()
            elif work.before() is not None:
                work._refuse_others()
            work.shards.mkdir(exist_ok=True)
            if work.before() is None:
                work.write_json(MANIFEST, {"format": FORMAT, "identity": work.identity})
            try:
                yield work
            except (UnfinishedTrainingError, TrainingInterrupted):
                raise  # what is decided before the first shard is worth keeping, too
            except BaseException:
                work._remove_if_useless(is_new)
                raise

    @classmethod
    def unfinished(cls, model_folder: PathLike) -> dict[str, Any] | None:
        """The identity of an unfinished training in a model folder and its number of finished labels, if there is one.

        Examples
        --------
        >>> from widemargin.parallel.work_folder import WorkFolder
        >>> WorkFolder.unfinished("missing") is None
        True
        """
        path = Path(model_folder) / WORK_FOLDER
        identity = cls(path, {}).before()
        if identity is None or identity == cls.WHOLE:
            return None
        ranges = cls(path, identity).finished(identity.get("n_labels", 0))
        return identity | {"n_finished": sum(last - first for first, last in ranges)}

    def before(self) -> dict[str, Any] | None:
        """The identity of an unfinished training; None when there is none, or none that can be read."""
        try:
            with open(self.path / MANIFEST, "rb") as file:
                manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
        except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
            return None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            return None
        identity = manifest.get("identity")
        return identity if isinstance(identity, dict) else None

    def read_json(self, name: str) -> Any:
        """The content of a file of `write_json`; None when there is none."""
        try:
            return json.loads((self.path / name).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def write_json(self, name: str, content: Any) -> None:
        """Write a file in one step."""
        with atomic_file(self.path / name) as file:
            file.write(json.dumps(content, allow_nan=False).encode())

    def shard(self, first: int, last: int) -> Path:
        """The file of labels first … last − 1."""
        return self.shards / f"{first:010d}-{last:010d}.npz"

    def finished(self, n_labels: int) -> list[Range]:
        """Ranges of finished labels, ascending and disjoint.

        Shards of different sizes may overlap; then the first of them counts.
        """
        names = os.listdir(self.shards) if self.shards.is_dir() else []  # a kill may have come while it was removed
        found = sorted((int(match[1]), int(match[2])) for name in names if (match := SHARD_NAME.fullmatch(name)))
        ranges: list[Range] = []
        for first, last in found:
            if (ranges[-1][1] if ranges else 0) <= first < last <= n_labels:
                ranges.append((first, last))
        return ranges

    def remove(self) -> None:
        """Remove everything, under another name first: a late worker then finds no folder to write to.

        Folders go first. What the others say about a finished update is needed until nothing is left to do: after a
        kill, an update that finds no trace of itself would be made again.
        """
        for entry in [entry for entry in self.path.iterdir() if entry.is_dir()]:
            self._remove_path(entry)
        self._remove_path(self.path)

    def _remove_if_useless(self, with_model_folder: bool) -> None:
        """Remove everything after a failure before the first shard was finished."""
        names = os.listdir(self.shards) if self.shards.is_dir() else []
        if self.path.exists() and not any(map(SHARD_NAME.fullmatch, names)):
            self.remove()
            if with_model_folder:
                with contextlib.suppress(OSError):  # it is not empty, or gone
                    self.path.parent.rmdir()

    def _empty(self) -> None:
        for entry in list(self.path.iterdir()):
            self._remove_path(entry)

    def _remove_path(self, path: Path) -> None:
        remove_at_once(path, self.path.with_name(f"{WORK_FOLDER}-{secrets.token_hex(6)}"))

    def _refuse_others(self) -> None:
        before = self.before() or {}
        differing = [name for name in {**before, **self.identity} if before.get(name) != self.identity.get(name)]
        if not differing:
            return
        parts = [_difference(name, before.get(name), self.identity.get(name)) for name in differing]
        remedy = "run the command with the same settings to resume it, or add --restart (restart=True) to start over"
        if differing == ["instruction_set"]:
            remedy = f"set WIDEMARGIN_ISA={before.get('instruction_set')} to resume it, or add --restart to start over"
        raise WidemarginError(
            f"{self.path.parent} contains an unfinished training run with different settings: {'; '.join(parts)}; "
            f"{remedy}"
        )


def plan_shards(n_labels: int, shard_size: int, finished: list[Range]) -> list[Range]:
    """The ranges of labels that are left, each of at most `shard_size` labels.

    Examples
    --------
    >>> from widemargin.parallel.work_folder import plan_shards
    >>> plan_shards(10, 4, [(4, 6)])
    [(0, 4), (6, 10)]
    """
    starts, ends = [0, *(last for _, last in finished)], [*(first for first, _ in finished), n_labels]
    return [
        (first, min(first + shard_size, end))
        for start, end in zip(starts, ends, strict=True)
        for first in range(start, end, shard_size)
    ]


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "data":
        return "the data differ"
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} was {before.get(key)!r:.60} and is now {now.get(key)!r:.60}" for key in keys)
    return f"{_WORDS.get(name, name)} was {before!r:.60} and is now {now!r:.60}"


def _digest(identity: Mapping[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
