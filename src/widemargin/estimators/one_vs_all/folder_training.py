"""Training into a model folder: `train`, in memory or in shards that survive kills and outgrow a machine.

Most models are fitted in memory and saved. The labels of a large one-vs-all model are solved in shards by tasks that
any executor can run (`widemargin.estimators.one_vs_all.shards`): finished shards are kept in the model folder, and the
training resumes when it is started again with the same data and parameters. It is large when its work, labels × (stored
values + features), is above `LARGE_WORK`, or rows and dense weights are above `LARGE_BYTES`; smaller ones take less
time than one shard. A number of processes, a cluster, a shard size, a time limit or a memory limit asks for shards
regardless of size, and so does an unfinished training in the folder.

The bytes of the model do not depend on this choice, nor on shards, threads, workers or kills. The previous model in the
folder stays usable until the new one is complete. Memory of a worker: `memory_limit_mb`, for any number of labels.
Memory of this process: the rows if they do not come from a store, and 100 bytes per label.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_array

from widemargin import __version__, _core
from widemargin.data.load import Dataset, label_files, load_data
from widemargin.data.normalize import has_unit_rows, l2_normalize_rows, with_unit_rows
from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.data.training_rows import Segment, TrainingRows, check_row_ids, write_segment
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.one_vs_all.shards import CONTINUE, STARTS_OF_MANY_LABELS, ShardRun, bytes_of, watching_memory
from widemargin.estimators.persistence import check_savable, load, save, stored_parameters
from widemargin.estimators.text import with_text
from widemargin.estimators.training import Estimator, TrainingData
from widemargin.estimators.tuning import AUTO, Choice, choose_for_lists, using
from widemargin.exceptions import DataFormatError, TrainingInterrupted, UnfinishedTrainingError
from widemargin.files import refuse_input_as_output
from widemargin.labels.encoding import EncodedTargets
from widemargin.model_io import check_writable
from widemargin.model_io.state import WORK_FOLDER
from widemargin.parallel import as_executor, use_executor
from widemargin.parallel.executors import MEGABYTE, PROCESS_MB
from widemargin.parallel.work_folder import WorkFolder
from widemargin.solvers.limits import TimeLimit, deadline_of
from widemargin.solvers.one_vs_all.plan import Plan, work_of

__all__ = ["LARGE_BYTES", "LARGE_WORK", "add_matrix", "add_names", "is_large", "job_plan", "train", "write_rows"]

# A unit of work takes 1 to 6 ns of CPU, 25 with Newton on sparse rows: below this, training takes 2 to 25 s, less than
# one shard: shards would not make a kill cheaper. Shards cost 0.1 s of waiting for the disk, 15 ms of CPU and, above
# 10⁸ units, 12 % more CPU (pilot labels are solved twice).
LARGE_WORK = 1_000_000_000
LARGE_BYTES = 256 * MEGABYTE
CHOSEN = "chosen.json"
BLOCK_VALUES = 1 << 22  # of rows that are normalised at a time

Report = Callable[[str], None]


def train(
    estimator: Estimator,
    data: Any,
    out: str | os.PathLike[str],
    *,
    executor: Any = None,
    shard_size: int | None = None,
    time_limit_s: float | None = None,
    memory_limit_mb: float | None = None,
    restart: bool = False,
    report: Report | None = None,
    groups: Any = None,
    keep_rows: bool = False,
    row_ids: Sequence[str] | None = None,
    keep_duals: bool = False,
) -> Any:
    """Train a model into a folder; a large one-vs-all training can be resumed after a kill.

    Parameters
    ----------
    estimator : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        The estimator with its parameters; it is not changed. Its `callback` receives the progress and may stop
        training. If it has an attribute `tuning_`, the values that `tune` tried, the model keeps it.
    data : path, Dataset, or tuple of (X, y)
        Rows and labels. A store folder (`write_store`) is memory-mapped, also by the workers; anything else is read
        into memory.
    out : path
        The model folder. An earlier model in it stays until the new one is complete.
    executor : None, int, str or dask.distributed.Client
        Where to train: in this process with `n_jobs` threads, in a number of processes, or on a dask cluster, given by
        the address of its scheduler or by a client. The tasks are shards of labels (one-vs-all), columns (output codes)
        or nodes (trees with k > 1). The model does not depend on it.
    shard_size : int, optional
        One-vs-all only: number of labels per shard, the unit that a kill may lose; by default about half a minute of
        work. If given, even a small model is trained in shards, and can be resumed. The model does not depend on it.
    time_limit_s : float, optional
        Time limit, like a `TimeLimit` as callback. One-vs-all drops the shards in flight and raises an
        `UnfinishedTrainingError`; call again to resume. Other methods save the model reached so far, with the status
        `TIME_LIMIT`.
    memory_limit_mb : float, optional
        Limit on the resident memory of a worker. Solver, threads and shards are chosen to fit. A limit that is too low
        is an error before training starts, and a worker that needs more stops with a MemoryError. Without shards, the
        memory of this process is checked whenever the solver reports progress.
    restart : bool, default=False
        Whether to discard an unfinished training in the folder.
    report : callable, optional
        Called with sentences about the resources that a training in shards needs, and about its progress.
    groups : array-like of shape (n_samples,), optional
        Group of each row; rows of one group are held out together when C="auto" chooses.
    keep_rows : bool, default=False
        Whether to keep a copy of the rows in the model folder, so that the model can be updated. A model that was
        trained on all rows of a store records where the store is, and needs no copy as long as it stays there.
    row_ids : sequence of str, optional
        A distinct name for each row, by which it can be removed later; by default those of the `Dataset`. This requires
        a store, or `keep_rows`.
    keep_duals : bool, default=False
        Whether to keep the dual variables too, 8 bytes for each label and row inside its margin. `update` then proves
        for more labels that they need no work, above all when rows are removed; joint families continue from them.
        This requires a store, or `keep_rows`, and for one-vs-all the squared hinge.

    Returns
    -------
    object
        The fitted model, memory-mapped from the folder after a training in shards; with the vectoriser if the rows were
        made from text.

    Raises
    ------
    WidemarginError
        The folder has an unfinished training with different data, parameters, version or instruction set.
    UnfinishedTrainingError
        The time limit or the callback stopped a training in shards; call again to resume.
    TrainingInterrupted
        Ctrl-C stopped a training in shards; call again to resume. Other trainings keep nothing.

    Notes
    -----
    One-vs-all trains in shards on disk if labels × (stored values + features) is above 10⁹, or if rows and dense
    weights take more than 256 MB. Smaller problems take less than half a minute and are fitted in memory, unless
    `executor`, `shard_size`, a time limit or a memory limit is given, or the folder has an unfinished training.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin import OneVsAllClassifier, train
    >>> folder = tempfile.TemporaryDirectory()
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array(["a", "b", "c"])
    >>> model = train(OneVsAllClassifier(), (X, y), folder.name, shard_size=2)
    >>> model.predict([[2.5]]).tolist()
    ['c']
    >>> folder.cleanup()
    """
    if isinstance(data, str | os.PathLike):
        refuse_input_as_output(out, data, *label_files(data))
        estimator._check_parameters()  # before a large file is read; otherwise `fit` does it first
    check_writable(out)
    check_savable(estimator)
    dataset = _as_dataset(data)
    if dataset.Y is None:
        raise DataFormatError("the data contain no labels", path=dataset.path, remedy="use labelled rows")
    record = _rows_to_record(dataset, keep_rows, row_ids)
    if keep_duals and record is None:
        raise ValueError(
            "keep_duals requires rows that the model can find again; pass keep_rows=True (--keep-rows), or train on "
            "all rows of a store"
        )
    if keep_duals and getattr(estimator, "init", None) in STARTS_OF_MANY_LABELS:
        raise ValueError(f"keep_duals cannot be combined with init={estimator.init!r}; use init='auto'")
    if shard_size is not None and not isinstance(estimator, OneVsAllClassifier):
        raise ValueError("shard_size applies only to one-vs-all; leave it out")
    routed = {} if groups is None else {"groups": groups}
    if not isinstance(estimator, OneVsAllClassifier) or estimator.init in STARTS_OF_MANY_LABELS:
        with WorkFolder.open(out, WorkFolder.WHOLE, restart=restart) as work, use_executor(executor):
            callback = watching_memory(memory_limit_mb, estimator.callback)
            if time_limit_s is not None:
                callback = TimeLimit(time_limit_s, callback)
            model = clone(estimator).set_params(callback=callback).fit(dataset.X, dataset.targets, **routed)
            if keep_duals:
                model.keeps_duals_ = True  # for `save`
            model = _saved(model, estimator, dataset, out, record)
            work.remove()
        return model
    checked = clone(estimator).set_params(normalize=False)._training_data(dataset.X, dataset.targets, None)
    asked = (executor, shard_size, time_limit_s, memory_limit_mb) != (None, None, None, None)
    asked = asked or deadline_of(estimator.callback) < math.inf
    if asked or is_large(checked.X, checked.targets.Y.shape[1]) or (Path(out) / WORK_FOLDER).exists():
        options: dict[str, Any] = {"executor": as_executor(executor), "time_limit_s": time_limit_s, "report": report}
        limits = shard_size, memory_limit_mb
        how = keep_duals, restart, groups
        return _train_in_shards(estimator, checked, dataset, out, record, *how, *limits, **options)
    if estimator.normalize:
        checked = replace(checked, X=with_unit_rows(checked.X))
    model = clone(estimator).set_params(callback=estimator.callback)
    with using(model, choose_for_lists(model, checked, groups)):
        model._fit_checked(checked, keep_duals=keep_duals)
    return _saved(model, estimator, dataset, out, record)


def is_large(X: Any, n_labels: int) -> bool:
    """Whether labels should be trained in shards."""
    n_bytes = bytes_of(X) + n_labels * X.shape[1] * X.dtype.itemsize
    return work_of(X, n_labels) > LARGE_WORK or n_bytes > LARGE_BYTES


class RowsToRecord(NamedTuple):
    """The training rows that a model will refer to: those to copy into its folder, or those of a store."""

    X: Any
    segment: Segment | None
    ids: list[str] | None


def _rows_to_record(dataset: Dataset, keep_rows: bool, row_ids: Sequence[str] | None) -> RowsToRecord | None:
    """What the model will record about its rows, checked before training; None for nothing."""
    ids = dataset.row_ids if row_ids is None else [str(name) for name in row_ids]
    if ids is not None:
        check_row_ids(ids, dataset.targets.Y.shape[0])
    if keep_rows:
        return RowsToRecord(check_array(dataset.X, accept_sparse="csr", dtype=[np.float64, np.float32]), None, ids)
    if is_store(dataset.path) and _has_rows_of(dataset):
        # Its hash now: the store that is trained on, even if it changes before the model is saved.
        return RowsToRecord(None, Segment.of_store(dataset.path), ids)
    if ids is not None:
        raise ValueError(
            "row ids require rows that the model can find again; pass keep_rows=True (--keep-rows), or train on all "
            "rows of a store"
        )
    return None


def _has_rows_of(dataset: Dataset) -> bool:
    """Whether the rows are those of the store that they came from, all of them and unchanged."""
    stored, X = open_store(dataset.path).X, dataset.X
    parts = [("data", "indices", "indptr") if sp.issparse(matrix) else () for matrix in (stored, X)]
    if parts[0] != parts[1] or stored.shape != getattr(X, "shape", None) or stored.dtype != X.dtype:
        return False
    pairs = [(getattr(stored, name), getattr(X, name)) for name in parts[0]] or [(stored, X)]
    return all(_are_equal(a, b) for a, b in pairs)


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two arrays are equal, a block at a time: the rows may not fit in memory."""
    if a.shape != b.shape:
        return False
    step = max(1, BLOCK_VALUES * len(a) // max(1, a.size))
    return all(np.array_equal(a[start : start + step], b[start : start + step]) for start in range(0, len(a), step))


def _record_rows(model: Any, dataset: Dataset, out: str | os.PathLike[str], record: RowsToRecord) -> None:
    """Set `rows_` of a fitted model; rows to keep are written into its folder."""
    segment = record.segment or write_segment(out, record.X)
    Y = _labels_of_rows(model, dataset.targets)
    model.rows_ = TrainingRows((segment,), Y, row_ids=record.ids, folder=os.path.abspath(out))


def _labels_of_rows(model: Any, targets: EncodedTargets) -> sp.csr_array:
    """The labels of the training rows as an indicator with a column for each class of the model."""
    if hasattr(model, "taxonomy_"):
        from widemargin.estimators.tree.targets import labelled_nodes

        rows, nodes = labelled_nodes(targets, model.taxonomy_, model.separator)
        class_of_node = np.empty(model.taxonomy_.n_nodes, dtype=np.int64)
        class_of_node[model.taxonomy_.indices(model.classes_)] = np.arange(len(model.classes_))
        columns = class_of_node[nodes]
    elif targets.kind == "multilabel":
        return sp.csr_array(targets.Y, dtype=np.int8)
    else:
        rows, columns = np.arange(targets.Y.shape[0]), targets.indices
    shape = (targets.Y.shape[0], len(model.classes_))
    return sp.csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=shape)


