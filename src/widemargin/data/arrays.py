"""Matrices in NumPy's files: dense `.npy`, sparse `.npz` as `scipy.sparse.save_npz` writes it, and `.npz` with X and Y.

    .npy    one dense array
    .npz    data, indices, indptr, shape, format           one sparse matrix (scipy's layout, CSR)
    .npz    X or X_data, X_indices, X_indptr, X_shape      features, and the same with Y (or y) for labels

Everything is checked before use – types, shapes, rising indptr, indices in range, finite values – because a CSR matrix
with wrong indices makes compiled code read outside its arrays. Pickled objects are never loaded, and an archive that
would become much larger than it is gets refused. Memory: the arrays.
"""

from __future__ import annotations

import io
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.data.files import PathLike, atomic_file, open_input, refuse_bomb, unpacked_limit
from widemargin.exceptions import DataFormatError

__all__ = ["check_csr", "check_dense", "read_matrix", "read_npz", "write_matrix", "write_npz"]

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


def check_csr(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, ...], path: str
) -> None:
    """Raise DataFormatError unless the arrays are a CSR matrix of the shape with finite numbers."""
    check_csr_outline(data, indices, indptr, shape, path)
    if len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
        raise DataFormatError(f"the matrix has column indices outside 0 to {shape[1] - 1}", path=path)
    _check_finite(data, path)


def check_csr_outline(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, ...], path: str
) -> None:
    """The part of `check_csr` that reads `indptr` only."""
    for name, array, kinds in (("data", data, "biuf"), ("indices", indices, "iu"), ("indptr", indptr, "iu")):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise DataFormatError(f"{name} is an array of type {array.dtype} and shape {array.shape}", path=path)
    if len(shape) != 2 or min(shape) < 0 or max(shape) >= LARGEST_COUNT:
        raise DataFormatError(f"the matrix has the shape {shape}", path=path)
    if len(indptr) != shape[0] + 1:
        raise DataFormatError(f"indptr has {len(indptr)} entries for {shape[0]} rows", path=path)
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(data):
        raise DataFormatError(
            f"indptr goes from {indptr[0]} to {indptr[-1]}, with {len(indices)} indices and {len(data)} values",
            path=path,
        )
    if not (indptr[1:] >= indptr[:-1]).all():
        raise DataFormatError("indptr falls", path=path)


def check_dense(array: npt.NDArray[Any], path: str) -> None:
    """Raise DataFormatError unless the array is one- or two-dimensional, of numbers that are finite or of strings."""
    if array.ndim not in (1, 2) or array.dtype.kind not in "biufU" or (array.dtype.kind == "U" and array.ndim == 2):
        raise DataFormatError(f"the array has the type {array.dtype} and the shape {array.shape}", path=path)
    if array.dtype.kind == "U":
        _check_characters(array, path)
    _check_finite(array, path)


def _check_characters(strings: npt.NDArray[Any], path: str) -> None:
    """Strings are stored as numbers of characters, of which there are `LAST_CHARACTER` + 1."""
    codes = np.ascontiguousarray(strings.astype(strings.dtype.newbyteorder("="), copy=False)).reshape(-1)
    if codes.size and codes.dtype.itemsize and codes.view(np.uint32).max() > LAST_CHARACTER:
        raise DataFormatError("the array has strings with characters that do not exist", path=path)


def _check_finite(values: npt.NDArray[Any], path: str) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DataFormatError("there are values that are not finite", path=path, remedy="remove or replace them")


def read_matrix(path: PathLike) -> Any:
    """Read one matrix: a `.npy` file, or a `.npz` file in the layout of `scipy.sparse.save_npz`.

    Parameters
    ----------
    path : str or path
        The file; its content decides, not its name.

    Returns
    -------
    matrix : ndarray or csr_array
        Sparse matrices in other formats than CSR are converted.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from widemargin.data.arrays import read_matrix, write_matrix
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "X.npy")
    >>> write_matrix(path, np.eye(2))
    >>> read_matrix(path)
    array([[1., 0.],
           [0., 1.]])
    >>> folder.cleanup()
    """
    name = os.fspath(path)
    with open_input(path) as file:
        magic = file.read(len(NPY_MAGIC))
    if magic == NPY_MAGIC:
        array = _load(path)
        check_dense(array, name)
        return array
    arrays = _load_members(path, magic)
    if "format" not in arrays:
        raise DataFormatError("this is not one sparse matrix", path=name, remedy="use read_npz for X and Y in one file")
    return _sparse_from(arrays, "", name)


