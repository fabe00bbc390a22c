"""What a training will need, before it starts: memory of a worker, disk, and time.

    memory     the process itself, the solver's copy of the rows, the work areas of its threads, the weights of a shard
    disk       the shards and, before they are removed, the model: the weights twice; and the rows, where copied
    time       that of a sample of labels, evenly spaced, times the number of labels

The sizes of the work areas are those that the solvers state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

__all__ = ["Estimate", "estimate_memory_mb", "largest_shard"]

MEGABYTE = 2**20
PROCESS_MB = 170.0  # Python, NumPy, SciPy and scikit-learn
# Bytes beside X: of the copy for each non-zero and each row, and of a thread's work area for each feature and row.
COPY = {"fast": (13.0, 60.0), "logistic": (9.0, 60.0), "dense": (0.0, 8.0), "newton": (0.0, 8.0)}
THREAD = {"fast": (410.0, 460.0), "logistic": (300.0, 220.0), "dense": (32 * 56.0, 32 * 60.0), "newton": (64.0, 33.0)}
SHARD_SHARE = 0.25  # of the memory limit, at most, for the weights of a shard
COPIES_OF_SHARD = 3  # while it is written: as solved, as arrays of the file, and what is being written


@dataclass(frozen=True)
class Estimate:
    """What a training will need.

    Parameters
    ----------
    memory_mb : float
        Resident memory of a worker.
    disk_bytes : float
        Space in the model folder, at the end of the training.
    seconds : float or None
        Wall-clock time; None where no sample was solved.
    n_workers, n_threads : int
        What the time is for.

    Examples
    --------
    >>> from widemargin.parallel.estimate import Estimate
    >>> print(Estimate(memory_mb=800.0, disk_bytes=3e9, seconds=5400.0, n_workers=2, n_threads=4).text())
    about 800 MB of memory a worker, 3.0 GB of disk, 1.5 hours on 2 workers with 4 threads each
    """

    memory_mb: float
    disk_bytes: float
    seconds: float | None
    n_workers: int = 1
    n_threads: int = 1

    def text(self) -> str:
        """A sentence for people."""
        where = f"{self.n_workers} workers with {_counted(self.n_threads, 'thread')} each"
        if self.n_workers == 1:
            where = _counted(self.n_threads, "thread")
        time = "" if self.seconds is None else f", {_duration(self.seconds)} on {where}"
        return f"about {self.memory_mb:,.0f} MB of memory a worker, {_size(self.disk_bytes)} of disk{time}"


def estimate_memory_mb(X: Any, solver: str, n_threads: int, shard_bytes: float) -> float:
    """Resident memory of a worker in MB, the mapped pages of X included.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features)
        The rows.
    solver : str
        Name of a `PartSolver`.
    n_threads : int
        Its threads.
    shard_bytes : float
        Weights of a shard.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.parallel.estimate import estimate_memory_mb
    >>> estimate_memory_mb(np.eye(3), "newton", 1, 0.0) < 200
    True
    """
    n_rows, n_features = X.shape
    n_values = X.nnz if sp.issparse(X) else X.size
    mapped = n_values * X.dtype.itemsize + (n_values * X.indices.dtype.itemsize if sp.issparse(X) else 0)
    copy = n_values * COPY[solver][0] + n_rows * COPY[solver][1]
    if solver == "fast" and X.dtype.itemsize == 8:
        copy += 8.0 * n_values
    thread = n_features * THREAD[solver][0] + n_rows * THREAD[solver][1]
    total = mapped + copy + n_threads * thread + COPIES_OF_SHARD * shard_bytes
    return float(PROCESS_MB + total / MEGABYTE)


def largest_shard(bytes_per_label: float, memory_limit_mb: float) -> int:
    """Labels of a shard whose weights take no more than their share of the memory.

    Examples
    --------
    >>> from widemargin.parallel.estimate import largest_shard
    >>> largest_shard(1024.0, 16.0)
    1365
    """
    return max(1, int(SHARD_SHARE * memory_limit_mb * MEGABYTE / (COPIES_OF_SHARD * max(1.0, bytes_per_label))))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _size(n_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{max(1.0, n_bytes / 1e3):.0f} kB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