def _saved(
    model: Any, estimator: Estimator, dataset: Dataset, out: str | os.PathLike[str], record: RowsToRecord | None
) -> Any:
    """A fitted model with the names from its data file and a record of its rows, saved in its folder."""
    model.callback = None
    add_names(model, dataset)
    if record is not None:
        _record_rows(model, dataset, out, record)
    found = getattr(estimator, "tuning_", None)  # how the values of the parameters were found, unless by a fit
    if found is not None and AUTO not in [getattr(estimator, name, None) for name in found["params"]]:
        inside = {"rank_scale": model.tuning_} if hasattr(model, "tuning_") else {}
        model.tuning_ = dict(found) | inside
    model = with_text(model, dataset.text)
    save(model, out)
    return model


def add_names(model: Any, dataset: Dataset) -> None:
    """Keep in a model what its file said: names of features, and the index of the first feature."""
    if dataset.index_base:
        model.index_base_ = dict(dataset.index_base)
    if dataset.feature_names is not None:
        model.set_feature_names(dataset.feature_names)


def _as_dataset(data: Any) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        return load_data(data)
    X, y = data
    return Dataset(X, y, None, None, "in-memory arrays")


def _train_in_shards(
    estimator: OneVsAllClassifier,
    data: TrainingData,
    dataset: Dataset,
    out: str | os.PathLike[str],
    record: RowsToRecord | None,
    keep_duals: bool,
    restart: bool,
    groups: Any,
    shard_size: int | None,
    memory_limit_mb: float | None,
    **options: Any,
) -> Any:
    """Train checked data, not normalised, in the shards of a work folder; `options` go to `ShardRun`."""
    started = time.monotonic()
    planned = clone(estimator).set_params(C=1.0) if estimator.C == AUTO else estimator
    identity = _identity(estimator, dataset, job_plan(planned, data, memory_limit_mb, keep_duals=keep_duals), groups)
    with WorkFolder.open(out, identity, restart=restart) as work:
        choice = _choice(work, estimator, data, groups, options["time_limit_s"])
        numbers = clone(estimator).set_params(**({} if choice is None else choice.params))
        plan = job_plan(numbers, data, memory_limit_mb, keep_duals=keep_duals)
        if options["time_limit_s"] is not None:
            options["time_limit_s"] = max(0.0, options["time_limit_s"] - (time.monotonic() - started))
        run = ShardRun(plan, work, callback=estimator.callback, memory_limit_mb=memory_limit_mb, **options)
        try:
            rows = write_rows(work.path / "rows", data.X, dataset.path, estimator.normalize)
            result = run.solve(rows, shard_size)
            model = clone(estimator).set_params(callback=None)
            with using(model, choice):
                model._keep(data, result)
            _saved(model, estimator, dataset, out, record)
        except KeyboardInterrupt:
            raise TrainingInterrupted(f"{run.so_far()}; {CONTINUE}") from None
        work.remove()
    return load(out, verify=False)  # it was checked while it was written


