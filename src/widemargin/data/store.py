"""Data as arrays on disk: the store, a folder that training maps instead of reading, and NumPy's `.npy` and `.npz`.

    store.json                                     version, shapes, types, SHA-256 of every file
    X.data.npy  X.indices.npy  X.indptr.npy        features as CSR (or X.npy, dense)
    Y.data.npy  Y.indices.npy  Y.indptr.npy        labels as CSR (or Y.npy, a vector); may be absent
    feature_names.txt  label_names.txt             one name per line; may be absent

    .npy    one dense array
    .npz    data, indices, indptr, shape, format           one sparse matrix (scipy's layout, CSR)
    .npz    X or X_data, X_indices, X_indptr, X_shape      features, and the same with Y (or y) for labels

A store is written under a temporary name and renamed, so it is there completely or not at all. Everything is checked
before use – types, shapes, rising indptr, indices in range, finite values – because a CSR matrix with wrong indices
makes compiled code read outside its arrays; a store is checked in full only with `verify=True`, its outline always.
Pickled objects are never loaded, and an archive that would unpack to much more than its size is refused. Memory: the
arrays, or the pages of a store that are touched.
"""

from __future__ import annotations

import json
import os
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.data.names import NamesLike, check_names, read_names, write_names
from widemargin.exceptions import DataFormatError
from widemargin.files import (
    PathLike,
    atomic_file,
    atomic_folder,
    file_sha256,
    open_input,
    parse_json,
    refuse_bomb,
    unpacked_limit,
    write_hashed,
)

__all__ = [
    "NPY_MAGIC", "STORE_FILE", "ZIP_MAGIC", "Store", "check_replaceable", "check_together", "is_store", "open_store",
    "read_matrix", "read_npz", "write_description", "write_matrix", "write_npz", "write_store",
]  # fmt: skip

STORE_FILE = "store.json"
STORE_FORMAT = "widemargin-store"
STORE_VERSION = 1
MAX_STORE_FILE_BYTES = 1 << 20  # store.json is about 2 KB
CSR_PARTS = ("data", "indices", "indptr")
NAME_FILES = {"feature_names": "feature_names.txt", "label_names": "label_names.txt"}
VALUE_KINDS = "biuf"
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
LARGEST_COUNT = 2**62  # above it, numbers of 64 bits overflow in sums
LAST_CHARACTER = 0x10FFFF  # of Unicode
# What NumPy and zipfile raise on damaged or hostile files: a pickled object is a ValueError with allow_pickle=False, a
# header that claims a huge array a MemoryError.
READ_ERRORS = (
    ValueError,
    EOFError,
    KeyError,
    OSError,
    MemoryError,
    OverflowError,
    TypeError,
    RuntimeError,  # an encrypted archive; NotImplementedError for an unknown compression
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def _check_csr(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, ...], path: str
) -> None:
    """Raise DataFormatError unless the arrays are a CSR matrix of the shape with finite numbers."""
    _check_csr_outline(data, indices, indptr, shape, path)
    if len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
        raise DataFormatError(f"column indices must be between 0 and {shape[1] - 1}, but some are not", path=path)
    _check_finite(data, path)


def _check_csr_outline(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, ...], path: str
) -> None:
    """The part of `_check_csr` that reads `indptr` only."""
    for name, array, kinds in (("data", data, "biuf"), ("indices", indices, "iu"), ("indptr", indptr, "iu")):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise DataFormatError(
                f"{name} must be a numeric vector; got type {array.dtype} and shape {array.shape}", path=path
            )
    if len(shape) != 2 or min(shape) < 0 or max(shape) >= LARGEST_COUNT:
        raise DataFormatError(f"the shape {shape} of the matrix is invalid", path=path)
    if len(indptr) != shape[0] + 1:
        raise DataFormatError(f"indptr has {len(indptr)} entries, but the matrix has {shape[0]} rows", path=path)
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(data):
        raise DataFormatError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}, but there are {len(indices)} indices and {len(data)} "
            "values",
            path=path,
        )
    if not (indptr[1:] >= indptr[:-1]).all():
        raise DataFormatError("indptr must not decrease", path=path)


