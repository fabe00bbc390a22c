"""`widemargin predict`: the top labels of each row, as tab-separated text, CSV, JSON lines or Parquet.

More rows, or more labels, than memory holds are predicted in parts. A part is a range of labels and a range of rows;
its task reads both from disk, and any executor can run it. The top k of a row over all parts are the top k of the
parts' top k, and a score does not depend on its part, so the result is that of `predict_topk`, bit for bit. Memory of a
worker: the weights of one range of labels, held by feature, and one block of rows; of this process: one block, and a
table of the top labels on disk.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.cli.console import short_warnings, stdout_is_utf8
from widemargin.cli.inputs import (
    OpenModel,
    check_rows_fit,
    display_names,
    known_columns,
    open_model,
    reading_options,
    standard_input,
)
from widemargin.cli.options import Given, columns, executor_of
from widemargin.data.load import refuse_input_as_output
from widemargin.data.store import is_store, open_store, write_store
from widemargin.data.stream import ROWS_PER_BLOCK, RowStream, open_rows, rows_of_array
from widemargin.data.tables import TextRows, is_table
from widemargin.estimators.persistence import load_classifier
from widemargin.estimators.scoring import LinearLabelModel, TopK
from widemargin.exceptions import DataFormatError, MissingExtraError
from widemargin.files import atomic_file, check_file_target
from widemargin.problems.scores import LinearScorer

__all__ = ["label_ranges", "predict_in_parts", "predict_part", "run"]

ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""Escapes for the characters in a name that would break tab-separated text."""
STANDARD_OUTPUT = Path("/dev/stdout")
"""Predictions could be appended to their own data: `widemargin predict model data.csv >> data.csv`."""
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
ENDINGS = {"csv": ".csv", "tsv": ".tsv", "json": ".jsonl", "parquet": ".parquet"}


class Found(NamedTuple):
    """The predictions of one row: kept columns, labels, scores, probabilities and explanation."""

    kept: list[Any]
    labels: list[Any]
    scores: list[float]
    probabilities: list[float] | None
    why: Any


def run(given: Given) -> None:
    """Write the predictions of all rows; a file appears under its name only when it is complete."""
    if given.out is not None:
        check_file_target(given.out)
    refuse_input_as_output(STANDARD_OUTPUT if given.out is None else given.out, given.data, given.model)
    one_text = given.text if given.data is None else None
    if given.data is None and one_text is None:
        raise ValueError("DATA is missing: name a file, - for standard input, or give one text with --text")
    given.text = None if given.data is None or given.text is None else columns("--text", given.text)
    opened = open_model(given.model, given)
    model, executor = opened.classifier, executor_of(given)
    model.n_jobs = given.jobs
    # A probability may depend on the scores of other labels.
    joint = hasattr(model, "label_proba") and (model.kind_ != "multilabel" or hasattr(model, "taxonomy_"))
    if (given.explain or joint) and not (executor is None and given.memory_limit is None):
        what = "explanations" if given.explain else "probabilities of labels that depend on each other"
        raise ValueError(f"{what} are made in this process; leave out --processes, --scheduler and --memory-limit")
    k, shown = min(given.k, len(model.classes_)), display_names(given.names)  # missing places are not printed
    with contextlib.ExitStack() as stack:
        with short_warnings():
            rows, kept = _rows(opened, given, one_text, stack)
        write = stack.enter_context(_writer(given, k, hasattr(model, "label_proba")))
        if rows is None:  # empty input gives empty output
            write([])
        elif given.explain or joint:
            for block in rows.blocks():
                top = model.predict_topk(block, k)
                probabilities = model.label_proba(block, top.indices) if hasattr(model, "label_proba") else None
                why = (model.explain(block[[row]], k=k) for row in range(len(top.indices))) if given.explain else None
                write(_found(top, probabilities, why, kept, given.threshold, shown))
        else:
            parts = {"executor": executor, "memory_limit_mb": given.memory_limit, "n_threads": model._n_threads()}
            for top in predict_in_parts(model, given.model, rows, k, **parts):
                write(_found(top, _of_scores(model, top), None, kept, given.threshold, shown))


