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
import functools
import io
import itertools
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.cli import inputs
from widemargin.cli.console import print_note, stdout_is_utf8
from widemargin.cli.options import Given, columns, executor_of
from widemargin.data.tables import TextRows, is_table
from widemargin.estimators.closed_sets import closed_blocks
from widemargin.estimators.scoring import LabelModel, TopK
from widemargin.exceptions import DataFormatError, MissingExtraError
from widemargin.files import atomic_file, check_file_target, refuse_input_as_output
from widemargin.labels.graph import LabelGraph

__all__ = ["label_ranges", "predict_in_parts", "predict_part", "run"]

ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""Escapes for the characters in a name that would break tab-separated text."""
STANDARD_OUTPUT = Path("/dev/stdout")
"""Predictions could be appended to their own data: `widemargin predict model data.csv >> data.csv`."""
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
OURS = {"labels", "scores", "probabilities", "explanations", "accepted", "proven"}
IN_ORDER, AS_SET, UNPROVEN = "order", "set", "no"  # what is proven about a list
ROWS_PER_BLOCK = 8192  # of arrays; text files come in blocks of bytes
ENDINGS = {"csv": ".csv", "tsv": ".tsv", "json": ".jsonl", "parquet": ".parquet"}

Row = tuple[list[Any], list[Any], list[float], list[float] | None, Any, list[bool] | None, str | None]
"""Kept columns, labels, scores, probabilities if there are any, the explanation if there is one, which labels are
accepted if there is a precision target, and what is proven about the list if the model is compressed with bounds."""


def run(given: Given) -> None:
    """Write the predictions of all rows; a file appears under its name only when it is complete."""
    if given.out is not None:
        check_file_target(given.out)
    refuse_input_as_output(given.out or STANDARD_OUTPUT, given.data, given.model, given.taxonomy)
    one_text = given.text if given.data is None else None
    if given.data is None and one_text is None:
        raise ValueError("DATA is missing; name a file, use - for standard input, or pass a single text with --text")
    given.text = None if given.data is None or given.text is None else columns("--text", given.text)
    opened = inputs.open_model(given.model, given)
    model, executor = opened.classifier, executor_of(given)
    model.n_jobs, calibrated = given.jobs, hasattr(model, "calibration_")
    # A probability may depend on the scores of other labels.
    joint = calibrated and (model.kind_ != "multilabel" or hasattr(model, "taxonomy_"))
    graph = None if given.taxonomy is None else _graph(model, given)
    if given.decide:
        _check_decide(model, given)
    proves = hasattr(model, "compression_errors_") and not given.decide and graph is None
    here = given.explain or joint or given.decide or graph is not None or proves
    if here and not (executor is None and given.memory_limit is None):
        what = "explanations" if given.explain else "probabilities of labels that depend on each other"
        what = "decisions" if given.decide else "proven lists" if proves and not (given.explain or joint) else what
        raise ValueError(
            f"{what} can only be computed in this process; leave out --processes, --scheduler and --memory-limit"
        )
    rule = getattr(model, "decision_", None) if given.decide else None
    marked = rule is not None and rule.acceptance is not None
    k = width = min(given.k, len(model.classes_))  # missing places are not printed
    if given.decide:
        k, width = 1, rule.max_labels if rule is not None and model.decision == "threshold" else None
    shown = {} if given.names is None else inputs.display_names(given.names)
    with contextlib.ExitStack() as stack:
        rows, kept = _rows(opened, given, one_text, stack)
        line_of, write = stack.enter_context(_writer(given, width, calibrated, marked, proves))
        if rows is None:  # empty input gives empty output
            write([])
            return
        if graph is not None:
            for block in _blocks(rows):
                write(map(line_of, _closed_sets(model, block, graph, kept, shown)))
            return
        limits = {"memory_limit_mb": given.memory_limit, "n_threads": model._n_threads()}
        proven = Counter[str]()
        for top, block in predict_in_parts(model, given.model, rows, k, executor=executor, **limits):
            probabilities = why = accepted = None
            if given.decide:
                top, accepted = _decided(model, block, marked)
            if calibrated:
                probabilities = model.label_proba(block, top.indices) if joint else _of_scores(model, top)
            if given.explain:
                why = [model.explain(block[[row]], k=k) for row in range(len(top.indices))]
            marks = _proofs(top) if proves else None
            proven.update(marks or ())
            write(map(line_of, _found(top, probabilities, why, kept, given.threshold, shown, accepted, marks)))
    if proves:
        n_rows, in_order = proven.total(), proven[IN_ORDER]
        as_sets = in_order + proven[AS_SET]
        print_note(
            f"{as_sets:,} of {n_rows:,} lists ({as_sets / max(1, n_rows):.2%}) are proven to have the labels of the "
            f"full model, {in_order:,} ({in_order / max(1, n_rows):.2%}) in its order"
        )


def _proofs(top: TopK) -> list[str]:
    """What is proven about each list of a compressed model with exact bounds."""
    assert top.proven_set is not None
    assert top.proven_order is not None
    words = np.where(top.proven_order, IN_ORDER, np.where(top.proven_set, AS_SET, UNPROVEN))
    return [str(word) for word in words.tolist()]


def _graph(model: Any, given: Given) -> LabelGraph:
    """The graph of --taxonomy; an error for options that do not go with it, or a model without probabilities."""
    for name in ("k", "threshold", "explain"):
        if name in given.raw:
            raise ValueError(
                f"--{name} does not apply to --taxonomy, which predicts a set of labels per row; leave out one of them"
            )
    if model.kind_ != "multilabel" or not hasattr(model, "calibration_"):
        raise ValueError(
            "--taxonomy requires a calibrated model with several labels per row; train it with --calibrate sigmoid"
        )
    return LabelGraph.from_tsv(given.taxonomy)


def _closed_sets(
    model: Any, X: Any, graph: LabelGraph, kept: Iterator[list[Any]], shown: dict[str, str]
) -> Iterator[Row]:
    """The closed sets of a block of rows, the most probable node first; nodes have probabilities, but no scores."""
    for probabilities, chosen in closed_blocks(model, model._check_rows(X), graph):
        for p, mask in zip(probabilities, chosen, strict=True):
            nodes = np.flatnonzero(mask)
            nodes = nodes[np.argsort(-p[nodes], kind="stable")]  # among equals, ancestors come first
            names = [graph.nodes[node] for node in nodes.tolist()]
            labels = [shown.get(str(name), name) for name in names]
            yield next(kept, []), labels, [], p[nodes].tolist(), None, None, None


def _rows(
    opened: inputs.OpenModel, given: Given, one_text: str | None, stack: contextlib.ExitStack
) -> tuple[Any, Iterator[list[Any]]]:
    """The rows to predict, None if there are none; and the values of the columns to keep."""
    spec, path = opened.spec, given.data
    texts: Any = None if one_text is None else [one_text]
    if str(path) == "-":
        if spec is not None and given.text is None:
            texts = sys.stdin.buffer.read().decode(spec.encoding).removesuffix("\n").split("\n")
            texts = [] if texts == [""] else texts
        else:
            ending = ENDINGS[spec.format or "csv"] if spec is not None else ".txt"
            path = stack.enter_context(inputs.standard_input(ending))
    if given.keep and (texts is not None or spec is None):
        raise ValueError("--keep copies table columns, but the input is not a table; leave it out")
    if spec is None:
        return _numbers(opened.classifier, given, path), iter([])
    if texts is None:
        texts = TextRows(path, spec, labelled=False, keep=given.keep or ())
    first = next(stream := iter(texts), None)
    if first is None:
        return None, iter([])
    return opened.vectorizer.transform(itertools.chain([first], stream)), iter(texts.kept if given.keep else ())


def _numbers(model: Any, given: Given, path: Path | None) -> Any:
    """The stream of the rows of a file of numbers, None if it has none."""
    from widemargin.data.load import label_files
    from widemargin.data.stream import open_rows

    if path is None or is_table(path):
        raise DataFormatError(
            "the input is text, but the model was trained on numeric rows", path=str(given.data or "--text")
        )
    refuse_input_as_output(given.out or STANDARD_OUTPUT, *label_files(path))
    if path.is_file() and path.stat().st_size == 0:
        return None
    rows = open_rows(path, **inputs.reading_options(model, path, given))
    if rows.n_rows == 0:
        return None
    inputs.check_rows_fit(model, path, rows.n_rows, rows.n_features)
    return rows


def _check_decide(model: Any, given: Given) -> None:
    """Refuse options that --decide leaves nothing to do."""
    if model.kind_ != "multilabel":
        raise ValueError("--decide is for models with several labels per row; use --k 1 for the predicted class")
    for name in ("k", "explain"):
        if name in given.raw:
            raise ValueError(f"--{name} cannot be combined with --decide; use one of them")


def _decided(model: Any, block: Any, marked: bool) -> tuple[TopK, Any]:
    """The predicted labels of a block of rows as lists, best first, and which of them are accepted."""
    predicted = model.label_scores(block, sp.csr_array(model.predict(block)))
    n_rows, lengths = predicted.shape[0], np.diff(predicted.indptr)
    row = np.repeat(np.arange(n_rows), lengths)
    order = np.lexsort((predicted.indices, -predicted.data, row))
    place = np.arange(len(row)) - np.repeat(predicted.indptr[:-1], lengths)
    shape = (n_rows, max(1, int(lengths.max(initial=0))))
    indices, scores, accepted = np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf), np.zeros(shape, dtype=bool)
    indices[row, place], scores[row, place] = predicted.indices[order], predicted.data[order]
    if marked:
        accepted[row, place] = np.asarray(model.accept(block)[row, indices[row, place]]).ravel() > 0
    return TopK(None, scores, indices, model.classes_), accepted if marked else None


def _of_scores(model: Any, top: TopK) -> Any:
    """`label_proba` of the top labels, for models where it depends on the label's score alone."""
    found, asked = np.zeros(top.scores.shape), top.indices >= 0
    found[asked] = model.calibration_.of_labels(top.scores[asked], top.indices[asked])
    return found