def _check_dense(array: npt.NDArray[Any], path: str) -> None:
    """Raise DataFormatError unless the array is one- or two-dimensional, of numbers that are finite or of strings."""
    if array.ndim not in (1, 2) or array.dtype.kind not in "biufU" or (array.dtype.kind == "U" and array.ndim == 2):
        raise DataFormatError(f"an array of type {array.dtype} and shape {array.shape} is not supported", path=path)
    if array.dtype.kind == "U":
        _check_characters(array, path)
    _check_finite(array, path)


def _check_characters(strings: npt.NDArray[Any], path: str) -> None:
    """Strings are stored as numbers of characters, of which there are `LAST_CHARACTER` + 1."""
    codes = np.ascontiguousarray(strings.astype(strings.dtype.newbyteorder("="), copy=False)).reshape(-1)
    if codes.size and codes.dtype.itemsize and codes.view(np.uint32).max() > LAST_CHARACTER:
        raise DataFormatError("the array contains strings with invalid characters", path=path)


def _check_finite(values: npt.NDArray[Any], path: str) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DataFormatError("the values must be finite", path=path, remedy="remove or replace NaN and infinity")


@with_shared_passages
def read_matrix(path: PathLike) -> Any:
    """Read one matrix: a `.npy` file, or a `.npz` file in the layout of `scipy.sparse.save_npz`.

    Parameters
    ----------
    path : str or path
        The file; its content decides, not its name.

    Returns
    -------
    matrix : ndarray or csr_array
        Other sparse formats are converted to CSR.

    <folder>
    >>> import numpy as np
    >>> from widemargin.data.store import read_matrix, write_matrix
    >>> path = os.path.join(folder.name, "X.npy")
    >>> write_matrix(path, np.eye(2))
    >>> read_matrix(path)
    array([[1., 0.],
           [0., 1.]])
    >>> folder.cleanup()
    """
    name = os.fspath(path)
    arrays = _load(path)
    if isinstance(arrays, np.ndarray):
        _check_dense(arrays, name)
        return arrays
    if "format" not in arrays:
        raise DataFormatError(
            "the file does not contain exactly one sparse matrix",
            path=name,
            remedy="use read_npz if X and Y are in one file",
        )
    return _sparse_from(arrays, "", name)


@with_shared_passages
def write_matrix(path: PathLike, matrix: Any) -> None:
    """Write one matrix, dense as `.npy` or sparse as `.npz` in the layout of `scipy.sparse.save_npz`.

    Parameters
    ----------
    path : str or path
        The file, whose name must end accordingly.
    matrix : ndarray, sparse matrix or sparse array
        What to write.

    <folder>
    >>> import scipy.sparse as sp
    >>> from widemargin.data.store import write_matrix
    >>> write_matrix(os.path.join(folder.name, "X.npz"), sp.eye_array(3, format="csr"))
    >>> os.listdir(folder.name)
    ['X.npz']
    >>> folder.cleanup()
    """
    ending = ".npz" if sp.issparse(matrix) else ".npy"
    if not os.fspath(path).endswith(ending):
        raise ValueError(f"the file name for this matrix must end in {ending}; got {os.fspath(path)!r}")
    with atomic_file(path, compress=False) as file:
        if sp.issparse(matrix):
            sp.save_npz(file, sp.csr_array(matrix))
        else:
            np.lib.format.write_array(file, np.ascontiguousarray(matrix), allow_pickle=False)


