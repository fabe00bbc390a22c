"""Read a model, a folder or a `.wm` file, that may be damaged or hostile: every value is checked before it is used.

Nothing is unpickled and no code runs. File names must be plain names of files of the model; sizes, types and shapes
must agree between `model.json`, the headers of the `.npy` files and the files themselves. Arrays are memory-mapped
read-only; with `verify` they are read once for their SHA-256, the range of CSR indices, and values that are not finite.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.exceptions import ModelFormatError
from widemargin.files import parse_json
from widemargin.model_io.members import USE_FOLDER, Member, Members, open_members
from widemargin.model_io.members import fail as _fail
from widemargin.model_io.state import (
    DTYPES,
    FILE_NAME,
    FORMAT_NAME,
    HASH_DIGITS,
    MANIFEST,
    READABLE_VERSIONS,
    STORE_NAME,
    ModelState,
)

__all__ = ["all_finite", "csr_problem", "decode_value", "describe_model", "read_model"]

MAX_MANIFEST_BYTES = 2**24  # labels and arrays have their own files; a manifest of ours has a few kilobytes
MAX_LIST_BYTES = 2**30  # names of ten million labels
MAX_DIMENSIONS = 4
LARGEST_COUNT = 2**62
# What NumPy writes, and nothing else, is handed to NumPy's parser of headers.
NPY_HEADER = re.compile(rb"\{'descr': '[<|][a-z]\d', 'fortran_order': False, 'shape': \([0-9, ]*\), \} *\n")
NPY_MAGIC = b"\x93NUMPY\x01\x00"
# Prediction needs 8 bytes per column, so a small file must not claim any number of them: 1 GB, or what it deserves.
FREE_COLUMNS = 2**27
COLUMNS_PER_BYTE = 2**10
FINITE_CHUNK = 2**20
SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "package_version": str,
    "instruction_set": str,
    "kind": str,
    "params": dict,
    "certificate": (dict, type(None)),
    "attributes": dict,
    "arrays": dict,
    "history": dict,
    "labels": (dict, type(None)),
    "feature_names": (dict, type(None)),
    "row_ids": (dict, type(None)),
    "stores": dict,
}
# Fields of version 3, as models of earlier versions have them.
_NEW_FIELDS: dict[str, Any] = {"row_ids": None, "stores": {}}


def read_model(
    folder: str | os.PathLike[str], *, verify: bool = True, kinds: Collection[str] | None = None
) -> ModelState:
    """Read a model folder, or a file that holds one.

    Parameters
    ----------
    folder : str or path
        What `write_model` or `write_packed` wrote.
    verify : bool, default=True
        Check the hash of every file, CSR indices, and that numbers are finite; this reads all bytes once. Without it
        sizes, types, shapes and row pointers are still checked.
    kinds : collection of str, optional
        The kinds that the caller knows; any other is an error.

    Returns
    -------
    state : ModelState
        With arrays mapped read-only.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is no such folder or file, or it is a pipe or a device.
    ModelFormatError
        The model is damaged, hostile, or of a version this release does not read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin.model_io import ModelState, read_model, write_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(folder, ModelState("OneVsAllClassifier", {}, {"coef": np.ones((2, 3))}, labels=["a", "b"]))
    ...     state = read_model(folder)
    >>> state.labels, state.arrays["coef"].shape
    (['a', 'b'], (2, 3))
    """
    with open_members(Path(folder)) as members:
        before = _read_manifest(members)
        try:
            return _read_state(members, before, verify=verify, kinds=kinds)
        except ModelFormatError:
            manifest = _read_manifest(members)
            if manifest == before:
                raise
            # Another process replaced the model while it was being read.
            return _read_state(members, manifest, verify=verify, kinds=kinds)


def describe_model(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of `model.json`, without opening any other file.

    Parameters
    ----------
    folder : str or path
        What `write_model` or `write_packed` wrote.

    Returns
    -------
    description : dict
        `kind`, `params`, `certificate`, `attributes`, `package_version`, `format_version`, `instruction_set`, `arrays`
        (name to shape), `n_labels` (None without label names) and `size_bytes` of all files.
    """
    with open_members(Path(folder)) as members:
        manifest = _read_manifest(members)
        with members.open(MANIFEST) as file:
            own_size = file.size
    where = members / MANIFEST
    files: list[Any] = [manifest[role] for role in ("labels", "feature_names", "row_ids")]
    files += [*manifest["history"].values(), *manifest["stores"].values()]
    for entry in manifest["arrays"].values():
        is_csr = isinstance(entry, dict) and entry.get("type") == "csr"
        files += [entry.get(part) for part in ("data", "indices", "indptr")] if is_csr else [entry]
    fields = ("kind", "package_version", "format_version", "instruction_set", "params", "certificate", "attributes")
    about = {name: manifest[name] for name in fields}
    return about | {
        "arrays": {name: list(_shape(where, entry)) for name, entry in manifest["arrays"].items()},
        "n_labels": None if manifest["labels"] is None else _count(where, manifest["labels"], "count"),
        "size_bytes": sum(_count(where, file, "size") for file in files if file is not None) + own_size,
    }