Writer = tuple[Callable[[Row], Any], Callable[[Iterable[Any]], object]]
"""What a row becomes in the format of the output, and a function that writes some of these."""


def _found(
    top: TopK,
    probabilities: Any,
    why: list[Any] | None,
    kept: Iterator[list[Any]],
    threshold: float | None,
    shown: dict[str, str],
    accepted: Any,
    proofs: list[str] | None,
) -> Iterator[Row]:
    """The predictions of the rows of a block, with missing places and labels below the threshold left out."""
    listed = top.indices >= 0
    if threshold is not None:
        listed &= (top.scores if probabilities is None else probabilities) >= threshold
    named, scored = top.labels.tolist(), top.scores.tolist()
    known = None if probabilities is None else probabilities.tolist()
    for row, mask in enumerate(listed.tolist()):
        labels, scores = list(itertools.compress(named[row], mask)), list(itertools.compress(scored[row], mask))
        if shown:
            labels = [shown.get(str(label), label) for label in labels]
        probable = None if known is None else list(itertools.compress(known[row], mask))
        marks = None if accepted is None else list(itertools.compress(accepted[row].tolist(), mask))
        reason, proven = None if why is None else why[row], None if proofs is None else proofs[row]
        yield next(kept, []), labels, scores, probable, reason, marks, proven