@with_shared_passages
def read_npz(path: PathLike) -> tuple[Any, Any]:
    """Read features and labels from one `.npz` file.

    Parameters
    ----------
    path : str or path
        A file written by `write_npz`, or any `.npz` with a dense `X` and, possibly, `Y` or `y`; other members are
        ignored. A file of one sparse matrix (scipy's layout) gives X without labels.

    Returns
    -------
    X : ndarray or csr_array of shape (n_samples, n_features)
    Y : ndarray, csr_array or None
        Labels: a vector, an indicator, or None when there are none.

    <folder>
    >>> import numpy as np
    >>> from widemargin.data.store import read_npz, write_npz
    >>> path = os.path.join(folder.name, "data.npz")
    >>> write_npz(path, np.eye(2), np.array([0, 1]))
    >>> X, y = read_npz(path)
    >>> X.shape, y.tolist()
    ((2, 2), [0, 1])
    >>> folder.cleanup()
    """
    name = os.fspath(path)
    arrays = _load(path)
    if isinstance(arrays, np.ndarray):
        raise DataFormatError("the file contains a single array and is not an .npz file", path=name)
    if "format" in arrays and "X" not in arrays:
        return _sparse_from(arrays, "", name), None
    X = _member(arrays, "X", name)
    if X is None:
        raise DataFormatError(
            f"the file contains no X, only {sorted(arrays)[:10]}",
            path=name,
            remedy="name the features X (dense), or X_data, X_indices, X_indptr and X_shape (CSR)",
        )
    Y = _member(arrays, "Y", name)
    Y = _member(arrays, "y", name) if Y is None else Y
    check_together(X, Y, name)
    return X, Y


def write_npz(path: PathLike, X: Any, Y: Any = None) -> None:
    """Write features and labels into one `.npz` file.

    Parameters
    ----------
    path : str or path
        The file.
    X : ndarray, sparse matrix or sparse array, of shape (n_samples, n_features)
        Features.
    Y : array of shape (n_samples,) or indicator of shape (n_samples, n_labels), optional
        Labels.

    Examples
    --------
    See `read_npz`.
    """
    members: dict[str, npt.NDArray[Any]] = {}
    for name, matrix in (("X", X), ("Y", Y)):
        if sp.issparse(matrix):
            matrix = sp.csr_array(matrix)
            members |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
            members[f"{name}_shape"] = np.array(matrix.shape, dtype=np.int64)
        elif matrix is not None:
            members[name] = np.asarray(matrix)
    if any(array.dtype.hasobject for array in members.values()):
        raise ValueError("an array of Python objects cannot be written; convert labels to numbers or to a string array")
    # What `np.savez` writes, without pickled objects.
    with atomic_file(path, compress=False) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _member(arrays: Mapping[str, npt.NDArray[Any]], name: str, path: str) -> Any:
    if name in arrays:
        _check_dense(arrays[name], path)
        return arrays[name]
    return _sparse_from(arrays, f"{name}_", path) if f"{name}_data" in arrays else None


def _sparse_from(arrays: Mapping[str, npt.NDArray[Any]], prefix: str, path: str) -> Any:
    missing = [part for part in ("data", "indices", "indptr", "shape") if f"{prefix}{part}" not in arrays]
    stored_format = arrays[f"{prefix}format"].tolist() if f"{prefix}format" in arrays else "csr"
    if missing or stored_format not in ("csr", b"csr"):  # scipy writes bytes
        raise DataFormatError(
            f"missing from the file: {', '.join(prefix + part for part in missing)}"
            if missing
            else f"the sparse format {stored_format!r} is not supported",
            path=path,
            remedy="write the matrix with scipy.sparse.save_npz(path, X.tocsr())",
        )
    data, indices, indptr, shape = (arrays[f"{prefix}{part}"] for part in ("data", "indices", "indptr", "shape"))
    if shape.dtype.kind not in "iu" or shape.ndim != 1:
        raise DataFormatError(
            f"the shape is stored as an array of type {shape.dtype} and shape {shape.shape}", path=path
        )
    size = tuple(int(length) for length in shape)
    _check_csr(data, indices, indptr, size, path)
    return sp.csr_array((data, indices, indptr), shape=size)


def _load(path: PathLike) -> Any:
    """The array of a `.npy` file, or the arrays of a `.npz` file by name."""
    with open_input(path) as file:
        magic = file.read(len(NPY_MAGIC))
    if magic != NPY_MAGIC and not magic.startswith(ZIP_MAGIC):
        raise DataFormatError("this is neither a .npy nor a .npz file", path=path)
    try:
        if magic != NPY_MAGIC:
            with zipfile.ZipFile(path) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())  # zipfile reads no more than it says
            if unpacked > unpacked_limit(size := os.path.getsize(path)):
                raise refuse_bomb(path, size)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            members = {name: loaded[name] for name in loaded.files}
        if not all(isinstance(member, np.ndarray) for member in members.values()):
            raise ValueError("the archive contains a member that is not an array")
        return members
    except DataFormatError:
        raise
    except READ_ERRORS as error:
        raise DataFormatError(
            f"the file is damaged or contains something other than plain arrays ({error})", path=path
        ) from None


