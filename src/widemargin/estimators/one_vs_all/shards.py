"""Ranges of labels solved by tasks on any executor: what a task is given, the file it writes, a run over all ranges.

    solve_shard(job, (first, last), out)

maps the rows and the positives of its labels from stores, solves them to the bytes that they have in any other split of
the labels, and writes a shard in one step. Every process keeps the plan of one training, with its copy of the rows,
from task to task; one task at a time uses it, on all the threads that the process has. A shard is one `.npz` file:

    data, indices, lengths        pruned weights, row after row (or coef, dense)
    intercept, bounds, n_iter, ending        one row per label; `ending` is a place in `FINISHED`
    records                       what the history is made of, where the solver gives it
    dual_values, dual_rows, dual_lengths        dual variables, label after label, if they are kept

Nothing is compressed or pickled, and every member has a checksum. The merged result equals a fit in one piece, bit for
bit: sums over labels are taken over all labels in their order. Memory: the pages of the stores in use, the solver and
the weights of one shard; merging, 80 bytes per label and one shard.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.data.store import is_store, open_store, write_store
from widemargin.exceptions import DataFormatError, UnfinishedTrainingError, WidemarginError
from widemargin.files import atomic_file
from widemargin.model_io.write import JoinedArray, JoinedCsr
from widemargin.parallel import Executor, folders, run_tasks
from widemargin.parallel.executors import MEGABYTE, PROCESS_MB, check_memory
from widemargin.parallel.work_folder import WorkFolder, plan_shards
from widemargin.solvers.limits import deadline_of, with_deadline_of
from widemargin.solvers.one_vs_all.fast import SharedChoices, shared_choices
from widemargin.solvers.one_vs_all.newton import HistoryTable
from widemargin.solvers.one_vs_all.plan import INDEX_BYTES, Plan, solve
from widemargin.solvers.one_vs_all.problem import (
    BOUND_COLUMNS,
    RECORD_COLUMNS,
    OneVsAllResult,
    Problem,
    as_rows,
    frequency_bin,
    frequency_history,
)
from widemargin.solvers.result import Callback, Progress, Status

__all__ = ["ShardJob", "ShardRun", "can_be_split", "find_choices", "merge_shards", "solve_on_workers", "solve_shard"]

FINISHED = (Status.CONVERGED, Status.MAX_ITER, Status.NOT_ATTAINED)
"""How a label of a shard may have ended."""
STARTS_OF_MANY_LABELS = ("ovap++",)
"""Starts that take weights from other labels: such labels cannot be solved apart."""
CONTINUE = "run it again with the same data and options to resume"
CHOICES = "choices.json"
# Labels whose time and size stand for all, evenly spaced: one in SAMPLED_SHARE. Too few would not fill the lanes of a
# batch; with 48 of 670,000, the estimate was twice the time.
SAMPLED_SHARE, FEWEST_SAMPLED, MOST_SAMPLED = 200, 48, 512
FEWEST_TO_SAMPLE = 1000  # labels; with fewer, sampling would cost more than it is worth
SHARD_S = 30.0  # of one worker: what a kill may cost
SHARDS_PER_WORKER = 4  # at least; workers then finish at about the same time
SMALLEST_SHARD = 64  # labels that fill the lanes of a batch a few times
LARGEST_SHARD = 16384
SHARD_SHARE = 0.25  # of the memory limit, at most, for the weights of a shard
COPIES_OF_SHARD = 3  # while it is written: as solved, as arrays of the file, and what is being written
# Bytes of the copy that a solver makes of the rows: for each stored value, and for each row.
COPY_BYTES = {"fast": (13.0, 60.0), "logistic": (9.0, 60.0), "dense": (0.0, 8.0), "newton": (0.0, 8.0)}
DRIVER_BYTES_PER_LABEL, DRIVER_BYTES_PER_POSITIVE = 100, 40  # of the process that also encodes and merges the labels
DUAL_BYTES = 8  # a row and a value
LABEL_ARRAYS = ("intercept", "bounds", "n_iter", "ending")

Arrays = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]
Range = tuple[int, int]
_LOCK = threading.Lock()
_OPEN: list[tuple[ShardJob, Plan]] = []  # the training whose plan this process keeps


@dataclass(frozen=True)
class ShardJob:
    """The input of all tasks of a training: paths and small values.

    Parameters
    ----------
    rows, labels : str
        Folders of the stores with the rows, as they are trained on, and with the rows of each label.
    start : str or None
        Folder of the store with the weights that labels start from.
    plan : Plan
        How labels are solved, without arrays; see `of`.
    n_threads : int or None
        Threads of a task; None for those that a worker of the cluster has, otherwise one.
    instruction_set : str
        Vector instructions that every worker must use.
    memory_limit_mb : float or None
        Limit on the memory of a worker.
    """

    rows: str
    labels: str
    plan: Plan
    n_threads: int | None
    instruction_set: str
    memory_limit_mb: float | None = None
    start: str | None = None

    @classmethod
    def of(
        cls, plan: Plan, stores: Sequence[str], n_threads: int | None, memory_limit_mb: float | None = None
    ) -> ShardJob:
        """The job of a plan whose rows and labels, and start where it has one, are in stores."""
        names = ("X", "positive_rows", "positive_indptr", "row_weight", "positive_factor", "negative_factor")
        nothing: dict[str, Any] = dict.fromkeys(names)
        light = replace(plan.problem, **nothing)
        light_plan = replace(plan, problem=light, start=None, spare_cores=[])
        rows, labels, *rest = stores
        isa, start = _core.choose_instruction_set(), rest[0] if rest else None
        return cls(rows, labels, light_plan, n_threads, isa, memory_limit_mb, start)


def can_be_split(plan: Plan) -> bool:
    """Whether the labels are independent of each other and of anything but the rows."""
    several = plan.problem.n_labels > 1 and (plan.start is not None or plan.init not in STARTS_OF_MANY_LABELS)
    return several and bool((plan.problem.row_weight == 1.0).all())


def solve_on_workers(plan: Plan, callback: Callback | None, executor: Executor) -> OneVsAllResult | None:
    """Solve the labels of a plan on an executor, with the result of `solve`; None when the callback asked to stop.

    Rows, labels and shards are in a temporary folder. Memory of this process: the result.
    """
    with (
        tempfile.TemporaryDirectory(prefix="widemargin-fit-") as folder,
        WorkFolder.open(folder, WorkFolder.WHOLE) as work,
    ):
        write_store(work.path / "rows", plan.problem.X)
        size = -(-plan.problem.n_labels // (SHARDS_PER_WORKER * executor.n_workers))
        run = ShardRun(plan, work, executor, callback)
        try:
            return run.solve(str(work.path / "rows"), size, in_memory=True)
        except UnfinishedTrainingError:
            return None


@dataclass
class ShardRun:
    """One run over the shards of a training: finished shards, estimated needs, and the executor that solves the rest.

    A time limit, Ctrl-C or a failure loses the shards in flight and keeps the others; the message says how to continue.

    Parameters
    ----------
    plan : Plan
        What is trained.
    work : WorkFolder
        Where labels and shards are kept.
    executor : Executor
        Where shards are solved.
    callback : callable, optional
        Called with the progress of the whole training; training stops when it returns true.
    time_limit_s : float, optional
        Seconds from now.
    memory_limit_mb : float, optional
        Limit on the memory of a worker.
    report : callable, optional
        Called with sentences about the progress and the estimated needs.
    """

    plan: Plan
    work: WorkFolder
    executor: Executor
    callback: Callback | None = None
    time_limit_s: float | None = None
    memory_limit_mb: float | None = None
    report: Callable[[str], object] | None = None
    n_done: int = 0
    stop_asked: bool = False
    started: float = field(default_factory=lambda: time.monotonic())

    def solve(self, rows: str, shard_size: int | None = None, *, in_memory: bool = False) -> OneVsAllResult:
        """Solve the remaining shards on the rows of a store, and merge all shards. Sets: n_done."""
        labels, start, executor = self.work.path / "labels", self.work.path / "start", self.executor
        problem, inputs = self.plan.problem, [rows, str(labels)]
        _write_once(labels, lambda: write_labels(labels, problem))
        if self.plan.start is not None:
            coef, intercept = self.plan.start
            _write_once(start, lambda: write_store(start, sp.csr_array(coef), intercept[:, None]))
            inputs.append(str(start))
        try:
            with folders.shared_folders(executor, inputs) as stores:
                threads = self._n_threads() if executor.in_process else None
                job = ShardJob.of(self.plan, stores, threads, self.memory_limit_mb)
                if self.plan.algorithm == "fast":
                    job = replace(job, plan=replace(job.plan, choices=self._choices(job)))
                done, ranges = self._ranges(job, shard_size)
                self._solve_ranges(job, ranges)
        finally:
            release_solver()
        if n_copies := getattr(executor, "n_copies", 0):
            self._report(f"{n_copies} stores were copied to machines that do not share the file system")
        # Not what is in the folder now: a worker of a killed driver may have added a shard that overlaps others.
        files = [(first, last, self.work.shard(first, last)) for first, last in sorted([*done, *ranges])]
        n_rows = problem.X.shape[0] if self.plan.keep_duals else None
        n_positives = np.diff(problem.positive_indptr)
        return merge_shards(files, problem.X.shape[1], n_positives, in_memory=in_memory, n_rows=n_rows)

    def so_far(self) -> str:
        """How many labels are done, and where they are."""
        n_labels = self.plan.problem.n_labels
        done = sum(last - first for first, last in self.work.finished(n_labels))
        return f"{done:,} of {n_labels:,} labels are done and kept in {self.work.path.parent}"

    def _report(self, sentence: str) -> None:
        if self.report is not None:
            self.report(sentence)

    def _run_one(self, function: Callable[..., Any], arguments: tuple[Any, ...], **watch: Any) -> Any:
        """The result of one task; `watch` are arguments for a task in this process, which can be stopped."""
        task = functools.partial(function, **watch) if self.executor.in_process else function
        ((_, result),) = run_tasks(task, [arguments], self.executor)
        return result

    def _choices(self, job: ShardJob) -> SharedChoices:
        """Decisions about all labels: from an earlier run, or from pilot labels and then kept for a later run."""
        if (kept := self.work.read_json(CHOICES)) is not None:
            return SharedChoices(**kept)
        choices: SharedChoices | None = self._run_one(find_choices, (job,), stop=self._is_late)
        if choices is None:
            raise self._unfinished()
        self.work.write_json(CHOICES, vars(choices))
        return choices

    def _ranges(self, job: ShardJob, shard_size: int | None) -> tuple[list[Range], list[Range]]:
        """The finished shards and those that are left, all labels together, after reporting what they will need."""
        X, pruned, n_labels = self.plan.problem.X, self.plan.prune > 0, self.plan.problem.n_labels
        done, sample = self.work.finished(n_labels), None
        self.n_done = sum(last - first for first, last in done)
        left = n_labels - self.n_done
        if self.n_done:
            self._report(f"{self.so_far()}; resuming with the remaining ones")
        if left == 0:
            return done, []
        if left >= FEWEST_TO_SAMPLE and (shard_size is None or self.report is not None):
            numbers = np.linspace(0, n_labels - 1, _n_sampled(n_labels)).astype(int).tolist()
            sample = self._run_one(sample_labels, (job, numbers), callback=lambda progress: self._is_late())
            if self._is_late():
                raise self._unfinished()
        # Without a sample, the most that the weights of a label can take.
        n_weights = sample["n_weights"] if pruned and sample is not None else X.shape[1]
        label_bytes = float((X.dtype.itemsize + (4 if pruned else 0)) * n_weights)
        if self.plan.keep_duals:
            label_bytes += DUAL_BYTES * (X.shape[0] if sample is None else sample["n_duals"])
        size = shard_size or self._shard_size(left, label_bytes, sample)
        width = self.plan.width or 1  # shards of the dense solver consist of whole blocks
        size = -(-size // width) * width
        self._announce(job.n_threads or 1, left, min(size, left), label_bytes, sample)
        return done, plan_shards(n_labels, size, done)

    def _shard_size(self, left: int, label_bytes: float, sample: dict[str, float] | None) -> int:
        """About SHARD_S of work, several shards per worker, and weights that fit in memory."""
        size = left if sample is None else int(SHARD_S / max(1e-9, sample["seconds"]))
        if not self.executor.in_process:
            size = min(size, -(-left // (SHARDS_PER_WORKER * self.executor.n_workers)))
        limit_mb = self.memory_limit_mb or self.plan.memory_limit_mb
        fitting = int(SHARD_SHARE * limit_mb * MEGABYTE / (COPIES_OF_SHARD * max(1.0, label_bytes)))
        return max(1, min(max(size, SMALLEST_SHARD), LARGEST_SHARD, fitting))

    def _n_threads(self) -> int:
        """Threads in this process, as many as the memory allows."""
        limit, most = self.memory_limit_mb or np.inf, self.plan.n_threads
        return max((n for n in range(1, most + 1) if self._memory_mb(n) <= limit), default=1)

    def _memory_mb(self, n_threads: int, shard_bytes: float = 0.0) -> float:
        """Resident memory of a worker, the mapped pages of X included."""
        problem, (per_value, per_row) = self.plan.problem, COPY_BYTES[self.plan.algorithm]
        X, n_values = problem.X, problem.X.nnz if sp.issparse(problem.X) else problem.X.size
        copy = n_values * per_value + X.shape[0] * per_row
        if self.plan.algorithm == "fast" and X.dtype.itemsize == 8:
            copy += 8.0 * n_values
        if self.plan.row_index:
            copy += INDEX_BYTES * n_values
        start = 0 if self.plan.start is None else bytes_of(self.plan.start[0])
        total = bytes_of(X) + start + copy + n_threads * self.plan.thread_bytes + COPIES_OF_SHARD * shard_bytes
        if self.executor.in_process:
            total += DRIVER_BYTES_PER_LABEL * problem.n_labels + DRIVER_BYTES_PER_POSITIVE * len(problem.positive_rows)
        return float(PROCESS_MB + total / MEGABYTE)

    def _announce(
        self, n_threads: int, left: int, size: int, label_bytes: float, sample: dict[str, float] | None
    ) -> None:
        """Report the estimate of memory, disk and time; raise an error where it exceeds a limit."""
        n_workers, limit, own_rows = self.executor.n_workers, self.memory_limit_mb, self.work.path / "rows"
        memory_mb = self._memory_mb(n_threads, size * label_bytes)
        weights = 2.0 * self.plan.problem.n_labels * label_bytes  # as shards and as the model
        rows = float(sum(file.stat().st_size for file in own_rows.iterdir())) if own_rows.exists() else 0.0
        seconds = None if sample is None else sample["seconds"] * left / n_workers
        self._report(estimate_text(memory_mb, rows + weights, seconds, n_workers, n_threads))
        if limit is not None and memory_mb > limit:
            raise MemoryError(
                f"a worker will need about {memory_mb:,.0f} MB, which exceeds the memory limit of {limit:,.0f} MB; "
                "raise the limit, or train on fewer rows or features"
            )
        free = shutil.disk_usage(self.work.path).free
        if sample is not None and weights > free:
            raise OSError(
                f"{self.work.path.parent}: training will need about {(rows + weights) / 1e9:.1f} GB of disk space, "
                f"but only {free / 1e9:.1f} GB are free; free up space, raise prune, or choose another folder"
            )

    def _solve_ranges(self, job: ShardJob, ranges: list[Range]) -> None:
        """Run the tasks until all ranges are done. Sets: n_done."""

        def callback(progress: Progress) -> bool:
            return self._asks_to_stop(progress.done, progress.primal, progress.dual)

        in_process, files = self.executor.in_process, [self.work.shard(*label_range) for label_range in ranges]
        function: Any = functools.partial(solve_shard, callback=callback) if in_process else solve_shard
        tasks = [(job, label_range, str(file)) for label_range, file in zip(ranges, files, strict=True)]
        with contextlib.closing(run_tasks(function, tasks, self.executor)) as results:
            for number, done in results:
                if not done["finished"]:
                    raise self._unfinished()
                if done["content"] is not None:
                    write_shard(files[number], done["content"])
                self.n_done += ranges[number][1] - ranges[number][0]
                if not in_process:
                    self._asks_to_stop(0, 0.0, 0.0)
                if self.stop_asked and self.n_done < self.plan.problem.n_labels:
                    raise self._unfinished()

    def _asks_to_stop(self, n_in_flight: int, primal: float, dual: float) -> bool:
        """Call the callback with the progress of the whole training. Sets: stop_asked, which is returned."""
        n_labels = self.plan.problem.n_labels
        done, elapsed_s = min(self.n_done + n_in_flight, n_labels), time.monotonic() - self.started
        asked = self.callback is not None and self.callback(Progress(done, n_labels, elapsed_s, primal, dual))
        self.stop_asked = self.stop_asked or bool(asked) or self._is_late()
        return self.stop_asked

    def _is_late(self) -> bool:
        deadline = deadline_of(self.callback)
        if self.time_limit_s is not None:
            deadline = min(deadline, self.started + self.time_limit_s)
        return time.monotonic() >= deadline

    def _unfinished(self) -> UnfinishedTrainingError:
        reason = "the time limit was reached" if self._is_late() else "the callback stopped training"
        return UnfinishedTrainingError(f"{reason}; {self.so_far()}; {CONTINUE}")


def estimate_text(
    memory_mb: float, disk_bytes: float, seconds: float | None, n_workers: int = 1, n_threads: int = 1
) -> str:
    """What a training will need; without a time where no labels were sampled.

    Examples
    --------
    >>> from widemargin.estimators.one_vs_all.shards import estimate_text
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


