"""Read a model folder that may be damaged or hostile: every value is checked before it is used.

Nothing is unpickled and no code runs. File names must be plain names of files in the folder; sizes, types and shapes
must agree between `model.json`, the headers of the `.npy` files and the files themselves. Arrays are memory-mapped
read-only; with `verify` they are read once for their SHA-256, the range of CSR indices, and values that are not finite.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.exceptions import ModelFormatError
from widemargin.files import parse_json
from widemargin.model_io.state import (
    DTYPES,
    FORMAT_NAME,
    FORMAT_VERSION,
    MANIFEST,
    ModelState,
    all_finite,
    csr_problem,
    decode_value,
)
from widemargin.model_io.write import FILE_NAME

__all__ = ["describe_model", "read_model"]

MAX_MANIFEST_BYTES = 2**24  # labels and arrays are in files of their own; a manifest of ours has a few kilobytes
MAX_LIST_BYTES = 2**30  # names of ten million labels
MAX_DIMENSIONS = 4
# What NumPy writes, and nothing else, is handed to NumPy's parser of headers.
NPY_HEADER = re.compile(rb"\{'descr': '[<|][a-z]\d', 'fortran_order': False, 'shape': \([0-9, ]*\), \} *\n")
NPY_MAGIC = b"\x93NUMPY\x01\x00"
_DAMAGED = "the folder is damaged; restore it from a copy or save the model again"
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
}


def read_model(
    folder: str | os.PathLike[str], *, verify: bool = True, kinds: Collection[str] | None = None
) -> ModelState:
    """Read a model folder.

    Parameters
    ----------
    folder : str or path
        What `write_model` wrote.
    verify : bool, default=True
        Check the hash of every file, CSR indices, and that numbers are finite; this reads all bytes once. Without it
        sizes, types, shapes and row pointers are still checked.
    kinds : collection of str, optional
        The kinds the caller can make use of; any other is an error.

    Returns
    -------
    state : ModelState
        With arrays mapped read-only.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        There is no such folder, or it is a file.
    ModelFormatError
        The folder is damaged, hostile, or of a version this release does not read.

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
    path = Path(folder)
    before = _read_manifest(path)
    try:
        return _read_state(path, before, verify=verify, kinds=kinds)
    except ModelFormatError:
        manifest = _read_manifest(path)
        if manifest == before:
            raise
        # Another process replaced the model while it was being read.
        return _read_state(path, manifest, verify=verify, kinds=kinds)


def describe_model(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What `model.json` says, without opening any other file.

    Parameters
    ----------
    folder : str or path
        What `write_model` wrote.

    Returns
    -------
    description : dict
        `kind`, `params`, `certificate`, `attributes`, `package_version`, `format_version`, `instruction_set`, `arrays`
        (name to shape), `n_labels` (None without label names) and `size_bytes` of all files.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin.model_io import ModelState, describe_model, write_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(folder, ModelState("OneVsAllClassifier", {"C": 1.0}, {"coef": np.ones((2, 3))}))
    ...     describe_model(folder)["arrays"]
    {'coef': [2, 3]}
    """
    path = Path(folder)
    manifest = _read_manifest(path)
    where = path / MANIFEST
    files: list[Any] = [manifest["labels"], manifest["feature_names"], *manifest["history"].values()]
    for entry in manifest["arrays"].values():
        is_csr = isinstance(entry, dict) and entry.get("type") == "csr"
        files += [entry.get(part) for part in ("data", "indices", "indptr")] if is_csr else [entry]
    sizes = [_whole(where, file, "size") for file in files if file is not None]
    plain = {name: _decoded(where, manifest[name]) for name in ("params", "certificate", "attributes")}
    about = {name: manifest[name] for name in ("kind", "package_version", "format_version", "instruction_set")}
    return (
        plain
        | about
        | {
            "arrays": {name: list(_shape(where, entry)) for name, entry in manifest["arrays"].items()},
            "n_labels": None if manifest["labels"] is None else _whole(where, manifest["labels"], "count"),
            "size_bytes": sum(sizes) + where.stat().st_size,
        }
    )


def _fail(path: Path, problem: str, remedy: str = _DAMAGED) -> NoReturn:
    raise ModelFormatError(f"{path}: {problem}; {remedy}")


def _read_manifest(folder: Path) -> dict[str, Any]:
    """`model.json` with its outer fields checked."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: this is a file; give the folder that the model was saved to")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such model folder; give the folder that the model was saved to")
    path = folder / MANIFEST
    if not path.exists():
        _fail(path, "missing", "give the folder that the model was saved to")
    with _open_inside(folder, MANIFEST) as file:
        content = _parse_json(path, file, MAX_MANIFEST_BYTES)
    if not isinstance(content, dict) or content.get("format") != FORMAT_NAME:
        _fail(path, "not the description of a widemargin model", "give the folder that the model was saved to")
    version = content.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        remedy = "load it with the release of widemargin that wrote it, or a newer one"
        _fail(path, f"format version {version!r:.50}, and this release reads version {FORMAT_VERSION}", remedy)
    for name, types in _FIELDS.items():
        if not isinstance(content.get(name, ...), types):
            _fail(path, f"the field {name!r} is missing or of a wrong type")
    return content