@contextlib.contextmanager
def _writer(given: Given, width: int | None, calibrated: bool, marked: bool, proves: bool) -> Iterator[Writer]:
    """How to write predictions to standard output, or to a file that takes its name at the end."""
    ending = "" if given.out is None else Path(str(given.out).removesuffix(".gz")).suffix.lower()
    kind = "jsonl" if given.json else given.format or FORMATS.get(ending, "tsv")
    keep = given.keep or []
    if kind == "csv" and width is None:
        raise ValueError(
            "--decide has no fixed number of columns for CSV; use --format tsv or jsonl, or train with --max-labels"
        )
    if given.explain and kind in ("csv", "parquet"):
        raise ValueError(f"explanations cannot be written as {kind}; use --format tsv or jsonl")
    if given.taxonomy is not None and kind == "csv":
        raise ValueError("the sets of --taxonomy have no fixed number of columns; use --format tsv, jsonl or parquet")
    if kind in ("jsonl", "parquet") and not OURS.isdisjoint(keep):
        raise ValueError(
            f"--keep {','.join(keep)}: {', '.join(sorted(OURS))} are names of output columns; rename the table column"
        )
    with contextlib.ExitStack() as stack:
        if kind == "parquet":
            yield stack.enter_context(_parquet_writer(given, calibrated, marked, proves))
            return
        stream: Any = sys.stdout
        if given.out is not None:
            stream = io.TextIOWrapper(stack.enter_context(atomic_file(given.out)), encoding="utf-8", newline="\n")
        if kind == "csv":
            table, value = csv.writer(stream, lineterminator="\n"), "probability" if calibrated else "score"
            names = ("label", value, "decision") if marked else ("label", value)
            first = [*keep, *(["proven"] if proves else [])]
            table.writerow(first + [f"{name}_{place + 1}" for place in range(width or 0) for name in names])
            yield _cells, table.writerows
        elif kind == "tsv":
            yield functools.partial(_tsv_line, given.explain_features), stream.writelines
        else:
            ascii_only = given.out is None and not stdout_is_utf8()
            yield functools.partial(_json_line, given, ascii_only), stream.writelines
        if given.out is not None:
            stream.detach()  # flushes, and leaves closing to the file itself


