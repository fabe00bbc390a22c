"""Prediction on more rows, or with more labels, than memory holds: the best labels of rows, part by part.

A part is a range of labels and a range of rows; its task reads both from disk and can be run by any engine. The k best
of a row over all parts are the k best of the parts' k best, and a score does not depend on the part that it is found
in, so that the result is that of `predict_topk`, bit for bit. Memory of a worker: the weights of one range of labels,
held by feature, and one block of rows; of this process: one block, and a table of the best labels on disk.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.data.store import is_store, open_store, write_store
from widemargin.data.stream import ROWS_PER_BLOCK, RowStream
from widemargin.estimators.persistence import load_classifier
from widemargin.estimators.scoring import LabelModel, TopK
from widemargin.parallel import as_executor, run_tasks
from widemargin.parallel import folders as copies
from widemargin.parallel.executors import MEGABYTE, PROCESS_MB
from widemargin.parallel.folders import shared_folders
from widemargin.problems.scores import LinearScorer

__all__ = ["label_ranges", "predict_in_parts", "predict_part"]

# Of a weight while the index by feature is made: the rows of the range, their transpose, and what the core keeps.
BYTES_PER_WEIGHT = 40
BLOCK_SHARE = 0.25  # of the memory, for a block of rows and its work area

Range = tuple[int, int]
_LOCK = threading.Lock()
_SCORERS: dict[tuple[str, Range | None], tuple[Any, Any]] = {}  # of one range: the model and its scorer


def label_ranges(model: Any, memory_limit_mb: float | None) -> list[Range] | None:
    """Ranges of labels whose weights fit in memory one at a time; None where all do, or cannot be told apart."""
    if memory_limit_mb is None or model.kind_ == "binary" or not _has_a_row_per_label(model):
        return None
    room = (1 - BLOCK_SHARE) * (memory_limit_mb - PROCESS_MB) * MEGABYTE
    if room <= 0:
        raise MemoryError(f"the memory limit of {memory_limit_mb:,.0f} MB is too low; prediction needs some 300 MB")
    starts = model.coef_.indptr
    n_weights = max(1, int(room / BYTES_PER_WEIGHT))
    bounds = [0]
    while bounds[-1] < len(starts) - 1:
        fitting = int(np.searchsorted(starts, starts[bounds[-1]] + n_weights, side="right")) - 1
        bounds.append(max(fitting, bounds[-1] + 1))
    return None if len(bounds) == 2 else list(itertools.pairwise(bounds))


def predict_part(
    model: str, label_range: Range | None, rows: str, row_range: Range, k: int, n_threads: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The task: the k best of a range of labels for a range of the rows of a store.

    Parameters
    ----------
    model : str
        Model folder.
    label_range : tuple of int, or None
        The first label and the one after the last; None for all.
    rows : str
        Store folder.
    row_range : tuple of int
        The first row and the one after the last.
    k : int
        How many labels.
    n_threads : int
        Threads; the result does not depend on them.

    Returns
    -------
    indices, scores : ndarray of shape (n_rows, k)
        As of `predict_topk`.
    """
    X = open_store(copies.find_folder(rows)).X[row_range[0] : row_range[1]]
    with _LOCK:
        key = (model, label_range)
        if key not in _SCORERS:
            _SCORERS.clear()
            _SCORERS[key] = _open_range(model, label_range)
        estimator, scorer = _SCORERS[key]
    estimator.n_jobs = n_threads
    if label_range is None:
        top = estimator.predict_topk(X, k)
        return top.indices, top.scores
    indices, scores = scorer.top_k(estimator._check_rows(X), k, n_threads=n_threads)
    return np.where(indices >= 0, indices + label_range[0], indices), scores