def _choice(
    work: WorkFolder, estimator: OneVsAllClassifier, data: TrainingData, groups: Any, time_limit_s: float | None
) -> Choice | None:
    """The values for C="auto" and rank_scale="auto", which are chosen once and then kept in the work folder."""
    kept = work.read_json(CHOSEN)
    if kept is not None:
        return Choice.from_dict(kept)
    callback = estimator.callback if time_limit_s is None else TimeLimit(time_limit_s, estimator.callback)
    model = clone(estimator).set_params(callback=callback)
    choice = choose_for_lists(model, data, groups, normalize=estimator.normalize)
    if choice is not None and choice.stopped:  # with more time, the next run may choose other values for all shards
        is_late = time.monotonic() >= deadline_of(callback)
        reason = "the time limit was reached" if is_late else "the callback stopped training"
        raise UnfinishedTrainingError(f"{reason} while parameters were being chosen; run it again, with more time")
    if choice is not None:
        work.write_json(CHOSEN, choice.to_dict())
    return choice


def job_plan(
    estimator: OneVsAllClassifier, data: TrainingData, memory_limit_mb: float | None, *, keep_duals: bool = False
) -> Plan:
    """The plan of a training whose workers stay within a limit of memory."""
    if memory_limit_mb is None:
        return estimator._plan(data, keep_duals=keep_duals)
    left_mb = max(1.0, memory_limit_mb - PROCESS_MB - bytes_of(data.X) / MEGABYTE)
    return estimator._plan(data, memory_limit_mb=left_mb, keep_duals=keep_duals)