def _cells(row: Row) -> list[Any]:
    """Kept columns, what is proven, then labels with their probabilities or, without those, their scores."""
    kept, labels, scores, probabilities, _, accepted, proven = row
    cells = [*kept, *([] if proven is None else [proven])]
    for place, (label, value) in enumerate(zip(labels, probabilities or scores, strict=True)):
        cells += [label, f"{value:.6g}"]
        if accepted is not None:
            cells.append("accept" if accepted[place] else "check")
    return cells


def _tsv_line(n_features: int, row: Row) -> str:
    """One line, whatever the names, and indented ones that explain it."""
    text, why = "\t".join([str(cell).translate(ESCAPES) for cell in _cells(row)]), row[4]
    for line in [] if why is None else why.lines(n_features):
        text += f"\n  {line.translate(ESCAPES)}"
    return text + "\n"


def _json_line(given: Given, ascii_only: bool, row: Row) -> str:
    kept, labels, scores, probabilities, why, accepted, proven = row
    values = dict(zip(given.keep or (), kept, strict=True)) | {"labels": labels, "scores": scores}
    if probabilities is not None:
        values["probabilities"] = probabilities
    if why is not None:
        values["explanations"] = why.to_dict(given.explain_features)["labels"]
    if accepted is not None:
        values["accepted"] = accepted
    if proven is not None:
        values["proven"] = proven
    return json.dumps(values, ensure_ascii=ascii_only) + "\n"