@dataclass(frozen=True)
class Store:
    """A data set on disk.

    Parameters
    ----------
    X : csr_array or memmap of shape (n_samples, n_features)
        Features, mapped read-only.
    Y : csr_array of shape (n_samples, n_labels), memmap of shape (n_samples,), or None
        Labels, mapped read-only.
    label_names, feature_names : list of str or None
        Names of the columns of Y and X.
    path : str
        The folder.

    Examples
    --------
    >>> from widemargin.data.store import Store
    >>> list(Store.__dataclass_fields__)
    ['X', 'Y', 'label_names', 'feature_names', 'path']
    """

    X: Any
    Y: Any
    label_names: list[str] | None
    feature_names: list[str] | None
    path: str


def is_store(path: PathLike) -> bool:
    """Whether the path is a folder with a `store.json`."""
    return os.path.isfile(os.path.join(path, STORE_FILE))


@with_shared_passages
def write_store(
    folder: PathLike,
    X: Any,
    Y: Any = None,
    *,
    label_names: NamesLike | None = None,
    feature_names: NamesLike | None = None,
    overwrite: bool = False,
) -> None:
    """Write a data set as a folder that `open_store` maps.

    Parameters
    ----------
    folder : str or path
        The folder, which must not exist unless `overwrite` is true.
    X : sparse matrix or array, or ndarray, of shape (n_samples, n_features)
        Features; sparse ones are stored as CSR with sorted indices, int32 where they fit.
    Y : indicator of shape (n_samples, n_labels) or vector of shape (n_samples,), optional
        Labels.
    label_names, feature_names : sequence of str, optional
        Names of the columns of Y and X.
    overwrite : bool, default=False
        Replace a folder of that name if it is a store.

    <folder>
    >>> import numpy as np
    >>> from widemargin.data.store import open_store, write_store
    >>> path = os.path.join(folder.name, "train")
    >>> write_store(path, np.eye(3, dtype=np.float32), np.array([0, 1, 0]), label_names=["no", "yes"])
    >>> store = open_store(path)
    >>> type(store.X).__name__, store.Y.tolist(), store.label_names
    ('memmap', [0, 1, 0], ['no', 'yes'])
    >>> folder.cleanup()
    """
    if overwrite:
        check_replaceable(folder)
    matrices = {"X": _prepare(X), "Y": None if Y is None else _prepare(Y)}
    check_together(matrices["X"], matrices["Y"], os.fspath(folder))
    names = {"label_names": label_names, "feature_names": feature_names}
    with atomic_folder(folder, overwrite=overwrite) as temporary:
        entries = {
            name: None if matrix is None else _write_matrix(temporary, name, matrix)
            for name, matrix in matrices.items()
        }
        write_description(temporary, entries, matrices, names)


def check_replaceable(folder: PathLike) -> None:
    """An error unless there is nothing under a name, or a store."""
    if os.path.exists(folder) and not is_store(folder):
        raise FileExistsError(f"{os.fspath(folder)} already exists and is not a store; choose another folder")


def write_description(
    folder: Path, entries: dict[str, Any], matrices: dict[str, Any], names: Mapping[str, NamesLike | None]
) -> None:
    """Write the names, and the file that describes a store whose arrays are written."""
    manifest: dict[str, Any] = {"format": STORE_FORMAT, "version": STORE_VERSION, **entries}
    for kind, given in names.items():
        manifest[kind] = None if given is None else _write_names(folder, kind, given, matrices)
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    write_hashed(folder / STORE_FILE, lambda file: file.write(text.encode()))


