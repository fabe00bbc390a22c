"""The training rows of a model: the stores that hold them, their labels, ids and weights, and which were removed.

    segment 0        rows 0 … n₀ − 1            a store somewhere on disk, or one inside the model folder
    segment 1        rows n₀ … n₀ + n₁ − 1      rows that were added later
    …

Rows are numbered over all segments, and numbers never change. A removed row stays in its segment until `purged`
rewrites it, but it has no labels. Only X of a segment is used: the model folder has the labels, ids, weights and
removed rows, so renaming labels and removing rows rewrite no store. Sparse rows that were added later may have further
features, such as new words; earlier rows are zero there. A segment is known by the SHA-256 of its `store.json`, which
has the hashes of its files; a store that has changed is refused. Nothing is opened before `read`. Memory: the labels
and ids; `read` maps a single segment, and copies several, or rows without the removed ones.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.exceptions import DataFormatError, WidemarginError
from widemargin.files import TEMPORARY, PathLike, file_sha256, locked_folder, replace_folder, sync_folder

__all__ = ["Segment", "TrainingRows", "check_row_ids", "write_segment"]

HASH_DIGITS = 12  # as in the names of the other files of a model folder
KEPT = re.compile(rf"rows-[0-9a-f]{{{HASH_DIGITS}}}")
SHA256 = re.compile("[0-9a-f]{64}")
LARGEST_COUNT = 2**62
MAX_NAMED = 3  # ids in a message

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@with_shared_passages
@dataclass(frozen=True)
class Segment:
    """A store with training rows.

    Parameters
    ----------
    path : str
        Absolute path of the store, or its name in the model folder if it is kept there.
    sha256 : str
        Hash of its `store.json`.
    n_rows : int
        Number of its rows.

    <folder>
    >>> import numpy as np
    >>> from widemargin.data.store import write_store
    >>> from widemargin.data.training_rows import Segment
    >>> write_store(os.path.join(folder.name, "train"), np.eye(3))
    >>> segment = Segment.of_store(os.path.join(folder.name, "train"))
    >>> segment.n_rows, segment.is_kept
    (3, False)
    >>> folder.cleanup()
    """

    path: str
    sha256: str
    n_rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or not SHA256.fullmatch(self.sha256):
            raise ValueError("the hash of a store of rows must be 64 hexadecimal digits")
        if type(self.n_rows) is not int or not 0 <= self.n_rows < LARGEST_COUNT:
            raise ValueError(f"the number of rows in a store must be an integer; got {self.n_rows!r:.50}")
        if not isinstance(self.path, str) or "\0" in self.path or not (os.path.isabs(self.path) or self.is_kept):
            raise ValueError(
                f"the path of a store of rows must be absolute, or a name such as rows-{'0' * HASH_DIGITS}; got "
                f"{self.path!r:.100}"
            )
        if self.is_kept and not self.sha256.startswith(self.path[-HASH_DIGITS:]):
            raise ValueError(f"the store {self.path} has another hash than its name says")

    @property
    def is_kept(self) -> bool:
        """Whether the store is inside the model folder."""
        return bool(KEPT.fullmatch(self.path))

    @classmethod
    def of_store(cls, path: PathLike) -> Segment:
        """The segment of a store anywhere on disk; its absolute path is recorded."""
        n_rows = open_store(path).X.shape[0]
        return cls(os.path.abspath(path), file_sha256(Path(path) / STORE_FILE), int(n_rows))


@with_shared_passages
@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that a model was trained on.

    Parameters
    ----------
    segments : tuple of Segment
        The stores of the rows, in the order of the row numbers.
    Y : csr_array of int8, shape (n_stored, n_classes)
        1 for the labels of each row, in the order of the model's `classes_`; removed rows have none.
    removed : ndarray of int64, optional
        Numbers of the removed rows, ascending; by default, none is removed.
    row_ids : list of str, optional
        A name for each row. Those of rows that are not removed are distinct.
    weights : ndarray of shape (n_stored,), optional
        Weight of each row.
    folder : str, optional
        The model folder, in which kept segments are.

    <folder>
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.data.training_rows import TrainingRows, write_segment
    >>> segment = write_segment(folder.name, np.eye(3, dtype=np.float32))
    >>> Y = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1]], dtype=np.int8))
    >>> rows = TrainingRows((segment,), Y, row_ids=["a", "b", "c"], folder=folder.name)
    >>> fewer = rows.with_removed(rows.numbers_of(["b"]))
    >>> fewer.n_stored, fewer.n_rows, fewer.live_numbers()
    (3, 2, array([0, 2]))
    >>> X, Y, weights = fewer.read()
    >>> X
    array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    >>> folder.cleanup()
    """

    segments: tuple[Segment, ...]
    Y: Any
    removed: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    row_ids: list[str] | None = None
    weights: Floats | None = None
    folder: str | None = None

    def __post_init__(self) -> None:
        n_rows, removed = self.n_stored, self.removed
        if not self.segments or n_rows >= LARGEST_COUNT:
            raise ValueError("the training rows must be in at least one store")
        if not sp.issparse(self.Y) or self.Y.format != "csr" or self.Y.dtype != np.int8 or self.Y.shape[0] != n_rows:
            raise ValueError(f"the labels of the rows must be a CSR array of int8 with {n_rows:,} rows")
        if len(self.Y.data) and not (self.Y.data.min() == self.Y.data.max() == 1):
            raise ValueError("the labels of the rows must be stored as 1")
        if not isinstance(removed, np.ndarray) or removed.ndim != 1 or removed.dtype != np.int64:
            raise ValueError("the numbers of the removed rows must be a vector of int64")
        if len(removed) and not (removed[0] >= 0 and removed[-1] < n_rows and (removed[1:] > removed[:-1]).all()):
            raise ValueError(f"the numbers of the removed rows must ascend and be below {n_rows:,}")
        if np.diff(self.Y.indptr)[removed].any():
            raise ValueError("a removed row has labels")
        if self.row_ids is not None:
            check_row_ids(self.row_ids, n_rows, removed)
        if self.weights is not None:
            _check_weights(self.weights, n_rows)

    @functools.cached_property
    def n_stored(self) -> int:
        """Number of rows in the stores, with the removed ones."""
        return sum(segment.n_rows for segment in self.segments)

    @property
    def n_rows(self) -> int:
        """Number of rows without the removed ones."""
        return self.n_stored - len(self.removed)

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        """Row number by id; a removed row may have given its id to a later one."""
        ids = self.row_ids or []
        order = [*self.removed.tolist(), *self.live_numbers().tolist()] if ids else []
        return {ids[number]: number for number in order}

    def live_numbers(self) -> Ints:
        """Numbers of the rows that are not removed, ascending."""
        kept = np.ones(self.n_stored, dtype=bool)
        kept[self.removed] = False
        return np.flatnonzero(kept).astype(np.int64, copy=False)

    def numbers_of(self, ids: Iterable[Any]) -> Ints:
        """Numbers of some rows, in the order given.

        Parameters
        ----------
        ids : iterable of str or int
            Ids of the rows; if the rows have none, their numbers.

        Returns
        -------
        ndarray of int64, shape (n_ids,)

        Raises
        ------
        WidemarginError
            An id is unknown, given twice, or that of a removed row.
        """
        names = [str(name) for name in ids]
        numbers = np.array([self._number(name) for name in names], dtype=np.int64)
        gone = np.isin(numbers, self.removed)
        if gone.any():
            name = names[int(np.argmax(gone))]
            raise WidemarginError(f"the row {name!r:.100} was removed already; leave it out")
        first: dict[int, str] = {}
        for number, name in zip(numbers.tolist(), names, strict=True):
            if number in first:
                raise WidemarginError(f"the row {name!r:.100} is given twice; give each row once")
            first[number] = name
        return numbers

    def _number(self, name: str) -> int:
        if self.row_ids is not None:
            if name not in self._numbers:
                some = ", ".join(map(repr, self.row_ids[:MAX_NAMED]))
                raise WidemarginError(
                    f"no training row has the id {name!r:.100}; use the ids that were given in training, such as {some}"
                )
            return self._numbers[name]
        number = int(name) if name.isascii() and name.isdecimal() and len(name) < 20 else -1
        if not 0 <= number < self.n_stored:
            raise WidemarginError(
                f"no training row has the number {name!r:.100}; the rows have no ids, so give row numbers between 0 "
                f"and {self.n_stored - 1:,}, or train with row_ids"
            )
        return number

    def path_of(self, segment: Segment) -> str:
        """Where the store of a segment is."""
        if not segment.is_kept:
            return segment.path
        if self.folder is None:
            raise WidemarginError(
                f"the rows in {segment.path} are kept in the model folder, but the folder is not known; load the model "
                "from its folder"
            )
        return os.path.join(self.folder, segment.path)

    def read(self, verify: bool = False) -> tuple[Any, Any, Floats | None]:
        """The rows that are not removed, with their labels and weights.

        Parameters
        ----------
        verify : bool, default=False
            Whether to read all bytes once and check them, as `open_store` does.

        Returns
        -------
        X : csr_array or ndarray of shape (n_rows, n_features)
            Memory-mapped if there is one segment and no row is removed; otherwise, a copy.
        Y : csr_array of shape (n_rows, n_classes)
        weights : ndarray of shape (n_rows,) or None

        Raises
        ------
        DataFormatError
            A store is missing, damaged, or has changed since training.
        """
        parts = [self._open(segment, verify) for segment in self.segments]
        for (before, part), (first, segment) in zip(
            itertools.pairwise(parts), itertools.pairwise(self.segments), strict=True
        ):
            _check_alike(part, before, self.path_of(segment), self.path_of(first))
        live = self.live_numbers() if len(self.removed) else None
        if live is not None:
            ends = np.cumsum([segment.n_rows for segment in self.segments])
            cuts = np.split(live, np.searchsorted(live, ends[:-1]))
            starts = [0, *ends[:-1].tolist()]
            parts = [part[cut - start] for part, cut, start in zip(parts, cuts, starts, strict=True)]
        X = parts[0] if len(parts) == 1 else _stacked(parts)
        if live is None:
            return X, self.Y, self.weights
        return X, sp.csr_array(self.Y[live]), None if self.weights is None else np.asarray(self.weights)[live]

    def _open(self, segment: Segment, verify: bool) -> Any:
        """X of a segment, mapped; an error unless it is the store that was recorded."""
        path = self.path_of(segment)
        if not is_store(path):
            raise DataFormatError(
                "the store with training rows of the model is missing",
                path=path,
                remedy="move it back to this path, or train the model again with keep_rows",
            )
        if file_sha256(os.path.join(path, STORE_FILE)) != segment.sha256:
            raise DataFormatError(
                "the store with training rows of the model has changed since training",
                path=path,
                remedy="restore it from a copy, or train the model again",
            )
        X = open_store(path, verify=verify).X
        if X.shape[0] != segment.n_rows:
            raise DataFormatError(
                f"the store has {X.shape[0]:,} rows, but the model recorded {segment.n_rows:,}",
                path=path,
                remedy="the model folder is damaged; restore it from a copy, or train the model again",
            )
        return X

    def with_appended(
        self, segment: Segment, Y: Any, ids: Sequence[str] | None = None, weights: Any = None
    ) -> TrainingRows:
        """These rows followed by those of another segment.

        Parameters
        ----------
        segment : Segment
            Where the new rows are. Their type and number of features must be those of the others; sparse rows may have
            more features, in which the others are zero. This is checked if the other stores are there.
        Y : sparse indicator of shape (segment.n_rows, n_classes)
            Their labels.
        ids : sequence of str, optional
            Their ids, if and only if the other rows have ids; removed rows free theirs.
        weights : array-like of shape (segment.n_rows,), optional
            Their weights. Rows without weights count as 1 if others have weights.
        """
        new = sp.csr_array(Y)
        if new.shape != (segment.n_rows, self.Y.shape[1]):
            raise ValueError(
                f"the labels of the new rows must have the shape {(segment.n_rows, self.Y.shape[1])}; got {new.shape}"
            )
        self.check_new_ids(ids, segment.n_rows)
        names = None if ids is None or self.row_ids is None else [*self.row_ids, *ids]
        self._check_fits(segment)
        both: Floats | None = None
        if weights is not None or self.weights is not None:
            own = np.ones(self.n_stored) if self.weights is None else self.weights
            more = np.ones(segment.n_rows) if weights is None else np.asarray(weights, dtype=np.float64)
            _check_weights(more, segment.n_rows)
            both = np.concatenate([own, more])
        return replace(
            self,
            segments=(*self.segments, segment),
            Y=_indicator(sp.vstack([self.Y, new], format="csr")),
            row_ids=names,
            weights=both,
        )

    def check_new_ids(self, ids: Sequence[str] | None, n_rows: int) -> None:
        """An error unless new rows can have these ids: they must have ids if and only if the others do."""
        if (ids is None) != (self.row_ids is None):
            problem = "have ids, but the new rows have none" if ids is None else "have no ids, but the new rows have"
            remedy = "give an id for each new row" if ids is None else "leave the ids out, or train with row_ids"
            raise WidemarginError(f"the training rows of the model {problem}; {remedy}")
        if ids is None:
            return
        check_row_ids(list(ids), n_rows)
        removed = set(self.removed.tolist())
        for name in ids:
            number = self._numbers.get(name)
            if number is not None and number not in removed:
                raise WidemarginError(
                    f"the model already has a training row with the id {name!r:.100}; remove that row first, or leave "
                    "the new one out"
                )

    def _check_fits(self, segment: Segment) -> None:
        """An error unless the rows of a new segment are of the type and width of the others that are there."""
        X = self._open(segment, verify=False)
        latest = next((one for one in reversed(self.segments) if is_store(self.path_of(one))), None)
        if latest is not None:
            _check_alike(X, self._open(latest, verify=False), self.path_of(segment), self.path_of(latest))

    def with_removed(self, numbers: Any) -> TrainingRows:
        """These rows without some: they lose their labels, and stay in their stores until `purged`.

        Parameters
        ----------
        numbers : array-like of int
            Row numbers; see `numbers_of`.
        """
        more = np.unique(np.asarray(numbers, dtype=np.int64))
        if len(more) and not (more[0] >= 0 and more[-1] < self.n_stored):
            raise ValueError(f"row numbers must be between 0 and {self.n_stored - 1:,}")
        removed = np.union1d(self.removed, more).astype(np.int64, copy=False)
        if len(removed) == self.n_stored:
            raise WidemarginError("all training rows would be removed; a model needs some rows, so keep at least one")
        kept = np.ones(self.n_stored, dtype=bool)
        kept[removed] = False
        # Entries of removed rows are dropped; the others stay as they are.
        lengths = np.diff(self.Y.indptr)
        entries = np.repeat(kept, lengths)
        indptr = np.append(0, np.cumsum(np.where(kept, lengths, 0)))
        parts = (self.Y.data[entries], self.Y.indices[entries], indptr.astype(self.Y.indptr.dtype))
        return replace(self, Y=sp.csr_array(parts, shape=self.Y.shape), removed=removed)

    def purged(self) -> TrainingRows:
        """These rows with the removed ones deleted from the stores inside the model folder.

        Neighbouring stores in the model folder become one new store without the removed rows; saving the model then
        deletes the old ones. The remaining rows are numbered again: the new numbers are the places in the
        `live_numbers` of these rows.

        Raises
        ------
        WidemarginError
            A removed row is in a store outside the model folder, which is never rewritten.
        """
        if not len(self.removed):
            return self
        self.check_purgeable()
        live, segments, start = self.live_numbers(), [], 0
        for _, run in itertools.groupby(self.segments, key=lambda segment: segment.is_kept):
            some = list(run)
            end = start + sum(segment.n_rows for segment in some)
            left = live[(live >= start) & (live < end)] - start
            if len(left) == end - start:
                segments += some
            elif len(left):
                segments.append(self._rewritten(some, left))
            start = end
        return replace(
            self,
            segments=tuple(segments),
            Y=_indicator(self.Y[live]),
            removed=np.empty(0, dtype=np.int64),
            row_ids=None if self.row_ids is None else [self.row_ids[number] for number in live.tolist()],
            weights=None if self.weights is None else np.asarray(self.weights)[live],
        )

    def check_purgeable(self) -> None:
        """An error if `purged` would have to rewrite a store outside the model folder."""
        ends = np.cumsum([segment.n_rows for segment in self.segments])
        places = np.unique(np.searchsorted(ends, self.removed, side="right")).tolist()
        outside = [self.segments[place].path for place in places if not self.segments[place].is_kept]
        if outside:
            raise WidemarginError(
                f"removed rows are in {', '.join(outside)}, which is outside the model folder and is never rewritten; "
                "delete that store yourself, and train with keep_rows for a model that can delete rows"
            )

    def _rewritten(self, segments: list[Segment], live: Ints) -> Segment:
        """One kept segment with the live rows of several."""
        parts = [self._open(segment, verify=False) for segment in segments]
        whole = parts[0] if len(parts) == 1 else _stacked(parts)
        assert self.folder is not None  # `path_of` has seen it
        return write_segment(self.folder, whole[live])