def bytes_of(X: Any) -> int:
    """Size of a dense or CSR matrix."""
    return sum(part.nbytes for part in ((X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)))


def _write_once(folder: Path, write: Callable[[], None]) -> None:
    """Write a store, or check the one that an earlier run wrote."""
    if is_store(folder):
        open_store(folder, verify=True)
    else:
        write()


def write_labels(folder: Path, problem: Problem) -> None:
    """A store whose X has the rows of each label; its Y, where they are not all 1, the factors of both sides."""
    shape, n_positives = (problem.n_labels, len(problem.row_weight)), len(problem.positive_rows)
    ones = np.ones(n_positives, dtype=np.int8)
    rows = sp.csr_array((ones, problem.positive_rows, problem.positive_indptr), shape=shape)
    factors = np.column_stack([problem.positive_factor, problem.negative_factor])
    write_store(folder, rows, None if (factors == 1.0).all() else factors)


# Tasks


def solve_shard(job: ShardJob, label_range: Range, out: str, callback: Callback | None = None) -> dict[str, Any]:
    """Solve a range of labels and write their weights.

    Parameters
    ----------
    job : ShardJob
        What is trained.
    label_range : tuple of int
        The first label and the one after the last.
    out : str
        The file to write; where its folder is not there, as on a machine without the shared file system, the file is
        returned instead.
    callback : callable, optional
        The solver's callback, for a task that runs in the process of its caller; a true answer drops the shard.

    Returns
    -------
    dict
        `finished`: whether the shard is complete; `content`: its bytes, or None where they are in `out`; `n_weights`.
    """
    with _opened(job) as plan:
        result = solve(plan, label_range, watching_memory(job.memory_limit_mb, callback))
    arrays = _shard_arrays(result)
    if arrays is None:
        return {"finished": False, "content": None, "n_weights": 0}
    check_memory(job.memory_limit_mb)
    visible = folders.is_visible(os.path.dirname(out))
    if visible:
        write_shard(Path(out), arrays)
    return {"finished": True, "content": None if visible else pack_shard(arrays), "n_weights": int(result.coef.size)}


