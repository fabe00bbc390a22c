"""Training into a model folder that survives kills and outgrows a machine: `train`.

The labels of a one-vs-all model are solved in shards by tasks that any engine can run (`widemargin.parallel`). Finished
shards are kept in the model folder; started again with the same data and parameters, the training goes on. The bytes of
the model do not depend on shards, threads, workers or kills. Other models are trained in one piece. The previous model
in the folder stays usable until the new one is complete. Memory of a worker: `memory_limit_mb`, whatever the number of
labels; of this process: the rows where they do not come from a store, and 100 bytes a label.

A one-vs-all training as data for workers: which solver, with what options, on which rows, and who it is.

The identity has all that the bytes of the model depend on; a training is continued only when it is the same.

One run over the shards of a training: what is there, what it will need, who solves the rest, and how it ends.

A limit of time, Ctrl-C or a failure loses the shards in hand and keeps the others; the message says how to go on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from widemargin import __version__, _core
from widemargin.data.load import Dataset, load_data, refuse_input_as_output
from widemargin.data.normalize import has_unit_rows, l2_normalize_rows
from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier, part_options, plain_value, write_label_store
from widemargin.estimators.persistence import check_savable, load, save
from widemargin.estimators.text import with_text
from widemargin.estimators.training import TrainingData, class_factors
from widemargin.exceptions import DataFormatError, TrainingInterrupted, UnfinishedTrainingError
from widemargin.model_io import check_writable
from widemargin.parallel import Executor, WorkFolder, as_executor, plan_shards, run_tasks, solve_shard, use_executor
from widemargin.parallel.cluster import Cluster, shared_folders
from widemargin.parallel.executors import MEGABYTE, PROCESS_MB, Estimate, estimate_memory_mb, largest_shard
from widemargin.parallel.shards import (
    check_memory,
    find_choices,
    merge_shards,
    release_solver,
    sample_labels,
    write_shard,
)
from widemargin.solvers.limits import TimeLimit, deadline_of, with_deadline_of
from widemargin.solvers.one_vs_all.label_parts import STARTS_OF_MANY_LABELS
from widemargin.solvers.one_vs_all.newton import OneVsAllResult
from widemargin.solvers.result import Callback, Progress

__all__ = ["LabelJob", "ShardRun", "add_names", "train"]

BLOCK_VALUES = 1 << 22  # of rows that are normalised at a time


@dataclass(frozen=True)
class LabelJob:
    """A checked training of a one-vs-all model."""

    estimator: OneVsAllClassifier
    data: TrainingData  # rows as they came, not normalised
    source: str  # the store of the rows, or "" where they are in memory
    solver: str
    options: dict[str, Any]
    identity: dict[str, Any]
    memory_limit_mb: float | None

    @classmethod
    def of(cls, estimator: OneVsAllClassifier, dataset: Dataset, memory_limit_mb: float | None) -> LabelJob:
        """Check data and parameters, and choose the solver."""
        data = clone(estimator).set_params(normalize=False)._training_data(dataset.X, dataset.targets, None)
        X = data.X
        area_mb = estimator.memory_limit_mb
        if memory_limit_mb is not None:
            area_mb = max(1.0, memory_limit_mb - PROCESS_MB - _mapped_bytes(X) / MEGABYTE)
        n_labels = data.targets.Y.shape[1]
        solver, options = part_options(estimator, X, n_labels, area_mb)
        identity = {
            "data": _fingerprint(dataset),
            "kind": type(estimator).__name__,
            "parameters": estimator._stored_parameters(),
            "solver": solver,
            "width": options["width"],
            "package_version": __version__,
            "instruction_set": _core.choose_instruction_set(),
            "n_labels": int(n_labels),
        }
        source = dataset.path if is_store(dataset.path) and _is_map_of(X, dataset.path) else ""
        plain = json.loads(json.dumps(identity, default=plain_value))
        return cls(estimator, data, source, solver, options, plain, memory_limit_mb)

    @property
    def n_labels(self) -> int:
        """Problems to solve."""
        return int(self.data.targets.Y.shape[1])

    def write_rows(self, folder: Path) -> str:
        """The store of the rows as they are trained on: the given one, or one that is written here."""
        X, normalize = self.data.X, self.estimator.normalize and not has_unit_rows(self.data.X)
        if self.source and not normalize:
            return os.path.abspath(self.source)
        if is_store(folder):
            open_store(folder, verify=True)
        elif normalize:
            _write_unit_rows(folder, X)
        else:
            write_store(folder, X)
        return os.path.abspath(folder)

    def write_labels(self, folder: Path) -> str:
        """The store with the rows of each label and, where rows of labels have factors, these."""
        if is_store(folder):
            open_store(folder, verify=True)
            return os.path.abspath(folder)
        factors = class_factors(self.estimator.class_weight, self.data.targets, None)
        write_label_store(folder, self.data.targets.Y, factors)
        return os.path.abspath(folder)

    def model(self, result: OneVsAllResult) -> OneVsAllClassifier:
        """The fitted model around a result; its weights may be on disk still, to be saved and nothing else."""
        model: OneVsAllClassifier = clone(self.estimator).set_params(callback=None)
        model.classes_ = self.data.targets.classes
        model.coef_, model.intercept_ = result.coef, result.intercept
        model._finish(result, self.data)
        model._warn_of_pruning(result)
        return model


def _mapped_bytes(X: Any) -> int:
    parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(part.nbytes for part in parts)


def _is_map_of(X: Any, path: str) -> bool:
    """Whether the checked rows are those of the store, not a copy in another type."""
    stored = open_store(path).X
    same_form = sp.issparse(stored) == sp.issparse(X)
    return bool(same_form and stored.shape == X.shape and stored.dtype == X.dtype)


def _fingerprint(dataset: Dataset) -> str:
    """A hash of rows, labels and names: that of a store's description, which has the hashes of its files."""
    digest = hashlib.sha256()
    if is_store(dataset.path):
        digest.update((Path(dataset.path) / STORE_FILE).read_bytes())
    else:
        for matrix in (dataset.X, dataset.targets.Y):
            _add_matrix(digest, matrix)
    names = [dataset.targets.classes.tolist(), dataset.feature_names, sorted(dataset.index_base.items())]
    digest.update(json.dumps(names, default=repr).encode())
    return digest.hexdigest()