def open_store(folder: PathLike, *, verify: bool = False) -> Store:
    """Map a data set that `write_store` wrote.

    Parameters
    ----------
    folder : str or path
        The folder.
    verify : bool, default=False
        Read everything once and check hashes, indices and values.

    Returns
    -------
    store : Store
        Its arrays are read-only memory maps.

    Raises
    ------
    DataFormatError
        When the folder is not a store, is damaged, or is of a version that this release does not read.

    Examples
    --------
    See `write_store`.
    """
    root = Path(folder)
    manifest = _read_manifest(root)
    matrices = {name: _open_matrix(root, name, manifest.get(name), verify) for name in ("X", "Y")}
    if matrices["X"] is None:
        raise DataFormatError("X is missing from the store", path=root)
    check_together(matrices["X"], matrices["Y"], str(root))
    names = {kind: _open_names(root, kind, manifest.get(kind), matrices, verify) for kind in NAME_FILES}
    return Store(matrices["X"], matrices["Y"], names["label_names"], names["feature_names"], str(root))


def _prepare(matrix: Any) -> Any:
    """Canonical CSR with the smallest index type, or a dense array, checked."""
    if not sp.issparse(matrix):
        array = np.ascontiguousarray(matrix)
        _check_dense(array, "the array")
        return array
    matrix = sp.csr_array(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    _check_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape, "the matrix")
    fits = max(*matrix.shape, matrix.nnz) < 2**31
    index_type = np.int32 if fits else np.int64
    arrays = (matrix.data, matrix.indices.astype(index_type, copy=False), matrix.indptr.astype(index_type, copy=False))
    return sp.csr_array(arrays, shape=matrix.shape)


def check_together(X: Any, Y: Any, path: str) -> None:
    """Raise DataFormatError unless X is a matrix of numbers with as many rows as Y, if there is one."""
    if X.ndim != 2 or X.dtype.kind not in VALUE_KINDS:
        raise DataFormatError(f"X must be a numeric matrix; got type {X.dtype} and shape {X.shape}", path=path)
    if Y is not None and Y.shape[0] != X.shape[0]:
        raise DataFormatError(
            f"X and Y must have the same number of rows; got {X.shape[0]} and {Y.shape[0]}", path=path
        )


def _write_matrix(folder: Path, name: str, matrix: Any) -> dict[str, Any]:
    sparse = sp.issparse(matrix)
    parts = {f"{name}.{part}.npy": getattr(matrix, part) for part in CSR_PARTS} if sparse else {f"{name}.npy": matrix}
    files = {}
    for file_name, array in parts.items():
        _, digest, _ = write_hashed(folder / file_name, partial(_write_array, array))
        files[file_name] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}
    return {"kind": "csr" if sparse else "dense", "shape": list(matrix.shape), "files": files}


def _write_array(array: npt.NDArray[Any], file: Any) -> None:
    """A `.npy` file, in chunks."""
    np.lib.format.write_array(file, array, allow_pickle=False)


def _write_names(folder: Path, kind: str, names: NamesLike, matrices: dict[str, Any]) -> dict[str, Any]:
    checked = check_names(names, _expected_names(kind, matrices), str(folder))
    path = folder / NAME_FILES[kind]
    write_names(path, checked)
    return {"sha256": file_sha256(path)}


def _expected_names(kind: str, matrices: dict[str, Any]) -> int | None:
    """How many names there must be; None for the classes of a label vector."""
    matrix = matrices["X" if kind == "feature_names" else "Y"]
    return matrix.shape[1] if matrix is not None and matrix.ndim == 2 else None


def _read_manifest(root: Path) -> dict[str, Any]:
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder")
    if not (root / STORE_FILE).exists():
        raise DataFormatError(f"{STORE_FILE} is missing", path=root, remedy="write the folder with write_store")
    path = _inside(root, STORE_FILE)
    if path.stat().st_size > MAX_STORE_FILE_BYTES:
        raise DataFormatError("the file is too large to be a store description", path=path)
    try:
        manifest = parse_json(path.read_bytes())
    except ValueError as error:
        raise DataFormatError(f"the file is not valid JSON ({error})", path=path) from None
    if not isinstance(manifest, dict) or manifest.get("format") != STORE_FORMAT:
        raise DataFormatError("the file does not describe a store", path=path)
    version = manifest.get("version")
    if version != STORE_VERSION or isinstance(version, bool):
        raise DataFormatError(
            f"the store has version {version!r:.50}, but this release reads version {STORE_VERSION}",
            path=path,
            remedy="upgrade widemargin, or write the store again",
        )
    return manifest


