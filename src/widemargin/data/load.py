"""One door to all data formats, in and out: `load_data` reads what the content says, `save_data` what the name says.

    folder with store.json         store, mapped; any name without one of these endings is written as a store
    .npz, .npy                     arrays; labels from the same file, or from Y.npy or Y.npz next to X.npy or X.npz
    text, plain or gzipped         XMC when the first line is three integers, otherwise svmlight

Label names are part of a store; other formats have them in `<name>_labels.txt` next to the file. Memory: that of the
format's own reader; recognising a format reads one block.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.data.names import NamesLike, check_names, find_label_names, names_stem, read_names, write_names
from widemargin.data.normalize import l2_normalize_rows
from widemargin.data.store import (
    NPY_MAGIC,
    ZIP_MAGIC,
    check_together,
    is_store,
    open_store,
    read_matrix,
    read_npz,
    write_npz,
    write_store,
)
from widemargin.data.tables import is_table
from widemargin.data.text import (
    TextFormat,
    ZeroBased,
    make_options,
    read_text,
    with_first_fitting,
    write_svmlight,
    write_xmc,
)
from widemargin.exceptions import DataFormatError
from widemargin.files import BrokenGzip, PathLike, open_input, read_blocks
from widemargin.labels.encoding import EncodedTargets, encode_targets

__all__ = [
    "Dataset", "Format", "Found", "format_of_name", "label_files", "load_data", "names_of", "recognize_format",
    "save_data",
]  # fmt: skip

Format = Literal["store", "npz", "npy", "xmc", "svmlight"]
FORMATS: tuple[Format, ...] = ("store", "npz", "npy", "xmc", "svmlight")
SUFFIXES: dict[str, Format] = {
    ".txt": "xmc",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npz": "npz",
}
SNIFF_BYTES = 1 << 16
HEADER = re.compile(rb"[ \t]*[0-9]+[ \t]+[0-9]+[ \t]+[0-9]+[ \t]*\r?")


@dataclass(frozen=True)
class Dataset:
    """Features and labels with their names.

    Parameters
    ----------
    X : csr_array or ndarray of shape (n_samples, n_features)
        Features.
    Y : csr_array of shape (n_samples, n_labels), ndarray of shape (n_samples,), list of label lists, or None
        Labels.
    label_names, feature_names : list of str or None
        Names of the columns of Y and X, if known.
    path : str
        Where the data came from.
    index_base : dict of str to int
        Index of the first feature (0 or 1) by text format, if known; reused for later files.
    text : object or None
        For rows made from text: the vectoriser and the `TableSpec`, to be stored with a model. See
        `widemargin.estimators.text`.
    row_ids : list of str or None
        A distinct name for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.data.load import Dataset
    >>> data = Dataset(np.eye(2), np.array([0, 1]), None, None, "here")
    >>> data.X.shape, data.targets.kind
    ((2, 2), 'binary')
    """

    X: Any
    Y: Any
    label_names: list[str] | None
    feature_names: list[str] | None
    path: str
    index_base: dict[str, int] = field(default_factory=dict)
    text: Any = None
    row_ids: list[str] | None = None

    @functools.cached_property
    def targets(self) -> EncodedTargets:
        """The labels, encoded once, with the label names as classes; `fit` takes them as they are."""
        targets = encode_targets(self.Y)
        if self.label_names is None or targets.kind != "multilabel":
            return targets
        classes = np.empty(len(self.label_names), dtype=object)
        classes[:] = self.label_names
        return replace(targets, classes=classes)


@with_shared_passages
def recognize_format(path: PathLike) -> Format:
    """Recognise the format of a file or folder.

    Parameters
    ----------
    path : str or path
        The file or folder.

    Returns
    -------
    format : {"store", "npz", "npy", "xmc", "svmlight"}

    <folder>
    >>> from widemargin.data.load import recognize_format
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
            "this folder is not a store, because it has no store.json",
            path=path,
            remedy="name a file inside it, or a folder written by `widemargin convert`",
        )
    with open_input(path) as file:
        magic = file.read(len(NPY_MAGIC))
    if magic == NPY_MAGIC:
        return "npy"
    if magic.startswith(ZIP_MAGIC):
        return "npz"
    return "xmc" if HEADER.fullmatch(_first_line(path)) else "svmlight"