def _read_state(folder: Path, manifest: dict[str, Any], *, verify: bool, kinds: Collection[str] | None) -> ModelState:
    where = folder / MANIFEST
    kind = manifest["kind"]
    if kinds is not None and kind not in kinds:
        _fail(where, f"unknown kind {kind!r:.100}", f"this release knows {', '.join(sorted(kinds))}")
    arrays = {name: _read_matrix(folder, entry, verify) for name, entry in manifest["arrays"].items()}
    history = {name: _read_array(folder, entry, verify) for name, entry in manifest["history"].items()}
    if any(column.ndim != 1 for column in history.values()) or len({len(c) for c in history.values()}) > 1:
        _fail(where, "the columns of the history are not vectors of one length")
    feature_names = _read_list(folder, manifest["feature_names"], verify)
    if feature_names is not None and not all(isinstance(name, str) for name in feature_names):
        _fail(where, "a feature name is not a string")
    return ModelState(
        kind=kind,
        params=_decoded(where, manifest["params"]),
        arrays=arrays,
        labels=_read_list(folder, manifest["labels"], verify),
        feature_names=feature_names,
        certificate=_decoded(where, manifest["certificate"]),
        history=history,
        attributes=_decoded(where, manifest["attributes"]),
        instruction_set=manifest["instruction_set"],
    )


def _decoded(where: Path, field: dict[str, Any] | None) -> Any:
    """The values of a field that is an object, or None."""
    if field is None:
        return None
    try:
        return {name: decode_value(value) for name, value in field.items()}
    except (ValueError, RecursionError) as error:
        _fail(where, f"a value cannot be read ({error})")


def _read_matrix(folder: Path, entry: Any, verify: bool) -> Any:
    """A dense array or a CSR array over its mapped parts, both of finite numbers."""
    where = folder / MANIFEST
    if not isinstance(entry, dict) or entry.get("type") not in ("dense", "csr"):
        _fail(where, "an array is neither dense nor csr")
    if entry["type"] == "dense":
        values = matrix = _read_array(folder, entry, verify)
    else:
        shape = _shape(where, entry)
        if len(shape) != 2:
            _fail(where, "a CSR array has not two dimensions")
        values, indices, indptr = (
            _read_array(folder, entry.get(part), verify) for part in ("data", "indices", "indptr")
        )
        problem = csr_problem(values, indices, indptr, shape, check_indices=verify)
        if problem is not None:
            _fail(where, f"a CSR array is not valid: {problem}")
        matrix = _csr_over(values, indices, indptr, shape)
    if verify and not all_finite(values):
        _fail(where, "an array has values that are not finite")
    return matrix


def _csr_over(data: Any, indices: Any, indptr: Any, shape: tuple[int, ...]) -> Any:
    """A CSR array that uses its parts as they are; scipy's constructor would copy int64 indices that fit in int32."""
    matrix = sp.csr_array(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def _read_array(folder: Path, entry: Any, verify: bool) -> npt.NDArray[Any]:
    """Map one `.npy` file whose header, length and hash agree with the table."""
    where = folder / MANIFEST
    shape = _shape(where, entry)
    name, dtype = _file_name(where, entry, ".npy"), entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        _fail(where, f"an array has the type {dtype!r:.50}, which is not allowed")
    with _open_inside(folder, name) as file:
        _check_size_and_hash(folder / name, file, entry, verify)
        offset = _check_header(folder / name, file, shape, np.dtype(dtype))
        n_values = _product(shape)
        if offset + n_values * np.dtype(dtype).itemsize != entry["size"]:
            _fail(folder / name, "the length of the file is not that of its array")
        try:
            if n_values == 0:
                return _read_only(np.empty(shape, dtype=dtype))
            return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)
        except (ValueError, OverflowError) as error:
            _fail(folder / name, f"cannot be mapped ({error})")


