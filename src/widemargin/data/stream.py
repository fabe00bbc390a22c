"""Files larger than memory: their rows block by block, and text made into a store part by part.

Text is parsed twice: once to check all of it and to find its sizes, its index base and its labels, then part by part.
So an error comes before the first row, as in `load_data`, and rows and stores are the same as by way of memory, byte
for byte. Stores are mapped; `.npy` and `.npz` files are read whole. Memory: a part of a few megabytes of text with its
arrays, and 8 bytes per label.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.data.load import Dataset, Found, load_data, names_of, recognize_format
from widemargin.data.normalize import l2_normalize_rows
from widemargin.data.store import check_replaceable, is_store, write_description, write_store
from widemargin.data.text import (
    ParsedText,
    TextFormat,
    TextOptions,
    ZeroBased,
    are_integers,
    find_base,
    make_csr,
    make_options,
    parse_parts,
    warn_about_disorder,
    with_first_fitting,
)
from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike, atomic_folder, hashed_file

__all__ = [
    "RowStream",
    "open_rows",
    "rows_of_array",
    "scan_text",
    "store_of_rows",
    "write_block_store",
    "write_text_store",
]

Look = Callable[[ParsedText, TextFormat], None]

ROWS_PER_BLOCK = 8192  # of arrays; text comes in blocks of bytes


@dataclass(frozen=True)
@with_shared_passages
class RowStream:
    """Rows that can be read block by block, more than once.

    Parameters
    ----------
    path : str
        Where the rows come from.
    n_rows, n_features, n_values : int
        Their size; `n_values` counts the stored values.
    X : ndarray, csr_array or None
        The rows, if they are arrays or maps.
    options : TextOptions or None
        How to parse them, if they are text.

    <folder>
    >>> from widemargin.data.stream import open_rows
    >>> path = os.path.join(folder.name, "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("2 3 2\\n0 0:1\\n1 2:5\\n")
    >>> rows = open_rows(path)
    >>> rows.n_rows, [block.toarray().tolist() for block in rows.blocks()]
    (2, [[[1.0, 0.0, 0.0], [0.0, 0.0, 5.0]]])
    >>> folder.cleanup()
    """

    path: str
    n_rows: int
    n_features: int
    n_values: int
    X: Any = None
    options: TextOptions | None = None

    def blocks(self) -> Iterator[Any]:
        """The rows in order; CSR where they are sparse."""
        if self.options is None:
            for start in range(0, self.n_rows, ROWS_PER_BLOCK):
                yield self.X[start : start + ROWS_PER_BLOCK]
            return
        for part in parse_parts(self.path, self.options):
            n_rows = len(part.indptr) - 1
            if n_rows:
                indices = part.indices - (self.options.base or 0)
                yield make_csr(part.data, indices, part.indptr, (n_rows, self.n_features))


def open_rows(
    path: PathLike, *, n_features: int | None = None, zero_based: ZeroBased = "auto", multilabel: bool | None = None
) -> RowStream:
    """Check a file whose rows are to be read block by block.

    Parameters
    ----------
    path : str or path
        A data file or store of any format.
    n_features, zero_based, multilabel
        As in `load_data`.

    Returns
    -------
    RowStream

    Raises
    ------
    DataFormatError
        As `load_data` does.

    Examples
    --------
    See `RowStream`.
    """
    text_format = recognize_format(path)
    if text_format in ("xmc", "svmlight"):
        scan = functools.partial(scan_text, path, n_features, zero_based, None)
        return with_first_fitting(text_format == "xmc", multilabel, scan)
    X = load_data(path, n_features=n_features, zero_based=zero_based, multilabel=multilabel).X
    return rows_of_array(path, X)


def rows_of_array(path: PathLike, X: Any) -> RowStream:
    """Rows that are in memory, or mapped, as a stream."""
    n_values = X.nnz if sp.issparse(X) else X.size
    return RowStream(os.fspath(path), X.shape[0], X.shape[1], int(n_values), X=X)


def scan_text(
    path: PathLike, n_features: int | None, zero_based: ZeroBased, look: Look | None, text_format: TextFormat
) -> RowStream:
    """Parse all of a text file and keep only its size and index base; `look` sees every part."""
    given = None if text_format is TextFormat.XMC else n_features
    options = make_options(text_format, zero_based=zero_based, n_features=given)
    n_rows = n_values = 0
    last: ParsedText | None = None
    for part in parse_parts(path, options):
        n_rows, n_values, last = n_rows + len(part.indptr) - 1, n_values + len(part.data), part
        if look is not None:
            look(part, text_format)
    if last is None:
        raise DataFormatError("the file is empty", path=path)
    base = find_base(path, last, options)
    warn_about_disorder(path, last)
    found = last.n_features if text_format is TextFormat.XMC else max(0, last.max_feature + 1 - base)
    known = make_options(text_format, zero_based=base == 0, n_features=given)
    return RowStream(os.fspath(path), n_rows, given or found, n_values, options=known)


def store_of_rows(rows: RowStream, folder: Path) -> str:
    """The store that rows come from; otherwise one that is written here, block by block."""
    if is_store(rows.path):
        return rows.path
    if rows.options is None:
        write_store(folder, rows.X)
        return str(folder)
    shape = (rows.n_rows, rows.n_features)
    with atomic_folder(folder) as temporary:
        with contextlib.ExitStack() as stack:
            writer = _Csr(temporary, "X", shape, rows.n_values, stack)
            for block in rows.blocks():
                writer.write(block.data, block.indices, block.indptr)
        write_description(temporary, {"X": writer.entry(), "Y": None}, {}, {})
    return str(folder)


def write_block_store(
    folder: PathLike,
    shapes: tuple[tuple[int, int], tuple[int, int]],
    n_values: tuple[int, int],
    blocks: Iterable[tuple[Any, Any]],
) -> None:
    """Write a store from blocks of rows, of which only one is in memory.

    Parameters
    ----------
    folder : str or path
        The store, which must not exist.
    shapes : pair of tuples
        Shapes of X and Y.
    n_values : pair of int
        Numbers of values stored in X and Y.
    blocks : iterable of pairs of csr_array
        X and Y of the blocks, with sorted indices.
    """
    with atomic_folder(folder) as temporary:
        with contextlib.ExitStack() as stack:
            pairs = zip("XY", shapes, n_values, strict=True)
            writers = [_Csr(temporary, name, shape, count, stack) for name, shape, count in pairs]
            for block in blocks:
                for writer, part in zip(writers, block, strict=True):
                    writer.write(part.data, part.indices, part.indptr)
        entries = {name: writer.entry() for name, writer in zip("XY", writers, strict=True)}
        write_description(temporary, entries, {}, {"label_names": None, "feature_names": None})


@with_shared_passages
def write_text_store(
    folder: PathLike,
    source: PathLike,
    *,
    label_names: Any = None,
    feature_names: Any = None,
    zero_based: ZeroBased = "auto",
    normalize: bool = False,
) -> Dataset:
    """Write a store from a text file of the XMC or svmlight format, plain or gzipped.

    Parameters
    ----------
    folder : str or path
        The store; an existing one is replaced.
    source : str or path
        The file.
    label_names, feature_names, zero_based, normalize
        As in `load_data`.

    Returns
    -------
    Dataset
        With the right shapes and no values.

    <folder>
    >>> from widemargin.data.store import open_store
    >>> from widemargin.data.stream import write_text_store
    >>> path = os.path.join(folder.name, "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("2 3 2\\n0 0:1\\n1 2:5\\n")
    >>> write_text_store(os.path.join(folder.name, "store"), path).X.shape
    (2, 3)
    >>> open_store(os.path.join(folder.name, "store")).X.toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 5.0]]
    >>> folder.cleanup()
    """
    check_replaceable(folder)
    facts = _Labels()
    scan = functools.partial(scan_text, source, None, zero_based, facts.add)
    rows = with_first_fitting(recognize_format(source) == "xmc", None, scan)
    X = sp.csr_array((rows.n_rows, rows.n_features), dtype=np.float32)
    Y = facts.outline(rows.n_rows)
    names = names_of(Found(X, Y, facts.classes()), source, label_names, feature_names)
    with atomic_folder(folder, overwrite=os.path.exists(folder)) as temporary:
        with contextlib.ExitStack() as stack:
            writers = _Writers(temporary, stack, rows, facts)
            for part in parse_parts(source, _options(rows)):
                writers.add(part, normalize)
        write_description(temporary, writers.entries(), {"X": X, "Y": Y}, names)
    return Dataset(X, Y, names["label_names"], names["feature_names"], os.fspath(source))


class _Labels:
    """The facts about labels that the first pass finds. Sets: format, n_values, n_columns, values, integers."""

    def __init__(self, text_format: TextFormat | None = None) -> None:
        self.format, self.n_values, self.n_columns = text_format, 0, 0
        self.values: npt.NDArray[np.float64] = np.empty(0)  # svmlight: the numbers that occur in label lists
        self.integers = True

    def add(self, part: ParsedText, text_format: TextFormat) -> None:
        """Look at a part; a part of another format starts over."""
        if text_format is not self.format:
            vars(self).update(vars(_Labels(text_format)))
        self.n_values += len(part.labels)
        self.n_columns = part.n_labels
        if text_format is not TextFormat.XMC:
            self.integers = self.integers and are_integers(part.labels)
        if text_format is TextFormat.SVMLIGHT_MULTILABEL:
            self.values = np.union1d(self.values, part.labels)

    def classes(self) -> npt.NDArray[Any] | None:
        """svmlight: the label numbers of the columns of Y."""
        if self.format is not TextFormat.SVMLIGHT_MULTILABEL:
            return None
        return self.values.astype(np.int64) if self.integers else self.values

    def outline(self, n_rows: int) -> Any:
        """Y without its values."""
        if self.format is TextFormat.SVMLIGHT:
            return np.broadcast_to(np.zeros((), dtype=self.vector_dtype), (n_rows,))
        n_columns = self.n_columns if self.format is TextFormat.XMC else len(self.values)
        return sp.csr_array((n_rows, n_columns), dtype=np.float32)

    @property
    def vector_dtype(self) -> np.dtype[Any]:
        """Type of the labels when there is one per row."""
        return np.dtype(np.int64 if self.integers else np.float64)


class _Array:
    """A `.npy` file that is written piece by piece."""

    def __init__(self, folder: Path, name: str, dtype: Any, length: int, stack: contextlib.ExitStack) -> None:
        self.name, self.dtype, self.length = name, np.dtype(dtype), length
        self.file = stack.enter_context(hashed_file(folder / name))
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def write(self, piece: npt.NDArray[Any]) -> None:
        """Add a piece."""
        self.file.write(np.ascontiguousarray(piece, dtype=self.dtype).tobytes())

    def entry(self) -> dict[str, Any]:
        """Its entry in the store's description."""
        return {"dtype": self.dtype.str, "shape": [self.length], "sha256": self.file.sha256.hexdigest()}