def _read_manifest(folder: Members) -> dict[str, Any]:
    """`model.json` with its outer fields checked, and its values decoded."""
    path = folder / MANIFEST
    folder.check_manifest()
    with folder.open(MANIFEST) as file:
        content = _read_json(path, file, MAX_MANIFEST_BYTES)
    if not isinstance(content, dict) or content.get("format") != FORMAT_NAME:
        _fail(path, "the file does not describe a widemargin model", USE_FOLDER)
    version = content.get("format_version")
    if type(version) is not int or version not in READABLE_VERSIONS:
        remedy = "load it with the release of widemargin that wrote it, or a newer one"
        known = f"{', '.join(map(str, READABLE_VERSIONS[:-1]))} and {READABLE_VERSIONS[-1]}"
        _fail(path, f"the model has format version {version!r:.50}, but this release reads versions {known}", remedy)
    content |= _NEW_FIELDS if version < 3 else {}
    for name, types in _FIELDS.items():
        if not isinstance(content.get(name, ...), types):
            _fail(path, f"the field {name!r} is missing or has the wrong type")
    try:
        for name in ("params", "certificate", "attributes"):
            content[name] = decode_value(content[name])
    except (ValueError, RecursionError) as error:
        _fail(path, f"a value cannot be read ({error})")
    return content


def _read_state(
    folder: Members, manifest: dict[str, Any], *, verify: bool, kinds: Collection[str] | None
) -> ModelState:
    where = folder / MANIFEST
    kind = manifest["kind"]
    if kinds is not None and kind not in kinds:
        _fail(where, f"unknown kind {kind!r:.100}", f"this release supports {', '.join(sorted(kinds))}")
    arrays, history, n_rows = {}, {}, None
    for name, entry in manifest["arrays"].items():
        arrays[name] = _read_matrix(folder, entry, verify)
    for name, entry in manifest["history"].items():
        column = history[name] = _read_array(folder, entry, verify)
        n_rows = len(column) if n_rows is None and column.ndim == 1 else n_rows
        if column.ndim != 1 or len(column) != n_rows:
            _fail(where, "the history columns must be vectors of the same length")
    return ModelState(
        kind=kind,
        params=manifest["params"],
        arrays=arrays,
        labels=_read_list(folder, manifest["labels"], verify, (str, int, float)),
        feature_names=_read_list(folder, manifest["feature_names"], verify, str),
        certificate=manifest["certificate"],
        history=history,
        attributes=manifest["attributes"],
        instruction_set=manifest["instruction_set"],
        row_ids=_read_list(folder, manifest["row_ids"], verify, str),
        stores={name: os.path.abspath(folder / name) for name in _store_names(where, manifest["stores"])},
        folder=os.path.abspath(folder.path),
    )


def _store_names(where: Path, stores: dict[str, Any]) -> list[str]:
    """The names of the stores inside the folder; they are not opened."""
    for name, entry in stores.items():
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if not STORE_NAME.fullmatch(name) or not isinstance(digest, str) or not digest.startswith(name[-HASH_DIGITS:]):
            _fail(where, f"{name!r:.100} is not a valid name for a store of a model, or its hash is another one")
        _count(where, entry, "size")
    return list(stores)


