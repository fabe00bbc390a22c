"""Questions about a model folder that need no model: may it be written to, and how large is it?"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from widemargin.model_io.write import refuse_other_files

__all__ = ["check_writable", "folder_size"]


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
            raise NotADirectoryError(errno.ENOTDIR, "a model is a folder, and this is a file", str(path))
        refuse_other_files(path)
    in_a_file = next((parent for parent in path.absolute().parents if parent.exists() and not parent.is_dir()), None)
    if in_a_file is not None:
        raise NotADirectoryError(errno.ENOTDIR, "this is a file, so no folder can be made in it", str(in_a_file))
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not os.access(nearest, os.W_OK):
        raise PermissionError(errno.EACCES, "no permission to write here", str(nearest))


def folder_size(folder: str | os.PathLike[str]) -> int:
    """Bytes of all files of a model.

    Parameters
    ----------
    folder : str or path
        A model folder.

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
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