@contextlib.contextmanager
def _parquet_writer(given: Given, calibrated: bool, marked: bool, proves: bool) -> Iterator[Writer]:
    """Rows with lists of labels and scores, collected for a Parquet file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtraError("writing Parquet", "pyarrow", "parquet") from None
    if given.out is None:
        raise ValueError("Parquet output requires a file; set its name with --out")
    keep, text, numbers = given.keep or [], pyarrow.string(), pyarrow.list_(pyarrow.float64())
    lists = {"labels": pyarrow.list_(text), "scores": numbers} | ({"probabilities": numbers} if calibrated else {})
    lists |= {"accepted": pyarrow.list_(pyarrow.bool_())} if marked else {}
    lists |= {"proven": text} if proves else {}
    schema = pyarrow.schema(dict.fromkeys(keep, text) | lists)
    batches = []

    def record(row: Row) -> dict[str, Any]:
        kept, labels, scores, probabilities, _, accepted, proven = row
        cells = [cell if cell is None else str(cell) for cell in kept]
        values: list[Any] = [list(map(str, labels)), scores, *([probabilities] if calibrated else [])]
        values += [*([accepted] if marked else []), *([proven] if proves else [])]
        return dict(zip(schema.names, [*cells, *values], strict=True))

    yield record, lambda records: batches.append(pyarrow.Table.from_pylist(list(records), schema))
    with atomic_file(given.out, compress=False) as file:
        parquet.write_table(pyarrow.concat_tables(batches), file)


# Bytes per weight while the index by feature is made: the rows of the range, their transpose, and the core's copy.
BYTES_PER_WEIGHT = 40
BLOCK_SHARE = 0.25  # share of the memory for a block of rows and its work area

Range = tuple[int, int]
_LOCK = threading.Lock()
_SCORERS: dict[tuple[str, Range | None], tuple[Any, Any]] = {}  # of one range: the model and its scorer


def label_ranges(model: Any, memory_limit_mb: float) -> list[Range] | None:
    """Ranges of labels whose weights fit in memory one at a time; None if all fit, or if labels cannot be separated."""
    if model.kind_ == "binary":
        return None
    # Labels must be ranked by rows of sparse weights; on a tree, the rows belong to nodes.
    by_score = isinstance(model, LabelModel) and type(model).predict_topk is LabelModel.predict_topk
    if not by_score or not sp.issparse(getattr(model, "coef_", None)):
        return None
    from widemargin.parallel.executors import MEGABYTE, PROCESS_MB

    room = (1 - BLOCK_SHARE) * (memory_limit_mb - PROCESS_MB) * MEGABYTE
    if room <= 0:
        raise MemoryError(f"the memory limit of {memory_limit_mb:,.0f} MB is too low; prediction needs about 300 MB")
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
    """A task: the top k of a range of labels for a range of the rows of a store.

    Parameters
    ----------
    model : str
        Model folder.
    label_range : tuple of int, or None
        First label and the one after the last; None for all.
    rows : str
        Store folder.
    row_range : tuple of int
        The first row and the one after the last.
    k : int
        Number of labels.
    n_threads : int
        Threads; the result does not depend on them.

    Returns
    -------
    indices, scores : ndarray of shape (n_rows, k)
        As from `predict_topk`.
    """
    from widemargin.data.store import open_store
    from widemargin.estimators.persistence import load_classifier
    from widemargin.parallel.folders import find_folder
    from widemargin.problems.scores import LinearScorer

    X = open_store(find_folder(rows)).X[row_range[0] : row_range[1]]
    with _LOCK:
        key = (model, label_range)
        if key not in _SCORERS:
            _SCORERS.clear()
            estimator, scorer = load_classifier(find_folder(model), verify=False), None  # the driver verified it
            if label_range is not None:
                labels = slice(*label_range)
                scale = estimator.label_scale_[labels] if hasattr(estimator, "label_scale_") else None
                scorer = LinearScorer(estimator.coef_[labels], np.asarray(estimator.intercept_[labels]), scale=scale)
            _SCORERS[key] = estimator, scorer
        estimator, scorer = _SCORERS[key]
    estimator.n_jobs = n_threads
    if label_range is None:
        top = estimator.predict_topk(X, k)
        return top.indices, top.scores
    indices, scores = scorer.top_k(estimator._check_rows(X), k, n_threads=n_threads)
    return np.where(indices >= 0, indices + label_range[0], indices), scores


def _blocks(rows: Any) -> Iterator[Any]:
    """Blocks of the rows of a stream or of an array."""
    if hasattr(rows, "blocks"):
        yield from rows.blocks()
        return
    for start in range(0, rows.shape[0], ROWS_PER_BLOCK):
        yield rows[start : start + ROWS_PER_BLOCK]


def predict_in_parts(
    model: Any,
    folder: str | os.PathLike[str],
    rows: Any,
    k: int,
    *,
    executor: Any = None,
    memory_limit_mb: float | None = None,
    n_threads: int = 1,
) -> Iterator[tuple[TopK, Any]]:
    """The top labels of the rows of a file, block after block, in order.

    Parameters
    ----------
    model : fitted model
        What `load` returned for the folder.
    folder : path
        Its folder, from which workers load it.
    rows : RowStream or CSR array
        The rows.
    k : int
        Number of labels.
    executor : None, int, str or dask.distributed.Client
        As in `train`.
    memory_limit_mb : float, optional
        Memory limit of a worker: if the weights do not fit, labels are scored range by range.
    n_threads : int
        Threads of a worker.

    Yields
    ------
    tuple of (TopK, block)
        Of one block of rows; the rows themselves are None if workers, or ranges of labels, made the list.
    """
    ranges = None if memory_limit_mb is None else label_ranges(model, memory_limit_mb)
    if executor is None and ranges is None:
        for block in _blocks(rows):
            yield model.predict_topk(block, k), block
        return
    from widemargin.data.stream import rows_of_array, store_of_rows
    from widemargin.parallel import as_executor, run_tasks
    from widemargin.parallel.folders import shared_folders

    rows, engine = rows if hasattr(rows, "blocks") else rows_of_array("-", rows), as_executor(executor)
    with tempfile.TemporaryDirectory(prefix="widemargin-predict-") as work:
        store, shape = store_of_rows(rows, Path(work, "rows")), (rows.n_rows, k)
        indices = np.lib.format.open_memmap(Path(work, "indices.npy"), mode="w+", dtype=np.int64, shape=shape)
        scores = np.lib.format.open_memmap(Path(work, "scores.npy"), mode="w+", dtype=np.float64, shape=shape)
        indices[:], scores[:] = -1, -np.inf
        blocks = [(start, min(start + ROWS_PER_BLOCK, rows.n_rows)) for start in range(0, rows.n_rows, ROWS_PER_BLOCK)]
        groups: list[Range | None] = [None] if ranges is None else [*ranges]
        with shared_folders(engine, [folder, store]) as names:
            tasks = [(names[0], labels, names[1], part, k, n_threads) for labels in groups for part in blocks]
            for number, (places, values) in run_tasks(predict_part, tasks, engine):
                # The top of the old and new labels; equal scores go to the lower label.
                part = slice(*tasks[number][3])
                places, values = np.hstack([indices[part], places]), np.hstack([scores[part], values])
                order = np.lexsort((places, -values), axis=-1)[:, :k]
                indices[part] = np.take_along_axis(places, order, axis=1)
                scores[part] = np.take_along_axis(values, order, axis=1)
        _SCORERS.clear()
        for start, stop in blocks:
            top = np.array(indices[start:stop])
            yield TopK(None, np.array(scores[start:stop]), top, model.classes_), None
