"""Training into a model folder: `train`, in memory or in shards that survive kills and outgrow a machine.

Most models are fitted in memory and saved. The labels of a large one-vs-all model are solved in shards by tasks that
any executor can run (`widemargin.estimators.one_vs_all.shards`): finished shards are kept in the model folder, and the
training continues when it is started again with the same data and parameters. It is large when its work, labels ×
(stored values + features), is above `LARGE_WORK`, or rows and dense weights are above `LARGE_BYTES`; smaller ones take
less time than one shard. A number of processes, a cluster, a shard size or a limit of time or memory asks for shards
whatever the size, and so does an unfinished training in the folder.

The bytes of the model do not depend on the route, on shards, threads, workers or kills. The previous model in the
folder stays usable until the new one is complete. Memory of a worker: `memory_limit_mb`, whatever the number of labels;
of this process: the rows where they do not come from a store, and 100 bytes per label.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from widemargin import __version__, _core
from widemargin.data.load import Dataset, load_data, refuse_input_as_output
from widemargin.data.normalize import has_unit_rows, l2_normalize_rows, with_unit_rows
from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.one_vs_all.shards import (
    STARTS_OF_MANY_LABELS,
    ShardJob,
    find_choices,
    merge_shards,
    release_solver,
    sample_labels,
    solve_ranges,
    watching_memory,
    write_labels,
)
from widemargin.estimators.persistence import check_savable, load, save, stored_parameters
from widemargin.estimators.text import with_text
from widemargin.estimators.training import TrainingData
from widemargin.exceptions import DataFormatError, TrainingInterrupted, UnfinishedTrainingError
from widemargin.model_io import check_writable
from widemargin.model_io.state import WORK_FOLDER
from widemargin.parallel import (
    Executor,
    WorkFolder,
    as_executor,
    plan_shards,
    run_tasks,
    shared_folders,
    use_executor,
)
from widemargin.parallel.executors import MEGABYTE, PROCESS_MB
from widemargin.solvers.limits import TimeLimit, deadline_of
from widemargin.solvers.one_vs_all.fast import SharedChoices
from widemargin.solvers.one_vs_all.plan import Plan, work_of
from widemargin.solvers.one_vs_all.problem import OneVsAllResult
from widemargin.solvers.result import Callback, Progress

__all__ = ["LARGE_BYTES", "LARGE_WORK", "ShardRun", "add_names", "job_plan", "train", "write_rows"]

# A unit of work takes 1 to 6 ns of CPU, 25 with Newton on sparse rows: below this, training takes 2 to 25 s, less than
# one shard, so that a kill would lose as much in shards. Shards cost 0.1 s of waiting for the disk, 15 ms of CPU and,
# above 10⁸ units, 12 % more CPU (pilot labels are solved twice).
LARGE_WORK = 1_000_000_000
LARGE_BYTES = 256 * MEGABYTE
CHOICES = "choices.json"
SAMPLED_LABELS = 48  # evenly spaced; their time and size stand for all
FEWEST_TO_SAMPLE = 1000  # labels; of fewer, a sample would cost more than it tells
SHARD_S = 30.0  # of one worker: what a kill may cost
SHARDS_PER_WORKER = 4  # at least, so that workers end at about the same time
SMALLEST_SHARD = 64  # labels that fill the lanes of a batch a few times
LARGEST_SHARD = 16384
SHARD_SHARE = 0.25  # of the memory limit, at most, for the weights of a shard
COPIES_OF_SHARD = 3  # while it is written: as solved, as arrays of the file, and what is being written
# Bytes of the copy that a solver makes of the rows: for each stored value, and for each row.
COPY_BYTES = {"fast": (13.0, 60.0), "logistic": (9.0, 60.0), "dense": (0.0, 8.0), "newton": (0.0, 8.0)}
DRIVER_BYTES_PER_LABEL, DRIVER_BYTES_PER_POSITIVE = 100, 40  # of the process that also encodes and merges the labels
BLOCK_VALUES = 1 << 22  # of rows that are normalised at a time
CONTINUE = "start it again with the same data and options to continue"

Range = tuple[int, int]
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
    """Train a model into a folder; a large one-vs-all training continues when it is started again after a kill.

    Parameters
    ----------
    estimator : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        What to train, with its parameters; it is not changed. Its `callback` sees the progress and may stop training.
        An attribute `tuning_`, with the values that `tune` tried, goes into the model.
    data : path, Dataset, or tuple of (X, y)
        Rows and labels. A store folder (`write_store`) is mapped, by the workers as well; anything else is read into
        memory.
    out : path
        The model folder. An earlier model in it stays as it is until the new one is complete.
    executor : None, int, str or dask.distributed.Client
        Who solves: this process with the threads of `n_jobs`, a number of processes, or the cluster whose scheduler or
        client is given. One-vs-all: shards of labels; output codes: columns; trees with k > 1: nodes. The model does
        not depend on it.
    shard_size : int, optional
        Labels of a shard, which a kill may cost; by default about half a minute of work. The model does not depend on
        it. One-vs-all only: given, even a small model is trained in shards, so that it can be continued.
    time_limit_s : float, optional
        Time limit. One-vs-all drops the shards in flight and raises an `UnfinishedTrainingError`; call again to
        continue. Other methods save the model reached so far, with the status `TIME_LIMIT`.
    memory_limit_mb : float, optional
        Bound on the resident memory of a worker. Solver, threads and shards are chosen to fit; a limit that is too low
        is an error before the start, and a worker that needs more stops with a MemoryError. Without shards, the memory
        of this process is checked whenever the solver reports progress.
    restart : bool, default=False
        Whether to drop an unfinished training in the folder.
    report : callable, optional
        Called with a sentence about what a training in shards will need, and about what is done already.

    Returns
    -------
    object
        The fitted model, mapped from the folder after a training in shards; with the vectoriser where the rows were
        made from text.

    Raises
    ------
    WidemarginError
        The folder has an unfinished training with other data, parameters, version or instruction set.
    UnfinishedTrainingError
        The time limit, or the callback, ended a training in shards; call again to continue.
    TrainingInterrupted
        Ctrl-C ended a training in shards; call again to continue. Other trainings keep nothing.

    Notes
    -----
    One-vs-all goes through shards on disk when labels × (stored values + features) is above 10⁹, or rows and dense
    weights above 256 MB; smaller problems take less than half a minute and are fitted in memory, unless `executor`,
    `shard_size`, `time_limit_s` or `memory_limit_mb` is given or the folder has an unfinished training.

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
        estimator._check_parameters()  # before a large file is read; otherwise `fit` does it first
    check_writable(out)
    check_savable(estimator)
    dataset = _as_dataset(data)
    if dataset.Y is None:
        raise DataFormatError("the data have no labels", path=dataset.path, remedy="train on rows with their labels")
    if shard_size is not None and not isinstance(estimator, OneVsAllClassifier):
        raise ValueError("shard_size is for one-vs-all, whose labels are trained in shards; leave it out")
    if not isinstance(estimator, OneVsAllClassifier) or estimator.init in STARTS_OF_MANY_LABELS:
        with WorkFolder.open(out, WorkFolder.WHOLE, restart=restart) as work, use_executor(executor):
            callback = watching_memory(memory_limit_mb, estimator.callback)
            if time_limit_s is not None:
                callback = TimeLimit(time_limit_s, callback)
            model = clone(estimator).set_params(callback=callback).fit(dataset.X, dataset.targets)
            model = _saved(model, estimator, dataset, out)
            work.remove()
        return model
    checked = clone(estimator).set_params(normalize=False)._training_data(dataset.X, dataset.targets, None)
    wishes = (executor, shard_size, time_limit_s, memory_limit_mb)
    if any(wish is not None for wish in wishes) or _is_large(checked) or (Path(out) / WORK_FOLDER).exists():
        return _train_in_shards(estimator, checked, dataset, out, *wishes, restart, report)
    if estimator.normalize:
        checked = replace(checked, X=with_unit_rows(checked.X))
    model = clone(estimator).set_params(callback=estimator.callback)
    model._fit_checked(checked)
    return _saved(model, estimator, dataset, out)


