"""One door to all data formats: the content decides, then the name.

    folder with store.json         store, mapped
    .npz, .npy                     arrays; labels from the same file, or from Y.npy or Y.npz next to X.npy or X.npz
    text, plain or gzipped         XMC when the first line is three integers, otherwise svmlight

Memory: that of the format's own reader; deciding reads one block.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from widemargin.data.files import BrokenGzip, open_input, read_blocks
from widemargin.data.names import NamesLike, check_names, find_label_names, read_names
from widemargin.data.normalize import l2_normalize_rows
from widemargin.data.store import NPY_MAGIC, ZIP_MAGIC, is_store, open_store, read_matrix, read_npz
from widemargin.data.svmlight import read_svmlight_with_base
from widemargin.data.tables import is_table
from widemargin.data.text import ZeroBased
from widemargin.data.xmc import read_xmc_with_base
from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike

__all__ = ["Dataset", "Format", "Found", "load_data", "names_of", "recognize_format", "refuse_input_as_output"]

Format = Literal["store", "npz", "npy", "xmc", "svmlight"]
FORMATS: tuple[Format, ...] = ("store", "npz", "npy", "xmc", "svmlight")
SNIFF_BYTES = 1 << 16
HEADER = re.compile(rb"[ \t]*[0-9]+[ \t]+[0-9]+[ \t]+[0-9]+[ \t]*\r?")


@dataclass(frozen=True)
class Dataset:
    """Features and labels with their names.

    Parameters
    ----------
    X : csr_array or ndarray of shape (n_samples, n_features)
        Features.
    Y : csr_array of shape (n_samples, n_labels), ndarray of shape (n_samples,), or None
        Labels.
    label_names, feature_names : list of str or None
        Names of the columns of Y and X, where they are known.
    path : str
        Where the data came from.
    index_base : dict of str to int
        Number of the first feature, 0 or 1, by text format, where the file told or the caller said it: what further
        files of the same kind are to be read with.
    text : object or None
        Of rows that were made from text: what made them, to be kept with a model. See `widemargin.estimators.text`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.data.load import Dataset
    >>> Dataset(np.eye(2), np.array([0, 1]), None, None, "here").X.shape
    (2, 2)
    """

    X: Any
    Y: Any
    label_names: list[str] | None
    feature_names: list[str] | None
    path: str
    index_base: dict[str, int] = field(default_factory=dict)
    text: Any = None


def recognize_format(path: PathLike) -> Format:
    """Tell the format of a file or folder.

    Parameters
    ----------
    path : str or path
        The file or folder.

    Returns
    -------
    format : {"store", "npz", "npy", "xmc", "svmlight"}

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin.data.load import recognize_format
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("1 2 3\\n0 0:1\\n")
    >>> recognize_format(path)
    'xmc'
    >>> folder.cleanup()
    """
    if is_store(path):
        return "store"
    if os.path.isdir(path):
        raise DataFormatError(
            "this folder is not a store: it has no store.json",
            path=os.fspath(path),
            remedy="name a file inside it, or a folder that `widemargin convert` wrote",
        )
    with open_input(path) as file:
        magic = file.read(len(NPY_MAGIC))
    if magic == NPY_MAGIC:
        return "npy"
    if magic.startswith(ZIP_MAGIC):
        return "npz"
    return "xmc" if HEADER.fullmatch(_first_line(path)) else "svmlight"


def _first_line(path: PathLike) -> bytes:
    """The first line that is neither blank nor a comment, without its own comment, if it is near the beginning."""
    try:
        blocks = [block.tobytes() for block in itertools.islice(read_blocks(path, SNIFF_BYTES), 1)]
    except BrokenGzip as error:
        raise DataFormatError(f"{error} at its beginning", path=os.fspath(path)) from None
    text = b"".join(blocks).removeprefix(b"\xef\xbb\xbf")
    contents = (line.partition(b"#")[0] for line in text.split(b"\n"))
    return next((content for content in contents if content.strip()), b"")


def load_data(
    path: PathLike,
    *,
    format: Format | Literal["auto"] = "auto",
    y_path: PathLike | None = None,
    label_names: PathLike | NamesLike | None = None,
    feature_names: PathLike | NamesLike | None = None,
    multilabel: bool | None = None,
    n_features: int | None = None,
    zero_based: ZeroBased = "auto",
    indices: str = "fix",
    normalize: bool = False,
    n_threads: int | None = None,
) -> Dataset:
    """Load a data set of any format.

    Parameters
    ----------
    path : str or path
        A store folder, or a `.npz`, `.npy`, XMC or svmlight file; text may be gzipped.
    format : {"auto", "store", "npz", "npy", "xmc", "svmlight"}, default="auto"
        The format, when it should not be guessed.
    y_path : str or path, optional
        The labels of a `.npy` or `.npz` matrix; by default `Y…` or `y…` next to a file that is called `X…`.
    label_names, feature_names : path or sequence of str, optional
        Names, or a file of them. Without label names, `<name>_labels.txt` or `labels.txt` next to the data is used if
        it has a name for each label. Labels of svmlight are numbers: the first name is that of label 0. Label names
        must differ; rows with one label each have no numbered labels and take no names.
    multilabel : bool, optional
        For svmlight: whether rows have lists of labels; by default, whether a row has other than one label.
    n_features : int, optional
        For svmlight: the number of features.
    zero_based, indices, normalize, n_threads
        As in `read_xmc`. A normalised store is a copy in memory.

    Returns
    -------
    data : Dataset

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin.data.load import load_data
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("1 2 3\\n0,2 0:1\\n")
    >>> data = load_data(path, label_names=["red", "green", "blue"])
    >>> data.X.shape, data.Y.shape, data.label_names
    ((1, 2), (1, 3), ['red', 'green', 'blue'])
    >>> folder.cleanup()
    """
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"format must be 'auto' or one of {FORMATS}, got {format!r}")
    chosen = recognize_format(path) if format == "auto" else format
    if chosen == "store":
        # Verified, since what comes out of here goes straight to kernels that trust their indices.
        store = open_store(path, verify=True)
        found = Found(store.X, store.Y, label_names=store.label_names, feature_names=store.feature_names)
    elif chosen in ("npy", "npz"):
        found = Found(*_load_arrays(path, chosen, y_path))
    else:
        options = {"zero_based": zero_based, "indices": indices, "n_threads": n_threads}
        found = _load_xmc(path, options) if chosen == "xmc" else _load_svmlight(path, multilabel, n_features, options)
    names = names_of(found, path, label_names, feature_names)
    X = l2_normalize_rows(found.X, copy=chosen == "store") if normalize else found.X
    return Dataset(X, found.Y, path=os.fspath(path), index_base=dict(found.index_base), **names)


def refuse_input_as_output(output: PathLike, *inputs: PathLike | None) -> None:
    """An error if writing a file or folder would replace or change something that is read.

    The output must not be an input under any name (relative, symbolic link, hard link), nor lie inside one that is a
    folder, such as a store or a model, nor be a folder around one. Label files found next to data are inputs too.

    Parameters
    ----------
    output : str or path
        What will be written; it need not exist.
    *inputs : str, path or None
        What is read; None and names that do not exist are skipped.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from widemargin.data.load import refuse_input_as_output
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = pathlib.Path(folder, "data.txt")
    ...     _ = data.write_text("1 2 3\\n0 0:1\\n")
    ...     refuse_input_as_output(data.with_name("predictions.tsv"), data)
    ...     try:
    ...         refuse_input_as_output(data, data)
    ...     except ValueError as error:
    ...         print(str(error).partition("; ")[2])
    choose another name for the output
    """
    for given in inputs:
        if given is None or not os.path.exists(given):
            continue
        path = Path(given)
        has_neighbours = not path.is_dir() and not is_table(path)
        beside = (find_label_names(path), _neighbouring_labels(path)) if has_neighbours else ()
        for source in (path, *(file for file in beside if file is not None)):
            how = _in_the_way(Path(output), source)
            if how is not None:
                raise ValueError(f"the output {output} {how} the input {source}; choose another name for the output")


def _in_the_way(output: Path, source: Path) -> str | None:
    """How an output would change something that is read, as words between their names; None if it would not."""
    if output.exists() and output.samefile(source):
        return "is the same as" if output.is_dir() else "would overwrite"
    if source.is_dir() and _is_inside(output, source):
        return "lies inside"
    return "is a folder around" if output.is_dir() and _is_inside(source, output) else None


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a folder is above a path, whatever their names."""
    return any(parent.exists() and parent.samefile(folder) for parent in Path(os.path.realpath(path)).parents)