def find_choices(job: ShardJob, stop: Callable[[], bool] | None = None) -> SharedChoices | None:
    """The decisions of the fast solver about all labels together; None if `stop` ended the search."""
    with _opened(job) as plan:
        return shared_choices(plan, stop)


def sample_labels(job: ShardJob, numbers: list[int], callback: Callback | None = None) -> dict[str, float]:
    """Mean wall-clock seconds, weights and dual variables of some labels, the basis of an estimate."""
    with _opened(job) as plan:
        problem, choices = plan.problem, plan.choices
        indptr = np.asarray(problem.positive_indptr)
        parts = [np.asarray(problem.positive_rows[indptr[label] : indptr[label + 1]]) for label in numbers]
        some = replace(
            problem,
            n_labels=len(numbers),
            positive_rows=np.concatenate(parts),
            positive_indptr=np.append(0, np.cumsum([len(part) for part in parts])),
            positive_factor=problem.positive_factor[numbers],
            negative_factor=problem.negative_factor[numbers],
        )
        start = None if plan.start is None else (plan.start[0][numbers], plan.start[1][numbers])
        plan = replace(plan, problem=some, start=start, choices=None if choices is None else replace(choices, pilot=[]))
        watch = watching_memory(job.memory_limit_mb, callback)
        solve(plan, (0, 1), watch)  # also copies the rows, once for all labels
        started = time.perf_counter()
        result = solve(plan, (0, len(numbers)), watch)
    seconds, n_weights = time.perf_counter() - started, float(result.coef.size)
    n_duals = 0.0 if result.duals is None else float(result.duals.nnz)
    sums = {"seconds": seconds, "n_weights": n_weights, "n_duals": n_duals}
    return {name: value / len(numbers) for name, value in sums.items()}