def _first_line(path: PathLike) -> bytes:
    """The first line that is neither blank nor a comment, without its own comment, if it is in the first block."""
    try:
        blocks = [block.tobytes() for block in itertools.islice(read_blocks(path, SNIFF_BYTES), 1)]
    except BrokenGzip as error:
        raise DataFormatError(f"{error} at the start of the file", path=path) from None
    text = b"".join(blocks).removeprefix(b"\xef\xbb\xbf")
    contents = (line.partition(b"#")[0] for line in text.split(b"\n"))
    return next((content for content in contents if content.strip()), b"")


@with_shared_passages
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
        The format; "auto" recognises it.
    y_path : str or path, optional
        The labels of a `.npy` or `.npz` matrix; by default `Y…` or `y…` next to a file that is called `X…`.
    label_names, feature_names : path or sequence of str, optional
        Names, or a file of them. Without label names, `<name>_labels.txt` or `labels.txt` next to the data is used if
        it has one name per label. svmlight labels are numbers: the first name belongs to label 0. Label names must
        differ; data with one label per row have no numbered labels and take no names.
    multilabel : bool, optional
        For svmlight: whether rows have lists of labels; by default they do if some row has none or several.
    n_features : int, optional
        For svmlight: the number of features.
    zero_based, indices, normalize, n_threads
        As in `read_xmc`. A normalised store is a copy in memory.

    Returns
    -------
    data : Dataset

    <folder>
    >>> from widemargin.data.load import load_data
    >>> path = os.path.join(folder.name, "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("1 2 3\\n0,2 0:1\\n")
    >>> data = load_data(path, label_names=["red", "green", "blue"])
    >>> data.X.shape, data.Y.shape, data.label_names
    ((1, 2), (1, 3), ['red', 'green', 'blue'])
    >>> folder.cleanup()
    """
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"format must be 'auto' or one of {FORMATS}; got {format!r}")
    chosen = recognize_format(path) if format == "auto" else format
    if format == "auto" and chosen in ("xmc", "svmlight") and is_table(path):
        raise DataFormatError(
            "this is a table, but load_data reads numeric rows",
            path=path,
            remedy="use read_texts(path, text_columns, label_column) for text or pandas for numeric columns, or pass "
            "format='svmlight' if the file has that format despite its name",
        )
    if chosen == "store":
        # Verified, since what comes out of here goes straight to kernels that trust their indices.
        store = open_store(path, verify=True)
        found = Found(store.X, store.Y, label_names=store.label_names, feature_names=store.feature_names)
    elif chosen in ("npy", "npz"):
        found = Found(*_load_arrays(path, chosen, y_path))
    else:
        read = functools.partial(_load_text, path, n_features, zero_based, indices, n_threads)
        found = with_first_fitting(chosen == "xmc", multilabel, read)
    names = names_of(found, path, label_names, feature_names)
    X = l2_normalize_rows(found.X, copy=chosen == "store") if normalize else found.X
    return Dataset(X, found.Y, path=os.fspath(path), index_base=dict(found.index_base), **names)


def label_files(*inputs: PathLike | None) -> list[Path]:
    """The label files that `load_data` finds next to some files of rows and reads too."""
    found: list[Path] = []
    for data in inputs:
        if data is not None and os.path.isfile(data) and not is_table(data):
            found += filter(None, (find_label_names(data), _neighbouring_labels(Path(data))))
    return found


class Found(NamedTuple):
    """What a format's own reader returns; `classes` are the label numbers of the columns of Y in svmlight."""

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
    check_together(X, Y, os.fspath(y_path or path))
    return X, Y


def _neighbouring_labels(path: Path) -> Path | None:
    """X_train.npy -> Y_train.npy, Y_train.npz, y_train.npy or y_train.npz, if there is one."""
    if not path.name.startswith("X"):
        return None
    stem = path.name.removesuffix(path.suffix)[1:]
    candidates = [path.with_name(f"{first}{stem}{ending}") for first in "Yy" for ending in (".npy", ".npz")]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _load_text(
    path: PathLike,
    n_features: int | None,
    zero_based: ZeroBased,
    indices: str,
    n_threads: int | None,
    text_format: TextFormat,
) -> Found:
    is_xmc = text_format is TextFormat.XMC
    given = None if is_xmc else n_features
    options = make_options(text_format, zero_based=zero_based, indices=indices, n_features=given)
    X, Y, classes, base = read_text(path, options, n_threads=n_threads)
    # Only an XMC file known to count from 1 says something about the next one: 0 is the rule of the format.
    known = ({"xmc": base} if base else {}) if is_xmc else {"svmlight": base}
    return Found(X, Y, classes, index_base=known)


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
    """One name per column of Y: those given, those in the data, those next to the data, or svmlight's numbers."""
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
            "label names require numbered labels, but the rows have one label each, or none",
            path=path,
            remedy="leave out label_names",
        )
    names = read_names(given) if isinstance(given, str | os.PathLike) else [str(name) for name in given]
    by_number = _names_of_columns(names, found.classes)
    where = os.fspath(given) if isinstance(given, str | os.PathLike) else os.fspath(path)
    return check_names(names if by_number is None else by_number, n_labels, where, distinct=True)


