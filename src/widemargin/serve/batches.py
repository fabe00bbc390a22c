"""Requests that arrive at the same time are predicted together.

A batch takes the waiting requests that ask for the same k and the same labels, up to a number of rows; while it is
computed, the next one gathers. There is no pause to wait for others: an idle service answers at once, and a busy one
batches on its own. A batch that is expected to take a few milliseconds is computed on the event loop; a longer one, and
one with a choice of labels, in a separate thread. Memory: the number of waiting rows is bounded, and a request that
finds the queue full is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Batches", "Overloaded"]

QUICK_SECONDS = 0.01
"""A batch that should take less CPU time than this does not go to the thread. Python lets a thread run for 5 ms before
another may take over, so the way to the thread and back takes up to twice that while requests keep coming in."""
MEMORY = 0.95
"""Weight of the batches so far in the estimate of the time of a batch, relative to the newest one."""


class Overloaded(Exception):
    """Too many rows are waiting."""


@dataclass
class Job:
    """Rows of a request, what is asked about them, a key of that, and where the answer goes."""

    rows: list[Any]
    k: int
    labels: npt.NDArray[np.int64] | None
    key: tuple[int, bytes]
    size: int
    answer: asyncio.Future[list[Any]] = field(repr=False)


@dataclass
class Pace:
    """CPU time of earlier batches, with their rows and values; the older, the less they count."""

    seconds: float = 0.0
    rows: float = 0.0
    size: float = 0.0

    def note(self, seconds: float, rows: int, size: int) -> None:
        """Add a batch."""
        self.seconds = MEMORY * self.seconds + seconds
        self.rows, self.size = MEMORY * self.rows + rows, MEMORY * self.size + size

    def expected(self, rows: int, size: int) -> float:
        """Seconds of a batch, at most: a row costs something and so does a value, and how much of each is unknown.

        The time per row is too long for shorter rows than before, and the time per value for longer ones; the larger of
        the two results is never too small.
        """
        return self.seconds * max(rows / self.rows, size / self.size) if self.rows and self.size else math.inf


class Batches:
    """Gathers jobs and predicts them.

    Parameters
    ----------
    predict : callable
        Takes the rows of several requests as one list, k, and the numbers of the labels to rank (None for all);
        returns one answer per row.
    most_rows : int
        Largest number of rows of a batch.
    most_waiting : int
        Largest number of waiting rows.
    """

    def __init__(
        self,
        predict: Callable[[list[Any], int, npt.NDArray[np.int64] | None], list[Any]],
        most_rows: int,
        most_waiting: int,
    ) -> None:
        self.predict, self.most_rows, self.most_waiting = predict, most_rows, most_waiting
        self.waiting: list[Job] = []
        self.n_waiting = self.n_batches = 0
        self._paces: dict[int, Pace] = {}  # by k, since longer lists take longer
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")
        self._task: asyncio.Task[None] | None = None

    async def ask(
        self, rows: list[Any], k: int, *, labels: npt.NDArray[np.int64] | None = None, size: int = 0
    ) -> list[Any]:
        """Answers for the rows, when their batch is done; `size` is the number of their values or characters."""
        if self.has_ended:
            raise RuntimeError("the service has ended its work")
        if self.n_waiting + len(rows) > self.most_waiting and self.n_waiting > 0:
            raise Overloaded
        # Many labels are compared by their digest; nobody can make another choice with the same one.
        key = (k, b"" if labels is None else hashlib.sha256(labels.tobytes()).digest())
        job = Job(rows, k, labels, key, size, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self.n_waiting += len(rows)
        self._wake.set()
        return await job.answer

    def start(self) -> None:
        """Start working."""
        self._task = asyncio.create_task(self._work())
        self._task.add_done_callback(self._fail_waiting)

    @property
    def has_ended(self) -> bool:
        """Whether there will be no more answers."""
        return self._task is not None and self._task.done()

    def _fail_waiting(self, _: asyncio.Task[None]) -> None:
        """Nobody waits for an answer that will not come."""
        for job in self.waiting:
            if not job.answer.done():
                job.answer.set_exception(RuntimeError("the service has ended its work"))
        self.waiting.clear()

    async def stop(self) -> None:
        """Finish the waiting requests, then stop."""
        while self.waiting:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(0)  # requests that were received in this turn of the loop join, and all others go on
            jobs = self._next()
            if not jobs:
                self._wake.clear()
                continue
            self.n_batches += 1
            try:
                answers = iter(await self._predicted(jobs))
            except BaseException as error:
                for job in jobs:
                    if not job.answer.done():  # a client that went away has cancelled it
                        job.answer.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                if not isinstance(error, Exception):
                    raise
                continue
            for job in jobs:
                own = list(islice(answers, len(job.rows)))
                if not job.answer.done():
                    job.answer.set_result(own)

    async def _predicted(self, jobs: list[Job]) -> list[Any]:
        """Answers for the rows of all jobs, one after another."""
        k, labels = jobs[0].k, jobs[0].labels
        rows, size = [row for job in jobs for row in job.rows], sum(job.size for job in jobs)
        pace = self._paces.setdefault(k, Pace())

        def timed() -> list[Any]:
            """CPU time, which other processes hardly change, gives the estimate."""
            started = time.thread_time()
            answers = self.predict(rows, k, labels)
            if labels is None:
                pace.note(time.thread_time() - started, len(rows), size)
            return answers

        if labels is None and pace.expected(len(rows), size) < QUICK_SECONDS:
            return timed()
        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)

    def _next(self) -> list[Job]:
        """The jobs of the next batch: the first one and those that ask the same; one larger than a batch goes alone."""
        jobs: list[Job] = []
        rest: list[Job] = []
        n_rows = 0
        for job in self.waiting:
            same = not jobs or job.key == jobs[0].key
            if same and (not jobs or n_rows + len(job.rows) <= self.most_rows):
                jobs.append(job)
                n_rows += len(job.rows)
            else:
                rest.append(job)
        self.waiting = rest
        self.n_waiting -= n_rows
        return jobs