def _identity(estimator: OneVsAllClassifier, dataset: Dataset, plan: Plan, groups: Any) -> dict[str, Any]:
    """Everything that the bytes of the model depend on; a training is continued only when it is the same."""
    identity = {
        "data": _fingerprint(dataset, groups),
        "kind": type(estimator).__name__,
        "parameters": stored_parameters(estimator),
        "solver": plan.algorithm,
        "width": plan.width,
        "keep_duals": plan.keep_duals,
        "package_version": __version__,
        "instruction_set": _core.choose_instruction_set(),
        "n_labels": plan.problem.n_labels,
    }
    plain: dict[str, Any] = json.loads(json.dumps(identity, default=lambda number: number.item()))
    return plain


def _fingerprint(dataset: Dataset, groups: Any) -> str:
    """A hash of rows, labels, names and groups: that of a store's description, which has the hashes of its files."""
    digest = hashlib.sha256()
    if is_store(dataset.path):
        digest.update((Path(dataset.path) / STORE_FILE).read_bytes())
    else:
        for matrix in (dataset.X, dataset.targets.Y):
            add_matrix(digest, matrix)
    names = [dataset.targets.classes.tolist(), dataset.feature_names, sorted(dataset.index_base.items())]
    digest.update(json.dumps(names, default=repr).encode())
    if groups is not None:
        digest.update(json.dumps(np.asarray(groups).tolist(), default=repr).encode())
    return digest.hexdigest()