def _rows(
    opened: OpenModel, given: Given, one_text: str | None, stack: contextlib.ExitStack
) -> tuple[RowStream | None, Iterator[list[Any]]]:
    """The rows to predict, None if there are none; and the values of the columns to keep."""
    spec, from_stdin = opened.spec, str(given.data) == "-"
    texts: Any = None
    if spec is not None and (one_text is not None or (from_stdin and given.text is None)):
        lines = sys.stdin.buffer.read().decode(spec.encoding).split("\n") if one_text is None else [one_text]
        texts = lines if lines[-1] or one_text is not None else lines[:-1]
    else:
        ending = ENDINGS[spec.format or "csv"] if spec is not None else ".txt"
        path = stack.enter_context(standard_input(given.data, ending)) if one_text is None else Path()
    if given.keep and (texts is not None or spec is None):
        raise ValueError("--keep copies columns of a table; the input has none")
    if spec is None:
        if one_text is not None or is_table(path):
            raise DataFormatError(
                "text, and the model takes rows of numbers", path=str(path) if one_text is None else None
            )
        if path.is_file() and path.stat().st_size == 0:
            return None, iter([])
        found = open_rows(path, **reading_options(opened.classifier, path, given))
        if found.n_rows == 0:
            return None, iter([])
        check_rows_fit(opened.classifier, path, found.n_rows, found.n_features)
        return found, iter([])
    if texts is None:
        texts = TextRows(path, known_columns(spec, path), labelled=False, keep=given.keep or ())
    first = next(stream := iter(texts), None)
    if first is None:
        return None, iter([])
    X = opened.vectorizer.transform(itertools.chain([first], stream))
    return rows_of_array(given.data or "", X), iter(texts.kept if given.keep else ())


def _of_scores(model: Any, top: TopK) -> Any:
    """`label_proba` of the top labels, for models where it depends on the label's score alone; None without it."""
    if not hasattr(model, "label_proba"):
        return None
    found, asked = np.zeros(top.scores.shape), top.indices >= 0
    found[asked] = model.calibration_.of_labels(top.scores[asked], top.indices[asked])
    return found


def _found(
    top: TopK,
    probabilities: Any,
    why: Iterator[Any] | None,
    kept: Iterator[list[Any]],
    threshold: float | None,
    shown: dict[str, str],
) -> Iterator[Found]:
    """The predictions of the rows of a block, with missing places and labels below the threshold left out."""
    listed = top.indices >= 0
    if threshold is not None:
        listed = listed & ((top.scores if probabilities is None else probabilities) >= threshold)
    columns = [top.labels, top.scores] if probabilities is None else [top.labels, top.scores, probabilities]
    for mask, *parts in zip(listed.tolist(), *(part.tolist() for part in columns), strict=True):
        labels, scores, *known = (list(itertools.compress(part, mask)) for part in parts)
        if shown:
            labels = [shown.get(str(label), label) for label in labels]
        yield Found(next(kept, []), labels, scores, known[0] if known else None, next(why) if why else None)