def write_matrix(path: PathLike, matrix: Any) -> None:
    """Write one matrix, dense as `.npy` or sparse as `.npz` in the layout of `scipy.sparse.save_npz`.

    Parameters
    ----------
    path : str or path
        The file, whose name must end accordingly.
    matrix : ndarray, sparse matrix or sparse array
        What to write.

    Examples
    --------
    >>> import os, tempfile
    >>> import scipy.sparse as sp
    >>> from widemargin.data.arrays import write_matrix
    >>> folder = tempfile.TemporaryDirectory()
    >>> write_matrix(os.path.join(folder.name, "X.npz"), sp.eye_array(3, format="csr"))
    >>> os.listdir(folder.name)
    ['X.npz']
    >>> folder.cleanup()
    """
    ending = ".npz" if sp.issparse(matrix) else ".npy"
    if not os.fspath(path).endswith(ending):
        raise ValueError(f"the name of a file for this matrix must end in {ending}, got {os.fspath(path)!r}")
    with atomic_file(path, compress=False) as file:
        if sp.issparse(matrix):
            sp.save_npz(file, sp.csr_array(matrix))
        else:
            np.lib.format.write_array(file, np.ascontiguousarray(matrix), allow_pickle=False)


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

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from widemargin.data.arrays import read_npz, write_npz
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.npz")
    >>> write_npz(path, np.eye(2), np.array([0, 1]))
    >>> X, y = read_npz(path)
    >>> X.shape, y.tolist()
    ((2, 2), [0, 1])
    >>> folder.cleanup()
    """
    name = os.fspath(path)
    with open_input(path) as file:
        magic = file.read(len(NPY_MAGIC))
    arrays = _load_members(path, magic)
    if "format" in arrays and "X" not in arrays:
        return _sparse_from(arrays, "", name), None
    X = _member(arrays, "X", name)
    if X is None:
        raise DataFormatError(
            f"there is no X among {sorted(arrays)[:10]}",
            path=name,
            remedy="name the features X (dense), or X_data, X_indices, X_indptr and X_shape (CSR)",
        )
    Y = _member(arrays, "Y", name)
    Y = _member(arrays, "y", name) if Y is None else Y
    if X.ndim != 2:
        raise DataFormatError(f"X has the shape {X.shape}, not two dimensions", path=name)
    if Y is not None and Y.shape[0] != X.shape[0]:
        raise DataFormatError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}", path=name)
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
        raise ValueError("arrays of Python objects are not written: convert labels to numbers or to a string array")
    with atomic_file(path, compress=False) as file:
        _write_members(file, members)


def _write_members(file: io.BufferedIOBase, members: Mapping[str, npt.NDArray[Any]]) -> None:
    """What `np.savez` writes, without pickled objects."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _member(arrays: Mapping[str, npt.NDArray[Any]], name: str, path: str) -> Any:
    if name in arrays:
        check_dense(arrays[name], path)
        return arrays[name]
    return _sparse_from(arrays, f"{name}_", path) if f"{name}_data" in arrays else None


def _sparse_from(arrays: Mapping[str, npt.NDArray[Any]], prefix: str, path: str) -> Any:
    missing = [part for part in ("data", "indices", "indptr", "shape") if f"{prefix}{part}" not in arrays]
    stored_format = arrays[f"{prefix}format"].tolist() if f"{prefix}format" in arrays else "csr"
    if missing or stored_format not in ("csr", b"csr"):  # scipy writes bytes
        raise DataFormatError(
            f"no {', '.join(prefix + part for part in missing)}"
            if missing
            else f"the sparse format is {stored_format!r}",
            path=path,
            remedy="write the matrix with scipy.sparse.save_npz(path, X.tocsr())",
        )
    data, indices, indptr, shape = (arrays[f"{prefix}{part}"] for part in ("data", "indices", "indptr", "shape"))
    if shape.dtype.kind not in "iu" or shape.ndim != 1:
        raise DataFormatError(f"shape is an array of type {shape.dtype} and shape {shape.shape}", path=path)
    size = tuple(int(length) for length in shape)
    check_csr(data, indices, indptr, size, path)
    return sp.csr_array((data, indices, indptr), shape=size)


def _load_members(path: PathLike, magic: bytes) -> dict[str, npt.NDArray[Any]]:
    if not magic.startswith(ZIP_MAGIC):
        raise DataFormatError("this is neither a .npy nor a .npz file", path=os.fspath(path))
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())  # zipfile reads no more than it says here
    except READ_ERRORS as error:
        raise DataFormatError(f"the file is damaged or not plain arrays ({error})", path=os.fspath(path)) from None
    size = os.path.getsize(path)
    if unpacked > unpacked_limit(size):
        raise refuse_bomb(path, size)
    members: dict[str, npt.NDArray[Any]] = _load(path)
    return members


def _load(path: PathLike) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            members = {name: loaded[name] for name in loaded.files}
        if not all(isinstance(member, np.ndarray) for member in members.values()):
            raise ValueError("a member is not an array")
        return members
    except READ_ERRORS as error:
        raise DataFormatError(f"the file is damaged or not plain arrays ({error})", path=os.fspath(path)) from None