def _n_sampled(n_labels: int) -> int:
    return min(MOST_SAMPLED, max(FEWEST_SAMPLED, n_labels // SAMPLED_SHARE))


def release_solver() -> None:
    """Release the copy of the rows that this process keeps for its next task."""
    with _LOCK:
        _OPEN.clear()


@contextlib.contextmanager
def _opened(job: ShardJob) -> Iterator[Plan]:
    """The plan of a training with the arrays of its stores, kept for the next task; for one task at a time."""
    pin_instruction_set(job.instruction_set)
    key = replace(job, plan=replace(job.plan, choices=None))
    with _LOCK:
        if not _OPEN or _OPEN[0][0] != key:
            _OPEN.clear()
            X, labels = (open_store(folders.find_folder(name)) for name in (job.rows, job.labels))
            factors = np.ones((labels.X.shape[0], 2)) if labels.Y is None else np.asarray(labels.Y, dtype=np.float64)
            problem = replace(
                job.plan.problem,
                X=as_rows(X.X),
                positive_rows=labels.X.indices,
                positive_indptr=labels.X.indptr,
                row_weight=np.ones(X.X.shape[0]),
                positive_factor=np.ascontiguousarray(factors[:, 0]),
                negative_factor=np.ascontiguousarray(factors[:, 1]),
            )
            start = None
            if job.start is not None:
                given = open_store(folders.find_folder(job.start))
                start = as_rows(given.X), np.asarray(given.Y)[:, 0]
            n_threads = job.n_threads or _threads_here()
            kept = replace(job.plan, problem=problem, start=start, n_threads=n_threads, spare_cores=[])
            _OPEN.append((key, kept))
        yield replace(_OPEN[0][1], choices=job.plan.choices)


def _threads_here() -> int:
    """Threads of a worker of the cluster, one elsewhere."""
    worker = sys.modules.get("distributed.worker")
    try:
        return 1 if worker is None else int(worker.get_worker().state.nthreads)
    except ValueError:
        return 1


def pin_instruction_set(name: str) -> None:
    """Use the instruction set that the training started with; an error on a machine that does not have it."""
    if _core.choose_instruction_set() == name:
        return
    os.environ["WIDEMARGIN_ISA"] = name
    try:
        _core.choose_instruction_set()
    except ValueError as error:
        del os.environ["WIDEMARGIN_ISA"]
        raise WidemarginError(
            f"training uses the instruction set {name}, which this machine does not support ({error}); set "
            "WIDEMARGIN_ISA to one that all machines support, such as baseline, and run it again"
        ) from error


def watching_memory(limit_mb: float | None, callback: Callback | None) -> Callback | None:
    """A callback that also checks the memory of this process, about twice a second."""
    if limit_mb is None:
        return callback

    def watch(progress: Progress) -> bool:
        check_memory(limit_mb)
        return callback is not None and bool(callback(progress))

    return with_deadline_of(callback, watch)


# Files of shards


def _shard_arrays(result: OneVsAllResult) -> Arrays | None:
    """The arrays of a shard; None unless every label is finished."""
    known = [status.value for status in FINISHED]
    if not set(np.unique(result.status_by_label)) <= set(known):
        return None
    arrays: Arrays = {
        "intercept": result.intercept,
        "bounds": result.bounds_by_label,
        "n_iter": result.n_iter,
        "ending": np.array([known.index(value) for value in result.status_by_label], dtype=np.uint8),
    }
    if sp.issparse(result.coef):
        arrays |= {"data": result.coef.data, "indices": result.coef.indices, "lengths": np.diff(result.coef.indptr)}
    else:
        arrays["coef"] = result.coef
    if result.duals is not None:
        duals = result.duals
        arrays |= {"dual_values": duals.data, "dual_rows": duals.indices, "dual_lengths": np.diff(duals.indptr)}
    if result.records is not None:
        arrays["records"] = result.records.copy()
        arrays["records"][:, RECORD_COLUMNS.index("seconds")] = 0.0  # a shard that is solved twice is the same twice
    return arrays


def pack_shard(arrays: Mapping[str, Any]) -> bytes:
    """The file's bytes, for a worker that cannot write where the driver reads."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # numbers only: nothing is pickled
    return buffer.getvalue()


def write_shard(path: Path, content: Mapping[str, Any] | bytes) -> None:
    """Write the arrays, or the bytes, of a shard in one step."""
    with atomic_file(path) as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            np.savez(file, **content)


def read_shard(path: Path, n_labels: int, n_features: int, n_rows: int | None = None) -> Arrays:
    """The arrays of a shard, checked; a DataFormatError with the remedy when it is damaged.

    With `n_rows`, the rows of X, it must have dual variables.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        damage = _damage(arrays, n_labels, n_features, n_rows)
    except (FileNotFoundError, PermissionError):
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        damage = str(error)
    if damage is not None:
        raise DataFormatError(
            f"the file with the trained labels is damaged ({damage})",
            path=str(path),
            remedy="delete it and run training again; only its labels are retrained",
        )
    return arrays


def _damage(arrays: Arrays, n_labels: int, n_features: int, n_rows: int | None) -> str | None:
    """What does not fit in the arrays of a shard; a KeyError for one that is missing."""
    shapes = {"intercept": (n_labels,), "bounds": (n_labels, len(BOUND_COLUMNS)), "n_iter": (n_labels,)}
    shapes |= {"ending": (n_labels,)}
    if "coef" in arrays:
        shapes["coef"] = (n_labels, n_features)
    else:
        total = (int(arrays["lengths"].sum()),)
        shapes |= {"lengths": (n_labels,), "data": total, "indices": total}
        if not _in_range(arrays["indices"], n_features):
            return "an index is out of range"
    if n_rows is not None:
        total = (int(arrays["dual_lengths"].sum()),)
        shapes |= {"dual_lengths": (n_labels,), "dual_values": total, "dual_rows": total}
        if not _in_range(arrays["dual_rows"], n_rows):
            return "a row of a dual variable is out of range"
        if not (arrays["dual_values"] >= 0.0).all():
            return "a dual variable is negative"
    wrong = [name for name, shape in shapes.items() if arrays[name].shape != shape]
    if wrong:
        return f"{wrong[0]} has the wrong shape, {arrays[wrong[0]].shape}"
    if len(arrays["ending"]) and int(arrays["ending"].max()) >= len(FINISHED):
        return "a status is unknown"
    records = arrays.get("records")
    if records is not None and (records.ndim != 2 or records.shape[1] != len(RECORD_COLUMNS)):
        return f"the records have the wrong shape, {records.shape}"
    return None


def _in_range(indices: npt.NDArray[Any], size: int) -> bool:
    return len(indices) == 0 or bool(indices.min() >= 0 and indices.max() < size)


# Shards put together


def merge_shards(
    files: Sequence[tuple[int, int, Path]],
    n_features: int,
    n_positives: Ints,
    *,
    in_memory: bool = False,
    n_rows: int | None = None,
) -> OneVsAllResult:
    """The result of all labels.

    Parameters
    ----------
    files : sequence of (first, last, path)
        The shards, in the order of their labels and without gaps.
    n_features : int
        Columns of X.
    n_positives : ndarray of shape (n_labels,)
        Positive rows of each label, for the history.
    in_memory : bool
        Whether to read the weights; otherwise `coef` is a `JoinedArray` or a `JoinedCsr`, which can be written to a
        model part after part. The same holds for `duals`.
    n_rows : int, optional
        Rows of X; then the shards have dual variables, and so has the result.
    """
    kept: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*LABEL_ARRAYS, "lengths", "dual_lengths")}
    bins, table, dtype = frequency_bin(n_positives), None, np.dtype(np.float32)
    for first, last, path in files:  # every shard is read once and checked; weights and records are dropped
        arrays = read_shard(path, last - first, n_features, n_rows)
        for name in kept.keys() & arrays.keys():
            kept[name].append(arrays[name])
        dtype = arrays["coef" if "coef" in arrays else "data"].dtype
        if "records" in arrays:
            table = table or HistoryTable()
            table.add(arrays["records"], bins[first:last])
    intercept, bounds, n_iter, ending = (np.concatenate(kept[name]) for name in LABEL_ARRAYS)
    coef: Any = _joined(files, "coef", dtype, (len(n_iter), n_features), in_memory) if not kept["lengths"] else None
    if coef is None:
        names = ("data", "indices")
        coef = _joined_csr(files, names, kept["lengths"], dtype, (len(n_iter), n_features), in_memory)
    duals = None
    if n_rows is not None:
        names, single = ("dual_values", "dual_rows"), np.dtype(np.float32)
        duals = _joined_csr(files, names, kept["dual_lengths"], single, (len(n_iter), n_rows), in_memory)
    return OneVsAllResult.of(
        coef,
        intercept,
        np.array([status.value for status in FINISHED])[ending],
        bounds,
        history=frequency_history(n_positives, n_iter, bounds) if table is None else table.history(),
        n_iter=n_iter,
        duals=duals,
    )