@contextlib.contextmanager
def _writer(given: Given, k: int, calibrated: bool) -> Iterator[Callable[[Iterable[Found]], None]]:
    """A function that writes predictions to standard output, or to a file that takes its name at the end."""
    ending = "" if given.out is None else Path(str(given.out).removesuffix(".gz")).suffix.lower()
    kind = "jsonl" if given.json else given.format or FORMATS.get(ending, "tsv")
    if given.explain and kind in ("csv", "parquet"):
        raise ValueError(f"explanations are written as tab-separated text or JSON lines, not as {kind}")
    taken = [name for name in given.keep or () if name in Found._fields]
    if taken and kind in ("jsonl", "parquet"):
        raise ValueError(
            f"--keep {taken[0]}: the output has a column of its own with this name; rename the one of the table"
        )
    with contextlib.ExitStack() as stack:
        if kind == "parquet":
            yield stack.enter_context(_parquet_writer(given, calibrated))
            return
        stream: Any = sys.stdout
        if given.out is not None:
            file = stack.enter_context(atomic_file(given.out))
            stream = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        if kind == "csv":
            value = "probability" if calibrated else "score"
            table = csv.writer(stream, lineterminator="\n")
            places = [f"{name}_{place}" for place in range(1, k + 1) for name in ("label", value)]
            table.writerow([*(given.keep or ()), *places])
            yield lambda found: table.writerows(map(_cells, found))
        else:
            ascii_only = given.out is None and not stdout_is_utf8()
            line = _tsv_line if kind == "tsv" else _json_line
            yield lambda found: stream.writelines(line(row, given, ascii_only) for row in found)
        if given.out is not None:
            stream.detach()  # flushes, and leaves closing to the file itself


def _cells(row: Found) -> list[Any]:
    """Kept columns, then labels with their probabilities, or with their scores where there are none."""
    values = row.scores if row.probabilities is None else row.probabilities
    places = itertools.chain.from_iterable(zip(row.labels, (f"{value:.6g}" for value in values), strict=True))
    return [*row.kept, *places]


def _tsv_line(row: Found, given: Given, ascii_only: bool) -> str:
    """One line, whatever the names, and indented ones that explain it."""
    line = "\t".join("" if cell is None else str(cell).translate(ESCAPES) for cell in _cells(row))
    if row.why is None:
        return line + "\n"
    return "\n  ".join([line, *(text.translate(ESCAPES) for text in row.why.lines(given.explain_features))]) + "\n"


def _json_line(row: Found, given: Given, ascii_only: bool) -> str:
    values = dict(zip(given.keep or (), row.kept, strict=True)) | {"labels": row.labels, "scores": row.scores}
    if row.probabilities is not None:
        values["probabilities"] = row.probabilities
    if row.why is not None:
        values["explanations"] = row.why.to_dict(given.explain_features)["labels"]
    return json.dumps(values, ensure_ascii=ascii_only) + "\n"