def _names_of_columns(names: list[str], classes: Any) -> list[str] | None:
    """The names in the order of the columns; in svmlight a label is a number, and the first name belongs to label 0."""
    if classes is None:
        return names
    if classes.dtype.kind not in "iu" or len(classes) == 0 or classes[0] < 0 or classes[-1] >= len(names):
        return None
    return [names[number] for number in classes.tolist()]


def format_of_name(path: PathLike) -> Format:
    """The format that `save_data` writes under a name: "xmc", "svmlight", "npz" or "store".

    Examples
    --------
    >>> from widemargin.data.load import format_of_name
    >>> format_of_name("train.txt.gz"), format_of_name("train")
    ('xmc', 'store')
    """
    name = Path(os.fspath(path)).name.removesuffix(".gz")
    return SUFFIXES.get(Path(name).suffix, "store")


def save_data(path: PathLike, dataset: Dataset) -> Format:
    """Write a data set in the format that the name asks for.

    Parameters
    ----------
    path : str or path
        The file or store folder; an existing store is replaced.
    dataset : Dataset
        Rows, labels and their names.

    Returns
    -------
    format : {"xmc", "svmlight", "npz", "store"}
        The format written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from widemargin.data.load import Dataset, load_data, save_data
    >>> data = Dataset(np.eye(2, dtype=np.float32), np.array([0, 1]), None, None, "here")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_data(os.path.join(folder, "data.npz"), data)
    ...     load_data(os.path.join(folder, "data.npz")).Y.tolist()
    'npz'
    [0, 1]
    """
    chosen, labels = format_of_name(path), dataset.label_names
    if chosen == "store":
        names = {"label_names": labels, "feature_names": dataset.feature_names}
        write_store(path, dataset.X, dataset.Y, **names, overwrite=os.path.exists(path))
        return chosen
    Y = dataset.Y
    if chosen == "xmc":
        Y, labels = _indicator(dataset)
    elif chosen == "svmlight":
        _check_svmlight_labels(dataset)
    sidecars = _sidecars(Path(path), labels, dataset.feature_names)
    write = write_npz if chosen == "npz" else write_svmlight if chosen == "svmlight" else write_xmc
    write(path, dataset.X, Y)
    for file, lines in sidecars.items():
        write_names(file, lines)
    return chosen


def _check_svmlight_labels(dataset: Dataset) -> None:
    """Every line of svmlight starts with numbers."""
    problem = None
    if dataset.Y is None:
        problem = "the svmlight format requires labels, but the rows have none"
    elif dataset.Y.ndim == 1 and dataset.Y.dtype.kind not in "biuf":
        problem = "the svmlight format requires numeric labels"
    if problem is not None:
        raise DataFormatError(problem, path=dataset.path, remedy="use a .txt or .npz file, or a store")


def _indicator(dataset: Dataset) -> tuple[sp.csr_array, list[str] | None]:
    """Labels as the indicator of the XMC format, and the names of its columns."""
    if dataset.Y is None:
        return sp.csr_array((dataset.X.shape[0], 0), dtype=np.int8), None
    if dataset.Y.ndim == 2:
        return sp.csr_array(dataset.Y), dataset.label_names
    numbers, classes = dataset.targets.indices, dataset.targets.classes
    ones, indptr = np.ones(len(numbers), dtype=np.int8), np.arange(len(numbers) + 1)
    Y = sp.csr_array((ones, numbers, indptr), shape=(len(numbers), len(classes)))
    return Y, [str(name) for name in classes.tolist()]


def _sidecars(path: Path, labels: list[str] | None, features: list[str] | None) -> dict[Path, list[str]]:
    """Files of names to write next to the data; existing ones must hold the same names."""
    stem = names_stem(path)
    wanted = {path.with_name(f"{stem}_labels.txt"): labels, path.with_name(f"{stem}_features.txt"): features}
    sidecars = {file: names for file, names in wanted.items() if names is not None}
    for file, names in sidecars.items():
        if os.path.lexists(file) and read_names(file) != names:
            message = (
                f"the names in this file differ from those in {path.name}; remove it, or choose another output name"
            )
            raise FileExistsError(errno.EEXIST, message, str(file))
    return sidecars
