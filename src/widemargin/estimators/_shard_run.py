"""One run over the shards of a training: what is there, what it will need, who solves the rest, and how it ends.

A limit of time, Ctrl-C or a failure loses the shards in hand and keeps the others; the message says how to go on.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from widemargin.estimators._label_job import LabelJob
from widemargin.exceptions import TrainingInterrupted, UnfinishedTrainingError
from widemargin.parallel import Executor, WorkFolder, plan_shards, run_tasks, solve_shard
from widemargin.parallel.cluster import Cluster, shared_folders
from widemargin.parallel.estimate import MEGABYTE, Estimate, estimate_memory_mb, largest_shard
from widemargin.parallel.merge import merge_shards
from widemargin.parallel.shard_files import write_shard
from widemargin.parallel.shards import find_choices, release_solver, sample_labels
from widemargin.solvers.one_vs_all import OneVsAllResult
from widemargin.solvers.result import Callback, Progress

__all__ = ["ShardRun"]

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
        self.deadline = np.inf
        self.rows = ""
        self.params: dict[str, Any] = {}
        self.n_done = 0
        self.stop_asked = False

    def solve(self, shard_size: int | None, time_limit_s: float | None) -> OneVsAllResult:
        """Solve what is left, and put all shards together."""
        if time_limit_s is not None:
            self.deadline = self.started + time_limit_s
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