@contextlib.contextmanager
def _parquet_writer(given: Given, calibrated: bool) -> Iterator[Callable[[Iterable[Found]], None]]:
    """A function that writes rows with lists of labels and scores to a Parquet file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtraError("writing Parquet", "pyarrow", "parquet") from None
    if given.out is None:
        raise ValueError("Parquet is written to a file: name it with --out")
    lists = {"labels": pyarrow.string(), "scores": pyarrow.float64(), "probabilities": pyarrow.float64()}
    names = list(lists) if calibrated else ["labels", "scores"]
    batches = []

    def write(found: Iterable[Found]) -> None:
        rows = list(found)
        table = {
            name: [None if row.kept[i] is None else str(row.kept[i]) for row in rows]
            for i, name in enumerate(given.keep or ())
        }
        arrays = {name: pyarrow.array(values, pyarrow.string()) for name, values in table.items()}
        for name in names:
            values = [getattr(row, name) for row in rows]
            values = [list(map(str, labels)) for labels in values] if name == "labels" else values
            arrays[name] = pyarrow.array(values, pyarrow.list_(lists[name]))
        batches.append(pyarrow.table(arrays))

    yield write
    with atomic_file(given.out, compress=False) as file:
        parquet.write_table(pyarrow.concat_tables(batches), file)


# Bytes per weight while the index by feature is made: the rows of the range, their transpose, and the core's copy.
BYTES_PER_WEIGHT = 40
BLOCK_SHARE = 0.25  # share of the memory for a block of rows and its work area

Range = tuple[int, int]
_LOCK = threading.Lock()
_SCORERS: dict[tuple[str, Range | None], tuple[Any, Any]] = {}  # of one range: the model and its scorer


def label_ranges(model: Any, memory_limit_mb: float | None) -> list[Range] | None:
    """Ranges of labels whose weights fit in memory one at a time; None if all fit, or if labels cannot be separated."""
    if memory_limit_mb is None or model.kind_ == "binary" or not _has_a_row_per_label(model):
        return None
    from widemargin.parallel.executors import MEGABYTE, PROCESS_MB

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
    """The task: the top k of a range of labels for a range of the rows of a store.

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
        As from `predict_topk`.
    """
    from widemargin.parallel.cluster import find_folder

    X = open_store(find_folder(rows)).X[row_range[0] : row_range[1]]
    with _LOCK:
        key = (model, label_range)
        if key not in _SCORERS:
            _SCORERS.clear()
            _SCORERS[key] = _open_range(find_folder(model), label_range)
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
    """The top labels of the rows of a file, block after block, in order.

    Parameters
    ----------
    model : fitted model
        What `load` returned for the folder.
    folder : path
        Its folder, from which workers load it.
    rows : RowStream
        The rows.
    k : int
        How many labels.
    executor : None, int, str or dask.distributed.Client
        As in `train`.
    memory_limit_mb : float, optional
        Memory limit of a worker: if the weights do not fit, labels are scored range by range.
    n_threads : int
        Threads of a worker.

    Yields
    ------
    TopK
        Of one block of rows.
    """
    ranges = label_ranges(model, memory_limit_mb)
    if executor is None and ranges is None:
        for block in rows.blocks():
            yield model.predict_topk(block, k)
        return
    from widemargin.parallel import as_executor, run_tasks
    from widemargin.parallel.cluster import shared_folders

    engine = as_executor(executor)
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
    """Whether the labels of a model are ranked by rows of sparse weights; on a tree, the rows belong to nodes."""
    by_score = isinstance(model, LinearLabelModel) and type(model).predict_topk is LinearLabelModel.predict_topk
    return by_score and sp.issparse(getattr(model, "coef_", None))


class _Table:
    """The top labels so far of all rows, on disk."""

    def __init__(self, folder: Path, n_rows: int, k: int) -> None:
        shape = (n_rows, k)
        self.indices = np.lib.format.open_memmap(folder / "indices.npy", mode="w+", dtype=np.int64, shape=shape)
        self.scores = np.lib.format.open_memmap(folder / "scores.npy", mode="w+", dtype=np.float64, shape=shape)
        for start in range(0, n_rows, ROWS_PER_BLOCK):
            self.indices[start : start + ROWS_PER_BLOCK] = -1
            self.scores[start : start + ROWS_PER_BLOCK] = -np.inf

    def merge(self, part: Range, indices: npt.NDArray[np.int64], scores: npt.NDArray[np.float64]) -> None:
        """Keep the top of the old and new labels; equal scores go to the lower label."""
        rows, k = slice(*part), self.indices.shape[1]
        both = np.hstack([self.indices[rows], indices]), np.hstack([self.scores[rows], scores])
        order = np.lexsort((both[0], -both[1]), axis=-1)[:, :k]
        self.indices[rows] = np.take_along_axis(both[0], order, axis=1)
        self.scores[rows] = np.take_along_axis(both[1], order, axis=1)

    def rows(self, start: int, stop: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Labels and scores of some rows."""
        return np.array(self.indices[start:stop]), np.array(self.scores[start:stop])


def _open_range(model: str, label_range: Range | None) -> tuple[Any, Any]:
    estimator = load_classifier(model, verify=False)  # the driver verified it
    if label_range is None:
        return estimator, None
    first, last = label_range
    return estimator, LinearScorer(estimator.coef_[first:last], np.asarray(estimator.intercept_[first:last]))


def _as_store(rows: RowStream, folder: Path) -> str:
    """The store of the rows: their own, or one that is written block by block."""
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