def add_matrix(digest: Any, matrix: Any) -> None:
    if sp.issparse(matrix):
        csr = sp.csr_array(matrix)
        parts = [csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)]
    else:
        parts = [np.asarray(matrix)]
    digest.update(repr(getattr(matrix, "shape", None)).encode())
    for part in parts:
        digest.update(str(part.dtype).encode())
        if part.dtype.kind in "OT":
            digest.update(json.dumps(part.tolist(), default=repr, ensure_ascii=False).encode())
        else:
            digest.update(np.ascontiguousarray(part).data)


def write_rows(folder: Path, X: Any, source: str, normalize: bool) -> str:
    """The store of the rows as they are trained on: `source` if it has them, or one that is written to `folder`."""
    normalize = normalize and not has_unit_rows(X)
    if is_store(source) and not normalize:
        stored = open_store(source).X  # checked rows may be a copy in another type
        if sp.issparse(stored) == sp.issparse(X) and stored.shape == X.shape and stored.dtype == X.dtype:
            return os.path.abspath(source)
    if is_store(folder):
        open_store(folder, verify=True)
    elif normalize:
        _write_unit_rows(folder, X)
    else:
        write_store(folder, X)
    return os.path.abspath(folder)


def _write_unit_rows(folder: Path, X: Any) -> None:
    """A store of the rows scaled to unit length, a block at a time: the rows may not fit in memory."""
    if sp.issparse(X) and not X.has_canonical_format:
        write_store(folder, l2_normalize_rows(X))
        return
    values = X.data if sp.issparse(X) else X
    scratch = folder.with_name("rows.npy.tmp")
    scaled = np.lib.format.open_memmap(scratch, mode="w+", dtype=X.dtype, shape=values.shape)
    try:
        n_values = max(1, values.size)
        step = max(1, BLOCK_VALUES * X.shape[0] // n_values)
        for start in range(0, X.shape[0], step):
            block = l2_normalize_rows(X[start : start + step])
            if sp.issparse(X):
                scaled[X.indptr[start] : X.indptr[min(start + step, X.shape[0])]] = block.data
            else:
                scaled[start : start + step] = block
        if not sp.issparse(X):
            write_store(folder, scaled)
            return
        rows = sp.csr_array((scaled, X.indices, X.indptr), shape=X.shape, copy=False)
        rows.has_canonical_format = True
        write_store(folder, rows)
    finally:
        del scaled
        scratch.unlink(missing_ok=True)
