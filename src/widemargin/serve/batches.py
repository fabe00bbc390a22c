"""Requests that arrive at the same time are predicted together, in a separate thread.

A batch takes the waiting requests, up to a number of rows; while it is computed, the next one gathers. There is no
pause to wait for others: an idle service answers at once, and a busy one batches on its own. Memory: the number of
waiting rows is bounded, and a request that finds the queue full is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

__all__ = ["Batches", "Overloaded"]


class Overloaded(Exception):
    """Too many rows are waiting."""


@dataclass
class Job:
    """Rows of a request, and where its answer goes."""

    rows: Any
    n_rows: int
    k: int
    answer: asyncio.Future[list[Any]] = field(repr=False)


class Batches:
    """Gathers jobs and predicts them.

    Parameters
    ----------
    predict : callable
        Takes the rows of several requests, as a list, and k; returns one answer per row.
    most_rows : int
        Largest number of rows of a batch.
    most_waiting : int
        Largest number of waiting rows.
    """

    def __init__(self, predict: Callable[[list[Any], int], list[Any]], most_rows: int, most_waiting: int) -> None:
        self.predict, self.most_rows, self.most_waiting = predict, most_rows, most_waiting
        self.waiting: list[Job] = []
        self.n_waiting = self.n_batches = 0
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")
        self._task: asyncio.Task[None] | None = None

    async def ask(self, rows: Any, n_rows: int, k: int) -> list[Any]:
        """Answers for the rows, when their batch is done."""
        if self.n_waiting + n_rows > self.most_waiting and self.n_waiting > 0:
            raise Overloaded
        job = Job(rows, n_rows, k, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self.n_waiting += n_rows
        self._wake.set()
        return await job.answer

    def start(self) -> None:
        """Start working."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Finish the waiting requests, then stop."""
        while self.waiting:
            await asyncio.sleep(0.01)
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            jobs = self._next()
            if not jobs:
                self._wake.clear()
                continue
            self.n_batches += 1
            rows, k = [job.rows for job in jobs], max(job.k for job in jobs)
            try:
                answers = await loop.run_in_executor(self._thread, self.predict, rows, k)
            except (ValueError, ArithmeticError, MemoryError) as error:
                for job in jobs:
                    if not job.answer.done():  # a client that went away has cancelled it
                        job.answer.set_exception(error)
                continue
            rest = iter(answers)
            for job in jobs:
                own = [answer[: job.k] for answer in islice(rest, job.n_rows)]
                if not job.answer.done():
                    job.answer.set_result(own)

    def _next(self) -> list[Job]:
        """The jobs of the next batch; a job that is larger than a batch goes alone."""
        jobs: list[Job] = []
        n_rows = 0
        while self.waiting and (not jobs or n_rows + self.waiting[0].n_rows <= self.most_rows):
            job = self.waiting.pop(0)
            n_rows += job.n_rows
            jobs.append(job)
        self.n_waiting -= n_rows
        return jobs