class Found(NamedTuple):
    """What a format's own reader gives; `classes` are the numbers that stand for the columns of Y in svmlight."""

    X: Any
    Y: Any
    classes: Any = None
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    index_base: Mapping[str, int] = MappingProxyType({})


def _load_arrays(path: PathLike, chosen: str, y_path: PathLike | None) -> tuple[Any, Any]:
    X, Y = (read_matrix(path), None) if chosen == "npy" else read_npz(path)
    if y_path is None and Y is None:
        y_path = _neighbouring_labels(Path(path))
    if y_path is not None:
        Y = read_matrix(y_path)
    if X.ndim != 2:
        raise DataFormatError(f"X has the shape {X.shape}, not two dimensions", path=os.fspath(path))
    if Y is not None and Y.shape[0] != X.shape[0]:
        raise DataFormatError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}", path=os.fspath(y_path or path))
    return X, Y


def _neighbouring_labels(path: Path) -> Path | None:
    """X_train.npy -> Y_train.npy, Y_train.npz, y_train.npy or y_train.npz, if there is one."""
    if not path.name.startswith("X"):
        return None
    stem = path.name.removesuffix(path.suffix)[1:]
    candidates = [path.with_name(f"{first}{stem}{ending}") for first in "Yy" for ending in (".npy", ".npz")]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _load_xmc(path: PathLike, options: dict[str, Any]) -> Found:
    X, Y, base = read_xmc_with_base(path, **options)
    # Only a file that is known to count from 1 says something about the next one: 0 is the rule of the format.
    return Found(X, Y, index_base={"xmc": base} if base else {})


