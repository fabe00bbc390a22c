"""Write a model folder so that a kill at any moment leaves the previous model or the new one.

Order: all parameters are turned into JSON before the disk is touched; stores of rows are taken along, as hard links
where possible; each array goes to a temporary name, is synced to disk and renamed to a name with its hash, unless it is
mapped from a file of the model that is replaced, which then stays; `model.json` is replaced (the switch); files and
stores that nothing refers to are removed. A model larger than memory is written part by part (`JoinedArray`); its files
are byte-identical with those of the same arrays in one piece. Memory: chunks of the array that is being written, or one
part.

A `.wm` file (`write_packed`) has the same files one after another, behind a directory with their places and hashes. So
each is made twice: once for its size and hash, and once to be written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import __version__, _core
from widemargin.exceptions import NotSavableError
from widemargin.files import (
    TEMPORARY,
    HashingFile,
    atomic_file,
    copy_folder,
    file_sha256,
    locked_folder,
    remove_at_once,
    sync_folder,
    write_hashed,
)
from widemargin.model_io.members import ALIGNMENT, HEADER, MAGIC, PACKED_VERSION, is_packed
from widemargin.model_io.read import all_finite, csr_problem
from widemargin.model_io.state import (
    DTYPES,
    FILE_NAME,
    FORMAT_NAME,
    FORMAT_VERSION,
    HASH_DIGITS,
    MANIFEST,
    STORE_FILE,
    STORE_NAME,
    WORK_FOLDER,
    ModelState,
)

__all__ = [
    "JoinedArray", "JoinedCsr", "check_writable", "encode_value", "folder_size", "model_size", "write_model",
    "write_packed",
]  # fmt: skip

ARRAY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")

Parts = Callable[[], Iterator[npt.NDArray[Any]]]


def write_model(folder: str | os.PathLike[str], state: ModelState) -> None:
    """Write a model into a folder, which is made if need be; a model that is there already is replaced.

    Parameters
    ----------
    folder : str or path
        A new or empty folder, or one with a model.
    state : ModelState
        The model.

    Raises
    ------
    NotSavableError
        A part has no place in the format; nothing was written.
    FileExistsError
        The folder has other files and no model.
    OSError
        The disk is full or the folder is read-only, for example; a previous model is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin.model_io import ModelState, read_model, write_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(folder, ModelState("OneVsAllClassifier", {"C": 1.0}, {"coef": np.ones((2, 3))}))
    ...     read_model(folder).params
    {'C': 1.0}
    """
    path = Path(folder)
    content = _checked_content(state)
    stores = {name: _checked_store(name, source) for name, source in sorted(state.stores.items())}
    with _explained(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked_folder(
        path, "another process is writing a model here; wait for it to finish, or choose another folder"
    ):
        refuse_other_files(path)
        with _explained(path):
            _write_all(path, content, stores)


def write_packed(path: str | os.PathLike[str], state: ModelState) -> None:
    """Write a model as one file, which `read_model` maps; a file of that name is replaced in one step.

    Parameters
    ----------
    path : str or path
        The file, usually with the ending `.wm`.
    state : ModelState
        The model, without stores of rows. Equal models give equal bytes.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin.model_io import ModelState, read_model, write_packed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_packed(f"{folder}/model.wm", ModelState("OneVsAllClassifier", {"C": 1.0}, {"coef": np.ones((2, 3))}))
    ...     read_model(f"{folder}/model.wm").params
    {'C': 1.0}
    """
    if state.stores:
        raise NotSavableError("a file cannot hold the training rows of a model; leave out its stores")
    parts = _Files()
    _write_content(parts, _checked_content(state), {}, {})
    # The places in the directory depend on its length, which depends on the digits of the places.
    directory, length = b"", -1
    while len(directory) != length:
        length, end = len(directory), HEADER.size + len(directory)
        for part in parts.files.values():
            part["offset"] = -(-end // ALIGNMENT) * ALIGNMENT
            end = part["offset"] + part["size"]
        files = {name: {key: part[key] for key in ("offset", "size", "sha256")} for name, part in parts.files.items()}
        directory = json.dumps({"files": files}, separators=(",", ":")).encode()
    header = HEADER.pack(MAGIC, PACKED_VERSION, 0, length, hashlib.sha256(directory).digest())
    with atomic_file(path, compress=False) as file:
        file.write(header + directory)
        for name, part in parts.files.items():
            file.write(bytes(part["offset"] - file.tell()))
            part["write"](copy := HashingFile(file))
            if copy.sha256.hexdigest() != part["sha256"]:
                raise NotSavableError(f"{name} changed while it was written; pack the model when it is not changing")


def model_size(state: ModelState) -> int:
    """Bytes of the files that `write_model` would write, without those of the stores of rows.

    Parameters
    ----------
    state : ModelState
        The model.

    Returns
    -------
    int
        The sum, exactly; nothing is written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin.model_io import ModelState, folder_size, model_size, write_model
    >>> state = ModelState("OneVsAllClassifier", {}, {"coef": np.ones((2, 3))}, labels=["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(folder, state)
    ...     folder_size(folder) == model_size(state)
    True
    """
    files = _Files()
    _write_content(files, _checked_content(state), {}, {})
    return sum(part["size"] for part in files.files.values())


class _Files:
    """Takes the place of a model folder: remembers how to write each file, with its size and hash."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}

    def add(self, write: Callable[[Any], object], name_of: Callable[[str], str]) -> tuple[str, str, int]:
        """Name, hash and size of a file."""
        with open(os.devnull, "wb") as nowhere:
            write(file := HashingFile(nowhere))
        digest = file.sha256.hexdigest()
        name = name_of(digest)
        self.files[name] = {"write": write, "size": file.size, "sha256": digest}
        return name, digest, file.size


class _Content(NamedTuple):
    """The parts of a model as they are written."""

    manifest: dict[str, Any]
    arrays: dict[str, Any]
    history: dict[str, Any]
    lists: dict[str, list[Any] | None]


def _checked_content(state: ModelState) -> _Content:
    """The parts of the model, all of which have a place in the format; else a NotSavableError."""
    content = _Content(
        _plain_parts(state),
        {name: _savable(array, f"array {name!r}", finite=True) for name, array in sorted(state.arrays.items())},
        {name: _savable(column, f"history {name!r}", finite=False) for name, column in state.history.items()},
        {role: _name_list(getattr(state, role), role) for role in ("labels", "feature_names", "row_ids")},
    )
    for name in (*content.arrays, *content.history):
        if not ARRAY_NAME.fullmatch(name):
            raise NotSavableError(
                f"the array name {name!r} is not a valid file name; use letters, digits and underscores"
            )
    return content


def _write_content(
    folder: Path | _Files, content: _Content, stores: Mapping[str, Any], previous: Mapping[str, Any]
) -> None:
    """Files first, then the manifest that names them.

    `previous` has the rows of the tables of the model in the folder, by file: mapped files of it stay.
    """
    manifest = content.manifest | {"stores": stores}
    manifest["arrays"] = {name: _write_matrix(folder, name, array, previous) for name, array in content.arrays.items()}
    columns = content.history.items()
    manifest["history"] = {name: _write_array(folder, f"history_{name}", column, previous) for name, column in columns}
    for role, values in content.lists.items():
        manifest[role] = None if values is None else _write_list(folder, role, values)
    if isinstance(folder, Path):
        sync_folder(folder)
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    _write_file(folder, lambda file: file.write(text.encode()), lambda digest: MANIFEST)


def _write_all(folder: Path, content: _Content, stores: Mapping[str, Path]) -> None:
    """Files first, then the manifest; in any case, only files of the model in force are left at the end.

    A store that was there before stays if the model names it, even after a failure: it may be the only copy.
    """
    previous = _referenced_files(folder) or {}
    wanted = {name for name in stores if (folder / name).exists()}
    _remove_temporary(folder)
    try:
        kept = {name: _keep_store(folder / name, source) for name, source in stores.items()}
        _write_content(folder, content, kept, previous)
        sync_folder(folder)
    finally:
        with contextlib.suppress(OSError):
            _remove_leftovers(folder, {*previous}, wanted)


def _plain_parts(state: ModelState) -> dict[str, Any]:
    """The manifest without its tables of files; the format's name comes first, `refuse_other_files` looks for it."""
    try:
        return {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "package_version": __version__,
            "instruction_set": state.instruction_set or _core.choose_instruction_set(),
            "kind": state.kind,
            "params": {
                name: encode_value(value, f"parameter {name!r}") for name, value in sorted(state.params.items())
            },
            "certificate": None
            if state.certificate is None
            else {name: encode_value(value, f"certificate {name!r}") for name, value in state.certificate.items()},
            "attributes": {
                name: encode_value(v, f"attribute {name!r}") for name, v in sorted(state.attributes.items())
            },
        }
    except RecursionError:
        raise NotSavableError("a parameter contains itself or is nested too deeply; use plain values") from None


def encode_value(value: Any, name: str) -> Any:
    """A value as JSON can hold it; `NotSavableError` that says `name` when it cannot.

    Examples
    --------
    >>> from widemargin.model_io.write import encode_value
    >>> encode_value({"C": float("inf"), "degree": (1, 2)}, "params")
    {'C': {'$float': 'inf'}, 'degree': {'$tuple': [1, 2]}}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if value is None or isinstance(value, str | bool | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, list):
        return [encode_value(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": encode_value(list(value), name)}
    if isinstance(value, Mapping):
        plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        if plain:
            return {str(key): encode_value(item, f"{name}.{key}") for key, item in value.items()}
        return {"$items": [[encode_value(k, name), encode_value(v, f"{name}[{k!r}]")] for k, v in value.items()]}
    raise NotSavableError(
        f"{name} has the type {type(value).__name__}, which cannot be saved in a model folder; use numbers, strings, "
        "lists or a name known to the library, or pickle the model yourself"
    )


def _savable(array: Any, what: str, *, finite: bool) -> Any:
    """The array as it is written: C order, little-endian, CSR if sparse; else a `NotSavableError`."""
    if isinstance(array, JoinedArray | JoinedCsr):
        return array  # its parts are checked as they are written
    if sp.issparse(array):
        csr = array.tocsr()
        problem = csr_problem(csr.data, csr.indices, csr.indptr, csr.shape, check_indices=True)
        if problem is not None:
            raise NotSavableError(f"{what} is not a valid CSR array: {problem}")
        _savable(csr.data, what, finite=finite)
        return csr
    plain = np.asarray(array, order="C")
    plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    if plain.dtype.str not in DTYPES:
        raise NotSavableError(
            f"{what} has the type {plain.dtype}, which cannot be saved in a model folder; use integers, float32, "
            "float64 or bool"
        )
    if finite and not all_finite(plain):
        raise NotSavableError(f"{what} contains NaN or infinity; train again with finite data")
    return plain


def _name_list(values: Any, role: str) -> list[Any] | None:
    """Label or feature names as a JSON list."""
    if values is None:
        return None
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    for value in plain:
        if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
            raise NotSavableError(f"{role}: names must be strings or finite numbers; got {value!r}")
    return plain


def _checked_store(name: str, source: str) -> Path:
    """A store that is to be inside the model folder, where it is now; else a `NotSavableError`."""
    path = Path(source)
    if not STORE_NAME.fullmatch(name):
        raise NotSavableError(
            f"{name!r} is not a valid name for a store of a model; use rows- and {HASH_DIGITS} digits"
        )
    if not (path / STORE_FILE).is_file():
        problem = "is missing"
    elif not file_sha256(path / STORE_FILE).startswith(name[-HASH_DIGITS:]):
        problem = "has changed since it was written"
    else:
        return path
    raise NotSavableError(
        f"the store {path} with training rows of the model {problem}; restore it from a copy, or delete rows_ of the "
        "model to save it without its rows"
    )


def _keep_store(target: Path, source: Path) -> dict[str, str | int]:
    """Take a store along, unless it is there already; returns its row of the table."""
    digest = file_sha256(source / STORE_FILE)
    described = target / STORE_FILE
    if not (described.is_file() and file_sha256(described) == digest):
        copy_folder(source, target)
    return {"sha256": digest, "size": _file_bytes(target)}


def _write_matrix(folder: Path | _Files, name: str, matrix: Any, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Write a dense or CSR array; returns its row of the table."""
    if not (sp.issparse(matrix) or isinstance(matrix, JoinedCsr)):
        return {"type": "dense"} | _write_array(folder, name, matrix, previous)
    parts = {part: getattr(matrix, part) for part in ("data", "indices", "indptr")}
    files = {part: _write_array(folder, f"{name}_{part}", array, previous) for part, array in parts.items()}
    return {"type": "csr", "shape": list(matrix.shape)} | files


def _write_array(folder: Path | _Files, name: str, array: Any, previous: Mapping[str, Any]) -> dict[str, Any]:
    mapped = _mapped_file(folder, name, array, previous) if isinstance(folder, Path) else None
    if mapped is not None:
        return mapped
    plain = _savable(array, name, finite=False)
    file = _write_file(
        folder,
        lambda target: (
            plain.write(target)
            if isinstance(plain, JoinedArray)
            else np.lib.format.write_array(target, plain, version=(1, 0), allow_pickle=False)
        ),
        lambda digest: f"{name}-{digest[:HASH_DIGITS]}.npy",
    )
    return {"dtype": plain.dtype.str, "shape": list(plain.shape)} | file


def _mapped_file(folder: Path, name: str, array: Any, previous: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row of the table for an array that is, as a whole, mapped from a file of the model in the folder."""
    mapped: Any = array if hasattr(array, "filename") else getattr(array, "base", None)
    if getattr(mapped, "filename", None) is None or mapped.mode != "r":  # no np.memmap, or one that can be written to
        return None
    path = Path(mapped.filename)
    entry = previous.get(path.name)
    if not isinstance(entry, dict) or path.parent != Path(os.path.realpath(folder)) or not path.is_file():
        return None
    digest, shape = str(entry.get("sha256")), list(array.shape)
    # A part of the file has fewer bytes, and offset and size say where the whole is.
    is_whole = (entry.get("dtype"), entry.get("shape")) == (array.dtype.str, shape) and array.flags.c_contiguous
    size = mapped.offset + array.nbytes
    if (
        not is_whole
        or path.name != f"{name}-{digest[:HASH_DIGITS]}.npy"
        or not size == entry.get("size") == path.stat().st_size
    ):
        return None
    return {"dtype": array.dtype.str, "shape": shape, "file": path.name, "size": size, "sha256": digest}


def _write_list(folder: Path | _Files, role: str, values: list[Any]) -> dict[str, Any]:
    text = json.dumps(values, indent=0, allow_nan=False) + "\n"
    file = _write_file(
        folder, lambda target: target.write(text.encode()), lambda digest: f"{role}-{digest[:HASH_DIGITS]}.json"
    )
    return {"count": len(values)} | file


def _write_file(
    folder: Path | _Files, write: Callable[[Any], object], final_name: Callable[[str], str]
) -> dict[str, str | int]:
    """Write to a temporary name, sync, rename to the name that follows from the hash."""
    if isinstance(folder, _Files):
        name, digest, size = folder.add(write, final_name)
    else:
        name, digest, size = write_hashed(folder / f"{TEMPORARY}{os.getpid()}", write, name_of=final_name)
    return {"file": name, "size": size, "sha256": digest}


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """An OSError that says which folder, and that nothing is lost."""
    try:
        yield
    except OSError as error:
        message = f"the model could not be written ({error.strerror or error}); an existing model there is unchanged"
        raise OSError(error.errno or errno.EIO, message, str(folder)) from error


def refuse_other_files(folder: Path) -> None:
    """Refuse a folder unless it is empty, has a model, or only files that a killed first save left there."""
    manifest = folder / MANIFEST
    if manifest.exists():
        with open(manifest, "rb") as file:
            if FORMAT_NAME.encode() in file.read(len(FORMAT_NAME) + 100):
                return
        raise FileExistsError(
            errno.EEXIST, "this model.json was not written by widemargin; choose another folder", str(manifest)
        )
    ours = (TEMPORARY, WORK_FOLDER)
    names = [entry.name for entry in os.scandir(folder)]
    others = [
        name for name in names if not (name.startswith(ours) or FILE_NAME.fullmatch(name) or STORE_NAME.fullmatch(name))
    ]
    if others:
        message = f"the folder contains other files ({sorted(others)[0]!r}) and no model; choose a new or empty folder"
        raise FileExistsError(errno.EEXIST, message, str(folder))


def _referenced_files(folder: Path) -> dict[str, Any] | None:
    """The files and stores that the manifest on disk names, with their rows of the tables; none without a manifest.

    None when it cannot be read.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        return None
    stores = manifest.get("stores") if isinstance(manifest, dict) else None
    pending, found = [manifest], dict(stores if isinstance(stores, dict) else {})
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
            found |= {value["file"]: value} if isinstance(value.get("file"), str) else {}
    return found


def _remove_temporary(folder: Path) -> None:
    for entry in list(os.scandir(folder)):
        if entry.name.startswith(TEMPORARY):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry, ignore_errors=True)
            else:
                os.unlink(entry)


def _remove_leftovers(folder: Path, previous: set[str], wanted: set[str]) -> None:
    """Remove temporary files, and our files and stores that neither the manifest in force nor `wanted` names.

    Ours are those of the previous model, and any whose name carries the hash of its content.
    """
    _remove_temporary(folder)
    in_force = _referenced_files(folder)
    if in_force is None:
        return
    for entry in list(os.scandir(folder)):
        if entry.name in {*in_force} | wanted:
            continue
        is_file = FILE_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        is_store = STORE_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        content = Path(entry) if is_file else Path(entry) / STORE_FILE
        if (is_file or is_store) and (entry.name in previous or _carries_hash(entry.name, content)):
            if is_file:
                os.unlink(entry)
            else:
                remove_at_once(Path(entry), folder / f"{TEMPORARY}{os.getpid()}-{entry.name}")


def _carries_hash(name: str, content: Path) -> bool:
    """Whether a name ends in the first digits of the hash of a file."""
    return content.is_file() and Path(name).stem.endswith(f"-{file_sha256(content)[:HASH_DIGITS]}")


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Raise the error that `write_model` would raise for this folder, before any work is lost.

    Parameters
    ----------
    folder : str or path
        Where a model is to be written; it need not exist.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin.model_io import check_writable
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_writable(folder)
    """
    path = Path(folder)
    if path.exists():
        if not path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "a model is a folder, but this is a file; choose another name", str(path)
            )
        refuse_other_files(path)
    in_a_file = next((parent for parent in path.absolute().parents if parent.exists() and not parent.is_dir()), None)
    if in_a_file is not None:
        raise NotADirectoryError(
            errno.ENOTDIR, "this is a file, so no folder can be created in it; choose another name", str(in_a_file)
        )
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not os.access(nearest, os.W_OK):
        raise PermissionError(errno.EACCES, "you do not have permission to write here", str(nearest))


def folder_size(folder: str | os.PathLike[str]) -> int:
    """Bytes of all files of a model, with those of the stores inside its folder.

    Parameters
    ----------
    folder : str or path
        A model folder or a `.wm` file.

    Returns
    -------
    int
        Their sum.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin.model_io import folder_size
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     folder_size(folder)
    0
    """
    if is_packed(folder):
        return os.stat(folder).st_size
    stores = [entry for entry in os.scandir(folder) if STORE_NAME.fullmatch(entry.name) and entry.is_dir()]
    return _file_bytes(folder) + sum(map(_file_bytes, stores))


def _file_bytes(folder: str | os.PathLike[str]) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


@dataclass(frozen=True)
class JoinedArray:
    """An array whose parts, along the first axis, are made when they are written.

    Parameters
    ----------
    dtype : dtype
        Type of the whole; parts are converted.
    shape : tuple of int
        Shape of the whole.
    parts : callable
        Returns an iterator over the parts, at every call.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from widemargin.model_io.write import JoinedArray
    >>> joined, file = JoinedArray(np.dtype("<f4"), (3,), lambda: iter([np.ones(2), np.zeros(1)])), io.BytesIO()
    >>> joined.write(file)
    >>> _ = file.seek(0)
    >>> np.load(file).tolist()
    [1.0, 1.0, 0.0]
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Parts

    def row_parts(self) -> Iterator[tuple[npt.NDArray[Any], None]]:
        """The parts as blocks of dense rows, as `JoinedCsr` gives its own."""
        for part in self.parts():
            yield part, None

    def write(self, file: BinaryIO) -> None:
        """Write the `.npy` file; a ValueError when the parts do not make up the shape."""
        dtype = self.dtype.newbyteorder("<")
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, header)
        n_rows = 0
        for part in self.parts():
            plain = np.ascontiguousarray(part, dtype=dtype)
            if plain.shape[1:] != self.shape[1:]:
                raise ValueError(f"a part of shape {plain.shape} does not fit into an array of shape {self.shape}")
            if not all_finite(plain):
                raise NotSavableError("an array contains NaN or infinity; train again with finite data")
            file.write(plain.reshape(-1).view(np.uint8).data)  # not a copy as bytes
            n_rows += len(plain)
        if n_rows != self.shape[0]:
            raise ValueError(f"the parts have {n_rows} rows, but the array has {self.shape[0]}")


@dataclass(frozen=True)
class JoinedCsr:
    """A CSR array whose values and indices come in parts.

    Parameters
    ----------
    data, indices : JoinedArray
        Values and columns, row after row.
    indptr : ndarray of shape (n_rows + 1,)
        Where rows start, of the type of the indices.
    shape : tuple of int
        Rows and columns.

    Examples
    --------
    >>> from widemargin.model_io.write import JoinedCsr
    >>> list(JoinedCsr.__dataclass_fields__)
    ['data', 'indices', 'indptr', 'shape']
    """

    data: JoinedArray
    indices: JoinedArray
    indptr: npt.NDArray[Any]
    shape: tuple[int, int]

    def row_parts(self) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """The values of each part with their own `indptr`; parts consist of whole rows."""
        first = 0
        for values in self.data.parts():
            start = self.indptr[first]
            last = int(np.searchsorted(self.indptr, start + len(values), side="right")) - 1
            yield values, self.indptr[first : last + 1] - start
            first = last
