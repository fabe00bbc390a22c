"""One door out to all data formats: the ending of the name decides.

    .txt, .txt.gz       Extreme Classification Repository
    .svm, .svm.gz       svmlight; .svmlight and .libsvm as well
    .npz                arrays
    any other name      a store folder

Names of labels lie in a store itself; for the other formats they go to `<name>_labels.txt` next to the file, where
`load_data` finds them. A file of that name with other names in it is not replaced: nothing is written then.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from widemargin.data.load import Dataset, Format
from widemargin.data.names import names_stem, read_names, write_names
from widemargin.data.store import write_npz, write_store
from widemargin.data.svmlight import write_svmlight
from widemargin.data.xmc import write_xmc
from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike
from widemargin.labels.encoding import encode_targets

__all__ = ["format_of_name", "save_data"]

SUFFIXES: dict[str, Format] = {
    ".txt": "xmc",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".npz": "npz",
}


def format_of_name(path: PathLike) -> Format:
    """The format that `save_data` writes under a name.

    Parameters
    ----------
    path : str or path
        The name.

    Returns
    -------
    format : {"xmc", "svmlight", "npz", "store"}

    Examples
    --------
    >>> from widemargin.data.save import format_of_name
    >>> format_of_name("train.txt.gz"), format_of_name("train")
    ('xmc', 'store')
    """
    name = Path(os.fspath(path)).name.removesuffix(".gz")
    return SUFFIXES.get(Path(name).suffix, "store")


def save_data(path: PathLike, dataset: Dataset) -> Format:
    """Write a data set in the format that its name asks for.

    Parameters
    ----------
    path : str or path
        Where to; a store replaces a store of that name.
    dataset : Dataset
        Rows, labels and their names.

    Returns
    -------
    format : {"xmc", "svmlight", "npz", "store"}
        What was written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from widemargin.data.load import Dataset, load_data
    >>> from widemargin.data.save import save_data
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
    """Every line of svmlight begins with numbers."""
    if dataset.Y is None:
        raise DataFormatError(
            "the rows have no labels, which svmlight cannot say",
            path=dataset.path,
            remedy="write a .txt or .npz file, or a store",
        )
    if dataset.Y.ndim == 1 and dataset.Y.dtype.kind not in "biuf":
        raise DataFormatError(
            "the labels are not numbers, which svmlight needs",
            path=dataset.path,
            remedy="write a .txt or .npz file, or a store",
        )


def _indicator(dataset: Dataset) -> tuple[sp.csr_array, list[str] | None]:
    """Labels as the indicator that the Extreme Classification Repository has, and the names of its columns."""
    if dataset.Y is None:
        return sp.csr_array((dataset.X.shape[0], 0), dtype=np.int8), None
    if dataset.Y.ndim == 2:
        return sp.csr_array(dataset.Y), dataset.label_names
    targets = encode_targets(dataset.Y)
    columns = (targets.indices, np.arange(len(targets.indices) + 1))
    Y = sp.csr_array(
        (np.ones(len(targets.indices), dtype=np.int8), *columns), (len(targets.indices), targets.n_classes)
    )
    return Y, [str(name) for name in targets.classes.tolist()]


def _sidecars(path: Path, labels: list[str] | None, features: list[str] | None) -> dict[Path, list[str]]:
    """Files of names to write next to the data, so that nothing is lost; one with other names is not replaced."""
    stem = names_stem(path)
    wanted = {path.with_name(f"{stem}_labels.txt"): labels, path.with_name(f"{stem}_features.txt"): features}
    sidecars = {file: names for file, names in wanted.items() if names is not None}
    for file, names in sidecars.items():
        if os.path.lexists(file) and read_names(file) != names:
            message = f"the names of {path.name} belong here, but the file has others; remove it or choose another name"
            raise FileExistsError(errno.EEXIST, message, str(file))
    return sidecars