def _load_svmlight(path: PathLike, multilabel: bool | None, n_features: int | None, options: dict[str, Any]) -> Found:
    options = {"n_features": n_features, **options}
    try:
        data, base = read_svmlight_with_base(path, multilabel=bool(multilabel), **options)
    except DataFormatError as error:
        # The remedy of a row with a list of labels, or with none.
        if multilabel is not None or error.remedy is None or "multilabel=True" not in error.remedy:
            raise
        data, base = read_svmlight_with_base(path, multilabel=True, **options)
    return Found(data.X, data.y, None if data.y.ndim == 1 else data.classes, index_base={"svmlight": base})


def names_of(
    found: Found, path: PathLike, label_names: PathLike | NamesLike | None, feature_names: PathLike | NamesLike | None
) -> dict[str, list[str] | None]:
    """Label and feature names of what was found: those given, or those of the data."""
    labels = _label_names(label_names, found, path)
    features = _names(feature_names, found.X.shape[1], os.fspath(path)) or found.feature_names
    return {"label_names": labels, "feature_names": features}


def _names(given: PathLike | NamesLike | None, expected: int, path: str) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        return check_names(read_names(given), expected, os.fspath(given))
    return check_names(given, expected, path)


def _label_names(given: PathLike | NamesLike | None, found: Found, path: PathLike) -> list[str] | None:
    """A name for each column of Y: those given, those in the data, those next to the data, or svmlight's numbers."""
    n_labels = found.Y.shape[1] if found.Y is not None and found.Y.ndim == 2 else None
    if given is not None:
        return _given_label_names(given, found, n_labels, path)
    if n_labels is None:
        return found.label_names
    if found.label_names is not None:
        return check_names(found.label_names, n_labels, os.fspath(path), distinct=True)
    file = find_label_names(path)
    names = None if file is None else _names_of_columns(read_names(file), found.classes)
    if names is not None and len(names) == n_labels:  # otherwise they belong to other data
        return check_names(names, n_labels, os.fspath(file or path), distinct=True)
    return None if found.classes is None else [str(number) for number in found.classes.tolist()]


def _given_label_names(given: PathLike | NamesLike, found: Found, n_labels: int | None, path: PathLike) -> list[str]:
    if n_labels is None:
        raise DataFormatError(
            "label names were given, but the rows have one label each, or none, and no numbered labels",
            path=os.fspath(path),
            remedy="leave the names out: such labels are their own names",
        )
    names = read_names(given) if isinstance(given, str | os.PathLike) else [str(name) for name in given]
    by_number = _names_of_columns(names, found.classes)
    where = os.fspath(given) if isinstance(given, str | os.PathLike) else os.fspath(path)
    return check_names(names if by_number is None else by_number, n_labels, where, distinct=True)


def _names_of_columns(names: list[str], classes: Any) -> list[str] | None:
    """The names in the order of the columns; in svmlight a label is a number, and name 0 is that of label 0."""
    if classes is None:
        return names
    if classes.dtype.kind not in "iu" or len(classes) == 0 or classes[0] < 0 or classes[-1] >= len(names):
        return None
    return [names[number] for number in classes.tolist()]