class _Csr:
    """The three files of a CSR matrix."""

    def __init__(
        self, folder: Path, name: str, shape: tuple[int, int], n_values: int, stack: contextlib.ExitStack
    ) -> None:
        self.shape, self.at = shape, 0
        index = np.int32 if max(*shape, n_values) < 2**31 else np.int64
        self.data = _Array(folder, f"{name}.data.npy", np.float32, n_values, stack)
        self.indices = _Array(folder, f"{name}.indices.npy", index, n_values, stack)
        self.indptr = _Array(folder, f"{name}.indptr.npy", index, shape[0] + 1, stack)
        self.indptr.write(np.zeros(1))

    def write(self, data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any]) -> None:
        """Add rows. Sets: at."""
        self.data.write(data)
        self.indices.write(indices)
        self.indptr.write(self.at + indptr[1:].astype(np.int64))
        self.at += len(data)

    def entry(self) -> dict[str, Any]:
        """Its entry in the store's description."""
        files = {array.name: array.entry() for array in (self.data, self.indices, self.indptr)}
        return {"kind": "csr", "shape": list(self.shape), "files": files}


class _Writers:
    """The files of a store, open for parts of a text file."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, rows: RowStream, facts: _Labels) -> None:
        self.base, self.facts = _options(rows).base or 0, facts
        self.X = _Csr(folder, "X", (rows.n_rows, rows.n_features), rows.n_values, stack)
        self.Y: _Csr | _Array
        if facts.format is TextFormat.SVMLIGHT:
            self.Y = _Array(folder, "Y.npy", facts.vector_dtype, rows.n_rows, stack)
        else:
            self.Y = _Csr(folder, "Y", facts.outline(rows.n_rows).shape, facts.n_values, stack)

    def add(self, part: ParsedText, normalize: bool) -> None:
        """Write the rows of a part."""
        n_rows = len(part.indptr) - 1
        X = make_csr(part.data, part.indices - self.base, part.indptr, (n_rows, self.X.shape[1]))
        if normalize:
            X = l2_normalize_rows(X, copy=False)
        self.X.write(X.data, X.indices, X.indptr)
        if isinstance(self.Y, _Array):
            self.Y.write(part.labels)
            return
        is_xmc = self.facts.format is TextFormat.XMC
        columns = part.labels - self.base if is_xmc else np.searchsorted(self.facts.values, part.labels)
        self.Y.write(np.ones(len(columns), dtype=np.float32), columns, part.label_indptr)

    def entries(self) -> dict[str, Any]:
        """The entries of X and Y in the store's description."""
        if isinstance(self.Y, _Csr):
            return {"X": self.X.entry(), "Y": self.Y.entry()}
        vector = {"kind": "dense", "shape": [self.Y.length], "files": {self.Y.name: self.Y.entry()}}
        return {"X": self.X.entry(), "Y": vector}


def _options(rows: RowStream) -> Any:
    assert rows.options is not None  # of text
    return rows.options