def _add_matrix(digest: Any, matrix: Any) -> None:
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


Range = tuple[int, int]

CHOICES = "choices.json"
SAMPLED_LABELS = 48  # evenly spaced; their time and size stand for all
FEWEST_TO_SAMPLE = 1000  # labels of which a sample would cost more than it tells
SHARD_S = 30.0  # of one worker: what a kill may cost
SHARDS_PER_WORKER = 4  # at least, so that workers end together
SMALLEST_SHARD = 64  # labels that fill the lanes of a batch a few times
LARGEST_SHARD = 16384
DRIVER_BYTES_PER_LABEL, DRIVER_BYTES_PER_POSITIVE = 100, 40  # of the process that also encodes and joins the labels
GO_ON = "start it again with the same data and options to go on"


class ShardRun:
    """A training of which some shards may be done. Sets: rows, params in `solve`."""

    def __init__(
        self, job: LabelJob, work: WorkFolder, executor: Executor, report: Callable[[str], None] | None
    ) -> None:
        self.job, self.work, self.executor = job, work, executor
        self.report = report or (lambda sentence: None)
        self.started = time.monotonic()
        self.deadline = deadline_of(job.estimator.callback)
        self.rows = ""
        self.params: dict[str, Any] = {}
        self.n_done = 0
        self.stop_asked = False

    def solve(self, shard_size: int | None, time_limit_s: float | None) -> OneVsAllResult:
        """Solve what is left, and put all shards together."""
        if time_limit_s is not None:
            self.deadline = min(self.deadline, self.started + time_limit_s)
        try:
            stores = self.job.write_rows(self.work.path / "rows"), self.job.write_labels(self.work.path / "labels")
            with shared_folders(self.executor, stores) as (rows, labels):
                self._prepare(rows, labels)
                done, ranges = self._plan(shard_size)
                if ranges:
                    self._solve_shards(ranges)
        finally:
            release_solver()
        if isinstance(self.executor, Cluster) and self.executor.n_copies:
            self.report(f"{self.executor.n_copies} stores were copied to machines without the shared file system")
        # Not what is in the folder now: a worker of a driver that was killed may have added a shard that lies across.
        files = [(first, last, self.work.shard(first, last)) for first, last in sorted([*done, *ranges])]
        n_positives = np.bincount(self.job.data.targets.Y.indices, minlength=self.job.n_labels)
        return merge_shards(files, self.job.data.X.shape[1], n_positives)

    def _finished(self) -> list[Range]:
        return self.work.finished(self.job.n_labels)

    def _prepare(self, rows: str, labels: str) -> None:
        """What tasks are given, and what is decided on all labels. Sets: rows, params."""
        job, self.rows = self.job, rows
        self.params = {
            "labels": labels,
            "solver": job.solver,
            "options": job.options,
            "choices": None,
            "n_threads": self._n_threads(),
            "instruction_set": job.identity["instruction_set"],
            "memory_limit_mb": job.memory_limit_mb,
        }
        if job.solver == "fast":
            self.params["choices"] = self.work.read_json(CHOICES) or self._decide()

    def _decide(self) -> dict[str, Any]:
        """Solve the pilot labels once, and keep what they tell for a later start."""
        function: Any = find_choices
        if self.executor.in_process:
            function = functools.partial(find_choices, stop=self._is_late)
        ((_, choices),) = run_tasks(function, [(self.rows, self.params)], self.executor)
        if choices is None:
            raise self._unfinished()
        self.work.write_json(CHOICES, choices)
        found: dict[str, Any] = choices
        return found

    def _n_threads(self) -> int | None:
        """Threads of a worker, as many as the memory allows; None for those that a worker of the cluster has."""
        if not self.executor.in_process:
            return None if isinstance(self.executor, Cluster) else 1
        asked, limit = self.job.estimator._n_threads(), self.job.memory_limit_mb
        if limit is None:
            return asked
        fitting = [n for n in range(1, asked + 1) if self._memory_mb(n, 0.0) <= limit]
        return max(fitting, default=1)

    def _memory_mb(self, n_threads: int, shard_bytes: float) -> float:
        X, Y = self.job.data.X, self.job.data.targets.Y
        driver = 0.0
        if self.executor.in_process:
            driver = (DRIVER_BYTES_PER_LABEL * Y.shape[1] + DRIVER_BYTES_PER_POSITIVE * Y.nnz) / MEGABYTE
        return driver + estimate_memory_mb(X, self.job.solver, n_threads, shard_bytes)

    def _plan(self, shard_size: int | None) -> tuple[list[Range], list[Range]]:
        """The shards that are there and those that are left, all labels together, after telling what they will need."""
        job = self.job
        done = self._finished()
        self.n_done = sum(last - first for first, last in done)
        left = job.n_labels - self.n_done
        if self.n_done:
            self.report(f"{self._so_far()}; going on with the others")
        if left == 0:
            return done, []
        sample = self._sample(left)
        size = shard_size or self._shard_size(left, sample)
        width = job.options["width"] or 1  # shards of the dense solver are made of whole blocks
        size = -(-size // width) * width
        self._tell(left, min(size, left), sample)
        return done, plan_shards(job.n_labels, size, done)

    def _sample(self, left: int) -> dict[str, float] | None:
        """Time and weights of some labels; None where they are few."""
        if left < FEWEST_TO_SAMPLE:
            return None
        numbers = np.linspace(0, self.job.n_labels - 1, SAMPLED_LABELS).astype(int).tolist()
        function: Any = sample_labels
        if self.executor.in_process:
            function = functools.partial(sample_labels, callback=lambda progress: self._is_late())
        ((_, sample),) = run_tasks(function, [(self.rows, numbers, self.params)], self.executor)
        if self._is_late():
            raise self._unfinished()
        found: dict[str, float] = sample
        return found

    def _is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def _bytes_per_label(self, sample: dict[str, float] | None) -> float:
        """Of the weights; without a sample, the most that they can be."""
        itemsize = self.job.data.X.dtype.itemsize
        if self.job.estimator.prune > 0 and sample is not None:
            return float(itemsize + 4) * sample["n_weights"] / SAMPLED_LABELS
        return float(self.job.data.X.shape[1] * (itemsize + (4 if self.job.estimator.prune > 0 else 0)))

    def _shard_size(self, left: int, sample: dict[str, float] | None) -> int:
        """About SHARD_S of work, several shards a worker, and weights that fit in memory."""
        size = left if sample is None else int(SHARD_S * SAMPLED_LABELS / max(1e-9, sample["seconds"]))
        if not self.executor.in_process:
            size = min(size, -(-left // (SHARDS_PER_WORKER * self.executor.n_workers)))
        limit_mb = self.job.memory_limit_mb or self.job.estimator.memory_limit_mb
        size = min(max(size, SMALLEST_SHARD), LARGEST_SHARD, largest_shard(self._bytes_per_label(sample), limit_mb))
        return max(1, size)

    def _tell(self, left: int, size: int, sample: dict[str, float] | None) -> None:
        """Report the estimate; an error where memory or disk will not do."""
        n_threads, n_workers = self.params["n_threads"] or 1, self.executor.n_workers
        per_label = self._bytes_per_label(sample)
        seconds = None if sample is None else sample["seconds"] * left / SAMPLED_LABELS / n_workers
        rows = 0.0 if self.job.source else float(sum(f.stat().st_size for f in (self.work.path / "rows").iterdir()))
        estimate = Estimate(
            memory_mb=self._memory_mb(n_threads, size * per_label),
            disk_bytes=rows + 2.0 * self.job.n_labels * per_label,
            seconds=seconds,
            n_workers=n_workers,
            n_threads=n_threads,
        )
        self.report(estimate.text())
        limit = self.job.memory_limit_mb
        if limit is not None and estimate.memory_mb > limit:
            raise MemoryError(
                f"a worker will need about {estimate.memory_mb:,.0f} MB, above the memory limit of {limit:,.0f} MB; "
                "raise the limit, or train on fewer rows or features"
            )
        free = shutil.disk_usage(self.work.path).free
        if sample is not None and estimate.disk_bytes - rows > free:
            raise OSError(
                f"{self.work.path.parent}: the training will need about {estimate.disk_bytes / 1e9:.1f} GB of disk, "
                f"and {free / 1e9:.1f} GB are free; free some, raise prune, or choose another folder"
            )

    def _solve_shards(self, ranges: list[tuple[int, int]]) -> None:
        """Run the tasks. Sets: n_done."""
        files = [self.work.shard(first, last) for first, last in ranges]
        tasks = [
            (self.rows, label_range, self.params, str(file)) for label_range, file in zip(ranges, files, strict=True)
        ]
        function: Any = solve_shard
        if self.executor.in_process:
            function = functools.partial(solve_shard, callback=self._callback())
        results = run_tasks(function, tasks, self.executor)
        try:
            for number, done in results:
                if not done["finished"]:
                    raise self._unfinished()
                if done["content"] is not None:
                    write_shard(files[number], done["content"])
                self.n_done += ranges[number][1] - ranges[number][0]
                if not self.executor.in_process:
                    self._progress_says_stop(0, 0.0, 0.0)
                if self.stop_asked and self.n_done < self.job.n_labels:
                    raise self._unfinished()
        finally:
            results.close()

    def _callback(self) -> Callback:
        return lambda progress: self._progress_says_stop(progress.done, progress.primal, progress.dual)

    def _progress_says_stop(self, n_in_hand: int, primal: float, dual: float) -> bool:
        """Tell the estimator's callback where the whole training is. Sets: stop_asked, which is returned."""
        elapsed = time.monotonic() - self.started
        asked = self.job.estimator.callback
        done = min(self.n_done + n_in_hand, self.job.n_labels)
        if asked is not None and asked(Progress(done, self.job.n_labels, elapsed, primal, dual)):
            self.stop_asked = True
        if self._is_late():
            self.stop_asked = True
        return self.stop_asked

    def _so_far(self) -> str:
        done = sum(last - first for first, last in self._finished())
        return f"{done:,} of {self.job.n_labels:,} labels are done and kept in {self.work.path.parent}"

    def interrupted(self) -> TrainingInterrupted:
        """What Ctrl-C is told."""
        return TrainingInterrupted(f"{self._so_far()}; {GO_ON}")

    def _unfinished(self) -> UnfinishedTrainingError:
        reason = "the time limit came first" if self._is_late() else "the callback asked to stop"
        return UnfinishedTrainingError(f"{reason}; {self._so_far()}; {GO_ON}")


Report = Callable[[str], None]


def train(
    estimator: Any,
    data: Any,
    out: str | os.PathLike[str],
    *,
    executor: Any = None,
    shard_size: int | None = None,
    time_limit_s: float | None = None,
    memory_limit_mb: float | None = None,
    restart: bool = False,
    report: Report | None = None,
) -> Any:
    """Train a model into a folder; started again after a kill, go on.

    Parameters
    ----------
    estimator : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        What to train, with its parameters; it is not changed. Its `callback` sees the progress and may stop. An
        attribute `tuning_`, with the values that `tune` tried, goes into the model. Only
        one-vs-all models are trained in shards that survive a kill; others in one piece, see `executor`.
    data : path, Dataset, or tuple of (X, y)
        Rows and labels. A store folder (`write_store`) is mapped, by the workers as well; anything else is read into
        memory and written to a store in the work folder.
    out : path
        The model folder. An earlier model in it stays as it is until the new one is complete.
    executor : None, int, str or dask.distributed.Client
        Who solves the shards: this process with the threads of `n_jobs`, so many processes, or the cluster whose
        scheduler or client is given. Of other models, the workers solve the columns of an output code, and the nodes of
        a tree with k > 1. The model does not depend on it.
    shard_size : int, optional
        Labels of a shard, which a kill may cost; by default about half a minute of work. The model does not depend on
        it.
    time_limit_s : float, optional
        After this many seconds the shards in hand are dropped and an `UnfinishedTrainingError` is raised.
    memory_limit_mb : float, optional
        Bound on the resident memory of a worker. Solver, threads and shards are chosen to fit; a limit that is too low
        is an error before the start, and a worker that needs more than it may stops with a MemoryError. A training in
        one piece looks at the memory of this process whenever its solver reports progress.
    restart : bool, default=False
        Whether to drop an unfinished training that is in the folder.
    report : callable, optional
        Told in a sentence what the training will need before it starts, and what is there already.

    Returns
    -------
    object
        The fitted model, mapped from the folder; with the vectoriser where the rows were made from text.

    Raises
    ------
    WidemarginError
        The folder has an unfinished training with other data, parameters, version or instruction set.
    UnfinishedTrainingError
        The time limit, or the callback, ended the training; call again to go on.
    TrainingInterrupted
        Ctrl-C did.

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
        refuse_input_as_output(out, data)
    check_writable(out)
    check_savable(estimator)
    estimator._check_parameters()
    dataset = _as_dataset(data)
    if dataset.Y is None:
        raise DataFormatError("the data have no labels", path=dataset.path, remedy="train on rows with their labels")
    if not isinstance(estimator, OneVsAllClassifier) or estimator.init in STARTS_OF_MANY_LABELS:
        if shard_size is not None and not isinstance(estimator, OneVsAllClassifier):
            raise ValueError("shard_size is for one-vs-all, whose labels are trained in shards; leave it out")
        with use_executor(executor):
            return _train_whole(estimator, dataset, out, time_limit_s, memory_limit_mb, restart)
    job = LabelJob.of(estimator, dataset, memory_limit_mb)
    with WorkFolder.open(out, job.identity, restart=restart) as work:
        run = ShardRun(job, work, as_executor(executor), report)
        try:
            model = job.model(run.solve(shard_size, time_limit_s))
            _add_facts(model, estimator, dataset)
            save(with_text(model, dataset.text), out)
        except KeyboardInterrupt:
            raise run.interrupted() from None
        work.remove()
    return load(out, verify=False)  # it was checked while it was written


def add_names(model: Any, dataset: Dataset) -> None:
    """What a model keeps of the file it was trained on: feature names, and the index of the first feature."""
    if dataset.index_base:
        model.index_base_ = dict(dataset.index_base)
    if dataset.feature_names is not None:
        model.set_feature_names(dataset.feature_names)


def _add_facts(model: Any, estimator: Any, dataset: Dataset) -> None:
    """Names, and how the values of the estimator's parameters were found."""
    add_names(model, dataset)
    if hasattr(estimator, "tuning_"):
        model.tuning_ = dict(estimator.tuning_)


def _as_dataset(data: Any) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        return load_data(data)
    X, y = data
    return Dataset(X, y, None, None, "the given arrays")


def _train_whole(
    estimator: Any,
    dataset: Dataset,
    out: str | os.PathLike[str],
    time_limit_s: float | None,
    memory_limit_mb: float | None,
    restart: bool,
) -> Any:
    """Fit in one piece under the lock of the folder; the time limit ends the solver, and the model says how far."""
    asked: Callback | None = estimator.callback
    if time_limit_s is not None:
        asked = TimeLimit(time_limit_s, asked)

    def callback(progress: Progress) -> bool:
        check_memory(memory_limit_mb)
        return asked is not None and bool(asked(progress))

    chosen = asked if memory_limit_mb is None else with_deadline_of(asked, callback)
    with WorkFolder.open(out, WorkFolder.WHOLE, restart=restart) as work:
        model = clone(estimator).set_params(callback=chosen).fit(dataset.X, dataset.targets)
        model.callback = None
        _add_facts(model, estimator, dataset)
        save(with_text(model, dataset.text), out)
        work.remove()
    return with_text(model, dataset.text)