def _joined(
    files: Sequence[tuple[int, int, Path]], name: str, dtype: np.dtype[Any], shape: tuple[int, ...], in_memory: bool
) -> Any:
    """An array of all shards, one after another."""

    def parts() -> Iterator[npt.NDArray[Any]]:
        for _, _, path in files:
            with np.load(path, allow_pickle=False) as archive:
                yield archive[name]

    return np.concatenate(list(parts())).astype(dtype, copy=False) if in_memory else JoinedArray(dtype, shape, parts)


def _joined_csr(
    files: Sequence[tuple[int, int, Path]],
    names: tuple[str, str],
    lengths: list[Any],
    dtype: np.dtype[Any],
    shape: Range,
    in_memory: bool,
) -> Any:
    """The CSR matrix whose values and indices have these names in all shards."""
    starts = np.append(0, np.cumsum(np.concatenate(lengths).astype(np.int64)))
    total = (int(starts[-1]),)
    index_dtype = np.dtype(np.int32 if total[0] <= np.iinfo(np.int32).max else np.int64)
    types = (dtype, index_dtype)
    data, indices = (_joined(files, *one, total, in_memory) for one in zip(names, types, strict=True))
    if not in_memory:
        return JoinedCsr(data, indices, starts.astype(index_dtype), shape=shape)
    matrix = sp.csr_array(shape, dtype=dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, starts.astype(index_dtype)
    return matrix