def write_segment(folder: PathLike, X: Any) -> Segment:
    """Write rows into a store inside a model folder; the same rows have the same name and are written once.

    Parameters
    ----------
    folder : str or path
        The model folder; created if missing. The next `save` there deletes the store unless the model refers to it.
    X : sparse matrix or ndarray of shape (n_rows, n_features)
        The rows.

    Returns
    -------
    Segment
        Its path is the name of the store in the folder.

    Examples
    --------
    See `TrainingRows`.
    """
    root = Path(folder)
    busy = "another process is writing a model here; wait for it to finish, or choose another folder"
    with locked_folder(root, busy):
        # Inside a temporary folder: the name follows from the hash, and a kill leaves nothing that the next save keeps.
        work = root / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(6)}"
        work.mkdir()
        try:
            new = work / "rows"
            write_store(new, X)
            sync_folder(new)
            digest, n_rows = file_sha256(new / STORE_FILE), open_store(new).X.shape[0]
            name = f"rows-{digest[:HASH_DIGITS]}"
            if not _is_intact(root / name, digest):
                replace_folder(new, root / name)
                sync_folder(root)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Segment(name, digest, int(n_rows))


def _is_intact(path: Path, digest: str) -> bool:
    """Whether a store is there, with the recorded description and the files that it describes."""
    if not is_store(path) or file_sha256(path / STORE_FILE) != digest:
        return False
    try:
        open_store(path, verify=True)
    except DataFormatError:
        return False
    return True