def _read_matrix(folder: Members, entry: Any, verify: bool) -> Any:
    """A dense array or a CSR array over its mapped parts, both of finite numbers."""
    where = folder / MANIFEST
    if not isinstance(entry, dict) or entry.get("type") not in ("dense", "csr"):
        _fail(where, "an array must be dense or csr")
    if entry["type"] == "dense":
        values = matrix = _read_array(folder, entry, verify)
    else:
        shape = _shape(where, entry)
        if len(shape) != 2:
            _fail(where, "a CSR array must have two dimensions")
        values = _read_array(folder, entry.get("data"), verify)
        indices = _read_array(folder, entry.get("indices"), verify)
        indptr = _read_array(folder, entry.get("indptr"), verify)
        problem = csr_problem(values, indices, indptr, shape, check_indices=verify)
        if problem is not None:
            _fail(where, f"a CSR array is invalid: {problem}")
        # Over its parts as they are: scipy's constructor would copy int64 indices that fit in int32.
        matrix = sp.csr_array(shape, dtype=values.dtype)
        matrix.data, matrix.indices, matrix.indptr = values, indices, indptr
    if verify and not all_finite(values):
        _fail(where, "an array contains NaN or infinity")
    return matrix


def _read_array(folder: Members, entry: Any, verify: bool) -> npt.NDArray[Any]:
    """Map one `.npy` file whose header, length and hash agree with the table."""
    where = folder / MANIFEST
    shape = _shape(where, entry)
    if not isinstance(entry.get("dtype"), str) or entry["dtype"] not in DTYPES:
        _fail(where, f"an array has type {entry.get('dtype')!r:.50}, which is not allowed")
    dtype, n_values = np.dtype(entry["dtype"]), math.prod(shape)
    with _open_entry(folder, entry, ".npy", verify) as file:
        path = folder / entry["file"]
        file.seek(0)
        start = file.read(len(NPY_MAGIC) + 2) or b""
        header = file.read(int.from_bytes(start[-2:], "little")) or b""
        if start[:-2] != NPY_MAGIC or not NPY_HEADER.fullmatch(header):
            _fail(path, "the file is not a plain .npy file")
        file.seek(len(NPY_MAGIC))
        try:
            found = np.lib.format.read_array_header_1_0(file)
        except (ValueError, SyntaxError) as error:
            _fail(path, f"the header cannot be read ({error})")
        if found != (shape, False, dtype):
            _fail(path, f"the array must be {dtype} of shape {shape}; got {found[2]} of shape {found[0]}")
        offset = file.tell()
        if offset + n_values * dtype.itemsize != entry["size"]:
            _fail(path, "the file length does not match the array")
        try:
            if n_values:
                return np.memmap(file.file, dtype=dtype, mode="r", offset=file.start + offset, shape=shape)
            array = np.empty(shape, dtype=dtype)
            array.setflags(write=False)
        except (ValueError, OverflowError) as error:
            _fail(path, f"the file cannot be memory-mapped ({error})")
    return array


def _read_list(folder: Members, entry: Any, verify: bool, types: type | tuple[type, ...]) -> list[Any] | None:
    """Label or feature names."""
    if entry is None:
        return None
    count = _count(folder / MANIFEST, entry, "count")
    with _open_entry(folder, entry, ".json", verify) as file:
        path = folder / entry["file"]
        values = _read_json(path, file, MAX_LIST_BYTES)
    if not isinstance(values, list) or len(values) != count:
        _fail(path, f"the file must contain a list of {count} names")
    for value in values:
        if not isinstance(value, types):
            _fail(path, "a name must be a string" if types is str else "a name is neither a string nor a number")
    return values