def _is_large(data: TrainingData) -> bool:
    """Whether labels should be trained in shards."""
    X, n_labels = data.X, data.targets.Y.shape[1]
    n_bytes = _bytes_of(X) + n_labels * X.shape[1] * X.dtype.itemsize
    return work_of(X, n_labels) > LARGE_WORK or n_bytes > LARGE_BYTES


def _saved(model: Any, estimator: Any, dataset: Dataset, out: str | os.PathLike[str]) -> Any:
    """A fitted model with all that is known of its data, and in its folder."""
    model.callback = None
    add_names(model, dataset)
    if hasattr(estimator, "tuning_"):
        model.tuning_ = dict(estimator.tuning_)  # how the values of the parameters were found
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
    return Dataset(X, y, None, None, "the given arrays")


def _train_in_shards(
    estimator: OneVsAllClassifier,
    data: TrainingData,
    dataset: Dataset,
    out: str | os.PathLike[str],
    executor: Any,
    shard_size: int | None,
    time_limit_s: float | None,
    memory_limit_mb: float | None,
    restart: bool,
    report: Report | None,
) -> Any:
    """Train checked data, not normalised, in the shards of a work folder."""
    plan = job_plan(estimator, data, memory_limit_mb)
    deadline = deadline_of(estimator.callback)
    if time_limit_s is not None:
        deadline = min(deadline, time.monotonic() + time_limit_s)
    with WorkFolder.open(out, _identity(estimator, dataset, plan), restart=restart) as work:
        run = ShardRun(plan, estimator.callback, work, as_executor(executor), deadline, memory_limit_mb, report)
        try:
            source = dataset.path if is_store(dataset.path) and _is_map_of(data.X, dataset.path) else ""
            rows = write_rows(work.path / "rows", data.X, source, estimator.normalize)
            result = run.solve(rows, shard_size)
            model = clone(estimator).set_params(callback=None)
            model._keep(data, result)
            _saved(model, estimator, dataset, out)
        except KeyboardInterrupt:
            raise TrainingInterrupted(f"{run.so_far()}; {CONTINUE}") from None
        work.remove()
    return load(out, verify=False)  # it was checked while it was written