def predict_in_parts(
    model: Any,
    folder: str | os.PathLike[str],
    rows: RowStream,
    k: int,
    *,
    executor: Any = None,
    memory_limit_mb: float | None = None,
    n_threads: int = 1,
) -> Iterator[TopK]:
    """The best labels of the rows of a file, block after block, in order.

    Parameters
    ----------
    model : fitted model
        What `load` gave for the folder.
    folder : path
        Its folder, which workers load it from.
    rows : RowStream
        The rows.
    k : int
        How many labels.
    executor : None, int, str or dask.distributed.Client
        As of `train`.
    memory_limit_mb : float, optional
        Bound on the memory of a worker: labels are gone through range by range where all weights do not fit.
    n_threads : int
        Threads of a worker.

    Yields
    ------
    TopK
        Of as many rows as a block has.
    """
    engine, ranges = as_executor(executor), label_ranges(model, memory_limit_mb)
    if engine.in_process and ranges is None:
        for block in rows.blocks():
            yield model.predict_topk(block, k)
        return
    with tempfile.TemporaryDirectory(prefix="widemargin-predict-") as work:
        table = _Table(Path(work), rows.n_rows, k)
        store = _as_store(rows, Path(work) / "rows")
        blocks = [(start, min(start + ROWS_PER_BLOCK, rows.n_rows)) for start in range(0, rows.n_rows, ROWS_PER_BLOCK)]
        groups: list[Range | None] = [None] if ranges is None else [*ranges]
        with shared_folders(engine, [folder, store]) as names:
            tasks = [(names[0], labels, names[1], part, k, n_threads) for labels in groups for part in blocks]
            for number, found in run_tasks(predict_part, tasks, engine):
                table.merge(tasks[number][3], *found)
        _SCORERS.clear()
        for start, stop in blocks:
            indices, scores = table.rows(start, stop)
            yield TopK(model._encoding().decode(indices), scores, indices, model.classes_)


def _has_a_row_per_label(model: Any) -> bool:
    """Whether the labels of a model are ranked by rows of sparse weights; on a tree, rows belong to nodes."""
    by_score = isinstance(model, LabelModel) and type(model).predict_topk is LabelModel.predict_topk
    return by_score and sp.issparse(getattr(model, "coef_", None))


class _Table:
    """The best labels so far of all rows, on disk."""

    def __init__(self, folder: Path, n_rows: int, k: int) -> None:
        shape = (n_rows, k)
        self.indices = np.lib.format.open_memmap(folder / "indices.npy", mode="w+", dtype=np.int64, shape=shape)
        self.scores = np.lib.format.open_memmap(folder / "scores.npy", mode="w+", dtype=np.float64, shape=shape)
        for start in range(0, n_rows, ROWS_PER_BLOCK):
            self.indices[start : start + ROWS_PER_BLOCK] = -1
            self.scores[start : start + ROWS_PER_BLOCK] = -np.inf

    def merge(self, part: Range, indices: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> None:
        """Keep the best of what is there and what is new; of equal scores the lower label."""
        rows, k = slice(*part), self.indices.shape[1]
        both = np.hstack([self.indices[rows], indices]), np.hstack([self.scores[rows], scores])
        order = np.lexsort((both[0], -both[1]), axis=-1)[:, :k]
        self.indices[rows] = np.take_along_axis(both[0], order, axis=1)
        self.scores[rows] = np.take_along_axis(both[1], order, axis=1)

    def rows(self, start: int, stop: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Labels and scores of some rows."""
        return np.array(self.indices[start:stop]), np.array(self.scores[start:stop])


def _open_range(model: str, label_range: Range | None) -> tuple[Any, Any]:
    estimator = load_classifier(copies.find_folder(model), verify=False)  # the driver verified it
    if label_range is None:
        return estimator, None
    first, last = label_range
    return estimator, LinearScorer(estimator.coef_[first:last], np.asarray(estimator.intercept_[first:last]))


def _as_store(rows: RowStream, folder: Path) -> str:
    """The store of the rows: the one they come from, or one that is written block by block."""
    if is_store(rows.path):
        return rows.path
    if rows.options is None:
        write_store(folder, rows.X)
        return str(folder)
    data = np.lib.format.open_memmap(folder.with_name("data.npy"), mode="w+", dtype=np.float32, shape=(rows.n_values,))
    indices = np.lib.format.open_memmap(
        folder.with_name("columns.npy"), mode="w+", dtype=np.int32, shape=(rows.n_values,)
    )
    indptr, at, row = np.zeros(rows.n_rows + 1, dtype=np.int64), 0, 0
    for block in rows.blocks():
        data[at : at + block.nnz], indices[at : at + block.nnz] = block.data, block.indices
        indptr[row + 1 : row + 1 + block.shape[0]] = at + block.indptr[1:].astype(np.int64)
        at, row = at + block.nnz, row + block.shape[0]
    X = sp.csr_array((rows.n_rows, rows.n_features), dtype=np.float32)
    X.data, X.indices, X.indptr = data, indices, indptr.astype(np.int32 if at < 2**31 else np.int64)
    write_store(folder, X)
    return str(folder)