def _check_header(path: Path, file: io.BufferedReader, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The header must be one that NumPy writes for this type and shape; returns where the values begin."""
    file.seek(0)
    start = file.read(len(NPY_MAGIC) + 2)
    header = file.read(int.from_bytes(start[-2:], "little"))
    if start[:-2] != NPY_MAGIC or not NPY_HEADER.fullmatch(header):
        _fail(path, "not a plain .npy file")
    file.seek(len(NPY_MAGIC))
    try:
        found = np.lib.format.read_array_header_1_0(file)
    except (ValueError, SyntaxError) as error:
        _fail(path, f"its header cannot be read ({error})")
    if found != (shape, False, dtype):
        _fail(path, f"holds {found[2]} of shape {found[0]}, not {dtype} of shape {shape}")
    return file.tell()


def _read_list(folder: Path, entry: Any, verify: bool) -> list[Any] | None:
    """Label or feature names."""
    if entry is None:
        return None
    where = folder / MANIFEST
    name, count = _file_name(where, entry, ".json"), _whole(where, entry, "count")
    with _open_inside(folder, name) as file:
        _check_size_and_hash(folder / name, file, entry, verify)
        values = _parse_json(folder / name, file, MAX_LIST_BYTES)
    if not isinstance(values, list) or len(values) != count:
        _fail(folder / name, f"not a list of {count} names")
    if not all(isinstance(value, str | int | float) for value in values):
        _fail(folder / name, "a name is neither a string nor a number")
    return values


def _open_inside(folder: Path, name: str) -> io.BufferedReader:
    """Open a regular file of the folder; a link that leads out of it, a pipe or a device is refused unopened."""
    path = folder / name
    try:
        real = Path(os.path.realpath(path, strict=True))
        if real.parent != Path(os.path.realpath(folder)):
            _fail(path, "leads out of the model folder", "replace the link by the file itself")
        if not stat.S_ISREG(os.stat(real).st_mode):
            _fail(path, "not a regular file")
        return open(real, "rb")
    except FileNotFoundError:
        _fail(path, "missing")
    except OSError as error:
        _fail(path, f"cannot be opened ({error.strerror})", "check the permissions and the disk")


def _check_size_and_hash(path: Path, file: io.BufferedReader, entry: dict[str, Any], verify: bool) -> None:
    size = os.fstat(file.fileno()).st_size
    if _whole(path, entry, "size") != size:
        _fail(path, f"has {size} bytes, not {entry['size']}")
    if verify and hashlib.file_digest(file, "sha256").hexdigest() != entry.get("sha256"):
        _fail(path, "its content is not what was saved (SHA-256 differs)")


def _parse_json(path: Path, file: io.BufferedReader, limit: int) -> Any:
    """JSON of bounded length, without inf, nan and repeated keys."""
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        _fail(path, f"longer than {limit} bytes")
    text = file.read(size)  # not the limit, which would be allocated whatever the file has
    try:
        return parse_json(text)
    except ValueError as error:
        _fail(path, f"not valid JSON ({error})")


def _file_name(where: Path, entry: Any, suffix: str) -> str:
    name = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not FILE_NAME.fullmatch(name) or not name.endswith(suffix):
        _fail(where, f"{name!r:.100} is not the name of a model's file")
    return name


def _whole(where: Path, entry: Any, field: str) -> int:
    value = entry.get(field) if isinstance(entry, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        _fail(where, f"{field!r} of a file is not a whole number")
    return value


def _shape(where: Path, entry: Any) -> tuple[int, ...]:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        _fail(where, f"an array has no shape of at most {MAX_DIMENSIONS} dimensions")
    return tuple(_whole(where, {"shape": length}, "shape") for length in shape)


def _product(shape: tuple[int, ...]) -> int:
    """In Python's integers, which do not overflow."""
    product = 1
    for length in shape:
        product *= length
    return product


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array