def job_plan(estimator: OneVsAllClassifier, data: TrainingData, memory_limit_mb: float | None) -> Plan:
    """The plan of a training whose workers stay within a limit of memory."""
    if memory_limit_mb is None:
        return estimator._plan(data)
    return estimator._plan(data, memory_limit_mb=max(1.0, memory_limit_mb - PROCESS_MB - _bytes_of(data.X) / MEGABYTE))


def _identity(estimator: OneVsAllClassifier, dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Everything that the bytes of the model depend on; a training is continued only when it is the same."""
    identity = {
        "data": _fingerprint(dataset),
        "kind": type(estimator).__name__,
        "parameters": stored_parameters(estimator),
        "solver": plan.algorithm,
        "width": plan.width,
        "package_version": __version__,
        "instruction_set": _core.choose_instruction_set(),
        "n_labels": plan.problem.n_labels,
    }
    plain: dict[str, Any] = json.loads(json.dumps(identity, default=lambda number: number.item()))
    return plain


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


def _bytes_of(X: Any) -> int:
    return sum(part.nbytes for part in ((X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)))


def _is_map_of(X: Any, path: str) -> bool:
    """Whether checked rows are those of the store, not a copy in another type."""
    stored = open_store(path).X
    same_form = sp.issparse(stored) == sp.issparse(X)
    return bool(same_form and stored.shape == X.shape and stored.dtype == X.dtype)


def write_rows(folder: Path, X: Any, source: str, normalize: bool) -> str:
    """The store of the rows as they are trained on: their `source`, or one that is written to `folder`."""
    normalize = normalize and not has_unit_rows(X)
    if source and not normalize:
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


class ShardRun:
    """One run over the shards of a training: what is done, what it will need, who solves the rest, and how it ends.

    A time limit, Ctrl-C or a failure loses the shards in flight and keeps the others; the message says how to continue.
    """

    def __init__(
        self,
        plan: Plan,
        callback: Callback | None,
        work: WorkFolder,
        executor: Executor,
        deadline: float,
        memory_limit_mb: float | None,
        report: Report | None,
    ) -> None:
        self.plan, self.callback, self.work, self.executor = plan, callback, work, executor
        self.deadline, self.memory_limit_mb = deadline, memory_limit_mb
        self.report = report or (lambda sentence: None)
        self.started, self.n_done, self.stop_asked = time.monotonic(), 0, False
        self.n_labels = plan.problem.n_labels

    def solve(self, rows: str, shard_size: int | None) -> OneVsAllResult:
        """Solve what is left on the rows of a store, and merge all shards. Sets: n_done."""
        labels, executor = self.work.path / "labels", self.executor
        if is_store(labels):
            open_store(labels, verify=True)
        else:
            write_labels(labels, self.plan.problem)
        try:
            with shared_folders(executor, [rows, labels]) as (shared_rows, shared_labels):
                instruction_set = self.work.identity["instruction_set"]
                threads = self._n_threads() if executor.in_process else None
                job = ShardJob.of(self.plan, shared_rows, shared_labels, threads, instruction_set, self.memory_limit_mb)
                if self.plan.algorithm == "fast":
                    job = replace(job, plan=replace(job.plan, choices=self._choices(job)))
                done, ranges = self._ranges(job, shard_size)
                self._solve_ranges(job, ranges)
        finally:
            release_solver()
        if getattr(executor, "n_copies", 0):
            self.report(f"{executor.n_copies} stores were copied to machines without the shared file system")  # type: ignore[attr-defined]
        # Not what is in the folder now: a worker of a killed driver may have added a shard that overlaps others.
        files = [(first, last, self.work.shard(first, last)) for first, last in sorted([*done, *ranges])]
        return merge_shards(files, self.plan.problem.X.shape[1], np.diff(self.plan.problem.positive_indptr))

    def so_far(self) -> str:
        """How many labels are done, and where they are."""
        done = sum(last - first for first, last in self.work.finished(self.n_labels))
        return f"{done:,} of {self.n_labels:,} labels are done and kept in {self.work.path.parent}"

    def _choices(self, job: ShardJob) -> SharedChoices:
        """What is decided on all labels: of an earlier run, or from pilot labels, and then kept for a later run."""
        if (kept := self.work.read_json(CHOICES)) is not None:
            return SharedChoices(**kept)
        function: Any = functools.partial(find_choices, stop=self._is_late)
        ((_, choices),) = run_tasks(function if self.executor.in_process else find_choices, [(job,)], self.executor)
        if choices is None:
            raise self._unfinished()
        self.work.write_json(CHOICES, vars(choices))
        found: SharedChoices = choices
        return found

    def _ranges(self, job: ShardJob, shard_size: int | None) -> tuple[list[Range], list[Range]]:
        """The finished shards and those that are left, all labels together, after reporting what they will need."""
        done = self.work.finished(self.n_labels)
        self.n_done = sum(last - first for first, last in done)
        left = self.n_labels - self.n_done
        if self.n_done:
            self.report(f"{self.so_far()}; continuing with the others")
        if left == 0:
            return done, []
        sample = self._sample(job) if left >= FEWEST_TO_SAMPLE else None
        # Without a sample, the most that the weights of a label can take.
        X, pruned = self.plan.problem.X, self.plan.prune > 0
        label_bytes = float(X.shape[1] * (X.dtype.itemsize + (4 if pruned else 0)))
        if pruned and sample is not None:
            label_bytes = float(X.dtype.itemsize + 4) * sample["n_weights"] / SAMPLED_LABELS
        size = shard_size or self._shard_size(left, label_bytes, sample)
        width = self.plan.width or 1  # shards of the dense solver consist of whole blocks
        size = -(-size // width) * width
        self._announce(job.n_threads or 1, left, min(size, left), label_bytes, sample)
        return done, plan_shards(self.n_labels, size, done)

    def _sample(self, job: ShardJob) -> dict[str, float]:
        """Time and weights of some labels."""
        numbers = np.linspace(0, self.n_labels - 1, SAMPLED_LABELS).astype(int).tolist()
        function: Any = functools.partial(sample_labels, callback=lambda progress: self._is_late())
        tasks = [(job, numbers)]
        ((_, sample),) = run_tasks(function if self.executor.in_process else sample_labels, tasks, self.executor)
        if self._is_late():
            raise self._unfinished()
        found: dict[str, float] = sample
        return found

    def _shard_size(self, left: int, label_bytes: float, sample: dict[str, float] | None) -> int:
        """About SHARD_S of work, several shards per worker, and weights that fit in memory."""
        size = left if sample is None else int(SHARD_S * SAMPLED_LABELS / max(1e-9, sample["seconds"]))
        if not self.executor.in_process:
            size = min(size, -(-left // (SHARDS_PER_WORKER * self.executor.n_workers)))
        limit_mb = self.memory_limit_mb or self.plan.memory_limit_mb
        fitting = int(SHARD_SHARE * limit_mb * MEGABYTE / (COPIES_OF_SHARD * max(1.0, label_bytes)))
        return max(1, min(max(size, SMALLEST_SHARD), LARGEST_SHARD, fitting))

    def _n_threads(self) -> int:
        """Threads in this process, as many as the memory allows."""
        fitting = [
            n for n in range(1, self.plan.n_threads + 1) if self._memory_mb(n) <= (self.memory_limit_mb or np.inf)
        ]
        return max(fitting, default=1)

    def _memory_mb(self, n_threads: int, shard_bytes: float = 0.0) -> float:
        """Resident memory of a worker, the mapped pages of X included."""
        problem, (per_value, per_row) = self.plan.problem, COPY_BYTES[self.plan.algorithm]
        X, n_values = problem.X, problem.X.nnz if sp.issparse(problem.X) else problem.X.size
        copy = n_values * per_value + X.shape[0] * per_row
        if self.plan.algorithm == "fast" and X.dtype.itemsize == 8:
            copy += 8.0 * n_values
        total = _bytes_of(X) + copy + n_threads * self.plan.thread_bytes + COPIES_OF_SHARD * shard_bytes
        if self.executor.in_process:
            total += DRIVER_BYTES_PER_LABEL * self.n_labels + DRIVER_BYTES_PER_POSITIVE * len(problem.positive_rows)
        return float(PROCESS_MB + total / MEGABYTE)

    def _announce(
        self, n_threads: int, left: int, size: int, label_bytes: float, sample: dict[str, float] | None
    ) -> None:
        """Report the estimate of memory, disk and time; raise an error where it exceeds a limit."""
        n_workers, limit = self.executor.n_workers, self.memory_limit_mb
        memory_mb = self._memory_mb(n_threads, size * label_bytes)
        own_rows = self.work.path / "rows"
        rows = float(sum(file.stat().st_size for file in own_rows.iterdir())) if own_rows.exists() else 0.0
        weights = 2.0 * self.n_labels * label_bytes
        seconds = None if sample is None else sample["seconds"] * left / SAMPLED_LABELS / n_workers
        self.report(estimate_text(memory_mb, rows + weights, seconds, n_workers, n_threads))
        if limit is not None and memory_mb > limit:
            raise MemoryError(
                f"a worker will need about {memory_mb:,.0f} MB, above the memory limit of {limit:,.0f} MB; raise the "
                "limit, or train on fewer rows or features"
            )
        free = shutil.disk_usage(self.work.path).free
        if sample is not None and weights > free:
            raise OSError(
                f"{self.work.path.parent}: the training will need about {(rows + weights) / 1e9:.1f} GB of disk, and "
                f"{free / 1e9:.1f} GB are free; free some, raise prune, or choose another folder"
            )

    def _solve_ranges(self, job: ShardJob, ranges: list[Range]) -> None:
        """Run the tasks until all ranges are done. Sets: n_done."""

        def callback(progress: Progress) -> bool:
            return self._asks_to_stop(progress.done, progress.primal, progress.dual)

        for (first, last), finished in solve_ranges(job, ranges, self.work.shard, self.executor, callback):
            if not finished:
                raise self._unfinished()
            self.n_done += last - first
            if not self.executor.in_process:
                self._asks_to_stop(0, 0.0, 0.0)
            if self.stop_asked and self.n_done < self.n_labels:
                raise self._unfinished()

    def _asks_to_stop(self, n_in_flight: int, primal: float, dual: float) -> bool:
        """Call the callback with the progress of the whole training. Sets: stop_asked, which is returned."""
        done = min(self.n_done + n_in_flight, self.n_labels)
        progress = Progress(done, self.n_labels, time.monotonic() - self.started, primal, dual)
        asked = self.callback is not None and self.callback(progress)
        self.stop_asked = self.stop_asked or bool(asked) or self._is_late()
        return self.stop_asked

    def _is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def _unfinished(self) -> UnfinishedTrainingError:
        reason = "the time limit came first" if self._is_late() else "the callback asked to stop"
        return UnfinishedTrainingError(f"{reason}; {self.so_far()}; {CONTINUE}")


def estimate_text(
    memory_mb: float, disk_bytes: float, seconds: float | None, n_workers: int = 1, n_threads: int = 1
) -> str:
    """What a training will need; without a time where no labels were sampled.

    Examples
    --------
    >>> from widemargin.estimators.one_vs_all.folder_training import estimate_text
    >>> print(estimate_text(800.0, 3e9, 5400.0, n_workers=2, n_threads=4))
    about 800 MB of memory per worker, 3.0 GB of disk, 1.5 hours on 2 workers with 4 threads each
    """
    unit, size = next(((u, s) for u, s in (("GB", 1e9), ("MB", 1e6)) if disk_bytes >= s), ("kB", 1e3))
    disk = f"{disk_bytes / size:.1f} {unit}" if unit != "kB" else f"{max(1.0, disk_bytes / size):.0f} kB"
    text = f"about {memory_mb:,.0f} MB of memory per worker, {disk} of disk"
    if seconds is None:
        return text
    duration = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
    duration = f"{max(1.0, seconds):.0f} s" if seconds < 90 else duration
    threads = f"{n_threads} thread{'' if n_threads == 1 else 's'}"
    return f"{text}, {duration} on {threads if n_workers == 1 else f'{n_workers} workers with {threads} each'}"
