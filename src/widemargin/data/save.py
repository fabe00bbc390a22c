"""One door out to all data formats: the ending of the name decides.

    .txt, .txt.gz       Extreme Classification Repository
    .svm, .svm.gz       svmlight; .svmlight and .libsvm as well
    .npz                arrays
    any other name      a store folder

Names of labels lie in a store itself; for the other formats they go to `<name>_labels.txt` next to the file, where
`load_data` finds them.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from widemargin.data.arrays import write_npz
from widemargin.data.files import PathLike
from widemargin.data.load import Dataset, Format
from widemargin.data.names import write_names
from widemargin.data.store import write_store
from widemargin.data.svmlight import write_svmlight
from widemargin.data.xmc import write_xmc
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
    if chosen == "npz":
        write_npz(path, dataset.X, dataset.Y)
    elif chosen == "svmlight":
        Y = np.zeros(dataset.X.shape[0]) if dataset.Y is None else dataset.Y
        write_svmlight(path, dataset.X, Y)
    else:
        Y, labels = _indicator(dataset)
        write_xmc(path, dataset.X, Y)
    _write_sidecars(Path(path), labels, dataset.feature_names)
    return chosen


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


def _write_sidecars(path: Path, labels: list[str] | None, features: list[str] | None) -> None:
    """Names next to the file, so that nothing is lost on the way."""
    stem = path.name.split(".")[0]
    for kind, names in (("labels", labels), ("features", features)):
        if names is not None:
            write_names(path.with_name(f"{stem}_{kind}.txt"), names)