def _inside(root: Path, name: str) -> Path:
    """A regular file of the folder itself: links could point anywhere."""
    path = root / name
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise DataFormatError(f"{name} is missing", path=root, remedy="write the store again") from None
    if not stat.S_ISREG(mode):
        raise DataFormatError(f"{name} is not a regular file", path=root, remedy="write the store again")
    return path


def _open_matrix(root: Path, name: str, entry: Any, verify: bool) -> Any:
    if entry is None:
        return None
    # File names are fixed and never taken from the description: no path can lead out of the folder.
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind not in ("csr", "dense"):
        raise DataFormatError(f"{name} has an unknown kind, {kind!r}", path=root)
    names = [f"{name}.{part}.npy" for part in CSR_PARTS] if kind == "csr" else [f"{name}.npy"]
    arrays = [_open_array(root, file_name, entry, verify) for file_name in names]
    shape = _shape(entry.get("shape"), name, root)
    where = str(root / name)
    if kind == "dense":
        if arrays[0].shape != shape:
            raise DataFormatError(
                f"the array has shape {arrays[0].shape}, but its description says {shape}", path=where
            )
        if verify:
            _check_dense(arrays[0], where)
        return arrays[0]
    (_check_csr if verify else _check_csr_outline)(arrays[0], arrays[1], arrays[2], shape, where)
    matrix = sp.csr_array((arrays[0], arrays[1], arrays[2]), shape=shape, copy=False)
    matrix.has_sorted_indices = matrix.has_canonical_format = (
        True  # as written; scipy would read everything to find out
    )
    if verify:
        _check_sorted(matrix, where)
    return matrix


def _open_array(root: Path, file_name: str, entry: dict[str, Any], verify: bool) -> npt.NDArray[Any]:
    files = entry.get("files")
    described = files.get(file_name) if isinstance(files, dict) else None
    if not isinstance(described, dict):
        raise DataFormatError(f"{STORE_FILE} does not describe {file_name}", path=root)
    path = _inside(root, file_name)
    if verify:
        _check_hash(path, described.get("sha256"))
    try:
        array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects
    except READ_ERRORS as error:
        raise DataFormatError(f"the file is damaged ({error})", path=path) from None
    if array.dtype.str != described.get("dtype") or list(array.shape) != described.get("shape"):
        raise DataFormatError(
            f"the array has type {array.dtype.str} and shape {list(array.shape)}, but {STORE_FILE} says "
            f"{described.get('dtype')} and {described.get('shape')}",
            path=path,
        )
    plain = array.dtype.kind in VALUE_KINDS + "U" and array.dtype.isnative and array.dtype.itemsize > 0
    if not plain or (array.ndim > 1 and not array.flags.c_contiguous):
        raise DataFormatError(f"the array has the wrong type ({array.dtype}) or is not in C order", path=path)
    return array


def _open_names(root: Path, kind: str, entry: Any, matrices: dict[str, Any], verify: bool) -> list[str] | None:
    if entry is None:
        return None
    path = _inside(root, NAME_FILES[kind])
    if verify:
        _check_hash(path, entry.get("sha256") if isinstance(entry, dict) else None)
    return check_names(read_names(path), _expected_names(kind, matrices), str(path))


def _shape(value: Any, name: str, root: Path) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(length) is int and 0 <= length < LARGEST_COUNT for length in value):
        raise DataFormatError(f"{name} has an invalid shape, {value!r}", path=root)
    return tuple(value)


def _check_sorted(matrix: sp.csr_array, where: str) -> None:
    rises = np.diff(matrix.indices) > 0
    rises[matrix.indptr[1:-1][(matrix.indptr[1:-1] > 0) & (matrix.indptr[1:-1] < matrix.nnz)] - 1] = True
    if not rises.all():
        raise DataFormatError("the indices within a row are not sorted", path=where, remedy="write the store again")


def _check_hash(path: Path, expected: Any) -> None:
    if file_sha256(path) != expected:
        raise DataFormatError(
            f"the file has changed since it was written: its SHA-256 hash differs from the one in {STORE_FILE}",
            path=path,
        )
