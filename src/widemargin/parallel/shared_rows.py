"""The rows of a fit for tasks of other processes: a store in a temporary folder, found by its path.

Numbers only can be stored; rows of other kinds (text for a pipeline, data frames) travel with the tasks instead.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.data.store import open_store, write_store
from widemargin.parallel.cluster import shared_folders
from widemargin.parallel.copies import find_folder
from widemargin.parallel.executors import Executor

__all__ = ["SharedRows"]


@dataclass(frozen=True)
class SharedRows:
    """Rows that a task loads by a path, or brings with it.

    Parameters
    ----------
    path : str
        The store; empty where the rows are given.
    given : object
        The rows themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.parallel import Processes
    >>> from widemargin.parallel.shared_rows import SharedRows
    >>> with SharedRows.of(np.eye(2), Processes(2)) as rows:
    ...     rows.given is None, rows.load().tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    """

    path: str
    given: Any = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, X: Any, executor: Executor) -> Iterator[SharedRows]:
        """Rows for the tasks of an engine, as long as the block lasts."""
        plain = sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf")
        if not plain:
            yield cls("", X)
            return
        with tempfile.TemporaryDirectory(prefix="widemargin-rows-") as folder:
            path = os.path.join(folder, "rows")
            write_store(path, X)
            with shared_folders(executor, [path]) as (name,):
                yield cls(name)

    def load(self) -> Any:
        """The rows, mapped."""
        return open_store(find_folder(self.path)).X if self.path else self.given