def check_row_ids(ids: Any, n_rows: int, removed: Any = ()) -> None:
    """An error unless each row has an id, a string that is not empty, and those of rows not removed are distinct."""
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ValueError("row ids must be a list of strings")
    if len(ids) != n_rows:
        raise ValueError(f"there are {len(ids):,} row ids, but {n_rows:,} rows; give one id per row")
    if "" in ids:
        raise ValueError(f"the id of row {ids.index('')} is empty; give each row an id")
    if len(set(ids)) == len(ids):
        return
    gone: set[int] = set(map(int, removed))
    seen: set[str] = set()
    for number, name in enumerate(ids):
        if name in seen and number not in gone:
            raise ValueError(f"the row id {name!r:.100} is repeated; give each row its own id")
        if number not in gone:
            seen.add(name)


def _check_weights(weights: Any, n_rows: int) -> None:
    if not isinstance(weights, np.ndarray) or weights.dtype != np.float64 or weights.shape != (n_rows,):
        raise ValueError(f"the weights of the rows must be a vector of {n_rows:,} float64 numbers")
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError("the weights of the rows must be finite and not negative")


def _check_alike(X: Any, first: Any, path: str, first_path: str) -> None:
    """An error unless rows have the type and format of earlier ones, and their width; sparse ones may be wider."""
    gains_features = sp.issparse(X) and sp.issparse(first) and X.shape[1] > first.shape[1]
    for what, own, others in (
        ("number of features", X.shape[1], X.shape[1] if gains_features else first.shape[1]),
        ("type", X.dtype, first.dtype),
        ("format", *("sparse" if sp.issparse(rows) else "dense" for rows in (X, first))),
    ):
        if own != others:
            raise DataFormatError(
                f"the rows have the {what} {own}, but those of {first_path} have {others}",
                path=path,
                remedy=f"write the rows with the {what} {others}",
            )


def _stacked(parts: list[Any]) -> Any:
    """Rows below each other; sparse ones may have fewer features than later ones, where they are zero."""
    if not sp.issparse(parts[0]):
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    wide = [sp.csr_array((part.data, part.indices, part.indptr), shape=(part.shape[0], width)) for part in parts]
    return sp.csr_array(sp.vstack(wide, format="csr"))


def _indicator(Y: Any) -> Any:
    """An indicator as `TrainingRows` has it: int8, each label of a row once."""
    plain = sp.csr_array(Y, dtype=np.int8)
    plain.sum_duplicates()
    plain.data = np.ones_like(plain.data)
    return plain