def _open_entry(folder: Members, entry: Any, suffix: str, verify: bool) -> Member:
    """Open a file of the table and compare its size, and with `verify` its hash, with the table."""
    name = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not FILE_NAME.fullmatch(name) or not name.endswith(suffix):
        _fail(folder / MANIFEST, f"{name!r:.100} is not a valid name for a file of a model")
    file, path = folder.open(name), folder / name
    try:
        if _count(path, entry, "size") != file.size:
            _fail(path, f"the file must be {entry['size']} bytes long; got {file.size}")
        if verify and hashlib.file_digest(file, "sha256").hexdigest() != entry.get("sha256"):
            _fail(path, "the content differs from what was saved (SHA-256 mismatch)")
    except BaseException:
        file.close()
        raise
    return file


def _read_json(path: Path, file: Member, limit: int) -> Any:
    """JSON of bounded length, without inf, nan and repeated keys."""
    file.seek(0)
    if file.size > limit:
        _fail(path, f"the file is longer than {limit} bytes")
    text = file.read(file.size) or b""  # not the limit, which would be allocated whatever the file has
    try:
        return parse_json(text)
    except ValueError as error:
        _fail(path, f"the file is not valid JSON ({error})")


def _shape(where: Path, entry: Any) -> tuple[int, ...]:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        _fail(where, f"an array must have a shape with at most {MAX_DIMENSIONS} dimensions")
    for length in shape:
        _count(where, {"shape": length}, "shape")
    return tuple(shape)


def _count(where: Path, entry: Any, field: str) -> int:
    value = entry.get(field) if isinstance(entry, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST_COUNT:
        _fail(where, f"{field!r} of a file must be an integer")
    return value


def decode_value(value: Any) -> Any:
    """Inverse of `encode_value`; ValueError for what it would never have written.

    Examples
    --------
    >>> from widemargin.model_io.read import decode_value
    >>> decode_value({"weights": {"$items": [[0, 1.5], [1, {"$float": "-inf"}]]}})
    {'weights': {0: 1.5, 1: -inf}}
    """
    if isinstance(value, list):
        return list(map(decode_value, value))
    if not isinstance(value, dict):
        return value
    for key in value:
        if key.startswith("$"):
            break
    else:
        return dict(zip(value, map(decode_value, value.values()), strict=True))
    ((tag, content),) = value.items()
    if tag == "$float" and isinstance(content, str) and content in SPECIAL_FLOATS:
        return SPECIAL_FLOATS[content]
    if tag == "$tuple" and isinstance(content, list):
        return tuple(map(decode_value, content))
    if tag == "$items" and isinstance(content, list):
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("$items must be a list of pairs")
        try:
            return {decode_value(key): decode_value(item) for key, item in content}
        except TypeError as error:
            raise ValueError(f"a key of $items is not a valid key: {error}") from None
    raise ValueError(f"{tag!r} is not a valid tag in this format")


def csr_problem(data: Any, indices: Any, indptr: Any, shape: Sequence[int], *, check_indices: bool) -> str | None:
    """What is wrong with a CSR triple, or None; `check_indices` reads all column indices."""
    if data.ndim != 1 or indices.ndim != 1 or indptr.ndim != 1:
        return "its parts must be vectors"
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        return f"indices and indptr must both be int32 or both be int64; got {indices.dtype} and {indptr.dtype}"
    if len(indptr) != shape[0] + 1:
        return f"indptr has {len(indptr)} entries, but there are {shape[0]} rows"
    if len(data) != len(indices) or indptr[0] != 0 or indptr[-1] != len(indices):
        return "the lengths of its parts do not match"
    if (indptr[1:] < indptr[:-1]).any():
        return "indptr must not decrease"
    stored_bytes = data.nbytes + indices.nbytes + indptr.nbytes
    if shape[1] > max(FREE_COLUMNS, COLUMNS_PER_BYTE * stored_bytes):
        return f"it has {shape[1]:,} columns, but only {len(indices):,} values"
    if check_indices and len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
        return f"column indices must be between 0 and {shape[1] - 1}"
    return None


def all_finite(array: npt.NDArray[Any]) -> bool:
    """Whether no value is inf or nan, checked in chunks: a memory map is not copied into memory."""
    if array.dtype.kind == "f":
        flat = array.reshape(-1)
        for first in range(0, len(flat), FINITE_CHUNK):
            if not np.isfinite(flat[first : first + FINITE_CHUNK]).all():
                return False
    return True
